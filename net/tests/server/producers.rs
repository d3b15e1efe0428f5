//! Idempotent producers: nothing twice, nothing out of order, whatever happens to the broker between.

use ringlog_engine::record::RecordBatchBuilder;
use ringlog_engine::types::{ProducerEpoch, ProducerId, Sequence};
use ringlog_net::protocol::error_code::ErrorCode;
use ringlog_net::protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use crate::broker::Broker;
use crate::client::{Client, build, code, now_ms};

fn init(client: &mut Client) -> i64 {
    let response: InitProducerIdResponse = client.call(4, &InitProducerIdRequest::default());
    assert_eq!(code(response.error_code), ErrorCode::None);
    response.producer_id
}

/// Three records from `sequence` on.
fn batch(id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let producer =
        RecordBatchBuilder::new().producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    build(producer, now_ms(), &[b"a", b"b", b"c"])
}

#[test]
fn an_id_that_a_client_made_up_uses_none_up() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 0, &batch(i64::MAX, 0, 0)), Ok(0));
    let broker = broker.restart();
    let (id, other) = (init(&mut broker.client()), init(&mut broker.client()));
    assert!(id < other && other < 10_000, "{id}, {other}");
}

#[test]
fn a_transactional_batch_without_a_transactional_id_is_refused() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[]);
    let producer = RecordBatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), Sequence(0));
    let rogue = build(producer.transactional(), now_ms(), &[b"rogue"]);
    assert_eq!(
        client.produce("t", 0, &rogue),
        Err(ErrorCode::TransactionalIdAuthorizationFailed)
    );
    assert_eq!(client.produce("t", 0, &batch(7, 0, 0)), Ok(0));
}

#[test]
fn batches_are_taken_once_and_in_order_across_restarts_and_kills() {
    let mut broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[]);
    let id = init(&mut client);
    for sequence in [0, 3, 6, 9, 12, 15] {
        assert_eq!(
            client.produce("t", 1, &batch(id, 0, sequence)),
            Ok(i64::from(sequence))
        );
    }
    for how in [
        None,
        Some(Broker::restart as fn(Broker) -> Broker),
        Some(Broker::kill_and_restart),
    ] {
        if let Some(restart) = how {
            broker = restart(broker);
            client = broker.client();
        }
        // The last five batches are known; a gap, and what is older than those, is refused.
        for sequence in [3, 6, 9, 12, 15] {
            assert_eq!(
                client.produce("t", 1, &batch(id, 0, sequence)),
                Ok(i64::from(sequence))
            );
        }
        for sequence in [0, 19, 21] {
            let refused = client.produce("t", 1, &batch(id, 0, sequence));
            assert_eq!(
                refused,
                Err(ErrorCode::OutOfOrderSequenceNumber),
                "sequence {sequence}"
            );
        }
        assert_eq!(client.read_all("t", 1, 0).len(), 18);
    }
    // A new epoch begins at 0 and fences the old one.
    assert_eq!(
        client.produce("t", 1, &batch(id, 1, 5)),
        Err(ErrorCode::OutOfOrderSequenceNumber)
    );
    assert_eq!(client.produce("t", 1, &batch(id, 1, 0)), Ok(18));
    assert_eq!(
        client.produce("t", 1, &batch(id, 0, 18)),
        Err(ErrorCode::InvalidProducerEpoch)
    );
    broker = broker.kill_and_restart();
    client = broker.client();
    assert_eq!(
        client.produce("t", 1, &batch(id, 0, 18)),
        Err(ErrorCode::InvalidProducerEpoch)
    );
    assert_eq!(client.produce("t", 1, &batch(id, 1, 3)), Ok(21));
}

#[test]
fn a_producer_id_is_never_given_twice() {
    let mut broker = Broker::start(&[]);
    let mut given = Vec::new();
    for restart in [Broker::restart, Broker::kill_and_restart, Broker::restart] {
        // Connections come by either shard.
        for _ in 0..12 {
            given.push(init(&mut broker.client()));
        }
        broker = restart(broker);
    }
    given.push(init(&mut broker.client()));
    let mut distinct = given.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), given.len(), "{given:?}");

    let transactional = InitProducerIdRequest {
        transactional_id: Some("payments"),
        ..InitProducerIdRequest::default()
    };
    let response: InitProducerIdResponse = broker.client().call(4, &transactional);
    assert_eq!(code(response.error_code), ErrorCode::CoordinatorNotAvailable);
    let (_, logged) = broker.stop();
    assert!(
        logged.iter().any(|event| event["transactional_id"] == "payments"),
        "{logged:?}"
    );
}
