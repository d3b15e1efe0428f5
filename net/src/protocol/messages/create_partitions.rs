//! CreatePartitions (key 37): raises the number of partitions of topics.

messages! {
    /// Topics to widen.
    pub struct CreatePartitionsRequest<'a> for CreatePartitions {
        /// Each topic.
        topics: Vec<CreatePartitionsTopic<'a>>, [0+];
        /// How long the broker may take.
        timeout_ms: i32, [0+];
        /// Checks without changing anything.
        validate_only: bool, [0+];
    }

    /// One topic to widen.
    pub struct CreatePartitionsTopic<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Count of partitions afterwards.
        count: i32, [0+];
        /// The replicas, where they are chosen by hand.
        assignments: Option<Vec<CreatePartitionsAssignment>>, [0+];
    }

    /// The replicas of one new partition, where they are chosen by hand.
    pub struct CreatePartitionsAssignment {
        /// The brokers, leader first.
        broker_ids: Vec<i32>, [0+];
    }

    /// What became of each topic.
    pub struct CreatePartitionsResponse<'a> for CreatePartitions {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each result.
        results: Vec<CreatePartitionsTopicResult<'a>>, [0+];
    }

    /// What became of one topic.
    pub struct CreatePartitionsTopicResult<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// The error in words.
        error_message: Option<&'a str>, [0+];
    }
}
