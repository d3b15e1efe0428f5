//! Scenarios of retention: what goes, when its files do, and what a crash in between leaves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::path::Path;

use bytes::BytesMut;
use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::io::{DirEntry, FileId, IoOp, IoRequest, OpenMode, Storage};
use ringlog_engine::log::{Log, OpenError, OpenOptions, RecoveryReport};
use ringlog_engine::record::RecordBatchBuilder;
use ringlog_engine::testing::{LogDriver, OpKind, SimDisk, batch_of};
use ringlog_engine::types::{LogId, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// A segment takes one batch of a hundred bytes' value.
fn config(retention_bytes: Option<u64>, retention_ms: Option<i64>) -> LogConfig {
    LogConfig {
        segment_bytes: 200,
        retention_bytes,
        retention_ms,
        ..LogConfig::default()
    }
}

/// Five segments of one record each, a second apart.
fn five_segments(config: LogConfig) -> LogDriver {
    let mut driver = LogDriver::new(config);
    for _ in 0..5 {
        driver.append(1, 100).unwrap();
        driver.now.0 += 1000;
    }
    driver.settle();
    driver
}

fn retain(driver: &mut LogDriver, high_watermark: i64) -> Option<Offset> {
    driver
        .log
        .enforce_retention(Offset(high_watermark), driver.now, &mut driver.queue)
}

fn names(driver: &LogDriver) -> Vec<String> {
    let names = driver.disk.paths().filter_map(Path::file_name);
    names.map(|name| name.to_str().unwrap().to_owned()).collect()
}

/// Names of files of the segment at `base`, whatever they end with.
fn files_of(driver: &LogDriver, base: i64) -> Vec<String> {
    let mut names = names(driver);
    names.retain(|name| name.starts_with(&format!("{base:020}.")));
    names
}

/// The power fails, then the log is opened by an owner that has recorded no log start.
fn crash(mut driver: LogDriver, keep: impl FnMut(usize) -> usize) -> (LogDriver, RecoveryReport) {
    driver.disk.crash(keep);
    let config = driver.log.config().clone();
    LogDriver::open(config, driver.disk, LogDriver::options(0, false)).unwrap()
}

#[test]
fn segments_beyond_the_size_go_with_all_their_files() {
    let mut driver = five_segments(config(None, None));
    let three = driver.log.size_bytes() / 5 * 3;
    driver.log.set_config(config(Some(three), None));
    assert_eq!(retain(&mut driver, 5), Some(Offset(2)));
    assert_eq!(driver.log.log_start_offset(), Offset(2));
    driver.settle();
    assert_eq!(driver.log.size_bytes(), three);
    assert!(files_of(&driver, 0).is_empty() && files_of(&driver, 1).is_empty());
    assert!(names(&driver).iter().all(|name| !name.ends_with(".deleted")));
    assert!(driver.log.read_plan(Offset(1), 1000, Offset(5)).is_err());
    assert_eq!(driver.read_all(Offset(2), 1000).len(), 3);
    assert_eq!(retain(&mut driver, 5), None, "once is enough");
}

#[test]
fn expired_segments_go_and_the_active_one_is_rolled_once_it_has_expired() {
    let mut driver = five_segments(config(None, Some(3000)));
    // Ages are 5,000 to 1,000.
    assert_eq!(retain(&mut driver, 5), Some(Offset(2)));
    driver.now.0 += 2001;
    assert_eq!(retain(&mut driver, 5), Some(Offset(5)));
    driver.settle();
    assert_eq!((driver.log.segment_count(), driver.log.size_bytes()), (1, 0));
    assert_eq!(files_of(&driver, 4), Vec::<String>::new());
    driver.append(1, 100).unwrap();
    driver.settle();
    let (driver, _) = driver.reopen().unwrap();
    assert_eq!(driver.log.log_start_offset(), Offset(5));
    assert_eq!(driver.read_all(Offset(5), 1000).len(), 1, "offsets go on");
}

#[test]
fn an_idle_segment_stays_until_retention_or_an_append_rolls_it() {
    let mut driver = LogDriver::new(LogConfig {
        segment_ms: 1000,
        ..config(None, None)
    });
    driver.append(1, 10).unwrap();
    driver.settle();
    driver.now.0 += 5000;
    assert_eq!(retain(&mut driver, 1), None);
    driver.settle();
    assert_eq!(driver.log.segment_count(), 1, "segment.ms looks at appends only");
    driver.append(1, 10).unwrap();
    assert_eq!(driver.log.segment_count(), 2);
}

#[test]
fn what_is_not_committed_stays() {
    let mut driver = five_segments(config(Some(0), Some(0)));
    assert_eq!(retain(&mut driver, 3), Some(Offset(3)));
    driver.append(1, 100).unwrap();
    driver.now.0 += 1;
    // Above what has been written, whatever the owner says.
    assert_eq!(retain(&mut driver, 6), Some(Offset(5)));
    driver.settle();
    assert_eq!(driver.read_all(Offset(5), 1000).len(), 1);
}

#[test]
fn names_change_before_files_are_deleted_and_after_they_are_closed() {
    let mut driver = five_segments(config(Some(0), None));
    retain(&mut driver, 4);
    driver.turn();
    // Beside it the epochs, which begin at the log start.
    let kinds = driver.disk.outstanding().map(|request| OpKind::of(&request.op));
    let kinds: Vec<OpKind> = kinds.filter(|&kind| kind != OpKind::Put).collect();
    assert_eq!(kinds, [&[OpKind::Close; 4][..], &[OpKind::Rename]].concat());
    for _ in 0..4 {
        driver.complete(0);
    }
    driver.complete(1);
    driver.turn();
    assert_eq!(
        driver.disk.outstanding().count(),
        1,
        "one change of names at a time"
    );
    driver.complete(0);
    assert!(names(&driver).contains(&"00000000000000000003.log.deleted".to_owned()));
    assert!(!driver.log.is_idle());
    driver.turn();
    // The indexes tell of the removal until the list of the segments does.
    for (kind, count) in [("log", 4), ("index", 0)] {
        let removed = driver.disk.outstanding().find_map(|request| match &request.op {
            IoOp::Remove { paths } => Some(paths),
            _ => None,
        });
        let removed = removed.expect("what was renamed is deleted").iter();
        let ending = format!(".{kind}.deleted");
        let of_kind = removed.filter(|path| path.to_str().unwrap().ends_with(&ending));
        assert_eq!(of_kind.count(), count);
    }
    driver.settle();
    assert!(names(&driver).iter().all(|name| !name.ends_with(".deleted")));
    assert!(driver.log.is_idle());
}

#[test]
fn a_crash_between_renaming_and_deleting_is_cleared_up_by_opening() {
    let mut driver = five_segments(config(Some(0), None));
    retain(&mut driver, 3);
    driver.turn();
    // Closes, then the change of names; the deletion is not even asked for.
    while driver.disk.outstanding().next().is_some() {
        driver.complete(0);
    }
    assert!(names(&driver).iter().any(|name| name.ends_with(".deleted")));
    let (driver, report) = crash(driver, |_| 0);
    assert!(names(&driver).iter().all(|name| !name.ends_with(".deleted")));
    assert!(report.foreign.is_empty());
    assert_eq!(driver.log.log_start_offset(), Offset(3), "as the files say");
    assert_eq!(driver.read_all(Offset(3), 1000).len(), 2);
}

#[test]
fn a_crash_within_renaming_leaves_an_end_of_the_log_and_no_index_without_it() {
    for renamed in 0..=15 {
        let mut driver = five_segments(config(Some(0), None));
        retain(&mut driver, 3);
        driver.turn();
        let (driver, _) = crash(driver, |count| if count == 15 { renamed } else { count });
        let start = driver.log.log_start_offset();
        assert_eq!(start.0, i64::try_from(renamed.div_ceil(5)).unwrap());
        let left = driver.read_all(start, 1000);
        assert_eq!(left.len(), usize::try_from(5 - start.0).unwrap());
        for gone in 0..start.0 {
            assert_eq!(files_of(&driver, gone), Vec::<String>::new());
        }
    }
}

#[test]
fn first_segments_that_are_missing_were_removed_or_the_log_does_not_open() {
    let mut driver = five_segments(config(Some(0), None));
    // A crash at each step: whatever was removed was not lost, and none of it comes back in part.
    for steps in 0.. {
        let mut driver = five_segments(config(Some(0), None));
        retain(&mut driver, 3);
        driver.turn();
        for _ in 0..steps {
            if driver.disk.outstanding().next().is_some() {
                driver.complete(0);
                driver.turn();
            }
        }
        let over = driver.log.is_idle();
        let (driver, _) = crash(driver, |count| count);
        let start = driver.log.log_start_offset();
        let left = driver.read_all(start, 1000).len();
        assert_eq!(i64::try_from(left).unwrap(), 5 - start.0);
        if over {
            break;
        }
    }
    let first = LogDriver::path(&format!("{:020}.log", 0));
    driver.disk.remove_file(&first).unwrap();
    driver.disk.kill();
    let opened = LogDriver::open(config(None, None), driver.disk, LogDriver::options(0, false));
    let Err(OpenError::Damaged { path, offset, .. }) = opened else {
        panic!("a segment is missing");
    };
    assert_eq!((path, offset), (first, Offset(0)));
}

#[test]
fn refused_renaming_is_tried_again_at_the_next_look() {
    let mut driver = five_segments(config(Some(0), None));
    driver.disk.fail_next(OpKind::Rename, ErrorKind::StorageFull);
    assert_eq!(retain(&mut driver, 3), Some(Offset(3)));
    driver.settle();
    assert!(driver.log.poison().is_none() && driver.log.is_idle());
    assert!(!files_of(&driver, 2).is_empty());
    assert_eq!(retain(&mut driver, 3), None);
    driver.settle();
    for base in 0..3 {
        assert_eq!(files_of(&driver, base), Vec::<String>::new());
    }
}

#[test]
fn a_truncation_leaves_the_snapshots_of_segments_whose_removal_was_refused() {
    let mut driver = five_segments(config(Some(0), None));
    driver.disk.fail_next(OpKind::Rename, ErrorKind::StorageFull);
    assert_eq!(retain(&mut driver, 3), Some(Offset(3)));
    driver.settle();
    driver.log.truncate_to(Offset(4), &mut driver.disk).unwrap();
    for base in [1, 2] {
        let files = files_of(&driver, base);
        let there = |extension: &str| files.contains(&format!("{base:020}.{extension}"));
        assert_eq!(there("log"), there("snapshot"), "{files:?}");
        assert!(there("log"));
    }
    retain(&mut driver, 3);
    driver.settle();
    assert_eq!(files_of(&driver, 2), Vec::<String>::new());
}

#[test]
fn a_full_disk_does_not_keep_retention_from_making_room() {
    let mut driver = five_segments(config(Some(0), None));
    driver.append(1, 100).unwrap();
    // The new segment's snapshot, or the index of the one before it.
    for kind in [OpKind::Put, OpKind::Create] {
        driver.disk.fail_next(kind, ErrorKind::StorageFull);
    }
    driver.settle();
    assert!(driver.log.is_stalled());
    assert_eq!(retain(&mut driver, 5), Some(Offset(5)));
    driver.settle();
    // What tells of the removal is all that is left.
    for base in 0..4 {
        assert_eq!(files_of(&driver, base), [format!("{base:020}.index.deleted")]);
    }
    let last = files_of(&driver, 4);
    assert!(last.contains(&"00000000000000000004.log".to_owned()), "{last:?}");
    driver.now = driver.log.next_timeout().unwrap();
    driver.settle();
    for base in 0..=4 {
        assert_eq!(files_of(&driver, base), Vec::<String>::new());
    }
    assert_eq!(driver.read_all(Offset(5), 1000).len(), 1);
}

#[test]
fn an_index_that_waits_for_room_does_not_outlive_its_segment() {
    let mut driver = LogDriver::new(config(None, None));
    driver.append(1, 100).unwrap();
    driver.append(1, 100).unwrap();
    // The snapshot of the second segment is put first, then the indexes of the first.
    driver.turn();
    let is_index = |request: &IoRequest| matches!(&request.op, IoOp::Put { path, .. } if path.ends_with("00000000000000000000.index"));
    while !driver.disk.outstanding().any(is_index) {
        driver.complete(0);
        driver.turn();
    }
    driver.disk.fail_next(OpKind::Put, ErrorKind::StorageFull);
    driver.settle();
    assert!(driver.log.is_stalled());
    driver.log.set_config(config(Some(0), None));
    assert_eq!(retain(&mut driver, 1), Some(Offset(1)));
    driver.settle();
    assert!(!driver.log.is_stalled(), "nothing waits for room any more");
    assert_eq!(files_of(&driver, 0), Vec::<String>::new());
    driver.append(1, 10).unwrap();
    driver.settle();
    assert_eq!(driver.read_all(Offset(1), 1000).len(), 2);
}

#[test]
fn producers_are_remembered_though_all_they_wrote_is_gone() {
    let sent = || {
        let mut builder = RecordBatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), Sequence(0));
        builder.append(TimestampMs(1_000_000), None, None, &[]).unwrap();
        BytesMut::from(builder.build().unwrap().as_ref())
    };
    let mut driver = LogDriver::new(config(Some(0), None));
    let epoch = driver.epoch;
    driver.log.append_as_leader(sent(), epoch, driver.now).unwrap();
    driver.settle();
    assert_eq!(retain(&mut driver, 1), Some(Offset(1)));
    // As far as storage lets it: then the power fails.
    driver.settle();
    assert_eq!(driver.log.size_bytes(), 0);
    let (mut driver, _) = crash(driver, |_| 0);
    let again = driver.log.append_as_leader(sent(), epoch, driver.now).unwrap();
    assert_eq!((again.duplicate, again.base_offset), (true, Offset(0)));
}

