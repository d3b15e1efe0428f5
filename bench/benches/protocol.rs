//! Decoding requests and encoding responses.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use ringlog_bench::fixtures::{batch, body};
use ringlog_net::protocol::encode::{Encoder, Records};
use ringlog_net::protocol::messages::Message;
use ringlog_net::protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData,
};
use ringlog_net::protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use ringlog_net::protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
    TopicProduceResponse,
};

const PRODUCE: i16 = 9;
const FETCH: i16 = 12;
const METADATA: i16 = 12;

fn produce_request(partitions: i32, records: &[u8]) -> ProduceRequest<'_> {
    let partition_data = (0..partitions).map(|index| PartitionProduceData {
        index,
        records: Records::Borrowed(records),
    });
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: "orders",
            partition_data: partition_data.collect(),
        }],
        ..ProduceRequest::default()
    }
}

fn fetch_request(partitions: i32) -> FetchRequest<'static> {
    let partitions = (0..partitions).map(|partition| FetchPartition {
        partition,
        fetch_offset: 1 << 33,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    });
    FetchRequest {
        topics: vec![FetchTopic {
            topic: "orders",
            partitions: partitions.collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

fn metadata_request() -> MetadataRequest<'static> {
    let topic = |name| MetadataRequestTopic {
        name: Some(name),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: Some(["orders", "payments", "shipments"].map(topic).to_vec()),
        ..MetadataRequest::default()
    }
}

fn produce_response() -> ProduceResponse<'static> {
    let partition_responses = (0..6).map(|index| PartitionProduceResponse {
        index,
        base_offset: 1 << 33,
        ..PartitionProduceResponse::default()
    });
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "orders",
            partition_responses: partition_responses.collect(),
        }],
        ..ProduceResponse::default()
    }
}

fn fetch_response(partitions: u32) -> FetchResponse<'static> {
    let partitions = (0..partitions).map(|tag| PartitionData {
        high_watermark: 1 << 33,
        records: Records::External {
            len_bytes: 64 * 1024,
            tag,
        },
        ..PartitionData::default()
    });
    FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "orders",
            partitions: partitions.collect(),
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    }
}

fn metadata_response() -> MetadataResponse<'static> {
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        replica_nodes: vec![1, 2, 3],
        isr_nodes: vec![1, 2, 3],
        ..MetadataResponsePartition::default()
    };
    let topic = MetadataResponseTopic {
        name: Some("orders"),
        partitions: (0..6).map(partition).collect(),
        ..MetadataResponseTopic::default()
    };
    let broker = MetadataResponseBroker {
        host: "broker-1.example.org",
        port: 9092,
        ..MetadataResponseBroker::default()
    };
    MetadataResponse {
        brokers: vec![broker; 3],
        topics: vec![topic; 3],
        ..MetadataResponse::default()
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    let records = batch(64, 1024);
    for partitions in [1, 6] {
        let bytes = body(&produce_request(partitions, &records), PRODUCE);
        group.bench_function(format!("produce_v9_{partitions}_x_64KiB"), |bencher| {
            bencher.iter(|| {
                let request = ProduceRequest::decode_body(black_box(&bytes), PRODUCE);
                request.expect("it was just encoded").topic_data.len()
            });
        });
    }
    for partitions in [1, 100] {
        let bytes = body(&fetch_request(partitions), FETCH);
        group.bench_function(format!("fetch_v12_{partitions}_partitions"), |bencher| {
            bencher.iter(|| {
                let request = FetchRequest::decode_body(black_box(&bytes), FETCH);
                request.expect("it was just encoded").topics.len()
            });
        });
    }
    let bytes = body(&metadata_request(), METADATA);
    group.bench_function("metadata_v12_3_topics", |bencher| {
        bencher.iter(|| {
            let request = MetadataRequest::decode_body(black_box(&bytes), METADATA);
            request.expect("it was just encoded").topics.is_some()
        });
    });
    group.finish();
}

fn encoded_bytes<'a>(message: &impl Message<'a>, version: i16) -> usize {
    let mut encoder = Encoder::default();
    message.encode(&mut encoder, version);
    encoder.finish().expect("the version is defined").len_bytes()
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    let produce = produce_response();
    group.bench_function("produce_v9_6_partitions", |bencher| {
        bencher.iter(|| encoded_bytes(black_box(&produce), PRODUCE));
    });
    for partitions in [1, 100] {
        let fetch = fetch_response(partitions);
        group.bench_function(format!("fetch_v12_{partitions}_partitions"), |bencher| {
            bencher.iter(|| encoded_bytes(black_box(&fetch), FETCH));
        });
    }
    let metadata = metadata_response();
    group.bench_function("metadata_v12_3_topics", |bencher| {
        bencher.iter(|| encoded_bytes(black_box(&metadata), METADATA));
    });
    group.finish();
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
