//! The engine: a locked directory, its shards, and the logs by name.
//!
//! Owns opening and closing, and which logs there are. Recovers all logs at opening, the shards side by side; a log that
//! does not open leaves the others alone. Knows no records. Tested in `tests/engine/open.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::checkpointer::{CheckpointRequest, Checkpointer, Checkpoints};
use super::compaction::CompactionThread;
use super::config::EngineConfig;
use super::engine_shard::{self, ClosedLog, EngineShardSetup};
use super::error::{DeleteLogError, EngineCloseError, EngineOpenError, Gone, OpenLogError};
use super::handle::{LogHandle, REQUEST_BYTES, now};
use super::log_name;
use super::log_shared::LogShared;
use super::message::{LogRequest, OpenLog, ShardMessage};
use super::metrics::{EngineCounters, EngineMetrics};
use super::pending::block_on;
use crate::config::LogConfig;
use crate::data_dir::{DataDir, DistrustedCheckpoint, LastRun, Offsets, holds_segments};
use crate::log::compaction::CompactionError;
use crate::log::{OpenError, OpenOptions};
use crate::rt::mailbox::{Mailbox, mailboxes};
use crate::rt::{BackendKind, ShardConfig, ShardHandle, spawn_shard};
use crate::types::{LogId, Offset};

/// A directory of logs, open. See the [crate's guide](crate).
///
/// Dropping it closes it as [`close`](Self::close) does, and nobody hears what went wrong. Handles that are left then answer
/// [`Gone::Closed`].
pub struct Engine {
    config: EngineConfig,
    shards: Vec<Shard>,
    checkpoints: Arc<Checkpoints>,
    /// `None` only once closed.
    checkpointer: Option<Checkpointer>,
    /// `None` until all logs have been looked at.
    compaction: Option<CompactionThread>,
    logs: Mutex<BTreeMap<String, KnownLog>>,
    next_log: AtomicU32,
    distrusted: Vec<DistrustedCheckpoint>,
    /// All logs have been looked at.
    opened: bool,
}

struct Shard {
    mailbox: Mailbox<ShardMessage>,
    handle: ShardHandle<Vec<ClosedLog>>,
    counters: Arc<EngineCounters>,
}

#[derive(Debug)]
enum KnownLog {
    Open(LogHandle),
    Failed(Arc<OpenError>),
}

impl Engine {
    /// Opens the engine in `dir`, which is created if need be, and recovers every log in it. Blocks until that is done: at once
    /// after a clean close; else as long as reading what was written since the last checkpoint takes.
    ///
    /// A log that does not open is no error here: [`log`](Self::log) answers it, and [`failed_logs`](Self::failed_logs) lists it.
    ///
    /// # Errors
    ///
    /// See [`EngineOpenError`]; [`DataDirError::Locked`](crate::data_dir::DataDirError::Locked) where another process, or
    /// another engine of this one, has the directory open.
    pub fn open(dir: impl AsRef<Path>, config: EngineConfig) -> Result<Self, EngineOpenError> {
        check(&config)?;
        let dir = DataDir::open(dir.as_ref())?;
        let names = dir.directories()?;
        let last_run = dir.begin_run()?;
        let checkpoints = Arc::new(Checkpoints::new(dir, &last_run));
        let (senders, receivers) = mailboxes(config.shards, config.mailbox_requests);
        let checkpointer = Checkpointer::start(
            Arc::clone(&checkpoints),
            config.checkpoint_interval,
            senders.clone(),
        )
        .map_err(EngineOpenError::Thread)?;
        let mut engine = Self {
            shards: Vec::with_capacity(config.shards),
            checkpoints,
            checkpointer: Some(checkpointer),
            compaction: None,
            logs: Mutex::default(),
            next_log: AtomicU32::new(0),
            distrusted: Vec::new(),
            opened: false,
            config,
        };
        for (index, (mailbox, receiver)) in senders.into_iter().zip(receivers).enumerate() {
            let shard = engine.start_shard(index, mailbox, receiver)?;
            engine.shards.push(shard);
        }
        engine.open_logs(&names, &last_run);
        engine.distrusted = last_run.distrusted;
        engine.opened = true;
        let mailboxes = engine.shards.iter().map(|shard| shard.mailbox.clone()).collect();
        let (cleaner, backoff) = (engine.config.cleaner, engine.config.cleaner_backoff);
        let counters = Arc::clone(&engine.shards[0].counters);
        let compaction = CompactionThread::start(mailboxes, cleaner, backoff, counters);
        engine.compaction = Some(compaction.map_err(EngineOpenError::Thread)?);
        engine.ask_checkpointer(CheckpointRequest::RemoveRetired);
        Ok(engine)
    }

