//! Recovery by log: objects changed while a copy was away are sent whole, head and clones together.
//!
//! The primary first pulls the objects that it lacks, then pushes those that members lack. Objects that clients wait
//! for go first. An object is sent in parts of bounded size, one at a time; the first part replaces the old object.
//! After a crash in between, the object is still in the receiver's missing set, so no client reads a part of it.
//!
//! Invariants:
//!  1. An object that any member lacks is not written; one that this copy lacks is not read. Plans on such an object
//!     wait in order, and start when it is recovered.
//!  2. An object does not change while it is read for a push: the push holds it as a reader.
//!
//! Tests: `tests/recovery.rs`.

use crate::map::map_flags;
use crate::pace::Class;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Stage;
use crate::pg::recovery::reserve::Kind;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::{Eversion, HObject, Now};

impl Pg {
    /// True if no member lacks an object and none is being backfilled.
    pub(in crate::pg) fn is_recovered(&self) -> bool {
        self.recovery.missing.is_empty()
            && self.peers.members().values().all(|m| m.missing.is_empty() && m.backfill.is_none())
    }

    /// True if a plan on `head` must wait for recovery; `excl`: it writes.
    pub(in crate::pg) fn must_recover(&self, head: &HObject, excl: bool) -> bool {
        self.recovery.missing.contains_key(head)
            || self.recovery.waiting.contains_key(head)
            || excl
                && self
                    .peers
                    .members()
                    .iter()
                    .any(|(o, m)| m.missing.contains_key(head) && !self.goes_without(head, *o))
    }

    /// True if writes of the object do not wait until this member has it.
    pub(super) fn goes_without(&self, head: &HObject, member: PeerId) -> bool {
        let too_large = &self.recovery.damage.too_large;
        !too_large.is_empty() && !self.is_coded() && too_large.contains(&(head.clone(), member))
    }

    /// Parks a plan until its object is recovered, and makes that urgent.
    pub(in crate::pg) fn wait_for_recovery(&mut self, mut plan: Box<Plan>, head: HObject) {
        plan.stage = Stage::Recovering;
        self.recovery.urgent.add(head.clone());
        // The queue is in order of arrival: a plan that waited for its object's lock goes before later plans that met
        // the recovery first.
        let queue = self.recovery.waiting.entry(head).or_default();
        let at = queue.partition_point(|p| p.id < plan.id);
        queue.insert(at, plan);
    }

    /// Marks an object as unfound. Lists that wait for it go on without it.
    pub(in crate::pg) fn note_unfound(&mut self, head: HObject) {
        if self.recovery.waiting.contains_key(&head) {
            self.recovery.pushed.push(head.clone());
        }
        if self.recovery.damage.wanted.contains_key(&head) {
            self.recovery.damage.unfound.push(head.clone());
        }
        self.recovery.unfound.insert(head);
    }

    /// Runs the plans that waited for an object.
    pub(in crate::pg) fn recovered(&mut self, head: &HObject, turn: &mut Turn<'_>) {
        let Some(queue) = self.recovery.waiting.remove(head) else { return };
        self.recovery.urgent.remove(head);
        for plan in queue {
            // A plan that must still wait is queued again, and so are those behind it.
            self.resume(plan, turn);
        }
    }

    /// Starts as much recovery as limits and reservations allow.
    pub(in crate::pg) fn pump_recovery(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.life.state(), State::Active | State::Peered | State::Quiesced) || self.life.is_stopping() {
            return;
        }
        let lacking = self.peers.members().values().any(|m| !m.missing.is_empty());
        if self.is_recovered() {
            self.unreserve();
            self.recovery.forced = 0;
            self.recovery.walk_anew();
            return self.check_clean(turn);
        }
        self.recovery.walks.begin_step();
        if !self.recovery.damage.unfound.is_empty() {
            self.give_up(turn);
        }
        if self.is_stuck(turn.now) || self.is_backfill_stuck() {
            return self.unreserve();
        }
        let by_log = !self.recovery.missing.is_empty() || lacking;
        let may = if self.is_forbidden(by_log) {
            // Objects that clients wait for are recovered nevertheless.
            self.unreserve();
            false
        } else {
            self.may_recover(if by_log { Kind::Recovery } else { Kind::Backfill }, turn.now)
        };
        if !self.recovery.missing.is_empty() {
            self.start_pulls(may, turn);
            if !self.recovery.damage.unfound.is_empty() {
                self.give_up(turn);
            }
        }
        if lacking {
            self.start_pushes(may, turn);
        }
        if may && !by_log {
            self.pump_backfill(turn);
            if self.is_recovered() {
                self.unreserve();
                self.check_clean(turn);
            }
        }
    }

    /// Class of the recovery work: best effort if every acting member is complete, so that copies only move.
    pub(in crate::pg) fn recovery_class(&self) -> Class {
        let full = self.maps.newest().is_some_and(|m| {
            let copies = m.mapping.acting(self.is_coded()).len();
            m.pool.as_ref().is_some_and(|p| copies >= p.size as usize)
        });
        let whole =
            self.recovery.missing.is_empty()
                && self.peers.members().iter().all(|(o, m)| {
                    m.missing.is_empty() && (m.backfill.is_none() || !self.maps.others().contains(&o.osd))
                });
        if full && whole { Class::BestEffort } else { Class::Recovery }
    }

    /// True if flags of the map forbid the next step: recovery by log, or backfill.
    pub(super) fn is_forbidden(&self, by_log: bool) -> bool {
        let Some(map) = self.maps.newest() else { return false };
        if by_log {
            return map.flags & map_flags::NORECOVER != 0;
        }
        let degraded = self.acting_set().len() < self.journal.info().interval.size as usize;
        map.flags & map_flags::NOBACKFILL != 0 || map.flags & map_flags::NOREBALANCE != 0 && !degraded
    }

    /// Sets or cancels an operator's request to recover this PG before others.
    pub(in crate::pg) fn force(&mut self, options: u8) {
        const CANCEL: u8 = 4;
        let bits = options & 3;
        if options & CANCEL != 0 {
            self.recovery.forced &= !bits;
        } else if !self.is_recovered() {
            self.recovery.forced |= bits;
        }
    }

    /// True if all objects that are left to recover are unfound.
    fn is_stuck(&mut self, now: Now) -> bool {
        let r = &self.recovery;
        // Without missing objects, backfill may go on.
        let lacking = !r.missing.is_empty() || self.peers.members().values().any(|m| !m.missing.is_empty());
        let busy = !r.pushes.is_empty() || r.unfound.len() < r.missing.len();
        lacking && !busy && self.next_push(true, now).is_none() && !self.recovery.walks.has_more()
    }

    /// Runs the plans that waited for pushes which are done.
    pub(in crate::pg) fn finish_pushes(&mut self, turn: &mut Turn<'_>) {
        for head in std::mem::take(&mut self.recovery.pushed) {
            self.recovered(&head, turn);
        }
    }

    /// The version of an object that this copy or a member lacks; zero if none lacks it.
    pub(in crate::pg) fn version_wanted(&self, head: &HObject) -> Eversion {
        let members = || self.peers.members().values().filter_map(|m| m.missing.get(head)).max();
        self.recovery.missing.get(head).or_else(members).copied().unwrap_or_default()
    }

    /// Number of objects that no copy can give.
    pub(in crate::pg) fn unfound(&self) -> usize {
        self.recovery.unfound.len() + self.recovery.damage.hopeless.len()
    }
}
