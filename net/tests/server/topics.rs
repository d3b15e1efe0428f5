//! Topics and their settings: made, changed, described, deleted, made again.

use std::collections::BTreeMap;
use std::fs;

use ringlog_net::protocol::error_code::ErrorCode;
use ringlog_net::protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use ringlog_net::protocol::messages::create_topics::{
    CreatableTopic, CreateTopicsRequest, CreateTopicsResponse,
};
use ringlog_net::protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use ringlog_net::protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use ringlog_net::protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse, DescribeConfigsResult,
};
use ringlog_net::protocol::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ringlog_net::protocol::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};
use ringlog_net::protocol::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ringlog_net::protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use ringlog_net::protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
};
use ringlog_net::protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic,
};

use crate::broker::Broker;
use crate::client::{Client, batch, batch_at, code};

const TOPIC: i8 = 2;

pub(crate) fn metadata(client: &mut Client, topic: &str, may_create: bool) -> MetadataResponseTopic<'static> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic),
            ..MetadataRequestTopic::default()
        }]),
        allow_auto_topic_creation: may_create,
        ..MetadataRequest::default()
    };
    let mut response: MetadataResponse<'_> = client.call(12, &request);
    response.topics.remove(0)
}

pub(crate) fn delete(client: &mut Client, topic: &str) -> ErrorCode {
    let request = DeleteTopicsRequest {
        topic_names: vec![topic],
        ..DeleteTopicsRequest::default()
    };
    let response: DeleteTopicsResponse<'_> = client.call(5, &request);
    code(response.responses[0].error_code)
}

pub(crate) fn delete_records(
    client: &mut Client,
    topic: &str,
    partition: i32,
    offset: i64,
) -> (ErrorCode, i64) {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic,
            partitions: vec![DeleteRecordsPartition {
                partition_index: partition,
                offset,
            }],
        }],
        timeout_ms: 10_000,
    };
    let response: DeleteRecordsResponse<'_> = client.call(2, &request);
    let result = &response.topics[0].partitions[0];
    (code(result.error_code), result.low_watermark)
}

pub(crate) fn alter(
    client: &mut Client,
    topic: &str,
    name: &str,
    value: Option<&str>,
) -> AlterConfigsResourceResponse<'static> {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: topic,
            configs: vec![AlterableConfig {
                name,
                config_operation: i8::from(value.is_none()),
                value,
            }],
        }],
        validate_only: false,
    };
    let mut response: IncrementalAlterConfigsResponse<'_> = client.call(1, &request);
    response.responses.remove(0)
}

fn describe(client: &mut Client, kind: i8, name: &str) -> DescribeConfigsResult<'static> {
    let resource = || DescribeConfigsResource {
        resource_type: kind,
        resource_name: name,
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        // Named twice, told once.
        resources: vec![resource(), resource()],
        ..DescribeConfigsRequest::default()
    };
    let mut response: DescribeConfigsResponse<'_> = client.call(4, &request);
    assert_eq!(response.results.len(), 1);
    response.results.remove(0)
}

/// The setting's value and source.
pub(crate) fn setting(client: &mut Client, topic: &str, name: &str) -> (String, i8) {
    let described = describe(client, TOPIC, topic);
    let entry = described
        .configs
        .iter()
        .find(|config| config.name == name)
        .expect("it is listed");
    (entry.value.unwrap_or_default().to_owned(), entry.config_source)
}

pub(crate) fn epoch_end(
    client: &mut Client,
    topic: &str,
    partition: i32,
    leader_epoch: i32,
) -> EpochEndOffset {
    let request = OffsetForLeaderEpochRequest {
        topics: vec![OffsetForLeaderTopic {
            topic,
            partitions: vec![OffsetForLeaderPartition {
                partition,
                current_leader_epoch: -1,
                leader_epoch,
            }],
        }],
        ..OffsetForLeaderEpochRequest::default()
    };
    let mut response: OffsetForLeaderEpochResponse<'_> = client.call(4, &request);
    response.topics.remove(0).partitions.remove(0)
}

