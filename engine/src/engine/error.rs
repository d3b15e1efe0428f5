//! One error enum for each operation of the engine; every variant says what was refused and what to do.
//!
//! Three classes: the caller's (try another argument), the environment's (disk, permissions), and [`Gone`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::log_name::LogNameError;
use crate::data_dir::DataDirError;
use crate::io::IoError;
use crate::log::{self, CloseError, Defect, OpenError, Poison};
use crate::record::{BuildError, RecordError};
use crate::rt::ShardStartError;
use crate::types::Offset;

/// There is nothing to ask any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Gone {
    /// The log has been deleted; ask the engine for it anew.
    #[error("the log has been deleted")]
    Deleted,
    /// The engine has been closed, or dropped; open it anew. What the call was to do may or may not have been done.
    #[error("the engine has been closed")]
    Closed,
}

/// Why an engine does not open.
#[derive(Debug, Error)]
pub enum EngineOpenError {
    /// A setting is out of its bounds, which its documentation names.
    #[error("{setting} is out of bounds")]
    Config {
        /// The field of [`EngineConfig`](super::EngineConfig).
        setting: &'static str,
    },
    /// The directory is in use or cannot be used; the message says what to do.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A thread could not be started; the message says what to do.
    #[error(transparent)]
    Shard(#[from] ShardStartError),
    /// The thread that records checkpoints could not be started; raise the limit of threads.
    #[error("cannot start the engine's checkpoint thread: {0}")]
    Thread(#[source] io::Error),
}

/// Why a log does not open. The engine's other logs are not concerned.
#[derive(Debug, Error)]
pub enum OpenLogError {
    /// It cannot be called so.
    #[error(transparent)]
    Name(#[from] LogNameError),
    /// Its files cannot be opened, or what had been flushed is damaged; the message names file and place. Nothing below
    /// what was flushed has been changed. Restore the file, or delete the log.
    #[error("log {name}: {source}")]
    Open {
        /// The log.
        name: String,
        /// Why.
        source: Arc<OpenError>,
    },
    /// The engine has been closed.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Why records were not appended, or why it is not known whether they were.
#[derive(Debug, Error)]
pub enum AppendError {
    /// The records make no batch. Nothing was appended.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The log does not take the batch; the variant within says why and whether a later try may succeed. Nothing was
    /// appended.
    #[error(transparent)]
    Refused(#[from] log::AppendError),
    /// The log's buffer or its shard's mailbox is full (`try_` calls only). Nothing was appended: try again later, or use
    /// the call that waits.
    #[error("there is no room for the batch at present")]
    NoRoom,
    /// Storage failed after the batch was taken. It may be there after the engine is opened anew, or not; whole if at all.
    /// The log is read-only until then.
    #[error("storage failed while the batch was under way: {0}")]
    Storage(#[from] Poison),
    /// The log or the engine is gone. Where it was the engine, the batch may be there after it is opened anew, or not.
    #[error(transparent)]
    Gone(#[from] Gone),
}

impl AppendError {
    /// Whether the batch may be in the log in spite of the error.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Storage(_) | Self::Gone(Gone::Closed))
    }
}

/// Why a flush failed.
#[derive(Debug, Error)]
pub enum FlushError {
    /// Storage failed. What was not flushed before may be lost at a crash of the kernel; the log is read-only until the
    /// engine is opened anew.
    #[error(transparent)]
    Storage(#[from] Poison),
    /// The log or the engine is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Why a reader ends before its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// There is no such offset, or no more: it lies below the log start or above the end. Make a reader from an
    /// offset within.
    #[error(transparent)]
    OutOfRange(#[from] log::ReadError),
    /// What lies there is not what was written. Restore the file, or read on from an offset beyond the batch.
    #[error("{} is damaged at position {position} (offset {offset})", path.display())]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// Bytes from its start.
        position: u64,
        /// The offset expected there.
        offset: Offset,
        /// What lies there.
        #[source]
        source: Defect,
    },
    /// The records of a batch cannot be read, as where their codec is not compiled in (see the crate's features).
    #[error("a batch cannot be looked into: {0}")]
    Record(#[from] RecordError),
    /// The operating system cannot read the file; the message names it.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The reader has read everything there is, and nothing more will come: a write or a sync has failed. Open the engine
    /// anew.
    #[error("the log's end: {0}")]
    Poisoned(#[from] Poison),
    /// The log or the engine is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Why a log was not truncated.
#[derive(Debug, Error)]
pub enum TruncateError {
    /// The offset lies below the log start or above what has been written. Nothing was changed.
    #[error(transparent)]
    OutOfRange(#[from] log::ReadError),
    /// The checkpoint files could not be written. A truncated suffix is as it was; of a truncated prefix a restart may
    /// bring back what it removed.
    #[error("the truncation was not recorded: {0}")]
    Checkpoint(#[from] Arc<DataDirError>),
    /// The disk is full, or the process may open no further file, and appends wait. Nothing was changed: make room and try again.
    #[error("the disk is full, or too many files are open")]
    StorageFull,
    /// Storage had failed before: nothing was changed. Or it failed half-way. The log must be opened anew with its engine.
    #[error(transparent)]
    Log(#[from] log::TruncateError),
    /// The log or the engine is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Why a log was not deleted.
#[derive(Debug, Error)]
pub enum DeleteLogError {
    /// No log can be called so.
    #[error(transparent)]
    Name(#[from] LogNameError),
    /// The directory could not be renamed; the log is closed, and back when the engine is opened anew.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The engine has been closed.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Why an engine did not close cleanly. It is closed all the same: what was flushed is safe, and the next open verifies
/// the rest.
#[derive(Debug, Error)]
pub enum EngineCloseError {
    /// A log could not be closed cleanly; there may be more.
    #[error("log {name} was not closed cleanly and is verified at the next open: {source}")]
    Log {
        /// The log.
        name: String,
        /// Why.
        source: CloseError,
    },
    /// The checkpoint files or the marker could not be written.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A thread of the engine panicked, which is a defect of it; its message has been printed.
    #[error("a thread of the engine panicked")]
    Panicked,
}
