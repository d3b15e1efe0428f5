//! Byte formats of records and batches; knows no files, logs or time.
//!
//! A RecordBatch of Kafka's format v2 is the unit of append, checksum and replication. It is
//! read in place: [`BatchHeader::peek`] to walk headers, [`RecordBatch::parse`] for one whole
//! batch, [`RecordBatch::records`] for what is inside. [`RecordBatchBuilder`] makes them, and [`Retained`]
//! what compaction leaves of them.
//! Bytes given to anything here may be hostile: they give a typed error, never a panic, and
//! nothing is allocated on a length they merely claim.

mod batch;
mod batch_error;
mod batch_header;
mod builder;
mod compression;
mod control;
#[cfg(test)]
mod proptests;
mod record_iter;
mod rewrite;
#[cfg(test)]
mod tests;
mod varint;

pub use batch::RecordBatch;
pub use batch_error::BatchError;
pub use batch_header::{Attributes, BATCH_HEADER_LEN, BatchHeader, LOG_OVERHEAD};
pub use builder::{BuildError, RecordBatchBuilder};
pub use compression::{Compression, CompressionError, compress, decompress};
pub use control::{ControlError, ControlRecordType, EndTxnMarker};
pub use record_iter::{Header, Headers, Record, RecordError, RecordIter, Records};
pub use rewrite::{Retained, RewriteError, write_emptied};
pub use varint::VarintError;
