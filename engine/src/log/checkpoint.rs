//! Kafka's checkpoint files: text, a version, a count, and that many lines.
//!
//! Owns their shape, `leader-epoch-checkpoint` of a log, and the files of a data directory that give an offset
//! for each of its logs (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
//! `log-start-offset-checkpoint`). Writing them so that a crash leaves the old or the new one is
//! the caller's part. Tested below.

use std::collections::BTreeMap;
use std::str::FromStr;

use thiserror::Error;

use super::leader_epoch_cache::LeaderEpochCache;
use crate::types::{LeaderEpoch, Offset};

const VERSION: &str = "0";

/// Why a checkpoint file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// It is not text.
    #[error("checkpoint is not UTF-8")]
    NotText,
    /// The first line is not version 0.
    #[error("checkpoint version is not 0")]
    Version,
    /// A line is not what it should be.
    #[error("checkpoint line {line} cannot be read")]
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// There are fewer or more entries than the second line says.
    #[error("checkpoint says it has {expected} entries, it has {found}")]
    Count {
        /// Entries it says it has.
        expected: u32,
        /// Entries found.
        found: usize,
    },
}

/// The log that an offset belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name, without spaces.
    pub topic: String,
    /// The partition, 0 or more.
    pub partition: i32,
}

/// The text of `leader-epoch-checkpoint`: `epoch startOffset` a line.
#[must_use]
pub fn encode_leader_epochs(cache: &LeaderEpochCache) -> String {
    let entries = cache.entries();
    let lines = entries
        .iter()
        .map(|entry| format!("{} {}", entry.epoch, entry.start_offset));
    encode(entries.len(), lines)
}

/// Reads `leader-epoch-checkpoint`. Entries that contradict each other are resolved as
/// [`LeaderEpochCache::assign`] does.
///
/// # Errors
///
/// Any [`CheckpointError`]; the cache is then rebuilt from the log.
pub fn decode_leader_epochs(bytes: &[u8]) -> Result<LeaderEpochCache, CheckpointError> {
    let mut cache = LeaderEpochCache::new();
    decode(bytes, |[epoch, start_offset]| {
        cache.assign(
            LeaderEpoch(not_negative(epoch)?),
            Offset(not_negative(start_offset)?),
        );
        Some(())
    })?;
    Ok(cache)
}

/// The text of a data directory's offset checkpoint: `topic partition offset` a line, in order.
#[must_use]
pub fn encode_offsets(offsets: &BTreeMap<TopicPartition, Offset>) -> String {
    let lines = offsets
        .iter()
        .map(|(log, offset)| format!("{} {} {offset}", log.topic, log.partition));
    encode(offsets.len(), lines)
}

/// Reads a data directory's offset checkpoint.
///
/// # Errors
///
/// Any [`CheckpointError`].
pub fn decode_offsets(bytes: &[u8]) -> Result<BTreeMap<TopicPartition, Offset>, CheckpointError> {
    let mut offsets = BTreeMap::new();
    decode(bytes, |[topic, partition, offset]| {
        let log = TopicPartition {
            topic: topic.to_owned(),
            partition: not_negative(partition)?,
        };
        offsets.insert(log, Offset(not_negative(offset)?));
        Some(())
    })?;
    Ok(offsets)
}

pub(super) fn encode(count: usize, lines: impl Iterator<Item = String>) -> String {
    let mut text = format!("{VERSION}\n{count}\n");
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Hands the fields of each entry to `read`, which gives none where they are not right.
pub(super) fn decode<const FIELDS: usize>(
    bytes: &[u8],
    mut read: impl FnMut([&str; FIELDS]) -> Option<()>,
) -> Result<(), CheckpointError> {
    let text = str::from_utf8(bytes).map_err(|_| CheckpointError::NotText)?;
    let mut lines = text.lines();
    if lines.next().is_none_or(|line| line.trim() != VERSION) {
        return Err(CheckpointError::Version);
    }
    let expected: u32 = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or(CheckpointError::Line { line: 2 })?;
    let mut found = 0;
    for (line, number) in lines.zip(3..) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        <[&str; FIELDS]>::try_from(fields)
            .ok()
            .and_then(&mut read)
            .ok_or(CheckpointError::Line { line: number })?;
        found += 1;
    }
    if u32::try_from(found) == Ok(expected) {
        Ok(())
    } else {
        Err(CheckpointError::Count { expected, found })
    }
}

