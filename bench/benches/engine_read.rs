//! A sequential checked read through the embedder's API, from the page cache, beside a bare loop that reads and checksums.
//!
//! Owns two figures: what a reader gives per second, and how much of it is the reading and the checksum. Sizes of chunks vary, as
//! that is the one knob. Batches of 64 records of 1 KiB.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ringlog_engine::engine::ReadConfig;
use ringlog_engine::types::Offset;
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

const LOG_BYTES: usize = 256 << 20;
const RECORDS: usize = 64;
const VALUE_BYTES: usize = 1024;

fn fill(log: &LogHandle) {
    let value = [7; VALUE_BYTES];
    let records = [NewRecord::value(&value); RECORDS];
    for _ in 0..LOG_BYTES / (RECORDS * VALUE_BYTES) {
        // In order, and waited for by the flush.
        drop(log.append(&records, Durability::Buffered).wait());
    }
    log.flush().wait().expect("the disk takes it");
}

fn read_all(log: &LogHandle, chunk_bytes: u32) -> u64 {
    let config = ReadConfig {
        chunk_bytes,
        end: Some(log.offsets().written),
        ..ReadConfig::default()
    };
    log.reader(Offset(0), config)
        .map(|batch| batch.expect("whole").bytes().len() as u64)
        .sum()
}

fn read_and_checksum(file: &File, chunk: &mut [u8]) -> u32 {
    let (mut position, mut sum) = (0, 0);
    loop {
        let count = file.read_at(chunk, position).expect("it can be read");
        if count == 0 {
            return sum;
        }
        sum ^= crc32c::crc32c(&chunk[..count]);
        position += count as u64;
    }
}

fn sequential_read(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("there is room");
    let engine = Engine::open(dir.path(), EngineConfig::default()).expect("the directory is ours");
    let log = engine.log("read").expect("it is new");
    fill(&log);
    let path = dir.path().join("read").join("00000000000000000000.log");
    let bytes = Path::new(&path).metadata().expect("it is there").len();
    let file = File::open(&path).expect("it is there");
    let mut group = criterion.benchmark_group("sequential_read");
    group.throughput(Throughput::Bytes(bytes)).sample_size(10);
    for kib in [64, 256, 1024, 4096] {
        group.bench_function(BenchmarkId::new("reader", kib), |bencher| {
            bencher.iter(|| assert_eq!(read_all(&log, kib << 10), bytes));
        });
        let mut chunk = vec![0; kib as usize * 1024];
        group.bench_function(BenchmarkId::new("bare", kib), |bencher| {
            bencher.iter(|| black_box(read_and_checksum(&file, &mut chunk)));
        });
    }
    group.finish();
    engine.close().expect("it closes");
}

criterion_group!(benches, sequential_read);
criterion_main!(benches);
