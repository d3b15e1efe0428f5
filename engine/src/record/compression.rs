//! The codecs of Kafka's batches, each behind a feature, with a hard cap on output.
//!
//! Knows bytes only. Where the format allows several framings, all are read and the one every
//! client reads is written: snappy is read raw or in snappy-java's blocks, and written in blocks;
//! lz4 is the frame format with independent blocks, since Kafka refuses dependent ones; zstd
//! frames need not state their size. Tested below; hostile batches in `proptests.rs`.

use thiserror::Error;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy, in snappy-java's framing.
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// In the order of their ids.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of an id as in a batch's attributes.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// The id as in a batch's attributes, 0 to 4.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name as in Kafka's `compression.type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Why bytes could not be compressed or decompressed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompressionError {
    /// The codec was left out of this build.
    #[error("this build lacks the codec {}", codec.name())]
    NotCompiledIn {
        /// The codec.
        codec: Compression,
    },
    /// The output would be larger than allowed.
    #[error("{} output exceeds {max_output_bytes} bytes", codec.name())]
    OutputLimit {
        /// The codec.
        codec: Compression,
        /// The cap given.
        max_output_bytes: usize,
    },
    /// The bytes are not of this codec.
    #[error("corrupt {} data", codec.name())]
    Corrupt {
        /// The codec.
        codec: Compression,
    },
    /// The codec refused to compress.
    #[error("{} could not compress", codec.name())]
    Compress {
        /// The codec.
        codec: Compression,
    },
}

/// Compresses `input` whole.
///
/// # Errors
///
/// [`CompressionError::NotCompiledIn`]; [`CompressionError::Compress`] where the codec itself fails
/// (out of memory, or snappy beyond 4 GiB).
pub fn compress(codec: Compression, input: &[u8]) -> Result<Vec<u8>, CompressionError> {
    match codec {
        Compression::None => Ok(input.to_vec()),
        #[cfg(feature = "gzip")]
        Compression::Gzip => gzip::compress(input),
        #[cfg(feature = "snappy")]
        Compression::Snappy => snappy::compress(input),
        #[cfg(feature = "lz4")]
        Compression::Lz4 => lz4::compress(input),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstandard::compress(input),
        #[cfg(not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")))]
        codec => Err(CompressionError::NotCompiledIn { codec }),
    }
}

/// Decompresses `input` whole, to at most `max_output_bytes`.
///
/// Memory follows the output as it comes, never a size that the input claims.
///
/// # Errors
///
/// [`CompressionError::NotCompiledIn`], [`CompressionError::Corrupt`], [`CompressionError::OutputLimit`].
pub fn decompress(
    codec: Compression,
    input: &[u8],
    max_output_bytes: usize,
) -> Result<Vec<u8>, CompressionError> {
    match codec {
        Compression::None if input.len() > max_output_bytes => Err(CompressionError::OutputLimit {
            codec,
            max_output_bytes,
        }),
        Compression::None => Ok(input.to_vec()),
        #[cfg(feature = "gzip")]
        Compression::Gzip => gzip::decompress(input, max_output_bytes),
        #[cfg(feature = "snappy")]
        Compression::Snappy => snappy::decompress(input, max_output_bytes),
        #[cfg(feature = "lz4")]
        Compression::Lz4 => lz4::decompress(input, max_output_bytes),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstandard::decompress(input, max_output_bytes),
        #[cfg(not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")))]
        codec => Err(CompressionError::NotCompiledIn { codec }),
    }
}

/// Reads to the end, but at most one byte past the cap.
#[cfg(any(feature = "gzip", feature = "lz4", feature = "zstd"))]
fn read_capped(
    codec: Compression,
    reader: impl std::io::Read,
    max_output_bytes: usize,
) -> Result<Vec<u8>, CompressionError> {
    use std::io::Read as _;

    let mut output = Vec::new();
    let limit = u64::try_from(max_output_bytes)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut output)
        .map_err(|_| CompressionError::Corrupt { codec })?;
    if output.len() > max_output_bytes {
        return Err(CompressionError::OutputLimit {
            codec,
            max_output_bytes,
        });
    }
    Ok(output)
}

#[cfg(feature = "gzip")]
mod gzip {
    use std::io::Write as _;

