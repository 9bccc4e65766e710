//! Events in order of virtual time; those of one time in the order in which they were added.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Nanoseconds of virtual time since the run began.
pub type Time = u64;

/// A microsecond.
pub const US: Time = 1_000;
/// A millisecond.
pub const MS: Time = 1_000_000;
/// A second.
pub const SEC: Time = 1_000_000_000;

struct Entry<E> {
    at: Time,
    seq: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, o: &Self) -> bool {
        (self.at, self.seq) == (o.at, o.seq)
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, o: &Self) -> Ordering {
        (self.at, self.seq).cmp(&(o.at, o.seq))
    }
}

/// See the module.
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    seq: u64,
    now: Time,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), seq: 0, now: 0 }
    }
}

impl<E> Queue<E> {
    /// Adds an event; one for the past happens now.
    pub fn at(&mut self, at: Time, event: E) {
        self.seq += 1;
        self.heap.push(Reverse(Entry { at: at.max(self.now), seq: self.seq, event }));
    }

    /// Adds an event for `delay` from now.
    pub fn after(&mut self, delay: Time, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Takes the next event; time moves to it.
    pub fn pop(&mut self) -> Option<E> {
        let Reverse(e) = self.heap.pop()?;
        self.now = e.at;
        Some(e.event)
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
