//! What a machine at rest gives back: an OSD has a thousand of them, and most have nothing to do most of the time. Queues keep
//! the room that they once needed, and an empty B-tree keeps a node.

use super::Pg;
use std::collections::{BTreeMap, VecDeque};

/// Object contexts that nobody used for so many calls of [`Pg::rest`] are forgotten; the store has what they are made of.
const RESTS_MAX: u8 = 6;
/// Room that is not worth an allocation.
const ROOM: usize = 4;

/// How long it has had nothing to do.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// Operations at the last look.
    ops: u64,
    looks: u8,
}

fn tree<K, V>(t: &mut BTreeMap<K, V>) {
    if t.is_empty() {
        *t = BTreeMap::new();
    }
}

fn queue<T>(q: &mut VecDeque<T>) {
    if q.is_empty() {
        *q = VecDeque::new();
    }
}

fn list<T>(v: &mut Vec<T>) {
    if v.is_empty() {
        *v = Vec::new();
    }
}

impl Pg {
    /// Gives back memory that nothing is in. To be called now and then; costs little, and changes nothing else.
    pub fn rest(&mut self) {
        let busy = !self.plans.is_empty() || !self.commits.is_empty() || !self.held.is_empty();
        let r = &mut self.resting;
        if busy || r.ops != self.counters.ops {
            *r = Resting { ops: self.counters.ops, looks: 0 };
        } else {
            r.looks = r.looks.saturating_add(1);
        }
        if busy || self.resting.looks == 0 {
            // It would need them again at once.
            return;
        }
        if self.resting.looks == RESTS_MAX && self.locks.is_empty() {
            self.cache.clear();
        }
        if self.locks.is_empty() && self.locks.capacity() > ROOM {
            self.locks = Default::default();
        }
        tree(&mut self.plans);
        queue(&mut self.commits);
        queue(self.held.queue());
        queue(&mut self.runnable);
        list(&mut self.abandoned);
        list(&mut self.awaited);
        list(&mut self.early_maps);
        list(&mut self.early_peers);
        list(&mut self.pushed);
        list(&mut self.outbox);
        tree(&mut self.missing);
        self.log.rest();
        self.info.past.shrink_to_fit();
        self.joins.rest();
        self.trim.rest();
        let p = &mut self.peers;
        p.failed.rest();
        p.lost.rest();
        p.damage.rest();
        p.reservation.rest();
        queue(&mut p.unacked);
        queue(&mut p.apply);
        queue(&mut p.urgent);
        tree(&mut p.pulls);
        tree(&mut p.pushes);
        tree(&mut p.waiting);
        tree(&mut p.unstable);
        tree(&mut p.incoming);
        for m in p.members.values_mut() {
            tree(&mut m.missing);
        }
    }
}
