//! Releasing the unused memory of an idle machine. An OSD has about a thousand PGs, most of them idle. An empty queue
//! keeps its capacity, and an empty B-tree keeps a node.

use super::Pg;
use std::collections::{BTreeMap, VecDeque};

/// Idle calls of [`Pg::rest`] after which cached object contexts are dropped.
const RESTS_MAX: u8 = 6;
/// Capacity below which the lock table is kept.
const ROOM: usize = 4;

/// Counts how long the machine has been idle.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// Number of operations at the last call.
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
    /// Releases unused memory, and after some idle calls the cached object contexts. Called every ten seconds; cheap,
    /// and without effect on behaviour.
    pub fn rest(&mut self) {
        let busy = !self.plans.is_empty() || !self.commits.is_empty() || !self.held.is_empty();
        let r = &mut self.resting;
        if busy || r.ops != self.counters.ops {
            *r = Resting { ops: self.counters.ops, looks: 0 };
        } else {
            r.looks = r.looks.saturating_add(1);
        }
        if busy || self.resting.looks == 0 {
            // A busy machine would allocate it again at once.
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
        self.held.rest();
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
        self.merges.rest();
        self.trim.rest();
        self.spaceless.rest();
        let p = &mut self.peers;
        p.failed.rest();
        p.lost.rest();
        p.damage.rest();
        p.reservation.rest();
        p.incoming.rest();
        if let Some(pieces) = p.pieces.used() {
            pieces.forget_taken();
        }
        p.pieces.rest();
        queue(&mut p.unacked);
        queue(&mut p.apply);
        p.urgent.rest();
        tree(&mut p.pulls);
        tree(&mut p.pushes);
        tree(&mut p.waiting);
        tree(&mut p.unstable);
        for m in p.members.values_mut() {
            tree(&mut m.missing);
        }
    }
}
