//! From an offset or a timestamp to a place in a file: what of it takes reading.
//!
//! Owns the little reading that takes, from the page cache where the bytes are there, by the ring where not; what the bytes
//! mean is `log`'s. Runs as tasks of a shard, so that the log may change meanwhile: a truncation of the suffix makes it
//! begin again.

use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;

use super::config::Visibility;
use super::engine_shard::EngineShard;
use super::error::{Gone, ReadError};
use super::log_slot::LogSlot;
use super::message::{Locate, Located};
use super::reader::FoundOffset;
use crate::io::{FileId, IoError};
use crate::log::{Defect, Narrow, NarrowError, ReadPlan, Scan, ScanError};
use crate::rt::LogFile;
use crate::rt::residency::read_nowait;
use crate::types::{LogId, Offset, TimestampMs};

/// What is planned, if anything lies below the bound, with the file.
pub(super) type Planned = Option<(ReadPlan, Arc<LogFile>, u64)>;

/// Plans the read of `wanted`, without reading anything.
pub(super) fn plan_read(shard: &EngineShard, slot: &LogSlot, wanted: Locate) -> Result<Planned, ReadError> {
    let bound = slot.bound(wanted.visibility);
    let plan = slot.log.read_plan(wanted.offset, wanted.max_bytes, bound)?;
    plan.map(|plan| {
        let file = open_file(shard, plan.file)?;
        Ok((plan, file, slot.shared.generation()))
    })
    .transpose()
}

/// The range that a plan means, where it is final.
pub(super) fn located(planned: Planned) -> Option<Located> {
    planned.map(|(plan, file, generation)| Located {
        file,
        position: plan.position,
        len_bytes: plan.len_bytes,
        generation,
    })
}

/// Narrows a plan until it is final.
pub(super) async fn locate(
    shard: Rc<EngineShard>,
    log: LogId,
    mut wanted: Locate,
    mut planned: Planned,
) -> Result<Option<Located>, ReadError> {
    let mut restarted = false;
    loop {
        let Some((plan, file, generation)) = &mut planned else {
            return Ok(None);
        };
        if plan.is_located() {
            return Ok(located(planned));
        }
        let before = plan.scan_position();
        let len_bytes = usize::try_from(plan.scan_bytes()).expect("32 bits fit");
        let chunk = read(&shard, file, before, len_bytes).await?;
        let narrowed = plan.narrow(&chunk);
        let changed = shard.with_slot(log, |slot| slot.shared.generation())? != *generation;
        let again = match narrowed {
            _ if changed => true,
            Ok(Narrow::Located) => false,
            // Once per segment the walk begins anew at its start; apart from that it goes on.
            Ok(Narrow::NeedMore)
                if plan.scan_position() <= before && std::mem::replace(&mut restarted, true) =>
            {
                let defect = Defect::Torn;
                return Err(damaged(file, before, wanted.offset, defect));
            }
            Ok(Narrow::NeedMore) => {
                // Where all is in memory, nothing else would let other tasks run.
                tokio::task::yield_now().await;
                false
            }
            Ok(Narrow::Nothing) => return Ok(None),
            Ok(Narrow::NextSegment(offset)) => {
                (wanted.offset, restarted) = (offset, false);
                true
            }
            Err(NarrowError { position, defect }) => {
                return Err(damaged(file, position, wanted.offset, defect));
            }
        };
        if again {
            planned = shard.with_slot(log, |slot| plan_read(&shard, slot, wanted))??;
        }
    }
}

/// Finds the first written record at or after a time.
pub(super) async fn find_timestamp(
    shard: Rc<EngineShard>,
    log: LogId,
    timestamp: TimestampMs,
) -> Result<Option<FoundOffset>, ReadError> {
    let mut from = Offset(0);
    loop {
        let planned = shard.with_slot(log, |slot| {
            let plan = slot.log.locate_timestamp(timestamp, from);
            plan.map(|plan| {
                let bound = slot.bound(Visibility::Written);
                Ok::<_, ReadError>((
                    plan,
                    open_file(&shard, plan.file)?,
                    bound,
                    slot.shared.generation(),
                ))
            })
            .transpose()
        })??;
        let Some((mut plan, file, bound, generation)) = planned else {
            return Ok(None);
        };
        let scan = loop {
            let left = plan.end_position.saturating_sub(plan.position);
            let len_bytes = usize::try_from(left).map_or(plan.len_bytes, |left| left.min(plan.len_bytes));
            let chunk = read(&shard, &file, plan.position, len_bytes).await?;
            match plan.search(&chunk) {
                Ok(Scan::NeedMore) => tokio::task::yield_now().await,
                other => break other,
            }
        };
        if shard.with_slot(log, |slot| slot.shared.generation())? != generation {
            continue;
        }
        match scan {
            Ok(Scan::Found { offset, timestamp }) => {
                return Ok((offset < bound).then_some(FoundOffset { offset, timestamp }));
            }
            Ok(Scan::NotFound | Scan::NeedMore) => match plan.next_segment {
                Some(next) => from = next,
                None => return Ok(None),
            },
            Err(ScanError::Batch(error)) => {
                return Err(damaged(&file, plan.position, from, error.into()));
            }
            Err(ScanError::Record(error)) => return Err(error.into()),
        }
    }
}

/// Reads up to `len_bytes`, fewer at the end of the file.
async fn read(
    shard: &EngineShard,
    file: &Arc<LogFile>,
    position: u64,
    len_bytes: usize,
) -> Result<Vec<u8>, ReadError> {
    let mut chunk = vec![0; len_bytes];
    let cached = read_nowait(file, position, &mut chunk)
        .map_err(|source| IoError::new(format!("read {}", file.path().display()), source))?;
    // Short also where the next page is not in memory.
    if cached == Some(len_bytes) {
        return Ok(chunk);
    }
    let len_bytes = u32::try_from(len_bytes).expect("headers of a plan are read in small chunks");
    Ok(shard.io.read(Arc::clone(file), position, len_bytes).await?.into())
}

fn open_file(shard: &EngineShard, file: FileId) -> Result<Arc<LogFile>, ReadError> {
    // A log plans with its own files, which are known until it closes them.
    let opened = shard.io.files().borrow_mut().file(file);
    opened.map_err(|source| match source.kind() {
        ErrorKind::NotFound => ReadError::Gone(Gone::Closed),
        _ => IoError::new("open a segment", source).into(),
    })
}

fn damaged(file: &LogFile, position: u64, offset: Offset, source: Defect) -> ReadError {
    ReadError::Damaged {
        path: file.path().to_owned(),
        position,
        offset,
        source,
    }
}
