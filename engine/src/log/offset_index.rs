//! The sparse index from offsets to positions of one segment, in Apache Kafka's file format.
//!
//! ```text
//! entry: relative offset u32 BE | position u32 BE      (8 bytes, both strictly increasing)
//! ```
//!
//! The offset of an entry is the *last* offset of the batch that starts at its position. The
//! index is never evidence: [`OffsetIndex::load`] refuses whatever looks doubtful and the owner
//! rebuilds it from the log. Knows no files. Tested below and in `tests/log_recovery.rs`.

use bytes::{BufMut, Bytes, BytesMut};

use crate::types::Offset;

/// One entry in a file.
const ENTRY_BYTES: usize = 8;

/// Why the bytes of an index are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IndexDefect {
    /// The length is not a multiple of the entry size.
    #[error("the length is not a whole number of entries")]
    Ragged,
    /// An entry is not greater than the one before it.
    #[error("entries are out of order")]
    OutOfOrder,
    /// An entry points past the end of the segment.
    #[error("an entry points past the end of the segment")]
    PastEnd,
}

/// Where to start walking to reach an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffsetPosition {
    /// The last offset of the batch at `position`.
    pub(super) offset: Offset,
    /// Bytes from the start of the segment file.
    pub(super) position: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    relative_offset: u32,
    position: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct OffsetIndex {
    base_offset: Offset,
    entries: Vec<Entry>,
}

impl OffsetIndex {
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
    /// Why the index must be rebuilt from the log of `log_bytes` bytes.
    pub(super) fn load(base_offset: Offset, bytes: &[u8], log_bytes: u64) -> Result<Self, IndexDefect> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Err(IndexDefect::Ragged);
        }
        let used = used_bytes(bytes, ENTRY_BYTES);
        let mut entries: Vec<Entry> = Vec::with_capacity(used / ENTRY_BYTES);
        for raw in bytes[..used].chunks_exact(ENTRY_BYTES) {
            let (offset, position) = raw.split_at(4);
            let entry = Entry {
                relative_offset: be_u32(offset),
                position: be_u32(position),
            };
            if entries.last().is_some_and(|last| {
                entry.relative_offset <= last.relative_offset || entry.position <= last.position
            }) || i32::try_from(entry.relative_offset).is_err()
            {
                return Err(IndexDefect::OutOfOrder);
            }
            if u64::from(entry.position) >= log_bytes {
                return Err(IndexDefect::PastEnd);
            }
            entries.push(entry);
        }
        Ok(Self { base_offset, entries })
    }

    /// Adds the batch that ends with `last_offset` and starts at `position`; both lie above all
    /// earlier ones, since a log only grows.
    pub(super) fn append(&mut self, last_offset: Offset, position: u32) {
        let relative_offset = u32::try_from(last_offset.0 - self.base_offset.0)
            .expect("a segment is rolled before its relative offsets pass i32::MAX");
        let entry = Entry {
            relative_offset,
            position,
        };
        debug_assert!(self.entries.last().is_none_or(|last| last.position < position));
        self.entries.push(entry);
    }

    /// The last entry whose batch ends at or below `offset`.
    pub(super) fn floor(&self, offset: Offset) -> Option<OffsetPosition> {
        let above = self
            .entries
            .partition_point(|e| self.base_offset.0 + i64::from(e.relative_offset) <= offset.0);
        above.checked_sub(1).map(|i| self.resolve(self.entries[i]))
    }

    /// An offset beyond a read of at most `max_bytes` that begins with the batch of `offset`, which is
    /// whole whatever its size; none where the read may reach the end.
    pub(super) fn beyond(&self, offset: Offset, max_bytes: u32) -> Option<Offset> {
        let base = self.base_offset.0;
        // The batch of the offset begins at the first entry that reaches it, or before.
        let at = self
            .entries
            .partition_point(|e| base + i64::from(e.relative_offset) < offset.0);
        let end = self.entries.get(at)?.position.saturating_add(max_bytes);
        let rest = self.entries.get(at + 1..)?;
        let beyond = rest.partition_point(|e| e.position < end);
        rest.get(beyond).map(|&entry| self.resolve(entry).offset)
    }

    pub(super) fn last(&self) -> Option<OffsetPosition> {
        self.entries.last().map(|&e| self.resolve(e))
    }

    /// Forgets the entries whose batches do not end below `offset`.
    pub(super) fn truncate_to(&mut self, offset: Offset) {
        let base = self.base_offset.0;
        let kept = self
            .entries
            .partition_point(|e| base + i64::from(e.relative_offset) < offset.0);
        self.entries.truncate(kept);
    }

    /// The bytes of the file.
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.entries.len() * ENTRY_BYTES);
        for entry in &self.entries {
            out.put_u32(entry.relative_offset);
            out.put_u32(entry.position);
        }
        out.freeze()
    }

    fn resolve(&self, entry: Entry) -> OffsetPosition {
        OffsetPosition {
            offset: self.base_offset.plus(i64::from(entry.relative_offset)),
            position: entry.position,
        }
    }
}

