//! What becomes of a log when one of its files is absent, empty, truncated, has a turned byte, or holds
//! garbage, after a clean stop and after a crash: the table that stands in `docs/durability.md`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use ringlog_engine::config::LogConfig;
use ringlog_engine::io::Storage as _;
use ringlog_engine::log::{OpenError, OpenOptions};
use ringlog_engine::record::{EndTxnMarker, RecordBatch, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{LeaderEpoch, LogId, Offset, ProducerEpoch, ProducerId, Sequence};

/// Which file of a log is meant.
type FileOf = fn(&Stage) -> PathBuf;

/// The files, by what they are called in the table.
const FILES: [(&str, FileOf); 10] = [
    ("first `.log`", |stage| stage.file(0, "log")),
    ("sealed `.log`", |stage| stage.file(stage.sealed, "log")),
    ("last `.log`", |stage| stage.file(stage.active, "log")),
    ("last `.log`, above the recovery point", |stage| {
        stage.file(stage.active, "log")
    }),
    ("`.index`", |stage| stage.file(stage.sealed, "index")),
    ("`.timeindex`", |stage| stage.file(stage.sealed, "timeindex")),
    ("`.txnindex`", |stage| stage.file(stage.sealed, "txnindex")),
    ("`.snapshot`", |stage| {
        let at = if stage.clean { stage.end } else { stage.active };
        stage.file(at, "snapshot")
    }),
    ("`leader-epoch-checkpoint`", |_| {
        LogDriver::path("leader-epoch-checkpoint")
    }),
    ("`segment-checkpoint`", |_| LogDriver::path("segment-checkpoint")),
];

const DAMAGES: [&str; 5] = ["absent", "empty", "truncated", "a turned byte", "garbage"];

/// A log whose second segment is `sealed`, with an aborted transaction and a change of epoch.
struct Stage {
    clean: bool,
    disk: SimDisk,
    sealed: i64,
    active: i64,
    end: i64,
    recovery_point: i64,
    /// Bytes of the last segment that lie below the recovery point.
    recovered_bytes: usize,
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1500,
        index_interval_bytes: 300,
        ..LogConfig::default()
    }
}

impl Stage {
    fn new(clean: bool) -> Self {
        let mut driver = LogDriver::new(config());
        let mut batches = 0;
        let mut append = |driver: &mut LogDriver| {
            let mut builder = RecordBatchBuilder::new()
                .producer(ProducerId(3), ProducerEpoch(0), Sequence(batches))
                .transactional();
            batches += 1;
            builder.append(driver.now, None, Some(&[7; 80]), &[]).unwrap();
            let batch = BytesMut::from(builder.build().unwrap().as_ref());
            driver
                .log
                .append_as_leader(batch, driver.epoch, driver.now)
                .unwrap();
            driver.now.0 += 10;
            driver.settle();
        };
        while driver.log.segment_count() < 4 {
            for _ in 0..2 {
                append(&mut driver);
            }
            let marker = EndTxnMarker {
                committed: false,
                coordinator_epoch: 0,
            };
            let (id, epoch) = (ProducerId(3), ProducerEpoch(0));
            let appended = driver
                .log
                .append_end_txn_marker(id, epoch, marker, driver.epoch, driver.now);
            appended.unwrap();
            driver.settle();
            if driver.log.segment_count() == 2 {
                driver.epoch = LeaderEpoch(5);
            }
        }
        for _ in 0..4 {
            append(&mut driver);
        }
        let bases = bases(&driver.disk);
        let recovery_point = driver.log.log_end_offset().0;
        let active = *bases.last().unwrap();
        let recovered_bytes = driver.disk.bytes(&path(active, "log")).unwrap().len();
        for _ in 0..3 {
            append(&mut driver);
        }
        assert_eq!(*self::bases(&driver.disk).last().unwrap(), active);
        let end = driver.log.log_end_offset().0;
        if clean {
            driver.log.close(&mut driver.disk).unwrap();
        } else {
            driver.disk.kill();
        }
        Self {
            clean,
            disk: driver.disk,
            sealed: bases[1],
            active,
            end,
            recovery_point: if clean { end } else { recovery_point },
            recovered_bytes,
        }
    }

