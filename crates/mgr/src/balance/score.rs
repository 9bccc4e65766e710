//! The score of a spread: how uneven it is, as Ceph's module `balancer` computes it.
//!
//! For each CRUSH root and each of PGs, objects and bytes: the OSDs above the average count, each by its share of the
//! weight and by `erf(x / √2)`, where `x` is how far it is above the average. 0 is perfect. The score of a cluster is
//! the mean over roots and metrics.

use super::Spread;
use crate::stats::space::raw_rate;
use base::{OsdId, PgId, PoolId};
use cluster::{OsdMap, PgPool};
use std::collections::{BTreeMap, BTreeSet};

/// A quantity that is spread over OSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Shards of PGs.
    Pgs,
    /// Objects.
    Objects,
    /// Bytes.
    Bytes,
}

impl Metric {
    /// All metrics, in Ceph's order.
    pub const ALL: [Self; 3] = [Self::Pgs, Self::Objects, Self::Bytes];

    /// The name in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pgs => "pgs",
            Self::Objects => "objects",
            Self::Bytes => "bytes",
        }
    }
}

/// One metric of a root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The quantity on each OSD.
    pub count: BTreeMap<OsdId, f64>,
    /// The quantity on all OSDs.
    pub total: f64,
    /// The mean per OSD.
    pub avg: f64,
    /// Standard deviation of the quantity per weight.
    pub stddev: f64,
    /// Weight of the OSDs above the average.
    pub sum_weight: f64,
    /// The score, from 0 (perfect) to 1.
    pub score: f64,
}

/// The scores of a CRUSH root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RootScore {
    /// The bucket.
    pub root: i32,
    /// The pools whose rules take it.
    pub pools: BTreeSet<PoolId>,
    /// Each OSD's share of the weight.
    pub target: BTreeMap<OsdId, f64>,
    /// The metrics, in the order of [`Metric::ALL`].
    pub figures: [Figures; 3],
}

/// The score of a spread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// The roots.
    pub roots: Vec<RootScore>,
    /// The mean over roots and metrics.
    pub score: f64,
}

/// Judges the spread of some pools; all, if `pools` is empty. `amounts` gives the objects and bytes of a PG.
#[must_use]
pub fn score(map: &OsdMap, spread: &Spread, pools: &BTreeSet<PoolId>, amounts: impl Fn(PgId) -> (f64, f64)) -> Score {
    let mut roots: BTreeMap<i32, RootScore> = BTreeMap::new();
    let judged = || spread.pools.iter().filter(|(id, _)| pools.is_empty() || pools.contains(id));
    for (id, p) in judged() {
        for g in &p.groups {
            let r = roots.entry(g.take).or_insert_with(|| {
                let sum: f64 = g.weights().values().sum();
                let target = g.weights().iter().map(|(o, w)| (*o, w / sum)).collect::<BTreeMap<_, _>>();
                let count: BTreeMap<OsdId, f64> = target.keys().map(|o| (*o, 0.0)).collect();
                let figures = [0, 1, 2].map(|_| Figures { count: count.clone(), ..Figures::default() });
                RootScore { root: g.take, pools: BTreeSet::new(), target, figures }
            });
            r.pools.insert(*id);
        }
    }
    for (id, p) in judged() {
        let takes: Vec<i32> = p.groups.iter().map(|g| g.take).collect();
        let of_shard = map.pool(*id).map_or(1.0, |pool| shard_share(map, pool));
        for (seed, set) in (0u32..).zip(&p.sets) {
            let (objects, bytes) = amounts(PgId { pool: *id, seed });
            let quantities = [1.0, objects, bytes * of_shard];
            for o in set {
                let Some(r) = takes.iter().find(|t| roots.get(t).is_some_and(|r| r.target.contains_key(o))) else {
                    continue;
                };
                for (f, q) in roots.get_mut(r).into_iter().flat_map(|r| r.figures.iter_mut()).zip(quantities) {
                    *f.count.entry(*o).or_default() += q;
                    f.total += q;
                }
            }
        }
    }
    let mut roots: Vec<RootScore> = roots.into_values().collect();
    for r in &mut roots {
        for f in &mut r.figures {
            judge(f, &r.target);
        }
    }
    let n = (roots.len() * Metric::ALL.len()).max(1) as f64;
    let sum: f64 = roots.iter().flat_map(|r| r.figures.iter().map(|f| f.score)).sum();
    Score { roots, score: sum / n }
}

/// The bytes of a PG shard per byte stored in the PG.
#[must_use]
pub fn shard_share(map: &OsdMap, p: &PgPool) -> f64 {
    raw_rate(map, p) / f64::from(p.size.max(1))
}

fn judge(f: &mut Figures, target: &BTreeMap<OsdId, f64>) {
    if f.total <= 0.0 {
        return;
    }
    let num = target.len().max(1) as f64;
    f.avg = f.total / num;
    let mut dev = 0.0;
    for (o, n) in &f.count {
        let share = target.get(o).copied().unwrap_or(0.0);
        let adjusted = if share > 0.0 { n / share / num } else { 0.0 };
        if adjusted > f.avg {
            f.score += share * erf((adjusted - f.avg) / f.avg / std::f64::consts::SQRT_2);
            f.sum_weight += share;
        }
        dev += (f.avg - adjusted).powi(2);
    }
    f.stddev = (dev / (num - 1.0).max(1.0)).sqrt();
    f.score /= f.sum_weight.max(1.0);
}

/// The error function of `x` ≥ 0, within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    1.0 - poly.iter().fold(0.0, |sum, c| (sum + c) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_that_of_tables() {
        for (x, y) in [(0.0, 0.0), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3)] {
            assert!((erf(x) - y).abs() < 2e-7, "erf({x}) = {}", erf(x));
        }
    }

    #[test]
    fn an_even_root_scores_zero_and_an_uneven_one_more() {
        let target: BTreeMap<OsdId, f64> = (0..4).map(|o| (OsdId(o), 0.25)).collect();
        let with = |n: [f64; 4]| {
            let count = (0..).map(OsdId).zip(n).collect();
            let mut f = Figures { count, total: n.iter().sum(), ..Figures::default() };
            judge(&mut f, &target);
            f.score
        };
        assert_eq!(with([10.0; 4]), 0.0);
        let (little, much) = (with([11.0, 9.0, 10.0, 10.0]), with([20.0, 0.0, 10.0, 10.0]));
        assert!(0.0 < little && little < much && much < 1.0, "{little} {much}");
    }
}
