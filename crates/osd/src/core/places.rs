//! On which reactor a PG is.
//!
//! A PG's name says which one, so that everybody knows without asking. Only a PG that was split off another one is where that
//! is, until it has moved ([`super::moves`]). Every reactor keeps the same table of such PGs, made from the maps and from the
//! decisions about moves, which come through the same queue, so that a message finds its way whichever of them it comes to:
//! other OSDs and clients go by the name.
//!
//! A PG that is joined to another one, and leaves, is where it was when that was said, whatever is split off under its name later.
//!
//! Of an erasure-coded PG several shards may be on this OSD for a time. One that was split off is in its parent's shard of the store, one
//! that was made later in that of the PG's name: at a start with another number of reactors they may be on different ones. So
//! what was found is known by shard, and so is what is split off it.
//!
//! What the stores had at the start may be newer than the maps that were stored: a map is written down by one reactor, and what the
//! others do by it may be durable before. A map that a collection has seen says nothing of where it is.
//!
//! Invariant: at one place in the row of maps and decisions the tables of all reactors are equal.

use base::{Epoch, PgId, ShardId, SpgId};
use cluster::OsdMap;
use cluster::pool::{pg_mask, stable_mod};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Times that a PG of one name is joined to another one, of which it is known where it was: more of them are never under way.
const LEFT_MAX: usize = 16;

/// A copy of a PG that the stores had at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which one.
    pub spg: SpgId,
    /// Where.
    pub reactor: usize,
    /// The newest map that it has seen.
    pub epoch: Epoch,
}

/// See the module.
pub struct Places {
    /// This reactor.
    index: usize,
    named: Box<dyn Fn(PgId) -> usize>,
    /// PGs that are elsewhere than their names say, and those found at the start.
    known: FxHashMap<PgId, usize>,
    /// Shards that were found at the start, and what was split off them; others are where their PG is.
    shards: BTreeMap<SpgId, usize>,
    /// Newest maps of those found, as long as there may be older ones to come.
    found: FxHashMap<SpgId, Epoch>,
    /// Where PGs were that were joined to others, by the map that said so; shards that are elsewhere by themselves.
    left: BTreeMap<(SpgId, Epoch), usize>,
    /// The newest map.
    epoch: Epoch,
}

/// Names of a PG's shards.
fn shards_of(pg: PgId) -> RangeInclusive<SpgId> {
    SpgId { pg, shard: ShardId(0) }..=SpgId { pg, shard: ShardId(i8::MAX) }
}

impl Places {
    /// For reactor `index`; `named` tells a PG's reactor by its name, `found` lists the PGs of all stores.
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

    /// All PGs are here.
    #[must_use]
    pub fn all_here() -> Self {
        Self::new(0, Box::new(|_| 0), &[])
    }

    /// This reactor.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The newest map that was followed.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The reactor where a PG should be.
    #[must_use]
    pub fn named(&self, pg: PgId) -> usize {
        (self.named)(pg)
    }

    /// A PG moved.
    pub fn set(&mut self, pg: PgId, at: usize) {
        if at == self.named(pg) {
            self.known.remove(&pg);
        } else {
            self.known.insert(pg, at);
        }
    }

    /// The reactor of a copy, or of the one to be made; of a whole PG if it names no shard.
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

    /// The reactor of a copy of a PG that was joined to another one by a map.
    #[must_use]
    pub fn of_leaver(&self, spg: SpgId, epoch: Epoch) -> usize {
        let left = |spg: SpgId| self.left.get(&(spg, epoch)).copied();
        left(spg).or_else(|| left(spg.pg.into())).unwrap_or_else(|| self.of(spg))
    }

    /// True if it is this reactor's.
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

    /// What a PG is split into has nothing here that is newer than the map before.
    fn is_older(&self, spg: SpgId, before: Epoch) -> bool {
        self.found.get(&spg).is_none_or(|seen| *seen <= before)
    }