#[test]
fn a_name_used_again_is_another_topic() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    let mut ids = Vec::new();
    for round in 0..5u8 {
        let id = client.create("t", 4, &[("segment.bytes", "1048576")]);
        assert!(!ids.contains(&id));
        ids.push(id);
        for partition in 0..4 {
            assert_eq!(client.read_all("t", partition, 0), [], "round {round}");
            // Enough to roll: files are being made while the topic goes away.
            for _ in 0..8 {
                client.send(
                    9,
                    &crate::client::produce_request(-1, "t", &[(partition, &batch(&[&[round; 300_000]]))]),
                );
            }
            for _ in 0..8 {
                client.receive_produced();
            }
        }
        assert_eq!(
            code(client.try_create("t", 1, &[]).error_code),
            ErrorCode::TopicAlreadyExists
        );
        assert_eq!(delete(&mut client, "t"), ErrorCode::None);
        assert_eq!(delete(&mut client, "t"), ErrorCode::UnknownTopicOrPartition);
        assert_eq!(
            code(metadata(&mut client, "t", false).error_code),
            ErrorCode::UnknownTopicOrPartition
        );
    }
    assert!(broker.open_segments().is_empty(), "{:?}", broker.open_segments());
    let broker = broker.kill_and_restart();
    let mut client = broker.client();
    assert_eq!(
        code(metadata(&mut client, "t", false).error_code),
        ErrorCode::UnknownTopicOrPartition
    );
    let (dir, _) = broker.stop();
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name())
        .filter(|name| !name.to_string_lossy().ends_with("-delete"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn names_numbers_and_settings_that_cannot_be_are_refused_and_the_reason_told() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a/b", "../x", "a b", "\u{e4}", long.as_str()] {
        let refused = client.try_create(name, 1, &[]);
        assert_eq!(
            code(refused.error_code),
            ErrorCode::InvalidTopicException,
            "{name}"
        );
    }
    assert_eq!(
        code(client.try_create(&long[1..], 1, &[]).error_code),
        ErrorCode::None
    );
    for partitions in [0, -2, 10_001, i32::MAX] {
        let refused = client.try_create("t", partitions, &[]);
        assert_eq!(
            code(refused.error_code),
            ErrorCode::InvalidPartitions,
            "{partitions}"
        );
    }
    let refused = client.try_create("t", 1, &[("retention.mss", "1")]);
    assert_eq!(code(refused.error_code), ErrorCode::InvalidConfig);
    assert!(
        refused.error_message.unwrap().contains("retention.ms"),
        "{:?}",
        refused.error_message
    );
    for (key, value) in [
        ("segment.bytes", "-5"),
        ("flush.policy", "sometimes"),
        ("cleanup.policy", "shred"),
    ] {
        let refused = client.try_create("t", 1, &[(key, value)]);
        assert_eq!(code(refused.error_code), ErrorCode::InvalidConfig, "{key}");
        assert!(refused.error_message.unwrap().contains(key));
    }
    client.create("a.b", 1, &[]);
    assert_eq!(
        code(client.try_create("a_b", 1, &[]).error_code),
        ErrorCode::InvalidTopicException
    );
}

