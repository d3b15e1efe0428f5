//! One TCP connection to a broker: versions negotiated once, requests pipelined, answers in order.
//!
//! An answer's buffer grows with the bytes that arrive, never with the size that is claimed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::ClientError;
use crate::protocol::api_key::ApiKey;
use crate::protocol::api_versions;
use crate::protocol::encode::{Encoder, SIZE_PREFIX_LEN_BYTES, Segment};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::frame_len_bytes;
use crate::protocol::header::{RequestHeader, decode_response};
use crate::protocol::messages::Message;
use crate::protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};

/// The name brokers see in their logs.
const CLIENT_ID: &str = "ringlog";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than any wait a request asks the broker for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// A fetch of the largest batch fits; a stray HTTP server's greeting does not.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A connection whose broker's versions are known.
#[derive(Debug)]
pub struct Connection {
    address: String,
    stream: TcpStream,
    versions: BTreeMap<i16, (i16, i16)>,
    correlation_id: i32,
    in_flight: VecDeque<Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
}

/// The bytes of an answer; the message decoded from it borrows them.
#[derive(Debug)]
pub struct Answer {
    address: String,
    api: ApiKey,
    version: i16,
    frame: Vec<u8>,
    body_at: usize,
}

impl Answer {
    /// The message.
    ///
    /// # Errors
    ///
    /// The bytes are no such message.
    pub fn decode<'a, R: Message<'a>>(&'a self) -> Result<R, ClientError> {
        R::decode_body(&self.frame[self.body_at..], self.version).map_err(|source| ClientError::Malformed {
            address: self.address.clone(),
            api: self.api,
            source,
        })
    }
}

