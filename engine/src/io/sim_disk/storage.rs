//! The blocking half of the simulated disk.
//!
//! Each call first asks whether it is to fail; what a failing call leaves behind is as for the request
//! of the same kind. Tested by the conformance suite and in `tests/sim_disk.rs`.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::SimDisk;
use super::faults::{Half, OpKind};
use crate::io::{DirEntry, FileId, OpenMode, Storage};
use crate::types::TimestampMs;

impl SimDisk {
    fn strike(&mut self, kind: OpKind, path: &Path) -> io::Result<()> {
        match self.faults.strike(Half::Calls, kind, path, &mut self.random) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn strike_open(&mut self, kind: OpKind, file: FileId) -> io::Result<()> {
        let handle = self.handles.get(&file).cloned();
        self.strike(kind, handle.as_ref().map_or(Path::new(""), |handle| &handle.path))
    }
}

impl Storage for SimDisk {
    fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.strike(OpKind::List, dir)?;
        let mut entries: Vec<DirEntry> = self
            .names
            .list(dir)?
            .into_iter()
            .map(|(path, file)| DirEntry {
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                len_bytes: file.map_or(0, |file| self.inodes[file].current.len() as u64),
                is_dir: file.is_none(),
                modified_at: TimestampMs::NONE,
            })
            .collect();
        entries.sort();
        Ok(entries)
    }

    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.strike(OpKind::CreateDir, dir)?;
        self.names.create_dir(dir)
    }

    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64> {
        self.strike(
            match mode {
                OpenMode::Existing => OpKind::Open,
                OpenMode::CreateNew => OpKind::Create,
            },
            path,
        )?;
        self.open_file(file, path, mode)
    }

    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.strike_open(OpKind::Read, file)?;
        Ok(self.read(self.number(file)?, position, buf))
    }

    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()> {
        let struck = self.strike_open(OpKind::Write, file);
        let file = self.number(file)?;
        let written = match struck {
            Ok(()) => bytes,
            Err(_) => &bytes[..self.random.index(bytes.len() + 1)],
        };
        struck.and(self.write(file, position, written))
    }

    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        let struck = self.strike_open(OpKind::SetLen, file);
        if struck.is_err() && self.random.chance(2) {
            return struck;
        }
        self.cut(self.number(file)?, len_bytes)?;
        struck
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        let struck = self.strike_open(OpKind::Sync, file);
        let file = self.number(file)?;
        let inode = &mut self.inodes[file];
        let mark = inode.mark();
        if struck.is_err() {
            inode.fail_sync(mark, &mut self.random);
        } else {
            inode.sync_to(mark);
        }
        struck
    }

    fn close(&mut self, file: FileId) {
        self.handles.remove(&file);
    }

    fn read_file(&mut self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        self.strike(OpKind::Read, path)?;
        let bytes = self.bytes(path).ok_or(ErrorKind::NotFound)?;
        if bytes.len() as u64 > max_bytes {
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.to_vec())
    }

    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let struck = self.strike(OpKind::Put, path);
        if struck.is_err() {
            self.fail_put(path, bytes);
            return struck;
        }
        self.replace(path, bytes)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.strike(OpKind::Remove, path)?;
        if self.names.file(path).is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        self.names.set_absent(path);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.strike(OpKind::Rename, from)?;
        self.names.rename(from, to)
    }
}
