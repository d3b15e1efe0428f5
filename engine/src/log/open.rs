//! Opening a log: from the files of a directory, and the owner's checkpoints, to a [`Log`].
//!
//! Owns the decisions that recovery leaves open: what is scanned, what is cut, what is dropped.
//! `recovery.rs` says what bytes are. Indexes, snapshots and checkpoints are never evidence: on
//! any doubt they are made anew from the batches. Nothing below the recovery point is ever cut or
//! dropped. Blocking; tested in `tests/log_recovery.rs` and `tests/log_model.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::file_name::{FileKind, FileName};
use super::load_state::{Place, load_epochs, load_producers};
use super::log::Log;
use super::log_segment::{BatchFacts, LogSegment, SegmentPhase};
use super::log_segments::LogSegments;
use super::offset_index::OffsetIndex;
use super::recent_batches::RecentBatches;
use super::recovery::{Check, Defect, OffsetRange, Walk, WalkEnd, walk};
use super::time_index::TimeIndex;
use super::write_pipeline::{WritePipeline, WrittenEnd};
use crate::config::LogConfig;
use crate::io::{FileId, OpenMode, Storage};
use crate::record::{BATCH_HEADER_LEN, BatchError, BatchHeader};
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
    /// Segments whose batches were all verified.
    pub scanned_segments: usize,
    /// Bytes of batches verified.
    pub scanned_bytes: u64,
    /// Segments whose indexes were missing or doubtful and were made anew.
    pub rebuilt_indexes: usize,
    /// Where the log was cut.
    pub cut: Option<Cut>,
    /// Base offsets of segments that lay beyond the cut and were removed.
    pub dropped_segments: Vec<Offset>,
    /// Names in the directory that are not a log's; left alone.
    pub foreign: Vec<String>,
    /// The log ended below its recovery point: records that were once flushed are gone, or a
    /// truncation was not recorded. The owner should say so.
    pub ended_below_recovery_point: bool,
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
    #[error("{path} is damaged at position {position} (offset {offset}), below the recovery point {recovery_point}", path = path.display())]
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
        #[source]
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
    /// A compaction was interrupted half-way; open the directory once with what compacted it.
    #[error("{path} is left from an interrupted compaction", path = path.display())]
    UnfinishedCompaction {
        /// The file.
        path: PathBuf,
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
struct Listing {
    numbered: BTreeMap<FileKind, BTreeSet<Offset>>,
}

impl Listing {
    /// In order.
    fn of(&self, kind: FileKind) -> Vec<Offset> {
        self.numbered.get(&kind).into_iter().flatten().copied().collect()
    }

    fn has(&self, kind: FileKind, offset: Offset) -> bool {
        self.numbered
            .get(&kind)
            .is_some_and(|offsets| offsets.contains(&offset))
    }
}

/// The work in progress.
struct Opening<'a> {
    dir: &'a Path,
    id: LogId,
    config: &'a LogConfig,
    options: OpenOptions,
    storage: &'a mut dyn Storage,
    next_file: u32,
    /// Where the first segment begins that was verified.
    verified_from: Offset,
    report: RecoveryReport,
}

impl Log {
    /// Opens the log in `dir`, which is created if it does not exist, with a first segment at the
    /// log start offset if it has none.
    ///
    /// After an unclean stop the segments from the recovery point's on are verified and the log is
    /// cut at the first batch that does not make sense. The rest is then durable.
    ///
    /// # Errors
    ///
    /// Where storage fails, or what was flushed is damaged. Nothing below the recovery point has
    /// been changed then.
    pub fn open(
        dir: &Path,
        id: LogId,
        config: LogConfig,
        options: OpenOptions,
        storage: &mut dyn Storage,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let mut opening = Opening {
            dir,
            id,
            config: &config,
            options,
            storage,
            next_file: 0,
            verified_from: Offset(i64::MAX),
            report: RecoveryReport::default(),
        };
        let listing = opening.list()?;
        let segments = opening.open_segments(&listing)?;
        let log_end_offset = segments.active().next_offset();
        let log_start_offset = options.log_start_offset.max(segments.first().base_offset);
        let place = Place {
            dir,
            segments: &segments,
            log_start_offset,
        };
        let epochs = load_epochs(place, opening.verified_from, opening.storage)?;
        let snapshots = listing.of(FileKind::Snapshot);
        let producers = load_producers(place, &snapshots, opening.storage)?;
        let (next_file, report) = (opening.next_file, opening.report);
        let active = segments.active();
        let written_end = WrittenEnd {
            segment: active.base_offset,
            position: active.size_bytes(),
        };
        let log = Self {
            id,
            dir: dir.to_owned(),
            config,
            segments,
            producers,
            epochs: epochs.0,
            epochs_changed: epochs.1,
            recent: RecentBatches::default(),
            pipeline: WritePipeline::new(id, log_end_offset, written_end),
            log_start_offset,
            log_end_offset,
            next_file,
        };
        Ok((log, report))
    }
}

