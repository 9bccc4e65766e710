//! Placement: from an object to its OSDs.
//!
//! object -> raw PG -> PG -> placement seed -> CRUSH -> upmap -> up -> primary affinity -> temp -> acting.

use super::{AFFINITY_DEFAULT, AFFINITY_MAX, OsdMap};
use crate::crush::hash::{StrHash, hash32_2, str_linux};
use crate::crush::{ITEM_NONE, Scratch, do_rule};
use crate::pool::{PgPool, name_hash};
use base::{OsdId, PgId, PoolId, ShardId, SpgId};
use smallvec::SmallVec;
use std::cell::RefCell;

/// A set of OSDs in order; holes of erasure-coded sets are [`OsdId::NONE`].
pub type OsdSet = SmallVec<[OsdId; 6]>;

/// Working memory of placement; keep one per thread.
#[derive(Debug, Default)]
pub struct PlaceScratch {
    crush: Scratch,
}

/// Location of a PG: `up` is CRUSH's choice among OSDs that are up, `acting` the set that serves now.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UpActing {
    /// Up set.
    pub up: OsdSet,
    /// Primary of the up set, `OsdId(-1)` for none.
    pub up_primary: OsdId,
    /// Acting set.
    pub acting: OsdSet,
    /// Acting primary, `OsdId(-1)` for none.
    pub acting_primary: OsdId,
}

/// Number that stands for no primary.
const NO_PRIMARY: OsdId = OsdId(-1);

thread_local! {
    static SCRATCH: RefCell<PlaceScratch> = RefCell::default();
}

impl PgPool {
    /// Placement hash of an object, from its namespace and its locator key (its name if the key is empty).
    #[must_use]
    pub fn hash_object(&self, name: &[u8], key: &[u8], nspace: &[u8]) -> u32 {
        let key = if key.is_empty() { name } else { key };
        if self.object_hash == name_hash::LINUX {
            if nspace.is_empty() {
                return str_linux(key);
            }
            return str_linux(&[nspace, b"\x1f", key].concat());
        }
        if nspace.is_empty() {
            let mut h = StrHash::new(key.len());
            h.feed(key);
            return h.finish();
        }
        let mut h = StrHash::new(nspace.len() + 1 + key.len());
        h.feed(nspace);
        h.feed(b"\x1f");
        h.feed(key);
        h.finish()
    }
}

impl OsdMap {
    /// Raw PG of an object, whose seed is the whole hash. `hash` overrides name, key and namespace.
    #[must_use]
    pub fn object_to_raw_pg(
        &self,
        pool: PoolId,
        name: &[u8],
        key: &[u8],
        nspace: &[u8],
        hash: Option<u32>,
    ) -> Option<PgId> {
        let p = self.pool(pool)?;
        let seed = hash.unwrap_or_else(|| p.hash_object(name, key, nspace));
        Some(PgId { pool, seed })
    }

