//! A metadata daemon that the test plays, and a cluster with a file system.

#![allow(dead_code)] // Each test binary uses its part.

use base::addr::AddrKind;
use base::{AddrVec, EntityAddr, EntityKind, EntityName, Epoch};
use cluster::osdmap::AddrKey;
use mon::core::session::Peer;
use mon::state::Role;
use serde_json::json;
use wire::msg::{MMdsBeacon, MMdsMap};
use wire::types::{CompatSet, FsMap, MdsHealth, MdsMap, mds_default_compat, mds_state as st};
use wire::{Decode, Features};

use crate::support::*;

/// A daemon that behaves like `ceph-mds`.
pub(crate) struct Mds {
    pub(crate) name: String,
    pub(crate) gid: u64,
    pub(crate) addrs: AddrVec,
    pub(crate) conn: u64,
    pub(crate) seq: u64,
    /// The newest map that it received.
    pub(crate) seen: Epoch,
    pub(crate) state: i32,
    pub(crate) rank: i32,
    pub(crate) others: bool,
    pub(crate) alive: bool,
    pub(crate) compat: CompatSet,
    pub(crate) join: String,
    pub(crate) health: MdsHealth,
    /// True once it gave up its rank in an orderly way.
    pub(crate) left: bool,
}

impl Mds {
    pub(crate) fn boot(c: &mut Cluster, name: &str, gid: u64) -> Self {
        Self::boot_as(c, name, gid, mds_default_compat(), "")
    }

    pub(crate) fn boot_as(c: &mut Cluster, name: &str, gid: u64, compat: CompatSet, join: &str) -> Self {
        let addrs = addr(20_000 + (gid % 10_000) as u16, gid as u32);
        let conn = session(c, name, gid, &addrs);
        let mut me = Self {
            name: name.into(),
            gid,
            addrs,
            conn,
            seq: 0,
            seen: Epoch(0),
            state: st::BOOT,
            rank: -1,
            others: false,
            alive: true,
            compat,
            join: join.into(),
            health: MdsHealth::default(),
            left: false,
        };
        c.subscribe(conn, "mdsmap", 0, false);
        me.listen(c);
        me.beacon(c, st::BOOT);
        me
    }

    pub(crate) fn message(&self, state: i32) -> MMdsBeacon {
        MMdsBeacon {
            paxos: self.seen.into(),
            fsid: FSID,
            global_id: self.gid,
            state,
            seq: self.seq,
            name: self.name.clone(),
            standby_for_rank: -1,
            compat: self.compat.clone(),
            health: self.health.clone(),
            sys_info: [("hostname".to_owned(), "h".to_owned()), ("ceph_version".to_owned(), "v".to_owned())].into(),
            mds_features: Features::PACIFIC.0,
            standby_for_fscid: -1,
            fs: self.join.clone(),
            ..MMdsBeacon::default()
        }
    }

    /// Sends a beacon and returns the answers to it.
    pub(crate) fn beacon(&mut self, c: &mut Cluster, state: i32) -> Vec<MMdsBeacon> {
        self.seq += 1;
        self.left |= state == st::STOPPED;
        let m = self.message(state);
        c.send(self.conn, &m);
        let answers = c.take::<MMdsBeacon>(self.conn);
        assert!(answers.iter().all(|a| a.seq <= self.seq));
        self.listen(c);
        answers
    }

    /// Applies the maps that arrived. A daemon that is missing in its map dies.
    pub(crate) fn listen(&mut self, c: &mut Cluster) {
        for m in c.take::<MMdsMap>(self.conn) {
            let map = MdsMap::from_bytes(&m.encoded).unwrap();
            assert_eq!(m.epoch, map.epoch);
            match map.mds_info.get(&self.gid) {
                Some(i) => {
                    assert!(map.epoch >= self.seen, "maps go forward");
                    (self.state, self.rank) = (i.state, i.rank);
                    self.others = map.ranks_in.len() > 1;
                    self.seen = map.epoch;
                }
                None if self.state == st::BOOT => self.seen = map.epoch,
                None => self.alive = false,
            }
        }
    }

    /// The state that the daemon requests next.
    pub(crate) fn wish(&self) -> i32 {
        match self.state {
            st::BOOT | st::STANDBY | st::STANDBY_REPLAY | st::ACTIVE => self.state,
            st::CREATING | st::STARTING | st::CLIENTREPLAY => st::ACTIVE,
            st::REPLAY if self.others => st::RESOLVE,
            st::REPLAY | st::RESOLVE => st::RECONNECT,
            st::RECONNECT => st::REJOIN,
            st::REJOIN => st::ACTIVE,
            st::STOPPING => st::STOPPED,
            s => s,
        }
    }
}

pub(crate) fn session(c: &mut Cluster, name: &str, gid: u64, addrs: &AddrVec) -> u64 {
    c.open(daemon(name, gid, addrs))
}

/// A daemon that has authenticated.
pub(crate) fn daemon(name: &str, gid: u64, addrs: &AddrVec) -> Peer {
    Peer {
        principal: who(EntityKind::MDS, &format!("mds.{name}"), gid, "allow profile mds"),
        entity: EntityName::new(EntityKind::MDS, gid as i64),
        addrs: addrs.clone(),
        features: Features::PACIFIC,
        role: Role::Mon,
    }
}

pub(crate) fn with_fs() -> (Cluster, u64) {
    let (mut c, admin, _) = Cluster::with_osds(3);
    for pool in ["m", "d"] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 8 }));
    }
    c.ok(admin, &json!({ "prefix": "fs new", "fs_name": "home", "metadata": "m", "data": "d" }));
    (c, admin)
}

pub(crate) fn the_map(c: &Cluster) -> &FsMap {
    &c.core.state().fs.map
}

pub(crate) fn home(c: &Cluster) -> &MdsMap {
    &the_map(c).fs_by_name("home").unwrap().mds_map
}

pub(crate) fn shut_out(c: &Cluster, a: &AddrVec) -> bool {
    let key = |a: &EntityAddr| AddrKey(EntityAddr { kind: AddrKind::ANY, ..*a });
    a.0.iter().all(|x| c.map().blocklist.contains_key(&key(x)))
}

/// Lets a second pass in which every living daemon sends a beacon.
pub(crate) fn second(c: &mut Cluster, daemons: &mut [Mds]) {
    c.ticks(1);
    for d in daemons.iter_mut().filter(|d| d.alive) {
        d.listen(c);
        if d.alive {
            let wish = d.wish();
            d.beacon(c, wish);
        }
    }
}

pub(crate) fn settle(c: &mut Cluster, daemons: &mut [Mds]) {
    for _ in 0..12 {
        second(c, daemons);
    }
}
