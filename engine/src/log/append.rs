//! The leader's append: check, decide the place, write it into the batch, stage the batch.
//!
//! Owns the order of these steps: whatever can refuse a batch comes before the first change, so a
//! refused batch leaves no trace. Bytes are not copied. Knows no requests (`write_pipeline.rs`).
//! Tested in `tests/log_append.rs`.

use bytes::BytesMut;

use super::compaction::DECOMPRESSED_BYTES_MAX;
use super::file_name::FileKind;
use super::log::Log;
use super::log_segment::{BatchFacts, LogSegment, SegmentPhase};
use super::operation::Put;
use super::producer_snapshot;
use super::producer_state::{ProducerError, SequenceCheck};
use super::recent_batches::RecentBatch;
use super::txn_index::AbortedTxn;
use super::write_pipeline::{Poison, STAGED_BYTES_MAX, StagedBatch};
use crate::config::TimestampType;
use crate::record::{BatchError, BatchHeader, EndTxnMarker, RecordBatch, RecordError};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// Where an appended batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// The timestamp it was given under LogAppendTime, else [`TimestampMs::NONE`].
    pub log_append_time: TimestampMs,
    /// It had been appended before, at these offsets, and was not appended again.
    pub duplicate: bool,
    /// The log's first readable offset.
    pub log_start_offset: Offset,
}

/// Why a batch is not appended. The log is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The batch is not acceptable.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A timestamp lies too far from the broker's clock.
    #[error("timestamp {timestamp} is out of the accepted range at {now}")]
    Timestamp {
        /// The producer's.
        timestamp: TimestampMs,
        /// The broker's.
        now: TimestampMs,
    },
    /// A record has no key, by which a compacted log could tell it from others.
    #[error("record {record} of the batch has no key, which a compacted log needs")]
    NoKey {
        /// Its place in the batch, from 0.
        record: usize,
    },
    /// The records do not read, and so cannot be compacted.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The producer's epoch or sequence does not follow.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// A later leader has appended already.
    #[error("leader epoch {leader_epoch} lies below {latest}, which has appended")]
    StaleEpoch {
        /// The appending leader's.
        leader_epoch: LeaderEpoch,
        /// The log's.
        latest: LeaderEpoch,
    },
    /// The disk is full, or the process may open no further file; appends are taken again once that has changed.
    #[error("the disk is full, or too many files are open")]
    StorageFull,
    /// Storage is slower than the appends; try again.
    #[error("{unwritten_bytes} bytes wait to be written")]
    Overloaded {
        /// What the log holds.
        unwritten_bytes: usize,
    },
    /// A write or a sync failed before.
    #[error(transparent)]
    Poisoned(#[from] Poison),
}

/// Whether every record has a key.
fn check_keys(batch: &[u8]) -> Result<(), AppendError> {
    let records = RecordBatch::parse(batch)?.records(DECOMPRESSED_BYTES_MAX)?;
    for (number, record) in records.iter().enumerate() {
        if record?.key.is_none() {
            return Err(AppendError::NoKey { record: number });
        }
    }
    Ok(())
}

impl Log {
    /// Appends one batch as the leader of `leader_epoch`, at the log's end.
    ///
    /// The batch is taken whole and is not copied; its base offset and leader epoch are written in
    /// place, and under LogAppendTime its timestamp is `now`. A batch of an idempotent producer that
    /// was appended before is acknowledged with its first offsets.
    ///
    /// # Durability
    ///
    /// None on return: see [`written_offset`](Self::written_offset) and
    /// [`flushed_offset`](Self::flushed_offset).
    ///
    /// # Errors
    ///
    /// Why it is refused; the log is unchanged.
    pub fn append_as_leader(
        &mut self,
        mut batch: BytesMut,
        leader_epoch: LeaderEpoch,
        now: TimestampMs,
    ) -> Result<AppendInfo, AppendError> {
        self.check_writable(batch.len())?;
        self.check_epoch(leader_epoch)?;
        let max_bytes = self.config.max_message_bytes.min(self.config.segment_bytes);
        let header = *RecordBatch::validate_from_producer(&batch, max_bytes)?.header();
        let log_append_time = self.check_timestamps(&header, now)?;
        if self.config.compaction.is_some() {
            check_keys(&batch)?;
        }
        if let SequenceCheck::Duplicate {
            base_offset,
            last_offset,
            timestamp,
        } = self.producers.check(&header)?
        {
            let log_append_time = if log_append_time == TimestampMs::NONE {
                log_append_time
            } else {
                timestamp
            };
            let log_start_offset = self.log_start_offset;
            return Ok(AppendInfo {
                base_offset,
                last_offset,
                log_append_time,
                duplicate: true,
                log_start_offset,
            });
        }

        let base_offset = self.log_end_offset;
        RecordBatch::assign(&mut batch, base_offset, leader_epoch)?;
        if log_append_time != TimestampMs::NONE {
            RecordBatch::set_log_append_time(&mut batch, log_append_time)?;
        }
        let header = *BatchHeader::peek(&batch)?;
        self.stage(&header, None, batch, now);
        Ok(AppendInfo {
            base_offset,
            last_offset: header.last_offset(),
            log_append_time,
            duplicate: false,
            log_start_offset: self.log_start_offset,
        })
    }

