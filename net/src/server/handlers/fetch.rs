//! Fetch: ranges of the log for a consumer, waiting until there is enough.
//!
//! A request whose partitions lie on several shards asks each for what is there; as long as that is
//! too little in all, the first that has more ends the wait of all, and they are asked again. The client's limit on the whole reply is applied here, in its order of partitions.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringlog_engine::log::AbortedTxn;
use ringlog_engine::rt::FileRange;
use ringlog_engine::rt::residency::ensure_resident;
use ringlog_engine::types::{LeaderEpoch, Offset};
use ringlog_replication::request::{FetchError, FetchPartition, Isolation};
use ringlog_replication::types::{RequestId, TopicId, TopicIdPartition};
use tokio::sync::{mpsc, oneshot};

use crate::metadata::MetadataImage;
use crate::protocol::encode::Records;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::fetch::{
    AbortedTransaction, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData,
};
use crate::protocol::wire::Uuid;
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;
use crate::server::response::{RequestInfo, Response};
use crate::server::route::shard_of;
use crate::server::shard::Shard;
use crate::server::shard_request::{FetchCall, FetchRange, FetchedResult, ShardRequest};

struct Topic {
    name: String,
    id: TopicId,
    partitions: Vec<Slot>,
}

struct Slot {
    index: i32,
    state: State,
}

enum State {
    Refused(ErrorCode),
    /// The answer is the `place`th of the shard's.
    Asked {
        shard: usize,
        place: usize,
    },
}

/// A request waits no longer, whatever it asks for: the client may have gone meanwhile.
const WAIT_MS_MAX: u64 = 60_000;

/// Shorter than this nothing is waited for.
const MILLISECOND: Duration = Duration::from_millis(1);

/// A consumer's request names no replica.
const CONSUMER: i32 = -1;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let info = request.info;
    let body: FetchRequest<'_> = request.decode()?;
    // Sessions (KIP-227) are declined with id 0; a client that names one has it from elsewhere.
    if body.session_id != 0 {
        let error_code = ErrorCode::FetchSessionIdNotFound.code();
        return request.reply(&FetchResponse {
            error_code,
            ..FetchResponse::default()
        });
    }
    let replica = if info.version >= 15 {
        body.replica_state.replica_id
    } else {
        body.replica_id
    };
    let isolation = match body.isolation_level {
        0 => Some(Isolation::ReadUncommitted),
        1 => Some(Isolation::ReadCommitted),
        _ => None,
    };
    let Some(isolation) = isolation.filter(|_| replica == CONSUMER) else {
        let error_code = ErrorCode::InvalidRequest.code();
        return request.reply(&FetchResponse {
            error_code,
            ..FetchResponse::default()
        });
    };
    let config = context.shard.config();
    let max_bytes = usize::try_from(body.max_bytes)
        .unwrap_or(0)
        .min(config.fetch_bytes_max);
    let shards = context.shard.shard_count();
    let mut calls = Calls::new();
    let image = context.shard.image();
    let topics: Vec<_> = body
        .topics
        .iter()
        .map(|topic| locate(&image, topic, info.version, shards, &mut calls))
        .collect();
    let wait = Wait {
        max_wait_ms: u64::try_from(body.max_wait_ms).unwrap_or(0).min(WAIT_MS_MAX),
        // What is more than the reply may hold cannot be waited for.
        min_bytes: u32::try_from(body.min_bytes)
            .unwrap_or(0)
            .min(u32::try_from(max_bytes).unwrap_or(u32::MAX)),
        isolation,
        // Something is refused: the client is told at once.
        impatient: topics
            .iter()
            .flat_map(|t| &t.partitions)
            .any(|s| matches!(s.state, State::Refused(_))),
    };
    let shard = context.shard.clone();
    Ok(Box::pin(async move {
        let mut results = fetch(&shard, calls, wait).await?;
        fit(&shard, &topics, &mut results, max_bytes).await;
        assemble(info, &shard.image(), &topics, results).map(Some)
    }))
}

type Calls = BTreeMap<usize, Vec<FetchPartition>>;
type Results = BTreeMap<usize, Vec<FetchedResult>>;

fn locate(
    image: &MetadataImage,
    asked: &FetchTopic<'_>,
    version: i16,
    shards: usize,
    calls: &mut Calls,
) -> Topic {
    let by_id = version >= 13;
    let id = TopicId(asked.topic_id.0);
    let topic = if by_id {
        image.topic_by_id(id)
    } else {
        image.topic(asked.topic)
    };
    let slot = |data: &crate::protocol::messages::fetch::FetchPartition| {
        let state = match topic.map(|topic| topic.partition(data.partition)) {
            None if by_id => State::Refused(ErrorCode::UnknownTopicId),
            None | Some(None) => State::Refused(ErrorCode::UnknownTopicOrPartition),
            Some(Some(partition)) => {
                let shard = shard_of(partition, shards);
                let call = calls.entry(shard).or_default();
                call.push(fetch_partition(partition, data));
                State::Asked {
                    shard,
                    place: call.len() - 1,
                }
            }
        };
        Slot {
            index: data.partition,
            state,
        }
    };
    Topic {
        name: asked.topic.to_owned(),
        id: topic.map_or(id, |topic| topic.id),
        partitions: asked.partitions.iter().map(slot).collect(),
    }
}

