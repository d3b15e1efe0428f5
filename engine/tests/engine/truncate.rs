//! Truncation of either end: what goes, what stays, what readers and appends meanwhile see, what survives a restart.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringlog_engine::config::LogConfig;
use ringlog_engine::engine::{ReadError, TruncateError};
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

use crate::{append, contents, engine};

fn copy_of(dir: &tempfile::TempDir) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("there is room");
    for entry in fs::read_dir(dir.path()).expect("it is there").flatten() {
        let target = copy.path().join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).expect("it is new");
            for file in fs::read_dir(entry.path()).expect("it is there").flatten() {
                fs::copy(file.path(), target.join(file.file_name())).expect("there is room");
            }
        } else {
            fs::copy(entry.path(), target).expect("there is room");
        }
    }
    copy
}

#[test]
fn a_truncated_prefix_is_not_read_any_more_not_even_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for i in 0..10 {
        append(&log, &i.to_string(), Durability::Written);
    }
    assert_eq!(log.truncate_prefix(Offset(4)).wait().unwrap(), Offset(4));
    assert_eq!(log.offsets().log_start, Offset(4));
    assert!(matches!(
        log.scan(Offset(3)).next(),
        Some(Err(ReadError::OutOfRange(_)))
    ));
    // What a crash at this moment would leave.
    let crashed = copy_of(&dir);
    for (dir, running) in [(&dir, Some(engine)), (&crashed, None)] {
        drop(running);
        let engine = crate::engine(dir);
        let log = engine.log("wal").unwrap();
        assert_eq!(contents(&log).first(), Some(&(4, "4".into())));
        assert_eq!(contents(&log).len(), 6);
    }
}

#[test]
fn whole_files_below_a_truncated_prefix_go() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        log: LogConfig {
            segment_bytes: 1024,
            ..EngineConfig::default().log
        },
        ..EngineConfig::default()
    };
    let engine = Engine::open(dir.path(), config).unwrap();
    let log = engine.log("wal").unwrap();
    for i in 0..100 {
        append(&log, &i.to_string(), Durability::Flushed);
    }
    log.truncate_prefix(Offset(90)).wait().unwrap();
    engine.close().unwrap();
    let segments = fs::read_dir(dir.path().join("wal")).unwrap().flatten();
    let lowest = segments
        .filter(|entry| entry.path().extension() == Some("log".as_ref()))
        .map(|entry| entry.file_name().to_string_lossy()[..20].parse::<i64>().unwrap())
        .min();
    assert!(lowest > Some(50), "{lowest:?}");
}

#[test]
fn a_truncated_suffix_goes_and_its_offsets_are_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for i in 0..10 {
        append(&log, &i.to_string(), Durability::Written);
    }
    assert_eq!(log.truncate_suffix(Offset(4)).wait().unwrap(), Offset(4));
    assert_eq!(append(&log, "new", Durability::Flushed), Offset(4));
    let expected: Vec<(i64, String)> = (0..4)
        .map(|i| (i, i.to_string()))
        .chain([(4, "new".into())])
        .collect();
    assert_eq!(contents(&log), expected);
    let crashed = copy_of(&dir);
    for (dir, running) in [(&dir, Some(engine)), (&crashed, None)] {
        drop(running);
        assert_eq!(contents(&crate::engine(dir).log("wal").unwrap()), expected);
    }
}

#[test]
fn truncating_within_a_batch_takes_the_whole_batch() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    append(&log, "a", Durability::Written);
    let three = [NewRecord::value(b"b"); 3];
    log.append(&three, Durability::Written).wait().unwrap();
    assert_eq!(log.truncate_suffix(Offset(2)).wait().unwrap(), Offset(1));
    assert_eq!(contents(&log), [(0, "a".into())]);
}

#[test]
fn what_is_out_of_range_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for i in 0..4 {
        append(&log, &i.to_string(), Durability::Written);
    }
    log.truncate_prefix(Offset(2)).wait().unwrap();
    for refused in [
        log.truncate_prefix(Offset(5)),
        log.truncate_suffix(Offset(5)),
        log.truncate_suffix(Offset(1)),
    ] {
        assert!(matches!(refused.wait(), Err(TruncateError::OutOfRange(_))));
    }
    assert_eq!(log.truncate_prefix(Offset(1)).wait().unwrap(), Offset(2));
    assert_eq!(log.truncate_suffix(Offset(4)).wait().unwrap(), Offset(4));
    assert_eq!(contents(&log), [(2, "2".into()), (3, "3".into())]);
}

#[test]
fn what_is_asked_before_and_after_a_truncation_is_done_before_and_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let before: Vec<_> = (0..20)
        .map(|_| log.append(&[NewRecord::value(b"before")], Durability::Flushed))
        .collect();
    let truncated = log.truncate_suffix(Offset(10));
    let after: Vec<_> = (0..5)
        .map(|_| log.append(&[NewRecord::value(b"after")], Durability::Flushed))
        .collect();
    let again = log.truncate_suffix(Offset(12));
    let flushed = log.flush();
    for (offset, pending) in (0..).zip(before) {
        assert_eq!(pending.wait().unwrap().base_offset, Offset(offset));
    }
    assert_eq!(truncated.wait().unwrap(), Offset(10));
    for (offset, pending) in (10..).zip(after) {
        assert_eq!(pending.wait().unwrap().base_offset, Offset(offset));
    }
    assert_eq!(again.wait().unwrap(), Offset(12));
    assert_eq!(flushed.wait().unwrap(), Offset(12));
    let values: Vec<_> = contents(&log).into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [vec!["before"; 10], vec!["after"; 2]].concat());
}

#[test]
fn a_tail_beyond_the_new_end_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for i in 0..10 {
        append(&log, &i.to_string(), Durability::Written);
    }
    let mut tail = log.tail(Offset(9));
    tail.next().unwrap().unwrap();
    let waiting = thread::spawn(move || tail.next());
    log.truncate_suffix(Offset(4)).wait().unwrap();
    let told = waiting.join().unwrap();
    assert!(matches!(told, Some(Err(ReadError::OutOfRange(_)))), "{told:?}");
}

/// Each record names its offset and how often the log had been truncated when it was appended.
#[test]
fn readers_of_a_log_that_is_truncated_all_the_time_see_no_byte_of_what_never_was() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let done = AtomicBool::new(false);
    let filler = "x".repeat(300);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (offset, value) in contents(&log) {
                        assert!(value.starts_with(&format!("{offset} ")), "{offset}: {value}");
                    }
                    thread::yield_now();
                }
            });
        }
        for round in 0..30 {
            let mut offset = log.offsets().log_end.0;
            for length in 0..40 {
                let value = format!("{offset} {round} {}", &filler[..(round * 7 + length * 3) % 300]);
                offset = append(&log, &value, Durability::Buffered).0 + 1;
            }
            let keep = log.offsets().log_end.0 * 2 / 3;
            log.truncate_suffix(Offset(keep)).wait().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}