    fn file(&self, offset: i64, extension: &str) -> PathBuf {
        path(offset, extension)
    }

    fn options(&self) -> OpenOptions {
        LogDriver::options(self.recovery_point, self.clean)
    }
}

fn path(offset: i64, extension: &str) -> PathBuf {
    LogDriver::path(&format!("{offset:020}.{extension}"))
}

fn bases(disk: &SimDisk) -> Vec<i64> {
    let logs = disk
        .paths()
        .filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

fn contents(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.paths()
        .map(|path| (path.to_owned(), disk.bytes(path).unwrap().to_vec()))
        .collect()
}

fn damage(disk: &mut SimDisk, path: &Path, how: &str, from: usize) {
    let mut bytes = disk.bytes(path).unwrap().to_vec();
    let rest = bytes.len() - from;
    assert!(rest > 0, "{} is empty", path.display());
    match how {
        "absent" if from == 0 => return disk.remove_file(path).unwrap(),
        "absent" | "empty" => bytes.truncate(from),
        // In the middle of an entry, a line, a batch.
        "truncated" => bytes.truncate(from + rest / 2 - 1),
        // Of a batch, a byte of its record.
        "a turned byte" => {
            let at = if path.extension().is_some_and(|e| e == "log") {
                RecordBatch::parse(&bytes[from..]).unwrap().bytes().len() - 1
            } else {
                rest / 2
            };
            bytes[from + at] ^= 1;
        }
        "garbage" => {
            for (at, byte) in bytes.iter_mut().enumerate().skip(from) {
                *byte = u8::try_from(at * 37 % 251).unwrap() | 0x80;
            }
        }
        other => panic!("{other}"),
    }
    disk.plant(path, &bytes);
}

/// Whether every batch from the start to the end is sound, and where the last one ends.
fn read_all(driver: &LogDriver) -> (bool, i64) {
    let (mut offset, mut sound) = (Offset(0), true);
    while let Some(bytes) = driver.read(offset, 1 << 20, driver.log.log_end_offset()) {
        let mut rest = bytes.as_slice();
        while let Ok(batch) = RecordBatch::parse(rest) {
            sound &= batch.verify_crc().is_ok();
            offset = batch.header().next_offset();
            rest = &rest[batch.bytes().len()..];
        }
    }
    (sound, offset.0)
}

fn aborted(driver: &LogDriver) -> usize {
    driver
        .log
        .aborted_transactions(Offset(0), driver.log.log_end_offset())
        .len()
}

/// The files after a clean stop.
fn after_stop(mut driver: LogDriver) -> BTreeMap<PathBuf, Vec<u8>> {
    driver.settle();
    driver.log.close(&mut driver.disk).unwrap();
    contents(&driver.disk)
}

fn outcome(clean: bool, file: &str, path_of: fn(&Stage) -> PathBuf, how: &str) -> &'static str {
    let stage = Stage::new(clean);
    let open = |disk| LogDriver::open(config(), disk, stage.options());
    let sound = open(Stage::new(clean).disk).unwrap().0;
    let (aborted_before, expected) = (aborted(&sound), after_stop(sound));
    assert!(aborted_before > 3);

    let from = if file.contains("above") {
        stage.recovered_bytes
    } else {
        0
    };
    let mut disk = Stage::new(clean).disk;
    let path = path_of(&stage);
    damage(&mut disk, &path, how, from);
    let before = contents(&disk);
    let mut kept = SimDisk::new();
    kept.create_dirs(Path::new("/data"));
    before.iter().for_each(|(path, bytes)| kept.plant(path, bytes));
    let (driver, report) = match open(disk) {
        Ok(opened) => opened,
        Err(OpenError::Damaged { path, offset, .. }) => {
            let opened = ringlog_engine::log::Log::open(
                LogDriver::dir(),
                LogId(0),
                config(),
                stage.options(),
                &mut kept,
            );
            assert!(opened.is_err() && contents(&kept) == before, "nothing is changed");
            assert!(path.extension().is_some_and(|e| e == "log") && offset.0 < stage.recovery_point);
            return "unavailable";
        }
        Err(other) => panic!("{file} {how}: {other}"),
    };
    let (sound, end) = read_all(&driver);
    if end < stage.recovery_point {
        assert!(
            report.ended_below_recovery_point,
            "{file} {how} {clean}: a silent loss"
        );
        return "reported";
    }
    if !sound {
        return "noticed when read";
    }
    if end < stage.end {
        return "cut";
    }
    assert_eq!(aborted(&driver), aborted_before, "{file} {how} {clean}");
    if after_stop(driver) == expected {
        return "made anew";
    }
    "believed"
}

