//! Scenarios of one shard: the production `BrokerShard` and logs over a disk in memory, step by step.
//!
//! The test is the server: it hands in requests, carries out storage requests in the order it
//! likes, moves the clock, and takes the replies.

use std::io::ErrorKind;
use std::path::PathBuf;

use bytes::BytesMut;
use ringlog_engine::config::{FlushPolicy, LogConfig};
use ringlog_engine::io::IoOp;
use ringlog_engine::log::{AppendError, Log, OpenOptions};
use ringlog_engine::record::{EndTxnMarker, RecordBatchBuilder};
use ringlog_engine::testing::{OpKind, SimDisk, batch_of};
use ringlog_engine::types::{LeaderEpoch, LogId, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use ringlog_replication::BrokerShard;
use ringlog_replication::request::{
    Acks, FetchError, FetchPartition, FetchRequest, FetchResult, Isolation, ProduceError, ProduceRequest,
    ProduceResult, Reply,
};
use ringlog_replication::types::{MonotonicMs, Now, RequestId, TopicId, TopicIdPartition};

struct Stage {
    shard: BrokerShard,
    disk: SimDisk,
    now: Now,
    requests: u64,
    logs: u32,
}

fn partition(number: i32) -> TopicIdPartition {
    TopicIdPartition {
        topic_id: TopicId([1; 16]),
        partition: number,
    }
}

impl Stage {
    /// A shard that leads the partitions 0 and 1.
    fn new(config: &LogConfig) -> Self {
        let mut stage = Self {
            shard: BrokerShard::new(),
            disk: SimDisk::new(),
            now: Now {
                wall: TimestampMs(1_000_000),
                monotonic: MonotonicMs(0),
            },
            requests: 0,
            logs: 0,
        };
        stage.open(0, config);
        stage.open(1, config);
        stage
    }

    fn open(&mut self, number: i32, config: &LogConfig) {
        let options = OpenOptions {
            recovery_point: Offset(0),
            log_start_offset: Offset(0),
            clean_shutdown: false,
            now: self.now.wall,
        };
        let (dir, id) = (PathBuf::from(format!("/t-{number}")), LogId(self.logs));
        self.logs += 1;
        let (log, _) =
            Log::open(&dir, id, config.clone(), options, &mut self.disk).expect("the disk is sound");
        self.shard.add_partition(partition(number), log, LeaderEpoch(0));
    }

    fn produce(&mut self, acks: Acks, partitions: &[i32]) -> RequestId {
        let batches = partitions.iter().map(|&p| (p, batch_of(1, 100, self.now.wall)));
        self.produce_batches(acks, batches.collect())
    }

    fn produce_batches(&mut self, acks: Acks, batches: Vec<(i32, BytesMut)>) -> RequestId {
        let id = self.next_id();
        let request = ProduceRequest {
            id,
            acks,
            timeout_ms: 1000,
            partitions: batches
                .into_iter()
                .map(|(p, batch)| (partition(p), batch))
                .collect(),
        };
        self.shard.handle_produce(request, self.now);
        id
    }

    /// Reads from these partitions and offsets.
    fn fetch(&mut self, max_wait_ms: u64, min_bytes: u32, from: &[(i32, i64)]) -> RequestId {
        self.fetch_isolated(Isolation::ReadUncommitted, max_wait_ms, min_bytes, from)
    }

    fn fetch_isolated(
        &mut self,
        isolation: Isolation,
        max_wait_ms: u64,
        min_bytes: u32,
        from: &[(i32, i64)],
    ) -> RequestId {
        let id = self.next_id();
        let partitions = from.iter().map(|&(p, offset)| FetchPartition {
            partition: partition(p),
            offset: Offset(offset),
            max_bytes: 1 << 20,
            current_leader_epoch: LeaderEpoch::NONE,
        });
        let request = FetchRequest {
            id,
            max_wait_ms,
            min_bytes,
            isolation,
            partitions: partitions.collect(),
        };
        self.shard.handle_fetch(request, self.now);
        id
    }

    fn next_id(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Ends the turn: its storage requests go to the disk.
    fn turn(&mut self) {
        self.shard.end_turn(self.now);
        self.disk.submit(self.shard.poll_io());
    }

    /// Carries out the oldest request of this kind, which must be there, after all whole-file writes: a
    /// sync waits for the checkpoint of the epoch whose batches it covers.
    fn complete(&mut self, kind: OpKind) {
        while let Some(put) = self.find(OpKind::Put) {
            self.complete_at(put);
        }
        let found = self.find(kind);
        self.complete_at(found.unwrap_or_else(|| panic!("no {kind:?} is under way")));
    }

    fn find(&self, kind: OpKind) -> Option<usize> {
        let mut outstanding = self.disk.outstanding();
        outstanding.position(|request| OpKind::of(&request.op) == kind)
    }

    fn complete_at(&mut self, index: usize) {
        let completion = self.disk.complete(index);
        self.shard.handle_io(completion);
        self.turn();
    }

    /// Carries out everything.
    fn settle(&mut self) {
        self.turn();
        while self.disk.outstanding().next().is_some() {
            self.complete_at(0);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.monotonic = self.now.monotonic.plus(ms);
        self.now.wall = TimestampMs(self.now.wall.0 + i64::try_from(ms).expect("a short time"));
        if self
            .shard
            .next_timeout()
            .is_some_and(|at| at <= self.now.monotonic)
        {
            self.shard.handle_timeout(self.now);
        }
        self.turn();
    }

    /// The one reply there is, to `expected`.
    fn produced(&mut self, expected: RequestId) -> Vec<ProduceResult> {
        match self.shard.poll_reply() {
            Some(Reply::Produce { id, partitions }) if id == expected => partitions,
            other => panic!("{other:?}"),
        }
    }

    fn fetched(&mut self, expected: RequestId) -> Vec<FetchResult> {
        match self.shard.poll_reply() {
            Some(Reply::Fetch { id, partitions }) if id == expected => partitions,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn assert_silent(&mut self) {
        let reply = self.shard.poll_reply();
        assert!(reply.is_none(), "{reply:?}");
    }

    fn high_watermark(&self, number: i32) -> i64 {
        self.shard
            .partition(partition(number))
            .expect("it is led here")
            .high_watermark()
            .0
    }
}

fn offset(result: &ProduceResult) -> i64 {
    result.as_ref().expect("it was acknowledged").base_offset.0
}

fn policy(flush_policy: FlushPolicy) -> LogConfig {
    LogConfig {
        flush_policy,
        ..LogConfig::default()
    }
}

#[test]
fn each_level_of_acknowledgement_waits_for_its_own_event() {
    let mut stage = Stage::new(&policy(FlushPolicy::Group));
    stage.settle();
    let none = stage.produce(Acks::None, &[0]);
    assert_eq!(offset(&stage.produced(none)[0]), 0);
    let leader = stage.produce(Acks::Leader, &[0]);
    let all = stage.produce(Acks::All, &[0]);
    stage.turn();
    stage.assert_silent();

    stage.complete(OpKind::Write);
    assert_eq!(offset(&stage.produced(leader)[0]), 1);
    stage.assert_silent();
    assert_eq!(stage.high_watermark(0), 0, "written is not flushed");

    stage.complete(OpKind::Sync);
    assert_eq!(offset(&stage.produced(all)[0]), 2);
    assert_eq!(stage.high_watermark(0), 3);
    stage.assert_silent();
}

#[test]
fn where_the_system_flushes_a_write_commits() {
    let mut stage = Stage::new(&policy(FlushPolicy::Os));
    stage.settle();
    let all = stage.produce(Acks::All, &[0]);
    stage.turn();
    stage.complete(OpKind::Write);
    assert_eq!(offset(&stage.produced(all)[0]), 0);
    assert_eq!(stage.high_watermark(0), 1);
    assert!(
        !stage
            .disk
            .outstanding()
            .any(|request| matches!(request.op, IoOp::Sync { .. }))
    );
}

#[test]
fn a_request_for_several_partitions_is_answered_once_and_whole() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    // The third is not here; the fourth is no batch.
    let id = stage.produce_batches(
        Acks::All,
        vec![
            (0, batch_of(2, 10, stage.now.wall)),
            (1, batch_of(3, 10, stage.now.wall)),
            (9, batch_of(1, 10, stage.now.wall)),
            (0, BytesMut::from(&b"no batch"[..])),
            (0, batch_of(1, 10, stage.now.wall)),
        ],
    );
    stage.turn();
    stage.complete(OpKind::Write);
    stage.complete(OpKind::Sync);
    stage.assert_silent();
    stage.settle();
    let results = stage.produced(id);
    assert_eq!(
        [offset(&results[0]), offset(&results[1]), offset(&results[4])],
        [0, 0, 2]
    );
    assert!(matches!(results[2], Err(ProduceError::UnknownPartition)));
    assert!(matches!(
        results[3],
        Err(ProduceError::Append(AppendError::Batch(_)))
    ));
    stage.assert_silent();
}

#[test]
fn an_acknowledgement_that_comes_too_late_is_not_given_twice() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    let late = stage.produce(Acks::All, &[0, 1]);
    stage.turn();
    stage.pass(999);
    stage.assert_silent();
    stage.pass(1);
    let results = stage.produced(late);
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Err(ProduceError::TimedOut)))
    );
    // The batch is there all the same, and the next one's wait is not confused by it.
    let next = stage.produce(Acks::All, &[0]);
    stage.settle();
    assert_eq!(offset(&stage.produced(next)[0]), 1);
    stage.assert_silent();
    assert_eq!(stage.shard.next_timeout(), None, "nothing waits any more");
}

