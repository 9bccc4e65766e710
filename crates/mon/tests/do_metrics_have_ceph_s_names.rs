//! Do the metrics for Prometheus have the names and labels of Ceph's module, and true values?

mod support;

use base::{OsdId, PgId};
use mon::state::Role;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use support::*;
use wire::msg::MPgStats;
use wire::types::{OsdStat, PgStat, StoreStatfs, pg_state};

/// The families of a text: type, and samples by labels.
fn families(text: &str) -> BTreeMap<String, (String, BTreeMap<String, f64>)> {
    let mut all: BTreeMap<String, (String, BTreeMap<String, f64>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(all.insert(name.into(), (kind.into(), BTreeMap::new())).is_none(), "{name} stands twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let family = all.get_mut(name).unwrap_or_else(|| panic!("{name} has no type"));
            let old = family.1.insert(labels.trim_end_matches('}').into(), value.parse().unwrap());
            assert!(old.is_none(), "{line} stands twice");
        }
    }
    all
}

/// Families of Ceph's module that dashboards and alerts use and that have a source here.
const NAMES: &[&str] = &[
    "ceph_cluster_total_bytes",
    "ceph_cluster_total_used_bytes",
    "ceph_cluster_total_used_raw_bytes",
    "ceph_daemon_health_metrics",
    "ceph_fs_metadata",
    "ceph_health_detail",
    "ceph_health_status",
    "ceph_healthcheck_slow_ops",
    "ceph_mds_metadata",
    "ceph_mgr_metadata",
    "ceph_mgr_status",
    "ceph_mon_metadata",
    "ceph_mon_quorum_status",
    "ceph_num_objects_degraded",
    "ceph_osd_apply_latency_ms",
    "ceph_osd_commit_latency_ms",
    "ceph_osd_flag_noout",
    "ceph_osd_in",
    "ceph_osd_metadata",
    "ceph_osd_numpg",
    "ceph_osd_stat_bytes",
    "ceph_osd_stat_bytes_used",
    "ceph_osd_up",
    "ceph_osd_weight",
    "ceph_pg_active",
    "ceph_pg_clean",
    "ceph_pg_total",
    "ceph_pool_max_avail",
    "ceph_pool_metadata",
    "ceph_pool_objects",
    "ceph_pool_percent_used",
    "ceph_pool_rd",
    "ceph_pool_stored",
    "ceph_pool_wr_bytes",
];

fn cluster() -> (Cluster, u64) {
    let (mut c, admin, _) = Cluster::with_osds(3);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p\"q", "pg_num": 4, "pgp_num": 4 }));
    let pool = c.map().pool_by_name("p\"q").unwrap();
    let mut by: BTreeMap<OsdId, BTreeMap<PgId, PgStat>> = BTreeMap::new();
    for seed in 0..3 {
        let pg = PgId { pool, seed };
        let at = c.map().pg_to_up_acting(pg);
        let mut s = PgStat {
            reported_epoch: c.map().epoch,
            reported_seq: 1,
            up: at.up.to_vec(),
            acting: at.acting.to_vec(),
            up_primary: at.up_primary,
            acting_primary: at.acting_primary,
            ..PgStat::default()
        };
        s.set_state(pg_state::ACTIVE | if seed == 0 { pg_state::CLEAN } else { pg_state::DEGRADED });
        (s.stats.sum.num_objects, s.stats.sum.num_object_copies, s.stats.sum.num_rd) = (7, 21, 5);
        by.entry(at.acting_primary).or_default().insert(pg, s);
    }
    for o in 0..3 {
        let statfs = StoreStatfs { total: 1 << 40, available: 3 << 38, ..StoreStatfs::default() };
        let osd_stat = OsdStat { statfs, num_pgs: 4, ..OsdStat::default() };
        let s = c.osd_session(o, osd_addr(o), Role::Mgr);
        let pg_stat = by.remove(&OsdId(o)).unwrap_or_default();
        c.send(s, &MPgStats { fsid: FSID, osd_stat, pg_stat, ..MPgStats::default() });
    }
    (c, admin)
}

