//! Fixtures for tests of this crate and of those above it; not part of the product.

pub mod io_suite;
