//! A FUSE file system of one directory with a few files, each served by a [`ServedFile`].
//!
//! Owns the translation from FUSE and nothing of what the files mean. Files have a fixed size and
//! are never cached: each read, write and sync of the loop device on top arrives, in the order the
//! kernel hands them out. Shown to work by `power_cut run`, which looks for a guest's fdatasync.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};

/// Several threads, so that writes complete while a sync is under way, as on a real disk.
const THREADS: usize = 3;
/// Names and sizes never change.
const TTL: Duration = Duration::from_secs(3600);
const FIRST_FILE: u64 = 2;

/// What stands behind a file. Called by several threads at once.
pub trait ServedFile: Send + Sync {
    /// The size, which never changes.
    fn len_bytes(&self) -> u64;

    /// Fills `buffer` with what lies at `position`; both lie within the file.
    ///
    /// # Errors
    ///
    /// What the reader is to be told; so for the others.
    fn read(&self, position: u64, buffer: &mut [u8]) -> Result<(), Errno>;

    /// Puts `data` at `position`.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    fn write(&self, position: u64, data: &[u8]) -> Result<(), Errno>;

    /// Makes what was written durable.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    fn sync(&self) -> Result<(), Errno>;
}

/// Serves `files` by their names in the directory `at` until the session is dropped.
///
/// # Errors
///
/// Where FUSE is not there or not permitted.
pub fn serve(at: &Path, files: Vec<(&'static str, Arc<dyn ServedFile>)>) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("ringlog-faults".to_owned())];
    config.n_threads = Some(THREADS);
    fuser::spawn_mount(Directory { files }, at, &config)
}

struct Directory {
    files: Vec<(&'static str, Arc<dyn ServedFile>)>,
}

impl Directory {
    fn file(&self, ino: INodeNo) -> Result<&dyn ServedFile, Errno> {
        let index = u64::from(ino).checked_sub(FIRST_FILE);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let file = index.and_then(|index| self.files.get(index));
        file.map(|(_, file)| file.as_ref()).ok_or(Errno::ENOENT)
    }

    fn attributes(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let is_root = ino == INodeNo::ROOT;
        let size = if is_root { 0 } else { self.file(ino)?.len_bytes() };
        Ok(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if is_root { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Directory {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index = self.files.iter().position(|(known, _)| OsStr::new(known) == name);
        let ino = index.map(|index| INodeNo(FIRST_FILE + index as u64));
        match ino.ok_or(Errno::ENOENT).and_then(|ino| self.attributes(ino)) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.file(ino).and_then(|file| {
            let available = file.len_bytes().saturating_sub(offset);
            let mut buffer = vec![0; u64::from(size).min(available) as usize];
            file.read(offset, &mut buffer)?;
            Ok(buffer)
        });
        match read {
            Ok(buffer) => reply.data(&buffer),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(ino).and_then(|file| file.write(offset, data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("a request has fewer bytes")),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(ino).and_then(ServedFile::sync) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}
