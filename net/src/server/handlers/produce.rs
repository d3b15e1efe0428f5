//! Produce: batches from the frame to their partitions' shards.
//!
//! The batches stay in the frame's buffer: each partition gets its slice of it, to be checked,
//! given offsets in place, and written from.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::BytesMut;
use ringlog_engine::record::{BatchHeader, Compression};
use ringlog_replication::request::{Acks, ProduceError, ProduceResult};
use ringlog_replication::types::{TopicId, TopicIdPartition};
use tokio::sync::oneshot;

use crate::metadata::MetadataImage;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::range_in_frame;
use crate::protocol::messages::produce::{
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request, respond};
use crate::server::error_map;
use crate::server::response::Response;
use crate::server::route::shard_of;
use crate::server::shard_request::ShardRequest;

/// The first version whose clients know zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;

/// How long a batch may take that the client hears nothing of: as long as any client may ask for.
const UNTOLD_TIMEOUT_MS: u64 = 2_147_483_647;

const NO_SUCH_PARTITION: &str = "this broker has no such topic or partition";

/// One topic of the request.
struct Topic {
    name: String,
    /// `None` if there was no such topic when the request came.
    id: Option<TopicId>,
    partitions: Vec<Slot>,
}

/// One partition of the request and what has become of it.
struct Slot {
    index: i32,
    state: State,
}

enum State {
    Refused(ErrorCode, &'static str),
    /// The records lie here in the frame.
    Batch(TopicIdPartition, Range<usize>),
    /// The answer is the `place`th of the shard's.
    Sent {
        shard: usize,
        place: usize,
    },
}

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let info = request.info;
    let body: ProduceRequest<'_> = request.decode()?;
    let acks = match body.acks {
        0 => Ok(Acks::None),
        1 => Ok(Acks::Leader),
        -1 => Ok(Acks::All),
        _ => Err((ErrorCode::InvalidRequiredAcks, "acks must be 0, 1 or -1")),
    };
    let refused = match acks {
        Err(refusal) => Some(refusal),
        Ok(_) if body.transactional_id.is_some() => Some((
            ErrorCode::CoordinatorNotAvailable,
            "this broker has no transaction coordinator yet",
        )),
        Ok(_) => None,
    };
    let acks = acks.unwrap_or(Acks::All);
    let timeout_ms = u64::try_from(body.timeout_ms).unwrap_or(0);
    // With acks=0 nobody is told, but a batch counts as memory of its request until it is written.
    let (awaited, timeout_ms) = match acks {
        Acks::None => (Acks::Leader, UNTOLD_TIMEOUT_MS),
        Acks::Leader | Acks::All => (acks, timeout_ms),
    };
    let mut topics = locate(context, &request, &body, refused);
    let shards = context.shard.shard_count();
    let batches = split(request.frame, &mut topics, shards);

    let mut answers: BTreeMap<usize, oneshot::Receiver<Vec<ProduceResult>>> = BTreeMap::new();
    for (shard, partitions) in batches {
        let (reply, answer) = oneshot::channel();
        context
            .shard
            .ask(
                shard,
                ShardRequest::Produce {
                    acks: awaited,
                    timeout_ms,
                    partitions,
                    reply,
                },
            )
            .await;
        answers.insert(shard, answer);
    }
    let shard = context.shard.clone();
    Ok(Box::pin(async move {
        let results = collect(answers).await?;
        mark_deleted(&shard.image(), &mut topics, &results);
        if acks == Acks::None {
            return unacknowledged(&topics, &results);
        }
        let messages: Vec<Vec<Option<String>>> = topics
            .iter()
            .map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(|slot| message(slot, &results))
                    .collect()
            })
            .collect();
        let responses = topics
            .iter()
            .zip(&messages)
            .map(|(topic, messages)| TopicProduceResponse {
                name: &topic.name,
                partition_responses: topic
                    .partitions
                    .iter()
                    .zip(messages)
                    .map(|(slot, message)| answer(slot, message.as_deref(), &results))
                    .collect(),
            });
        let response = ProduceResponse {
            responses: responses.collect(),
            ..ProduceResponse::default()
        };
        respond(info, &response).map(Some)
    }))
}

type Results = BTreeMap<usize, Vec<ProduceResult>>;

async fn collect(
    answers: BTreeMap<usize, oneshot::Receiver<Vec<ProduceResult>>>,
) -> Result<Results, CloseReason> {
    let mut results = Results::new();
    for (shard, answer) in answers {
        results.insert(shard, answer.await.map_err(|_| CloseReason::Stopping)?);
    }
    Ok(results)
}

