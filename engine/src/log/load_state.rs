//! The producers and the leader epochs of a log, from their files and from the batches.
//!
//! Owns where each is loaded from and from which offset on batches are replayed. A file that does
//! not decode, or speaks of offsets the log does not have, does not count. Blocking; used by
//! `open.rs` and `truncate.rs`, tested in `tests/log_recovery.rs` and `tests/log_truncate.rs`.

use std::io::ErrorKind;
use std::path::Path;

use super::checkpoint::{decode_leader_epochs, encode_leader_epochs};
use super::file_name::{FileKind, LEADER_EPOCH_CHECKPOINT};
use super::index_hint::IndexHint;
use super::leader_epoch_cache::LeaderEpochCache;
use super::log_segments::LogSegments;
use super::open::{OpenError, SIDE_FILE_BYTES_MAX, io_error, remove_if_there};
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::recovery::{Check, OffsetRange, Walk, walk};
use crate::io::Storage;
use crate::record::{BatchHeader, EndTxnMarker, RecordBatch};
use crate::types::Offset;

/// The log whose state is loaded: its segments end where the log ends.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) dir: &'a Path,
    pub(super) segments: &'a LogSegments,
    pub(super) log_start_offset: Offset,
}

impl Place<'_> {
    fn log_end_offset(&self) -> Offset {
        self.segments.active().next_offset()
    }

    /// Shows the batches from `from` on to `visit`, with the bytes of control batches.
    fn replay(
        &self,
        from: Offset,
        storage: &mut dyn Storage,
        mut visit: impl FnMut(&BatchHeader, &[u8]),
    ) -> Result<(), OpenError> {
        for segment in self
            .segments
            .range_from(from)
            .filter(|segment| segment.next_offset() > from)
        {
            let path = FileKind::Log.path(self.dir, segment.base_offset);
            let end = u64::from(segment.size_bytes());
            let mut position = 0;
            if let Some(hint) = IndexHint::floor(segment, from) {
                let header = hint.read_header(storage, end);
                if header
                    .map_err(|source| io_error("read", path.clone(), source))?
                    .is_some()
                {
                    position = hint.position();
                }
            }
            let bounds = Walk {
                file: segment.file,
                position,
                end,
                offsets: OffsetRange {
                    from: segment.base_offset,
                    limit: Offset(i64::MAX),
                },
                check: Check::Headers,
            };
            let end = walk(storage, bounds, |header, bytes, _| {
                if header.base_offset() >= from {
                    visit(header, bytes);
                }
                true
            });
            let end = end.map_err(|source| io_error("read", path.clone(), source))?;
            if let Some(defect) = end.defect {
                let recovery_point = self.log_end_offset();
                let (position, offset) = (end.position, end.next_offset);
                return Err(OpenError::Damaged {
                    path,
                    position,
                    offset,
                    recovery_point,
                    defect,
                });
            }
        }
        Ok(())
    }
}

/// The epochs. Batches from `verified_from` on may not be in their file, which is then renewed: what
/// is now flushed is not looked at for epochs again.
pub(super) fn load_epochs(
    place: Place<'_>,
    verified_from: Offset,
    storage: &mut dyn Storage,
) -> Result<LeaderEpochCache, OpenError> {
    let path = place.dir.join(LEADER_EPOCH_CHECKPOINT);
    let stored = match storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
        Ok(bytes) => decode_leader_epochs(&bytes).ok(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => None,
        Err(source) => return Err(io_error("read", path, source)),
    };
    let (mut epochs, from) = match &stored {
        Some(epochs) => (epochs.clone(), verified_from.min(place.log_end_offset())),
        None => (LeaderEpochCache::default(), place.log_start_offset),
    };
    epochs.truncate_from_end(from);
    place.replay(from, storage, |header, _| {
        epochs.assign(header.partition_leader_epoch(), header.base_offset());
    })?;
    epochs.truncate_from_start(place.log_start_offset);
    if stored.unwrap_or_default() != epochs {
        let text = encode_leader_epochs(&epochs);
        storage
            .put_file(&path, text.as_bytes())
            .map_err(|source| io_error("write", path, source))?;
    }
    Ok(epochs)
}

/// The producers' state at the log's end, from the last of `snapshots` that is valid. Removes
/// snapshots of offsets the log does not have, and those that are of no further use: neither the
/// last nor at the beginning of a segment.
pub(super) fn load_producers(
    place: Place<'_>,
    snapshots: &[Offset],
    storage: &mut dyn Storage,
) -> Result<ProducerState, OpenError> {
    let end = place.log_end_offset();
    // From an older snapshot on, not all batches are there to be replayed.
    let start = place.segments.first().base_offset;
    let mut loaded = None;
    for &offset in snapshots.iter().rev() {
        let path = FileKind::Snapshot.path(place.dir, offset);
        if loaded.is_none() && offset <= end && offset >= start {
            loaded = match storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
                Ok(bytes) => producer_snapshot::decode(&bytes)
                    .ok()
                    .map(|state| (offset, state)),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => None,
                Err(source) => return Err(io_error("read", path, source)),
            };
            if loaded.is_some() {
                continue;
            }
        }
        let begins_segment = place
            .segments
            .floor(offset)
            .is_some_and(|s| s.base_offset == offset);
        if offset > end || offset < start || loaded.is_none() || !begins_segment {
            remove_if_there(path, storage)?;
        }
    }
    // Also batches below the log start count: they tell how far a producer has come.
    let (from, mut producers) = loaded.unwrap_or_else(|| (start, ProducerState::new()));
    place.replay(from, storage, |header, bytes| {
        let batch = RecordBatch::parse(bytes)
            .ok()
            .filter(|_| header.attributes().is_control());
        // A control batch that does not read ends no transaction: readers of committed records wait
        // for it, which is better than showing them what was aborted.
        let marker = batch.and_then(|batch| EndTxnMarker::from_batch(&batch).ok().flatten());
        producers.update(header, marker);
    })?;
    Ok(producers)
}
