//! The acting set in which a PG stays once no member lacks anything, and what happens when it is reached.
//!
//! Invariants:
//!  1. A PG is recorded as clean only with as many copies as its pool wants.
//!  2. A copy is removed, or left out of the acting set, only for one that has everything.
//!
//! Tests: `tests/peering.rs`, `tests/replicated.rs`.

use crate::effect::Effect;
use crate::interval::PastInterval;
use crate::peer::Body;
use crate::pg::ops::work::LifeWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::OsdId;

impl Pg {
    /// The primary, if an override of the map names it: the acting set alone would have another one. A request for an
    /// acting set ends such an override.
    pub(in crate::pg) fn named_primary(&self) -> Option<PeerId> {
        let m = &self.journal.info().interval.mapping;
        let first = || m.acting.iter().copied().find(|o| *o != OsdId::NONE);
        let default = if m.acting == m.up { Some(m.up_primary) } else { first() };
        let primary = self.primary();
        (default != Some(m.acting_primary) && self.acting_set().contains(primary)).then_some(primary)
    }

    /// True if two sets have the same copies: the same OSDs, or the same shards at the same places.
    pub(in crate::pg) fn is_same_set(&self, a: &[OsdId], b: &[OsdId]) -> bool {
        if self.is_coded() { a == b } else { a.len() == b.len() && a.iter().all(|o| b.contains(o)) }
    }

    /// True if `want` has the copies of the present acting set.
    pub(in crate::pg) fn is_acting_set(&self, want: &[OsdId]) -> bool {
        self.is_same_set(want, &self.journal.info().interval.mapping.acting)
    }

    /// The acting set to serve from once no member lacks anything: the up set, and where CRUSH finds no place the
    /// copies that there are. The second value is false if the present set stays.
    fn settled_set(&self) -> (Vec<OsdId>, bool) {
        let m = &self.journal.info().interval.mapping;
        let coded = self.is_coded();
        let sound = |o: &PeerId| !self.peers.failed.contains(o);
        let strays = self.usable_strays();
        if coded {
            let want = self.settled_shards(&strays);
            let moves = want != m.acting;
            return (want, moves);
        }
        let up: Vec<PeerId> = self.up_set().iter().filter(sound).collect();
        let lead = Some(PeerId::from(m.up_primary)).filter(|p| up.contains(p)).unwrap_or_else(|| self.me());
        let mut want: Vec<OsdId> = vec![lead.osd];
        let there = up.into_iter().chain(self.acting_set().iter().filter(sound)).chain(strays);
        for o in there {
            if want.len() < self.journal.info().interval.size as usize && !want.contains(&o.osd) {
                want.push(o.osd);
            }
        }
        let named = self.named_primary().is_some();
        // An override with the copies of the up set in another order goes, too.
        let reorders = m.acting != m.up && self.is_up_set(&want);
        let moves = !self.is_acting_set(&want) || !named && (lead != self.me() || reorders);
        (want, moves)
    }

    /// The copies outside the up set that lack nothing that the primary's log does not have.
    fn usable_strays(&self) -> Vec<PeerId> {
        let up_there = |o: OsdId| self.maps.newest().is_some_and(|m| m.osds.is_up(o));
        self.peers
            .known
            .iter()
            .filter(|(o, _)| !self.peers.failed.contains(o) && up_there(o.osd) && !self.up_set().contains(**o))
            .filter(|(_, k)| k.as_ref().is_some_and(|i| i.is_complete() && i.last_update >= self.journal.log().tail))
            .map(|(o, _)| *o)
            .collect()
    }

    /// Asks for an acting set with the strays that the log brings up to date, while there are fewer copies than the
    /// pool wants. Such a stray was a member, went down, and is up again, and CRUSH has no place for it.
    pub(in crate::pg) fn take_back_strays(&mut self) {
        let started = matches!(self.life.state(), State::Active | State::Peered);
        if !started || self.life.is_stopping() || self.has_all_copies() || self.peers.want.is_some() {
            return;
        }
        let strays = self.usable_strays();
        let m = &self.journal.info().interval.mapping;
        let mut want = m.acting.clone();
        if self.is_coded() {
            want = self.shards_with(&strays);
        } else {
            // The set alone names the primary.
            want.sort_by_key(|o| *o != self.env.whoami());
            let more = strays.iter().map(|p| p.osd).filter(|o| !m.acting.contains(o));
            want.extend(more.take((self.journal.info().interval.size as usize).saturating_sub(m.acting.len())));
        }
        let there = |set: &[OsdId]| set.iter().filter(|o| **o != OsdId::NONE).count();
        if there(&want) <= there(&m.acting) {
            return;
        }
        tracing::info!(pg = %self.env.spg(), ?want, up = ?m.up, "asking the monitor to take copies back");
        self.peers.want = Some(want.clone());
        self.mail.post(Effect::WantPgTemp(want));
    }

