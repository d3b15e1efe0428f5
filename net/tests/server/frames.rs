//! What is no request: it ends its own connection, and costs neither memory nor anyone else.

use std::io::Write;
use std::time::Instant;

use ringlog_net::protocol::error_code::ErrorCode;
use ringlog_net::protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ringlog_net::protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};

use crate::broker::{Broker, DEADLINE};
use crate::client::{Client, code};

fn framed(body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).expect("a small body").to_be_bytes();
    [&size, body].concat()
}

/// Bytes that repeat from run to run (xorshift64).
fn noise(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len_bytes).map(|_| next()).collect()
}

#[test]
fn what_is_no_request_closes_its_own_connection_only() {
    let broker = Broker::start(&[]);
    let mut bystander = broker.client();
    let mut bad = vec![
        ("a negative size", (-1i32).to_be_bytes().to_vec()),
        ("a size above the limit", 104_857_601u32.to_be_bytes().to_vec()),
        ("the largest size", i32::MAX.to_be_bytes().to_vec()),
        ("an empty frame", framed(b"")),
        ("half a size", vec![0, 0]),
        ("a frame cut short", [&100u32.to_be_bytes()[..], b"\0\x03\0\x09"].concat()),
        ("a header cut short", framed(b"\0\x03\0\x09\0\0")),
        ("an unknown API", framed(b"\x03\xe7\0\0\0\0\0\x01\xff\xff")),
        ("a negative API key", framed(b"\xff\xff\0\0\0\0\0\x01\xff\xff")),
        ("an unknown version", framed(b"\0\x03\0\x7f\0\0\0\x01\xff\xff")),
        ("a negative version", framed(b"\0\x03\xff\xff\0\0\0\x01\xff\xff")),
        ("a version that is only advertised", framed(b"\0\0\0\0\0\0\0\x01\xff\xff\0\x01\0\0\0\0\0\0\0\0")),
        ("a client id beyond the frame", framed(b"\0\x03\0\x01\0\0\0\x01\x7f\xff")),
        ("a count beyond the bytes left", framed(b"\0\x03\0\x01\0\0\0\x01\xff\xff\x7f\xff\xff\xff")),
        (
            "a compact count beyond the bytes left",
            framed(b"\0\x03\0\x09\0\0\0\x01\xff\xff\0\xff\xff\xff\xff\x0f"),
        ),
        (
            "records beyond the bytes left",
            framed(b"\0\0\0\x03\0\0\0\x01\xff\xff\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff"),
        ),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n".to_vec()),
    ];
    for seed in 1..=40 {
        // Sized right, so that the bytes are looked at.
        bad.push(("noise", framed(&noise(seed, 10 * usize::try_from(seed).unwrap()))));
    }
    for (what, bytes) in bad {
        let mut client = broker.client();
        client.stream.write_all(&bytes).unwrap();
        client.expect_closed(what);
        bystander.expect_served();
    }
    broker.stop();
}

#[test]
fn a_version_of_api_versions_from_the_future_is_told_what_there_is() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client
        .stream
        .write_all(&framed(b"\0\x12\0\x63\0\0\0\x2a\0\x04test\x01\x02"))
        .unwrap();
    // In version 0: correlation id, UNSUPPORTED_VERSION, one entry: ApiVersions itself, 0 to 4.
    assert_eq!(
        client.read_frame().unwrap(),
        b"\0\0\0\x2a\0\x23\0\0\0\x01\0\x12\0\0\0\x04"
    );
    client.expect_served();

    for name in ["", "-kcat", "kcat.", "ka fka", "\u{1f980}"] {
        let request = ApiVersionsRequest {
            client_software_name: name,
            client_software_version: "1",
        };
        let response: ApiVersionsResponse<'_> = client.call(3, &request);
        assert_eq!(code(response.error_code), ErrorCode::InvalidRequest, "{name:?}");
    }
    client.expect_served();
}

#[test]
fn a_claimed_size_costs_no_memory_until_the_bytes_come() {
    let broker = Broker::start(&[]);
    let mut bystander = broker.client();
    bystander.expect_served();
    let before = broker.resident_bytes();
    let claim = [&104_857_600u32.to_be_bytes()[..], &[0; 100]].concat();
    let mut claimants: Vec<Client> = (0..50).map(|_| broker.client()).collect();
    for claimant in &mut claimants {
        claimant.stream.write_all(&claim).unwrap();
    }
    // As many new connections on either shard are served after all of these were taken.
    for _ in 0..50 {
        broker.client().expect_served();
    }
    bystander.expect_served();
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for 5 GB claimed");
    for claimant in &mut claimants {
        claimant.expect_closed("a frame cut short");
    }
}

#[test]
fn requests_that_fill_the_memory_for_requests_make_way_for_each_other() {
    let small = [
        "socket.request.max.bytes=1048576",
        "queued.max.request.bytes=2097152",
    ];
    let broker = Broker::start(&small);
    // Each larger than half of a shard's share: no two fit, and all are half sent before any ends.
    let name = "x".repeat(30_000);
    let topic = || MetadataRequestTopic {
        name: Some(&name),
        ..MetadataRequestTopic::default()
    };
    let request = MetadataRequest {
        topics: Some((0..30).map(|_| topic()).collect()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let mut clients: Vec<Client> = (0..8).map(|_| broker.client()).collect();
    let frames: Vec<_> = clients
        .iter_mut()
        .map(|client| client.frame(4, &request))
        .collect();
    for (client, frame) in clients.iter_mut().zip(&frames) {
        client.stream.write_all(&frame[..frame.len() - 1]).unwrap();
    }
    for (client, frame) in clients.iter_mut().zip(&frames) {
        client.stream.write_all(&frame[frame.len() - 1..]).unwrap();
    }
    for client in &mut clients {
        let response: MetadataResponse<'_> = client.receive();
        // Named thirty times, told once.
        assert_eq!(response.topics.len(), 1);
        assert_eq!(
            code(response.topics[0].error_code),
            ErrorCode::InvalidTopicException
        );
    }
}

#[test]
fn connections_beyond_the_limit_are_refused_until_one_leaves() {
    let broker = Broker::start(&["max.connections=4"]);
    // At its start the broker looks whether it can be reached, which takes a connection for a moment.
    let mut served: Vec<Client> = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    while served.len() < 4 {
        assert!(
            Instant::now() < deadline,
            "only {} connections are served",
            served.len()
        );
        served.extend(try_to_be_served(&broker));
    }
    assert!(try_to_be_served(&broker).is_none(), "a fifth one");
    served.iter_mut().for_each(Client::expect_served);
    served.pop();
    while try_to_be_served(&broker).is_none() {
        assert!(
            Instant::now() < deadline,
            "the place of one that left is not given again"
        );
    }
}

/// A connection that is answered; `None` for one that is closed at once.
fn try_to_be_served(broker: &Broker) -> Option<Client> {
    let mut client = broker.client();
    client
        .stream
        .write_all(&framed(b"\0\x12\0\0\0\0\0\x01\xff\xff"))
        .ok()?;
    client.read_frame().ok()?;
    Some(client)
}
