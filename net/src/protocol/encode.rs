//! Writing one frame as segments.
//!
//! Owns the byte-level rules on the way out and the size prefix. Record bytes are never copied: they
//! stay the caller's `Bytes`, or are only announced by length and spliced in by whoever sends the
//! frame (a file range, say). Knows no message, no file and no socket. A value that the protocol
//! cannot express does not stop the writing; [`Encoder::finish`] reports the first one.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::wire::{Version, Wire};

/// Bytes of the size prefix of every frame, which does not count itself.
pub const SIZE_PREFIX_LEN_BYTES: usize = 4;

/// Why a message could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A string longer than its length field can say (32,767 bytes in the plain form).
    #[error("string of {0} bytes does not fit its length field")]
    StringTooLong(usize),
    /// A byte field or array longer than its length field can say.
    #[error("length {0} does not fit its length field")]
    LengthTooLong(usize),
    /// A frame of 2 GiB or more, which the size prefix cannot say.
    #[error("frame of {0} bytes does not fit the size prefix")]
    FrameTooLong(usize),
    /// A version that has no definition here.
    #[error("version {0} is not defined")]
    UndefinedVersion(i16),
}

/// A field of type `records`: opaque bytes that hold record batches.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Records<'a> {
    /// No records at all, not even an empty set.
    #[default]
    Null,
    /// Borrowed from the frame that was decoded; copied when written.
    Borrowed(&'a [u8]),
    /// Shared bytes, written as a segment of their own without copying.
    Bytes(Bytes),
    /// Bytes that the sender splices in: `len_bytes` of them, known to it by `tag`.
    External {
        /// Exactly as many bytes as the sender must put here.
        len_bytes: u32,
        /// The sender's own name for the payload; not sent.
        tag: u32,
    },
}

impl fmt::Debug for Records<'_> {
    /// Tells how many bytes there are, not which.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Borrowed(bytes) => write!(f, "Borrowed({} bytes)", bytes.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::External { len_bytes, tag } => write!(f, "External({len_bytes} bytes, tag {tag})"),
        }
    }
}

impl<'a> Records<'a> {
    /// The bytes of decoded records; `None` for null and for what was never decoded.
    #[must_use]
    pub fn borrowed(&self) -> Option<&'a [u8]> {
        match self {
            Self::Borrowed(bytes) => Some(bytes),
            Self::Null | Self::Bytes(_) | Self::External { .. } => None,
        }
    }
}

/// A part of an encoded frame, to be sent in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// These bytes.
    Bytes(Bytes),
    /// The payload that [`Records::External`] announced.
    External {
        /// Its length, already counted in the size prefix.
        len_bytes: u32,
        /// Its name.
        tag: u32,
    },
}

impl Segment {
    /// Bytes that the segment puts on the wire.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::External { len_bytes, .. } => usize::try_from(*len_bytes).expect("32 bits fit in usize"),
        }
    }
}

/// A frame with its size prefix, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFrame {
    segments: Vec<Segment>,
    len_bytes: usize,
}

impl EncodedFrame {
    /// The parts in the order of sending; none is empty.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The parts, owned.
    #[must_use]
    pub fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    /// All bytes on the wire: prefix and external payloads included.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

/// Builds one frame: size prefix, header, body.
#[derive(Debug)]
pub struct Encoder {
    /// All bytes but those of the payloads.
    buffer: BytesMut,
    /// Payloads, each at its position in `buffer`, ascending.
    payloads: Vec<(usize, Segment)>,
    error: Option<EncodeError>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new(BytesMut::with_capacity(256))
    }
}

impl Encoder {
    /// Starts a frame in `buffer`, whose contents are dropped and whose capacity is used.
    #[must_use]
    pub fn new(mut buffer: BytesMut) -> Self {
        buffer.clear();
        buffer.put_bytes(0, SIZE_PREFIX_LEN_BYTES);
        Self {
            buffer,
            payloads: Vec::new(),
            error: None,
        }
    }

