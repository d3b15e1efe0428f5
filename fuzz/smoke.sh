#!/usr/bin/env bash
# Runs every fuzz target a fixed number of times with a fixed seed, from its seeds alone, and then the
# canary, which must fail. Finds what a change has broken, not what nobody knows: that is `just fuzz`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. fuzz/env.sh

# Executions: what takes each target three seconds or so.
declare -A runs=(
    [batch]=200000 [checkpoint]=500000 [config]=3000 [decompress]=200000 [index]=8000 [log_ops]=2500
    [recovery]=8000 [request]=300000 [response]=300000 [snapshot]=2000000 [txn_index]=8000
)
CANARY_RUNS=1000000

cargo $toolchain fuzz build "${fuzz_build[@]}"
programs=fuzz/target/$host/release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Runs target $1 at most $2 times, its output in a file. What it finds goes to the first directory, not among the seeds.
run() {
    local directories=("$work/$1")
    [ ! -d "fuzz/seeds/$1" ] || directories+=("fuzz/seeds/$1")
    mkdir -p "$work/$1" "fuzz/artifacts/$1"
    "$programs/$1" -seed=1 -runs="$2" -max_len=4096 -artifact_prefix="fuzz/artifacts/$1/" \
        "${directories[@]}" >"$work/$1.log" 2>&1
}

for program in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$program" .rs)
    [ "$target" = canary ] && continue
    started=$SECONDS
    run "$target" "${runs[$target]}" || { cat "$work/$target.log"; echo "FAILED $target" >&2; exit 1; }
    echo "ok $target: $(grep -a 'DONE  *cov' "$work/$target.log"), $((SECONDS - started)) s"
done

if run canary "$CANARY_RUNS"; then
    cat "$work/canary.log"
    echo "FAILED canary: it was not found within $CANARY_RUNS runs, so nothing would be" >&2
    exit 1
fi
# It may have ended for another reason than its own.
grep -aq 'the canary has been found' "$work/canary.log" || { cat "$work/canary.log"; exit 1; }
echo "ok canary: found"
