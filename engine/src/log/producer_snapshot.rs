//! The `.snapshot` file: the producers' state before the offset in its name.
//!
//! Kafka's bytes, version 1, so that either broker opens the other's directory. Kafka writes one
//! entry for each producer, with its last batch. Here each remembered batch has an entry, older
//! ones first: Kafka takes the last entry of a producer and forgets the others, while ringlog still
//! knows a retry of the batch before the last after a crash that follows a roll. A snapshot is
//! never the only evidence: one that does not read is dropped and the state rebuilt from the log.
//! Tested below.
//!
//! ```text
//! version i16 (1), crc u32 (CRC-32C of all that follows), count i32, then per batch of a producer
//!   producerId i64, epoch i16, lastSequence i32 (-1 none), lastOffset i64 (-1 none),
//!   offsetDelta i32, timestamp i64, coordinatorEpoch i32, currentTxnFirstOffset i64 (-1 none)
//! ```

use std::collections::VecDeque;

use thiserror::Error;
use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::producer_entry::{BatchMetadata, ProducerEntry};
use super::producer_state::ProducerState;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

const VERSION: i16 = 1;
/// Where the bytes covered by the CRC begin.
const CRC_START: usize = 6;

/// Why a snapshot cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// The size does not fit the count of entries, or there is not even a count.
    #[error("producer snapshot of {len_bytes} bytes does not hold its {count:?} entries")]
    Length {
        /// Bytes there are.
        len_bytes: usize,
        /// Entries claimed, if it says.
        count: Option<i32>,
    },
    /// Only version 1 is known.
    #[error("producer snapshot version {version} is not 1")]
    Version {
        /// The field as it stands.
        version: i16,
    },
    /// The bytes are not those the checksum was made of.
    #[error("producer snapshot checksum is {computed:#010x}, its header says {stored:#010x}")]
    Crc {
        /// CRC-32C in the file.
        stored: u32,
        /// CRC-32C of the bytes.
        computed: u32,
    },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SnapshotHeader {
    version: I16,
    crc: U32,
    count: I32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SnapshotEntry {
    producer_id: I64,
    epoch: I16,
    last_sequence: I32,
    last_offset: I64,
    offset_delta: I32,
    timestamp: I64,
    coordinator_epoch: I32,
    current_txn_first_offset: I64,
}

impl SnapshotEntry {
    /// The entries of one producer: one for each batch before the last, and the producer's own.
    fn all_of(producer_id: ProducerId, entry: &ProducerEntry) -> impl Iterator<Item = Self> {
        let own = Self::new(producer_id, entry);
        let older = entry.batches.iter().rev().skip(1).rev();
        let older = older.map(move |batch| Self {
            last_sequence: I32::new(batch.last_sequence.0),
            last_offset: I64::new(batch.last_offset.0),
            offset_delta: I32::new(batch.offset_delta),
            timestamp: I64::new(batch.timestamp.0),
            current_txn_first_offset: I64::new(-1),
            ..own
        });
        older.chain([own])
    }

    fn new(producer_id: ProducerId, entry: &ProducerEntry) -> Self {
        let last = entry.batches.back();
        Self {
            producer_id: I64::new(producer_id.0),
            epoch: I16::new(entry.epoch.0),
            last_sequence: I32::new(last.map_or(-1, |batch| batch.last_sequence.0)),
            last_offset: I64::new(last.map_or(-1, |batch| batch.last_offset.0)),
            offset_delta: I32::new(last.map_or(0, |batch| batch.offset_delta)),
            timestamp: I64::new(entry.last_timestamp.0),
            coordinator_epoch: I32::new(entry.coordinator_epoch),
            current_txn_first_offset: I64::new(entry.current_txn_first_offset.map_or(-1, |offset| offset.0)),
        }
    }

    fn to_entry(self) -> ProducerEntry {
        let timestamp = TimestampMs(self.timestamp.get());
        let last = (self.last_offset.get() >= 0).then(|| BatchMetadata {
            last_sequence: Sequence(self.last_sequence.get()),
            last_offset: Offset(self.last_offset.get()),
            offset_delta: self.offset_delta.get(),
            timestamp,
        });
        let txn_first_offset = self.current_txn_first_offset.get();
        ProducerEntry {
            epoch: ProducerEpoch(self.epoch.get()),
            coordinator_epoch: self.coordinator_epoch.get(),
            last_timestamp: timestamp,
            current_txn_first_offset: (txn_first_offset >= 0).then_some(Offset(txn_first_offset)),
            batches: VecDeque::from_iter(last),
        }
    }
}

/// The bytes of a snapshot of `state`, in order of the producers' ids.
///
/// # Panics
///
/// Beyond 2^31 remembered batches, whose state would have outgrown memory before.
#[must_use]
pub fn encode(state: &ProducerState) -> Vec<u8> {
    let entries: Vec<SnapshotEntry> = state
        .iter()
        .flat_map(|(producer_id, entry)| SnapshotEntry::all_of(producer_id, entry))
        .collect();
    let count = i32::try_from(entries.len()).expect("batches held in memory fit i32");
    let header = SnapshotHeader {
        version: I16::new(VERSION),
        crc: U32::ZERO,
        count: I32::new(count),
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(entries.as_bytes());
    let crc = crc32c::crc32c(&bytes[CRC_START..]);
    bytes[2..CRC_START].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The state of a whole snapshot file. The caller drops producers that have expired since.
///
/// # Errors
///
/// Any [`SnapshotError`]; the state is then rebuilt from an earlier snapshot or from the log.
pub fn decode(bytes: &[u8]) -> Result<ProducerState, SnapshotError> {
    let len_bytes = bytes.len();
    let Ok((header, rest)) = SnapshotHeader::ref_from_prefix(bytes) else {
        return Err(SnapshotError::Length {
            len_bytes,
            count: None,
        });
    };
    if header.version.get() != VERSION {
        return Err(SnapshotError::Version {
            version: header.version.get(),
        });
    }
    let (stored, computed) = (header.crc.get(), crc32c::crc32c(&bytes[CRC_START..]));
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    let count = header.count.get();
    let entries = <[SnapshotEntry]>::ref_from_bytes(rest).ok();
    let entries = entries.filter(|entries| i32::try_from(entries.len()) == Ok(count));
    let Some(entries) = entries else {
        return Err(SnapshotError::Length {
            len_bytes,
            count: Some(count),
        });
    };
    let mut state = ProducerState::new();
    for entry in entries {
        state.load(ProducerId(entry.producer_id.get()), entry.to_entry());
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One producer with a batch and an open transaction, one that has only ended one; by hand, the
    /// CRC by a bitwise CRC-32C.
    const TWO_PRODUCERS: [u8; 102] = [
        0x00, 0x01, // version
        0xb7, 0xf7, 0x8e, 0xdf, // crc
        0x00, 0x00, 0x00, 0x02, // two entries
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, // producer id 7
        0x00, 0x03, // epoch 3
        0x00, 0x00, 0x00, 0x0b, // last sequence 11
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x03, // last offset 259
        0x00, 0x00, 0x00, 0x02, // offset delta
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xe8, // timestamp 1000
        0xff, 0xff, 0xff, 0xff, // no coordinator epoch
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, // transaction from 256
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, // producer id 9
        0x00, 0x00, // epoch 0
        0xff, 0xff, 0xff, 0xff, // no sequence
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // no offset
        0x00, 0x00, 0x00, 0x00, // offset delta
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0xd0, // timestamp 2000
        0x00, 0x00, 0x00, 0x05, // coordinator epoch 5
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // no transaction
    ];

    fn two_producers() -> ProducerState {
        let batch = BatchMetadata {
            last_sequence: Sequence(11),
            last_offset: Offset(259),
            offset_delta: 2,
            timestamp: TimestampMs(1000),
        };
        let mut state = ProducerState::new();
        let with_txn = ProducerEntry {
            epoch: ProducerEpoch(3),
            coordinator_epoch: -1,
            last_timestamp: TimestampMs(1000),
            current_txn_first_offset: Some(Offset(256)),
            batches: VecDeque::from([batch]),
        };
        let ended = ProducerEntry {
            epoch: ProducerEpoch(0),
            coordinator_epoch: 5,
            last_timestamp: TimestampMs(2000),
            current_txn_first_offset: None,
            batches: VecDeque::new(),
        };
        state.load(ProducerId(9), ended);
        state.load(ProducerId(7), with_txn);
        state
    }

    #[test]
    fn snapshot_has_kafkas_bytes_and_comes_back() {
        let bytes = encode(&two_producers());
        assert_eq!(bytes, TWO_PRODUCERS);
        assert_eq!(decode(&TWO_PRODUCERS), Ok(two_producers()));
        assert_eq!(
            decode(&TWO_PRODUCERS).unwrap().first_unstable_offset(),
            Some(Offset(256))
        );
    }

    fn batches(sequences: impl Iterator<Item = i32>) -> VecDeque<BatchMetadata> {
        let batch = |sequence: i32| BatchMetadata {
            last_sequence: Sequence(sequence),
            last_offset: Offset(i64::from(sequence) * 2),
            offset_delta: 0,
            timestamp: TimestampMs(30),
        };
        sequences.map(batch).collect()
    }

    fn producer_with(batches: VecDeque<BatchMetadata>) -> ProducerState {
        let entry = ProducerEntry {
            epoch: ProducerEpoch(0),
            coordinator_epoch: -1,
            last_timestamp: TimestampMs(30),
            current_txn_first_offset: Some(Offset(16)),
            batches,
        };
        let mut state = ProducerState::new();
        state.load(ProducerId(1), entry);
        state
    }

    #[test]
    fn all_remembered_batches_come_back_and_the_last_entry_is_kafkas() {
        let state = producer_with(batches(5..10));
        let bytes = encode(&state);
        assert_eq!(decode(&bytes), Ok(state));
        let kafka = encode(&producer_with(batches(9..10)));
        let entry_len = size_of::<SnapshotEntry>();
        assert_eq!(bytes[bytes.len() - entry_len..], kafka[kafka.len() - entry_len..]);
    }

    #[test]
    fn no_more_batches_of_a_producer_are_loaded_than_are_remembered() {
        let state = decode(&encode(&producer_with(batches(0..40)))).unwrap();
        assert_eq!(state, producer_with(batches(35..40)));
    }

    #[test]
    fn batches_of_an_earlier_epoch_do_not_count() {
        let mut state = producer_with(batches(5..9));
        let mut entry = state.entry(ProducerId(1)).unwrap().clone();
        entry.epoch = ProducerEpoch(1);
        entry.batches = batches(3..4);
        state.load(ProducerId(1), entry.clone());
        assert_eq!(state.entry(ProducerId(1)), Some(&entry));
    }

    #[test]
    fn no_producers_are_a_snapshot_too() {
        let bytes = encode(&ProducerState::new());
        assert_eq!(bytes.len(), 10);
        assert_eq!(decode(&bytes), Ok(ProducerState::new()));
    }

    #[test]
    fn garbled_snapshots_are_refused() {
        assert_eq!(
            decode(&[0, 1]),
            Err(SnapshotError::Length {
                len_bytes: 2,
                count: None
            })
        );
        let mut other = TWO_PRODUCERS;
        other[1] = 2;
        assert_eq!(decode(&other), Err(SnapshotError::Version { version: 2 }));
        let mut flipped = TWO_PRODUCERS;
        flipped[50] ^= 4;
        assert!(matches!(decode(&flipped), Err(SnapshotError::Crc { .. })));
        assert!(matches!(
            decode(&TWO_PRODUCERS[..101]),
            Err(SnapshotError::Crc { .. })
        ));
        for count in [-1, 1, 3, i32::MAX] {
            let mut miscounted = TWO_PRODUCERS;
            miscounted[6..10].copy_from_slice(&count.to_be_bytes());
            let crc = crc32c::crc32c(&miscounted[6..]);
            miscounted[2..6].copy_from_slice(&crc.to_be_bytes());
            let error = SnapshotError::Length {
                len_bytes: 102,
                count: Some(count),
            };
            assert_eq!(decode(&miscounted), Err(error));
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let mut sealed = [&[0, 1, 0, 0, 0, 0][..], &bytes].concat();
            let crc = crc32c::crc32c(&sealed[6..]);
            sealed[2..6].copy_from_slice(&crc.to_be_bytes());
            let _ = decode(&sealed);
        }
    }
}
