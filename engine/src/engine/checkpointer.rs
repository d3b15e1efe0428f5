//! The thread beside the shards: has logs flushed and records checkpoints in time, and removes what was deleted.
//!
//! Owns the data directory and what its checkpoint files are to say, which the shards put there. Blocks where the shards
//! must not: it writes and syncs small files and unlinks large ones. Invariant: the numbers are written as they were at one
//! moment, and a file that is written later never says what an earlier moment said. Tested in `tests/engine/open.rs` and
//! `tests/engine/truncate.rs`.

use std::fs;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::message::ShardMessage;
use super::pending::block_on;
use crate::data_dir::{DataDir, DataDirError, LastRun, OffsetCheckpoint, Offsets};
use crate::log::checkpoint::TopicPartition;
use crate::rt::mailbox::Mailbox;
use crate::types::Offset;

/// The directory, and what its checkpoint files are to say.
#[derive(Debug)]
pub(super) struct Checkpoints {
    dir: DataDir,
    offsets: Mutex<CheckpointOffsets>,
}

#[derive(Clone, Debug, Default)]
struct CheckpointOffsets {
    recovery_points: Offsets,
    log_starts: Offsets,
    first_dirty: Offsets,
}

impl Checkpoints {
    pub(super) fn new(dir: DataDir, last_run: &LastRun) -> Self {
        Self {
            dir,
            offsets: Mutex::new(CheckpointOffsets {
                recovery_points: last_run.recovery_points.clone(),
                log_starts: last_run.log_starts.clone(),
                first_dirty: last_run.first_dirty.clone(),
            }),
        }
    }

    pub(super) fn dir(&self) -> &DataDir {
        &self.dir
    }

    pub(super) fn put(
        &self,
        log: &TopicPartition,
        recovery_point: Offset,
        log_start: Offset,
        first_dirty: Offset,
    ) {
        let mut offsets = self.offsets();
        offsets.recovery_points.insert(log.clone(), recovery_point);
        offsets.log_starts.insert(log.clone(), log_start);
        offsets.first_dirty.insert(log.clone(), first_dirty);
    }

    pub(super) fn remove(&self, log: &TopicPartition) {
        let mut offsets = self.offsets();
        offsets.recovery_points.remove(log);
        offsets.log_starts.remove(log);
        offsets.first_dirty.remove(log);
    }

    /// Log starts first: a log start without its recovery point costs a scan, the other way round records could come back.
    pub(super) fn write(&self) -> Result<(), DataDirError> {
        let offsets = self.offsets().clone();
        self.dir
            .write_checkpoint(OffsetCheckpoint::LogStart, &offsets.log_starts)?;
        self.dir
            .write_checkpoint(OffsetCheckpoint::RecoveryPoint, &offsets.recovery_points)?;
        self.dir
            .write_checkpoint(OffsetCheckpoint::FirstDirty, &offsets.first_dirty)
    }

    fn offsets(&self) -> MutexGuard<'_, CheckpointOffsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread is asked. Shards have one request of a log under way at most, so that these are bounded by the logs.
pub(super) enum CheckpointRequest {
    /// Write the files as they should be now.
    Write(oneshot::Sender<Result<(), Arc<DataDirError>>>),
    /// Unlink directories that were renamed away.
    RemoveRetired,
    /// End.
    Stop,
}

/// The running thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    pub(super) requests: Sender<CheckpointRequest>,
    thread: JoinHandle<()>,
}

impl Checkpointer {
    pub(super) fn start(
        checkpoints: Arc<Checkpoints>,
        interval: Duration,
        shards: Vec<Mailbox<ShardMessage>>,
    ) -> io::Result<Self> {
        let (requests, receiver) = channel();
        let thread = thread::Builder::new()
            .name("ringlog-chkpt".to_owned())
            .spawn(move || run(&checkpoints, interval, &shards, &receiver))?;
        Ok(Self { requests, thread })
    }

    /// Waits until it has done what it was asked.
    pub(super) fn stop(self) -> thread::Result<()> {
        // If it has ended already, then by a panic, which the join tells.
        let _ = self.requests.send(CheckpointRequest::Stop);
        self.thread.join()
    }
}

fn run(
    checkpoints: &Checkpoints,
    interval: Duration,
    shards: &[Mailbox<ShardMessage>],
    requests: &Receiver<CheckpointRequest>,
) {
    // What is flushed for one is recorded by the next.
    let interval = interval / 2;
    let mut due = Instant::now() + interval;
    loop {
        let first = match requests.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if first.is_none() {
            due = Instant::now() + interval;
            publish_all(shards);
            // Tried again in time; until then a start after a crash scans more.
            let _ = checkpoints.write();
            continue;
        }
        // One write serves all who ask meanwhile.
        let (mut waiting, mut remove, mut stop) = (Vec::new(), false, false);
        for request in first.into_iter().chain(requests.try_iter()) {
            match request {
                CheckpointRequest::Write(reply) => waiting.push(reply),
                CheckpointRequest::RemoveRetired => remove = true,
                CheckpointRequest::Stop => stop = true,
            }
        }
        if !waiting.is_empty() {
            let written = checkpoints.write().map_err(Arc::new);
            for reply in waiting {
                let _ = reply.send(written.clone());
            }
        }
        if remove {
            // What stays is tried again at the next open.
            for dir in checkpoints.dir.retired().unwrap_or_default() {
                let _ = fs::remove_dir_all(dir);
            }
        }
        if stop {
            return;
        }
    }
}

fn publish_all(shards: &[Mailbox<ShardMessage>]) {
    for shard in shards {
        let (reply, answer) = oneshot::channel();
        block_on(async {
            // A shard that has ended has published at its end.
            if shard.send(ShardMessage::Publish(reply)).await.is_ok() {
                let _ = answer.await;
            }
        });
    }
}
