//! Removal of overrides without effect, which a monitor adds to an incremental.
//!
//! Overrides are judged PG by PG, so that a monitor may go through them in steps of bounded work.

use super::{Incremental, OsdMap, OsdSet};
use crate::crush::{CrushMap, op};
use crate::pool::PgPool;
use crate::release;
use base::planted::{Bug, acts};
use base::{OsdId, PgId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Facts of a CRUSH map that the checks of overrides use, computed when first needed.
#[derive(Debug, Default)]
pub struct RuleOsds {
    crush: Option<Arc<CrushMap>>,
    /// The share of each OSD in the placements of a rule.
    rules: BTreeMap<u8, BTreeMap<i32, f32>>,
    parents: BTreeMap<i32, i32>,
}

impl RuleOsds {
    /// Computes what the checks of one rule need.
    pub fn learn(&mut self, crush: &Arc<CrushMap>, rule: u8) {
        if self.crush.as_ref().is_none_or(|c| !Arc::ptr_eq(c, crush)) {
            self.rules.clear();
            self.parents = crush.parents();
            self.crush = Some(crush.clone());
        }
        self.rules.entry(rule).or_insert_with(|| crush.rule_osd_shares(rule.into()));
    }

    /// True if the rule, which was learnt, chooses the OSD.
    #[must_use]
    pub fn chooses(&self, rule: u8, o: OsdId) -> bool {
        self.rules.get(&rule).and_then(|s| s.get(&o.0)).is_some_and(|w| *w > 0.0)
    }

    /// The share of each OSD in the placements of a rule that was learnt. The shares add up to 1.
    #[must_use]
    pub fn shares(&self, rule: u8) -> Option<&BTreeMap<i32, f32>> {
        self.rules.get(&rule)
    }

    /// The bucket of a type above an OSD.
    #[must_use]
    pub fn above(&self, o: OsdId, kind: i32) -> Option<i32> {
        let crush = self.crush.as_ref()?;
        let mut at = o.0;
        for _ in 0..crate::crush::MAX_DEPTH {
            at = *self.parents.get(&at)?;
            if crush.type_of(at) == Some(kind) {
                return Some(at);
            }
        }
        None
    }
}

/// Reason for which a monitor removes all upmaps of a PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoidUpmap {
    /// The PG does not exist, or is about to be merged.
    PgEnds,
    /// The OSD is out.
    Out(OsdId),
    /// The OSD has no weight in the pool's CRUSH rule.
    OutsideRule(OsdId),
    /// The set breaks the failure domains of the pool's CRUSH rule.
    TooClose,
    /// The set that replaces CRUSH's choice equals it.
    ChosenAnyway,
    /// The set that replaces CRUSH's choice has not as many OSDs as the pool wants.
    NotThePoolsSize,
}

impl std::fmt::Display for VoidUpmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PgEnds => f.write_str("the PG does not exist or is about to be merged"),
            Self::Out(o) => write!(f, "{o} is out"),
            Self::OutsideRule(o) => write!(f, "{o} has no weight in the CRUSH rule of the pool"),
            Self::TooClose => f.write_str("the OSDs are not in different failure domains of the pool's CRUSH rule"),
            Self::ChosenAnyway => f.write_str("CRUSH chooses these OSDs in this order without an upmap"),
            Self::NotThePoolsSize => f.write_str("the number of OSDs is not the size of the pool"),
        }
    }
}

/// Reason for which a monitor removes the chosen primary of a PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoidPrimary {
    /// The PG does not exist, or is about to be merged.
    PgEnds,
    /// The pool is erasure-coded, where each OSD has its own shard.
    Coded,
    /// The OSD is out, or not in the set that CRUSH and the PG's upmaps choose.
    NotInSet,
    /// The OSD is first in that set anyway.
    FirstAnyway,
}

impl OsdMap {
    /// The up set and its primary, without temps.
    #[must_use]
    pub fn pg_to_up(&self, pg: PgId) -> (OsdSet, OsdId) {
        let at = self.pg_to_up_acting(pg);
        (at.up, at.up_primary)
    }

