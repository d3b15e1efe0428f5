//! A shard: one pinned thread, its runtime, its storage.
//!
//! Owns the choice between io_uring and the helper thread, and starts the runtime that goes with
//! it: `tokio_uring` (whose epoll side drives TCP), or plain tokio where io_uring is not to be
//! had. Within a shard tasks are spawned by `tokio::task::spawn_local`. Knows nothing of what
//! runs on it. Tested in `tests/io_backends.rs`.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::task::LocalSet;

use super::blocking::Helper;
use super::cold::RUNTIME_RING_ENTRIES;
use super::counters::Counters;
use super::ring::Ring;
use super::shard_io::{Backend, ShardIo};

/// Completions `tokio_uring` may have waiting before the kernel keeps them on a slower list.
const RUNTIME_RING_COMPLETIONS: u32 = 256;

/// Which way to execute storage requests is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// io_uring, or the helper thread where it cannot be used.
    #[default]
    Auto,
    /// io_uring, or an error where it cannot be used.
    Ring,
    /// The helper thread.
    Blocking,
}

/// Which way storage requests are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// By io_uring.
    Ring,
    /// One after another, by a helper thread of the shard.
    Blocking,
}

/// How a shard is started.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Its number, from 0.
    pub index: usize,
    /// The CPU its thread is pinned to, numbered as the kernel does; `None` leaves it free.
    pub cpu: Option<usize>,
    /// The thread's name; the kernel shows the first 15 bytes.
    pub name: String,
    /// How storage requests are executed.
    pub backend: BackendChoice,
}

/// What the code on a shard is given.
#[derive(Clone, Debug)]
pub struct ShardContext {
    /// The shard's number.
    pub index: usize,
    /// The shard's storage.
    pub io: ShardIo,
}

/// Why a shard could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ShardStartError {
    /// No thread.
    #[error("cannot start the thread of shard {index}: {source}")]
    Thread {
        /// The shard's number.
        index: usize,
        /// The operating system's error.
        source: io::Error,
    },
    /// io_uring was insisted upon and cannot be used.
    #[error("shard {index} cannot use io_uring: {source}")]
    Ring {
        /// The shard's number.
        index: usize,
        /// Why, with the remedy.
        source: io::Error,
    },
    /// No runtime, or no helper thread.
    #[error("cannot start the runtime of shard {index}: {source}")]
    Runtime {
        /// The shard's number.
        index: usize,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A running shard.
#[derive(Debug)]
pub struct ShardHandle<T> {
    thread: JoinHandle<Option<T>>,
    started: Started,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Started {
    backend: BackendKind,
    fallback_reason: Option<io::Error>,
    pin_error: Option<io::Error>,
}

impl<T> ShardHandle<T> {
    /// How its storage requests are executed.
    #[must_use]
    pub fn backend(&self) -> BackendKind {
        self.started.backend
    }

    /// Why it is not io_uring though `Auto` would have had it, with the remedy: to be told to
    /// whoever runs the process.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&io::Error> {
        self.started.fallback_reason.as_ref()
    }

    /// Why its thread could not be pinned, as where a container does not own the CPU.
    #[must_use]
    pub fn pin_error(&self) -> Option<&io::Error> {
        self.started.pin_error.as_ref()
    }

    /// What it has asked of the kernel.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Waits until the shard's code has returned and its storage requests are over; hands over
    /// what the code returned. Blocks the calling thread.
    ///
    /// # Errors
    ///
    /// The panic of the shard's thread.
    pub fn join(self) -> std::thread::Result<T> {
        self.thread
            .join()
            .map(|returned| returned.expect("a handle is made only of a started shard"))
    }
}

/// Starts a shard and returns when it runs: `main` makes the shard's one future, on its thread.
/// The shard ends when that future does; tasks it has left are dropped, storage requests under
/// way are waited for.
///
/// # Errors
///
/// See [`ShardStartError`].
pub fn spawn_shard<F, Fut, T>(config: ShardConfig, main: F) -> Result<ShardHandle<T>, ShardStartError>
where
    F: FnOnce(ShardContext) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let index = config.index;
    let counters = Arc::new(Counters::default());
    let shard_counters = Arc::clone(&counters);
    let (report, reported) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(config.name.clone())
        .spawn(move || match Shard::open(&config, &shard_counters) {
            Ok(shard) => shard.run(index, shard_counters, &report, main),
            Err(error) => {
                // The spawner waits for this.
                let _ = report.send(Err(error));
                None
            }
        })
        .map_err(|source| ShardStartError::Thread { index, source })?;
    match reported.recv() {
        Ok(Ok(started)) => Ok(ShardHandle {
            thread,
            started,
            counters,
        }),
        Ok(Err(error)) => Err(error),
        Err(mpsc::RecvError) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the thread reports before it returns"),
        },
    }
}

