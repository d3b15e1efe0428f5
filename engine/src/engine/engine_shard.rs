//! One shard of an engine: the logs it owns and its loop.
//!
//! The loop: take what has come (completions, requests, timeouts), change logs, end the turn: one round of storage requests for
//! all logs that were touched, then the answers. Requests that come together so share writes and syncs. Runs on one
//! thread; reached by its mailbox alone. Invariant: only logs in `touched` can have something to do at the end of a turn, so an
//! idle log costs nothing. Tested through `tests/engine/`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use super::checkpointer::{CheckpointRequest, Checkpoints};
use super::compaction::CompactionRequest;
use super::error::{DeleteLogError, Gone, TruncateError};
use super::handle::now;
use super::locate;
use super::log_shared::Ended;
use super::log_slot::{LogSlot, Still};
use super::message::{LogMessage, LogRequest, OpenLog, Reply, ShardMessage};
use super::metrics::EngineCounters;
use super::retention;
use crate::io::{IoCompletion, IoQueue};
use crate::log::compaction::CleanedSegment;
use crate::log::{CloseError, Log};
use crate::rt::mailbox::MailboxReceiver;
use crate::rt::{ShardContext, ShardIo};
use crate::types::{LogId, Offset, TimestampMs};

/// Messages taken from the mailbox in one turn.
const MESSAGES_PER_TURN: usize = 256;

/// What became of a log at the end.
pub(super) type ClosedLog = (String, Result<(), CloseError>);

/// See the module.
pub(super) struct EngineShard {
    pub(super) io: ShardIo,
    slots: RefCell<BTreeMap<LogId, LogSlot>>,
    touched: RefCell<BTreeSet<LogId>>,
    /// When which log is due though nothing happens.
    timers: RefCell<BTreeSet<(TimestampMs, LogId)>>,
    queue: RefCell<IoQueue>,
    /// Who waits for a new segment of which log to be in place.
    swaps: RefCell<HashMap<LogId, oneshot::Sender<Result<(), CleanedSegment>>>>,
    /// A task has changed something.
    woken: Notify,
    stopping: Cell<bool>,
    checkpoints: Arc<Checkpoints>,
    checkpointer: Sender<CheckpointRequest>,
    counters: Arc<EngineCounters>,
}

/// What a shard is given at its start.
pub(super) struct EngineShardSetup {
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) checkpointer: Sender<CheckpointRequest>,
    pub(super) counters: Arc<EngineCounters>,
    pub(super) retention_check_interval: Duration,
    pub(super) mailbox: MailboxReceiver<ShardMessage>,
}

/// Runs a shard until it is told to stop; returns what became of its logs.
pub(super) async fn run(context: ShardContext, setup: EngineShardSetup) -> Vec<ClosedLog> {
    let mut mailbox = setup.mailbox;
    let shard = Rc::new(EngineShard {
        io: context.io,
        slots: RefCell::default(),
        touched: RefCell::default(),
        timers: RefCell::default(),
        queue: RefCell::default(),
        swaps: RefCell::default(),
        woken: Notify::new(),
        stopping: Cell::new(false),
        checkpoints: setup.checkpoints,
        checkpointer: setup.checkpointer,
        counters: setup.counters,
    });
    let retention = retention::run(Rc::clone(&shard), setup.retention_check_interval);
    let retention = tokio::task::spawn_local(retention);
    let mut completions = Vec::new();
    let mut messages = Vec::with_capacity(MESSAGES_PER_TURN);
    while !(shard.stopping.get() && shard.is_settled()) {
        let woken = {
            let timeout = shard.next_timeout();
            let mut completed = pin!(shard.io.completions(&mut completions));
            // Its senders are kept by the engine for as long as it lives.
            let mut received = pin!(mailbox.recv_many(&mut messages, MESSAGES_PER_TURN));
            let mut woken = pin!(shard.woken.notified());
            let mut timed_out = pin!(sleep(timeout));
            // In this order: completions make room for what requests ask.
            poll_fn(|cx| {
                let ready = if completed.as_mut().poll(cx).is_ready() {
                    Woken::Completions
                } else if received.as_mut().poll(cx).is_ready() {
                    Woken::Messages
                } else if woken.as_mut().poll(cx).is_ready() {
                    Woken::Task
                } else if timed_out.as_mut().poll(cx).is_ready() {
                    Woken::Timeout
                } else {
                    return Poll::Pending;
                };
                Poll::Ready(ready)
            })
            .await
        };
        match woken {
            Woken::Completions => shard.handle_completions(&mut completions),
            Woken::Messages => messages.drain(..).for_each(|message| shard.handle(message)),
            Woken::Task => {}
            Woken::Timeout => shard.handle_timeouts(),
        }
        shard.end_turn();
    }
    retention.abort();
    let closed = shard.close();
    mailbox.finish().await;
    closed
}

