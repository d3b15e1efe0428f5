//! Checking a producer's batch, and reading the records of one.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringlog_bench::fixtures::batch;
use ringlog_engine::record::RecordBatch;

const MAX_BYTES: u32 = 16 << 20;

fn validate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("validate_from_producer");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    for kib in [1, 16, 64, 1024] {
        let bytes = batch(kib, 1024);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("{kib}_KiB"), |bencher| {
            bencher.iter(|| {
                RecordBatch::validate_from_producer(black_box(&bytes), MAX_BYTES).expect("the batch is sound")
            });
        });
    }
    group.finish();
}

fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("records");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    for value_bytes in [10, 1024] {
        let bytes = batch(1000, value_bytes);
        let batch = RecordBatch::parse(&bytes).expect("the batch is sound");
        group.throughput(Throughput::Elements(1000));
        group.bench_function(format!("1000_of_{value_bytes}_bytes"), |bencher| {
            bencher.iter(|| {
                let records = batch.records(0).expect("it is not compressed");
                records
                    .iter()
                    .map(|record| record.expect("the batch is sound").value.map_or(0, <[u8]>::len))
                    .sum::<usize>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, validate, records);
criterion_main!(benches);
