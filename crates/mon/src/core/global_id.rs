//! Global ids: numbers of sessions that are never given out twice.
//!
//! They are taken from batches whose end is persisted before the first of them is used; the next batch is asked for
//! when half of this one is gone, so that signing in never waits for the state store.

use std::cell::Cell;

/// Ids per batch.
pub(super) const BATCH: u64 = 4096;
/// The first id of a cluster.
pub(super) const FIRST: u64 = 4096;

/// The allocator.
#[derive(Debug, Default)]
pub(super) struct GlobalIds {
    next: Cell<u64>,
    /// Ids below this are ours.
    end: Cell<u64>,
    asked: Cell<bool>,
}

impl GlobalIds {
    /// Takes one; `None` if none is at hand.
    pub(super) fn take(&self) -> Option<u64> {
        let n = self.next.get();
        (n < self.end.get()).then(|| {
            self.next.set(n + 1);
            n
        })
    }

    /// Takes so many, if they are at hand: first and the one after the last.
    pub(super) fn take_many(&self, n: u64) -> Option<(u64, u64)> {
        let first = self.next.get();
        (first + n <= self.end.get()).then(|| {
            self.next.set(first + n);
            (first, first + n)
        })
    }

    /// True if one is at hand.
    pub(super) fn has_some(&self) -> bool {
        self.next.get() < self.end.get()
    }

    /// The end of the next batch to persist, if it is time to.
    pub(super) fn ask(&self) -> Option<u64> {
        if self.asked.get() || self.end.get() - self.next.get() > BATCH / 2 {
            return None;
        }
        self.asked.set(true);
        Some(self.end.get().max(FIRST) + BATCH)
    }

    /// The batch asked for could not be persisted.
    pub(super) fn refused(&self) {
        self.asked.set(false);
    }

    /// The batch up to `end` is persisted. Ids before `end - BATCH` may have been used by an earlier process.
    pub(super) fn granted(&self, end: u64) {
        if self.end.get() == 0 {
            self.next.set(end.saturating_sub(BATCH));
        }
        self.end.set(end);
        self.asked.set(false);
    }

    /// At start: everything below `end` may have been used.
    pub(super) fn loaded(&self, end: u64) {
        self.next.set(end);
        self.end.set(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_never_given_twice_even_across_restarts() {
        let g = GlobalIds::default();
        assert_eq!(g.take(), None);
        let end = g.ask().unwrap();
        assert_eq!(g.ask(), None, "one request at a time");
        g.granted(end);
        let mut last = FIRST - 1;
        for _ in 0..BATCH {
            let id = g.take().unwrap();
            assert!(id > last);
            last = id;
        }
        assert_eq!(g.take(), None);
        let end2 = g.ask().unwrap();
        // The process dies; the record may hold either end.
        for recorded in [end, end2] {
            let h = GlobalIds::default();
            h.loaded(recorded);
            let e = h.ask().unwrap();
            h.granted(e);
            assert!(h.take().unwrap() > last);
        }
    }
}
