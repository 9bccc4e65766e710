//! Pulls: objects that the primary lacks, and the copies that it asks for them.

use crate::limits::PULLS_MAX;
use crate::peer::Body;
use crate::pg::peering::Member;
use crate::pg::{Pg, Turn};
use crate::reserve::Active;
use crate::shards::PeerId;
use base::{Eversion, HObject, unreached};
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

/// The outcome of a step to pull an object.
enum Pulled {
    Started,
    /// No copy has it.
    Unfound,
    /// The OSD recovers as many objects as it may, or the log must be read first.
    NoPlace,
}

impl PullJob {
    /// Notes that the asked copy can't send the object.
    pub(super) fn ask_another(&mut self) {
        self.refused.extend(self.source.take());
        self.active = None;
    }
}

impl Pg {
    /// Pulls objects that this copy lacks, as many as limits allow. `may`: also those that no client waits for.
    pub(super) fn start_pulls(&mut self, may: bool, turn: &mut Turn<'_>) {
        let mut free = PULLS_MAX.saturating_sub(self.recovery.pulls.values().filter(|p| p.source.is_some()).count());
        let mut later = Vec::new();
        while free > 0
            && let Some(head) = self.next_pull(may, &mut later, turn.now)
        {
            let pulled = if self.is_coded() { self.start_rebuild(head, turn) } else { self.start_pull(head) };
            match pulled {
                Pulled::Started => free -= 1,
                Pulled::Unfound => {}
                Pulled::NoPlace => break,
            }
        }
        self.recovery.pull_later(&later);
    }

    /// Rebuilds an object that this shard lacks from the other shards.
    fn start_rebuild(&mut self, head: HObject, turn: &mut Turn<'_>) -> Pulled {
        let me = self.me();
        let need = self.recovery.missing.get(&head).copied().unwrap_or_default();
        let enough = self.can_rebuild(&head);
        if !enough && !self.knows_newest(turn) {
            return Pulled::NoPlace;
        }
        if !enough && !self.can_learn_removal(&head) {
            tracing::warn!(pg = %self.env.spg(), object = %head, version = %need, "object is unfound: too few shards have it");
            self.note_unfound(head);
            return Pulled::Unfound;
        }
        let p = self.recovery.pulls.entry(head.clone()).or_default();
        (p.need, p.source) = (need, Some(me));
        if self.start_push(me, head.clone(), None, turn) {
            return Pulled::Started;
        }
        self.recovery.pulls.remove(&head);
        Pulled::NoPlace
    }

    /// Asks the best copy for an object that this one lacks.
    fn start_pull(&mut self, head: HObject) -> Pulled {
        let urgent = self.recovery.urgent.contains(&head);
        let Some(place) = self.start_object(urgent) else { return Pulled::NoPlace };
        let need = self.recovery.missing.get(&head).copied().unwrap_or_default();
        let given_up = self.recovery.lost.from.get(&head).copied();
        let refused = self.recovery.pulls.get_mut(&head).map(|p| std::mem::take(&mut p.refused)).unwrap_or_default();
        let source = match given_up {
            Some(o) => Some(o).filter(|o| !refused.contains(o)),
            None => self.sources(&head, need).chain(self.last_resorts(&head)).find(|o| !refused.contains(o)),
        };
        let Some(o) = source else {
            if given_up.is_some() {
                self.recovery.lost.from.remove(&head);
            }
            tracing::warn!(pg = %self.env.spg(), object = %head, version = %need, "object is unfound");
            // A part that was taken may still become durable.
            if self.recovery.pulls.get(&head).is_some_and(|p| p.taken.is_none()) {
                self.recovery.pulls.remove(&head);
            }
            self.note_unfound(head);
            return Pulled::Unfound;
        };
        let p = self.recovery.pulls.entry(head.clone()).or_default();
        (p.need, p.refused, p.source, p.active) = (need, refused, Some(o), place);
        // After a revert any version of that copy is accepted.
        let need = if given_up.is_some() { Eversion::default() } else { need };
        self.env.meter().replication.pulls_out.add(1);
        self.send_to(o, &Body::Pull { head, need, urgent });
        Pulled::Started
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
        let Some(need) = self.recovery.pulls.get(head).filter(|p| p.source == Some(from)).map(|p| p.need) else {
            return;
        };
        self.recovery.ask_another(head);
        if self.peers.members().get(&from).is_some_and(|m| m.backfill.is_none()) {
            self.member_lacks(from, [(head.clone(), need)]);
        }
    }

    /// Asks other copies in place of those whose OSDs are down in the new map.
    pub(in crate::pg) fn check_sources(&mut self) {
        let Some(map) = self.maps.newest() else { return unreached("a map is being handled") };
        self.peers.keep_up(|o| map.osds.is_up(o));
        self.recovery.ask_others_than(|o| !map.osds.is_up(o.osd));
        self.ask_others();
    }

    /// Notes that an object was recovered on this copy.
    pub(in crate::pg) fn pulled(&mut self, head: &HObject, turn: &mut Turn<'_>) {
        self.report.count_recovered_object();
        self.env.meter().replication.recovered.add(1);
        self.recovery.pulls.remove(head);
        self.recovery.unfound.remove(head);
        self.recovery.lost.from.remove(head);
        if let Some(d) = self.recovery.damage.used() {
            d.wanted.remove(head);
            d.replaced.remove(head);
        }
        self.recovered(head, turn);
        if self.recovery.missing.is_empty() {
            // Lists wait until nothing is missing.
            self.retry_held(turn);
        }
    }
}
