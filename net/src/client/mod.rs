//! A small client of the Kafka protocol: what the command line and the tests need, not a library to publish.
//!
//! [`Connection`] speaks to one broker and negotiates versions; [`Cluster`] knows the brokers and finds
//! leaders; [`Producer`], [`Consumer`] and the functions of [`admin`] stand on it. One task drives each of
//! them; nothing runs in the background. Knows no server code. Tested against brokers in `tests/`.

pub mod admin;
mod cluster;
mod connection;
mod consumer;
mod error;
mod offsets;
mod partitioner;
mod producer;

pub use cluster::{Cluster, PartitionMetadata, TopicMetadata};
pub use connection::{Answer, Connection};
pub use consumer::{Consumer, Start};
pub use error::ClientError;
pub use offsets::{EARLIEST, LATEST, offsets};
pub use producer::{Acks, Producer, ProducerOptions};
