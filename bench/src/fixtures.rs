//! Logs, batches and frames for the benches, and an executor that does nothing.
//!
//! Knows no clock: all happens at [`NOW`].

use std::path::Path;

use bytes::BytesMut;
use ringlog_engine::config::LogConfig;
use ringlog_engine::io::{IoCompletion, IoOutput, IoQueue};
use ringlog_engine::log::{Log, OpenOptions};
use ringlog_engine::record::RecordBatchBuilder;
use ringlog_engine::testing::SimDisk;
use ringlog_engine::types::{LogId, Offset, TimestampMs};
use ringlog_net::protocol::encode::{Encoder, SIZE_PREFIX_LEN_BYTES, Segment};
use ringlog_net::protocol::messages::Message;

/// When everything happens.
pub const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

/// A producer's batch of `records` records of `value_bytes` each, not compressed.
///
/// # Panics
///
/// Where the batch would be larger than the format can say.
#[must_use]
pub fn batch(records: usize, value_bytes: usize) -> BytesMut {
    let mut builder = RecordBatchBuilder::new();
    for record in 0..records {
        let value: Vec<u8> = (0..value_bytes)
            .map(|at| u8::try_from((record * 31 + at * 7) % 251).expect("below 251"))
            .collect();
        builder
            .append(NOW, None, Some(&value), &[])
            .expect("the batch is small");
    }
    BytesMut::from(builder.build().expect("the batch is small").as_ref())
}

/// A new log with default settings, for an executor that does nothing.
///
/// # Panics
///
/// Never: an empty disk opens.
#[must_use]
pub fn new_log() -> Log {
    let options = OpenOptions {
        recovery_point: Offset(0),
        log_start_offset: Offset(0),
        clean_shutdown: false,
        now: NOW,
    };
    let (dir, config) = (Path::new("/bench-0"), LogConfig::default());
    let opened = Log::open(dir, LogId(0), config, options, &mut SimDisk::new());
    opened.expect("an empty disk opens").0
}

/// Ends turns until `log` wants nothing more; every request succeeds at once and its bytes go nowhere.
pub fn complete_all(log: &mut Log, queue: &mut IoQueue) {
    loop {
        log.poll_io(queue, NOW);
        if queue.is_empty() {
            return;
        }
        for request in queue.drain() {
            log.handle_io(IoCompletion {
                log: request.log,
                token: request.token,
                result: Ok(IoOutput::Done),
            });
        }
    }
}

/// The body of a message as it goes on the wire.
///
/// # Panics
///
/// Where the version is not defined, or the message holds bytes that lie elsewhere.
#[must_use]
pub fn body<'a>(message: &impl Message<'a>, version: i16) -> Vec<u8> {
    let mut encoder = Encoder::default();
    message.encode(&mut encoder, version);
    let frame = encoder.finish().expect("the version is defined");
    let bytes: Vec<u8> = frame
        .into_segments()
        .into_iter()
        .flat_map(|segment| match segment {
            Segment::Bytes(bytes) => bytes,
            Segment::External { .. } => panic!("the message holds its bytes"),
        })
        .collect();
    bytes[SIZE_PREFIX_LEN_BYTES..].to_vec()
}
