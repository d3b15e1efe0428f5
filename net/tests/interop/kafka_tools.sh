#!/usr/bin/env bash
# Kafka's own command-line tools (kafka-tools 4.4.0) against a broker: kafka-topics, kafka-configs, kafka-get-offsets,
# kafka-console-producer, kafka-console-consumer; and kafka-dump-log on what it left on disk after a clean stop.
#
# The broker is started here: ringlog's release binary, or Apache Kafka with BROKER=kafka. Every step asserts on what the
# tool printed; the first that finds something else ends the script with the tool's whole output.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/brokers.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-tools.XXXXXX")
BROKER_LOG="$WORK/broker.log"
OUT="$WORK/out"
trap 'stop_broker; rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM

fail() {
  echo "FAILED kafka_tools at \"$STEP\": $*"
  echo "the tool printed:"
  head -c 4000 "$OUT" | sed 's/^/    /'
  echo "the end of the broker's log:"
  tail -20 "$BROKER_LOG" | sed 's/^/    /'
  exit 1
}

STEPS=0
step() { STEP=$1 STEPS=$((STEPS + 1)); }

# tool CLASS [arguments]: runs the tool; its output, errors among it, is left in $OUT.
tool() {
  local class=$1
  shift
  timeout 60 java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR \
    -cp "$KAFKA_LIBS/*" "org.apache.kafka.tools.$class" "$@" >"$OUT" 2>&1 || fail "$class ended with status $?"
}

# The output has a line that matches the extended regular expression, or has none.
expect() { grep -qE -- "$1" "$OUT" || fail "no line matches: $1"; }
expect_none() { ! grep -qE -- "$1" "$OUT" || fail "a line matches: $1"; }
expect_count() {
  local found
  found=$(grep -cE -- "$2" "$OUT")
  [ "$found" -eq "$1" ] || fail "$found lines match, not $1: $2"
}

topics() { tool TopicCommand --bootstrap-server "$BOOTSTRAP" "$@"; }
configs() { tool ConfigCommand --bootstrap-server "$BOOTSTRAP" --entity-type topics --entity-name tools "$@"; }
offsets() { tool GetOffsetShell --bootstrap-server "$BOOTSTRAP" --topic tools "$@"; }
# Console consumers stop by count, or by a timeout that ends them with an error of its own.
consume() { tool consumer.ConsoleConsumer --bootstrap-server "$BOOTSTRAP" "$@"; }
# produce TOPIC [arguments]: the lines of stdin.
produce() { tool ConsoleProducer --bootstrap-server "$BOOTSTRAP" --topic "$@"; }

install_kafka || die "cannot install Kafka's tools"
port=$(free_port)
BOOTSTRAP="127.0.0.1:$port"
start_broker "$WORK/broker" "$port" || die "the broker did not start"
started=$SECONDS

step "kafka-topics --create"
topics --create --topic tools --partitions 2 --replication-factor 1 --config segment.bytes=1048576 --config retention.ms=-1
expect '^Created topic tools\.'
topics --create --topic doomed --partitions 1
topics --create --if-not-exists --topic tools --partitions 2
step "kafka-topics --list"
topics --list
expect '^tools$'
expect '^doomed$'
step "kafka-topics --describe"
topics --describe --topic tools
expect 'Topic: tools.*PartitionCount: 2.*ReplicationFactor: 1.*Configs: .*segment.bytes=1048576'
expect 'Topic: tools.*Partition: 0.*Leader: [0-9]+.*Replicas: [0-9]+.*Isr: [0-9]+'
step "kafka-topics --alter --partitions"
topics --alter --topic tools --partitions 3
topics --describe --topic tools
expect 'PartitionCount: 3'
expect_count 3 'Partition: [012]'
step "kafka-topics --delete"
topics --delete --topic doomed
topics --list
expect_none '^doomed$'
expect '^tools$'

step "kafka-configs --describe"
configs --describe
expect 'segment.bytes=1048576'
configs --describe --all
expect 'max.message.bytes=[0-9]+ sensitive=false synonyms=\{'
step "kafka-configs --alter --add-config"
configs --alter --add-config max.message.bytes=2000000,retention.bytes=123456789
expect 'Completed updating config for topic tools'
configs --describe
expect 'max.message.bytes=2000000 .*DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000'
expect 'retention.bytes=123456789'
step "kafka-configs --alter --delete-config"
configs --alter --delete-config retention.bytes
configs --describe
expect_none 'retention.bytes'
expect 'max.message.bytes=2000000'

step "kafka-console-producer"
printf 'h1:one,h2:two\tk1\tv1\nNULL\tk2\tNULL\nh1:three\tk3\tv3\n' >"$WORK/keyed"
topics --create --topic keyed --partitions 1
produce keyed --reader-property parse.key=true --reader-property parse.headers=true --reader-property null.marker=NULL <"$WORK/keyed"
for n in $(seq 1 3000); do printf 'line %06d %01000d\n' "$n" 0; done >"$WORK/lines"
# Small batches, for several entries in each index; one partition, for the tool's partitioner to keep.
topics --create --topic lines --partitions 1 --config segment.bytes=1048576 --config retention.ms=-1
produce lines --command-property batch.size=3000 --command-property linger.ms=1 <"$WORK/lines"
step "kafka-console-consumer, keys and headers"
consume --topic keyed --partition 0 --offset earliest --max-messages 3 --formatter-property print.key=true \
  --formatter-property print.headers=true --formatter-property print.offset=true --formatter-property print.timestamp=true
