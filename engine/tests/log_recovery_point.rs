//! What opening after a crash believes below the recovery point, what it verifies, and how much of the
//! files it reads.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test, too")]

use std::io;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use ringlog_engine::config::LogConfig;
use ringlog_engine::io::{DirEntry, FileId, OpenMode, Storage};
use ringlog_engine::log::{Defect, Log, OpenError, OpenOptions, RecoveryReport};
use ringlog_engine::record::{
    BATCH_HEADER_LEN, BatchError, BatchHeader, EndTxnMarker, RecordBatch, RecordBatchBuilder,
};
use ringlog_engine::testing::{LogDriver, SimDisk};
use ringlog_engine::types::{LogId, Offset, ProducerEpoch, ProducerId, Sequence};

/// Storage that counts the bytes of segments that are read.
struct Counting {
    disk: SimDisk,
    read_bytes: usize,
}

impl Storage for Counting {
    fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }
    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn open(&mut self, file: FileId, path: &Path, mode: OpenMode) -> io::Result<u64> {
        self.disk.open(file, path, mode)
    }
    fn read_at(&mut self, file: FileId, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.disk.read_at(file, position, buf)?;
        self.read_bytes += read;
        Ok(read)
    }
    fn write_at(&mut self, file: FileId, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(file, position, bytes)
    }
    fn set_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.disk.set_len(file, len_bytes)
    }
    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.disk.sync(file)
    }
    fn close(&mut self, file: FileId) {
        self.disk.close(file);
    }
    fn read_file(&mut self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        self.disk.read_file(path, max_bytes)
    }
    fn put_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.disk.put_file(path, bytes)
    }
    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
}

fn path() -> PathBuf {
    LogDriver::path("00000000000000000000.log")
}

/// A log of one segment, flushed and then killed.
fn killed(batches: usize, records: usize, value_bytes: usize) -> SimDisk {
    let mut driver = LogDriver::new(LogConfig::default());
    for _ in 0..batches {
        driver.append(records, value_bytes).unwrap();
        driver.now.0 += 10;
    }
    driver.settle();
    driver.disk.kill();
    driver.disk
}

/// Where the batches of the segment begin, with their headers.
fn batches(disk: &SimDisk) -> Vec<(usize, BatchHeader)> {
    let (bytes, mut at, mut batches) = (disk.bytes(&path()).unwrap(), 0, Vec::new());
    while let Ok(header) = BatchHeader::peek(&bytes[at..]) {
        batches.push((at, *header));
        at += header.len_bytes();
    }
    batches
}

/// The disk with its segment changed.
fn changed(disk: &SimDisk, change: impl FnOnce(&mut Vec<u8>)) -> SimDisk {
    let mut disk = disk.clone();
    let mut bytes = disk.bytes(&path()).unwrap().to_vec();
    change(&mut bytes);
    disk.plant(&path(), &bytes);
    disk
}

fn open(disk: SimDisk, recovery_point: i64) -> Result<(LogDriver, RecoveryReport), OpenError> {
    LogDriver::open(
        LogConfig::default(),
        disk,
        LogDriver::options(recovery_point, false),
    )
}

/// Bytes of segments read while the log is opened.
fn read_bytes(disk: SimDisk, options: OpenOptions) -> (usize, RecoveryReport) {
    let mut storage = Counting { disk, read_bytes: 0 };
    let config = LogConfig::default();
    let opened = Log::open(LogDriver::dir(), LogId(0), config, options, &mut storage);
    (storage.read_bytes, opened.unwrap().1)
}

