//! Global ids: numbers of sessions that are never given out twice.
//!
//! They come in batches, and the end of a batch is persisted before its first id is used. The next batch is requested
//! when half of the current one is used, so that authentication never waits for the state store.

use std::cell::Cell;

/// Ids per batch.
pub(in crate::core) const BATCH: u64 = 4096;
/// The first id of a cluster.
pub(in crate::core) const FIRST: u64 = 4096;

/// The allocator of global ids.
#[derive(Debug, Default)]
pub(in crate::core) struct GlobalIds {
    next: Cell<u64>,
    /// The end of the granted range: smaller ids may be given out.
    end: Cell<u64>,
    asked: Cell<bool>,
}

impl GlobalIds {
    /// Takes an id; `None` if none is left.
    pub(in crate::core) fn take(&self) -> Option<u64> {
        let n = self.next.get();
        (n < self.end.get()).then(|| {
            self.next.set(n + 1);
            n
        })
    }

    /// Takes `n` ids and returns the first and the one after the last; `None` if fewer are left.
    pub(in crate::core) fn take_many(&self, n: u64) -> Option<(u64, u64)> {
        let first = self.next.get();
        (first + n <= self.end.get()).then(|| {
            self.next.set(first + n);
            (first, first + n)
        })
    }

    /// True if an id is left.
    pub(in crate::core) fn has_some(&self) -> bool {
        self.next.get() < self.end.get()
    }

    /// The end of the next batch, if it is time to persist one.
    pub(in crate::core) fn ask(&self) -> Option<u64> {
        if self.asked.get() || self.end.get() - self.next.get() > BATCH / 2 {
            return None;
        }
        self.asked.set(true);
        Some(self.end.get().max(FIRST) + BATCH)
    }

    /// Handles a batch that could not be persisted.
    pub(in crate::core) fn refused(&self) {
        self.asked.set(false);
    }

    /// Handles the persisted batch up to `end`. An earlier process may have used ids below `end - BATCH`.
    pub(in crate::core) fn granted(&self, end: u64) {
        if self.end.get() == 0 {
            self.next.set(end.saturating_sub(BATCH));
        }
        self.end.set(end);
        self.asked.set(false);
    }

    /// Sets the state at start: all ids below `end` may have been used.
    pub(in crate::core) fn loaded(&self, end: u64) {
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
