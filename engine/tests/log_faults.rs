//! A log on a disk that fails: each kind of request and call, once, with an error and for want of room.
//!
//! An error makes the log read-only, and it says so; a full disk is waited out; and whatever fails when, nothing
//! that was acknowledged is lost. What a log says is durable outlives a power loss.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::io::ErrorKind;

use ringlog_engine::config::LogConfig;
use ringlog_engine::io::IoOp;
use ringlog_engine::io::sim_disk::{Fault, Half, OpKind, SimDisk};
use ringlog_engine::log::{AppendError, OpenError, OpenOptions};
use ringlog_engine::testing::LogDriver;
use ringlog_engine::types::{LeaderEpoch, Offset};

const BATCHES: usize = 24;
/// More often than a log tries again on a full disk for the faults of one test.
const TRIES_MAX: usize = 20;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1500,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

fn fault(half: Half, kind: Option<OpKind>, name_end: &'static str, after: u64, error: ErrorKind) -> Fault {
    Fault {
        half: Some(half),
        kind,
        name_end,
        after,
        error,
    }
}

/// A log in use, and what it has said.
struct Run {
    driver: LogDriver,
    /// Batches that were taken.
    appended: usize,
    /// Appends were refused for want of room.
    was_full: bool,
}

/// Where a read from the start on ends; there are no gaps before it.
fn read_end(driver: &LogDriver) -> Offset {
    let headers = driver.read_all(Offset(0), 1 << 20);
    headers.iter().fold(Offset(0), |next, header| {
        assert_eq!(header.base_offset(), next, "no gap");
        header.next_offset()
    })
}

impl Run {
    fn new(disk: SimDisk) -> Self {
        let (driver, _) = LogDriver::open(config(), disk, LogDriver::options(0, false)).unwrap();
        Self {
            driver,
            appended: 0,
            was_full: false,
        }
    }

    /// Appends, rolls and changes epochs, completing requests in any order, and waits for room where there
    /// is none; ends early if the log becomes read-only.
    fn use_it(&mut self) {
        for number in 0..BATCHES {
            if number % 7 == 6 {
                self.driver.epoch = LeaderEpoch(self.driver.epoch.0 + 1);
            }
            if !self.append(100 + number) {
                return;
            }
            self.driver.turn();
            if let Some(completion) = self.driver.disk.complete_any() {
                self.driver.log.handle_io(completion);
            }
        }
        self.wait();
    }

    fn append(&mut self, value_bytes: usize) -> bool {
        for _ in 0..TRIES_MAX {
            match self.driver.append(1, value_bytes) {
                Ok(_) => {
                    self.appended += 1;
                    return true;
                }
                Err(AppendError::StorageFull) => {
                    self.was_full = true;
                    assert_eq!(
                        read_end(&self.driver),
                        self.driver.log.written_offset(),
                        "reads go on"
                    );
                    self.wait();
                }
                Err(AppendError::Poisoned(_)) => return false,
                Err(error) => panic!("a sound batch is refused: {error}"),
            }
        }
        panic!("the log goes on once there is room");
    }

    /// Lets time pass until nothing is under way.
    fn wait(&mut self) {
        for _ in 0..TRIES_MAX {
            self.driver.settle();
            if self.driver.log.is_idle() {
                return;
            }
            self.driver.now = self.driver.log.next_timeout().unwrap_or(self.driver.now);
        }
        panic!("the log goes on once there is room");
    }

    fn options(&self) -> OpenOptions {
        OpenOptions {
            now: self.driver.now,
            ..LogDriver::options(self.driver.log.flushed_offset().0, false)
        }
    }

    /// Whatever dies now: what was acknowledged is there afterwards, and stays.
    fn check_all_restarts(&self) {
        let flushed = self.driver.log.flushed_offset();
        for seed in 0..4 {
            let mut disk = self.driver.disk.clone();
            disk.reseed(seed);
            disk.clear_faults();
            disk.power_loss();
            let end = self.check_restart(disk, flushed);
            assert!(end >= flushed);

            let mut disk = self.driver.disk.clone();
            disk.reseed(seed);
            disk.clear_faults();
            disk.kill();
            let (mut driver, _) = LogDriver::open(config(), disk, self.options()).unwrap();
            let end = driver.log.log_end_offset();
            assert!(end >= self.driver.log.written_offset());
            driver.disk.power_loss();
            self.check_restart(driver.disk, end);
        }
    }