/// Position and offset that the error names.
fn damage(opened: Result<(LogDriver, RecoveryReport), OpenError>) -> Option<(u64, i64)> {
    match opened {
        Err(OpenError::Damaged {
            path: named,
            position,
            offset,
            ..
        }) => {
            assert_eq!(named, path());
            Some((position, offset.0))
        }
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

/// The headers up to the first batch whose checksum does not hold, and whether there is such a batch.
fn read(driver: &LogDriver) -> (Vec<BatchHeader>, bool) {
    let (mut headers, mut offset) = (Vec::new(), Offset(0));
    while let Some(bytes) = driver.read(offset, 1 << 20, driver.log.log_end_offset()) {
        let mut rest = bytes.as_slice();
        while let Ok(batch) = RecordBatch::parse(rest) {
            if batch.verify_crc().is_err() {
                return (headers, true);
            }
            headers.push(*batch.header());
            offset = batch.header().next_offset();
            rest = &rest[batch.bytes().len()..];
        }
    }
    (headers, false)
}

#[test]
fn of_large_batches_below_the_recovery_point_only_a_page_each_is_read() {
    let disk = killed(100, 1, 60_000);
    let len_bytes = disk.bytes(&path()).unwrap().len();
    let (read_bytes_all, report) = read_bytes(disk.clone(), LogDriver::options(0, false));
    assert_eq!(report.scanned_bytes, len_bytes as u64);
    assert!(read_bytes_all >= len_bytes);

    let options = LogDriver::options(90, false);
    let (read_bytes, report) = read_bytes(disk, options);
    assert_eq!(report.scanned_bytes, len_bytes as u64 / 10);
    // Of those above, what a chunk does not hold whole is read twice.
    let most = 90 * 4096 + 2 * len_bytes / 10;
    assert!(read_bytes <= most, "{read_bytes} bytes read, not {most}");
}

#[test]
fn of_segments_before_the_recovery_point_only_the_ends_are_read() {
    let config = LogConfig {
        segment_bytes: 1500,
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    let mut driver = LogDriver::new(config.clone());
    for _ in 0..100 {
        driver.append(2, 50).unwrap();
    }
    driver.settle();
    driver.disk.kill();
    let (segments, mut storage) = (
        driver.log.segment_count(),
        Counting {
            disk: driver.disk,
            read_bytes: 0,
        },
    );
    assert!(segments > 10);
    let options = LogDriver::options(200, false);
    let opened = Log::open(LogDriver::dir(), LogId(0), config, options, &mut storage);
    assert_eq!(opened.unwrap().1.scanned_segments, 1);
    // Their first header, and what lies behind the last entry of their index.
    let most = 1500 + segments * 600;
    assert!(
        storage.read_bytes <= most,
        "{} bytes read, not {most}",
        storage.read_bytes
    );
}

#[test]
fn small_batches_are_read_once_wherever_the_recovery_point_is() {
    let disk = killed(5000, 2, 100);
    let len_bytes = disk.bytes(&path()).unwrap().len();
    assert!(len_bytes > 4 * 256 * 1024);
    for recovery_point in [0, 1, 5000, 5001, 9999, 10_000] {
        let (read_bytes, _) = read_bytes(disk.clone(), LogDriver::options(recovery_point, false));
        // A chunk begins anew with the batch that the one before did not hold whole.
        let most = len_bytes + 2 * 4096 + len_bytes / 256;
        assert!(
            read_bytes <= most,
            "{recovery_point}: {read_bytes} read, not {most}"
        );
    }
}

#[test]
fn a_turned_byte_of_a_payload_below_the_recovery_point_is_told_to_its_reader() {
    let disk = killed(10, 2, 100);
    for (index, (start, header)) in batches(&disk).into_iter().enumerate() {
        let disk = changed(&disk, |bytes| bytes[start + header.len_bytes() - 1] ^= 1);
        let opened = open(disk, 14);
        if index < 7 {
            let (driver, report) = opened.unwrap();
            assert_eq!((report.cut, driver.log.log_end_offset()), (None, Offset(20)));
            let (headers, refused) = read(&driver);
            assert_eq!((headers.len(), refused), (index, true));
        } else {
            let (driver, report) = opened.unwrap();
            assert_eq!(report.cut.unwrap().position, start as u64);
            assert_eq!(driver.log.log_end_offset(), header.base_offset());
        }
    }
}

#[test]
fn a_batch_that_the_recovery_point_lies_in_is_verified() {
    let disk = killed(10, 2, 100);
    let (start, header) = batches(&disk)[6];
    let disk = changed(&disk, |bytes| bytes[start + header.len_bytes() - 1] ^= 1);
    assert_eq!(damage(open(disk.clone(), 13)), Some((start as u64, 12)));
    assert_eq!(damage(open(disk, 14)), None);
}

#[test]
fn a_turned_byte_of_a_header_below_the_recovery_point_is_named_or_told_to_its_reader_and_cuts_nothing() {
    // Of the length of a power of two, so that a turned bit of it leads to where a batch begins.
    let value_bytes = (0..1024).find(|&len| batches(&killed(1, 1, len))[0].1.len_bytes() == 1024);
    let disk = killed(12, 1, value_bytes.unwrap());
    let all = batches(&disk);
    let truth: Vec<_> = all.iter().map(|(_, header)| *header).collect();
    let (mut named, mut told) = (0, 0);
    for index in [0, 4, 8, 9] {
        let start = all[index].0;
        // The checksum covers neither the base offset nor the leader's epoch.
        for at in (8..BATCH_HEADER_LEN).filter(|at| !(12..16).contains(at)) {
            for bit in 0..8 {
                let disk = changed(&disk, |bytes| bytes[start + at] ^= 1 << bit);
                let place = format!("bit {bit} of byte {at} of batch {index}");
                match open(disk, 10) {
                    Ok((driver, report)) => {
                        assert_eq!(
                            (&report.cut, report.dropped_segments.len()),
                            (&None, 0),
                            "{place}"
                        );
                        assert_eq!(driver.log.log_end_offset(), Offset(12), "{place}");
                        let (headers, refused) = read(&driver);
                        assert_eq!((headers.as_slice(), refused), (&truth[..index], true), "{place}");
                        told += 1;
                    }
                    Err(error @ OpenError::OldFormat { .. }) => {
                        assert!(at == 16, "{place}: {error}");
                        named += 1;
                    }
                    opened => {
                        let place_of = (start as u64, i64::try_from(index).unwrap());
                        assert_eq!(damage(opened), Some(place_of), "{place}");
                        named += 1;
                    }
                }
            }
        }
    }
    assert!(named > 250 && told > 500, "{named} named, {told} told");
}

#[test]
fn a_turned_byte_of_a_base_offset_below_the_recovery_point_is_named() {
    let disk = killed(12, 1, 100);
    let start = batches(&disk)[4].0;
    // Below those before, above those behind, beyond what a segment can say.
    for (at, position) in [(7, 4), (6, 5), (0, 4)] {
        let disk = changed(&disk, |bytes| bytes[start + at] ^= if at == 7 { 4 } else { 1 });
        let opened = open(disk, if at == 6 { 1000 } else { 10 });
        let (found, _) = damage(opened).unwrap();
        assert_eq!(found, batches(&killed(12, 1, 100))[position].0 as u64);
    }
}

#[test]
fn a_gap_below_the_recovery_point_is_believed_where_the_batch_before_it_is_sound() {
    let disk = killed(12, 1, 100);
    let all = batches(&disk);
    let (from, to) = (all[3].0, all[5].0);
    let gap = changed(&disk, |bytes| drop(bytes.drain(from..to)));
    let (driver, report) = open(gap.clone(), 12).unwrap();
    assert_eq!(report.cut, None);
    assert_eq!(read(&driver).0.len(), 10);
    let (before, header) = all[2];
    let damaged = changed(&gap, |bytes| bytes[before + header.len_bytes() - 1] ^= 1);
    assert_eq!(damage(open(damaged, 12)), Some((before as u64, 2)));
}

/// Below the recovery point: one that said the contrary would show readers what was aborted, or hide what
/// was committed.
#[test]
fn markers_of_transactions_are_verified_wherever_they_are() {
    let mut driver = LogDriver::new(LogConfig::default());
    let (id, epoch) = (ProducerId(3), ProducerEpoch(0));
    let mut builder = RecordBatchBuilder::new()
        .producer(id, epoch, Sequence(0))
        .transactional();
    builder.append(driver.now, None, Some(b"v"), &[]).unwrap();
    let batch = BytesMut::from(builder.build().unwrap().as_ref());
    driver
        .log
        .append_as_leader(batch, driver.epoch, driver.now)
        .unwrap();
    let marker = EndTxnMarker {
        committed: true,
        coordinator_epoch: 0,
    };
    let log = &mut driver.log;
    log.append_end_txn_marker(id, epoch, marker, driver.epoch, driver.now)
        .unwrap();
    for _ in 0..3 {
        driver.append(1, 100).unwrap();
    }
    driver.settle();
    driver.disk.kill();
    let (start, header) = batches(&driver.disk)[1];
    assert!(header.attributes().is_control());
    for at in start + 21..start + header.len_bytes() {
        let disk = changed(&driver.disk, |bytes| bytes[at] ^= 1);
        assert_eq!(damage(open(disk, 5)), Some((start as u64, 1)), "byte {at}");
    }
}

#[test]
fn a_repair_and_an_opening_after_a_failed_sync_verify_everything() {
    let disk = killed(10, 1, 100);
    let (start, header) = batches(&disk)[3];
    let damaged = changed(&disk, |bytes| bytes[start + header.len_bytes() - 1] ^= 1);
    let options = LogDriver::options(8, false);
    let config = LogConfig::default;

    let mut repaired = damaged.clone();
    let (log, report) = Log::repair(LogDriver::dir(), LogId(0), config(), options, &mut repaired).unwrap();
    assert_eq!(log.log_end_offset(), Offset(3));
    let cut = report.cut.unwrap();
    assert_eq!(cut.position, start as u64);
    assert!(matches!(cut.defect, Some(Defect::Batch(BatchError::Crc { .. }))));

    let mut failed = damaged;
    failed.plant(&LogDriver::path("sync-failed"), b"");
    assert_eq!(damage(open(failed, 8)), Some((start as u64, 3)));
}
