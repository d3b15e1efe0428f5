//! Zig-zag variable-length integers, as inside records; seven bits a byte, least significant first.
//!
//! Reading advances the given slice and never past its end. Over-long encodings that do not
//! fit the type are refused. Property tests below.

use thiserror::Error;

/// Why bytes are not a variable-length integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VarintError {
    /// The bytes end within it.
    #[error("the bytes end within a varint")]
    Truncated,
    /// It does not fit its type.
    #[error("varint does not fit {max_bytes} bytes")]
    TooLong {
        /// The most bytes its type takes: 5 or 10.
        max_bytes: usize,
    },
}

/// The most bytes of a 32-bit integer.
const MAX_BYTES_32: usize = 5;
/// The most bytes of a 64-bit integer.
const MAX_BYTES_64: usize = 10;

fn read_unsigned(bytes: &mut &[u8], max_bytes: usize) -> Result<u64, VarintError> {
    let mut value = 0_u64;
    for i in 0..max_bytes {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(VarintError::Truncated);
        };
        *bytes = rest;
        // The tenth byte has room for one bit; more would be lost by the shift.
        if i == MAX_BYTES_64 - 1 && byte > 1 {
            return Err(VarintError::TooLong { max_bytes });
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(VarintError::TooLong { max_bytes })
}

/// Reads a 32-bit integer from the front of `bytes` and advances it.
pub(super) fn read_i32(bytes: &mut &[u8]) -> Result<i32, VarintError> {
    let raw = read_unsigned(bytes, MAX_BYTES_32)?;
    let Ok(raw) = u32::try_from(raw) else {
        return Err(VarintError::TooLong {
            max_bytes: MAX_BYTES_32,
        });
    };
    Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
}

/// Reads a 64-bit integer from the front of `bytes` and advances it.
pub(super) fn read_i64(bytes: &mut &[u8]) -> Result<i64, VarintError> {
    let raw = read_unsigned(bytes, MAX_BYTES_64)?;
    Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Appends `value`; the encodings of 32 and 64 bits agree.
pub(super) fn write(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that `write` appends: 1 to 10.
pub(super) fn len_bytes(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, value);
        out
    }

    #[test]
    fn known_values_have_known_bytes() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (-65, &[0x81, 0x01]),
            (8191, &[0xfe, 0x7f]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (
                i64::MIN,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            ),
        ] {
            assert_eq!(encoded(value), bytes, "{value}");
        }
    }

    #[test]
    fn too_large_for_its_type_is_refused() {
        let mut bytes = &[0xff, 0xff, 0xff, 0xff, 0x1f][..];
        assert_eq!(read_i32(&mut bytes), Err(VarintError::TooLong { max_bytes: 5 }));
        let mut bytes = &[0xff; 20][..];
        assert_eq!(read_i32(&mut bytes), Err(VarintError::TooLong { max_bytes: 5 }));
        let mut bytes = &[0xff; 20][..];
        assert_eq!(read_i64(&mut bytes), Err(VarintError::TooLong { max_bytes: 10 }));
        let mut bytes = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..];
        assert_eq!(read_i64(&mut bytes), Err(VarintError::TooLong { max_bytes: 10 }));
    }

    proptest! {
        #[test]
        fn every_value_comes_back(value: i64, narrow: i32, tail: Vec<u8>) {
            let mut wide = encoded(value);
            prop_assert_eq!(wide.len(), len_bytes(value));
            wide.extend(&tail);
            let mut rest = &wide[..];
            prop_assert_eq!(read_i64(&mut rest), Ok(value));
            prop_assert_eq!(rest, &tail[..]);

            let bytes = encoded(i64::from(narrow));
            prop_assert_eq!(read_i32(&mut &bytes[..]), Ok(narrow));
        }

        #[test]
        fn every_cut_is_truncated(value: i64) {
            let bytes = encoded(value);
            for cut in 0..bytes.len() {
                prop_assert_eq!(read_i64(&mut &bytes[..cut]), Err(VarintError::Truncated));
            }
        }
    }
}
