//! Every seed goes through its target without libFuzzer, and the canary trips.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::fs;
use std::path::{Path, PathBuf};

use ringlog_fuzz::{TARGETS, canary};

/// Seeds are read by people and kept for good: they are few and small.
const SEED_BYTES_MAX: u64 = 4096;

fn seeds(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_target_survives_its_seeds() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has seeds");
        for seed in seeds {
            let data = fs::read(&seed).unwrap();
            assert!(data.len() as u64 <= SEED_BYTES_MAX, "{}", seed.display());
            let survived = std::panic::catch_unwind(|| target(&data));
            assert!(survived.is_ok(), "{} panics", seed.display());
        }
    }
}

#[test]
fn every_program_is_a_target_and_every_target_a_program() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut programs: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .filter(|name| name != "canary")
        .collect();
    programs.sort();
    let targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(programs, targets);
}

#[test]
fn the_canary_trips_on_its_bytes_and_on_no_others() {
    canary(b"rin");
    canary(b"song");
    assert!(std::panic::catch_unwind(|| canary(b"ringlog")).is_err());
}
