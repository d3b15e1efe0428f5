//! Appends: what they are given, how they reach the disk, and what a failing disk does to them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::io::ErrorKind;

use bytes::{Bytes, BytesMut};
use ringlog_engine::config::{FlushPolicy, LogConfig, TimestampType};
use ringlog_engine::io::IoOp;
use ringlog_engine::log::{AppendError, Log};
use ringlog_engine::record::{BatchHeader, RecordBatch, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, OpKind, batch_of};
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

fn kinds(driver: &LogDriver) -> Vec<OpKind> {
    driver
        .disk
        .outstanding()
        .map(|request| OpKind::of(&request.op))
        .collect()
}

fn complete(driver: &mut LogDriver, kind: OpKind) {
    let at = kinds(driver).iter().position(|&k| k == kind);
    driver.complete(at.expect("such a request is outstanding"));
}

/// The lengths of the buffers of each write outstanding.
fn writes(driver: &LogDriver) -> Vec<Vec<usize>> {
    let writes = driver.disk.outstanding().filter_map(|request| match &request.op {
        IoOp::Write { buffers, .. } => Some(buffers.iter().map(Bytes::len).collect()),
        _ => None,
    });
    writes.collect()
}

fn watermarks(log: &Log) -> (i64, i64, i64) {
    (
        log.flushed_offset().0,
        log.written_offset().0,
        log.log_end_offset().0,
    )
}

/// A log whose epoch file is written, so that it does not disturb.
fn settled(config: LogConfig) -> LogDriver {
    let mut driver = LogDriver::new(config);
    driver.append(1, 10).unwrap();
    driver.settle();
    driver
}

#[test]
fn offsets_are_assigned_at_once_and_written_into_the_batch() {
    let mut driver = LogDriver::new(LogConfig::default());
    driver.epoch = LeaderEpoch(5);
    assert_eq!(driver.append(3, 10).unwrap().base_offset, Offset(0));
    let info = driver.append(2, 10).unwrap();
    assert_eq!((info.base_offset, info.last_offset), (Offset(3), Offset(4)));
    assert_eq!((info.duplicate, info.log_append_time), (false, TimestampMs::NONE));
    assert_eq!(watermarks(&driver.log), (0, 0, 5));
    driver.settle();
    let headers = driver.read_all(Offset(0), 1 << 20);
    let stored: Vec<_> = headers
        .iter()
        .map(|h| (h.base_offset().0, h.partition_leader_epoch().0))
        .collect();
    assert_eq!(stored, [(0, 5), (3, 5)]);
}

#[test]
fn the_bytes_of_a_batch_are_not_copied() {
    let mut driver = settled(LogConfig::default());
    let batch = batch_of(1, 100, driver.now);
    let address = batch.as_ptr();
    driver
        .log
        .append_as_leader(batch, driver.epoch, driver.now)
        .unwrap();
    driver.turn();
    let request = driver.disk.outstanding().next().unwrap();
    let IoOp::Write { buffers, .. } = &request.op else {
        panic!("a write is asked for")
    };
    assert_eq!(buffers[0].as_ptr(), address);
}

#[test]
fn groups_are_bounded_and_written_one_at_a_time() {
    let mut driver = settled(LogConfig {
        zero_window_bytes_max: 0,
        ..LogConfig::default()
    });
    for _ in 0..10 {
        driver.append(1, 100_000).unwrap();
    }
    driver.append(1, 900_000).unwrap();
    driver.turn();
    let mut seen = writes(&driver);
    assert_eq!(seen.len(), 1);
    while driver.log.written_offset() < driver.log.log_end_offset() {
        complete(&mut driver, OpKind::Write);
        driver.turn();
        let now = writes(&driver);
        assert!(now.len() <= 1);
        seen.extend(now.last().cloned());
    }
    assert!(
        seen.iter()
            .all(|group| group.len() == 1 || group.iter().sum::<usize>() <= 256 * 1024)
    );
    assert!(
        seen.iter().any(|group| group.len() == 2),
        "small ones go together"
    );
    assert!(seen.iter().any(|group| group[0] > 900_000), "a large one alone");
}

