//! Which leader epoch wrote which part of a log (KIP-101, KIP-279).
//!
//! Owns the entries (epoch, first offset); both ascend strictly from one entry to the next. Its
//! file, `leader-epoch-checkpoint`, is in `checkpoint.rs`. Tested below against a model.

use crate::types::{LeaderEpoch, Offset};

/// A leader epoch and the first offset written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch, 0 or more.
    pub epoch: LeaderEpoch,
    /// Its first offset, 0 or more.
    pub start_offset: Offset,
}

/// The leader epochs of one log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochCache {
    /// No epochs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `epoch` writes from `start_offset` on; whether that was news.
    ///
    /// The first offset of the latest epoch stays as it is. Entries that contradict a new one (an
    /// epoch as high, or an offset as high, whose records are then gone) make way for it. A
    /// negative epoch or offset, as in batches without an epoch, is not recorded.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        let known = self
            .latest()
            .is_some_and(|latest| latest.epoch == epoch && latest.start_offset <= start_offset);
        if known || epoch <= LeaderEpoch::NONE || start_offset.0 < 0 {
            return false;
        }
        let contradicted = |entry: &EpochEntry| entry.epoch >= epoch || entry.start_offset >= start_offset;
        self.entries
            .truncate(self.entries.partition_point(|entry| !contradicted(entry)));
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// Takes in that a batch of `epoch` begins at `offset`, while a log is recovered in offset order. What was
    /// known stays as far as the batch allows: compaction may have taken the batches that an epoch began with,
    /// or all that it wrote. What the batch contradicts goes, with all that was known of later offsets.
    pub fn learn(&mut self, epoch: LeaderEpoch, offset: Offset) {
        if epoch <= LeaderEpoch::NONE || self.epoch_for(offset) == Some(epoch) {
            return;
        }
        let agrees = |entry: &EpochEntry| entry.epoch <= epoch && entry.start_offset < offset;
        let at = self.entries.partition_point(agrees);
        match self.entries.get_mut(at) {
            Some(next) if next.start_offset > offset && next.epoch == epoch => next.start_offset = offset,
            Some(next) if next.start_offset > offset && next.epoch > epoch => {
                let start_offset = offset;
                self.entries.insert(at, EpochEntry { epoch, start_offset });
            }
            _ => {
                self.entries.truncate(at);
                self.assign(epoch, offset);
            }
        }
    }

    /// The largest known epoch not above `epoch`, and its end (exclusive) in this log.
    ///
    /// That of the latest epoch is `log_end_offset`. For an epoch older than any known, it is the
    /// epoch itself with the first known offset: what it wrote is gone. None where `epoch` is
    /// unknown ([`LeaderEpoch::NONE`]) or above the latest.
    #[must_use]
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.latest()?;
        if epoch == latest.epoch {
            return Some((epoch, log_end_offset));
        }
        if epoch <= LeaderEpoch::NONE {
            return None;
        }
        let next = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let end_offset = self.entries.get(next)?.start_offset;
        let floor = next
            .checked_sub(1)
            .map_or(epoch, |floor| self.entries[floor].epoch);
        Some((floor, end_offset))
    }

    /// The epoch that wrote `offset`; none before the first known.
    #[must_use]
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let next = self.entries.partition_point(|entry| entry.start_offset <= offset);
        next.checked_sub(1).map(|floor| self.entries[floor].epoch)
    }

    /// Forgets the epochs that wrote nothing below `end_offset`; whether there were any.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Forgets the epochs that wrote nothing from `start_offset` on, and moves the first offset of
    /// the one that wrote it up to there; whether anything changed.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let next = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(floor) = next.checked_sub(1) else {
            return false;
        };
        let changed = floor > 0 || self.entries[floor].start_offset < start_offset;
        self.entries.drain(..floor);
        self.entries[0].start_offset = start_offset;
        changed
    }

    /// The latest epoch.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The epochs, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
        let mut cache = LeaderEpochCache::new();
        for &(epoch, start_offset) in entries {
            cache.assign(LeaderEpoch(epoch), Offset(start_offset));
        }
        cache
    }

    fn entries(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
        cache
            .entries()
            .iter()
            .map(|entry| (entry.epoch.0, entry.start_offset.0))
            .collect()
    }

    #[test]
    fn what_a_batch_allows_stays_and_what_it_contradicts_goes() {
        let known = [(1, 10), (3, 20), (5, 30)];
        let learned = |epoch, offset| {
            let mut cache = cache(&known);
            cache.learn(LeaderEpoch(epoch), Offset(offset));
            entries(&cache)
        };
        for (epoch, offset) in [(1, 19), (3, 29), (5, 30), (5, 99), (-1, 15)] {
            assert_eq!(learned(epoch, offset), known);
        }
        assert_eq!(learned(7, 40), [(1, 10), (3, 20), (5, 30), (7, 40)]);
        assert_eq!(learned(0, 5), [(0, 5), (1, 10), (3, 20), (5, 30)]);
        assert_eq!(learned(1, 5), [(1, 5), (3, 20), (5, 30)]);
        assert_eq!(learned(2, 15), [(1, 10), (2, 15), (3, 20), (5, 30)]);
        assert_eq!(learned(3, 15), [(1, 10), (3, 15), (5, 30)]);
        assert_eq!(learned(4, 15), [(1, 10), (4, 15)]);
        assert_eq!(learned(1, 25), [(1, 10)]);
        assert_eq!(learned(2, 20), [(1, 10), (2, 20)]);
    }

    #[test]
    fn first_offset_of_an_epoch_is_kept() {
        let mut cache = cache(&[(2, 10)]);
        assert!(!cache.assign(LeaderEpoch(2), Offset(15)));
        assert!(!cache.assign(LeaderEpoch(2), Offset(10)));
        assert!(cache.assign(LeaderEpoch(3), Offset(20)));
        assert_eq!(entries(&cache), [(2, 10), (3, 20)]);
    }

    #[test]
    fn contradicted_entries_make_way() {
        assert_eq!(
            entries(&cache(&[(1, 0), (2, 10), (3, 20), (4, 10)])),
            [(1, 0), (4, 10)]
        );
        assert_eq!(entries(&cache(&[(1, 0), (5, 10), (3, 20)])), [(1, 0), (3, 20)]);
        assert_eq!(entries(&cache(&[(1, 5), (2, 10), (2, 7)])), [(1, 5), (2, 7)]);
    }

    #[test]
    fn batches_without_an_epoch_are_not_recorded() {
        assert_eq!(entries(&cache(&[(-1, 0), (0, -1)])), []);
    }

    #[test]
    fn end_offset_is_where_the_next_epoch_begins() {
        let cache = cache(&[(2, 10), (4, 20), (7, 30)]);
        let end = |epoch| cache.end_offset_for(LeaderEpoch(epoch), Offset(100));
        let found = |epoch, offset| Some((LeaderEpoch(epoch), Offset(offset)));
        assert_eq!(end(7), found(7, 100), "the latest ends with the log");
        assert_eq!(end(4), found(4, 30));
        assert_eq!(end(2), found(2, 20));
        assert_eq!(end(5), found(4, 30), "the largest not above");
        assert_eq!(end(3), found(2, 20));
        assert_eq!(end(1), found(1, 10), "before all known, the log's first offset");
        assert_eq!(end(8), None, "from the future");
        assert_eq!(end(-1), None);
        assert_eq!(
            LeaderEpochCache::new().end_offset_for(LeaderEpoch(0), Offset(0)),
            None
        );
    }

    #[test]
    fn truncation_from_the_end_keeps_epochs_with_records() {
        let mut cache = cache(&[(2, 10), (4, 20), (7, 30)]);
        assert!(!cache.truncate_from_end(Offset(31)));
        assert!(cache.truncate_from_end(Offset(30)));
        assert_eq!(entries(&cache), [(2, 10), (4, 20)]);
        assert!(cache.truncate_from_end(Offset(0)));
        assert_eq!(entries(&cache), []);
    }

    #[test]
    fn truncation_from_the_start_moves_the_first_epoch_up() {
        let mut cache = cache(&[(2, 10), (4, 20), (7, 30)]);
        assert!(!cache.truncate_from_start(Offset(9)));
        assert!(!cache.truncate_from_start(Offset(10)));
        assert!(cache.truncate_from_start(Offset(25)));
        assert_eq!(entries(&cache), [(4, 25), (7, 30)]);
        assert!(cache.truncate_from_start(Offset(99)));
        assert_eq!(entries(&cache), [(7, 99)]);
    }

    proptest! {
        /// The model is the log itself: the epoch of every offset.
        #[test]
        fn agrees_with_a_log_that_keeps_each_records_epoch(
            appends in prop::collection::vec((0_i32..3, 1_usize..4), 1..12),
            cut_start in 0_usize..10,
            cut_end in 0_usize..10,
        ) {
            let mut cache = LeaderEpochCache::new();
            let mut log = Vec::new();
            let mut epoch = 0;
            for (step, records) in appends {
                epoch += step;
                cache.assign(LeaderEpoch(epoch), Offset(log.len() as i64));
                log.extend(std::iter::repeat_n(epoch, records));
            }
            let end = log.len().saturating_sub(cut_end).max(1);
            let start = cut_start.min(end - 1);
            cache.truncate_from_end(Offset(end as i64));
            cache.truncate_from_start(Offset(start as i64));

            for (offset, &epoch) in log.iter().enumerate().take(end).skip(start) {
                prop_assert_eq!(cache.epoch_for(Offset(offset as i64)), Some(LeaderEpoch(epoch)));
                let next = log[..end].iter().position(|&other| other > epoch).unwrap_or(end);
                prop_assert_eq!(
                    cache.end_offset_for(LeaderEpoch(epoch), Offset(end as i64)),
                    Some((LeaderEpoch(epoch), Offset(next as i64)))
                );
            }
            prop_assert!(cache.entries().is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset < b.start_offset));
        }
    }
}
