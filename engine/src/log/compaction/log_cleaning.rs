//! What a log decides about its compaction: what is dirty, what is to be cleaned, and when a new
//! segment takes the place of the old ones.
//!
//! Owns the first dirty offset, the job under way and the replacement in flight. One job at a time;
//! whatever removes segments above the log start makes it stale. The requests of a replacement follow
//! one another: names, then the file, then the log's own list, so that a read plan made before is
//! carried out on the old file and one made after on the new. Never above the last stable offset, and
//! never in the active segment. Knows no threads and no clock. Tested in `tests/log_compaction.rs`.

use super::super::file_name::FileKind;
use super::super::log::Log;
use super::super::log_segment::{LogSegment, SegmentPhase};
use super::super::operation::{Operation, SwapStep};
use super::super::producer_state::ProducerState;
use super::epoch_changes::EpochChanges;
use super::job::{CleanedSegment, CleaningId, CleaningJob, DirtySegment};
use super::swap::{replace, retired_paths, settle};
use crate::io::{FileId, IoOp, IoQueue};
use crate::record::BatchHeader;
use crate::types::{Offset, TimestampMs};

/// Parts of a whole that [`Dirtiness::ratio_ppm`] counts in.
const WHOLE_PPM: u128 = 1_000_000;

/// How much a log needs cleaning; the greater the sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dirtiness {
    /// A record has waited for `max.compaction.lag.ms`.
    pub overdue: bool,
    /// Bytes that are dirty, in millionths of those that a pass would read.
    pub ratio_ppm: u32,
}

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Cleaning {
    first_dirty_offset: Offset,
    last_id: CleaningId,
    current: Option<CleaningId>,
    /// Segments of the job under way lie below the log start and are removed.
    shortened: bool,
    epoch_changes: EpochChanges,
    swap: Option<Swap>,
}

/// A replacement in flight.
#[derive(Debug)]
struct Swap {
    new: CleanedSegment,
    file: FileId,
    /// The last step that is done.
    done: Option<SwapStep>,
    in_flight: bool,
}

impl Cleaning {
    pub(in super::super) fn new(first_dirty_offset: Offset) -> Self {
        Self {
            first_dirty_offset,
            last_id: CleaningId(0),
            current: None,
            shortened: false,
            epoch_changes: EpochChanges::default(),
            swap: None,
        }
    }

    /// Whether a replacement is in flight: the segments must stay as they are.
    pub(in super::super) fn is_swapping(&self) -> bool {
        self.swap.is_some()
    }

    /// Makes the job under way stale: the log was cut to `end` and is flushed. Nothing above is clean any more.
    pub(in super::super) fn abandon(&mut self, end: Offset) {
        self.current = None;
        self.first_dirty_offset = self.first_dirty_offset.min(end);
        self.epoch_changes.clear();
    }

    /// Takes in a batch or marker that is being appended, before the producers do.
    pub(in super::super) fn handle_append(&mut self, header: &BatchHeader, producers: &ProducerState) {
        self.epoch_changes.handle_append(header, producers);
    }

    pub(in super::super) fn handle_flush(&mut self, flushed: Offset) {
        self.epoch_changes.handle_flush(flushed);
    }

    /// The log's first segments are being removed: the job under way may not find them any more.
    pub(in super::super) fn handle_removal(&mut self) {
        self.shortened = true;
    }

    pub(in super::super) fn handle_step(&mut self, step: SwapStep) {
        if let Some(swap) = &mut self.swap {
            swap.done = Some(step);
            swap.in_flight = false;
        }
    }
}

