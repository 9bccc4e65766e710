//! Recommended number of PGs of each pool, by its stored data and target size (Ceph's `pg_autoscaler`, as in 16.2 with
//! its profile `scale-up`).
//!
//! The PG budget (`mon_target_pg_per_osd` for each OSD; a PG counts once per copy) is divided by the pools' shares of
//! the space, rounded to a power of two, not below `pg_num_min`. A number within a factor of three of the ideal stays.
//! One CRUSH tree is assumed: all pools share all OSDs.

use super::PgStats;
use super::space::{Usages, raw_rate};
use base::PoolId;
use cluster::pool::PoolOpt;
use cluster::{OsdMap, PgPool};

/// Least number of PGs of a pool without `pg_num_min` (`PG_NUM_MIN`).
const PG_NUM_MIN: u32 = 32;
/// A pool's `pg_num` is changed only if it is off by more than this factor.
const THRESHOLD: f64 = 3.0;

/// Recommendation for a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sizing {
    /// Fraction of the raw space that the pool uses.
    pub actual_ratio: f64,
    /// The largest of the used fraction, that of its target size, and its effective target ratio.
    pub share: f64,
    /// Fraction by target ratios, normalized over all pools.
    pub effective_ratio: f64,
    /// Recommended number of PGs before rounding.
    pub ideal: f64,
    /// Recommended number of PGs.
    pub pg_num: u32,
    /// True if the current number differs from the target by more than the threshold.
    pub would_adjust: bool,
}

/// A numeric option of a pool, 0 if it is not set.
#[must_use]
pub fn number(p: &PgPool, name: &str) -> f64 {
    match p.opt(name) {
        Some(PoolOpt::Int(v)) => *v as f64,
        Some(PoolOpt::Float(v)) => *v,
        _ => 0.0,
    }
}

/// The nearest power of two; the upper one in a tie.
fn nearest_power_of_two(n: f64) -> u32 {
    let upper = (n as u32).max(1).checked_next_power_of_two().unwrap_or(1 << 31);
    let lower = upper >> 1;
    if f64::from(upper) - n > n - f64::from(lower) { lower } else { upper }
}

/// Recommendations for all pools, in order of pool id.
#[must_use]
pub fn sizes(st: &PgStats, map: &OsdMap, per_osd: u32) -> Vec<(PoolId, Sizing)> {
    let total = st.osd_sum().statfs.total.max(0) as f64;
    let all_pgs = f64::from(per_osd) * map.osds().filter(|o| map.exists(*o)).count() as f64;
    let ratios: f64 = map.pools.values().map(|p| number(p, "target_size_ratio")).sum();
    let target_bytes = |p: &PgPool| {
        if number(p, "target_size_ratio") > 0.0 { 0.0 } else { number(p, "target_size_bytes") }
    };
    let bytes: f64 = map.pools.values().map(|p| target_bytes(p) * raw_rate(map, p)).sum();
    let free = if total > 0.0 { 1.0 - (bytes / total).min(1.0) } else { 1.0 };
    let mut out = Vec::new();
    let mut usages = Usages::new(st, map);
    for (id, p) in map.pools.iter() {
        let u = usages.of(*id, p);
        let of = |b: f64| if total > 0.0 { b / total } else { 0.0 };
        let rate = raw_rate(map, p);
        let ratio = number(p, "target_size_ratio");
        let effective_ratio = if ratios > 0.0 { ratio / ratios * free } else { 0.0 };
        let share = of((u.stored as f64).max(target_bytes(p)) * rate).max(effective_ratio);
        let bias = if p.opt("pg_autoscale_bias").is_some() { number(p, "pg_autoscale_bias") } else { 1.0 };
        let ideal = (share * all_pgs / f64::from(p.size.max(1)) * bias).max(0.0);
        let least = if p.opt("pg_num_min").is_some() { number(p, "pg_num_min") as u32 } else { PG_NUM_MIN };
        let mut pg_num = nearest_power_of_two(ideal).max(least).max(1);
        let most = number(p, "pg_num_max") as u32;
        if most > 0 {
            pg_num = pg_num.min(most);
        }
        let (has, should) = (f64::from(p.pg_num_target), f64::from(pg_num));
        let far = should > has * THRESHOLD || should < has / THRESHOLD;
        let would_adjust = far && (0.0..=1.0).contains(&share) && total > 0.0;
        let actual_ratio = of(u.stored as f64 * rate);
        out.push((*id, Sizing { actual_ratio, share, effective_ratio, ideal, pg_num, would_adjust }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::OsdId;
    use cluster::pool::POOL_OPT_NAMES;
    use std::sync::Arc;
    use wire::types::{OsdStat, StoreStatfs};

    fn pool(size: u8, pg_num: u32, opts: &[(&str, PoolOpt)]) -> PgPool {
        let mut p = PgPool { kind: 1, size, pg_num, pg_num_target: pg_num, ..PgPool::default() };
        for (k, v) in opts {
            let at = POOL_OPT_NAMES.iter().position(|n| n == k).unwrap();
            p.opts.insert(at as i32, v.clone());
        }
        p
    }

    #[test]
    fn powers_of_two_are_the_nearest() {
        let all = [0.4, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 11.0, 13.0, 100.0, 700.0].map(nearest_power_of_two);
        assert_eq!(all, [0, 1, 2, 4, 4, 8, 8, 8, 16, 128, 512]);
    }

    #[test]
    fn pgs_follow_shares_and_limits() {
        let mut map = OsdMap { max_osd: 3, ..OsdMap::default() };
        map.osd_state = Arc::new(vec![3; 3]);
        map.osd_weight = Arc::new(vec![0x1_0000; 3]);
        let mut st = PgStats::default();
        let statfs = StoreStatfs { total: 1 << 40, ..StoreStatfs::default() };
        for o in 0..3 {
            st.report(OsdId(o), &OsdStat { statfs, ..OsdStat::default() }, [], [], &map, base::Now::default());
        }
        let pools = Arc::make_mut(&mut map.pools);
        let ratio = |r| ("target_size_ratio", PoolOpt::Float(r));
        pools.insert(PoolId(1), pool(3, 8, &[]).into());
        pools.insert(PoolId(2), pool(3, 32, &[ratio(3.0)]).into());
        pools.insert(PoolId(3), pool(3, 32, &[ratio(1.0), ("pg_num_max", PoolOpt::Int(16))]).into());
        pools.insert(PoolId(4), pool(3, 256, &[("pg_num_min", PoolOpt::Int(4))]).into());
        let s: Vec<(u32, bool)> = sizes(&st, &map, 100).iter().map(|(_, s)| (s.pg_num, s.would_adjust)).collect();
        // 100 PGs of three copies: three quarters are 75, which is nearer to 64.
        assert_eq!(s, [(32, true), (64, false), (16, false), (4, true)]);
    }
}
