//! How long an engine takes to open many logs, after a clean stop and after `kill -9`, and what idle logs cost.
//!
//! `cargo run --release -p ringlog-bench --example reopen -- [--gb 10] [--logs 100] [--many 1000] [--idle 10000] [--dir DIR]`
//!
//! Each time is that of one `Engine::open` with the default settings, warm, in a process of its own, with the
//! CPU-seconds of that process. DIR, by default the
//! system's temporary directory, takes so many GB twice, one after the other, and is left empty.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use ringlog_engine::{Durability, Engine, EngineConfig, LogHandle, NewRecord};

/// Bytes of a batch of one record.
const BATCH_BYTES: usize = 64 << 10;
/// What the child that is to be killed has written before, beyond the GB.
const STARTED: &str = "started";

#[derive(Parser)]
struct Args {
    /// GB over all logs.
    #[arg(long, default_value_t = 10.0)]
    gb: f64,
    /// Logs they are spread over.
    #[arg(long, default_value_t = 100)]
    logs: usize,
    /// Logs of the second directory, of the same GB.
    #[arg(long, default_value_t = 1000)]
    many: usize,
    /// Logs of one record each.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// For so long the child that is to be killed writes on.
    #[arg(long, default_value_t = 90)]
    kill_after_s: u64,
    /// MB/s at which it does.
    #[arg(long, default_value_t = 50.0)]
    mb_per_s: f64,
    /// Where the logs are made.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Does one step of it, in a process of its own.
    #[arg(long, hide = true)]
    step: Option<Step>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Step {
    /// Fills the logs and stops cleanly.
    Fill,
    /// Opens, and says how long it took.
    Open,
    /// Fills the logs, says so, and writes on until it is killed.
    FillUntilKilled,
    /// Makes idle logs, closes, opens them, and says what they cost.
    Idle,
}

fn logs(engine: &Engine, count: usize) -> Vec<LogHandle> {
    let log = |number| engine.log(&format!("log-{number}")).expect("a log");
    (0..count).map(log).collect()
}

/// Appends a batch to each log in turn, as fast as the logs take them, until there are so many bytes.
fn append(logs: &[LogHandle], bytes: u64) {
    let value = vec![0x5a; BATCH_BYTES];
    let mut appended = 0;
    while appended < bytes {
        let batch = |log: &LogHandle| log.append(&[NewRecord::value(&value)], Durability::Written);
        let pending: Vec<_> = logs.iter().map(batch).collect();
        for append in pending {
            append.wait().expect("the log takes it");
        }
        appended += (logs.len() * BATCH_BYTES) as u64;
    }
}

fn memory_kib(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// User and system time of this process.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name")..].split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

fn open(dir: &Path) -> Engine {
    let (before, cpu_before) = (memory_kib("VmRSS:"), cpu_s());
    let started = Instant::now();
    let engine = Engine::open(dir, EngineConfig::default()).expect("it opens");
    println!(
        "  {:7.3} s, {:.2} CPU-s to open {} logs, {} failed; {} KiB more resident, {} descriptors",
        started.elapsed().as_secs_f64(),
        cpu_s() - cpu_before,
        engine.logs_by_name().len(),
        engine.failed_logs().len(),
        memory_kib("VmRSS:") - before,
        descriptors(),
    );
    engine
}

fn run_step(step: Step, args: &Args, dir: &Path) {
    let bytes = (args.gb * 1e9) as u64;
    match step {
        Step::Fill => {
            let engine = Engine::open(dir, EngineConfig::default()).expect("it opens");
            append(&logs(&engine, args.logs), bytes);
            engine.close().expect("it stops");
        }
        Step::Open => drop(open(dir)),
        Step::FillUntilKilled => {
            let engine = Engine::open(dir, EngineConfig::default()).expect("it opens");
            let logs = logs(&engine, args.logs);
            append(&logs, bytes);
            println!("{STARTED}");
            // At a pace, as the time depends on what came since the last checkpoint.
            let (started, mut rounds) = (Instant::now(), 0_u32);
            loop {
                append(&logs, 1);
                rounds += 1;
                let bytes = f64::from(rounds) * (logs.len() * BATCH_BYTES) as f64;
                let due = Duration::from_secs_f64(bytes / (args.mb_per_s * 1e6));
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
        }
        Step::Idle => {
            let engine = Engine::open(dir, EngineConfig::default()).expect("it opens");
            for log in logs(&engine, args.idle) {
                log.append(&[NewRecord::value(b"idle")], Durability::Written)
                    .wait()
                    .expect("the log takes it");
            }
            println!("  {} descriptors once each has a record", descriptors());
            engine.close().expect("it stops");
        }
    }
}

/// Runs a step in a process of its own; one that fills until it is killed is killed after a while.
fn child(step: Step, args: &Args, logs: usize, dir: &Path) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let name = clap::ValueEnum::to_possible_value(&step).expect("none is skipped");
    command.args(["--step", name.get_name(), "--gb", &args.gb.to_string()]);
    command.args(["--logs", &logs.to_string(), "--idle", &args.idle.to_string()]);
    command.args(["--mb-per-s", &args.mb_per_s.to_string()]);
    let mut child = command
        .arg("--dir")
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        if line == STARTED {
            std::thread::sleep(Duration::from_secs(args.kill_after_s));
            child.kill().expect("it runs");
        } else {
            println!("{line}");
        }
    }
    let ended = child.wait().expect("it ends");
    assert!(
        ended.success() || matches!(step, Step::FillUntilKilled),
        "{step:?}: {ended}"
    );
}

fn main() {
    let args = Args::parse();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    if let Some(step) = args.step {
        run_step(step, &args, &parent);
        std::io::stdout().flush().expect("it is read");
        return;
    }
    let dir = parent.join(format!("ringlog-reopen-{}", std::process::id()));
    for logs in [args.logs, args.many] {
        for (fill, name) in [(Step::Fill, "a clean stop"), (Step::FillUntilKilled, "kill -9")] {
            println!("{} GB over {logs} logs, after {name}", args.gb);
            child(fill, &args, logs, &dir);
            child(Step::Open, &args, logs, &dir);
            child(Step::Open, &args, logs, &dir);
            fs::remove_dir_all(&dir).expect("it was made here");
        }
    }
    println!("{} idle logs", args.idle);
    child(Step::Idle, &args, args.idle, &dir);
    child(Step::Open, &args, args.idle, &dir);
    fs::remove_dir_all(&dir).expect("it was made here");
}
