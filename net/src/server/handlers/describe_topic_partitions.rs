//! DescribeTopicPartitions: topics page by page (KIP-966).

use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use crate::protocol::wire::Uuid;
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;

/// The most partitions one reply describes, whatever is asked for; Kafka's own default.
const PARTITIONS_MAX: usize = 2000;

pub(crate) fn handle(context: &Context, request: &Request) -> Result<PendingReply, CloseReason> {
    let body: DescribeTopicPartitionsRequest<'_> = request.decode()?;
    let image = context.shard.image();
    let mut names: Vec<&str> = body.topics.iter().map(|topic| topic.name).collect();
    names.sort_unstable();
    names.dedup();
    let (from_topic, from_partition) = body.cursor.as_ref().map_or(("", 0), |cursor| {
        (cursor.topic_name, cursor.partition_index.max(0))
    });
    if names.is_empty() {
        names = image
            .topics_from(from_topic)
            .map(|topic| topic.name.as_ref())
            .collect();
    }
    let mut room = usize::try_from(body.response_partition_limit)
        .unwrap_or(0)
        .clamp(1, PARTITIONS_MAX);
    let mut topics = Vec::new();
    let mut next_cursor = None;
    for name in names.into_iter().filter(|name| *name >= from_topic) {
        let Some(topic) = image.topic(name) else {
            topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: error_map::unknown_topic(name).code(),
                name: Some(name),
                ..DescribeTopicPartitionsResponseTopic::default()
            });
            continue;
        };
        if room == 0 {
            next_cursor = Some(Cursor {
                topic_name: name,
                partition_index: 0,
            });
            break;
        }
        let first = if name == from_topic { from_partition } else { 0 };
        let described = describe(&image, topic, first, room);
        room -= described.partitions.len();
        let next = first.saturating_add(i32::try_from(described.partitions.len()).unwrap_or(i32::MAX));
        topics.push(described);
        if next < topic.partition_count() {
            next_cursor = Some(Cursor {
                topic_name: name,
                partition_index: next,
            });
            break;
        }
    }
    request.reply(&DescribeTopicPartitionsResponse {
        topics,
        next_cursor,
        ..DescribeTopicPartitionsResponse::default()
    })
}

fn describe<'a>(
    image: &MetadataImage,
    topic: &'a TopicImage,
    first: i32,
    room: usize,
) -> DescribeTopicPartitionsResponseTopic<'a> {
    let skip = usize::try_from(first).unwrap_or(0);
    let partitions = (first..).zip(topic.partitions.iter().skip(skip)).take(room);
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(&topic.name),
        topic_id: Uuid(topic.id.0),
        partitions: partitions
            .map(|(index, partition)| DescribeTopicPartitionsResponsePartition {
                partition_index: index,
                leader_id: image.node_id,
                leader_epoch: partition.leader_epoch.0,
                replica_nodes: vec![image.node_id],
                isr_nodes: vec![image.node_id],
                // Kafka's admin client takes neither list for null, whatever the schema allows.
                eligible_leader_replicas: Some(Vec::new()),
                last_known_elr: Some(Vec::new()),
                ..DescribeTopicPartitionsResponsePartition::default()
            })
            .collect(),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