impl Connection {
    /// Connects to `host:port` and asks which versions the broker speaks.
    ///
    /// # Errors
    ///
    /// The broker cannot be reached, does not answer, or is none.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Connect {
            address: address.to_owned(),
            source,
        };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut connection = Self {
            address: address.to_owned(),
            stream,
            versions: BTreeMap::new(),
            correlation_id: 0,
            in_flight: VecDeque::new(),
        };
        connection.negotiate().await?;
        Ok(connection)
    }

    /// A broker that does not know our version answers in version 0 with its own range (KIP-511).
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: CLIENT_ID,
            client_software_version: env!("CARGO_PKG_VERSION"),
        };
        let mut version = *api_versions::of(ApiKey::ApiVersions).defined.end();
        loop {
            self.send_version(&request, version).await?;
            let mut answer = self.receive().await?;
            let unsupported = ErrorCode::UnsupportedVersion.code().to_be_bytes();
            if version > 0 && answer.frame[answer.body_at..].starts_with(&unsupported) {
                answer.version = 0;
                let response: ApiVersionsResponse<'_> = answer.decode()?;
                let own = response
                    .api_keys
                    .iter()
                    .find(|api| api.api_key == ApiKey::ApiVersions.key());
                version = own.map_or(0, |own| own.max_version.clamp(0, version - 1));
                continue;
            }
            let response: ApiVersionsResponse<'_> = answer.decode()?;
            ClientError::check(response.error_code, None, || self.address.clone())?;
            self.versions = response
                .api_keys
                .iter()
                .map(|api| (api.api_key, (api.min_version, api.max_version)))
                .collect();
            return Ok(());
        }
    }

    /// Asks and waits for the answer. `version_max` keeps the request below versions in which its fields
    /// mean something else.
    ///
    /// # Errors
    ///
    /// No common version, a broken connection, no answer in time.
    pub async fn call<'a, Q: Message<'a>>(
        &mut self,
        request: &Q,
        version_max: i16,
    ) -> Result<Answer, ClientError> {
        self.send(request, version_max).await?;
        self.receive().await
    }

    /// Asks, and leaves the answer to a later [`receive`](Self::receive).
    ///
    /// # Errors
    ///
    /// No common version, a broken connection.
    pub async fn send<'a, Q: Message<'a>>(
        &mut self,
        request: &Q,
        version_max: i16,
    ) -> Result<(), ClientError> {
        let version = self.version(Q::API, version_max)?;
        self.send_version(request, version).await
    }

    /// Sends what the broker does not answer: a produce request with acks=0.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn tell<'a, Q: Message<'a>>(
        &mut self,
        request: &Q,
        version_max: i16,
    ) -> Result<(), ClientError> {
        self.send(request, version_max).await?;
        self.in_flight.pop_back();
        Ok(())
    }

    /// The answer to the oldest request.
    ///
    /// # Errors
    ///
    /// A broken connection, no answer in time, or one that belongs to another request.
    ///
    /// # Panics
    ///
    /// When nothing was asked.
    pub async fn receive(&mut self) -> Result<Answer, ClientError> {
        let asked = self.in_flight.pop_front().expect("an answer is due");
        let frame = match timeout(ANSWER_TIMEOUT, self.read_frame()).await {
            Ok(frame) => frame?,
            Err(_) => {
                return Err(ClientError::Timeout {
                    address: self.address.clone(),
                    api: asked.api,
                    seconds: ANSWER_TIMEOUT.as_secs(),
                });
            }
        };
        let (answered, body) =
            decode_response(asked.api, asked.version, &frame).map_err(|source| ClientError::Malformed {
                address: self.address.clone(),
                api: asked.api,
                source,
            })?;
        if answered != asked.correlation_id {
            let (address, expected) = (self.address.clone(), asked.correlation_id);
            return Err(ClientError::OutOfOrder {
                address,
                answered,
                expected,
            });
        }
        let body_at = frame.len() - body.len();
        Ok(Answer {
            address: self.address.clone(),
            api: asked.api,
            version: asked.version,
            frame,
            body_at,
        })
    }

    /// Requests whose answers are due.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn version(&self, api: ApiKey, version_max: i16) -> Result<i16, ClientError> {
        let ours = &api_versions::of(api).defined;
        let common = self.versions.get(&api.key()).and_then(|&(min, max)| {
            let version = max.min(*ours.end()).min(version_max);
            (version >= min && version >= *ours.start()).then_some(version)
        });
        common.ok_or_else(|| ClientError::Unsupported {
            address: self.address.clone(),
            api,
        })
    }

    async fn send_version<'a, Q: Message<'a>>(
        &mut self,
        request: &Q,
        version: i16,
    ) -> Result<(), ClientError> {
        let correlation_id = self.correlation_id;
        self.correlation_id = correlation_id.wrapping_add(1);
        let mut encoder = Encoder::default();
        let header = RequestHeader {
            api: Q::API,
            api_version: version,
            correlation_id,
            client_id: Some(CLIENT_ID),
        };
        header.encode(&mut encoder);
        request.encode(&mut encoder, version);
        for segment in encoder.finish()?.into_segments() {
            let Segment::Bytes(bytes) = segment else {
                unreachable!("requests carry their records as bytes");
            };
            self.stream
                .write_all(&bytes)
                .await
                .map_err(|source| self.broken(source))?;
        }
        self.in_flight.push_back(Asked {
            api: Q::API,
            version,
            correlation_id,
        });
        Ok(())
    }

    async fn read_frame(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut prefix = [0; SIZE_PREFIX_LEN_BYTES];
        self.stream
            .read_exact(&mut prefix)
            .await
            .map_err(|source| self.broken(source))?;
        let len_bytes = frame_len_bytes(prefix, ANSWER_BYTES_MAX).map_err(|source| ClientError::Frame {
            address: self.address.clone(),
            source,
        })?;
        let mut frame = Vec::new();
        let read = (&mut self.stream)
            .take(len_bytes as u64)
            .read_to_end(&mut frame)
            .await;
        match read {
            Ok(read) if read == len_bytes => Ok(frame),
            Ok(_) => Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
            Err(source) => Err(self.broken(source)),
        }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        ClientError::Broken {
            address: self.address.clone(),
            source,
        }
    }
}
