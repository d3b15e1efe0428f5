//! A directory of logs as a whole: who uses it, how it was left, what of it waits for removal.
//!
//! Owns the lock, the clean-shutdown marker, the checkpoint files and the renaming of what is deleted; the files of one
//! log belong to [`log`](crate::log). Names and contents are Apache Kafka's. Knows no threads and no names of logs: which
//! directory is a log's is its owner's to say. Tested below and, through the engine, in `tests/engine/open.rs`.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::log::checkpoint::{CheckpointError, TopicPartition, decode_offsets, encode_offsets};
use crate::rt::file_table::{put_file, sync_dir};
use crate::types::Offset;

const LOCK: &str = ".lock";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Directories renamed to this are being deleted.
pub(crate) const DELETED_SUFFIX: &str = "-delete";
/// A name may have 255 bytes; the rest is for what a deletion appends.
pub(crate) const RETIRED_STEM_BYTES_MAX: usize = 200;

/// An offset for each log of the directory.
pub type Offsets = BTreeMap<TopicPartition, Offset>;

/// The checkpoint files: each holds one offset for each log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetCheckpoint {
    /// `recovery-point-offset-checkpoint`: everything below is on stable storage.
    RecoveryPoint,
    /// `log-start-offset-checkpoint`: the first readable offset.
    LogStart,
    /// `replication-offset-checkpoint`: everything below is committed.
    HighWatermark,
    /// `cleaner-offset-checkpoint`: everything below is compacted.
    FirstDirty,
}

impl OffsetCheckpoint {
    fn file_name(self) -> &'static str {
        match self {
            Self::RecoveryPoint => "recovery-point-offset-checkpoint",
            Self::LogStart => "log-start-offset-checkpoint",
            Self::HighWatermark => "replication-offset-checkpoint",
            Self::FirstDirty => "cleaner-offset-checkpoint",
        }
    }
}

/// How the last run left the directory.
#[derive(Debug)]
pub struct LastRun {
    /// It stopped properly: logs need no scan.
    pub clean: bool,
    /// What each log had flushed, as last recorded.
    pub recovery_points: Offsets,
    /// Where each log began, as last recorded.
    pub log_starts: Offsets,
    /// Below, each log was compacted.
    pub first_dirty: Offsets,
    /// Checkpoints that could not be read: logs are scanned from their start for want of them.
    pub distrusted: Vec<DistrustedCheckpoint>,
}

/// A checkpoint file that is not used.
#[derive(Debug)]
pub struct DistrustedCheckpoint {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: DistrustReason,
}

/// Why a checkpoint file is not used.
#[derive(Debug, thiserror::Error)]
pub enum DistrustReason {
    /// It could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not say what it should.
    #[error(transparent)]
    Format(#[from] CheckpointError),
}

/// Why a directory of logs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process uses it, or this one already does.
    #[error("{} is in use by another process; stop it, or choose another directory", .0.display())]
    Locked(PathBuf),
    /// The file system refused.
    #[error("{}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl DataDirError {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::Io { path, source }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; make it writable for this user, or choose another directory",
        ErrorKind::StorageFull => "; free some space, or choose another directory",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "; a directory must be named",
        ErrorKind::ReadOnlyFilesystem => "; the file system is mounted read-only",
        _ => "",
    }
}

/// A locked directory of logs.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Held for as long as the process uses the directory; the kernel lets go of it when the process ends.
    lock: File,
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Not left to the closing of the file: a process that is just being started from another thread
        // holds a copy of it for a moment. There is nothing to do about an error; the file is closed next.
        let _ = self.lock.unlock();
    }
}

