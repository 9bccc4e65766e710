//! Carries a proposal through: its transactions in order, and the steps that follow once they are durable.
//!
//! Invariants:
//!  1. Each transaction compares the revision of `osdmap/bounds`, which every transaction writes, and the leader's
//!     fence. So a late transaction, or one of a deposed leader, changes nothing.
//!  2. An unknown outcome is never answered. The core reads the bounds again, which name the transaction that wrote
//!     them. If they name another transaction, the core submits its own once more; it cannot take effect twice.
//!  3. Answers and maps that wait for the commit are sent after it, in the order of their requests.
//!
//! Tests: `tests/do_several_monitors_stay_one.rs` (1, `a_late_transaction_of_a_deposed_leader_is_refused`),
//! `tests/is_what_was_acknowledged_there_after_a_restart.rs` (2, `an_unknown_outcome_is_looked_up`,
//! `an_outcome_that_cannot_be_looked_up_is_not_answered`; 3, `nothing_is_acknowledged_before_it_is_durable`).

use std::collections::VecDeque;

use base::errno;
use base::planted::{Bug, acts};
use state::{Op, Outcome, StateError, Txn, Write};
use wire::Decode;

use super::Inflight;
use super::batch::Parts;
use super::waiter::Waiter;
use crate::core::{Effect, MonCore};
use crate::state::records::{Bounds, key, value};
use base::unreached;

/// The transactions of a proposal, and their progress.
pub(in crate::core) struct Attempt {
    /// Token of the request in flight, 0 for none.
    token: u64,
    step: Step,
    /// The current transaction.
    txn: Txn,
    /// The writer that the current transaction puts into the bounds; finding it there proves that the transaction
    /// took effect.
    writer: (u64, u64),
    rest: VecDeque<Vec<Write>>,
    /// Number of transactions before the head, including the current one; 0 from the head on.
    before_head: usize,
    /// The bounds that the head writes.
    bounds: Bounds,
    /// True once a transaction of the proposal is durable.
    begun: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The store has the transaction.
    Sent,
    /// The bounds are being read, to see whether the transaction took effect; `true` if a comparison failed.
    Checking(bool),
    /// The store is unavailable; the next tick reads the bounds again.
    Waiting(bool),
}

impl Attempt {
    /// True if the token is that of the request in flight.
    pub(in crate::core) fn awaits(&self, token: u64) -> bool {
        self.token == token
    }
}

impl MonCore {
    /// Starts a proposal.
    pub(in crate::core) fn attempt(&mut self, parts: Parts, bounds: Bounds) -> Attempt {
        let mut a = Attempt {
            token: 0,
            step: Step::Sent,
            txn: Txn::default(),
            writer: (0, 0),
            rest: parts.parts.into(),
            before_head: parts.head + 1,
            bounds,
            begun: false,
        };
        self.next_part(&mut a);
        a
    }

    fn next_part(&mut self, a: &mut Attempt) {
        a.writer = self.writer.next_name();
        a.before_head = a.before_head.saturating_sub(1);
        let bounds = if a.before_head == 0 { a.bounds.clone() } else { self.state.history.bounds() };
        let bounds = value(&Bounds { writer: a.writer, ..bounds });
        let mut then = a.rest.pop_front().unwrap_or_default();
        then.push(Write::Put(key::OSDMAP_BOUNDS.into(), bounds, None));
        a.txn = Txn { compare: self.writer.compare(), then };
        self.send_part(a);
    }

    fn send_part(&mut self, a: &mut Attempt) {
        a.step = Step::Sent;
        a.token = self.submit(Op::Txn(a.txn.clone()));
    }

    fn check_part(&mut self, a: &mut Attempt, conflict: bool) {
        a.step = Step::Checking(conflict);
        a.token = self.submit(Op::get(vec![key::OSDMAP_BOUNDS.into()]));
    }

    /// Handles the store's answer to a request of the proposal.
    pub(in crate::core) fn attempt_event(&mut self, revision: u64, result: Result<Outcome, StateError>) {
        let Some(mut i) = self.writer.take() else {
            return unreached("the store answers the proposal that is in flight");
        };
        let a = &mut i.attempt;
        a.token = 0;
        if let Err(e) = &result {
            tracing::error!("mon: the state store failed a proposal: {e}");
            self.state.store_failed(e.to_string());
        }
        let mut done = None;
        match (a.step, result) {
            (Step::Sent, Ok(Outcome::Committed)) => done = Some(revision),
            (Step::Sent, Ok(_)) => self.check_part(a, true),
            (Step::Sent, Err(StateError::Unknown(_))) if !acts(Bug::UnknownIsFailure) => self.check_part(a, false),
            (Step::Sent, Err(e)) if !a.begun => {
                self.writer.set_inflight(i);
                return self.commit_failed(&e);
            }
            (Step::Sent, Err(StateError::Unavailable(_))) => a.step = Step::Waiting(false),
            (Step::Sent, Err(e)) => self
                .effects
                .push(Effect::Stop(format!("the state store refused a proposal of which a part is durable: {e}"))),
            (Step::Checking(conflict), Ok(Outcome::Values(v))) => {
                let found = v.into_iter().next().flatten();
                let writer = found.as_ref().and_then(|e| Bounds::from_bytes(&e.value).ok()).map(|b| b.writer);
                let modified = found.map_or(0, |e| e.modified);
                if writer == Some(a.writer) {
                    done = Some(modified);
                } else if !self.writer.is_newest(modified) {
                    self.effects.push(Effect::Stop("another process changed the state of this monitor".into()));
                } else if conflict {
                    self.effects.push(Effect::Stop("this monitor is no longer the leader".into()));
                } else {
                    self.send_part(a);
                }
            }
            (Step::Checking(conflict) | Step::Waiting(conflict), _) => a.step = Step::Waiting(conflict),
        }
        if let Some(revision) = done {
            self.writer.durable(revision);
            a.begun = true;
            if a.rest.is_empty() {
                self.writer.set_inflight(i);
                return self.committed();
            }
            self.next_part(a);
        }
        self.writer.set_inflight(i);
    }