#[test]
fn a_segment_goes_only_when_the_next_one_is_on_disk_with_its_producers() {
    let mut driver = LogDriver::new(LogConfig {
        flush_policy: FlushPolicy::Group,
        ..config(Some(0), None)
    });
    driver.append(1, 100).unwrap();
    driver.settle();
    retain(&mut driver, 1);
    let mut renamed = false;
    while !renamed {
        driver.turn();
        let rename = |request: &IoRequest| matches!(request.op, IoOp::Rename { .. });
        renamed = driver.disk.outstanding().any(rename);
        let names = names(&driver);
        let there = |name: &str| names.contains(&format!("00000000000000000001.{name}"));
        assert!(!renamed || there("log") && there("snapshot"), "{names:?}");
        // The last first: whatever the order, the old segment waits.
        let last = driver.disk.outstanding().count() - 1;
        if !renamed {
            driver.complete(last);
        }
    }
}

#[test]
fn segments_without_timestamps_age_from_their_last_append() {
    let mut driver = LogDriver::new(config(None, Some(3000)));
    for _ in 0..2 {
        let batch = batch_of(1, 100, TimestampMs::NONE);
        driver
            .log
            .append_as_leader(batch, driver.epoch, driver.now)
            .unwrap();
        driver.settle();
        driver.now.0 += 2000;
    }
    assert_eq!(retain(&mut driver, 2), Some(Offset(1)), "4,000 and 2,000 ms");
    driver.now.0 += 1000;
    assert_eq!(retain(&mut driver, 2), None);
    driver.now.0 += 1;
    assert_eq!(retain(&mut driver, 2), Some(Offset(2)));
}

