//! `ringlog dump`: the files of a log, made readable and verified.
//!
//! For people and scripts that look at what a broker wrote, ringlog's or Kafka's. Reads hostile files:
//! whatever is wrong is a finding with a position, and nothing is allocated on a length that the file does
//! not have. An index is checked against its segment where that lies beside it. Changes nothing.

mod checkpoint_file;
mod index_file;
mod report;
mod run;
mod segment_file;
mod snapshot_file;
mod txn_index_file;

pub(super) use run::run;
