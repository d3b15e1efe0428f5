//! The data directory as a whole: who owns it, whose it is, and how it was left.
//!
//! Owns the lock, `meta.properties`, the clean-shutdown marker, the checkpoint files and the names
//! of partition directories; the files of one log belong to the engine. Layout and files as Apache
//! Kafka's, so that either can open what the other has left.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use ringlog_engine::log::checkpoint::{TopicPartition, decode_leader_epochs, decode_offsets, encode_offsets};
use ringlog_engine::log::partition_metadata::PartitionMetadata;
use ringlog_engine::types::{LeaderEpoch, Offset};
use ringlog_replication::types::TopicId;

use crate::metadata::{random_bytes, replace_file};

const LOCK: &str = ".lock";
const META_PROPERTIES: &str = "meta.properties";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const FIRST_DIRTY: &str = "cleaner-offset-checkpoint";
const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
const PARTITION_METADATA: &str = "partition.metadata";
const CREATE_DIR: &str = "create the data directory";
/// Directories renamed to this are being deleted.
const DELETED_SUFFIX: &str = "-delete";

/// An offset for each log of the directory.
pub(crate) type Offsets = BTreeMap<TopicPartition, Offset>;

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    cluster_id: String,
    /// It had no `meta.properties`.
    is_new: bool,
    /// Held for as long as the process uses the directory.
    lock: File,
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Not left to the closing of the file: a process that is just being started from another thread
        // holds a copy of it for a moment. There is nothing to do about an error; the file is closed next.
        let _ = self.lock.unlock();
    }
}

/// How the last run left the directory.
#[derive(Debug)]
pub(crate) struct LastRun {
    /// It stopped properly: logs need no scan.
    pub(crate) clean: bool,
    pub(crate) recovery_points: Offsets,
    pub(crate) log_starts: Offsets,
    pub(crate) first_dirty: Offsets,
}

/// What is stored of every log while the broker runs.
#[derive(Debug, Default)]
pub(crate) struct CheckpointOffsets {
    pub(crate) recovery_points: Offsets,
    pub(crate) log_starts: Offsets,
    pub(crate) high_watermarks: Offsets,
    /// Of compacted logs only.
    pub(crate) first_dirty: Offsets,
}

/// A partition's directory that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundPartition {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) topic_id: Option<TopicId>,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process uses it.
    #[error("{} is in use by another process; stop it, or choose another directory with --data", .0.display())]
    Locked(PathBuf),
    /// The file system refused.
    #[error("cannot {action} {}: {source}{}", path.display(), remedy(action, source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// `meta.properties` names another broker.
    #[error("{} belongs to node {found}, this broker is node {expected}; choose another directory or set node.id={found}", path.display())]
    OtherNode {
        /// The data directory.
        path: PathBuf,
        /// Whose it is.
        found: i32,
        /// Who wants it.
        expected: i32,
    },
    /// A file of the directory is not readable.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

fn remedy(action: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        // All directories above it are created, too: this file system lets nobody do that.
        io::ErrorKind::NotFound if action == CREATE_DIR => {
            "; directories cannot be created there, choose another with --data"
        }
        io::ErrorKind::PermissionDenied => "; make it writable for this user, or choose another with --data",
        io::ErrorKind::StorageFull => "; free some space, or choose another directory with --data",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; --data must name a directory",
        io::ErrorKind::ReadOnlyFilesystem => "; the file system is mounted read-only",
        _ => "",
    }
}

/// The error of an `action` on `path`.
fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError + use<> {
    let path = path.to_owned();
    move |source| DataDirError::Io { action, path, source }
}

