//! Opening, closing, and what is there afterwards; names of logs; logs that do not open; deletion.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ringlog_engine::config::LogConfig;
use ringlog_engine::data_dir::DataDirError;
use ringlog_engine::engine::{AppendError, EngineOpenError, FlushError, Gone, OpenLogError, ReadError};
use ringlog_engine::log::OpenError;
use ringlog_engine::rt::{BackendChoice, BackendKind};
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

use crate::{append, contents, engine};

fn segment(dir: &Path, log: &str) -> std::path::PathBuf {
    dir.join(log).join("00000000000000000000.log")
}

#[test]
fn records_and_offsets_are_there_after_a_clean_close_and_nothing_is_scanned() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    for value in ["a", "b", "c"] {
        append(&first.log("wal").unwrap(), value, Durability::Buffered);
    }
    first.close().unwrap();
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    let second = engine(&dir);
    assert!(!dir.path().join(".kafka_cleanshutdown").exists());
    let log = second.log("wal").unwrap();
    assert_eq!(
        contents(&log),
        [(0, "a".into()), (1, "b".into()), (2, "c".into())]
    );
    assert_eq!(append(&log, "d", Durability::Written), Offset(3));
}

#[test]
fn dropping_the_engine_closes_it_and_handles_that_are_left_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    let log = first.log("wal").unwrap();
    append(&log, "a", Durability::Buffered);
    let mut tail = log.tail(Offset(1));
    drop(first);
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    let refused = log.append(&[NewRecord::value(b"x")], Durability::Written).wait();
    assert!(matches!(&refused, Err(error @ AppendError::Gone(Gone::Closed)) if error.is_outcome_unknown()));
    assert!(matches!(log.flush().wait(), Err(FlushError::Gone(Gone::Closed))));
    assert!(matches!(tail.next(), Some(Err(ReadError::Gone(Gone::Closed)))));
    assert!(tail.next().is_none());
    assert_eq!(contents(&engine(&dir).log("wal").unwrap()), [(0, "a".into())]);
}

#[test]
fn an_append_that_is_under_way_at_the_close_is_carried_out_first() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    let log = first.log("wal").unwrap();
    let pending: Vec<_> = (0..100)
        .map(|_| log.append(&[NewRecord::value(b"x")], Durability::Flushed))
        .collect();
    first.close().unwrap();
    for pending in pending {
        pending.wait().unwrap();
    }
    assert_eq!(contents(&engine(&dir).log("wal").unwrap()).len(), 100);
}

#[test]
fn a_directory_that_is_open_is_refused_to_a_second_engine() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    let second = Engine::open(dir.path(), EngineConfig::default()).unwrap_err();
    assert!(
        matches!(&second, EngineOpenError::DataDir(DataDirError::Locked(path)) if path == dir.path()),
        "{second}"
    );
    first.close().unwrap();
    engine(&dir);
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_create_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    let engine = Engine::open(&inner, EngineConfig::default()).unwrap();
    let long = "a".repeat(201);
    for name in [
        "",
        ".",
        "..",
        "../up",
        "/tmp/x",
        "a/b",
        ".lock",
        "a\0b",
        long.as_str(),
    ] {
        let refused = engine.log(name);
        assert!(
            matches!(refused, Err(OpenLogError::Name(_))),
            "{name:?}: {refused:?}"
        );
        assert!(engine.delete_log(name).is_err(), "{name:?}");
    }
    assert!(engine.logs_by_name().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_setting_out_of_bounds_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        shards: 0,
        ..EngineConfig::default()
    };
    let refused = Engine::open(dir.path(), config).unwrap_err();
    assert!(matches!(refused, EngineOpenError::Config { setting: "shards" }));
}

#[test]
fn logs_are_found_again_by_name_and_foreign_directories_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("photos")).unwrap();
    let first = engine(&dir);
    for name in ["b", "a", "orders-7"] {
        append(&first.log(name).unwrap(), name, Durability::Written);
    }
    first.close().unwrap();
    let second = engine(&dir);
    assert_eq!(second.logs_by_name(), ["a", "b", "orders-7"]);
    assert_eq!(
        contents(&second.log("orders-7").unwrap()),
        [(0, "orders-7".into())]
    );
    assert!(dir.path().join("photos").exists());
}

#[test]
fn what_no_call_flushes_is_flushed_and_recorded_within_the_checkpoint_interval() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        checkpoint_interval: Duration::from_millis(20),
        ..EngineConfig::default()
    };
    let engine = Engine::open(dir.path(), config).unwrap();
    append(&engine.log("wal-0").unwrap(), "a", Durability::Written);
    let path = dir.path().join("recovery-point-offset-checkpoint");
    let started = Instant::now();
    while !fs::read_to_string(&path).is_ok_and(|text| text.contains("wal 0 1\n")) {
        assert!(started.elapsed() < Duration::from_secs(60), "it is not recorded");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn checkpoints_call_a_log_as_kafka_calls_its_partition() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    append(&engine.log("orders-7").unwrap(), "x", Durability::Written);
    engine.close().unwrap();
    let text = fs::read_to_string(dir.path().join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(text, "0\n1\norders 7 1\n");
}

#[test]
fn damage_below_the_recovery_point_makes_that_one_log_unavailable_and_is_never_cut_away() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    for name in ["good", "bad"] {
        append(&first.log(name).unwrap(), "precious", Durability::Flushed);
    }
    first.close().unwrap();
    let path = segment(dir.path(), "bad");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();

    let second = engine(&dir);
    let OpenLogError::Open { name, source } = second.log("bad").unwrap_err() else {
        panic!("it is damaged");
    };
    assert_eq!(name, "bad");
    assert!(matches!(
        &*source,
        OpenError::Damaged { path: damaged, position: 0, .. } if *damaged == path
    ));
    assert_eq!(second.failed_logs().len(), 1);
    append(&second.log("good").unwrap(), "more", Durability::Flushed);
    second.close().unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert!(!dir.path().join(".kafka_cleanshutdown").exists());

    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(
        contents(&engine(&dir).log("bad").unwrap()),
        [(0, "precious".into())]
    );
}

