//! The share of the reactor that background work may take, and the recovery messages that wait for it.

use super::{Output, Pgs};
use base::{Mono, Now, OsdId};
use pg::limits::{LONG_PART_COST, PUSH_COST};
use pg::pace::{Class, Pacer, Profile};
use pg::{Event, Lane};
use std::collections::VecDeque;
use std::rc::Rc;
use store::ObjectStore;
use wire::msg::MPgPeer;

/// Index of the reactor itself at the pacer, for messages that wait; no PG has it.
const HELD: u32 = 0;

/// Pacer of a reactor and the messages that it holds back; see the module.
#[derive(Default)]
pub(super) struct Pacing {
    pacer: Rc<Pacer>,
    /// Recovery messages that wait for the pacer, by class.
    held: [VecDeque<(OsdId, Box<MPgPeer>)>; 2],
}

impl Pacing {
    /// The pacer, which the PGs share.
    pub(super) fn pacer(&self) -> &Rc<Pacer> {
        &self.pacer
    }

    /// Drops the messages that wait.
    pub(super) fn clear(&mut self) {
        self.held.iter_mut().for_each(VecDeque::clear);
    }

    /// Releases memory of a past burst.
    pub(super) fn shrink_to(&mut self, room: usize) {
        self.held.iter_mut().for_each(|q| q.shrink_to(room));
    }
}

impl Pgs {
    /// Sets the share of the reactor that background work may take.
    pub fn set_profile(&mut self, p: Profile) {
        self.pacing.pacer.set_profile(p);
    }

    /// Time of the next [`Pgs::pace`], if background work waits for its share of the reactor.
    #[must_use]
    pub fn paced_until(&self) -> Option<Mono> {
        self.pacing.pacer.wake()
    }

    /// Lets background work continue that is due.
    pub fn pace(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        let waiting = self.pacing.pacer.waiting(now.mono);
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
        self.pacing.pacer.long.set_room(room);
    }

    /// True if [`Pgs::next_part`] must be called in another turn.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.pacing.pacer.long.is_due()
    }

    /// Runs the next part of a long call.
    pub fn next_part(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if let Some((i, id)) = self.pacing.pacer.long.take() {
            self.pacing.pacer.client(LONG_PART_COST, now.mono);
            self.feed_pg(i, Event::Part(id), now, store);
        }
    }

    /// Sends a message of background work as soon as its class has its share.
    pub(super) fn send_paced(&mut self, class: Class, to: OsdId, msg: Box<MPgPeer>) {
        self.pacing.held[class as usize].push_back((to, msg));
        self.release_held();
    }

    fn release_held(&mut self) {
        let Pacing { pacer, held } = &mut self.pacing;
        for class in [Class::Recovery, Class::BestEffort] {
            let queue = &mut held[class as usize];
            while let Some((_, m)) = queue.front() {
                let fixed = if m.data.is_empty() { 0 } else { PUSH_COST };
                if !self.stage.is_stopping() && !pacer.take(class, m.data.len() + fixed, HELD, self.now.mono) {
                    break;
                }
                if let Some((to, msg)) = queue.pop_front() {
                    self.out.push_back(Output::Peer { to, lane: Lane::Data, msg });
                }
            }
        }
    }
}
