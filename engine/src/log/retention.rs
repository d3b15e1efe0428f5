//! What a log lets go of: how far size and time move its start, and how the segments below go.
//!
//! Owns both. The decision is a pure function and follows Apache Kafka: whole segments from the
//! oldest on, none that reaches above the high watermark; the active one goes only where everything
//! does, and is rolled first. Nothing needs to be recorded before files go, since a log begins at
//! its first segment: there always is one, and its file is on disk before the one in front of it
//! goes. A segment goes by a change of names, durable at once, then by deletion. A file with such a
//! name tells opening, until `segment-checkpoint` is written, that the segments up to there were
//! removed and not lost. Readers keep the file they have open. Tested below, in
//! `tests/log_retention.rs` and `tests/log_model.rs`.

use super::file_name::FileKind;
use super::log::Log;
use super::log_segment::{LogSegment, SegmentPhase};
use super::operation::{Operation, RetiredFile};
use crate::config::LogConfig;
use crate::io::{IoOp, IoQueue};
use crate::types::{Offset, TimestampMs};

/// Segments whose files one request renames: a few hundred names, off the hot path.
const SEGMENTS_PER_REQUEST: usize = 64;

/// A segment as retention sees it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    size_bytes: u64,
    /// Where the next one begins, or the log ends.
    end: Offset,
    /// What its age is counted from.
    latest: TimestampMs,
}

/// Where the log may begin, from its segments in order; `None` where none of them may go.
fn let_go(
    segments: impl Iterator<Item = Candidate> + Clone,
    config: &LogConfig,
    high_watermark: Offset,
    now: TimestampMs,
) -> Option<Offset> {
    let total_bytes: u64 = segments.clone().map(|segment| segment.size_bytes).sum();
    let mut excess_bytes = config
        .retention_bytes
        .and_then(|limit| total_bytes.checked_sub(limit));
    let mut start = None;
    for segment in segments {
        let too_much = excess_bytes.is_some_and(|excess| excess >= segment.size_bytes);
        let age_ms = now.0.saturating_sub(segment.latest.0);
        let too_old = config.retention_ms.is_some_and(|limit| age_ms > limit);
        if segment.end > high_watermark || !too_much && !too_old {
            break;
        }
        excess_bytes = excess_bytes.map(|excess| excess.saturating_sub(segment.size_bytes));
        start = Some(segment.end);
    }
    start
}

impl Log {
    /// Removes the segments that `retention.ms` and `retention.bytes` let go of, as
    /// [`increment_log_start_offset`](Self::increment_log_start_offset) would; returns the new log
    /// start if it moved. To be called every few minutes.
    ///
    /// The age of a segment is that of its latest record by timestamp; without timestamps it is
    /// counted from the last append or, in a log that was opened since, from when the file was last
    /// modified (where storage does not tell, from the opening).
    ///
    /// # Durability
    ///
    /// A crash may bring back what was removed last.
    pub fn enforce_retention(
        &mut self,
        high_watermark: Offset,
        now: TimestampMs,
        queue: &mut IoQueue,
    ) -> Option<Offset> {
        if self.poison().is_some() {
            return None;
        }
        if !self.is_retiring() {
            self.pipeline.retire(Vec::new(), queue);
        }
        let kept = self.segments.iter().filter_map(|segment| {
            let end = self.segments.next_base(segment.base_offset);
            let end = end.unwrap_or(self.log_end_offset);
            // Those below the log start are on their way out.
            (end > self.log_start_offset).then_some(Candidate {
                size_bytes: u64::from(segment.size_bytes()),
                end,
                latest: segment.latest(),
            })
        });
        let committed = high_watermark.min(self.pipeline.written);
        let start = let_go(kept, &self.config, committed, now)?;
        if self.segments.active().base_offset < start {
            self.roll(now);
        }
        self.increment_log_start_offset(start, queue)
            .expect("it is not above what has been written");
        Some(start)
    }

    /// Removes the segments that lie wholly below the log start offset.
    pub(super) fn drop_segments(&mut self, queue: &mut IoQueue) {
        // A replacement under way is of segments that are to be there.
        if self.is_retiring() || self.poison().is_some() || self.cleaning.is_swapping() {
            return;
        }
        let mut retired = Vec::new();
        for _ in 0..SEGMENTS_PER_REQUEST {
            let first = self.segments.first();
            let next = self.segments.next(first.base_offset);
            if first.phase != SegmentPhase::Sealed || !next.is_some_and(|next| self.can_begin_with(next)) {
                break;
            }
            // The batches come first: index files without them are known to be left over.
            let files = FileKind::ALL.map(|kind| kind.path(&self.dir, first.base_offset));
            // Of the files that tell of the removal the smallest that is there.
            let evidence = usize::from(!self.pipeline.has_put(&files[1]));
            // A whole-file write under way could bring an index back.
            if !self.pipeline.cancel_puts(&files) {
                break;
            }
            let Some(segment) = self.segments.pop_first() else {
                break;
            };
            self.pipeline
                .push_forget(IoOp::Close { file: segment.file }, queue);
            retired.extend(files.into_iter().enumerate().map(|(at, path)| RetiredFile {
                path,
                is_evidence: at == evidence,
            }));
        }
        if !retired.is_empty() {
            self.cleaning.handle_removal();
            self.pipeline.retire(retired, queue);
        }
    }

