//! What a log must hold, and may hold, by all the notes up to a cut.
//!
//! ```text
//! required_end <= recovered end <= end of the last batch        started <= recovered start <= starting
//! ```
//!
//! Owns that arithmetic; knows no disk and no log. Tested below.

use std::io::BufRead;

use ringlog_engine::types::Offset;

use super::note::{BatchNote, Note};
use crate::Outcome;

/// One log's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Every batch that may be there, in order of offsets; those removed are not among them.
    pub batches: Vec<BatchNote>,
    /// Everything below was acknowledged as durable, exclusive.
    pub durable: Offset,
    /// The least and the most the log start may be.
    pub started: Offset,
    /// See `started`.
    pub starting: Offset,
    /// A truncation that is under way.
    pub truncating: Option<Offset>,
}

impl Default for Expected {
    /// Nothing has been said yet.
    fn default() -> Self {
        Self {
            batches: Vec::new(),
            durable: Offset(0),
            started: Offset(0),
            starting: Offset(0),
            truncating: None,
        }
    }
}

impl Expected {
    /// What the notes of `text`, one a line, say about `logs` logs.
    ///
    /// # Errors
    ///
    /// Where a line is no note, or cannot be read.
    pub fn read(logs: usize, text: impl BufRead) -> Outcome<Vec<Self>> {
        let mut expected = vec![Self::default(); logs];
        for line in text.lines() {
            let note = line?.parse()?;
            let (Note::Append(BatchNote { log, .. })
            | Note::Durable { log, .. }
            | Note::Starting { log, .. }
            | Note::Started { log, .. }
            | Note::Truncating { log, .. }
            | Note::Truncated { log, .. }) = note;
            expected.get_mut(log).ok_or("there is no such log")?.take(note);
        }
        Ok(expected)
    }

    /// Takes in the next note about this log.
    pub fn take(&mut self, note: Note) {
        match note {
            Note::Append(batch) => self.batches.push(batch),
            Note::Durable { offset, .. } => self.durable = offset,
            Note::Starting { offset, .. } => self.starting = offset,
            Note::Started { offset, .. } => self.started = offset,
            Note::Truncating { offset, .. } => self.truncating = Some(offset),
            Note::Truncated { offset, .. } => {
                self.batches.retain(|batch| batch.next_offset() <= offset);
                self.truncating = None;
                self.durable = offset;
            }
        }
    }

    /// The least the log may end at.
    #[must_use]
    pub fn required_end(&self) -> Offset {
        let Some(offset) = self.truncating else {
            return self.durable;
        };
        let kept = self
            .batches
            .iter()
            .rev()
            .find(|batch| batch.next_offset() <= offset);
        let end = kept.map_or(Offset(0), BatchNote::next_offset);
        end.max(self.started).min(self.durable)
    }

    /// The offset after the last batch that may be there.
    #[must_use]
    pub fn appended_end(&self) -> Offset {
        let end = self.batches.last().map_or(Offset(0), BatchNote::next_offset);
        end.max(self.durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringlog_engine::types::{LeaderEpoch, TimestampMs};

    fn batch(base_offset: i64, records: i32) -> Note {
        Note::Append(BatchNote {
            log: 0,
            base_offset: Offset(base_offset),
            epoch: LeaderEpoch(0),
            records,
            value_bytes: 1,
            timestamp: TimestampMs(base_offset),
            sequence: None,
        })
    }

    fn expected(notes: &[Note]) -> Expected {
        let mut expected = Expected::default();
        notes.iter().for_each(|note| expected.take(*note));
        expected
    }

    #[test]
    fn what_was_acknowledged_is_required_and_what_was_appended_is_allowed() {
        let durable = Note::Durable {
            log: 0,
            offset: Offset(3),
        };
        let expected = expected(&[batch(0, 3), batch(3, 2), durable]);
        assert_eq!(
            (expected.required_end(), expected.appended_end()),
            (Offset(3), Offset(5))
        );
    }

    #[test]
    fn a_truncation_under_way_may_have_happened_or_not() {
        let durable = Note::Durable {
            log: 0,
            offset: Offset(5),
        };
        let truncating = Note::Truncating {
            log: 0,
            offset: Offset(4),
        };
        let mut expected = expected(&[batch(0, 3), batch(3, 2), durable, truncating]);
        assert_eq!(
            (expected.required_end(), expected.appended_end()),
            (Offset(3), Offset(5))
        );
        expected.take(Note::Truncated {
            log: 0,
            offset: Offset(3),
        });
        assert_eq!(
            (expected.required_end(), expected.appended_end()),
            (Offset(3), Offset(3))
        );
        expected.take(batch(3, 1));
        assert_eq!(
            (expected.required_end(), expected.appended_end()),
            (Offset(3), Offset(4))
        );
    }

    #[test]
    fn a_note_about_a_log_that_is_not_there_is_an_error() {
        assert!(Expected::read(1, "durable 1 5".as_bytes()).is_err());
        let expected = Expected::read(2, "durable 1 5\nstarting 0 3\n".as_bytes()).unwrap();
        assert_eq!(
            (expected[1].durable, expected[0].starting),
            (Offset(5), Offset(3))
        );
    }
}
