//! Partitions whose directory is not what it should be: the broker says so, leaves it as it is and
//! serves the other partitions, at this start and at the next.

use std::fs;

use ringlog_net::protocol::error_code::ErrorCode;
use tempfile::TempDir;

use crate::broker::Broker;
use crate::client::{batch, code};

/// Topic `t` of two partitions with two records each, stopped.
fn stopped() -> TempDir {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[]);
    for partition in [0, 1] {
        client
            .produce("t", partition, &batch(&[b"x", b"y"]))
            .expect("produced");
    }
    broker.stop().0
}

/// Expects that partition 0 is refused, with `said` in the reason, and partition 1 served, at two starts.
fn expect_unavailable(mut dir: TempDir, said: &str) -> TempDir {
    for _ in 0..2 {
        let broker = Broker::start_in(dir, &[]);
        let mut client = broker.client();
        assert_eq!(
            code(client.fetch("t", 0, 0).error_code),
            ErrorCode::KafkaStorageError,
            "{said}"
        );
        assert_eq!(client.read_all("t", 1, 0).len(), 2);
        let (left, logged) = broker.stop();
        dir = left;
        let reason = logged.iter().find_map(|event| event["error"].as_str());
        assert!(
            reason.is_some_and(|reason| reason.contains(said)),
            "{said}: {logged:?}"
        );
    }
    dir
}

#[test]
fn what_stands_in_the_place_of_a_partitions_file_is_named_with_the_cause() {
    for name in ["partition.metadata", "leader-epoch-checkpoint"] {
        let dir = stopped();
        let path = dir.path().join("t-0").join(name);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let dir = expect_unavailable(dir, path.to_str().unwrap());
        let dir = expect_unavailable(dir, "Is a directory");
        fs::remove_dir(&path).unwrap();
        let broker = Broker::start_in(dir, &[]);
        assert_eq!(broker.client().read_all("t", 0, 0).len(), 2);
    }
}

#[test]
fn a_partition_whose_directory_is_missing_stays_unavailable() {
    let dir = stopped();
    let (there, away) = (dir.path().join("t-0"), dir.path().join("away"));
    fs::rename(&there, &away).unwrap();
    let dir = expect_unavailable(dir, "the directory is missing, and offsets up to 2 were in it");
    assert!(!there.exists());
    fs::rename(&away, &there).unwrap();
    let broker = Broker::start_in(dir, &[]);
    assert_eq!(broker.client().read_all("t", 0, 0).len(), 2);
}

#[test]
fn another_topics_directory_is_not_taken_for_the_partition() {
    let (other, dir) = (stopped(), stopped());
    fs::rename(dir.path().join("t-0"), dir.path().join("saved")).unwrap();
    fs::rename(other.path().join("t-0"), dir.path().join("t-0")).unwrap();
    let metadata = fs::read(dir.path().join("t-0/partition.metadata")).unwrap();
    let dir = expect_unavailable(dir, "belongs to a topic with the id");
    assert_eq!(
        fs::read(dir.path().join("t-0/partition.metadata")).unwrap(),
        metadata
    );
}

#[test]
fn a_directory_that_someone_made_is_neither_taken_over_nor_removed_by_a_new_topic() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    let made = broker.dir.path().join("u-1");
    fs::create_dir(&made).unwrap();
    fs::write(made.join("00000000000000000000.log"), "mine").unwrap();
    let refused = client.try_create("u", 2, &[]);
    assert_eq!(code(refused.error_code), ErrorCode::KafkaStorageError);
    assert!(refused.error_message.unwrap_or_default().contains("u-1"));
    let kept = fs::read(made.join("00000000000000000000.log"));
    assert_eq!(kept.unwrap(), b"mine");
}
