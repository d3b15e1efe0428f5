//! More files than may be open: all of them are read, written and sent while few are open.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ringlog_engine::io::{FileId, IoCompletion, IoOp, IoOutput, IoRequest, IoToken, OpenMode, Storage};
use ringlog_engine::rt::{
    BackendChoice, FileRange, ShardConfig, ShardContext, ShardIo, send_file, spawn_shard,
};
use ringlog_engine::types::LogId;
use tokio::net::TcpStream;

const FILES: u32 = 500;
const OPEN_MAX: usize = 16;
const FILE_BYTES: usize = 8192;

fn id(number: u32) -> FileId {
    FileId {
        log: LogId(number / 100),
        number,
    }
}

fn contents(number: u32) -> Bytes {
    (0..FILE_BYTES)
        .map(|at| (at % 251) as u8 ^ number.to_le_bytes()[at % 2])
        .collect()
}

fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:020}.log"))
}

/// Runs `main` on a shard whose table keeps few files open, with a directory of its own.
fn on_shard<F, Fut>(backend: BackendChoice, main: F)
where
    F: FnOnce(ShardContext, PathBuf) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_path_buf();
    let config = ShardConfig {
        index: 0,
        cpu: None,
        name: "shard-0".to_owned(),
        backend,
    };
    let shard = spawn_shard(config, move |context| {
        context.io.files().borrow_mut().set_open_max(OPEN_MAX);
        main(context, path)
    });
    shard
        .unwrap()
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

async fn run(io: &ShardIo, log: LogId, op: IoOp) -> IoCompletion {
    let token = IoToken(0);
    io.submit([IoRequest { log, token, op }]);
    let mut completions = Vec::new();
    io.completions(&mut completions).await;
    completions.remove(0)
}

async fn done(io: &ShardIo, file: FileId, op: IoOp) {
    assert_eq!(run(io, file.log, op).await.result.unwrap(), IoOutput::Done);
}

/// Files below `dir` that this process has open.
fn open_files(dir: &Path) -> Vec<PathBuf> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
    targets
        .filter(|target| target.starts_with(dir) && target != dir)
        .collect()
}

async fn write_all_files(io: &ShardIo, dir: &Path) {
    for number in 0..FILES {
        let (file, path) = (id(number), path(dir, number));
        done(io, file, IoOp::Create { file, path }).await;
        let (position, buffers) = (0, vec![contents(number)]);
        let write = IoOp::Write {
            file,
            position,
            buffers,
        };
        done(io, file, write).await;
        done(io, file, IoOp::Sync { file }).await;
    }
}

async fn check_by_requests(io: &ShardIo, dir: &Path) {
    write_all_files(io, dir).await;
    assert!(open_files(dir).len() <= OPEN_MAX, "{:?}", open_files(dir));
    // From the oldest on: none of them is open when its turn comes.
    for number in (0..FILES).chain((0..FILES).rev()) {
        let read = IoOp::Read {
            file: id(number),
            position: 0,
            len_bytes: 10_000,
        };
        let read = run(io, id(number).log, read).await.result.unwrap();
        assert_eq!(read, IoOutput::Read(contents(number)));
        assert!(open_files(dir).len() <= OPEN_MAX + 1);
    }
}

#[test]
fn five_hundred_files_are_read_through_sixteen_descriptors_of_the_ring() {
    on_shard(BackendChoice::Auto, async |context, dir| {
        check_by_requests(&context.io, &dir).await;
    });
}

#[test]
fn five_hundred_files_are_read_through_sixteen_descriptors_of_the_helper() {
    on_shard(BackendChoice::Blocking, async |context, dir| {
        check_by_requests(&context.io, &dir).await;
    });
}

#[test]
fn opening_hundreds_of_files_at_start_keeps_few_open() {
    on_shard(BackendChoice::Blocking, async |context, dir| {
        for number in 0..FILES {
            std::fs::write(path(&dir, number), contents(number)).unwrap();
        }
        let mut table = context.io.files().borrow_mut();
        for number in 0..FILES {
            let len_bytes = table.open(id(number), &path(&dir, number), OpenMode::Existing);
            assert_eq!(len_bytes.unwrap(), FILE_BYTES as u64);
        }
        assert_eq!(open_files(&dir).len(), OPEN_MAX);
        let mut buf = vec![0; FILE_BYTES];
        for number in 0..FILES {
            assert_eq!(table.read_at(id(number), 0, &mut buf).unwrap(), FILE_BYTES);
            assert_eq!(buf, contents(number));
        }
        for number in 0..FILES {
            table.close(id(number));
        }
        assert_eq!(open_files(&dir).len(), 0);
    });
}

