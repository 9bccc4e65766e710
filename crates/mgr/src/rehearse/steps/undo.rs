//! The way back for everything but upmap items: weights, primary affinities, CRUSH, sizes and rules of pools.

use super::{CrushUndo, HELD_WEIGHT, shortened};
use base::{OsdId, PoolId, Utime};
use bytes::Bytes;
use cluster::crush::CrushMap;
use cluster::{Incremental, OsdMap, PgPool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The weight of an OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightUndo {
    /// Before.
    pub was: u32,
    /// While PGs are held.
    pub held: u32,
    /// In the end.
    pub then: u32,
    /// Before: the weight that an automatic removal has kept.
    #[serde(default)]
    pub kept: u32,
}

/// The values of a pool that place its PGs: size, `min_size` and rule.
type Placing = (u8, u8, u8);

/// The values that a change has replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// Weights by OSD.
    #[serde(default)]
    pub weights: BTreeMap<i32, WeightUndo>,
    /// Primary affinities by OSD, before and after.
    #[serde(default)]
    pub affinities: BTreeMap<i32, (u32, u32)>,
    /// Size, `min_size` and rule by pool, before and after.
    #[serde(default)]
    pub pools: BTreeMap<i64, (Placing, Placing)>,
    /// The CRUSH map.
    #[serde(default)]
    pub crush: Option<CrushUndo>,
}

fn placing(p: &PgPool) -> Placing {
    (p.size, p.min_size, p.crush_rule)
}

fn placed(p: &PgPool, (size, min_size, crush_rule): Placing) -> PgPool {
    PgPool { size, min_size, crush_rule, ..p.clone() }
}

impl Undo {
    /// The way back from a change of `before`. Error: a text that says why there is none.
    pub fn of(before: &OsdMap, change: &Incremental) -> Result<Self, String> {
        let mut undo = Self::default();
        for (o, then) in change.new_weight.iter().filter(|(o, w)| before.weight(**o) != **w) {
            let was = before.weight(*o);
            let held = if *then == 0 { HELD_WEIGHT.min(was) } else { *then };
            undo.weights.insert(o.0, WeightUndo { was, held, then: *then, kept: before.xinfo(*o).old_weight });
        }
        for (o, then) in change.new_primary_affinity.iter().filter(|(o, a)| before.affinity(**o) != **a) {
            undo.affinities.insert(o.0, (before.affinity(*o), *then));
        }
        for (id, p) in &change.new_pools {
            let Some(was) = before.pool(*id) else { return Err("it makes a pool".into()) };
            if (was.pg_num_target, was.pgp_num_target) != (p.pg_num_target, p.pgp_num_target) {
                return Err("it splits or merges PGs".into());
            }
            if PgPool::clone(p) != (PgPool { last_change: p.last_change, ..placed(was, placing(p)) }) {
                return Err("it changes more of a pool than size, min_size and crush_rule".into());
            }
            if placing(was) != placing(p) {
                undo.pools.insert(id.0, (placing(was), placing(p)));
            }
        }
        if !change.crush.is_empty() {
            let after = CrushMap::decode_blob(&change.crush).map_err(|e| e.to_string())?;
            undo.crush = Some(CrushUndo::of(&before.crush, &after));
        }
        nothing_else(change)?;
        if undo == Self::default() { Err("it changes nothing that places data".into()) } else { Ok(undo) }
    }

    /// Gives OSDs that go out the weight that they have while PGs are held.
    pub fn hold_weights(&self, change: &mut Incremental) {
        change.new_weight.extend(self.weights.iter().map(|(o, w)| (OsdId(*o), w.held)));
    }

    /// The weights that OSDs still have to get in the end.
    #[must_use]
    pub fn last_weights(&self, map: &OsdMap) -> BTreeMap<OsdId, u32> {
        let waits =
            |o: &i32, w: &WeightUndo| w.held != w.then && map.exists(OsdId(*o)) && map.weight(OsdId(*o)) == w.held;
        self.weights.iter().filter(|(o, w)| waits(o, w)).map(|(o, w)| (OsdId(*o), w.then)).collect()
    }

    /// OSDs that were marked out automatically while they were held, with the weight that they shall come back with: 0 for
    /// the full one.
    #[must_use]
    pub fn weights_to_keep(&self, map: &OsdMap) -> BTreeMap<OsdId, u32> {
        const FULL: u32 = 0x1_0000;
        let held = |o: &i32, w: &WeightUndo| {
            let id = OsdId(*o);
            w.held != w.was && map.exists(id) && map.weight(id) == 0 && map.xinfo(id).old_weight == w.held
        };
        let all = self.weights.iter().filter(|(o, w)| held(o, w));
        all.map(|(o, w)| (OsdId(*o), if w.was == FULL { 0 } else { w.was })).collect()
    }

