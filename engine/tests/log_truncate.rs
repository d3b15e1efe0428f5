//! Truncation: what goes, what stays, and that what went does not come back.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use bytes::BytesMut;
use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::log::{AppendError, OpenOptions, TruncateError};
use ringlog_engine::record::RecordBatchBuilder;
use ringlog_engine::testing::LogDriver;
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// Batches of two records.
fn filled(batches: usize, config: LogConfig) -> LogDriver {
    let mut driver = LogDriver::new(config);
    for _ in 0..batches {
        driver.append(2, 50).unwrap();
    }
    driver.settle();
    driver
}

fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 300,
        ..LogConfig::default()
    }
}

fn truncate(driver: &mut LogDriver, offset: i64) -> i64 {
    driver
        .log
        .truncate_to(Offset(offset), &mut driver.disk)
        .unwrap()
        .0
}

fn bases(driver: &LogDriver) -> Vec<i64> {
    driver
        .read_all(Offset(0), 700)
        .iter()
        .map(|header| header.base_offset().0)
        .collect()
}

fn names(driver: &LogDriver, extension: &str) -> Vec<String> {
    let names = driver
        .disk
        .paths()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.ends_with(extension)).collect()
}

#[test]
fn records_at_and_above_the_offset_go_and_the_file_is_cut() {
    let mut driver = filled(10, LogConfig::default());
    let size = driver.log.size_bytes();
    assert_eq!(truncate(&mut driver, 12), 12);
    assert_eq!(bases(&driver), [0, 2, 4, 6, 8, 10]);
    let file = driver
        .disk
        .bytes(&LogDriver::path("00000000000000000000.log"))
        .unwrap();
    assert_eq!(file.len() as u64, size / 10 * 6);
    assert_eq!(driver.log.size_bytes(), size / 10 * 6);
    assert_eq!(driver.log.flushed_offset(), Offset(12));
    assert_eq!(driver.append(2, 50).unwrap().base_offset, Offset(12));
    driver.settle();
    assert_eq!(bases(&driver), [0, 2, 4, 6, 8, 10, 12]);
}

#[test]
fn a_batch_that_contains_the_offset_goes_whole() {
    let mut driver = filled(10, small_segments());
    assert_eq!(truncate(&mut driver, 11), 10);
    assert_eq!(driver.log.log_end_offset(), Offset(10));
    assert_eq!(bases(&driver), [0, 2, 4, 6, 8]);
}

#[test]
fn later_segments_go_with_all_their_files() {
    for offset in 0..41 {
        let mut driver = filled(20, small_segments());
        let end = truncate(&mut driver, offset);
        assert_eq!(end, offset / 2 * 2);
        assert_eq!(bases(&driver), (0..offset / 2).map(|i| i * 2).collect::<Vec<_>>());
        for extension in [".log", ".index", ".timeindex", ".snapshot"] {
            let later = names(&driver, extension)
                .into_iter()
                .filter(|n| n[..20].parse::<i64>().unwrap() > offset);
            assert_eq!(later.count(), 0);
        }
        driver.append(2, 60).unwrap();
        let (driver, report) = driver.reopen().unwrap();
        assert_eq!((report.cut, report.scanned_segments), (None, 0));
        assert_eq!(driver.log.log_end_offset().0, end + 2);
    }
}

#[test]
fn what_was_truncated_does_not_rise_from_the_dead() {
    let mut driver = filled(20, small_segments());
    let old = driver.read_all(Offset(0), 1 << 20);
    truncate(&mut driver, 10);
    driver.epoch = LeaderEpoch(1);
    driver.append(2, 50).unwrap();
    driver.settle();
    driver.disk.crash(|_| 0);
    let (driver, _) = LogDriver::open(small_segments(), driver.disk, LogDriver::options(0, false)).unwrap();
    let new = driver.read_all(Offset(0), 1 << 20);
    assert_eq!(new[..5], old[..5]);
    assert_eq!(new.len(), 6);
    assert_eq!(new[5].partition_leader_epoch(), LeaderEpoch(1));
}

#[test]
fn epochs_and_producers_go_back_as_well() {
    let mut driver = LogDriver::new(LogConfig::default());
    let batch = |sequence| {
        let mut builder =
            RecordBatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), Sequence(sequence));
        builder.append(driver.now, None, Some(b"v"), &[]).unwrap();
        BytesMut::from(builder.build().unwrap().as_ref())
    };
    let (batches, now) = ([batch(0), batch(1), batch(2)], driver.now);
    for (epoch, batch) in (0..).zip(batches.clone()) {
        driver
            .log
            .append_as_leader(batch, LeaderEpoch(epoch), now)
            .unwrap();
    }
    driver.settle();
    truncate(&mut driver, 1);
    assert_eq!(driver.log.latest_epoch(), Some(LeaderEpoch(0)));
    let file = driver
        .disk
        .bytes(&LogDriver::path("leader-epoch-checkpoint"))
        .unwrap();
    assert_eq!(file, b"0\n1\n0 0\n");
    let [first, second, third] = batches;
    assert!(
        driver
            .log
            .append_as_leader(first, LeaderEpoch(5), now)
            .unwrap()
            .duplicate
    );
    let skipping = driver.log.append_as_leader(third, LeaderEpoch(5), now);
    assert!(matches!(skipping, Err(AppendError::Producer(_))));
    let next = driver.log.append_as_leader(second, LeaderEpoch(5), now).unwrap();
    assert_eq!((next.duplicate, next.base_offset), (false, Offset(1)));
}

