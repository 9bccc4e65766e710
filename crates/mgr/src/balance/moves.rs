//! The choice of PG shards to move.
//!
//! First each pool's counts: shards go from OSDs above their target to OSDs below it, while one of both is off by more
//! than [`Limits::deviation`]. Then bytes: what is left by counts of several pools adds up on some OSDs, and shards of
//! pools that still allow it go from the fullest OSDs to others. Of the PGs that could move, those come first that an
//! item has moved to the OSD before: the map then gets no larger.

use super::{Lead, PoolSpread, Spread, items_between};
use base::{OsdId, PgId, PoolId};
use cluster::OsdMap;
use cluster::osdmap::RuleOsds;
use std::collections::{BTreeMap, BTreeSet};

/// The share of its mean by which an OSD may have more bytes than it should.
const BYTES_OVER: f64 = 0.01;

/// The part of a PG shard by which an OSD may be farther off than [`Limits::deviation`]. Shares are no whole numbers, and
/// the moves that would be needed for this part make no OSD notably less full (`balance/recorded.rs`).
const TOLERANCE: f64 = 0.1;

/// Pairs of OSDs that are passed over for the cost of one that is examined.
const PASSED_A_TRY: usize = 32;

/// The upmap items of a PG.
type Items = Vec<(OsdId, OsdId)>;

/// An OSD of a pool, and buckets of the types that the pool's rule chooses.
type Hopeless = (PoolId, OsdId, Vec<Option<i32>>);

/// The bounds of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The number of PG shards by which an OSD may be off its target (`upmap_max_deviation`), within a tenth of one.
    pub deviation: f64,
    /// Most moves (`upmap_max_optimizations`).
    pub moves: usize,
    /// Most pairs of OSDs and sets of PGs that are examined; each takes up to 30 microseconds.
    pub tries: usize,
}

/// The move of a PG shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The PG.
    pub pg: PgId,
    /// The OSD that gives it away.
    pub from: OsdId,
    /// The OSD that takes it.
    pub to: OsdId,
}

/// Moves that make a spread more even.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The moves in the order of their choice.
    pub moves: Vec<Move>,
    /// The upmap items of the PGs that move, as they are before; empty for none.
    pub before: BTreeMap<PgId, Items>,
    /// The upmap items of the PGs that move; empty for none.
    pub items: BTreeMap<PgId, Items>,
    /// The primaries that change, without a move of data.
    pub leads: BTreeMap<PgId, Lead>,
    pub(super) tries: usize,
    pub(super) cut: bool,
}

impl Plan {
    /// True if the plan ended with its tries, so that there may be more moves.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}

impl Spread {
    /// Chooses moves among `pools` and carries them out in this spread. `closed` names OSDs that shall take no more
    /// data.
    pub fn plan(
        &mut self,
        map: &OsdMap,
        pools: &BTreeSet<PoolId>,
        limits: Limits,
        closed: &dyn Fn(OsdId) -> bool,
    ) -> Plan {
        let limits = Limits { deviation: limits.deviation + TOLERANCE, ..limits };
        let mut c = Chooser {
            map,
            limits,
            closed,
            rules: RuleOsds::default(),
            hopeless: BTreeSet::new(),
            passed: 0,
            until: 0,
            plan: Plan::default(),
        };
        let mut order: Vec<PoolId> = pools.iter().copied().filter(|id| self.pools.contains_key(id)).collect();
        // Pools with the most bytes first: their moves matter most, should the limit end the plan.
        let bytes = |s: &Self, id: &PoolId| s.pools.get(id).map_or(0.0, |p| p.bytes * p.sets.len() as f64);
        order.sort_by(|a, b| bytes(self, b).total_cmp(&bytes(self, a)));
        for (i, id) in order.iter().enumerate() {
            // A pool that finds nothing leaves the others their share.
            c.until = c.plan.tries + limits.tries.saturating_sub(c.plan.tries) / (order.len() - i + 1);
            c.even_counts(self, *id);
        }
        c.until = limits.tries;
        c.even_bytes(self, &order);
        c.plan
    }

    /// Bytes on each OSD by the mean sizes of PG shards, and the bytes that it should have.
    pub(super) fn bytes(&self) -> BTreeMap<OsdId, (f64, f64)> {
        let mut all: BTreeMap<OsdId, (f64, f64)> = BTreeMap::new();
        for p in self.pools.values().filter(|p| p.bytes > 0.0) {
            for (o, t) in &p.target {
                let e = all.entry(*o).or_default();
                e.0 += p.count(*o) as f64 * p.bytes;
                e.1 += t * p.bytes;
            }
        }
        all.retain(|_, (_, t)| *t > 0.0);
        all
    }
}

struct Chooser<'a> {
    map: &'a OsdMap,
    limits: Limits,
    closed: &'a dyn Fn(OsdId) -> bool,
    rules: RuleOsds,
    /// OSDs of which no PG can move to an OSD of the buckets named. That stays so: a PG that moves is planned.
    hopeless: BTreeSet<Hopeless>,
    /// Pairs of OSDs that were passed over since the last try that they cost.
    passed: usize,
    /// The tries with which the present part of the plan ends.
    until: usize,
    plan: Plan,
}

