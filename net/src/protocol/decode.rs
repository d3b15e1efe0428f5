//! Reading borrowed values out of one frame.
//!
//! Owns the byte-level rules of the protocol's types, plain and compact, and the bounds: nothing
//! here allocates what a length or a count claims before the bytes are there. Knows no message,
//! no version table and no socket.

use std::str::from_utf8;

use thiserror::Error;

use super::wire::{Version, Wire};

/// Memory that the arrays of one message may take in any case.
///
/// Elements are larger in memory than on the wire: up to 20 times, if every string in them is empty. What
/// real clients send stays below 6 times, so that the limit stops only those who want our memory.
pub const ARRAY_MEMORY_MIN: usize = 1 << 20;

/// Memory that the arrays of one message may take beyond [`ARRAY_MEMORY_MIN`], for each byte of its frame.
pub const ARRAY_MEMORY_PER_BYTE: usize = 8;

/// Memory that the arrays of one message may take however large it is: those of a fetch of 70,000 partitions. Answers
/// take several times as much.
pub const ARRAY_MEMORY_MAX: usize = 4 << 20;

/// Why the bytes are not the value that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The value needs more bytes than are left.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the value takes.
        needed: usize,
        /// Bytes between the position and the end of what may be read.
        left: usize,
    },
    /// A length or a count below -1, the one negative that means null.
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// An array claims more elements than the bytes left can hold.
    #[error("{count} elements claimed, {left} bytes left")]
    CountBeyondBytes {
        /// Claimed elements.
        count: usize,
        /// Bytes left for all of them.
        left: usize,
    },
    /// The arrays of the message would take too much memory; see [`ARRAY_MEMORY_PER_BYTE`].
    #[error("{count} elements are too many for a message of this size")]
    CountBeyondMemory {
        /// Claimed elements.
        count: usize,
    },
    /// Null, where this version has no null.
    #[error("null where the version does not allow it")]
    UnexpectedNull,
    /// A string that is not UTF-8.
    #[error("not UTF-8")]
    InvalidUtf8,
    /// A varint of more than five bytes, or of more than 32 bits.
    #[error("varint beyond 32 bits")]
    VarintOverflow,
    /// Bytes left over behind the last field of a message or of a tagged field.
    #[error("{0} bytes left over")]
    TrailingBytes(usize),
    /// A version that has no definition here.
    #[error("version {0} is not defined")]
    UndefinedVersion(i16),
}

/// Bytes that could not be decoded: where, at which field, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{field} at byte {position}: {problem}")]
pub struct DecodeError {
    /// `Struct.field` of the innermost field that failed; empty until a message names it.
    pub field: &'static str,
    /// Offset of the failed value from the start of the bytes given to the reader.
    pub position: usize,
    /// What was wrong.
    pub problem: Problem,
}

impl DecodeError {
    /// The same error under the name of its field, unless an inner field has named it.
    #[must_use]
    #[cold]
    pub(super) fn in_field(mut self, field: &'static str) -> Self {
        if self.field.is_empty() {
            self.field = field;
        }
        self
    }
}

