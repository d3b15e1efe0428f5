//! What is remembered of one producer: its epoch, its last batches, its open transaction.
//!
//! Data and its arithmetic; the decisions are in `producer_state.rs`, and so are the tests.

use std::collections::VecDeque;

use super::producer_state::ProducerError;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Batches remembered per producer: as many as a client may have in flight with idempotence on.
pub const BATCHES_PER_PRODUCER: usize = 5;

/// A batch remembered for the detection of duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMetadata {
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Offset of the last record relative to the first.
    pub offset_delta: i32,
    /// Its largest timestamp.
    pub timestamp: TimestampMs,
}

impl BatchMetadata {
    /// Sequence of its first record.
    #[must_use]
    pub fn first_sequence(&self) -> Sequence {
        self.last_sequence.plus(self.offset_delta.saturating_neg())
    }

    /// Offset of its first record.
    #[must_use]
    pub fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0.saturating_sub(i64::from(self.offset_delta)))
    }
}

/// What is remembered of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The epoch of its last batch or marker.
    pub epoch: ProducerEpoch,
    /// The epoch of the coordinator that wrote its last marker, -1 before the first.
    pub coordinator_epoch: i32,
    /// Timestamp of its last batch or marker; expiration counts from it.
    pub last_timestamp: TimestampMs,
    /// First offset of its open transaction.
    pub current_txn_first_offset: Option<Offset>,
    /// Its last batches in this epoch, oldest first, at most [`BATCHES_PER_PRODUCER`].
    pub batches: VecDeque<BatchMetadata>,
}

impl ProducerEntry {
    /// A producer that has written nothing yet.
    pub(super) fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            coordinator_epoch: -1,
            last_timestamp: TimestampMs::NONE,
            current_txn_first_offset: None,
            batches: VecDeque::new(),
        }
    }

    /// The sequence that may follow: 0 at the start of an epoch.
    pub(super) fn expected_sequence(&self, epoch: ProducerEpoch) -> Sequence {
        match self.batches.back() {
            Some(last) if epoch == self.epoch => last.last_sequence.plus(1),
            _ => Sequence(0),
        }
    }

    /// Refuses what an earlier incarnation of the producer sends.
    pub(super) fn check_epoch(
        &self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
    ) -> Result<(), ProducerError> {
        if producer_epoch < self.epoch {
            return Err(ProducerError::InvalidProducerEpoch {
                producer_id,
                producer_epoch,
                current: self.epoch,
            });
        }
        Ok(())
    }

    /// Sequences of an earlier epoch mean nothing in the next one.
    pub(super) fn enter_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }

    /// Keeps the batch, and no more than the last five.
    pub(super) fn remember(&mut self, batch: BatchMetadata) {
        if self.batches.len() == BATCHES_PER_PRODUCER {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }

    /// Whether it has been idle for `expiration_ms` and has no open transaction.
    pub(super) fn is_expired(&self, now: TimestampMs, expiration_ms: i64) -> bool {
        self.current_txn_first_offset.is_none()
            && now.0.saturating_sub(self.last_timestamp.0) >= expiration_ms
    }
}
