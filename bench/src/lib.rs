//! What criterion's benches have in common. The program that compares whole brokers is `main.rs`.
#![forbid(unsafe_code)]

pub mod fixtures;