impl Log {
    /// Whether the log is to be cleaned now, and how much it needs it. `last_stable_offset` is where
    /// readers of committed records end.
    #[must_use]
    pub fn dirtiness(&self, last_stable_offset: Offset, now: TimestampMs) -> Option<Dirtiness> {
        let compaction = self.config.compaction.as_ref()?;
        let busy = self.cleaning.current.is_some() || self.poison().is_some() || self.pipeline.is_stalled();
        if busy {
            return None;
        }
        let first_dirty = self.first_dirty_offset();
        let (mut clean_bytes, mut dirty_bytes, mut overdue) = (0, 0, false);
        for (segment, next_base) in self.cleanable(last_stable_offset, now) {
            let bytes = u64::from(segment.size_bytes());
            if next_base <= first_dirty {
                clean_bytes += bytes;
            } else {
                dirty_bytes += bytes;
                let since = segment.first_timestamp();
                let waited_ms = now.0.saturating_sub(since.0);
                overdue |= since.0 >= 0 && waited_ms > compaction.max_lag_ms;
            }
        }
        let ratio_ppm =
            (u128::from(dirty_bytes) * WHOLE_PPM).checked_div((clean_bytes + dirty_bytes).into())?;
        let ratio_ppm = u32::try_from(ratio_ppm).expect("a part of a million");
        let due = overdue || ratio_ppm > compaction.min_dirty_ratio_ppm;
        (dirty_bytes > 0 && due).then_some(Dirtiness { overdue, ratio_ppm })
    }

    /// The segments that may be cleaned, from the first on, each with the base of the next.
    fn cleanable(
        &self,
        last_stable_offset: Offset,
        now: TimestampMs,
    ) -> impl Iterator<Item = (&LogSegment, Offset)> {
        let first_dirty = self.first_dirty_offset();
        let min_lag_ms = self.config.compaction.as_ref().map_or(0, |c| c.min_lag_ms);
        let next_bases = self.segments.iter().skip(1).map(|segment| segment.base_offset);
        self.segments
            .iter()
            .zip(next_bases)
            .take_while(move |(segment, next_base)| {
                let max = segment.max_timestamp();
                let too_young = |max: TimestampMs| now.0.saturating_sub(max.0) < min_lag_ms;
                segment.phase == SegmentPhase::Sealed
                    && *next_base <= last_stable_offset
                    && (*next_base <= first_dirty || !max.is_some_and(|max| too_young(max.timestamp)))
            })
    }

    /// Begins to clean what [`dirtiness`](Self::dirtiness) speaks of; none where a file of a segment is
    /// just being written, more of a producer has to be flushed first, or there is nothing to clean. The job before, if it has not come to its end,
    /// is stale from now on.
    pub fn begin_cleaning(&mut self, last_stable_offset: Offset, now: TimestampMs) -> Option<CleaningJob> {
        let delete_retention_ms = self.config.compaction.as_ref()?.delete_retention_ms;
        if self.pipeline.has_puts() || self.poison().is_some() || self.cleaning.is_swapping() {
            return None;
        }
        let dirty = |(segment, next_base): (&LogSegment, Offset)| DirtySegment {
            base_offset: segment.base_offset,
            size_bytes: segment.size_bytes(),
            next_base,
        };
        let segments: Vec<_> = self.cleanable(last_stable_offset, now).map(dirty).collect();
        let end = segments.last()?.next_base;
        let first_dirty_offset = self.first_dirty_offset();
        if end <= first_dirty_offset {
            return None;
        }
        // A batch that a crash may take does not make up for the one before it.
        let flushed = self.pipeline.flushed;
        let last_of_producers = self
            .cleaning
            .epoch_changes
            .last_of_producers(&self.producers, flushed);
        let Some(last_of_producers) = last_of_producers else {
            self.pipeline.want_flush(self.log_end_offset);
            return None;
        };
        let id = CleaningId(self.cleaning.last_id.0 + 1);
        self.cleaning.last_id = id;
        self.cleaning.current = Some(id);
        self.cleaning.shortened = false;
        Some(CleaningJob {
            id,
            dir: self.dir.clone(),
            segments,
            first_dirty_offset,
            aborted: self.aborted_transactions(Offset(0), end),
            last_of_producers,
            delete_retention_ms,
            segment_bytes: self.config.segment_bytes,
            index_interval_bytes: self.config.index_interval_bytes,
            now,
        })
    }

    /// Puts a new segment in the place of the ones it was made from; done once
    /// [`is_swapping`](Self::is_swapping) is false again. Readers who hold a plan finish on the old file.
    ///
    /// # Durability
    ///
    /// A crash leaves the old segments or the new one.
    ///
    /// # Errors
    ///
    /// Gives the segment back where the log has changed meanwhile and does not want it: its files are
    /// to be removed, and the job is over.
    pub fn swap_in(&mut self, new: CleanedSegment) -> Result<(), CleanedSegment> {
        let as_it_was = |base: &Offset| {
            let segment = self.segments.get(*base);
            segment.is_some_and(|segment| segment.phase == SegmentPhase::Sealed)
        };
        if self.cleaning.current != Some(new.id)
            || self.cleaning.is_swapping()
            || self.poison().is_some()
            || !new.replaced.iter().all(as_it_was)
        {
            self.cleaning.current = None;
            return Err(new);
        }
        // First: from here on, what is missing was not lost.
        self.segment_checkpoint
            .retain(|base| !new.replaced.contains(&base));
        self.put_segment_checkpoint();
        let file = self.new_file();
        self.cleaning.swap = Some(Swap {
            new,
            file,
            done: None,
            in_flight: false,
        });
        Ok(())
    }

