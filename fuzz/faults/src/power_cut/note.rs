//! What the load says about its logs, one line each, before it acts or after it was told.
//!
//! Owns the text and the contents of a batch, which follow from its line: so what must be on the disk
//! needs no copy. Knows no disk. Tested below.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use bytes::Bytes;
use ringlog_engine::record::RecordBatchBuilder;
use ringlog_engine::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::Outcome;
use crate::random::Random;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The batch is about to be written.
    Append(BatchNote),
    /// Everything below `offset` is acknowledged as durable.
    Durable {
        /// The log's number.
        log: usize,
        /// Exclusive.
        offset: Offset,
    },
    /// The log start is about to move there.
    Starting {
        /// The log's number.
        log: usize,
        /// Inclusive.
        offset: Offset,
    },
    /// The log start is there, acknowledged as durable.
    Started {
        /// The log's number.
        log: usize,
        /// Inclusive.
        offset: Offset,
    },
    /// Everything from `offset` on is about to be removed.
    Truncating {
        /// The log's number.
        log: usize,
        /// Inclusive.
        offset: Offset,
    },
    /// The log ends there, acknowledged as durable.
    Truncated {
        /// The log's number.
        log: usize,
        /// Exclusive.
        offset: Offset,
    },
}

/// A batch, in so many words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNote {
    /// The log's number.
    pub log: usize,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The epoch it was appended in.
    pub epoch: LeaderEpoch,
    /// How many records, at least one.
    pub records: i32,
    /// The length of each.
    pub value_bytes: usize,
    /// Of each; different in all batches of a run.
    pub timestamp: TimestampMs,
    /// The first record's, where the log's producer is idempotent.
    pub sequence: Option<Sequence>,
}

impl BatchNote {
    /// The offset after its last record.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.records))
    }

    /// The sequence number after its last record's.
    #[must_use]
    pub fn next_sequence(&self) -> Option<Sequence> {
        self.sequence.map(|sequence| sequence.plus(self.records))
    }

    /// The batch as the log stores it.
    ///
    /// # Panics
    ///
    /// Where it is larger than the format can say.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let mut builder = RecordBatchBuilder::new()
            .base_offset(self.base_offset)
            .leader_epoch(self.epoch);
        if let Some(sequence) = self.sequence {
            let id = ProducerId(i64::try_from(self.log).expect("few logs"));
            builder = builder.producer(id, ProducerEpoch(0), sequence);
        }
        let seed = self.timestamp.0.unsigned_abs();
        let mut random = Random::new(seed);
        for _ in 0..self.records {
            let numbers = std::iter::from_fn(|| Some(random.number().to_le_bytes()));
            let value = numbers.flatten().take(self.value_bytes).collect::<Vec<_>>();
            builder
                .append(self.timestamp, Some(&seed.to_be_bytes()), Some(&value), &[])
                .expect("the batch is small");
        }
        builder.build().expect("the batch is small")
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, log, offset) = match self {
            Self::Append(batch) => {
                let sequence = batch.sequence.map_or(-1, |sequence| sequence.0);
                return write!(
                    f,
                    "append {} {} {} {} {} {} {sequence}",
                    batch.log,
                    batch.base_offset,
                    batch.epoch,
                    batch.records,
                    batch.value_bytes,
                    batch.timestamp.0,
                );
            }
            Self::Durable { log, offset } => ("durable", log, offset),
            Self::Starting { log, offset } => ("starting", log, offset),
            Self::Started { log, offset } => ("started", log, offset),
            Self::Truncating { log, offset } => ("truncating", log, offset),
            Self::Truncated { log, offset } => ("truncated", log, offset),
        };
        write!(f, "{word} {log} {offset}")
    }
}

/// A line that is not a note.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a note: {0}")]
pub struct NoteError(String);

impl FromStr for Note {
    type Err = NoteError;

    fn from_str(line: &str) -> Result<Self, NoteError> {
        let parse = || {
            let (word, numbers) = line.split_once(' ')?;
            let numbers = numbers.split(' ').map(|number| number.parse().ok());
            let numbers = numbers.collect::<Option<Vec<i64>>>()?;
            let log = usize::try_from(*numbers.first()?).ok()?;
            let offset = Offset(*numbers.get(1)?);
            Some(match (word, &numbers[2..]) {
                ("append", &[epoch, records, value_bytes, timestamp, sequence]) => Self::Append(BatchNote {
                    log,
                    base_offset: offset,
                    epoch: LeaderEpoch(i32::try_from(epoch).ok()?),
                    records: i32::try_from(records).ok()?,
                    value_bytes: usize::try_from(value_bytes).ok()?,
                    timestamp: TimestampMs(timestamp),
                    sequence: i32::try_from(sequence).ok().filter(|s| *s >= 0).map(Sequence),
                }),
                ("durable", []) => Self::Durable { log, offset },
                ("starting", []) => Self::Starting { log, offset },
                ("started", []) => Self::Started { log, offset },
                ("truncating", []) => Self::Truncating { log, offset },
                ("truncated", []) => Self::Truncated { log, offset },
                _ => return None,
            })
        };
        parse().ok_or_else(|| NoteError(line.to_owned()))
    }
}

/// The way to the file that takes notes.
#[derive(Debug)]
pub struct Speaker {
    file: File,
    lines: String,
}

impl Speaker {
    /// Speaks to `file`.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened.
    pub fn open(file: &Path) -> Outcome<Self> {
        Ok(Self {
            file: OpenOptions::new().write(true).open(file)?,
            lines: String::new(),
        })
    }

    /// Says `note` with those said next.
    pub fn note(&mut self, note: Note) {
        self.lines.push_str(&note.to_string());
        self.lines.push('\n');
    }

    /// Puts the notes on the disk's timeline: they stand there on return.
    ///
    /// # Errors
    ///
    /// Where who takes them has gone.
    pub fn say(&mut self) -> Outcome<()> {
        if !self.lines.is_empty() {
            self.file.write_all(self.lines.as_bytes())?;
            self.lines.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringlog_engine::record::RecordBatch;

    fn batch(sequence: Option<Sequence>) -> BatchNote {
        BatchNote {
            log: 2,
            base_offset: Offset(17),
            epoch: LeaderEpoch(4),
            records: 3,
            value_bytes: 100,
            timestamp: TimestampMs(1_000_123),
            sequence,
        }
    }

    #[test]
    fn notes_come_back_from_their_text() {
        let (log, offset) = (3, Offset(99));
        for note in [
            Note::Append(batch(None)),
            Note::Append(batch(Some(Sequence(5)))),
            Note::Durable { log, offset },
            Note::Starting { log, offset },
            Note::Started { log, offset },
            Note::Truncating { log, offset },
            Note::Truncated { log, offset },
        ] {
            assert_eq!(note.to_string().parse(), Ok(note));
        }
        for line in [
            "",
            "append 1 2",
            "durable 1",
            "durable 1 2 3",
            "durable one 2",
            "lost 1 2",
        ] {
            assert!(line.parse::<Note>().is_err(), "{line}");
        }
    }

    #[test]
    fn a_batch_is_what_its_note_says() {
        let note = batch(Some(Sequence(5)));
        let bytes = note.bytes();
        let stored = RecordBatch::parse(&bytes).unwrap();
        stored.verify_crc().unwrap();
        let header = stored.header();
        assert_eq!(header.base_offset(), Offset(17));
        assert_eq!(header.next_offset(), note.next_offset());
        assert_eq!(header.partition_leader_epoch(), LeaderEpoch(4));
        assert_eq!(header.base_sequence(), Sequence(5));
        assert_eq!(header.producer_id(), ProducerId(2));
    }
}