    pub(super) fn differences(&self, map: &OsdMap) -> Vec<String> {
        let mut out = Vec::new();
        for (o, w) in &self.weights {
            let (id, now) = (OsdId(*o), map.weight(OsdId(*o)));
            if !map.exists(id) {
                out.push(format!("{id} does not exist"));
            } else if now != w.held && now != w.then {
                out.push(format!("{id} has the weight {:.5}", f64::from(now) / 65_536.0));
            }
        }
        for (o, (_, then)) in self.affinities.iter().filter(|(o, _)| map.exists(OsdId(**o))) {
            let now = map.affinity(OsdId(*o));
            if now != *then {
                out.push(format!("osd.{o} has the primary affinity {:.5}", f64::from(now) / 65_536.0));
            }
        }
        for (id, (_, then)) in &self.pools {
            match map.pool(PoolId(*id)) {
                None => out.push(format!("pool {id} does not exist")),
                Some(p) if placing(p) != *then => {
                    let name = map.pool_name(PoolId(*id)).unwrap_or_default();
                    let (size, min_size, rule) = placing(p);
                    out.push(format!("pool {name} has size {size}, min_size {min_size}, crush_rule {rule}"));
                }
                Some(_) => {}
            }
        }
        out.extend(self.crush.iter().flat_map(|c| c.differences(&map.crush)));
        out
    }

    pub(super) fn bring_back(&self, map: &OsdMap, inc: &mut Incremental) -> Result<(), String> {
        if let Some(c) = &self.crush {
            let new = c.newcomers(&map.crush)?;
            if !new.is_empty() {
                return Err(format!(
                    "{} would lose their places in the CRUSH map: they have joined since",
                    shortened(&new)
                ));
            }
            inc.crush = c.blob_of(map)?;
        }
        for (o, w) in self.weights.iter().filter(|(o, _)| map.exists(OsdId(**o))) {
            let id = OsdId(*o);
            inc.new_weight.insert(id, w.was);
            if map.xinfo(id).old_weight != w.kept {
                let x = cluster::osdmap::OsdXinfo { old_weight: w.kept, ..map.xinfo(id) };
                inc.new_xinfo.insert(id, x);
            }
        }
        let there = self.affinities.iter().filter(|(o, _)| map.exists(OsdId(**o)));
        inc.new_primary_affinity.extend(there.map(|(o, (was, _))| (OsdId(*o), *was)));
        for (id, (was, _)) in &self.pools {
            if let Some(p) = map.pool(PoolId(*id)) {
                inc.new_pools.insert(PoolId(*id), placed(p, *was));
            }
        }
        Ok(())
    }
}

/// Refuses a change of anything that [`Undo`] does not bring back.
fn nothing_else(change: &Incremental) -> Result<(), String> {
    let mut rest = change.clone();
    let weighed: Vec<OsdId> = rest.new_weight.keys().copied().collect();
    weighed.iter().for_each(|o| _ = rest.new_xinfo.remove(o));
    rest.new_weight.clear();
    rest.new_primary_affinity.clear();
    rest.new_pools.clear();
    rest.crush = Bytes::new();
    (rest.new_last_in_change, rest.new_last_up_change) = (Utime::ZERO, Utime::ZERO);
    (rest.encode_features, rest.full_crc, rest.inc_crc) = (0, 0, 0);
    let none = Incremental::new(rest.fsid, rest.epoch, rest.modified);
    let upmaps = |i: &Incremental| {
        let (set, items) = (i.new_pg_upmap.len() + i.old_pg_upmap.len(), i.new_pg_upmap_items.len());
        set + items + i.old_pg_upmap_items.len() + i.new_pg_upmap_primary.len() + i.old_pg_upmap_primary.len()
    };
    if rest == none {
        Ok(())
    } else if !rest.old_pools.is_empty() {
        Err("it removes a pool".into())
    } else if !rest.new_state.is_empty() || !rest.new_uuid.is_empty() || !rest.new_up_client.is_empty() {
        Err("it changes the state of OSDs: up, down, destroyed or removed".into())
    } else if upmaps(&rest) > 0 {
        Err("it sets upmaps of single PGs".into())
    } else if rest.new_flags != none.new_flags {
        Err("it sets flags of the map".into())
    } else {
        Err("it changes parts of the OSD map for which there is no way back".into())
    }
}
