//! Do commands answer with Ceph's errno, status line and output?
//!
//! The transcripts were taken from a real 16.2 cluster. Lines with `differs` are run for their effects, but their
//! answers differ from Ceph's on purpose: features that are not supported, answers that name hosts, ids or times, and
//! a few flaws of Ceph's output (two JSON documents in one output, a number printed in pieces).

mod support;

use mon::state::Role;
use mon::state::options::{MonOptions, PoolOptions};
use serde_json::{Value, json};
use support::*;
use wire::msg::MPgStats;
use wire::types::{PgStat, pg_state};

fn cluster() -> (Cluster, u64) {
    let mut c = Cluster::with(
        FSID,
        MonOptions { pools: PoolOptions { allow_delete: true, ..PoolOptions::default() }, ..MonOptions::default() },
    );
    let admin = c.admin();
    for id in 0..3 {
        c.new_osd(admin, id, &format!("node{id}"));
        c.ok(admin, &json!({ "prefix": "osd crush set-device-class", "class": "hdd", "ids": [id.to_string()] }));
    }
    for id in 0..3 {
        c.boot(id, &osd_addr(id));
    }
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "device_health_metrics", "pg_num": 1 }));
    (c, admin)
}

/// Makes and removes the pools that the recorded cluster had made before.
fn with_pools(c: &mut Cluster, admin: u64) {
    for p in ["x2", "x3", "p3", ".p3", "p4", "p1"] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": p, "pg_num": 8 }));
    }
    for p in ["x2", "x3"] {
        let rm = json!({ "prefix": "osd pool rm", "pool": p, "pool2": p, "yes_i_really_really_mean_it": true });
        c.ok(admin, &rm);
    }
}

/// Opens the OSDs' sessions with the manager role and reports all PGs, so that OSDs take requests for scrubs.
fn with_reports(c: &mut Cluster) {
    let map = c.map().clone();
    let up: Vec<i32> = map.osds().filter(|o| map.is_up(*o)).map(|o| o.0).collect();
    for osd in up {
        let mgr = c.osd_session(osd, osd_addr(osd), Role::Mgr);
        let of_pool = |(id, p): (&base::PoolId, &std::sync::Arc<cluster::PgPool>)| {
            (0..p.pg_num).map(|seed| base::PgId { pool: *id, seed }).collect::<Vec<_>>()
        };
        let mine = map.pools.iter().flat_map(of_pool).filter(|pg| map.pg_to_up_acting(*pg).acting_primary.0 == osd);
        let mut stat = PgStat { reported_seq: 1, acting_primary: base::OsdId(osd), ..PgStat::default() };
        stat.set_state(pg_state::ACTIVE | pg_state::CLEAN);
        let pg_stat = mine.map(|pg| (pg, stat.clone())).collect();
        c.send(mgr, &MPgStats { fsid: FSID, pg_stat, ..MPgStats::default() });
    }
}

fn replay(c: &mut Cluster, admin: u64, transcript: &str) {
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in transcript.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let (rc, rs, out) = c.command(admin, &e["cmd"], "");
        if e["differs"] == true {
            continue;
        }
        compared += 1;
        if e["rc"] != rc || e["rs"] != rs || e["out"] != out {
            wrong.push(format!("{}\n want {} {} {}\n got  {rc} {rs:?} {out:?}", e["cmd"], e["rc"], e["rs"], e["out"]));
        }
    }
    assert!(compared > 100, "{compared}");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn pools() {
    let (mut c, admin) = cluster();
    replay(&mut c, admin, include_str!("transcripts/pools.jsonl"));
}

#[test]
fn osds_flags_placement_and_crush() {
    let (mut c, admin) = cluster();
    with_pools(&mut c, admin);
    replay(&mut c, admin, include_str!("transcripts/osds.jsonl"));
}

#[test]
fn keys_configuration_logs_and_health() {
    let (mut c, admin) = cluster();
    with_pools(&mut c, admin);
    with_reports(&mut c);
    replay(&mut c, admin, include_str!("transcripts/auth_and_config.jsonl"));
}

#[test]
fn show_commands() {
    let (mut c, admin) = cluster();
    with_pools(&mut c, admin);
    replay(&mut c, admin, include_str!("transcripts/shows.jsonl"));
}

#[test]
fn erasure_coded_pools() {
    let (mut c, admin) = cluster();
    replay(&mut c, admin, include_str!("transcripts/erasure.jsonl"));
}

