//! Operations on a log, decoded from bytes, against a model of it: appends, completions in any order,
//! failing storage, truncations, clean restarts, kills and power losses.
//!
//! The model is the list of the batches' headers; a counter under their checksums tells them apart.
//! What was flushed is there, in order, once, and no offset is given twice.

use std::io::ErrorKind;

use bytes::BytesMut;
use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::io::IoQueue;
use ringlog_engine::log::{AppendError, Log, OpenOptions};
use ringlog_engine::record::{BatchHeader, RecordBatch, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, OpKind};
use ringlog_engine::types::{LogId, Offset, ProducerEpoch, ProducerId, Sequence};

use crate::choices::Choices;

const PRODUCER: ProducerId = ProducerId(3);
/// Longer than a log waits between two tries on a full disk.
const PATIENCE_MS: i64 = 1_000;
/// A run is long enough to roll and restart often, and short enough that a fuzzer makes many.
const OPS_MAX: usize = 300;

/// Runs the operations, then looks at the whole log, stops it and opens it again.
///
/// # Panics
///
/// Where the log and the model differ.
pub fn log_ops(data: &[u8]) {
    let mut choices = Choices::new(data);
    let config = LogConfig {
        flush_policy: match choices.u8() % 4 {
            0 => FlushPolicy::Os,
            1 => FlushPolicy::Interval { flush_ms: 10 },
            _ => FlushPolicy::Group,
        },
        segment_bytes: 1300 + u32::from(choices.u8()) * 10,
        index_interval_bytes: 1 + u32::from(choices.u8()) * 2,
        ..LogConfig::default()
    };
    let mut world = World {
        driver: LogDriver::new(config),
        batches: Vec::new(),
        recovery_point: Offset(0),
        appended: 0,
    };
    for _ in 0..OPS_MAX {
        if choices.is_empty() {
            break;
        }
        world = world.step(&mut choices);
    }
    world.settle();
    if world.driver.log.poison().is_none() {
        world.check_all();
        world.reopen().check_all();
    }
}

struct World {
    driver: LogDriver,
    batches: Vec<BatchHeader>,
    recovery_point: Offset,
    /// Batches made, refused ones included.
    appended: u64,
}

impl World {
    fn step(mut self, choices: &mut Choices<'_>) -> Self {
        match choices.below(20) {
            0..=5 => {
                let shape = choices.u8();
                self.append(
                    1 + i32::from(shape % 3),
                    usize::from(choices.u8()),
                    shape & 0x80 != 0,
                );
            }
            6 => self.resend(),
            7 => self.driver.epoch.0 += 1,
            8 => self.driver.now.0 += i64::from(choices.u8()),
            9 => self.driver.turn(),
            10..=12 => {
                let outstanding = self.driver.disk.outstanding().count();
                if outstanding > 0 {
                    let at = choices.below(outstanding);
                    self.driver.complete(at);
                }
            }
            13 => {
                self.settle();
                if self.driver.log.poison().is_none() {
                    self.check_all();
                }
            }
            14 => self.recovery_point = self.driver.log.flushed_offset(),
            15 => {
                let from = self.offset(choices, self.driver.log.log_end_offset());
                self.check_reads(from, u32::from(choices.u16()));
            }
            16 => {
                let offset = self.offset(choices, self.driver.log.log_end_offset());
                self.truncate(offset);
            }
            17 => {
                let offset = self.offset(choices, self.driver.log.flushed_offset());
                let moved = self
                    .driver
                    .log
                    .increment_log_start_offset(offset, &mut self.driver.queue);
                assert_eq!(moved, Ok(()));
            }
            18 => self = self.restart(choices),
            _ => self.fail_next(choices.u8()),
        }
        self
    }

