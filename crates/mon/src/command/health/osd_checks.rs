//! Alerts that follow from the OSD map alone: OSDs and hosts down, full ratios, flags, pools.

use super::Severity::{self, Err, Warn};
use super::checks::{Adder, on};
use crate::command::osd::report::{DEVICE_SILENCE, STORE_FAILURE};
use crate::command::pool::pgs_per_osd;
use crate::command::units::short;
use crate::state::ClusterState;
use base::OsdId;
use cluster::OsdMap;
use cluster::osdmap::{map_flag, osd_state};
use cluster::pool::flag;
use mgr::stats::autoscale::sizes;
use std::collections::{BTreeMap, BTreeSet};

/// Flags that a healthy map may have.
const QUIET_FLAGS: u32 = map_flag::FRESH | map_flag::LEGACY_REQUIRE | map_flag::NOAUTOSCALE;

/// The oldest release whose tunables raise no alert.
const TUNABLES_MIN: &str = "hammer";

/// Adds the alerts of the OSD map.
pub(super) fn add(a: &mut Adder, state: &ClusterState) {
    let map = &*state.osdmap;
    down(a, map);
    store_failures(a, state);
    unbound(a, state);
    ahead(a, state);
    foreign(a, state);
    orphans(a, map);
    fullness(a, map);
    flags(a, map);
    scrub_flags(a, map);
    node_flags(a, map);
    pools(a, state, map);
    tunables(a, state, map);
    let (n, ..) = map.osd_counts();
    let want = state.options.pools.default_size as usize;
    if n < want && on(state, "mon_warn_on_too_few_osds") {
        a.add("TOO_FEW_OSDS", Warn, want - n, format!("OSD count {n} < osd_pool_default_size {want}"), Vec::new());
    }
}

/// Adds an alert for tunables of CRUSH that only releases before Hammer need (`mon_crush_min_required_version`).
fn tunables(a: &mut Adder, state: &ClusterState, map: &OsdMap) {
    let needs = map.crush.tunables.min_required_version();
    // Names of releases are in the order of the alphabet.
    if needs < TUNABLES_MIN && on(state, "mon_warn_on_legacy_crush_tunables") {
        let summary = format!("crush map has legacy tunables (require {needs}, min is {TUNABLES_MIN})");
        let detail = "`ceph osd crush tunables default` sets current ones; it moves data".to_owned();
        a.add("OLD_CRUSH_TUNABLES", Warn, 0, summary, vec![detail]);
    }
}

fn place(map: &OsdMap, id: i32) -> String {
    let loc: Vec<String> = map.crush.full_location(id).into_iter().rev().map(|(t, n)| format!("{t}={n}")).collect();
    loc.join(",")
}

fn down(a: &mut Adder, map: &OsdMap) {
    let down: BTreeSet<OsdId> = map.osds().filter(|o| map.is_in(*o) && !map.is_up(*o)).collect();
    // Subtrees whose counted OSDs are all down, by bucket type.
    let mut whole: BTreeMap<i32, Vec<(i32, usize)>> = BTreeMap::new();
    if !down.is_empty() {
        for b in map.crush.iter_buckets().filter(|b| !map.crush.is_shadow(b.id)) {
            let osds: Vec<OsdId> =
                map.crush.leaves(b.id).into_iter().map(OsdId).filter(|o| map.exists(*o) && map.is_in(*o)).collect();
            if !osds.is_empty() && osds.iter().all(|o| down.contains(o)) {
                whole.entry(i32::from(b.kind)).or_default().push((b.id, osds.len()));
            }
        }
    }
    for (kind, list) in whole {
        let t = map.crush.type_name(kind).unwrap_or("bucket");
        let osds: usize = list.iter().map(|(_, n)| n).sum();
        let plural = if list.len() == 1 { "" } else { "s" };
        let detail = list
            .iter()
            .map(|(id, n)| {
                let name = map.crush.name_of(*id).unwrap_or_default();
                format!("{t} {name} ({}) ({n} osds) is down", place(map, *id))
            })
            .collect();
        let summary = format!("{} {t}{plural} ({osds} osds) down", list.len());
        a.add(&format!("OSD_{}_DOWN", t.to_uppercase()), Warn, list.len(), summary, detail);
    }
    let detail = down.iter().map(|o| format!("{o} ({}) is down", place(map, o.0))).collect();
    a.add_some("OSD_DOWN", Warn, "osds down", detail);
}

