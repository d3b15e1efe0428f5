//! One log on its shard, and who waits for what of it.
//!
//! Owns the order of answers: a batch is answered when the log's written or flushed offset has passed it. A command that
//! needs the log to be still holds back what comes after it. Knows no threads; what needs waiting is done by `engine_shard`.
//!
//! Invariants: every entry of every queue here holds room of the log, which bounds them; offsets in `unwritten` and in
//! `unflushed` only grow (a batch that was a duplicate excepted: it waits for those before it). Tested through
//! `tests/engine/`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::OwnedSemaphorePermit;

use super::config::{Durability, Visibility};
use super::error::{AppendError, DeleteLogError, FlushError, Gone, TruncateError};
use super::log_shared::LogShared;
use super::message::{LogMessage, Reply};
use crate::log::checkpoint::TopicPartition;
use crate::log::compaction::{CleaningJob, Dirtiness};
use crate::log::{AppendInfo, Log, ReadError as OutOfRange};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// See the module.
#[derive(Debug)]
pub(super) struct LogSlot {
    pub(super) log: Log,
    pub(super) shared: Arc<LogShared>,
    pub(super) key: TopicPartition,
    unwritten: VecDeque<Waiting>,
    unflushed: VecDeque<Waiting>,
    /// The command that needs the log to be still.
    pub(super) still: Option<Still>,
    /// What came after it.
    pub(super) held: VecDeque<LogMessage>,
    /// When the log has something to do though nothing happens, as the shard's timers have it.
    pub(super) due: Option<TimestampMs>,
}

/// Someone who waits for the log to pass `end`, and the room that takes.
#[derive(Debug)]
struct Waiting {
    end: Offset,
    room: OwnedSemaphorePermit,
    waiter: Waiter,
}

#[derive(Debug)]
enum Waiter {
    /// Answered already: only the room is kept until the batch is written.
    Buffered,
    Written(AppendInfo, Reply<AppendInfo, AppendError>),
    Flushed(AppendInfo, Reply<AppendInfo, AppendError>),
    Flush(Reply<Offset, FlushError>),
}

/// A command that needs the log to be still.
#[derive(Debug)]
pub(super) enum Still {
    Truncate(Offset, Reply<Offset, TruncateError>),
    Delete(Reply<(), DeleteLogError>),
    /// Under way; nothing may be asked of the log.
    UnderWay,
}

impl LogSlot {
    pub(super) fn new(log: Log, shared: Arc<LogShared>, key: TopicPartition) -> Self {
        shared.publish(&log);
        Self {
            log,
            shared,
            key,
            unwritten: VecDeque::new(),
            unflushed: VecDeque::new(),
            still: None,
            held: VecDeque::new(),
            due: None,
        }
    }

    pub(super) fn append(
        &mut self,
        batch: BytesMut,
        durability: Durability,
        reply: Reply<AppendInfo, AppendError>,
        room: OwnedSemaphorePermit,
        now: TimestampMs,
    ) {
        let len_bytes = batch.len() as u64;
        // One leader, who never changes; a directory that a broker has written goes on in its last epoch.
        let epoch = self.log.latest_epoch().unwrap_or(LeaderEpoch(0));
        let info = match self.log.append_as_leader(batch, epoch, now) {
            Ok(info) => info,
            Err(error) => {
                self.shared.counters.refused.add(1);
                let _ = reply.send(Err(error.into()));
                return;
            }
        };
        self.shared.counters.appends.add(1);
        self.shared.counters.append_bytes.add(len_bytes);
        let waiter = match durability {
            Durability::Buffered => {
                // Whoever waits may have gone.
                let _ = reply.send(Ok(info));
                Waiter::Buffered
            }
            Durability::Written => Waiter::Written(info, reply),
            Durability::Flushed => {
                self.log.request_flush();
                Waiter::Flushed(info, reply)
            }
        };
        self.unwritten.push_back(Waiting {
            end: info.last_offset.plus(1),
            room,
            waiter,
        });
    }

    pub(super) fn flush(&mut self, reply: Reply<Offset, FlushError>, room: OwnedSemaphorePermit) {
        self.log.request_flush();
        self.unwritten.push_back(Waiting {
            end: self.log.log_end_offset(),
            room,
            waiter: Waiter::Flush(reply),
        });
    }

