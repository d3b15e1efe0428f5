//! The part of the model that compacts: records with keys, transactions, and passes that a crash may cut short.
//!
//! What a batch holds follows from the number it was made with. A pass may take a record that a later one
//! with its key supersedes, one of an aborted transaction, a tombstone if its retention is over, a marker, and none
//! of these at or above the last stable offset; all else is there, as it was.

use std::collections::BTreeMap;

use super::{Choose, LogModel, PATIENCE_MS, TRIES_MAX, number};
use crate::config::CompactionConfig;
use crate::log::AppendError;
use crate::log::compaction::{Cleaner, CleanerConfig};
use crate::record::{BatchHeader, EndTxnMarker, RecordBatch, RecordBatchBuilder};
use crate::types::{Offset, ProducerEpoch, ProducerId};

/// Those whose batches are transactional.
const TRANSACTIONAL: [ProducerId; 2] = [ProducerId(10), ProducerId(11)];
const KEYS: u64 = 8;
/// Of so many records one is a tombstone.
const RECORDS_PER_TOMBSTONE: u64 = 11;

/// What is known of a log that is compacted.
#[derive(Debug)]
pub(super) struct Compacting {
    /// The numbers that batches were made with, by base offset; of markers, whether they commit. Above the log's
    /// end nothing counts.
    numbers: BTreeMap<Offset, Made>,
    /// No pass went further.
    clean_limit: Offset,
    /// Passes believed everything below to stay.
    committed: Offset,
}

#[derive(Clone, Copy, Debug)]
enum Made {
    Records(u64),
    Marker { committed: bool },
}

/// The end of the transaction that a batch belongs to.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    committed: bool,
    marker: Offset,
}

/// Key and value of the record at `index` of the batch that was made as `number`.
pub(super) fn record(number: u64, index: u64, value_bytes: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let key = (mixed + index) % KEYS;
    let is_tombstone = (mixed + index).is_multiple_of(RECORDS_PER_TOMBSTONE);
    let value = (!is_tombstone).then(|| [&number.to_be_bytes()[..], &vec![7; value_bytes]].concat());
    (vec![u8::try_from(key).expect("there are few keys")], value)
}

impl LogModel {
    /// From now on steps may compact, and begin and end transactions.
    #[must_use]
    pub fn with_compaction(mut self, choose: Choose<'_>) -> Self {
        let mut config = self.driver.log.config().clone();
        config.compaction = Some(CompactionConfig {
            delete_retention_ms: if choose(2) == 0 { 0 } else { i64::MAX / 2 },
            min_dirty_ratio_ppm: 0,
            ..CompactionConfig::default()
        });
        self.driver.log.set_config(config);
        self.compacting = Some(Compacting {
            numbers: BTreeMap::new(),
            clean_limit: Offset(0),
            committed: Offset(0),
        });
        self
    }

    pub(super) fn compacting_step(mut self, choose: Choose<'_>) -> Self {
        let producer = TRANSACTIONAL[choose(TRANSACTIONAL.len())];
        let epoch = self.epoch_of(producer);
        match choose(10) {
            0 | 1 => return self.compact(choose),
            2..=5 => self.append(1 + number::<i32>(choose(3)), choose(256), Some((producer, true))),
            6 => self.resend((producer, true)),
            // As a coordinator does of late: the producer goes on in the marker's epoch.
            7 => self.end_transaction(producer, ProducerEpoch(epoch.0 + 1), choose(2) == 0),
            _ => self.end_transaction(producer, epoch, choose(2) == 0),
        }
        self
    }

    pub(super) fn note_batch(&mut self, base_offset: Offset) {
        if let Some(compacting) = &mut self.compacting {
            let made = Made::Records(self.appended);
            compacting.numbers.insert(base_offset, made);
        }
    }

    /// The least that a log may be truncated to: a truncation would not bring back what compaction took for
    /// the sake of what is truncated.
    pub(super) fn truncation_limit(&self) -> Offset {
        self.compacting
            .as_ref()
            .map_or(Offset(0), |compacting| compacting.committed)
    }

