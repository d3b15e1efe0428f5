//! The engine on the real kernel in the faults its documents have a table of: a process that is killed, limits
//! of the system that are reached, a byte that turned.
//!
//! It refuses or says so; it never acknowledges on, hangs, or drops in silence. A test that needs a process of
//! its own runs itself as one; a failed sync and a full disk are in `log_faults.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ringlog_engine::config::LogConfig;
use ringlog_engine::record::BatchHeader;
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

/// Where a process that was started by a test finds its directory.
const CHILD: &str = "RINGLOG_FAULT_CHILD";
/// More than any child appends before it is killed or refused.
const APPENDS_MAX: usize = 20_000;

type Records = BTreeMap<i64, String>;

fn config() -> EngineConfig {
    EngineConfig {
        shards: 1,
        log: LogConfig {
            segment_bytes: 4096,
            index_interval_bytes: 256,
            ..EngineConfig::default().log
        },
        ..EngineConfig::default()
    }
}

/// A directory on the disk of the build: the system's temporary directory may be in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What can be read, in order, and the error that ends it.
fn read(log: &LogHandle) -> (Records, Option<String>) {
    let mut records = Records::new();
    for batch in log.scan(log.offsets().log_start) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return (records, Some(error.to_string())),
        };
        let found = match batch.records() {
            Ok(found) => found,
            Err(error) => return (records, Some(error.to_string())),
        };
        for record in found.iter() {
            match record {
                Ok(record) => {
                    let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
                    records.insert(record.offset.0, value);
                }
                Err(error) => return (records, Some(error.to_string())),
            }
        }
    }
    (records, None)
}

/// Appends from four threads, telling what is acknowledged, until something is refused or enough is done.
fn append_and_tell(dir: &Path, appends: usize) {
    let engine = Engine::open(dir, config()).unwrap();
    let log = engine.log("t").unwrap();
    thread::scope(|scope| {
        for writer in 0..4 {
            let log = log.clone();
            scope.spawn(move || {
                for number in 0..appends / 4 {
                    let value = format!("{}-{writer}-{number}-{}", std::process::id(), "x".repeat(200));
                    let record = [NewRecord::value(value.as_bytes())];
                    let line = match log.append(&record, Durability::Flushed).wait() {
                        Ok(info) => format!("acknowledged {} {value}\n", info.base_offset.0),
                        Err(error) => format!("refused {error:?}\n"),
                    };
                    // The reader goes away only with this process.
                    let _ = std::io::stdout().lock().write_all(line.as_bytes());
                    if line.starts_with("refused") {
                        return;
                    }
                }
            });
        }
    });
    let (records, error) = read(&log);
    assert_eq!(error, None, "reads go on");
    println!("read {}", records.len());
    drop(log);
    // A log that refuses says so again.
    let _ = engine.close();
}

/// What a child told.
#[derive(Default)]
struct Told {
    acknowledged: Records,
    refused: Option<String>,
    /// Records it could read at its end.
    read: Option<usize>,
}

