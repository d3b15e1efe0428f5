//! Runs [`ringlog_fuzz::request`] under libFuzzer; the body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringlog_fuzz::request(data));
