//! Gets the tools that the comparison needs, once, under `target/`: the C client and Apache Kafka.
//!
//! The client is built from the copy of librdkafka that the crate `rdkafka-sys` carries; Kafka's jars are
//! those of the interop tests. Knows nothing of what is measured with them.

use super::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

const RDKAFKA_SYS: &str = "=4.10.0";
const TOOLS: &str = "target/bench-tools";
const KAFKA_POM: &str = "net/tests/interop/kafka/pom.xml";
const KAFKA_LIBS: &str = "target/interop/kafka/libs";

/// Builds `rdkafka_performance` unless it is there, and returns its path.
///
/// # Errors
/// When the crate cannot be fetched or its C sources do not build.
pub(crate) fn build_client() -> Result<PathBuf> {
    let client = Path::new(TOOLS).join("rdkafka_performance");
    if client.exists() {
        return Ok(client);
    }
    eprintln!("building rdkafka_performance in {TOOLS}");
    // A package of its own, outside of the workspace, only to have cargo fetch, check and unpack the crate.
    let fetch = Path::new(TOOLS).join("fetch");
    std::fs::create_dir_all(fetch.join("src"))?;
    std::fs::write(fetch.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nrdkafka-sys = \"{RDKAFKA_SYS}\"\n"
    );
    std::fs::write(fetch.join("Cargo.toml"), manifest)?;
    succeed(
        Command::new("cargo")
            .args(["vendor", "--quiet", "vendor"])
            .current_dir(&fetch),
    )?;

    let source = fetch.join("vendor/rdkafka-sys/librdkafka");
    let without =
        ["ssl", "gssapi", "sasl", "curl", "zlib", "zstd"].map(|library| format!("--disable-{library}"));
    // The crate may lose the scripts' permission to run, so the shells are named.
    succeed(
        Command::new("bash")
            .arg("configure")
            .args(without)
            .current_dir(&source),
    )?;
    succeed(
        Command::new("make")
            .args(["-j2", "-C", "src", "librdkafka.a"])
            .current_dir(&source),
    )?;
    succeed(
        Command::new("make")
            .args(["-C", "examples", "rdkafka_performance"])
            .current_dir(&source),
    )?;
    std::fs::copy(source.join("examples/rdkafka_performance"), &client)?;
    Ok(client)
}

/// Copies Kafka's jars from Maven's repository unless they are there, and returns their directory.
///
/// # Errors
/// When Maven is missing or fails.
pub(crate) fn kafka_libs() -> Result<PathBuf> {
    let libs = std::env::current_dir()?.join(KAFKA_LIBS);
    if libs.join("kafka-tools-4.4.0.jar").exists() {
        return Ok(libs);
    }
    eprintln!("fetching Apache Kafka into {KAFKA_LIBS}");
    let output = format!("-DoutputDirectory={}", libs.display());
    succeed(Command::new("mvn").args([
        "-q",
        "-B",
        "-f",
        KAFKA_POM,
        "dependency:copy-dependencies",
        &output,
    ]))?;
    Ok(libs)
}

/// Runs a command to its end; its output is shown only when it fails.
fn succeed(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Err(format!("{command:?} ended with {}:\n{out}{err}", output.status).into())
}
