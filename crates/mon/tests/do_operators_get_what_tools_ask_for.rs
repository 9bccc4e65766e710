//! Do commands and health checks that operators' tools use have their effect: the autoscaler's switch, progress, crash
//! counts, NUMA nodes, rates of OSDs, alerts about sizes?

mod support;

use base::{OsdId, PgId};
use mon::state::Role;
use serde_json::{Value, json};
use state::StateStore as _;
use std::collections::BTreeMap;
use support::*;
use wire::msg::{CounterValue, MMgrOpen, MMgrReport, MPgStats, PackedCounters};
use wire::types::{DaemonConfig, OsdStat, PerfCounterType, PgStat, StoreStatfs, Text, pg_state};
use wire::{Encode as _, Features};

fn say(c: &mut Cluster, admin: u64, prefix: &str) -> (i32, String) {
    let (rc, rs, out) = c.command(admin, &json!({ "prefix": prefix }), "");
    (rc, format!("{rs}{out}").trim().to_owned())
}

fn health(c: &mut Cluster, admin: u64) -> BTreeMap<String, Value> {
    let (_, _, out) = c.command(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }), "");
    let j: Value = serde_json::from_str(&out).unwrap();
    j["checks"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v["detail"][0]["message"].clone())).collect()
}

/// Reports each PG of a pool with this many objects, and the space of the OSDs.
fn report(c: &mut Cluster, pool: &str, objects: i64, queue: u32) {
    let id = c.map().pool_by_name(pool).unwrap();
    let n = c.map().pool(id).unwrap().pg_num;
    let mut by: BTreeMap<OsdId, BTreeMap<PgId, PgStat>> = BTreeMap::new();
    for seed in 0..n {
        let pg = PgId { pool: id, seed };
        let at = c.map().pg_to_up_acting(pg);
        let mut s = PgStat {
            reported_epoch: c.map().epoch,
            reported_seq: 1 + u64::from(queue),
            acting: at.acting.to_vec(),
            up: at.up.to_vec(),
            acting_primary: at.acting_primary,
            up_primary: at.up_primary,
            snaptrimq_len: if seed == 0 { queue } else { 0 },
            ..PgStat::default()
        };
        s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
        s.stats.sum.num_objects = objects;
        by.entry(at.acting_primary).or_default().insert(pg, s);
    }
    for o in 0..3 {
        let pg_stat = by.remove(&OsdId(o)).unwrap_or_default();
        let snap_trim_queue_len = pg_stat.values().map(|s| s.snaptrimq_len as i32).sum();
        let statfs = StoreStatfs { total: 1 << 40, available: 3 << 38, ..StoreStatfs::default() };
        let osd_stat = OsdStat { statfs, snap_trim_queue_len, ..OsdStat::default() };
        let s = c.osd_session(o, osd_addr(o), Role::Mgr);
        c.send(s, &MPgStats { fsid: FSID, osd_stat, pg_stat, ..MPgStats::default() });
    }
}

#[test]
fn the_autoscaler_is_switched_for_all_pools_and_releases_are_named() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let mut told = |prefix: &str| say(&mut c, admin, prefix);
    assert_eq!(told("osd pool get noautoscale"), (0, "noautoscale is off".into()));
    assert_eq!(told("osd pool set noautoscale"), (0, "noautoscale is set, all pools now have autoscale off".into()));
    assert_eq!(told("osd pool set noautoscale"), (0, "noautoscale is already set!".into()));
    assert_eq!(told("osd pool get noautoscale"), (0, "noautoscale is on".into()));
    assert_eq!(told("osd pool unset noautoscale"), (0, "noautoscale is unset, all pools now have autoscale on".into()));
    assert_eq!(told("osd pool unset noautoscale"), (0, "noautoscale is already unset!".into()));
}

