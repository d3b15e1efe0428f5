//! The simulated disk keeps what it promises in its fault model: what can be lost is lost at times and kept
//! at times, what cannot never is, and all of it follows from the seed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ringlog_engine::io::sim_disk::{Fault, Half, OpKind, SimDisk};
use ringlog_engine::io::{FileId, IoCompletion, IoError, IoOp, IoOutput, IoQueue, OpenMode, Storage};
use ringlog_engine::types::LogId;

const FILE: FileId = FileId {
    log: LogId(7),
    number: 0,
};
const SEEDS: u64 = 400;

fn path(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

fn write(position: u64, bytes: &[u8]) -> IoOp {
    IoOp::Write {
        file: FILE,
        position,
        buffers: vec![Bytes::copy_from_slice(bytes)],
    }
}

const SYNC: IoOp = IoOp::Sync { file: FILE };

fn submit(disk: &mut SimDisk, op: IoOp) {
    let mut queue = IoQueue::new();
    queue.push(LogId(7), op);
    disk.submit(queue.drain());
}

fn run(disk: &mut SimDisk, op: IoOp) -> Result<IoOutput, IoError> {
    submit(disk, op);
    let last = disk.outstanding().count() - 1;
    disk.complete(last).result
}

/// A disk with `FILE` open and empty, as `a`.
fn disk(seed: u64) -> SimDisk {
    let mut disk = SimDisk::with_seed(seed);
    disk.create_dirs(Path::new("/data"));
    disk.open(FILE, &path("a"), OpenMode::CreateNew).unwrap();
    disk
}

/// What `a` holds on each of many disks.
fn outcomes(mut outcome: impl FnMut(u64) -> SimDisk) -> BTreeSet<Vec<u8>> {
    let outcomes = (0..SEEDS).map(|seed| outcome(seed).bytes(&path("a")).unwrap().to_vec());
    outcomes.collect()
}

/// Everything that happens on a disk that is used for a while.
fn trace(seed: u64) -> Vec<String> {
    let mut disk = disk(seed);
    disk.set_latency_us_max(1_000);
    disk.set_fault_rate(OpKind::Write, ErrorKind::StorageFull, 100_000);
    disk.set_fault_rate(OpKind::Sync, ErrorKind::Other, 50_000);
    let mut trace = Vec::new();
    let tell = |completion: &IoCompletion| format!("{completion:?}");
    for round in 0..50_u64 {
        for part in 0..4 {
            submit(&mut disk, write(round * 4000 + part * 1000, &[7; 1000]));
        }
        submit(&mut disk, SYNC);
        let put = IoOp::Put {
            path: path("b"),
            bytes: Bytes::from(round.to_string()),
        };
        submit(&mut disk, put);
        while let Some(completion) = disk.complete_due((round + 1) * 400) {
            trace.push(tell(&completion));
        }
    }
    disk.power_loss();
    for name in ["a", "b", "b.tmp"] {
        trace.push(format!("{:?}", disk.bytes(&path(name))));
    }
    trace
}

#[test]
fn a_seed_run_twice_gives_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(trace(seed), trace(seed));
    }
    assert_ne!(trace(1), trace(2));
}

#[test]
fn synced_bytes_stay_and_unsynced_ones_may_go_in_any_part() {
    let (kept, doubtful) = (vec![1; 2000], vec![2; 2000]);
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        run(&mut disk, write(0, &kept)).unwrap();
        run(&mut disk, SYNC).unwrap();
        run(&mut disk, write(2000, &doubtful)).unwrap();
        disk.power_loss();
        disk
    });
    assert!(left.iter().all(|bytes| bytes.starts_with(&kept)));
    assert!(left.contains(&kept), "all of it lost");
    assert!(
        left.contains(&[kept.clone(), doubtful].concat()),
        "all of it kept"
    );
    let tail = |wanted: fn(&[u8]) -> bool| left.iter().any(|bytes| wanted(&bytes[2000..]));
    assert!(
        tail(|t| !t.is_empty() && t.len() < 2000 && t.len() % 512 != 0),
        "torn"
    );
    assert!(
        tail(|t| t.starts_with(&[0; 512]) && t.contains(&2)),
        "the end kept and the start lost"
    );
    assert!(tail(|t| t.len() > 2000), "zeros that nobody wrote");
}

#[test]
fn a_later_write_may_survive_an_earlier_one() {
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        run(&mut disk, write(0, &[1; 100])).unwrap();
        run(&mut disk, write(100, &[2; 100])).unwrap();
        disk.power_loss();
        disk
    });
    assert!(left.contains(&[[0; 100], [2; 100]].concat()));
    assert!(left.contains(&vec![1; 100]));
}

#[test]
fn a_sync_covers_the_writes_that_completed_before_it_was_submitted() {
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        run(&mut disk, write(0, b"before")).unwrap();
        submit(&mut disk, SYNC);
        run(&mut disk, write(6, b"after")).unwrap();
        disk.complete(0).result.unwrap();
        disk.power_loss();
        disk
    });
    assert!(left.iter().all(|bytes| bytes.starts_with(b"before")));
    assert!(left.contains(b"before".as_slice()) && left.contains(b"beforeafter".as_slice()));
}

