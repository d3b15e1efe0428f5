//! A disk in memory: executes storage requests in the order a test chooses, and loses at a crash
//! what was not synced.
//!
//! Fault model: a sync covers the writes that had *completed* when it was submitted, nothing more.
//! A crash keeps, of each change after the last sync, as many of its first bytes as the test says,
//! independently of the others; what lies beyond a lost write reads as zeros. A request that was
//! submitted and not completed may have happened in part, by the same rule. Directory entries and
//! whole-file puts are durable once complete; of renames or removals under way a first part, as
//! long as the test says, has happened. Knows nothing of logs.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::io::{DirEntry, FileId, IoCompletion, IoError, IoOp, IoOutput, IoRequest, OpenMode, Storage};

/// A kind of request that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    /// [`IoOp::Write`].
    Write,
    /// [`IoOp::Sync`].
    Sync,
    /// [`IoOp::Create`].
    Create,
    /// [`IoOp::Put`].
    Put,
    /// [`IoOp::Rename`].
    Rename,
    /// [`IoOp::Remove`].
    Remove,
    /// Any other.
    Other,
}

impl OpKind {
    /// The kind of `op`.
    #[must_use]
    pub fn of(op: &IoOp) -> Self {
        match op {
            IoOp::Write { .. } => Self::Write,
            IoOp::Sync { .. } => Self::Sync,
            IoOp::Create { .. } => Self::Create,
            IoOp::Put { .. } => Self::Put,
            IoOp::Rename { .. } => Self::Rename,
            IoOp::Remove { .. } => Self::Remove,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    synced: Vec<u8>,
    current: Vec<u8>,
    /// Since `synced`, in order.
    changes: VecDeque<Change>,
    /// Changes ever folded into `synced`.
    folded: u64,
}

impl Inode {
    fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.changes.push_back(change);
    }

    /// The number of changes so far, the mark a sync covers.
    fn mark(&self) -> u64 {
        self.folded + self.changes.len() as u64
    }

    fn sync_to(&mut self, mark: u64) {
        while self.folded < mark {
            let Some(change) = self.changes.pop_front() else {
                return;
            };
            apply(&mut self.synced, &change);
            self.folded += 1;
        }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { position, bytes: new } => {
            let end = position + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*position..end].copy_from_slice(new);
        }
        Change::SetLen(len) => bytes.resize(*len, 0),
    }
}

#[derive(Debug)]
struct Submitted {
    request: IoRequest,
    /// What a sync covers.
    mark: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct MemStorage {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    handles: BTreeMap<FileId, usize>,
    submitted: Vec<Submitted>,
    failures: Vec<(OpKind, ErrorKind)>,
    capacity_bytes: Option<usize>,
}

impl MemStorage {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the requests of a turn.
    pub fn submit(&mut self, requests: impl IntoIterator<Item = IoRequest>) {
        for request in requests {
            let mark = match &request.op {
                IoOp::Sync { file } => self
                    .handles
                    .get(file)
                    .map_or(0, |&inode| self.inodes[inode].mark()),
                _ => 0,
            };
            self.submitted.push(Submitted { request, mark });
        }
    }

    /// The requests that have not completed, in the order they were submitted.
    pub fn outstanding(&self) -> impl Iterator<Item = &IoRequest> {
        self.submitted.iter().map(|submitted| &submitted.request)
    }

    /// Executes the request at `index` of [`outstanding`](Self::outstanding).
    pub fn complete(&mut self, index: usize) -> IoCompletion {
        let Submitted { request, mark } = self.submitted.remove(index);
        let kind = OpKind::of(&request.op);
        let failure = self.failures.iter().position(|&(failing, _)| failing == kind);
        let result = match failure.map(|at| self.failures.remove(at).1) {
            Some(error) => Err(error.into()),
            None => self.execute(&request.op, mark),
        };
        let result = result.map_err(|source| IoError::new(format!("{kind:?}"), source));
        IoCompletion {
            log: request.log,
            token: request.token,
            result,
        }
    }

    /// Makes the next completing request of `kind` fail, without effect.
    pub fn fail_next(&mut self, kind: OpKind, error: ErrorKind) {
        self.failures.push((kind, error));
    }

    /// Bounds the bytes in files; writes past it fail as on a full disk.
    pub fn set_capacity(&mut self, capacity_bytes: Option<usize>) {
        self.capacity_bytes = capacity_bytes;
    }

    /// Power loss: see the module. `keep` is told the length of each unsynced change and says how
    /// many of its first bytes survive.
    pub fn crash(&mut self, mut keep: impl FnMut(usize) -> usize) {
        for Submitted { mut request, .. } in std::mem::take(&mut self.submitted) {
            if let IoOp::Rename { renames } = &mut request.op {
                renames.truncate(keep(renames.len()));
            }
            if let IoOp::Remove { paths } = &mut request.op {
                paths.truncate(keep(paths.len()));
            }
            let whole = !matches!(
                request.op,
                IoOp::Write { .. } | IoOp::Rename { .. } | IoOp::Remove { .. }
            );
            if whole && keep(1) == 0 {
                continue;
            }
            if !matches!(request.op, IoOp::Sync { .. }) {
                // What fails here did not happen, which the fault model allows.
                drop(self.execute(&request.op, 0));
            }
        }
        self.handles.clear();
        for inode in &mut self.inodes {
            let mut survived = inode.synced.clone();
            for change in std::mem::take(&mut inode.changes) {
                match change {
                    Change::Write { position, mut bytes } => {
                        bytes.truncate(keep(bytes.len()));
                        if !bytes.is_empty() {
                            apply(&mut survived, &Change::Write { position, bytes });
                        }
                    }
                    Change::SetLen(len) => {
                        if keep(1) != 0 {
                            apply(&mut survived, &Change::SetLen(len));
                        }
                    }
                }
            }
            *inode = Inode {
                synced: survived.clone(),
                current: survived,
                ..Inode::default()
            };
        }
    }

