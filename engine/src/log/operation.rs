//! What the storage requests of a log mean to it, so that a completion finds its meaning.
//!
//! Owns no state and decides nothing: `write_pipeline.rs` keeps what is in flight, `log.rs` says what an
//! outcome changes. Tested with them.

use std::path::PathBuf;

use bytes::Bytes;

use crate::types::Offset;

/// What a token stands for.
#[derive(Debug)]
pub(super) enum Operation {
    /// The group in flight.
    Write,
    /// Zeros ahead of the data.
    Zero,
    /// A file loses the zeros behind its data.
    Cut,
    /// Everything below is durable once it succeeds.
    Sync { up_to: Offset },
    /// The file of the segment with this base offset.
    Create { segment: Offset },
    /// Stale index files of this segment.
    RemoveIndexes { segment: Offset },
    /// A whole small file.
    Put(Put),
    /// A step of the replacement of segments.
    Swap(SwapStep),
    /// The new names of files that are to be deleted; these are the old ones.
    Retire(Vec<RetiredFile>),
    /// Nothing depends on it.
    Forget,
}

/// A file of a segment that goes.
#[derive(Clone, Debug)]
pub(super) struct RetiredFile {
    pub(super) path: PathBuf,
    /// It tells that the segment was not lost, as long as that is listed in `segment-checkpoint`.
    pub(super) is_evidence: bool,
}

/// The steps by which a new segment takes the place of old ones; see `compaction/swap.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwapStep {
    /// The new one counts, the old ones are out of the way.
    Replace,
    /// The new one has its final name.
    Settle,
    /// Its file is open.
    Open,
}

/// A small file to be replaced as a whole.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
    /// No sync is submitted until it is durable: the batches mean less without it.
    pub(super) before_sync: bool,
}
