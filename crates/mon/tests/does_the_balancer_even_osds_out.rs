//! Does the balancer even out the OSDs of a cluster, step by step, and rest where it should?

mod support;

use base::{EntityKind, Epoch, OsdId, PgId, PoolId};
use cluster::osdmap::osd_state;
use mgr::balance::Spread;
use mon::core::session::Peer;
use mon::state::Role;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use support::*;
use wire::Features;
use wire::msg::{MOsdFull, MOsdPgCreated, MPgStats, PeerFeatures};
use wire::types::{OsdStat, PaxosHeader, PgStat, StoreStatfs, pg_state};

const OSDS: i32 = 12;
const PGS: u32 = 128;

struct Field {
    osds: i32,
    c: Cluster,
    admin: u64,
    pool: PoolId,
    seq: u64,
}

impl Field {
    fn new() -> Self {
        Self::of(PGS)
    }

    fn of(pgs: u32) -> Self {
        Self::with(OSDS, pgs)
    }

    fn with(osds: i32, pgs: u32) -> Self {
        let (mut c, admin, _) = Cluster::with_osds(osds);
        let mut f = {
            let most =
                json!({ "prefix": "config set", "who": "global", "name": "mon_max_pg_per_osd", "value": "10000" });
            c.ok(admin, &most);
            c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": pgs, "pgp_num": pgs }));
            let pool = c.map().pool_by_name("p").unwrap();
            Self { osds, c, admin, pool, seq: 0 }
        };
        f.report(0, 0);
        f
    }

    /// OSDs and clients allow chosen primaries, and the balancer chooses them by command only.
    fn allow_primaries(&mut self) {
        for o in 0..self.osds {
            let s = self.c.osd_session(o, addr(9000 + o as u16, 1), Role::Mon);
            let mut m = boot_message(FSID, o, self.c.map().epoch, 0);
            m.osd_features = Features::PACIFIC.0 | Features::OSD_RELEASES.0 | PeerFeatures::OURS.bits();
            self.c.send(s, &m);
        }
        self.c.ok(self.admin, &json!({ "prefix": "balancer off" }));
        self.c.ok(self.admin, &json!({ "prefix": "osd require-osd-release", "release": "reef" }));
        let clients =
            json!({ "prefix": "osd set-require-min-compat-client", "version": "reef", "yes_i_really_mean_it": true });
        self.c.ok(self.admin, &clients);
        // The administrator's session was one of Pacific.
        let features = Features(0x3f07_ffff_fffd_ffff);
        self.admin = self.c.open(Peer { features, ..peer("client.admin", EntityKind::CLIENT, 9500, "allow *") });
    }

    /// Every PG reports itself clean with 100 objects, `degraded` and `misplaced` of them lacking a copy or in the wrong
    /// place.
    fn report(&mut self, degraded: i64, misplaced: i64) {
        self.report_used(degraded, misplaced, &vec![1 << 39; self.osds as usize]);
    }

    /// The same, with the bytes that are available on each OSD of 1 TiB.
    fn report_used(&mut self, degraded: i64, misplaced: i64, available: &[i64]) {
        self.seq += 1;
        let mut by: BTreeMap<OsdId, BTreeMap<PgId, PgStat>> = BTreeMap::new();
        let pools: Vec<(PoolId, u32)> = self.c.map().pools.iter().map(|(id, p)| (*id, p.pg_num)).collect();
        for pg in pools.into_iter().flat_map(|(pool, n)| (0..n).map(move |seed| PgId { pool, seed })) {
            let at = self.c.map().pg_to_up_acting(pg);
            let mut s = PgStat {
                reported_epoch: self.c.map().epoch,
                reported_seq: self.seq,
                up: at.up.to_vec(),
                acting: at.acting.to_vec(),
                up_primary: at.up_primary,
                acting_primary: at.acting_primary,
                ..PgStat::default()
            };
            s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
            let sum = &mut s.stats.sum;
            (sum.num_objects, sum.num_object_copies, sum.num_bytes) = (100, 300, 100 << 20);
            (sum.num_objects_degraded, sum.num_objects_misplaced) = (degraded, misplaced);
            by.entry(at.acting_primary).or_default().insert(pg, s);
        }
        for o in 0..self.osds {
            let osd_stat = OsdStat {
                statfs: StoreStatfs { total: 1 << 40, available: available[o as usize], ..StoreStatfs::default() },
                ..OsdStat::default()
            };
            let pg_stat = by.remove(&OsdId(o)).unwrap_or_default();
            let s = self.c.osd_session(o, osd_addr(o), Role::Mgr);
            self.c.send(s, &MPgStats { fsid: FSID, osd_stat, pg_stat, ..MPgStats::default() });
            self.c.close(s);
        }
    }

