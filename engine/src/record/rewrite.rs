//! A batch without some of its records, as compaction leaves it behind.
//!
//! Owns which bytes of a batch stay as they are: all but the records that go, their number, the
//! largest timestamp and, where a delete horizon is set (KIP-534), the base timestamp. Offsets,
//! the producer's sequences and the codec never change, so a reader finds what is left where it
//! was. Knows no reasons: the caller says which records stay. Tested below.

use std::ops::Range;

use thiserror::Error;
use zerocopy::IntoBytes as _;

use super::batch::seal;
use super::batch_header::{Attributes, BATCH_HEADER_LEN, LOG_OVERHEAD};
use super::{
    BatchHeader, Compression, CompressionError, Record, RecordBatch, RecordError, Records, compress, varint,
};
use crate::config::TimestampType;
use crate::types::TimestampMs;

/// The most bytes of records: what the length field can say, less the rest of the header.
const RECORDS_BYTES_MAX: usize = i32::MAX as usize - (BATCH_HEADER_LEN - LOG_OVERHEAD);

/// Why what is left of a batch cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RewriteError {
    /// A record cannot be read, or its timestamp cannot be said relative to the delete horizon.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The records cannot be compressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// The records have grown beyond a batch: timestamps far from the delete horizon take more bytes.
    #[error("records exceed the {RECORDS_BYTES_MAX} bytes of a batch")]
    TooLarge,
}

/// The records of a batch that stay.
#[derive(Debug)]
pub struct Retained<'a> {
    batch: RecordBatch<'a>,
    records: Records<'a>,
    /// Where they lie in the bytes of all records; neighbours are one range.
    kept: Vec<Range<usize>>,
    records_count: i32,
    max_timestamp: TimestampMs,
    has_tombstones: bool,
}

impl<'a> Retained<'a> {
    /// Asks `stays` of each record of `batch`, which is decompressed to at most
    /// `max_decompressed_bytes`.
    ///
    /// # Errors
    ///
    /// Where the records cannot be read.
    pub fn of(
        batch: RecordBatch<'a>,
        max_decompressed_bytes: usize,
        mut stays: impl FnMut(&Record<'_>) -> bool,
    ) -> Result<Self, RecordError> {
        let records = batch.records(max_decompressed_bytes)?;
        let (mut kept, mut records_count): (Vec<Range<usize>>, _) = (Vec::new(), 0);
        let (mut max_timestamp, mut has_tombstones) = (TimestampMs::NONE, false);
        let mut iter = records.iter();
        let len_bytes = iter.left_bytes();
        loop {
            let start = len_bytes - iter.left_bytes();
            let Some(record) = iter.next().transpose()? else {
                break;
            };
            if !stays(&record) {
                continue;
            }
            let end = len_bytes - iter.left_bytes();
            match kept.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => kept.push(start..end),
            }
            records_count += 1;
            max_timestamp = max_timestamp.max(record.timestamp);
            has_tombstones |= record.value.is_none();
        }
        Ok(Self {
            batch,
            records,
            kept,
            records_count,
            max_timestamp,
            has_tombstones,
        })
    }

    /// Whether every record stays.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.records_count == self.batch.header().records_count()
    }

    /// How many stay.
    #[must_use]
    pub fn records_count(&self) -> i32 {
        self.records_count
    }

    /// Whether none stays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records_count == 0
    }

    /// Whether a record without a value is among those that stay.
    #[must_use]
    pub fn has_tombstones(&self) -> bool {
        self.has_tombstones
    }

    /// Appends the batch with the records that stay to `out`; byte for byte if all do. A
    /// `delete_horizon` becomes the base timestamp, and the records' timestamps relative to it.
    ///
    /// # Errors
    ///
    /// Any [`RewriteError`]; `out` is then as it was.
    pub fn write(&self, delete_horizon: Option<TimestampMs>, out: &mut Vec<u8>) -> Result<(), RewriteError> {
        if self.is_whole() && delete_horizon.is_none() {
            out.extend_from_slice(self.batch.bytes());
            return Ok(());
        }
        let mut header = *self.batch.header();
        let bytes = self.records.bytes();
        let mut payload = Vec::new();
        match delete_horizon {
            None => {
                for range in &self.kept {
                    payload.extend_from_slice(&bytes[range.clone()]);
                }
            }
            Some(horizon) => {
                for range in &self.kept {
                    let mut rest = &bytes[range.clone()];
                    while !rest.is_empty() {
                        rebase_record(&mut rest, header.base_timestamp(), horizon, &mut payload)?;
                    }
                }
                header.base_timestamp.set(horizon.0);
                header
                    .attributes
                    .set(header.attributes.get() | Attributes::DELETE_HORIZON);
            }
        }
        let codec = header.attributes().compression().map_err(RecordError::from)?;
        if codec != Compression::None {
            payload = compress(codec, &payload)?;
        }
        if payload.len() > RECORDS_BYTES_MAX {
            return Err(RewriteError::TooLarge);
        }
        header.records_count.set(self.records_count);
        if header.attributes().timestamp_type() == TimestampType::CreateTime {
            header.max_timestamp.set(self.max_timestamp.0);
        }
        append_sealed(&header, &payload, out);
        Ok(())
    }
}

