//! Removes old segments of a shard's logs, every so often.
//!
//! Owns the timer and the size of a step; which segments go is the log's to decide. A step is short, and what is
//! ready runs between two of them. Tested in `tests/engine/retention.rs`.

use std::rc::Rc;
use std::time::Duration;

use super::engine_shard::EngineShard;
use crate::types::LogId;

/// Logs looked at in one step: some tens of microseconds.
const LOGS_PER_STEP: usize = 64;
/// The first look comes at most so long after the start, as in Apache Kafka.
const FIRST_DELAY_MAX: Duration = Duration::from_secs(30);

/// Looks at every log each `interval`, as long as the shard runs.
pub(super) async fn run(shard: Rc<EngineShard>, interval: Duration) {
    tokio::time::sleep(interval.min(FIRST_DELAY_MAX)).await;
    loop {
        let mut from = Some(LogId(0));
        while let Some(log) = from {
            from = shard.enforce_retention(log, LOGS_PER_STEP);
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(interval).await;
    }
}
