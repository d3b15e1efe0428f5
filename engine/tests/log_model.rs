//! A log against a model of it, many runs that each follow from a seed: plain logs, and ones with zeros ahead of
//! their data, with retention, with transactions and compaction.
//!
//! `RINGLOG_SEEDS=1000..500000 cargo test --release -p ringlog-engine --test log_model` searches further. A
//! seed that fails is kept below, with the name of what was wrong.

use std::env;
use std::ops::Range;

use ringlog_engine::testing::LogModel;

/// Enough to roll and to restart often.
const STEPS: usize = 150;
const SEEDS: Range<u64> = 0..600;

/// Runs that have found a fault.
const REGRESSIONS: &[(&str, u64)] = &[
    (
        "a removed snapshot came back with the power and was believed once the log had grown to its offset",
        311,
    ),
    (
        "a segment whose snapshot a crash had prevented lost its producers with the segments below it",
        41_074,
    ),
    (
        "segments that had been removed came back in part and told wrongly how far the producers had come",
        59_604,
    ),
];

/// The same of logs that retention looks at.
const RETAINING_REGRESSIONS: &[(&str, u64)] = &[(
    "a truncation forgot files whose removal had been refused, and those of later segments went before them",
    1358,
)];

/// The same of logs that are compacted.
const COMPACTING_REGRESSIONS: &[(&str, u64)] = &[
    (
        "a truncation that left no batch above the log start, and a crash, lost the producers",
        65,
    ),
    (
        "a recovery took the first batches that compaction had left for the beginnings of their epochs",
        417,
    ),
    (
        "a pass whose segments went below the log start meanwhile failed, and its log was left alone for good",
        6000,
    ),
    (
        "a pass took a producer's last flushed batch for the sake of a marker that a crash took",
        13_938,
    ),
];

fn run(name: &str, seed: u64, run_seed: fn(u64, usize)) {
    let agrees = std::panic::catch_unwind(|| run_seed(seed, STEPS));
    assert!(agrees.is_ok(), "{name}: seed {seed}");
}

fn seeds() -> Range<u64> {
    let asked = env::var("RINGLOG_SEEDS").ok();
    asked.map_or(SEEDS, |asked| {
        let ends = asked.split_once("..").expect("RINGLOG_SEEDS=FROM..TO");
        let end = |text: &str| text.parse::<u64>().expect("RINGLOG_SEEDS=FROM..TO");
        end(ends.0)..end(ends.1)
    })
}

#[test]
fn the_log_agrees_with_its_model() {
    for seed in seeds() {
        run("found now", seed, LogModel::run_seed);
    }
}

#[test]
fn a_log_with_zeros_ahead_of_its_data_agrees_with_its_model() {
    for seed in seeds() {
        let agrees = std::panic::catch_unwind(|| LogModel::run_seed_with_zeros(seed, 2 * STEPS));
        assert!(agrees.is_ok(), "seed {seed}");
    }
}

#[test]
fn faults_that_were_found_once_stay_corrected() {
    for (name, seed) in REGRESSIONS {
        run(name, *seed, LogModel::run_seed);
    }
    for (name, seed) in RETAINING_REGRESSIONS {
        run(name, *seed, LogModel::run_retaining_seed);
    }
    for (name, seed) in COMPACTING_REGRESSIONS {
        run(name, *seed, LogModel::run_compacting_seed);
    }
}

#[test]
fn a_log_that_is_compacted_agrees_with_its_model() {
    for seed in seeds() {
        run("found now", seed, LogModel::run_compacting_seed);
    }
}

#[test]
fn a_log_with_retention_agrees_with_its_model() {
    for seed in seeds() {
        run("found now", seed, LogModel::run_retaining_seed);
    }
}
