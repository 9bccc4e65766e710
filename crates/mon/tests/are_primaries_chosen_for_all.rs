//! Are primaries that upmaps choose seen by all who use the map, kept while they have an effect, and removed after?

mod support;

use base::{EntityKind, OsdId, PgId};
use cluster::release;
use mon::core::session::Peer;
use mon::state::Role;
use serde_json::{Value, json};
use support::*;
use wire::Features;
use wire::msg::PeerFeatures;

const OSD: u64 = Features::PACIFIC.0 | Features::OSD_RELEASES.0 | PeerFeatures::OURS.bits();
/// The feature mask that clients of 20.2.4 announce.
const TENTACLE: Features = Features(0x3f07_ffff_fffd_ffff);

/// Five OSDs on as many hosts, a pool of three copies, and an administrator with tools of 20.2.
struct Field {
    c: Cluster,
    admin: u64,
    pg: PgId,
}

fn newer(name: &str, gid: u64) -> Peer {
    Peer { features: TENTACLE, ..peer(name, EntityKind::CLIENT, gid, "allow *") }
}

fn boot(c: &mut Cluster, id: i32, nonce: u32, features: u64) -> bool {
    let at = addr(6900 + id as u16, nonce);
    let s = c.osd_session(id, at.clone(), Role::Mon);
    let mut m = boot_message(FSID, id, c.map().epoch, 0);
    m.osd_features = features;
    c.send(s, &m);
    c.map().client_addr(OsdId(id)) == Some(&at)
}

impl Field {
    /// The cluster before anything is required.
    fn before() -> Self {
        let (mut c, old, _) = Cluster::with_osds(5);
        c.close(old);
        let admin = c.open(newer("client.admin", 9000));
        for id in 0..5 {
            assert!(boot(&mut c, id, 1, OSD));
        }
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8 }));
        let pg = PgId { pool: c.map().pool_by_name("p").unwrap(), seed: 0 };
        c.ok(admin, &json!({ "prefix": "balancer off" }));
        Self { c, admin, pg }
    }

    fn new() -> Self {
        let mut f = Self::before();
        f.run(&json!({ "prefix": "osd require-osd-release", "release": "reef" }));
        f.run(&json!({ "prefix": "osd set-require-min-compat-client", "version": "reef" }));
        f
    }

    fn run(&mut self, cmd: &Value) -> String {
        self.c.ok(self.admin, cmd)
    }

    fn one(&self, pg: PgId, osd: OsdId) -> Value {
        json!({ "prefix": "osd pg-upmap-primary", "pgid": pg.to_string(), "id": osd.0 })
    }

    fn choose(&mut self, pg: PgId, osd: OsdId) -> String {
        let (rc, rs, _) = self.c.command(self.admin, &self.one(pg, osd), "");
        assert_eq!(rc, 0, "{rs}");
        rs
    }

    fn refused(&mut self, cmd: &Value, rc: i32, why: &str) {
        let epoch = self.c.map().epoch;
        let (got, rs, _) = self.c.command(self.admin, cmd, "");
        assert!(got == rc && rs.contains(why), "{cmd}: {got} {rs}, want {rc} {why}");
        assert_eq!(self.c.map().epoch, epoch, "{cmd}");
    }

    fn up(&self, pg: PgId) -> Vec<OsdId> {
        self.c.map().pg_to_up(pg).0.to_vec()
    }

    fn chosen(&self, pg: PgId) -> Option<OsdId> {
        self.c.map().pg_upmap_primaries.get(&pg).copied()
    }

    /// An entry for the field's PG, and what the set was before.
    fn with_entry() -> (Self, Vec<OsdId>) {
        let mut f = Self::new();
        let up = f.up(f.pg);
        f.choose(f.pg, up[2]);
        assert_eq!(f.up(f.pg), [up[2], up[1], up[0]]);
        (f, up)
    }
}

