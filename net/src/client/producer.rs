//! Sends records to one topic: batched, compressed, pipelined, and by default idempotent.
//!
//! Several requests may be in flight to a broker. When one fails, all answers that are due are awaited
//! first, and then the failed batches go again one at a time in their original order with their original
//! sequence numbers, so that order holds and an idempotent producer's duplicates are dropped by the broker.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ringlog_engine::record::{Compression, RecordBatchBuilder};
use ringlog_engine::types::{ProducerEpoch, ProducerId, Sequence, TimestampMs};
use tokio::time::Instant;

use super::cluster::{Cluster, Retry, TopicMetadata};
use super::error::ClientError;
use super::partitioner;
use crate::protocol::api_key::ApiKey;
use crate::protocol::encode::Records;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::protocol::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};

/// A batch is sent once its records take this much before compression.
const BATCH_BYTES: usize = 256 << 10;
/// The broker remembers the last five batches of an idempotent producer, so no more may be in doubt.
const IN_FLIGHT_MAX: usize = 5;
/// From version 13 on a topic goes by its id.
const PRODUCE_VERSION_MAX: i16 = 12;
const BROKER_TIMEOUT_MS: i32 = 30_000;

/// When the broker acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Every in-sync replica has it.
    All,
    /// The leader has it.
    Leader,
    /// Never; nothing is known of what is lost.
    None,
}

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct ProducerOptions {
    /// The codec of the batches.
    pub compression: Compression,
    /// When a batch counts as sent; [`Acks::All`] makes the producer idempotent.
    pub acks: Acks,
    /// How long a record may wait for others to share its batch.
    pub linger: Duration,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            acks: Acks::All,
            linger: Duration::from_millis(5),
        }
    }
}

/// A batch that is to be acknowledged.
#[derive(Clone, Debug)]
struct Batch {
    /// Counts batches, so that failed ones can be put in order again.
    number: u64,
    partition: usize,
    bytes: Bytes,
    records: u64,
}

/// Sends records to one topic.
#[derive(Debug)]
pub struct Producer {
    cluster: Cluster,
    topic: TopicMetadata,
    options: ProducerOptions,
    /// Id and epoch, where idempotent.
    identity: Option<(ProducerId, ProducerEpoch)>,
    sequences: Vec<Sequence>,
    building: BTreeMap<usize, RecordBatchBuilder>,
    oldest: Option<Instant>,
    sticky: usize,
    batches: u64,
    /// Requests to each broker, oldest first: the batches of each.
    in_flight: BTreeMap<i32, Vec<Vec<Batch>>>,
    failed: Vec<Batch>,
    acknowledged: u64,
}

impl Producer {
    /// A producer for `topic`, which the broker may create.
    ///
    /// # Errors
    ///
    /// The topic cannot be found, or no producer id can be had.
    pub async fn open(
        mut cluster: Cluster,
        topic: &str,
        options: ProducerOptions,
    ) -> Result<Self, ClientError> {
        let topic = cluster.topic(topic, true).await?;
        let identity = match options.acks {
            Acks::All => Some(init_producer_id(&mut cluster).await?),
            Acks::Leader | Acks::None => None,
        };
        let sequences = vec![Sequence(0); topic.partitions.len()];
        Ok(Self {
            cluster,
            topic,
            options,
            identity,
            sequences,
            building: BTreeMap::new(),
            oldest: None,
            sticky: 0,
            batches: 0,
            in_flight: BTreeMap::new(),
            failed: Vec::new(),
            acknowledged: 0,
        })
    }

    /// Adds a record: to `partition`, else to its key's, else to the one in turn. May send, and may wait for
    /// answers where too many are due.
    ///
    /// # Errors
    ///
    /// There is no such partition; or an earlier batch failed for good.
    pub async fn send(
        &mut self,
        partition: Option<i32>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), ClientError> {
        let partitions = self.topic.partitions.len();
        let index = match (partition, key) {
            (Some(index), _) => usize::try_from(index)
                .ok()
                .filter(|&index| index < partitions)
                .ok_or_else(|| ClientError::UnknownPartition {
                    topic: self.topic.name.clone(),
                    partition: index,
                    partitions,
                })?,
            (None, Some(key)) => partitioner::for_key(key, partitions),
            (None, None) => self.sticky % partitions,
        };
        let compression = self.options.compression;
        let builder = self
            .building
            .entry(index)
            .or_insert_with(|| RecordBatchBuilder::new().compression(compression));
        builder.append(now(), key, value, &[])?;
        let full = builder.len_bytes() >= BATCH_BYTES;
        self.oldest.get_or_insert_with(Instant::now);
        if full {
            self.dispatch().await?;
        }
        Ok(())
    }

