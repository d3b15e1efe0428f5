//! Compaction of one log over a disk in memory: what stays, what goes and when, and what a crash at
//! any step leaves.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use proptest::prelude::*;
use ringlog_engine::config::{CompactionConfig, LogConfig};
use ringlog_engine::io::sim_disk::{Fault, Half, OpKind};
use ringlog_engine::io::{IoOp, Storage};
use ringlog_engine::log::compaction::{
    CleanedSegment, Cleaner, CleanerConfig, CleaningJob, CompactionError, Dirtiness,
};
use ringlog_engine::log::{AppendError, Log, OpenError, OpenOptions};
use ringlog_engine::record::{BatchHeader, Compression, EndTxnMarker, RecordBatch, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{LeaderEpoch, LogId, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

const DELETE_RETENTION_MS: i64 = 1000;
const ROOMY: CleanerConfig = CleanerConfig {
    map_bytes: 1 << 20,
    map_load_percent: 90,
};

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 600,
        index_interval_bytes: 100,
        compaction: Some(CompactionConfig {
            delete_retention_ms: DELETE_RETENTION_MS,
            min_dirty_ratio_ppm: 0,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
        }),
        ..LogConfig::default()
    }
}

/// Offset, key, value.
type Entry = (i64, String, Option<String>);

fn build(mut builder: RecordBatchBuilder, now: TimestampMs, records: &[(&str, Option<&str>)]) -> BytesMut {
    for (key, value) in records {
        builder
            .append(now, Some(key.as_bytes()), value.map(str::as_bytes), &[])
            .unwrap();
    }
    BytesMut::from(builder.build().unwrap().as_ref())
}

fn append(driver: &mut LogDriver, builder: RecordBatchBuilder, records: &[(&str, Option<&str>)]) -> Offset {
    let batch = build(builder, driver.now, records);
    let info = driver
        .log
        .append_as_leader(batch, driver.epoch, driver.now)
        .unwrap();
    driver.settle();
    info.base_offset
}

fn put(driver: &mut LogDriver, key: &str, value: &str) -> Offset {
    append(driver, RecordBatchBuilder::new(), &[(key, Some(value))])
}

fn delete(driver: &mut LogDriver, key: &str) -> Offset {
    append(driver, RecordBatchBuilder::new(), &[(key, None)])
}

/// Ends the active segment: it takes no batch of another week.
fn roll(driver: &mut LogDriver) {
    let base = driver.log.segment_count();
    driver.now.0 += driver.log.config().segment_ms + 1;
    put(driver, "roll", "now");
    assert!(driver.log.segment_count() > base);
}

/// Whole batches from the log start to its end.
fn batches(driver: &LogDriver) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    let mut offset = driver.log.log_start_offset();
    while let Some(bytes) = driver.read(offset, 1 << 20, driver.log.written_offset()) {
        let mut rest = bytes.as_slice();
        while let Ok(batch) = RecordBatch::parse(rest) {
            batch.verify_crc().unwrap();
            batches.push(batch.bytes().to_vec());
            offset = batch.header().next_offset();
            rest = &rest[batch.bytes().len()..];
        }
    }
    batches
}

fn entries(driver: &LogDriver) -> Vec<Entry> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut entries = Vec::new();
    for bytes in batches(driver) {
        let batch = RecordBatch::parse(&bytes).unwrap();
        if batch.header().attributes().is_control() {
            continue;
        }
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            entries.push((record.offset.0, text(record.key.unwrap()), record.value.map(text)));
        }
    }
    entries
}

fn entry(offset: i64, key: &str, value: &str) -> Entry {
    (offset, key.to_owned(), Some(value.to_owned()))
}

fn stable(driver: &LogDriver) -> Offset {
    let flushed = driver.log.flushed_offset();
    driver
        .log
        .first_unstable_offset()
        .map_or(flushed, |unstable| unstable.min(flushed))
}

fn begin(driver: &mut LogDriver) -> Option<CleaningJob> {
    let stable = stable(driver);
    driver.log.begin_cleaning(stable, driver.now)
}

/// One pass; how far the log is clean then.
fn pass(driver: &mut LogDriver, config: CleanerConfig) -> Offset {
    let job = begin(driver).unwrap();
    let id = job.id();
    let mut cleaner = Cleaner::start(job, config, &mut driver.disk, &mut |_| true).unwrap();
    while let Some(new) = cleaner.next_segment(&mut driver.disk, &mut |_| true).unwrap() {
        driver.log.swap_in(new).unwrap();
        driver.settle();
        assert!(!driver.log.is_swapping());
    }
    driver.log.end_cleaning(id, Some(cleaner.clean_end()));
    cleaner.clean_end()
}