#[test]
fn an_entry_waits_for_clients_and_osds_of_reef() {
    let mut f = Field::before();
    let up = f.up(f.pg);
    let cmd = f.one(f.pg, up[1]);
    f.refused(
        &cmd,
        -1,
        "min_compat_client luminous < reef, which is required for pg-upmap-primary. Try 'ceph osd \
         set-require-min-compat-client reef' before using the new interface",
    );
    // An older client is named, and may be passed over.
    let old = f.c.client("client.old", "allow r");
    let require = json!({ "prefix": "osd set-require-min-compat-client", "version": "reef" });
    f.refused(
        &require,
        -1,
        "cannot set require_min_compat_client to reef: 1 connected client(s) look like pacific (missing 0x200000000); \
         add --yes-i-really-mean-it to do it anyway",
    );
    // Clients announce what they like: a refusal names some kinds, and counts the others.
    let many: Vec<u64> = (0..40)
        .map(|n| {
            let features = Features(Features::PACIFIC.0 | n << 50);
            f.c.open(Peer { features, ..peer("client.old", EntityKind::CLIENT, 9100 + n, "allow r") })
        })
        .collect();
    let (_, rs, _) = f.c.command(f.admin, &require, "");
    assert!(rs.matches("connected").count() == 16 && rs.contains(" others look like older ones, too; add"), "{rs}");
    many.into_iter().for_each(|c| f.c.close(c));
    f.run(&json!({ "prefix": "osd set-require-min-compat-client", "version": "octopus" }));
    f.run(&json!({ "prefix": "osd set-require-min-compat-client", "version": "reef", "yes_i_really_mean_it": true }));
    // Its session ends, and it gets no other.
    assert!(f.c.closed.iter().any(|(c, why)| *c == old && why.contains("looks like pacific")), "{:?}", f.c.closed);
    let again = f.c.client("client.old", "allow r");
    assert!(f.c.closed.iter().any(|(c, _)| *c == again));
    assert!(
        !f.c.core
            .state()
            .sessions
            .values()
            .any(|s| s.features == Features::PACIFIC && s.name.kind == EntityKind::CLIENT)
    );
    let cmd = f.one(f.pg, up[1]);
    f.refused(&cmd, -1, "require_osd_release pacific < reef");
    // An OSD of ours that does not know entries would pass maps on without them.
    let before = PeerFeatures::PARTS.bits() | PeerFeatures::PAGES.bits() | PeerFeatures::STARTS.bits();
    let before = Features::PACIFIC.0 | Features::OSD_RELEASES.0 | before;
    assert!(boot(&mut f.c, 4, 2, before));
    f.run(&json!({ "prefix": "osd require-osd-release", "release": "reef" }));
    f.refused(&cmd, -1, "osd.4 would not pass on chosen primaries: upgrade and restart before");
    assert!(boot(&mut f.c, 4, 3, OSD));
    assert_eq!(f.choose(f.pg, up[1]), format!("change primary for pg {} to {}", f.pg, up[1]));
    assert!(!boot(&mut f.c, 4, 4, before));
    assert!(boot(&mut f.c, 4, 5, TENTACLE.0), "a ceph-osd of 20.2 understands entries");
    f.refused(
        &json!({ "prefix": "osd set-require-min-compat-client", "version": "luminous" }),
        -1,
        "osdmap current utilizes features that require reef; cannot set require_min_compat_client below that to luminous",
    );
    let map = f.c.map();
    assert_eq!((map.min_compat_client(), map.require_min_compat_client), (release::REEF, release::REEF));
    f.run(&json!({ "prefix": "osd rm-pg-upmap-primary", "pgid": f.pg.to_string() }));
    f.run(&json!({ "prefix": "osd set-require-min-compat-client", "version": "luminous" }));
    let now = f.c.client("client.old", "allow r");
    assert!(!f.c.closed.iter().any(|(c, _)| *c == now));
}

#[test]
fn commands_answer_as_ceph_does() {
    let mut f = Field::new();
    let (pg, up) = (f.pg, f.up(f.pg));
    let stranger = f.c.map().osds().find(|o| !up.contains(o)).unwrap();
    let cmd = f.one(pg, up[0]);
    f.refused(&cmd, -22, &format!("{} is already primary for pg {pg}", up[0]));
    let cmd = f.one(pg, stranger);
    f.refused(&cmd, -22, &format!("{stranger} is not in acting set for pg {pg}"));
    let cmd = f.one(pg, OsdId(77));
    f.refused(&cmd, -2, "osd.77 does not exist");
    let cmd = f.one(PgId { seed: 99, ..pg }, up[1]);
    f.refused(&cmd, -2, "does not exist");
    let profile = json!({ "prefix": "osd erasure-code-profile set", "name": "e", "profile": ["k=2", "m=1"] });
    f.run(&profile);
    let create = json!({ "prefix": "osd pool create", "pool": "e", "pg_num": 8, "pool_type": "erasure", "erasure_code_profile": "e" });
    f.run(&create);
    let coded = PgId { pool: f.c.map().pool_by_name("e").unwrap(), seed: 0 };
    let last = f.up(coded)[2];
    let cmd = f.one(coded, last);
    f.refused(&cmd, -22, "pg-upmap-primary is only supported for replicated pools");

    f.choose(pg, up[1]);
    let dump = f.run(&json!({ "prefix": "osd dump" }));
    assert!(dump.contains(&format!("\npg_upmap_primary {pg} {}\n", up[1].0)), "{dump}");
    assert!(dump.contains("\nmin_compat_client reef\n"), "{dump}");
    let dump: Value = serde_json::from_str(&f.run(&json!({ "prefix": "osd dump", "format": "json" }))).unwrap();
    assert_eq!(dump["pg_upmap_primaries"], json!([{ "pgid": pg.to_string(), "primary_osd": up[1].0 }]));
    // An entry for the OSD that leads without one takes the entry back.
    f.choose(pg, up[0]);
    assert_eq!((f.chosen(pg), f.up(pg)), (None, up.clone()));
    f.choose(pg, up[2]);
    f.choose(pg, up[1]);
    assert_eq!(f.up(pg), [up[1], up[0], up[2]]);
    let (rc, rs, _) = f.c.command(f.admin, &json!({ "prefix": "osd rm-pg-upmap-primary", "pgid": pg.to_string() }), "");
    assert_eq!((rc, rs), (0, format!("clear {pg} pg_upmap_primary mapping")));
    let epoch = f.c.map().epoch;
    f.run(&json!({ "prefix": "osd rm-pg-upmap-primary", "pgid": pg.to_string() }));
    assert_eq!((f.c.map().epoch, f.chosen(pg)), (epoch, None), "nothing is left to remove");
    for seed in 0..4 {
        let pg = PgId { seed, ..pg };
        let to = f.up(pg)[1];
        f.choose(pg, to);
    }
    let (rc, rs, _) = f.c.command(f.admin, &json!({ "prefix": "osd rm-pg-upmap-primary-all" }), "");
    assert_eq!((rc, rs.as_str()), (0, "cleared all pg_upmap_primary mappings"));
    assert!(f.c.map().pg_upmap_primaries.is_empty());
}