#[test]
fn a_turned_byte_of_a_record_below_the_recovery_point_is_told_to_its_reader() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    for value in ["fine", "precious", "fine"] {
        append(&first.log("log").unwrap(), value, Durability::Flushed);
    }
    first.close().unwrap();
    let path = segment(dir.path(), "log");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"precious").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();

    let second = engine(&dir);
    let log = second.log("log").unwrap();
    assert_eq!(log.offsets().log_end, Offset(3));
    let mut batches = log.scan(Offset(0));
    assert!(batches.next().unwrap().is_ok());
    let refused = batches.next().unwrap();
    assert!(
        matches!(refused, Err(ReadError::Damaged { path: damaged, offset: Offset(1), .. }) if damaged == path)
    );
}

#[test]
fn a_log_that_does_not_open_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    append(&first.log("bad").unwrap(), "x", Durability::Flushed);
    first.close().unwrap();
    fs::write(segment(dir.path(), "bad"), b"nonsense").unwrap();
    fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
    let second = engine(&dir);
    assert!(second.log("bad").is_err());
    second.delete_log("bad").unwrap();
    assert!(second.failed_logs().is_empty());
    assert_eq!(
        append(&second.log("bad").unwrap(), "y", Durability::Written),
        Offset(0)
    );
}

#[test]
fn an_unreadable_checkpoint_costs_a_scan_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir);
    append(&first.log("wal").unwrap(), "x", Durability::Flushed);
    first.close().unwrap();
    let path = dir.path().join("recovery-point-offset-checkpoint");
    fs::write(&path, b"nonsense").unwrap();
    let second = engine(&dir);
    assert_eq!(second.distrusted_checkpoints()[0].path, path);
    assert_eq!(contents(&second.log("wal").unwrap()), [(0, "x".into())]);
}

#[test]
fn a_deleted_log_is_gone_for_its_handles_and_a_new_one_of_its_name_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let pending: Vec<_> = (0..50)
        .map(|_| log.append(&[NewRecord::value(b"x")], Durability::Flushed))
        .collect();
    let mut tail = log.tail(Offset(50));
    engine.delete_log("wal").unwrap();
    for pending in pending {
        let answer = pending.wait();
        assert!(
            matches!(answer, Ok(_) | Err(AppendError::Gone(Gone::Deleted))),
            "{answer:?}"
        );
    }
    assert!(matches!(
        log.append(&[NewRecord::value(b"x")], Durability::Written).wait(),
        Err(AppendError::Gone(Gone::Deleted))
    ));
    assert!(matches!(tail.next(), Some(Err(ReadError::Gone(Gone::Deleted)))));
    assert!(!dir.path().join("wal").exists());
    let anew = engine.log("wal").unwrap();
    assert_eq!(append(&anew, "y", Durability::Written), Offset(0));
    assert_eq!(contents(&anew), [(0, "y".into())]);
    engine.close().unwrap();
    let retired = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with("-delete");
    let left = fs::read_dir(dir.path()).unwrap().flatten().filter(retired);
    assert_eq!(left.count(), 0);
}

#[test]
fn deleting_what_is_not_there_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    engine(&dir).delete_log("never").unwrap();
}

#[test]
fn a_log_takes_over_settings_given_later() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    engine.log("wal").unwrap();
    let config = LogConfig {
        max_message_bytes: 100,
        ..LogConfig::default()
    };
    let log = engine.log_with("wal", config).unwrap();
    let refused = log.append(&[NewRecord::value(&[0; 200])], Durability::Written);
    assert!(matches!(refused.wait(), Err(AppendError::Refused(_))));
}

#[test]
fn everything_works_without_io_uring_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        backend: BackendChoice::Blocking,
        ..EngineConfig::default()
    };
    let first = Engine::open(dir.path(), config.clone()).unwrap();
    assert_eq!(first.backend().0, BackendKind::Blocking);
    let log = first.log("wal").unwrap();
    append(&log, "a", Durability::Flushed);
    append(&log, "b", Durability::Flushed);
    log.truncate_suffix(Offset(1)).wait().unwrap();
    append(&log, "c", Durability::Flushed);
    first.close().unwrap();
    let second = Engine::open(dir.path(), config).unwrap();
    assert_eq!(
        contents(&second.log("wal").unwrap()),
        [(0, "a".into()), (1, "c".into())]
    );
}
