//! `ringlog repair` on data directories as a stopped broker left them, damaged since.

mod broker_process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use broker_process::{Broker, ringlog};
use serde_json::Value;

fn consume(broker: &Broker, topic: &str) -> Vec<String> {
    let shown = broker.ok(&["consume", topic, "--exit-at-end"], "");
    shown.lines().map(str::to_owned).collect()
}

fn repair(arguments: &[&str], dir: &Path) -> (Option<i32>, String, String) {
    let output: Output = ringlog()
        .arg("repair")
        .args(arguments)
        .arg(dir)
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Every file below `dir` and its bytes, but for the lock.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else if !path.ends_with(".lock") {
            files.push((path.clone(), fs::read(&path).expect("readable")));
        }
    }
    files.sort();
    files
}

/// Ten records in each of two topics, one a batch, after a proper stop.
fn stopped() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = Broker::start(dir.path());
    for topic in ["damaged", "sound"] {
        broker.ok(&["topic", "create", topic, "--partitions", "1"], "");
        for number in 0..10 {
            broker.ok(&["produce", topic], &format!("record {number}\n"));
        }
    }
    broker.stop();
    dir
}

fn log_of(dir: &Path, topic: &str) -> PathBuf {
    dir.join(format!("{topic}-0/00000000000000000000.log"))
}

/// Turns the first record of the sixth batch of ten into zeros.
fn damage(dir: &Path) -> u64 {
    let path = log_of(dir, "damaged");
    let mut bytes = fs::read(&path).expect("a segment");
    let batch = bytes.len() / 10;
    bytes[batch * 5..batch * 5 + 40].fill(0xaa);
    fs::write(&path, bytes).expect("written");
    u64::try_from(batch * 5).expect("small")
}

#[test]
fn a_log_damaged_below_its_recovery_point_is_refused_shown_mended_and_served() {
    let dir = stopped();
    let position = damage(dir.path());
    let damaged = log_of(dir.path(), "damaged");

    let broker = Broker::start(dir.path());
    let refused = broker
        .logged
        .iter()
        .find(|event| event["message"] == "partition is unavailable");
    let refused = refused.expect("it is not served");
    let error = refused["error"].as_str().expect("an error");
    assert!(error.contains(damaged.to_str().expect("UTF-8")), "{error}");
    assert!(
        error.contains(&format!("position {position} (offset 5)")),
        "{error}"
    );
    let remedy = refused["remedy"].as_str().expect("a remedy");
    assert!(
        remedy.contains("ringlog repair") && remedy.contains("damaged-0"),
        "{remedy}"
    );
    assert_eq!(consume(&broker, "sound").len(), 10, "the others are served");
    broker.stop();

    let before = contents(dir.path());
    let (code, shown, complaint) = repair(&[], dir.path());
    assert_eq!(code, Some(1), "{shown}{complaint}");
    assert!(
        shown.contains("damaged-0: sound from offset 0 to 5, a broker does not open it"),
        "{shown}"
    );
    assert!(shown.contains(&format!("position {position} of")), "{shown}");
    assert!(
        shown.contains("sound-0: sound from offset 0 to 10, a broker opens it"),
        "{shown}"
    );
    assert!(complaint.contains("--apply"), "{complaint}");
    assert_eq!(contents(dir.path()), before, "showing changes nothing");

    let (code, shown, complaint) = repair(&["--apply"], &dir.path().join("damaged-0"));
    assert_eq!(code, Some(0), "{shown}{complaint}");
    assert!(
        shown.contains("damaged-0: sound from offset 0 to 5, mended"),
        "{shown}"
    );
    let side = dir.path().join("damaged-0.repaired");
    assert!(shown.contains(side.to_str().expect("UTF-8")), "{shown}");
    let aside = side.join(format!("00000000000000000000.log.from-{position}"));
    let whole = &before
        .iter()
        .find(|(path, _)| *path == damaged)
        .expect("it was there")
        .1;
    let position = usize::try_from(position).expect("small");
    assert_eq!(fs::read(&damaged).expect("the rest"), whole[..position]);
    assert_eq!(fs::read(aside).expect("what was cut off"), whole[position..]);

    let (code, shown, _) = repair(&[], dir.path());
    assert_eq!(code, Some(0), "{shown}");
    let broker = Broker::start(dir.path());
    let records: Vec<_> = (0..5).map(|number| format!("record {number}")).collect();
    assert_eq!(consume(&broker, "damaged"), records);
    broker.ok(&["produce", "damaged"], "after\n");
    assert_eq!(
        consume(&broker, "damaged").last().map(String::as_str),
        Some("after")
    );
    broker.stop();
}

#[test]
fn a_damaged_log_stays_refused_however_often_the_broker_starts() {
    let dir = stopped();
    damage(dir.path());
    let damaged = fs::read(log_of(dir.path(), "damaged")).expect("a segment");
    for _ in 0..2 {
        // The first start writes checkpoints at its stop: the recovery point must survive them.
        Broker::start(dir.path()).stop();
    }
    let broker = Broker::start(dir.path());
    let refused = |event: &&Value| event["message"] == "partition is unavailable";
    assert_eq!(
        broker.logged.iter().filter(refused).count(),
        1,
        "{:?}",
        broker.logged
    );
    broker.stop();
    assert_eq!(
        fs::read(log_of(dir.path(), "damaged")).expect("a segment"),
        damaged
    );
}

#[test]
fn a_missing_segment_and_its_orphans_are_shown_and_mended() {
    let dir = stopped();
    fs::remove_file(log_of(dir.path(), "damaged")).expect("it was there");
    let (code, shown, _) = repair(&[], dir.path());
    assert_eq!(code, Some(1));
    assert!(
        shown.contains("the batches up to offset 10 are missing"),
        "{shown}"
    );
    let (code, shown, complaint) = repair(&["--apply"], dir.path());
    assert_eq!(code, Some(0), "{shown}{complaint}");
    let broker = Broker::start(dir.path());
    assert!(consume(&broker, "damaged").is_empty());
    assert_eq!(consume(&broker, "sound").len(), 10);
    broker.stop();
}

#[test]
fn a_topic_created_anew_after_a_deletion_inherits_nothing() {
    let dir = stopped();
    let broker = Broker::start(dir.path());
    broker.ok(&["topic", "delete", "damaged"], "");
    broker.ok(&["topic", "create", "damaged", "--partitions", "1"], "");
    broker.ok(&["produce", "damaged"], "new\n");
    drop(broker);
    let broker = Broker::start(dir.path());
    assert_eq!(consume(&broker, "damaged"), ["new"], "{:?}", broker.logged);
}

#[test]
fn a_directory_in_use_or_without_logs_is_refused() {
    let dir = stopped();
    let broker = Broker::start(dir.path());
    for path in [dir.path().to_owned(), dir.path().join("sound-0")] {
        let (code, _, complaint) = repair(&["--apply"], &path);
        assert_eq!(code, Some(1));
        assert!(
            complaint.contains("is in use by another process; stop that broker first"),
            "{complaint}"
        );
    }
    broker.stop();
    let empty = tempfile::tempdir().expect("a temporary directory");
    for path in [empty.path().to_owned(), empty.path().join("none")] {
        let (code, _, complaint) = repair(&[], &path);
        assert_eq!(code, Some(1));
        assert!(complaint.contains("neither a data directory nor"), "{complaint}");
    }
    assert_eq!(repair(&["--nonsense"], empty.path()).0, Some(2));
}
