# Disks under test: what the scripts of this crate and net/tests share. Sourced, not run.
#
# A program that is killed leaves its loop devices and mounts behind; `release_disks DIR` gives back those that
# stand on files below DIR, or are mounted there, and no others.

need_disks() {
  [ "$(id -u)" = 0 ] || { echo "loop devices and mounts are needed: run as root" >&2; return 1; }
  [ -c /dev/fuse ] || { echo "/dev/fuse is not there: this kernel has no FUSE" >&2; return 1; }
  [ -c /dev/loop-control ] || { echo "/dev/loop-control is not there: this kernel has no loop devices" >&2; return 1; }
}

# The mount points below $1, the last mounted first.
mounts_below() { awk -v dir="$1/" 'index($5, dir) == 1 {print $5}' /proc/self/mountinfo | tac; }

loops_below() {
  local backing
  for backing in /sys/block/loop*/loop/backing_file; do
    case "$(cat "$backing" 2>/dev/null)" in "$1"/*) echo "/dev/$(echo "$backing" | cut -d/ -f4)" ;; esac
  done
}

release_disks() {
  local dir=$1 place device tries
  for place in $(mounts_below "$dir"); do
    # What still stands on a loop device below is unmounted before the device is let go, FUSE after it.
    findmnt -n -o FSTYPE "$place" | grep -q '^fuse' || umount "$place" 2>/dev/null || umount -l "$place" || true
  done
  for device in $(loops_below "$dir"); do losetup --detach "$device" || true; done
  for place in $(mounts_below "$dir"); do umount "$place" 2>/dev/null || umount -l "$place" || true; done
  for tries in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$(loops_below "$dir")" ] || break
    sleep 0.2
  done
  [ -z "$(mounts_below "$dir")$(loops_below "$dir")" ] || { echo "still in use: $(mounts_below "$dir") $(loops_below "$dir")" >&2; return 1; }
  rm -rf --one-file-system "$dir"
}
