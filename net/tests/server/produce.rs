//! Produce: what is refused and why, what is answered and in which order.

use std::io::Write;

use ringlog_engine::config::TimestampType;
use ringlog_engine::record::{Compression, RecordBatchBuilder};
use ringlog_net::protocol::error_code::ErrorCode;

use crate::broker::Broker;
use crate::client::{batch, batch_at, batches, build, code, now_ms, produce_request};

/// Bytes of the header that the tests break.
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;

/// Makes the checksum right again.
fn seal(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn with(mut batch: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    batch[at] = byte;
    batch
}

#[test]
fn a_batch_that_is_refused_leaves_no_trace() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[("max.message.bytes", "1000")]);
    let good = batch(&[b"value"]);
    let day = 24 * 3600 * 1000;
    let zstd = build(
        RecordBatchBuilder::new().compression(Compression::Zstd),
        now_ms(),
        &[&[7; 200]],
    );
    let refused = [
        (
            with(good.clone(), CRC_AT, good[CRC_AT] ^ 1),
            ErrorCode::CorruptMessage,
        ),
        (good[..good.len() - 1].to_vec(), ErrorCode::CorruptMessage),
        (good[..11].to_vec(), ErrorCode::CorruptMessage),
        (
            seal(with(good.clone(), MAGIC_AT, 1)),
            ErrorCode::UnsupportedForMessageFormat,
        ),
        ([good.clone(), good.clone()].concat(), ErrorCode::InvalidRecord),
        (batch(&[&[0; 1001]]), ErrorCode::MessageTooLarge),
        (batch_at(now_ms() + day, &[b"early"]), ErrorCode::InvalidTimestamp),
        (
            build(RecordBatchBuilder::new().control(), now_ms(), &[b"marker"]),
            ErrorCode::InvalidRecord,
        ),
        // Codec 5 is none; bit 3 says that the broker has set the timestamps.
        (
            seal(with(good.clone(), ATTRIBUTES_AT + 1, 5)),
            ErrorCode::UnsupportedCompressionType,
        ),
        (
            seal(with(good.clone(), ATTRIBUTES_AT + 1, 8)),
            ErrorCode::InvalidRecord,
        ),
        // One record, but numbered as two.
        (
            seal(with(good.clone(), ATTRIBUTES_AT + 5, 1)),
            ErrorCode::InvalidRecord,
        ),
        (Vec::new(), ErrorCode::InvalidRecord),
    ];
    for (number, (batch, expected)) in refused.iter().enumerate() {
        assert_eq!(client.produce("t", 0, batch), Err(*expected), "case {number}");
    }
    let answer = client.produce_with(9, 5, "t", 0, &good);
    assert_eq!(code(answer.error_code), ErrorCode::InvalidRequiredAcks);
    let answer = client.produce_with(6, -1, "t", 0, &zstd);
    assert_eq!(
        code(answer.error_code),
        ErrorCode::UnsupportedCompressionType,
        "zstd came with version 7"
    );
    assert_eq!(
        client.produce("missing", 0, &good),
        Err(ErrorCode::UnknownTopicOrPartition)
    );
    assert_eq!(
        client.produce("t", 1, &good),
        Err(ErrorCode::UnknownTopicOrPartition)
    );
    assert_eq!(
        client.produce("t", -1, &good),
        Err(ErrorCode::UnknownTopicOrPartition)
    );

    assert_eq!(
        client.produce("t", 0, &zstd),
        Ok(0),
        "the first offset is still to be given"
    );
    assert_eq!(client.read_all("t", 0, 0).len(), 1);
}

#[test]
fn without_acknowledgement_there_is_no_reply_and_an_error_ends_the_connection() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[]);
    for partition in [0, 1] {
        client.send(9, &produce_request(0, "t", &[(partition, &batch(&[b"silent"]))]));
        client.expect_no_reply();
    }
    // The next reply is the next request's, and the batches are there.
    client.expect_served();
    let mut other = broker.client();
    for partition in [0, 1] {
        assert_eq!(other.produce("t", partition, &batch(&[b"loud"])), Ok(1));
    }
    client.send(9, &produce_request(0, "t", &[(7, &batch(&[b"nowhere"]))]));
    client.expect_closed("an error without acknowledgement");
    other.expect_served();
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let broker = Broker::start(&["max.inflight.requests.per.connection=2"]);
    let mut client = broker.client();
    client.create("t", 4, &[]);
    let mut requests = Vec::new();
    for round in 0..25u8 {
        for partition in [0, 1, 2, 3] {
            let batch = batch(&[&[round]]);
            requests.extend(client.frame(9, &produce_request(-1, "t", &[(partition, &batch)])));
        }
    }
    client.stream.write_all(&requests).unwrap();
    for round in 0..25 {
        for partition in 0..4 {
            let answer = client.receive_produced().remove(0);
            assert_eq!(
                (answer.index, code(answer.error_code)),
                (partition, ErrorCode::None)
            );
            assert_eq!(answer.base_offset, round, "partition {partition}");
        }
    }
}

#[test]
fn one_request_may_write_to_many_partitions_of_all_shards() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 50, &[]);
    let batch = batch(&[b"a", b"b"]);
    // The last partition is not there, and the first comes twice.
    let asked: Vec<_> = (0..51)
        .chain([0])
        .map(|partition| (partition, &batch[..]))
        .collect();
    client.send(9, &produce_request(-1, "t", &asked));
    let answers = client.receive_produced();
    assert_eq!(answers.len(), 52);
    for (answer, (partition, _)) in answers.iter().zip(&asked) {
        assert_eq!(answer.index, *partition);
    }
    assert!(
        answers[..50]
            .iter()
            .all(|answer| (answer.error_code, answer.base_offset) == (0, 0))
    );
    assert_eq!(code(answers[50].error_code), ErrorCode::UnknownTopicOrPartition);
    assert_eq!((answers[51].error_code, answers[51].base_offset), (0, 2));
}

#[test]
fn the_broker_sets_the_time_of_append_where_the_topic_says_so() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[("message.timestamp.type", "LogAppendTime")]);
    let before = now_ms();
    let answer = client.produce_with(9, -1, "t", 0, &batch_at(1000, &[b"a", b"b"]));
    let appended = answer.log_append_time_ms;
    assert!((before..=now_ms()).contains(&appended), "{appended}");
    let data = client.fetch("t", 0, 0);
    let header = batches(&data)[0].header();
    assert_eq!(header.max_timestamp().0, appended);
    assert_eq!(header.attributes().timestamp_type(), TimestampType::LogAppendTime);

    client.create("created", 1, &[]);
    let answer = client.produce_with(9, -1, "created", 0, &batch_at(1000, &[b"a"]));
    assert_eq!(answer.log_append_time_ms, -1);
    assert_eq!(client.list_offset("created", 0, 1000).offset, 0);
    assert_eq!(client.list_offset("created", 0, 1001).offset, -1);
}
