//! Time-driven work: deadlines, the pacer's turns, parts of long calls, release of memory.

use super::{HELD, Output, REST_EVERY, ROOM, Shard};
use base::{Mono, Now};
use pg::limits::{LONG_PART_COST, PUSH_COST};
use pg::pace::{Class, Profile};
use pg::{Event, Lane, Pg};
use store::ObjectStore;

impl Shard {
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
        if now.mono >= self.next_rest {
            self.next_rest = now.mono + REST_EVERY;
            self.rest();
        }
    }

    /// Releases memory of a past burst.
    pub(super) fn rest(&mut self) {
        self.pgs.values_mut().for_each(Pg::rest);
        for q in &mut self.held {
            q.shrink_to(ROOM);
        }
        self.out.shrink_to(ROOM);
        self.merge_msgs.shrink_to(ROOM);
        self.parked.shrink_to(ROOM);
        self.effects.shrink_to(ROOM);
        self.orphans.shrink_to(ROOM);
        self.born.shrink_to(ROOM);
    }

    /// Sets the share of the reactor that background work may take.
    pub fn set_profile(&mut self, p: Profile) {
        self.pacer.set_profile(p);
    }

    /// Time of the next [`Shard::pace`], if background work waits for its share of the reactor.
    #[must_use]
    pub fn paced_until(&self) -> Option<Mono> {
        self.pacer.wake()
    }

    /// Lets background work continue that is due.
    pub fn pace(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        let waiting = self.pacer.waiting(now.mono);
        if waiting.contains(&HELD) {
            self.release_held();
        }
        for i in waiting {
            if !self.sweep_event(i, None, now, store) {
                self.feed_pg(i, Event::Tick, now, store);
            }
        }
    }

    /// Sets the room of the parts of long calls.
    pub fn set_part(&mut self, room: cls::Room) {
        self.pacer.long.set_room(room);
    }

    /// True if [`Shard::next_part`] must be called in another turn.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.pacer.long.is_due()
    }

    /// Runs the next part of a long call.
    pub fn next_part(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if let Some((i, id)) = self.pacer.long.take() {
            self.pacer.client(LONG_PART_COST, now.mono);
            self.feed_pg(i, Event::Part(id), now, store);
        }
    }

    pub(super) fn release_held(&mut self) {
        for class in [Class::Recovery, Class::BestEffort] {
            while let Some((_, m)) = self.held[class as usize].front() {
                let fixed = if m.data.is_empty() { 0 } else { PUSH_COST };
                if !self.stopping && !self.pacer.take(class, m.data.len() + fixed, HELD, self.now.mono) {
                    break;
                }
                if let Some((to, msg)) = self.held[class as usize].pop_front() {
                    self.out.push_back(Output::Peer { to, lane: Lane::Data, msg });
                }
            }
        }
    }
}
