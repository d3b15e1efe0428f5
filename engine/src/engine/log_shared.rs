//! What a log's shard and everyone who holds a handle both see: offsets, state, room, and who waits for more.
//!
//! The shard writes, handles read. Each number is exact; offsets read one after another may be of different moments.
//! Invariant: a reader that has registered and then finds nothing is woken by the next change. Tested through `tests/engine/`.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use tokio::sync::Semaphore;

use super::config::Visibility;
use super::error::{Gone, ReadError};
use super::message::ShardMessage;
use super::metrics::EngineCounters;
use crate::log::{Log, Poison};
use crate::rt::mailbox::Mailbox;
use crate::types::{LogId, Offset};

/// Where a log begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    /// The first readable offset, inclusive.
    pub log_start: Offset,
    /// Everything below is on stable storage, exclusive.
    pub flushed: Offset,
    /// Everything below has been handed to the operating system, exclusive.
    pub written: Offset,
    /// The offset the next record gets, exclusive end.
    pub log_end: Offset,
}

/// Why nothing more will come.
#[derive(Debug)]
pub(super) enum Ended {
    Poisoned(Poison),
    Gone(Gone),
}

/// See the module.
pub(super) struct LogShared {
    pub(super) id: LogId,
    pub(super) name: String,
    pub(super) mailbox: Mailbox<ShardMessage>,
    /// Bytes that requests of this log may hold.
    pub(super) room: Arc<Semaphore>,
    pub(super) room_bytes: u32,
    pub(super) counters: Arc<EngineCounters>,
    log_start: AtomicI64,
    flushed: AtomicI64,
    written: AtomicI64,
    log_end: AtomicI64,
    /// Counts truncations of the suffix: positions of the file mean something else after each.
    generation: AtomicU64,
    ended: OnceLock<Ended>,
    waiting: Mutex<Vec<Waker>>,
}

impl LogShared {
    pub(super) fn new(
        id: LogId,
        name: &str,
        mailbox: Mailbox<ShardMessage>,
        room_bytes: u32,
        counters: Arc<EngineCounters>,
    ) -> Self {
        Self {
            id,
            name: name.to_owned(),
            mailbox,
            room: Arc::new(Semaphore::new(usize::try_from(room_bytes).expect("32 bits fit"))),
            room_bytes,
            counters,
            log_start: AtomicI64::new(0),
            flushed: AtomicI64::new(0),
            written: AtomicI64::new(0),
            log_end: AtomicI64::new(0),
            generation: AtomicU64::new(0),
            ended: OnceLock::new(),
            waiting: Mutex::default(),
        }
    }

    /// Tells what the log is now.
    pub(super) fn publish(&self, log: &Log) {
        let set = |shared: &AtomicI64, offset: Offset| {
            (shared.load(Ordering::Relaxed) != offset.0).then(|| shared.store(offset.0, Ordering::Release))
        };
        set(&self.log_start, log.log_start_offset());
        set(&self.log_end, log.log_end_offset());
        let more = set(&self.written, log.written_offset()).is_some();
        if set(&self.flushed, log.flushed_offset()).is_some() || more {
            self.wake_readers();
        }
        if let Some(poison) = log.poison() {
            self.end(Ended::Poisoned(poison.clone()));
        }
    }

    /// Nothing more will come; the first reason stays.
    pub(super) fn end(&self, reason: Ended) {
        if self.ended.set(reason).is_ok() {
            self.wake_readers();
        }
    }

    /// To be called before the file changes.
    pub(super) fn begin_truncation(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(super) fn visible(&self, visibility: Visibility) -> Offset {
        Offset(match visibility {
            Visibility::Written => self.written.load(Ordering::Acquire),
            Visibility::Flushed => self.flushed.load(Ordering::Acquire),
        })
    }

    pub(super) fn offsets(&self) -> LogOffsets {
        // In this order, as each may move on: none is then read as more than one above it in the log.
        let log_start = Offset(self.log_start.load(Ordering::Acquire));
        let flushed = Offset(self.flushed.load(Ordering::Acquire));
        let written = Offset(self.written.load(Ordering::Acquire));
        let log_end = Offset(self.log_end.load(Ordering::Acquire));
        LogOffsets {
            log_start,
            flushed,
            written,
            log_end,
        }
    }

    /// Why nothing more will come, if so.
    pub(super) fn ended(&self) -> Option<ReadError> {
        self.ended.get().map(|ended| match ended {
            Ended::Poisoned(poison) => ReadError::Poisoned(poison.clone()),
            Ended::Gone(gone) => ReadError::Gone(*gone),
        })
    }

    /// Has `waker` woken at the next change. The caller looks once more after this.
    pub(super) fn wait_for_change(&self, waker: &Waker) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    fn wake_readers(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LogShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogShared")
            .field("name", &self.name)
            .field("offsets", &self.offsets())
            .finish_non_exhaustive()
    }
}
