//! sendfile over a real loopback connection, and the probe that keeps it from blocking.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use ringlog_engine::rt::residency::{ensure_resident, is_resident, read_nowait};
use ringlog_engine::rt::{
    BackendChoice, FileRange, LogFile, ShardConfig, ShardContext, send_file, spawn_shard,
};
use tokio::net::TcpStream;

fn on_shard<F, Fut, T>(main: F) -> T
where
    F: FnOnce(ShardContext) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let config = ShardConfig {
        index: 0,
        cpu: None,
        name: "shard-0".to_owned(),
        backend: BackendChoice::Auto,
    };
    let shard = spawn_shard(config, main).unwrap();
    shard
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn pattern(len_bytes: usize) -> Vec<u8> {
    (0..len_bytes)
        .map(|at| ((at * 31 + at / 251) % 256) as u8)
        .collect()
}

fn log_file(dir: &Path, contents: &[u8]) -> Arc<LogFile> {
    let path = dir.join("0.log");
    std::fs::write(&path, contents).unwrap();
    Arc::new(LogFile::new(std::fs::File::open(&path).unwrap(), path))
}

/// A listener and the directory for a file, on the disk of the build.
fn fixture() -> (TcpListener, tempfile::TempDir) {
    (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    )
}

#[test]
fn range_larger_than_the_socket_buffer_reaches_a_slow_reader_whole() {
    let (listener, dir) = fixture();
    let address = listener.local_addr().unwrap();
    let contents = pattern(24 << 20);
    let file = log_file(dir.path(), &contents);
    let len_bytes = contents.len() as u32 - 1000;

    let reader = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        // Small reads: the sender finds the socket full again and again.
        let mut buf = vec![0; 10_000];
        loop {
            match socket.read(&mut buf).unwrap() {
                0 => return received,
                count => received.extend_from_slice(&buf[..count]),
            }
        }
    });
    let (sent, calls, bytes, copied) = on_shard(async move |context: ShardContext| {
        let stream = TcpStream::connect(address).await.unwrap();
        let counters = context.io.counters();
        let range = FileRange {
            file,
            position: 300,
            len_bytes,
        };
        let sent = send_file(&stream, &range, counters).await.unwrap();
        (
            sent,
            counters.sendfile_calls.value(),
            counters.sendfile_bytes.value(),
            counters.fetch_bytes_copied.value(),
        )
    });
    assert_eq!(
        (sent, bytes, copied),
        (u64::from(len_bytes), u64::from(len_bytes), 0)
    );
    assert!(
        calls >= u64::from(len_bytes).div_ceil(256 * 1024),
        "{calls} calls"
    );
    let received = reader.join().unwrap();
    assert!(
        received == contents[300..][..len_bytes as usize],
        "the bytes differ"
    );
}

#[test]
fn other_tasks_run_while_a_reader_does_not_read() {
    let (listener, dir) = fixture();
    let address = listener.local_addr().unwrap();
    let file = log_file(dir.path(), &pattern(24 << 20));
    on_shard(async move |context: ShardContext| {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let counters = Arc::clone(context.io.counters());
        let send = tokio::task::spawn_local(async move {
            let range = FileRange {
                file,
                position: 0,
                len_bytes: 24 << 20,
            };
            send_file(&stream, &range, &counters).await
        });
        // Nobody reads until this task, on the same thread, has had its turns.
        while context.io.counters().sendfile_calls.value() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!send.is_finished());
        let received = std::thread::spawn(move || {
            let mut received = Vec::new();
            socket.read_to_end(&mut received).unwrap();
            received.len()
        });
        assert_eq!(send.await.unwrap().unwrap(), 24 << 20);
        assert_eq!(received.join().unwrap(), 24 << 20);
    });
}

#[test]
fn file_shorter_than_the_range_is_an_error_naming_it() {
    let (listener, dir) = fixture();
    let address = listener.local_addr().unwrap();
    let file = log_file(dir.path(), &pattern(1000));
    let error = on_shard(async move |context: ShardContext| {
        let stream = TcpStream::connect(address).await.unwrap();
        let range = FileRange {
            file,
            position: 900,
            len_bytes: 101,
        };
        send_file(&stream, &range, context.io.counters())
            .await
            .unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("0.log"), "{error}");
}

#[test]
fn connection_closed_by_the_reader_ends_the_send() {
    let (listener, dir) = fixture();
    let address = listener.local_addr().unwrap();
    let file = log_file(dir.path(), &pattern(24 << 20));
    let error = on_shard(async move |context: ShardContext| {
        let stream = TcpStream::connect(address).await.unwrap();
        drop(listener.accept().unwrap());
        let range = FileRange {
            file,
            position: 0,
            len_bytes: 24 << 20,
        };
        send_file(&stream, &range, context.io.counters())
            .await
            .unwrap_err()
    });
    assert!(
        matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
        "{error}"
    );
}

/// A file whose pages are not in memory. The first probe of a page starts reading it, so that only one
/// probe after an eviction is sure to find it cold.
fn cold_file(dir: &Path, contents: &[u8]) -> Arc<LogFile> {
    let file = log_file(dir, contents);
    file.file().sync_all().unwrap();
    // SAFETY: the descriptor is open; the call takes no memory.
    let evicted = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(evicted, 0);
    file
}

#[test]
fn cold_range_is_read_by_the_ring_and_then_resident() {
    let (_listener, dir) = fixture();
    let contents = pattern(3 << 20);
    let file = cold_file(dir.path(), &contents);
    on_shard(async move |context: ShardContext| {
        let range = FileRange {
            file,
            position: 4096,
            len_bytes: (3 << 20) - 4096,
        };
        ensure_resident(&context.io, &range).await.unwrap();
        assert_eq!(context.io.counters().residency_misses.value(), 1);
        assert_eq!(context.io.counters().ring_reads.value(), 3);
        let copied = context.io.counters().fetch_bytes_copied.value();
        assert_eq!(copied, u64::from(range.len_bytes));
        assert!(is_resident(&range).unwrap());
        let mut header = [0; 61];
        assert_eq!(read_nowait(&range.file, 4096, &mut header).unwrap(), Some(61));
        assert_eq!(header, contents[4096..][..61]);
        ensure_resident(&context.io, &range).await.unwrap();
        assert_eq!(context.io.counters().residency_misses.value(), 1);
    });
}

#[test]
fn read_nowait_does_not_wait_for_the_disk() {
    let (_listener, dir) = fixture();
    let file = cold_file(dir.path(), &pattern(1 << 20));
    assert_eq!(read_nowait(&file, 4096, &mut [0; 61]).unwrap(), None);
}

#[test]
fn read_nowait_at_the_end_of_the_file_is_short() {
    let (_listener, dir) = fixture();
    let file = log_file(dir.path(), b"0123456789");
    let mut buf = [0; 8];
    assert_eq!(read_nowait(&file, 6, &mut buf).unwrap(), Some(4));
    assert_eq!(read_nowait(&file, 10, &mut buf).unwrap(), Some(0));
}
