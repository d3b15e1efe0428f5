//! What a cluster of brokers decides; no sockets, wire bytes, threads, clocks or files.
#![forbid(unsafe_code)]
