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

/// As it was with 5,000 operations a second on two CPUs, which OSDs and clients share.
#[test]
fn cpus_that_are_in_use() {
    let mut e = cluster();
    let (mean, long) = (1.6, 1.8);
    for o in e["osds"].as_array_mut().unwrap() {
        o["ops"] = 50_000.into();
        o["us"] =
            json!({"turn": 6_000_000, "read": 6_000_000, "commit": (50_000.0 * mean * 1000.0) as u64 - 12_000_000});
        (o["long_ops"], o["long_us"]) = (100_000.into(), ((100_000.0 * long * 1000.0) as u64).into());
        o["peers"] = json!([]);
        o["reactors"] = json!([{"wall_us": 30_000_000, "ran_us": 6_000_000, "waited_us": 8_700_000}]);
    }
    assert_eq!(verdicts(&e), [], "quick operations");
    for o in e["osds"].as_array_mut().unwrap() {
        o["us"]["commit"] = 500_000_000.into();
    }
    let v = only(&e);
    assert_eq!(v.kind, Kind::CpuTaken);
    assert!((0.28..0.30).contains(&v.share), "a reactor that waits 29 % of the time costs no more: {v}");
}

/// As it was on two CPUs: the client and the OSDs share them, so the reactor is not busy all the time; operations queue.
#[test]
fn a_hot_object_with_a_deep_queue() {
    let mut e = cluster();
    for o in e["osds"].as_array_mut().unwrap() {
        o["seconds"] = 10.0.into();
    }
    let o = &mut e["osds"][1];
    o["ops"] = 161_026.into();
    o["us"] = json!({"client": 303_201_101, "turn": 106_678_365_u64, "lock": 27_433, "read": 3_055_559,
        "commit": 1_807_288_551_u64, "replica": 394_102_383});
    (o["long_ops"], o["long_us"]) = (300_000.into(), 3_300_000_000_u64.into());
    o["objects"] = json!([{"pool": 2, "object": "hot", "ops": 156_285, "lock_us": 0}]);
    o["reactors"] = json!([{"wall_us": 11_045_453, "ran_us": 2_644_988, "waited_us": 1_976_826}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::HotObject, "rbd/hot"));
    assert!(v.evidence[0].contains("224 of its operations are in flight"), "{v}");
    // The same object with a client that waits for each answer.
    let o = &mut e["osds"][1];
    (o["ops"], o["objects"][0]["ops"]) = (6000.into(), 5800.into());
    o["us"] = json!({"turn": 500_000, "commit": 5_000_000, "replica": 2_000_000});
    assert_eq!(verdicts(&e), []);
}

#[test]
fn a_lock_of_a_client_that_is_gone() {
    let mut e = cluster();
    e["osds"][1]["refused"] = json!([{"pool": 2, "object": "rbd_header.1", "calls": 12}]);
    e["locks"] = json!([{"pool": 2, "object": "rbd_header.1", "owner": "client.4200", "addr": "10.0.0.9:0/77", "watches": false}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::DeadLock, "rbd/rbd_header.1"));
    // Its own last operations are in the span.
    e["locks"][0]["owner"] = "client.4712".into();
    assert_eq!(only(&e).kind, Kind::DeadLock);
    assert!(v.evidence[0].contains("12 calls") && v.remedy.contains("10.0.0.9:0/77"), "{v}");
    e["locks"][0]["watches"] = true.into();
    assert_eq!(verdicts(&e), [], "a live holder");
}

#[test]
fn a_lock_that_is_not_of_an_image() {
    let mut e = cluster();
    e["osds"][1]["refused"] = json!([{"pool": 2, "object": "locked", "calls": 3}]);
    e["locks"] = json!([{"pool": 2, "object": "locked", "name": "L", "cookie": "dead", "owner": "client.8365",
        "addr": "127.0.0.1:0/3015183202", "expires": false, "watches": false}]);
    // It has just taken the lock.
    e["osds"][0]["clients"] = json!([{"client": "client.8365", "ops": 1, "us": {"commit": 900}}]);
    let v = only(&e);
    assert!(v.remedy.contains("`rados -p rbd lock break locked L client.8365 --lock-cookie 'dead'`"), "{v}");
    // Daemons of RGW take such locks in turn and do not watch them.
    let mut turns = e.clone();
    turns["locks"][0]["expires"] = true.into();
    assert_eq!(verdicts(&turns), [], "a lock that ends");
    e["locks"][0]["owner"] = "client.4712".into();
    assert_eq!(verdicts(&e), [], "a holder that works");
}

