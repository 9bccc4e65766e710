//! The choice of primaries: which OSD of each PG's set leads it and so serves its reads (modes `read`, `upmap-read`).
//!
//! Each OSD of a replicated pool should lead the part of its PGs that its primary affinity gives it among the others.
//! Leads pass from the OSD with the most beyond that, along the shortest chain of PGs, to the one with the most below,
//! while that makes the two more even. So no OSD ends more than one PG off, as far as sets allow, and each change counts.
//! Where the OSD that should lead would lead without an entry, the PG's entry goes.
//!
//! Invariants:
//!  1. A chosen primary is an OSD of the PG's up set that leads the PG with the entry, and would not without it.
//!  2. A plan changes each PG at most once, and no more PGs than it may.
//!  3. PGs of coded pools are left alone.
//!  4. A pool leaves the others their share of the tries.
//!
//! Tests: `src/balance/tests/reads.rs` (1 to 3, `primaries_of_three_pools_end_even`; 1, `affinity_is_kept`; 4,
//! `an_even_pool_leaves_the_others_their_tries`).

use super::{Plan, PoolSpread, Spread};
use base::{OsdId, PgId, PoolId};
use cluster::OsdMap;
use cluster::osdmap::VoidPrimary;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pairs of OSDs, or PGs, that are passed for the cost of one try.
const PASSED_A_TRY: usize = 32;

/// Change of the chosen primary of a PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The entry before; `None` for none.
    pub before: Option<OsdId>,
    /// The entry after; `None` for none.
    pub after: Option<OsdId>,
}

/// The PGs that one OSD leads and another could.
#[derive(Clone, Copy, Debug)]
struct Pair {
    from: OsdId,
    to: OsdId,
    /// The place of the first seed in `Leads::seeds`.
    first: usize,
    len: usize,
    /// The number of those PGs that may still change.
    left: usize,
}

/// The leads of a pool's PGs while a plan is made.
struct Leads<'a> {
    pool: PoolId,
    spread: &'a PoolSpread,
    /// The map with the plan's changes so far.
    work: &'a mut OsdMap,
    /// The leads that each OSD has beyond what it should have.
    over: BTreeMap<OsdId, f64>,
    /// The pairs of OSDs between which leads can pass, in order.
    pairs: Vec<Pair>,
    /// The seeds of all pairs, one pair after the other.
    seeds: Vec<u32>,
    /// PGs that may not change: they have changed, or are not as they were placed.
    done: BTreeSet<u32>,
    tries: usize,
    /// Pairs and PGs that were passed since the last try that they cost.
    passed: usize,
}

impl PoolSpread {
    /// The leads of each OSD, and those that it should have. Empty for coded pools and while no OSD wants to lead.
    #[must_use]
    pub fn leads(&self, map: &OsdMap) -> BTreeMap<OsdId, (f64, f64)> {
        let mut all: BTreeMap<OsdId, (f64, f64)> = BTreeMap::new();
        if self.coded {
            return all;
        }
        let mut led = 0.0;
        for (set, lead) in self.sets.iter().zip(&self.led) {
            for o in set.iter().filter(|o| map.is_up(**o)) {
                all.entry(*o).or_default().1 += f64::from(map.affinity(*o));
            }
            if map.is_up(*lead) {
                all.entry(*lead).or_default().0 += 1.0;
                led += 1.0;
            }
        }
        let sum: f64 = all.values().map(|(_, w)| w).sum();
        if sum <= 0.0 {
            return BTreeMap::new();
        }
        all.values_mut().for_each(|(_, w)| *w *= led / sum);
        all
    }
}

/// The least of the leads that OSDs have beyond what they should have, and the most with its OSD. `None` without OSDs.
fn extremes(over: impl Iterator<Item = (OsdId, f64)>) -> Option<(f64, OsdId, f64)> {
    over.fold(None, |e: Option<(f64, OsdId, f64)>, (o, n)| {
        let (least, at, most) = e.unwrap_or((n, o, n));
        Some(if n > most { (least, o, n) } else { (least.min(n), at, most) })
    })
}

