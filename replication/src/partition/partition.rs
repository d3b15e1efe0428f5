//! A partition led by this broker: its log, leader epoch and high watermark.
//!
//! Owns the rule which offset acknowledges: the flushed one under `flush.policy=group`, the
//! written one otherwise. Knows no requests and no deadlines. Invariant INV-PART-1: HW <= written
//! end (a policy that turns to `group` may find HW ahead of the flushed end; it then waits).
//! Tested through `BrokerShard`.

use bytes::BytesMut;
use ringlog_engine::config::FlushPolicy;
use ringlog_engine::io::IoCompletion;
use ringlog_engine::log::compaction::{CleaningJob, Dirtiness};
use ringlog_engine::log::{AbortedTxn, AppendError, AppendInfo, Log, ReadPlan};
use ringlog_engine::record::EndTxnMarker;
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::HighWatermark;
use crate::request::{FetchError, FetchPartition, Isolation, PartitionOffsets};
use crate::types::TopicIdPartition;

/// One partition and its log.
#[derive(Debug)]
pub struct Partition {
    id: TopicIdPartition,
    log: Log,
    leader_epoch: LeaderEpoch,
    high_watermark: HighWatermark,
}

impl Partition {
    /// The leader, from `leader_epoch` on, of a partition whose only replica is `log`.
    ///
    /// All that recovery found is committed: no other replica can lack it.
    #[must_use]
    pub fn new(id: TopicIdPartition, mut log: Log, leader_epoch: LeaderEpoch) -> Self {
        let high_watermark = HighWatermark::new(Self::acknowledged_end(&log));
        log.handle_high_watermark(high_watermark.offset());
        Self {
            id,
            log,
            leader_epoch,
            high_watermark,
        }
    }

    /// Which partition this is.
    #[must_use]
    pub fn id(&self) -> TopicIdPartition {
        self.id
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its log, to change its configuration, its start or to close it.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Gives the log back, to be closed or deleted.
    #[must_use]
    pub fn into_log(self) -> Log {
        self.log
    }

    /// The epoch this broker leads in.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Appends one batch as the leader.
    ///
    /// # Errors
    ///
    /// As [`Log::append_as_leader`]; nothing is appended then.
    pub fn append(&mut self, batch: BytesMut, now: TimestampMs) -> Result<AppendInfo, AppendError> {
        self.log.append_as_leader(batch, self.leader_epoch, now)
    }

    /// Takes a completion of the log's; whether the high watermark moved.
    pub fn handle_io(&mut self, completion: IoCompletion) -> bool {
        self.log.handle_io(completion);
        let moved = self.high_watermark.advance([Self::acknowledged_end(&self.log)]);
        if moved {
            self.log.handle_high_watermark(self.high_watermark.offset());
        }
        assert!(
            self.high_watermark.offset() <= self.log.written_offset(),
            "INV-PART-1: HW {} <= written {}",
            self.high_watermark.offset(),
            self.log.written_offset()
        );
        moved
    }

    fn acknowledged_end(log: &Log) -> Offset {
        match log.config().flush_policy {
            FlushPolicy::Group => log.flushed_offset(),
            FlushPolicy::Os | FlushPolicy::Interval { .. } => log.written_offset(),
        }
    }

    /// Everything below is committed.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark.offset()
    }

    /// Everything below is committed and belongs to no open transaction.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        let hw = self.high_watermark();
        self.log
            .first_unstable_offset()
            .map_or(hw, |unstable| unstable.min(hw))
    }

    /// The aborted transactions that a reader of committed records has to skip in what
    /// [`read_plan`](Self::read_plan) gives; none where uncommitted records are read.
    #[must_use]
    pub fn aborted_transactions(
        &self,
        fetch: &FetchPartition,
        isolation: Isolation,
    ) -> Option<Vec<AbortedTxn>> {
        match isolation {
            Isolation::ReadUncommitted => None,
            Isolation::ReadCommitted => {
                let end = self.log.read_upper_bound(fetch.offset, fetch.max_bytes);
                let end = end.min(self.last_stable_offset());
                Some(self.log.aborted_transactions(fetch.offset, end))
            }
        }
    }

    /// Ends a producer's transaction in this partition, as the leader; the offsets of the marker.
    ///
    /// # Errors
    ///
    /// As [`Log::append_end_txn_marker`]; nothing is appended then.
    pub fn append_end_txn_marker(
        &mut self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        marker: EndTxnMarker,
        now: TimestampMs,
    ) -> Result<AppendInfo, AppendError> {
        let epoch = self.leader_epoch;
        self.log
            .append_end_txn_marker(producer_id, producer_epoch, marker, epoch, now)
    }

    /// Whether the log is to be compacted, and how much it needs it.
    #[must_use]
    pub fn dirtiness(&self, now: TimestampMs) -> Option<Dirtiness> {
        self.log.dirtiness(self.last_stable_offset(), now)
    }

    /// Begins to compact the log, never above the last stable offset: what lies above may be aborted,
    /// or truncated away.
    pub fn begin_cleaning(&mut self, now: TimestampMs) -> Option<CleaningJob> {
        self.log.begin_cleaning(self.last_stable_offset(), now)
    }

    /// The watermarks clients may ask for.
    #[must_use]
    pub fn offsets(&self) -> PartitionOffsets {
        PartitionOffsets {
            log_start_offset: self.log.log_start_offset(),
            high_watermark: self.high_watermark(),
            last_stable_offset: self.last_stable_offset(),
            log_end_offset: self.log.log_end_offset(),
            leader_epoch: self.leader_epoch,
        }
    }

    /// Checks the epoch a client believes in (KIP-320).
    ///
    /// # Errors
    ///
    /// When it is not this leader's.
    pub fn check_leader_epoch(&self, current: LeaderEpoch) -> Result<(), FetchError> {
        if current == LeaderEpoch::NONE || current == self.leader_epoch {
            Ok(())
        } else if current < self.leader_epoch {
            Err(FetchError::FencedLeaderEpoch)
        } else {
            Err(FetchError::UnknownLeaderEpoch)
        }
    }

    /// What a consumer may read now; `None` when nothing is there yet.
    ///
    /// # Errors
    ///
    /// A wrong epoch, or an offset outside the log.
    pub fn read_plan(
        &self,
        fetch: &FetchPartition,
        isolation: Isolation,
    ) -> Result<Option<ReadPlan>, FetchError> {
        self.check_leader_epoch(fetch.current_leader_epoch)?;
        let bound = match isolation {
            Isolation::ReadUncommitted => self.high_watermark(),
            Isolation::ReadCommitted => self.last_stable_offset(),
        };
        Ok(self.log.read_plan(fetch.offset, fetch.max_bytes, bound)?)
    }
}
