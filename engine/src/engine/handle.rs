//! A handle to one log: what an embedder does with it, from any thread and any runtime.
//!
//! Owns the way of a request to its shard: room in the log's buffer first, then in the shard's mailbox. Decides nothing
//! about logs. Tested in `tests/engine/`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, oneshot};

use super::config::{Durability, ReadConfig};
use super::error::{AppendError, FlushError, Gone, ReadError, TruncateError};
use super::log_shared::{LogOffsets, LogShared};
use super::message::{LogMessage, LogRequest, Reply, ShardMessage};
use super::new_record::{self, NewRecord};
use super::pending::Pending;
use super::reader::{FoundOffset, Reader};
use crate::config::LogConfig;
use crate::log::AppendInfo;
use crate::rt::mailbox::MailboxRefused;
use crate::types::{Offset, TimestampMs};

/// Room that a request takes which carries no records.
pub(super) const REQUEST_BYTES: u32 = 1024;

/// A log of an [`Engine`](super::Engine). Cheap to clone; usable from any thread.
///
/// Requests of one handle, made one after another, are carried out in that order, except that those which find no room are
/// overtaken (see [`Pending::is_waiting_for_room`]).
#[derive(Clone, Debug)]
pub struct LogHandle {
    pub(super) shared: Arc<LogShared>,
}

impl LogHandle {
    /// The log's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Where the log begins and ends at present.
    #[must_use]
    pub fn offsets(&self) -> LogOffsets {
        self.shared.offsets()
    }

    /// Appends `records`, one or more, as one batch: it is there whole or not at all. Answered with the batch's offsets as
    /// soon as it is as durable as `durability` asks.
    ///
    /// # Durability
    ///
    /// See [`Durability`]. Batches that are under way together share writes and syncs.
    ///
    /// # Errors
    ///
    /// See [`AppendError`].
    ///
    /// # Cancel safety
    ///
    /// A dropped append is withdrawn if it was [waiting for room](Pending::is_waiting_for_room), and else carried out; its
    /// outcome is not known then. It never leaves half a batch, and no other append is concerned.
    pub fn append(
        &self,
        records: &[NewRecord<'_>],
        durability: Durability,
    ) -> Pending<AppendInfo, AppendError> {
        match new_record::build(records, now()) {
            Ok(batch) => self.append_batch(batch, durability),
            Err(error) => Pending::done(Err(error.into())),
        }
    }

    /// Appends a batch that is ready, as [`RecordBatchBuilder`](crate::record::RecordBatchBuilder) makes them, compressed or
    /// not; else as [`append`](Self::append). It is not copied if nobody else holds `batch`.
    ///
    /// # Errors
    ///
    /// See [`AppendError`].
    pub fn append_batch(&self, batch: Bytes, durability: Durability) -> Pending<AppendInfo, AppendError> {
        let room = room_of(&batch);
        self.request(room, |reply| append_request(batch, durability, reply))
    }

    /// As [`append_batch`](Self::append_batch), but refused where it would have to wait for room.
    ///
    /// # Errors
    ///
    /// [`AppendError::NoRoom`] at once; the others in the answer.
    pub fn try_append_batch(
        &self,
        batch: Bytes,
        durability: Durability,
    ) -> Result<Pending<AppendInfo, AppendError>, AppendError> {
        let room = room_of(&batch);
        let (reply, answer) = oneshot::channel();
        match self.try_send(room, append_request(batch, durability, reply)) {
            Ok(()) => Ok(Pending::sent(answer)),
            Err(Unsent::Gone(gone)) => Err(gone.into()),
            Err(Unsent::NoRoom(_) | Unsent::MailboxFull(_)) => {
                self.shared.counters.no_room.add(1);
                Err(AppendError::NoRoom)
            }
        }
    }

    /// Makes everything appended before durable; answered with the offset below which it is.
    ///
    /// # Errors
    ///
    /// See [`FlushError`].
    pub fn flush(&self) -> Pending<Offset, FlushError> {
        self.request(REQUEST_BYTES, LogRequest::Flush)
    }

    /// Reads what is there now, from `from` to the end of what has been written; less where the log is truncated to less
    /// meanwhile.
    #[must_use]
    pub fn scan(&self, from: Offset) -> Reader {
        Reader::scan(self.clone(), from)
    }

    /// Reads from `from` on and follows the log as it grows. Ends, with an error, only where nothing can come any more.
    #[must_use]
    pub fn tail(&self, from: Offset) -> Reader {
        self.reader(from, ReadConfig::default())
    }

    /// Reads from `from` on as `config` says.
    #[must_use]
    pub fn reader(&self, from: Offset, config: ReadConfig) -> Reader {
        Reader::new(self.clone(), from, config)
    }

    /// The first record with a timestamp of `timestamp` or later among those written; `None` where there is none.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub fn find_timestamp(&self, timestamp: TimestampMs) -> Pending<Option<FoundOffset>, ReadError> {
        self.request(REQUEST_BYTES, |reply| LogRequest::FindTimestamp(timestamp, reply))
    }

