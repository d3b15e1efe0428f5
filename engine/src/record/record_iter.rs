//! The records of one batch, plain or decompressed, borrowed.
//!
//! Every varint and length is checked against the bytes left, the number of records against the
//! header, and each offset against the batch's range; the first fault ends the iteration. Knows
//! nothing of where the batch came from. Tested in `tests.rs`.
//!
//! ```text
//! record  length varint, attributes i8 (unused), timestampDelta varlong, offsetDelta varint,
//!         key (varint length, -1 null), value (likewise), headers count varint, headers
//! header  key (varint length), value (varint length, -1 null)
//! ```

use std::borrow::Cow;

use thiserror::Error;

use super::varint::{self, VarintError};
use super::{BatchError, Compression, CompressionError, RecordBatch, decompress};
use crate::config::TimestampType;
use crate::types::{Offset, TimestampMs};

/// Why the records of a batch cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The header asks for something unknown.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The records could not be decompressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// A varint is not one.
    #[error(transparent)]
    Varint(#[from] VarintError),
    /// A length is negative or beyond the bytes left.
    #[error("length {length} where {available} bytes are left")]
    Length {
        /// The length as it stands.
        length: i32,
        /// Bytes that are left.
        available: usize,
    },
    /// A number of headers is negative or beyond what the bytes left can hold.
    #[error("{count} headers where {available} bytes are left")]
    HeadersCount {
        /// The count as it stands.
        count: i32,
        /// Bytes that are left.
        available: usize,
    },
    /// Bytes are left in a record after its last header, or in the batch after its last record.
    #[error("{extra} bytes are left over")]
    TrailingBytes {
        /// Bytes left.
        extra: usize,
    },
    /// An offset is outside the batch or not above the one before.
    #[error("offset delta {delta} after {previous} in a batch that ends at {last}")]
    OffsetDelta {
        /// The delta as it stands.
        delta: i32,
        /// Delta of the record before, -1 at the first.
        previous: i32,
        /// The batch's last offset delta.
        last: i32,
    },
    /// A timestamp does not fit 64 bits.
    #[error("timestamp delta {delta} overflows")]
    Timestamp {
        /// The delta as it stands.
        delta: i64,
    },
}

/// The records of one batch; owns them where they had to be decompressed.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: Cow<'a, [u8]>,
    context: Context,
}

/// What the records' relative fields are relative to.
#[derive(Clone, Copy, Debug)]
struct Context {
    records_count: i32,
    base_offset: Offset,
    last_offset_delta: i32,
    base_timestamp: TimestampMs,
    /// Under LogAppendTime the batch's timestamp is every record's.
    log_append_time: Option<TimestampMs>,
}

impl<'a> Records<'a> {
    pub(super) fn new(batch: &RecordBatch<'a>, max_decompressed_bytes: usize) -> Result<Self, RecordError> {
        let header = batch.header();
        let bytes = match header.attributes().compression()? {
            Compression::None => Cow::Borrowed(batch.payload()),
            codec => Cow::Owned(decompress(codec, batch.payload(), max_decompressed_bytes)?),
        };
        let log_append_time = match header.attributes().timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp()),
        };
        let context = Context {
            records_count: header.records_count(),
            base_offset: header.base_offset(),
            last_offset_delta: header.last_offset_delta(),
            base_timestamp: header.base_timestamp(),
            log_append_time,
        };
        Ok(Self { bytes, context })
    }

    /// All records one after another, not compressed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// From the first record to the last.
    #[must_use]
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter {
            rest: &self.bytes,
            remaining: self.context.records_count,
            previous_delta: -1,
            context: self.context,
            done: false,
        }
    }
}

impl<'r> IntoIterator for &'r Records<'_> {
    type Item = Result<Record<'r>, RecordError>;
    type IntoIter = RecordIter<'r>;

    fn into_iter(self) -> RecordIter<'r> {
        self.iter()
    }
}

/// Iterates over the records of one batch; after an error there is nothing more.
#[derive(Clone, Debug)]
pub struct RecordIter<'r> {
    rest: &'r [u8],
    remaining: i32,
    previous_delta: i32,
    context: Context,
    done: bool,
}

