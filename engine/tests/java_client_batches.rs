//! Batches made by Apache Kafka's Java client 4.4.0, one per codec, are read record by record.
//!
//! Each file in `fixtures/java_client` holds one batch of producer 9, epoch 2, from sequence 40:
//! three records at timestamps 1700000000000 and on, keys `key 0` to `key 2`, values
//! `value value value 0` and so on, the second none; one header `h` = `x`, the third's none.
#![cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]

use ringlog_engine::record::{Compression, Header, RecordBatch, RecordError};
use ringlog_engine::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

const BATCHES: [(Compression, &[u8]); 5] = [
    (
        Compression::None,
        include_bytes!("fixtures/java_client/none.batch"),
    ),
    (
        Compression::Gzip,
        include_bytes!("fixtures/java_client/gzip.batch"),
    ),
    (
        Compression::Snappy,
        include_bytes!("fixtures/java_client/snappy.batch"),
    ),
    (Compression::Lz4, include_bytes!("fixtures/java_client/lz4.batch")),
    (
        Compression::Zstd,
        include_bytes!("fixtures/java_client/zstd.batch"),
    ),
];

#[test]
fn every_codec_of_the_java_client_is_read() {
    for (codec, bytes) in BATCHES {
        let batch = RecordBatch::validate_from_producer(bytes, 1000).unwrap();
        let header = batch.header();
        assert_eq!(header.attributes().compression(), Ok(codec));
        assert_eq!(
            (header.producer_id(), header.producer_epoch()),
            (ProducerId(9), ProducerEpoch(2))
        );
        assert_eq!(
            (header.base_sequence(), header.last_sequence()),
            (Sequence(40), Sequence(42))
        );
        assert_eq!(header.max_timestamp(), TimestampMs(1_700_000_000_002));

        let records = batch.records(1000).unwrap();
        let mut count = 0;
        for (i, record) in (0..).zip(&records) {
            let record = record.unwrap();
            let value = format!("value value value {i}");
            let header = Header {
                key: b"h",
                value: (i != 2).then_some(b"x"),
            };
            assert_eq!(record.offset, Offset(i));
            assert_eq!(record.timestamp, TimestampMs(1_700_000_000_000 + i));
            assert_eq!(record.key, Some(format!("key {i}").as_bytes()));
            assert_eq!(record.value, (i != 1).then_some(value.as_bytes()));
            assert_eq!(record.headers.collect::<Vec<_>>(), [header]);
            count += 1;
        }
        assert_eq!(count, 3, "{}", codec.name());
    }
}

#[test]
fn records_larger_than_the_cap_are_refused() {
    for (codec, bytes) in &BATCHES[1..] {
        let refused = RecordBatch::parse(bytes).unwrap().records(84).map(drop);
        assert!(
            matches!(refused, Err(RecordError::Compression(_))),
            "{}",
            codec.name()
        );
        assert!(
            RecordBatch::parse(bytes).unwrap().records(85).is_ok(),
            "{}",
            codec.name()
        );
    }
}
