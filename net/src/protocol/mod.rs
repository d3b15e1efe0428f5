//! The Kafka wire protocol: message definitions, decoding, encoding.
//!
//! Knows bytes only: no sockets, no clocks, no broker. A request on its way in:
//! [`frame`] bounds it, [`header`] says which API and version, the message under [`messages`] decodes the
//! rest and borrows from the frame. A response on its way out: [`encode::Encoder`] takes header and
//! message and yields segments. [`api_versions`] is the one table of versions.
//!
//! The messages are tried against an independent implementation, every version in both directions,
//! in `roundtrip.rs`, and against hostile bytes in `hostile.rs` and `tests/decode_memory.rs`.

#[macro_use]
mod define;

pub mod api_key;
pub mod api_versions;
pub mod decode;
pub mod encode;
pub mod error_code;
pub mod frame;
pub mod header;
mod message;
pub mod messages;
pub mod wire;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod roundtrip;
#[cfg(test)]
mod sample;
