//! ListOffsets (key 2): finds offsets by timestamp, or the first and the last.
//!
//! Version 2 brought the isolation level, 4 leader epochs, 7 the maximum timestamp (-3), 10 a timeout.

messages! {
    /// Timestamps to look up, by topic and partition.
    pub struct ListOffsetsRequest<'a> for ListOffsets {
        /// Id of the broker if a follower asks, -1 for a consumer.
        replica_id: i32, [0+];
        /// 0 reads all up to the high watermark, 1 only what is committed.
        isolation_level: i8, [2+];
        /// Each topic.
        topics: Vec<ListOffsetsTopic<'a>>, [0+];
        /// How long the broker may take.
        timeout_ms: i32, [10+];
    }

    /// The partitions of one topic.
    pub struct ListOffsetsTopic<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Each partition.
        partitions: Vec<ListOffsetsPartition>, [0+];
    }

    /// The timestamp to look up in one partition.
    pub struct ListOffsetsPartition {
        /// Which partition.
        partition_index: i32, [0+];
        /// Epoch that the client believes to be current, -1 if it does not know.
        current_leader_epoch: i32, [4+] = -1;
        /// Milliseconds; in a request also -1 latest, -2 earliest, -3 maximum timestamp.
        timestamp: i64, [0+];
    }

    /// The offsets found.
    pub struct ListOffsetsResponse<'a> for ListOffsets {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [2+];
        /// Each topic.
        topics: Vec<ListOffsetsTopicResponse<'a>>, [0+];
    }

    /// The partitions of one topic.
    pub struct ListOffsetsTopicResponse<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Each partition.
        partitions: Vec<ListOffsetsPartitionResponse>, [0+];
    }

    /// The offset found in one partition.
    pub struct ListOffsetsPartitionResponse {
        /// Which partition.
        partition_index: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Milliseconds; in a request also -1 latest, -2 earliest, -3 maximum timestamp.
        timestamp: i64, [0+] = -1;
        /// The offset, -1 if there is none.
        offset: i64, [0+] = -1;
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32, [4+] = -1;
    }
}
