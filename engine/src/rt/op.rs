//! Storage requests with their file resolved, on their way through an executor and back.
//!
//! [`Op`] is a hot request as the ring sees it: it owns, from submission to the one completion,
//! everything the kernel holds a pointer to. It turns itself into submission entries and makes
//! progress by their results: short transfers are continued, interrupted ones repeated.
//! Knows no queue. Tested by the conformance suite in `tests/io_backends.rs` and below.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use io_uring::{opcode, squeue, types};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::file_table::{
    create_new, open_existing, put_file, read_at_most, remove_existing, rename_existing,
};
use super::log_file::LogFile;
use super::zeros;
use crate::io::{FileId, IoError, IoOutput, IoToken};
use crate::types::LogId;

/// The kernel takes no more iovecs in one call (`UIO_MAXIOV`); the rest follows in the next.
const IOVECS_MAX: usize = 1024;

/// Who is told of a completion.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A log, through the shard's completions.
    Log { log: LogId, token: IoToken },
    /// One waiting caller, who may have gone. The permit is the read's place among those in
    /// flight: it stays taken until the completion, also when the caller has gone.
    Caller {
        sender: oneshot::Sender<Result<Bytes, IoError>>,
        permit: OwnedSemaphorePermit,
    },
}

/// The operations of the hot path.
#[derive(Debug)]
pub(crate) enum HotWork {
    Write { position: u64, buffers: Vec<Bytes> },
    Zero { position: u64, len_bytes: u32 },
    Sync,
    Read { position: u64, len_bytes: u32 },
}

/// A hot operation on an open file.
#[derive(Debug)]
pub(crate) struct HotRequest {
    pub(crate) file: Arc<LogFile>,
    pub(crate) work: HotWork,
    pub(crate) reply: Reply,
}

/// The rare operations: each is several system calls that may wait for the disk.
#[derive(Debug)]
pub(crate) enum ColdWork {
    Create {
        file: FileId,
        path: PathBuf,
    },
    SetLen {
        file: Arc<LogFile>,
        len_bytes: u64,
    },
    Open {
        file: FileId,
        path: PathBuf,
    },
    Put {
        path: PathBuf,
        bytes: Bytes,
    },
    Rename {
        renames: Vec<(PathBuf, PathBuf)>,
    },
    Remove {
        paths: Vec<PathBuf>,
    },
    /// The file table's own reference; the descriptor is closed here if it is the last.
    Close {
        file: Arc<LogFile>,
    },
}

/// A rare operation.
#[derive(Debug)]
pub(crate) struct ColdRequest {
    pub(crate) work: ColdWork,
    pub(crate) reply: Reply,
}

/// A request that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) reply: Reply,
    pub(crate) result: Result<IoOutput, IoError>,
    /// A file to be known to the shard before the completion is.
    pub(crate) opened: Option<(FileId, LogFile)>,
}

impl HotRequest {
    /// Runs to its end on the calling thread.
    pub(crate) fn run_blocking(self) -> Finished {
        let file = self.file.file();
        let (result, what) = match self.work {
            HotWork::Write {
                mut position,
                buffers,
            } => {
                let at = position;
                let result = buffers.iter().try_for_each(|buffer| {
                    file.write_all_at(buffer, position)?;
                    position += buffer.len() as u64;
                    Ok(())
                });
                self.file.end_write();
                (result.map(|()| IoOutput::Done), What::Write(at))
            }
            HotWork::Zero { position, len_bytes } => {
                let result = zeros::write_blocking(file, position, len_bytes);
                self.file.end_write();
                (result.map(|()| IoOutput::Done), What::Zero(position))
            }
            HotWork::Sync => {
                let covered = self.file.writes_over();
                let result = file.sync_data().map(|()| self.file.note_synced(covered));
                (result.map(|()| IoOutput::Done), What::Sync)
            }
            HotWork::Read { position, len_bytes } => {
                let mut buffer = vec![0; len_bytes as usize];
                let result = read_at_most(file, position, &mut buffer).map(|count| {
                    buffer.truncate(count);
                    IoOutput::Read(Bytes::from(buffer))
                });
                (result, What::Read(position))
            }
        };
        let result = result.map_err(|source| what.error(&self.file, source));
        Finished {
            reply: self.reply,
            result,
            opened: None,
        }
    }
}

