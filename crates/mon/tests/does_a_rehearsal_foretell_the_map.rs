//! Does `rehearse` give the change that the command makes, to whom may it, and does it change nothing itself?

mod support;

use base::{OsdId, PgId};
use cluster::OsdMap;
use mgr::rehearse::steps::Record;
use mgr::rehearse::{rehearse, settle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::placement::*;
use support::*;
use wire::msg::MOsdPgCreated;

const OSDS: i32 = 61;

/// A cluster of 61 OSDs in as many hosts, with two pools.
fn cluster() -> (Cluster, u64) {
    let (mut c, admin, sessions) = Cluster::with_osds(OSDS);
    c.unchecked = true;
    // Nothing but the commands moves data, and nobody sends beacons.
    for (name, value) in [
        ("mon_osd_report_timeout", "1000000"),
        ("mon_osd_down_out_interval", "0"),
        ("osd_pool_default_pg_autoscale_mode", "off"),
        ("target_max_misplaced_ratio", "1"),
    ] {
        c.ok(admin, &json!({ "prefix": "config set", "who": "global", "name": name, "value": value }));
    }
    c.ok(admin, &json!({ "prefix": "balancer off" }));
    for (pool, n) in [("p", 64), ("q", 32)] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": n, "pgp_num": n }));
    }
    for pg in pgs(&c) {
        let primary = c.map().pg_to_up_acting(pg).acting_primary.0;
        c.send(sessions[primary as usize], &MOsdPgCreated { pgid: pg, ..MOsdPgCreated::default() });
    }
    report(&mut c, 1);
    (c, admin)
}

fn places(map: &OsdMap) -> BTreeMap<PgId, Vec<OsdId>> {
    let pgs = map.pools.keys().flat_map(|p| map.pgs_of(*p).collect::<Vec<_>>());
    pgs.map(|pg| (pg, map.pg_to_up(pg).0.to_vec())).collect()
}

#[test]
fn the_mapping_is_that_of_the_map_after_the_command() {
    let osd = |n: i32| format!("osd.{n}");
    let commands = [
        json!({ "prefix": "osd out", "ids": ["12", "13"] }),
        json!({ "prefix": "osd in", "ids": ["12"] }),
        json!({ "prefix": "osd reweight", "id": "7", "weight": 0.3 }),
        json!({ "prefix": "osd crush reweight", "name": osd(3), "weight": 0.4 }),
        json!({ "prefix": "osd crush add-bucket", "name": "r1", "type": "rack", "args": ["root=default"] }),
        json!({ "prefix": "osd crush move", "name": "h5", "args": ["rack=r1"] }),
        json!({ "prefix": "osd crush reweight-subtree", "name": "default", "weight": 2.0 }),
        json!({ "prefix": "osd crush set", "id": osd(9), "weight": 3.5, "args": ["root=default", "host=h10"] }),
        json!({ "prefix": "osd crush add", "id": osd(9), "weight": 1.0, "args": ["root=default", "host=h10"] }),
        json!({ "prefix": "osd crush rm", "name": osd(20) }),
        json!({ "prefix": "osd pg-upmap-items", "pgid": "1.3", "id": ["0", "1"] }),
        json!({ "prefix": "osd pool set", "pool": "p", "var": "size", "val": "4" }),
        json!({ "prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1" }),
        json!({ "prefix": "osd pool set", "pool": "q", "var": "pg_num", "val": "50" }),
        json!({ "prefix": "osd pool set", "pool": "q", "var": "crush_rule", "val": "replicated_rule" }),
        json!({ "prefix": "osd primary-affinity", "id": "2", "weight": 0.5 }),
        json!({ "prefix": "osd down", "ids": ["30"] }),
        json!({ "prefix": "osd destroy", "id": "30", "yes_i_really_mean_it": true, "force": true }),
        json!({ "prefix": "osd purge", "id": "30", "yes_i_really_mean_it": true, "force": true }),
        json!({ "prefix": "osd reweight-by-pg" }),
    ];
    let (mut c, admin) = cluster();
    let mut moved = 0;
    let mut done = 0;
    for (n, cmd) in commands.iter().enumerate() {
        let before = Arc::new(c.map().clone());
        let (rc, rs, answer) = ask_rehearsal(&mut c, admin, std::slice::from_ref(cmd));
        assert_eq!(rc, 0, "{cmd}: {rs}");
        assert_eq!(c.map().epoch, before.epoch, "{cmd} was only rehearsed");
        assert_eq!(answer["epoch"], before.epoch.0);
        let result = &answer["results"][0];
        let real = c.command(admin, cmd, "");
        assert_eq!((&json!(real.0), &json!(real.1)), (&result["rc"], &result["status"]), "{cmd}");
        if answer["incremental"] == "" {
            assert_eq!(places(c.map()), places(&before), "{cmd}");
            continue;
        }
        done += 1;
        let f = facts(&before);
        let settled = settle(&before, &change(&answer), &f).unwrap();
        // The monitor goes on with what takes it several maps.
        for i in 0..12 {
            report(&mut c, 10 + 100 * n as u64 + i);
            c.ticks(6);
        }
        assert_eq!(places(&settled.map), places(c.map()), "{cmd}");
        moved += rehearse(&before, &settled, &f).pgs_moved;
    }
    assert!(done >= 14 && moved > 100, "{done} {moved}");
}

