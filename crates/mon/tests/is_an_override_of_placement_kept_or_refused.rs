//! Is an override of a PG's placement kept, or refused with the reason? None is answered as set and then removed.

mod support;

use base::{OsdId, PgId};
use serde_json::{Value, json};
use support::*;

/// Five OSDs on as many hosts and a pool of three copies; the tests use its first PG.
struct Field {
    c: Cluster,
    admin: u64,
    pg: PgId,
}

impl Field {
    fn new() -> Self {
        let (mut c, admin, _) = Cluster::with_osds(5);
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8 }));
        let pg = PgId { pool: c.map().pool_by_name("p").unwrap(), seed: 0 };
        // Upmaps of the balancer would be in the way.
        c.ok(admin, &json!({ "prefix": "balancer off" }));
        Self { c, admin, pg }
    }

    fn coded() -> Self {
        let mut f = Self::new();
        let profile = json!({ "prefix": "osd erasure-code-profile set", "name": "e", "profile": ["k=2", "m=1"] });
        f.c.ok(f.admin, &profile);
        let create = json!({ "prefix": "osd pool create", "pool": "e", "pg_num": 8, "pool_type": "erasure", "erasure_code_profile": "e" });
        f.c.ok(f.admin, &create);
        f.pg.pool = f.c.map().pool_by_name("e").unwrap();
        f
    }

    fn raw(&self) -> Vec<OsdId> {
        self.c.map().pg_to_raw(self.pg).0.to_vec()
    }

    /// The two OSDs that CRUSH does not choose for the PG.
    fn others(&self) -> Vec<OsdId> {
        let raw = self.raw();
        self.c.map().osds().filter(|o| !raw.contains(o)).collect()
    }

    fn cmd(&self, prefix: &str, ids: &[OsdId]) -> Value {
        let ids: Vec<i32> = ids.iter().map(|o| o.0).collect();
        json!({ "prefix": format!("osd {prefix}"), "pgid": self.pg.to_string(), "id": ids })
    }

    fn ok(&mut self, prefix: &str, ids: &[OsdId]) {
        let cmd = self.cmd(prefix, ids);
        self.c.ok(self.admin, &cmd);
    }

    /// The command is refused for a reason with the text `why`, and leaves the map as it is.
    fn refused(&mut self, prefix: &str, ids: &[OsdId], why: &str) {
        let (cmd, epoch) = (self.cmd(prefix, ids), self.c.map().epoch);
        let (rc, rs, _) = self.c.command(self.admin, &cmd, "");
        assert!(rc == -22 && rs.contains(why), "{cmd}: {rc} {rs}, want {why}");
        assert_eq!(self.c.map().epoch, epoch, "{cmd}");
    }

    /// The pairs are taken but for those of `out`, which the answer names.
    fn left_out(&mut self, ids: &[OsdId], out: &[(OsdId, OsdId)]) {
        let cmd = self.cmd("pg-upmap-items", ids);
        let (rc, rs, _) = self.c.command(self.admin, &cmd, "");
        let named = out.iter().all(|(from, to)| rs.contains(&format!("{from} -> {to} is left out")));
        assert!(rc == 0 && named && rs.matches("is left out").count() == out.len(), "{cmd}: {rc} {rs}");
    }

    fn primary_temp(&mut self, osd: OsdId) -> String {
        let cmd = json!({ "prefix": "osd primary-temp", "pgid": self.pg.to_string(), "id": osd.0 });
        let (rc, rs, _) = self.c.command(self.admin, &cmd, "");
        assert_eq!(rc, 0, "{cmd}: {rs}");
        rs
    }
}

#[test]
fn a_whole_set() {
    let mut f = Field::new();
    let (raw, other) = (f.raw(), f.others());
    f.refused("pg-upmap", &raw[..1], "num of osds (1) < pool min size (2)");
    f.refused("pg-upmap", &raw[..2], "num of osds (2) < pool size (3)");
    f.refused("pg-upmap", &[raw[0], raw[1], raw[2], other[0]], "num of osds (4) > pool size (3)");
    f.refused("pg-upmap", &[raw[0], raw[0], raw[1]], "listed twice");
    f.refused("pg-upmap", &raw, "CRUSH chooses these OSDs");
    let swapped = [raw[2], raw[0], other[0]];
    f.ok("pg-upmap", &swapped);
    f.c.ticks(10);
    assert_eq!(f.c.map().pg_upmap.get(&f.pg).unwrap(), &swapped);
    assert_eq!(f.c.map().pg_to_up(f.pg).0.as_slice(), swapped);

    f.c.ok(f.admin, &json!({ "prefix": "osd out", "ids": [other[1].0.to_string()] }));
    f.refused("pg-upmap", &[raw[0], raw[1], other[1]], &format!("{} is out", other[1]));
}

#[test]
fn pairs() {
    let mut f = Field::new();
    let (raw, other) = (f.raw(), f.others());
    f.refused("pg-upmap-items", &[other[0], other[1]], "that CRUSH chooses");
    f.refused("pg-upmap-items", &[raw[0], raw[1]], &format!("{} is in the set", raw[1]));
    f.refused("pg-upmap-items", &[raw[0], other[0], other[0], other[1]], "that CRUSH chooses");
    f.refused("pg-upmap-items", &[raw[0], other[0], raw[0], other[1]], "another upmap has replaced it");
    let many = [raw[0], other[0]].repeat(4);
    f.refused("pg-upmap-items", &many, "num of osd pairs (4) > pool size (3)");
    f.refused("pg-upmap-items", &[raw[0], other[0], raw[1], raw[2]], "is in the set");
    let both = [raw[0], other[0], raw[1], other[1]];
    f.ok("pg-upmap-items", &both);
    f.ok("pg-upmap-items", &both);
    f.c.ticks(10);
    assert_eq!(f.c.map().pg_to_up(f.pg).0.as_slice(), [other[0], other[1], raw[2]]);
    f.ok("rm-pg-upmap-items", &[]);

    f.c.ok(f.admin, &json!({ "prefix": "osd out", "ids": [other[1].0.to_string()] }));
    f.refused("pg-upmap-items", &[raw[0], other[1]], &format!("{} is out", other[1]));
    // With a part that has no effect the command is refused as a whole.
    f.refused("pg-upmap-items", &both, &format!("{} is out", other[1]));
}

