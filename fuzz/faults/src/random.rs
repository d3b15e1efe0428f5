//! Numbers that follow from a seed: SplitMix64.
//!
//! Owns no choice itself; the same seed gives the same numbers on every machine.

/// See the module.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..end`.
    ///
    /// # Panics
    ///
    /// Where `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = self.number() % u64::try_from(end).expect("a usize has 64 bits");
        usize::try_from(number).expect("it is below a usize")
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}
