#!/usr/bin/env bash
# Shows by strace how records pass through a ringlog: appended by io_uring, sent to consumers by sendfile, and the
# segments neither read nor written by any other call (but for the probe whether a page is in memory: a byte at a time).
#
# Needs strace, and the right to trace. The release binary, or RINGLOG_BIN.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/brokers.sh"

apt_install strace || die "cannot install strace"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-strace.XXXXXX")
BROKER_LOG="$WORK/broker.log"
TRACE="$WORK/trace"
TRACER=
trap '[ -z "$TRACER" ] || kill "$TRACER" 2>/dev/null || true; stop_broker; rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM

port=$(free_port)
BROKER=ringlog start_broker "$WORK/broker" "$port" || die "the broker did not start"
# The ring is used by io_uring_enter alone: no kernel thread polls it.
strace -f -y -e trace=io_uring_enter,sendfile,read,readv,pread64,preadv,preadv2,write,writev,pwrite64,pwritev,pwritev2,splice,mmap \
  -o "$TRACE" -p "$BROKER_PID" 2>"$WORK/strace.log" &
TRACER=$!
for _ in $(seq 100); do
  grep -q attached "$WORK/strace.log" && break
  kill -0 "$TRACER" 2>/dev/null || die "strace cannot trace here: $(cat "$WORK/strace.log")"
  sleep 0.1
done

"$RINGLOG_BIN" topic create traced --partitions 2 --broker "127.0.0.1:$port" >/dev/null
seq -f '%0500.0f' 2000 | "$RINGLOG_BIN" produce traced --broker "127.0.0.1:$port" 2>/dev/null
"$RINGLOG_BIN" consume traced --exit-at-end --broker "127.0.0.1:$port" >"$WORK/consumed" 2>/dev/null
[ "$(sort "$WORK/consumed" | uniq | wc -l)" = 2000 ] || die "not all records came back"
stop_broker
wait "$TRACER" || true
TRACER=

appends=$(grep -c 'io_uring_enter(' "$TRACE" || true)
# What a call returned is its last word; a call that another interrupts ends on a line without its arguments.
sent=$(awk '/ sendfile\(.*\.log>/ || /<... sendfile resumed>/ { n += $NF } END { print n + 0 }' "$TRACE")
other=$(grep -E ' (read|readv|pread64|preadv|write|writev|pwrite64|pwritev|pwritev2|splice|mmap)\([^"]*/[0-9]{20}\.log>' "$TRACE" || true)
probed=$(awk '(/ preadv2\(.*\.log>/ || /<... preadv2 resumed>/) && $NF > 0 { n += $NF } END { print n + 0 }' "$TRACE")
echo "io_uring_enter: $appends calls; sendfile from segments: $sent bytes; read to probe or to find a batch: $probed bytes"
[ "$appends" -gt 0 ] || die "nothing was given to io_uring"
[ "$sent" -ge 1000000 ] || die "a million bytes of records were consumed, but not sent by sendfile"
[ "$((probed * 20))" -lt "$sent" ] || die "too much of the segments was read into user space"
[ -z "$other" ] || die "segments were read or written by other calls:
$(head -5 <<<"$other")"
echo "strace passed"
