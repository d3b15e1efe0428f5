//! Fetch (key 1): reads record batches from partitions, for consumers and followers alike.
//!
//! Version 7 brought sessions (KIP-227), 11 racks (KIP-392), 12 divergence by epoch (KIP-595), 13 topic ids
//! (KIP-516), 15 the state of a follower (KIP-903), 16 the new leader (KIP-951), 17 directories (KIP-853).

use crate::protocol::encode::Records;
use crate::protocol::wire::Uuid;

messages! {
    /// What to read, and how long to wait for it.
    pub struct FetchRequest<'a> for Fetch {
        /// Id of the cluster.
        cluster_id: Option<&'a str>, [12+] tag 0;
        /// Id of the broker if a follower asks, -1 for a consumer.
        replica_id: i32, [0-14] = -1;
        /// The follower that asks, from version 15 on.
        replica_state: ReplicaState, [15+] tag 1;
        /// How long to wait for `min_bytes`.
        max_wait_ms: i32, [0+];
        /// Do not answer with fewer, unless the wait is over.
        min_bytes: i32, [0+];
        /// Do not answer with more, but for the first batch (KIP-74).
        max_bytes: i32, [0+] = i32::MAX;
        /// 0 reads all up to the high watermark, 1 only what is committed.
        isolation_level: i8, [0+];
        /// Fetch session, 0 for none.
        session_id: i32, [7+];
        /// 0 begins a session, -1 ends it or does without.
        session_epoch: i32, [7+] = -1;
        /// Each topic.
        topics: Vec<FetchTopic<'a>>, [0+];
        /// Partitions to take out of the session.
        forgotten_topics_data: Vec<ForgottenTopic<'a>>, [7+];
        /// Where the consumer stands.
        rack_id: &'a str, [11+];
    }

    /// The follower that asks.
    pub struct ReplicaState {
        /// Id of the broker if a follower asks, -1 for a consumer.
        replica_id: i32, [15+] = -1;
        /// Epoch of the broker, -1 if not known.
        replica_epoch: i64, [15+] = -1;
    }

    /// The partitions of one topic.
    pub struct FetchTopic<'a> {
        /// Its name.
        topic: &'a str, [0-12];
        /// The id; zero where it is not known.
        topic_id: Uuid, [13+];
        /// Each partition.
        partitions: Vec<FetchPartition>, [0+];
    }

    /// Where to read in one partition.
    pub struct FetchPartition {
        /// Which partition.
        partition: i32, [0+];
        /// Epoch that the client believes to be current, -1 if it does not know.
        current_leader_epoch: i32, [9+] = -1;
        /// First offset to read.
        fetch_offset: i64, [0+];
        /// Leader epoch of the record before, -1 if not known.
        last_fetched_epoch: i32, [12+] = -1;
        /// First readable offset of the follower.
        log_start_offset: i64, [5+] = -1;
        /// As `max_bytes`, for this partition.
        partition_max_bytes: i32, [0+];
        /// Directory of the follower.
        replica_directory_id: Uuid, [17+] tag 0;
    }

    /// Partitions to take out of the session.
    pub struct ForgottenTopic<'a> {
        /// Its name.
        topic: &'a str, [7-12];
        /// The id; zero where it is not known.
        topic_id: Uuid, [13+];
        /// Each partition.
        partitions: Vec<i32>, [7+];
    }

    /// The records read.
    pub struct FetchResponse<'a> for Fetch {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [7+];
        /// Fetch session, 0 for none.
        session_id: i32, [7+];
        /// Each topic.
        responses: Vec<FetchableTopicResponse<'a>>, [0+];
        /// Where the leaders named above can be reached.
        node_endpoints: Vec<NodeEndpoint<'a>>, [16+] tag 0;
    }

    /// The partitions of one topic.
    pub struct FetchableTopicResponse<'a> {
        /// Its name.
        topic: &'a str, [0-12];
        /// The id; zero where it is not known.
        topic_id: Uuid, [13+];
        /// Each partition.
        partitions: Vec<PartitionData<'a>>, [0+];
    }

    /// The records of one partition, and its watermarks.
    pub struct PartitionData<'a> {
        /// Which partition.
        partition_index: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Everything below is committed.
        high_watermark: i64, [0+];
        /// Below it is no open transaction, -1 if not known.
        last_stable_offset: i64, [0+] = -1;
        /// First readable offset, -1 if not known.
        log_start_offset: i64, [5+] = -1;
        /// Where the log and the asker's part, if they do.
        diverging_epoch: EpochEndOffset, [12+] tag 0;
        /// With an error of leadership: who leads now.
        current_leader: LeaderIdAndEpoch, [12+] tag 1;
        /// The snapshot to fetch instead.
        snapshot_id: SnapshotId, [12+] tag 2;
        /// Transactions to skip; null for a reader of uncommitted records.
        aborted_transactions: Option<Vec<AbortedTransaction>>, [0+];
        /// Replica that should be asked instead, -1 for none.
        preferred_read_replica: i32, [11+] = -1;
        /// The record batches.
        records: Records<'a>, [0+];
    }

    /// The largest epoch up to the one asked for, and its end.
    pub struct EpochEndOffset {
        /// Leader epoch, -1 if there is none.
        epoch: i32, [12+] = -1;
        /// Offset behind its last record, -1 if there is none.
        end_offset: i64, [12+] = -1;
    }

    /// The leader to turn to instead.
    pub struct LeaderIdAndEpoch {
        /// Id of the broker that leads, -1 if there is none.
        leader_id: i32, [12+] = -1;
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32, [12+] = -1;
    }

    /// The snapshot to fetch instead; not used by logs of records.
    pub struct SnapshotId {
        /// Offset behind its last record, -1 if there is none.
        end_offset: i64, [0+] = -1;
        /// Leader epoch, -1 if there is none.
        epoch: i32, [0+] = -1;
    }

    /// A transaction whose records the reader must skip.
    pub struct AbortedTransaction {
        /// Id of the producer, -1 for none.
        producer_id: i64, [0+];
        /// Where it begins.
        first_offset: i64, [0+];
    }

    /// Where a broker can be reached.
    pub struct NodeEndpoint<'a> {
        /// Id of the broker, -1 where there is none.
        node_id: i32, [16+];
        /// Name or address.
        host: &'a str, [16+];
        /// TCP port.
        port: i32, [16+];
        /// Where it stands, if that is known.
        rack: Option<&'a str>, [16+];
    }
}
