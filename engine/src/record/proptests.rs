//! Batches by property: what goes in comes back in every codec, and hostile bytes never panic.

use proptest::prelude::*;

use super::*;
use crate::types::TimestampMs;

const CAP: usize = 1 << 20;

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);
type OwnedRecord = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<OwnedHeader>);

fn owned_record() -> impl Strategy<Value = OwnedRecord> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let headers = prop::collection::vec((bytes(), prop::option::of(bytes())), 0..4);
    (
        0..i64::MAX,
        prop::option::of(bytes()),
        prop::option::of(bytes()),
        headers,
    )
}

fn build(records: &[OwnedRecord], compression: Compression) -> bytes::Bytes {
    let mut builder = RecordBatchBuilder::new().compression(compression);
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        builder
            .append(
                TimestampMs(*timestamp),
                key.as_deref(),
                value.as_deref(),
                &headers,
            )
            .unwrap();
    }
    builder.build().unwrap()
}

/// Those of this build.
fn any_compression() -> impl Strategy<Value = Compression> {
    let compiled_in = Compression::ALL
        .into_iter()
        .filter(|&codec| compress(codec, b"").is_ok());
    prop::sample::select(compiled_in.collect::<Vec<_>>())
}

/// Reads all there is to read, for what it does on the way.
fn read_everything(bytes: &[u8]) {
    let _ = RecordBatch::validate_from_producer(bytes, u32::MAX);
    let Ok(batch) = RecordBatch::parse(bytes) else {
        return;
    };
    let _ = EndTxnMarker::from_batch(&batch);
    let Ok(records) = batch.records(CAP) else { return };
    for record in records.iter().flatten() {
        assert!(record.headers.map(|header| header.key.len()).sum::<usize>() <= CAP);
    }
}

proptest! {
    #[test]
    fn records_come_back_as_they_went_in(
        records in prop::collection::vec(owned_record(), 1..20),
        compression in any_compression(),
    ) {
        let bytes = build(&records, compression);
        let batch = RecordBatch::validate_from_producer(&bytes, u32::MAX).unwrap();
        prop_assert_eq!(batch.header().attributes().compression(), Ok(compression));
        let max_timestamp = records.iter().map(|record| record.0).max();
        prop_assert_eq!(Some(batch.header().max_timestamp().0), max_timestamp);
        let read = batch.records(CAP).unwrap();
        let mut count = 0;
        for (i, record) in read.iter().enumerate() {
            let record = record.unwrap();
            let (timestamp, key, value, headers) = &records[i];
            prop_assert_eq!(record.offset.0, i64::try_from(i).unwrap());
            prop_assert_eq!(record.timestamp.0, *timestamp);
            prop_assert_eq!(record.key, key.as_deref());
            prop_assert_eq!(record.value, value.as_deref());
            let read: Vec<_> =
                record.headers.map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(&read, headers);
            count += 1;
        }
        prop_assert_eq!(count, records.len());
    }

    #[test]
    fn hostile_bytes_never_panic(
        records in prop::collection::vec(owned_record(), 1..4),
        compression in any_compression(),
        patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = build(&records, compression).to_vec();
        for (at, byte) in patches {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // Keep what gates the rest, so that the patches reach the records.
        bytes[16] = 2;
        read_everything(&bytes);
        let length = i32::try_from(bytes.len() - LOG_OVERHEAD).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        read_everything(&bytes);
        read_everything(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn random_payloads_never_panic(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        records_count: i32,
        compression in any_compression(),
    ) {
        let mut bytes = RecordBatchBuilder::new().build().unwrap().to_vec();
        bytes.extend(&payload);
        let length = i32::try_from(bytes.len() - LOG_OVERHEAD).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[22] = compression.id();
        bytes[23..27].copy_from_slice(&i32::MAX.to_be_bytes());
        bytes[57..61].copy_from_slice(&records_count.to_be_bytes());
        read_everything(&bytes);
        read_everything(&payload);
    }
}
