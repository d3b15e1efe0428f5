//! The language in which messages are defined.
//!
//! One line per field, in the order of the wire, as in the protocol guide:
//!
//! ```text
//! name: Type, [versions] null [versions] tag N = default;
//! ```
//!
//! Versions are `[3+]` or `[4-11]`; a field outside of them is not on the wire, keeps its default when
//! read and is left out when written. `null` is given only where the null came later than the field:
//! before, `None` is written as the empty value and null is refused. A field with a `tag` is tagged, and
//! written only when it differs from its default: some clients stumble over tags that say nothing.
//! `pub struct Name for Api` marks the structure that is a whole request or response; its versions
//! and the first flexible one stand in `api_versions.rs`.

/// Whether a version is in a set of versions.
macro_rules! in_versions {
    ($version:expr, [$min:literal +]) => {
        $version.number >= $min
    };
    ($version:expr, [$min:literal - $max:literal]) => {
        ($min..=$max).contains(&$version.number)
    };
}

/// A field's default: what its line says, else its type's.
macro_rules! default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

/// Applies one of two functions, by whether the field can be null in the version.
macro_rules! by_nullability {
    ($version:expr, [], $nullable:path, $present:path) => {
        $nullable
    };
    ($version:expr, [$null:tt], $nullable:path, $present:path) => {
        if in_versions!($version, $null) {
            $nullable
        } else {
            $present
        }
    };
}

/// Whether a field is untagged, by its tag or the absence of one.
macro_rules! untagged {
    () => {
        true
    };
    ($tag:literal) => {
        false
    };
}

/// 1 for a tagged field that has something to say in the version, else 0.
macro_rules! told {
    ([] $($rest:tt)*) => {
        0
    };
    ([$tag:literal] $value:expr, $version:ident $versions:tt, $($default:expr)?) => {
        u32::from(in_versions!($version, $versions) && wire::differs(&$value, &default!($($default)?)))
    };
}

/// Writes a tagged field that has something to say.
macro_rules! write_tagged {
    ([] $($rest:tt)*) => {};
    ([$tag:literal] $value:expr, $encoder:ident, $version:ident $versions:tt, $($default:expr)?) => {
        if in_versions!($version, $versions) && wire::differs(&$value, &default!($($default)?)) {
            $encoder.tagged_field($tag, &$value, $version);
        }
    };
}

/// Reads a tagged field if the tag is its own, and is done with the tag then.
macro_rules! read_tagged {
    ([] $($rest:tt)*) => {};
    ([$own:literal] $tag:ident, $value:expr, $reader:ident, $version:ident $versions:tt, $name:expr) => {
        if $tag == $own && in_versions!($version, $versions) {
            $value = Wire::read($reader, $version).map_err(|error| error.in_field($name))?;
            return Ok(true);
        }
    };
}

/// Draws a sample of a tagged field.
#[cfg(test)]
macro_rules! sample_tagged {
    ([] $($rest:tt)*) => {};
    ([$tag:literal] $value:expr, $sampler:ident, $version:ident $versions:tt) => {
        if in_versions!($version, $versions) {
            $value = Wire::sample($sampler, $version);
        }
    };
}