    fn worst(&self) -> f64 {
        let spread = Spread::of(self.c.map(), |_, _| 0.0);
        let p = &spread.pools[&self.pool];
        p.targets().map(|(o, _)| p.deviation(o).abs()).fold(0.0, f64::max)
    }

    fn places(&self) -> Vec<Vec<OsdId>> {
        let set = |seed| self.c.map().pg_to_up_acting(PgId { pool: self.pool, seed }).up.to_vec();
        (0..self.c.map().pools[&self.pool].pg_num).map(set).collect()
    }

    fn status(&mut self) -> Value {
        serde_json::from_str(&self.c.ok(self.admin, &json!({ "prefix": "balancer status" }))).unwrap()
    }

    fn items(&self) -> usize {
        self.c.map().pg_upmap_items.len()
    }

    fn set(&mut self, name: &str, value: &str) {
        self.c.ok(self.admin, &json!({ "prefix": "config set", "who": "global", "name": name, "value": value }));
    }
}

#[test]
fn runs_move_little_at_a_time_until_all_is_even() {
    let mut f = Field::new();
    assert!(f.worst() > 1.0, "the test begins even: {}", f.worst());
    let mut last = 0;
    for run in 0.. {
        assert!(run < 30, "still uneven: {}", f.worst());
        f.c.ticks(60);
        f.report(0, 0);
        if f.status()["no_optimization_needed"] == true {
            break;
        }
        let n = f.items();
        assert!(n <= last + 10, "at most `upmap_max_optimizations` PGs move in a run: {last} -> {n}");
        last = n;
    }
    assert!(f.worst() <= 1.1 + 1e-9, "{}", f.worst());
    let s = f.status();
    assert!(s["optimize_result"].as_str().unwrap().contains("distribution is already perfect"), "{s}");
    // At rest it costs no map.
    let epoch = f.c.map().epoch;
    f.c.ticks(200);
    assert_eq!(f.c.map().epoch, epoch);
}

#[test]
fn it_waits_while_objects_are_degraded_or_misplaced() {
    let mut f = Field::new();
    for (degraded, misplaced, text) in [(1, 0, "are degraded"), (0, 20, "are misplaced")] {
        f.report(degraded, misplaced);
        f.c.ticks(61);
        let s = f.status();
        assert!(s["optimize_result"].as_str().unwrap().contains(text), "{s}");
        assert_eq!((f.items(), &s["no_optimization_needed"]), (0, &json!(false)));
    }
    f.report(0, 0);
    f.c.ticks(61);
    assert!(f.items() > 0);
}

#[test]
fn off_is_off_and_pools_limit_it() {
    let mut f = Field::new();
    f.c.ok(f.admin, &json!({ "prefix": "balancer off" }));
    assert_eq!(f.status()["active"], false);
    f.c.ticks(200);
    assert_eq!(f.items(), 0);
    f.c.ok(f.admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 1, "pgp_num": 1 }));
    f.c.ok(f.admin, &json!({ "prefix": "balancer pool add", "pools": ["q"] }));
    assert_eq!(f.c.ok(f.admin, &json!({ "prefix": "balancer pool ls" })).replace([' ', '\n'], ""), "[\"q\"]");
    let (rc, rs, _) = f.c.command(f.admin, &json!({ "prefix": "balancer pool add", "pools": ["none"] }), "");
    assert_eq!((rc, rs.as_str()), (-22, "pool(s) ['none'] not found"));
    f.c.ok(f.admin, &json!({ "prefix": "balancer pool rm", "pools": ["q"] }));
    assert_eq!(f.c.ok(f.admin, &json!({ "prefix": "balancer pool ls" })), "");
    f.c.ok(
        f.admin,
        &json!({ "prefix": "osd pool delete", "pool": "q", "pool2": "q", "yes_i_really_really_mean_it": true }),
    );
    f.c.ok(f.admin, &json!({ "prefix": "balancer on" }));
    f.c.ticks(3);
    assert!(f.items() > 0, "it begins at once: {}", f.status());
}

