//! Used and available space, by CRUSH rule, device class and pool.

use super::{PgStats, sum_osds};
use base::{OsdId, PoolId};
use cluster::{CrushMap, OsdMap, PgPool};
use std::collections::BTreeMap;
use wire::types::{OsdStat, PoolStat, StoreStatfs};

/// Used bytes of a store, with its own reserve (`get_used_raw`).
#[must_use]
pub fn used_raw(s: &StoreStatfs) -> u64 {
    s.total.saturating_sub(s.available).max(0) as u64
}

/// Used bytes of a store, without its reserve (`get_used`).
#[must_use]
pub fn used(s: &StoreStatfs) -> u64 {
    s.total.saturating_sub(s.available).saturating_sub(s.internally_reserved).max(0) as u64
}

/// OSDs that a rule selects, with their fractions of its data; the fractions sum to 1.
#[must_use]
pub fn rule_weights(crush: &CrushMap, rule: i32) -> BTreeMap<OsdId, f64> {
    crush.rule_osd_shares(rule).into_iter().map(|(o, w)| (OsdId(o), f64::from(w))).collect()
}

/// Raw bytes that a rule can still store before its fullest OSD is full; negative if no OSD has reported.
#[must_use]
pub fn rule_avail(st: &PgStats, map: &OsdMap, rule: i32) -> i64 {
    if let Some(n) = st.foreign_avail(rule) {
        return n;
    }
    let weights = rule_weights(&map.crush, rule);
    if weights.is_empty() {
        return 0;
    }
    let mut min = -1i64;
    for (osd, w) in weights {
        let Some(s) = st.osd(osd) else { continue };
        if s.statfs.total == 0 || w <= 0.0 {
            continue;
        }
        let kb = (s.statfs.total >> 10) as f64;
        let unusable = kb * (1.0 - f64::from(map.full_ratio));
        let avail = ((s.statfs.available >> 10) as f64 - unusable).max(0.0) * 1024.0;
        let projected = (avail / w) as i64;
        if min < 0 || projected < min {
            min = projected;
        }
    }
    min
}

/// [`rule_avail`] of every rule in the map.
#[must_use]
pub fn avail_by_rule(st: &PgStats, map: &OsdMap) -> BTreeMap<i32, i64> {
    map.crush.rule_names.keys().map(|r| (*r, rule_avail(st, map, *r))).collect()
}

/// Raw bytes per stored byte.
#[must_use]
pub fn raw_rate(map: &OsdMap, pool: &PgPool) -> f64 {
    if pool.is_erasure() {
        let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
        let get = |k: &str| profile.and_then(|p| p.get(k)).and_then(|v| v.parse::<f64>().ok()).filter(|v| *v > 0.0);
        if let (Some(k), Some(m)) = (get("k"), get("m")) {
            return (k + m) / k;
        }
    }
    f64::from(pool.size)
}

/// Space of OSDs by device class.
#[must_use]
pub fn by_class(st: &PgStats, map: &OsdMap) -> BTreeMap<String, OsdStat> {
    if let Some(c) = st.foreign_classes() {
        return c;
    }
    let mut classes: BTreeMap<String, Vec<&OsdStat>> = BTreeMap::new();
    for (o, s) in st.osds() {
        classes.entry(map.crush.class_of(o.0).unwrap_or_default().to_owned()).or_default().push(s);
    }
    classes.into_iter().map(|(c, v)| (c, sum_osds(v.into_iter()))).collect()
}

/// A pool's usage as `df` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolUsage {
    /// Bytes of user data and omap.
    pub stored: u64,
    /// Bytes of user data.
    pub stored_data: u64,
    /// Bytes of omap.
    pub stored_omap: u64,
    /// Bytes allocated on all OSDs.
    pub used: u64,
    /// Bytes allocated for data.
    pub used_data: u64,
    /// Bytes allocated for omap.
    pub used_omap: u64,
    /// Used fraction of the pool's maximum, 0 to 1.
    pub used_ratio: f64,
    /// Bytes of user data that still fit.
    pub max_avail: u64,
    /// Raw bytes available to the pool.
    pub avail_raw: u64,
    /// Stored bytes times raw bytes per stored byte.
    pub stored_raw: u64,
}

