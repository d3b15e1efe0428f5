//! What is known of the segments whose index files were written: where their batches end, and the
//! checksums of their indexes. The file `segment-checkpoint` of a log.
//!
//! Kafka's files do not tell a lost segment from one that was deleted, nor a damaged index from
//! another one; this one does. It has the shape of Kafka's checkpoints, and Kafka ignores it:
//!
//! ```text
//! 0
//! <entries>
//! <base offset> <end offset> <.index> <.timeindex> <.txnindex> <line>     CRC-32C each; 0 for no file
//! ```
//!
//! A segment is listed once it is wholly on stable storage, with its index files, so what lies below its end was
//! flushed. A listed segment that is missing was lost, unless a file of it has the name of a deleted one. A
//! directory without this file was last used by another broker: its indexes are believed where they
//! look sane. Knows no files. Tested below and in `tests/log_files.rs`.

use std::collections::BTreeMap;

use super::checkpoint::{self, CheckpointError};
use super::file_name::FileKind;
use crate::types::Offset;

/// The checksums of a segment's index files, in the order of [`FileKind::INDEXES`].
pub(super) type IndexChecksums = [u32; FileKind::INDEXES.len()];

/// What is known of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentRecord {
    /// After its last batch; everything below was flushed.
    pub(super) end: Offset,
    pub(super) indexes: IndexChecksums,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentCheckpoint {
    by_base: BTreeMap<Offset, SegmentRecord>,
}

/// The checksums of the bytes of index files; a file that is not there is as one without bytes.
pub(super) fn checksums(files: [Option<&[u8]>; FileKind::INDEXES.len()]) -> IndexChecksums {
    files.map(|bytes| crc32c::crc32c(bytes.unwrap_or_default()))
}

impl SegmentCheckpoint {
    pub(super) fn get(&self, base_offset: Offset) -> Option<SegmentRecord> {
        self.by_base.get(&base_offset).copied()
    }

    pub(super) fn set(&mut self, base_offset: Offset, record: SegmentRecord) {
        self.by_base.insert(base_offset, record);
    }

    /// Forgets the segments of other base offsets than those that are `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(Offset) -> bool) {
        self.by_base.retain(|&base, _| kept(base));
    }

    /// Forgets the segments that do not end at or below `offset`.
    pub(super) fn truncate_to(&mut self, offset: Offset) {
        self.by_base.retain(|_, record| record.end <= offset);
    }

    /// The first segment that is not among those at `bases`, which are in order. Whether segments
    /// below the first of them count is said by `from`: those that end at or below it do not.
    pub(super) fn first_missing(&self, bases: &[Offset], from: Offset) -> Option<(Offset, SegmentRecord)> {
        let mut missing = self
            .by_base
            .iter()
            .filter(|(base, record)| record.end > from && bases.binary_search(base).is_err());
        missing.next().map(|(&base, &record)| (base, record))
    }

    /// The text of the file.
    pub(super) fn encode(&self) -> String {
        let lines = self.by_base.iter().map(|(base, record)| {
            let [offsets, times, aborted] = record.indexes;
            let line = format!("{base} {} {offsets} {times} {aborted}", record.end);
            format!("{line} {}", crc32c::crc32c(line.as_bytes()))
        });
        checkpoint::encode(self.by_base.len(), lines)
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Any [`CheckpointError`]; nothing is then known of any segment.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let mut known = Self::default();
        checkpoint::decode(bytes, |fields: [&str; 6]| {
            let (line, [base, end, offsets, times, aborted, crc]) = (fields[..5].join(" "), fields);
            let base = Offset(checkpoint::not_negative(base)?);
            let record = SegmentRecord {
                end: Offset(checkpoint::not_negative(end)?),
                indexes: [offsets.parse().ok()?, times.parse().ok()?, aborted.parse().ok()?],
            };
            let sound = crc.parse() == Ok(crc32c::crc32c(line.as_bytes())) && record.end >= base;
            (sound && known.by_base.insert(base, record).is_none()).then_some(())
        })?;
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> SegmentCheckpoint {
        let mut known = SegmentCheckpoint::default();
        for (base, end) in [(0, 10), (10, 25), (30, 40)] {
            let (end, indexes) = (Offset(end), checksums([Some(b"123456789"), Some(b""), None]));
            known.set(Offset(base), SegmentRecord { end, indexes });
        }
        known
    }

    #[test]
    fn the_text_comes_back_and_any_turned_digit_is_noticed() {
        let text = known().encode();
        // The CRC-32C of "123456789" is 0xe3069283.
        let start = "0\n3\n0 10 3808858755 0 0 ";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(SegmentCheckpoint::decode(text.as_bytes()), Ok(known()));
        // But for the end of the last line.
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(SegmentCheckpoint::decode(&bytes).is_err(), "byte {at}");
            assert!(SegmentCheckpoint::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_missing_segment_is_found_unless_it_lies_below_what_counts() {
        let missing = |bases: &[i64], from| {
            let bases: Vec<_> = bases.iter().map(|&base| Offset(base)).collect();
            let missing = known().first_missing(&bases, Offset(from));
            missing.map(|(base, record)| (base.0, record.end.0))
        };
        assert_eq!(missing(&[0, 10, 30, 40], 0), None);
        assert_eq!(missing(&[0, 30], 0), Some((10, 25)));
        assert_eq!(missing(&[10], 10), Some((30, 40)));
        assert_eq!(missing(&[10, 30], 9), Some((0, 10)));
        assert_eq!(missing(&[], 40), None);
    }

    #[test]
    fn what_lies_above_a_cut_is_forgotten() {
        let mut known = known();
        known.truncate_to(Offset(25));
        assert_eq!(
            known.first_missing(&[], Offset(0)).map(|(base, _)| base),
            Some(Offset(0))
        );
        assert_eq!(known.get(Offset(30)), None);
        known.retain(|base| base == Offset(10));
        assert!(known.get(Offset(0)).is_none() && known.get(Offset(10)).is_some());
    }
}
