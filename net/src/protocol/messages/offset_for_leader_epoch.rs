//! OffsetForLeaderEpoch (key 23): where the records of a leader epoch end (KIP-101, KIP-279).

messages! {
    /// Epochs to look up, by topic and partition.
    pub struct OffsetForLeaderEpochRequest<'a> for OffsetForLeaderEpoch {
        /// Id of the broker if a follower asks, -1 for a consumer.
        replica_id: i32, [3+] = -2;
        /// Each topic.
        topics: Vec<OffsetForLeaderTopic<'a>>, [0+];
    }

    /// The partitions of one topic.
    pub struct OffsetForLeaderTopic<'a> {
        /// Its name.
        topic: &'a str, [0+];
        /// Each partition.
        partitions: Vec<OffsetForLeaderPartition>, [0+];
    }

    /// The epoch to look up in one partition.
    pub struct OffsetForLeaderPartition {
        /// Which partition.
        partition: i32, [0+];
        /// Epoch that the client believes to be current, -1 if it does not know.
        current_leader_epoch: i32, [0+] = -1;
        /// The epoch to look up.
        leader_epoch: i32, [0+];
    }

    /// Where the epochs end.
    pub struct OffsetForLeaderEpochResponse<'a> for OffsetForLeaderEpoch {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each topic.
        topics: Vec<OffsetForLeaderTopicResult<'a>>, [0+];
    }

    /// The partitions of one topic.
    pub struct OffsetForLeaderTopicResult<'a> {
        /// Its name.
        topic: &'a str, [0+];
        /// Each partition.
        partitions: Vec<EpochEndOffset>, [0+];
    }

    /// The largest epoch up to the one asked for, and its end.
    pub struct EpochEndOffset {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Which partition.
        partition: i32, [0+];
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32, [0+] = -1;
        /// Offset behind its last record, -1 if there is none.
        end_offset: i64, [0+] = -1;
    }
}
