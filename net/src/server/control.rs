//! The control thread's part: changes topics and settings, opens logs at start, writes checkpoints.
//!
//! Owns the catalog and the data directory; the only writer of both. A change is durable in the
//! catalog first, then carried out by the shards, then shown to clients, then answered. File
//! operations here may block: no request for records passes through this thread.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringlog_engine::log::OpenOptions;
use ringlog_engine::log::checkpoint::TopicPartition;
use ringlog_engine::rt::mailbox::Mailbox;
use ringlog_engine::types::{LeaderEpoch, Offset, TimestampMs};
use ringlog_replication::types::TopicIdPartition;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::control_request::{
    ConfigChange, ConfigOps, ControlRequest, NewPartitions, NewTopic, TopicError, TopicRef,
};
use super::data_dir::{DataDir, DataDirError, LastRun, Offsets};
use super::route::shard_of;
use super::shard_request::{LogCheckpoint, OpenPartition, ShardRequest, View};
use super::topic_name;
use crate::config::{Change, ConfigMap, ResourceKind, ServerConfig, alter, validate};
use crate::metadata::{Catalog, CatalogError, PartitionImage, TopicImage};

/// One request may not create more partitions than this, as in Kafka; each costs an open file.
const PARTITIONS_PER_REQUEST_MAX: i32 = 10_000;

/// Owns the metadata and the data directory.
#[derive(Debug)]
pub(crate) struct Control {
    dir: DataDir,
    catalog: Catalog,
    /// As given at the start, without the dynamic settings.
    config: ServerConfig,
    shards: Vec<Mailbox<ShardRequest>>,
}

impl Control {
    /// Reads the catalog and adopts partition directories that it does not know; every leader's
    /// epoch is raised by one.
    pub(crate) fn open(
        dir: DataDir,
        config: ServerConfig,
        shards: Vec<Mailbox<ShardRequest>>,
    ) -> Result<Self, ControlError> {
        let mut catalog = Catalog::open(dir.path(), dir.cluster_id().to_owned(), config.node_id)?;
        let adopted = adopt(&dir, &mut catalog)?;
        catalog.update(|image| {
            for topic in image.topics().cloned().collect::<Vec<_>>() {
                let mut topic = TopicImage::clone(&topic);
                for partition in &mut topic.partitions {
                    partition.leader_epoch = LeaderEpoch(partition.leader_epoch.0 + 1);
                }
                image.put_topic(topic);
            }
            for topic in adopted {
                image.put_topic(topic);
            }
        })?;
        Ok(Self {
            dir,
            catalog,
            config,
            shards,
        })
    }

    /// The current metadata with the settings in force.
    pub(crate) fn view(&self) -> View {
        let image = self.catalog.image().clone();
        let config = self
            .config
            .with_dynamic(&image.broker_configs)
            .unwrap_or_else(|error| {
                tracing::error!(%error, "stored broker settings are not usable and have no effect");
                self.config.clone()
            });
        View {
            image,
            config: Arc::new(config),
        }
    }

    /// Opens every log; the shards do it side by side. A log that cannot be opened is reported and
    /// leaves its partition unavailable.
    pub(crate) async fn open_logs(&self, last_run: &LastRun) -> Result<(), ControlError> {
        let mut pending = Vec::new();
        let view = self.view();
        for topic in view.image.topics() {
            pending.push((
                topic.clone(),
                self.open_topic(topic, 0, &view, Some(last_run)).await?,
            ));
        }
        let mut opened = 0u64;
        for (topic, replies) in pending {
            for (partition, reply) in replies.into_iter().enumerate() {
                match reply.await {
                    Ok(Ok(())) => opened += 1,
                    Ok(Err(error)) => {
                        tracing::error!(topic = %topic.name, partition, %error, "partition is unavailable");
                    }
                    Err(_) => return Err(ControlError::ShardGone),
                }
            }
        }
        tracing::info!(logs = opened, clean = last_run.clean, "logs opened");
        Ok(())
    }

    async fn open_topic(
        &self,
        topic: &TopicImage,
        from: usize,
        view: &View,
        last_run: Option<&LastRun>,
    ) -> Result<Vec<oneshot::Receiver<Result<(), ringlog_engine::log::OpenError>>>, ControlError> {
        let config = view.config.log_config(&topic.configs);
        let mut replies = Vec::new();
        for id in topic.partition_ids().skip(from) {
            let dir = self.dir.create_partition(&topic.name, id.partition, topic.id)?;
            let name = TopicPartition {
                topic: topic.name.to_string(),
                partition: id.partition,
            };
            let lookup = |offsets: &Offsets| offsets.get(&name).copied();
            let options = OpenOptions {
                recovery_point: last_run
                    .and_then(|run| lookup(&run.recovery_points))
                    .unwrap_or(Offset(0)),
                log_start_offset: last_run
                    .and_then(|run| lookup(&run.log_starts))
                    .unwrap_or(Offset(0)),
                clean_shutdown: last_run.is_some_and(|run| run.clean),
                now: wall_clock(),
            };
            let number = usize::try_from(id.partition).expect("partition numbers start at 0");
            let leader_epoch = topic.partitions[number].leader_epoch;
            let open = OpenPartition {
                partition: id,
                dir,
                config: config.clone(),
                options,
                leader_epoch,
            };
            let (reply, receiver) = oneshot::channel();
            self.send(id, ShardRequest::Open(open, reply)).await;
            replies.push(receiver);
        }
        Ok(replies)
    }

