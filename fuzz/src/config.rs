//! A configuration file, as Java properties and as TOML.

use std::path::PathBuf;
use std::sync::LazyLock;

use ringlog_net::config::ServerConfig;
use tempfile::TempDir;

/// Where the file lies; one for the process, since a target runs millions of times.
static DIR: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("the system has a temporary directory"));

/// Loads the bytes as a configuration in either syntax.
///
/// # Panics
///
/// Where an error has nothing to say.
pub fn config(data: &[u8]) {
    for name in ["server.properties", "server.toml"] {
        let path: PathBuf = DIR.path().join(name);
        std::fs::write(&path, data).expect("the temporary directory takes a small file");
        if let Err(error) = ServerConfig::load(Some(&path), &[]) {
            assert!(!error.to_string().is_empty());
        }
    }
}