#[test]
fn a_release_is_required_once_all_osds_announce_it() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let require = |c: &mut Cluster, release: &str| {
        let (rc, rs, _) = c.command(admin, &json!({ "prefix": "osd require-osd-release", "release": release }), "");
        (rc, rs)
    };
    // OSDs as those of Pacific.
    for release in ["quincy", "reef", "squid", "tentacle"] {
        let (rc, rs) = require(&mut c, release);
        let name = format!("not all up OSDs have CEPH_FEATURE_SERVER_{} feature", release.to_uppercase());
        assert!(rc == -1 && rs.starts_with(&name) && rs.contains("osd.0 and 1 others must be upgraded"), "{rc} {rs}");
    }
    assert_eq!(require(&mut c, "zenith").0, -22);
    let boot = |c: &mut Cluster, id: i32, nonce: u32, features: u64| {
        let at = addr(6900 + id as u16, nonce);
        let s = c.osd_session(id, at.clone(), Role::Mon);
        let mut m = boot_message(FSID, id, c.map().epoch, 0);
        m.osd_features = features;
        c.send(s, &m);
        c.map().client_addr(OsdId(id)) == Some(&at)
    };
    let newest = Features::PACIFIC.0 | Features::OSD_RELEASES.0;
    assert!(boot(&mut c, 0, 1, newest));
    let (rc, rs) = require(&mut c, "tentacle");
    assert!(rc == -1 && rs.ends_with("feature: osd.1 must be upgraded and restarted first"), "{rc} {rs}");
    assert!(boot(&mut c, 1, 1, newest));
    assert_eq!(require(&mut c, "squid"), (0, String::new()));
    assert_eq!(require(&mut c, "tentacle"), (0, String::new()));
    assert_eq!(require(&mut c, "tentacle"), (0, String::new()));
    assert_eq!(require(&mut c, "squid"), (-1, "require_osd_release cannot be lowered once it has been set".to_owned()));
    assert!(c.ok(admin, &json!({ "prefix": "osd dump" })).contains("\nrequire_osd_release tentacle\n"));
    // The encodings of maps stay those of Pacific.
    assert_eq!(c.map().client_addr(OsdId(0)).map(|a| a.0.len()), Some(1));
    assert!(!boot(&mut c, 1, 2, Features::PACIFIC.0), "an older OSD");
    assert!(boot(&mut c, 1, 3, newest));
}

#[test]
fn an_older_osd_does_not_boot_beside_a_new_requirement() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let newest = Features::PACIFIC.0 | Features::OSD_RELEASES.0;
    let boot = |c: &mut Cluster, id: i32, nonce: u32, features: u64| {
        let s = c.osd_session(id, addr(6900 + id as u16, nonce), Role::Mon);
        let mut m = boot_message(FSID, id, c.map().epoch, 0);
        m.osd_features = features;
        c.send(s, &m);
    };
    boot(&mut c, 0, 1, newest);
    c.ok(admin, &json!({ "prefix": "osd down", "ids": ["1"] }));
    // Both wait for the commit in flight, and share the next proposal.
    c.held = Some(Vec::new());
    c.ok_later(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    c.ok_later(admin, &json!({ "prefix": "osd require-osd-release", "release": "tentacle" }));
    boot(&mut c, 1, 2, Features::PACIFIC.0);
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    assert_eq!(c.map().require_osd_release, cluster::release::TENTACLE);
    assert!(c.map().is_down(OsdId(1)));
}

#[test]
fn without_osds_a_release_is_required_only_for_sure() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let mut cmd = json!({ "prefix": "osd require-osd-release", "release": "tentacle" });
    let (rc, rs, _) = c.command(admin, &cmd, "");
    assert!(rc == -1 && rs.starts_with("Not advisable to continue since no OSDs are up."), "{rc} {rs}");
    cmd["yes_i_really_mean_it"] = true.into();
    c.ok(admin, &cmd);
}

#[test]
fn commands_that_are_absent_name_what_to_use_instead() {
    let mut c = Cluster::new();
    let admin = c.admin();
    for (prefix, instead) in [
        ("orch host ls", "belemnite deploy"),
        ("nvme-gw create", "NVMe-oF"),
        ("nvme-gw show", "NVMe-oF"),
        ("telemetry on", "belemnite report"),
        ("osd pool stretch set", "datacenters"),
        ("fs subvolume charmap get", "belemnite up --mgr ceph"),
        ("mon enable_stretch_mode", "etcd"),
        ("fs snapshot mirror enable", "cephfs-mirror"),
    ] {
        let (rc, rs, _) = c.command(admin, &json!({ "prefix": prefix, "pool": "p" }), "");
        assert!(rc == -95 && rs.contains(&format!("does not support '{prefix}': ")), "{prefix}: {rc} {rs}");
        assert!(rs.contains(instead), "{rs}");
    }
    // `ceph` sends all words after those that a description has.
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "cephadm", "words": ["get-pub-key"] }), "");
    assert!(rc == -95 && rs.contains("belemnite deploy"), "{rs}");
    assert_eq!(c.command(admin, &json!({ "prefix": "orchestra" }), "").0, -22);
}