/// A reason why a shard cannot move to an OSD.
enum Refusal {
    /// The refusal holds for all OSDs below the same buckets.
    Domain,
    /// The refusal concerns this OSD only.
    Osd,
}

impl Chooser<'_> {
    fn is_over(&mut self) -> bool {
        let is_spent = self.plan.tries >= self.until;
        self.plan.cut |= is_spent;
        is_spent || self.plan.moves.len() >= self.limits.moves
    }

    /// The buckets above an OSD of the types that the pool's rule chooses.
    fn domains(&self, p: &PoolSpread, o: OsdId) -> Vec<Option<i32>> {
        let steps = self.map.crush.rule(p.rule.into()).map_or(&[][..], |r| &r.steps);
        steps.iter().filter(|s| s.arg2 > 0).map(|s| self.rules.above(o, s.arg2)).collect()
    }

    fn takes_data(&self, o: OsdId) -> bool {
        self.map.is_up(o) && self.map.is_in(o) && !(self.closed)(o)
    }

    /// Evens out the number of PG shards of one pool.
    fn even_counts(&mut self, spread: &mut Spread, id: PoolId) {
        let Some(p) = spread.pools.get_mut(&id) else { return };
        self.rules.learn(&self.map.crush, p.rule);
        while !self.is_over() {
            let mut by: Vec<(f64, OsdId)> = p.target.keys().map(|o| (p.deviation(*o), *o)).collect();
            by.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            if !self.move_one(p, id, &by) {
                break;
            }
        }
    }

    /// Makes the best move of a pool whose OSDs are given by their deviation, the fullest first. False: there is none.
    fn move_one(&mut self, p: &mut PoolSpread, id: PoolId, by: &[(f64, OsdId)]) -> bool {
        let most = self.limits.deviation;
        for (over, from) in by.iter().take_while(|(d, _)| *d > 0.0) {
            for (under, to) in by.iter().rev().take_while(|(d, _)| *d < *over) {
                if self.is_over() {
                    return false;
                }
                if self.is_hopeless(p, id, *from, *to) {
                    continue;
                }
                self.plan.tries += 1;
                let counts = *over > most || *under < -most;
                if !counts || over - under <= 1.0 || !self.takes_data(*to) {
                    continue;
                }
                // A move from above the bound to a target that is met already only shifts the excess.
                if *under > 0.0 && under + 1.0 > most {
                    break;
                }
                if self.move_between(p, id, *from, *to) {
                    return true;
                }
            }
        }
        false
    }

    /// True if it is known that no shard can move from one OSD to another.
    fn is_hopeless(&mut self, p: &PoolSpread, id: PoolId, from: OsdId, to: OsdId) -> bool {
        let is = self.hopeless.contains(&(id, from, self.domains(p, to)));
        if is {
            self.passed += 1;
            self.plan.tries += self.passed / PASSED_A_TRY;
            self.passed %= PASSED_A_TRY;
        }
        is
    }

    /// Moves some PG shard from one OSD to another, if a set allows it.
    fn move_between(&mut self, p: &mut PoolSpread, id: PoolId, from: OsdId, to: OsdId) -> bool {
        if !p.are_of_one_group(from, to) || !self.rules.chooses(p.rule, to) {
            return false;
        }
        let mut hopeless = true;
        let mut best: Option<(usize, u32, Items)> = None;
        let seeds: Vec<u32> = p.held.get(&from).into_iter().flatten().copied().collect();
        for seed in seeds {
            let pg = PgId { pool: id, seed };
            let few = self.items_of(pg).len();
            // Only a PG that has items can get fewer.
            let least = if few == 0 { 2 } else { 0 };
            if self.plan.tries >= self.until {
                hopeless = false;
                break;
            }
            if best.as_ref().is_some_and(|b| b.0 <= least) {
                continue;
            }
            match self.items_after(p, pg, from, to) {
                Ok(items) if best.as_ref().is_none_or(|b| growth(items.len(), few) < b.0) => {
                    best = Some((growth(items.len(), few), seed, items));
                }
                Ok(_) | Err(Refusal::Domain) => {}
                Err(Refusal::Osd) => hopeless = false,
            }
            if best.as_ref().is_some_and(|b| b.0 == 0) {
                break;
            }
        }
        let Some((_, seed, items)) = best else {
            if hopeless {
                self.hopeless.insert((id, from, self.domains(p, to)));
            }
            return false;
        };
        let pg = PgId { pool: id, seed };
        p.replace(seed, from, to);
        let before = self.map.pg_upmap_items.get(&pg).cloned().unwrap_or_default();
        self.plan.before.entry(pg).or_insert(before);
        self.plan.items.insert(pg, items);
        self.plan.moves.push(Move { pg, from, to });
        true
    }

    fn items_of(&self, pg: PgId) -> &[(OsdId, OsdId)] {
        let planned = self.plan.items.get(&pg);
        planned.or_else(|| self.map.pg_upmap_items.get(&pg)).map_or(&[], Vec::as_slice)
    }

    /// The items of a PG after a move, if the move is allowed.
    fn items_after(&mut self, p: &PoolSpread, pg: PgId, from: OsdId, to: OsdId) -> Result<Items, Refusal> {
        let pool = self.map.pool(pg.pool).ok_or(Refusal::Osd)?;
        let set = p.set(pg.seed);
        // Each PG moves once in a plan, and whole sets that an operator wrote stay.
        if self.plan.items.contains_key(&pg)
            || self.map.pg_upmap.contains_key(&pg)
            || self.map.pg_upmap_primaries.get(&pg) == Some(&from)
        {
            return Err(Refusal::Domain);
        }
        if set.contains(&to) {
            return Err(Refusal::Osd);
        }
        self.plan.tries += 1;
        // A chosen primary takes effect after items, and does not change them.
        let unled = match self.map.pg_upmap_primaries.contains_key(&pg) {
            true => self.map.pg_to_raw_upmap_unled(pg),
            false => set.into(),
        };
        let want: Vec<OsdId> = unled.iter().map(|o| if *o == from { to } else { *o }).collect();
        if !self.map.keeps_apart(pool, &want, &self.rules) {
            return Err(Refusal::Domain);
        }
        if self.map.pg_to_raw_upmap(pg).as_slice() != set {
            // The map has changed since the PG was placed.
            return Err(Refusal::Osd);
        }
        items_between(&self.map.pg_to_raw(pg).0, &want).ok_or(Refusal::Osd)
    }

    /// Takes bytes from the fullest OSDs, with moves that keep the counts of the pools.
    fn even_bytes(&mut self, spread: &mut Spread, pools: &[PoolId]) {
        let mut stuck = BTreeSet::new();
        while !self.is_over() {
            let bytes = spread.bytes();
            let over = |o: &OsdId| bytes.get(o).map_or(0.0, |(n, t)| n / t - 1.0);
            let fullest = bytes.keys().filter(|o| !stuck.contains(*o)).max_by(|a, b| over(a).total_cmp(&over(b)));
            let Some(from) = fullest.copied().filter(|o| over(o) > BYTES_OVER) else { break };
            let mut others: Vec<OsdId> = bytes.keys().copied().filter(|o| over(o) < over(&from)).collect();
            others.sort_by(|a, b| over(a).total_cmp(&over(b)));
            if !self.relieve(spread, pools, &bytes, from, &others) {
                stuck.insert(from);
            }
        }
    }

    /// Moves one PG shard away from an OSD with too many bytes. The choice is the move after which the fuller of both is
    /// the least full.
    fn relieve(
        &mut self,
        spread: &mut Spread,
        pools: &[PoolId],
        bytes: &BTreeMap<OsdId, (f64, f64)>,
        from: OsdId,
        others: &[OsdId],
    ) -> bool {
        let of = |o: &OsdId, more: f64| bytes.get(o).map_or(f64::MAX, |(n, t)| (n + more) / t - 1.0);
        let is = of(&from, 0.0);
        let mut all = Vec::new();
        for id in pools {
            let Some(p) = spread.pools.get(id).filter(|p| p.bytes > 0.0) else { continue };
            let bound = self.limits.deviation.max(1.0);
            if p.deviation(from) - 1.0 < -bound {
                continue;
            }
            for to in others.iter().filter(|o| self.takes_data(**o) && p.deviation(**o) + 1.0 <= bound) {
                let after = of(&from, -p.bytes).max(of(to, p.bytes));
                if after < is - 1e-6 {
                    all.push((after, *id, *to));
                }
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (_, id, to) in all {
            let Some(p) = spread.pools.get_mut(&id) else { continue };
            self.rules.learn(&self.map.crush, p.rule);
            if !self.is_hopeless(p, id, from, to) && self.move_between(p, id, from, to) {
                return true;
            }
            if self.is_over() {
                return false;
            }
        }
        false
    }
}

/// The number of items that a move adds to the map, from 0 for one that ends an item.
fn growth(after: usize, before: usize) -> usize {
    (after + 1).saturating_sub(before)
}
