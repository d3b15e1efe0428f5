//! Passes over many logs, one at a time: which log is next, what becomes of its new segments, and which logs
//! are left alone after a failure.
//!
//! Owns that order; whoever has the logs answers for them ([`CompactedLogs`]), wherever they are. Blocks. Knows
//! neither threads nor clocks, neither records nor what is dirty. Tested in `tests/engine/compaction.rs`
//! and by the broker's tests.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{
    CleanedSegment, Cleaner, CleanerConfig, CleaningId, CleaningJob, CleaningStats, CompactionError,
    Dirtiness, Pace,
};
use crate::io::Storage;
use crate::types::Offset;

/// Whoever has the logs. A log, or all, may be gone at any time.
pub trait CompactedLogs {
    /// What a log is known by.
    type Id: Copy + Ord;

    /// The logs that are to be cleaned now; see [`Log::dirtiness`](crate::log::Log::dirtiness).
    fn dirty(&mut self) -> Vec<(Dirtiness, Self::Id)>;

    /// See [`Log::begin_cleaning`](crate::log::Log::begin_cleaning).
    fn begin(&mut self, log: Self::Id) -> Option<CleaningJob>;

    /// Has [`Log::swap_in`](crate::log::Log::swap_in) done, and waits until the segment is in place.
    ///
    /// # Errors
    ///
    /// The segment where the log does not want it; `None` where that is not known, as the log is gone.
    fn swap_in(&mut self, log: Self::Id, new: CleanedSegment) -> Result<(), Option<CleanedSegment>>;

    /// See [`Log::end_cleaning`](crate::log::Log::end_cleaning).
    fn end(&mut self, log: Self::Id, job: CleaningId, clean_end: Option<Offset>) -> bool;
}

/// What has become of one pass.
#[derive(Debug)]
pub enum PassOutcome {
    /// The log is clean, as far as the key map reached.
    Cleaned(CleaningStats),
    /// The log has changed, or is gone, or was to stop.
    Stale,
    /// The disk is full; it will be tried again.
    NoSpace(CompactionError),
    /// As in Apache Kafka the log is left alone from now on.
    Failed(CompactionError),
}

/// See the module.
#[derive(Debug)]
pub struct Passes<L: CompactedLogs> {
    logs: L,
    config: CleanerConfig,
    failed: BTreeSet<L::Id>,
}

impl<L: CompactedLogs> Passes<L> {
    /// Nothing has been cleaned yet.
    pub fn new(logs: L, config: CleanerConfig) -> Self {
        Self {
            logs,
            config,
            failed: BTreeSet::new(),
        }
    }

    /// Cleans the log that needs it most; none where there is none. The directory of the log, and what has
    /// become of it. A `pace` that says no makes the pass stale.
    pub fn clean_one(&mut self, storage: &mut dyn Storage, pace: Pace<'_>) -> Option<(PathBuf, PassOutcome)> {
        let mut dirty = self.logs.dirty();
        dirty.retain(|(_, log)| !self.failed.contains(log));
        let (_, log) = dirty.into_iter().max()?;
        let job = self.logs.begin(log)?;
        let (dir, id) = (job.dir().to_owned(), job.id());
        let cleaned = self.clean(log, job, storage, pace);
        let clean_end = match &cleaned {
            Ok(Some(cleaner)) => Some(cleaner.clean_end()),
            _ => None,
        };
        let wanted = self.logs.end(log, id, clean_end);
        let outcome = match cleaned {
            Ok(Some(cleaner)) => PassOutcome::Cleaned(cleaner.stats()),
            Ok(None) | Err(CompactionError::Stopped) => PassOutcome::Stale,
            // The log was deleted meanwhile, or cut at an end: what was to be read is not what is there now.
            Err(_) if !wanted => PassOutcome::Stale,
            Err(error) if error.is_storage_full() => PassOutcome::NoSpace(error),
            Err(error) => {
                self.failed.insert(log);
                PassOutcome::Failed(error)
            }
        };
        Some((dir, outcome))
    }

    /// None where the log wants no more of it.
    fn clean(
        &mut self,
        log: L::Id,
        job: CleaningJob,
        storage: &mut dyn Storage,
        pace: Pace<'_>,
    ) -> Result<Option<Cleaner>, CompactionError> {
        let mut cleaner = Cleaner::start(job, self.config, storage, pace)?;
        while let Some(new) = cleaner.next_segment(storage, pace)? {
            if let Err(refused) = self.logs.swap_in(log, new) {
                if let Some(refused) = refused {
                    refused.remove(storage);
                }
                return Ok(None);
            }
        }
        Ok(Some(cleaner))
    }
}
