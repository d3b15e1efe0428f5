//! What a ringlog broker decides about its partitions.
//!
//! Knows no sockets, wire bytes, threads, wall clock or files; nothing here is `async`. The entry
//! is [`BrokerShard`]: everything one core owns. The server drives it through `handle_*` inputs
//! and drains its `poll_*` outputs; `now` is an argument, and a reply that waits is data in the
//! purgatory.
#![forbid(unsafe_code)]

pub mod broker_shard;
pub mod partition;
mod purgatory;
pub mod request;
pub mod types;

pub use broker_shard::BrokerShard;