impl ColdRequest {
    /// Runs to its end on the calling thread.
    pub(crate) fn run_blocking(self) -> Finished {
        let mut opened = None;
        let result = match self.work {
            ColdWork::Create { file, path } => match create_new(&path) {
                Ok(created) => {
                    opened = Some((file, LogFile::new(created, path)));
                    Ok(())
                }
                Err(source) => Err(IoError::new(format!("create {}", path.display()), source)),
            },
            ColdWork::SetLen { file, len_bytes } => set_len(&file, len_bytes),
            ColdWork::Open { file, path } => match open_existing(&path) {
                Ok(existing) => {
                    opened = Some((file, LogFile::new(existing, path)));
                    Ok(())
                }
                Err(source) => Err(IoError::new(format!("open {}", path.display()), source)),
            },
            ColdWork::Put { path, bytes } => put_file(&path, &bytes)
                .map_err(|source| IoError::new(format!("replace {}", path.display()), source)),
            ColdWork::Rename { renames } => rename_existing(&renames),
            ColdWork::Remove { paths } => paths.iter().try_for_each(|path| {
                remove_existing(path)
                    .map_err(|source| IoError::new(format!("remove {}", path.display()), source))
            }),
            ColdWork::Close { file } => {
                drop(file);
                Ok(())
            }
        };
        Finished {
            reply: self.reply,
            result: result.map(|()| IoOutput::Done),
            opened,
        }
    }
}

/// Cuts or extends `file`; durable on return.
pub(crate) fn set_len(file: &LogFile, len_bytes: u64) -> Result<(), IoError> {
    let covered = file.writes_over();
    let cut = file.file().set_len(len_bytes);
    let synced = cut.and_then(|()| file.file().sync_data());
    synced.map(|()| file.note_synced(covered)).map_err(|source| {
        let path = file.path().display();
        IoError::new(format!("cut {path} to {len_bytes}"), source)
    })
}

/// What was tried, for the message of an error.
#[derive(Clone, Copy)]
enum What {
    Write(u64),
    Zero(u64),
    Sync,
    Read(u64),
}

impl What {
    fn error(self, file: &LogFile, source: io::Error) -> IoError {
        let path = file.path().display();
        let operation = match self {
            Self::Write(position) => format!("write {path} at {position}"),
            Self::Zero(position) => format!("write zeros to {path} at {position}"),
            Self::Sync => format!("fdatasync {path}"),
            Self::Read(position) => format!("read {path} at {position}"),
        };
        IoError::new(operation, source)
    }
}

/// A hot request in the ring's hands.
pub(crate) struct Op {
    file: Arc<LogFile>,
    kind: OpKind,
    reply: Reply,
}

enum OpKind {
    Write {
        position: u64,
        /// What is still to be written, from `position` on. Kept alive for `iovecs`.
        buffers: Vec<Bytes>,
        /// Point into `buffers`; rebuilt by each `entry`, untouched while the kernel has them.
        iovecs: Vec<libc::iovec>,
    },
    Zero {
        position: u64,
        left_bytes: usize,
        /// Opened once the room is allocated.
        direct: Option<File>,
        /// Point to what is never written nor freed.
        iovecs: Vec<libc::iovec>,
    },
    Sync {
        /// Writes of the file that were over before.
        covered: u64,
    },
    Read {
        position: u64,
        len_bytes: usize,
        /// Its capacity is at least `len_bytes`, its length what has been read so far.
        buffer: Vec<u8>,
    },
}

/// What the result of one submission entry means for its operation.
pub(crate) enum Progress {
    /// Submit [`Op::entry`] again.
    Again,
    /// Over, with this outcome.
    Done(io::Result<()>),
}

impl Op {
    /// Takes a request over and prepares its memory.
    pub(crate) fn new(request: HotRequest) -> Self {
        let kind = match request.work {
            HotWork::Write {
                position,
                mut buffers,
            } => {
                buffers.retain(|buffer| !buffer.is_empty());
                OpKind::Write {
                    position,
                    iovecs: Vec::new(),
                    buffers,
                }
            }
            HotWork::Zero { position, len_bytes } => OpKind::Zero {
                position,
                left_bytes: len_bytes as usize,
                direct: None,
                iovecs: Vec::new(),
            },
            HotWork::Sync => OpKind::Sync {
                covered: request.file.writes_over(),
            },
            HotWork::Read { position, len_bytes } => OpKind::Read {
                position,
                len_bytes: len_bytes as usize,
                buffer: Vec::with_capacity(len_bytes as usize),
            },
        };
        Self {
            file: request.file,
            kind,
            reply: request.reply,
        }
    }

