//! Zeros ahead of the data: when a log has them, and that nobody ever takes them, or what lies behind them,
//! for its end.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::io::ErrorKind;

use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::io::{IoOp, Storage};
use ringlog_engine::log::TruncateError;
use ringlog_engine::testing::{LogDriver, OpKind, SimDisk};
use ringlog_engine::types::{LeaderEpoch, Offset};

const PAGE: usize = 4096;
/// What is to be appended within a second before there are zeros.
const ENOUGH: usize = 256 * 1024;
const FIRST: &str = "00000000000000000000.log";

fn kinds(driver: &LogDriver) -> Vec<OpKind> {
    let outstanding = driver.disk.outstanding();
    outstanding.map(|request| OpKind::of(&request.op)).collect()
}

fn has(driver: &LogDriver, kind: OpKind) -> bool {
    kinds(driver).contains(&kind)
}

fn complete(driver: &mut LogDriver, kind: OpKind) {
    let at = kinds(driver).iter().position(|&k| k == kind);
    driver.complete(at.expect("such a request is outstanding"));
}

/// The zeros being written: from, to.
fn zeros(driver: &LogDriver) -> Option<(usize, usize)> {
    driver.disk.outstanding().find_map(|request| match request.op {
        IoOp::Zero {
            position, len_bytes, ..
        } => {
            let position = usize::try_from(position).unwrap();
            Some((position, position + len_bytes as usize))
        }
        _ => None,
    })
}

/// The write under way: from, to.
fn write(driver: &LogDriver) -> Option<(usize, usize)> {
    driver.disk.outstanding().find_map(|request| match &request.op {
        IoOp::Write {
            position, buffers, ..
        } => {
            let position = usize::try_from(*position).unwrap();
            Some((position, position + buffers.concat().len()))
        }
        _ => None,
    })
}

fn size(driver: &LogDriver) -> usize {
    usize::try_from(driver.log.size_bytes()).unwrap()
}

fn file_len(driver: &LogDriver, name: &str) -> usize {
    driver.disk.bytes(&LogDriver::path(name)).unwrap().len()
}

/// Whether the file ends with zeros that belong to no batch.
fn has_zeros_behind(driver: &LogDriver) -> bool {
    file_len(driver, FIRST) > size(driver).next_multiple_of(PAGE)
}

/// A log that appends at a rate, before the turn in which it asks for zeros.
fn fast(config: LogConfig) -> LogDriver {
    let mut driver = LogDriver::new(config);
    driver.append(1, 10).unwrap();
    driver.settle();
    for _ in 0..3 {
        driver.append(1, 100_000).unwrap();
    }
    driver
}

/// A log with zeros behind its data, all of which is on stable storage.
fn with_zeros(config: LogConfig) -> LogDriver {
    let mut driver = fast(config);
    driver.settle();
    assert!(has_zeros_behind(&driver));
    driver
}

/// Lets the zeros stay in flight until nothing else is; `each` looks at every turn.
fn complete_all_but_zeros(driver: &mut LogDriver, each: impl Fn(&LogDriver)) {
    for _ in 0..100 {
        let Some(other) = kinds(driver).iter().position(|&kind| kind != OpKind::Zero) else {
            break;
        };
        driver.complete(other);
        driver.turn();
        each(driver);
    }
}

fn recovered(driver: LogDriver, recovery_point: i64) -> LogDriver {
    let config = driver.log.config().clone();
    let options = LogDriver::options(recovery_point, false);
    let (driver, report) = LogDriver::open(config, driver.disk, options).unwrap();
    assert!(!report.ended_below_recovery_point, "{report:?}");
    driver
}

#[test]
fn a_slow_log_has_no_zeros() {
    let mut driver = LogDriver::new(LogConfig::default());
    for _ in 0..20 {
        driver.append(1, ENOUGH / 2).unwrap();
        driver.settle();
        assert_eq!(file_len(&driver, FIRST), size(&driver));
        driver.now.0 += 1500;
    }
}

#[test]
fn a_log_whose_settings_want_none_has_no_zeros() {
    let (group, os) = (FlushPolicy::Group, FlushPolicy::Os);
    let interval = FlushPolicy::Interval { flush_ms: 1 };
    for (flush_policy, zero_window_bytes_max) in
        [(os, 8 << 20), (interval, 8 << 20), (group, 0), (group, 4095)]
    {
        let mut driver = fast(LogConfig {
            flush_policy,
            zero_window_bytes_max,
            ..LogConfig::default()
        });
        driver.settle();
        assert_eq!(file_len(&driver, FIRST), size(&driver));
    }
}

