//! Reads: exact at the tail, found through the sparse index elsewhere, never past their bound.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use bytes::BytesMut;
use proptest::prelude::*;
use ringlog_engine::config::LogConfig;
use ringlog_engine::io::Storage;
use ringlog_engine::log::{Narrow, Scan};
use ringlog_engine::record::{BatchHeader, Compression, RecordBatch, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{LeaderEpoch, Offset, TimestampMs};

/// Batches of two records, all of the same size.
fn filled(batches: usize, config: LogConfig) -> LogDriver {
    let mut driver = LogDriver::new(config);
    for _ in 0..batches {
        driver.append(2, 50).unwrap();
        driver.now.0 += 10;
    }
    driver.settle();
    driver
}

fn forget_checksums(disk: &mut SimDisk) {
    disk.remove_file(&LogDriver::path("segment-checkpoint")).unwrap();
}

fn batch_bytes(driver: &LogDriver) -> u32 {
    BatchHeader::peek(&driver.read(Offset(0), 0, Offset(2)).unwrap())
        .unwrap()
        .len_bytes() as u32
}

fn offsets(bytes: &[u8]) -> Vec<i64> {
    let (mut rest, mut offsets) = (bytes, Vec::new());
    while let Ok(batch) = RecordBatch::parse(rest) {
        offsets.push(batch.header().base_offset().0);
        rest = &rest[batch.bytes().len()..];
    }
    offsets
}

#[test]
fn tail_reads_are_exact() {
    let driver = filled(100, LogConfig::default());
    let size = batch_bytes(&driver);
    let read =
        |offset, max_bytes, bound| offsets(&driver.read(Offset(offset), max_bytes, Offset(bound)).unwrap());
    assert_eq!(read(150, size * 3, 200), [150, 152, 154]);
    assert_eq!(
        read(151, size * 3, 200),
        [150, 152, 154],
        "the batch that contains the offset is whole"
    );
    assert_eq!(read(150, size * 3 - 1, 200), [150, 152]);
    assert_eq!(
        read(150, 1, 200),
        [150],
        "the first batch is whole whatever its size"
    );
    assert_eq!(read(150, 1 << 20, 154), [150, 152]);
    assert_eq!(
        read(150, 1 << 20, 155),
        [150, 152],
        "a batch that reaches over the bound is not read"
    );
    let plan = driver
        .log
        .read_plan(Offset(150), size * 3, Offset(200))
        .unwrap()
        .unwrap();
    assert!(plan.is_located());
    assert_eq!((plan.position, plan.len_bytes), (u64::from(size) * 75, size * 3));
}

#[test]
fn nothing_at_or_above_the_bound_is_read() {
    let driver = filled(10, LogConfig::default());
    assert_eq!(driver.log.read_plan(Offset(10), 1000, Offset(10)).unwrap(), None);
    assert_eq!(driver.log.read_plan(Offset(20), 1000, Offset(20)).unwrap(), None);
    assert_eq!(driver.log.read_plan(Offset(10), 1000, Offset(11)).unwrap(), None);
    assert!(
        driver
            .log
            .read_plan(Offset(10), 1000, Offset(12))
            .unwrap()
            .is_some()
    );
}

#[test]
fn what_is_not_written_is_not_read() {
    let mut driver = filled(10, LogConfig::default());
    driver.append(2, 50).unwrap();
    assert_eq!(driver.log.read_plan(Offset(20), 1000, Offset(22)).unwrap(), None);
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 10);
}

#[test]
fn offsets_outside_the_log_are_errors() {
    let mut driver = filled(10, LogConfig::default());
    driver
        .log
        .increment_log_start_offset(Offset(4), &mut driver.queue)
        .unwrap();
    let error = driver.log.read_plan(Offset(3), 1000, Offset(20)).unwrap_err();
    assert_eq!(
        (error.log_start_offset, error.log_end_offset),
        (Offset(4), Offset(20))
    );
    assert!(driver.log.read_plan(Offset(21), 1000, Offset(20)).is_err());
    assert!(driver.log.read_plan(Offset(-1), 1000, Offset(20)).is_err());
    assert!(driver.log.read_plan(Offset(4), 1000, Offset(20)).is_ok());
}

