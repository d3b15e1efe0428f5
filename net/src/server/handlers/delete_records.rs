//! DeleteRecords: moves the first offset of partitions up, durably.

use ringlog_engine::types::Offset;
use tokio::sync::oneshot;

use super::ask_control;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use crate::server::connection::Context;
use crate::server::control_request::ControlRequest;
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;
use crate::server::route::shard_of;
use crate::server::shard_request::ShardRequest;

/// Stands for the high watermark.
const ALL: i64 = -1;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: DeleteRecordsRequest<'_> = request.decode()?;
    let image = context.shard.image();
    let mut topics = Vec::new();
    for topic in &body.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            let partition = image
                .topic(topic.name)
                .and_then(|topic| topic.partition(asked.partition_index));
            let result = match partition {
                None => Err(ErrorCode::UnknownTopicOrPartition),
                Some(partition) => {
                    let shard = shard_of(partition, context.shard.shard_count());
                    let offset = (asked.offset != ALL).then_some(Offset(asked.offset));
                    let (reply, answer) = oneshot::channel();
                    let delete = ShardRequest::DeleteRecords(vec![(partition, offset)], reply);
                    context.shard.ask(shard, delete).await;
                    let results = answer.await.map_err(|_| CloseReason::Stopping)?;
                    let result = results.into_iter().next().ok_or(CloseReason::Stopping)?;
                    result.map_err(|error| error_map::delete_records(&error))
                }
            };
            let (low_watermark, code) = result.map_or_else(|code| (-1, code), |o| (o.0, ErrorCode::None));
            partitions.push(DeleteRecordsPartitionResult {
                partition_index: asked.partition_index,
                low_watermark,
                error_code: code.code(),
            });
        }
        topics.push(DeleteRecordsTopicResult {
            name: topic.name,
            partitions,
        });
    }
    // Deleted stays deleted, also after a crash.
    if !ask_control(context, ControlRequest::Checkpoint).await? {
        let deleted = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        for partition in deleted.filter(|partition| partition.error_code == ErrorCode::None.code()) {
            partition.low_watermark = -1;
            partition.error_code = ErrorCode::KafkaStorageError.code();
        }
    }
    request.reply(&DeleteRecordsResponse {
        topics,
        ..DeleteRecordsResponse::default()
    })
}
