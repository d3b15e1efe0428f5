//! The rare storage operations of a shard with io_uring, over `tokio_uring::fs`.
//!
//! Runs as a task of the shard and never blocks its thread. Beside `shard` the only file that
//! knows `tokio_uring`, and it works around a habit of it: it submits when the runtime is about
//! to sleep, which a busy shard may not do for long. Each step is therefore polled through
//! [`now`]. The order of the steps is that of `file_table`'s blocking versions.
//! Tested in `tests/io_backends.rs`.

use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio_uring::fs::{File, OpenOptions, remove_file, rename};

use super::file_table::{dir_of, parent_of, rename_error, sync_dir_error, temporary_of};
use super::log_file::LogFile;
use super::op::{self, ColdRequest, ColdWork, Finished};
use crate::io::{IoError, IoOutput};

/// Entries of `tokio_uring`'s submission queue. One, because an entry pushed into a full queue
/// first submits what is there: [`now`] depends on it.
pub(crate) const RUNTIME_RING_ENTRIES: u32 = 1;

/// Runs one request to its end. `puts` is held while a file is replaced, so that two
/// replacements of one file never share its temporary.
pub(crate) async fn run(request: ColdRequest, puts: &Mutex<()>) -> Finished {
    let mut opened = None;
    let result = match request.work {
        ColdWork::Create { file, path } => match create_new(&path).await {
            Ok(created) => {
                opened = Some((file, LogFile::new(created, path)));
                Ok(())
            }
            Err(source) => Err(IoError::new(format!("create {}", path.display()), source)),
        },
        ColdWork::SetLen { file, len_bytes } => set_len(file, len_bytes).await,
        ColdWork::Open { file, path } => match open_existing(&path).await {
            Ok(existing) => {
                opened = Some((file, LogFile::new(existing, path)));
                Ok(())
            }
            Err(source) => Err(IoError::new(format!("open {}", path.display()), source)),
        },
        ColdWork::Put { path, bytes } => {
            let _alone = puts.lock().await;
            put_file(&path, bytes)
                .await
                .map_err(|source| IoError::new(format!("replace {}", path.display()), source))
        }
        ColdWork::Rename { renames } => rename_existing(&renames).await,
        ColdWork::Remove { paths } => remove_existing(&paths).await,
        ColdWork::Close { file } => close(file).await,
    };
    Finished {
        reply: request.reply,
        result: result.map(|()| IoOutput::Done),
        opened,
    }
}

/// On a thread of its own: the kernel's ring cuts files only since 6.9.
async fn set_len(file: Arc<LogFile>, len_bytes: u64) -> Result<(), IoError> {
    let cut = tokio::task::spawn_blocking(move || op::set_len(&file, len_bytes)).await;
    cut.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

async fn create_new(path: &Path) -> io::Result<fs::File> {
    let created = now(async {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .await
    })
    .await?;
    let result = match sync_dir(parent_of(path)).await {
        Ok(()) => own_descriptor(&created),
        Err(error) => Err(error),
    };
    now(created.close()).await?;
    if result.is_err() {
        // The first error is the one to report.
        let _ = now(remove_file(path)).await;
    }
    result
}

async fn open_existing(path: &Path) -> io::Result<fs::File> {
    let opened = now(async { OpenOptions::new().read(true).write(true).open(path).await }).await?;
    let result = own_descriptor(&opened);
    now(opened.close()).await?;
    result
}

/// A descriptor of our own: `tokio_uring` does not give its away.
fn own_descriptor(file: &File) -> io::Result<fs::File> {
    // SAFETY: the descriptor is open: `file` owns it and outlives the borrow.
    let borrowed = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
    borrowed.try_clone_to_owned().map(fs::File::from)
}

async fn put_file(path: &Path, bytes: Bytes) -> io::Result<()> {
    let temporary = temporary_of(path);
    let result = match write_whole(&temporary, bytes).await {
        Ok(()) => now(rename(&temporary, path)).await,
        Err(error) => Err(error),
    };
    if result.is_err() {
        let _ = now(remove_file(&temporary)).await;
        return result;
    }
    sync_dir(parent_of(path)).await
}

async fn write_whole(path: &Path, bytes: Bytes) -> io::Result<()> {
    let file = now(File::create(path)).await?;
    let (written, _) = now(file.write_all_at(Vec::from(bytes), 0)).await;
    let result = match written {
        Ok(()) => now(file.sync_all()).await,
        Err(error) => Err(error),
    };
    now(file.close()).await?;
    result
}

async fn rename_existing(renames: &[(PathBuf, PathBuf)]) -> Result<(), IoError> {
    for (from, to) in renames {
        match now(rename(from, to)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|source| rename_error(from, to, source))?,
        }
    }
    match dir_of(renames) {
        Some(dir) => sync_dir(dir).await.map_err(|source| sync_dir_error(dir, source)),
        None => Ok(()),
    }
}

async fn remove_existing(paths: &[PathBuf]) -> Result<(), IoError> {
    for path in paths {
        match now(remove_file(path)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => {
                result.map_err(|source| IoError::new(format!("remove {}", path.display()), source))?;
            }
        }
    }
    Ok(())
}

/// Closes the descriptor, unless someone still reads or sends: the last of them will.
async fn close(file: Arc<LogFile>) -> Result<(), IoError> {
    let Some(file) = Arc::into_inner(file) else {
        return Ok(());
    };
    let operation = format!("close {}", file.path().display());
    now(File::from_std(file.into_file()).close())
        .await
        .map_err(|source| IoError::new(operation, source))
}

async fn sync_dir(dir: &Path) -> io::Result<()> {
    let opened = now(File::open(dir)).await?;
    let result = now(opened.sync_all()).await;
    now(opened.close()).await?;
    result
}

/// Polls `step` and has what it asked for submitted at once: into the queue of one entry goes a
/// no-op behind it, which cannot enter before the step's entry has left.
async fn now<F: Future>(step: F) -> F::Output {
    let mut step = pin!(step);
    poll_fn(|cx| {
        let polled = step.as_mut().poll(cx);
        if polled.is_pending() {
            let kick = pin!(tokio_uring::no_op());
            // Nobody waits for the no-op, and dropping it takes nothing from the step.
            let _: Poll<io::Result<()>> = kick.poll(&mut Context::from_waker(Waker::noop()));
        }
        polled
    })
    .await
}
