//! Do operators get told of devices that are expected to fail, and do OSDs leave them in time?

mod support;

use base::OsdId;
use mon::state::Role;
use serde_json::{Value, json};
use std::time::Duration;
use support::*;

/// Ten OSDs, each on a drive of its own.
fn cluster() -> (Cluster, u64) {
    let mut c = Cluster::new();
    let admin = c.admin();
    // Nobody sends beacons.
    c.ok(
        admin,
        &json!({ "prefix": "config set", "who": "global", "name": "mon_osd_report_timeout", "value": "100000" }),
    );
    for id in 0..10 {
        c.new_osd(admin, id, &format!("h{id}"));
        let s = c.osd_session(id, osd_addr(id), Role::Mon);
        let mut boot = boot_message(FSID, id, c.map().epoch, 0);
        for (k, v) in [("device_ids", format!("sdb=DRIVE_{id}")), ("devices", "sdb".to_owned())] {
            boot.metadata.insert(k.into(), v);
        }
        c.send(s, &boot);
    }
    c.ticks(2);
    (c, admin)
}

/// The date so many days from now.
fn date(c: &Cluster, days: u64) -> String {
    c.now.wall.plus(Duration::from_secs(days * 86_400)).iso()
}

fn expect(c: &mut Cluster, admin: u64, dev: &str, from: u64, to: u64) {
    let (from, to) = (date(c, from), date(c, to));
    c.ok(admin, &json!({ "prefix": "device set-life-expectancy", "devid": dev, "from": from, "to": to }));
}

fn health(c: &mut Cluster, admin: u64) -> Value {
    let out = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }));
    serde_json::from_str::<Value>(&out).unwrap()["checks"].clone()
}

fn devices(c: &mut Cluster, admin: u64) -> Vec<Value> {
    let out = c.ok(admin, &json!({ "prefix": "device ls", "format": "json" }));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn life_expectancy_is_shown_and_forgotten() {
    let (mut c, admin) = cluster();
    assert_eq!(devices(&mut c, admin).len(), 10);
    c.ok(admin, &json!({ "prefix": "device set-life-expectancy", "devid": "DRIVE_3", "from": "2033-01-01", "to": "" }));
    let d = devices(&mut c, admin).remove(3);
    assert_eq!(d["life_expectancy_min"], "2033-01-01T00:00:00.000000+0000");
    assert_eq!((&d["life_expectancy_max"], &d["daemons"]), (&json!("0.000000"), &json!(["osd.3"])));
    let text = c.ok(admin, &json!({ "prefix": "device ls" }));
    assert!(text.lines().any(|l| l.starts_with("DRIVE_3") && l.trim_end().ends_with(">9y")), "{text}");
    let text = c.ok(admin, &json!({ "prefix": "device info", "devid": "DRIVE_3" }));
    assert!(text.contains("life_expectancy 2033-01-01T00:00:00.000000+0000 to 0.000000 (as of 2023-11-14T"), "{text}");
    for what in [
        json!({ "prefix": "device ls-by-daemon", "who": "osd.3" }),
        json!({ "prefix": "device ls-by-host", "host": "h3" }),
    ] {
        let text = c.ok(admin, &what);
        assert!(text.trim_end().ends_with(">9y"), "{text}");
    }
    // A device that no daemon uses, and one that is known for ever: both survive a restart.
    expect(&mut c, admin, "SPARE", 10, 20);
    c.restart();
    let admin = c.admin();
    let spare = devices(&mut c, admin).into_iter().find(|d| d["devid"] == "SPARE").unwrap();
    assert_eq!((&spare["daemons"], &spare["location"]), (&json!([]), &json!([])));
    assert!(health(&mut c, admin).get("DEVICE_HEALTH").is_none(), "what nobody uses raises no alarm");
    c.ok(admin, &json!({ "prefix": "device rm-life-expectancy", "devid": "SPARE" }));
    c.ok(admin, &json!({ "prefix": "device rm-life-expectancy", "devid": "NONE" }));
    assert!(!devices(&mut c, admin).iter().any(|d| d["devid"] == "SPARE"));
}

#[test]
fn words_that_are_no_time_are_refused() {
    let (mut c, admin) = cluster();
    for (from, to, wrong) in [("soon", "", "soon"), ("2033-01-01", "later", "later"), ("", "", "")] {
        let cmd = json!({ "prefix": "device set-life-expectancy", "devid": "DRIVE_0", "from": from, "to": to });
        let (rc, rs, _) = c.command(admin, &cmd, "");
        assert_eq!((rc, rs), (-22, format!("unable to parse datetime '{wrong}'")));
    }
    let long = json!({ "prefix": "device set-life-expectancy", "devid": "x".repeat(513), "from": "2033-01-01" });
    assert_eq!(c.command(admin, &long, "").0, -22);
    let predict = json!({ "prefix": "device predict-life-expectancy", "devid": "DRIVE_0" });
    let (rc, rs, _) = c.command(admin, &predict, "");
    assert_eq!((rc, rs.as_str()), (-1, "unable to enable any disk prediction model[local/cloud]"));
    for cmd in [
        json!({ "prefix": "device scrape-health-metrics", "devid": "NONE" }),
        json!({ "prefix": "device get-health-metrics", "devid": "NONE" }),
    ] {
        let (rc, rs, _) = c.command(admin, &cmd, "");
        assert_eq!((rc, rs.as_str()), (-2, "device NONE not found"));
    }
    expect(&mut c, admin, "SPARE", 10, 20);
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "device scrape-health-metrics", "devid": "SPARE" }), "");
    assert_eq!((rc, rs.as_str()), (-11, "device SPARE not claimed by any active daemons"));
}

