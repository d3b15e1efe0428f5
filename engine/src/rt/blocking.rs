//! Storage without io_uring: the same requests, one after another, on one helper thread.
//!
//! For kernels and containers that forbid io_uring. Knows no runtime: the shard waits for
//! the receiver that [`Helper::start`] returns. Invariants as for the ring: each request completes once, requests the
//! channel has no room for wait in `backlog`, in order. Tested in `tests/io_backends.rs`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::counters::Counters;
use super::op::{ColdRequest, Finished, HotRequest};

/// Requests the helper thread holds at once; as many finished ones fit on the way back, so it
/// never waits for the shard.
const IN_FLIGHT_MAX: usize = 256;

/// A request for the helper thread.
pub(crate) enum Job {
    Hot(HotRequest),
    Cold(ColdRequest),
}

/// The shard's end of its helper thread.
pub(crate) struct Helper {
    /// `None` only while dropping, to tell the thread to end.
    jobs: Option<Sender<Job>>,
    backlog: VecDeque<Job>,
    in_flight: usize,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the helper thread; the receiver yields each request when it is over.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(crate) fn start(name: &str, counters: Arc<Counters>) -> io::Result<(Self, Receiver<Finished>)> {
        let (jobs, mut taken) = channel(IN_FLIGHT_MAX);
        let (done, finished) = channel(IN_FLIGHT_MAX);
        let thread = std::thread::Builder::new()
            .name(format!("{name}-io"))
            .spawn(move || {
                while let Some(job) = taken.blocking_recv() {
                    counters.blocking_ops.add(1);
                    let over = match job {
                        Job::Hot(request) => request.run_blocking(),
                        Job::Cold(request) => request.run_blocking(),
                    };
                    // A shard that has ended is told nothing, but what it asked for is done.
                    let _ = done.blocking_send(over);
                }
            })?;
        let helper = Self {
            jobs: Some(jobs),
            backlog: VecDeque::new(),
            in_flight: 0,
            thread: Some(thread),
        };
        Ok((helper, finished))
    }

    /// Takes over a request.
    pub(crate) fn start_job(&mut self, job: Job) {
        self.backlog.push_back(job);
        self.refill();
    }

    /// Must be told of each request that came out of the receiver: it makes room for the next.
    pub(crate) fn handle_finished(&mut self) {
        self.in_flight -= 1;
        self.refill();
    }

    fn refill(&mut self) {
        let jobs = self.jobs.as_ref().expect("taken only by drop");
        while self.in_flight < IN_FLIGHT_MAX {
            let Some(job) = self.backlog.pop_front() else {
                return;
            };
            match jobs.try_send(job) {
                Ok(()) => self.in_flight += 1,
                Err(TrySendError::Full(job)) => {
                    self.backlog.push_front(job);
                    return;
                }
                Err(TrySendError::Closed(_)) => panic!("the helper thread for storage has stopped"),
            }
        }
    }
}

impl Drop for Helper {
    /// Waits for the requests under way, as the ring does.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the panic hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}
