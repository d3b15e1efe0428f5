//! The directories of the simulated disk: which name leads to which file, and which names a power loss
//! may turn back.
//!
//! Knows nothing of the files' bytes. Invariant: every entry's parent is a directory. Tested in
//! `tests/sim_disk.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Number of an inode.
pub(super) type FileNumber = usize;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    files: BTreeMap<PathBuf, FileNumber>,
    dirs: BTreeSet<PathBuf>,
    /// What the medium says about names that were changed since their directory was synced.
    stale: BTreeMap<PathBuf, Option<FileNumber>>,
}

impl Names {
    pub(super) fn file(&self, path: &Path) -> Option<FileNumber> {
        self.files.get(path).copied()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, FileNumber)> {
        self.files.iter().map(|(path, &file)| (path.as_path(), file))
    }

    /// The names in `dir`; the number of a file, `None` for a directory.
    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<(&Path, Option<FileNumber>)>> {
        self.check_dir(dir)?;
        let files = self
            .files
            .iter()
            .map(|(path, &file)| (path.as_path(), Some(file)));
        let dirs = self.dirs.iter().map(|path| (path.as_path(), None));
        Ok(files
            .chain(dirs)
            .filter(|(path, _)| path.parent() == Some(dir))
            .collect())
    }

    /// The root and what has no parent are always there.
    pub(super) fn check_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.parent().is_none() || self.dirs.contains(dir) {
            Ok(())
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }

    pub(super) fn check_parent(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.check_dir(parent))
    }

    pub(super) fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.check_parent(dir)?;
        if self.files.contains_key(dir) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.dirs.insert(dir.to_owned());
        self.sync_dir(dir);
        Ok(())
    }

    pub(super) fn create_dirs(&mut self, dir: &Path) {
        for dir in dir.ancestors().filter(|dir| dir.parent().is_some()) {
            self.dirs.insert(dir.to_owned());
        }
    }

    /// Makes `path` lead to `file`, or to nothing; what it led to comes back if the power is lost
    /// before the directory is synced.
    pub(super) fn set(&mut self, path: &Path, file: Option<FileNumber>) {
        let before = match file {
            Some(file) => self.files.insert(path.to_owned(), file),
            None => self.files.remove(path),
        };
        self.stale.entry(path.to_owned()).or_insert(before);
    }

    /// Makes `path` lead to nothing, if it leads anywhere.
    pub(super) fn set_absent(&mut self, path: &Path) {
        if self.files.contains_key(path) {
            self.set(path, None);
        }
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        self.stale.retain(|path, _| path.parent() != Some(dir));
    }

    /// Durable on return.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_parent(to)?;
        if let Some(&file) = self.files.get(from) {
            if self.dirs.contains(to) {
                return Err(ErrorKind::IsADirectory.into());
            }
            self.files.remove(from);
            self.files.insert(to.to_owned(), file);
        } else if self.dirs.contains(from) {
            if self.files.contains_key(to) || self.dirs.contains(to) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            let moved = |path: PathBuf| match path.strip_prefix(from) {
                Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
                Ok(rest) => to.join(rest),
                Err(_) => path,
            };
            self.files = std::mem::take(&mut self.files)
                .into_iter()
                .map(|(path, file)| (moved(path), file))
                .collect();
            self.dirs = std::mem::take(&mut self.dirs).into_iter().map(moved).collect();
            self.stale = std::mem::take(&mut self.stale)
                .into_iter()
                .map(|(path, file)| (moved(path), file))
                .collect();
        } else {
            return Err(ErrorKind::NotFound.into());
        }
        for dir in [from.parent(), to.parent()].into_iter().flatten() {
            self.sync_dir(dir);
        }
        self.stale.remove(from);
        self.stale.remove(to);
        Ok(())
    }

    /// Power loss: `comes_back` decides, for each name that was changed and not synced, whether it is
    /// as it was.
    pub(super) fn crash(&mut self, mut comes_back: impl FnMut() -> bool) {
        for (path, before) in std::mem::take(&mut self.stale) {
            if !comes_back() {
                continue;
            }
            match before {
                Some(file) => self.files.insert(path, file),
                None => self.files.remove(&path),
            };
        }
    }
}
