//! The storage ring: io_uring driven by hand, one per shard, used by that shard's thread only.
//!
//! Knows no runtime, log or waiting task. Invariants: an operation stays in `ops`, and so do the
//! memory and the descriptor the kernel uses, from `start` to its one completion, whoever has
//! lost interest meanwhile; the kernel holds at most as many operations as the completion queue
//! has room for, the rest wait in `backlog`, in order, never dropped. The number of operations
//! altogether is bounded by those who make them: a log has a constant number outstanding, callers'
//! reads are counted by the shard. Tested in `tests/io_backends.rs`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode};

use super::counters::Counters;
use super::limits;
use super::op::{Finished, HotRequest, HotWork, Op, Progress};

/// Entries submitted by one system call: more than the requests of a busy turn.
const SUBMISSION_ENTRIES: u32 = 256;

/// Operations the kernel holds at once; its queue of completions never overflows.
const COMPLETION_ENTRIES: u32 = 1024;

/// One shard's storage ring.
pub(crate) struct Ring {
    ring: IoUring,
    ops: Slots,
    /// Slots of operations that have an entry to be submitted.
    backlog: VecDeque<usize>,
    /// Operations whose entry is in the submission queue or with the kernel.
    in_kernel: usize,
    /// Over without the kernel: nothing was to be done.
    finished_early: Vec<Finished>,
    counters: Arc<Counters>,
}

impl Ring {
    /// Sets up a ring for the calling thread, which must be the one to use it.
    ///
    /// # Errors
    ///
    /// Why io_uring cannot be used here, with the remedy.
    pub(crate) fn open(counters: Arc<Counters>) -> io::Result<Self> {
        let ring = setup().map_err(limits::explain_ring_error)?;
        require_opcodes(&ring)?;
        Ok(Self {
            ring,
            ops: Slots::default(),
            backlog: VecDeque::new(),
            in_kernel: 0,
            finished_early: Vec::new(),
            counters,
        })
    }

    /// A descriptor that becomes readable when there are completions; independent of the ring's.
    ///
    /// # Errors
    ///
    /// If the process may open no more descriptors.
    pub(crate) fn wake_fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the descriptor is open: the ring owns it and outlives the borrow.
        let ring_fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        ring_fd.try_clone_to_owned()
    }

    /// Takes over a request; [`Ring::submit`] hands it to the kernel.
    pub(crate) fn start(&mut self, request: HotRequest) {
        match &request.work {
            HotWork::Write { buffers, .. } => {
                self.counters.ring_writes.add(1);
                self.counters
                    .ring_write_bytes
                    .add(buffers.iter().map(|buffer| buffer.len() as u64).sum());
            }
            HotWork::Zero { len_bytes, .. } => self.counters.ring_zero_bytes.add(u64::from(*len_bytes)),
            HotWork::Sync => self.counters.ring_syncs.add(1),
            HotWork::Read { .. } => self.counters.ring_reads.add(1),
        }
        let op = Op::new(request);
        if op.is_complete() {
            self.finished_early.push(op.finish(Ok(())));
        } else {
            let slot = self.ops.insert(op);
            self.backlog.push_back(slot);
        }
    }

    /// Hands waiting operations to the kernel, as many as it has room for. Returns false if the
    /// kernel is short of memory and wants to be asked again after a while.
    ///
    /// # Panics
    ///
    /// If the kernel refuses the ring itself: no request could ever be completed again.
    #[must_use]
    pub(crate) fn submit(&mut self) -> bool {
        loop {
            self.fill_submission_queue();
            if self.ring.submission().is_empty() {
                return true;
            }
            match self.ring.submit() {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Short of memory, or completions to be taken first.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    return false;
                }
                Err(error) => panic!("the kernel refuses the storage ring: {error}"),
            }
        }
    }

    /// Takes the completions there are; what needs another round is put in line for `submit`.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished_early);
        for completion in self.ring.completion() {
            self.in_kernel -= 1;
            let slot = usize::try_from(completion.user_data()).expect("user data is a slot number");
            match self.ops.at(slot).handle_result(completion.result()) {
                Progress::Again => self.backlog.push_back(slot),
                Progress::Done(outcome) => finished.push(self.ops.remove(slot).finish(outcome)),
            }
        }
    }

    /// Whether [`Ring::submit`] would hand something over.
    pub(crate) fn can_submit(&mut self) -> bool {
        let waits = !self.backlog.is_empty() && self.in_kernel < COMPLETION_ENTRIES as usize;
        waits || !self.ring.submission().is_empty()
    }

    fn fill_submission_queue(&mut self) {
        let mut queue = self.ring.submission();
        while !queue.is_full() && self.in_kernel < COMPLETION_ENTRIES as usize {
            let Some(slot) = self.backlog.pop_front() else {
                break;
            };
            let entry = self.ops.at(slot).entry().user_data(slot as u64);
            // SAFETY: what the entry points to is heap memory owned by the operation, which
            // stays in `ops`, unchanged, until the completion of this entry is reaped.
            let pushed = unsafe { queue.push(&entry) };
            pushed.expect("the queue is not full");
            self.in_kernel += 1;
        }
    }
}

impl Drop for Ring {
    /// Waits for the operations the kernel holds: it reads and writes their memory until then.
    fn drop(&mut self) {
        let mut finished = Vec::new();
        while self.in_kernel > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.reap(&mut finished),
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) =>
                {
                    self.reap(&mut finished);
                }
                Err(_) => {
                    // The kernel may still use the memory, so it can never be freed.
                    std::mem::forget(std::mem::take(&mut self.ops));
                    return;
                }
            }
        }
    }
}

/// Tries the flags of newer kernels first. COOP_TASKRUN (5.19) spares the interrupt on each
/// completion, SINGLE_ISSUER (6.0) locking. Not DEFER_TASKRUN: its completions never make the
/// ring's descriptor readable, on which the shard sleeps.
fn setup() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_cqsize(COMPLETION_ENTRIES);
    let plain = builder.clone();
    let cooperative = builder.setup_coop_taskrun().clone();
    let single_issuer = builder.setup_single_issuer().clone();
    for builder in [single_issuer, cooperative] {
        match builder.build(SUBMISSION_ENTRIES) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result,
        }
    }
    plain.build(SUBMISSION_ENTRIES)
}

fn require_opcodes(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(limits::explain_ring_error)?;
    for (code, name) in [
        (opcode::Writev::CODE, "WRITEV"),
        (opcode::Fsync::CODE, "FSYNC"),
        (opcode::Read::CODE, "READ"),
    ] {
        if !probe.is_supported(code) {
            let message = format!("this kernel's io_uring has no {name}; Linux 5.6 or newer has");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    }
    Ok(())
}

/// Operations by slot number; a slot is reused once its operation is over.
#[derive(Default)]
struct Slots {
    slots: Vec<Option<Op>>,
    free: Vec<usize>,
}

impl Slots {
    fn insert(&mut self, op: Op) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(op);
                slot
            }
            None => {
                self.slots.push(Some(op));
                self.slots.len() - 1
            }
        }
    }

    fn at(&mut self, slot: usize) -> &mut Op {
        self.slots[slot].as_mut().expect("an operation completes once")
    }

    fn remove(&mut self, slot: usize) -> Op {
        self.free.push(slot);
        self.slots[slot].take().expect("an operation completes once")
    }
}
