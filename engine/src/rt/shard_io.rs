//! What a shard's tasks use of its storage: submit, wait for completions, read.
//!
//! Owns the shard's file table and its ring or helper thread; single-threaded, cloned by
//! reference count. Knows no log: completions are handed to whoever drives the logs.
//! Every request is handed to the kernel before the call that made it returns, whatever the
//! runtime does next; completions are taken by a task of its own.
//! Tested in `tests/io_backends.rs`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify, Semaphore, mpsc, oneshot};
use tokio::task::spawn_local;

use super::blocking::{Helper, Job};
use super::cold;
use super::counters::Counters;
use super::file_table::FileTable;
use super::log_file::LogFile;
use super::op::{ColdRequest, ColdWork, Finished, HotRequest, HotWork, Reply};
use super::ring::Ring;
use crate::io::{FileId, IoCompletion, IoError, IoOp, IoOutput, IoRequest, is_out_of_descriptors};

/// Reads by callers under way at once per shard; further ones wait their turn.
const CALLER_READS_MAX: usize = 128;

/// After this a kernel that was short of memory is asked again.
const SUBMIT_RETRY: Duration = Duration::from_millis(1);

/// What executes a shard's requests.
pub(crate) enum Backend {
    Ring(Box<Ring>),
    Blocking(Helper, mpsc::Receiver<Finished>),
}

enum Executor {
    Ring(Box<Ring>),
    Blocking(Helper),
}

/// A shard's storage, shared by the tasks of its thread.
#[derive(Clone)]
pub struct ShardIo {
    inner: Rc<Inner>,
}

struct Inner {
    executor: RefCell<Executor>,
    files: RefCell<FileTable>,
    completed: RefCell<Vec<IoCompletion>>,
    /// Told when `completed` is no longer empty.
    has_completed: Notify,
    /// Told when a turn left requests that could be submitted.
    wants_flush: Notify,
    /// The last submission failed for want of memory: ask again after a while.
    kernel_is_short: Cell<bool>,
    caller_reads: Arc<Semaphore>,
    /// See [`cold::run`].
    puts: Mutex<()>,
    counters: Arc<Counters>,
}

impl ShardIo {
    /// Starts the tasks that take completions; within the shard's runtime.
    ///
    /// # Errors
    ///
    /// If the runtime cannot watch the ring.
    pub(crate) fn start(backend: Backend, counters: Arc<Counters>) -> io::Result<Self> {
        let (executor, receiver) = match backend {
            Backend::Ring(ring) => (Executor::Ring(ring), None),
            Backend::Blocking(helper, receiver) => (Executor::Blocking(helper), Some(receiver)),
        };
        let ring_fd = match &executor {
            Executor::Ring(ring) => Some(ring.wake_fd()?),
            Executor::Blocking(_) => None,
        };
        let io = Self {
            inner: Rc::new(Inner {
                executor: RefCell::new(executor),
                files: RefCell::default(),
                completed: RefCell::default(),
                has_completed: Notify::new(),
                wants_flush: Notify::new(),
                kernel_is_short: Cell::new(false),
                caller_reads: Arc::new(Semaphore::new(CALLER_READS_MAX)),
                puts: Mutex::new(()),
                counters,
            }),
        };
        if let Some(fd) = ring_fd {
            // SAFETY: an `OwnedFd` stays open, and the same, as long as the `AsyncFd` owns it.
            let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
            spawn_local(take_ring_completions(io.clone(), watched));
            spawn_local(flush_what_was_left(io.clone()));
        }
        if let Some(receiver) = receiver {
            spawn_local(take_helper_completions(io.clone(), receiver));
        }
        Ok(io)
    }