/// What ends a shard's sleep.
enum Woken {
    Completions,
    Messages,
    Task,
    Timeout,
}

async fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

impl EngineShard {
    fn handle(self: &Rc<Self>, message: ShardMessage) {
        match message {
            ShardMessage::Log(message) => self.handle_log(message),
            ShardMessage::Open(open) => self.open(*open),
            ShardMessage::Publish(reply) => {
                let now = now();
                for slot in self.slots.borrow_mut().values_mut() {
                    slot.log.expire_producers(now);
                    self.put_checkpoint(slot);
                    self.flush_for_checkpoint(slot);
                }
                let _ = reply.send(());
            }
            ShardMessage::Compaction(request) => self.handle_compaction(request),
            ShardMessage::Stop => self.stopping.set(true),
        }
    }

    fn handle_compaction(&self, request: CompactionRequest) {
        if self.stopping.get() {
            // Whoever asks finds out that there is no answer.
            return;
        }
        let (mut slots, now) = (self.slots.borrow_mut(), now());
        // What needs the log to be still comes first.
        let is_free = |slot: &LogSlot| slot.still.is_none();
        match request {
            CompactionRequest::Dirty(reply) => {
                let dirty = slots.iter().filter(|(_, slot)| is_free(slot));
                let dirty = dirty.filter_map(|(&id, slot)| Some((slot.dirtiness(now)?, id)));
                let _ = reply.send(dirty.collect());
            }
            CompactionRequest::Begin(id, reply) => {
                let _ = reply.send(
                    slots
                        .get_mut(&id)
                        .filter(|slot| is_free(slot))
                        .and_then(|slot| slot.begin_cleaning(now)),
                );
            }
            CompactionRequest::SwapIn(id, new, reply) => {
                let refused = match slots.get_mut(&id).filter(|slot| is_free(slot)) {
                    Some(slot) => slot.log.swap_in(new).err(),
                    None => Some(new),
                };
                match refused {
                    None => {
                        self.touched.borrow_mut().insert(id);
                        self.swaps.borrow_mut().insert(id, reply);
                    }
                    // Where nobody takes it back, its files are removed when the log is opened.
                    Some(new) => drop(reply.send(Err(new))),
                }
            }
            CompactionRequest::End(id, job, clean_end, reply) => {
                let slot = slots.get_mut(&id);
                let _ = reply.send(slot.is_some_and(|slot| slot.log.end_cleaning(job, clean_end)));
            }
        }
    }

    /// Tells whoever waits for a segment that it is in place, or never will be.
    fn answer_swaps(&self) {
        let slots = self.slots.borrow();
        let is_over = |id: &LogId| !slots.get(id).is_some_and(|slot| slot.log.is_swapping());
        let mut swaps = self.swaps.borrow_mut();
        let over = swaps.extract_if(|id, _| is_over(id));
        over.for_each(|(_, swapped)| drop(swapped.send(Ok(()))));
    }

    fn open(&self, open: OpenLog) {
        let id = open.shared.id;
        let mut files = self.io.files().borrow_mut();
        let opened = Log::open(&open.dir, id, open.config, open.options, &mut *files);
        let answer = opened.map(|(mut log, _)| {
            log.set_first_dirty_offset(open.first_dirty_offset);
            let slot = LogSlot::new(log, open.shared, open.key);
            self.put_checkpoint(&slot);
            self.slots.borrow_mut().insert(id, slot);
        });
        // Whoever asked waits.
        let _ = open.reply.send(answer);
    }

