//! Administrative requests about topics.

use super::cluster::Cluster;
use super::error::ClientError;
use crate::protocol::api_key::ApiKey;
use crate::protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use crate::protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use crate::protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use crate::protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use crate::protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use crate::protocol::wire::Uuid;

const TIMEOUT_MS: i32 = 30_000;
/// Kafka's resource type of a topic.
const TOPIC_RESOURCE: i8 = 2;
/// Kafka's operations of a change.
const SET: i8 = 0;
const DELETE: i8 = 1;

/// A topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic<'a> {
    /// Its name.
    pub name: &'a str,
    /// Partitions; `None` for the broker's default.
    pub partitions: Option<i32>,
    /// Replicas of each; `None` for the broker's default.
    pub replication_factor: Option<i16>,
    /// Keys and values.
    pub configs: Vec<(&'a str, &'a str)>,
}

/// A setting as a broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key.
    pub name: String,
    /// The value, `None` where unset or secret.
    pub value: Option<String>,
    /// Whether it was set on the topic itself.
    pub is_override: bool,
}

/// A topic that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its identity; zero from brokers that do not tell.
    pub topic_id: Uuid,
    /// Partitions; -1 from brokers that do not tell.
    pub partitions: i32,
    /// Replicas of each; -1 from brokers that do not tell.
    pub replication_factor: i16,
}

/// Creates a topic.
///
/// # Errors
///
/// The broker refuses: the name is taken or not allowed, a setting is not acceptable.
pub async fn create_topic(cluster: &mut Cluster, topic: &NewTopic<'_>) -> Result<Created, ClientError> {
    let config = |&(name, value): &(_, _)| CreatableTopicConfig {
        name,
        value: Some(value),
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.name,
            num_partitions: topic.partitions.unwrap_or(-1),
            replication_factor: topic.replication_factor.unwrap_or(-1),
            assignments: Vec::new(),
            configs: topic.configs.iter().map(config).collect(),
        }],
        timeout_ms: TIMEOUT_MS,
        validate_only: false,
    };
    let answer = cluster.ask(cluster.controller(), &request, i16::MAX).await?;
    let response: CreateTopicsResponse<'_> = answer.decode()?;
    let result = response
        .topics
        .first()
        .ok_or_else(|| missing(ApiKey::CreateTopics, topic.name))?;
    ClientError::check_topic(result.error_code, result.error_message, topic.name)?;
    Ok(Created {
        topic_id: result.topic_id,
        partitions: result.num_partitions,
        replication_factor: result.replication_factor,
    })
}

/// Deletes a topic and its data.
///
/// # Errors
///
/// The broker refuses: there is no such topic, or none may be deleted.
pub async fn delete_topic(cluster: &mut Cluster, name: &str) -> Result<(), ClientError> {
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(name),
            ..DeleteTopicState::default()
        }],
        topic_names: vec![name],
        timeout_ms: TIMEOUT_MS,
    };
    let answer = cluster.ask(cluster.controller(), &request, i16::MAX).await?;
    let response: DeleteTopicsResponse<'_> = answer.decode()?;
    let result = response
        .responses
        .first()
        .ok_or_else(|| missing(ApiKey::DeleteTopics, name))?;
    ClientError::check_topic(result.error_code, result.error_message, name)
}

/// Raises the number of partitions to `count`.
///
/// # Errors
///
/// The broker refuses: there is no such topic, or it has as many already.
pub async fn create_partitions(cluster: &mut Cluster, name: &str, count: i32) -> Result<(), ClientError> {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name,
            count,
            assignments: None,
        }],
        timeout_ms: TIMEOUT_MS,
        validate_only: false,
    };
    let answer = cluster.ask(cluster.controller(), &request, i16::MAX).await?;
    let response: CreatePartitionsResponse<'_> = answer.decode()?;
    let result = response
        .results
        .first()
        .ok_or_else(|| missing(ApiKey::CreatePartitions, name))?;
    ClientError::check_topic(result.error_code, result.error_message, name)
}

/// Gives keys of a topic these values, or takes back what was set where the value is `None`.
///
/// # Errors
///
/// The broker refuses a key or a value; then nothing is changed.
pub async fn alter_topic(
    cluster: &mut Cluster,
    name: &str,
    changes: &[(&str, Option<&str>)],
) -> Result<(), ClientError> {
    let change = |&(name, value): &(_, Option<_>)| AlterableConfig {
        name,
        config_operation: if value.is_some() { SET } else { DELETE },
        value,
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name,
            configs: changes.iter().map(change).collect(),
        }],
        validate_only: false,
    };
    let answer = cluster.ask(cluster.controller(), &request, i16::MAX).await?;
    let response: IncrementalAlterConfigsResponse<'_> = answer.decode()?;
    let result = response
        .responses
        .first()
        .ok_or_else(|| missing(ApiKey::IncrementalAlterConfigs, name))?;
    ClientError::check_topic(result.error_code, result.error_message, name)
}

/// All settings of a topic.
///
/// # Errors
///
/// The broker refuses.
pub async fn topic_settings(cluster: &mut Cluster, name: &str) -> Result<Vec<Setting>, ClientError> {
    /// Kafka's `ConfigSource` of what was set on the topic.
    const DYNAMIC_TOPIC: i8 = 1;
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name,
            configuration_keys: None,
        }],
        include_synonyms: false,
        include_documentation: false,
    };
    let answer = cluster.ask(cluster.controller(), &request, i16::MAX).await?;
    let response: DescribeConfigsResponse<'_> = answer.decode()?;
    let result = response
        .results
        .first()
        .ok_or_else(|| missing(ApiKey::DescribeConfigs, name))?;
    ClientError::check_topic(result.error_code, result.error_message, name)?;
    let setting =
        |config: &crate::protocol::messages::describe_configs::DescribeConfigsResourceResult<'_>| Setting {
            name: config.name.to_owned(),
            value: config.value.map(str::to_owned),
            is_override: config.config_source == DYNAMIC_TOPIC,
        };
    Ok(result.configs.iter().map(setting).collect())
}

fn missing(api: ApiKey, name: &str) -> ClientError {
    ClientError::Missing {
        api,
        what: format!("topic {name}"),
    }
}