fn clean(driver: &mut LogDriver) {
    pass(driver, ROOMY);
    let left: Vec<_> = file_names(&driver.disk)
        .into_iter()
        .filter(|name| {
            [".cleaned", ".swap", ".deleted"]
                .iter()
                .any(|end| name.ends_with(end))
        })
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

fn file_names(disk: &SimDisk) -> Vec<String> {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    disk.paths().map(name).collect()
}

/// The process ends without a word and starts again, knowing of no flush.
fn restart(driver: LogDriver) -> LogDriver {
    let mut disk = driver.disk;
    disk.kill();
    let options = OpenOptions {
        log_start_offset: driver.log.log_start_offset(),
        now: driver.now,
        ..LogDriver::options(0, false)
    };
    let opened = LogDriver::open(driver.log.config().clone(), disk, options);
    opened.unwrap().0
}

fn reopen(config: LogConfig, disk: SimDisk, now: TimestampMs) -> Result<LogDriver, OpenError> {
    let options = OpenOptions {
        now,
        ..LogDriver::options(0, false)
    };
    LogDriver::open(config, disk, options).map(|(driver, _)| driver)
}

/// Four keys, written over and over in several segments.
fn worn() -> LogDriver {
    let mut driver = LogDriver::new(config());
    for i in 0..24 {
        put(&mut driver, &format!("k{}", i % 4), &format!("v{i}"));
        driver.now.0 += 10;
    }
    roll(&mut driver);
    assert!(driver.log.segment_count() > 3);
    driver
}

fn worn_and_cleaned() -> Vec<Entry> {
    vec![
        entry(20, "k0", "v20"),
        entry(21, "k1", "v21"),
        entry(22, "k2", "v22"),
        entry(23, "k3", "v23"),
        entry(24, "roll", "now"),
    ]
}

#[test]
fn the_latest_record_of_each_key_stays_at_its_offset() {
    let mut driver = worn();
    let before = entries(&driver);
    clean(&mut driver);
    assert_eq!(entries(&driver), worn_and_cleaned());
    assert!(entries(&driver).iter().all(|entry| before.contains(entry)));
    assert_eq!(
        (driver.log.log_start_offset(), driver.log.log_end_offset()),
        (Offset(0), Offset(25))
    );
    assert_eq!(driver.log.first_dirty_offset(), Offset(24));
    // Reads from an offset that is gone find what follows.
    for offset in 0..25 {
        let bytes = driver.read(Offset(offset), 1, Offset(25)).unwrap();
        let header = BatchHeader::peek(&bytes).unwrap();
        assert!(header.last_offset() >= Offset(offset));
    }
}

#[test]
fn a_cleaned_log_is_the_same_after_any_restart() {
    let mut driver = worn();
    clean(&mut driver);
    let mut driver = restart(driver);
    assert_eq!(entries(&driver), worn_and_cleaned());
    let (next, report) = {
        driver.settle();
        driver.reopen().unwrap()
    };
    assert_eq!((report.rebuilt_indexes, report.scanned_segments), (0, 0));
    driver = next;
    assert_eq!(entries(&driver), worn_and_cleaned());
    assert_eq!(put(&mut driver, "k0", "again"), Offset(25));
    roll(&mut driver);
    clean(&mut driver);
    let mut expected = worn_and_cleaned().split_off(1);
    expected.extend([entry(25, "k0", "again"), entry(26, "roll", "now")]);
    assert_eq!(entries(&driver), expected);
}

#[test]
fn times_are_found_in_a_cleaned_log() {
    let mut driver = worn();
    clean(&mut driver);
    let start = 1_000_000;
    let at = |ms: i64| {
        driver
            .find_timestamp(TimestampMs(start + ms), Offset(0))
            .map(|found| found.0.0)
    };
    assert_eq!(
        (at(0), at(210), at(211), at(231)),
        (Some(20), Some(21), Some(22), Some(24))
    );
}

#[test]
fn tombstones_go_after_their_horizon_and_not_before() {
    let mut driver = LogDriver::new(config());
    put(&mut driver, "a", "1");
    put(&mut driver, "b", "1");
    delete(&mut driver, "a");
    roll(&mut driver);
    clean(&mut driver);
    let tombstone = (2, "a".to_owned(), None);
    assert_eq!(entries(&driver)[..2], [entry(1, "b", "1"), tombstone.clone()]);
    let horizon = driver.now.0 + DELETE_RETENTION_MS;
    let kept = batches(&driver).into_iter().nth(1).unwrap();
    let header = BatchHeader::peek(&kept).unwrap();
    assert!(header.attributes().has_delete_horizon());
    assert_eq!(header.base_timestamp(), TimestampMs(horizon));
    assert_eq!(header.max_timestamp(), TimestampMs(1_000_000));

    // Rolling takes the clock a week on, so the next pass must be made to happen before.
    driver.now.0 = horizon - 1;
    make_dirty(&mut driver);
    clean(&mut driver);
    assert!(entries(&driver).contains(&tombstone), "one millisecond before");
    driver.now.0 = horizon;
    make_dirty(&mut driver);
    clean(&mut driver);
    assert!(!entries(&driver).contains(&tombstone), "at the horizon");
    assert!(entries(&driver).contains(&entry(1, "b", "1")));
}

/// Ends the active segment by its size.
fn make_dirty(driver: &mut LogDriver) {
    let segments = driver.log.segment_count();
    while driver.log.segment_count() == segments {
        put(driver, "filler", &"x".repeat(150));
    }
}

#[test]
fn records_of_any_codec_are_cleaned() {
    for codec in Compression::ALL {
        let mut driver = LogDriver::new(config());
        let compressed = || RecordBatchBuilder::new().compression(codec);
        let long = "long ".repeat(30);
        append(
            &mut driver,
            compressed(),
            &[("a", Some(&long)), ("b", Some(&long)), ("c", Some("1"))],
        );
        append(&mut driver, compressed(), &[("a", Some("2")), ("c", Some(&long))]);
        roll(&mut driver);
        clean(&mut driver);
        let expected = [entry(1, "b", &long), entry(3, "a", "2"), entry(4, "c", &long)];
        assert_eq!(entries(&driver)[..3], expected, "{codec:?}");
        let first = batches(&driver).remove(0);
        let header = BatchHeader::peek(&first).unwrap();
        assert_eq!(header.attributes().compression().unwrap(), codec);
        assert_eq!(
            (header.base_offset(), header.last_offset()),
            (Offset(0), Offset(2))
        );
    }
}

#[test]
fn a_batch_that_loses_nothing_stays_byte_for_byte() {
    let mut driver = LogDriver::new(config());
    append(
        &mut driver,
        RecordBatchBuilder::new().compression(Compression::Zstd),
        &[("a", Some("1")), ("b", Some("1"))],
    );
    let before = batches(&driver).remove(0);
    put(&mut driver, "c", "1");
    put(&mut driver, "c", "2");
    roll(&mut driver);
    clean(&mut driver);
    assert_eq!(batches(&driver).remove(0), before);
}

#[test]
fn records_without_a_key_are_refused() {
    let mut driver = LogDriver::new(config());
    for codec in Compression::ALL {
        let mut builder = RecordBatchBuilder::new().compression(codec);
        builder.append(driver.now, Some(b"k"), Some(b"v"), &[]).unwrap();
        builder.append(driver.now, None, Some(b"v"), &[]).unwrap();
        let batch = BytesMut::from(builder.build().unwrap().as_ref());
        let refused = driver.log.append_as_leader(batch, LeaderEpoch(0), driver.now);
        assert!(
            matches!(refused, Err(AppendError::NoKey { record: 1 })),
            "{codec:?}"
        );
    }
    assert_eq!(driver.log.log_end_offset(), Offset(0));
    driver.log.set_config(LogConfig::default());
    assert!(driver.append(1, 10).is_ok());
}

#[test]
fn an_idempotent_producer_goes_on_after_compaction_and_a_restart() {
    let producer =
        |sequence| RecordBatchBuilder::new().producer(ProducerId(7), ProducerEpoch(3), Sequence(sequence));
    let mut driver = LogDriver::new(config());
    append(&mut driver, producer(0), &[("a", Some("1")), ("b", Some("1"))]);
    append(&mut driver, producer(2), &[("a", Some("2")), ("b", Some("2"))]);
    put(&mut driver, "a", "3");
    put(&mut driver, "b", "3");
    // Rolling by time would let the producer expire.
    make_dirty(&mut driver);
    clean(&mut driver);
    let kept = entries(&driver);
    assert_eq!(kept[..2], [entry(4, "a", "3"), entry(5, "b", "3")]);
    // All that tells of the producer now is its last batch, which has no records any more.
    let snapshots: Vec<_> = driver
        .disk
        .paths()
        .filter(|p| p.extension().is_some_and(|e| e == "snapshot"))
        .map(Path::to_owned)
        .collect();
    for path in snapshots {
        driver.disk.remove_file(&path).unwrap();
    }
    let mut driver = restart(driver);
    let again = build(producer(2), driver.now, &[("a", Some("2")), ("b", Some("2"))]);
    let info = driver
        .log
        .append_as_leader(again, driver.epoch, driver.now)
        .unwrap();
    assert!(info.duplicate && info.base_offset == Offset(2));
    let gap = build(producer(5), driver.now, &[("a", Some("5"))]);
    let refused = driver.log.append_as_leader(gap, driver.epoch, driver.now);
    assert!(matches!(refused, Err(AppendError::Producer(_))));
    append(&mut driver, producer(4), &[("a", Some("4"))]);
    assert_eq!(entries(&driver)[..2], kept[..2]);
}

/// A transaction of one record, and its end.
fn transaction(driver: &mut LogDriver, producer: i64, sequence: i32, record: (&str, &str), committed: bool) {
    let (id, epoch) = (ProducerId(producer), ProducerEpoch(0));
    let builder = RecordBatchBuilder::new()
        .producer(id, epoch, Sequence(sequence))
        .transactional();
    append(driver, builder, &[(record.0, Some(record.1))]);
    let marker = EndTxnMarker {
        committed,
        coordinator_epoch: 0,
    };
    driver
        .log
        .append_end_txn_marker(id, epoch, marker, driver.epoch, driver.now)
        .unwrap();
    driver.settle();
    driver.log.handle_high_watermark(driver.log.flushed_offset());
}

/// Offsets of the markers, and whether a delete horizon is set.
fn markers(driver: &LogDriver) -> Vec<(i64, bool)> {
    let headers = batches(driver);
    let headers = headers.iter().map(|bytes| *BatchHeader::peek(bytes).unwrap());
    headers
        .filter(|header| header.attributes().is_control() && header.records_count() > 0)
        .map(|header| (header.base_offset().0, header.attributes().has_delete_horizon()))
        .collect()
}

#[test]
fn aborted_records_go_and_markers_stay_as_long_as_they_are_needed() {
    let mut driver = LogDriver::new(config());
    put(&mut driver, "a", "old");
    transaction(&mut driver, 1, 0, ("a", "aborted"), false);
    transaction(&mut driver, 2, 0, ("b", "committed"), true);
    make_dirty(&mut driver);
    clean(&mut driver);
    let kept = [entry(0, "a", "old"), entry(3, "b", "committed")];
    let check = |driver: &LogDriver, expected: &[(i64, bool)], aborted: usize| {
        assert_eq!(entries(driver)[..2], kept);
        assert_eq!(markers(driver)[..expected.len()], *expected);
        let end = driver.log.flushed_offset();
        assert_eq!(driver.log.aborted_transactions(Offset(0), end).len(), aborted);
        assert_eq!(driver.log.first_unstable_offset(), None);
    };
    // The aborted batch is its producer's last, and stays without its record.
    check(&driver, &[(2, false), (4, false)], 1);
    let mut driver = restart(driver);
    driver.log.handle_high_watermark(driver.log.flushed_offset());
    check(&driver, &[(2, false), (4, false)], 1);
    transaction(&mut driver, 1, 1, ("c", "committed"), true);
    let pass = |driver: &mut LogDriver, expected: &[(i64, bool)], aborted| {
        make_dirty(driver);
        clean(driver);
        check(driver, expected, aborted);
    };
    pass(&mut driver, &[(2, false), (4, false)], 1);
    pass(&mut driver, &[(2, true), (4, false)], 0);
    driver.now.0 += DELETE_RETENTION_MS;
    pass(&mut driver, &[(4, false)], 0);
    let mut driver = restart(driver);
    driver.log.handle_high_watermark(driver.log.flushed_offset());
    check(&driver, &[(4, false)], 0);
}

#[test]
fn small_segments_become_one_and_large_ones_stay_apart() {
    let mut driver = worn();
    let before = driver.log.segment_count();
    clean(&mut driver);
    assert_eq!(
        driver.log.segment_count(),
        before,
        "full segments are cleaned one by one"
    );
    // What is left of them fits one.
    for _ in 0..4 {
        make_dirty(&mut driver);
        clean(&mut driver);
    }
    assert!(driver.log.segment_count() <= before, "four more have come");
    let logs = file_names(&driver.disk)
        .into_iter()
        .filter(|name| name.ends_with(".log"))
        .count();
    assert_eq!(logs, driver.log.segment_count());
    assert_eq!(entries(&driver)[..4], worn_and_cleaned()[..4]);
}

#[test]
fn a_map_too_small_for_all_keys_takes_several_passes() {
    let mut driver = LogDriver::new(config());
    for round in 0..3 {
        for key in 0..30 {
            put(&mut driver, &format!("k{key}"), &format!("v{round}"));
        }
    }
    roll(&mut driver);
    let small = CleanerConfig {
        map_bytes: 24 * 12,
        map_load_percent: 90,
    };
    let mut passes = 0;
    let mut clean_end = Offset(0);
    while begin(&mut driver).is_some() {
        let end = pass(&mut driver, small);
        assert!(end > clean_end, "each pass gets on");
        (clean_end, passes) = (end, passes + 1);
    }
    assert!(passes > 5, "{passes}");
    let expected: Vec<_> = (0..30)
        .map(|key| entry(60 + key, &format!("k{key}"), "v2"))
        .collect();
    assert_eq!(entries(&driver)[..30], expected);
}

#[test]
fn a_batch_with_more_keys_than_the_map_stops_the_pass() {
    let mut driver = LogDriver::new(config());
    append(
        &mut driver,
        RecordBatchBuilder::new(),
        &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
    );
    roll(&mut driver);
    let job = begin(&mut driver).unwrap();
    let tiny = CleanerConfig {
        map_bytes: 48,
        map_load_percent: 50,
    };
    let stopped = Cleaner::start(job, tiny, &mut driver.disk, &mut |_| true);
    assert!(matches!(
        stopped,
        Err(CompactionError::MapTooSmall { offset: Offset(0) })
    ));
}

fn dirtiness(driver: &LogDriver) -> Option<Dirtiness> {
    driver.log.dirtiness(stable(driver), driver.now)
}

fn with_compaction(driver: &mut LogDriver, change: impl FnOnce(&mut CompactionConfig)) {
    let mut config = driver.log.config().clone();
    change(config.compaction.as_mut().unwrap());
    driver.log.set_config(config);
}

#[test]
fn a_log_is_dirty_by_its_ratio_or_by_the_age_of_what_is_dirty() {
    let mut driver = worn();
    assert_eq!(dirtiness(&driver).unwrap().ratio_ppm, 1_000_000);
    clean(&mut driver);
    assert_eq!(dirtiness(&driver), None);
    roll(&mut driver);
    let ratio = dirtiness(&driver).unwrap().ratio_ppm;
    assert!((1..500_000).contains(&ratio), "{ratio}");
    with_compaction(&mut driver, |c| c.min_dirty_ratio_ppm = 500_000);
    assert_eq!(dirtiness(&driver), None);
    with_compaction(&mut driver, |c| c.max_lag_ms = 1000);
    assert!(dirtiness(&driver).unwrap().overdue);
    let (driver, _) = driver.reopen().unwrap();
    assert!(dirtiness(&driver).unwrap().overdue, "also after a restart");
}

#[test]
fn young_records_and_the_active_segment_are_not_cleaned() {
    let mut driver = worn();
    with_compaction(&mut driver, |c| c.min_lag_ms = i64::MAX);
    assert!(dirtiness(&driver).is_none() && begin(&mut driver).is_none());
    with_compaction(&mut driver, |c| c.min_lag_ms = 0);
    let active = entries(&driver).last().unwrap().clone();
    put(&mut driver, "roll", "again");
    clean(&mut driver);
    assert!(entries(&driver).contains(&active));
}

#[test]
fn a_producers_last_flushed_batch_stays_until_a_later_one_is_flushed() {
    let mut driver = LogDriver::new(config());
    let of_producer = |sequence| {
        let builder = RecordBatchBuilder::new();
        builder.producer(ProducerId(7), ProducerEpoch(0), Sequence(sequence))
    };
    append(&mut driver, of_producer(0), &[("a", Some("1"))]);
    put(&mut driver, "a", "2");
    roll(&mut driver);
    let later = build(of_producer(1), driver.now, &[("b", Some("1"))]);
    driver
        .log
        .append_as_leader(later, driver.epoch, driver.now)
        .unwrap();
    // The power may take the later one now.
    clean(&mut driver);
    let first = driver.read_all(Offset(0), 1 << 20)[0];
    assert_eq!(
        (first.base_offset(), first.producer_id()),
        (Offset(0), ProducerId(7))
    );
}

#[test]
fn a_producers_last_flushed_batch_stays_until_its_next_epoch_is_flushed() {
    let mut driver = LogDriver::new(config());
    let (id, first) = (ProducerId(7), ProducerEpoch(0));
    let of_producer = RecordBatchBuilder::new().producer(id, first, Sequence(0));
    append(&mut driver, of_producer, &[("a", Some("1"))]);
    put(&mut driver, "a", "2");
    roll(&mut driver);
    let marker = EndTxnMarker {
        committed: true,
        coordinator_epoch: 0,
    };
    let (leader_epoch, now) = (driver.epoch, driver.now);
    let ended = driver
        .log
        .append_end_txn_marker(id, ProducerEpoch(1), marker, leader_epoch, now);
    ended.unwrap();
    // The power may take the marker now.
    clean(&mut driver);
    let kept = driver.read_all(Offset(0), 1 << 20)[0];
    assert_eq!((kept.base_offset(), kept.producer_id()), (Offset(0), id));
    put(&mut driver, "a", "3");
    roll(&mut driver);
    // Of a new producer there is nothing yet that has to stay.
    let of_another = RecordBatchBuilder::new().producer(ProducerId(8), first, Sequence(0));
    let batch = build(of_another, now, &[("b", Some("1"))]);
    driver.log.append_as_leader(batch, leader_epoch, now).unwrap();
    clean(&mut driver);
    let kept = driver.read_all(Offset(0), 1 << 20)[0];
    assert!(kept.base_offset() > Offset(0));
}

#[test]
fn nothing_above_the_last_stable_offset_is_cleaned() {
    let mut driver = worn();
    let bases: Vec<i64> = segment_bases(&driver.disk);
    let within = Offset(bases[1] + 1);
    let job = driver.log.begin_cleaning(within, driver.now).unwrap();
    let id = job.id();
    let mut cleaner = Cleaner::start(job, ROOMY, &mut driver.disk, &mut |_| true).unwrap();
    assert_eq!(cleaner.clean_end(), Offset(bases[1]));
    while let Some(new) = cleaner.next_segment(&mut driver.disk, &mut |_| true).unwrap() {
        driver.log.swap_in(new).unwrap();
        driver.settle();
    }
    driver.log.end_cleaning(id, Some(cleaner.clean_end()));
    let kept = entries(&driver);
    let above = |entry: &&Entry| entry.0 >= bases[1];
    assert_eq!(kept.iter().filter(above).count() as i64, 25 - bases[1]);
}

fn segment_bases(disk: &SimDisk) -> Vec<i64> {
    let logs = file_names(disk).into_iter();
    logs.filter_map(|name| name.strip_suffix(".log")?.parse().ok())
        .collect()
}

/// A job begun, and its first new segment made.
fn half_way(driver: &mut LogDriver) -> CleanedSegment {
    let job = begin(driver).unwrap();
    let mut cleaner = Cleaner::start(job, ROOMY, &mut driver.disk, &mut |_| true).unwrap();
    cleaner
        .next_segment(&mut driver.disk, &mut |_| true)
        .unwrap()
        .unwrap()
}

#[test]
fn a_log_that_has_changed_meanwhile_does_not_take_the_new_segment() {
    let changes: [fn(&mut LogDriver); 3] = [
        |driver| {
            driver.log.truncate_to(Offset(3), &mut driver.disk).unwrap();
        },
        |driver| {
            let end = driver.log.flushed_offset();
            driver
                .log
                .increment_log_start_offset(end, &mut driver.queue)
                .unwrap();
            driver.settle();
        },
        |driver| drop(begin(driver).unwrap()),
    ];
    for change in changes {
        let mut driver = worn();
        let new = half_way(&mut driver);
        change(&mut driver);
        let before = entries(&driver);
        let refused = driver.log.swap_in(new).unwrap_err();
        refused.remove(&mut driver.disk);
        assert_eq!(entries(&driver), before);
        assert!(
            !file_names(&driver.disk)
                .iter()
                .any(|name| name.contains("cleaned"))
        );
        put(&mut driver, "k0", "after");
        let expected = entries(&driver);
        assert_eq!(entries(&restart(driver)), expected);
    }
}

#[test]
fn a_pass_fails_for_nothing_where_its_segments_are_removed_meanwhile() {
    let mut driver = worn();
    let job = begin(&mut driver).unwrap();
    let id = job.id();
    let mut cleaner = Cleaner::start(job, ROOMY, &mut driver.disk, &mut |_| true).unwrap();
    let start = Offset(segment_bases(&driver.disk)[1]);
    driver
        .log
        .increment_log_start_offset(start, &mut driver.queue)
        .unwrap();
    driver.settle();
    let missing = cleaner.next_segment(&mut driver.disk, &mut |_| true);
    assert!(matches!(missing, Err(CompactionError::Io { .. })));
    assert!(!driver.log.end_cleaning(id, None), "the log is not to blame");
    clean(&mut driver);
    assert_eq!(entries(&driver), worn_and_cleaned());
}

#[test]
fn epochs_are_known_after_a_crash_though_their_batches_are_gone() {
    let mut driver = LogDriver::new(config());
    for epoch in 0..4 {
        driver.epoch = LeaderEpoch(epoch);
        put(&mut driver, "a", "1");
        put(&mut driver, "a", "2");
    }
    roll(&mut driver);
    clean(&mut driver);
    let ends = |driver: &LogDriver| [0, 1, 2, 3].map(|e| driver.log.end_offset_for_epoch(LeaderEpoch(e)));
    let known = ends(&driver);
    assert_eq!(known[1], Some((LeaderEpoch(1), Offset(4))));
    assert_eq!(ends(&restart(driver)), known);
}

#[test]
fn truncation_and_the_stop_wait_for_a_replacement_in_flight() {
    let mut driver = worn();
    let new = half_way(&mut driver);
    driver.log.swap_in(new).unwrap();
    let refused = driver.log.truncate_to(Offset(3), &mut driver.disk);
    assert!(refused.is_err() && driver.log.is_swapping());
    while driver.log.is_swapping() {
        assert!(!driver.log.is_idle() && driver.log.close(&mut driver.disk).is_err());
        driver.turn();
        if driver.disk.outstanding().next().is_some() {
            driver.complete(0);
        }
    }
    driver.settle();
    driver.log.truncate_to(Offset(3), &mut driver.disk).unwrap();
    assert!(driver.log.first_dirty_offset() <= Offset(3));
}

#[test]
fn a_plan_made_before_the_replacement_is_carried_out_on_the_old_file() {
    let mut driver = worn();
    let plan = driver
        .log
        .read_plan(Offset(1), 1 << 20, Offset(25))
        .unwrap()
        .unwrap();
    let old = driver.disk.file_bytes(plan.file).unwrap().to_vec();
    let new = half_way(&mut driver);
    driver.log.swap_in(new).unwrap();
    let closes = |op: &IoOp| matches!(op, IoOp::Close { file } if *file == plan.file);
    driver.turn();
    while !driver.disk.outstanding().any(|request| closes(&request.op)) {
        assert_eq!(driver.disk.file_bytes(plan.file).unwrap(), old);
        driver.complete(0);
        driver.turn();
    }
    let now = driver
        .log
        .read_plan(Offset(1), 1 << 20, Offset(25))
        .unwrap()
        .unwrap();
    assert_ne!(now.file, plan.file);
}

#[test]
fn a_damaged_batch_stops_the_pass_and_nothing_changes() {
    let mut driver = worn();
    let path = driver
        .disk
        .paths()
        .find(|path| path.extension().is_some_and(|e| e == "log"))
        .unwrap()
        .to_owned();
    let good = driver.disk.bytes(&path).unwrap().to_vec();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    driver.disk.plant(&path, &bad);
    let job = begin(&mut driver).unwrap();
    let stopped = Cleaner::start(job, ROOMY, &mut driver.disk, &mut |_| true);
    assert!(matches!(stopped, Err(CompactionError::Damaged { .. })));
    driver.disk.plant(&path, &good);
    clean(&mut driver);
    assert_eq!(entries(&driver), worn_and_cleaned());
}

#[test]
fn a_pass_can_be_stopped_and_leaves_nothing_behind() {
    let mut driver = worn();
    let files = file_names(&driver.disk);
    for allowed in 0.. {
        let mut left = allowed;
        let mut pace = |_| {
            left -= 1;
            left >= 0
        };
        let job = begin(&mut driver).unwrap();
        let cleaned = Cleaner::start(job, ROOMY, &mut driver.disk, &mut pace)
            .and_then(|mut cleaner| cleaner.next_segment(&mut driver.disk, &mut pace));
        match cleaned {
            Err(CompactionError::Stopped) => assert_eq!(file_names(&driver.disk), files),
            other => {
                assert!(allowed > 2 && other.unwrap().is_some());
                break;
            }
        }
    }
}

#[test]
fn a_full_disk_delays_a_replacement_and_loses_nothing() {
    let mut driver = worn();
    let new = half_way(&mut driver);
    driver.log.swap_in(new).unwrap();
    for _ in 0..2 {
        driver
            .disk
            .fail_next(OpKind::Rename, std::io::ErrorKind::StorageFull);
    }
    driver.settle();
    while driver.log.is_swapping() {
        driver.now.0 += 1000;
        driver.settle();
    }
    assert!(driver.log.poison().is_none());
    put(&mut driver, "k0", "after");
    let kept = entries(&driver);
    assert_eq!(entries(&restart(driver)), kept);
}

/// What a crash in the middle of a replacement leaves: all old or all new.
fn check_either(driver: LogDriver, before: &[Entry], after: &[Entry], what: &str) {
    let (config, now, mut disk) = (driver.log.config().clone(), driver.now, driver.disk);
    disk.kill();
    let driver = reopen(config, disk, now).unwrap();
    let found = entries(&driver);
    assert!(found == before || found == after, "{what}: {found:?}");
    let left = file_names(&driver.disk);
    assert!(
        !left
            .iter()
            .any(|n| n.contains("cleaned") || n.contains("swap") || n.contains("deleted")),
        "{what}: {left:?}"
    );
    let mut driver = restart(driver);
    assert_eq!(entries(&driver), found, "{what}: and again");
    let end = driver.log.log_end_offset();
    assert_eq!(put(&mut driver, "k0", "after"), end);
    roll(&mut driver);
    clean(&mut driver);
    let mut latest = BTreeMap::new();
    for (_, key, value) in before {
        latest.insert(key.clone(), value.clone());
    }
    latest.insert("k0".to_owned(), Some("after".to_owned()));
    let cleaned: BTreeMap<_, _> = entries(&driver)
        .into_iter()
        .map(|(_, key, value)| (key, value))
        .collect();
    assert_eq!(cleaned, latest, "{what}: cleaned at last");
}

/// The first group of the worn log replaced, and what the log holds then.
fn swapped_once() -> Vec<Entry> {
    let mut driver = worn();
    let new = half_way(&mut driver);
    driver.log.swap_in(new).unwrap();
    driver.settle();
    entries(&driver)
}

#[test]
fn a_crash_at_any_step_leaves_the_old_segments_or_the_new_one() {
    let (before, after) = (entries(&worn()), swapped_once());
    assert_ne!(before, after);
    let mut steps = 0;
    'steps: for step in 0.. {
        // So many requests of the replacement succeed, and of the next one a first part.
        for part in 0.. {
            let mut driver = worn();
            let new = half_way(&mut driver);
            driver.log.swap_in(new).unwrap();
            for _ in 0..step {
                driver.turn();
                if driver.disk.outstanding().next().is_none() {
                    break 'steps;
                }
                driver.complete(0);
            }
            driver.turn();
            let mut most = 0;
            driver.disk.crash(|len| {
                most = most.max(len);
                part.min(len)
            });
            check_either(driver, &before, &after, &format!("step {step}, part {part}"));
            if part >= most {
                break;
            }
            steps += 1;
        }
    }
    assert!(steps > 20, "{steps}");
}

