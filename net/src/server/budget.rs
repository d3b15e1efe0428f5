//! The memory that request bytes of one shard may occupy, counted as the bytes arrive.
//!
//! What a client claims is not counted, only what it has sent. When the budget is used up,
//! connections wait before they read on; one of them at a time may overdraw it, so that
//! half-received requests cannot block each other for good: one that has begun, since a connection
//! between requests may have nothing to say for long. Memory stays within the budget plus one request
//! and the pool of buffers for the next ones.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use super::frame_pool::FramePool;

/// Request memory shared by the connections of one shard.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: usize,
    used_bytes: Cell<usize>,
    overdrawn: Cell<bool>,
    freed: Notify,
    pool: FramePool,
}

/// Counts the bytes of one request until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    budget: Rc<Budget>,
    bytes: usize,
    overdraws: bool,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            limit_bytes,
            used_bytes: Cell::new(0),
            overdrawn: Cell::new(false),
            freed: Notify::new(),
            pool: FramePool::default(),
        })
    }

    /// The account of one request, at zero.
    pub(crate) fn open(self: &Rc<Self>) -> RequestMemory {
        RequestMemory {
            budget: self.clone(),
            bytes: 0,
            overdraws: false,
        }
    }
}

impl RequestMemory {
    /// Buffers to read large requests into.
    pub(super) fn pool(&self) -> &FramePool {
        &self.budget.pool
    }

    /// Waits until at least one more byte may be read.
    pub(crate) async fn ready(&mut self) {
        loop {
            if self.budget.used_bytes.get() < self.budget.limit_bytes {
                self.end_overdraft();
                return;
            }
            if self.overdraws {
                return;
            }
            if self.bytes > 0 && !self.budget.overdrawn.get() {
                self.budget.overdrawn.set(true);
                self.overdraws = true;
                return;
            }
            self.budget.freed.notified().await;
        }
    }

    /// Leaves the overdraft to the next who needs it: a slow request must not keep it for good.
    fn end_overdraft(&mut self) {
        if self.overdraws {
            self.overdraws = false;
            self.budget.overdrawn.set(false);
            self.budget.freed.notify_waiters();
        }
    }

    /// How many bytes may be read at once: what is left, or a small piece when overdrawing.
    pub(crate) fn allowance(&self) -> usize {
        self.budget
            .limit_bytes
            .saturating_sub(self.budget.used_bytes.get())
            .max(64 * 1024)
    }

    /// Counts bytes that were read.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.budget.used_bytes.set(self.budget.used_bytes.get() + bytes);
    }
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        self.budget
            .used_bytes
            .set(self.budget.used_bytes.get() - self.bytes);
        self.end_overdraft();
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready(memory: &mut RequestMemory) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(pin!(memory.ready()).as_mut().poll(&mut context), Poll::Ready(()))
    }

    #[test]
    fn a_used_up_budget_lets_one_request_through_at_a_time() {
        let budget = Budget::new(10);
        let mut first = budget.open();
        first.add(10);
        let mut idle = budget.open();
        assert!(!is_ready(&mut idle), "nothing of a request is there yet");
        let [mut second, mut third] = [budget.open(), budget.open()];
        second.add(1);
        third.add(1);
        assert!(is_ready(&mut second), "the second may overdraw");
        assert!(!is_ready(&mut third), "the third must wait");
        drop(second);
        assert!(is_ready(&mut third));
    }

    #[test]
    fn an_overdraft_ends_when_there_is_room_again() {
        let budget = Budget::new(10);
        let [mut first, mut slow, mut next] = std::array::from_fn(|_| budget.open());
        first.add(10);
        slow.add(1);
        assert!(is_ready(&mut slow), "it overdraws");
        drop(first);
        assert!(is_ready(&mut slow), "there is room");
        next.add(10);
        assert!(is_ready(&mut next), "the overdraft is free again");
        assert!(!is_ready(&mut slow));
    }

    #[test]
    fn memory_is_given_back_on_drop() {
        let budget = Budget::new(10);
        let mut first = budget.open();
        first.add(10);
        drop(first);
        assert_eq!(budget.used_bytes.get(), 0);
    }
}
