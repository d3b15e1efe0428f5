//! Metadata: brokers, topics, partitions and their leaders; creates topics where that is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringlog_replication::types::TopicId;

use super::ask_control;
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use crate::protocol::wire::Uuid;
use crate::server::connection::Context;
use crate::server::control_request::{ControlRequest, NewTopic};
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: MetadataRequest<'_> = request.decode()?;
    // Version 0 cannot say null: an empty list stands for all topics there.
    let asked = body
        .topics
        .filter(|topics| request.info.version >= 1 || !topics.is_empty());
    let mut image = context.shard.image();
    let mut refused = Vec::new();
    let may_create = body.allow_auto_topic_creation && context.shard.config().auto_create_topics;
    if let Some(topics) = asked.as_ref().filter(|_| may_create) {
        let missing: Vec<_> = topics
            .iter()
            .filter_map(|topic| topic.name)
            .filter(|name| image.topic(name).is_none())
            .map(|name| NewTopic {
                name: name.to_owned(),
                ..NewTopic::default()
            })
            .collect();
        if !missing.is_empty() {
            refused = create(context, missing).await?;
            image = context.shard.image();
        }
    }
    let endpoint = context.endpoints.of(context.listener);
    let topics = match &asked {
        None => image.topics().map(|topic| describe(&image, topic)).collect(),
        Some(topics) => {
            // Each once, however often it is named: a small request must not ask for a huge reply.
            let mut named = BTreeSet::new();
            let once = topics
                .iter()
                .filter(|topic| named.insert((topic.name, topic.topic_id)));
            once.map(|topic| find(&image, topic, &refused)).collect()
        }
    };
    request.reply(&MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: image.node_id,
            host: &endpoint.host,
            port: endpoint.port,
            rack: None,
        }],
        cluster_id: Some(&image.cluster_id),
        controller_id: image.node_id,
        topics,
        ..MetadataResponse::default()
    })
}

/// Creates topics; returns those that were refused, and why.
async fn create(context: &Context, topics: Vec<NewTopic>) -> Result<Vec<(String, ErrorCode)>, CloseReason> {
    let names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
    let create = |reply| ControlRequest::CreateTopics {
        topics,
        validate_only: false,
        reply,
    };
    let results = ask_control(context, create).await?;
    let refused = names.into_iter().zip(results).filter_map(|(name, result)| {
        let code = error_map::topic(&result.err()?);
        // Another client has created it meanwhile.
        (code != ErrorCode::TopicAlreadyExists).then_some((name, code))
    });
    Ok(refused.collect())
}

fn find<'a>(
    image: &'a MetadataImage,
    asked: &crate::protocol::messages::metadata::MetadataRequestTopic<'a>,
    refused: &[(String, ErrorCode)],
) -> MetadataResponseTopic<'a> {
    let (found, unknown) = match asked.name {
        Some(name) => {
            let refusal = refused
                .iter()
                .find(|(refused, _)| refused == name)
                .map(|(_, code)| *code);
            let code = refusal.unwrap_or_else(|| error_map::unknown_topic(name));
            (image.topic(name), code)
        }
        None => (
            image.topic_by_id(TopicId(asked.topic_id.0)),
            ErrorCode::UnknownTopicId,
        ),
    };
    found.map_or_else(
        || MetadataResponseTopic {
            error_code: unknown.code(),
            name: asked.name,
            topic_id: asked.topic_id,
            ..MetadataResponseTopic::default()
        },
        |topic| describe(image, topic),
    )
}

fn describe<'a>(image: &MetadataImage, topic: &'a Arc<TopicImage>) -> MetadataResponseTopic<'a> {
    let partition = |(index, partition): (i32, &crate::metadata::PartitionImage)| MetadataResponsePartition {
        partition_index: index,
        leader_id: image.node_id,
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: vec![image.node_id],
        isr_nodes: vec![image.node_id],
        ..MetadataResponsePartition::default()
    };
    MetadataResponseTopic {
        name: Some(&topic.name),
        topic_id: Uuid(topic.id.0),
        partitions: (0..).zip(&topic.partitions).map(partition).collect(),
        ..MetadataResponseTopic::default()
    }
}
