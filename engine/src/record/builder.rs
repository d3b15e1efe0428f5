//! Makes RecordBatches: for the client, for markers, for tests and benches.
//!
//! Owns the encoding of records, the counterpart of `record_iter.rs`. Keeps no clock: timestamps
//! are given. Exact bytes and round trips are tested in `tests.rs` and `proptests.rs`.

use bytes::Bytes;
use thiserror::Error;
use zerocopy::IntoBytes as _;
use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};

use super::{
    Attributes, BATCH_HEADER_LEN, BatchHeader, Compression, CompressionError, EndTxnMarker, Header,
    LOG_OVERHEAD, batch, compress, varint,
};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// The most bytes of records: what the length field can say, less the rest of the header.
const RECORDS_BYTES_MAX: usize = i32::MAX as usize - (BATCH_HEADER_LEN - LOG_OVERHEAD);

/// Why a batch could not be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The records do not fit one batch.
    #[error("records exceed the {RECORDS_BYTES_MAX} bytes of a batch")]
    TooLarge,
    /// The timestamp is too far from the batch's first.
    #[error("timestamp {timestamp} is too far from the batch's first, {base_timestamp}")]
    Timestamp {
        /// The record's.
        timestamp: TimestampMs,
        /// The first record's.
        base_timestamp: TimestampMs,
    },
    /// The records could not be compressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

/// Collects records and makes one batch of them.
#[derive(Clone, Debug)]
pub struct RecordBatchBuilder {
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    compression: Compression,
    flags: i16,
    producer: (ProducerId, ProducerEpoch, Sequence),
    /// Room for the header, then the records, not compressed.
    bytes: Vec<u8>,
    records_count: i32,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
}

impl Default for RecordBatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordBatchBuilder {
    /// An empty batch as a producer sends it: offset 0, no leader epoch, no producer, not compressed.
    #[must_use]
    pub fn new() -> Self {
        Self {
            base_offset: Offset(0),
            leader_epoch: LeaderEpoch::NONE,
            compression: Compression::None,
            flags: 0,
            producer: (ProducerId::NONE, ProducerEpoch(-1), Sequence(-1)),
            bytes: vec![0; BATCH_HEADER_LEN],
            records_count: 0,
            base_timestamp: TimestampMs::NONE,
            max_timestamp: TimestampMs::NONE,
        }
    }

    /// The batch that ends a transaction: one control record.
    #[must_use]
    pub fn end_txn_marker(
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        timestamp: TimestampMs,
        marker: EndTxnMarker,
    ) -> Bytes {
        let mut builder = Self::new()
            .producer(producer_id, producer_epoch, Sequence(-1))
            .transactional()
            .control();
        builder
            .append(timestamp, Some(&marker.key()), Some(&marker.value()), &[])
            .and_then(|()| builder.build())
            .expect("one small record, not compressed")
    }

    /// Compresses the records with `compression`.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the offset of the first record.
    #[must_use]
    pub fn base_offset(mut self, base_offset: Offset) -> Self {
        self.base_offset = base_offset;
        self
    }

    /// Sets the epoch of the leader that appends the batch.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> Self {
        self.leader_epoch = leader_epoch;
        self
    }

    /// Makes the batch that of an idempotent producer, its first record numbered `base_sequence`.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Makes the batch part of the producer's transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.flags |= Attributes::TRANSACTIONAL;
        self
    }

    /// Makes the records control records.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.flags |= Attributes::CONTROL;
        self
    }

    /// Adds a record after the others.
    ///
    /// # Errors
    ///
    /// [`BuildError::TooLarge`], [`BuildError::Timestamp`]; the batch is then as it was.
    pub fn append(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), BuildError> {
        let base_timestamp = if self.records_count == 0 {
            timestamp
        } else {
            self.base_timestamp
        };
        let Some(timestamp_delta) = timestamp.0.checked_sub(base_timestamp.0) else {
            return Err(BuildError::Timestamp {
                timestamp,
                base_timestamp,
            });
        };
        let offset_delta = i64::from(self.records_count);
        let headers_count = i64::try_from(headers.len()).map_err(|_| BuildError::TooLarge)?;
        let body_len = 1
            + varint::len_bytes(timestamp_delta)
            + varint::len_bytes(offset_delta)
            + field_len(key)?
            + field_len(value)?
            + varint::len_bytes(headers_count);
        let body_len = headers.iter().try_fold(body_len, |sum, header| {
            Ok::<_, BuildError>(sum + field_len(Some(header.key))? + field_len(header.value)?)
        })?;
        let record_len = varint::len_bytes(length(body_len)?) + body_len;
        if record_len > RECORDS_BYTES_MAX - (self.bytes.len() - BATCH_HEADER_LEN) {
            return Err(BuildError::TooLarge);
        }

        let out = &mut self.bytes;
        varint::write(out, length(body_len)?);
        out.push(0);
        varint::write(out, timestamp_delta);
        varint::write(out, offset_delta);
        write_field(out, key);
        write_field(out, value);
        varint::write(out, headers_count);
        for header in headers {
            write_field(out, Some(header.key));
            write_field(out, header.value);
        }
        self.records_count += 1;
        self.base_timestamp = base_timestamp;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }

    /// Records so far.
    #[must_use]
    pub fn records_count(&self) -> i32 {
        self.records_count
    }

    /// Size of the batch so far, header included, before compression.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch, its CRC computed. Without records it is as compaction leaves one behind.
    ///
    /// # Errors
    ///
    /// [`BuildError::Compression`]; [`BuildError::TooLarge`] where compression made it so.
    pub fn build(self) -> Result<Bytes, BuildError> {
        let mut bytes = self.bytes;
        if self.compression != Compression::None {
            let compressed = compress(self.compression, &bytes[BATCH_HEADER_LEN..])?;
            if compressed.len() > RECORDS_BYTES_MAX {
                return Err(BuildError::TooLarge);
            }
            bytes.truncate(BATCH_HEADER_LEN);
            bytes.extend(compressed);
        }
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let header = BatchHeader {
            base_offset: I64::new(self.base_offset.0),
            length: I32::ZERO,
            partition_leader_epoch: I32::new(self.leader_epoch.0),
            magic: 0,
            crc: U32::ZERO,
            attributes: I16::new(self.flags | i16::from(self.compression.id())),
            last_offset_delta: I32::new((self.records_count - 1).max(0)),
            base_timestamp: I64::new(self.base_timestamp.0),
            max_timestamp: I64::new(self.max_timestamp.0),
            producer_id: I64::new(producer_id.0),
            producer_epoch: I16::new(producer_epoch.0),
            base_sequence: I32::new(base_sequence.0),
            records_count: I32::new(self.records_count),
        };
        bytes[..BATCH_HEADER_LEN].copy_from_slice(header.as_bytes());
        batch::seal(&mut bytes);
        Ok(Bytes::from(bytes))
    }
}

fn length(len_bytes: usize) -> Result<i64, BuildError> {
    i32::try_from(len_bytes)
        .map(i64::from)
        .map_err(|_| BuildError::TooLarge)
}

/// Bytes of a nullable field with its length before it.
fn field_len(field: Option<&[u8]>) -> Result<usize, BuildError> {
    let Some(field) = field else { return Ok(1) };
    Ok(varint::len_bytes(length(field.len())?) + field.len())
}

fn write_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    let Some(field) = field else {
        return varint::write(out, -1);
    };
    varint::write(out, i64::try_from(field.len()).expect("measured before"));
    out.extend(field);
}
