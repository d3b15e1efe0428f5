//! What keeps a broker from starting: each is named, with the remedy, and nothing is harmed.

use std::fs;
use std::path::Path;

use crate::broker::{Broker, Process};
use crate::client::batch;

/// Starts a broker that cannot, and gives what it says at its end.
fn refusal(dir: &Path, listen: &str, settings: &[&str]) -> String {
    let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let mut process = Process::spawn(dir, listen, &settings);
    let status = process.wait();
    assert!(!status.success());
    assert_ne!(status.code(), None, "it ended by itself");
    let said = process.messages.join("\n");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_directory_in_use_is_refused_and_its_user_unharmed() {
    let broker = Broker::start(&[]);
    let said = refusal(broker.dir.path(), "127.0.0.1:0", &[]);
    assert!(
        said.contains("in use by another process") && said.contains("--data"),
        "{said}"
    );
    let mut client = broker.client();
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 0, &batch(&[b"x"])), Ok(0));
}

#[test]
fn a_port_in_use_is_refused() {
    let broker = Broker::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let said = refusal(dir.path(), &broker.address.to_string(), &[]);
    assert!(
        said.contains(&broker.address.to_string()) && said.contains("--listen"),
        "{said}"
    );
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "the fresh data directory holds something");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    for path in [file.clone(), file.join("below")] {
        let said = refusal(&path, "127.0.0.1:0", &[]);
        assert!(
            said.contains(path.to_str().unwrap()) && said.contains("--data"),
            "{said}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a directory");
    // Not even the superuser may create anything here.
    let said = refusal(Path::new("/proc/ringlog"), "127.0.0.1:0", &[]);
    assert!(
        said.contains("cannot create the data directory /proc/ringlog: ") && said.contains("with --data"),
        "{said}"
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let dir = tempfile::tempdir().unwrap();
    let said = refusal(dir.path(), "127.0.0.1:0", &["num.partitons=3"]);
    assert!(
        said.contains("num.partitons") && said.contains("num.partitions"),
        "{said}"
    );
    let said = refusal(dir.path(), "127.0.0.1:0", &["num.partitions=none"]);
    assert!(said.contains("num.partitions=none"), "{said}");
}

#[test]
fn foreign_files_and_leftovers_in_the_data_directory_do_no_harm() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 1, &[]);
    client.produce("t", 0, &batch(&[b"x"])).unwrap();
    let (dir, _) = broker.stop();
    let data = dir.path();
    let log = data.join("t-0");
    // Directories that only look like a partition's, and files of nobody's or half made.
    fs::create_dir(data.join("photos-2020")).unwrap();
    fs::write(data.join("photos-2020/beach.jpg"), "jpg").unwrap();
    fs::create_dir(data.join("lost+found")).unwrap();
    fs::write(data.join("notes-1"), "text").unwrap();
    fs::write(data.join("recovery-point-offset-checkpoint.tmp"), "half").unwrap();
    fs::write(log.join("README"), "text").unwrap();
    fs::write(log.join("00000000000000000001.snapshot.tmp"), "half").unwrap();
    fs::write(log.join("leader-epoch-checkpoint.tmp"), "half").unwrap();

    let broker = Broker::start_in(dir, &[]);
    let mut client = broker.client();
    assert_eq!(client.read_all("t", 0, 0), [(0, b"x".to_vec())]);
    assert_eq!(client.produce("t", 0, &batch(&[b"y"])), Ok(1));
    client.create("photos", 1, &[]);
    let (dir, _) = broker.stop();
    for kept in ["photos-2020/beach.jpg", "notes-1", "t-0/README"] {
        assert!(dir.path().join(kept).exists(), "{kept}");
    }
    assert!(!dir.path().join("t-0/00000000000000000001.snapshot.tmp").exists());
}

#[test]
fn garbled_checkpoints_cost_a_scan_and_no_record() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[("segment.bytes", "1048576")]);
    for number in 0..20u8 {
        client.produce("t", 1, &batch(&[&[number; 100_000]])).unwrap();
    }
    let (dir, _) = broker.stop();
    for name in [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ] {
        fs::write(dir.path().join(name), "garbled").unwrap();
    }
    for entry in fs::read_dir(dir.path().join("t-1")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind != "log") {
            fs::write(path, [0xff; 37]).unwrap();
        }
    }
    fs::write(dir.path().join("t-1/leader-epoch-checkpoint"), "garbled").unwrap();
    let broker = Broker::start_in(dir, &[]);
    let mut client = broker.client();
    assert_eq!(client.read_all("t", 1, 0).len(), 20);
    assert_eq!(client.produce("t", 1, &batch(&[b"next"])), Ok(20));
}
