//! A disk made of a file that this process serves, and a loop device on it.
//!
//! Knows no log and no record. In reading order: the bytes ([`image`]), what is served ([`serve`]),
//! a disk that remembers ([`recorder`]), what is left of it after a cut ([`cut`]), one that errs ([`faulty`]), the devices and mounts
//! ([`host`]).

pub mod cut;
pub mod faulty;
pub mod host;
pub mod image;
pub mod recorder;
pub mod serve;
