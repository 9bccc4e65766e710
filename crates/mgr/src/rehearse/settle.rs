//! From a change of the map to the map on which the cluster comes to rest.

use super::Facts;
use crate::balance::{Growth, GrowthFacts, joins};
use base::{OsdId, PgId};
use cluster::osdmap::RuleOsds;
use cluster::pool::{pg_mask, stable_mod};
use cluster::{Incremental, MapError, OsdMap, PgPool};
use std::sync::Arc;

/// Most passes over upmaps: the removal of one may give another its effect.
const PASSES: usize = 8;

/// The end of a change.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The map.
    pub map: OsdMap,
    /// The map without the balancer's hold; `None` if nothing is held.
    pub free: Option<OsdMap>,
    /// Number of PGs that are held where they are.
    pub held: usize,
}

impl GrowthFacts for Facts {
    fn is_wanted(&self, pg: PgId) -> bool {
        self.is_held(pg)
    }
    fn holders(&self, pg: PgId) -> &[OsdId] {
        self.pgs.get(&pg).map_or(&[], |f| &f.holders)
    }
}

/// Follows a change of a map to its end. Error: the change does not apply.
pub fn settle(before: &Arc<OsdMap>, change: &Incremental, facts: &Facts) -> Result<Settled, MapError> {
    let mut map = before.apply(change)?;
    let mut free = None;
    let mut held = 0;
    if facts.hold.is_some() && joins(before, &map) {
        let mut growth = Growth::default();
        growth.begin(Arc::clone(before));
        let items = growth.step(&map, usize::MAX, facts);
        held = items.len();
        if held > 0 {
            free = Some(at_rest(before, map.clone())?);
            let mut inc = next(&map);
            for (pg, items) in items {
                if items.is_empty() {
                    inc.old_pg_upmap_items.insert(pg);
                } else {
                    inc.new_pg_upmap_items.insert(pg, items);
                }
            }
            map = map.apply(&inc)?;
        }
    }
    Ok(Settled { map: at_rest(before, map)?, free, held })
}

fn next(map: &OsdMap) -> Incremental {
    Incremental::new(map.fsid, map.epoch.next(), map.modified)
}

/// The map once pools have the numbers of PGs that the change asks for, without void upmaps.
fn at_rest(before: &OsdMap, map: OsdMap) -> Result<OsdMap, MapError> {
    let mut map = with_targets(before, map)?;
    let mut rules = RuleOsds::default();
    for _ in 0..PASSES {
        let mut inc = next(&map);
        let mut gone = 0;
        for pg in map.overridden_after(None, usize::MAX) {
            gone += map.clean_overrides(pg, &mut rules, &mut inc).len();
        }
        if gone == 0 {
            break;
        }
        map = map.apply(&inc)?;
    }
    Ok(map)
}

/// Gives pools whose targets the change has set the numbers of PGs that they will have.
fn with_targets(before: &OsdMap, map: OsdMap) -> Result<OsdMap, MapError> {
    let targets = |p: &PgPool| (p.pg_num_target, p.pgp_num_target);
    let mut inc = next(&map);
    for (id, p) in map.pools.iter() {
        if before.pool(*id).is_none_or(|was| targets(was) == targets(p)) || p.pg_num_target == 0 {
            continue;
        }
        let mut p = PgPool::clone(p);
        let (from, to) = (p.pg_num, p.pg_num_target);
        p.pg_num = to;
        p.pg_num_pending = to;
        p.pgp_num = p.pgp_num_target.clamp(1, to);
        inc.new_pools.insert(*id, p);
        // PGs are merged where CRUSH places them.
        for seed in to..from {
            for seed in [seed, stable_mod(seed, to, pg_mask(to))] {
                let pg = PgId { pool: *id, seed };
                if map.pg_upmap_items.contains_key(&pg) {
                    inc.old_pg_upmap_items.insert(pg);
                }
                if map.pg_upmap.contains_key(&pg) {
                    inc.old_pg_upmap.insert(pg);
                }
                if map.pg_upmap_primaries.contains_key(&pg) {
                    inc.old_pg_upmap_primary.insert(pg);
                }
            }
        }
    }
    if inc.new_pools.is_empty() { Ok(map) } else { map.apply(&inc) }
}
