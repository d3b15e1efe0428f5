//! The embedder's API: an engine is a directory of logs, some threads that own them, and handles to reach them.
//!
//! In reading order: [`Engine`] and its configuration; [`LogHandle`] and what its calls return ([`Pending`],
//! [`Batch`], [`Reader`]); the errors, an enum for each operation; what runs on a shard (`engine_shard`, `log_slot`,
//! `locate`, `retention`) and beside it (`checkpointer`, `compaction`). Invariants: one shard touches a log, and nobody else; whatever a call hands over
//! is owned by the shard from then on, so that a dropped call leaves nothing half done.

mod config;
#[expect(clippy::module_inception, reason = "the file is named after its main type")]
mod engine;

mod batch;
mod handle;
mod new_record;
mod pending;
mod reader;

mod error;
mod log_name;
mod metrics;

mod checkpointer;
mod compaction;
mod engine_shard;
mod locate;
mod log_shared;
mod log_slot;
mod message;
mod retention;

pub use batch::{Batch, BatchRecords};
pub use config::{Durability, EngineConfig, ReadConfig, Visibility};
pub use engine::Engine;
pub use error::{
    AppendError, DeleteLogError, EngineCloseError, EngineOpenError, FlushError, Gone, OpenLogError,
    ReadError, TruncateError,
};
pub use handle::LogHandle;
pub use log_name::LogNameError;
pub use log_shared::LogOffsets;
pub use metrics::EngineMetrics;
pub use new_record::NewRecord;
pub use pending::Pending;
pub use reader::{FoundOffset, Reader, ReaderStream};
