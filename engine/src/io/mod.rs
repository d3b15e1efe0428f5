//! The vocabulary between the log's state machine and whatever executes its storage requests.
//!
//! Knows neither logs nor system calls. Two halves: asynchronous requests and completions for
//! the hot path ([`IoRequest`], [`IoCompletion`], [`IoQueue`]), and the blocking [`Storage`]
//! for opening, recovery and closing.

mod queue;
mod request;
#[cfg(any(test, feature = "sim"))]
pub mod sim_disk;
mod storage;

pub use queue::IoQueue;
pub use request::{FileId, IoCompletion, IoError, IoOp, IoOutput, IoRequest, IoToken, is_out_of_descriptors};
pub use storage::{DirEntry, OpenMode, Storage};
