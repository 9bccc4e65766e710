//! The event queue, in order of virtual time; events of the same time stay in the order of their insertion.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Nanoseconds of virtual time since the run began.
pub type Time = u64;

/// A microsecond of virtual time.
pub const US: Time = 1_000;
/// A millisecond of virtual time.
pub const MS: Time = 1_000_000;
/// A second of virtual time.
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

/// The event queue of a run.
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
    /// Adds an event at a time; one for the past happens now.
    pub fn at(&mut self, at: Time, event: E) {
        self.seq += 1;
        self.heap.push(Reverse(Entry { at: at.max(self.now), seq: self.seq, event }));
    }

    /// Adds an event for `delay` from now.
    pub fn after(&mut self, delay: Time, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Takes the next event and advances the time to it.
    pub fn pop(&mut self) -> Option<E> {
        let Reverse(e) = self.heap.pop()?;
        self.now = e.at;
        Some(e.event)
    }

    /// The current virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of waiting events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
