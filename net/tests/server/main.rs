//! The broker as its clients meet it: the real binary, its sockets, its data directory.
//!
//! One program for all, since each would link the whole broker anew. `broker` starts, stops and
//! kills; `client` speaks the protocol over one connection; the others hold the tests, by subject.
//! Waits are for events, each with a deadline; nothing sleeps to let something settle.

mod broker;
mod client;

mod compaction;
mod directories;
mod fetch;
mod frames;
mod lifecycle;
mod load;
mod mutants;
mod produce;
mod producers;
mod retention;
mod start;
mod topics;
mod transactions;