#[test]
fn a_full_pool() {
    let mut e = cluster();
    e["pools"][0]["full"] = true.into();
    e["pools"][0]["quota"] = true.into();
    e["health"] = json!([{"code": "POOL_FULL", "summary": "1 pool(s) full", "detail": ["pool 'rbd' is full (running out of quota)"]}]);
    e["osds"][0]["waiting"] = json!([{"cause": "space", "ops": 3, "us": 60_000_000, "oldest": 20.0}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::Full, "rbd"));
    assert!(v.evidence[0].contains("3 operations"), "{v}");
    assert!(v.text.contains("quota") && v.remedy.contains("`ceph osd pool set-quota rbd max_bytes N`"), "{v}");
}

/// An OSD of 64 GiB that is full: its pool is full with it, and has no quota.
fn full_osd() -> Value {
    let mut e = cluster();
    e["pools"][0]["full"] = true.into();
    e["health"] = json!([
        {"code": "OSD_FULL", "summary": "1 full osd(s)", "detail": ["osd.1 is full"]},
        {"code": "POOL_FULL", "summary": "1 pool(s) full", "detail": ["pool 'rbd' is full (no space)"]}]);
    e["osds"][1]["space"] =
        json!({"short": false, "total": 64_u64 << 30, "available": 2_u64 << 30, "lacks": 0, "free": 0});
    e
}

#[test]
fn a_full_osd_and_not_the_quota_of_its_pool() {
    let mut e = full_osd();
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str(), v.osds.as_slice()), (Kind::Full, "osd.1", [1].as_slice()));
    assert!(!v.remedy.contains("quota") && v.remedy.contains("set-full-ratio 0.97"), "{v}");
    assert_eq!(v.evidence, ["osd.1 is full", "so these pools are full, without a reached quota: rbd"]);
    // Its file system lacks some of the rest, but the data fills the OSD anyway.
    e["osds"][1]["space"]["lacks"] = (1_u64 << 30).into();
    assert!(only(&e).remedy.contains("set-full-ratio"), "{}", only(&e));
    // The map's flag of the pool outlives the check about the OSD.
    e["health"] =
        json!([{"code": "POOL_FULL", "summary": "1 pool(s) full", "detail": ["pool 'rbd' is full (no space)"]}]);
    let v = only(&e);
    assert!(v.culprit == "rbd" && v.text.contains("no quota is reached") && !v.remedy.contains("quota"), "{v}");
}

#[test]
fn a_quota_beside_a_full_osd() {
    let mut e = full_osd();
    e["pools"].as_array_mut().unwrap().push(json!({"pool": 3, "name": "home", "full": true, "quota": true}));
    let all = verdicts(&e);
    assert_eq!(all.iter().map(|v| v.culprit.as_str()).collect::<Vec<_>>(), ["home", "osd.1"]);
    assert!(all[1].evidence[1].ends_with("quota: rbd"), "{}", all[1]);
}

#[test]
fn a_full_file_system_under_the_file_of_an_osd() {
    let mut e = full_osd();
    let starved = json!({"short": false, "total": 64_u64 << 30, "available": 60_u64 << 30, "lacks": 60_u64 << 30, "free": 200 << 20});
    e["osds"][1]["space"] = starved.clone();
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str(), v.osds.as_slice()), (Kind::Full, "osd.1", [1].as_slice()));
    assert!(v.text.contains("file system") && v.text.contains("200 MiB free"), "{v}");
    assert!(v.evidence[0].contains("osd.1 on host1 counts 60.0 GiB as free"), "{v}");
    assert!(!v.remedy.contains("0.97") && v.remedy.contains("make room on that file system"), "{v}");
    // The OSD refuses writes before the map shows it full.
    let mut early = cluster();
    early["osds"][1]["space"] = starved;
    assert_eq!(verdicts(&early), [], "it takes writes");
    early["osds"][1]["space"]["short"] = true.into();
    assert!(only(&early).text.contains("file system"), "{}", only(&early));
    early["osds"][1]["space"] =
        json!({"short": true, "total": 64_u64 << 30, "available": 1_u64 << 30, "lacks": 0, "free": 0});
    assert!(only(&early).text.contains("osd_failsafe_full_ratio"), "{}", only(&early));
}

