//! One segment: a file of batches, named by its first offset, and what is known about it.
//!
//! Owns the append position, the two sparse indexes and the facts that decide a roll. Knows no
//! requests and no other segment. Invariants: positions and offsets only grow until a truncation;
//! a position fits `u32`, a relative offset `i32`. Tested below and through `tests/log_append.rs`.

use bytes::Bytes;

use super::file_name::FileKind;
use super::offset_index::OffsetIndex;
use super::segment_checkpoint::{SegmentRecord, checksums};
use super::time_index::{TimeIndex, TimestampOffset};
use super::txn_index::TransactionIndex;
use crate::config::LogConfig;
use crate::io::FileId;
use crate::record::BatchHeader;
use crate::types::{Offset, TimestampMs};

/// The index files of a segment, each with its bytes or none.
pub(super) type IndexFiles = [(FileKind, Option<Bytes>); FileKind::INDEXES.len()];

/// How far a segment's files have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentPhase {
    /// The file has not been asked for; its batches stay staged.
    Planned,
    /// The file has been asked for; its batches stay staged.
    Creating,
    /// The file is open. The last segment is appended to, an earlier one waits for its last sync.
    Open,
    /// Rolled and durable; its indexes have been written or asked for.
    Sealed,
}

/// The facts of one batch that segments and indexes are built from.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchFacts {
    pub(super) base_offset: Offset,
    pub(super) last_offset: Offset,
    pub(super) max_timestamp: TimestampMs,
    pub(super) len_bytes: u32,
}

