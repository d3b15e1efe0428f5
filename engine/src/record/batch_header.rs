//! The 61 bytes before the records of a RecordBatch v2, read in place, big-endian.
//!
//! Knows neither the records nor the checksum's verification (see `batch.rs`). Accessors are
//! total: they never panic, whatever the bytes. Tested below against bytes written by hand.
//!
//! ```text
//!  at  size  field
//!   0     8  baseOffset            assigned by the log; outside the CRC
//!   8     4  batchLength           bytes after this field
//!  12     4  partitionLeaderEpoch  assigned by the log; outside the CRC
//!  16     1  magic                 2
//!  17     4  crc                   CRC-32C of everything from attributes on
//!  21     2  attributes            bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
//!                                  6 delete horizon
//!  23     4  lastOffsetDelta
//!  27     8  baseTimestamp
//!  35     8  maxTimestamp
//!  43     8  producerId
//!  51     2  producerEpoch
//!  53     4  baseSequence
//!  57     4  records count
//! ```

use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BatchError, Compression};
use crate::config::TimestampType;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Size of the header, and so the smallest batch.
pub const BATCH_HEADER_LEN: usize = 61;
/// Bytes before what the length field counts: baseOffset and the field itself.
pub const LOG_OVERHEAD: usize = 12;
/// Where the bytes covered by the CRC begin.
pub(super) const CRC_START: usize = 21;
/// The only format read and written.
pub(super) const MAGIC: i8 = 2;

const _: () = assert!(size_of::<BatchHeader>() == BATCH_HEADER_LEN);

/// Header of a RecordBatch, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BatchHeader {
    pub(super) base_offset: I64,
    pub(super) length: I32,
    pub(super) partition_leader_epoch: I32,
    pub(super) magic: i8,
    pub(super) crc: U32,
    pub(super) attributes: I16,
    pub(super) last_offset_delta: I32,
    pub(super) base_timestamp: I64,
    pub(super) max_timestamp: I64,
    pub(super) producer_id: I64,
    pub(super) producer_epoch: I16,
    pub(super) base_sequence: I32,
    pub(super) records_count: I32,
}

impl BatchHeader {
    /// The header at the start of `bytes`, which may end anywhere after it.
    ///
    /// Enough to walk a log by headers: magic is 2 and [`len_bytes`](Self::len_bytes) at least
    /// [`BATCH_HEADER_LEN`]. Whether the rest of the batch is there, or is intact, is not looked at.
    ///
    /// # Errors
    ///
    /// [`BatchError::Incomplete`] for less than 61 bytes, [`BatchError::Length`], [`BatchError::Magic`].
    pub fn peek(bytes: &[u8]) -> Result<&Self, BatchError> {
        let Ok((header, _)) = Self::ref_from_prefix(bytes) else {
            return Err(BatchError::Incomplete {
                needed: BATCH_HEADER_LEN,
                available: bytes.len(),
            });
        };
        header.check()?;
        Ok(header)
    }

    /// As [`peek`](Self::peek), to be written in place.
    pub(super) fn peek_mut(bytes: &mut [u8]) -> Result<&mut Self, BatchError> {
        let available = bytes.len();
        let Ok((header, _)) = Self::mut_from_prefix(bytes) else {
            return Err(BatchError::Incomplete {
                needed: BATCH_HEADER_LEN,
                available,
            });
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), BatchError> {
        let length = self.length.get();
        if self.len_bytes() < BATCH_HEADER_LEN {
            return Err(BatchError::Length { length });
        }
        if self.magic != MAGIC {
            return Err(BatchError::Magic { magic: self.magic });
        }
        Ok(())
    }

    /// Offset of the first record; in a compacted log it may have no record any more.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        Offset(self.base_offset.get())
    }

