//! What a producer's batches and markers do to the state, and what is decided by it.

use proptest::prelude::*;

use super::*;
use crate::record::RecordBatchBuilder;

const PRODUCER: ProducerId = ProducerId(7);

fn batch(
    id: ProducerId,
    epoch: i16,
    sequence: i32,
    records: i32,
    offset: i64,
    transactional: bool,
) -> BatchHeader {
    let mut builder = RecordBatchBuilder::new().base_offset(Offset(offset)).producer(
        id,
        ProducerEpoch(epoch),
        Sequence(sequence),
    );
    if transactional {
        builder = builder.transactional();
    }
    for _ in 0..records {
        builder.append(TimestampMs(offset * 10), None, None, &[]).unwrap();
    }
    *BatchHeader::peek(&builder.build().unwrap()).unwrap()
}

fn plain(epoch: i16, sequence: i32, records: i32, offset: i64) -> BatchHeader {
    batch(PRODUCER, epoch, sequence, records, offset, false)
}

fn marker(id: ProducerId, epoch: i16, offset: i64, committed: bool) -> (BatchHeader, Option<EndTxnMarker>) {
    let marker = EndTxnMarker {
        committed,
        coordinator_epoch: 2,
    };
    let bytes = RecordBatchBuilder::end_txn_marker(id, ProducerEpoch(epoch), TimestampMs(50), marker);
    let mut bytes = bytes.to_vec();
    bytes[..8].copy_from_slice(&offset.to_be_bytes());
    (*BatchHeader::peek(&bytes).unwrap(), Some(marker))
}

fn state_after(batches: &[BatchHeader]) -> ProducerState {
    let mut state = ProducerState::new();
    for header in batches {
        assert_eq!(state.update(header, None), None);
    }
    state
}

fn out_of_order(epoch: i16, sequence: i32, expected: i32) -> Result<SequenceCheck, ProducerError> {
    Err(ProducerError::OutOfOrderSequence {
        producer_id: PRODUCER,
        producer_epoch: ProducerEpoch(epoch),
        sequence: Sequence(sequence),
        expected: Sequence(expected),
    })
}

#[test]
fn unknown_producer_may_start_anywhere() {
    let state = ProducerState::new();
    assert_eq!(state.check(&plain(3, 1234, 2, 0)), Ok(SequenceCheck::Next));
}

#[test]
fn sequences_must_follow_each_other() {
    let state = state_after(&[plain(0, 0, 3, 100)]);
    assert_eq!(state.check(&plain(0, 3, 1, 0)), Ok(SequenceCheck::Next));
    assert_eq!(state.check(&plain(0, 4, 1, 0)), out_of_order(0, 4, 3));
    assert_eq!(state.check(&plain(0, 2, 1, 0)), out_of_order(0, 2, 3));
}

#[test]
fn last_five_batches_are_acknowledged_again_and_older_ones_refused() {
    let batches: Vec<_> = (0..6)
        .map(|i| plain(0, i * 2, 2, 100 + i64::from(i) * 10))
        .collect();
    let state = state_after(&batches);
    assert_eq!(state.check(&batches[0]), out_of_order(0, 0, 12));
    for (i, header) in (0..).zip(&batches).skip(1) {
        let base = 100 + i * 10;
        let duplicate = SequenceCheck::Duplicate {
            base_offset: Offset(base),
            last_offset: Offset(base + 1),
            timestamp: TimestampMs(base * 10),
        };
        assert_eq!(state.check(header), Ok(duplicate));
    }
    // The same first sequence with another number of records is no duplicate.
    assert_eq!(state.check(&plain(0, 10, 1, 0)), out_of_order(0, 10, 12));
}

#[test]
fn sequence_wraps_to_zero() {
    let state = state_after(&[plain(0, i32::MAX - 1, 2, 0)]);
    assert_eq!(state.check(&plain(0, 0, 1, 0)), Ok(SequenceCheck::Next));
    // A batch that itself spans the wrap.
    let spanning = plain(0, i32::MAX - 1, 4, 5);
    let state = state_after(&[spanning]);
    assert_eq!(state.check(&plain(0, 2, 1, 0)), Ok(SequenceCheck::Next));
    assert!(matches!(
        state.check(&spanning),
        Ok(SequenceCheck::Duplicate {
            base_offset: Offset(5),
            last_offset: Offset(8),
            ..
        })
    ));
}