impl<'r> RecordIter<'r> {
    /// Bytes of the records that have not been read.
    pub(super) fn left_bytes(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Result<Record<'r>, RecordError> {
        let len = varint::read_i32(&mut self.rest)?;
        let mut body = take(&mut self.rest, len)?;
        let _attributes = take(&mut body, 1)?;
        let timestamp_delta = varint::read_i64(&mut body)?;
        let offset_delta = varint::read_i32(&mut body)?;
        let key = take_nullable(&mut body)?;
        let value = take_nullable(&mut body)?;
        let headers = Headers::read(&mut body)?;
        if !body.is_empty() {
            return Err(RecordError::TrailingBytes { extra: body.len() });
        }

        let last = self.context.last_offset_delta;
        if offset_delta <= self.previous_delta || offset_delta > last {
            let (delta, previous) = (offset_delta, self.previous_delta);
            return Err(RecordError::OffsetDelta {
                delta,
                previous,
                last,
            });
        }
        self.previous_delta = offset_delta;
        let timestamp = match self.context.log_append_time {
            Some(timestamp) => timestamp,
            None => self
                .context
                .base_timestamp
                .0
                .checked_add(timestamp_delta)
                .map(TimestampMs)
                .ok_or(RecordError::Timestamp {
                    delta: timestamp_delta,
                })?,
        };
        let offset = Offset(self.context.base_offset.0.saturating_add(i64::from(offset_delta)));
        Ok(Record {
            offset,
            timestamp,
            key,
            value,
            headers,
        })
    }
}

impl<'r> Iterator for RecordIter<'r> {
    type Item = Result<Record<'r>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.remaining == 0 {
            self.done = true;
            let extra = self.rest.len();
            return (extra > 0).then_some(Err(RecordError::TrailingBytes { extra }));
        }
        self.remaining -= 1;
        let record = self.read();
        self.done = record.is_err();
        Some(record)
    }
}

/// One record.
#[derive(Clone, Debug)]
pub struct Record<'r> {
    /// Its place in the log (as far as the batch's base offset is assigned).
    pub offset: Offset,
    /// The producer's timestamp, or the batch's under LogAppendTime.
    pub timestamp: TimestampMs,
    /// The key, if it has one.
    pub key: Option<&'r [u8]>,
    /// The value; none is a tombstone in a compacted log.
    pub value: Option<&'r [u8]>,
    /// The headers, in order; keys may repeat.
    pub headers: Headers<'r>,
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'r> {
    /// The key, by convention UTF-8; not checked.
    pub key: &'r [u8],
    /// The value.
    pub value: Option<&'r [u8]>,
}

/// The headers of one record, already checked.
#[derive(Clone, Debug)]
pub struct Headers<'r> {
    rest: &'r [u8],
    remaining: usize,
}

impl<'r> Headers<'r> {
    fn read(body: &mut &'r [u8]) -> Result<Self, RecordError> {
        let count = varint::read_i32(body)?;
        let available = body.len();
        // A header takes two bytes at least; this bounds the loop, nothing is allocated.
        let Some(remaining) = usize::try_from(count)
            .ok()
            .filter(|&count| count <= available / 2)
        else {
            return Err(RecordError::HeadersCount { count, available });
        };
        let rest = *body;
        for _ in 0..remaining {
            read_header(body)?;
        }
        Ok(Self {
            rest: &rest[..rest.len() - body.len()],
            remaining,
        })
    }
}

impl<'r> Iterator for Headers<'r> {
    type Item = Header<'r>;

    fn next(&mut self) -> Option<Header<'r>> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(read_header(&mut self.rest).expect("checked when the record was read"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Headers<'_> {}

fn read_header<'r>(body: &mut &'r [u8]) -> Result<Header<'r>, RecordError> {
    let key_len = varint::read_i32(body)?;
    let key = take(body, key_len)?;
    let value = take_nullable(body)?;
    Ok(Header { key, value })
}

fn take<'r>(bytes: &mut &'r [u8], length: i32) -> Result<&'r [u8], RecordError> {
    let split = usize::try_from(length)
        .ok()
        .and_then(|len| bytes.split_at_checked(len));
    let Some((taken, rest)) = split else {
        return Err(RecordError::Length {
            length,
            available: bytes.len(),
        });
    };
    *bytes = rest;
    Ok(taken)
}

/// Clients write -1 for null; like Kafka, any negative length is read as one.
fn take_nullable<'r>(bytes: &mut &'r [u8]) -> Result<Option<&'r [u8]>, RecordError> {
    let length = varint::read_i32(bytes)?;
    if length < 0 {
        Ok(None)
    } else {
        take(bytes, length).map(Some)
    }
}
