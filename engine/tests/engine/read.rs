//! Readers: from an offset, from a time, to an end or following; what they refuse.

use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;

use ringlog_engine::config::LogConfig;
use ringlog_engine::engine::{FoundOffset, ReadConfig, ReadError, Visibility};
use ringlog_engine::types::{Offset, TimestampMs};
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

use crate::{append, contents, engine, records};

/// Batches of three records each, `0` to `n * 3 - 1` by value.
fn fill(log: &LogHandle, batches: i64) {
    for batch in 0..batches {
        let values: Vec<String> = (0..3).map(|i| (batch * 3 + i).to_string()).collect();
        let new: Vec<_> = values
            .iter()
            .map(|value| NewRecord::value(value.as_bytes()))
            .collect();
        let pending = log.append(&new, Durability::Written);
        assert_eq!(pending.wait().expect("taken").base_offset, Offset(batch * 3));
    }
}

fn numbered(range: std::ops::Range<i64>) -> Vec<(i64, String)> {
    range.map(|i| (i, i.to_string())).collect()
}

fn small_segments() -> EngineConfig {
    EngineConfig {
        log: LogConfig {
            segment_bytes: 4096,
            ..EngineConfig::default().log
        },
        ..EngineConfig::default()
    }
}

#[test]
fn a_scan_gives_what_is_there_from_the_offset_on_also_from_within_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    fill(&log, 10);
    for from in [0, 1, 2, 3, 16, 29] {
        let read: Vec<_> = log
            .scan(Offset(from))
            .flat_map(|batch| records(&batch.unwrap()))
            .collect();
        assert_eq!(read, numbered(from..30), "from {from}");
    }
    assert!(log.scan(Offset(30)).next().is_none());
}

#[test]
fn a_scan_crosses_segments_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let first = Engine::open(dir.path(), small_segments()).unwrap();
    fill(&first.log("wal").unwrap(), 200);
    assert_eq!(contents(&first.log("wal").unwrap()), numbered(0..600));
    first.close().unwrap();
    let segments = fs::read_dir(dir.path().join("wal")).unwrap().flatten();
    let segments = segments.filter(|entry| entry.path().extension() == Some("log".as_ref()));
    assert!(segments.count() > 3);
    let second = Engine::open(dir.path(), small_segments()).unwrap();
    let log = second.log("wal").unwrap();
    assert_eq!(contents(&log), numbered(0..600));
    let within: Vec<_> = log
        .scan(Offset(301))
        .flat_map(|batch| records(&batch.unwrap()))
        .collect();
    assert_eq!(within, numbered(301..600));
}

#[test]
fn a_batch_larger_than_the_chunk_is_given_whole() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let large = "x".repeat(500_000);
    for value in ["small", &large, "small"] {
        append(&log, value, Durability::Written);
    }
    let config = ReadConfig {
        chunk_bytes: 4096,
        end: Some(Offset(3)),
        ..ReadConfig::default()
    };
    let lengths: Vec<_> = log
        .reader(Offset(0), config)
        .flat_map(|batch| records(&batch.unwrap()))
        .map(|(_, value)| value.len())
        .collect();
    assert_eq!(lengths, [5, 500_000, 5]);
}

#[test]
fn a_reader_with_an_end_stops_before_it_and_waits_until_it_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let config = ReadConfig {
        end: Some(Offset(5)),
        ..ReadConfig::default()
    };
    let reader = log.reader(Offset(0), config);
    let read = thread::spawn(move || reader.map(|batch| records(&batch.unwrap()).len()).sum::<usize>());
    for i in 0..8 {
        append(&log, &i.to_string(), Durability::Written);
    }
    assert_eq!(read.join().unwrap(), 5);
}

#[test]
fn a_tail_gives_what_is_appended_later_to_every_reader() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let tails: Vec<_> = (0..4)
        .map(|_| {
            let tail = log.tail(Offset(0));
            thread::spawn(move || {
                let batches = tail.take(100).map(|batch| records(&batch.unwrap()));
                batches.flatten().collect::<Vec<_>>()
            })
        })
        .collect();
    fill(&log, 100);
    for tail in tails {
        assert_eq!(tail.join().unwrap(), numbered(0..300));
    }
}

#[test]
fn a_reader_of_what_is_flushed_sees_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let config = ReadConfig {
        visibility: Visibility::Flushed,
        ..ReadConfig::default()
    };
    append(&log, "a", Durability::Written);
    assert_eq!(log.offsets().flushed, Offset(0));
    let mut tail = log.reader(Offset(0), config);
    let reader = thread::spawn(move || {
        let batch = tail.next().expect("it follows").expect("it is whole");
        (records(&batch), tail.next_offset())
    });
    append(&log, "b", Durability::Flushed);
    let (read, next) = reader.join().unwrap();
    assert_eq!((read, next), (vec![(0, "a".into())], Offset(1)));
}

#[test]
fn a_record_is_found_by_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), small_segments()).unwrap();
    let log = engine.log("wal").unwrap();
    assert_eq!(log.find_timestamp(TimestampMs(0)).wait().unwrap(), None);
    for i in 0..300 {
        let record = NewRecord {
            timestamp: Some(TimestampMs(1000 + i * 10)),
            ..NewRecord::value(b"some bytes to fill segments with")
        };
        log.append(&[record], Durability::Written).wait().unwrap();
    }
    for (wanted, offset) in [(0, 0), (1000, 0), (1001, 1), (2500, 150), (3990, 299)] {
        let found = log.find_timestamp(TimestampMs(wanted)).wait().unwrap();
        let timestamp = TimestampMs(1000 + offset * 10);
        let offset = Offset(offset);
        assert_eq!(found, Some(FoundOffset { offset, timestamp }), "at {wanted}");
    }
    assert_eq!(log.find_timestamp(TimestampMs(3991)).wait().unwrap(), None);
}

#[test]
fn a_turned_bit_is_found_by_the_reader_who_meets_it_and_the_rest_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for value in ["aaaa", "bbbb", "cccc"] {
        append(&log, value, Durability::Flushed);
    }
    let path = dir.path().join("wal/00000000000000000000.log");
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(4).position(|window| window == b"bbbb").unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"B", at as u64).unwrap();

    let mut scan = log.scan(Offset(0));
    assert_eq!(records(&scan.next().unwrap().unwrap()), [(0, "aaaa".into())]);
    let Some(Err(ReadError::Damaged {
        path: damaged,
        position,
        offset,
        ..
    })) = scan.next()
    else {
        panic!("the second batch is damaged");
    };
    assert_eq!(
        (damaged, position, offset),
        (path, bytes.len() as u64 / 3, Offset(1))
    );
    assert!(scan.next().is_none());
    let after = log.scan(Offset(2)).next().unwrap().unwrap();
    assert_eq!(records(&after), [(2, "cccc".into())]);
}

#[test]
fn a_garbled_length_is_damage_and_reserves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for value in ["aaaa", "bbbb", "cccc"] {
        append(&log, value, Durability::Flushed);
    }
    let path = dir.path().join("wal/00000000000000000000.log");
    let second = fs::metadata(&path).unwrap().len() / 3;
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for length in [i32::MAX, 500, 0, -1] {
        file.write_all_at(&length.to_be_bytes(), second + 8).unwrap();
        let mut scan = log.scan(Offset(0));
        assert!(scan.next().unwrap().is_ok());
        let damaged = scan.next().unwrap();
        assert!(
            matches!(damaged, Err(ReadError::Damaged { .. })),
            "{length}: {damaged:?}"
        );
    }
}
