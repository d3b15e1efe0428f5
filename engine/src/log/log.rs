//! The log of one partition: its watermarks, its turns, and what completions mean.
//!
//! Owns the parts and their order; the other files of this folder add the commands: `append.rs`,
//! `read.rs`, `open.rs`, `truncate.rs`, `retention.rs`. Knows no ring, thread, clock or socket: the owner calls
//! [`Log::poll_io`] at the end of each turn and [`Log::handle_io`] for each completion.
//!
//! ```text
//! INV-LOG-1   log_start <= written <= log_end     flushed <= written
//! ```
//!
//! Asserted after each turn and completion. Tested in `tests/log_append.rs`, `tests/log_model.rs`.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::checkpoint::encode_leader_epochs;
use super::compaction::Cleaning;
use super::failed_sync;
use super::file_name::{FileKind, LEADER_EPOCH_CHECKPOINT, SEGMENT_CHECKPOINT};
use super::leader_epoch_cache::LeaderEpochCache;
use super::log_segment::SegmentPhase;
use super::log_segments::LogSegments;
use super::operation::{Operation, Put};
use super::producer_state::ProducerState;
use super::recent_batches::RecentBatches;
use super::segment_checkpoint::SegmentCheckpoint;
use super::write_pipeline::{Poison, WritePipeline};
use crate::config::LogConfig;
use crate::io::{FileId, IoCompletion, IoOp, IoQueue, Storage};
use crate::types::{LeaderEpoch, LogId, Offset, ProducerId, TimestampMs};

/// One partition's log. See the module.
///
/// # Durability
///
/// A record below [`flushed_offset`](Self::flushed_offset) survives power loss; one below
/// [`written_offset`](Self::written_offset) survives the end of the process; what lies above
/// survives neither. Offsets are never given twice, whatever is lost below the flushed offset.
#[derive(Debug)]
pub struct Log {
    pub(super) id: LogId,
    pub(super) dir: PathBuf,
    pub(super) config: LogConfig,
    pub(super) segments: LogSegments,
    pub(super) segment_checkpoint: SegmentCheckpoint,
    pub(super) producers: ProducerState,
    pub(super) epochs: LeaderEpochCache,
    pub(super) epochs_changed: bool,
    pub(super) recent: RecentBatches,
    pub(super) pipeline: WritePipeline,
    pub(super) cleaning: Cleaning,
    pub(super) log_start_offset: Offset,
    pub(super) log_end_offset: Offset,
    pub(super) next_file: u32,
}

/// The log start offset cannot move there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("log start offset {asked} lies above the written offset {written}")]
pub struct LogStartOffsetError {
    /// What was asked for.
    pub asked: Offset,
    /// The most it can be.
    pub written: Offset,
}

impl Log {
    /// Ends a turn: makes the requests that what was appended, flushed or rolled calls for.
    pub fn poll_io(&mut self, queue: &mut IoQueue, now: TimestampMs) {
        if self.pipeline.poison().is_some() {
            if self.pipeline.take_sync_failed() {
                let (path, bytes) = (failed_sync::marker(&self.dir), Bytes::new());
                self.pipeline.push_forget(IoOp::Put { path, bytes }, queue);
            }
            return;
        }
        match self.pipeline.poll_stall(now) {
            Ok(()) => {
                self.pipeline.poll_zeros(&self.segments, &self.config, queue, now);
                self.poll_create(queue);
                self.poll_epochs();
                self.poll_swap(queue);
                self.pipeline.poll_put(queue);
                self.pipeline.poll_writes(&self.segments, queue);
            }
            Err(again) => again
                .into_iter()
                .for_each(|operation| self.push_again(operation, queue)),
        }
        self.pipeline
            .poll_sync(&self.segments, self.config.flush_policy, queue, now);
        self.drop_segments(queue);
        self.pipeline
            .poll_removals(&self.dir.join(SEGMENT_CHECKPOINT), queue);
        self.check_watermarks();
    }

