//! The commands against a broker started by the binary itself: what a first visitor does.

mod broker_process;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use broker_process::{Broker, ringlog};
use serde_json::Value;
use tempfile::TempDir;

/// What the command complains about, which must fail.
fn refused(broker: &Broker, arguments: &[&str]) -> String {
    let output = broker.run(arguments, "");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn data() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_topic_is_created_described_altered_and_deleted() {
    let data = data();
    let broker = Broker::start(data.path());
    let created = broker.ok(
        &[
            "topic",
            "create",
            "orders",
            "--partitions",
            "2",
            "--set",
            "segment.bytes=1048576",
        ],
        "",
    );
    assert!(created.starts_with("created topic orders id="), "{created}");
    assert!(
        created.ends_with(" partitions=2 replication_factor=1\n"),
        "{created}"
    );
    assert!(refused(&broker, &["topic", "create", "orders"]).contains("TOPIC_ALREADY_EXISTS"));
    assert_eq!(
        broker.ok(&["topic", "create", "orders", "--if-not-exists"], ""),
        "topic orders exists already\n"
    );
    assert_eq!(broker.ok(&["topic", "list"], ""), "orders\n");

    broker.ok(
        &[
            "topic",
            "alter",
            "orders",
            "--set",
            "flush.policy=os",
            "--unset",
            "segment.bytes",
        ],
        "",
    );
    assert_eq!(
        broker.ok(&["topic", "alter", "orders", "--partitions", "3"], ""),
        "altered topic orders\n"
    );
    let described = broker.ok(&["topic", "describe", "orders", "--json"], "");
    let described: Value = serde_json::from_str(&described).expect("JSON");
    assert_eq!(described["partitions"].as_array().map(Vec::len), Some(3));
    assert_eq!(described["settings"].as_array().map(Vec::len), Some(1));
    assert_eq!(described["settings"][0]["key"], "flush.policy");

    let complaint = refused(&broker, &["topic", "alter", "orders", "--set", "flush.polcy=os"]);
    assert!(
        complaint.contains("did you mean \"flush.policy\"?"),
        "{complaint}"
    );
    assert_eq!(
        broker.ok(&["topic", "delete", "orders"], ""),
        "deleted topic orders\n"
    );
    assert_eq!(broker.ok(&["topic", "list"], ""), "");
}

#[test]
fn a_topic_that_is_not_there_is_told_alike_by_every_command() {
    let data = data();
    let broker = Broker::start_with(data.path(), &["--set", "auto.create.topics.enable=false"]);
    let said = "error: there is no topic orders; ringlog topic list names those there are, ringlog topic create \
                orders creates it\n";
    for arguments in [
        &["topic", "describe", "orders"][..],
        &["topic", "delete", "orders"],
        &["topic", "alter", "orders", "--set", "flush.policy=os"],
        &["topic", "alter", "orders", "--partitions", "3"],
        &["consume", "orders"],
    ] {
        assert_eq!(refused(&broker, arguments), said, "{arguments:?}");
    }
    let produce = broker.run(&["produce", "orders"], "x\n");
    assert_eq!(String::from_utf8_lossy(&produce.stderr), said);
}

#[test]
fn an_offset_that_no_partition_has_is_refused_with_those_that_are_valid() {
    let data = data();
    let broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t"], "");
    broker.ok(&["produce", "t"], "a\nb\n");
    for more in [&[][..], &["--exit-at-end"]] {
        let arguments = [&["consume", "t", "--from", "3"], more].concat();
        assert_eq!(
            refused(&broker, &arguments),
            "error: t-0 cannot be read from offset 3, only from 0 to 2, which is the next record's\n"
        );
    }
    assert_eq!(
        broker.ok(&["consume", "t", "--from", "2", "--exit-at-end"], ""),
        ""
    );
}

#[test]
fn a_producer_says_how_much_it_sent_and_without_input_creates_no_topic() {
    let data = data();
    let broker = Broker::start(data.path());
    for (input, said, topics) in [
        ("", "sent 0 records to t\n", ""),
        ("a\n", "sent 1 record to t\n", "t\n"),
        ("a\nb", "sent 2 records to t\n", "t\n"),
    ] {
        let output = broker.run(&["produce", "t"], input);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), said);
        assert_eq!(broker.ok(&["topic", "list"], ""), topics);
    }
}