    /// The process dies and the machine lives: what was written stays, what was not submitted is lost.
    pub fn kill(&mut self) {
        self.submitted.clear();
        self.handles.clear();
    }

    /// The bytes of a file as a reader sees them.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Option<&[u8]> {
        self.names
            .get(path)
            .map(|&inode| self.inodes[inode].current.as_slice())
    }

    /// The bytes of an open file as a reader sees them.
    #[must_use]
    pub fn file_bytes(&self, file: FileId) -> Option<&[u8]> {
        self.handles
            .get(&file)
            .map(|&inode| self.inodes[inode].current.as_slice())
    }

    /// Makes `path` hold `bytes`, durably, whatever was there.
    pub fn plant(&mut self, path: &Path, bytes: &[u8]) {
        self.inodes.push(Inode {
            synced: bytes.to_vec(),
            current: bytes.to_vec(),
            ..Inode::default()
        });
        self.names.insert(path.to_owned(), self.inodes.len() - 1);
    }

    /// The files there are, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.names.keys().map(PathBuf::as_path)
    }

    fn execute(&mut self, op: &IoOp, mark: u64) -> io::Result<IoOutput> {
        match op {
            IoOp::Write {
                file,
                position,
                buffers,
            } => {
                let bytes = buffers.concat();
                let position = to_usize(*position)?;
                self.check_capacity(position + bytes.len())?;
                self.inode(*file)?.change(Change::Write { position, bytes });
            }
            IoOp::Sync { file } => self.inode(*file)?.sync_to(mark),
            IoOp::Read {
                file,
                position,
                len_bytes,
            } => {
                let mut bytes = vec![0; to_usize(u64::from(*len_bytes))?];
                let read = self.read_at(*file, *position, &mut bytes)?;
                bytes.truncate(read);
                return Ok(IoOutput::Read(Bytes::from(bytes)));
            }
            IoOp::Create { file, path } => {
                self.open(*file, path, OpenMode::CreateNew)?;
            }
            IoOp::Put { path, bytes } => self.put_file(path, bytes)?,
            IoOp::Rename { renames } => self.rename_existing(renames),
            IoOp::Remove { paths } => {
                for path in paths {
                    self.names.remove(path);
                }
            }
            IoOp::Close { file } => self.close(*file),
        }
        Ok(IoOutput::Done)
    }

    fn rename_existing(&mut self, renames: &[(PathBuf, PathBuf)]) {
        for (from, to) in renames {
            if let Some(inode) = self.names.remove(from) {
                self.names.insert(to.clone(), inode);
            }
        }
    }

    fn inode(&mut self, file: FileId) -> io::Result<&mut Inode> {
        let inode = *self.handles.get(&file).ok_or(ErrorKind::NotFound)?;
        Ok(&mut self.inodes[inode])
    }

    fn check_capacity(&self, end: usize) -> io::Result<()> {
        match self.capacity_bytes {
            Some(capacity) if end > capacity => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl Storage for MemStorage {
    fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let in_dir = self.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        Ok(in_dir
            .map(|(path, &inode)| DirEntry {
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                len_bytes: self.inodes[inode].current.len() as u64,
                is_dir: false,
            })
            .collect())
    }

    fn create_dir(&mut self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64> {
        let inode = match (mode, self.names.get(path)) {
            (OpenMode::Existing, Some(&inode)) => inode,
            (OpenMode::Existing, None) => return Err(ErrorKind::NotFound.into()),
            (OpenMode::CreateNew, Some(_)) => return Err(ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew, None) => {
                self.plant(path, &[]);
                self.inodes.len() - 1
            }
        };
        self.handles.insert(file, inode);
        Ok(self.inodes[inode].current.len() as u64)
    }

    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = &self.inode(file)?.current;
        let rest = bytes.get(to_usize(position)?..).unwrap_or(&[]);
        let read = rest.len().min(buf.len());
        buf[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()> {
        let position = to_usize(position)?;
        self.check_capacity(position + bytes.len())?;
        let bytes = bytes.to_vec();
        self.inode(file)?.change(Change::Write { position, bytes });
        Ok(())
    }

    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        let len = to_usize(len_bytes)?;
        self.inode(file)?.change(Change::SetLen(len));
        Ok(())
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        let inode = self.inode(file)?;
        inode.sync_to(inode.mark());
        Ok(())
    }

    fn close(&mut self, file: FileId) {
        self.handles.remove(&file);
    }

    fn read_file(&mut self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        let bytes = self.bytes(path).ok_or(ErrorKind::NotFound)?;
        if bytes.len() as u64 > max_bytes {
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.to_vec())
    }

    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.plant(path, bytes);
        Ok(())
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.names
            .remove(path)
            .map(drop)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.names.remove(from).ok_or(ErrorKind::NotFound)?;
        self.names.insert(to.to_owned(), inode);
        Ok(())
    }
}

fn to_usize(value: u64) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| ErrorKind::InvalidInput.into())
}
