//! `ringlog serve`: the flags in terms of configuration keys, and the server.

use super::args::ServeArguments;
use super::error::CliError;
use crate::config::ServerConfig;
use crate::server;

/// Serves until SIGINT or SIGTERM.
pub(super) fn run(arguments: &ServeArguments) -> Result<(), CliError> {
    // The short flags stand for keys; --set comes last and wins.
    let mut flags = Vec::new();
    if let Some(data) = &arguments.data {
        flags.push(("--data", format!("log.dirs={}", data.display())));
    }
    if let Some(listen) = &arguments.listen {
        flags.push(("--listen", format!("listeners={}", listen.0)));
    }
    if let Some(shards) = arguments.shards {
        flags.push(("--shards", format!("shards={shards}")));
    }
    flags.extend(
        arguments
            .set
            .iter()
            .map(|assignment| ("--set", assignment.clone())),
    );
    let config = ServerConfig::load(arguments.config.as_deref(), &flags)?;
    server::run(config)?;
    Ok(())
}
