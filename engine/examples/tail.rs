//! Follows a log while it is written: from a thread with an iterator, from async code with a stream.
//!
//! ```text
//! ls | cargo run -p ringlog-engine --example tail -- /tmp/lines
//! ```
//!
//! Each line of standard input is appended, and a record without a value after the last. A thread prints what it reads, an
//! async task counts it; both end with that record. Tested in `tests/engine/examples.rs`.

use std::error::Error;
use std::io::{self, BufRead};
use std::thread;

use ringlog_engine::engine::Reader;
use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

type Failure = Box<dyn Error + Send + Sync>;

/// On a plain thread: the reader is an iterator, which blocks until there is more.
fn print_all(tail: Reader) -> Result<(), Failure> {
    for batch in tail {
        for record in batch?.records()?.iter() {
            let record = record?;
            let Some(line) = record.value else { return Ok(()) };
            println!("{} {}", record.offset, String::from_utf8_lossy(line));
        }
    }
    Ok(())
}

/// In async code, on any runtime: the reader as a stream.
async fn count(tail: Reader) -> Result<usize, Failure> {
    let mut stream = tail.into_stream();
    let mut count = 0;
    while let Some(batch) = stream.next_batch().await {
        for record in batch?.records()?.iter() {
            match record?.value {
                Some(_) => count += 1,
                None => return Ok(count),
            }
        }
    }
    Ok(count)
}

fn main() -> Result<(), Failure> {
    let dir = std::env::args().nth(1).ok_or("usage: tail DIRECTORY")?;
    let engine = Engine::open(dir, EngineConfig::default())?;
    let log = engine.log("lines")?;
    let start = log.offsets().log_end;

    let tail = log.tail(start);
    let printer = thread::spawn(move || print_all(tail));
    let tail = log.tail(start);
    let counter = thread::spawn(move || futures_executor::block_on(count(tail)));

    for line in io::stdin().lock().lines() {
        // Not waited for one by one: they keep their order.
        drop(log.append(&[NewRecord::value(line?.as_bytes())], Durability::Written));
    }
    let last = log.append(&[NewRecord::default()], Durability::Flushed).wait()?;
    printer.join().expect("it does not panic")?;
    let counted = counter.join().expect("it does not panic")?;
    engine.close()?;
    println!("{counted} lines, to offset {}", last.base_offset);
    Ok(())
}
