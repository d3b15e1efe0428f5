//! Why a command did not do what was asked, and the exit code that says so.

use std::io;
use std::path::PathBuf;

use crate::client::ClientError;
use crate::config::ConfigError;
use crate::server::{RepairError, ServeError};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The configuration is not acceptable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The broker did not start, or did not stop well.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Files were found corrupt; each has been reported.
    #[error("{files} of the files are corrupt or cannot be read")]
    Corrupt {
        /// How many.
        files: usize,
    },
    /// The logs could not be repaired.
    #[error(transparent)]
    Repair(#[from] RepairError),
    /// Logs are damaged, and were only to be shown.
    #[error("{logs} of the logs are damaged; --apply mends them")]
    Damaged {
        /// How many.
        logs: usize,
    },
    /// Logs could not be mended; each has been reported.
    #[error("{logs} of the logs cannot be mended")]
    NotMended {
        /// How many.
        logs: usize,
    },
    /// A broker did not do what was asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The runtime that drives connections cannot start.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    /// The file named as input cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Input cannot be read.
    #[error("cannot read the input: {0}")]
    Input(io::Error),
    /// Output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    /// 1 for a failure, 2 for wrong usage.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Serve(_)
            | Self::Corrupt { .. }
            | Self::Repair(_)
            | Self::Damaged { .. }
            | Self::NotMended { .. }
            | Self::Client(_)
            | Self::Runtime(_)
            | Self::File { .. }
            | Self::Input(_)
            | Self::Output(_) => 1,
        }
    }

    /// Whether the reader of our output has gone, which is its right: `ringlog dump F | head`.
    pub(super) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
