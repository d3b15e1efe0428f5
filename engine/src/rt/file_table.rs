//! The files of one shard, by [`FileId`], a bounded number of them open, and [`Storage`] over the real file system.
//!
//! Owns the descriptors. A file is known from its opening to its close. Beyond the bound the table closes those used least
//! recently, and opens them again, by name, when they are asked for. It keeps open what has been written and not synced (see
//! `log_file.rs`) and what is being renamed, since the name may soon lead to another file. A [`LogFile`] lives as long as its
//! last reference: whoever reads or sends holds its own, so closing never takes the bytes from under a reader. The durability
//! steps (`create_new`, `put_file`) are shared with the helper thread of the blocking backend. Tested by the conformance
//! suite in `tests/io_backends.rs`, and in `tests/open_files.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::limits;
use super::log_file::LogFile;
use crate::io::{DirEntry, FileId, IoError, OpenMode, Storage, is_out_of_descriptors};
use crate::types::{LogId, TimestampMs};

#[derive(Debug)]
struct OpenFile {
    file: Arc<LogFile>,
    /// When it was used last, counted in uses of the table.
    used: u64,
    /// Stays open until its `Close`: its name does not lead to it for sure.
    renamed: bool,
}

/// The files of one shard. See the module.
#[derive(Debug)]
pub struct FileTable {
    /// The name of every known file.
    paths: BTreeMap<FileId, Arc<Path>>,
    open: BTreeMap<FileId, OpenFile>,
    open_max: usize,
    uses: u64,
    /// Where more are open than should be, not before this use is it tried again to close some.
    close_at: u64,
}

impl Default for FileTable {
    fn default() -> Self {
        Self::new()
    }
}

