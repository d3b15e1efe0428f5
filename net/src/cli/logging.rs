//! Logs: to stderr, as text for people or as JSON for collectors.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};

use super::args::LogFormat;

/// The variable that gives the level where the flag does not.
pub(super) const LEVEL_VARIABLE: &str = "RINGLOG_LOG";

/// Starts logging at `level`, else at RINGLOG_LOG's, else at `info`. A level is a word (`debug`) or a
/// filter by module (`info,ringlog_net::server=debug`).
///
/// # Errors
///
/// The level is neither.
pub(super) fn start(format: LogFormat, level: Option<&str>) -> Result<(), ParseError> {
    let variable = std::env::var(LEVEL_VARIABLE).ok();
    let level = level.or(variable.as_deref()).unwrap_or("info");
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(level)?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colours);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}
