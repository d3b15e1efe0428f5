//! What is measured: a case, and what came of it.
//!
//! Knows no contestant; owns the clocks and the threads of those that block their callers.

use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Bytes of a record's value.
pub(crate) const RECORD_BYTES: usize = 1024;
/// What writers that need no acknowledgement may have under way; it bounds memory, not speed.
pub(crate) const UNACKNOWLEDGED_BYTES: usize = 1 << 20;

/// So many writers, each with one durable batch outstanding, spread over so many logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) records: usize,
    pub(crate) writers: usize,
    pub(crate) logs: usize,
    pub(crate) durable: bool,
    pub(crate) run: Duration,
}

impl Case {
    pub(crate) fn batch_bytes(&self) -> usize {
        self.records * RECORD_BYTES
    }

    /// How many batches a writer has under way: one where each is to be durable before the next.
    pub(crate) fn batches_under_way(&self) -> usize {
        if self.durable {
            1
        } else {
            (UNACKNOWLEDGED_BYTES / self.batch_bytes()).max(1)
        }
    }

    /// Runs a thread for each writer. `writer` makes the call that returns once one more batch has been
    /// acknowledged, and says since when that one had been under way.
    pub(crate) fn run_writers<W>(&self, writer: impl Fn(usize) -> W + Sync) -> Outcome
    where
        W: FnMut() -> Instant,
    {
        let ready = Barrier::new(self.writers + 1);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.writers)
                .map(|number| {
                    let (writer, ready) = (&writer, &ready);
                    scope.spawn(move || {
                        let mut write = writer(number);
                        let mut outcome = Outcome::start();
                        ready.wait();
                        let end = Instant::now() + self.run;
                        while Instant::now() < end {
                            let since = write();
                            outcome.acknowledge(self.batch_bytes(), since);
                        }
                        outcome
                    })
                })
                .collect();
            let mut total = Outcome::start();
            ready.wait();
            for thread in threads {
                total.add(&thread.join().expect("a writer does not panic"));
            }
            total.stop()
        })
    }
}

/// What one run did.
#[derive(Debug)]
pub(crate) struct Outcome {
    started: Instant,
    cpu_before: f64,
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
    latency_us: Histogram<u64>,
}

impl Outcome {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            cpu_before: cpu_seconds(),
            bytes: 0,
            seconds: 0.0,
            cpu_seconds: 0.0,
            latency_us: Histogram::new_with_bounds(1, 60_000_000, 3).expect("three digits are in range"),
        }
    }

    pub(crate) fn acknowledge(&mut self, bytes: usize, since: Instant) {
        self.bytes += bytes as u64;
        let us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latency_us.saturating_record(us);
    }

    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.latency_us.add(&other.latency_us).expect("the same bounds");
    }

    pub(crate) fn stop(mut self) -> Self {
        self.seconds = self.started.elapsed().as_secs_f64();
        self.cpu_seconds = cpu_seconds() - self.cpu_before;
        self
    }

    pub(crate) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    pub(crate) fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / 1e9)
    }

    pub(crate) fn latency_us(&self, quantile: f64) -> u64 {
        self.latency_us.value_at_quantile(quantile)
    }
}

/// User and system time of this process so far, the kernel's workers for its rings included.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields = stat
        .rsplit(')')
        .next()
        .expect("the name is in parentheses")
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / 100.0
}