/// Appends to `out` what stays of a batch without records: its offsets, its producer, and the largest
/// timestamp it had, by which the producer's idleness is told.
pub fn write_emptied(header: &BatchHeader, out: &mut Vec<u8>) {
    let mut header = *header;
    let kept = Attributes::LOG_APPEND_TIME | Attributes::TRANSACTIONAL | Attributes::CONTROL;
    header.attributes.set(header.attributes.get() & kept);
    header.base_timestamp.set(TimestampMs::NONE.0);
    header.records_count.set(0);
    append_sealed(&header, &[], out);
}

fn append_sealed(header: &BatchHeader, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(payload);
    seal(&mut out[start..]);
}

/// Copies the record at the front of `rest`, whose fields have been checked, with its timestamp
/// relative to `to`.
fn rebase_record(
    rest: &mut &[u8],
    from: TimestampMs,
    to: TimestampMs,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let len_bytes = varint::read_i32(rest)?;
    let (body, after) = rest.split_at(usize::try_from(len_bytes).expect("checked when it was read"));
    *rest = after;
    let (&attributes, mut body) = body.split_first().expect("checked when it was read");
    let delta = varint::read_i64(&mut body)?;
    let timestamp = from.0.checked_add(delta);
    let rebased = timestamp
        .and_then(|timestamp| timestamp.checked_sub(to.0))
        .ok_or(RecordError::Timestamp { delta })?;
    let len_bytes = 1 + varint::len_bytes(rebased) + body.len();
    varint::write(out, i64::try_from(len_bytes).expect("a record fits a batch"));
    out.push(attributes);
    varint::write(out, rebased);
    out.extend_from_slice(body);
    Ok(())
}

#[cfg(test)]
#[cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]
mod tests {
    use super::super::{Header, RecordBatchBuilder};
    use super::*;
    use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

    const CAP: usize = 1 << 20;

    /// Five records of the keys 0 to 4; that of key 3 is a tombstone.
    fn batch(codec: Compression) -> Vec<u8> {
        let mut builder = RecordBatchBuilder::new()
            .base_offset(Offset(100))
            .leader_epoch(LeaderEpoch(3))
            .producer(ProducerId(9), ProducerEpoch(2), Sequence(40))
            .compression(codec);
        let header = Header {
            key: b"h",
            value: None,
        };
        for key in 0..5_u8 {
            let value = [key; 50];
            let value = (key != 3).then_some(&value[..]);
            builder
                .append(TimestampMs(1000 - i64::from(key)), Some(&[key]), value, &[header])
                .unwrap();
        }
        builder.build().unwrap().to_vec()
    }