#[test]
fn a_write_takes_at_most_1024_buffers() {
    let mut driver = settled(LogConfig::default());
    for _ in 0..1500 {
        driver.append(1, 1).unwrap();
    }
    driver.turn();
    assert_eq!(writes(&driver)[0].len(), 1023, "one is left for padding");
    complete(&mut driver, OpKind::Write);
    driver.turn();
    assert_eq!(writes(&driver)[0].len(), 477);
}

#[test]
fn a_sync_covers_only_what_was_written_before_it_was_asked_for() {
    let mut driver = settled(LogConfig::default());
    driver.append(1, 10).unwrap();
    driver.turn();
    complete(&mut driver, OpKind::Write);
    driver.turn();
    driver.append(1, 10).unwrap();
    driver.turn();
    assert_eq!(
        kinds(&driver),
        [OpKind::Sync, OpKind::Write],
        "writes go on meanwhile"
    );
    complete(&mut driver, OpKind::Write);
    driver.turn();
    assert_eq!(kinds(&driver), [OpKind::Sync], "one sync at a time");
    complete(&mut driver, OpKind::Sync);
    assert_eq!(watermarks(&driver.log), (2, 3, 3));
    driver.settle();
    assert_eq!(watermarks(&driver.log), (3, 3, 3));
}

#[test]
fn policy_os_syncs_only_rolled_segments() {
    let flush_policy = FlushPolicy::Os;
    let mut driver = LogDriver::new(LogConfig {
        flush_policy,
        segment_bytes: 1000,
        ..LogConfig::default()
    });
    driver.append(1, 600).unwrap();
    driver.settle();
    assert_eq!(watermarks(&driver.log), (0, 1, 1));
    driver.append(1, 600).unwrap();
    driver.settle();
    assert_eq!(watermarks(&driver.log), (1, 2, 2));
    driver.log.request_flush();
    driver.settle();
    assert_eq!(watermarks(&driver.log), (2, 2, 2));
}

#[test]
fn policy_interval_syncs_when_it_is_time() {
    let flush_policy = FlushPolicy::Interval { flush_ms: 50 };
    let mut driver = LogDriver::new(LogConfig {
        flush_policy,
        ..LogConfig::default()
    });
    for _ in 0..2 {
        let end = driver.append(1, 10).unwrap().last_offset.0 + 1;
        driver.settle();
        assert_eq!(watermarks(&driver.log), (end - 1, end, end));
        let due = driver.log.next_timeout().unwrap();
        assert_eq!(due.0, driver.now.0 + 50);
        driver.now = due;
        driver.settle();
        assert_eq!(watermarks(&driver.log), (end, end, end));
        assert_eq!(driver.log.next_timeout(), None);
    }
}

