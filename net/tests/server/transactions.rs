//! Transactions in a directory that Apache Kafka wrote: who reads committed records gets no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ringlog_net::protocol::error_code::ErrorCode;
use tempfile::TempDir;

use crate::broker::Broker;
use crate::client::{Client, batches, code, fetch_request};

/// Offsets of the records of the two transactions that were aborted; of the markers of all six.
const ABORTED: [std::ops::Range<i64>; 2] = [7..13, 28..34];
const MARKERS: [i64; 6] = [6, 13, 20, 27, 34, 41];

fn fixture() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/kafka-4.4")
}

/// A copy of Kafka's directory, without the files that `lost` names.
fn kafka_directory(stop: &str, lost: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    copy(&fixture().join(stop), dir.path(), lost);
    dir
}

fn copy(from: &Path, to: &Path, lost: &[&str]) {
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            fs::create_dir(&target).expect("a new directory");
            copy(&path, &target, lost);
        } else if path
            .extension()
            .is_none_or(|extension| !lost.iter().any(|lost| extension == *lost))
        {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

/// Reads as Kafka's consumers do: batches of a producer within one of its aborted transactions are
/// skipped, from the first offset the broker names up to the marker.
fn read_committed(client: &mut Client, max_bytes: i32) -> Vec<i64> {
    let (mut offset, mut read) = (0, Vec::new());
    loop {
        let mut request = fetch_request("txn", &[(0, offset)], 0, 0);
        request.isolation_level = 1;
        request.topics[0].partitions[0].partition_max_bytes = max_bytes;
        client.send(11, &request);
        let data = client.receive_fetched().remove(0);
        assert_eq!(code(data.error_code), ErrorCode::None);
        let mut aborted = data
            .aborted_transactions
            .clone()
            .expect("a list, if an empty one");
        aborted.sort_by_key(|txn| txn.first_offset);
        let mut skipped = BTreeSet::new();
        let found = batches(&data);
        let Some(last) = found.last() else { return read };
        offset = last.header().next_offset().0;
        for batch in &found {
            let header = batch.header();
            let producer = header.producer_id().0;
            aborted.retain(|txn| {
                let begun = txn.first_offset <= header.last_offset().0;
                if begun {
                    skipped.insert(txn.producer_id);
                }
                !begun
            });
            if header.attributes().is_control() {
                skipped.remove(&producer);
            } else if !(header.attributes().is_transactional() && skipped.contains(&producer)) {
                read.extend(header.base_offset().0..header.next_offset().0);
            }
        }
    }
}

fn committed() -> Vec<i64> {
    (0..42)
        .filter(|offset| !MARKERS.contains(offset) && !ABORTED.iter().any(|txn| txn.contains(offset)))
        .collect()
}

#[test]
fn of_kafkas_transactions_only_committed_records_are_read() {
    for stop in ["clean", "killed"] {
        for lost in [
            &[][..],
            &["txnindex", "index"],
            &["txnindex", "index", "snapshot"],
        ] {
            let broker = Broker::start_in(kafka_directory(stop, lost), &[]);
            let mut client = broker.client();
            for max_bytes in [1, 700, 1 << 20] {
                assert_eq!(
                    read_committed(&mut client, max_bytes),
                    committed(),
                    "{stop} {lost:?}"
                );
            }
            drop(client);
            let broker = broker.restart();
            assert_eq!(read_committed(&mut broker.client(), 1 << 20), committed());
            let (dir, _) = broker.stop();
            for base in [6, 27] {
                let name = format!("txn-0/{base:020}.txnindex");
                let ours = fs::read(dir.path().join(&name)).expect("it was written");
                assert_eq!(
                    ours,
                    fs::read(fixture().join("clean").join(&name)).expect("a fixture")
                );
            }
        }
    }
}

#[test]
fn a_reader_of_uncommitted_records_gets_no_list() {
    let broker = Broker::start_in(kafka_directory("clean", &[]), &[]);
    let data = broker.client().fetch("txn", 0, 0);
    assert!(data.aborted_transactions.is_none());
}
