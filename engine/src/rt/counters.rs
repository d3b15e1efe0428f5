//! Plain counters of what one shard asked of the kernel; no exporter, no clock.
//!
//! Each is written by its shard's thread (and its helper thread) and read by anyone: relaxed
//! atomics, so a reader sees each counter exactly but no order between two of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, readable from any thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The sum so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one shard has done since it started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Write requests given to the storage ring.
    pub ring_writes: Counter,
    /// Bytes of those writes.
    pub ring_write_bytes: Counter,
    /// Bytes of zeros written ahead of the data, by the storage ring; not among `ring_write_bytes`.
    pub ring_zero_bytes: Counter,
    /// fdatasync requests given to the storage ring.
    pub ring_syncs: Counter,
    /// Read requests given to the storage ring, by logs and by callers.
    pub ring_reads: Counter,
    /// Requests done by the helper thread: 0 unless io_uring is not used.
    pub blocking_ops: Counter,
    /// Bytes moved from files to sockets by sendfile(2).
    pub sendfile_bytes: Counter,
    /// Calls of sendfile(2) that moved bytes.
    pub sendfile_calls: Counter,
    /// Bytes of segments read into user memory for a fetch: cold ranges that are warmed, and the headers
    /// that are walked where the index is too sparse. 0 where consumers are at the tail.
    pub fetch_bytes_copied: Counter,
    /// Ranges found cold before a send, which a ring read then brought into the page cache.
    pub residency_misses: Counter,
}
