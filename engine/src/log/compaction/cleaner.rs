//! One pass over a log: reads its dirty segments for the latest offset of each key, then makes new
//! segments of all of them with the records that are left.
//!
//! Owns what stays and what goes, deciding as Apache Kafka does (KIP-58, KIP-98, KIP-534). Blocking,
//! on file numbers of its own; memory is the key map, a chunk and a batch, whatever the log's size.
//! Every batch is verified before it counts. Knows no `Log`: the job comes from one, and the new
//! segments take the old ones' place there. Tested in `tests/log_compaction.rs`.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use super::super::recovery::Defect;
use super::super::txn_index::AbortedTxn;
use super::cleaned_writer::CleanedWriter;
use super::job::{CleanedSegment, CleaningJob, DirtySegment, LastOfProducer};
use super::offset_map::OffsetMap;
use super::segment_reader::SegmentReader;
use super::transactions::{Marker, Transactions};
use crate::io::{FileId, Storage};
use crate::record::{
    ControlError, EndTxnMarker, RecordBatch, RecordError, Retained, RewriteError, write_emptied,
};
use crate::types::{LogId, Offset, TimestampMs};

/// The cleaner's files belong to no log of a shard: those count their ids from 0.
const CLEANER: LogId = LogId(u32::MAX);
const INPUT: FileId = FileId {
    log: CLEANER,
    number: 0,
};
const OUTPUT: FileId = FileId {
    log: CLEANER,
    number: 1,
};
/// A batch may unpack to at most so much.
pub(in super::super) const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// The limits of one cleaner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanerConfig {
    /// Bytes of the key map, 24 a key (`log.cleaner.dedupe.buffer.size`).
    pub map_bytes: usize,
    /// How much of it is filled, 1 to 99 (`log.cleaner.io.buffer.load.factor`).
    pub map_load_percent: usize,
}

impl Default for CleanerConfig {
    /// 128 MiB, of which 90 % are filled, as in Apache Kafka; a pass that has fewer records takes less.
    fn default() -> Self {
        Self {
            map_bytes: 128 << 20,
            map_load_percent: 90,
        }
    }
}

/// Why a pass ended early. The log is as it was, but for the segments that have been replaced.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
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
    /// What the log has written is not there any more.
    #[error("{path} is damaged at position {position}", path = path.display())]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// Bytes from its start.
        position: u64,
        /// What lies there.
        #[source]
        defect: Defect,
    },
    /// The records of a batch do not read, or unpack to more than is allowed.
    #[error("the batch at offset {offset} cannot be read")]
    Record {
        /// Its first.
        offset: Offset,
        /// What is wrong.
        #[source]
        source: RecordError,
    },
    /// A control batch does not read.
    #[error("the control batch at offset {offset} cannot be read")]
    Control {
        /// Its first.
        offset: Offset,
        /// What is wrong.
        #[source]
        source: ControlError,
    },
    /// What is left of a batch cannot be written.
    #[error("the batch at offset {offset} cannot be rewritten")]
    Rewrite {
        /// Its first.
        offset: Offset,
        /// What is wrong.
        #[source]
        source: RewriteError,
    },
    /// The records have grown beyond a segment: their timestamps are far from the delete horizon.
    #[error("{path} would be larger than a segment can", path = path.display())]
    TooLarge {
        /// The new segment.
        path: PathBuf,
    },
    /// One batch has more keys than the map can hold.
    #[error(
        "the batch at offset {offset} has more keys than the map has room for; raise log.cleaner.dedupe.buffer.size"
    )]
    MapTooSmall {
        /// Its first.
        offset: Offset,
    },
    /// Whoever runs the cleaner said so.
    #[error("the pass was stopped")]
    Stopped,
}

impl CompactionError {
    /// No space or quota is left: another try may succeed, unlike after any other failure.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { source, .. } if full.contains(&source.kind()))
    }
}

pub(super) fn io_error(operation: &'static str, path: &Path, source: io::Error) -> CompactionError {
    CompactionError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// What a pass has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningStats {
    /// Bytes of batches read, the dirty ones twice.
    pub read_bytes: u64,
    /// Bytes of batches written.
    pub written_bytes: u64,
    /// Different keys among the dirty records.
    pub keys: usize,
    /// Records that went.
    pub dropped_records: u64,
}

/// Lets whoever runs the cleaner slow it down or stop it: called with the bytes just read, false stops.
pub type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

/// See the module.
#[derive(Debug)]
pub struct Cleaner {
    job: CleaningJob,
    map: OffsetMap,
    /// Everything below is in the map, from the first dirty offset on.
    map_end: Offset,
    transactions: Transactions,
    groups: VecDeque<Vec<DirtySegment>>,
    stats: CleaningStats,
}