    /// The PGs with an override of their placement after `after`, in order, at most `n`.
    #[must_use]
    pub fn overridden_after(&self, after: Option<PgId>, n: usize) -> Vec<PgId> {
        fn some<V: Clone>(m: &crate::cow::CowMap<PgId, V>, after: Option<PgId>, n: usize, out: &mut BTreeSet<PgId>) {
            match after {
                Some(a) => out.extend(m.iter_from(&a).map(|(k, _)| *k).filter(|k| *k > a).take(n)),
                None => out.extend(m.keys().copied().take(n)),
            }
        }
        let mut all = BTreeSet::new();
        some(&self.pg_temp, after, n, &mut all);
        some(&self.primary_temp, after, n, &mut all);
        some(&self.pg_upmap, after, n, &mut all);
        some(&self.pg_upmap_items, after, n, &mut all);
        some(&self.pg_upmap_primaries, after, n, &mut all);
        all.into_iter().take(n).collect()
    }

    /// Adds to `inc`, the next epoch of this map, the removal of the PG's overrides that have no effect or are void.
    /// Entries that `inc` changes are left alone. Returns the names of what was removed.
    pub fn clean_overrides(&self, pg: PgId, rules: &mut RuleOsds, inc: &mut Incremental) -> Vec<&'static str> {
        let mut gone = Vec::new();
        if !inc.new_pg_temp.contains_key(&pg) && self.is_stale_temp(pg) {
            inc.new_pg_temp.insert(pg, Vec::new());
            gone.push("pg_temp");
        }
        if !inc.new_primary_temp.contains_key(&pg) && self.is_stale_primary_temp(pg) {
            inc.new_primary_temp.insert(pg, OsdId(-1));
            gone.push("primary_temp");
        }
        let changes = inc.new_pg_upmap.contains_key(&pg)
            || inc.new_pg_upmap_items.contains_key(&pg)
            || inc.old_pg_upmap.contains(&pg)
            || inc.old_pg_upmap_items.contains(&pg);
        let (whole, old) = (self.pg_upmap.contains_key(&pg), self.pg_upmap_items.get(&pg));
        if !changes && (whole || old.is_some()) {
            let sound = self.sound_upmap_items(pg, rules);
            if whole && sound.is_err() {
                inc.old_pg_upmap.insert(pg);
                gone.push("pg_upmap");
            }
            match (old, sound.unwrap_or_default()) {
                (None, _) => {}
                (Some(_), items) if items.is_empty() => {
                    inc.old_pg_upmap_items.insert(pg);
                    gone.push("pg_upmap_items");
                }
                (Some(old), items) if *old != items => {
                    inc.new_pg_upmap_items.insert(pg, items);
                    gone.push("a part of pg_upmap_items");
                }
                _ => {}
            }
        }
        let other = inc.new_pg_upmap_primary.contains_key(&pg) || inc.old_pg_upmap_primary.contains(&pg);
        let void = |why| why == VoidPrimary::PgEnds || !changes;
        if !other && self.void_primary(pg).is_some_and(void) {
            inc.old_pg_upmap_primary.insert(pg);
            gone.push("pg_upmap_primary");
        }
        gone
    }

    /// The reason for which a monitor removes the chosen primary of a PG, `None` if it keeps it or there is none. An OSD
    /// that is down leads again when it comes up.
    #[must_use]
    pub fn void_primary(&self, pg: PgId) -> Option<VoidPrimary> {
        let osd = self.pg_upmap_primaries.get(&pg)?;
        let Some(pool) = self.pool(pg.pool).filter(|p| pg.seed < p.pg_num.min(p.pg_num_pending)) else {
            return Some(VoidPrimary::PgEnds);
        };
        if pool.is_erasure() {
            return Some(VoidPrimary::Coded);
        }
        let without = self.pg_to_raw_upmap_unled(pg);
        match without.iter().position(|o| o == osd) {
            None => Some(VoidPrimary::NotInSet),
            Some(0) => Some(VoidPrimary::FirstAnyway),
            Some(_) if self.weight(*osd) == 0 => Some(VoidPrimary::NotInSet),
            Some(_) => None,
        }
    }

    fn is_gone(&self, pg: PgId) -> bool {
        self.pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num)
    }

    /// True for an acting set of a missing PG, or one that has no OSD which is up, is larger than the pool wants, or
    /// equals the up set (`OSDMap::clean_temps`).
    fn is_stale_temp(&self, pg: PgId) -> bool {
        let Some(set) = self.pg_temp.get(&pg) else { return false };
        let Some(pool) = self.pool(pg.pool).filter(|p| pg.seed < p.pg_num) else { return true };
        !set.iter().any(|o| self.is_up(*o))
            || set.len() > usize::from(pool.size)
            || self.pg_to_up(pg).0.as_slice() == set.as_slice()
    }

    /// True for a primary that is down, is not in the acting set, or would be the primary anyway.
    #[must_use]
    pub fn is_stale_primary_temp(&self, pg: PgId) -> bool {
        let Some(primary) = self.primary_temp.get(&pg).filter(|_| !acts(Bug::KeepPrimaryTemp)) else { return false };
        if self.is_gone(pg) || !self.is_up(*primary) {
            return true;
        }
        let at = self.pg_to_up_acting(pg);
        let first = at.acting.iter().find(|o| **o != OsdId::NONE);
        let default = if self.pg_temp.contains_key(&pg) { first.copied() } else { Some(at.up_primary) };
        !at.acting.contains(primary) || default == Some(*primary)
    }

    /// The reason for which a monitor removes all upmaps of the PG, `None` if it keeps some.
    #[must_use]
    pub fn void_upmap(&self, pg: PgId, rules: &mut RuleOsds) -> Option<VoidUpmap> {
        self.sound_upmap_items(pg, rules).err()
    }

    /// True for an OSD of the map that is marked out, which is no valid upmap target.
    #[must_use]
    pub fn marked_out(&self, o: OsdId) -> bool {
        (0..self.max_osd).contains(&o.0) && self.weight(o) == 0
    }

    /// The replacements of a PG that still have effect. Error: all of the PG's upmaps are void by the rules of
    /// `OSDMap::check_pg_upmaps`: the PG is missing or about to be merged, or the set that they give breaks the pool's
    /// rule or has an OSD without weight.
    fn sound_upmap_items(&self, pg: PgId, rules: &mut RuleOsds) -> Result<Vec<(OsdId, OsdId)>, VoidUpmap> {
        let pool = self.pool(pg.pool).ok_or(VoidUpmap::PgEnds)?;
        if pg.seed >= pool.pg_num.min(pool.pg_num_pending) {
            return Err(VoidUpmap::PgEnds);
        }
        let (raw, _) = self.pg_to_raw(pg);
        let set = self.pg_to_raw_upmap(pg);
        rules.learn(&self.crush, pool.crush_rule);
        for o in set.iter().copied().filter(|o| *o != OsdId::NONE) {
            if self.weight(o) == 0 {
                return Err(VoidUpmap::Out(o));
            }
            if !rules.chooses(pool.crush_rule, o) {
                return Err(VoidUpmap::OutsideRule(o));
            }
        }
        if !self.keeps_apart(pool, &set, rules) {
            return Err(VoidUpmap::TooClose);
        }
        if let Some(whole) = self.pg_upmap.get(&pg) {
            if raw.as_slice() == whole.as_slice() {
                return Err(VoidUpmap::ChosenAnyway);
            }
            if whole.len() != usize::from(pool.size) {
                return Err(VoidUpmap::NotThePoolsSize);
            }
        }
        let items = self.pg_upmap_items.get(&pg).map_or(&[][..], Vec::as_slice);
        Ok(items.iter().copied().filter(|(from, to)| raw.contains(from) && !self.marked_out(*to)).collect())
    }

    /// True if the OSDs of a set are in the failure domains that the pool's rule asks for, and no bucket has more of them
    /// than the rule chooses there. Ceph's `CrushWrapper::verify_upmap` does not look at the latter. `rules` has learnt
    /// the rule.
    #[must_use]
    pub fn keeps_apart(&self, pool: &PgPool, set: &[OsdId], rules: &RuleOsds) -> bool {
        let Some(rule) = self.crush.rule(pool.crush_rule.into()) else { return false };
        // A bucket that several parts of the rule choose takes what each of them gives it.
        let mut most: BTreeMap<i32, u32> = BTreeMap::new();
        for (kind, n) in rule.most_in_buckets(pool.size) {
            let sum = most.entry(kind).or_default();
            *sum = sum.saturating_add(n);
        }
        let within = most.iter().all(|(kind, most)| {
            let mut has: BTreeMap<i32, u32> = BTreeMap::new();
            let there = set.iter().filter(|o| **o != OsdId::NONE).filter_map(|o| rules.above(*o, *kind));
            there.for_each(|b| *has.entry(b).or_default() += 1);
            has.values().all(|n| n <= most)
        });
        within
            && rule.steps.iter().filter(|s| s.arg2 > 0).all(|s| {
                let mut there = set.iter().filter(|o| **o != OsdId::NONE).filter_map(|o| rules.above(*o, s.arg2));
                match s.op {
                    op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP => {
                        let mut seen = BTreeSet::new();
                        there.all(|a| seen.insert(a))
                    }
                    op::CHOOSE_FIRSTN | op::CHOOSE_INDEP => {
                        let most = i64::from(s.arg1) + if s.arg1 <= 0 { i64::from(pool.size) } else { 0 };
                        there.collect::<BTreeSet<_>>().len() as i64 <= most
                    }
                    _ => true,
                }
            })
    }

    /// The oldest release whose clients can work with this map.
    #[must_use]
    pub fn min_compat_client(&self) -> u8 {
        let t = &self.crush.tunables;
        let legacy = crate::crush::Tunables::LEGACY;
        let straw2 = self.crush.iter_buckets().any(|b| b.alg() == crate::crush::BucketAlg::Straw2);
        let affinity = self.primary_affinity.is_some();
        if !self.pg_upmap_primaries.is_empty() {
            release::REEF
        } else if !self.pg_upmap.is_empty() || !self.pg_upmap_items.is_empty() || self.crush.has_incompat_choose_args()
        {
            release::LUMINOUS
        } else if t.chooseleaf_stable != 0 {
            release::JEWEL
        } else if straw2 {
            release::HAMMER
        } else if t.chooseleaf_vary_r != 0 || affinity || self.pools.values().any(|p| p.is_tier() || p.is_erasure()) {
            release::FIREFLY
        } else if t.chooseleaf_descend_once != 0
            || (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries)
                != (legacy.choose_local_tries, legacy.choose_local_fallback_tries, legacy.choose_total_tries)
        {
            release::BOBTAIL
        } else {
            release::ARGONAUT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::osdmap::{WEIGHT_IN, osd_state};
    use bytes::Bytes;

    fn base_map() -> OsdMap {
        let p = format!("{}/../../vectors/osdmap/pacific-base.osdmap", env!("CARGO_MANIFEST_DIR"));
        let mut m = OsdMap::decode_blob(&Bytes::from(std::fs::read(p).unwrap())).unwrap();
        m.primary_temp = crate::cow::CowMap::default();
        m
    }

    fn next_inc(m: &OsdMap) -> Incremental {
        Incremental::new(m.fsid, m.epoch.next(), m.modified)
    }

    fn after(m: &OsdMap, change: impl FnOnce(&mut Incremental)) -> OsdMap {
        let mut inc = next_inc(m);
        change(&mut inc);
        m.apply(&inc).unwrap()
    }

    fn cleaned(m: &OsdMap, pg: PgId) -> (Vec<&'static str>, OsdMap) {
        let mut inc = next_inc(m);
        let gone = m.clean_overrides(pg, &mut RuleOsds::default(), &mut inc);
        (gone, m.apply(&inc).unwrap())
    }

    #[test]
    fn temps_without_effect_are_removed() {
        let m = base_map();
        let (pg, useful) = (PgId::new(2, 3), PgId::new(2, 4));
        let at = m.pg_to_up_acting(pg);
        let other = m.osds().find(|o| !at.up.contains(o)).unwrap();
        let m = after(&m, |i| {
            i.new_pg_temp.insert(pg, at.up.to_vec());
            i.new_pg_temp.insert(useful, vec![other]);
            i.new_primary_temp.insert(pg, at.up_primary);
        });
        let (gone, m) = cleaned(&m, pg);
        assert_eq!(gone, ["pg_temp", "primary_temp"], "the set and the primary are those of the map");
        assert_eq!(cleaned(&m, useful).0, [""; 0]);
        let m = after(&m, |i| _ = i.new_state.insert(other, osd_state::UP));
        assert_eq!(cleaned(&m, useful).0, ["pg_temp"], "its only OSD is down");
        let m = after(&m, |i| _ = i.new_primary_temp.insert(pg, at.up[1]));
        assert_eq!(cleaned(&m, pg).0, [""; 0]);
        let third = m.osds().find(|o| m.is_up(*o) && !at.up.contains(o)).unwrap();
        let m = after(&m, |i| _ = i.new_primary_temp.insert(pg, third));
        assert_eq!(cleaned(&m, pg).0, ["primary_temp"], "a primary outside the acting set can't serve");
    }

    #[test]
    fn upmaps_are_removed_with_their_targets() {
        let mut m = base_map();
        m.pg_temp = crate::cow::CowMap::default();
        m.pg_upmap = crate::cow::CowMap::default();
        m.pg_upmap_items = crate::cow::CowMap::default();
        let pg = PgId::new(2, 3);
        let (raw, _) = m.pg_to_raw(pg);
        let host = |o: OsdId| m.crush.parent_of(o.0);
        let apart = |o: &OsdId| raw.iter().all(|r| host(*r) != host(*o));
        let other = m.osds().find(|o| apart(o) && m.is_in(*o) && m.is_up(*o)).unwrap();
        let with = after(&m, |i| _ = i.new_pg_upmap_items.insert(pg, vec![(raw[0], other)]));
        assert_eq!(cleaned(&with, pg).0, [""; 0], "a sound one stays");
        assert_eq!(with.min_compat_client(), release::LUMINOUS);
        assert_eq!(with.overridden_after(None, 9), [pg]);
        assert_eq!(with.overridden_after(Some(pg), 9), []);
        let out = after(&with, |i| _ = i.new_weight.insert(other, 0));
        let (gone, left) = cleaned(&out, pg);
        assert_eq!(gone, ["pg_upmap_items"]);
        assert!(left.pg_upmap_items.is_empty());
        // An OSD that CRUSH does not choose can't be replaced.
        let absent = m.osds().find(|o| !raw.contains(o) && *o != other).unwrap();
        let why = |m: &OsdMap| m.void_upmap(pg, &mut RuleOsds::default());
        assert_eq!(why(&with), None);
        let both = after(&m, |i| _ = i.new_pg_upmap_items.insert(pg, vec![(raw[0], other), (absent, raw[0])]));
        let (gone, left) = cleaned(&both, pg);
        assert_eq!(gone, ["a part of pg_upmap_items"]);
        assert_eq!(left.pg_upmap_items.get(&pg).unwrap(), &[(raw[0], other)]);
        assert_eq!(why(&both), None, "a part of it stays");
        let near = m.osds().find(|o| *o != raw[1] && host(*o) == host(raw[1])).unwrap();
        let close = after(&m, |i| _ = i.new_pg_upmap_items.insert(pg, vec![(raw[0], near)]));
        assert_eq!(cleaned(&close, pg).0, ["pg_upmap_items"], "two copies on one host");
        assert_eq!(why(&close), Some(VoidUpmap::TooClose));
        let set = |v: Vec<OsdId>| after(&m, |i| _ = i.new_pg_upmap.insert(pg, v));
        assert_eq!(why(&set(raw.to_vec())), Some(VoidUpmap::ChosenAnyway));
        assert_eq!(why(&set(raw.iter().rev().copied().collect())), None, "another order has effect");
        assert_eq!(why(&set(raw.iter().rev().copied().skip(1).collect())), Some(VoidUpmap::NotThePoolsSize));
        let merging = after(&with, |i| {
            let pool = PgPool { pg_num_pending: pg.seed, ..PgPool::clone(m.pool(pg.pool).unwrap()) };
            i.new_pools.insert(pg.pool, pool);
        });
        assert_eq!(why(&merging), Some(VoidUpmap::PgEnds));
        let removed = after(&with, |i| _ = i.old_pools.insert(pg.pool));
        assert_eq!(cleaned(&removed, pg).0, ["pg_upmap_items"], "the pool is gone");
        assert_eq!(m.weight(other), WEIGHT_IN);
    }

    #[test]
    fn compat_level_of_a_real_map() {
        let mut m = base_map();
        m.pg_upmap = crate::cow::CowMap::default();
        m.pg_upmap_items = crate::cow::CowMap::default();
        assert_eq!(m.min_compat_client(), release::JEWEL);
    }
}