    fn end_transaction(&mut self, producer: ProducerId, producer_epoch: ProducerEpoch, committed: bool) {
        let marker = EndTxnMarker {
            committed,
            coordinator_epoch: 0,
        };
        let driver = &mut self.driver;
        let (epoch, now) = (driver.epoch, driver.now);
        let appended = driver
            .log
            .append_end_txn_marker(producer, producer_epoch, marker, epoch, now);
        let base_offset = match appended {
            Ok(info) => info.base_offset,
            Err(AppendError::StorageFull | AppendError::Poisoned(_)) => return,
            Err(error) => panic!("a sound marker is refused: {error}"),
        };
        let batch = RecordBatchBuilder::end_txn_marker(producer, producer_epoch, now, marker);
        let mut batch = batch.to_vec();
        RecordBatch::assign(&mut batch, base_offset, epoch).expect("the batch is sound");
        self.batches
            .push(*BatchHeader::peek(&batch).expect("the batch is sound"));
        if let Some(compacting) = &mut self.compacting {
            compacting.numbers.insert(base_offset, Made::Marker { committed });
        }
    }

    /// One pass; whatever happens to the log meanwhile.
    fn compact(mut self, choose: Choose<'_>) -> Self {
        let driver = &mut self.driver;
        let flushed = driver.log.flushed_offset();
        driver.log.handle_high_watermark(flushed);
        let unstable = driver.log.first_unstable_offset();
        let stable = unstable.map_or(flushed, |unstable| unstable.min(flushed));
        let Some(job) = driver.log.begin_cleaning(stable, driver.now) else {
            return self;
        };
        let compacting = self.compacting.as_mut().expect("it is compacted");
        compacting.clean_limit = compacting.clean_limit.max(stable);
        compacting.committed = compacting.committed.max(flushed);
        let config = CleanerConfig {
            map_bytes: 24 * (4 + choose(64)),
            map_load_percent: 90,
        };
        let (id, all) = (job.id(), &mut |_| true);
        let Ok(mut cleaner) = Cleaner::start(job, config, &mut self.driver.disk, all) else {
            // The map is too small for one batch.
            self.driver.log.end_cleaning(id, None);
            return self;
        };
        loop {
            let new = cleaner.next_segment(&mut self.driver.disk, all);
            let log = &mut self.driver.log;
            let new = match new {
                Ok(Some(new)) => new,
                Ok(None) => {
                    log.end_cleaning(id, Some(cleaner.clean_end()));
                    return self;
                }
                Err(error) => {
                    assert!(!log.end_cleaning(id, None), "nothing has changed: {error}");
                    return self;
                }
            };
            match choose(8) {
                0 => return self.restart(choose),
                1 => self.append(1, choose(256), None),
                _ => {}
            }
            if let Err(refused) = self.driver.log.swap_in(new) {
                refused.remove(&mut self.driver.disk);
                return self;
            }
            for _ in 0..choose(16) {
                self.driver.turn();
                let outstanding = self.driver.disk.outstanding().count();
                if outstanding > 0 {
                    self.driver.complete(choose(outstanding));
                }
            }
            if choose(6) == 0 {
                return self.restart(choose);
            }
            for _ in 0..TRIES_MAX {
                if !self.driver.log.is_swapping() {
                    break;
                }
                self.driver.settle();
                self.driver.now.0 += PATIENCE_MS;
            }
            if self.driver.log.poison().is_some() {
                return self;
            }
        }
    }

    /// How the transaction of each batch ended; `None` where it is open, or there is none.
    fn outcomes(&self) -> Vec<Option<Outcome>> {
        let mut ends = BTreeMap::new();
        let backwards = self.batches.iter().rev().map(|batch| {
            let attributes = batch.attributes();
            if let Some(&Made::Marker { committed }) = self.made(batch) {
                let marker = batch.base_offset();
                ends.insert(batch.producer_id(), Outcome { committed, marker });
                return None;
            }
            let end = ends.get(&batch.producer_id()).copied();
            end.filter(|_| attributes.is_transactional())
        });
        let mut outcomes: Vec<_> = backwards.collect();
        outcomes.reverse();
        outcomes
    }

