//! Durable appends from writers that wait for each batch, with zeros ahead of the data and without, in turns.
//!
//! `cargo run --release -p ringlog-bench --example zero_window -- SECONDS REPETITIONS`
//!
//! Prints medians of the repetitions: MB/s, CPU-seconds of the process per GB, percentiles of a batch.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringlog_engine::config::LogConfig;
use ringlog_engine::{Durability, Engine, EngineConfig, NewRecord};

/// Writers, logs, bytes of a batch.
const CASES: [(usize, usize, usize); 11] = [
    (8, 8, 256 << 10),
    (8, 8, 64 << 10),
    (8, 8, 16 << 10),
    (8, 1, 256 << 10),
    (8, 1, 64 << 10),
    (8, 1, 16 << 10),
    (8, 1, 1 << 10),
    (1, 1, 1000 << 10),
    (1, 1, 256 << 10),
    (1, 1, 64 << 10),
    (1, 1, 16 << 10),
];

#[derive(Clone, Copy)]
struct Outcome {
    mb_per_s: f64,
    cpu_s_per_gb: f64,
    p50_us: f64,
    p99_us: f64,
}

/// User and system time of the process so far.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name")..].split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

fn run((writers, logs, bytes): (usize, usize, usize), zeros: u32, time: Duration, dir: &Path) -> Outcome {
    let _ = fs::remove_dir_all(dir);
    let config = EngineConfig {
        log: LogConfig {
            zero_window_bytes_max: zeros,
            ..LogConfig::default()
        },
        shards: 1,
        ..EngineConfig::default()
    };
    let engine = Engine::open(dir, config).expect("a new directory");
    let logs: Vec<_> = (0..logs)
        .map(|log| engine.log(&format!("log-{log}")).expect("a new log"))
        .collect();
    let value = vec![0x5a; bytes];
    let (started, cpu_before) = (Instant::now(), cpu_s());
    let mut latencies: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let (log, value) = (&logs[writer % logs.len()], &value);
                scope.spawn(move || {
                    let mut latencies = Vec::new();
                    while started.elapsed() < time {
                        let since = Instant::now();
                        let appended = log.append(&[NewRecord::value(value)], Durability::Flushed);
                        appended.wait().expect("the log takes it");
                        latencies.push(since.elapsed());
                    }
                    latencies
                })
            })
            .collect();
        let joined = threads.into_iter().flat_map(|t| t.join().expect("it ends"));
        joined.collect()
    });
    let (elapsed, cpu) = (started.elapsed().as_secs_f64(), cpu_s() - cpu_before);
    engine.close().expect("it stops");
    let _ = fs::remove_dir_all(dir);
    latencies.sort();
    let at = |per_mille: usize| latencies[(latencies.len() - 1) * per_mille / 1000].as_secs_f64() * 1e6;
    let gb = (latencies.len() * bytes) as f64 / 1e9;
    Outcome {
        mb_per_s: gb * 1e3 / elapsed,
        cpu_s_per_gb: cpu / gb,
        p50_us: at(500),
        p99_us: at(990),
    }
}

fn median(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    let mut values: Vec<f64> = outcomes.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let (seconds, repetitions) = match numbers[..] {
        [seconds, repetitions] => (seconds, repetitions),
        _ => (3, 5),
    };
    let dir = std::env::temp_dir().join(format!("ringlog-zero-window-{}", std::process::id()));
    for case in CASES {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let time = Duration::from_secs(seconds);
            without.push(run(case, 0, time, &dir));
            with.push(run(case, 8 << 20, time, &dir));
        }
        println!("{} writers, {} logs, {} KiB", case.0, case.1, case.2 >> 10);
        for (name, outcomes) in [("appending", &without), ("zeros", &with)] {
            println!(
                "  {name:9} {:7.1} MB/s {:6.2} CPU-s/GB  p50 {:6.0} us  p99 {:7.0} us",
                median(outcomes, |o| o.mb_per_s),
                median(outcomes, |o| o.cpu_s_per_gb),
                median(outcomes, |o| o.p50_us),
                median(outcomes, |o| o.p99_us)
            );
        }
    }
}