fn fetch_partition(
    partition: TopicIdPartition,
    data: &crate::protocol::messages::fetch::FetchPartition,
) -> FetchPartition {
    FetchPartition {
        partition,
        offset: Offset(data.fetch_offset),
        max_bytes: u32::try_from(data.partition_max_bytes).unwrap_or(0),
        current_leader_epoch: LeaderEpoch(data.current_leader_epoch),
    }
}

struct Wait {
    max_wait_ms: u64,
    min_bytes: u32,
    isolation: Isolation,
    impatient: bool,
}

async fn fetch(shard: &Rc<Shard>, calls: Calls, wait: Wait) -> Result<Results, CloseReason> {
    let call = |partitions: &[FetchPartition], max_wait_ms, min_bytes| FetchCall {
        max_wait_ms,
        min_bytes,
        isolation: wait.isolation,
        partitions: partitions.to_vec(),
    };
    if let (1, false, Some((target, partitions))) = (calls.len(), wait.impatient, calls.first_key_value()) {
        let (_, answer) = ask(shard, *target, call(partitions, wait.max_wait_ms, wait.min_bytes)).await;
        let answer = answer.await.map_err(|_| CloseReason::Stopping)?;
        return Ok(Results::from([(*target, answer)]));
    }
    let deadline = Instant::now() + Duration::from_millis(wait.max_wait_ms);
    let mut results = fetch_now(shard, &calls, &call).await?;
    loop {
        let available: BTreeMap<_, _> = results
            .iter()
            .map(|(target, results)| (*target, available_bytes(results)))
            .collect();
        let enough = calls.is_empty() || available.values().sum::<u64>() >= u64::from(wait.min_bytes);
        let failed = results.values().flatten().any(Result::is_err);
        let left = deadline.saturating_duration_since(Instant::now());
        if enough || failed || wait.impatient || left < MILLISECOND || shard.is_draining() {
            return Ok(results);
        }
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        // No shard knows what the others have: each waits for anything more than it has, and all are
        // added up again then.
        let more = |target: usize, partitions: &[FetchPartition]| {
            let more = u32::try_from(available[&target] + 1).unwrap_or(u32::MAX);
            call(partitions, left_ms, more)
        };
        results = fetch_later(shard, &calls, more).await?;
    }
}

/// What every shard has, without waiting.
async fn fetch_now(
    shard: &Rc<Shard>,
    calls: &Calls,
    call: impl Fn(&[FetchPartition], u64, u32) -> FetchCall,
) -> Result<Results, CloseReason> {
    let mut asked = Vec::new();
    for (target, partitions) in calls {
        asked.push((*target, ask(shard, *target, call(partitions, 0, 0)).await.1));
    }
    let mut results = Results::new();
    for (target, answer) in asked {
        results.insert(target, answer.await.map_err(|_| CloseReason::Stopping)?);
    }
    Ok(results)
}

/// What every shard has once the first of them has what its call waits for.
async fn fetch_later(
    shard: &Rc<Shard>,
    calls: &Calls,
    call: impl Fn(usize, &[FetchPartition]) -> FetchCall,
) -> Result<Results, CloseReason> {
    let (ready, mut first_ready) = mpsc::channel::<()>(1);
    let mut waiting = Vec::new();
    for (target, partitions) in calls {
        let (id, answer) = ask(shard, *target, call(*target, partitions)).await;
        let ready = ready.clone();
        let answer = tokio::task::spawn_local(async move {
            let answer = answer.await;
            let _ = ready.try_send(());
            answer
        });
        waiting.push((*target, id, answer));
    }
    first_ready.recv().await;
    for (target, id, _) in &waiting {
        shard.ask(*target, ShardRequest::FinishFetch(*id)).await;
    }
    let mut results = Results::new();
    for (target, _, answer) in waiting {
        let answer = answer.await.map_err(|_| CloseReason::Stopping)?;
        results.insert(target, answer.map_err(|_| CloseReason::Stopping)?);
    }
    Ok(results)
}

async fn ask(
    shard: &Rc<Shard>,
    target: usize,
    call: FetchCall,
) -> (RequestId, oneshot::Receiver<Vec<FetchedResult>>) {
    let id = shard.next_request_id();
    let (reply, answer) = oneshot::channel();
    shard.ask(target, ShardRequest::Fetch(id, call, reply)).await;
    (id, answer)
}

fn available_bytes(results: &[FetchedResult]) -> u64 {
    results
        .iter()
        .flatten()
        .map(|fetched| fetched.available_bytes)
        .sum()
}