    fn made(&self, batch: &BatchHeader) -> Option<&Made> {
        self.compacting.as_ref()?.numbers.get(&batch.base_offset())
    }

    /// What is there from `from` on is as it was, and what is not there may be gone.
    pub(super) fn check_kept(&self, from: Offset, max_bytes: u32) {
        let log = &self.driver.log;
        let written = log.written_offset();
        let mut kept = self.read_records(from, max_bytes);
        let aborted = log.aborted_transactions(from, written);
        // Later records with each key that readers of committed records see.
        let mut superseding: BTreeMap<Vec<u8>, Offset> = BTreeMap::new();
        let compacting = self.compacting.as_ref().expect("it is compacted");
        let limit = compacting.clean_limit;
        let config = log.config().compaction.as_ref().expect("it is compacted");
        let outcomes = self.outcomes();
        for (batch, outcome) in self.batches.iter().zip(outcomes).rev() {
            if batch.last_offset() >= written {
                continue;
            }
            let Some(&Made::Records(number)) = self.made(batch) else {
                let there = kept.remove(&batch.base_offset());
                assert!(there.is_some() || batch.base_offset() < limit.max(from));
                continue;
            };
            let is_open = batch.attributes().is_transactional() && outcome.is_none();
            let is_aborted = outcome.is_some_and(|outcome| !outcome.committed);
            for index in (0..u64::try_from(batch.records_count()).expect("it counts")).rev() {
                let offset = batch.base_offset().plus(number_of(index));
                let (key, value) = record(number, index, 0);
                let superseded = superseding.get(&key).is_some_and(|&later| later < limit);
                if !is_open && !is_aborted {
                    superseding.insert(key.clone(), offset);
                }
                if offset < from {
                    continue;
                }
                let Some((found_key, found_value)) = kept.remove(&offset) else {
                    let expired = value.is_none() && config.delete_retention_ms == 0;
                    let may_go = offset < limit && (superseded || is_aborted || expired);
                    assert!(may_go, "offset {offset} of {batch:?} is gone, limit {limit}");
                    continue;
                };
                let value_start = found_value.map(|value| value[..8].to_vec());
                assert_eq!((found_key, value_start), (key, value), "offset {offset}");
                let hidden = aborted.iter().any(|txn| {
                    let range = txn.first_offset..=txn.last_offset;
                    txn.producer_id == batch.producer_id() && range.contains(&offset)
                });
                let ended = outcome.is_some_and(|outcome| outcome.marker < written);
                assert!(
                    !ended || hidden == is_aborted,
                    "offset {offset} of {batch:?}, {aborted:?}"
                );
            }
        }
        assert!(kept.is_empty(), "{kept:?}");
    }

    /// Every record from `from` to the written end, by offset; the markers among them.
    fn read_records(&self, from: Offset, max_bytes: u32) -> BTreeMap<Offset, (Vec<u8>, Option<Vec<u8>>)> {
        let (mut found, mut offset) = (BTreeMap::new(), from);
        while let Some(bytes) = self
            .driver
            .read(offset, max_bytes, self.driver.log.log_end_offset())
        {
            let mut rest = bytes.as_slice();
            while let Ok(batch) = RecordBatch::parse(rest) {
                batch.verify_crc().expect("what is read is intact");
                let records = batch.records(1 << 20).expect("it is not compressed");
                for record in records.iter() {
                    let record = record.expect("it is sound");
                    if record.offset >= from {
                        let key = record.key.unwrap_or_default().to_vec();
                        found.insert(record.offset, (key, record.value.map(<[u8]>::to_vec)));
                    }
                }
                offset = batch.header().next_offset();
                rest = &rest[batch.bytes().len()..];
            }
        }
        found
    }
}

fn number_of(index: u64) -> i64 {
    i64::try_from(index).expect("a batch is small")
}
