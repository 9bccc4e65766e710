//! Are `osd ok-to-stop`, `osd safe-to-destroy`, `osd destroy` and `osd purge` right in every state of the PGs?
//!
//! The rules are those of 16.2 and 20.2 (`DaemonServer`), recorded from 16.2 where the row says so. Where an answer
//! differs, it is the more careful one. `interop/long/stop_answers.sh` compares the answers in nine states of running
//! clusters: they differ only in how soon after a restart the reports of all PGs are there.

mod support;

use base::{Epoch, OsdId, PgId, PoolId, errno};
use mon::state::Role;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::*;
use wire::msg::MPgStats;
use wire::types::{OsdStat, PgShard, PgStat, pg_state::*};

const CLEAN_PG: u64 = ACTIVE | CLEAN;

/// Four OSDs, and a pool of two PGs with three copies and `min_size` 2.
struct Field {
    c: Cluster,
    admin: u64,
    pool: PoolId,
    seq: u64,
}

fn osds(v: &[i32]) -> Vec<OsdId> {
    v.iter().map(|n| OsdId(*n)).collect()
}

impl Field {
    fn new() -> Self {
        let (mut c, admin, _) = Cluster::with_osds(4);
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 2, "pgp_num": 2 }));
        let pool = c.map().pool_by_name("p").unwrap();
        assert_eq!((c.map().pool(pool).unwrap().size, c.map().pool(pool).unwrap().min_size), (3, 2));
        Self { c, admin, pool, seq: 0 }
    }

    /// A report of PG `seed` by its primary, in the present epoch; `full`: the copies that lack nothing.
    fn pg(&mut self, seed: u32, state: u64, acting: &[i32], full: &[i32]) {
        self.pg_at(self.c.map().epoch, seed, state, acting, full);
    }

    fn pg_at(&mut self, epoch: Epoch, seed: u32, state: u64, acting: &[i32], full: &[i32]) {
        self.seq += 1;
        let primary = OsdId(acting[0]);
        let mut s = PgStat {
            reported_epoch: epoch,
            reported_seq: self.seq,
            up: osds(acting),
            acting: osds(acting),
            acting_primary: primary,
            up_primary: primary,
            avail_no_missing: full.iter().map(|o| PgShard { osd: OsdId(*o), shard: base::ShardId::NONE }).collect(),
            ..PgStat::default()
        };
        s.set_state(state);
        self.send(primary, OsdStat::default(), [(PgId { pool: self.pool, seed }, s)].into());
    }

    /// The space report of an OSD that holds `n` PGs.
    fn holds(&mut self, osd: i32, n: u32) {
        let up_from = self.c.map().info(OsdId(osd)).up_from;
        self.send(OsdId(osd), OsdStat { num_pgs: n, up_from, ..OsdStat::default() }, BTreeMap::new());
    }

    fn send(&mut self, from: OsdId, osd_stat: OsdStat, pg_stat: BTreeMap<PgId, PgStat>) {
        let s = self.c.osd_session(from.0, osd_addr(from.0), Role::Mgr);
        self.c.send(s, &MPgStats { fsid: FSID, osd_stat, pg_stat, ..MPgStats::default() });
        self.c.close(s);
    }

    /// Both PGs on osd.0 to osd.2 with all copies; osd.3 is empty.
    fn clean(&mut self) {
        self.pg(0, CLEAN_PG, &[0, 1, 2], &[]);
        self.pg(1, CLEAN_PG, &[2, 1, 0], &[]);
    }

    fn mark(&mut self, prefix: &str, osd: i32) {
        self.c.ok(self.admin, &json!({ "prefix": prefix, "ids": [osd.to_string()] }));
    }

    fn ok_to_stop(&mut self, ids: &[i32]) -> (i32, Value) {
        self.ok_to_stop_max(ids, 0)
    }

    fn ok_to_stop_max(&mut self, ids: &[i32], max: i64) -> (i32, Value) {
        let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
        let cmd = json!({ "prefix": "osd ok-to-stop", "ids": ids, "max": max, "format": "json" });
        let (rc, _, out) = self.c.command(self.admin, &cmd, "");
        (rc, serde_json::from_str(&out).unwrap())
    }

    fn safe(&mut self, osd: i32) -> (i32, String) {
        let (rc, rs, _) =
            self.c.command(self.admin, &json!({ "prefix": "osd safe-to-destroy", "ids": [osd.to_string()] }), "");
        (rc, rs)
    }

    fn life(&mut self, prefix: &str, osd: i32, word: &str) -> (i32, String) {
        let mut cmd = json!({ "prefix": prefix, "id": osd });
        if !word.is_empty() {
            cmd[word] = true.into();
        }
        let (rc, rs, _) = self.c.command(self.admin, &cmd, "");
        (rc, rs)
    }
}

