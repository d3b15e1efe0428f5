//! Which brokers there are, who leads what, and a connection to each that was needed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connection::{Answer, Connection};
use super::error::ClientError;
use crate::protocol::api_key::ApiKey;
use crate::protocol::messages::Message;
use crate::protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use crate::protocol::wire::Uuid;

/// For how long a request is repeated while leaders are found or brokers come back.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// For how long a topic that a broker may create on demand is waited for. A broker that creates none
/// answers the same as one that is about to.
const CREATED_WITHIN: Duration = Duration::from_secs(5);
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Sooner, a leader that moves would be news; after that a person wonders.
const TELL_AFTER: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A topic as the cluster describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// The name.
    pub name: String,
    /// Its identity; zero from brokers that have none.
    pub topic_id: Uuid,
    /// Whether it is the brokers' own.
    pub is_internal: bool,
    /// In the order of their indexes.
    pub partitions: Vec<PartitionMetadata>,
}

/// A partition as the cluster describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Its index.
    pub index: i32,
    /// Broker id of the leader, -1 for none.
    pub leader: i32,
    /// The leader's epoch, -1 from old brokers.
    pub leader_epoch: i32,
    /// Broker ids of the replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Broker ids of those in sync.
    pub isr: Vec<i32>,
}

/// The brokers, by the addresses they advertise.
#[derive(Debug)]
pub struct Cluster {
    bootstrap: Vec<String>,
    bootstrap_connection: Option<Connection>,
    brokers: BTreeMap<i32, String>,
    controller: i32,
    connections: BTreeMap<i32, Connection>,
}

impl Cluster {
    /// Connects to the first of the comma-separated `host:port` addresses that answers; a host alone is
    /// taken at Kafka's usual port, 9092.
    ///
    /// # Errors
    ///
    /// The last address's, when none does.
    pub async fn connect(bootstrap: &str) -> Result<Self, ClientError> {
        let mut cluster = Self {
            bootstrap: bootstrap.split(',').map(with_port).collect(),
            bootstrap_connection: None,
            brokers: BTreeMap::new(),
            controller: -1,
            connections: BTreeMap::new(),
        };
        cluster.metadata(Some(&[]), false).await?;
        Ok(cluster)
    }

    /// Describes these topics, or all for `None`; `create` lets the broker create those that are missing,
    /// if its configuration does.
    ///
    /// # Errors
    ///
    /// No broker answers, or the first topic's error.
    pub async fn metadata(
        &mut self,
        topics: Option<&[&str]>,
        create: bool,
    ) -> Result<Vec<TopicMetadata>, ClientError> {
        let request = MetadataRequest {
            topics: topics.map(|names| {
                names
                    .iter()
                    .map(|&name| MetadataRequestTopic {
                        topic_id: Uuid::ZERO,
                        name: Some(name),
                    })
                    .collect()
            }),
            allow_auto_topic_creation: create,
            ..MetadataRequest::default()
        };
        let answer = self.ask_any(&request).await?;
        let response: MetadataResponse<'_> = answer.decode()?;
        self.brokers = response
            .brokers
            .iter()
            .map(|b| (b.node_id, join_host_port(b.host, b.port)))
            .collect();
        self.controller = response.controller_id;
        response
            .topics
            .iter()
            .map(|topic| {
                let name = topic.name.unwrap_or_default();
                ClientError::check_topic(topic.error_code, None, name)?;
                let mut partitions: Vec<_> = topic
                    .partitions
                    .iter()
                    .map(|partition| PartitionMetadata {
                        index: partition.partition_index,
                        leader: partition.leader_id,
                        leader_epoch: partition.leader_epoch,
                        replicas: partition.replica_nodes.clone(),
                        isr: partition.isr_nodes.clone(),
                    })
                    .collect();
                partitions.sort_by_key(|partition| partition.index);
                Ok(TopicMetadata {
                    name: name.to_owned(),
                    topic_id: topic.topic_id,
                    is_internal: topic.is_internal,
                    partitions,
                })
            })
            .collect()
    }