#[test]
fn an_osd_that_does_not_run_since_its_file_system_is_full() {
    let mut e = cluster();
    let why = "/c/osd.2/block: its file system has 0 bytes free; this OSD starts when there are 134217728 (half of \
               osd_file_min_free)";
    e["health"] = json!([
        {"code": "OSD_DOWN", "summary": "1 osds down", "detail": ["osd.2 (root=default,host=a) is down"]},
        {"code": "OSD_STORE_FAILED", "summary": "1 osds stopped because their store failed",
         "detail": [format!("osd.2 on a stopped: {why}")]}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::Full, "osd.2"));
    assert!(v.evidence[0].contains("0 bytes free") && v.remedy.contains("starts by itself"), "{v}");
    e["background"] = json!([{"pg": "2.1", "state": "down", "activity": "inactive", "osds": [0, 1]}]);
    let all = verdicts(&e);
    assert_eq!(all[0].kind, Kind::NotServing);
    assert!(all[0].remedy.contains("make room on the file systems"), "{}", all[0]);
    e["health"][1]["detail"] = json!(["osd.2 on a stopped: /dev/sdb: cannot write (EIO)"]);
    assert!(only(&e).remedy.contains("start the OSDs that are down"), "a device that fails");
}

#[test]
fn crush_finds_too_few_places() {
    let mut e = cluster();
    e["background"] = json!([
        {"pg": "7.0", "state": "incomplete", "activity": "inactive", "osds": [0, 1, 2], "placement":
            {"pool": "data", "rule": "p42", "domain": "host", "coded": true, "osds": 6, "found": 3, "wanted": 6, "min_size": 5}},
        {"pg": "7.1", "state": "creating+peering", "activity": "inactive", "osds": [0, 1, 2], "placement":
            {"pool": "data", "rule": "p42", "domain": "host", "coded": true, "osds": 6, "found": 3, "wanted": 6, "min_size": 5}}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str(), v.pools.as_slice()), (Kind::NotServing, "pool data", [7].as_slice()));
    assert_eq!(v.text, "CRUSH finds 3 of 6 places for pool data with rule p42 (failure domain host)");
    assert!(v.evidence[0].starts_with("2 PGs do not serve: 7.0 (incomplete)"), "{v}");
    assert!(v.remedy.contains("add hosts") && v.remedy.contains("failure domain osd"), "{v}");
    e["background"][1]["placement"]["found"] = 6.into();
    assert_eq!(verdicts(&e).len(), 2, "a PG with its places waits for something else");
}

