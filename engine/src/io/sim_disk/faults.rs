//! Which operations of the simulated disk fail, and with what.
//!
//! Owns the plan: single faults, by kind and count, and rates. Knows nothing of what a fault leaves
//! behind. Tested in `tests/sim_disk.rs`.

use std::io::ErrorKind;
use std::path::Path;

use super::random::Random;
use crate::io::IoOp;

/// A kind of operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    /// [`IoOp::Write`] and [`Storage::write_at`](crate::io::Storage::write_at).
    Write,
    /// [`IoOp::Zero`].
    Zero,
    /// [`IoOp::Sync`] and [`Storage::sync`](crate::io::Storage::sync).
    Sync,
    /// [`IoOp::Create`] and the opening of a new file.
    Create,
    /// [`IoOp::Put`] and [`Storage::put_file`](crate::io::Storage::put_file).
    Put,
    /// [`IoOp::Read`], [`Storage::read_at`](crate::io::Storage::read_at) and
    /// [`Storage::read_file`](crate::io::Storage::read_file).
    Read,
    /// [`IoOp::Remove`] and [`Storage::remove_file`](crate::io::Storage::remove_file).
    Remove,
    /// [`IoOp::Close`].
    Close,
    /// [`IoOp::Open`] and the opening of an existing file.
    Open,
    /// [`Storage::list`](crate::io::Storage::list).
    List,
    /// [`Storage::create_dir`](crate::io::Storage::create_dir).
    CreateDir,
    /// [`IoOp::SetLen`] and [`Storage::set_len`](crate::io::Storage::set_len).
    SetLen,
    /// [`IoOp::Rename`] and [`Storage::rename`](crate::io::Storage::rename).
    Rename,
}

impl OpKind {
    /// The kind of `op`.
    #[must_use]
    pub fn of(op: &IoOp) -> Self {
        match op {
            IoOp::Write { .. } => Self::Write,
            IoOp::Zero { .. } => Self::Zero,
            IoOp::SetLen { .. } => Self::SetLen,
            IoOp::Sync { .. } => Self::Sync,
            IoOp::Create { .. } => Self::Create,
            IoOp::Open { .. } => Self::Open,
            IoOp::Put { .. } => Self::Put,
            IoOp::Read { .. } => Self::Read,
            IoOp::Rename { .. } => Self::Rename,
            IoOp::Remove { .. } => Self::Remove,
            IoOp::Close { .. } => Self::Close,
        }
    }
}

/// The two ways to use a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// [`IoRequest`](crate::io::IoRequest)s.
    Requests,
    /// Calls of [`Storage`](crate::io::Storage).
    Calls,
}

/// One operation that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Only of this half; `None` for both.
    pub half: Option<Half>,
    /// Only of this kind; `None` for any.
    pub kind: Option<OpKind>,
    /// Only on files whose names end so; empty for any.
    pub name_end: &'static str,
    /// So many that it could be succeed first.
    pub after: u64,
    /// What it fails with; `StorageFull` is `ENOSPC`, and `Other` stands for `EIO`.
    pub error: ErrorKind,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    planned: Vec<Fault>,
    rates: Vec<Rate>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    kind: OpKind,
    error: ErrorKind,
    per_million: u64,
}

impl Faults {
    pub(super) fn plan(&mut self, fault: Fault) {
        self.planned.push(fault);
    }

    pub(super) fn set_rate(&mut self, kind: OpKind, error: ErrorKind, per_million: u64) {
        self.rates.retain(|rate| (rate.kind, rate.error) != (kind, error));
        if per_million > 0 {
            self.rates.push(Rate {
                kind,
                error,
                per_million,
            });
        }
    }

    pub(super) fn planned(&self) -> usize {
        self.planned.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the operation that is about to happen fails.
    pub(super) fn strike(
        &mut self,
        half: Half,
        kind: OpKind,
        path: &Path,
        random: &mut Random,
    ) -> Option<ErrorKind> {
        let mut due = None;
        for (at, fault) in self.planned.iter_mut().enumerate() {
            let meant = fault.half.is_none_or(|h| h == half)
                && fault.kind.is_none_or(|k| k == kind)
                && path.to_string_lossy().ends_with(fault.name_end);
            if !meant {
                continue;
            }
            match fault.after.checked_sub(1) {
                Some(after) => fault.after = after,
                None if due.is_none() => due = Some(at),
                None => {}
            }
        }
        if let Some(at) = due {
            return Some(self.planned.remove(at).error);
        }
        let rates = self.rates.iter().filter(|rate| rate.kind == kind);
        let struck = rates
            .filter(|rate| random.below(1_000_000) < rate.per_million)
            .last();
        struck.map(|rate| rate.error)
    }
}
