//! The file `partition.metadata`: which topic a log's directory belongs to, whatever its name.
//!
//! Two lines of text; the id is 16 bytes in URL-safe base64 (RFC 4648) without padding, 22
//! characters. A topic created anew under an old name has another id. Tested below.

use thiserror::Error;

/// The characters of URL-safe base64, by value.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters of an id: six bits each, the last with four bits of zero.
const ID_CHARS: usize = 22;

/// Why `partition.metadata` cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PartitionMetadataError {
    /// It does not consist of the two lines.
    #[error("partition.metadata is not a version and a topic id")]
    Format,
    /// Only version 0 is known.
    #[error("partition.metadata version is not 0")]
    Version,
    /// The id is not 16 bytes of base64, or all zero, which stands for no id.
    #[error("partition.metadata holds no topic id")]
    TopicId,
}

/// The contents of `partition.metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The topic's id, not all zero.
    pub topic_id: [u8; 16],
}

impl PartitionMetadata {
    /// The text of the file.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("version: 0\ntopic_id: {}", encode_topic_id(self.topic_id))
    }

    /// Reads the whole file.
    ///
    /// # Errors
    ///
    /// Any [`PartitionMetadataError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PartitionMetadataError> {
        let text = str::from_utf8(bytes).map_err(|_| PartitionMetadataError::Format)?;
        let mut lines = text.trim_end().lines();
        let mut field = |name| {
            let (key, value) = lines.next()?.split_once(':')?;
            (key == name).then_some(value.trim())
        };
        let version = field("version").ok_or(PartitionMetadataError::Format)?;
        if version != "0" {
            return Err(PartitionMetadataError::Version);
        }
        let topic_id = field("topic_id").ok_or(PartitionMetadataError::Format)?;
        if lines.next().is_some() {
            return Err(PartitionMetadataError::Format);
        }
        match decode_topic_id(topic_id) {
            Some(topic_id) if topic_id != [0; 16] => Ok(Self { topic_id }),
            _ => Err(PartitionMetadataError::TopicId),
        }
    }
}

/// A topic id as text: 22 characters of URL-safe base64.
#[must_use]
pub fn encode_topic_id(id: [u8; 16]) -> String {
    let padded = u128::from_be_bytes(id);
    (0..ID_CHARS)
        .map(|i| {
            // The 22nd character has two bits left of the 128.
            let sextet = if i < ID_CHARS - 1 {
                padded >> (122 - 6 * i)
            } else {
                padded << 4
            };
            char::from(ALPHABET[(sextet & 0x3f) as usize])
        })
        .collect()
}

/// Reads a topic id; `None` where the text is none.
#[must_use]
pub fn decode_topic_id(text: &str) -> Option<[u8; 16]> {
    if text.len() != ID_CHARS {
        return None;
    }
    let mut id = 0_u128;
    for (i, byte) in text.bytes().enumerate() {
        let sextet = ALPHABET.iter().position(|&char| char == byte)? as u128;
        if i < ID_CHARS - 1 {
            id = id << 6 | sextet;
        } else if sextet & 0xf == 0 {
            id = id << 2 | sextet >> 4;
        } else {
            return None;
        }
    }
    Some(id.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_is_kafkas_text_and_comes_back() {
        let metadata = PartitionMetadata {
            topic_id: *b"0123456789abcdef",
        };
        let text = metadata.encode();
        assert_eq!(text, "version: 0\ntopic_id: MDEyMzQ1Njc4OWFiY2RlZg");
        assert_eq!(PartitionMetadata::decode(text.as_bytes()), Ok(metadata));
        assert_eq!(
            PartitionMetadata::decode(format!("{text}\n").as_bytes()),
            Ok(metadata)
        );
        let high = PartitionMetadata { topic_id: [0xff; 16] };
        assert_eq!(high.encode(), "version: 0\ntopic_id: _____________________w");
        assert_eq!(PartitionMetadata::decode(high.encode().as_bytes()), Ok(high));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let decode = |text: &str| PartitionMetadata::decode(text.as_bytes()).unwrap_err();
        assert_eq!(decode(""), PartitionMetadataError::Format);
        assert_eq!(decode("version: 0"), PartitionMetadataError::Format);
        assert_eq!(
            decode("topic_id: MDEyMzQ1Njc4OWFiY2RlZg"),
            PartitionMetadataError::Format
        );
        assert_eq!(
            decode("version: 1\ntopic_id: MDEyMzQ1Njc4OWFiY2RlZg"),
            PartitionMetadataError::Version
        );
        for id in [
            "",
            "MDEyMzQ1Njc4OWFiY2RlZ",
            "MDEyMzQ1Njc4OWFiY2RlZh",
            "MDEyMzQ1Njc4OWFiY2RlZ+",
        ] {
            assert_eq!(
                decode(&format!("version: 0\ntopic_id: {id}")),
                PartitionMetadataError::TopicId
            );
        }
        let zero = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(decode(zero), PartitionMetadataError::TopicId);
        assert_eq!(
            PartitionMetadata::decode(b"\xff"),
            Err(PartitionMetadataError::Format)
        );
    }

    proptest! {
        #[test]
        fn any_id_comes_back(topic_id: [u8; 16]) {
            prop_assume!(topic_id != [0; 16]);
            let metadata = PartitionMetadata { topic_id };
            prop_assert_eq!(PartitionMetadata::decode(metadata.encode().as_bytes()), Ok(metadata));
        }

        #[test]
        fn random_text_never_panics(text in ".{0,60}") {
            let _ = PartitionMetadata::decode(text.as_bytes());
            let _ = decode_topic_id(&text);
        }
    }
}
