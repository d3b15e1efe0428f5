//! Reads choices from a fuzzer's bytes: numbers and stretches, from the front, zero past the end.

/// What is left of the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Up to `len` bytes, fewer at the end.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// A number below `bound`, which is at least 1 and at most 65,536.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let choice = if bound <= 256 {
            u16::from(self.u8())
        } else {
            self.u16()
        };
        usize::from(choice) % bound
    }
}