#[test]
fn an_old_state_of_the_monitors() {
    let mut e = cluster();
    let detail = "osd.0 has map 55, the monitor has 20: its state is an old copy; stop the monitors and run `belemnite \
                  state advance`";
    e["health"] = json!([
        {"code": "OSD_MAP_AHEAD", "summary": "1 osds have newer maps than the monitor", "detail": [detail]},
        {"code": "OSD_DOWN", "summary": "1 osds down", "detail": ["osd.0 (root=default,host=a) is down"]}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::OldState, "monitors"));
    assert!(v.text.ends_with("osd.0 has map 55, the monitor has 20"), "{v}");
    assert!(v.remedy.contains("`belemnite state advance`"), "{v}");
    e["background"] = json!([{"pg": "2.1", "state": "unknown", "activity": "inactive", "osds": [0, 1]}]);
    assert_eq!(only(&e).evidence, ["1 PG does not serve: 2.1 (unknown)"]);
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

/// As it was with three OSDs on one device of 30 MB a second: the scrub had gone on for so long that the mean of ten minutes
/// was little less than that of now.
#[test]
fn a_deep_scrub_that_goes_on() {
    let mut e = cluster();
    for o in e["osds"].as_array_mut().unwrap() {
        o["ops"] = 2153.into();
        o["us"] = json!({"client": 247_955, "turn": 298_307, "lock": 86_966, "read": 16_022_763, "commit": 5_967_821,
            "replica": 1_004_427});
        (o["long_ops"], o["long_us"]) = (20_000.into(), 176_000_000.into());
        o["device"] = json!({"writes": 917, "us": 3_424_073, "max_us": 81_309, "pending_us": 7288});
    }
    assert_eq!(verdicts(&e), [], "without the scrub");
    e["background"] =
        json!([{"pg": "2.2", "state": "active+clean+scrubbing+deep", "activity": "deep_scrub", "osds": [0, 1, 2]}]);
    let v = only(&e);
    assert_eq!((v.kind, v.culprit.as_str()), (Kind::DeepScrub, "deep scrub of 1 PG"));
}

/// The manager has no rate of recovery yet, and no operation waits for an object: neither is claimed.
#[test]
fn recovery_that_has_just_begun() {
    let mut e = cluster();
    slow_devices(&mut e);
    e["background"] =
        json!([{"pg": "2.3", "state": "active+remapped+backfilling", "activity": "recovery", "osds": [0, 1]}]);
    let v = only(&e);
    assert_eq!(v.evidence.len(), 1, "{v}");
    assert!(v.text.starts_with("2.3 is copied"), "{v}");
}

/// One packet of fifty was dropped on a loopback interface.
#[test]
fn a_link_that_loses_one_of_fifty() {
    let mut e = cluster();
    e["osds"][1]["network"]["sent"] = 9730.into();
    e["osds"][1]["network"]["again"] = 30.into();
    assert_eq!(only(&e).kind, Kind::LossyLink);
    e["osds"][1]["network"] = json!({"sent": 49_922, "again": 33, "mtu": {"eth0": 9000}});
    assert_eq!(verdicts(&e), [], "a busy machine without loss");
}

#[test]
fn all_hosts_have_a_small_mtu() {
    let mut e = cluster();
    for o in e["osds"].as_array_mut().unwrap() {
        o["network"]["mtu"] = json!({"eth0": 1280});
    }
    let all = verdicts(&e);
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|v| v.text.ends_with("MTU of 1280, networks have 1500 or more")), "{}", all[0]);
}

/// Clients send nothing while the map pauses them, so no operation shows it.
#[test]
fn a_pause_that_no_operation_shows() {
    let mut e = cluster();
    e["health"] = json!([{"code": "OSDMAP_FLAGS", "summary": "pauserd,pausewr flag(s) set", "detail": []}]);
    let v = only(&e);
    assert_eq!(v.kind, Kind::NotServing);
    assert!(v.remedy.contains("unpause"), "{v}");
}

#[test]
fn a_subject_has_its_own_operations() {
    let e: Evidence = serde_json::from_value(cluster()).unwrap();
    let ops = |s: Subject| why::Load::of(&s.part_of(&e)).ops;
    assert_eq!(ops(Subject::Cluster), 18_000);
    assert_eq!(ops(Subject::Osd(1)), 6000);
    assert_eq!(ops(Subject::Client("client.4712".into())), 6000);
    assert_eq!(ops(Subject::Client("client.1".into())), 0);
    assert_eq!((ops(Subject::Pool(2)), ops(Subject::Pool(3))), (18_000, 0));
    assert_eq!(ops(Subject::Pg(vec![0, 2])), 12_000);
}

#[test]
fn a_start_within_the_span_is_said() {
    let mut e = cluster();
    let of = |e: &Value| serde_json::from_value::<Evidence>(e.clone()).unwrap().young_text();
    assert_eq!(of(&e), "");
    e["osds"][1]["seconds"] = 600.0.into();
    assert_eq!(of(&e), "osd.1 started 30 s ago or later: what was before is not known");
}

#[test]
fn pgs_that_a_new_monitor_does_not_know_are_no_outage() {
    let mut e = cluster();
    e["background"] = json!([{"pg": "2.0", "state": "unknown", "activity": "inactive", "osds": []}]);
    assert_eq!(verdicts(&e), Vec::new());
    e["health"] =
        json!([{"code": "PG_AVAILABILITY", "summary": "Reduced data availability: 1 pg inactive", "detail": []}]);
    assert_eq!(verdicts(&e)[0].kind, Kind::NotServing);
}
