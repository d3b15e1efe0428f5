//! The memory that decoding takes is bounded by the length of the frame, whatever the frame claims.
//!
//! Alone in its binary, because it counts every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ringlog_net::protocol::api_versions;
use ringlog_net::protocol::decode::{ARRAY_MEMORY_MIN, ARRAY_MEMORY_PER_BYTE};
use ringlog_net::protocol::messages::Message;
use ringlog_net::protocol::messages::fetch::FetchRequest;
use ringlog_net::protocol::messages::find_coordinator::FindCoordinatorRequest;
use ringlog_net::protocol::messages::metadata::{MetadataRequest, MetadataResponse};
use ringlog_net::protocol::messages::produce::{ProduceRequest, ProduceResponse};

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Adds up what is allocated on each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allocated, and whether the body was a message.
fn decoding<'a, T: Message<'a>>(body: &'a [u8], version: i16) -> (usize, bool) {
    let before = ALLOCATED.get();
    let is_message = T::decode_body(body, version).is_ok();
    (ALLOCATED.get() - before, is_message)
}

#[test]
fn count_of_four_billion_in_a_short_frame_allocates_nothing() {
    // Version 9 of Produce: null transactional id, acks, timeout, then the compact count.
    let compact = b"\x00\xff\xff\0\0\0\0\xff\xff\xff\xff\x0f\x01\x01\x00";
    assert_eq!(decoding::<ProduceRequest<'_>>(compact, 9), (0, false));
    // Version 8, with a count of 32 bits.
    let plain = b"\xff\xff\xff\xff\0\0\0\0\x7f\xff\xff\xff\0\0\0\0\0\0";
    assert_eq!(decoding::<ProduceRequest<'_>>(plain, 8), (0, false));
}

#[test]
fn hostile_bodies_allocate_in_proportion_to_their_length() {
    // Counts that just fit, empty elements, nulls, and what lies between.
    for len in [16, 1_000, 300_000] {
        let bound = ARRAY_MEMORY_MIN + ARRAY_MEMORY_PER_BYTE * len;
        for fill in [0x00, 0x01, 0x02, 0x03, 0x7f, 0xff] {
            for head in 0..24 {
                let mut body = vec![fill; len];
                for byte in &mut body[..head.min(len)] {
                    *byte = 0;
                }
                for count in [
                    &b"\xff\xff\x03"[..],
                    b"\x80\x80\x06",
                    b"\x00\x00\xff\xff",
                    b"\x00\x01\x00\x00",
                ] {
                    let end = (head + count.len()).min(len);
                    body[head.min(len)..end].copy_from_slice(&count[..end - head.min(len)]);
                    each_version::<ProduceRequest<'_>>(&body, bound);
                    each_version::<ProduceResponse<'_>>(&body, bound);
                    each_version::<FetchRequest<'_>>(&body, bound);
                    each_version::<MetadataRequest<'_>>(&body, bound);
                    each_version::<MetadataResponse<'_>>(&body, bound);
                    each_version::<FindCoordinatorRequest<'_>>(&body, bound);
                }
            }
        }
    }
}

fn each_version<'a, T: Message<'a>>(body: &'a [u8], bound: usize) {
    for version in api_versions::of(T::API).defined.clone() {
        let (allocated, _) = decoding::<T>(body, version);
        assert!(
            allocated <= bound,
            "{} version {version}: {allocated} of {bound} bytes",
            T::API
        );
    }
}