    /// Opens, and finds everything below `durable`, in order.
    fn check_restart(&self, disk: SimDisk, durable: Offset) -> Offset {
        let options = OpenOptions {
            recovery_point: durable,
            ..self.options()
        };
        let (mut driver, report) = LogDriver::open(config(), disk, options).unwrap();
        let end = driver.log.log_end_offset();
        assert!(
            end >= durable && end <= self.driver.log.log_end_offset(),
            "{durable} {end} {report:?}"
        );
        assert_eq!(read_end(&driver), end);
        driver.epoch = self.driver.epoch;
        assert_eq!(driver.append(1, 10).unwrap().base_offset, end);
        driver.settle();
        assert_eq!(driver.log.flushed_offset(), end.plus(1));
        end
    }
}

/// A run in which one request fails, and whether it did.
fn run_with(fault: Fault, seed: u64) -> (Run, bool) {
    let mut run = Run::new(SimDisk::with_seed(seed));
    run.driver.disk.plan(fault);
    run.use_it();
    let struck = run.driver.disk.planned_faults() == 0;
    (run, struck)
}

#[test]
fn any_request_may_fail_with_an_error_and_nothing_acknowledged_is_lost() {
    let mut poisoned = 0;
    for after in 0.. {
        let (mut run, struck) = run_with(fault(Half::Requests, None, "", after, ErrorKind::Other), after);
        if !struck {
            assert!(after > 30 && poisoned > 20, "{poisoned} of {after}");
            break;
        }
        if run.driver.log.poison().is_some() {
            poisoned += 1;
            assert!(matches!(run.driver.append(1, 10), Err(AppendError::Poisoned(_))));
            run.wait();
            assert_eq!(
                read_end(&run.driver),
                run.driver.log.written_offset(),
                "reads go on"
            );
            let before = run.driver.log.flushed_offset();
            run.driver.turn();
            assert!(
                run.driver.disk.outstanding().next().is_none(),
                "it asks for nothing any more"
            );
            assert_eq!(run.driver.log.flushed_offset(), before);
        }
        run.check_all_restarts();
    }
}

#[test]
fn any_request_but_a_sync_may_find_the_disk_full_and_is_made_again() {
    let mut waited = 0;
    for after in 0.. {
        let (mut run, struck) = run_with(
            fault(Half::Requests, None, "", after, ErrorKind::StorageFull),
            after,
        );
        if !struck {
            assert!(waited > 15, "{waited} of {after}");
            break;
        }
        if let Some(poison) = run.driver.log.poison() {
            let operation = &poison.error.operation;
            let room = ["write", "create", "replace"]
                .iter()
                .any(|word| operation.starts_with(word));
            assert!(!room, "{operation} needs room and is made again");
            run.wait();
        } else {
            waited += 1;
            assert_eq!(
                run.driver.log.flushed_offset(),
                Offset(i64::try_from(BATCHES).unwrap())
            );
        }
        run.check_all_restarts();
    }
}

/// A full disk met at one kind of write, five times in a row.
fn full_disk_is_waited_out(kind: OpKind, name_end: &'static str) {
    for after in 0..3 {
        let mut run = Run::new(SimDisk::with_seed(after));
        for _ in 0..5 {
            run.driver.disk.plan(fault(
                Half::Requests,
                Some(kind),
                name_end,
                after,
                ErrorKind::StorageFull,
            ));
        }
        run.use_it();
        assert_eq!(run.driver.disk.planned_faults(), 0, "there are such requests");
        assert!(run.driver.log.poison().is_none());
        assert_eq!(run.driver.log.flushed_offset(), run.driver.log.log_end_offset());
        assert_eq!(run.appended, BATCHES);
        run.check_all_restarts();
    }
}

