//! Fetch: how long it waits, how much it brings, and what it says when there is nothing to bring.

use std::thread;
use std::time::{Duration, Instant};

use ringlog_net::protocol::error_code::ErrorCode;
use ringlog_net::protocol::messages::delete_topics::{
    DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use ringlog_net::protocol::messages::fetch::{FetchRequest, FetchResponse};
use ringlog_net::protocol::wire::Uuid;

use crate::broker::{Broker, event};
use crate::client::{Client, batch, batches, code, fetch_request, record_bytes, records};

/// Longer than any test may take.
const LONG_MS: i32 = 50_000;

fn by_id<'a>(topic_id: Uuid, partitions: &[(i32, i64)], max_wait_ms: i32) -> FetchRequest<'a> {
    let mut request = fetch_request("", partitions, max_wait_ms, 1);
    request.topics[0].topic_id = topic_id;
    request
}

#[test]
fn a_waiting_fetch_is_answered_when_a_batch_comes_to_any_shard() {
    let broker = Broker::start(&[]);
    let (mut reader, mut writer) = (broker.client(), broker.client());
    writer.create("t", 4, &[]);
    let began = Instant::now();
    for round in 0..20 {
        // One partition alone lies on one shard, with the connection or without; all lie on both.
        let asked = match round % 5 {
            4 => (0..4).collect(),
            partition => vec![partition],
        };
        let target = asked[asked.len() / 2];
        let ends: Vec<_> = asked
            .iter()
            .map(|&p| (p, writer.list_offset("t", p, -1).offset))
            .collect();
        reader.send(11, &fetch_request("t", &ends, LONG_MS, 1));
        let offset = writer.produce("t", target, &batch(&[b"news"])).unwrap();
        let found: Vec<_> = reader.receive_fetched();
        for data in &found {
            let expected = if data.partition_index == target {
                vec![(offset, b"news".to_vec())]
            } else {
                vec![]
            };
            assert_eq!(records(data), expected, "round {round}");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(15), "no wait ran out");
}

#[test]
fn min_bytes_are_counted_over_all_shards() {
    let broker = Broker::start(&[]);
    let (mut reader, mut writer) = (broker.client(), broker.client());
    writer.create("t", 2, &[]);
    let batch = batch(&[&[7; 1000]]);
    let wanted = i32::try_from(batch.len() * 3 / 2).unwrap();
    reader.send(11, &fetch_request("t", &[(0, 0), (1, 0)], LONG_MS, wanted));
    writer.produce("t", 0, &batch).unwrap();
    writer.produce("t", 1, &batch).unwrap();
    let found = reader.receive_fetched();
    assert!(
        found.iter().all(|data| record_bytes(data).len() == batch.len()),
        "both, or it came too early"
    );

    // More than a reply may hold is not waited for.
    let mut request = fetch_request("t", &[(0, 0), (1, 0)], LONG_MS, i32::MAX);
    request.max_bytes = 1500;
    let began = Instant::now();
    reader.send(11, &request);
    assert_eq!(
        reader
            .receive_fetched()
            .iter()
            .map(|data| records(data).len())
            .sum::<usize>(),
        1
    );
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_wait_ends_at_its_time_or_at_once_where_there_is_an_error() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    let id = client.create("t", 2, &[]);
    for partitions in [&[(0, 0)][..], &[(0, 0), (1, 0)]] {
        let began = Instant::now();
        client.send(11, &fetch_request("t", partitions, 300, 1));
        assert!(
            client
                .receive_fetched()
                .iter()
                .all(|data| records(data).is_empty())
        );
        assert!(
            (300..5000).contains(&began.elapsed().as_millis()),
            "{:?}",
            began.elapsed()
        );
    }
    let began = Instant::now();
    client.produce("t", 1, &batch(&[b"a"])).unwrap();
    for (partition, offset, expected) in [
        (1, 2, ErrorCode::OffsetOutOfRange),
        (1, -1, ErrorCode::OffsetOutOfRange),
        (2, 0, ErrorCode::UnknownTopicOrPartition),
    ] {
        client.send(
            11,
            &fetch_request("t", &[(0, 0), (partition, offset)], LONG_MS, 1 << 20),
        );
        assert_eq!(
            code(client.receive_fetched()[1].error_code),
            expected,
            "{partition} {offset}"
        );
    }
    let nothing = FetchRequest {
        topics: Vec::new(),
        ..fetch_request("t", &[], LONG_MS, 1)
    };
    let response: FetchResponse<'_> = client.call(11, &nothing);
    assert!(response.responses.is_empty());
    client.send(11, &fetch_request("missing", &[(0, 0)], LONG_MS, 1));
    assert_eq!(
        code(client.receive_fetched()[0].error_code),
        ErrorCode::UnknownTopicOrPartition
    );
    client.send(17, &by_id(Uuid([9; 16]), &[(0, 0)], LONG_MS));
    assert_eq!(
        code(client.receive_fetched()[0].error_code),
        ErrorCode::UnknownTopicId
    );
    let mut fenced = fetch_request("t", &[(0, 0)], LONG_MS, 1);
    fenced.topics[0].partitions[0].current_leader_epoch = 99;
    client.send(11, &fenced);
    assert_eq!(
        code(client.receive_fetched()[0].error_code),
        ErrorCode::UnknownLeaderEpoch
    );

    let session = FetchRequest {
        session_id: 77,
        session_epoch: 1,
        ..by_id(id, &[(1, 0)], LONG_MS)
    };
    let response: FetchResponse<'_> = client.call(13, &session);
    assert_eq!(code(response.error_code), ErrorCode::FetchSessionIdNotFound);
    client.send(13, &by_id(id, &[(1, 0)], LONG_MS));
    assert_eq!(records(&client.receive_fetched()[0]), [(0, b"a".to_vec())]);
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn limits_hold_but_the_first_batch_is_whole() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 4, &[]);
    let large = batch(&[&[1; 5000], &[2; 5000]]);
    for partition in 0..4 {
        assert_eq!(client.produce("t", partition, &large), Ok(0));
        assert_eq!(client.produce("t", partition, &large), Ok(2));
    }
    // From the middle of the first batch: it is sent from its start.
    let data = client.fetch("t", 0, 1);
    assert_eq!(batches(&data)[0].header().base_offset().0, 0);
    assert_eq!(batches(&data).len(), 2);

    let all = [(0, 0), (1, 0), (2, 0), (3, 0)];
    let limited = |max_bytes, partition_max_bytes| {
        let mut request = fetch_request("t", &all, 0, 0);
        request.max_bytes = max_bytes;
        for partition in &mut request.topics[0].partitions {
            partition.partition_max_bytes = partition_max_bytes;
        }
        request
    };
    let len_bytes = i32::try_from(large.len()).unwrap();
    for (max_bytes, partition_max_bytes, whole) in [
        (1, 1 << 20, [1, 0, 0, 0]),
        (len_bytes + 100, 1 << 20, [1, 0, 0, 0]),
        (3 * len_bytes, 1 << 20, [2, 1, 0, 0]),
        (3 * len_bytes, len_bytes, [1, 1, 1, 0]),
        (i32::MAX, 0, [1, 1, 1, 1]),
    ] {
        client.send(11, &limited(max_bytes, partition_max_bytes));
        let found = client.receive_fetched();
        let counts: Vec<_> = found.iter().map(|data| batches(data).len()).collect();
        assert_eq!(counts, whole, "{max_bytes} in all, {partition_max_bytes} each");
        let total: usize = found.iter().map(|data| record_bytes(data).len()).sum();
        assert!(
            total <= usize::try_from(max_bytes).unwrap().max(large.len()),
            "{total}"
        );
    }
}

#[test]
fn a_topic_deleted_during_the_wait_is_said_to_be_unknown() {
    let broker = Broker::start(&[]);
    let mut admin = broker.client();
    for (version, expected) in [
        (11, ErrorCode::UnknownTopicOrPartition),
        (13, ErrorCode::UnknownTopicId),
    ] {
        let id = admin.create("t", 2, &[]);
        let mut readers = [broker.client(), broker.client(), broker.client()];
        for (reader, partitions) in readers
            .iter_mut()
            .zip([&[(0, 0)][..], &[(1, 0)], &[(0, 0), (1, 0)]])
        {
            let mut request = by_id(id, partitions, LONG_MS);
            request.topics[0].topic = "t";
            reader.send(version, &request);
        }
        let began = Instant::now();
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some("t"),
                ..DeleteTopicState::default()
            }],
            ..DeleteTopicsRequest::default()
        };
        let response: DeleteTopicsResponse<'_> = admin.call(6, &request);
        assert_eq!(code(response.responses[0].error_code), ErrorCode::None);
        for reader in &mut readers {
            assert!(
                reader
                    .receive_fetched()
                    .iter()
                    .any(|data| code(data.error_code) == expected)
            );
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_and_loses_nothing() {
    let broker = Broker::start(&[]);
    let (mut idle, mut active) = (broker.client(), broker.client());
    active.create("t", 2, &[]);
    let value = vec![3; 900_000];
    for partition in [0, 1] {
        active.produce("t", partition, &batch(&[&value])).unwrap();
    }
    let before = broker.resident_bytes();
    // Far more replies than the sockets' buffers take.
    let rounds = 60;
    for _ in 0..rounds {
        idle.send(11, &fetch_request("t", &[(0, 0), (1, 0)], 0, 0));
    }
    for partition in [0, 1] {
        active.produce("t", partition, &batch(&[b"meanwhile"])).unwrap();
    }
    assert_eq!(active.fetch("t", 0, 1).high_watermark, 2);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for replies that nobody takes");
    for _ in 0..rounds {
        for data in idle.receive_fetched() {
            assert_eq!(records(&data)[0].1, value);
        }
    }
}

#[test]
fn records_reach_consumers_without_passing_through_user_space() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[]);
    for number in 0..40u8 {
        client
            .produce("t", i32::from(number % 2), &batch(&[&[number; 20_000]]))
            .unwrap();
    }
    let address = broker.address;
    let consume = move || {
        let mut client = Client::connect(address);
        let mut received = 0;
        for partition in [0, 1] {
            let mut offset = 0;
            while offset < 20 {
                let data = client.fetch("t", partition, offset);
                received += record_bytes(&data).len();
                offset = records(&data).last().unwrap().0 + 1;
            }
        }
        received
    };
    let consumers: Vec<_> = (0..3).map(|_| thread::spawn(consume)).collect();
    let received: usize = consumers
        .into_iter()
        .map(|consumer| consumer.join().unwrap())
        .sum();
    let (_dir, logged) = broker.stop();
    let counted = event(&logged, "stopped");
    assert_eq!(counted["sendfile_bytes"], received, "{counted}");
    assert_eq!(counted["fetch_bytes_copied"], 0);
}
