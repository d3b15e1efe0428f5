//! The engine beside a bare ring and the standard library.
//!
//! ```text
//! cargo run --release -p ringlog-bench --example bench_engine -- --dir DIR
//! ```
//!
//! Other crates' logs are contestants in `bench/peers`. One program, one run, contestants interleaved, medians of the rounds. Owns the cases and the table.

mod bare_ring;
pub(crate) mod case;
mod ringlog;
mod std_file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bare_ring::Files;
use case::{Case, Outcome};
use clap::Parser;

/// Measures appends to logs: MB/s, CPU-seconds per GB and the time to the acknowledgement.
#[derive(Parser)]
struct Args {
    /// Where the logs are written, on the disk to be measured; everything is removed again.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Rounds; the table has their medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a contestant runs a case, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    run_ms: u64,
    /// Only the cases whose line begins with this, such as `durable 8 writers, 1 log`.
    #[arg(long, default_value = "")]
    only: String,
    /// GiB for the sequential read; 0 for none.
    #[arg(long, default_value_t = 1)]
    read_gib: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) takes: fn(&Case) -> bool,
    pub(crate) run: fn(&Case, &Path) -> Outcome,
}

const CONTESTANTS: &[Contestant] = &[
    Contestant {
        name: "ringlog",
        takes: |_| true,
        run: ringlog::run,
    },
    Contestant {
        name: "ring, into zeros",
        takes: |_| true,
        run: |case, dir| bare(case, Files::Zeroed, dir),
    },
    Contestant {
        name: "ring, into zeros, direct",
        takes: |case| case.durable,
        run: |case, dir| bare(case, Files::ZeroedDirect, dir),
    },
    Contestant {
        name: "ring, appending",
        takes: |_| true,
        run: |case, dir| bare(case, Files::Appending, dir),
    },
    Contestant {
        name: "std",
        takes: |_| true,
        run: |case, dir| std_file::run(case, dir).expect("the disk is sound"),
    },
];

fn bare(case: &Case, files: Files, dir: &Path) -> Outcome {
    bare_ring::run(case, files, dir).expect("the ring works and the disk is sound")
}

fn main() {
    run(&[]);
}

/// Measures the contestants of this program, and `more`.
pub(crate) fn run(more: &[Contestant]) {
    let args = Args::parse();
    println!("| case | | MB/s | of the ring's | CPU-s/GB | p50 us | p99 us | p99.9 us |");
    println!("|---|---|---|---|---|---|---|---|");
    let contestants = [CONTESTANTS, more].concat();
    for durable in [true, false] {
        for (writers, logs) in [(1, 1), (8, 1), (8, 8)] {
            for records in [1, 16, 64] {
                let run = Duration::from_millis(args.run_ms);
                let case = Case {
                    records,
                    writers,
                    logs,
                    durable,
                    run,
                };
                let name = name(&case);
                if name.starts_with(&args.only) {
                    measure(&case, &name, &args, &contestants);
                }
            }
        }
    }
    if args.read_gib > 0 {
        let dir = tempfile::tempdir_in(&args.dir).expect("the directory can be written to");
        println!(
            "sequential read, checked: {:.2} GB/s",
            ringlog::read(args.read_gib, dir.path())
        );
    }
}

fn name(case: &Case) -> String {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let durable = if case.durable { "durable" } else { "un-synced" };
    format!(
        "{durable} {}, {}, {}",
        plural(case.writers, "writer"),
        plural(case.logs, "log"),
        plural(case.records, "record")
    )
}

fn measure(case: &Case, name: &str, args: &Args, contestants: &[Contestant]) {
    let contestants: Vec<_> = contestants
        .iter()
        .filter(|contestant| (contestant.takes)(case))
        .collect();
    let mut outcomes: Vec<Vec<Outcome>> = contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds.max(1) {
        for (contestant, outcomes) in contestants.iter().zip(&mut outcomes) {
            let dir = tempfile::tempdir_in(&args.dir).expect("the directory can be written to");
            outcomes.push((contestant.run)(case, dir.path()));
        }
    }
    let median = |outcomes: &[Outcome], of: &dyn Fn(&Outcome) -> f64| {
        let mut values: Vec<f64> = outcomes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let yardstick = median(&outcomes[1], &Outcome::mb_per_s);
    for (contestant, outcomes) in contestants.iter().zip(&outcomes) {
        let latency = |quantile| median(outcomes, &|outcome| outcome.latency_us(quantile) as f64);
        let mb_per_s = median(outcomes, &Outcome::mb_per_s);
        println!(
            "| {name} | {} | {mb_per_s:.0} | {:.0} % | {:.2} | {:.0} | {:.0} | {:.0} |",
            contestant.name,
            100.0 * mb_per_s / yardstick,
            median(outcomes, &Outcome::cpu_s_per_gb),
            latency(0.5),
            latency(0.99),
            latency(0.999),
        );
    }
}
