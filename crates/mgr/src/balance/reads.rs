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
//!
//! Tests: `src/balance/tests/reads.rs` (all three, `primaries_of_three_pools_end_even`; 1,
//! `affinity_is_kept`).

use super::{Plan, PoolSpread, Spread};
use base::{OsdId, PgId, PoolId};
use cluster::OsdMap;
use cluster::osdmap::VoidPrimary;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Change of the chosen primary of a PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The entry before; `None` for none.
    pub before: Option<OsdId>,
    /// The entry after; `None` for none.
    pub after: Option<OsdId>,
}

/// The leads of a pool's PGs while a plan is made.
struct Leads<'a> {
    pool: PoolId,
    spread: &'a PoolSpread,
    /// The map with the plan's changes so far.
    work: &'a mut OsdMap,
    /// The leads that each OSD has beyond what it should have.
    over: BTreeMap<OsdId, f64>,
    /// The PGs that the first OSD leads and the second could.
    edges: BTreeMap<(OsdId, OsdId), BTreeSet<u32>>,
    tries: usize,
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

impl<'a> Leads<'a> {
    fn new(pool: PoolId, spread: &'a PoolSpread, work: &'a mut OsdMap) -> Self {
        let over = spread.leads(work).into_iter().map(|(o, (has, wants))| (o, has - wants)).collect();
        let mut edges: BTreeMap<(OsdId, OsdId), BTreeSet<u32>> = BTreeMap::new();
        for ((seed, set), lead) in (0u32..).zip(&spread.sets).zip(&spread.led) {
            if !set.contains(lead) || !work.is_up(*lead) {
                continue;
            }
            for o in set.iter().filter(|o| *o != lead && work.is_up(**o) && work.affinity(**o) > 0) {
                edges.entry((*lead, *o)).or_default().insert(seed);
            }
        }
        Self { pool, spread, work, over, edges, tries: 0 }
    }

    fn over(&self, o: OsdId) -> f64 {
        self.over.get(&o).copied().unwrap_or_default()
    }

    /// The shortest chain from `from` to the OSD that should get a lead most, if a lead less and more there evens both out.
    fn chain(&mut self, from: OsdId, most: usize) -> Option<Vec<OsdId>> {
        let mut came: BTreeMap<OsdId, (OsdId, usize)> = [(from, (from, 0))].into();
        let mut queue = VecDeque::from([from]);
        let mut best: Option<(OsdId, f64)> = None;
        while let Some(at) = queue.pop_front() {
            let depth = came.get(&at).map_or(0, |(_, d)| *d);
            let over = self.over(at);
            if at != from && best.is_none_or(|(_, b)| over < b - 1e-9) {
                best = Some((at, over));
            }
            if depth >= most {
                continue;
            }
            let next = self.edges.range((at, OsdId(i32::MIN))..=(at, OsdId(i32::MAX)));
            for ((_, to), _) in next.filter(|(_, seeds)| !seeds.is_empty()) {
                self.tries += 1;
                if !came.contains_key(to) {
                    came.insert(*to, (at, depth + 1));
                    queue.push_back(*to);
                }
            }
        }
        let (mut at, _) = best.filter(|(_, over)| self.over(from) - over > 1.0 + 1e-9)?;
        let mut chain = vec![at];
        while at != from {
            at = came.get(&at)?.0;
            chain.push(at);
        }
        chain.reverse();
        Some(chain)
    }

    /// Makes `to` the leader of a PG that `from` leads. `None` if there is none that can be.
    fn pass(&mut self, from: OsdId, to: OsdId) -> Option<(u32, Lead)> {
        loop {
            let seeds = self.edges.get_mut(&(from, to))?;
            let work = &*self.work;
            let has_entry = |s: &&u32| work.pg_upmap_primaries.contains_key(&PgId { pool: self.pool, seed: **s });
            let seed = *seeds.iter().find(has_entry).or_else(|| seeds.first())?;
            seeds.remove(&seed);
            self.tries += 1;
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
        // Each PG changes once.
        for (seed, _) in &done {
            self.edges.values_mut().for_each(|s| _ = s.remove(seed));
        }
        *self.over.entry(*chain.first()?).or_default() -= 1.0;
        *self.over.entry(*chain.last()?).or_default() += 1.0;
        Some(done)
    }

    /// Passes leads until the pool is even, `most` PGs are changed or the tries are used up.
    fn even_out(&mut self, most: usize, tries: usize) -> Vec<(u32, Lead)> {
        let mut all = Vec::new();
        let mut hopeless = BTreeSet::new();
        while all.len() < most && self.tries < tries {
            let open = self.over.iter().filter(|(o, _)| !hopeless.contains(*o));
            let Some(from) = open.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(o, _)| *o) else { break };
            let Some(chain) = self.chain(from, most - all.len()) else {
                hopeless.insert(from);
                continue;
            };
            if let Some(done) = self.pass_along(&chain) {
                all.extend(done);
                hopeless.clear();
            }
        }
        all
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
    /// Chooses primaries of some pools' PGs, at most `most`, by up to `tries` steps of some 20 microseconds.
    #[must_use]
    pub fn plan_reads(&self, map: &OsdMap, pools: &BTreeSet<PoolId>, most: usize, tries: usize) -> Plan {
        let mut plan = Plan::default();
        let mut work = map.clone();
        let replicated = self.pools.iter().filter(|(id, p)| pools.contains(id) && !p.coded && p.size > 1);
        for (id, spread) in replicated {
            let mut leads = Leads::new(*id, spread, &mut work);
            let done = leads.even_out(most.saturating_sub(plan.leads.len()), tries.saturating_sub(plan.tries));
            plan.tries += leads.tries;
            plan.leads.extend(done.into_iter().map(|(seed, lead)| (PgId { pool: *id, seed }, lead)));
        }
        plan.cut = plan.tries >= tries;
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
        let raw = hundredths(most * with_pgs / p.sets.len().max(1) as f64);
        let optimal = hundredths(with_pgs / of_rule.len() as f64);
        let affinity = |o: &OsdId| f64::from(map.affinity(*o)) / f64::from(cluster::osdmap::AFFINITY_DEFAULT);
        let average = of_rule.iter().map(affinity).sum::<f64>() / of_rule.len() as f64;
        let reluctant = p.led.iter().any(|o| map.is_up(*o) && map.affinity(*o) == 0);
        Some(ReadScore { score: hundredths(raw / optimal), raw, optimal, average_affinity: average, reluctant })
    }
}

fn hundredths(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

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
