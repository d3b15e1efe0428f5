//! Fuzz targets: bytes in, and a panic where something is wrong.
//!
//! Each target is a plain function, so that its seeds are replayed by an ordinary test
//! (`tests/seeds.rs`) with nothing but a Rust and a C compiler. The programs in `fuzz_targets/`
//! hand the functions to libFuzzer and need the feature `libfuzzer`. Knows no files but one
//! temporary directory of the target `config`. How to run them: `docs/fuzzing.md`.
#![forbid(unsafe_code)]

mod canary;
mod choices;
mod config;
mod index;
mod log_ops;
mod messages;
mod records;
mod recovery;
mod state_files;
mod txn_index;

pub use canary::canary;
pub use config::config;
pub use index::index;
pub use log_ops::log_ops;
pub use messages::{request, response};
pub use records::{batch, decompress};
pub use recovery::recovery;
pub use state_files::{checkpoint, snapshot};
pub use txn_index::txn_index;

/// A target: panics where `data` shows a fault.
pub type Target = fn(data: &[u8]);

/// All targets but the canary, by the names of their programs.
pub const TARGETS: &[(&str, Target)] = &[
    ("batch", batch),
    ("checkpoint", checkpoint),
    ("config", config),
    ("decompress", decompress),
    ("index", index),
    ("log_ops", log_ops),
    ("recovery", recovery),
    ("request", request),
    ("response", response),
    ("snapshot", snapshot),
    ("txn_index", txn_index),
];