/// Bytes before the zero-filled tail, rounded up to whole entries of `entry_bytes`.
pub(super) fn used_bytes(bytes: &[u8], entry_bytes: usize) -> usize {
    let used = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    used.next_multiple_of(entry_bytes)
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, &b| sum << 8 | u32::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> OffsetIndex {
        let mut index = OffsetIndex::new(Offset(100));
        index.append(Offset(109), 500);
        index.append(Offset(119), 1000);
        index.append(Offset(130), 4096);
        index
    }

    #[test]
    fn floor_is_the_last_batch_that_ends_at_or_below() {
        let index = index();
        assert_eq!(index.floor(Offset(108)), None);
        assert_eq!(index.floor(Offset(109)).unwrap().position, 500);
        assert_eq!(index.floor(Offset(129)).unwrap().position, 1000);
        assert_eq!(index.floor(Offset(9999)), index.last());
    }

    #[test]
    fn encoded_entries_load_with_and_without_a_preallocated_tail() {
        let mut bytes = index().encode().to_vec();
        assert_eq!(bytes.len(), 24);
        assert_eq!(&bytes[..8], &[0, 0, 0, 9, 0, 0, 1, 0xf4]);
        let loaded = OffsetIndex::load(Offset(100), &bytes, 5000).unwrap();
        assert_eq!(loaded.entries, index().entries);
        // As large as Kafka makes them, where that does not take minutes.
        bytes.resize(if cfg!(miri) { 8 * 1000 } else { 10_485_760 }, 0);
        let loaded = OffsetIndex::load(Offset(100), &bytes, 5000).unwrap();
        assert_eq!(loaded.entries, index().entries);
        assert!(
            OffsetIndex::load(Offset(0), &[0; 80], 0)
                .unwrap()
                .last()
                .is_none()
        );
    }

    #[test]
    fn doubtful_bytes_are_refused() {
        let good = index().encode();
        assert_eq!(
            OffsetIndex::load(Offset(100), &good[..23], 5000).unwrap_err(),
            IndexDefect::Ragged
        );
        assert_eq!(
            OffsetIndex::load(Offset(100), &good, 4096).unwrap_err(),
            IndexDefect::PastEnd
        );
        let mut swapped = good.to_vec();
        swapped[..16].rotate_left(8);
        assert_eq!(
            OffsetIndex::load(Offset(100), &swapped, 5000).unwrap_err(),
            IndexDefect::OutOfOrder
        );
        let hole = [&good[..8], &[0; 8], &good[16..]].concat();
        assert_eq!(
            OffsetIndex::load(Offset(100), &hole, 5000).unwrap_err(),
            IndexDefect::OutOfOrder
        );
    }

    #[test]
    fn truncation_forgets_entries_at_and_above() {
        let mut index = index();
        index.truncate_to(Offset(119));
        assert_eq!(index.last().unwrap().offset, Offset(109));
    }
}
