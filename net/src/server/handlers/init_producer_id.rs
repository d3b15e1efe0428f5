//! InitProducerId: an identity for an idempotent producer.

use super::{Coordinated, ask_control, warn_of_waiting};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::server::connection::Context;
use crate::server::control_request::ControlRequest;
use crate::server::dispatch::{CloseReason, PendingReply, Request};

pub(crate) async fn handle(context: &Context, request: Request) -> Result<PendingReply, CloseReason> {
    let body: InitProducerIdRequest<'_> = request.decode()?;
    let refused = |code: ErrorCode| InitProducerIdResponse {
        error_code: code.code(),
        ..InitProducerIdResponse::default()
    };
    if let Some(id) = body.transactional_id {
        let code = if id.is_empty() {
            ErrorCode::InvalidRequest
        } else {
            warn_of_waiting(context, &request, Coordinated::Transaction, id);
            ErrorCode::CoordinatorNotAvailable
        };
        return request.reply(&refused(code));
    }
    let next = context.shard.producer_ids.borrow_mut().next();
    let id = match next {
        Some(id) => id,
        None => match ask_control(context, ControlRequest::AllocateProducerIds).await? {
            Ok(mut block) => {
                let id = block.next().ok_or(CloseReason::Stopping)?;
                context.shard.producer_ids.replace(block);
                id
            }
            Err(error) => {
                tracing::error!(%error, "no producer id could be allocated");
                return request.reply(&refused(ErrorCode::CoordinatorNotAvailable));
            }
        },
    };
    request.reply(&InitProducerIdResponse {
        producer_id: id,
        ..InitProducerIdResponse::default()
    })
}
