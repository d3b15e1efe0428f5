//! The simulated disk's own source of chance: the same seed, the same disk, on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Its
//! numbers are part of what a named seed of a regression means, so it is not to change. Tested
//! below and in `tests/sim_disk.rs`.

/// Numbers that look random and follow from a seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Any seed is as good as another.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is at least 1. The bias, less than `bound / 2^64`, does no harm.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// An index below `bound`, which is at least 1.
    ///
    /// # Panics
    ///
    /// Where `bound` is 0.
    pub fn index(&mut self, bound: usize) -> usize {
        let index = self.below(u64::try_from(bound).expect("a length fits 64 bits"));
        usize::try_from(index).expect("below a usize")
    }

    /// True once in `one_in` times.
    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next_u64());
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