/// An event, the answer to `osd ok-to-stop 0` after it, and to `osd safe-to-destroy 3` of an OSD without PGs.
type Row = (&'static str, fn(&mut Field), (i32, &'static str), i32);

const UNKNOWN: (i32, &str) = (errno::EBUSY, "unknown_pgs");
const INACTIVE: (i32, &str) = (errno::EBUSY, "bad_already_inactive");
const BECOMES: (i32, &str) = (errno::EBUSY, "bad_become_inactive");

/// PGs that are clean, or of which nothing is known.
const REPORTS: &[Row] = &[
    ("nothing has reported", |_| (), UNKNOWN, errno::EAGAIN),
    ("one PG has not reported", |f| f.pg(0, CLEAN_PG, &[0, 1, 2], &[]), UNKNOWN, errno::EAGAIN),
    (
        "a PG reported an empty state",
        |f| {
            f.clean();
            f.pg(0, 0, &[0, 1, 2], &[]);
        },
        UNKNOWN,
        errno::EAGAIN,
    ),
    ("all PGs are clean", Field::clean, (0, "ok_become_degraded"), 0),
    (
        "after a restart of the monitor",
        |f| {
            f.clean();
            f.c.restart();
            f.admin = f.c.admin();
        },
        UNKNOWN,
        errno::EAGAIN,
    ),
];

/// PGs that do not serve.
const STOPPED: &[Row] = &[
    (
        "a PG peers",
        |f| {
            f.clean();
            f.pg(0, PEERING, &[0, 1, 2], &[]);
        },
        INACTIVE,
        0,
    ),
    (
        "a PG is down",
        |f| {
            f.clean();
            f.pg(0, DOWN, &[0], &[]);
        },
        INACTIVE,
        0,
    ),
    (
        "a PG has too few copies for writes",
        |f| {
            f.clean();
            f.pg(0, PEERED | UNDERSIZED | DEGRADED, &[0], &[0]);
        },
        INACTIVE,
        0,
    ),
];

/// PGs that serve and are not clean.
const SERVING: &[Row] = &[
    (
        "a PG with two complete copies",
        |f| {
            f.clean();
            f.pg(0, ACTIVE | UNDERSIZED | DEGRADED, &[0, 1], &[0, 1]);
        },
        BECOMES,
        0,
    ),
    (
        "a PG whose third copy recovers",
        |f| {
            f.clean();
            f.pg(0, ACTIVE | DEGRADED | RECOVERING, &[0, 1, 2], &[0, 1]);
        },
        BECOMES,
        0,
    ),
    (
        "a PG of which only osd.0 has all objects",
        |f| {
            f.clean();
            f.pg(0, ACTIVE | DEGRADED | RECOVERY_WAIT, &[0, 1, 2], &[0]);
        },
        BECOMES,
        0,
    ),
    (
        "osd.0 recovers itself, and two others are complete",
        |f| {
            f.clean();
            f.pg(0, ACTIVE | DEGRADED | RECOVERING, &[1, 0, 2], &[1, 2]);
        },
        (0, "ok_become_more_degraded"),
        0,
    ),
    (
        "a backfill: all copies are complete, elsewhere",
        |f| {
            f.clean();
            f.pg(0, ACTIVE | REMAPPED | BACKFILLING, &[0, 1, 2], &[0, 1, 2]);
        },
        (0, "ok_become_degraded"),
        0,
    ),
    (
        "an undersized PG in backfill, whose target is in its acting set",
        |f| {
            f.clean();
            f.pg(0, ACTIVE | UNDERSIZED | BACKFILLING, &[0, 1, 2], &[0, 1]);
        },
        BECOMES,
        0,
    ),
];

/// OSDs that went down.
const OUTAGES: &[Row] = &[
    (
        "the primary of a clean PG went down",
        |f| {
            f.clean();
            f.mark("osd down", 2);
        },
        INACTIVE,
        0,
    ),
    (
        "a member went down, which the PGs have not reported yet",
        |f| {
            f.pg(0, CLEAN_PG, &[0, 1, 2], &[]);
            f.pg(1, CLEAN_PG, &[0, 1, 2], &[]);
            f.mark("osd down", 2);
        },
        BECOMES,
        0,
    ),
    (
        "a member restarted, which the PGs have not reported yet",
        |f| {
            f.pg(0, CLEAN_PG, &[0, 1, 2], &[]);
            f.pg(1, CLEAN_PG, &[0, 1, 2], &[]);
            f.mark("osd down", 2);
            f.c.boot(2, &osd_addr(2));
            assert!(f.c.map().is_up(OsdId(2)));
        },
        BECOMES,
        0,
    ),
];