    /// Whether a new segment is on its way to its place. A poisoned log never gets it there.
    #[must_use]
    pub fn is_swapping(&self) -> bool {
        self.cleaning.is_swapping() && self.poison().is_none()
    }

    /// The job is over: below `clean_end` every key has its latest record only, or, where there is none,
    /// nothing has come of it but what was swapped in. Whether nothing has happened to the log by which it had
    /// to fail.
    pub fn end_cleaning(&mut self, id: CleaningId, clean_end: Option<Offset>) -> bool {
        if self.cleaning.current != Some(id) {
            return false;
        }
        self.cleaning.current = None;
        let Some(clean_end) = clean_end else {
            return !self.cleaning.shortened;
        };
        self.cleaning.first_dirty_offset = clean_end;
        true
    }

    /// Below, every key had its latest record only when the log was cleaned last; to be checkpointed.
    #[must_use]
    pub fn first_dirty_offset(&self) -> Offset {
        self.cleaning.first_dirty_offset.max(self.log_start_offset)
    }

    /// Takes over what was checkpointed before the log was opened; more than there is does not count.
    pub fn set_first_dirty_offset(&mut self, offset: Offset) {
        if offset <= self.log_end_offset {
            self.cleaning.first_dirty_offset = offset;
        }
    }

    /// Makes the next request of a replacement.
    pub(in super::super) fn poll_swap(&mut self, queue: &mut IoQueue) {
        let waits = self.pipeline.has_puts();
        let Some(swap) = self.cleaning.swap.as_mut().filter(|swap| !swap.in_flight) else {
            return;
        };
        if waits && swap.done.is_none() {
            return;
        }
        let next = match swap.done {
            None => SwapStep::Replace,
            Some(SwapStep::Replace) => SwapStep::Settle,
            Some(SwapStep::Settle) => SwapStep::Open,
            Some(SwapStep::Open) => return self.finish_swap(queue),
        };
        swap.in_flight = true;
        self.push_swap_step(next, queue);
    }

    /// Makes the request of one step; each may be made again where the disk was full.
    pub(in super::super) fn push_swap_step(&mut self, step: SwapStep, queue: &mut IoQueue) {
        let swap = self
            .cleaning
            .swap
            .as_ref()
            .expect("a step belongs to a replacement");
        let base = swap.new.segment.base_offset;
        let op = match step {
            SwapStep::Replace => IoOp::Rename {
                renames: replace(&self.dir, &swap.new.replaced),
            },
            SwapStep::Settle => IoOp::Rename {
                renames: settle(&self.dir, base),
            },
            SwapStep::Open => IoOp::Open {
                file: swap.file,
                path: FileKind::Log.path(&self.dir, base),
            },
        };
        self.pipeline.push(Operation::Swap(step), op, queue);
    }

    /// From now on reads are planned in the new segment.
    fn finish_swap(&mut self, queue: &mut IoQueue) {
        let Some(swap) = self.cleaning.swap.take() else {
            return;
        };
        let CleanedSegment {
            replaced,
            mut segment,
            ..
        } = swap.new;
        segment.file = swap.file;
        let (_, record) = segment.encode_indexes();
        self.segment_checkpoint.set(segment.base_offset, record);
        self.put_segment_checkpoint();
        let old = self.segments.replace(&replaced, *segment);
        let end = old.last().map_or(Offset(0), LogSegment::next_offset);
        self.recent.forget_below(end);
        for segment in old {
            self.pipeline
                .push_forget(IoOp::Close { file: segment.file }, queue);
        }
        let paths = retired_paths(&self.dir, &replaced);
        self.pipeline.push_forget(IoOp::Remove { paths }, queue);
    }
}
