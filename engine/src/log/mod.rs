//! The state machine of one log; synchronous; knows no ring, thread, clock or socket.

pub mod checkpoint;
pub mod leader_epoch_cache;
pub mod partition_metadata;
pub mod producer_entry;
pub mod producer_snapshot;
pub mod producer_state;
