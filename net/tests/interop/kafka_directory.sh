#!/usr/bin/env bash
# Serves a data directory that Apache Kafka wrote (engine/tests/fixtures/kafka-4.4) with ringlog, once as a clean stop and once
# as a kill -9 left it, and has Kafka's Java client read every record back: they must be those that it read from Kafka.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/brokers.sh"

FIXTURE="$REPO_ROOT/engine/tests/fixtures/kafka-4.4"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-directory.XXXXXX")
BROKER_LOG="$WORK/broker.log"
trap 'stop_broker; rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM

fail() {
  echo "FAILED kafka_directory, $stop: $*"
  tail -20 "$BROKER_LOG" | sed 's/^/    /'
  exit 1
}

install_kafka || die "cannot install Kafka's Java client"
for stop in clean killed; do
  mkdir -p "$WORK/$stop"
  cp -r "$FIXTURE/$stop" "$WORK/$stop/data"
  port=$(free_port)
  BROKER=ringlog start_broker "$WORK/$stop" "$port" || fail "the broker did not start"
  timeout 60 java -Dlog4j2.level=ERROR -cp "$KAFKA_LIBS/*" "$FIXTURE/MakeFixture.java" list "127.0.0.1:$port" \
    >"$WORK/$stop.jsonl" 2>"$WORK/errors" || fail "$(head -c 2000 "$WORK/errors")"
  diff "$FIXTURE/records.jsonl" "$WORK/$stop.jsonl" >"$WORK/diff" || fail "$(head -6 "$WORK/diff")"
  stop_broker || fail "the broker did not stop"
done
echo "ok kafka_directory: $(wc -l <"$FIXTURE/records.jsonl") records of each of two directories written by Kafka"