    /// Size of the whole batch, the 12 bytes before the length's counting included.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        LOG_OVERHEAD + usize::try_from(self.length.get()).unwrap_or(0)
    }

    /// Epoch of the leader that appended the batch, -1 from a producer.
    #[must_use]
    pub fn partition_leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.partition_leader_epoch.get())
    }

    /// Version of the format.
    #[must_use]
    pub fn magic(&self) -> i8 {
        self.magic
    }

    /// CRC-32C as stored.
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.crc.get()
    }

    /// The flags.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes(self.attributes.get())
    }

    /// Offset of the last record relative to the first; 0 or more in a parsed batch.
    #[must_use]
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta.get()
    }

    /// What the records' timestamps are relative to; the delete horizon where that flag is set.
    #[must_use]
    pub fn base_timestamp(&self) -> TimestampMs {
        TimestampMs(self.base_timestamp.get())
    }

    /// The largest timestamp within, or the broker's under LogAppendTime.
    #[must_use]
    pub fn max_timestamp(&self) -> TimestampMs {
        TimestampMs(self.max_timestamp.get())
    }

    /// The idempotent producer, or [`ProducerId::NONE`].
    #[must_use]
    pub fn producer_id(&self) -> ProducerId {
        ProducerId(self.producer_id.get())
    }

    /// The producer's epoch, -1 where there is no producer.
    #[must_use]
    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.producer_epoch.get())
    }

    /// Sequence of the first record, -1 where there is none.
    #[must_use]
    pub fn base_sequence(&self) -> Sequence {
        Sequence(self.base_sequence.get())
    }

    /// Records within; in a compacted log possibly fewer than offsets.
    #[must_use]
    pub fn records_count(&self) -> i32 {
        self.records_count.get()
    }

    /// Offset of the last record; saturates, which no log reaches.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(
            self.base_offset
                .get()
                .saturating_add(i64::from(self.last_offset_delta.get())),
        )
    }

    /// Offset of whatever follows this batch; saturates, which no log reaches.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// Sequence of the last record, wrapping past `i32::MAX`; -1 where there is none.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        let base = self.base_sequence();
        if base.0 < 0 {
            base
        } else {
            base.plus(self.last_offset_delta.get())
        }
    }
}