    /// Hands `requests` to the kernel, in order, before it returns. Call it once per turn with
    /// all the turn's requests: they go in one system call.
    pub fn submit(&self, requests: impl IntoIterator<Item = IoRequest>) {
        for request in requests {
            let reply = Reply::Log {
                log: request.log,
                token: request.token,
            };
            match request.op {
                IoOp::Write {
                    file,
                    position,
                    buffers,
                } => {
                    self.start_hot(file, HotWork::Write { position, buffers }, reply);
                }
                IoOp::Zero {
                    file,
                    position,
                    len_bytes,
                } => {
                    self.start_hot(file, HotWork::Zero { position, len_bytes }, reply);
                }
                IoOp::SetLen { file, len_bytes } => {
                    let known = self.inner.files.borrow_mut().file(file);
                    match known {
                        Ok(file) => self.start_cold(ColdWork::SetLen { file, len_bytes }, reply),
                        Err(error) => self.refuse("cut", reply, error),
                    }
                }
                IoOp::Sync { file } => self.start_hot(file, HotWork::Sync, reply),
                IoOp::Read {
                    file,
                    position,
                    len_bytes,
                } => {
                    self.start_hot(file, HotWork::Read { position, len_bytes }, reply);
                }
                IoOp::Create { file, path } => self.start_cold(ColdWork::Create { file, path }, reply),
                IoOp::Open { file, path } => self.start_cold(ColdWork::Open { file, path }, reply),
                IoOp::Put { path, bytes } => self.start_cold(ColdWork::Put { path, bytes }, reply),
                IoOp::Rename { renames } => {
                    let files = &self.inner.files;
                    files.borrow_mut().keep_renamed(request.log, &renames);
                    self.start_cold(ColdWork::Rename { renames }, reply);
                }
                IoOp::Remove { paths } => self.start_cold(ColdWork::Remove { paths }, reply),
                IoOp::Close { file } => {
                    let removed = self.inner.files.borrow_mut().remove(file);
                    match removed {
                        Ok(Some(file)) => self.start_cold(ColdWork::Close { file }, reply),
                        Ok(None) => self.answer(reply, Ok(IoOutput::Done)),
                        Err(error) => self.refuse("close", reply, error),
                    }
                }
            }
        }
        self.turn();
    }

    /// Waits until logs' requests have completed and appends their completions to `into`.
    /// For the one task that drives the shard's logs.
    ///
    /// # Cancel safety
    ///
    /// A dropped wait has taken no completion.
    pub async fn completions(&self, into: &mut Vec<IoCompletion>) {
        loop {
            if self.take_completions(into) > 0 {
                return;
            }
            self.inner.has_completed.notified().await;
        }
    }

    /// Appends the completions there are to `into`, without waiting; returns how many.
    pub fn take_completions(&self, into: &mut Vec<IoCompletion>) -> usize {
        let mut completed = self.inner.completed.borrow_mut();
        let count = completed.len();
        into.append(&mut completed);
        count
    }

    /// Reads up to `len_bytes` from `position` of `file`; fewer only at the end of the file.
    /// For callers that are not logs. Takes `len_bytes` of memory at once: it must not be a
    /// number from the network; 128 reads of a shard may be under way, others wait.
    ///
    /// # Errors
    ///
    /// The operating system's, naming the file.
    ///
    /// # Cancel safety
    ///
    /// A dropped read goes on without its caller: its memory stays with the kernel until done.
    pub async fn read(&self, file: Arc<LogFile>, position: u64, len_bytes: u32) -> Result<Bytes, IoError> {
        let permit = Arc::clone(&self.inner.caller_reads)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let (sender, receiver) = oneshot::channel();
        let request = HotRequest {
            file,
            work: HotWork::Read { position, len_bytes },
            reply: Reply::Caller { sender, permit },
        };
        self.start_request(request);
        self.turn();
        receiver
            .await
            .expect("every request completes while its shard lives")
    }

    /// The shard's open files. Do not hold a borrow across an await.
    #[must_use]
    pub fn files(&self) -> &RefCell<FileTable> {
        &self.inner.files
    }

