//! Batches from end to end: exact bytes, what a producer may send, faults within the records.

use super::*;
use crate::config::TimestampType;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

const CAP: usize = 1 << 20;

/// Two records, made by hand from the format's description; the CRC by a bitwise CRC-32C.
const TWO_RECORDS: [u8; 85] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // base offset 0
    0x00, 0x00, 0x00, 0x49, // 73 bytes follow
    0xff, 0xff, 0xff, 0xff, // no leader epoch
    0x02, // magic
    0xc6, 0xb8, 0x52, 0x43, // crc
    0x00, 0x00, // attributes
    0x00, 0x00, 0x00, 0x01, // last offset delta
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xe8, // base timestamp 1000
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x29, // max timestamp 1065
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // no producer id
    0xff, 0xff, // no producer epoch
    0xff, 0xff, 0xff, 0xff, // no sequence
    0x00, 0x00, 0x00, 0x02, // two records
    0x18, 0x00, 0x00, 0x00, 0x02, b'k', 0x02, b'v', 0x02, 0x02, b'h', 0x02, b'x', // k=v, h: x
    0x14, 0x00, 0x82, 0x01, 0x02, 0x01, 0x01, 0x02, 0x02, b'n', 0x01, // null=null, n: null
];

/// A commit marker of producer 9 in epoch 3 by coordinator epoch 5, likewise by hand.
const COMMIT: [u8; 78] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x42, 0xff, 0xff, 0xff, 0xff, 0x02,
    0xb5, 0xa1, 0xda, 0xd3, 0x00, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x4d, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x4d, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09,
    0x00, 0x03, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x20, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00,
    0x00, 0x01, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x00,
];

/// Sets bytes and renews the CRC, so that what comes after the CRC's check is reached.
fn patched(bytes: &[u8], at: usize, patch: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + patch.len()].copy_from_slice(patch);
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn validate(bytes: &[u8]) -> Result<(), BatchError> {
    RecordBatch::validate_from_producer(bytes, 1_048_588).map(drop)
}

#[test]
fn builder_makes_the_bytes_of_the_format() {
    let mut builder = RecordBatchBuilder::new();
    let header = Header {
        key: b"h",
        value: Some(b"x"),
    };
    builder
        .append(TimestampMs(1000), Some(b"k"), Some(b"v"), &[header])
        .unwrap();
    builder
        .append(
            TimestampMs(1065),
            None,
            None,
            &[Header {
                key: b"n",
                value: None,
            }],
        )
        .unwrap();
    assert_eq!(builder.len_bytes(), TWO_RECORDS.len());
    assert_eq!(builder.build().unwrap(), TWO_RECORDS[..]);
}

#[test]
fn end_marker_has_the_bytes_of_the_format_and_comes_back() {
    let marker = EndTxnMarker {
        committed: true,
        coordinator_epoch: 5,
    };
    let built = RecordBatchBuilder::end_txn_marker(ProducerId(9), ProducerEpoch(3), TimestampMs(77), marker);
    assert_eq!(built, COMMIT[..]);
    let batch = RecordBatch::parse(&COMMIT).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!(EndTxnMarker::from_batch(&batch), Ok(Some(marker)));
}

#[test]
fn records_are_read_from_the_bytes_of_the_format() {
    let mut log = TWO_RECORDS.to_vec();
    log.extend(COMMIT);
    RecordBatch::assign(&mut log, Offset(500), LeaderEpoch(4)).unwrap();
    let batch = RecordBatch::parse(&log).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!(
        batch.bytes().len(),
        TWO_RECORDS.len(),
        "what follows is not part of it"
    );
    assert_eq!(batch.header().partition_leader_epoch(), LeaderEpoch(4));

    let records = batch.records(CAP).unwrap();
    let [first, second] = &records.iter().collect::<Result<Vec<_>, _>>().unwrap()[..] else {
        panic!("two records");
    };
    assert_eq!((first.offset, first.timestamp), (Offset(500), TimestampMs(1000)));
    assert_eq!((first.key, first.value), (Some(&b"k"[..]), Some(&b"v"[..])));
    assert_eq!(
        first.headers.clone().collect::<Vec<_>>(),
        [Header {
            key: b"h",
            value: Some(b"x")
        }]
    );
    assert_eq!(
        (second.offset, second.timestamp),
        (Offset(501), TimestampMs(1065))
    );
    assert_eq!((second.key, second.value), (None, None));
    assert_eq!(
        second.headers.clone().collect::<Vec<_>>(),
        [Header {
            key: b"n",
            value: None
        }]
    );
}

