//! What appending costs the state machine: checks, offsets, staging, the requests of a turn and their
//! completions. Nothing is written: requests succeed as soon as they are made.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringlog_bench::fixtures::{NOW, batch, complete_all, new_log};
use ringlog_engine::io::IoQueue;
use ringlog_engine::types::LeaderEpoch;

/// Batches appended before a turn ends, as several connections would send them.
const BATCHES_A_TURN: usize = 8;

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    for records in [1, 16, 64] {
        let original = batch(records, 1024);
        group.throughput(Throughput::Bytes((BATCHES_A_TURN * original.len()) as u64));
        group.bench_function(format!("8_batches_of_{records}_x_1KiB"), |bencher| {
            bencher.iter_custom(|turns| {
                let mut log = new_log();
                let mut queue = IoQueue::new();
                let mut spent = Duration::ZERO;
                for _ in 0..turns {
                    // A batch arrives in memory of its own, which is not the log's cost.
                    let batches: [BytesMut; BATCHES_A_TURN] = std::array::from_fn(|_| original.clone());
                    let start = Instant::now();
                    for batch in batches {
                        let info = log.append_as_leader(batch, LeaderEpoch(0), NOW);
                        black_box(info.expect("the batch is sound"));
                    }
                    complete_all(&mut log, &mut queue);
                    spent += start.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group!(benches, append);
criterion_main!(benches);