/// A disk that says when its files were modified.
struct Dated {
    disk: SimDisk,
    modified_at: TimestampMs,
}

impl Storage for Dated {
    fn list(&mut self, dir: &Path) -> std::io::Result<Vec<DirEntry>> {
        let mut entries = self.disk.list(dir)?;
        entries
            .iter_mut()
            .for_each(|entry| entry.modified_at = self.modified_at);
        Ok(entries)
    }
    fn create_dir(&mut self, dir: &Path) -> std::io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> std::io::Result<u64> {
        self.disk.open(file, path, mode)
    }
    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        self.disk.read_at(file, position, buf)
    }
    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.disk.write_at(file, position, bytes)
    }
    fn set_len(&mut self, file: FileId, len_bytes: u64) -> std::io::Result<()> {
        self.disk.set_len(file, len_bytes)
    }
    fn sync(&mut self, file: FileId) -> std::io::Result<()> {
        self.disk.sync(file)
    }
    fn close(&mut self, file: FileId) {
        self.disk.close(file);
    }
    fn read_file(&mut self, path: &Path, max_bytes: u64) -> std::io::Result<Vec<u8>> {
        self.disk.read_file(path, max_bytes)
    }
    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        self.disk.put_file(path, bytes)
    }
    fn remove_file(&mut self, path: &Path) -> std::io::Result<()> {
        self.disk.remove_file(path)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }
}

