//! The high watermark: everything below it is committed, exclusive.
//!
//! Pure: takes the acknowledged end of each in-sync replica, gives the new watermark. It never
//! moves back while a leader lives, and never passes the leader's own acknowledged end, since the
//! leader is among the in-sync replicas (INV-HW-1). Tested below.

use ringlog_engine::types::Offset;

/// The high watermark of one partition at its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWatermark(Offset);

impl HighWatermark {
    /// Starts at `offset`, which is known to be committed.
    #[must_use]
    pub fn new(offset: Offset) -> Self {
        Self(offset)
    }

    /// Everything below is committed.
    #[must_use]
    pub fn offset(self) -> Offset {
        self.0
    }

    /// Moves to the smallest acknowledged end of the in-sync replicas, the leader among them;
    /// whether that was a move.
    ///
    /// # Panics
    ///
    /// When `in_sync_ends` is empty: a leader is always in its own ISR (INV-HW-1).
    pub fn advance(&mut self, in_sync_ends: impl IntoIterator<Item = Offset>) -> bool {
        let committed = in_sync_ends
            .into_iter()
            .min()
            .expect("INV-HW-1: the leader is in the ISR");
        // A replica that joins behind the watermark is waited for; it does not take the watermark back.
        if committed <= self.0 {
            return false;
        }
        self.0 = committed;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_to_the_slowest_in_sync_replica() {
        let mut hw = HighWatermark::new(Offset(3));
        assert!(hw.advance([Offset(9), Offset(5), Offset(7)]));
        assert_eq!(hw.offset(), Offset(5));
    }

    #[test]
    fn never_moves_back() {
        let mut hw = HighWatermark::new(Offset(6));
        assert!(!hw.advance([Offset(9), Offset(5)]));
        assert_eq!(hw.offset(), Offset(6));
    }

    #[test]
    #[should_panic(expected = "INV-HW-1")]
    fn a_leader_outside_its_isr_is_a_broken_invariant() {
        HighWatermark::new(Offset(6)).advance([]);
    }
}
