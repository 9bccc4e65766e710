//! The balancer: evens out the PGs and bytes of OSDs by upmap items, and reads by chosen primaries (Ceph's module
//! `balancer`, modes `upmap`, `read` and `upmap-read`).
//!
//! [`Gather`] places the PGs some at a time and makes a [`Spread`]: which OSD holds which PG shards of each pool, and
//! how many it should hold (`target`). `moves` chooses PG shards to move, `items` turns a changed set of OSDs into
//! upmap items, `reads` chooses primaries, [`score`] judges a spread, and `growth` keeps PGs where they are when OSDs
//! join. `options` has the balancer's options and state. All of it is pure; `mon::core::pool::balance` runs it in
//! steps, and `mon::state::balance` changes the map.
//!
//! Invariants:
//!  1. A set that a move makes is one that the pool's rule could have made: its OSDs are among those that the rule
//!     takes, have weight, and lie in different failure domains.
//!  2. No move goes to an OSD that is down, out or closed to more data.
//!  3. Every move makes the spread more even; none is undone by a later one of the same plan.
//!
//! Tests: `src/balance/tests.rs` (1, 3, `sixty_osds_with_four_pools_end_even_in_pgs_and_bytes`; 2,
//! `closed_and_down_osds_get_nothing`).

mod growth;
mod items;
mod moves;
mod options;
mod reads;
#[cfg(test)]
mod recorded;
mod score;
mod target;
#[cfg(test)]
pub(crate) mod tests;

pub use growth::{Facts as GrowthFacts, Growth, StoredGrowth, joins};
pub use items::items_between;
pub use moves::{Limits, Move, Plan};
pub use options::{Balancer, BalancerChange, BalancerOptions, CREATED, NOTHING, NOTHING_TO_READ, NamedPlan};
pub use reads::{Lead, ReadScore, ReadScores};
pub use score::{Figures, Metric, RootScore, Score, score, shard_share};

use base::{Epoch, OsdId, PgId, PoolId};
use cluster::osdmap::{OsdSet, RuleOsds};
use cluster::{OsdMap, PgPool};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use target::Group;

/// The placement of a pool's PGs.
#[derive(Clone, Debug)]
pub struct PoolSpread {
    /// The OSDs of each PG after upmaps, down ones included, by seed.
    sets: Vec<OsdSet>,
    /// The PGs of which each OSD has a shard, by seed.
    held: BTreeMap<OsdId, BTreeSet<u32>>,
    /// The OSD that leads each PG but for temporary sets, by seed.
    led: Vec<OsdId>,
    /// True for an erasure-coded pool.
    coded: bool,
    /// The number of PG shards that each OSD should have.
    target: BTreeMap<OsdId, f64>,
    /// The OSDs of each of the rule's `take` steps.
    groups: Vec<Group>,
    rule: u8,
    size: u8,
    /// Mean number of bytes of a PG shard; 0 if it is not known.
    bytes: f64,
}

impl PoolSpread {
    fn new(p: &PgPool) -> Self {
        Self {
            sets: Vec::new(),
            held: BTreeMap::new(),
            led: Vec::new(),
            coded: p.is_erasure(),
            target: BTreeMap::new(),
            groups: Vec::new(),
            rule: p.crush_rule,
            size: p.size,
            bytes: 0.0,
        }
    }

    /// The number of PG shards that an OSD has.
    #[must_use]
    pub fn count(&self, o: OsdId) -> usize {
        self.held.get(&o).map_or(0, BTreeSet::len)
    }

    /// The number of PG shards that an OSD has too many; negative for too few.
    #[must_use]
    pub fn deviation(&self, o: OsdId) -> f64 {
        self.count(o) as f64 - self.target.get(&o).copied().unwrap_or(0.0)
    }

