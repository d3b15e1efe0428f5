//! DescribeTopicPartitions (key 75): partitions of topics in pages (KIP-966).

use crate::protocol::wire::Uuid;

messages! {
    /// Topics to describe, and where to go on.
    pub struct DescribeTopicPartitionsRequest<'a> for DescribeTopicPartitions {
        /// Each topic.
        topics: Vec<TopicRequest<'a>>, [0+];
        /// Partitions to a page.
        response_partition_limit: i32, [0+] = 2000;
        /// Where to go on; null begins.
        cursor: Option<Cursor<'a>>, [0+];
    }

    /// A topic.
    pub struct TopicRequest<'a> {
        /// Its name.
        name: &'a str, [0+];
    }

    /// The first partition of the next page.
    pub struct Cursor<'a> {
        /// Its name.
        topic_name: &'a str, [0+];
        /// Which partition.
        partition_index: i32, [0+];
    }

    /// A page of partitions.
    pub struct DescribeTopicPartitionsResponse<'a> for DescribeTopicPartitions {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each topic.
        topics: Vec<DescribeTopicPartitionsResponseTopic<'a>>, [0+];
        /// Where to go on; null at the end.
        next_cursor: Option<Cursor<'a>>, [0+];
    }

    /// A topic and its partitions in this page.
    pub struct DescribeTopicPartitionsResponseTopic<'a> {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Its name.
        name: Option<&'a str>, [0+];
        /// The id; zero where it is not known.
        topic_id: Uuid, [0+];
        /// Whether it belongs to the cluster itself.
        is_internal: bool, [0+];
        /// Each partition.
        partitions: Vec<DescribeTopicPartitionsResponsePartition>, [0+];
        /// Bits of the allowed operations, the least number if not told.
        topic_authorized_operations: i32, [0+] = i32::MIN;
    }

    /// A partition and its replicas.
    pub struct DescribeTopicPartitionsResponsePartition {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Which partition.
        partition_index: i32, [0+];
        /// Id of the broker that leads, -1 if there is none.
        leader_id: i32, [0+];
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32, [0+] = -1;
        /// Brokers that hold the partition.
        replica_nodes: Vec<i32>, [0+];
        /// Brokers in sync.
        isr_nodes: Vec<i32>, [0+];
        /// Brokers out of sync that could lead without loss.
        eligible_leader_replicas: Option<Vec<i32>>, [0+];
        /// The last that could.
        last_known_elr: Option<Vec<i32>>, [0+];
        /// Brokers that hold it but are not there.
        offline_replicas: Vec<i32>, [0+];
    }
}