#[test]
fn older_epoch_is_fenced_and_newer_starts_at_zero() {
    let state = state_after(&[plain(4, 0, 1, 0)]);
    assert_eq!(
        state.check(&plain(3, 1, 1, 0)),
        Err(ProducerError::InvalidProducerEpoch {
            producer_id: PRODUCER,
            producer_epoch: ProducerEpoch(3),
            current: ProducerEpoch(4),
        })
    );
    assert_eq!(state.check(&plain(5, 1, 1, 0)), out_of_order(5, 1, 0));
    assert_eq!(state.check(&plain(5, 0, 1, 0)), Ok(SequenceCheck::Next));

    let state = state_after(&[plain(4, 0, 1, 0), plain(5, 0, 2, 1)]);
    assert_eq!(state.check(&plain(5, 2, 1, 0)), Ok(SequenceCheck::Next));
    assert_eq!(
        state.entry(PRODUCER).unwrap().batches.len(),
        1,
        "the old epoch's are forgotten"
    );
}

#[test]
fn batches_without_a_producer_leave_no_trace() {
    let header = batch(ProducerId::NONE, -1, -1, 3, 0, false);
    let state = state_after(&[header]);
    assert_eq!(state.check(&header), Ok(SequenceCheck::Next));
    assert_eq!(state, ProducerState::new());
}

#[test]
fn open_and_unreplicated_transactions_hold_the_stable_offset_back() {
    let (a, b) = (ProducerId(1), ProducerId(2));
    let mut state = state_after(&[
        batch(a, 0, 0, 2, 10, true),
        batch(b, 0, 0, 1, 12, true),
        batch(a, 0, 2, 1, 13, true),
    ]);
    assert_eq!(state.first_unstable_offset(), Some(Offset(10)));

    let (header, end) = marker(a, 0, 14, true);
    let completed = state.update(&header, end).unwrap();
    assert_eq!(
        completed,
        CompletedTxn {
            producer_id: a,
            first_offset: Offset(10),
            last_offset: Offset(14),
            aborted: false,
            last_stable_offset: Offset(12),
        }
    );
    assert_eq!(state.first_undecided_offset(), Some(Offset(12)));
    assert_eq!(
        state.first_unstable_offset(),
        Some(Offset(10)),
        "the marker is not replicated"
    );
    state.handle_high_watermark(Offset(14));
    assert_eq!(
        state.first_unstable_offset(),
        Some(Offset(10)),
        "still not below it"
    );
    state.handle_high_watermark(Offset(15));
    assert_eq!(state.first_unstable_offset(), Some(Offset(12)));

    let (header, end) = marker(b, 1, 15, false);
    let completed = state.update(&header, end).unwrap();
    assert!(completed.aborted);
    assert_eq!(completed.last_stable_offset, Offset(16));
    state.handle_high_watermark(Offset(16));
    assert_eq!(state.first_unstable_offset(), None);
    let entry = state.entry(b).unwrap();
    assert_eq!((entry.epoch, entry.coordinator_epoch), (ProducerEpoch(1), 2));
    assert!(entry.batches.is_empty(), "the marker raised the epoch");
}

#[test]
fn marker_without_a_transaction_completes_nothing() {
    let mut state = state_after(&[plain(0, 0, 1, 0)]);
    let (header, end) = marker(PRODUCER, 0, 1, true);
    assert_eq!(state.update(&header, end), None);
    assert_eq!(
        state.check(&plain(0, 1, 1, 0)),
        Ok(SequenceCheck::Next),
        "sequences go on"
    );
    let before = state.clone();
    assert_eq!(state.update(&header, None), None, "emptied by compaction");
    assert_eq!(state, before);
}

#[test]
fn plain_batch_within_a_transaction_is_refused() {
    let state = state_after(&[batch(PRODUCER, 0, 0, 1, 5, true)]);
    assert_eq!(
        state.check(&plain(0, 1, 1, 0)),
        Err(ProducerError::InvalidTxnState {
            producer_id: PRODUCER,
            first_offset: Offset(5)
        })
    );
    assert_eq!(
        state.check(&batch(PRODUCER, 0, 1, 1, 0, true)),
        Ok(SequenceCheck::Next)
    );
}

