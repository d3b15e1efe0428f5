//! A position that an index names, and what the bytes there make of it.
//!
//! Owns the one rule by which an index is followed: a batch of the segment that ends at or below
//! the offset must begin at the position. Whoever is not borne out walks the segment from its
//! start. An index may have been damaged while the log was closed, and only its last entry is
//! looked at when the log is opened. Tested in `tests/log_read.rs`, `tests/log_recovery.rs` and
//! `tests/log_truncate.rs`.

use std::io;

use super::log_segment::LogSegment;
use super::recovery::{OffsetRange, Verdict, examine};
use crate::io::{FileId, Storage};
use crate::record::{BATCH_HEADER_LEN, BatchHeader};
use crate::types::Offset;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexHint {
    file: FileId,
    position: u64,
    /// The offsets of the batch there.
    offsets: OffsetRange,
}

impl IndexHint {
    /// What the index of `segment` says about the last batches that end at or below `offset`; none
    /// where it says nothing, so that the start of the segment is where to begin.
    pub(super) fn floor(segment: &LogSegment, offset: Offset) -> Option<Self> {
        let entry = segment.offset_index.floor(offset)?;
        Some(Self {
            file: segment.file,
            position: u64::from(entry.position),
            offsets: OffsetRange {
                from: segment.base_offset,
                limit: Offset(offset.0.saturating_add(1)),
            },
        })
    }

    /// Bytes from the start of the segment file; evidence only when borne out.
    pub(super) fn position(self) -> u64 {
        self.position
    }

    /// Whether `bytes`, read at the position, bear it out; `None` if they are too few to tell. The
    /// data of the segment ends at `end`.
    pub(super) fn borne_out(self, bytes: &[u8], end: u64) -> Option<bool> {
        match examine(bytes, end.saturating_sub(self.position), self.offsets) {
            Verdict::Batch(_) => Some(true),
            Verdict::End | Verdict::Bad(_) => Some(false),
            Verdict::NeedMore(_) => None,
        }
    }

    /// The header at the position, if it bears it out. The data of the segment ends at `end`.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub(super) fn read_header(self, storage: &mut dyn Storage, end: u64) -> io::Result<Option<BatchHeader>> {
        let mut bytes = [0; BATCH_HEADER_LEN];
        let read = storage.read_at(self.file, self.position, &mut bytes)?;
        let bytes = &bytes[..read];
        match examine(bytes, end.saturating_sub(self.position), self.offsets) {
            Verdict::Batch(header) => Ok(Some(*header)),
            Verdict::End | Verdict::Bad(_) | Verdict::NeedMore(_) => Ok(None),
        }
    }
}
