//! Where delayed produces and fetches wait, as data, by partition and by deadline.
//!
//! Knows neither logs nor clocks: the shard tells it of watermarks that moved and of the time.
//! Every waiting request is answered exactly once: when its offsets are reached, when enough
//! bytes are there, when its log fails, or at its deadline.
//! Bounded by the requests in flight, which the server limits per connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringlog_engine::types::{LogId, Offset};

use crate::request::{Acks, FetchRequest, ProduceError, ProduceResult, Produced, Reply};
use crate::types::{MonotonicMs, RequestId};

/// Delayed produces and fetches.
#[derive(Debug, Default)]
pub(crate) struct Purgatory {
    produces: BTreeMap<RequestId, DelayedProduce>,
    acks: BTreeMap<(LogId, Acks), VecDeque<AckWait>>,
    fetches: BTreeMap<RequestId, DelayedFetch>,
    readers: BTreeMap<LogId, BTreeSet<(RequestId, usize)>>,
    deadlines: BTreeSet<(MonotonicMs, RequestId)>,
}

#[derive(Debug)]
struct DelayedProduce {
    deadline: MonotonicMs,
    slots: Vec<ProduceSlot>,
    waiting: usize,
}

/// One partition's part of a delayed produce.
#[derive(Debug)]
pub(crate) enum ProduceSlot {
    /// Decided.
    Done(ProduceResult),
    /// Appended to `log`; acknowledged once the watermark has passed `last_offset`.
    Waiting {
        log: LogId,
        last_offset: Offset,
        produced: Produced,
    },
}

#[derive(Debug)]
struct AckWait {
    last_offset: Offset,
    request: RequestId,
    slot: usize,
}

/// A fetch that found too little so far.
#[derive(Debug)]
pub(crate) struct DelayedFetch {
    pub(crate) request: FetchRequest,
    deadline: MonotonicMs,
    logs: Vec<Option<LogId>>,
    available: Vec<u64>,
}

impl Purgatory {
    /// Keeps a produce until the watermark named by `acks` has passed all its offsets.
    pub(crate) fn delay_produce(
        &mut self,
        id: RequestId,
        acks: Acks,
        deadline: MonotonicMs,
        slots: Vec<ProduceSlot>,
    ) {
        let mut waiting = 0;
        for (slot, state) in slots.iter().enumerate() {
            if let ProduceSlot::Waiting { log, last_offset, .. } = state {
                waiting += 1;
                self.acks.entry((*log, acks)).or_default().push_back(AckWait {
                    last_offset: *last_offset,
                    request: id,
                    slot,
                });
            }
        }
        self.deadlines.insert((deadline, id));
        self.produces.insert(
            id,
            DelayedProduce {
                deadline,
                slots,
                waiting,
            },
        );
    }

    /// The watermark that `acks` waits for stands at `watermark` (exclusive) in `log`.
    ///
    /// Waits are kept in append order. A duplicate of an earlier batch may wait behind a later one;
    /// it is answered with it, never before its own offset.
    pub(crate) fn handle_watermark(
        &mut self,
        log: LogId,
        acks: Acks,
        watermark: Offset,
        replies: &mut VecDeque<Reply>,
    ) {
        let Some(waits) = self.acks.get_mut(&(log, acks)) else {
            return;
        };
        while waits.front().is_some_and(|wait| wait.last_offset < watermark) {
            let wait = waits.pop_front().expect("the front was just seen");
            let Some(produce) = self.produces.get_mut(&wait.request) else {
                continue;
            };
            let slot = &mut produce.slots[wait.slot];
            if let ProduceSlot::Waiting { produced, .. } = slot {
                *slot = ProduceSlot::Done(Ok(*produced));
                produce.waiting -= 1;
            }
            if produce.waiting == 0 {
                Self::finish_produce(&mut self.produces, &mut self.deadlines, wait.request, replies);
            }
        }
        if waits.is_empty() {
            self.acks.remove(&(log, acks));
        }
    }

