//! Asks leaders for offsets: the earliest, the latest, or the first at or after a timestamp.

use std::collections::BTreeMap;

use super::cluster::{Cluster, Retry, TopicMetadata};
use super::error::ClientError;
use crate::protocol::api_key::ApiKey;
use crate::protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};

/// Asks for the offset after the last record.
pub const LATEST: i64 = -1;
/// Asks for the first readable offset.
pub const EARLIEST: i64 = -2;

/// The offset of each partition of `topic`, by partition index, at [`LATEST`], [`EARLIEST`] or a timestamp
/// in milliseconds; -1 where no record is that late. Waits for leaders that are being elected.
///
/// # Errors
///
/// A leader refuses for good, or asking again has not helped.
pub async fn offsets(
    cluster: &mut Cluster,
    topic: &TopicMetadata,
    timestamp: i64,
) -> Result<BTreeMap<i32, i64>, ClientError> {
    let mut retry = Retry::new();
    let mut leaders = topic.clone();
    loop {
        let error = match ask_leaders(cluster, &leaders, timestamp).await {
            Ok(found) => return Ok(found),
            Err(error) if error.is_retriable() => error,
            Err(error) => return Err(error),
        };
        retry.pause_or(error).await?;
        let now = cluster.topic(&topic.name, false).await?;
        for partition in &mut leaders.partitions {
            if let Some(found) = now.partitions.iter().find(|other| other.index == partition.index) {
                partition.leader = found.leader;
            }
        }
    }
}

async fn ask_leaders(
    cluster: &mut Cluster,
    topic: &TopicMetadata,
    timestamp: i64,
) -> Result<BTreeMap<i32, i64>, ClientError> {
    let mut by_leader: BTreeMap<i32, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for partition in &topic.partitions {
        by_leader
            .entry(partition.leader)
            .or_default()
            .push(ListOffsetsPartition {
                partition_index: partition.index,
                current_leader_epoch: -1,
                timestamp,
            });
    }
    let mut found = BTreeMap::new();
    for (leader, partitions) in by_leader {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: &topic.name,
                partitions,
            }],
            ..ListOffsetsRequest::default()
        };
        let answer = cluster.ask(leader, &request, i16::MAX).await?;
        let response: ListOffsetsResponse<'_> = answer.decode()?;
        for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
            let index = partition.partition_index;
            ClientError::check(partition.error_code, None, || format!("{}-{index}", topic.name))?;
            found.insert(index, partition.offset);
        }
    }
    match topic
        .partitions
        .iter()
        .find(|partition| !found.contains_key(&partition.index))
    {
        None => Ok(found),
        Some(partition) => Err(ClientError::Missing {
            api: ApiKey::ListOffsets,
            what: format!("{}-{}", topic.name, partition.index),
        }),
    }
}
