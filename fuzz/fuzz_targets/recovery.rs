//! Runs [`ringlog_fuzz::recovery`] under libFuzzer; the body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringlog_fuzz::recovery(data));
