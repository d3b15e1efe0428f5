//! The broker: sockets in, shards around the replication crate's decisions, replies out.
//!
//! In reading order: how it starts and stops (`server`), what listens (`listener`, `limited_log`), one client
//! (`connection`, `frame_reader`, `frame_pool`, `budget`), one request (`dispatch`, `handlers`, `response`,
//! `error_map`), one core (`shard`, `shard_request`, `resolve`, `retention`, `route`), and the changes to topics and
//! settings (`control`, `control_request`, `topic_changes`,
//! `config_changes`, `topic_name`, `data_dir`, `adopt`); beside a stopped broker, `repair` and `repair_storage`.

mod adopt;
mod budget;
mod compaction;
mod config_changes;
mod connection;
mod control;
mod control_request;
mod data_dir;
mod dispatch;
mod error_map;
mod frame_pool;
mod frame_reader;
mod handlers;
mod limited_log;
mod listener;
pub(crate) mod repair;
pub(crate) mod repair_storage;
mod resolve;
mod response;
mod retention;
mod route;
#[expect(clippy::module_inception, reason = "the file is named after what it owns")]
mod server;
mod shard;
mod shard_request;
mod topic_changes;
mod topic_name;

pub use control::ControlError;
pub use data_dir::DataDirError;
pub use listener::BindError;
pub use repair::RepairError;
pub use server::{ServeError, run};
