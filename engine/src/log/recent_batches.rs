//! Where the last batches lie, so that reads at the tail need not search.
//!
//! Owns a bounded window; whoever misses in it walks from the sparse index instead, so that it is
//! an optimisation and never the only answer. Knows no files. Tested below and in
//! `tests/log_read.rs`.

use std::collections::VecDeque;

use crate::types::Offset;

/// Entries kept at least, which cover a consumer that is a little behind.
const ENTRIES_MIN: usize = 256;
/// Entries kept at most, however far the flush is behind: 2 MiB.
const ENTRIES_MAX: usize = 64 * 1024;

/// The place of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecentBatch {
    pub(super) base_offset: Offset,
    /// Exclusive end.
    pub(super) next_offset: Offset,
    /// In the segment of the base offset.
    pub(super) position: u32,
    pub(super) len_bytes: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RecentBatches {
    entries: VecDeque<RecentBatch>,
}

impl RecentBatches {
    /// Adds the batch that was just appended. Those below `flushed` may be forgotten.
    pub(super) fn push(&mut self, batch: RecentBatch, flushed: Offset) {
        self.entries.push_back(batch);
        while self.entries.len() > ENTRIES_MIN {
            let oldest = self.entries[0];
            if oldest.next_offset > flushed && self.entries.len() <= ENTRIES_MAX {
                return;
            }
            self.entries.pop_front();
        }
    }

    /// The batch that contains `offset`, or `None` where it lies outside the window.
    pub(super) fn containing(&self, offset: Offset) -> Option<RecentBatch> {
        let at = self.entries.partition_point(|batch| batch.next_offset <= offset);
        self.entries
            .get(at)
            .copied()
            .filter(|batch| batch.base_offset <= offset)
    }

    /// The last batch from that of `start` on which ends at or below `bound` and for which `fits`
    /// holds; `fits` is false from some batch on.
    pub(super) fn last_from(
        &self,
        start: Offset,
        bound: Offset,
        fits: impl Fn(&RecentBatch) -> bool,
    ) -> Option<RecentBatch> {
        let end = self
            .entries
            .partition_point(|batch| batch.next_offset <= start || batch.next_offset <= bound && fits(batch));
        let last = self.entries.get(end.checked_sub(1)?)?;
        (last.next_offset > start).then_some(*last)
    }

    /// Forgets batches that begin below `offset`: their places have changed.
    pub(super) fn forget_below(&mut self, offset: Offset) {
        let gone = self.entries.partition_point(|batch| batch.base_offset < offset);
        self.entries.drain(..gone);
    }

    /// Forgets batches that do not lie below `offset`.
    pub(super) fn truncate_to(&mut self, offset: Offset) {
        let kept = self.entries.partition_point(|batch| batch.next_offset <= offset);
        self.entries.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: i64, flushed: i64) -> RecentBatches {
        let mut recent = RecentBatches::default();
        for i in 0..count {
            let position = u32::try_from(i).unwrap() * 100;
            let (base_offset, next_offset) = (Offset(i * 2), Offset(i * 2 + 2));
            recent.push(
                RecentBatch {
                    base_offset,
                    next_offset,
                    position,
                    len_bytes: 100,
                },
                Offset(flushed),
            );
        }
        recent
    }

    #[test]
    fn the_window_keeps_what_is_not_flushed_and_no_fewer_than_the_minimum() {
        assert!(filled(1000, 2000).containing(Offset(2 * 743)).is_none());
        assert_eq!(
            filled(1000, 2000).containing(Offset(2 * 744)).unwrap().position,
            74_400
        );
        assert!(filled(1000, 100).containing(Offset(100)).is_some());
        assert!(filled(1000, 100).containing(Offset(99)).is_none());
        assert!(filled(1000, 100).containing(Offset(2000)).is_none());
    }

    #[test]
    fn the_end_of_a_read_respects_bound_and_size() {
        let recent = filled(10, 0);
        let up_to = |bound, max| {
            recent.last_from(Offset(5), Offset(bound), |b| {
                b.position + b.len_bytes - 200 <= max
            })
        };
        assert_eq!(up_to(20, 1000).unwrap().position, 900);
        assert_eq!(up_to(9, 1000).unwrap().position, 300);
        assert_eq!(up_to(20, 250).unwrap().position, 300);
        assert_eq!(up_to(20, 50), None);
    }

    #[test]
    fn what_was_moved_is_forgotten() {
        let mut recent = filled(10, 0);
        recent.forget_below(Offset(6));
        assert!(recent.containing(Offset(5)).is_none());
        assert_eq!(recent.containing(Offset(6)).unwrap().position, 300);
    }

    #[test]
    fn truncation_forgets_the_batch_that_reaches_over() {
        let mut recent = filled(10, 0);
        recent.truncate_to(Offset(7));
        assert!(recent.containing(Offset(6)).is_none());
        assert!(recent.containing(Offset(5)).is_some());
    }
}