#[test]
fn a_follower_of_the_log_at_debug_level_is_told_of_reads() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.ticks(2);
    c.command(admin, &json!({ "prefix": "osd stat" }), "");
    let follower = c.client("client.f", "allow r");
    c.subscribe(follower, "log-debug", 0, false);
    c.take::<wire::msg::MLog>(follower);
    c.tell(admin, &json!({ "prefix": "sessions" }));
    for _ in 0..200 {
        c.command(admin, &json!({ "prefix": "osd stat" }), "");
    }
    let next = c.core.state().log.next;
    c.ticks(2);
    let sent = c.take::<wire::msg::MLog>(follower);
    let lines: Vec<String> = sent
        .iter()
        .flat_map(|m| &m.entries)
        .filter(|e| e.channel == "audit" && e.prio == 0)
        .map(|e| e.msg.to_string())
        .collect();
    assert_eq!(lines[0], "from='admin socket' entity='admin socket' cmd='sessions' args=[]: dispatch");
    assert!(lines[1].ends_with("cmd=[{\"prefix\":\"osd stat\"}]: dispatch"), "{}", lines[1]);
    assert_eq!(lines.len(), 50, "as many as are told of");
    assert!(c.core.state().log.next <= next + 2, "numbers of lines that are not stored stay few");
}

#[test]
fn a_follower_is_told_of_reads_while_refusals_are_summed_up() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let follower = c.client("client.f", "allow r");
    c.subscribe(follower, "log-debug", 0, false);
    let nobody = c.client("client.n", "allow service log r");
    let refused = json!({ "prefix": "osd down", "ids": ["0"] });
    c.command(nobody, &refused, "");
    c.out.clear();
    let mut lines = 0;
    for _ in 0..90 {
        c.command(admin, &json!({ "prefix": "osd stat" }), "");
        c.ticks(1);
        let sent = c.take::<wire::msg::MLog>(follower);
        lines += sent.iter().flat_map(|m| &m.entries).filter(|e| e.msg.contains("osd stat")).count();
    }
    c.ticks(2);
    let sent = c.take::<wire::msg::MLog>(follower);
    lines += sent.iter().flat_map(|m| &m.entries).filter(|e| e.msg.contains("osd stat")).count();
    assert_eq!(lines, 90);
}

#[test]
fn progress_is_shown_unless_it_is_switched_off() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    assert_eq!(say(&mut c, admin, "progress on"), (0, "progress already enabled!".into()));
    assert_eq!(say(&mut c, admin, "progress off"), (0, "progress disabled".into()));
    assert_eq!(say(&mut c, admin, "progress off"), (0, "progress already disabled!".into()));
    assert_eq!(say(&mut c, admin, "progress"), (0, "Nothing in progress".into()));
    let empty: Value = serde_json::from_str(&say(&mut c, admin, "progress json").1).unwrap();
    assert_eq!(empty, json!({ "completed": [], "events": [] }));
    assert_eq!(say(&mut c, admin, "progress on"), (0, "progress enabled".into()));
}

#[test]
fn crashes_are_counted_by_program() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let now = c.now.wall.iso().replace("+0000", "Z");
    for (id, stamp, name) in
        [("a", now.as_str(), "ceph-mds"), ("b", now.as_str(), "ceph-mds"), ("c", "2001-01-01T00:00:00.000000Z", "x")]
    {
        let crash = json!({ "crash_id": id, "timestamp": stamp, "process_name": name, "entity_name": "mds.a" });
        let (rc, rs, _) = c.command(admin, &json!({ "prefix": "crash post" }), &crash.to_string());
        assert_eq!(rc, 0, "{rs}");
    }
    let count =
        |c: &mut Cluster, hours: &str| c.command(admin, &json!({ "prefix": "crash json_report", "hours": hours }), "");
    assert_eq!(count(&mut c, "24").2.trim(), r#"{"ceph-mds":2}"#);
    assert_eq!(count(&mut c, "soon").0, -22);
}

#[test]
fn numa_nodes_are_those_that_osds_report() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let at = |node: &str| {
        BTreeMap::from([
            ("hostname".to_owned(), "h".to_owned()),
            ("network_numa_node".to_owned(), node.to_owned()),
            ("objectstore_numa_node".to_owned(), String::new()),
            ("numa_node".to_owned(), node.to_owned()),
            ("numa_node_cpus".to_owned(), "8-15".to_owned()),
        ])
    };
    c.core.pretend(|s| drop(s.osds.metadata.insert(OsdId(0), at("1"))));
    let (_, _, out) = c.command(admin, &json!({ "prefix": "osd numa-status", "format": "json" }), "");
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        rows[0],
        json!({ "osd": 0, "host": "h", "network_numa_node": 1, "numa_node": 1, "numa_node_cpus": "8-15" })
    );
    assert_eq!(rows[1].as_object().unwrap().len(), 2, "{rows}");
    let (_, _, out) = c.command(admin, &json!({ "prefix": "osd numa-status" }), "");
    let words: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words, ["0", "h", "1", "-", "1", "8-15"]);
}

