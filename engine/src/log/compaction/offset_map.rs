//! From the hash of a key to the latest offset it has: what a pass of the cleaner knows of the dirty
//! records, within a budget of bytes.
//!
//! Open addressing over slots of 24 bytes: 16 of hash, 8 of offset. Says when it is full, so that a
//! pass covers a first part of the dirty records only. Knows no files. Tested below.
//!
//! The keys themselves are not kept, so two keys with one hash would count as one, and the older of
//! their records would go. The hash has 128 bits and is keyed anew for each map: the two halves are
//! std's `HashDoS`-resistant hash under two random keys. Of n keys, two agree by chance with a
//! probability of about n^2 / 2^129: for 2^28 keys (a budget of 7 GiB) 2^-73. Nor can a producer make
//! keys that do, since it cannot know the hash's own. Apache Kafka takes the MD5 of a key, for which
//! anyone can make such pairs.

use std::hash::{BuildHasher, RandomState};

use crate::types::Offset;

/// Hash, hash, offset + 1; all zero where there is none, so that fresh memory need not be touched.
type Slot = [u64; 3];

/// See the module.
#[derive(Debug)]
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    keys: usize,
    keys_max: usize,
    hashers: [RandomState; 2],
}

impl OffsetMap {
    /// A map of at most `budget_bytes`, of which at most `load_percent` (1 to 99) are filled, and with
    /// room for at least one key; it takes no more memory than `keys_wanted` keys need.
    pub(super) fn new(budget_bytes: usize, load_percent: usize, keys_wanted: usize) -> Self {
        let load_percent = load_percent.clamp(1, 99);
        let wanted = keys_wanted.saturating_add(1).saturating_mul(100) / load_percent;
        // One slot always stays free, which ends every search.
        let slots = (budget_bytes / size_of::<Slot>()).min(wanted).max(2);
        Self {
            slots: vec![[0; 3]; slots],
            keys: 0,
            keys_max: (slots * load_percent / 100).clamp(1, slots - 1),
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Notes that `key` has a record at `offset`, which lies above all it had before. False where the
    /// map is full and does not know the key.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let (hash, at) = self.find(key);
        let slot = &mut self.slots[at];
        if slot[2] == 0 {
            if self.keys == self.keys_max {
                return false;
            }
            self.keys += 1;
        }
        *slot = [hash[0], hash[1], offset.0.cast_unsigned() + 1];
        true
    }

    /// The latest offset that `key` was put with.
    pub(super) fn latest(&self, key: &[u8]) -> Option<Offset> {
        let (_, at) = self.find(key);
        let offset = self.slots[at][2].checked_sub(1)?;
        Some(Offset(offset.cast_signed()))
    }

    /// Keys in the map.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// The key's hash, and its slot or the free one where it would be.
    fn find(&self, key: &[u8]) -> ([u64; 2], usize) {
        let hash = [0, 1].map(|half: usize| self.hashers[half].hash_one(key));
        let slots = self.slots.len();
        // The hash as a fraction of the whole: no bits are lost for a number of slots that is no
        // power of two.
        let start = (u128::from(hash[0]) * slots as u128) >> 64;
        let mut at = usize::try_from(start).expect("below the number of slots");
        loop {
            let slot = &self.slots[at];
            if slot[2] == 0 || slot[..2] == hash {
                return (hash, at);
            }
            at += 1;
            if at == slots {
                at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_latest_offset_of_each_key_is_found() {
        let mut map = OffsetMap::new(1 << 20, 90, 10_000);
        let mut model = HashMap::new();
        for offset in 0..20_000_i64 {
            let key = (offset * 7919 % 5_003).to_be_bytes();
            assert!(map.put(&key, Offset(offset)));
            model.insert(key, Offset(offset));
        }
        assert_eq!(map.keys(), model.len());
        for (key, offset) in &model {
            assert_eq!(map.latest(key), Some(*offset));
        }
        assert_eq!(map.latest(b"never"), None);
        assert_eq!(map.latest(b""), None);
    }

    #[test]
    fn a_full_map_takes_new_offsets_but_no_new_keys() {
        let mut map = OffsetMap::new(100 * 24, 90, 1_000);
        let taken = (0..100_u8)
            .filter(|&key| map.put(&[key], Offset(i64::from(key))))
            .count();
        assert_eq!((taken, map.keys()), (90, 90));
        assert!(map.put(&[0], Offset(500)) && !map.put(&[99], Offset(501)));
        assert_eq!(map.latest(&[0]), Some(Offset(500)));
        assert_eq!(map.latest(&[99]), None);
    }

    #[test]
    fn there_is_room_for_one_key_however_small_the_budget() {
        let mut map = OffsetMap::new(0, 90, 0);
        assert!(map.put(b"a", Offset(0)) && map.put(b"a", Offset(1)) && !map.put(b"b", Offset(2)));
        assert_eq!((map.latest(b"a"), map.latest(b"b")), (Some(Offset(1)), None));
    }

    #[test]
    fn no_more_memory_is_taken_than_the_keys_need() {
        let map = OffsetMap::new(1 << 30, 50, 100);
        assert_eq!((map.slots.len(), map.keys_max), (202, 101));
    }
}
