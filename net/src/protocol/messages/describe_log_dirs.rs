//! DescribeLogDirs (key 35): log directories, and the size of each partition in them.
//!
//! Version 3 brought an error for the whole response, 4 the size of the volume (KIP-827).

messages! {
    /// Which partitions to describe.
    pub struct DescribeLogDirsRequest<'a> for DescribeLogDirs {
        /// Each topic; null for all.
        topics: Option<Vec<DescribableLogDirTopic<'a>>>, [0+];
    }

    /// The partitions of one topic.
    pub struct DescribableLogDirTopic<'a> {
        /// Its name.
        topic: &'a str, [0+];
        /// Each partition.
        partitions: Vec<i32>, [0+];
    }

    /// Each log directory of the broker.
    pub struct DescribeLogDirsResponse<'a> for DescribeLogDirs {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [3+];
        /// Each result.
        results: Vec<DescribeLogDirsResult<'a>>, [0+];
    }

    /// One log directory.
    pub struct DescribeLogDirsResult<'a> {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Absolute path.
        log_dir: &'a str, [0+];
        /// Each topic.
        topics: Vec<DescribeLogDirsTopic<'a>>, [0+];
        /// Size of the volume, -1 if not known.
        total_bytes: i64, [4+] = -1;
        /// Room left on the volume, -1 if not known.
        usable_bytes: i64, [4+] = -1;
    }

    /// The partitions of one topic.
    pub struct DescribeLogDirsTopic<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Each partition.
        partitions: Vec<DescribeLogDirsPartition>, [0+];
    }

    /// The log of one partition.
    pub struct DescribeLogDirsPartition {
        /// Which partition.
        partition_index: i32, [0+];
        /// Bytes of its segments.
        partition_size: i64, [0+];
        /// How far it is behind the log that it will replace.
        offset_lag: i64, [0+];
        /// Whether it is to replace the one in another directory.
        is_future_key: bool, [0+];
    }
}
