//! Truncation and the clean stop: the two commands that need the log to be still.
//!
//! Owns the order in which files are cut, removed and written, so that a crash between any two
//! steps leaves a log that opens. A truncation cuts the file as well: stale batches left beyond the
//! end could fit the next offset and rise from the dead at recovery. Blocking. Tested in
//! `tests/log_truncate.rs` and `tests/log_model.rs`.

use std::io;
use std::path::PathBuf;

use super::checkpoint::encode_leader_epochs;
use super::failed_sync;
use super::file_name::{FileKind, FileName, LEADER_EPOCH_CHECKPOINT, SEGMENT_CHECKPOINT};
use super::index_hint::IndexHint;
use super::load_state::{Place, load_producers, remove_snapshots};
use super::log::Log;
use super::log_segment::{BatchFacts, SegmentPhase};
use super::open::{OpenError, io_error, put_or_remove, remove_if_there, sync_names};
use super::producer_snapshot;
use super::recovery::{Defect, OffsetRange, Walk, walk};
use super::write_pipeline::{Poison, WrittenEnd};
use crate::io::Storage;
use crate::types::Offset;

/// Why a log is not truncated.
#[derive(Debug, thiserror::Error)]
pub enum TruncateError {
    /// Requests are in flight or waiting: see [`Log::is_idle`].
    #[error("requests are in flight")]
    Busy,
    /// The offset lies below the log's first.
    #[error("offset {offset} lies below the log start offset {log_start_offset}")]
    BelowLogStart {
        /// What was asked for.
        offset: Offset,
        /// The least it may be.
        log_start_offset: Offset,
    },
    /// A storage request failed before.
    #[error(transparent)]
    Poisoned(#[from] Poison),
    /// Storage failed half-way; the log must be opened anew.
    #[error("the log must be opened anew")]
    Storage(#[from] OpenError),
}

/// Why a log did not stop cleanly: it must be recovered when it is opened next.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// Requests are in flight or waiting: see [`Log::is_idle`].
    #[error("requests are in flight")]
    Busy,
    /// A storage request failed before.
    #[error(transparent)]
    Poisoned(#[from] Poison),
    /// Storage failed now.
    #[error("{operation} {path}", path = path.display())]
    Storage {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl Log {
    /// Removes every record at and above `offset`, and returns the new end: `offset`, or where the
    /// batch begins that contains it (but never below the log start). Unless there was nothing to
    /// remove, everything that stays is durable.
    ///
    /// # Durability
    ///
    /// The truncation itself survives power loss on return. The owner lowers its recorded recovery
    /// point to the new end before it appends.
    ///
    /// # Errors
    ///
    /// [`TruncateError::Storage`] leaves the log unusable until it is opened anew; the others leave
    /// it as it was.
    pub fn truncate_to(
        &mut self,
        offset: Offset,
        storage: &mut dyn Storage,
    ) -> Result<Offset, TruncateError> {
        if let Some(poison) = self.poison() {
            return Err(poison.clone().into());
        }
        if !self.is_idle() {
            return Err(TruncateError::Busy);
        }
        let log_start_offset = self.log_start_offset;
        if offset < log_start_offset {
            return Err(TruncateError::BelowLogStart {
                offset,
                log_start_offset,
            });
        }
        if offset >= self.log_end_offset {
            return Ok(self.log_end_offset);
        }
        // First: from here on, what is missing was not lost.
        self.segment_checkpoint.truncate_to(offset);
        let path = self.dir.join(SEGMENT_CHECKPOINT);
        let put = storage.put_file(&path, self.segment_checkpoint.encode().as_bytes());
        put.map_err(|source| io_error("write", path, source))?;
        self.drop_segments_above(offset, storage)?;
        self.epochs.truncate_from_end(offset);
        self.epochs_changed = false;
        // The directory becomes durable with it, and so do the removals.
        let path = self.dir.join(LEADER_EPOCH_CHECKPOINT);
        let put = storage.put_file(&path, encode_leader_epochs(&self.epochs).as_bytes());
        put.map_err(|source| io_error("write", path, source))?;
        self.cut_active(offset, storage)?;
        self.sync_unflushed(storage)
            .map_err(|(path, source)| io_error("sync", path, source))?;

        let active = self.segments.active();
        // Where the log start lies within the batch that goes, the offsets below it stay given.
        let end = active.next_offset().max(log_start_offset);
        let written_end = WrittenEnd {
            segment: active.base_offset,
            position: active.size_bytes(),
        };
        self.pipeline.reset(end, written_end);
        self.recent.truncate_to(end);
        self.cleaning.abandon(end);
        self.log_end_offset = end;
        let snapshots = self.list_snapshots(storage)?;
        let place = Place {
            dir: &self.dir,
            segments: &self.segments,
            log_start_offset,
        };
        let range = (place.segments.first().base_offset, place.log_end_offset());
        // Those below the first segment go with segments whose removal is under way: without its snapshot
        // one that a crash brings back would not tell how far the producers had come.
        let snapshots: Vec<_> = snapshots
            .into_iter()
            .filter(|&offset| offset >= range.0)
            .collect();
        let mut invalid = Vec::new();
        self.producers = load_producers(&self.dir, Some(place), range, &snapshots, &mut invalid, storage)?;
        remove_snapshots(place, &snapshots, &invalid, storage)?;
        if end > place.log_end_offset() {
            // The batches that stay lie below the log start, and the next start will let go of them.
            let path = FileKind::Snapshot.path(&self.dir, end);
            let put = storage.put_file(&path, &producer_snapshot::encode(&self.producers));
            put.map_err(|source| io_error("write", path, source))?;
        }
        Ok(end)
    }

    /// Stops cleanly: everything is made durable, the last segment is cut to its data, and indexes,
    /// producers' state and epochs are written, so that the next start need not look at batches. The
    /// log cannot be used afterwards.
    ///
    /// # Errors
    ///
    /// The log must then be recovered when it is opened next. After [`CloseError::Busy`] it goes on.
    pub fn close(&mut self, storage: &mut dyn Storage) -> Result<(), CloseError> {
        if !self.is_idle() {
            return Err(CloseError::Busy);
        }
        let poison = self.poison().cloned();
        if self.pipeline.take_sync_failed() {
            // No turn has come to do so; where it fails, there is no more to be done.
            let _ = storage.put_file(&failed_sync::marker(&self.dir), b"");
        }
        let closed = match poison {
            Some(poison) => Err(poison.into()),
            None => self.write_closing_files(storage),
        };
        for segment in self.segments.iter() {
            storage.close(segment.file);
        }
        closed
    }

    fn write_closing_files(&mut self, storage: &mut dyn Storage) -> Result<(), CloseError> {
        let active = self.segments.active();
        let path = FileKind::Log.path(&self.dir, active.base_offset);
        let cut = storage.set_len(active.file, u64::from(active.size_bytes()));
        let fail = |operation| {
            move |(path, source)| CloseError::Storage {
                operation,
                path,
                source,
            }
        };
        cut.map_err(|source| fail("cut")((path.clone(), source)))?;
        failed_sync::sync_or_mark(active.file, &self.dir, storage)
            .map_err(|source| fail("sync")((path, source)))?;
        self.sync_unflushed(storage).map_err(fail("sync"))?;
        let mut files = Vec::new();
        for segment in self
            .segments
            .iter_mut()
            .filter(|segment| segment.phase != SegmentPhase::Sealed)
        {
            let (indexes, record) = segment.encode_indexes();
            self.segment_checkpoint.set(segment.base_offset, record);
            for (kind, bytes) in indexes {
                files.push((kind.path(&self.dir, segment.base_offset), bytes));
            }
        }
        let segments = &self.segments;
        self.segment_checkpoint
            .retain(|base| segments.get(base).is_some());
        files.push((
            self.dir.join(SEGMENT_CHECKPOINT),
            Some(self.segment_checkpoint.encode().into()),
        ));
        files.push((
            FileKind::Snapshot.path(&self.dir, self.log_end_offset),
            Some(producer_snapshot::encode(&self.producers).into()),
        ));
        files.push((
            self.dir.join(LEADER_EPOCH_CHECKPOINT),
            Some(encode_leader_epochs(&self.epochs).into()),
        ));
        for (path, bytes) in files {
            put_or_remove(&path, bytes.as_deref(), storage)
                .map_err(|source| fail("write")((path, source)))?;
        }
        Ok(())
    }

    /// Removes the segments that begin above `offset`; the last that stays is appended to again.
    fn drop_segments_above(&mut self, offset: Offset, storage: &mut dyn Storage) -> Result<(), OpenError> {
        // From the last on, each for good before the next: whatever a crash leaves is a prefix of the log.
        while self.segments.active().base_offset > offset {
            let Some(segment) = self.segments.pop_last() else {
                break;
            };
            storage.close(segment.file);
            for kind in FileKind::ALL {
                remove_if_there(kind.path(&self.dir, segment.base_offset), storage)?;
            }
            sync_names(&self.dir, storage)?;
        }
        // Index files say that a segment is whole, which this one is no more.
        for path in self.index_paths(self.segments.active().base_offset) {
            remove_if_there(path, storage)?;
        }
        let active = self.segments.active_mut();
        active.phase = SegmentPhase::Open;
        active.index_files = false;
        Ok(())
    }

    /// Cuts the last segment and its indexes to the batches that end at or below `offset`.
    fn cut_active(&mut self, offset: Offset, storage: &mut dyn Storage) -> Result<(), OpenError> {
        let interval = self.config.index_interval_bytes;
        let segment = self.segments.active_mut();
        let end = u64::from(segment.size_bytes());
        let path = FileKind::Log.path(&self.dir, segment.base_offset);
        // The walk begins with the batch of the last entry that stays. If that is not what lies there,
        // the entries are made anew from the start.
        let below = Offset(offset.0 - 1);
        let header = match IndexHint::floor(segment, below) {
            Some(hint) => hint.read_header(storage, end),
            None => Ok(None),
        };
        let header = header.map_err(|source| io_error("read", path.clone(), source))?;
        let entry = segment.offset_index.floor(below);
        let matches = header.map(|header| header.last_offset()) == entry.map(|entry| entry.offset);
        let rewind_to = if matches { offset } else { segment.base_offset };
        segment.txn_index.truncate_to(offset);
        let position = u64::from(segment.rewind_below(rewind_to));
        let offsets = OffsetRange {
            from: segment.base_offset,
            limit: Offset(i64::MAX),
        };
        let bounds = Walk {
            file: segment.file,
            position,
            end,
            offsets,
            verify_from: None,
        };
        let walked = walk(storage, bounds, |header, _, _| {
            let stays = header.last_offset() < offset;
            if stays {
                segment.append(BatchFacts::of(header), interval);
            }
            stays
        });
        let walked = walked.map_err(|source| io_error("read", path.clone(), source))?;
        if walked.defect.is_some() || walked.position != u64::from(segment.size_bytes()) {
            let defect = walked.defect.unwrap_or(Defect::Torn);
            let (position, recovery_point) = (walked.position, self.pipeline.flushed);
            return Err(OpenError::Damaged {
                path,
                position,
                offset: walked.next_offset,
                recovery_point,
                defect,
            });
        }
        let cut = storage.set_len(segment.file, walked.position);
        cut.and_then(|()| failed_sync::sync_or_mark(segment.file, &self.dir, storage))
            .map_err(|source| io_error("cut", path, source))
    }

    fn sync_unflushed(&self, storage: &mut dyn Storage) -> Result<(), (PathBuf, io::Error)> {
        for segment in self
            .segments
            .iter()
            .filter(|segment| segment.next_offset() > self.pipeline.flushed)
        {
            let path = FileKind::Log.path(&self.dir, segment.base_offset);
            failed_sync::sync_or_mark(segment.file, &self.dir, storage).map_err(|source| (path, source))?;
        }
        Ok(())
    }

    fn list_snapshots(&self, storage: &mut dyn Storage) -> Result<Vec<Offset>, OpenError> {
        let entries = storage
            .list(&self.dir)
            .map_err(|source| io_error("list", self.dir.clone(), source))?;
        Ok(entries
            .iter()
            .filter_map(|entry| match FileName::parse(&entry.name) {
                FileName::Numbered(FileKind::Snapshot, offset) => Some(offset),
                _ => None,
            })
            .collect())
    }
}
