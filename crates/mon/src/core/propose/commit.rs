//! Carries a proposal through: its transactions in order, and the steps that follow once they are durable.
//!
//! Invariants:
//!  1. Each transaction compares the revision of `osdmap/bounds`, which every transaction writes, and the leader's
//!     fence. So a late transaction, or one of a deposed leader, changes nothing.
//!  2. An unknown outcome is never answered. The core reads the bounds again, which name the transaction that wrote
//!     them. If they name another transaction, the core submits its own once more; it cannot take effect twice.
//!  3. Answers and maps that wait for the commit are sent after it, in the order of their requests.

use std::collections::{BTreeMap, VecDeque};

use base::planted::{Bug, acts};
use base::{AuthName, errno};
use state::{Op, Outcome, StateError, Txn, Write};
use wire::Decode;
use wire::types::MgrMap;

use super::batch::Parts;
use super::waiter::Waiter;
use super::{CONFIG_HISTORY_KEEP, NewMap};
use crate::core::{Effect, MonCore};
use crate::state::records::{Bounds, key, value};
use crate::state::{AuthEntry, ConfigChange, Pending};

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
        let Some(mut i) = self.writer.take() else { return };
        let a = &mut i.attempt;
        a.token = 0;
        if let Err(e) = &result {
            tracing::error!("mon: the state store failed a proposal: {e}");
            self.state.store.error = Some(e.to_string());
        }
        let mut done = None;
        match (a.step, result) {
            (Step::Sent, Ok(Outcome::Committed)) => done = Some(revision),
            (Step::Sent, Ok(_)) => self.check_part(a, true),
            (Step::Sent, Err(StateError::Unknown(_))) if !acts(Bug::UnknownIsFailure) => self.check_part(a, false),
            (Step::Sent, Err(e)) if !a.begun => {
                self.writer.keep(i);
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
                self.writer.keep(i);
                return self.committed();
            }
            self.next_part(a);
        }
        self.writer.keep(i);
    }

    /// Retries a read of the bounds that failed because the store was unavailable.
    pub(in crate::core) fn tick_attempt(&mut self) {
        if let Some(mut i) = self.writer.take() {
            if let Step::Waiting(conflict) = i.attempt.step {
                self.check_part(&mut i.attempt, conflict);
            }
            self.writer.keep(i);
        }
    }

    /// Handles a proposal of which nothing took effect: its clients get an error.
    fn commit_failed(&mut self, e: &StateError) {
        let Some(lost) = self.writer.take() else { return };
        if lost.changes.global_id_end.is_some() {
            self.credentials.ids().refused();
        }
        let text = format!("nothing was changed: {e}");
        self.refuse_all(lost.waiters, errno::EIO, &text);
        self.run_deferred();
    }

    /// Handles a durable proposal: updates the state in memory, runs the waiters and notifies subscribers.
    fn committed(&mut self) {
        let Some(done) = self.writer.take() else { return };
        let (map_changed, awaited) = (done.map.is_some(), done.brings_up() || done.takes_down());
        let took = self.now.mono.since(done.started);
        self.writer.count(took);
        self.state.store.committed(took, self.now.mono);
        for (pool, queue) in done.creating {
            self.set_creating(pool, queue.as_ref());
        }
        for (pool, snaps) in done.purged {
            self.state.osds.purged_snaps.entry(pool).or_default().union_of(&snaps);
        }
        if let Some(m) = done.map {
            self.take_up_osdmap(m);
        }
        if done.oldest != self.state.history.oldest {
            self.state.history.trim(done.oldest);
        }
        let config_changed = !done.config.is_empty();
        let mut c = done.changes;
        let fs_changed = done.fsmap.is_some();
        self.take_up_fs(&mut c, done.fsmap);
        self.take_up_config(done.config, &c);
        let entities = self.take_up_auth(std::mem::take(&mut c.auth));
        let (monmap_changed, mgr_changed) = (c.monmap.is_some(), c.mgrmap.is_some());
        self.take_up_records(&mut c);
        for line in &done.log {
            self.intake.log_known.keep(line);
            self.state.log.push(line.clone());
        }
        if fs_changed {
            // An MDS gets the map before the answer to the beacon that led to it.
            self.publish_fsmap();
        }
        self.run_waiters(done.waiters);
        for (name, old) in entities {
            self.entity_changed(&name, old.as_ref());
        }
        if map_changed {
            self.publish_osdmap();
        }
        if awaited {
            self.tell_awaited();
        }
        if mgr_changed {
            self.publish_mgrmap();
        }
        if config_changed {
            self.publish_config();
        }
        if !c.kv.is_empty() {
            self.publish_kv(&c.kv);
        }
        if !done.log.is_empty() {
            self.publish_log(&done.log);
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

    fn take_up_osdmap(&mut self, m: NewMap) {
        self.state.history.committed(m.map.epoch, m.inc_blob, m.full_blob, m.checkpoint);
        for id in &m.inc.old_pools {
            self.state.osds.purged_snaps.remove(id);
        }
        let old = std::mem::replace(&mut self.state.osdmap, m.map);
        self.state.mgr.stats.sync(&self.state.osdmap, self.now);
        self.state.mgr.keep_osds(&self.state.osdmap);
        self.after_map_change(&old, &m.inc);
    }

    /// Adds, changes or removes entities. Returns their names, each with its earlier entry.
    fn take_up_auth(&mut self, changes: BTreeMap<AuthName, Option<AuthEntry>>) -> Vec<(AuthName, Option<AuthEntry>)> {
        let mut entities = Vec::new();
        for (name, e) in changes {
            let old = match e {
                Some(e) => self.state.auth.insert(name.clone(), e),
                None => self.state.auth.remove(&name),
            };
            entities.push((name, old));
        }
        entities
    }

    /// Takes up everything but OSD map, FSMap, configuration and entities. The values of `config-key` stay in `c`.
    fn take_up_records(&mut self, c: &mut Pending) {
        if !c.kv.is_empty() {
            self.state.kv.next_version();
        }
        for (k, v) in &c.kv {
            self.state.kv.set(k.clone(), v.clone());
        }
        for (code, m) in std::mem::take(&mut c.mutes) {
            match m {
                Some(m) => self.state.mutes.insert(code, m),
                None => self.state.mutes.remove(&code),
            };
        }
        for (osd, m) in std::mem::take(&mut c.osd_metadata) {
            match m {
                Some(m) => self.state.osds.metadata.insert(osd, m),
                None => self.state.osds.metadata.remove(&osd),
            };
        }
        if let Some(k) = c.service_keys.take() {
            self.credentials.set_keys(k);
        }
        if let Some(end) = c.global_id_end {
            self.credentials.ids().granted(end);
        }
        if let Some(m) = c.monmap.take() {
            self.take_up_monmap(m);
        }
        if let Some(m) = c.mgrmap.take() {
            self.take_up_mgrmap(m);
        }
    }

    fn take_up_monmap(&mut self, m: cluster::MonMap) {
        self.state.monmap = m;
        self.publish_monmap();
    }

    fn take_up_mgrmap(&mut self, m: MgrMap) {
        self.state.mgrmap = m;
    }

    fn take_up_config(&mut self, changes: Vec<ConfigChange>, c: &Pending) {
        if changes.is_empty() {
            return;
        }
        let db = &mut self.state.config;
        for (k, v) in &c.config {
            match v {
                Some(v) => db.values.insert(k.clone(), v.clone()),
                None => db.values.remove(k),
            };
        }
        for change in changes {
            db.version = change.version;
            db.history.push_back(change);
            if db.history.len() > CONFIG_HISTORY_KEEP {
                db.history.pop_front();
            }
        }
        self.state.options.apply_central(&self.state.config, &self.state.mon_name);
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