    fn start_shard(
        &self,
        index: usize,
        mailbox: Mailbox<ShardMessage>,
        receiver: crate::rt::mailbox::MailboxReceiver<ShardMessage>,
    ) -> Result<Shard, EngineOpenError> {
        let counters = Arc::new(EngineCounters::default());
        let checkpointer = self.checkpointer.as_ref().expect("it was just started");
        let setup = EngineShardSetup {
            checkpoints: Arc::clone(&self.checkpoints),
            checkpointer: checkpointer.requests.clone(),
            counters: Arc::clone(&counters),
            retention_check_interval: self.config.retention_check_interval,
            mailbox: receiver,
        };
        let config = ShardConfig {
            index,
            cpu: self.config.pin_shards.then_some(index),
            name: format!("ringlog-{index}"),
            backend: self.config.backend,
        };
        let open_max = self.config.open_files_max / self.config.shards;
        let handle = spawn_shard(config, move |context| {
            context.io.files().borrow_mut().set_open_max(open_max);
            engine_shard::run(context, setup)
        })?;
        Ok(Shard {
            mailbox,
            handle,
            counters,
        })
    }

    /// Opens every log there is; the shards do it side by side.
    fn open_logs(&mut self, names: &[String], last_run: &LastRun) {
        let dir = self.checkpoints.dir().path().to_owned();
        let is_log = |name: &&String| log_name::check(name).is_ok() && holds_segments(&dir.join(name));
        let asked: Vec<_> = names
            .iter()
            .filter(is_log)
            .map(|name| {
                (
                    name,
                    self.ask_to_open(name, self.config.log.clone(), Some(last_run)),
                )
            })
            .collect();
        for (name, (handle, answer)) in asked {
            let known = match block_on(answer) {
                Ok(Ok(())) => KnownLog::Open(handle),
                Ok(Err(error)) => KnownLog::Failed(Arc::new(error)),
                // The shard has panicked: every request to it says that it is gone.
                Err(_) => KnownLog::Open(handle),
            };
            self.logs().insert(name.clone(), known);
        }
    }

    fn ask_to_open(
        &self,
        name: &str,
        config: LogConfig,
        last_run: Option<&LastRun>,
    ) -> (LogHandle, oneshot::Receiver<Result<(), OpenError>>) {
        let id = LogId(self.next_log.fetch_add(1, Ordering::Relaxed));
        let shard = &self.shards[log_name::shard_of(name, self.shards.len())];
        let shared = Arc::new(LogShared::new(
            id,
            name,
            shard.mailbox.clone(),
            self.config.log_buffer_bytes,
            Arc::clone(&shard.counters),
        ));
        let key = log_name::checkpoint_key(name);
        let recorded = |offsets: fn(&LastRun) -> &Offsets| {
            last_run.map_or(Offset(0), |run| {
                offsets(run).get(&key).copied().unwrap_or(Offset(0))
            })
        };
        let options = OpenOptions {
            recovery_point: recorded(|run| &run.recovery_points),
            log_start_offset: recorded(|run| &run.log_starts),
            clean_shutdown: last_run.is_some_and(|run| run.clean && run.recovery_points.contains_key(&key)),
            now: now(),
        };
        let first_dirty_offset = recorded(|run| &run.first_dirty);
        let (reply, answer) = oneshot::channel();
        let open = OpenLog {
            shared: Arc::clone(&shared),
            key,
            dir: self.checkpoints.dir().path().join(name),
            config,
            options,
            first_dirty_offset,
            reply,
        };
        // A shard that is gone has closed the answer's channel.
        let _ = block_on(shard.mailbox.send(ShardMessage::Open(Box::new(open))));
        (LogHandle { shared }, answer)
    }

