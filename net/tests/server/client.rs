//! One connection that speaks the protocol, and batches to send over it.
//!
//! Replies are checked to come in the order of the requests. Frames live as long as the program,
//! so that replies may borrow from them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::SystemTime;

use ringlog_engine::record::{RecordBatch, RecordBatchBuilder};
use ringlog_engine::types::TimestampMs;
use ringlog_net::protocol::api_key::ApiKey;
use ringlog_net::protocol::encode::{Encoder, Records, Segment};
use ringlog_net::protocol::error_code::ErrorCode;
use ringlog_net::protocol::header::{RequestHeader, decode_response};
use ringlog_net::protocol::messages::Message;
use ringlog_net::protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ringlog_net::protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use ringlog_net::protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData,
};
use ringlog_net::protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic,
};
use ringlog_net::protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ringlog_net::protocol::wire::Uuid;

use crate::broker::DEADLINE;

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    next_correlation_id: i32,
    awaited: VecDeque<(ApiKey, i16, i32)>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        Self {
            stream,
            next_correlation_id: 0,
            awaited: VecDeque::new(),
        }
    }

    /// Sends a request whose reply is not awaited yet.
    pub(crate) fn send<'a, M: Message<'a>>(&mut self, version: i16, message: &M) {
        let frame = self.frame(version, message);
        self.stream.write_all(&frame).expect("the broker reads");
    }

    /// The bytes of a request, size prefix and all; its reply is expected from now on.
    pub(crate) fn frame<'a, M: Message<'a>>(&mut self, version: i16, message: &M) -> Vec<u8> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        self.awaited.push_back((M::API, version, correlation_id));
        let header = RequestHeader {
            api: M::API,
            api_version: version,
            correlation_id,
            client_id: Some("test"),
        };
        let mut encoder = Encoder::default();
        header.encode(&mut encoder);
        message.encode(&mut encoder, version);
        let segments = encoder.finish().expect("it can be expressed").into_segments();
        let bytes = segments.iter().flat_map(|segment| match segment {
            Segment::Bytes(bytes) => bytes.to_vec(),
            Segment::External { .. } => panic!("nothing external here"),
        });
        bytes.collect()
    }

    /// The reply to the oldest request that has none.
    pub(crate) fn receive<M: Message<'static>>(&mut self) -> M {
        let (api, version, expected) = self.awaited.pop_front().expect("a request was sent");
        let frame: &'static [u8] = self.read_frame().expect("a reply").leak();
        let (correlation_id, body) = decode_response(api, version, frame).expect("a response header");
        assert_eq!(
            correlation_id, expected,
            "replies come in the order of the requests"
        );
        M::decode_body(body, version).expect("a response of the API")
    }

    /// Sends a request and takes its reply.
    pub(crate) fn call<'a, Q: Message<'a>, R: Message<'static>>(&mut self, version: i16, request: &Q) -> R {
        self.send(version, request);
        self.receive()
    }

    /// Forgets that the last request would be answered.
    pub(crate) fn expect_no_reply(&mut self) {
        self.awaited.pop_back();
    }

    pub(crate) fn read_frame(&mut self) -> io::Result<Vec<u8>> {
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Asserts that the broker closes the connection without a word.
    pub(crate) fn expect_closed(&mut self, why: &str) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("{why}: {other:?} instead of the end"),
        }
    }

    /// Asserts that the broker answers here.
    pub(crate) fn expect_served(&mut self) {
        let request = ApiVersionsRequest {
            client_software_name: "test",
            client_software_version: "1.0",
        };
        let response: ApiVersionsResponse<'_> = self.call(3, &request);
        assert_eq!(code(response.error_code), ErrorCode::None);
    }

    pub(crate) fn try_create(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> CreatableTopicResult<'static> {
        let config = |&(name, value)| CreatableTopicConfig {
            name,
            value: Some(value),
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name,
                num_partitions: partitions,
                replication_factor: 1,
                configs: configs.iter().map(config).collect(),
                ..CreatableTopic::default()
            }],
            ..CreateTopicsRequest::default()
        };
        let response: CreateTopicsResponse<'_> = self.call(7, &request);
        response
            .topics
            .into_iter()
            .next()
            .expect("one topic was asked for")
    }

    pub(crate) fn create(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Uuid {
        let created = self.try_create(name, partitions, configs);
        assert_eq!(
            code(created.error_code),
            ErrorCode::None,
            "{:?}",
            created.error_message
        );
        assert_ne!(created.topic_id, Uuid::ZERO);
        created.topic_id
    }

    /// Produces one batch with acks=all; the error or the first offset.
    pub(crate) fn produce(&mut self, topic: &str, partition: i32, batch: &[u8]) -> Result<i64, ErrorCode> {
        let answer = self.produce_with(9, -1, topic, partition, batch);
        match code(answer.error_code) {
            ErrorCode::None => Ok(answer.base_offset),
            error => Err(error),
        }
    }

    pub(crate) fn produce_with(
        &mut self,
        version: i16,
        acks: i16,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> PartitionProduceResponse<'static> {
        self.send(version, &produce_request(acks, topic, &[(partition, batch)]));
        self.receive_produced().remove(0)
    }

    /// The answers for each partition of a produce of one topic.
    pub(crate) fn receive_produced(&mut self) -> Vec<PartitionProduceResponse<'static>> {
        let response: ProduceResponse<'_> = self.receive();
        response
            .responses
            .into_iter()
            .next()
            .expect("one topic")
            .partition_responses
    }

    /// Reads one partition by name, at once.
    pub(crate) fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData<'static> {
        self.send(11, &fetch_request(topic, &[(partition, offset)], 0, 0));
        self.receive_fetched().remove(0)
    }

    /// The answers for each partition of a fetch of one topic.
    pub(crate) fn receive_fetched(&mut self) -> Vec<PartitionData<'static>> {
        let response: FetchResponse<'_> = self.receive();
        assert_eq!(code(response.error_code), ErrorCode::None);
        response
            .responses
            .into_iter()
            .next()
            .expect("one topic")
            .partitions
    }

    /// All records of a partition, from `offset` on.
    pub(crate) fn read_all(&mut self, topic: &str, partition: i32, mut offset: i64) -> Vec<Record> {
        let mut all = Vec::new();
        loop {
            let data = self.fetch(topic, partition, offset);
            assert_eq!(code(data.error_code), ErrorCode::None);
            let read = records(&data);
            let Some(last) = read.last() else { return all };
            offset = last.0 + 1;
            all.extend(read);
        }
    }

    pub(crate) fn list_offset(
        &mut self,
        topic: &str,
        partition: i32,
        timestamp: i64,
    ) -> ListOffsetsPartitionResponse {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: topic,
                partitions: vec![ListOffsetsPartition {
                    partition_index: partition,
                    timestamp,
                    ..ListOffsetsPartition::default()
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let mut response: ListOffsetsResponse<'_> = self.call(7, &request);
        response.topics.remove(0).partitions.remove(0)
    }
}

/// An offset and a value.
pub(crate) type Record = (i64, Vec<u8>);

pub(crate) fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).expect("a code of the protocol")
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}