    /// Takes the outcome of a request this log made.
    ///
    /// # Panics
    ///
    /// `INV-LOG-4`: where the request is not in flight.
    pub fn handle_io(&mut self, completion: IoCompletion) {
        let operation = self.pipeline.take(completion.token);
        if let Err(error) = completion.result {
            self.pipeline.handle_failure(operation, error);
            return;
        }
        match operation {
            Operation::Write => {
                self.pipeline.handle_write();
                self.pipeline.handle_room();
            }
            Operation::Zero => self.pipeline.zeros.handle_written(),
            Operation::Cut => {
                self.pipeline.zeros.handle_cut();
                self.seal_flushed_segments();
            }
            Operation::Sync { up_to } => {
                self.pipeline.flushed = self.pipeline.flushed.max(up_to);
                self.cleaning.handle_flush(self.pipeline.flushed);
                self.seal_flushed_segments();
            }
            Operation::Create { segment } => {
                if let Some(segment) = self.segments.get_mut(segment) {
                    segment.phase = SegmentPhase::Open;
                }
                self.pipeline.handle_room();
            }
            Operation::RemoveIndexes { segment } => {
                if let Some(segment) = self.segments.get_mut(segment) {
                    segment.index_files = false;
                }
                self.seal_flushed_segments();
            }
            Operation::Put(put) => {
                self.pipeline.handle_put(&put);
                self.pipeline.handle_room();
            }
            Operation::Swap(step) => {
                self.cleaning.handle_step(step);
                self.pipeline.handle_room();
            }
            Operation::Retire(files) => {
                self.pipeline.handle_retired(&files);
                self.unlist_segments();
            }
            Operation::Forget => {}
        }
        self.check_watermarks();
    }

    /// When [`poll_io`](Self::poll_io) is due though nothing else happens: an interval flush, or
    /// another try on a full disk.
    #[must_use]
    pub fn next_timeout(&self) -> Option<TimestampMs> {
        self.pipeline.next_timeout().filter(|_| self.poison().is_none())
    }

    /// Flushes what has been appended so far, whatever the flush policy says; done once
    /// [`flushed_offset`](Self::flushed_offset) reaches today's end.
    pub fn request_flush(&mut self) {
        self.pipeline.want_flush(self.log_end_offset);
        self.pipeline.zeros.handle_flush_wanted();
    }

    /// As [`request_flush`](Self::request_flush), where nobody waits: the log is not made ready for more of them.
    pub fn request_checkpoint_flush(&mut self) {
        self.pipeline.want_flush(self.log_end_offset);
    }

    /// Moves the first readable offset up to `offset`; lower ones change nothing. Segments that lie
    /// wholly below are removed, in this turn or, where they are not durable yet, in a later one.
    ///
    /// # Durability
    ///
    /// The owner records the log start offset; until then a crash brings back what was not removed.
    ///
    /// # Errors
    ///
    /// Where `offset` has not been written.
    pub fn increment_log_start_offset(
        &mut self,
        offset: Offset,
        queue: &mut IoQueue,
    ) -> Result<(), LogStartOffsetError> {
        let written = self.pipeline.written;
        if offset > written {
            return Err(LogStartOffsetError {
                asked: offset,
                written,
            });
        }
        if offset > self.log_start_offset {
            self.log_start_offset = offset;
            self.epochs_changed |= self.epochs.truncate_from_start(offset);
            self.pipeline.want_flush(offset);
            self.drop_segments(queue);
        }
        Ok(())
    }

    /// Lets go of transactions whose end is now committed; see
    /// [`first_unstable_offset`](Self::first_unstable_offset).
    pub fn handle_high_watermark(&mut self, high_watermark: Offset) {
        self.producers.handle_high_watermark(high_watermark);
    }