#[test]
fn a_pool_follows_its_profile_and_a_used_profile_cannot_change() {
    let (mut c, admin) = cluster();
    let profile = |words: &[&str], force: bool| json!({ "prefix": "osd erasure-code-profile set", "name": "p", "profile": words, "force": force });
    c.ok(admin, &profile(&["k=2", "m=1", "stripe_unit=16K"], false));
    c.ok(admin, &profile(&["plugin=isa", "k=2", "m=1", "stripe_unit=16K"], true));
    let create = |pool: &str, profile: &str| json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 8, "pool_type": "erasure", "erasure_code_profile": profile });
    c.ok(admin, &create("e", "p"));
    let map = c.map();
    let e = map.pool(map.pool_by_name("e").unwrap()).unwrap();
    assert_eq!((e.kind, e.size, e.min_size, e.stripe_width), (3, 3, 2, 32768));
    assert_eq!((e.erasure_code_profile.as_str(), e.required_alignment()), ("p", Some(32768)));
    assert_eq!(map.crush.rule_name(e.crush_rule.into()), Some("e"));

    let (rc, rs, _) = c.command(admin, &profile(&["k=4", "m=2"], true), "");
    assert_eq!(rc, -16, "a pool's shards are laid out by it: {rs}");
    c.ok(admin, &profile(&["plugin=isa", "k=2", "m=1", "stripe_unit=16K"], true));
    assert_eq!(c.map().erasure_code_profiles["p"]["plugin"], "isa");

    // A failed command creates neither rule nor pool.
    let rules = c.map().crush.rule_names.len();
    let mut bad = create("f", "p");
    bad["pg_num"] = 4096.into();
    assert_eq!(c.command(admin, &bad, "").0, -34);
    assert_eq!(c.map().crush.rule_names.len(), rules);

    // Chunks are whole blocks, because stores have a checksum for each block; Ceph accepts smaller chunks.
    let small = json!({ "prefix": "osd erasure-code-profile set", "name": "s", "profile": ["stripe_unit=1024"], "force": true });
    c.ok(admin, &small);
    assert_eq!(c.command(admin, &create("s", "s"), "").0, -95);

    for (var, text) in [("allow_ec_overwrites", "ec_overwrites"), ("allow_ec_optimizations", "ec_optimizations")] {
        let set = |val: &str| json!({ "prefix": "osd pool set", "pool": "e", "var": var, "val": val });
        // As in 20.2, only `allow_ec_overwrites` refuses to be set to false.
        assert_eq!(c.command(admin, &set("false"), "").0, if text == "ec_overwrites" { -22 } else { 0 });
        c.ok(admin, &set("true"));
        assert_eq!(c.command(admin, &set("0"), "").0, -22);
        let get = json!({ "prefix": "osd pool get", "pool": "e", "var": var });
        assert_eq!(c.command(admin, &get, ""), (0, String::new(), format!("{var}: true\n")));
        let (_, _, detail) = c.command(admin, &json!({ "prefix": "osd pool ls", "detail": "detail" }), "");
        let line = detail.lines().find(|l| l.contains("'e'")).unwrap();
        assert!(
            line.contains("'e' erasure profile p size 3 min_size 2 crush_rule 1 ") && line.contains(text),
            "{line}"
        );
        assert!(line.contains(" stripe_width 32768"), "{line}");
        let other = json!({ "prefix": "osd pool get", "pool": "device_health_metrics", "var": var });
        assert_eq!(c.command(admin, &other, "").0, -13);
    }
    let map = c.map();
    assert_eq!(map.pool(map.pool_by_name("e").unwrap()).unwrap().required_alignment(), None);
}

