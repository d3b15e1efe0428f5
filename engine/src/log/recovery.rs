//! What the bytes of a segment say: a batch, more bytes needed, the end, or damage.
//!
//! Pure functions over bytes, and [`walk`], which feeds them from a file. A walk stops at the
//! first batch that makes no sense; zeros to the end are a normal tail, since files may be
//! extended ahead of the data. What lies between headers is read only where a checksum is to hold.
//! Knows no indexes and decides nothing about what it finds. Memory is bounded by the chunk, whatever
//! lengths the bytes claim. Tested in `tests/log_recovery.rs`, `tests/log_recovery_point.rs` and by fuzzing.

use std::io;

use crate::io::{FileId, Storage};
use crate::record::{BATCH_HEADER_LEN, BatchError, BatchHeader, RecordBatch};
use crate::types::Offset;

/// Bytes read at once; a batch that is larger is checked in pieces of this size.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;
/// Bytes read at a header that lies far from the one before: a page, the least that a disk reads.
const HEADER_CHUNK_BYTES: usize = 4096;
/// The largest batch that is read over rather than skipped: a read costs as much as a few thousand bytes of one.
const READ_OVER_BYTES_MAX: usize = 2 * HEADER_CHUNK_BYTES;
/// Where the bytes begin that the checksum covers.
const CRC_START: usize = 21;
/// The largest batch looked into where only headers matter: a control batch has two short fields.
const CONTROL_BYTES_MAX: usize = 1024;

/// Why a batch makes no sense where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The batch itself.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The file ends within the batch: a torn write.
    #[error("the file ends within the batch")]
    Torn,
    /// The batch's offsets do not lie above those before it.
    #[error("base offset {base_offset} lies below {expected}")]
    OffsetBack {
        /// The batch's.
        base_offset: Offset,
        /// The least it may be.
        expected: Offset,
    },
    /// The batches end here, and there were more.
    #[error("the batches up to offset {until} are missing")]
    Missing {
        /// Exclusive.
        until: Offset,
    },
    /// The batch reaches into the next segment, or further than a segment can say.
    #[error("last offset {last_offset} reaches {limit}")]
    OffsetBeyond {
        /// The batch's.
        last_offset: Offset,
        /// What it must lie below.
        limit: Offset,
    },
}

/// What bytes are, judged from their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// A header that makes sense, of a batch that lies whole in the file.
    Batch(&'a BatchHeader),
    /// So many bytes are needed to tell.
    NeedMore(usize),
    /// The end of the data: of the file, or zeros.
    End,
    /// Damage.
    Bad(Defect),
}

/// The offsets a batch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffsetRange {
    pub(super) from: Offset,
    /// Exclusive.
    pub(super) limit: Offset,
}

/// Judges the header at the start of `bytes`, `left_bytes` before the end of the file.
pub(super) fn examine(bytes: &[u8], left_bytes: u64, range: OffsetRange) -> Verdict<'_> {
    let header_bytes = usize::try_from(left_bytes).map_or(BATCH_HEADER_LEN, |n| n.min(BATCH_HEADER_LEN));
    let Some(start) = bytes.get(..header_bytes) else {
        return Verdict::NeedMore(header_bytes);
    };
    if start.iter().all(|&b| b == 0) {
        return Verdict::End;
    }
    if header_bytes < BATCH_HEADER_LEN {
        return Verdict::Bad(Defect::Torn);
    }
    let header = match BatchHeader::peek(start) {
        Ok(header) => header,
        Err(error) => return Verdict::Bad(error.into()),
    };
    if header.len_bytes() as u64 > left_bytes {
        return Verdict::Bad(Defect::Torn);
    }
    let last_offset_delta = header.last_offset_delta();
    if last_offset_delta < 0 {
        return Verdict::Bad(BatchError::LastOffsetDelta { last_offset_delta }.into());
    }
    if header.records_count() < 0 {
        return Verdict::Bad(
            BatchError::RecordsCount {
                records_count: header.records_count(),
            }
            .into(),
        );
    }
    let (base_offset, last_offset) = (header.base_offset(), header.last_offset());
    if base_offset < range.from {
        return Verdict::Bad(Defect::OffsetBack {
            base_offset,
            expected: range.from,
        });
    }
    if last_offset >= range.limit {
        return Verdict::Bad(Defect::OffsetBeyond {
            last_offset,
            limit: range.limit,
        });
    }
    Verdict::Batch(header)
}

/// The part of a file to walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) file: FileId,
    /// Where a batch begins.
    pub(super) position: u64,
    /// The end of the file, or of the part that matters.
    pub(super) end: u64,
    pub(super) offsets: OffsetRange,
    /// Checksums must hold from here on; none need to where there is no such offset.
    ///
    /// A batch that ends at or below it needs a header that makes sense and that the next one follows
    /// without a gap: a header that is wrong about its end does not have that. Where it has not, as at a
    /// gap that compaction left, its checksum must hold, and so must a control batch's, which says what
    /// becomes of others.
    pub(super) verify_from: Option<Offset>,
}

impl Walk {
    /// How much to read at a header that is not at hand, behind a batch of so many bytes that ended before
    /// `next_offset`.
    fn chunk_bytes(&self, before_bytes: usize, next_offset: Offset) -> usize {
        let is_header_enough = self.verify_from.is_none_or(|from| next_offset < from);
        if is_header_enough && before_bytes > READ_OVER_BYTES_MAX {
            HEADER_CHUNK_BYTES
        } else {
            CHUNK_BYTES
        }
    }
}