    /// Describes one topic, waiting until each of its partitions has a leader.
    ///
    /// # Errors
    ///
    /// As [`metadata`](Self::metadata), once repeating has not helped.
    pub async fn topic(&mut self, name: &str, create: bool) -> Result<TopicMetadata, ClientError> {
        let mut retry = Retry::new();
        let created_by = Instant::now() + if create { CREATED_WITHIN } else { Duration::ZERO };
        loop {
            let error = match self
                .metadata(Some(&[name]), create)
                .await
                .map(|mut topics| topics.pop())
            {
                Ok(Some(topic)) if topic.partitions.iter().all(|partition| partition.leader >= 0) => {
                    return Ok(topic);
                }
                Ok(_) => ClientError::Missing {
                    api: ApiKey::Metadata,
                    what: format!("a leader for each partition of {name}"),
                },
                // A topic nobody is going to create is not waited for.
                Err(error @ ClientError::UnknownTopic { .. }) if Instant::now() >= created_by => {
                    return Err(error);
                }
                Err(error) if !error.is_retriable() => return Err(error),
                Err(error) => error,
            };
            retry.pause_or(error).await?;
        }
    }

    /// The id of the broker that takes administrative requests.
    #[must_use]
    pub fn controller(&self) -> i32 {
        self.controller
    }

    /// The known brokers: id and advertised address.
    #[must_use]
    pub fn brokers(&self) -> &BTreeMap<i32, String> {
        &self.brokers
    }

    /// The connection to a broker, made where there is none.
    ///
    /// # Errors
    ///
    /// The broker is unknown or cannot be reached.
    pub async fn connection(&mut self, broker: i32) -> Result<&mut Connection, ClientError> {
        let address = self
            .brokers
            .get(&broker)
            .ok_or(ClientError::UnknownBroker(broker))?;
        match self.connections.entry(broker) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => Ok(unknown.insert(Connection::connect(address).await?)),
        }
    }

    /// Forgets the connection to a broker, with whatever answers are due on it.
    pub fn disconnect(&mut self, broker: i32) {
        self.connections.remove(&broker);
    }

    /// Asks one broker; a connection that fails is forgotten.
    ///
    /// # Errors
    ///
    /// As [`Connection::call`].
    pub async fn ask<'a, Q: Message<'a>>(
        &mut self,
        broker: i32,
        request: &Q,
        version_max: i16,
    ) -> Result<Answer, ClientError> {
        let answer = self.connection(broker).await?.call(request, version_max).await;
        if answer.is_err() {
            self.disconnect(broker);
        }
        answer
    }

    async fn ask_any<'a, Q: Message<'a>>(&mut self, request: &Q) -> Result<Answer, ClientError> {
        if let Some(mut connection) = self.bootstrap_connection.take()
            && let Ok(answer) = connection.call(request, i16::MAX).await
        {
            self.bootstrap_connection = Some(connection);
            return Ok(answer);
        }
        let mut last = None;
        for address in self.bootstrap.iter().chain(self.brokers.values()) {
            let answer = match Connection::connect(address).await {
                Ok(mut connection) => match connection.call(request, i16::MAX).await {
                    Ok(answer) => Ok((connection, answer)),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            match answer {
                Ok((connection, answer)) => {
                    self.bootstrap_connection = Some(connection);
                    return Ok(answer);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("splitting a text gives at least one address"))
    }
}

fn with_port(address: &str) -> String {
    let address = address.trim();
    let host_only = !address.contains(':') || address.ends_with(']');
    if host_only {
        format!("{address}:9092")
    } else {
        address.to_owned()
    }
}

fn join_host_port(host: &str, port: i32) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Pauses between attempts, doubling, until the time is up. What takes longer than a moment is logged.
#[derive(Debug)]
pub(super) struct Retry {
    deadline: Instant,
    pause: Duration,
    tell_at: Instant,
}

impl Retry {
    pub(super) fn new() -> Self {
        Self {
            deadline: Instant::now() + RETRY_FOR,
            pause: RETRY_PAUSE_MIN,
            tell_at: Instant::now() + TELL_AFTER,
        }
    }

    /// Waits before the next attempt, or gives the error back when it is too late for one.
    pub(super) async fn pause_or(&mut self, error: ClientError) -> Result<(), ClientError> {
        let now = Instant::now();
        if now + self.pause > self.deadline {
            return Err(error);
        }
        // A topic that a broker may be creating is no trouble.
        if now >= self.tell_at && !matches!(error, ClientError::UnknownTopic { .. }) {
            tracing::warn!(%error, "trying again");
            self.tell_at = now + TELL_EVERY;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RETRY_PAUSE_MAX);
        Ok(())
    }
}