    /// Actual PG of a raw one.
    #[must_use]
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        Some(PgId { seed: self.pool(raw.pool)?.raw_pg_to_pg(raw.seed), ..raw })
    }

    /// Actual PG of an object without locator overrides.
    #[must_use]
    pub fn object_to_pg(&self, pool: PoolId, name: &[u8], key: &[u8], nspace: &[u8]) -> Option<PgId> {
        self.raw_pg_to_pg(self.object_to_raw_pg(pool, name, key, nspace, None)?)
    }

    /// Up and acting sets of a (raw or actual) PG. The sets are empty for an unknown pool.
    #[must_use]
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        let mut out = UpActing::default();
        SCRATCH.with_borrow_mut(|s| self.pg_to_up_acting_with(pg, s, &mut out));
        out
    }

    /// [`OsdMap::pg_to_up_acting`] into reused memory.
    pub fn pg_to_up_acting_with(&self, pg: PgId, scratch: &mut PlaceScratch, out: &mut UpActing) {
        let UpActing { up, up_primary, acting, acting_primary } = out;
        up.clear();
        acting.clear();
        (*up_primary, *acting_primary) = (NO_PRIMARY, NO_PRIMARY);
        let Some(pool) = self.pool(pg.pool) else { return };
        let actual = PgId { seed: pool.raw_pg_to_pg(pg.seed), ..pg };
        let pps = pool.raw_pg_to_pps(pg.pool, pg.seed);
        self.raw_set(pool, pg.pool, pps, scratch, up);
        self.apply_upmap(actual, up);
        self.drop_down(pool, up);
        *up_primary = first(up);
        self.apply_affinity(pps, pool, up, up_primary);
        let temp_primary = self.temp_sets(pool, actual, acting);
        match temp_primary {
            _ if acting.is_empty() => {
                acting.extend_from_slice(up);
                *acting_primary = temp_primary.unwrap_or(*up_primary);
            }
            Some(p) => *acting_primary = p,
            None => *acting_primary = first(acting),
        }
    }

    /// CRUSH's raw choice, without upmaps and including down OSDs, and its first OSD.
    #[must_use]
    pub fn pg_to_raw(&self, pg: PgId) -> (OsdSet, OsdId) {
        let mut out = OsdSet::new();
        if let Some(pool) = self.pool(pg.pool) {
            let pps = pool.raw_pg_to_pps(pg.pool, pg.seed);
            SCRATCH.with_borrow_mut(|s| self.raw_set(pool, pg.pool, pps, s, &mut out));
        }
        let primary = first(&out);
        (out, primary)
    }

    /// CRUSH's choice after upmaps, including down OSDs.
    #[must_use]
    pub fn pg_to_raw_upmap(&self, pg: PgId) -> OsdSet {
        let (mut set, _) = self.pg_to_raw(pg);
        if let Some(pool) = self.pool(pg.pool) {
            let actual = PgId { seed: pool.raw_pg_to_pg(pg.seed), ..pg };
            self.apply_upmap(actual, &mut set);
        }
        set
    }

    fn raw_set(&self, pool: &PgPool, id: PoolId, pps: u32, scratch: &mut PlaceScratch, out: &mut OsdSet) {
        struct Sink<'a>(&'a mut OsdSet);
        impl Extend<i32> for Sink<'_> {
            fn extend<I: IntoIterator<Item = i32>>(&mut self, it: I) {
                self.0.extend(it.into_iter().map(OsdId));
            }
        }
        let Some(rule) = self.crush.rule(pool.crush_rule.into()) else { return };
        let args = self.crush.choose_args_for(id.0);
        let size = usize::from(pool.size);
        do_rule(&self.crush, rule, pps, size, &self.osd_weight, args, &mut scratch.crush, &mut Sink(out));
        self.drop_nonexistent(pool, out);
    }

    fn drop_nonexistent(&self, pool: &PgPool, set: &mut OsdSet) {
        if pool.can_shift_osds() {
            set.retain(|o| self.exists(*o));
        } else {
            for o in set.iter_mut().filter(|o| !self.exists(**o)) {
                *o = OsdId::NONE;
            }
        }
    }

    fn drop_down(&self, pool: &PgPool, set: &mut OsdSet) {
        if pool.can_shift_osds() {
            set.retain(|o| self.is_up(*o));
        } else {
            for o in set.iter_mut().filter(|o| !self.is_up(**o)) {
                *o = OsdId::NONE;
            }
        }
    }

    /// CRUSH's choice after upmaps, as it is without a chosen primary.
    #[must_use]
    pub fn pg_to_raw_upmap_unled(&self, pg: PgId) -> OsdSet {
        let (mut set, _) = self.pg_to_raw(pg);
        self.apply_sets(pg, &mut set);
        set
    }

    fn apply_upmap(&self, pg: PgId, set: &mut OsdSet) {
        if self.apply_sets(pg, set) {
            self.apply_chosen_primary(pg, set);
        }
    }

    /// Applies whole sets and replacements. False if they void all of the PG's upmaps.
    fn apply_sets(&self, pg: PgId, set: &mut OsdSet) -> bool {
        if let Some(to) = self.pg_upmap.get(&pg) {
            // A single target that is out voids all upmaps of the PG, including that of the primary.
            if to.iter().any(|o| self.marked_out(*o)) {
                return false;
            }
            set.clear();
            set.extend_from_slice(to);
        }
        if let Some(items) = self.pg_upmap_items.get(&pg) {
            for (from, to) in items {
                // A set must not hold an OSD twice.
                if set.contains(to) || self.marked_out(*to) {
                    continue;
                }
                if let Some(o) = set.iter_mut().find(|o| *o == from) {
                    *o = *to;
                }
            }
        }
        true
    }

    fn apply_chosen_primary(&self, pg: PgId, set: &mut OsdSet) {
        if let Some(to) = self.pg_upmap_primaries.get(&pg) {
            // The chosen primary must be in the set; it is swapped with the first OSD.
            if *to != OsdId::NONE
                && (0..self.max_osd).contains(&to.0)
                && self.weight(*to) != 0
                && let Some(at) = set.iter().skip(1).position(|o| o == to)
            {
                set.swap(0, at + 1);
            }
        }
    }

    fn apply_affinity(&self, pps: u32, pool: &PgPool, set: &mut OsdSet, primary: &mut OsdId) {
        let Some(affinity) = &self.primary_affinity else { return };
        let of =
            |o: OsdId| usize::try_from(o.0).ok().and_then(|i| affinity.get(i)).copied().unwrap_or(AFFINITY_DEFAULT);
        if !set.iter().any(|o| *o != OsdId::NONE && of(*o) != AFFINITY_DEFAULT) {
            return;
        }
        let mut chosen = None;
        for (i, o) in set.iter().enumerate().filter(|(_, o)| **o != OsdId::NONE) {
            let a = of(*o);
            if a < AFFINITY_MAX && hash32_2(pps, o.0 as u32) >> 16 >= a {
                // The OSD declines, but leads if all decline.
                chosen.get_or_insert(i);
            } else {
                chosen = Some(i);
                break;
            }
        }
        let Some(at) = chosen else { return };
        if let Some(o) = set.get(at) {
            *primary = *o;
        }
        if pool.can_shift_osds()
            && at > 0
            && let Some(front) = set.get_mut(..=at)
        {
            front.rotate_right(1);
        }
    }

    /// Sets `acting` to the override of the up set, if any. Returns the overriding primary.
    fn temp_sets(&self, pool: &PgPool, pg: PgId, acting: &mut OsdSet) -> Option<OsdId> {
        if let Some(temp) = self.pg_temp.get(&pg) {
            for o in temp {
                if self.exists(*o) && self.is_up(*o) {
                    acting.push(*o);
                } else if !pool.can_shift_osds() {
                    acting.push(OsdId::NONE);
                }
            }
        }
        match self.primary_temp.get(&pg) {
            Some(p) => Some(*p),
            None => acting.iter().find(|o| **o != OsdId::NONE).copied(),
        }
    }

    /// All PGs of a pool.
    pub fn pgs_of(&self, pool: PoolId) -> impl Iterator<Item = PgId> + use<> {
        let n = self.pool(pool).map_or(0, |p| p.pg_num);
        (0..n).map(move |seed| PgId { pool, seed })
    }

    /// The PG with the shard of its primary: the address of operations and commands on erasure-coded PGs
    /// (`OSDMap::get_primary_shard`).
    #[must_use]
    pub fn primary_shard(&self, pg: PgId) -> SpgId {
        self.pool(pg.pool).map_or(pg.into(), |pool| {
            let sets = self.pg_to_up_acting(pg);
            SpgId { pg, shard: self.shard_of(pool, &sets.acting, sets.acting_primary).unwrap_or(ShardId::NONE) }
        })
    }

    /// Shard of an OSD in the acting set: its index for erasure-coded pools, -1 for replicated ones. `None` if
    /// the OSD is not in the set.
    #[must_use]
    pub fn shard_of(&self, pool: &PgPool, acting: &[OsdId], osd: OsdId) -> Option<ShardId> {
        let at = acting.iter().position(|o| *o == osd)?;
        Some(if pool.is_erasure() { ShardId(at as i8) } else { ShardId::NONE })
    }
}

fn first(set: &[OsdId]) -> OsdId {
    set.iter().find(|o| o.0 != ITEM_NONE).copied().unwrap_or(NO_PRIMARY)
}
