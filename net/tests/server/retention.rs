//! Retention as clients see it: the log start moves, files vanish, and readers are served or told.

use std::time::Instant;

use ringlog_net::protocol::error_code::ErrorCode;

use crate::broker::{Broker, DEADLINE};
use crate::client::{Client, batch, batch_at, batches, code, fetch_request, now_ms};
use crate::topics::alter;

const EARLIEST: i64 = -2;
/// One batch fills a segment of the least size there is.
const SEGMENT: (&str, &str) = ("segment.bytes", "1048576");
const VALUE_BYTES: usize = 900_000;

fn start() -> Broker {
    Broker::start(&["log.retention.check.interval.ms=20"])
}

fn produce(client: &mut Client, count: usize) {
    for _ in 0..count {
        client
            .produce("t", 0, &batch(&[&[7; VALUE_BYTES]]))
            .expect("it is taken");
    }
}

fn log_start(client: &mut Client) -> i64 {
    client.list_offset("t", 0, EARLIEST).offset
}

/// Asks again and again, with a request in between.
fn until(client: &mut Client, what: &str, mut holds: impl FnMut(&mut Client) -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds(client) {
        assert!(Instant::now() < deadline, "{what}");
        client.expect_served();
    }
}

/// Names in the partition's directory that end so.
fn files(broker: &Broker, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(broker.dir.path().join("t-0")).expect("its directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    names.filter(|name| name.ends_with(end)).collect()
}

#[test]
fn segments_beyond_the_size_go_and_who_asks_for_them_is_told() {
    let broker = start();
    let mut client = broker.client();
    client.create("t", 1, &[SEGMENT, ("retention.bytes", "2500000")]);
    produce(&mut client, 6);
    until(&mut client, "the log start moves", |client| {
        log_start(client) == 3
    });
    until(&mut client, "files vanish", |_| {
        files(&broker, ".log").len() == 3 && files(&broker, ".deleted").is_empty()
    });
    assert_eq!(
        code(client.fetch("t", 0, 2).error_code),
        ErrorCode::OffsetOutOfRange
    );
    for offset in 3..6 {
        assert_eq!(batches(&client.fetch("t", 0, offset)).len(), 1);
    }
    let open = broker.open_segments();
    assert!(open.iter().all(|path| !path.contains("deleted")), "{open:?}");
    assert_eq!(open.len(), 3, "{open:?}");
    let broker = broker.kill_and_restart();
    assert_eq!(log_start(&mut broker.client()), 3);
}

#[test]
fn expired_records_go_the_last_too_and_offsets_go_on() {
    let broker = start();
    let mut client = broker.client();
    client.create("t", 1, &[("retention.ms", "3600000")]);
    client
        .produce("t", 0, &batch_at(now_ms() - 7_200_000, &[b"old"]))
        .unwrap();
    until(&mut client, "the old record goes", |client| {
        log_start(client) == 1
    });
    until(&mut client, "its file vanishes", |_| {
        files(&broker, ".log") == ["00000000000000000001.log"] && files(&broker, ".deleted").is_empty()
    });
    let broker = broker.kill_and_restart();
    let mut client = broker.client();
    assert_eq!(client.produce("t", 0, &batch(&[b"new"])), Ok(1));
    assert_eq!(client.read_all("t", 0, 1).len(), 1);
    assert_eq!(log_start(&mut client), 1);
}

#[test]
fn readers_within_a_segment_that_goes_are_served_or_told() {
    const REQUESTS: usize = 40;
    let broker = start();
    let (mut reader, mut client) = (broker.client(), broker.client());
    client.create("t", 1, &[SEGMENT, ("retention.bytes", "-1")]);
    produce(&mut client, 3);
    // More than the sockets hold: most replies wait in the broker while their segment goes.
    for _ in 0..REQUESTS {
        reader.send(11, &fetch_request("t", &[(0, 0)], 0, 0));
    }
    assert_eq!(
        code(alter(&mut client, "t", "retention.bytes", Some("0")).error_code),
        ErrorCode::None
    );
    until(&mut client, "the log start moves", |client| {
        log_start(client) == 3
    });
    until(&mut client, "files vanish", |_| {
        files(&broker, ".log") == ["00000000000000000003.log"] && files(&broker, ".deleted").is_empty()
    });
    for request in 0..REQUESTS {
        let data = reader.receive_fetched().remove(0);
        match code(data.error_code) {
            ErrorCode::None => assert_eq!(batches(&data).len(), 1, "reply {request} is whole"),
            error => assert_eq!(error, ErrorCode::OffsetOutOfRange),
        }
    }
    assert_eq!(
        code(reader.fetch("t", 0, 0).error_code),
        ErrorCode::OffsetOutOfRange
    );
    until(&mut client, "nothing keeps a removed segment open", |_| {
        broker
            .open_segments()
            .iter()
            .all(|path| !path.contains("(deleted)"))
    });
}