#[test]
fn several_commands_see_each_other() {
    let (mut c, admin) = cluster();
    let cmds = [
        json!({ "prefix": "osd crush add-bucket", "name": "r2", "type": "rack" }),
        json!({ "prefix": "osd crush move", "name": "r2", "args": ["root=default"] }),
        json!({ "prefix": "osd crush move", "name": "h4", "args": ["rack=r2"] }),
    ];
    let (rc, rs, answer) = ask_rehearsal(&mut c, admin, &cmds);
    assert_eq!((rc, answer["results"].as_array().map(Vec::len)), (0, Some(3)), "{rs}");
    let after = c.map().apply(&change(&answer)).unwrap();
    assert_eq!(after.crush.full_location(after.crush.id_of("h4").unwrap())[0], ("rack".into(), "r2".into()));
    // The first failure ends the rehearsal and is told.
    let wrong = json!({ "prefix": "osd crush move", "name": "none", "args": ["root=default"] });
    let (rc, _, answer) = ask_rehearsal(&mut c, admin, &[wrong, cmds[0].clone()]);
    assert_eq!((rc, answer["results"].as_array().map(Vec::len)), (0, Some(1)));
    assert!(answer["results"][0]["rc"].as_i64() < Some(0) && answer["incremental"] == "");
}

#[test]
fn only_who_may_run_a_command_may_rehearse_it() {
    let (mut c, _) = cluster();
    let out = json!({ "prefix": "osd out", "ids": ["1"] });
    let reader = c.client("client.reader", "allow r");
    let (_, _, answer) = ask_rehearsal(&mut c, reader, std::slice::from_ref(&out));
    assert_eq!((&answer["results"][0]["rc"], &answer["incremental"]), (&json!(-13), &json!("")));
    let narrow = c.client("client.narrow", "allow r, allow command \"osd out\"");
    let (_, _, answer) = ask_rehearsal(&mut c, narrow, std::slice::from_ref(&out));
    assert_eq!(answer["results"][0]["rc"], 0);
    let nobody = c.client("client.nobody", "");
    assert_eq!(ask_rehearsal(&mut c, nobody, &[out]).0, -13);
}