#[test]
fn an_upmap_against_the_pools_rule() {
    let mut f = Field::new();
    let (raw, other) = (f.raw(), f.others());
    let host = |o: OsdId| format!("host=h{}", o.0);
    f.c.ok(f.admin, &json!({ "prefix": "osd crush reweight", "name": other[0].to_string(), "weight": 0.0 }));
    assert_eq!(f.raw(), raw, "an OSD that was not chosen goes");
    f.refused("pg-upmap-items", &[raw[0], other[0]], "no weight in the CRUSH rule");
    f.refused("pg-upmap", &[other[0], raw[1], raw[2]], "no weight in the CRUSH rule");

    let place =
        json!({ "prefix": "osd crush set", "id": other[1].to_string(), "weight": 1.0, "args": [host(other[0])] });
    f.c.ok(f.admin, &place);
    f.c.ok(f.admin, &json!({ "prefix": "osd crush reweight", "name": other[0].to_string(), "weight": 1.0 }));
    let raw = f.raw();
    let chosen = other.iter().copied().find(|o| raw.contains(o));
    let near = chosen.map(|o| other.iter().copied().find(|x| *x != o).unwrap());
    let first = raw.iter().copied().find(|o| Some(*o) != chosen).unwrap();
    match near {
        Some(near) => f.refused("pg-upmap-items", &[first, near], "failure domains"),
        None => f.refused("pg-upmap", &[other[0], other[1], raw[2]], "failure domains"),
    }
}

#[test]
fn a_temporary_set() {
    let mut f = Field::new();
    let (raw, other) = (f.raw(), f.others());
    let set = [raw[1], other[0]];
    f.ok("pg-temp", &set);
    f.c.ticks(10);
    assert_eq!(f.c.map().pg_to_up_acting(f.pg).acting.as_slice(), set);
    // The up set needs no entry.
    f.ok("pg-temp", &raw);
    assert!(f.c.map().pg_temp.is_empty());
    assert_eq!(f.c.map().pg_to_up_acting(f.pg).acting.as_slice(), raw);
    for o in &other {
        f.c.ok(f.admin, &json!({ "prefix": "osd down", "ids": [o.0.to_string()] }));
    }
    f.refused("pg-temp", &other, "are down");
}

#[test]
fn a_named_primary() {
    for mut f in [Field::new(), Field::coded()] {
        let at = f.c.map().pg_to_up_acting(f.pg);
        let last = at.acting[2];
        let stranger = f.others()[0];
        let rm = json!({ "prefix": "osd rm-primary-temp", "pgid": f.pg.to_string() });
        for by_minus_one in [true, false] {
            assert_eq!(f.primary_temp(last), format!("set {} primary_temp mapping to {}", f.pg, last.0));
            f.c.ticks(10);
            let now = f.c.map().pg_to_up_acting(f.pg);
            assert_eq!((now.acting_primary, &now.acting), (last, &at.acting));
            let answer = if by_minus_one { f.primary_temp(OsdId(-1)) } else { f.c.command(f.admin, &rm, "").1 };
            assert_eq!(answer, format!("set {} primary_temp mapping to -1", f.pg));
            assert!(f.c.map().primary_temp.is_empty());
            assert_eq!(f.c.map().pg_to_up_acting(f.pg), at);
        }
        let cmd = json!({ "prefix": "osd primary-temp", "pgid": f.pg.to_string(), "id": stranger.0 });
        let (rc, rs, _) = f.c.command(f.admin, &cmd, "");
        assert!(rc == -22 && rs.contains("is not in the acting set"), "{rc} {rs}");
    }
}

/// Scripts repeat the pairs that they find in the map beside new ones, and make new ones of them: pgremapper, which takes
/// 6 -> 0 for stale where 8 -> 6 has brought 6 back, turns both into 8 -> 6 and 0 -> 1, and ends at the first refusal.
#[test]
fn a_pair_without_effect_is_left_out_where_a_pg_has_pairs() {
    let mut f = Field::new();
    let (raw, other) = (f.raw(), f.others());
    f.ok("pg-upmap-items", &[raw[0], other[0]]);
    f.ok("pg-upmap", &[raw[0], raw[1], other[0]]);
    assert_eq!(f.c.map().pg_upmap_items.get(&f.pg).unwrap().len(), 1);
    f.left_out(&[raw[0], other[0], raw[1], other[1]], &[(raw[0], other[0])]);
    assert_eq!(f.c.map().pg_upmap_items.get(&f.pg).unwrap(), &[(raw[1], other[1])]);
    f.c.ticks(10);
    assert_eq!(f.c.map().pg_to_up(f.pg).0.as_slice(), [raw[0], other[1], other[0]]);
    f.left_out(&[raw[1], other[0], other[1], raw[2]], &[(raw[1], other[0]), (other[1], raw[2])]);
    assert!(!f.c.map().pg_upmap_items.contains_key(&f.pg), "none of them has an effect");
    f.refused("pg-upmap-items", &[raw[1], other[0]], "is in the set");
}