#[test]
fn names_labels_and_values_are_those_of_ceph_s_module() {
    let (mut c, admin) = cluster();
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    c.ok(admin, &json!({ "prefix": "osd out", "ids": ["2"] }));
    let text = mon::metrics::exposition(c.core.state(), &[], c.now);
    let all = families(&text);
    let missing: Vec<_> = NAMES.iter().filter(|n| !all.contains_key(**n)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let of = |name: &str, labels: &str| {
        *all[name].1.get(labels).unwrap_or_else(|| panic!("{name}{{{labels}}} among {:?}", all[name].1))
    };
    let pool = c.map().pool_by_name("p\"q").unwrap().0;
    let p = format!("pool_id=\"{pool}\"");
    assert_eq!((of("ceph_pg_total", &p), of("ceph_pg_active", &p), of("ceph_pg_clean", &p)), (4.0, 3.0, 1.0));
    assert_eq!((of("ceph_pg_degraded", &p), of("ceph_pg_unknown", &p)), (2.0, 1.0));
    assert_eq!((of("ceph_pool_objects", &p), of("ceph_pool_rd", &p)), (21.0, 15.0));
    assert_eq!(all["ceph_pool_rd"].0, "counter");
    assert_eq!((of("ceph_osd_flag_noout", ""), of("ceph_osd_flag_noup", "")), (1.0, 0.0));
    assert_eq!((of("ceph_osd_in", "ceph_daemon=\"osd.2\""), of("ceph_osd_up", "ceph_daemon=\"osd.2\"")), (0.0, 1.0));
    assert_eq!(of("ceph_osd_weight", "ceph_daemon=\"osd.0\""), 1.0);
    assert_eq!(of("ceph_osd_stat_bytes", "ceph_daemon=\"osd.0\""), (1u64 << 40) as f64);
    assert_eq!(of("ceph_health_status", ""), 1.0, "{:?}", all["ceph_health_detail"]);
    assert!(all["ceph_health_detail"].1.contains_key("name=\"OSDMAP_FLAGS\",severity=\"HEALTH_WARN\""));
    let at = |devices: &str, ids: &str| {
        let pairs = [("hostname", "h"), ("devices", devices), ("device_ids", ids)];
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    };
    c.core.pretend(|s| drop(s.osds.metadata.insert(OsdId(0), at("sda", "sda=A_1"))));
    c.core.pretend(|s| drop(s.osds.metadata.insert(OsdId(1), at("sda,sdb", "sda=A_1,sdb=B_2"))));
    let text = mon::metrics::exposition(c.core.state(), &[], c.now);
    let disks = families(&text);
    let (each, shared) = (&disks["ceph_disk_occupation"].1, &disks["ceph_disk_occupation_human"].1);
    assert_eq!((each.len(), shared.len()), (3, 2));
    let of = |daemon: &str, d: &str, id: &str| {
        format!(
            "ceph_daemon=\"{daemon}\",device=\"/dev/{d}\",db_device=\"\",wal_device=\"\",instance=\"h\",\
             devices=\"{d}\",device_ids=\"{id}\""
        )
    };
    assert!(each.contains_key(&of("osd.1", "sdb", "sdb=B_2")), "{each:?}");
    assert!(shared.contains_key(&of("osd.0 + osd.1", "sda", "sda=A_1")), "{shared:?}");
    let meta = all["ceph_pool_metadata"].1.keys().next().unwrap();
    assert!(meta.contains("name=\"p\\\"q\",type=\"replicated\",description=\"replica:3\""), "{meta}");
}

#[test]
fn the_module_is_switched_on_and_its_address_is_announced() {
    let (mut c, admin) = cluster();
    let show = |c: &mut Cluster, prefix: &str| -> serde_json::Value {
        serde_json::from_str(&c.ok(admin, &json!({ "prefix": prefix, "format": "json" }))).unwrap()
    };
    let off = |v: &serde_json::Value| -> BTreeSet<String> {
        v["disabled_modules"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
    };
    let modules = show(&mut c, "mgr module ls");
    assert!(off(&modules).contains("prometheus"), "{modules}");
    c.ok(admin, &json!({ "prefix": "mgr module enable", "module": "prometheus" }));
    let modules = show(&mut c, "mgr module ls");
    assert!(!off(&modules).contains("prometheus") && modules["enabled_modules"].to_string().contains("prometheus"));
    c.core.handle(mon::core::Event::Offer("prometheus", Some("http://10.0.0.1:9283/".into())), c.now);
    c.pump();
    assert_eq!(show(&mut c, "mgr services"), json!({ "prometheus": "http://10.0.0.1:9283/" }));
    let epoch = c.core.state().mgrmap.epoch;
    c.ticks(30);
    assert_eq!(c.core.state().mgrmap.epoch, epoch, "at rest it costs no map");
    c.ok(admin, &json!({ "prefix": "mgr module disable", "module": "prometheus" }));
    c.core.handle(mon::core::Event::Offer("prometheus", None), c.now);
    c.pump();
    assert_eq!(show(&mut c, "mgr services"), json!({}));
}
