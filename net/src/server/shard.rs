//! One shard of the server: a core's partitions, its connections' view of the others, its loop.
//!
//! Owns the `BrokerShard`, the storage ring's driver and the replies under way. Everything here
//! runs on one thread; other shards and the control thread reach it by its mailbox alone.
//! The loop: take what has come (completions, messages, timeouts, a connection's touch), end the
//! turn, submit, hand out replies. Connections append within their own task; the turn ends once
//! all tasks that were ready have run, so that their batches share one write.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringlog_engine::io::{IoCompletion, IoError};
use ringlog_engine::log::compaction::CleanedSegment;
use ringlog_engine::log::{Log, OpenError, RecoveryReport};
use ringlog_engine::rt::ShardIo;
use ringlog_engine::rt::mailbox::{Mailbox, MailboxReceiver};
use ringlog_engine::types::{LogId, TimestampMs};
use ringlog_replication::BrokerShard;
use ringlog_replication::broker_shard::RetentionStep;
use ringlog_replication::partition::Partition;
use ringlog_replication::request::{FetchError, FetchRequest, ProduceRequest, ProduceResult, Reply};
use ringlog_replication::types::{MonotonicMs, Now, RequestId, TopicIdPartition};
use tokio::sync::{Notify, mpsc, oneshot};

use super::control_request::ControlRequest;
use super::shard_request::{FetchedResult, LogCheckpoint, OpenPartition, ShardRequest, View};
use super::{resolve, retention};
use crate::config::ServerConfig;
use crate::metadata::MetadataImage;

/// Messages taken from the mailbox in one turn.
const MESSAGES_PER_TURN: usize = 256;

/// A full disk is mentioned so often while it is.
const SAY_FULL_AGAIN: Duration = Duration::from_secs(60);

/// What a connection or a handler may use of its shard; one thread only.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) io: ShardIo,
    pub(crate) control: mpsc::Sender<ControlRequest>,
    /// Producer ids of this shard's block that are not given out yet.
    pub(crate) producer_ids: RefCell<Range<i64>>,
    broker: RefCell<BrokerShard>,
    view: RefCell<View>,
    draining: Cell<bool>,
    shards: Vec<Mailbox<ShardRequest>>,
    replies: RefCell<HashMap<RequestId, ReplyTo>>,
    /// Who waits for a new segment to be in its place.
    swaps: RefCell<HashMap<TopicIdPartition, oneshot::Sender<Result<(), CleanedSegment>>>>,
    /// Who waits for the last request of a removed partition.
    removals: RefCell<HashMap<TopicIdPartition, oneshot::Sender<()>>>,
    next_request: Cell<u64>,
    next_log: Cell<u32>,
    touched: Notify,
    said_full: Cell<Option<Instant>>,
    started: Instant,
}

#[derive(Debug)]
enum ReplyTo {
    Produce(oneshot::Sender<Vec<ProduceResult>>),
    Fetch(oneshot::Sender<Vec<FetchedResult>>),
}

/// What a shard is given at its start.
#[derive(Debug)]
pub(crate) struct ShardSetup {
    pub(crate) index: usize,
    pub(crate) control: mpsc::Sender<ControlRequest>,
    pub(crate) shards: Vec<Mailbox<ShardRequest>>,
    pub(crate) view: View,
}

impl Shard {
    pub(crate) fn new(setup: ShardSetup, io: ShardIo) -> Rc<Self> {
        Rc::new(Self {
            index: setup.index,
            io,
            control: setup.control,
            producer_ids: RefCell::new(0..0),
            broker: RefCell::new(BrokerShard::new()),
            view: RefCell::new(setup.view),
            draining: Cell::new(false),
            shards: setup.shards,
            replies: RefCell::default(),
            swaps: RefCell::default(),
            removals: RefCell::default(),
            next_request: Cell::new(0),
            next_log: Cell::new(0),
            touched: Notify::new(),
            said_full: Cell::new(None),
            started: Instant::now(),
        })
    }

    /// The metadata as this shard knows it.
    pub(crate) fn image(&self) -> Arc<MetadataImage> {
        self.view.borrow().image.clone()
    }

