//! Everything one core owns: its partitions, its purgatory, its storage requests and its replies.
//!
//! The single entry for the server and for a simulator: `handle_*` takes an input, `poll_*` gives
//! an output to be drained after each turn. Knows no sockets, threads or clocks.
//!
//! A turn: any number of inputs, then [`BrokerShard::end_turn`], then `poll_io` and `poll_reply`
//! until they are empty. Appends of one turn to one log leave it as one coalesced write.
//! Invariant INV-SHARD-1: every request is answered exactly once; with acks=0 at once, so that the
//! server may keep the reply and act on a refusal.
//! Invariant INV-SHARD-3: a log is given back only when none of its storage requests is under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::BytesMut;
use ringlog_engine::io::{IoCompletion, IoQueue, IoRequest};
use ringlog_engine::log::{Log, LogStartOffsetError};
use ringlog_engine::types::{LeaderEpoch, LogId, Offset};

use crate::partition::Partition;
use crate::purgatory::{ProduceSlot, Purgatory};
use crate::request::{
    Acks, FetchError, FetchPartition, FetchRequest, FetchResult, Fetched, Isolation, ProduceError,
    ProduceRequest, Produced, Reply,
};
use crate::types::{MonotonicMs, Now, RequestId, TopicIdPartition};

/// The partitions of one core and all that waits for them.
#[derive(Debug, Default)]
pub struct BrokerShard {
    partitions: BTreeMap<LogId, Partition>,
    by_id: BTreeMap<TopicIdPartition, LogId>,
    /// Logs of removed partitions whose last requests are under way.
    retiring: BTreeMap<LogId, (TopicIdPartition, Log)>,
    /// Logs of removed partitions that nothing is under way for.
    retired: VecDeque<(TopicIdPartition, Log)>,
    purgatory: Purgatory,
    /// Logs that may have something to submit.
    dirty: BTreeSet<LogId>,
    /// When each log wants a turn though nothing has happened to it.
    log_timeouts: BTreeMap<LogId, MonotonicMs>,
    io: IoQueue,
    replies: VecDeque<Reply>,
}

impl BrokerShard {
    /// A shard without partitions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leads the partition `id` with `log`, whose [`LogId`] no other log of this shard has or had.
    ///
    /// # Panics
    ///
    /// When the partition or the log's id is here already (INV-SHARD-2).
    pub fn add_partition(&mut self, id: TopicIdPartition, log: Log, leader_epoch: LeaderEpoch) {
        let log_id = log.id();
        let earlier = self.by_id.insert(id, log_id);
        assert!(earlier.is_none(), "INV-SHARD-2: {id:?} was added twice");
        let earlier = self
            .partitions
            .insert(log_id, Partition::new(id, log, leader_epoch));
        assert!(earlier.is_none(), "INV-SHARD-2: {log_id} was added twice");
        self.dirty.insert(log_id);
    }

    /// Stops leading `id`; what waits for it is answered. Its log comes by
    /// [`Self::poll_retired`] once its requests are over: until then a file of it could still be
    /// created or replaced. Whether the partition was here.
    pub fn remove_partition(&mut self, id: TopicIdPartition) -> bool {
        let Some(log_id) = self.by_id.remove(&id) else {
            return false;
        };
        let partition = self
            .partitions
            .remove(&log_id)
            .expect("INV-SHARD-2: an indexed log is here");
        self.dirty.remove(&log_id);
        self.log_timeouts.remove(&log_id);
        self.purgatory
            .fail_log(log_id, || ProduceError::UnknownPartition, &mut self.replies);
        for (request, _) in self.purgatory.readers_of(log_id) {
            self.finish_fetch(request);
        }
        let log = partition.into_log();
        if log.has_requests_in_flight() {
            self.retiring.insert(log_id, (id, log));
        } else {
            self.retired.push_back((id, log));
        }
        true
    }

