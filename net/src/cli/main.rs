//! From the arguments to an exit code.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;

use super::args::{Arguments, Command};
use super::error::CliError;
use super::{consume, dump, logging, produce, repair, serve, topic};

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    // Wrong usage ends the process here with 2, and --help or --version with 0.
    let arguments = Arguments::parse();
    if let Err(error) = logging::start(arguments.log_format, arguments.log_level.as_deref()) {
        complain(&error.to_string());
        return ExitCode::from(2);
    }
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Topic(arguments) => wait_for(topic::run(&arguments.broker.broker, &arguments.command)),
        Command::Produce(arguments) => wait_for(produce::run(&arguments.broker.broker, &arguments)),
        Command::Consume(arguments) => wait_for(consume::run(&arguments.broker.broker, &arguments)),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments),
    }
}

/// The clients run on this one thread.
fn wait_for(work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(CliError::Runtime)?.block_on(work)
}

fn complain(message: &str) {
    if io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) {
        eprintln!("\x1b[1;31merror:\x1b[0m {message}");
    } else {
        eprintln!("error: {message}");
    }
}
