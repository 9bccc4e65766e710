//! Releasing the unused memory of an idle machine. An OSD has about a thousand PGs, most of them idle. An empty queue
//! keeps its capacity, and an empty B-tree keeps a node.

use super::Pg;
use std::collections::{BTreeMap, VecDeque};

/// Idle calls of [`Pg::release_memory`] after which cached object contexts are dropped.
const IDLE_CALLS_MAX: u8 = 6;

/// Counts how long the machine has been idle.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// Number of operations at the last call.
    ops: u64,
    looks: u8,
}

impl Idleness {
    /// Notes a call of [`Pg::release_memory`] after `ops` operations; returns the number of idle calls in a row.
    pub(super) fn look(&mut self, busy: bool, ops: u64) -> u8 {
        if busy || self.ops != ops {
            *self = Self { ops, looks: 0 };
        } else {
            self.looks = self.looks.saturating_add(1);
        }
        self.looks
    }
}

/// Replaces an empty tree, which may keep a node.
pub(super) fn tree<K, V>(t: &mut BTreeMap<K, V>) {
    if t.is_empty() {
        *t = BTreeMap::new();
    }
}

/// Replaces an empty queue, which may keep its capacity.
pub(super) fn queue<T>(q: &mut VecDeque<T>) {
    if q.is_empty() {
        *q = VecDeque::new();
    }
}

/// Replaces an empty list, which may keep its capacity.
pub(super) fn list<T>(v: &mut Vec<T>) {
    if v.is_empty() {
        *v = Vec::new();
    }
}

impl Pg {
    /// Releases unused memory, and after some idle calls the cached object contexts. Called every ten seconds; cheap,
    /// and without effect on behaviour.
    pub fn release_memory(&mut self) {
        let busy = !self.plans.is_empty() || !self.journal.is_settled() || !self.mail.held().is_empty();
        let looks = self.report.look(busy);
        if busy || looks == 0 {
            // A busy machine would allocate it again at once.
            return;
        }
        self.plans.release_memory(looks == IDLE_CALLS_MAX);
        self.journal.release_memory();
        self.mail.release_memory();
        self.maps.release_memory();
        self.resize.release_memory();
        self.recovery.release_memory();
        self.trim.release_memory();
        self.peers.release_memory();
    }
}
