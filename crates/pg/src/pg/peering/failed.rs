//! A copy that its store or its log failed takes itself out, and the others go on without it.
//!
//! The machine stops, keeps the newest map, and tells whoever leads that it counts as down ([`Body::Failed`]): unasked when it fails
//! and at each new interval, and again whenever it is spoken to. A primary that fails asks the monitor for an acting set of the others. Who leads asks for
//! an acting set without the copy, fills it no more, and never asks for the up set while the copy is in it: the PG stays degraded
//! and says so, until the OSD starts again or is marked out.
//!
//! Invariants:
//!  1. What a failed copy may have is not known to be nowhere: for past intervals it counts as an OSD that is down, not as one that has nothing.
//!  2. Its collection is removed only when the PG is clean without it, or its pool is gone.
//!  3. A primary that failed asks for no copy of which it knows that it failed, too, until that one's OSD went down or says that the copy is there.

use crate::effect::{Effect, LogLevel};
use crate::interval::IntervalKey;
use crate::map::MapView;
use crate::peer::Body;
use crate::pg::{Pg, State};
use crate::shards::{PeerId, ShardSet};
use base::errno::Errno;
use base::planted::{Bug, acts};
use base::{Now, OsdId};
use store::ObjectStore;

impl Pg {
    /// The store as a whole failed, and with it all PGs on it: the OSD leaves, nobody needs to be told of each.
    pub(in crate::pg) fn store_failed(&mut self, errno: Errno, out: &mut Vec<Effect>) {
        if self.store_lost {
            return;
        }
        self.store_lost = true;
        self.end(errno, out);
        out.push(Effect::Failed(errno));
    }

    /// What the store keeps of this copy, or what came for it, is not as it must be: it serves nothing until the OSD starts again.
    pub(in crate::pg) fn fail(&mut self, errno: Errno, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        self.end(errno, out);
        let name = base::errno::name(errno);
        let text = format!(
            "{}: the copy on {} failed ({name}) and takes no part; restart that OSD, or mark it out",
            self.cfg.spg, self.cfg.whoami
        );
        out.push(Effect::Log(LogLevel::Error, text));
        out.push(Effect::CopyFailed(errno));
        self.say_failed();
    }

    /// As `Pg::fail`, for a host that can't give it what it needs.
    pub fn withdraw(&mut self, errno: Errno, why: &str, out: &mut Vec<Effect>) {
        tracing::error!(pg = %self.cfg.spg, errno, why, "a copy can't be used");
        self.fail(errno, out);
        out.append(&mut self.outbox);
    }

    fn end(&mut self, errno: Errno, out: &mut Vec<Effect>) {
        tracing::error!(pg = %self.cfg.spg, errno, "this copy stops");
        self.state = State::Failed(errno);
        if !self.is_frozen() {
            self.stay("it failed");
        }
        self.drop_operations(out);
        self.early_peers.clear();
        self.peers = Default::default();
        self.commits.clear();
        self.watches.clear();
        for map in std::mem::take(&mut self.early_maps) {
            self.map_of_failed(map, out);
        }
    }

    /// True if this copy failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// A newer map comes to a copy that failed. True if the copy may be removed.
    pub(in crate::pg) fn map_of_failed(&mut self, map: MapView, out: &mut Vec<Effect>) -> bool {
        if self.map.as_ref().is_some_and(|m| m.epoch >= map.epoch) {
            return false;
        }
        if self.await_children(&map)
            && let State::Failed(errno) = self.state
        {
            // What would be theirs is there and can't be had: they fail as this one did.
            self.bits = self.bits_coming.max(self.bits);
            out.push(Effect::SplitFailed(std::mem::take(&mut self.awaited), errno));
        }
        let gone = map.pool.is_none();
        let news =
            self.map.as_ref().is_none_or(|m| IntervalKey::of(m) != IntervalKey::of(&map) || m.up_from != map.up_from);
        // An OSD that went down may come back with its copy whole.
        if let Some(f) = self.peers.failed.used() {
            f.retain(|p| map.osds.is_up(p.osd));
        }
        self.map = Some(map);
        if news && !gone {
            self.say_failed();
        }
        gone && !self.store_lost && !self.stopping
    }

    /// Tells whoever can do something about it.
    pub(in crate::pg) fn say_failed(&mut self) {
        let State::Failed(errno) = self.state else { return };
        let Some(map) = self.map.as_ref().filter(|_| !self.stopping && !self.store_lost) else { return };
        if acts(Bug::FailedCopyStays) {
            return;
        }
        let m = &map.mapping;
        let coded = self.is_coded();
        let (me, primary) = (self.me(), m.primary(coded));
        if primary == me {
            // Two copies that failed would ask for each other without end.
            let may = |p: PeerId| p != me && map.osds.is_up(p.osd) && !self.peers.failed.contains(&p);
            let others = |v: ShardSet<'_>| without(v, coded, may);
            let mut want = others(m.acting(coded));
            if want.is_empty() {
                want = others(m.up(coded));
            }
            if !want.is_empty() {
                self.outbox.push(Effect::WantPgTemp(want));
            }
        } else if primary.osd.0 >= 0 && map.osds.is_up(primary.osd) {
            self.tell(primary, &Body::Failed { errno });
        }
    }

