//! Transactions in one log: markers, the last stable offset, and which aborted transactions a reader
//! of committed records is told of, whatever has become of the files in between.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::collections::BTreeMap;

use bytes::BytesMut;
use proptest::prelude::*;
use ringlog_engine::config::LogConfig;
use ringlog_engine::log::producer_state::ProducerError;
use ringlog_engine::log::{AbortedTxn, AppendError, OpenOptions};
use ringlog_engine::record::{BatchHeader, EndTxnMarker, RecordBatchBuilder};
use ringlog_engine::testing::LogDriver;
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// A log with the producers' next sequences.
struct World {
    driver: LogDriver,
    sequences: BTreeMap<i64, i32>,
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

impl World {
    fn new() -> Self {
        Self {
            driver: LogDriver::new(config()),
            sequences: BTreeMap::new(),
        }
    }

    /// Appends two records, in the producer's transaction if it has an id.
    fn append(&mut self, producer: Option<i64>) -> i64 {
        let mut builder = RecordBatchBuilder::new();
        if let Some(id) = producer {
            let sequence = self.sequences.entry(id).or_default();
            builder = builder
                .producer(ProducerId(id), ProducerEpoch(0), Sequence(*sequence))
                .transactional();
            *sequence += 2;
        }
        for _ in 0..2 {
            builder
                .append(self.driver.now, None, Some(&[7; 40]), &[])
                .unwrap();
        }
        let batch = BytesMut::from(builder.build().unwrap().as_ref());
        let driver = &mut self.driver;
        let appended = driver.log.append_as_leader(batch, driver.epoch, driver.now);
        appended.unwrap().base_offset.0
    }

    fn end(&mut self, producer: i64, committed: bool) -> i64 {
        self.try_end(producer, 0, 0, committed).unwrap()
    }

    fn try_end(
        &mut self,
        producer: i64,
        epoch: i16,
        coordinator_epoch: i32,
        committed: bool,
    ) -> Result<i64, AppendError> {
        let marker = EndTxnMarker {
            committed,
            coordinator_epoch,
        };
        let driver = &mut self.driver;
        let (id, epoch) = (ProducerId(producer), ProducerEpoch(epoch));
        let appended = driver
            .log
            .append_end_txn_marker(id, epoch, marker, driver.epoch, driver.now);
        appended.map(|info| info.base_offset.0)
    }

    fn aborted(&self, from: i64, to: i64) -> Vec<(i64, i64, i64)> {
        let found = self.driver.log.aborted_transactions(Offset(from), Offset(to));
        found.iter().map(txn).collect()
    }

    fn all_aborted(&self) -> Vec<(i64, i64, i64)> {
        self.aborted(0, self.driver.log.log_end_offset().0)
    }

