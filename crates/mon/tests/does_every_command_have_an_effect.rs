//! Does each command have its effect, or refuse? Covers commands that once succeeded without effect, and answers that
//! were constants.

mod support;

use mon::state::options::MonOptions;
use serde_json::{Value, json};
use support::*;

fn cluster() -> (Cluster, u64) {
    let mut c = Cluster::new();
    let admin = c.admin();
    c.new_osd(admin, 0, "node0");
    c.boot(0, &osd_addr(0));
    (c, admin)
}

fn show(c: &mut Cluster, admin: u64, prefix: &str) -> Value {
    let (rc, rs, out) = c.command(admin, &json!({ "prefix": prefix, "format": "json" }), "");
    assert_eq!(rc, 0, "{prefix}: {rs}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{prefix}: {e}: {out}"))
}

fn refused(c: &mut Cluster, admin: u64, cmd: &Value, text: &str) {
    let (rc, rs, _) = c.command(admin, cmd, "");
    assert_eq!(rc, -95, "{cmd}: {rs}");
    assert!(rs.contains(text), "{cmd}: {rs}");
}

#[test]
fn the_flag_for_several_file_systems_decides_on_a_second_one() {
    let (mut c, admin) = cluster();
    for p in ["a", "b", "m", "n"] {
        c.ok(
            admin,
            &json!({ "prefix": "osd pool create", "pool": p, "pg_num": 8, "size": 1, "yes_i_really_mean_it": true }),
        );
    }
    let flag = |on: &str| json!({ "prefix": "fs flag set", "flag_name": "enable_multiple", "val": on });
    let new =
        |n: &str, meta: &str, data: &str| json!({ "prefix": "fs new", "fs_name": n, "metadata": meta, "data": data });
    c.ok(admin, &new("one", "m", "a"));
    c.ok(admin, &flag("false"));
    let (rc, rs, _) = c.command(admin, &new("two", "n", "b"), "");
    assert!(rc == -22 && rs.contains("multiple filesystems is disabled"), "{rs}");
    c.ok(admin, &flag("true"));
    c.ok(admin, &new("two", "n", "b"));
}

#[test]
fn missing_modules_are_enabled_by_force_and_told_of() {
    let (mut c, admin) = cluster();
    let enable = |name: &str| json!({ "prefix": "mgr module enable", "module": name });
    assert_eq!(c.command(admin, &enable("influx"), "").0, -2);
    let mut force = enable("influx");
    force["force"] = "--force".into();
    let health =
        |c: &mut Cluster| show(c, admin, "health")["checks"]["MGR_MODULE_DEPENDENCY"]["summary"]["message"].clone();
    assert_eq!(health(&mut c), Value::Null);
    let (rc, rs, _) = c.command(admin, &force, "");
    assert!(rc == 0 && rs.contains("the built-in manager does not have it"), "{rc} {rs}");
    assert_eq!(health(&mut c), "Module 'influx' has failed dependency: the built-in manager does not have it");
    // With those of the built-in manager that tools look for.
    let parts = ["iostat", "snap_schedule", "stats"];
    assert_eq!(
        show(&mut c, admin, "mgr module ls")["enabled_modules"],
        json!(["influx", parts[0], parts[1], parts[2]])
    );
    c.ok(admin, &json!({ "prefix": "mgr module disable", "module": "influx" }));
    assert_eq!(health(&mut c), Value::Null);
    assert_eq!(show(&mut c, admin, "mgr module ls")["enabled_modules"], json!(parts));
    for name in parts {
        c.ok(admin, &enable(name));
        refused(
            &mut c,
            admin,
            &json!({ "prefix": "mgr module disable", "module": name }),
            "part of the built-in manager",
        );
    }
    let (rc, rs, _) = c.command(admin, &enable("balancer"), "");
    assert_eq!((rc, rs.as_str()), (0, "module 'balancer' is already enabled (always-on)"));

    // With Ceph's manager the monitor leaves the check to it, as in Ceph.
    let mut c = Cluster::with(FSID, MonOptions { external_mgr: true, ..MonOptions::default() });
    let admin = c.admin();
    c.ok(admin, &force);
    assert_eq!(show(&mut c, admin, "mgr module ls")["enabled_modules"], json!(["influx"]));
}

