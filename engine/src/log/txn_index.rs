//! The aborted transactions of one segment, in Apache Kafka's file format.
//!
//! ```text
//! entry: version i16 BE (0) | producer id i64 | first offset i64 | last offset i64 | last stable offset i64
//! ```
//!
//! An entry belongs to the segment that holds its marker, whose offset is the last; the first may lie
//! in an earlier segment. Entries ascend strictly by their last offset. A segment without entries has
//! no file. Never evidence: what looks doubtful is refused and made anew from the batches. Knows no
//! files. Tested below and in `tests/log_transactions.rs`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::producer_state::CompletedTxn;
use crate::types::{Offset, ProducerId};

/// One entry in a file.
const ENTRY_BYTES: usize = 2 + 4 * 8;
const VERSION: i16 = 0;

/// A transaction that was aborted: readers of committed records skip its producer's transactional
/// batches between the two offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// Offset of its first record in this log.
    pub first_offset: Offset,
    /// Offset of the marker that ended it.
    pub last_offset: Offset,
    /// Everything below was decided when the marker came, exclusive.
    pub last_stable_offset: Offset,
}

impl AbortedTxn {
    /// The entry for a transaction that has ended, if it was aborted.
    pub(super) fn of(txn: &CompletedTxn) -> Option<Self> {
        txn.aborted.then_some(Self {
            producer_id: txn.producer_id,
            first_offset: txn.first_offset,
            last_offset: txn.last_offset,
            last_stable_offset: txn.last_stable_offset,
        })
    }

    fn is_sane(&self, base_offset: Offset) -> bool {
        self.producer_id > ProducerId::NONE
            && self.first_offset.0 >= 0
            && self.first_offset < self.last_offset
            && self.last_offset >= base_offset
            && self.last_stable_offset.0 >= 0
            && self.last_stable_offset.0 <= self.last_offset.0.saturating_add(1)
    }
}

/// The bytes of a transaction index are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no transaction index of this segment")]
pub(super) struct TxnIndexDefect;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TransactionIndex {
    entries: Vec<AbortedTxn>,
}

