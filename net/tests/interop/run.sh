#!/usr/bin/env bash
# Drives a running broker with the clients people use: `run.sh [client...]` (all of them unless named).
#
# Against BOOTSTRAP=host:port if that is set (it must create topics on demand, with num.partitions=4), else a broker started here on a free port with a data
# directory of its own: ringlog's release binary, or Apache Kafka with BROKER=kafka. Installs what it
# needs under target/interop. Prints a line for each client; exits nonzero if any of them failed.
# Records and topics: README.md beside this file.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/brokers.sh"

ALL="kcat confluent-kafka kafka-python aiokafka franz-go java kafkajs platformatic"
CLIENT_TIMEOUT_S="${CLIENT_TIMEOUT_S:-120}"
CLIENTS=("$@")
[ ${#CLIENTS[@]} -gt 0 ] || read -ra CLIENTS <<<"$ALL"
for client in "${CLIENTS[@]}"; do
  [[ " $ALL " == *" $client "* ]] || die "no client $client; there are: $ALL"
done

WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-interop.XXXXXX")
RUN="r$(date +%s)-$$"
BROKER_LOG="$WORK/broker.log"
trap 'stop_broker; rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM

export INTEROP_LIB="$INTEROP_DIR/lib" PYTHONPATH="$INTEROP_DIR/lib" PYTHONDONTWRITEBYTECODE=1
export GOMODCACHE="$CACHE/go/mod" GOCACHE="$CACHE/go/build" GOFLAGS="-modcacherw"

install() {
  install_python || return 1
  case $1 in
    kcat) apt_install kcat ;;
    franz-go)
      # Built each time: Go's own cache knows whether there is anything to do.
      apt_install go=golang && (cd "$INTEROP_DIR/franz-go" && go build -o "$CACHE/franz-go" .)
      ;;
    java) install_kafka ;;
    kafkajs | platformatic)
      apt_install node=nodejs npm=npm && once_per_lockfile "$INTEROP_DIR/$1/package-lock.json" install_npm "$1"
      ;;
  esac
}

install_npm() {
  mkdir -p "$CACHE/$1"
  cp "$INTEROP_DIR/$1"/package*.json "$CACHE/$1/"
  (cd "$CACHE/$1" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
}

# Runs client $1; its last line of output is "N topics, M records".
drive() {
  local python=("$CACHE/venv/bin/python") arguments=("$BOOTSTRAP" "$RUN")
  case $1 in
    kcat | confluent-kafka | kafka-python | aiokafka) limited "${python[@]}" "$INTEROP_DIR/$1/main.py" "${arguments[@]}" ;;
    franz-go) limited "$CACHE/franz-go" "${arguments[@]}" ;;
    java) limited java -Dlog4j2.level=ERROR -cp "$KAFKA_LIBS/*" "$INTEROP_DIR/java/Interop.java" "${arguments[@]}" ;;
    kafkajs | platformatic)
      # Node resolves a package from where the program lies, so the program goes beside its packages.
      cp "$INTEROP_DIR/$1"/main.* "$CACHE/$1/" &&
        limited node "$CACHE/$1"/main.* "${arguments[@]}" &&
        limited "${python[@]}" "$INTEROP_DIR/lib/readback.py" "${arguments[@]}" "$1"
      ;;
  esac
}

limited() { timeout --kill-after=5 "$CLIENT_TIMEOUT_S" "$@"; }

if [ -z "${BOOTSTRAP:-}" ]; then
  [ "${BROKER:-ringlog}" != kafka ] || install_kafka || die "cannot install Apache Kafka"
  port=$(free_port)
  # kcat has no command that creates a topic: the broker creates those it asks for.
  start_broker "$WORK/broker" "$port" auto.create.topics.enable=true num.partitions=4 || die "the broker did not start"
  BOOTSTRAP="127.0.0.1:$port"
fi

failed=0
for client in "${CLIENTS[@]}"; do
  log="$WORK/$client.log"
  started=$SECONDS
  if ! install "$client" >"$log" 2>&1; then
    echo "FAILED $client: cannot be installed"
  elif installed=$SECONDS && drive "$client" >"$log" 2>&1; then
    echo "ok $client: $(tail -1 "$log"), $((SECONDS - installed)) seconds, after $((installed - started)) to install"
    continue
  else
    echo "FAILED $client after $((SECONDS - installed)) seconds, against $BOOTSTRAP"
  fi
  tail -25 "$log" | cut -c1-600 | sed 's/^/    /'
  failed=1
done
if [ $failed -ne 0 ] && [ -s "$BROKER_LOG" ]; then
  echo "the end of the broker's log:"
  tail -25 "$BROKER_LOG" | sed 's/^/    /'
fi
exit $failed
