//! The reactor of each PG.
//!
//! A PG's name selects its reactor, so every sender knows it. Only a PG that was split off stays on its
//! parent's reactor until it has moved ([`super::moves`]). Every reactor keeps the same table of such PGs. The
//! table follows from the maps and from the decisions about moves, which come through the same queue. So a
//! message finds its way whichever reactor it reaches, although other OSDs and clients use the name.
//!
//! A PG that a map merges into another one stays known at its reactor under that map, whatever is split off
//! under its name later.
//!
//! Several shards of an erasure-coded PG may be on this OSD for a time. A split-off shard is in its parent's
//! shard of the store, one created later in that of the PG's name. After a start with another number of
//! reactors they may be on different reactors. So found copies, and those split off them, are tracked by shard.
//!
//! The stores may have seen newer maps than the stored ones: one reactor stores the maps, and effects in other
//! stores may be durable before. A map that a collection has already seen does not change its place.
//!
//! Invariant: at the same point in the sequence of maps and decisions, the tables of all reactors are equal.
//!
//! Tests: `tests/moves.rs` compares them.

use base::{Epoch, PgId, ShardId, SpgId};
use cluster::OsdMap;
use cluster::pool::{pg_mask, stable_mod};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use store::{Cid, layout};

/// Merges of PGs of one name whose reactors are remembered; more are never in progress.
const LEFT_MAX: usize = 16;

/// A copy of a PG in the stores at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The PG and shard.
    pub spg: SpgId,
    /// Reactor whose store has the copy.
    pub reactor: usize,
    /// Newest map that the copy has seen.
    pub epoch: Epoch,
}

/// Reactors of PGs; see the module.
pub struct Places {
    /// This reactor.
    index: usize,
    named: Box<dyn Fn(PgId) -> usize>,
    /// PGs that are not on the reactor of their name, and PGs found at the start.
    known: FxHashMap<PgId, usize>,
    /// Shards found at the start, and those split off them. Other shards are with their PG.
    shards: BTreeMap<SpgId, usize>,
    /// Newest map of each found copy, as long as older maps may follow.
    found: FxHashMap<SpgId, Epoch>,
    /// Reactors of merged PGs, by the map that merged them. Shards with places of their own are listed
    /// separately.
    left: BTreeMap<(SpgId, Epoch), usize>,
    /// Newest map.
    epoch: Epoch,
}

/// Reactor that a PG's name selects among so many.
#[must_use]
pub fn reactor_of(pg: PgId, reactors: usize) -> usize {
    layout::reactor_for(layout::shard_for(Cid::Pg(pg.into()), layout::SHARDS), reactors as u16).into()
}

/// Range of all shards of a PG.
fn shards_of(pg: PgId) -> RangeInclusive<SpgId> {
    SpgId { pg, shard: ShardId(0) }..=SpgId { pg, shard: ShardId(i8::MAX) }
}

impl Places {
    /// Table of reactor `index`. `named` gives the reactor of a PG's name, `found` lists the PGs of all stores.
    #[must_use]
    pub fn new(index: usize, named: Box<dyn Fn(PgId) -> usize>, found: &[Found]) -> Self {
        let (whole, shards): (Vec<&Found>, Vec<&Found>) = found.iter().partition(|f| f.spg.shard == ShardId::NONE);
        Self {
            index,
            named,
            known: whole.iter().map(|f| (f.spg.pg, f.reactor)).collect(),
            shards: shards.iter().map(|f| (f.spg, f.reactor)).collect(),
            found: found.iter().map(|f| (f.spg, f.epoch)).collect(),
            left: BTreeMap::new(),
            epoch: Epoch(0),
        }
    }

    /// A table in which all PGs are on this reactor.
    #[must_use]
    pub fn all_here() -> Self {
        Self::new(0, Box::new(|_| 0), &[])
    }

    /// Number of this reactor.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Newest map that was followed.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Reactor of a PG's name.
    #[must_use]
    pub fn named(&self, pg: PgId) -> usize {
        (self.named)(pg)
    }

    /// Sets the reactor of a PG that moved.
    pub fn set(&mut self, pg: PgId, at: usize) {
        if at == self.named(pg) {
            self.known.remove(&pg);
        } else {
            self.known.insert(pg, at);
        }
    }