fn log(c: &mut Cluster, admin: u64) -> Vec<String> {
    let (_, _, out) = c.command(admin, &json!({ "prefix": "log last", "num": 5, "channel": "cluster" }), "");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn a_scrub_of_monitors_reads_the_state_and_finds_what_differs() {
    let (mut c, admin) = cluster();
    c.ok(admin, &json!({ "prefix": "mon scrub" }));
    c.ticks(1);
    let lines = log(&mut c, admin);
    let ok = lines
        .iter()
        .find(|l| l.contains("scrub ok on 0: ScrubResult(keys {auth="))
        .unwrap_or_else(|| panic!("{lines:?}"));
    assert!(ok.contains("osdmap="), "{ok}");

    // A record in the store changes behind the monitor's back.
    let mut t = state::Txn::default();
    t.put("kv/somebody", bytes::Bytes::from_static(b"else"));
    assert_eq!(ask(&mut c.store, state::Op::Txn(t)), state::Outcome::Committed);
    c.ok(admin, &json!({ "prefix": "mon scrub" }));
    c.ticks(1);
    let lines = log(&mut c, admin);
    assert!(lines.iter().any(|l| l.contains("scrub mismatch on 0") && l.contains("config-keys")), "{lines:?}");

    let mut t = state::Txn::default();
    t.put("auth/entity/client.x", bytes::Bytes::from_static(b"no entry"));
    assert_eq!(ask(&mut c.store, state::Op::Txn(t)), state::Outcome::Committed);
    c.ok(admin, &json!({ "prefix": "mon scrub" }));
    c.ticks(1);
    let lines = log(&mut c, admin);
    assert!(lines.iter().any(|l| l.contains("scrub error on 0: record auth/entity/client.x")), "{lines:?}");
}

#[test]
fn options_that_no_daemon_reads_are_stored_with_a_note() {
    let (mut c, admin) = cluster();
    let mut set = |who: &str, name: &str, value: &str| {
        let cmd = json!({ "prefix": "config set", "who": who, "name": name, "value": value });
        let (rc, rs, _) = c.command(admin, &cmd, "");
        assert_eq!(rc, 0, "{name}: {rs}");
        rs
    };
    for (who, name, value) in [
        ("global", "bluestore_cache_size", "1G"),
        ("osd.0", "rocksdb_perf", "true"),
        ("mon", "mon_op_complaint_time", "5"),
        ("mgr", "mgr/telemetry/channel_ident", "true"),
    ] {
        assert!(set(who, name, value).contains("without effect"), "{who} {name}");
    }
    // Daemons of this program read the first six options; clients and Ceph's daemons the others.
    for (who, name, value) in [
        ("osd", "osd_memory_target", "5G"),
        ("osd", "osd_max_backfills", "2"),
        ("mgr", "mgr/balancer/upmap_max_deviation", "2"),
        ("global", "osd_heartbeat_grace", "30"),
        ("mon", "mon_allow_pool_delete", "true"),
        ("client", "rbd_cache", "false"),
        ("global", "rbd_cache", "true"),
        ("mds", "mds_cache_memory_limit", "1G"),
    ] {
        assert_eq!(set(who, name, value), "", "{who} {name}");
    }
    let told = c.tell(admin, &json!({ "prefix": "config set", "var": "mon_op_complaint_time", "val": ["5"] }));
    assert!(told.2.contains("without effect"), "{told:?}");
}

#[test]
fn options_that_only_a_file_can_set_are_known_and_not_stored() {
    let (mut c, admin) = cluster();
    for who in ["osd", "osd.0", "global"] {
        for force in [false, true] {
            let cmd = json!({ "prefix": "config set", "who": who, "name": "store_cache_size", "value": "4G", "force": force });
            let (rc, rs, _) = c.command(admin, &cmd, "");
            assert!(rc == -22 && rs.contains("section [osd] of its configuration file"), "{rc} {rs}");
        }
    }
    let help = |c: &mut Cluster, key: &str| {
        let (rc, rs, out) = c.command(admin, &json!({ "prefix": "config help", "key": key }), "");
        assert_eq!(rc, 0, "{key}: {rs}");
        let cmd = json!({ "prefix": "config help", "key": key, "format": "json" });
        let (_, _, tree) = c.command(admin, &cmd, "");
        let tree: Value = serde_json::from_str(&tree).unwrap();
        assert!(!tree["desc"].as_str().unwrap().is_empty(), "{tree}");
        out
    };
    assert!(help(&mut c, "store_cache_size").contains("Default: 512M\n"));
    assert!(help(&mut c, "osd_max_backfills").starts_with("osd_max_backfills - PGs that an OSD backfills"));
    assert!(help(&mut c, "osd memory target").contains("what store_cache_size leaves"));
}

#[test]
fn pool_options_that_no_osd_reads_are_stored_with_a_note() {
    let (mut c, admin) = cluster();
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8 }));
    let mut set = |var: &str, val: &str| {
        let (rc, rs, _) =
            c.command(admin, &json!({ "prefix": "osd pool set", "pool": "p", "var": var, "val": val }), "");
        assert_eq!(rc, 0, "{var}: {rs}");
        rs
    };
    assert!(!set("compression_mode", "aggressive").contains("no effect"));
    assert!(set("scrub_priority", "3").contains("no effect on ours"));
    assert!(!set("scrub_min_interval", "3").contains("no effect"));
}

