//! Do commands that move data agree with each other, in every order, also if the leading monitor is killed between?
//!
//! Every pair of them runs on a cluster of its own. In the end the balancer must come to rest: no command may leave an
//! upmap without effect, a PG without its copies, or two mechanisms that undo each other's changes for ever.

mod support;

use base::{OsdId, PgId};
use cluster::Incremental;
use cluster::osdmap::RuleOsds;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::placement::*;
use support::*;
use wire::msg::{MOsdPgCreated, MOsdPgReadyToMerge};

const OSDS: i32 = 8;
/// Rounds of reports and ticks in which the balancer must come to rest.
const ROUNDS: usize = 60;
/// Rounds without a change of the map after which it is at rest.
const QUIET: usize = 4;

struct Field {
    c: Cluster,
    admin: u64,
    seq: u64,
}

/// A step of an operator: a command, which may be refused, or several.
type Act = fn(&mut Field);

const ACTS: &[(&str, Act)] = &[
    ("osd out", |f| f.osds("osd out", "3")),
    ("osd in", |f| f.osds("osd in", "3")),
    ("drain", |f| f.weigh(0.0)),
    ("undrain", |f| f.weigh(1.0)),
    ("half", |f| f.run(&json!({ "prefix": "osd reweight", "id": "6", "weight": 0.5 }))),
    ("add a host", Field::add),
    ("purge", |f| {
        f.osds("osd down", "5");
        f.run(&json!({ "prefix": "osd purge", "id": "5", "force": true, "yes_i_really_mean_it": true }));
    }),
    ("plan", |f| {
        f.run(&json!({ "prefix": "balancer off" }));
        f.run(&json!({ "prefix": "balancer optimize", "plan": "a" }));
    }),
    ("execute", |f| f.run(&json!({ "prefix": "balancer execute", "plan": "a" }))),
    ("balancer on", |f| f.run(&json!({ "prefix": "balancer on" }))),
    ("delete a pool", |f| {
        f.run(&json!({
            "prefix": "osd pool delete", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true
        }));
    }),
    ("split", |f| f.pool("p", "pg_num", "48")),
    ("merge", |f| f.pool("q", "pg_num", "12")),
    ("fewer copies", |f| f.pool("p", "size", "2")),
    ("another rule", |f| f.pool("q", "crush_rule", "racks")),
    ("move a host", |f| {
        f.run(&json!({ "prefix": "osd crush move", "name": "h4", "args": ["rack=r1"] }));
    }),
    ("apply", |f| _ = apply(&mut f.c, f.admin, "here:1", &json!({ "prefix": "osd out", "ids": ["7"] }))),
    ("apply of a drain", |f| {
        let drain = json!({ "prefix": "osd crush reweight", "name": "osd.3", "weight": 0.0 });
        apply(&mut f.c, f.admin, "here:1", &drain);
    }),
    ("release", |f| {
        let some: Vec<PgId> = pgs(&f.c).into_iter().filter(|pg| pg.seed % 2 == 0).collect();
        release(&mut f.c, f.admin, "here:1", &some);
    }),
    ("undo", |f| f.run(&json!({ "prefix": "rehearse undo" }))),
    ("upmaps by hand", Field::upmap),
    ("no upmaps", |f| {
        let all: Vec<PgId> = f.c.map().pg_upmap_items.keys().copied().collect();
        all.iter().for_each(|pg| f.run(&json!({ "prefix": "osd rm-pg-upmap-items", "pgid": pg.to_string() })));
    }),
    ("old clients", |f| {
        let old = json!({
            "prefix": "osd set-require-min-compat-client", "version": "jewel", "yes_i_really_mean_it": true
        });
        f.run(&old);
    }),
    ("reweight by PGs", |f| f.run(&json!({ "prefix": "osd reweight-by-pg", "oload": 101 }))),
];

