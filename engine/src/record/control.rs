//! Keys and values of control records: the markers that end transactions.
//!
//! Knows the bytes only; what a marker does to a log is in `log/producer_state.rs`. Later
//! versions may append fields, which are ignored, as Kafka does. Tested below.
//!
//! ```text
//! key    version i16 (0), type i16
//! value  version i16 (0), coordinatorEpoch i32      for types 0 and 1
//! ```

use thiserror::Error;

use super::{RecordBatch, RecordError};

/// Bytes of a key.
const KEY_LEN: usize = 4;
/// Bytes of an end marker's value.
const MARKER_LEN: usize = 6;
/// A control batch holds one small record; anything larger is no control batch.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Why a control record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The records of the batch cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The key is shorter than a version and a type, or missing.
    #[error("control record key of {len_bytes} bytes")]
    Key {
        /// Bytes of the key.
        len_bytes: usize,
    },
    /// The value is shorter than a version and an epoch, or missing.
    #[error("end marker value of {len_bytes} bytes")]
    Value {
        /// Bytes of the value.
        len_bytes: usize,
    },
    /// The version is negative.
    #[error("control record version {version}")]
    Version {
        /// The field as it stands.
        version: i16,
    },
}

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecordType {
    /// The producer's transaction is aborted.
    Abort,
    /// The producer's transaction is committed.
    Commit,
    /// Kafka's own (leader change, snapshot frames, voters) or unknown: skipped.
    Other(i16),
}

impl ControlRecordType {
    /// Reads the key of a control record.
    ///
    /// # Errors
    ///
    /// [`ControlError::Key`], [`ControlError::Version`].
    pub fn from_key(key: &[u8]) -> Result<Self, ControlError> {
        let Some(&[v0, v1, t0, t1]) = key.first_chunk::<KEY_LEN>() else {
            return Err(ControlError::Key { len_bytes: key.len() });
        };
        check_version(i16::from_be_bytes([v0, v1]))?;
        Ok(match i16::from_be_bytes([t0, t1]) {
            0 => Self::Abort,
            1 => Self::Commit,
            other => Self::Other(other),
        })
    }
}

/// The marker that ends one producer's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// Committed, or else aborted.
    pub committed: bool,
    /// Fences earlier transaction coordinators.
    pub coordinator_epoch: i32,
}

impl EndTxnMarker {
    /// The marker of a control batch, if it holds one.
    ///
    /// None for a batch that compaction has emptied, and for other control records.
    ///
    /// # Errors
    ///
    /// Any [`ControlError`].
    pub fn from_batch(batch: &RecordBatch<'_>) -> Result<Option<Self>, ControlError> {
        let records = batch.records(CONTROL_BYTES_MAX)?;
        let Some(record) = records.iter().next() else {
            return Ok(None);
        };
        let record = record?;
        Self::from_record(record.key.unwrap_or_default(), record.value.unwrap_or_default())
    }

    /// The marker of one control record; none where its type is another.
    ///
    /// # Errors
    ///
    /// [`ControlError::Key`], [`ControlError::Value`], [`ControlError::Version`].
    pub fn from_record(key: &[u8], value: &[u8]) -> Result<Option<Self>, ControlError> {
        let committed = match ControlRecordType::from_key(key)? {
            ControlRecordType::Abort => false,
            ControlRecordType::Commit => true,
            ControlRecordType::Other(_) => return Ok(None),
        };
        let Some(&[v0, v1, e0, e1, e2, e3]) = value.first_chunk::<MARKER_LEN>() else {
            return Err(ControlError::Value {
                len_bytes: value.len(),
            });
        };
        check_version(i16::from_be_bytes([v0, v1]))?;
        Ok(Some(Self {
            committed,
            coordinator_epoch: i32::from_be_bytes([e0, e1, e2, e3]),
        }))
    }

    /// The key of the control record.
    #[must_use]
    pub fn key(self) -> [u8; 4] {
        [0, 0, 0, u8::from(self.committed)]
    }

    /// The value of the control record.
    #[must_use]
    pub fn value(self) -> [u8; 6] {
        let [e0, e1, e2, e3] = self.coordinator_epoch.to_be_bytes();
        [0, 0, e0, e1, e2, e3]
    }
}

fn check_version(version: i16) -> Result<(), ControlError> {
    if version < 0 {
        Err(ControlError::Version { version })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_known_bytes_and_come_back() {
        let commit = EndTxnMarker {
            committed: true,
            coordinator_epoch: 258,
        };
        assert_eq!(commit.key(), [0, 0, 0, 1]);
        assert_eq!(commit.value(), [0, 0, 0, 0, 1, 2]);
        assert_eq!(
            EndTxnMarker::from_record(&commit.key(), &commit.value()),
            Ok(Some(commit))
        );
        let abort = EndTxnMarker {
            committed: false,
            coordinator_epoch: -1,
        };
        assert_eq!(
            EndTxnMarker::from_record(&abort.key(), &abort.value()),
            Ok(Some(abort))
        );
    }

    #[test]
    fn fields_added_by_later_versions_are_ignored() {
        let marker = EndTxnMarker::from_record(&[0, 1, 0, 1, 9], &[0, 5, 0, 0, 0, 3, 8, 8]);
        assert_eq!(
            marker,
            Ok(Some(EndTxnMarker {
                committed: true,
                coordinator_epoch: 3
            }))
        );
    }

    #[test]
    fn other_types_are_no_end_markers() {
        assert_eq!(
            ControlRecordType::from_key(&[0, 0, 0, 2]),
            Ok(ControlRecordType::Other(2))
        );
        assert_eq!(EndTxnMarker::from_record(&[0, 0, 0, 2], &[]), Ok(None));
    }

    #[test]
    fn short_or_negative_is_refused() {
        assert_eq!(
            EndTxnMarker::from_record(&[0, 0, 0], &[]),
            Err(ControlError::Key { len_bytes: 3 })
        );
        assert_eq!(
            EndTxnMarker::from_record(&[0, 0, 0, 1], &[0; 5]),
            Err(ControlError::Value { len_bytes: 5 })
        );
        assert_eq!(
            EndTxnMarker::from_record(&[0xff, 0xff, 0, 1], &[]),
            Err(ControlError::Version { version: -1 })
        );
    }
}
