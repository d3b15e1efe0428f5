//! Power cuts under load: `power_cut run --work DIR POINTS`. Run by `fuzz/faults/power_cut.sh`, which cleans up
//! after it whatever happens.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use clap::Parser;
use ringlog_faults::Outcome;
use ringlog_faults::power_cut::load::{LoadOptions, load};
use ringlog_faults::power_cut::run::{RunOptions, run};
use ringlog_faults::power_cut::verify::{VerifyOptions, verify};

/// Cuts the power under ringlog's logs and looks for what was acknowledged.
#[derive(Debug, Parser)]
enum Command {
    /// Records a load on a disk, cuts it at many points and looks at what each leaves.
    Run(RunOptions),
    /// The load alone.
    Load(LoadOptions),
    /// The look alone, with the notes up to the cut as input.
    Verify(VerifyOptions),
}

fn main() -> ExitCode {
    let done: Outcome<()> = match Command::parse() {
        Command::Run(options) => run(&options),
        Command::Load(options) => load(options),
        Command::Verify(options) => verify(options, io::stdin().lock()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
