//! A disk whose power is cut and whose requests fail, under the real kernel.
//!
//! [`disk`] serves a file over FUSE; a loop device stands on it, and a file system on that, so that
//! every write and flush a program causes passes through here. [`power_cut`] records them under load
//! and shows that what was acknowledged is there whenever the power goes. Knows no broker; the
//! programs are `power_cut` and `fault_disk`, run by the scripts beside this crate's `src`.
#![forbid(unsafe_code)]

pub mod disk;
pub mod power_cut;
pub mod random;

/// What the programs of this crate end with; a failure is told to a person.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