#[test]
fn every_state_of_a_pg_is_judged() {
    for (what, arrange, (rc, list), safe) in [REPORTS, STOPPED, SERVING, OUTAGES].concat() {
        let mut f = Field::new();
        arrange(&mut f);
        // osd.3 says that it holds nothing, so what is known of the PGs does not matter.
        f.holds(3, 0);
        let (got, j) = f.ok_to_stop(&[0]);
        assert_eq!((got, j["ok_to_stop"] == true), (rc, rc == 0), "{what}: {j}");
        assert!(j[list].is_array(), "{what}: {j}");
        assert_eq!(f.safe(3).0, safe, "{what}: {:?}", f.safe(3));
    }
}

#[test]
fn an_osd_without_statistics_is_safe_only_if_all_pgs_are_clean() {
    let mut f = Field::new();
    f.clean();
    assert_eq!(f.safe(0), (errno::EBUSY, "OSD(s) 0 have 2 pgs currently mapped to them. ".into()), "recorded");
    assert_eq!(f.safe(77).0, 0, "recorded: it does not exist");
    let safe = "OSD(s) 3 are safe to destroy without reducing data durability.";
    assert_eq!(f.safe(3), (0, safe.into()), "it is up, has not reported, and all PGs are clean");
    // An OSD that is out keeps telling how many PGs it holds.
    f.mark("osd out", 3);
    f.holds(3, 8);
    assert_eq!(f.safe(3).0, 0, "strays beside clean PGs");
    for state in [ACTIVE | REMAPPED | BACKFILLING, PEERING, CLEAN, CLEAN_PG | STALE, DOWN] {
        f.clean();
        f.pg(0, state, &[0, 1, 2], &[0, 1, 2]);
        let (rc, rs) = f.safe(3);
        assert_eq!(rc, errno::EBUSY, "{state:x}: {rs}");
        assert!(rs.contains("OSD(s) 3 last reported they still store some PG data"), "{rs}");
        f.holds(3, 0);
        assert_eq!(f.safe(3).0, 0, "{state:x}: it is up and holds nothing");
        f.holds(3, 8);
    }
    // Its last words count as long as it is up.
    f.holds(3, 0);
    f.mark("osd down", 3);
    f.pg(0, ACTIVE | UNDERSIZED | DEGRADED, &[0, 1], &[0, 1]);
    let (rc, rs) = f.safe(3);
    assert_eq!(rc, errno::EAGAIN, "{rs}");
    assert!(rs.starts_with("OSD(s) 3 have no reported stats, and not all PGs are active+clean; "), "{rs}");
    f.clean();
    assert_eq!(f.safe(3).0, 0);
    // A report of the run before says nothing about this one.
    f.c.boot(3, &osd_addr(3));
    f.pg(0, ACTIVE | UNDERSIZED | DEGRADED, &[0, 1], &[0, 1]);
    assert_eq!(f.safe(3).0, errno::EAGAIN);
    f.holds(3, 0);
    assert_eq!(f.safe(3).0, 0);
}

#[test]
fn the_last_copy_is_not_given_away() {
    // Two of three OSDs of a pool with two copies die one after the other, and are out; its PGs wait for both.
    let mut f = Field::new();
    f.clean();
    for o in [0, 1] {
        f.mark("osd down", o);
        f.mark("osd out", o);
    }
    for seed in [0, 1] {
        f.pg(seed, DOWN, &[2], &[]);
    }
    for o in [0, 1] {
        let (rc, rs) = f.safe(o);
        assert_eq!(rc, errno::EAGAIN, "{rs}");
        for prefix in ["osd destroy", "osd purge"] {
            let (rc, rs) = f.life(prefix, o, "");
            assert_eq!(rc, errno::EAGAIN, "{rs}");
            assert!(rs.ends_with("\nYou can proceed by passing --force, but be warned that this will likely mean real, permanent data loss."), "{rs}");
        }
    }
    let j = json!({ "prefix": "osd safe-to-destroy", "ids": ["0", "3"], "format": "json" });
    f.mark("osd down", 3);
    let j: Value = serde_json::from_str(&f.c.ok(f.admin, &j)).unwrap();
    assert_eq!(j["missing_stats"], json!([0, 3]));
    assert!(f.c.map().exists(OsdId(0)) && f.c.map().exists(OsdId(1)));
}