    /// The entry for what remains to be done. The pointers in it are into heap memory that this
    /// `Op` owns and neither moves nor frees before [`Op::handle_result`].
    pub(crate) fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.file.as_raw_fd());
        match &mut self.kind {
            OpKind::Write {
                position,
                buffers,
                iovecs,
            } => {
                iovecs.clear();
                iovecs.extend(buffers.iter().take(IOVECS_MAX).map(|buffer| libc::iovec {
                    iov_base: buffer.as_ptr().cast_mut().cast(),
                    iov_len: buffer.len(),
                }));
                let count = u32::try_from(iovecs.len()).expect("at most IOVECS_MAX");
                opcode::Writev::new(fd, iovecs.as_ptr(), count)
                    .offset(*position)
                    .build()
            }
            OpKind::Zero {
                position,
                left_bytes,
                direct: None,
                ..
            } => opcode::Fallocate::new(fd, *left_bytes as u64)
                .offset(*position)
                .build(),
            OpKind::Zero {
                position,
                left_bytes,
                direct: Some(direct),
                iovecs,
            } => {
                iovecs.clear();
                iovecs.extend(
                    zeros::pieces(*left_bytes)
                        .take(IOVECS_MAX)
                        .map(|zeros| libc::iovec {
                            iov_base: zeros.as_ptr().cast_mut().cast(),
                            iov_len: zeros.len(),
                        }),
                );
                let count = u32::try_from(iovecs.len()).expect("at most IOVECS_MAX");
                opcode::Writev::new(types::Fd(direct.as_raw_fd()), iovecs.as_ptr(), count)
                    .offset(*position)
                    .build()
            }
            OpKind::Sync { .. } => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            OpKind::Read {
                position,
                len_bytes,
                buffer,
            } => {
                let wanted = u32::try_from(*len_bytes - buffer.len()).expect("at most a u32 was asked for");
                let spare = buffer.spare_capacity_mut();
                let offset = *position + (*len_bytes - wanted as usize) as u64;
                opcode::Read::new(fd, spare.as_mut_ptr().cast(), wanted)
                    .offset(offset)
                    .build()
            }
        }
    }

    /// Whether nothing remains to be done, as for a write of no bytes.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.kind {
            OpKind::Write { buffers, .. } => buffers.is_empty(),
            OpKind::Zero { left_bytes, .. } => *left_bytes == 0,
            OpKind::Sync { .. } => false,
            OpKind::Read {
                len_bytes, buffer, ..
            } => buffer.len() == *len_bytes,
        }
    }

    /// Takes in the result of the last [`Op::entry`]: a byte count or a negated errno.
    pub(crate) fn handle_result(&mut self, result: i32) -> Progress {
        if matches!(-result, libc::EINTR | libc::EAGAIN) {
            return Progress::Again;
        }
        let Ok(count) = usize::try_from(result) else {
            return Progress::Done(Err(io::Error::from_raw_os_error(-result)));
        };
        match &mut self.kind {
            OpKind::Sync { .. } => return Progress::Done(Ok(())),
            OpKind::Zero { direct, .. } if direct.is_none() => match zeros::open_direct(self.file.file()) {
                Ok(opened) => *direct = Some(opened),
                Err(error) => return Progress::Done(Err(error)),
            },
            OpKind::Write { .. } | OpKind::Zero { .. } if count == 0 => {
                return Progress::Done(Err(io::ErrorKind::WriteZero.into()));
            }
            OpKind::Write {
                position, buffers, ..
            } => {
                *position += count as u64;
                advance(buffers, count);
            }
            OpKind::Zero {
                position, left_bytes, ..
            } => {
                *position += count as u64;
                *left_bytes -= count;
            }
            // The end of the file.
            OpKind::Read { .. } if count == 0 => return Progress::Done(Ok(())),
            OpKind::Read { buffer, .. } => {
                let filled = buffer.len() + count;
                assert!(
                    filled <= buffer.capacity(),
                    "the kernel read more than was asked for"
                );
                // SAFETY: `filled` is within the capacity, and the kernel has initialised the
                // `count` bytes after the old length: `entry` pointed it there and it says so.
                unsafe { buffer.set_len(filled) };
            }
        }
        if self.is_complete() {
            Progress::Done(Ok(()))
        } else {
            Progress::Again
        }
    }

    /// Gives the outcome to whom it belongs. The kernel must be done with the operation.
    pub(crate) fn finish(self, outcome: io::Result<()>) -> Finished {
        match &self.kind {
            OpKind::Write { .. } | OpKind::Zero { .. } => self.file.end_write(),
            OpKind::Sync { covered } if outcome.is_ok() => self.file.note_synced(*covered),
            OpKind::Sync { .. } | OpKind::Read { .. } => {}
        }
        let result = match (outcome, self.kind) {
            (Ok(()), OpKind::Read { buffer, .. }) => Ok(IoOutput::Read(Bytes::from(buffer))),
            (Ok(()), _) => Ok(IoOutput::Done),
            (Err(source), kind) => {
                let what = match kind {
                    OpKind::Write { position, .. } => What::Write(position),
                    OpKind::Zero { position, .. } => What::Zero(position),
                    OpKind::Sync { .. } => What::Sync,
                    OpKind::Read { position, .. } => What::Read(position),
                };
                Err(what.error(&self.file, source))
            }
        };
        Finished {
            reply: self.reply,
            result,
            opened: None,
        }
    }
}

