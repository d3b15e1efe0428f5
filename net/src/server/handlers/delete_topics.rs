//! DeleteTopics, by name or by id.

use ringlog_replication::types::TopicId;

use super::ask_control;
use crate::protocol::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse,
};
use crate::protocol::wire::Uuid;
use crate::server::connection::Context;
use crate::server::control_request::{ControlRequest, TopicRef};
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: DeleteTopicsRequest<'_> = request.decode()?;
    let names = body.topic_names.iter().map(|name| (Some(*name), Uuid::ZERO));
    let states = body.topics.iter().map(|topic| (topic.name, topic.topic_id));
    let asked: Vec<_> = names.chain(states).collect();
    let topics = asked.iter().map(|(name, id)| match name {
        Some(name) => TopicRef::Name((*name).to_owned()),
        None => TopicRef::Id(TopicId(id.0)),
    });
    let topics = topics.collect();
    let results = ask_control(context, |reply| ControlRequest::DeleteTopics(topics, reply)).await?;
    let messages: Vec<_> = results
        .iter()
        .map(|r| r.as_ref().err().map(ToString::to_string))
        .collect();
    let responses = asked
        .iter()
        .zip(&results)
        .zip(&messages)
        .map(|(((name, id), result), message)| match result {
            Ok(topic) => DeletableTopicResult {
                name: Some(&topic.name),
                topic_id: Uuid(topic.id.0),
                ..DeletableTopicResult::default()
            },
            Err(error) => DeletableTopicResult {
                name: *name,
                topic_id: *id,
                error_code: error_map::topic(error).code(),
                error_message: message.as_deref(),
            },
        });
    request.reply(&DeleteTopicsResponse {
        responses: responses.collect(),
        ..DeleteTopicsResponse::default()
    })
}