#[test]
fn settings_take_effect_and_are_described_with_their_source() {
    let broker = Broker::start(&["message.max.bytes=3000"]);
    let mut client = broker.client();
    client.create("t", 2, &[("flush.policy", "os")]);
    assert_eq!(
        setting(&mut client, "t", "max.message.bytes"),
        ("3000".into(), 4),
        "from the broker's"
    );
    assert_eq!(setting(&mut client, "t", "flush.policy"), ("os".into(), 1));
    assert_eq!(
        setting(&mut client, "t", "segment.bytes"),
        ("1073741824".into(), 5),
        "the default"
    );

    let large = batch(&[&[0; 5000]]);
    assert_eq!(client.produce("t", 1, &large), Err(ErrorCode::MessageTooLarge));
    assert_eq!(
        code(alter(&mut client, "t", "max.message.bytes", Some("9000")).error_code),
        ErrorCode::None
    );
    assert_eq!(client.produce("t", 1, &large), Ok(0));
    assert_eq!(
        code(alter(&mut client, "t", "max.message.bytes", None).error_code),
        ErrorCode::None
    );
    assert_eq!(client.produce("t", 1, &large), Err(ErrorCode::MessageTooLarge));

    // Whichever way the policy turns, what was acknowledged stays readable and appends go on.
    for (offset, policy) in (1..).zip(["group", "os", "interval", "group"]) {
        assert_eq!(
            code(alter(&mut client, "t", "flush.policy", Some(policy)).error_code),
            ErrorCode::None
        );
        assert_eq!(client.produce("t", 1, &batch(&[b"x"])), Ok(offset), "{policy}");
        assert_eq!(client.fetch("t", 1, 0).high_watermark, offset + 1);
    }
    let refused = alter(&mut client, "t", "flush.polcy", Some("os"));
    assert_eq!(code(refused.error_code), ErrorCode::InvalidConfig);
    assert!(refused.error_message.unwrap().contains("flush.policy"));
    assert_eq!(
        code(alter(&mut client, "missing", "flush.policy", Some("os")).error_code),
        ErrorCode::UnknownTopicOrPartition
    );

    let brokers = describe(&mut client, 4, "1");
    assert_eq!(code(brokers.error_code), ErrorCode::None);
    assert!(
        brokers
            .configs
            .iter()
            .any(|config| config.name == "num.partitions")
    );
    assert_eq!(
        code(describe(&mut client, 4, "2").error_code),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        code(describe(&mut client, 16, "group").error_code),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        code(describe(&mut client, TOPIC, "missing").error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn a_topic_grows_and_its_partitions_are_told_page_by_page() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    for name in ["a", "b", "c"] {
        client.create(name, 3, &[]);
    }
    let grow = |client: &mut Client, count| {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: "b",
                count,
                assignments: None,
            }],
            ..CreatePartitionsRequest::default()
        };
        let response: CreatePartitionsResponse<'_> = client.call(3, &request);
        code(response.results[0].error_code)
    };
    assert_eq!(grow(&mut client, 5), ErrorCode::None);
    assert_eq!(grow(&mut client, 5), ErrorCode::InvalidPartitions);
    assert_eq!(grow(&mut client, 2), ErrorCode::InvalidPartitions);
    for partition in 0..5 {
        assert_eq!(client.produce("b", partition, &batch(&[b"x"])), Ok(0));
    }
    let mut told: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    let mut cursor = None;
    let mut pages = 0;
    loop {
        let request = DescribeTopicPartitionsRequest {
            response_partition_limit: 2,
            cursor,
            ..DescribeTopicPartitionsRequest::default()
        };
        let response: DescribeTopicPartitionsResponse<'_> = client.call(0, &request);
        pages += 1;
        assert!(
            response
                .topics
                .iter()
                .map(|topic| topic.partitions.len())
                .sum::<usize>()
                <= 2
        );
        for topic in response.topics {
            let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
            told.entry(topic.name.unwrap().to_owned())
                .or_default()
                .extend(partitions);
        }
        let Some(next) = response.next_cursor else { break };
        cursor = Some(Cursor { ..next });
    }
    assert_eq!(told["a"], [0, 1, 2]);
    assert_eq!(told["b"], [0, 1, 2, 3, 4]);
    assert_eq!(told["c"], [0, 1, 2]);
    assert_eq!(pages, 6);

    let response: DescribeLogDirsResponse<'_> = client.call(4, &DescribeLogDirsRequest { topics: None });
    let topics = &response.results[0].topics;
    let size = |name: &str, index: usize| {
        let topic = topics.iter().find(|topic| topic.name == name).unwrap();
        topic.partitions[index].partition_size
    };
    assert_eq!(size("a", 0), 0);
    assert_eq!(size("b", 4), i64::try_from(batch(&[b"x"]).len()).unwrap());
}

