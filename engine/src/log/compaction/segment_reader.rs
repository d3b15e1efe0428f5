//! Reads a segment batch by batch, each verified, through a bounded buffer.
//!
//! Holds a chunk, or the one batch that is larger. Knows nothing of what the batches mean. Tested
//! through `tests/log_compaction.rs`.

use std::path::{Path, PathBuf};

use super::super::file_name::FileKind;
use super::super::recovery::{Defect, OffsetRange, Verdict, examine};
use super::cleaner::{CompactionError, Pace, damaged, io_error};
use super::job::DirtySegment;
use crate::io::{FileId, OpenMode, Storage};
use crate::record::RecordBatch;
use crate::types::Offset;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct SegmentReader {
    file: FileId,
    path: PathBuf,
    /// Of the next batch.
    position: u64,
    end: u64,
    offsets: OffsetRange,
    buffer: Vec<u8>,
    /// Where the next batch begins in the buffer.
    at: usize,
}

impl SegmentReader {
    pub(super) fn open(
        dir: &Path,
        segment: DirtySegment,
        file: FileId,
        storage: &mut dyn Storage,
    ) -> Result<Self, CompactionError> {
        let path = FileKind::Log.path(dir, segment.base_offset);
        let opened = storage.open(file, &path, OpenMode::Existing);
        opened.map_err(|source| io_error("open", &path, source))?;
        Ok(Self {
            file,
            path,
            position: 0,
            end: u64::from(segment.size_bytes),
            offsets: OffsetRange {
                from: segment.base_offset,
                limit: segment.next_base,
            },
            buffer: Vec::new(),
            at: 0,
        })
    }

    pub(super) fn close(&self, storage: &mut dyn Storage) {
        storage.close(self.file);
    }

    /// Bytes of the batches that were given out.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch, and whether it is the last; none at the end.
    pub(super) fn next(
        &mut self,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<Option<(RecordBatch<'_>, bool)>, CompactionError> {
        if self.position == self.end {
            return Ok(None);
        }
        let (len_bytes, next_offset) = loop {
            let left = self.end - self.position;
            let needed = match examine(&self.buffer[self.at..], left, self.offsets) {
                Verdict::Batch(header) if self.buffer.len() - self.at >= header.len_bytes() => {
                    break (header.len_bytes(), header.next_offset());
                }
                Verdict::Batch(header) => header.len_bytes(),
                Verdict::NeedMore(needed) => needed,
                Verdict::End => return Err(damaged(&self.path, self.position, Defect::Torn)),
                Verdict::Bad(defect) => return Err(damaged(&self.path, self.position, defect)),
            };
            self.fill(needed, storage, pace)?;
        };
        let start = self.at;
        let verified = RecordBatch::parse(&self.buffer[start..]).and_then(|batch| batch.verify_crc());
        verified.map_err(|error| damaged(&self.path, self.position, error))?;
        self.at += len_bytes;
        self.position += len_bytes as u64;
        self.offsets.from = Offset(next_offset.0);
        let batch = RecordBatch::parse(&self.buffer[start..]).expect("it was just parsed");
        Ok(Some((batch, self.position == self.end)))
    }

    /// Reads until `needed` bytes of the next batch are at hand, which the file has.
    fn fill(
        &mut self,
        needed: usize,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<(), CompactionError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let have = self.buffer.len();
        let position = self.position + have as u64;
        let left = usize::try_from(self.end - position).unwrap_or(usize::MAX);
        let wanted = (needed - have).max(CHUNK_BYTES).min(left);
        self.buffer.resize(have + wanted, 0);
        let read = storage.read_at(self.file, position, &mut self.buffer[have..]);
        let read = read.map_err(|source| io_error("read", &self.path, source))?;
        self.buffer.truncate(have + read);
        if self.buffer.len() < needed {
            return Err(damaged(&self.path, self.position, Defect::Torn));
        }
        if pace(read as u64) {
            Ok(())
        } else {
            Err(CompactionError::Stopped)
        }
    }
}
