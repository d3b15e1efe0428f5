//! Compacted topics: the latest record of each key stays, whatever happens to the broker meanwhile.

use std::collections::BTreeMap;
use std::time::Instant;

use ringlog_engine::record::{Compression, RecordBatchBuilder};
use ringlog_engine::types::TimestampMs;
use ringlog_net::protocol::error_code::ErrorCode;

use crate::broker::{Broker, DEADLINE};
use crate::client::{Client, batch, batches, code, now_ms};
use crate::topics::delete;

const COMPACTED: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "1048576"),
    ("min.cleanable.dirty.ratio", "0.01"),
];
const KEYS: usize = 10;

fn keyed(codec: Compression, records: &[(usize, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new().compression(codec);
    for (key, value) in records {
        let key = format!("key {key}");
        builder
            .append(TimestampMs(now_ms()), Some(key.as_bytes()), *value, &[])
            .expect("it fits");
    }
    builder.build().expect("it fits").to_vec()
}

/// Writes every key so often that several segments are closed; the last value of each key tells
/// the round.
fn wear(client: &mut Client, topic: &str, rounds: std::ops::Range<u8>) {
    for round in rounds {
        for key in 0..KEYS {
            let value = vec![round; 30_000];
            let sent = keyed(Compression::None, &[(key, Some(&value)), (key, Some(&value))]);
            client.produce(topic, 0, &sent).expect("appended");
        }
    }
}

/// Offsets and first bytes of the values, by key, oldest first.
fn by_key(client: &mut Client, topic: &str) -> BTreeMap<String, Vec<(i64, Option<u8>)>> {
    let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut offset = 0;
    loop {
        let data = client.fetch(topic, 0, offset);
        assert_eq!(code(data.error_code), ErrorCode::None);
        let fetched = batches(&data);
        let Some(last) = fetched.last() else { return found };
        for batch in &fetched {
            for record in &batch.records(64 << 20).expect("readable") {
                let record = record.expect("readable");
                let key = String::from_utf8_lossy(record.key.expect("a key")).into_owned();
                let first = record.value.map(|value| value[0]);
                found.entry(key).or_default().push((record.offset.0, first));
            }
        }
        offset = last.header().next_offset().0;
    }
}

/// Asks until compaction has got as far as `done` says.
fn wait_until(
    client: &mut Client,
    topic: &str,
    done: impl Fn(usize) -> bool,
) -> BTreeMap<String, Vec<(i64, Option<u8>)>> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = by_key(client, topic);
        if done(found.values().map(Vec::len).sum()) {
            return found;
        }
        assert!(Instant::now() < deadline, "not compacted: {found:?}");
    }
}

#[test]
fn the_latest_record_of_each_key_stays_across_compaction_restart_and_kill() {
    let mut broker = Broker::start(&["log.cleaner.backoff.ms=20"]);
    let mut client = broker.client();
    client.create("t", 1, &COMPACTED);
    let (mut rounds, mut latest) = (0, 0);
    for restart in [Broker::restart, Broker::kill_and_restart, Broker::restart] {
        wear(&mut client, "t", rounds..rounds + 8);
        rounds += 8;
        latest += 8 * KEYS as i64 * 2;
        // The segment that is written to stays as it is: it holds some two rounds.
        let found = wait_until(&mut client, "t", |records| records < KEYS * 2 * 4);
        for (key, records) in &found {
            assert_eq!(records.last().expect("a record").1, Some(rounds - 1), "{key}");
            assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        assert_eq!(found.len(), KEYS);
        assert_eq!(client.list_offset("t", 0, -1).offset, latest);
        broker = restart(broker);
        client = broker.client();
        let again = by_key(&mut client, "t");
        let last = |found: &BTreeMap<String, Vec<(i64, Option<u8>)>>| -> Vec<_> {
            found
                .values()
                .map(|records| *records.last().expect("a record"))
                .collect()
        };
        assert_eq!(last(&again), last(&found));
    }
    let (dir, _) = broker.stop();
    let checkpoint = std::fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).expect("written");
    let offset = checkpoint
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("t 0 "));
    assert!(
        offset
            .and_then(|offset| offset.parse::<i64>().ok())
            .is_some_and(|offset| offset > 0),
        "{checkpoint}"
    );
}

#[test]
fn deleted_keys_go_altogether_once_their_retention_has_passed() {
    let broker = Broker::start(&["log.cleaner.backoff.ms=20"]);
    let mut client = broker.client();
    let mut configs = COMPACTED.to_vec();
    configs.push(("delete.retention.ms", "0"));
    client.create("t", 1, &configs);
    wear(&mut client, "t", 0..4);
    client
        .produce("t", 0, &keyed(Compression::Zstd, &[(0, None)]))
        .expect("appended");
    let deadline = Instant::now() + DEADLINE;
    let mut round = 4;
    loop {
        // Each round makes something dirty, so that another pass is due.
        for key in 1..KEYS {
            let value = vec![round; 60_000];
            client
                .produce("t", 0, &keyed(Compression::None, &[(key, Some(&value))]))
                .expect("appended");
        }
        round += 1;
        let found = by_key(&mut client, "t");
        if !found.contains_key("key 0") {
            assert_eq!(found.len(), KEYS - 1);
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}");
    }
}

#[test]
fn compacted_topics_take_no_record_without_a_key() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &COMPACTED);
    assert_eq!(
        client.produce("t", 0, &batch(&[b"v"])),
        Err(ErrorCode::InvalidRecord)
    );
    assert_eq!(
        client.produce("t", 0, &keyed(Compression::Lz4, &[(1, Some(b"v"))])),
        Ok(0)
    );
}

#[test]
fn a_topic_may_be_deleted_and_made_again_while_it_is_compacted() {
    let broker = Broker::start(&["log.cleaner.backoff.ms=1"]);
    let mut client = broker.client();
    for _ in 0..5 {
        client.create("t", 1, &COMPACTED);
        wear(&mut client, "t", 0..4);
        let found = by_key(&mut client, "t");
        assert_eq!(found.len(), KEYS);
        assert!(
            found
                .values()
                .all(|records| records.last().expect("a record").1 == Some(3))
        );
        assert_eq!(delete(&mut client, "t"), ErrorCode::None);
    }
    broker.restart();
}
