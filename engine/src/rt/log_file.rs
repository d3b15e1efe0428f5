//! An open file: its descriptor, its path, and which of its writes have been synced.
//!
//! Owns the descriptor and three counts. Knows no table: `file_table.rs` asks whether the file may be closed. A failure to
//! write pages back is told to the sync that follows only as long as the file stays open, so one that has been written and
//! not synced does. Tested below and in `tests/open_files.rs`.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file: its descriptor and, for messages, the path it was opened by.
///
/// Whoever drops the last reference closes the descriptor, and closing a large deleted file
/// frees its blocks: close before deleting, then the deletion, which the shard's thread does not
/// wait for, bears that cost.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: Arc<Path>,
    writes_begun: AtomicU64,
    writes_over: AtomicU64,
    /// Of the writes that were over, how many a sync has covered.
    writes_synced: AtomicU64,
}

impl LogFile {
    /// Wraps a file that was opened by `path`.
    #[must_use]
    pub fn new(file: File, path: impl Into<Arc<Path>>) -> Self {
        Self {
            file,
            path: path.into(),
            writes_begun: AtomicU64::new(0),
            writes_over: AtomicU64::new(0),
            writes_synced: AtomicU64::new(0),
        }
    }

    /// The path it was opened by; a later rename is not followed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives up the wrapper, for closing by other means than `Drop`.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    pub(super) fn shared_path(&self) -> &Arc<Path> {
        &self.path
    }

    /// A write is about to be handed to the kernel.
    pub(crate) fn begin_write(&self) {
        self.writes_begun.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over, whatever came of it.
    pub(crate) fn end_write(&self) {
        self.writes_over.fetch_add(1, Ordering::Relaxed);
    }

    /// How many writes a sync that begins now covers.
    pub(crate) fn writes_over(&self) -> u64 {
        self.writes_over.load(Ordering::Relaxed)
    }

    /// A sync that began when so many writes were over has succeeded.
    pub(crate) fn note_synced(&self, writes_over: u64) {
        self.writes_synced.fetch_max(writes_over, Ordering::Relaxed);
    }

    /// Whether a sync has covered every write that was begun. The counts are equal only if none was under way when that
    /// sync began.
    pub(super) fn is_synced(&self) -> bool {
        self.writes_synced.load(Ordering::Relaxed) == self.writes_begun.load(Ordering::Relaxed)
    }
}

impl AsFd for LogFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for LogFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_only_writes_that_were_over_when_it_began() {
        let file = LogFile::new(tempfile::tempfile().unwrap(), Path::new("0.log"));
        assert!(file.is_synced());
        file.begin_write();
        file.end_write();
        file.begin_write();
        let covered = file.writes_over();
        file.end_write();
        file.note_synced(covered);
        assert!(!file.is_synced(), "the second was under way");
        file.note_synced(file.writes_over());
        assert!(file.is_synced());
    }
}
