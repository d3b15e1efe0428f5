//! A broker started by the binary itself, and commands run against it. Shared by the tests of the commands.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;

pub(crate) fn ringlog() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command.env_remove("RINGLOG_LOG");
    command
}

/// A running broker; its port is the one it says it listens on.
pub(crate) struct Broker {
    pub(crate) process: Child,
    pub(crate) address: String,
    /// What it logged before it served, that included.
    pub(crate) logged: Vec<Value>,
    /// Kept open, since a broker that cannot log would be another test.
    logs: BufReader<ChildStderr>,
}

impl Broker {
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    pub(crate) fn start_with(data: &Path, more: &[&str]) -> Self {
        let mut process = ringlog();
        process.args([
            "--log-format",
            "json",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--shards",
            "1",
            "--data",
        ]);
        let mut process = process
            .arg(data)
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let logs = BufReader::new(process.stderr.take().expect("piped"));
        let mut broker = Self {
            process,
            address: String::new(),
            logged: Vec::new(),
            logs,
        };
        broker.address = broker.await_address();
        broker
    }

    /// Reads the logs until the broker says where it serves.
    fn await_address(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.logs.read_line(&mut line).expect("UTF-8");
            assert!(read > 0, "the broker ended: {:?}", self.logged);
            let event: Value = serde_json::from_str(&line).expect("JSON");
            self.logged.push(event.clone());
            if event["message"] == "serving" {
                return event["address"].as_str().expect("an address").to_owned();
            }
        }
    }

    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut process = ringlog()
            .args(arguments)
            .args(["--broker", &self.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        process
            .stdin
            .take()
            .expect("piped")
            .write_all(input.as_bytes())
            .expect("written");
        process.wait_with_output().expect("ended")
    }

    /// What the command prints, which must succeed.
    pub(crate) fn ok(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Stops it, and gives the rest of what it logged.
    pub(crate) fn stop(mut self) -> Vec<Value> {
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .arg(pid)
                .status()
                .expect("kill runs")
                .success()
        );
        let mut logs = String::new();
        self.logs.read_to_string(&mut logs).expect("UTF-8");
        assert!(self.process.wait().expect("ended").success());
        logs.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // After `stop` there is nothing left to kill, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
