//! The names of the files of one log, as Apache Kafka gives them.
//!
//! Owns the mapping between a name and what it stands for; knows nothing of contents. A name
//! that is not exactly what [`FileKind::path`] would produce is foreign. Tested below.

use std::path::{Path, PathBuf};

use crate::types::Offset;

/// The epochs of the log and where each began.
pub(super) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
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

/// What a name in a log's directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    /// One of the files named by an offset.
    Numbered(FileKind, Offset),
    /// A file every log has once, read elsewhere.
    Fixed,
    /// The new half of a compaction that was interrupted while it replaced segments: what it
    /// replaces may already be gone.
    Swap,
    /// What a whole-file write had prepared when it was interrupted; nothing ever reads it.
    Temporary,
    /// Not a file of a log.
    Foreign,
}

impl FileName {
    /// Reads a name; never fails, since anything unknown is foreign.
    pub(super) fn parse(name: &str) -> Self {
        if [LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SYNC_FAILED].contains(&name) {
            return Self::Fixed;
        }
        if let Some(target) = name.strip_suffix(".tmp") {
            return match Self::parse(target) {
                Self::Numbered(..) | Self::Fixed => Self::Temporary,
                Self::Swap | Self::Temporary | Self::Foreign => Self::Foreign,
            };
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
        if extension == "log.swap" {
            return Self::Swap;
        }
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
            "00000000000000000000.log.deleted",
            "+0000000000000000001.log",
            "notes.tmp",
            "00000000000000000000.log.tmp.tmp",
        ] {
            assert_eq!(FileName::parse(name), FileName::Foreign, "{name}");
        }
        assert_eq!(FileName::parse("leader-epoch-checkpoint"), FileName::Fixed);
        assert_eq!(FileName::parse("00000000000000000000.log.swap"), FileName::Swap);
        for name in ["00000000000000000000.snapshot.tmp", "leader-epoch-checkpoint.tmp"] {
            assert_eq!(FileName::parse(name), FileName::Temporary, "{name}");
        }
    }
}