    fn batch(&mut self, records: i32, value_bytes: usize, sequence: Option<Sequence>) -> BytesMut {
        self.appended += 1;
        let mut builder = RecordBatchBuilder::new();
        if let Some(sequence) = sequence {
            builder = builder.producer(PRODUCER, ProducerEpoch(0), sequence);
        }
        let (key, value) = (self.appended.to_be_bytes(), vec![7; value_bytes]);
        for _ in 0..records {
            builder
                .append(self.driver.now, Some(&key), Some(&value), &[])
                .expect("a few small records fit");
        }
        BytesMut::from(builder.build().expect("a few small records fit").as_ref())
    }

    fn last_idempotent(&self) -> Option<&BatchHeader> {
        self.batches
            .iter()
            .rev()
            .find(|header| header.producer_id() == PRODUCER)
    }

    fn append(&mut self, records: i32, value_bytes: usize, idempotent: bool) {
        let next = self
            .last_idempotent()
            .map_or(Sequence(0), |last| last.last_sequence().plus(1));
        let batch = self.batch(records, value_bytes, idempotent.then_some(next));
        let mut stored = batch.clone();
        let end = self.driver.log.log_end_offset();
        let driver = &mut self.driver;
        let info = match driver.log.append_as_leader(batch, driver.epoch, driver.now) {
            Ok(info) => info,
            Err(AppendError::StorageFull | AppendError::Poisoned(_)) => {
                assert_eq!(driver.log.log_end_offset(), end);
                return;
            }
            Err(error) => panic!("a sound batch is refused: {error}"),
        };
        assert_eq!((info.base_offset, info.duplicate), (end, false));
        RecordBatch::assign(&mut stored, info.base_offset, driver.epoch).expect("the batch is sound");
        self.batches
            .push(*BatchHeader::peek(&stored).expect("the batch is sound"));
        assert_eq!(driver.log.log_end_offset(), info.last_offset.plus(1));
    }

    /// The producer did not see the answer and sends its last batch again.
    fn resend(&mut self) {
        let Some(last) = self.last_idempotent().copied() else {
            return;
        };
        if last.base_offset() < self.driver.log.log_start_offset() {
            return;
        }
        let batch = self.batch(last.records_count(), 1, Some(last.base_sequence()));
        let driver = &mut self.driver;
        match driver.log.append_as_leader(batch, driver.epoch, driver.now) {
            Ok(info) => assert_eq!((info.base_offset, info.duplicate), (last.base_offset(), true)),
            Err(AppendError::StorageFull | AppendError::Poisoned(_)) => {}
            Err(error) => panic!("a batch sent again is refused: {error}"),
        }
    }

    /// Makes a request fail once, for want of room or for good.
    fn fail_next(&mut self, choice: u8) {
        let kind = match choice % 4 {
            0 => OpKind::Write,
            1 => OpKind::Sync,
            2 => OpKind::Create,
            _ => OpKind::Put,
        };
        let error = if choice & 0x80 == 0 && kind != OpKind::Sync {
            ErrorKind::StorageFull
        } else {
            ErrorKind::Other
        };
        self.driver.disk.fail_next(kind, error);
    }

    /// Waits for everything, failures included.
    fn settle(&mut self) {
        let log_end = self.driver.log.log_end_offset();
        // Each try meets at least one of the failures that were planned, at most one an operation.
        for _ in 0..=OPS_MAX {
            self.driver.settle();
            if self.driver.log.is_idle() {
                let log = &self.driver.log;
                assert!(log.poison().is_some() || log.written_offset() == log_end);
                return;
            }
            self.driver.now.0 += PATIENCE_MS;
        }
        panic!("the log goes on once there is room");
    }

    fn offset(&self, choices: &mut Choices<'_>, end: Offset) -> Offset {
        let start = self.driver.log.log_start_offset().0;
        let places = usize::try_from(end.0 - start + 1).expect("the end is not below the start");
        Offset(start + i64::try_from(choices.below(places)).expect("below 65,536"))
    }

    fn check_reads(&self, from: Offset, max_bytes: u32) {
        let written = self.driver.log.written_offset();
        let wanted: Vec<_> = self
            .batches
            .iter()
            .filter(|batch| batch.last_offset() >= from && batch.last_offset() < written)
            .copied()
            .collect();
        assert_eq!(self.driver.read_all(from, max_bytes), wanted);
    }