    /// Reactor of an existing or future copy; that of the whole PG if no shard is named.
    #[must_use]
    pub fn of(&self, spg: SpgId) -> usize {
        let shard = if self.shards.is_empty() { None } else { self.shards.get(&spg) };
        shard.copied().unwrap_or_else(|| self.of_pg(spg.pg))
    }

    fn of_pg(&self, pg: PgId) -> usize {
        if self.known.is_empty() {
            return (self.named)(pg);
        }
        self.known.get(&pg).copied().unwrap_or_else(|| (self.named)(pg))
    }

    /// Reactor of a copy of a PG that the map of this epoch merged into another one.
    #[must_use]
    pub fn of_leaver(&self, spg: SpgId, epoch: Epoch) -> usize {
        let left = |spg: SpgId| self.left.get(&(spg, epoch)).copied();
        left(spg).or_else(|| left(spg.pg.into())).unwrap_or_else(|| self.of(spg))
    }

    /// True if the copy belongs to this reactor.
    #[must_use]
    pub fn is_here(&self, spg: SpgId) -> bool {
        self.of(spg) == self.index
    }

    fn note_left(&mut self, spg: SpgId, epoch: Epoch, at: usize) {
        self.left.insert((spg, epoch), at);
        let of_it = || self.left.range((spg, Epoch(0))..=(spg, epoch));
        if of_it().count() > LEFT_MAX
            && let Some((oldest, _)) = of_it().next()
        {
            let oldest = *oldest;
            self.left.remove(&oldest);
        }
    }

    /// True if no copy found here has seen a map newer than `before`.
    fn is_older(&self, spg: SpgId, before: Epoch) -> bool {
        self.found.get(&spg).is_none_or(|seen| *seen <= before)
    }

    /// Puts a split-off PG on its parent's reactor, each shard separately.
    fn split(&mut self, parent: PgId, child: PgId, before: Epoch) {
        if self.is_older(child.into(), before) {
            self.set(child, self.of_pg(parent));
        }
        if self.shards.is_empty() {
            return;
        }
        // Places of an earlier PG of this name.
        let stale: Vec<SpgId> = self.shards.range(shards_of(child)).map(|(s, _)| *s).collect();
        for s in stale {
            if self.is_older(s, before) {
                self.shards.remove(&s);
            }
        }
        let parents: Vec<(SpgId, usize)> = self.shards.range(shards_of(parent)).map(|(s, at)| (*s, *at)).collect();
        for (s, at) in parents {
            let s = SpgId { pg: child, ..s };
            if self.is_older(s, before) {
                self.shards.insert(s, at);
            }
        }
    }

