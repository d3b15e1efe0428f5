//! Changes to topics: create, grow, delete.
//!
//! The control thread's commands on topics, each all or nothing for one topic: what was stored is
//! taken back where a shard cannot follow. What may be created is decided here alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ringlog_engine::types::LeaderEpoch;
use tokio::sync::oneshot;

use super::control::{Control, storage};
use super::control_request::{NewPartitions, NewTopic, TopicError, TopicRef};
use super::data_dir::DataDirError;
use super::shard_request::ShardRequest;
use super::topic_name;
use crate::config::{ConfigMap, ResourceKind, validate};
use crate::metadata::{PartitionImage, TopicImage};

/// One request may not create more partitions than this, as in Kafka; each costs an open file.
const PARTITIONS_PER_REQUEST_MAX: i32 = 10_000;

impl Control {
    /// Creates topics one after another; a name that is given twice is refused both times, as in Kafka.
    pub(super) async fn create_topics(
        &mut self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> Vec<Result<Arc<TopicImage>, TopicError>> {
        let mut names = BTreeMap::<String, usize>::new();
        for topic in &topics {
            *names.entry(topic.name.clone()).or_default() += 1;
        }
        let mut results = Vec::new();
        for topic in topics {
            results.push(if names[&topic.name] > 1 {
                Err(TopicError::Duplicate(topic.name))
            } else {
                self.create_topic(topic, validate_only).await
            });
        }
        if !validate_only {
            self.publish().await;
        }
        results
    }

    async fn create_topic(
        &mut self,
        new: NewTopic,
        validate_only: bool,
    ) -> Result<Arc<TopicImage>, TopicError> {
        let topic = self.plan_topic(new)?;
        if validate_only {
            return Ok(Arc::new(topic));
        }
        self.catalog
            .update(|image| image.put_topic(topic.clone()))
            .map_err(storage)?;
        tracing::info!(topic = %topic.name, id = %topic.id, partitions = topic.partitions.len(), "topic created");
        if let Err(error) = self.open_new(&topic, 0).await {
            self.remove_topic(&topic).await?;
            return Err(error);
        }
        Ok(Arc::new(topic))
    }

    /// Opens the new logs of `topic`, from partition `from` on.
    async fn open_new(&self, topic: &TopicImage, from: usize) -> Result<(), TopicError> {
        for reply in self.open_topic(topic, from, &self.view(), None).await {
            reply
                .map_err(storage)?
                .await
                .map_err(|_| TopicError::Storage("the broker is stopping".into()))?
                .map_err(storage)?;
        }
        Ok(())
    }

    fn plan_topic(&self, new: NewTopic) -> Result<TopicImage, TopicError> {
        let name = new.name;
        if let Err(source) = topic_name::check(&name) {
            return Err(TopicError::InvalidName { name, source });
        }
        let image = self.catalog.image();
        if image.topic(&name).is_some() {
            return Err(TopicError::Exists(name));
        }
        if let Some(other) = image
            .topics()
            .find(|topic| topic_name::collides(&topic.name, &name))
        {
            return Err(TopicError::Collides {
                name,
                existing: other.name.to_string(),
            });
        }
        let config = self.view().config;
        let partitions = if new.assignments.is_empty() {
            let factor = new
                .replication_factor
                .unwrap_or(config.default_replication_factor);
            if factor != 1 {
                return Err(TopicError::InvalidReplicationFactor(factor));
            }
            new.partitions.unwrap_or(config.num_partitions)
        } else {
            if new.partitions.is_some() || new.replication_factor.is_some() {
                return Err(TopicError::InvalidAssignment(
                    "give either an assignment or the numbers of partitions and replicas".into(),
                ));
            }
            self.check_assignments(&new.assignments)?
        };
        check_partition_count(partitions)?;
        self.check_no_directory(&name, 0..partitions)?;
        let mut configs = ConfigMap::new();
        for (key, value) in new.configs {
            configs.extend(value.map(|value| (key, value)));
        }
        let configs = validate(ResourceKind::Topic, &configs)?;
        let count = usize::try_from(partitions).expect("checked to be positive");
        Ok(TopicImage {
            name: name.into(),
            id: self.catalog.new_topic_id().map_err(storage)?,
            partitions: vec![
                PartitionImage {
                    leader_epoch: LeaderEpoch(0)
                };
                count
            ],
            configs,
        })
    }

    /// A new partition does not take over, nor remove, a directory that someone put there.
    fn check_no_directory(&self, topic: &str, partitions: Range<i32>) -> Result<(), TopicError> {
        let taken = partitions
            .map(|partition| self.dir.partition_path(topic, partition))
            .find(|path| path.exists());
        taken.map_or(Ok(()), |path| {
            Err(TopicError::Storage(format!(
                "{} is there already; move it away, or restart the broker to have it adopted",
                path.display()
            )))
        })
    }

    fn check_assignments(&self, assignments: &[(i32, Vec<i32>)]) -> Result<i32, TopicError> {
        let numbers: BTreeSet<i32> = assignments.iter().map(|(number, _)| *number).collect();
        let count = i32::try_from(assignments.len()).unwrap_or(i32::MAX);
        if !numbers.iter().copied().eq(0..count) {
            return Err(TopicError::InvalidAssignment(
                "partitions must be numbered from 0 without a gap".into(),
            ));
        }
        for (number, replicas) in assignments {
            self.check_replicas(*number, replicas)?;
        }
        Ok(count)
    }

    fn check_replicas(&self, partition: i32, replicas: &[i32]) -> Result<(), TopicError> {
        if replicas == [self.config.node_id] {
            return Ok(());
        }
        Err(TopicError::InvalidAssignment(format!(
            "partition {partition} on brokers {replicas:?}: the only broker is {}",
            self.config.node_id
        )))
    }

    pub(super) async fn delete_topic(&mut self, topic: &TopicRef) -> Result<Arc<TopicImage>, TopicError> {
        let image = self.catalog.image();
        let found = match topic {
            TopicRef::Name(name) => image.topic(name).ok_or_else(|| TopicError::Unknown(name.clone())),
            TopicRef::Id(id) => image.topic_by_id(*id).ok_or(TopicError::UnknownId(*id)),
        };
        let topic = found?.clone();
        if !self.view().config.delete_topics {
            return Err(TopicError::DeletionDisabled);
        }
        self.remove_topic(&topic).await?;
        tracing::info!(topic = %topic.name, id = %topic.id, "topic deleted");
        Ok(topic)
    }

    async fn remove_topic(&mut self, topic: &TopicImage) -> Result<(), TopicError> {
        self.catalog.begin_deletion(topic).map_err(storage)?;
        self.publish().await;
        for id in topic.partition_ids() {
            let (reply, done) = oneshot::channel();
            self.send(id, ShardRequest::Remove(id, reply)).await;
            let _ = done.await;
        }
        // A log of this name that is created later begins anew: nothing may be recorded of it.
        self.checkpoint().await;
        for id in topic.partition_ids() {
            self.dir
                .retire_partition(&topic.name, id.partition)
                .map_err(storage)?;
        }
        self.catalog.finish_deletion(topic.id);
        self.remove_deleted().map_err(storage)
    }

    /// Unlinks retired directories in the background.
    pub(crate) fn remove_deleted(&self) -> Result<(), DataDirError> {
        let retired = self.dir.deleted()?;
        if !retired.is_empty() {
            tokio::task::spawn_blocking(move || remove_directories(&retired));
        }
        Ok(())
    }

    pub(super) async fn create_partitions(
        &mut self,
        new: NewPartitions,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let image = self.catalog.image();
        let topic = image
            .topic(&new.topic)
            .ok_or_else(|| TopicError::Unknown(new.topic.clone()))?;
        let present = topic.partition_count();
        if new.count <= present {
            return Err(TopicError::InvalidPartitions(format!(
                "topic {} has {present} partitions; their number can only grow, not become {}",
                new.topic, new.count
            )));
        }
        check_partition_count(new.count - present)?;
        check_partition_count(new.count)?;
        if let Some(assignments) = &new.assignments {
            if i32::try_from(assignments.len()) != Ok(new.count - present) {
                return Err(TopicError::InvalidAssignment(format!(
                    "{} assignments for {} new partitions",
                    assignments.len(),
                    new.count - present
                )));
            }
            for (number, replicas) in (present..).zip(assignments) {
                self.check_replicas(number, replicas)?;
            }
        }
        self.check_no_directory(&new.topic, present..new.count)?;
        if validate_only {
            return Ok(());
        }
        let from = topic.partitions.len();
        let before = TopicImage::clone(topic);
        let mut grown = before.clone();
        let count = usize::try_from(new.count).expect("checked to be positive");
        grown.partitions.resize(
            count,
            PartitionImage {
                leader_epoch: LeaderEpoch(0),
            },
        );
        self.catalog
            .update(|image| image.put_topic(grown.clone()))
            .map_err(storage)?;
        if let Err(error) = self.open_new(&grown, from).await {
            for id in grown.partition_ids().skip(from) {
                let (reply, done) = oneshot::channel();
                self.send(id, ShardRequest::Remove(id, reply)).await;
                let _ = done.await;
                self.dir
                    .retire_partition(&grown.name, id.partition)
                    .map_err(storage)?;
            }
            self.catalog
                .update(|image| image.put_topic(before))
                .map_err(storage)?;
            self.remove_deleted().map_err(storage)?;
            return Err(error);
        }
        Ok(())
    }
}

fn check_partition_count(count: i32) -> Result<(), TopicError> {
    if (1..=PARTITIONS_PER_REQUEST_MAX).contains(&count) {
        return Ok(());
    }
    Err(TopicError::InvalidPartitions(format!(
        "{count} partitions: at least 1 and at most {PARTITIONS_PER_REQUEST_MAX} at once"
    )))
}

fn remove_directories(paths: &[PathBuf]) {
    for path in paths {
        // Several removals of one directory may be under way.
        if let Err(error) = fs::remove_dir_all(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a deleted partition's directory could not be removed");
        }
    }
}