pub(super) fn not_negative<T: FromStr + PartialOrd + Default>(field: &str) -> Option<T> {
    field.parse().ok().filter(|value| *value >= T::default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leader_epochs_are_kafkas_text_and_come_back() {
        let mut cache = LeaderEpochCache::new();
        assert_eq!(encode_leader_epochs(&cache), "0\n0\n");
        cache.assign(LeaderEpoch(2), Offset(0));
        cache.assign(LeaderEpoch(5), Offset(1200));
        let text = encode_leader_epochs(&cache);
        assert_eq!(text, "0\n2\n2 0\n5 1200\n");
        assert_eq!(decode_leader_epochs(text.as_bytes()), Ok(cache));
    }

    #[test]
    fn offsets_are_kafkas_text_and_come_back() {
        let log = |topic: &str, partition| TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        let offsets = BTreeMap::from([
            (log("orders", 1), Offset(9)),
            (log("orders", 0), Offset(123_456_789_012)),
            (log("__consumer_offsets", 49), Offset(0)),
        ]);
        let text = encode_offsets(&offsets);
        assert_eq!(
            text,
            "0\n3\n__consumer_offsets 49 0\norders 0 123456789012\norders 1 9\n"
        );
        assert_eq!(decode_offsets(text.as_bytes()), Ok(offsets));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let offsets = |text: &str| decode_offsets(text.as_bytes()).unwrap_err();
        assert_eq!(decode_offsets(b"0\n0\n\xff"), Err(CheckpointError::NotText));
        assert_eq!(offsets(""), CheckpointError::Version);
        assert_eq!(offsets("1\n0\n"), CheckpointError::Version);
        assert_eq!(offsets("0\n"), CheckpointError::Line { line: 2 });
        assert_eq!(offsets("0\n-1\n"), CheckpointError::Line { line: 2 });
        assert_eq!(offsets("0\n1\nt 0\n"), CheckpointError::Line { line: 3 });
        assert_eq!(offsets("0\n1\nt 0 1 2\n"), CheckpointError::Line { line: 3 });
        assert_eq!(offsets("0\n1\nt zero 1\n"), CheckpointError::Line { line: 3 });
        assert_eq!(offsets("0\n1\nt 0 -1\n"), CheckpointError::Line { line: 3 });
        assert_eq!(offsets("0\n2\nt 0 1\n\n"), CheckpointError::Line { line: 4 });
        assert_eq!(
            offsets("0\n2\nt 0 1\n"),
            CheckpointError::Count {
                expected: 2,
                found: 1
            }
        );
        assert_eq!(
            offsets("0\n0\nt 0 1\n"),
            CheckpointError::Count {
                expected: 0,
                found: 1
            }
        );
        assert_eq!(
            offsets("0\n4294967295\n"),
            CheckpointError::Count {
                expected: u32::MAX,
                found: 0
            }
        );
    }

    proptest! {
        #[test]
        fn any_offsets_come_back(
            entries in prop::collection::btree_map(("[a-zA-Z0-9._-]{1,20}", 0..i32::MAX), 0..i64::MAX, 0..10)
        ) {
            let offsets = entries
                .into_iter()
                .map(|((topic, partition), offset)| (TopicPartition { topic, partition }, Offset(offset)))
                .collect::<BTreeMap<_, _>>();
            prop_assert_eq!(decode_offsets(encode_offsets(&offsets).as_bytes()), Ok(offsets));
        }

        #[test]
        fn random_text_never_panics(text in "[0-9a-z \n-]{0,60}", bytes: Vec<u8>) {
            for bytes in [text.as_bytes(), format!("0\n1\n{text}").as_bytes(), &bytes] {
                let _ = decode_offsets(bytes);
                let _ = decode_leader_epochs(bytes);
            }
        }
    }
}