    /// How much the log is to be compacted.
    pub(super) fn dirtiness(&self, now: TimestampMs) -> Option<Dirtiness> {
        self.log.dirtiness(self.last_stable_offset(), now)
    }

    pub(super) fn begin_cleaning(&mut self, now: TimestampMs) -> Option<CleaningJob> {
        self.log.begin_cleaning(self.last_stable_offset(), now)
    }

    /// Nothing above may be compacted: a crash could take back what superseded it.
    fn last_stable_offset(&self) -> Offset {
        let flushed = self.log.flushed_offset();
        let unstable = self.log.first_unstable_offset();
        unstable.map_or(flushed, |unstable| unstable.min(flushed))
    }

    /// What of the log a reader may see.
    pub(super) fn bound(&self, visibility: Visibility) -> Offset {
        match visibility {
            Visibility::Written => self.log.written_offset(),
            Visibility::Flushed => self.log.flushed_offset(),
        }
    }

    /// Whether everything asked for has been answered and nothing is in flight.
    pub(super) fn is_still(&self) -> bool {
        self.log.is_idle() && self.unwritten.is_empty() && self.unflushed.is_empty()
    }

    /// Whether the log has on disk what it has taken, or cannot have it: a full disk does not keep the engine from closing.
    pub(super) fn is_settled(&self) -> bool {
        let failed = self.log.poison().is_some() || self.log.is_stalled();
        match self.still {
            Some(Still::UnderWay) => false,
            _ if failed => !self.log.has_requests_in_flight(),
            Some(_) => false,
            None => self.log.is_idle(),
        }
    }

    /// Answers everyone whose offset the log has passed, or never will, and tells readers.
    pub(super) fn answer(&mut self) {
        // First, so that whoever is answered sees as much in the handle.
        self.shared.publish(&self.log);
        let (written, flushed) = (self.log.written_offset(), self.log.flushed_offset());
        // Given back in one go: each time takes the lock that callers wait on.
        let mut room: Option<OwnedSemaphorePermit> = None;
        let mut give_back = |given: OwnedSemaphorePermit| match &mut room {
            Some(room) => room.merge(given),
            None => room = Some(given),
        };
        while self.unwritten.front().is_some_and(|first| first.end <= written)
            && let Some(waiting) = self.unwritten.pop_front()
        {
            match waiting.waiter {
                Waiter::Buffered => give_back(waiting.room),
                Waiter::Written(info, reply) => {
                    give_back(waiting.room);
                    let _ = reply.send(Ok(info));
                }
                Waiter::Flushed(..) | Waiter::Flush(_) => self.unflushed.push_back(waiting),
            }
        }
        while self.unflushed.front().is_some_and(|first| first.end <= flushed)
            && let Some(waiting) = self.unflushed.pop_front()
        {
            give_back(waiting.room);
            match waiting.waiter {
                Waiter::Flushed(info, reply) => {
                    let _ = reply.send(Ok(info));
                }
                Waiter::Flush(reply) => {
                    let _ = reply.send(Ok(flushed));
                }
                Waiter::Buffered | Waiter::Written(..) => unreachable!("they do not wait for a sync"),
            }
        }
        drop(room);
        if let Some(poison) = self.log.poison().cloned() {
            self.fail_appends(|| poison.clone().into(), || poison.clone().into());
        }
    }

    /// Tells everyone who waits that there will be nothing.
    pub(super) fn refuse_all(&mut self, gone: Gone) {
        self.fail_appends(|| gone.into(), || gone.into());
        for message in self.held.drain(..) {
            message.request.refuse(gone);
        }
    }

    fn fail_appends(&mut self, append: impl Fn() -> AppendError, flush: impl Fn() -> FlushError) {
        for waiting in self.unflushed.drain(..).chain(self.unwritten.drain(..)) {
            match waiting.waiter {
                Waiter::Buffered => {}
                Waiter::Written(_, reply) | Waiter::Flushed(_, reply) => {
                    let _ = reply.send(Err(append()));
                }
                Waiter::Flush(reply) => {
                    let _ = reply.send(Err(flush()));
                }
            }
        }
    }

    /// That `offset` is not one that may be cut at.
    pub(super) fn out_of_range(&self, offset: Offset) -> OutOfRange {
        OutOfRange {
            offset,
            log_start_offset: self.log.log_start_offset(),
            log_end_offset: self.log.written_offset(),
        }
    }
}
