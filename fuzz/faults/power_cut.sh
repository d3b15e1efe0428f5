#!/usr/bin/env bash
# Cuts the power under ringlog's logs: `power_cut.sh [POINTS [SEED]]` (50 points unless said). FS=xfs takes xfs
# in place of ext4. What is done and checked: src/power_cut/. A point that fails is kept in target/power-cut,
# its disk and its notes: mount a copy of the disk and give the notes to `power_cut verify MOUNT/logs /dev/null`.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
. "$ROOT/fuzz/faults/lib.sh"

POINTS="${1:-50}"
SEED="${2:-$RANDOM}"
need_disks
if [ "${FS:-ext4}" = xfs ] && ! command -v mkfs.xfs >/dev/null; then
  DEBIAN_FRONTEND=noninteractive apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends xfsprogs >/dev/null
fi

WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-power.XXXXXX")
RUN=
# The program first: what stands on its disks cannot be given back while it uses them.
finish() { [ -z "$RUN" ] || { kill -TERM "$RUN" 2>/dev/null && wait "$RUN"; } || true; release_disks "$WORK"; }
trap finish EXIT
trap 'exit 130' INT TERM
"$ROOT/target/release/power_cut" run "$POINTS" --seed "$SEED" --fs "${FS:-ext4}" --work "$WORK" --keep "$ROOT/target/power-cut" &
RUN=$!
status=0
wait "$RUN" || status=$?
RUN=
exit "$status"
