//! Produce (key 0): appends record batches to partitions.
//!
//! Version 8 brought errors of single records, 9 flexible versions, 10 the new leader with an error of
//! leadership (KIP-951). With acks 0 no response is sent.

use crate::protocol::encode::Records;

messages! {
    /// Batches to append, by topic and partition.
    pub struct ProduceRequest<'a> for Produce {
        /// The id of a transactional producer.
        transactional_id: Option<&'a str>, [0+];
        /// 0, 1, or -1 for all in-sync replicas.
        acks: i16, [0+];
        /// How long the broker may take.
        timeout_ms: i32, [0+];
        /// Each topic.
        topic_data: Vec<TopicProduceData<'a>>, [0+];
    }

    /// The partitions of one topic.
    pub struct TopicProduceData<'a> {
        /// Its name.
        name: &'a str, [0-12];
        /// Each partition.
        partition_data: Vec<PartitionProduceData<'a>>, [0+];
    }

    /// The batch for one partition.
    pub struct PartitionProduceData<'a> {
        /// Which partition.
        index: i32, [0+];
        /// The record batches.
        records: Records<'a>, [0+];
    }

    /// What became of each batch.
    pub struct ProduceResponse<'a> for Produce {
        /// Each topic.
        responses: Vec<TopicProduceResponse<'a>>, [0+];
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Where the leaders named above can be reached.
        node_endpoints: Vec<NodeEndpoint<'a>>, [10+] tag 0;
    }

    /// The partitions of one topic.
    pub struct TopicProduceResponse<'a> {
        /// Its name.
        name: &'a str, [0-12];
        /// Each partition.
        partition_responses: Vec<PartitionProduceResponse<'a>>, [0+];
    }

    /// What became of the batch for one partition.
    pub struct PartitionProduceResponse<'a> {
        /// Which partition.
        index: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Offset given to the first record.
        base_offset: i64, [0+];
        /// Time of the append where the topic takes that for timestamp, else -1.
        log_append_time_ms: i64, [0+] = -1;
        /// First readable offset, -1 if not known.
        log_start_offset: i64, [5+] = -1;
        /// The records at fault, if it was single records.
        record_errors: Vec<BatchIndexAndErrorMessage<'a>>, [8+];
        /// The error in words.
        error_message: Option<&'a str>, [8+];
        /// With an error of leadership: who leads now.
        current_leader: LeaderIdAndEpoch, [10+] tag 0;
    }

    /// A record on whose account its batch was refused.
    pub struct BatchIndexAndErrorMessage<'a> {
        /// Index of the record in the batch.
        batch_index: i32, [8+];
        /// What is wrong with it.
        batch_index_error_message: Option<&'a str>, [8+];
    }

    /// The leader to turn to instead.
    pub struct LeaderIdAndEpoch {
        /// Id of the broker that leads, -1 if there is none.
        leader_id: i32, [10+] = -1;
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32, [10+] = -1;
    }

    /// Where a broker can be reached.
    pub struct NodeEndpoint<'a> {
        /// Id of the broker, -1 where there is none.
        node_id: i32, [10+];
        /// Name or address.
        host: &'a str, [10+];
        /// TCP port.
        port: i32, [10+];
        /// Where it stands, if that is known.
        rack: Option<&'a str>, [10+];
    }
}