    /// When the records that wait are to be sent by [`dispatch`](Self::dispatch); `None` if none wait.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.oldest.map(|oldest| oldest + self.options.linger)
    }

    /// Sends the records that wait, without awaiting their acknowledgement.
    ///
    /// # Errors
    ///
    /// An earlier batch failed for good.
    pub async fn dispatch(&mut self) -> Result<(), ClientError> {
        self.oldest = None;
        self.sticky = self.sticky.wrapping_add(1);
        let mut by_leader: BTreeMap<i32, Vec<Batch>> = BTreeMap::new();
        for (partition, builder) in std::mem::take(&mut self.building) {
            let batch = self.finish_batch(partition, builder)?;
            by_leader
                .entry(self.topic.partitions[partition].leader)
                .or_default()
                .push(batch);
        }
        for (leader, batches) in by_leader {
            while self
                .in_flight
                .get(&leader)
                .is_some_and(|requests| requests.len() >= IN_FLIGHT_MAX)
            {
                self.receive(leader).await;
            }
            if self.failed.is_empty() {
                self.request(leader, batches).await;
            } else {
                // What failed goes first, or the order would be lost.
                self.failed.extend(batches);
            }
        }
        if self.failed.is_empty() {
            Ok(())
        } else {
            self.recover().await
        }
    }

    /// Sends everything and waits until all of it is acknowledged.
    ///
    /// # Errors
    ///
    /// A batch failed for good.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.dispatch().await?;
        self.await_answers().await;
        if self.failed.is_empty() {
            Ok(())
        } else {
            self.recover().await
        }
    }

    /// Records acknowledged so far; with acks=0, sent.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn finish_batch(&mut self, partition: usize, builder: RecordBatchBuilder) -> Result<Batch, ClientError> {
        let count = builder.records_count();
        let builder = match self.identity {
            Some((id, epoch)) => builder.producer(id, epoch, self.sequences[partition]),
            None => builder,
        };
        self.sequences[partition] = self.sequences[partition].plus(count);
        self.batches += 1;
        let records = u64::from(count.unsigned_abs());
        Ok(Batch {
            number: self.batches,
            partition,
            bytes: builder.build()?,
            records,
        })
    }

    /// Writes one request; where that fails, its batches and all in flight to that broker have failed.
    async fn request(&mut self, leader: i32, batches: Vec<Batch>) {
        let request = produce_request(&self.topic, self.options.acks, &batches);
        let acks = self.options.acks;
        let sent = match self.cluster.connection(leader).await {
            Ok(connection) if acks == Acks::None => connection.tell(&request, PRODUCE_VERSION_MAX).await,
            Ok(connection) => connection.send(&request, PRODUCE_VERSION_MAX).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) if acks == Acks::None => {
                self.acknowledged += batches.iter().map(|batch| batch.records).sum::<u64>();
            }
            Ok(()) => self.in_flight.entry(leader).or_default().push(batches),
            Err(_) => {
                self.lose(leader);
                self.failed.extend(batches);
            }
        }
    }

    /// Takes the answer to the oldest request to a broker.
    async fn receive(&mut self, leader: i32) {
        let received = match self.cluster.connection(leader).await {
            Ok(connection) if connection.in_flight() > 0 => connection.receive().await,
            Ok(_) => return self.lose(leader),
            Err(error) => Err(error),
        };
        let Ok(answer) = received else {
            return self.lose(leader);
        };
        let requests = self.in_flight.entry(leader).or_default();
        let batches = if requests.is_empty() {
            Vec::new()
        } else {
            requests.remove(0)
        };
        let Ok(response) = answer.decode::<ProduceResponse<'_>>() else {
            self.failed.extend(batches);
            return self.lose(leader);
        };
        for batch in batches {
            match outcome(&response, &self.topic, &batch) {
                Ok(()) => self.acknowledged += batch.records,
                Err(_) => self.failed.push(batch),
            }
        }
    }

    async fn await_answers(&mut self) {
        let leaders: Vec<i32> = self.in_flight.keys().copied().collect();
        for leader in leaders {
            while self
                .in_flight
                .get(&leader)
                .is_some_and(|requests| !requests.is_empty())
            {
                self.receive(leader).await;
            }
        }
    }

    /// A broken connection takes all that was in flight on it.
    fn lose(&mut self, leader: i32) {
        self.cluster.disconnect(leader);
        self.failed
            .extend(self.in_flight.remove(&leader).into_iter().flatten().flatten());
    }

    /// Sends the failed batches again, in order, each until it is acknowledged.
    async fn recover(&mut self) -> Result<(), ClientError> {
        self.await_answers().await;
        let mut failed = std::mem::take(&mut self.failed);
        failed.sort_by_key(|batch| batch.number);
        for batch in failed {
            let mut retry = Retry::new();
            while let Err(error) = self.attempt(&batch).await {
                if !error.is_retriable() {
                    return Err(error);
                }
                retry.pause_or(error).await?;
                let name = self.topic.name.clone();
                // A topic created anew with fewer partitions is not the one the batches were made for.
                if let Ok(topic) = self.cluster.topic(&name, false).await
                    && topic.partitions.len() >= self.topic.partitions.len()
                {
                    self.topic = topic;
                }
            }
            self.acknowledged += batch.records;
        }
        Ok(())
    }

    async fn attempt(&mut self, batch: &Batch) -> Result<(), ClientError> {
        let leader = self.topic.partitions[batch.partition].leader;
        let request = produce_request(&self.topic, self.options.acks, std::slice::from_ref(batch));
        let asked = match self.options.acks {
            Acks::None => self
                .cluster
                .connection(leader)
                .await?
                .tell(&request, PRODUCE_VERSION_MAX)
                .await
                .map(|()| None),
            _ => self
                .cluster
                .connection(leader)
                .await?
                .call(&request, PRODUCE_VERSION_MAX)
                .await
                .map(Some),
        };
        match asked {
            Ok(None) => Ok(()),
            Ok(Some(answer)) => outcome(&answer.decode()?, &self.topic, batch),
            Err(error) => {
                self.cluster.disconnect(leader);
                Err(error)
            }
        }
    }
}

