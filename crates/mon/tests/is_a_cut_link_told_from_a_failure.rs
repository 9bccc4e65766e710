//! Two OSDs do not reach each other, and both reach the monitors: does one of them leave, once, and the right one?

mod support;

use base::{Epoch, OsdId, PgId};
use mon::state::Role;
use serde_json::json;
use support::*;
use wire::msg::failure_flags::{ALIVE, FAILED};
use wire::msg::*;
use wire::types::{PaxosHeader, PgStat, pg_state};

struct Field {
    c: Cluster,
    admin: u64,
    osds: Vec<u64>,
    seq: u64,
}

impl Field {
    fn new(n: i32) -> Self {
        let (mut c, admin, osds) = Cluster::with_osds(n);
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 4, "pgp_num": 4 }));
        Self { c, admin, osds, seq: 0 }
    }

    fn pool_sizes(&mut self, size: u32, min_size: u32) {
        for (var, val) in [("size", size), ("min_size", min_size)] {
            self.c
                .ok(self.admin, &json!({ "prefix": "osd pool set", "pool": "p", "var": var, "val": val.to_string() }));
        }
    }

    fn pg(&mut self, seed: u32, acting: &[i32]) {
        self.seq += 1;
        let acting: Vec<OsdId> = acting.iter().map(|o| OsdId(*o)).collect();
        let pool = self.c.map().pool_by_name("p").unwrap();
        let mut s = PgStat {
            reported_epoch: self.c.map().epoch,
            reported_seq: self.seq,
            up: acting.clone(),
            acting_primary: acting[0],
            acting,
            ..PgStat::default()
        };
        s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
        let mgr = self.c.osd_session(0, osd_addr(0), Role::Mgr);
        self.c.send(mgr, &MPgStats { fsid: FSID, pg_stat: [(PgId { pool, seed }, s)].into(), ..MPgStats::default() });
        self.c.close(mgr);
    }

    fn tell(&mut self, from: i32, of: i32, flags: u8) {
        let m = MOsdFailure {
            paxos: PaxosHeader::from(self.c.map().epoch),
            fsid: FSID,
            target_osd: OsdId(of),
            target_addrs: osd_addr(of),
            epoch: self.c.map().epoch,
            flags,
            failed_for: 21,
        };
        self.c.send(self.osds[from as usize], &m);
    }

    /// Both ends of a link report each other.
    fn cut(&mut self, a: i32, b: i32) {
        self.tell(a, b, FAILED);
        self.tell(b, a, FAILED);
    }

    fn down(&self) -> Vec<i32> {
        (0..self.c.map().max_osd).filter(|o| self.c.map().is_down(OsdId(*o))).collect()
    }

    fn health(&mut self) -> String {
        self.c.ok(self.admin, &json!({ "prefix": "health", "detail": "detail" }))
    }
}

#[test]
fn one_end_leaves_once_and_comes_back() {
    let mut f = Field::new(3);
    for seed in 0..4 {
        // osd.0 leads less than osd.2.
        f.pg(seed, if seed == 0 { &[0, 1, 2] } else { &[2, 1, 0] });
    }
    f.tell(0, 2, FAILED);
    f.c.ticks(60);
    assert_eq!(f.down(), [] as [i32; 0], "the word of one OSD");
    assert!(!f.health().contains("OSD_LINK_CUT"));
    let epoch = f.c.map().epoch;
    f.tell(2, 0, FAILED);
    f.c.ticks(8);
    assert_eq!(f.down(), [0], "the one that leads fewer PGs");
    assert_eq!(f.c.map().epoch, epoch.next(), "one change");
    let text = f.health();
    assert!(text.contains("OSD_LINK_CUT") && text.contains("osd.0 and osd.2 do not reach each other; osd.0 is out"));
    // The other end keeps reporting until it has the map. It stays in service.
    f.c.ticks(300);
    assert_eq!(f.down(), [0]);
    f.osds[0] = f.c.boot(0, &osd_addr(0));
    f.c.ticks(60);
    assert_eq!(f.down(), [] as [i32; 0]);
    assert!(!f.health().contains("OSD_LINK_CUT"));
}

#[test]
fn a_link_that_works_again_in_time_changes_nothing() {
    let mut f = Field::new(3);
    let epoch = f.c.map().epoch;
    f.cut(0, 1);
    f.c.ticks(3);
    f.tell(1, 0, ALIVE);
    f.tell(0, 1, ALIVE);
    f.c.ticks(60);
    assert_eq!((f.down(), f.c.map().epoch), (vec![], epoch));
}

#[test]
fn one_osd_cut_from_a_group_is_the_one_to_leave() {
    let mut f = Field::new(5);
    f.c.ok(
        f.admin,
        &json!({ "prefix": "config set", "who": "mon", "name": "mon_osd_min_down_reporters", "value": "9" }),
    );
    for peer in [0, 1, 2] {
        f.cut(peer, 3);
    }
    f.c.ticks(30);
    assert_eq!(f.down(), [3]);
    assert!(f.health().contains("osd.3 and osd.0, osd.1, osd.2 do not reach each other"));
}

#[test]
fn no_pg_stops_that_would_go_on_otherwise() {
    // Without osd.0 a PG of two copies would stop, so osd.1 leaves, which leads more.
    let mut f = Field::new(4);
    f.pool_sizes(3, 2);
    f.pg(0, &[1, 0, 2]);
    f.pg(1, &[1, 2, 3]);
    f.pg(2, &[3, 0]);
    f.pg(3, &[1, 3, 2]);
    f.cut(0, 1);
    f.c.ticks(10);
    assert_eq!(f.down(), [1]);

    // Both choices stop more PGs than they free: both stay, and the operator is told.
    let mut f = Field::new(4);
    f.pg(0, &[0, 1]);
    f.pg(1, &[0, 2]);
    f.pg(2, &[1, 3]);
    f.cut(0, 1);
    let epoch = f.c.map().epoch;
    f.c.ticks(900);
    assert_eq!((f.down(), f.c.map().epoch), (vec![], epoch));
    assert!(f.health().contains("osd.0 and osd.1 do not reach each other; both are in service"), "{}", f.health());
}

#[test]
fn flags_hold_and_the_next_leader_hears_it_again() {
    let mut f = Field::new(3);
    f.c.ok(f.admin, &json!({ "prefix": "osd set", "key": "nodown" }));
    f.cut(1, 2);
    f.c.ticks(60);
    assert_eq!(f.down(), [] as [i32; 0]);
    f.c.restart();
    f.admin = f.c.admin();
    f.c.ok(f.admin, &json!({ "prefix": "osd unset", "key": "nodown" }));
    f.osds = (0..3).map(|o| f.c.osd_session(o, osd_addr(o), Role::Mon)).collect();
    f.c.ticks(60);
    assert_eq!(f.down(), [] as [i32; 0]);
    f.cut(1, 2);
    f.c.ticks(10);
    assert_eq!(f.down().len(), 1);
    assert!(f.c.map().epoch > Epoch(0));
}
