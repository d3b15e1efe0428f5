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
use crate::config::FlushPolicy;
use crate::io::{FileId, IoError, IoOp, IoQueue, IoToken};
use crate::types::{LogId, Offset, TimestampMs};

/// One write carries at most so many bytes, unless a single batch is larger: beyond 256 KiB a
/// larger write gains no throughput and only delays the sync behind it.
const GROUP_BYTES_MAX: usize = 256 * 1024;
/// `IOV_MAX` of Linux.
const GROUP_BUFFERS_MAX: usize = 1024;
/// Two keep the device busy while the next group collects; more only make the groups smaller.
const WRITES_IN_FLIGHT_MAX: usize = 2;
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

/// Batches that lie one after another in one segment, and go in one write.
#[derive(Debug)]
struct WriteGroup {
    segment: Offset,
    file: FileId,
    position: u32,
    len_bytes: usize,
    next_offset: Offset,
    /// Kept until written, for a retry on a full disk.
    buffers: Vec<Bytes>,
    done: bool,
}

/// What a token stands for.
#[derive(Debug)]
pub(super) enum Operation {
    /// The group that ends with this offset.
    Write { next_offset: Offset },
    /// Everything below is durable once it succeeds.
    Sync { up_to: Offset },
    /// The file of the segment with this base offset.
    Create { segment: Offset },
    /// Stale index files of this segment.
    RemoveIndexes { segment: Offset },
    /// A whole small file.
    Put(Put),
    /// A step of the replacement of segments.
    Swap(SwapStep),
    /// The new names of files that are to be deleted; these are the old ones.
    Retire { paths: Vec<PathBuf> },
    /// Nothing depends on it.
    Forget,
}

/// The steps by which a new segment takes the place of old ones; see `compaction/swap.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwapStep {
    /// The new one counts, the old ones are out of the way.
    Replace,
    /// The new one has its final name.
    Settle,
    /// Its file is open.
    Open,
}

/// A small file to be replaced as a whole.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
    /// No sync is submitted until it is durable: the batches mean less without it.
    pub(super) before_sync: bool,
}

