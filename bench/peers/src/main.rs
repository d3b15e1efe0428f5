//! The engine beside a bare ring, the standard library and other crates' logs: `bench_engine` with two more
//! contestants.
//!
//! ```text
//! cd bench/peers && cargo run --release -- --dir DIR
//! ```
//!
//! Knows the other crates only by their public interfaces.

#[expect(dead_code, reason = "its main is not this program's")]
#[path = "../../examples/bench_engine/main.rs"]
mod bench_engine;
mod logs;

use bench_engine::Contestant;

fn main() {
    bench_engine::run(&[
        Contestant {
            name: "okaywal",
            takes: |case| case.durable && case.logs == 1,
            run: logs::run_okaywal,
        },
        Contestant {
            name: "raft-engine",
            takes: |_| true,
            run: logs::run_raft_engine,
        },
    ]);
}
