//! The fetch path's `send_file` beside a bare loop of sendfile(2), from the page cache over loopback to a thread
//! that reads and forgets, in turns.
//!
//! `cargo run --release -p ringlog-bench --example sendfile -- DIR REPETITIONS`
//!
//! Prints medians: MB/s, CPU-seconds per GB of the sending thread, of which TCP takes more or less from run to run, and of
//! the process, reader included.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ringlog_engine::rt::residency::ensure_resident;
use ringlog_engine::rt::{
    BackendChoice, FileRange, LogFile, ShardConfig, ShardContext, send_file, spawn_shard,
};

const FILE_BYTES: u64 = 1 << 30;
/// A partition's share of a reply, as clients ask for it unless told otherwise.
const RANGE_BYTES: u32 = 1 << 20;
/// What the fetch path gives to one sendfile(2).
const CHUNK_BYTES: usize = 256 << 10;
/// The file is sent so often in a run.
const TIMES: u64 = 4;

#[derive(Clone, Copy)]
struct Outcome {
    mb_per_s: f64,
    sender_cpu_s_per_gb: f64,
    cpu_s_per_gb: f64,
}

/// User and system time so far of the calling thread, or of the process.
fn cpu_s(who: libc::c_int) -> f64 {
    // SAFETY: plain numbers, for which zeros are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` may be written to.
    assert_eq!(unsafe { libc::getrusage(who, &raw mut usage) }, 0);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A connection to a thread that reads until the end; the same congestion control for both, without pacing.
fn connect() -> (TcpStream, thread::JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    let name = b"cubic";
    // SAFETY: `name` is so long. Where there is no cubic the default stays.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            5,
        )
    };
    let (mut reading, _) = listener.accept().expect("loopback");
    let reader = thread::spawn(move || {
        let (mut buffer, mut total) = (vec![0; 256 << 10], 0);
        loop {
            match reading.read(&mut buffer).expect("loopback") {
                0 => return total,
                count => total += count as u64,
            }
        }
    });
    (stream, reader)
}

fn measure(send: impl FnOnce(TcpStream) -> f64) -> Outcome {
    let (stream, reader) = connect();
    let (started, before) = (Instant::now(), cpu_s(libc::RUSAGE_SELF));
    let sender_cpu_s = send(stream);
    let bytes = reader.join().expect("the reader does not panic");
    assert_eq!(bytes, FILE_BYTES * TIMES, "everything arrived");
    let gb = bytes as f64 / 1e9;
    Outcome {
        mb_per_s: gb * 1e3 / started.elapsed().as_secs_f64(),
        sender_cpu_s_per_gb: sender_cpu_s / gb,
        cpu_s_per_gb: (cpu_s(libc::RUSAGE_SELF) - before) / gb,
    }
}

fn bare(path: &Path) -> Outcome {
    let file = File::open(path).expect("the file is there");
    measure(|stream| {
        let before = cpu_s(libc::RUSAGE_THREAD);
        for _ in 0..TIMES {
            let mut offset = 0;
            while (offset as u64) < FILE_BYTES {
                // SAFETY: both descriptors are open, and `offset` outlives the call.
                let sent = unsafe {
                    libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), &raw mut offset, CHUNK_BYTES)
                };
                assert!(sent > 0, "{}", std::io::Error::last_os_error());
            }
        }
        cpu_s(libc::RUSAGE_THREAD) - before
    })
}

fn shard(path: &Path) -> Outcome {
    let file = Arc::new(LogFile::new(File::open(path).expect("the file is there"), path));
    measure(|stream| {
        let config = ShardConfig {
            index: 0,
            cpu: None,
            name: "shard-0".to_owned(),
            backend: BackendChoice::Auto,
        };
        let main = async move |context: ShardContext| {
            let before = cpu_s(libc::RUSAGE_THREAD);
            stream.set_nonblocking(true).expect("a socket");
            let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
            for _ in 0..TIMES {
                for position in (0..FILE_BYTES).step_by(RANGE_BYTES as usize) {
                    let range = FileRange {
                        file: file.clone(),
                        position,
                        len_bytes: RANGE_BYTES,
                    };
                    ensure_resident(&context.io, &range).await.expect("readable");
                    send_file(&stream, &range, context.io.counters())
                        .await
                        .expect("loopback");
                }
            }
            cpu_s(libc::RUSAGE_THREAD) - before
        };
        let shard = spawn_shard(config, main).expect("a shard starts");
        shard.join().expect("it does not panic")
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap_or_else(|| ".".to_owned());
    let repetitions: usize = arguments
        .next()
        .map_or(5, |text| text.parse().expect("a number of repetitions"));
    let dir = tempfile::tempdir_in(dir).expect("the directory can be written to");
    let path = dir.path().join("0.log");
    let mut file = File::create(&path).expect("a new file");
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&[0x5a; 1 << 20]).expect("there is room");
    }
    file.sync_all().expect("the disk is sound");
    let mut outcomes = [Vec::new(), Vec::new()];
    for _ in 0..repetitions.max(1) {
        outcomes[0].push(bare(&path));
        outcomes[1].push(shard(&path));
    }
    println!("| | MB/s | CPU-s/GB of the sender | of both |\n|---|---|---|---|");
    for (name, outcomes) in ["bare sendfile(2)", "send_file"].iter().zip(&outcomes) {
        let median = |of: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "| {name} | {:.0} | {:.3} | {:.3} |",
            median(|outcome| outcome.mb_per_s),
            median(|outcome| outcome.sender_cpu_s_per_gb),
            median(|outcome| outcome.cpu_s_per_gb)
        );
    }
}
