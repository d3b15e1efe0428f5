//! Opening a log: from the files of a directory, and the owner's checkpoints, to a [`Log`].
//!
//! Owns what the owner tells and is told, and the list of the files; `open_segments.rs` decides what
//! is verified, cut and dropped, `recovery.rs` says what bytes are. Indexes, snapshots and checkpoints are never evidence: on
//! any doubt they are made anew from the batches. Nothing below the recovery point is ever cut or
//! dropped. Blocking; tested in `tests/log_recovery.rs`,
//! `tests/log_recovery_point.rs` and `tests/log_model.rs`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::compaction::Cleaning;
use super::failed_sync;
use super::file_name::{FileKind, FileName, SYNC_FAILED};
use super::load_state::{Place, State, load_epochs, load_producers, remove_snapshots, settle_epochs};
use super::log::Log;
use super::recent_batches::RecentBatches;
use super::recovery::Defect;
use super::segment_checkpoint::SegmentCheckpoint;
use super::write_pipeline::{WritePipeline, WrittenEnd};
use crate::config::LogConfig;
use crate::io::{DirEntry, FileId, Storage};
use crate::types::{LogId, Offset, TimestampMs};

/// The largest index or snapshot file that is read; a larger one counts as damaged.
pub(super) const SIDE_FILE_BYTES_MAX: u64 = 64 << 20;

/// What the owner knows about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Everything below was flushed; not beyond what [`Log::flushed_offset`] has been.
    pub recovery_point: Offset,
    /// The first readable offset as last recorded.
    pub log_start_offset: Offset,
    /// [`Log::close`] succeeded and nothing was written since: batches need not be verified.
    pub clean_shutdown: bool,
    /// The broker's clock.
    pub now: TimestampMs,
}

/// What was found and done while opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments all of whose batches were looked at: verified from the recovery point on, their headers read
    /// below it.
    pub scanned_segments: usize,
    /// Bytes of batches whose checksums were verified.
    pub scanned_bytes: u64,
    /// Segments whose indexes were missing or doubtful and were made anew.
    pub rebuilt_indexes: usize,
    /// Where the log was cut.
    pub cut: Option<Cut>,
    /// Base offsets of segments that were removed: they lay beyond the cut, or the log ended below its start.
    pub dropped_segments: Vec<Offset>,
    /// The log ended below its recorded start and began anew there; what it had was removed.
    pub begun_anew: Option<BegunAnew>,
    /// Names in the directory that are not a log's; left alone.
    pub foreign: Vec<String>,
    /// After an unclean stop the log ended below its recovery point: records that were once flushed are
    /// gone, or a truncation was not recorded. The owner should say so.
    pub ended_below_recovery_point: bool,
}

/// A log that ended below its recorded start: a crash took what had been deleted on request and was not yet
/// stable, or the start that was recorded is wrong. The owner should say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunAnew {
    /// The first offset it had.
    pub first_offset: Offset,
    /// Where it ended, exclusive.
    pub end: Offset,
    /// Where it begins and ends now.
    pub log_start_offset: Offset,
}

/// The end of the good part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment file.
    pub path: PathBuf,
    /// Bytes that stayed.
    pub position: u64,
    /// Bytes that went, zeros included.
    pub lost_bytes: u64,
    /// What lay there; `None` for zeros.
    pub defect: Option<Defect>,
}

/// Why a log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Storage failed.
    #[error("{operation} {path}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Records that were flushed are damaged; nothing was changed. Restore the file, or remove the
    /// log's directory if a replica has the records.
    #[error("{path} is damaged at position {position} (offset {offset}), below the recovery point {recovery_point}: {defect}", path = path.display())]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// Bytes from its start.
        position: u64,
        /// The offset expected there.
        offset: Offset,
        /// Everything below was flushed.
        recovery_point: Offset,
        /// What lies there.
        defect: Defect,
    },
    /// The segment holds messages of a format before v2, which is not read.
    #[error("{path} holds messages of format v{magic}; only v2 is read", path = path.display())]
    OldFormat {
        /// The segment file.
        path: PathBuf,
        /// The format.
        magic: i8,
    },
    /// A compaction was interrupted half-way, and the new segment, which may be all there is of some
    /// records, is damaged; nothing was changed. Restore the file, or remove the log's directory if a
    /// replica has the records.
    #[error("{path}, left by an interrupted compaction, is damaged at position {position}", path = path.display())]
    DamagedSwap {
        /// The file.
        path: PathBuf,
        /// Bytes from its start.
        position: u64,
    },
    /// The file is larger than positions can say.
    #[error("{path} has {len_bytes} bytes, more than a segment can", path = path.display())]
    TooLarge {
        /// The segment file.
        path: PathBuf,
        /// Its size.
        len_bytes: u64,
    },
}

/// The files of the directory by what they are.
#[derive(Default)]
pub(super) struct Listing {
    numbered: BTreeMap<FileKind, BTreeMap<Offset, TimestampMs>>,
}

