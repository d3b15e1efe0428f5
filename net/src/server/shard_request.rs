//! What one shard may ask of another, and what the control thread may ask of all.
//!
//! Values only: they cross threads. Every request carries the channel its answer goes to; a
//! request whose asker has gone is carried out all the same.

use std::path::PathBuf;
use std::sync::Arc;

use ringlog_engine::config::LogConfig;
use ringlog_engine::log::compaction::{CleanedSegment, CleaningId, CleaningJob, Dirtiness};
use ringlog_engine::log::{AbortedTxn, OpenError, OpenOptions, RecoveryReport};
use ringlog_engine::rt::FileRange;
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerId, TimestampMs};
use ringlog_replication::broker_shard::DeleteRecordsError;
use ringlog_replication::request::{
    Acks, FetchError, FetchPartition, Isolation, PartitionOffsets, ProduceResult,
};
use ringlog_replication::types::{RequestId, TopicIdPartition};
use tokio::sync::oneshot;

use bytes::BytesMut;

use crate::config::ServerConfig;
use crate::metadata::MetadataImage;

/// Appends and reads that a connection sends to the partitions' shard, and changes from control.
#[derive(Debug)]
pub(crate) enum ShardRequest {
    Produce {
        acks: Acks,
        timeout_ms: u64,
        partitions: Vec<(TopicIdPartition, BytesMut)>,
        reply: oneshot::Sender<Vec<ProduceResult>>,
    },
    Fetch(RequestId, FetchCall, oneshot::Sender<Vec<FetchedResult>>),
    /// Answer a waiting fetch with what there is now.
    FinishFetch(RequestId),
    /// Watermarks, in the order asked; `None` for a partition that is not here.
    Offsets(
        Vec<TopicIdPartition>,
        oneshot::Sender<Vec<Option<PartitionOffsets>>>,
    ),
    FindOffset(
        TopicIdPartition,
        OffsetQuery,
        oneshot::Sender<Result<Option<FoundOffset>, FetchError>>,
    ),
    DeleteRecords(
        Vec<(TopicIdPartition, Option<Offset>)>,
        oneshot::Sender<Vec<Result<Offset, DeleteRecordsError>>>,
    ),
    EpochEnd(
        TopicIdPartition,
        LeaderEpoch,
        LeaderEpoch,
        oneshot::Sender<Result<Option<(LeaderEpoch, Offset)>, FetchError>>,
    ),
    /// The largest producer id that any log here remembers.
    LastProducerId(oneshot::Sender<Option<ProducerId>>),
    Sizes(oneshot::Sender<Vec<(TopicIdPartition, u64)>>),
    Metadata(View, oneshot::Sender<()>),
    Open(OpenPartition, oneshot::Sender<Result<RecoveryReport, OpenError>>),
    Remove(TopicIdPartition, oneshot::Sender<()>),
    Configure(TopicIdPartition, LogConfig, oneshot::Sender<()>),
    Checkpoint(oneshot::Sender<Vec<LogCheckpoint>>),
    /// The logs that are to be compacted.
    Dirty(oneshot::Sender<Vec<(Dirtiness, TopicIdPartition)>>),
    BeginCleaning(TopicIdPartition, oneshot::Sender<Option<CleaningJob>>),
    /// Put a new segment in its place; answered when it is there, or given back where it is not wanted.
    SwapIn(
        TopicIdPartition,
        CleanedSegment,
        oneshot::Sender<Result<(), CleanedSegment>>,
    ),
    /// The log is clean up to this offset, or the job has come to nothing; whether it was wanted still.
    EndCleaning(
        TopicIdPartition,
        CleaningId,
        Option<Offset>,
        oneshot::Sender<bool>,
    ),
    /// Answer what waits, and let nothing wait from now on.
    Drain(oneshot::Sender<()>),
    /// Finish what is in flight, close all logs, and stop.
    Stop(oneshot::Sender<Vec<LogCheckpoint>>),
}

/// The metadata with the settings in force.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) image: Arc<MetadataImage>,
    pub(crate) config: Arc<ServerConfig>,
}

/// A read of partitions that one shard owns.
#[derive(Clone, Debug)]
pub(crate) struct FetchCall {
    pub(crate) max_wait_ms: u64,
    pub(crate) min_bytes: u32,
    pub(crate) isolation: Isolation,
    pub(crate) partitions: Vec<FetchPartition>,
}

/// A log to open or create, and to lead.
#[derive(Debug)]
pub(crate) struct OpenPartition {
    pub(crate) partition: TopicIdPartition,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) options: OpenOptions,
    pub(crate) first_dirty_offset: Offset,
    pub(crate) leader_epoch: LeaderEpoch,
}

/// What is there of one partition, as a range of a file.
#[derive(Debug)]
pub(crate) struct FetchedRange {
    pub(crate) range: Option<FetchRange>,
    /// As the shard counted when it compared with `min_bytes`: perhaps more than the range has.
    pub(crate) available_bytes: u64,
    pub(crate) high_watermark: Offset,
    pub(crate) last_stable_offset: Offset,
    pub(crate) log_start_offset: Offset,
    /// Transactions whose records a reader of committed ones skips.
    pub(crate) aborted_transactions: Option<Vec<AbortedTxn>>,
}

/// Whole batches, the last one possibly cut, and the length of the first.
#[derive(Debug)]
pub(crate) struct FetchRange {
    pub(crate) file: FileRange,
    pub(crate) first_batch_bytes: u32,
}

pub(crate) type FetchedResult = Result<FetchedRange, FetchError>;

/// Which record's offset is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffsetQuery {
    /// The first record with at least this timestamp.
    Timestamp(TimestampMs),
    /// The record with the greatest timestamp.
    MaxTimestamp,
}

/// A record found by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundOffset {
    pub(crate) offset: Offset,
    pub(crate) timestamp: TimestampMs,
}

/// What a restart needs to know of one log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCheckpoint {
    pub(crate) partition: TopicIdPartition,
    pub(crate) recovery_point: Offset,
    pub(crate) log_start_offset: Offset,
    pub(crate) high_watermark: Offset,
    /// How far a compacted log is clean.
    pub(crate) first_dirty_offset: Option<Offset>,
    /// Nothing is known to be wrong with the log.
    pub(crate) clean: bool,
}
