//! Why a request to a broker did not succeed.

use std::io;

use ringlog_engine::record::{BatchError, BuildError, RecordError};

use crate::protocol::api_key::ApiKey;
use crate::protocol::decode::DecodeError;
use crate::protocol::encode::EncodeError;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::FrameError;

/// Why a request to a broker did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}{}", connect_hint(source))]
    Connect {
        /// The host and port tried.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to {address} broke: {source}")]
    Broken {
        /// The broker.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The broker did not answer in time.
    #[error("{address} did not answer {api} within {seconds} s")]
    Timeout {
        /// The broker.
        address: String,
        /// What was asked.
        api: ApiKey,
        /// For how long was waited.
        seconds: u64,
    },
    /// What came back is no answer to what was asked.
    #[error("{address} answered {api} with bytes that make no sense: {source}")]
    Malformed {
        /// The broker.
        address: String,
        /// What was asked.
        api: ApiKey,
        /// What is wrong.
        source: DecodeError,
    },
    /// The frame of an answer has a size no answer has.
    #[error("{address} is no broker, or speaks TLS: {source}")]
    Frame {
        /// The broker.
        address: String,
        /// What is wrong.
        source: FrameError,
    },
    /// The answers came in another order than the questions.
    #[error("{address} answered request {answered} where {expected} was due")]
    OutOfOrder {
        /// The broker.
        address: String,
        /// Correlation id of the answer.
        answered: i32,
        /// Correlation id of the oldest request.
        expected: i32,
    },
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// There is no version of the API that both sides speak.
    #[error("{address} has no version of {api} that ringlog speaks")]
    Unsupported {
        /// The broker.
        address: String,
        /// The API.
        api: ApiKey,
    },
    /// The broker refused.
    #[error("{what}: {}{}", code_name(*code), detail(message.as_deref()))]
    Refused {
        /// On what: a topic, a partition.
        what: String,
        /// The protocol's error code.
        code: i16,
        /// What the broker says about it.
        message: Option<String>,
    },
    /// The broker that is to be asked is not among those the cluster names.
    #[error("broker {0} is not in the cluster's metadata")]
    UnknownBroker(i32),
    /// The answer leaves out what was asked for.
    #[error("the answer to {api} says nothing of {what}")]
    Missing {
        /// The API.
        api: ApiKey,
        /// What is missing.
        what: String,
    },
    /// There is no such topic.
    #[error(
        "there is no topic {topic}; ringlog topic list names those there are, ringlog topic create {topic} creates it"
    )]
    UnknownTopic {
        /// The topic.
        topic: String,
    },
    /// The partition cannot be read from that offset.
    #[error(
        "{topic}-{partition} cannot be read from offset {offset}, only from {first} to {end}, which is the next record's"
    )]
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// What was asked for.
        offset: i64,
        /// The first offset that can be read.
        first: i64,
        /// The offset that the next record gets.
        end: i64,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}, only {}", numbers(*partitions))]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// What was asked for.
        partition: i32,
        /// How many it has.
        partitions: usize,
    },
    /// A record does not fit a batch.
    #[error("a record cannot be sent: {0}")]
    Build(#[from] BuildError),
    /// A fetched batch is corrupt.
    #[error("{what}: {source}")]
    Batch {
        /// Topic-partition and offset.
        what: String,
        /// What is wrong.
        source: BatchError,
    },
    /// The records of a fetched batch are corrupt.
    #[error("{what}: {source}")]
    Record {
        /// Topic-partition and offset.
        what: String,
        /// What is wrong.
        source: RecordError,
    },
}

impl ClientError {
    /// Whether the same request, perhaps to another broker, may succeed later.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. }
            | Self::UnknownBroker(_)
            | Self::UnknownTopic { .. } => true,
            Self::Refused { code, .. } => ErrorCode::from_code(*code).is_some_and(ErrorCode::is_retriable),
            _ => false,
        }
    }

    /// Success, or the refusal that the code means.
    pub(super) fn check(code: i16, message: Option<&str>, what: impl FnOnce() -> String) -> Result<(), Self> {
        if code == ErrorCode::None.code() {
            return Ok(());
        }
        Err(Self::Refused {
            what: what(),
            code,
            message: message.map(str::to_owned),
        })
    }

    /// As [`check`](Self::check), of a topic as a whole.
    pub(super) fn check_topic(code: i16, message: Option<&str>, topic: &str) -> Result<(), Self> {
        if code == ErrorCode::UnknownTopicOrPartition.code() {
            return Err(Self::UnknownTopic {
                topic: topic.to_owned(),
            });
        }
        Self::check(code, message, || format!("topic {topic}"))
    }
}

fn code_name(code: i16) -> String {
    ErrorCode::from_code(code).map_or_else(|| format!("error {code}"), |code| code.name().to_owned())
}

/// The numbers of so many partitions.
fn numbers(partitions: usize) -> String {
    match partitions {
        0 | 1 => "0".to_owned(),
        partitions => format!("0 to {}", partitions - 1),
    }
}

/// Nothing listens there: no broker, or another port.
fn connect_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "; ringlog serve starts a broker, --broker names another",
        _ => "",
    }
}

fn detail(message: Option<&str>) -> String {
    message
        .filter(|message| !message.is_empty())
        .map(|message| format!(" ({message})"))
        .unwrap_or_default()
}
