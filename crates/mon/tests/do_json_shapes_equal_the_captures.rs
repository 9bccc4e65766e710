//! Does this program's JSON have the keys of Ceph's, in the same order and with the same kinds of values?
//!
//! The reference is the output of the `ceph` program of 16.2 (vectors/cli), compared structure by structure. Maps whose
//! keys are names (metadata, health checks, applications) are not compared.

mod support;

use base::{Epoch, Eversion, OsdId, PgId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use support::*;
use wire::msg::MPgStats;
use wire::types::{OsdStat, PgStat, StoreStatfs, pg_state};

const GIB: i64 = 1 << 30;

/// A cluster of three OSDs that report a pool of one PG.
fn cluster() -> (Cluster, u64) {
    let (mut c, admin, _) = Cluster::with_osds(3);
    for id in 0..3 {
        c.ok(admin, &json!({ "prefix": "osd crush set-device-class", "class": "hdd", "ids": [id.to_string()] }));
    }
    let create = json!({ "prefix": "osd pool create", "pool": "rbd", "pg_num": 1, "pg_num_min": 1, "pg_num_max": 32 });
    c.ok(admin, &create);
    c.ok(admin, &json!({ "prefix": "osd pool application enable", "pool": "rbd", "app": "rbd" }));
    c.ok(admin, &json!({ "prefix": "config set", "who": "client", "name": "rbd_cache", "value": "false" }));
    report(&mut c);
    (c, admin)
}

fn report(c: &mut Cluster) {
    let place = c.map().pg_to_up_acting(PgId::new(1, 0));
    for id in 0..3 {
        let s = c.osd_session(id, osd_addr(id), mon::state::Role::Mgr);
        let osd_stat = OsdStat {
            kb: 2 << 20,
            kb_used: 1 << 10,
            kb_avail: (2 << 20) - (1 << 10),
            hb_peers: vec![OsdId((id + 1) % 3)],
            seq: 7,
            num_pgs: 1,
            num_osds: 1,
            statfs: StoreStatfs { total: 2 * GIB, available: 2 * GIB - (1 << 20), ..StoreStatfs::default() },
            ..OsdStat::default()
        };
        let mut pg_stat: BTreeMap<PgId, PgStat> = BTreeMap::new();
        if place.acting_primary == OsdId(id) {
            let mut p = PgStat {
                version: Eversion::new(3, 4),
                reported_epoch: Epoch(9),
                reported_seq: 5,
                up: place.up.to_vec(),
                acting: place.acting.to_vec(),
                up_primary: place.up_primary,
                acting_primary: place.acting_primary,
                ..PgStat::default()
            };
            p.set_state(pg_state::ACTIVE | pg_state::CLEAN);
            pg_stat.insert(PgId::new(1, 0), p);
        }
        c.send(s, &MPgStats { fsid: FSID, osd_stat, pg_stat, ..MPgStats::default() });
    }
}

/// The captured JSON by `ceph` command line.
fn captures() -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    for file in ["p.cliread", "p.status", "p.cliwrite"] {
        let path = format!("{}/../../vectors/cli/{file}.out.gz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        for block in text.split("## ").skip(1) {
            let (line, body) = block.split_once('\n').unwrap();
            let Some(start) = body.find(['{', '[']) else { continue };
            let mut values = serde_json::Deserializer::from_str(&body[start..]).into_iter::<Value>();
            if let Some(Ok(v)) = values.next() {
                let line = line.trim().trim_end_matches("-f json-pretty").trim_end_matches("-f json").trim();
                out.insert(line.to_owned(), v);
            }
        }
    }
    out
}

/// Paths whose keys are names, or that exist on one side only.
const FREE: &[&str] = &[
    "health/checks",
    "mgrmap/modules",
    "available_modules",
    "always_on_modules",
    "active_clients",
    "application_metadata",
    "options",
    "erasure_code_profiles",
    "blocklist",
    "crush_location",
    "services",
    "public_addrs/addrvec",
    "addrs/addrvec",
    "active_addrs/addrvec",
    "cluster_addrs/addrvec",
    "heartbeat_back_addrs/addrvec",
    "heartbeat_front_addrs/addrvec",
    "/container_name",
    "config",
];

fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn compare(path: &str, want: &Value, got: &Value, wrong: &mut Vec<String>) {
    if FREE.iter().any(|f| path.ends_with(f)) {
        return;
    }
    match (want, got) {
        (Value::Object(w), Value::Object(g)) => {
            let keys = |m: &serde_json::Map<String, Value>| -> Vec<String> {
                m.keys().filter(|k| *k != "container_name").cloned().collect()
            };
            let (kw, kg) = (keys(w), keys(g));
            if kw != kg {
                wrong.push(format!("{path}: want {kw:?}\n   got {kg:?}"));
            }
            for (k, v) in w {
                if let Some(x) = g.get(k) {
                    compare(&format!("{path}/{k}"), v, x, wrong);
                }
            }
        }
        (Value::Array(w), Value::Array(g)) => {
            if let (Some(w), Some(g)) = (w.first(), g.first()) {
                compare(&format!("{path}[]"), w, g, wrong);
            }
        }
        (w, g) if kind(w) != kind(g) => wrong.push(format!("{path}: want {} {w}, got {} {g}", kind(w), kind(g))),
        _ => {}
    }
}

