//! Bytes, sockets and people: the Kafka protocol, the server, the command line.
#![forbid(unsafe_code)]

pub mod config;
pub mod protocol;