    /// The log called `name`, which is created if there is none, with the engine's settings for logs. Blocks: not at all for a
    /// log that is there, for some syncs of the disk for a new one.
    ///
    /// # Durability
    ///
    /// A new log survives a crash of the kernel on return.
    ///
    /// # Errors
    ///
    /// See [`OpenLogError`].
    pub fn log(&self, name: &str) -> Result<LogHandle, OpenLogError> {
        self.open_log(name, None)
    }

    /// As [`log`](Self::log), with settings of its own, which a log that is there takes over.
    ///
    /// # Errors
    ///
    /// See [`OpenLogError`].
    pub fn log_with(&self, name: &str, config: LogConfig) -> Result<LogHandle, OpenLogError> {
        self.open_log(name, Some(config))
    }

    fn open_log(&self, name: &str, config: Option<LogConfig>) -> Result<LogHandle, OpenLogError> {
        log_name::check(name)?;
        let open_error = |source| OpenLogError::Open {
            name: name.to_owned(),
            source,
        };
        let mut logs = self.logs();
        match logs.get(name) {
            Some(KnownLog::Open(handle)) => {
                let handle = handle.clone();
                drop(logs);
                if let Some(config) = config {
                    handle.set_config(config).wait()?;
                }
                return Ok(handle);
            }
            Some(KnownLog::Failed(error)) => return Err(open_error(Arc::clone(error))),
            None => {}
        }
        let config = config.unwrap_or_else(|| self.config.log.clone());
        let (handle, answer) = self.ask_to_open(name, config, None);
        match block_on(answer) {
            Ok(Ok(())) => {
                logs.insert(name.to_owned(), KnownLog::Open(handle.clone()));
                Ok(handle)
            }
            Ok(Err(error)) => Err(open_error(Arc::new(error))),
            Err(_) => Err(Gone::Closed.into()),
        }
    }

