//! CreateTopics (key 19): creates topics.
//!
//! Version 4 lets the broker choose the counts of partitions and replicas (-1), 5 answers with the configs
//! (KIP-525), 7 with the topic id.

use crate::protocol::wire::Uuid;

messages! {
    /// Topics to create.
    pub struct CreateTopicsRequest<'a> for CreateTopics {
        /// Each topic.
        topics: Vec<CreatableTopic<'a>>, [0+];
        /// How long the broker may take.
        timeout_ms: i32, [0+] = 60000;
        /// Checks without changing anything.
        validate_only: bool, [0+];
    }

    /// One topic to create.
    pub struct CreatableTopic<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Count of partitions, -1 for the broker's default.
        num_partitions: i32, [0+];
        /// Count of replicas, -1 for the broker's default.
        replication_factor: i16, [0+];
        /// The replicas, where they are chosen by hand.
        assignments: Vec<CreatableReplicaAssignment>, [0+];
        /// Each config.
        configs: Vec<CreatableTopicConfig<'a>>, [0+];
    }

    /// The replicas of one partition, where they are chosen by hand.
    pub struct CreatableReplicaAssignment {
        /// Which partition.
        partition_index: i32, [0+];
        /// The brokers, leader first.
        broker_ids: Vec<i32>, [0+];
    }

    /// A config to set on the topic.
    pub struct CreatableTopicConfig<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Its value; null for none.
        value: Option<&'a str>, [0+];
    }

    /// What became of each topic.
    pub struct CreateTopicsResponse<'a> for CreateTopics {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each topic.
        topics: Vec<CreatableTopicResult<'a>>, [0+];
    }

    /// What became of one topic.
    pub struct CreatableTopicResult<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// The id; zero where it is not known.
        topic_id: Uuid, [7+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// The error in words.
        error_message: Option<&'a str>, [0+];
        /// Why the configs are not told, if they are not.
        topic_config_error_code: i16, [5+] tag 0;
        /// Count of partitions, -1 with an error.
        num_partitions: i32, [5+] = -1;
        /// Count of replicas, -1 with an error.
        replication_factor: i16, [5+] = -1;
        /// Each config; not null unless there is an error, since Java's admin client fails on it.
        configs: Option<Vec<CreatableTopicConfigs<'a>>>, [5+] = Some(Vec::new());
    }

    /// A config of the new topic.
    pub struct CreatableTopicConfigs<'a> {
        /// Its name.
        name: &'a str, [5+];
        /// Its value; null for none.
        value: Option<&'a str>, [5+];
        /// Whether it cannot be changed.
        read_only: bool, [5+];
        /// 1 topic, 2 and 3 dynamic broker, 4 static broker, 5 default.
        config_source: i8, [5+] = -1;
        /// Whether the value is withheld.
        is_sensitive: bool, [5+];
    }
}