#[test]
fn lights_that_are_on_raise_an_alert() {
    let (mut c, admin) = cluster();
    let light = |id: &str| json!({ "prefix": "device light", "enable": "on", "devid": id });
    let (rc, rs, _) = c.command(admin, &light("NONE"), "");
    assert_eq!((rc, rs.as_str()), (-2, "device NONE not found"));
    expect(&mut c, admin, "SPARE", 10, 20);
    assert_eq!(c.command(admin, &light("SPARE"), "").0, -11);
    let none = "{\n    \"fault\": [],\n    \"ident\": []\n}";
    assert_eq!(c.ok(admin, &json!({ "prefix": "device ls-lights" })).trim_end(), none);
    let on = r#"{"fault": ["B"], "ident": ["A", "B", 7]}"#;
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "mgr/orchestrator/active_devices", "val": on }));
    assert!(c.ok(admin, &json!({ "prefix": "device ls-lights" })).contains("\"A\""));
    let h = c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }));
    for text in ["DEVICE_IDENT_ON: 2 devices have ident light turned on", "B fault light enabled"] {
        assert!(h.contains(text), "{h}");
    }
}

#[test]
fn kept_health_data_is_shown_by_its_times() {
    let (mut c, admin) = cluster();
    let metrics = |c: &mut Cluster, sample: &str| -> Value {
        let cmd = json!({ "prefix": "device get-health-metrics", "devid": "DRIVE_1", "sample": sample });
        serde_json::from_str(&c.ok(admin, &cmd)).unwrap()
    };
    assert_eq!(metrics(&mut c, ""), json!({}));
    for (key, val) in [
        ("DRIVE_1/20260101-000000", "{\"a\": 1}"),
        ("DRIVE_1/20260102-000000", "{\"a\": 2}"),
        ("DRIVE_1/x/20260102-000000", "{\"a\": 3}"),
        ("DRIVE_10/20260103-000000", "{\"a\": 4}"),
        ("DRIVE_1/20260104-000000", "no JSON"),
    ] {
        let key = format!("mgr/devicehealth/metrics/{key}");
        c.ok(admin, &json!({ "prefix": "config-key set", "key": key, "val": val }));
    }
    assert_eq!(metrics(&mut c, ""), json!({ "20260101-000000": { "a": 1 }, "20260102-000000": { "a": 2 } }));
    assert_eq!(metrics(&mut c, "20260102-000000"), json!({ "20260102-000000": { "a": 2 } }));
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "device/DRIVE_1", "val": "{\"wear_level\": \"0.07\"}" }));
    assert_eq!(devices(&mut c, admin)[1]["wear_level"], 0.07);
    let text = c.ok(admin, &json!({ "prefix": "device ls" }));
    assert!(text.lines().any(|l| l.starts_with("DRIVE_1 ") && l.contains("7%")), "{text}");
}

