//! The transaction indexes of a sound log replaced by other bytes.
//!
//! Whatever they say, the log opens, every batch is read, and further transactions are aborted. Where the
//! log knows the checksums of its indexes, or makes them anew, readers are told of just the transactions
//! that were aborted; in a directory that another broker used last, of what makes sense.

use std::path::PathBuf;
use std::sync::LazyLock;

use bytes::BytesMut;
use ringlog_engine::config::LogConfig;
use ringlog_engine::log::{AbortedTxn, OpenOptions};
use ringlog_engine::record::{BatchHeader, EndTxnMarker, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{Offset, ProducerEpoch, ProducerId, Sequence};

use crate::choices::Choices;

/// Tells the checksums of the index files; a directory without it was last used by another broker.
const CHECKSUMS: &str = "segment-checkpoint";
const ENTRY_BYTES: usize = 34;
/// Takes part in no transaction of the sound log.
const NEWCOMER: ProducerId = ProducerId(77);

/// A log of several segments that was stopped cleanly.
struct Sound {
    files: Vec<(PathBuf, Vec<u8>)>,
    batches: Vec<BatchHeader>,
    aborted: Vec<AbortedTxn>,
    end: Offset,
}

/// Transactions of three producers that overlap; of every three one is committed.
static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let mut driver = LogDriver::new(settings());
    let mut sequences = [0, 0, 0];
    for round in 0..12 {
        for producer in [round % 3, (round + 1) % 3] {
            let sequence = &mut sequences[producer];
            append(&mut driver, id(producer), Sequence(*sequence));
            *sequence += 1;
        }
        end_txn(&mut driver, id(round % 3), round % 3 == 2);
    }
    driver.settle();
    assert!(driver.log.segment_count() >= 4);
    let end = driver.log.log_end_offset();
    let batches = driver.read_all(Offset(0), 1 << 20);
    let aborted = driver.log.aborted_transactions(Offset(0), end);
    assert_eq!(aborted.len(), 8);
    let disk = stop(driver);
    let files = disk.paths().map(|path| {
        let bytes = disk.bytes(path).expect("the disk has what it lists");
        (path.to_owned(), bytes.to_vec())
    });
    Sound {
        files: files.collect(),
        batches,
        aborted,
        end,
    }
});

fn settings() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

fn id(producer: usize) -> ProducerId {
    ProducerId(i64::try_from(producer).expect("one of three"))
}

fn append(driver: &mut LogDriver, producer: ProducerId, sequence: Sequence) {
    let mut builder = RecordBatchBuilder::new()
        .producer(producer, ProducerEpoch(0), sequence)
        .transactional();
    builder
        .append(driver.now, None, Some(&[7; 40]), &[])
        .expect("a small record fits");
    let batch = BytesMut::from(builder.build().expect("a small record fits").as_ref());
    let appended = driver.log.append_as_leader(batch, driver.epoch, driver.now);
    appended.expect("an open log takes a sound batch");
}

fn end_txn(driver: &mut LogDriver, producer: ProducerId, committed: bool) {
    let marker = EndTxnMarker {
        committed,
        coordinator_epoch: 0,
    };
    let (epoch, now) = (driver.epoch, driver.now);
    let ended = driver
        .log
        .append_end_txn_marker(producer, ProducerEpoch(0), marker, epoch, now);
    ended.expect("an open log takes a marker");
}

fn stop(driver: LogDriver) -> SimDisk {
    let (mut log, mut disk) = (driver.log, driver.disk);
    log.close(&mut disk).expect("a settled log closes");
    disk
}

/// Another file than `bytes`: none, chosen bytes, or entries some of whose bytes are replaced.
fn other(bytes: &[u8], choices: &mut Choices<'_>) -> Option<Vec<u8>> {
    let mut bytes = match choices.below(4) {
        0 => return None,
        1 => {
            let len = choices.below(200);
            return Some(choices.bytes(len).to_vec());
        }
        2 => bytes.to_vec(),
        // More entries than there were, the last ones again.
        _ => [bytes, &bytes[bytes.len().saturating_sub(ENTRY_BYTES)..]].concat(),
    };
    for _ in 0..choices.below(12) {
        let (at, byte) = (choices.below(bytes.len().max(1)), choices.u8());
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
    }
    Some(bytes)
}

/// The first byte says how the log is opened, the rest by what its transaction indexes are replaced.
///
/// # Panics
///
/// Where the log does not open, does not work, or tells readers of other transactions than it may.
pub fn txn_index(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.u8();
    let (clean_shutdown, foreign, all_doubtful) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    let mut disk = SimDisk::new();
    for (path, bytes) in &SOUND.files {
        match path.extension() {
            None if foreign && path.ends_with(CHECKSUMS) => {}
            Some(extension) if extension == "txnindex" => {}
            _ => disk.plant(path, bytes),
        }
        if path.extension().is_some_and(|extension| extension == "log") {
            let path = path.with_extension("txnindex");
            let sound = SOUND.files.iter().find(|(other, _)| *other == path);
            let sound = sound.map_or(&[][..], |(_, bytes)| bytes);
            if let Some(bytes) = other(sound, &mut choices) {
                disk.plant(&path, &bytes);
            }
        }
    }
    let recovery_point = if all_doubtful { 0 } else { SOUND.end.0 };
    let mut driver = open(disk, LogDriver::options(recovery_point, clean_shutdown));
    assert_eq!(driver.log.log_end_offset(), SOUND.end);
    assert_eq!(driver.read_all(Offset(0), 4096), SOUND.batches);
    let believed = foreign && (clean_shutdown || !all_doubtful);
    check_aborted(&driver, &mut choices, believed);

    // One more is aborted, and is there after a restart.
    append(&mut driver, NEWCOMER, Sequence(0));
    end_txn(&mut driver, NEWCOMER, false);
    driver.settle();
    let end = driver.log.log_end_offset();
    let before = driver.log.aborted_transactions(Offset(0), end);
    assert!(before.iter().any(|txn| txn.producer_id == NEWCOMER));
    let options = LogDriver::options(end.0, true);
    let reopened = open(stop(driver), options);
    assert_eq!(reopened.log.aborted_transactions(Offset(0), end), before);
}

fn open(disk: SimDisk, options: OpenOptions) -> LogDriver {
    let opened = LogDriver::open(settings(), disk, options);
    opened.expect("a log opens whatever its indexes are").0
}

/// Some range's aborted transactions are those of the sound log, or, where the indexes are `believed`, make sense.
fn check_aborted(driver: &LogDriver, choices: &mut Choices<'_>, believed: bool) {
    let end = SOUND.end;
    for (from, to) in [(Offset(0), end), (offset(choices), offset(choices))] {
        let told = driver.log.aborted_transactions(from, to);
        let concerned = |txn: &&AbortedTxn| txn.last_offset >= from && txn.first_offset < to;
        if believed {
            assert!(told.iter().all(|txn| concerned(&txn) && txn.last_offset < end));
            assert!(told.is_sorted_by(|a, b| a.last_offset < b.last_offset));
        } else {
            let aborted: Vec<AbortedTxn> = SOUND.aborted.iter().filter(concerned).copied().collect();
            assert_eq!(told, aborted);
        }
    }
}

fn offset(choices: &mut Choices<'_>) -> Offset {
    let end = usize::try_from(SOUND.end.0).expect("a short log");
    Offset(i64::try_from(choices.below(end + 1)).expect("a short log"))
}
