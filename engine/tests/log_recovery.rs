//! Opening after a stop that was not clean, with files that are damaged, missing or not ours; and
//! data directories of a real Apache Kafka.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ringlog_engine::config::LogConfig;
use ringlog_engine::io::Storage as _;
use ringlog_engine::io::sim_disk::{Fault, OpKind, SimDisk};
use ringlog_engine::log::{BegunAnew, Log, OpenError, OpenOptions, RecoveryReport};
use ringlog_engine::record::{BatchHeader, RecordBatch};
use ringlog_engine::testing::LogDriver;
use ringlog_engine::types::{LogId, Offset, TimestampMs};

const FIRST: &str = "00000000000000000000";

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1500,
        index_interval_bytes: 300,
        ..LogConfig::default()
    }
}

/// Twenty batches of two records in several segments, cleanly closed.
fn closed() -> SimDisk {
    let mut driver = LogDriver::new(config());
    for _ in 0..20 {
        driver.append(2, 50).unwrap();
        driver.now.0 += 10;
    }
    driver.settle();
    assert!(driver.log.segment_count() > 2);
    driver.log.close(&mut driver.disk).unwrap();
    driver.disk
}

/// The same where nothing says how far the segments were flushed.
fn unknown() -> SimDisk {
    let mut disk = closed();
    disk.remove_file(&LogDriver::path("segment-checkpoint")).unwrap();
    disk
}

fn log_path(base: i64) -> PathBuf {
    LogDriver::path(&format!("{base:020}.log"))
}

fn file(disk: &SimDisk, path: &Path) -> Vec<u8> {
    disk.bytes(path).unwrap().to_vec()
}

/// The base offsets of the segments on disk.
fn segments(disk: &SimDisk) -> Vec<i64> {
    let logs = disk
        .paths()
        .filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

/// Every file and its bytes.
fn contents(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.paths()
        .map(|path| (path.to_owned(), file(disk, path)))
        .collect()
}

#[test]
fn a_clean_log_opens_without_a_look_at_its_batches() {
    let (driver, report) = LogDriver::open(config(), closed(), LogDriver::options(40, true)).unwrap();
    assert_eq!(
        (
            report.scanned_segments,
            report.scanned_bytes,
            report.rebuilt_indexes
        ),
        (0, 0, 0)
    );
    assert_eq!(driver.log.log_end_offset(), Offset(40));
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 20);
}

#[test]
fn a_torn_tail_is_cut_and_told() {
    let disk = unknown();
    let last = *segments(&disk).last().unwrap();
    let whole = file(&disk, &log_path(last));
    for lost in 1..100 {
        let mut disk = unknown();
        disk.plant(&log_path(last), &whole[..whole.len() - lost]);
        let (driver, report) = LogDriver::open(config(), disk, LogDriver::options(0, false)).unwrap();
        assert_eq!(driver.log.log_end_offset(), Offset(38));
        let cut = report.cut.unwrap();
        assert_eq!(cut.path, log_path(last));
        assert!(cut.defect.is_some() && cut.lost_bytes > 0);
        assert_eq!(file(&driver.disk, &log_path(last)).len() as u64, cut.position);
        assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 19);
    }
}

#[test]
fn a_zero_filled_tail_is_normal() {
    let mut disk = closed();
    let last = *segments(&disk).last().unwrap();
    let mut bytes = file(&disk, &log_path(last));
    let len_bytes = bytes.len();
    bytes.resize(len_bytes + 100_000, 0);
    disk.plant(&log_path(last), &bytes);
    for clean in [false, true] {
        let mut disk = SimDisk::new();
        for (path, bytes) in contents(&closed()) {
            disk.plant(&path, &bytes);
        }
        disk.plant(&log_path(last), &bytes);
        let (mut driver, report) = LogDriver::open(config(), disk, LogDriver::options(40, clean)).unwrap();
        let cut = report.cut.unwrap();
        assert_eq!((cut.defect, cut.lost_bytes), (None, 100_000));
        assert_eq!(file(&driver.disk, &log_path(last)).len(), len_bytes);
        assert_eq!(driver.append(1, 10).unwrap().base_offset, Offset(40));
    }
}

