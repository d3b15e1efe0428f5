//! From an offset to a range of a file: at the tail, where it is exact at once, and by the sparse
//! index of a log of several segments, where some headers are walked.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use ringlog_engine::config::LogConfig;
use ringlog_engine::log::{Narrow, ReadPlan};
use ringlog_engine::testing::LogDriver;
use ringlog_engine::types::Offset;

const BATCHES: i64 = 40_000;
const MAX_BYTES: u32 = 64 * 1024;

/// A log of 40,000 batches of one small record in some ten segments.
fn log() -> LogDriver {
    let config = LogConfig {
        segment_bytes: 1 << 20,
        ..LogConfig::default()
    };
    let mut driver = LogDriver::new(config);
    for batch in 0..BATCHES {
        driver.append(1, 200).expect("the batch is sound");
        if batch % 200 == 199 {
            driver.settle();
        }
    }
    driver
}

fn plan(driver: &LogDriver, offset: Offset) -> ReadPlan {
    let end = driver.log.log_end_offset();
    let plan = driver.log.read_plan(offset, MAX_BYTES, end);
    plan.expect("the offset is in range").expect("there are records")
}

fn locate(driver: &LogDriver, offset: Offset) -> ReadPlan {
    let mut plan = plan(driver, offset);
    let file = driver.disk.file_bytes(plan.file).expect("the file is open");
    while !plan.is_located() {
        let start = usize::try_from(plan.scan_position()).expect("a position in memory");
        let chunk = &file[start..start + plan.scan_bytes() as usize];
        let narrowed = plan.narrow(chunk).expect("the log is sound");
        assert!(matches!(narrowed, Narrow::Located | Narrow::NeedMore));
    }
    plan
}

fn read_plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read_plan");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    let driver = log();
    let tail = Offset(BATCHES - 10);
    assert!(plan(&driver, tail).is_located());
    group.bench_function("tail", |bencher| {
        bencher.iter(|| black_box(plan(&driver, black_box(tail))));
    });

    // Nothing is recent after a restart.
    let (driver, _) = driver.reopen().expect("the log is sound");
    let mut at = 0;
    let mut next = move || {
        at = (at + 7919) % BATCHES;
        Offset(at)
    };
    group.bench_function("index", |bencher| {
        bencher.iter(|| black_box(plan(&driver, next())));
    });
    group.bench_function("index_and_headers", |bencher| {
        bencher.iter(|| black_box(locate(&driver, next())));
    });
    group.finish();
}

criterion_group!(benches, read_plan);
criterion_main!(benches);
