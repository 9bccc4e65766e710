//! Does what monitors are asked each second cost the same in a cluster of ten times the size?
//!
//! The test counts PGs looked at, units of work, bytes of turns and messages encoded, in clusters of two sizes; it
//! measures no time.

mod support;

use base::{OsdId, PgId, Utime};
use mon::core::intake::turns::{BYTES_A_TURN, WORK_A_TURN};
use serde_json::{Value, json};
use support::*;
use wire::msg::*;
use wire::types::{LogEntry, OsdStat, PaxosHeader, PgStat, pg_state};

const PGS_OF_A_POOL: u32 = 64;
/// Degraded PGs, whatever the size.
const DEGRADED: usize = 6;

struct Size {
    osds: i32,
    pools: u32,
    crashes: usize,
    clients: usize,
}

fn stat(map: &cluster::OsdMap, id: PgId, at: Utime, degraded: bool) -> PgStat {
    let place = map.pg_to_up_acting(id);
    let state = pg_state::ACTIVE | if degraded { pg_state::DEGRADED } else { pg_state::CLEAN };
    let mut s = PgStat {
        up: place.up.to_vec(),
        acting: place.acting.to_vec(),
        up_primary: place.up_primary,
        acting_primary: place.acting_primary,
        reported_epoch: map.epoch,
        reported_seq: 1,
        last_epoch_clean: map.epoch,
        last_active: at,
        last_clean: at,
        last_scrub_stamp: at,
        last_deep_scrub_stamp: at,
        ..PgStat::default()
    };
    s.set_state(state);
    s.stats.sum.num_objects = 10;
    s.stats.sum.num_object_copies = 20;
    s.stats.sum.num_objects_degraded = i64::from(degraded);
    s
}

/// A cluster in which every PG has reported, with crash reports.
fn cluster(size: &Size) -> (Cluster, u64, u64) {
    let (mut c, admin, sessions) = Cluster::with_osds(size.osds);
    c.unchecked = true;
    c.core.change_options(|o| o.pools.max_pg_per_osd = 0);
    for n in 0..size.pools {
        let (name, pgs) = (format!("p{n}"), PGS_OF_A_POOL);
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": name, "pg_num": pgs, "pgp_num": pgs }));
    }
    let map = c.core.state().osdmap.clone();
    let all = map.pools.keys().flat_map(|p| (0..PGS_OF_A_POOL).map(|seed| PgId { pool: *p, seed }));
    for (n, id) in all.enumerate() {
        let s = stat(&map, id, c.now.wall, n < DEGRADED);
        let osd = OsdStat { num_pgs: 1, num_osds: 1, ..OsdStat::default() };
        let now = c.now;
        c.core.pretend(|p| p.mgr.stats.report(s.acting_primary, &osd, [(&id, &s)], [], &map, now));
    }
    for n in 0..size.crashes {
        let report = json!({
            "crash_id": format!("2023-11-14T22:13:{:02}.{n:06}Z_x", n % 60), "timestamp": "2023-11-14T22:13:20.000000Z",
            "entity_name": "osd.0", "backtrace": vec!["frame"; 50],
        });
        let (rc, rs, _) = c.command(admin, &json!({ "prefix": "crash post" }), &report.to_string());
        assert_eq!(rc, 0, "{rs}");
    }
    (c, admin, sessions[0])
}

