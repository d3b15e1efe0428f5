//! One partition on one broker: its log and what the cluster has agreed about it.

mod high_watermark;
#[expect(clippy::module_inception, reason = "the file is named after its main type")]
mod partition;

pub use high_watermark::HighWatermark;
pub use partition::Partition;
