//! `ringlog dump` on a data directory that Apache Kafka wrote, against what Kafka's own tools say of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/kafka-4.4")
}

/// Every file below `dir` that dump reads, in order.
fn log_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let known = ["log", "index", "timeindex", "txnindex", "snapshot"].contains(&extension);
        if path.is_dir() {
            files.extend(log_files(&path));
        } else if known || name.ends_with("-checkpoint") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn dump(files: &[PathBuf]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    let output = command
        .args(["dump", "--json", "--records"])
        .args(files)
        .output()
        .expect("runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// Offset and timestamp of each record that is not a control record, by log.
fn records(files: &[PathBuf]) -> BTreeMap<String, Vec<(i64, i64)>> {
    let mut logs = BTreeMap::<String, Vec<_>>::new();
    let (mut log, mut control) = (String::new(), false);
    for line in dump(files) {
        if let Some(file) = line["file"].as_str() {
            let dir = Path::new(file)
                .parent()
                .and_then(Path::file_name)
                .expect("a log's directory");
            log = dir.to_string_lossy().into_owned();
        } else if line.get("base_offset").is_some() {
            control = line["kind"] == "control";
        } else if line.get("headers").is_some() && !control {
            let record = (number(&line["offset"]), number(&line["timestamp"]));
            logs.entry(log.clone()).or_default().push(record);
        }
    }
    logs
}

#[test]
fn every_file_of_kafka_is_read_and_found_sound() {
    for state in ["clean", "killed"] {
        let files = log_files(&fixture().join(state));
        assert!(files.len() > 30, "{} files", files.len());
        dump(&files);
    }
}

#[test]
fn records_are_those_a_kafka_consumer_gets() {
    let text = fs::read_to_string(fixture().join("records.jsonl")).expect("the fixture");
    let mut expected = BTreeMap::<String, Vec<_>>::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let log = record["log"].as_str().expect("a name").to_owned();
        expected
            .entry(log)
            .or_default()
            .push((number(&record["offset"]), number(&record["timestamp"])));
    }
    for state in ["clean", "killed"] {
        let files = log_files(&fixture().join(state));
        let segments: Vec<_> = files
            .into_iter()
            .filter(|file| file.extension().is_some_and(|e| e == "log"))
            .collect();
        let found = records(&segments);
        for (log, expected) in &expected {
            // A segment also holds what lies before the log's start offset.
            let first = expected[0].0;
            let found: Vec<_> = found[log]
                .iter()
                .filter(|(offset, _)| *offset >= first)
                .copied()
                .collect();
            assert_eq!(found, *expected, "{state}/{log}");
        }
    }
}
