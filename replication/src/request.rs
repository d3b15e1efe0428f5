//! What is asked of a shard and what it answers: typed values, not wire bytes.
//!
//! Offsets are bounded by the log's own; byte limits are hints except where a batch must be whole.

use bytes::BytesMut;
use ringlog_engine::log::{AbortedTxn, AppendError, ReadError, ReadPlan};
use ringlog_engine::types::{LeaderEpoch, Offset, TimestampMs};

use crate::types::{RequestId, TopicIdPartition};

/// When a produce request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acks {
    /// At once; the client is not told (acks=0).
    None,
    /// Once the leader has written the batch (acks=1).
    Leader,
    /// Once the batch is below the high watermark (acks=all).
    All,
}

/// Batches to append.
#[derive(Debug)]
pub struct ProduceRequest {
    /// Names the reply.
    pub id: RequestId,
    /// When to answer.
    pub acks: Acks,
    /// How long the answer may wait, in milliseconds; then the outcome is unknown to the client.
    pub timeout_ms: u64,
    /// One RecordBatch per partition, exactly the bytes the client sent.
    pub partitions: Vec<(TopicIdPartition, BytesMut)>,
}

/// Where a batch was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    /// The offset of the batch's first record.
    pub base_offset: Offset,
    /// The broker's time of append where the topic asks for it, else [`TimestampMs::NONE`].
    pub log_append_time: TimestampMs,
    /// The first offset the log still has.
    pub log_start_offset: Offset,
}

/// Why a batch was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum ProduceError {
    /// This shard does not hold the partition.
    #[error("the partition is not on this broker")]
    UnknownPartition,
    /// The log refused the batch; nothing was appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The batch may or may not be appended: the log failed before it was acknowledged.
    #[error("the log failed before the batch was acknowledged")]
    LogFailed,
    /// The batch was appended but not acknowledged in time.
    #[error("the batch was not acknowledged in time")]
    TimedOut,
}

/// The outcome for one partition of a [`ProduceRequest`].
pub type ProduceResult = Result<Produced, ProduceError>;

/// How much of a log a consumer may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset.
    ReadCommitted,
}

/// One partition to read.
#[derive(Clone, Copy, Debug)]
pub struct FetchPartition {
    /// Which.
    pub partition: TopicIdPartition,
    /// The first offset wanted.
    pub offset: Offset,
    /// At most this many bytes, but the first batch whole.
    pub max_bytes: u32,
    /// The epoch the client believes in, or [`LeaderEpoch::NONE`].
    pub current_leader_epoch: LeaderEpoch,
}

/// Reads from several partitions, waiting for enough to answer with.
#[derive(Debug)]
pub struct FetchRequest {
    /// Names the reply.
    pub id: RequestId,
    /// How long to wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: u64,
    /// Answer once this many bytes are there.
    pub min_bytes: u32,
    /// What the client may see.
    pub isolation: Isolation,
    /// What to read.
    pub partitions: Vec<FetchPartition>,
}

/// What is there to read of one partition.
#[derive(Debug)]
pub struct Fetched {
    /// The range to send, if there is one.
    pub plan: Option<ReadPlan>,
    /// Everything below is committed.
    pub high_watermark: Offset,
    /// Everything below belongs to no open transaction.
    pub last_stable_offset: Offset,
    /// The first offset the log still has.
    pub log_start_offset: Offset,
    /// The aborted transactions that may have records in the range; none under
    /// [`Isolation::ReadUncommitted`].
    pub aborted_transactions: Option<Vec<AbortedTxn>>,
    /// What was asked for, to plan anew where a segment turns out to hold nothing more.
    pub request: FetchPartition,
    /// What the client may see.
    pub isolation: Isolation,
}

/// Why a partition cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// This shard does not hold the partition.
    #[error("the partition is not on this broker")]
    UnknownPartition,
    /// The client's epoch is older than the leader's.
    #[error("the client's leader epoch is older than this leader's")]
    FencedLeaderEpoch,
    /// The client knows a newer epoch than this broker.
    #[error("the client's leader epoch is newer than any this broker knows")]
    UnknownLeaderEpoch,
    /// The log refused.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The plan could not be carried out.
    #[error("the log cannot be read: {0}")]
    Storage(String),
}

/// The outcome for one partition of a [`FetchRequest`].
pub type FetchResult = Result<Fetched, FetchError>;

/// An answer of a shard.
#[derive(Debug)]
pub enum Reply {
    /// To a [`ProduceRequest`], in the order of its partitions.
    Produce {
        /// The request.
        id: RequestId,
        /// One for each of its partitions.
        partitions: Vec<ProduceResult>,
    },
    /// To a [`FetchRequest`], in the order of its partitions.
    Fetch {
        /// The request.
        id: RequestId,
        /// One for each of its partitions.
        partitions: Vec<FetchResult>,
    },
}

/// Watermarks of one partition, as clients may ask for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// The first offset the log still has.
    pub log_start_offset: Offset,
    /// Everything below is committed.
    pub high_watermark: Offset,
    /// Everything below belongs to no open transaction.
    pub last_stable_offset: Offset,
    /// The next offset to be assigned.
    pub log_end_offset: Offset,
    /// The epoch of this leader.
    pub leader_epoch: LeaderEpoch,
}