#[test]
fn a_broker_that_is_gone_is_named_while_it_is_tried_again() {
    let data = data();
    let broker = Broker::start(data.path());
    let address = broker.address.clone();
    broker.ok(&["produce", "t"], "first\n");
    let mut consumer = ringlog()
        .args(["consume", "t", "--broker", &address])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let mut records = BufReader::new(consumer.stdout.take().expect("piped"));
    records.read_line(&mut line).expect("UTF-8");
    assert_eq!(line, "first\n");
    broker.stop();
    line.clear();
    let mut said = BufReader::new(consumer.stderr.take().expect("piped"));
    said.read_line(&mut line).expect("UTF-8");
    consumer.kill().expect("it still tries");
    consumer.wait().expect("ended");
    let expected = format!("trying again error=cannot connect to {address}: Connection refused");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn a_carriage_return_before_the_end_of_a_line_belongs_to_the_record() {
    let data = data();
    let broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t"], "");
    broker.ok(&["produce", "t"], "a\r\nb");
    assert_eq!(broker.ok(&["consume", "t", "--exit-at-end"], ""), "a\r\nb\n");
}

#[test]
fn a_flood_of_malformed_requests_is_counted_rather_than_logged_line_by_line() {
    const CLIENTS: u64 = 40;
    let data = data();
    let broker = Broker::start(data.path());
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(&broker.address).expect("connected");
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        // The broker logs before it closes. Bytes it has not read make a reset of the close.
        let _ = client.read_to_end(&mut Vec::new());
    }
    let logs = broker.stop();
    let shown = logs
        .iter()
        .filter(|event| event["message"] == "connection closed");
    let shown = shown.count() as u64;
    let left_out: u64 = logs.iter().filter_map(|event| event["left_out"].as_u64()).sum();
    assert!(shown < CLIENTS, "{shown} lines");
    assert_eq!(shown + left_out, CLIENTS);
}

#[test]
fn a_partition_that_is_not_there_is_told_with_those_that_are() {
    let data = data();
    let broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t", "--partitions", "2"], "");
    let said = "topic t has no partition 9, only 0 to 1";
    let consume = refused(&broker, &["consume", "t", "--partition", "9", "--exit-at-end"]);
    assert!(consume.contains(said), "{consume}");
    let produce = broker.run(&["produce", "t", "--partition", "9"], "x\n");
    assert_eq!(produce.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&produce.stderr).contains(said));
}

#[test]
fn a_producer_of_an_adopted_topic_is_not_taken_for_one_that_wrote_it() {
    let data = data();
    let broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t"], "");
    broker.ok(&["produce", "t"], "first\n");
    broker.stop();
    // As where another broker wrote the directory: the log knows its producers, nothing else does.
    fs::remove_file(data.path().join("ringlog-metadata.json")).expect("removed");
    let broker = Broker::start(data.path());
    broker.ok(&["produce", "t"], "second\n");
    assert_eq!(
        broker.ok(&["consume", "t", "--exit-at-end"], ""),
        "first\nsecond\n"
    );
    broker.stop();
}

#[test]
fn lines_come_back_in_each_format_from_each_place_with_each_codec() {
    let data = data();
    let broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t"], "");
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let input = format!("key:{codec}\nno key\n");
        broker.ok(
            &["produce", "t", "--key-separator", ":", "--compression", codec],
            &input,
        );
    }
    let consume = |more: &[&str]| broker.ok(&[&["consume", "t", "--exit-at-end"], more].concat(), "");
    let all = "none\nno key\ngzip\nno key\nsnappy\nno key\nlz4\nno key\nzstd\nno key\n";
    assert_eq!(consume(&[]), all);
    assert_eq!(consume(&["--from", "8"]), "zstd\nno key\n");
    assert_eq!(consume(&["--from", "end"]), "");
    assert_eq!(consume(&["--from", "@0", "--count", "3"]), "none\nno key\ngzip\n");
    assert_eq!(consume(&["--from", "2200-01-01T00:00:00Z"]), "");
    let pairs = consume(&["--count", "2", "--format", "key-value", "--key-separator", "="]);
    assert_eq!(pairs, "key=none\n=no key\n");
    let json = consume(&["--from", "9", "--format", "json"]);
    let record: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&record["partition"], &record["offset"]),
        (&Value::from(0), &Value::from(9))
    );
    assert_eq!(
        (&record["key"], &record["value"]),
        (&Value::Null, &Value::from("no key"))
    );
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart_and_dump_finds_it_sound() {
    let data = data();
    let broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t", "--partitions", "3"], "");
    let input: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    broker.ok(&["produce", "t", "--compression", "lz4"], &input);
    broker.stop();

    let files = fs::read_dir(data.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path());
    let segments = files
        .filter(|path| path.is_dir())
        .map(|path| path.join("00000000000000000000.log"));
    let dump = ringlog()
        .args(["dump", "--records"])
        .args(segments)
        .output()
        .expect("runs");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));

    let broker = Broker::start(data.path());
    let output = broker.ok(&["consume", "t", "--exit-at-end"], "");
    let mut numbers: Vec<u32> = output
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..10_000));
    broker.stop();
}

