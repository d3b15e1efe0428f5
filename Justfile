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

# Run one fuzz target for a number of seconds.
fuzz TARGET SECONDS="60":
    #!/usr/bin/env bash
    set -euo pipefail
    cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
    # Sanitizers need an unstable compiler flag, which a stable compiler takes under this variable.
    cargo +nightly --version >/dev/null 2>&1 && toolchain=+nightly || { toolchain=; export RUSTC_BOOTSTRAP=1; }
    cd fuzz
    cargo $toolchain fuzz run --features libfuzzer "$1" -- -max_total_time="$2"

# Drive a broker with the clients people use; all of them, or those named.
interop *CLIENTS: _release
    net/tests/interop/run.sh "$@"

# Drive a broker with Kafka's own command-line tools.
kafka-tools: _release
    net/tests/interop/kafka_tools.sh

# Kill a broker under load that many times, and look for all it acknowledged.
kill9 ROUNDS="3" *SEED: _release
    net/tests/kill9/run.sh "$@"

# Build the API docs of the workspace: target/doc/ringlog_engine/index.html.
doc:
    cargo doc --workspace --no-deps

_format:
    cargo fmt --all -- --check

_clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# What a crate must not need: decisions need no system calls, formats and the log need no codec.
_boundaries:
    cargo check -p ringlog-replication
    cargo check -p ringlog-engine --no-default-features

_docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

_release:
    cargo build --release
