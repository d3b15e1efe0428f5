//! CreateTopics.

use std::sync::Arc;

use super::ask_control;
use crate::metadata::TopicImage;
use crate::protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use crate::protocol::wire::Uuid;
use crate::server::connection::Context;
use crate::server::control_request::{ControlRequest, NewTopic, TopicError};
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: CreateTopicsRequest<'_> = request.decode()?;
    let topics = body.topics.iter().map(new_topic).collect();
    let validate_only = body.validate_only;
    let create = |reply| ControlRequest::CreateTopics {
        topics,
        validate_only,
        reply,
    };
    let results = ask_control(context, create).await?;
    let results: Vec<_> = results
        .into_iter()
        .map(|result| {
            let entries = result
                .as_ref()
                .ok()
                .map(|topic| context.shard.config().describe_topic(&topic.configs));
            let message = result.as_ref().err().map(ToString::to_string);
            (result, entries.unwrap_or_default(), message)
        })
        .collect();
    let topics = body
        .topics
        .iter()
        .zip(&results)
        .map(|(asked, (result, entries, message))| match result {
            Ok(topic) => created(asked.name, topic, entries),
            Err(error) => refused(asked.name, error, message.as_deref()),
        });
    request.reply(&CreateTopicsResponse {
        topics: topics.collect(),
        ..CreateTopicsResponse::default()
    })
}

fn new_topic(topic: &CreatableTopic<'_>) -> NewTopic {
    NewTopic {
        name: topic.name.to_owned(),
        // -1 asks for the broker's default (KIP-464).
        partitions: (topic.num_partitions != -1).then_some(topic.num_partitions),
        replication_factor: (topic.replication_factor != -1).then_some(topic.replication_factor),
        assignments: topic
            .assignments
            .iter()
            .map(|a| (a.partition_index, a.broker_ids.clone()))
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| (config.name.to_owned(), config.value.map(str::to_owned)))
            .collect(),
    }
}

fn created<'a>(
    name: &'a str,
    topic: &Arc<TopicImage>,
    entries: &'a [crate::config::ConfigEntry],
) -> CreatableTopicResult<'a> {
    let config = |entry: &'a crate::config::ConfigEntry| CreatableTopicConfigs {
        name: entry.key.name,
        value: entry.value.as_deref(),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: false,
    };
    CreatableTopicResult {
        name,
        topic_id: Uuid(topic.id.0),
        num_partitions: topic.partition_count(),
        replication_factor: 1,
        // Never null: Java's admin client dereferences it.
        configs: Some(entries.iter().map(config).collect()),
        ..CreatableTopicResult::default()
    }
}

fn refused<'a>(name: &'a str, error: &TopicError, message: Option<&'a str>) -> CreatableTopicResult<'a> {
    CreatableTopicResult {
        name,
        error_code: error_map::topic(error).code(),
        error_message: message,
        ..CreatableTopicResult::default()
    }
}
