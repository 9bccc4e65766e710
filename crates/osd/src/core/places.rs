//! On which reactor a PG is.
//!
//! A PG's name says which one, so that everybody knows without asking. Only a PG that was split off another one is where that
//! is, until it has moved ([`super::moves`]). Every reactor keeps the same table of such PGs, made from the maps and from the
//! decisions about moves, which come through the same queue, so that a message finds its way whichever of them it comes to:
//! other OSDs and clients go by the name.
//!
//! A PG that is joined to another one, and leaves, is where it was when that was said, whatever is split off under its name later.
//!
//! What the stores had at the start may be newer than the maps that were stored: a map is written down by one reactor, and what the
//! others do by it may be durable before. A map that a collection has seen says nothing of where it is.
//!
//! Invariant: at one place in the row of maps and decisions the tables of all reactors are equal.

use base::{Epoch, PgId};
use cluster::OsdMap;
use cluster::pool::{pg_mask, stable_mod};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Times that a PG of one name is joined to another one, of which it is known where it was: more of them are never under way.
const LEFT_MAX: usize = 16;

/// A PG that the stores had at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which one.
    pub pg: PgId,
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
    /// Newest maps of those found, as long as there may be older ones to come.
    found: FxHashMap<PgId, Epoch>,
    /// Where PGs were that were joined to others, by the map that said so.
    left: BTreeMap<(PgId, Epoch), usize>,
    /// The newest map.
    epoch: Epoch,
}

impl Places {
    /// For reactor `index`; `named` tells a PG's reactor by its name, `found` lists the PGs of all stores.
    #[must_use]
    pub fn new(index: usize, named: Box<dyn Fn(PgId) -> usize>, found: &[Found]) -> Self {
        Self {
            index,
            named,
            known: found.iter().map(|f| (f.pg, f.reactor)).collect(),
            found: found.iter().map(|f| (f.pg, f.epoch)).collect(),
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

    /// The reactor of a PG.
    #[must_use]
    pub fn of(&self, pg: PgId) -> usize {
        if self.known.is_empty() {
            return (self.named)(pg);
        }
        self.known.get(&pg).copied().unwrap_or_else(|| (self.named)(pg))
    }

    /// The reactor of a PG that was joined to another one by a map.
    #[must_use]
    pub fn of_leaver(&self, pg: PgId, epoch: Epoch) -> usize {
        self.left.get(&(pg, epoch)).copied().unwrap_or_else(|| self.of(pg))
    }

    /// True if it is this reactor's.
    #[must_use]
    pub fn is_here(&self, pg: PgId) -> bool {
        self.of(pg) == self.index
    }

    /// A map follows: what is split off stays where it was.
    pub fn follow(&mut self, before: &OsdMap, next: &OsdMap) {
        for (id, p) in next.pools.iter() {
            let Some(old) = before.pool(*id).map(|p| p.pg_num).filter(|n| *n != p.pg_num) else { continue };
            for seed in p.pg_num..old {
                let pg = PgId { pool: *id, seed };
                self.left.insert((pg, next.epoch), self.of(pg));
                let of_it = || self.left.range((pg, Epoch(0))..=(pg, next.epoch));
                if of_it().count() > LEFT_MAX
                    && let Some((oldest, _)) = of_it().next()
                {
                    let oldest = *oldest;
                    self.left.remove(&oldest);
                }
            }
            for seed in old..p.pg_num {
                let pg = PgId { pool: *id, seed };
                if self.found.get(&pg).is_none_or(|seen| *seen <= before.epoch) {
                    let at = self.of(PgId { seed: stable_mod(seed, old, pg_mask(old)), ..pg });
                    self.set(pg, at);
                }
            }
        }
        if next.pools.len() < before.pools.len() {
            self.known.retain(|pg, _| next.pool(pg.pool).is_some());
            self.left.retain(|(pg, _), _| next.pool(pg.pool).is_some());
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
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s))), [0, 1, 0, 1]);
        p.follow(&map(4), &map(8));
        assert_eq!([4, 5, 6, 7].map(|s| p.of(pg(s))), [0, 1, 0, 1]);
        assert_eq!(p.of(PgId { pool: PoolId(2), seed: 2 }), 2);
    }

    #[test]
    fn a_map_says_nothing_of_what_had_seen_it_before_the_start() {
        let pg = |seed| PgId { pool: PoolId(1), seed };
        let named = || -> Box<dyn Fn(PgId) -> usize> { Box::new(|pg| pg.seed as usize % 2) };
        // Both were split off on reactor 0 by map 5; one of them had moved since.
        let found =
            [(2, 0, 9), (3, 1, 9), (0, 0, 9)].map(|(s, reactor, e)| Found { pg: pg(s), reactor, epoch: Epoch(e) });
        let mut p = Places::new(0, named(), &found);
        p.follow(&map_at(4, 1), &map_at(5, 4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s))), [0, 0, 0, 1]);
        // What is split off under its name later is where its parent is.
        p.follow(&map_at(9, 4), &map_at(10, 1));
        p.follow(&map_at(10, 1), &map_at(11, 4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s))), [0, 0, 0, 0]);
        assert_eq!(p.of_leaver(pg(3), Epoch(10)), 1, "as long as what was joined leaves, it is where it was");
        p.follow(&map_at(11, 4), &map_at(12, 1));
        assert_eq!(
            [10, 12].map(|e| p.of_leaver(pg(3), Epoch(e))),
            [1, 0],
            "and another one of its name where that was"
        );
        assert_eq!(p.epoch(), Epoch(12));
    }
}