impl FileTable {
    /// A table without files. Its bound is that of [`limits::open_files_max`], divided by the cores.
    #[must_use]
    pub fn new() -> Self {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            paths: BTreeMap::new(),
            open: BTreeMap::new(),
            open_max: (limits::open_files_max() / shards).max(1),
            uses: 0,
            close_at: 0,
        }
    }

    /// Bounds the files that are open at a time, at least 1. More are open while they are read or sent, being renamed, or
    /// written and not synced.
    pub fn set_open_max(&mut self, open_max: usize) {
        self.open_max = open_max.max(1);
        self.close_down_to(self.open_max);
    }

    /// A reference to the file known as `file`, which outlives its close. Opens it if need be, which blocks for a lookup of
    /// its path.
    ///
    /// # Errors
    ///
    /// Of kind `NotFound` where no such file is known, or it has been deleted; else the operating system's.
    pub fn file(&mut self, file: FileId) -> io::Result<Arc<LogFile>> {
        self.uses += 1;
        if let Some(open) = self.open.get_mut(&file) {
            open.used = self.uses;
            return Ok(Arc::clone(&open.file));
        }
        self.close_excess(1);
        self.open_again(file).map(|open| Arc::clone(&open.file))
    }

    /// Whether `file` is known, and closed: all that was written to it is synced.
    pub(crate) fn is_closed(&self, file: FileId) -> bool {
        self.paths.contains_key(&file) && !self.open.contains_key(&file)
    }

    /// Files are about to get other names: those of `log` among them stay open from now on, as the old name may lead to
    /// another file then.
    pub(crate) fn keep_renamed(&mut self, log: LogId, renames: &[(PathBuf, PathBuf)]) {
        let names = renames
            .iter()
            .flat_map(|(from, to)| [from.as_path(), to.as_path()]);
        let names: BTreeSet<&Path> = names.collect();
        let of_log = FileId { log, number: 0 }..=FileId {
            log,
            number: u32::MAX,
        };
        let known = self.paths.range(of_log);
        let affected: Vec<FileId> = known
            .filter(|(_, path)| names.contains(&***path))
            .map(|(&file, _)| file)
            .collect();
        for file in affected {
            if let Some(open) = self.open.get_mut(&file) {
                open.renamed = true;
                continue;
            }
            match self.open_again(file) {
                Ok(open) => open.renamed = true,
                // Not found from now on, where another file might be.
                Err(_) => drop(self.remove(file)),
            }
        }
    }

    /// Makes `opened` known as `file`.
    ///
    /// # Panics
    ///
    /// If `file` is already known: numbers are never reused.
    pub(crate) fn insert(&mut self, file: FileId, opened: LogFile) {
        let before = self.paths.insert(file, Arc::clone(opened.shared_path()));
        assert!(before.is_none(), "{file:?} was opened twice");
        self.uses += 1;
        self.close_excess(1);
        self.add_open(file, opened);
    }

    /// Forgets `file`, and hands over the table's own reference if it is open.
    pub(crate) fn remove(&mut self, file: FileId) -> io::Result<Option<Arc<LogFile>>> {
        self.paths.remove(&file).ok_or_else(|| not_open(file))?;
        Ok(self.open.remove(&file).map(|open| open.file))
    }

    /// Something is over that may have kept a file open.
    pub(crate) fn handle_finished(&mut self) {
        self.uses += 1;
        self.close_excess(0);
    }

    /// The process has no descriptor left: closes half of the files that may be; returns how many.
    pub(crate) fn make_room(&mut self) -> usize {
        self.close_down_to(self.open.len() / 2)
    }

    fn open_again(&mut self, file: FileId) -> io::Result<&mut OpenFile> {
        let path = self.paths.get(&file).ok_or_else(|| not_open(file))?;
        let path = Arc::clone(path);
        let opened = self.with_room(|| open_existing(&path))?;
        Ok(self.add_open(file, LogFile::new(opened, path)))
    }

    fn add_open(&mut self, file: FileId, opened: LogFile) -> &mut OpenFile {
        let open = OpenFile {
            file: Arc::new(opened),
            used: self.uses,
            renamed: false,
        };
        self.open.entry(file).or_insert(open)
    }

    /// Closes some files where more are open, or will be with those `to_come`, than should be.
    fn close_excess(&mut self, to_come: usize) {
        if self.open.len() + to_come > self.open_max && self.uses >= self.close_at {
            let spare = (self.open_max / 8).max(to_come);
            self.close_down_to(self.open_max.saturating_sub(spare));
        }
    }

    /// Opens a file, once more where the first try finds no descriptor and some can be freed.
    fn with_room<T>(&mut self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_out_of_descriptors(&error) && self.make_room() > 0 => open(),
            opened => opened,
        }
    }

    /// Closes the files used least recently until `wanted` are open, as far as they may be closed. Looks at all that are
    /// open, so it is not done again before an eighth as many uses.
    fn close_down_to(&mut self, wanted: usize) -> usize {
        let may_close = |open: &OpenFile| !open.renamed && open.file.is_synced();
        let closable = self.open.iter().filter(|(_, open)| may_close(open));
        let mut closable: Vec<(u64, FileId)> = closable.map(|(&file, open)| (open.used, file)).collect();
        closable.sort_unstable();
        closable.truncate(self.open.len().saturating_sub(wanted));
        for (_, file) in &closable {
            self.open.remove(file);
        }
        self.close_at = self.uses + (self.open.len() / 8) as u64;
        closable.len()
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
        let opened = self.with_room(|| match mode {
            OpenMode::Existing => open_existing(path),
            OpenMode::CreateNew => create_new(path),
        })?;
        let len_bytes = opened.metadata()?.len();
        self.insert(file, LogFile::new(opened, path.to_path_buf()));
        Ok(len_bytes)
    }

    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_at_most(self.file(file)?.file(), position, buf)
    }

    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(file)?;
        file.begin_write();
        let written = file.file().write_all_at(bytes, position);
        file.end_write();
        written
    }

    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        let file = self.file(file)?;
        file.begin_write();
        let cut = file.file().set_len(len_bytes);
        file.end_write();
        cut
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        let file = self.file(file)?;
        let covered = file.writes_over();
        file.file().sync_all()?;
        file.note_synced(covered);
        Ok(())
    }

    fn close(&mut self, file: FileId) {
        // The reference, where there is one, goes with it.
        drop(self.remove(file));
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