#[test]
fn every_offset_is_found_through_the_index_after_a_restart() {
    for index_interval_bytes in [1, 400, 3000, 100_000] {
        let config = LogConfig {
            index_interval_bytes,
            segment_bytes: 20_000,
            ..LogConfig::default()
        };
        let (driver, _) = filled(300, config).reopen().unwrap();
        assert!(driver.log.segment_count() > 2);
        let size = batch_bytes(&driver);
        for offset in 0..600 {
            let bytes = driver.read(Offset(offset), size * 3, Offset(600)).unwrap();
            assert_eq!(offsets(&bytes)[0], offset / 2 * 2);
            assert!(bytes.len() <= size as usize * 3);
        }
        assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 300);
    }
}

#[test]
fn an_index_damaged_while_the_log_was_closed_costs_no_records() {
    let config = LogConfig {
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    let index = LogDriver::path("00000000000000000000.index");
    // The first entry: into the middle of a batch; to a batch beyond the offset it names.
    for (place, byte) in [(7, 1), (3, 0)] {
        let mut driver = filled(40, config.clone());
        driver.log.close(&mut driver.disk).unwrap();
        let mut bytes = driver.disk.bytes(&index).unwrap().to_vec();
        assert_ne!(bytes[place], byte);
        bytes[place] = byte;
        driver.disk.plant(&index, &bytes);
        // As in a directory of Kafka's, which has no checksums of its indexes.
        forget_checksums(&mut driver.disk);
        let options = LogDriver::options(80, true);
        let (driver, report) = LogDriver::open(config.clone(), driver.disk, options).unwrap();
        assert_eq!(report.scanned_segments, 0, "the damage is not seen at once");
        for offset in 0..80 {
            let read = driver.read(Offset(offset), 1000, Offset(80)).unwrap();
            assert_eq!(offsets(&read)[0], offset / 2 * 2);
        }
        for header in driver.read_all(Offset(0), 1 << 20) {
            let timestamp = header.max_timestamp();
            let found = driver.find_timestamp(timestamp, Offset(0));
            assert_eq!(found, Some((header.base_offset(), timestamp)));
        }
    }
}

#[test]
fn no_read_passes_its_bound_because_of_a_damaged_index() {
    let config = LogConfig {
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    let index = LogDriver::path("00000000000000000000.index");
    let mut driver = filled(40, config.clone());
    driver.log.close(&mut driver.disk).unwrap();
    let mut bytes = driver.disk.bytes(&index).unwrap().to_vec();
    // The first entry names an offset far below its batch.
    bytes[3] = 0;
    driver.disk.plant(&index, &bytes);
    let options = LogDriver::options(80, true);
    let (driver, _) = LogDriver::open(config, driver.disk, options).unwrap();
    for bound in 1..80 {
        for offset in 0..bound {
            let read = driver.read(Offset(offset), 1 << 20, Offset(bound));
            let read = read.map_or_else(Vec::new, |bytes| offsets(&bytes));
            assert!(
                read.iter().all(|base| base + 2 <= bound),
                "{offset}..{bound}: {read:?}"
            );
        }
    }
}

#[test]
fn a_read_reaches_to_its_bound_through_the_index_after_a_restart() {
    let config = LogConfig {
        index_interval_bytes: 700,
        ..LogConfig::default()
    };
    let (driver, _) = filled(1000, config).reopen().unwrap();
    let size = batch_bytes(&driver) as usize;
    for (max_bytes, least) in [(1 << 20, size * 480), (size * 400, size * 400), (size, size)] {
        let read = driver.read(Offset(0), max_bytes as u32, Offset(1000)).unwrap();
        assert!(
            (least..=max_bytes.min(size * 500)).contains(&read.len()),
            "{} bytes of at most {max_bytes}",
            read.len()
        );
    }
}

#[test]
fn a_bound_far_behind_the_tail_is_kept() {
    let driver = filled(
        1000,
        LogConfig {
            index_interval_bytes: 700,
            ..LogConfig::default()
        },
    );
    for bound in [2, 3, 9, 100, 101, 777, 1000] {
        for offset in (0..bound).filter(|offset| bound - offset < 12) {
            let read = driver.read(Offset(offset), 1 << 20, Offset(bound));
            let wanted = offset / 2 * 2;
            match read {
                Some(bytes) => {
                    let read = offsets(&bytes);
                    assert_eq!(read[0], wanted);
                    assert!(read.last().unwrap() + 2 <= bound, "{offset}..{bound}: {read:?}");
                    assert_eq!(
                        bytes.len() % batch_bytes(&driver) as usize,
                        0,
                        "nothing of the batch above"
                    );
                }
                None => assert!(wanted + 2 > bound),
            }
        }
    }
}

#[test]
fn a_read_ends_with_its_segment_and_goes_on_in_the_next() {
    let config = LogConfig {
        segment_bytes: 1000,
        ..LogConfig::default()
    };
    let driver = filled(20, config.clone());
    let first = offsets(&driver.read(Offset(0), 1 << 20, Offset(40)).unwrap());
    assert!(first.len() < 20);
    let next = first.last().unwrap() + 2;
    assert_eq!(
        offsets(&driver.read(Offset(next), 1 << 20, Offset(40)).unwrap())[0],
        next
    );

    // The offsets at the end of a compacted segment belong to no batch any more.
    let mut disk = driver.disk;
    disk.kill();
    let path = LogDriver::path("00000000000000000000.log");
    let bytes = disk.bytes(&path).unwrap().to_vec();
    let last = bytes.len() - bytes.len() / first.len();
    disk.plant(&path, &bytes[..last]);
    for name in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
        disk.plant(&LogDriver::path(name), &[]);
    }
    forget_checksums(&mut disk);
    let (driver, _) = LogDriver::open(config, disk, LogDriver::options(40, false)).unwrap();
    let gap = first.last().unwrap();
    assert_eq!(
        offsets(&driver.read(Offset(*gap), 1 << 20, Offset(40)).unwrap())[0],
        next
    );
    assert_eq!(driver.read(Offset(*gap), 1 << 20, Offset(next)), None);
}

#[test]
fn narrowing_tells_damage_and_short_chunks() {
    let (driver, _) = filled(100, LogConfig::default()).reopen().unwrap();
    let plan = driver
        .log
        .read_plan(Offset(50), 1000, Offset(200))
        .unwrap()
        .unwrap();
    let wanted = plan.scan_bytes() as usize;
    assert!(plan.scan_position() > 0, "the index is used");
    for damage in [0, 0xff] {
        // It may be the index that is wrong, so the segment is walked from its start.
        let mut plan = plan.clone();
        assert_eq!(plan.narrow(&vec![damage; wanted]), Ok(Narrow::NeedMore));
        assert_eq!(plan.scan_position(), 0);
        let wanted = plan.scan_bytes() as usize;
        assert!(plan.narrow(&vec![damage; wanted]).is_err());
    }
    assert!(plan.clone().narrow(&[]).is_err());
    let file = driver.disk.file_bytes(plan.file).unwrap();
    let start = plan.scan_position() as usize;
    let mut by_header = plan.clone();
    while by_header
        .narrow(&file[by_header.scan_position() as usize..][..61])
        .unwrap()
        == Narrow::NeedMore
    {}
    assert!(by_header.is_located(), "61 bytes at a time are enough");
    let mut at_once = plan;
    assert_eq!(
        at_once.narrow(&file[start..start + wanted]).unwrap(),
        Narrow::Located
    );
    assert_eq!(by_header.position, at_once.position);
}

proptest! {
    #[test]
    fn narrowing_never_panics_and_never_passes_the_end(
        seed in prop::collection::vec(any::<u8>(), 0..600),
        keep in 0..4000_usize,
        flips in prop::collection::vec((0..4000_usize, any::<u8>()), 0..6),
    ) {
        let (driver, _) = filled(30, LogConfig::default()).reopen().unwrap();
        let mut plan = driver.log.read_plan(Offset(30), 1000, Offset(60)).unwrap().unwrap();
        let file = driver.disk.file_bytes(plan.file).unwrap();
        let mut chunk = file[..keep.min(file.len())].to_vec();
        for (at, byte) in flips {
            if let Some(place) = chunk.get_mut(at) {
                *place = byte;
            }
        }
        chunk.extend(seed);
        if plan.narrow(&chunk).is_ok() {
            prop_assert!(plan.position + u64::from(plan.len_bytes) <= file.len() as u64);
        }
    }
}

/// A batch whose records have these timestamps.
fn append_at(driver: &mut LogDriver, timestamps: &[i64], compression: Compression) {
    let mut builder = RecordBatchBuilder::new().compression(compression);
    for &timestamp in timestamps {
        builder
            .append(TimestampMs(timestamp), None, Some(b"value"), &[])
            .unwrap();
    }
    let batch = BytesMut::from(builder.build().unwrap().as_ref());
    let now = TimestampMs(*timestamps.iter().max().unwrap());
    driver.log.append_as_leader(batch, LeaderEpoch(0), now).unwrap();
}

fn found(driver: &LogDriver, timestamp: i64) -> Option<(i64, i64)> {
    driver
        .find_timestamp(TimestampMs(timestamp), Offset(0))
        .map(|(offset, at)| (offset.0, at.0))
}

#[test]
fn the_first_record_at_or_after_a_timestamp_is_found() {
    let config = LogConfig {
        segment_bytes: 400,
        index_interval_bytes: 1,
        ..LogConfig::default()
    };
    let mut driver = LogDriver::new(config);
    append_at(&mut driver, &[100, 110, 105], Compression::None);
    append_at(&mut driver, &[300, 200], Compression::Gzip);
    append_at(&mut driver, &[250], Compression::Lz4);
    // The one codec in C, which not every build has.
    let last_codec = if cfg!(feature = "zstd") {
        Compression::Zstd
    } else {
        Compression::None
    };
    append_at(&mut driver, &[400, 500], last_codec);
    for _ in 0..20 {
        append_at(&mut driver, &[50], Compression::None);
    }
    append_at(&mut driver, &[600], Compression::Snappy);
    driver.settle();
    for reopened in [false, true] {
        if reopened {
            driver = driver.reopen().unwrap().0;
        }
        assert!(driver.log.segment_count() > 3);
        assert_eq!(found(&driver, 0), Some((0, 100)));
        assert_eq!(found(&driver, 101), Some((1, 110)));
        assert_eq!(found(&driver, 111), Some((3, 300)), "in order of offsets");
        assert_eq!(found(&driver, 301), Some((6, 400)));
        assert_eq!(found(&driver, 500), Some((7, 500)));
        assert_eq!(found(&driver, 501), Some((28, 600)));
        assert_eq!(found(&driver, 601), None);
        assert_eq!(
            driver.find_timestamp(TimestampMs(0), Offset(8)),
            Some((Offset(8), TimestampMs(50)))
        );
        let mut plan = driver.log.locate_max_timestamp().unwrap();
        let max = Scan::Found {
            offset: Offset(28),
            timestamp: TimestampMs(600),
        };
        assert_eq!(driver.search(&mut plan), max);
    }
    driver
        .log
        .increment_log_start_offset(Offset(2), &mut driver.queue)
        .unwrap();
    assert_eq!(found(&driver, 0), Some((2, 105)), "deleted records do not count");
}

#[test]
fn a_log_without_timestamps_has_none_to_find() {
    let mut driver = LogDriver::new(LogConfig::default());
    append_at(&mut driver, &[-1], Compression::None);
    driver.settle();
    assert_eq!(driver.log.locate_max_timestamp(), None);
    assert_eq!(found(&driver, 0), None);
    assert_eq!(driver.reopen().unwrap().0.log.locate_max_timestamp(), None);
}
