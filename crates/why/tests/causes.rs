//! Twelve planted causes and a healthy cluster: each is named, and nothing else.

use serde_json::{Value, json};
use why::{Evidence, Kind, Subject, Verdict, judge};

/// An OSD of a quiet cluster of three: 6,000 operations in 30 s, half a millisecond each.
fn osd(n: i32) -> Value {
    json!({
        "osd": n, "host": format!("host{n}"), "seconds": 30.0, "clock_ahead": 0.002, "ops": 6000,
        "us": {"client": 900_000, "turn": 300_000, "plan": 0, "read": 400_000, "commit": 1_800_000, "replica": 900_000},
        "long_ops": 118_000, "long_us": 66_000_000,
        "pools": [{"pool": 2, "ops": 6000, "us": {"commit": 1_800_000}}],
        "clients": [{"client": "client.4711", "ops": 4000, "us": {"commit": 1_200_000}},
                    {"client": "client.4712", "ops": 2000, "us": {"commit": 600_000}}],
        "objects": [{"pool": 2, "object": "rbd_data.1.0000000000000007", "ops": 90, "lock_us": 0}],
        "peers": [{"osd": (n + 1) % 3, "acks": 4000, "us": 2_400_000, "max_us": 9_000, "blamed_us": 450_000},
                  {"osd": (n + 2) % 3, "acks": 4000, "us": 2_400_000, "max_us": 9_000, "blamed_us": 450_000}],
        "waiting": [],
        "device": {"writes": 3000, "us": 1_500_000, "max_us": 8_000, "pending_us": 0},
        "reactors": [{"wall_us": 30_000_000, "ran_us": 3_000_000, "waited_us": 200_000}],
        "network": {"sent": 90_000, "again": 2, "mtu": {"eth0": 9000}},
    })
}

fn cluster() -> Value {
    json!({
        "osds": [osd(0), osd(1), osd(2)],
        "pools": [{"pool": 2, "name": "rbd", "full": false}],
        "mons": [{"name": "a", "skew": 0.0}],
    })
}

fn verdicts(e: &Value) -> Vec<Verdict> {
    let e: Evidence = serde_json::from_value(e.clone()).unwrap();
    judge(&e, &Subject::Cluster)
}

/// The only verdict about `e`.
fn only(e: &Value) -> Verdict {
    let all = verdicts(e);
    assert_eq!(all.len(), 1, "{all:#?}");
    let text = all[0].to_string();
    assert!(text.lines().count() <= 5 && text.lines().count() >= 3, "{text}");
    all.into_iter().next().unwrap()
}

/// Operations of the other OSDs wait for this one's acknowledgements.
fn blame(e: &mut Value, osd: usize, us: u64) {
    for o in e["osds"].as_array_mut().unwrap() {
        let mut blamed = 0;
        for p in o["peers"].as_array_mut().unwrap().iter_mut().filter(|p| p["osd"] == osd) {
            p["blamed_us"] = us.into();
            p["max_us"] = 400_000.into();
            blamed = us;
        }
        if blamed > 0 {
            o["us"]["replica"] = (blamed + 450_000).into();
        }
    }
}

#[test]
fn nothing_is_said_about_a_healthy_cluster() {
    assert_eq!(verdicts(&cluster()), []);
    assert_eq!(verdicts(&json!({})), []);
    // Twice the load, and twice the latency.
    let mut busy = cluster();
    for o in busy["osds"].as_array_mut().unwrap() {
        o["ops"] = 40_000.into();
        o["us"]["commit"] = 40_000_000.into();
        o["reactors"][0]["ran_us"] = 21_000_000.into();
    }
    assert_eq!(verdicts(&busy), []);
}

