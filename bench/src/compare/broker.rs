//! One broker under measurement: its process, its topics and the CPU time it has used.
//!
//! Knows how each kind is started and that it listens on a port of its own. The process is ended and its data
//! removed when the value is dropped, however the measurement ends.

use super::{Result, tools, wire};
use std::fmt;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Clock ticks of `/proc/PID/stat` in a second: Linux's USER_HZ, 100 on every architecture in use.
const TICKS_PER_S: f64 = 100.0;
const KAFKA_HEAP: [&str; 2] = ["-Xms1g", "-Xmx1g"];
const KAFKA_CLUSTER_ID: &str = "ringlogBenchCompare00w";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BrokerKind {
    Kafka,
    Ringlog,
}

impl fmt::Display for BrokerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kafka => "kafka",
            Self::Ringlog => "ringlog",
        })
    }
}

#[derive(Debug)]
pub(crate) struct Broker {
    kind: BrokerKind,
    address: SocketAddr,
    process: Child,
    dir: PathBuf,
}

impl Broker {
    /// Starts it with its data in a new directory under `data` and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or does not answer in time; the message names its log.
    pub(crate) fn start(kind: BrokerKind, data: &Path, ringlog: &Path) -> Result<Self> {
        fs::create_dir_all(data).map_err(|error| format!("cannot create {}: {error}", data.display()))?;
        let address = free_address()?;
        let dir = fs::canonicalize(data)?.join(format!("{kind}-{}", address.port()));
        fs::create_dir(&dir)?;
        let mut command = match kind {
            BrokerKind::Kafka => kafka_command(&dir, address)?,
            BrokerKind::Ringlog => {
                let mut command = Command::new(ringlog);
                command.arg("serve").arg("--data").arg(dir.join("data"));
                command.arg("--listen").arg(address.to_string());
                command
            }
        };
        let log_path = dir.join("broker.log");
        let log = File::create(&log_path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command
            .spawn()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let mut broker = Self {
            kind,
            address,
            process,
            dir,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = wire::ping(address) {
            let ended = broker.process.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                let reason = ended.map_or_else(|| error.to_string(), |status| status.to_string());
                return Err(format!("{kind} did not start: {reason}; its log:\n{log}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(broker)
    }

    pub(crate) fn kind(&self) -> BrokerKind {
        self.kind
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates a topic with one replica of each partition.
    ///
    /// # Errors
    /// When the broker refuses.
    pub(crate) fn create_topic(&self, topic: &str, partitions: u32, configs: &[(&str, &str)]) -> Result<()> {
        wire::create_topic(self.address, topic, partitions, configs)
    }

    /// Deletes a topic and waits until its files are gone, so that their removal is not measured with the next run.
    ///
    /// # Errors
    /// When the broker refuses, or keeps the files for longer than a minute.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<()> {
        wire::delete_topic(self.address, topic)?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let data = self.dir.join("data");
        // Kafka renames a deleted partition's directory to NAME-PARTITION.UNIQUE-delete first.
        while fs::read_dir(&data)?
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(topic))
        {
            if Instant::now() > deadline {
                return Err(format!(
                    "{}: {topic}'s files are still there a minute after its deletion",
                    self.kind
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// User and system CPU time of all its threads since its start, in seconds; exact to 10 ms.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        let fields = stat_fields(&self.process.id().to_string())?;
        Ok((fields[UTIME] + fields[STIME]) as f64 / TICKS_PER_S)
    }

    /// Stops it gracefully.
    ///
    /// # Errors
    /// When it does not end in time.
    pub(crate) fn stop(mut self) -> Result<()> {
        Command::new("kill")
            .arg("-TERM")
            .arg(self.process.id().to_string())
            .status()?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.process.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(format!("{} did not stop within {} s", self.kind, STOP_TIMEOUT.as_secs()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let ended = self.process.kill().and_then(|()| self.process.wait());
            if let Err(error) = ended {
                eprintln!("cannot end {}: {error}", self.kind);
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// CPU time of the children that this process has waited for, in seconds.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn waited_children_cpu_s() -> Result<f64> {
    let fields = stat_fields("self")?;
    Ok((fields[CUTIME] + fields[CSTIME]) as f64 / TICKS_PER_S)
}

/// Indexes of what `stat_fields` returns.
const UTIME: usize = 0;
const STIME: usize = 1;
const CUTIME: usize = 2;
const CSTIME: usize = 3;

/// Fields 14 to 17 of `/proc/PID/stat` (proc_pid_stat(5)), in ticks.
fn stat_fields(pid: &str) -> Result<[u64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name, field 2, may hold anything but ends with the last parenthesis.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut times = after_name.split_ascii_whitespace().skip(11).map(str::parse);
    let mut next = || times.next().unwrap_or(Ok(0));
    Ok([next()?, next()?, next()?, next()?])
}

/// A port nobody listens on at this moment.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn kafka_command(dir: &Path, address: SocketAddr) -> Result<Command> {
    let classpath = format!("{}/*", tools::kafka_libs()?.display());
    let controller = free_address()?;
    let properties = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@{controller}\nlisteners=PLAINTEXT://{address},CONTROLLER://{controller}\n\
         log.dirs={}\noffsets.topic.replication.factor=1\n\
         log.segment.delete.delay.ms=100\nlog.retention.check.interval.ms=3600000\n",
        dir.join("data").display()
    );
    let path = dir.join("server.properties");
    fs::write(&path, properties)?;
    let format = Command::new("java")
        .args([
            "-cp",
            &classpath,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            KAFKA_CLUSTER_ID,
            "-c",
        ])
        .arg(&path)
        .output()
        .map_err(|error| format!("cannot run java: {error}"))?;
    if !format.status.success() {
        return Err(format!(
            "cannot format Kafka's data directory: {}",
            String::from_utf8_lossy(&format.stderr)
        )
        .into());
    }
    let mut command = Command::new("java");
    command
        .args(KAFKA_HEAP)
        .args(["-Dlog4j2.level=WARN", "-cp", &classpath, "kafka.Kafka"])
        .arg(path);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_this_process_grows_while_it_computes() {
        let before = stat_fields("self").unwrap();
        let started = Instant::now();
        let mut sum = 0_u64;
        while stat_fields("self").unwrap()[UTIME] + stat_fields("self").unwrap()[STIME]
            <= before[UTIME] + before[STIME]
        {
            sum = (0..100_000_u64).fold(sum, u64::wrapping_add);
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "no tick was counted, sum {sum}"
            );
        }
    }
}