#[test]
fn markers_of_older_producers_and_coordinators_are_fenced() {
    let mut state = state_after(&[plain(4, 0, 1, 0)]);
    let end = |coordinator_epoch| EndTxnMarker {
        committed: true,
        coordinator_epoch,
    };
    let check = |state: &ProducerState, epoch, coordinator_epoch| {
        state.check_marker(PRODUCER, ProducerEpoch(epoch), end(coordinator_epoch))
    };
    assert!(matches!(
        check(&state, 3, 0),
        Err(ProducerError::InvalidProducerEpoch { .. })
    ));
    assert_eq!(check(&state, 4, 0), Ok(()));
    assert_eq!(
        check(&state, 5, 0),
        Ok(()),
        "the coordinator has raised the epoch"
    );
    let (header, ended) = marker(PRODUCER, 4, 1, true);
    state.update(&header, ended);
    assert_eq!(
        check(&state, 4, 1),
        Err(ProducerError::CoordinatorFenced {
            producer_id: PRODUCER,
            coordinator_epoch: 1,
            current: 2
        })
    );
    assert_eq!(check(&state, 4, 2), Ok(()), "the same coordinator asks again");
    let unknown = state.check_marker(ProducerId(99), ProducerEpoch(0), end(0));
    assert_eq!(unknown, Ok(()));
}

#[test]
fn idle_producers_expire_unless_their_transaction_is_open() {
    let mut state = state_after(&[plain(0, 0, 1, 10), batch(ProducerId(8), 0, 0, 1, 11, true)]);
    state.expire(TimestampMs(199), 100);
    assert_eq!(state.iter().len(), 2, "timestamp 100 is not 100 ms ago");
    state.expire(TimestampMs(10_000), 100);
    assert_eq!(
        state.iter().map(|(id, _)| id).collect::<Vec<_>>(),
        [ProducerId(8)]
    );
}

#[test]
fn truncation_forgets_everything() {
    let mut state = state_after(&[plain(0, 0, 1, 10), batch(ProducerId(8), 0, 0, 1, 11, true)]);
    state.truncate();
    assert_eq!(state, ProducerState::new());
    assert_eq!(state.first_unstable_offset(), None);
}

proptest! {
    /// Any producer that sends its batches in order, retrying any of the last five at any time, sees
    /// each appended once, at the offset it was first given.
    #[test]
    fn retries_are_never_appended_twice(
        start in prop::sample::select(vec![0, 5, i32::MAX - 3, i32::MAX]),
        sizes in prop::collection::vec(1_i32..5, 1..30),
        retries in prop::collection::vec(0_usize..5, 1..30),
    ) {
        let mut state = ProducerState::new();
        let mut sent = Vec::new();
        let (mut sequence, mut offset) = (Sequence(start), 0_i64);
        for (records, back) in sizes.iter().zip(retries.iter().cycle()) {
            let header = plain(0, sequence.0, *records, offset);
            prop_assert_eq!(state.check(&header), Ok(SequenceCheck::Next));
            state.update(&header, None);
            sent.push(header);
            sequence = sequence.plus(*records);
            offset += i64::from(*records);
            if let Some(retried) = sent.iter().rev().nth(*back) {
                prop_assert_eq!(state.check(retried), Ok(SequenceCheck::Duplicate {
                    base_offset: retried.base_offset(),
                    last_offset: retried.last_offset(),
                    timestamp: retried.max_timestamp(),
                }));
            }
        }
    }

    /// Whatever headers a damaged log holds, taking them in does not panic.
    #[test]
    fn any_header_is_taken_in(bytes in prop::collection::vec(any::<u8>(), 61), end in any::<bool>()) {
        let mut bytes = bytes;
        bytes[8..12].copy_from_slice(&100_i32.to_be_bytes());
        bytes[16] = 2;
        let header = BatchHeader::peek(&bytes).unwrap();
        let mut state = ProducerState::new();
        let marker = end.then_some(EndTxnMarker { committed: true, coordinator_epoch: 0 });
        for _ in 0..2 {
            let _ = state.check(header);
            state.update(header, None);
            state.update(header, marker);
        }
    }
}
