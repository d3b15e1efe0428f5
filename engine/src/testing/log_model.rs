//! A log against a model of it: any order of appends, completions, failing storage, truncations, clean
//! restarts, kills and power losses; where asked for, retention, transactions and compaction
//! (`log_model/compacting.rs`).
//!
//! The model is the list of the batches' headers; a counter under their checksums tells them apart. What was
//! flushed is there, in order, once, and no offset is given twice. What happens is chosen by the caller: by
//! a seed in `tests/log_model.rs`, by a fuzzer's bytes in the fuzz target `log_ops`. Panics where the log and
//! the model differ.

mod compacting;
mod restarts;

use std::io::ErrorKind;

use bytes::BytesMut;

use self::compacting::Compacting;
use super::LogDriver;
use crate::config::{FlushPolicy, LogConfig};
use crate::io::sim_disk::{OpKind, Random, SimDisk};
use crate::log::AppendError;
use crate::record::{BatchHeader, RecordBatch, RecordBatchBuilder};
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

const PRODUCER: ProducerId = ProducerId(3);
/// Longer than a log waits between two tries on a full disk.
const PATIENCE_MS: i64 = 1_000;
/// A log is told of a full disk at most so often in a run.
const TRIES_MAX: usize = 1_000;

/// Decides what happens: a number below the bound it is given, which is at least 1.
pub type Choose<'a> = &'a mut dyn FnMut(usize) -> usize;

/// See the module.
#[derive(Debug)]
pub struct LogModel {
    driver: LogDriver,
    batches: Vec<BatchHeader>,
    recovery_point: Offset,
    /// Batches made, refused ones included.
    appended: u64,
    /// With retention: the log start as its owner has recorded it last, which may be behind.
    recorded_start: Option<Offset>,
    /// The highest that the log start has been. A crash may bring back segments below, but not the epochs
    /// that had been forgotten with them.
    start_reached: Offset,
    /// Zeros are kept ahead of the data.
    zeros: bool,
    /// With compaction.
    compacting: Option<Compacting>,
}

impl LogModel {
    /// Runs `steps` steps that follow from `seed`, then stops the log and opens it again.
    pub fn run_seed(seed: u64, steps: usize) {
        Self::run(seed, steps, Self::new);
    }

    /// As [`run_seed`](Self::run_seed), of a log that retention looks at now and then.
    pub fn run_retaining_seed(seed: u64, steps: usize) {
        Self::run(seed, steps, |choose| Self::new(choose).with_retention());
    }

    /// As [`run_seed`](Self::run_seed), for a log that keeps zeros ahead of its data.
    pub fn run_seed_with_zeros(seed: u64, steps: usize) {
        Self::run(seed, steps, |choose| Self::new(choose).with_zeros(choose(4)));
    }

    /// As [`run_seed`](Self::run_seed), of a log with transactions that is compacted; every other one has
    /// retention as well.
    pub fn run_compacting_seed(seed: u64, steps: usize) {
        Self::run(seed, steps, |choose| {
            let model = Self::new(choose).with_compaction(choose);
            if choose(2) == 0 {
                model.with_retention()
            } else {
                model
            }
        });
    }