    /// Stops in one way or another, damages files, and opens again.
    fn reopen(self, clean: bool, recovery_point: i64, damage: impl Fn(&str, &[u8]) -> Damage) -> Self {
        let mut driver = self.driver;
        driver.settle();
        if clean {
            driver.log.close(&mut driver.disk).unwrap();
        } else {
            driver.disk.kill();
        }
        let files: Vec<_> = driver.disk.paths().map(ToOwned::to_owned).collect();
        for path in files {
            let name = path.file_name().unwrap().to_str().unwrap();
            match damage(name, driver.disk.bytes(&path).unwrap()) {
                Damage::None => {}
                Damage::Remove => {
                    ringlog_engine::io::Storage::remove_file(&mut driver.disk, &path).unwrap();
                }
                Damage::Replace(bytes) => driver.disk.plant(&path, &bytes),
            }
        }
        let options = OpenOptions {
            log_start_offset: driver.log.log_start_offset(),
            ..LogDriver::options(recovery_point, clean)
        };
        let (driver, _) = LogDriver::open(config(), driver.disk, options).unwrap();
        Self {
            driver,
            sequences: self.sequences,
        }
    }
}

enum Damage {
    None,
    Remove,
    Replace(Vec<u8>),
}

fn untouched(_: &str, _: &[u8]) -> Damage {
    Damage::None
}

fn txn(txn: &AbortedTxn) -> (i64, i64, i64) {
    (txn.producer_id.0, txn.first_offset.0, txn.last_offset.0)
}

#[test]
fn the_last_stable_offset_waits_for_the_oldest_transaction_and_for_its_marker_to_be_committed() {
    let mut world = World::new();
    let unstable = |world: &World| world.driver.log.first_unstable_offset().map(|offset| offset.0);
    world.append(None);
    assert_eq!(unstable(&world), None);
    let first = world.append(Some(1));
    let second = world.append(Some(2));
    assert_eq!(unstable(&world), Some(first));
    let marker = world.end(1, true);
    assert_eq!(unstable(&world), Some(first), "the marker is not committed yet");
    world.driver.log.handle_high_watermark(Offset(marker));
    assert_eq!(unstable(&world), Some(first));
    world.driver.log.handle_high_watermark(Offset(marker + 1));
    assert_eq!(unstable(&world), Some(second));
    let marker = world.end(2, false);
    world.driver.log.handle_high_watermark(Offset(marker + 1));
    assert_eq!(unstable(&world), None);
}

#[test]
fn records_deleted_within_an_open_transaction_do_not_take_the_last_stable_offset_below_the_log_start() {
    let mut world = World::new();
    world.append(Some(1));
    world.append(Some(1));
    world.driver.settle();
    let driver = &mut world.driver;
    driver
        .log
        .increment_log_start_offset(Offset(2), &mut driver.queue)
        .unwrap();
    assert_eq!(driver.log.first_unstable_offset(), Some(Offset(2)));
}

#[test]
fn a_marker_is_refused_from_an_older_producer_or_coordinator_and_changes_nothing() {
    let mut world = World::new();
    world.append(Some(1));
    world.try_end(1, 3, 7, true).unwrap();
    let end = world.driver.log.log_end_offset();
    assert!(matches!(
        world.try_end(1, 2, 7, true),
        Err(AppendError::Producer(ProducerError::InvalidProducerEpoch { .. }))
    ));
    assert!(matches!(
        world.try_end(1, 3, 6, true),
        Err(AppendError::Producer(ProducerError::CoordinatorFenced { .. }))
    ));
    world.driver.log.begin_leader_epoch(LeaderEpoch(9));
    assert!(matches!(
        world.try_end(1, 3, 7, true),
        Err(AppendError::StaleEpoch { .. })
    ));
    assert_eq!(world.driver.log.log_end_offset(), end);
}

#[test]
fn a_marker_without_a_transaction_is_appended_and_is_no_abort() {
    let mut world = World::new();
    world.end(5, false);
    world.append(Some(1));
    world.end(1, true);
    world.end(1, false);
    assert_eq!(world.all_aborted(), []);
    assert_eq!(world.driver.log.log_end_offset(), Offset(5));
}

#[test]
fn a_stored_marker_is_a_control_batch_of_its_producer() {
    let mut world = World::new();
    world.append(Some(4));
    world.driver.now = TimestampMs(5_000);
    let offset = world.end(4, false);
    world.driver.settle();
    let headers = world.driver.read_all(Offset(offset), 1000);
    let [marker] = headers.as_slice() else {
        panic!("one batch")
    };
    assert!(marker.attributes().is_control() && marker.attributes().is_transactional());
    assert_eq!(marker.producer_id(), ProducerId(4));
    assert_eq!(marker.base_sequence(), Sequence(-1));
    assert_eq!(marker.max_timestamp(), TimestampMs(5_000));
    assert_eq!(marker.partition_leader_epoch(), world.driver.epoch);
}

/// Interleaved transactions over several segments: of every three, one is committed.
fn interleaved() -> World {
    let mut world = World::new();
    for round in 0..12 {
        let producer = round % 3;
        world.append(Some(producer));
        world.append(None);
        world.append(Some((producer + 1) % 3));
        world.end(producer, producer == 2);
    }
    world.driver.settle();
    assert!(world.driver.log.segment_count() > 4);
    world
}

#[test]
fn a_reader_is_told_of_every_aborted_transaction_in_its_range_and_of_no_other() {
    let world = interleaved();
    let all = world.all_aborted();
    assert_eq!(all.len(), 8);
    let end = world.driver.log.log_end_offset().0;
    for from in 0..end {
        for to in from + 1..=end {
            let expected: Vec<_> = all
                .iter()
                .filter(|(_, first, last)| *last >= from && *first < to)
                .copied()
                .collect();
            assert_eq!(world.aborted(from, to), expected, "{from}..{to}");
        }
    }
}

#[test]
fn the_bound_of_a_read_lies_beyond_it_and_not_far() {
    let world = interleaved();
    let log = &world.driver.log;
    let end = log.log_end_offset();
    for offset in 0..end.0 {
        for max_bytes in [1, 200, 500, 1 << 20] {
            let bound = log.read_upper_bound(Offset(offset), max_bytes);
            let bytes = world.driver.read(Offset(offset), max_bytes, end).unwrap();
            let mut rest = bytes.as_slice();
            while let Ok(header) = BatchHeader::peek(rest)
                && rest.len() >= header.len_bytes()
            {
                assert!(header.last_offset() < bound, "{offset} {max_bytes}");
                rest = &rest[header.len_bytes()..];
            }
            assert!(bound <= end);
        }
    }
    assert!(log.read_upper_bound(Offset(0), 1) < log.read_upper_bound(Offset(0), 1 << 20));
}

#[test]
fn aborted_transactions_survive_every_stop_and_the_loss_of_their_index() {
    let remove = |name: &str, _: &[u8]| match name.rsplit_once('.') {
        Some((_, "txnindex" | "index")) => Damage::Remove,
        _ => Damage::None,
    };
    let garble = |name: &str, bytes: &[u8]| match name.rsplit_once('.') {
        Some((_, "txnindex")) => Damage::Replace(bytes[..bytes.len() - 1].to_vec()),
        _ => Damage::None,
    };
    let forget_snapshots = |name: &str, bytes: &[u8]| match name.rsplit_once('.') {
        Some((_, "txnindex")) => Damage::Replace(vec![0xff; bytes.len()]),
        Some((_, "snapshot")) => Damage::Replace(vec![1]),
        _ => Damage::None,
    };
    let expected = interleaved().all_aborted();
    for clean in [true, false] {
        for recovery_point in [0, 30, interleaved().driver.log.log_end_offset().0] {
            for damage in [untouched, remove, garble, forget_snapshots] {
                let world = interleaved().reopen(clean, recovery_point, damage);
                assert_eq!(world.all_aborted(), expected, "{clean} {recovery_point}");
                let world = world.reopen(true, recovery_point, untouched);
                assert_eq!(world.all_aborted(), expected, "{clean} {recovery_point}");
            }
        }
    }
}

#[test]
fn aborted_transactions_are_known_whatever_a_crash_leaves_of_the_first_index_files() {
    for completions in 0.. {
        let mut world = World::new();
        world.append(Some(1));
        world.end(1, false);
        while world.driver.log.segment_count() == 1 {
            world.append(None);
        }
        let World {
            mut driver,
            sequences,
        } = world;
        driver.turn();
        for _ in 0..completions {
            if driver.disk.outstanding().next().is_some() {
                driver.complete(0);
                driver.turn();
            }
        }
        let is_done = driver.disk.outstanding().next().is_none();
        let recovery_point = driver.log.flushed_offset().0;
        driver.disk.crash(|_| 0);
        let options = LogDriver::options(recovery_point, false);
        let (driver, _) = LogDriver::open(config(), driver.disk, options).unwrap();
        let world = World { driver, sequences };
        if recovery_point > 2 {
            assert_eq!(
                world.all_aborted(),
                [(1, 0, 2)],
                "after {completions} completions"
            );
        }
        if is_done {
            assert!(recovery_point > 2);
            return;
        }
    }
}

#[test]
fn an_index_of_another_broker_with_markers_beyond_its_segment_is_made_anew() {
    // Producer 5, from 0 to far beyond the end; sane but for that.
    let far = 1_i64 << 40;
    let entry = [5, 0, far, 0].map(i64::to_be_bytes).concat();
    let entry = [vec![0, 0], entry].concat();
    let beyond = |name: &str, bytes: &[u8]| match name.rsplit_once('.') {
        Some((_, "txnindex")) => Damage::Replace([bytes, &entry].concat()),
        None if name == "segment-checkpoint" => Damage::Remove,
        _ => Damage::None,
    };
    let expected = interleaved().all_aborted();
    let end = interleaved().driver.log.log_end_offset().0;
    let mut world = interleaved().reopen(true, end, beyond);
    assert_eq!(world.all_aborted(), expected);
    world.append(Some(7));
    world.end(7, false);
    let told = world.all_aborted();
    assert_eq!(
        (told.len(), told.last()),
        (expected.len() + 1, Some(&(7, end, end + 2)))
    );
}

#[test]
fn a_damaged_index_of_a_segment_without_aborted_transactions_is_removed() {
    let name = "00000000000000000000.txnindex";
    let mut world = World::new();
    world.append(None);
    world.driver.settle();
    world.driver.disk.plant(&LogDriver::path(name), b"garbage");
    let world = world.reopen(true, 0, untouched);
    assert_eq!(world.driver.disk.bytes(&LogDriver::path(name)), None);
}

#[derive(Clone, Debug)]
enum Op {
    Append(Option<i64>),
    End(i64, bool),
    Truncate(prop::sample::Index),
    Reopen { clean: bool },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop::option::of(0..4_i64).prop_map(Op::Append),
        6 => (0..4_i64, any::<bool>()).prop_map(|(id, committed)| Op::End(id, committed)),
        1 => any::<prop::sample::Index>().prop_map(Op::Truncate),
        1 => any::<bool>().prop_map(|clean| Op::Reopen { clean }),
    ]
}

