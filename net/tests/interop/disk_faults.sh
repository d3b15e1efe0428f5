#!/usr/bin/env bash
# A broker on a disk that errs and on one that is full: ext4 on a loop device on a file that fuzz/faults serves over FUSE
# and that fails a sync, a write or a read when told to. What must hold, and the clients: disk_faults.py beside
# this file. Needs to be root. The release binaries, or RINGLOG_BIN.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/brokers.sh"
. "$REPO_ROOT/fuzz/faults/lib.sh"

DISK_MIB=64
need_disks
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringlog-faults.XXXXXX")
PIDS=()
finish() {
  for pid in "${PIDS[@]}"; do kill -TERM "$pid" 2>/dev/null && wait "$pid" || true; done
  release_disks "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM
install_python >"$WORK/install.log" 2>&1 || { cat "$WORK/install.log" >&2; die "cannot install the Python client"; }

mkdir "$WORK/disks" "$WORK/fs"
"$REPO_ROOT/target/release/fault_disk" "$WORK/disks" "$DISK_MIB" >"$WORK/faults.log" 2>&1 &
DISK=$!
for _ in $(seq 50); do [ -e "$WORK/disks/disk" ] && break; sleep 0.1; done
DEVICE=$(losetup --find --show --direct-io=on "$WORK/disks/disk")
# Without a journal a sync fails for the one file it was for; a journal that cannot commit takes all files with it.
mkfs.ext4 -q -F -b 4096 -O ^has_journal -E nodiscard,lazy_itable_init=0 "$DEVICE"

port=$(free_port)
broker_command "$WORK/fs" "$port" || die "no broker"
"$PYTHON" -B "$INTEROP_DIR/disk_faults.py" "$WORK" "$DEVICE" "127.0.0.1:$port" "${BROKER_COMMAND[@]}" &
PIDS=("$!" "$DISK")
status=0
wait "${PIDS[0]}" || status=$?
[ "$status" = 0 ] || { echo "the ends of the broker's log and of the disk's:" >&2; tail -n 25 "$WORK/broker.log" "$WORK/faults.log" >&2; }
exit "$status"
