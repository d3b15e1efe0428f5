//! The storage engine of ringlog: append-only logs in Apache Kafka's on-disk format, durable when you say so.
//!
//! An [`Engine`] is a directory of logs and a few threads of its own, which write, sync and recover them over io_uring. A
//! [`LogHandle`] reaches one log from any thread and from any async runtime. Appends that are under way together share writes
//! and syncs, whoever made them; so a write-ahead log gets group commit without doing anything for it. What is on disk can be read
//! by Kafka's own tools.
//!
//! Not in this crate: brokers, replication, consumer groups, keys and queries. Records are bytes, in order, with offsets.
//!
//! # First steps
//!
//! ```
//! use ringlog_engine::types::Offset;
//! use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! let engine = Engine::open(path, EngineConfig::default())?;
//! let log = engine.log("payments")?;
//!
//! // Returns once the record is on stable storage. In async code: `.await` instead of `.wait()`.
//! let first = log.append(&[NewRecord::value(b"10 EUR to Ada")], Durability::Flushed).wait()?;
//! assert_eq!(first.base_offset, Offset(0));
//!
//! // Several at once: in order, one sync for all.
//! let pending: Vec<_> = (0..10)
//!     .map(|i| log.append(&[NewRecord::key_value(b"EUR", &[i])], Durability::Flushed))
//!     .collect();
//! for pending in pending {
//!     pending.wait()?;
//! }
//!
//! for batch in log.scan(Offset(1)) {
//!     for record in batch?.records()?.iter() {
//!         let record = record?;
//!         assert_eq!(record.value, Some(&[u8::try_from(record.offset.0 - 1)?][..]));
//!     }
//! }
//! engine.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embed.rs` is a key-value store with crash recovery, `examples/tail.rs` follows a log from a thread and from a task.
//!
//! # What is durable when
//!
//! What an answered append survives, by the [`Durability`] the call asked for. *Stable* means that `fdatasync` has returned;
//! a disk that lies about that voids the last column.
//!
//! | answered with | the process dies (`kill -9`, a panic, `abort`) | the kernel crashes, the power fails |
//! |---|---|---|
//! | [`Durability::Buffered`] | perhaps | perhaps |
//! | [`Durability::Written`] | yes | what was stable; the end of the log may be lost |
//! | [`Durability::Flushed`], or `Ok` of [`LogHandle::flush`] after it | yes | yes, and so is everything before it in that log |
//! | not answered, or an error of [unknown outcome](engine::AppendError::is_outcome_unknown) | perhaps | perhaps |
//! | [`Engine::log`] for a new log, [`Engine::delete_log`], truncation of either end, once they return | yes | yes |
//! | everything, after [`Engine::close`] has returned `Ok` | yes | yes |
//!
//! "Perhaps" is never half: a batch is there whole or not at all, and never without those before it. Where the end of a log is lost,
//! the offsets of what is lost are given to new records; an offset that was answered as `Flushed` is never given twice.
//!
//! When a sync happens that no call asks for is the log's [`FlushPolicy`](config::FlushPolicy): not by itself (`Os`, the engine's
//! default), after every write (`Group`), or in time (`Interval`). Whatever the policy, a segment is synced when it is full, and what
//! has been written is synced for the checkpoints.
//!
//! # What goes
//!
//! By default nothing is removed but by a truncation or a deletion. A log with
//! [`retention_ms`](config::LogConfig::retention_ms) or [`retention_bytes`](config::LogConfig::retention_bytes) loses its oldest
//! segments, whole ones, once they are too old or too much; they are looked for every
//! [`retention_check_interval`](EngineConfig::retention_check_interval). A crash may bring back what went last, until the next look.
//!
//! A log with [`compaction`](config::LogConfig::compaction) keeps the latest record of each key, and takes none without a key. Offsets
//! stay as they are, with gaps. A segment is looked at once it is full and flushed; readers go on meanwhile. A log that cannot be
//! compacted goes on without, and [`Engine::failed_compactions`] says why.
//!
//! # Failures
//!
//! A failed write or sync makes its log read-only until the engine is opened anew: the kernel may have dropped the pages, so a second
//! sync that succeeds proves nothing. A full disk, or a process that may open no further file, does not: appends are refused
//! ([`log::AppendError::StorageFull`]), those already taken wait, and both go on by themselves once there is room.
//!
//! # Recovery
//!
//! After a clean close nothing is scanned. Otherwise each log is verified from its recovery point on, which lags by a
//! [`checkpoint_interval`](EngineConfig::checkpoint_interval) at most; what does not make sense at the end, such as a torn batch, is cut. Below
//! it, in the segment it lies in, only the headers of batches are looked at. Damage that is found
//! *below* the recovery point is not a torn end but a disk that lost what it had promised: nothing is cut, that log does not open
//! ([`engine::OpenLogError::Open`] names the file and the position), and the others do. Every read verifies the checksum of each
//! batch.
//!
//! # Limits
//!
//! | what | limit | at the limit |
//! |---|---|---|
//! | one batch | [`max_message_bytes`](config::LogConfig::max_message_bytes), default 1 MiB | refused |
//! | what one log has under way: batches until they are answered (`Buffered`: until written), other requests at 1 KiB each | [`log_buffer_bytes`](EngineConfig::log_buffer_bytes), default 16 MiB | calls wait, `try_` calls are refused |
//! | requests in a shard's mailbox | [`mailbox_requests`](EngineConfig::mailbox_requests), default 1,024 | the same |
//! | storage requests of one log in flight | two writes, one sync, and a few small ones | later ones are grouped |
//! | reads of one shard from the disk under way | 128 | further ones wait |
//! | a segment | [`segment_bytes`](config::LogConfig::segment_bytes), default 1 GiB, less than 2 GiB | a new one is begun |
//! | what a reader holds | [`chunk_bytes`](engine::ReadConfig::chunk_bytes), default 256 KiB, or one batch; more while [`Batch`](engine::Batch)es are kept | |
//! | what compaction takes | [`cleaner`](EngineConfig::cleaner), default 128 MiB, less for fewer records | a pass reaches less far |
//! | a compressed batch unpacks to | 128 MiB | an error |
//! | open segments | [`open_files_max`](EngineConfig::open_files_max), half of what the process may open; more while they are read, or written and not flushed | others are closed, and opened again when they are read |
//! | a log's name | 200 bytes of `A-Z a-z 0-9 . _ -` | refused |
//!
//! # Threads, wakes, and cancelling
//!
//! A log belongs to one of [`shards`](EngineConfig::shards) threads, by a hash of its name; one more thread records checkpoints and removes
//! what was deleted, and one compacts. Handles talk to a shard through its mailbox. Reads of what is in the page cache happen on the
//! thread of the reader; the shard is asked where bytes lie, once for 16 MiB, and for what is not in the cache.
//!
//! A call hands its request over before it returns, if there is room, and then belongs to the shard: dropping the
//! [`Pending`](engine::Pending) changes nothing but that nobody hears of the outcome. Where there is no room the request waits in the
//! `Pending`, and dropping that withdraws it. At no moment does a dropped future leave half a batch, take room for good, or concern
//! other calls. [`Engine::log`], [`Engine::delete_log`], [`Engine::open`] and [`Engine::close`] block their thread.
//!
//! # Errors
//!
//! One enum for each operation in [`engine`]; each variant's documentation says what to do. They are of three kinds: the caller's
//! (another name, offset or batch), the environment's (disk, permissions, limits; the message names file and remedy), and
//! [`engine::Gone`] (the log was deleted or the engine closed). Broken invariants panic on the shard's thread; every call then
//! answers `Gone::Closed`, and [`Engine::close`] says [`Panicked`](engine::EngineCloseError::Panicked).
//!
//! # Platform
//!
//! Linux. io_uring from kernel 5.6 on; where it is missing or forbidden (some containers) the engine uses a helper thread for
//! each shard instead, slower, and [`Engine::backend`] says why. Any file system with `fdatasync` that keeps its word; ext4 and xfs are
//! tested. Network file systems are not: the lock that keeps a second process out is `flock`.
//!
//! # Features
//!
//! | feature | default | what for |
//! |---|---|---|
//! | `rt` | yes | [`Engine`], and all system calls; without it the crate is formats and a state machine |
//! | `gzip`, `snappy`, `lz4`, `zstd` | yes | reading and making batches compressed so; `zstd` needs a C compiler |
//! | `testing` | no | a disk in memory and other fixtures |
//!
//! # The parts
//!
//! Each knows only those before it: [`types`], [`record`] (byte formats), [`io`] (the vocabulary of storage requests), [`log`] (the
//! state machine of one log), `rt` (the only place with system calls), [`engine`]. Beside them [`config`] (settings of one
//! log) and [`data_dir`] (lock, marker and checkpoints of a directory).
#![warn(missing_docs)]

pub mod config;
#[cfg(feature = "rt")]
pub mod data_dir;
#[cfg(feature = "rt")]
pub mod engine;
pub mod io;
pub mod log;
pub mod record;
#[cfg(feature = "rt")]
pub mod rt;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod types;

#[cfg(feature = "rt")]
pub use engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};