impl Field {
    fn new() -> Self {
        let (c, admin, _) = Cluster::with_osds(OSDS);
        let mut f = Self { c, admin, seq: 0 };
        f.c.unchecked = true;
        for (name, value) in [
            ("mon_osd_report_timeout", "1000000"),
            ("osd_pool_default_pg_autoscale_mode", "off"),
            ("target_max_misplaced_ratio", "0.5"),
            ("mgr/balancer/sleep_interval", "2"),
            ("mgr/balancer/upmap_max_optimizations", "20"),
        ] {
            f.c.ok(admin, &json!({ "prefix": "config set", "who": "global", "name": name, "value": value }));
        }
        f.c.ok(
            admin,
            &json!({ "prefix": "osd crush add-bucket", "name": "r1", "type": "rack", "args": ["root=default"] }),
        );
        let rule =
            json!({ "prefix": "osd crush rule create-replicated", "name": "racks", "root": "default", "type": "host" });
        f.c.ok(admin, &rule);
        for (pool, n) in [("p", 32), ("q", 16)] {
            f.c.ok(admin, &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": n, "pgp_num": n }));
        }
        f.round(3);
        f
    }

    /// Runs a command, which may be refused: with an errno and a reason.
    fn run(&mut self, cmd: &Value) {
        let (rc, rs, _) = self.c.command(self.admin, cmd, "");
        assert!(rc == 0 || (rc < 0 && !rs.is_empty()), "{cmd}: {rc} '{rs}'");
    }

    fn osds(&mut self, prefix: &str, id: &str) {
        self.run(&json!({ "prefix": prefix, "ids": [id] }));
    }

    fn weigh(&mut self, weight: f64) {
        self.run(&json!({ "prefix": "osd crush reweight", "name": "osd.3", "weight": weight }));
    }

    fn pool(&mut self, pool: &str, var: &str, val: &str) {
        self.run(&json!({ "prefix": "osd pool set", "pool": pool, "var": var, "val": val }));
    }

    fn add(&mut self) {
        if !self.c.map().exists(OsdId(OSDS)) {
            self.c.new_osd(self.admin, OSDS, "new");
            self.c.boot(OSDS, &osd_addr(OSDS));
        }
    }

    /// Moves a copy of some PGs to an OSD that has none of them.
    fn upmap(&mut self) {
        for pg in pgs(&self.c).into_iter().filter(|pg| pg.seed % 5 == 0) {
            let raw = self.c.map().pg_to_raw(pg).0;
            if let (Some(from), Some(to)) = (raw.first(), (0..OSDS).find(|o| !raw.contains(&OsdId(*o)))) {
                let id = [from.0.to_string(), to.to_string()];
                self.run(&json!({ "prefix": "osd pg-upmap-items", "pgid": pg.to_string(), "id": id }));
            }
        }
    }

    /// OSDs do what the map asks of them and say so, and `n` seconds pass.
    fn round(&mut self, n: u64) {
        self.seq += 1;
        let creating: Vec<PgId> = self.c.core.state().osds.creating.keys().copied().collect();
        for pgid in creating {
            let primary = self.c.map().pg_to_up_acting(pgid).acting_primary.0;
            let s = self.c.osd_session(primary, osd_addr(primary), mon::state::Role::Mon);
            self.c.send(s, &MOsdPgCreated { pgid, ..MOsdPgCreated::default() });
            self.c.close(s);
        }
        report(&mut self.c, self.seq);
        let map = self.c.map().clone();
        for (pool, p) in map.pools.iter().filter(|(_, p)| p.pg_num_pending < p.pg_num) {
            let pgid = PgId { pool: *pool, seed: p.pg_num - 1 };
            let primary = map.pg_to_up_acting(pgid).acting_primary.0;
            let s = self.c.osd_session(primary, osd_addr(primary), mon::state::Role::Mon);
            let paxos = map.epoch.into();
            self.c.send(s, &MOsdPgReadyToMerge { paxos, pgid, ready: true, ..MOsdPgReadyToMerge::default() });
            self.c.close(s);
        }
        self.c.ticks(n);
    }

    /// The leading monitor is killed, and another begins with what is stored.
    fn kill(&mut self) {
        self.c.restart();
        self.admin = self.c.admin();
    }

    fn is_at_rest(&mut self) -> bool {
        let out = self.c.ok(self.admin, &json!({ "prefix": "balancer status" }));
        let even = serde_json::from_str::<Value>(&out).unwrap()["no_optimization_needed"] == true;
        let still = |p: &cluster::PgPool| {
            p.pg_num == p.pg_num_target && p.pgp_num == p.pgp_num_target && p.pg_num_pending == p.pg_num
        };
        even && self.c.map().pools.values().all(|p| still(p)) && self.c.core.state().osds.growth.is_none()
    }

    /// Ends what is open, waits until the balancer rests, and judges the map.
    fn judge(&mut self) -> Result<(), String> {
        _ = self.c.command(self.admin, &json!({ "prefix": "rehearse undo", "force": true }), "");
        for cmd in [
            json!({ "prefix": "osd set-require-min-compat-client", "version": "luminous" }),
            json!({ "prefix": "balancer on" }),
        ] {
            self.c.ok(self.admin, &cmd);
        }
        let status = json!({ "prefix": "rehearse status" });
        let shown: Value = serde_json::from_str(&self.c.ok(self.admin, &status)).unwrap();
        if shown["applied"] == true {
            // There is no way back once an OSD has joined: the change goes on to its end.
            let all = pgs(&self.c);
            let steps =
                [release(&mut self.c, self.admin, "here:1", &all), release(&mut self.c, self.admin, "here:1", &[])];
            let (rc, rs, _) = self.c.command(self.admin, &json!({ "prefix": "rehearse commit" }), "");
            if rc != 0 {
                return Err(format!("neither an undo nor a commit: {steps:?} {rs}"));
            }
        }
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let epoch = self.c.map().epoch;
            self.round(3);
            let rests = self.c.map().epoch == epoch && self.is_at_rest();
            quiet = if rests { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return self.sound();
            }
        }
        Err(format!("no rest: {}", self.c.ok(self.admin, &json!({ "prefix": "balancer status" }))))
    }

