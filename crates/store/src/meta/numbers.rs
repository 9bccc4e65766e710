//! Numbers of objects and collections, which are never given twice, and the shards of new collections.

use crate::key::Cid;
use crate::layout::{SHARDS, reactor_for, shard_for};

/// Numbers of objects and collections: the ring that gave them above, a count below.
const NID_RING_SHIFT: u32 = 48;

/// Which of how many reactors this is, and the numbers that it gives.
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

    /// The count of the next number.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Goes on from a count.
    pub(crate) fn go_on(&mut self, next: u64) {
        self.next = next;
    }

    /// The lower bits count, the upper ones tell the ring that gave the number.
    pub(super) fn saw(&mut self, nid: u64) {
        self.next = self.next.max((nid & ((1 << NID_RING_SHIFT) - 1)) + 1);
    }

    /// The next number for an object or a collection.
    #[inline]
    pub(crate) fn new_nid(&self) -> u64 {
        u64::from(self.reactor) << NID_RING_SHIFT | self.next
    }

    /// The shard for a new collection: that of its name if this reactor serves it. A PG that was split off another one elsewhere is on
    /// that one's reactor on all OSDs, also where it is made without; there it goes to the shard of the reactor that comes next.
    pub(crate) fn home(&self, cid: Cid) -> u8 {
        let (named, n) = (shard_for(cid, SHARDS), self.reactors);
        let away = (self.reactor + n - reactor_for(named, n)) % n;
        let shard = if named + away < SHARDS { named + away } else { self.reactor };
        shard as u8
    }
}
