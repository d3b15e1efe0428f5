//! Logs: to stderr, as text for people or as JSON for collectors.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::args::LogFormat;

/// The variable that gives the level where the flag does not.
pub(super) const LEVEL_VARIABLE: &str = "RINGLOG_LOG";

/// What is neither a level nor a filter.
#[derive(Debug, thiserror::Error)]
#[error(
    "{origin}={level}: expected error, warn, info, debug, trace, off, or a filter such as info,ringlog_net=debug"
)]
pub(super) struct LevelError {
    origin: &'static str,
    level: String,
}

/// Starts logging at `level`, else at RINGLOG_LOG's, else at `info`. A level is a word (`debug`) or a
/// filter by module (`info,ringlog_net::server=debug`).
///
/// # Errors
///
/// The level is neither.
pub(super) fn start(format: LogFormat, level: Option<&str>) -> Result<(), LevelError> {
    let variable = std::env::var(LEVEL_VARIABLE).ok();
    let (origin, level) = match (level, variable.as_deref()) {
        (Some(level), _) => ("--log-level", level),
        (None, Some(level)) => (LEVEL_VARIABLE, level),
        (None, None) => ("--log-level", "info"),
    };
    let filter = filter(level).ok_or_else(|| LevelError {
        origin,
        level: level.to_owned(),
    })?;
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

/// A word alone would be taken for a module of which everything is shown, and of the others nothing.
fn filter(level: &str) -> Option<EnvFilter> {
    let is_known = |directive: &str| {
        let word = directive.trim();
        word.is_empty() || word.contains(['=', '[']) || word.parse::<LevelFilter>().is_ok()
    };
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let known = level.split(',').all(is_known);
    known.then(|| builder.parse(level).ok()).flatten()
}
