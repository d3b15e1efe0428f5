//! Reads records of one topic, from all its partitions or one, by long polls to their leaders.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ringlog_engine::record::{BatchError, Record, RecordBatch};

use super::cluster::{Cluster, Retry, TopicMetadata};
use super::connection::Answer;
use super::error::ClientError;
use super::offsets::{EARLIEST, LATEST, offsets};
use crate::protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData,
};

/// From version 13 on a topic goes by its id.
const FETCH_VERSION_MAX: i16 = 12;
const WAIT_MS: i32 = 500;
const ANSWER_BYTES: i32 = 32 << 20;
const PARTITION_BYTES: i32 = 4 << 20;
/// What a batch may decompress to before it is called a bomb.
const DECOMPRESSED_MAX: usize = 256 << 20;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first readable record.
    Beginning,
    /// After the last record.
    End,
    /// At this offset of each partition.
    Offset(i64),
    /// At the first record of this timestamp, in milliseconds, or later.
    Timestamp(i64),
}

/// How far one partition has been read.
#[derive(Debug)]
struct Position {
    leader: i32,
    next_offset: i64,
    /// Where the partition ended when the consumer was opened.
    end_offset: i64,
}

/// Reads records of one topic.
#[derive(Debug)]
pub struct Consumer {
    cluster: Cluster,
    topic: String,
    positions: BTreeMap<i32, Position>,
    stop_at_end: bool,
    retry: Option<Retry>,
}

impl Consumer {
    /// A consumer of `partition`, or of all, from `start`. With `stop_at_end` it reads no further than what
    /// was there when it was opened.
    ///
    /// # Errors
    ///
    /// There is no such topic or partition, its offsets cannot be asked for, or one of the partitions cannot be
    /// read from `start`.
    pub async fn open(
        mut cluster: Cluster,
        topic: &str,
        partition: Option<i32>,
        start: Start,
        stop_at_end: bool,
    ) -> Result<Self, ClientError> {
        let mut metadata = cluster.topic(topic, false).await?;
        if let Some(index) = partition {
            let partitions = metadata.partitions.len();
            metadata.partitions.retain(|partition| partition.index == index);
            if metadata.partitions.is_empty() {
                return Err(ClientError::UnknownPartition {
                    topic: topic.to_owned(),
                    partition: index,
                    partitions,
                });
            }
        }
        let ends = offsets(&mut cluster, &metadata, LATEST).await?;
        let starts = match start {
            Start::End => ends.clone(),
            Start::Beginning => offsets(&mut cluster, &metadata, EARLIEST).await?,
            Start::Offset(offset) => {
                let firsts = offsets(&mut cluster, &metadata, EARLIEST).await?;
                for (&partition, &first) in &firsts {
                    let end = ends[&partition];
                    if !(first..=end).contains(&offset) {
                        return Err(ClientError::OffsetOutOfRange {
                            topic: metadata.name,
                            partition,
                            offset,
                            first,
                            end,
                        });
                    }
                }
                firsts.keys().map(|&index| (index, offset)).collect()
            }
            Start::Timestamp(timestamp) => offsets(&mut cluster, &metadata, timestamp).await?,
        };
        let position = |partition: &super::PartitionMetadata| {
            let end_offset = ends[&partition.index];
            let start = starts[&partition.index];
            // No record is that late: what comes next is.
            let next_offset = if start < 0 { end_offset } else { start };
            (
                partition.index,
                Position {
                    leader: partition.leader,
                    next_offset,
                    end_offset,
                },
            )
        };
        let positions = metadata.partitions.iter().map(position).collect();
        Ok(Self {
            cluster,
            topic: metadata.name,
            positions,
            stop_at_end,
            retry: None,
        })
    }