/// Drops the first `count` bytes of `buffers`.
fn advance(buffers: &mut Vec<Bytes>, mut count: usize) {
    let mut whole = 0;
    for buffer in buffers.iter_mut() {
        if count < buffer.len() {
            buffer.advance(count);
            count = 0;
            break;
        }
        count -= buffer.len();
        whole += 1;
    }
    assert_eq!(count, 0, "the kernel wrote more than was asked for");
    buffers.drain(..whole);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_op(buffers: Vec<Bytes>) -> Op {
        op(HotWork::Write {
            position: 10,
            buffers,
        })
    }

    fn op(work: HotWork) -> Op {
        let file = Arc::new(LogFile::new(
            tempfile::tempfile().unwrap(),
            PathBuf::from("/x/y.log"),
        ));
        let reply = Reply::Log {
            log: LogId(1),
            token: IoToken(2),
        };
        Op::new(HotRequest { file, work, reply })
    }

    fn remaining(op: &Op) -> (u64, Vec<u8>) {
        match &op.kind {
            OpKind::Write {
                position, buffers, ..
            } => (*position, buffers.concat()),
            _ => panic!("not a write"),
        }
    }

    #[test]
    fn short_write_continues_behind_the_written_bytes() {
        let mut op = write_op(vec![
            Bytes::from_static(b"abc"),
            Bytes::new(),
            Bytes::from_static(b"defg"),
        ]);
        assert!(matches!(op.handle_result(2), Progress::Again));
        assert_eq!(remaining(&op), (12, b"cdefg".to_vec()));
        assert!(matches!(op.handle_result(3), Progress::Again));
        assert_eq!(remaining(&op), (15, b"fg".to_vec()));
        assert!(matches!(op.handle_result(2), Progress::Done(Ok(()))));
    }

    #[test]
    fn interrupted_operation_is_repeated_unchanged() {
        let mut op = write_op(vec![Bytes::from_static(b"abc")]);
        assert!(matches!(op.handle_result(-libc::EINTR), Progress::Again));
        assert!(matches!(op.handle_result(-libc::EAGAIN), Progress::Again));
        assert_eq!(remaining(&op), (10, b"abc".to_vec()));
    }

    #[test]
    fn write_that_writes_nothing_is_an_error_and_not_a_loop() {
        let mut op = write_op(vec![Bytes::from_static(b"abc")]);
        let Progress::Done(Err(error)) = op.handle_result(0) else {
            panic!("must end")
        };
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn failed_sync_names_the_file_and_is_not_repeated() {
        let mut op = op(HotWork::Sync);
        let Progress::Done(outcome) = op.handle_result(-libc::EIO) else {
            panic!("must end")
        };
        let error = op.finish(outcome).result.unwrap_err();
        assert_eq!(error.operation, "fdatasync /x/y.log");
        assert_eq!(error.source.raw_os_error(), Some(libc::EIO));
    }
}
