//! The messages: one file per API, every version, request and response.
//!
//! The files hold definitions only, in the language of `define.rs`. Names are the protocol guide's.
//! Decoding borrows from the frame; a decoded message takes memory in proportion to the bytes it was
//! decoded from.

pub mod alter_configs;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod find_coordinator;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;

use super::api_key::ApiKey;
use super::api_versions as versions;
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
    let flexible = versions::is_flexible(api, number);
    versions::of(api)
        .defined
        .contains(&number)
        .then_some(Version { number, flexible })
}
