//! A small key-value store whose write-ahead log is a log of the engine; it survives `kill -9`.
//!
//! ```text
//! cargo run -p ringlog-engine --example embed -- /tmp/store
//! ```
//!
//! It says what it recovered, then takes commands from standard input, one a line: `set KEY VALUE`, `delete KEY`, `get KEY`,
//! `compact`, `close`. A change is answered once it is on stable storage, so that what was answered is there after the process
//! has been killed at any moment. Tested in `tests/engine/examples.rs`, which does that.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufRead};
use std::path::Path;

use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

type Failure = Box<dyn Error>;

/// The pairs in memory, and the log of what changed them. A record without a value deletes its key.
struct Store {
    log: LogHandle,
    pairs: BTreeMap<String, String>,
    /// Changes replayed at the start.
    recovered: usize,
}

impl Store {
    /// Replays the log.
    fn open(engine: &Engine) -> Result<Self, Failure> {
        let log = engine.log("changes")?;
        let mut pairs = BTreeMap::new();
        let mut recovered = 0;
        for batch in log.scan(log.offsets().log_start) {
            let batch = batch?;
            for record in batch.records()?.iter() {
                let record = record?;
                let key = str::from_utf8(record.key.unwrap_or_default())?.to_owned();
                match record.value {
                    Some(value) => pairs.insert(key, str::from_utf8(value)?.to_owned()),
                    None => pairs.remove(&key),
                };
                recovered += 1;
            }
        }
        Ok(Self {
            log,
            pairs,
            recovered,
        })
    }

    /// Logs the change and waits until it is durable; only then does anyone see it.
    fn set(&mut self, key: &str, value: Option<&str>) -> Result<Offset, Failure> {
        let record = NewRecord {
            key: Some(key.as_bytes()),
            value: value.map(str::as_bytes),
            ..NewRecord::default()
        };
        let appended = self.log.append(&[record], Durability::Flushed).wait()?;
        match value {
            Some(value) => self.pairs.insert(key.to_owned(), value.to_owned()),
            None => self.pairs.remove(key),
        };
        Ok(appended.base_offset)
    }

    /// Writes all pairs anew, and lets go of everything before. Killed in between, the log holds some pairs twice, with the same
    /// value: replaying it gives the same store.
    fn compact(&mut self) -> Result<Offset, Failure> {
        let start = self.log.offsets().log_end;
        let pairs: Vec<_> = self
            .pairs
            .iter()
            .map(|(key, value)| NewRecord::key_value(key.as_bytes(), value.as_bytes()))
            .collect();
        // A batch has its largest size, so that it goes in parts.
        for part in pairs.chunks(1000) {
            // The sync comes with the flush, once for all parts.
            self.log.append(part, Durability::Buffered).wait()?;
        }
        self.log.flush().wait()?;
        Ok(self.log.truncate_prefix(start).wait()?)
    }
}

fn main() -> Result<(), Failure> {
    let dir = std::env::args().nth(1).ok_or("usage: embed DIRECTORY")?;
    // Where the kernel is killed rather than the process, flushed records are there as well.
    let engine = Engine::open(Path::new(&dir), EngineConfig::default())?;
    let mut store = Store::open(&engine)?;
    println!(
        "recovered {} keys from {} changes",
        store.pairs.len(),
        store.recovered
    );
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("set"), Some(key), Some(value)) => println!("ok {}", store.set(key, Some(value))?),
            (Some("delete"), Some(key), None) => println!("ok {}", store.set(key, None)?),
            (Some("get"), Some(key), None) => match store.pairs.get(key) {
                Some(value) => println!("{value}"),
                None => println!("none"),
            },
            (Some("compact"), None, None) => println!("begins at {}", store.compact()?),
            (Some("close"), None, None) => break,
            _ => println!("set KEY VALUE, delete KEY, get KEY, compact or close"),
        }
    }
    // Not needed for safety; the next start is faster for it.
    engine.close()?;
    Ok(())
}