#[test]
fn zeros_begin_on_the_page_after_the_data_and_grow_while_they_are_used_up() {
    let mut driver = fast(LogConfig::default());
    driver.turn();
    let start = size(&driver).next_multiple_of(PAGE);
    assert_eq!(
        zeros(&driver),
        Some((start, (size(&driver) + ENOUGH) / PAGE * PAGE))
    );
    driver.settle();
    let mut largest = 0;
    for _ in 0..300 {
        driver.append(1, 100_000).unwrap();
        driver.settle();
        driver.now.0 += 1;
        largest = largest.max(file_len(&driver, FIRST) - size(&driver));
    }
    assert!(largest > 6 << 20 && largest <= 8 << 20, "{largest}");
}

#[test]
fn a_log_whose_syncs_cover_much_has_no_zeros_and_gives_back_those_it_has() {
    // So many of the batches lie in each sync.
    let sync = |driver: &mut LogDriver, batches| {
        for _ in 0..batches {
            driver.append(1, 50_000).unwrap();
        }
        driver.settle();
    };
    let mut driver = LogDriver::new(LogConfig::default());
    for (batches, zeros) in [(1, true), (2, true), (4, false), (2, false), (1, true)] {
        // The average takes a while.
        for _ in 0..30 {
            sync(&mut driver, batches);
        }
        assert_eq!(has_zeros_behind(&driver), zeros, "{batches} batches a sync");
    }
}

#[test]
fn zeros_end_with_the_segment() {
    let segment_bytes = 500_000;
    let mut driver = fast(LogConfig {
        segment_bytes,
        ..LogConfig::default()
    });
    driver.append(1, 100_000).unwrap();
    driver.settle();
    let len = file_len(&driver, FIRST);
    assert_eq!(len, segment_bytes as usize / PAGE * PAGE);
}

#[test]
fn data_waits_for_zeros_on_their_way() {
    let mut driver = fast(LogConfig::default());
    driver.turn();
    let (start, end) = zeros(&driver).unwrap();
    while write(&driver).is_some() {
        assert!(write(&driver).unwrap().1 <= start);
        complete(&mut driver, OpKind::Write);
        driver.turn();
    }
    let written = driver.log.written_offset();
    driver.append(1, 2 * PAGE).unwrap();
    driver.turn();
    assert!(write(&driver).is_none(), "it would go where zeros are written");
    assert!(!driver.log.is_idle());
    complete(&mut driver, OpKind::Zero);
    driver.turn();
    assert!(write(&driver).unwrap().1 < end);
    complete(&mut driver, OpKind::Write);
    assert_eq!(driver.log.written_offset(), written.plus(1));
}

#[test]
fn a_write_into_zeros_ends_where_a_page_does_and_readers_do_not_see_the_rest() {
    let mut driver = with_zeros(LogConfig::default());
    for _ in 0..3 {
        let before = size(&driver);
        let info = driver.append(1, 1000).unwrap();
        driver.turn();
        assert_eq!(write(&driver).unwrap().1, size(&driver).next_multiple_of(PAGE));
        driver.settle();
        let read = driver.read(info.base_offset, 1 << 20, driver.log.log_end_offset());
        assert_eq!(read.unwrap().len(), size(&driver) - before);
    }
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 7);
}

#[test]
fn a_log_ends_with_its_batches_and_not_with_its_zeros_after_a_crash() {
    for seed in 0..40 {
        let mut driver = with_zeros(LogConfig::default());
        driver.disk.reseed(seed);
        let end = driver.log.log_end_offset();
        if seed % 2 == 0 {
            driver.disk.kill();
        } else {
            driver.disk.power_loss();
        }
        let mut driver = recovered(driver, 2);
        assert_eq!(driver.log.log_end_offset(), end);
        assert_eq!(file_len(&driver, FIRST), size(&driver));
        assert_eq!(driver.append(1, 10).unwrap().base_offset, end);
    }
}