    /// The settings in force.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.view.borrow().config.clone()
    }

    /// Whether nothing may wait any more, since the broker stops.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// The number of shards.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// A request id that no shard has used.
    pub(crate) fn next_request_id(&self) -> RequestId {
        let count = self.next_request.get();
        self.next_request.set(count + 1);
        let shard = u64::try_from(self.index).expect("few shards");
        RequestId((shard << 48) | count)
    }

    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Now {
            wall: TimestampMs(i64::try_from(millis(wall)).unwrap_or(i64::MAX)),
            monotonic: MonotonicMs(millis(self.started.elapsed())),
        }
    }

    /// Asks the shard `target`, which may be this one; waits while its mailbox is full.
    pub(crate) async fn ask(self: &Rc<Self>, target: usize, request: ShardRequest) {
        if target == self.index {
            self.handle(request);
        } else {
            // A closed mailbox means that the server stops; the asker sees its answer's channel close.
            let _ = self.shards[target].send(request).await;
        }
    }

    fn handle(self: &Rc<Self>, request: ShardRequest) {
        self.touched.notify_one();
        let mut broker = self.broker.borrow_mut();
        match request {
            ShardRequest::Produce {
                acks,
                timeout_ms,
                partitions,
                reply,
            } => {
                let id = self.next_request_id();
                self.replies.borrow_mut().insert(id, ReplyTo::Produce(reply));
                broker.handle_produce(
                    ProduceRequest {
                        id,
                        acks,
                        timeout_ms,
                        partitions,
                    },
                    self.now(),
                );
            }
            ShardRequest::Fetch(id, call, reply) => {
                self.replies.borrow_mut().insert(id, ReplyTo::Fetch(reply));
                let request = FetchRequest {
                    id,
                    max_wait_ms: if self.draining.get() { 0 } else { call.max_wait_ms },
                    min_bytes: call.min_bytes,
                    isolation: call.isolation,
                    partitions: call.partitions,
                };
                broker.handle_fetch(request, self.now());
            }
            ShardRequest::FinishFetch(id) => broker.finish_fetch(id),
            ShardRequest::Offsets(partitions, reply) => {
                let offsets = |id: &TopicIdPartition| broker.partition(*id).map(Partition::offsets);
                let _ = reply.send(partitions.iter().map(offsets).collect());
            }
            ShardRequest::FindOffset(id, query, reply) => {
                drop(broker);
                let shard = self.clone();
                tokio::task::spawn_local(async move {
                    let _ = reply.send(resolve::find_offset(&shard, id, query).await);
                });
            }
            ShardRequest::DeleteRecords(partitions, reply) => {
                let results = partitions
                    .into_iter()
                    .map(|(id, offset)| broker.delete_records(id, offset));
                let _ = reply.send(results.collect());
            }
            ShardRequest::EpochEnd(id, current, asked, reply) => {
                let end = broker
                    .partition(id)
                    .ok_or(FetchError::UnknownPartition)
                    .and_then(|partition| {
                        partition.check_leader_epoch(current)?;
                        Ok(partition.log().end_offset_for_epoch(asked))
                    });
                let _ = reply.send(end);
            }
            ShardRequest::LastProducerId(reply) => {
                let _ = reply.send(
                    broker
                        .partitions()
                        .filter_map(|p| p.log().last_producer_id())
                        .max(),
                );
            }
            ShardRequest::Sizes(reply) => {
                let _ = reply.send(
                    broker
                        .partitions()
                        .map(|p| (p.id(), p.log().size_bytes()))
                        .collect(),
                );
            }
            ShardRequest::Metadata(view, reply) => {
                self.view.replace(view);
                let _ = reply.send(());
            }
            ShardRequest::Open(open, reply) => {
                let _ = reply.send(self.open(&mut broker, open));
            }
            ShardRequest::Remove(id, reply) => {
                if broker.remove_partition(id) {
                    self.removals.borrow_mut().insert(id, reply);
                } else {
                    let _ = reply.send(());
                }
            }
            ShardRequest::Configure(id, config, reply) => {
                if let Some(partition) = broker.partition_mut(id) {
                    partition.log_mut().set_config(config);
                }
                let _ = reply.send(());
            }
            ShardRequest::Checkpoint(reply) => {
                broker.expire_producers(self.now());
                let _ = reply.send(checkpoints(&broker));
            }
            ShardRequest::Dirty(reply) => {
                let now = self.now().wall;
                let dirty = |p: &Partition| Some((p.dirtiness(now)?, p.id()));
                let _ = reply.send(broker.partitions().filter_map(dirty).collect());
            }
            ShardRequest::BeginCleaning(id, reply) => {
                let now = self.now().wall;
                let job = broker.partition_mut(id).and_then(|p| p.begin_cleaning(now));
                let _ = reply.send(job);
            }
            ShardRequest::SwapIn(id, new, reply) => {
                let refused = match broker.partition_mut(id) {
                    Some(partition) => partition.log_mut().swap_in(new).err(),
                    None => Some(new),
                };
                match refused {
                    None => drop(self.swaps.borrow_mut().insert(id, reply)),
                    // Where nobody takes it back, its files are removed when the log is opened.
                    Some(new) => drop(reply.send(Err(new))),
                }
            }
            ShardRequest::EndCleaning(id, job, clean_end, reply) => {
                let partition = broker.partition_mut(id);
                let wanted = partition.is_some_and(|p| p.log_mut().end_cleaning(job, clean_end));
                let _ = reply.send(wanted);
            }
            ShardRequest::Drain(reply) => {
                self.draining.set(true);
                let waiting: Vec<_> = self.replies.borrow().keys().copied().collect();
                for id in waiting {
                    broker.finish_fetch(id);
                }
                let _ = reply.send(());
            }
            ShardRequest::Stop(_) => unreachable!("the loop takes the request to stop"),
        }
    }

    fn open(&self, broker: &mut BrokerShard, open: OpenPartition) -> Result<RecoveryReport, OpenError> {
        let id = LogId(self.next_log.get());
        self.next_log.set(id.0 + 1);
        let mut files = self.io.files().borrow_mut();
        let (mut log, report) = Log::open(&open.dir, id, open.config, open.options, &mut *files)?;
        log.set_first_dirty_offset(open.first_dirty_offset);
        tracing::debug!(dir = %open.dir.display(), ?report, "log opened");
        if report.ended_below_recovery_point {
            tracing::error!(
                dir = %open.dir.display(),
                end = log.log_end_offset().0,
                recovery_point = open.options.recovery_point.0,
                "a log ends below what had been flushed: the disk has lost records"
            );
        }
        if let Some(begun) = &report.begun_anew {
            tracing::warn!(
                dir = %open.dir.display(),
                first_offset = begun.first_offset.0,
                end = begun.end.0,
                log_start = begun.log_start_offset.0,
                "a log ended below its recorded start and begins anew there: what it had was removed"
            );
        }
        // Zeros without a defect are those that a crash left ahead of the data.
        if let Some(cut) = &report.cut
            && let Some(defect) = &cut.defect
        {
            tracing::warn!(
                path = %cut.path.display(),
                position = cut.position,
                bytes = cut.lost_bytes,
                %defect,
                "cut what made no sense at the end of a log"
            );
        }
        broker.add_partition(open.partition, log, open.leader_epoch);
        Ok(report)
    }

    /// See [`BrokerShard::enforce_retention`].
    pub(super) fn enforce_retention(&self, from: LogId, count: usize) -> RetentionStep {
        self.touched.notify_one();
        self.broker
            .borrow_mut()
            .enforce_retention(from, count, self.now())
    }

    /// Looks at the partitions without changing them.
    pub(crate) fn with_broker<T>(&self, look: impl FnOnce(&BrokerShard) -> T) -> T {
        look(&self.broker.borrow())
    }

    /// Ends a turn: storage requests go to the ring, ready replies to whoever waits for them.
    fn end_turn(self: &Rc<Self>) {
        let mut broker = self.broker.borrow_mut();
        broker.end_turn(self.now());
        self.io.submit(broker.poll_io());
        while let Some((id, log)) = broker.poll_retired() {
            log.discard(&mut *self.io.files().borrow_mut());
            if let Some(removed) = self.removals.borrow_mut().remove(&id) {
                let _ = removed.send(());
            }
        }
        self.swaps
            .borrow_mut()
            .extract_if(|id, _| !broker.partition(*id).is_some_and(|p| p.log().is_swapping()))
            .for_each(|(_, swapped)| drop(swapped.send(Ok(()))));
        while let Some(reply) = broker.poll_reply() {
            let id = match &reply {
                Reply::Produce { id, .. } | Reply::Fetch { id, .. } => *id,
            };
            let target = self.replies.borrow_mut().remove(&id);
            match (reply, target) {
                (Reply::Produce { partitions, .. }, Some(ReplyTo::Produce(to))) => {
                    let _ = to.send(partitions);
                }
                (Reply::Fetch { partitions, .. }, Some(ReplyTo::Fetch(to))) => {
                    resolve::answer_fetch(self, partitions, to);
                }
                (_, target) => assert!(
                    target.is_none(),
                    "INV-SHARD-1: a reply of another kind for {id:?}"
                ),
            }
        }
    }

    fn handle_completions(&self, completions: &mut Vec<IoCompletion>) {
        let mut broker = self.broker.borrow_mut();
        for completion in completions.drain(..) {
            if let Err(error) = &completion.result {
                self.say_failure(error);
            }
            broker.handle_io(completion);
        }
    }

    /// A log that failed says so a few times at most: then it is read-only. A full disk is tried again and again.
    fn say_failure(&self, error: &IoError) {
        if !error.is_storage_full() {
            tracing::error!(%error, "storage failed; a log that cannot write or sync takes no records until the broker is restarted");
        } else if self
            .said_full
            .get()
            .is_none_or(|said| said.elapsed() > SAY_FULL_AGAIN)
        {
            self.said_full.set(Some(Instant::now()));
            tracing::error!(%error, "the disk is full; records are refused until there is room");
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let at = self.broker.borrow().next_timeout()?;
        Some(self.started + Duration::from_millis(at.0))
    }

    /// Whether every log has on disk what it has taken, or cannot have it: a full disk does not
    /// keep the broker from stopping.
    fn is_settled(&self) -> bool {
        self.broker.borrow().partitions().all(|p| {
            let log = p.log();
            let failed = log.poison().is_some() || log.is_stalled();
            log.is_idle() || failed && !log.has_requests_in_flight()
        })
    }

    /// Closes every log; each is durable then.
    fn close(&self) -> Vec<LogCheckpoint> {
        let mut broker = self.broker.borrow_mut();
        let mut closed = checkpoints(&broker);
        let mut files = self.io.files().borrow_mut();
        for checkpoint in &mut closed {
            broker.remove_partition(checkpoint.partition);
            let Some((_, mut log)) = broker.poll_retired() else {
                checkpoint.clean = false;
                continue;
            };
            match log.close(&mut *files) {
                Ok(()) => checkpoint.recovery_point = log.log_end_offset(),
                Err(error) => {
                    tracing::error!(%error, "a log was not closed cleanly; it will be recovered at the next start");
                    checkpoint.clean = false;
                }
            }
        }
        closed
    }
}

