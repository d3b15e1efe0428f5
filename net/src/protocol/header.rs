//! Request and response headers.
//!
//! A request header is read before anything is known of the client, so this is where an unknown API
//! or version is found out. What to do about it is the server's: close the connection, but answer
//! ApiVersions in version 0 (KIP-511).

use thiserror::Error;

use super::api_key::ApiKey;
use super::api_versions;
use super::decode::{DecodeError, Reader};
use super::encode::Encoder;
use super::wire::{Version, Wire};

/// What stands before every request's body. The client id is a string of the plain form also in
/// header version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// The API asked for.
    pub api: ApiKey,
    /// Version of the body; one that `api_versions` defines when the header was decoded.
    pub api_version: i16,
    /// To be sent back with the response.
    pub correlation_id: i32,
    /// The name that the client gives itself.
    pub client_id: Option<&'a str>,
}

/// Why a request cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The header's bytes are no header.
    #[error("malformed request header: {0}")]
    Malformed(#[from] DecodeError),
    /// An API that has no messages here.
    #[error("API key {api_key} (version {api_version}) is not supported{}", missing(*api_key))]
    UnsupportedApi {
        /// The unknown key.
        api_key: i16,
        /// The version asked for.
        api_version: i16,
    },
    /// A known API in a version outside of its range.
    #[error("{api} version {api_version} is not supported")]
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        api_version: i16,
        /// For the answer that ApiVersions gets nevertheless.
        correlation_id: i32,
    },
}

/// What such a request would need, where that is known.
fn missing(api_key: i16) -> &'static str {
    match api_key {
        8 | 9 | 11..=16 | 42 | 47 | 68 | 69 => ": there are no consumer groups yet",
        24..=26 | 28 | 65 | 66 => ": there are no transactions yet",
        17 | 36 => ": there is no SASL yet",
        _ => "",
    }
}

/// The plain form, whatever the version of the API.
const PLAIN: Version = Version {
    number: 1,
    flexible: false,
};

/// Splits a frame (without its size prefix) into header and body.
///
/// # Errors
///
/// See [`RequestError`]. The body is not looked at.
pub fn decode_request(frame: &[u8]) -> Result<(RequestHeader<'_>, &[u8]), RequestError> {
    let reader = &mut Reader::new(frame);
    let api_key = i16::read(reader, PLAIN).map_err(|error| error.in_field("RequestHeader.api_key"))?;
    let api_version =
        i16::read(reader, PLAIN).map_err(|error| error.in_field("RequestHeader.api_version"))?;
    let correlation_id =
        i32::read(reader, PLAIN).map_err(|error| error.in_field("RequestHeader.correlation_id"))?;
    let Some(api) = ApiKey::from_key(api_key) else {
        return Err(RequestError::UnsupportedApi { api_key, api_version });
    };
    if !api_versions::of(api).defined.contains(&api_version) {
        return Err(RequestError::UnsupportedVersion {
            api,
            api_version,
            correlation_id,
        });
    }
    let client_id = reader
        .nullable_str(PLAIN)
        .map_err(|error| error.in_field("RequestHeader.client_id"))?;
    if api_versions::request_header(api, api_version) >= 2 {
        reader
            .tagged_fields(|_, _| Ok(false))
            .map_err(|error| error.in_field("RequestHeader.tags"))?;
    }
    Ok((
        RequestHeader {
            api,
            api_version,
            correlation_id,
            client_id,
        },
        reader.rest(),
    ))
}

/// Splits a response's frame (without its size prefix) into correlation id and body, knowing what
/// was asked.
///
/// # Errors
///
/// The frame ends within the header.
pub fn decode_response(api: ApiKey, api_version: i16, frame: &[u8]) -> Result<(i32, &[u8]), DecodeError> {
    let reader = &mut Reader::new(frame);
    let correlation_id =
        i32::read(reader, PLAIN).map_err(|error| error.in_field("ResponseHeader.correlation_id"))?;
    if api_versions::response_header(api, api_version) >= 1 {
        reader
            .tagged_fields(|_, _| Ok(false))
            .map_err(|error| error.in_field("ResponseHeader.tags"))?;
    }
    Ok((correlation_id, reader.rest()))
}

impl RequestHeader<'_> {
    /// Writes the header in the version that goes with the API's.
    pub fn encode(&self, encoder: &mut Encoder) {
        self.api.key().write(encoder, PLAIN);
        self.api_version.write(encoder, PLAIN);
        self.correlation_id.write(encoder, PLAIN);
        encoder.nullable_str(self.client_id, PLAIN);
        if api_versions::request_header(self.api, self.api_version) >= 2 {
            encoder.unsigned_varint(0);
        }
    }
}

/// Writes the header of the response to a request of this API and version.
pub fn encode_response_header(encoder: &mut Encoder, api: ApiKey, api_version: i16, correlation_id: i32) {
    correlation_id.write(encoder, PLAIN);
    if api_versions::response_header(api, api_version) >= 1 {
        encoder.unsigned_varint(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::decode::Problem;

    #[test]
    fn flexible_request_keeps_a_plain_client_id_and_skips_tags() {
        let frame = b"\0\x03\0\x09\0\0\0\x07\0\x04kcat\x01\x05\x02ab+body";
        let (header, body) = decode_request(frame).unwrap();
        let expected = RequestHeader {
            api: ApiKey::Metadata,
            api_version: 9,
            correlation_id: 7,
            client_id: Some("kcat"),
        };
        assert_eq!(header, expected);
        assert_eq!(body, b"+body");
    }

    #[test]
    fn plain_request_may_have_no_client_id() {
        let (header, body) = decode_request(b"\0\x03\0\x08\0\0\0\x07\xff\xffbody").unwrap();
        assert_eq!((header.client_id, body), (None, &b"body"[..]));
    }

    #[test]
    fn unknown_version_is_told_with_the_correlation_id() {
        let frame = b"\0\x12\0\x63\0\0\0\x2a\xff";
        assert_eq!(
            decode_request(frame),
            Err(RequestError::UnsupportedVersion {
                api: ApiKey::ApiVersions,
                api_version: 99,
                correlation_id: 42
            })
        );
    }

    #[test]
    fn unknown_api_and_short_header_are_told_apart() {
        assert_eq!(
            decode_request(b"\x03\xe7\0\x01\0\0\0\0"),
            Err(RequestError::UnsupportedApi {
                api_key: 999,
                api_version: 1
            })
        );
        for (api_key, needed) in [
            (11, ": there are no consumer groups yet"),
            (24, ": there are no transactions yet"),
            (17, ": there is no SASL yet"),
            (999, ""),
        ] {
            let api_version = 1;
            let error = RequestError::UnsupportedApi { api_key, api_version };
            let expected = format!("API key {api_key} (version 1) is not supported{needed}");
            assert_eq!(error.to_string(), expected);
        }
        let error = DecodeError {
            field: "RequestHeader.correlation_id",
            position: 4,
            problem: Problem::Truncated { needed: 4, left: 2 },
        };
        assert_eq!(
            decode_request(b"\0\x03\0\x08\0\0"),
            Err(RequestError::Malformed(error))
        );
    }
}