/// PGs looked at by commands and ticks, and the length of the answers that name no single PG or pool.
fn costs(size: &Size) -> (Vec<(String, u64)>, Value) {
    let (mut c, admin, osd) = cluster(size);
    let mut out = Vec::new();
    let walked = |c: &Cluster| c.core.state().mgr.stats.walked();
    for cmd in
        ["health", "status", "df", "osd df", "osd utilization", "osd stat", "pg stat", "osd blocked-by", "crash ls-new"]
    {
        let before = walked(&c);
        c.ok(admin, &json!({ "prefix": cmd, "format": "json" }));
        out.push((cmd.to_owned(), walked(&c) - before));
    }
    let (_, _, health) = c.command(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }), "");
    let health: Value = serde_json::from_str(&health).unwrap();
    // A mute makes each second look at the health.
    c.ok(admin, &json!({ "prefix": "health mute", "code": "PG_DEGRADED", "sticky": true }));
    let before = walked(&c);
    c.ticks(3);
    out.push(("three seconds".into(), walked(&c) - before));
    // 10,000 lines of the log in a second.
    for n in 0..10u32 {
        let line = |i: u32| LogEntry {
            seq: u64::from(n * 1000 + i),
            stamp: Utime { sec: 1_700_000_000, nsec: i },
            channel: "cluster".into(),
            msg: "a line of the log".to_owned().into(),
            ..LogEntry::default()
        };
        let entries = (0..1000).map(line).collect();
        c.send(osd, &MLog { paxos: PaxosHeader::default(), fsid: FSID, entries });
    }
    c.ticks(1);
    assert!(c.core.state().log.len() <= 10_000 + 1_000, "{}", c.core.state().log.len());
    // Many clients ask for the newest maps, and one map more goes to all of them.
    let clients: Vec<u64> = (0..size.clients).map(|n| c.client(&format!("client.c{n}"), "allow r")).collect();
    let encoded = c.core.encoded_maps();
    for what in ["osdmap", "monmap", "mgrmap"] {
        for s in &clients {
            c.subscribe(*s, what, 0, false);
        }
    }
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    out.push(("maps encoded".into(), c.core.encoded_maps() - encoded));
    for s in &clients {
        assert_eq!(c.take::<MOsdMap>(*s).len(), 2);
    }
    let (work, bytes) = c.core.turn_work();
    assert!(work <= WORK_A_TURN + 100 && bytes <= BYTES_A_TURN + (1 << 20), "{work} {bytes}");
    assert_eq!(c.core.waiting(), (0, 0));
    (out, health)
}

#[test]
fn costs_of_each_second_are_the_same_in_a_cluster_of_ten_times_the_size() {
    let (small, health) = costs(&Size { osds: 6, pools: 4, crashes: 10, clients: 5 });
    let (large, health_of_large) = costs(&Size { osds: 60, pools: 40, crashes: 100, clients: 50 });
    assert_eq!(small, large);
    let (maps, looks) = large.split_last().unwrap();
    assert!(looks.iter().chain([maps]).all(|(what, n)| *n == 0 || what == "maps encoded"), "{large:?}");
    for h in [&health, &health_of_large] {
        let degraded = &h["checks"]["PG_DEGRADED"];
        assert_eq!(degraded["summary"]["count"], DEGRADED);
        assert_eq!(degraded["detail"].as_array().unwrap().len(), DEGRADED);
    }
}

#[test]
fn a_command_that_looks_at_every_pg_ends_its_turn() {
    let (mut c, admin, _) = cluster(&Size { osds: 4, pools: 80, crashes: 0, clients: 0 });
    let before = c.core.state().mgr.stats.walked();
    let (rc, ..) = c.command(admin, &json!({ "prefix": "osd safe-to-destroy", "ids": ["0"] }), "");
    assert_ne!(rc, 0);
    let walked = c.core.state().mgr.stats.walked() - before;
    assert_eq!(walked, 80 * u64::from(PGS_OF_A_POOL), "it looks at each once");
    assert!(c.core.turn_work().0 >= walked / 512, "and the turn counts them");
    assert!(c.map().is_up(OsdId(0)));
}

#[test]
fn a_command_that_places_every_pg_ends_its_turn() {
    let (mut c, admin, _) = cluster(&Size { osds: 4, pools: 80, crashes: 0, clients: 0 });
    for prefix in ["balancer eval", "osd test-reweight-by-pg"] {
        c.command(admin, &json!({ "prefix": prefix }), "");
        let work = c.core.turn_work().0;
        assert!(work >= WORK_A_TURN, "{prefix}: {work}");
    }
}