    fn retained<'a>(bytes: &'a [u8], keys: &[u8]) -> Retained<'a> {
        let batch = RecordBatch::parse(bytes).unwrap();
        Retained::of(batch, CAP, |record| keys.contains(&record.key.unwrap()[0])).unwrap()
    }

    fn written(retained: &Retained<'_>, horizon: Option<i64>) -> Vec<u8> {
        let mut out = vec![7];
        retained.write(horizon.map(TimestampMs), &mut out).unwrap();
        out.split_off(1)
    }

    fn facts(bytes: &[u8]) -> Vec<(i64, i64, u8, Option<usize>, usize)> {
        let batch = RecordBatch::parse(bytes).unwrap();
        assert_eq!(batch.bytes().len(), bytes.len());
        batch.verify_crc().unwrap();
        let records = batch.records(CAP).unwrap();
        let read = records.iter().map(Result::unwrap);
        read.map(|r| {
            let (key, value) = (r.key.unwrap()[0], r.value.map(<[u8]>::len));
            (r.offset.0, r.timestamp.0, key, value, r.headers.len())
        })
        .collect()
    }

    #[test]
    fn a_batch_that_loses_nothing_is_copied_byte_for_byte() {
        for codec in Compression::ALL {
            let bytes = batch(codec);
            let whole = retained(&bytes, &[0, 1, 2, 3, 4]);
            assert!(whole.is_whole() && whole.has_tombstones());
            assert_eq!(written(&whole, None), bytes);
        }
    }

    #[test]
    fn what_stays_keeps_its_offset_its_time_and_the_batchs_identity() {
        for codec in Compression::ALL {
            let bytes = batch(codec);
            let some = retained(&bytes, &[1, 2, 4]);
            assert!(!some.is_whole() && !some.is_empty() && !some.has_tombstones());
            let out = written(&some, None);
            assert_eq!(
                facts(&out),
                [
                    (101, 999, 1, Some(50), 1),
                    (102, 998, 2, Some(50), 1),
                    (104, 996, 4, Some(50), 1)
                ]
            );
            let (old, new) = (
                BatchHeader::peek(&bytes).unwrap(),
                BatchHeader::peek(&out).unwrap(),
            );
            assert_eq!((new.base_offset(), new.last_offset()), (Offset(100), Offset(104)));
            assert_eq!((new.records_count(), new.max_timestamp()), (3, TimestampMs(999)));
            assert_eq!(
                (new.producer_id(), new.producer_epoch(), new.base_sequence()),
                (old.producer_id(), old.producer_epoch(), old.base_sequence())
            );
            assert_eq!(new.last_sequence(), Sequence(44));
            assert_eq!(new.partition_leader_epoch(), LeaderEpoch(3));
            assert_eq!(new.attributes(), old.attributes());
        }
    }

    #[test]
    fn a_delete_horizon_is_the_base_timestamp_and_leaves_the_records_times() {
        for codec in Compression::ALL {
            let bytes = batch(codec);
            let out = written(&retained(&bytes, &[3, 4]), Some(86_400_000));
            assert_eq!(facts(&out), [(103, 997, 3, None, 1), (104, 996, 4, Some(50), 1)]);
            let header = BatchHeader::peek(&out).unwrap();
            assert!(header.attributes().has_delete_horizon());
            assert_eq!(header.attributes().compression(), Ok(codec));
            assert_eq!(
                (header.base_timestamp(), header.max_timestamp()),
                (TimestampMs(86_400_000), TimestampMs(997))
            );
            // What is filtered again keeps the horizon.
            let again = written(&retained(&out, &[3]), None);
            assert_eq!(facts(&again), [(103, 997, 3, None, 1)]);
            assert_eq!(
                BatchHeader::peek(&again).unwrap().base_timestamp(),
                TimestampMs(86_400_000)
            );
        }
    }

    #[test]
    fn under_log_append_time_the_batchs_time_stays() {
        let mut bytes = batch(Compression::None);
        RecordBatch::set_log_append_time(&mut bytes, TimestampMs(5000)).unwrap();
        for horizon in [None, Some(9000)] {
            let out = written(&retained(&bytes, &[2]), horizon);
            assert_eq!(facts(&out), [(102, 5000, 2, Some(50), 1)]);
        }
    }

    #[test]
    fn an_emptied_batch_keeps_offsets_producer_and_time() {
        let bytes = batch(Compression::Zstd);
        assert!(retained(&bytes, &[]).is_empty());
        let mut out = Vec::new();
        write_emptied(BatchHeader::peek(&bytes).unwrap(), &mut out);
        assert_eq!((out.len(), facts(&out)), (BATCH_HEADER_LEN, vec![]));
        let header = BatchHeader::peek(&out).unwrap();
        assert_eq!(
            (header.base_offset(), header.last_offset()),
            (Offset(100), Offset(104))
        );
        assert_eq!(
            (header.producer_id(), header.last_sequence()),
            (ProducerId(9), Sequence(44))
        );
        assert_eq!(
            (header.max_timestamp(), header.base_timestamp()),
            (TimestampMs(1000), TimestampMs::NONE)
        );
        assert_eq!(header.attributes().compression(), Ok(Compression::None));
    }

    #[test]
    fn a_timestamp_that_cannot_be_said_from_the_horizon_is_refused() {
        let mut builder = RecordBatchBuilder::new();
        builder
            .append(TimestampMs(i64::MIN), Some(b"k"), None, &[])
            .unwrap();
        let bytes = builder.build().unwrap();
        let all = Retained::of(RecordBatch::parse(&bytes).unwrap(), CAP, |_| true).unwrap();
        let mut out = Vec::new();
        let refused = all.write(Some(TimestampMs(1)), &mut out);
        assert_eq!(
            refused,
            Err(RewriteError::Record(RecordError::Timestamp { delta: 0 }))
        );
        assert!(out.is_empty());
    }
}