#[test]
fn offsets_are_found_by_time_and_by_epoch() {
    let mut broker = Broker::start(&[]);
    let mut client = broker.client();
    client.create("t", 2, &[]);
    for (timestamp, count) in [(1000, 2), (3000, 1), (2000, 3)] {
        client
            .produce("t", 1, &batch_at(timestamp, &vec![&b"v"[..]; count]))
            .unwrap();
    }
    let mut found = |timestamp| {
        let found = client.list_offset("t", 1, timestamp);
        assert_eq!(code(found.error_code), ErrorCode::None);
        (found.offset, found.timestamp)
    };
    assert_eq!(found(-1), (6, -1), "latest");
    assert_eq!(found(-2), (0, -1), "earliest");
    assert_eq!(found(-3), (2, 3000), "of the greatest timestamp");
    assert_eq!(found(0), (0, 1000));
    assert_eq!(found(1001), (2, 3000));
    assert_eq!(found(3001), (-1, -1));
    assert_eq!(
        code(client.list_offset("t", 1, -77).error_code),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        code(client.list_offset("t", 2, -1).error_code),
        ErrorCode::UnknownTopicOrPartition
    );

    let first = metadata(&mut client, "t", false).partitions[1].leader_epoch;
    broker = broker.kill_and_restart();
    client = broker.client();
    client.produce("t", 1, &batch(&[b"v"])).unwrap();
    let second = metadata(&mut client, "t", false).partitions[1].leader_epoch;
    assert!(second > first);
    let end = epoch_end(&mut client, "t", 1, first);
    assert_eq!((end.leader_epoch, end.end_offset), (first, 6));
    let end = epoch_end(&mut client, "t", 1, second);
    assert_eq!((end.leader_epoch, end.end_offset), (second, 7));
    assert_eq!(epoch_end(&mut client, "t", 1, second + 1).end_offset, -1);
    assert_eq!(
        code(epoch_end(&mut client, "t", 5, first).error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn a_name_given_twice_in_one_request_is_refused_both_times() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    let topic = |name| CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic("twice"), topic("once"), topic("twice")],
        ..CreateTopicsRequest::default()
    };
    let response: CreateTopicsResponse<'_> = client.call(7, &request);
    let codes: Vec<_> = response
        .topics
        .iter()
        .map(|topic| code(topic.error_code))
        .collect();
    assert_eq!(
        codes,
        [
            ErrorCode::InvalidRequest,
            ErrorCode::None,
            ErrorCode::InvalidRequest
        ]
    );
    assert_eq!(
        code(metadata(&mut client, "twice", false).error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn a_missing_topic_is_created_only_where_both_sides_allow_it() {
    for (setting, may_create, expected) in [
        ("auto.create.topics.enable=true", true, ErrorCode::None),
        (
            "auto.create.topics.enable=true",
            false,
            ErrorCode::UnknownTopicOrPartition,
        ),
        (
            "auto.create.topics.enable=false",
            true,
            ErrorCode::UnknownTopicOrPartition,
        ),
    ] {
        let broker = Broker::start(&[setting, "num.partitions=3"]);
        let mut client = broker.client();
        let topic = metadata(&mut client, "t", may_create);
        assert_eq!(code(topic.error_code), expected, "{setting} {may_create}");
        if expected == ErrorCode::None {
            assert_eq!(topic.partitions.len(), 3);
            assert_eq!(
                client.produce("t", 2, &batch(&[b"x"])),
                Ok(0),
                "it is there at once"
            );
            let refused = metadata(&mut client, "no/name", true);
            assert_eq!(code(refused.error_code), ErrorCode::InvalidTopicException);
        }
    }
}

#[test]
fn no_coordinator_is_found_and_the_answer_says_so() {
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    let one = FindCoordinatorRequest {
        key: "group",
        ..FindCoordinatorRequest::default()
    };
    let response: FindCoordinatorResponse<'_> = client.call(3, &one);
    assert_eq!(
        (code(response.error_code), response.node_id),
        (ErrorCode::CoordinatorNotAvailable, -1)
    );
    let two = FindCoordinatorRequest {
        coordinator_keys: vec!["g", "h"],
        ..FindCoordinatorRequest::default()
    };
    let response: FindCoordinatorResponse<'_> = client.call(4, &two);
    let told: Vec<_> = response
        .coordinators
        .iter()
        .map(|c| (c.key, code(c.error_code), c.node_id))
        .collect();
    let none = ErrorCode::CoordinatorNotAvailable;
    assert_eq!(told, [("g", none, -1), ("h", none, -1)]);
}

#[test]
fn a_client_that_waits_for_a_coordinator_is_named_in_the_log_a_few_times() {
    const ASKED: u64 = 25;
    let broker = Broker::start(&[]);
    let mut client = broker.client();
    for key_type in std::iter::once(1).chain(std::iter::repeat_n(0, 24)) {
        let request = FindCoordinatorRequest {
            key: "payments",
            key_type,
            ..FindCoordinatorRequest::default()
        };
        let _: FindCoordinatorResponse<'_> = client.call(3, &request);
    }
    drop(client);
    let (_, logged) = broker.stop();
    let told: Vec<_> = logged.iter().filter(|event| event["client"] == "test").collect();
    let of = |kind: &str| told.iter().filter(|event| event[kind] == "payments").count();
    assert_eq!(of("transactional_id"), 1, "{told:?}");
    assert_eq!(of("group") + 1, told.len(), "{told:?}");
    assert!(
        told.iter().all(|event| event["peer"].as_str().is_some()),
        "{told:?}"
    );
    let left_out: u64 = logged.iter().filter_map(|event| event["left_out"].as_u64()).sum();
    assert_eq!(told.len() as u64 + left_out, ASKED);
    assert!(left_out > 0);
}