#[test]
fn crash_commands_show_and_archive_posted_reports() {
    let (mut c, admin) = cluster();
    assert_eq!(show(&mut c, admin, "crash ls"), json!([]));
    let post = |c: &mut Cluster, id: &str, at: &str| {
        let report = json!({ "crash_id": id, "timestamp": at, "entity_name": "osd.3", "utsname_hostname": "h" });
        c.command(admin, &json!({ "prefix": "crash post" }), &report.to_string())
    };
    assert_eq!(post(&mut c, "2023-11-14T10:00:00.0Z_a", "2023-11-14T10:00:00.0Z").0, 0);
    assert_eq!(post(&mut c, "2023-09-01T10:00:00.0Z_b", "2023-09-01 10:00:00.0Z").0, 0);
    assert_eq!(c.command(admin, &json!({ "prefix": "crash post" }), "{}").0, -22);
    assert_eq!(show(&mut c, admin, "crash ls").as_array().unwrap().len(), 2);
    let (_, _, out) = c.command(admin, &json!({ "prefix": "crash ls" }), "");
    assert_eq!(
        out,
        "ID                        ENTITY  NEW  \n2023-09-01T10:00:00.0Z_b  osd.3   *    \n2023-11-14T10:00:00.0Z_a  osd.3   *    \n"
    );
    let (_, _, out) = c.command(admin, &json!({ "prefix": "crash stat" }), "");
    assert!(out.starts_with("2 crashes recorded\n1 older than 1 days old:\n2023-09-01"), "{out}");
    let health = |c: &mut Cluster| show(c, admin, "health")["checks"]["RECENT_CRASH"]["summary"]["count"].clone();
    assert_eq!(health(&mut c), 1, "the other is too old for an alert");
    let one = json!({ "prefix": "crash archive", "id": "2023-11-14T10:00:00.0Z_a" });
    c.ok(admin, &one);
    assert_eq!(health(&mut c), Value::Null);
    assert_eq!(show(&mut c, admin, "crash ls-new").as_array().unwrap().len(), 1);
    c.ok(admin, &json!({ "prefix": "crash archive-all" }));
    assert_eq!(show(&mut c, admin, "crash ls-new"), json!([]));
    c.restart();
    let admin = c.admin();
    let (_, _, out) = c.command(admin, &json!({ "prefix": "crash info", "id": "2023-11-14T10:00:00.0Z_a" }), "");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["utsname_hostname"], "h");
    c.ok(admin, &json!({ "prefix": "crash prune", "keep": "7" }));
    assert_eq!(show(&mut c, admin, "crash ls").as_array().unwrap().len(), 1);
    c.ok(admin, &json!({ "prefix": "crash rm", "id": "2023-11-14T10:00:00.0Z_a" }));
    assert_eq!(show(&mut c, admin, "crash ls"), json!([]));
    assert_eq!(c.command(admin, &json!({ "prefix": "crash info", "id": "z" }), "").0, -22);
}

