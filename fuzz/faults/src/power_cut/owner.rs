//! A few logs in one directory with the checkpoints their owner keeps, on one shard.
//!
//! Owns what a program does that embeds logs, and no more: it opens them by its checkpoints, ends turns,
//! waits for completions, records recovery points and log starts. Knows no notes. Tested by running it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::io::{IoCompletion, IoQueue, Storage};
use ringlog_engine::log::checkpoint::{TopicPartition, decode_offsets, encode_offsets};
use ringlog_engine::log::{Log, Narrow, OpenOptions, RecoveryReport};
use ringlog_engine::rt::ShardIo;
use ringlog_engine::types::{LogId, Offset, TimestampMs};

use crate::Outcome;

/// How many logs there are.
pub const LOGS: usize = 4;

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const CHECKPOINT_BYTES_MAX: u64 = 1 << 20;

/// The settings of the log with this number: small segments of different sizes, one in four
/// acknowledging what is written.
#[must_use]
pub fn config(log: usize) -> LogConfig {
    LogConfig {
        segment_bytes: [96 << 10, 256 << 10, 1 << 20, 160 << 10][log % LOGS],
        index_interval_bytes: [512, 4096, 4096, 1024][log % LOGS],
        flush_policy: if log % LOGS == 3 {
            FlushPolicy::Os
        } else {
            FlushPolicy::Group
        },
        ..LogConfig::default()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Owner {
    io: ShardIo,
    dir: PathBuf,
    /// The logs, by their numbers.
    pub logs: Vec<Log>,
    /// The clock.
    pub now: TimestampMs,
    /// Requests of the turn.
    pub queue: IoQueue,
    completed: Vec<IoCompletion>,
    next_id: u32,
}

impl Owner {
    /// Opens, or makes, the logs in `dir` after an unclean stop.
    ///
    /// # Errors
    ///
    /// Where a log does not open, or a checkpoint cannot be read.
    pub fn open(io: ShardIo, dir: &Path, now: TimestampMs) -> Outcome<(Self, Vec<RecoveryReport>)> {
        io.files().borrow_mut().create_dir(dir)?;
        let mut owner = Self {
            io,
            dir: dir.to_owned(),
            logs: Vec::new(),
            now,
            queue: IoQueue::new(),
            completed: Vec::new(),
            next_id: 0,
        };
        let (recovery_points, log_starts) = (owner.offsets(RECOVERY_POINTS)?, owner.offsets(LOG_STARTS)?);
        let mut reports = Vec::new();
        for log in 0..LOGS {
            let options = OpenOptions {
                recovery_point: recovery_points[log],
                log_start_offset: log_starts[log],
                clean_shutdown: false,
                now,
            };
            let (log, report) = owner.open_log(log, options)?;
            owner.logs.push(log);
            reports.push(report);
        }
        Ok((owner, reports))
    }

    fn open_log(&mut self, log: usize, options: OpenOptions) -> Outcome<(Log, RecoveryReport)> {
        let dir = self.dir.join(format!("power-{log}"));
        let id = LogId(self.next_id);
        self.next_id += 1;
        let mut files = self.io.files().borrow_mut();
        Ok(Log::open(&dir, id, config(log), options, &mut *files)?)
    }

    fn offsets(&self, name: &str) -> Outcome<Vec<Offset>> {
        let path = self.dir.join(name);
        let offsets = match self
            .io
            .files()
            .borrow_mut()
            .read_file(&path, CHECKPOINT_BYTES_MAX)
        {
            Ok(bytes) => decode_offsets(&bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        let offset = |log| offsets.get(&name_of(log)).copied().unwrap_or(Offset(0));
        Ok((0..LOGS).map(offset).collect())
    }

    /// Records recovery points and log starts; they are durable on return.
    ///
    /// # Errors
    ///
    /// Where storage fails.
    pub fn checkpoint(&mut self, recovery_point: impl Fn(&Log) -> Offset) -> Outcome<()> {
        let put = |name: &str, offset: &dyn Fn(&Log) -> Offset| {
            let offsets = self.logs.iter().enumerate();
            let offsets = offsets
                .map(|(log, state)| (name_of(log), offset(state)))
                .collect();
            let text = encode_offsets(&offsets);
            let mut files = self.io.files().borrow_mut();
            files.put_file(&self.dir.join(name), text.as_bytes())
        };
        put(RECOVERY_POINTS, &recovery_point)?;
        put(LOG_STARTS, &Log::log_start_offset)?;
        Ok(())
    }

    /// Ends a turn: what the logs want of storage goes to the ring.
    pub fn end_turn(&mut self) {
        for log in &mut self.logs {
            log.poll_io(&mut self.queue, self.now);
        }
        self.io.submit(self.queue.drain());
    }

    /// Waits until something has completed, unless nothing is under way.
    pub async fn wait(&mut self) {
        if self.logs.iter().any(Log::has_requests_in_flight) {
            self.io.completions(&mut self.completed).await;
        }
        for completion in self.completed.drain(..) {
            let log = self.logs.iter_mut().find(|log| log.id() == completion.log);
            log.expect("a log is idle when it is closed")
                .handle_io(completion);
        }
    }

    /// Turns until the log has nothing left to do.
    ///
    /// # Errors
    ///
    /// Where storage failed.
    pub async fn settle(&mut self, log: usize) -> Outcome<()> {
        loop {
            self.end_turn();
            if let Some(poison) = self.logs[log].poison() {
                return Err(poison.clone().into());
            }
            if self.logs[log].is_idle() {
                return Ok(());
            }
            self.wait().await;
        }
    }

    /// Removes everything from `offset` on, and lowers the recovery point with it. The log is settled.
    ///
    /// # Errors
    ///
    /// Where storage fails.
    pub fn truncate(&mut self, log: usize, offset: Offset) -> Outcome<Offset> {
        let end = {
            let mut files = self.io.files().borrow_mut();
            self.logs[log].truncate_to(offset, &mut *files)?
        };
        self.checkpoint(Log::flushed_offset)?;
        Ok(end)
    }

    /// Stops a settled log cleanly and opens it again.
    ///
    /// # Errors
    ///
    /// Where either fails, or batches had to be looked at.
    pub fn reopen(&mut self, log: usize) -> Outcome<()> {
        self.logs[log].close(&mut *self.io.files().borrow_mut())?;
        let options = OpenOptions {
            recovery_point: self.logs[log].log_end_offset(),
            log_start_offset: self.logs[log].log_start_offset(),
            clean_shutdown: true,
            now: self.now,
        };
        let (opened, report) = self.open_log(log, options)?;
        if report.scanned_segments > 0 || report.cut.is_some() {
            return Err(format!("log {log} was recovered after a clean stop: {report:?}").into());
        }
        self.logs[log] = opened;
        Ok(())
    }

    /// Reads from `offset` on as a consumer does: at most 64 KiB, the first batch whole. `None` where
    /// the log has nothing.
    ///
    /// # Errors
    ///
    /// Where the log's bytes make no sense.
    pub fn read(&self, log: usize, offset: Offset) -> Outcome<Option<Vec<u8>>> {
        let (log, mut from) = (&self.logs[log], offset);
        loop {
            let Some(mut plan) = log.read_plan(from, 64 << 10, log.log_end_offset())? else {
                return Ok(None);
            };
            let mut files = self.io.files().borrow_mut();
            let mut next_segment = None;
            while !plan.is_located() && next_segment.is_none() {
                let mut chunk = vec![0; plan.scan_bytes() as usize];
                let count = files.read_at(plan.file, plan.scan_position(), &mut chunk)?;
                match plan.narrow(&chunk[..count])? {
                    Narrow::Located | Narrow::NeedMore => {}
                    Narrow::Nothing => return Ok(None),
                    Narrow::NextSegment(next) => next_segment = Some(next),
                }
            }
            if let Some(next) = next_segment {
                from = next;
                continue;
            }
            let mut bytes = vec![0; plan.len_bytes as usize];
            let count = files.read_at(plan.file, plan.position, &mut bytes)?;
            bytes.truncate(count);
            return Ok(Some(bytes));
        }
    }
}

fn name_of(log: usize) -> TopicPartition {
    TopicPartition {
        topic: "power".to_owned(),
        partition: i32::try_from(log).expect("few logs"),
    }
}
