//! The producers and the leader epochs of a log, from their files and from the batches.
//!
//! Owns where each is loaded from and from which offset on batches are replayed. A file that does
//! not decode, or speaks of offsets the log does not have, does not count. A segment that is verified
//! is read once: its walk shows the batches to [`State`] as well. Blocking; used by `open.rs`,
//! `open_segments.rs` and `truncate.rs`, tested in `tests/log_recovery.rs` and `tests/log_truncate.rs`.

use std::io::ErrorKind;
use std::path::Path;

use super::checkpoint::{decode_leader_epochs, encode_leader_epochs};
use super::file_name::{FileKind, LEADER_EPOCH_CHECKPOINT};
use super::index_hint::IndexHint;
use super::leader_epoch_cache::LeaderEpochCache;
use super::log_segments::LogSegments;
use super::open::{OpenError, SIDE_FILE_BYTES_MAX, io_error, remove_if_there, sync_names};
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::recovery::{OffsetRange, Walk, walk};
use super::txn_index::AbortedTxn;
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
    pub(super) fn log_end_offset(&self) -> Offset {
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
                verify_from: None,
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

/// What the batches below an offset have made of the producers and, where they may not be in their
/// file, of the epochs.
#[derive(Debug)]
pub(super) struct State {
    pub(super) producers: ProducerState,
    pub(super) epochs: Option<LeaderEpochCache>,
}

impl State {
    /// Takes in the next batch; `bytes` are those of a control batch. Returns the transaction it
    /// aborts.
    pub(super) fn update(&mut self, header: &BatchHeader, bytes: &[u8]) -> Option<AbortedTxn> {
        if let Some(epochs) = &mut self.epochs {
            epochs.learn(header.partition_leader_epoch(), header.base_offset());
        }
        let ended = self.producers.update(header, marker(header, bytes));
        ended.as_ref().and_then(AbortedTxn::of)
    }
}

/// A control batch that does not read ends no transaction: readers of committed records wait for it,
/// which is better than showing them what was aborted.
fn marker(header: &BatchHeader, bytes: &[u8]) -> Option<EndTxnMarker> {
    let batch = RecordBatch::parse(bytes)
        .ok()
        .filter(|_| header.attributes().is_control())?;
    EndTxnMarker::from_batch(&batch).ok().flatten()
}

/// The epochs in their file; none where there is no file, or it does not read.
fn stored_epochs(dir: &Path, storage: &mut dyn Storage) -> Result<Option<LeaderEpochCache>, OpenError> {
    let path = dir.join(LEADER_EPOCH_CHECKPOINT);
    match storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
        Ok(bytes) => Ok(decode_leader_epochs(&bytes).ok()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => Ok(None),
        Err(source) => Err(io_error("read", path, source)),
    }
}

/// The epochs of the batches of `place`, which is none where there are none: of their file, where it reads,
/// which may speak of later ones as well, and else of the batches.
pub(super) fn load_epochs(
    dir: &Path,
    place: Option<Place<'_>>,
    storage: &mut dyn Storage,
) -> Result<LeaderEpochCache, OpenError> {
    let stored = stored_epochs(dir, storage)?;
    let known = stored.is_some();
    let mut epochs = stored.unwrap_or_default();
    if let Some(place) = place.filter(|_| !known) {
        place.replay(place.log_start_offset, storage, |header, _| {
            epochs.assign(header.partition_leader_epoch(), header.base_offset());
        })?;
    }
    Ok(epochs)
}

/// Makes the file say what the epochs are from the log start to its end: what is flushed now is not looked
/// at for epochs again.
pub(super) fn settle_epochs(
    place: Place<'_>,
    mut epochs: LeaderEpochCache,
    storage: &mut dyn Storage,
) -> Result<LeaderEpochCache, OpenError> {
    epochs.truncate_from_end(place.log_end_offset());
    epochs.truncate_from_start(place.log_start_offset);
    if stored_epochs(place.dir, storage)?.unwrap_or_default() != epochs {
        let path = place.dir.join(LEADER_EPOCH_CHECKPOINT);
        let text = encode_leader_epochs(&epochs);
        storage
            .put_file(&path, text.as_bytes())
            .map_err(|source| io_error("write", path, source))?;
    }
    Ok(epochs)
}

/// The last of `snapshots` that is valid; those above it are added to `invalid`.
fn last_snapshot(
    dir: &Path,
    snapshots: &[Offset],
    invalid: &mut Vec<Offset>,
    storage: &mut dyn Storage,
) -> Result<Option<(Offset, ProducerState)>, OpenError> {
    for &offset in snapshots.iter().rev() {
        let path = FileKind::Snapshot.path(dir, offset);
        match storage.read_file(&path, SIDE_FILE_BYTES_MAX) {
            Ok(bytes) => {
                if let Ok(state) = producer_snapshot::decode(&bytes) {
                    return Ok(Some((offset, state)));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => {}
            Err(source) => return Err(io_error("read", path, source)),
        }
        invalid.push(offset);
    }
    Ok(None)
}

/// The producers' state after the batches below `end` of a log that begins at `start`: from the last
/// of `snapshots` that is valid, and the batches of `place` from there on, which is none where there
/// are none below. Snapshots that do not read are added to `invalid`.
pub(super) fn load_producers(
    dir: &Path,
    place: Option<Place<'_>>,
    (start, end): (Offset, Offset),
    snapshots: &[Offset],
    invalid: &mut Vec<Offset>,
    storage: &mut dyn Storage,
) -> Result<ProducerState, OpenError> {
    // From an older snapshot on, not all batches are there to be replayed.
    let first = snapshots.partition_point(|&offset| offset < start);
    let past = snapshots.partition_point(|&offset| offset <= end);
    let usable = snapshots.get(first..past).unwrap_or(&[]);
    let loaded = last_snapshot(dir, usable, invalid, storage)?;
    // Also batches below the log start count: they tell how far a producer has come.
    let (from, mut producers) = loaded.unwrap_or_else(|| (start, ProducerState::new()));
    if let Some(place) = place {
        place.replay(from, storage, |header, bytes| {
            producers.update(header, marker(header, bytes));
        })?;
    }
    Ok(producers)
}

/// Removes the `snapshots` of offsets the log does not have, the `invalid` ones, and those that are of
/// no further use: neither the last nor at the beginning of a segment.
pub(super) fn remove_snapshots(
    place: Place<'_>,
    snapshots: &[Offset],
    invalid: &[Offset],
    storage: &mut dyn Storage,
) -> Result<(), OpenError> {
    let (start, end) = (place.segments.first().base_offset, place.log_end_offset());
    let (mut last, mut removed) = (true, false);
    for &offset in snapshots.iter().rev() {
        let counts = offset <= end && offset >= start && !invalid.contains(&offset);
        let floor = place.segments.floor(offset);
        let begins_segment = floor.is_some_and(|segment| segment.base_offset == offset);
        if !(counts && (last || begins_segment)) {
            remove_if_there(FileKind::Snapshot.path(place.dir, offset), storage)?;
            removed = true;
        }
        last &= !counts;
    }
    if removed {
        // One that came back with the power would be believed once the log has reached its offset again.
        sync_names(place.dir, storage)?;
    }
    Ok(())
}