    /// The OSDs that the pool's rule chooses, with the number of PG shards that each should have.
    pub fn targets(&self) -> impl Iterator<Item = (OsdId, f64)> + '_ {
        self.target.iter().map(|(o, t)| (*o, *t))
    }

    /// The OSDs of a PG.
    #[must_use]
    pub fn set(&self, seed: u32) -> &[OsdId] {
        self.sets.get(seed as usize).map_or(&[], |s| s.as_slice())
    }

    fn put(&mut self, seed: u32, set: OsdSet, lead: OsdId) {
        self.led.push(lead);
        for o in set.iter().filter(|o| **o != OsdId::NONE) {
            self.held.entry(*o).or_default().insert(seed);
        }
        self.sets.push(set);
    }

    /// True if the two OSDs are chosen by the same `take` step.
    fn are_of_one_group(&self, a: OsdId, b: OsdId) -> bool {
        self.groups.iter().any(|g| g.has(a) && g.has(b))
    }

    /// Replaces an OSD of a PG.
    fn replace(&mut self, seed: u32, from: OsdId, to: OsdId) {
        if let Some(o) = self.sets.get_mut(seed as usize).and_then(|s| s.iter_mut().find(|o| **o == from)) {
            *o = to;
        }
        if let Some(s) = self.held.get_mut(&from) {
            s.remove(&seed);
        }
        self.held.entry(to).or_default().insert(seed);
    }
}

/// The placement of all PGs.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// The epoch of the map with which gathering began.
    pub epoch: Epoch,
    /// The pools.
    pub pools: BTreeMap<PoolId, PoolSpread>,
}

impl Spread {
    /// The placement under a map, gathered at once. `bytes` gives a pool's mean number of bytes of a PG shard.
    #[must_use]
    pub fn of(map: &OsdMap, bytes: impl Fn(PoolId, &PgPool) -> f64) -> Self {
        let mut g = Gather::default();
        g.step(map, usize::MAX);
        g.finish(map, bytes)
    }
}

/// The gathering of a [`Spread`], in steps of bounded work.
#[derive(Debug, Default)]
pub struct Gather {
    spread: Spread,
    /// The pool under way.
    pool: Option<PoolId>,
}

impl Gather {
    /// Number of PGs placed so far.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.spread.pools.values().map(|p| p.sets.len()).sum()
    }

    /// Places up to `n` more PGs. Returns true once all are placed.
    ///
    /// The map may change between steps. A pool that then has other numbers is left out by [`Gather::finish`], and a
    /// PG that has moved is noticed when its move is made.
    pub fn step(&mut self, map: &OsdMap, n: usize) -> bool {
        if self.pool.is_none() && self.spread.pools.is_empty() {
            self.spread.epoch = map.epoch;
        }
        let mut left = n;
        while left > 0 {
            let id = match self.pool {
                Some(id) => id,
                None => {
                    let after =
                        self.spread.pools.last_key_value().map_or(Bound::Unbounded, |(id, _)| Bound::Excluded(*id));
                    let Some((id, p)) = map.pools.range((after, Bound::Unbounded)).next() else { return true };
                    self.spread.pools.insert(*id, PoolSpread::new(p));
                    self.pool = Some(*id);
                    *id
                }
            };
            let (Some(s), Some(p)) = (self.spread.pools.get_mut(&id), map.pool(id)) else {
                // The pool was removed meanwhile; its entry stays as the cursor, and `finish` leaves it out.
                self.pool = None;
                continue;
            };
            let at = s.sets.len() as u32;
            let end = p.pg_num.min(at.saturating_add(u32::try_from(left).unwrap_or(u32::MAX)));
            for seed in at..end {
                let pg = PgId { pool: id, seed };
                let set = map.pg_to_raw_upmap(pg);
                // Only affinity makes another OSD than the first one lead.
                let lead = match &map.primary_affinity {
                    Some(_) if !s.coded => map.pg_to_up(pg).1,
                    _ => set.iter().copied().find(|o| map.is_up(*o)).unwrap_or(OsdId::NONE),
                };
                s.put(seed, set, lead);
            }
            left = left.saturating_sub((end.saturating_sub(at)).max(1) as usize);
            if end >= p.pg_num {
                self.pool = None;
            }
        }
        false
    }

    /// The spread with its targets. `bytes` gives a pool's mean number of bytes of a PG shard, 0 if it is not known.
    #[must_use]
    pub fn finish(self, map: &OsdMap, bytes: impl Fn(PoolId, &PgPool) -> f64) -> Spread {
        let mut spread = self.spread;
        let mut rules = RuleOsds::default();
        spread.pools.retain(|id, s| {
            let Some(p) = map.pool(*id) else { return false };
            if (s.sets.len(), s.rule, s.size) != (p.pg_num as usize, p.crush_rule, p.size) {
                return false;
            }
            rules.learn(&map.crush, p.crush_rule);
            (s.groups, s.target) = target::targets(map, p, &rules, &s.held);
            s.bytes = bytes(*id, p).max(0.0);
            true
        });
        spread
    }
}
