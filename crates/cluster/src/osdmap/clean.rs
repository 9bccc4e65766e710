//! Removal of overrides without effect, which a monitor adds to an incremental.

use super::{Incremental, OsdMap, OsdSet};
use crate::release;
use base::{OsdId, PgId};

impl OsdMap {
    /// The up set and its primary, without temps.
    #[must_use]
    pub fn pg_to_up(&self, pg: PgId) -> (OsdSet, OsdId) {
        let at = self.pg_to_up_acting(pg);
        (at.up, at.up_primary)
    }

    /// Adds to `inc` the removal of temps that have no effect in `next`, the map that `inc` makes of `self`.
    /// These name missing or down OSDs or missing pools, or equal the up set (`OSDMap::clean_temps`).
    pub fn clean_temps(&self, next: &Self, inc: &mut Incremental) {
        for (pg, set) in next.pg_temp.iter() {
            let Some(pool) = next.pool(pg.pool) else {
                inc.new_pg_temp.insert(*pg, Vec::new());
                continue;
            };
            let dead = !set.iter().any(|o| next.is_up(*o));
            let redundant = || next.pg_to_up(*pg).0.as_slice() == set.as_slice() || set.len() > usize::from(pool.size);
            if dead || redundant() {
                if dead || self.pg_temp.contains_key(pg) {
                    inc.new_pg_temp.insert(*pg, Vec::new());
                } else {
                    inc.new_pg_temp.remove(pg);
                }
            }
        }
        for (pg, primary) in next.primary_temp.iter() {
            if next.is_down(*primary) {
                inc.new_primary_temp.insert(*pg, OsdId(-1));
                continue;
            }
            let at = next.pg_to_up_acting(*pg);
            if at.acting_primary == at.up_primary {
                if self.primary_temp.contains_key(pg) {
                    inc.new_primary_temp.insert(*pg, OsdId(-1));
                } else {
                    inc.new_primary_temp.remove(pg);
                }
            }
        }
    }

    /// Adds to `inc` the removal of upmaps that are void in `next`: of missing PGs, to OSDs that are missing,
    /// out or outside the pool's CRUSH rule, or without effect.
    pub fn clean_upmaps(&self, next: &Self, inc: &mut Incremental) {
        if next.pg_upmap.is_empty() && next.pg_upmap_items.is_empty() && next.pg_upmap_primaries.is_empty() {
            return;
        }
        let gone = |pg: &PgId| next.pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num);
        let shares: std::collections::BTreeMap<u8, _> =
            next.pools.values().map(|p| (p.crush_rule, next.crush.rule_osd_shares(p.crush_rule.into()))).collect();
        let fits = |pg: &PgId, o: &OsdId| {
            *o == OsdId::NONE
                || next.is_in(*o)
                    && next
                        .pool(pg.pool)
                        .and_then(|p| shares.get(&p.crush_rule))
                        .is_some_and(|s| s.get(&o.0).is_some_and(|w| *w > 0.0))
        };
        for (pg, set) in next.pg_upmap.iter() {
            if gone(pg) || !set.iter().all(|o| fits(pg, o)) || next.pg_to_raw(*pg).0.as_slice() == set.as_slice() {
                inc.new_pg_upmap.remove(pg);
                if self.pg_upmap.contains_key(pg) {
                    inc.old_pg_upmap.insert(*pg);
                }
            }
        }
        for (pg, items) in next.pg_upmap_items.iter() {
            let raw = || if next.pg_upmap.contains_key(pg) { None } else { Some(next.pg_to_raw(*pg).0) };
            if gone(pg) {
                inc.new_pg_upmap_items.remove(pg);
                if self.pg_upmap_items.contains_key(pg) {
                    inc.old_pg_upmap_items.insert(*pg);
                }
                continue;
            }
            let raw = raw();
            let kept: Vec<(OsdId, OsdId)> = items
                .iter()
                .filter(|(from, to)| fits(pg, to) && raw.as_ref().is_none_or(|r| r.contains(from) && !r.contains(to)))
                .copied()
                .collect();
            if kept.len() == items.len() {
                continue;
            }
            if kept.is_empty() {
                inc.new_pg_upmap_items.remove(pg);
                if self.pg_upmap_items.contains_key(pg) {
                    inc.old_pg_upmap_items.insert(*pg);
                }
            } else {
                inc.new_pg_upmap_items.insert(*pg, kept);
            }
        }
        for pg in next.pg_upmap_primaries.keys().filter(|pg| gone(pg)) {
            inc.new_pg_upmap_primary.remove(pg);
            if self.pg_upmap_primaries.contains_key(pg) {
                inc.old_pg_upmap_primary.insert(*pg);
            }
        }
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

    #[test]
    fn temps_without_effect_are_removed() {
        let m = base_map();
        let pg = PgId::new(2, 3);
        let at = m.pg_to_up_acting(pg);
        let other = m.osds().find(|o| !at.up.contains(o)).unwrap();
        let mut inc = next_inc(&m);
        // The set equals the one without the override: it is withdrawn before it enters the map.
        inc.new_pg_temp.insert(pg, at.up.to_vec());
        let useful = PgId::new(2, 4);
        inc.new_pg_temp.insert(useful, vec![other]);
        inc.new_primary_temp.insert(pg, at.up_primary);
        let next = m.apply(&inc).unwrap();
        m.clean_temps(&next, &mut inc);
        assert!(!inc.new_pg_temp.contains_key(&pg) && !inc.new_primary_temp.contains_key(&pg));
        assert_eq!(inc.new_pg_temp[&useful], [other]);
        // The override is removed when its only OSD goes down.
        let m = m.apply(&inc).unwrap();
        let mut inc = next_inc(&m);
        inc.new_state.insert(other, osd_state::UP);
        let next = m.apply(&inc).unwrap();
        m.clean_temps(&next, &mut inc);
        assert_eq!(inc.new_pg_temp[&useful], []);
    }

    #[test]
    fn upmaps_are_removed_with_their_targets() {
        let m = base_map();
        let pg = PgId::new(2, 3);
        let (raw, _) = m.pg_to_raw(pg);
        let other = m.osds().find(|o| !raw.contains(o)).unwrap();
        let mut inc = next_inc(&m);
        inc.new_pg_upmap_items.insert(pg, vec![(raw[0], other)]);
        let next = m.apply(&inc).unwrap();
        m.clean_upmaps(&next, &mut inc);
        assert_eq!(inc.new_pg_upmap_items[&pg], [(raw[0], other)], "a sound one stays");
        let m = next;
        assert_eq!(m.min_compat_client(), release::LUMINOUS);
        let mut inc = next_inc(&m);
        inc.new_weight.insert(other, 0);
        let next = m.apply(&inc).unwrap();
        m.clean_upmaps(&next, &mut inc);
        assert!(inc.old_pg_upmap_items.contains(&pg));
        // A pool that shrinks or is removed loses its upmaps.
        let mut inc = next_inc(&m);
        inc.old_pools.insert(pg.pool);
        let next = m.apply(&inc).unwrap();
        m.clean_upmaps(&next, &mut inc);
        assert!(inc.old_pg_upmap_items.contains(&pg));
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
