//! One pass of compaction over a log in memory, from the key map to the new segments: the cleaner's
//! own work, without a disk.

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ringlog_bench::fixtures::NOW;
use ringlog_engine::config::{CompactionConfig, LogConfig};
use ringlog_engine::log::Log;
use ringlog_engine::log::compaction::{Cleaner, CleanerConfig, CleaningStats};
use ringlog_engine::record::{Compression, RecordBatchBuilder};
use ringlog_engine::testing::{LogDriver, SimDisk};

const BATCHES: u64 = 2_000;
const RECORDS_PER_BATCH: u64 = 16;
const VALUE_BYTES: usize = 1024;
/// Each key is written twice: half of the log goes.
const KEYS: u64 = BATCHES * RECORDS_PER_BATCH / 2;

/// 32 MiB of records of 1 KiB, in segments of 4 MiB.
fn log(codec: Compression) -> LogDriver {
    let config = LogConfig {
        segment_bytes: 4 << 20,
        compaction: Some(CompactionConfig::default()),
        ..LogConfig::default()
    };
    let mut driver = LogDriver::new(config);
    driver.now = NOW;
    let mut random = 1_u64;
    for batch in 0..BATCHES {
        let mut builder = RecordBatchBuilder::new().compression(codec);
        for record in 0..RECORDS_PER_BATCH {
            // Half of each value repeats, as text does.
            let value: Vec<u8> = (0..VALUE_BYTES)
                .map(|at| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if at % 2 == 0 {
                        b'x'
                    } else {
                        random.to_le_bytes()[0]
                    }
                })
                .collect();
            let key = (batch * RECORDS_PER_BATCH + record) * 7_919 % KEYS;
            builder
                .append(NOW, Some(&key.to_be_bytes()), Some(&value), &[])
                .expect("the batch is small");
        }
        let bytes = builder.build().expect("the batch is small");
        driver
            .log
            .append_as_leader(bytes.as_ref().into(), driver.epoch, NOW)
            .expect("the batch is sound");
        driver.settle();
    }
    driver
}

fn pass(log: &mut Log, disk: &mut SimDisk) -> CleaningStats {
    let end = log.flushed_offset();
    let job = log.begin_cleaning(end, NOW).expect("the log is dirty");
    let config = CleanerConfig {
        map_bytes: 128 << 20,
        map_load_percent: 90,
    };
    let mut cleaner = Cleaner::start(job, config, disk, &mut |_| true).expect("the log is sound");
    while cleaner
        .next_segment(disk, &mut |_| true)
        .expect("the log is sound")
        .is_some()
    {}
    cleaner.stats()
}

fn compaction(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compaction");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(3));
    for codec in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let LogDriver { mut log, disk, .. } = log(codec);
        let stats = pass(&mut log, &mut disk.clone());
        assert!(stats.dropped_records > KEYS / 2 && stats.keys > 0);
        // What lies in the log, though the pass reads it twice.
        group.throughput(Throughput::Bytes(log.size_bytes()));
        group.bench_function(format!("pass_{codec:?}").to_lowercase(), |bencher| {
            bencher.iter_batched_ref(
                || disk.clone(),
                |disk| pass(&mut log, disk),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, compaction);
criterion_main!(benches);
