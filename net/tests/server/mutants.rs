//! Requests that are almost right: every byte of a good one replaced, for every API.
//!
//! What comes of each is the broker's own affair, an answer or the end of the connection; it must
//! stay up, serve the others and stop properly.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use ringlog_net::protocol::api_key::ApiKey;
use ringlog_net::protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterableConfig,
};
use ringlog_net::protocol::messages::api_versions::ApiVersionsRequest;
use ringlog_net::protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ringlog_net::protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest,
};
use ringlog_net::protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ringlog_net::protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ringlog_net::protocol::messages::describe_cluster::DescribeClusterRequest;
use ringlog_net::protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ringlog_net::protocol::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use ringlog_net::protocol::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use ringlog_net::protocol::messages::find_coordinator::FindCoordinatorRequest;
use ringlog_net::protocol::messages::incremental_alter_configs as incremental;
use ringlog_net::protocol::messages::init_producer_id::InitProducerIdRequest;
use ringlog_net::protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use ringlog_net::protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ringlog_net::protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use crate::broker::Broker;
use crate::client::{Client, batch, fetch_request, produce_request};

/// A reply that takes longer is one that waits; it is not waited for.
const PATIENCE: Duration = Duration::from_millis(50);

/// A good request of every API, framed.
fn requests(client: &mut Client) -> Vec<(ApiKey, Vec<u8>)> {
    let batch = batch(&[b"value"]);
    let alter = AlterConfigsResource {
        resource_type: 2,
        resource_name: "t",
        configs: vec![AlterableConfig {
            name: "flush.policy",
            value: Some("os"),
        }],
    };
    let change = incremental::AlterConfigsResource {
        resource_type: 2,
        resource_name: "t",
        configs: vec![incremental::AlterableConfig {
            name: "flush.policy",
            config_operation: 0,
            value: Some("os"),
        }],
    };
    let create = |name, num_partitions| CreatableTopic {
        name,
        num_partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let assigned = CreatableTopic {
        assignments: vec![CreatableReplicaAssignment {
            partition_index: 0,
            broker_ids: vec![1],
        }],
        replication_factor: -1,
        ..create("assigned", -1)
    };
    let offsets = ListOffsetsTopic {
        name: "t",
        partitions: [-1, -3, 7]
            .map(|timestamp| ListOffsetsPartition {
                timestamp,
                ..ListOffsetsPartition::default()
            })
            .to_vec(),
    };
    let epochs = OffsetForLeaderTopic {
        topic: "t",
        partitions: vec![OffsetForLeaderPartition::default()],
    };
    let deletion = DeleteRecordsTopic {
        name: "t",
        partitions: vec![DeleteRecordsPartition {
            partition_index: 1,
            offset: 0,
        }],
    };
    let mut all = Vec::new();
    macro_rules! add {
        ($version:expr, $request:expr) => {{
            let request = $request;
            all.push((api_of(&request), client.frame($version, &request)));
        }};
    }
    add!(9, produce_request(-1, "t", &[(0, &batch), (1, &batch)]));
    add!(12, fetch_request("t", &[(0, 0), (1, 0)], 0, 0));
    add!(
        7,
        ListOffsetsRequest {
            replica_id: -1,
            topics: vec![offsets],
            ..ListOffsetsRequest::default()
        }
    );
    let topic = MetadataRequestTopic {
        name: Some("t"),
        ..MetadataRequestTopic::default()
    };
    add!(
        12,
        MetadataRequest {
            topics: Some(vec![topic]),
            ..MetadataRequest::default()
        }
    );
    add!(
        4,
        FindCoordinatorRequest {
            coordinator_keys: vec!["g"],
            ..FindCoordinatorRequest::default()
        }
    );
    add!(
        3,
        ApiVersionsRequest {
            client_software_name: "a",
            client_software_version: "1"
        }
    );
    add!(
        5,
        CreateTopicsRequest {
            topics: vec![create("made", 2), assigned],
            // Thousands of mutants would make as many files.
            validate_only: true,
            ..CreateTopicsRequest::default()
        }
    );
    let gone = DeleteTopicState {
        name: Some("gone"),
        ..DeleteTopicState::default()
    };
    add!(
        6,
        DeleteTopicsRequest {
            topics: vec![gone],
            ..DeleteTopicsRequest::default()
        }
    );
    add!(
        2,
        DeleteRecordsRequest {
            topics: vec![deletion],
            timeout_ms: 1000
        }
    );
    add!(4, InitProducerIdRequest::default());
    add!(
        4,
        OffsetForLeaderEpochRequest {
            topics: vec![epochs],
            ..OffsetForLeaderEpochRequest::default()
        }
    );
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "t",
        configuration_keys: None,
    };
    add!(
        4,
        DescribeConfigsRequest {
            resources: vec![resource],
            ..DescribeConfigsRequest::default()
        }
    );
    add!(
        2,
        AlterConfigsRequest {
            resources: vec![alter],
            validate_only: false
        }
    );
    let dir = DescribableLogDirTopic {
        topic: "t",
        partitions: vec![0],
    };
    add!(
        4,
        DescribeLogDirsRequest {
            topics: Some(vec![dir])
        }
    );
    let grown = CreatePartitionsTopic {
        name: "t",
        count: 3,
        assignments: None,
    };
    add!(
        3,
        CreatePartitionsRequest {
            topics: vec![grown],
            // Thousands of mutants would make as many files.
            validate_only: true,
            ..CreatePartitionsRequest::default()
        }
    );
    add!(
        1,
        incremental::IncrementalAlterConfigsRequest {
            resources: vec![change],
            validate_only: false
        }
    );
    add!(1, DescribeClusterRequest::default());
    let cursor = Some(Cursor {
        topic_name: "t",
        partition_index: 0,
    });
    let page = vec![TopicRequest { name: "t" }];
    add!(
        0,
        DescribeTopicPartitionsRequest {
            topics: page,
            response_partition_limit: 1,
            cursor
        }
    );
    all
}

fn api_of<'a, M: ringlog_net::protocol::messages::Message<'a>>(_: &M) -> ApiKey {
    M::API
}

#[test]
fn no_byte_of_any_request_can_bring_the_broker_down() {
    let broker = Broker::start(&[]);
    let mut bystanders: Vec<Client> = (0..8).map(|_| broker.client()).collect();
    bystanders[0].create("t", 2, &[]);
    let requests = requests(&mut broker.client());
    let tried: Vec<_> = requests.iter().map(|(api, _)| *api).collect();
    assert!(
        ApiKey::ALL.iter().all(|api| tried.contains(api)),
        "every API has its request"
    );
    let address = broker.address;
    thread::scope(|scope| {
        for (_, frame) in &requests {
            scope.spawn(move || try_mutants(address, frame));
        }
    });
    for bystander in &mut bystanders {
        bystander.expect_served();
    }
    assert!(bystanders[0].list_offset("t", 0, -1).offset >= 0);
    broker.stop();
}

fn try_mutants(address: SocketAddr, frame: &[u8]) {
    // Behind the size and the header's numbers.
    for at in 12..frame.len() {
        for byte in [0x00, 0x7f, 0xff] {
            let mut mutant = frame.to_vec();
            mutant[at] = byte;
            let mut client = Client::connect(address);
            let patience = client.stream.set_read_timeout(Some(PATIENCE));
            patience.expect("a timeout");
            client.stream.write_all(&mutant).expect("it is read");
            // Anything, or nothing.
            let _ = client.stream.read(&mut [0; 64]);
        }
    }
    Client::connect(address).expect_served();
}
