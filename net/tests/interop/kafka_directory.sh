#!/usr/bin/env bash
# Serves a data directory that Apache Kafka wrote (engine/tests/fixtures/kafka-4.4) with ringlog, once as a clean stop and once
# as a kill -9 left it, and has Kafka's Java client read every record back: they must be those that it read from Kafka.
# Then it reads the transactions of a directory whose transaction indexes are gone, committed records only, and
# kafka-dump-log reads the indexes that were made anew: they must be Kafka's, byte for byte.
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

stop=rebuilt
mkdir -p "$WORK/$stop"
cp -r "$FIXTURE/clean" "$WORK/$stop/data"
rm "$WORK/$stop"/data/txn-0/*index
port=$(free_port)
BROKER=ringlog start_broker "$WORK/$stop" "$port" || fail "the broker did not start"
consumer=org.apache.kafka.tools.consumer.ConsoleConsumer
timeout 60 java -Xmx256m -Dlog4j2.level=ERROR -cp "$KAFKA_LIBS/*" $consumer --bootstrap-server "127.0.0.1:$port" --topic txn \
  --partition 0 --offset earliest --isolation-level read_committed --timeout-ms 5000 --formatter-property print.offset=true \
  --formatter-property print.value=false >"$WORK/committed" 2>"$WORK/errors"
# Six transactions of six records and a marker; the second and the fifth are aborted.
grep -o 'Offset:[0-9]*' "$WORK/committed" | cut -d: -f2 | diff - <(seq 0 41 | awk '$1 % 7 != 6 && int($1 / 7) % 3 != 1') \
  >"$WORK/diff" || fail "committed records: $(head -6 "$WORK/diff") $(head -c 2000 "$WORK/errors")"
stop_broker || fail "the broker did not stop"
for index in "$FIXTURE"/clean/txn-0/*.txnindex; do
  cmp "$index" "$WORK/$stop/data/txn-0/$(basename "$index")" || fail "another transaction index"
  java -Xmx256m -Dlog4j2.level=ERROR -cp "$KAFKA_LIBS/*" org.apache.kafka.tools.DumpLogSegments \
    --files "$WORK/$stop/data/txn-0/$(basename "$index")" >"$WORK/dump" 2>&1
  grep -q 'version: 0 producerId: 5 firstOffset: [0-9]* lastOffset: [0-9]*' "$WORK/dump" ||
    fail "kafka-dump-log: $(head -c 2000 "$WORK/dump")"
done
echo "ok kafka_directory: $(wc -l <"$FIXTURE/records.jsonl") records of each of two directories written by Kafka"
