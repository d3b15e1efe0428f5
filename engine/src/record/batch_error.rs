//! Why bytes are not an acceptable RecordBatch; one enum for reading and for validating one.

use thiserror::Error;

use crate::types::{ProducerEpoch, ProducerId, Sequence};

/// Why bytes are not an acceptable RecordBatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The bytes end before the header or the batch does: at the tail of a log, a torn write.
    #[error("batch needs {needed} bytes, {available} are there")]
    Incomplete {
        /// Bytes that the header, or the batch by its header, needs.
        needed: usize,
        /// Bytes given.
        available: usize,
    },
    /// The length field is less than the rest of the header, as in a zero-filled tail.
    #[error("batch length field {length} is less than the rest of the header")]
    Length {
        /// The field as it stands.
        length: i32,
    },
    /// Only format v2 is read.
    #[error("batch magic {magic} is not 2")]
    Magic {
        /// The field as it stands.
        magic: i8,
    },
    /// The bytes are not those the checksum was made of.
    #[error("batch checksum is {computed:#010x}, its header says {stored:#010x}")]
    Crc {
        /// CRC-32C in the header.
        stored: u32,
        /// CRC-32C of the bytes.
        computed: u32,
    },
    /// The record count is negative.
    #[error("batch record count {records_count} is negative")]
    RecordsCount {
        /// The field as it stands.
        records_count: i32,
    },
    /// More records are claimed than the uncompressed bytes can hold.
    #[error("batch of {records_count} records has {available} bytes for them")]
    RecordsBeyondBytes {
        /// The field as it stands.
        records_count: i32,
        /// Bytes behind the header.
        available: usize,
    },
    /// The delta of the last offset is negative.
    #[error("batch last offset delta {last_offset_delta} is negative")]
    LastOffsetDelta {
        /// The field as it stands.
        last_offset_delta: i32,
    },
    /// A producer's batch has one offset for each record, and at least one record.
    #[error("batch of {records_count} records has last offset delta {last_offset_delta}")]
    OffsetRange {
        /// Records the header claims.
        records_count: i32,
        /// Offset of the last record relative to the first.
        last_offset_delta: i32,
    },
    /// The batch is larger than the log accepts.
    #[error("batch of {len_bytes} bytes exceeds the limit of {max_message_bytes}")]
    TooLarge {
        /// Size of the whole batch.
        len_bytes: usize,
        /// The limit (`max.message.bytes`).
        max_message_bytes: u32,
    },
    /// A producer sends exactly one batch; something follows it.
    #[error("{extra} bytes follow the batch")]
    TrailingBytes {
        /// Bytes after the batch.
        extra: usize,
    },
    /// Producers may not write control records.
    #[error("control batch from a producer")]
    Control,
    /// The compression bits name no codec.
    #[error("unknown compression codec {id}")]
    UnknownCodec {
        /// The three low bits of the attributes.
        id: u8,
    },
    /// Producer id, epoch and sequence do not go together.
    #[error("producer id {producer_id} with epoch {producer_epoch} and sequence {base_sequence}")]
    Producer {
        /// The field as it stands.
        producer_id: ProducerId,
        /// The field as it stands.
        producer_epoch: ProducerEpoch,
        /// The field as it stands.
        base_sequence: Sequence,
    },
    /// Only the broker marks a batch with LogAppendTime.
    #[error("producer's batch claims LogAppendTime")]
    TimestampType,
}
