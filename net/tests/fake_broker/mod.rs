//! A broker of one topic with one partition that does as it is told, to try the client against faults.
//!
//! Checks sequences as a real broker does. Serves each connection on a thread of its own, in blocking calls.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use ringlog_engine::record::RecordBatch;
use ringlog_net::protocol::api_key::ApiKey;
use ringlog_net::protocol::api_versions;
use ringlog_net::protocol::encode::{Encoder, Segment};
use ringlog_net::protocol::error_code::ErrorCode;
use ringlog_net::protocol::header::{RequestHeader, decode_request, encode_response_header};
use ringlog_net::protocol::messages::Message;
use ringlog_net::protocol::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use ringlog_net::protocol::messages::init_producer_id::InitProducerIdResponse;
use ringlog_net::protocol::messages::metadata::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ringlog_net::protocol::messages::produce::{
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};

/// What to do with a produce request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refuse it with this error, storing nothing.
    Refuse(ErrorCode),
    /// Store nothing and close the connection.
    Drop,
    /// Store it and close the connection without an answer.
    LoseAnswer,
}

/// What the broker has and what it is to do.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Values of the records stored, in order.
    pub(crate) values: Vec<Vec<u8>>,
    /// Faults by the number of the produce request, from 0.
    pub(crate) faults: Vec<(usize, Fault)>,
    /// Versions of ApiVersions it speaks, up to this one.
    pub(crate) api_versions_max: i16,
    pub(crate) produce_requests: usize,
    pub(crate) next_sequence: i32,
}

/// Starts the broker and says where it listens. It ends with the process.
pub(crate) fn start(state: State) -> (SocketAddr, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let state = Arc::new(Mutex::new(state));
    let shared = Arc::clone(&state);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, state) = (stream.expect("a connection"), Arc::clone(&shared));
            thread::spawn(move || serve(stream, address, &state));
        }
    });
    (address, state)
}

fn serve(mut stream: TcpStream, address: SocketAddr, state: &Mutex<State>) {
    let mut prefix = [0; 4];
    while stream.read_exact(&mut prefix).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
        stream.read_exact(&mut frame).expect("a whole frame");
        let (header, body) = decode_request(&frame).expect("the client's requests are well formed");
        let Some(answer) = respond(&header, body, address, &mut state.lock().expect("no panic")) else {
            return;
        };
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn respond(
    header: &RequestHeader<'_>,
    body: &[u8],
    address: SocketAddr,
    state: &mut State,
) -> Option<Vec<u8>> {
    match header.api {
        ApiKey::ApiVersions if header.api_version > state.api_versions_max => {
            let own = ApiVersion {
                api_key: ApiKey::ApiVersions.key(),
                min_version: 0,
                max_version: state.api_versions_max,
            };
            let response = ApiVersionsResponse {
                error_code: ErrorCode::UnsupportedVersion.code(),
                api_keys: vec![own],
                ..ApiVersionsResponse::default()
            };
            Some(encode(header, &response, 0))
        }
        ApiKey::ApiVersions => {
            let version = |&api: &ApiKey| {
                let advertised = &api_versions::of(api).advertised;
                let (min_version, max_version) = (*advertised.start(), *advertised.end());
                ApiVersion {
                    api_key: api.key(),
                    min_version,
                    max_version,
                }
            };
            let api_keys = ApiKey::ALL.iter().map(version).collect();
            let response = ApiVersionsResponse {
                api_keys,
                ..ApiVersionsResponse::default()
            };
            Some(encode(header, &response, header.api_version))
        }
        ApiKey::Metadata => Some(encode(
            header,
            &metadata(address, &address.ip().to_string()),
            header.api_version,
        )),
        ApiKey::InitProducerId => {
            let response = InitProducerIdResponse {
                producer_id: 1,
                ..InitProducerIdResponse::default()
            };
            Some(encode(header, &response, header.api_version))
        }
        ApiKey::Produce => {
            let request = ProduceRequest::decode_body(body, header.api_version).expect("well formed");
            let code = produce(&request, state)?;
            let answer = PartitionProduceResponse {
                error_code: code.code(),
                ..PartitionProduceResponse::default()
            };
            let response = ProduceResponse {
                responses: vec![TopicProduceResponse {
                    name: "t",
                    partition_responses: vec![answer],
                }],
                ..ProduceResponse::default()
            };
            Some(encode(header, &response, header.api_version))
        }
        other => panic!("{other} is not expected"),
    }
}

fn metadata(address: SocketAddr, host: &str) -> MetadataResponse<'_> {
    let partition = MetadataResponsePartition {
        leader_id: 1,
        replica_nodes: vec![1],
        isr_nodes: vec![1],
        ..MetadataResponsePartition::default()
    };
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host,
            port: address.port().into(),
            rack: None,
        }],
        controller_id: 1,
        topics: vec![MetadataResponseTopic {
            name: Some("t"),
            partitions: vec![partition],
            ..MetadataResponseTopic::default()
        }],
        ..MetadataResponse::default()
    }
}

/// The error code to answer, or none for no answer and the end of the connection.
fn produce(request: &ProduceRequest<'_>, state: &mut State) -> Option<ErrorCode> {
    let number = state.produce_requests;
    state.produce_requests += 1;
    let fault = state
        .faults
        .iter()
        .find(|(at, _)| *at == number)
        .map(|(_, fault)| *fault);
    match fault {
        Some(Fault::Refuse(code)) => return Some(code),
        Some(Fault::Drop) => return None,
        Some(Fault::LoseAnswer) | None => {}
    }
    let records = request.topic_data[0].partition_data[0]
        .records
        .borrowed()
        .expect("records");
    let batch = RecordBatch::validate_from_producer(records, 10 << 20).expect("a valid batch");
    let sequence = batch.header().base_sequence().0;
    let code = if sequence > state.next_sequence {
        ErrorCode::OutOfOrderSequenceNumber
    } else if sequence < state.next_sequence {
        ErrorCode::DuplicateSequenceNumber
    } else {
        state.next_sequence += batch.header().records_count();
        for record in &batch.records(10 << 20).expect("readable") {
            state
                .values
                .push(record.expect("a record").value.unwrap_or_default().to_vec());
        }
        ErrorCode::None
    };
    (fault != Some(Fault::LoseAnswer)).then_some(code)
}

fn encode<'a>(header: &RequestHeader<'_>, response: &impl Message<'a>, version: i16) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encode_response_header(&mut encoder, header.api, version, header.correlation_id);
    response.encode(&mut encoder, version);
    let segments = encoder.finish().expect("small").into_segments();
    segments
        .iter()
        .flat_map(|segment| match segment {
            Segment::Bytes(bytes) => bytes.to_vec(),
            Segment::External { .. } => panic!("nothing external here"),
        })
        .collect()
}
