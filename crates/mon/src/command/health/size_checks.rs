//! Alerts about sizes: pools with far more objects per PG than others, target sizes beyond the space, PGs whose removed
//! snapshots wait.

use super::Severity::Warn;
use super::checks::Adder;
use crate::state::ClusterState;
use crate::state::config::mon_option;
use base::PgId;
use cluster::pool::PoolOpt;
use mgr::stats::autoscale::number;
use mgr::stats::space::raw_rate;

/// Most PGs listed in the detail of an alert.
const DETAIL_MAX: usize = 50;

fn option(state: &ClusterState, name: &str, default: f64) -> f64 {
    mon_option(state, name).trim().parse().unwrap_or(default)
}

/// Adds the alerts.
pub(super) fn add(a: &mut Adder, state: &ClusterState) {
    many_objects(a, state);
    overcommitted(a, state);
    two_targets(a, state);
    slow_trimming(a, state);
}

/// Pools whose PGs have several times as many objects as the average (`mon_pg_warn_max_object_skew`). Pools that the
/// autoscaler sizes are left to it.
fn many_objects(a: &mut Adder, state: &ClusterState) {
    let (map, stats) = (&*state.osdmap, &state.mgr.stats);
    let skew = option(state, "mon_pg_warn_max_object_skew", 10.0);
    let (least, least_of_pool) =
        (option(state, "mon_pg_warn_min_objects", 10_000.0), option(state, "mon_pg_warn_min_pool_objects", 1000.0));
    let objects = stats.sum().stats.sum.num_objects as f64;
    let pgs: f64 = map.pools.values().map(|p| f64::from(p.pg_num)).sum();
    if skew <= 0.0 || objects < least || pgs <= 0.0 {
        return;
    }
    // As in Ceph, a whole number.
    let average = (objects / pgs).floor();
    if average < 1.0 {
        return;
    }
    let detail: Vec<String> = map
        .pools
        .iter()
        .filter(|(_, p)| p.pg_autoscale_mode != cluster::pool::autoscale::ON)
        .filter_map(|(id, p)| {
            let n = stats.pool(*id).stats.sum.num_objects as f64;
            let per_pg = (n / f64::from(p.pg_num.max(1))).floor();
            let ratio = per_pg / average;
            let name = map.pool_name(*id)?;
            (n >= least_of_pool && ratio > skew).then(|| {
                format!("pool {name} objects per pg ({per_pg}) is more than {ratio} times cluster average ({average})")
            })
        })
        .collect();
    a.add_some("MANY_OBJECTS_PER_PG", Warn, "pools have many more objects per pg than average", detail);
}

/// Pools whose `target_size_bytes` are more than all space.
fn overcommitted(a: &mut Adder, state: &ClusterState) {
    let (map, stats) = (&*state.osdmap, &state.mgr.stats);
    let capacity = stats.osd_sum().statfs.total as f64;
    let mut names: Vec<&str> = Vec::new();
    let (mut target, mut wanted) = (0.0, 0.0);
    for (id, p) in map.pools.iter() {
        let bytes = number(p, "target_size_bytes");
        if matches!(p.opt("target_size_bytes"), Some(PoolOpt::Int(n)) if *n > 0) {
            names.extend(map.pool_name(*id));
        }
        let rate = raw_rate(map, p);
        let stored = stats.pool(*id).stats.sum.num_bytes as f64;
        target += bytes * rate;
        wanted += bytes.max(stored) * rate;
    }
    if target > 0.0 && capacity > 0.0 && wanted > capacity {
        let all: Vec<&str> = map.pools.keys().filter_map(|id| map.pool_name(*id)).collect();
        let list = |names: &[&str]| format!("['{}']", names.join("', '"));
        let line = format!(
            "Pools {} overcommit available storage by {:.3}x due to target_size_bytes on pools {}",
            list(&all),
            wanted / capacity,
            list(&names)
        );
        let summary = "1 subtrees have overcommitted pool target_size_bytes".to_owned();
        a.add("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED", Warn, 1, summary, vec![line]);
    }
}

/// Pools with a target in bytes and one as a share: the share counts.
fn two_targets(a: &mut Adder, state: &ClusterState) {
    let map = &*state.osdmap;
    let both = |p: &cluster::PgPool| number(p, "target_size_bytes") > 0.0 && number(p, "target_size_ratio") > 0.0;
    let named = map.pools.iter().filter(|(_, p)| both(p)).filter_map(|(id, _)| map.pool_name(*id));
    let detail = named.map(|n| format!("Pool {n} has target_size_bytes and target_size_ratio set")).collect();
    let what = "pools have both target_size_bytes and target_size_ratio set";
    a.add_some("POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO", Warn, what, detail);
}

/// PGs with many removed snapshots to trim (`mon_osd_snap_trim_queue_warn_on`). Only PGs of OSDs that report as many
/// are looked at.
fn slow_trimming(a: &mut Adder, state: &ClusterState) {
    let stats = &state.mgr.stats;
    let limit = option(state, "mon_osd_snap_trim_queue_warn_on", 32_768.0);
    if limit <= 0.0 {
        return;
    }
    let busy = stats.osds().filter(|(_, s)| f64::from(s.snap_trim_queue_len) >= limit).map(|(o, _)| *o);
    let mut slow: Vec<(u32, PgId)> = busy
        .flat_map(|o| stats.pgs_led_by(o))
        .filter_map(|pg| Some((stats.pg(pg)?.snaptrimq_len, pg)))
        .filter(|(n, _)| f64::from(*n) >= limit)
        .collect();
    slow.sort_by_key(|(n, pg)| (std::cmp::Reverse(*n), *pg));
    let Some((longest, at)) = slow.first().copied() else { return };
    let n = slow.len();
    let mut detail: Vec<String> =
        slow.into_iter().take(DETAIL_MAX).map(|(n, pg)| format!("snap trim queue for pg {pg} at {n}")).collect();
    if n > DETAIL_MAX {
        detail.push(format!("...more pgs affected: {}", n - DETAIL_MAX));
    }
    detail.push(format!("longest queue on pg {at} at {longest}"));
    let summary = format!("snap trim queue for {n} pg(s) >= {limit} (mon_osd_snap_trim_queue_warn_on)");
    a.add("PG_SLOW_SNAP_TRIMMING", Warn, n, summary, detail);
}