impl Cleaner {
    /// Reads the dirty segments, as many of their records as the map has room for.
    ///
    /// # Errors
    ///
    /// Any [`CompactionError`].
    pub fn start(
        mut job: CleaningJob,
        config: CleanerConfig,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<Self, CompactionError> {
        let end = job
            .segments
            .last()
            .map_or(job.first_dirty_offset, |last| last.next_base);
        let records = usize::try_from(end.0 - job.first_dirty_offset.0).unwrap_or(usize::MAX);
        let aborted = std::mem::take(&mut job.aborted);
        let mut cleaner = Self {
            map: OffsetMap::new(config.map_bytes, config.map_load_percent, records),
            map_end: job.first_dirty_offset,
            transactions: Transactions::new(aborted),
            groups: VecDeque::new(),
            stats: CleaningStats::default(),
            job,
        };
        cleaner.build_map(storage, pace)?;
        cleaner.stats.keys = cleaner.map.keys();
        cleaner.groups = cleaner.group_segments();
        Ok(cleaner)
    }

    /// Makes the next new segment; none where the pass is done.
    ///
    /// # Errors
    ///
    /// Any [`CompactionError`]; nothing is left behind of the segment then.
    pub fn next_segment(
        &mut self,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<Option<CleanedSegment>, CompactionError> {
        let Some(group) = self.groups.pop_front() else {
            return Ok(None);
        };
        let mut writer = CleanedWriter::create(
            &self.job.dir,
            group[0].base_offset,
            OUTPUT,
            self.job.index_interval_bytes,
            self.job.now,
            storage,
        )?;
        if let Err(error) = self.clean_group(&group, &mut writer, storage, pace) {
            writer.discard(storage);
            return Err(error);
        }
        let segment = Box::new(writer.finish(storage)?);
        self.stats.written_bytes += u64::from(segment.size_bytes());
        Ok(Some(CleanedSegment {
            id: self.job.id,
            dir: self.job.dir.clone(),
            replaced: group.iter().map(|segment| segment.base_offset).collect(),
            segment,
        }))
    }

    /// Everything below is clean once all new segments are in place.
    #[must_use]
    pub fn clean_end(&self) -> Offset {
        self.map_end
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> CleaningStats {
        self.stats
    }

    fn build_map(&mut self, storage: &mut dyn Storage, pace: Pace<'_>) -> Result<(), CompactionError> {
        let dirty: Vec<_> = self.job.dirty_segments().collect();
        for segment in dirty {
            let mut reader = SegmentReader::open(&self.job.dir, segment, INPUT, storage)?;
            let covered = self.map_segment(&mut reader, storage, pace);
            reader.close(storage);
            self.stats.read_bytes += reader.position();
            if !covered? {
                break;
            }
            self.map_end = segment.next_base;
        }
        if self.map_end <= self.job.first_dirty_offset && !self.job.segments.is_empty() {
            let offset = self.map_end;
            return Err(CompactionError::MapTooSmall { offset });
        }
        Ok(())
    }

    /// Puts the keys of a segment into the map; false where it became full.
    fn map_segment(
        &mut self,
        reader: &mut SegmentReader,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<bool, CompactionError> {
        let first_dirty = self.job.first_dirty_offset;
        while let Some((batch, _)) = reader.next(storage, pace)? {
            let header = batch.header();
            let counts = header.last_offset() >= first_dirty
                && !header.attributes().is_control()
                && !self.transactions.is_aborted(header);
            if counts {
                let unreadable = |source| CompactionError::Record {
                    offset: header.base_offset(),
                    source,
                };
                let records = batch.records(DECOMPRESSED_BYTES_MAX).map_err(unreadable)?;
                for record in &records {
                    let record = record.map_err(unreadable)?;
                    if let Some(key) = record.key
                        && record.offset >= first_dirty
                        && !self.map.put(key, record.offset)
                    {
                        return Ok(false);
                    }
                }
            }
            self.map_end = self.map_end.max(header.next_offset());
        }
        Ok(true)
    }

    /// The segments up to the map's end, neighbours together as long as one segment can hold them.
    fn group_segments(&self) -> VecDeque<Vec<DirtySegment>> {
        let mut groups: VecDeque<Vec<DirtySegment>> = VecDeque::new();
        let mut group_bytes = 0_u64;
        let covered = |segment: &&DirtySegment| segment.base_offset < self.map_end;
        for segment in self.job.segments.iter().take_while(covered) {
            let bytes = u64::from(segment.size_bytes);
            match groups.back_mut() {
                Some(group)
                    if group_bytes + bytes <= u64::from(self.job.segment_bytes)
                        && segment.next_base.0 - group[0].base_offset.0 <= i64::from(i32::MAX) =>
                {
                    group_bytes += bytes;
                    group.push(*segment);
                }
                _ => {
                    group_bytes = bytes;
                    groups.push_back(vec![*segment]);
                }
            }
        }
        groups
    }

    fn clean_group(
        &mut self,
        group: &[DirtySegment],
        writer: &mut CleanedWriter,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<(), CompactionError> {
        let last = group.iter().rposition(|segment| segment.size_bytes > 0);
        for (at, segment) in group.iter().enumerate() {
            let mut reader = SegmentReader::open(&self.job.dir, *segment, INPUT, storage)?;
            let cleaned = self.clean_segment(&mut reader, last == Some(at), writer, storage, pace);
            reader.close(storage);
            self.stats.read_bytes += reader.position();
            cleaned?;
        }
        Ok(())
    }

    fn clean_segment(
        &mut self,
        reader: &mut SegmentReader,
        is_last: bool,
        writer: &mut CleanedWriter,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<(), CompactionError> {
        while let Some((batch, ends_segment)) = reader.next(storage, pace)? {
            let out = writer.buffer();
            let start = out.len();
            let aborted = if batch.header().attributes().is_control() {
                self.clean_control(batch, out)?
            } else {
                self.clean_batch(batch, out)?;
                None
            };
            // The file says by its last batch which segments it replaces: where a stop interrupts that,
            // they are those up to its end.
            if out.len() == start && (self.is_last_of_producer(batch) || is_last && ends_segment) {
                write_emptied(batch.header(), out);
            }
            if out.len() > start {
                writer.appended(start, storage)?;
            }
            if let Some(aborted) = aborted {
                writer.note_aborted(aborted);
            }
        }
        Ok(())
    }

    /// Appends what stays of a batch of records to `out`.
    fn clean_batch(&mut self, batch: RecordBatch<'_>, out: &mut Vec<u8>) -> Result<(), CompactionError> {
        let header = batch.header();
        let offset = header.base_offset();
        self.transactions.handle_batch(header);
        if self.transactions.is_aborted(header) {
            self.stats.dropped_records += u64::from(header.records_count().unsigned_abs());
            return Ok(());
        }
        if header.last_offset() >= self.map_end {
            out.extend_from_slice(batch.bytes());
            return Ok(());
        }
        let horizon = header.attributes().has_delete_horizon();
        let tombstones_stay = !horizon || self.job.now < header.base_timestamp();
        let map = &self.map;
        let retained = Retained::of(batch, DECOMPRESSED_BYTES_MAX, |record| {
            let is_latest = record
                .key
                .is_some_and(|key| map.latest(key).is_none_or(|latest| record.offset >= latest));
            is_latest && (record.value.is_some() || tombstones_stay)
        });
        let retained = retained.map_err(|source| CompactionError::Record { offset, source })?;
        let kept = retained.records_count();
        self.stats.dropped_records += u64::from(header.records_count().abs_diff(kept));
        if retained.is_empty() {
            return Ok(());
        }
        let sets_horizon = retained.has_tombstones() && !horizon;
        retained
            .write(sets_horizon.then_some(self.new_horizon()), out)
            .map_err(|source| CompactionError::Rewrite { offset, source })
    }

    /// Appends what stays of a control batch to `out`; the entry of the transaction index that stays
    /// with it.
    fn clean_control(
        &mut self,
        batch: RecordBatch<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<AbortedTxn>, CompactionError> {
        let header = batch.header();
        let offset = header.base_offset();
        let marker =
            EndTxnMarker::from_batch(&batch).map_err(|source| CompactionError::Control { offset, source })?;
        match self.transactions.handle_control(header, marker) {
            Marker::Needed(aborted) => {
                out.extend_from_slice(batch.bytes());
                return Ok(aborted);
            }
            Marker::Spent if header.records_count() == 0 => {}
            Marker::Spent if !header.attributes().has_delete_horizon() => {
                let all = Retained::of(batch, DECOMPRESSED_BYTES_MAX, |_| true);
                let all = all.map_err(|source| CompactionError::Record { offset, source })?;
                all.write(Some(self.new_horizon()), out)
                    .map_err(|source| CompactionError::Rewrite { offset, source })?;
            }
            Marker::Spent if self.job.now < header.base_timestamp() => {
                out.extend_from_slice(batch.bytes());
            }
            Marker::Spent => self.stats.dropped_records += 1,
        }
        Ok(None)
    }

    fn new_horizon(&self) -> TimestampMs {
        TimestampMs(self.job.now.0.saturating_add(self.job.delete_retention_ms))
    }

    fn is_last_of_producer(&self, batch: RecordBatch<'_>) -> bool {
        let header = batch.header();
        match self.job.last_of_producers.get(&header.producer_id()) {
            None => false,
            Some(LastOfProducer::Batch(last_offset)) => {
                header.last_offset() == *last_offset && !header.attributes().is_control()
            }
            Some(LastOfProducer::Marker(epoch)) => {
                header.attributes().is_control() && header.producer_epoch() == *epoch
            }
        }
    }
}

/// A batch that is not what the log has written.
pub(super) fn damaged(path: &Path, position: u64, defect: impl Into<Defect>) -> CompactionError {
    CompactionError::Damaged {
        path: path.to_owned(),
        position,
        defect: defect.into(),
    }
}
