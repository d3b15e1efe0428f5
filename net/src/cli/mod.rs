//! The command line: what a person types and reads.
//!
//! Results go to stdout, logs and complaints to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or
//! configuration. Knows the server by its configuration and the brokers by the client; reads segment files
//! only in `dump`. Tested in `tests/cli.rs`.

mod args;
mod consume;
mod dump;
mod error;
mod line;
mod listen;
mod logging;
mod main;
mod produce;
mod repair;
mod serve;
mod start;
mod topic;

pub use main::main;
