//! What can be set about an engine and about its calls: unit, range, default and reason of each field.
//!
//! The settings of one log are [`LogConfig`]'s.

use std::time::Duration;

use crate::config::{FlushPolicy, LogConfig};
use crate::log::compaction::CleanerConfig;
use crate::rt::{BackendChoice, limits};
use crate::types::Offset;

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Threads that own the logs: 1 or more. Each log belongs to one of them, by a hash of its name. Default: one for each
    /// core, 4 at most; an idle one costs its stack.
    pub shards: usize,
    /// Whether shard `n` is pinned to core `n`. Default: no, since the cores are the program's.
    pub pin_shards: bool,
    /// How storage requests are executed. Default: io_uring where the kernel allows it.
    pub backend: BackendChoice,
    /// Requests that one shard's mailbox holds, of all its logs: 1 or more, default 1,024. A call waits while it is full.
    pub mailbox_requests: usize,
    /// Bytes of one log that are on their way: appended and not written yet, and 1 KiB for every other request. 64 KiB to
    /// 32 MiB, default 16 MiB. A call waits while they are used up.
    pub log_buffer_bytes: u32,
    /// Files of logs that may be open at a time: 1 or more, default half of what the process may open (`RLIMIT_NOFILE`), 65,536
    /// at most. The shards share them evenly. Segments used least recently are closed and opened again when they are read. More
    /// are open while they are read, or written and not flushed.
    pub open_files_max: usize,
    /// A start after a crash verifies each log from the segment on that it had come to so long before: 1 ms or more, default one
    /// minute. Twice in that time what no call has flushed is flushed, and up to where logs are flushed is recorded.
    pub checkpoint_interval: Duration,
    /// How often old segments are looked for (`log.retention.check.interval.ms`): 1 ms or more, default 5 minutes. The first
    /// look comes within 30 seconds.
    pub retention_check_interval: Duration,
    /// The memory of the thread that compacts logs whose settings say so ([`LogConfig::compaction`]). Default:
    /// [`CleanerConfig::default`].
    pub cleaner: CleanerConfig,
    /// How long that thread sleeps when no log needs it (`log.cleaner.backoff.ms`): 1 ms or more, default 15 seconds.
    pub cleaner_backoff: Duration,
    /// For logs that are opened without settings of their own. Default: [`LogConfig::default`], except that nothing is
    /// synced which neither a call nor a checkpoint asks to be ([`FlushPolicy::Os`]), and nothing removed for its age.
    pub log: LogConfig,
}

impl EngineConfig {
    /// The bounds of [`log_buffer_bytes`](Self::log_buffer_bytes).
    pub const LOG_BUFFER_BYTES: std::ops::RangeInclusive<u32> = 64 << 10..=32 << 20;
}

impl Default for EngineConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            shards: cores.min(4),
            pin_shards: false,
            backend: BackendChoice::Auto,
            mailbox_requests: 1024,
            log_buffer_bytes: 16 << 20,
            open_files_max: limits::open_files_max(),
            checkpoint_interval: Duration::from_secs(60),
            retention_check_interval: Duration::from_secs(300),
            cleaner: CleanerConfig::default(),
            cleaner_backoff: Duration::from_secs(15),
            log: LogConfig {
                flush_policy: FlushPolicy::Os,
                retention_ms: None,
                ..LogConfig::default()
            },
        }
    }
}

/// What has happened to a batch when its append is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It has its offsets and lies in the engine's memory: the end of the process may take it.
    Buffered,
    /// It has been handed to the operating system: it survives the end of the process, `kill -9` included, not that of the
    /// kernel or of the power.
    Written,
    /// It is on stable storage (`fdatasync` has returned), and so is everything before it in its log.
    Flushed,
}

/// How far a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Visibility {
    /// All that has been written; a crash of the kernel may take back what a reader has seen.
    #[default]
    Written,
    /// What is on stable storage, so that nothing a reader has seen is ever taken back.
    Flushed,
}

/// How a [`Reader`](super::Reader) reads.
#[derive(Clone, Debug)]
pub struct ReadConfig {
    /// How far it sees.
    pub visibility: Visibility,
    /// Bytes it reads at once, and holds, unless a batch is larger: 4 KiB to 16 MiB, default 256 KiB. It begins with less, so
    /// that reading one batch costs little.
    pub chunk_bytes: u32,
    /// It ends before this offset; `None`: it follows the log as it grows.
    pub end: Option<Offset>,
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self {
            visibility: Visibility::default(),
            chunk_bytes: 256 << 10,
            end: None,
        }
    }
}