/// True if a lead less and a lead more make the two more even.
fn evens_out(most: f64, least: f64) -> bool {
    most - least > 1.0 + 1e-9
}

impl<'a> Leads<'a> {
    /// The leads of a pool. `None` if they are even already, and pairs need not be looked for.
    fn new(pool: PoolId, spread: &'a PoolSpread, work: &'a mut OsdMap) -> Option<Self> {
        let over: BTreeMap<OsdId, f64> =
            spread.leads(work).into_iter().map(|(o, (has, wants))| (o, has - wants)).collect();
        extremes(over.iter().map(|(o, n)| (*o, *n))).filter(|(least, _, most)| evens_out(*most, *least))?;
        let mut all: Vec<(OsdId, OsdId, u32)> = Vec::new();
        for ((seed, set), lead) in (0u32..).zip(&spread.sets).zip(&spread.led) {
            if !set.contains(lead) || !work.is_up(*lead) {
                continue;
            }
            let others = set.iter().filter(|o| *o != lead && work.is_up(**o) && work.affinity(**o) > 0);
            all.extend(others.map(|o| (*lead, *o, seed)));
        }
        all.sort_unstable();
        let mut pairs: Vec<Pair> = Vec::new();
        for (first, (from, to, _)) in all.iter().enumerate() {
            match pairs.last_mut().filter(|p| (p.from, p.to) == (*from, *to)) {
                Some(p) => (p.len, p.left) = (p.len + 1, p.left + 1),
                None => pairs.push(Pair { from: *from, to: *to, first, len: 1, left: 1 }),
            }
        }
        let seeds = all.into_iter().map(|(.., seed)| seed).collect();
        Some(Self { pool, spread, work, over, pairs, seeds, done: BTreeSet::new(), tries: 0, passed: 0 })
    }

    fn over(&self, o: OsdId) -> f64 {
        self.over.get(&o).copied().unwrap_or_default()
    }

    fn pair(&self, from: OsdId, to: OsdId) -> Option<usize> {
        self.pairs.binary_search_by_key(&(from, to), |p| (p.from, p.to)).ok()
    }

    /// Counts the tries that passing over pairs or PGs costs.
    fn spend(&mut self, passed: usize) {
        self.passed += passed;
        self.tries += self.passed / PASSED_A_TRY;
        self.passed %= PASSED_A_TRY;
    }

    /// Takes a PG out of the plan's choice.
    fn finish(&mut self, seed: u32) {
        let Some(lead) = self.spread.led.get(seed as usize).filter(|_| self.done.insert(seed)) else { return };
        for o in self.spread.set(seed) {
            if let Some(p) = self.pair(*lead, *o).and_then(|at| self.pairs.get_mut(at)) {
                p.left -= 1;
            }
        }
    }

    /// The shortest chain from `from`, which has the most leads beyond what it should have, to the OSD that should get
    /// one most, if a lead less and more there evens both out. `least` is what the OSD with the fewest has beyond that.
    /// Error: the OSDs that have no chain.
    fn chain(&mut self, from: OsdId, least: f64, most: usize) -> Result<Vec<OsdId>, Vec<OsdId>> {
        let mut came: BTreeMap<OsdId, (OsdId, usize)> = [(from, (from, 0))].into();
        let mut queue = VecDeque::from([from]);
        let mut best: Option<(OsdId, f64)> = None;
        let mut is_whole = true;
        while let Some(at) = queue.pop_front() {
            let depth = came.get(&at).map_or(0, |(_, d)| *d);
            let over = self.over(at);
            if at != from && best.is_none_or(|(_, b)| over < b - 1e-9) {
                best = Some((at, over));
                if over <= least + 1e-9 {
                    break;
                }
            }
            if depth >= most {
                is_whole = false;
                continue;
            }
            let first = self.pairs.partition_point(|p| p.from < at);
            let next = self.pairs.get(first..).unwrap_or_default().iter().take_while(|p| p.from == at);
            let mut passed = 0;
            for p in next {
                passed += 1;
                if p.left > 0 && !came.contains_key(&p.to) {
                    came.insert(p.to, (at, depth + 1));
                    queue.push_back(p.to);
                }
            }
            self.spend(passed);
        }
        self.tries += 1;
        let Some((mut at, _)) = best.filter(|(_, over)| evens_out(self.over(from), *over)) else {
            // An OSD that was reached has no more leads beyond its share, and reaches no others.
            return Err(if is_whole { came.into_keys().collect() } else { vec![from] });
        };
        let mut chain = vec![at];
        while at != from {
            at = came.get(&at).map_or(from, |(before, _)| *before);
            chain.push(at);
        }
        chain.reverse();
        Ok(chain)
    }

