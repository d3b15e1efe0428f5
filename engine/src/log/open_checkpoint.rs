//! What a log that is being opened knows of its segments beforehand, and what follows where they are
//! not there, or end too early.
//!
//! Owns the reading and the renewal of `segment-checkpoint` and the rule that nothing below the
//! recovery point is lost in silence. Which bytes count is `open_segments.rs`'s to decide. Tested in
//! `tests/log_files.rs`.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::file_name::{FileKind, FileName, SEGMENT_CHECKPOINT, Suffix};
use super::log_segment::LogSegment;
use super::log_segments::LogSegments;
use super::open::{
    BegunAnew, OpenError, Opening, SIDE_FILE_BYTES_MAX, io_error, remove_if_there, sync_names,
};
use super::recovery::Defect;
use super::segment_checkpoint::SegmentCheckpoint;
use crate::io::DirEntry;
use crate::types::Offset;

impl Opening<'_> {
    /// What is known of the segments: nothing, so that all indexes are made anew, where the file does
    /// not read.
    pub(super) fn load_segment_checkpoint(&mut self) -> Result<(), OpenError> {
        let path = self.dir.join(SEGMENT_CHECKPOINT);
        match self.storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
            Ok(bytes) => self.known = SegmentCheckpoint::decode(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::NotFound => self.adopted = true,
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {}
            Err(source) => return Err(io_error("read", path, source)),
        }
        Ok(())
    }

    /// Completes a removal of the first segments that was interrupted: whatever of them is there goes, then
    /// what is listed of them, and what tells of the removal only afterwards.
    pub(super) fn finish_removal(&mut self, entries: &[DirEntry]) -> Result<(), OpenError> {
        let (mut logs, mut removed) = (BTreeSet::new(), Vec::new());
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            match FileName::parse(&entry.name) {
                FileName::Numbered(FileKind::Log, base) => drop(logs.insert(base)),
                FileName::Suffixed(_, base, Suffix::Deleted) => removed.push(base),
                _ => {}
            }
        }
        // What compaction replaces is not listed.
        let is_gone = |base: &Offset| self.known.get(*base).is_some() && !logs.contains(base);
        let Some(last) = removed.into_iter().filter(is_gone).max() else {
            return Ok(());
        };
        for base in logs.range(..last) {
            for kind in FileKind::ALL {
                remove_if_there(kind.path(self.dir, *base), self.storage)?;
            }
        }
        sync_names(self.dir, self.storage)?;
        self.known.retain(|base| base > last);
        self.write_segment_checkpoint()
    }

    /// How many segments there are before the first that is missing. A repair does without those before the
    /// first that is there.
    pub(super) fn check_missing(&self, bases: &[Offset]) -> Result<usize, OpenError> {
        let mut from = self.options.log_start_offset;
        if let Some(&first) = bases.first().filter(|_| self.repair) {
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

    /// Refuses a log that ends below what was flushed. Below its start nothing counts: where it ends there, it is to
    /// begin anew at its start, as in Apache Kafka, and the report says so. A truncation to the start leaves that, and
    /// so does a crash that took what was not flushed; after a clean stop a start above all there was is an error.
    /// After an unclean one a truncation may not have been recorded, but none leaves an end below the start where
    /// more than the start was flushed. `first_offset` is that of the first file there was.
    pub(super) fn check_end(
        &mut self,
        segments: Option<&LogSegments>,
        first_offset: Option<Offset>,
    ) -> Result<(), OpenError> {
        let (log_start_offset, recovery_point) = (self.options.log_start_offset, self.options.recovery_point);
        let active = segments.map(LogSegments::active);
        let end = active.map_or(log_start_offset, LogSegment::next_offset);
        self.report.ended_below_recovery_point = end < recovery_point;
        let ends_below_start = end < log_start_offset;
        let beyond_all = ends_below_start && log_start_offset > recovery_point;
        let lost = end.max(log_start_offset) < recovery_point;
        let clean = self.options.clean_shutdown;
        if !self.repair && (clean && beyond_all || lost && (clean || ends_below_start)) {
            let base = active.map_or(log_start_offset, |segment| segment.base_offset);
            let until = recovery_point.max(log_start_offset);
            return Err(OpenError::Damaged {
                path: FileKind::Log.path(self.dir, base),
                position: active.map_or(0, |segment| u64::from(segment.size_bytes())),
                offset: end,
                recovery_point: until,
                defect: Defect::Missing { until },
            });
        }
        let first_offset = first_offset.filter(|&first| ends_below_start && first < end);
        self.report.begun_anew = first_offset.map(|first_offset| BegunAnew {
            first_offset,
            end,
            log_start_offset,
        });
        Ok(())
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
        self.write_segment_checkpoint()
    }

    fn write_segment_checkpoint(&mut self) -> Result<(), OpenError> {
        let (path, text) = (self.dir.join(SEGMENT_CHECKPOINT), self.known.encode());
        self.storage
            .put_file(&path, text.as_bytes())
            .map_err(|source| io_error("write", path, source))
    }
}