/// In tests a refused command that leaves something pending panics.
#[test]
fn a_refused_command_changes_nothing() {
    let mut f = Field::new();
    let up = f.up(f.pg);
    f.run(&json!({ "prefix": "osd primary-affinity", "id": up[0].0, "weight": 0.0 }));
    assert_ne!(f.up(f.pg)[0], up[0]);
    let cmd = f.one(f.pg, up[0]);
    f.refused(&cmd, -22, "is first in the set");
    // An entry of the same set is taken back by the same command.
    f.choose(f.pg, up[2]);
    f.run(&json!({ "prefix": "osd primary-affinity", "id": up[0].0, "weight": 1.0 }));
    assert_eq!(f.up(f.pg)[0], up[2]);
    f.choose(f.pg, up[0]);
    assert_eq!(f.chosen(f.pg), None);
}

/// A monitor of an earlier version could not lead any more.
#[test]
fn an_entry_waits_for_all_monitors() {
    let mut f = Field::new();
    let to = f.up(f.pg)[1];
    let cmd = f.one(f.pg, to);
    let mode = json!({ "prefix": "balancer mode", "mode": "read" });
    let why = "mon.b could not lead a cluster with chosen primaries: upgrade and restart it before";
    f.c.core.pretend(|s| s.mons.up = Some(["a", "b"].map(String::from).into()));
    for features in [None, Some("0"), Some("x")] {
        let told = features.map(|v| ("state_features".to_owned(), v.to_owned())).into_iter().collect();
        f.c.core.pretend(|s| drop(s.mons.metadata.insert("b".into(), told)));
        f.refused(&cmd, -1, why);
        f.refused(&mode, -1, why);
    }
    let told = [("state_features".to_owned(), "3".to_owned())].into();
    f.c.core.pretend(|s| drop(s.mons.metadata.insert("b".into(), told)));
    f.choose(f.pg, to);
}