    /// Ends the frame and writes its size into the prefix.
    ///
    /// # Errors
    ///
    /// The first value that could not be written, or [`EncodeError::FrameTooLong`].
    pub fn finish(mut self) -> Result<EncodedFrame, EncodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let payloads_len_bytes: usize = self.payloads.iter().map(|(_, payload)| payload.len_bytes()).sum();
        let len_bytes = self.buffer.len() + payloads_len_bytes;
        let Ok(size) = i32::try_from(len_bytes - SIZE_PREFIX_LEN_BYTES) else {
            return Err(EncodeError::FrameTooLong(len_bytes));
        };
        self.buffer[..SIZE_PREFIX_LEN_BYTES].copy_from_slice(&size.to_be_bytes());

        let mut segments = Vec::with_capacity(2 * self.payloads.len() + 1);
        let mut done = 0;
        for (position, payload) in self.payloads {
            let before = self.buffer.split_to(position - done);
            done = position;
            if !before.is_empty() {
                segments.push(Segment::Bytes(before.freeze()));
            }
            segments.push(payload);
        }
        if !self.buffer.is_empty() {
            segments.push(Segment::Bytes(self.buffer.freeze()));
        }
        Ok(EncodedFrame { segments, len_bytes })
    }

    /// Keeps the first error until [`Encoder::finish`].
    #[cold]
    pub(super) fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    pub(super) fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value.to_le_bytes()[0]);
    }

    /// The length before a string: 16 bits, or compact; `None` is null.
    pub(super) fn string_len(&mut self, len: Option<usize>, version: Version) {
        if version.flexible {
            return self.compact_len(len);
        }
        match len.map(i16::try_from) {
            None => self.buffer.put_i16(-1),
            Some(Ok(len)) => self.buffer.put_i16(len),
            Some(Err(_)) => self.fail(EncodeError::StringTooLong(len.unwrap_or(0))),
        }
    }

    /// The length before bytes, or the count before elements: 32 bits, or compact; `None` is null.
    pub(super) fn bytes_len(&mut self, len: Option<usize>, version: Version) {
        if version.flexible {
            return self.compact_len(len);
        }
        match len.map(i32::try_from) {
            None => self.buffer.put_i32(-1),
            Some(Ok(len)) => self.buffer.put_i32(len),
            Some(Err(_)) => self.fail(EncodeError::LengthTooLong(len.unwrap_or(0))),
        }
    }

    fn compact_len(&mut self, len: Option<usize>) {
        match len.map_or(Ok(0), |len| u32::try_from(len.saturating_add(1))) {
            Ok(len) => self.unsigned_varint(len),
            Err(_) => self.fail(EncodeError::LengthTooLong(len.unwrap_or(0))),
        }
    }

    pub(super) fn nullable_str(&mut self, text: Option<&str>, version: Version) {
        self.string_len(text.map(str::len), version);
        self.put(text.unwrap_or("").as_bytes());
    }

    pub(super) fn nullable_bytes(&mut self, bytes: Option<&[u8]>, version: Version) {
        self.bytes_len(bytes.map(<[u8]>::len), version);
        self.put(bytes.unwrap_or(&[]));
    }

    pub(super) fn nullable_array<'a, T: Wire<'a>>(&mut self, elements: Option<&[T]>, version: Version) {
        self.bytes_len(elements.map(<[T]>::len), version);
        for element in elements.unwrap_or(&[]) {
            element.write(self, version);
        }
    }

    pub(super) fn records(&mut self, records: &Records<'_>, version: Version) {
        match records {
            Records::Null => self.bytes_len(None, version),
            Records::Borrowed(bytes) => self.nullable_bytes(Some(bytes), version),
            Records::Bytes(bytes) => {
                self.bytes_len(Some(bytes.len()), version);
                self.splice(Segment::Bytes(bytes.clone()));
            }
            Records::External { len_bytes, tag } => {
                let payload = Segment::External {
                    len_bytes: *len_bytes,
                    tag: *tag,
                };
                self.bytes_len(Some(payload.len_bytes()), version);
                self.splice(payload);
            }
        }
    }

    /// One tagged field: tag, size, value. The size is known only behind the value, so the value moves
    /// up by the width of the size.
    pub(super) fn tagged_field<'a, T: Wire<'a>>(&mut self, tag: u32, value: &T, version: Version) {
        self.unsigned_varint(tag);
        let start = self.buffer.len();
        let payloads = self.payloads.len();
        value.write(self, version);
        assert_eq!(payloads, self.payloads.len(), "a tagged field holds no records");
        let end = self.buffer.len();
        let Ok(size) = u32::try_from(end - start) else {
            return self.fail(EncodeError::LengthTooLong(end - start));
        };
        self.unsigned_varint(size);
        let size_width = self.buffer.len() - end;
        self.buffer[start..].rotate_right(size_width);
    }

    fn splice(&mut self, payload: Segment) {
        if payload.len_bytes() > 0 {
            self.payloads.push((self.buffer.len(), payload));
        }
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

    #[test]
    fn payloads_stand_between_the_bytes_around_them_and_count_in_the_size() {
        let mut encoder = Encoder::default();
        encoder.put(b"ab");
        let shared = Bytes::from_static(b"shared");
        encoder.records(&Records::Bytes(shared.clone()), PLAIN);
        encoder.records(
            &Records::External {
                len_bytes: 1000,
                tag: 7,
            },
            PLAIN,
        );
        encoder.records(&Records::Bytes(Bytes::new()), PLAIN);
        let frame = encoder.finish().unwrap();
        assert_eq!(frame.len_bytes(), 4 + 2 + 4 + 6 + 4 + 1000 + 4);
        let expected = [
            Segment::Bytes(Bytes::from_static(b"\0\0\x03\xfcab\0\0\0\x06")),
            Segment::Bytes(shared.clone()),
            Segment::Bytes(Bytes::from_static(b"\0\0\x03\xe8")),
            Segment::External {
                len_bytes: 1000,
                tag: 7,
            },
            Segment::Bytes(Bytes::from_static(b"\0\0\0\0")),
        ];
        assert_eq!(frame.segments(), expected);
        let Segment::Bytes(sent) = &frame.segments()[1] else {
            panic!("the shared bytes")
        };
        assert_eq!(
            sent.as_ptr(),
            shared.as_ptr(),
            "shared bytes are sent, not copied"
        );
    }

    #[test]
    fn tagged_field_carries_the_size_of_its_value() {
        for len in [0, 1, 125, 126, 127, 128, 20_000] {
            let text = "x".repeat(len);
            let mut encoder = Encoder::default();
            encoder.tagged_field(3, &text.as_str(), COMPACT);
            let frame = encoder.finish().unwrap();
            let Segment::Bytes(bytes) = &frame.segments()[0] else {
                panic!("no payload")
            };
            let mut with_count = vec![1];
            with_count.extend_from_slice(&bytes[SIZE_PREFIX_LEN_BYTES..]);
            let mut read = None;
            let mut reader = super::super::decode::Reader::new(&with_count);
            reader
                .tagged_fields(|tag, field| {
                    assert_eq!(tag, 3);
                    read = field.nullable_str(COMPACT)?;
                    Ok(true)
                })
                .unwrap();
            assert_eq!(read, Some(text.as_str()));
            reader.finish().unwrap();
        }
    }

    #[test]
    fn first_value_beyond_its_length_field_is_reported_at_the_end() {
        let mut encoder = Encoder::default();
        let text = "x".repeat(32_768);
        encoder.nullable_str(Some(&text), PLAIN);
        encoder.nullable_str(Some(&text[1..]), PLAIN);
        assert_eq!(encoder.finish(), Err(EncodeError::StringTooLong(32_768)));
    }

    #[test]
    fn frame_beyond_two_gibibytes_is_refused() {
        let mut encoder = Encoder::default();
        encoder.records(
            &Records::External {
                len_bytes: i32::MAX as u32,
                tag: 0,
            },
            PLAIN,
        );
        assert!(matches!(encoder.finish(), Err(EncodeError::FrameTooLong(_))));
    }
}
