//! Compaction: of the records with one key only the latest stays (Kafka's `cleanup.policy=compact`).
//!
//! In reading order: `log_cleaning`, what a [`Log`](super::Log) decides (what is dirty, which segments
//! go, when the new ones take their place); [`Cleaner`], which makes the new segments, blocking, on a
//! thread of its own; what it needs to know for that (`offset_map`, `transactions`); [`Passes`], the order of
//! such passes over many logs.

mod cleaned_writer;
mod cleaner;
mod epoch_changes;
mod job;
mod log_cleaning;
mod offset_map;
mod passes;
mod segment_reader;
mod swap;
mod transactions;

pub(super) use cleaner::DECOMPRESSED_BYTES_MAX;
pub use cleaner::{Cleaner, CleanerConfig, CleaningStats, CompactionError, Pace};
pub use job::{CleanedSegment, CleaningId, CleaningJob};
pub(super) use log_cleaning::Cleaning;
pub use log_cleaning::Dirtiness;
pub use passes::{CompactedLogs, PassOutcome, Passes};
