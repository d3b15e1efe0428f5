//! What the bytes of a segment say: a batch, more bytes needed, the end, or damage.
//!
//! Pure functions over bytes, and [`walk`], which feeds them from a file. A walk stops at the
//! first batch that makes no sense; zeros to the end are a normal tail, since files may be
//! extended ahead of the data. Knows no indexes and decides nothing about what it finds. Memory
//! is bounded by the chunk, whatever lengths the bytes claim. Tested below, in
//! `tests/log_recovery.rs` and by fuzzing.

use std::io;

use crate::io::{FileId, Storage};
use crate::record::{BATCH_HEADER_LEN, BatchError, BatchHeader, RecordBatch};
use crate::types::Offset;

/// Bytes read at once; a batch that is larger is checked in pieces of this size.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;
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

/// How much of a batch is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Headers that make sense are enough.
    Headers,
    /// Checksums must hold.
    Checksums,
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
    pub(super) check: Check,
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
    };
    loop {
        let offsets = OffsetRange {
            from: at.next_offset,
            ..walk.offsets
        };
        let left = walk.end.saturating_sub(at.position);
        let header = match examine(window.from(at.position), left, offsets) {
            Verdict::NeedMore(needed) => {
                window.fill(storage, at.position)?;
                if window.bytes.len() < needed {
                    return Ok(WalkEnd {
                        defect: Some(Defect::Torn),
                        ..at
                    });
                }
                continue;
            }
            Verdict::End => return Ok(at),
            Verdict::Bad(defect) => {
                return Ok(WalkEnd {
                    defect: Some(defect),
                    ..at
                });
            }
            Verdict::Batch(header) => *header,
        };
        let len_bytes = header.len_bytes();
        let whole = walk.check == Check::Checksums
            || header.attributes().is_control() && len_bytes <= CONTROL_BYTES_MAX;
        if whole && window.from(at.position).len() < len_bytes && len_bytes <= CHUNK_BYTES {
            window.fill(storage, at.position)?;
        }
        if walk.check == Check::Checksums
            && let Err(error) = verify(storage, &mut window, at.position, &header)?
        {
            return Ok(WalkEnd {
                defect: Some(error),
                ..at
            });
        }
        let seen = window.from(at.position);
        if !visit(&header, &seen[..seen.len().min(len_bytes)], at.position) {
            return Ok(at);
        }
        at.position += len_bytes as u64;
        at.next_offset = header.next_offset();
    }
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
            window.fill(storage, at)?;
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

    /// Reads a chunk from `position` on.
    fn fill(&mut self, storage: &mut dyn Storage, position: u64) -> io::Result<()> {
        let left = usize::try_from(self.end.saturating_sub(position)).unwrap_or(CHUNK_BYTES);
        self.bytes.resize(left.min(CHUNK_BYTES), 0);
        let read = storage.read_at(self.file, position, &mut self.bytes)?;
        self.bytes.truncate(read);
        self.start = position;
        Ok(())
    }
}
