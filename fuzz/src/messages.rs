//! Requests as hostile clients send them, and responses as a hostile broker would.

use ringlog_net::protocol::api_key::ApiKey;
use ringlog_net::protocol::api_versions::TABLE;
use ringlog_net::protocol::encode::{Encoder, SIZE_PREFIX_LEN_BYTES, Segment};
use ringlog_net::protocol::header::{decode_request, decode_response};
use ringlog_net::protocol::messages::{self as m, Message};

use crate::choices::Choices;

/// Decodes a whole request frame; and the bytes after the second as the body of the request that
/// the first two choose, by API and version.
///
/// # Panics
///
/// Where a message that was read is not written as something that reads the same.
pub fn request(data: &[u8]) {
    if let Ok((header, body)) = decode_request(data) {
        decode_request_body(header.api, header.api_version, body);
    }
    let (api, version, body) = choose(data);
    decode_request_body(api, version, body);
}

/// As [`request`], for the client's side: the bytes after the second are a response, with its header
/// or without.
///
/// # Panics
///
/// As [`request`].
pub fn response(data: &[u8]) {
    let (api, version, frame) = choose(data);
    if let Ok((_, body)) = decode_response(api, version, frame) {
        decode_response_body(api, version, body);
    }
    decode_response_body(api, version, frame);
}

/// A row of the table and one of the versions it defines.
fn choose(data: &[u8]) -> (ApiKey, i16, &[u8]) {
    let mut choices = Choices::new(data);
    let row = &TABLE[choices.below(TABLE.len())];
    let versions: Vec<i16> = row.defined.clone().collect();
    let version = versions[choices.below(versions.len())];
    (row.api, version, choices.rest())
}

/// The body as it goes on the wire.
fn written<'a>(message: &impl Message<'a>, version: i16) -> Vec<u8> {
    let mut encoder = Encoder::default();
    message.encode(&mut encoder, version);
    let frame = encoder.finish().expect("what was read can be written");
    let bytes: Vec<u8> = frame
        .into_segments()
        .into_iter()
        .flat_map(|segment| match segment {
            Segment::Bytes(bytes) => bytes,
            Segment::External { .. } => unreachable!("what was read does not lie elsewhere"),
        })
        .collect();
    bytes[SIZE_PREFIX_LEN_BYTES..].to_vec()
}

/// The message of each API, decoded and, where that succeeds, encoded and decoded again.
macro_rules! decode_bodies {
    ($function:ident: $($api:ident $module:ident $message:ident,)*) => {
        fn $function(api: ApiKey, version: i16, body: &[u8]) {
            match api {
                $(ApiKey::$api => match m::$module::$message::decode_body(body, version) {
                    Ok(message) => {
                        let bytes = written(&message, version);
                        assert_eq!(m::$module::$message::decode_body(&bytes, version), Ok(message));
                    }
                    Err(error) => assert!(error.position <= body.len(), "{error}"),
                },)*
            }
        }
    };
}

decode_bodies! { decode_request_body:
    Produce produce ProduceRequest,
    Fetch fetch FetchRequest,
    ListOffsets list_offsets ListOffsetsRequest,
    Metadata metadata MetadataRequest,
    FindCoordinator find_coordinator FindCoordinatorRequest,
    ApiVersions api_versions ApiVersionsRequest,
    CreateTopics create_topics CreateTopicsRequest,
    DeleteTopics delete_topics DeleteTopicsRequest,
    DeleteRecords delete_records DeleteRecordsRequest,
    InitProducerId init_producer_id InitProducerIdRequest,
    OffsetForLeaderEpoch offset_for_leader_epoch OffsetForLeaderEpochRequest,
    DescribeConfigs describe_configs DescribeConfigsRequest,
    AlterConfigs alter_configs AlterConfigsRequest,
    DescribeLogDirs describe_log_dirs DescribeLogDirsRequest,
    CreatePartitions create_partitions CreatePartitionsRequest,
    IncrementalAlterConfigs incremental_alter_configs IncrementalAlterConfigsRequest,
    DescribeCluster describe_cluster DescribeClusterRequest,
    DescribeTopicPartitions describe_topic_partitions DescribeTopicPartitionsRequest,
}

decode_bodies! { decode_response_body:
    Produce produce ProduceResponse,
    Fetch fetch FetchResponse,
    ListOffsets list_offsets ListOffsetsResponse,
    Metadata metadata MetadataResponse,
    FindCoordinator find_coordinator FindCoordinatorResponse,
    ApiVersions api_versions ApiVersionsResponse,
    CreateTopics create_topics CreateTopicsResponse,
    DeleteTopics delete_topics DeleteTopicsResponse,
    DeleteRecords delete_records DeleteRecordsResponse,
    InitProducerId init_producer_id InitProducerIdResponse,
    OffsetForLeaderEpoch offset_for_leader_epoch OffsetForLeaderEpochResponse,
    DescribeConfigs describe_configs DescribeConfigsResponse,
    AlterConfigs alter_configs AlterConfigsResponse,
    DescribeLogDirs describe_log_dirs DescribeLogDirsResponse,
    CreatePartitions create_partitions CreatePartitionsResponse,
    IncrementalAlterConfigs incremental_alter_configs IncrementalAlterConfigsResponse,
    DescribeCluster describe_cluster DescribeClusterResponse,
    DescribeTopicPartitions describe_topic_partitions DescribeTopicPartitionsResponse,
}
