//! OffsetForLeaderEpoch: where a leader epoch ends, for clients that check for truncation (KIP-320).

use ringlog_engine::types::LeaderEpoch;
use tokio::sync::oneshot;

use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;
use crate::server::route::shard_of;
use crate::server::shard_request::ShardRequest;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: OffsetForLeaderEpochRequest<'_> = request.decode()?;
    let image = context.shard.image();
    let mut topics = Vec::new();
    for topic in &body.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            let partition = image
                .topic(topic.topic)
                .and_then(|topic| topic.partition(asked.partition));
            let refused = |code: ErrorCode| EpochEndOffset {
                error_code: code.code(),
                partition: asked.partition,
                ..EpochEndOffset::default()
            };
            let Some(partition) = partition else {
                partitions.push(refused(ErrorCode::UnknownTopicOrPartition));
                continue;
            };
            let (reply, answer) = oneshot::channel();
            let current = LeaderEpoch(asked.current_leader_epoch);
            let end = ShardRequest::EpochEnd(partition, current, LeaderEpoch(asked.leader_epoch), reply);
            context
                .shard
                .ask(shard_of(partition, context.shard.shard_count()), end)
                .await;
            partitions.push(match answer.await.map_err(|_| CloseReason::Stopping)? {
                Ok(Some((epoch, end))) => EpochEndOffset {
                    partition: asked.partition,
                    leader_epoch: epoch.0,
                    end_offset: end.0,
                    ..EpochEndOffset::default()
                },
                Ok(None) => refused(ErrorCode::None),
                Err(error) => refused(error_map::fetch(&error)),
            });
        }
        topics.push(OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions,
        });
    }
    request.reply(&OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    })
}