    /// Makes `to` the leader of a PG that `from` leads. `None` if there is none that can be.
    fn pass(&mut self, from: OsdId, to: OsdId) -> Option<(u32, Lead)> {
        let pair = self.pair(from, to).and_then(|at| self.pairs.get(at).copied())?;
        loop {
            self.spend(pair.len);
            let seeds = self.seeds.get(pair.first..pair.first + pair.len)?.iter().copied();
            let mut open = seeds.filter(|s| !self.done.contains(s));
            let has_entry = |s: &u32| self.work.pg_upmap_primaries.contains_key(&PgId { pool: self.pool, seed: *s });
            let seed = open.clone().find(has_entry).or_else(|| open.next())?;
            self.tries += 1;
            // Each PG changes once, and one that cannot pass is not tried again.
            self.finish(seed);
            let pg = PgId { pool: self.pool, seed };
            let before = self.work.pg_upmap_primaries.get(&pg).copied();
            if self.work.pg_to_raw_upmap(pg).as_slice() != self.spread.set(seed) {
                // The map has changed since the PG was placed.
                continue;
            }
            self.work.pg_upmap_primaries.insert(pg, to);
            let after = match self.work.void_primary(pg) {
                None => Some(to),
                Some(VoidPrimary::FirstAnyway) => {
                    self.work.pg_upmap_primaries.remove(&pg);
                    None
                }
                Some(_) => put_entry(self.work, pg, before),
            };
            if self.work.pg_to_up(pg).1 == to && before != after {
                return Some((seed, Lead { before, after }));
            }
            put_entry(self.work, pg, before);
        }
    }

    /// Passes a lead along a chain. `None` if a PG of it can't be passed; then nothing has changed.
    fn pass_along(&mut self, chain: &[OsdId]) -> Option<Vec<(u32, Lead)>> {
        let mut done = Vec::new();
        for pair in chain.windows(2) {
            let &[from, to] = pair else { continue };
            match self.pass(from, to) {
                Some(x) => done.push(x),
                None => {
                    for (seed, lead) in done {
                        put_entry(self.work, PgId { pool: self.pool, seed }, lead.before);
                    }
                    return None;
                }
            }
        }
        *self.over.entry(*chain.first()?).or_default() -= 1.0;
        *self.over.entry(*chain.last()?).or_default() += 1.0;
        Some(done)
    }

    /// Passes leads until the pool is even or `most` PGs are changed. False if the tries are used up before.
    fn even_out(&mut self, most: usize, tries: usize, all: &mut Vec<(u32, Lead)>) -> bool {
        let mut hopeless = BTreeSet::new();
        while all.len() < most {
            let open = self.over.iter().filter(|(o, _)| !hopeless.contains(*o)).map(|(o, n)| (*o, *n));
            let least = self.over.values().copied().fold(f64::MAX, f64::min);
            let Some((_, from, _)) = extremes(open).filter(|(_, _, over)| evens_out(*over, least)) else { break };
            if self.tries >= tries {
                return false;
            }
            match self.chain(from, least, most - all.len()) {
                Err(none) => hopeless.extend(none),
                Ok(chain) => {
                    if let Some(done) = self.pass_along(&chain) {
                        all.extend(done);
                        hopeless.clear();
                    }
                }
            }
        }
        true
    }
}

