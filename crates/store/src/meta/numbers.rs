//! Numbers of objects and collections, which are never reused, and the shards of new collections.

use crate::key::Cid;
use crate::layout::{SHARDS, reactor_for, shard_for};

/// Position of the ring in a number. The bits below are a count.
pub(crate) const NID_RING_SHIFT: u32 = 48;

/// The reactor's index, the number of reactors, and the count for new numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    next: u64,
    reactor: u16,
    reactors: u16,
}

impl Numbers {
    pub(super) fn new(reactor: u16, reactors: u16) -> Self {
        Self { next: 1, reactor, reactors }
    }

    /// Count of the next number.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Continues from a count.
    pub(crate) fn go_on(&mut self, next: u64) {
        self.next = next;
    }

    /// Registers a number in use. Its lower bits are a count, the upper ones the ring that assigned it.
    pub(super) fn saw(&mut self, nid: u64) {
        self.next = self.next.max((nid & ((1 << NID_RING_SHIFT) - 1)) + 1);
    }

    /// The next number for an object or a collection.
    #[inline]
    pub(crate) fn new_nid(&self) -> u64 {
        u64::from(self.reactor) << NID_RING_SHIFT | self.next
    }

    /// Shard for a new collection: that of its name if this reactor serves it. Otherwise it is the next shard
    /// that the reactor serves. This happens if its PG was split off one on another reactor, since the PG is on
    /// that reactor on all OSDs.
    pub(crate) fn home(&self, cid: Cid) -> u8 {
        let (named, n) = (shard_for(cid, SHARDS), self.reactors);
        let away = (self.reactor + n - reactor_for(named, n)) % n;
        let shard = if named + away < SHARDS { named + away } else { self.reactor };
        shard as u8
    }
}
