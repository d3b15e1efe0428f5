//! The conformance suite over the ring, over the helper thread and over the simulated disk, and what only
//! a shard shows: progress beside a busy task, dropped reads, the end of a shard, the reasons it gives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::Bytes;
use ringlog_engine::io::{FileId, IoCompletion, IoOp, IoRequest, IoToken, OpenMode, Storage};
use ringlog_engine::rt::{
    BackendChoice, BackendKind, Counter, ShardConfig, ShardContext, ShardHandle, ShardIo, spawn_shard,
};
use ringlog_engine::testing::SimDisk;
use ringlog_engine::testing::io_suite::Device;
use ringlog_engine::types::LogId;

struct ShardDevice {
    io: ShardIo,
}

impl Device for ShardDevice {
    async fn run(&mut self, requests: Vec<IoRequest>) -> Vec<IoCompletion> {
        run(&self.io, requests).await
    }

    fn storage<R>(&mut self, f: impl FnOnce(&mut dyn Storage) -> R) -> R {
        f(&mut *self.io.files().borrow_mut())
    }
}

struct SimDevice {
    disk: SimDisk,
}

impl Device for SimDevice {
    async fn run(&mut self, requests: Vec<IoRequest>) -> Vec<IoCompletion> {
        self.disk.submit(requests);
        std::iter::from_fn(|| self.disk.complete_any()).collect()
    }

    fn storage<R>(&mut self, f: impl FnOnce(&mut dyn Storage) -> R) -> R {
        f(&mut self.disk)
    }
}

async fn run(io: &ShardIo, requests: Vec<IoRequest>) -> Vec<IoCompletion> {
    let count = requests.len();
    io.submit(requests);
    let mut completions = Vec::new();
    while completions.len() < count {
        io.completions(&mut completions).await;
    }
    completions
}

fn request(token: u64, op: IoOp) -> IoRequest {
    IoRequest {
        log: LogId(1),
        token: IoToken(token),
        op,
    }
}

const FILE: FileId = FileId {
    log: LogId(1),
    number: 0,
};

/// Creates `FILE` at `path` with `contents`.
async fn filled(io: &ShardIo, path: PathBuf, contents: &[u8]) {
    let created = run(io, vec![request(0, IoOp::Create { file: FILE, path })]).await;
    created[0].result.as_ref().unwrap();
    let buffers = vec![Bytes::copy_from_slice(contents)];
    let written = run(
        io,
        vec![request(
            1,
            IoOp::Write {
                file: FILE,
                position: 0,
                buffers,
            },
        )],
    )
    .await;
    written[0].result.as_ref().unwrap();
}

fn config(backend: BackendChoice) -> ShardConfig {
    ShardConfig {
        index: 0,
        cpu: None,
        name: "shard-0".to_owned(),
        backend,
    }
}

/// Runs `main` on a shard to its end, with a directory of its own on the disk of the build: the
/// system's temporary directory may be in memory.
fn on_shard<F, Fut, T>(backend: BackendChoice, main: F) -> T
where
    F: FnOnce(ShardContext, PathBuf) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_path_buf();
    let shard = spawn_shard(config(backend), move |context| main(context, path)).unwrap();
    joined(shard)
}

fn joined<T>(shard: ShardHandle<T>) -> T {
    shard
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

macro_rules! on_ring {
    ($case:path) => {
        on_shard(
            BackendChoice::Ring,
            async |context: ShardContext, dir: PathBuf| {
                $case(&mut ShardDevice { io: context.io }, &dir).await;
            },
        )
    };
}

/// Every file but the one used last is closed by the table, and opened again when it is used.
macro_rules! on_ring_with_one_file_open {
    ($case:path) => {
        on_shard(
            BackendChoice::Ring,
            async |context: ShardContext, dir: PathBuf| {
                context.io.files().borrow_mut().set_open_max(1);
                $case(&mut ShardDevice { io: context.io }, &dir).await;
            },
        )
    };
}

macro_rules! on_helper {
    ($case:path) => {
        on_shard(
            BackendChoice::Blocking,
            async |context: ShardContext, dir: PathBuf| {
                $case(&mut ShardDevice { io: context.io }, &dir).await;
            },
        )
    };
}

/// Nothing but the order of completions depends on the seed.
macro_rules! on_simulated_disks {
    ($case:path) => {
        for seed in 0..10 {
            let mut disk = SimDisk::with_seed(seed);
            let dir = Path::new("/data");
            disk.create_dirs(dir);
            let mut device = SimDevice { disk };
            let mut case = pin!($case(&mut device, dir));
            let polled = case.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_ready(), "the simulated disk waits for nothing");
        }
    };
}

mod ring {
    use super::*;

    ringlog_engine::io_suite!(on_ring);
}

mod ring_with_one_file_open {
    use super::*;

    ringlog_engine::io_suite!(on_ring_with_one_file_open);
}

mod helper_thread {
    use super::*;

    ringlog_engine::io_suite!(on_helper);
}

mod simulated_disk {
    use super::*;

    ringlog_engine::io_suite!(on_simulated_disks);
}