#[test]
fn only_changes_of_the_map_are_rehearsed() {
    let (mut c, admin) = cluster();
    for cmd in [
        json!({ "prefix": "auth get-or-create", "entity": "client.x" }),
        json!({ "prefix": "config-key set", "key": "a", "val": "b" }),
        json!({ "prefix": "rehearse", "cmds": ["{\"prefix\": \"osd out\", \"ids\": [\"1\"]}"] }),
    ] {
        assert_eq!(ask_rehearsal(&mut c, admin, &[cmd]).0, -95);
    }
    let cmd = json!({ "prefix": "rehearse", "cmds": ["no JSON"] });
    assert_eq!(c.command(admin, &cmd, "").0, -22);
    let many = vec![json!({ "prefix": "osd out", "ids": ["1"] }); 65];
    assert_eq!(ask_rehearsal(&mut c, admin, &many).0, -7);
    // What a command prints is not in the answer.
    let (_, _, answer) = ask_rehearsal(&mut c, admin, &[json!({ "prefix": "osd dump" })]);
    assert!(answer.to_string().len() < 400 && answer["results"][0]["rc"] == 0, "{answer}");
    let epoch = c.map().epoch;
    c.ticks(3);
    assert_eq!(c.map().epoch, epoch);
}

fn shown(c: &mut Cluster, who: u64) -> Value {
    serde_json::from_str(&c.ok(who, &json!({ "prefix": "rehearse status" }))).unwrap()
}

/// The differing places of PGs.
fn differing(a: &BTreeMap<PgId, Vec<OsdId>>, b: &BTreeMap<PgId, Vec<OsdId>>) -> usize {
    let sorted = |v: &Vec<OsdId>| v.iter().copied().collect::<std::collections::BTreeSet<_>>();
    a.iter().filter(|(pg, set)| b.get(pg).map(sorted) != Some(sorted(set))).count()
}

#[test]
fn a_change_in_steps_holds_pgs_and_is_undone_or_committed() {
    let (mut c, admin) = cluster();
    let (start, epoch) = (places(c.map()), c.map().epoch.0);
    let out = json!({ "prefix": "osd out", "ids": ["12"] });
    let late = json!({ "prefix": "rehearse apply", "cmd": out.to_string(), "epoch": epoch - 1, "by": "here:1" });
    let record = serde_json::to_string(&Record::default()).unwrap();
    assert_eq!(c.command(admin, &late, &record).0, -11, "another map was rehearsed");
    let (rc, rs, record) = apply(&mut c, admin, "here:1", &out);
    assert_eq!((rc, rs.as_str()), (0, "marked out osd.12. "));
    assert!(record.pgs.len() > 2 && differing(&start, &places(c.map())) == 0 && c.map().weight(OsdId(12)) == 1);
    // One program at a time, one change at a time.
    assert_eq!(apply(&mut c, admin, "there:2", &out).0, -16);
    let (rc, rs) = release(&mut c, admin, "there:2", &[]);
    assert!(rc == -16 && rs.contains("here:1"), "{rs}");
    let (rc, rs, _) = apply(&mut c, admin, "here:1", &out);
    assert!(rc == -16 && rs.contains("'the change', applied by here:1"), "{rs}");
    // Holds last, and the balancer moves nothing.
    c.ok(admin, &json!({ "prefix": "balancer on" }));
    for _ in 0..30 {
        c.ticks(6);
    }
    assert_eq!(differing(&start, &places(c.map())), 0);
    assert!(c.ok(admin, &json!({ "prefix": "balancer status" })).contains("belemnite rehearse status"));
    let pgs: Vec<PgId> = record.pgs.keys().copied().collect();
    assert_eq!(release(&mut c, admin, "there:2", &pgs[..2]).0, 0, "the first one has not been heard of");
    assert_eq!(differing(&start, &places(c.map())), 2);
    let s = shown(&mut c, admin);
    assert_eq!((&s["let_go"], &s["held"], &s["claimed_by"]), (&json!(2), &json!(pgs.len() - 2), &json!("there:2")));
    assert_eq!(c.command(admin, &json!({ "prefix": "rehearse commit" }), "").0, -16);
    c.ok(admin, &json!({ "prefix": "rehearse undo" }));
    assert_eq!((differing(&start, &places(c.map())), c.map().weight(OsdId(12))), (0, 0x10000));
    assert!(c.map().pg_upmap_items.is_empty() && shown(&mut c, admin)["applied"] == false);
    assert_eq!(c.command(admin, &json!({ "prefix": "rehearse undo" }), "").0, -2);
    // To the end.
    let (rc, _, record) = apply(&mut c, admin, "here:1", &out);
    assert_eq!(rc, 0);
    let pgs: Vec<PgId> = record.pgs.keys().copied().collect();
    assert_eq!(release(&mut c, admin, "here:1", &pgs).0, 0);
    assert_eq!((release(&mut c, admin, "here:1", &[]).1.as_str(), c.map().weight(OsdId(12))), ("finished", 0));
    assert_eq!((shown(&mut c, admin)["is_finished"].clone(), c.map().pg_upmap_items.len()), (json!(true), 0));
    c.ok(admin, &json!({ "prefix": "rehearse commit" }));
    assert_eq!(c.command(admin, &json!({ "prefix": "rehearse undo" }), "").0, -2);
}

