//! Writes one new segment: batches in, a durable file with its indexes out.
//!
//! Owns the `.cleaned` files until they are finished; an error or a stop removes them. Blocking; knows
//! nothing of what the batches are. Tested through `tests/log_compaction.rs`.

use std::path::{Path, PathBuf};

use super::super::file_name::FileKind;
use super::super::log_segment::{BatchFacts, LogSegment, SegmentPhase};
use super::super::txn_index::AbortedTxn;
use super::cleaner::{CompactionError, io_error};
use super::swap::{cleaned_path, remove_cleaned};
use crate::io::{FileId, OpenMode, Storage};
use crate::record::BatchHeader;
use crate::types::{Offset, TimestampMs};

/// Bytes collected before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// What positions in a segment may be: 32 bits with a sign in Apache Kafka.
const SEGMENT_BYTES_MAX: u32 = i32::MAX.cast_unsigned();

/// See the module.
pub(super) struct CleanedWriter {
    dir: PathBuf,
    path: PathBuf,
    segment: LogSegment,
    index_interval_bytes: u32,
    buffer: Vec<u8>,
    written: u64,
}

impl CleanedWriter {
    /// Begins the segment at `base_offset`, over whatever an earlier attempt has left.
    pub(super) fn create(
        dir: &Path,
        base_offset: Offset,
        file: FileId,
        index_interval_bytes: u32,
        now: TimestampMs,
        storage: &mut dyn Storage,
    ) -> Result<Self, CompactionError> {
        let writer = Self {
            dir: dir.to_owned(),
            path: cleaned_path(dir, FileKind::Log, base_offset),
            segment: LogSegment::new(base_offset, file, SegmentPhase::Sealed, now),
            index_interval_bytes,
            buffer: Vec::new(),
            written: 0,
        };
        remove_cleaned(dir, base_offset, storage);
        let created = storage.open(file, &writer.path, OpenMode::CreateNew);
        created.map_err(|source| io_error("create", &writer.path, source))?;
        Ok(writer)
    }

    /// Where the next batch is to be appended to; the caller tells of it by [`appended`](Self::appended).
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Takes in the batch that was appended to the buffer from `start` on.
    pub(super) fn appended(
        &mut self,
        start: usize,
        storage: &mut dyn Storage,
    ) -> Result<(), CompactionError> {
        let header = BatchHeader::peek(&self.buffer[start..]).expect("it was just written");
        let facts = BatchFacts::of(header);
        let size = self.segment.size_bytes().checked_add(facts.len_bytes);
        if size.is_none_or(|size| size > SEGMENT_BYTES_MAX) {
            return Err(CompactionError::TooLarge {
                path: self.path.clone(),
            });
        }
        self.segment.append(facts, self.index_interval_bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush(storage)?;
        }
        Ok(())
    }

    /// Notes a transaction whose abort marker was just appended.
    pub(super) fn note_aborted(&mut self, txn: AbortedTxn) {
        self.segment.txn_index.append(txn);
    }

    fn flush(&mut self, storage: &mut dyn Storage) -> Result<(), CompactionError> {
        let written = storage.write_at(self.segment.file, self.written, &self.buffer);
        written.map_err(|source| io_error("write", &self.path, source))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the segment and its indexes durable; nothing is left behind where that fails.
    pub(super) fn finish(mut self, storage: &mut dyn Storage) -> Result<LogSegment, CompactionError> {
        match self.make_durable(storage) {
            Ok(()) => Ok(self.segment),
            Err(error) => {
                self.discard(storage);
                Err(error)
            }
        }
    }

    fn make_durable(&mut self, storage: &mut dyn Storage) -> Result<(), CompactionError> {
        self.flush(storage)?;
        storage
            .sync(self.segment.file)
            .map_err(|source| io_error("sync", &self.path, source))?;
        storage.close(self.segment.file);
        for (kind, bytes) in self.segment.encode_indexes().0 {
            let Some(bytes) = bytes else { continue };
            let path = cleaned_path(&self.dir, kind, self.segment.base_offset);
            storage
                .put_file(&path, &bytes)
                .map_err(|source| io_error("write", &path, source))?;
        }
        self.segment.index_files = true;
        Ok(())
    }

    /// Gives up.
    pub(super) fn discard(&self, storage: &mut dyn Storage) {
        storage.close(self.segment.file);
        remove_cleaned(&self.dir, self.segment.base_offset, storage);
    }
}
