//! The segments of a log that is being opened: which are believed, which are verified, where the
//! log is cut.
//!
//! Owns these decisions and the order in which they are carried out: later segments go before the
//! one in front of them is cut, and that one gets index files only when it is known to be whole, so
//! that whatever a crash leaves half-way is decided the same way again. Tested in
//! `tests/log_recovery.rs` and `tests/log_model.rs`.

use std::io::ErrorKind;

use super::failed_sync;
use super::file_name::FileKind;
use super::load_state::{Place, State};
use super::log_segment::{BatchFacts, LogSegment, SegmentPhase};
use super::log_segments::LogSegments;
use super::offset_index::OffsetIndex;
use super::open::{
    Cut, Listing, OpenError, Opening, SIDE_FILE_BYTES_MAX, io_error, put_or_remove, remove_if_there,
    sync_names,
};
use super::producer_snapshot;
use super::recovery::{Defect, OffsetRange, Walk, WalkEnd, walk};
use super::segment_checkpoint::{IndexChecksums, SegmentRecord, checksums};
use super::time_index::TimeIndex;
use super::txn_index::TransactionIndex;
use crate::io::{FileId, OpenMode};
use crate::record::{BATCH_HEADER_LEN, BatchError, BatchHeader};
use crate::types::{Offset, TimestampMs};

type Indexes = (OffsetIndex, TimeIndex, TransactionIndex);

/// A segment as its file says.
struct Opened {
    segment: LogSegment,
    len_bytes: u64,
    /// Where the walk through it ended, if there was one.
    walked: Option<WalkEnd>,
    /// The indexes were made anew.
    rebuilt: bool,
}

