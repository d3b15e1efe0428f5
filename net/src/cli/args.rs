//! The grammar of the command line, and the help that explains it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A durable, Kafka-compatible distributed commit log.
#[derive(Debug, Parser)]
#[command(name = "ringlog", version, propagate_version = true, after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// How logs are written to stderr.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a filter such as info,ringlog_net=debug.
    /// Otherwise the variable RINGLOG_LOG says, else info.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(super) log_level: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ringlog dump --records 00000000000000000000.log

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";

/// The form of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show what is in a segment, an index, a snapshot or a checkpoint, and verify it.
    Dump(DumpArguments),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog dump ringlog-data/orders-0/*.log
  ringlog dump --records --json ringlog-data/orders-0/00000000000000000000.log
  ringlog dump ringlog-data/orders-0/*.index ringlog-data/orders-0/leader-epoch-checkpoint

Every checksum is verified. Exits with 1 if anything is corrupt, and says in which file and where.")]
pub(super) struct DumpArguments {
    /// Files named as a log names them: *.log, *.index, *.timeindex, *.snapshot, *-checkpoint.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Also show every record of a segment.
    #[arg(long)]
    pub(super) records: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Arguments::command().debug_assert();
    }
}