    /// Forgets idempotent producers that have been idle for `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, now: TimestampMs) {
        self.producers.expire(now, self.config.producer_id_expiration_ms);
    }

    /// The first readable offset, inclusive.
    #[must_use]
    pub fn log_start_offset(&self) -> Offset {
        self.log_start_offset
    }

    /// The offset the next record gets, exclusive end.
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    /// Everything below has been handed to the operating system; reads reach no further.
    #[must_use]
    pub fn written_offset(&self) -> Offset {
        self.pipeline.written
    }

    /// Everything below is on stable storage; the recovery point to be checkpointed.
    #[must_use]
    pub fn flushed_offset(&self) -> Offset {
        self.pipeline.flushed
    }

    /// The first offset of the oldest transaction that is open, or whose end is not below the high
    /// watermark yet, but at least the log start offset; the last stable offset is this, or else the
    /// high watermark.
    #[must_use]
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let first = self.producers.first_unstable_offset();
        first.map(|offset| offset.max(self.log_start_offset))
    }

    /// The end of `epoch` in this log: the largest epoch at or below it that is known, and where
    /// the next one begins (the log's end for the last). `None` where no such epoch is known.
    #[must_use]
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.end_offset_for(epoch, self.log_end_offset)
    }

    /// Begins `epoch` at the log's end, as its leader does before it appends; batches begin theirs by
    /// themselves.
    pub fn begin_leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.epochs_changed |= self.epochs.assign(epoch, self.log_end_offset);
    }

    /// The latest epoch, that of the last batch unless a later one has begun.
    #[must_use]
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest().map(|entry| entry.epoch)
    }

    /// Bytes in all segments, those not written yet included.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::from(segment.size_bytes()))
            .sum()
    }

    /// How many segments there are, at least one.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Why the log is read-only, if it is.
    #[must_use]
    pub fn poison(&self) -> Option<&Poison> {
        self.pipeline.poison()
    }

    /// Whether no request is in flight and none is waiting to be made: the state in which
    /// [`truncate_to`](Self::truncate_to) and [`close`](Self::close) may be called.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let creating = |phase| matches!(phase, SegmentPhase::Planned | SegmentPhase::Creating);
        let nothing_planned = !creating(self.segments.active().phase) && !self.cleaning.is_swapping();
        self.pipeline.is_idle() && (self.poison().is_some() || nothing_planned)
    }

    /// Whether a request is in flight. A log without one may be [discarded](Self::discard) with
    /// nothing of it left to arrive later.
    #[must_use]
    pub fn has_requests_in_flight(&self) -> bool {
        self.pipeline.any(|_| true)
    }

    /// Whether the disk was full when the log wrote last: what waits is tried again by and by.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.pipeline.is_stalled()
    }

    /// The largest producer id among those remembered: ids up to it are taken.
    #[must_use]
    pub fn last_producer_id(&self) -> Option<ProducerId> {
        self.producers.iter().map(|(id, _)| id).max()
    }

    /// What its owner knows it by.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Gives up a log that is to be deleted: its files are closed, nothing is written. To be called
    /// once no request is [in flight](Self::has_requests_in_flight): a file that was still being
    /// created would stay open, and a file written whole might appear in a successor's directory.
    pub fn discard(self, storage: &mut dyn Storage) {
        for segment in self.segments.iter() {
            storage.close(segment.file);
        }
    }

    /// The directory of the log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Changes the settings; what has been appended stays as it is.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config.bounded();
    }

    pub(super) fn new_file(&mut self) -> FileId {
        let number = self.next_file;
        self.next_file = number.checked_add(1).expect("a log rolls fewer than 2^32 times");
        FileId { log: self.id, number }
    }

    pub(super) fn index_paths(&self, segment: Offset) -> Vec<PathBuf> {
        FileKind::INDEXES
            .map(|kind| kind.path(&self.dir, segment))
            .to_vec()
    }

    /// Asks for the file of the oldest segment that has none.
    ///
    /// The index files of the segment before it are removed first if they are older than its last
    /// batches: as the creation makes the directory durable, a segment that is followed by another
    /// has index files only if it was wholly on stable storage when they were written. Recovery
    /// tells by that whether the end of a segment was lost.
    fn poll_create(&mut self, queue: &mut IoQueue) {
        // A segment that is followed by another has no zeros behind its data: recovery takes them for a
        // lost end.
        if self.segments.active().phase == SegmentPhase::Open || self.pipeline.zeros.segment().is_some() {
            return;
        }
        let mut previous = None;
        let planned = self.segments.iter().find(|segment| {
            let planned = segment.phase == SegmentPhase::Planned;
            if !planned {
                let stale = segment.index_files && segment.phase != SegmentPhase::Sealed;
                previous = Some((segment.base_offset, stale));
            }
            planned
        });
        let Some((base, file)) = planned.map(|segment| (segment.base_offset, segment.file)) else {
            return;
        };
        if self
            .pipeline
            .any(|op| matches!(op, Operation::Create { .. } | Operation::RemoveIndexes { .. }))
        {
            return;
        }
        if let Some((segment, true)) = previous {
            let paths = self.index_paths(segment);
            self.pipeline.push(
                Operation::RemoveIndexes { segment },
                IoOp::Remove { paths },
                queue,
            );
            return;
        }
        self.segments.get_mut(base).expect("it was just found").phase = SegmentPhase::Creating;
        self.push_create(base, file, queue);
    }

    fn push_create(&mut self, segment: Offset, file: FileId, queue: &mut IoQueue) {
        let path = FileKind::Log.path(&self.dir, segment);
        self.pipeline
            .push(Operation::Create { segment }, IoOp::Create { file, path }, queue);
    }

    fn push_again(&mut self, operation: Operation, queue: &mut IoQueue) {
        match operation {
            Operation::Write => self.pipeline.submit_write(queue),
            Operation::Put(put) => self.pipeline.push_put(put, queue),
            Operation::Swap(step) => self.push_swap_step(step, queue),
            Operation::Create { segment } => {
                if let Some(file) = self.segments.get_mut(segment).map(|segment| segment.file) {
                    self.push_create(segment, file, queue);
                }
            }
            Operation::Zero
            | Operation::Cut
            | Operation::Sync { .. }
            | Operation::RemoveIndexes { .. }
            | Operation::Retire(_)
            | Operation::Forget => unreachable!("only what needs room is tried again"),
        }
    }

    /// Batches of a new epoch are not flushed, and the recovery point so not moved past them, before
    /// the epoch is on disk: recovery looks for epochs only from the recovery point's segment on.
    fn poll_epochs(&mut self) {
        if std::mem::take(&mut self.epochs_changed) {
            let path = self.dir.join(LEADER_EPOCH_CHECKPOINT);
            let bytes = encode_leader_epochs(&self.epochs).into();
            self.pipeline.put(Put {
                path,
                bytes,
                before_sync: true,
            });
        }
    }

    /// Writes the indexes of segments that are rolled and wholly on stable storage, and then that they
    /// are.
    pub(super) fn seal_flushed_segments(&mut self) {
        let zeros = self.pipeline.zeros.segment();
        let (flushed, active) = (self.pipeline.flushed, self.segments.active().base_offset);
        let mut sealed = false;
        // Those that are not sealed yet are the last few.
        for segment in self.segments.iter_mut().rev() {
            let base = segment.base_offset;
            if segment.phase == SegmentPhase::Sealed {
                break;
            }
            // Stale index files are to be gone before new ones come.
            if base == active || segment.next_offset() > flushed || segment.index_files || zeros == Some(base)
            {
                continue;
            }
            segment.phase = SegmentPhase::Sealed;
            segment.index_files = true;
            sealed = true;
            let (files, record) = segment.encode_indexes();
            self.segment_checkpoint.set(base, record);
            for (kind, bytes) in files {
                if let Some(bytes) = bytes {
                    self.pipeline.put(Put {
                        path: kind.path(&self.dir, base),
                        bytes,
                        before_sync: false,
                    });
                }
            }
        }
        if sealed {
            self.unlist_segments();
        }
    }

    /// Has the segments listed that there are, and no others.
    fn unlist_segments(&mut self) {
        let segments = &self.segments;
        self.segment_checkpoint
            .retain(|base| segments.get(base).is_some());
        self.put_segment_checkpoint();
    }

    pub(super) fn put_segment_checkpoint(&mut self) {
        self.pipeline.put(Put {
            path: self.dir.join(SEGMENT_CHECKPOINT),
            bytes: self.segment_checkpoint.encode().into(),
            before_sync: false,
        });
    }

    fn check_watermarks(&self) {
        let (written, flushed) = (self.pipeline.written, self.pipeline.flushed);
        let (start, end) = (self.log_start_offset, self.log_end_offset);
        assert!(
            start <= written && written <= end && flushed <= written,
            "INV-LOG-1: log start {start}, flushed {flushed}, written {written}, log end {end}"
        );
    }
}