    /// Deletes the log called `name`, if there is one: its directory is renamed at once and removed in the background. What is
    /// under way for it is answered [`Gone::Deleted`], and so is everything later. Blocks.
    ///
    /// # Durability
    ///
    /// Survives a crash of the kernel on return.
    ///
    /// # Errors
    ///
    /// See [`DeleteLogError`].
    pub fn delete_log(&self, name: &str) -> Result<(), DeleteLogError> {
        log_name::check(name)?;
        let mut logs = self.logs();
        match logs.remove(name) {
            Some(KnownLog::Open(handle)) => handle.request(REQUEST_BYTES, LogRequest::Delete).wait(),
            Some(KnownLog::Failed(_)) => {
                self.checkpoints.dir().retire(name)?;
                self.checkpoints.remove(&log_name::checkpoint_key(name));
                self.ask_checkpointer(CheckpointRequest::RemoveRetired);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The names of all logs, sorted, those that did not open among them.
    #[must_use]
    pub fn logs_by_name(&self) -> Vec<String> {
        self.logs().keys().cloned().collect()
    }

    /// The logs that did not open, and why.
    #[must_use]
    pub fn failed_logs(&self) -> Vec<(String, Arc<OpenError>)> {
        let failed = |(name, log): (&String, &KnownLog)| match log {
            KnownLog::Failed(error) => Some((name.clone(), Arc::clone(error))),
            KnownLog::Open(_) => None,
        };
        self.logs().iter().filter_map(failed).collect()
    }

    /// Logs that are not compacted any more until the engine is opened anew, by their directories, and why: a batch was
    /// damaged, or storage failed. They go on without.
    #[must_use]
    pub fn failed_compactions(&self) -> Vec<(PathBuf, Arc<CompactionError>)> {
        let compaction = self.compaction.as_ref();
        compaction.map_or_else(Vec::new, CompactionThread::failures)
    }

    /// Checkpoint files that could not be read at opening, so that logs were verified from their start: worth a line in the
    /// program's log, since it tells of a damaged disk.
    #[must_use]
    pub fn distrusted_checkpoints(&self) -> &[DistrustedCheckpoint] {
        &self.distrusted
    }

    /// How storage requests are executed, and, where io_uring was wanted and cannot be used, why, with the remedy.
    #[must_use]
    pub fn backend(&self) -> (BackendKind, Option<&std::io::Error>) {
        let first = &self.shards[0].handle;
        (first.backend(), first.fallback_reason())
    }

    /// What the engine has done so far.
    #[must_use]
    pub fn metrics(&self) -> EngineMetrics {
        let mut sum = EngineMetrics::default();
        for shard in &self.shards {
            sum.add(&shard.counters, shard.handle.counters());
        }
        sum
    }

    /// Makes everything durable, closes every log, and says on disk that all is well, so that the next open need not look at any
    /// batch. Blocks. What was asked before is carried out; what comes after is answered [`Gone::Closed`].
    ///
    /// # Errors
    ///
    /// See [`EngineCloseError`]. The engine is closed in any case.
    pub fn close(mut self) -> Result<(), EngineCloseError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), EngineCloseError> {
        let Some(checkpointer) = self.checkpointer.take() else {
            return Ok(());
        };
        let compaction = self.compaction.take().inspect(CompactionThread::stop);
        for shard in &self.shards {
            // One that has panicked is found out below.
            let _ = block_on(shard.mailbox.send(ShardMessage::Stop));
        }
        let joined: Vec<_> = self.shards.drain(..).map(|shard| shard.handle.join()).collect();
        let stopped = checkpointer.stop();
        let compacted = compaction.map_or(Ok(()), CompactionThread::join);
        let mut closed = Vec::new();
        for logs in joined {
            closed.extend(logs.map_err(|_| EngineCloseError::Panicked)?);
        }
        stopped.and(compacted).map_err(|_| EngineCloseError::Panicked)?;
        if !self.opened {
            return Ok(());
        }
        self.checkpoints.write()?;
        for (name, closed) in closed {
            closed.map_err(|source| EngineCloseError::Log { name, source })?;
        }
        // A log that did not open, and is mended by hand, is to be verified then.
        if self.failed_logs().is_empty() {
            self.checkpoints.dir().end_run()?;
        }
        Ok(())
    }

    fn ask_checkpointer(&self, request: CheckpointRequest) {
        if let Some(checkpointer) = &self.checkpointer {
            // It ends only at closing.
            let _ = checkpointer.requests.send(request);
        }
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<String, KnownLog>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // `close` is for whoever wants to know.
        let _ = self.shut_down();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("dir", &self.checkpoints.dir().path())
            .field("logs", &self.logs().len())
            .finish_non_exhaustive()
    }
}

fn check(config: &EngineConfig) -> Result<(), EngineOpenError> {
    let rules = [
        ("shards", config.shards > 0),
        ("mailbox_requests", config.mailbox_requests > 0),
        (
            "log_buffer_bytes",
            EngineConfig::LOG_BUFFER_BYTES.contains(&config.log_buffer_bytes),
        ),
        ("open_files_max", config.open_files_max > 0),
        ("checkpoint_interval", config.checkpoint_interval.as_millis() > 0),
        (
            "retention_check_interval",
            config.retention_check_interval.as_millis() > 0,
        ),
        ("cleaner_backoff", config.cleaner_backoff.as_millis() > 0),
        (
            "cleaner.map_load_percent",
            (1..=99).contains(&config.cleaner.map_load_percent),
        ),
    ];
    match rules.into_iter().find(|(_, holds)| !holds) {
        Some((setting, _)) => Err(EngineOpenError::Config { setting }),
        None => Ok(()),
    }
}