#[test]
fn devices_are_those_in_daemon_metadata() {
    let (mut c, admin) = cluster();
    assert_eq!(show(&mut c, admin, "device ls"), json!([]));
    c.core.pretend(|s| {
        let m = s.osds.metadata.get_mut(&base::OsdId(0)).expect("it has booted");
        m.insert("device_ids".into(), "sda=DISK_1,sdb=".into());
        m.insert("hostname".into(), "node0".into());
    });
    let all = show(&mut c, admin, "device ls");
    assert_eq!(all[0]["devid"], "DISK_1");
    assert_eq!(all[0]["daemons"], json!(["osd.0"]));
    assert_eq!(all.as_array().unwrap().len(), 1);
    for (key, value, n) in [("who", "osd.0", 1), ("host", "node0", 1), ("host", "other", 0)] {
        let prefix = if key == "who" { "device ls-by-daemon" } else { "device ls-by-host" };
        let (_, _, out) = c.command(admin, &json!({ "prefix": prefix, key: value, "format": "json" }), "");
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap().as_array().unwrap().len(), n, "{prefix} {value}");
    }
    assert_eq!(c.command(admin, &json!({ "prefix": "device ls-by-daemon", "who": "osd.9" }), "").0, -2);
    let (rc, _, out) = c.command(admin, &json!({ "prefix": "device info", "devid": "DISK_1" }), "");
    assert_eq!((rc, out.as_str()), (0, "device DISK_1\nattachment node0:sda\ndaemons osd.0\n"));
}

#[test]
fn the_election_epoch_rises_with_each_leader_start() {
    let (mut c, admin) = cluster();
    let epoch = |c: &mut Cluster, admin| show(c, admin, "quorum_status")["election_epoch"].clone();
    assert_eq!(epoch(&mut c, admin), 3);
    assert_eq!(show(&mut c, admin, "time-sync-status")["timechecks"]["epoch"], 3);
    for n in [5, 7] {
        c.restart();
        let admin = c.admin();
        assert_eq!(epoch(&mut c, admin), n);
        assert_eq!(show(&mut c, admin, "status")["election_epoch"], n);
        let (_, _, out) = c.command(admin, &json!({ "prefix": "mon stat" }), "");
        assert!(out.contains(&format!("election epoch {n}, ")), "{out}");
    }
}

#[test]
fn health_names_a_monitor_whose_clock_differs() {
    let (mut c, admin) = cluster();
    let skew = |c: &mut Cluster, admin| show(c, admin, "time-sync-status")["time_skew_status"].clone();
    assert!(skew(&mut c, admin).is_null(), "alone");
    c.ok(admin, &json!({ "prefix": "config set", "who": "mon", "name": "mon_timecheck_skew_interval", "value": "20" }));
    c.core.pretend(|s| s.mons.up = Some(["a".to_owned(), "b".to_owned()].into()));
    let now = c.now;
    let mut map = c.core.state().monmap.clone();
    let b = base::AddrVec::from(base::EntityAddr::msgr2("127.0.0.2:3300".parse().unwrap(), 0));
    map.mons.insert("b".into(), cluster::MonInfo { public_addrs: b.clone(), ..map.mons["a"].clone() });
    map.ranks.push("b".into());
    c.core.pretend(|s| s.monmap = map);
    let round = c.core.clock_round(now).unwrap();
    assert_eq!(c.core.clock_round(now), None);
    let ahead = base::Utime::from_unix(now.wall.to_unix() + std::time::Duration::from_secs(2));
    let stranger = base::AddrVec::from(base::EntityAddr::msgr2("127.0.0.9:3300".parse().unwrap(), 0));
    c.core.clock_answered(&stranger, round, ahead, now);
    assert_eq!(skew(&mut c, admin), json!({ "a": { "skew": 0, "latency": 0, "health": "HEALTH_OK" } }));
    c.core.clock_answered(&b, round, ahead, now);
    let b_is = skew(&mut c, admin)["b"].clone();
    assert_eq!((&b_is["health"], &b_is["details"]), (&json!("HEALTH_WARN"), &json!("clock skew 2s > max 0.05s")));
    let (_, _, health) = c.command(admin, &json!({ "prefix": "health", "detail": "detail" }), "");
    assert!(
        health.contains("clock skew detected on mon.b\n    mon.b clock skew 2s > max 0.05s (latency 0s)"),
        "{health}"
    );
    // The next clock round comes soon, and the warning ends once the clocks agree.
    let later = base::Now { mono: now.mono + std::time::Duration::from_secs(21), ..now };
    let round = c.core.clock_round(later).unwrap();
    c.core.clock_answered(&b, round, now.wall, later);
    let (_, _, health) = c.command(admin, &json!({ "prefix": "health", "detail": "detail" }), "");
    assert!(!health.contains("MON_CLOCK_SKEW"), "{health}");
}