#[test]
fn a_busy_log_is_not_truncated() {
    let mut driver = filled(5, LogConfig::default());
    driver.append(1, 10).unwrap();
    let refused = driver.log.truncate_to(Offset(2), &mut driver.disk);
    assert!(matches!(refused, Err(TruncateError::Busy)));
    driver.turn();
    assert!(!driver.log.is_idle());
    let refused = driver.log.truncate_to(Offset(2), &mut driver.disk);
    assert!(matches!(refused, Err(TruncateError::Busy)));
    driver.settle();
    assert_eq!(truncate(&mut driver, 2), 2);
}

#[test]
fn offsets_outside_the_log_change_nothing() {
    let mut driver = filled(5, LogConfig::default());
    driver
        .log
        .increment_log_start_offset(Offset(4), &mut driver.queue)
        .unwrap();
    driver.settle();
    assert_eq!(truncate(&mut driver, 99), 10);
    let refused = driver.log.truncate_to(Offset(3), &mut driver.disk);
    assert!(matches!(refused, Err(TruncateError::BelowLogStart { .. })));
    assert_eq!(driver.log.log_end_offset(), Offset(10));
}

#[test]
fn offsets_below_the_log_start_are_not_given_again() {
    let mut driver = filled(5, LogConfig::default());
    driver
        .log
        .increment_log_start_offset(Offset(5), &mut driver.queue)
        .unwrap();
    driver.settle();
    assert_eq!(truncate(&mut driver, 5), 5);
    assert_eq!(driver.append(2, 50).unwrap().base_offset, Offset(5));
    let (driver, _) = driver.reopen().unwrap();
    assert_eq!(driver.read_all(Offset(5), 1 << 20).len(), 1);
    assert_eq!(driver.log.log_end_offset(), Offset(7));
}

#[test]
fn what_follows_a_cut_to_the_log_start_survives_a_kill() {
    let config = LogConfig {
        flush_policy: FlushPolicy::Os,
        ..small_segments()
    };
    let mut driver = filled(5, config.clone());
    driver
        .log
        .increment_log_start_offset(Offset(5), &mut driver.queue)
        .unwrap();
    driver.settle();
    assert_eq!(truncate(&mut driver, 5), 5);
    // Too large for the same segment.
    driver.append(2, 400).unwrap();
    driver.settle();
    assert_eq!(driver.log.written_offset(), Offset(7));
    driver.disk.kill();
    // The batch that held the log start went: the segment before the new one ends at 4, not at 5.
    let options = OpenOptions {
        log_start_offset: Offset(5),
        ..LogDriver::options(0, false)
    };
    let (driver, _) = LogDriver::open(config, driver.disk, options).unwrap();
    assert_eq!(driver.log.log_end_offset(), Offset(7));
    assert_eq!(driver.read_all(Offset(5), 1 << 20).len(), 1);
}

#[test]
fn producers_are_remembered_where_a_cut_to_the_log_start_leaves_no_batch() {
    let mut driver = LogDriver::new(LogConfig::default());
    let (epoch, now) = (driver.epoch, driver.now);
    let sent = || {
        let mut builder = RecordBatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), Sequence(0));
        builder.append(now, None, Some(b"v"), &[]).unwrap();
        BytesMut::from(builder.build().unwrap().as_ref())
    };
    driver.log.append_as_leader(sent(), epoch, now).unwrap();
    driver.append(2, 50).unwrap();
    driver.settle();
    driver
        .log
        .increment_log_start_offset(Offset(2), &mut driver.queue)
        .unwrap();
    driver.settle();
    assert_eq!(truncate(&mut driver, 2), 2);
    driver.disk.crash(|_| 0);
    let options = OpenOptions {
        log_start_offset: Offset(2),
        ..LogDriver::options(2, false)
    };
    let (mut driver, _) = LogDriver::open(LogConfig::default(), driver.disk, options).unwrap();
    let again = driver.log.append_as_leader(sent(), epoch, now).unwrap();
    assert_eq!((again.duplicate, again.base_offset), (true, Offset(0)));
}

#[test]
fn an_index_damaged_while_the_log_was_closed_does_not_move_the_cut() {
    let config = LogConfig {
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    let index = LogDriver::path("00000000000000000000.index");
    // The first entry: into the middle of a batch; to a batch beyond the offset it names.
    for (place, byte) in [(7, 1), (3, 0)] {
        for offset in 1..20 {
            let mut driver = filled(40, config.clone());
            let whole = driver.read_all(Offset(0), 1 << 20);
            driver.log.close(&mut driver.disk).unwrap();
            let mut bytes = driver.disk.bytes(&index).unwrap().to_vec();
            bytes[place] = byte;
            driver.disk.plant(&index, &bytes);
            let end = driver.log.log_end_offset().0;
            let options = LogDriver::options(end, true);
            let (mut driver, _) = LogDriver::open(config.clone(), driver.disk, options).unwrap();
            let end = truncate(&mut driver, offset);
            let kept: Vec<_> = whole.iter().take_while(|b| b.last_offset().0 < offset).collect();
            assert_eq!(end, kept.last().map_or(0, |b| b.next_offset().0));
            assert_eq!(
                driver.read_all(Offset(0), 1 << 20).iter().collect::<Vec<_>>(),
                kept
            );
        }
    }
}
