//! The engine, by its public interface: records appended from plain threads.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

use super::case::{Case, Outcome, RECORD_BYTES};

pub(crate) fn run(case: &Case, dir: &Path) -> Outcome {
    let engine = Engine::open(dir, EngineConfig::default()).expect("a new directory opens");
    let logs: Vec<_> = (0..case.logs)
        .map(|log| engine.log(&format!("log-{log}")).expect("a new log opens"))
        .collect();
    let value = vec![0x5a; RECORD_BYTES];
    let durability = if case.durable {
        Durability::Flushed
    } else {
        Durability::Written
    };
    let outcome = case.run_writers(|writer| {
        let (log, records) = (
            &logs[writer % case.logs],
            vec![NewRecord::value(&value); case.records],
        );
        let mut under_way = VecDeque::new();
        move || {
            while under_way.len() < case.batches_under_way() {
                under_way.push_back((Instant::now(), log.append(&records, durability)));
            }
            let (since, pending) = under_way.pop_front().expect("one was just made");
            pending.wait().expect("a sound batch is appended");
            since
        }
    });
    engine.close().expect("it stops");
    outcome
}

/// Reads `gib` GiB in order, checksums verified, twice: from the page cache the second time. GB/s of that.
pub(crate) fn read(gib: usize, dir: &Path) -> f64 {
    let engine = Engine::open(dir, EngineConfig::default()).expect("a new directory opens");
    let log = engine.log("log").expect("a new log opens");
    let value = vec![0x5a; RECORD_BYTES];
    let records = vec![NewRecord::value(&value); 64];
    let mut last = None;
    for _ in 0..gib << 14 {
        last = Some(log.append(&records, Durability::Buffered));
    }
    last.expect("at least one").wait().expect("appended");
    log.flush().wait().expect("flushed");
    let mut gb_per_s = 0.0;
    for _ in 0..2 {
        let (started, mut bytes) = (Instant::now(), 0);
        for batch in log.scan(log.offsets().log_start) {
            bytes += batch.expect("the batch is sound").bytes().len();
        }
        gb_per_s = bytes as f64 / 1e9 / started.elapsed().as_secs_f64();
    }
    engine.close().expect("it stops");
    gb_per_s
}