#[test]
fn commands_take_keyrings_configuration_and_osd_keys_as_input() {
    let (mut c, admin) = cluster();
    let key = "AQDD1AFrx6mrBRAAoBHvMr8+GcnliTzLVBNWBQ==";
    let ring = format!("[client.imp]\n\tkey = {key}\n\tcaps mon = \"allow r\"\n");
    assert_eq!(c.command(admin, &json!({ "prefix": "auth import" }), &ring).1, "imported keyring");
    let (_, _, out) = c.command(admin, &json!({ "prefix": "auth get", "entity": "client.imp" }), "");
    assert_eq!(out, ring);
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "auth add", "entity": "client.other" }), &ring);
    assert_eq!((rc, rs.as_str()), (-22, "key for client.other not found in provided keyring"));
    assert_eq!(c.command(admin, &json!({ "prefix": "auth import" }), "zzz").0, -22);

    let conf = "[global]\nosd_max_backfills = 2\nzzopt = 4\nmon_host = 1.2.3.4\n[osd]\ndebug_osd = 2\n";
    let (_, _, rest) = c.command(admin, &json!({ "prefix": "config assimilate-conf" }), conf);
    assert_eq!(rest, "\n[global]\n\tmon_host = 1.2.3.4\n\tzzopt = 4\n");
    let (_, _, dump) = c.command(admin, &json!({ "prefix": "config dump" }), "");
    assert_eq!(
        dump,
        "WHO     MASK  LEVEL     OPTION             VALUE  RO\n\
         global        advanced  osd_max_backfills  2        \n  \
         osd         advanced  debug_osd          2/2      \n"
    );

    let secrets = format!("{{\"cephx_secret\": \"{key}\"}}");
    let new = json!({ "prefix": "osd new", "uuid": osd_uuid(9).to_string(), "id": 9 });
    assert_eq!(c.command(admin, &new, &secrets), (0, String::new(), "9\n".into()));
    let (_, _, out) = c.command(admin, &json!({ "prefix": "auth get", "entity": "osd.9" }), "");
    assert!(out.contains(key) && out.contains("caps osd = \"allow *\""), "{out}");
    assert_eq!(c.command(admin, &new, "{\"cephx_secret\": 5").0, -22);
}

#[test]
fn pg_num_is_a_target_and_pgp_num_follows_it() {
    let (mut c, admin) = cluster();
    with_pools(&mut c, admin);
    let set = |var: &str, val: &str| json!({ "prefix": "osd pool set", "pool": "p1", "var": var, "val": val });
    let pool = |c: &Cluster| {
        let m = c.map();
        let p = m.pool(m.pool_by_name("p1").unwrap()).unwrap();
        (p.pg_num, p.pg_num_target, p.pgp_num, p.pgp_num_target)
    };
    let (pgs, ..) = pool(&c);
    let id = c.map().pool_by_name("p1").unwrap().0;
    assert_eq!(c.command(admin, &set("pg_num", "64"), "").1, format!("set pool {id} pg_num to 64"));
    assert_eq!(pool(&c), (pgs, 64, pgs, 64), "nothing moves before the PGs are there");
    assert_eq!(c.command(admin, &set("pgp_num", "65"), "").0, -22);
    assert_eq!(c.command(admin, &set("pgp_num", "32"), "").0, 0);
    assert_eq!(c.command(admin, &set("pg_num", "128"), "").0, 0);
    assert_eq!(pool(&c), (pgs, 128, pgs, 32), "set apart, it stays so");
    assert_eq!(c.command(admin, &set("pg_num", "1"), "").0, 0);
    assert_eq!(
        pool(&c),
        (pgs, 1, pgs, 1),
        "none goes before its objects are elsewhere, and pgp_num is not more than wanted"
    );
    assert_eq!(c.command(admin, &set("pg_num", "0"), "").0, -34);
    assert_eq!(c.command(admin, &set("pg_num", "70000"), "").0, -34);
    assert_eq!(c.command(admin, &set("pg_num", "128"), "").0, 0);
    assert_eq!(c.command(admin, &set("pg_num_max", "200"), "").0, 0);
    assert_eq!(c.command(admin, &set("pg_num", "256"), "").0, -22);
    let refused = |c: &mut Cluster, var, val, text: &str| {
        let (rc, rs, _) = c.command(admin, &set(var, val), "");
        assert_eq!((rc, rs.as_str()), (-22, text));
    };
    refused(&mut c, "pg_num_max", "127", "specified pg_num_max 127 < pg_num 128");
    refused(&mut c, "pg_num_min", "129", "specified pg_num_min 129 > pg_num 128");
    for (var, val) in [("pg_num_max", "128"), ("pg_num_min", "128"), ("pg_num_max", "0"), ("pg_num_min", "0")] {
        assert_eq!(c.command(admin, &set(var, val), "").0, 0, "{var} {val}");
    }
}

