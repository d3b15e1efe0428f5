//! Batches and compressed records as a client sends them, or as a damaged disk gives them back.

use ringlog_engine::record::{
    BatchError, BatchHeader, Compression, EndTxnMarker, Header, RecordBatch, RecordBatchBuilder, RecordError,
    compress, decompress as engine_decompress,
};
use ringlog_engine::types::{LeaderEpoch, Offset, TimestampMs};

use crate::choices::Choices;

/// The most that records are decompressed to.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

/// Reads batches one after another, their records, and what a producer's batch is checked for.
///
/// # Panics
///
/// Where a batch that was read contradicts itself, or its records do not come back when they are
/// built into a new batch.
pub fn batch(data: &[u8]) {
    let producers = RecordBatch::validate_from_producer(data, 1 << 20);
    if let Ok(batch) = producers {
        assert_eq!(batch.bytes().len(), data.len());
        assert_eq!(batch.verify_crc(), Ok(()));
        assign(data);
    }
    let mut rest = data;
    while let Ok(batch) = RecordBatch::parse(rest) {
        let len_bytes = batch.bytes().len();
        assert_eq!(batch.header().len_bytes(), len_bytes);
        // It saturates, where no log reaches.
        let (base_offset, next_offset) = (batch.header().base_offset(), batch.header().next_offset());
        assert!(next_offset > base_offset || base_offset.0 == i64::MAX);
        drop(EndTxnMarker::from_batch(&batch));
        if let Ok(records) = batch.records(DECOMPRESSED_BYTES_MAX) {
            let all: Result<Vec<_>, RecordError> = records.iter().collect();
            if let Ok(all) = all {
                assert_eq!(i32::try_from(all.len()), Ok(batch.header().records_count()));
                rebuild(&all);
            }
        }
        rest = &rest[len_bytes..];
    }
    // Where no batch can be read there may still be the header of one.
    if let Err(BatchError::Incomplete { needed, available }) = RecordBatch::parse(rest) {
        assert!(needed > available && available == rest.len());
    }
}

/// The place in the log can be written, and the checksum does not cover it.
fn assign(data: &[u8]) {
    let mut bytes = data.to_vec();
    let (offset, epoch) = (Offset(1 << 40), LeaderEpoch(7));
    RecordBatch::assign(&mut bytes, offset, epoch).expect("the header was read");
    let header = *BatchHeader::peek(&bytes).expect("the header was read");
    assert_eq!(
        (header.base_offset(), header.partition_leader_epoch()),
        (offset, epoch)
    );
    RecordBatch::set_log_append_time(&mut bytes, TimestampMs(5)).expect("the batch was read");
    let batch = RecordBatch::parse(&bytes).expect("the batch was read");
    assert_eq!(batch.verify_crc(), Ok(()));
    assert_eq!(batch.header().max_timestamp(), TimestampMs(5));
}

/// The builder writes what the iterator reads.
fn rebuild(records: &[ringlog_engine::record::Record<'_>]) {
    let mut builder = RecordBatchBuilder::new();
    for record in records {
        let headers: Vec<Header<'_>> = record.headers.clone().collect();
        let appended = builder.append(record.timestamp, record.key, record.value, &headers);
        // Timestamps of a hostile batch may be too far apart.
        if appended.is_err() {
            return;
        }
    }
    let bytes = builder.build().expect("it is no larger than what was read");
    let batch = RecordBatch::parse(&bytes).expect("what is built is whole");
    let again = batch
        .records(DECOMPRESSED_BYTES_MAX)
        .expect("it is not compressed");
    let mut count = 0;
    for (record, again) in records.iter().zip(&again) {
        let again = again.expect("what is built reads");
        assert_eq!(
            (record.timestamp, record.key, record.value),
            (again.timestamp, again.key, again.value)
        );
        assert!(record.headers.clone().eq(again.headers));
        count += 1;
    }
    assert_eq!(count, records.len());
}

/// Decompresses within a limit; the first byte says how, the next two the limit.
///
/// # Panics
///
/// Where the output passes the limit, or does not come back after it is compressed anew.
pub fn decompress(data: &[u8]) {
    let mut choices = Choices::new(data);
    let codec = Compression::ALL[choices.below(Compression::ALL.len())];
    let limit = usize::from(choices.u16()) * 16;
    let Ok(output) = engine_decompress(codec, choices.rest(), limit) else {
        return;
    };
    assert!(output.len() <= limit);
    let compressed = compress(codec, &output).expect("the codec is compiled in");
    let again = engine_decompress(codec, &compressed, output.len());
    assert!(again.is_ok_and(|again| again == output));
}