/// Runs the test of this name as a process of its own, under limits of the shell, and kills it once it has
/// been told of so many acknowledgements.
fn run_child(test: &str, dir: &Path, limits: &str, kill_after: Option<usize>) -> Told {
    let script = format!("{limits} exec \"$0\" --exact {test} --nocapture");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .arg(env::current_exe().unwrap())
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Told::default();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        if let Some(rest) = line.strip_prefix("acknowledged ") {
            let (offset, value) = rest.split_once(' ').unwrap();
            let before = told
                .acknowledged
                .insert(offset.parse().unwrap(), value.to_owned());
            assert_eq!(before, None, "an offset is given once");
        } else if let Some(error) = line.strip_prefix("refused ") {
            told.refused.get_or_insert(error.to_owned());
        } else if let Some(count) = line.strip_prefix("read ") {
            told.read = Some(count.parse().unwrap());
        }
        if kill_after.is_some_and(|count| told.acknowledged.len() == count) {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    told
}

/// Opens the directory without limits, finds everything that was acknowledged, and appends.
fn check(dir: &Path, acknowledged: &Records) {
    let engine = Engine::open(dir, config()).unwrap();
    assert!(engine.failed_logs().is_empty());
    let log = engine.log("t").unwrap();
    let (records, error) = read(&log);
    assert_eq!(error, None);
    for (offset, value) in acknowledged {
        assert_eq!(records.get(offset), Some(value), "offset {offset}");
    }
    let end = log.offsets().log_end;
    let again = [NewRecord::value(b"after")];
    let info = log.append(&again, Durability::Flushed).wait().unwrap();
    assert_eq!(info.base_offset, end);
    assert!(acknowledged.keys().all(|&offset| Offset(offset) < end));
    engine.close().unwrap();
}

/// Where the batches of a segment begin.
fn batch_starts(segment: &[u8]) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), 0);
    while let Some(header) = segment.get(at..).and_then(|rest| BatchHeader::peek(rest).ok()) {
        starts.push(at);
        at += header.len_bytes();
    }
    starts
}

fn child_directory() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

#[test]
fn kill_9_loses_nothing_acknowledged_and_gives_no_offset_twice() {
    if let Some(dir) = child_directory() {
        return append_and_tell(&dir, APPENDS_MAX);
    }
    let dir = directory();
    let mut acknowledged = Records::new();
    for round in 0..8 {
        let test = "kill_9_loses_nothing_acknowledged_and_gives_no_offset_twice";
        let told = run_child(test, dir.path(), "", Some(20 + round * 37));
        assert!(
            told.acknowledged.len() >= 20 && told.read.is_none(),
            "it was killed at work"
        );
        for (offset, value) in told.acknowledged {
            assert_eq!(
                acknowledged.insert(offset, value),
                None,
                "an offset is given once"
            );
        }
        check(dir.path(), &acknowledged);
    }
}

/// The kernel refuses writes beyond the limit with an error that no room will ever mend.
#[test]
fn a_file_size_limit_makes_the_log_read_only_and_says_so() {
    if let Some(dir) = child_directory() {
        return append_and_tell(&dir, APPENDS_MAX);
    }
    let dir = directory();
    let test = "a_file_size_limit_makes_the_log_read_only_and_says_so";
    // Four blocks of 512 bytes, half a segment.
    let told = run_child(test, dir.path(), "trap '' XFSZ; ulimit -f 4;", None);
    let refused = told.refused.expect("the limit is reached");
    assert!(
        refused.contains("00000000000000000000.log") && refused.contains("File too large"),
        "{refused}"
    );
    assert!(told.read.expect("it goes on reading") >= told.acknowledged.len());
    check(dir.path(), &told.acknowledged);
}

#[test]
fn few_descriptors_are_enough_for_hundreds_of_segments() {
    if let Some(dir) = child_directory() {
        append_and_tell(&dir, 8000);
        return append_and_tell(&dir, 400);
    }
    let dir = directory();
    let test = "few_descriptors_are_enough_for_hundreds_of_segments";
    let told = run_child(test, dir.path(), "ulimit -n 64;", None);
    assert_eq!(told.refused, None);
    assert_eq!(told.acknowledged.len(), 8400);
    assert_eq!(told.read, Some(8400), "those of its first opening among them");
    let segments = fs::read_dir(dir.path().join("t")).unwrap();
    let segments = segments.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "log")
    });
    assert!(segments.count() > 500);
    check(dir.path(), &told.acknowledged);
}

/// Takes every descriptor there is.
fn take_descriptors(taken: &mut Vec<fs::File>) {
    taken.extend(std::iter::from_fn(|| fs::File::open("/dev/null").ok()));
}

