//! The `ringlog` binary: hands the command line to the library.
#![forbid(unsafe_code)]

fn main() {}