#[test]
fn no_sync_makes_durable_what_an_earlier_one_failed_to() {
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        run(&mut disk, write(0, b"lost")).unwrap();
        disk.fail_next(OpKind::Sync, ErrorKind::Other);
        run(&mut disk, SYNC).unwrap_err();
        assert_eq!(disk.bytes(&path("a")), Some(b"lost".as_slice()), "it reads well");
        run(&mut disk, SYNC).unwrap();
        run(&mut disk, write(4, b"kept")).unwrap();
        run(&mut disk, SYNC).unwrap();
        disk.power_loss();
        disk
    });
    assert!(left.iter().all(|bytes| bytes.ends_with(b"kept")));
    assert!(left.contains(b"\0\0\0\0kept".as_slice()) && left.contains(b"lostkept".as_slice()));
    // Writing it again does.
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        run(&mut disk, write(0, b"again")).unwrap();
        disk.fail_next(OpKind::Sync, ErrorKind::Other);
        run(&mut disk, SYNC).unwrap_err();
        run(&mut disk, write(0, b"again")).unwrap();
        run(&mut disk, SYNC).unwrap();
        disk.power_loss();
        disk
    });
    assert!(left.iter().all(|bytes| bytes.starts_with(b"again")));
}

#[test]
fn a_removed_file_may_be_back_until_its_directory_is_synced() {
    let back = |sync: bool| {
        let there = (0..SEEDS).map(|seed| {
            let mut disk = disk(seed);
            disk.plant(&path("b"), b"b");
            let paths = vec![path("b")];
            run(&mut disk, IoOp::Remove { paths }).unwrap();
            assert_eq!(disk.bytes(&path("b")), None);
            if sync {
                disk.put_file(&path("c"), b"c").unwrap();
            }
            disk.power_loss();
            disk.bytes(&path("b")).is_some()
        });
        there.collect::<BTreeSet<bool>>()
    };
    assert_eq!(back(false), BTreeSet::from([false, true]));
    assert_eq!(back(true), BTreeSet::from([false]));
}

#[test]
fn a_replacement_cut_short_leaves_the_old_file_or_the_new_one() {
    let mut temporary = false;
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        disk.plant(&path("a"), b"old");
        let put = IoOp::Put {
            path: path("a"),
            bytes: Bytes::from_static(b"new"),
        };
        submit(&mut disk, put);
        disk.power_loss();
        temporary |= disk.bytes(&path("a.tmp")).is_some();
        disk
    });
    assert_eq!(left, BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
    assert!(temporary);
}

#[test]
fn the_end_of_the_process_leaves_what_completed_and_any_part_of_what_had_not() {
    let left = outcomes(|seed| {
        let mut disk = disk(seed);
        run(&mut disk, write(0, b"done")).unwrap();
        submit(&mut disk, write(4, b"under way"));
        disk.kill();
        assert!(disk.outstanding().next().is_none() && disk.file_bytes(FILE).is_none());
        disk
    });
    assert!(
        left.iter()
            .all(|bytes| b"doneunder way".starts_with(bytes) && bytes.len() >= 4)
    );
    assert_eq!(left.len(), b"under way".len() + 1);
}

#[test]
fn a_full_disk_takes_the_first_bytes_and_goes_on_once_there_is_room() {
    let mut disk = disk(0);
    disk.plant(&path("ballast"), &[0; 60]);
    disk.set_capacity(Some(100));
    assert!(run(&mut disk, write(0, &[1; 50])).unwrap_err().is_storage_full());
    assert_eq!(disk.bytes(&path("a")), Some([1; 40].as_slice()));
    assert_eq!(disk.used_bytes(), 100);
    assert_eq!(
        disk.put_file(&path("b"), b"b").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    run(&mut disk, write(0, &[2; 40])).unwrap();
    disk.remove_file(&path("ballast")).unwrap();
    run(&mut disk, write(0, &[1; 50])).unwrap();
    disk.put_file(&path("b"), b"b").unwrap();
}

#[test]
fn faults_strike_where_they_are_planned() {
    let mut disk = disk(0);
    let fault = |half, kind, name_end, after| Fault {
        half,
        kind,
        name_end,
        after,
        error: ErrorKind::Other,
    };
    disk.plan(fault(Some(Half::Calls), None, "", 1));
    disk.sync(FILE).unwrap();
    run(&mut disk, SYNC).unwrap();
    disk.sync(FILE).unwrap_err();
    disk.plan(fault(None, Some(OpKind::Put), "b", 0));
    disk.put_file(&path("c"), b"").unwrap();
    disk.put_file(&path("b"), b"").unwrap_err();
    disk.put_file(&path("b"), b"").unwrap();
    assert_eq!(disk.planned_faults(), 0);
    disk.set_fault_rate(OpKind::Sync, ErrorKind::Other, 500_000);
    let failed = (0..1000).filter(|_| disk.sync(FILE).is_err()).count();
    assert!((400..600).contains(&failed), "{failed}");
    disk.clear_faults();
    disk.sync(FILE).unwrap();
}

#[test]
fn rot_turns_one_bit_for_good() {
    let mut disk = disk(3);
    disk.plant(&path("b"), &[0; 100]);
    let at = disk.rot(&path("b")).unwrap();
    disk.power_loss();
    let bytes = disk.bytes(&path("b")).unwrap();
    assert_eq!(bytes[at].count_ones(), 1);
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert_eq!(disk.rot(&path("a")), None);
}

#[test]
fn requests_complete_when_they_are_due() {
    let mut disk = disk(1);
    disk.set_latency_us_max(100);
    let mut queue = IoQueue::new();
    for position in 0..20 {
        queue.push(LogId(7), write(position, b"x"));
    }
    disk.submit(queue.drain());
    let mut order = Vec::new();
    while let Some(due_us) = disk.next_due_us() {
        assert!(
            due_us
                .checked_sub(1)
                .is_none_or(|early| disk.complete_due(early).is_none())
        );
        order.push(disk.complete_due(due_us).unwrap().token);
        assert!(due_us <= 100);
    }
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_ne!(order, sorted, "latencies reorder");
    assert_eq!(order.len(), 20);
}
