//! The control thread's part: changes topics and settings, opens logs at start, writes checkpoints.
//!
//! Owns the catalog and the data directory; the only writer of both. A change is durable in the
//! catalog first, then carried out by the shards, then shown to clients, then answered. File
//! operations here may block: no request for records passes through this thread.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringlog_engine::log::checkpoint::TopicPartition;
use ringlog_engine::log::{OpenError, OpenOptions, RecoveryReport};
use ringlog_engine::rt::mailbox::Mailbox;
use ringlog_engine::types::{LeaderEpoch, Offset, TimestampMs};
use ringlog_replication::types::TopicIdPartition;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::adopt::adopt;
use super::control_request::{ControlRequest, TopicError};
use super::data_dir::{CheckpointOffsets, DataDir, DataDirError, LastRun, Offsets};
use super::route::shard_of;
use super::shard_request::{LogCheckpoint, OpenPartition, ShardRequest, View};
use crate::config::ServerConfig;
use crate::metadata::{Catalog, CatalogError, TopicImage};

/// Owns the metadata and the data directory.
#[derive(Debug)]
pub(crate) struct Control {
    pub(super) dir: DataDir,
    pub(super) catalog: Catalog,
    /// As given at the start, without the dynamic settings.
    pub(super) config: ServerConfig,
    shards: Vec<Mailbox<ShardRequest>>,
    /// What is recorded of logs that did not open, and stays so.
    unavailable: Vec<LogCheckpoint>,
}

/// A log that a shard is opening.
type OpeningLog = oneshot::Receiver<Result<RecoveryReport, OpenError>>;

/// The remedy of an error that tells its own.
const SEE_ERROR: &str = "see the error";

