//! The index files of a sound log replaced by other bytes.
//!
//! An index only says where to begin looking: it may cost time, never records.

use std::path::PathBuf;
use std::sync::LazyLock;

use ringlog_engine::config::LogConfig;
use ringlog_engine::io::IoQueue;
use ringlog_engine::log::{Log, OpenOptions};
use ringlog_engine::record::BatchHeader;
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{LeaderEpoch, LogId, Offset, TimestampMs};

use crate::choices::Choices;

/// The files of a log of three segments that was stopped cleanly, and its batches.
struct Sound {
    files: Vec<(PathBuf, Vec<u8>)>,
    batches: Vec<BatchHeader>,
    end: Offset,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let mut driver = LogDriver::new(settings());
    for _ in 0..30 {
        driver.append(3, 30).expect("the log is sound");
        driver.now.0 += 10;
    }
    driver.settle();
    assert!(driver.log.segment_count() >= 3);
    let batches = driver.read_all(Offset(0), 1 << 20);
    let end = driver.log.log_end_offset();
    let mut disk = driver.disk;
    let mut log = driver.log;
    log.close(&mut disk).expect("a settled log closes");
    let paths: Vec<PathBuf> = disk.paths().map(PathBuf::from).collect();
    let files = paths
        .into_iter()
        .map(|path| {
            let bytes = disk.bytes(&path).expect("the disk has what it lists").to_vec();
            (path, bytes)
        })
        .collect();
    Sound { files, batches, end }
});

fn settings() -> LogConfig {
    LogConfig {
        segment_bytes: 2000,
        index_interval_bytes: 300,
        ..LogConfig::default()
    }
}

/// Other bytes than `bytes`: chosen ones, or the same with some replaced.
fn other(bytes: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let changes = choices.below(8);
    if changes == 0 {
        let len = choices.below(100);
        return choices.bytes(len).to_vec();
    }
    let mut bytes = bytes.to_vec();
    for _ in 0..changes {
        let at = choices.below(bytes.len().max(1));
        let byte = choices.u8();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
    }
    bytes
}

/// The first byte says which of the log's other files are replaced, the rest by what.
///
/// # Panics
///
/// Where the log does not open, or any of its batches is not read.
pub fn index(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (replaced, clean_shutdown) = (choices.u8(), choices.u8() % 2 == 1);
    let mut disk = SimDisk::new();
    let mut others = 0;
    for (path, bytes) in &SOUND.files {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if is_log {
            disk.plant(path, bytes);
            continue;
        }
        if replaced & (1 << (others % 8)) == 0 {
            disk.plant(path, bytes);
        } else {
            disk.plant(path, &other(bytes, &mut choices));
        }
        others += 1;
    }
    let options = OpenOptions {
        recovery_point: SOUND.end,
        log_start_offset: Offset(0),
        clean_shutdown,
        now: TimestampMs(2_000_000),
    };
    let (log, _) = Log::open(LogDriver::dir(), LogId(7), settings(), options, &mut disk)
        .expect("a log opens whatever its indexes are");
    assert_eq!(log.log_end_offset(), SOUND.end);
    let driver = LogDriver {
        log,
        disk,
        queue: IoQueue::new(),
        now: TimestampMs(2_000_000),
        epoch: LeaderEpoch(0),
    };
    for (at, batch) in SOUND.batches.iter().enumerate() {
        let read = driver.read_all(batch.last_offset(), 4096);
        assert_eq!(read, SOUND.batches[at..]);
    }
}
