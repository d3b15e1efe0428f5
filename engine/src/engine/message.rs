//! What a shard is asked, by handles and by the engine.
//!
//! Owns the shape of requests. An answer travels in a oneshot channel, which always has room; a request that is dropped
//! unanswered tells its caller [`Gone::Closed`].

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::compaction::CompactionRequest;
use super::config::{Durability, Visibility};
use super::error::{AppendError, DeleteLogError, FlushError, Gone, ReadError, TruncateError};
use super::log_shared::LogShared;
use super::reader::FoundOffset;
use crate::config::LogConfig;
use crate::log::checkpoint::TopicPartition;
use crate::log::{AppendInfo, OpenError, OpenOptions};
use crate::rt::LogFile;
use crate::types::{LogId, Offset, TimestampMs};

/// Where an answer goes.
pub(super) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// What a shard's mailbox holds.
#[derive(Debug)]
pub(super) enum ShardMessage {
    /// For one log.
    Log(LogMessage),
    /// Open a log that the shard does not have.
    Open(Box<OpenLog>),
    /// Put what is flushed, and where logs start, among the checkpoints.
    Publish(oneshot::Sender<()>),
    /// For the thread that compacts.
    Compaction(CompactionRequest),
    /// Close all logs and end.
    Stop,
}

/// A request for one log, with the room it takes.
#[derive(Debug)]
pub(super) struct LogMessage {
    pub(super) log: LogId,
    pub(super) room: OwnedSemaphorePermit,
    pub(super) request: LogRequest,
}

/// See [`ShardMessage::Open`].
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) shared: Arc<LogShared>,
    pub(super) key: TopicPartition,
    pub(super) dir: PathBuf,
    pub(super) config: LogConfig,
    pub(super) options: OpenOptions,
    pub(super) first_dirty_offset: Offset,
    pub(super) reply: oneshot::Sender<Result<(), OpenError>>,
}

/// A request for one log.
#[derive(Debug)]
pub(super) enum LogRequest {
    Append {
        batch: BytesMut,
        durability: Durability,
        reply: Reply<AppendInfo, AppendError>,
    },
    Flush(Reply<Offset, FlushError>),
    Locate(Locate, Reply<Option<Located>, ReadError>),
    FindTimestamp(TimestampMs, Reply<Option<FoundOffset>, ReadError>),
    /// A range of a file that is not in the page cache.
    Read {
        file: Arc<LogFile>,
        position: u64,
        len_bytes: u32,
        reply: Reply<Bytes, ReadError>,
    },
    TruncatePrefix(Offset, Reply<Offset, TruncateError>),
    TruncateSuffix(Offset, Reply<Offset, TruncateError>),
    Configure(Box<LogConfig>, Reply<(), Gone>),
    Delete(Reply<(), DeleteLogError>),
}

impl LogRequest {
    /// Answers that there is no such log any more.
    pub(super) fn refuse(self, gone: Gone) {
        fn send<T, E: From<Gone>>(reply: Reply<T, E>, gone: Gone) {
            // The caller may have gone as well.
            let _ = reply.send(Err(gone.into()));
        }
        match self {
            Self::Append { reply, .. } => send(reply, gone),
            Self::Flush(reply) => send(reply, gone),
            Self::Locate(_, reply) => send(reply, gone),
            Self::FindTimestamp(_, reply) => send(reply, gone),
            Self::Read { reply, .. } => send(reply, gone),
            Self::TruncatePrefix(_, reply) | Self::TruncateSuffix(_, reply) => send(reply, gone),
            Self::Configure(_, reply) => send(reply, gone),
            Self::Delete(reply) => send(reply, gone),
        }
    }
}

/// What a reader wants located.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locate {
    pub(super) offset: Offset,
    /// At most, except that the first batch is whole.
    pub(super) max_bytes: u32,
    pub(super) visibility: Visibility,
}

/// A range of a file with whole batches, the last perhaps excepted.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) file: Arc<LogFile>,
    pub(super) position: u64,
    pub(super) len_bytes: u32,
    /// The positions are true as long as the log is of this generation.
    pub(super) generation: u64,
}