impl DataDir {
    /// Creates the directory if need be, locks it, and checks whose it is.
    pub(crate) fn open(path: &Path, node_id: i32) -> Result<Self, DataDirError> {
        fs::create_dir_all(path).map_err(failed(CREATE_DIR, path))?;
        let lock = lock(path)?;
        let meta = path.join(META_PROPERTIES);
        let (cluster_id, is_new) = match fs::read_to_string(&meta) {
            Ok(text) => (check_meta(path, &meta, &text, node_id)?, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let random = || {
                    random_bytes()
                        .map(|bytes| TopicId(bytes).to_string())
                        .map_err(failed("find random ids for", &meta))
                };
                let (cluster_id, directory_id) = (random()?, random()?);
                let text = format!(
                    "version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n"
                );
                replace_file(&meta, text.as_bytes()).map_err(failed("write", &meta))?;
                (cluster_id, true)
            }
            Err(source) => return Err(failed("read", &meta)(source)),
        };
        Ok(Self {
            path: path.to_owned(),
            cluster_id,
            is_new,
            lock,
        })
    }

    /// Locks a directory that is there, whosever it is: to mend it, not to serve it.
    pub(crate) fn open_to_repair(path: &Path) -> Result<Self, DataDirError> {
        Ok(Self {
            path: path.to_owned(),
            cluster_id: String::new(),
            is_new: false,
            lock: lock(path)?,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has only now become a data directory; logs may have been put there before.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Reads how the last run ended and forgets that it ended well: from now on only a proper stop
    /// says so again.
    pub(crate) fn begin_run(&self) -> Result<LastRun, DataDirError> {
        let marker = self.path.join(CLEAN_SHUTDOWN);
        let clean = match fs::remove_file(&marker) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(source) => return Err(failed("remove", &marker)(source)),
        };
        self.sync()?;
        Ok(LastRun {
            clean,
            ..self.last_run()
        })
    }

    /// Reads how the last run ended.
    pub(crate) fn last_run(&self) -> LastRun {
        LastRun {
            clean: self.path.join(CLEAN_SHUTDOWN).exists(),
            recovery_points: self.read_checkpoint(RECOVERY_POINTS),
            log_starts: self.read_checkpoint(LOG_STARTS),
            first_dirty: self.read_checkpoint(FIRST_DIRTY),
        }
    }

    /// Stores the positions that recovery starts from, and below which nothing may be missing.
    pub(crate) fn write_recovery_points(&self, recovery_points: &Offsets) -> Result<(), DataDirError> {
        self.write_checkpoint(RECOVERY_POINTS, recovery_points)
    }

    fn write_checkpoint(&self, name: &str, offsets: &Offsets) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        replace_file(&path, encode_offsets(offsets).as_bytes()).map_err(failed("write", &path))
    }

    /// A checkpoint that cannot be read is distrusted: every log is then scanned from its start.
    fn read_checkpoint(&self, name: &str) -> Offsets {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => decode_offsets(&bytes).unwrap_or_else(|error| {
                tracing::warn!(file = %path.display(), %error, "checkpoint not readable, recovering without it");
                Offsets::new()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(file = %path.display(), %error, "checkpoint not readable, recovering without it");
                }
                Offsets::new()
            }
        }
    }

    /// Stores the offsets of every log.
    pub(crate) fn write_checkpoints(&self, offsets: &CheckpointOffsets) -> Result<(), DataDirError> {
        self.write_recovery_points(&offsets.recovery_points)?;
        self.write_checkpoint(LOG_STARTS, &offsets.log_starts)?;
        self.write_checkpoint(HIGH_WATERMARKS, &offsets.high_watermarks)?;
        self.write_checkpoint(FIRST_DIRTY, &offsets.first_dirty)
    }

    /// Says that every log was closed properly.
    pub(crate) fn end_run(&self) -> Result<(), DataDirError> {
        let marker = self.path.join(CLEAN_SHUTDOWN);
        replace_file(&marker, b"{\"version\":0,\"brokerEpoch\":-1}").map_err(failed("write", &marker))
    }

    /// The directory of one partition.
    pub(crate) fn partition_path(&self, topic: &str, partition: i32) -> PathBuf {
        self.path.join(format!("{topic}-{partition}"))
    }

