//! Compacts logs beside the shards: asks which log needs it most, makes its new segments on a thread
//! that may block, and gives them to the log's shard to put in place.
//!
//! Owns the order of passes, one log at a time, and which logs are left alone after a failure. Knows
//! neither records nor what is dirty. A shard is asked and told, and never waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringlog_engine::log::compaction::{
    CleanedSegment, Cleaner, CleanerConfig, CleaningJob, CompactionError, Dirtiness,
};
use ringlog_engine::rt::FileTable;
use ringlog_engine::rt::mailbox::Mailbox;
use ringlog_replication::types::TopicIdPartition;
use tokio::sync::{oneshot, watch};

use super::route::shard_of;
use super::shard_request::ShardRequest;
use crate::config::ServerConfig;

/// See the module.
#[derive(Debug)]
pub(super) struct Compaction {
    shards: Vec<Mailbox<ShardRequest>>,
    config: CleanerConfig,
    backoff: Duration,
    /// Logs that could not be cleaned; as in Kafka they are left alone until the next start.
    failed: BTreeSet<TopicIdPartition>,
    stopped: Arc<AtomicBool>,
}

/// Why a pass ended early.
enum Ended {
    /// The log has changed, or is gone, or the broker stops.
    Stale,
    Failed(CompactionError),
}

impl Compaction {
    pub(super) fn new(shards: Vec<Mailbox<ShardRequest>>, config: &ServerConfig) -> Self {
        Self {
            shards,
            config: config.cleaner,
            backoff: config.cleaner_backoff,
            failed: BTreeSet::new(),
            stopped: Arc::default(),
        }
    }

    /// Cleans what needs it until `stop` says true.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let stopped = self.stopped.clone();
        let stopping = async {
            // A sender that is gone stops it, too.
            let _ = stop.wait_for(|stop| *stop).await;
            stopped.store(true, Ordering::Relaxed);
        };
        let work = async {
            while !self.stopped.load(Ordering::Relaxed) {
                if !self.clean_one().await {
                    tokio::time::sleep(self.backoff).await;
                }
            }
        };
        // A pass under way ends at its next chunk; what it has made is removed, or swapped in.
        tokio::select! {
            () = work => {}
            () = stopping => {}
        }
    }

    /// Cleans the log that needs it most; false where none does.
    async fn clean_one(&mut self) -> bool {
        let mut dirty: Vec<(Dirtiness, TopicIdPartition)> = Vec::new();
        for shard in &self.shards {
            let (reply, answer) = oneshot::channel();
            let _ = shard.send(ShardRequest::Dirty(reply)).await;
            dirty.extend(answer.await.unwrap_or_default());
        }
        dirty.retain(|(_, id)| !self.failed.contains(id));
        let Some((dirtiness, id)) = dirty.into_iter().max() else {
            return false;
        };
        let Some(Some(job)) = self.ask(id, |reply| ShardRequest::BeginCleaning(id, reply)).await else {
            return false;
        };
        let (dir, job_id) = (job.dir().to_owned(), job.id());
        tracing::debug!(dir = %dir.display(), ?dirtiness, "compaction begins");
        let cleaned = self.clean(id, job).await;
        let clean_end = cleaned.as_ref().ok().map(Cleaner::clean_end);
        let end = |reply| ShardRequest::EndCleaning(id, job_id, clean_end, reply);
        let wanted = self.ask(id, end).await;
        match cleaned {
            Ok(cleaner) => {
                tracing::info!(dir = %dir.display(), stats = ?cleaner.stats(), "log compacted");
                return true;
            }
            Err(Ended::Stale | Ended::Failed(CompactionError::Stopped)) => {}
            // The log was deleted meanwhile, or cut: what was read is not what is there now.
            Err(Ended::Failed(_)) if wanted != Some(true) => {}
            Err(Ended::Failed(error)) if error.is_storage_full() => {
                tracing::warn!(dir = %dir.display(), error = chain(&error), "no space to compact; it is tried again");
            }
            Err(Ended::Failed(error)) => {
                self.failed.insert(id);
                tracing::error!(dir = %dir.display(), error = chain(&error), "not compacted any more until the next start");
            }
        }
        false
    }

    async fn clean(&self, id: TopicIdPartition, job: CleaningJob) -> Result<Cleaner, Ended> {
        let config = self.config;
        let mut cleaner = self
            .blocking(move |pace| Cleaner::start(job, config, &mut FileTable::new(), pace))
            .await?;
        loop {
            let step = move |pace: &mut dyn FnMut(u64) -> bool| {
                let new = cleaner.next_segment(&mut FileTable::new(), pace)?;
                Ok((cleaner, new))
            };
            let (after, new) = self.blocking(step).await?;
            cleaner = after;
            let Some(new) = new else { return Ok(cleaner) };
            self.swap_in(id, new).await?;
        }
    }

    async fn swap_in(&self, id: TopicIdPartition, new: CleanedSegment) -> Result<(), Ended> {
        match self.ask(id, |reply| ShardRequest::SwapIn(id, new, reply)).await {
            Some(Ok(())) => Ok(()),
            Some(Err(refused)) => {
                let removed = tokio::task::spawn_blocking(move || refused.remove(&mut FileTable::new()));
                // A panic was reported by its hook.
                let _ = removed.await;
                Err(Ended::Stale)
            }
            None => Err(Ended::Stale),
        }
    }

    /// Runs `work` where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<T, CompactionError> + Send + 'static,
    ) -> Result<T, Ended> {
        let stopped = self.stopped.clone();
        let mut pace = move |_| !stopped.load(Ordering::Relaxed);
        match tokio::task::spawn_blocking(move || work(&mut pace)).await {
            Ok(result) => result.map_err(Ended::Failed),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Asks the shard of `id`; none where it has ended.
    async fn ask<T>(
        &self,
        id: TopicIdPartition,
        request: impl FnOnce(oneshot::Sender<T>) -> ShardRequest,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let shard = &self.shards[shard_of(id, self.shards.len())];
        shard.send(request(reply)).await.ok()?;
        answer.await.ok()
    }
}

/// The error and what caused it, for people.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
