//! The names of the files of one log, as Apache Kafka gives them.
//!
//! Owns the mapping between a name and what it stands for; knows nothing of contents. A name
//! that is not exactly what [`FileKind::path`] would produce is foreign. Tested below.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::types::Offset;

/// The epochs of the log and where each began.
pub(super) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// What is known of the segments.
pub(super) const SEGMENT_CHECKPOINT: &str = "segment-checkpoint";
/// The topic id; written and read by the owner of the data directory.
pub(super) const PARTITION_METADATA: &str = "partition.metadata";

/// A sync failed, see `failed_sync.rs`; empty.
pub(super) const SYNC_FAILED: &str = "sync-failed";

/// The kinds of file that are named by an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    /// Record batches, one after another.
    Log,
    /// Offsets to positions.
    OffsetIndex,
    /// Timestamps to offsets.
    TimeIndex,
    /// Aborted transactions.
    TransactionIndex,
    /// The producers' state before the offset in the name.
    Snapshot,
}

impl FileKind {
    pub(super) const ALL: [Self; 5] = [
        Self::Log,
        Self::OffsetIndex,
        Self::TimeIndex,
        Self::TransactionIndex,
        Self::Snapshot,
    ];

    /// Those that are made from a segment's batches.
    pub(super) const INDEXES: [Self; 3] = [Self::OffsetIndex, Self::TimeIndex, Self::TransactionIndex];

    fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::TransactionIndex => "txnindex",
            Self::Snapshot => "snapshot",
        }
    }

    /// The path of this kind of file for `offset` in the log's directory.
    pub(super) fn path(self, dir: &Path, offset: Offset) -> PathBuf {
        dir.join(format!("{:020}.{}", offset.0, self.extension()))
    }
}

/// What a name ends with while segments are replaced or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    /// A new segment's, not decided yet: nothing ever reads it after a restart.
    Cleaned,
    /// A new segment's that counts, while what it replaces may not be gone.
    Swap,
    /// Of a segment that is gone but for its bytes.
    Deleted,
}

impl Suffix {
    const ALL: [Self; 3] = [Self::Cleaned, Self::Swap, Self::Deleted];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
            Self::Deleted => ".deleted",
        }
    }

    /// `path` with this behind it.
    pub(super) fn on(self, path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(self.as_str());
        PathBuf::from(name)
    }
}

/// What a name in a log's directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    /// One of the files named by an offset.
    Numbered(FileKind, Offset),
    /// A file every log has once, read elsewhere.
    Fixed,
    /// One of them on its way to or from that name; see `compaction/swap.rs`.
    Suffixed(FileKind, Offset, Suffix),
    /// What a whole-file write had prepared when it was interrupted; nothing ever reads it.
    Temporary,
    /// Not a file of a log.
    Foreign,
}

impl FileName {
    /// Reads a name; never fails, since anything unknown is foreign.
    pub(super) fn parse(name: &str) -> Self {
        let fixed = [
            LEADER_EPOCH_CHECKPOINT,
            SEGMENT_CHECKPOINT,
            PARTITION_METADATA,
            SYNC_FAILED,
        ];
        if fixed.contains(&name) {
            return Self::Fixed;
        }
        if let Some(target) = name.strip_suffix(".tmp") {
            return match Self::parse(target) {
                Self::Numbered(..) | Self::Suffixed(..) | Self::Fixed => Self::Temporary,
                Self::Temporary | Self::Foreign => Self::Foreign,
            };
        }
        for suffix in Suffix::ALL {
            if let Some(target) = name.strip_suffix(suffix.as_str()) {
                return match Self::parse(target) {
                    Self::Numbered(kind, offset) => Self::Suffixed(kind, offset, suffix),
                    _ => Self::Foreign,
                };
            }
        }
        let Some((digits, extension)) = name.split_once('.') else {
            return Self::Foreign;
        };
        if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Self::Foreign;
        }
        let Ok(offset) = digits.parse() else {
            return Self::Foreign;
        };
        FileKind::ALL
            .into_iter()
            .find(|kind| kind.extension() == extension)
            .map_or(Self::Foreign, |kind| Self::Numbered(kind, Offset(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_what_they_were_made_from() {
        for kind in FileKind::ALL {
            let path = kind.path(Path::new("/d"), Offset(1234));
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(FileName::parse(name), FileName::Numbered(kind, Offset(1234)));
            for suffix in Suffix::ALL {
                let name = suffix.on(Path::new(name));
                let parsed = FileName::parse(name.to_str().unwrap());
                assert_eq!(parsed, FileName::Suffixed(kind, Offset(1234), suffix));
            }
        }
        assert_eq!(
            FileKind::Log.path(Path::new("d"), Offset(7)),
            Path::new("d/00000000000000000007.log")
        );
    }

    #[test]
    fn names_that_kafka_would_not_give_are_foreign() {
        for name in [
            "",
            "1.log",
            "00000000000000000000",
            "00000000000000000000.txt",
            "0000000000000000000x.log",
            "99999999999999999999.log",
            "00000000000000000000.log.deleted.swap",
            "leader-epoch-checkpoint.swap",
            "+0000000000000000001.log",
            "notes.tmp",
            "00000000000000000000.log.tmp.tmp",
        ] {
            assert_eq!(FileName::parse(name), FileName::Foreign, "{name}");
        }
        assert_eq!(FileName::parse("leader-epoch-checkpoint"), FileName::Fixed);
        for name in [
            "00000000000000000000.snapshot.tmp",
            "00000000000000000000.index.cleaned.tmp",
            "leader-epoch-checkpoint.tmp",
        ] {
            assert_eq!(FileName::parse(name), FileName::Temporary, "{name}");
        }
    }
}
