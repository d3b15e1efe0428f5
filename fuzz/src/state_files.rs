//! The small files beside a log and at the root of a data directory.

use ringlog_engine::log::checkpoint::{
    decode_leader_epochs, decode_offsets, encode_leader_epochs, encode_offsets,
};
use ringlog_engine::log::partition_metadata::{PartitionMetadata, decode_topic_id, encode_topic_id};
use ringlog_engine::log::producer_snapshot;

/// Reads a snapshot of producers' state.
///
/// # Panics
///
/// Where what was read is not written as something that reads the same.
pub fn snapshot(data: &[u8]) {
    let Ok(state) = producer_snapshot::decode(data) else {
        return;
    };
    let encoded = producer_snapshot::encode(&state);
    let again = producer_snapshot::decode(&encoded).expect("what is written reads");
    assert_eq!(producer_snapshot::encode(&again), encoded);
}

/// Reads the bytes as each of the text files: leader epochs, offsets, a partition's metadata.
///
/// # Panics
///
/// Where what was read is not written as something that reads the same.
pub fn checkpoint(data: &[u8]) {
    if let Ok(epochs) = decode_leader_epochs(data) {
        let again = decode_leader_epochs(encode_leader_epochs(&epochs).as_bytes());
        assert_eq!(again, Ok(epochs));
    }
    if let Ok(offsets) = decode_offsets(data) {
        let again = decode_offsets(encode_offsets(&offsets).as_bytes());
        assert_eq!(again, Ok(offsets));
    }
    if let Ok(metadata) = PartitionMetadata::decode(data) {
        let again = PartitionMetadata::decode(metadata.encode().as_bytes());
        assert_eq!(again, Ok(metadata));
    }
    if let Some(id) = std::str::from_utf8(data).ok().and_then(decode_topic_id) {
        assert_eq!(decode_topic_id(&encode_topic_id(id)), Some(id));
    }
}
