//! The plan of a change in steps: the PGs that are held, the way back, and what moves at once.

use super::{Items, Kept, PGS_MAX, Undo, items_of, set_items};
use crate::balance::{Growth, GrowthFacts};
use crate::rehearse::{Facts, Report, Settled, rehearse, settle};
use base::{OsdId, PgId};
use cluster::{Incremental, OsdMap};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change in steps.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The way back.
    pub undo: Undo,
    /// PGs whose upmap items change.
    pub pgs: BTreeMap<PgId, Kept>,
    /// The whole change.
    pub whole: Report,
    /// PGs with data that move at once, because they cannot be held.
    pub at_once: u64,
    /// Bytes that these copy.
    pub at_once_bytes: u64,
}

impl Plan {
    /// The number of PGs that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.pgs.values().filter(|k| k.hold.is_some()).count()
    }
}

/// PGs of a plan that may be held: all that are complete where they are.
struct Holdable<'a> {
    before: &'a OsdMap,
    facts: &'a Facts,
}

impl GrowthFacts for Holdable<'_> {
    fn is_wanted(&self, pg: PgId) -> bool {
        may_hold(self.before, self.facts, pg)
    }
    fn holders(&self, _: PgId) -> &[OsdId] {
        // The plan moves PGs step by step, whatever data OSDs have.
        &[]
    }
}

/// Plans a change of `before`. Error: a text; there is no way back, or it does not fit into a record.
pub fn plan(before: &Arc<OsdMap>, change: &Incremental, facts: &Facts) -> Result<Plan, String> {
    let undo = Undo::of(before, change)?;
    let facts = &Facts { hold: None, ..facts.clone() };
    let end = settle(before, change, facts).map_err(|e| e.to_string())?;
    if let Some(pg) = before.pg_upmap.keys().find(|pg| end.map.pg_upmap.get(pg) != before.pg_upmap.get(pg)) {
        return Err(format!("it voids the pg_upmap of pg {pg}; remove that first (ceph osd rm-pg-upmap {pg})"));
    }
    let mut first = change.clone();
    undo.hold_weights(&mut first);
    let mut map = before.apply(&first).map_err(|e| e.to_string())?;
    let mut growth = Growth::default();
    growth.begin(Arc::clone(before));
    let held = growth.step(&map, usize::MAX, &Holdable { before, facts });
    let mut pgs: BTreeMap<PgId, Kept> = BTreeMap::new();
    for (pg, items) in held {
        let hold: Items = items.iter().map(|(a, b)| (a.0, b.0)).collect();
        let then = items_of(&end.map, pg);
        if hold != then {
            pgs.insert(pg, Kept { was: items_of(before, pg), hold: Some(hold), then });
        }
    }
    for pg in before.pg_upmap_items.keys().copied() {
        let (was, then) = (items_of(before, pg), items_of(&end.map, pg));
        if was != then && !pgs.contains_key(&pg) {
            // With the weight of an OSD that goes out, the items to it hold the PG.
            let stays = map.pg_to_raw_upmap(pg).as_slice() == before.pg_to_raw_upmap(pg).as_slice();
            let hold = (stays && may_hold(before, facts, pg)).then(|| was.clone());
            pgs.insert(pg, Kept { was, hold, then });
        }
    }
    if pgs.len() > PGS_MAX {
        return Err(format!("{} PGs would be held or lose upmaps, and a record has {PGS_MAX}", pgs.len()));
    }
    let mut hold = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (pg, k) in &pgs {
        set_items(&map, &mut hold, *pg, k.hold.as_ref().unwrap_or(&k.then));
    }
    map = map.apply(&hold).map_err(|e| e.to_string())?;
    let whole = rehearse(before, &end, facts);
    let at_once = moved(before, &map, facts);
    let at_once_bytes = rehearse(before, &Settled { map, free: None, held: 0 }, facts).bytes;
    Ok(Plan { undo, pgs, whole, at_once, at_once_bytes })
}

/// The number of PGs with data that get an OSD between two maps.
fn moved(before: &OsdMap, after: &OsdMap, facts: &Facts) -> u64 {
    let moves = |pg: PgId| {
        let coded = after.pool(pg.pool).is_some_and(|p| p.is_erasure());
        let (had, wants) = (before.pg_to_up(pg).0, after.pg_to_up(pg).0);
        let stays = |i: usize, o: &OsdId| if coded { had.get(i) == Some(o) } else { had.contains(o) };
        wants.iter().enumerate().any(|(i, o)| *o != OsdId::NONE && !stays(i, o))
    };
    facts.pgs.iter().filter(|(pg, f)| f.bytes > 0 && moves(**pg)).count() as u64
}

/// True for a PG with data, of which every OSD of its up set has a complete copy. Others get what they lack at once.
fn may_hold(map: &OsdMap, facts: &Facts, pg: PgId) -> bool {
    let Some(f) = facts.pgs.get(&pg).filter(|f| f.active && f.bytes > 0) else { return false };
    let up = map.pg_to_up(pg).0;
    let coded = map.pool(pg.pool).is_some_and(|p| p.is_erasure());
    let has = |i: usize, o: &OsdId| if coded { f.holders.get(i) == Some(o) } else { f.holders.contains(o) };
    !up.is_empty() && up.iter().enumerate().all(|(i, o)| *o != OsdId::NONE && has(i, o))
}
