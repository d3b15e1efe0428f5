//! The segments of one log in order of their base offsets; there is always a last one.
//!
//! Owns the order and the search; knows nothing of what a segment holds. `INV-LOG-3`: a segment
//! ends at or below the base offset of the next. Tested below.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::log_segment::LogSegment;
use crate::types::Offset;

/// See the module.
#[derive(Debug)]
pub(super) struct LogSegments {
    by_base: BTreeMap<Offset, LogSegment>,
}

impl LogSegments {
    pub(super) fn new(first: LogSegment) -> Self {
        Self {
            by_base: BTreeMap::from([(first.base_offset, first)]),
        }
    }

    /// Adds a segment after the last one.
    ///
    /// # Panics
    ///
    /// `INV-LOG-3`.
    pub(super) fn push(&mut self, segment: LogSegment) {
        assert!(
            self.active().next_offset() <= segment.base_offset
                && self.active().base_offset < segment.base_offset,
            "INV-LOG-3: segment {} begins before {} ends",
            segment.base_offset,
            self.active().base_offset
        );
        self.by_base.insert(segment.base_offset, segment);
    }

    /// The segment that is appended to.
    pub(super) fn active(&self) -> &LogSegment {
        self.by_base.last_key_value().expect("a log has a segment").1
    }

    pub(super) fn active_mut(&mut self) -> &mut LogSegment {
        self.by_base.last_entry().expect("a log has a segment").into_mut()
    }

    pub(super) fn first(&self) -> &LogSegment {
        self.by_base.first_key_value().expect("a log has a segment").1
    }

    pub(super) fn get(&self, base_offset: Offset) -> Option<&LogSegment> {
        self.by_base.get(&base_offset)
    }

    pub(super) fn get_mut(&mut self, base_offset: Offset) -> Option<&mut LogSegment> {
        self.by_base.get_mut(&base_offset)
    }

    /// The last segment that begins at or below `offset`.
    pub(super) fn floor(&self, offset: Offset) -> Option<&LogSegment> {
        self.by_base
            .range(..=offset)
            .next_back()
            .map(|(_, segment)| segment)
    }

    /// The segment after the one of `base_offset`.
    pub(super) fn next(&self, base_offset: Offset) -> Option<&LogSegment> {
        let after = (Bound::Excluded(base_offset), Bound::Unbounded);
        self.by_base.range(after).next().map(|(_, segment)| segment)
    }

    /// Where the segment after the one of `base_offset` begins.
    pub(super) fn next_base(&self, base_offset: Offset) -> Option<Offset> {
        self.next(base_offset).map(|segment| segment.base_offset)
    }

    /// The segments in order, the first being the floor of `offset`.
    pub(super) fn range_from(&self, offset: Offset) -> impl Iterator<Item = &LogSegment> {
        let start = self.floor(offset).map_or(offset, |segment| segment.base_offset);
        self.by_base.range(start..).map(|(_, segment)| segment)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &LogSegment> + Clone {
        self.by_base.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut LogSegment> {
        self.by_base.values_mut()
    }

    /// Puts `new` in the place of those at `old`, which follow one another and of which the first has
    /// its base offset; takes them out.
    ///
    /// # Panics
    ///
    /// `INV-LOG-3`.
    pub(super) fn replace(&mut self, old: &[Offset], new: LogSegment) -> Vec<LogSegment> {
        let old = old.iter().filter_map(|base| self.by_base.remove(base)).collect();
        let (base, end) = (new.base_offset, new.next_offset());
        let next_base = self.next_base(base);
        assert!(
            next_base.is_some_and(|next| end <= next),
            "INV-LOG-3: segment {base} ends at {end}, the next begins at {next_base:?}"
        );
        self.by_base.insert(base, new);
        old
    }

    /// Takes out the first segment unless it is the only one.
    pub(super) fn pop_first(&mut self) -> Option<LogSegment> {
        if self.by_base.len() < 2 {
            return None;
        }
        self.by_base.pop_first().map(|(_, segment)| segment)
    }

    /// Takes out the last segment unless it is the only one.
    pub(super) fn pop_last(&mut self) -> Option<LogSegment> {
        if self.by_base.len() < 2 {
            return None;
        }
        self.by_base.pop_last().map(|(_, segment)| segment)
    }

    pub(super) fn len(&self) -> usize {
        self.by_base.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_segment::SegmentPhase;
    use super::*;
    use crate::io::FileId;
    use crate::types::{LogId, TimestampMs};

    fn segments(bases: &[i64]) -> LogSegments {
        let segment = |base: i64| {
            let file = FileId {
                log: LogId(0),
                number: 0,
            };
            LogSegment::new(Offset(base), file, SegmentPhase::Open, TimestampMs(0))
        };
        let mut segments = LogSegments::new(segment(bases[0]));
        for &base in &bases[1..] {
            segments.push(segment(base));
        }
        segments
    }

    #[test]
    fn floor_and_next_find_the_neighbours() {
        let segments = segments(&[5, 10, 20]);
        assert!(segments.floor(Offset(4)).is_none());
        assert_eq!(segments.floor(Offset(19)).unwrap().base_offset, Offset(10));
        assert_eq!(segments.next_base(Offset(10)), Some(Offset(20)));
        assert_eq!(segments.next_base(Offset(20)), None);
        assert_eq!(segments.range_from(Offset(11)).count(), 2);
        assert_eq!(segments.range_from(Offset(0)).count(), 3);
    }

    #[test]
    fn a_new_segment_takes_the_place_of_neighbours() {
        let mut segments = segments(&[5, 10, 20]);
        let file = FileId {
            log: LogId(0),
            number: 9,
        };
        let new = LogSegment::new(Offset(5), file, SegmentPhase::Sealed, TimestampMs(0));
        let old = segments.replace(&[Offset(5), Offset(10)], new);
        assert_eq!(old.len(), 2);
        assert_eq!(
            segments.iter().map(|s| s.base_offset.0).collect::<Vec<_>>(),
            [5, 20]
        );
        assert_eq!(segments.first().file, file);
    }

    #[test]
    fn the_only_segment_stays() {
        let mut segments = segments(&[0, 3]);
        assert_eq!(segments.pop_last().unwrap().base_offset, Offset(3));
        assert!(segments.pop_last().is_none() && segments.pop_first().is_none());
        assert_eq!(segments.len(), 1);
    }

    #[test]
    #[should_panic(expected = "INV-LOG-3")]
    fn overlapping_segments_are_a_broken_invariant() {
        segments(&[5, 5]);
    }
}
