//! Peering as the primary: the states of the copies, the authoritative log, the acting set, and the start of the
//! interval.
//!
//! The steps are Ceph's. Ask every copy that may have taken writes (`GetInfo`), take over the authoritative log
//! (`GetLog`), and wait for `up_thru` in the map. Then make the members' logs equal and learn what they lack
//! (`Activating`), wait for leases of the previous interval to end, and serve.
//!
//! Invariants:
//!  1. An acknowledged write is in the log of every member of its interval. Of each interval that may have taken
//!     writes since the last one that started, a member has answered. So the write is in the newest log among the
//!     copies that took part in the last started interval.
//!  2. The log of each member of the acting set overlaps the authoritative one. A copy that is further behind, or
//!     incomplete, is a backfill target instead; the primary asks for another acting set if necessary.
//!
//! Tests: `tests/peering.rs`, `tests/replicated.rs`.

use crate::effect::Effect;
use crate::exec::Step;
use crate::info::PgInfo;
use crate::interval::Prior;
use crate::peer::{Body, Grants};
use crate::pg::journal::action::Action;
use crate::pg::journal::action::Merge;
use crate::pg::journal::action::PeeringAction;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::LifeWork;
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::Member;
use crate::pg::recovery::backfill::Backfill;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::OsdId;
use base::planted::{Bug, acts};
use base::unreached;
use base::{Epoch, Eversion, HObject};
use bytes::Bytes;
use std::time::Duration;
use store::ObjectStore;

/// The acting set that follows from the copies' infos.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pg) struct Choice {
    pub auth: PeerId,
    /// The chosen version: the log up to it is authoritative, and newer entries are undone.
    pub version: Eversion,
    /// The wanted acting set: in a replicated PG the primary first, in an erasure-coded PG each shard at its place.
    pub want: Vec<OsdId>,
    /// The copy that leads the wanted acting set. The logs of all others overlap its log.
    pub lead: PeerId,
    /// Members of the up set that need backfill.
    pub backfill: Vec<PeerId>,
}

