//! Random clients, OSDs and crashes at any point between proposal and disk: does everything that peers were told stay
//! true?
//!
//! Model: every map epoch that was ever sent (its bytes must never change), pools and keys whose creation or removal
//! was acknowledged, snapshot ids and global ids handed out (never twice). A crash loses requests that the store did
//! not get yet, or lets the store execute them and loses only the answer. A failure prints its seed.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use base::rng::Rng;
use base::{Epoch, OsdId, PgId, PoolId, SnapId};
use bytes::Bytes;
use serde_json::json;
use state::StateStore;
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;
use wire::{Decode, WireMessage};

const OSDS: i32 = 3;
const STEPS: usize = 250;

#[derive(Default)]
struct Model {
    incs: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
    /// True by pool name if the pool must exist; `None` while a request lost in a crash leaves it open.
    pools: BTreeMap<String, Option<bool>>,
    keys: BTreeMap<String, Option<String>>,
    snaps: BTreeMap<i64, BTreeSet<u64>>,
    acknowledged: usize,
}

struct Run {
    c: Cluster,
    m: Model,
    rng: Rng,
    admin: u64,
    osds: Vec<(u64, u32)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (c, admin, sessions) = Cluster::with_osds(OSDS);
        let osds = sessions.into_iter().enumerate().map(|(i, s)| (s, 100 + i as u32)).collect();
        let mut me = Self { c, m: Model::default(), rng: Rng::new(seed), admin, osds };
        me.connect();
        me
    }

    fn connect(&mut self) {
        self.admin = self.c.admin();
        self.c.subscribe(self.admin, "osdmap", 1, false);
        for id in 0..OSDS {
            let (_, nonce) = self.osds[id as usize];
            let s = self.c.osd_session(id, addr(6800 + id as u16 * 10, nonce), mon::state::Role::Mon);
            self.c.subscribe(s, "osd_pg_creates", 0, false);
            self.osds[id as usize].0 = s;
        }
    }

    /// Checks that newly sent maps agree with all maps sent before.
    fn check_sent(&mut self) {
        let maps: Vec<MOsdMap> = self
            .c
            .out
            .iter()
            .filter(|(_, m)| m.header.kind == MOsdMap::KIND)
            .map(|(_, m)| MOsdMap::from_message(m).unwrap())
            .collect();
        self.c.out.retain(|(_, m)| m.header.kind != MOsdMap::KIND);
        for m in maps {
            for (e, b) in m.incremental_maps {
                let old = self.m.incs.entry(e).or_insert_with(|| b.clone());
                assert!(*old == b, "epoch {e} was sent with other contents before");
            }
            for (e, b) in m.maps {
                let old = self.m.fulls.entry(e).or_insert_with(|| b.clone());
                assert!(*old == b, "full map {e} was sent with other contents before");
            }
        }
    }

    fn command(&mut self, json: &serde_json::Value) -> Option<i32> {
        let cmd = vec![json.to_string().into()];
        self.c.send(self.admin, &MMonCommand { fsid: FSID, cmd, ..MMonCommand::default() });
        let acks = self.c.take::<MMonCommandAck>(self.admin);
        assert!(acks.len() <= 1);
        acks.first().map(|a| a.r)
    }

    fn step(&mut self) {
        let n = self.rng.below(5);
        let pool = format!("p{n}");
        match self.rng.below(10) {
            0 | 1 => {
                let r = self.command(&json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 4, "pgp_num": 4 }));
                self.note_pool(pool, r, true);
            }
            2 => {
                let r = self.command(&json!({
                    "prefix": "osd pool rm", "pool": pool, "pool2": pool, "yes_i_really_really_mean_it": true
                }));
                self.note_pool(pool, r, false);
            }
            3 => {
                let (key, val) = (format!("k{n}"), self.rng.below(1000).to_string());
                let r = self.command(&json!({ "prefix": "config-key set", "key": key, "val": val }));
                self.m.keys.insert(key, (r == Some(0)).then_some(val));
            }
            4 => self.snapshot(&pool),
            5 => self.reboot_osd(),
            6 => self.alive(),
            7 => self.created(),
            8 => self.c.ticks(1),
            _ => {
                let up = if self.rng.chance(1, 2) { "osd set" } else { "osd unset" };
                self.command(&json!({ "prefix": up, "key": "noscrub" }));
            }
        }
    }

    fn note_pool(&mut self, pool: String, r: Option<i32>, there: bool) {
        let known = match r {
            Some(0) => {
                self.m.acknowledged += 1;
                Some(there)
            }
            // A refusal changed nothing. (Removing a missing pool is refused.)
            Some(_) => return,
            None => None,
        };
        // With an earlier request still open, either request may take effect last.
        if self.c.held.is_none() || self.m.pools.get(&pool) != Some(&None) {
            self.m.pools.insert(pool, known);
        }
    }

    fn snapshot(&mut self, pool: &str) {
        let Some(id) = self.c.map().pool_by_name(pool) else { return };
        let op = MPoolOp { fsid: FSID, pool: id.0 as u32, op: pool_op::CREATE_UNMANAGED_SNAP, ..MPoolOp::default() };
        self.c.send(self.admin, &op);
        let Some(r) = self.c.take::<MPoolOpReply>(self.admin).pop() else { return };
        if r.reply_code == 0 {
            let snap = u64::from_bytes(&r.response_data.expect("id")).unwrap();
            let ids = self.m.snaps.entry(id.0).or_default();
            assert!(ids.last().is_none_or(|l| *l < snap), "snapshot ids only grow");
            ids.insert(snap);
            self.m.acknowledged += 1;
            if self.rng.chance(1, 2) {
                let del = MPoolOp { op: pool_op::DELETE_UNMANAGED_SNAP, snapid: SnapId(snap), ..op };
                self.c.send(self.admin, &del);
                self.c.take::<MPoolOpReply>(self.admin);
            }
        }
    }

    fn reboot_osd(&mut self) {
        let id = self.rng.below(OSDS as u64) as i32;
        let nonce = 1000 + self.rng.below(1 << 20) as u32;
        let addrs = addr(6800 + id as u16 * 10, nonce);
        let s = self.c.boot(id, &addrs);
        self.c.subscribe(s, "osd_pg_creates", 0, false);
        self.osds[id as usize] = (s, nonce);
    }

    fn alive(&mut self) {
        let (s, _) = self.osds[self.rng.below(OSDS as u64) as usize];
        let e = self.c.map().epoch;
        self.c.send(s, &MOsdAlive { paxos: PaxosHeader::from(e), want: e });
    }

    fn created(&mut self) {
        for id in 0..OSDS {
            let (s, _) = self.osds[id as usize];
            let asked: Vec<PgId> =
                self.c.take::<MOsdPgCreate2>(s).into_iter().flat_map(|m| m.pgs.into_keys()).map(|p| p.pg).collect();
            for pgid in asked {
                self.c.send(s, &MOsdPgCreated { paxos: PaxosHeader::default(), pgid });
            }
        }
    }

    fn crash(&mut self) {
        let held = self.c.held.take().unwrap_or_default();
        if self.rng.chance(1, 2) {
            // The disk had the request, and the answer was lost.
            for r in held {
                self.c.store.submit(r);
            }
        }
        let told = self.c.map().epoch;
        self.c.restart();
        assert!(self.c.map().epoch >= told, "an epoch that was told is lost");
        self.check_promises();
        self.connect();
    }

    fn check_promises(&mut self) {
        let map = self.c.map().clone();
        for (name, there) in &mut self.m.pools {
            let is = map.pool_by_name(name).is_some();
            assert!(there.is_none_or(|t| t == is), "pool {name}: told {there:?}, is {is}");
            *there = Some(is);
        }
        for (key, val) in &self.m.keys {
            if let Some(v) = val {
                assert_eq!(self.c.core.state().kv.get(key).map(|b| &b[..]), Some(v.as_bytes()), "key {key}");
            }
        }
        for (pool, ids) in &self.m.snaps {
            if let Some(p) = map.pool(PoolId(*pool)) {
                assert!(p.snap_seq.0 >= *ids.last().unwrap());
            }
        }
        for (pg, c) in &self.c.core.state().osds.creating {
            assert!(map.pool(pg.pool).is_some_and(|p| p.has_flag(cluster::pool::flag::CREATING)), "{pg} since {c:?}");
        }
        for (id, p) in map.pools.iter() {
            if p.has_flag(cluster::pool::flag::CREATING) {
                assert!(
                    self.c.core.state().osds.creating.keys().any(|pg| pg.pool == *id),
                    "pool {id} would create for ever"
                );
            }
        }
        for o in map.osds() {
            assert!(map.is_down(o) || map.hb_back_addr(o).is_some_and(|a| !a.0.is_empty()), "{o} up without addresses");
        }
        assert!((0..OSDS).all(|id| map.exists(OsdId(id))));
    }
}

#[test]
fn answers_stay_true() {
    let mut acknowledged = 0;
    for seed in 0..12u64 {
        println!("seed {seed}");
        let mut r = Run::new(seed);
        for _ in 0..STEPS {
            if r.rng.chance(1, 12) {
                // From here on requests do not reach the disk; after a few more steps the process dies.
                r.c.held = Some(Vec::new());
                for _ in 0..r.rng.below(4) {
                    r.step();
                    r.check_sent();
                }
                r.crash();
            } else {
                r.step();
            }
            r.check_sent();
        }
        r.check_promises();
        acknowledged += r.m.acknowledged;
        assert!(r.m.incs.len() > 30, "seed {seed}: the run made epochs");
    }
    assert!(acknowledged > 100, "the runs did something: {acknowledged}");
}
