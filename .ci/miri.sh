#!/usr/bin/env bash
# Runs formats and the state machine of the log under Miri, which finds undefined behaviour. Miri makes no ring and runs no C:
# the engine is built without its runtime and without zstd. Arguments go to cargo in place of the chosen tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rustup run nightly cargo miri --version >/dev/null 2>&1 || {
    echo "SKIPPED: there is no nightly toolchain with Miri: rustup toolchain install nightly --profile minimal --component miri,rust-src"
    exit 0
}
# Tests read fixtures, and proptest looks for its files.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}" PROPTEST_CASES="${PROPTEST_CASES:-1}"
miri=(cargo +nightly miri test -p ringlog-engine --no-default-features --features gzip,snappy,lz4 --target-dir target/miri)
if [ "$#" -gt 0 ]; then
    exec "${miri[@]}" "$@"
fi
# What takes half a minute and more is left out; `just miri --lib` runs that, too.
"${miri[@]}" --lib -- --skip proptests --skip the_latest_offset_of_each_key --skip any_turned_digit_is_noticed