impl Opening<'_> {
    /// Opens the segments in order, each with believable indexes; the last ends where the log ends.
    pub(super) fn open_segments(&mut self, listing: &Listing) -> Result<LogSegments, OpenError> {
        let stored = self.known.clone();
        let mut bases = listing.of(FileKind::Log);
        let first_offset = bases.first().copied();
        let below_start = self.count_below_start(&bases, listing);
        let below_start: Vec<Offset> = bases.drain(..below_start).collect();
        let whole = self.check_missing(&bases)?;
        let recovery_point = self.options.recovery_point;
        let below = bases.partition_point(|&base| base <= recovery_point);
        let mut segments: Option<LogSegments> = None;
        for (at, &base) in bases[..whole].iter().enumerate() {
            let next_base = bases[..whole].get(at + 1).copied();
            let indexed = listing.has(FileKind::OffsetIndex, base) && listing.has(FileKind::TimeIndex, base);
            let verify = self.repair || !self.options.clean_shutdown && at + 1 >= below;
            let mut opened =
                self.open_segment(base, next_base, (indexed, verify), segments.as_ref(), listing)?;
            let ends_here = next_base.is_none_or(|next| self.ends_before(next, &opened, indexed && verify));
            if ends_here {
                self.drop_segments(&bases[at + 1..], listing)?;
                opened.segment.phase = SegmentPhase::Open;
            }
            self.cut(&opened)?;
            if opened.rebuilt && !ends_here {
                self.put_indexes(&mut opened.segment)?;
            }
            match &mut segments {
                None => segments = Some(LogSegments::new(opened.segment)),
                Some(segments) => segments.push(opened.segment),
            }
            if ends_here {
                break;
            }
        }
        if whole == 0 {
            self.drop_segments(&bases, listing)?;
        }
        self.check_end(segments.as_ref(), first_offset)?;
        for base in below_start {
            self.remove_segment(base, listing)?;
        }
        let log_start_offset = self.options.log_start_offset;
        let segments = match segments {
            Some(segments) if segments.active().next_offset() >= log_start_offset => segments,
            segments => self.start_anew(segments.as_ref(), listing)?,
        };
        self.put_segment_checkpoint(&stored, &segments)?;
        Ok(segments)
    }

    /// Whether the end of a segment was lost, so that the segments from `next_base` on do not count.
    ///
    /// Damage says so, or zeros, which a segment that is followed by another does not have. So does
    /// a gap, unless it is what compaction left: a segment that had not been wholly flushed when the
    /// next one was created has no index files (see `Log::poll_create`). Below the recovery point
    /// everything was flushed, and below the log start nothing counts: a log cut to its start within a
    /// batch goes on there, after a gap.
    fn ends_before(&self, next_base: Offset, opened: &Opened, flushed: bool) -> bool {
        let Some(walked) = opened.walked else { return false };
        // A repair goes on where damage below the recovery point was an error before.
        let end = walked.next_offset.max(self.options.log_start_offset);
        if end < self.known_end(opened.segment.base_offset) {
            return true;
        }
        let sure = self.options.recovery_point.max(self.options.log_start_offset);
        let gap = walked.next_offset < next_base && next_base > sure;
        walked.defect.is_some() || walked.position < opened.len_bytes || gap && !flushed
    }

    /// Where the segment ended when it was wholly flushed; 0 where that is not known.
    fn known_end(&self, base: Offset) -> Offset {
        self.known.get(base).map_or(Offset(0), |record| record.end)
    }

    /// From where on the checksums of a segment's batches must hold: below, all was flushed. Where damage is
    /// looked for, or a sync has failed since, all of them must.
    fn verify_from(&self, base: Offset) -> Offset {
        if self.repair || self.sync_failed {
            return base;
        }
        self.options.recovery_point.max(self.known_end(base))
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
        (indexed, verify): (bool, bool),
        before: Option<&LogSegments>,
        listing: &Listing,
    ) -> Result<Opened, OpenError> {
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
        let modified_at = listing.modified_at(FileKind::Log, base);
        let modified_at = modified_at.filter(|&at| at != TimestampMs::NONE);
        let modified_at = modified_at.map_or(self.options.now, |at| at.min(self.options.now));
        let new_segment = || {
            let mut segment = LogSegment::new(base, file, phase, modified_at);
            segment.index_files = indexed;
            segment
        };
        // Relative offsets must fit an i32, and offsets stay below the next segment.
        let limit = Offset(base.0.saturating_add(i64::from(i32::MAX) + 1));
        let limit = next_base.map_or(limit, |next| next.min(limit));
        // Its removal has failed: it will be tried again, and nobody reads it.
        let below_log_start = next_base.is_some_and(|next| next <= self.options.log_start_offset);
        let (mut segment, spare) = (new_segment(), new_segment());
        if indexed
            && !verify
            && let Some((indexes, checksums)) = self.load_indexes(base, file, len_bytes, below_log_start)?
        {
            segment = segment.with_indexes(indexes, size, next_base.unwrap_or(base));
            let walked = if next_base.is_some() {
                self.walk_tail(&segment, len_bytes, limit)?
            } else {
                let position = u64::from(segment.rewind_below(limit));
                let bounds = (position, len_bytes, limit);
                self.walk_into(&mut segment, bounds, None, None)?
            };
            if self.is_believed(&segment, next_base, walked, len_bytes) {
                let record = SegmentRecord {
                    end: walked.next_offset,
                    indexes: checksums,
                };
                self.known.set(base, record);
                self.read_first_timestamp(&mut segment)?;
                return Ok(Opened {
                    segment,
                    len_bytes,
                    walked: next_base.is_none().then_some(walked),
                    rebuilt: false,
                });
            }
        }
        let mut segment = spare;
        let place = before.map(|segments| Place {
            dir: self.dir,
            segments,
            log_start_offset: self.options.log_start_offset.max(segments.first().base_offset),
        });
        // Segments that are not to be verified were flushed after their epochs.
        let mut state = self.state_at(base, place, &listing.of(FileKind::Snapshot), verify)?;
        // The crash may have come before the snapshot of the roll. Without it nothing would tell how far
        // the producers had come, once the segments below are removed.
        let follows = before.is_some_and(|segments| segments.active().next_offset() == base);
        let missing = !listing.has(FileKind::Snapshot, base) || self.invalid_snapshots.contains(&base);
        let rolled_without = verify && follows && missing;
        let snapshot = rolled_without.then(|| producer_snapshot::encode(&state.producers));
        let bounds = (0, len_bytes, limit);
        let verify_from = Some(self.verify_from(base));
        let walked = self.walk_into(&mut segment, bounds, verify_from, Some(&mut state))?;
        self.check_damage(base, next_base, &walked, len_bytes)?;
        self.walked = Some((walked.next_offset, state));
        // What was read may still be in the page cache only.
        if self.sync_failed {
            failed_sync::write_anew(file, walked.position, self.storage)
                .map_err(|source| io_error("write", path.clone(), source))?;
        }
        failed_sync::sync_or_mark(file, self.dir, self.storage)
            .map_err(|source| io_error("sync", path, source))?;
        if let Some(bytes) = snapshot {
            let path = FileKind::Snapshot.path(self.dir, base);
            let put = self.storage.put_file(&path, &bytes);
            put.map_err(|source| io_error("write", path, source))?;
            self.invalid_snapshots.retain(|&invalid| invalid != base);
        }
        self.report.scanned_bytes += walked.verified_bytes;
        self.report.scanned_segments += 1;
        self.report.rebuilt_indexes += usize::from(!verify);
        Ok(Opened {
            segment,
            len_bytes,
            walked: Some(walked),
            rebuilt: true,
        })
    }

    /// Refuses to go on where what would be cut was flushed.
    fn check_damage(
        &self,
        base: Offset,
        next_base: Option<Offset>,
        walked: &WalkEnd,
        len_bytes: u64,
    ) -> Result<(), OpenError> {
        // Zeros at the end are normal only where the log ends.
        let zeros = (next_base.is_some() && walked.position < len_bytes).then_some(Defect::Torn);
        let until = self.known_end(base);
        let missing = (walked.next_offset < until).then_some(Defect::Missing { until });
        let recovery_point = self.options.recovery_point.max(until);
        let Some(defect) = walked.defect.or(zeros).or(missing) else {
            return Ok(());
        };
        // A log cut to its start within a batch goes on there, after a gap.
        if walked.next_offset.max(self.options.log_start_offset) >= recovery_point {
            return Ok(());
        }
        let path = FileKind::Log.path(self.dir, base);
        let (position, offset) = (walked.position, walked.next_offset);
        Err(match defect {
            Defect::Batch(BatchError::Magic {
                magic: magic @ (0 | 1),
            }) => OpenError::OldFormat { path, magic },
            _ if self.repair => return Ok(()),
            _ => OpenError::Damaged {
                path,
                position,
                offset,
                recovery_point,
                defect,
            },
        })
    }

    /// Appends the batches of a file from a position to an end, all below a limit, to what is known of
    /// its segment; those that the `state` does not know yet to that as well.
    fn walk_into(
        &mut self,
        segment: &mut LogSegment,
        (position, end, limit): (u64, u64, Offset),
        verify_from: Option<Offset>,
        mut state: Option<&mut State>,
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
            verify_from,
        };
        let interval = self.config.index_interval_bytes;
        // A batch at the position of an index entry must be the entry's.
        let entry = segment.offset_index.last();
        let mut misplaced = false;
        let walked = walk(self.storage, bounds, |header, bytes, at| {
            misplaced = entry.is_some_and(|e| at == position && header.last_offset() != e.offset);
            if !misplaced {
                segment.append(BatchFacts::of(header), interval);
                if let Some(aborted) = state.as_mut().and_then(|state| state.update(header, bytes)) {
                    segment.txn_index.append(aborted);
                }
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

    /// Cuts the file to its batches.
    fn cut(&mut self, opened: &Opened) -> Result<(), OpenError> {
        let Opened {
            segment,
            walked,
            len_bytes,
            ..
        } = opened;
        let Some(walked) = walked.filter(|walked| walked.position < *len_bytes) else {
            return Ok(());
        };
        let path = FileKind::Log.path(self.dir, segment.base_offset);
        let cut = self.storage.set_len(segment.file, walked.position);
        cut.and_then(|()| failed_sync::sync_or_mark(segment.file, self.dir, self.storage))
            .map_err(|source| io_error("cut", path.clone(), source))?;
        let (position, lost_bytes) = (walked.position, len_bytes - walked.position);
        self.report.cut = Some(Cut {
            path,
            position,
            lost_bytes,
            defect: walked.defect,
        });
        Ok(())
    }

    /// The indexes of a segment with their checksums, if they are those that were written, or at least
    /// sane where another broker wrote them.
    fn load_indexes(
        &mut self,
        base: Offset,
        file: FileId,
        len_bytes: u64,
        below_log_start: bool,
    ) -> Result<Option<(Indexes, IndexChecksums)>, OpenError> {
        let Some(offsets) = self.side_file(FileKind::OffsetIndex, base)? else {
            return Ok(None);
        };
        let Some(times) = self.side_file(FileKind::TimeIndex, base)? else {
            return Ok(None);
        };
        // A segment without aborted transactions has no index of them.
        let aborted = self.side_file(FileKind::TransactionIndex, base)?;
        let found = checksums([Some(&offsets), Some(&times), aborted.as_deref()]);
        let written = self.known.get(base).map(|record| record.indexes);
        let any = self.adopted || written.is_none() && below_log_start;
        if !any && written != Some(found) {
            return Ok(None);
        }
        let (Ok(offsets), Ok(times), Ok(aborted)) = (
            OffsetIndex::load(base, &offsets, len_bytes),
            TimeIndex::load(base, &times),
            TransactionIndex::load(base, &aborted.unwrap_or_default()),
        ) else {
            return Ok(None);
        };
        // Without an offset entry there are no more than a few batches, but they have timestamps.
        let timeless = times.last().is_none() && len_bytes > 0;
        if timeless
            && self
                .read_header(base, file, 0)?
                .is_none_or(|header| BatchFacts::of(&header).max_timestamp.0 >= 0)
        {
            return Ok(None);
        }
        Ok(Some(((offsets, times, aborted), found)))
    }

    /// The end of a segment, by the few batches behind the last entry of its index.
    fn walk_tail(
        &mut self,
        segment: &LogSegment,
        len_bytes: u64,
        limit: Offset,
    ) -> Result<WalkEnd, OpenError> {
        let entry = segment.offset_index.last();
        let bounds = Walk {
            file: segment.file,
            position: entry.map_or(0, |entry| u64::from(entry.position)),
            end: len_bytes,
            offsets: OffsetRange {
                from: segment.base_offset,
                limit,
            },
            verify_from: None,
        };
        let mut first = None;
        let walked = walk(self.storage, bounds, |header, _, _| {
            first = first.or(Some(header.last_offset()));
            true
        });
        let path = FileKind::Log.path(self.dir, segment.base_offset);
        let mut walked = walked.map_err(|source| io_error("read", path, source))?;
        if entry.is_some_and(|entry| first != Some(entry.offset)) {
            walked.defect = Some(Defect::Torn);
        }
        Ok(walked)
    }

    /// Whether the batches behind the indexes bear them out.
    fn is_believed(
        &self,
        segment: &LogSegment,
        next_base: Option<Offset>,
        walked: WalkEnd,
        len_bytes: u64,
    ) -> bool {
        let known = self.known.get(segment.base_offset);
        // A marker beyond the end would lie above those that are yet to come.
        let marker = segment.txn_index.last_offset();
        walked.defect.is_none()
            && marker.is_none_or(|marker| marker < walked.next_offset)
            && (next_base.is_none() || walked.position == len_bytes)
            && known.is_none_or(|record| record.end == walked.next_offset)
    }

    fn put_indexes(&mut self, segment: &mut LogSegment) -> Result<(), OpenError> {
        let (files, record) = segment.encode_indexes();
        self.known.set(segment.base_offset, record);
        for (kind, bytes) in files {
            let path = kind.path(self.dir, segment.base_offset);
            put_or_remove(&path, bytes.as_deref(), self.storage)
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
        let file = self.new_file();
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
        // From the last on, each for good before the next: whatever a crash leaves is a prefix of the log.
        for &base in bases.iter().rev() {
            self.remove_segment(base, listing)?;
            sync_names(self.dir, self.storage)?;
        }
        self.report.dropped_segments.extend(bases);
        Ok(())
    }

    /// How many of the segments lie wholly below the log start and go, where there is a snapshot of the producers
    /// at the first that stays. Some of those removed earlier may be back with the power, and others not: their
    /// batches say no more how far the producers have come.
    fn count_below_start(&self, bases: &[Offset], listing: &Listing) -> usize {
        let log_start_offset = self.options.log_start_offset;
        let first = bases
            .partition_point(|&base| base <= log_start_offset)
            .saturating_sub(1);
        let known = bases
            .get(first)
            .is_some_and(|&base| listing.has(FileKind::Snapshot, base));
        if known { first } else { 0 }
    }

    fn remove_segment(&mut self, base: Offset, listing: &Listing) -> Result<(), OpenError> {
        for kind in FileKind::ALL {
            if listing.has(kind, base) {
                remove_if_there(kind.path(self.dir, base), self.storage)?;
            }
        }
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
