//! AlterConfigs: replaces all settings of topics and brokers.

use std::collections::BTreeMap;

use super::ask_control;
use super::config_resource::resource_kind;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use crate::server::connection::Context;
use crate::server::control_request::{ConfigChange, ConfigOps, ControlRequest};
use crate::server::dispatch::{CloseReason, PendingReply, Request};
use crate::server::error_map;

/// Why one resource was not altered; `None` if it was.
pub(super) type Refusal = Option<(ErrorCode, String)>;

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: AlterConfigsRequest<'_> = request.decode()?;
    let changes = body.resources.iter().map(|resource| {
        let owned = |config: &crate::protocol::messages::alter_configs::AlterableConfig<'_>| {
            (config.name.to_owned(), config.value.map(str::to_owned))
        };
        Ok(ConfigChange {
            resource: resource_kind(resource.resource_type)?,
            name: resource.resource_name.to_owned(),
            change: ConfigOps::Replace(resource.configs.iter().map(owned).collect::<BTreeMap<_, _>>()),
        })
    });
    let refusals = alter(context, changes.collect(), body.validate_only).await?;
    let responses = body.resources.iter().zip(&refusals).map(|(resource, refusal)| {
        let (code, message) = told(refusal);
        AlterConfigsResourceResponse {
            error_code: code,
            error_message: message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    request.reply(&AlterConfigsResponse {
        responses: responses.collect(),
        ..AlterConfigsResponse::default()
    })
}

/// Carries out those changes that could be read, and says what became of each.
pub(super) async fn alter(
    context: &Context,
    changes: Vec<Result<ConfigChange, (ErrorCode, String)>>,
    validate_only: bool,
) -> Result<Vec<Refusal>, CloseReason> {
    let resources: Vec<_> = changes
        .iter()
        .filter_map(|change| change.as_ref().ok().cloned())
        .collect();
    let alter = |reply| ControlRequest::AlterConfigs {
        resources,
        validate_only,
        reply,
    };
    let mut results = ask_control(context, alter).await?.into_iter();
    let refusal = |change| match change {
        Err(refusal) => Some(refusal),
        Ok(_) => match results.next()? {
            Ok(()) => None,
            Err(error) => Some((error_map::topic(&error), error.to_string())),
        },
    };
    Ok(changes.into_iter().map(refusal).collect())
}

pub(super) fn told(refusal: &Refusal) -> (i16, Option<&str>) {
    match refusal {
        None => (ErrorCode::None.code(), None),
        Some((code, message)) => (code.code(), Some(message)),
    }
}