/// An error met at one kind of request: the log is read-only and says on what.
fn error_poisons(kind: OpKind, name_end: &'static str) {
    let (mut run, struck) = run_with(
        fault(Half::Requests, Some(kind), name_end, 1, ErrorKind::Other),
        5,
    );
    assert!(struck, "there are such requests");
    let poison = run.driver.log.poison().expect("an error poisons the log").clone();
    assert!(poison.error.operation.contains(name_end), "{}", poison.error);
    assert!(matches!(run.driver.append(1, 10), Err(AppendError::Poisoned(_))));
    run.wait();
    assert!(
        run.driver.log.close(&mut run.driver.disk).is_err(),
        "the stop is not clean"
    );
    run.check_all_restarts();
}

macro_rules! fault_at_each_write {
    ($($name:ident: $kind:ident $name_end:literal;)*) => {
        mod full_disk_is_waited_out_at {
            use super::*;
            $(
                #[test]
                fn $name() {
                    full_disk_is_waited_out(OpKind::$kind, $name_end);
                }
            )*
        }

        mod error_makes_the_log_read_only_at {
            use super::*;
            $(
                #[test]
                fn $name() {
                    error_poisons(OpKind::$kind, $name_end);
                }
            )*

            #[test]
            fn a_sync() {
                error_poisons(OpKind::Sync, ".log");
            }
        }
    };
}

fault_at_each_write! {
    segment_data: Write ".log";
    segment_creation: Create ".log";
    offset_index: Put ".index";
    time_index: Put ".timeindex";
    producer_snapshot: Put ".snapshot";
    epoch_file: Put "leader-epoch-checkpoint";
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let (mut run, struck) = run_with(
        fault(Half::Requests, Some(OpKind::Sync), "", 2, ErrorKind::Other),
        1,
    );
    assert!(struck);
    let flushed = run.driver.log.flushed_offset();
    for _ in 0..10 {
        run.driver.log.request_flush();
        run.driver.turn();
        let syncs = run
            .driver
            .disk
            .outstanding()
            .filter(|request| matches!(request.op, IoOp::Sync { .. }));
        assert_eq!(syncs.count(), 0);
        run.wait();
        run.driver.now.0 += 60_000;
    }
    assert_eq!(run.driver.log.flushed_offset(), flushed);
}

/// The kernel calls the pages clean after a failed sync, and they read well: a log that was opened over
/// them, synced them and called them durable would lose them with the power.
#[test]
fn what_a_failed_sync_covered_is_written_anew_at_the_next_start() {
    let mut lost = 0;
    for seed in 0..50 {
        let mut run = Run::new(SimDisk::with_seed(seed));
        run.driver.disk.fail_next(OpKind::Sync, ErrorKind::Other);
        run.driver.append(3, 100).unwrap();
        run.wait();
        assert!(run.driver.log.poison().is_some());
        let mut without_power = run.driver.disk.clone();
        without_power.power_loss();
        let (driver, _) = LogDriver::open(config(), without_power, run.options()).unwrap();
        lost += usize::from(driver.log.log_end_offset() < Offset(3));

        run.driver.disk.kill();
        let (mut driver, _) = LogDriver::open(config(), run.driver.disk.clone(), run.options()).unwrap();
        assert_eq!(driver.log.flushed_offset(), Offset(3));
        driver.disk.power_loss();
        let (driver, _) = LogDriver::open(config(), driver.disk, LogDriver::options(3, false)).unwrap();
        assert_eq!(driver.log.log_end_offset(), Offset(3));
        assert!(!driver.disk.paths().any(|path| path.ends_with("sync-failed")));
    }
    assert!(lost > 10, "the disk does lose what the sync covered");
}

#[test]
fn a_write_that_found_room_for_a_part_is_whole_once_there_is_more() {
    let mut run = Run::new(SimDisk::new());
    run.append(100);
    run.wait();
    let used = run.driver.disk.used_bytes();
    run.driver.disk.set_capacity(Some(used + 100));
    for _ in 0..3 {
        run.driver.append(1, 300).unwrap();
    }
    run.driver.settle();
    assert!(run.driver.log.is_stalled());
    assert_eq!(
        run.driver.disk.used_bytes(),
        used + 100,
        "a short write fills the disk"
    );
    assert_eq!(run.driver.log.written_offset(), Offset(1));
    assert_eq!(
        run.driver.read_all(Offset(0), 1 << 20).len(),
        1,
        "what is not whole is not read"
    );
    run.driver.disk.set_capacity(None);
    run.wait();
    assert_eq!(run.driver.log.flushed_offset(), Offset(4));
    assert_eq!(run.driver.read_all(Offset(0), 1 << 20).len(), 4);
    run.check_all_restarts();
}

