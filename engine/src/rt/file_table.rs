//! The open files of one shard, by [`FileId`], and [`Storage`] over the real file system.
//!
//! Owns the descriptors. A [`LogFile`] lives as long as its last reference: whoever reads or
//! sends holds its own, so closing takes the name away and never the bytes under a reader.
//! The durability steps (`create_new`, `put_file`) are shared with the helper thread of the
//! blocking backend. Tested by the conformance suite in `tests/io_backends.rs`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::io::{DirEntry, FileId, IoError, OpenMode, Storage};
use crate::types::TimestampMs;

/// An open file: its descriptor and, for messages, the path it was opened by.
///
/// Whoever drops the last reference closes the descriptor, and closing a large deleted file
/// frees its blocks: close before deleting, then the deletion, which the shard's thread does not
/// wait for, bears that cost.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: PathBuf,
}

impl LogFile {
    /// Wraps a file that was opened by `path`.
    #[must_use]
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { file, path }
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

/// The open files of one shard.
#[derive(Debug, Default)]
pub struct FileTable {
    files: BTreeMap<FileId, Arc<LogFile>>,
}

impl FileTable {
    /// A table without files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A reference to the file now known as `file`, which outlives its close.
    #[must_use]
    pub fn file(&self, file: FileId) -> Option<Arc<LogFile>> {
        self.files.get(&file).cloned()
    }

    /// Makes `opened` known as `file`.
    ///
    /// # Panics
    ///
    /// If `file` is already known: numbers are never reused.
    pub(crate) fn insert(&mut self, file: FileId, opened: LogFile) {
        let before = self.files.insert(file, Arc::new(opened));
        assert!(before.is_none(), "{file:?} was opened twice");
    }

    /// Forgets `file` and hands over the table's own reference.
    pub(crate) fn remove(&mut self, file: FileId) -> Option<Arc<LogFile>> {
        self.files.remove(&file)
    }

    fn known(&self, file: FileId) -> io::Result<&LogFile> {
        self.files
            .get(&file)
            .map(Arc::as_ref)
            .ok_or_else(|| not_open(file))
    }
}

/// The error for a file number that names no open file.
pub(crate) fn not_open(file: FileId) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("file {} of log {} is not open", file.number, file.log),
    )
}

impl Storage for FileTable {
    fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Deleted between being listed and being looked at.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(DirEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                len_bytes: if metadata.is_dir() { 0 } else { metadata.len() },
                is_dir: metadata.is_dir(),
                modified_at: modified_at(&metadata),
            });
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            result => result?,
        }
        // Also for one that was there: whoever made it, or a file in it, may have crashed before
        // this point.
        sync_dir(dir)?;
        sync_dir(parent_of(dir))
    }

    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64> {
        let opened = match mode {
            OpenMode::Existing => open_existing(path)?,
            OpenMode::CreateNew => create_new(path)?,
        };
        let len_bytes = opened.metadata()?.len();
        self.insert(file, LogFile::new(opened, path.to_path_buf()));
        Ok(len_bytes)
    }

    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_at_most(self.known(file)?.file(), position, buf)
    }

    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.known(file)?.file().write_all_at(bytes, position)
    }

    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.known(file)?.file().set_len(len_bytes)
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.known(file)?.file().sync_all()
    }

    fn close(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    fn read_file(&mut self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        // One byte more than allowed tells "full" from "too large", whatever the length claims.
        file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("more than {max_bytes} bytes"),
            ));
        }
        Ok(bytes)
    }

    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        put_file(path, bytes)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        let (from_dir, to_dir) = (parent_of(from), parent_of(to));
        if from_dir != to_dir {
            sync_dir(from_dir)?;
        }
        sync_dir(to_dir)
    }
}

fn modified_at(metadata: &fs::Metadata) -> TimestampMs {
    let since = metadata
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let millis = since.and_then(|since| i64::try_from(since.as_millis()).ok());
    millis.map_or(TimestampMs::NONE, TimestampMs)
}

/// Reads until `buf` is full or the file ends.
pub(crate) fn read_at_most(file: &File, position: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Opens `path`, which must exist.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Creates `path`, which must not exist; its directory entry is durable on return. A file whose
/// entry could not be made durable is taken away again, so that the caller may retry.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    if let Err(error) = sync_dir(parent_of(path)) {
        // The first error is the one to report.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Replaces `path` by `bytes`. The order is what makes it atomic: the new bytes are durable
/// before the name points at them, and the name is durable before the caller hears of it.
pub(crate) fn put_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_of(path);
    let written = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(parent_of(path))
}

/// Renames those of `renames` that exist, in order; the new names are durable on return.
pub(crate) fn rename_existing(renames: &[(PathBuf, PathBuf)]) -> Result<(), IoError> {
    for (from, to) in renames {
        match fs::rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|source| rename_error(from, to, source))?,
        }
    }
    match dir_of(renames) {
        Some(dir) => sync_dir(dir).map_err(|source| sync_dir_error(dir, source)),
        None => Ok(()),
    }
}

/// The directory of all `renames`, none where there are none.
///
/// # Panics
///
/// If they lie in several: one sync would not cover them.
pub(crate) fn dir_of(renames: &[(PathBuf, PathBuf)]) -> Option<&Path> {
    let dir = parent_of(&renames.first()?.0);
    let together = |(from, to): &(PathBuf, PathBuf)| parent_of(from) == dir && parent_of(to) == dir;
    assert!(
        renames.iter().all(together),
        "files are renamed within one directory"
    );
    Some(dir)
}

pub(crate) fn rename_error(from: &Path, to: &Path, source: io::Error) -> IoError {
    IoError::new(format!("rename {} to {}", from.display(), to.display()), source)
}

pub(crate) fn sync_dir_error(dir: &Path, source: io::Error) -> IoError {
    IoError::new(format!("sync {}", dir.display()), source)
}

/// Deletes `path` if it exists.
pub(crate) fn remove_existing(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Where the new contents of `path` are prepared: beside it, so that the rename stays within
/// one file system. A crash may leave it behind; nothing ever reads it.
pub(crate) fn temporary_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(".tmp");
    PathBuf::from(name)
}

/// The directory that holds the entry of `path`.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
