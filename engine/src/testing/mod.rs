//! Fixtures for tests of this crate and of those above it; not part of the product.

#[expect(missing_docs, reason = "the name of a check says what it checks")]
pub mod io_suite;
mod log_driver;
mod log_model;

pub use log_driver::{LogDriver, batch_of};
pub use log_model::{Choose, LogModel};

pub use crate::io::sim_disk::{OpKind, SimDisk};
