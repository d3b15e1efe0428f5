//! The load: several logs appended to, rolled, truncated, cut at the start, closed and opened.
//!
//! Owns the order of notes and deeds: an append is said before it is written, an acknowledgement when
//! the log gives it. Knows no disk but the file that takes notes. A planted fault makes it lie as a
//! program would that left a sync out, or trusted what is not durable.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use ringlog_engine::config::FlushPolicy;
use ringlog_engine::log::Log;
use ringlog_engine::rt::{BackendChoice, ShardConfig, ShardIo, spawn_shard};
use ringlog_engine::types::{LeaderEpoch, Offset, Sequence, TimestampMs};

use super::note::{BatchNote, Note, Speaker};
use super::owner::{LOGS, Owner};
use crate::Outcome;
use crate::random::Random;

/// A fault that the test must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// Acknowledge what is written as durable, as if the fdatasync was left out.
    AckWritten,
    /// Record what is written as the recovery point.
    CheckpointWritten,
}

/// A log is cut at its start where it would be larger.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Batches of one log that may wait for their acknowledgement.
const UNACKNOWLEDGED_MAX: usize = 64;

/// What the load does.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadOptions {
    /// The directory of the logs.
    pub dir: PathBuf,
    /// The file that takes notes.
    pub notes: PathBuf,
    /// What is done follows from it; when it is done does not.
    #[arg(long)]
    pub seed: u64,
    /// How much is appended, in MiB.
    #[arg(long)]
    pub mib: u64,
    /// A fault.
    #[arg(long)]
    pub plant: Option<Plant>,
}

/// Runs the load to its end.
///
/// # Errors
///
/// Where the logs refuse or storage fails.
pub fn load(options: LoadOptions) -> Outcome<()> {
    on_a_shard(|io| async move {
        let mut load = Load::new(&options, io)?;
        load.run(options.mib << 20).await
    })
}

