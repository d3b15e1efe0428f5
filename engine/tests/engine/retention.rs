//! Retention by the engine itself: what goes, what stays, and what a restart finds.

use std::thread;
use std::time::{Duration, Instant};

use ringlog_engine::config::LogConfig;
use ringlog_engine::engine::EngineOpenError;
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle};

use crate::{append, contents};

fn config(retention_bytes: Option<u64>, retention_ms: Option<i64>) -> EngineConfig {
    EngineConfig {
        retention_check_interval: Duration::from_millis(5),
        log: LogConfig {
            segment_bytes: 1024,
            retention_bytes,
            retention_ms,
            ..EngineConfig::default().log
        },
        ..EngineConfig::default()
    }
}

fn wait_for_start(log: &LogHandle, wanted: impl Fn(Offset) -> bool) -> Offset {
    let until = Instant::now() + Duration::from_secs(30);
    while !wanted(log.offsets().log_start) {
        assert!(Instant::now() < until, "{:?}", log.offsets());
        thread::sleep(Duration::from_millis(2));
    }
    log.offsets().log_start
}

#[test]
fn the_oldest_segments_go_while_enough_is_left_and_stay_away() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), config(Some(3000), None)).unwrap();
    let (log, kept) = (engine.log("short").unwrap(), engine.log("kept").unwrap());
    let forever = LogConfig {
        retention_bytes: None,
        ..config(None, None).log
    };
    kept.set_config(forever).wait().unwrap();
    for i in 0..60 {
        append(&log, &format!("{i:0>200}"), Durability::Flushed);
        append(&kept, &format!("{i:0>200}"), Durability::Flushed);
    }
    // Segments of three records, about 270 bytes each: four of them hold the limit.
    let start = wait_for_start(&log, |start| start.0 >= 45);
    assert!(start.0 <= 48, "3000 bytes stay");
    assert_eq!(kept.offsets().log_start, Offset(0));
    engine.close().unwrap();
    let engine = Engine::open(dir.path(), config(None, None)).unwrap();
    let log = engine.log("short").unwrap();
    assert_eq!(log.offsets().log_start, start);
    assert_eq!(contents(&log).len(), usize::try_from(60 - start.0).unwrap());
    assert_eq!(append(&log, "next", Durability::Flushed), Offset(60));
}

#[test]
fn expired_records_go_and_what_comes_after_stays() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), config(None, Some(1))).unwrap();
    let log = engine.log("short").unwrap();
    for i in 0..5 {
        append(&log, &i.to_string(), Durability::Written);
    }
    wait_for_start(&log, |start| start == Offset(5));
    log.set_config(config(None, None).log).wait().unwrap();
    append(&log, "young", Durability::Flushed);
    assert!(contents(&log).iter().all(|(offset, _)| *offset >= 5));
}

#[test]
fn nothing_goes_for_its_age_by_default() {
    assert_eq!(EngineConfig::default().log.retention_ms, None);
    let dir = tempfile::tempdir().unwrap();
    let never = EngineConfig {
        retention_check_interval: Duration::ZERO,
        ..EngineConfig::default()
    };
    let opened = Engine::open(dir.path(), never);
    assert!(matches!(
        opened,
        Err(EngineOpenError::Config {
            setting: "retention_check_interval"
        })
    ));
}