#[test]
fn serve_refuses_settings_it_does_not_understand() {
    let dir = data();
    let file = dir.path().join("server.properties");
    fs::write(&file, "num.partitions=3\nlog.segment.byte=1\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    for (arguments, complaint) in [
        (
            ["--config", file],
            format!("{file}:2: there is no broker key \"log.segment.byte\"; did you mean"),
        ),
        (
            ["--set", "num.partitions=0"],
            "--set: num.partitions=0: expected a number from 1 to 2147483647".to_owned(),
        ),
        (
            ["--listen", "nonsense"],
            "'nonsense' for '--listen <ADDRESS>': expected HOST:PORT, a PORT".to_owned(),
        ),
        (
            ["--shards", "-1"],
            "'-1' for '--shards <N>': expected a number from 0 to 1024".to_owned(),
        ),
        (
            ["--set", "log.segment.bytes=2147483648"],
            "log.segment.bytes=2147483648: expected a number from 1048576 to 2147483647".to_owned(),
        ),
        (
            ["--listen", "SASL_SSL://:9092"],
            "listeners=SASL_SSL://:9092: there is no TLS and no SASL yet, only PLAINTEXT".to_owned(),
        ),
        (
            ["--config", "/no/such.toml"],
            "cannot read /no/such.toml".to_owned(),
        ),
    ] {
        let output = ringlog().arg("serve").args(arguments).output().expect("runs");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(&complaint), "{complaint} in {stderr}");
    }
}

#[test]
fn a_start_says_what_clients_are_told_and_how_a_used_directory_was_left() {
    let data = data();
    let logged = |broker: &Broker, message: &str| {
        let event = broker.logged.iter().find(|event| event["message"] == message);
        event.expect("logged").clone()
    };
    let broker = Broker::start_with(
        data.path(),
        &["--set", "advertised.listeners=PLAINTEXT://[::1]:19092"],
    );
    assert_eq!(logged(&broker, "serving")["advertised"], "[::1]:19092");
    assert_eq!(logged(&broker, "logs opened")["clean"], Value::Null);
    broker.stop();
    let broker = Broker::start(data.path());
    assert_eq!(logged(&broker, "serving")["advertised"], broker.address.as_str());
    assert_eq!(logged(&broker, "logs opened")["clean"], true);
}

#[test]
fn zeros_that_a_crash_leaves_ahead_of_the_data_are_nothing_to_warn_of() {
    let data = data();
    let mut broker = Broker::start(data.path());
    broker.ok(&["topic", "create", "t"], "");
    broker.ok(&["produce", "t"], "first\nsecond\n");
    broker.process.kill().expect("killed");
    broker.process.wait().expect("ended");
    let log = data.path().join("t-0/00000000000000000000.log");
    // As they are where the broker had been writing at a rate.
    let bytes = [fs::read(&log).expect("there"), vec![0; 1 << 20]].concat();
    fs::write(&log, bytes).expect("written");
    drop(broker);
    let broker = Broker::start(data.path());
    assert!(
        broker.logged.iter().all(|event| event["level"] != "WARN"),
        "{:?}",
        broker.logged
    );
    assert_eq!(
        broker.ok(&["consume", "t", "--exit-at-end"], ""),
        "first\nsecond\n"
    );
}
