//! Plain counters of what an engine has done; no exporter, no clock.
//!
//! Each shard counts for itself; [`EngineMetrics`] is the sum at one moment. Two counters of one sum may be of slightly
//! different moments.

use crate::rt::{Counter, Counters};

/// What one shard's logs have done.
#[derive(Debug, Default)]
pub(super) struct EngineCounters {
    pub(super) appends: Counter,
    pub(super) append_bytes: Counter,
    pub(super) refused: Counter,
    pub(super) waits: Counter,
    pub(super) no_room: Counter,
    pub(super) locates: Counter,
    pub(super) turns: Counter,
    pub(super) read_bytes: Counter,
    pub(super) cold_reads: Counter,
    pub(super) compactions: Counter,
}

/// What an engine has done since it was opened; every number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// Batches appended.
    pub appends: u64,
    /// Bytes of those.
    pub append_bytes: u64,
    /// Batches that logs did not take.
    pub refused_appends: u64,
    /// Calls that had to wait for room.
    pub waits_for_room: u64,
    /// `try_` calls that were refused for want of room.
    pub refused_for_room: u64,
    /// Ranges that were looked up for readers.
    pub locates: u64,
    /// Bytes that readers have read.
    pub read_bytes: u64,
    /// Chunks that were not in the page cache and were read by the shard.
    pub cold_reads: u64,
    /// Passes of compaction that came to their end, each over one log.
    pub compactions: u64,
    /// Turns of the shards' loops: requests that come together share one, and its writes and syncs.
    pub turns: u64,
    /// Writes given to the kernel; less than appends where they are grouped. 0 without io_uring.
    pub writes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Calls of `fdatasync`, those at opening and closing apart. 0 without io_uring.
    pub syncs: u64,
    /// Storage requests done by helper threads: 0 unless io_uring is not used.
    pub blocking_ops: u64,
}

impl EngineMetrics {
    pub(super) fn add(&mut self, engine: &EngineCounters, storage: &Counters) {
        self.appends += engine.appends.value();
        self.append_bytes += engine.append_bytes.value();
        self.refused_appends += engine.refused.value();
        self.waits_for_room += engine.waits.value();
        self.refused_for_room += engine.no_room.value();
        self.locates += engine.locates.value();
        self.read_bytes += engine.read_bytes.value();
        self.cold_reads += engine.cold_reads.value();
        self.compactions += engine.compactions.value();
        self.turns += engine.turns.value();
        self.writes += storage.ring_writes.value();
        self.write_bytes += storage.ring_write_bytes.value();
        self.syncs += storage.ring_syncs.value();
        self.blocking_ops += storage.blocking_ops.value();
    }
}