    /// Whether files are being given the names of deleted ones.
    fn is_retiring(&self) -> bool {
        self.pipeline.any(|op| matches!(op, Operation::Retire(_)))
    }

    /// Whether nothing in front of `segment` is needed: its file is there, and so is what producers
    /// had written before it.
    fn can_begin_with(&self, segment: &LogSegment) -> bool {
        let base = segment.base_offset;
        let created = matches!(segment.phase, SegmentPhase::Open | SegmentPhase::Sealed);
        let snapshot = FileKind::Snapshot.path(&self.dir, base);
        base <= self.log_start_offset && created && !self.pipeline.has_put(&snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs(1_000_000);

    /// Segments of ten offsets each, of these sizes and ages.
    fn segments(shapes: &[(u64, i64)]) -> Vec<Candidate> {
        let ends = (1_i64..).map(|count| Offset(count * 10));
        shapes
            .iter()
            .zip(ends)
            .map(|(&(size_bytes, age_ms), end)| Candidate {
                size_bytes,
                end,
                latest: TimestampMs(NOW.0 - age_ms),
            })
            .collect()
    }

    fn start(
        shapes: &[(u64, i64)],
        retention_bytes: Option<u64>,
        retention_ms: Option<i64>,
        high_watermark: i64,
    ) -> Option<i64> {
        let config = LogConfig {
            retention_bytes,
            retention_ms,
            ..LogConfig::default()
        };
        let kept = segments(shapes);
        let start = let_go(kept.into_iter(), &config, Offset(high_watermark), NOW);
        start.map(|offset| offset.0)
    }

    #[test]
    fn without_limits_everything_stays() {
        let old = [(100, NOW.0), (100, NOW.0)];
        assert_eq!(start(&old, None, None, 20), None);
    }

    #[test]
    fn segments_go_while_what_remains_holds_the_limit() {
        let sizes = [(100, 0), (100, 0), (100, 0), (50, 0)];
        assert_eq!(start(&sizes, Some(350), None, 40), None);
        assert_eq!(start(&sizes, Some(251), None, 40), None, "249 would remain");
        assert_eq!(start(&sizes, Some(250), None, 40), Some(10));
        assert_eq!(start(&sizes, Some(60), None, 40), Some(20));
        assert_eq!(start(&sizes, Some(1), None, 40), Some(30), "the active one stays");
        assert_eq!(start(&sizes, Some(0), None, 40), Some(40), "a limit of nothing");
    }

    #[test]
    fn segments_go_from_the_oldest_on_while_they_have_expired() {
        let ages = [(1, 101), (1, 101), (1, 100), (1, 999)];
        assert_eq!(
            start(&ages, None, Some(100), 40),
            Some(20),
            "the third is not older"
        );
        assert_eq!(
            start(&ages, None, Some(99), 40),
            Some(40),
            "all, the active one too"
        );
        assert_eq!(start(&ages[2..], None, Some(100), 20), None);
    }

    #[test]
    fn a_timestamp_in_the_future_keeps_its_segment_and_those_behind_it() {
        let ages = [(1, -5000), (1, 9999)];
        assert_eq!(start(&ages, None, Some(100), 20), None);
    }

    #[test]
    fn what_reaches_above_the_high_watermark_stays() {
        let old = [(100, 500), (100, 500), (100, 500)];
        for (high_watermark, wanted) in [(9, None), (10, Some(10)), (29, Some(20)), (30, Some(30))] {
            assert_eq!(start(&old, None, Some(100), high_watermark), wanted);
            assert_eq!(start(&old, Some(0), None, high_watermark), wanted);
        }
    }

    #[test]
    fn size_and_time_go_on_where_the_other_stops() {
        let shapes = [(100, 0), (100, 500), (100, 0)];
        assert_eq!(start(&shapes, Some(200), Some(100), 30), Some(20));
        let shapes = [(150, 500), (50, 0), (100, 0)];
        assert_eq!(
            start(&shapes, Some(200), Some(100), 30),
            Some(10),
            "what time removed counts"
        );
    }
}
