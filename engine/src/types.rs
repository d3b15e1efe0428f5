//! The engine's newtypes: one meaning each, never mixed, no `From` between them.
//!
//! Offsets count records in a log, positions count bytes in a file, and the two never meet
//! without a name. Bounds of the watermarks are in `docs/invariants.md`.

use std::fmt;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype! {
    /// The place of a record in a log, from 0; never reused within one log.
    Offset(i64)
}
newtype! {
    /// Counts the leaders of one partition; -1 where unknown.
    LeaderEpoch(i32)
}
newtype! {
    /// Identifies an idempotent or transactional producer; -1 for neither.
    ProducerId(i64)
}
newtype! {
    /// Fences earlier incarnations of one producer id.
    ProducerEpoch(i16)
}
newtype! {
    /// The place of a record in one producer's stream to one partition; wraps from `i32::MAX` to 0.
    Sequence(i32)
}
newtype! {
    /// Milliseconds since 1970-01-01T00:00:00Z; -1 where there is none.
    TimestampMs(i64)
}
newtype! {
    /// One log among those a shard owns; chosen by the owner, unique within the shard.
    LogId(u32)
}

impl Offset {
    /// The offset `records` further on.
    ///
    /// # Panics
    ///
    /// Past `i64::MAX`, which no log reaches.
    #[must_use]
    pub fn plus(self, records: i64) -> Self {
        Self(self.0.checked_add(records).expect("offset within i64"))
    }
}

impl LeaderEpoch {
    /// The leader epoch is not known.
    pub const NONE: Self = Self(-1);
}

impl ProducerId {
    /// The batch has no producer identity.
    pub const NONE: Self = Self(-1);
}

impl TimestampMs {
    /// There is no timestamp.
    pub const NONE: Self = Self(-1);
}

impl Sequence {
    /// The sequence `records` further on, wrapping from `i32::MAX` to 0 as producers do.
    #[must_use]
    pub fn plus(self, records: i32) -> Self {
        let sum = i64::from(self.0) + i64::from(records);
        let wrapped = sum.rem_euclid(i64::from(i32::MAX) + 1);
        Self(i32::try_from(wrapped).expect("a remainder below 2^31"))
    }
}

/// FNV-1a, 64 bits: stable over releases and machines, which the standard library's hasher is not.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // From the FNV test vectors: fnv1a_64("foobar").
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
