//! An OSD reports that its device does not answer: does it leave where its PGs go on without it, and only there?

mod support;

use base::{AddrVec, OsdId, PgId, errno};
use mon::state::Role;
use serde_json::{Value, json};
use support::*;
use wire::msg::*;
use wire::types::{PgStat, pg_state};

const WHY: &str = "/dev/sdb: a request has no answer for 10 s";

struct Field {
    c: Cluster,
    admin: u64,
    osds: Vec<u64>,
}

impl Field {
    /// A pool of three copies on three OSDs, with this `min_size`.
    fn new(min_size: u32) -> Self {
        let (mut c, admin, osds) = Cluster::with_osds(3);
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 4, "pgp_num": 4 }));
        for (var, val) in [("size", 3), ("min_size", min_size)] {
            c.ok(admin, &json!({ "prefix": "osd pool set", "pool": "p", "var": var, "val": val.to_string() }));
        }
        let pool = c.map().pool_by_name("p").unwrap();
        let all: Vec<OsdId> = (0..3).map(OsdId).collect();
        let mut s = PgStat {
            reported_epoch: c.map().epoch,
            reported_seq: 1,
            up: all.clone(),
            acting_primary: OsdId(0),
            acting: all,
            ..PgStat::default()
        };
        s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
        let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
        let pgs = (0..4).map(|seed| (PgId { pool, seed }, s.clone())).collect();
        c.send(mgr, &MPgStats { fsid: FSID, pg_stat: pgs, ..MPgStats::default() });
        c.close(mgr);
        Self { c, admin, osds }
    }

    fn report(of: i32, why: &str) -> Value {
        json!({ "prefix": "osd device-silent", "id": of, "reason": why })
    }

    fn silent(&mut self, osd: i32, why: &str) {
        self.c.ok(self.osds[osd as usize], &Self::report(osd, why));
    }

    fn down(&self) -> Vec<i32> {
        (0..3).filter(|o| self.c.map().is_down(OsdId(*o))).collect()
    }

    fn health(&mut self) -> String {
        self.c.ok(self.admin, &json!({ "prefix": "health", "detail": "detail" }))
    }
}

#[test]
fn it_leaves_once_and_health_names_the_device_until_it_boots() {
    let mut f = Field::new(2);
    let epoch = f.c.map().epoch;
    f.silent(1, WHY);
    f.silent(1, WHY);
    f.c.ticks(60);
    assert_eq!((f.down(), f.c.map().epoch), (vec![1], epoch.next()));
    let text = f.health();
    assert!(text.contains("OSD_DEVICE_SILENT") && text.contains(WHY), "{text}");
    assert!(text.contains("it is out of service until the device answers"), "{text}");
    f.c.restart();
    f.admin = f.c.admin();
    assert!(f.health().contains(WHY), "the next leader knows it");
    f.c.boot(1, &osd_addr(1));
    assert!(!f.health().contains("OSD_DEVICE_SILENT"));
}

#[test]
fn it_stays_where_its_pgs_would_stop() {
    let mut f = Field::new(3);
    f.silent(1, WHY);
    assert_eq!(f.down(), [] as [i32; 0]);
    assert!(f.health().contains("it is in service"));
    f.silent(1, "");
    assert!(!f.health().contains("OSD_DEVICE_SILENT"));

    // Three OSDs on one storage that stops: the first one may leave, the second would take its PGs below two copies.
    let mut f = Field::new(2);
    for o in 0..3 {
        f.silent(o, WHY);
    }
    assert_eq!(f.down(), [0]);
}

#[test]
fn flags_hold_and_a_failed_store_takes_over() {
    let mut f = Field::new(2);
    f.c.ok(f.admin, &json!({ "prefix": "osd set", "key": "nodown" }));
    f.silent(2, WHY);
    assert_eq!(f.down(), [] as [i32; 0]);
    f.c.ok(f.osds[2], &json!({ "prefix": "osd store-failed", "id": 2, "reason": WHY }));
    assert!(!f.health().contains("OSD_DEVICE_SILENT"));
}

#[test]
fn only_the_process_that_the_map_shows_is_believed() {
    let mut f = Field::new(2);
    assert_eq!(f.c.command(f.osds[1], &Field::report(0, WHY), "").0, errno::EACCES, "of another one");
    assert_eq!(f.c.command(f.admin, &Field::report(9, WHY), "").0, errno::ENOENT);
    let other: AddrVec = osd_addr(7);
    let earlier = f.c.osd_session(0, other, Role::Mon);
    f.c.ok(earlier, &Field::report(0, WHY));
    assert_eq!(f.down(), [] as [i32; 0], "an earlier process");
    // A reason without end, and with line breaks, is cut.
    f.silent(1, &"x\n".repeat(10_000));
    assert!(f.health().lines().all(|l| l.len() < 1000));
}
