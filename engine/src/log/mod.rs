//! The state machine of one log; synchronous; knows no ring, thread, clock or socket.
//!
//! In reading order: [`Log`] and its commands (append, read, locate, truncate, open, retention), what carries
//! batches to stable storage (`write_pipeline`), segments and their indexes, recovery, the state
//! beside the batches, and [`compaction`].

pub mod checkpoint;
pub mod compaction;
pub mod index_hint;
mod leader_epoch_cache;
pub mod partition_metadata;
pub mod producer_entry;
pub mod producer_snapshot;
pub mod producer_state;

mod append;
mod end_txn;
mod failed_sync;
mod file_name;
mod load_state;
mod locate;
#[expect(clippy::module_inception, reason = "the file is named after its main type")]
mod log;
mod log_segment;
mod log_segments;
mod offset_index;
mod open;
mod open_checkpoint;
mod open_segments;
mod operation;
mod read;
mod recent_batches;
mod recovery;
mod retention;
mod segment_checkpoint;
mod time_index;
mod truncate;
mod txn_index;
mod write_pipeline;
mod zero_window;

pub use append::{AppendError, AppendInfo};
pub use locate::{Scan, ScanError, ScanPlan};
pub use log::{Log, LogStartOffsetError};
pub use open::{BegunAnew, Cut, OpenError, OpenOptions, RecoveryReport};
pub use read::{Narrow, NarrowError, ReadError, ReadPlan};
pub use recovery::Defect;
pub use truncate::{CloseError, TruncateError};
pub use txn_index::AbortedTxn;
pub use write_pipeline::Poison;