/// Computes a pool's usage.
#[must_use]
pub fn pool_usage(st: &PgStats, map: &OsdMap, id: PoolId, pool: &PgPool) -> PoolUsage {
    Usages::new(st, map).of(id, pool)
}

/// Computes the usage of many pools: sums OSDs once, and the space of each rule once.
pub struct Usages<'a> {
    st: &'a PgStats,
    map: &'a OsdMap,
    total: OsdStat,
    avail: BTreeMap<i32, i64>,
}

impl<'a> Usages<'a> {
    /// Usages by these statistics and this map.
    #[must_use]
    pub fn new(st: &'a PgStats, map: &'a OsdMap) -> Self {
        Self { st, map, total: st.osd_sum(), avail: BTreeMap::new() }
    }

    /// The usage of a pool.
    pub fn of(&mut self, id: PoolId, pool: &PgPool) -> PoolUsage {
        let rule = i32::from(pool.crush_rule);
        let avail = *self.avail.entry(rule).or_insert_with(|| rule_avail(self.st, self.map, rule));
        usage(self.st, self.map, id, pool, &self.total, avail)
    }
}

fn usage(st: &PgStats, map: &OsdMap, id: PoolId, pool: &PgPool, total: &OsdStat, avail: i64) -> PoolUsage {
    let stat: PoolStat = st.pool(id);
    // Per-pool accounting of the stores takes precedence over the PGs' counters.
    let per_pool = total.num_osds > 0 && total.num_osds == total.num_per_pool_osds;
    let per_pool_omap = total.num_osds > 0 && total.num_osds == total.num_per_pool_omap_osds;
    let (sum, fs) = (&stat.stats.sum, &stat.store_stats);
    let mut rate = raw_rate(map, pool);
    if sum.num_object_copies > 0 {
        rate *= (sum.num_object_copies - sum.num_objects_degraded) as f64 / sum.num_object_copies as f64;
    }
    let pos = |v: i64| v.max(0) as u64;
    let normal = |v: u64| if rate > 0.0 { (v as f64 / rate) as u64 } else { 0 };
    let used_data = pos(if per_pool { fs.allocated } else { sum.num_bytes });
    let used_omap = pos(if per_pool_omap { fs.omap_allocated } else { sum.num_omap_bytes });
    let stored_data = if per_pool { normal(pos(fs.data_stored)) } else { pos(sum.num_bytes) };
    let stored_omap = if per_pool_omap { normal(pos(fs.omap_allocated)) } else { pos(sum.num_omap_bytes) };
    let used = used_data + used_omap;
    let avail = pos(avail);
    let used_ratio = if avail > 0 {
        used as f64 / (used as f64 + avail as f64)
    } else if used > 0 {
        1.0
    } else {
        0.0
    };
    let stored = stored_data + stored_omap;
    PoolUsage {
        stored,
        stored_data,
        stored_omap,
        used,
        used_data,
        used_omap,
        used_ratio,
        max_avail: normal(avail),
        avail_raw: avail,
        stored_raw: (stored as f64 * rate) as u64,
    }
}

/// Reply of STATFS for a pool, or the cluster for `None`: total, used and available KiB, and objects.
#[must_use]
pub fn statfs(st: &PgStats, map: &OsdMap, pool: Option<PoolId>) -> (u64, u64, u64, u64) {
    let pos = |v: i64| v.max(0) as u64;
    if let Some(id) = pool
        && let Some(p) = map.pool(id)
    {
        let sum = st.pool(id).stats.sum;
        let used = pos(sum.num_bytes) >> 10;
        let rate = raw_rate(map, p);
        let free = pos(rule_avail(st, map, i32::from(p.crush_rule)));
        let avail = if rate > 0.0 { (free as f64 / rate) as u64 >> 10 } else { 0 };
        return (used + avail, used, avail, pos(sum.num_objects));
    }
    let fs = st.osd_sum().statfs;
    (pos(fs.total) >> 10, used_raw(&fs) >> 10, pos(fs.available) >> 10, pos(st.sum().stats.sum.num_objects))
}
