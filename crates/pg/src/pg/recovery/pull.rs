//! Pulls: objects that the primary lacks, and the copies that it asks for them.

use crate::limits::PULLS_MAX;
use crate::peer::Body;
use crate::pg::peering::Member;
use crate::pg::{Pg, Turn};
use crate::reserve::Active;
use crate::shards::PeerId;
use base::{Eversion, HObject};
use std::collections::BTreeSet;

/// An object that the primary pulls.
#[derive(Debug, Default)]
pub(in crate::pg) struct PullJob {
    pub need: Eversion,
    /// The copy that was asked.
    pub source: Option<PeerId>,
    /// Copies that do not have the object.
    pub refused: BTreeSet<PeerId>,
    /// The transfer that is being applied: sender, number, and whether its last part has been submitted.
    pub taken: Option<(PeerId, u64, bool)>,
    /// Counts the object in `osd_recovery_max_active`.
    active: Option<Active>,
}

impl PullJob {
    /// Notes that the asked copy can't send the object.
    pub(in crate::pg) fn ask_another(&mut self) {
        self.refused.extend(self.source.take());
        self.active = None;
    }
}

impl Pg {
    /// Rebuilds objects that this shard lacks from the other shards.
    pub(super) fn start_rebuilds(&mut self, may: bool, turn: &mut Turn<'_>) {
        let urgent = self.recovery.urgent.iter().filter(|h| self.recovery.missing.contains_key(*h)).cloned();
        let order: Vec<HObject> = urgent
            .chain(self.recovery.missing.keys().filter(|_| may).cloned())
            .filter(|h| {
                self.may_pull(h)
                    && !self.recovery.unfound.contains(h)
                    && self.recovery.pulls.get(h).is_none_or(|p| p.source.is_none())
            })
            .take(PULLS_MAX)
            .collect();
        let me = self.me();
        for head in order {
            let active = self.recovery.pulls.values().filter(|p| p.source.is_some()).count();
            let Some(need) = self.recovery.missing.get(&head).copied().filter(|_| active < PULLS_MAX) else { continue };
            if !self.can_rebuild(&head) {
                tracing::warn!(pg = %self.env.spg(), object = %head, version = %need, "object is unfound: too few shards have it");
                self.note_unfound(head);
                continue;
            }
            let p = self.recovery.pulls.entry(head.clone()).or_default();
            (p.need, p.source) = (need, Some(me));
            if !self.start_push(me, head.clone(), None, turn) {
                self.recovery.pulls.remove(&head);
                return;
            }
        }
    }

    pub(super) fn start_pulls(&mut self, may: bool) {
        let urgent = self.recovery.urgent.iter().filter(|h| self.recovery.missing.contains_key(*h)).cloned();
        let order: Vec<HObject> = urgent
            .chain(self.recovery.missing.keys().filter(|_| may).cloned())
            .filter(|h| {
                self.may_pull(h)
                    && !self.recovery.unfound.contains(h)
                    && self.recovery.pulls.get(h).is_none_or(|p| p.source.is_none())
            })
            .take(PULLS_MAX)
            .collect();
        for head in order {
            let active = self.recovery.pulls.values().filter(|p| p.source.is_some()).count();
            if active >= PULLS_MAX {
                return;
            }
            let Some(need) = self.recovery.missing.get(&head).copied() else { continue };
            let urgent = self.recovery.urgent.contains(&head);
            let Some(place) = self.start_object(urgent) else { return };
            let p = self.recovery.pulls.entry(head.clone()).or_default();
            if p.source.is_some() {
                continue;
            }
            p.need = need;
            let refused = std::mem::take(&mut p.refused);
            let given_up = self.recovery.lost.from.get(&head).copied();
            let source = match given_up {
                Some(o) => Some(o).filter(|o| !refused.contains(o)),
                None => self.sources(&head, need).chain(self.last_resorts(&head)).find(|o| !refused.contains(o)),
            };
            // After a revert any version of that copy is accepted.
            let need = if given_up.is_some() { Eversion::default() } else { need };
            let Some(p) = self.recovery.pulls.get_mut(&head) else { continue };
            p.refused = refused;
            p.source = source;
            p.active = place.filter(|_| source.is_some());
            match source {
                Some(o) => {
                    self.env.meter().replication.pulls_out.add(1);
                    self.send_to(o, &Body::Pull { head, need, urgent });
                }
                None => {
                    self.recovery.lost.from.remove(&head);
                    tracing::warn!(pg = %self.env.spg(), object = %head, version = %need, "object is unfound");
                    self.note_unfound(head);
                }
            }
        }
    }

