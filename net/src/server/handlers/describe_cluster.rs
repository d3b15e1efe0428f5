//! DescribeCluster: the brokers, as the client's listener sees them.

use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};

/// KIP-919: endpoints of brokers, as opposed to controllers.
const BROKERS: i8 = 1;

pub(crate) fn handle(context: &Context, request: &Request) -> Result<PendingReply, CloseReason> {
    let body: DescribeClusterRequest = request.decode()?;
    let image = context.shard.image();
    let endpoint = context.endpoints.of(context.listener);
    if body.endpoint_type != BROKERS {
        return request.reply(&DescribeClusterResponse {
            error_code: ErrorCode::UnsupportedEndpointType.code(),
            error_message: Some("only the endpoints of brokers (1) can be described"),
            endpoint_type: body.endpoint_type,
            ..DescribeClusterResponse::default()
        });
    }
    request.reply(&DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: &image.cluster_id,
        controller_id: image.node_id,
        brokers: vec![DescribeClusterBroker {
            broker_id: image.node_id,
            host: &endpoint.host,
            port: endpoint.port,
            rack: None,
        }],
        ..DescribeClusterResponse::default()
    })
}