#[test]
fn an_operator_makes_judges_and_carries_out_a_plan() {
    let mut f = Field::new();
    let cmd = |prefix: &str, plan: &str| json!({ "prefix": prefix, "plan": plan });
    let (rc, rs, _) = f.c.command(f.admin, &cmd("balancer optimize", "a"), "");
    assert_eq!((rc, rs.as_str()), (-22, "Balancer enabled, disable to optimize manually"));
    f.c.ok(f.admin, &json!({ "prefix": "balancer off" }));
    f.set("mgr/balancer/upmap_max_optimizations", "1000");
    f.set("target_max_misplaced_ratio", "0.5");
    f.c.ok(f.admin, &cmd("balancer optimize", "a"));
    assert_eq!(f.status()["plans"], json!(["a"]));
    let score = |f: &mut Field, of: Option<&str>| -> f64 {
        let mut cmd = json!({ "prefix": "balancer eval" });
        if let Some(o) = of {
            cmd["option"] = o.into();
        }
        let out = f.c.ok(f.admin, &cmd);
        assert!(out.contains("(lower is better)\nread_balance_scores (lower is better) {'"), "{out}");
        out.split("score ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    let (now, planned, pool) = (score(&mut f, None), score(&mut f, Some("a")), score(&mut f, Some("p")));
    assert!(planned < now && (now - pool).abs() < 1e-9, "{now} {planned} {pool}");
    let shown = f.c.ok(f.admin, &cmd("balancer show", "a"));
    let n = shown.lines().filter(|l| l.starts_with("ceph osd pg-upmap-items ")).count();
    assert!(n > 0, "{shown}");
    let dump: Value = serde_json::from_str(&f.c.ok(f.admin, &cmd("balancer dump", "a"))).unwrap();
    assert_eq!(dump["new_pg_upmap_items"].as_array().unwrap().len(), n);
    f.c.ok(f.admin, &cmd("balancer execute", "a"));
    assert_eq!((f.items(), f.worst() <= 1.1 + 1e-9), (n, true));
    assert!((score(&mut f, None) - planned).abs() < 1e-9, "what was planned came about");
    assert_eq!(f.c.command(f.admin, &cmd("balancer show", "a"), "").0, -2, "a plan is carried out once");
    let (rc, ..) = f.c.command(f.admin, &cmd("balancer optimize", "b"), "");
    assert_eq!(rc, -114, "nothing is left to do");
    assert_eq!(f.status()["plans"], json!([]));
}

#[test]
fn a_plan_leaves_alone_what_has_changed_since() {
    let mut f = Field::new();
    let cmd = |prefix: &str| json!({ "prefix": prefix, "plan": "a" });
    f.c.ok(f.admin, &json!({ "prefix": "balancer off" }));
    f.set("mgr/balancer/upmap_max_optimizations", "1000");
    f.set("target_max_misplaced_ratio", "0.5");
    f.c.ok(f.admin, &cmd("balancer optimize"));
    let dump: Value = serde_json::from_str(&f.c.ok(f.admin, &cmd("balancer dump"))).unwrap();
    let planned = dump["new_pg_upmap_items"].as_array().unwrap();
    let (pgid, move_) = (&planned[0]["pgid"], &planned[0]["mappings"][0]);
    let from = i32::try_from(move_["from"].as_i64().unwrap()).unwrap();
    // An operator moves that shard to another OSD.
    let set =
        |to: i32| json!({ "prefix": "osd pg-upmap-items", "pgid": pgid, "id": [from.to_string(), to.to_string()] });
    let others = (0..OSDS).filter(|to| move_["to"] != *to && *to != from);
    let to = others.into_iter().find(|to| f.c.command(f.admin, &set(*to), "").0 == 0).unwrap();
    f.c.ok(f.admin, &cmd("balancer execute"));
    assert_eq!(f.items(), planned.len());
    let pg = PgId::parse(pgid.as_str().unwrap()).unwrap();
    assert_eq!(f.c.map().pg_upmap_items.get(&pg), Some(&vec![(OsdId(from), OsdId(to))]));
}

#[test]
fn a_plan_whose_osd_went_out_changes_nothing() {
    let mut f = Field::new();
    let cmd = |prefix: &str| json!({ "prefix": prefix, "plan": "a" });
    f.allow_primaries();
    f.report(0, 0);
    f.c.ok(f.admin, &json!({ "prefix": "balancer mode", "mode": "read" }));
    f.set("mgr/balancer/upmap_max_optimizations", "1");
    f.c.ok(f.admin, &cmd("balancer optimize"));
    let dump: Value = serde_json::from_str(&f.c.ok(f.admin, &cmd("balancer dump"))).unwrap();
    let planned = dump["new_pg_upmap_primaries"].as_array().unwrap();
    assert_eq!(planned.len(), 1);
    let osd = &planned[0]["primary_osd"];
    f.c.ok(f.admin, &json!({ "prefix": "osd out", "ids": [osd.to_string()] }));
    let epoch = f.c.map().epoch;
    let (rc, rs, _) = f.c.command(f.admin, &cmd("balancer execute"), "");
    assert!(rc == -11 && rs.contains("optimize again"), "{rc} {rs}");
    assert_eq!(f.c.map().epoch, epoch);
}

/// Shards that cannot be moved, because OSDs are nearly full, use up the tries of their plan.
#[test]
fn reads_are_balanced_although_shards_cannot_be() {
    let mut f = Field::with(60, 32);
    f.allow_primaries();
    for n in 0..25 {
        f.c.ok(f.admin, &json!({ "prefix": "osd pool create", "pool": format!("p{n}"), "pg_num": 32, "pgp_num": 32 }));
    }
    f.report_used(0, 0, &[1 << 36; 60]);
    f.c.ok(f.admin, &json!({ "prefix": "balancer mode", "mode": "upmap" }));
    let optimize = json!({ "prefix": "balancer optimize", "plan": "a" });
    let (rc, rs, _) = f.c.command(f.admin, &optimize, "");
    assert!(rc == -11 && rs.contains("No move was found among the"), "{rc} {rs}");
    f.c.ok(f.admin, &json!({ "prefix": "balancer mode", "mode": "upmap-read" }));
    f.c.ok(f.admin, &optimize);
    f.c.ok(f.admin, &json!({ "prefix": "balancer execute", "plan": "a" }));
    assert_eq!((f.items(), f.c.map().pg_upmap_primaries.len()), (0, 10));
}

#[test]
fn modes_that_are_not_served_are_refused() {
    let mut f = Field::new();
    let mode = |m: &str| json!({ "prefix": "balancer mode", "mode": m });
    for (m, rc, why) in
        [("crush-compat", -95, "not supported"), ("read", -1, "< \"reef\""), ("upmap-read", -1, "< \"reef\"")]
    {
        let (got, rs, _) = f.c.command(f.admin, &mode(m), "");
        assert!(got == rc && rs.contains(why), "{m}: {got} {rs}");
    }
    f.c.ok(f.admin, &mode("none"));
    f.c.ticks(61);
    assert!(f.status()["optimize_result"].as_str().unwrap().contains("choose a valid mode first"));
    assert_eq!(f.items(), 0);
    f.c.ok(f.admin, &mode("upmap"));
    f.c.ticks(61);
    assert!(f.items() > 0);
}

#[test]
fn osds_that_are_nearly_full_get_nothing_by_the_balancer() {
    let mut f = Field::new();
    let mut free = [1 << 39; OSDS as usize];
    let spread = Spread::of(f.c.map(), |_, _| 0.0);
    let p = &spread.pools[&f.pool];
    let emptiest = p.targets().map(|(o, _)| o).min_by(|a, b| p.deviation(*a).total_cmp(&p.deviation(*b))).unwrap();
    free[emptiest.0 as usize] = 1 << 36;
    let before = p.count(emptiest);
    f.report_used(0, 0, &free);
    for _ in 0..5 {
        f.c.ticks(60);
        f.report_used(0, 0, &free);
    }
    assert!(f.items() > 0);
    let after = Spread::of(f.c.map(), |_, _| 0.0).pools[&f.pool].count(emptiest);
    assert!(after <= before, "{before} -> {after}");
}

#[test]
fn the_fullest_osds_lose_weight_and_a_trial_changes_nothing() {
    let mut f = Field::new();
    let mut free = [1 << 39; OSDS as usize];
    (free[3], free[7]) = (1 << 36, 3 << 38);
    f.report_used(0, 0, &free);
    let cmd = |prefix: &str| json!({ "prefix": prefix, "oload": 110 });
    let trial = f.c.ok(f.admin, &cmd("osd test-reweight-by-utilization"));
    assert!(trial.contains("osd.3 weight 1.0000 -> 0.9500\n"), "{trial}");
    assert!(trial.contains("\noload 110\nmax_change 0.05\nmax_change_osds 4\naverage_utilization "), "{trial}");
    assert_eq!(f.c.map().weight(OsdId(3)), 0x1_0000);
    let real = f.c.ok(f.admin, &cmd("osd reweight-by-utilization"));
    assert_eq!(real, trial);
    assert_eq!((f.c.map().weight(OsdId(3)), f.c.map().weight(OsdId(7))), (62_259, 0x1_0000));
    let (rc, rs, _) = f.c.command(f.admin, &json!({ "prefix": "osd reweight-by-pg", "oload": 100 }), "");
    assert!(rc == -22 && rs.contains("percentage higher than 100"), "{rs}");
    let many = f.c.ok(f.admin, &json!({ "prefix": "osd test-reweight-by-pg", "oload": 101, "pools": ["p"] }));
    assert!(many.starts_with("moved ") && many.contains(" weight 1.0000 -> 0.9"), "{many}");
}

#[test]
fn an_osd_that_left_by_mistake_gets_its_pgs_back() {
    let mut f = Field::new();
    let places = |f: &Field| -> Vec<Vec<OsdId>> {
        let set = |seed| f.c.map().pg_to_up_acting(PgId { pool: f.pool, seed }).up.to_vec();
        (0..PGS).map(set).collect()
    };
    let weigh = |f: &mut Field, weight: f64| {
        f.c.ok(f.admin, &json!({ "prefix": "osd crush reweight", "name": "osd.3", "weight": weight }));
    };
    let before = places(&f);
    weigh(&mut f, 0.0);
    assert_ne!(places(&f), before);
    weigh(&mut f, 1.0);
    assert_eq!((places(&f), f.items()), (before, 0));
    // Once the PGs have moved, it is as good as new.
    weigh(&mut f, 0.0);
    f.report(0, 0);
    let moved = places(&f);
    weigh(&mut f, 1.0);
    assert_eq!(places(&f), moved);
    assert!(f.items() > 0);
}

#[test]
fn pgs_with_objects_stay_when_an_osd_joins_and_the_balancer_moves_them() {
    let mut f = Field::new();
    let held = |f: &Field, o: i32| f.places().iter().filter(|s| s.contains(&OsdId(o))).count();
    let before = f.places();
    f.c.new_osd(f.admin, OSDS, "new");
    assert_eq!(f.places(), before, "with the item in the CRUSH map");
    f.c.boot(OSDS, &osd_addr(OSDS));
    assert!(f.c.map().is_in(OsdId(OSDS)) && f.c.map().is_up(OsdId(OSDS)));
    assert_eq!(f.places(), before, "with the OSD in");
    assert!(f.items() > 0);
    // A pool without objects uses the new OSD at once.
    let pool = f.pool;
    f.c.ok(f.admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": PGS, "pgp_num": PGS }));
    f.pool = f.c.map().pool_by_name("q").unwrap();
    assert!(held(&f, OSDS) > 0);
    let gone = json!({ "prefix": "osd pool delete", "pool": "q", "pool2": "q", "yes_i_really_really_mean_it": true });
    f.c.ok(f.admin, &gone);
    f.pool = pool;

    f.set("mgr/balancer/upmap_max_optimizations", "100");
    for _ in 0..5 {
        f.report(0, 0);
        f.c.ticks(61);
    }
    assert!(f.worst() <= 1.1 + 1e-9, "{}", f.status());
    assert!(held(&f, OSDS) > 25, "{}", held(&f, OSDS));

    f.report(0, 0);
    f.set("mgr/balancer/hold_growth", "false");
    let before = f.places();
    f.c.new_osd(f.admin, OSDS + 1, "other");
    f.c.boot(OSDS + 1, &osd_addr(OSDS + 1));
    assert_ne!(f.places(), before, "nothing is held");
    assert!(held(&f, OSDS + 1) > 0);
}

#[test]
fn full_osds_give_pgs_away_as_soon_as_an_osd_joins() {
    let mut f = Field::of(512);
    let (epoch, osd) = (f.c.map().epoch, f.c.osd_session(3, osd_addr(3), Role::Mon));
    let state = osd_state::BACKFILLFULL;
    f.c.send(osd, &MOsdFull { paxos: PaxosHeader::from(epoch), map_epoch: epoch, state });
    // Degraded objects keep the balancer from moving anything.
    f.report(1, 0);
    f.c.ticks(10);
    assert_ne!(f.c.map().state(OsdId(3)) & osd_state::BACKFILLFULL, 0);
    let before = f.places();
    f.c.new_osd(f.admin, OSDS, "new");
    f.c.boot(OSDS, &osd_addr(OSDS));
    let after = f.places();
    let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
    assert!(!moved.is_empty() && f.items() > 0, "{} items", f.items());
    for (b, a) in moved {
        assert!(b.contains(&OsdId(3)) && !a.contains(&OsdId(3)), "{b:?} {a:?}");
    }
}

/// A PG count beyond what a step looks at, all PGs made, and an OSD that joins; with the places before.
fn joined() -> (Field, Vec<BTreeSet<OsdId>>) {
    let mut f = Field::of(10_000);
    let before = unordered(&f);
    let osds: Vec<u64> = (0..OSDS).map(|o| f.c.osd_session(o, osd_addr(o), Role::Mon)).collect();
    for seed in 0..10_000 {
        let pgid = PgId { pool: f.pool, seed };
        let primary = f.c.map().pg_to_up_acting(pgid).acting_primary.0;
        f.c.send(osds[primary as usize], &MOsdPgCreated { pgid, ..MOsdPgCreated::default() });
    }
    assert!(f.c.core.state().osds.creating.is_empty());
    f.c.new_osd(f.admin, OSDS, "new");
    f.c.boot(OSDS, &osd_addr(OSDS));
    assert!(f.items() > 1000 && moved(&f, &before) > 100, "{} items, {} moved", f.items(), moved(&f, &before));
    (f, before)
}

/// The OSDs of each PG. Copies have no order.
fn unordered(f: &Field) -> Vec<BTreeSet<OsdId>> {
    f.places().into_iter().map(|s| s.into_iter().collect()).collect()
}

/// Number of PGs that are on other OSDs than before.
fn moved(f: &Field, before: &[BTreeSet<OsdId>]) -> usize {
    unordered(f).iter().zip(before).filter(|(a, b)| a != b).count()
}

/// Of more PGs than a step looks at, the rest is held by the monitor that leads next.
#[test]
fn a_new_leader_goes_on_to_hold_pgs_where_they_are() {
    let (mut f, before) = joined();
    // A map that has nothing to do with it.
    f.c.ok(f.admin, &json!({ "prefix": "osd set", "key": "noscrub" }));
    f.c.restart();
    f.c.ticks(3);
    assert_eq!(moved(&f, &before), 0, "{} items", f.items());
    f.c.restart();
    f.c.ticks(3);
    assert_eq!((moved(&f, &before), f.c.core.state().osds.growth.is_none()), (0, true));
}

/// An earlier program made a map meanwhile, by which PGs have moved: they are not moved back.
#[test]
fn a_pass_ends_with_maps_that_were_made_without_it() {
    let (mut f, before) = joined();
    f.c.restart();
    f.c.core.pretend(|s| {
        let growth = s.osds.growth.as_mut().unwrap();
        assert_eq!(growth.seen, s.osdmap.epoch);
        growth.seen = Epoch(growth.seen.0 - 1);
    });
    let there = moved(&f, &before);
    f.c.ticks(3);
    assert_eq!((moved(&f, &before), f.c.core.state().osds.growth.is_none()), (there, true));
    f.c.restart();
    f.c.ticks(3);
    assert_eq!(moved(&f, &before), there);
}
