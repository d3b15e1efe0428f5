//! The part of the model that stops the log and opens it again: cleanly, after a kill, after a power loss.

use std::collections::BTreeSet;

use super::{Choose, LogModel};
use crate::io::IoQueue;
use crate::log::{Log, OpenOptions, Poison};
use crate::testing::LogDriver;
use crate::types::{LogId, Offset};

impl LogModel {
    pub(super) fn restart(mut self, choose: Choose<'_>) -> Self {
        let log = &self.driver.log;
        let (written, flushed) = (log.written_offset(), log.flushed_offset());
        match choose(4) {
            0 => {
                self.settle();
                if self.driver.log.poison().is_some() {
                    return self;
                }
                self = self.reopen();
                self.check_all();
                self
            }
            // Until the next start is told that a sync has failed, what memory shows counts for nothing.
            1 if self.is_next_start_told() => {
                self.driver.disk.kill();
                self.recover(written)
            }
            _ => {
                self.driver.disk.power_loss();
                self.recover(flushed)
            }
        }
    }

    fn is_next_start_told(&self) -> bool {
        let log = &self.driver.log;
        let syncs = ["fdatasync", "cut"];
        let failed_sync = |poison: &Poison| {
            let operation = &poison.error.operation;
            syncs.iter().any(|sync| operation.starts_with(sync))
        };
        let told = self.driver.disk.bytes(&LogDriver::path("sync-failed")).is_some();
        told || !log.poison().is_some_and(failed_sync)
    }

    /// A clean stop and start.
    pub(super) fn reopen(mut self) -> Self {
        let log = &mut self.driver.log;
        log.close(&mut self.driver.disk).expect("a still log closes");
        let end = log.log_end_offset();
        self.checkpoint();
        let reopened = self.open(true);
        assert_eq!(reopened.driver.log.log_end_offset(), end);
        reopened
    }

    /// Opens after the disk has lost what it may lose: everything below `kept` is there.
    fn recover(self, kept: Offset) -> Self {
        let old_end = self.driver.log.log_end_offset();
        let mut recovered = self.open(false);
        let log = &recovered.driver.log;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        assert!(kept <= end && end <= old_end, "{kept} <= {end} <= {old_end}");
        assert_eq!(log.flushed_offset(), end);
        recovered.batches.retain(|batch| batch.last_offset() < end);
        let last = recovered.batches.last();
        assert!(last.is_none_or(|last| last.next_offset().max(start) == end));
        recovered.check_all();
        recovered.check_no_rest();
        recovered
    }

    /// Opening leaves nothing of segments that were being removed.
    fn check_no_rest(&self) {
        let names = self
            .driver
            .disk
            .paths()
            .filter_map(|path| path.file_name()?.to_str());
        let names: BTreeSet<&str> = names.collect();
        for name in &names {
            let base = name.split_once("index").and_then(|_| name.get(..20));
            let log = base.map(|base| format!("{base}.log"));
            let is_rest = name.ends_with(".deleted") || log.is_some_and(|log| !names.contains(log.as_str()));
            assert!(!is_rest, "{names:?}");
        }
    }

    fn open(self, clean_shutdown: bool) -> Self {
        let LogDriver {
            log,
            mut disk,
            now,
            epoch,
            ..
        } = self.driver;
        let options = OpenOptions {
            recovery_point: self.recovery_point,
            log_start_offset: self.recorded_start.unwrap_or(log.log_start_offset()),
            clean_shutdown,
            now,
        };
        let (id, config) = (LogId(7), log.config().clone());
        let (log, report) =
            Log::open(LogDriver::dir(), id, config, options, &mut disk).expect("what is flushed is sound");
        assert!(!clean_shutdown || (report.scanned_segments, &report.cut) == (0, &None));
        Self {
            driver: LogDriver {
                log,
                disk,
                queue: IoQueue::new(),
                now,
                epoch,
            },
            ..self
        }
    }
}
