//! On which reactor a PG is.
//!
//! A PG's name says which one, so that everybody knows without asking. Only a PG that was split off another one is where that
//! is, until it has moved ([`super::moves`]). Every reactor keeps the same table of such PGs, made from the maps and from the
//! decisions about moves, which come through the same queue, so that a message finds its way whichever of them it comes to:
//! other OSDs and clients go by the name.
//!
//! Invariant: at one place in the row of maps and decisions the tables of all reactors are equal.

use base::PgId;
use cluster::OsdMap;
use cluster::pool::{pg_mask, stable_mod};
use rustc_hash::FxHashMap;

/// See the module.
pub struct Places {
    /// This reactor.
    index: usize,
    named: Box<dyn Fn(PgId) -> usize>,
    /// PGs that are elsewhere than their names say, and those found at the start.
    known: FxHashMap<PgId, usize>,
}

impl Places {
    /// For reactor `index`; `named` tells a PG's reactor by its name, `found` lists the collections of all stores.
    #[must_use]
    pub fn new(
        index: usize,
        named: Box<dyn Fn(PgId) -> usize>,
        found: impl IntoIterator<Item = (PgId, usize)>,
    ) -> Self {
        Self { index, named, known: found.into_iter().collect() }
    }

    /// All PGs are here.
    #[must_use]
    pub fn all_here() -> Self {
        Self::new(0, Box::new(|_| 0), [])
    }

    /// This reactor.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
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

    /// True if it is this reactor's.
    #[must_use]
    pub fn is_here(&self, pg: PgId) -> bool {
        self.of(pg) == self.index
    }

    /// As [`Places::follow`] of a stored map at the start, when the split may be long done.
    pub fn replay(&mut self, before: &OsdMap, next: &OsdMap) {
        self.step(before, next, true);
    }

    /// A map follows: what is split off stays where it was.
    pub fn follow(&mut self, before: &OsdMap, next: &OsdMap) {
        self.step(before, next, false);
    }

    fn step(&mut self, before: &OsdMap, next: &OsdMap, keep: bool) {
        for (id, p) in next.pools.iter() {
            let Some(old) = before.pool(*id).map(|p| p.pg_num).filter(|n| *n < p.pg_num) else { continue };
            for seed in old..p.pg_num {
                let pg = PgId { pool: *id, seed };
                let at = self.of(PgId { seed: stable_mod(seed, old, pg_mask(old)), ..pg });
                if at != self.of(pg) && !(keep && self.known.contains_key(&pg)) {
                    self.known.insert(pg, at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PoolId;
    use cluster::PgPool;
    use std::sync::Arc;

    fn map(pg_num: u32) -> OsdMap {
        let mut m = OsdMap::default();
        Arc::make_mut(&mut m.pools).insert(PoolId(1), PgPool { pg_num, pgp_num: pg_num, ..PgPool::default() }.into());
        m
    }

    #[test]
    fn what_is_split_off_stays_and_what_is_new_goes_by_its_name() {
        let mut p = Places::new(0, Box::new(|pg| pg.seed as usize % 3), []);
        let pg = |seed| PgId { pool: PoolId(1), seed };
        p.follow(&map(2), &map(4));
        assert_eq!([0, 1, 2, 3].map(|s| p.of(pg(s))), [0, 1, 0, 1]);
        p.follow(&map(4), &map(8));
        assert_eq!([4, 5, 6, 7].map(|s| p.of(pg(s))), [0, 1, 0, 1]);
        assert_eq!(p.of(PgId { pool: PoolId(2), seed: 2 }), 2);
    }
}
