//! What a log remembers of each idempotent or transactional producer, and what it decides by it.
//!
//! Owns duplicate detection, fencing by epoch, sequence order and the bookkeeping of open
//! transactions (KIP-98, KIP-360), deciding as Apache Kafka does. Knows neither files (see
//! `producer_snapshot.rs`) nor clocks. The state is a function of the batches in the log: it is
//! rebuilt by [`ProducerState::update`] in offset order. Tested in `producer_state/tests.rs`.

use std::collections::BTreeMap;

use thiserror::Error;

use super::producer_entry::{BATCHES_PER_PRODUCER, BatchMetadata, ProducerEntry};
use crate::record::{BatchHeader, EndTxnMarker};
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Why a producer's batch may not be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProducerError {
    /// The sequence is neither the next nor that of a remembered batch.
    #[error("producer {producer_id} epoch {producer_epoch} sent sequence {sequence}, expected {expected}")]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        producer_epoch: ProducerEpoch,
        /// Sequence of the batch's first record.
        sequence: Sequence,
        /// The sequence that would have been accepted.
        expected: Sequence,
    },
    /// A later incarnation of the producer has written already.
    #[error("producer {producer_id} sent epoch {producer_epoch}, the current one is {current}")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        producer_epoch: ProducerEpoch,
        /// The latest epoch seen.
        current: ProducerEpoch,
    },
    /// The producer's transaction is open and the batch is not part of one.
    #[error("producer {producer_id} sent a plain batch within its transaction begun at {first_offset}")]
    InvalidTxnState {
        /// The producer.
        producer_id: ProducerId,
        /// First offset of the open transaction.
        first_offset: Offset,
    },
    /// A later transaction coordinator has ended a transaction of the producer already.
    #[error(
        "a marker of producer {producer_id} has coordinator epoch {coordinator_epoch}, the current one is {current}"
    )]
    CoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The marker's.
        coordinator_epoch: i32,
        /// The latest seen.
        current: i32,
    },
}

/// What to do with a batch that is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Append it.
    Next,
    /// It is in the log already: acknowledge it as it was then.
    Duplicate {
        /// Offset its first record got.
        base_offset: Offset,
        /// Offset its last record got.
        last_offset: Offset,
        /// Its largest timestamp, or that of the append.
        timestamp: TimestampMs,
    },
}

/// A transaction that a marker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTxn {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its first offset in this log.
    pub first_offset: Offset,
    /// Offset of the marker.
    pub last_offset: Offset,
    /// Whether it was aborted.
    pub aborted: bool,
    /// First offset of the oldest transaction still open, or the one after the marker: what the
    /// transaction index keeps as the LastStableOffset (exclusive) at this point.
    pub last_stable_offset: Offset,
}

/// The producers of one log, in order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    producers: BTreeMap<ProducerId, ProducerEntry>,
    /// First offsets of the open transactions.
    open_txns: BTreeMap<Offset, ProducerId>,
    /// First offset to marker's offset of transactions whose marker is not below the HighWatermark:
    /// their outcome may still be truncated away, so they hold the LastStableOffset back.
    unreplicated_txns: BTreeMap<Offset, Offset>,
}

impl ProducerState {
    /// No producers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a producer's batch may be appended, is there already, or must be refused.
    ///
    /// Batches without a producer always may. A producer not known (new, or forgotten) may start at
    /// any sequence; a new epoch of a known one starts at 0 (KIP-360).
    ///
    /// # Errors
    ///
    /// Any [`ProducerError`]; nothing changes.
    pub fn check(&self, header: &BatchHeader) -> Result<SequenceCheck, ProducerError> {
        let producer_id = header.producer_id();
        let Some(entry) = self.producers.get(&producer_id) else {
            return Ok(SequenceCheck::Next);
        };
        let (producer_epoch, sequence) = (header.producer_epoch(), header.base_sequence());
        entry.check_epoch(producer_id, producer_epoch)?;
        let last_sequence = header.last_sequence();
        let duplicate = entry.batches.iter().find(|batch| {
            producer_epoch == entry.epoch
                && batch.first_sequence() == sequence
                && batch.last_sequence == last_sequence
        });
        if let Some(batch) = duplicate {
            return Ok(SequenceCheck::Duplicate {
                base_offset: batch.first_offset(),
                last_offset: batch.last_offset,
                timestamp: batch.timestamp,
            });
        }
        let expected = entry.expected_sequence(producer_epoch);
        if sequence != expected {
            return Err(ProducerError::OutOfOrderSequence {
                producer_id,
                producer_epoch,
                sequence,
                expected,
            });
        }
        match entry.current_txn_first_offset {
            Some(first_offset) if !header.attributes().is_transactional() => {
                Err(ProducerError::InvalidTxnState {
                    producer_id,
                    first_offset,
                })
            }
            _ => Ok(SequenceCheck::Next),
        }
    }

