//! One RecordBatch in place: borrowed, checked, and the few fields the log may write.
//!
//! Owns the checks of a batch as a whole and its CRC-32C; what is inside the records belongs to
//! `record_iter.rs`. The log writes baseOffset and partitionLeaderEpoch, both outside the CRC, and
//! under LogAppendTime the timestamp, which is inside. Tested in `tests.rs`, with hostile bytes in
//! `proptests.rs`.

use super::batch_header::{CRC_START, MAGIC};
use super::{Attributes, BATCH_HEADER_LEN, BatchError, BatchHeader, Compression, RecordError, Records};
use crate::config::TimestampType;
use crate::types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

/// Length, attributes, timestamp, offset, key, value and headers of a record, each a byte at least.
const RECORD_BYTES_MIN: usize = 7;

/// One whole batch, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct RecordBatch<'a> {
    header: &'a BatchHeader,
    bytes: &'a [u8],
}

impl<'a> RecordBatch<'a> {
    /// The batch at the start of `bytes`; more may follow it.
    ///
    /// The batch is whole, and its header makes sense; its checksum is *not* verified.
    ///
    /// # Errors
    ///
    /// [`BatchError::Incomplete`] where the bytes end within the batch, and those of
    /// [`BatchHeader::peek`], [`BatchError::RecordsCount`], [`BatchError::LastOffsetDelta`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = BatchHeader::peek(bytes)?;
        let Some(bytes) = bytes.get(..header.len_bytes()) else {
            return Err(BatchError::Incomplete {
                needed: header.len_bytes(),
                available: bytes.len(),
            });
        };
        if header.records_count() < 0 {
            return Err(BatchError::RecordsCount {
                records_count: header.records_count(),
            });
        }
        if header.last_offset_delta() < 0 {
            return Err(BatchError::LastOffsetDelta {
                last_offset_delta: header.last_offset_delta(),
            });
        }
        Ok(Self { header, bytes })
    }

    /// The one batch that a producer may send for a partition, fit to be appended.
    ///
    /// The header is checked in full and so is the CRC; records are not decompressed, and their
    /// number is taken from the header that the CRC covers. `max_message_bytes` bounds the whole
    /// batch. Whether the timestamps are within the log's limits is for the log to say.
    ///
    /// # Errors
    ///
    /// Any [`BatchError`]: the first that applies, size before checksum, checksum before content.
    pub fn validate_from_producer(bytes: &'a [u8], max_message_bytes: u32) -> Result<Self, BatchError> {
        let header = BatchHeader::peek(bytes)?;
        let len_bytes = header.len_bytes();
        if u32::try_from(len_bytes).is_ok_and(|len| len > max_message_bytes) {
            return Err(BatchError::TooLarge {
                len_bytes,
                max_message_bytes,
            });
        }
        let batch = Self::parse(bytes)?;
        if bytes.len() > len_bytes {
            return Err(BatchError::TrailingBytes {
                extra: bytes.len() - len_bytes,
            });
        }
        batch.verify_crc()?;

        let (records_count, last_offset_delta) = (header.records_count(), header.last_offset_delta());
        if records_count < 1 || records_count - 1 != last_offset_delta {
            return Err(BatchError::OffsetRange {
                records_count,
                last_offset_delta,
            });
        }
        let attributes = header.attributes();
        if attributes.is_control() {
            return Err(BatchError::Control);
        }
        let available = len_bytes - BATCH_HEADER_LEN;
        let records_max = available / RECORD_BYTES_MIN;
        if attributes.compression()? == Compression::None
            && usize::try_from(records_count).is_ok_and(|count| count > records_max)
        {
            return Err(BatchError::RecordsBeyondBytes {
                records_count,
                available,
            });
        }
        if attributes.timestamp_type() == TimestampType::LogAppendTime {
            return Err(BatchError::TimestampType);
        }
        batch.check_producer()?;
        Ok(batch)
    }

    /// An identified producer has an epoch and a sequence; a transaction has a producer.
    fn check_producer(&self) -> Result<(), BatchError> {
        let header = self.header;
        let identified = header.producer_id() > ProducerId::NONE;
        let incoherent = if identified {
            header.producer_epoch().0 < 0 || header.base_sequence().0 < 0
        } else {
            header.producer_id() != ProducerId::NONE || header.attributes().is_transactional()
        };
        if incoherent {
            return Err(BatchError::Producer {
                producer_id: header.producer_id(),
                producer_epoch: header.producer_epoch(),
                base_sequence: header.base_sequence(),
            });
        }
        Ok(())
    }

    /// Whether the bytes are those the producer sent.
    ///
    /// # Errors
    ///
    /// [`BatchError::Crc`].
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let stored = self.header.crc();
        let computed = crc32c::crc32c(&self.bytes[CRC_START..]);
        if stored == computed {
            Ok(())
        } else {
            Err(BatchError::Crc { stored, computed })
        }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &'a BatchHeader {
        self.header
    }

    /// The whole batch, header included, nothing after it.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The records as they lie after the header, compressed or not.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[BATCH_HEADER_LEN..]
    }

    /// The records, decompressed to at most `max_decompressed_bytes` where they are compressed.
    ///
    /// # Errors
    ///
    /// [`RecordError::Batch`] for an unknown codec, [`RecordError::Compression`] for one that is
    /// not compiled in, for corrupt data and for more output than allowed.
    pub fn records(&self, max_decompressed_bytes: usize) -> Result<Records<'a>, RecordError> {
        Records::new(self, max_decompressed_bytes)
    }

    /// Writes the place in the log into the first batch of `bytes`; the CRC does not cover it.
    ///
    /// # Errors
    ///
    /// Those of [`BatchHeader::peek`].
    pub fn assign(
        bytes: &mut [u8],
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> Result<(), BatchError> {
        let header = BatchHeader::peek_mut(bytes)?;
        header.base_offset.set(base_offset.0);
        header.partition_leader_epoch.set(leader_epoch.0);
        Ok(())
    }

    /// Makes `timestamp` that of every record of the first batch of `bytes`, and renews the CRC.
    ///
    /// # Errors
    ///
    /// Those of [`parse`](Self::parse).
    pub fn set_log_append_time(bytes: &mut [u8], timestamp: TimestampMs) -> Result<(), BatchError> {
        let len_bytes = RecordBatch::parse(bytes)?.bytes.len();
        let header = BatchHeader::peek_mut(bytes)?;
        let attributes = header.attributes.get() | Attributes::LOG_APPEND_TIME;
        header.attributes.set(attributes);
        header.max_timestamp.set(timestamp.0);
        let crc = crc32c::crc32c(&bytes[CRC_START..len_bytes]);
        BatchHeader::peek_mut(bytes)?.crc.set(crc);
        Ok(())
    }
}

/// Completes a batch whose fields are set: length, magic and CRC. `bytes` is exactly one batch.
///
/// # Panics
///
/// Where `bytes` is shorter than a header or longer than the length field can say.
pub(super) fn seal(bytes: &mut [u8]) {
    use zerocopy::FromBytes as _;

    let length = i32::try_from(bytes.len() - super::LOG_OVERHEAD).expect("the builder bounds the size");
    let crc = crc32c::crc32c(&bytes[CRC_START..]);
    let (header, _) = BatchHeader::mut_from_prefix(bytes).expect("a header is there");
    header.length.set(length);
    header.magic = MAGIC;
    header.crc.set(crc);
}
