//! Does `health` tell of etcd before it refuses changes, and of daemons with few descriptors?

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