    /// Creates a partition's directory, if it is not there, with its `partition.metadata`, durably. One
    /// that names another topic is refused, and so is a missing one of which records up to `flushed` were flushed.
    pub(crate) fn create_partition(
        &self,
        topic: &str,
        partition: i32,
        id: TopicId,
        flushed: Offset,
    ) -> Result<PathBuf, DataDirError> {
        let dir = self.partition_path(topic, partition);
        if flushed > Offset(0) && !dir.exists() {
            return Err(DataDirError::Format {
                path: dir,
                problem: format!(
                    "the directory is missing, and offsets up to {flushed} were in it; restore it, or delete the topic"
                ),
            });
        }
        let path = dir.join(PARTITION_METADATA);
        let found = fs::read(&path).ok();
        match found.and_then(|bytes| PartitionMetadata::decode(&bytes).ok()) {
            // What is there stays: a start with many logs would wait for the disk once for each.
            Some(found) if found.topic_id == id.0 => return Ok(dir),
            Some(found) => {
                let found = TopicId(found.topic_id);
                return Err(DataDirError::Format {
                    path,
                    problem: format!(
                        "the directory belongs to a topic with the id {found}, not to {topic} with the id {id}; \
                         move it away, or remove this file if the records are the topic's"
                    ),
                });
            }
            None => {}
        }
        match fs::create_dir(&dir) {
            Ok(()) => {}
            // From an earlier run: the caller knows the topic to be its own.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed("create", &dir)(source)),
        }
        let metadata = PartitionMetadata { topic_id: id.0 }.encode();
        replace_file(&path, metadata.as_bytes()).map_err(failed("write", &path))?;
        self.sync()?;
        Ok(dir)
    }

    /// Renames a partition's directory out of the way, for the control thread to remove.
    pub(crate) fn retire_partition(&self, topic: &str, partition: i32) -> Result<(), DataDirError> {
        let dir = self.partition_path(topic, partition);
        let unique = random_bytes().map_err(failed("find a random name for", &dir))?;
        let unique = u128::from_be_bytes(unique);
        // Within the 255 bytes a file name may have, whatever the topic's name.
        let stem: String = topic.chars().take(200).collect();
        let retired = self
            .path
            .join(format!("{stem}-{partition}.{unique:032x}{DELETED_SUFFIX}"));
        match fs::rename(&dir, &retired) {
            Ok(()) => self.sync(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(failed("rename", &dir)(source)),
        }
    }

    /// The directories that wait for their removal.
    pub(crate) fn deleted(&self) -> Result<Vec<PathBuf>, DataDirError> {
        Ok(self
            .entries()?
            .into_iter()
            .filter(|path| name_of(path).ends_with(DELETED_SUFFIX))
            .collect())
    }

    /// All partition directories, known by their `partition.metadata` or a segment. Other entries are
    /// left alone.
    pub(crate) fn partitions(&self) -> Result<Vec<FoundPartition>, DataDirError> {
        let mut found = Vec::new();
        for path in self.entries()? {
            let name = name_of(&path);
            let Some((topic, partition)) = parse_partition_dir(&name) else {
                continue;
            };
            if !path.is_dir() {
                continue;
            }
            let metadata = fs::read(path.join(PARTITION_METADATA)).ok();
            let topic_id = metadata.and_then(|bytes| PartitionMetadata::decode(&bytes).ok());
            // Someone else's directory may be called so.
            if topic_id.is_none() && !holds_segments(&path) {
                continue;
            }
            found.push(FoundPartition {
                topic: topic.to_owned(),
                partition,
                topic_id: topic_id.map(|metadata| TopicId(metadata.topic_id)),
            });
        }
        Ok(found)
    }

    fn entries(&self) -> Result<Vec<PathBuf>, DataDirError> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            paths.push(entry.map_err(failed("list", &self.path))?.path());
        }
        paths.sort();
        Ok(paths)
    }

    fn sync(&self) -> Result<(), DataDirError> {
        File::open(&self.path)
            .and_then(|dir| dir.sync_all())
            .map_err(failed("sync", &self.path))
    }
}