    async fn send(&self, id: TopicIdPartition, request: ShardRequest) {
        // A shard that is gone drops the reply's channel, which the receiver notices.
        let _ = self.shards[shard_of(id, self.shards.len())].send(request).await;
    }

    /// Asks every shard and collects the answers, in the order of the shards.
    async fn ask_all<T>(&self, request: impl Fn(oneshot::Sender<T>) -> ShardRequest) -> Vec<T> {
        let mut receivers = Vec::new();
        for shard in &self.shards {
            let (reply, receiver) = oneshot::channel();
            let _ = shard.send(request(reply)).await;
            receivers.push(receiver);
        }
        let mut answers = Vec::new();
        for receiver in receivers {
            answers.extend(receiver.await);
        }
        answers
    }

    async fn publish(&self) {
        let view = self.view();
        self.ask_all(|reply| ShardRequest::Metadata(view.clone(), reply))
            .await;
    }

    /// Carries out what a shard asked for.
    pub(crate) async fn handle(&mut self, request: ControlRequest) {
        // An asker that has gone does not stop the change.
        match request {
            ControlRequest::CreateTopics {
                topics,
                validate_only,
                reply,
            } => {
                let mut results = Vec::new();
                for topic in topics {
                    results.push(self.create_topic(topic, validate_only).await);
                }
                if !validate_only {
                    self.publish().await;
                }
                let _ = reply.send(results);
            }
            ControlRequest::DeleteTopics(topics, reply) => {
                let mut results = Vec::new();
                for topic in topics {
                    results.push(self.delete_topic(&topic).await);
                }
                let _ = reply.send(results);
            }
            ControlRequest::CreatePartitions {
                topics,
                validate_only,
                reply,
            } => {
                let mut results = Vec::new();
                for topic in topics {
                    results.push(self.create_partitions(topic, validate_only).await);
                }
                if !validate_only {
                    self.publish().await;
                }
                let _ = reply.send(results);
            }
            ControlRequest::AlterConfigs {
                resources,
                validate_only,
                reply,
            } => {
                let mut results = Vec::new();
                for change in resources {
                    results.push(self.alter_configs(change, validate_only).await);
                }
                let _ = reply.send(results);
            }
            ControlRequest::AllocateProducerIds(reply) => {
                let _ = reply.send(self.catalog.allocate_producer_ids());
            }
            ControlRequest::Checkpoint(reply) => {
                self.checkpoint().await;
                let _ = reply.send(());
            }
        }
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
        let replies = self
            .open_topic(topic, from, &self.view(), None)
            .await
            .map_err(storage)?;
        for reply in replies {
            reply
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

    async fn delete_topic(&mut self, topic: &TopicRef) -> Result<Arc<TopicImage>, TopicError> {
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

    async fn create_partitions(&mut self, new: NewPartitions, validate_only: bool) -> Result<(), TopicError> {
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

    async fn alter_configs(&mut self, change: ConfigChange, validate_only: bool) -> Result<(), TopicError> {
        let current = match change.resource {
            ResourceKind::Topic => {
                let topic = self.catalog.image().topic(&change.name);
                topic
                    .ok_or_else(|| TopicError::Unknown(change.name.clone()))?
                    .configs
                    .clone()
            }
            ResourceKind::Broker => {
                if !change.name.is_empty() && change.name != self.config.node_id.to_string() {
                    return Err(TopicError::UnknownBroker(change.name));
                }
                self.catalog.image().broker_configs.clone()
            }
        };
        let altered = altered(change.resource, &current, &change.change)?;
        if change.resource == ResourceKind::Broker {
            self.config.with_dynamic(&altered)?;
        }
        if validate_only || altered == current {
            return Ok(());
        }
        self.catalog
            .update(|image| match change.resource {
                ResourceKind::Topic => {
                    let topic = image.topic(&change.name).expect("it was just found");
                    image.put_topic(TopicImage {
                        configs: altered,
                        ..TopicImage::clone(topic)
                    });
                }
                ResourceKind::Broker => image.broker_configs = altered,
            })
            .map_err(storage)?;
        self.publish().await;
        let view = self.view();
        for topic in view.image.topics() {
            if change.resource == ResourceKind::Broker || topic.name.as_ref() == change.name {
                self.configure(topic, &view).await;
            }
        }
        Ok(())
    }

    async fn configure(&self, topic: &TopicImage, view: &View) {
        let config = view.config.log_config(&topic.configs);
        for id in topic.partition_ids() {
            let (reply, done) = oneshot::channel();
            self.send(id, ShardRequest::Configure(id, config.clone(), reply))
                .await;
            let _ = done.await;
        }
    }

    /// Stores where every log begins and how far it is durable.
    pub(crate) async fn checkpoint(&self) {
        let checkpoints = self.ask_all(ShardRequest::Checkpoint).await;
        if let Err(error) = self.write_checkpoints(&checkpoints.concat()) {
            tracing::error!(%error, "checkpoints not written; a restart after a crash would scan more");
        }
    }

    fn write_checkpoints(&self, checkpoints: &[LogCheckpoint]) -> Result<(), DataDirError> {
        let [mut recovery_points, mut log_starts, mut high_watermarks] =
            std::array::from_fn(|_| Offsets::new());
        for checkpoint in checkpoints {
            let Some(topic) = self.catalog.image().topic_by_id(checkpoint.partition.topic_id) else {
                continue;
            };
            let name = TopicPartition {
                topic: topic.name.to_string(),
                partition: checkpoint.partition.partition,
            };
            recovery_points.insert(name.clone(), checkpoint.recovery_point);
            log_starts.insert(name.clone(), checkpoint.log_start_offset);
            high_watermarks.insert(name, checkpoint.high_watermark);
        }
        self.dir
            .write_checkpoints(&recovery_points, &log_starts, &high_watermarks)
    }

    /// Lets waiting fetches end, so that their connections can.
    pub(crate) async fn drain(&self) {
        self.ask_all(ShardRequest::Drain).await;
    }

    /// Closes every log, and says so on disk if all went well.
    pub(crate) async fn close(&self) -> Result<(), ControlError> {
        let closed = self.ask_all(ShardRequest::Stop).await.concat();
        self.write_checkpoints(&closed)?;
        let logs: usize = self
            .catalog
            .image()
            .topics()
            .map(|topic| topic.partitions.len())
            .sum();
        if closed.len() == logs && closed.iter().all(|checkpoint| checkpoint.clean) {
            self.dir.end_run()?;
        }
        Ok(())
    }
}

/// Why the broker cannot start, or stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The metadata file.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Two directories contradict each other.
    #[error("{path}: {problem}")]
    Adopt {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A shard's thread has ended.
    #[error("a shard stopped while logs were opened; its message is above")]
    ShardGone,
}

fn storage(error: impl std::fmt::Display) -> TopicError {
    TopicError::Storage(error.to_string())
}

fn check_partition_count(count: i32) -> Result<(), TopicError> {
    if (1..=PARTITIONS_PER_REQUEST_MAX).contains(&count) {
        return Ok(());
    }
    Err(TopicError::InvalidPartitions(format!(
        "{count} partitions: at least 1 and at most {PARTITIONS_PER_REQUEST_MAX} at once"
    )))
}

fn altered(resource: ResourceKind, current: &ConfigMap, change: &ConfigOps) -> Result<ConfigMap, TopicError> {
    match change {
        ConfigOps::Replace(configs) => {
            let given = configs
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
            Ok(validate(resource, &given.collect())?)
        }
        ConfigOps::Alter(changes) => {
            let changes: Vec<_> = changes
                .iter()
                .map(|(name, op, value)| Change {
                    name,
                    op: *op,
                    value: value.as_deref(),
                })
                .collect();
            Ok(alter(resource, current, &changes)?)
        }
    }
}

/// Topics whose directories are there but not in the catalog: another broker, Kafka's perhaps, wrote them.
fn adopt(dir: &DataDir, catalog: &mut Catalog) -> Result<Vec<TopicImage>, ControlError> {
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
        let leader_epoch = super::data_dir::last_leader_epoch(&path);
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

fn remove_directories(paths: &[PathBuf]) {
    for path in paths {
        if let Err(error) = fs::remove_dir_all(path) {
            tracing::warn!(path = %path.display(), %error, "a deleted partition's directory could not be removed");
        }
    }
}

fn wall_clock() -> TimestampMs {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Carries out requests until `stop` comes.
pub(crate) async fn run(
    control: &mut Control,
    requests: &mut mpsc::Receiver<ControlRequest>,
    checkpoint_every: Duration,
    stop: impl Future<Output = ()>,
) {
    let first = Instant::now() + checkpoint_every;
    let mut timer = tokio::time::interval_at(first.into(), checkpoint_every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            request = requests.recv() => match request {
                Some(request) => control.handle(request).await,
                None => return,
            },
            _ = timer.tick() => control.checkpoint().await,
        }
    }
}

/// Carries out requests until `done`, at most for `limit`; whether it was done by then.
pub(crate) async fn run_until(
    control: &mut Control,
    requests: &mut mpsc::Receiver<ControlRequest>,
    limit: Duration,
    done: impl Fn() -> bool,
) -> bool {
    const LOOK_EVERY: Duration = Duration::from_millis(5);
    let give_up = Instant::now() + limit;
    while !done() {
        if Instant::now() >= give_up {
            return false;
        }
        if let Ok(Some(request)) = tokio::time::timeout(LOOK_EVERY, requests.recv()).await {
            control.handle(request).await;
        }
    }
    true
}
