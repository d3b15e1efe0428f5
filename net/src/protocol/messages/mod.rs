//! The messages: one file per API, every version, request and response.
//!
//! The files hold definitions only, in the language of `define.rs`. Names are the protocol guide's.
//! Decoding borrows from the frame; what a decoded message takes in memory is bounded by the frame's
//! length (`decode.rs`).

pub mod alter_configs;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod find_coordinator;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;

pub use super::message::Message;
