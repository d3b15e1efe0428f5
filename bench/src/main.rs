//! `ringlog-bench`: measurements that need whole processes, run by hand and not by the test suite.
//!
//! Owns the command line. What is measured, and how, stands in `compare`. Criterion's benches, which
//! measure single functions, are in `bench/benches`.
#![forbid(unsafe_code)]

mod compare;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "ringlog-bench", about = "Measures ringlog beside other brokers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Produce to and consume from ringlog and Apache Kafka in interleaved runs, with one C client
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let Command::Compare(options) = Cli::parse().command;
    match compare::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringlog-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
