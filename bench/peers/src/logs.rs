//! Other crates' logs, by their public interfaces. Each writer waits for each of its batches.

use std::path::Path;
use std::time::Instant;

use raft_engine::{Config, Engine, LogBatch};

use crate::bench_engine::case::{Case, Outcome, RECORD_BYTES};

/// okaywal has one log and always syncs: for cases with one log, durable.
pub(crate) fn run_okaywal(case: &Case, dir: &Path) -> Outcome {
    let log = okaywal::WriteAheadLog::recover(dir, okaywal::LogVoid).expect("a new directory opens");
    let value = vec![0x5a; RECORD_BYTES];
    let outcome = case.run_writers(|_| {
        let (log, value) = (&log, &value);
        move || {
            let since = Instant::now();
            let mut entry = log.begin_entry().expect("an entry begins");
            for _ in 0..case.records {
                entry.write_chunk(value).expect("a chunk is written");
            }
            entry.commit().expect("an entry is committed");
            since
        }
    });
    log.shutdown().expect("it stops");
    outcome
}

/// raft-engine keeps its logs, there called regions, in one file; values are put under keys that come again.
pub(crate) fn run_raft_engine(case: &Case, dir: &Path) -> Outcome {
    let config = Config {
        dir: dir.to_str().expect("a plain name").to_owned(),
        ..Config::default()
    };
    let engine = Engine::open(config).expect("a new directory opens");
    let value = vec![0x5a; RECORD_BYTES];
    case.run_writers(|writer| {
        let (engine, value) = (&engine, &value);
        let region = (writer % case.logs) as u64 + 1;
        move || {
            let since = Instant::now();
            let mut batch = LogBatch::with_capacity(case.records);
            for record in 0..case.records {
                let key = (writer * 1000 + record).to_be_bytes().to_vec();
                batch.put(region, key, value.clone()).expect("a value is put");
            }
            engine
                .write(&mut batch, case.durable)
                .expect("a batch is written");
            since
        }
    })
}