/// Appends, each time with no descriptor left, until an append is refused; then there are some again.
fn append_without_descriptors(dir: &Path) {
    let engine = Engine::open(dir, config()).unwrap();
    let log = engine.log("t").unwrap();
    let mut taken = Vec::new();
    let value = "x".repeat(3000);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..APPENDS_MAX {
            take_descriptors(&mut taken);
            let (log, value, sender) = (log.clone(), &value, sender.clone());
            scope.spawn(move || {
                let record = [NewRecord::value(value.as_bytes())];
                let appended = log.append(&record, Durability::Flushed).wait();
                let told = match &appended {
                    Ok(info) => format!("acknowledged {} {value}", info.base_offset.0),
                    Err(error) => format!("refused {error}"),
                };
                println!("{told}");
                let _ = sender.send(appended.is_err());
            });
            // One that was taken before the roll waits for it, and the next finds out.
            if results.recv_timeout(Duration::from_millis(100)) == Ok(true) {
                break;
            }
        }
        taken.clear();
    });
    let record = [NewRecord::value(value.as_bytes())];
    let info = log.append(&record, Durability::Flushed).wait().unwrap();
    println!("acknowledged {} {value}", info.base_offset.0);
    println!("read {}", read(&log).0.len());
}

#[test]
fn a_roll_that_finds_no_descriptor_is_made_once_there_is_one() {
    if let Some(dir) = child_directory() {
        return append_without_descriptors(&dir);
    }
    let dir = directory();
    let test = "a_roll_that_finds_no_descriptor_is_made_once_there_is_one";
    let told = run_child(test, dir.path(), "ulimit -n 64;", None);
    let refused = told.refused.expect("no descriptor is left at last");
    assert!(refused.contains("too many files are open"), "{refused}");
    assert_eq!(
        told.read,
        Some(told.acknowledged.len()),
        "what waited was written"
    );
    check(dir.path(), &told.acknowledged);
}

#[test]
fn a_turned_byte_is_told_and_nothing_is_dropped_in_silence() {
    let dir = directory();
    let (truth, _) = {
        let engine = Engine::open(dir.path(), config()).unwrap();
        let log = engine.log("t").unwrap();
        for number in 0..40 {
            let value = format!("{number}-{}", "y".repeat(150));
            let record = [NewRecord::value(value.as_bytes())];
            log.append(&record, Durability::Flushed).wait().unwrap();
        }
        let read = read(&log);
        engine.close().unwrap();
        read
    };
    assert_eq!(truth.len(), 40);
    let mut segments: Vec<PathBuf> = fs::read_dir(dir.path().join("t"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    assert!(segments.len() > 1);
    let (mut told, mut harmless) = (0, 0);
    for (path, step) in [(&segments[0], 61), (segments.last().unwrap(), 97)] {
        let whole = fs::read(path).unwrap();
        let starts = batch_starts(&whole);
        for at in (0..whole.len()).step_by(step) {
            let mut turned = whole.clone();
            turned[at] ^= 0x10;
            fs::write(path, &turned).unwrap();
            let engine = Engine::open(dir.path(), config()).unwrap();
            let place = format!("byte {at} of {}", path.display());
            match engine.log("t") {
                Err(error) => {
                    told += 1;
                    assert!(error.to_string().contains("log t"), "{place}: {error}");
                }
                Ok(log) => {
                    let (records, error) = read(&log);
                    // The checksum does not cover a batch's base offset: the batch after it tells.
                    let in_offset = starts.iter().any(|start| (*start..start + 8).contains(&at));
                    let prefix = truth.iter().zip(&records).all(|(a, b)| a == b);
                    assert!(prefix || in_offset, "{place}: a record is not what it was");
                    if error.is_some() {
                        told += 1;
                    } else {
                        harmless += 1;
                        assert_eq!(records, truth, "{place}: dropped in silence");
                    }
                }
            }
            // A log that was found damaged does not close as it was opened; the next turn begins afresh.
            drop(engine);
            fs::write(path, &whole).unwrap();
        }
    }
    assert!(told > 20 * harmless, "{told} told, {harmless} harmless");
}
