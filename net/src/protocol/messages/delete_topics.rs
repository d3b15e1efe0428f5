//! DeleteTopics (key 20): deletes topics, by name and from version 6 on also by id.

use crate::protocol::wire::Uuid;

messages! {
    /// Topics to delete.
    pub struct DeleteTopicsRequest<'a> for DeleteTopics {
        /// Each topic.
        topics: Vec<DeleteTopicState<'a>>, [6+];
        /// Each topic, before version 6.
        topic_names: Vec<&'a str>, [0-5];
        /// How long the broker may take.
        timeout_ms: i32, [0+];
    }

    /// A topic, by name or by id.
    pub struct DeleteTopicState<'a> {
        /// Its name.
        name: Option<&'a str>, [6+];
        /// The id; zero where it is not known.
        topic_id: Uuid, [6+];
    }

    /// What became of each topic.
    pub struct DeleteTopicsResponse<'a> for DeleteTopics {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each topic.
        responses: Vec<DeletableTopicResult<'a>>, [0+];
    }

    /// What became of one topic.
    pub struct DeletableTopicResult<'a> {
        /// Its name.
        name: Option<&'a str>, [0+] null [6+];
        /// The id; zero where it is not known.
        topic_id: Uuid, [6+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// The error in words.
        error_message: Option<&'a str>, [5+];
    }
}
