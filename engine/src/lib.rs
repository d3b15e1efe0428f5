//! The storage engine of ringlog.
//!
//! An append-only log per partition in Apache Kafka's own on-disk format. The crate knows
//! nothing of brokers, in-sync replicas, Kafka requests or consumer groups.
//!
//! The parts, each knowing only those before it: [`types`], [`record`] (byte formats), [`io`]
//! (the vocabulary of storage requests), [`log`] (the state machine of one log) and `rt`
//! (feature `rt`: the only place with system calls).

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
