//! The repair of the logs of a stopped broker: what recovery finds in each, and what is done about it.
//!
//! Owns the choice of the logs, the lock, and the recovery points, which are lowered to where a log
//! now ends. What is sound is for the engine to say. Tested in `tests/cli_repair.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use ringlog_engine::config::LogConfig;
use ringlog_engine::log::checkpoint::TopicPartition;
use ringlog_engine::log::{CloseError, Cut, Log, OpenError, OpenOptions};
use ringlog_engine::types::{LogId, Offset};

use super::control::wall_clock;
use super::data_dir::{DataDir, DataDirError, LastRun, parse_partition_dir};
use super::repair_storage::{Action, RepairStorage};

/// What was found in one log, and done or to be done.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The log's directory.
    pub(crate) dir: PathBuf,
    /// Why a broker does not open it; none where it does.
    pub(crate) refused: Option<OpenError>,
    /// Everything from the first to before the second is sound.
    pub(crate) sound: (Offset, Offset),
    /// What lies at the end of that, unless it is the end.
    pub(crate) cut: Option<Cut>,
    pub(crate) actions: Vec<Action>,
    /// Where what is taken out goes.
    pub(crate) side: PathBuf,
}

/// Why a repair was not begun, or not finished.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// A broker uses the data directory.
    #[error("{} is in use by another process; stop that broker first", .0.display())]
    InUse(PathBuf),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// There is no log.
    #[error("{} is neither a data directory nor a partition's directory within one", .0.display())]
    NoLogs(PathBuf),
    /// The log cannot be mended.
    #[error("{source}; this cannot be mended")]
    Log {
        /// Why.
        source: OpenError,
    },
    /// The log was mended and not stopped cleanly; a broker recovers it.
    #[error(transparent)]
    Close(#[from] CloseError),
}

/// The logs of a data directory that no broker uses, or one of them.
#[derive(Debug)]
pub(crate) struct Repair {
    dir: DataDir,
    last_run: LastRun,
    /// In order.
    pub(crate) logs: Vec<TopicPartition>,
}

impl Repair {
    /// Locks the data directory that `path` is, or that it is a partition's directory of.
    pub(crate) fn open(path: &Path) -> Result<Self, RepairError> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let named = |(topic, partition): (&str, i32)| TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        let holds_a_log = fs::read_dir(&path).is_ok_and(|mut entries| {
            entries.any(|e| e.is_ok_and(|e| is_of_a_log(&e.file_name().to_string_lossy())))
        });
        let (root, one) = match parse_partition_dir(&name) {
            Some(found) if holds_a_log => (path.parent().unwrap_or(&path), Some(named(found))),
            _ if path.is_dir() => (path.as_path(), None),
            _ => return Err(RepairError::NoLogs(path)),
        };
        let dir = DataDir::open_to_repair(root).map_err(|error| match error {
            DataDirError::Locked(path) => RepairError::InUse(path),
            error => error.into(),
        })?;
        let logs = match one {
            Some(log) => vec![log],
            None => {
                let found = dir.partitions()?.into_iter();
                found
                    .map(|found| named((&found.topic, found.partition)))
                    .collect()
            }
        };
        if logs.is_empty() {
            return Err(RepairError::NoLogs(path));
        }
        let last_run = dir.last_run();
        Ok(Self { dir, last_run, logs })
    }

    /// Looks at a log and changes nothing, or mends it.
    pub(crate) fn run(&mut self, log: &TopicPartition, apply: bool) -> Result<Finding, RepairError> {
        let dir = self.dir.partition_path(&log.topic, log.partition);
        let lookup = |offsets: &super::data_dir::Offsets| offsets.get(log).copied().unwrap_or(Offset(0));
        let options = OpenOptions {
            recovery_point: lookup(&self.last_run.recovery_points),
            log_start_offset: lookup(&self.last_run.log_starts),
            clean_shutdown: self.last_run.clean,
            now: wall_clock(),
        };
        let mut show = RepairStorage::new(None);
        let opened = Log::open(&dir, LogId(0), LogConfig::default(), options, &mut show);
        let refused = opened.err();
        let side = self.side_dir(log);
        let mut storage = RepairStorage::new(apply.then(|| side.clone()));
        let (mut opened, report) = Log::repair(&dir, LogId(0), LogConfig::default(), options, &mut storage)
            .map_err(|source| RepairError::Log { source })?;
        let sound = (opened.log_start_offset(), opened.log_end_offset());
        self.move_orphans(&dir, &mut storage)?;
        if apply {
            opened.close(&mut storage)?;
            let recovery_point = options.recovery_point.min(sound.1);
            if recovery_point < options.recovery_point {
                self.last_run.recovery_points.insert(log.clone(), recovery_point);
                self.dir.write_recovery_points(&self.last_run.recovery_points)?;
            }
        }
        Ok(Finding {
            dir,
            refused,
            sound,
            cut: report.cut,
            actions: storage.actions,
            side,
        })
    }

    /// Beside the logs, and no log by its name.
    fn side_dir(&self, log: &TopicPartition) -> PathBuf {
        let name = format!("{}-{}.repaired", log.topic, log.partition);
        self.dir.path().join(name)
    }

    /// Indexes whose segment is not there mean nothing any more.
    fn move_orphans(&self, dir: &Path, storage: &mut RepairStorage) -> Result<(), RepairError> {
        let failed = |source| RepairError::Log {
            source: OpenError::Io {
                operation: "move aside an index in",
                path: dir.to_owned(),
                source,
            },
        };
        use ringlog_engine::io::Storage as _;
        for entry in storage.list(dir).map_err(failed)? {
            let path = dir.join(&entry.name);
            let index = matches!(
                path.extension().and_then(|extension| extension.to_str()),
                Some("index" | "timeindex" | "txnindex")
            );
            let known = storage.actions.contains(&Action::MoveAside(path.clone()));
            if index && !known && !path.with_extension("log").exists() {
                storage.remove_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn is_of_a_log(name: &str) -> bool {
    name == "partition.metadata"
        || name
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extension == "log")
}