#[test]
fn damage_above_the_recovery_point_ends_the_log_there() {
    let mut disk = unknown();
    let second = segments(&disk)[1];
    let mut bytes = file(&disk, &log_path(second));
    let at = bytes.len() - 5;
    bytes[at] ^= 1;
    disk.plant(&log_path(second), &bytes);
    let (driver, report) = LogDriver::open(config(), disk, LogDriver::options(second + 1, false)).unwrap();
    let end = driver.log.log_end_offset().0;
    assert!(end > second && !report.dropped_segments.is_empty());
    assert_eq!(segments(&driver.disk), [0, second]);
    assert!(driver.disk.paths().all(|path| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        stem.parse::<i64>().map_or(true, |offset| offset <= end)
    }));
    assert_eq!(
        driver
            .read_all(Offset(0), 1 << 20)
            .last()
            .unwrap()
            .next_offset()
            .0,
        end
    );
    let (again, report) = driver.reopen().unwrap();
    assert_eq!((again.log.log_end_offset().0, report.cut), (end, None));
}

#[test]
fn damage_below_the_recovery_point_is_an_error_that_names_it_and_changes_nothing() {
    let mut disk = unknown();
    let second = segments(&disk)[1];
    let mut bytes = file(&disk, &log_path(second));
    // The first batch says that it ends two offsets later.
    bytes[26] ^= 2;
    disk.plant(&log_path(second), &bytes);
    let before = contents(&disk);
    let options = LogDriver::options(second + 4, false);
    let opened = Log::open(LogDriver::dir(), LogId(0), config(), options, &mut disk);
    let Err(OpenError::Damaged {
        path,
        position,
        offset,
        recovery_point,
        ..
    }) = opened
    else {
        panic!("it must not open");
    };
    assert_eq!((path, position), (log_path(second), 0));
    assert_eq!((offset.0, recovery_point.0), (second, second + 4));
    assert_eq!(contents(&disk), before);
}

#[test]
fn a_lost_segment_end_drops_what_follows_it() {
    let mut disk = SimDisk::new();
    let closed = contents(&unknown());
    let bases: Vec<i64> = segments_of(&closed);
    for (path, bytes) in &closed {
        // As after a power loss under `os`: rolled, not yet synced, so without indexes.
        let unsynced = path.to_str().unwrap().contains(&format!("{:020}", bases[1]));
        if !unsynced || path.extension().is_some_and(|e| e == "snapshot") {
            disk.plant(path, bytes);
        } else if path.extension().is_some_and(|e| e == "log") {
            disk.plant(path, &bytes[..bytes.len() / 5]);
        }
    }
    let options = LogDriver::options(bases[1], false);
    let (driver, report) = LogDriver::open(config(), disk, options).unwrap();
    assert_eq!(report.dropped_segments.len(), bases.len() - 2);
    assert!(driver.log.log_end_offset().0 < bases[2]);
    assert_eq!(
        driver.read_all(Offset(0), 1 << 20).last().unwrap().next_offset(),
        driver.log.log_end_offset()
    );
}

