//! The Kafka wire protocol: message definitions, decoding, encoding; knows no sockets.