    /// True if the acting set has as many copies as the pool wants.
    pub(in crate::pg) fn has_all_copies(&self) -> bool {
        self.acting_set().len() >= self.journal.info().interval.size as usize
    }

    /// True if `want` is what the map gives without an override.
    fn is_up_set(&self, want: &[OsdId]) -> bool {
        let m = &self.journal.info().interval.mapping;
        let first = want.first().copied();
        self.is_same_set(want, &m.up) && (self.is_coded() || first == Some(m.up_primary))
    }

    /// Checks whether all copies are complete and in place. If so the PG is clean: past intervals are dropped and
    /// strays removed.
    pub(in crate::pg) fn check_clean(&mut self, turn: &mut Turn<'_>) {
        // Too few copies to serve recover as well: those they fill may make up the number.
        let started = matches!(self.life.state(), State::Active | State::Quiesced | State::Peered);
        if self.peers.clean || !started || self.life.is_stopping() || !self.is_recovered() {
            return;
        }
        let up = self.up_set();
        let usable = up.iter().filter(|o| !self.peers.failed.contains(o)).count();
        let serves = *self.life.state() != State::Peered;
        if serves && usable < up.len() {
            // A failed copy is missing until its OSD is restarted or marked out.
            return;
        }
        let (want, moves) = self.settled_set();
        if moves {
            let m = &self.journal.info().interval.mapping;
            let there = want.iter().filter(|o| **o != OsdId::NONE).count();
            let least = (self.journal.info().interval.min_size as usize).min(self.acting_set().len() + 1);
            if self.peers.want.is_none() && there >= least.max(self.shards_needed().unwrap_or(1)) {
                let want = if self.is_up_set(&want) { Vec::new() } else { want };
                tracing::info!(pg = %self.env.spg(), ?want, up = ?m.up, "recovered; asking the monitor for the acting set to stay in");
                self.peers.want = Some(want.clone());
                self.mail.post(Effect::WantPgTemp(want));
            }
            return;
        }
        if !serves {
            return;
        }
        self.peers.clean = true;
        // The infos of members are no longer needed.
        for (_, k) in self.peers.known.iter_mut().filter(|(o, _)| self.peers.members.contains_key(o)) {
            *k = None;
        }
        self.notify_ready();
        let (epoch, whole) = (self.epoch(), self.has_all_copies());
        // With fewer copies than wanted the PG is not clean, and the maps since it last was are kept.
        if whole && self.journal.note_clean(epoch) {
            self.share_history(true);
            self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
        }
        self.purge_strays();
    }

    /// Tells strays and failed copies outside the acting and up sets to remove themselves.
    pub(in crate::pg) fn purge_strays(&mut self) {
        let (acting, up) = (self.acting_set(), self.up_set());
        if acting.len() < self.journal.info().interval.size as usize {
            // The strays may soon be the only copies left.
            return;
        }
        let strays: Vec<PeerId> = self
            .peers
            .known
            .iter()
            .filter(|(_, k)| k.is_some())
            .map(|(o, _)| *o)
            .chain(self.peers.failed.iter().copied())
            .filter(|o| !acting.contains(*o) && !up.contains(*o))
            .collect();
        for o in strays {
            self.peers.known.remove(&o);
            self.peers.failed.used().map(|f| f.remove(&o));
            self.send_reliably(o, &Body::Remove);
        }
        self.ask_others();
    }

    /// Replaces intervals of unknown members by those that another copy knows. Each copy remembers all intervals since
    /// the last one that started, so one copy that missed no map is enough. Returns true if it found one.
    pub(in crate::pg) fn fill_gaps(&mut self) -> bool {
        let started = self.journal.info().history.last_epoch_started;
        let counts = |p: &PastInterval| p.last >= started;
        let open = |p: &PastInterval| p.is_unknown() && counts(p);
        let others = self.peers.known.iter().filter_map(|(_, k)| k.as_deref());
        let Some(theirs) = others.map(|i| &i.past).find(|past| !past.iter().any(open)).cloned() else { return false };
        self.journal.fill_gaps(theirs.into_iter().filter(counts));
        true
    }
}