    /// `log` will acknowledge nothing more: what waits for it fails with what `error` makes.
    pub(crate) fn fail_log(
        &mut self,
        log: LogId,
        error: impl Fn() -> ProduceError,
        replies: &mut VecDeque<Reply>,
    ) {
        for acks in [Acks::Leader, Acks::All] {
            for wait in self.acks.remove(&(log, acks)).unwrap_or_default() {
                let Some(produce) = self.produces.get_mut(&wait.request) else {
                    continue;
                };
                let slot = &mut produce.slots[wait.slot];
                if matches!(slot, ProduceSlot::Waiting { .. }) {
                    *slot = ProduceSlot::Done(Err(error()));
                    produce.waiting -= 1;
                }
                if produce.waiting == 0 {
                    Self::finish_produce(&mut self.produces, &mut self.deadlines, wait.request, replies);
                }
            }
        }
    }

    fn finish_produce(
        produces: &mut BTreeMap<RequestId, DelayedProduce>,
        deadlines: &mut BTreeSet<(MonotonicMs, RequestId)>,
        id: RequestId,
        replies: &mut VecDeque<Reply>,
    ) {
        let produce = produces.remove(&id).expect("the caller found it");
        deadlines.remove(&(produce.deadline, id));
        let partitions = produce
            .slots
            .into_iter()
            .map(|slot| match slot {
                ProduceSlot::Done(result) => result,
                ProduceSlot::Waiting { .. } => Err(ProduceError::TimedOut),
            })
            .collect();
        replies.push_back(Reply::Produce { id, partitions });
    }

    /// Keeps a fetch until `available` (bytes per partition, in order) adds up to its minimum.
    pub(crate) fn delay_fetch(
        &mut self,
        request: FetchRequest,
        deadline: MonotonicMs,
        logs: Vec<Option<LogId>>,
        available: Vec<u64>,
    ) {
        let id = request.id;
        for (slot, log) in logs.iter().enumerate() {
            if let Some(log) = log {
                self.readers.entry(*log).or_default().insert((id, slot));
            }
        }
        self.deadlines.insert((deadline, id));
        self.fetches.insert(
            id,
            DelayedFetch {
                request,
                deadline,
                logs,
                available,
            },
        );
    }

    /// The fetches, with the partition's place in each, that wait for bytes of `log`.
    pub(crate) fn readers_of(&self, log: LogId) -> Vec<(RequestId, usize)> {
        self.readers
            .get(&log)
            .map(|set| set.iter().copied().collect())
            .unwrap_or_default()
    }

    /// What a waiting fetch asks of the partition in `slot`.
    pub(crate) fn fetch_request(&self, id: RequestId) -> Option<&FetchRequest> {
        self.fetches.get(&id).map(|fetch| &fetch.request)
    }

    /// The partition in `slot` has `bytes` to read now; whether the fetch has enough altogether.
    pub(crate) fn handle_available(&mut self, id: RequestId, slot: usize, bytes: u64) -> bool {
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return false;
        };
        fetch.available[slot] = bytes;
        fetch.available.iter().sum::<u64>() >= u64::from(fetch.request.min_bytes)
    }

    /// Takes a fetch out, to be answered with what there is.
    pub(crate) fn take_fetch(&mut self, id: RequestId) -> Option<FetchRequest> {
        let fetch = self.fetches.remove(&id)?;
        self.deadlines.remove(&(fetch.deadline, id));
        for (slot, log) in fetch.logs.iter().enumerate() {
            let Some(log) = log else { continue };
            if let Some(readers) = self.readers.get_mut(log) {
                readers.remove(&(id, slot));
                if readers.is_empty() {
                    self.readers.remove(log);
                }
            }
        }
        Some(fetch.request)
    }

    /// The earliest deadline of any waiting request.
    pub(crate) fn next_deadline(&self) -> Option<MonotonicMs> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Times out the produces whose deadline has come, and names the fetches whose deadline has.
    pub(crate) fn handle_timeout(
        &mut self,
        now: MonotonicMs,
        replies: &mut VecDeque<Reply>,
    ) -> Vec<RequestId> {
        let mut due_fetches = Vec::new();
        let due: Vec<_> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .copied()
            .collect();
        for (_, id) in due {
            if self.fetches.contains_key(&id) {
                due_fetches.push(id);
            } else {
                // Its entries in `acks` stay until their watermark comes; they find no request then.
                Self::finish_produce(&mut self.produces, &mut self.deadlines, id, replies);
            }
        }
        due_fetches
    }
}
