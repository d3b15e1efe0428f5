//! What happens to a batch between the append and stable storage: staged, written, flushed.
//!
//! Owns the staged batches, the requests in flight, the two watermarks and what goes wrong on the
//! way. Knows no format and decides no offsets; the segments are `Log`'s and are lent for a turn.
//!
//! ```text
//! log_start <= written          flushed <= written <= log_end          (INV-LOG-1, in log.rs)
//! ```
//!
//! A sync covers only writes that completed before it was submitted, and the oldest segment is
//! synced first, so `flushed` never passes bytes that are not on stable storage. Tested in
//! `tests/log_append.rs` and `tests/log_model.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::file_name::Suffix;
use super::log_segment::SegmentPhase;
use super::log_segments::LogSegments;
use super::operation::{Operation, Put, RetiredFile};
use super::zero_window::{Tail, ZeroRequest, ZeroWindow};
use crate::config::{FlushPolicy, LogConfig};
use crate::io::{FileId, IoError, IoOp, IoQueue, IoToken};
use crate::types::{LogId, Offset, TimestampMs};

/// One write carries at most so many bytes, unless a single batch is larger: beyond 256 KiB a
/// larger write gains no throughput and only delays the sync behind it.
const GROUP_BYTES_MAX: usize = 256 * 1024;
/// One less than `IOV_MAX` of Linux, for the padding.
const GROUP_BUFFERS_MAX: usize = 1023;
/// Within zeros a group ends where a page does: a page that is written in part and not in memory would
/// have to be read first.
const PAGE_BYTES: u32 = 4096;
static PADDING: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
/// Bytes appended and not yet written that one log may hold.
pub(super) const STAGED_BYTES_MAX: usize = 64 << 20;
/// Between two tries on a full disk.
const RETRY_MS: i64 = 100;

/// Why a log takes no more appends until it is opened anew.
///
/// After a failed sync the kernel may have dropped the dirty pages and marked them clean, so a
/// second sync that succeeds proves nothing; the log therefore never tries again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log is read-only since a storage failure")]
pub struct Poison {
    /// What failed, and on what.
    #[source]
    pub error: IoError,
}

/// A batch whose place is decided and whose write has not been submitted.
#[derive(Debug)]
pub(super) struct StagedBatch {
    /// Base offset of its segment.
    pub(super) segment: Offset,
    pub(super) position: u32,
    pub(super) next_offset: Offset,
    pub(super) bytes: Bytes,
}

impl StagedBatch {
    fn end(&self) -> u32 {
        self.position + u32::try_from(self.bytes.len()).expect("a batch lies within a segment")
    }
}

/// Batches that lie one after another in one segment, and go in one write.
#[derive(Debug)]
struct WriteGroup {
    segment: Offset,
    file: FileId,
    position: u32,
    len_bytes: usize,
    next_offset: Offset,
    /// Kept until written, for a retry on a full disk; padding comes last.
    buffers: Vec<Bytes>,
}

/// The disk is full, or no descriptor is left: what failed for it waits to be tried again.
#[derive(Debug, Default)]
struct Stall {
    failed: Vec<Operation>,
    retry_at: Option<TimestampMs>,
}

/// The end of the written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenEnd {
    /// Base offset of the segment it lies in.
    pub(super) segment: Offset,
    pub(super) position: u32,
}

