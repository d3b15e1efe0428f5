//! A log against a model of it: any order of appends, completions, truncations, clean restarts,
//! kills and power losses. What was flushed is there, in order, once; no offset is given twice.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use bytes::BytesMut;
use proptest::prelude::*;
use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::log::OpenOptions;
use ringlog_engine::record::{BatchHeader, RecordBatchBuilder};
use ringlog_engine::testing::LogDriver;
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

const PRODUCER: ProducerId = ProducerId(3);

#[derive(Clone, Debug)]
enum Op {
    Append {
        records: i32,
        value_bytes: usize,
        idempotent: bool,
    },
    Resend,
    NewEpoch,
    Time(i64),
    Turn,
    Complete(prop::sample::Index),
    Settle,
    Checkpoint,
    Read {
        from: prop::sample::Index,
        max_bytes: u32,
    },
    Find {
        timestamp: i64,
    },
    Truncate(prop::sample::Index),
    DeleteRecords(prop::sample::Index),
    Reopen,
    Kill,
    Crash(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let append = (1..4_i32, 1..300_usize, any::<bool>());
    let append = append.prop_map(|(records, value_bytes, idempotent)| Op::Append {
        records,
        value_bytes,
        idempotent,
    });
    prop_oneof![
        20 => append,
        3 => Just(Op::Resend),
        1 => Just(Op::NewEpoch),
        3 => (-50..200_i64).prop_map(Op::Time),
        10 => Just(Op::Turn),
        15 => any::<prop::sample::Index>().prop_map(Op::Complete),
        3 => Just(Op::Settle),
        2 => Just(Op::Checkpoint),
        4 => (any::<prop::sample::Index>(), 1..2000_u32).prop_map(|(from, max_bytes)| Op::Read { from, max_bytes }),
        3 => (999_000..1_003_000_i64).prop_map(|timestamp| Op::Find { timestamp }),
        2 => any::<prop::sample::Index>().prop_map(Op::Truncate),
        1 => any::<prop::sample::Index>().prop_map(Op::DeleteRecords),
        1 => Just(Op::Reopen),
        1 => Just(Op::Kill),
        2 => any::<u64>().prop_map(Op::Crash),
    ]
}

fn config() -> impl Strategy<Value = LogConfig> {
    let policy = prop_oneof![
        3 => Just(FlushPolicy::Group),
        1 => Just(FlushPolicy::Os),
        1 => Just(FlushPolicy::Interval { flush_ms: 10 }),
    ];
    (policy, 1300..4000_u32, 1..600_u32).prop_map(|(flush_policy, segment_bytes, index_interval_bytes)| {
        LogConfig {
            flush_policy,
            segment_bytes,
            index_interval_bytes,
            ..LogConfig::default()
        }
    })
}

/// The header of an appended batch tells it from all others: its CRC covers a counter.
struct World {
    driver: LogDriver,
    batches: Vec<BatchHeader>,
    recovery_point: Offset,
    appended: u64,
}

impl World {
    fn new(config: LogConfig) -> Self {
        Self {
            driver: LogDriver::new(config),
            batches: Vec::new(),
            recovery_point: Offset(0),
            appended: 0,
        }
    }

    fn batch(&mut self, records: i32, value_bytes: usize, sequence: Option<Sequence>) -> BytesMut {
        self.appended += 1;
        let mut builder = RecordBatchBuilder::new();
        if let Some(sequence) = sequence {
            builder = builder.producer(PRODUCER, ProducerEpoch(0), sequence);
        }
        for _ in 0..records {
            let key = self.appended.to_be_bytes();
            builder
                .append(self.driver.now, Some(&key), Some(&vec![7; value_bytes]), &[])
                .unwrap();
        }
        BytesMut::from(builder.build().unwrap().as_ref())
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
        let driver = &mut self.driver;
        let info = driver
            .log
            .append_as_leader(batch, driver.epoch, driver.now)
            .unwrap();
        let end = self
            .batches
            .last()
            .map_or(info.base_offset, BatchHeader::next_offset);
        let end = end.max(driver.log.log_start_offset());
        assert_eq!((info.base_offset, info.duplicate), (end, false));
        ringlog_engine::record::RecordBatch::assign(&mut stored, info.base_offset, driver.epoch).unwrap();
        self.batches.push(*BatchHeader::peek(&stored).unwrap());
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
        let info = driver
            .log
            .append_as_leader(batch, driver.epoch, driver.now)
            .unwrap();
        assert_eq!((info.base_offset, info.duplicate), (last.base_offset(), true));
    }

    fn offset(&self, at: prop::sample::Index, end: Offset) -> Offset {
        let start = self.driver.log.log_start_offset().0;
        let choices = usize::try_from(end.0 - start + 1).unwrap();
        Offset(start + i64::try_from(at.index(choices)).unwrap())
    }

    fn check_reads(&self, from: Offset, max_bytes: u32) {
        let written = self.driver.log.written_offset();
        let wanted: Vec<_> = self
            .batches
            .iter()
            .filter(|b| b.last_offset() >= from && b.last_offset() < written)
            .copied()
            .collect();
        assert_eq!(self.driver.read_all(from, max_bytes), wanted);
    }

