//! The window of zeros ahead of a log's data: whether there is one, how large, and when it goes.
//!
//! A durable write into zeros that are on disk changes no metadata, one that appends does each time. Owns
//! the policy: a log that is appended to at a rate, and flushed, a little at a time, owns zeros, an idle, slow or unflushed one none,
//! nor one whose syncs cover much, and only the file that is appended to has any. Knows no requests and no clock (`write_pipeline.rs` makes the requests).
//! Data never goes where zeros are on their way. Whatever may have extended the file counts as zeros until
//! the file has been cut. Tested in `tests/log_zero_window.rs`.

use crate::config::{FlushPolicy, LogConfig};
use crate::types::{Offset, TimestampMs};

/// Positions and lengths of zeros are multiples of it, as writes past the page cache demand.
const PAGE_BYTES: u32 = 4096;
/// The first window, and what is to be appended for it within [`START_MS`].
const BYTES_MIN: u32 = 256 * 1024;
const START_MS: i64 = 1000;
/// A log that appends less than [`BYTES_MIN`] for so long gives its zeros back.
const IDLE_MS: i64 = 10_000;
/// A window that needs more zeros sooner than this doubles. Larger ones than it takes to be written in
/// this time gain nothing.
const DOUBLE_MS: i64 = 200;
/// A window that lasts for longer is halved.
const HALVE_MS: i64 = 2000;
/// Where syncs cover more bytes than this on average there are no zeros: writing them takes more of the disk than
/// a change of metadata for so many bytes does.
const SYNC_BYTES_MAX: u64 = 128 * 1024;
/// A first window is for syncs of less: its syncs are shorter, and cover less.
const SYNC_BYTES_START: u64 = 96 * 1024;
/// Syncs that the average looks back on.
const SYNCS_AVERAGED: u64 = 8;
/// After a full disk there are no more zeros for so long.
const FULL_MS: i64 = 30_000;

/// Where a log is appended to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Base offset of the last segment.
    pub(super) segment: Offset,
    /// The append position, staged bytes included.
    pub(super) position: u32,
    /// Whether it has a file.
    pub(super) open: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroRequest {
    /// Write zeros to the file of the tail.
    Write { position: u32, len_bytes: u32 },
    /// Cut the file of this segment to its data, once no write to it is under way.
    Cut { segment: Offset },
}

/// The file that has zeros behind its data, or may have.
#[derive(Clone, Copy, Debug)]
struct Zeros {
    segment: Offset,
    /// Zeros up to here have been asked for.
    end: u32,
    /// From here on they are on their way.
    writing_from: Option<u32>,
    cut: Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    No,
    Wanted,
    UnderWay,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ZeroWindow {
    zeros: Option<Zeros>,
    /// The size of the window; 0 before the first.
    size_bytes: u32,
    /// Someone has asked for a flush; the time is set by the next poll.
    flush_wanted: bool,
    /// When someone last did.
    flush_wanted_at: Option<TimestampMs>,
    /// Bytes that a sync covers, on average.
    sync_bytes: u64,
    /// When zeros were asked for last.
    refilled_at: Option<TimestampMs>,
    /// When the log was last known to have appended enough, and its position then.
    mark: Option<(TimestampMs, Tail)>,
    /// The disk was full; the time is set by the next poll.
    full: bool,
    full_until: Option<TimestampMs>,
    /// Zeros cannot be written here.
    refused: bool,
}

impl ZeroWindow {
    /// What is to be done for a log that ends at `tail`. A cut is asked for until
    /// [`handle_cut_asked`](Self::handle_cut_asked).
    pub(super) fn poll(&mut self, tail: Tail, config: &LogConfig, now: TimestampMs) -> Option<ZeroRequest> {
        let bytes_max = config.zero_window_bytes_max / PAGE_BYTES * PAGE_BYTES;
        if std::mem::take(&mut self.flush_wanted) {
            self.flush_wanted_at = Some(now);
        }
        let lately = |at: TimestampMs| (0..IDLE_MS).contains(&now.0.saturating_sub(at.0));
        let flushed = config.flush_policy == FlushPolicy::Group || self.flush_wanted_at.is_some_and(lately);
        let on = bytes_max > 0 && flushed;
        let bytes_min = BYTES_MIN.min(bytes_max);
        if std::mem::take(&mut self.full) {
            self.full_until = Some(after(now, FULL_MS));
        }
        self.full_until = self.full_until.filter(|&until| now < until);
        let sync_bytes_max = self.zeros.map_or(SYNC_BYTES_START, |_| SYNC_BYTES_MAX);
        let small = self.sync_bytes <= sync_bytes_max;
        let keep = on && self.is_fast(tail, bytes_min, now) && small;
        if let Some(zeros) = &mut self.zeros {
            if zeros.cut == Cut::No && (!keep || zeros.segment != tail.segment) {
                zeros.cut = Cut::Wanted;
            }
            if zeros.writing_from.is_some() || zeros.cut == Cut::UnderWay {
                return None;
            }
            if zeros.cut == Cut::Wanted {
                return Some(ZeroRequest::Cut {
                    segment: zeros.segment,
                });
            }
        }
        let may_write = keep && tail.open && !self.refused && self.full_until.is_none();
        may_write.then(|| self.refill(tail, config, now)).flatten()
    }