#[test]
fn a_rule_and_an_expected_number_of_objects_stand_in_any_documented_place() {
    let (mut c, admin) = cluster();
    let rule = "replicated_rule";
    for (i, (more, rc, expected)) in [
        (json!({ "rule": rule }), 0, 0),
        (json!({ "erasure_code_profile": rule }), 0, 0),
        (json!({ "erasure_code_profile": rule, "rule": "1000" }), 0, 1000),
        (json!({ "erasure_code_profile": rule, "rule": "0", "expected_num_objects": 2 }), 0, 0),
        (json!({ "erasure_code_profile": rule, "expected_num_objects": 7 }), 0, 7),
        (json!({ "rule": rule, "expected_num_objects": 7 }), 0, 7),
        (json!({ "erasure_code_profile": rule, "rule": "many" }), -22, 0),
        (json!({ "erasure_code_profile": "nonesuch", "rule": "1" }), -2, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("form{i}");
        let mut cmd = json!({ "prefix": "osd pool create", "pool": name, "pg_num": 8, "pool_type": "replicated" });
        cmd.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(c.command(admin, &cmd, "").0, rc, "{more}");
        let m = c.map();
        let made = m.pool_by_name(&name).and_then(|id| m.pool(id));
        assert_eq!(made.map(|p| p.expected_num_objects), (rc == 0).then_some(expected), "{more}");
    }
}

#[test]
fn the_version_is_described_to_clients_and_answered() {
    let (mut c, admin) = cluster();
    let (_, _, out) = c.command(admin, &json!({ "prefix": "get_command_descriptions" }), "");
    assert!(out.contains(r#""sig":["version"]"#), "a client sends only what is described");
    let (rc, _, out) = c.command(admin, &json!({ "prefix": "version" }), "");
    assert!(rc == 0 && out.starts_with("ceph version 16.2.15"), "{out}");
    let (rc, _, out) = c.command(admin, &json!({ "prefix": "version", "format": "json" }), "");
    assert!(rc == 0 && out.starts_with(r#"{"version":"ceph version "#), "{out}");
}

#[test]
fn commands_on_files_go_to_the_host() {
    let (mut c, admin) = cluster();
    for cmd in [
        json!({ "prefix": "fs subvolume ls", "vol_name": "f" }),
        json!({ "prefix": "fs subvolume create", "vol_name": "f", "sub_name": "s", "size": 5, "namespace_isolated": true }),
        json!({ "prefix": "fs subvolume metadata set", "vol_name": "f", "sub_name": "s", "key_name": "k", "value": "v" }),
        json!({ "prefix": "fs subvolumegroup pin", "vol_name": "f", "group_name": "g", "pin_type": "export", "pin_setting": "0" }),
        json!({ "prefix": "fs clone cancel", "vol_name": "f", "clone_name": "c" }),
        json!({ "prefix": "fs snap-schedule status", "format": "json" }),
        json!({ "prefix": "fs snap-schedule add", "path": "/", "snap_schedule": "1h" }),
    ] {
        let (rc, rs, _) = c.command(admin, &cmd, "");
        assert_eq!((rc, rs.as_str()), (-11, "the cluster does not answer; try again"), "{cmd}");
    }
}

#[test]
fn unsupported_commands_say_so_and_change_nothing() {
    let (mut c, admin) = cluster();
    with_pools(&mut c, admin);
    let epoch = c.map().epoch;
    for cmd in [
        json!({ "prefix": "osd erasure-code-profile set", "name": "e", "profile": ["plugin=clay", "k=4", "m=2"] }),
        json!({ "prefix": "osd tier add", "pool": "p1", "tierpool": "p3" }),
        json!({ "prefix": "osd force-create-pg", "pgid": "7.0", "yes_i_really_mean_it": true }),
        json!({ "prefix": "fs subvolume charmap get", "vol_name": "f", "sub_name": "s" }),
        json!({ "prefix": "fs subvolumegroup charmap get", "vol_name": "f", "group_name": "g" }),
        json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.1" }),
    ] {
        let (rc, rs, _) = c.command(admin, &cmd, "");
        assert_eq!(rc, -95, "{cmd}: {rs}");
        let says = ["not supported", "does not support", "is not enabled", "move it to etcd first"];
        assert!(says.iter().any(|t| rs.contains(t)), "{cmd}: {rs}");
    }
    assert_eq!(c.map().epoch, epoch);
}

#[test]
fn image_tasks_in_a_missing_pool_are_refused() {
    let (mut c, admin) = cluster();
    for action in ["flatten", "remove", "migration execute", "migration commit", "migration abort"] {
        let cmd = json!({ "prefix": format!("rbd task add {action}"), "image_spec": "p/i" });
        let (rc, rs, _) = c.command(admin, &cmd, "");
        assert_eq!((rc, rs.as_str()), (-2, "[errno 2] RADOS object not found (error opening pool 'p')"), "{action}");
    }
}

#[test]
fn a_pool_size_sets_the_min_size_that_ceph_sets() {
    let (mut c, admin) = cluster();
    with_pools(&mut c, admin);
    let sizes = |c: &Cluster, name: &str| {
        let p = c.map().pool(c.map().pool_by_name(name).unwrap()).unwrap();
        (p.size, p.min_size)
    };
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "r3", "pg_num": 8, "size": 3 }));
    assert_eq!(sizes(&c, "r3"), (3, 2));
    for (n, min) in [(2, 1), (4, 2), (5, 3), (3, 2)] {
        c.ok(admin, &json!({ "prefix": "osd pool set", "pool": "r3", "var": "size", "val": n.to_string() }));
        assert_eq!(sizes(&c, "r3"), (n, min));
    }
    let one = json!({ "prefix": "osd pool set", "pool": "r3", "var": "size", "val": "1" });
    assert_eq!(c.command(admin, &one, "").0, -1, "asks whether that is meant");
    for n in ["0", "11"] {
        let bad = json!({ "prefix": "osd pool set", "pool": "r3", "var": "size", "val": n });
        assert_eq!(c.command(admin, &bad, "").0, -22);
    }
    let min = json!({ "prefix": "osd pool set", "pool": "r3", "var": "min_size", "val": "4" });
    assert_eq!(c.command(admin, &min, "").0, -22, "not above size");
}

#[test]
fn malformed_commands_get_einval_and_the_session_goes_on() {
    let (mut c, admin) = cluster();
    for text in [
        "",
        "not json",
        "[]",
        "{}",
        "{\"prefix\": 5}",
        "{\"prefix\": \"\"}",
        "5",
        "{\"prefix\": \"osd pool set\", \"var\": \"a\": \"b\"}",
    ] {
        let m = wire::msg::MMonCommand {
            paxos: Default::default(),
            fsid: FSID,
            cmd: vec![text.into()],
            data: bytes::Bytes::new(),
        };
        c.send(admin, &m);
        let acks = c.take::<wire::msg::MMonCommandAck>(admin);
        assert_eq!(acks.len(), 1, "{text}");
        assert_eq!(acks[0].r, -22, "{text}");
    }
    c.ok(admin, &json!({ "prefix": "fsid" }));
}

#[test]
fn capabilities_are_asked_for_each_command() {
    let (mut c, _) = cluster();
    let reader = c.client("client.r", "allow r");
    assert_eq!(c.command(reader, &json!({ "prefix": "osd dump" }), "").0, 0);
    let (rc, rs, _) = c.command(reader, &json!({ "prefix": "osd pool create", "pool": "x" }), "");
    assert_eq!((rc, rs.as_str()), (-13, "access denied"));
    assert_eq!(c.command(reader, &json!({ "prefix": "auth ls" }), "").0, -13, "keys need x");
    let one = c.client("client.c", "allow command \"osd blocklist ls\"");
    assert_eq!(c.command(one, &json!({ "prefix": "osd blocklist ls" }), "").0, 0);
    assert_eq!(c.command(one, &json!({ "prefix": "status" }), "").0, -13);
}

#[test]
fn address_ranges_are_blocklisted_until_they_expire() {
    let (mut c, admin) = cluster();
    let range =
        |op: &str, addr: &str| json!({ "prefix": "osd blocklist", "range": "range", "blocklistop": op, "addr": addr });
    let listed = |c: &mut Cluster, format: &str| {
        let (rc, rs, out) = c.command(admin, &json!({ "prefix": "osd blocklist ls", "format": format }), "");
        assert_eq!(rc, 0, "{rs}");
        (rs, out)
    };
    let mut short = range("add", "10.1.2.77/24");
    short["expire"] = json!(60.5);
    let (rc, rs, _) = c.command(admin, &short, "");
    assert_eq!(
        (rc, rs.as_str()),
        (0, "blocklisting cidr:10.1.2.77:0/24 until 2023-11-14T22:14:20.500000+0000 (60.5 sec)")
    );
    // Without the word `range` the same text is one address with a nonce.
    c.ok(admin, &json!({ "prefix": "osd blocklist", "blocklistop": "add", "addr": "10.1.2.77/24" }));
    c.ok(admin, &range("add", "v1:[2001:db8::]/32"));
    let (rs, text) = listed(&mut c, "plain");
    assert_eq!(rs, "listed 3 entries");
    let names: Vec<&str> = text.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["10.1.2.77:0/24", "cidr:10.1.2.77:0/24", "cidr:[2001:db8::]:0/32"]);
    // Two lists in a row, as Ceph writes them; a single list while there are no ranges.
    let (_, lists) = listed(&mut c, "json");
    let lists: Vec<Value> = serde_json::Deserializer::from_str(&lists).into_iter().map(Result::unwrap).collect();
    assert_eq!(lists[0][0]["addr"], "10.1.2.77:0/24");
    assert_eq!(lists[1].as_array().unwrap().len(), 2);
    assert_eq!(lists[1][0], json!({ "range": "10.1.2.77:0/24", "until": "2023-11-14T22:14:20.500000+0000" }));
    let dump: Value = serde_json::from_str(&c.ok(admin, &json!({ "prefix": "osd dump", "format": "json" }))).unwrap();
    assert_eq!(dump["range_blocklist"]["cidr:10.1.2.77:0/24"], "2023-11-14T22:14:20.500000+0000");
    let dump = c.ok(admin, &json!({ "prefix": "osd dump" }));
    assert!(dump.contains("range blocklist cidr:10.1.2.77:0/24 expires 2023-11-14T22:14:20.500000+0000\n"), "{dump}");

    let from = |s: &str| base::EntityAddr::msgr2(s.parse().unwrap(), 7);
    assert!(c.map().is_blocklisted(&from("10.1.2.3:4")) && c.map().is_blocklisted(&from("[2001:db8::5]:4")));
    assert!(!c.map().is_blocklisted(&from("10.1.3.3:4")));
    // Adding a range again renews its expiry.
    short["expire"] = json!(90.0);
    c.ok(admin, &short);
    c.ticks(70);
    assert!(c.map().is_blocklisted(&from("10.1.2.3:4")));
    c.ticks(30);
    assert!(!c.map().is_blocklisted(&from("10.1.2.3:4")), "its time is over");
    assert!(c.map().is_blocklisted(&from("[2001:db8::5]:4")), "that of the other is not");
    c.ok(admin, &json!({ "prefix": "osd blocklist clear" }));
    assert_eq!(listed(&mut c, "json").1, "[]");
    assert!(!c.map().is_blocklisted(&from("[2001:db8::5]:4")));
}

#[test]
fn the_stats_module_for_cephfs_top_is_enabled() {
    let (mut c, admin) = cluster();
    let enabled = |c: &mut Cluster| -> Value {
        let all: Value =
            serde_json::from_str(&c.ok(admin, &json!({ "prefix": "mgr module ls", "format": "json" }))).unwrap();
        all["enabled_modules"].clone()
    };
    assert!(enabled(&mut c).as_array().unwrap().contains(&json!("stats")));
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "mgr module enable", "module": "stats" }), "");
    assert_eq!((rc, rs.as_str()), (0, "module 'stats' is already enabled"));
    let (rc, _, _) = c.command(admin, &json!({ "prefix": "mgr module disable", "module": "stats" }), "");
    assert_eq!(rc, -95);
    assert!(enabled(&mut c).as_array().unwrap().contains(&json!("stats")));
}

/// Ceph's manager and metadata servers are in the service map, too, and have a line of their own.
#[test]
fn the_status_shows_each_daemon_in_one_line() {
    let (mut c, admin, _) = Cluster::with_osds(3);
    for name in ["client", "mds", "mgr", "mon", "osd", "rgw"] {
        let daemons = [("a".to_owned(), wire::types::ServiceDaemon::default())].into();
        let service = wire::types::Service { daemons, ..Default::default() };
        c.core.pretend(|s| drop(s.mgr.services.services.insert(name.to_owned(), service)));
    }
    let status = c.ok(admin, &json!({ "prefix": "status" }));
    let services = status.lines().skip_while(|l| *l != "  services:").skip(1).take_while(|l| !l.trim().is_empty());
    let names: Vec<&str> = services.filter_map(|l| l.split_once(':')).map(|(name, _)| name.trim()).collect();
    assert_eq!(names, ["mon", "mgr", "osd", "rgw"], "{status}");
}
