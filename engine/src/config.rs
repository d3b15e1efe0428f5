//! What can be set about a log: unit, range, default and reason of each field.
//!
//! Names follow Kafka's topic configs; parsing text into these belongs to the caller.

use crate::types::TimestampMs;

/// When appended batches are made durable, and so when `group` acknowledges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlushPolicy {
    /// One pipelined fdatasync for all that has been written; committed means on stable storage.
    #[default]
    Group,
    /// The operating system decides; committed means written (Kafka's default behaviour).
    Os,
    /// fdatasync every so many milliseconds; committed means written.
    Interval {
        /// Milliseconds between two syncs, at least 1.
        flush_ms: u64,
    },
}

/// Which timestamp a stored batch carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's clock at append.
    LogAppendTime,
}

/// When a log is compacted, and for how long what was deleted can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionConfig {
    /// A record without a value stays for so long after its first compaction (`delete.retention.ms`),
    /// default 1 day: a consumer that reads from the start in that time learns of every deletion.
    pub delete_retention_ms: i64,
    /// Compacted once more than this part of the bytes is dirty, in millionths
    /// (`min.cleanable.dirty.ratio`), default 500,000.
    pub min_dirty_ratio_ppm: u32,
    /// A segment whose latest record is younger stays as it is (`min.compaction.lag.ms`), default 0.
    pub min_lag_ms: i64,
    /// Compacted however little is dirty once a record has waited for longer
    /// (`max.compaction.lag.ms`), default unbounded.
    pub max_lag_ms: i64,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            delete_retention_ms: 86_400_000,
            min_dirty_ratio_ppm: 500_000,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
        }
    }
}

/// The settings of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A segment is rolled before it would pass this many bytes (`segment.bytes`): 1 MiB (tests: any) to
    /// 2 GiB - 1, as which more counts; default 1 GiB as in Kafka.
    pub segment_bytes: u32,
    /// A segment whose first record is older than this is rolled at the next append (`segment.ms`),
    /// default 7 days.
    pub segment_ms: i64,
    /// A segment goes once its latest record is older than this (`retention.ms`); `None` keeps it
    /// forever, default 7 days.
    pub retention_ms: Option<i64>,
    /// The oldest segments go while those that remain hold at least so many bytes
    /// (`retention.bytes`); `None`, the default, is no limit.
    pub retention_bytes: Option<u64>,
    /// One index entry per this many bytes of log (`index.interval.bytes`), default 4096.
    pub index_interval_bytes: u32,
    /// The largest RecordBatch accepted, header included (`max.message.bytes`), default 1,048,588.
    pub max_message_bytes: u32,
    /// See [`FlushPolicy`] (`flush.policy`).
    pub flush_policy: FlushPolicy,
    /// A log that is appended to at a rate and flushed, under [`FlushPolicy::Group`] or on request, keeps
    /// zeros written ahead of its data, at most so many bytes, which spares its syncs the metadata and writes each byte twice.
    /// Not so while a sync covers more than 128 KiB on average. Rounded down to a multiple of 4,096; 0 for none; default 8 MiB.
    pub zero_window_bytes_max: u32,
    /// See [`TimestampType`] (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// How far a producer's timestamp may lie before the broker's clock
    /// (`message.timestamp.before.max.ms`), default unbounded.
    pub timestamp_before_max_ms: i64,
    /// How far it may lie after (`message.timestamp.after.max.ms`), default 1 hour.
    pub timestamp_after_max_ms: i64,
    /// An idempotent producer idle for longer is forgotten (`producer.id.expiration.ms`), at the latest by the
    /// next checkpoint but one; default 1 day.
    pub producer_id_expiration_ms: i64,
    /// Whether and when only the latest record of each key is kept (`cleanup.policy` with `compact`);
    /// records without a key are refused then. Default no.
    pub compaction: Option<CompactionConfig>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            retention_ms: Some(7 * 24 * 3600 * 1000),
            retention_bytes: None,
            index_interval_bytes: 4096,
            max_message_bytes: 1_048_588,
            flush_policy: FlushPolicy::default(),
            zero_window_bytes_max: 8 << 20,
            timestamp_type: TimestampType::default(),
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            producer_id_expiration_ms: 86_400_000,
            compaction: None,
        }
    }
}

/// Kafka's positions within a segment are signed.
const SEGMENT_BYTES_MAX: u32 = i32::MAX.unsigned_abs();

impl LogConfig {
    /// These settings, each within its bounds.
    pub(crate) fn bounded(mut self) -> Self {
        self.segment_bytes = self.segment_bytes.min(SEGMENT_BYTES_MAX);
        self
    }

    /// Whether a CreateTime timestamp is within the configured distance of `now`.
    #[must_use]
    pub fn accepts_timestamp(&self, timestamp: TimestampMs, now: TimestampMs) -> bool {
        timestamp == TimestampMs::NONE
            || (now.0.saturating_sub(timestamp.0) <= self.timestamp_before_max_ms
                && timestamp.0.saturating_sub(now.0) <= self.timestamp_after_max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_stays_below_what_kafkas_positions_reach() {
        let bounded = |segment_bytes| {
            let config = LogConfig {
                segment_bytes,
                ..LogConfig::default()
            };
            config.bounded().segment_bytes
        };
        assert_eq!([1, 1 << 30, u32::MAX].map(bounded), [1, 1 << 30, 2_147_483_647]);
    }
}