impl Pg {
    /// Starts peering, or continues it after a map of the same interval.
    pub(in crate::pg) fn get_infos(&mut self, turn: &mut Turn<'_>) {
        let Some(map) = self.maps.newest() else { return unreached("peering follows a map") };
        let started = self.journal.info().history.last_epoch_started;
        let (needed, wide) = (self.shards_needed(), self.peers.wide);
        let prior = Prior::build(&self.journal.info().past, started, map, &self.peers.failed, needed, wide);
        let me = self.me();
        let mut ask = Vec::new();
        for o in prior.probe.iter().filter(|o| **o != me) {
            if !self.peers.known.contains_key(o) && !self.peers.prior.probe.contains(o) {
                ask.push(*o);
            }
        }
        self.peers.known.retain(|o, _| map.osds.is_up(o.osd));
        self.peers.prior = prior;
        for o in ask {
            self.send_to(o, &Body::Query);
        }
        if self.peers.prior.blocked_by.is_empty() {
            if matches!(self.life.state(), State::Down(_)) {
                self.life.enter(State::GetInfo);
            }
        } else {
            let blocked: Vec<OsdId> = self.peers.prior.blocked_by.iter().copied().collect();
            if *self.life.state() != State::Down(blocked.clone()) {
                tracing::info!(pg = %self.env.spg(), ?blocked, "PG is down: another OSD may hold its newest data");
                self.life.enter(State::Down(blocked));
            }
            return self.retry_held(turn);
        }
        self.check_infos(turn);
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a message")]
    pub(in crate::pg) fn take_notify(
        &mut self,
        from: PeerId,
        info: Box<PgInfo>,
        absent: bool,
        grants: &Grants,
        turn: &mut Turn<'_>,
    ) {
        for (o, ms) in grants {
            // A primary on this OSD, or on one that has answered, no longer serves.
            let answered = *o == from.osd || self.peers.known.keys().any(|p| p.osd == *o);
            if *o != self.env.whoami() && !answered {
                let until = turn.now.mono + Duration::from_millis((*ms).into()).min(crate::limits::READ_LEASE * 2);
                self.peers.granted.raise(*o, until);
            }
        }
        // The sender has the map that ended its lead.
        self.peers.granted.remove(&from.osd);
        let back = self.failed_is_back(from);
        let news = self.journal.merge_history(&info.history);
        // The sender dropped `Activate`, since its map was newer.
        let again = self.peers.members.get(&from).filter(|_| absent).and_then(|m| m.activate.clone());
        if let Some(encoded) = again {
            self.send_encoded(from, encoded);
        }
        let before = self.peers.known.insert(from, (!absent).then_some(info));
        let first = before.is_none();
        if self.is_coded() {
            self.rewind_stray(from, turn);
        }
        // A shard that was rewound may have an object that was not found before.
        let moved = before.flatten().is_some_and(|b| {
            self.peers.known.get(&from).and_then(|k| k.as_ref()).is_some_and(|i| i.last_update != b.last_update)
        });
        match self.life.state() {
            State::GetInfo | State::Down(_) | State::Inactive(_) => {
                if news || back {
                    self.get_infos(turn);
                } else {
                    self.check_infos(turn);
                }
            }
            // The copy was to send its log, but does not exist.
            State::GetLog { auth, .. } if absent && *auth == from && !self.peers.merging => {
                self.choose_again(turn);
            }
            State::Active | State::Peered | State::Quiesced => {
                if first || moved {
                    self.recovery.search_again(self.is_coded());
                }
                if self.peers.clean {
                    self.purge_strays();
                }
                self.take_back_strays();
            }
            State::WaitLease { .. } => {
                // The copy answered unasked; the wait may become shorter.
                self.wait_for_leases(turn);
            }
            _ => {}
        }
    }

    /// Continues peering once all copies that were asked have answered.
    pub(in crate::pg) fn check_infos(&mut self, turn: &mut Turn<'_>) {
        if self.peers.prior.unknown && self.fill_gaps() {
            return self.get_infos(turn);
        }
        let me = self.me();
        let waits = self.peers.prior.probe.iter().any(|o| *o != me && !self.peers.known.contains_key(o));
        if waits || !self.peers.prior.blocked_by.is_empty() || self.peers.merging || !self.is_settled() {
            return;
        }
        if self.peers.prior.unknown && !self.peers.wide {
            self.peers.wide = true;
            return self.get_infos(turn);
        }
        if self.is_coded() && self.asks_touched() {
            return;
        }
        let Some(c) = self.choose() else {
            let why = "no complete copy took part in the last interval that started".to_owned();
            if *self.life.state() != State::Inactive(why.clone()) {
                tracing::warn!(pg = %self.env.spg(), %why, "PG is incomplete");
                self.life.enter(State::Inactive(why));
                self.retry_held(turn);
            }
            return;
        };
        self.life.enter(State::GetInfo);
        let coded = self.is_coded();
        if !(c.lead == me && self.is_acting_set(&c.want)) {
            let m = &self.journal.info().interval.mapping;
            let is_up = c.lead.osd == m.up_primary && self.is_same_set(&c.want, &m.up);
            let want = if is_up { Vec::new() } else { c.want };
            if self.peers.want.as_ref() != Some(&want) {
                tracing::info!(pg = %self.env.spg(), ?want, "asking the monitor for another acting set");
                self.peers.want = Some(want.clone());
                self.mail.post(Effect::WantPgTemp(want));
            }
            return;
        }
        self.peers.want = None;
        if coded {
            self.ec.choose(c.version);
        }
        if c.version == self.journal.info().last_update || c.auth == me && !coded {
            return self.log_ready(c.backfill, turn);
        }
        // A primary whose own log is ahead of the chosen version asks itself.
        self.life.enter(State::GetLog { auth: c.auth, targets: c.backfill });
        let ask = self.log_wanted();
        self.send_to(c.auth, &ask);
    }

    /// The question for the authoritative log.
    pub(in crate::pg) fn log_wanted(&self) -> Body {
        let (last_update, les) = (self.journal.info().last_update, self.journal.info().last_epoch_started);
        Body::GetLog { last_update, les, upto: self.chosen_version() }
    }

    /// The newest version of the authoritative log: entries of other logs beyond it are undone.
    fn chosen_version(&self) -> Eversion {
        let theirs = || self.life.auth().and_then(|a| self.peers.known.get(&a)).and_then(|k| k.as_deref());
        if self.is_coded() {
            self.ec.version()
        } else {
            theirs().map_or(self.journal.info().last_update, |i| i.last_update)
        }
    }

    /// The copy that was asked for the authoritative log.
    #[must_use]
    pub fn asks_for_log(&self) -> Option<PeerId> {
        self.life.auth()
    }

    /// A member of the acting set that is a backfill target; for checks. `Some` is a bug: such a member would count as
    /// a copy.
    #[must_use]
    pub fn fills_a_member(&self) -> Option<PeerId> {
        let acting = self.acting_set();
        self.peers.members.iter().find(|(o, m)| m.backfill.is_some() && acting.contains(**o)).map(|(o, _)| *o)
    }

    /// The infos of all copies that answered, this one first.
    pub(in crate::pg) fn infos(&self) -> Vec<(PeerId, &PgInfo)> {
        let others = self.peers.known.iter().filter_map(|(o, k)| Some((*o, &**k.as_ref()?)));
        std::iter::once((self.me(), self.journal.info())).chain(others).collect()
    }

    fn choose(&self) -> Option<Choice> {
        if let Some(k) = self.shards_needed() {
            return self.choose_shards(k);
        }
        let me = self.me();
        let infos = self.infos();
        let mut started = Epoch(0);
        for (_, i) in &infos {
            started = started.max(i.history.last_epoch_started);
            if i.is_complete() {
                started = started.max(i.last_epoch_started);
            }
        }
        let took_part = |i: &PgInfo| i.last_epoch_started >= started;
        let floor = infos.iter().filter(|(_, i)| took_part(i)).map(|(_, i)| i.last_update).min()?;
        let (auth, best) = infos
            .iter()
            .filter(|(_, i)| i.is_complete() && took_part(i) && i.last_update >= floor)
            .max_by_key(|(o, i)| (i.last_update, std::cmp::Reverse(i.log_tail), *o == me, std::cmp::Reverse(*o)))?;
        let info_of = |o: PeerId| infos.iter().find(|(x, _)| *x == o).map(|(_, i)| *i);
        let blank = PgInfo::default();
        let reaches = |o: PeerId, tail: Eversion| {
            let i = info_of(o).unwrap_or(&blank);
            i.is_complete() && i.last_update >= tail && !self.peers.failed.contains(&o)
        };
        let m = &self.journal.info().interval.mapping;
        let map = self.maps.newest()?;
        let size = self.journal.info().interval.size as usize;
        let mut strays: Vec<(PeerId, Eversion)> = infos.iter().map(|(o, i)| (*o, i.last_update)).collect();
        strays.sort_by_key(|(o, v)| (std::cmp::Reverse(*v), *o));
        // The members and backfill targets of a set with this primary.
        let fill = |primary: PeerId| {
            // All other logs must reach the tail of the primary's log, which does not move. (A primary without a log
            // takes over the authoritative one as a whole.)
            let own_tail = info_of(primary).unwrap_or(&blank).log_tail;
            let tail = if acts(Bug::TailOfAuthority) { best.log_tail } else { own_tail };
            let usable = |o: PeerId| reaches(o, tail);
            let (mut want, mut backfill) = (vec![primary], Vec::new());
            for o in m.up(false).iter().filter(|o| *o != primary) {
                if usable(o) {
                    want.push(o);
                } else if !self.peers.failed.contains(&o) {
                    backfill.push(o);
                }
            }
            // Where CRUSH finds too few places, or places that have to be filled first, copies stay where they are.
            for o in m.acting(false).iter().chain(strays.iter().map(|(o, _)| *o)) {
                let has = info_of(o).is_some() && usable(o) && map.osds.is_up(o.osd);
                if want.len() < size && has && !want.contains(&o) && !backfill.contains(&o) {
                    want.push(o);
                }
            }
            (want.into_iter().map(|p| p.osd).collect::<Vec<OsdId>>(), backfill)
        };
        // The primary takes over the authoritative log, so its own log must reach the tail of that log.
        let up_primary = PeerId::from(m.up_primary);
        let leads = m.up.contains(&m.up_primary) && reaches(up_primary, best.log_tail);
        let preferred = if leads { up_primary } else { *auth };
        let named = self.named_primary().filter(|p| reaches(*p, best.log_tail)).map(|p| (p, fill(p)));
        let (lead, (want, backfill)) = match named.filter(|(_, (want, _))| self.is_acting_set(want)) {
            Some(kept) => kept,
            None => (preferred, fill(preferred)),
        };
        Some(Choice { auth: *auth, version: best.last_update, want, lead, backfill })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a message")]
    pub(in crate::pg) fn take_log(
        &mut self,
        from: PeerId,
        since: Eversion,
        info: PgInfo,
        records: Vec<Bytes>,
        turn: &mut Turn<'_>,
    ) {
        if self.life.auth() != Some(from) || self.peers.merging {
            return;
        }
        // The copy may have been removed and created anew after its answer; its log is then not what was chosen.
        let chosen = self.peers.known.get(&from).and_then(|k| k.as_deref());
        let version = self.chosen_version();
        let less = |c: &PgInfo| info.last_update < version || info.last_epoch_started < c.last_epoch_started;
        if chosen.is_some_and(less) {
            tracing::warn!(pg = %self.env.spg(), %from, version = %info.last_update, "the copy with the authoritative log has lost it; choosing another one");
            self.peers.known.insert(from, Some(Box::new(info)));
            return self.choose_again(turn);
        }
        self.peers.merging = true;
        let m = Merge { from, les: None, since, reset: false, info, records, undo: false };
        self.start_work(Work::Peering(PeeringWork::Merge(Box::new(m))), None, turn);
    }

    /// Continues peering once the primary's log is the authoritative one. `targets` are filled once the interval has
    /// started.
    pub(in crate::pg) fn log_ready(&mut self, targets: Vec<PeerId>, turn: &mut Turn<'_>) {
        self.life.enter(State::WaitUpThru { targets });
        self.check_up_thru(turn);
    }

    pub(in crate::pg) fn run_activate(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        match self.activate(id, turn.store) {
            Ok(()) => Verdict::Submitted,
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    fn activate(&mut self, id: u64, store: &mut dyn ObjectStore) -> Step<()> {
        let tag = self.tag(id);
        let epoch = self.epoch();
        let serves = self.enough();
        let me = self.me();
        let targets = self.life.targets().iter().copied();
        let others: Vec<PeerId> = self.acting_set().iter().chain(targets).filter(|o| *o != me).collect();
        // The version from which each member needs the log.
        let mut plan = Vec::new();
        let blank = PgInfo::default();
        for o in others {
            let known = self.peers.known.get(&o).and_then(|k| k.as_deref()).unwrap_or(&blank);
            let reset = known.last_update < self.journal.log().tail;
            let since = if reset {
                self.journal.log().tail
            } else {
                self.common_with(known.last_update, known.last_epoch_started)
            };
            let upto = if reset { HObject::min() } else { known.last_backfill.clone() };
            plan.push((o, since, reset, upto));
        }
        let oldest = plan.iter().map(|(_, since, ..)| *since).min();
        let log = match oldest {
            Some(v) if v < self.journal.info().last_update => store.log_entries(tag, self.env.cid(), v)?,
            _ => Vec::new(),
        };

        let mut info = self.journal.info().clone();
        info.epoch = epoch;
        let les = if serves { epoch } else { Epoch(0) };
        if serves {
            info.last_epoch_started = epoch;
        }
        info.served = true;
        if plan.is_empty() && serves {
            // With a single copy the interval has started everywhere, and the PG is clean if one copy is wanted.
            let h = &mut info.history;
            h.last_epoch_started = epoch;
            h.last_interval_started = h.same_interval_since;
            if self.recovery.missing().is_empty() && self.has_all_copies() {
                h.last_epoch_clean = epoch;
                h.last_interval_clean = h.same_interval_since;
                info.past.clear();
            }
        }
        self.commit_with_info(tag, info, Vec::new(), store)?;
        for (o, since, reset, upto) in plan {
            let from = log.partition_point(|(v, _)| *v <= since);
            let records = log.iter().skip(from).map(|(_, r)| r.clone()).collect();
            let b = Body::Activate { les, since, reset, info: Box::new(self.journal.info().clone()), records };
            let encoded = b.encode();
            let backfill = (!upto.max).then(|| Box::new(Backfill::new(upto)));
            let m = Member { activate: Some(encoded.clone()), backfill, ..Member::default() };
            self.peers.members.insert(o, m);
            self.send_encoded(o, encoded);
        }
        self.on_durable(Action::Peering(PeeringAction::Activated(self.life.generation(), epoch)));
        Ok(())
    }

    /// True if there are enough copies to serve.
    pub(in crate::pg) fn enough(&self) -> bool {
        let least = self.journal.info().interval.min_size.max(1) as usize;
        self.acting_set().len() >= least.max(self.shards_needed().unwrap_or(1))
    }

    /// Handles the durability of the primary's part of the activation.
    pub(in crate::pg) fn activated(&mut self, _epoch: Epoch, turn: &mut Turn<'_>) {
        self.life.start_recorded();
        self.check_activated(turn);
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a message")]
    pub(in crate::pg) fn take_activated(
        &mut self,
        from: PeerId,
        missing: Vec<(HObject, Eversion)>,
        frame: u64,
        turn: &mut Turn<'_>,
    ) {
        let Some(m) = self.peers.members.get_mut(&from) else { return };
        if m.activated {
            return;
        }
        m.activated = true;
        m.activate = None;
        m.frame = (frame < u64::MAX).then_some(frame);
        m.missing = missing.into_iter().collect();
        self.recovery.walk_anew();
        self.check_activated(turn);
    }

    pub(in crate::pg) fn check_activated(&mut self, turn: &mut Turn<'_>) {
        if !self.life.is_start_recorded() || !self.peers.members.values().all(|m| m.activated) {
            return;
        }
        if !self.enough() {
            tracing::info!(pg = %self.env.spg(), "PG is peered, but has too few copies to serve");
            self.life.enter(State::Peered);
            self.report.state_changed(turn.now);
            if self.is_coded() {
                self.rewind_strays(turn);
            }
            return self.retry_held(turn);
        }
        if self.is_coded() {
            return self.start_work(Work::Peering(PeeringWork::SaveStart), None, turn);
        }
        if !self.peers.members.is_empty() {
            self.journal.note_start();
            self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
            if self.has_failed() {
                return;
            }
        }
        self.wait_for_leases(turn);
    }

    pub(in crate::pg) fn wait_for_leases(&mut self, turn: &mut Turn<'_>) {
        // A former primary may not know yet that the interval ended.
        self.drop_grants(turn.now);
        self.life.enter(State::WaitLease { until: self.peers.granted.values().max().copied() });
        self.check_lease_wait(turn);
    }

    /// Begins to serve once no lease of an older interval lasts.
    pub(in crate::pg) fn check_lease_wait(&mut self, turn: &mut Turn<'_>) {
        let State::WaitLease { until } = *self.life.state() else { return };
        if until.is_some_and(|t| t > turn.now.mono) && !acts(Bug::SkipPriorLeases) {
            return;
        }
        self.peers.granted.clear();
        self.share_history(false);
        if self.maps.newest().is_some_and(|m| m.premerge(self.env.spg().pg)) {
            tracing::debug!(pg = %self.env.spg(), epoch = %self.epoch(), "the PG serves nothing until its merge");
            self.life.enter(State::Quiesced);
            self.report.state_changed(turn.now);
            return self.retry_held(turn);
        }
        self.life.enter(State::Active);
        self.report.became_active(turn.now);
        if self.is_coded() {
            self.rewind_strays(turn);
        }
        tracing::debug!(pg = %self.env.spg(), epoch = %self.epoch(), "active");
        self.life.set_creation_told(false);
        self.report_created(turn.out);
        self.release_backoffs(turn.out);
        self.retry_held(turn);
    }

    pub(in crate::pg) fn share_history(&mut self, clean: bool) {
        let b = Body::Started { history: Box::new(self.journal.info().history.clone()), clean };
        let to: Vec<PeerId> = self.peers.members.keys().copied().collect();
        for o in to {
            self.send_reliably(o, &b);
        }
    }
}
