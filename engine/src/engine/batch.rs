//! A batch that was read: owned bytes, checked, with its records borrowed from it.
//!
//! Owns the view; the format is `record`'s. A batch keeps the chunk alive that it was read in.

use bytes::Bytes;

use crate::record::{Record, RecordBatch, RecordError, Records};
use crate::types::{Offset, TimestampMs};

/// What the records of one batch may unpack to, unless the caller says otherwise.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// A batch of records as it lies in the log; its checksum has been verified. Cheap to clone.
///
/// It keeps up to [`chunk_bytes`](super::ReadConfig::chunk_bytes) of memory alive, which it shares with its neighbours: copy
/// the records you want to keep for long.
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Bytes,
    /// Records below were not asked for.
    from: Offset,
}

impl Batch {
    /// `bytes` is one batch that has been checked.
    pub(super) fn new(bytes: Bytes, from: Offset) -> Self {
        Self { bytes, from }
    }

    /// The batch as a view of its fields.
    #[must_use]
    pub fn view(&self) -> RecordBatch<'_> {
        RecordBatch::parse(&self.bytes).expect("it was parsed when it was read")
    }

    /// The bytes, as they lie in the log.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The offset of its first record; may lie below what was asked for.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.view().header().base_offset()
    }

    /// The offset of its last record.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.view().header().last_offset()
    }

    /// The latest timestamp among its records.
    #[must_use]
    pub fn max_timestamp(&self) -> TimestampMs {
        self.view().header().max_timestamp()
    }

    /// Whether it is the end of a transaction rather than records; only a broker writes such.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.view().header().attributes().is_control()
    }

    /// The records, decompressed where they are compressed, to 128 MiB at most; those below the offset that
    /// was asked for are left out.
    ///
    /// # Errors
    ///
    /// Where they do not decompress, as with a codec whose feature is off. [`view`](Self::view) allows other limits.
    pub fn records(&self) -> Result<BatchRecords<'_>, RecordError> {
        Ok(BatchRecords {
            records: self.view().records(DECOMPRESSED_BYTES_MAX)?,
            from: self.from,
        })
    }
}

/// The records of a [`Batch`].
#[derive(Debug)]
pub struct BatchRecords<'a> {
    records: Records<'a>,
    from: Offset,
}

impl BatchRecords<'_> {
    /// From the first that was asked for to the last. After an error there is nothing more; a batch whose
    /// checksum holds gives one only where whoever made it did it wrong.
    pub fn iter(&self) -> impl Iterator<Item = Result<Record<'_>, RecordError>> {
        let asked_for = |record: &Result<Record<'_>, _>| {
            record.as_ref().map_or(true, |record| record.offset >= self.from)
        };
        self.records.iter().filter(asked_for)
    }
}
