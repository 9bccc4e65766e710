//! Time-driven work: deadlines of PGs, attempts that are repeated, release of memory.

use super::Pgs;
use base::Now;
use pg::{Event, Pg};
use store::ObjectStore;

/// Capacity that empty queues keep.
const ROOM: usize = 64;

impl Pgs {
    /// Handles elapsed time for PGs whose deadline has come.
    pub fn tick(&mut self, now: Now, store: &mut dyn ObjectStore) {
        let due: Vec<u32> =
            self.pgs.iter().filter(|(_, p)| p.next_deadline().is_some_and(|d| d <= now.mono)).map(|(i, _)| i).collect();
        for i in due {
            self.feed_pg(i, Event::Tick, now, store);
        }
        self.wake_reserved(now, store);
        self.retry_sweeps(now, store);
        for (from, m) in self.orphans.take_later() {
            self.handle_peer(from, m, now, store);
        }
        self.offer_move(now, store);
        if self.periodic.may_release_memory(now.mono) {
            self.release_memory();
        }
    }

    /// Releases memory of a past burst.
    pub(super) fn release_memory(&mut self) {
        self.pgs.values_mut().for_each(Pg::release_memory);
        self.pacing.shrink_to(ROOM);
        self.out.shrink_to(ROOM);
        self.resizes.shrink_to(ROOM);
        self.parked.shrink_to(ROOM);
        self.effects.shrink_to(ROOM);
        self.orphans.shrink_to(ROOM);
    }
}
