#!/usr/bin/env bash
# A broker whose disk is full: it refuses records, goes on serving those it has, stops when it is told to, and takes
# records again once there is room, without a restart and after one.
#
# Needs the right to mount a small tmpfs. The release binary, or RINGLOG_BIN.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/brokers.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-full.XXXXXX")
BROKER_LOG="$WORK/broker.log"
DISK="$WORK/broker"
mkdir "$DISK"
trap 'stop_broker; umount "$DISK" 2>/dev/null || true; rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM
mount -t tmpfs -o size=8m tmpfs "$DISK" || die "a tmpfs cannot be mounted: run as root"

fail() { tail -20 "$BROKER_LOG" >&2; die "FAILED disk_full: $*"; }
fill() { dd if=/dev/zero of="$DISK/ballast" bs=4k status=none 2>/dev/null || true; }
make_room() { rm "$DISK/ballast"; }
produce() { timeout "$1" "$RINGLOG_BIN" produce full --broker "127.0.0.1:$port" 2>/dev/null; }
consumed() { "$RINGLOG_BIN" consume full --exit-at-end --broker "127.0.0.1:$port" 2>/dev/null; }

port=$(free_port)
export BROKER=ringlog
start_broker "$DISK" "$port" || fail "it does not start"
"$RINGLOG_BIN" topic create full --broker "127.0.0.1:$port" >/dev/null
seq 1000 | produce 30 || fail "records are refused though there is room"

fill
# Larger than what is left of the last page.
! seq -f '%0500.0f' 1001 1100 | produce 5 || fail "records were acknowledged though there is no room"
[ "$(consumed | head -1000 | tail -1)" = 1000 ] || fail "what is there is not served on a full disk"
make_room
seq 2001 2010 | produce 30 || fail "records are refused though there is room again"
[ "$(consumed | tail -1)" = 2010 ] || fail "the records after the full disk are not there"

fill
! seq -f '%0500.0f' 2011 2100 | produce 5 || fail "records were acknowledged though there is no room"
began=$SECONDS
stop_broker || fail "a full disk keeps it from stopping"
[ $((SECONDS - began)) -lt 20 ] || fail "it took $((SECONDS - began)) s to stop"
make_room
start_broker "$DISK" "$port" || fail "it does not start after a stop with a full disk"
[ "$(consumed | head -1000 | tail -1)" = 1000 ] || fail "records are lost"
seq 3001 3010 | produce 30 || fail "records are refused after the restart"
[ "$(consumed | tail -1)" = 3010 ] || fail "the records after the restart are not there"
stop_broker || fail "it does not stop"

# Nothing can be created: the start is refused, and the remedy told.
fill
broker_command "$DISK" "$port"
if timeout 20 "${BROKER_COMMAND[@]}" >"$WORK/refused.log" 2>&1; then fail "it started and stopped by itself"; fi
grep -q 'free some space' "$WORK/refused.log" || grep -q serving "$WORK/refused.log" || { cat "$WORK/refused.log" >&2; fail "the remedy is not told"; }
echo "disk_full passed"