#[test]
fn files_are_sent_whole_though_the_table_closes_them_meanwhile() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    on_shard(BackendChoice::Auto, async move |context, dir| {
        let io = &context.io;
        write_all_files(io, &dir).await;
        let stream = TcpStream::connect(address).await.unwrap();
        let ranges: Vec<_> = (0..FILES)
            .map(|number| FileRange {
                file: io.files().borrow_mut().file(id(number)).unwrap(),
                position: 0,
                len_bytes: FILE_BYTES as u32,
            })
            .collect();
        // Each range keeps its own file open; the table has let go of most.
        assert_eq!(open_files(&dir).len(), FILES as usize);
        for range in ranges {
            assert_eq!(
                send_file(&stream, &range, io.counters()).await.unwrap(),
                FILE_BYTES as u64
            );
        }
        assert!(open_files(&dir).len() <= OPEN_MAX);
        // And one after another, opened as they are asked for.
        for number in 0..FILES {
            let range = FileRange {
                file: io.files().borrow_mut().file(id(number)).unwrap(),
                position: 0,
                len_bytes: FILE_BYTES as u32,
            };
            send_file(&stream, &range, io.counters()).await.unwrap();
            assert!(open_files(&dir).len() <= OPEN_MAX + 1);
        }
    });
    let received = reader.join().unwrap();
    let wanted: Vec<u8> = (0..FILES).chain(0..FILES).flat_map(contents).collect();
    assert!(received == wanted, "the bytes differ");
}

#[test]
fn what_is_written_and_not_synced_stays_open() {
    on_shard(BackendChoice::Auto, async |context, dir| {
        let io = &context.io;
        write_all_files(io, &dir).await;
        for number in 0..100 {
            let (position, buffers) = (FILE_BYTES as u64, vec![Bytes::from_static(b"more")]);
            let file = id(number);
            done(
                io,
                file,
                IoOp::Write {
                    file,
                    position,
                    buffers,
                },
            )
            .await;
        }
        for number in 100..FILES {
            drop(io.files().borrow_mut().file(id(number)).unwrap());
        }
        let open = open_files(&dir);
        for number in 0..100 {
            assert!(open.contains(&path(&dir, number)), "{number}");
        }
        for number in 0..100 {
            let file = id(number);
            done(io, file, IoOp::Sync { file }).await;
        }
        for number in 100..FILES {
            drop(io.files().borrow_mut().file(id(number)).unwrap());
        }
        assert!(open_files(&dir).len() <= OPEN_MAX);
    });
}

#[test]
fn a_file_whose_name_changes_is_still_the_same_file() {
    on_shard(BackendChoice::Auto, async |context, dir| {
        let io = &context.io;
        write_all_files(io, &dir).await;
        // The name of the first now leads to the second, and both have been closed by the table.
        let renames = vec![
            (path(&dir, 0), dir.join("0.log.deleted")),
            (path(&dir, 1), path(&dir, 0)),
        ];
        done(io, id(0), IoOp::Rename { renames }).await;
        for number in (2..FILES).chain(0..2) {
            let read = io.files().borrow_mut().file(id(number)).unwrap();
            assert!(
                io.read(read, 0, 10_000).await.unwrap() == contents(number),
                "{number}"
            );
        }
    });
}

#[test]
fn a_deleted_file_that_is_not_open_is_not_found() {
    on_shard(BackendChoice::Auto, async |context, dir| {
        let io = &context.io;
        write_all_files(io, &dir).await;
        std::fs::remove_file(path(&dir, 0)).unwrap();
        let error = io.files().borrow_mut().file(id(0)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        // It can still be closed, as a log does without looking.
        done(io, id(0), IoOp::Close { file: id(0) }).await;
        assert!(
            run(io, id(0).log, IoOp::Close { file: id(0) })
                .await
                .result
                .is_err()
        );
    });
}