/// How often the start says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

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
            unavailable: Vec::new(),
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
    pub(crate) async fn open_logs(&mut self, last_run: &LastRun) -> Result<(), ControlError> {
        let mut pending = Vec::new();
        let view = self.view();
        for topic in view.image.topics() {
            pending.push((
                topic.clone(),
                self.open_topic(topic, 0, &view, Some(last_run)).await,
            ));
        }
        let logs: usize = pending.iter().map(|(_, replies)| replies.len()).sum();
        let (mut opened, mut scanned_bytes) = (0u64, 0);
        let mut progress = tokio::time::interval_at((Instant::now() + PROGRESS_EVERY).into(), PROGRESS_EVERY);
        for (topic, replies) in pending {
            for (id, reply) in topic.partition_ids().zip(replies) {
                let dir = self.dir.partition_path(&topic.name, id.partition);
                let (error, remedy) = match reply {
                    Ok(mut reply) => {
                        let result = loop {
                            tokio::select! {
                                result = &mut reply => break result,
                                _ = progress.tick() => tracing::info!(opened, logs, scanned_bytes, "opening logs"),
                            }
                        };
                        match result {
                            Ok(Ok(report)) => {
                                (opened, scanned_bytes) = (opened + 1, scanned_bytes + report.scanned_bytes);
                                continue;
                            }
                            Ok(Err(error)) => (with_causes(&error), remedy(&error, &dir)),
                            Err(_) => return Err(ControlError::ShardGone),
                        }
                    }
                    Err(error) => (with_causes(&error), SEE_ERROR.to_owned()),
                };
                tracing::error!(
                    topic = %topic.name,
                    partition = id.partition,
                    error,
                    remedy,
                    "partition is unavailable"
                );
                self.unavailable.push(recorded(&topic, id, last_run));
            }
        }
        // Logs that were adopted remember producers that the catalog knows nothing of.
        let taken = self.ask_all(ShardRequest::LastProducerId).await;
        if let Some(last) = taken.into_iter().flatten().max() {
            self.catalog.begin_producer_ids_after(last)?;
        }
        // What recovery has flushed need not be scanned again, and of logs that are gone nothing is recorded.
        self.checkpoint().await;
        // Nothing has stopped yet, well or not, in a new directory.
        let had_a_run = logs > 0 || !self.dir.is_new();
        tracing::info!(
            logs = opened,
            clean = had_a_run.then_some(last_run.clean),
            scanned_bytes,
            "logs opened"
        );
        Ok(())
    }

    /// Has the logs of `topic` opened from partition `from` on, each in its directory, which may not be
    /// usable.
    pub(super) async fn open_topic(
        &self,
        topic: &TopicImage,
        from: usize,
        view: &View,
        last_run: Option<&LastRun>,
    ) -> Vec<Result<OpeningLog, DataDirError>> {
        let config = view.config.log_config(&topic.configs);
        let mut replies = Vec::new();
        for id in topic.partition_ids().skip(from) {
            let recorded = last_run.map(|last_run| recorded(topic, id, last_run));
            let flushed = recorded.map_or(Offset(0), |log| log.recovery_point);
            let dir = match self
                .dir
                .create_partition(&topic.name, id.partition, topic.id, flushed)
            {
                Ok(dir) => dir,
                Err(error) => {
                    replies.push(Err(error));
                    continue;
                }
            };
            let options = OpenOptions {
                recovery_point: flushed,
                log_start_offset: recorded.map_or(Offset(0), |log| log.log_start_offset),
                clean_shutdown: last_run.is_some_and(|run| run.clean),
                now: wall_clock(),
            };
            let first_dirty_offset = recorded.and_then(|log| log.first_dirty_offset);
            let first_dirty_offset = first_dirty_offset.unwrap_or(Offset(0));
            let number = usize::try_from(id.partition).expect("partition numbers start at 0");
            let leader_epoch = topic.partitions[number].leader_epoch;
            let open = OpenPartition {
                partition: id,
                dir,
                config: config.clone(),
                options,
                first_dirty_offset,
                leader_epoch,
            };
            let (reply, receiver) = oneshot::channel();
            self.send(id, ShardRequest::Open(open, reply)).await;
            replies.push(Ok(receiver));
        }
        replies
    }

    pub(super) async fn send(&self, id: TopicIdPartition, request: ShardRequest) {
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

    pub(super) async fn publish(&self) {
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
                let _ = reply.send(self.create_topics(topics, validate_only).await);
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
                let _ = reply.send(self.checkpoint().await);
            }
        }
    }

    /// Stores where every log begins and how far it is durable. Whether that has worked.
    pub(crate) async fn checkpoint(&self) -> bool {
        let checkpoints = self.ask_all(ShardRequest::Checkpoint).await;
        let written = self.write_checkpoints(&checkpoints.concat());
        if let Err(error) = &written {
            tracing::error!(%error, "checkpoints not written; a restart after a crash would scan more");
        }
        written.is_ok()
    }

    fn write_checkpoints(&self, checkpoints: &[LogCheckpoint]) -> Result<(), DataDirError> {
        let mut offsets = CheckpointOffsets::default();
        for checkpoint in checkpoints.iter().chain(&self.unavailable) {
            let Some(topic) = self.catalog.image().topic_by_id(checkpoint.partition.topic_id) else {
                continue;
            };
            let name = TopicPartition {
                topic: topic.name.to_string(),
                partition: checkpoint.partition.partition,
            };
            let first_dirty = checkpoint.first_dirty_offset.map(|offset| (name.clone(), offset));
            offsets.first_dirty.extend(first_dirty);
            offsets
                .recovery_points
                .insert(name.clone(), checkpoint.recovery_point);
            offsets
                .log_starts
                .insert(name.clone(), checkpoint.log_start_offset);
            offsets.high_watermarks.insert(name, checkpoint.high_watermark);
        }
        self.dir.write_checkpoints(&offsets)
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

pub(super) fn storage(error: impl Error) -> TopicError {
    TopicError::Storage(with_causes(&error))
}

/// What the last run has recorded of a log.
fn recorded(topic: &TopicImage, id: TopicIdPartition, last_run: &LastRun) -> LogCheckpoint {
    let name = TopicPartition {
        topic: topic.name.to_string(),
        partition: id.partition,
    };
    let lookup = |offsets: &Offsets| offsets.get(&name).copied().unwrap_or(Offset(0));
    let recovery_point = lookup(&last_run.recovery_points);
    LogCheckpoint {
        partition: id,
        recovery_point,
        log_start_offset: lookup(&last_run.log_starts),
        high_watermark: recovery_point,
        first_dirty_offset: last_run.first_dirty.get(&name).copied(),
        clean: false,
    }
}

/// What to do about a log that does not open.
fn remedy(error: &OpenError, dir: &Path) -> String {
    match error {
        OpenError::Damaged { .. } => format!(
            "restore the file, or stop the broker and see what `ringlog repair {}` finds",
            dir.display()
        ),
        _ => SEE_ERROR.to_owned(),
    }
}

/// The error and its causes on one line; a cause that the error tells itself is not repeated.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

pub(super) fn wall_clock() -> TimestampMs {
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
            _ = timer.tick() => drop(control.checkpoint().await),
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