#[test]
fn a_batch_torn_within_zeros_is_cut() {
    for kept in [1, 30, 61] {
        let mut driver = with_zeros(LogConfig::default());
        let end = driver.log.log_end_offset();
        driver.append(1, 1000).unwrap();
        driver.turn();
        driver.disk.crash(|len| if len > kept { kept } else { len });
        let mut driver = recovered(driver, 2);
        assert_eq!(driver.log.log_end_offset(), end);
        assert_eq!(file_len(&driver, FIRST), size(&driver));
        driver.append(1, 10).unwrap();
        driver.settle();
        assert_eq!(driver.read_all(end, 1000).len(), 1);
    }
}

#[test]
fn a_crash_while_zeros_are_written_loses_nothing() {
    for seed in 0..100 {
        let mut driver = fast(LogConfig::default());
        driver.disk.reseed(seed);
        driver.turn();
        while !driver.log.is_idle() && driver.log.flushed_offset() < driver.log.log_end_offset() {
            let other = kinds(&driver).iter().position(|&kind| kind != OpKind::Zero);
            driver.complete(other.unwrap());
            driver.turn();
        }
        assert!(zeros(&driver).is_some());
        let end = driver.log.flushed_offset();
        if seed % 2 == 0 {
            driver.disk.kill();
        } else {
            driver.disk.power_loss();
        }
        let driver = recovered(driver, end.0);
        assert_eq!(driver.log.log_end_offset(), end);
        assert_eq!(file_len(&driver, FIRST), size(&driver));
    }
}

#[test]
fn a_clean_stop_cuts_the_file_to_its_data() {
    let driver = with_zeros(LogConfig::default());
    let size_before = size(&driver);
    let (driver, report) = driver.reopen().unwrap();
    assert_eq!(file_len(&driver, FIRST), size_before);
    assert_eq!((report.cut, report.scanned_segments), (None, 0));
}

/// A log whose next batch goes to a new segment.
fn about_to_roll() -> LogDriver {
    let mut driver = fast(LogConfig {
        segment_bytes: 450_000,
        ..LogConfig::default()
    });
    driver.settle();
    driver.append(1, 100_000).unwrap();
    driver
}

#[test]
fn a_rolled_file_is_cut_before_the_next_one_is_created_and_before_its_indexes_are_written() {
    let mut driver = about_to_roll();
    driver.settle();
    let data = size(&driver);
    let next = format!("{:020}", driver.append(1, 100_000).unwrap().base_offset.0);
    driver.turn();
    let mut seen = Vec::new();
    while !kinds(&driver).is_empty() {
        let created = driver
            .disk
            .bytes(&LogDriver::path(&format!("{next}.log")))
            .is_some();
        let index = driver.disk.bytes(&LogDriver::path("00000000000000000000.index"));
        let cut = file_len(&driver, FIRST) == data;
        assert!(cut || !created && index.is_none());
        seen.push(kinds(&driver)[0]);
        driver.complete(0);
        driver.turn();
    }
    let at = |kind| seen.iter().position(|&k| k == kind).unwrap();
    assert!(at(OpKind::SetLen) < at(OpKind::Create));
    assert_eq!(file_len(&driver, FIRST), data);
}

#[test]
fn a_power_loss_after_a_roll_does_not_bring_zeros_back_between_segments() {
    for seed in 0..60 {
        let mut driver = about_to_roll();
        driver.disk.reseed(seed);
        driver.settle();
        driver.append(1, 100_000).unwrap();
        driver.settle();
        let end = driver.log.flushed_offset();
        driver.append(1, 100).unwrap();
        driver.turn();
        driver.disk.power_loss();
        let recovery_point = if seed % 2 == 0 { end.0 } else { 1 };
        let driver = recovered(driver, recovery_point);
        assert!(driver.log.log_end_offset() >= end, "seed {seed}");
        let count = driver.read_all(Offset(0), 1 << 20).len();
        assert_eq!(count, usize::try_from(driver.log.log_end_offset().0).unwrap());
    }
}

