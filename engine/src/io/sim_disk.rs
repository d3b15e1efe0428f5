//! A disk in memory that fails as disks do, from a seed: for tests of logs and of what is above them.
//!
//! Owns files, names, requests under way and faults; knows nothing of logs, and no clock but the one it
//! is told. The same seed and the same calls give the same disk. It passes the conformance suite
//! (`testing/io_suite.rs`); the faults are tested in `tests/sim_disk.rs`.
//!
//! # Fault model
//!
//! *Order.* Requests complete in any order: the one the caller picks, one by chance, or by latencies
//! drawn from the seed. A request that has not completed may have had its effect in whole, in part, or
//! not at all, and a crash finds out which.
//!
//! *Power loss.* A sync covers the writes to its file that had *completed* when it was submitted, and
//! nothing more. Of every other write since, any part may survive, independently of all others: all of
//! it, nothing, its first bytes, any of its 512-byte sectors, and a sector torn at any byte. So a later
//! write may survive an earlier one, what lies between reads as zeros, a file may be shorter than what
//! was written, and a file with unsynced changes may end in zeros that nobody wrote. An unsynced change
//! of length happened or did not. Bytes that were synced stay.
//!
//! *Names.* A file's sync says nothing about its name. Creating, replacing, renaming, and making a
//! directory sync the directory, as the executors do, and with it all earlier changes of names there;
//! removing does not: a removed file may be back after a power loss, each by itself. A replacement is
//! atomic, and may leave a torn temporary file beside it; of several renames the first ones happened.
//!
//! *The end of the process.* What had completed is there. What had not may have happened, or a part of it.
//!
//! *Errors.* Any operation can fail, once at a chosen moment or at a rate. A failed write may have
//! written its first bytes. A failed sync leaves an unknown part of what it covered stable; the rest
//! reads well until the power is lost, **and no later sync makes it durable**, as in Linux, which marks
//! such pages clean. A failed replacement may be visible and undone by a power loss, failed renames and
//! removals may have happened in part, a failed creation leaves nothing visible.
//!
//! *Room.* With a capacity, what needs room fails with `StorageFull` where it is exceeded; a write fills
//! the rest first. Removing makes room.
//!
//! *Rot.* Bits turn where the caller says.
//!
//! *What cannot happen.* Requests do not do less than they say and succeed: executors continue short reads
//! and writes by themselves. Synced bytes do not change, except by rot. Bytes of other files do not
//! appear. The device does not lie about a sync.

mod faults;
mod inode;
mod names;
mod random;
mod storage;
mod submitted;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use self::faults::Faults;
pub use self::faults::{Fault, Half, OpKind};
use self::inode::{Change, Inode};
use self::names::{FileNumber, Names};
pub use self::random::Random;
use self::submitted::Submitted;
use crate::io::{FileId, IoCompletion, IoError, IoOp, IoRequest, OpenMode};