    /// Has flushed what the next checkpoint is to say is flushed.
    fn flush_for_checkpoint(&self, slot: &mut LogSlot) {
        if slot.log.flushed_offset() < slot.log.log_end_offset() {
            slot.log.request_checkpoint_flush();
            self.touched.borrow_mut().insert(slot.shared.id);
        }
    }

    fn put_checkpoint(&self, slot: &LogSlot) {
        // A truncation of the suffix has recorded the log start instead, until it is over.
        if !matches!(slot.still, Some(Still::UnderWay)) {
            let (flushed, start) = (slot.log.flushed_offset(), slot.log.log_start_offset());
            self.checkpoints
                .put(&slot.key, flushed, start, slot.log.first_dirty_offset());
        }
    }

    fn handle_log(self: &Rc<Self>, message: LogMessage) {
        if self.stopping.get() {
            message.request.refuse(Gone::Closed);
            return;
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&message.log) else {
            message.request.refuse(Gone::Deleted);
            return;
        };
        self.touched.borrow_mut().insert(message.log);
        if slot.still.is_some() {
            slot.held.push_back(message);
        } else {
            self.carry_out(slot, message);
        }
    }

    fn carry_out(self: &Rc<Self>, slot: &mut LogSlot, message: LogMessage) {
        let LogMessage { log, room, request } = message;
        match request {
            LogRequest::Append {
                batch,
                durability,
                reply,
            } => slot.append(batch, durability, reply, room, now()),
            LogRequest::Flush(reply) => slot.flush(reply, room),
            LogRequest::Locate(wanted, reply) => {
                self.counters.locates.add(1);
                match locate::plan_read(self, slot, wanted) {
                    Ok(Some(planned)) if !planned.0.is_located() => {
                        let shard = Rc::clone(self);
                        let located = locate::locate(shard, log, wanted, Some(planned));
                        answer_later(located, reply, room);
                    }
                    planned => {
                        let _ = reply.send(planned.map(locate::located));
                    }
                }
            }
            LogRequest::FindTimestamp(timestamp, reply) => {
                let shard = Rc::clone(self);
                answer_later(locate::find_timestamp(shard, log, timestamp), reply, room);
            }
            LogRequest::Read {
                file,
                position,
                len_bytes,
                reply,
            } => {
                self.counters.cold_reads.add(1);
                let io = self.io.clone();
                let read = async move { Ok(io.read(file, position, len_bytes).await?) };
                answer_later(read, reply, room);
            }
            LogRequest::TruncatePrefix(offset, reply) => self.truncate_prefix(slot, offset, reply),
            LogRequest::TruncateSuffix(offset, reply) => {
                if offset < slot.log.log_start_offset() || offset > slot.log.log_end_offset() {
                    let _ = reply.send(Err(slot.out_of_range(offset).into()));
                } else {
                    slot.still = Some(Still::Truncate(offset, reply));
                }
            }
            LogRequest::Configure(config, reply) => {
                slot.log.set_config(*config);
                let _ = reply.send(Ok(()));
            }
            LogRequest::Delete(reply) => slot.still = Some(Still::Delete(reply)),
        }
    }

    fn truncate_prefix(
        self: &Rc<Self>,
        slot: &mut LogSlot,
        offset: Offset,
        reply: Reply<Offset, TruncateError>,
    ) {
        let moved = slot
            .log
            .increment_log_start_offset(offset, &mut self.queue.borrow_mut());
        if moved.is_err() {
            let _ = reply.send(Err(slot.out_of_range(offset).into()));
            return;
        }
        self.put_checkpoint(slot);
        let start = slot.log.log_start_offset();
        let written = self.write_checkpoints();
        tokio::task::spawn_local(async move {
            let _ = reply.send(written.await.map(|()| start));
        });
    }

