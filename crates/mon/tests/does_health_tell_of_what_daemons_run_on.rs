//! Does `health` tell of etcd before it refuses changes, of little space, and of daemons with few descriptors, old versions or
//! a wrong network?

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use mon::state::options::OPEN_FILES;
use serde_json::{Value, json};
use state::etcd::care::{Condition, Member, Version};
use support::*;

fn checks(c: &mut Cluster, admin: u64) -> BTreeMap<String, (String, String)> {
    let (_, _, out) = c.command(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }), "");
    let j: Value = serde_json::from_str(&out).unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let checks = j["checks"].as_object().unwrap().iter();
    checks.map(|(k, v)| (k.clone(), (text(&v["severity"]), text(&v["detail"][0]["message"])))).collect()
}

#[test]
fn etcd_is_reported_from_four_fifths_of_its_quota() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let member = |size: u64, alarms: &[&str]| Member {
        name: "h:2379".into(),
        version: Version(3, 5, 11),
        size,
        used: size / 2,
        quota: 1000 << 20,
        alarms: alarms.iter().map(|a| (*a).to_owned()).collect(),
        leads: true,
    };
    let codes = |all: &BTreeMap<String, _>| -> Vec<String> {
        all.keys().filter(|k| k.starts_with("MON_STATE")).cloned().collect()
    };
    assert!(codes(&checks(&mut c, admin)).is_empty(), "a state in a file");
    for (size, alarms, want) in [
        (790 << 20, &[][..], &[][..]),
        (801 << 20, &[], &["MON_STATE_NEARFULL"]),
        (u64::MAX, &["memberID:1 alarm:NOSPACE"], &["MON_STATE_ALARM", "MON_STATE_NEARFULL"]),
        (1, &["memberID:1 alarm:CORRUPT"], &["MON_STATE_ALARM"]),
    ] {
        let members = vec![member(size, alarms), member(1, &[])];
        c.core.pretend(|s| s.mons.etcd = Some(Arc::new(Condition { members, silent: Vec::new() })));
        let all = checks(&mut c, admin);
        assert_eq!(codes(&all), want, "{size}");
        if let Some((severity, text)) = all.get("MON_STATE_ALARM") {
            assert_eq!(severity, "HEALTH_ERR");
            assert!(text.contains("h:2379") && text.contains("alarm:"), "{text}");
        }
    }
    let silent = vec![("i:2379".to_owned(), "no route to host".to_owned())];
    c.core.pretend(|s| s.mons.etcd = Some(Arc::new(Condition { members: Vec::new(), silent })));
    assert!(checks(&mut c, admin)["MON_STATE_MEMBER_DOWN"].1.contains("i:2379: no route"));
}

#[test]
fn daemons_with_few_descriptors_and_other_monitors_are_known() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let few = |c: &mut Cluster| checks(c, admin).remove("DAEMON_FEW_DESCRIPTORS").map(|(_, text)| text);
    assert_eq!(few(&mut c), None, "daemons that do not tell");
    let files = |n: &str| BTreeMap::from([(OPEN_FILES.to_owned(), n.to_owned())]);
    c.core.pretend(|s| drop(s.osds.metadata.insert(base::OsdId(1), files("1024"))));
    assert_eq!(few(&mut c).unwrap(), "osd.1 may open 1024 descriptors, of which each client takes one");
    c.core.pretend(|s| drop(s.osds.metadata.insert(base::OsdId(1), files("16384"))));
    let other =
        [(OPEN_FILES.to_owned(), "4096".to_owned()), ("ceph_version".to_owned(), "ceph version 16.2".to_owned())];
    let runs = |c: &mut Cluster, names: &[&str]| {
        c.core.pretend(|s| s.mons.up = Some(names.iter().map(|n| (*n).to_owned()).collect()));
    };
    runs(&mut c, &["a"]);
    c.ok(admin, &json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.2" }));
    c.core.set_monitor_metadata([("b".to_owned(), other.into())].into());
    assert_eq!(few(&mut c), None, "it does not run");
    runs(&mut c, &["a", "b"]);
    assert!(few(&mut c).unwrap().starts_with("mon.b may open 4096"));
    runs(&mut c, &["a"]);
    assert_eq!(few(&mut c), None);
}