    /// Copies that have an object as of a log version: members, then strays.
    pub(super) fn sources(&self, head: &HObject, need: Eversion) -> impl Iterator<Item = PeerId> {
        let members = self.peers.members().iter().filter(move |(_, m)| m.has(head)).map(|(o, _)| *o);
        let strays = self.peers.known().iter().filter(move |(o, k)| {
            !self.peers.members().contains_key(o)
                && k.as_ref().is_some_and(|i| *head <= i.last_backfill && i.last_update >= need)
        });
        members.chain(strays.map(|(o, _)| *o))
    }

    /// Copies that are being filled, and have not got to the object: each may still have it from before, perhaps as the
    /// only one, and tells by the version. (Nothing is filled while the primary lacks an object, so it is still there.)
    fn last_resorts(&self, head: &HObject) -> impl Iterator<Item = PeerId> {
        let unfilled = move |m: &Member| m.backfill.as_ref().is_some_and(|b| head > b.upto());
        let members = self.peers.members().iter().filter(move |(_, m)| unfilled(m)).map(|(o, _)| *o);
        let strays = self.peers.known().iter().filter(move |(o, k)| {
            !self.peers.members().contains_key(o) && k.as_ref().is_some_and(|i| *head > i.last_backfill)
        });
        members.chain(strays.map(|(o, _)| *o))
    }

    /// True if other copies can give the object in its current state.
    pub(in crate::pg) fn has_source(&self, head: &HObject) -> bool {
        if self.is_coded() {
            let me = self.me();
            let k = self.shards_needed().unwrap_or(usize::MAX);
            return self.shard_holders(head).values().filter(|of| of.iter().any(|p| *p != me)).count() >= k;
        }
        self.sources(head, self.journal.info().last_update).next().is_some()
    }

    pub(in crate::pg) fn no_pull(&mut self, from: PeerId, head: &HObject) {
        if let Some(p) = self.recovery.pulls.get_mut(head)
            && p.source == Some(from)
        {
            p.refused.insert(from);
            p.source = None;
            p.active = None;
            let need = p.need;
            self.member_lacks(from, head, need);
        }
    }

    /// Asks other copies in place of those whose OSDs are down in the new map.
    pub(in crate::pg) fn check_sources(&mut self) {
        let Some(map) = self.maps.newest() else { return };
        self.peers.keep_up(|o| map.osds.is_up(o));
        for p in self.recovery.pulls.values_mut() {
            if p.source.is_some_and(|o| !map.osds.is_up(o.osd)) {
                p.ask_another();
            }
        }
        self.ask_others();
    }

    /// Notes that an object was recovered on this copy.
    pub(in crate::pg) fn pulled(&mut self, head: &HObject, turn: &mut Turn<'_>) {
        self.report.count_recovered_object();
        self.env.meter().replication.recovered.add(1);
        self.recovery.pulls.remove(head);
        self.recovery.unfound.remove(head);
        self.recovery.lost.from.remove(head);
        self.recovery.damage.wanted.remove(head);
        self.recovered(head, turn);
        if self.recovery.missing.is_empty() {
            // Lists wait until nothing is missing.
            self.retry_held(turn);
        }
    }
}
