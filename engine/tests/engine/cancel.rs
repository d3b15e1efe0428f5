//! Appends that are dropped, at every moment one can be: what was acknowledged stays, and nothing is half there.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

use crate::{append, contents};

/// Small room and a small mailbox, so that appends wait for both.
fn cramped() -> EngineConfig {
    EngineConfig {
        shards: 1,
        mailbox_requests: 1,
        log_buffer_bytes: 64 << 10,
        ..EngineConfig::default()
    }
}

#[test]
fn an_append_dropped_after_any_number_of_polls_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), cramped()).unwrap();
    let log = engine.log("wal").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut acknowledged = Vec::new();
    for polls in 0..12 {
        for durability in [Durability::Buffered, Durability::Written, Durability::Flushed] {
            for size in [10, 20_000, 60_000] {
                // Some that fill room and mailbox, in various states, all to be dropped.
                let value = "d".repeat(size);
                let records = [NewRecord::value(value.as_bytes()), NewRecord::value(b"second")];
                let mut dropped: Vec<_> = (0..4).map(|_| log.append(&records, durability)).collect();
                for _ in 0..polls {
                    dropped.retain_mut(|pending| pin!(pending).poll(&mut cx).is_pending());
                }
                drop(dropped);
                let value = format!("kept {polls} {durability:?} {size}");
                acknowledged.push((append(&log, &value, durability).0, value));
            }
        }
    }
    let check = |found: Vec<(i64, String)>| {
        for kept in &acknowledged {
            assert!(found.contains(kept), "{kept:?} is lost");
        }
        for ((at, value), next) in found.iter().zip(found.iter().skip(1)) {
            assert_eq!(at + 1, next.0);
            // Both records of a batch, or neither.
            assert!(!value.starts_with('d') || next.1 == "second", "after {at}");
        }
    };
    check(contents(&log));
    engine.close().unwrap();
    let engine = Engine::open(dir.path(), cramped()).unwrap();
    check(contents(&engine.log("wal").unwrap()));
}

#[test]
fn dropped_requests_give_their_room_back() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), cramped()).unwrap();
    let log = engine.log("wal").unwrap();
    let value = vec![0; 60_000];
    for _ in 0..50 {
        for durability in [Durability::Written, Durability::Flushed] {
            drop(log.append(&[NewRecord::value(&value)], durability));
        }
        drop(log.flush());
        drop(log.truncate_prefix(Offset(0)));
        drop(log.find_timestamp(ringlog_engine::types::TimestampMs(0)));
    }
    // Takes all the room there is.
    append(&log, &"x".repeat(65_000), Durability::Flushed);
}

#[test]
fn a_dropped_truncation_is_carried_out_and_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), EngineConfig::default()).unwrap();
    let log = engine.log("wal").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for polls in 0..3 {
        for i in 0..10 {
            append(&log, &i.to_string(), Durability::Written);
        }
        let mut truncation = log.truncate_suffix(Offset(5));
        for _ in 0..polls {
            if let Poll::Ready(done) = pin!(&mut truncation).poll(&mut cx) {
                assert_eq!(done.unwrap(), Offset(5));
                break;
            }
        }
        drop(truncation);
        assert_eq!(append(&log, "after", Durability::Flushed), Offset(5));
        log.truncate_suffix(Offset(0)).wait().unwrap();
    }
}
