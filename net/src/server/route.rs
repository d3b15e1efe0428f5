//! Which shard a partition belongs to: fixed by the topic's id and the partition's number.

use ringlog_engine::types::fnv1a;
use ringlog_replication::types::TopicIdPartition;

/// The shard of `partition` among `shards`. Neighbouring partitions of one topic lie on neighbouring
/// shards, so that a topic with as many partitions as shards uses them all.
pub(crate) fn shard_of(partition: TopicIdPartition, shards: usize) -> usize {
    let shards = u64::try_from(shards).expect("few shards");
    let number = u64::from(partition.partition.unsigned_abs());
    let shard = (fnv1a(&partition.topic_id.0) % shards + number) % shards;
    usize::try_from(shard).expect("below the number of shards")
}

#[cfg(test)]
mod tests {
    use ringlog_replication::types::TopicId;

    use super::*;

    #[test]
    fn the_partitions_of_a_topic_are_spread_evenly() {
        let mut count = [0; 3];
        for partition in 0..9 {
            count[shard_of(
                TopicIdPartition {
                    topic_id: TopicId([9; 16]),
                    partition,
                },
                3,
            )] += 1;
        }
        assert_eq!(count, [3, 3, 3]);
    }
}