    fn run(seed: u64, steps: usize, begin: impl FnOnce(Choose<'_>) -> Self) {
        let mut random = Random::new(seed);
        let mut choose = |bound| random.index(bound);
        let mut model = begin(&mut choose);
        for _ in 0..steps {
            model = model.step(&mut choose);
        }
        model.finish();
    }

    /// An empty log of some settings.
    pub fn new(choose: Choose<'_>) -> Self {
        let config = LogConfig {
            flush_policy: match choose(4) {
                0 => FlushPolicy::Os,
                1 => FlushPolicy::Interval { flush_ms: 10 },
                _ => FlushPolicy::Group,
            },
            segment_bytes: 1300 + number::<u32>(choose(256)) * 10,
            segment_ms: if choose(4) == 0 { 300 } else { i64::MAX },
            index_interval_bytes: 1 + number::<u32>(choose(256)) * 2,
            ..LogConfig::default()
        };
        let disk = SimDisk::with_seed(number(choose(256)));
        let opened = LogDriver::open(config, disk, LogDriver::options(0, false));
        Self {
            driver: opened.expect("an empty disk opens").0,
            batches: Vec::new(),
            recovery_point: Offset(0),
            appended: 0,
            recorded_start: None,
            start_reached: Offset(0),
            zeros: false,
            compacting: None,
        }
    }

    /// From now on steps may enforce retention, and the log start is recorded only at checkpoints and
    /// where records were deleted on request.
    #[must_use]
    pub fn with_retention(mut self) -> Self {
        self.recorded_start = Some(self.driver.log.log_start_offset());
        self
    }

    /// Segments of many pages, and windows of a few.
    fn with_zeros(mut self, more_pages: usize) -> Self {
        let mut config = self.driver.log.config().clone();
        config.zero_window_bytes_max = 8192 + 4096 * number::<u32>(more_pages);
        config.segment_bytes *= 16;
        self.driver.log.set_config(config);
        self.zeros = true;
        self
    }

    /// Does one thing.
    #[must_use]
    pub fn step(mut self, choose: Choose<'_>) -> Self {
        if self.recorded_start.is_some() && choose(12) == 0 {
            self.retain(choose);
            return self;
        }
        if self.compacting.is_some() && choose(4) == 0 {
            return self.compacting_step(choose);
        }
        match choose(24) {
            0..=6 => {
                let (records, idempotent) = (1 + number::<i32>(choose(3)), choose(2) == 1);
                let scale = if self.zeros { 12 } else { 1 };
                let producer = idempotent.then_some((PRODUCER, false));
                self.append(records, choose(256) * scale, producer);
            }
            7 => self.resend((PRODUCER, false)),
            8 => self.driver.epoch.0 += 1,
            9 if self.zeros && choose(8) == 0 => self.driver.now.0 += 11_000,
            9 => self.driver.now.0 += number::<i64>(choose(256)) - 50,
            10 | 11 => self.driver.turn(),
            12..=14 => {
                let outstanding = self.driver.disk.outstanding().count();
                if outstanding > 0 {
                    self.driver.complete(choose(outstanding));
                }
            }
            15 => {
                self.settle();
                self.check_unless_poisoned();
            }
            16 => self.checkpoint(),
            17 => {
                let from = self.offset(choose, self.driver.log.log_end_offset());
                self.check_reads(from, number(1 + choose(2_000)));
            }
            18 => {
                let timestamp = TimestampMs(999_000 + number::<i64>(choose(4_000)));
                self.check_find(timestamp);
            }
            19 => {
                let offset = self.offset(choose, self.driver.log.log_end_offset());
                self.truncate(offset);
            }
            20 => {
                let offset = self.offset(choose, self.driver.log.flushed_offset());
                let driver = &mut self.driver;
                let moved = driver.log.increment_log_start_offset(offset, &mut driver.queue);
                assert_eq!(moved, Ok(()));
                self.start_reached = self.start_reached.max(driver.log.log_start_offset());
                self.record_start();
            }
            21 => self.driver.log.request_flush(),
            22 => self = self.restart(choose),
            _ => self.fail_next(choose),
        }
        self
    }

    /// Waits for everything, looks at the whole log, stops it and opens it again.
    pub fn finish(mut self) {
        self.settle();
        if self.driver.log.poison().is_none() {
            self.check_all();
            self.reopen().check_all();
        }
    }

    fn batch(
        &mut self,
        records: i32,
        value_bytes: usize,
        producer: Option<(ProducerId, bool)>,
        sequence: Sequence,
    ) -> BytesMut {
        self.appended += 1;
        let mut builder = RecordBatchBuilder::new();
        if let Some((id, transactional)) = producer {
            builder = builder.producer(id, self.epoch_of(id), sequence);
            builder = if transactional {
                builder.transactional()
            } else {
                builder
            };
        }
        for index in 0..records {
            let (key, value) = if self.compacting.is_some() {
                compacting::record(self.appended, u64::from(index.unsigned_abs()), value_bytes)
            } else {
                (self.appended.to_be_bytes().to_vec(), Some(vec![7; value_bytes]))
            };
            builder
                .append(self.driver.now, Some(&key), value.as_deref(), &[])
                .expect("a few small records fit");
        }
        BytesMut::from(builder.build().expect("a few small records fit").as_ref())
    }

    /// The last batch of a producer.
    fn last_of(&self, producer: ProducerId) -> Option<&BatchHeader> {
        let mut latest_first = self.batches.iter().rev();
        latest_first.find(|header| header.producer_id() == producer && !header.attributes().is_control())
    }

    /// The latest epoch of a producer that the log knows.
    fn epoch_of(&self, producer: ProducerId) -> ProducerEpoch {
        let its_own = self
            .batches
            .iter()
            .filter(|header| header.producer_id() == producer);
        its_own
            .map(BatchHeader::producer_epoch)
            .max()
            .unwrap_or(ProducerEpoch(0))
    }

    /// Appends a batch of a producer, if any, who may be in a transaction.
    fn append(&mut self, records: i32, value_bytes: usize, producer: Option<(ProducerId, bool)>) {
        let last = producer.and_then(|(id, _)| self.last_of(id));
        let last = last.filter(|last| last.producer_epoch() == self.epoch_of(last.producer_id()));
        let next = last.map_or(Sequence(0), |last| last.last_sequence().plus(1));
        let batch = self.batch(records, value_bytes, producer, next);
        let mut stored = batch.clone();
        let driver = &mut self.driver;
        let end = driver.log.log_end_offset();
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
        let header = BatchHeader::peek(&stored).expect("the batch is sound");
        self.batches.push(*header);
        assert_eq!(driver.log.log_end_offset(), info.last_offset.plus(1));
        self.note_batch(info.base_offset);
    }

    /// The producer did not see the answer and sends its last batch again.
    fn resend(&mut self, producer: (ProducerId, bool)) {
        let last = self.last_of(producer.0).copied();
        let last = last.filter(|last| last.producer_epoch() == self.epoch_of(producer.0));
        let Some(last) = last else { return };
        let batch = self.batch(last.records_count(), 1, Some(producer), last.base_sequence());
        let driver = &mut self.driver;
        match driver.log.append_as_leader(batch, driver.epoch, driver.now) {
            Ok(info) => assert_eq!((info.base_offset, info.duplicate), (last.base_offset(), true)),
            Err(AppendError::StorageFull | AppendError::Poisoned(_)) => {}
            Err(error) => panic!("a batch sent again is refused: {error}"),
        }
    }

    fn checkpoint(&mut self) {
        self.recovery_point = self.driver.log.flushed_offset();
        self.record_start();
    }

    fn record_start(&mut self) {
        if let Some(recorded) = &mut self.recorded_start {
            *recorded = self.driver.log.log_start_offset();
        }
    }

    /// Nothing goes that is young enough, unless the limit is left behind it. Now and then the files that go
    /// are refused their new names, some or all.
    fn retain(&mut self, choose: Choose<'_>) {
        let bytes = (choose(2) == 0).then(|| number::<u64>(choose(8_000)));
        let ms = (choose(2) == 0).then(|| number::<i64>(choose(1_000)));
        let driver = &mut self.driver;
        let mut config = driver.log.config().clone();
        (config.retention_bytes, config.retention_ms) = (bytes, ms);
        driver.log.set_config(config);
        if choose(4) == 0 {
            driver.disk.fail_next(OpKind::Rename, ErrorKind::Other);
        }
        let (before, committed) = (driver.log.log_start_offset(), driver.log.flushed_offset());
        let moved = driver
            .log
            .enforce_retention(committed, driver.now, &mut driver.queue);
        let start = driver.log.log_start_offset();
        assert_eq!(moved.unwrap_or(before), start);
        self.start_reached = self.start_reached.max(start);
        assert!(before <= start && start <= committed.max(before));
        if self.compacting.is_some() {
            // Its segments are smaller than what was appended.
            return;
        }
        let oldest = ms.map_or(i64::MIN, |ms| driver.now.0 - ms);
        let is_gone = |b: &BatchHeader| b.last_offset() >= before && b.last_offset() < start;
        let is_young = |b: &BatchHeader| b.max_timestamp().0 >= oldest;
        let last_young = self.batches.iter().rposition(|b| is_gone(b) && is_young(b));
        let behind = last_young.map(|at| self.batches[at + 1..].iter().map(|b| b.len_bytes() as u64).sum());
        assert!(behind.is_none_or(|behind: u64| bytes.is_some_and(|bytes| behind >= bytes)));
    }

    /// Makes a request fail once, for want of room or for good.
    fn fail_next(&mut self, choose: Choose<'_>) {
        let kinds = [
            OpKind::Write,
            OpKind::Sync,
            OpKind::Create,
            OpKind::Put,
            OpKind::Remove,
        ];
        let kind = match choose(kinds.len()) {
            0 if self.zeros => OpKind::Zero,
            4 if self.zeros => OpKind::SetLen,
            kind => kinds[kind],
        };
        // Logs that are read-only have little to show: there are to be few.
        let error = if choose(8) == 0 {
            ErrorKind::Other
        } else {
            ErrorKind::StorageFull
        };
        if error == ErrorKind::Other
            || matches!(kind, OpKind::Write | OpKind::Create | OpKind::Put | OpKind::Zero)
        {
            self.driver.disk.fail_next(kind, error);
        }
    }

    /// Waits for everything, failures included.
    fn settle(&mut self) {
        let log_end = self.driver.log.log_end_offset();
        for _ in 0..TRIES_MAX {
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

    fn offset(&self, choose: Choose<'_>, end: Offset) -> Offset {
        let start = self.driver.log.log_start_offset();
        let places = usize::try_from(end.0 - start.0 + 1).expect("the end is not below the start");
        start.plus(number(choose(places)))
    }

    fn check_reads(&self, from: Offset, max_bytes: u32) {
        if self.compacting.is_some() {
            return self.check_kept(from, max_bytes);
        }
        let written = self.driver.log.written_offset();
        let wanted = |batch: &&BatchHeader| batch.last_offset() >= from && batch.last_offset() < written;
        let wanted: Vec<_> = self.batches.iter().filter(wanted).copied().collect();
        assert_eq!(self.driver.read_all(from, max_bytes), wanted);
    }

    fn check_find(&self, timestamp: TimestampMs) {
        if self.compacting.is_some() {
            return;
        }
        let start = self.driver.log.log_start_offset();
        let late = |b: &&BatchHeader| b.max_timestamp() >= timestamp && b.last_offset() >= start;
        let written = self.driver.log.written_offset();
        let wanted = self.batches.iter().find(late);
        let wanted = wanted.filter(|b| b.last_offset() < written);
        let found = self.driver.find_timestamp(timestamp, Offset(0));
        let wanted = wanted.map(|b| (b.base_offset().max(start), b.max_timestamp()));
        assert_eq!(found, wanted);
    }

    fn check_all(&self) {
        let log = &self.driver.log;
        self.check_reads(log.log_start_offset(), 1 << 20);
        for batch in &self.batches {
            if batch.base_offset() < log.log_start_offset().max(self.start_reached) {
                continue;
            }
            let epoch = batch.partition_leader_epoch();
            let later = self.batches.iter().find(|b| b.partition_leader_epoch() > epoch);
            let end = later.map_or(log.log_end_offset(), BatchHeader::base_offset);
            assert_eq!(log.end_offset_for_epoch(epoch), Some((epoch, end)));
        }
    }

    fn check_unless_poisoned(&self) {
        if self.driver.log.poison().is_none() {
            self.check_all();
        }
    }

    fn truncate(&mut self, offset: Offset) {
        self.settle();
        let offset = offset.max(self.truncation_limit());
        let driver = &mut self.driver;
        let (start, old_end) = (driver.log.log_start_offset(), driver.log.log_end_offset());
        let truncated = driver.log.truncate_to(offset, &mut driver.disk);
        if driver.log.poison().is_some() {
            assert!(truncated.is_err());
            return;
        }
        let end = truncated.expect("a still log is truncated");
        assert!(offset == old_end || driver.log.flushed_offset() == end);
        self.batches.retain(|batch| batch.last_offset() < offset);
        let wanted = self.batches.last().map_or(end, BatchHeader::next_offset);
        assert_eq!(end, wanted.max(start));
        assert!(end <= offset);
        self.recovery_point = self.recovery_point.min(end);
        self.check_all();
    }
}

/// A small number as another type.
fn number<T: TryFrom<usize>>(small: usize) -> T {
    T::try_from(small).ok().expect("the number is small")
}