#[test]
fn a_duplicate_is_acknowledged_with_its_batch_and_not_before() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    let batch = |now, sequence| {
        let mut builder =
            RecordBatchBuilder::new().producer(ProducerId(5), ProducerEpoch(0), Sequence(sequence));
        builder.append(now, None, Some(b"v"), &[]).unwrap();
        BytesMut::from(builder.build().unwrap().as_ref())
    };
    let wall = stage.now.wall;
    let first = stage.produce_batches(Acks::All, vec![(0, batch(wall, 0))]);
    let again = stage.produce_batches(Acks::All, vec![(0, batch(wall, 0))]);
    let gap = stage.produce_batches(Acks::All, vec![(0, batch(wall, 2))]);
    assert!(matches!(
        stage.produced(gap)[0],
        Err(ProduceError::Append(AppendError::Producer(_)))
    ));
    stage.assert_silent();
    stage.settle();
    assert_eq!(offset(&stage.produced(first)[0]), 0);
    assert_eq!(offset(&stage.produced(again)[0]), 0);
    assert_eq!(stage.high_watermark(0), 1, "appended once");
    let later = stage.produce_batches(Acks::All, vec![(0, batch(wall, 0))]);
    assert_eq!(offset(&stage.produced(later)[0]), 0, "acknowledged long since");

    // After a day of silence the producer is forgotten, and may begin anywhere.
    stage.pass(86_400_001);
    stage.shard.expire_producers(stage.now);
    let wall = stage.now.wall;
    let anew = stage.produce_batches(Acks::All, vec![(0, batch(wall, 40))]);
    stage.settle();
    assert_eq!(offset(&stage.produced(anew)[0]), 1);
}