/// Adds alerts for OSDs that stopped because their store failed, and for those whose device does not answer, with the
/// reason each reported.
fn store_failures(a: &mut Adder, state: &ClusterState) {
    let map = &*state.osdmap;
    let said = state.osds.metadata.iter().filter(|(o, _)| map.exists(**o) && !map.is_up(**o));
    let detail = said.filter_map(|(o, m)| {
        let host = m.get("hostname").map_or("an unknown host", String::as_str);
        Some(format!("{o} on {host} stopped: {}", m.get(STORE_FAILURE)?))
    });
    a.add_some("OSD_STORE_FAILED", Warn, "osds stopped because their store failed", detail.collect());
    let silent = state.osds.metadata.iter().filter(|(o, _)| map.exists(**o));
    let detail = silent.filter_map(|(o, m)| {
        let host = m.get("hostname").map_or("an unknown host", String::as_str);
        let then = if map.is_up(*o) { "it is in service" } else { "it is out of service until the device answers" };
        Some(format!("{o} on {host}: {}; {then}", m.get(DEVICE_SILENCE)?))
    });
    a.add_some("OSD_DEVICE_SILENT", Warn, "osds have a device that does not answer", detail.collect());
}

/// Adds an alert for OSDs that run, but can't use the NUMA node of their options.
fn unbound(a: &mut Adder, state: &ClusterState) {
    let up = state.osds.metadata.iter().filter(|(o, _)| state.osdmap.is_up(**o));
    let detail = up.filter_map(|(o, m)| {
        let host = m.get("hostname").map_or("an unknown host", String::as_str);
        Some(format!("{o} on {host} runs on all nodes: {}", m.get("numa_node_error")?))
    });
    a.add_some("OSD_NUMA_NODE", Warn, "osds can't use the NUMA node of their options", detail.collect());
}

/// Adds an alert for OSDs whose maps are newer than the monitor's.
fn ahead(a: &mut Adder, state: &ClusterState) {
    let map = &*state.osdmap;
    let ahead = state.refused.ahead.iter().filter(|(o, _)| map.exists(**o));
    let detail = ahead.map(|(o, e)| {
        format!(
            "{o} has map {e}, the monitor has {}: its state is an old copy; stop the monitors and run `belemnite state advance`",
            map.epoch
        )
    });
    a.add_some("OSD_MAP_AHEAD", Err, "osds have newer maps than the monitor", detail.collect());
}

/// Adds an alert for OSDs that were refused because they can't work with those that are up.
fn foreign(a: &mut Adder, state: &ClusterState) {
    let map = &*state.osdmap;
    let refused = state.refused.foreign.iter().filter(|(o, _)| map.exists(**o) && !map.is_up(**o));
    let detail = refused.map(|(o, why)| format!("{o} may not boot: {why}")).collect();
    a.add_some("OSD_INCOMPATIBLE", Warn, "osds refused, since other osds can't work with them", detail);
}

fn orphans(a: &mut Adder, map: &OsdMap) {
    let mut seen: BTreeSet<i32> = BTreeSet::new();
    for b in map.crush.iter_buckets() {
        seen.extend(b.items.iter().filter(|i| **i >= 0 && !map.exists(OsdId(**i))));
    }
    let detail = seen.iter().map(|o| format!("osd.{o} exists in crush map but not in osdmap")).collect();
    a.add_some("OSD_ORPHAN", Warn, "osds exist in the crush map but not in the osdmap", detail);
}