#[test]
fn health_names_an_osd_that_cannot_use_its_numa_node() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let why = "osd_numa_node: there is no NUMA node 7; this machine has 0";
    let said = BTreeMap::from([("hostname", "h"), ("numa_node_error", why)].map(|(k, v)| (k.to_owned(), v.to_owned())));
    let health = json!({ "prefix": "health", "detail": "detail" });
    assert!(!c.command(admin, &health, "").2.contains("OSD_NUMA_NODE"));
    c.core.pretend(|s| drop(s.osds.metadata.insert(OsdId(1), said)));
    let (_, _, out) = c.command(admin, &health, "");
    assert!(out.contains("[WRN] OSD_NUMA_NODE: 1 osds can't use the NUMA node of their options"), "{out}");
    assert!(out.contains(&format!("osd.1 on h runs on all nodes: {why}")), "{out}");
}

#[test]
fn the_manager_role_tells_its_state_and_the_slow_links() {
    let (mut c, admin, _) = Cluster::with_osds(3);
    let pings = wire::types::HbPingTime { back_pingtime: [2_000_000, 1, 1], ..Default::default() };
    let osd_stat = OsdStat { hb_pingtime: [(OsdId(1), pings)].into(), ..OsdStat::default() };
    let s = c.osd_session(0, osd_addr(0), Role::Mgr);
    c.send(s, &MPgStats { fsid: FSID, osd_stat, ..MPgStats::default() });
    let mut local = |prefix: &str, args: Value| -> Value {
        let args = args.as_object().unwrap().clone();
        serde_json::from_slice(&c.core.local_command(prefix, &args)).unwrap()
    };
    assert_eq!(local("mgr_status", json!({}))["initialized"], json!(true));
    let slow = local("dump_osd_network", json!({}));
    assert_eq!((slow["threshold"].as_i64(), slow["entries"].as_array().map(Vec::len)), (Some(1000), Some(1)));
    assert_eq!(slow["entries"][0]["average"]["1min"].as_f64(), Some(2000.0));
    assert_eq!(local("dump_osd_network", json!({ "value": 0 }))["entries"].as_array().map(Vec::len), Some(2));
    let _ = admin;
}

#[test]
fn options_are_shown_as_the_daemon_has_them() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let values = |all: &[(&str, &[(i32, &str)])]| {
        let by = |by: &[(i32, &str)]| by.iter().map(|(n, v)| (*n, Text((*v).into()))).collect();
        let values = all.iter().map(|(name, v)| ((*name).to_owned(), by(v))).collect();
        let ignored_mon_values = [("keyring".to_owned(), Text("x".into()))].into();
        DaemonConfig { values, ignored_mon_values }.to_bytes(Features::PACIFIC)
    };
    let show = |c: &mut Cluster, who: &str, more: Value| {
        let mut cmd = json!({ "prefix": "config show", "who": who });
        cmd.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        c.command(admin, &cmd, "")
    };
    let s = c.osd_session(0, osd_addr(0), Role::Mgr);
    let config_bl = values(&[("debug_osd", &[(1, "1/5"), (2, "1/5"), (5, "5/5")]), ("keyring", &[(2, "/k")])]);
    c.send(s, &MMgrOpen { daemon_name: "0".into(), config_bl, ..MMgrOpen::default() });
    let (rc, _, out) = show(&mut c, "osd.0", json!({}));
    let rows: Vec<&str> = out.lines().map(str::trim_end).collect();
    let wanted = [
        "NAME       VALUE  SOURCE    OVERRIDES           IGNORES",
        "debug_osd  5/5    override  file[1/5],mon[1/5]",
        "keyring    /k     file                          mon",
    ];
    assert_eq!((rc, rows.as_slice()), (0, &wanted[..]), "{out}");
    let (_, _, out) = show(&mut c, "osd.0", json!({ "format": "json" }));
    let rows: Value = serde_json::from_str(&out).unwrap();
    let below = json!([{ "source": "mon", "value": "1/5" }, { "source": "file", "value": "1/5" }]);
    assert_eq!(rows[0], json!({ "name": "debug_osd", "value": "5/5", "source": "override", "overrides": below }));
    assert_eq!(rows[1]["ignores"], "mon");
    assert_eq!(show(&mut c, "osd.0", json!({ "key": "debug_osd" })).2, "5/5\n");
    assert_eq!(show(&mut c, "osd.0", json!({ "key": "osd_max_backfills" })).2, "1\n");
    // A report has the options if they changed.
    c.send(s, &MMgrReport { daemon_name: "0".into(), ..MMgrReport::default() });
    let config_bl = values(&[("debug_osd", &[(5, "5/5")])]);
    c.send(s, &MMgrReport { daemon_name: "0".into(), config_bl, ..MMgrReport::default() });
    let rows: Value = serde_json::from_str(&show(&mut c, "osd.0", json!({ "format": "json" })).2).unwrap();
    assert_eq!(rows, json!([{ "name": "debug_osd", "value": "5/5", "source": "override" }]));
    let (_, _, out) = c.command(admin, &json!({ "prefix": "config show-with-defaults", "who": "osd.0" }), "");
    assert!(out.lines().count() > 1700, "{}", out.lines().count());
    // Without a report the monitor shows what it tells the daemon.
    c.ok(admin, &json!({ "prefix": "config set", "who": "osd", "name": "debug_osd", "value": "7/7" }));
    assert!(show(&mut c, "osd.1", json!({})).2.contains("debug_osd  7/7    mon"));
    for who in ["osd.7", "mds.a", "client.x", "osd"] {
        assert_eq!(show(&mut c, who, json!({})).0, -2, "{who}");
    }
}