    /// Whether enough was appended lately: for a first window, or to keep the one there is.
    fn is_fast(&mut self, tail: Tail, bytes_min: u32, now: TimestampMs) -> bool {
        let (at, marked) = *self.mark.get_or_insert((now, tail));
        let elapsed = now.0.saturating_sub(at.0);
        let same = marked.segment == tail.segment && marked.position <= tail.position;
        let enough = same && tail.position - marked.position >= bytes_min;
        let allowed_ms = if self.zeros.is_some() { IDLE_MS } else { START_MS };
        let in_time = (0..allowed_ms).contains(&elapsed);
        if enough || !same || !in_time {
            self.mark = Some((now, tail));
        }
        in_time && (enough || self.zeros.is_some())
    }

    fn refill(&mut self, tail: Tail, config: &LogConfig, now: TimestampMs) -> Option<ZeroRequest> {
        let bytes_max = config.zero_window_bytes_max / PAGE_BYTES * PAGE_BYTES;
        let bytes_min = BYTES_MIN.min(bytes_max);
        let end = self.zeros.map_or(0, |zeros| zeros.end);
        if end.saturating_sub(tail.position) >= self.size_bytes.div_ceil(2) && self.zeros.is_some() {
            return None;
        }
        let elapsed = self.refilled_at.map_or(i64::MAX, |at| now.0.saturating_sub(at.0));
        let size_bytes = match elapsed {
            IDLE_MS.. => bytes_min,
            HALVE_MS.. => self.size_bytes / 2,
            _ if elapsed < DOUBLE_MS && self.zeros.is_some() => self.size_bytes.saturating_mul(2),
            _ => self.size_bytes,
        };
        let size_bytes = size_bytes.clamp(bytes_min, bytes_max);
        let position = tail.position.checked_next_multiple_of(PAGE_BYTES)?.max(end);
        let wanted_end =
            tail.position.saturating_add(size_bytes).min(config.segment_bytes) / PAGE_BYTES * PAGE_BYTES;
        let len_bytes = wanted_end
            .checked_sub(position)
            .filter(|&len_bytes| len_bytes > 0)?;
        self.size_bytes = size_bytes;
        self.refilled_at = Some(now);
        self.zeros = Some(Zeros {
            segment: tail.segment,
            end: wanted_end,
            writing_from: Some(position),
            cut: Cut::No,
        });
        Some(ZeroRequest::Write { position, len_bytes })
    }

    /// Someone waits for a flush, whatever the policy.
    pub(super) fn handle_flush_wanted(&mut self) {
        self.flush_wanted = true;
    }

    /// A sync that covers so many bytes has been asked for.
    pub(super) fn handle_sync(&mut self, bytes: u64) {
        self.sync_bytes = (self.sync_bytes * (SYNCS_AVERAGED - 1) + bytes) / SYNCS_AVERAGED;
    }

    /// The zeros asked for are written.
    pub(super) fn handle_written(&mut self) {
        if let Some(zeros) = &mut self.zeros {
            zeros.writing_from = None;
        }
    }

    /// The zeros asked for are not, or not all, written: there are none for a while where the disk is
    /// full, and else none until the log is opened anew.
    pub(super) fn handle_failure(&mut self, full: bool) {
        self.full |= full;
        self.refused |= !full;
        if let Some(zeros) = &mut self.zeros
            && let Some(position) = zeros.writing_from.take()
        {
            zeros.end = position;
        }
    }

    /// The file is being cut: nothing is written to it meanwhile.
    pub(super) fn handle_cut_asked(&mut self) {
        if let Some(zeros) = &mut self.zeros {
            zeros.cut = Cut::UnderWay;
        }
    }

    /// The file has been cut.
    pub(super) fn handle_cut(&mut self) {
        self.zeros = None;
    }

    /// The segment whose file may have zeros behind its data.
    pub(super) fn segment(&self) -> Option<Offset> {
        self.zeros.map(|zeros| zeros.segment)
    }

    /// Whether a file waits to be cut, or is being cut.
    pub(super) fn is_to_be_cut(&self) -> bool {
        self.zeros.is_some_and(|zeros| zeros.cut != Cut::No)
    }

    /// Data of `segment` may be written up to here, exclusive.
    pub(super) fn data_limit(&self, segment: Offset) -> u32 {
        match self.zeros {
            Some(zeros) if zeros.segment != segment => u32::MAX,
            Some(zeros) if zeros.cut == Cut::UnderWay => 0,
            Some(zeros) => zeros.writing_from.unwrap_or(u32::MAX),
            None => u32::MAX,
        }
    }

    /// Where the zeros of `segment` end, those on their way included; 0 where there are none.
    pub(super) fn end(&self, segment: Offset) -> u32 {
        let zeros = self.zeros.filter(|zeros| zeros.segment == segment);
        zeros.map_or(0, |zeros| zeros.end)
    }

    /// When zeros are to be given back if nothing else happens.
    pub(super) fn next_timeout(&self) -> Option<TimestampMs> {
        let zeros = self.zeros.filter(|zeros| zeros.cut == Cut::No);
        zeros.and(self.mark).map(|(at, _)| after(at, IDLE_MS))
    }
}

fn after(at: TimestampMs, ms: i64) -> TimestampMs {
    TimestampMs(at.0.saturating_add(ms))
}
