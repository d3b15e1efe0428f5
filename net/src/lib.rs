//! Bytes, sockets and people: the Kafka protocol, the server, the command line.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod config;
pub mod metadata;
pub mod protocol;
pub mod server;