fn segments_of(contents: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<i64> {
    let logs = contents
        .keys()
        .filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn doubtful_indexes_are_made_anew_as_they_were() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 6] = [
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.rotate_left(12),
        |bytes| bytes.iter_mut().for_each(|byte| *byte = 0xff),
        |bytes| bytes.clear(),
        // In order, but not where a batch begins.
        |bytes| *bytes.last_mut().unwrap() ^= 1,
        |bytes| bytes.extend([0x7f, 0, 0, 0, 0x7f, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let originals = contents(&closed());
    for extension in ["index", "timeindex"] {
        for (case, damage) in damages.iter().enumerate() {
            let path = LogDriver::path(&format!("{FIRST}.{extension}"));
            let mut disk = closed();
            let mut bytes = file(&disk, &path);
            damage(&mut bytes);
            disk.plant(&path, &bytes);
            let (driver, report) = LogDriver::open(config(), disk, LogDriver::options(40, true)).unwrap();
            assert_eq!(driver.read_all(Offset(0), 200).len(), 20, "{extension} {case}");
            // The last timestamp of a time index, and an empty offset index, cannot be told from the
            // index alone; they cost time and no record.
            if report.rebuilt_indexes > 0 {
                assert_eq!(
                    &file(&driver.disk, &path),
                    &originals[&path],
                    "{extension} {case}"
                );
            }
            assert!(report.rebuilt_indexes == 1 || case == 3 || extension == "timeindex" && case >= 4);
        }
    }
}

#[test]
fn a_log_opens_where_the_index_leads_the_replay_astray() {
    let config = LogConfig {
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    let mut driver = LogDriver::new(config.clone());
    for _ in 0..20 {
        driver.append(2, 50).unwrap();
    }
    driver.settle();
    driver.log.close(&mut driver.disk).unwrap();
    let mut disk = SimDisk::new();
    // Without the epochs' file, the epochs are those of the batches from the log start on.
    for (path, mut bytes) in contents(&driver.disk) {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("index") => {
                let last = bytes.len() - 8;
                bytes[..last].chunks_exact_mut(8).for_each(|entry| entry[7] ^= 1);
            }
            Some("log" | "timeindex" | "snapshot") => {}
            _ => continue,
        }
        disk.plant(&path, &bytes);
    }
    let options = OpenOptions {
        log_start_offset: Offset(10),
        ..LogDriver::options(40, true)
    };
    let (driver, report) = LogDriver::open(config, disk, options).unwrap();
    assert_eq!(report.scanned_segments, 0, "the damage is not seen at once");
    assert_eq!(driver.read_all(Offset(10), 1 << 20).len(), 15);
}

#[test]
fn missing_index_snapshot_and_epoch_files_are_made_anew() {
    let originals = contents(&closed());
    let mut disk = SimDisk::new();
    for (path, bytes) in originals
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "log"))
    {
        disk.plant(path, bytes);
    }
    let (driver, report) = LogDriver::open(config(), disk, LogDriver::options(40, true)).unwrap();
    assert_eq!(report.rebuilt_indexes, driver.log.segment_count());
    let (driver, _) = driver.reopen().unwrap();
    for (path, bytes) in contents(&driver.disk) {
        assert_eq!(bytes, originals[&path], "{}", path.display());
    }
}

#[test]
fn foreign_files_are_reported_and_left_alone() {
    let mut disk = closed();
    for name in ["notes.txt", "1.log"] {
        disk.plant(&LogDriver::path(name), b"?");
    }
    let (driver, report) = LogDriver::open(config(), disk, LogDriver::options(0, false)).unwrap();
    assert_eq!(report.foreign, ["1.log", "notes.txt"]);
    assert_eq!(file(&driver.disk, &LogDriver::path("notes.txt")), b"?");
}

#[test]
fn what_is_left_of_replaced_and_removed_segments_is_removed() {
    let mut disk = closed();
    let before = contents(&disk);
    for name in [
        ".log.deleted",
        ".index.deleted",
        ".log.cleaned",
        ".timeindex.swap",
        ".log.swap",
    ] {
        disk.plant(&LogDriver::path(&format!("{FIRST}{name}")), b"");
    }
    let (driver, _) = LogDriver::open(config(), disk, LogDriver::options(40, true)).unwrap();
    assert_eq!(contents(&driver.disk), before);
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 20);
}

/// The compaction of a deleted log may still clear its files away where a log of the same name opens.
#[test]
fn what_is_to_be_removed_may_be_gone_already() {
    let mut disk = closed();
    disk.plant(&LogDriver::path(&format!("{FIRST}.index.cleaned.tmp")), b"half");
    disk.plan(Fault {
        half: None,
        kind: Some(OpKind::Remove),
        name_end: ".cleaned.tmp",
        after: 0,
        error: ErrorKind::NotFound,
    });
    let (driver, _) = LogDriver::open(config(), disk, LogDriver::options(40, true)).unwrap();
    assert_eq!(driver.disk.planned_faults(), 0);
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 20);
}

#[test]
fn a_log_that_ends_below_its_start_begins_anew_there() {
    let options = OpenOptions {
        log_start_offset: Offset(100),
        ..LogDriver::options(100, false)
    };
    let disk = closed();
    let (mut driver, report) = LogDriver::open(config(), disk, options).unwrap();
    assert!(report.ended_below_recovery_point);
    let begun = BegunAnew {
        first_offset: Offset(0),
        end: Offset(40),
        log_start_offset: Offset(100),
    };
    assert_eq!(report.begun_anew, Some(begun));
    assert_eq!(segments(&driver.disk), [100]);
    assert_eq!(driver.append(1, 10).unwrap().base_offset, Offset(100));
    driver.settle();
    assert_eq!(driver.read_all(Offset(100), 1000).len(), 1);
}

