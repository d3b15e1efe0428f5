//! Appends through handles: from many threads, to many logs, with each durability, and what is refused.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringlog_engine::config::LogConfig;
use ringlog_engine::engine::{AppendError, ReadError};
use ringlog_engine::record::RecordBatchBuilder;
use ringlog_engine::rt::BackendChoice;
use ringlog_engine::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

use crate::{append, contents, engine};

#[test]
fn an_append_is_answered_when_it_is_as_durable_as_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for (offset, durability) in [
        (0, Durability::Buffered),
        (1, Durability::Written),
        (2, Durability::Flushed),
    ] {
        assert_eq!(append(&log, "x", durability), Offset(offset));
        let offsets = log.offsets();
        assert!(durability < Durability::Written || offsets.written > Offset(offset));
        assert!(durability < Durability::Flushed || offsets.flushed > Offset(offset));
    }
    assert_eq!(log.flush().wait().unwrap(), Offset(3));
}

#[test]
fn eight_writers_of_one_log_get_offsets_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let mut all: Vec<(i64, String)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let log = log.clone();
                scope.spawn(move || {
                    let append = |i| {
                        let value = format!("{writer}-{i}");
                        (append(&log, &value, Durability::Flushed).0, value)
                    };
                    (0..50).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    });
    all.sort();
    assert_eq!(all.len(), 400);
    assert_eq!(contents(&log), all);
    let metrics = engine.metrics();
    assert_eq!(metrics.appends, 400);
}

#[test]
fn eight_logs_are_written_side_by_side_and_keep_apart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    thread::scope(|scope| {
        for i in 0..8 {
            let log = engine.log(&format!("log-{i}")).unwrap();
            scope.spawn(move || {
                for j in 0..50 {
                    append(&log, &format!("{i}-{j}"), Durability::Written);
                }
            });
        }
    });
    for i in 0..8 {
        let expected: Vec<_> = (0..50).map(|j| (j, format!("{i}-{j}"))).collect();
        assert_eq!(contents(&engine.log(&format!("log-{i}")).unwrap()), expected);
    }
}

#[test]
fn appends_that_are_not_waited_for_keep_their_order_and_share_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let record = NewRecord::value(b"x");
    let pending: Vec<_> = (0..200)
        .map(|_| log.append(&[record], Durability::Flushed))
        .collect();
    for (offset, pending) in (0..).zip(pending) {
        assert_eq!(pending.wait().unwrap().base_offset, Offset(offset));
    }
    let syncs = engine.metrics().syncs;
    assert!(syncs < 100, "{syncs} syncs for 200 appends");
}

#[test]
fn a_ready_batch_is_stored_byte_for_byte_but_for_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    append(&log, "before", Durability::Buffered);
    let mut builder = RecordBatchBuilder::new();
    let now = TimestampMs(1_700_000_000_000);
    builder.append(now, Some(b"k"), Some(b"v"), &[]).unwrap();
    let batch = builder.build().unwrap();
    let info = log
        .append_batch(batch.clone(), Durability::Written)
        .wait()
        .unwrap();
    assert_eq!(info.base_offset, Offset(1));
    let read = log.scan(Offset(1)).next().unwrap().unwrap();
    assert_eq!(read.bytes()[16..], batch[16..]);
}

#[test]
fn an_idle_producer_is_forgotten_while_the_engine_runs() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        checkpoint_interval: Duration::from_millis(20),
        log: LogConfig {
            producer_id_expiration_ms: 1,
            ..EngineConfig::default().log
        },
        ..EngineConfig::default()
    };
    let engine = Engine::open(dir.path(), config).unwrap();
    let log = engine.log("wal").unwrap();
    let append = |sequence| {
        let mut builder =
            RecordBatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), Sequence(sequence));
        builder.append(TimestampMs::NONE, None, Some(b"v"), &[]).unwrap();
        log.append_batch(builder.build().unwrap(), Durability::Written)
            .wait()
    };
    append(0).unwrap();
    // While the producer is known there must be no gap.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(refused) = append(5) {
        assert!(matches!(refused, AppendError::Refused(_)), "{refused}");
        assert!(Instant::now() < deadline, "it is still known");
    }
}

#[test]
fn what_is_no_batch_is_refused_and_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let nothing = log.append(&[], Durability::Written).wait();
    assert!(matches!(nothing, Err(AppendError::Refused(_))), "{nothing:?}");
    let garbage = Bytes::from_static(&[7; 100]);
    let garbage = log.append_batch(garbage, Durability::Written).wait();
    assert!(matches!(garbage, Err(AppendError::Refused(_))), "{garbage:?}");
    let large = vec![0; 2 << 20];
    let large = log
        .append(&[NewRecord::value(&large)], Durability::Written)
        .wait();
    assert!(
        matches!(&large, Err(error @ AppendError::Refused(_)) if !error.is_outcome_unknown()),
        "{large:?}"
    );
    assert_eq!(append(&log, "x", Durability::Written), Offset(0));
    assert_eq!(engine.metrics().refused_appends, 3);
}

#[test]
fn an_offset_that_is_not_there_is_out_of_range() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    append(&log, "x", Durability::Written);
    let beyond = log.tail(Offset(2)).next().unwrap();
    assert!(matches!(beyond, Err(ReadError::OutOfRange(_))), "{beyond:?}");
}

#[test]
fn a_file_has_zeros_ahead_of_its_data_while_it_is_appended_to_and_none_after_a_clean_stop() {
    for backend in [BackendChoice::Ring, BackendChoice::Blocking] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let config = EngineConfig {
            backend,
            log: LogConfig::default(),
            ..EngineConfig::default()
        };
        let engine = Engine::open(dir.path(), config).unwrap();
        let log = engine.log("wal").unwrap();
        let value = "x".repeat(10_000);
        for _ in 0..400 {
            append(&log, &value, Durability::Flushed);
        }
        let file = dir.path().join("wal/00000000000000000000.log");
        let bytes = fs::read(&file).unwrap();
        let data = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        assert!(bytes.len() > data + 100_000, "{data} of {}", bytes.len());
        assert_eq!(contents(&log).len(), 400);
        engine.close().unwrap();
        assert!(fs::metadata(&file).unwrap().len() < data as u64 + 10);
        let engine = Engine::open(dir.path(), EngineConfig::default()).unwrap();
        assert_eq!(contents(&engine.log("wal").unwrap()).len(), 400);
    }
}