fn fullness(a: &mut Adder, map: &OsdMap) {
    let (full, backfill, near) = (map.full_ratio, map.backfillfull_ratio, map.nearfull_ratio);
    let mut order = Vec::new();
    let mut pair = |low: (&str, f32), high: (&str, f32)| {
        if high.1 < low.1 {
            let (h, l) = (short(f64::from(high.1)), short(f64::from(low.1)));
            order.push(format!("{} ({h}) < {} ({l}), increased", high.0, low.0));
        }
    };
    pair(("nearfull_ratio", near), ("backfillfull_ratio", backfill));
    pair(("backfillfull_ratio", backfill), ("full_ratio", full));
    if !order.is_empty() {
        a.add("OSD_OUT_OF_ORDER_FULL", Err, order.len(), "full ratio(s) out of order".into(), order);
    }
    let of = |bit: u32, text: &str| -> Vec<String> {
        let worse = match bit {
            osd_state::FULL => 0,
            osd_state::BACKFILLFULL => osd_state::FULL,
            _ => osd_state::FULL | osd_state::BACKFILLFULL,
        };
        map.osds()
            .filter(|o| map.is_in(*o) && map.state(*o) & bit != 0 && map.state(*o) & worse == 0)
            .map(|o| format!("{o} is {text}"))
            .collect()
    };
    a.add_some("OSD_FULL", Err, "full osd(s)", of(osd_state::FULL, "full"));
    a.add_some("OSD_BACKFILLFULL", Warn, "backfillfull osd(s)", of(osd_state::BACKFILLFULL, "backfill full"));
    a.add_some("OSD_NEARFULL", Warn, "nearfull osd(s)", of(osd_state::NEARFULL, "near full"));
}

fn flags(a: &mut Adder, map: &OsdMap) {
    let names: Vec<&str> =
        map_flag::NAMES.iter().filter(|(b, _)| map.flags & b & !QUIET_FLAGS != 0).map(|(_, n)| *n).collect();
    if !names.is_empty() {
        a.add("OSDMAP_FLAGS", Warn, names.len(), format!("{} flag(s) set", names.join(",")), Vec::new());
    }
}

/// A line, not an alert, about pools whose PGs are not scrubbed.
fn scrub_flags(a: &mut Adder, map: &OsdMap) {
    let (mut said, mut detail) = (BTreeSet::new(), Vec::new());
    for (id, p) in map.pools.iter() {
        let name = map.pool_name(*id).unwrap_or_default();
        for (i, (bit, word)) in [(flag::NOSCRUB, "noscrub"), (flag::NODEEP_SCRUB, "nodeep-scrub")].iter().enumerate() {
            if p.has_flag(*bit) {
                said.insert((i, *word));
                detail.push(format!("Pool {name} has {word} flag"));
            }
        }
    }
    if !detail.is_empty() {
        let words: Vec<&str> = said.into_iter().map(|(_, w)| w).collect();
        let summary = format!("Some pool(s) have the {} flag(s) set", words.join(", "));
        a.add("POOL_SCRUB_FLAGS", Severity::Ok, 0, summary, detail);
    }
}

/// Names of noup, nodown, noin and noout among state bits, in alphabetical order.
fn hold_names(bits: u32) -> String {
    let mut v: Vec<&str> =
        osd_state::NAMES.iter().filter(|(b, n)| bits & b != 0 && n.starts_with("no")).map(|(_, n)| *n).collect();
    v.sort_unstable();
    v.join(",")
}

fn node_flags(a: &mut Adder, map: &OsdMap) {
    const HOLD: u32 = osd_state::NOUP | osd_state::NODOWN | osd_state::NOIN | osd_state::NOOUT;
    let mut detail: Vec<String> = map
        .osds()
        .filter(|o| map.state(*o) & HOLD != 0)
        .map(|o| format!("{o} has flags {}", hold_names(map.state(o) & HOLD)))
        .collect();
    for (id, bits) in map.crush_node_flags.iter().filter(|(_, b)| **b & HOLD != 0) {
        let t = map.crush.type_of(*id).and_then(|t| map.crush.type_name(t)).unwrap_or("item");
        detail.push(format!("{t} {} has flags {}", map.crush.name_of(*id).unwrap_or_default(), hold_names(*bits)));
    }
    for (id, bits) in map.device_class_flags.iter().filter(|(_, b)| **b & HOLD != 0) {
        let name = map.crush.class_names.get(id).map(String::as_str).unwrap_or_default();
        detail.push(format!("device class '{name}' has flags {}", hold_names(*bits)));
    }
    let what = "OSDs or CRUSH {nodes, device-classes} have {NOUP,NODOWN,NOIN,NOOUT} flags set";
    a.add_some("OSD_FLAGS", Warn, what, detail);
}

