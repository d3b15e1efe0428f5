//! A broker process of its own data directory: started on a free port, stopped or killed, started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::client::Client;

/// Nothing a test waits for takes this long unless it never comes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A running broker; killed when dropped.
pub(crate) struct Broker {
    pub(crate) dir: TempDir,
    pub(crate) address: SocketAddr,
    settings: Vec<String>,
    process: Process,
}

impl Broker {
    /// Starts a broker of two shards on an empty data directory.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self::start_in(dir, settings)
    }

    pub(crate) fn start_in(dir: TempDir, settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut process = Process::spawn(dir.path(), "127.0.0.1:0", &settings);
        let address = process.wait_until_serving();
        Self {
            dir,
            address,
            settings,
            process,
        }
    }

    /// A new connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Stops it properly, checks that it ended well, and gives what it logged.
    pub(crate) fn stop(mut self) -> (TempDir, Vec<Value>) {
        let logged = self.process.stop();
        (self.dir, logged)
    }

    /// Stops it properly and starts it again on what it left.
    pub(crate) fn restart(self) -> Self {
        let settings = self.settings.clone();
        let (dir, _) = self.stop();
        let mut next = Self::start_with(dir, settings);
        assert_eq!(
            next.process.opened_clean(),
            Some(true),
            "a proper stop is a clean one"
        );
        next
    }

    /// Kills it with SIGKILL and starts it again on what it left.
    pub(crate) fn kill_and_restart(mut self) -> Self {
        self.process.kill();
        let mut next = Self::start_with(self.dir, self.settings);
        assert_eq!(next.process.opened_clean(), Some(false));
        next
    }

    fn start_with(dir: TempDir, settings: Vec<String>) -> Self {
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        Self::start_in(dir, &settings)
    }

    /// Asks it to stop, and returns at once.
    pub(crate) fn terminate(&self) {
        self.process.signal("-TERM");
    }

    /// Stops it by the signal of a closed terminal.
    pub(crate) fn hang_up(mut self) -> Self {
        self.process.signal("-HUP");
        assert!(self.process.wait().success());
        let mut next = Self::start_with(self.dir, self.settings);
        assert_eq!(next.process.opened_clean(), Some(true));
        next
    }

    /// Paths of the segment files it has open, deleted ones among them.
    pub(crate) fn open_segments(&self) -> Vec<String> {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.process.child.id()));
        let targets = descriptors.expect("it runs").flatten().filter_map(|descriptor| {
            // One that is closed meanwhile is none.
            let target = std::fs::read_link(descriptor.path()).ok()?;
            Some(target.to_string_lossy().into_owned())
        });
        targets.filter(|target| target.contains(".log")).collect()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line
            .and_then(|line| line.split_whitespace().nth(1))
            .expect("VmRSS");
        kib.parse::<u64>().expect("a number") * 1024
    }
}

/// A `ringlog serve` and its standard error.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    logged: Vec<Value>,
    /// Lines that are no log events, such as the error it ends with.
    pub(crate) messages: Vec<String>,
}

impl Process {
    pub(crate) fn spawn(dir: &Path, listen: &str, settings: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
        command.args([
            "--log-format",
            "json",
            "serve",
            "--shards",
            "2",
            "--listen",
            listen,
        ]);
        command.arg("--data").arg(dir);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = read_lines(child.stderr.take().expect("it is piped"));
        Self {
            child,
            lines,
            logged: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Waits for the event that names the address.
    pub(crate) fn wait_until_serving(&mut self) -> SocketAddr {
        let deadline = Instant::now() + DEADLINE;
        while self.read_line(deadline) {
            if let Some(event) = self.logged.iter().find(|event| event["message"] == "serving") {
                let address = event["address"].as_str().expect("an address");
                return address.parse().expect("a socket address");
            }
        }
        panic!("the broker does not serve: {:?} {:?}", self.logged, self.messages);
    }

    fn opened_clean(&mut self) -> Option<bool> {
        event(&self.logged, "logs opened")["clean"].as_bool()
    }

    /// Takes one line; whether there was one.
    fn read_line(&mut self, deadline: Instant) -> bool {
        match self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            Ok(line) => {
                match serde_json::from_str(&line) {
                    Ok(event) => self.logged.push(event),
                    Err(_) => self.messages.push(line),
                }
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("no line in time after {:?}", self.logged.last()),
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        while self.read_line(deadline) {}
        self.child.wait().expect("it is our child")
    }

    pub(crate) fn stop(&mut self) -> Vec<Value> {
        self.signal("-TERM");
        let status = self.wait();
        assert!(
            status.success(),
            "{status}: {:?} {:?}",
            self.logged,
            self.messages
        );
        std::mem::take(&mut self.logged)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is our child");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill")
            .args([signal, &id])
            .status()
            .expect("kill(1)");
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The one logged event with this message.
pub(crate) fn event<'a>(logged: &'a [Value], message: &str) -> &'a Value {
    let found = logged.iter().find(|event| event["message"] == message);
    found.unwrap_or_else(|| panic!("\"{message}\" was not logged: {logged:?}"))
}

fn read_lines(stderr: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