#[test]
fn a_failed_flush_acknowledges_nothing_and_takes_nothing_more() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    let good = stage.produce(Acks::All, &[0]);
    stage.settle();
    stage.produced(good);
    let (both, other) = (stage.produce(Acks::All, &[0, 1]), stage.produce(Acks::All, &[1]));
    stage.turn();
    stage.complete(OpKind::Write);
    stage.disk.fail_next(OpKind::Sync, ErrorKind::Other);
    stage.complete(OpKind::Sync);
    stage.assert_silent();
    stage.settle();
    let results = stage.produced(both);
    assert!(
        matches!(results[0], Err(ProduceError::LogFailed)),
        "{:?}",
        results[0]
    );
    assert_eq!(offset(&results[1]), 0);
    assert_eq!(offset(&stage.produced(other)[0]), 1, "the other log goes on");

    let refused = stage.produce(Acks::All, &[0]);
    let results = stage.produced(refused);
    assert!(matches!(
        results[0],
        Err(ProduceError::Append(AppendError::Poisoned(_)))
    ));
    // What was committed is still read, and no more than that.
    let read = stage.fetch(0, 0, &[(0, 0), (0, 1)]);
    let results = stage.fetched(read);
    assert!(results[0].as_ref().unwrap().plan.is_some());
    assert!(results[1].as_ref().unwrap().plan.is_none());
    assert_eq!(results[0].as_ref().unwrap().high_watermark, Offset(1));
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    stage.disk.set_capacity(Some(150));
    let first = stage.produce(Acks::All, &[0, 0]);
    stage.turn();
    stage.complete(OpKind::Write);
    let refused = stage.produce(Acks::All, &[0]);
    let results = stage.produced(refused);
    assert!(matches!(
        results[0],
        Err(ProduceError::Append(AppendError::StorageFull))
    ));
    stage.disk.set_capacity(None);
    for _ in 0..3 {
        stage.pass(100);
        stage.settle();
    }
    let results = stage.produced(first);
    assert_eq!([offset(&results[0]), offset(&results[1])], [0, 1]);
    let next = stage.produce(Acks::All, &[0]);
    stage.settle();
    assert_eq!(offset(&stage.produced(next)[0]), 2);
}