    /// Whether a marker may end the producer's transaction; one that has none, or is not known, may
    /// get a marker as well.
    ///
    /// # Errors
    ///
    /// [`ProducerError::InvalidProducerEpoch`], [`ProducerError::CoordinatorFenced`]; nothing changes.
    pub fn check_marker(
        &self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        marker: EndTxnMarker,
    ) -> Result<(), ProducerError> {
        let Some(entry) = self.producers.get(&producer_id) else {
            return Ok(());
        };
        entry.check_epoch(producer_id, producer_epoch)?;
        if marker.coordinator_epoch < entry.coordinator_epoch {
            return Err(ProducerError::CoordinatorFenced {
                producer_id,
                coordinator_epoch: marker.coordinator_epoch,
                current: entry.coordinator_epoch,
            });
        }
        Ok(())
    }

    /// Takes in a batch that is in the log, after its append or while the log is recovered.
    ///
    /// Batches come in offset order, their offsets assigned. `marker` is that of a control batch,
    /// none for any other and for one that compaction has emptied. Nothing is checked: what is in
    /// the log is the truth. Returns the transaction that the marker ended, if it had begun here.
    pub fn update(&mut self, header: &BatchHeader, marker: Option<EndTxnMarker>) -> Option<CompletedTxn> {
        let producer_id = header.producer_id();
        if producer_id <= ProducerId::NONE || (header.attributes().is_control() && marker.is_none()) {
            return None;
        }
        let epoch = header.producer_epoch();
        let entry = self
            .producers
            .entry(producer_id)
            .or_insert_with(|| ProducerEntry::new(epoch));
        entry.enter_epoch(epoch);
        entry.last_timestamp = header.max_timestamp();
        if let Some(marker) = marker {
            entry.coordinator_epoch = marker.coordinator_epoch;
            let first_offset = entry.current_txn_first_offset.take()?;
            return Some(self.complete_txn(header, first_offset, marker));
        }
        entry.remember(BatchMetadata {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta(),
            timestamp: header.max_timestamp(),
        });
        if header.attributes().is_transactional() && entry.current_txn_first_offset.is_none() {
            entry.current_txn_first_offset = Some(header.base_offset());
            self.open_txns.insert(header.base_offset(), producer_id);
        }
        None
    }

    fn complete_txn(
        &mut self,
        header: &BatchHeader,
        first_offset: Offset,
        marker: EndTxnMarker,
    ) -> CompletedTxn {
        let last_offset = header.last_offset();
        self.open_txns.remove(&first_offset);
        self.unreplicated_txns.insert(first_offset, last_offset);
        CompletedTxn {
            producer_id: header.producer_id(),
            first_offset,
            last_offset,
            aborted: !marker.committed,
            last_stable_offset: self.first_undecided_offset().unwrap_or(header.next_offset()),
        }
    }

    /// Lets go of the transactions whose markers are now below the HighWatermark.
    pub fn handle_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated_txns
            .retain(|_, marker_offset| *marker_offset >= high_watermark);
    }

    /// First offset of the oldest transaction that is open, or ended by a marker that is not below the
    /// HighWatermark. The LastStableOffset is this, but at least the LogStartOffset, or else the
    /// HighWatermark.
    #[must_use]
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let unreplicated = self.unreplicated_txns.first_key_value().map(|(&first, _)| first);
        self.first_undecided_offset()
            .into_iter()
            .chain(unreplicated)
            .min()
    }

    /// First offset of the oldest open transaction.
    #[must_use]
    pub fn first_undecided_offset(&self) -> Option<Offset> {
        self.open_txns.first_key_value().map(|(&first, _)| first)
    }

    /// Forgets the producers that have been idle for `expiration_ms` or longer and have no open transaction.
    pub fn expire(&mut self, now: TimestampMs, expiration_ms: i64) {
        self.producers
            .retain(|_, entry| !entry.is_expired(now, expiration_ms));
    }

    /// Forgets everything, before the log's end goes back or its data goes altogether.
    ///
    /// What a producer's state was before a batch cannot be told from what it was after, so a log
    /// that is truncated loads the last snapshot at or below its new end and takes in the batches
    /// from there.
    pub fn truncate(&mut self) {
        *self = Self::new();
    }

    /// The producers in order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter().map(|(&id, entry)| (id, entry))
    }

    /// One producer.
    #[must_use]
    pub fn entry(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    /// Puts back an entry of a snapshot, its open transaction included. Batches that entries of the
    /// same producer and epoch brought before are its older ones.
    pub(super) fn load(&mut self, producer_id: ProducerId, mut entry: ProducerEntry) {
        if let Some(first_offset) = entry.current_txn_first_offset {
            self.open_txns.insert(first_offset, producer_id);
        }
        if let Some(earlier) = self.producers.remove(&producer_id)
            && earlier.epoch == entry.epoch
        {
            for batch in earlier.batches.into_iter().rev() {
                entry.batches.push_front(batch);
            }
            let surplus = entry.batches.len().saturating_sub(BATCHES_PER_PRODUCER);
            entry.batches.drain(..surplus);
        }
        self.producers.insert(producer_id, entry);
    }
}

#[cfg(test)]
mod tests;