#[test]
fn a_slow_disk() {
    let mut e = cluster();
    e["osds"][1]["device"] = json!({"writes": 300, "us": 27_000_000, "max_us": 240_000});
    e["osds"][1]["us"]["commit"] = 180_000_000.into();
    blame(&mut e, 1, 150_000_000);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str(), v.osds.as_slice()), (Kind::SlowDisk, "osd.1", [1].as_slice()));
    assert!(v.share > 0.9 && v.to_string().contains("90 ms for a flush"), "{v}");
}

#[test]
fn a_disk_that_does_not_answer() {
    let mut e = cluster();
    e["osds"][2]["device"] = json!({"writes": 10, "us": 5_000, "max_us": 600, "pending_us": 9_000_000});
    e["osds"][2]["ops"] = 10.into();
    e["osds"][0]["waiting"] = json!([{"cause": "replica", "ops": 16, "us": 140_000_000, "oldest": 9.1, "behind": 2}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::SlowDisk, "osd.2"));
}

#[test]
fn a_cpu_that_another_program_has() {
    let mut e = cluster();
    e["osds"][1]["reactors"][0] = json!({"wall_us": 30_000_000, "ran_us": 3_000_000, "waited_us": 17_000_000});
    // Everything that an OSD without CPU measures is too long, its device too.
    e["osds"][1]["device"] = json!({"writes": 900, "us": 27_000_000, "max_us": 240_000});
    e["osds"][1]["us"]["commit"] = 60_000_000.into();
    blame(&mut e, 1, 60_000_000);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::CpuTaken, "osd.1"));
    assert!(v.remedy.contains("host1") && v.share > 0.5, "{v}");
}

#[test]
fn the_quota_of_a_cgroup() {
    let mut e = cluster();
    e["osds"][1]["reactors"][0] =
        json!({"wall_us": 30_000_000, "ran_us": 3_000_000, "waited_us": 12_000_000, "throttled_us": 11_000_000});
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::CpuQuota, "osd.1"));
    assert!(v.text.contains("37 %"), "{v}");
}

#[test]
fn a_link_that_loses_packets() {
    let mut e = cluster();
    e["osds"][2]["network"] = json!({"sent": 20_000, "again": 400, "mtu": {"eth0": 9000}});
    blame(&mut e, 2, 9_000_000);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::LossyLink, "host host2"));
    assert!(v.text.contains("2.0 %"), "{v}");
}

#[test]
fn a_small_mtu() {
    let mut e = cluster();
    e["osds"][0]["network"]["mtu"] = json!({"eth0": 1280, "eth1": 9000});
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::SmallMtu, "host host0"));
    assert!(v.remedy.contains("eth0 mtu 9000"), "{v}");
}

#[test]
fn a_hot_object() {
    let mut e = cluster();
    let o = &mut e["osds"][0];
    o["ops"] = 300_000.into();
    o["us"]["turn"] = 900_000_000.into();
    o["reactors"][0]["ran_us"] = 29_000_000.into();
    o["objects"] = json!([{"pool": 2, "object": ".dir.bucket.1", "ops": 280_000, "lock_us": 0}]);
    let v = only(&e);
    assert_eq!(
        (v.kind, v.culprit.as_str(), v.pools.as_slice()),
        (Kind::HotObject, "rbd/.dir.bucket.1", [2].as_slice())
    );
}

#[test]
fn a_lock_of_a_client_that_is_gone() {
    let mut e = cluster();
    e["osds"][1]["refused"] = json!([{"pool": 2, "object": "rbd_header.1", "calls": 12}]);
    e["locks"] = json!([{"pool": 2, "object": "rbd_header.1", "owner": "client.4200", "addr": "10.0.0.9:0/77", "watches": false}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::DeadLock, "rbd/rbd_header.1"));
    assert!(v.evidence[0].contains("12 calls") && v.remedy.contains("10.0.0.9:0/77"), "{v}");
    e["locks"][0]["watches"] = true.into();
    assert_eq!(verdicts(&e), [], "a live holder");
}