#[test]
fn blanks_around_a_section_do_not_count() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    for (blank, plain) in [("osd.0  ", "osd.0"), ("  osd.0", "osd.0"), (" osd / class:ssd ", "osd/class:ssd")] {
        c.ok(admin, &json!({ "prefix": "config set", "who": blank, "name": "debug_osd", "value": "7/7" }));
        assert_eq!(c.core.state().config.values.keys().map(|k| &k.who).collect::<Vec<_>>(), [plain], "{blank:?}");
        if plain == "osd.0" {
            let get = json!({ "prefix": "config get", "who": blank, "key": "debug_osd" });
            assert_eq!(c.command(admin, &get, "").2, "7/7\n");
            assert!(c.command(admin, &json!({ "prefix": "config show", "who": blank }), "").2.contains("7/7"));
        }
        c.ok(admin, &json!({ "prefix": "config rm", "who": blank, "name": "debug_osd" }));
        assert!(c.core.state().config.values.is_empty(), "{blank:?}");
    }
}

#[test]
fn rates_of_osds_and_metrics_come_from_their_counters() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let s = c.osd_session(0, osd_addr(0), Role::Mgr);
    c.send(s, &MMgrOpen { daemon_name: "0".into(), ..MMgrOpen::default() });
    let send = |c: &mut Cluster, declare: bool, writes: u64, bytes: u64| {
        let paths = [("osd.op_in_bytes", 10), ("osd.op_latency", 5), ("osd.op_w", 10), ("osd_up", 10)];
        let declare_types: Vec<_> = paths
            .iter()
            .filter(|_| declare)
            .map(|(p, kind)| PerfCounterType { path: (*p).into(), kind: *kind, priority: 5, ..Default::default() })
            .collect();
        let n = |v| CounterValue { value: v, ..CounterValue::default() };
        let latency = CounterValue { value: 1_500_000_000, avgcount: writes, avgcount2: writes };
        let values = [(10, n(bytes)), (5, latency), (10, n(writes)), (10, n(7))];
        let packed = PackedCounters::from_values(values).to_bytes(Features::PACIFIC);
        c.send(s, &MMgrReport { daemon_name: "0".into(), declare_types, packed, ..MMgrReport::default() });
    };
    send(&mut c, true, 10, 1 << 20);
    let status = |c: &mut Cluster| -> Vec<Vec<String>> {
        let (_, _, out) = c.command(admin, &json!({ "prefix": "osd status" }), "");
        out.lines().skip(1).map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
    };
    assert_eq!(status(&mut c)[0][4..8], ["-", "-", "-", "-"], "one report tells no rate");
    c.now.mono = c.now.mono + std::time::Duration::from_secs(5);
    send(&mut c, false, 60, 6 << 20);
    let rows = status(&mut c);
    assert_eq!(rows[0][4..6], ["10", "1024k"], "{rows:?}");
    assert_eq!(rows[1][4..8], ["-", "-", "-", "-"]);
    let text = mon::metrics::exposition(c.core.state(), &[], c.now);
    let line = |name: &str| text.lines().filter(|l| l.starts_with(name)).collect::<Vec<_>>();
    assert_eq!(line("ceph_osd_op_w{"), ["ceph_osd_op_w{ceph_daemon=\"osd.0\"} 60.0"]);
    assert_eq!(line("ceph_osd_op_latency_sum{"), ["ceph_osd_op_latency_sum{ceph_daemon=\"osd.0\"} 1.5"]);
    assert_eq!(line("ceph_osd_op_latency_count{"), ["ceph_osd_op_latency_count{ceph_daemon=\"osd.0\"} 60.0"]);
    assert_eq!(line("ceph_osd_up{").len(), 2, "a daemon's counter of this name changes nothing");
    assert!(line("ceph_osd_up{ceph_daemon=\"osd.0\"}")[0].ends_with(" 1.0"));
}

