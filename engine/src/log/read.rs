//! From an offset to a range of one file: exact at the tail, else by way of the sparse index.
//!
//! Owns the plan of a read and the narrowing of it. Reads no file: where the index is too sparse,
//! the executor reads a little at [`ReadPlan::scan_position`] and gives it to
//! [`ReadPlan::narrow`], a pure function. A plan never reaches past its bound nor past what has
//! been written. Tested in `tests/log_read.rs`.

use super::index_hint::IndexHint;
use super::log::Log;
use super::log_segment::LogSegment;
use super::recovery::{Defect, OffsetRange, Verdict, examine};
use crate::io::FileId;
use crate::types::Offset;

/// Bytes of headers asked for at once while a plan is narrowed: more than an index interval, so
/// that one read is usually enough.
const SCAN_BYTES: u32 = 8 * 1024;

/// Why an offset cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} is not within {log_start_offset}..={log_end_offset}")]
pub struct ReadError {
    /// What was asked for.
    pub offset: Offset,
    /// The first readable offset.
    pub log_start_offset: Offset,
    /// The last offset that may be asked for.
    pub log_end_offset: Offset,
}

/// The bytes do not hold the batches that the log has written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at position {position}: {defect}")]
pub struct NarrowError {
    /// Bytes from the start of the file.
    pub position: u64,
    /// What is wrong.
    #[source]
    pub defect: Defect,
}

/// What narrowing found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// Position and length are final.
    Located,
    /// Read [`ReadPlan::scan_bytes`] at [`ReadPlan::scan_position`] and go on. That position lies
    /// above the one before, except once per plan, where it is 0 because the index was wrong.
    NeedMore,
    /// The segment holds nothing from the offset on; plan anew from this one.
    NextSegment(Offset),
    /// No whole batch from the offset on lies below the bound.
    Nothing,
}

/// A range of one file that holds what a reader asked for, or the way to find it.
///
/// The file stays readable until its `Close`; positions stay true until a truncation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// The segment.
    pub file: FileId,
    /// Where the batch that contains the offset starts; final once located.
    pub position: u64,
    /// From there on; at most what was asked for, except that the first batch is whole. It may end
    /// within a later batch. Final once located.
    pub len_bytes: u32,
    first_batch_bytes: u32,
    offset: Offset,
    bound: Offset,
    max_bytes: u32,
    scan_position: u64,
    /// The scan position is what the index says, and no batch has borne it out yet.
    from_index: Option<IndexHint>,
    /// No batch before this position passes the bound.
    safe_end: u64,
    /// The index says so of this position, too, and no batch has borne it out yet.
    safe_hint: Option<IndexHint>,
    /// The first offset the segment may hold.
    base_offset: Offset,
    /// What is written in this segment lies below it.
    limit: Offset,
    /// The end of what is written in this segment.
    data_end: u64,
    next_segment: Option<Offset>,
}

impl Log {
    /// Where to read from `offset` on, at most `max_bytes` (the first batch is whole whatever its
    /// size), nothing at or above `bound` (the high watermark, the last stable offset, or the log's
    /// end). `None`: nothing lies below the bound yet.
    ///
    /// # Errors
    ///
    /// Where `offset` lies below the log start or above the log's end.
    pub fn read_plan(
        &self,
        offset: Offset,
        max_bytes: u32,
        bound: Offset,
    ) -> Result<Option<ReadPlan>, ReadError> {
        let (log_start_offset, log_end_offset) = (self.log_start_offset, self.log_end_offset);
        if offset < log_start_offset || offset > log_end_offset {
            return Err(ReadError {
                offset,
                log_start_offset,
                log_end_offset,
            });
        }
        let bound = bound.min(self.pipeline.written);
        if offset >= bound {
            return Ok(None);
        }
        let Some(segment) = self.segments.floor(offset) else {
            return Ok(None);
        };
        let mut plan = self.plan_in(segment, offset, max_bytes, bound);
        if let Some(first) = self.recent.containing(offset) {
            if first.next_offset > bound {
                return Ok(None);
            }
            let last = self.recent.last_from(offset, bound, |batch| {
                plan.next_segment.is_none_or(|next| batch.base_offset < next)
                    && (batch.base_offset == first.base_offset
                        || batch.position - first.position + batch.len_bytes <= max_bytes)
            });
            let last = last.unwrap_or(first);
            plan.position = u64::from(first.position);
            plan.first_batch_bytes = first.len_bytes;
            plan.len_bytes = last.position - first.position + last.len_bytes;
            plan.safe_hint = None;
        }
        Ok(Some(plan))
    }

    fn plan_in(&self, segment: &LogSegment, offset: Offset, max_bytes: u32, bound: Offset) -> ReadPlan {
        let data_end = self.data_end(segment);
        let next_segment = self.segments.next_base(segment.base_offset);
        let (safe_end, safe_hint) = if bound >= segment.next_offset() {
            (data_end, None)
        } else if let Some(batch) = self.recent.containing(bound) {
            (u64::from(batch.position), None)
        } else {
            (0, IndexHint::floor(segment, Offset(bound.0 - 1)))
        };
        let from_index = IndexHint::floor(segment, offset);
        ReadPlan {
            file: segment.file,
            position: 0,
            len_bytes: 0,
            first_batch_bytes: 0,
            offset,
            bound,
            max_bytes,
            scan_position: from_index.map_or(0, IndexHint::position),
            from_index,
            safe_end: safe_end.min(data_end),
            safe_hint,
            base_offset: segment.base_offset,
            limit: next_segment.map_or(self.pipeline.written, |next| next.min(self.pipeline.written)),
            data_end,
            next_segment,
        }
    }

