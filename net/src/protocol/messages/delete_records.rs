//! DeleteRecords (key 21): moves the start of partitions forward.

messages! {
    /// New starts of partitions.
    pub struct DeleteRecordsRequest<'a> for DeleteRecords {
        /// Each topic.
        topics: Vec<DeleteRecordsTopic<'a>>, [0+];
        /// How long the broker may take.
        timeout_ms: i32, [0+];
    }

    /// The partitions of one topic.
    pub struct DeleteRecordsTopic<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Each partition.
        partitions: Vec<DeleteRecordsPartition>, [0+];
    }

    /// The new start of one partition.
    pub struct DeleteRecordsPartition {
        /// Which partition.
        partition_index: i32, [0+];
        /// First offset to keep, -1 for the high watermark.
        offset: i64, [0+];
    }

    /// Where each partition starts now.
    pub struct DeleteRecordsResponse<'a> for DeleteRecords {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each topic.
        topics: Vec<DeleteRecordsTopicResult<'a>>, [0+];
    }

    /// The partitions of one topic.
    pub struct DeleteRecordsTopicResult<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Each partition.
        partitions: Vec<DeleteRecordsPartitionResult>, [0+];
    }

    /// Where one partition starts now.
    pub struct DeleteRecordsPartitionResult {
        /// Which partition.
        partition_index: i32, [0+];
        /// First readable offset now, -1 with an error.
        low_watermark: i64, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
    }
}
