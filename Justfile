# Every command of the project, by name. `just --list` shows them; `just verify` is the gate.
# Each recipe is plain cargo or a script that can be called without just.

set positional-arguments
set shell := ["bash", "-euo", "pipefail", "-c"]

_list:
    @just --list --unsorted

# The gate, read-only: format, lints, crate boundaries, docs, tests (tidy among them).
verify: _format _clippy _boundaries _docs test

# Format, and apply what clippy can correct by itself.
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# Run all tests; arguments go to cargo: `just test -p ringlog-engine truncat`.
test *ARGS:
    cargo test {{ if ARGS == "" { "--workspace" } else { "" } }} "$@"

# Run the binary, optimised: `just run serve --data /tmp/log`.
run *ARGS:
    cargo run --release -- "$@"

# Run the criterion benches; arguments go to cargo.
bench *ARGS:
    cargo bench -p ringlog-bench "$@"

# Run one fuzz target for a number of seconds, from its seeds and what earlier runs found.
fuzz TARGET SECONDS="60":
    #!/usr/bin/env bash
    set -euo pipefail
    . fuzz/env.sh
    mkdir -p "fuzz/corpus/$1" "fuzz/seeds/$1"
    cargo $toolchain fuzz run "${fuzz_build[@]}" "$1" "fuzz/corpus/$1" "fuzz/seeds/$1" -- -max_total_time="$2" -max_len=4096

# Run every fuzz target a fixed number of times from its seeds alone, the same each time; the canary must fail.
fuzz-smoke:
    fuzz/smoke.sh

# Run the formats and the log under Miri, which finds undefined behaviour; needs a nightly toolchain with Miri. Arguments go to cargo.
miri *ARGS:
    .ci/miri.sh "$@"

# Run the tests that use the ring, files and sendfile under AddressSanitizer.
asan:
    .ci/asan.sh

# Drive a broker with the clients people use; all of them, or those named.
interop *CLIENTS: _release
    net/tests/interop/run.sh "$@"

# Drive a broker with Kafka's own command-line tools.
kafka-tools: _release
    net/tests/interop/kafka_tools.sh

# Show that records are appended by io_uring and sent by sendfile.
strace: _release
    net/tests/interop/strace.sh

# Drive a broker on a disk that errs and on one that is full (needs root, FUSE and loop devices).
disk-faults: _release _faults
    net/tests/interop/disk_faults.sh

# Cut the power under the engine at so many points; FS=xfs takes xfs for ext4 (needs root, FUSE and loop devices).
power-cut POINTS="50" *SEED: _faults
    fuzz/faults/power_cut.sh "$@"

# Kill a broker under load that many times, and look for all it acknowledged.
kill9 ROUNDS="3" *SEED: _release
    net/tests/kill9/run.sh "$@"

# Build the API docs of the workspace: target/doc/ringlog_engine/index.html.
doc:
    cargo doc --workspace --no-deps --document-private-items

_format:
    cargo fmt --all -- --check

_clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# What a crate must not need: decisions need no system calls, formats and the log need no codec.
_boundaries:
    cargo check -p ringlog-replication
    cargo check -p ringlog-engine --no-default-features

# Private items are documented too, so links to them lead somewhere.
_docs:
    RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items

_release:
    cargo build --release

_faults:
    cargo build --release -p ringlog-faults