impl WrittenEnd {
    fn in_segment(self, segment: Offset) -> u64 {
        u64::from(if self.segment == segment { self.position } else { 0 })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct WritePipeline {
    log: LogId,
    pub(super) written: Offset,
    pub(super) written_end: WrittenEnd,
    pub(super) flushed: Offset,
    /// To be flushed whatever the policy says.
    flush_wanted: Offset,
    flush_due: Option<TimestampMs>,
    /// Written since the last sync was asked for.
    unsynced_bytes: u64,
    staged: VecDeque<StagedBatch>,
    /// Staged or in flight.
    unwritten_bytes: usize,
    /// One at a time: the next group collects meanwhile, and padding is never written over data. A second
    /// one in flight gains nothing.
    write: Option<WriteGroup>,
    pub(super) zeros: ZeroWindow,
    operations: BTreeMap<IoToken, Operation>,
    puts: VecDeque<Put>,
    /// Files to be deleted in the next turn.
    removals: Vec<PathBuf>,
    /// Files to be deleted once `segment-checkpoint` does not list their segments any more.
    removals_once_unlisted: Vec<PathBuf>,
    /// Files to be deleted that did not get their new names.
    retire_later: Vec<RetiredFile>,
    /// Puts that are not durable yet and hold syncs back.
    puts_before_sync: u32,
    stall: Option<Stall>,
    poison: Option<Poison>,
    /// A sync failed and the next start has not been told.
    sync_failed: bool,
}

impl WritePipeline {
    /// Everything below `end` is durable, and nothing is under way.
    pub(super) fn new(log: LogId, end: Offset, written_end: WrittenEnd) -> Self {
        Self {
            log,
            written: end,
            written_end,
            flushed: end,
            flush_wanted: end,
            flush_due: None,
            unsynced_bytes: 0,
            staged: VecDeque::new(),
            unwritten_bytes: 0,
            write: None,
            zeros: ZeroWindow::default(),
            operations: BTreeMap::new(),
            puts: VecDeque::new(),
            removals: Vec::new(),
            removals_once_unlisted: Vec::new(),
            retire_later: Vec::new(),
            puts_before_sync: 0,
            stall: None,
            poison: None,
            sync_failed: false,
        }
    }

    /// Whether a sync has failed since this was asked last.
    pub(super) fn take_sync_failed(&mut self) -> bool {
        std::mem::take(&mut self.sync_failed)
    }

    pub(super) fn poison(&self) -> Option<&Poison> {
        self.poison.as_ref()
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stall.is_some()
    }

    pub(super) fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Whether no request is in flight and none waits to be made.
    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty() && (self.poison.is_some() || self.nothing_waits())
    }

    fn nothing_waits(&self) -> bool {
        let nothing_to_write = self.staged.is_empty() && self.write.is_none() && self.puts.is_empty();
        let nothing_to_remove = self.removals.is_empty() && self.removals_once_unlisted.is_empty();
        let nothing_to_remove = nothing_to_remove && !self.zeros.is_to_be_cut();
        nothing_to_write && nothing_to_remove && self.stall.is_none()
    }

    /// Whether a whole-file write waits or is in flight.
    pub(super) fn has_puts(&self) -> bool {
        !self.puts.is_empty() || self.any(|op| matches!(op, Operation::Put(_))) || self.is_stalled()
    }

    /// Whether a whole-file write of `path` waits or is in flight.
    pub(super) fn has_put(&self, path: &Path) -> bool {
        let is_of_path = |op: &Operation| matches!(op, Operation::Put(put) if put.path == path);
        let mut failed = self.stall.iter().flat_map(|stall| &stall.failed);
        self.puts.iter().any(|put| put.path == path) || self.any(is_of_path) || failed.any(is_of_path)
    }

    /// Forgets the whole-file writes of `paths`; whether none of them is under way.
    pub(super) fn cancel_puts(&mut self, paths: &[PathBuf]) -> bool {
        let is_of_paths = |op: &Operation| matches!(op, Operation::Put(put) if paths.contains(&put.path));
        if self.any(is_of_paths) {
            return false;
        }
        self.puts.retain(|put| !paths.contains(&put.path));
        if let Some(stall) = &mut self.stall
            && !stall.failed.is_empty()
        {
            stall.failed.retain(|op| !is_of_paths(op));
            // Whatever wants room next finds out whether there is some.
            if stall.failed.is_empty() {
                self.stall = None;
            }
        }
        true
    }

    pub(super) fn stage(&mut self, batch: StagedBatch) {
        self.unwritten_bytes += batch.bytes.len();
        self.staged.push_back(batch);
    }

    /// Replaces a whole file, after those asked for earlier.
    pub(super) fn put(&mut self, put: Put) {
        self.puts_before_sync += u32::from(put.before_sync);
        self.puts.push_back(put);
    }

    /// Flushes everything below `offset` whatever the policy says.
    pub(super) fn want_flush(&mut self, offset: Offset) {
        self.flush_wanted = self.flush_wanted.max(offset);
    }

    /// When [`Log::poll_io`](super::Log::poll_io) has something to do that nothing else wakes.
    pub(super) fn next_timeout(&self) -> Option<TimestampMs> {
        let retry_at = self.stall.as_ref().and_then(|stall| stall.retry_at);
        // A stalled log does nothing about its zeros.
        let zeros = self.zeros.next_timeout().filter(|_| self.stall.is_none());
        let due = [retry_at, self.flush_due, zeros];
        due.into_iter().flatten().min()
    }

    /// Makes a request whose outcome nothing depends on.
    pub(super) fn push_forget(&mut self, op: IoOp, queue: &mut IoQueue) {
        self.push(Operation::Forget, op, queue);
    }

    pub(super) fn push(&mut self, operation: Operation, op: IoOp, queue: &mut IoQueue) {
        let token = queue.push(self.log, op);
        self.operations.insert(token, operation);
    }

    pub(super) fn any(&self, wanted: impl Fn(&Operation) -> bool) -> bool {
        self.operations.values().any(wanted)
    }

    /// What completes with `token`.
    ///
    /// # Panics
    ///
    /// `INV-LOG-4`: where nothing of that name is in flight.
    pub(super) fn take(&mut self, token: IoToken) -> Operation {
        self.operations
            .remove(&token)
            .expect("INV-LOG-4: a request completes exactly once")
    }

    /// Gives files the names of deleted ones, after those that were refused theirs before.
    pub(super) fn retire(&mut self, files: Vec<RetiredFile>, queue: &mut IoQueue) {
        let mut all = std::mem::take(&mut self.retire_later);
        all.extend(files);
        if all.is_empty() {
            return;
        }
        let renames = all
            .iter()
            .map(|RetiredFile { path, .. }| (path.clone(), Suffix::Deleted.on(path)))
            .collect();
        self.push(Operation::Retire(all), IoOp::Rename { renames }, queue);
    }

    /// Files have new names, durably: they can be deleted, and a crash does not bring them back.
    pub(super) fn handle_retired(&mut self, files: &[RetiredFile]) {
        for file in files {
            let removals = if file.is_evidence {
                &mut self.removals_once_unlisted
            } else {
                &mut self.removals
            };
            removals.push(Suffix::Deleted.on(&file.path));
        }
    }

    /// Deletes what is to be deleted; `listed` is where segments are listed.
    pub(super) fn poll_removals(&mut self, listed: &Path, queue: &mut IoQueue) {
        if !self.removals_once_unlisted.is_empty() && !self.has_put(listed) {
            self.removals.append(&mut self.removals_once_unlisted);
        }
        let paths = std::mem::take(&mut self.removals);
        if !paths.is_empty() {
            self.push_forget(IoOp::Remove { paths }, queue);
        }
    }

    /// Whether room may be asked for: the disk is not known to be full. On a full disk, when it is
    /// time, answers what to try again.
    pub(super) fn poll_stall(&mut self, now: TimestampMs) -> Result<(), Vec<Operation>> {
        let Some(stall) = &mut self.stall else {
            return Ok(());
        };
        if stall.failed.is_empty() {
            return Err(Vec::new());
        }
        let retry_at = *stall
            .retry_at
            .get_or_insert(TimestampMs(now.0.saturating_add(RETRY_MS)));
        if now < retry_at {
            return Err(Vec::new());
        }
        stall.retry_at = None;
        Err(std::mem::take(&mut stall.failed))
    }

    /// Asks for the next whole-file write; one at a time, so that they stay in order.
    pub(super) fn poll_put(&mut self, queue: &mut IoQueue) {
        if self.any(|op| matches!(op, Operation::Put(_))) {
            return;
        }
        if let Some(put) = self.puts.pop_front() {
            self.push_put(put, queue);
        }
    }

    pub(super) fn push_put(&mut self, put: Put, queue: &mut IoQueue) {
        let (path, bytes) = (put.path.clone(), put.bytes.clone());
        self.push(Operation::Put(put), IoOp::Put { path, bytes }, queue);
    }

    pub(super) fn handle_put(&mut self, put: &Put) {
        self.puts_before_sync -= u32::from(put.before_sync);
    }

    /// Keeps zeros ahead of the data, or takes them away. To be called before
    /// [`poll_writes`](Self::poll_writes).
    pub(super) fn poll_zeros(
        &mut self,
        segments: &LogSegments,
        config: &LogConfig,
        queue: &mut IoQueue,
        now: TimestampMs,
    ) {
        let active = segments.active();
        let tail = Tail {
            segment: active.base_offset,
            position: active.size_bytes(),
            open: active.phase == SegmentPhase::Open,
        };
        match self.zeros.poll(tail, config, now) {
            Some(ZeroRequest::Write { position, len_bytes }) => {
                let (file, position) = (active.file, u64::from(position));
                self.push(
                    Operation::Zero,
                    IoOp::Zero {
                        file,
                        position,
                        len_bytes,
                    },
                    queue,
                );
            }
            Some(ZeroRequest::Cut { segment }) => {
                // A segment that is appended to no more first gets what it is still to get.
                let staged = self.staged.front().is_some_and(|batch| batch.segment == segment);
                let ended = segment == active.base_offset || !staged;
                // A cut syncs, and of two syncs at once only one is told of a failure.
                let syncing = self.any(|op| matches!(op, Operation::Sync { .. }));
                if self.write.is_none() && !syncing && ended {
                    self.zeros.handle_cut_asked();
                    let file = segments.floor(segment).expect("a segment has the zeros").file;
                    // Nothing is in flight: what is written is all the file has.
                    let len_bytes = self.written_end.in_segment(segment);
                    self.push(Operation::Cut, IoOp::SetLen { file, len_bytes }, queue);
                }
            }
            None => {}
        }
    }

    /// Submits what is staged, in groups.
    pub(super) fn poll_writes(&mut self, segments: &LogSegments, queue: &mut IoQueue) {
        let Some(first) = self.staged.front() else { return };
        let base = first.segment;
        let segment = segments.floor(base).expect("a staged batch has a segment");
        if self.write.is_some() || segment.phase != SegmentPhase::Open {
            return;
        }
        let mut group = WriteGroup {
            segment: base,
            file: segment.file,
            position: first.position,
            len_bytes: 0,
            next_offset: first.next_offset,
            buffers: Vec::new(),
        };
        let limit = self.zeros.data_limit(base);
        let mut end = group.position;
        while let Some(batch) = self.staged.front()
            && batch.segment == base
            && group.buffers.len() < GROUP_BUFFERS_MAX
            && (group.buffers.is_empty() || group.len_bytes + batch.bytes.len() <= GROUP_BYTES_MAX)
            && batch.end() <= limit
            && let Some(batch) = self.staged.pop_front()
        {
            end = batch.end();
            group.len_bytes += batch.bytes.len();
            group.next_offset = batch.next_offset;
            group.buffers.push(batch.bytes);
        }
        if group.buffers.is_empty() {
            return;
        }
        if end < self.zeros.end(base) {
            let padding = &PADDING[..(end.next_multiple_of(PAGE_BYTES) - end) as usize];
            group.buffers.push(Bytes::from_static(padding));
        }
        self.write = Some(group);
        self.submit_write(queue);
    }

    /// Submits the group in flight, perhaps once more.
    pub(super) fn submit_write(&mut self, queue: &mut IoQueue) {
        let group = self.write.as_ref().expect("an unwritten group is kept");
        let (file, position) = (group.file, u64::from(group.position));
        let buffers = group.buffers.clone();
        self.push(
            Operation::Write,
            IoOp::Write {
                file,
                position,
                buffers,
            },
            queue,
        );
    }

    /// Submits the one sync that may be in flight, if the policy or someone wants it.
    pub(super) fn poll_sync(
        &mut self,
        segments: &LogSegments,
        policy: FlushPolicy,
        queue: &mut IoQueue,
        now: TimestampMs,
    ) {
        if let FlushPolicy::Interval { flush_ms } = policy
            && self.flushed < self.written
        {
            let flush_ms = i64::try_from(flush_ms).unwrap_or(i64::MAX);
            let due = *self
                .flush_due
                .get_or_insert(TimestampMs(now.0.saturating_add(flush_ms)));
            if due <= now {
                self.want_flush(self.written);
            }
        }
        if self.flushed >= self.flush_wanted.min(self.written) && self.flush_due.is_some_and(|due| due <= now)
        {
            self.flush_due = None;
        }
        if self.puts_before_sync > 0 || self.any(|op| matches!(op, Operation::Sync { .. } | Operation::Cut)) {
            return;
        }
        let segment = segments
            .floor(self.flushed)
            .expect("the flushed offset lies in a segment");
        let rolled = segments.next_base(segment.base_offset).is_some();
        let up_to = if rolled {
            self.written.min(segment.next_offset())
        } else {
            self.written
        };
        if up_to <= self.flushed {
            return;
        }
        let wanted = policy == FlushPolicy::Group
            || self.flushed < self.flush_wanted
            || rolled && up_to == segment.next_offset();
        if wanted {
            self.zeros.handle_sync(std::mem::take(&mut self.unsynced_bytes));
            self.push(
                Operation::Sync { up_to },
                IoOp::Sync { file: segment.file },
                queue,
            );
        }
    }

    /// The write in flight completed.
    pub(super) fn handle_write(&mut self) {
        let group = self.write.take().expect("an unwritten group is kept");
        self.unwritten_bytes -= group.len_bytes;
        self.unsynced_bytes += group.len_bytes as u64;
        self.written = group.next_offset;
        let len_bytes = u32::try_from(group.len_bytes).expect("a group lies within a segment");
        self.written_end = WrittenEnd {
            segment: group.segment,
            position: group.position + len_bytes,
        };
    }

    /// Something that needs room succeeded.
    pub(super) fn handle_room(&mut self) {
        if self.stall.as_ref().is_some_and(|stall| stall.failed.is_empty()) {
            self.stall = None;
        }
    }

    /// A request failed. For want of room it is tried again later, except a sync: what it should
    /// have made durable may be gone.
    pub(super) fn handle_failure(&mut self, operation: Operation, error: IoError) {
        match operation {
            Operation::Forget => {}
            // Deleted under their own names, any of them could come back after a power loss.
            Operation::Retire(files) => self.retire_later.extend(files),
            // The data goes on without, and finds out by itself how the disk is.
            Operation::Zero => self.zeros.handle_failure(error.is_storage_full()),
            Operation::Write | Operation::Create { .. } | Operation::Put(_) | Operation::Swap(_)
                if error.is_out_of_room() =>
            {
                self.stall.get_or_insert_default().failed.push(operation);
            }
            _ => {
                self.sync_failed |= matches!(operation, Operation::Sync { .. } | Operation::Cut);
                self.poison.get_or_insert(Poison { error });
                self.staged.clear();
                self.puts.clear();
                self.stall = None;
                self.unwritten_bytes = self.write.as_ref().map_or(0, |group| group.len_bytes);
            }
        }
    }

    /// Starts over with everything below `end` durable and nothing under way. Files that did not get their
    /// new names still go before those of later segments: a crash between would leave a gap.
    pub(super) fn reset(&mut self, end: Offset, written_end: WrittenEnd) {
        *self = Self {
            poison: self.poison.take(),
            retire_later: std::mem::take(&mut self.retire_later),
            ..Self::new(self.log, end, written_end)
        };
    }
}
