//! Growth without sudden movement: upmap items that keep PGs where they are when OSDs join.
//!
//! A new OSD changes CRUSH's choice for its share of all PGs at once. [`Growth`] compares each PG's OSDs under the map
//! before and after, and gives the items by which the PG keeps its OSDs. The balancer then ends these items at its own
//! pace, since the new OSDs are below their targets.
//!
//! PGs are gone through in order, some at a time. OSDs that join meanwhile begin a pass anew: PGs that it has seen are
//! compared with the map before the newcomers, the others with the map before the first ones.
//!
//! Invariants:
//!  1. A set that is kept is one that the pool's rule could make: its OSDs have weight and lie in different failure domains.
//!  2. A PG whose upmaps, pool or rule changed since is left alone: someone else has moved it.
//!  3. A PG is not kept from OSDs that have its data still, such as those that left by mistake and come back.
//!
//! Tests: `src/balance/growth/tests.rs` (1, `no_pg_moves_when_osds_join_and_the_balancer_ends_even`; 2,
//! `pgs_that_nobody_wants_kept_and_other_changes_of_the_pool_move`; 3, `an_osd_that_comes_back_gets_its_pgs_again`).

use super::items_between;
use base::{Epoch, OsdId, PgId};
use cluster::osdmap::{RuleOsds, osd_state};
use cluster::{OsdMap, PgPool};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Most maps that a pass compares with; with more the oldest ones count no more.
const MAPS_MAX: usize = 16;

/// A pass as it is stored, so that another monitor goes on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGrowth {
    /// The last PG that was looked at.
    pub at: Option<PgId>,
    /// Epochs of the maps before OSDs joined, each for the PGs up to the named one; `None` for the last.
    pub before: Vec<(Option<PgId>, Epoch)>,
    /// The newest map when it was stored; the monitor sets it. If other maps followed, a program that knows no pass made
    /// them, and PGs have moved: the pass is void.
    pub seen: Epoch,
}

/// The upmap items of a PG.
type Items = Vec<(OsdId, OsdId)>;

/// The pass over PGs that are kept where they are.
#[derive(Debug, Default)]
pub struct Growth {
    /// Maps before OSDs joined, each for the PGs up to the named one, in the order of the PGs; `None` for the last.
    before: VecDeque<(Option<PgId>, Arc<OsdMap>)>,
    /// The last PG that was looked at.
    at: Option<PgId>,
    rules: RuleOsds,
}

/// True if an OSD takes part in placement after a change and did not before: it is marked in for the first time, or the
/// rule of a pool chooses it by the CRUSH map of `after` only, because it is new there, got its weight, or came from
/// another root or device class.
#[must_use]
pub fn joins(before: &OsdMap, after: &OsdMap) -> bool {
    let first_in = |o: OsdId| {
        // A replaced OSD has been up before, and gets its data back at once.
        let is_new = before.state(o) & osd_state::NEW != 0 && before.info(o).up_from.0 == 0;
        is_new && before.weight(o) == 0 && after.weight(o) > 0 && after.crush.item_weight(o.0) > 0
    };
    if before.osd_weight != after.osd_weight && after.osds().any(first_in) {
        return true;
    }
    if Arc::ptr_eq(&before.crush, &after.crush) {
        return false;
    }
    let takes = |m: &OsdMap, p: &PgPool| -> Vec<i32> {
        m.crush.rule(p.crush_rule.into()).map(|r| r.takes().collect()).unwrap_or_default()
    };
    // Most pools take the same.
    let all: BTreeSet<_> = after.pools.values().map(|p| (takes(before, p), takes(after, p))).collect();
    all.iter().any(|(was, is)| !with_weight(after, is).is_subset(&with_weight(before, was)))
}

/// The OSDs with weight below the given buckets, and the given OSDs.
fn with_weight(map: &OsdMap, takes: &[i32]) -> BTreeSet<i32> {
    let mut out = BTreeSet::new();
    for take in takes {
        map.crush.walk(*take, &mut |id, _| {
            match map.crush.bucket(id) {
                Some(b) => out.extend(
                    b.items.iter().enumerate().filter(|(i, o)| **o >= 0 && b.item_weight(*i) > 0).map(|(_, o)| *o),
                ),
                None if id == *take => _ = out.insert(id),
                None => {}
            }
            true
        });
    }
    out
}

/// Facts about PGs that maps do not have.
pub trait Facts {
    /// True if a PG is to be kept where it is.
    fn is_wanted(&self, pg: PgId) -> bool;
    /// The OSDs that serve a PG's data by its last report, of a coded pool by shard; empty if they are unknown.
    fn holders(&self, pg: PgId) -> &[OsdId];
}

impl Growth {
    /// Begins a pass, or begins the present one anew, because OSDs join after `before`.
    pub fn begin(&mut self, before: Arc<OsdMap>) {
        match self.at.take() {
            Some(at) => self.before.push_front((Some(at), before)),
            None if self.before.is_empty() => self.before.push_front((None, before)),
            // Nothing was looked at yet.
            None => {}
        }
        if self.before.len() > MAPS_MAX {
            self.before.pop_back();
            if let Some((upto, _)) = self.before.back_mut() {
                *upto = None;
            }
        }
    }

    /// The pass to be stored; `None` if no PGs are left.
    #[must_use]
    pub fn stored(&self) -> Option<StoredGrowth> {
        let before = self.before.iter().map(|(upto, m)| (*upto, m.epoch)).collect();
        self.is_under_way().then_some(StoredGrowth { at: self.at, before, seen: Epoch(0) })
    }