    use flate2::read::MultiGzDecoder;
    use flate2::write::GzEncoder;

    use super::{Compression, CompressionError, read_capped};

    const CODEC: Compression = Compression::Gzip;

    pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder
            .write_all(input)
            .and_then(|()| encoder.finish())
            .map_err(|_| CompressionError::Compress { codec: CODEC })
    }

    /// Several members in a row are one stream, as Java's reader has it.
    pub(super) fn decompress(input: &[u8], max_output_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        read_capped(CODEC, MultiGzDecoder::new(input), max_output_bytes)
    }
}

#[cfg(feature = "snappy")]
mod snappy {
    use super::{Compression, CompressionError};

    const CODEC: Compression = Compression::Snappy;
    const CORRUPT: CompressionError = CompressionError::Corrupt { codec: CODEC };
    const FAILED: CompressionError = CompressionError::Compress { codec: CODEC };

    /// snappy-java's stream header: a magic, its version and the oldest version that can read it.
    const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
    const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
    /// Input of one block, snappy-java's default.
    const BLOCK_BYTES: usize = 32 * 1024;
    /// A copy takes three bytes and makes at most 64, so no honest block claims more than this.
    const EXPANSION_MAX: usize = 22;

    pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let mut output = [MAGIC, VERSIONS].concat();
        let mut encoder = snap::raw::Encoder::new();
        for block in input.chunks(BLOCK_BYTES) {
            let compressed = encoder.compress_vec(block).map_err(|_| FAILED)?;
            let len = u32::try_from(compressed.len()).map_err(|_| FAILED)?;
            output.extend(len.to_be_bytes());
            output.extend(compressed);
        }
        Ok(output)
    }

    /// Some clients send one raw block without snappy-java's header.
    pub(super) fn decompress(input: &[u8], max_output_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        let mut output = Vec::new();
        let Some(stream) = input.strip_prefix(&MAGIC) else {
            append_block(&mut output, input, max_output_bytes)?;
            return Ok(output);
        };
        let mut rest = stream.get(VERSIONS.len()..).ok_or(CORRUPT)?;
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| CORRUPT)?;
            let (block, after) = after.split_at_checked(len).ok_or(CORRUPT)?;
            append_block(&mut output, block, max_output_bytes)?;
            rest = after;
        }
        if rest.is_empty() { Ok(output) } else { Err(CORRUPT) }
    }

    fn append_block(
        output: &mut Vec<u8>,
        block: &[u8],
        max_output_bytes: usize,
    ) -> Result<(), CompressionError> {
        let len = snap::raw::decompress_len(block).map_err(|_| CORRUPT)?;
        if len > max_output_bytes - output.len() {
            return Err(CompressionError::OutputLimit {
                codec: CODEC,
                max_output_bytes,
            });
        }
        if len > block.len().saturating_mul(EXPANSION_MAX) {
            return Err(CORRUPT);
        }
        let start = output.len();
        output.resize(start + len, 0);
        let written = snap::raw::Decoder::new()
            .decompress(block, &mut output[start..])
            .map_err(|_| CORRUPT)?;
        if written == len { Ok(()) } else { Err(CORRUPT) }
    }
}

#[cfg(feature = "lz4")]
mod lz4 {
    use std::io::Write as _;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

    use super::{Compression, CompressionError, read_capped};

    const CODEC: Compression = Compression::Lz4;

    pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let info = FrameInfo::new()
            .block_mode(BlockMode::Independent)
            .block_size(BlockSize::Max64KB);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        let written = encoder.write_all(input);
        match (written, encoder.finish()) {
            (Ok(()), Ok(output)) => Ok(output),
            _ => Err(CompressionError::Compress { codec: CODEC }),
        }
    }

    pub(super) fn decompress(input: &[u8], max_output_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        read_capped(CODEC, FrameDecoder::new(input), max_output_bytes)
    }
}

#[cfg(feature = "zstd")]
mod zstandard {
    use super::{Compression, CompressionError, read_capped};

    const CODEC: Compression = Compression::Zstd;
    /// The level of Kafka's clients and of zstd itself.
    const LEVEL: i32 = zstd::DEFAULT_COMPRESSION_LEVEL;

    pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressionError> {
        zstd::bulk::compress(input, LEVEL).map_err(|_| CompressionError::Compress { codec: CODEC })
    }

