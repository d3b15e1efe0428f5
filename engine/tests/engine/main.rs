//! The engine as an embedder uses it: through `Engine` and its handles, on the real file system.

mod append;
mod cancel;
mod compaction;
mod examples;
mod open;
mod read;
mod retention;
mod runtimes;
mod truncate;

use ringlog_engine::engine::Batch;
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

fn engine(dir: &tempfile::TempDir) -> Engine {
    Engine::open(dir.path(), EngineConfig::default()).expect("the directory is ours")
}

fn append(log: &LogHandle, value: &str, durability: Durability) -> Offset {
    let appended = log.append(&[NewRecord::value(value.as_bytes())], durability);
    appended.wait().expect("the log takes it").base_offset
}

/// The records of a batch that were asked for.
fn records(batch: &Batch) -> Vec<(i64, String)> {
    let records = batch.records().expect("not compressed");
    let pairs = records.iter().map(|record| {
        let record = record.expect("well made");
        let value = record.value.unwrap_or_default().to_vec();
        (record.offset.0, String::from_utf8(value).expect("text"))
    });
    pairs.collect()
}

/// All records of the log, by offset.
fn contents(log: &LogHandle) -> Vec<(i64, String)> {
    let batches = log.scan(log.offsets().log_start);
    batches
        .flat_map(|batch| records(&batch.expect("whole")))
        .collect()
}