#[test]
fn zeros_in_flight_at_a_roll_are_waited_for_before_the_cut() {
    let mut driver = fast(LogConfig {
        segment_bytes: 450_000,
        ..LogConfig::default()
    });
    driver.turn();
    assert!(zeros(&driver).is_some());
    driver.append(1, 100_000).unwrap();
    driver.append(1, 100_000).unwrap();
    let end = driver.log.log_end_offset();
    driver.turn();
    complete_all_but_zeros(&mut driver, |driver| {
        assert!(!has(driver, OpKind::SetLen) && !has(driver, OpKind::Create));
    });
    assert_eq!(kinds(&driver), [OpKind::Zero]);
    assert!(!driver.log.is_idle());
    driver.settle();
    assert_eq!(driver.log.flushed_offset(), end);
    assert_eq!(driver.log.segment_count(), 2);
    let total: usize = [FIRST, "00000000000000000005.log"]
        .map(|name| file_len(&driver, name))
        .iter()
        .sum();
    assert_eq!(total, size(&driver));
}

#[test]
fn a_log_with_zeros_in_flight_is_neither_truncated_nor_closed() {
    let mut driver = fast(LogConfig::default());
    driver.turn();
    complete_all_but_zeros(&mut driver, |_| ());
    assert_eq!(kinds(&driver), [OpKind::Zero]);
    let truncated = driver.log.truncate_to(Offset(2), &mut driver.disk);
    assert!(matches!(truncated, Err(TruncateError::Busy)));
    assert!(driver.log.close(&mut driver.disk).is_err());
}

#[test]
fn a_truncation_takes_the_zeros_along_and_what_was_truncated_does_not_rise_behind_new_ones() {
    for seed in 0..40 {
        let mut driver = with_zeros(LogConfig::default());
        driver.disk.reseed(seed);
        driver.log.truncate_to(Offset(2), &mut driver.disk).unwrap();
        assert_eq!(file_len(&driver, FIRST), size(&driver));
        driver.epoch = LeaderEpoch(1);
        // The offsets and positions of those truncated, and zeros over where they lay.
        for _ in 0..3 {
            driver.append(1, 100_000).unwrap();
            driver.turn();
        }
        for _ in 0..seed % 8 {
            if !kinds(&driver).is_empty() {
                driver.complete(0);
                driver.turn();
            }
        }
        let (flushed, log_end) = (driver.log.flushed_offset(), driver.log.log_end_offset());
        driver.disk.power_loss();
        let driver = recovered(driver, 2);
        let end = driver.log.log_end_offset();
        assert!(flushed <= end && end <= log_end);
        let headers = driver.read_all(Offset(2), 1 << 20);
        assert!(
            headers
                .iter()
                .all(|header| header.partition_leader_epoch() == LeaderEpoch(1))
        );
    }
}

#[test]
fn an_idle_log_gives_its_zeros_back() {
    let mut driver = with_zeros(LogConfig::default());
    let due = driver.log.next_timeout().unwrap();
    driver.now.0 = due.0 - 1;
    driver.settle();
    assert!(has_zeros_behind(&driver));
    driver.now = due;
    driver.turn();
    assert_eq!(kinds(&driver), [OpKind::SetLen]);
    assert!(!driver.log.is_idle());
    driver.append(1, 10).unwrap();
    driver.turn();
    assert_eq!(kinds(&driver), [OpKind::SetLen], "the file is being cut");
    driver.settle();
    assert_eq!(file_len(&driver, FIRST), size(&driver));
    assert_eq!(driver.log.next_timeout(), None);
}

#[test]
fn a_log_that_has_become_slow_gives_its_zeros_back() {
    let mut driver = with_zeros(LogConfig::default());
    for _ in 0..6 {
        driver.now.0 += 2000;
        driver.append(1, 100).unwrap();
        driver.settle();
    }
    assert_eq!(file_len(&driver, FIRST), size(&driver));
}

#[test]
fn a_log_gives_its_zeros_back_when_its_settings_want_none() {
    let mut driver = with_zeros(LogConfig::default());
    driver.log.set_config(LogConfig {
        flush_policy: FlushPolicy::Os,
        ..LogConfig::default()
    });
    driver.append(1, 10).unwrap();
    driver.settle();
    assert_eq!(file_len(&driver, FIRST), size(&driver));
}