/// Runs `main` on a shard of its own.
pub(super) fn on_a_shard<Fut>(main: impl FnOnce(ShardIo) -> Fut + Send + 'static) -> Outcome<()>
where
    Fut: Future<Output = Outcome<()>> + 'static,
{
    let config = ShardConfig {
        index: 0,
        cpu: None,
        name: "power-cut".to_owned(),
        backend: BackendChoice::Auto,
    };
    let shard = spawn_shard(config, move |context| main(context.io))?;
    shard.join().map_err(|_| "the shard has panicked")?
}

struct Load {
    owner: Owner,
    random: Random,
    plant: Option<Plant>,
    speaker: Speaker,
    logs: Vec<State>,
}

struct State {
    /// All that are in the log.
    batches: Vec<BatchNote>,
    acknowledged: Offset,
    epoch: i32,
}

impl State {
    fn new() -> Self {
        Self {
            batches: Vec::new(),
            acknowledged: Offset(0),
            epoch: 0,
        }
    }
}

impl Load {
    fn new(options: &LoadOptions, io: ShardIo) -> Outcome<Self> {
        let (owner, _) = Owner::open(io, Path::new(&options.dir), TimestampMs(1_000_000))?;
        Ok(Self {
            owner,
            random: Random::new(options.seed),
            plant: options.plant,
            speaker: Speaker::open(&options.notes)?,
            logs: (0..LOGS).map(|_| State::new()).collect(),
        })
    }

    async fn run(&mut self, bytes: u64) -> Outcome<()> {
        let mut appended = 0;
        while appended < bytes {
            self.owner.now.0 += 1;
            for log in 0..LOGS {
                if self.random.one_in(2) {
                    appended += self.append(log)?;
                }
            }
            self.speaker.say()?;
            self.owner.end_turn();
            self.owner.wait().await;
            self.acknowledge();
            self.speaker.say()?;
            self.do_what_is_rare().await?;
        }
        for log in 0..LOGS {
            self.owner.logs[log].request_flush();
            self.owner.settle(log).await?;
        }
        self.acknowledge();
        self.speaker.say()
    }

    /// Stages one batch or several, small or large; returns their bytes.
    fn append(&mut self, log: usize) -> Outcome<u64> {
        let unacknowledged = self.logs[log].batches.iter().rev();
        let unacknowledged =
            unacknowledged.take_while(|batch| batch.next_offset() > self.logs[log].acknowledged);
        if unacknowledged.count() > UNACKNOWLEDGED_MAX && log != 3 {
            return Ok(0);
        }
        let mut bytes = 0;
        for _ in 0..=self.random.below(4) {
            self.owner.now.0 += 1;
            let value_bytes_max = if self.random.one_in(20) { 20_000 } else { 700 };
            let last = self.logs[log].batches.last();
            let next_sequence = last.map_or(Some(Sequence(0)), BatchNote::next_sequence);
            let batch = BatchNote {
                log,
                base_offset: self.owner.logs[log].log_end_offset(),
                epoch: LeaderEpoch(self.logs[log].epoch),
                records: i32::try_from(self.random.below(4) + 1)?,
                value_bytes: self.random.below(value_bytes_max) + 1,
                timestamp: self.owner.now,
                sequence: next_sequence.filter(|_| log.is_multiple_of(2)),
            };
            let stored = batch.bytes();
            bytes += stored.len() as u64;
            let now = self.owner.now;
            let info =
                self.owner.logs[log].append_as_leader(BytesMut::from(&stored[..]), batch.epoch, now)?;
            if info.duplicate || info.base_offset != batch.base_offset {
                return Err(format!("{batch:?} was appended as {info:?}").into());
            }
            self.logs[log].batches.push(batch);
            self.speaker.note(Note::Append(batch));
        }
        Ok(bytes)
    }

    fn acknowledge(&mut self) {
        for log in 0..LOGS {
            let state = &self.owner.logs[log];
            let planted =
                self.plant == Some(Plant::AckWritten) && state.config().flush_policy == FlushPolicy::Group;
            let offset = if planted {
                state.written_offset()
            } else {
                state.flushed_offset()
            };
            if offset > self.logs[log].acknowledged {
                self.logs[log].acknowledged = offset;
                self.speaker.note(Note::Durable { log, offset });
            }
        }
    }

    async fn do_what_is_rare(&mut self) -> Outcome<()> {
        let log = self.random.below(LOGS);
        if self.random.one_in(40) {
            let written = self.plant == Some(Plant::CheckpointWritten);
            self.owner.checkpoint(if written {
                Log::written_offset
            } else {
                Log::flushed_offset
            })?;
        }
        if self.random.one_in(60) || self.owner.logs[log].size_bytes() > LOG_BYTES_MAX {
            self.move_start(log)?;
        }
        if self.random.one_in(150) {
            self.truncate(log).await?;
        }
        if self.random.one_in(200) {
            self.owner.settle(log).await?;
            self.owner.reopen(log)?;
            self.acknowledge();
        }
        if self.random.one_in(100) {
            self.logs[log].epoch += 1;
        }
        if self.random.one_in(30) {
            self.owner.logs[log].request_flush();
        }
        self.speaker.say()
    }

    fn move_start(&mut self, log: usize) -> Outcome<()> {
        let state = &mut self.owner.logs[log];
        let start = state.log_start_offset();
        let offset = start.plus(
            self.random
                .below(usize::try_from(state.flushed_offset().0 - start.0)? + 1) as i64,
        );
        self.speaker.note(Note::Starting { log, offset });
        self.speaker.say()?;
        self.owner.logs[log].increment_log_start_offset(offset, &mut self.owner.queue)?;
        self.owner.checkpoint(Log::flushed_offset)?;
        self.speaker.note(Note::Started { log, offset });
        Ok(())
    }

    async fn truncate(&mut self, log: usize) -> Outcome<()> {
        self.owner.settle(log).await?;
        self.acknowledge();
        let (start, end) = (
            self.owner.logs[log].log_start_offset(),
            self.owner.logs[log].log_end_offset(),
        );
        // Mostly the last few batches, at times much of the log. Where nothing goes nothing is made durable.
        let removed = usize::try_from(end.0 - start.0)?;
        if removed == 0 {
            return Ok(());
        }
        let removed = if self.random.one_in(4) {
            removed
        } else {
            removed.min(20)
        };
        let offset = end.plus(-((self.random.below(removed) + 1) as i64));
        self.speaker.note(Note::Truncating { log, offset });
        self.speaker.say()?;
        let end = self.owner.truncate(log, offset)?;
        self.speaker.note(Note::Truncated { log, offset: end });
        let state = &mut self.logs[log];
        state.batches.retain(|batch| batch.next_offset() <= end);
        state.acknowledged = end;
        Ok(())
    }
}
