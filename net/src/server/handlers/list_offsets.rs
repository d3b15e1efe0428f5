//! ListOffsets: the first, the next and the last stable offset, or one found by time.

use ringlog_engine::types::{LeaderEpoch, TimestampMs};
use ringlog_replication::request::{FetchError, PartitionOffsets};
use ringlog_replication::types::TopicIdPartition;
use tokio::sync::oneshot;

use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;
use crate::server::route::shard_of;
use crate::server::shard_request::{OffsetQuery, ShardRequest};

/// Special values of the timestamp field.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
/// Nothing is tiered: there is no such offset (KIP-1005).
const LATEST_TIERED: i64 = -5;

const READ_COMMITTED: i8 = 1;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: ListOffsetsRequest<'_> = request.decode()?;
    let image = context.shard.image();
    let mut topics = Vec::new();
    for topic in &body.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            let partition = image
                .topic(topic.name)
                .and_then(|topic| topic.partition(asked.partition_index));
            partitions.push(match partition {
                Some(partition) => look_up(context, partition, asked, body.isolation_level).await?,
                None => refused(asked, ErrorCode::UnknownTopicOrPartition),
            });
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name,
            partitions,
        });
    }
    request.reply(&ListOffsetsResponse {
        topics,
        ..ListOffsetsResponse::default()
    })
}

fn refused(asked: &ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        error_code: code.code(),
        ..ListOffsetsPartitionResponse::default()
    }
}

async fn look_up(
    context: &Context,
    partition: TopicIdPartition,
    asked: &ListOffsetsPartition,
    isolation: i8,
) -> Result<ListOffsetsPartitionResponse, CloseReason> {
    let shard = shard_of(partition, context.shard.shard_count());
    let (reply, answer) = oneshot::channel();
    context
        .shard
        .ask(shard, ShardRequest::Offsets(vec![partition], reply))
        .await;
    let offsets = answer.await.map_err(|_| CloseReason::Stopping)?;
    let Some(Some(offsets)) = offsets.first() else {
        return Ok(refused(asked, error_map::fetch(&FetchError::UnknownPartition)));
    };
    if let Err(code) = check_epoch(offsets, LeaderEpoch(asked.current_leader_epoch)) {
        return Ok(refused(asked, code));
    }
    let found = |offset, timestamp| ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        timestamp,
        offset,
        leader_epoch: offsets.leader_epoch.0,
        ..ListOffsetsPartitionResponse::default()
    };
    let query = match asked.timestamp {
        LATEST if isolation == READ_COMMITTED => return Ok(found(offsets.last_stable_offset.0, -1)),
        LATEST => return Ok(found(offsets.high_watermark.0, -1)),
        EARLIEST | EARLIEST_LOCAL => return Ok(found(offsets.log_start_offset.0, -1)),
        LATEST_TIERED => return Ok(found(-1, -1)),
        MAX_TIMESTAMP => OffsetQuery::MaxTimestamp,
        timestamp if timestamp >= 0 => OffsetQuery::Timestamp(TimestampMs(timestamp)),
        _ => return Ok(refused(asked, ErrorCode::InvalidRequest)),
    };
    let (reply, answer) = oneshot::channel();
    context
        .shard
        .ask(shard, ShardRequest::FindOffset(partition, query, reply))
        .await;
    Ok(match answer.await.map_err(|_| CloseReason::Stopping)? {
        Ok(Some(record)) => found(record.offset.0, record.timestamp.0),
        Ok(None) => found(-1, -1),
        Err(error) => refused(asked, error_map::fetch(&error)),
    })
}

fn check_epoch(offsets: &PartitionOffsets, current: LeaderEpoch) -> Result<(), ErrorCode> {
    if current == LeaderEpoch::NONE || current == offsets.leader_epoch {
        Ok(())
    } else if current < offsets.leader_epoch {
        Err(ErrorCode::FencedLeaderEpoch)
    } else {
        Err(ErrorCode::UnknownLeaderEpoch)
    }
}
