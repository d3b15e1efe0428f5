//! The sparse index from timestamps to offsets of one segment, in Apache Kafka's file format.
//!
//! ```text
//! entry: timestamp i64 BE | relative offset u32 BE      (12 bytes, timestamps strictly increasing)
//! ```
//!
//! An entry says: the largest timestamp up to and including the batch that ends with this offset
//! is this one, first reached there. Never evidence, like the offset index. Knows no files.
//! Tested below and in `tests/log_recovery.rs`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::offset_index::{IndexDefect, used_bytes};
use crate::types::{Offset, TimestampMs};

/// One entry in a file.
const ENTRY_BYTES: usize = 12;

/// A timestamp and the last offset of the batch that first reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimestampOffset {
    pub(super) timestamp: TimestampMs,
    pub(super) offset: Offset,
}

/// See the module.
#[derive(Debug)]
pub(super) struct TimeIndex {
    base_offset: Offset,
    entries: Vec<TimestampOffset>,
}

impl TimeIndex {
    pub(super) fn new(base_offset: Offset) -> Self {
        Self {
            base_offset,
            entries: Vec::new(),
        }
    }

    /// Reads a file's bytes; zeros to the end are the room Kafka allocates ahead, not entries.
    ///
    /// # Errors
    ///
    /// Why the index must be rebuilt from the log.
    pub(super) fn load(base_offset: Offset, bytes: &[u8]) -> Result<Self, IndexDefect> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Err(IndexDefect::Ragged);
        }
        let used = used_bytes(bytes, ENTRY_BYTES);
        let mut entries: Vec<TimestampOffset> = Vec::with_capacity(used / ENTRY_BYTES);
        for mut raw in bytes[..used].chunks_exact(ENTRY_BYTES) {
            let timestamp = TimestampMs(raw.get_i64());
            let relative_offset = raw.get_i32();
            let offset = Offset(base_offset.0.saturating_add(i64::from(relative_offset)));
            let follows = entries
                .last()
                .is_none_or(|last| timestamp > last.timestamp && offset >= last.offset);
            if !follows || relative_offset < 0 || timestamp.0 < 0 {
                return Err(IndexDefect::OutOfOrder);
            }
            entries.push(TimestampOffset { timestamp, offset });
        }
        Ok(Self { base_offset, entries })
    }

    /// Notes that `timestamp` was first reached by the batch ending with `offset`; does nothing
    /// unless it lies above all noted before.
    pub(super) fn maybe_append(&mut self, timestamp: TimestampMs, offset: Offset) {
        if timestamp.0 < 0
            || self
                .entries
                .last()
                .is_some_and(|last| timestamp <= last.timestamp)
        {
            return;
        }
        self.entries.push(TimestampOffset { timestamp, offset });
    }

    /// The last entry at or below `timestamp`: no batch before its offset lies above it.
    pub(super) fn floor(&self, timestamp: TimestampMs) -> Option<TimestampOffset> {
        let above = self.entries.partition_point(|e| e.timestamp <= timestamp);
        above.checked_sub(1).map(|i| self.entries[i])
    }

    pub(super) fn last(&self) -> Option<TimestampOffset> {
        self.entries.last().copied()
    }

    /// Forgets the entries of offsets at and above `offset`.
    pub(super) fn truncate_to(&mut self, offset: Offset) {
        let kept = self.entries.partition_point(|e| e.offset < offset);
        self.entries.truncate(kept);
    }

    /// The bytes of the file.
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.entries.len() * ENTRY_BYTES);
        for entry in &self.entries {
            let relative_offset = i32::try_from(entry.offset.0 - self.base_offset.0)
                .expect("a segment is rolled before its relative offsets pass i32::MAX");
            out.put_i64(entry.timestamp.0);
            out.put_i32(relative_offset);
        }
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> TimeIndex {
        let mut index = TimeIndex::new(Offset(100));
        index.maybe_append(TimestampMs(1000), Offset(109));
        index.maybe_append(TimestampMs(900), Offset(115));
        index.maybe_append(TimestampMs(2000), Offset(120));
        index
    }

    #[test]
    fn only_rising_timestamps_are_noted() {
        let index = index();
        assert_eq!(index.entries.len(), 2);
        assert_eq!(index.floor(TimestampMs(999)), None);
        assert_eq!(index.floor(TimestampMs(1999)).unwrap().offset, Offset(109));
        assert_eq!(index.floor(TimestampMs(2000)), index.last());
    }

    #[test]
    fn encoded_entries_load_with_and_without_a_preallocated_tail() {
        let mut bytes = index().encode().to_vec();
        assert_eq!(bytes.len(), 24);
        assert_eq!(
            TimeIndex::load(Offset(100), &bytes).unwrap().entries,
            index().entries
        );
        bytes.resize(12 * 1000, 0);
        assert_eq!(
            TimeIndex::load(Offset(100), &bytes).unwrap().entries,
            index().entries
        );
    }

    #[test]
    fn doubtful_bytes_are_refused() {
        let good = index().encode();
        assert_eq!(
            TimeIndex::load(Offset(100), &good[..20]).unwrap_err(),
            IndexDefect::Ragged
        );
        let mut swapped = good.to_vec();
        swapped.rotate_left(12);
        assert_eq!(
            TimeIndex::load(Offset(100), &swapped).unwrap_err(),
            IndexDefect::OutOfOrder
        );
        let mut negative = good.to_vec();
        negative[20] = 0xff;
        assert_eq!(
            TimeIndex::load(Offset(100), &negative).unwrap_err(),
            IndexDefect::OutOfOrder
        );
    }

    #[test]
    fn truncation_forgets_offsets_at_and_above() {
        let mut index = index();
        index.truncate_to(Offset(120));
        assert_eq!(index.last().unwrap().timestamp, TimestampMs(1000));
    }
}
