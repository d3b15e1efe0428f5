#!/usr/bin/env bash
# Runs the engine's tests that drive the ring, files and sendfile, where all of its unsafe code is, under AddressSanitizer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .ci/unstable.sh
export RUSTFLAGS="-Zsanitizer=address"
# A target of its own keeps the flag from build scripts and macros.
test=(cargo $toolchain test -p ringlog-engine --target "$host" --target-dir target/asan)
tests=(--test io_backends --test io_fallback --test sendfile --test engine)
"${test[@]}" --lib "${tests[@]}" --no-run
"${test[@]}" --lib rt::
# The examples are programs of their own, which are not built so.
"${test[@]}" "${tests[@]}" -- --skip examples::