    /// Streaming, since a frame may not state its size, and one that does may lie. The window it asks
    /// for is bounded by zstd's own limit of 128 MiB, as in Kafka, and touched only as output comes.
    pub(super) fn decompress(input: &[u8], max_output_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        let decoder = zstd::stream::read::Decoder::with_buffer(input)
            .map_err(|_| CompressionError::Corrupt { codec: CODEC })?;
        read_capped(CODEC, decoder, max_output_bytes)
    }
}

#[cfg(all(test, feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"ringlog ringlog ringlog ringlog";

    #[test]
    fn raw_snappy_is_read_as_well_as_framed() {
        let raw = snap::raw::Encoder::new().compress_vec(TEXT).unwrap();
        assert_eq!(decompress(Compression::Snappy, &raw, 100).unwrap(), TEXT);
        let framed = compress(Compression::Snappy, TEXT).unwrap();
        assert_eq!(framed[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
        assert_eq!(framed[16..20], u32::try_from(raw.len()).unwrap().to_be_bytes());
        assert_eq!(framed[20..], raw);
    }

    #[test]
    fn snappy_blocks_must_be_whole() {
        let framed = compress(Compression::Snappy, &[7; 100_000]).unwrap();
        assert_eq!(
            decompress(Compression::Snappy, &framed, 100_000).unwrap(),
            [7; 100_000]
        );
        let corrupt = Err(CompressionError::Corrupt {
            codec: Compression::Snappy,
        });
        for cut in [10, framed.len() - 1, framed.len() - 30] {
            assert_eq!(
                decompress(Compression::Snappy, &framed[..cut], 100_000),
                corrupt,
                "{cut}"
            );
        }
    }

    #[test]
    fn a_claimed_size_is_not_allocated() {
        // A raw snappy block of four bytes that claims 256 MiB.
        let block = [0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(
            decompress(Compression::Snappy, &block, 1 << 30),
            Err(CompressionError::Corrupt {
                codec: Compression::Snappy
            })
        );
    }

    #[test]
    fn lz4_is_written_with_independent_blocks() {
        let frame = compress(Compression::Lz4, TEXT).unwrap();
        assert_eq!(frame[..4], [0x04, 0x22, 0x4d, 0x18]);
        assert_eq!(frame[4] & 0xe0, 0x60, "version 1, block independence");
    }

    #[test]
    fn zstd_frames_need_not_state_their_size() {
        let stream = zstd::stream::encode_all(TEXT, 3).unwrap();
        assert_eq!(zstd::zstd_safe::get_frame_content_size(&stream).unwrap(), None);
        assert_eq!(decompress(Compression::Zstd, &stream, 100).unwrap(), TEXT);
    }

    #[test]
    fn gzip_members_in_a_row_are_one_stream() {
        let member = compress(Compression::Gzip, TEXT).unwrap();
        let both = decompress(Compression::Gzip, &[&member[..], &member].concat(), 100).unwrap();
        assert_eq!(both, [TEXT, TEXT].concat());
    }

    #[test]
    fn ids_and_codecs_map_both_ways() {
        for codec in Compression::ALL {
            assert_eq!(Compression::from_id(codec.id()), Some(codec));
        }
        assert_eq!(Compression::from_id(5), None);
    }

    proptest! {
        #[test]
        fn output_comes_back_and_never_passes_the_cap(
            pattern in prop::collection::vec(any::<u8>(), 1..64),
            times in 0_usize..2000,
            codec in prop::sample::select(Compression::ALL.to_vec()),
        ) {
            let input = pattern.repeat(times);
            let compressed = compress(codec, &input).unwrap();
            let output = decompress(codec, &compressed, input.len()).unwrap();
            prop_assert!(output == input);
            if let Some(max_output_bytes) = input.len().checked_sub(1) {
                prop_assert_eq!(
                    decompress(codec, &compressed, max_output_bytes),
                    Err(CompressionError::OutputLimit { codec, max_output_bytes })
                );
            }
        }

        #[test]
        fn random_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            codec in prop::sample::select(Compression::ALL.to_vec()),
        ) {
            if let Ok(output) = decompress(codec, &bytes, 1000) {
                prop_assert!(output.len() <= 1000);
            }
        }
    }
}