/// The flags of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION: i16 = 0x07;
    pub(super) const LOG_APPEND_TIME: i16 = 0x08;
    pub(super) const TRANSACTIONAL: i16 = 0x10;
    pub(super) const CONTROL: i16 = 0x20;
    pub(super) const DELETE_HORIZON: i16 = 0x40;

    /// How the records are compressed.
    ///
    /// # Errors
    ///
    /// [`BatchError::UnknownCodec`] for ids 5 to 7.
    pub fn compression(self) -> Result<Compression, BatchError> {
        let id = u8::try_from(self.0 & Self::COMPRESSION).expect("three bits fit");
        Compression::from_id(id).ok_or(BatchError::UnknownCodec { id })
    }

    /// Whose clock the timestamps are from.
    #[must_use]
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch is part of a transaction.
    #[must_use]
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the records are markers, which consumers never see.
    #[must_use]
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether baseTimestamp is the time after which tombstones and markers go (KIP-534).
    #[must_use]
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field a different value, laid out by hand from the format's description.
    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend([0, 0, 0, 0, 0, 0, 1, 0]); // base offset 256
        bytes.extend([0, 0, 0, 50]); // length
        bytes.extend([0, 0, 0, 7]); // leader epoch
        bytes.push(2); // magic
        bytes.extend([0xde, 0xad, 0xbe, 0xef]); // crc
        bytes.extend([0, 0b0111_1100]); // every flag, zstd
        bytes.extend([0, 0, 0, 4]); // last offset delta
        bytes.extend([0, 0, 0, 0, 0, 0, 3, 232]); // base timestamp 1000
        bytes.extend([0, 0, 0, 0, 0, 0, 7, 208]); // max timestamp 2000
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 9]); // producer id
        bytes.extend([0, 3]); // producer epoch
        bytes.extend([0x7f, 0xff, 0xff, 0xfe]); // base sequence i32::MAX - 1
        bytes.extend([0, 0, 0, 5]); // records
        bytes.push(0xaa);
        bytes
    }

    #[test]
    fn every_field_is_read_from_its_place() {
        let bytes = bytes();
        let header = BatchHeader::peek(&bytes).unwrap();
        assert_eq!(header.base_offset(), Offset(256));
        assert_eq!(header.len_bytes(), 62);
        assert_eq!(header.partition_leader_epoch(), LeaderEpoch(7));
        assert_eq!(header.magic(), 2);
        assert_eq!(header.crc(), 0xdead_beef);
        assert_eq!(header.last_offset_delta(), 4);
        assert_eq!(header.base_timestamp(), TimestampMs(1000));
        assert_eq!(header.max_timestamp(), TimestampMs(2000));
        assert_eq!(header.producer_id(), ProducerId(9));
        assert_eq!(header.producer_epoch(), ProducerEpoch(3));
        assert_eq!(header.base_sequence(), Sequence(i32::MAX - 1));
        assert_eq!(header.records_count(), 5);
        assert_eq!(header.last_offset(), Offset(260));
        assert_eq!(header.next_offset(), Offset(261));
        assert_eq!(header.last_sequence(), Sequence(2), "wraps from i32::MAX to 0");
    }

    #[test]
    fn attributes_are_told_apart() {
        let all = BatchHeader::peek(&bytes()).unwrap().attributes();
        assert_eq!(all.compression(), Ok(Compression::Zstd));
        assert_eq!(all.timestamp_type(), TimestampType::LogAppendTime);
        assert!(all.is_transactional() && all.is_control() && all.has_delete_horizon());
        let none = Attributes(0);
        assert_eq!(none.compression(), Ok(Compression::None));
        assert_eq!(none.timestamp_type(), TimestampType::CreateTime);
        assert!(!none.is_transactional() && !none.is_control() && !none.has_delete_horizon());
        assert!(Attributes(0x10).is_transactional() && !Attributes(0x10).is_control());
        assert!(Attributes(0x20).is_control() && !Attributes(0x20).is_transactional());
        assert_eq!(
            Attributes(6).compression(),
            Err(BatchError::UnknownCodec { id: 6 })
        );
    }

    #[test]
    fn peek_refuses_what_a_scan_must_stop_at() {
        let good = bytes();
        for available in 0..BATCH_HEADER_LEN {
            assert_eq!(
                BatchHeader::peek(&good[..available]),
                Err(BatchError::Incomplete {
                    needed: BATCH_HEADER_LEN,
                    available
                })
            );
        }
        assert_eq!(
            BatchHeader::peek(&[0; 100]),
            Err(BatchError::Length { length: 0 })
        );
        let mut short = good.clone();
        short[11] = 48;
        assert_eq!(BatchHeader::peek(&short), Err(BatchError::Length { length: 48 }));
        let mut negative = good.clone();
        negative[8] = 0xff;
        assert_eq!(
            BatchHeader::peek(&negative),
            Err(BatchError::Length { length: -0x00ff_ffce })
        );
        let mut old = good;
        old[16] = 1;
        assert_eq!(BatchHeader::peek(&old), Err(BatchError::Magic { magic: 1 }));
    }

    #[test]
    fn extreme_fields_do_not_overflow() {
        let mut bytes = bytes();
        bytes[0..8].copy_from_slice(&i64::MAX.to_be_bytes());
        bytes[23..27].copy_from_slice(&i32::MAX.to_be_bytes());
        let header = BatchHeader::peek(&bytes).unwrap();
        assert_eq!(header.last_offset(), Offset(i64::MAX));
        assert_eq!(header.next_offset(), Offset(i64::MAX));
        bytes[0..8].copy_from_slice(&i64::MIN.to_be_bytes());
        bytes[23..27].copy_from_slice(&i32::MIN.to_be_bytes());
        bytes[53..57].copy_from_slice(&i32::MIN.to_be_bytes());
        let header = BatchHeader::peek(&bytes).unwrap();
        assert_eq!(header.last_offset(), Offset(i64::MIN));
        assert_eq!(header.last_sequence(), Sequence(i32::MIN));
    }
}
