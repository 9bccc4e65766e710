//! Checks after the last fault and before the cluster must be clean.

use super::{HEAL_MAX, LATE_ORDERS, Run};
use crate::net::NodeId;
use crate::node::osd_node;
use crate::options::Fault;
use crate::oracle;
use crate::queue::SEC;
use crate::world::{Event, World};

impl Run {
    /// Checks that everything is served while one OSD is missing.
    pub(super) fn without(&mut self, n: NodeId) {
        let clients = self.clients.clone();
        let mut served = |w: &mut World| oracle::unserved(w, n, &clients).is_none();
        self.advance(LATE_ORDERS, &mut |_: &mut World| false);
        if oracle::held_back(&self.w) {
            self.faults.restore(&mut self.w);
        }
        // Clients begin no operations in this phase.
        self.load.borrow_mut().held = true;
        if !self.advance(HEAL_MAX, &mut served) && self.w.ctx.violations.is_empty() {
            let why = oracle::unserved(&self.w, n, &self.clients).unwrap_or_default();
            let stuck = self.stuck();
            self.w.ctx.violation(format!(
                "without node {n} not everything is served after {} s: {why}; {stuck}",
                HEAL_MAX / SEC
            ));
        }
        self.load.borrow_mut().held = false;
    }

    /// Checks that every PG serves under the operator's overrides, while all OSDs are up; then ends the overrides.
    pub(super) fn placed(&mut self) {
        if !self.faults.kinds.contains_key(&Fault::Place) {
            return;
        }
        // An object that can't be read holds up its PG until the operator gives it up.
        if !self.faults.kinds.contains_key(&Fault::Rot) {
            let nobody = osd_node(self.w.ctx.options.size.osds);
            let mut served = |w: &mut World| oracle::unserved(w, nobody, &[]).is_none();
            if !self.advance(HEAL_MAX, &mut served) && self.w.ctx.violations.is_empty() {
                let why = oracle::unserved(&self.w, nobody, &[]).unwrap_or_default();
                self.w.ctx.violation(format!("{} s after the last fault: {why}", HEAL_MAX / SEC));
            }
        }
        self.faults.end_places(&mut self.w);
    }

    /// Cuts a client off for hours. Afterwards it reads everything.
    pub(super) fn sleep(&mut self) {
        let (time, c) = (self.w.ctx.options.rough.sleeps, self.clients[0]);
        if time == 0 || !self.w.ctx.violations.is_empty() || self.w.ctx.options.mons > 1 {
            return;
        }
        let others: Vec<usize> = (0..self.w.nodes.len()).filter(|n| *n != c).collect();
        for n in &others {
            self.w.ctx.net.cut(c, *n);
            self.w.ctx.net.cut(*n, c);
        }
        self.advance(time, |_| false);
        let now = self.w.ctx.now();
        for n in &others {
            self.w.ctx.net.heal(c, *n, now);
            self.w.ctx.net.heal(*n, c, now);
        }
        for (at, e) in self.w.ctx.net.take_events() {
            self.w.ctx.queue.at(at, Event::Net(e));
        }
    }
}