#[test]
fn a_full_pool() {
    let mut e = cluster();
    e["pools"][0]["full"] = true.into();
    e["health"] = json!([{"code": "POOL_FULL", "summary": "1 pool(s) full", "detail": ["pool 'rbd' is full (running out of quota)"]}]);
    e["osds"][0]["waiting"] = json!([{"cause": "space", "ops": 3, "us": 60_000_000, "oldest": 20.0}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::Full, "rbd"));
    assert!(v.evidence[0].contains("3 operations"), "{v}");
}

fn slow_devices(e: &mut Value) {
    for o in e["osds"].as_array_mut().unwrap() {
        o["us"]["read"] = 50_000_000.into();
        o["us"]["commit"] = 12_000_000.into();
        o["device"] = json!({"writes": 3000, "us": 24_000_000, "max_us": 80_000});
    }
}

#[test]
fn a_deep_scrub_at_noon() {
    let mut e = cluster();
    slow_devices(&mut e);
    e["background"] = json!([
        {"pg": "2.1", "state": "active+clean+scrubbing+deep", "activity": "deep_scrub", "osds": [0, 1]},
        {"pg": "2.7", "state": "active+clean+scrubbing+deep", "activity": "deep_scrub", "osds": [2, 1]}]);
    let v = only(&e);
    assert_eq!((v.kind, v.osds.as_slice()), (Kind::DeepScrub, [0, 1, 2].as_slice()));
    assert!(v.share > 0.8, "{v}");
    let mut quiet = cluster();
    quiet["background"] = e["background"].clone();
    assert_eq!(verdicts(&quiet), [], "a scrub that slows nothing");
}

#[test]
fn recovery_against_clients() {
    let mut e = cluster();
    slow_devices(&mut e);
    e["recovery_rate"] = 180e6.into();
    e["background"] = json!([{"pg": "2.3", "state": "active+undersized+degraded+remapped+backfilling", "activity": "recovery", "osds": [0, 1, 2]}]);
    let v = only(&e);
    assert_eq!(v.kind, Kind::Recovery);
    assert!(v.evidence[0].contains("180.0 MB"), "{v}");
}

#[test]
fn a_clock_that_is_off() {
    let mut e = cluster();
    e["osds"][1]["clock_ahead"] = (-42.0).into();
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::Clock, "osd.1"));
    assert!(v.text.contains("42.00 s behind"), "{v}");
    // The collector's clock is off, not those of the OSDs.
    let mut own = cluster();
    (0..3).for_each(|o| own["osds"][o]["clock_ahead"] = 42.0.into());
    assert_eq!(verdicts(&own), []);
}

#[test]
fn a_monitor_with_a_slow_store() {
    let mut e = cluster();
    let summary = "mon a takes 900 ms to commit a change of its state";
    e["health"] = json!([{"code": "MON_STORE_SLOW", "summary": summary, "detail": ["mon.a: 900 ms for a commit"]}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::MonStore, "monitors"));
    assert!(v.text.contains("900 ms"), "{v}");
}

#[test]
fn questions_about_one_osd_client_or_pool_get_its_own_causes() {
    let mut e = cluster();
    e["osds"][1]["device"] = json!({"writes": 300, "us": 27_000_000, "max_us": 240_000});
    e["osds"][1]["us"]["commit"] = 180_000_000.into();
    let e: Evidence = serde_json::from_value(e).unwrap();
    let about = |s: Subject| judge(&e, &s).len();
    assert_eq!([about(Subject::Osd(1)), about(Subject::Osd(0))], [1, 0]);
    assert_eq!([about(Subject::Pg(vec![2, 1])), about(Subject::Pg(vec![2, 0]))], [1, 0]);
    assert_eq!([about(Subject::Client("client.4711".into())), about(Subject::Client("client.1".into()))], [1, 0]);
    assert_eq!(about(Subject::Pool(2)), 1, "an OSD concerns all pools");
}
