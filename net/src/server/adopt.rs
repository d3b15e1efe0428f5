//! Topics that are on disk but not in the catalog: another broker, Apache Kafka perhaps, wrote them.
//!
//! Decides which directories are taken over, which are garbage of a deletion that a crash cut off,
//! and which contradict the catalog. Opens no log.

use ringlog_engine::types::LeaderEpoch;

use super::control::ControlError;
use super::data_dir::{DataDir, last_leader_epoch};
use crate::config::ConfigMap;
use crate::metadata::{Catalog, PartitionImage, TopicImage};

/// Topics whose directories are there but not in the catalog: another broker, Kafka's perhaps, wrote them.
pub(super) fn adopt(dir: &DataDir, catalog: &mut Catalog) -> Result<Vec<TopicImage>, ControlError> {
    let mut adopted: Vec<TopicImage> = Vec::new();
    let mut retired = Vec::new();
    // Sorted by topic, then by partition as a number.
    let mut found = dir.partitions()?;
    found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    for partition in found {
        let known = catalog.image().topic(&partition.topic);
        if known.is_some_and(|topic| topic.partition(partition.partition).is_some()) {
            continue;
        }
        let garbage = partition.topic_id.is_some_and(|id| catalog.is_deleting(id)) || known.is_some();
        if garbage {
            dir.retire_partition(&partition.topic, partition.partition)?;
            retired.extend(partition.topic_id);
            continue;
        }
        let path = dir.partition_path(&partition.topic, partition.partition);
        let leader_epoch = last_leader_epoch(&path);
        let image = PartitionImage {
            leader_epoch: LeaderEpoch(leader_epoch.0 + 1),
        };
        match adopted
            .last_mut()
            .filter(|topic| topic.name.as_ref() == partition.topic)
        {
            Some(topic) if topic.partition_count() == partition.partition => topic.partitions.push(image),
            None if partition.partition == 0 => adopted.push(TopicImage {
                name: partition.topic.as_str().into(),
                id: partition.topic_id.map_or_else(|| catalog.new_topic_id(), Ok)?,
                partitions: vec![image],
                configs: ConfigMap::new(),
            }),
            _ => {
                return Err(ControlError::Adopt {
                    path,
                    problem:
                        "the topic is not in the metadata and its partitions before this one are missing; \
                              bring them back, or move this directory away"
                            .into(),
                });
            }
        }
    }
    for id in retired {
        catalog.finish_deletion(id);
    }
    for topic in &adopted {
        tracing::info!(topic = %topic.name, partitions = topic.partitions.len(), "adopted a topic found on disk");
    }
    Ok(adopted)
}
