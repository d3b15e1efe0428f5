//! From what a log plans to what can be sent: narrows read plans, searches for offsets by time.
//!
//! Owns the little reading that takes: headers of at most a few kilobytes, from the page cache
//! where they are there, by the ring where not. The records themselves are never read for a fetch.

use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;

use ringlog_engine::io::FileId;
use ringlog_engine::log::{Narrow, ReadPlan, Scan};
use ringlog_engine::rt::residency::read_nowait;
use ringlog_engine::rt::{FileRange, LogFile};
use ringlog_engine::types::Offset;
use ringlog_replication::request::{FetchError, FetchPartition, FetchResult, Fetched};
use ringlog_replication::types::TopicIdPartition;
use tokio::sync::oneshot;

use super::shard::Shard;
use super::shard_request::{FetchRange, FetchedRange, FetchedResult, FoundOffset, OffsetQuery};

/// A plan that moves on to the next segment more often than this has met a log that changes under it.
const SEGMENTS_MAX: usize = 1000;

/// Turns plans into ranges and sends them to who asked; at once where no disk is needed.
pub(super) fn answer_fetch(
    shard: &Rc<Shard>,
    results: Vec<FetchResult>,
    to: oneshot::Sender<Vec<FetchedResult>>,
) {
    let ready = |result: &FetchResult| match result {
        Ok(Fetched { plan: Some(plan), .. }) if plan.is_located() => {
            file(shard, plan.file).ok().flatten().map(Some)
        }
        Ok(Fetched { plan: Some(_), .. }) => None,
        Ok(Fetched { plan: None, .. }) | Err(_) => Some(None),
    };
    if let Some(files) = results.iter().map(ready).collect::<Option<Vec<_>>>() {
        let answer = |(result, file): (FetchResult, Option<_>)| {
            let fetched = result?;
            let available_bytes = available_bytes(&fetched);
            let planned = fetched.plan.as_ref().zip(file);
            let range = planned.map(|(plan, file)| range_of(plan, file));
            Ok(fetched_range(fetched, range, available_bytes))
        };
        let _ = to.send(results.into_iter().zip(files).map(answer).collect());
        return;
    }
    let shard = shard.clone();
    tokio::task::spawn_local(async move {
        let mut resolved = Vec::with_capacity(results.len());
        for result in results {
            resolved.push(match result {
                Ok(fetched) => locate(&shard, fetched).await,
                Err(error) => Err(error),
            });
        }
        let _ = to.send(resolved);
    });
}

fn available_bytes(fetched: &Fetched) -> u64 {
    fetched.plan.as_ref().map_or(0, ReadPlan::available_bytes)
}

fn range_of(plan: &ReadPlan, file: Arc<LogFile>) -> FetchRange {
    FetchRange {
        file: FileRange {
            file,
            position: plan.position,
            len_bytes: plan.len_bytes,
        },
        first_batch_bytes: plan.first_batch_bytes(),
    }
}

fn fetched_range(fetched: Fetched, range: Option<FetchRange>, available_bytes: u64) -> FetchedRange {
    FetchedRange {
        range,
        available_bytes,
        high_watermark: fetched.high_watermark,
        last_stable_offset: fetched.last_stable_offset,
        log_start_offset: fetched.log_start_offset,
        aborted_transactions: fetched.aborted_transactions,
    }
}

/// The file of a segment; `None` if the segment has been removed since it was planned for.
fn file(shard: &Shard, file: FileId) -> Result<Option<Arc<LogFile>>, FetchError> {
    match shard.io.files().borrow_mut().file(file) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FetchError::Storage(error.to_string())),
    }
}

/// Plans once more for a fetch, from `offset` on.
fn plan_again(shard: &Shard, fetched: &mut Fetched, offset: Offset) -> Result<(), FetchError> {
    let request = FetchPartition {
        offset,
        ..fetched.request
    };
    (fetched.plan, fetched.aborted_transactions) = shard.with_broker(|broker| {
        let partition = broker
            .partition(request.partition)
            .ok_or(FetchError::UnknownPartition)?;
        let aborted = partition.aborted_transactions(&request, fetched.isolation);
        let plan = partition.read_plan(&request, fetched.isolation)?;
        Ok::<_, FetchError>((plan, aborted))
    })?;
    Ok(())
}

