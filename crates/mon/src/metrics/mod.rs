//! The cluster's metrics for Prometheus, with the names and labels of Ceph's module `prometheus`.
//!
//! [`exposition`] reads the state and writes text; `host::metrics` serves it. A family without a source here is left
//! out, so an expression that uses it finds nothing instead of zero.
//!
//! | module | contents |
//! | --- | --- |
//! | `daemons` | counters of daemons and of this monitor, named as Ceph's module names them |
//! | `text` | the text format of Prometheus' exposition (version 0.0.4) |

mod daemons;
mod text;

use crate::command::{self, Severity};
use crate::state::ClusterState;
use base::counter::Section;
use base::{Now, OsdId, PoolId};
use cluster::osdmap::map_flag;
use cluster::pool::{PoolOpt, kind};
use mgr::stats::space::{self, Usages};
use std::collections::BTreeMap;
use text::{Family, Kind, Text};
use wire::types::{ObjectStatSum, PgStat, pg_state};

/// The states of PGs that are counted per pool, in Ceph's order.
const PG_STATES: [&str; 33] = [
    "active",
    "clean",
    "down",
    "recovery_unfound",
    "backfill_unfound",
    "scrubbing",
    "degraded",
    "inconsistent",
    "peering",
    "repair",
    "recovering",
    "forced_recovery",
    "backfill_wait",
    "incomplete",
    "stale",
    "remapped",
    "deep",
    "backfilling",
    "forced_backfill",
    "backfill_toofull",
    "recovery_wait",
    "recovery_toofull",
    "undersized",
    "activating",
    "peered",
    "snaptrim",
    "snaptrim_wait",
    "snaptrim_error",
    "creating",
    "unknown",
    "premerge",
    "failed_repair",
    "laggy",
];

/// The flags of the map that have a metric.
const FLAGS: u32 = map_flag::NOUP
    | map_flag::NODOWN
    | map_flag::NOOUT
    | map_flag::NOIN
    | map_flag::NOBACKFILL
    | map_flag::NOREBALANCE
    | map_flag::NORECOVER
    | map_flag::NOSCRUB
    | map_flag::NODEEP_SCRUB;

/// All metrics, as text; `own` are the counters of this monitor. The work is proportional to PGs, pools, and daemons with
/// their counters.
#[must_use]
pub fn exposition(state: &ClusterState, own: &[Section], now: Now) -> String {
    let mut t = Text::default();
    health(&mut t, state, now);
    monitors(&mut t, state);
    managers(&mut t, state);
    file_systems(&mut t, state);
    osds(&mut t, state);
    pools(&mut t, state);
    pgs(&mut t, state);
    services(&mut t, state);
    daemons::counters(&mut t, state, own);
    t.finish()
}

fn health(t: &mut Text, state: &ClusterState, now: Now) {
    let checks = command::checks(state, now);
    let word = command::health_word_of(state, &checks, now);
    let n = ["HEALTH_OK", "HEALTH_WARN", "HEALTH_ERR"].iter().position(|w| *w == word).unwrap_or(2);
    t.family(Kind::Untyped, "health_status", "Cluster health status").put(&[], n as f64);
    let mut f = t.family(Kind::Gauge, "health_detail", "healthcheck status by type (0=inactive, 1=active)");
    for (name, c) in &checks {
        let severity = if c.severity == Severity::Err { "HEALTH_ERR" } else { "HEALTH_WARN" };
        f.put(&[("name", name), ("severity", severity)], 1.0);
    }
    let slow: u32 = state.mgr.stats.health.values().map(|h| h.slow_ops).sum();
    t.family(Kind::Gauge, "healthcheck_slow_ops", "OSD or Monitor requests taking a long time to process")
        .put(&[], f64::from(slow));
    let mut f = t.family(Kind::Gauge, "daemon_health_metrics", "Health metrics for Ceph daemons");
    for (o, h) in &state.mgr.stats.health {
        let daemon = o.to_string();
        f.put(&[("type", "SLOW_OPS"), ("ceph_daemon", &daemon)], f64::from(h.slow_ops));
        f.put(&[("type", "PENDING_CREATING_PGS"), ("ceph_daemon", &daemon)], h.pending_creating as f64);
    }
}

