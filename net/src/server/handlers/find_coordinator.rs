//! FindCoordinator: this broker coordinates no groups and no transactions yet, and says so.

use super::{Coordinated, warn_of_waiting};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};

const MESSAGE: &str = "this broker has no group or transaction coordinator yet; assign partitions explicitly";

/// Kafka's key type of a transactional id.
const TRANSACTION: i8 = 1;

pub(crate) fn handle(context: &Context, request: &Request) -> Result<PendingReply, CloseReason> {
    let body: FindCoordinatorRequest<'_> = request.decode()?;
    let what = match body.key_type {
        TRANSACTION => Coordinated::Transaction,
        _ => Coordinated::Group,
    };
    // From version 4 on there are several keys, and before that one.
    let key = body.coordinator_keys.first().unwrap_or(&body.key);
    warn_of_waiting(context, request, what, key);
    let error_code = ErrorCode::CoordinatorNotAvailable.code();
    let coordinator = |key| Coordinator {
        key,
        node_id: -1,
        host: "",
        port: -1,
        error_code,
        error_message: Some(MESSAGE),
    };
    request.reply(&FindCoordinatorResponse {
        error_code,
        error_message: Some(MESSAGE),
        node_id: -1,
        port: -1,
        coordinators: body.coordinator_keys.into_iter().map(coordinator).collect(),
        ..FindCoordinatorResponse::default()
    })
}
