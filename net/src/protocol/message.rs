//! What a whole request or response can do: be decoded and encoded in a version of its API.
//!
//! Joins the structures of `messages/` to the table of versions; knows neither headers nor frames.

use super::api_key::ApiKey;
use super::api_versions;
use super::decode::{DecodeError, Problem, Reader};
use super::encode::{EncodeError, Encoder};
use super::wire::{Version, Wire};

/// A whole request or response.
pub trait Message<'a>: Wire<'a> {
    /// The API it belongs to.
    const API: ApiKey;

    /// Reads the message in a version of its API and leaves the reader behind it.
    ///
    /// # Errors
    ///
    /// The version is not defined, or the bytes are no such message: the error names field and position.
    fn decode(reader: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {
        match defined_version(Self::API, version) {
            Some(version) => Self::read(reader, version),
            None => Err(reader.error(Problem::UndefinedVersion(version))),
        }
    }

    /// Reads the message from a whole body.
    ///
    /// # Errors
    ///
    /// As [`Message::decode`]; and bytes left over behind the message.
    fn decode_body(body: &'a [u8], version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let message = Self::decode(&mut reader, version)?;
        reader.finish()?;
        Ok(message)
    }

    /// Writes the message in a version of its API. Fields that the version does not have are left out.
    /// What cannot be written is reported by [`Encoder::finish`].
    fn encode(&self, encoder: &mut Encoder, version: i16) {
        match defined_version(Self::API, version) {
            Some(version) => self.write(encoder, version),
            None => encoder.fail(EncodeError::UndefinedVersion(version)),
        }
    }
}

fn defined_version(api: ApiKey, number: i16) -> Option<Version> {
    let flexible = api_versions::is_flexible(api, number);
    api_versions::of(api)
        .defined
        .contains(&number)
        .then_some(Version { number, flexible })
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::ApiVersionsRequest as OracleApiVersionsRequest;
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::protocol::encode::{EncodedFrame, Records, Segment};
    use crate::protocol::frame::range_in_frame;
    use crate::protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
    use crate::protocol::messages::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
    use crate::protocol::messages::find_coordinator::FindCoordinatorResponse;
    use crate::protocol::messages::metadata::MetadataRequest;
    use crate::protocol::messages::produce::ProduceRequest;

    fn frame<'a>(message: &impl Message<'a>, version: i16) -> EncodedFrame {
        let mut encoder = Encoder::default();
        message.encode(&mut encoder, version);
        encoder.finish().unwrap()
    }

    /// The frame on the wire, each external payload replaced by as many `x`.
    fn sent(frame: EncodedFrame) -> Vec<u8> {
        let segments = frame.into_segments();
        let bytes = segments.into_iter().map(|segment| match segment {
            Segment::Bytes(bytes) => bytes.to_vec(),
            external @ Segment::External { .. } => vec![b'x'; external.len_bytes()],
        });
        bytes.collect::<Vec<_>>().concat()
    }

    #[test]
    fn tagged_fields_with_default_values_are_not_sent() {
        // Size, error, no APIs, throttle time, and no tags at all.
        assert_eq!(
            sent(frame(&ApiVersionsResponse::default(), 3)),
            b"\0\0\0\x08\0\0\x01\0\0\0\0\0"
        );
        let with_epoch = ApiVersionsResponse {
            finalized_features_epoch: 0,
            ..Default::default()
        };
        assert_eq!(
            sent(frame(&with_epoch, 3)),
            b"\0\0\0\x12\0\0\x01\0\0\0\0\x01\x01\x08\0\0\0\0\0\0\0\0"
        );
    }

    #[test]
    fn tagged_fields_from_the_future_are_skipped() {
        let mut bytes = BytesMut::new();
        OracleApiVersionsRequest::default()
            .with_client_software_name("kcat".into())
            .with_client_software_version("1.7".into())
            .with_unknown_tagged_field(7, Bytes::from_static(b"later"))
            .with_unknown_tagged_field(900, Bytes::new())
            .encode(&mut bytes, 4)
            .unwrap();
        let expected = ApiVersionsRequest {
            client_software_name: "kcat",
            client_software_version: "1.7",
        };
        assert_eq!(ApiVersionsRequest::decode_body(&bytes, 4), Ok(expected));
    }

    #[test]
    fn null_is_written_as_empty_and_refused_before_the_version_that_brought_it() {
        let all = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        assert_eq!(sent(frame(&all, 0)), b"\0\0\0\x04\0\0\0\0");
        assert_eq!(sent(frame(&all, 1)), b"\0\0\0\x04\xff\xff\xff\xff");
        assert_eq!(MetadataRequest::decode_body(b"\xff\xff\xff\xff", 1), Ok(all));
        let error = DecodeError {
            field: "MetadataRequest.topics",
            position: 0,
            problem: Problem::UnexpectedNull,
        };
        assert_eq!(MetadataRequest::decode_body(b"\xff\xff\xff\xff", 0), Err(error));
    }

    #[test]
    fn fields_of_other_versions_are_left_out() {
        let response = FindCoordinatorResponse {
            node_id: 3,
            host: "h",
            port: 9,
            ..Default::default()
        };
        assert_eq!(
            sent(frame(&response, 0)),
            b"\0\0\0\x0d\0\0\0\0\0\x03\0\x01h\0\0\0\x09"
        );
        assert_eq!(sent(frame(&response, 4)), b"\0\0\0\x06\0\0\0\0\x01\0");
    }

    #[test]
    fn spliced_records_stand_where_their_bytes_would() {
        let response = |records: Records<'static>| FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: "orders",
                partitions: [(1, records), (2, Records::Null)]
                    .map(|(partition_index, records)| PartitionData {
                        partition_index,
                        records,
                        ..Default::default()
                    })
                    .to_vec(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let plain = response(Records::Borrowed(&[b'x'; 300]));
        let spliced = response(Records::External {
            len_bytes: 300,
            tag: 5,
        });
        let shared = response(Records::Bytes(Bytes::from_static(&[b'x'; 300])));
        for version in api_versions::of(ApiKey::Fetch).defined.clone() {
            let expected = sent(frame(&plain, version));
            let frame_spliced = frame(&spliced, version);
            assert_eq!(frame_spliced.segments().len(), 3);
            assert_eq!(
                frame_spliced.segments()[1],
                Segment::External {
                    len_bytes: 300,
                    tag: 5
                }
            );
            assert_eq!(frame_spliced.len_bytes(), expected.len());
            assert_eq!(sent(frame_spliced), expected);
            assert_eq!(sent(frame(&shared, version)), expected);
        }
    }

    #[test]
    fn records_are_found_again_in_their_frame() {
        let body = b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0\0\x03abc";
        let request = ProduceRequest::decode_body(body, 3).unwrap();
        let records = request.topic_data[0].partition_data[0]
            .records
            .borrowed()
            .unwrap();
        assert_eq!(range_in_frame(body, records), Some(body.len() - 3..body.len()));
    }
}