#[test]
fn a_fetch_waits_for_bytes_that_are_committed() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    let waiting = stage.fetch(500, 1, &[(0, 0), (1, 0)]);
    stage.assert_silent();
    let produced = stage.produce(Acks::Leader, &[1]);
    stage.turn();
    stage.complete(OpKind::Write);
    stage.produced(produced);
    stage.assert_silent();
    stage.complete(OpKind::Sync);
    let results = stage.fetched(waiting);
    assert!(results[0].as_ref().unwrap().plan.is_none());
    assert!(results[1].as_ref().unwrap().plan.is_some());
    stage.pass(1000);
    stage.assert_silent();
    assert_eq!(stage.shard.next_timeout(), None);
}

#[test]
fn a_fetch_adds_up_its_partitions_and_gives_up_at_its_time() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    let each = u32::try_from(batch_of(1, 100, stage.now.wall).len()).unwrap();
    let enough = stage.fetch(500, 2 * each, &[(0, 0), (1, 0)]);
    let too_much = stage.fetch(500, 2 * each + 1, &[(0, 0), (1, 0)]);
    let now = stage.fetch(0, 1, &[(0, 0)]);
    assert!(
        stage.fetched(now)[0].as_ref().unwrap().plan.is_none(),
        "no wait was asked for"
    );
    for (number, ready) in [(0, false), (1, true)] {
        let id = stage.produce(Acks::All, &[number]);
        stage.settle();
        stage.produced(id);
        if ready {
            let results = stage.fetched(enough);
            assert!(
                results
                    .iter()
                    .all(|result| result.as_ref().unwrap().plan.is_some())
            );
        }
        stage.assert_silent();
    }
    stage.pass(499);
    stage.assert_silent();
    stage.pass(1);
    assert_eq!(stage.fetched(too_much).len(), 2);
    stage.shard.finish_fetch(too_much);
    stage.assert_silent();
}

#[test]
fn an_offset_that_is_not_there_ends_the_wait() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    let id = stage.produce(Acks::All, &[0, 0, 0]);
    stage.settle();
    stage.produced(id);
    for from in [4, -1] {
        let id = stage.fetch(500, 1 << 20, &[(1, 0), (0, from)]);
        assert!(matches!(stage.fetched(id)[1], Err(FetchError::Read(_))), "{from}");
    }
    let id = stage.fetch(500, 1 << 20, &[(7, 0)]);
    assert!(matches!(stage.fetched(id)[0], Err(FetchError::UnknownPartition)));

    assert!(stage.shard.delete_records(partition(0), Some(Offset(4))).is_err());
    assert_eq!(
        stage.shard.delete_records(partition(0), Some(Offset(2))).unwrap(),
        Offset(2)
    );
    assert_eq!(
        stage.shard.delete_records(partition(0), Some(Offset(1))).unwrap(),
        Offset(2),
        "never back"
    );
    assert_eq!(stage.shard.delete_records(partition(0), None).unwrap(), Offset(3));
    let id = stage.fetch(0, 0, &[(0, 2), (0, 3)]);
    let results = stage.fetched(id);
    assert!(results[0].is_err() && results[1].is_ok());
}

#[test]
fn retention_walks_the_partitions_in_steps_and_stops_at_the_high_watermark() {
    let kept = LogConfig {
        retention_bytes: Some(1 << 20),
        ..LogConfig::default()
    };
    let mut stage = Stage::new(&kept);
    stage.settle();
    for number in [0, 1] {
        let id = stage.produce(Acks::All, &[number]);
        stage.settle();
        stage.produced(id);
    }
    let mut config = kept;
    config.retention_bytes = Some(0);
    let log = stage.shard.partition_mut(partition(1)).unwrap().log_mut();
    log.set_config(config);
    // Not committed when the walk comes by.
    let waiting = stage.produce(Acks::All, &[1]);
    let first = stage.shard.enforce_retention(LogId(0), 1, stage.now);
    assert_eq!(first.moved, []);
    let next = first.next.expect("there is another partition");
    let second = stage.shard.enforce_retention(next, 1, stage.now);
    assert_eq!((second.moved, second.next), (vec![], None));
    stage.settle();
    stage.produced(waiting);
    let step = stage.shard.enforce_retention(LogId(0), 10, stage.now);
    assert_eq!((step.moved, step.next), (vec![(partition(1), Offset(2))], None));
    stage.settle();
    let id = stage.fetch(0, 0, &[(0, 0), (1, 0), (1, 2)]);
    let results = stage.fetched(id);
    assert!(results[0].is_ok() && results[1].is_err() && results[2].is_ok());
}

