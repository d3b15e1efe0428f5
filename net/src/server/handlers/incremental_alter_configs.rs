//! IncrementalAlterConfigs: sets, deletes, appends and subtracts single settings (KIP-339).

use super::alter_configs::{alter, told};
use super::config_resource::resource_kind;
use crate::config::ChangeOp;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use crate::server::connection::Context;
use crate::server::control_request::{ConfigChange, ConfigOps};
use crate::server::dispatch::{CloseReason, PendingReply, Request};

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: IncrementalAlterConfigsRequest<'_> = request.decode()?;
    let refusals = alter(
        context,
        body.resources.iter().map(change).collect(),
        body.validate_only,
    )
    .await?;
    let responses = body.resources.iter().zip(&refusals).map(|(resource, refusal)| {
        let (code, message) = told(refusal);
        AlterConfigsResourceResponse {
            error_code: code,
            error_message: message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    request.reply(&IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..IncrementalAlterConfigsResponse::default()
    })
}

fn change(resource: &AlterConfigsResource<'_>) -> Result<ConfigChange, (ErrorCode, String)> {
    let mut changes = Vec::new();
    for config in &resource.configs {
        let op = match config.config_operation {
            0 => ChangeOp::Set,
            1 => ChangeOp::Delete,
            2 => ChangeOp::Append,
            3 => ChangeOp::Subtract,
            other => {
                let message = format!("{}: there is no operation {other}", config.name);
                return Err((ErrorCode::InvalidRequest, message));
            }
        };
        changes.push((config.name.to_owned(), op, config.value.map(str::to_owned)));
    }
    Ok(ConfigChange {
        resource: resource_kind(resource.resource_type)?,
        name: resource.resource_name.to_owned(),
        change: ConfigOps::Alter(changes),
    })
}