/// Finds each partition and its records' place in the frame.
fn locate(
    context: &Context,
    request: &Request,
    body: &ProduceRequest<'_>,
    refused: Option<(ErrorCode, &'static str)>,
) -> Vec<Topic> {
    let image = context.shard.image();
    let topic = |data: &crate::protocol::messages::produce::TopicProduceData<'_>| {
        let topic = image.topic(data.name);
        let slot = |data: &crate::protocol::messages::produce::PartitionProduceData<'_>| {
            let partition = topic.and_then(|topic| topic.partition(data.index));
            let records = data.records.borrowed().filter(|bytes| !bytes.is_empty());
            let range = records.and_then(|bytes| range_in_frame(&request.frame, bytes));
            let state = match (refused, partition, range) {
                (Some((code, message)), _, _) => State::Refused(code, message),
                (None, None, _) => State::Refused(ErrorCode::UnknownTopicOrPartition, NO_SUCH_PARTITION),
                (None, Some(_), None) => State::Refused(ErrorCode::InvalidRecord, "there are no records"),
                (None, Some(_), Some(_))
                    if request.info.version < ZSTD_VERSION && records.is_some_and(is_zstd) =>
                {
                    State::Refused(
                        ErrorCode::UnsupportedCompressionType,
                        "zstd needs a newer version of the request",
                    )
                }
                // With an id it was refused above. Nobody could end what this would begin.
                (None, Some(_), Some(_)) if records.is_some_and(is_transactional) => State::Refused(
                    ErrorCode::TransactionalIdAuthorizationFailed,
                    "a transactional batch needs the transactional id of its producer",
                ),
                (None, Some(partition), Some(range)) => State::Batch(partition, range),
            };
            Slot {
                index: data.index,
                state,
            }
        };
        Topic {
            name: data.name.to_owned(),
            id: topic.map(|topic| topic.id),
            partitions: data.partition_data.iter().map(slot).collect(),
        }
    };
    body.topic_data.iter().map(topic).collect()
}

/// Whether the batch says that it is compressed by zstd; whether it is a batch at all is checked later.
fn is_zstd(bytes: &[u8]) -> bool {
    let compression = BatchHeader::peek(bytes).and_then(|header| header.attributes().compression());
    compression.is_ok_and(|compression| compression == Compression::Zstd)
}

/// Whether the batch says that it belongs to a transaction.
fn is_transactional(bytes: &[u8]) -> bool {
    BatchHeader::peek(bytes).is_ok_and(|header| header.attributes().is_transactional())
}

type Batches = BTreeMap<usize, Vec<(TopicIdPartition, BytesMut)>>;

/// Cuts the batches out of the frame, in its order, and marks the slots as sent.
fn split(mut frame: BytesMut, topics: &mut [Topic], shards: usize) -> Batches {
    let mut batches = Batches::new();
    let mut done = 0;
    for slot in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let State::Batch(partition, range) = &slot.state else {
            continue;
        };
        let _before = frame.split_to(range.start - done);
        let batch = frame.split_to(range.len());
        done = range.end;
        let shard = shard_of(*partition, shards);
        let to_shard = batches.entry(shard).or_default();
        to_shard.push((*partition, batch));
        slot.state = State::Sent {
            shard,
            place: to_shard.len() - 1,
        };
    }
    batches
}

/// Says what happened to partitions that were deleted while their batches were under way.
fn mark_deleted(image: &MetadataImage, topics: &mut [Topic], results: &Results) {
    for topic in topics {
        if topic.id.is_none_or(|id| image.topic_by_id(id).is_some()) {
            continue;
        }
        for slot in &mut topic.partitions {
            if let Some(Err(ProduceError::UnknownPartition)) = result(slot, results) {
                slot.state = State::Refused(ErrorCode::UnknownTopicOrPartition, NO_SUCH_PARTITION);
            }
        }
    }
}

fn result<'a>(slot: &Slot, results: &'a Results) -> Option<&'a ProduceResult> {
    match slot.state {
        State::Sent { shard, place } => results.get(&shard)?.get(place),
        State::Refused(..) | State::Batch(..) => None,
    }
}

fn code(slot: &Slot, results: &Results) -> ErrorCode {
    match (&slot.state, result(slot, results)) {
        (State::Refused(code, _), _) => *code,
        (_, Some(result)) => result
            .as_ref()
            .map_or_else(error_map::produce, |_| ErrorCode::None),
        (_, None) => ErrorCode::UnknownServerError,
    }
}

fn message(slot: &Slot, results: &Results) -> Option<String> {
    match &slot.state {
        State::Refused(_, message) => Some((*message).to_owned()),
        _ => result(slot, results)?.as_ref().err().map(ProduceError::to_string),
    }
}

fn answer<'a>(slot: &Slot, message: Option<&'a str>, results: &Results) -> PartitionProduceResponse<'a> {
    let response = PartitionProduceResponse {
        index: slot.index,
        error_code: code(slot, results).code(),
        base_offset: -1,
        error_message: message,
        ..PartitionProduceResponse::default()
    };
    match result(slot, results) {
        Some(Ok(produced)) => PartitionProduceResponse {
            base_offset: produced.base_offset.0,
            log_append_time_ms: produced.log_append_time.0,
            log_start_offset: produced.log_start_offset.0,
            ..response
        },
        _ => response,
    }
}

/// With acks=0 the client hears of an error only by losing its connection.
fn unacknowledged(topics: &[Topic], results: &Results) -> Result<Option<Response>, CloseReason> {
    for topic in topics {
        for slot in &topic.partitions {
            if code(slot, results) != ErrorCode::None {
                let message = message(slot, results).unwrap_or_default();
                let partition = format!("{}-{}: {message}", topic.name, slot.index);
                return Err(CloseReason::Unacknowledged(partition));
            }
        }
    }
    Ok(None)
}