#[test]
fn files_of_a_pass_that_a_crash_ended_are_removed() {
    let before = entries(&worn());
    for cut in [0, 10, 100, usize::MAX] {
        let mut driver = worn();
        drop(half_way(&mut driver));
        let path = LogDriver::path("00000000000000000000.log.cleaned");
        let bytes = driver.disk.bytes(&path).unwrap().to_vec();
        driver.disk.plant(&path, &bytes[..cut.min(bytes.len())]);
        driver.disk.plant(
            &LogDriver::path("00000000000000000000.index.cleaned.tmp"),
            b"half",
        );
        driver.disk.kill();
        check_either(driver, &before, &before, &format!("cut {cut}"));
    }
}

#[test]
fn a_start_that_is_interrupted_while_it_completes_a_replacement_goes_on_with_it() {
    let (before, after) = (entries(&worn()), swapped_once());
    for step in 0..2 {
        for part in [3, 4, 6, 9, 12] {
            for allowed in 0.. {
                let mut driver = worn();
                let new = half_way(&mut driver);
                driver.log.swap_in(new).unwrap();
                for _ in 0..step {
                    driver.turn();
                    driver.complete(0);
                }
                driver.turn();
                driver.disk.crash(|len| part.min(len));
                let (config, now) = (driver.log.config().clone(), driver.now);
                let mut disk = driver.disk;
                disk.plan(Fault {
                    half: Some(Half::Calls),
                    kind: None,
                    name_end: "",
                    after: allowed,
                    error: std::io::ErrorKind::Other,
                });
                let (dir, id) = (LogDriver::dir(), LogId(9));
                let opened = Log::open(dir, id, config.clone(), LogDriver::options(0, false), &mut disk);
                let done = opened.is_ok();
                disk.clear_faults();
                disk.kill();
                let driver = reopen(config, disk, now).unwrap();
                let what = format!("step {step}, part {part}, {allowed} calls");
                check_either(driver, &before, &after, &what);
                if done {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_replacement_that_kafka_was_interrupted_in_is_completed() {
    // Kafka gives the `.log` its new name before the indexes.
    let (before, after) = (entries(&worn()), swapped_once());
    let mut driver = worn();
    drop(half_way(&mut driver));
    let name = |suffix: &str| LogDriver::path(&format!("00000000000000000000.log{suffix}"));
    driver.disk.rename(&name(".cleaned"), &name(".swap")).unwrap();
    driver.disk.kill();
    assert_ne!(before, after);
    check_either(driver, &after, &after, "log first");
}

#[test]
fn a_damaged_new_segment_is_told_and_nothing_is_removed() {
    let mut driver = worn();
    drop(half_way(&mut driver));
    let swap = LogDriver::path("00000000000000000000.log.swap");
    driver.disk.plant(&swap, &[1; 100]);
    driver.disk.kill();
    let files = |disk: &SimDisk| -> Vec<PathBuf> {
        disk.paths()
            .filter(|p| p.extension().is_some_and(|e| e == "log"))
            .map(Path::to_owned)
            .collect()
    };
    let before = files(&driver.disk);
    let mut disk = driver.disk;
    let options = LogDriver::options(0, false);
    let opened = Log::open(LogDriver::dir(), LogId(9), config(), options, &mut disk);
    assert!(matches!(opened, Err(OpenError::DamagedSwap { position: 0, .. })));
    assert_eq!(files(&disk), before);
}

#[derive(Clone, Debug)]
enum Op {
    Append {
        keys: Vec<(u8, bool)>,
        codec: Compression,
        idempotent: bool,
    },
    Time(i64),
    Pass {
        map_keys: usize,
        groups: usize,
    },
    Reopen,
    Kill,
    Crash {
        seed: u64,
        in_swap: bool,
    },
    Checkpoint,
}

fn op() -> impl Strategy<Value = Op> {
    let keys = prop::collection::vec((0..5_u8, prop::bool::weighted(0.8)), 1..4);
    let codecs = prop::sample::select(Compression::ALL.to_vec());
    prop_oneof![
        12 => (keys, codecs, any::<bool>()).prop_map(|(keys, codec, idempotent)| Op::Append { keys, codec, idempotent }),
        2 => (0..800_i64).prop_map(Op::Time),
        3 => (2..10_usize, 0..4_usize).prop_map(|(map_keys, groups)| Op::Pass { map_keys, groups }),
        1 => Just(Op::Reopen),
        1 => Just(Op::Kill),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(seed, in_swap)| Op::Crash { seed, in_swap }),
        1 => Just(Op::Checkpoint),
    ]
}

/// A log, and everything that was ever appended to it and not lost.
struct World {
    driver: LogDriver,
    appended: Vec<Entry>,
    sequence: i32,
    recovery_point: Offset,
}

impl World {
    fn append(&mut self, keys: &[(u8, bool)], codec: Compression, idempotent: bool) {
        let mut builder = RecordBatchBuilder::new().compression(codec);
        if idempotent {
            builder = builder.producer(ProducerId(4), ProducerEpoch(0), Sequence(self.sequence));
            self.sequence += i32::try_from(keys.len()).unwrap();
        }
        let end = self.driver.log.log_end_offset().0;
        let records: Vec<Entry> = keys
            .iter()
            .zip(end..)
            .map(|(&(key, has_value), offset)| {
                (
                    offset,
                    format!("k{key}"),
                    has_value.then(|| format!("value of {offset}")),
                )
            })
            .collect();
        let borrowed: Vec<_> = records
            .iter()
            .map(|(_, key, value)| (key.as_str(), value.as_deref()))
            .collect();
        assert_eq!(append(&mut self.driver, builder, &borrowed), Offset(end));
        self.appended.extend(records);
    }

    /// What is there was appended, in order, and of each key the latest is there, unless it is a
    /// tombstone: then nothing older is.
    fn check(&self) {
        let found = entries(&self.driver);
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(
            found
                .iter()
                .all(|entry| self.appended.binary_search(entry).is_ok()),
            "{found:?}"
        );
        let latest = |of: &[Entry]| -> BTreeMap<String, Entry> {
            of.iter().map(|entry| (entry.1.clone(), entry.clone())).collect()
        };
        let (mut wanted, found) = (latest(&self.appended), latest(&found));
        wanted.retain(|key, entry| entry.2.is_some() || found.contains_key(key));
        assert_eq!(found, wanted);
    }

    /// A pass of which at most `groups` new segments are swapped in.
    fn pass(&mut self, map_keys: usize, groups: usize) {
        let Some(job) = begin(&mut self.driver) else {
            return;
        };
        let id = job.id();
        let config = CleanerConfig {
            map_bytes: map_keys * 24 * 2,
            map_load_percent: 50,
        };
        let disk = &mut self.driver.disk;
        let mut cleaner = match Cleaner::start(job, config, disk, &mut |_| true) {
            Ok(cleaner) => cleaner,
            Err(CompactionError::MapTooSmall { .. }) => {
                self.driver.log.end_cleaning(id, None);
                return;
            }
            Err(error) => panic!("{error}"),
        };
        for _ in 0..groups {
            let Some(new) = cleaner
                .next_segment(&mut self.driver.disk, &mut |_| true)
                .unwrap()
            else {
                self.driver.log.end_cleaning(id, Some(cleaner.clean_end()));
                return;
            };
            self.driver.log.swap_in(new).unwrap();
            self.driver.settle();
        }
        self.driver.log.end_cleaning(id, None);
    }

    fn recover(self) -> Self {
        let kept = self.driver.log.flushed_offset();
        let (config, now) = (self.driver.log.config().clone(), self.driver.now);
        let options = OpenOptions {
            recovery_point: self.recovery_point,
            now,
            ..LogDriver::options(0, false)
        };
        let first_dirty = self.driver.log.first_dirty_offset();
        let (mut driver, report) = LogDriver::open(config, self.driver.disk, options).unwrap();
        driver.log.set_first_dirty_offset(first_dirty);
        assert!(driver.log.log_end_offset() >= kept, "{report:?}");
        let world = Self { driver, ..self };
        world.check();
        world
    }

    fn apply(mut self, op: Op) -> Self {
        match op {
            Op::Append {
                keys,
                codec,
                idempotent,
            } => self.append(&keys, codec, idempotent),
            Op::Time(ms) => self.driver.now.0 += ms,
            Op::Pass { map_keys, groups } => {
                self.pass(map_keys, groups);
                self.check();
            }
            Op::Checkpoint => self.recovery_point = self.driver.log.flushed_offset(),
            Op::Reopen => {
                let (driver, _) = self.driver.reopen().unwrap();
                self = Self { driver, ..self };
                self.check();
            }
            Op::Kill => {
                self.driver.disk.kill();
                self = self.recover();
            }
            Op::Crash { seed, in_swap } => {
                let mut random = seed | 1;
                let mut next = move |below: usize| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    usize::try_from(random >> 8).unwrap() % (below + 1)
                };
                if in_swap && let Some(job) = begin(&mut self.driver) {
                    let disk = &mut self.driver.disk;
                    let mut cleaner = Cleaner::start(job, ROOMY, disk, &mut |_| true).unwrap();
                    let new = cleaner.next_segment(disk, &mut |_| true).unwrap().unwrap();
                    self.driver.log.swap_in(new).unwrap();
                    for _ in 0..next(4) {
                        self.driver.turn();
                        if self.driver.disk.outstanding().next().is_some() {
                            self.driver.complete(0);
                        }
                    }
                    self.driver.turn();
                }
                self.driver.disk.crash(next);
                self = self.recover();
            }
        }
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_compacted_log_agrees_with_its_model(ops in prop::collection::vec(op(), 1..120)) {
        let world = World {
            driver: LogDriver::new(config()),
            appended: Vec::new(),
            sequence: 0,
            recovery_point: Offset(0),
        };
        let world = ops.into_iter().fold(world, World::apply);
        world.apply(Op::Pass { map_keys: 100, groups: 100 }).apply(Op::Reopen);
    }
}
