//! Many clients at once, on all shards, while topics come and go: nobody waits for ever, nothing is lost.

use std::net::SocketAddr;
use std::thread;

use ringlog_net::protocol::error_code::ErrorCode;

use crate::broker::Broker;
use crate::client::{Client, batch, code, fetch_request, produce_request, records};
use crate::topics::{delete, metadata};

const PRODUCERS: usize = 24;
const PARTITIONS: i32 = 6;
const ROUNDS: usize = 10;
/// Requests of one connection under way.
const DEPTH: usize = 20;

#[test]
fn crowds_on_all_shards_do_not_block_each_other() {
    let broker = Broker::start(&[]);
    let address = broker.address;
    broker.client().create("crowd", PARTITIONS, &[]);
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|number| thread::spawn(move || produce(address, u8::try_from(number).unwrap())))
        .collect();
    let expected = PRODUCERS * ROUNDS * DEPTH;
    let consumers: Vec<_> = (0..4)
        .map(|_| thread::spawn(move || consume(address, expected)))
        .collect();
    let mut admin = broker.client();
    for round in 0..10 {
        let name = format!("passing-{}", round % 2);
        admin.create(&name, 4, &[]);
        let mut writer = broker.client();
        for partition in 0..4 {
            writer.send(9, &produce_request(-1, &name, &[(partition, &batch(&[b"x"]))]));
        }
        assert_eq!(delete(&mut admin, &name), ErrorCode::None);
        for _ in 0..4 {
            // In time, or too late: an answer either way.
            let answer = code(writer.receive_produced()[0].error_code);
            assert!(
                matches!(answer, ErrorCode::None | ErrorCode::UnknownTopicOrPartition),
                "{answer:?}"
            );
        }
        assert_eq!(
            code(metadata(&mut admin, "crowd", false).error_code),
            ErrorCode::None
        );
    }
    for producer in producers {
        producer.join().unwrap();
    }
    for consumer in consumers {
        consumer.join().unwrap();
    }
    broker.stop();
}

/// Sends records to the partitions in turn, many requests at a time.
fn produce(address: SocketAddr, number: u8) {
    let mut client = Client::connect(address);
    for _ in 0..ROUNDS {
        for request in 0..DEPTH {
            let partition = i32::try_from(request).expect("a small number") % PARTITIONS;
            client.send(
                9,
                &produce_request(-1, "crowd", &[(partition, &batch(&[&[number]]))]),
            );
        }
        for _ in 0..DEPTH {
            let answer = client.receive_produced().remove(0);
            assert_eq!(code(answer.error_code), ErrorCode::None);
        }
    }
}

/// Follows all partitions by waiting fetches until all records have come.
fn consume(address: SocketAddr, expected: usize) {
    let mut client = Client::connect(address);
    let mut next = vec![0; usize::try_from(PARTITIONS).expect("a small number")];
    let mut read = 0;
    while read < expected {
        let asked: Vec<_> = (0..).zip(next.iter().copied()).collect();
        client.send(11, &fetch_request("crowd", &asked, 20_000, 1));
        for data in client.receive_fetched() {
            assert_eq!(code(data.error_code), ErrorCode::None);
            let next = &mut next[usize::try_from(data.partition_index).expect("a small number")];
            for (offset, _) in records(&data) {
                // A batch comes whole, also from its middle.
                if offset < *next {
                    continue;
                }
                assert_eq!(offset, *next, "no record is skipped");
                *next += 1;
                read += 1;
            }
        }
    }
    assert_eq!(read, expected);
}
