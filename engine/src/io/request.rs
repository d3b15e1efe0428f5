//! What a log asks of storage and what it is told, shaped like submissions and completions.
//!
//! Invariants the executor upholds: a request completes exactly once; its buffers stay alive
//! until then; a `Write` completes only when all its bytes are written (short writes are
//! continued by the executor). Requests of one log may complete in any order: a log that needs
//! an order submits the next request after the completion of the one before.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::types::LogId;

/// Names one file of one log; numbered by the log, valid from its `Create` or `Open` (or
/// [`Storage::open`](super::Storage::open)) until its `Close`. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The log that numbers this file.
    pub log: LogId,
    /// Counts the files of that log since it was opened.
    pub number: u32,
}

/// Names one request of one log, so that the completion finds its meaning; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoToken(pub u64);

/// A storage request of one log.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// The log that asks and will be told.
    pub log: LogId,
    /// Echoed by the completion.
    pub token: IoToken,
    /// What to do.
    pub op: IoOp,
}

/// The storage operations. `Write`, `Sync` and `Read` are the hot ones.
#[derive(Clone, Debug)]
pub enum IoOp {
    /// Writes `buffers` one after another from `position` (bytes from the start of the file).
    /// At most 1,024 buffers.
    Write {
        /// An open file.
        file: FileId,
        /// Bytes from the start of the file.
        position: u64,
        /// Written in this order, without a gap.
        buffers: Vec<Bytes>,
    },
    /// Makes everything written to `file` by *completed* writes durable (`fdatasync`).
    Sync {
        /// An open file.
        file: FileId,
    },
    /// Reads up to `len_bytes` from `position`; completes with fewer only at the end of the file.
    Read {
        /// An open file.
        file: FileId,
        /// Bytes from the start of the file.
        position: u64,
        /// At most this many bytes.
        len_bytes: u32,
    },
    /// Writes zeros from `position` to `position + len_bytes`, both multiples of 4,096, past the page
    /// cache, and extends the file as far: a later `Write` there finds its blocks allocated, and its
    /// `Sync` has less to do. Where the file system cannot do so the request fails, and the file may
    /// be longer than it was. Must not overlap a `Write` that has not completed.
    Zero {
        /// An open file.
        file: FileId,
        /// Bytes from the start of the file.
        position: u64,
        /// How many zeros.
        len_bytes: u32,
    },
    /// Cuts `file` to `len_bytes`, or extends it with zeros; completes once the length is durable.
    SetLen {
        /// An open file.
        file: FileId,
        /// Its new length.
        len_bytes: u64,
    },
    /// Creates `path` (which must not exist) and opens it as `file`; completes once the
    /// directory entry is durable.
    Create {
        /// The name the file is known by from completion on.
        file: FileId,
        /// The file to create.
        path: PathBuf,
    },
    /// Opens `path`, which exists, as `file`.
    Open {
        /// The name the file is known by from completion on.
        file: FileId,
        /// The file to open.
        path: PathBuf,
    },
    /// Replaces the whole of `path` by `bytes`, durably and atomically: a crash leaves the old
    /// file or the new one.
    Put {
        /// The file to replace or create.
        path: PathBuf,
        /// Its new contents.
        bytes: Bytes,
    },
    /// Gives files new names within their one directory: `(from, to)` in the order given, leaving
    /// out those whose `from` does not exist, replacing a `to` that does; completes once the names
    /// are durable. A crash before that leaves the new names to a first part of the renames, the
    /// old ones to the rest; a failure may do so as well.
    Rename {
        /// What to rename: from, to. All in one directory.
        renames: Vec<(PathBuf, PathBuf)>,
    },
    /// Deletes the files that exist among `paths`. One that is open may not be found afterwards: close it before; whoever
    /// reads or sends goes on.
    Remove {
        /// The files to delete.
        paths: Vec<PathBuf>,
    },
    /// Forgets `file`; reads and sends already under way keep their own reference.
    Close {
        /// An open file.
        file: FileId,
    },
}

/// The outcome of one [`IoRequest`].
#[derive(Debug)]
pub struct IoCompletion {
    /// The log that asked.
    pub log: LogId,
    /// The request's token.
    pub token: IoToken,
    /// What came of it.
    pub result: Result<IoOutput, IoError>,
}

/// What a successful request yields.
#[derive(Debug, PartialEq, Eq)]
pub enum IoOutput {
    /// Done; nothing to hand over.
    Done,
    /// The bytes of a `Read`.
    Read(Bytes),
}

/// A failed request: the operating system's error and what it happened to.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation}: {source}")]
pub struct IoError {
    /// What was tried and on what, for people: `fdatasync /data/t-0/00000000000000000000.log`.
    pub operation: String,
    /// The operating system's error.
    #[source]
    pub source: Arc<std::io::Error>,
}

impl IoError {
    /// Wraps `source`, naming the operation and the file it happened on.
    pub fn new(operation: impl Into<String>, source: std::io::Error) -> Self {
        Self {
            operation: operation.into(),
            source: Arc::new(source),
        }
    }

    /// Room, space or a descriptor, is missing and may be there later: what failed so, and is no sync, can be tried again.
    #[must_use]
    pub fn is_out_of_room(&self) -> bool {
        self.is_storage_full() || is_out_of_descriptors(&self.source)
    }

    /// No space or quota is left: the request may succeed later, unlike any other failure.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        use std::io::ErrorKind;
        matches!(
            self.source.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        )
    }
}

/// The process, or the system, may open no further file: `EMFILE` or `ENFILE` of Linux, for which the standard library has
/// no kind.
#[must_use]
pub fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}