    /// Retries a read of the bounds that failed because the store was unavailable.
    pub(in crate::core) fn tick_attempt(&mut self) {
        if let Some(mut i) = self.writer.take() {
            if let Step::Waiting(conflict) = i.attempt.step {
                self.check_part(&mut i.attempt, conflict);
            }
            self.writer.set_inflight(i);
        }
    }

    /// Handles a proposal of which nothing took effect: its clients get an error.
    fn commit_failed(&mut self, e: &StateError) {
        let Some(lost) = self.writer.take() else { return unreached("it was put back just before") };
        if lost.durable.changes.global_id_end.is_some() {
            self.credentials.ids().refused();
        }
        let text = format!("nothing was changed: {e}");
        self.refuse_all(lost.waiters, errno::EIO, &text);
        self.run_deferred();
    }

    /// Handles a durable proposal: updates the state in memory, runs the waiters and notifies subscribers.
    fn committed(&mut self) {
        let Some(done) = self.writer.take() else { return unreached("it was put back just before") };
        let awaited = done.brings_up() || done.takes_down();
        let took = self.now.mono.since(done.started);
        self.writer.count(took);
        let Inflight { durable: d, waiters, .. } = done;
        let (fs_changed, config_changed) = (d.fsmap.is_some(), !d.config.is_empty());
        let (monmap_changed, mgr_changed) = (d.changes.monmap.is_some(), d.changes.mgrmap.is_some());
        let (log, kv) = (d.log.clone(), d.changes.kv.clone());
        let (service_keys, global_id_end) = (d.changes.service_keys.clone(), d.changes.global_id_end);
        let manager = self.state.mgrmap.active_gid;
        let replaced = self.state.commit(d, took, self.now);
        if self.state.mgrmap.active_gid != manager {
            self.active_mgr_changed();
        }
        for pg in replaced.created {
            self.no_longer_creating(pg);
        }
        let before = replaced.map.as_ref().map(|(old, _)| std::sync::Arc::clone(old));
        if let Some((old, inc)) = replaced.map {
            self.after_map_change(&old, &inc);
        }
        if let Some(k) = service_keys {
            self.credentials.set_keys(k);
        }
        if let Some(end) = global_id_end {
            self.credentials.ids().granted(end);
        }
        log.iter().for_each(|line| self.intake.log_known().stored(line));
        if monmap_changed {
            self.publish_monmap();
        }
        if fs_changed {
            // An MDS gets the map before the answer to the beacon that led to it.
            self.publish_fsmap();
        }
        self.run_waiters(waiters);
        for (name, old) in replaced.entities {
            self.entity_changed(&name, old.as_ref());
        }
        if let Some(before) = before {
            self.close_old_clients(&before);
            self.publish_osdmap();
        }
        if awaited {
            self.send_awaited_maps();
        }
        if mgr_changed {
            self.publish_mgrmap();
        }
        if config_changed {
            self.publish_config();
        }
        if !kv.is_empty() {
            self.publish_kv(&kv);
        }
        if !log.is_empty() {
            self.publish_log(&log);
        }
        if fs_changed {
            self.tick_fs();
        }
        // The effects before this one include the answer to the command that removed this monitor.
        if monmap_changed && !self.state.monmap.mons.contains_key(&self.state.mon_name) {
            return self.effects.push(Effect::Stop("this monitor was removed from the map of monitors".into()));
        }
        self.run_deferred();
    }

    pub(in crate::core) fn run_waiters(&mut self, waiters: Vec<Waiter>) {
        for w in waiters {
            match w {
                Waiter::Command { to, rc, rs, out, effects } => {
                    self.answer_command(&to, rc, rs, out);
                    self.command_effects(to.conn, effects);
                }
                Waiter::Again(c, m) => self.message(c, m),
                Waiter::PoolOp { conn, tid, rc, data } => self.answer_pool_op(conn, tid, rc, data),
                Waiter::Maps(c, from) => self.send_maps_reply(c, from),
                Waiter::Booted(c, osd, from) => {
                    tracing::info!("mon: {osd} is up");
                    self.send_maps_reply(c, from);
                }
                Waiter::Send(c, m) => self.send(c, m),
            }
        }
    }
}
