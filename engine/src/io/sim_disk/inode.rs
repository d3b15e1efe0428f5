//! One file of the simulated disk: what a reader sees, what is stable, and what lies between.
//!
//! Owns the changes since the last sync and what becomes of them at a power loss or a failed sync.
//! Knows neither names nor requests. Invariant: `current` is `stable` with all changes applied,
//! until a sync fails. Tested in `tests/sim_disk.rs`.

use std::collections::VecDeque;
use std::ops::Range;

use super::random::Random;

/// What a device writes whole or not at all, as most promise.
const SECTOR_BYTES: usize = 512;
/// A file may be left longer than its data by at most so much.
const TAIL_BYTES_MAX: u64 = 10_000;

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { position: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Change {
    /// Bytes written; a change of length counts as one, which is kept or lost.
    fn len(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::SetLen(_) => 1,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    stable: Vec<u8>,
    pub(super) current: Vec<u8>,
    /// Since `stable`, in order.
    changes: VecDeque<Change>,
    /// Changes that no sync will look at again.
    settled: u64,
}

impl Inode {
    /// A file that was synced with these bytes.
    pub(super) fn stable(bytes: &[u8]) -> Self {
        Self {
            stable: bytes.to_vec(),
            current: bytes.to_vec(),
            ..Self::default()
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.changes.push_back(change);
    }

    /// The number of changes so far: what a sync submitted now covers.
    pub(super) fn mark(&self) -> u64 {
        self.settled + self.changes.len() as u64
    }

    pub(super) fn sync_to(&mut self, mark: u64) {
        while let Some(change) = self.pop_change_below(mark) {
            apply(&mut self.stable, &change);
        }
    }

    /// A sync fails: of what it covered an unknown part is stable, and no later sync covers the rest.
    pub(super) fn fail_sync(&mut self, mark: u64, random: &mut Random) {
        while let Some(change) = self.pop_change_below(mark) {
            let kept = torn(change.len(), random);
            apply_parts(&mut self.stable, &change, &kept);
        }
    }

    fn pop_change_below(&mut self, mark: u64) -> Option<Change> {
        if self.settled >= mark {
            return None;
        }
        let change = self.changes.pop_front()?;
        self.settled += 1;
        Some(change)
    }

    /// Power loss. `keep` is told the length of each unsynced change and says which parts survive.
    pub(super) fn crash(&mut self, keep: &mut impl FnMut(usize) -> Vec<Range<usize>>) {
        for change in std::mem::take(&mut self.changes) {
            let kept = keep(change.len());
            apply_parts(&mut self.stable, &change, &kept);
        }
        self.current.clone_from(&self.stable);
        self.settled = 0;
    }

    /// Power loss as the seed has it: changes torn anywhere, and a length ahead of the data.
    pub(super) fn crash_by_chance(&mut self, random: &mut Random) {
        let unsynced = !self.changes.is_empty();
        self.crash(&mut |len| torn(len, random));
        if unsynced && random.chance(4) {
            let tail_bytes = random.index(1 + usize::try_from(TAIL_BYTES_MAX).expect("small"));
            self.stable.resize(self.stable.len() + tail_bytes, 0);
            self.current.clone_from(&self.stable);
        }
    }

    /// Turns a bit, on the medium and in what readers see.
    pub(super) fn flip(&mut self, position: usize, bit: u8) {
        for bytes in [&mut self.stable, &mut self.current] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { position, bytes: new } => {
            let end = position + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*position..end].copy_from_slice(new);
        }
        Change::SetLen(len) => bytes.resize(*len, 0),
    }
}

fn apply_parts(stable: &mut Vec<u8>, change: &Change, kept: &[Range<usize>]) {
    for part in kept.iter().filter(|part| !part.is_empty()) {
        match change {
            Change::Write { position, bytes } => apply(
                stable,
                &Change::Write {
                    position: position + part.start,
                    bytes: bytes[part.clone()].to_vec(),
                },
            ),
            Change::SetLen(_) => apply(stable, change),
        }
    }
}

fn first(len: usize) -> Vec<Range<usize>> {
    std::iter::once(0..len).collect()
}

/// Which parts of a change of `len` bytes survive: all, none, the first bytes, or any sectors, of which
/// the last may be torn.
fn torn(len: usize, random: &mut Random) -> Vec<Range<usize>> {
    match random.below(8) {
        0..=2 => first(len),
        3..=4 => Vec::new(),
        5 => first(random.index(len + 1)),
        kind => {
            let sectors = (0..len).step_by(SECTOR_BYTES);
            let sectors = sectors.map(|start| start..(start + SECTOR_BYTES).min(len));
            let mut kept: Vec<Range<usize>> = sectors.filter(|_| random.chance(2)).collect();
            if kind == 7
                && let Some(last) = kept.last_mut()
            {
                last.end = last.start + random.index(last.len() + 1);
            }
            kept
        }
    }
}