fn checkpoints(broker: &BrokerShard) -> Vec<LogCheckpoint> {
    let checkpoint = |p: &Partition| LogCheckpoint {
        partition: p.id(),
        recovery_point: p.log().flushed_offset(),
        log_start_offset: p.log().log_start_offset(),
        high_watermark: p.high_watermark(),
        first_dirty_offset: p
            .log()
            .config()
            .compaction
            .is_some()
            .then(|| p.log().first_dirty_offset()),
        clean: p.log().poison().is_none(),
    };
    broker.partitions().map(checkpoint).collect()
}

/// Runs a shard until it is told to stop.
pub(crate) async fn run(shard: Rc<Shard>, mut mailbox: MailboxReceiver<ShardRequest>) {
    let interval = shard.config().retention_check_interval;
    tokio::task::spawn_local(retention::run(shard.clone(), interval));
    let mut completions = Vec::new();
    let mut messages = Vec::with_capacity(MESSAGES_PER_TURN);
    let mut stop: Option<oneshot::Sender<Vec<LogCheckpoint>>> = None;
    loop {
        let timeout = shard.next_timeout();
        tokio::select! {
            biased;
            () = shard.io.completions(&mut completions) => shard.handle_completions(&mut completions),
            _ = mailbox.recv_many(&mut messages, MESSAGES_PER_TURN) => {
                for message in messages.drain(..) {
                    if let ShardRequest::Stop(reply) = message {
                        stop = Some(reply);
                    } else {
                        shard.handle(message);
                    }
                }
            }
            () = shard.touched.notified() => {}
            () = sleep_until(timeout) => {
                let now = shard.now();
                shard.broker.borrow_mut().handle_timeout(now);
            }
        }
        shard.end_turn();
        // Every reply is out then, but for appends that a full disk keeps waiting.
        if stop.is_some() && shard.is_settled() {
            break;
        }
    }
    if let Some(reply) = stop {
        let _ = reply.send(shard.close());
    }
    mailbox.finish().await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
