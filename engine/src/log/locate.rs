//! From a timestamp to an offset: which part of which file to look through, and the look.
//!
//! Owns the search by time. Reads no file: the executor reads the part of a [`ScanPlan`] in chunks
//! and gives them to [`ScanPlan::search`], a pure function. Tested in `tests/log_read.rs`.

use super::index_hint::IndexHint;
use super::log::Log;
use super::log_segment::LogSegment;
use crate::io::FileId;
use crate::record::{BATCH_HEADER_LEN, BatchError, BatchHeader, RecordBatch, RecordError};
use crate::types::{Offset, TimestampMs};

/// Bytes of batches read at once.
const SCAN_BYTES: usize = 64 * 1024;
/// A batch that is looked into may unpack to at most so much.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// A part of a file that holds the first record at or after a timestamp, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPlan {
    /// The segment.
    pub file: FileId,
    /// Where the next chunk for [`search`](Self::search) begins.
    pub position: u64,
    /// How long that chunk should be.
    pub len_bytes: usize,
    /// The end of what is written there.
    pub end_position: u64,
    /// What to look for.
    pub timestamp: TimestampMs,
    /// Records below this offset do not count.
    pub from_offset: Offset,
    /// Where to locate from again if nothing is found.
    pub next_segment: Option<Offset>,
    /// The position is what the index says, and no batch has borne it out yet.
    from_index: Option<IndexHint>,
}

/// What a chunk tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The record.
    Found {
        /// Its offset.
        offset: Offset,
        /// Its timestamp, at or after the one looked for.
        timestamp: TimestampMs,
    },
    /// Read on where the plan now says.
    NeedMore,
    /// No record in this segment is late enough; those of the next one may be.
    NotFound,
}

/// Why a chunk cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// A batch is damaged.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Its records are damaged, or compressed by a codec that is not compiled in.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Log {
    /// Where to look for the first record at or above `from_offset` with a timestamp at or after
    /// `timestamp`; `None` where there is none.
    #[must_use]
    pub fn locate_timestamp(&self, timestamp: TimestampMs, from_offset: Offset) -> Option<ScanPlan> {
        let from_offset = from_offset.max(self.log_start_offset);
        let late = |segment: &&LogSegment| {
            segment
                .max_timestamp()
                .is_some_and(|max| max.timestamp >= timestamp)
        };
        let segment = self
            .segments
            .range_from(from_offset)
            .find(late)
            .filter(|s| self.data_end(s) > 0)?;
        Some(self.scan_plan(segment, timestamp, from_offset))
    }

    /// Where to look for the record with the largest timestamp, which is the plan's; `None` for a log
    /// without timestamps.
    #[must_use]
    pub fn locate_max_timestamp(&self) -> Option<ScanPlan> {
        let written = |segment: &&LogSegment| self.data_end(segment) > 0;
        let segments = self.segments.range_from(self.log_start_offset).filter(written);
        let with_max = segments.filter_map(|segment| Some((segment, segment.max_timestamp()?.timestamp)));
        // The first of equals: the record that reached the timestamp first.
        let (segment, max) = with_max.reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        Some(self.scan_plan(segment, max, self.log_start_offset))
    }

    fn scan_plan(&self, segment: &LogSegment, timestamp: TimestampMs, from_offset: Offset) -> ScanPlan {
        // Up to the entry's batch no timestamp is larger than the entry's, and the entry's was first
        // reached by that batch itself.
        let offset = segment
            .time_index
            .floor(timestamp)
            .map_or(segment.base_offset, |entry| entry.offset);
        let from_index = IndexHint::floor(segment, offset.max(from_offset));
        ScanPlan {
            file: segment.file,
            position: from_index.map_or(0, IndexHint::position),
            len_bytes: SCAN_BYTES,
            end_position: self.data_end(segment),
            timestamp,
            from_offset,
            next_segment: self.segments.next_base(segment.base_offset),
            from_index,
        }
    }
}

impl ScanPlan {
    /// Looks through the batches in `chunk`, which was read at [`position`](Self::position). An index
    /// that is wrong costs time: the segment is then searched from its start.
    ///
    /// # Errors
    ///
    /// Where a batch that must be looked into is damaged, or the chunk is shorter than asked for.
    pub fn search(&mut self, chunk: &[u8]) -> Result<Scan, ScanError> {
        let hint = self.from_index.take();
        if hint.and_then(|hint| hint.borne_out(chunk, self.end_position)) == Some(false) {
            (self.position, self.len_bytes) = (0, SCAN_BYTES);
            return Ok(Scan::NeedMore);
        }
        let start = self.position;
        loop {
            if self.position >= self.end_position {
                return Ok(Scan::NotFound);
            }
            let skip = usize::try_from(self.position - start).unwrap_or(usize::MAX);
            let rest = chunk.get(skip..).unwrap_or(&[]);
            if rest.len() < BATCH_HEADER_LEN && skip > 0 {
                self.len_bytes = SCAN_BYTES;
                return Ok(Scan::NeedMore);
            }
            let header = BatchHeader::peek(rest)?;
            let len_bytes = header.len_bytes();
            if header.max_timestamp() >= self.timestamp && header.last_offset() >= self.from_offset {
                if rest.len() < len_bytes && (skip > 0 || self.len_bytes < len_bytes) {
                    self.len_bytes = len_bytes;
                    return Ok(Scan::NeedMore);
                }
                for record in RecordBatch::parse(rest)?.records(DECOMPRESSED_BYTES_MAX)?.iter() {
                    let record = record?;
                    if record.timestamp >= self.timestamp && record.offset >= self.from_offset {
                        return Ok(Scan::Found {
                            offset: record.offset,
                            timestamp: record.timestamp,
                        });
                    }
                }
            }
            self.position += len_bytes as u64;
        }
    }
}