async fn locate(shard: &Rc<Shard>, mut fetched: Fetched) -> FetchedResult {
    let available_bytes = available_bytes(&fetched);
    let mut restarted = false;
    let mut segments = 0;
    while segments < SEGMENTS_MAX {
        let Some(plan) = &mut fetched.plan else {
            return Ok(fetched_range(fetched, None, available_bytes));
        };
        let Some(file) = file(shard, plan.file)? else {
            // The offset is below the log start now, which the reader is told, or it is elsewhere.
            (segments, restarted) = (segments + 1, false);
            let offset = fetched.request.offset;
            plan_again(shard, &mut fetched, offset)?;
            continue;
        };
        if plan.is_located() {
            let range = range_of(plan, file);
            return Ok(fetched_range(fetched, Some(range), available_bytes));
        }
        let before = plan.scan_position();
        let chunk = read_headers(shard, plan, file).await?;
        match plan
            .narrow(&chunk)
            .map_err(|error| FetchError::Storage(error.to_string()))?
        {
            Narrow::Located => {}
            Narrow::NeedMore => {
                // Once per segment the walk begins anew at its start; apart from that it goes on.
                if plan.scan_position() <= before && std::mem::replace(&mut restarted, true) {
                    return Err(FetchError::Storage("a walk does not go on".into()));
                }
                // Where all is in memory, nothing else would let other tasks run.
                tokio::task::yield_now().await;
            }
            Narrow::Nothing => fetched.plan = None,
            Narrow::NextSegment(offset) => {
                (segments, restarted) = (segments + 1, false);
                plan_again(shard, &mut fetched, offset)?;
            }
        }
    }
    Err(FetchError::Storage(
        "no batch was found in too many segments".into(),
    ))
}

async fn read_headers(shard: &Rc<Shard>, plan: &ReadPlan, file: Arc<LogFile>) -> Result<Vec<u8>, FetchError> {
    let len_bytes = usize::try_from(plan.scan_bytes()).expect("32 bits fit");
    let chunk = read(shard, file, plan.scan_position(), len_bytes).await?;
    shard.io.counters().fetch_bytes_copied.add(chunk.len() as u64);
    Ok(chunk)
}

/// Reads up to `len_bytes`, fewer at the end of the file.
async fn read(
    shard: &Shard,
    file: Arc<LogFile>,
    position: u64,
    len_bytes: usize,
) -> Result<Vec<u8>, FetchError> {
    let storage = |error: &dyn std::error::Error| FetchError::Storage(error.to_string());
    let mut chunk = vec![0; len_bytes];
    match read_nowait(&file, position, &mut chunk).map_err(|error| storage(&error))? {
        // Short also where the next page is not in memory.
        Some(read) if read == len_bytes => Ok(chunk),
        Some(_) | None => {
            let len_bytes = u32::try_from(len_bytes).map_err(|error| storage(&error))?;
            let bytes = shard
                .io
                .read(file, position, len_bytes)
                .await
                .map_err(|error| storage(&error))?;
            Ok(bytes.into())
        }
    }
}

/// Finds a record by time in what is committed.
pub(super) async fn find_offset(
    shard: &Rc<Shard>,
    id: TopicIdPartition,
    query: OffsetQuery,
) -> Result<Option<FoundOffset>, FetchError> {
    let mut from = None;
    for _ in 0..SEGMENTS_MAX {
        let (plan, bound) = shard.with_broker(|broker| {
            let partition = broker.partition(id).ok_or(FetchError::UnknownPartition)?;
            let log = partition.log();
            let from = from.unwrap_or(log.log_start_offset());
            let plan = match query {
                OffsetQuery::Timestamp(timestamp) => log.locate_timestamp(timestamp, from),
                OffsetQuery::MaxTimestamp => log.locate_max_timestamp(),
            };
            Ok::<_, FetchError>((plan, partition.high_watermark()))
        })?;
        let Some(mut plan) = plan else { return Ok(None) };
        let Some(file) = file(shard, plan.file)? else {
            // The segment has just been removed: look again from the new log start.
            continue;
        };
        let scan = loop {
            let left = plan.end_position.saturating_sub(plan.position);
            let len_bytes = usize::try_from(left).map_or(plan.len_bytes, |left| left.min(plan.len_bytes));
            let chunk = read(shard, file.clone(), plan.position, len_bytes).await?;
            match plan
                .search(&chunk)
                .map_err(|error| FetchError::Storage(error.to_string()))?
            {
                Scan::NeedMore => {}
                scan => break scan,
            }
        };
        match (scan, plan.next_segment) {
            (Scan::Found { offset, timestamp }, _) => {
                return Ok((offset < bound).then_some(FoundOffset { offset, timestamp }));
            }
            (Scan::NotFound | Scan::NeedMore, Some(next)) => from = Some(next),
            (Scan::NotFound | Scan::NeedMore, None) => return Ok(None),
        }
    }
    Ok(None)
}
