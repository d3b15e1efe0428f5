//! Buffers of past requests, to read the next ones into.
//!
//! A shard's connections share them. Memory fresh from the system costs a page fault for every
//! 4 KiB that is read into it, a tenth of what producing costs at all. A buffer is used again once nobody
//! holds a part of the frame that was in it: its batches are on disk then. Bounded in number and size.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::BytesMut;

/// Buffers kept: what a few clients have under way.
const BUFFERS_MAX: usize = 64;
/// A larger buffer is left to the allocator.
pub(super) const BUFFER_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FramePool {
    /// What was left of each buffer behind its frame; it keeps the buffer's memory alive.
    spent: RefCell<VecDeque<BytesMut>>,
}

impl FramePool {
    /// An empty buffer with room for `len_bytes`, or for [`BUFFER_BYTES_MAX`] if that is less.
    pub(super) fn take(&self, len_bytes: usize) -> BytesMut {
        let len_bytes = len_bytes.min(BUFFER_BYTES_MAX);
        let mut spent = self.spent.borrow_mut();
        // The last that is free is the likeliest to be in the processor's cache.
        let free = spent.iter_mut().rposition(|buffer| buffer.try_reclaim(len_bytes));
        let reused = free.and_then(|at| spent.remove(at));
        // A power of two and one more byte: frames of like sizes fit each other's buffers, and something is
        // left behind every frame.
        reused.unwrap_or_else(|| BytesMut::with_capacity(len_bytes.next_power_of_two() + 1))
    }

    /// Takes what is left of a buffer behind the frame that was cut off it.
    pub(super) fn give_back(&self, rest: BytesMut) {
        let mut spent = self.spent.borrow_mut();
        if spent.len() == BUFFERS_MAX {
            spent.pop_front();
        }
        spent.push_back(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_only_when_its_frame_is_gone() {
        let pool = FramePool::default();
        let mut buffer = pool.take(5000);
        buffer.resize(5000, 7);
        let memory = buffer.as_ptr();
        let frame = buffer.split_to(5000).freeze();
        pool.give_back(buffer);

        let other = pool.take(5000);
        assert_ne!(other.as_ptr(), memory, "the frame is still held");
        assert_eq!(frame[4999], 7);
        drop(frame);
        let again = pool.take(6000);
        assert_eq!(again.as_ptr(), memory);
        assert!(again.is_empty() && again.capacity() >= 6000);
    }

    #[test]
    fn the_pool_holds_a_bounded_number_of_bounded_buffers() {
        let pool = FramePool::default();
        for _ in 0..2 * BUFFERS_MAX {
            pool.give_back(BytesMut::with_capacity(1));
        }
        assert_eq!(pool.spent.borrow().len(), BUFFERS_MAX);
        assert!(pool.take(usize::MAX).capacity() <= BUFFER_BYTES_MAX + 1);
    }
}