/// Each command that changes placement, with what is left of the entry after it.
#[test]
fn an_entry_stays_exactly_while_it_has_an_effect() {
    type Step = fn(&mut Field, &[OsdId]);
    let cases: [(&str, bool, Step); 12] = [
        ("ticks", true, |_, _| {}),
        ("down", true, |f, up| drop(f.run(&json!({ "prefix": "osd down", "ids": [up[2].0.to_string()] })))),
        ("out", false, |f, up| drop(f.run(&json!({ "prefix": "osd out", "ids": [up[2].0.to_string()] })))),
        ("another out", true, |f, up| drop(f.run(&json!({ "prefix": "osd out", "ids": [up[1].0.to_string()] })))),
        ("weight 0", false, |f, up| {
            let name = format!("osd.{}", up[2].0);
            f.run(&json!({ "prefix": "osd crush reweight", "name": name, "weight": 0.0 }));
        }),
        ("upmap items away", false, |f, up| {
            let to = f.c.map().osds().find(|o| !up.contains(o)).unwrap();
            let pg = f.pg.to_string();
            f.run(&json!({ "prefix": "osd pg-upmap-items", "pgid": pg, "id": [up[2].0, to.0] }));
        }),
        ("upmap items of another", true, |f, up| {
            let to = f.c.map().osds().find(|o| !up.contains(o)).unwrap();
            let pg = f.pg.to_string();
            f.run(&json!({ "prefix": "osd pg-upmap-items", "pgid": pg, "id": [up[0].0, to.0] }));
        }),
        ("a whole set that it leads", false, |f, up| {
            let ids: Vec<i32> = [2, 1, 0].map(|i: usize| up[i].0).to_vec();
            f.run(&json!({ "prefix": "osd pg-upmap", "pgid": f.pg.to_string(), "id": ids }));
        }),
        ("split", true, |f, _| {
            drop(f.run(&json!({ "prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "16" })));
        }),
        ("primary affinity", true, |f, up| {
            f.run(&json!({ "prefix": "osd primary-affinity", "id": up[2].0, "weight": 0.5 }));
        }),
        ("primary temp", true, |f, up| {
            f.run(&json!({ "prefix": "osd primary-temp", "pgid": f.pg.to_string(), "id": up[1].0 }));
        }),
        ("pool removed", false, |f, _| {
            f.run(&json!({ "prefix": "config set", "who": "mon", "name": "mon_allow_pool_delete", "value": "true" }));
            let rm = json!({ "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true });
            f.run(&rm);
        }),
    ];
    for (name, stays, step) in cases {
        let (mut f, up) = Field::with_entry();
        step(&mut f, &up);
        f.c.ticks(5);
        assert_eq!(f.chosen(f.pg), stays.then_some(up[2]), "{name}");
        if stays && name != "down" && f.c.map().primary_affinity.is_none() {
            assert_eq!(f.up(f.pg)[0], up[2], "{name}");
        }
        f.c.restart();
        assert_eq!(f.chosen(f.pg), stays.then_some(up[2]), "{name}, after a restart");
    }
}

#[test]
fn a_smaller_size_and_a_merge_end_entries() {
    let (mut f, up) = Field::with_entry();
    f.run(&json!({ "prefix": "osd pool set", "pool": "p", "var": "size", "val": "2" }));
    f.c.ticks(5);
    // CRUSH's third OSD is no longer in the set.
    assert_eq!((f.chosen(f.pg), f.up(f.pg)), (None, up[..2].to_vec()));
    let last = PgId { seed: 7, ..f.pg };
    let (first, to) = (f.up(last)[0], f.up(last)[1]);
    f.choose(last, to);
    // Only PGs with reports merge; a map in which the merge is announced stands for them.
    f.c.core.pretend(|s| {
        let mut map = (*s.osdmap).clone();
        let pools = std::sync::Arc::make_mut(&mut map.pools);
        std::sync::Arc::make_mut(pools.get_mut(&last.pool).unwrap()).pg_num_pending = 7;
        s.osdmap = map.into();
    });
    f.c.unchecked = true;
    f.c.ticks(5);
    assert_eq!((f.chosen(last), f.up(last)[0]), (None, first));
    let cmd = f.one(last, to);
    f.refused(&cmd, -22, "is about to be merged");
}

/// The epoch that takes the last entry back is encoded as Reef's, and the next one as before.
#[test]
fn the_form_of_maps_follows_the_entries() {
    let (mut f, _) = Field::with_entry();
    let form = |f: &Field| {
        let h = &f.c.core.state().history;
        let inc = cluster::Incremental::decode_blob(h.inc(f.c.map().epoch).unwrap()).unwrap();
        inc.encode_features >> 31 & 1
    };
    assert_eq!(form(&f), 1);
    f.run(&json!({ "prefix": "osd set", "key": "noout" }));
    assert_eq!(form(&f), 1);
    f.run(&json!({ "prefix": "osd rm-pg-upmap-primary-all" }));
    assert_eq!(form(&f), 1);
    f.run(&json!({ "prefix": "osd unset", "key": "noout" }));
    assert_eq!(form(&f), 0);
}

/// A monitor of an earlier version would write such maps without the entries.
#[test]
fn earlier_monitors_refuse_the_state() {
    let stored = |f: &mut Field, k: &str| {
        let ask = state::Op::get(vec![bytes::Bytes::from(k.to_owned())]);
        match support::ask(&mut f.c.store, ask) {
            state::Outcome::Values(v) => v.into_iter().next().flatten().map(|e| e.value),
            other => panic!("{other:?}"),
        }
    };
    let mut f = Field::new();
    assert_eq!(stored(&mut f, "meta/format").unwrap()[0], 2);
    let to = f.up(f.pg)[1];
    f.choose(f.pg, to);
    assert_eq!(stored(&mut f, "meta/format").unwrap()[0], 3);
    let words = base::FeatureWords::from_bytes(&stored(&mut f, "meta/features").unwrap()).unwrap();
    assert!(words.check(&base::FeatureWords::default(), false).is_err());
    f.c.restart();
    assert_eq!(f.chosen(f.pg), Some(to));
}