    /// A message comes to a copy that failed. True if it is to be removed.
    pub(in crate::pg) fn peer_of_failed(&mut self, from: PeerId, body: &Body) -> bool {
        let State::Failed(errno) = self.state else { return false };
        let Some(map) = self.map.as_ref().filter(|_| !self.store_lost && !self.stopping) else { return false };
        let m = &map.mapping;
        let coded = self.is_coded();
        let from_primary = m.primary(coded) == from;
        if matches!(body, Body::Remove) {
            let me = self.me();
            return from_primary && !m.acting(coded).contains(me) && !m.up(coded).contains(me);
        }
        if from_primary && !acts(Bug::FailedCopyStays) {
            self.tell(from, &Body::Failed { errno });
        } else if m.acting_primary == self.cfg.whoami {
            self.peer_while_failed(from, body);
        }
        false
    }

    /// As a primary that failed: another copy failed, too, or is there again and may serve instead.
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

    /// Another copy says that it failed.
    pub(in crate::pg) fn take_failed(
        &mut self,
        from: PeerId,
        errno: Errno,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        if !self.peers.failed.insert(from) {
            return;
        }
        if self.peers.clean && !self.acting_set().contains(from) {
            return self.purge_strays();
        }
        let name = base::errno::name(errno);
        tracing::error!(pg = %self.cfg.spg, %from, errno = name, "another copy failed, it is left out");
        self.peers.known.remove(&from);
        self.ask_others();
        for p in self.peers.pulls.values_mut().filter(|p| p.source == Some(from)) {
            p.ask_another();
        }
        self.peers.targets.retain(|o| *o != from);
        match self.state {
            State::GetInfo | State::Down(_) | State::Inactive(_) if self.unservable().is_none() => {
                self.get_infos(now, store, out);
            }
            State::GetLog if self.peers.auth == Some(from) && !self.merging => self.choose_again(now, store, out),
            State::WaitUpThru
            | State::Activating
            | State::WaitLease
            | State::Active
            | State::Peered
            | State::Quiesced => {
                if self.acting_set().contains(from) {
                    self.want_without_failed();
                } else {
                    self.drop_member(from, now, store, out);
                }
            }
            _ => {}
        }
    }

    /// A copy that had failed is there again: its OSD was started anew. It may serve, if it is to.
    pub(in crate::pg) fn failed_is_back(&mut self, o: PeerId) -> bool {
        if !self.peers.failed.contains(&o) {
            return false;
        }
        self.peers.failed.remove(&o);
        let serves = matches!(self.state, State::Active | State::Peered | State::Quiesced);
        if serves && self.up_set().contains(o) {
            self.peers.want = Some(Vec::new());
            self.outbox.push(Effect::WantPgTemp(Vec::new()));
        }
        true
    }

    /// Asks for an acting set of those that have not failed.
    fn want_without_failed(&mut self) {
        let mut want = without(self.acting_set(), self.is_coded(), |p| !self.peers.failed.contains(&p));
        if want == self.info.interval.mapping.up {
            want = Vec::new();
        }
        if self.peers.want.as_ref() != Some(&want) {
            self.peers.want = Some(want.clone());
            self.outbox.push(Effect::WantPgTemp(want));
        }
    }

    /// A member failed, and the map has not heard of it.
    pub(in crate::pg) fn waits_without_failed(&self) -> bool {
        self.peers.want.is_some() && self.acting_set().iter().any(|o| self.peers.failed.contains(&o))
    }

    /// Whoever has the authoritative log is gone, or can't give it: another one is chosen among those that are left.
    pub(in crate::pg) fn choose_again(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        self.peers.auth = None;
        self.state = State::GetInfo;
        self.get_infos(now, store, out);
    }

    /// One that was being filled, and is none of the acting set, gets nothing any more.
    fn drop_member(&mut self, o: PeerId, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if self.peers.members.remove(&o).is_none() {
            return;
        }
        let pushes: Vec<u64> = self.peers.pushes.iter().filter(|(_, p)| p.to == o).map(|(id, _)| *id).collect();
        for id in pushes {
            self.peers.pushes.remove(&id);
            if let Some(plan) = self.plans.remove(&id) {
                self.unlock(&plan);
                self.abandoned.push(id);
            }
        }
        // Places were taken for it, too.
        self.unreserve();
        // What waited for an object that only it lacked goes on.
        self.pushed.extend(self.peers.waiting.keys().cloned());
        self.count_acked();
        self.finish_commits(now, store, out);
        self.check_activated(now, store, out);
    }
}

/// The OSDs of a set but for some: shards leave a hole. Nobody: an empty list.
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
