//! The only system calls of the engine, and nearly all of its `unsafe`.
//!
//! Knows no log and no record format. In reading order: what a thread owns ([`shard`]), how
//! storage requests are executed (`ring`, or `blocking` where the kernel forbids io_uring),
//! how threads talk ([`mailbox`]), how file bytes reach a socket ([`sendfile`], [`residency`]).

pub mod counters;
pub mod file_table;
pub mod limits;
pub mod log_file;
pub mod mailbox;
pub mod residency;
pub mod sendfile;
pub mod shard;

mod blocking;
mod cold;
mod op;
mod ring;
mod shard_io;
mod zeros;

pub use counters::{Counter, Counters};
pub use file_table::FileTable;
pub use log_file::LogFile;
pub use sendfile::{FileRange, send_file};
pub use shard::{
    BackendChoice, BackendKind, ShardConfig, ShardContext, ShardHandle, ShardStartError, spawn_shard,
};
pub use shard_io::ShardIo;