/// A cursor over the bytes of one frame; values borrow from the frame for `'a`.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// What arrays may still take.
    memory_left: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start; nothing beyond them can be reached.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let for_bytes = bytes.len().saturating_mul(ARRAY_MEMORY_PER_BYTE);
        let memory_left = ARRAY_MEMORY_MIN.saturating_add(for_bytes).min(ARRAY_MEMORY_MAX);
        Self {
            bytes,
            position: 0,
            memory_left,
        }
    }

    /// Bytes consumed so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The bytes not yet consumed.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// [`Problem::TrailingBytes`] if anything is left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest().len() {
            0 => Ok(()),
            left => Err(self.error(Problem::TrailingBytes(left))),
        }
    }

    pub(super) fn error(&self, problem: Problem) -> DecodeError {
        Self::error_at(self.position, problem)
    }

    #[cold]
    pub(super) fn error_at(position: usize, problem: Problem) -> DecodeError {
        DecodeError {
            field: "",
            position,
            problem,
        }
    }

    /// The next `len_bytes` bytes.
    pub(super) fn take(&mut self, len_bytes: usize) -> Result<&'a [u8], DecodeError> {
        let rest = self.rest();
        let Some(taken) = rest.get(..len_bytes) else {
            return Err(self.error(Problem::Truncated {
                needed: len_bytes,
                left: rest.len(),
            }));
        };
        self.position += len_bytes;
        Ok(taken)
    }

    pub(super) fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let rest = self.rest();
        let Some(taken) = rest.first_chunk::<N>() else {
            return Err(self.error(Problem::Truncated {
                needed: N,
                left: rest.len(),
            }));
        };
        self.position += N;
        Ok(*taken)
    }

    /// An unsigned LEB128 number of at most 32 bits.
    pub(super) fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u64;
        for (index, &byte) in self.rest().iter().take(5).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                let value = u32::try_from(value).map_err(|_| self.error(Problem::VarintOverflow))?;
                self.position += index + 1;
                return Ok(value);
            }
        }
        match self.rest().len() {
            left @ 0..5 => Err(self.error(Problem::Truncated {
                needed: left + 1,
                left,
            })),
            _ => Err(self.error(Problem::VarintOverflow)),
        }
    }

    /// The length before a string: 16 bits, or compact; `None` is null.
    pub(super) fn string_len(&mut self, version: Version) -> Result<Option<usize>, DecodeError> {
        if version.flexible {
            return self.compact_len();
        }
        let at = self.position;
        let len = i16::from_be_bytes(self.take_array()?);
        Self::plain_len(at, i32::from(len))
    }

    /// The length before bytes, or the count before elements: 32 bits, or compact; `None` is null.
    pub(super) fn bytes_len(&mut self, version: Version) -> Result<Option<usize>, DecodeError> {
        if version.flexible {
            return self.compact_len();
        }
        let at = self.position;
        let len = i32::from_be_bytes(self.take_array()?);
        Self::plain_len(at, len)
    }

    fn plain_len(at: usize, len: i32) -> Result<Option<usize>, DecodeError> {
        match len {
            -1 => Ok(None),
            len => match usize::try_from(len) {
                Ok(len) => Ok(Some(len)),
                Err(_) => Err(Self::error_at(at, Problem::NegativeLength(len))),
            },
        }
    }

    /// A compact length is one more than the length, so that 0 is null.
    fn compact_len(&mut self) -> Result<Option<usize>, DecodeError> {
        let len = self.unsigned_varint()?;
        Ok(len
            .checked_sub(1)
            .map(|len| usize::try_from(len).expect("32 bits fit in usize")))
    }

    pub(super) fn nullable_str(&mut self, version: Version) -> Result<Option<&'a str>, DecodeError> {
        let at = self.position;
        let Some(len) = self.string_len(version)? else {
            return Ok(None);
        };
        match from_utf8(self.take(len)?) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Self::error_at(at, Problem::InvalidUtf8)),
        }
    }

    pub(super) fn nullable_bytes(&mut self, version: Version) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.bytes_len(version)? {
            Some(len) => self.take(len).map(Some),
            None => Ok(None),
        }
    }

    /// An array. Before anything is allocated the count is refused when the bytes left cannot hold that
    /// many elements of the smallest size, or when they would take more memory than the message has.
    pub(super) fn nullable_array<T: Wire<'a>>(
        &mut self,
        version: Version,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let at = self.position;
        let Some(count) = self.bytes_len(version)? else {
            return Ok(None);
        };
        let left = self.rest().len();
        if count > left / T::len_bytes_min(version) {
            return Err(Self::error_at(at, Problem::CountBeyondBytes { count, left }));
        }
        let memory = count.saturating_mul(size_of::<T>());
        let Some(memory_left) = self.memory_left.checked_sub(memory) else {
            return Err(Self::error_at(at, Problem::CountBeyondMemory { count }));
        };
        self.memory_left = memory_left;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::read(self, version)?);
        }
        Ok(Some(elements))
    }

    /// Reads the tagged fields that end a structure of a flexible version. `known` is given each tag
    /// with a reader over exactly its bytes, and says whether it took them; other tags are skipped, as
    /// the protocol demands. A known tag must use up its bytes.
    pub(super) fn tagged_fields(
        &mut self,
        mut known: impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        // Each round consumes at least two bytes, so that a hostile count ends with the frame.
        for _ in 0..self.unsigned_varint()? {
            let tag = self.unsigned_varint()?;
            let len = usize::try_from(self.unsigned_varint()?).expect("32 bits fit in usize");
            let start = self.position;
            self.take(len)?;
            let mut field = Self {
                bytes: &self.bytes[..self.position],
                position: start,
                ..*self
            };
            if known(tag, &mut field)? {
                self.memory_left = field.memory_left;
                field.finish()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Version = Version {
        number: 0,
        flexible: false,
    };
    const COMPACT: Version = Version {
        number: 0,
        flexible: true,
    };

    fn problem<T: std::fmt::Debug>(result: Result<T, DecodeError>) -> (usize, Problem) {
        let error = result.unwrap_err();
        (error.position, error.problem)
    }

    #[test]
    fn varint_takes_five_bytes_and_thirty_two_bits() {
        let varint = |bytes: &[u8]| Reader::new(bytes).unsigned_varint();
        assert_eq!(varint(&[0x00]), Ok(0));
        assert_eq!(varint(&[0xac, 0x02]), Ok(300));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(
            problem(varint(&[0xff, 0xff, 0xff, 0xff, 0x1f])),
            (0, Problem::VarintOverflow)
        );
        assert_eq!(problem(varint(&[0x80; 6])), (0, Problem::VarintOverflow));
        assert_eq!(
            problem(varint(&[0x80, 0x80])),
            (0, Problem::Truncated { needed: 3, left: 2 })
        );
        assert_eq!(
            problem(varint(&[])),
            (0, Problem::Truncated { needed: 1, left: 0 })
        );
    }

    #[test]
    fn string_of_each_form_knows_null_from_empty() {
        let plain = |bytes| Reader::new(bytes).nullable_str(PLAIN);
        assert_eq!(plain(&[0xff, 0xff]), Ok(None));
        assert_eq!(plain(&[0, 0]), Ok(Some("")));
        assert_eq!(plain(b"\x00\x02ab"), Ok(Some("ab")));
        assert_eq!(problem(plain(&[0xff, 0xfe])), (0, Problem::NegativeLength(-2)));
        assert_eq!(
            problem(plain(b"\x00\x03ab")),
            (2, Problem::Truncated { needed: 3, left: 2 })
        );
        assert_eq!(problem(plain(b"\x00\x01\xff")), (0, Problem::InvalidUtf8));
        let compact = |bytes| Reader::new(bytes).nullable_str(COMPACT);
        assert_eq!(compact(&[0]), Ok(None));
        assert_eq!(compact(&[1]), Ok(Some("")));
        assert_eq!(compact(b"\x03ab"), Ok(Some("ab")));
    }

    #[test]
    fn array_count_beyond_the_bytes_left_is_refused() {
        let plain = [0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        let count = 0x7fff_ffff;
        assert_eq!(
            problem(Reader::new(&plain).nullable_array::<i32>(PLAIN)),
            (0, Problem::CountBeyondBytes { count, left: 4 })
        );
        let compact = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3, 4];
        assert_eq!(
            problem(Reader::new(&compact).nullable_array::<i32>(COMPACT)),
            (
                0,
                Problem::CountBeyondBytes {
                    count: 0xffff_fffe,
                    left: 4
                }
            )
        );
    }

    #[test]
    fn array_that_would_take_too_much_memory_is_refused() {
        // Empty strings take one byte on the wire and sixteen in memory.
        let array = |count: u32| {
            let mut bytes = vec![1; 5 + usize::try_from(count).unwrap()];
            bytes[..5].copy_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x00]);
            for (index, byte) in bytes[..5].iter_mut().enumerate() {
                *byte |= ((count + 1) >> (7 * index)).to_le_bytes()[0] & 0x7f;
            }
            let strings = Reader::new(&bytes).nullable_array::<&str>(COMPACT)?;
            Ok(strings.map(|strings| strings.len()))
        };
        let count_max =
            u32::try_from(ARRAY_MEMORY_MIN / (size_of::<&str>() - ARRAY_MEMORY_PER_BYTE)).unwrap();
        assert_eq!(array(count_max), Ok(Some(ARRAY_MEMORY_MIN / 8)));
        let count = usize::try_from(2 * count_max).unwrap();
        assert_eq!(
            problem(array(2 * count_max)),
            (0, Problem::CountBeyondMemory { count })
        );
    }

    #[test]
    fn array_of_a_large_message_takes_no_more_memory_than_any_message_may() {
        let array = |count: usize| {
            let mut bytes = u32::try_from(count).unwrap().to_be_bytes().to_vec();
            // Empty strings of two bytes, and bytes that nobody reads.
            bytes.resize(4 + 2 * count + (16 << 20), 0);
            let strings = Reader::new(&bytes).nullable_array::<&str>(PLAIN)?;
            Ok(strings.map(|strings| strings.len()))
        };
        let count = ARRAY_MEMORY_MAX / size_of::<&str>();
        assert_eq!(array(count), Ok(Some(count)));
        let count = count + 1;
        assert_eq!(problem(array(count)), (0, Problem::CountBeyondMemory { count }));
    }

    #[test]
    fn unknown_tags_are_skipped_and_known_ones_use_their_bytes_up() {
        // Two fields: tag 7 with three bytes, tag 1 with an i16.
        let bytes = [2, 7, 3, 9, 9, 9, 1, 2, 0x12, 0x34, 0xee];
        let mut seen = None;
        let mut reader = Reader::new(&bytes);
        let mut known = |tag, field: &mut Reader<'_>| {
            if tag == 1 {
                seen = Some(i16::read(field, COMPACT)?);
            }
            Ok(tag == 1)
        };
        assert_eq!(reader.tagged_fields(&mut known), Ok(()));
        assert_eq!(seen, Some(0x1234));
        assert_eq!(reader.rest(), [0xee]);

        let long = [1, 1, 3, 0x12, 0x34, 0];
        assert_eq!(
            problem(Reader::new(&long).tagged_fields(|_, field| i16::read(field, COMPACT).map(|_| true))),
            (5, Problem::TrailingBytes(1))
        );
        let short = [1, 1, 1, 0x12, 0x34, 0];
        assert_eq!(
            problem(Reader::new(&short).tagged_fields(|_, field| i16::read(field, COMPACT).map(|_| true))),
            (3, Problem::Truncated { needed: 2, left: 1 })
        );
    }

    #[test]
    fn tag_count_of_four_billion_ends_with_the_frame() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0x0f, 5, 0, 6, 0];
        assert_eq!(
            problem(Reader::new(&bytes).tagged_fields(|_, _| Ok(false))),
            (9, Problem::Truncated { needed: 1, left: 0 })
        );
    }
}