    /// The log of a removed partition, to be closed or discarded; each comes once.
    pub fn poll_retired(&mut self) -> Option<(TopicIdPartition, Log)> {
        self.retired.pop_front()
    }

    /// Forgets idempotent producers that have been idle for as long as their log's settings say.
    pub fn expire_producers(&mut self, now: Now) {
        for partition in self.partitions.values_mut() {
            partition.log_mut().expire_producers(now.wall);
        }
    }

    /// The partition `id`, if this shard leads it.
    #[must_use]
    pub fn partition(&self, id: TopicIdPartition) -> Option<&Partition> {
        self.partitions.get(self.by_id.get(&id)?)
    }

    /// All partitions of this shard, in the order of their logs' ids.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.values()
    }

    /// All partitions, to change their logs' configuration.
    pub fn partition_mut(&mut self, id: TopicIdPartition) -> Option<&mut Partition> {
        let log_id = *self.by_id.get(&id)?;
        self.dirty.insert(log_id);
        self.partitions.get_mut(&log_id)
    }

    /// Appends a produce request's batches; the reply comes by [`Self::poll_reply`].
    pub fn handle_produce(&mut self, request: ProduceRequest, now: Now) {
        let ProduceRequest {
            id,
            acks,
            timeout_ms,
            partitions,
        } = request;
        let slots: Vec<_> = partitions
            .into_iter()
            .map(|(partition, batch)| self.append(partition, batch, acks, now))
            .collect();
        if slots
            .iter()
            .any(|slot| matches!(slot, ProduceSlot::Waiting { .. }))
        {
            self.purgatory
                .delay_produce(id, acks, now.monotonic.plus(timeout_ms), slots);
        } else {
            let partitions = slots
                .into_iter()
                .filter_map(|slot| match slot {
                    ProduceSlot::Done(result) => Some(result),
                    ProduceSlot::Waiting { .. } => None,
                })
                .collect();
            self.replies.push_back(Reply::Produce { id, partitions });
        }
    }

    fn append(&mut self, id: TopicIdPartition, batch: BytesMut, acks: Acks, now: Now) -> ProduceSlot {
        let Some(log_id) = self.by_id.get(&id).copied() else {
            return ProduceSlot::Done(Err(ProduceError::UnknownPartition));
        };
        let partition = self
            .partitions
            .get_mut(&log_id)
            .expect("INV-SHARD-2: an indexed log is here");
        let info = match partition.append(batch, now.wall) {
            Ok(info) => info,
            Err(error) => return ProduceSlot::Done(Err(error.into())),
        };
        self.dirty.insert(log_id);
        let produced = Produced {
            base_offset: info.base_offset,
            log_append_time: info.log_append_time,
            log_start_offset: info.log_start_offset,
        };
        // A duplicate may be acknowledged long since.
        let acknowledged = match acks {
            Acks::All => info.last_offset < partition.high_watermark(),
            Acks::Leader => info.last_offset < partition.log().written_offset(),
            Acks::None => true,
        };
        if acknowledged {
            ProduceSlot::Done(Ok(produced))
        } else {
            ProduceSlot::Waiting {
                log: log_id,
                last_offset: info.last_offset,
                produced,
            }
        }
    }

    /// Reads for a consumer; the reply comes by [`Self::poll_reply`], at once if there is enough.
    pub fn handle_fetch(&mut self, request: FetchRequest, now: Now) {
        let mut available = Vec::with_capacity(request.partitions.len());
        let mut logs = Vec::with_capacity(request.partitions.len());
        let mut failed = false;
        for fetch in &request.partitions {
            logs.push(self.by_id.get(&fetch.partition).copied());
            match self.available(fetch, request.isolation) {
                Ok(bytes) => available.push(bytes),
                Err(_) => {
                    failed = true;
                    available.push(0);
                }
            }
        }
        // An error is told at once: the client can act on it, and on nothing else.
        let enough = available.iter().sum::<u64>() >= u64::from(request.min_bytes);
        if failed || enough || request.max_wait_ms == 0 || request.partitions.is_empty() {
            self.reply_fetch(&request);
        } else {
            let deadline = now.monotonic.plus(request.max_wait_ms);
            self.purgatory.delay_fetch(request, deadline, logs, available);
        }
    }

    fn available(&self, fetch: &FetchPartition, isolation: Isolation) -> Result<u64, FetchError> {
        let partition = self
            .partition(fetch.partition)
            .ok_or(FetchError::UnknownPartition)?;
        Ok(partition
            .read_plan(fetch, isolation)?
            .map_or(0, |plan| plan.available_bytes()))
    }

    /// Answers a waiting fetch with what there is now; does nothing if it was answered already.
    pub fn finish_fetch(&mut self, id: RequestId) {
        if let Some(request) = self.purgatory.take_fetch(id) {
            self.reply_fetch(&request);
        }
    }

    fn reply_fetch(&mut self, request: &FetchRequest) {
        let partitions = request
            .partitions
            .iter()
            .map(|fetch| self.fetch_partition(fetch, request.isolation))
            .collect();
        self.replies.push_back(Reply::Fetch {
            id: request.id,
            partitions,
        });
    }

    fn fetch_partition(&self, fetch: &FetchPartition, isolation: Isolation) -> FetchResult {
        let partition = self
            .partition(fetch.partition)
            .ok_or(FetchError::UnknownPartition)?;
        Ok(Fetched {
            plan: partition.read_plan(fetch, isolation)?,
            high_watermark: partition.high_watermark(),
            last_stable_offset: partition.last_stable_offset(),
            log_start_offset: partition.log().log_start_offset(),
            aborted_transactions: partition.aborted_transactions(fetch, isolation),
            request: *fetch,
            isolation,
        })
    }

    /// Moves the first offset of `id` up to `offset`, or to the high watermark where `None`;
    /// returns the new first offset.
    ///
    /// # Errors
    ///
    /// An unknown partition, or an offset above the high watermark.
    pub fn delete_records(
        &mut self,
        id: TopicIdPartition,
        offset: Option<Offset>,
    ) -> Result<Offset, DeleteRecordsError> {
        let log_id = *self.by_id.get(&id).ok_or(DeleteRecordsError::UnknownPartition)?;
        let partition = self
            .partitions
            .get_mut(&log_id)
            .expect("INV-SHARD-2: an indexed log is here");
        let high_watermark = partition.high_watermark();
        let offset = offset.unwrap_or(high_watermark);
        if offset > high_watermark || offset < Offset(0) {
            return Err(DeleteRecordsError::OffsetOutOfRange {
                offset,
                high_watermark,
            });
        }
        partition
            .log_mut()
            .increment_log_start_offset(offset, &mut self.io)?;
        let log_start_offset = partition.log().log_start_offset();
        self.dirty.insert(log_id);
        Ok(log_start_offset)
    }

    /// Removes what retention lets go of from the first `count` partitions whose logs' ids are
    /// `from` or above: a step of a walk that would else keep the shard for too long.
    pub fn enforce_retention(&mut self, from: LogId, count: usize, now: Now) -> RetentionStep {
        let mut partitions = self.partitions.range_mut(from..);
        let mut moved = Vec::new();
        for (&log_id, partition) in partitions.by_ref().take(count) {
            let high_watermark = partition.high_watermark();
            let log = partition.log_mut();
            if let Some(start) = log.enforce_retention(high_watermark, now.wall, &mut self.io) {
                moved.push((partition.id(), start));
                self.dirty.insert(log_id);
            }
        }
        let next = partitions.next().map(|(&log_id, _)| log_id);
        RetentionStep { moved, next }
    }

    /// Takes the completion of a storage request.
    pub fn handle_io(&mut self, completion: IoCompletion) {
        let log_id = completion.log;
        let Some(partition) = self.partitions.get_mut(&log_id) else {
            self.handle_retiring_io(completion);
            return;
        };
        let moved = partition.handle_io(completion);
        self.dirty.insert(log_id);
        let written = partition.log().written_offset();
        let high_watermark = partition.high_watermark();
        let failed = partition.log().poison().is_some();
        self.purgatory
            .handle_watermark(log_id, Acks::Leader, written, &mut self.replies);
        self.purgatory
            .handle_watermark(log_id, Acks::All, high_watermark, &mut self.replies);
        if failed {
            self.purgatory
                .fail_log(log_id, || ProduceError::LogFailed, &mut self.replies);
        }
        if moved {
            self.wake_readers(log_id);
        }
    }

    fn handle_retiring_io(&mut self, completion: IoCompletion) {
        let log_id = completion.log;
        let (_, log) = self
            .retiring
            .get_mut(&log_id)
            .expect("INV-SHARD-3: a log stays until its requests are over");
        log.handle_io(completion);
        if !log.has_requests_in_flight() {
            self.retired.extend(self.retiring.remove(&log_id));
        }
    }

    fn wake_readers(&mut self, log: LogId) {
        for (id, slot) in self.purgatory.readers_of(log) {
            let Some(request) = self.purgatory.fetch_request(id) else {
                continue;
            };
            // An error found now is a reason to answer, too.
            let enough = match self.available(&request.partitions[slot], request.isolation) {
                Ok(bytes) => self.purgatory.handle_available(id, slot, bytes),
                Err(_) => true,
            };
            if enough {
                self.finish_fetch(id);
            }
        }
    }

    /// The time [`Self::next_timeout`] gave has come.
    pub fn handle_timeout(&mut self, now: Now) {
        for id in self.purgatory.handle_timeout(now.monotonic, &mut self.replies) {
            self.finish_fetch(id);
        }
        let due = self.log_timeouts.iter().filter(|(_, at)| **at <= now.monotonic);
        self.dirty.extend(due.map(|(log, _)| *log));
    }

    /// Ends a turn: logs that were touched coalesce what they have into storage requests.
    pub fn end_turn(&mut self, now: Now) {
        for log_id in std::mem::take(&mut self.dirty) {
            let Some(partition) = self.partitions.get_mut(&log_id) else {
                continue;
            };
            let log = partition.log_mut();
            log.poll_io(&mut self.io, now.wall);
            match log.next_timeout() {
                Some(at) => {
                    let wait_ms = u64::try_from(at.0.saturating_sub(now.wall.0)).unwrap_or(0);
                    self.log_timeouts.insert(log_id, now.monotonic.plus(wait_ms));
                }
                None => {
                    self.log_timeouts.remove(&log_id);
                }
            }
        }
    }

    /// Takes the storage requests of this turn.
    pub fn poll_io(&mut self) -> impl Iterator<Item = IoRequest> + '_ {
        self.io.drain()
    }

    /// The next reply that is ready.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// When [`Self::handle_timeout`] is due next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<MonotonicMs> {
        let logs = self.log_timeouts.values().min().copied();
        [logs, self.purgatory.next_deadline()].into_iter().flatten().min()
    }
}

/// What a step of [`BrokerShard::enforce_retention`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionStep {
    /// Partitions whose first offset moved, and where to.
    pub moved: Vec<(TopicIdPartition, Offset)>,
    /// Where the next step begins; `None` after the last.
    pub next: Option<LogId>,
}

/// Why records were not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsError {
    /// This shard does not hold the partition.
    #[error("the partition is not on this broker")]
    UnknownPartition,
    /// Only committed records can be deleted.
    #[error("offset {offset} is not below the high watermark {high_watermark}")]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// The high watermark.
        high_watermark: Offset,
    },
    /// The log refused.
    #[error(transparent)]
    Log(#[from] LogStartOffsetError),
}
