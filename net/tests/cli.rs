//! The binary as a person meets it: help, exit codes, complaints, and `dump` on good and bad files.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ringlog_engine::record::{Compression, Header, RecordBatchBuilder};
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use serde_json::Value;

fn ringlog(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command
        .args(arguments)
        .env_remove("RINGLOG_LOG")
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn dump(flags: &[&str], file: &Path) -> Output {
    let mut arguments = vec!["dump"];
    arguments.extend(flags);
    arguments.push(file.to_str().expect("UTF-8"));
    ringlog(&arguments)
}

fn json_lines(output: &Output) -> Vec<Value> {
    stdout(output)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn batch(base_offset: i64, values: &[&str], compression: Compression) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new()
        .base_offset(Offset(base_offset))
        .leader_epoch(LeaderEpoch(3))
        .producer(ProducerId(7), ProducerEpoch(0), Sequence(0))
        .compression(compression);
    for value in values {
        let header = Header {
            key: b"h",
            value: Some(b"\xff"),
        };
        builder
            .append(TimestampMs(1000), Some(b"key"), Some(value.as_bytes()), &[header])
            .expect("small");
    }
    builder.build().expect("built").to_vec()
}

fn segment(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("00000000000000000000.log");
    fs::write(&path, bytes).expect("written");
    path
}

fn two_batches() -> (Vec<u8>, usize) {
    let first = batch(0, &["a", "b"], Compression::None);
    let second = batch(2, &["c"], Compression::Zstd);
    ([&first[..], &second].concat(), first.len())
}

#[test]
fn help_names_the_commands_with_examples_and_no_colours_in_a_pipe() {
    let output = ringlog(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    for word in ["topic", "produce", "consume", "dump", "Examples:", "Exit codes"] {
        assert!(help.contains(word), "{word} is missing in:\n{help}");
    }
    assert!(!help.contains('\x1b'));
    assert!(stdout(&ringlog(&["--version"])).starts_with("ringlog "));
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        &["no-such-command"][..],
        &["dump"],
        &["topic", "list", "--broker", "http://localhost:9092"],
    ] {
        let output = ringlog(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(!stderr(&output).contains('\x1b'));
    }
}

#[test]
fn a_level_that_is_none_is_refused_with_those_there_are() {
    let said = "expected error, warn, info, debug, trace, off, or a filter such as info,ringlog_net=debug";
    for level in [
        "bogus",
        "warning",
        "x=y=z",
        "info,ringlog_net",
        "ringlog_net=bogus",
    ] {
        let output = ringlog(&["--log-level", level, "dump", "f"]);
        assert_eq!(output.status.code(), Some(2), "{level}");
        assert_eq!(stderr(&output), format!("error: --log-level={level}: {said}\n"));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    let output = command.args(["dump", "f"]).env("RINGLOG_LOG", "verbose").output();
    let complaint = stderr(&output.expect("the binary runs"));
    assert!(
        complaint.contains("RINGLOG_LOG=verbose: expected error"),
        "{complaint}"
    );
    for level in ["WARN", "off", "", "info,ringlog_net=debug"] {
        let output = ringlog(&["--log-level", level, "dump", "/no/such.log"]);
        assert_eq!(output.status.code(), Some(1), "{level}: {}", stderr(&output));
    }
}

#[test]
fn a_number_out_of_range_is_refused_with_what_is_valid() {
    let counts = "expected a number from 1 to 2147483647";
    let numbers = "expected a number from 0 to 2147483647";
    for (arguments, valid) in [
        (&["topic", "create", "t", "--partitions", "-1"][..], counts),
        (&["topic", "create", "t", "--partitions=abc"], counts),
        (
            &["topic", "create", "t", "--replication-factor", "-1"],
            "expected a number from 1 to 32767",
        ),
        (&["topic", "alter", "t", "--partitions", "2147483648"], counts),
        (&["produce", "t", "--partition", "-1"], numbers),
        (
            &["produce", "t", "--linger-ms", "-1"],
            "expected a number of 0 or more",
        ),
        (&["consume", "t", "--partition", ""], numbers),
        (
            &["consume", "t", "--count", "-1"],
            "expected a number of 0 or more",
        ),
        (&["consume", "t", "--from", "-1"], "an OFFSET from 0 on"),
    ] {
        let output = ringlog(arguments);
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(
            complaint.contains(valid) && !complaint.contains("tip:"),
            "{arguments:?}: {complaint}"
        );
    }
}

#[test]
fn flags_of_other_tools_are_answered_with_what_to_type() {
    let no_flag = "a topic's name is given without a flag: foo";
    for (arguments, said) in [
        (&["topic", "create", "--topic", "foo"][..], no_flag),
        (&["topic", "list", "--topic", "foo"], no_flag),
        (&["produce", "--topic", "foo"], no_flag),
        (&["consume", "--topic=foo"], no_flag),
        (
            &["consume", "t", "--group", "g"],
            "consumer groups are not supported yet; consume reads all partitions, or one with --partition",
        ),
    ] {
        let output = ringlog(arguments);
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(said), "{arguments:?}: {complaint}");
        assert!(!complaint.contains("tip:"), "{complaint}");
    }
    let help = stdout(&ringlog(&["consume", "--help"]));
    assert!(!help.contains("--group") && !help.contains("--topic"), "{help}");
}

#[test]
fn help_says_what_is_taken_where_nothing_is_given() {
    for (command, said) in [
        ("topic", "a HOST alone is asked on port 9092"),
        (
            "produce",
            "A line in which it does not stand is a value without a key",
        ),
        ("serve", "a PORT on every IPv4 address of this machine"),
    ] {
        let help = stdout(&ringlog(&[command, "--help"]));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(said), "{said} is missing in:\n{help}");
    }
}

#[test]
fn an_input_that_cannot_be_read_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("bound").to_string();
    let output = ringlog(&["produce", "t", "--file", "/no/such", "--broker", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("error: cannot read /no/such: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_broker_that_cannot_be_reached_is_named() {
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound")
        .port();
    let address = format!("127.0.0.1:{port}");
    for command in [&["topic", "list"][..], &["produce", "t"], &["consume", "t"]] {
        let output = ringlog(&[command, &["--broker", &address]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(
            stderr(&output).contains(&format!("cannot connect to {address}: Connection refused")),
            "{}",
            stderr(&output)
        );
        let hint = "; ringlog serve starts a broker, --broker names another\n";
        assert!(stderr(&output).ends_with(hint), "{}", stderr(&output));
    }
    let output = ringlog(&["topic", "list", "--broker", "http://localhost:9092"]);
    assert!(stderr(&output).contains("an address is HOST:PORT, without a scheme"));
}

#[test]
fn dump_shows_batches_records_and_a_tail_of_zeros() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut bytes, second_at) = two_batches();
    let end = bytes.len();
    bytes.resize(end + 100_000, 0);
    let path = segment(dir.path(), &bytes);
    let output = dump(&["--json", "--records"], &path);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = json_lines(&output);
    assert_eq!(lines.len(), 1 + 1 + 2 + 1 + 1 + 1);
    assert_eq!(lines[1]["records"], 2);
    assert_eq!(lines[1]["producer_id"], 7);
    assert_eq!(
        (&lines[3]["offset"], &lines[3]["value"]),
        (&Value::from(1), &Value::from("b"))
    );
    assert_eq!(lines[3]["headers"][0]["value"]["hex"], "ff");
    assert_eq!(
        (&lines[4]["position"], &lines[4]["codec"]),
        (&Value::from(second_at), &Value::from("zstd"))
    );
    assert_eq!(lines[5]["value"], "c");
    assert_eq!(
        (&lines[6]["position"], &lines[6]["zeros"]),
        (&Value::from(end), &Value::from(100_000))
    );
    assert!(
        stdout(&dump(&["--records"], &path)).contains("  offset=1 timestamp=1000 key=\"key\" value=\"b\"")
    );
}

#[test]
fn dump_names_file_and_position_of_a_wrong_checksum_and_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut bytes, second_at) = two_batches();
    bytes[second_at - 1] ^= 1;
    let path = segment(dir.path(), &bytes);
    let output = dump(&[], &path);
    assert_eq!(output.status.code(), Some(1));
    let complaint = stderr(&output);
    assert!(
        complaint.contains(&format!("{}: position 0: batch checksum", path.display())),
        "{complaint}"
    );
    assert!(stdout(&output).contains(&format!("position={second_at} base_offset=2")));
}

#[test]
fn dump_reports_a_torn_batch_and_bytes_behind_zeros() {
    let dir = tempfile::tempdir().expect("a directory");
    let (bytes, second_at) = two_batches();
    for cut in [second_at + 8, second_at + 30, bytes.len() - 1] {
        let output = dump(&[], &segment(dir.path(), &bytes[..cut]));
        assert_eq!(output.status.code(), Some(1), "cut at {cut}: {}", stdout(&output));
        assert!(
            stderr(&output).contains(&format!("position {second_at}: ")),
            "{}",
            stderr(&output)
        );
    }
    let mut late = bytes.clone();
    late.resize(bytes.len() + 5000, 0);
    late.push(1);
    let output = dump(&[], &segment(dir.path(), &late));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("bytes after 5000 zeros"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn dump_finds_every_single_flipped_byte_under_the_checksum() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = batch(0, &["a"], Compression::None);
    // The base offset and the leader epoch, which the checksum does not cover, are left out.
    for index in (8..12).chain(16..bytes.len()) {
        let mut bad = bytes.clone();
        bad[index] ^= 0x80;
        let output = dump(&["--records"], &segment(dir.path(), &bad));
        assert_eq!(output.status.code(), Some(1), "byte {index}: {}", stdout(&output));
    }
}

#[test]
fn dump_checks_an_index_against_its_segment() {
    let dir = tempfile::tempdir().expect("a directory");
    let (bytes, second_at) = two_batches();
    segment(dir.path(), &bytes);
    let entry = |offset: u32, position: u32| [offset.to_be_bytes(), position.to_be_bytes()].concat();
    let second_at = u32::try_from(second_at).expect("small");
    let index = dir.path().join("00000000000000000000.index");

    let mut good = entry(2, second_at);
    good.resize(8 * 100, 0);
    fs::write(&index, &good).expect("written");
    let output = dump(&["--json"], &index);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(json_lines(&output)[1]["offset"], 2);

    for (bad, complaint) in [
        (entry(2, second_at + 1), "no batch starts at"),
        (entry(1, second_at), "begins at 2"),
        (entry(2, 1 << 20), "past the end"),
        (
            [entry(2, second_at), entry(2, second_at)].concat(),
            "not above the one before",
        ),
        (entry(2, second_at)[..7].to_vec(), "ends within an entry"),
    ] {
        fs::write(&index, &bad).expect("written");
        let output = dump(&[], &index);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(
            stderr(&output).contains(complaint),
            "{complaint}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn dump_reads_time_indexes_snapshots_and_checkpoints() {
    let dir = tempfile::tempdir().expect("a directory");
    let times = dir.path().join("00000000000000000100.timeindex");
    fs::write(
        &times,
        [&1000_i64.to_be_bytes()[..], &5_u32.to_be_bytes(), &[0; 12]].concat(),
    )
    .expect("written");
    assert!(stdout(&dump(&[], &times)).contains("timestamp=1000 offset=105\n"));

    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend(7_i64.to_be_bytes());
    body.extend([0; 38]);
    let checksum = crc32c::crc32c(&body).to_be_bytes();
    let snapshot = dir.path().join("00000000000000000100.snapshot");
    fs::write(&snapshot, [&[0, 1][..], &checksum, &body].concat()).expect("written");
    let output = dump(&[], &snapshot);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("producer_id=7 producer_epoch=0"));
    body[11] ^= 1;
    fs::write(&snapshot, [&[0, 1][..], &checksum, &body].concat()).expect("written");
    assert!(stderr(&dump(&[], &snapshot)).contains("position 2: the checksum is"));

    let epochs = dir.path().join("leader-epoch-checkpoint");
    fs::write(&epochs, "0\n2\n0 0\n4 17\n").expect("written");
    assert!(stdout(&dump(&[], &epochs)).contains("epoch=4 start_offset=17\n"));
    fs::write(&epochs, "0\n3\n0 0\n4 x\n").expect("written");
    let complaint = stderr(&dump(&[], &epochs));
    assert!(
        complaint.contains("position 8: \"4 x\" is no entry"),
        "{complaint}"
    );
    assert!(complaint.contains("3 entries announced, 2 found"), "{complaint}");
}

#[test]
fn dump_of_what_is_no_log_file_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("00000000000000000000.log");
    assert!(stderr(&dump(&[], &missing)).contains("No such file"));
    let foreign = dir.path().join("notes.txt");
    fs::write(&foreign, "hello").expect("written");
    let output = dump(&[], &foreign);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("the name is none of"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&dump(&[], Path::new("/dev/zero"))).contains("not a regular file"));
}

#[test]
fn dump_of_a_directory_names_the_files_in_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let complaint = |dir: &Path| {
        let output = dump(&[], dir);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let none = complaint(dir.path());
    assert!(
        none.contains(": a directory without a file that can be dumped: *.log"),
        "{none}"
    );
    segment(dir.path(), &[]);
    for name in ["leader-epoch-checkpoint", "partition.metadata"] {
        fs::write(dir.path().join(name), "").expect("written");
    }
    let some = complaint(dir.path());
    let files = "00000000000000000000.log, leader-epoch-checkpoint\n";
    assert!(
        some.contains(&format!(": a directory; name files in it: {files}")),
        "{some}"
    );
}