#[test]
fn an_undo_brings_back_pgs_that_a_weight_of_zero_moved() {
    let (mut c, admin) = cluster();
    c.ok(admin, &json!({ "prefix": "balancer on" }));
    let start = places(c.map());
    let empty = json!({ "prefix": "osd crush reweight", "name": "osd.12", "weight": 0.0 });
    let (rc, rs, record) = apply(&mut c, admin, "here:1", &empty);
    assert_eq!(rc, 0, "{rs}");
    let pgs: Vec<PgId> = record.pgs.keys().copied().collect();
    assert_eq!(release(&mut c, admin, "here:1", &pgs).0, 0);
    report(&mut c, 2);
    assert!(differing(&start, &places(c.map())) > 2);
    // The OSD gets weight as one that joins does.
    c.ok(admin, &json!({ "prefix": "rehearse undo" }));
    assert_eq!(differing(&start, &places(c.map())), 0);
    assert!(c.map().pg_upmap_items.is_empty());
    c.ticks(30);
    assert!(c.map().pg_upmap_items.is_empty());
}

#[test]
fn an_undo_overwrites_what_others_changed_only_by_force() {
    let (mut c, admin) = cluster();
    let start = places(c.map());
    let reweight = json!({ "prefix": "osd crush reweight", "name": "osd.3", "weight": 0.2 });
    assert_eq!(apply(&mut c, admin, "here:1", &reweight).0, 0);
    c.ok(admin, &json!({ "prefix": "osd crush reweight", "name": "osd.4", "weight": 0.5 }));
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "rehearse undo" }), "");
    assert!(rc == -1 && rs.contains("osd.4 is in h4 with weight 0.5000"), "{rs}");
    // The undo can be rehearsed.
    let (_, _, answer) = ask_rehearsal(&mut c, admin, &[json!({ "prefix": "rehearse undo" })]);
    assert_eq!(answer["results"][0]["rc"], -1);
    let forced = json!({ "prefix": "rehearse undo", "force": true });
    let (_, _, answer) = ask_rehearsal(&mut c, admin, std::slice::from_ref(&forced));
    assert_eq!(differing(&start, &places(&c.map().apply(&change(&answer)).unwrap())), 0);
    c.ok(admin, &forced);
    assert_eq!(differing(&start, &places(c.map())), 0);
}