#[test]
fn a_log_that_is_flushed_on_request_has_zeros_until_nobody_asks() {
    let mut driver = LogDriver::new(LogConfig {
        flush_policy: FlushPolicy::Os,
        ..LogConfig::default()
    });
    for _ in 0..3 {
        driver.append(1, ENOUGH / 2).unwrap();
        driver.log.request_flush();
        driver.settle();
    }
    assert!(file_len(&driver, FIRST) > size(&driver));
    for _ in 0..11 {
        driver.append(1, ENOUGH / 2).unwrap();
        driver.settle();
        driver.now.0 += 1000;
    }
    assert_eq!(file_len(&driver, FIRST), size(&driver));
}

#[test]
fn a_disk_too_full_for_zeros_does_not_stall_the_log() {
    let mut driver = fast(LogConfig::default());
    driver.disk.fail_next(OpKind::Zero, ErrorKind::StorageFull);
    driver.settle();
    assert!(driver.log.poison().is_none() && !driver.log.is_stalled());
    let mut asked = 0;
    for second in 0..40 {
        for _ in 0..5 {
            driver.append(1, 60_000).unwrap();
            driver.turn();
            let wants_zeros = zeros(&driver).is_some();
            assert!(!wants_zeros || second >= 29, "none for half a minute");
            asked += usize::from(wants_zeros);
            driver.settle();
        }
        driver.now.0 += 1000;
    }
    assert!(asked > 0, "and then again");
    let end = driver.log.log_end_offset();
    assert_eq!(driver.log.flushed_offset(), end);
    assert_eq!(
        driver.read_all(Offset(0), 1 << 20).len(),
        usize::try_from(end.0).unwrap()
    );
}

#[test]
fn a_storage_that_refuses_zeros_is_not_asked_again_and_the_log_goes_on() {
    for error in [ErrorKind::Unsupported, ErrorKind::InvalidInput, ErrorKind::Other] {
        let mut driver = fast(LogConfig::default());
        driver.disk.fail_next(OpKind::Zero, error);
        driver.settle();
        for _ in 0..100 {
            driver.append(1, 100_000).unwrap();
            driver.turn();
            assert!(zeros(&driver).is_none());
            driver.settle();
            driver.now.0 += 1000;
        }
        let end = driver.log.log_end_offset();
        assert_eq!(driver.log.flushed_offset(), end);
        assert_eq!(
            driver.read_all(Offset(0), 1 << 20).len(),
            usize::try_from(end.0).unwrap()
        );
        let (driver, _) = driver.reopen().unwrap();
        assert_eq!(file_len(&driver, FIRST), size(&driver));
    }
}

#[test]
fn a_failed_cut_poisons_the_log_as_a_failed_sync_does() {
    let mut driver = with_zeros(LogConfig::default());
    driver.disk.fail_next(OpKind::SetLen, ErrorKind::StorageFull);
    driver.now = driver.log.next_timeout().unwrap();
    driver.settle();
    assert!(driver.log.poison().is_some());
    assert!(driver.disk.bytes(&LogDriver::path("sync-failed")).is_some());
}

#[test]
fn a_cut_and_a_sync_are_never_under_way_at_once() {
    let mut driver = about_to_roll();
    driver.append(1, 100_000).unwrap();
    driver.turn();
    while let Some(at) = kinds(&driver).len().checked_sub(1) {
        assert!(!(has(&driver, OpKind::Sync) && has(&driver, OpKind::SetLen)));
        driver.complete(at);
        driver.turn();
    }
    assert_eq!(driver.log.flushed_offset(), driver.log.log_end_offset());
}

#[test]
fn a_segment_that_kafka_has_preallocated_opens_and_is_cut() {
    for clean in [true, false] {
        let mut driver = LogDriver::new(LogConfig::default());
        driver.append(2, 1000).unwrap();
        driver.settle();
        driver.log.close(&mut driver.disk).unwrap();
        let data = file_len(&driver, FIRST);
        let mut bytes = driver.disk.bytes(&LogDriver::path(FIRST)).unwrap().to_vec();
        bytes.resize(64 << 20, 0);
        let mut disk: SimDisk = driver.disk;
        disk.plant(&LogDriver::path(FIRST), &bytes);
        disk.put_file(&LogDriver::path("00000000000000000000.index"), &[0; 1 << 16])
            .unwrap();
        let (driver, _) = LogDriver::open(LogConfig::default(), disk, LogDriver::options(2, clean)).unwrap();
        assert_eq!(driver.log.log_end_offset(), Offset(2));
        assert_eq!(file_len(&driver, FIRST), data);
    }
}