    /// Follows a map: split-off PGs stay on their parent's reactor.
    pub fn follow(&mut self, before: &OsdMap, next: &OsdMap) {
        for (id, p) in next.pools.iter() {
            let Some(old) = before.pool(*id).map(|p| p.pg_num).filter(|n| *n != p.pg_num) else { continue };
            for seed in p.pg_num..old {
                let pg = PgId { pool: *id, seed };
                self.note_left(pg.into(), next.epoch, self.of_pg(pg));
                let shards: Vec<(SpgId, usize)> = self.shards.range(shards_of(pg)).map(|(s, at)| (*s, *at)).collect();
                shards.into_iter().for_each(|(s, at)| self.note_left(s, next.epoch, at));
            }
            for seed in old..p.pg_num {
                let pg = PgId { pool: *id, seed };
                self.split(PgId { seed: stable_mod(seed, old, pg_mask(old)), ..pg }, pg, before.epoch);
            }
        }
        if next.pools.len() < before.pools.len() {
            self.known.retain(|pg, _| next.pool(pg.pool).is_some());
            self.shards.retain(|s, _| next.pool(s.pg.pool).is_some());
            self.left.retain(|(s, _), _| next.pool(s.pg.pool).is_some());
        }
        if !self.found.is_empty() && self.found.values().all(|seen| *seen <= next.epoch) {
            self.found = FxHashMap::default();
        }
        self.epoch = next.epoch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PoolId;
    use cluster::PgPool;
    use std::sync::Arc;

    fn map(pg_num: u32) -> OsdMap {
        map_at(0, pg_num)
    }

    fn map_at(epoch: u32, pg_num: u32) -> OsdMap {
        let mut m = OsdMap { epoch: Epoch(epoch), ..OsdMap::default() };
        Arc::make_mut(&mut m.pools).insert(PoolId(1), PgPool { pg_num, pgp_num: pg_num, ..PgPool::default() }.into());
        m
    }

    #[test]
    fn a_split_child_stays_and_a_new_pg_is_on_the_reactor_of_its_name() {
        let mut p = Places::new(0, Box::new(|pg| pg.seed as usize % 3), &[]);
        let pg = |seed| PgId { pool: PoolId(1), seed };
        p.follow(&map(2), &map(4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s).into())), [0, 1, 0, 1]);
        p.follow(&map(4), &map(8));
        assert_eq!([4, 5, 6, 7].map(|s| p.of(pg(s).into())), [0, 1, 0, 1]);
        assert_eq!(p.of(PgId { pool: PoolId(2), seed: 2 }.into()), 2);
    }

    #[test]
    fn a_map_moves_no_copy_that_had_seen_it_before_the_start() {
        let pg = |seed| PgId { pool: PoolId(1), seed };
        let named = || -> Box<dyn Fn(PgId) -> usize> { Box::new(|pg| pg.seed as usize % 2) };
        // Map 5 split both off on reactor 0; one of them has moved since.
        let found = [(2, 0, 9), (3, 1, 9), (0, 0, 9)].map(|(s, reactor, e)| Found {
            spg: pg(s).into(),
            reactor,
            epoch: Epoch(e),
        });
        let mut p = Places::new(0, named(), &found);
        p.follow(&map_at(4, 1), &map_at(5, 4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s).into())), [0, 0, 0, 1]);
        // A PG split off under its name later is with its parent.
        p.follow(&map_at(9, 4), &map_at(10, 1));
        p.follow(&map_at(10, 1), &map_at(11, 4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s).into())), [0, 0, 0, 0]);
        assert_eq!(p.of_leaver(pg(3).into(), Epoch(10)), 1, "while the merged PG leaves, its place stays");
        p.follow(&map_at(11, 4), &map_at(12, 1));
        assert_eq!(
            [10, 12].map(|e| p.of_leaver(pg(3).into(), Epoch(e))),
            [1, 0],
            "and another one of its name where that was"
        );
        assert_eq!(p.epoch(), Epoch(12));
    }

    #[test]
    fn each_shard_stays_where_it_was_found_with_its_split_children() {
        let spg = |seed, shard| SpgId { pg: PgId { pool: PoolId(1), seed }, shard: ShardId(shard) };
        let named = || -> Box<dyn Fn(PgId) -> usize> { Box::new(|pg| pg.seed as usize % 3) };
        let found = [(1, 2, 1, 9), (1, 3, 0, 9), (5, 4, 2, 20)];
        let found = found.map(|(seed, s, reactor, e)| Found { spg: spg(seed, s), reactor, epoch: Epoch(e) });
        let mut p = Places::new(0, named(), &found);
        assert_eq!([2, 3, 4].map(|s| p.of(spg(1, s))), [1, 0, 1], "one that is to be made goes by the name");
        // Each shard is split in place; a copy that has already seen the split stays where it was found.
        p.follow(&map_at(9, 4), &map_at(10, 8));
        assert_eq!([2, 3, 4, 5].map(|s| p.of(spg(5, s))), [1, 0, 2, 1]);
        assert_eq!([0, 2].map(|s| p.of(spg(6, s))), [2, 2], "as the parent's name says");
        p.follow(&map_at(20, 8), &map_at(21, 4));
        assert_eq!([2, 3, 4, 5].map(|s| p.of_leaver(spg(5, s), Epoch(21))), [1, 0, 2, 1]);
        // Split off again, so the earlier places of that name are void.
        p.follow(&map_at(21, 4), &map_at(22, 8));
        assert_eq!([2, 3, 4, 5].map(|s| p.of(spg(5, s))), [1, 0, 1, 1]);
        assert_eq!(p.of_leaver(spg(5, 4), Epoch(21)), 2, "it is still where it was");
        let mut gone = map_at(23, 8);
        Arc::make_mut(&mut gone.pools).remove(&PoolId(1));
        p.follow(&map_at(22, 8), &gone);
        assert_eq!((p.shards.len(), p.left.len(), p.of(spg(1, 3))), (0, 0, 1));
    }
}