    fn check_find(&self, timestamp: TimestampMs) {
        let start = self.driver.log.log_start_offset();
        let late = |b: &&BatchHeader| b.max_timestamp() >= timestamp && b.last_offset() >= start;
        let written = self.driver.log.written_offset();
        let wanted = self
            .batches
            .iter()
            .find(late)
            .filter(|b| b.last_offset() < written);
        let found = self.driver.find_timestamp(timestamp, Offset(0));
        assert_eq!(
            found,
            wanted.map(|b| (b.base_offset().max(start), b.max_timestamp()))
        );
    }

    fn check_epochs(&self) {
        let log = &self.driver.log;
        for batch in self
            .batches
            .iter()
            .filter(|b| b.base_offset() >= log.log_start_offset())
        {
            let epoch = batch.partition_leader_epoch();
            let later = self.batches.iter().find(|b| b.partition_leader_epoch() > epoch);
            let end = later.map_or(log.log_end_offset(), BatchHeader::base_offset);
            assert_eq!(log.end_offset_for_epoch(epoch), Some((epoch, end)));
        }
    }

    fn check_all(&self) {
        self.check_reads(self.driver.log.log_start_offset(), 1 << 20);
        self.check_epochs();
    }

    fn truncate(&mut self, offset: Offset) {
        self.driver.settle();
        let old_end = self.driver.log.log_end_offset();
        let end = self
            .driver
            .log
            .truncate_to(offset, &mut self.driver.disk)
            .unwrap();
        self.batches.retain(|batch| batch.last_offset() < offset);
        let wanted = self.batches.last().map_or(end, BatchHeader::next_offset);
        assert_eq!(end, wanted.max(self.driver.log.log_start_offset()));
        assert!(end <= offset);
        self.recovery_point = self.recovery_point.min(end);
        let nothing_to_do = offset == old_end;
        assert!(nothing_to_do || self.driver.log.flushed_offset() == end);
    }

    /// Opens after the disk has lost what it may lose: everything below `kept` is there.
    fn recover(self, kept: Offset) -> Self {
        let Self {
            driver,
            mut batches,
            recovery_point,
            appended,
        } = self;
        let old = driver.log;
        let options = OpenOptions {
            recovery_point,
            log_start_offset: old.log_start_offset(),
            clean_shutdown: false,
            now: driver.now,
        };
        let (mut opened, report) = LogDriver::open(old.config().clone(), driver.disk, options).unwrap();
        opened.epoch = driver.epoch;
        let end = opened.log.log_end_offset();
        assert!(
            end >= kept && end <= old.log_end_offset(),
            "{kept} <= {end}: {report:?}"
        );
        assert_eq!(opened.log.flushed_offset(), end);
        batches.retain(|batch| batch.last_offset() < end);
        let start = opened.log.log_start_offset();
        assert!(
            batches
                .last()
                .is_none_or(|last| last.next_offset().max(start) == end)
        );
        let recovered = Self {
            driver: opened,
            batches,
            recovery_point,
            appended,
        };
        recovered.check_all();
        recovered
    }

    fn apply(mut self, op: Op) -> Self {
        match op {
            Op::Append {
                records,
                value_bytes,
                idempotent,
            } => self.append(records, value_bytes, idempotent),
            Op::Resend => self.resend(),
            Op::NewEpoch => self.driver.epoch = LeaderEpoch(self.driver.epoch.0 + 1),
            Op::Time(ms) => self.driver.now.0 += ms,
            Op::Turn => self.driver.turn(),
            Op::Complete(at) => {
                let outstanding = self.driver.disk.outstanding().count();
                if outstanding > 0 {
                    self.driver.complete(at.index(outstanding));
                }
            }
            Op::Settle => {
                self.driver.settle();
                assert_eq!(self.driver.log.written_offset(), self.driver.log.log_end_offset());
                self.check_all();
            }
            Op::Checkpoint => self.recovery_point = self.driver.log.flushed_offset(),
            Op::Read { from, max_bytes } => {
                let from = self.offset(from, self.driver.log.log_end_offset());
                self.check_reads(from, max_bytes);
            }
            Op::Find { timestamp } => self.check_find(TimestampMs(timestamp)),
            Op::Truncate(at) => {
                let offset = self.offset(at, self.driver.log.log_end_offset());
                self.truncate(offset);
                self.check_all();
            }
            Op::DeleteRecords(at) => {
                let offset = self.offset(at, self.driver.log.flushed_offset());
                self.driver
                    .log
                    .increment_log_start_offset(offset, &mut self.driver.queue)
                    .unwrap();
            }
            Op::Reopen => {
                let epoch = self.driver.epoch;
                let (driver, report) = self.driver.reopen().unwrap();
                assert_eq!((report.scanned_segments, report.cut), (0, None));
                self = Self { driver, ..self };
                self.driver.epoch = epoch;
                self.recovery_point = self.driver.log.flushed_offset();
                self.check_all();
            }
            Op::Kill => {
                self.driver.disk.kill();
                let written = self.driver.log.written_offset();
                self = self.recover(written);
            }
            Op::Crash(seed) => {
                let mut random = seed | 1;
                self.driver.disk.crash(|len| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    match random % 4 {
                        0 => 0,
                        1 => usize::try_from(random >> 8).unwrap() % (len + 1),
                        _ => len,
                    }
                });
                let flushed = self.driver.log.flushed_offset();
                self = self.recover(flushed);
            }
        }
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_log_agrees_with_its_model(config in config(), ops in prop::collection::vec(op(), 1..150)) {
        let world = ops.into_iter().fold(World::new(config), World::apply);
        world.apply(Op::Settle).apply(Op::Reopen);
    }
}