fn produce_request<'a>(topic: &'a TopicMetadata, acks: Acks, batches: &[Batch]) -> ProduceRequest<'a> {
    let data = |batch: &Batch| PartitionProduceData {
        index: topic.partitions[batch.partition].index,
        records: Records::Bytes(batch.bytes.clone()),
    };
    ProduceRequest {
        transactional_id: None,
        acks: match acks {
            Acks::All => -1,
            Acks::Leader => 1,
            Acks::None => 0,
        },
        timeout_ms: BROKER_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: &topic.name,
            partition_data: batches.iter().map(data).collect(),
        }],
    }
}

/// What the broker says of one batch. A duplicate was written by an earlier attempt.
fn outcome(response: &ProduceResponse<'_>, topic: &TopicMetadata, batch: &Batch) -> Result<(), ClientError> {
    let index = topic.partitions[batch.partition].index;
    let what = || format!("{}-{index}", topic.name);
    let answers = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    let Some(answer) = answers.into_iter().find(|answer| answer.index == index) else {
        return Err(ClientError::Missing {
            api: ApiKey::Produce,
            what: what(),
        });
    };
    if answer.error_code == ErrorCode::DuplicateSequenceNumber.code() {
        return Ok(());
    }
    ClientError::check(answer.error_code, answer.error_message, what)
}

async fn init_producer_id(cluster: &mut Cluster) -> Result<(ProducerId, ProducerEpoch), ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: BROKER_TIMEOUT_MS,
        ..InitProducerIdRequest::default()
    };
    let mut retry = Retry::new();
    loop {
        let error = match try_init_producer_id(cluster, &request).await {
            Ok(identity) => return Ok(identity),
            Err(error) if !error.is_retriable() => return Err(error),
            Err(error) => error,
        };
        retry.pause_or(error).await?;
    }
}

async fn try_init_producer_id(
    cluster: &mut Cluster,
    request: &InitProducerIdRequest<'_>,
) -> Result<(ProducerId, ProducerEpoch), ClientError> {
    let any = cluster
        .brokers()
        .keys()
        .next()
        .copied()
        .unwrap_or(cluster.controller());
    let answer = cluster.ask(any, request, i16::MAX).await?;
    let response: InitProducerIdResponse = answer.decode()?;
    ClientError::check(response.error_code, None, || "a producer id".to_owned())?;
    Ok((
        ProducerId(response.producer_id),
        ProducerEpoch(response.producer_epoch),
    ))
}

fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
