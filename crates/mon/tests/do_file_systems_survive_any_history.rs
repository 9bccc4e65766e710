//! Do file systems keep their invariants, and heal, through random histories of daemons, commands and failures?

mod mds_daemon;
mod support;

use std::collections::BTreeMap;

use base::AddrVec;
use base::rng::Rng;
use mds_daemon::*;
use mon::state::fs::map as fsmap;
use serde_json::json;
use support::*;
use wire::types::mds_state as st;

/// Checks the invariants of the FSMap.
fn check(c: &Cluster, lost: &BTreeMap<u64, AddrVec>, seed: u64) {
    let map = the_map(c);
    fsmap::check(map).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for (gid, addrs) in lost {
        let there = map.daemon(*gid).is_some_and(|i| i.rank >= 0);
        assert!(there || shut_out(c, addrs), "seed {seed}: {gid} lost its rank and is not shut out");
    }
    for f in map.filesystems.values() {
        assert!(f.mds_map.last_failure_osd_epoch <= c.map().epoch, "seed {seed}");
    }
}

/// A random history of one file system and its daemons.
struct History {
    c: Cluster,
    admin: u64,
    rng: Rng,
    seed: u64,
    daemons: Vec<Mds>,
    /// The last global id of a daemon.
    last: u64,
    /// Daemons that hold a rank and did not give it up.
    holders: BTreeMap<u64, AddrVec>,
}

impl History {
    fn new(seed: u64) -> Self {
        let (mut c, admin) = with_fs();
        c.unchecked = true;
        let (rng, holders) = (Rng::new(seed), BTreeMap::new());
        let mut me = Self { c, admin, rng, seed, daemons: Vec::new(), last: 6000, holders };
        for i in 0..6 {
            let d = me.boot(&format!("d{i}"));
            me.daemons.push(d);
        }
        me
    }

    fn boot(&mut self, name: &str) -> Mds {
        self.last += 1;
        Mds::boot(&mut self.c, name, self.last)
    }

    /// Starts a daemon again under the next global id.
    fn reboot(&mut self, i: usize) {
        self.daemons[i] = self.boot(&self.daemons[i].name.clone());
    }

    fn set(&mut self, var: &str, val: &str) {
        self.c.command(self.admin, &json!({ "prefix": "fs set", "fs_name": "home", "var": var, "val": val }), "");
    }

    fn repaired(&mut self, rank: u32) {
        self.c.command(self.admin, &json!({ "prefix": "mds repaired", "role": rank.to_string() }), "");
    }

    /// A daemon dies, comes back, or tells of damage, an operator gives a command, or time passes.
    fn step(&mut self) {
        let i = self.rng.below(self.daemons.len() as u64) as usize;
        match self.rng.below(20) {
            0 => self.daemons[i].alive = false,
            1 | 2 if !self.daemons[i].alive => self.reboot(i),
            3 => {
                let n = (1 + self.rng.below(3)).to_string();
                self.set("max_mds", &n);
            }
            4 => {
                let on = if self.rng.below(2) == 0 { "true" } else { "false" };
                self.set("allow_standby_replay", on);
            }
            5 => {
                let gid = self.daemons[i].gid.to_string();
                self.c.command(self.admin, &json!({ "prefix": "mds fail", "role_or_gid": gid }), "");
            }
            6 if self.rng.below(4) == 0 => {
                self.c.command(self.admin, &json!({ "prefix": "fs fail", "fs_name": "home" }), "");
            }
            7 => self.set("joinable", "true"),
            8 if self.daemons[i].alive && self.daemons[i].rank >= 0 && self.rng.below(3) == 0 => {
                self.daemons[i].beacon(&mut self.c, st::DAMAGED);
            }
            9 => (0..2).for_each(|rank| self.repaired(rank)),
            10 if self.rng.below(4) == 0 => self.restart(),
            11 => self.c.ticks(1 + self.rng.below(20)),
            _ => second(&mut self.c, &mut self.daemons),
        }
        for x in self.daemons.iter().filter(|x| x.left) {
            self.holders.remove(&x.gid);
        }
        check(&self.c, &self.holders, self.seed);
        for info in the_map(&self.c).daemons().filter(|i| i.rank >= 0 && !i.is_follower()) {
            self.holders.insert(info.global_id, info.addrs.clone());
        }
    }

    /// Starts the monitor again; daemons that are alive connect to it.
    fn restart(&mut self) {
        self.c.restart();
        self.admin = self.c.admin();
        for x in self.daemons.iter_mut().filter(|x| x.alive) {
            x.conn = session(&mut self.c, &x.name, x.gid, &x.addrs);
            self.c.subscribe(x.conn, "mdsmap", x.seen.0.into(), false);
            x.listen(&mut self.c);
        }
    }

    /// Ends all faults, after which every rank must be served again.
    fn heal(&mut self) {
        for (var, val) in [("joinable", "true"), ("max_mds", "2"), ("allow_standby_replay", "false")] {
            self.c.ok(self.admin, &json!({ "prefix": "fs set", "fs_name": "home", "var": var, "val": val }));
        }
        (0..3).for_each(|rank| self.repaired(rank));
        (0..self.daemons.len()).for_each(|i| self.reboot(i));
        for _ in 0..8 {
            settle(&mut self.c, &mut self.daemons);
            for i in 0..self.daemons.len() {
                if !self.daemons[i].alive {
                    self.reboot(i);
                }
            }
        }
    }
}

fn history(seed: u64) {
    let mut h = History::new(seed);
    (0..150).for_each(|_| h.step());
    h.heal();
    check(&h.c, &h.holders, seed);
    let m = home(&h.c);
    assert_eq!((m.count(st::ACTIVE), m.ranks_in.len()), (2, 2), "seed {seed}: {m:?}");
    let stored = the_map(&h.c).clone();
    h.c.restart();
    assert_eq!(*the_map(&h.c), stored, "seed {seed}");
}

#[test]
fn random_histories() {
    let first = std::env::var("FS_SEED").ok().and_then(|s| s.parse().ok());
    let seeds = first.map_or(1..=25, |s: u64| s..=s);
    for seed in seeds {
        history(seed);
    }
}