#[test]
fn a_roll_creates_the_next_file_before_writing_to_it_and_seals_the_old_one() {
    let mut driver = settled(LogConfig {
        segment_bytes: 1000,
        ..LogConfig::default()
    });
    driver.append(1, 600).unwrap();
    driver.append(1, 600).unwrap();
    driver.turn();
    assert_eq!(writes(&driver).len(), 1, "the batch of the new segment waits");
    complete(&mut driver, OpKind::Write);
    driver.turn();
    assert!(writes(&driver).is_empty(), "for the creation");
    complete(&mut driver, OpKind::Create);
    driver.turn();
    complete(&mut driver, OpKind::Write);
    driver.turn();
    assert_eq!(watermarks(&driver.log), (1, 3, 3));
    complete(&mut driver, OpKind::Sync);
    assert_eq!(
        watermarks(&driver.log),
        (2, 3, 3),
        "the new segment needs its own sync"
    );
    driver.settle();
    assert_eq!(watermarks(&driver.log), (3, 3, 3));
    let names: Vec<_> = driver
        .disk
        .paths()
        .map(|p| p.file_name().unwrap().to_str().unwrap())
        .collect();
    let expected = [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "segment-checkpoint",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_segment_rolls_when_its_first_record_is_too_old() {
    let mut driver = LogDriver::new(LogConfig {
        segment_ms: 1000,
        ..LogConfig::default()
    });
    driver.append(1, 10).unwrap();
    driver.now.0 += 1000;
    driver.append(1, 10).unwrap();
    assert_eq!(driver.log.segment_count(), 1);
    driver.now.0 += 1;
    driver.append(1, 10).unwrap();
    assert_eq!(driver.log.segment_count(), 2);
    driver.settle();
    assert_eq!(driver.read_all(Offset(0), 1000).len(), 3);
}

#[test]
fn many_rolls_in_one_turn_reach_the_disk_in_order() {
    let mut driver = LogDriver::new(LogConfig {
        segment_bytes: 200,
        ..LogConfig::default()
    });
    for _ in 0..20 {
        driver.append(1, 100).unwrap();
    }
    driver.settle();
    assert_eq!(watermarks(&driver.log), (20, 20, 20));
    assert_eq!(driver.log.segment_count(), 20);
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 20);
    assert!(driver.log.is_idle());
}

#[test]
fn refused_batches_leave_no_trace() {
    let mut driver = settled(LogConfig {
        max_message_bytes: 2000,
        ..LogConfig::default()
    });
    let mut corrupt = batch_of(1, 10, driver.now);
    corrupt[70] ^= 1;
    let (epoch, now) = (driver.epoch, driver.now);
    let log = &mut driver.log;
    assert!(matches!(
        log.append_as_leader(corrupt, epoch, now),
        Err(AppendError::Batch(_))
    ));
    let large = batch_of(1, 2000, now);
    assert!(matches!(
        log.append_as_leader(large, epoch, now),
        Err(AppendError::Batch(_))
    ));
    assert!(matches!(
        log.append_as_leader(BytesMut::new(), epoch, now),
        Err(AppendError::Batch(_))
    ));
    let future = batch_of(1, 10, TimestampMs(now.0 + 3_600_001));
    assert!(matches!(
        log.append_as_leader(future, epoch, now),
        Err(AppendError::Timestamp { .. })
    ));
    let stale = log.append_as_leader(batch_of(1, 10, now), LeaderEpoch(-1), now);
    assert!(matches!(stale, Err(AppendError::StaleEpoch { .. })));
    assert_eq!(watermarks(log), (1, 1, 1));
    driver.turn();
    assert!(kinds(&driver).is_empty());
}

#[test]
fn log_append_time_replaces_the_producers_timestamps() {
    let timestamp_type = TimestampType::LogAppendTime;
    let mut driver = LogDriver::new(LogConfig {
        timestamp_type,
        ..LogConfig::default()
    });
    let batch = batch_of(2, 10, TimestampMs(5));
    let info = driver
        .log
        .append_as_leader(batch, driver.epoch, driver.now)
        .unwrap();
    assert_eq!(info.log_append_time, driver.now);
    driver.settle();
    let header = driver.read_all(Offset(0), 1000)[0];
    assert_eq!(header.max_timestamp(), driver.now);
    assert_eq!(header.attributes().timestamp_type(), timestamp_type);
}

fn idempotent(sequence: i32, records: usize, now: TimestampMs) -> BytesMut {
    let mut builder = RecordBatchBuilder::new().producer(ProducerId(9), ProducerEpoch(0), Sequence(sequence));
    for _ in 0..records {
        builder.append(now, None, Some(b"v"), &[]).unwrap();
    }
    BytesMut::from(builder.build().unwrap().as_ref())
}

#[test]
fn duplicates_are_acknowledged_with_their_first_offsets_also_after_a_restart() {
    let mut driver = LogDriver::new(LogConfig::default());
    let (epoch, now) = (driver.epoch, driver.now);
    driver
        .log
        .append_as_leader(idempotent(0, 3, now), epoch, now)
        .unwrap();
    driver
        .log
        .append_as_leader(idempotent(3, 2, now), epoch, now)
        .unwrap();
    let again = driver
        .log
        .append_as_leader(idempotent(0, 3, now), epoch, now)
        .unwrap();
    assert!(again.duplicate);
    assert_eq!((again.base_offset, again.last_offset), (Offset(0), Offset(2)));
    let skipping = driver.log.append_as_leader(idempotent(9, 1, now), epoch, now);
    assert!(matches!(skipping, Err(AppendError::Producer(_))));
    assert_eq!(driver.log.log_end_offset(), Offset(5));

    let (mut driver, _) = driver.reopen().unwrap();
    let again = driver
        .log
        .append_as_leader(idempotent(3, 2, now), epoch, now)
        .unwrap();
    assert!(again.duplicate);
    driver.settle();
    driver.disk.crash(|len| len);
    let (mut driver, _) =
        LogDriver::open(LogConfig::default(), driver.disk, LogDriver::options(0, false)).unwrap();
    let again = driver
        .log
        .append_as_leader(idempotent(3, 2, now), epoch, now)
        .unwrap();
    assert_eq!((again.duplicate, again.base_offset), (true, Offset(3)));
    let next = driver
        .log
        .append_as_leader(idempotent(5, 1, now), epoch, now)
        .unwrap();
    assert_eq!((next.duplicate, next.base_offset), (false, Offset(5)));
}

#[test]
fn a_new_leader_epoch_is_put_on_disk() {
    let mut driver = settled(LogConfig::default());
    driver.epoch = LeaderEpoch(3);
    driver.append(1, 10).unwrap();
    driver.settle();
    let file = driver
        .disk
        .bytes(&LogDriver::path("leader-epoch-checkpoint"))
        .unwrap();
    assert_eq!(std::str::from_utf8(file).unwrap(), "0\n2\n0 0\n3 1\n");
    assert_eq!(
        driver.log.end_offset_for_epoch(LeaderEpoch(2)),
        Some((LeaderEpoch(0), Offset(1)))
    );
    assert_eq!(
        driver.log.end_offset_for_epoch(LeaderEpoch(3)),
        Some((LeaderEpoch(3), Offset(2)))
    );
}

#[test]
fn a_leader_begins_its_epoch_without_a_record() {
    let mut driver = settled(LogConfig::default());
    driver.log.begin_leader_epoch(LeaderEpoch(4));
    assert_eq!(
        driver.log.end_offset_for_epoch(LeaderEpoch(0)),
        Some((LeaderEpoch(0), Offset(1)))
    );
    assert_eq!(
        driver.log.end_offset_for_epoch(LeaderEpoch(4)),
        Some((LeaderEpoch(4), Offset(1)))
    );
    assert!(matches!(
        driver.append(1, 10),
        Err(AppendError::StaleEpoch { .. })
    ));
    driver.settle();
    let file = driver
        .disk
        .bytes(&LogDriver::path("leader-epoch-checkpoint"))
        .unwrap();
    assert_eq!(file, b"0\n2\n0 0\n4 1\n");
}

#[test]
fn records_of_a_new_epoch_are_not_flushed_before_the_epoch_is_on_disk() {
    let mut driver = LogDriver::new(LogConfig::default());
    driver.append(1, 10).unwrap();
    driver.turn();
    complete(&mut driver, OpKind::Write);
    driver.turn();
    assert_eq!(kinds(&driver), [OpKind::Put]);
    complete(&mut driver, OpKind::Put);
    driver.turn();
    assert_eq!(kinds(&driver), [OpKind::Sync]);
}

#[test]
fn a_failed_sync_poisons_the_log_for_good() {
    let mut driver = settled(LogConfig::default());
    driver.append(1, 10).unwrap();
    driver.turn();
    complete(&mut driver, OpKind::Write);
    driver.turn();
    driver.disk.fail_next(OpKind::Sync, ErrorKind::StorageFull);
    complete(&mut driver, OpKind::Sync);
    assert!(driver.log.poison().unwrap().error.operation.contains("fdatasync"));
    assert!(matches!(driver.append(1, 10), Err(AppendError::Poisoned(_))));
    driver.turn();
    assert_eq!(kinds(&driver), [OpKind::Put], "the next start is told");
    driver.settle();
    assert!(kinds(&driver).is_empty(), "a sync is never tried again");
    assert_eq!(watermarks(&driver.log), (1, 2, 2));
    assert_eq!(driver.read_all(Offset(0), 1000).len(), 2, "reads go on");
    assert!(driver.log.close(&mut driver.disk).is_err());
}

#[test]
fn a_failed_write_poisons_the_log() {
    let mut driver = settled(LogConfig::default());
    driver.append(1, 200_000).unwrap();
    driver.append(1, 200_000).unwrap();
    driver.turn();
    driver.disk.fail_next(OpKind::Write, ErrorKind::Other);
    driver.complete(0);
    driver.complete(0);
    assert_eq!(
        watermarks(&driver.log),
        (1, 1, 3),
        "what follows a lost write is not written"
    );
    assert!(driver.log.poison().is_some());
    assert_eq!(driver.log.next_timeout(), None);
}

#[test]
fn a_full_disk_stalls_appends_until_a_retry_succeeds() {
    let mut driver = settled(LogConfig::default());
    driver.append(1, 100_000).unwrap();
    driver.append(1, 100_000).unwrap();
    driver.turn();
    driver.disk.set_capacity(Some(1000));
    driver.complete(0);
    assert!(matches!(driver.append(1, 10), Err(AppendError::StorageFull)));
    driver.turn();
    let retry_at = driver.log.next_timeout().unwrap();
    assert_eq!(retry_at.0, driver.now.0 + 100);
    assert!(kinds(&driver).is_empty(), "not before it is time");
    driver.now = retry_at;
    driver.turn();
    driver.complete(0);
    assert!(matches!(driver.append(1, 10), Err(AppendError::StorageFull)));
    assert_eq!(driver.read_all(Offset(0), 1000).len(), 1, "reads go on");
    driver.disk.set_capacity(None);
    driver.turn();
    driver.now.0 += 100;
    driver.settle();
    assert_eq!(watermarks(&driver.log), (3, 3, 3));
    driver.append(1, 10).unwrap();
    driver.settle();
    assert_eq!(driver.read_all(Offset(0), 1 << 20).len(), 4);
}

#[test]
fn a_full_disk_at_a_roll_is_waited_out() {
    let mut driver = LogDriver::new(LogConfig {
        segment_bytes: 1000,
        ..LogConfig::default()
    });
    driver.append(1, 600).unwrap();
    driver.settle();
    driver.append(1, 600).unwrap();
    for kind in [OpKind::Create, OpKind::Put] {
        driver.disk.fail_next(kind, ErrorKind::StorageFull);
    }
    driver.settle();
    assert!(matches!(driver.append(1, 10), Err(AppendError::StorageFull)));
    driver.now = driver.log.next_timeout().unwrap();
    driver.settle();
    assert_eq!(watermarks(&driver.log), (2, 2, 2));
    assert!(
        driver
            .disk
            .bytes(&LogDriver::path("00000000000000000001.snapshot"))
            .is_some()
    );
}

#[test]
fn bytes_waiting_for_the_disk_are_bounded() {
    let mut driver = LogDriver::new(LogConfig::default());
    let refused = (0..100).find_map(|_| driver.append(1, 1_000_000).err());
    assert!(matches!(refused, Some(AppendError::Overloaded { .. })));
    driver.settle();
    driver.append(1, 1_000_000).unwrap();
}

#[test]
fn moving_the_log_start_removes_whole_segments() {
    let mut driver = LogDriver::new(LogConfig {
        segment_bytes: 200,
        ..LogConfig::default()
    });
    for _ in 0..5 {
        driver.append(1, 100).unwrap();
    }
    driver.settle();
    let size = driver.log.size_bytes();
    driver
        .log
        .increment_log_start_offset(Offset(3), &mut driver.queue)
        .unwrap();
    driver.settle();
    assert_eq!(driver.log.log_start_offset(), Offset(3));
    assert_eq!(driver.log.segment_count(), 2);
    assert_eq!(driver.log.size_bytes(), size / 5 * 2);
    assert!(
        driver
            .disk
            .paths()
            .all(|path| !path.to_str().unwrap().contains("000002."))
    );
    assert!(driver.log.read_plan(Offset(2), 1000, Offset(5)).is_err());
    assert_eq!(driver.read_all(Offset(3), 1000).len(), 2);
    assert!(
        driver
            .log
            .increment_log_start_offset(Offset(6), &mut driver.queue)
            .is_err()
    );
    driver
        .log
        .increment_log_start_offset(Offset(5), &mut driver.queue)
        .unwrap();
    driver.settle();
    assert_eq!(
        driver.log.segment_count(),
        1,
        "the last segment keeps the offsets"
    );
}

#[test]
fn what_is_on_disk_is_what_was_appended() {
    let mut driver = LogDriver::new(LogConfig::default());
    driver.append(3, 50).unwrap();
    driver.append(1, 70).unwrap();
    driver.settle();
    let file = driver
        .disk
        .bytes(&LogDriver::path("00000000000000000000.log"))
        .unwrap();
    let first = RecordBatch::parse(file).unwrap();
    first.verify_crc().unwrap();
    let second = BatchHeader::peek(&file[first.bytes().len()..]).unwrap();
    assert_eq!(second.base_offset(), Offset(3));
    assert_eq!(first.bytes().len() + second.len_bytes(), file.len());
}