impl Opening<'_> {
    fn list(&mut self) -> Result<Listing, OpenError> {
        let created = self.storage.create_dir(self.dir);
        created.map_err(|source| io_error("create the directory", self.dir.to_owned(), source))?;
        let entries = self.storage.list(self.dir);
        let entries = entries.map_err(|source| io_error("list", self.dir.to_owned(), source))?;
        let mut listing = Listing::default();
        for entry in entries {
            match FileName::parse(&entry.name) {
                _ if entry.is_dir => self.report.foreign.push(entry.name),
                FileName::Numbered(kind, offset) => {
                    listing.numbered.entry(kind).or_default().insert(offset);
                }
                FileName::Fixed => {}
                FileName::Foreign => self.report.foreign.push(entry.name),
                FileName::Swap => {
                    return Err(OpenError::UnfinishedCompaction {
                        path: self.dir.join(entry.name),
                    });
                }
            }
        }
        Ok(listing)
    }

    /// Opens the segments in order, each with believable indexes; the last ends where the log ends.
    fn open_segments(&mut self, listing: &Listing) -> Result<LogSegments, OpenError> {
        let bases = listing.of(FileKind::Log);
        let recovery_point = self.options.recovery_point;
        let scan_from = bases
            .iter()
            .rev()
            .find(|&&base| base <= recovery_point)
            .or(bases.first())
            .copied();
        let mut segments: Option<LogSegments> = None;
        for (at, &base) in bases.iter().enumerate() {
            let next_base = bases.get(at + 1).copied();
            let indexed = listing.has(FileKind::OffsetIndex, base) && listing.has(FileKind::TimeIndex, base);
            let verify = !self.options.clean_shutdown && scan_from.is_some_and(|from| base >= from);
            let (segment, cut) = self.open_segment(base, next_base, indexed, verify)?;
            // Without index files the segment was not wholly flushed when the next one began (see
            // `Log::poll_create`), so a gap is a lost end. With them it is what compaction left.
            let end = segment.next_offset();
            let lost_end =
                verify && !indexed && next_base.is_some_and(|next| end < next && next > recovery_point);
            match &mut segments {
                None => segments = Some(LogSegments::new(segment)),
                Some(segments) => segments.push(segment),
            }
            if cut || lost_end {
                self.drop_segments(&bases[at + 1..], listing)?;
                break;
            }
        }
        let end = segments.as_ref().map(|segments| segments.active().next_offset());
        self.report.ended_below_recovery_point = end.is_some_and(|end| end < recovery_point);
        match (segments, end) {
            (Some(segments), Some(end)) if end >= self.options.log_start_offset => Ok(segments),
            (segments, _) => self.start_anew(segments.as_ref(), listing),
        }
    }

    /// A log of one empty segment at the log start offset: there are no segments yet, or all of them
    /// lie below it, and their offsets must not be given again.
    fn start_anew(&mut self, old: Option<&LogSegments>, listing: &Listing) -> Result<LogSegments, OpenError> {
        if let Some(old) = old {
            let bases: Vec<Offset> = old.iter().map(|segment| segment.base_offset).collect();
            for segment in old.iter() {
                self.storage.close(segment.file);
            }
            self.drop_segments(&bases, listing)?;
        }
        let base = self.options.log_start_offset;
        let (file, _) = self.open_file(base, OpenMode::CreateNew)?;
        Ok(LogSegments::new(LogSegment::new(
            base,
            file,
            SegmentPhase::Open,
            self.options.now,
        )))
    }

    fn open_segment(
        &mut self,
        base: Offset,
        next_base: Option<Offset>,
        indexed: bool,
        verify: bool,
    ) -> Result<(LogSegment, bool), OpenError> {
        let path = FileKind::Log.path(self.dir, base);
        let (file, len_bytes) = self.open_file(base, OpenMode::Existing)?;
        let Ok(size) = u32::try_from(len_bytes) else {
            return Err(OpenError::TooLarge { path, len_bytes });
        };
        let phase = if next_base.is_some() {
            SegmentPhase::Sealed
        } else {
            SegmentPhase::Open
        };
        let mut segment = LogSegment::new(base, file, phase, self.options.now);
        segment.index_files = indexed;
        // Relative offsets must fit an i32, and offsets stay below the next segment.
        let limit = Offset(base.0.saturating_add(i64::from(i32::MAX) + 1));
        let limit = next_base.map_or(limit, |next| next.min(limit));
        if indexed
            && !verify
            && let Some(indexes) = self.load_indexes(base, file, len_bytes)?
        {
            segment = segment.with_indexes(indexes, size, next_base.unwrap_or(base));
            if next_base.is_some() {
                return Ok((segment, false));
            }
            let position = u64::from(segment.rewind_below(limit));
            let end = self.walk_into(&mut segment, position, len_bytes, limit, Check::Headers)?;
            if end.defect.is_none() {
                self.read_first_timestamp(&mut segment)?;
                let cut = self.cut(&segment, &end, len_bytes)?;
                return Ok((segment, cut));
            }
            segment = LogSegment::new(base, file, phase, self.options.now);
            segment.index_files = true;
        }
        let end = self.walk_into(&mut segment, 0, len_bytes, limit, Check::Checksums)?;
        self.verified_from = self.verified_from.min(base);
        self.report.scanned_bytes += end.position;
        self.report.scanned_segments += 1;
        if let (
            0,
            Some(Defect::Batch(BatchError::Magic {
                magic: magic @ (0 | 1),
            })),
        ) = (end.position, end.defect)
        {
            return Err(OpenError::OldFormat { path, magic });
        }
        let recovery_point = self.options.recovery_point;
        // Zeros at the end are normal only where the log ends.
        let zeros = (next_base.is_some() && end.position < len_bytes).then_some(Defect::Torn);
        if let Some(defect) = end.defect.or(zeros)
            && end.next_offset < recovery_point
        {
            let (position, offset) = (end.position, end.next_offset);
            return Err(OpenError::Damaged {
                path,
                position,
                offset,
                recovery_point,
                defect,
            });
        }
        let cut = self.cut(&segment, &end, len_bytes)?;
        // What was read may still be in the page cache only.
        self.storage
            .sync(file)
            .map_err(|source| io_error("sync", path, source))?;
        if !verify {
            self.report.rebuilt_indexes += 1;
        }
        if next_base.is_some() && !cut {
            self.put_indexes(&mut segment)?;
        }
        Ok((segment, cut))
    }

    /// Appends the batches of a file to what is known of its segment.
    fn walk_into(
        &mut self,
        segment: &mut LogSegment,
        position: u64,
        end: u64,
        limit: Offset,
        check: Check,
    ) -> Result<WalkEnd, OpenError> {
        let offsets = OffsetRange {
            from: segment.next_offset(),
            limit,
        };
        let bounds = Walk {
            file: segment.file,
            position,
            end,
            offsets,
            check,
        };
        let interval = self.config.index_interval_bytes;
        // A batch at the position of an index entry must be the entry's.
        let entry = segment.offset_index.last();
        let mut misplaced = false;
        let walked = walk(self.storage, bounds, |header, _, at| {
            misplaced = entry.is_some_and(|e| at == position && header.last_offset() != e.offset);
            if !misplaced {
                segment.append(BatchFacts::of(header), interval);
            }
            !misplaced
        });
        let path = FileKind::Log.path(self.dir, segment.base_offset);
        let mut walked = walked.map_err(|source| io_error("read", path, source))?;
        if misplaced || entry.is_some() && walked.position == position {
            walked.defect = walked.defect.or(Some(Defect::Torn));
        }
        Ok(walked)
    }

    /// Cuts the file to its batches; answers whether anything but zeros went.
    fn cut(&mut self, segment: &LogSegment, end: &WalkEnd, len_bytes: u64) -> Result<bool, OpenError> {
        if end.position == len_bytes {
            return Ok(false);
        }
        let path = FileKind::Log.path(self.dir, segment.base_offset);
        let cut = self.storage.set_len(segment.file, end.position);
        cut.and_then(|()| self.storage.sync(segment.file))
            .map_err(|source| io_error("cut", path.clone(), source))?;
        let (position, lost_bytes) = (end.position, len_bytes - end.position);
        self.report.cut = Some(Cut {
            path,
            position,
            lost_bytes,
            defect: end.defect,
        });
        Ok(end.defect.is_some())
    }

    /// The indexes of a segment if they are sane and the last entry points at its batch.
    fn load_indexes(
        &mut self,
        base: Offset,
        file: FileId,
        len_bytes: u64,
    ) -> Result<Option<(OffsetIndex, TimeIndex)>, OpenError> {
        let Some(offsets) = self.side_file(FileKind::OffsetIndex, base)? else {
            return Ok(None);
        };
        let Some(times) = self.side_file(FileKind::TimeIndex, base)? else {
            return Ok(None);
        };
        let (Ok(offsets), Ok(times)) = (
            OffsetIndex::load(base, &offsets, len_bytes),
            TimeIndex::load(base, &times),
        ) else {
            return Ok(None);
        };
        if let Some(entry) = offsets.last() {
            let header = self.read_header(base, file, u64::from(entry.position))?;
            if header.is_none_or(|header| header.last_offset() != entry.offset) {
                return Ok(None);
            }
        }
        // Without an offset entry there are no more than a few batches, but they have timestamps.
        let timeless = times.last().is_none() && len_bytes > 0;
        if timeless
            && self
                .read_header(base, file, 0)?
                .is_none_or(|header| header.max_timestamp().0 >= 0)
        {
            return Ok(None);
        }
        Ok(Some((offsets, times)))
    }

    fn put_indexes(&mut self, segment: &mut LogSegment) -> Result<(), OpenError> {
        segment.note_max_timestamp();
        let files = [
            (FileKind::OffsetIndex, segment.offset_index.encode()),
            (FileKind::TimeIndex, segment.time_index.encode()),
        ];
        for (kind, bytes) in files {
            let path = kind.path(self.dir, segment.base_offset);
            self.storage
                .put_file(&path, &bytes)
                .map_err(|source| io_error("write", path, source))?;
        }
        segment.index_files = true;
        Ok(())
    }

    fn read_first_timestamp(&mut self, segment: &mut LogSegment) -> Result<(), OpenError> {
        if let Some(header) = self.read_header(segment.base_offset, segment.file, 0)? {
            segment.set_first_timestamp(header.max_timestamp());
        }
        Ok(())
    }

    /// Opens the file of the segment at `base`.
    fn open_file(&mut self, base: Offset, mode: OpenMode) -> Result<(FileId, u64), OpenError> {
        let path = FileKind::Log.path(self.dir, base);
        let file = FileId {
            log: self.id,
            number: self.next_file,
        };
        self.next_file += 1;
        let opened = self.storage.open(file, &path, mode);
        Ok((file, opened.map_err(|source| io_error("open", path, source))?))
    }

    /// The bytes of an index; `None` where it is missing or too large to be one.
    fn side_file(&mut self, kind: FileKind, base: Offset) -> Result<Option<Vec<u8>>, OpenError> {
        let path = kind.path(self.dir, base);
        match self.storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => Ok(None),
            Err(source) => Err(io_error("read", path, source)),
        }
    }

    /// Removes every file of the segments at `bases`.
    fn drop_segments(&mut self, bases: &[Offset], listing: &Listing) -> Result<(), OpenError> {
        // From the last on: whatever a crash leaves is a prefix of the log.
        for &base in bases.iter().rev() {
            for kind in FileKind::ALL {
                if listing.has(kind, base) {
                    let path = kind.path(self.dir, base);
                    self.storage
                        .remove_file(&path)
                        .map_err(|source| io_error("remove", path, source))?;
                }
            }
        }
        self.report.dropped_segments.extend(bases);
        Ok(())
    }

    /// The header at `position`, if one is there.
    fn read_header(
        &mut self,
        base: Offset,
        file: FileId,
        position: u64,
    ) -> Result<Option<BatchHeader>, OpenError> {
        let mut bytes = [0; BATCH_HEADER_LEN];
        let read = self.storage.read_at(file, position, &mut bytes);
        let path = FileKind::Log.path(self.dir, base);
        let read = read.map_err(|source| io_error("read", path, source))?;
        Ok(BatchHeader::peek(&bytes[..read]).ok().copied())
    }
}

pub(super) fn io_error(operation: &'static str, path: PathBuf, source: io::Error) -> OpenError {
    OpenError::Io {
        operation,
        path,
        source,
    }
}
