//! Bytes that no honest peer sends, at every message: an error, never a panic.

use proptest::prelude::*;

use super::api_versions;
use super::decode::Problem;
use super::roundtrip::{CODECS, Codec};

fn for_each_version(mut test: impl FnMut(&Codec, i16)) {
    for codec in CODECS {
        for version in api_versions::of(codec.api).defined.clone() {
            test(codec, version);
        }
    }
}

#[test]
fn every_message_cut_short_is_refused_within_its_bytes() {
    for_each_version(|codec, version| {
        let bytes = (codec.sample)(2, version);
        for len in 0..bytes.len() {
            let error = (codec.decode)(&bytes[..len], version).expect_err(&format!(
                "{} version {version}: {len} of {} bytes",
                codec.name,
                bytes.len()
            ));
            assert!(error.position <= len, "{error}");
            assert!(
                error.field.contains('.') || error.problem != Problem::UnexpectedNull,
                "{error}"
            );
        }
    });
}

#[test]
fn every_message_with_bytes_left_over_is_refused() {
    for_each_version(|codec, version| {
        let mut bytes = (codec.sample)(2, version);
        let len = bytes.len();
        bytes.push(0);
        let error = (codec.decode)(&bytes, version).unwrap_err();
        assert_eq!(
            (error.position, error.problem),
            (len, Problem::TrailingBytes(1)),
            "{}",
            codec.name
        );
    });
}

#[test]
fn undefined_version_is_refused_at_both_ends() {
    for codec in CODECS {
        let defined = &api_versions::of(codec.api).defined;
        for version in [defined.start() - 1, defined.end() + 1, i16::MIN, i16::MAX] {
            let error = (codec.decode)(&[], version).unwrap_err();
            assert_eq!(
                error.problem,
                Problem::UndefinedVersion(version),
                "{}",
                codec.name
            );
        }
    }
}

fn any_codec() -> impl Strategy<Value = (Codec, i16)> {
    prop::sample::select(CODECS).prop_flat_map(|codec| {
        let versions = api_versions::of(codec.api).defined.clone();
        (Just(codec), versions)
    })
}

/// Bytes among which lengths, counts and nulls are common.
fn hostile_byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        prop::sample::select(&[0x00, 0x01, 0x02, 0x7f, 0x80, 0xff][..]),
        any::<u8>()
    ]
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn arbitrary_bytes_never_panic((codec, version) in any_codec(), bytes in prop::collection::vec(hostile_byte(), 0..256)) {
        if let Err(error) = (codec.decode)(&bytes, version) {
            prop_assert!(error.position <= bytes.len());
        }
    }

    #[test]
    fn garbled_messages_never_panic(
        (codec, version) in any_codec(),
        seed in 0u64..8,
        garbled in prop::collection::vec((any::<prop::sample::Index>(), hostile_byte()), 1..4),
    ) {
        let mut bytes = (codec.sample)(seed, version);
        prop_assume!(!bytes.is_empty());
        for (index, byte) in garbled {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if let Err(error) = (codec.decode)(&bytes, version) {
            prop_assert!(error.position <= bytes.len());
        }
    }
}
