//! The memory that request bytes of one shard may occupy, counted as the bytes arrive.
//!
//! What a client claims is not counted, only what it has sent. When the budget is used up,
//! connections wait before they read on; one of them at a time may overdraw it, so that
//! half-received requests cannot block each other for good: one that has begun, since a connection
//! between requests may have nothing to say for long. An eighth of the budget is kept for the first few
//! bytes of requests: small ones, and with them most clients, are served while large ones wait. Memory
//! stays within the budget plus one request and the pool of buffers for the next ones.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use super::frame_pool::FramePool;

/// What a request may hold of the part of the budget that large ones leave free.
const SMALL_BYTES: usize = 4096;

/// Request memory shared by the connections of one shard.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: usize,
    used_bytes: Cell<usize>,
    overdrawn: Cell<bool>,
    /// What requests hold that are small so far; counted among the used bytes, too.
    small_bytes: Cell<usize>,
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
            small_bytes: Cell::new(0),
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
            if self.room_bytes() > 0 {
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

    /// How many bytes may be read before the request must wait.
    fn room_bytes(&self) -> usize {
        let reserve_bytes = self.budget.limit_bytes / 8;
        let shared_bytes = self.budget.limit_bytes - reserve_bytes;
        let shared_room = shared_bytes.saturating_sub(self.budget.used_bytes.get());
        // Counted by itself: large requests that overdraw leave the reserve alone.
        let reserve_room = reserve_bytes.saturating_sub(self.budget.small_bytes.get());
        shared_room.max(reserve_room.min(SMALL_BYTES.saturating_sub(self.bytes)))
    }

    /// What the request holds, if it is small.
    fn small_bytes(&self) -> usize {
        if self.bytes <= SMALL_BYTES { self.bytes } else { 0 }
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
        match self.room_bytes() {
            0 => 64 * 1024,
            room_bytes => room_bytes,
        }
    }

    /// Counts bytes that were read.
    pub(crate) fn add(&mut self, bytes: usize) {
        let others_bytes = self.budget.small_bytes.get() - self.small_bytes();
        self.bytes += bytes;
        self.budget.small_bytes.set(others_bytes + self.small_bytes());
        self.budget.used_bytes.set(self.budget.used_bytes.get() + bytes);
    }
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        self.budget
            .used_bytes
            .set(self.budget.used_bytes.get() - self.bytes);
        let others_bytes = self.budget.small_bytes.get() - self.small_bytes();
        self.budget.small_bytes.set(others_bytes);
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
    fn small_requests_pass_while_large_ones_wait() {
        let budget = Budget::new(800_000);
        let [mut large, mut waiting, mut overdrawing] = std::array::from_fn(|_| budget.open());
        waiting.add(SMALL_BYTES);
        overdrawing.add(SMALL_BYTES);
        assert!(is_ready(&mut large));
        large.add(700_000);
        assert!(is_ready(&mut overdrawing), "one may overdraw");
        overdrawing.add(5_000_000);
        assert!(!is_ready(&mut waiting));
        let mut small = budget.open();
        assert!(is_ready(&mut small));
        assert_eq!(small.allowance(), SMALL_BYTES);
        small.add(SMALL_BYTES);
        assert!(!is_ready(&mut small), "it is large now");
        // Even so they keep within the budget.
        let mut many: Vec<_> = (0..100).map(|_| budget.open()).collect();
        let passed = many
            .iter_mut()
            .filter_map(|small| is_ready(small).then(|| small.add(SMALL_BYTES)));
        assert!(passed.count() < 30);
        drop(overdrawing);
        assert!(is_ready(&mut waiting), "its turn to overdraw");
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
