//! From a frame to its handler: one match over the APIs.
//!
//! Decides what a request is, and what becomes of one that is none. Handlers decode, call and
//! encode. The order of a connection's requests is fixed here: a handler that changes anything
//! has done so, or has handed it to the partition's shard, when `dispatch` returns.

use std::pin::Pin;

use bytes::BytesMut;

use super::connection::Context;
use super::handlers as h;
use super::response::{RequestInfo, Response};
use crate::protocol::api_key::ApiKey;
use crate::protocol::decode::{DecodeError, Reader};
use crate::protocol::encode::EncodeError;
use crate::protocol::header::{RequestError, decode_request};
use crate::protocol::messages::Message;

/// A request that carries no records may be this large: decoded, it takes several times its bytes.
const PLAIN_REQUEST_BYTES_MAX: usize = 8 << 20;

/// A reply that will be ready; `None` for a request that is not answered (acks=0).
pub(crate) type PendingReply = Pin<Box<dyn Future<Output = Result<Option<Response>, CloseReason>>>>;

/// Why a connection is closed by the broker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloseReason {
    #[error(transparent)]
    Header(#[from] RequestError),
    #[error("{} version {} of {len_bytes} bytes; at most {PLAIN_REQUEST_BYTES_MAX} are accepted", info.api, info.version)]
    TooLarge { info: RequestInfo, len_bytes: usize },
    #[error("{} version {}: {error}", info.api, info.version)]
    Body { info: RequestInfo, error: DecodeError },
    #[error("the reply to {} version {} cannot be expressed: {error}", info.api, info.version)]
    Encode { info: RequestInfo, error: EncodeError },
    /// There is no other way to tell a client that wants no reply.
    #[error("records produced with acks=0 were refused: {0}")]
    Unacknowledged(String),
    #[error("the broker is stopping")]
    Stopping,
}

/// A request with its frame.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) info: RequestInfo,
    pub(crate) frame: BytesMut,
    body_start: usize,
}

impl Request {
    /// Decodes the body. Bytes behind it are ignored, as Kafka does: librdkafka (2.16 at least) asks
    /// for the metadata of all topics with a null array of four bytes where one is meant, so that
    /// three are left over.
    pub(crate) fn decode<'a, M: Message<'a>>(&'a self) -> Result<M, CloseReason> {
        let mut reader = Reader::new(&self.frame[self.body_start..]);
        M::decode(&mut reader, self.info.version).map_err(|error| CloseReason::Body {
            info: self.info,
            error,
        })
    }

    /// The name that the client gives itself, which may be any.
    pub(crate) fn client_id(&self) -> Option<&str> {
        decode_request(&self.frame).ok()?.0.client_id
    }

    /// A reply that is ready now.
    pub(crate) fn reply<'a>(&self, message: &impl Message<'a>) -> Result<PendingReply, CloseReason> {
        Ok(ready(respond(self.info, message)?))
    }
}

/// A reply that is ready now.
pub(crate) fn ready(response: Response) -> PendingReply {
    Box::pin(std::future::ready(Ok(Some(response))))
}

/// Encodes a reply without payloads.
pub(crate) fn respond<'a>(info: RequestInfo, message: &impl Message<'a>) -> Result<Response, CloseReason> {
    info.respond(message, Vec::new())
        .map_err(|error| CloseReason::Encode { info, error })
}

/// Decodes the header and hands the request to its handler.
pub(crate) async fn dispatch(context: &Context, frame: BytesMut) -> Result<PendingReply, CloseReason> {
    let (info, body_start) = match decode_request(&frame) {
        Ok((header, body)) => {
            let info = RequestInfo {
                api: header.api,
                version: header.api_version,
                correlation_id: header.correlation_id,
            };
            (info, frame.len() - body.len())
        }
        // A client that is newer than the broker learns from the answer what it may ask (KIP-511).
        Err(RequestError::UnsupportedVersion {
            api: ApiKey::ApiVersions,
            correlation_id,
            ..
        }) => {
            return h::api_versions::unsupported_version(correlation_id);
        }
        Err(error) => return Err(error.into()),
    };
    if info.api != ApiKey::Produce && frame.len() > PLAIN_REQUEST_BYTES_MAX {
        let len_bytes = frame.len();
        return Err(CloseReason::TooLarge { info, len_bytes });
    }
    let request = Request {
        info,
        frame,
        body_start,
    };
    match info.api {
        ApiKey::Produce => h::produce::handle(context, request).await,
        ApiKey::Fetch => h::fetch::handle(context, request).await,
        ApiKey::ListOffsets => h::list_offsets::handle(context, request).await,
        ApiKey::Metadata => h::metadata::handle(context, request).await,
        ApiKey::FindCoordinator => h::find_coordinator::handle(context, &request),
        ApiKey::ApiVersions => h::api_versions::handle(&request),
        ApiKey::CreateTopics => h::create_topics::handle(context, request).await,
        ApiKey::DeleteTopics => h::delete_topics::handle(context, request).await,
        ApiKey::DeleteRecords => h::delete_records::handle(context, request).await,
        ApiKey::InitProducerId => h::init_producer_id::handle(context, request).await,
        ApiKey::OffsetForLeaderEpoch => h::offset_for_leader_epoch::handle(context, request).await,
        ApiKey::DescribeConfigs => h::describe_configs::handle(context, &request),
        ApiKey::AlterConfigs => h::alter_configs::handle(context, request).await,
        ApiKey::DescribeLogDirs => h::describe_log_dirs::handle(context, request).await,
        ApiKey::CreatePartitions => h::create_partitions::handle(context, request).await,
        ApiKey::IncrementalAlterConfigs => h::incremental_alter_configs::handle(context, request).await,
        ApiKey::DescribeCluster => h::describe_cluster::handle(context, &request),
        ApiKey::DescribeTopicPartitions => h::describe_topic_partitions::handle(context, &request),
    }
}