/// The newest leader epoch that a partition's directory knows of, -1 if none.
pub(crate) fn last_leader_epoch(dir: &Path) -> LeaderEpoch {
    let bytes = fs::read(dir.join(LEADER_EPOCHS)).unwrap_or_default();
    let latest = decode_leader_epochs(&bytes).ok().and_then(|cache| cache.latest());
    latest.map_or(LeaderEpoch::NONE, |entry| entry.epoch)
}

/// Takes the directory for this process.
fn lock(path: &Path) -> Result<File, DataDirError> {
    let lock_path = path.join(LOCK);
    let lock = File::create(&lock_path).map_err(failed("create", &lock_path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(DataDirError::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed("lock", &lock_path)(source)),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn holds_segments(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| Path::new(&entry.file_name()).extension() == Some("log".as_ref()))
    })
}

/// Splits `topic-3`; `None` for any other name, a topic that is being deleted among them.
pub(crate) fn parse_partition_dir(name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let valid = super::topic_name::check(topic).is_ok() && partition.bytes().all(|b| b.is_ascii_digit());
    valid.then_some(topic).zip(partition.parse().ok())
}

fn check_meta(dir: &Path, meta: &Path, text: &str, node_id: i32) -> Result<String, DataDirError> {
    let pairs: BTreeMap<_, _> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let found = pairs.get("node.id").or_else(|| pairs.get("broker.id"));
    if let Some(found) = found.and_then(|id| id.parse().ok()).filter(|id| *id != node_id) {
        return Err(DataDirError::OtherNode {
            path: dir.to_owned(),
            found,
            expected: node_id,
        });
    }
    let id = pairs
        .get("cluster.id")
        .filter(|id| !id.is_empty())
        .ok_or_else(|| DataDirError::Format {
            path: meta.to_owned(),
            problem: "cluster.id is missing; restore the file from a copy".to_owned(),
        })?;
    Ok((*id).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_user_of_a_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path(), 1).unwrap();
        assert!(matches!(
            DataDir::open(dir.path(), 1),
            Err(DataDirError::Locked(_))
        ));
        let cluster_id = first.cluster_id().to_owned();
        drop(first);
        assert_eq!(DataDir::open(dir.path(), 1).unwrap().cluster_id(), cluster_id);
    }

    #[test]
    fn another_nodes_directory_is_refused_and_the_remedy_named() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), 1).unwrap());
        let error = DataDir::open(dir.path(), 2).unwrap_err();
        assert!(error.to_string().contains("node.id=1"), "{error}");
    }

    #[test]
    fn only_a_proper_stop_counts_as_clean() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), 1).unwrap();
        assert!(!data.begin_run().unwrap().clean);
        data.end_run().unwrap();
        assert!(data.begin_run().unwrap().clean);
        assert!(!data.begin_run().unwrap().clean);
    }

    #[test]
    fn partition_directories_are_told_from_others() {
        assert_eq!(parse_partition_dir("a-b-12"), Some(("a-b", 12)));
        for other in ["a", "a-", "a-1.0f-delete", "-1", "a b-1", "a-99999999999"] {
            assert_eq!(parse_partition_dir(other), None, "{other}");
        }
    }

    #[test]
    fn a_retired_partition_waits_for_removal_and_is_no_partition() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), 1).unwrap();
        data.create_partition("t", 0, TopicId([7; 16]), Offset(0))
            .unwrap();
        let found = FoundPartition {
            topic: "t".into(),
            partition: 0,
            topic_id: Some(TopicId([7; 16])),
        };
        assert_eq!(data.partitions().unwrap(), [found]);
        data.retire_partition("t", 0).unwrap();
        assert_eq!(data.partitions().unwrap(), []);
        assert_eq!(data.deleted().unwrap().len(), 1);
    }
}