impl TransactionIndex {
    /// Reads the bytes of the file of the segment at `base_offset`.
    ///
    /// # Errors
    ///
    /// Where the index must be rebuilt from the log.
    pub(super) fn load(base_offset: Offset, mut bytes: &[u8]) -> Result<Self, TxnIndexDefect> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Err(TxnIndexDefect);
        }
        let mut index = Self::default();
        while bytes.has_remaining() {
            let version = bytes.get_i16();
            let entry = AbortedTxn {
                producer_id: ProducerId(bytes.get_i64()),
                first_offset: Offset(bytes.get_i64()),
                last_offset: Offset(bytes.get_i64()),
                last_stable_offset: Offset(bytes.get_i64()),
            };
            let follows = index
                .entries
                .last()
                .is_none_or(|last| last.last_offset < entry.last_offset);
            if version != VERSION || !follows || !entry.is_sane(base_offset) {
                return Err(TxnIndexDefect);
            }
            index.entries.push(entry);
        }
        Ok(index)
    }

    /// Adds a transaction whose marker lies above those of all earlier ones.
    pub(super) fn append(&mut self, txn: AbortedTxn) {
        debug_assert!(self.last_offset().is_none_or(|last| last < txn.last_offset));
        self.entries.push(txn);
    }

    /// Adds to `found` the transactions with records from `from` on that begin below `to`. Whether
    /// that is all of them: no transaction that began below `to` can end in a later segment.
    pub(super) fn collect(&self, from: Offset, to: Offset, found: &mut Vec<AbortedTxn>) -> bool {
        let first = self.entries.partition_point(|entry| entry.last_offset < from);
        for entry in &self.entries[first..] {
            if entry.first_offset < to {
                found.push(*entry);
            }
            if entry.last_stable_offset >= to {
                return true;
            }
        }
        false
    }

    /// The marker of the last entry.
    pub(super) fn last_offset(&self) -> Option<Offset> {
        self.entries.last().map(|entry| entry.last_offset)
    }

    /// Forgets the entries whose markers do not lie below `offset`.
    pub(super) fn truncate_to(&mut self, offset: Offset) {
        let kept = self.entries.partition_point(|entry| entry.last_offset < offset);
        self.entries.truncate(kept);
    }

    /// The bytes of the file; none where there is to be no file.
    pub(super) fn encode(&self) -> Option<Bytes> {
        if self.entries.is_empty() {
            return None;
        }
        let mut out = BytesMut::with_capacity(self.entries.len() * ENTRY_BYTES);
        for entry in &self.entries {
            out.put_i16(VERSION);
            out.put_i64(entry.producer_id.0);
            out.put_i64(entry.first_offset.0);
            out.put_i64(entry.last_offset.0);
            out.put_i64(entry.last_stable_offset.0);
        }
        Some(out.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    fn index() -> TransactionIndex {
        let mut index = TransactionIndex::default();
        index.append(aborted(5, 90, 110, 105));
        index.append(aborted(6, 105, 120, 121));
        index.append(aborted(5, 130, 140, 141));
        index
    }

    fn found(from: i64, to: i64) -> (Vec<i64>, bool) {
        let mut found = Vec::new();
        let complete = index().collect(Offset(from), Offset(to), &mut found);
        (found.iter().map(|txn| txn.first_offset.0).collect(), complete)
    }

    #[test]
    fn entries_have_kafkas_bytes_and_come_back() {
        let bytes = index().encode().unwrap();
        assert_eq!(bytes.len(), 3 * 34);
        let first = [
            0, 0, // version
            0, 0, 0, 0, 0, 0, 0, 5, // producer id
            0, 0, 0, 0, 0, 0, 0, 90, // first offset
            0, 0, 0, 0, 0, 0, 0, 110, // last offset
            0, 0, 0, 0, 0, 0, 0, 105, // last stable offset
        ];
        assert_eq!(bytes[..34], first);
        assert_eq!(TransactionIndex::load(Offset(100), &bytes), Ok(index()));
        assert_eq!(TransactionIndex::default().encode(), None);
        assert_eq!(
            TransactionIndex::load(Offset(100), &[]),
            Ok(TransactionIndex::default())
        );
    }

    #[test]
    fn those_that_overlap_the_range_are_collected() {
        assert_eq!(found(0, 90), (vec![], true));
        assert_eq!(found(0, 91), (vec![90], true));
        assert_eq!(found(100, 106), (vec![90, 105], true));
        assert_eq!(found(111, 121), (vec![105], true));
        assert_eq!(found(111, 131), (vec![105, 130], true));
        assert_eq!(
            found(111, 142),
            (vec![105, 130], false),
            "a later segment may have more"
        );
        assert_eq!(found(141, 150), (vec![], false));
    }

    #[test]
    fn truncation_forgets_markers_at_and_above() {
        let mut index = index();
        index.truncate_to(Offset(120));
        assert_eq!(index.last_offset(), Some(Offset(110)));
    }

    #[test]
    fn doubtful_bytes_are_refused() {
        let good = index().encode().unwrap().to_vec();
        let refused = |bytes: &[u8]| TransactionIndex::load(Offset(100), bytes) == Err(TxnIndexDefect);
        assert!(refused(&good[..33]));
        let mut swapped = good.clone();
        swapped[..68].rotate_left(34);
        assert!(refused(&swapped), "out of order");
        for (at, what) in [
            (0, "version"),
            (2, "producer id"),
            (10, "first offset"),
            (18, "last offset"),
            (26, "last stable offset"),
        ] {
            let mut negative = good.clone();
            negative[at] = 0xff;
            assert!(refused(&negative), "{what}");
        }
        assert!(
            TransactionIndex::load(Offset(111), &good) == Err(TxnIndexDefect),
            "another segment's"
        );
        assert!(refused(&[0; 34]));
    }
}