expect $'^CreateTime:[0-9]+\tOffset:0\th1:one,h2:two\tk1\tv1$'
expect $'^CreateTime:[0-9]+\tOffset:1\tNO_HEADERS\tk2\tnull$'
expect $'^CreateTime:[0-9]+\tOffset:2\th1:three\tk3\tv3$'
step "kafka-console-consumer --partition --offset"
consume --topic lines --partition 0 --offset 2990 --max-messages 10
expect_count 10 '^line [0-9]{6} 0{1000}$'
expect '^line 002991 '
expect '^line 003000 '
consume --topic lines --partition 0 --offset earliest --max-messages 3000
grep '^line ' "$OUT" | cmp -s - "$WORK/lines" || fail "the lines consumed are not those produced"

step "a compacted topic"
topics --create --topic compacted --partitions 1 --config cleanup.policy=compact --config segment.bytes=1048576 \
  --config min.cleanable.dirty.ratio=0.01
for round in 1 2 3; do
  for n in $(seq 1 1000); do printf 'k%04d\t%d %01000d\n' "$n" "$round" 0; done
done >"$WORK/rounds"
produce compacted --reader-property parse.key=true <"$WORK/rounds"
# The first segment holds the first round, none of which is the latest of its key.
first="$WORK/broker/data/compacted-0/00000000000000000000.log"
waited=$SECONDS
until [ "$(stat -c %s "$first" 2>/dev/null || echo 1048576)" -lt 100000 ]; do
  [ $((SECONDS - waited)) -lt 60 ] || fail "the topic was not compacted within 60 s"
  sleep 0.2
done

step "kafka-get-offsets"
printf 'early\n' | produce keyed
sleep 0.05
between=$(date +%s%3N)
sleep 0.05
printf 'late\n' | produce keyed
keyed_offsets() { tool GetOffsetShell --bootstrap-server "$BOOTSTRAP" --topic keyed --time "$1"; }
keyed_offsets earliest
expect '^keyed:0:0$'
keyed_offsets latest
expect '^keyed:0:5$'
keyed_offsets "$between"
expect '^keyed:0:4$'
keyed_offsets max-timestamp
expect '^keyed:0:4$'
offsets
expect_count 3 '^tools:[012]:0$'

step "clean stop"
: >"$OUT"
stop_broker || fail "the broker did not stop"

DATA="$WORK/broker/data"
dump() { tool DumpLogSegments "$@"; }
joined() { local IFS=,; echo "$*"; }
step "kafka-dump-log of segments"
segments=("$DATA"/lines-0/*.log)
[ ${#segments[@]} -ge 3 ] || fail "3 MB in segments of 1 MiB lie in ${#segments[@]} files"
dump --deep-iteration --print-data-log --files "$(joined "${segments[@]}")"
expect_count 3000 '^\| offset: [0-9]+ .*payload: line [0-9]{6} 0{1000}$'
expect 'isvalid: true'
expect_none 'isvalid: false|corrupt|Exception|Found [0-9]+ invalid bytes'
awk '$2 == "offset:" { if ($3 != next_offset++) { print "offset " $3 " is out of order"; exit 1 } }' "$OUT" >"$WORK/order" ||
  fail "$(cat "$WORK/order")"
dump --print-data-log --files "$DATA/keyed-0/00000000000000000000.log"
expect 'offset: 0 .*headerKeys: \[h1,h2\].*key: k1 payload: v1$'
step "kafka-dump-log of compacted segments"
cleaned=("$DATA"/compacted-0/*.log)
dump --deep-iteration --print-data-log --files "$(joined "${cleaned[@]}")"
expect 'isvalid: true'
expect_none 'isvalid: false|corrupt|Exception|Found [0-9]+ invalid bytes'
sed -nE 's/^\| offset: ([0-9]+) .*key: (k[0-9]{4}) payload: ([123]) .*/\1 \2 \3/p' "$OUT" |
  awk '{ if ($1 <= last) { print "offset " $1 " after " last; exit } last = $1; round[$2] = $3 }
    END { for (key in round) { keys++; if (round[key] != 3) print key " is of round " round[key] }
      if (keys != 1000) print keys " keys" }' >"$WORK/latest"
[ ! -s "$WORK/latest" ] || fail "$(cat "$WORK/latest")"
step "kafka-dump-log of .index"
indexes=("$DATA"/lines-0/*.index "$DATA"/compacted-0/*.index)
dump --files "$(joined "${indexes[@]}")"
expect '^offset: [0-9]+ position: [0-9]+'
expect_none 'Mismatches|mismatch|Exception'
dump --index-sanity-check --files "$(joined "${indexes[@]}")"
# That of a segment with little left in it is empty.
expect_count ${#indexes[@]} 'passed sanity check|is empty'
step "kafka-dump-log of .timeindex"
time_indexes=("$DATA"/lines-0/*.timeindex "$DATA"/compacted-0/*.timeindex)
dump --files "$(joined "${time_indexes[@]}")"
expect '^timestamp: [0-9]+ offset: [0-9]+'
expect_none 'Found timestamp mismatch|Found out of order timestamp|mismatch|Exception'
dump --index-sanity-check --files "$(joined "${time_indexes[@]}")"
expect_count ${#time_indexes[@]} 'passed sanity check|is empty'
step "kafka-dump-log of .snapshot"
snapshots=("$DATA"/lines-0/*.snapshot)
[ -f "$DATA/lines-0/00000000000000003000.snapshot" ] || fail "a clean stop left no snapshot of the producers at the log's end"
dump --files "$(joined "${snapshots[@]}")"
expect 'producerId: [0-9]+ producerEpoch: 0 .*lastSequence: 2999 lastOffset: 2999'

echo "ok kafka_tools: $STEPS steps with Kafka's own tools, $((SECONDS - started)) seconds"
