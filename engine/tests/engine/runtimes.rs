//! The same calls from tokio, from another runtime, and from none; streams; what is woken when.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt;
use ringlog_engine::engine::ReadError;
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, LogHandle, NewRecord};

use crate::{append, contents, engine, records};

/// Writes from two tasks while a third follows, and truncates in the end.
async fn write_and_follow(log: LogHandle) {
    let writer = |log: LogHandle| async move {
        for _ in 0..50 {
            let pending = log.append(&[NewRecord::value(b"x")], Durability::Flushed);
            pending.await.expect("taken");
        }
    };
    let follower = async {
        let batches = log.tail(Offset(0)).into_stream().take(100);
        batches
            .map(|batch| records(&batch.expect("whole")).len())
            .fold(0, async |sum, count| sum + count)
            .await
    };
    let (_, _, followed) = futures_util::join!(writer(log.clone()), writer(log.clone()), follower);
    assert_eq!(followed, 100);
    assert_eq!(
        log.truncate_suffix(Offset(60)).await.expect("truncated"),
        Offset(60)
    );
    assert_eq!(
        log.truncate_prefix(Offset(20)).await.expect("truncated"),
        Offset(20)
    );
    assert_eq!(log.flush().await.expect("flushed"), Offset(60));
}

#[test]
fn tokio_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(write_and_follow(log.clone()));
    assert_eq!(contents(&log).len(), 40);
}

#[test]
fn tokio_on_several_threads_with_tasks_that_move() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .build()
        .unwrap();
    runtime.block_on(async {
        runtime.spawn(write_and_follow(log.clone())).await.unwrap();
    });
    assert_eq!(contents(&log).len(), 40);
}

#[test]
fn a_runtime_that_is_not_tokio() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    futures_executor::block_on(write_and_follow(log.clone()));
    let mut pool = futures_executor::LocalPool::new();
    pool.run_until(async {
        log.append(&[NewRecord::value(b"x")], Durability::Flushed)
            .await
            .unwrap();
    });
    assert_eq!(contents(&log).len(), 41);
}

#[test]
fn waiting_on_a_thread_of_a_runtime_blocks_it_and_does_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let offset = runtime.block_on(async { append(&log, "x", Durability::Flushed) });
    assert_eq!(offset, Offset(0));
}

#[test]
fn a_stream_ends_when_the_engine_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    append(&log, "x", Durability::Written);
    let mut stream = log.tail(Offset(0)).into_stream();
    futures_executor::block_on(async {
        assert!(stream.next().await.unwrap().is_ok());
        engine.close().unwrap();
        assert!(matches!(stream.next().await, Some(Err(ReadError::Gone(_)))));
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn a_dropped_wait_for_the_next_batch_has_taken_none() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    for i in 0..20 {
        append(&log, &i.to_string(), Durability::Written);
    }
    let mut stream = log.tail(Offset(0)).into_stream();
    let mut read = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while read.len() < 20 {
        // Polled once and dropped, whatever it was doing.
        if let Poll::Ready(batch) = pin!(stream.next_batch()).poll(&mut cx) {
            read.extend(records(&batch.unwrap().unwrap()));
        }
        std::thread::yield_now();
    }
    let expected: Vec<_> = (0..20).map(|i| (i, i.to_string())).collect();
    assert_eq!(read, expected);
}

struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A caller that waits for one of many appends is woken for that one only.
#[test]
fn appends_that_complete_together_wake_their_caller_once() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir);
    let log = engine.log("wal").unwrap();
    let wakes = Arc::new(CountWakes(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&wakes));
    let mut pending: Vec<_> = (0..100)
        .map(|_| log.append(&[NewRecord::value(b"x")], Durability::Flushed))
        .collect();
    let last = pending.pop().unwrap();
    let mut last = pin!(last);
    let _ = last.as_mut().poll(&mut Context::from_waker(&waker));
    for pending in pending {
        pending.wait().unwrap();
    }
    futures_executor::block_on(log.flush()).unwrap();
    assert!(wakes.0.load(Ordering::SeqCst) <= 1);
    assert!(last.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}