#[test]
fn destroying_needs_a_safe_osd_or_insistence() {
    let mut f = Field::new();
    f.clean();
    // All answers but those about unknown PGs were recorded from 16.2.
    assert_eq!(f.life("osd purge", 0, "").0, errno::EBUSY);
    assert_eq!(f.life("osd purge", 0, "force"), (errno::EBUSY, "osd.0 is not `down`.".into()));
    assert_eq!(f.life("osd destroy", 3, ""), (errno::EBUSY, "osd.3 is not `down`.".into()));
    f.mark("osd down", 3);
    assert_eq!(f.life("osd destroy", 3, ""), (0, "destroyed osd.3".into()));
    assert_eq!(f.life("osd destroy", 3, ""), (0, "destroyed osd.3".into()));
    assert_eq!(f.life("osd purge", 3, ""), (0, "purged osd.3".into()));
    for word in ["", "force", "yes_i_really_mean_it"] {
        for prefix in ["osd purge", "osd destroy"] {
            assert_eq!(f.life(prefix, 3, word), (0, "osd.3 does not exist".into()), "{prefix} {word}");
        }
    }
    for prefix in ["osd purge-new", "osd purge-actual", "osd destroy-actual"] {
        assert_eq!(f.life(prefix, 3, "").0, errno::EPERM, "{prefix}");
        assert_eq!(f.life(prefix, 3, "yes_i_really_mean_it"), (0, "osd.3 does not exist".into()), "{prefix}");
    }
    f.mark("osd down", 2);
    assert_eq!(f.life("osd destroy", 2, "").0, errno::EBUSY);
    assert_eq!(f.life("osd destroy", 2, "force"), (0, "destroyed osd.2".into()));
    assert_eq!(f.life("osd purge", 2, "yes_i_really_mean_it"), (0, "purged osd.2".into()));
    // While nothing is known, only who insists gets his way.
    f.c.restart();
    f.admin = f.c.admin();
    f.mark("osd down", 1);
    assert_eq!(f.life("osd purge", 1, "").0, errno::EAGAIN);
    assert_eq!(f.life("osd purge", 3, ""), (0, "osd.3 does not exist".into()), "scripts repeat themselves");
    assert_eq!(f.life("osd purge", 1, "force"), (0, "purged osd.1".into()));
}

#[test]
fn more_osds_stop_together_up_to_max() {
    let mut c = Cluster::new();
    let admin = c.admin();
    for id in 0..6 {
        c.new_osd(admin, id, &format!("h{}", id / 2));
    }
    for id in 0..6 {
        c.boot(id, &osd_addr(id));
    }
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 2, "pgp_num": 2 }));
    let pool = c.map().pool_by_name("p").unwrap();
    let mut f = Field { c, admin, pool, seq: 0 };
    f.pg(0, CLEAN_PG, &[0, 2, 4], &[]);
    f.pg(1, CLEAN_PG, &[1, 3, 5], &[]);
    for (max, want) in [(0, json!([0])), (1, json!([0])), (2, json!([0, 1])), (6, json!([0, 1]))] {
        let (rc, j) = f.ok_to_stop_max(&[0], max);
        assert_eq!((rc, &j["osds"]), (0, &want), "max {max}: {j}");
    }
    assert_eq!(f.ok_to_stop_max(&[0], 6).1["num_ok_pgs"], 2);
    assert_eq!(f.ok_to_stop_max(&[0, 2], 6).0, errno::EBUSY, "more OSDs do not make it better");
    // A neighbour that cannot stop, too, is left out, and the search ends with its host.
    f.pg(1, ACTIVE | UNDERSIZED | DEGRADED, &[1, 3], &[1, 3]);
    let (rc, j) = f.ok_to_stop_max(&[0], 6);
    assert_eq!((rc, &j["osds"], &j["num_ok_pgs"]), (0, &json!([0]), &json!(1)));
    let (rc, j) = f.ok_to_stop(&[77]);
    assert_eq!((rc, &j["num_ok_pgs"]), (0, &json!(0)), "recorded: an OSD that does not exist");
    let (rc, _, out) = f.c.command(f.admin, &json!({ "prefix": "osd ok-to-stop", "ids": ["any"] }), "");
    assert_eq!(rc, errno::EBUSY, "{out}");
}
