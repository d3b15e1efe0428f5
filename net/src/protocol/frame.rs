//! The size prefix, and the place of borrowed bytes in a frame.
//!
//! Every message on a connection is a frame: a 32-bit size, then that many bytes. Reading them from a
//! socket is the server's, which lets its buffer grow as bytes arrive and never by the size.

use std::ops::Range;

use thiserror::Error;

use super::encode::SIZE_PREFIX_LEN_BYTES;

/// A size that no frame may have; the connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The size is below zero.
    #[error("negative frame size {0}")]
    Negative(i32),
    /// The size is beyond the limit.
    #[error("frame of {len_bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// Size in the prefix.
        len_bytes: usize,
        /// The limit, `socket.request.max.bytes`.
        max: usize,
    },
}

/// The bytes that follow the prefix: at most `max`.
///
/// # Errors
///
/// The size is negative or beyond `max`.
pub fn frame_len_bytes(prefix: [u8; SIZE_PREFIX_LEN_BYTES], max: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(prefix);
    let len_bytes = usize::try_from(size).map_err(|_| FrameError::Negative(size))?;
    if len_bytes > max {
        return Err(FrameError::TooLong { len_bytes, max });
    }
    Ok(len_bytes)
}

/// Where `part` lies in `frame`, when it was borrowed from it: the way from a decoded field back to an
/// owned slice of the frame's buffer. `None` if it lies elsewhere.
#[must_use]
pub fn range_in_frame(frame: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(frame.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= frame.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_bounded_below_and_above() {
        assert_eq!(frame_len_bytes([0, 0, 1, 0], 256), Ok(256));
        assert_eq!(
            frame_len_bytes([0, 0, 1, 1], 256),
            Err(FrameError::TooLong {
                len_bytes: 257,
                max: 256
            })
        );
        assert_eq!(frame_len_bytes([0xff; 4], 256), Err(FrameError::Negative(-1)));
    }

    #[test]
    fn borrowed_part_is_found_in_its_frame_only() {
        let frame = b"frame with a part".to_vec();
        assert_eq!(range_in_frame(&frame, &frame[6..10]), Some(6..10));
        assert_eq!(range_in_frame(&frame, &frame), Some(0..17));
        assert_eq!(range_in_frame(&frame[6..], &frame[..6]), None);
        assert_eq!(range_in_frame(&frame[..6], &frame[4..8]), None);
    }
}