    /// A PG is split off another one: it is where that is, each shard by itself.
    fn split(&mut self, parent: PgId, child: PgId, before: Epoch) {
        if self.is_older(child.into(), before) {
            self.set(child, self.of_pg(parent));
        }
        if self.shards.is_empty() {
            return;
        }
        // What another one of its name had.
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

    /// A map follows: what is split off stays where it was.
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
    fn what_is_split_off_stays_and_what_is_new_goes_by_its_name() {
        let mut p = Places::new(0, Box::new(|pg| pg.seed as usize % 3), &[]);
        let pg = |seed| PgId { pool: PoolId(1), seed };
        p.follow(&map(2), &map(4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s).into())), [0, 1, 0, 1]);
        p.follow(&map(4), &map(8));
        assert_eq!([4, 5, 6, 7].map(|s| p.of(pg(s).into())), [0, 1, 0, 1]);
        assert_eq!(p.of(PgId { pool: PoolId(2), seed: 2 }.into()), 2);
    }

    #[test]
    fn a_map_says_nothing_of_what_had_seen_it_before_the_start() {
        let pg = |seed| PgId { pool: PoolId(1), seed };
        let named = || -> Box<dyn Fn(PgId) -> usize> { Box::new(|pg| pg.seed as usize % 2) };
        // Both were split off on reactor 0 by map 5; one of them had moved since.
        let found = [(2, 0, 9), (3, 1, 9), (0, 0, 9)].map(|(s, reactor, e)| Found {
            spg: pg(s).into(),
            reactor,
            epoch: Epoch(e),
        });
        let mut p = Places::new(0, named(), &found);
        p.follow(&map_at(4, 1), &map_at(5, 4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s).into())), [0, 0, 0, 1]);
        // What is split off under its name later is where its parent is.
        p.follow(&map_at(9, 4), &map_at(10, 1));
        p.follow(&map_at(10, 1), &map_at(11, 4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s).into())), [0, 0, 0, 0]);
        assert_eq!(p.of_leaver(pg(3).into(), Epoch(10)), 1, "as long as what was joined leaves, it is where it was");
        p.follow(&map_at(11, 4), &map_at(12, 1));
        assert_eq!(
            [10, 12].map(|e| p.of_leaver(pg(3).into(), Epoch(e))),
            [1, 0],
            "and another one of its name where that was"
        );
        assert_eq!(p.epoch(), Epoch(12));
    }

    #[test]
    fn shards_of_one_pg_are_each_where_they_were_found_and_so_is_what_is_split_off_them() {
        let spg = |seed, shard| SpgId { pg: PgId { pool: PoolId(1), seed }, shard: ShardId(shard) };
        let named = || -> Box<dyn Fn(PgId) -> usize> { Box::new(|pg| pg.seed as usize % 3) };
        let found = [(1, 2, 1, 9), (1, 3, 0, 9), (5, 4, 2, 20)];
        let found = found.map(|(seed, s, reactor, e)| Found { spg: spg(seed, s), reactor, epoch: Epoch(e) });
        let mut p = Places::new(0, named(), &found);
        assert_eq!([2, 3, 4].map(|s| p.of(spg(1, s))), [1, 0, 1], "one that is to be made goes by the name");
        // Each shard splits where it is, and what had seen that is where it was found.
        p.follow(&map_at(9, 4), &map_at(10, 8));
        assert_eq!([2, 3, 4, 5].map(|s| p.of(spg(5, s))), [1, 0, 2, 1]);
        assert_eq!([0, 2].map(|s| p.of(spg(6, s))), [2, 2], "as the parent's name says");
        p.follow(&map_at(20, 8), &map_at(21, 4));
        assert_eq!([2, 3, 4, 5].map(|s| p.of_leaver(spg(5, s), Epoch(21))), [1, 0, 2, 1]);
        // Split off again: nothing of what had the name before.
        p.follow(&map_at(21, 4), &map_at(22, 8));
        assert_eq!([2, 3, 4, 5].map(|s| p.of(spg(5, s))), [1, 0, 1, 1]);
        assert_eq!(p.of_leaver(spg(5, 4), Epoch(21)), 2, "it is still where it was");
        let mut gone = map_at(23, 8);
        Arc::make_mut(&mut gone.pools).remove(&PoolId(1));
        p.follow(&map_at(22, 8), &gone);
        assert_eq!((p.shards.len(), p.left.len(), p.of(spg(1, 3))), (0, 0, 1));
    }
}
