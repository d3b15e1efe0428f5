//! What survives: a proper stop, a kill, and the requests that are under way when either comes.

use std::io::Write;
use std::time::{Duration, Instant};

use ringlog_net::protocol::error_code::ErrorCode;

use crate::broker::Broker;
use crate::client::{batch, code, fetch_request, produce_request};
use crate::topics::{alter, delete_records, metadata, setting};

#[test]
fn a_closed_terminal_stops_the_broker_as_any_other_stop_does() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[]);
    client.produce("t", 0, &batch(&[b"x"])).unwrap();
    let broker = broker.hang_up();
    assert_eq!(broker.client().read_all("t", 0, 0).len(), 1);
}

#[test]
fn a_deletion_of_records_that_cannot_be_recorded_is_not_acknowledged() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[]);
    client.produce("t", 0, &batch(&[b"x", b"y", b"z"])).unwrap();
    // What a new one is written to first.
    let in_the_way = broker.dir.path().join("log-start-offset-checkpoint.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    assert_eq!(
        delete_records(&mut client, "t", 0, 2),
        (ErrorCode::KafkaStorageError, -1)
    );
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(delete_records(&mut client, "t", 0, 2), (ErrorCode::None, 2));
}

#[test]
fn everything_acknowledged_survives_a_stop_and_a_kill() {
    let mut broker = Broker::start(&[]);
    let mut client = broker.client();
    let id = client.create("t", 4, &[("segment.bytes", "1048576")]);
    assert_eq!(
        code(alter(&mut client, "t", "retention.ms", Some("12345")).error_code),
        ErrorCode::None
    );
    let value = |number: u8| vec![number; 60_000];
    let mut written = 0u8;
    for restart in [
        Broker::restart,
        Broker::kill_and_restart,
        Broker::kill_and_restart,
        Broker::restart,
    ] {
        for _ in 0..15 {
            for partition in 0..4 {
                let offset = client.produce("t", partition, &batch(&[&value(written)]));
                assert_eq!(offset, Ok(i64::from(written)), "no offset is given twice");
            }
            written += 1;
        }
        let start = i64::from(written) - 10;
        assert_eq!(
            delete_records(&mut client, "t", 3, start),
            (ErrorCode::None, start)
        );
        let above = delete_records(&mut client, "t", 3, 1000);
        assert_eq!(above.0, ErrorCode::OffsetOutOfRange);
        broker = restart(broker);
        client = broker.client();
        for partition in 0..4 {
            let from = if partition == 3 { start } else { 0 };
            assert_eq!(client.list_offset("t", partition, -2).offset, from, "log start");
            let read = client.read_all("t", partition, from);
            let expected: Vec<_> = (from..i64::from(written))
                .map(|offset| (offset, value(u8::try_from(offset).unwrap())))
                .collect();
            assert_eq!(read, expected, "partition {partition}");
        }
        assert_eq!(
            code(client.fetch("t", 3, start - 1).error_code),
            ErrorCode::OffsetOutOfRange
        );
        assert_eq!(metadata(&mut client, "t", false).topic_id, id);
        assert_eq!(setting(&mut client, "t", "retention.ms"), ("12345".into(), 1));
    }
    // All records gone, the offsets stay gone.
    let end = i64::from(written);
    assert_eq!(delete_records(&mut client, "t", 0, -1), (ErrorCode::None, end));
    for restart in [Broker::kill_and_restart, Broker::restart] {
        broker = restart(broker);
        client = broker.client();
        assert_eq!(client.list_offset("t", 0, -2).offset, end);
    }
    assert_eq!(client.produce("t", 0, &batch(&[b"next"])), Ok(end));
}

#[test]
fn a_stop_acknowledges_what_is_under_way_and_does_not_wait_for_the_idle() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[]);
    let _idle: Vec<_> = (0..10).map(|_| broker.client()).collect();
    let mut half = broker.client();
    half.stream.write_all(&[0, 0, 1]).unwrap();
    let mut waiting: Vec<_> = (0..6).map(|_| broker.client()).collect();
    for (number, reader) in (0..).zip(&mut waiting) {
        let partitions = [(0, 0), (1, 0)];
        let asked = &partitions[..1 + number % 2];
        reader.send(11, &fetch_request("t", asked, 50_000, 1 << 20));
    }
    // Sent and taken: the last reply of the same connection says that the broker has seen them all.
    let value = [7; 10_000];
    for _ in 0..30 {
        for partition in [0, 1] {
            client.send(9, &produce_request(-1, "t", &[(partition, &batch(&[&value]))]));
        }
    }
    let first = client.receive_produced().remove(0);
    assert_eq!(code(first.error_code), ErrorCode::None);
    let began = Instant::now();
    broker.terminate();
    // What is not read any more is not answered; what is answered is kept.
    let mut acknowledged = [1, 0];
    for number in 1..60 {
        if client.read_frame().is_err() {
            break;
        }
        acknowledged[number % 2] += 1;
    }
    for reader in &mut waiting {
        // An answer, or the end; never silence until the wait runs out.
        let _ = reader.read_frame();
    }
    let (dir, _) = broker.stop();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    let broker = Broker::start_in(dir, &[]);
    let mut client = broker.client();
    for (partition, acknowledged) in (0..).zip(acknowledged) {
        let end = client.list_offset("t", partition, -1).offset;
        assert!(end >= acknowledged, "{end} of {acknowledged} acknowledged");
        assert_eq!(
            client.read_all("t", partition, 0).len(),
            usize::try_from(end).unwrap()
        );
    }
}

#[test]
fn without_io_uring_everything_works_by_blocking_calls() {
    let mut broker = Broker::start(&["io.backend=blocking"]);
    let mut client = broker.client();
    client.create("t", 3, &[("segment.bytes", "1048576")]);
    let mut reader = broker.client();
    reader.send(11, &fetch_request("t", &[(0, 0), (1, 0)], 50_000, 1));
    for number in 0..20u8 {
        for partition in 0..3 {
            assert_eq!(
                client.produce("t", partition, &batch(&[&[number; 100_000]])),
                Ok(i64::from(number))
            );
        }
    }
    assert_eq!(reader.receive_fetched().len(), 2);
    for restart in [Broker::restart, Broker::kill_and_restart] {
        broker = restart(broker);
        for partition in 0..3 {
            assert_eq!(broker.client().read_all("t", partition, 0).len(), 20);
        }
    }
    let (_, logged) = broker.stop();
    let counted = crate::broker::event(&logged, "stopped");
    assert_eq!(counted["ring_write_bytes"], 0, "{counted}");
}
