//! Compaction by the engine itself: what is left of a log, who reads meanwhile, and what a restart finds.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use ringlog_engine::config::{CompactionConfig, LogConfig};
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

fn config() -> EngineConfig {
    EngineConfig {
        cleaner_backoff: Duration::from_millis(2),
        log: LogConfig {
            segment_bytes: 1024,
            compaction: Some(CompactionConfig {
                min_dirty_ratio_ppm: 0,
                ..CompactionConfig::default()
            }),
            ..EngineConfig::default().log
        },
        ..EngineConfig::default()
    }
}

fn put(log: &LogHandle, key: &str, value: &str) {
    let record = NewRecord::key_value(key.as_bytes(), value.as_bytes());
    log.append(&[record], Durability::Flushed)
        .wait()
        .expect("the log takes it");
}

/// How many records there are, and the latest value of each key.
fn contents(log: &LogHandle) -> (usize, BTreeMap<String, String>) {
    let (mut count, mut latest) = (0, BTreeMap::new());
    for batch in log.scan(log.offsets().log_start) {
        for record in batch.expect("whole").records().expect("not compressed").iter() {
            let record = record.expect("well made");
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            latest.insert(text(record.key), text(record.value));
            count += 1;
        }
    }
    (count, latest)
}

fn wait(engine: &Engine, wanted: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !wanted() {
        let state = (engine.metrics(), engine.failed_compactions());
        assert!(Instant::now() < until, "{state:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes a log that takes one pass, and waits for it.
fn fill(engine: &Engine, name: &str) {
    let whole = LogConfig {
        compaction: None,
        ..config().log
    };
    let log = engine.log_with(name, whole).expect("a new log opens");
    for i in 0..40 {
        put(&log, "key", &format!("{i:0>100}"));
    }
    log.set_config(config().log).wait().expect("it is open");
    wait(engine, || contents(&log).0 < 10);
}

#[test]
fn only_the_latest_record_of_each_key_stays_whoever_reads_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), config()).unwrap();
    let log = engine.log("latest").unwrap();
    let mut wanted = BTreeMap::new();
    for i in 0..200 {
        let (key, value) = (format!("key {}", i % 5), format!("{i:0>100}"));
        put(&log, &key, &value);
        wanted.insert(key, value);
        assert_eq!(contents(&log).1, wanted);
    }
    // What is left besides is the active segment, so that nothing is dirty any more.
    wait(&engine, || contents(&log).0 == 10);
    // The pass that did it has ended once one over another log has begun.
    fill(&engine, "later");
    engine.delete_log("later").unwrap();
    assert_eq!(contents(&log).1, wanted);
    assert!(engine.failed_compactions().is_empty());
    engine.close().unwrap();

    let engine = Engine::open(dir.path(), config()).unwrap();
    let log = engine.log("latest").unwrap();
    assert_eq!(contents(&log).1, wanted);
    put(&log, "key 0", "new");
    assert_eq!(contents(&log).1["key 0"], "new");
    // What is clean is not read again after a start: the passes are those of two other logs.
    for name in ["first", "second"] {
        fill(&engine, name);
    }
    wait(&engine, || engine.metrics().compactions >= 2);
    assert_eq!(engine.metrics().compactions, 2);
}

#[test]
fn a_close_does_not_wait_for_the_next_look_at_the_logs() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let rarely = EngineConfig {
            cleaner_backoff: Duration::from_secs(24 * 3600),
            ..config()
        };
        Engine::open(dir.path(), rarely).unwrap().close().unwrap();
    }
}

#[test]
fn a_log_that_is_not_to_be_compacted_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), config()).unwrap();
    let whole = engine.log_with("whole", EngineConfig::default().log).unwrap();
    let log = engine.log("latest").unwrap();
    for i in 0..40 {
        put(&whole, "key", &format!("{i:0>100}"));
        put(&log, "key", &format!("{i:0>100}"));
    }
    wait(&engine, || contents(&log).0 < 10);
    assert_eq!(contents(&whole).0, 40);
}

#[test]
fn a_damaged_log_is_left_alone_and_named_and_the_others_are_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let quiet = EngineConfig {
        cleaner_backoff: Duration::from_secs(3600),
        ..config()
    };
    let engine = Engine::open(dir.path(), quiet).unwrap();
    for name in ["damaged", "sound"] {
        let log = engine.log(name).unwrap();
        for i in 0..40 {
            put(&log, "key", &format!("{i:0>100}"));
        }
    }
    engine.close().unwrap();
    let damaged = dir.path().join("damaged");
    let path = damaged.join("00000000000000000000.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let engine = Engine::open(dir.path(), config()).unwrap();
    let sound = engine.log("sound").unwrap();
    wait(&engine, || {
        contents(&sound).0 < 10 && engine.failed_compactions().len() == 1
    });
    let (named, error) = &engine.failed_compactions()[0];
    assert_eq!(*named, damaged);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    put(&engine.log("damaged").unwrap(), "key", "it goes on");
}

#[test]
fn an_engine_closes_and_logs_go_while_they_are_compacted() {
    for round in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), config()).unwrap();
        let log = engine.log("latest").unwrap();
        for i in 0..30 + round {
            put(&log, "key", &format!("{i:0>100}"));
        }
        if round % 2 == 0 {
            engine.delete_log("latest").unwrap();
        }
        engine.close().unwrap();
        let engine = Engine::open(dir.path(), config()).unwrap();
        let latest = contents(&engine.log("latest").unwrap()).1;
        assert_eq!(latest.len(), round % 2);
    }
}
