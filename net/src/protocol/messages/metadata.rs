//! Metadata (key 3): brokers, topics, and the leader and replicas of each partition.
//!
//! In version 0 an empty list of topics asks for all, from 1 null does and the empty list asks for none.
//! Version 10 brought topic ids, 12 lookup by id, 13 an error for the whole response.

use crate::protocol::wire::Uuid;

messages! {
    /// Which topics to describe.
    pub struct MetadataRequest<'a> for Metadata {
        /// Each topic; null for all.
        topics: Option<Vec<MetadataRequestTopic<'a>>>, [0+] null [1+];
        /// Whether a missing topic may be created.
        allow_auto_topic_creation: bool, [4+] = true;
        /// Whether to tell what the client may do with the cluster.
        include_cluster_authorized_operations: bool, [8-10];
        /// Whether to tell what the client may do with each topic.
        include_topic_authorized_operations: bool, [8+];
    }

    /// A topic, by name or by id.
    pub struct MetadataRequestTopic<'a> {
        /// The id; zero where it is not known.
        topic_id: Uuid, [10+];
        /// Its name.
        name: Option<&'a str>, [0+] null [10+];
    }

    /// The cluster as the broker knows it.
    pub struct MetadataResponse<'a> for Metadata {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [3+];
        /// Each broker.
        brokers: Vec<MetadataResponseBroker<'a>>, [0+];
        /// Id of the cluster.
        cluster_id: Option<&'a str>, [2+];
        /// Id of the controller, -1 if not known.
        controller_id: i32, [1+] = -1;
        /// Each topic.
        topics: Vec<MetadataResponseTopic<'a>>, [0+];
        /// Bits of the allowed operations, the least number if not told.
        cluster_authorized_operations: i32, [8-10] = i32::MIN;
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [13+];
    }

    /// A live broker.
    pub struct MetadataResponseBroker<'a> {
        /// Id of the broker, -1 where there is none.
        node_id: i32, [0+];
        /// Name or address.
        host: &'a str, [0+];
        /// TCP port.
        port: i32, [0+];
        /// Where it stands, if that is known.
        rack: Option<&'a str>, [1+];
    }

    /// A topic and its partitions.
    pub struct MetadataResponseTopic<'a> {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Its name.
        name: Option<&'a str>, [0+] null [12+];
        /// The id; zero where it is not known.
        topic_id: Uuid, [10+];
        /// Whether it belongs to the cluster itself.
        is_internal: bool, [1+];
        /// Each partition.
        partitions: Vec<MetadataResponsePartition>, [0+];
        /// Bits of the allowed operations, the least number if not told.
        topic_authorized_operations: i32, [8+] = i32::MIN;
    }

    /// A partition and its replicas.
    pub struct MetadataResponsePartition {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Which partition.
        partition_index: i32, [0+];
        /// Id of the broker that leads, -1 if there is none.
        leader_id: i32, [0+];
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32, [7+] = -1;
        /// Brokers that hold the partition.
        replica_nodes: Vec<i32>, [0+];
        /// Brokers in sync.
        isr_nodes: Vec<i32>, [0+];
        /// Brokers that hold it but are not there.
        offline_replicas: Vec<i32>, [5+];
    }
}
