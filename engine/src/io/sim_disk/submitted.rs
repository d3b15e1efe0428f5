//! The requests of the simulated disk: what each does when it is carried out, fails, or is cut short.
//!
//! Knows nothing of why a request fails. A request works on the file that was open when it was
//! submitted. Tested by the conformance suite and in `tests/sim_disk.rs`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::names::FileNumber;
use super::{Handle, SimDisk, not_open, to_usize};
use crate::io::{FileId, IoOp, IoOutput, IoRequest, OpenMode};

/// A request that has not completed.
#[derive(Clone, Debug)]
pub(super) struct Submitted {
    pub(super) request: IoRequest,
    /// What it works on: a close that is submitted later takes nothing from under it.
    pub(super) handle: Option<Handle>,
    /// What a sync covers.
    pub(super) mark: u64,
    pub(super) due_us: u64,
}

impl Submitted {
    /// What it does, for messages, as the executors put it.
    pub(super) fn describe(&self) -> String {
        let name = |file: &FileId| match &self.handle {
            Some(handle) => handle.path.display().to_string(),
            None => format!("file {} of log {}", file.number, file.log),
        };
        match &self.request.op {
            IoOp::Write { file, position, .. } => format!("write {} at {position}", name(file)),
            IoOp::Zero { file, position, .. } => format!("write zeros to {} at {position}", name(file)),
            IoOp::SetLen { file, len_bytes } => format!("cut {} to {len_bytes}", name(file)),
            IoOp::Sync { file } => format!("fdatasync {}", name(file)),
            IoOp::Read { file, position, .. } => format!("read {} at {position}", name(file)),
            IoOp::Create { path, .. } => format!("create {}", path.display()),
            IoOp::Open { path, .. } => format!("open {}", path.display()),
            IoOp::Put { path, .. } => format!("replace {}", path.display()),
            IoOp::Rename { renames } => {
                let renames = renames.iter();
                let renames = renames.map(|(from, to)| format!("{} to {}", from.display(), to.display()));
                format!("rename {}", renames.collect::<Vec<_>>().join(", "))
            }
            IoOp::Remove { paths } => {
                let paths = paths.iter().map(|path| path.display().to_string());
                format!("remove {}", paths.collect::<Vec<_>>().join(", "))
            }
            IoOp::Close { file } => format!("close {}", name(file)),
        }
    }

    /// The name of the first file it touches.
    pub(super) fn path(&self) -> &Path {
        let named: Option<&Path> = match &self.request.op {
            IoOp::Create { path, .. } | IoOp::Open { path, .. } | IoOp::Put { path, .. } => Some(path),
            IoOp::Rename { renames } => renames.first().map(|(from, _)| from.as_path()),
            IoOp::Remove { paths } => paths.first().map(PathBuf::as_path),
            _ => self.handle.as_ref().map(|handle| handle.path.as_path()),
        };
        named.unwrap_or(Path::new(""))
    }

    /// The file it works on.
    pub(super) fn file(&self, named: FileId) -> io::Result<FileNumber> {
        self.handle
            .as_ref()
            .map(|handle| handle.file)
            .ok_or_else(|| not_open(named))
    }
}

