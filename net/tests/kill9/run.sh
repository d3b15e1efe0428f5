#!/usr/bin/env bash
# Kills a broker with SIGKILL under load: `run.sh [ROUNDS [SEED]]` (3 rounds unless said), and checks that everything
# it acknowledged is there, in order, once. What is checked and how: kill9.py beside this file.
#
# The broker is ringlog's release binary, or Apache Kafka with BROKER=kafka. BROKER_SETTINGS may hold settings
# "key=value key=value" for it. The data directory is kept when the run fails, and named.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../interop/lib/brokers.sh"

ROUNDS="${1:-3}"
SEED="${2:-$RANDOM}"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-kill9.XXXXXX")

install_python >"$WORK/install.log" 2>&1 || { cat "$WORK/install.log" >&2; die "cannot install the Python client"; }
[ "${BROKER:-ringlog}" != kafka ] || install_kafka || die "cannot install Apache Kafka"

port=$(free_port)
read -ra settings <<<"${BROKER_SETTINGS:-}"
broker_command "$WORK/broker" "$port" "${settings[@]}" || die "no broker"
if "$PYTHON" -B "$(dirname "${BASH_SOURCE[0]}")/kill9.py" "$ROUNDS" "$SEED" "127.0.0.1:$port" "$WORK/broker.log" "${BROKER_COMMAND[@]}"; then
  rm -rf "$WORK"
else
  echo "the end of the broker's log ($WORK/broker.log; its data: $WORK/broker/data):" >&2
  tail -25 "$WORK/broker.log" >&2
  exit 1
fi