#[test]
fn tell_commands_answer_from_the_process() {
    let (mut c, admin) = cluster();
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "k", "val": "v" }));
    let ask = |c: &mut Cluster, prefix: &str| -> Value {
        let (rc, rs, out) = c.tell(admin, &json!({ "prefix": prefix, "format": "json" }));
        assert_eq!(rc, 0, "{prefix}: {rs}");
        serde_json::from_str(&out).unwrap()
    };
    let historic = ask(&mut c, "dump_historic_ops");
    assert!(historic["ops"].to_string().contains("config-key set"), "{historic}");
    assert_eq!(ask(&mut c, "dump_historic_slow_ops")["num_ops"], 0);
    assert_eq!(ask(&mut c, "ops")["num_ops"], ask(&mut c, "dump_ops_in_flight")["num_ops"]);
    assert!(ask(&mut c, "dump_historic_ops_by_duration")["ops"].to_string().contains("config-key set"));
    let (rc, rs, _) = c.tell(admin, &json!({ "prefix": "version", "output-file": "/tmp/x" }));
    assert!(rc == -95 && rs.contains("redirect"), "{rc} {rs}");
    for (prefix, text) in [
        ("compact", "by itself"),
        ("smart", "not supported"),
        ("connection scores dump", "disallowed_leader"),
        ("connection scores reset", "quorum_status"),
        ("add_bootstrap_peer_hint", "mon add"),
        ("add_bootstrap_peer_hintv", "mon add"),
    ] {
        let (rc, rs, _) = c.tell(admin, &json!({ "prefix": prefix, "addr": "10.0.0.1", "addrv": "10.0.0.1" }));
        assert!(rc == -95 && rs.contains(text), "{prefix}: {rc} {rs}");
    }
}

