//! CreatePartitions.

use super::ask_control;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use crate::server::connection::Context;
use crate::server::control_request::{ControlRequest, NewPartitions};
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: CreatePartitionsRequest<'_> = request.decode()?;
    let new =
        |topic: &crate::protocol::messages::create_partitions::CreatePartitionsTopic<'_>| NewPartitions {
            topic: topic.name.to_owned(),
            count: topic.count,
            assignments: topic
                .assignments
                .as_ref()
                .map(|assignments| assignments.iter().map(|a| a.broker_ids.clone()).collect()),
        };
    let topics = body.topics.iter().map(new).collect();
    let validate_only = body.validate_only;
    let create = |reply| ControlRequest::CreatePartitions {
        topics,
        validate_only,
        reply,
    };
    let results = ask_control(context, create).await?;
    let messages: Vec<_> = results
        .iter()
        .map(|r| r.as_ref().err().map(ToString::to_string))
        .collect();
    let results = body
        .topics
        .iter()
        .zip(&results)
        .zip(&messages)
        .map(|((topic, result), message)| {
            let code = result
                .as_ref()
                .map_or_else(error_map::topic, |()| ErrorCode::None);
            CreatePartitionsTopicResult {
                name: topic.name,
                error_code: code.code(),
                error_message: message.as_deref(),
            }
        });
    request.reply(&CreatePartitionsResponse {
        results: results.collect(),
        ..CreatePartitionsResponse::default()
    })
}
