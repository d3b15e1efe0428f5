//! Log lines that clients can cause at will: a few in each period, and then a count of those left out.
//!
//! Knows no client and no message. Of what is logged through it nothing goes unsaid: it is shown, or it is
//! counted, with the next period's first line or at the end. Tested below and in `tests/cli_serve.rs`.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Enough to see who does it, and far from filling a disk.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// One kind of line. For one thread.
#[derive(Debug)]
pub(crate) struct LimitedLog {
    /// What the lines are about, in the plural.
    what: &'static str,
    period: RefCell<Period>,
}

#[derive(Debug, Default)]
struct Period {
    /// `None` before the first line.
    began: Option<Instant>,
    shown: u32,
    left_out: u64,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// So many were left out in the period that ended before this line.
    left_out_before: u64,
    show: bool,
}

impl LimitedLog {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            period: RefCell::default(),
        }
    }

    /// Runs `line`, which logs, unless there were enough lines in this period.
    pub(crate) fn log(&self, line: impl FnOnce()) {
        let verdict = self.period.borrow_mut().judge(Instant::now());
        self.say_left_out(verdict.left_out_before);
        if verdict.show {
            line();
        }
    }

    /// Says how many lines were left out since that was last said.
    pub(crate) fn finish(&self) {
        let left_out = std::mem::take(&mut self.period.borrow_mut().left_out);
        self.say_left_out(left_out);
    }

    fn say_left_out(&self, left_out: u64) {
        if left_out > 0 {
            tracing::warn!(left_out, "more {}, not shown one by one", self.what);
        }
    }
}

impl Period {
    fn judge(&mut self, now: Instant) -> Verdict {
        let is_over = self
            .began
            .is_none_or(|began| now.saturating_duration_since(began) >= PERIOD);
        let left_out_before = if is_over { self.left_out } else { 0 };
        if is_over {
            *self = Self {
                began: Some(now),
                ..Self::default()
            };
        }
        let show = self.shown < LINES_MAX;
        if show {
            self.shown += 1;
        } else {
            self.left_out += 1;
        }
        Verdict {
            left_out_before,
            show,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_the_count_is_told_in_the_next_period() {
        let start = Instant::now();
        let mut period = Period::default();
        let shown = (0..LINES_MAX + 7).filter(|_| period.judge(start).show).count();
        assert_eq!(shown, LINES_MAX as usize);
        let still = period.judge(start + PERIOD - Duration::from_millis(1));
        assert_eq!((still.left_out_before, still.show), (0, false));
        let next = period.judge(start + PERIOD);
        assert_eq!((next.left_out_before, next.show), (8, true));
        assert_eq!(period.judge(start + PERIOD).left_out_before, 0);
    }
}
