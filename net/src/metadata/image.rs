//! One consistent view of the cluster, replaced as a whole when anything changes.
//!
//! Knows no files and no protocol. Shards hold an `Arc` of it and never wait for each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringlog_engine::types::LeaderEpoch;
use ringlog_replication::types::{TopicId, TopicIdPartition};

/// The topics and settings of the broker at one moment.
#[derive(Clone, Debug, Default)]
pub struct MetadataImage {
    /// 22 characters of base64url, chosen when the data directory was first used.
    pub cluster_id: String,
    /// This broker's id.
    pub node_id: i32,
    /// Dynamic settings of the broker, by Kafka's key names.
    pub broker_configs: BTreeMap<String, String>,
    topics: BTreeMap<Arc<str>, Arc<TopicImage>>,
    by_id: BTreeMap<TopicId, Arc<TopicImage>>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Its name, valid by Kafka's rules.
    pub name: Arc<str>,
    /// Its identity.
    pub id: TopicId,
    /// Its partitions; the index is the partition number. Never empty.
    pub partitions: Vec<PartitionImage>,
    /// What was set for it, by Kafka's key names.
    pub configs: BTreeMap<String, String>,
}

/// One partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Raised at every start of its leader.
    pub leader_epoch: LeaderEpoch,
}

impl TopicImage {
    /// The partition `partition` of this topic, if it has one.
    #[must_use]
    pub fn partition(&self, partition: i32) -> Option<TopicIdPartition> {
        let index = usize::try_from(partition).ok()?;
        (index < self.partitions.len()).then_some(TopicIdPartition {
            topic_id: self.id,
            partition,
        })
    }

    /// The number of partitions, as the protocol counts them.
    #[must_use]
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).expect("the number of partitions is limited at creation")
    }

    /// All partitions, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = TopicIdPartition> + '_ {
        (0..self.partition_count()).map(|partition| TopicIdPartition {
            topic_id: self.id,
            partition,
        })
    }
}

impl MetadataImage {
    /// A broker without topics.
    #[must_use]
    pub fn new(cluster_id: String, node_id: i32) -> Self {
        Self {
            cluster_id,
            node_id,
            ..Self::default()
        }
    }

    /// The topic called `name`.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(name)
    }

    /// The topic with this id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    /// Topics from `name` on, by name.
    pub fn topics_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        self.topics
            .range::<str, _>((std::ops::Bound::Included(name), std::ops::Bound::Unbounded))
            .map(|t| t.1)
    }

    /// Adds a topic or replaces the one of that name.
    pub fn put_topic(&mut self, topic: TopicImage) {
        self.remove_topic(&topic.name.clone());
        let topic = Arc::new(topic);
        self.by_id.insert(topic.id, topic.clone());
        self.topics.insert(topic.name.clone(), topic);
    }

    /// Forgets the topic called `name`.
    pub fn remove_topic(&mut self, name: &str) {
        if let Some(topic) = self.topics.remove(name) {
            self.by_id.remove(&topic.id);
        }
    }
}