    pub(super) fn check_writable(&self, len_bytes: usize) -> Result<(), AppendError> {
        if let Some(poison) = self.poison() {
            return Err(poison.clone().into());
        }
        if self.pipeline.is_stalled() {
            return Err(AppendError::StorageFull);
        }
        let unwritten_bytes = self.pipeline.unwritten_bytes();
        if unwritten_bytes + len_bytes > STAGED_BYTES_MAX {
            return Err(AppendError::Overloaded { unwritten_bytes });
        }
        Ok(())
    }

    pub(super) fn check_epoch(&self, leader_epoch: LeaderEpoch) -> Result<(), AppendError> {
        match self.latest_epoch() {
            Some(latest) if leader_epoch < latest => Err(AppendError::StaleEpoch { leader_epoch, latest }),
            _ => Ok(()),
        }
    }

    /// The timestamp the batch is to get, or none if the producer's stays.
    fn check_timestamps(&self, header: &BatchHeader, now: TimestampMs) -> Result<TimestampMs, AppendError> {
        if self.config.timestamp_type == TimestampType::LogAppendTime {
            return Ok(now);
        }
        for timestamp in [header.base_timestamp(), header.max_timestamp()] {
            if !self.config.accepts_timestamp(timestamp, now) {
                return Err(AppendError::Timestamp { timestamp, now });
            }
        }
        Ok(TimestampMs::NONE)
    }

    /// Accounts for a batch whose header is final and stages its bytes. `marker` is that of a control
    /// batch.
    pub(super) fn stage(
        &mut self,
        header: &BatchHeader,
        marker: Option<EndTxnMarker>,
        batch: BytesMut,
        now: TimestampMs,
    ) {
        let facts = BatchFacts::of(header);
        if self
            .segments
            .active()
            .should_roll_before(&facts, &self.config, now)
        {
            self.roll(now);
        }
        self.epochs_changed |= self
            .epochs
            .assign(header.partition_leader_epoch(), facts.base_offset);
        self.cleaning.handle_append(header, &self.producers);
        let ended = self.producers.update(header, marker);
        let segment = self.segments.active_mut();
        if let Some(aborted) = ended.as_ref().and_then(AbortedTxn::of) {
            segment.txn_index.append(aborted);
        }
        let position = segment.append(facts, self.config.index_interval_bytes);
        segment.note_modified(now);
        let next_offset = facts.last_offset.plus(1);
        let recent = RecentBatch {
            base_offset: facts.base_offset,
            next_offset,
            position,
            len_bytes: facts.len_bytes,
        };
        self.recent.push(recent, self.pipeline.flushed);
        let segment = segment.base_offset;
        self.pipeline.stage(StagedBatch {
            segment,
            position,
            next_offset,
            bytes: batch.freeze(),
        });
        self.log_end_offset = next_offset;
    }

    /// Starts a new segment at the log's end. The producers' state of this moment is put beside it;
    /// the indexes of the old one follow when it is flushed.
    pub(super) fn roll(&mut self, now: TimestampMs) {
        let base_offset = self.log_end_offset;
        let file = self.new_file();
        self.segments
            .push(LogSegment::new(base_offset, file, SegmentPhase::Planned, now));
        let path = FileKind::Snapshot.path(&self.dir, base_offset);
        let bytes = producer_snapshot::encode(&self.producers).into();
        self.pipeline.put(Put {
            path,
            bytes,
            before_sync: false,
        });
        // Nothing else does so where the old one has been flushed to its end.
        self.seal_flushed_segments();
    }
}
