//! A reply ready to be sent: an encoded frame and the file ranges that belong into it.

use ringlog_engine::rt::FileRange;

use crate::protocol::api_key::ApiKey;
use crate::protocol::encode::{EncodeError, EncodedFrame, Encoder};
use crate::protocol::header::encode_response_header;
use crate::protocol::messages::Message;

/// One reply. The tag of an external segment is the index of its payload.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) frame: EncodedFrame,
    pub(crate) payloads: Vec<FileRange>,
}

/// What of a request its reply needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInfo {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

impl RequestInfo {
    /// Encodes the reply to this request.
    pub(crate) fn respond<'a>(
        self,
        message: &impl Message<'a>,
        payloads: Vec<FileRange>,
    ) -> Result<Response, EncodeError> {
        let mut encoder = Encoder::default();
        encode_response_header(&mut encoder, self.api, self.version, self.correlation_id);
        message.encode(&mut encoder, self.version);
        Ok(Response {
            frame: encoder.finish()?,
            payloads,
        })
    }
}
