//! Collects the requests of one turn, from all logs of a shard, for the executor.
//!
//! Owns the numbering of tokens. Its length is bounded by what the logs allow themselves in
//! flight: each has a constant number of requests outstanding.

use super::{IoOp, IoRequest, IoToken};
use crate::types::LogId;

/// The requests logs have made and the executor has not taken yet.
#[derive(Debug, Default)]
pub struct IoQueue {
    requests: Vec<IoRequest>,
    next_token: u64,
}

impl IoQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a request of `log`; its completion carries the returned token.
    pub fn push(&mut self, log: LogId, op: IoOp) -> IoToken {
        let token = IoToken(self.next_token);
        self.next_token += 1;
        self.requests.push(IoRequest { log, token, op });
        token
    }

    /// Takes all requests, in the order they were made.
    pub fn drain(&mut self) -> impl Iterator<Item = IoRequest> + '_ {
        self.requests.drain(..)
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}
