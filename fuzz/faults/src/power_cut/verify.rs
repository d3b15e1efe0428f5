//! The look at what a cut has left: the logs are opened, read to their ends and appended to.
//!
//! Owns what must hold of them, by `expected.rs`; knows no disk and no recording. It says what it found
//! and does, as the load does: its own recovery may be cut, too. That it finds faults is shown in each
//! run by planted ones.

use std::io::BufRead;
use std::path::PathBuf;

use bytes::BytesMut;
use ringlog_engine::log::{Log, RecoveryReport};
use ringlog_engine::rt::ShardIo;
use ringlog_engine::types::{LeaderEpoch, Offset, Sequence, TimestampMs};

use super::expected::Expected;
use super::load::on_a_shard;
use super::note::{BatchNote, Note, Speaker};
use super::owner::{LOGS, Owner};
use crate::Outcome;
use crate::random::Random;

/// Offsets from which each log is read, besides its start.
const RANDOM_READS: usize = 20;

/// What is looked at.
#[derive(Clone, Debug, clap::Args)]
pub struct VerifyOptions {
    /// The directory of the logs.
    pub dir: PathBuf,
    /// The file that takes notes.
    pub notes: PathBuf,
}

/// Looks at the logs; `before` are the notes up to the cut.
///
/// # Errors
///
/// What is not as it must be.
pub fn verify(options: VerifyOptions, before: impl BufRead) -> Outcome<()> {
    let expected = Expected::read(LOGS, before)?;
    on_a_shard(move |io| look(io, options, expected))
}

async fn look(io: ShardIo, options: VerifyOptions, mut expected: Vec<Expected>) -> Outcome<()> {
    let mut speaker = Speaker::open(&options.notes)?;
    let last_timestamp = |expected: &Expected| expected.batches.last().map(|batch| batch.timestamp);
    let last_timestamp = expected.iter().filter_map(last_timestamp).max();
    let now = TimestampMs(last_timestamp.map_or(0, |last| last.0) + 1);
    let (mut owner, reports) = Owner::open(io, &options.dir, now)?;
    for (log, (expected, report)) in expected.iter_mut().zip(&reports).enumerate() {
        check(&owner, log, expected, report).map_err(|error| format!("log {log}: {error}; {report:?}"))?;
    }
    // What was opened is durable, and a recovery point above a lost end must not outlive what comes next.
    owner.checkpoint(Log::flushed_offset)?;
    for log in 0..LOGS {
        let offset = owner.logs[log].log_end_offset();
        speaker.note(Note::Truncated { log, offset });
    }
    speaker.say()?;
    for (log, expected) in expected.iter_mut().enumerate() {
        let goes_on = async {
            append(&mut owner, log, expected, &mut speaker).await?;
            owner.reopen(log)?;
            check_batches(&owner, log, &expected.batches)
        };
        goes_on
            .await
            .map_err(|error| format!("log {log}, after its recovery: {error}"))?;
    }
    Ok(())
}

/// Checks the log's borders and contents, and leaves in `expected` the batches that are there.
fn check(owner: &Owner, log: usize, expected: &mut Expected, report: &RecoveryReport) -> Outcome<()> {
    let state = &owner.logs[log];
    let (start, end) = (state.log_start_offset(), state.log_end_offset());
    let (required, appended) = (expected.required_end(), expected.appended_end());
    if end < required || end > appended {
        return Err(format!("it ends at {end}; {required} was acknowledged, {appended} appended").into());
    }
    if start < expected.started || start > expected.starting {
        let Expected {
            started, starting, ..
        } = expected;
        return Err(format!("it starts at {start}, not between {started} and {starting}").into());
    }
    if report.ended_below_recovery_point && expected.truncating.is_none() {
        return Err("it ends below its recovery point".into());
    }
    expected.batches.retain(|batch| batch.next_offset() <= end);
    check_batches(owner, log, &expected.batches)?;
    check_epochs(owner, log, &expected.batches)
}

