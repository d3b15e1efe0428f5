//! The only place where this broker's errors become Kafka's error codes.
//!
//! Each match names every error: a new one does not compile until it has a code.

use ringlog_engine::log::AppendError;
use ringlog_engine::log::producer_state::ProducerError;
use ringlog_engine::record::BatchError;
use ringlog_replication::broker_shard::DeleteRecordsError;
use ringlog_replication::request::{FetchError, ProduceError};

use super::control_request::TopicError;
use super::topic_name;
use crate::protocol::error_code::ErrorCode;

/// What a topic that is not there is called: by whether it could be there.
pub(crate) fn unknown_topic(name: &str) -> ErrorCode {
    if topic_name::check(name).is_ok() {
        ErrorCode::UnknownTopicOrPartition
    } else {
        ErrorCode::InvalidTopicException
    }
}

pub(crate) fn produce(error: &ProduceError) -> ErrorCode {
    match error {
        // The metadata names this broker as the leader, so the log could not be opened here.
        ProduceError::UnknownPartition | ProduceError::LogFailed => ErrorCode::KafkaStorageError,
        ProduceError::TimedOut => ErrorCode::RequestTimedOut,
        ProduceError::Append(error) => append(error),
    }
}

fn append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Batch(error) => batch(error),
        AppendError::Timestamp { .. } => ErrorCode::InvalidTimestamp,
        AppendError::NoKey { .. } | AppendError::Record(_) => ErrorCode::InvalidRecord,
        AppendError::Producer(error) => producer(error),
        AppendError::StaleEpoch { .. } => ErrorCode::NotLeaderOrFollower,
        AppendError::StorageFull | AppendError::Poisoned(_) => ErrorCode::KafkaStorageError,
        // Retriable, and nothing was appended.
        AppendError::Overloaded { .. } => ErrorCode::NotEnoughReplicas,
    }
}

fn batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Incomplete { .. } | BatchError::Length { .. } | BatchError::Crc { .. } => {
            ErrorCode::CorruptMessage
        }
        BatchError::Magic { .. } => ErrorCode::UnsupportedForMessageFormat,
        BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        BatchError::UnknownCodec { .. } => ErrorCode::UnsupportedCompressionType,
        BatchError::RecordsCount { .. }
        | BatchError::RecordsBeyondBytes { .. }
        | BatchError::LastOffsetDelta { .. }
        | BatchError::OffsetRange { .. }
        | BatchError::TrailingBytes { .. }
        | BatchError::Control
        | BatchError::Producer { .. }
        | BatchError::TimestampType => ErrorCode::InvalidRecord,
    }
}

fn producer(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        ProducerError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        ProducerError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
        ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
    }
}

pub(crate) fn fetch(error: &FetchError) -> ErrorCode {
    match error {
        FetchError::UnknownPartition | FetchError::Storage(_) => ErrorCode::KafkaStorageError,
        FetchError::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        FetchError::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
        FetchError::Read(_) => ErrorCode::OffsetOutOfRange,
    }
}

pub(crate) fn delete_records(error: &DeleteRecordsError) -> ErrorCode {
    match error {
        DeleteRecordsError::UnknownPartition => ErrorCode::KafkaStorageError,
        DeleteRecordsError::OffsetOutOfRange { .. } | DeleteRecordsError::Log(_) => {
            ErrorCode::OffsetOutOfRange
        }
    }
}

pub(crate) fn topic(error: &TopicError) -> ErrorCode {
    match error {
        TopicError::InvalidName { .. } | TopicError::Collides { .. } => ErrorCode::InvalidTopicException,
        TopicError::Exists(_) => ErrorCode::TopicAlreadyExists,
        TopicError::Duplicate(_) => ErrorCode::InvalidRequest,
        TopicError::Unknown(name) => unknown_topic(name),
        TopicError::UnknownId(_) => ErrorCode::UnknownTopicId,
        TopicError::InvalidPartitions(_) => ErrorCode::InvalidPartitions,
        TopicError::InvalidReplicationFactor(_) => ErrorCode::InvalidReplicationFactor,
        TopicError::InvalidAssignment(_) => ErrorCode::InvalidReplicaAssignment,
        TopicError::DeletionDisabled => ErrorCode::TopicDeletionDisabled,
        TopicError::UnknownBroker(_) => ErrorCode::InvalidRequest,
        TopicError::Config(_) => ErrorCode::InvalidConfig,
        TopicError::Storage(_) => ErrorCode::KafkaStorageError,
    }
}
