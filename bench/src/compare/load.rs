//! One run of the C client against a broker, and what it cost.
//!
//! Knows the client's arguments and the summary line that it prints; checks that it counted as many records
//! as were asked for. Nothing else may be started while a run lasts.

use super::broker::{Broker, waited_children_cpu_s};
use super::{RECORD_BYTES, Result};
use std::fmt;
use std::path::Path;
use std::process::Command;

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Megabytes (1e6 bytes of values) a second, between the client's first and last record.
    pub(crate) mb_per_s: f64,
    /// The broker's user and system CPU seconds for 1e9 bytes of values.
    pub(crate) server_cpu_s_per_gb: f64,
    /// The client's.
    pub(crate) client_cpu_s_per_gb: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} MB/s, server {:.2} CPU-s/GB, client {:.2} CPU-s/GB",
            self.mb_per_s, self.server_cpu_s_per_gb, self.client_cpu_s_per_gb
        )
    }
}

/// Produces `records` records of 1 KiB with acks=all over all partitions of a topic.
///
/// # Errors
/// When the client fails or not every record was acknowledged.
pub(crate) fn produce(client: &Path, broker: &Broker, topic: &str, records: u64) -> Result<Sample> {
    let mut command = Command::new(client);
    command.args([
        "-P",
        "-t",
        topic,
        "-s",
        &RECORD_BYTES.to_string(),
        "-c",
        &records.to_string(),
        "-a",
        "-1",
    ]);
    for setting in [
        "linger.ms=5",
        "batch.size=131072",
        "queue.buffering.max.messages=100000",
        "queue.buffering.max.kbytes=1048576",
    ] {
        command.args(["-X", setting]);
    }
    measured(command, broker, records)
}

/// Consumes `records` records from the beginning of all partitions of a topic.
///
/// # Errors
/// When the client fails or gets fewer records.
pub(crate) fn consume(
    client: &Path,
    broker: &Broker,
    topic: &str,
    partitions: u32,
    records: u64,
) -> Result<Sample> {
    let mut command = Command::new(client);
    command.args(["-C", "-t", topic, "-o", "beginning", "-c", &records.to_string()]);
    for partition in 0..partitions {
        command.args(["-p", &partition.to_string()]);
    }
    measured(command, broker, records)
}

fn measured(mut command: Command, broker: &Broker, records: u64) -> Result<Sample> {
    command.args(["-b", &broker.address().to_string()]);
    let (server_before, client_before) = (broker.cpu_s()?, waited_children_cpu_s()?);
    let output = command
        .output()
        .map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let (server_after, client_after) = (broker.cpu_s()?, waited_children_cpu_s()?);
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.lines().filter_map(parse_summary).next_back();
    let Some((counted, elapsed_ms)) = summary.filter(|_| output.status.success()) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}:\n{text}{errors}", output.status).into());
    };
    if counted < records {
        return Err(format!("{command:?}: {counted} of {records} records arrived:\n{text}").into());
    }
    let gigabytes = (records * RECORD_BYTES) as f64 / 1e9;
    Ok(Sample {
        mb_per_s: gigabytes * 1e6 / elapsed_ms.max(1) as f64,
        server_cpu_s_per_gb: (server_after - server_before) / gigabytes,
        client_cpu_s_per_gb: (client_after - client_before) / gigabytes,
    })
}

/// Records delivered or consumed, and milliseconds, if the line is one of the client's summaries.
fn parse_summary(line: &str) -> Option<(u64, u64)> {
    let (counts, rest) = line.split_once(" in ")?;
    let elapsed_ms = rest.split_once("ms:")?.0.parse().ok()?;
    // "% N messages produced (B bytes), N delivered (offset O, N failed)" or "% N messages (B bytes) consumed"
    let count = match counts.split_once(" bytes), ") {
        Some((_, delivered)) => delivered.split_once(" delivered")?.0,
        None => counts.strip_prefix("% ")?.split_once(" messages (")?.0,
    };
    Some((count.trim().parse().ok()?, elapsed_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lines_of_the_client_are_understood() {
        let produced = "% 2500 messages produced (2560000 bytes), 2499 delivered (offset 7, 1 failed) in 31ms: 80645 msgs/s and 82.58 MB/s, 0 produce failures, 0 in queue, no compression";
        assert_eq!(parse_summary(produced), Some((2499, 31)));
        let consumed = "% 500 messages (512000 bytes) consumed in 12ms: 41666 msgs/s (42.67 MB/s)";
        assert_eq!(parse_summary(consumed), Some((500, 12)));
        assert_eq!(parse_summary("% Sending 2500 messages of size 1024 bytes"), None);
    }
}