    /// Goes on with a stored pass, and begins it anew if OSDs have joined since. `map` gives the map of an epoch; PGs of
    /// one that is gone are left alone.
    pub fn resume(&mut self, stored: &StoredGrowth, mut map: impl FnMut(Epoch) -> Option<Arc<OsdMap>>) {
        let since = std::mem::take(self);
        self.at = stored.at;
        self.before = stored.before.iter().filter_map(|(upto, e)| Some((*upto, map(*e)?))).collect();
        for (_, before) in since.before.into_iter().rev() {
            self.begin(before);
        }
    }

    /// True while PGs are left.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.before.is_empty()
    }

    /// Looks at up to `n` more PGs, and returns the items of those that are to be kept; without items a PG keeps its place
    /// by CRUSH. `after` is the map with the OSDs that have joined, `facts` tells of PGs.
    pub fn step(&mut self, after: &OsdMap, n: usize, facts: &impl Facts) -> Vec<(PgId, Items)> {
        let mut out = Vec::new();
        let n = if self.is_under_way() { n } else { 0 };
        for _ in 0..n {
            let Some(pg) = next(after, self.at) else {
                (self.at, self.rules) = (None, RuleOsds::default());
                self.before.clear();
                break;
            };
            self.at = Some(pg);
            while self.before.front().is_some_and(|(upto, _)| upto.is_some_and(|u| u < pg)) {
                self.before.pop_front();
            }
            let Some((_, before)) = self.before.front() else { break };
            if facts.is_wanted(pg)
                && let Some(items) = kept(before, after, pg, &mut self.rules, facts)
            {
                out.push((pg, items));
            }
        }
        out
    }
}

/// The PG after another one; the first PG after `None`.
fn next(map: &OsdMap, at: Option<PgId>) -> Option<PgId> {
    let later = match at {
        Some(pg) if map.pool(pg.pool).is_some_and(|p| pg.seed + 1 < p.pg_num) => {
            return Some(PgId { seed: pg.seed + 1, ..pg });
        }
        Some(pg) => Bound::Excluded(pg.pool),
        None => Bound::Unbounded,
    };
    let pool = map.pools.range((later, Bound::Unbounded)).find(|(_, p)| p.pg_num > 0);
    pool.map(|(id, _)| PgId { pool: *id, seed: 0 })
}

/// The items by which a PG keeps the OSDs that it has under `before`; `None` if it needs no other items, or may not or
/// cannot keep them.
fn kept(before: &OsdMap, after: &OsdMap, pg: PgId, rules: &mut RuleOsds, facts: &impl Facts) -> Option<Items> {
    let (was, pool) = (before.pool(pg.pool)?, after.pool(pg.pool)?);
    let placed_by = |p: &PgPool| (p.crush_rule, p.size, p.pgp_num, p.pg_num);
    let items = |m: &OsdMap| m.pg_upmap_items.get(&pg).cloned().unwrap_or_default();
    if placed_by(was) != placed_by(pool)
        || pg.seed >= pool.pg_num.min(pool.pg_num_pending)
        || before.pg_upmap.contains_key(&pg)
        || after.pg_upmap.contains_key(&pg)
        || items(before) != items(after)
    {
        return None;
    }
    // A chosen primary takes effect on the set that is kept.
    let had = before.pg_to_raw_upmap_unled(pg);
    let chosen = after.pg_to_raw_upmap_unled(pg);
    if chosen.as_slice() == had.as_slice() {
        return None;
    }
    let temp = before.pg_temp.get(&pg).map_or(&[][..], |t| t);
    if [temp, facts.holders(pg)].into_iter().any(|holders| have_data(pool, &chosen, &had, holders)) {
        return None;
    }
    let (raw, _) = after.pg_to_raw(pg);
    let want = filled(&had, &raw);
    rules.learn(&after.crush, pool.crush_rule);
    let weighs = |o: &OsdId| after.exists(*o) && after.weight(*o) > 0 && rules.chooses(pool.crush_rule, *o);
    if !want.iter().filter(|o| **o != OsdId::NONE).all(weighs) || !after.keeps_apart(pool, &want, rules) {
        return None;
    }
    let found = items_between(&raw, &want);
    let found =
        if pool.is_erasure() { found } else { found.or_else(|| items_between(&raw, &in_order_of(&raw, &want))) };
    found.filter(|f| *f != items(after))
}

/// True if the OSDs that a PG gets have its data already: those of `chosen` that are not in `had` are among `holders`, of
/// a coded pool with the same shards.
fn have_data(pool: &PgPool, chosen: &[OsdId], had: &[OsdId], holders: &[OsdId]) -> bool {
    let is_in = |set: &[OsdId], i: usize, o: &OsdId| {
        if pool.is_erasure() { set.get(i) == Some(o) } else { set.contains(o) }
    };
    let mut new = chosen.iter().enumerate().filter(|(i, o)| **o != OsdId::NONE && !is_in(had, *i, o));
    !holders.is_empty() && new.all(|(i, o)| is_in(holders, i, o))
}

/// The OSDs that a PG had, with those of CRUSH's new choice in the places of missing ones.
fn filled(had: &[OsdId], raw: &[OsdId]) -> Vec<OsdId> {
    let mut want = had.to_vec();
    for (i, o) in raw.iter().enumerate() {
        match want.get_mut(i) {
            Some(w) if *w == OsdId::NONE && !had.contains(o) => *w = *o,
            None if !had.contains(o) => want.push(*o),
            _ => {}
        }
    }
    want
}

/// The OSDs of `want`, those that `raw` has too at their places there: copies have no order.
fn in_order_of(raw: &[OsdId], want: &[OsdId]) -> Vec<OsdId> {
    let mut others = want.iter().filter(|o| !raw.contains(o));
    let at = |o: &OsdId| if want.contains(o) { Some(*o) } else { others.next().copied() };
    raw.iter().filter_map(at).collect()
}

#[cfg(test)]
mod tests;