impl DataDir {
    /// Creates the directory if need be and locks it. Changes nothing else in it.
    ///
    /// # Errors
    ///
    /// [`DataDirError::Locked`] where it is in use.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        fs::create_dir_all(path).map_err(DataDirError::io(path))?;
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(DataDirError::io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                lock,
            }),
            Err(TryLockError::WouldBlock) => Err(DataDirError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(DataDirError::Io {
                path: lock_path,
                source,
            }),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads how the last run ended and forgets that it ended well: from now on only a proper stop
    /// says so again.
    ///
    /// # Errors
    ///
    /// Where the marker cannot be removed durably.
    pub fn begin_run(&self) -> Result<LastRun, DataDirError> {
        let marker = self.path.join(CLEAN_SHUTDOWN);
        let clean = match fs::remove_file(&marker) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(source) => return Err(DataDirError::Io { path: marker, source }),
        };
        self.sync()?;
        let mut distrusted = Vec::new();
        let mut read = |checkpoint| match self.read_checkpoint(checkpoint) {
            Ok(offsets) => offsets,
            Err(reason) => {
                distrusted.push(reason);
                Offsets::new()
            }
        };
        let recovery_points = read(OffsetCheckpoint::RecoveryPoint);
        let log_starts = read(OffsetCheckpoint::LogStart);
        let first_dirty = read(OffsetCheckpoint::FirstDirty);
        Ok(LastRun {
            clean,
            recovery_points,
            log_starts,
            first_dirty,
            distrusted,
        })
    }

    fn read_checkpoint(&self, checkpoint: OffsetCheckpoint) -> Result<Offsets, DistrustedCheckpoint> {
        let path = self.path.join(checkpoint.file_name());
        let offsets = match fs::read(&path) {
            Ok(bytes) => decode_offsets(&bytes).map_err(DistrustReason::from),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Offsets::new()),
            Err(error) => Err(error.into()),
        };
        offsets.map_err(|reason| DistrustedCheckpoint { path, reason })
    }

    /// Replaces one checkpoint file.
    ///
    /// # Errors
    ///
    /// The operating system's; the old file, or none, is there then.
    pub fn write_checkpoint(
        &self,
        checkpoint: OffsetCheckpoint,
        offsets: &Offsets,
    ) -> Result<(), DataDirError> {
        let path = self.path.join(checkpoint.file_name());
        put_file(&path, encode_offsets(offsets).as_bytes()).map_err(DataDirError::io(path))
    }

    /// Says that every log was closed properly.
    ///
    /// # Errors
    ///
    /// The operating system's; the next start then scans.
    pub fn end_run(&self) -> Result<(), DataDirError> {
        let marker = self.path.join(CLEAN_SHUTDOWN);
        put_file(&marker, b"{\"version\":0,\"brokerEpoch\":-1}").map_err(DataDirError::io(marker))
    }

    /// Renames a log's directory, `name`, out of the way, durably; nothing to do where there is none.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn retire(&self, name: &str) -> Result<(), DataDirError> {
        let dir = self.path.join(name);
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let stem: String = name.chars().take(RETIRED_STEM_BYTES_MAX).collect();
        let retired = self.path.join(format!("{stem}.{nanos:032x}{DELETED_SUFFIX}"));
        match fs::rename(&dir, &retired) {
            Ok(()) => self.sync(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(DataDirError::Io { path: dir, source }),
        }
    }

    /// The directories that wait for their removal.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn retired(&self) -> Result<Vec<PathBuf>, DataDirError> {
        let mut names = self.directories()?;
        names.retain(|name| name.ends_with(DELETED_SUFFIX));
        Ok(names.iter().map(|name| self.path.join(name)).collect())
    }

    /// The names of all directories within, sorted; those that are not UTF-8 are left out.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn directories(&self) -> Result<Vec<String>, DataDirError> {
        let io = || DataDirError::io(&self.path);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io())? {
            let entry = entry.map_err(io())?;
            if entry.path().is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes the entries of the directory durable.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn sync(&self) -> Result<(), DataDirError> {
        sync_dir(&self.path).map_err(DataDirError::io(&self.path))
    }
}

/// Whether there is a file of records in `dir`.
#[must_use]
pub fn holds_segments(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| Path::new(&entry.file_name()).extension() == Some("log".as_ref()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_user_of_a_directory_is_refused_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(DataDirError::Locked(_))));
        // As a process has it that is just being started from another thread.
        let copy = first.lock.try_clone().unwrap();
        drop(first);
        DataDir::open(dir.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn only_a_proper_stop_counts_as_clean() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        assert!(!data.begin_run().unwrap().clean);
        data.end_run().unwrap();
        assert!(data.begin_run().unwrap().clean);
        assert!(!data.begin_run().unwrap().clean);
    }

    #[test]
    fn a_checkpoint_comes_back_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let log = TopicPartition {
            topic: "orders".to_owned(),
            partition: 3,
        };
        let offsets = Offsets::from([(log, Offset(7))]);
        data.write_checkpoint(OffsetCheckpoint::RecoveryPoint, &offsets)
            .unwrap();
        assert_eq!(data.begin_run().unwrap().recovery_points, offsets);
        let path = dir.path().join("recovery-point-offset-checkpoint");
        fs::write(&path, b"nonsense").unwrap();
        let run = data.begin_run().unwrap();
        assert!(run.recovery_points.is_empty());
        assert_eq!(run.distrusted[0].path, path);
    }

    #[test]
    fn a_retired_directory_waits_for_its_removal() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        data.retire("a").unwrap();
        data.retire("a").unwrap();
        assert_eq!(data.retired().unwrap().len(), 1);
        assert!(!dir.path().join("a").exists());
    }
}
