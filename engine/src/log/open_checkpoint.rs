//! What a log that is being opened knows of its segments beforehand, and what follows where they are
//! not there, or end too early.
//!
//! Owns the reading and the renewal of `segment-checkpoint` and the rule that nothing below the
//! recovery point is lost in silence. Which bytes count is `open_segments.rs`'s to decide. Tested in
//! `tests/log_files.rs`.

use std::io::ErrorKind;

use super::file_name::{FileKind, SEGMENT_CHECKPOINT};
use super::log_segment::LogSegment;
use super::log_segments::LogSegments;
use super::open::{Listing, OpenError, Opening, SIDE_FILE_BYTES_MAX, io_error};
use super::recovery::Defect;
use super::segment_checkpoint::SegmentCheckpoint;
use crate::types::Offset;

impl Opening<'_> {
    /// What is known of the segments: nothing, so that all indexes are made anew, where the file does
    /// not read.
    pub(super) fn load_segment_checkpoint(&mut self) -> Result<SegmentCheckpoint, OpenError> {
        let path = self.dir.join(SEGMENT_CHECKPOINT);
        match self.storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
            Ok(bytes) => return Ok(SegmentCheckpoint::decode(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => self.adopted = true,
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {}
            Err(source) => return Err(io_error("read", path, source)),
        }
        Ok(SegmentCheckpoint::default())
    }

    /// How many segments there are before the first that is missing.
    ///
    /// After an unclean stop those before the first may have been deleted since the log start was
    /// recorded.
    pub(super) fn check_missing(&self, bases: &[Offset]) -> Result<usize, OpenError> {
        let mut from = self.options.log_start_offset;
        if let Some(&first) = bases.first().filter(|_| !self.options.clean_shutdown) {
            from = from.max(first);
        }
        let Some((base, record)) = self.known.first_missing(bases, from) else {
            return Ok(bases.len());
        };
        if self.repair {
            return Ok(bases.partition_point(|&other| other < base));
        }
        Err(OpenError::Damaged {
            path: FileKind::Log.path(self.dir, base),
            position: 0,
            offset: base,
            recovery_point: self.options.recovery_point.max(record.end),
            defect: Defect::Missing { until: record.end },
        })
    }

    /// The segments, if the log does not end below what was flushed: below its start nothing counts, and
    /// then it begins anew there. After an unclean stop a truncation may not have been recorded.
    pub(super) fn check_end(
        &mut self,
        segments: Option<LogSegments>,
        listing: &Listing,
    ) -> Result<LogSegments, OpenError> {
        let log_start_offset = self.options.log_start_offset;
        let recovery_point = self.options.recovery_point;
        let active = segments.as_ref().map(LogSegments::active);
        let end = active.map_or(log_start_offset, LogSegment::next_offset);
        self.report.ended_below_recovery_point = end < recovery_point;
        let clean = self.options.clean_shutdown && !self.repair;
        if clean && end.max(log_start_offset) < recovery_point {
            let base = active.map_or(log_start_offset, |segment| segment.base_offset);
            return Err(OpenError::Damaged {
                path: FileKind::Log.path(self.dir, base),
                position: active.map_or(0, |segment| u64::from(segment.size_bytes())),
                offset: end,
                recovery_point,
                defect: Defect::Missing {
                    until: recovery_point,
                },
            });
        }
        match segments {
            Some(segments) if end >= log_start_offset => Ok(segments),
            segments => self.start_anew(segments.as_ref(), listing),
        }
    }

    /// Makes the file say what is known now: another broker's indexes have been looked at, others were
    /// made anew, segments are gone.
    pub(super) fn put_segment_checkpoint(
        &mut self,
        stored: &SegmentCheckpoint,
        segments: &LogSegments,
    ) -> Result<(), OpenError> {
        let known = &mut self.known;
        known.retain(|base| segments.get(base).is_some());
        if self.repair {
            known.truncate_to(segments.active().next_offset());
        }
        if stored == known {
            return Ok(());
        }
        let (path, text) = (self.dir.join(SEGMENT_CHECKPOINT), known.encode());
        self.storage
            .put_file(&path, text.as_bytes())
            .map_err(|source| io_error("write", path, source))
    }
}