impl Listing {
    /// In order.
    pub(super) fn of(&self, kind: FileKind) -> Vec<Offset> {
        self.numbered
            .get(&kind)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect()
    }

    pub(super) fn has(&self, kind: FileKind, offset: Offset) -> bool {
        self.modified_at(kind, offset).is_some()
    }

    /// When the file was last modified, as storage tells; `None` where there is no such file.
    pub(super) fn modified_at(&self, kind: FileKind, offset: Offset) -> Option<TimestampMs> {
        self.numbered.get(&kind)?.get(&offset).copied()
    }
}

/// The work in progress.
pub(super) struct Opening<'a> {
    pub(super) dir: &'a Path,
    pub(super) id: LogId,
    pub(super) config: &'a LogConfig,
    pub(super) options: OpenOptions,
    pub(super) storage: &'a mut dyn Storage,
    pub(super) next_file: u32,
    /// What the batches that were walked have made of the producers and the epochs, up to the offset.
    pub(super) walked: Option<(Offset, State)>,
    /// Snapshots that do not read.
    pub(super) invalid_snapshots: Vec<Offset>,
    /// A sync of the log has failed: what memory shows may not be on disk.
    pub(super) sync_failed: bool,
    /// Damage does not keep the log from opening, wherever it is.
    pub(super) repair: bool,
    /// What is known of the segments.
    pub(super) known: SegmentCheckpoint,
    /// Another broker used the directory last: nothing was known of its segments.
    pub(super) adopted: bool,
    pub(super) report: RecoveryReport,
}

impl Log {
    /// Opens the log in `dir`, which is created if it does not exist, with a first segment at the
    /// log start offset if it has none.
    ///
    /// After an unclean stop the batches from the recovery point on are verified and the log is
    /// cut at the first that does not make sense. The rest is then durable. Of the batches below, in the
    /// segment that the recovery point lies in, the headers must make sense; damage behind those is noticed
    /// when it is read. After a failed sync the whole segment is verified.
    ///
    /// # Errors
    ///
    /// Where storage fails, or what was flushed is found damaged or missing. Nothing below the recovery
    /// point has been changed then.
    pub fn open(
        dir: &Path,
        id: LogId,
        config: LogConfig,
        options: OpenOptions,
        storage: &mut dyn Storage,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        Opening::new(dir, id, &config, options, storage).open()
    }

    /// Opens a log as [`open`](Self::open) does after an unclean stop, but verifies every batch of every segment, and
    /// cuts the log at the first that makes no sense or is missing even where it was flushed. The
    /// offsets from there on are given again.
    ///
    /// # Errors
    ///
    /// Where storage fails, or a segment is none of message format v2.
    pub fn repair(
        dir: &Path,
        id: LogId,
        config: LogConfig,
        options: OpenOptions,
        storage: &mut dyn Storage,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let mut opening = Opening::new(dir, id, &config, options, storage);
        opening.options.clean_shutdown = false;
        opening.repair = true;
        opening.open()
    }
}

impl<'a> Opening<'a> {
    fn new(
        dir: &'a Path,
        id: LogId,
        config: &'a LogConfig,
        options: OpenOptions,
        storage: &'a mut dyn Storage,
    ) -> Self {
        Self {
            dir,
            id,
            config,
            options,
            storage,
            next_file: 0,
            walked: None,
            invalid_snapshots: Vec::new(),
            sync_failed: false,
            repair: false,
            known: SegmentCheckpoint::default(),
            adopted: false,
            report: RecoveryReport::default(),
        }
    }

    fn open(mut self) -> Result<(Log, RecoveryReport), OpenError> {
        match self.run() {
            Ok(log) => Ok((log, self.report)),
            Err(error) => {
                self.close_files();
                Err(error)
            }
        }
    }
}