    fn sound(&self) -> Result<(), String> {
        let map = self.c.map();
        let mut rules = RuleOsds::default();
        for pg in map.overridden_after(None, usize::MAX) {
            let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
            let gone = map.clean_overrides(pg, &mut rules, &mut inc);
            if !gone.is_empty() {
                return Err(format!("overrides of {pg} without effect: {gone:?}"));
            }
        }
        for pg in pgs(&self.c) {
            let up = map.pg_to_up(pg).0;
            let (all, size) = (up.iter().collect::<BTreeSet<_>>(), map.pools[&pg.pool].size);
            if all.len() != usize::from(size) || up.iter().any(|o| !map.is_up(*o) || map.weight(*o) == 0) {
                return Err(format!("{pg} is on {up:?}"));
            }
        }
        Ok(())
    }
}

/// Runs a part of all pairs; `way` says what happens between the two commands.
fn pairs(part: usize, parts: usize) {
    let mut wrong = Vec::new();
    let n = ACTS.len();
    for i in (0..n * n).filter(|i| i % parts == part) {
        let ((first, a), (second, b)) = (ACTS[i / n], ACTS[i % n]);
        let mut f = Field::new();
        a(&mut f);
        let way = (i / n + i % n) % 4;
        match way {
            0 => {}
            1 => f.round(1),
            2 => f.round(6),
            _ => f.kill(),
        }
        b(&mut f);
        if way == 1 {
            f.kill();
        }
        if let Err(why) = f.judge() {
            wrong.push(format!("{first}, {second} (way {way}): {why}"));
        }
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn pairs_of_commands_end_at_rest_first_half() {
    pairs(0, 2);
}

#[test]
fn pairs_of_commands_end_at_rest_second_half() {
    pairs(1, 2);
}