fn monitors(t: &mut Text, state: &ClusterState) {
    let up = state.quorum_ranks();
    let mut f = t.family(Kind::Gauge, "mon_quorum_status", "Monitors in quorum");
    for (rank, name) in state.monmap.ranks.iter().enumerate() {
        let serves = up.contains(&rank);
        f.put(&[("ceph_daemon", &format!("mon.{name}"))], f64::from(u8::from(serves)));
    }
    let mut f = t.family(Kind::Untyped, "mon_metadata", "MON Metadata");
    for (rank, name) in state.monmap.ranks.iter().enumerate() {
        let Some(m) = state.monmap.mons.get(name) else { continue };
        let own = *name == state.mon_name;
        let host = state.options.host_metadata.get("hostname").filter(|_| own).map_or("", String::as_str);
        let addr = m.public_addrs.msgr2().and_then(|a| a.sock).map(|s| s.ip().to_string()).unwrap_or_default();
        let labels = [
            ("ceph_daemon", format!("mon.{name}")),
            ("hostname", host.to_owned()),
            ("public_addr", addr),
            ("rank", rank.to_string()),
            ("ceph_version", command::VERSION.to_owned()),
        ];
        one(&mut f, &labels);
    }
}

/// Adds a sample whose value is 1.
fn one(f: &mut Family<'_>, labels: &[(&str, String)]) {
    let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
    f.put(&labels, 1.0);
}

fn managers(t: &mut Text, state: &ClusterState) {
    let name = format!("mgr.{}", state.mgrmap.active_name);
    let host = state.options.host_metadata.get("hostname").cloned().unwrap_or_default();
    let labels = [("ceph_daemon", name.clone()), ("hostname", host), ("ceph_version", command::VERSION.to_owned())];
    one(&mut t.family(Kind::Gauge, "mgr_metadata", "MGR metadata"), &labels);
    t.family(Kind::Gauge, "mgr_status", "MGR status (0=standby, 1=active)").put(&[("ceph_daemon", &name)], 1.0);
    let mut f = t.family(Kind::Gauge, "mgr_module_status", "MGR module status (0=disabled, 1=enabled, 2=auto-enabled)");
    for m in &state.mgrmap.modules {
        f.put(&[("name", m)], 1.0);
    }
}

fn file_systems(t: &mut Text, state: &ClusterState) {
    let mut f = t.family(Kind::Untyped, "fs_metadata", "FS Metadata");
    for fs in state.fs.map.filesystems.values() {
        let pools: Vec<String> = fs.mds_map.data_pools.iter().map(|p| p.0.to_string()).collect();
        let labels = [
            ("data_pools", pools.join(",")),
            ("fs_id", fs.fscid.to_string()),
            ("metadata_pool", fs.mds_map.metadata_pool.0.to_string()),
            ("name", fs.mds_map.fs_name.clone()),
        ];
        one(&mut f, &labels);
    }
    let mut f = t.family(Kind::Untyped, "mds_metadata", "MDS Metadata");
    for m in state.fs.map.daemons() {
        let meta = |k: &str| state.fs.metadata.get(&m.global_id).and_then(|x| x.get(k)).cloned().unwrap_or_default();
        let fs = state.fs.map.mds_roles.get(&m.global_id).copied().unwrap_or(-1);
        let labels = [
            ("ceph_daemon", format!("mds.{}", m.name)),
            ("fs_id", fs.to_string()),
            ("hostname", meta("hostname")),
            ("public_addr", m.addrs.to_string()),
            ("rank", m.rank.to_string()),
            ("ceph_version", meta("ceph_version")),
        ];
        one(&mut f, &labels);
    }
}

/// A disk below an OSD.
struct Disk {
    daemon: String,
    device: String,
    host: String,
    /// Name and id, as in the metadata of the OSD.
    id: String,
}

