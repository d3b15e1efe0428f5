//! One file per API: decode the request, call the shard or the control thread, encode the reply.
//!
//! No decisions about records, topics or settings are taken here.

pub(crate) mod alter_configs;
pub(crate) mod api_versions;
mod config_resource;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;

use tokio::sync::oneshot;

use super::connection::Context;
use super::control_request::ControlRequest;
use super::dispatch::CloseReason;

/// Asks the control thread and waits for its answer.
async fn ask_control<T>(
    context: &Context,
    request: impl FnOnce(oneshot::Sender<T>) -> ControlRequest,
) -> Result<T, CloseReason> {
    let (reply, answer) = oneshot::channel();
    context
        .shard
        .control
        .send(request(reply))
        .await
        .map_err(|_| CloseReason::Stopping)?;
    answer.await.map_err(|_| CloseReason::Stopping)
}