/// Sets or removes the entry of a PG.
fn put_entry(map: &mut OsdMap, pg: PgId, entry: Option<OsdId>) -> Option<OsdId> {
    match entry {
        Some(o) => _ = map.pg_upmap_primaries.insert(pg, o),
        None => _ = map.pg_upmap_primaries.remove(&pg),
    }
    entry
}

impl Spread {
    /// Chooses primaries of some pools' PGs, at most `most`, by up to `tries` steps of some 20 microseconds. Beside these
    /// it looks once at each PG of the pools that it comes to, and once more where the pool is uneven.
    #[must_use]
    pub fn plan_reads(&self, map: &OsdMap, pools: &BTreeSet<PoolId>, most: usize, tries: usize) -> Plan {
        let mut plan = Plan::default();
        let mut work = map.clone();
        let replicated = self.pools.iter().filter(|(id, p)| pools.contains(id) && !p.coded && p.size > 1);
        let replicated: Vec<_> = replicated.collect();
        for (i, (id, spread)) in replicated.iter().enumerate() {
            if plan.leads.len() >= most {
                break;
            }
            let Some(mut leads) = Leads::new(**id, spread, &mut work) else { continue };
            // A pool that finds nothing leaves the others their share.
            let share = tries.saturating_sub(plan.tries) / (replicated.len() - i);
            let mut done = Vec::new();
            plan.cut |= !leads.even_out(most - plan.leads.len(), share, &mut done);
            plan.tries += leads.tries;
            plan.leads.extend(done.into_iter().map(|(seed, lead)| (PgId { pool: **id, seed }, lead)));
            if plan.tries >= tries && i + 1 < replicated.len() {
                plan.cut = true;
                break;
            }
        }
        plan
    }

    /// The read balance of a pool: the most leads of an OSD by the mean per OSD of the rule, as Ceph's score of the kind
    /// "fair distribution" has it. 1 is perfect. `None` for coded pools, and while nobody leads.
    #[must_use]
    pub fn read_score(&self, map: &OsdMap, pool: PoolId) -> Option<ReadScore> {
        let p = self.pools.get(&pool).filter(|p| !p.coded)?;
        let leads = p.leads(map);
        let most = leads.values().map(|(has, _)| *has).fold(0.0, f64::max);
        let with_pgs = leads.len() as f64;
        let of_rule: Vec<OsdId> = p.groups.iter().flat_map(|g| g.weights().keys().copied()).collect();
        if most <= 0.0 || of_rule.is_empty() {
            return None;
        }
        let raw = most * with_pgs / p.sets.len().max(1) as f64;
        let optimal = with_pgs / of_rule.len() as f64;
        let affinity = |o: &OsdId| f64::from(map.affinity(*o)) / f64::from(cluster::osdmap::AFFINITY_DEFAULT);
        let average = of_rule.iter().map(affinity).sum::<f64>() / of_rule.len() as f64;
        let reluctant = p.led.iter().any(|o| map.is_up(*o) && map.affinity(*o) == 0);
        // Few PGs on many OSDs have an optimum that would be rounded to 0.
        let (score, raw, optimal) = (hundredths(raw / optimal), hundredths(raw), hundredths(optimal));
        Some(ReadScore { score, raw, optimal, average_affinity: average, reluctant })
    }
}

fn hundredths(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

/// How evenly the PGs of each pool are led.
pub type ReadScores = BTreeMap<PoolId, ReadScore>;

/// How evenly the PGs of a pool are led.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadScore {
    /// The raw score by the optimal one.
    pub score: f64,
    /// The most leads of an OSD by the mean of the OSDs that have PGs.
    pub raw: f64,
    /// The part of the rule's OSDs that have PGs.
    pub optimal: f64,
    /// The mean primary affinity of the rule's OSDs.
    pub average_affinity: f64,
    /// True if an OSD leads a PG whose primary affinity is 0.
    pub reluctant: bool,
}
