//! A record to be appended, and the batch that some of them make.
//!
//! Knows no log; bytes are copied once, into the batch.

use bytes::Bytes;

use crate::record::{BuildError, Header, RecordBatchBuilder};
use crate::types::TimestampMs;

/// A record to be appended, borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// The key, if it is to have one.
    pub key: Option<&'a [u8]>,
    /// The value; none is a tombstone in a compacted log.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: &'a [Header<'a>],
    /// Milliseconds since 1970; `None`: now.
    pub timestamp: Option<TimestampMs>,
}

impl<'a> NewRecord<'a> {
    /// A record with a value and nothing else.
    #[must_use]
    pub fn value(value: &'a [u8]) -> Self {
        Self {
            value: Some(value),
            ..Self::default()
        }
    }

    /// A record with a key and a value.
    #[must_use]
    pub fn key_value(key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            key: Some(key),
            ..Self::value(value)
        }
    }
}

/// One batch of `records`, not compressed.
pub(super) fn build(records: &[NewRecord<'_>], now: TimestampMs) -> Result<Bytes, BuildError> {
    let mut builder = RecordBatchBuilder::new();
    for record in records {
        let timestamp = record.timestamp.unwrap_or(now);
        builder.append(timestamp, record.key, record.value, record.headers)?;
    }
    builder.build()
}