#[test]
fn osds_leave_devices_that_fail_soon() {
    let (mut c, admin) = cluster();
    expect(&mut c, admin, "DRIVE_1", 30, 80);
    let h = health(&mut c, admin);
    assert_eq!(h["DEVICE_HEALTH"]["summary"]["message"], "1 device(s) expected to fail soon");
    let (min, max) = (date(&c, 30), date(&c, 80));
    assert_eq!(
        h["DEVICE_HEALTH"]["detail"][0]["message"],
        format!("DRIVE_1 (h1:sdb); daemons osd.1; life expectancy between {min} and {max}")
    );
    c.ticks(700);
    assert!(c.map().is_in(OsdId(1)), "there is time");
    expect(&mut c, admin, "DRIVE_1", 3, 20);
    c.ok(admin, &json!({ "prefix": "device check-health" }));
    assert!(c.map().is_out(OsdId(1)));
    assert_eq!(c.map().affinity(OsdId(1)), 0);
    let log = c.ok(admin, &json!({ "prefix": "log last", "num": 20 }));
    assert!(log.contains("Marking osd.1 out, because its device is expected to fail soon"), "{log}");
    // The others by time, as long as enough OSDs are in: the limit is three quarters.
    for (o, days) in [(2, 9), (3, 2), (4, 5)] {
        expect(&mut c, admin, &format!("DRIVE_{o}"), 1, days);
    }
    c.ticks(700);
    let out: Vec<i32> = c.map().osds().filter(|o| c.map().is_out(*o)).map(|o| o.0).collect();
    assert_eq!(out, [1, 3], "the next to fail, and no more than may go");
    let h = health(&mut c, admin);
    assert_eq!(h["DEVICE_HEALTH_TOOMANY"]["summary"]["message"], "Too many daemons are expected to fail soon");
    assert_eq!(
        h["DEVICE_HEALTH_TOOMANY"]["detail"][0]["message"],
        "2 OSDs with failing device(s) would bring \"in\" ratio to 0.600000 < mon_osd_min_in_ratio 0.750000"
    );
    assert_eq!(h["DEVICE_HEALTH"]["summary"]["message"], "4 device(s) expected to fail soon");
    // Without an end of its life a device raises no alarm, as in Ceph.
    c.ok(admin, &json!({ "prefix": "device set-life-expectancy", "devid": "DRIVE_4", "from": "2023-11-15" }));
    assert_eq!(health(&mut c, admin)["DEVICE_HEALTH"]["summary"]["message"], "3 device(s) expected to fail soon");
}

#[test]
fn operators_switch_it_off() {
    let (mut c, admin) = cluster();
    c.ok(
        admin,
        &json!({ "prefix": "config set", "who": "mgr", "name": "mgr/devicehealth/self_heal", "value": "false" }),
    );
    expect(&mut c, admin, "DRIVE_1", 1, 2);
    c.ticks(700);
    c.ok(admin, &json!({ "prefix": "device check-health" }));
    assert!(c.map().is_in(OsdId(1)));
    c.ok(
        admin,
        &json!({ "prefix": "config set", "who": "mgr", "name": "mgr/devicehealth/self_heal", "value": "true" }),
    );
    c.ok(admin, &json!({ "prefix": "device monitoring off" }));
    assert!(health(&mut c, admin).get("DEVICE_HEALTH").is_none());
    c.ticks(700);
    assert!(c.map().is_in(OsdId(1)));
    c.ok(admin, &json!({ "prefix": "device monitoring on" }));
    assert!(health(&mut c, admin).get("DEVICE_HEALTH").is_some());
    c.ticks(700);
    assert!(c.map().is_out(OsdId(1)));
    // A reader sees, and changes nothing.
    let reader = c.client("client.reader", "allow r");
    for cmd in [json!({ "prefix": "device check-health" }), json!({ "prefix": "device monitoring off" })] {
        assert_eq!(c.command(reader, &cmd, "").0, -13);
    }
}

/// Entries of the manager about hosts that became worse.
#[test]
fn hosts_that_became_worse_raise_alarm() {
    let (mut c, admin) = cluster();
    let key = "mgr/doctor/drift";
    let entry = json!({
        "host": "h1", "check": "governor", "was": "fine", "now": "warning", "what": "powersave on 8 CPUs",
        "change": "cpupower frequency-set -g performance", "since": "2026-11-29T17:00:00.000000+0000",
    });
    let set = |c: &mut Cluster, v: Value| {
        c.ok(admin, &json!({ "prefix": "config-key set", "key": key, "val": v.to_string() }));
        health(c, admin).get("HOST_DRIFT").cloned()
    };
    let drift = set(&mut c, json!([entry])).unwrap();
    assert_eq!(
        (&drift["severity"], &drift["summary"]["message"]),
        (&json!("HEALTH_WARN"), &json!("1 checks of hosts became worse"))
    );
    assert_eq!(
        drift["detail"][0]["message"],
        "h1: governor: warning since 2026-11-29T17:00:00.000000+0000, was fine: powersave on 8 CPUs; cpupower \
         frequency-set -g performance"
    );
    // What another client wrote there.
    for odd in [json!(null), json!({}), json!([1, {"host": 3}, {}]), json!("x".repeat(60_000))] {
        assert_eq!(set(&mut c, odd), None);
    }
    assert_eq!(set(&mut c, json!([1, entry])).unwrap()["summary"]["count"], 1);
    c.ok(admin, &json!({ "prefix": "config-key rm", "key": key }));
    assert!(health(&mut c, admin).get("HOST_DRIFT").is_none());
}
