//! ApiVersions: what this broker speaks.

use crate::protocol::api_key::ApiKey;
use crate::protocol::api_versions::{TABLE, of};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use crate::server::dispatch::{CloseReason, PendingReply, Request, ready, respond};
use crate::server::response::RequestInfo;

pub(crate) fn handle(request: &Request) -> Result<PendingReply, CloseReason> {
    let body: ApiVersionsRequest<'_> = request.decode()?;
    let named = is_software_name(body.client_software_name) && is_software_name(body.client_software_version);
    if request.info.version >= 3 && !named {
        let error_code = ErrorCode::InvalidRequest.code();
        return request.reply(&ApiVersionsResponse {
            error_code,
            ..ApiVersionsResponse::default()
        });
    }
    request.reply(&ApiVersionsResponse {
        api_keys: TABLE.iter().map(|row| entry(row.api)).collect(),
        ..ApiVersionsResponse::default()
    })
}

/// KIP-511: letters and digits, with dots and dashes between them.
fn is_software_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(|byte| inner(*byte))
}

/// The answer to a version this broker does not know: in version 0, with the range of this one API.
pub(crate) fn unsupported_version(correlation_id: i32) -> Result<PendingReply, CloseReason> {
    let info = RequestInfo {
        api: ApiKey::ApiVersions,
        version: 0,
        correlation_id,
    };
    let response = respond(
        info,
        &ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: vec![entry(ApiKey::ApiVersions)],
            ..ApiVersionsResponse::default()
        },
    )?;
    Ok(ready(response))
}

fn entry(api: ApiKey) -> ApiVersion {
    let range = &of(api).advertised;
    ApiVersion {
        api_key: api.key(),
        min_version: *range.start(),
        max_version: *range.end(),
    }
}