/// Defines the structures of an API's request and response; see the module for the language.
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident $(<$life:lifetime>)? $(for $api:ident)? { $($fields:tt)* }
    )*) => {$(
        structure! {
            [$(#[$doc])*] $name [$($life)?] { $($fields)* }
        }

        whole_message!([$($api)?] $name [$($life)?]);
    )*};
}

/// A structure that is a whole message of an API, or is none.
macro_rules! whole_message {
    ([] $($rest:tt)*) => {};
    ([$api:ident] $name:ident [$($life:lifetime)?]) => {
        impl<'a> $crate::protocol::messages::Message<'a> for $name $(<$life>)? {
            const API: $crate::protocol::api_key::ApiKey = $crate::protocol::api_key::ApiKey::$api;
        }
    };
}

/// One structure: its fields, their defaults, and how they are read and written.
macro_rules! structure {
    ([$($docs:tt)*] $name:ident [$($life:lifetime)?] {$(
        $(#[$doc:meta])*
        $field:ident: $type:ty, $versions:tt $(null $null:tt)? $(tag $tag:literal)? $(= $default:expr)?;
    )*}) => {
        $($docs)*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                Self { $($field: default!($($default)?),)* }
            }
        }

        const _: () = {
            use $crate::protocol::decode::{DecodeError, Reader};
            use $crate::protocol::encode::Encoder;
            use $crate::protocol::wire::{self, Version, Wire};

            assert!(wire::ascending(&[$($($tag,)?)*]), "tags are written in ascending order");

            impl<'a> Wire<'a> for $name $(<$life>)? {
                fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
                    let mut value = Self::default();
                    $(
                        if untagged!($($tag)?) && in_versions!(version, $versions) {
                            let read = by_nullability!(version, [$($null)?], Wire::read, wire::read_present);
                            value.$field = read(reader, version)
                                .map_err(|error| error.in_field(field_name!($name $field)))?;
                        }
                    )*
                    if version.flexible {
                        reader.tagged_fields(|tag, reader| {
                            $(read_tagged!(
                                [$($tag)?] tag, value.$field, reader, version $versions, field_name!($name $field)
                            );)*
                            let _ = (tag, reader);
                            Ok(false)
                        })?;
                    }
                    Ok(value)
                }

                fn write(&self, encoder: &mut Encoder, version: Version) {
                    $(
                        if untagged!($($tag)?) && in_versions!(version, $versions) {
                            let write = by_nullability!(version, [$($null)?], Wire::write, wire::write_present);
                            write(&self.$field, encoder, version);
                        }
                    )*
                    if version.flexible {
                        encoder.unsigned_varint(
                            0 $(+ told!([$($tag)?] self.$field, version $versions, $($default)?))*
                        );
                        $(write_tagged!(
                            [$($tag)?] self.$field, encoder, version $versions, $($default)?
                        );)*
                    }
                }

                fn len_bytes_min(version: Version) -> usize {
                    // The count of the tagged fields takes a byte also where it is 0.
                    let mut len = usize::from(version.flexible);
                    $(
                        if untagged!($($tag)?) && in_versions!(version, $versions) {
                            len += <$type>::len_bytes_min(version);
                        }
                    )*
                    len
                }

                #[cfg(test)]
                fn sample(sampler: &mut $crate::protocol::sample::Sampler, version: Version) -> Self {
                    let mut value = Self::default();
                    $(
                        if untagged!($($tag)?) && in_versions!(version, $versions) {
                            let sample = by_nullability!(version, [$($null)?], Wire::sample, wire::sample_present);
                            value.$field = sample(sampler, version);
                        }
                        sample_tagged!([$($tag)?] value.$field, sampler, version $versions);
                    )*
                    value
                }
            }

            // A nullable structure has a byte before it: -1 for null, 1 else.
            impl<'a> Wire<'a> for Option<$name $(<$life>)?> {
                fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
                    match i8::read(reader, version)? {
                        ..0 => Ok(None),
                        0.. => <$name>::read(reader, version).map(Some),
                    }
                }

                fn write(&self, encoder: &mut Encoder, version: Version) {
                    match self {
                        None => (-1i8).write(encoder, version),
                        Some(value) => {
                            1i8.write(encoder, version);
                            value.write(encoder, version);
                        }
                    }
                }

                fn len_bytes_min(_version: Version) -> usize {
                    1
                }

                #[cfg(test)]
                fn sample(sampler: &mut $crate::protocol::sample::Sampler, version: Version) -> Self {
                    sampler.optional(|sampler| <$name>::sample(sampler, version))
                }
            }
        };
    };
}

/// The name under which an error tells of a field.
macro_rules! field_name {
    ($name:ident $field:ident) => {
        concat!(stringify!($name), ".", stringify!($field))
    };
}