/// Where a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkEnd {
    /// After the last batch that makes sense.
    pub(super) position: u64,
    /// After the last offset of that batch.
    pub(super) next_offset: Offset,
    /// What lies at the position, unless it is the end.
    pub(super) defect: Option<Defect>,
    /// Of the batches before it, those whose checksums hold.
    pub(super) verified_bytes: u64,
}

/// Walks the batches of a file and shows each to `visit`, with what was read of it (all of it for
/// a control batch), until `visit` answers false, the data ends, or a batch makes no sense.
///
/// # Errors
///
/// Those of reading.
pub(super) fn walk(
    storage: &mut dyn Storage,
    walk: Walk,
    mut visit: impl FnMut(&BatchHeader, &[u8], u64) -> bool,
) -> io::Result<WalkEnd> {
    let mut window = Window {
        file: walk.file,
        end: walk.end,
        start: walk.position,
        bytes: Vec::new(),
    };
    let mut at = WalkEnd {
        position: walk.position,
        next_offset: walk.offsets.from,
        defect: None,
        verified_bytes: 0,
    };
    // Whatever lies before the first.
    let mut before_bytes = usize::MAX;
    loop {
        let offsets = OffsetRange {
            from: at.next_offset,
            ..walk.offsets
        };
        let left = walk.end.saturating_sub(at.position);
        let ended = |defect| Ok(WalkEnd { defect, ..at });
        let header = match examine(window.from(at.position), left, offsets) {
            Verdict::NeedMore(needed) => {
                let chunk_bytes = walk.chunk_bytes(before_bytes, at.next_offset);
                window.fill(storage, at.position, chunk_bytes)?;
                if window.bytes.len() < needed {
                    return ended(Some(Defect::Torn));
                }
                continue;
            }
            Verdict::End => return Ok(at),
            Verdict::Bad(defect) => return ended(Some(defect)),
            Verdict::Batch(header) => *header,
        };
        let len_bytes = header.len_bytes();
        let is_marker = header.attributes().is_control() && len_bytes <= CONTROL_BYTES_MAX;
        let is_verified = match walk.verify_from {
            Some(from) if header.next_offset() <= from && !is_marker => {
                !leads_on(storage, &mut window, &walk, at.position, &header)?
            }
            from => from.is_some(),
        };
        if (is_verified || is_marker)
            && window.from(at.position).len() < len_bytes
            && len_bytes <= CHUNK_BYTES
        {
            window.fill(storage, at.position, CHUNK_BYTES)?;
        }
        if is_verified && let Err(defect) = verify(storage, &mut window, at.position, &header)? {
            return ended(Some(defect));
        }
        let seen = window.from(at.position);
        if !visit(&header, &seen[..seen.len().min(len_bytes)], at.position) {
            return Ok(at);
        }
        at.position += len_bytes as u64;
        at.next_offset = header.next_offset();
        at.verified_bytes += if is_verified { len_bytes as u64 } else { 0 };
        before_bytes = len_bytes;
    }
}

/// Whether the batch at `position` is followed by another without a gap.
fn leads_on(
    storage: &mut dyn Storage,
    window: &mut Window,
    walk: &Walk,
    position: u64,
    header: &BatchHeader,
) -> io::Result<bool> {
    let (len_bytes, next_offset) = (header.len_bytes(), header.next_offset());
    let next = position + len_bytes as u64;
    if window.from(next).len() < BATCH_HEADER_LEN {
        window.fill(storage, next, walk.chunk_bytes(len_bytes, next_offset))?;
    }
    let next = BatchHeader::peek(window.from(next));
    Ok(next.is_ok_and(|next| next.base_offset() == next_offset))
}

/// Verifies the checksum of the batch at `position`, in pieces where it is larger than a chunk.
fn verify(
    storage: &mut dyn Storage,
    window: &mut Window,
    position: u64,
    header: &BatchHeader,
) -> io::Result<Result<(), Defect>> {
    let len_bytes = header.len_bytes();
    if window.from(position).len() >= len_bytes {
        let verified = RecordBatch::parse(window.from(position)).and_then(|batch| batch.verify_crc());
        return Ok(verified.map_err(Defect::from));
    }
    let end = position + len_bytes as u64;
    let mut at = position + CRC_START as u64;
    let mut computed = 0;
    while at < end {
        if window.from(at).is_empty() {
            window.fill(storage, at, CHUNK_BYTES)?;
        }
        let piece = window.from(at);
        if piece.is_empty() {
            return Ok(Err(Defect::Torn));
        }
        let piece = &piece[..usize::try_from(end - at).map_or(piece.len(), |left| left.min(piece.len()))];
        computed = crc32c::crc32c_append(computed, piece);
        at += piece.len() as u64;
    }
    let stored = header.crc();
    Ok(if stored == computed {
        Ok(())
    } else {
        Err(BatchError::Crc { stored, computed }.into())
    })
}

/// A chunk of the file.
struct Window {
    file: FileId,
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// What is at hand from `position` on.
    fn from(&self, position: u64) -> &[u8] {
        let skip = position
            .checked_sub(self.start)
            .and_then(|n| usize::try_from(n).ok());
        skip.and_then(|skip| self.bytes.get(skip..)).unwrap_or(&[])
    }

    /// Reads a chunk of at most `chunk_bytes` from `position` on.
    fn fill(&mut self, storage: &mut dyn Storage, position: u64, chunk_bytes: usize) -> io::Result<()> {
        let left = usize::try_from(self.end.saturating_sub(position)).unwrap_or(chunk_bytes);
        self.bytes.resize(left.min(chunk_bytes), 0);
        let read = storage.read_at(self.file, position, &mut self.bytes)?;
        self.bytes.truncate(read);
        self.start = position;
        Ok(())
    }
}
