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
use super::dispatch::{CloseReason, Request};

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

/// What there is no coordinator of yet.
#[derive(Clone, Copy)]
enum Coordinated {
    Group,
    Transaction,
}

/// Clients take the refusal for a passing state, and wait without a word: so it is said here.
fn warn_of_waiting(context: &Context, request: &Request, what: Coordinated, id: &str) {
    /// Of a name that a client chose.
    const SHOWN_CHARS: usize = 100;
    let shown = |text: &str| text.chars().take(SHOWN_CHARS).collect::<String>();
    context.unsupported.log(|| {
        let (peer, client) = (context.peer, request.client_id().map(shown).unwrap_or_default());
        let id = shown(id);
        match what {
            Coordinated::Group => tracing::warn!(
                %peer,
                client,
                group = id,
                "a client asks for a consumer group and waits: groups are not supported yet; have it assign \
                 partitions (assign, not subscribe)"
            ),
            Coordinated::Transaction => tracing::warn!(
                %peer,
                client,
                transactional_id = id,
                "a client asks for a transaction and waits: transactions are not supported yet; have it produce \
                 without transactional.id"
            ),
        }
    });
}