    /// What the shard has asked of the kernel.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.inner.counters
    }

    fn start_hot(&self, file: FileId, work: HotWork, reply: Reply) {
        if matches!(work, HotWork::Sync) && self.inner.files.borrow().is_closed(file) {
            self.answer(reply, Ok(IoOutput::Done));
            return;
        }
        let known = self.inner.files.borrow_mut().file(file);
        match known {
            Ok(file) => {
                if matches!(work, HotWork::Write { .. } | HotWork::Zero { .. }) {
                    file.begin_write();
                }
                self.start_request(HotRequest { file, work, reply });
            }
            Err(error) => {
                let operation = match work {
                    HotWork::Write { .. } => "write",
                    HotWork::Zero { .. } => "write zeros",
                    HotWork::Sync => "fdatasync",
                    HotWork::Read { .. } => "read",
                };
                self.refuse(operation, reply, error);
            }
        }
    }

    fn start_request(&self, request: HotRequest) {
        match &mut *self.inner.executor.borrow_mut() {
            Executor::Ring(ring) => ring.start(request),
            Executor::Blocking(helper) => helper.start_job(Job::Hot(request)),
        }
    }

    fn start_cold(&self, work: ColdWork, reply: Reply) {
        let request = ColdRequest { work, reply };
        match &mut *self.inner.executor.borrow_mut() {
            Executor::Ring(_) => {
                let io = self.clone();
                spawn_local(async move {
                    let finished = cold::run(request, &io.inner.puts).await;
                    io.finish(finished);
                });
            }
            Executor::Blocking(helper) => helper.start_job(Job::Cold(request)),
        }
    }

    fn refuse(&self, operation: &str, reply: Reply, error: io::Error) {
        self.answer(reply, Err(IoError::new(operation, error)));
    }

    fn answer(&self, reply: Reply, result: Result<IoOutput, IoError>) {
        self.finish(Finished {
            reply,
            result,
            opened: None,
        });
    }

    /// Takes what is done and submits what waits. Completions are taken first, as they make room,
    /// and last, as a write into the page cache is often done when its submission returns.
    fn turn(&self) {
        let mut finished = Vec::new();
        if let Executor::Ring(ring) = &mut *self.inner.executor.borrow_mut() {
            ring.reap(&mut finished);
            let handed_over = ring.submit();
            ring.reap(&mut finished);
            if !handed_over {
                self.inner.kernel_is_short.set(true);
            }
            if ring.can_submit() {
                self.inner.wants_flush.notify_one();
            }
        }
        for over in finished {
            self.finish(over);
        }
    }

    fn finish(&self, finished: Finished) {
        {
            let mut files = self.inner.files.borrow_mut();
            files.handle_finished();
            if let Some((file, opened)) = finished.opened {
                files.insert(file, opened);
            }
            // Whoever tries again should find some.
            if let Err(error) = &finished.result
                && is_out_of_descriptors(&error.source)
            {
                files.make_room();
            }
        }
        match finished.reply {
            Reply::Log { log, token } => {
                self.inner.completed.borrow_mut().push(IoCompletion {
                    log,
                    token,
                    result: finished.result,
                });
                self.inner.has_completed.notify_one();
            }
            Reply::Caller { sender, permit } => {
                drop(permit);
                let result = finished.result.map(|output| match output {
                    IoOutput::Read(bytes) => bytes,
                    IoOutput::Done => unreachable!("callers only read"),
                });
                // The caller may have gone.
                let _ = sender.send(result);
            }
        }
    }
}

impl fmt::Debug for ShardIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardIo")
            .field("counters", &self.inner.counters)
            .finish_non_exhaustive()
    }
}

async fn take_ring_completions(io: ShardIo, watched: AsyncFd<OwnedFd>) {
    loop {
        let mut ready = watched.readable().await.expect("the runtime outlives its tasks");
        // Cleared before the completions are taken: one that comes in between wakes us again.
        ready.clear_ready();
        io.turn();
    }
}

async fn flush_what_was_left(io: ShardIo) {
    loop {
        io.inner.wants_flush.notified().await;
        if io.inner.kernel_is_short.take() {
            tokio::time::sleep(SUBMIT_RETRY).await;
        }
        io.turn();
    }
}

async fn take_helper_completions(io: ShardIo, mut receiver: mpsc::Receiver<Finished>) {
    while let Some(finished) = receiver.recv().await {
        if let Executor::Blocking(helper) = &mut *io.inner.executor.borrow_mut() {
            helper.handle_finished();
        }
        io.finish(finished);
    }
}