#[test]
fn segments_without_timestamps_age_from_their_files_once_reopened() {
    const NOW: TimestampMs = TimestampMs(1_000_000);
    for (modified_at, gone_after_ms) in [
        (TimestampMs(NOW.0 - 2000), 1001),
        (TimestampMs::NONE, 3001),
        // A clock that was set back does not keep records for longer than the opening.
        (TimestampMs(NOW.0 + 5000), 3001),
    ] {
        let mut driver = LogDriver::new(config(None, Some(3000)));
        let batch = batch_of(1, 100, TimestampMs::NONE);
        driver.log.append_as_leader(batch, driver.epoch, NOW).unwrap();
        driver.settle();
        driver.log.close(&mut driver.disk).unwrap();
        let disk = driver.disk;
        let mut dated = Dated { disk, modified_at };
        let options = OpenOptions {
            now: NOW,
            ..LogDriver::options(1, true)
        };
        let config = config(None, Some(3000));
        let (mut log, _) = Log::open(LogDriver::dir(), LogId(7), config, options, &mut dated).unwrap();
        let mut at = |ms| log.enforce_retention(Offset(1), TimestampMs(NOW.0 + ms), &mut driver.queue);
        assert_eq!(at(gone_after_ms - 1), None, "{modified_at}");
        assert_eq!(at(gone_after_ms), Some(Offset(1)), "{modified_at}");
    }
}

#[test]
fn leftover_indexes_without_a_segment_are_removed_by_opening() {
    let mut driver = five_segments(config(None, None));
    driver.log.close(&mut driver.disk).unwrap();
    let mut disk = driver.disk;
    // Otherwise the segment would have been lost.
    for name in ["00000000000000000000.log", "segment-checkpoint"] {
        disk.remove_file(&LogDriver::path(name)).unwrap();
    }
    let (driver, _) = LogDriver::open(config(None, None), disk, LogDriver::options(5, false)).unwrap();
    assert_eq!(files_of(&driver, 0), Vec::<String>::new());
    assert_eq!(driver.log.log_start_offset(), Offset(1));
}

#[test]
fn a_poisoned_log_keeps_everything() {
    let mut driver = five_segments(config(Some(0), None));
    driver.append(1, 10).unwrap();
    driver.disk.fail_next(OpKind::Write, ErrorKind::Other);
    driver.settle();
    assert!(driver.log.poison().is_some());
    assert_eq!(retain(&mut driver, 5), None);
    assert_eq!(driver.read_all(Offset(0), 1000).len(), 5);
}