#[test]
fn shapes() {
    let (mut c, admin) = cluster();
    let captures = captures();
    let mut wrong = Vec::new();
    let lines: Vec<(&str, Value)> = vec![
        ("ceph status", json!({ "prefix": "status" })),
        ("ceph df detail", json!({ "prefix": "df", "detail": "detail" })),
        ("ceph osd tree", json!({ "prefix": "osd tree" })),
        ("ceph osd pool ls detail", json!({ "prefix": "osd pool ls", "detail": "detail" })),
        ("ceph osd dump", json!({ "prefix": "osd dump" })),
        ("ceph health", json!({ "prefix": "health" })),
        ("ceph pg dump", json!({ "prefix": "pg dump" })),
        ("ceph pg stat", json!({ "prefix": "pg stat" })),
        ("ceph pg ls", json!({ "prefix": "pg ls" })),
        ("ceph osd perf", json!({ "prefix": "osd perf" })),
        ("ceph osd df tree", json!({ "prefix": "osd df", "output_method": "tree" })),
        ("ceph osd stat", json!({ "prefix": "osd stat" })),
        ("ceph mon stat", json!({ "prefix": "mon stat" })),
        ("ceph mon dump", json!({ "prefix": "mon dump" })),
        ("ceph mgr dump", json!({ "prefix": "mgr dump" })),
        ("ceph mgr stat", json!({ "prefix": "mgr stat" })),
        ("ceph mgr module ls", json!({ "prefix": "mgr module ls" })),
        ("ceph mds stat", json!({ "prefix": "mds stat" })),
        ("ceph fs dump", json!({ "prefix": "fs dump" })),
        ("ceph quorum_status", json!({ "prefix": "quorum_status" })),
        ("ceph features", json!({ "prefix": "features" })),
        ("ceph fsid", json!({ "prefix": "fsid" })),
        ("ceph osd crush rule ls", json!({ "prefix": "osd crush rule ls" })),
        ("ceph osd crush rule dump", json!({ "prefix": "osd crush rule dump" })),
        ("ceph osd crush dump", json!({ "prefix": "osd crush dump" })),
        ("ceph osd crush tree", json!({ "prefix": "osd crush tree" })),
        ("ceph osd crush show-tunables", json!({ "prefix": "osd crush show-tunables" })),
        ("ceph osd find 0", json!({ "prefix": "osd find", "id": 0 })),
        ("ceph osd lspools", json!({ "prefix": "osd lspools" })),
        ("ceph osd ls", json!({ "prefix": "osd ls" })),
        ("ceph time-sync-status", json!({ "prefix": "time-sync-status" })),
        ("ceph osd pool autoscale-status", json!({ "prefix": "osd pool autoscale-status" })),
        ("ceph osd pool stats", json!({ "prefix": "osd pool stats" })),
        ("ceph balancer status", json!({ "prefix": "balancer status" })),
        ("ceph config dump", json!({ "prefix": "config dump" })),
        ("ceph service dump", json!({ "prefix": "service dump" })),
        ("ceph osd blocked-by", json!({ "prefix": "osd blocked-by" })),
        ("ceph osd pool get tpp size", json!({ "prefix": "osd pool get", "pool": "rbd", "var": "size" })),
        ("ceph osd pool get-quota tpp", json!({ "prefix": "osd pool get-quota", "pool": "rbd" })),
    ];
    for (line, mut cmd) in lines {
        let Some(want) = captures.get(line) else { panic!("no capture of {line}") };
        cmd["format"] = "json".into();
        let got: Value = serde_json::from_str(&c.ok(admin, &cmd)).unwrap_or_else(|e| panic!("{line}: {e}"));
        compare(line, want, &got, &mut wrong);
        cmd["format"] = "json-pretty".into();
        let pretty: Value = serde_json::from_str(&c.ok(admin, &cmd)).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(pretty, got, "{line}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn reports_reach_what_clients_and_operators_see() {
    let (mut c, admin) = cluster();
    let s = c.ok(admin, &json!({ "prefix": "status" }));
    assert!(s.contains("    usage:   3 MiB used, 6.0 GiB / 6 GiB avail\n"), "{s}");
    assert!(s.contains("    pgs:     1 active+clean\n"), "{s}");
    let df = c.ok(admin, &json!({ "prefix": "df" }));
    assert!(df.contains("hdd    6 GiB  6.0 GiB  3 MiB     3 MiB       0.05\n"), "{df}");
    let osd = c.ok(admin, &json!({ "prefix": "osd df" }));
    assert!(osd.contains(" 0    hdd  1.00000   1.00000  2 GiB    1 MiB"), "{osd}");
    // The space of an OSD that is out is not part of the cluster's.
    c.ok(admin, &json!({ "prefix": "osd out", "ids": ["0"] }));
    let df = c.ok(admin, &json!({ "prefix": "df" }));
    assert!(df.contains("TOTAL  4 GiB"), "{df}");
}