#[test]
fn every_damage_of_every_file_has_its_outcome() {
    let mut table = String::from("| file | stop | absent | empty | truncated | a turned byte | garbage |\n");
    table.push_str("|---|---|---|---|---|---|---|\n");
    for (file, path_of) in FILES {
        for clean in [true, false] {
            // After a clean stop everything lies below the recovery point.
            if clean && file.contains("above") {
                continue;
            }
            write!(table, "| {file} | {} |", if clean { "clean" } else { "crash" }).unwrap();
            for how in DAMAGES {
                write!(table, " {} |", outcome(clean, file, path_of, how)).unwrap();
            }
            table.push('\n');
        }
    }
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/durability.md");
    let document = std::fs::read_to_string(document).unwrap();
    assert!(
        document.contains(&table),
        "docs/durability.md should have\n{table}"
    );
}

#[test]
fn a_segment_that_is_shorter_by_whole_batches_is_noticed() {
    for clean in [true, false] {
        let mut stage = Stage::new(clean);
        let path = stage.file(stage.sealed, "log");
        let bytes = stage.disk.bytes(&path).unwrap().to_vec();
        let last = {
            let mut at = 0;
            loop {
                let len = RecordBatch::parse(&bytes[at..]).unwrap().bytes().len();
                if at + len == bytes.len() {
                    break at;
                }
                at += len;
            }
        };
        stage.disk.plant(&path, &bytes[..last]);
        let options = stage.options();
        let opened = LogDriver::open(config(), stage.disk, options);
        let Err(OpenError::Damaged {
            path: named,
            position,
            ..
        }) = opened
        else {
            panic!("it must not open");
        };
        assert_eq!((named, position), (path, last as u64));
    }
}

#[test]
fn a_repair_keeps_what_lies_before_the_damage_and_goes_on_from_there() {
    for (file, path_of) in &FILES[1..3] {
        for how in DAMAGES {
            for clean in [true, false] {
                let mut stage = Stage::new(clean);
                let (path, options) = (path_of(&stage), stage.options());
                damage(&mut stage.disk, &path, how, 0);
                let repaired = ringlog_engine::log::Log::repair(
                    LogDriver::dir(),
                    LogId(7),
                    config(),
                    options,
                    &mut stage.disk,
                );
                let (mut log, _) = repaired.unwrap();
                let end = log.log_end_offset();
                let damaged = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
                assert!(end.0 >= damaged && end.0 < stage.end, "{file} {how}");
                log.close(&mut stage.disk).unwrap();
                let options = LogDriver::options(end.0, true);
                let (mut driver, _) = LogDriver::open(config(), stage.disk, options).unwrap();
                assert_eq!(read_all(&driver), (true, end.0), "{file} {how}");
                driver.epoch = LeaderEpoch(9);
                assert_eq!(driver.append(1, 10).unwrap().base_offset, end);
            }
        }
    }
}

#[test]
fn a_repair_begins_with_the_first_segment_that_is_there() {
    for clean in [true, false] {
        let mut stage = Stage::new(clean);
        let (path, options) = (stage.file(0, "log"), stage.options());
        stage.disk.remove_file(&path).unwrap();
        let repaired =
            ringlog_engine::log::Log::repair(LogDriver::dir(), LogId(7), config(), options, &mut stage.disk);
        let (log, _) = repaired.unwrap();
        assert_eq!(log.log_start_offset().0, stage.sealed);
        assert_eq!(log.log_end_offset().0, stage.end);
    }
}