    /// Whether nothing is left to read; never without `stop_at_end`.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stop_at_end
            && self
                .positions
                .values()
                .all(|position| position.next_offset >= position.end_offset)
    }

    /// Fetches once from each leader, waiting up to half a second for records, and shows `visit` each with
    /// its partition. Where `visit` breaks, the rest of what was fetched is dropped.
    ///
    /// # Errors
    ///
    /// A leader refuses for good, a batch is corrupt, or trying again has not helped for half a minute.
    pub async fn poll<B>(
        &mut self,
        mut visit: impl FnMut(i32, &Record<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ClientError> {
        let answers = match self.fetch().await {
            Ok(answers) => answers,
            Err(error) => return self.repair(error).await.map(ControlFlow::Continue),
        };
        for answer in answers {
            match self.read(&answer, &mut visit) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(value)) => return Ok(ControlFlow::Break(value)),
                Err(error) => return self.repair(error).await.map(ControlFlow::Continue),
            }
        }
        self.retry = None;
        Ok(ControlFlow::Continue(()))
    }

    /// Asks all leaders first, then awaits their answers.
    async fn fetch(&mut self) -> Result<Vec<Answer>, ClientError> {
        let mut by_leader: BTreeMap<i32, Vec<FetchPartition>> = BTreeMap::new();
        for (&partition, position) in &self.positions {
            if self.stop_at_end && position.next_offset >= position.end_offset {
                continue;
            }
            by_leader
                .entry(position.leader)
                .or_default()
                .push(FetchPartition {
                    partition,
                    fetch_offset: position.next_offset,
                    partition_max_bytes: PARTITION_BYTES,
                    ..FetchPartition::default()
                });
        }
        let leaders: Vec<i32> = by_leader.keys().copied().collect();
        for (leader, partitions) in by_leader {
            let request = FetchRequest {
                max_wait_ms: WAIT_MS,
                min_bytes: 1,
                max_bytes: ANSWER_BYTES,
                topics: vec![FetchTopic {
                    topic: &self.topic,
                    partitions,
                    ..FetchTopic::default()
                }],
                ..FetchRequest::default()
            };
            self.cluster
                .connection(leader)
                .await?
                .send(&request, FETCH_VERSION_MAX)
                .await?;
        }
        let mut answers = Vec::with_capacity(leaders.len());
        for leader in leaders {
            answers.push(self.cluster.connection(leader).await?.receive().await?);
        }
        Ok(answers)
    }

    fn read<B>(
        &mut self,
        answer: &Answer,
        visit: &mut impl FnMut(i32, &Record<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ClientError> {
        let response: FetchResponse<'_> = answer.decode()?;
        ClientError::check(response.error_code, None, || self.topic.clone())?;
        let mut refused = None;
        for data in response.responses.iter().flat_map(|topic| &topic.partitions) {
            let Some(position) = self.positions.get_mut(&data.partition_index) else {
                continue;
            };
            let limit = if self.stop_at_end {
                position.end_offset
            } else {
                i64::MAX
            };
            match read_partition(&self.topic, data, position, limit, visit) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(value)) => return Ok(ControlFlow::Break(value)),
                // What other partitions sent is not wasted on one that has moved.
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(ControlFlow::Continue(())), Err)
    }

    /// After an error that may pass: waits, and finds the leaders anew.
    async fn repair(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.is_retriable() {
            return Err(error);
        }
        self.retry.get_or_insert_with(Retry::new).pause_or(error).await?;
        // Answers that are still due would be taken for those of the next fetch.
        for leader in self.positions.values().map(|position| position.leader) {
            self.cluster.disconnect(leader);
        }
        let topic: TopicMetadata = self.cluster.topic(&self.topic, false).await?;
        for partition in topic.partitions {
            if let Some(position) = self.positions.get_mut(&partition.index) {
                position.leader = partition.leader;
            }
        }
        Ok(())
    }
}

/// Walks the batches of one partition's answer. Its first batch may begin before the offset asked for, and
/// its last may be cut off.
fn read_partition<B>(
    topic: &str,
    data: &PartitionData<'_>,
    position: &mut Position,
    limit: i64,
    visit: &mut impl FnMut(i32, &Record<'_>) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, ClientError> {
    let partition = data.partition_index;
    let place = |offset: i64| format!("{topic}-{partition} at offset {offset}");
    ClientError::check(data.error_code, None, || place(position.next_offset))?;
    let mut bytes = data.records.borrowed().unwrap_or_default();
    while !bytes.is_empty() {
        let at = position.next_offset;
        let batch = match RecordBatch::parse(bytes) {
            Ok(batch) => batch,
            Err(BatchError::Incomplete { .. }) => break,
            Err(source) => {
                return Err(ClientError::Batch {
                    what: place(at),
                    source,
                });
            }
        };
        batch.verify_crc().map_err(|source| ClientError::Batch {
            what: place(at),
            source,
        })?;
        bytes = &bytes[batch.bytes().len()..];
        if !batch.header().attributes().is_control() {
            let unreadable = |source| ClientError::Record {
                what: place(at),
                source,
            };
            for record in &batch.records(DECOMPRESSED_MAX).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                if record.offset.0 < position.next_offset || record.offset.0 >= limit {
                    continue;
                }
                position.next_offset = record.offset.0 + 1;
                if let ControlFlow::Break(value) = visit(partition, &record) {
                    return Ok(ControlFlow::Break(value));
                }
            }
        }
        // Past records that compaction removed from the end of the batch, and past control records.
        position.next_offset = position.next_offset.max(batch.header().next_offset().0);
    }
    Ok(ControlFlow::Continue(()))
}
