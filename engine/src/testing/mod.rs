//! Fixtures for tests of this crate and of those above it; not part of the product.

pub mod io_suite;
mod log_driver;
mod mem_storage;

pub use log_driver::{LogDriver, batch_of};
pub use mem_storage::{MemStorage, OpKind};