#[test]
fn an_empty_log_that_begins_at_its_start_has_lost_nothing() {
    for log_start_offset in [0, 100] {
        let options = OpenOptions {
            log_start_offset: Offset(log_start_offset),
            ..LogDriver::options(0, false)
        };
        let (_, report) = LogDriver::open(config(), SimDisk::new(), options).unwrap();
        assert_eq!(report, RecoveryReport::default());
    }
}

#[test]
fn a_log_that_ends_below_its_start_is_not_begun_anew_where_more_was_flushed() {
    let options = OpenOptions {
        log_start_offset: Offset(100),
        ..LogDriver::options(120, false)
    };
    let mut disk = closed();
    let before = contents(&disk);
    let last = *segments(&disk).last().unwrap();
    let opened = Log::open(LogDriver::dir(), LogId(0), config(), options, &mut disk);
    let Err(OpenError::Damaged {
        path,
        offset,
        recovery_point,
        ..
    }) = opened
    else {
        panic!("what was flushed is gone");
    };
    assert_eq!((path, offset), (log_path(last), Offset(40)));
    assert_eq!(recovery_point, Offset(120));
    assert_eq!(contents(&disk), before, "nothing is removed");

    let (log, report) = Log::repair(LogDriver::dir(), LogId(0), config(), options, &mut disk).unwrap();
    assert_eq!(log.log_end_offset(), Offset(100));
    assert_eq!(report.begun_anew.unwrap().end, Offset(40));
}

#[test]
fn a_recorded_start_above_all_there_was_is_an_error_after_a_clean_stop() {
    let options = |log_start_offset, recovery_point| OpenOptions {
        log_start_offset: Offset(log_start_offset),
        ..LogDriver::options(recovery_point, true)
    };
    let last = *segments(&closed()).last().unwrap();
    let opened = LogDriver::open(config(), closed(), options(100, 40));
    let Err(OpenError::Damaged { path, offset, .. }) = opened else {
        panic!("its records would be dropped");
    };
    assert_eq!((path, offset), (log_path(last), Offset(40)));
    // A truncation to a start within a batch leaves an end below it.
    let (driver, _) = LogDriver::open(config(), closed(), options(41, 41)).unwrap();
    assert_eq!(segments(&driver.disk), [41]);
}

proptest! {
    #[test]
    fn any_bytes_open_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        keep in 0..1500_usize,
        side in prop::collection::vec(any::<u8>(), 0..60),
        clean in any::<bool>(),
    ) {
        let mut disk = closed();
        let mut log = file(&disk, &log_path(0));
        log.truncate(keep);
        log.extend(&bytes);
        disk.plant(&log_path(0), &log);
        for name in [".index", ".timeindex"] {
            disk.plant(&LogDriver::path(&format!("{FIRST}{name}")), &side);
        }
        disk.plant(&LogDriver::path("00000000000000000040.snapshot"), &side);
        disk.plant(&LogDriver::path("leader-epoch-checkpoint"), &side);
        if let Ok((driver, _)) = LogDriver::open(config(), disk, LogDriver::options(0, clean)) {
            let end = driver.log.log_end_offset();
            if !clean {
                let last = driver.read_all(Offset(0), 1 << 20).last().map(BatchHeader::next_offset);
                prop_assert_eq!(last.unwrap_or(Offset(0)), end);
            }
        }
    }
}

const KAFKA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/kafka-4.4");

fn kafka_directory(stop: &str, name: &str) -> SimDisk {
    let mut disk = SimDisk::new();
    for entry in std::fs::read_dir(format!("{KAFKA}/{stop}/{name}")).unwrap() {
        let path = entry.unwrap().path();
        disk.plant(
            &LogDriver::path(path.file_name().unwrap().to_str().unwrap()),
            &std::fs::read(path).unwrap(),
        );
    }
    disk
}

fn kafka_checkpoint(stop: &str, file: &str, log: &str) -> Offset {
    let text = std::fs::read_to_string(format!("{KAFKA}/{stop}/{file}")).unwrap();
    let topic = log.strip_suffix("-0").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{topic} 0 ")));
    Offset(line.map_or(0, |offset| offset.parse().unwrap()))
}

/// Offset, timestamp, key, CRC of the value.
type Line = (i64, i64, Option<String>, Option<u32>);

