//! What shards ask of the control thread: changes to the metadata.
//!
//! Values only: they cross threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ringlog_replication::types::TopicId;
use tokio::sync::oneshot;

use super::topic_name::TopicNameError;
use crate::config::{ChangeOp, ConfigError, ResourceKind};
use crate::metadata::{CatalogError, TopicImage};

#[derive(Debug)]
pub(crate) enum ControlRequest {
    CreateTopics {
        topics: Vec<NewTopic>,
        validate_only: bool,
        reply: oneshot::Sender<Vec<Result<Arc<TopicImage>, TopicError>>>,
    },
    DeleteTopics(
        Vec<TopicRef>,
        oneshot::Sender<Vec<Result<Arc<TopicImage>, TopicError>>>,
    ),
    CreatePartitions {
        topics: Vec<NewPartitions>,
        validate_only: bool,
        reply: oneshot::Sender<Vec<Result<(), TopicError>>>,
    },
    AlterConfigs {
        resources: Vec<ConfigChange>,
        validate_only: bool,
        reply: oneshot::Sender<Vec<Result<(), TopicError>>>,
    },
    AllocateProducerIds(oneshot::Sender<Result<Range<i64>, CatalogError>>),
    /// Store where every log begins and how far it is durable.
    Checkpoint(oneshot::Sender<bool>),
}

/// A topic to create; `None` stands for the broker's default.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewTopic {
    pub(crate) name: String,
    pub(crate) partitions: Option<i32>,
    pub(crate) replication_factor: Option<i16>,
    /// Replicas by partition number, where the client chose them itself.
    pub(crate) assignments: Vec<(i32, Vec<i32>)>,
    pub(crate) configs: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug)]
pub(crate) enum TopicRef {
    Name(String),
    Id(TopicId),
}

#[derive(Clone, Debug)]
pub(crate) struct NewPartitions {
    pub(crate) topic: String,
    /// The number of partitions after the change.
    pub(crate) count: i32,
    /// Replicas of each added partition, where the client chose them itself.
    pub(crate) assignments: Option<Vec<Vec<i32>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConfigChange {
    pub(crate) resource: ResourceKind,
    /// A topic's name; for the broker its id or nothing.
    pub(crate) name: String,
    pub(crate) change: ConfigOps,
}

#[derive(Clone, Debug)]
pub(crate) enum ConfigOps {
    /// AlterConfigs: these and no others.
    Replace(BTreeMap<String, Option<String>>),
    /// IncrementalAlterConfigs.
    Alter(Vec<(String, ChangeOp, Option<String>)>),
}

/// Why a change to topics or settings was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopicError {
    #[error("\"{name}\": {source}")]
    InvalidName { name: String, source: TopicNameError },
    #[error("topic {0} exists already")]
    Exists(String),
    #[error("topic {name} collides with {existing}: names may not differ in '.' and '_' alone")]
    Collides { name: String, existing: String },
    #[error("the request names topic {0} twice")]
    Duplicate(String),
    #[error("there is no topic {0}")]
    Unknown(String),
    #[error("there is no topic with the id {0}")]
    UnknownId(TopicId),
    #[error("{0}")]
    InvalidPartitions(String),
    #[error("replication factor {0}: this broker can hold exactly one replica of each partition")]
    InvalidReplicationFactor(i16),
    #[error("{0}")]
    InvalidAssignment(String),
    #[error("topics cannot be deleted here (delete.topic.enable)")]
    DeletionDisabled,
    #[error("there is no broker {0}")]
    UnknownBroker(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the change could not be stored: {0}")]
    Storage(String),
}
