//! What is the last of each producer that a crash would leave, which a pass must keep: the next batch follows it.
//!
//! Owns the entries that producers had before they entered an epoch with something that is not flushed yet: a
//! crash takes them back there. At most one for each producer. Knows neither files nor segments. Tested in
//! `tests/log_compaction.rs`.

use std::collections::BTreeMap;

use super::super::producer_entry::{BATCHES_PER_PRODUCER, ProducerEntry};
use super::super::producer_state::ProducerState;
use super::job::LastOfProducer;
use crate::record::BatchHeader;
use crate::types::{Offset, ProducerId};

/// A producer's changes of epoch, the first of which was not flushed when it was noted.
#[derive(Debug)]
struct EpochChange {
    first: Offset,
    /// None where the producer was not known.
    before_first: Option<ProducerEntry>,
    last: Offset,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EpochChanges {
    by_producer: BTreeMap<ProducerId, EpochChange>,
}

impl EpochChanges {
    /// Takes in a batch or marker before the producers do.
    pub(super) fn handle_append(&mut self, header: &BatchHeader, producers: &ProducerState) {
        let id = header.producer_id();
        if id <= ProducerId::NONE {
            return;
        }
        let entry = producers.entry(id);
        if entry.is_some_and(|entry| entry.epoch == header.producer_epoch()) {
            return;
        }
        let offset = header.base_offset();
        let change = self.by_producer.entry(id).or_insert_with(|| EpochChange {
            first: offset,
            before_first: entry.cloned(),
            last: offset,
        });
        change.last = offset;
    }

    /// What lies below `flushed` is on stable storage.
    pub(super) fn handle_flush(&mut self, flushed: Offset) {
        self.by_producer.retain(|_, change| change.last >= flushed);
    }

    /// All that is in the log is on stable storage.
    pub(super) fn clear(&mut self) {
        self.by_producer.clear();
    }

    /// What a crash would leave of each producer as its last; none where that cannot be told until more is
    /// flushed.
    pub(super) fn last_of_producers(
        &self,
        producers: &ProducerState,
        flushed: Offset,
    ) -> Option<BTreeMap<ProducerId, LastOfProducer>> {
        let mut last_of_producers = BTreeMap::new();
        for (id, entry) in producers.iter() {
            let entry = match self.by_producer.get(&id) {
                Some(change) if change.first >= flushed => change.before_first.as_ref(),
                Some(change) if change.last >= flushed => return None,
                _ => Some(entry),
            };
            if let Some(entry) = entry {
                last_of_producers.insert(id, last_flushed(entry, flushed)?);
            }
        }
        Some(last_of_producers)
    }
}

/// The last that `entry` has below `flushed`, where its epoch began as well.
fn last_flushed(entry: &ProducerEntry, flushed: Offset) -> Option<LastOfProducer> {
    let batch = entry.batches.iter().rfind(|batch| batch.last_offset < flushed);
    match batch {
        Some(batch) => Some(LastOfProducer::Batch(batch.last_offset)),
        // None is forgotten: the epoch began with a marker.
        None if entry.batches.len() < BATCHES_PER_PRODUCER => Some(LastOfProducer::Marker(entry.epoch)),
        None => None,
    }
}
