//! Which batches belong to aborted transactions, and which markers are still needed, as the cleaner
//! walks a log from its start.
//!
//! A marker is needed as long as a batch of its transaction is there, even an empty one: without it
//! the transaction would be open for ever, or its aborted records be read. Knows no files and no
//! keys. Tested below and in `tests/log_compaction.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::super::txn_index::AbortedTxn;
use crate::record::{BatchHeader, EndTxnMarker};
use crate::types::{Offset, ProducerId};

/// What is to be made of a control batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// It stays; with it the entry of the transaction index, if it has one.
    Needed(Option<AbortedTxn>),
    /// No batch of its transaction is left: it may go once its delete horizon has passed.
    Spent,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// By the producer and the marker's offset.
    aborted: BTreeMap<(ProducerId, Offset), AbortedTxn>,
    /// Producers with transactional batches after their last marker.
    begun: BTreeSet<ProducerId>,
}

impl Transactions {
    pub(super) fn new(aborted: impl IntoIterator<Item = AbortedTxn>) -> Self {
        let by_marker = |txn: AbortedTxn| ((txn.producer_id, txn.last_offset), txn);
        Self {
            aborted: aborted.into_iter().map(by_marker).collect(),
            begun: BTreeSet::new(),
        }
    }

    /// Whether the batch, which is no control batch, belongs to an aborted transaction.
    pub(super) fn is_aborted(&self, header: &BatchHeader) -> bool {
        let (producer, base_offset) = (header.producer_id(), header.base_offset());
        header.attributes().is_transactional()
            && self
                .aborted
                .range((producer, base_offset)..)
                .next()
                .is_some_and(|((owner, _), txn)| *owner == producer && txn.first_offset <= base_offset)
    }

    /// Takes in the next batch that is no control batch.
    pub(super) fn handle_batch(&mut self, header: &BatchHeader) {
        if header.attributes().is_transactional() {
            self.begun.insert(header.producer_id());
        }
    }

    /// Takes in the next control batch, with its marker; none where it holds something else.
    pub(super) fn handle_control(&mut self, header: &BatchHeader, marker: Option<EndTxnMarker>) -> Marker {
        if header.records_count() == 0 {
            return Marker::Spent;
        }
        let Some(marker) = marker else {
            return Marker::Needed(None);
        };
        let producer = header.producer_id();
        if !self.begun.remove(&producer) {
            return Marker::Spent;
        }
        let aborted = self.aborted.get(&(producer, header.base_offset()));
        Marker::Needed(aborted.copied().filter(|_| !marker.committed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordBatchBuilder;
    use crate::types::{ProducerEpoch, Sequence, TimestampMs};

    fn aborted(producer: i64, first: i64, last: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(first),
        }
    }

    fn data(producer: i64, offset: i64) -> BatchHeader {
        let mut builder = RecordBatchBuilder::new()
            .base_offset(Offset(offset))
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0))
            .transactional();
        builder.append(TimestampMs(0), Some(b"k"), None, &[]).unwrap();
        *BatchHeader::peek(&builder.build().unwrap()).unwrap()
    }

    fn end(producer: i64, offset: i64, committed: bool) -> (BatchHeader, Option<EndTxnMarker>) {
        let marker = EndTxnMarker {
            committed,
            coordinator_epoch: 0,
        };
        let id = ProducerId(producer);
        let mut bytes =
            RecordBatchBuilder::end_txn_marker(id, ProducerEpoch(0), TimestampMs(0), marker).to_vec();
        crate::record::RecordBatch::assign(&mut bytes, Offset(offset), crate::types::LeaderEpoch(0)).unwrap();
        (*BatchHeader::peek(&bytes).unwrap(), Some(marker))
    }

    #[test]
    fn batches_between_the_first_offset_and_the_marker_are_aborted() {
        let txns = Transactions::new([aborted(1, 10, 20), aborted(1, 30, 40), aborted(2, 12, 50)]);
        let is_aborted = |producer, offset| txns.is_aborted(&data(producer, offset));
        assert!(is_aborted(1, 10) && is_aborted(1, 19) && is_aborted(1, 30) && is_aborted(2, 49));
        assert!(!is_aborted(1, 9) && !is_aborted(1, 25) && !is_aborted(1, 41));
        assert!(!is_aborted(2, 11) && !is_aborted(3, 15));
    }

    #[test]
    fn a_marker_is_needed_while_a_batch_of_its_transaction_is_there() {
        let mut txns = Transactions::new([aborted(1, 10, 20)]);
        let (abort, commit) = (end(1, 20, false), end(1, 30, true));
        txns.handle_batch(&data(1, 10));
        assert_eq!(
            txns.handle_control(&abort.0, abort.1),
            Marker::Needed(Some(aborted(1, 10, 20)))
        );
        assert_eq!(txns.handle_control(&commit.0, commit.1), Marker::Spent);
        txns.handle_batch(&data(1, 25));
        txns.handle_batch(&data(2, 26));
        assert_eq!(txns.handle_control(&commit.0, commit.1), Marker::Needed(None));
    }

    #[test]
    fn an_emptied_control_batch_is_spent_and_one_of_another_kind_stays() {
        let mut txns = Transactions::default();
        let (header, _) = end(1, 5, true);
        assert_eq!(txns.handle_control(&header, None), Marker::Needed(None));
        let mut emptied = Vec::new();
        crate::record::write_emptied(&header, &mut emptied);
        let emptied = BatchHeader::peek(&emptied).unwrap();
        assert_eq!(txns.handle_control(emptied, None), Marker::Spent);
    }
}
