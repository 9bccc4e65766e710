//! Are answers and flags right while the manager role has few or no reports, such as after a restart?

mod support;

use base::{PgId, PoolId};
use cluster::pool::flag;
use mon::state::Role;
use serde_json::{Value, json};
use support::*;
use wire::msg::*;
use wire::types::{PgStat, pg_state};

const PGS: u32 = 4;

fn cluster() -> (Cluster, u64, PoolId) {
    let (mut c, admin, _) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": PGS, "pgp_num": PGS, "size": 1 }));
    let pool = c.map().pool_by_name("p").unwrap();
    (c, admin, pool)
}

/// Reports PGs with `objects` objects each, on a manager session of osd.0.
fn report(c: &mut Cluster, mgr: u64, pool: PoolId, seeds: std::ops::Range<u32>, objects: i64) {
    let map = c.map().clone();
    let stat = |id: PgId| {
        let up = map.pg_to_up_acting(id);
        let mut s = PgStat { reported_epoch: map.epoch, reported_seq: 1, ..PgStat::default() };
        s.acting_primary = up.acting_primary;
        s.acting = up.acting.to_vec();
        s.stats.sum.num_objects = objects;
        s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
        s
    };
    let pg_stat = seeds.map(|seed| PgId { pool, seed }).map(|id| (id, stat(id))).collect();
    c.send(mgr, &MPgStats { fsid: FSID, pg_stat, ..MPgStats::default() });
}

fn is_full(c: &Cluster, pool: PoolId) -> bool {
    c.map().pool(pool).unwrap().has_flag(flag::FULL | flag::FULL_QUOTA)
}

#[test]
fn a_pool_stays_full_until_all_its_pgs_have_reported() {
    let (mut c, admin, pool) = cluster();
    c.ok(admin, &json!({ "prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "40" }));
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    report(&mut c, mgr, pool, 0..PGS, 10);
    c.ticks(2);
    assert!(is_full(&c, pool));
    let epoch = c.map().epoch;
    c.restart();
    c.ticks(5);
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    report(&mut c, mgr, pool, 0..PGS - 1, 10);
    c.ticks(5);
    assert!(is_full(&c, pool), "30 objects, and those of one PG are not known");
    assert_eq!(c.map().epoch, epoch, "nothing changed");
    report(&mut c, mgr, pool, PGS - 1..PGS, 0);
    c.ticks(2);
    assert!(!is_full(&c, pool), "30 objects in all");
    // Sums that are not complete prove that a quota is reached, and a quota that is gone needs no proof.
    c.restart();
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    report(&mut c, mgr, pool, 0..1, 40);
    c.ticks(2);
    assert!(is_full(&c, pool));
    c.restart();
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "0" }));
    c.ticks(2);
    assert!(!is_full(&c, pool));
}

/// Each command that asks OSDs for work, in a cluster without such an OSD.
fn requests() -> Vec<Value> {
    let mut all = Vec::new();
    for what in ["scrub", "deep-scrub", "repair"] {
        all.push(json!({ "prefix": format!("pg {what}"), "pgid": "1.0" }));
        all.push(json!({ "prefix": format!("osd {what}"), "who": "0" }));
        all.push(json!({ "prefix": format!("osd {what}"), "who": "all" }));
        all.push(json!({ "prefix": format!("osd pool {what}"), "who": ["p"] }));
    }
    for what in ["force-recovery", "force-backfill", "cancel-force-recovery", "cancel-force-backfill"] {
        all.push(json!({ "prefix": format!("pg {what}"), "pgid": ["1.0"] }));
        all.push(json!({ "prefix": format!("osd pool {what}"), "who": ["p"] }));
    }
    all
}

#[test]
fn a_request_that_nobody_will_carry_out_is_refused() {
    let (mut c, admin, pool) = cluster();
    assert_eq!(pool.0, 1);
    for r in requests() {
        assert_eq!(c.command(admin, &r, "").0, base::errno::EAGAIN, "{r}: no OSD is connected");
    }
    // Connected, but nothing is known of the PGs: only a request for one PG by its id needs no report.
    let sessions = [0, 1].map(|id| c.osd_session(id, osd_addr(id), Role::Mgr));
    for r in requests() {
        let one = ["pg scrub", "pg deep-scrub", "pg repair"].contains(&r["prefix"].as_str().unwrap());
        assert_eq!(c.command(admin, &r, "").0, if one { 0 } else { base::errno::EAGAIN }, "{r}");
    }
    report(&mut c, sessions[0], pool, 0..PGS, 0);
    c.out.clear();
    for r in requests() {
        let (rc, rs, _) = c.command(admin, &r, "");
        assert_eq!(rc, 0, "{r}: {rs}");
    }
    let asked: usize = sessions.iter().map(|s| c.take::<MOsdScrub2>(*s).len()).sum();
    assert!(asked >= 12, "{asked} requests to OSDs");
    // Of two OSDs one has gone: by name the other is asked, and the answer says so.
    c.close(sessions[1]);
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "osd scrub", "who": "all" }), "");
    assert_eq!((rc, rs.as_str()), (0, "instructed osd(s) 0 to scrub; osd(s) 1 were not connected"));
    assert_eq!(c.command(admin, &json!({ "prefix": "osd scrub", "who": "1" }), "").0, base::errno::EAGAIN);
}
