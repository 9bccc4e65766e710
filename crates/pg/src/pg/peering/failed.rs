//! A copy whose store or log failed: it stops, and the other copies go on without it. An OSD that dies is not
//! meant: a map ends the interval then (`life::follow`).
//!
//! The machine stops, keeps the newest map, and tells the primary that it counts as down ([`Body::Failed`]). It does
//! so when it fails, at each new interval, and in answer to messages. A primary that fails asks the monitor for an
//! acting set of the other copies. Another primary asks for an acting set without the failed copy and stops its
//! backfill. It does not ask for the up set while the copy is in that. So the PG stays degraded, and reports it,
//! until the OSD restarts or is marked out.
//!
//! Invariants:
//!  1. For past intervals a failed copy counts as an OSD that is down, not as a copy without data.
//!  2. Its collection is removed only when the PG is clean without it, or the pool is deleted.
//!  3. A failed primary does not ask for a copy that it knows to have failed, until that copy's OSD goes down or the
//!     copy notifies again.
//!
//! Tests: `tests/failed.rs`.

use crate::effect::{Effect, LogLevel};
use crate::interval::IntervalKey;
use crate::map::MapView;
use crate::peer::Body;
use crate::pg::{Pg, State, Turn};
use crate::shards::{PeerId, ShardSet};
use base::OsdId;
use base::errno::Errno;
use base::planted::{Bug, acts};
use base::unreached;

impl Pg {
    /// Handles a failure of the whole store. All its PGs fail with it and the OSD leaves, so single copies are not
    /// reported.
    pub(in crate::pg) fn store_failed(&mut self, errno: Errno, out: &mut Vec<Effect>) {
        if self.peers.store_lost {
            return;
        }
        self.peers.store_lost = true;
        self.end(errno, out);
        out.push(Effect::Failed(errno));
    }

    /// Fails this copy, since its stored state or a message for it is invalid. The copy serves nothing until the OSD
    /// restarts.
    pub(in crate::pg) fn fail(&mut self, errno: Errno, out: &mut Vec<Effect>) {
        if matches!(self.life.state(), State::Failed(_)) {
            return;
        }
        self.end(errno, out);
        let name = base::errno::name(errno);
        let text = format!(
            "{}: the copy on {} failed ({name}) and takes no part; restart that OSD, or mark it out",
            self.env.spg(),
            self.env.whoami()
        );
        out.push(Effect::Log(LogLevel::Error, text));
        out.push(Effect::CopyFailed(errno));
        self.say_failed();
    }

    /// As `Pg::fail`, for a host that can't provide what the copy needs.
    pub fn withdraw(&mut self, errno: Errno, why: &str, out: &mut Vec<Effect>) {
        tracing::error!(pg = %self.env.spg(), errno, why, "the host can't use this copy; it fails");
        self.fail(errno, out);
        self.mail.flush(out);
    }

    fn end(&mut self, errno: Errno, out: &mut Vec<Effect>) {
        tracing::error!(pg = %self.env.spg(), errno, "this copy failed and stops");
        self.life.enter(State::Failed(errno));
        if !self.is_frozen() {
            self.stay("the copy failed");
        }
        self.drop_operations(out);
        self.drop_actions(out);
        self.mail.drop_peers();
        self.forget_copies();
        // While the store works, their durability is still reported, and the removal of this copy counts on it.
        self.journal.retain_actions(|_, _| false);
        if self.peers.store_lost {
            self.journal.drop_commits();
        }
        self.watches.clear();
        for map in self.maps.take_postponed() {
            self.map_of_failed(map, out);
        }
    }

