//! `ringlog topic`: create, list, describe, delete and alter, by requests any broker understands.

use std::io::{self, Write};

use ringlog_engine::log::partition_metadata::encode_topic_id;

use super::args::{AlterArguments, CreateArguments, DescribeArguments, TopicCommand};
use super::error::CliError;
use super::line::{Line, Value};
use crate::client::{ClientError, Cluster, EARLIEST, LATEST, TopicMetadata, admin, offsets};
use crate::protocol::error_code::ErrorCode;

pub(super) async fn run(broker: &str, command: &TopicCommand) -> Result<(), CliError> {
    let mut cluster = Cluster::connect(broker).await?;
    match command {
        TopicCommand::Create(arguments) => create(&mut cluster, arguments).await,
        TopicCommand::List => list(&mut cluster).await,
        TopicCommand::Describe(arguments) => describe(&mut cluster, arguments).await,
        TopicCommand::Delete { names } => {
            for name in names {
                admin::delete_topic(&mut cluster, name).await?;
                writeln!(io::stdout(), "deleted topic {name}")?;
            }
            Ok(())
        }
        TopicCommand::Alter(arguments) => alter(&mut cluster, arguments).await,
    }
}

async fn create(cluster: &mut Cluster, arguments: &CreateArguments) -> Result<(), CliError> {
    let topic = admin::NewTopic {
        name: &arguments.name,
        partitions: arguments.partitions,
        replication_factor: arguments.replication_factor,
        configs: arguments
            .settings
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect(),
    };
    match admin::create_topic(cluster, &topic).await {
        Err(ClientError::Refused { code, .. })
            if arguments.if_not_exists && code == ErrorCode::TopicAlreadyExists.code() =>
        {
            writeln!(io::stdout(), "topic {} exists already", arguments.name)?;
        }
        created => {
            let created = created?;
            let line = Line::new()
                .with("id", encode_topic_id(created.topic_id.0))
                .with("partitions", created.partitions)
                .with("replication_factor", i32::from(created.replication_factor));
            write!(io::stdout(), "created topic {} ", arguments.name)?;
            line.write_text(&mut io::stdout())?;
        }
    }
    Ok(())
}

async fn list(cluster: &mut Cluster) -> Result<(), CliError> {
    let mut topics = cluster.metadata(None, false).await?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let mut out = io::stdout().lock();
    for topic in topics.iter().filter(|topic| !topic.is_internal) {
        writeln!(out, "{}", topic.name)?;
    }
    Ok(())
}

async fn describe(cluster: &mut Cluster, arguments: &DescribeArguments) -> Result<(), CliError> {
    let names: Vec<&str> = arguments.names.iter().map(String::as_str).collect();
    let filter = if names.is_empty() { None } else { Some(&names[..]) };
    let mut topics = cluster.metadata(filter, false).await?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    for topic in &topics {
        let lines = describe_topic(cluster, topic, arguments.all).await?;
        let mut out = io::stdout().lock();
        if arguments.json {
            json_object(topic, lines).write_json(&mut out)?;
        } else {
            writeln!(
                out,
                "topic {} id={}",
                topic.name,
                encode_topic_id(topic.topic_id.0)
            )?;
            for line in lines.partitions.iter().chain(&lines.settings) {
                write!(out, "  ")?;
                line.write_text(&mut out)?;
            }
        }
    }
    Ok(())
}

struct Description {
    partitions: Vec<Line>,
    settings: Vec<Line>,
}

async fn describe_topic(
    cluster: &mut Cluster,
    topic: &TopicMetadata,
    all: bool,
) -> Result<Description, CliError> {
    let first = offsets(cluster, topic, EARLIEST).await?;
    let end = offsets(cluster, topic, LATEST).await?;
    let partition = |partition: &crate::client::PartitionMetadata| {
        Line::new()
            .with("partition", partition.index)
            .with("leader", partition.leader)
            .with("leader_epoch", partition.leader_epoch)
            .with("replicas", ids(&partition.replicas))
            .with("isr", ids(&partition.isr))
            .with("first_offset", first[&partition.index])
            .with("end_offset", end[&partition.index])
    };
    let settings = admin::topic_settings(cluster, &topic.name).await?;
    let setting = |setting: &admin::Setting| {
        let value = setting.value.as_deref().unwrap_or("");
        Line::new()
            .with("key", setting.name.as_str())
            .with("value", value)
            .with("source", if setting.is_override { "topic" } else { "broker" })
    };
    Ok(Description {
        partitions: topic.partitions.iter().map(partition).collect(),
        settings: settings
            .iter()
            .filter(|setting| all || setting.is_override)
            .map(setting)
            .collect(),
    })
}

fn json_object(topic: &TopicMetadata, lines: Description) -> Line {
    Line::new()
        .with("topic", topic.name.as_str())
        .with("topic_id", encode_topic_id(topic.topic_id.0))
        .with("partitions", Value::List(lines.partitions))
        .with("settings", Value::List(lines.settings))
}

fn ids(brokers: &[i32]) -> String {
    brokers.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

async fn alter(cluster: &mut Cluster, arguments: &AlterArguments) -> Result<(), CliError> {
    let set = arguments
        .settings
        .iter()
        .map(|(key, value)| (key.as_str(), Some(value.as_str())));
    let changes: Vec<_> = set
        .chain(arguments.unset.iter().map(|key| (key.as_str(), None)))
        .collect();
    if !changes.is_empty() {
        admin::alter_topic(cluster, &arguments.name, &changes).await?;
    }
    if let Some(partitions) = arguments.partitions {
        admin::create_partitions(cluster, &arguments.name, partitions).await?;
    }
    writeln!(io::stdout(), "altered topic {}", arguments.name)?;
    Ok(())
}