/// Reads from the start, and from a few offsets beside: the batches are those given, byte for byte.
fn check_batches(owner: &Owner, log: usize, batches: &[BatchNote]) -> Outcome<()> {
    let state = &owner.logs[log];
    let (start, end) = (state.log_start_offset(), state.log_end_offset());
    let mut offset = start;
    while let Some(bytes) = owner.read(log, offset)? {
        offset = check_bytes(&bytes, offset, batches)?;
    }
    let last = batches.last().map_or(Offset(0), BatchNote::next_offset);
    if offset < end.min(last) {
        return Err(format!("nothing is read from {offset} on, the log ends at {end}").into());
    }
    let mut random = Random::new(end.0.unsigned_abs());
    for _ in 0..RANDOM_READS {
        let offset = start.plus(random.below(usize::try_from(end.0 - start.0)? + 1) as i64);
        if let Some(bytes) = owner.read(log, offset)? {
            check_bytes(&bytes, offset, batches)?;
        }
    }
    Ok(())
}

/// What was read from `offset` on; returns the offset after it.
fn check_bytes(mut bytes: &[u8], offset: Offset, batches: &[BatchNote]) -> Outcome<Offset> {
    let first = batches.partition_point(|batch| batch.next_offset() <= offset);
    let mut next = offset;
    for batch in &batches[first..] {
        let stored = batch.bytes();
        // The last may have been cut short by the size that was asked for.
        if bytes.len() < stored.len() && next > offset {
            return Ok(next);
        }
        if !bytes.starts_with(&stored) {
            return Err(format!("{batch:?} is not what lies there").into());
        }
        bytes = &bytes[stored.len()..];
        next = batch.next_offset();
    }
    if bytes.is_empty() && next > offset {
        Ok(next)
    } else {
        Err(format!("{} bytes from {offset} on that nobody appended", bytes.len()).into())
    }
}

fn check_epochs(owner: &Owner, log: usize, batches: &[BatchNote]) -> Outcome<()> {
    let state = &owner.logs[log];
    for batch in batches
        .iter()
        .filter(|batch| batch.base_offset >= state.log_start_offset())
    {
        let later = batches.iter().find(|later| later.epoch > batch.epoch);
        let end = later.map_or(state.log_end_offset(), |later| later.base_offset);
        let found = state.end_offset_for_epoch(batch.epoch);
        if found != Some((batch.epoch, end)) {
            return Err(format!("epoch {} ends at {found:?}, not {end}", batch.epoch).into());
        }
    }
    Ok(())
}

/// The log goes on: it knows its producer's last batch, and gives the next offset.
async fn append(
    owner: &mut Owner,
    log: usize,
    expected: &mut Expected,
    speaker: &mut Speaker,
) -> Outcome<()> {
    let now = owner.now;
    let end = owner.logs[log].log_end_offset();
    let last = expected.batches.last().copied();
    let epoch = owner.logs[log].latest_epoch().unwrap_or(LeaderEpoch(0));
    if let Some(last) = last.filter(|last| last.sequence.is_some())
        && last.base_offset >= owner.logs[log].log_start_offset()
    {
        let again = owner.logs[log].append_as_leader(BytesMut::from(&last.bytes()[..]), epoch, now)?;
        if !again.duplicate || again.base_offset != last.base_offset {
            return Err(format!("{last:?}, sent again, was appended as {again:?}").into());
        }
    }
    let batch = BatchNote {
        log,
        base_offset: end,
        epoch,
        records: 2,
        value_bytes: 1000,
        timestamp: now,
        sequence: last
            .map_or(Some(Sequence(0)), |last| last.next_sequence())
            .filter(|_| log.is_multiple_of(2)),
    };
    let info = owner.logs[log].append_as_leader(BytesMut::from(&batch.bytes()[..]), epoch, now)?;
    if info.base_offset != end {
        return Err(format!(
            "the log ended at {end}, and the next offset was {}",
            info.base_offset
        )
        .into());
    }
    expected.batches.push(batch);
    speaker.note(Note::Append(batch));
    speaker.say()?;
    owner.logs[log].request_flush();
    owner.settle(log).await?;
    let offset = owner.logs[log].flushed_offset();
    speaker.note(Note::Durable { log, offset });
    speaker.say()
}