#[test]
fn a_log_stalled_on_a_full_disk_holds_no_more_than_before_and_goes_on_after() {
    let mut run = Run::new(SimDisk::new());
    run.append(100);
    run.wait();
    run.driver.disk.set_capacity(Some(0));
    run.driver.append(1, 100).unwrap();
    run.driver.settle();
    let end = run.driver.log.log_end_offset();
    for _ in 0..1000 {
        assert!(matches!(run.driver.append(1, 100), Err(AppendError::StorageFull)));
        run.driver.settle();
        // One try each time it is due, and not more often.
        let due = run.driver.log.next_timeout().unwrap();
        assert!(due > run.driver.now);
        run.driver.now.0 += 10;
    }
    assert_eq!(run.driver.log.log_end_offset(), end);
    run.driver.disk.set_capacity(None);
    run.wait();
    run.append(100);
    run.wait();
    assert_eq!(run.driver.log.flushed_offset(), end.plus(1));
    run.check_all_restarts();
}

/// A disk with a log that was in use and did not stop cleanly.
fn killed() -> (Run, SimDisk) {
    let mut run = Run::new(SimDisk::with_seed(9));
    run.use_it();
    run.driver.append(2, 50).unwrap();
    run.driver.settle();
    let mut disk = run.driver.disk.clone();
    disk.kill();
    (run, disk)
}

#[test]
fn any_call_may_fail_while_a_log_opens_and_the_next_try_finds_everything() {
    let (run, disk) = killed();
    for error in [ErrorKind::Other, ErrorKind::StorageFull] {
        for after in 0.. {
            let mut disk = disk.clone();
            disk.reseed(after);
            disk.plan(fault(Half::Calls, None, "", after, error));
            let options = LogDriver::options(0, false);
            let opened = ringlog_engine::log::Log::open(
                LogDriver::dir(),
                run.driver.log.id(),
                config(),
                options,
                &mut disk,
            );
            if disk.planned_faults() > 0 {
                opened.unwrap();
                assert!(after > 10);
                break;
            }
            match opened {
                Ok(_) => {}
                Err(OpenError::Io { source, .. }) => assert_eq!(source.kind(), error),
                Err(other) => panic!("a failed call is taken for damage: {other}"),
            }
            disk.kill();
            let end = run.check_restart(disk.clone(), run.driver.log.flushed_offset());
            assert_eq!(end, run.driver.log.log_end_offset());
            disk.power_loss();
            run.check_restart(disk, run.driver.log.flushed_offset());
        }
    }
}

#[test]
fn any_call_may_fail_while_a_log_closes_and_nothing_is_lost() {
    for error in [ErrorKind::Other, ErrorKind::StorageFull] {
        for after in 0.. {
            let mut run = Run::new(SimDisk::with_seed(after));
            run.use_it();
            run.driver.disk.plan(fault(Half::Calls, None, "", after, error));
            let closed = run.driver.log.close(&mut run.driver.disk);
            if run.driver.disk.planned_faults() > 0 {
                closed.unwrap();
                assert!(after > 3);
                break;
            }
            assert!(closed.is_err(), "a stop that failed half-way is not clean");
            run.check_all_restarts();
        }
    }
}

#[test]
fn any_call_may_fail_while_a_log_is_truncated_and_what_was_to_stay_is_there() {
    for error in [ErrorKind::Other, ErrorKind::StorageFull] {
        for after in 0.. {
            let mut run = Run::new(SimDisk::with_seed(after));
            run.use_it();
            let target = Offset(7);
            let recovery_point = target;
            run.driver.disk.plan(fault(Half::Calls, None, "", after, error));
            let truncated = run.driver.log.truncate_to(target, &mut run.driver.disk);
            if run.driver.disk.planned_faults() > 0 {
                assert_eq!(truncated.unwrap(), target);
                assert!(after > 5);
                break;
            }
            for power in [false, true] {
                let mut disk = run.driver.disk.clone();
                disk.kill();
                if power {
                    disk.power_loss();
                }
                let end = run.check_restart(disk, recovery_point);
                assert!(truncated.is_err() || end == target);
            }
        }
    }
}
