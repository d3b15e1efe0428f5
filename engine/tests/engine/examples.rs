//! The examples, run as a user would, and killed as a user would not.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ringlog_engine::data_dir::DataDirError;
use ringlog_engine::engine::EngineOpenError;
use ringlog_engine::{Engine, EngineConfig};

/// Where cargo has built it, beside this test.
fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a test has a path");
    let target = this.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    let path = target.join("examples").join(name);
    // Not where a single test is picked.
    assert!(
        path.exists(),
        "{} is not there: `cargo build -p ringlog-engine --examples` builds it, with --release for a test in release",
        path.display()
    );
    path
}

struct Running {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(name: &str, dir: &Path) -> Self {
        let mut child = Command::new(example(name))
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo builds examples before tests run");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, input, output }
    }

    fn line(&mut self) -> String {
        self.output.next().expect("it runs").expect("text")
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").expect("it runs");
        self.line()
    }

    fn kill(mut self) {
        // SIGKILL: nothing of it is asked.
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours");
    }

    fn finish(mut self) -> Vec<String> {
        drop(self.input);
        let rest = self.output.map(|line| line.expect("text")).collect();
        assert!(self.child.wait().expect("it was ours").success());
        rest
    }
}

#[test]
fn the_store_has_after_kill_9_what_it_had_answered() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let mut store = Running::start("embed", dir.path());
        store.line();
        for i in round * 20..round * 20 + 20 {
            assert!(store.ask(&format!("set k{i} v{i}")).starts_with("ok "));
        }
        // One is under way when it is killed, and may be there or not.
        writeln!(store.input, "set k0 v0").unwrap();
        store.kill();
    }
    let mut store = Running::start("embed", dir.path());
    store.line();
    for i in 0..100 {
        assert_eq!(store.ask(&format!("get k{i}")), format!("v{i}"));
    }
    assert!(store.ask("delete k0").starts_with("ok "));
    assert!(store.ask("compact").starts_with("begins at 10"));
    store.kill();
    let mut store = Running::start("embed", dir.path());
    assert_eq!(store.line(), "recovered 99 keys from 99 changes");
    assert_eq!(store.ask("get k0"), "none");
    assert!(store.finish().is_empty());
}

#[test]
fn a_directory_that_another_process_has_open_is_refused_until_that_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Running::start("embed", dir.path());
    store.line();
    let refused = Engine::open(dir.path(), EngineConfig::default()).unwrap_err();
    assert!(matches!(
        refused,
        EngineOpenError::DataDir(DataDirError::Locked(_))
    ));
    assert!(refused.to_string().contains("another process"), "{refused}");
    store.kill();
    Engine::open(dir.path(), EngineConfig::default()).unwrap();
}

#[test]
fn the_tail_prints_and_counts_every_line() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let mut tail = Running::start("tail", dir.path());
        for i in 0..100 {
            writeln!(tail.input, "line {i}").unwrap();
        }
        // The record that ends a round has an offset too.
        let first = round * 101;
        let mut expected: Vec<_> = (0..100).map(|i| format!("{} line {i}", first + i)).collect();
        expected.push(format!("100 lines, to offset {}", first + 100));
        assert_eq!(tail.finish(), expected);
    }
}