fn expected_records(log: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(format!("{KAFKA}/records.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut records: Vec<Line> = lines
        .filter(|line| line["log"] == log)
        .map(|line| {
            let number = |field: &str| line[field].as_i64().unwrap();
            let crc = line["value_crc32c"]
                .as_u64()
                .map(|crc| u32::try_from(crc).unwrap());
            (
                number("offset"),
                number("timestamp"),
                line["key"].as_str().map(str::to_owned),
                crc,
            )
        })
        .collect();
    records.sort_unstable();
    records
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stored_records(driver: &LogDriver) -> Vec<Line> {
    let mut records = Vec::new();
    let mut offset = driver.log.log_start_offset();
    while let Some(bytes) = driver.read(offset, 3000, driver.log.log_end_offset()) {
        let mut rest = bytes.as_slice();
        while let Ok(batch) = RecordBatch::parse(rest) {
            batch.verify_crc().unwrap();
            offset = batch.header().next_offset();
            rest = &rest[batch.bytes().len()..];
            if batch.header().attributes().is_control() {
                continue;
            }
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                if record.offset >= driver.log.log_start_offset() {
                    let crc = record.value.map(crc32c::crc32c);
                    records.push((record.offset.0, record.timestamp.0, record.key.map(hex), crc));
                }
            }
        }
    }
    records
}

#[test]
fn directories_of_a_real_kafka_open_and_hold_every_record() {
    for stop in ["clean", "killed"] {
        for log in [
            "codecs-0",
            "plain-0",
            "appendtime-0",
            "txn-0",
            "trimmed-0",
            "compacted-0",
        ] {
            // Among its batches are some of zstd, the one codec in C.
            if log == "codecs-0" && !cfg!(feature = "zstd") {
                continue;
            }
            for forget_recovery_point in [false, true] {
                let mut options = OpenOptions {
                    recovery_point: kafka_checkpoint(stop, "recovery-point-offset-checkpoint", log),
                    log_start_offset: kafka_checkpoint(stop, "log-start-offset-checkpoint", log),
                    clean_shutdown: stop == "clean" && !forget_recovery_point,
                    now: TimestampMs(1_800_000_000_000),
                };
                if forget_recovery_point {
                    options.recovery_point = Offset(0);
                }
                let disk = kafka_directory(stop, log);
                let (driver, report) = LogDriver::open(LogConfig::default(), disk, options).unwrap();
                let case = format!("{stop} {log} {report:?}");
                assert_eq!(
                    (report.cut.is_none(), report.dropped_segments.len()),
                    (true, 0),
                    "{case}"
                );
                assert!(report.foreign.is_empty(), "{case}");
                assert_eq!(report.scanned_segments == 0, options.clean_shutdown, "{case}");
                assert_eq!(stored_records(&driver), expected_records(log), "{case}");
                let (mut driver, report) = driver.reopen().unwrap();
                assert_eq!((report.cut, report.scanned_segments), (None, 0), "{case}");
                let end = driver.log.log_end_offset();
                driver.epoch = driver.log.latest_epoch().unwrap();
                driver.now = TimestampMs(1_800_000_000_000);
                assert_eq!(driver.append(1, 10).unwrap().base_offset, end);
            }
        }
    }
}

#[test]
fn our_indexes_of_kafkas_batches_are_kafkas() {
    let mut transaction_indexes = 0;
    for (log, index_interval_bytes) in [("codecs-0", 500), ("plain-0", 300), ("txn-0", 100)] {
        let kafkas = contents(&kafka_directory("clean", log));
        let mut disk = SimDisk::new();
        for (path, bytes) in kafkas
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == "log"))
        {
            disk.plant(path, bytes);
        }
        let config = LogConfig {
            index_interval_bytes,
            ..LogConfig::default()
        };
        let (driver, _) = LogDriver::open(config, disk, LogDriver::options(0, false)).unwrap();
        let (driver, _) = driver.reopen().unwrap();
        let made = contents(&driver.disk);
        let (made, _): (Vec<_>, Vec<_>) = made.into_iter().partition(|(path, _)| {
            path.extension()
                .is_some_and(|e| e.to_str().unwrap().ends_with("index"))
        });
        assert!(made.len() > 4);
        for (path, bytes) in made {
            transaction_indexes += usize::from(path.extension().is_some_and(|e| e == "txnindex"));
            assert_eq!(hex(&bytes), hex(&kafkas[&path]), "{}", path.display());
        }
    }
    assert_eq!(transaction_indexes, 2);
}