    fn check_all(&self) {
        let log = &self.driver.log;
        self.check_reads(log.log_start_offset(), 1 << 20);
        for batch in &self.batches {
            if batch.base_offset() < log.log_start_offset() {
                continue;
            }
            let epoch = batch.partition_leader_epoch();
            let later = self.batches.iter().find(|b| b.partition_leader_epoch() > epoch);
            let end = later.map_or(log.log_end_offset(), BatchHeader::base_offset);
            assert_eq!(log.end_offset_for_epoch(epoch), Some((epoch, end)));
        }
    }

    fn truncate(&mut self, offset: Offset) {
        self.settle();
        let driver = &mut self.driver;
        let start = driver.log.log_start_offset();
        if driver.log.poison().is_some() {
            assert!(driver.log.truncate_to(offset, &mut driver.disk).is_err());
            return;
        }
        let end = driver
            .log
            .truncate_to(offset, &mut driver.disk)
            .expect("a still log is truncated");
        self.batches.retain(|batch| batch.last_offset() < offset);
        let wanted = self.batches.last().map_or(end, BatchHeader::next_offset);
        assert_eq!(end, wanted.max(start));
        assert!(end <= offset);
        self.recovery_point = self.recovery_point.min(end);
        self.check_all();
    }

    fn restart(mut self, choices: &mut Choices<'_>) -> Self {
        match choices.u8() % 3 {
            0 => {
                self.settle();
                if self.driver.log.poison().is_some() {
                    return self;
                }
                self = self.reopen();
                self.check_all();
                self
            }
            // After a failed sync the page cache may show what the disk does not hold, and go on doing so.
            1 if self.driver.log.poison().is_none() => {
                self.driver.disk.kill();
                let kept = self.driver.log.written_offset();
                self.recover(kept)
            }
            _ => {
                self.driver.disk.crash(|len| match choices.u8() {
                    0 => 0,
                    part @ 1..64 => usize::from(part) * (len + 1) / 64,
                    _ => len,
                });
                let kept = self.driver.log.flushed_offset();
                self.recover(kept)
            }
        }
    }

    /// A clean stop and start.
    fn reopen(mut self) -> Self {
        let log = &mut self.driver.log;
        log.close(&mut self.driver.disk).expect("a still log closes");
        self.recovery_point = log.flushed_offset();
        let end = log.log_end_offset();
        let reopened = self.open(true);
        assert_eq!(reopened.driver.log.log_end_offset(), end);
        reopened
    }

    /// Opens after the disk has lost what it may lose: everything below `kept` is there.
    fn recover(self, kept: Offset) -> Self {
        let old_end = self.driver.log.log_end_offset();
        let mut recovered = self.open(false);
        let log = &recovered.driver.log;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        assert!(kept <= end && end <= old_end, "{kept} <= {end} <= {old_end}");
        assert_eq!(log.flushed_offset(), end);
        recovered.batches.retain(|batch| batch.last_offset() < end);
        let last = recovered.batches.last();
        assert!(last.is_none_or(|last| last.next_offset().max(start) == end));
        recovered.check_all();
        recovered
    }

    fn open(self, clean_shutdown: bool) -> Self {
        let LogDriver {
            log,
            mut disk,
            now,
            epoch,
            ..
        } = self.driver;
        let options = OpenOptions {
            recovery_point: self.recovery_point,
            log_start_offset: log.log_start_offset(),
            clean_shutdown,
            now,
        };
        let (id, config) = (LogId(7), log.config().clone());
        let (log, report) =
            Log::open(LogDriver::dir(), id, config, options, &mut disk).expect("what is flushed is sound");
        assert!(!clean_shutdown || (report.scanned_segments, &report.cut) == (0, &None));
        Self {
            driver: LogDriver {
                log,
                disk,
                queue: IoQueue::new(),
                now,
                epoch,
            },
            ..self
        }
    }
}
