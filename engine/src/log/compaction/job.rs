//! What goes from a log to the cleaner and back: plain values that cross threads.
//!
//! A job stands for the log as it was when the job was made. Whatever changes the segments meanwhile
//! (a truncation, a deletion) makes the job stale, which the log finds out by its [`CleaningId`] when
//! a [`CleanedSegment`] comes back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::log_segment::LogSegment;
use super::super::txn_index::AbortedTxn;
use super::swap::remove_cleaned;
use crate::io::Storage;
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Names one job of one log; never reused while the log is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningId(pub(super) u64);

/// A segment to be cleaned: sealed, and so on disk as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtySegment {
    pub(super) base_offset: Offset,
    pub(super) size_bytes: u32,
    /// Exclusive; where the next one begins.
    pub(super) next_base: Offset,
}

/// The last thing a producer wrote, which stays so that it can go on after it.
#[derive(Clone, Copy, Debug)]
pub(super) enum LastOfProducer {
    /// The batch that ends with this offset: it has the last sequence.
    Batch(Offset),
    /// A marker of this epoch: it fences the epochs before.
    Marker(ProducerEpoch),
}

/// See the module.
#[derive(Debug)]
pub struct CleaningJob {
    pub(super) id: CleaningId,
    pub(super) dir: PathBuf,
    /// From the log's first segment on, in order.
    pub(super) segments: Vec<DirtySegment>,
    /// Below, each key has one record, but for what has been superseded since.
    pub(super) first_dirty_offset: Offset,
    pub(super) aborted: Vec<AbortedTxn>,
    pub(super) last_of_producers: BTreeMap<ProducerId, LastOfProducer>,
    pub(super) delete_retention_ms: i64,
    pub(super) segment_bytes: u32,
    pub(super) index_interval_bytes: u32,
    pub(super) now: TimestampMs,
}

impl CleaningJob {
    /// The log's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Names the job to its log.
    #[must_use]
    pub fn id(&self) -> CleaningId {
        self.id
    }

    /// Bytes of the segments that are not clean: what is read twice.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        let dirty = self.dirty_segments();
        dirty.map(|segment| u64::from(segment.size_bytes)).sum()
    }

    /// Those with offsets at or above the first dirty one.
    pub(super) fn dirty_segments(&self) -> impl Iterator<Item = DirtySegment> + use<'_> {
        let clean = self
            .segments
            .partition_point(|segment| segment.next_base <= self.first_dirty_offset);
        self.segments[clean..].iter().copied()
    }
}

/// A new segment, on stable storage with its indexes, under names that mean nothing yet.
#[derive(Debug)]
pub struct CleanedSegment {
    pub(super) id: CleaningId,
    pub(super) dir: PathBuf,
    /// The base offsets of the segments it replaces; the first is its own.
    pub(super) replaced: Vec<Offset>,
    pub(super) segment: Box<LogSegment>,
}

impl CleanedSegment {
    /// Deletes its files, where the log does not want it any more. What cannot be deleted is when the
    /// log is opened next.
    pub fn remove(&self, storage: &mut dyn Storage) {
        remove_cleaned(&self.dir, self.segment.base_offset, storage);
    }
}