impl SimDisk {
    pub(super) fn execute(&mut self, submitted: &Submitted) -> io::Result<IoOutput> {
        match &submitted.request.op {
            IoOp::Write {
                file,
                position,
                buffers,
            } => self.write(submitted.file(*file)?, *position, &buffers.concat())?,
            IoOp::Zero {
                file,
                position,
                len_bytes,
            } => self.zero(submitted.file(*file)?, *position, *len_bytes as usize)?,
            IoOp::SetLen { file, len_bytes } => {
                let file = submitted.file(*file)?;
                self.cut(file, *len_bytes)?;
                let mark = self.inodes[file].mark();
                self.inodes[file].sync_to(mark);
            }
            IoOp::Sync { file } => self.inodes[submitted.file(*file)?].sync_to(submitted.mark),
            IoOp::Read {
                file,
                position,
                len_bytes,
            } => {
                let mut bytes = vec![0; to_usize(u64::from(*len_bytes))?];
                let read = self.read(submitted.file(*file)?, *position, &mut bytes);
                bytes.truncate(read);
                return Ok(IoOutput::Read(Bytes::from(bytes)));
            }
            IoOp::Create { file, path } => drop(self.open_file(*file, path, OpenMode::CreateNew)?),
            IoOp::Open { file, path } => drop(self.open_file(*file, path, OpenMode::Existing)?),
            IoOp::Put { path, bytes } => self.replace(path, bytes)?,
            IoOp::Rename { renames } => self.rename_existing(renames)?,
            IoOp::Remove { paths } => paths.iter().for_each(|path| self.names.set_absent(path)),
            IoOp::Close { file } => drop(submitted.file(*file)?),
        }
        Ok(IoOutput::Done)
    }

    /// What a failing request leaves behind.
    pub(super) fn fail(&mut self, submitted: &Submitted) {
        match &submitted.request.op {
            IoOp::Write {
                file,
                position,
                buffers,
            } => {
                let mut bytes = buffers.concat();
                bytes.truncate(self.random.index(bytes.len() + 1));
                // What fails here did not happen, which the fault model allows.
                drop(
                    submitted
                        .file(*file)
                        .and_then(|file| self.write(file, *position, &bytes)),
                );
            }
            // The room may have been allocated in part, and zeros written to a part of that.
            IoOp::Zero {
                file,
                position,
                len_bytes,
            } => {
                let written = self.random.index(*len_bytes as usize + 1);
                // What fails here did not happen, which the fault model allows.
                drop(
                    submitted
                        .file(*file)
                        .and_then(|file| self.zero(file, *position, written)),
                );
            }
            // The cut may have happened, and its sync have failed.
            IoOp::SetLen { file, len_bytes } => {
                if let Ok(file) = submitted.file(*file)
                    && self.random.chance(2)
                    && self.cut(file, *len_bytes).is_ok()
                {
                    let mark = self.inodes[file].mark();
                    self.inodes[file].fail_sync(mark, &mut self.random);
                }
            }
            IoOp::Sync { .. } => {
                if let Some(handle) = &submitted.handle {
                    self.inodes[handle.file].fail_sync(submitted.mark, &mut self.random);
                }
            }
            IoOp::Put { path, bytes } => self.fail_put(path, bytes),
            IoOp::Rename { renames } => {
                let renamed = self.random.index(renames.len() + 1);
                // What fails here did not happen, which the fault model allows.
                drop(self.rename_existing(&renames[..renamed]));
            }
            IoOp::Remove { paths } => {
                let removed = self.random.index(paths.len() + 1);
                for path in &paths[..removed] {
                    self.names.set_absent(path);
                }
            }
            IoOp::Read { .. } | IoOp::Create { .. } | IoOp::Open { .. } | IoOp::Close { .. } => {}
        }
    }

    /// A request that nobody hears of again: it happens, or fails half-way, or does not happen.
    pub(super) fn interrupt(&mut self, submitted: &Submitted) {
        match self.random.below(3) {
            0 => {}
            // A sync that is cut short has failed nobody: what it covered can be synced again.
            1 if matches!(submitted.request.op, IoOp::Sync { .. } | IoOp::SetLen { .. }) => {}
            1 => self.fail(submitted),
            // What fails here did not happen, which the fault model allows.
            _ => drop(self.execute(submitted)),
        }
        if let IoOp::Put { path, bytes } = &submitted.request.op
            && self.random.chance(4)
            && self.names.check_parent(path).is_ok()
        {
            let left = self.random.index(bytes.len() + 1);
            let mut temporary = OsString::from(path);
            temporary.push(".tmp");
            self.plant(Path::new(&temporary), &bytes[..left]);
        }
    }
}