    /// The end of what is written in `segment`, as a position.
    pub(super) fn data_end(&self, segment: &LogSegment) -> u64 {
        let end = self.pipeline.written_end;
        match segment.base_offset.cmp(&end.segment) {
            std::cmp::Ordering::Less => u64::from(segment.size_bytes()),
            std::cmp::Ordering::Equal => u64::from(end.position),
            std::cmp::Ordering::Greater => 0,
        }
    }
}

impl ReadPlan {
    /// Whether position and length are final.
    #[must_use]
    pub fn is_located(&self) -> bool {
        self.has_first() && self.safe_hint.is_none()
    }

    /// Whether the batch that contains the offset has been found.
    fn has_first(&self) -> bool {
        self.len_bytes > 0
    }

    /// The length of the batch at the position: the least that is worth sending. 0 until located.
    #[must_use]
    pub fn first_batch_bytes(&self) -> u32 {
        self.first_batch_bytes
    }

    /// How many bytes there are to read: exact once located, before that at most so many.
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        if self.is_located() {
            return u64::from(self.len_bytes);
        }
        self.safe_hint
            .map_or(self.safe_end, IndexHint::position)
            .saturating_sub(self.scan_position)
            .min(u64::from(self.max_bytes))
    }

    /// Where the next chunk for [`narrow`](Self::narrow) begins.
    #[must_use]
    pub fn scan_position(&self) -> u64 {
        self.scan_position
    }

    /// How long that chunk should be.
    #[must_use]
    pub fn scan_bytes(&self) -> u32 {
        let left = self.data_end.saturating_sub(self.scan_position);
        u32::try_from(left).map_or(SCAN_BYTES, |left| left.min(SCAN_BYTES))
    }

    /// Walks the batch headers in `chunk`, which was read at [`scan_position`](Self::scan_position).
    /// An index that is wrong costs time, never records.
    ///
    /// # Errors
    ///
    /// Where the bytes are not what the log wrote, or the chunk is shorter than asked for.
    pub fn narrow(&mut self, chunk: &[u8]) -> Result<Narrow, NarrowError> {
        // An index may have been damaged while the log was closed. What it points to must be borne
        // out; if not, the segment is walked from its start, and the read ends with what was walked.
        // A short chunk says nothing about the index.
        if self.has_first()
            && let Some(hint) = self.safe_hint.take()
        {
            if hint.borne_out(chunk, self.data_end) == Some(true) {
                self.safe_end = hint.position();
            }
            return Ok(self.extend());
        }
        let hint = self.from_index.take();
        if hint.and_then(|hint| hint.borne_out(chunk, self.data_end)) == Some(false) {
            self.scan_position = 0;
            return Ok(Narrow::NeedMore);
        }
        let mut at = self.scan_position;
        loop {
            let skip = usize::try_from(at - self.scan_position).unwrap_or(usize::MAX);
            let rest = chunk.get(skip..).unwrap_or(&[]);
            if at >= self.data_end {
                return Ok(self.finish(self.next_segment.map_or(Narrow::Nothing, Narrow::NextSegment)));
            }
            // A batch that claims to lie beyond is damaged: it would be waited for in vain.
            let range = OffsetRange {
                from: self.base_offset,
                limit: self.limit,
            };
            let header = match examine(rest, self.data_end - at, range) {
                Verdict::Batch(header) => header,
                Verdict::NeedMore(_) if at == self.scan_position => {
                    return Err(NarrowError {
                        position: at,
                        defect: Defect::Torn,
                    });
                }
                Verdict::NeedMore(_) if self.has_first() => return Ok(self.finish(Narrow::Located)),
                Verdict::NeedMore(_) => {
                    self.scan_position = at;
                    return Ok(Narrow::NeedMore);
                }
                Verdict::End => {
                    return Err(NarrowError {
                        position: at,
                        defect: Defect::Torn,
                    });
                }
                Verdict::Bad(defect) => return Err(NarrowError { position: at, defect }),
            };
            let len_bytes = u32::try_from(header.len_bytes()).expect("an i32 and 12 fit u32");
            let below_bound = header.last_offset() < self.bound;
            if !self.has_first() {
                if header.last_offset() >= self.offset {
                    if !below_bound {
                        return Ok(Narrow::Nothing);
                    }
                    (self.position, self.len_bytes) = (at, len_bytes);
                    self.first_batch_bytes = len_bytes;
                }
            } else if below_bound && self.len_bytes.saturating_add(len_bytes) <= self.max_bytes {
                self.len_bytes += len_bytes;
            } else {
                return Ok(self.finish(Narrow::Located));
            }
            at += u64::from(len_bytes);
        }
    }

    /// Ends the walk: asks for what the index points to if that lies further.
    fn finish(&mut self, not_located: Narrow) -> Narrow {
        if !self.has_first() {
            return not_located;
        }
        let walked_end = self.position + u64::from(self.len_bytes);
        let further = |hint: &IndexHint| (walked_end + 1..self.data_end).contains(&hint.position());
        self.safe_hint = self.safe_hint.filter(further);
        if let Some(hint) = self.safe_hint
            && self.len_bytes < self.max_bytes
        {
            self.scan_position = hint.position();
            return Narrow::NeedMore;
        }
        self.safe_hint = None;
        self.extend()
    }

    /// Takes in what is known to lie below the bound without having been walked.
    fn extend(&mut self) -> Narrow {
        let safe = self
            .safe_end
            .saturating_sub(self.position)
            .min(u64::from(self.max_bytes));
        self.len_bytes = self.len_bytes.max(u32::try_from(safe).unwrap_or(u32::MAX));
        Narrow::Located
    }
}