#[test]
fn log_append_time_is_every_records_timestamp_and_keeps_the_crc_right() {
    let mut log = [&TWO_RECORDS[..], &COMMIT].concat();
    RecordBatch::set_log_append_time(&mut log, TimestampMs(9_999)).unwrap();
    let batch = RecordBatch::parse(&log).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!(
        batch.header().attributes().timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(batch.header().max_timestamp(), TimestampMs(9_999));
    for record in &batch.records(CAP).unwrap() {
        assert_eq!(record.unwrap().timestamp, TimestampMs(9_999));
    }
    assert_eq!(log[TWO_RECORDS.len()..], COMMIT, "the next batch is untouched");
    assert_eq!(
        RecordBatch::set_log_append_time(&mut log[..80], TimestampMs(1)),
        Err(BatchError::Incomplete {
            needed: 85,
            available: 80
        })
    );
}

#[test]
fn an_honest_batch_of_a_producer_is_accepted() {
    assert_eq!(validate(&TWO_RECORDS), Ok(()));
    let mut builder = RecordBatchBuilder::new()
        .producer(ProducerId(0), ProducerEpoch(0), Sequence(i32::MAX))
        .transactional();
    builder.append(TimestampMs(1), None, Some(b"v"), &[]).unwrap();
    assert_eq!(validate(&builder.build().unwrap()), Ok(()));
}

#[test]
fn a_producers_batch_is_refused_for_what_is_wrong_with_it() {
    let good = TWO_RECORDS;
    let len = good.len();
    assert_eq!(
        validate(&[]),
        Err(BatchError::Incomplete {
            needed: 61,
            available: 0
        })
    );
    assert_eq!(
        validate(&good[..len - 1]),
        Err(BatchError::Incomplete {
            needed: len,
            available: len - 1
        })
    );
    assert_eq!(
        validate(&[&good[..], &good].concat()),
        Err(BatchError::TrailingBytes { extra: len })
    );
    assert_eq!(
        RecordBatch::validate_from_producer(&good, 84).map(drop),
        Err(BatchError::TooLarge {
            len_bytes: len,
            max_message_bytes: 84
        })
    );
    assert!(RecordBatch::validate_from_producer(&good, 85).is_ok());

    let mut flipped = good;
    flipped[70] ^= 1;
    assert!(matches!(
        validate(&flipped),
        Err(BatchError::Crc {
            stored: 0xc6b8_5243,
            ..
        })
    ));

    let no_records = patched(&good, 57, &0_i32.to_be_bytes());
    assert_eq!(
        validate(&no_records),
        Err(BatchError::OffsetRange {
            records_count: 0,
            last_offset_delta: 1
        })
    );
    let gap = patched(&good, 23, &2_i32.to_be_bytes());
    assert_eq!(
        validate(&gap),
        Err(BatchError::OffsetRange {
            records_count: 2,
            last_offset_delta: 2
        })
    );
    let negative = patched(&good, 57, &(-1_i32).to_be_bytes());
    assert_eq!(
        validate(&negative),
        Err(BatchError::RecordsCount { records_count: -1 })
    );
    let negative = patched(&good, 23, &(-1_i32).to_be_bytes());
    assert_eq!(
        validate(&negative),
        Err(BatchError::LastOffsetDelta {
            last_offset_delta: -1
        })
    );

    let claimed = |count: i32, attributes: u8| {
        let bytes = patched(&good, 57, &count.to_be_bytes());
        let bytes = patched(&bytes, 23, &(count - 1).to_be_bytes());
        validate(&patched(&bytes, 22, &[attributes]))
    };
    let available = good.len() - 61;
    let most = i32::try_from(available / 7).unwrap();
    assert_eq!(claimed(most, 0), Ok(()));
    for records_count in [most + 1, i32::MAX] {
        assert_eq!(
            claimed(records_count, 0),
            Err(BatchError::RecordsBeyondBytes {
                records_count,
                available
            })
        );
        assert_eq!(
            claimed(records_count, 1),
            Ok(()),
            "compressed, which is not looked into"
        );
    }

    assert_eq!(validate(&COMMIT), Err(BatchError::Control));
    assert_eq!(
        validate(&patched(&good, 22, &[5])),
        Err(BatchError::UnknownCodec { id: 5 })
    );
    assert_eq!(
        validate(&patched(&good, 22, &[8])),
        Err(BatchError::TimestampType)
    );
}

#[test]
fn producer_identity_must_be_coherent() {
    let with = |id: i64, epoch: i16, sequence: i32, attributes: u8| {
        let bytes = patched(&TWO_RECORDS, 43, &id.to_be_bytes());
        let bytes = patched(&bytes, 51, &epoch.to_be_bytes());
        let bytes = patched(&bytes, 53, &sequence.to_be_bytes());
        validate(&patched(&bytes, 22, &[attributes]))
    };
    assert_eq!(with(5, 0, 0, 0), Ok(()));
    assert_eq!(with(-1, -1, -1, 0), Ok(()));
    for (id, epoch, sequence, attributes) in [(5, 0, -1, 0), (5, -1, 0, 0), (-2, 0, 0, 0), (-1, -1, -1, 0x10)]
    {
        assert_eq!(
            with(id, epoch, sequence, attributes),
            Err(BatchError::Producer {
                producer_id: ProducerId(id),
                producer_epoch: ProducerEpoch(epoch),
                base_sequence: Sequence(sequence),
            })
        );
    }
}

#[test]
fn faults_within_the_records_end_the_iteration() {
    let fault = |at: usize, patch: &[u8]| {
        let bytes = patched(&TWO_RECORDS, at, patch);
        let records = RecordBatch::parse(&bytes).unwrap().records(CAP).unwrap();
        let mut iter = records.iter();
        let fault = iter.find_map(Result::err).expect("a fault");
        assert!(iter.next().is_none(), "nothing after a fault");
        fault
    };
    // One record more than there is, then one fewer.
    assert_eq!(
        fault(57, &3_i32.to_be_bytes()),
        RecordError::Varint(VarintError::Truncated)
    );
    assert_eq!(
        fault(57, &1_i32.to_be_bytes()),
        RecordError::TrailingBytes { extra: 11 }
    );
    // Record lengths: beyond the batch, negative.
    assert_eq!(
        fault(74, &[0x16]),
        RecordError::Length {
            length: 11,
            available: 10
        }
    );
    assert_eq!(
        fault(61, &[0x01]),
        RecordError::Length {
            length: -1,
            available: 23
        }
    );
    // Key beyond the record; more headers than could be; a header key that is null.
    assert_eq!(
        fault(65, &[0x7e]),
        RecordError::Length {
            length: 63,
            available: 8
        }
    );
    assert_eq!(
        fault(69, &[0x06]),
        RecordError::HeadersCount {
            count: 3,
            available: 4
        }
    );
    assert_eq!(
        fault(69, &[0x01]),
        RecordError::HeadersCount {
            count: -1,
            available: 4
        }
    );
    assert_eq!(
        fault(70, &[0x01]),
        RecordError::Length {
            length: -1,
            available: 3
        }
    );
    assert_eq!(fault(69, &[0x00]), RecordError::TrailingBytes { extra: 4 });
    // Offsets: the same again, and beyond the batch.
    assert_eq!(
        fault(78, &[0x00]),
        RecordError::OffsetDelta {
            delta: 0,
            previous: 0,
            last: 1
        }
    );
    assert_eq!(
        fault(78, &[0x04]),
        RecordError::OffsetDelta {
            delta: 2,
            previous: 0,
            last: 1
        }
    );
    assert_eq!(
        fault(27, &i64::MAX.to_be_bytes()),
        RecordError::Timestamp { delta: 65 }
    );
}

#[test]
fn builder_refuses_timestamps_it_cannot_encode() {
    let mut builder = RecordBatchBuilder::new();
    builder.append(TimestampMs(i64::MAX), None, None, &[]).unwrap();
    assert_eq!(
        builder.append(TimestampMs(-2), None, None, &[]),
        Err(BuildError::Timestamp {
            timestamp: TimestampMs(-2),
            base_timestamp: TimestampMs(i64::MAX)
        })
    );
    assert_eq!(builder.records_count(), 1);
}

#[test]
fn a_batch_that_compaction_has_emptied_has_no_records() {
    let bytes = RecordBatchBuilder::new().build().unwrap();
    let batch = RecordBatch::parse(&bytes).unwrap();
    assert_eq!(bytes.len(), BATCH_HEADER_LEN);
    assert_eq!(batch.records(CAP).unwrap().iter().count(), 0);
    assert_eq!(
        validate(&bytes),
        Err(BatchError::OffsetRange {
            records_count: 0,
            last_offset_delta: 0
        })
    );
}