    /// Lets logs go of old segments, `count` of them from `from` on; returns where to go on.
    pub(super) fn enforce_retention(&self, from: LogId, count: usize) -> Option<LogId> {
        let (mut slots, mut queue) = (self.slots.borrow_mut(), self.queue.borrow_mut());
        let mut slots = slots.range_mut(from..);
        for (&id, slot) in slots.by_ref().take(count) {
            // What needs the log to be still comes first.
            if slot.still.is_some() || self.stopping.get() {
                continue;
            }
            let written = slot.log.written_offset();
            let moved = slot.log.enforce_retention(written, now(), &mut queue);
            if moved.is_some() {
                self.put_checkpoint(slot);
                self.touched.borrow_mut().insert(id);
            }
        }
        self.woken.notify_one();
        slots.next().map(|(&id, _)| id)
    }

    /// Has the checkpoint files written as they should be now.
    fn write_checkpoints(&self) -> impl Future<Output = Result<(), TruncateError>> + use<> {
        let (reply, answer) = oneshot::channel();
        // Where the thread has gone, the answer's channel is closed.
        let _ = self.checkpointer.send(CheckpointRequest::Write(reply));
        async {
            match answer.await {
                Ok(written) => Ok(written?),
                Err(_) => Err(Gone::Closed.into()),
            }
        }
    }

    /// Ends a turn: storage requests go to the kernel, answers to whoever waits for them.
    fn end_turn(self: &Rc<Self>) {
        self.counters.turns.add(1);
        let now = now();
        let touched = std::mem::take(&mut *self.touched.borrow_mut());
        let mut still = Vec::new();
        {
            let (mut slots, mut queue) = (self.slots.borrow_mut(), self.queue.borrow_mut());
            let polled = |slot: &LogSlot| !matches!(slot.still, Some(Still::Delete(_) | Still::UnderWay));
            for id in &touched {
                if let Some(slot) = slots.get_mut(id).filter(|slot| polled(slot)) {
                    slot.log.poll_io(&mut queue, now);
                }
            }
            // Before the answers, which wake other threads: the disk works meanwhile.
            self.io.submit(queue.drain());
            for id in touched {
                let Some(slot) = slots.get_mut(&id) else { continue };
                slot.answer();
                self.set_timer(slot);
                if slot.still.is_some() {
                    still.push(id);
                }
            }
        }
        for id in still {
            self.try_still(id);
        }
        self.answer_swaps();
    }

    fn set_timer(&self, slot: &mut LogSlot) {
        let due = slot.log.next_timeout();
        if due != slot.due {
            let (id, mut timers) = (slot.shared.id, self.timers.borrow_mut());
            if let Some(before) = std::mem::replace(&mut slot.due, due) {
                timers.remove(&(before, id));
            }
            timers.extend(due.map(|due| (due, id)));
        }
    }