impl Disk {
    fn labels(&self) -> [(&'static str, String); 7] {
        [
            ("ceph_daemon", self.daemon.clone()),
            ("device", format!("/dev/{}", self.device)),
            ("db_device", String::new()),
            ("wal_device", String::new()),
            ("instance", self.host.clone()),
            ("devices", self.device.clone()),
            ("device_ids", self.id.clone()),
        ]
    }
}

fn disk_families(t: &mut Text, disks: Vec<Disk>) {
    let mut f = t.family(Kind::Untyped, "disk_occupation", "Associate Ceph daemon with disk used");
    disks.iter().for_each(|d| one(&mut f, &d.labels()));
    // Each disk once, with all its daemons: for expressions that join on the disk.
    let mut shared: BTreeMap<(String, String), Disk> = BTreeMap::new();
    for d in disks {
        match shared.get_mut(&(d.host.clone(), d.device.clone())) {
            Some(s) => s.daemon = format!("{} + {}", s.daemon, d.daemon),
            None => _ = shared.insert((d.host.clone(), d.device.clone()), d),
        }
    }
    let help = "Associate Ceph daemon with disk used for displaying to humans, not for joining tables";
    let mut f = t.family(Kind::Untyped, "disk_occupation_human", help);
    shared.values().for_each(|d| one(&mut f, &d.labels()));
}

fn osds(t: &mut Text, state: &ClusterState) {
    let map = &state.osdmap;
    for (bit, name) in map_flag::NAMES.into_iter().filter(|(bit, _)| FLAGS & bit != 0) {
        let set = map.flags & bit != 0;
        t.family(Kind::Untyped, &format!("osd_flag_{name}"), &format!("OSD Flag {name}"))
            .put(&[], f64::from(u8::from(set)));
    }
    let all: Vec<OsdId> = map.osds().filter(|o| map.exists(*o)).collect();
    let mut f = t.family(Kind::Untyped, "osd_metadata", "OSD Metadata");
    let mut disks: Vec<Disk> = Vec::new();
    for o in &all {
        let meta = state.osds.metadata.get(o);
        let of = |k: &str| meta.and_then(|m| m.get(k)).cloned().unwrap_or_default();
        let ip = |a: Option<&base::AddrVec>| {
            a.and_then(|a| a.msgr2()).and_then(|a| a.sock).map(|s| s.ip().to_string()).unwrap_or_default()
        };
        let labels = [
            ("back_iface", of("back_iface")),
            ("ceph_daemon", o.to_string()),
            ("cluster_addr", ip(map.cluster_addr(*o))),
            ("device_class", map.crush.class_of(o.0).unwrap_or_default().to_owned()),
            ("front_iface", of("front_iface")),
            ("hostname", of("hostname")),
            ("objectstore", of("osd_objectstore")),
            ("public_addr", ip(map.client_addr(*o))),
            ("ceph_version", of("ceph_version")),
        ];
        one(&mut f, &labels);
        let (devices, ids) = (of("devices"), of("device_ids"));
        disks.extend(devices.split(',').filter(|d| !d.is_empty()).map(|d| Disk {
            daemon: o.to_string(),
            device: d.to_owned(),
            host: of("hostname"),
            id: ids.split(',').find(|i| i.split_once('=').is_some_and(|(n, _)| n == d)).unwrap_or_default().to_owned(),
        }));
    }
    disk_families(t, disks);
    let mut each = |name: &str, help: &str, value: &dyn Fn(OsdId) -> Option<f64>| {
        let mut f = t.family(Kind::Untyped, name, help);
        for o in &all {
            if let Some(v) = value(*o) {
                f.put(&[("ceph_daemon", &o.to_string())], v);
            }
        }
    };
    let flag = |b: bool| Some(f64::from(u8::from(b)));
    let stat = |o: OsdId| state.mgr.stats.osd(o);
    each("osd_weight", "OSD status weight", &|o| {
        Some(f64::from(map.weight(o)) / f64::from(cluster::osdmap::WEIGHT_IN))
    });
    each("osd_up", "OSD status up", &|o| flag(map.is_up(o)));
    each("osd_in", "OSD status in", &|o| flag(map.is_in(o)));
    each("osd_apply_latency_ms", "OSD stat apply_latency_ms", &|o| Some(milli(stat(o)?.os_perf_stat.apply_latency_ns)));
    each("osd_commit_latency_ms", "OSD stat commit_latency_ms", &|o| {
        Some(milli(stat(o)?.os_perf_stat.commit_latency_ns))
    });
    each("osd_stat_bytes", "Size of the OSD", &|o| Some(stat(o)?.statfs.total as f64));
    each("osd_stat_bytes_used", "Used bytes of the OSD", &|o| Some(space::used_raw(&stat(o)?.statfs) as f64));
    each("osd_stat_bytes_avail", "Available bytes of the OSD", &|o| Some(stat(o)?.statfs.available as f64));
    each("osd_numpg", "PGs of the OSD", &|o| Some(f64::from(stat(o)?.num_pgs)));
}

fn milli(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn pools(t: &mut Text, state: &ClusterState) {
    let (map, stats) = (&state.osdmap, &state.mgr.stats);
    let total = stats.osd_sum().statfs;
    let mut cluster = |name: &str, v: f64| {
        t.family(Kind::Gauge, &format!("cluster_{name}"), &format!("DF {name}")).put(&[], v);
    };
    cluster("total_bytes", total.total as f64);
    cluster("total_used_bytes", space::used(&total) as f64);
    cluster("total_used_raw_bytes", space::used_raw(&total) as f64);
    let sum = &stats.sum().stats.sum;
    let kinds = [
        ("degraded", sum.num_objects_degraded),
        ("misplaced", sum.num_objects_misplaced),
        ("unfound", sum.num_objects_unfound),
    ];
    for (name, v) in kinds {
        t.family(Kind::Gauge, &format!("num_objects_{name}"), &format!("Number of {name} objects")).put(&[], v as f64);
    }
    let mut f = t.family(Kind::Untyped, "pool_metadata", "POOL Metadata");
    for (id, p) in map.pools.iter() {
        let profile = map.erasure_code_profiles.get(&p.erasure_code_profile);
        let of = |k: &str| profile.and_then(|x| x.get(k)).cloned().unwrap_or_default();
        let coded = p.kind == kind::ERASURE;
        let description = if coded { format!("ec:{}+{}", of("k"), of("m")) } else { format!("replica:{}", p.size) };
        let mode = match p.opt("compression_mode") {
            Some(PoolOpt::Str(s)) => s.as_str(),
            _ => "none",
        };
        let labels = [
            ("pool_id", id.0.to_string()),
            ("name", map.pool_name(*id).unwrap_or_default().to_owned()),
            ("type", if coded { "erasure" } else { "replicated" }.to_owned()),
            ("description", description),
            ("compression_mode", mode.to_owned()),
        ];
        one(&mut f, &labels);
    }
    let mut usages = Usages::new(stats, map);
    let used: BTreeMap<PoolId, space::PoolUsage> = map.pools.iter().map(|(id, p)| (*id, usages.of(*id, p))).collect();
    let mut each = |kind: Kind, name: &str, value: &dyn Fn(PoolId, &ObjectStatSum, &space::PoolUsage) -> f64| {
        let mut f = t.family(kind, &format!("pool_{name}"), &format!("DF pool {name}"));
        for (id, u) in &used {
            f.put(&[("pool_id", &id.0.to_string())], value(*id, &stats.pool(*id).stats.sum, u));
        }
    };
    let quota = |id: PoolId| map.pool(id).map_or((0, 0), |p| (p.quota_max_bytes, p.quota_max_objects));
    each(Kind::Gauge, "max_avail", &|_, _, u| u.max_avail as f64);
    each(Kind::Gauge, "avail_raw", &|_, _, u| u.avail_raw as f64);
    each(Kind::Gauge, "stored", &|_, _, u| u.stored as f64);
    each(Kind::Gauge, "stored_raw", &|_, _, u| u.stored_raw as f64);
    each(Kind::Gauge, "objects", &|_, s, _| s.num_objects as f64);
    each(Kind::Gauge, "dirty", &|_, _, _| 0.0);
    each(Kind::Gauge, "quota_bytes", &|id, _, _| quota(id).0 as f64);
    each(Kind::Gauge, "quota_objects", &|id, _, _| quota(id).1 as f64);
    each(Kind::Counter, "rd", &|_, s, _| s.num_rd as f64);
    each(Kind::Counter, "rd_bytes", &|_, s, _| s.num_rd_kb as f64 * 1024.0);
    each(Kind::Counter, "wr", &|_, s, _| s.num_wr as f64);
    each(Kind::Counter, "wr_bytes", &|_, s, _| s.num_wr_kb as f64 * 1024.0);
    each(Kind::Gauge, "compress_bytes_used", &|id, _, _| stats.pool(id).store_stats.data_compressed_allocated as f64);
    each(Kind::Gauge, "compress_under_bytes", &|id, _, _| stats.pool(id).store_stats.data_compressed_original as f64);
    each(Kind::Gauge, "bytes_used", &|_, _, u| u.used as f64);
    each(Kind::Gauge, "percent_used", &|_, _, u| u.used_ratio);
    each(Kind::Gauge, "recovering_objects_per_sec", &|id, _, _| stats.rate(Some(id)).recovering_objects as f64);
    each(Kind::Gauge, "recovering_bytes_per_sec", &|id, _, _| stats.rate(Some(id)).recovering_bytes as f64);
    each(Kind::Gauge, "recovering_keys_per_sec", &|id, _, _| stats.rate(Some(id)).recovering_keys as f64);
    each(Kind::Gauge, "num_objects_recovered", &|_, s, _| s.num_objects_recovered as f64);
    each(Kind::Gauge, "num_bytes_recovered", &|_, s, _| s.num_bytes_recovered as f64);
}

fn pgs(t: &mut Text, state: &ClusterState) {
    let (map, stats) = (&state.osdmap, &state.mgr.stats);
    let bits: Vec<Option<u64>> = PG_STATES.iter().map(|n| pg_state::from_name(n)).collect();
    let mut by: BTreeMap<PoolId, (u64, Vec<u64>)> =
        map.pools.iter().map(|(id, p)| (*id, (u64::from(p.pg_num), vec![0; PG_STATES.len()]))).collect();
    let mut count = |id: PoolId, st: &PgStat| {
        let Some((unseen, n)) = by.get_mut(&id) else { return };
        *unseen = unseen.saturating_sub(1);
        for (n, bit) in n.iter_mut().zip(&bits) {
            *n += u64::from(bit.is_some_and(|b| st.state() & b != 0));
        }
    };
    stats.pgs().for_each(|(pg, st)| count(pg.pool, st));
    let mut f = t.family(Kind::Gauge, "pg_total", "PG Total Count per Pool");
    for (id, p) in map.pools.iter() {
        f.put(&[("pool_id", &id.0.to_string())], f64::from(p.pg_num));
    }
    for (i, name) in PG_STATES.iter().enumerate() {
        let mut f = t.family(Kind::Gauge, &format!("pg_{name}"), &format!("PG {name} per pool"));
        for (id, (unseen, n)) in &by {
            let v = if *name == "unknown" { *unseen } else { n.get(i).copied().unwrap_or(0) };
            f.put(&[("pool_id", &id.0.to_string())], v as f64);
        }
    }
}

/// Gateways and mirrors.
fn services(t: &mut Text, state: &ClusterState) {
    for (service, family, help, id) in [
        ("rgw", "rgw_metadata", "RGW Metadata", "instance_id"),
        ("rbd-mirror", "rbd_mirror_metadata", "RBD Mirror Metadata", "instance_id"),
    ] {
        let mut f = t.family(Kind::Untyped, family, help);
        for (gid, d) in state.mgr.services.services.get(service).into_iter().flat_map(|s| &s.daemons) {
            let of = |k: &str| d.metadata.get(k).cloned().unwrap_or_default();
            let labels = [
                ("ceph_daemon", format!("{service}.{}", d.metadata.get("id").unwrap_or(gid))),
                ("hostname", of("hostname")),
                ("ceph_version", of("ceph_version")),
                (id, gid.clone()),
            ];
            one(&mut f, &labels);
        }
    }
}
