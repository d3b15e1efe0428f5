//! Compacts the shards' logs, on a thread that may block.
//!
//! Owns the thread, the shards' answers and what is said of each pass; which log is next and which are left
//! alone is the engine's to decide ([`Passes`]). A shard is asked and told, and never waits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringlog_engine::log::compaction::{
    CleanedSegment, CleanerConfig, CleaningId, CleaningJob, CompactedLogs, Dirtiness, PassOutcome, Passes,
};
use ringlog_engine::rt::FileTable;
use ringlog_engine::rt::mailbox::Mailbox;
use ringlog_engine::types::Offset;
use ringlog_replication::types::TopicIdPartition;
use tokio::runtime::Handle;
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
}

impl Compaction {
    pub(super) fn new(shards: Vec<Mailbox<ShardRequest>>, config: &ServerConfig) -> Self {
        Self {
            shards,
            config: config.cleaner,
            backoff: config.cleaner_backoff,
        }
    }

    /// Cleans what needs it until `stop` says true. A pass under way then ends at its next chunk; what it has
    /// made is removed, or swapped in.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let stopped = Arc::new(AtomicBool::new(false));
        let work = {
            let (stopped, stop) = (Arc::clone(&stopped), stop.clone());
            tokio::task::spawn_blocking(move || self.work(&stopped, stop))
        };
        tokio::select! {
            worked = work => {
                if let Err(panic) = worked {
                    std::panic::resume_unwind(panic.into_panic());
                }
            }
            // A sender that is gone stops it, too.
            _ = stop.wait_for(|stop| *stop) => stopped.store(true, Ordering::Relaxed),
        }
    }

    fn work(self, stopped: &AtomicBool, mut stop: watch::Receiver<bool>) {
        let runtime = Handle::current();
        let logs = Shards {
            shards: self.shards,
            runtime: runtime.clone(),
        };
        let mut passes = Passes::new(logs, self.config);
        while !stopped.load(Ordering::Relaxed) {
            let mut pace = |_| !stopped.load(Ordering::Relaxed);
            match passes.clean_one(&mut FileTable::new(), &mut pace) {
                Some((dir, outcome)) if report(&dir, &outcome) => {}
                _ => {
                    let stop = stop.wait_for(|stop| *stop);
                    // Whichever comes first.
                    let _ =
                        runtime.block_on(async { tokio::time::timeout(self.backoff, stop).await.is_ok() });
                }
            }
        }
    }
}

/// Says what has become of a pass; whether the log is clean.
fn report(dir: &Path, outcome: &PassOutcome) -> bool {
    let dir = dir.display();
    match outcome {
        PassOutcome::Cleaned(stats) => {
            tracing::info!(%dir, ?stats, "log compacted");
            return true;
        }
        PassOutcome::Stale => {}
        PassOutcome::NoSpace(error) => {
            tracing::warn!(%dir, error = chain(error), "no space to compact; it is tried again");
        }
        PassOutcome::Failed(error) => {
            tracing::error!(%dir, error = chain(error), "not compacted any more until the next start");
        }
    }
    false
}

/// The shards' logs.
struct Shards {
    shards: Vec<Mailbox<ShardRequest>>,
    runtime: Handle,
}

impl Shards {
    /// Asks a shard; none where it has ended.
    fn ask<T>(&self, shard: usize, request: impl FnOnce(oneshot::Sender<T>) -> ShardRequest) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.runtime.block_on(async {
            self.shards[shard].send(request(reply)).await.ok()?;
            answer.await.ok()
        })
    }

    /// Asks the shard of `log`.
    fn ask_of<T>(
        &self,
        log: TopicIdPartition,
        request: impl FnOnce(oneshot::Sender<T>) -> ShardRequest,
    ) -> Option<T> {
        self.ask(shard_of(log, self.shards.len()), request)
    }
}

impl CompactedLogs for Shards {
    type Id = TopicIdPartition;

    fn dirty(&mut self) -> Vec<(Dirtiness, TopicIdPartition)> {
        let of_shard = |shard| self.ask(shard, ShardRequest::Dirty).unwrap_or_default();
        (0..self.shards.len()).flat_map(of_shard).collect()
    }

    fn begin(&mut self, log: TopicIdPartition) -> Option<CleaningJob> {
        self.ask_of(log, |reply| ShardRequest::BeginCleaning(log, reply))
            .flatten()
    }

    fn swap_in(&mut self, log: TopicIdPartition, new: CleanedSegment) -> Result<(), Option<CleanedSegment>> {
        match self.ask_of(log, |reply| ShardRequest::SwapIn(log, new, reply)) {
            Some(swapped) => swapped.map_err(Some),
            None => Err(None),
        }
    }

    fn end(&mut self, log: TopicIdPartition, job: CleaningId, clean_end: Option<Offset>) -> bool {
        let end = |reply| ShardRequest::EndCleaning(log, job, clean_end, reply);
        self.ask_of(log, end) == Some(true)
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
