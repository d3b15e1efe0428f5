//! Blocking file operations for what is rare: opening a log, recovering it, closing it, and for
//! compaction, which has a thread of its own.
//!
//! Implemented over the real file system in `rt` and over the simulated disk; the log never
//! calls it on the append or fetch path.

use std::io;
use std::path::Path;

use super::FileId;
use crate::types::TimestampMs;

/// How [`Storage::open`] treats the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must exist.
    Existing,
    /// It must not exist; the directory entry is durable on return.
    CreateNew,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name within the directory. Names that are not UTF-8 are listed lossily.
    pub name: String,
    /// Bytes, 0 for a directory.
    pub len_bytes: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// When its contents last changed; [`TimestampMs::NONE`] where the storage does not say.
    pub modified_at: TimestampMs,
}

/// Blocking access to the files of a data directory.
///
/// # Errors
///
/// Every method returns the operating system's error; callers name the file in theirs.
pub trait Storage {
    /// The entries of `dir`, sorted by name.
    fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates `dir` if absent (its parent exists), durably; the entries of one that was there are
    /// durable as well on return.
    fn create_dir(&mut self, dir: &Path) -> io::Result<()>;
    /// Opens `path` for reading and writing as `file` and returns its length in bytes.
    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64>;
    /// Reads into `buf` from `position`; fewer bytes than asked only at the end of the file.
    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `position`; durable after [`sync`](Self::sync).
    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `len_bytes`, or extends it with zeros.
    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable.
    fn sync(&mut self, file: FileId) -> io::Result<()>;
    /// Forgets `file`. Closing an unknown file does nothing.
    fn close(&mut self, file: FileId);
    /// The whole of a small file; an error of kind `FileTooLarge` past `max_bytes`.
    fn read_file(&mut self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>>;
    /// Replaces `path` by `bytes`, atomically and durably.
    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Deletes one file.
    fn remove_file(&mut self, path: &Path) -> io::Result<()>;
    /// Renames a file or directory within one file system, durably.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
}
