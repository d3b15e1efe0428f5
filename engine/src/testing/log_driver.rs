//! One log on a disk in memory, driven by hand: the loop a shard runs, in steps a test can stop at.
//!
//! Panics where an outcome that the test did not ask for is an error.

use std::path::{Path, PathBuf};

use bytes::BytesMut;

use super::SimDisk;
use crate::config::LogConfig;
use crate::io::IoQueue;
use crate::log::{
    AppendError, AppendInfo, Log, Narrow, OpenError, OpenOptions, RecoveryReport, Scan, ScanPlan,
};
use crate::record::{BatchHeader, RecordBatch, RecordBatchBuilder};
use crate::types::{LeaderEpoch, LogId, Offset, TimestampMs};

/// See the module.
#[derive(Debug)]
pub struct LogDriver {
    /// The log.
    pub log: Log,
    /// The disk.
    pub disk: SimDisk,
    /// Requests of the turn.
    pub queue: IoQueue,
    /// The clock; moves when the test says.
    pub now: TimestampMs,
    /// The epoch of appends.
    pub epoch: LeaderEpoch,
}

impl LogDriver {
    /// Where the log lies.
    #[must_use]
    pub fn dir() -> &'static Path {
        Path::new("/data/t-0")
    }

    /// The path of a file of the log.
    #[must_use]
    pub fn path(name: &str) -> PathBuf {
        Self::dir().join(name)
    }

    /// A new log on an empty disk.
    #[must_use]
    pub fn new(config: LogConfig) -> Self {
        let opened = Self::open(config, SimDisk::new(), Self::options(0, false));
        opened.expect("an empty disk opens").0
    }

    /// What the owner of a log that starts at 0 tells when it is opened.
    #[must_use]
    pub fn options(recovery_point: i64, clean_shutdown: bool) -> OpenOptions {
        OpenOptions {
            recovery_point: Offset(recovery_point),
            log_start_offset: Offset(0),
            clean_shutdown,
            now: TimestampMs(1_000_000),
        }
    }

    /// Opens what is on `disk`.
    ///
    /// # Errors
    ///
    /// Those of [`Log::open`].
    pub fn open(
        config: LogConfig,
        mut disk: SimDisk,
        options: OpenOptions,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        disk.create_dirs(Path::new("/data"));
        let (log, report) = Log::open(Self::dir(), LogId(7), config, options, &mut disk)?;
        let driver = Self {
            log,
            disk,
            queue: IoQueue::new(),
            now: options.now,
            epoch: LeaderEpoch(0),
        };
        Ok((driver, report))
    }

    /// Appends a batch of `records` records of `value_bytes` each.
    ///
    /// # Errors
    ///
    /// Those of [`Log::append_as_leader`].
    pub fn append(&mut self, records: usize, value_bytes: usize) -> Result<AppendInfo, AppendError> {
        let batch = batch_of(records, value_bytes, self.now);
        self.log.append_as_leader(batch, self.epoch, self.now)
    }

    /// Ends the turn: the log's requests are submitted.
    pub fn turn(&mut self) {
        self.log.poll_io(&mut self.queue, self.now);
        self.disk.submit(self.queue.drain());
    }

    /// Completes the request at `index` of those outstanding.
    pub fn complete(&mut self, index: usize) {
        let completion = self.disk.complete(index);
        self.log.handle_io(completion);
    }

    /// Turns and completes, oldest request first, until nothing is outstanding.
    pub fn settle(&mut self) {
        self.turn();
        while self.disk.outstanding().next().is_some() {
            self.complete(0);
            self.turn();
        }
    }

    /// Stops cleanly and opens again.
    ///
    /// # Errors
    ///
    /// Those of [`Log::open`].
    pub fn reopen(mut self) -> Result<(Self, RecoveryReport), OpenError> {
        self.settle();
        self.log.close(&mut self.disk).expect("a settled log closes");
        let options = OpenOptions {
            recovery_point: self.log.log_end_offset(),
            log_start_offset: self.log.log_start_offset(),
            clean_shutdown: true,
            now: self.now,
        };
        Self::open(self.log.config().clone(), self.disk, options)
    }

    /// Reads from `offset` below `bound` as an executor does; `None` where the log has nothing.
    #[must_use]
    pub fn read(&self, offset: Offset, max_bytes: u32, bound: Offset) -> Option<Vec<u8>> {
        let mut from = offset;
        loop {
            let mut plan = self
                .log
                .read_plan(from, max_bytes, bound)
                .expect("the offset is in range")?;
            let file = self.disk.file_bytes(plan.file).expect("the file is open");
            while !plan.is_located() {
                let chunk = slice(file, plan.scan_position(), plan.scan_bytes() as usize);
                match plan.narrow(chunk).expect("the log is sound") {
                    Narrow::Located | Narrow::NeedMore => {}
                    Narrow::Nothing => return None,
                    Narrow::NextSegment(next) => {
                        from = next;
                        break;
                    }
                }
            }
            if plan.is_located() {
                let bytes = slice(file, plan.position, plan.len_bytes as usize);
                assert_eq!(
                    bytes.len(),
                    plan.len_bytes as usize,
                    "the plan ends within the file"
                );
                return Some(bytes.to_vec());
            }
        }
    }

    /// The headers of all batches from `offset` to the written end, one read after another.
    #[must_use]
    pub fn read_all(&self, mut offset: Offset, max_bytes: u32) -> Vec<BatchHeader> {
        let mut headers = Vec::new();
        while let Some(bytes) = self.read(offset, max_bytes, self.log.log_end_offset()) {
            let mut rest = bytes.as_slice();
            while let Ok(batch) = RecordBatch::parse(rest) {
                batch.verify_crc().expect("what is read is intact");
                headers.push(*batch.header());
                offset = batch.header().next_offset();
                rest = &rest[batch.bytes().len()..];
            }
        }
        headers
    }

    /// The first record from `from_offset` on with a timestamp at or after `timestamp`, looked for as
    /// an executor does.
    #[must_use]
    pub fn find_timestamp(
        &self,
        timestamp: TimestampMs,
        from_offset: Offset,
    ) -> Option<(Offset, TimestampMs)> {
        let mut plan = self.log.locate_timestamp(timestamp, from_offset)?;
        loop {
            match self.search(&mut plan) {
                Scan::Found { offset, timestamp } => return Some((offset, timestamp)),
                _ => plan = self.log.locate_timestamp(timestamp, plan.next_segment?)?,
            }
        }
    }

    /// Follows `plan` to its end.
    pub fn search(&self, plan: &mut ScanPlan) -> Scan {
        let file = self.disk.file_bytes(plan.file).expect("the file is open");
        loop {
            let chunk = slice(file, plan.position, plan.len_bytes);
            match plan.search(chunk).expect("the log is sound") {
                Scan::NeedMore => {}
                found => return found,
            }
        }
    }
}

fn slice(file: &[u8], position: u64, len_bytes: usize) -> &[u8] {
    let start = usize::try_from(position)
        .expect("a position in memory")
        .min(file.len());
    &file[start..(start + len_bytes).min(file.len())]
}

/// A producer's batch of `records` records of `value_bytes` each, all of `timestamp`.
///
/// # Panics
///
/// Where the batch would be larger than the format can say.
#[must_use]
pub fn batch_of(records: usize, value_bytes: usize, timestamp: TimestampMs) -> BytesMut {
    let mut builder = RecordBatchBuilder::new();
    for i in 0..records {
        let value = vec![u8::try_from(i % 251).expect("below 251"); value_bytes];
        builder
            .append(timestamp, None, Some(&value), &[])
            .expect("the batch is small");
    }
    BytesMut::from(builder.build().expect("the batch is small").as_ref())
}