#[derive(Clone, Debug)]
struct Handle {
    file: FileNumber,
    /// The name it was opened by, for messages.
    path: PathBuf,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SimDisk {
    inodes: Vec<Inode>,
    names: Names,
    handles: BTreeMap<FileId, Handle>,
    submitted: Vec<Submitted>,
    faults: Faults,
    capacity_bytes: Option<usize>,
    latency_us_max: u64,
    now_us: u64,
    random: Random,
}

fn not_open(file: FileId) -> io::Error {
    let message = format!("file {} of log {} is not open", file.number, file.log);
    io::Error::new(ErrorKind::NotFound, message)
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// An empty disk whose chances follow from `seed`.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            inodes: Vec::new(),
            names: Names::default(),
            handles: BTreeMap::new(),
            submitted: Vec::new(),
            faults: Faults::default(),
            capacity_bytes: None,
            latency_us_max: 0,
            now_us: 0,
            random: Random::new(seed),
        }
    }

    /// What happens by chance from now on follows from `seed`.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Takes the requests of a turn.
    pub fn submit(&mut self, requests: impl IntoIterator<Item = IoRequest>) {
        for request in requests {
            let handle = match &request.op {
                IoOp::Write { file, .. }
                | IoOp::Zero { file, .. }
                | IoOp::SetLen { file, .. }
                | IoOp::Sync { file }
                | IoOp::Read { file, .. } => self.handles.get(file).cloned(),
                IoOp::Close { file } => self.handles.remove(file),
                _ => None,
            };
            let mark = handle
                .as_ref()
                .map_or(0, |handle| self.inodes[handle.file].mark());
            let due_us = self.now_us + self.random.below(self.latency_us_max + 1);
            self.submitted.push(Submitted {
                request,
                handle,
                mark,
                due_us,
            });
        }
    }

    /// The requests that have not completed, in the order they were submitted.
    pub fn outstanding(&self) -> impl Iterator<Item = &IoRequest> {
        self.submitted.iter().map(|submitted| &submitted.request)
    }

    /// Executes the request at `index` of [`outstanding`](Self::outstanding).
    ///
    /// # Panics
    ///
    /// Where there is none.
    pub fn complete(&mut self, index: usize) -> IoCompletion {
        let submitted = self.submitted.remove(index);
        let kind = OpKind::of(&submitted.request.op);
        let failure = self
            .faults
            .strike(Half::Requests, kind, submitted.path(), &mut self.random);
        let result = match failure {
            Some(error) => {
                self.fail(&submitted);
                Err(error.into())
            }
            None => self.execute(&submitted),
        };
        IoCompletion {
            log: submitted.request.log,
            token: submitted.request.token,
            result: result.map_err(|source| IoError::new(submitted.describe(), source)),
        }
    }

    /// Executes one of the outstanding requests, by chance.
    pub fn complete_any(&mut self) -> Option<IoCompletion> {
        if self.submitted.is_empty() {
            return None;
        }
        let index = self.random.index(self.submitted.len());
        Some(self.complete(index))
    }

    /// Requests submitted from now on take up to so long by chance; 0 at first.
    pub fn set_latency_us_max(&mut self, latency_us_max: u64) {
        self.latency_us_max = latency_us_max;
    }

    /// When the next request is over, on the clock of [`complete_due`](Self::complete_due).
    #[must_use]
    pub fn next_due_us(&self) -> Option<u64> {
        self.submitted.iter().map(|submitted| submitted.due_us).min()
    }

    /// Executes the request that is over first, if it is over by `now_us`. The clock does not go back.
    pub fn complete_due(&mut self, now_us: u64) -> Option<IoCompletion> {
        self.now_us = self.now_us.max(now_us);
        let due_us = self.next_due_us().filter(|&due_us| due_us <= now_us)?;
        let index = self
            .submitted
            .iter()
            .position(|submitted| submitted.due_us == due_us)?;
        Some(self.complete(index))
    }

    /// Makes the next completing request of `kind` fail; `Other` stands for `EIO`.
    pub fn fail_next(&mut self, kind: OpKind, error: ErrorKind) {
        self.plan(Fault {
            half: Some(Half::Requests),
            kind: Some(kind),
            name_end: "",
            after: 0,
            error,
        });
    }

    /// Makes one operation fail.
    pub fn plan(&mut self, fault: Fault) {
        self.faults.plan(fault);
    }

    /// How many planned faults have not struck.
    #[must_use]
    pub fn planned_faults(&self) -> usize {
        self.faults.planned()
    }

    /// Makes operations of `kind` fail with `error` so many times in a million, by chance.
    pub fn set_fault_rate(&mut self, kind: OpKind, error: ErrorKind, per_million: u64) {
        self.faults.set_rate(kind, error, per_million);
    }

    /// From now on nothing fails.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Bounds the bytes in all files.
    pub fn set_capacity(&mut self, capacity_bytes: Option<usize>) {
        self.capacity_bytes = capacity_bytes;
    }

    /// Bytes in all files.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.names
            .files()
            .map(|(_, file)| self.inodes[file].current.len())
            .sum()
    }

    /// Power loss, by chance: see the module.
    pub fn power_loss(&mut self) {
        for submitted in std::mem::take(&mut self.submitted) {
            self.interrupt(&submitted);
        }
        self.handles.clear();
        let random = &mut self.random;
        self.names.crash(|| random.chance(2));
        for inode in &mut self.inodes {
            inode.crash_by_chance(random);
        }
    }

    /// Power loss as the caller has it. `keep` is told the length of each unsynced change and says how
    /// many of its first bytes survive; what is whole or not at all, such as a changed name, has length 1.
    pub fn crash(&mut self, mut keep: impl FnMut(usize) -> usize) {
        for mut submitted in std::mem::take(&mut self.submitted) {
            let done = match &mut submitted.request.op {
                // Its bytes are kept or lost below.
                IoOp::Write { .. } | IoOp::Zero { .. } => true,
                IoOp::Rename { renames } => {
                    renames.truncate(keep(renames.len()));
                    true
                }
                IoOp::Remove { paths } => {
                    paths.truncate(keep(paths.len()));
                    true
                }
                _ => keep(1) != 0,
            };
            if done && !matches!(submitted.request.op, IoOp::Sync { .. }) {
                // What fails here did not happen, which the fault model allows.
                drop(self.execute(&submitted));
            }
        }
        self.handles.clear();
        self.names.crash(|| keep(1) == 0);
        for inode in &mut self.inodes {
            inode.crash(&mut |len| {
                let kept = 0..keep(len);
                vec![kept]
            });
        }
    }

    /// The process dies and the machine lives: see the module.
    pub fn kill(&mut self) {
        let mut submitted = std::mem::take(&mut self.submitted);
        while !submitted.is_empty() {
            let at = self.random.index(submitted.len());
            let one = submitted.swap_remove(at);
            self.interrupt(&one);
        }
        self.handles.clear();
    }

    /// The bytes of a file as a reader sees them.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Option<&[u8]> {
        self.names
            .file(path)
            .map(|file| self.inodes[file].current.as_slice())
    }

    /// The bytes of an open file as a reader sees them.
    #[must_use]
    pub fn file_bytes(&self, file: FileId) -> Option<&[u8]> {
        self.handles
            .get(&file)
            .map(|handle| self.inodes[handle.file].current.as_slice())
    }

    /// Makes `path` hold `bytes`, durably, whatever was there; makes the directories above.
    pub fn plant(&mut self, path: &Path, bytes: &[u8]) {
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.create_dirs(parent);
        let file = self.new_inode(bytes);
        self.names.set(path, Some(file));
        self.names.sync_dir(parent);
    }

    /// Makes `dir` and all directories above.
    pub fn create_dirs(&mut self, dir: &Path) {
        self.names.create_dirs(dir);
    }

    /// The files there are, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.names.files().map(|(path, _)| path)
    }

    /// Turns a bit of a file, and says where; `None` where the file is missing or empty.
    pub fn rot(&mut self, path: &Path) -> Option<usize> {
        let file = self.names.file(path)?;
        let len = self.inodes[file].current.len();
        let position = (len > 0).then(|| self.random.index(len))?;
        let bit = self.random.below(8);
        self.inodes[file].flip(position, u8::try_from(bit).expect("below 8"));
        Some(position)
    }

    fn new_inode(&mut self, bytes: &[u8]) -> FileNumber {
        self.inodes.push(Inode::stable(bytes));
        self.inodes.len() - 1
    }

    fn number(&self, file: FileId) -> io::Result<FileNumber> {
        let handle = self.handles.get(&file);
        handle.map(|handle| handle.file).ok_or_else(|| not_open(file))
    }

    /// How many of `more_bytes` there is room for.
    fn room_for(&self, more_bytes: usize) -> usize {
        self.capacity_bytes.map_or(more_bytes, |capacity| {
            capacity.saturating_sub(self.used_bytes()).min(more_bytes)
        })
    }

    /// The new contents may have got their name, and the directory not have been synced.
    fn fail_put(&mut self, path: &Path, bytes: &[u8]) {
        if self.random.chance(2) && self.names.check_parent(path).is_ok() {
            let file = self.new_inode(bytes);
            self.names.set(path, Some(file));
        }
    }

    fn rename_existing(&mut self, renames: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        for (from, to) in renames {
            match self.names.rename(from, to) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn write(&mut self, file: FileNumber, position: u64, bytes: &[u8]) -> io::Result<()> {
        let position = to_usize(position)?;
        let len = self.inodes[file].current.len();
        let grown = (position + bytes.len()).saturating_sub(len);
        let missing = grown - self.room_for(grown);
        let fitting = bytes.len().saturating_sub(missing);
        if fitting > 0 {
            let bytes = bytes[..fitting].to_vec();
            self.inodes[file].change(Change::Write { position, bytes });
        }
        if missing > 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn zero(&mut self, file: FileNumber, position: u64, len_bytes: usize) -> io::Result<()> {
        self.write(file, position, &vec![0; len_bytes])
    }

    fn cut(&mut self, file: FileNumber, len_bytes: u64) -> io::Result<()> {
        let len = to_usize(len_bytes)?;
        let grown = len.saturating_sub(self.inodes[file].current.len());
        if self.room_for(grown) < grown {
            return Err(ErrorKind::StorageFull.into());
        }
        self.inodes[file].change(Change::SetLen(len));
        Ok(())
    }

    fn read(&self, file: FileNumber, position: u64, buf: &mut [u8]) -> usize {
        let bytes = &self.inodes[file].current;
        // A position beyond memory lies beyond the end of every file.
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        let rest = bytes.get(start..).unwrap_or(&[]);
        let read = rest.len().min(buf.len());
        buf[..read].copy_from_slice(&rest[..read]);
        read
    }

    fn open_file(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64> {
        self.names.check_parent(path)?;
        let number = match (mode, self.names.file(path)) {
            (OpenMode::Existing, Some(number)) => number,
            (OpenMode::Existing, None) => return Err(ErrorKind::NotFound.into()),
            (OpenMode::CreateNew, Some(_)) => return Err(ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew, None) if self.room_for(1) == 0 => return Err(ErrorKind::StorageFull.into()),
            (OpenMode::CreateNew, None) => {
                self.plant(path, &[]);
                self.inodes.len() - 1
            }
        };
        let handle = Handle {
            file: number,
            path: path.to_owned(),
        };
        let before = self.handles.insert(file, handle);
        assert!(before.is_none(), "{file:?} was opened twice");
        Ok(self.inodes[number].current.len() as u64)
    }

    /// The old contents need their room until the new ones have their name.
    fn replace(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.names.check_parent(path)?;
        if self.room_for(bytes.len()) < bytes.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.plant(path, bytes);
        Ok(())
    }
}

fn to_usize(value: u64) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| ErrorKind::InvalidInput.into())
}