    /// Removes everything below `offset`; answered with the log's first offset. Whole files go; records that share a file
    /// with later ones are not read any more. Readers at work see what they have already located.
    ///
    /// # Durability
    ///
    /// Survives a crash of the kernel once answered.
    ///
    /// # Errors
    ///
    /// See [`TruncateError`]; above what has been written nothing can be removed.
    pub fn truncate_prefix(&self, offset: Offset) -> Pending<Offset, TruncateError> {
        self.request(REQUEST_BYTES, |reply| LogRequest::TruncatePrefix(offset, reply))
    }

    /// Removes everything from `offset` on; answered with the log's new end, which lies below `offset` where that is within
    /// a batch. Those offsets are then given to new records. Waits for what is under way; what is asked of the log
    /// meanwhile waits for the truncation. A reader beyond the new end gets [`ReadError::OutOfRange`].
    ///
    /// # Durability
    ///
    /// Survives a crash of the kernel once answered.
    ///
    /// # Errors
    ///
    /// See [`TruncateError`].
    pub fn truncate_suffix(&self, offset: Offset) -> Pending<Offset, TruncateError> {
        self.request(REQUEST_BYTES, |reply| LogRequest::TruncateSuffix(offset, reply))
    }

    /// Changes the log's settings; what has been appended stays as it is. They last until the engine is closed.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    pub fn set_config(&self, config: LogConfig) -> Pending<(), Gone> {
        self.request(REQUEST_BYTES, |reply| {
            LogRequest::Configure(Box::new(config), reply)
        })
    }

    /// Makes a request that takes `room` bytes: at once where there is room, else once it is polled and there is.
    pub(super) fn request<T, E>(
        &self,
        room: u32,
        make: impl FnOnce(Reply<T, E>) -> LogRequest,
    ) -> Pending<T, E>
    where
        T: Send + 'static,
        E: From<Gone> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let unsent = match self.try_send(room, make(reply)) {
            Ok(()) => return Pending::sent(answer),
            Err(Unsent::Gone(gone)) => return Pending::done(Err(gone.into())),
            Err(unsent) => unsent,
        };
        let shared = Arc::clone(&self.shared);
        Pending::waiting(async move {
            shared.counters.waits.add(1);
            let message = match unsent {
                Unsent::MailboxFull(message) => message,
                Unsent::NoRoom(request) => ShardMessage::Log(LogMessage {
                    log: shared.id,
                    room: shared.acquire(room).await,
                    request,
                }),
                Unsent::Gone(gone) => return Err(gone.into()),
            };
            if shared.mailbox.send(message).await.is_err() {
                return Err(Gone::Closed.into());
            }
            drop(shared);
            answer.await.unwrap_or_else(|_| Err(Gone::Closed.into()))
        })
    }

    fn try_send(&self, room: u32, request: LogRequest) -> Result<(), Unsent> {
        let shared = &self.shared;
        let Some(room) = shared.try_acquire(room) else {
            return Err(Unsent::NoRoom(request));
        };
        let message = ShardMessage::Log(LogMessage {
            log: shared.id,
            room,
            request,
        });
        shared.mailbox.try_send(message).map_err(|refused| match refused {
            MailboxRefused::Full(message) => Unsent::MailboxFull(message),
            MailboxRefused::Closed(_) => Unsent::Gone(Gone::Closed),
        })
    }
}