/// A shard's thread before its code runs.
struct Shard {
    runtime: Runtime,
    backend: Backend,
    started: Started,
}

impl Shard {
    fn open(config: &ShardConfig, counters: &Arc<Counters>) -> Result<Self, ShardStartError> {
        let index = config.index;
        let pin_error = config.cpu.and_then(|cpu| pin_to(cpu).err());
        let fallback_reason = match config.backend {
            BackendChoice::Blocking => None,
            BackendChoice::Auto | BackendChoice::Ring => match open_ring(counters) {
                Ok((runtime, ring)) => {
                    let started = Started {
                        backend: BackendKind::Ring,
                        fallback_reason: None,
                        pin_error,
                    };
                    return Ok(Self {
                        runtime,
                        backend: Backend::Ring(Box::new(ring)),
                        started,
                    });
                }
                Err(source) if config.backend == BackendChoice::Ring => {
                    return Err(ShardStartError::Ring { index, source });
                }
                Err(reason) => Some(reason),
            },
        };
        let runtime_error = |source| ShardStartError::Runtime { index, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(runtime_error)?;
        let (helper, finished) = Helper::start(&config.name, Arc::clone(counters)).map_err(runtime_error)?;
        Ok(Self {
            runtime: Runtime::Plain {
                tasks: LocalSet::new(),
                runtime,
            },
            backend: Backend::Blocking(helper, finished),
            started: Started {
                backend: BackendKind::Blocking,
                fallback_reason,
                pin_error,
            },
        })
    }

    fn run<F, Fut, T>(
        self,
        index: usize,
        counters: Arc<Counters>,
        report: &mpsc::Sender<Result<Started, ShardStartError>>,
        main: F,
    ) -> Option<T>
    where
        F: FnOnce(ShardContext) -> Fut,
        Fut: Future<Output = T>,
    {
        let Self {
            runtime,
            backend,
            started,
        } = self;
        runtime.block_on(async {
            // The spawner waits for one report.
            match ShardIo::start(backend, counters) {
                Ok(io) => {
                    let _ = report.send(Ok(started));
                    Some(main(ShardContext { index, io }).await)
                }
                Err(source) => {
                    let _ = report.send(Err(ShardStartError::Runtime { index, source }));
                    None
                }
            }
        })
    }
}

enum Runtime {
    Uring(tokio_uring::Runtime),
    /// Tasks are dropped before the runtime they may need for it.
    Plain {
        tasks: LocalSet,
        runtime: tokio::runtime::Runtime,
    },
}

impl Runtime {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Uring(runtime) => runtime.block_on(future),
            Self::Plain { tasks, runtime } => tasks.block_on(runtime, future),
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring(_) => "Uring",
            Self::Plain { .. } => "Plain",
        })
    }
}

fn open_ring(counters: &Arc<Counters>) -> io::Result<(Runtime, Ring)> {
    let ring = Ring::open(Arc::clone(counters))?;
    let mut completions = tokio_uring::uring_builder();
    completions.setup_cqsize(RUNTIME_RING_COMPLETIONS);
    let mut builder = tokio_uring::builder();
    builder.entries(RUNTIME_RING_ENTRIES).uring_builder(&completions);
    let runtime = tokio_uring::Runtime::new(&builder).map_err(super::limits::explain_ring_error)?;
    Ok((Runtime::Uring(runtime), ring))
}

fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no CPU {cpu}"),
        ));
    }
    // SAFETY: all bits zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, the number of bits in the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is a valid set of the size given and outlives the call; 0 is this thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
