//! The names a cluster uses for its parts; newtypes that are never mixed.
//!
//! Knows no wire encoding: net translates topic names and ids into these.

use std::fmt;

use ringlog_engine::log::partition_metadata::{decode_topic_id, encode_topic_id};
use ringlog_engine::types::TimestampMs;

/// The identity of a topic from its creation to its deletion; a name may be used again, an id is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// No topic: what requests carry where they name a topic otherwise.
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({:032x})", u128::from_be_bytes(self.0))
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicIdPartition {
    /// The topic.
    pub topic_id: TopicId,
    /// From 0.
    pub partition: i32,
}

/// Names a request until its reply; chosen by the caller, never reused within one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Milliseconds on a clock that never goes back; its zero is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicMs(pub u64);

impl MonotonicMs {
    /// The moment `ms` milliseconds later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// The current moment on both clocks: deadlines use the monotonic one, records the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What records are stamped with; may jump.
    pub wall: TimestampMs,
    /// What deadlines are measured with.
    pub monotonic: MonotonicMs,
}

impl fmt::Display for TopicId {
    /// 22 characters of unpadded base64url, as Kafka's tools and files write ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_topic_id(self.0))
    }
}

/// A text that is not a topic id: 22 characters of base64url.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a topic id: 22 characters of base64url")]
pub struct ParseTopicIdError(String);

impl std::str::FromStr for TopicId {
    type Err = ParseTopicIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseTopicIdError(text.chars().take(64).collect());
        decode_topic_id(text).map(Self).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_is_written_as_kafka_writes_it_and_read_back() {
        // RFC 4648: the bytes 0..=15 in base64url without padding.
        let id = TopicId(std::array::from_fn(|i| u8::try_from(i).unwrap()));
        assert_eq!(id.to_string(), "AAECAwQFBgcICQoLDA0ODw");
        assert_eq!("AAECAwQFBgcICQoLDA0ODw".parse(), Ok(id));
        assert!("AAECAwQFBgcICQoLDA0OD=".parse::<TopicId>().is_err());
    }
}
