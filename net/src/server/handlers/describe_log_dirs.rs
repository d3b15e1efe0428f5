//! DescribeLogDirs: how many bytes each partition has on disk.

use std::collections::BTreeMap;

use ringlog_replication::types::TopicIdPartition;
use tokio::sync::oneshot;

use crate::protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::shard_request::ShardRequest;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: DescribeLogDirsRequest<'_> = request.decode()?;
    let mut sizes: BTreeMap<TopicIdPartition, u64> = BTreeMap::new();
    for shard in 0..context.shard.shard_count() {
        let (reply, answer) = oneshot::channel();
        context.shard.ask(shard, ShardRequest::Sizes(reply)).await;
        sizes.extend(answer.await.map_err(|_| CloseReason::Stopping)?);
    }
    let image = context.shard.image();
    let is_asked_for = |name: &str, partition: i32| match &body.topics {
        None => true,
        Some(topics) => topics
            .iter()
            .any(|t| t.topic == name && t.partitions.contains(&partition)),
    };
    let topics = image.topics().filter_map(|topic| {
        let partitions: Vec<_> = topic
            .partition_ids()
            .filter(|id| is_asked_for(&topic.name, id.partition))
            .filter_map(|id| Some((id, *sizes.get(&id)?)))
            .map(|(id, size)| DescribeLogDirsPartition {
                partition_index: id.partition,
                partition_size: i64::try_from(size).unwrap_or(i64::MAX),
                ..DescribeLogDirsPartition::default()
            })
            .collect();
        (!partitions.is_empty()).then_some(DescribeLogDirsTopic {
            name: &topic.name,
            partitions,
        })
    });
    let config = context.shard.config();
    let log_dir = config.data_dir.to_string_lossy();
    request.reply(&DescribeLogDirsResponse {
        results: vec![DescribeLogDirsResult {
            log_dir: &log_dir,
            topics: topics.collect(),
            ..DescribeLogDirsResult::default()
        }],
        ..DescribeLogDirsResponse::default()
    })
}