/// Pools in autoscale mode `warn` that have far too many or too few PGs.
fn pool_sizes(a: &mut Adder, state: &ClusterState, map: &OsdMap) {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    let warned = |p: &cluster::PgPool| p.pg_autoscale_mode == cluster::pool::autoscale::WARN;
    if map.flags & map_flag::NOAUTOSCALE != 0 || !map.pools.values().any(|p| warned(p)) {
        return;
    }
    for (id, s) in sizes(&state.mgr.stats, map, pgs_per_osd(state)) {
        let Some(p) = map.pool(id).filter(|p| s.would_adjust && warned(p)) else { continue };
        let name = map.pool_name(id).unwrap_or_default();
        let line = format!("Pool {name} has {} placement groups, should have {}", p.pg_num_target, s.pg_num);
        if s.pg_num > p.pg_num_target { few.push(line) } else { many.push(line) }
    }
    for (code, what, detail) in [("POOL_TOO_FEW_PGS", "few", few), ("POOL_TOO_MANY_PGS", "many", many)] {
        let n = detail.len();
        if n > 0 {
            a.add(code, Warn, n, format!("{n} pools have too {what} placement groups"), detail);
        }
    }
}

fn pools(a: &mut Adder, state: &ClusterState, map: &OsdMap) {
    pool_sizes(a, state, map);
    let (mut full, mut backfill, mut near) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare, mut odd, mut anonymous) = (Vec::new(), Vec::new(), Vec::new());
    for (id, p) in map.pools.iter() {
        let name = map.pool_name(*id).unwrap_or_default();
        if p.has_flag(flag::FULL) {
            let why = if p.has_flag(flag::FULL_QUOTA) { "running out of quota" } else { "no space" };
            full.push(format!("pool '{name}' is full ({why})"));
        } else if p.has_flag(flag::BACKFILLFULL) {
            backfill.push(format!("pool '{name}' is backfillfull"));
        } else if p.has_flag(flag::NEARFULL) {
            near.push(format!("pool '{name}' is nearfull"));
        }
        if p.size == 1 {
            bare.push(format!("pool '{name}' has no replicas configured"));
        }
        if !p.pg_num_target.is_power_of_two() {
            odd.push(format!("pool '{name}' pg_num {} is not a power of two", p.pg_num_target));
        }
        if p.application_metadata.is_empty() && state.mgr.stats.pool(*id).stats.sum.num_objects > 0 {
            anonymous.push(format!("application not enabled on pool '{name}'"));
        }
    }
    a.add_some("POOL_FULL", Warn, "pool(s) full", full);
    a.add_some("POOL_BACKFILLFULL", Warn, "pool(s) backfillfull", backfill);
    a.add_some("POOL_NEARFULL", Warn, "pool(s) nearfull", near);
    if on(state, "mon_warn_on_pool_no_redundancy") {
        a.add_some("POOL_NO_REDUNDANCY", Warn, "pool(s) have no replicas configured", bare);
    }
    if on(state, "mon_warn_on_pool_pg_num_not_power_of_two") {
        a.add_some("POOL_PG_NUM_NOT_POWER_OF_TWO", Warn, "pool(s) have non-power-of-two pg_num", odd);
    }
    if !anonymous.is_empty() && on(state, "mon_warn_on_pool_no_app") {
        let n = anonymous.len();
        anonymous.push(
            "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', 'rgw', or freeform for custom applications."
                .into(),
        );
        a.add("POOL_APP_NOT_ENABLED", Warn, n, format!("{n} pool(s) do not have an application enabled"), anonymous);
    }
}