#[test]
fn sizes_out_of_proportion_raise_alerts() {
    let (mut c, admin, _) = Cluster::with_osds(3);
    for (pool, pgs) in [("few", 1), ("many", 64)] {
        c.ok(
            admin,
            &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": pgs, "pgp_num": pgs, "autoscale_mode": "off" }),
        );
    }
    report(&mut c, "few", 20_000, 0);
    report(&mut c, "many", 10, 0);
    let all = health(&mut c, admin);
    let text = all["MANY_OBJECTS_PER_PG"].as_str().unwrap();
    assert!(text.starts_with("pool few objects per pg (20000) is more than "), "{text}");
    assert!(!all.contains_key("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED") && !all.contains_key("PG_SLOW_SNAP_TRIMMING"));
    c.ok(admin, &json!({ "prefix": "osd pool set", "pool": "few", "var": "pg_autoscale_mode", "val": "on" }));
    assert!(!health(&mut c, admin).contains_key("MANY_OBJECTS_PER_PG"), "the autoscaler's work");
    let target = |v: &str| json!({ "prefix": "osd pool set", "pool": "many", "var": "target_size_bytes", "val": v });
    c.ok(admin, &target("1099511627776"));
    assert!(!health(&mut c, admin).contains_key("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED"), "three copies on three OSDs");
    c.ok(admin, &target("2199023255552"));
    let text = health(&mut c, admin)["POOL_TARGET_SIZE_BYTES_OVERCOMMITTED"].as_str().unwrap().to_owned();
    assert!(text.contains("overcommit available storage by 2.000x") && text.contains("on pools ['many']"), "{text}");
    assert!(!health(&mut c, admin).contains_key("POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO"));
    c.ok(admin, &json!({ "prefix": "osd pool set", "pool": "many", "var": "target_size_ratio", "val": "0.5" }));
    let text = health(&mut c, admin)["POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO"].as_str().unwrap().to_owned();
    assert_eq!(text, "Pool many has target_size_bytes and target_size_ratio set");
    report(&mut c, "many", 10, 40_000);
    let text = health(&mut c, admin)["PG_SLOW_SNAP_TRIMMING"].as_str().unwrap().to_owned();
    assert!(text.starts_with("snap trim queue for pg ") && text.ends_with(" at 40000"), "{text}");
}

#[test]
fn the_console_keeps_one_certificate_until_it_is_told_otherwise() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let keep = |c: &mut Cluster, crt: &'static str| {
        let values = [("mgr/dashboard/crt", crt.into()), ("mgr/dashboard/key", "k".into())];
        c.core.handle(mon::core::Event::StoreValues(values), c.now);
        c.pump();
    };
    let get = json!({ "prefix": "config-key get", "key": "mgr/dashboard/crt" });
    keep(&mut c, "one");
    keep(&mut c, "two");
    assert_eq!(c.ok(admin, &get), "one");
    c.ok(admin, &json!({ "prefix": "dashboard create-self-signed-cert" }));
    assert_eq!(c.command(admin, &get, "").0, -2, "the console makes another");
    let set = json!({ "prefix": "dashboard set-ssl-certificate" });
    assert_eq!(c.command(admin, &set, "").0, -22);
    assert_eq!(c.command(admin, &set, "no certificate").0, -22);
    let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(c.command(admin, &set, pem).0, 0);
    keep(&mut c, "three");
    assert_eq!(c.ok(admin, &get), pem);
}
