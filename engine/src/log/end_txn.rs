//! The end of a transaction: the marker that the transaction coordinator has a leader append, and
//! what readers of committed records are to skip.
//!
//! Owns the checks of a marker, which come before the first change, and the search for aborted
//! transactions. Who may end a transaction, and when, is the coordinator's to know. Tested in
//! `tests/log_transactions.rs`.

use bytes::BytesMut;

use super::append::{AppendError, AppendInfo};
use super::log::Log;
use super::txn_index::AbortedTxn;
use crate::record::{BatchHeader, EndTxnMarker, RecordBatch, RecordBatchBuilder};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

impl Log {
    /// Ends the transaction of a producer in this log by a commit or abort marker, at the log's end.
    ///
    /// A producer with no open transaction, or that is not known at all, gets its marker as well: the
    /// epochs in it fence earlier producers and coordinators. An aborted transaction is noted in the
    /// transaction index with the marker.
    ///
    /// # Durability
    ///
    /// That of [`append_as_leader`](Self::append_as_leader).
    ///
    /// # Errors
    ///
    /// As there; [`ProducerError::InvalidProducerEpoch`](super::producer_state::ProducerError) for a
    /// producer epoch below the latest seen, and
    /// [`ProducerError::CoordinatorFenced`](super::producer_state::ProducerError) for a coordinator
    /// epoch below that of the producer's last marker. The log is unchanged.
    pub fn append_end_txn_marker(
        &mut self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        marker: EndTxnMarker,
        leader_epoch: LeaderEpoch,
        now: TimestampMs,
    ) -> Result<AppendInfo, AppendError> {
        let batch = RecordBatchBuilder::end_txn_marker(producer_id, producer_epoch, now, marker);
        self.check_writable(batch.len())?;
        self.check_epoch(leader_epoch)?;
        self.producers.check_marker(producer_id, producer_epoch, marker)?;
        let mut batch = BytesMut::from(batch.as_ref());
        let base_offset = self.log_end_offset;
        RecordBatch::assign(&mut batch, base_offset, leader_epoch)?;
        let header = *BatchHeader::peek(&batch)?;
        self.stage(&header, Some(marker), batch, now);
        Ok(AppendInfo {
            base_offset,
            last_offset: header.last_offset(),
            log_append_time: now,
            duplicate: false,
            log_start_offset: self.log_start_offset,
        })
    }

    /// The aborted transactions that a reader of the records from `from` to `to` (exclusive, at most
    /// the last stable offset) has to skip, in the order in which they ended.
    #[must_use]
    pub fn aborted_transactions(&self, from: Offset, to: Offset) -> Vec<AbortedTxn> {
        let mut found = Vec::new();
        for segment in self.segments.range_from(from) {
            if segment.txn_index.collect(from, to, &mut found) {
                break;
            }
        }
        found
    }

    /// An offset that no read from `offset` on of at most `max_bytes` reaches (its first batch is
    /// whole whatever its size): the end of the range whose aborted transactions the reader needs.
    #[must_use]
    pub fn read_upper_bound(&self, offset: Offset, max_bytes: u32) -> Offset {
        self.segments.floor(offset).map_or(offset, |segment| {
            let further = segment.offset_index.beyond(offset, max_bytes);
            further.unwrap_or(segment.next_offset())
        })
    }
}