/// What the log should say: the batches as they were appended.
#[derive(Clone, Copy, Debug)]
struct Batch {
    base: i64,
    next: i64,
    producer: Option<i64>,
    marker: Option<bool>,
}

fn expected(batches: &[Batch]) -> (Vec<(i64, i64, i64)>, Option<i64>) {
    let (mut open, mut aborted) = (BTreeMap::new(), Vec::new());
    for batch in batches {
        let Some(id) = batch.producer else { continue };
        match batch.marker {
            None => {
                open.entry(id).or_insert(batch.base);
            }
            Some(committed) => {
                if let Some(first) = open.remove(&id)
                    && !committed
                {
                    aborted.push((id, first, batch.base));
                }
            }
        }
    }
    (aborted, open.into_values().min())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn aborted_transactions_are_those_of_the_batches(ops in prop::collection::vec(op(), 1..60)) {
        let (mut world, mut batches) = (World::new(), Vec::<Batch>::new());
        for op in ops {
            match op {
                Op::Append(producer) => {
                    let base = world.append(producer);
                    batches.push(Batch { base, next: base + 2, producer, marker: None });
                }
                Op::End(id, committed) => {
                    let base = world.end(id, committed);
                    batches.push(Batch { base, next: base + 1, producer: Some(id), marker: Some(committed) });
                }
                Op::Truncate(at) => {
                    world.driver.settle();
                    let to = if batches.is_empty() { 0 } else { batches[at.index(batches.len())].base };
                    let driver = &mut world.driver;
                    driver.log.truncate_to(Offset(to), &mut driver.disk).unwrap();
                    batches.retain(|batch| batch.next <= to);
                    // The producers go on from what is left.
                    world.sequences.clear();
                    for batch in batches.iter().filter(|batch| batch.marker.is_none()) {
                        if let Some(id) = batch.producer {
                            *world.sequences.entry(id).or_default() += 2;
                        }
                    }
                }
                Op::Reopen { clean } => world = world.reopen(clean, 0, untouched),
            }
            world.driver.settle();
            let end = world.driver.log.log_end_offset();
            world.driver.log.handle_high_watermark(end);
            let (aborted, open) = expected(&batches);
            prop_assert_eq!(world.all_aborted(), aborted);
            prop_assert_eq!(world.driver.log.first_unstable_offset().map(|offset| offset.0), open);
        }
    }
}