    /// True if this copy failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.life.state(), State::Failed(_))
    }

    /// Handles a newer map for a failed copy. True if the copy may be removed.
    pub(in crate::pg) fn map_of_failed(&mut self, map: MapView, out: &mut Vec<Effect>) -> bool {
        if self.maps.newest().is_some_and(|m| m.epoch >= map.epoch) {
            return false;
        }
        if self.await_children(&map)
            && let State::Failed(errno) = *self.life.state()
        {
            // The children's content is in the unreadable collection: they fail as well.
            out.push(Effect::SplitFailed(self.resize.give_up_split(), errno));
        }
        let gone = map.pool.is_none();
        let news =
            self.maps.newest().is_none_or(|m| IntervalKey::of(m) != IntervalKey::of(&map) || m.up_from != map.up_from);
        // An OSD that went down may come back with a good copy.
        if let Some(f) = self.peers.failed.used() {
            f.retain(|p| map.osds.is_up(p.osd));
        }
        self.maps.follow(map);
        if news && !gone {
            self.say_failed();
        }
        gone && !self.peers.store_lost && !self.life.is_stopping()
    }

    /// Reports the failure: to the monitor as primary, else to the primary.
    pub(in crate::pg) fn say_failed(&mut self) {
        let State::Failed(errno) = *self.life.state() else { return unreached("this copy failed") };
        let Some(map) = self.maps.newest().filter(|_| !self.life.is_stopping() && !self.peers.store_lost) else {
            return;
        };
        if acts(Bug::FailedCopyStays) {
            return;
        }
        let m = &map.mapping;
        let coded = self.is_coded();
        let (me, primary) = (self.me(), m.primary(coded));
        if primary == me {
            // Two failed copies must not ask for each other without end.
            let may = |p: PeerId| p != me && map.osds.is_up(p.osd) && !self.peers.failed.contains(&p);
            let others = |v: ShardSet<'_>| without(v, coded, may);
            let mut want = others(m.acting(coded));
            if want.is_empty() {
                want = others(m.up(coded));
            }
            if !want.is_empty() {
                self.mail.post(Effect::WantPgTemp(want));
            }
        } else if primary.osd.0 >= 0 && map.osds.is_up(primary.osd) {
            self.send_to(primary, &Body::Failed { errno });
        }
    }

    /// Handles a message for a failed copy. True if the copy is to be removed.
    pub(in crate::pg) fn peer_of_failed(&mut self, from: PeerId, body: &Body) -> bool {
        let State::Failed(errno) = *self.life.state() else { return unreached("this copy failed") };
        let Some(map) = self.maps.newest().filter(|_| !self.peers.store_lost && !self.life.is_stopping()) else {
            return false;
        };
        let m = &map.mapping;
        let coded = self.is_coded();
        let from_primary = m.primary(coded) == from;
        if matches!(body, Body::Remove) {
            let me = self.me();
            return from_primary && !m.acting(coded).contains(me) && !m.up(coded).contains(me);
        }
        if from_primary && !acts(Bug::FailedCopyStays) {
            self.send_to(from, &Body::Failed { errno });
        } else if m.acting_primary == self.env.whoami() {
            self.peer_while_failed(from, body);
        }
        false
    }

    /// As a failed primary: notes that another copy failed, too, or that one is back and may serve instead.
    fn peer_while_failed(&mut self, from: PeerId, body: &Body) {
        match body {
            Body::Failed { .. } => _ = self.peers.failed.insert(from),
            Body::Notify { .. } if self.peers.failed.contains(&from) => {
                self.peers.failed.remove(&from);
                self.say_failed();
            }
            _ => {}
        }
    }

    /// Handles the report of another copy that it failed.
    pub(in crate::pg) fn take_failed(&mut self, from: PeerId, errno: Errno, turn: &mut Turn<'_>) {
        if !self.peers.failed.insert(from) {
            return;
        }
        if self.peers.clean && !self.acting_set().contains(from) {
            return self.purge_strays();
        }
        let name = base::errno::name(errno);
        tracing::error!(pg = %self.env.spg(), %from, errno = name, "a copy failed; the PG goes on without it");
        self.peers.known.remove(&from);
        self.ask_others();
        self.recovery.ask_others_than(|o| o == from);
        self.life.drop_target(from);
        match self.life.state() {
            State::GetInfo | State::Down(_) | State::Inactive(_) if self.unservable().is_none() => {
                self.get_infos(turn);
            }
            State::GetLog { auth, .. } if *auth == from && !self.peers.merging => self.choose_again(turn),
            State::WaitUpThru { .. }
            | State::Activating { .. }
            | State::WaitLease { .. }
            | State::Active
            | State::Peered
            | State::Quiesced => {
                if self.acting_set().contains(from) {
                    self.want_without_failed();
                } else {
                    self.drop_member(from, turn);
                }
            }
            _ => {}
        }
    }

    /// Notes that a failed copy is back after a restart of its OSD, and asks for the up set if the copy is in it.
    /// True if it had failed.
    pub(in crate::pg) fn failed_is_back(&mut self, o: PeerId) -> bool {
        if !self.peers.failed.contains(&o) {
            return false;
        }
        self.peers.failed.remove(&o);
        let serves = matches!(self.life.state(), State::Active | State::Peered | State::Quiesced);
        if serves && self.up_set().contains(o) {
            self.peers.want = Some(Vec::new());
            self.mail.post(Effect::WantPgTemp(Vec::new()));
        }
        true
    }

    /// Asks the monitor for an acting set without the failed copies.
    fn want_without_failed(&mut self) {
        let mut want = without(self.acting_set(), self.is_coded(), |p| !self.peers.failed.contains(&p));
        if want == self.journal.info().interval.mapping.up {
            want = Vec::new();
        }
        if self.peers.want.as_ref() != Some(&want) {
            self.peers.want = Some(want.clone());
            self.mail.post(Effect::WantPgTemp(want));
        }
    }

    /// True if a member has failed and the map still has it.
    pub(in crate::pg) fn waits_without_failed(&self) -> bool {
        self.peers.want.is_some() && self.acting_set().iter().any(|o| self.peers.failed.contains(&o))
    }

    /// Chooses another authoritative log, since the copy with the chosen one is gone or can't send it.
    pub(in crate::pg) fn choose_again(&mut self, turn: &mut Turn<'_>) {
        self.life.enter(State::GetInfo);
        self.get_infos(turn);
    }

    /// Drops a backfill target that failed.
    fn drop_member(&mut self, o: PeerId, turn: &mut Turn<'_>) {
        if self.peers.members.remove(&o).is_none() {
            return;
        }
        let pushes: Vec<u64> = self.recovery.pushes().iter().filter(|(_, p)| p.to == o).map(|(id, _)| *id).collect();
        for id in pushes {
            self.recovery.drop_push(id);
            if let Some(plan) = self.plans.take(id) {
                self.unlock(&plan);
                self.plans.abandon(id);
            }
        }
        // A place on its OSD was part of the reservation.
        self.unreserve();
        // Plans that waited for an object which only this copy lacked go on.
        self.recovery.wake_all();
        self.count_acked();
        self.finish_commits(turn);
        self.writes_settled();
        self.check_activated(turn);
    }
}

/// The OSDs of a set without those that `stays` rejects: shards leave a hole. An empty list if none stays.
fn without(set: ShardSet<'_>, coded: bool, stays: impl Fn(PeerId) -> bool) -> Vec<OsdId> {
    let mut all = Vec::new();
    for p in set.iter().filter(|p| stays(*p)) {
        if coded {
            all.resize(usize::try_from(p.shard.0).unwrap_or(0), OsdId::NONE);
        }
        all.push(p.osd);
    }
    if coded && !all.is_empty() {
        all.resize(set.places(), OsdId::NONE);
    }
    all
}