#[test]
fn little_space_for_the_state_is_told_by_share_and_size() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let mut disk = |space: Option<(u64, u64)>| {
        c.core.set_space(space);
        let all = checks(&mut c, admin).into_iter().filter(|(k, _)| k.starts_with("MON_DISK"));
        all.map(|(k, (severity, text))| (k, severity, text)).collect::<Vec<_>>()
    };
    let told = |code: &str, severity: &str, percent: u64| {
        vec![(code.to_owned(), severity.to_owned(), format!("mon.a has {percent}% avail"))]
    };
    assert_eq!(disk(None), []);
    assert_eq!(disk(Some((9 << 30, 20 << 30))), []);
    assert_eq!(disk(Some((6 << 30, 20 << 30))), told("MON_DISK_LOW", "HEALTH_WARN", 30));
    assert_eq!(disk(Some((1 << 30, 20 << 30))), told("MON_DISK_CRIT", "HEALTH_ERR", 5));
    assert_eq!(disk(Some((16 << 30, 1 << 50))), [], "a small share of a large file system");
    assert_eq!(disk(Some((0, 0))), told("MON_DISK_CRIT", "HEALTH_ERR", 0));
}

#[test]
fn daemons_that_an_upgrade_left_behind_are_told_after_a_while() {
    let (mut c, admin, _) = Cluster::with_osds(3);
    let set = |c: &mut Cluster, osd: i32, version: &str| {
        let text = format!("ceph version 16.2.15 ({version}) pacific (stable)");
        c.core.pretend(|s| drop(s.osds.metadata.insert(base::OsdId(osd), [("ceph_version".to_owned(), text)].into())));
    };
    let told = |c: &mut Cluster| checks(c, admin).remove("DAEMON_OLD_VERSION");
    let delay = json!({ "prefix": "config set", "who": "mon", "name": "mon_warn_older_version_delay", "value": "300" });
    c.ok(admin, &delay);
    set(&mut c, 0, "3b9c62f12aef5ee56b0c1bb0c1ed0ac0");
    c.ticks(400);
    assert_eq!(told(&mut c), None, "a daemon of Ceph");
    set(&mut c, 1, "belemnite 0.0.9");
    c.ticks(120);
    assert_eq!(told(&mut c), None, "an upgrade goes on");
    c.ticks(300);
    let one = "osd.1 is running an older version of belemnite: 0.0.9";
    assert_eq!(told(&mut c), Some(("HEALTH_WARN".to_owned(), one.to_owned())));
    set(&mut c, 2, "belemnite 0.0.10");
    let (severity, first) = told(&mut c).unwrap();
    assert_eq!((severity.as_str(), first.as_str()), ("HEALTH_ERR", one), "numbers, not letters, are compared");
    for osd in [1, 2] {
        set(&mut c, osd, &format!("belemnite {}", env!("CARGO_PKG_VERSION")));
    }
    assert_eq!(told(&mut c), None);
    c.ticks(60);
    set(&mut c, 1, "belemnite 0.0.9");
    c.ticks(200);
    assert_eq!(told(&mut c), None, "the time begins anew");
}

#[test]
fn osds_outside_the_public_network_are_told() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let mut told = |network: &str| {
        let set = json!({ "prefix": "config set", "who": "global", "name": "public_network", "value": network });
        c.ok(admin, &set);
        checks(&mut c, admin).remove("OSD_UNREACHABLE")
    };
    assert_eq!(told("10.0.0.0/8, 127.0.0.0/8"), None);
    let text = "osd.0's public address is not in '10.0.0.0/8' subnet";
    assert_eq!(told("10.0.0.0/8"), Some(("HEALTH_ERR".to_owned(), text.to_owned())));
}