#[test]
fn requests_complete_while_a_task_never_lets_the_runtime_sleep() {
    on_shard(BackendChoice::Ring, async |context, dir| {
        let io = context.io;
        let over = Rc::new(Cell::new(false));
        let busy = tokio::task::spawn_local({
            let over = Rc::clone(&over);
            async move {
                while !over.get() {
                    tokio::task::yield_now().await;
                }
            }
        });
        filled(&io, dir.join("0.log"), b"0123456789").await;
        let bytes = Bytes::from_static(b"contents");
        let results = run(
            &io,
            vec![
                request(2, IoOp::Sync { file: FILE }),
                request(
                    3,
                    IoOp::Put {
                        path: dir.join("checkpoint"),
                        bytes,
                    },
                ),
                request(4, IoOp::Close { file: FILE }),
                request(
                    5,
                    IoOp::Remove {
                        paths: vec![dir.join("0.log")],
                    },
                ),
            ],
        )
        .await;
        assert!(
            results.iter().all(|completion| completion.result.is_ok()),
            "{results:?}"
        );
        assert!(!busy.is_finished());
        over.set(true);
        busy.await.unwrap();
        assert_eq!(std::fs::read(dir.join("checkpoint")).unwrap(), b"contents");
    });
}

#[test]
fn dropped_reads_leave_their_memory_to_the_ring_and_their_places_to_others() {
    for backend in [BackendChoice::Ring, BackendChoice::Blocking] {
        on_shard(backend, async |context, dir| {
            let io = context.io;
            let contents: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
            filled(&io, dir.join("0.log"), &contents).await;
            let file = io.files().borrow_mut().file(FILE).unwrap();
            // More than may be under way at once: a place not given back would end this.
            for _ in 0..500 {
                let mut read = Box::pin(io.read(file.clone(), 0, 4096));
                std::future::poll_fn(|cx| {
                    let _ = read.as_mut().poll(cx);
                    std::task::Poll::Ready(())
                })
                .await;
                drop(read);
            }
            let whole = io.read(file, 0, 1 << 20).await.unwrap();
            assert_eq!(whole, contents);
        });
    }
}

#[test]
fn write_to_a_full_device_fails_names_the_file_and_is_told_apart() {
    for backend in [BackendChoice::Ring, BackendChoice::Blocking] {
        on_shard(backend, async |context, _| {
            let io = context.io;
            io.files()
                .borrow_mut()
                .open(FILE, Path::new("/dev/full"), OpenMode::Existing)
                .unwrap();
            let buffers = vec![Bytes::from_static(b"no room")];
            let write = IoOp::Write {
                file: FILE,
                position: 0,
                buffers,
            };
            let error = run(&io, vec![request(0, write)])
                .await
                .remove(0)
                .result
                .unwrap_err();
            assert!(error.is_storage_full(), "{error:?}");
            assert_eq!(error.operation, "write /dev/full at 0");
        });
    }
}

#[test]
fn zeros_that_are_refused_are_an_error_that_names_the_file() {
    for backend in [BackendChoice::Ring, BackendChoice::Blocking] {
        on_shard(backend, async |context, _| {
            let io = context.io;
            io.files()
                .borrow_mut()
                .open(FILE, Path::new("/dev/full"), OpenMode::Existing)
                .unwrap();
            let zeros = IoOp::Zero {
                file: FILE,
                position: 4096,
                len_bytes: 4096,
            };
            let error = run(&io, vec![request(0, zeros)])
                .await
                .remove(0)
                .result
                .unwrap_err();
            assert_eq!(error.operation, "write zeros to /dev/full at 4096");
        });
    }
}

#[test]
fn shard_that_ends_finishes_the_writes_under_way() {
    for backend in [BackendChoice::Ring, BackendChoice::Blocking] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("0.log");
        let shard_path = path.clone();
        let shard = spawn_shard(config(backend), async move |context: ShardContext| {
            filled(&context.io, shard_path, b"").await;
            let writes = (0..64).map(|index| {
                let buffers = vec![Bytes::from(vec![7; 65536])];
                request(
                    index,
                    IoOp::Write {
                        file: FILE,
                        position: index * 65536,
                        buffers,
                    },
                )
            });
            context.io.submit(writes.collect::<Vec<_>>());
        });
        joined(shard.unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 * 65536]);
    }
}

#[test]
fn counters_tell_the_ring_from_the_helper_thread() {
    let counters = |backend| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("0.log");
        let shard = spawn_shard(config(backend), async move |context: ShardContext| {
            filled(&context.io, path, b"12345").await;
            run(&context.io, vec![request(2, IoOp::Sync { file: FILE })]).await;
            let file = context.io.files().borrow_mut().file(FILE).unwrap();
            context.io.read(file, 0, 5).await.unwrap();
        })
        .unwrap();
        let (kind, counters) = (shard.backend(), shard.counters().clone());
        joined(shard);
        let ring = [
            &counters.ring_writes,
            &counters.ring_write_bytes,
            &counters.ring_syncs,
            &counters.ring_reads,
        ];
        (kind, ring.map(Counter::value), counters.blocking_ops.value())
    };
    assert_eq!(
        counters(BackendChoice::Auto),
        (BackendKind::Ring, [1, 5, 1, 1], 0)
    );
    assert_eq!(
        counters(BackendChoice::Blocking),
        (BackendKind::Blocking, [0, 0, 0, 0], 4)
    );
}

#[test]
fn shard_runs_on_its_cpu_under_its_name() {
    let pinned = ShardConfig {
        cpu: Some(0),
        ..config(BackendChoice::Auto)
    };
    let shard = spawn_shard(pinned, async |context: ShardContext| {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        (context.index, line("Name:"), line("Cpus_allowed_list:"))
    })
    .unwrap();
    assert!(shard.pin_error().is_none());
    assert_eq!(joined(shard), (0, "shard-0".to_owned(), "0".to_owned()));
}

#[test]
fn unknown_cpu_is_reported_and_the_shard_runs() {
    let nowhere = ShardConfig {
        cpu: Some(1023),
        ..config(BackendChoice::Auto)
    };
    let shard = spawn_shard(nowhere, async |_: ShardContext| 1).unwrap();
    assert!(shard.pin_error().is_some());
    assert_eq!(joined(shard), 1);
}
