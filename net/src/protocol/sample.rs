//! Seeded sample values of any message, for the tests against the oracle.

/// Draws values; the same seed draws the same ones.
#[derive(Debug)]
pub struct Sampler {
    state: u64,
    /// How often, of 8 times, an optional value is absent.
    nulls: u64,
}

impl Sampler {
    /// Seed 0 draws no null, seed 1 nothing but nulls, all others a mixture.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: seed,
            nulls: [0, 8, 3][usize::try_from(seed.min(2)).unwrap()],
        }
    }

    /// SplitMix64, by Steele, Lea and Flood (OOPSLA 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next().to_le_bytes()[0])
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    /// One of some texts, the longer one past what a one-byte compact length can say.
    pub(super) fn text<'a>(&mut self) -> &'a str {
        const LONG: &str = "a text of more than one hundred and twenty-seven bytes, because that is \
            where the compact length starts to take its second byte: ........";
        const TEXTS: [&str; 8] = [
            "a",
            "orders",
            "payments",
            "café",
            "rack-1",
            "127.0.0.1",
            "kafka",
            LONG,
        ];
        TEXTS[usize::try_from(self.next() % 8).unwrap()]
    }

    pub(super) fn optional<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.next() % 8 >= self.nulls).then(|| draw(self))
    }
}