impl BatchFacts {
    /// The facts in a header whose batch is whole, so that its length fits a segment.
    pub(super) fn of(header: &BatchHeader) -> Self {
        // What compaction has emptied has no record that a search by time could find.
        let max_timestamp = if header.records_count() == 0 {
            TimestampMs::NONE
        } else {
            header.max_timestamp()
        };
        Self {
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            max_timestamp,
            len_bytes: u32::try_from(header.len_bytes()).expect("an i32 and 12 fit u32"),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct LogSegment {
    pub(super) base_offset: Offset,
    pub(super) file: FileId,
    pub(super) phase: SegmentPhase,
    /// Whether index files of this segment lie on disk; true also where they have become stale.
    pub(super) index_files: bool,
    pub(super) offset_index: OffsetIndex,
    pub(super) time_index: TimeIndex,
    pub(super) txn_index: TransactionIndex,
    size_bytes: u32,
    next_offset: Offset,
    bytes_since_index_entry: u32,
    /// The next batch appended is the one of the last index entry.
    rewound: bool,
    /// The largest timestamp and the last offset of the batch that brought it.
    max_timestamp: Option<TimestampOffset>,
    first_timestamp: TimestampMs,
    created_at: TimestampMs,
    modified_at: TimestampMs,
}

impl LogSegment {
    /// An empty segment, created now or, where a file is opened, when that was last modified.
    pub(super) fn new(base_offset: Offset, file: FileId, phase: SegmentPhase, now: TimestampMs) -> Self {
        Self {
            base_offset,
            file,
            phase,
            index_files: false,
            offset_index: OffsetIndex::new(base_offset),
            time_index: TimeIndex::new(base_offset),
            txn_index: TransactionIndex::default(),
            size_bytes: 0,
            next_offset: base_offset,
            bytes_since_index_entry: 0,
            rewound: false,
            max_timestamp: None,
            first_timestamp: TimestampMs::NONE,
            created_at: now,
            modified_at: now,
        }
    }

    /// A segment whose indexes are believed, with the bytes and offsets they do not tell.
    pub(super) fn with_indexes(
        mut self,
        indexes: (OffsetIndex, TimeIndex, TransactionIndex),
        size_bytes: u32,
        next_offset: Offset,
    ) -> Self {
        (self.offset_index, self.time_index, self.txn_index) = indexes;
        self.max_timestamp = self.time_index.last();
        self.size_bytes = size_bytes;
        self.next_offset = next_offset;
        self.index_files = true;
        self
    }

    /// The append position: bytes of batches, staged ones included.
    pub(super) fn size_bytes(&self) -> u32 {
        self.size_bytes
    }

    /// The offset after the last batch, exclusive end of this segment.
    pub(super) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size_bytes == 0
    }

    /// The largest timestamp and the last offset of the batch that brought it; none without
    /// timestamps.
    pub(super) fn max_timestamp(&self) -> Option<TimestampOffset> {
        self.max_timestamp
    }

    /// That of the first batch; none where it is not known.
    pub(super) fn first_timestamp(&self) -> TimestampMs {
        self.first_timestamp
    }

    /// The largest timestamp or, where there are none, when a batch came last: what age is counted
    /// from.
    pub(super) fn latest(&self) -> TimestampMs {
        self.max_timestamp.map_or(self.modified_at, |max| max.timestamp)
    }

    /// A batch was appended at the broker's time `now`.
    pub(super) fn note_modified(&mut self, now: TimestampMs) {
        self.modified_at = self.modified_at.max(now);
    }

    pub(super) fn set_first_timestamp(&mut self, timestamp: TimestampMs) {
        self.first_timestamp = timestamp;
    }

    /// Accounts for one more batch at the append position, and returns that position.
    ///
    /// # Panics
    ///
    /// `INV-LOG-2`: where the batch does not lie above everything in the segment.
    pub(super) fn append(&mut self, batch: BatchFacts, index_interval_bytes: u32) -> u32 {
        assert!(
            batch.base_offset >= self.next_offset && batch.last_offset >= batch.base_offset,
            "INV-LOG-2: batch {}..={} does not follow {}",
            batch.base_offset,
            batch.last_offset,
            self.next_offset
        );
        let position = self.size_bytes;
        if position == 0 {
            self.first_timestamp = batch.max_timestamp;
        }
        let timestamp = batch.max_timestamp;
        if timestamp.0 >= 0 && self.max_timestamp.is_none_or(|max| timestamp > max.timestamp) {
            self.max_timestamp = Some(TimestampOffset {
                timestamp,
                offset: batch.last_offset,
            });
        }
        if std::mem::take(&mut self.rewound) {
            self.bytes_since_index_entry = 0;
        } else if self.bytes_since_index_entry > index_interval_bytes {
            self.offset_index.append(batch.last_offset, position);
            self.note_max_timestamp();
            self.bytes_since_index_entry = 0;
        }
        self.bytes_since_index_entry = self.bytes_since_index_entry.saturating_add(batch.len_bytes);
        self.size_bytes = position
            .checked_add(batch.len_bytes)
            .expect("rolled before positions pass u32");
        self.next_offset = batch.last_offset.plus(1);
        position
    }

    /// Puts the largest timestamp into the time index, as its last entry must say it on disk.
    fn note_max_timestamp(&mut self) {
        if let Some(max) = self.max_timestamp {
            self.time_index.maybe_append(max.timestamp, max.offset);
        }
    }

    /// The index files as they are to be on disk now, their bytes or none where there is to be none;
    /// and what is then known of the segment.
    pub(super) fn encode_indexes(&mut self) -> (IndexFiles, SegmentRecord) {
        self.note_max_timestamp();
        let (offsets, times) = (self.offset_index.encode(), self.time_index.encode());
        let aborted = self.txn_index.encode();
        let record = SegmentRecord {
            end: self.next_offset,
            indexes: checksums([Some(&offsets), Some(&times), aborted.as_deref()]),
        };
        // The one that may be missing comes first: a crash leaves no two of which it is missing by chance.
        let files = [
            (FileKind::TransactionIndex, aborted),
            (FileKind::OffsetIndex, Some(offsets)),
            (FileKind::TimeIndex, Some(times)),
        ];
        (files, record)
    }

    /// Whether `batch` belongs into a new segment: it would pass the size, its offset cannot be
    /// said relative to this base, or its timestamp lies `segment_ms` after the first one here
    /// (where there are no timestamps, `now` after the creation).
    pub(super) fn should_roll_before(
        &self,
        batch: &BatchFacts,
        config: &LogConfig,
        now: TimestampMs,
    ) -> bool {
        if self.is_empty() {
            return false;
        }
        let age_ms = if self.first_timestamp.0 >= 0 && batch.max_timestamp.0 >= 0 {
            batch.max_timestamp.0.saturating_sub(self.first_timestamp.0)
        } else {
            now.0.saturating_sub(self.created_at.0)
        };
        let size_after = u64::from(self.size_bytes) + u64::from(batch.len_bytes);
        size_after > u64::from(config.segment_bytes)
            || age_ms > config.segment_ms
            || batch.last_offset.0 - self.base_offset.0 > i64::from(i32::MAX)
    }

    /// Goes back to the last index entry below `offset` and returns its position.
    ///
    /// The batches from there on are to be [`append`](Self::append)ed again, as far as they are to
    /// be kept: the segment ends within the index until then. Aborted transactions stay; they are the
    /// caller's to [cut](TransactionIndex::truncate_to).
    pub(super) fn rewind_below(&mut self, offset: Offset) -> u32 {
        self.offset_index.truncate_to(offset);
        let entry = self.offset_index.last();
        self.time_index
            .truncate_to(entry.map_or(self.base_offset, |e| e.offset.plus(1)));
        self.max_timestamp = self.time_index.last();
        self.next_offset = self.base_offset;
        self.size_bytes = entry.map_or(0, |e| e.position);
        self.bytes_since_index_entry = 0;
        self.rewound = entry.is_some();
        self.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::LogId;

    fn segment() -> LogSegment {
        let file = FileId {
            log: LogId(0),
            number: 0,
        };
        LogSegment::new(Offset(10), file, SegmentPhase::Open, TimestampMs(0))
    }

    fn batch(base: i64, last: i64, timestamp: i64, len_bytes: u32) -> BatchFacts {
        let (base_offset, last_offset) = (Offset(base), Offset(last));
        BatchFacts {
            base_offset,
            last_offset,
            max_timestamp: TimestampMs(timestamp),
            len_bytes,
        }
    }

    #[test]
    fn an_index_entry_is_due_after_more_than_the_interval() {
        let mut segment = segment();
        for i in 0..10 {
            segment.append(batch(10 + i, 10 + i, 100 - i, 60), 100);
        }
        assert_eq!(segment.offset_index.floor(Offset(11)), None);
        assert_eq!(segment.offset_index.floor(Offset(12)).unwrap().position, 120);
        assert_eq!(segment.offset_index.last().unwrap().offset, Offset(18));
        assert_eq!(segment.max_timestamp().unwrap().offset, Offset(10));
        assert_eq!((segment.size_bytes(), segment.next_offset()), (600, Offset(20)));
    }

    #[test]
    fn rewinding_and_appending_again_restores_the_segment() {
        let (mut whole, mut rewound) = (segment(), segment());
        let batches: Vec<_> = (0..9).map(|i| batch(10 + i, 10 + i, i * 7 % 5, 60)).collect();
        for &batch in &batches {
            rewound.append(batch, 100);
        }
        for &batch in &batches[..7] {
            whole.append(batch, 100);
        }
        let position = rewound.rewind_below(Offset(17));
        for batch in batches.iter().filter(|b| b.base_offset.0 < 17) {
            if (batch.base_offset.0 - 10) * 60 >= i64::from(position) {
                rewound.append(*batch, 100);
            }
        }
        assert_eq!(format!("{whole:?}"), format!("{rewound:?}"));
    }

    #[test]
    fn a_segment_rolls_before_its_size_its_age_or_its_offsets_pass() {
        let config = LogConfig {
            segment_bytes: 100,
            segment_ms: 1000,
            ..LogConfig::default()
        };
        let mut segment = segment();
        let rolls = |s: &LogSegment, b, now| s.should_roll_before(&b, &config, TimestampMs(now));
        assert!(
            !rolls(&segment, batch(10, 10, 0, 200), 0),
            "an empty segment takes anything"
        );
        segment.append(batch(10, 10, 500, 60), 100);
        assert!(!rolls(&segment, batch(11, 11, 500, 40), 9999));
        assert!(rolls(&segment, batch(11, 11, 500, 41), 0));
        assert!(rolls(&segment, batch(11, 11, 1501, 40), 0));
        assert!(!rolls(&segment, batch(11, 11, -1, 40), 1000));
        assert!(rolls(&segment, batch(11, 11, -1, 40), 1001));
        assert!(rolls(&segment, batch(11, 11 + i64::from(i32::MAX), 500, 40), 0));
    }

    #[test]
    #[should_panic(expected = "INV-LOG-2")]
    fn a_batch_below_the_end_is_a_broken_invariant() {
        let mut segment = segment();
        segment.append(batch(10, 12, 0, 60), 100);
        segment.append(batch(12, 13, 0, 60), 100);
    }
}