/// The disk is full: what failed for it waits to be tried again.
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
    staged: VecDeque<StagedBatch>,
    /// Staged or in flight.
    unwritten_bytes: usize,
    writes: VecDeque<WriteGroup>,
    operations: BTreeMap<IoToken, Operation>,
    puts: VecDeque<Put>,
    /// Files to be deleted in the next turn.
    removals: Vec<PathBuf>,
    /// Files to be deleted that did not get their new names.
    retire_later: Vec<PathBuf>,
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
            staged: VecDeque::new(),
            unwritten_bytes: 0,
            writes: VecDeque::new(),
            operations: BTreeMap::new(),
            puts: VecDeque::new(),
            removals: Vec::new(),
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
        let nothing_to_write = self.staged.is_empty() && self.writes.is_empty() && self.puts.is_empty();
        nothing_to_write && self.removals.is_empty() && self.stall.is_none()
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
        match (retry_at, self.flush_due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
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
    pub(super) fn retire(&mut self, paths: Vec<PathBuf>, queue: &mut IoQueue) {
        let mut all = std::mem::take(&mut self.retire_later);
        all.extend(paths);
        if all.is_empty() {
            return;
        }
        let renames = all
            .iter()
            .map(|path| (path.clone(), Suffix::Deleted.on(path)))
            .collect();
        self.push(Operation::Retire { paths: all }, IoOp::Rename { renames }, queue);
    }

    /// Files have new names, durably: they can be deleted, and a crash does not bring them back.
    pub(super) fn handle_retired(&mut self, paths: &[PathBuf]) {
        self.removals
            .extend(paths.iter().map(|path| Suffix::Deleted.on(path)));
    }

    /// Deletes what is to be deleted.
    pub(super) fn poll_removals(&mut self, queue: &mut IoQueue) {
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

    /// Submits staged batches in groups.
    pub(super) fn poll_writes(&mut self, segments: &LogSegments, queue: &mut IoQueue) {
        while self.writes.len() < WRITES_IN_FLIGHT_MAX {
            let Some(first) = self.staged.front() else { return };
            let segment = segments
                .floor(first.segment)
                .expect("a staged batch has a segment");
            if segment.phase != SegmentPhase::Open {
                return;
            }
            let (base, position) = (first.segment, first.position);
            let mut group = WriteGroup {
                segment: base,
                file: segment.file,
                position,
                len_bytes: 0,
                next_offset: first.next_offset,
                buffers: Vec::new(),
                done: false,
            };
            while let Some(batch) = self.staged.front()
                && batch.segment == base
                && group.buffers.len() < GROUP_BUFFERS_MAX
                && (group.buffers.is_empty() || group.len_bytes + batch.bytes.len() <= GROUP_BYTES_MAX)
                && let Some(batch) = self.staged.pop_front()
            {
                group.len_bytes += batch.bytes.len();
                group.next_offset = batch.next_offset;
                group.buffers.push(batch.bytes);
            }
            self.submit(&group, queue);
            self.writes.push_back(group);
        }
    }

    fn submit(&mut self, group: &WriteGroup, queue: &mut IoQueue) {
        let op = IoOp::Write {
            file: group.file,
            position: u64::from(group.position),
            buffers: group.buffers.clone(),
        };
        self.push(
            Operation::Write {
                next_offset: group.next_offset,
            },
            op,
            queue,
        );
    }

    /// Submits the write that ends with `next_offset` once more.
    pub(super) fn write_again(&mut self, next_offset: Offset, queue: &mut IoQueue) {
        let at = self
            .writes
            .iter()
            .position(|group| group.next_offset == next_offset);
        let group = self
            .writes
            .remove(at.expect("an unwritten group is kept"))
            .expect("it was just found");
        self.submit(&group, queue);
        let after = self
            .writes
            .partition_point(|other| other.next_offset < next_offset);
        self.writes.insert(after, group);
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
        if self.puts_before_sync > 0 || self.any(|op| matches!(op, Operation::Sync { .. })) {
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
            self.push(
                Operation::Sync { up_to },
                IoOp::Sync { file: segment.file },
                queue,
            );
        }
    }

    /// A write completed; `written` moves over the contiguous prefix.
    pub(super) fn handle_write(&mut self, next_offset: Offset) {
        let group = self
            .writes
            .iter_mut()
            .find(|group| group.next_offset == next_offset);
        group.expect("an unwritten group is kept").done = true;
        while self.writes.front().is_some_and(|group| group.done)
            && let Some(group) = self.writes.pop_front()
        {
            self.unwritten_bytes -= group.len_bytes;
            self.written = group.next_offset;
            let len_bytes = u32::try_from(group.len_bytes).expect("a group lies within a segment");
            self.written_end = WrittenEnd {
                segment: group.segment,
                position: group.position + len_bytes,
            };
        }
    }

    /// Something that needs room succeeded.
    pub(super) fn handle_room(&mut self) {
        if self.stall.as_ref().is_some_and(|stall| stall.failed.is_empty()) {
            self.stall = None;
        }
    }

    /// A request failed. On a full disk it is tried again later, except a sync: what it should
    /// have made durable may be gone.
    pub(super) fn handle_failure(&mut self, operation: Operation, error: IoError) {
        match operation {
            Operation::Forget => {}
            // Deleted under their own names, any of them could come back after a power loss.
            Operation::Retire { paths } => self.retire_later.extend(paths),
            Operation::Write { .. } | Operation::Create { .. } | Operation::Put(_) | Operation::Swap(_)
                if error.is_storage_full() =>
            {
                self.stall.get_or_insert_default().failed.push(operation);
            }
            _ => {
                self.sync_failed |= matches!(operation, Operation::Sync { .. });
                self.poison.get_or_insert(Poison { error });
                self.staged.clear();
                self.puts.clear();
                self.stall = None;
                self.unwritten_bytes = self.writes.iter().map(|group| group.len_bytes).sum();
            }
        }
    }

    /// Starts over with everything below `end` durable and nothing under way.
    pub(super) fn reset(&mut self, end: Offset, written_end: WrittenEnd) {
        *self = Self {
            poison: self.poison.take(),
            ..Self::new(self.log, end, written_end)
        };
    }
}