/// A plain batch of these values, of now.
pub(crate) fn batch(values: &[&[u8]]) -> Vec<u8> {
    batch_at(now_ms(), values)
}

pub(crate) fn batch_at(timestamp: i64, values: &[&[u8]]) -> Vec<u8> {
    build(RecordBatchBuilder::new(), timestamp, values)
}

pub(crate) fn build(mut builder: RecordBatchBuilder, timestamp: i64, values: &[&[u8]]) -> Vec<u8> {
    for value in values {
        builder
            .append(TimestampMs(timestamp), None, Some(value), &[])
            .expect("it fits");
    }
    builder.build().expect("it fits").to_vec()
}

/// A request for one topic by name.
pub(crate) fn produce_request<'a>(
    acks: i16,
    topic: &'a str,
    batches: &[(i32, &'a [u8])],
) -> ProduceRequest<'a> {
    let partition = |&(index, batch)| PartitionProduceData {
        index,
        records: Records::Borrowed(batch),
    };
    ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: topic,
            partition_data: batches.iter().map(partition).collect(),
        }],
        ..ProduceRequest::default()
    }
}

/// A request for one topic by name, from an offset in each partition.
pub(crate) fn fetch_request<'a>(
    topic: &'a str,
    partitions: &[(i32, i64)],
    max_wait_ms: i32,
    min_bytes: i32,
) -> FetchRequest<'a> {
    let partition = |&(partition, fetch_offset)| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    FetchRequest {
        max_wait_ms,
        min_bytes,
        max_bytes: 50 << 20,
        topics: vec![FetchTopic {
            topic,
            partitions: partitions.iter().map(partition).collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

/// The bytes of the records.
pub(crate) fn record_bytes(data: &PartitionData<'static>) -> &'static [u8] {
    data.records.borrowed().unwrap_or_default()
}

/// The whole batches of a partition's answer; the last may be cut.
pub(crate) fn batches(data: &PartitionData<'static>) -> Vec<RecordBatch<'static>> {
    let mut bytes = record_bytes(data);
    let mut batches = Vec::new();
    while let Ok(batch) = RecordBatch::parse(bytes) {
        batch.verify_crc().expect("what was stored is intact");
        bytes = &bytes[batch.bytes().len()..];
        batches.push(batch);
    }
    batches
}

/// The records of a partition's answer.
pub(crate) fn records(data: &PartitionData<'static>) -> Vec<Record> {
    let mut all = Vec::new();
    for batch in batches(data) {
        for record in &batch.records(64 << 20).expect("readable") {
            let record = record.expect("readable");
            all.push((record.offset.0, record.value.expect("a value").to_vec()));
        }
    }
    all
}