#[test]
fn a_change_in_steps_needs_rights_and_a_way_back() {
    let (mut c, admin) = cluster();
    let out = json!({ "prefix": "osd out", "ids": ["1"] });
    let e = c.map().epoch.0;
    let reader = c.client("client.reader", "allow r");
    assert_eq!(apply(&mut c, reader, "here:1", &out).0, -13);
    let narrow = c.client("client.narrow", "allow r, allow command \"rehearse apply\"");
    assert_eq!(apply(&mut c, narrow, "here:1", &out).0, -13, "it may not mark OSDs out");
    for (cmd, rc) in [
        (json!({ "prefix": "osd pool set", "pool": "q", "var": "pg_num", "val": "50" }), -95),
        (json!({ "prefix": "osd down", "ids": ["1"] }), -95),
        (json!({ "prefix": "osd set", "key": "noout" }), -95),
        (json!({ "prefix": "osd pool create", "pool": "new" }), -95),
        (json!({ "prefix": "osd out", "ids": ["4000"] }), -22),
        (json!({ "prefix": "config-key set", "key": "a", "val": "b" }), -95),
        (json!({ "prefix": "rehearse undo" }), -95),
    ] {
        let (got, rs, _) = apply(&mut c, admin, "here:1", &cmd);
        assert_eq!(got, rc, "{cmd}: {rs}");
    }
    let cmd = json!({ "prefix": "rehearse apply", "cmd": out.to_string(), "epoch": e, "by": "here:1" });
    for input in ["", "{}", "[]", "{\"pgs\": {\"x\": {}}}"] {
        assert_eq!(c.command(admin, &cmd, input).0, -22, "{input}");
    }
    assert_eq!(c.command(admin, &cmd, &" ".repeat(600 << 10)).0, -7);
    let mut record = Record { command: "x".into(), ..Record::default() };
    record.pgs.entry(PgId::new(1, 0)).or_default().hold = Some(vec![(1, 4000)]);
    assert_eq!(c.command(admin, &cmd, &serde_json::to_string(&record).unwrap()).0, -22);
    assert_eq!((c.map().epoch.0, shown(&mut c, admin)["applied"].clone()), (e, json!(false)));
}

/// The health check of this name.
fn alert(c: &mut Cluster, admin: u64, name: &str) -> Option<Value> {
    let out = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }));
    serde_json::from_str::<Value>(&out).unwrap()["checks"].get(name).cloned()
}

#[test]
fn an_open_change_is_told_and_its_record_is_kept() {
    let (mut c, admin) = cluster();
    let out = json!({ "prefix": "osd out", "ids": ["12"] });
    let (rc, rs, _) = apply(&mut c, admin, "a:1", &out);
    assert_eq!(rc, 0, "{rs}");
    assert_eq!(alert(&mut c, admin, "REHEARSAL_OPEN"), None, "it is carried out");
    c.ticks(8);
    assert!(alert(&mut c, admin, "REHEARSAL_OPEN").is_some());
    for cmd in [
        json!({ "prefix": "config-key set", "key": "belemnite/rehearse", "val": "{}" }),
        json!({ "prefix": "config-key rm", "key": "belemnite/rehearse" }),
    ] {
        assert_eq!(c.command(admin, &cmd, "").0, -1, "{cmd}");
    }
    c.ok(admin, &json!({ "prefix": "rehearse undo" }));
    assert_eq!(alert(&mut c, admin, "REHEARSAL_OPEN"), None);
}

#[test]
fn an_undo_takes_no_rule_from_a_pool_even_by_force() {
    let (mut c, admin) = cluster();
    c.ok(
        admin,
        &json!({ "prefix": "osd crush rule create-replicated", "name": "new", "root": "default", "type": "host" }),
    );
    let set = json!({ "prefix": "osd pool set", "pool": "p", "var": "crush_rule", "val": "new" });
    let (rc, rs, _) = apply(&mut c, admin, "a:1", &set);
    assert_eq!(rc, 0, "{rs}");
    c.ok(admin, &json!({ "prefix": "osd pool set", "pool": "q", "var": "crush_rule", "val": "new" }));
    c.ok(admin, &json!({ "prefix": "osd crush rule rm", "name": "replicated_rule" }));
    for force in [false, true] {
        let (rc, rs, _) = c.command(admin, &json!({ "prefix": "rehearse undo", "force": force }), "");
        assert_eq!((rc, rs.as_str()), (-1, "the rules of these pools would not exist: p"));
    }
}

#[test]
fn where_no_upmap_is_permitted_nothing_is_held() {
    let (mut c, admin) = cluster();
    c.ok(
        admin,
        &json!({ "prefix": "osd set-require-min-compat-client", "version": "jewel", "yes_i_really_mean_it": true }),
    );
    let (rc, rs, _) = apply(&mut c, admin, "a:1", &json!({ "prefix": "osd out", "ids": ["12"] }));
    assert_eq!(rc, -1, "{rs}");
    assert!(rs.contains("required for pg-upmap"), "{rs}");
}