    /// Carries out what needs a log to be still, if it is.
    fn try_still(self: &Rc<Self>, id: LogId) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&id) else { return };
        match slot.still.take() {
            Some(Still::Truncate(offset, reply)) => {
                if let Some(poison) = slot.log.poison().cloned() {
                    let _ = reply.send(Err(crate::log::TruncateError::from(poison).into()));
                } else if slot.log.is_stalled() {
                    let _ = reply.send(Err(TruncateError::StorageFull));
                } else if slot.is_still() {
                    slot.still = Some(Still::UnderWay);
                    // Until it is over, a start after a crash takes nothing for granted: the log may end anywhere.
                    let start = slot.log.log_start_offset();
                    self.checkpoints.put(&slot.key, start, start, start);
                    let (shard, written) = (Rc::clone(self), self.write_checkpoints());
                    tokio::task::spawn_local(async move {
                        let written = written.await;
                        shard.finish_truncation(id, offset, written, reply);
                    });
                    return;
                } else {
                    slot.still = Some(Still::Truncate(offset, reply));
                    return;
                }
                self.resume(slot);
            }
            Some(Still::Delete(reply)) if slot.log.has_requests_in_flight() => {
                slot.still = Some(Still::Delete(reply));
            }
            Some(Still::Delete(reply)) => {
                let slot = slots.remove(&id).expect("it was just there");
                drop(slots);
                self.delete(slot, reply);
            }
            still => slot.still = still,
        }
    }

    fn finish_truncation(
        self: &Rc<Self>,
        id: LogId,
        offset: Offset,
        recorded: Result<(), TruncateError>,
        reply: Reply<Offset, TruncateError>,
    ) {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(&id).expect("nothing is done to a log under way");
        let end = recorded.and_then(|()| {
            // Before the file changes: see the reader's use of it.
            slot.shared.begin_truncation();
            Ok(slot.log.truncate_to(offset, &mut *self.io.files().borrow_mut())?)
        });
        slot.shared.publish(&slot.log);
        slot.still = None;
        self.put_checkpoint(slot);
        let _ = reply.send(end);
        self.resume(slot);
    }

    /// Carries out what was held back, up to the next command that holds back.
    fn resume(self: &Rc<Self>, slot: &mut LogSlot) {
        while slot.still.is_none()
            && let Some(message) = slot.held.pop_front()
        {
            self.carry_out(slot, message);
        }
        self.touched.borrow_mut().insert(slot.shared.id);
        self.woken.notify_one();
    }

    fn delete(&self, mut slot: LogSlot, reply: Reply<(), DeleteLogError>) {
        slot.refuse_all(Gone::Deleted);
        slot.shared.end(Ended::Gone(Gone::Deleted));
        if let Some(due) = slot.due {
            self.timers.borrow_mut().remove(&(due, slot.shared.id));
        }
        slot.log.discard(&mut *self.io.files().borrow_mut());
        let retired = self.checkpoints.dir().retire(&slot.shared.name);
        if retired.is_ok() {
            self.checkpoints.remove(&slot.key);
            // What stays is removed at the next open.
            let _ = self.checkpointer.send(CheckpointRequest::RemoveRetired);
        }
        let _ = reply.send(retired.map_err(DeleteLogError::from));
    }

    fn handle_completions(&self, completions: &mut Vec<IoCompletion>) {
        let (mut slots, mut touched) = (self.slots.borrow_mut(), self.touched.borrow_mut());
        for completion in completions.drain(..) {
            // Those of a log that was deleted concern nobody: it had none in flight but those nothing depends on.
            if let Some(slot) = slots.get_mut(&completion.log) {
                touched.insert(completion.log);
                slot.log.handle_io(completion);
            }
        }
    }

    fn handle_timeouts(&self) {
        let now = now();
        let timers = self.timers.borrow();
        let due = timers.iter().take_while(|(due, _)| *due <= now);
        self.touched.borrow_mut().extend(due.map(|(_, id)| *id));
    }

    fn next_timeout(&self) -> Option<Duration> {
        let (due, _) = *self.timers.borrow().first()?;
        let millis = u64::try_from(due.0.saturating_sub(now().0)).unwrap_or(0);
        Some(Duration::from_millis(millis))
    }

    /// Looks at a log, from a task.
    pub(super) fn with_slot<T>(&self, log: LogId, look: impl FnOnce(&LogSlot) -> T) -> Result<T, Gone> {
        self.slots.borrow().get(&log).map(look).ok_or(Gone::Deleted)
    }

    fn is_settled(&self) -> bool {
        self.slots.borrow().values().all(LogSlot::is_settled)
    }

    /// Closes every log; each is durable then.
    fn close(&self) -> Vec<ClosedLog> {
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        let mut files = self.io.files().borrow_mut();
        let closed = slots.into_values().map(|mut slot| {
            slot.refuse_all(Gone::Closed);
            let closed = slot.log.close(&mut *files);
            let recovery_point = match closed {
                Ok(()) => slot.log.log_end_offset(),
                Err(_) => slot.log.flushed_offset(),
            };
            let (start, first_dirty) = (slot.log.log_start_offset(), slot.log.first_dirty_offset());
            self.checkpoints
                .put(&slot.key, recovery_point, start, first_dirty);
            slot.shared.end(Ended::Gone(Gone::Closed));
            (slot.shared.name.clone(), closed)
        });
        closed.collect()
    }
}

/// Answers once `future` is done; the request keeps its room until then.
fn answer_later<T: 'static, E: 'static>(
    future: impl Future<Output = Result<T, E>> + 'static,
    reply: Reply<T, E>,
    room: OwnedSemaphorePermit,
) {
    tokio::task::spawn_local(async move {
        let answer = future.await;
        drop(room);
        // Whoever asked may have gone.
        let _ = reply.send(answer);
    });
}
