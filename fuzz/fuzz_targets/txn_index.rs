//! Runs [`ringlog_fuzz::txn_index`] under libFuzzer; the body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringlog_fuzz::txn_index(data));