/// Why a request did not go.
enum Unsent {
    NoRoom(LogRequest),
    MailboxFull(ShardMessage),
    Gone(Gone),
}

impl LogShared {
    fn try_acquire(&self, room: u32) -> Option<OwnedSemaphorePermit> {
        let room = room.min(self.room_bytes);
        match Arc::clone(&self.room).try_acquire_many_owned(room) {
            Ok(permit) => Some(permit),
            Err(TryAcquireError::NoPermits) => None,
            Err(TryAcquireError::Closed) => unreachable!("nobody closes it"),
        }
    }

    async fn acquire(&self, room: u32) -> OwnedSemaphorePermit {
        let room = room.min(self.room_bytes);
        Arc::clone(&self.room)
            .acquire_many_owned(room)
            .await
            .expect("nobody closes it")
    }
}

/// What a batch takes of the log's room; one that is larger than all of it, all.
fn room_of(batch: &Bytes) -> u32 {
    u32::try_from(batch.len()).unwrap_or(u32::MAX)
}

fn append_request(batch: Bytes, durability: Durability, reply: Reply<AppendInfo, AppendError>) -> LogRequest {
    LogRequest::Append {
        batch: BytesMut::from(batch),
        durability,
        reply,
    }
}

/// The wall clock.
pub(super) fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    TimestampMs(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::{Engine, EngineConfig};
    use super::*;

    fn polled<T: Unpin, E: From<Gone> + Unpin>(pending: &mut Pending<T, E>) -> Poll<Result<T, E>> {
        pin!(pending).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn batch() -> Bytes {
        new_record::build(&[NewRecord::value(b"x")], now()).unwrap()
    }

    #[test]
    fn an_append_that_finds_no_room_waits_for_it_and_a_try_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), EngineConfig::default()).unwrap();
        let log = engine.log("wal").unwrap();
        let all = log.shared.try_acquire(u32::MAX).unwrap();
        let refused = log.try_append_batch(batch(), Durability::Written);
        assert!(matches!(refused, Err(AppendError::NoRoom)));
        let mut waiting = log.append_batch(batch(), Durability::Written);
        assert!(waiting.is_waiting_for_room());
        assert!(polled(&mut waiting).is_pending());
        drop(all);
        assert_eq!(waiting.wait().unwrap().base_offset, Offset(0));
        let taken = log.try_append_batch(batch(), Durability::Written).unwrap();
        assert_eq!(taken.wait().unwrap().base_offset, Offset(1));
        let metrics = engine.metrics();
        assert_eq!((metrics.waits_for_room, metrics.refused_for_room), (1, 1));
    }

    #[test]
    fn an_append_dropped_while_it_waits_for_room_is_withdrawn_and_its_place_given_on() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), EngineConfig::default()).unwrap();
        let log = engine.log("wal").unwrap();
        let all = log.shared.try_acquire(u32::MAX).unwrap();
        let mut first = log.append_batch(batch(), Durability::Written);
        let mut second = log.append_batch(batch(), Durability::Written);
        assert!(polled(&mut first).is_pending());
        assert!(polled(&mut second).is_pending());
        drop(first);
        drop(all);
        assert_eq!(second.wait().unwrap().base_offset, Offset(0));
        assert_eq!(log.flush().wait().unwrap(), Offset(1));
    }

    #[test]
    fn a_batch_larger_than_all_room_is_taken_once_it_has_the_log_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let config = EngineConfig {
            log_buffer_bytes: 64 << 10,
            ..EngineConfig::default()
        };
        let engine = Engine::open(dir.path(), config).unwrap();
        let log = engine.log("wal").unwrap();
        let large = vec![0; 500_000];
        for _ in 0..3 {
            let records = [NewRecord::value(&large)];
            log.append(&records, Durability::Written).wait().unwrap();
        }
    }
}
