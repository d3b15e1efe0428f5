//! The types that a field can have.
//!
//! Each Rust type stands for one protocol type and knows how it is read, written and bounded; the
//! plain and the compact form differ by `Version::flexible` alone. Structures get theirs from
//! `define.rs`. What an `Option` means: nullable wherever the field exists.

use std::fmt;

use super::decode::{DecodeError, Problem, Reader};
use super::encode::{Encoder, Records};

/// A version of one API, with what it implies for every field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The version's number.
    pub(super) number: i16,
    /// Whether lengths are compact and structures end with tagged fields (KIP-482).
    pub(super) flexible: bool,
}

/// A value with a form on the wire.
pub trait Wire<'a>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    ///
    /// The bytes are not such a value.
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError>;

    /// Writes the value.
    fn write(&self, encoder: &mut Encoder, version: Version);

    /// No value takes fewer bytes than this, at least 1, which bounds the count of an array by the bytes left.
    fn len_bytes_min(version: Version) -> usize;

    /// A value other than the default, any field of it set, arrays of two.
    #[cfg(test)]
    fn sample(sampler: &mut super::sample::Sampler, version: Version) -> Self;
}

/// A topic's or a directory's identity; all zero where there is none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Debug for Uuid {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Uuid {
    /// No identity.
    pub const ZERO: Self = Self([0; 16]);
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl<'a> Wire<'a> for $int {
            fn read(reader: &mut Reader<'a>, _version: Version) -> Result<Self, DecodeError> {
                reader.take_array().map(Self::from_be_bytes)
            }

            fn write(&self, encoder: &mut Encoder, _version: Version) {
                encoder.put(&self.to_be_bytes());
            }

            fn len_bytes_min(_version: Version) -> usize {
                size_of::<Self>()
            }

            #[cfg(test)]
            fn sample(sampler: &mut super::sample::Sampler, _version: Version) -> Self {
                Self::from_be_bytes(sampler.bytes())
            }
        }
    )*};
}

integers!(i8 i16 i32 i64);

impl<'a> Wire<'a> for bool {
    /// Any byte but 0 is true, as clients expect.
    fn read(reader: &mut Reader<'a>, _version: Version) -> Result<Self, DecodeError> {
        reader.take_array().map(|[byte]| byte != 0)
    }

    fn write(&self, encoder: &mut Encoder, _version: Version) {
        encoder.put(&[u8::from(*self)]);
    }

    fn len_bytes_min(_version: Version) -> usize {
        1
    }

    #[cfg(test)]
    fn sample(sampler: &mut super::sample::Sampler, _version: Version) -> Self {
        sampler.coin()
    }
}

impl<'a> Wire<'a> for Uuid {
    fn read(reader: &mut Reader<'a>, _version: Version) -> Result<Self, DecodeError> {
        reader.take_array().map(Self)
    }

    fn write(&self, encoder: &mut Encoder, _version: Version) {
        encoder.put(&self.0);
    }

    fn len_bytes_min(_version: Version) -> usize {
        16
    }

    #[cfg(test)]
    fn sample(sampler: &mut super::sample::Sampler, _version: Version) -> Self {
        Self(sampler.bytes())
    }
}

/// A type with a nullable form: `$read` and `$write` handle the `Option`, and the bare type refuses null.
macro_rules! nullable {
    ([$($generics:tt)*] $type:ty, $read:ident, $write:ident, min $plain:literal, sample $sample:expr) => {
        impl<'a, $($generics)*> Wire<'a> for Option<$type> {
            fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
                reader.$read(version)
            }

            fn write(&self, encoder: &mut Encoder, version: Version) {
                encoder.$write(self.as_deref(), version);
            }

            fn len_bytes_min(version: Version) -> usize {
                if version.flexible { 1 } else { $plain }
            }

            #[cfg(test)]
            fn sample(sampler: &mut super::sample::Sampler, version: Version) -> Self {
                sampler.optional(|sampler| <$type>::sample(sampler, version))
            }
        }

        impl<'a, $($generics)*> Wire<'a> for $type {
            fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
                let at = reader.position();
                reader.$read(version)?.ok_or_else(|| Reader::error_at(at, Problem::UnexpectedNull))
            }

            fn write(&self, encoder: &mut Encoder, version: Version) {
                encoder.$write(Some(self), version);
            }

            fn len_bytes_min(version: Version) -> usize {
                if version.flexible { 1 } else { $plain }
            }

            #[cfg(test)]
            fn sample(sampler: &mut super::sample::Sampler, version: Version) -> Self {
                let sample: fn(&mut super::sample::Sampler, Version) -> Self = $sample;
                sample(sampler, version)
            }
        }
    };
}

nullable!([] &'a str, nullable_str, nullable_str, min 2, sample |sampler, _| sampler.text());
nullable!([] &'a [u8], nullable_bytes, nullable_bytes, min 4, sample |sampler, _| sampler.text().as_bytes());
nullable!([T: Wire<'a>] Vec<T>, nullable_array, nullable_array, min 4, sample |sampler, version| {
    vec![T::sample(sampler, version), T::sample(sampler, version)]
});

impl<'a> Wire<'a> for Records<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        Ok(reader.nullable_bytes(version)?.map_or(Self::Null, Self::Borrowed))
    }

    fn write(&self, encoder: &mut Encoder, version: Version) {
        encoder.records(self, version);
    }

    fn len_bytes_min(version: Version) -> usize {
        if version.flexible { 1 } else { 4 }
    }

    #[cfg(test)]
    fn sample(sampler: &mut super::sample::Sampler, version: Version) -> Self {
        Option::sample(sampler, version).map_or(Self::Null, Self::Borrowed)
    }
}

/// Reads a nullable type in a version that does not have the null yet.
pub(super) fn read_present<'a, T: Wire<'a>>(
    reader: &mut Reader<'a>,
    version: Version,
) -> Result<Option<T>, DecodeError> {
    T::read(reader, version).map(Some)
}

/// Writes a nullable type in a version that does not have the null yet: the default stands for it.
pub(super) fn write_present<'a, T: Wire<'a> + Default>(
    value: &Option<T>,
    encoder: &mut Encoder,
    version: Version,
) {
    match value {
        Some(value) => value.write(encoder, version),
        None => T::default().write(encoder, version),
    }
}

/// Whether a tagged field has something to say.
pub(super) fn differs<T: PartialEq>(value: &T, default: &T) -> bool {
    value != default
}

/// Whether each tag is greater than the one before it.
pub(super) const fn ascending(tags: &[u32]) -> bool {
    let mut index = 1;
    while index < tags.len() {
        if tags[index - 1] >= tags[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
pub(super) fn sample_present<'a, T: Wire<'a>>(
    sampler: &mut super::sample::Sampler,
    version: Version,
) -> Option<T> {
    Some(T::sample(sampler, version))
}