/// Cuts what was found to what the reply may hold, in the client's order, and sees to it that it is in
/// memory; `max_bytes` bounds the records, but the first batch of all is always whole. What cannot be
/// read is the failure of its partition: once the reply is on its way only the connection could fail.
async fn fit(shard: &Shard, topics: &[Topic], results: &mut Results, max_bytes: usize) {
    let mut room = Room {
        left: max_bytes,
        empty: true,
    };
    for slot in topics.iter().flat_map(|topic| &topic.partitions) {
        let State::Asked { shard: target, place } = slot.state else {
            continue;
        };
        let result = results
            .get_mut(&target)
            .and_then(|results| results.get_mut(place));
        let Some(result) = result else { continue };
        let Ok(fetched) = result else { continue };
        fetched.range = fetched.range.take().and_then(|range| room.take(range));
        let Some(range) = &mut fetched.range else { continue };
        let Err(error) = ensure_resident(&shard.io, &range.file).await else {
            continue;
        };
        tracing::warn!(%error, "records cannot be read");
        // What comes before them can still be had, batch by batch.
        range.file.len_bytes = range.first_batch_bytes;
        if ensure_resident(&shard.io, &range.file).await.is_err() {
            *result = Err(FetchError::Storage(error.to_string()));
        }
    }
}

/// Builds the reply.
fn assemble(
    info: RequestInfo,
    image: &MetadataImage,
    topics: &[Topic],
    mut results: Results,
) -> Result<Response, CloseReason> {
    let mut payloads = Vec::new();
    let responses = topics.iter().map(|topic| {
        // The topic may have been deleted while the request waited.
        let missing = match image.topic_by_id(topic.id) {
            Some(_) => error_map::fetch(&FetchError::UnknownPartition),
            None if info.version >= 13 => ErrorCode::UnknownTopicId,
            None => ErrorCode::UnknownTopicOrPartition,
        };
        FetchableTopicResponse {
            topic: &topic.name,
            topic_id: Uuid(topic.id.0),
            partitions: topic
                .partitions
                .iter()
                .map(|slot| partition_data(slot, missing, &mut results, &mut payloads))
                .collect(),
        }
    });
    let response = FetchResponse {
        responses: responses.collect(),
        ..FetchResponse::default()
    };
    info.respond(&response, payloads)
        .map_err(|error| CloseReason::Encode { info, error })
}

/// What the reply may still take.
struct Room {
    left: usize,
    empty: bool,
}

impl Room {
    /// Takes as much of a range as there is room for: whole, or cut behind its first batch.
    fn take(&mut self, mut range: FetchRange) -> Option<FetchRange> {
        let len = |bytes: u32| usize::try_from(bytes).expect("32 bits fit");
        let first_batch_bytes = len(range.first_batch_bytes);
        if first_batch_bytes > self.left && !self.empty {
            return None;
        }
        let taken = len(range.file.len_bytes).min(self.left.max(first_batch_bytes));
        range.file.len_bytes = u32::try_from(taken).expect("no more than it was");
        self.left = self.left.saturating_sub(taken);
        self.empty = false;
        Some(range)
    }
}

fn partition_data(
    slot: &Slot,
    missing: ErrorCode,
    results: &mut Results,
    payloads: &mut Vec<FileRange>,
) -> PartitionData<'static> {
    // An empty set of records, not null: older clients dereference it.
    let empty = || Records::Borrowed(&[]);
    let refused = |code: ErrorCode| PartitionData {
        partition_index: slot.index,
        error_code: code.code(),
        high_watermark: -1,
        records: empty(),
        ..PartitionData::default()
    };
    let (shard, place) = match slot.state {
        State::Refused(code) => return refused(code),
        State::Asked { shard, place } => (shard, place),
    };
    let result = results.get_mut(&shard).and_then(|results| results.get_mut(place));
    let fetched = match result {
        Some(Ok(fetched)) => fetched,
        Some(Err(FetchError::UnknownPartition)) => return refused(missing),
        Some(Err(error)) => return refused(error_map::fetch(error)),
        None => return refused(ErrorCode::UnknownServerError),
    };
    let records = fetched.range.take().map_or_else(empty, |range| {
        let tag = u32::try_from(payloads.len()).expect("fewer payloads than bytes in the request");
        let len_bytes = range.file.len_bytes;
        payloads.push(range.file);
        Records::External { len_bytes, tag }
    });
    PartitionData {
        partition_index: slot.index,
        high_watermark: fetched.high_watermark.0,
        last_stable_offset: fetched.last_stable_offset.0,
        log_start_offset: fetched.log_start_offset.0,
        aborted_transactions: fetched.aborted_transactions.take().map(aborted_transactions),
        records,
        ..PartitionData::default()
    }
}

fn aborted_transactions(aborted: Vec<AbortedTxn>) -> Vec<AbortedTransaction> {
    aborted
        .into_iter()
        .map(|txn| AbortedTransaction {
            producer_id: txn.producer_id.0,
            first_offset: txn.first_offset.0,
        })
        .collect()
}
