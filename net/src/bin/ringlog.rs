//! The `ringlog` binary: hands the command line to the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ringlog_net::cli::main()
}
