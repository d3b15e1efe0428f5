//! The client against brokers that fail, move, lose answers, speak old versions, or are none.

mod fake_broker;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use fake_broker::{Fault, State, start};
use ringlog_net::client::{Acks, ClientError, Cluster, Connection, Producer, ProducerOptions};
use ringlog_net::protocol::error_code::ErrorCode;

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Enough records of 1 KiB for a dozen batches.
const RECORDS: usize = 3000;

fn value(number: usize) -> Vec<u8> {
    format!("{number:01024}").into_bytes()
}

/// Sends all records under these faults; what the broker has then, and what the producer counted.
fn produce(acks: Acks, faults: Vec<(usize, Fault)>) -> (Vec<Vec<u8>>, Result<u64, ClientError>) {
    let (address, state) = start(State {
        faults,
        api_versions_max: 4,
        ..State::default()
    });
    let sent = run(async {
        let cluster = Cluster::connect(&address.to_string()).await?;
        let options = ProducerOptions {
            acks,
            ..ProducerOptions::default()
        };
        let mut producer = Producer::open(cluster, "t", options).await?;
        for number in 0..RECORDS {
            producer.send(None, None, Some(&value(number))).await?;
        }
        producer.flush().await?;
        Ok(producer.acknowledged())
    });
    let values = state.lock().expect("no panic").values.clone();
    (values, sent)
}

fn assert_all_once_in_order(values: &[Vec<u8>]) {
    assert_eq!(values.len(), RECORDS);
    for (number, stored) in values.iter().enumerate() {
        assert_eq!(*stored, value(number), "at {number}");
    }
}

#[test]
fn every_record_arrives_once_and_in_order_without_faults() {
    let (values, sent) = produce(Acks::All, Vec::new());
    assert_all_once_in_order(&values);
    assert_eq!(sent.expect("sent"), RECORDS as u64);
}

#[test]
fn a_refused_batch_is_sent_again_before_those_that_followed_it() {
    let faults = vec![
        (2, Fault::Refuse(ErrorCode::NotLeaderOrFollower)),
        (9, Fault::Refuse(ErrorCode::NotEnoughReplicas)),
    ];
    let (values, sent) = produce(Acks::All, faults);
    assert_all_once_in_order(&values);
    assert_eq!(sent.expect("sent"), RECORDS as u64);
}

#[test]
fn a_broken_connection_neither_loses_nor_doubles_what_was_in_flight() {
    for fault in [Fault::Drop, Fault::LoseAnswer] {
        let (values, sent) = produce(Acks::All, vec![(0, fault), (4, fault), (5, fault), (11, fault)]);
        assert_all_once_in_order(&values);
        assert_eq!(sent.expect("sent"), RECORDS as u64, "{fault:?}");
    }
}

#[test]
fn a_refusal_for_good_is_reported_with_topic_and_partition() {
    let faults = (0..1000)
        .map(|number| (number, Fault::Refuse(ErrorCode::MessageTooLarge)))
        .collect();
    let (values, sent) = produce(Acks::All, faults);
    assert!(values.is_empty());
    assert_eq!(sent.expect_err("refused").to_string(), "t-0: MESSAGE_TOO_LARGE");
}

#[test]
fn a_broker_of_older_api_versions_is_understood() {
    for api_versions_max in 0..4 {
        let (address, _) = start(State {
            api_versions_max,
            ..State::default()
        });
        run(Connection::connect(&address.to_string())).expect("negotiated");
    }
}

/// Connects to a listener that reads one request, answers these bytes and closes.
fn connect_to(answer: &'static [u8]) -> ClientError {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut size = [0; 4];
        stream.read_exact(&mut size).expect("a size");
        let mut request = vec![0; u32::from_be_bytes(size) as usize];
        stream.read_exact(&mut request).expect("a request");
        stream.write_all(answer).expect("written");
    });
    let error = run(Connection::connect(&address)).expect_err("no broker");
    server.join().expect("no panic");
    error
}

#[test]
fn answers_that_make_no_sense_are_errors() {
    assert!(matches!(connect_to(b""), ClientError::Broken { .. }));
    assert!(matches!(
        connect_to(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ClientError::Frame { .. }
    ));
    assert!(matches!(
        connect_to(b"\xff\xff\xff\xff"),
        ClientError::Frame { .. }
    ));
    // A size that is not followed by as many bytes costs no memory and ends with the connection.
    assert!(matches!(
        connect_to(b"\x1f\xff\xff\xff\0\0\0\0"),
        ClientError::Broken { .. }
    ));
    assert!(matches!(
        connect_to(b"\0\0\0\x02\0\0"),
        ClientError::Malformed { .. }
    ));
    assert!(matches!(
        connect_to(b"\0\0\0\x06\0\0\0\x09\0\0"),
        ClientError::OutOfOrder { .. }
    ));
    assert!(matches!(
        connect_to(b"\0\0\0\x0a\0\0\0\0\0\0\x7f\xff\xff\xff"),
        ClientError::Malformed { .. }
    ));
}

#[test]
fn the_produce_command_sends_each_line_of_its_input() {
    let (address, state) = start(State {
        api_versions_max: 4,
        ..State::default()
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"))
        .args([
            "produce",
            "t",
            "--key-separator",
            ":",
            "--compression",
            "lz4",
            "--broker",
            &address.to_string(),
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut input = command.stdin.take().expect("piped");
    input.write_all(b"key:a\nno key\n\nk:b:c").expect("written");
    drop(input);
    assert!(command.wait().expect("ended").success());
    let values = &state.lock().expect("no panic").values;
    assert_eq!(*values, [&b"a"[..], b"no key", b"", b"b:c"]);
}
