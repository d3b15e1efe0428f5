//! The thread that compacts logs: asks the shards which log needs it most, makes its new segments, and gives
//! them to the log's shard to put in place.
//!
//! Owns the thread and what a shard is asked; the order of the passes is [`Passes`]'s. A shard is asked and told, and
//! never waits. Tested in `tests/engine/compaction.rs`.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;

use super::message::ShardMessage;
use super::metrics::EngineCounters;
use super::pending::block_on;
use crate::log::compaction::{
    CleanedSegment, CleanerConfig, CleaningId, CleaningJob, CompactedLogs, CompactionError, Dirtiness,
    PassOutcome, Passes,
};
use crate::rt::FileTable;
use crate::rt::mailbox::Mailbox;
use crate::types::{LogId, Offset};

/// What a shard is asked for the sake of compaction.
#[derive(Debug)]
pub(super) enum CompactionRequest {
    Dirty(oneshot::Sender<Vec<(Dirtiness, LogId)>>),
    Begin(LogId, oneshot::Sender<Option<CleaningJob>>),
    /// Answered once the segment is in place.
    SwapIn(LogId, CleanedSegment, oneshot::Sender<Result<(), CleanedSegment>>),
    End(LogId, CleaningId, Option<Offset>, oneshot::Sender<bool>),
}

/// The directories of the logs that are not compacted any more, and why.
pub(super) type CompactionFailures = Arc<Mutex<Vec<(PathBuf, Arc<CompactionError>)>>>;

/// The running thread.
#[derive(Debug)]
pub(super) struct CompactionThread {
    stopped: Arc<AtomicBool>,
    failures: CompactionFailures,
    thread: JoinHandle<()>,
}

impl CompactionThread {
    pub(super) fn start(
        shards: Vec<Mailbox<ShardMessage>>,
        config: CleanerConfig,
        backoff: Duration,
        counters: Arc<EngineCounters>,
    ) -> io::Result<Self> {
        let (stopped, failures) = (Arc::new(AtomicBool::new(false)), CompactionFailures::default());
        let (stop, failed) = (Arc::clone(&stopped), Arc::clone(&failures));
        let thread = thread::Builder::new()
            .name("ringlog-cleaner".to_owned())
            .spawn(move || {
                let mut passes = Passes::new(Shards(shards), config);
                while !stop.load(Ordering::Relaxed) {
                    let mut pace = |_| !stop.load(Ordering::Relaxed);
                    match passes.clean_one(&mut FileTable::new(), &mut pace) {
                        Some((_, PassOutcome::Cleaned(_))) => {
                            counters.compactions.add(1);
                            continue;
                        }
                        Some((dir, PassOutcome::Failed(error))) => failed
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push((dir, Arc::new(error))),
                        Some((_, PassOutcome::Stale | PassOutcome::NoSpace(_))) | None => {}
                    }
                    // Woken when it is to stop, unless that has woken it while a shard was asked.
                    if !stop.load(Ordering::Relaxed) {
                        thread::park_timeout(backoff);
                    }
                }
            })?;
        Ok(Self {
            stopped,
            failures,
            thread,
        })
    }

    pub(super) fn failures(&self) -> Vec<(PathBuf, Arc<CompactionError>)> {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Tells it to stop: a pass under way ends at its next chunk.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }

    /// Waits for its end. To be called once it was told to stop and the shards have ended: they answer it, or
    /// are gone.
    pub(super) fn join(self) -> thread::Result<()> {
        self.thread.join()
    }
}

/// The shards' logs.
struct Shards(Vec<Mailbox<ShardMessage>>);

impl Shards {
    /// Asks a shard; none where it has ended.
    fn ask<T>(
        &self,
        shard: usize,
        request: impl FnOnce(oneshot::Sender<T>) -> CompactionRequest,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        block_on(async {
            let message = ShardMessage::Compaction(request(reply));
            self.0[shard].send(message).await.ok()?;
            answer.await.ok()
        })
    }
}

impl CompactedLogs for Shards {
    /// The shard, and its log.
    type Id = (usize, LogId);

    fn dirty(&mut self) -> Vec<(Dirtiness, Self::Id)> {
        let of_shard = |shard| {
            let dirty = self.ask(shard, CompactionRequest::Dirty).unwrap_or_default();
            dirty
                .into_iter()
                .map(move |(dirtiness, log)| (dirtiness, (shard, log)))
        };
        (0..self.0.len()).flat_map(of_shard).collect()
    }

    fn begin(&mut self, (shard, log): Self::Id) -> Option<CleaningJob> {
        self.ask(shard, |reply| CompactionRequest::Begin(log, reply))
            .flatten()
    }

    fn swap_in(&mut self, (shard, log): Self::Id, new: CleanedSegment) -> Result<(), Option<CleanedSegment>> {
        match self.ask(shard, |reply| CompactionRequest::SwapIn(log, new, reply)) {
            Some(swapped) => swapped.map_err(Some),
            None => Err(None),
        }
    }

    fn end(&mut self, (shard, log): Self::Id, job: CleaningId, clean_end: Option<Offset>) -> bool {
        let end = |reply| CompactionRequest::End(log, job, clean_end, reply);
        self.ask(shard, end) == Some(true)
    }
}