#[test]
fn removal_answers_what_waits_and_gives_the_log_back_when_its_requests_are_over() {
    let small = LogConfig {
        segment_bytes: 400,
        ..LogConfig::default()
    };
    let mut stage = Stage::new(&small);
    stage.settle();
    let (reader, both) = (
        stage.fetch(60_000, 1 << 20, &[(0, 0), (1, 0)]),
        stage.fetch(60_000, 1, &[(1, 9)]),
    );
    stage.fetched(both);
    // Enough for a second segment, whose file is being created when the partition goes.
    let writer = stage.produce(Acks::All, &[0, 0, 0, 1]);
    stage.turn();
    assert!(
        stage
            .disk
            .outstanding()
            .any(|request| matches!(request.op, IoOp::Create { .. }))
    );
    assert!(stage.shard.remove_partition(partition(0)));
    assert!(!stage.shard.remove_partition(partition(0)));
    let results = stage.fetched(reader);
    assert!(matches!(results[0], Err(FetchError::UnknownPartition)));
    assert!(results[1].is_ok());
    assert!(stage.shard.poll_retired().is_none(), "its requests are under way");

    stage.settle();
    let results = stage.produced(writer);
    assert!(
        results[..3]
            .iter()
            .all(|result| matches!(result, Err(ProduceError::UnknownPartition)))
    );
    assert_eq!(offset(&results[3]), 0);
    let (id, log) = stage.shard.poll_retired().expect("its requests are over");
    assert_eq!(id, partition(0));
    assert!(log.segment_count() > 1);
    log.discard(&mut stage.disk);
    assert!(stage.shard.poll_retired().is_none());

    // The name is free for another log.
    stage.open(0, &small);
    let id = stage.produce(Acks::All, &[0]);
    stage.settle();
    stage.produced(id);
    stage.assert_silent();
    assert_eq!(stage.shard.next_timeout(), None);
}

/// Appends two records of a transaction.
fn produce_transactional(stage: &mut Stage, producer: i64) {
    let mut builder = RecordBatchBuilder::new()
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0))
        .transactional();
    for _ in 0..2 {
        builder
            .append(stage.now.wall, None, Some(b"v"), &[])
            .expect("the batch is small");
    }
    let batch = BytesMut::from(builder.build().expect("the batch is small").as_ref());
    let id = stage.produce_batches(Acks::Leader, vec![(0, batch)]);
    stage.settle();
    stage.produced(id);
}

fn end_transaction(stage: &mut Stage, producer: i64, committed: bool) {
    let marker = EndTxnMarker {
        committed,
        coordinator_epoch: 0,
    };
    let wall = stage.now.wall;
    let led = stage.shard.partition_mut(partition(0)).expect("it is led here");
    led.append_end_txn_marker(ProducerId(producer), ProducerEpoch(0), marker, wall)
        .expect("it is the producer's");
    stage.settle();
}

#[test]
fn a_reader_of_committed_records_stops_at_open_transactions_and_is_told_of_aborted_ones() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    for producer in [1, 2, 3] {
        produce_transactional(&mut stage, producer);
    }
    end_transaction(&mut stage, 1, false);
    end_transaction(&mut stage, 3, false);
    let read = |stage: &mut Stage, isolation| {
        let id = stage.fetch_isolated(isolation, 0, 0, &[(0, 0)]);
        let fetched = stage.fetched(id).remove(0).expect("it is led here");
        let aborted = fetched.aborted_transactions.map(|aborted| {
            let first = |txn: &ringlog_engine::log::AbortedTxn| txn.first_offset.0;
            aborted.iter().map(first).collect::<Vec<_>>()
        });
        (fetched.last_stable_offset.0, fetched.high_watermark.0, aborted)
    };
    // The third lies above the last stable offset: its records are not read yet.
    assert_eq!(read(&mut stage, Isolation::ReadCommitted), (2, 8, Some(vec![0])));
    assert_eq!(read(&mut stage, Isolation::ReadUncommitted), (2, 8, None));
    end_transaction(&mut stage, 2, true);
    assert_eq!(
        read(&mut stage, Isolation::ReadCommitted),
        (9, 9, Some(vec![0, 4]))
    );
}

#[test]
fn transactions_that_ended_before_a_restart_do_not_hold_the_last_stable_offset_back() {
    let mut stage = Stage::new(&LogConfig::default());
    stage.settle();
    produce_transactional(&mut stage, 1);
    end_transaction(&mut stage, 1, true);
    assert!(stage.shard.remove_partition(partition(0)));
    let (_, log) = stage.shard.poll_retired().expect("nothing is under way");
    log.discard(&mut stage.disk);
    stage.open(0, &LogConfig::default());
    let led = stage.shard.partition(partition(0)).expect("it is led here");
    assert_eq!(
        (led.last_stable_offset(), led.high_watermark()),
        (Offset(3), Offset(3))
    );
}
