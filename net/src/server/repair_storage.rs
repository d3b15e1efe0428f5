//! Storage for a repair: it shows what would be changed and changes nothing, or moves aside what is
//! taken out.
//!
//! Owns the promise that a repair deletes no data: a file that is removed, or the end that is cut off
//! one, goes to the side directory. Knows no log formats. Tested in `tests/cli_repair.rs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use ringlog_engine::io::{DirEntry, FileId, OpenMode, Storage};
use ringlog_engine::rt::FileTable;

/// Bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What was done to a file, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// So many bytes were taken off its end.
    Cut {
        path: PathBuf,
        position: u64,
        len_bytes: u64,
    },
    /// It was moved aside.
    MoveAside(PathBuf),
    /// It was written anew.
    Write(PathBuf),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RepairStorage {
    files: FileTable,
    paths: BTreeMap<FileId, PathBuf>,
    /// Where what is taken out goes; none where nothing is to be changed.
    side: Option<PathBuf>,
    /// Files as they would be, by path; none where a file would be gone.
    changed: BTreeMap<PathBuf, Option<Vec<u8>>>,
    /// Lengths that files would have been cut to.
    lengths: BTreeMap<FileId, u64>,
    pub(crate) actions: Vec<Action>,
}

impl RepairStorage {
    pub(crate) fn new(side: Option<PathBuf>) -> Self {
        Self {
            files: FileTable::new(),
            paths: BTreeMap::new(),
            side,
            changed: BTreeMap::new(),
            lengths: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    fn path(&self, file: FileId) -> io::Result<PathBuf> {
        self.paths.get(&file).cloned().ok_or(ErrorKind::NotFound.into())
    }

    /// A path in the side directory, which exists then, that no file has.
    fn aside(side: &Path, name: &str) -> io::Result<PathBuf> {
        fs::create_dir_all(side)?;
        let taken = |path: &PathBuf| path.exists();
        let mut path = side.join(name);
        let mut number = 1;
        while taken(&path) {
            path = side.join(format!("{name}.{number}"));
            number += 1;
        }
        Ok(path)
    }

    fn copy_aside(&mut self, file: FileId, from: u64, to: u64, side: &Path) -> io::Result<()> {
        let path = self.path(file)?;
        let aside = Self::aside(side, &format!("{}.from-{from}", name_of(&path)))?;
        let mut copy = File::create(&aside)?;
        let (mut at, mut chunk) = (from, vec![0; CHUNK_BYTES]);
        while at < to {
            let wanted = usize::try_from(to - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let read = self.files.read_at(file, at, &mut chunk[..wanted])?;
            if read == 0 {
                break;
            }
            copy.write_all(&chunk[..read])?;
            at += read as u64;
        }
        copy.sync_all()
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

impl Storage for RepairStorage {
    fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.files.list(dir)
    }

    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        // Only logs that are there are repaired; what is asked for is that their names are durable.
        fs::metadata(dir)?;
        match self.side {
            Some(_) => self.files.create_dir(dir),
            None => Ok(()),
        }
    }

    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64> {
        self.paths.insert(file, path.to_owned());
        if mode == OpenMode::CreateNew {
            self.actions.push(Action::Write(path.to_owned()));
            if self.side.is_none() {
                self.lengths.insert(file, 0);
                return Ok(0);
            }
        }
        self.files.open(file, path, mode)
    }

    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = self.lengths.get(&file).copied().unwrap_or(u64::MAX);
        let left = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(0);
        }
        let wanted = buf.len().min(left);
        self.files.read_at(file, position, &mut buf[..wanted])
    }

    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()> {
        match self.side {
            Some(_) => self.files.write_at(file, position, bytes),
            // Only what was read is written, once more after a sync that failed.
            None => Ok(()),
        }
    }

    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        let path = self.path(file)?;
        let end = match self.lengths.get(&file) {
            Some(end) => *end,
            None => fs::metadata(&path)?.len(),
        };
        if len_bytes == end {
            return Ok(());
        }
        self.actions.push(Action::Cut {
            path,
            position: len_bytes,
            len_bytes: end.saturating_sub(len_bytes),
        });
        let Some(side) = self.side.clone() else {
            self.lengths.insert(file, len_bytes);
            return Ok(());
        };
        self.copy_aside(file, len_bytes, end, &side)?;
        self.files.set_len(file, len_bytes)
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        match self.side {
            Some(_) => self.files.sync(file),
            None => Ok(()),
        }
    }

    fn close(&mut self, file: FileId) {
        self.files.close(file);
    }

    fn read_file(&mut self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        match self.changed.get(path) {
            Some(Some(bytes)) => Ok(bytes.clone()),
            Some(None) => Err(ErrorKind::NotFound.into()),
            None => self.files.read_file(path, max_bytes),
        }
    }

    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.read_file(path, u64::MAX).is_ok_and(|before| before == bytes) {
            return Ok(());
        }
        self.actions.push(Action::Write(path.to_owned()));
        if self.side.is_some() {
            return self.files.put_file(path, bytes);
        }
        self.changed.insert(path.to_owned(), Some(bytes.to_vec()));
        Ok(())
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        if self.changed.get(path).is_some_and(Option::is_none) {
            return Err(ErrorKind::NotFound.into());
        }
        fs::metadata(path)?;
        self.actions.push(Action::MoveAside(path.to_owned()));
        match &self.side {
            Some(side) => {
                let aside = Self::aside(side, &name_of(path))?;
                self.files.rename(path, &aside)
            }
            None => {
                self.changed.insert(path.to_owned(), None);
                Ok(())
            }
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        match self.side {
            Some(_) => self.files.rename(from, to),
            None => Err(io::Error::new(
                ErrorKind::Unsupported,
                "a compaction was interrupted; it is completed when this is applied, or by a broker",
            )),
        }
    }
}
