//! A log opened from whatever lies in its directory.
//!
//! The bytes are a small program that makes files: names a log would give and names it would not,
//! pieces of raw bytes, whole batches with a true checksum, zeros. Whatever it makes, the log opens
//! or says why not, and an open log does its work.

use ringlog_engine::config::LogConfig;
use ringlog_engine::io::IoQueue;
use ringlog_engine::log::{Log, Narrow, OpenOptions};
use ringlog_engine::record::{RecordBatch, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{LeaderEpoch, LogId, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::choices::Choices;

const NOW: TimestampMs = TimestampMs(1_000_000);

/// Offsets that files are named by and batches begin with: the ordinary and the extreme.
const OFFSETS: [i64; 12] = [
    0,
    1,
    2,
    3,
    5,
    8,
    100,
    1 << 31,
    (1 << 31) + 5,
    i64::MAX - (1 << 31),
    i64::MAX - 1,
    i64::MAX,
];

const EXTENSIONS: [&str; 7] = [
    "log",
    "index",
    "timeindex",
    "snapshot",
    "txnindex",
    "log.swap",
    "deleted",
];

/// Opens the log, appends, stops and opens it again.
///
/// # Panics
///
/// Where an open log breaks a promise.
pub fn recovery(data: &[u8]) {
    let mut choices = Choices::new(data);
    let clean_shutdown = choices.u8() % 2 == 1;
    let options = OpenOptions {
        recovery_point: Offset(OFFSETS[choices.below(OFFSETS.len())]),
        log_start_offset: Offset(OFFSETS[choices.below(OFFSETS.len())]),
        clean_shutdown,
        now: NOW,
    };
    let mut disk = SimDisk::new();
    while !choices.is_empty() {
        let (name, bytes) = file(&mut choices);
        disk.plant(&LogDriver::path(&name), &bytes);
    }
    let Some(mut driver) = open(disk, options) else {
        return;
    };
    // What was not verified may be found damaged when it is read; what was verified may not.
    let verified = !clean_shutdown && options.recovery_point == Offset(0);
    if verified {
        drop(driver.read_all(driver.log.log_start_offset(), 4096));
    } else {
        read_doubtful(&driver);
    }

    let end = driver.log.log_end_offset();
    if let Some(latest) = driver.log.latest_epoch() {
        driver.epoch = latest;
    }
    // There is no offset left to give beyond the last.
    if end.0 > i64::MAX - 10 {
        return;
    }
    let info = driver.append(2, 50).expect("an open log takes a sound batch");
    assert_eq!(info.base_offset, end);
    driver.settle();
    assert_eq!(driver.log.flushed_offset(), end.plus(2));
    let headers = driver.read_all(end, 4096);
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[0].base_offset(), end);

    let options = OpenOptions {
        recovery_point: driver.log.flushed_offset(),
        log_start_offset: driver.log.log_start_offset(),
        clean_shutdown: true,
        now: NOW,
    };
    let mut killed = driver.log;
    killed.close(&mut driver.disk).expect("a settled log closes");
    let reopened = open(driver.disk, options).expect("a log that was closed opens");
    assert_eq!(reopened.log.log_end_offset(), end.plus(2));
}

fn open(mut disk: SimDisk, options: OpenOptions) -> Option<LogDriver> {
    let config = LogConfig {
        segment_bytes: 4096,
        index_interval_bytes: 100,
        ..LogConfig::default()
    };
    let (log, report) = Log::open(LogDriver::dir(), LogId(7), config, options, &mut disk).ok()?;
    let end = log.log_end_offset();
    assert!(log.log_start_offset() >= options.log_start_offset && log.log_start_offset() <= end);
    assert_eq!((log.written_offset(), log.flushed_offset()), (end, end));
    assert!(log.segment_count() >= 1 && log.is_idle());
    assert!(report.cut.is_none_or(|cut| {
        disk.bytes(&cut.path)
            .is_none_or(|bytes| bytes.len() as u64 <= cut.position)
    }));
    Some(LogDriver {
        log,
        disk,
        queue: IoQueue::new(),
        now: NOW,
        epoch: LeaderEpoch(0),
    })
}

/// Plans reads from many offsets and minds no error, but the plans must stay within the files.
fn read_doubtful(driver: &LogDriver) {
    let log = &driver.log;
    for offset in OFFSETS.map(Offset) {
        let Ok(Some(mut plan)) = log.read_plan(offset, 1000, log.log_end_offset()) else {
            continue;
        };
        let file = driver.disk.file_bytes(plan.file).expect("the file is open");
        let mut position = None;
        while !plan.is_located() {
            let start = usize::try_from(plan.scan_position()).expect("a position in memory");
            assert_ne!(position, Some(start), "each chunk lies further on");
            position = Some(start);
            let end = start + plan.scan_bytes() as usize;
            let chunk = file.get(start..end).expect("the plan stays within the file");
            match plan.narrow(chunk) {
                Ok(Narrow::Located | Narrow::NeedMore) => {}
                Ok(Narrow::NextSegment(next)) => {
                    assert!(next > offset);
                    break;
                }
                Ok(Narrow::Nothing) | Err(_) => break,
            }
        }
        let end = plan.position + u64::from(plan.len_bytes);
        assert!(end <= file.len() as u64);
    }
}

/// The name and the contents of a file.
fn file(choices: &mut Choices<'_>) -> (String, Vec<u8>) {
    let named = choices.below(10);
    let offset = OFFSETS[choices.below(OFFSETS.len())];
    let name = match EXTENSIONS.get(named) {
        Some(extension) => format!("{offset:020}.{extension}"),
        None if named == 7 => "leader-epoch-checkpoint".to_owned(),
        None if named == 8 => "partition.metadata".to_owned(),
        None => String::from_utf8_lossy(choices.bytes(8)).replace('/', "_"),
    };
    let mut bytes = Vec::new();
    let mut next = Offset(offset);
    for _ in 0..choices.below(12) {
        match choices.u8() % 6 {
            0 => {
                let len = choices.below(200);
                bytes.extend_from_slice(choices.bytes(len));
            }
            1 => bytes.resize(bytes.len() + choices.below(200), 0),
            2 => {
                let len = choices.below(bytes.len().min(60_000) + 1);
                bytes.truncate(len);
            }
            3 => {
                let at = choices.below(bytes.len().clamp(1, 60_000));
                let byte = choices.u8();
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            4 => next = Offset(OFFSETS[choices.below(OFFSETS.len())]),
            _ => {
                let batch = batch(choices, next);
                let header = RecordBatch::parse(&batch).expect("it was just built");
                next = header.header().next_offset();
                bytes.extend_from_slice(&batch);
            }
        }
    }
    (name, bytes)
}

/// A batch whose checksum is true, whatever else it says.
fn batch(choices: &mut Choices<'_>, base_offset: Offset) -> Vec<u8> {
    let flags = choices.u8();
    let mut builder = RecordBatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(LeaderEpoch(i32::from(choices.u8()) - 1));
    if flags & 1 != 0 {
        let sequence = Sequence(i32::from(choices.u8()));
        builder = builder.producer(ProducerId(i64::from(flags >> 6)), ProducerEpoch(0), sequence);
    }
    if flags & 2 != 0 {
        builder = builder.transactional();
    }
    if flags & 4 != 0 {
        builder = builder.control();
    }
    let (key, value) = (choices.below(8), choices.below(64));
    let (key, value) = (choices.bytes(key), choices.bytes(value));
    let timestamp = TimestampMs(i64::from(choices.u16()) - 2);
    for _ in 0..(flags >> 3) % 8 {
        builder
            .append(timestamp, Some(key), Some(value), &[])
            .expect("a few small records fit");
    }
    builder.build().expect("a few small records fit").to_vec()
}