impl Opening<'_> {
    fn run(&mut self) -> Result<Log, OpenError> {
        let listing = self.list()?;
        let segments = self.open_segments(&listing)?;
        self.remove_orphans(&listing)?;
        let log_end_offset = segments.active().next_offset();
        let log_start_offset = self.options.log_start_offset.max(segments.first().base_offset);
        let place = Place {
            dir: self.dir,
            segments: &segments,
            log_start_offset,
        };
        let snapshots = listing.of(FileKind::Snapshot);
        let mut state = self.state_at(log_end_offset, Some(place), &snapshots, true)?;
        remove_snapshots(place, &snapshots, &self.invalid_snapshots, self.storage)?;
        let epochs = state.epochs.take().unwrap_or_default();
        let epochs = settle_epochs(place, epochs, self.storage)?;
        let mut producers = state.producers;
        producers.expire(self.options.now, self.config.producer_id_expiration_ms);
        if self.sync_failed {
            // Should the power bring it back, what is durable is only written once more.
            remove_if_there(failed_sync::marker(self.dir), self.storage)?;
        }
        let active = segments.active();
        let written_end = WrittenEnd {
            segment: active.base_offset,
            position: active.size_bytes(),
        };
        Ok(Log {
            id: self.id,
            dir: self.dir.to_owned(),
            config: self.config.clone().bounded(),
            segments,
            segment_checkpoint: std::mem::take(&mut self.known),
            producers,
            epochs,
            epochs_changed: false,
            recent: RecentBatches::default(),
            pipeline: WritePipeline::new(self.id, log_end_offset, written_end),
            cleaning: Cleaning::new(log_start_offset),
            log_start_offset,
            log_end_offset,
            next_file: self.next_file,
        })
    }

    /// The state after the batches below `end`, which are those of `place`: that of the walk, where it
    /// has come that far, or else from the files. The epochs are part of it where they are wanted, or
    /// were before.
    pub(super) fn state_at(
        &mut self,
        end: Offset,
        place: Option<Place<'_>>,
        snapshots: &[Offset],
        with_epochs: bool,
    ) -> Result<State, OpenError> {
        let so_far = place.map_or(end, |place| place.log_end_offset());
        // After a gap a snapshot knows more: a segment may be back that had been removed with others.
        let knows_more = snapshots.iter().any(|&offset| offset > so_far && offset <= end);
        let walked = self.walked.take();
        let (producers, epochs) = match walked {
            Some((at, state)) if at == so_far && !knows_more => (Some(state.producers), state.epochs),
            Some((_, state)) => (None, state.epochs),
            None => (None, None),
        };
        let producers = match producers {
            Some(producers) => producers,
            None => {
                let start = place.map_or(end, |place| place.segments.first().base_offset);
                let invalid = &mut self.invalid_snapshots;
                load_producers(self.dir, place, (start, end), snapshots, invalid, self.storage)?
            }
        };
        let epochs = match epochs {
            None if with_epochs => Some(load_epochs(self.dir, place, self.storage)?),
            epochs => epochs,
        };
        Ok(State { producers, epochs })
    }

    /// Removes indexes whose segment is gone: a crash came between the two.
    fn remove_orphans(&mut self, listing: &Listing) -> Result<(), OpenError> {
        for kind in FileKind::INDEXES {
            for base in listing.of(kind) {
                if !listing.has(FileKind::Log, base) {
                    remove_if_there(kind.path(self.dir, base), self.storage)?;
                }
            }
        }
        Ok(())
    }

    /// Leaves no file open behind a log that does not open.
    fn close_files(&mut self) {
        for number in 0..self.next_file {
            self.storage.close(FileId { log: self.id, number });
        }
    }

    /// A number for a file that is to be opened.
    pub(super) fn new_file(&mut self) -> FileId {
        let number = self.next_file;
        self.next_file += 1;
        FileId { log: self.id, number }
    }

    fn entries(&mut self) -> Result<Vec<DirEntry>, OpenError> {
        let entries = self.storage.list(self.dir);
        entries.map_err(|source| io_error("list", self.dir.to_owned(), source))
    }

    fn list(&mut self) -> Result<Listing, OpenError> {
        let created = self.storage.create_dir(self.dir);
        created.map_err(|source| io_error("create the directory", self.dir.to_owned(), source))?;
        let mut entries = self.entries()?;
        self.load_segment_checkpoint()?;
        self.finish_removal(&entries)?;
        if self.finish_swaps(&entries)? {
            entries = self.entries()?;
        }
        let mut listing = Listing::default();
        for entry in entries {
            match FileName::parse(&entry.name) {
                _ if entry.is_dir => self.report.foreign.push(entry.name),
                FileName::Numbered(kind, offset) => {
                    let offsets = listing.numbered.entry(kind).or_default();
                    offsets.insert(offset, entry.modified_at);
                }
                FileName::Fixed => self.sync_failed |= entry.name == SYNC_FAILED,
                // A cleaner of a deleted log of this name may be removing it, too.
                FileName::Temporary => remove_if_there(self.dir.join(entry.name), self.storage)?,
                FileName::Suffixed(..) | FileName::Foreign => self.report.foreign.push(entry.name),
            }
        }
        Ok(listing)
    }
}

pub(super) fn io_error(operation: &'static str, path: PathBuf, source: io::Error) -> OpenError {
    OpenError::Io {
        operation,
        path,
        source,
    }
}

/// Makes a small file say `bytes`, or not be there.
pub(super) fn put_or_remove(path: &Path, bytes: Option<&[u8]>, storage: &mut dyn Storage) -> io::Result<()> {
    match bytes {
        Some(bytes) => storage.put_file(path, bytes),
        None => match storage.remove_file(path) {
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
    }
}

/// Makes removals in `dir` durable: a file that comes back with the power would lie in the way of what is
/// appended meanwhile.
pub(super) fn sync_names(dir: &Path, storage: &mut dyn Storage) -> Result<(), OpenError> {
    let synced = storage.create_dir(dir);
    synced.map_err(|source| io_error("sync", dir.to_owned(), source))
}

pub(super) fn remove_if_there(path: PathBuf, storage: &mut dyn Storage) -> Result<(), OpenError> {
    put_or_remove(&path, None, storage).map_err(|source| io_error("remove", path, source))
}