#[test]
fn mon_set_addrs_changes_the_addresses_of_one_monitor() {
    let (mut c, admin) = cluster();
    c.core.pretend(|s| s.mons.up = Some(["a".to_owned()].into()));
    c.ok(admin, &json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.2" }));
    let before = show(&mut c, admin, "mon dump");
    let set = |name: &str, addrs: &str| json!({ "prefix": "mon set-addrs", "name": name, "addrs": addrs });
    for (name, addrs, rc) in [
        ("z", "v2:127.0.0.9:3300", -2),
        ("a", "monitor", -22),
        ("a", "v2:127.0.0.9", -22),
        ("a", "v1:127.0.0.9:6789", -22),
        ("a", "[v2:127.0.0.9:1,v2:127.0.0.9:2]", -22),
        ("a", "[v2:127.0.0.9:1,v1:127.0.0.9:2,v1:127.0.0.9:3]", -22),
        ("a", "[v2:127.0.0.2:1,v1:127.0.0.2:6789]", -17),
        ("a", "[v2:127.0.0.9:1,v1:127.0.0.9:1]", -22),
        ("a", "[v2:127.0.0.9:1,v1:127.0.0.8:2]", -22),
        ("a", "v2:0.0.0.0:3300", -22),
    ] {
        assert_eq!(c.command(admin, &set(name, addrs), "").0, rc, "{name} {addrs}");
    }
    for (name, addr, rc) in [("c", "127.0.0.2:3300", -17), ("c", "127.0.0.2", -17), ("b", "127.0.0.2:3300", 0)] {
        let add = json!({ "prefix": "mon add", "name": name, "addr": addr });
        assert_eq!(c.command(admin, &add, "").0, rc, "{name} {addr}");
    }
    assert_eq!(show(&mut c, admin, "mon dump"), before);
    c.ok(admin, &set("b", "[v2:[::1]:3301/7,v1:[::1]:6790/7]"));
    let map = show(&mut c, admin, "mon dump");
    assert_eq!((&map["mons"][0], map["epoch"].as_u64()), (&before["mons"][0], before["epoch"].as_u64().map(|e| e + 1)));
    let both = json!([
        { "type": "v2", "addr": "[::1]:3301", "nonce": 0 },
        { "type": "v1", "addr": "[::1]:6790", "nonce": 0 },
    ]);
    assert_eq!(map["mons"][1]["public_addrs"]["addrvec"], both);
    c.ok(admin, &set("b", "[v2:[::1]:3301,v1:[::1]:6790]"));
    assert_eq!(show(&mut c, admin, "mon dump"), map, "the same addresses are no change");
    c.ok(admin, &json!({ "prefix": "mon add", "name": "d", "addr": "v2:127.0.0.4:6789" }));
    let d = &show(&mut c, admin, "mon dump")["mons"][2]["public_addrs"]["addrvec"];
    assert_eq!(d, &json!([{ "type": "v2", "addr": "127.0.0.4:6789", "nonce": 0 }]));
}

#[test]
fn mon_add_uses_the_given_address_and_location() {
    let (mut c, admin) = cluster();
    c.core.pretend(|s| s.mons.up = Some(["a".to_owned()].into()));
    let add = json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.2", "location": ["rack=r1"] });
    c.ok(admin, &add);
    let map = show(&mut c, admin, "mon dump");
    assert_eq!(map["mons"][1]["crush_location"], "{rack=r1}");
    let both = json!([
        { "type": "v2", "addr": "127.0.0.2:3300", "nonce": 0 },
        { "type": "v1", "addr": "127.0.0.2:6789", "nonce": 0 },
    ]);
    assert_eq!(map["mons"][1]["public_addrs"]["addrvec"], both, "Ceph's ports for an address without one");
    c.ok(admin, &json!({ "prefix": "mon enable-msgr2" }));
    // What a monitor has told stays while it does not run, and goes with its place in the map.
    let meta = |c: &mut Cluster, id: &str| -> Value {
        let (rc, rs, out) = c.command(admin, &json!({ "prefix": "mon metadata", "id": id, "format": "json" }), "");
        assert_eq!(rc, 0, "{rs}");
        serde_json::from_str(&out).unwrap()
    };
    assert!(meta(&mut c, "b").get("hostname").is_none(), "it has told nothing yet");
    let of_b = [("hostname", "h2"), ("ceph_version", "ceph version 16.2.15 (belemnite 9.9.9) pacific (stable)")];
    let of_b: std::collections::BTreeMap<_, _> = of_b.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    c.core.set_monitor_metadata([("b".to_owned(), of_b)].into());
    for all in [[("b".to_owned(), meta_of(&c, "b"))].into(), std::collections::BTreeMap::new()] {
        c.core.set_monitor_metadata(all);
        let m = meta(&mut c, "b");
        assert!(m["hostname"] == "h2" && m["addrs"].as_str().unwrap().contains("127.0.0.2"), "{m}");
        let versions = show(&mut c, admin, "mon versions");
        assert_eq!(versions.as_object().unwrap().len(), 2, "{versions}");
        assert!(versions.as_object().unwrap().iter().all(|(v, n)| v.starts_with("ceph version 16.2.15") && *n == 1));
        let all = show(&mut c, admin, "versions");
        assert_eq!(all["mon"], versions);
    }
    c.ok(admin, &json!({ "prefix": "mon remove", "name": "b" }));
    c.core.set_monitor_metadata(std::collections::BTreeMap::new());
    assert!(!c.core.state().mons.metadata.contains_key("b"));
}

fn meta_of(c: &Cluster, name: &str) -> std::collections::BTreeMap<String, String> {
    c.core.state().mons.metadata[name].clone()
}
