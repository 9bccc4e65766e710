//! Do commands that Ceph's own checks of its command line use, and few operators type, answer as Ceph's monitor does?

mod support;

use base::errno::{EINVAL, ENOENT, EOPNOTSUPP, EPERM};
use bytes::Bytes;
use cluster::MonInfo;
use mon::state::Role;
use serde_json::{Value, json};
use state::StateStore as _;
use std::collections::BTreeMap;
use support::*;
use wire::Reader;
use wire::msg::{MMonCommand, MMonCommandAck, MPgStats};
use wire::types::{OsdStat, PgStat, StoreStatfs};

fn said(c: &mut Cluster, admin: u64, cmd: Value) -> (i32, String) {
    let (rc, rs, _) = c.command(admin, &cmd, "");
    (rc, rs)
}

fn elect(prefix: &str, key: &str, value: &str) -> Value {
    json!({ "prefix": prefix, key: value })
}

#[test]
fn monitors_can_be_kept_from_leading() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let me = c.core.state().mon_name.clone();
    let strategy = |c: &mut Cluster, s: &str| said(c, admin, elect("mon set election_strategy", "strategy", s));
    let disallow = |n: &str| elect("mon add disallowed_leader", "name", n);
    let classic = (EINVAL, "You cannot disallow monitors in your current election mode".to_owned());
    assert_eq!(said(&mut c, admin, disallow(&me)), classic);
    assert_eq!(strategy(&mut c, "classic"), (0, "You are already in classic election strategy".into()));
    assert_eq!(strategy(&mut c, "lottery").0, EINVAL);
    assert_eq!(strategy(&mut c, "disallow"), (0, String::new()));
    assert_eq!(said(&mut c, admin, disallow("x")), (ENOENT, "mon.x does not exist".into()));
    let only = (EINVAL, format!("mon.{me} is the only remaining allowed leader!"));
    assert_eq!(said(&mut c, admin, disallow(&me)), only);
    assert_eq!(c.core.state().monmap.strategy, cluster::monmap::election::DISALLOW);

    for (i, name) in ["y", "z"].into_iter().enumerate() {
        let public_addrs = addr(4000 + i as u16, 0);
        c.core.pretend(|s| s.monmap.add(MonInfo { name: name.into(), public_addrs, ..MonInfo::default() }));
    }
    assert_eq!(said(&mut c, admin, disallow("y")), (0, String::new()));
    assert_eq!(said(&mut c, admin, disallow("y")), (0, "mon.y is already disallowed".into()));
    assert_eq!(strategy(&mut c, "connectivity"), (0, String::new()));
    let m = &c.core.state().monmap;
    assert!(!m.may_lead("y") && m.may_lead("z"));
    let allow = elect("mon rm disallowed_leader", "name", "y");
    assert_eq!(said(&mut c, admin, allow.clone()), (0, String::new()));
    assert_eq!(said(&mut c, admin, allow.clone()), (0, "mon.y is already allowed".into()));
    assert_eq!(said(&mut c, admin, disallow("y")).0, 0);
    assert_eq!(strategy(&mut c, "classic"), (0, String::new()));
    assert!(c.core.state().monmap.may_lead("y"), "the list counts with the other strategies alone");
    // Somebody may lead whatever is removed, and a removed monitor leaves the list.
    c.core.pretend(|s| s.mons.up = Some([me.clone()].into()));
    let rm = |c: &mut Cluster, n: &str| said(c, admin, elect("mon rm", "name", n));
    assert_eq!(strategy(&mut c, "disallow").0, 0);
    assert_eq!(said(&mut c, admin, disallow(&me)).0, 0);
    let (rc, rs) = rm(&mut c, "z");
    assert!(rc == EINVAL && rs.contains("mon.z is the only remaining allowed leader"), "{rs}");
    assert_eq!(strategy(&mut c, "classic").0, 0);
    assert_eq!(rm(&mut c, "z").0, 0);
    assert_eq!(strategy(&mut c, "disallow"), (EINVAL, "all monitors are disallowed leaders: allow one first".into()));
    assert_eq!(rm(&mut c, "y").0, 0);
    assert!(!c.core.state().monmap.disallowed_leaders.contains("y"));
    assert_eq!(said(&mut c, admin, allow), classic);
}

#[test]
fn features_of_the_monmap_are_set_once() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let set = |name: &str, sure: bool| json!({ "prefix": "mon feature set", "feature_name": name, "yes_i_really_mean_it": sure });
    assert_eq!(said(&mut c, admin, set("abcd", true)), (ENOENT, "unknown feature 'abcd'".into()));
    assert_eq!(said(&mut c, admin, set("kraken", false)).0, EPERM);
    c.core.pretend(|s| s.monmap.persistent_features &= !1);
    assert_eq!(said(&mut c, admin, set("kraken", true)).0, 0);
    assert_eq!(c.core.state().monmap.persistent_features & 1, 1);
    let (rc, rs) = said(&mut c, admin, set("kraken", true));
    assert!(rc == 0 && rs.ends_with("already set on monmap"), "{rs}");
}

#[test]
fn old_names_are_refused_on_request() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let (old, new) = (json!({ "prefix": "config-key list" }), json!({ "prefix": "config-key ls" }));
    assert_eq!(said(&mut c, admin, old.clone()).0, 0);
    let inject = |word: &str| json!({ "prefix": "injectargs", "injected_args": [word] });
    assert_eq!(c.tell(admin, &inject("--mon-debug-deprecated-as-obsolete")).0, 0);
    let refused = (EOPNOTSUPP, "command is obsolete; please check usage and/or man page".to_owned());
    assert_eq!(said(&mut c, admin, old.clone()), refused);
    assert_eq!(said(&mut c, admin, new).0, 0);
    assert_eq!(c.tell(admin, &inject("--no-mon-debug-deprecated-as-obsolete")).0, 0);
    assert_eq!(said(&mut c, admin, old).0, 0);
}

#[test]
fn a_monitor_says_why_it_does_not_leave_the_quorum() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let mut tell = |prefix: &str| c.tell(admin, &json!({ "prefix": prefix })).0;
    assert_eq!(tell("quorum enter"), 0);
    assert_eq!(tell("quorum exit"), EOPNOTSUPP);
    assert_eq!(tell("sync_force"), EOPNOTSUPP);
    let (_, _, out) = c.tell(admin, &json!({ "prefix": "get_command_descriptions" }));
    let all: Value = serde_json::from_str(&out).unwrap();
    let sync = all.as_object().unwrap().values().find(|d| d["sig"][0] == "sync_force").unwrap();
    assert_eq!(sync["flags"].as_u64().unwrap() & 32, 0, "help leaves out hidden commands");
}

#[test]
fn the_binary_map_of_pgs_has_the_reports() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 2 }));
    let pool = c.map().pool_by_name("p").unwrap();
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    let pg = base::PgId { pool, seed: 1 };
    let pg_stat = [(pg, PgStat { reported_seq: 1, acting_primary: base::OsdId(0), ..PgStat::default() })].into();
    let statfs = StoreStatfs { total: 1 << 30, available: 1 << 29, ..StoreStatfs::default() };
    let osd_stat = OsdStat { statfs, ..OsdStat::default() };
    c.send(mgr, &MPgStats { fsid: FSID, osd_stat, pg_stat, ..MPgStats::default() });
    let cmd = vec![json!({ "prefix": "pg getmap" }).to_string().into()];
    c.send(admin, &MMonCommand { fsid: FSID, cmd, data: Bytes::new(), ..MMonCommand::default() });
    let answer = c.take::<MMonCommandAck>(admin).pop().unwrap();
    assert!(answer.r == 0 && answer.rs.0.starts_with("got pgmap version "), "{}", answer.rs.0);
    let mut r = Reader::new(&answer.data);
    let (pgs, osds) = r
        .versioned("pg map", 8, |r, v| {
            assert_eq!((v, r.u64()? > 0), (8, true));
            let pgs: BTreeMap<base::PgId, PgStat> = r.get()?;
            let osds: BTreeMap<base::OsdId, OsdStat> = r.get()?;
            let (_, _, _): (base::Epoch, base::Epoch, base::Utime) = (r.get()?, r.get()?, r.get()?);
            let _: BTreeMap<(i64, i32), StoreStatfs> = r.get()?;
            Ok((pgs, osds))
        })
        .unwrap();
    assert!(pgs.contains_key(&pg) && osds[&base::OsdId(0)].statfs.total == 1 << 30);
}

#[test]
fn old_forms_of_holds_take_nodes_and_refuse_what_is_neither() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd crush add-bucket", "name": "foo", "type": "host", "args": ["root=default"] }));
    let ids = |prefix: &str, id: &str| json!({ "prefix": prefix, "ids": [id] });
    assert_eq!(said(&mut c, admin, ids("osd add-noup", "foo")).0, 0);
    let node = c.map().crush.id_of("foo").unwrap();
    assert_eq!(c.map().crush_node_flags.get(&node).copied(), Some(cluster::osdmap::osd_state::NOUP));
    assert_eq!(said(&mut c, admin, ids("osd rm-noup", "foo")).0, 0);
    for wrong in ["797er", "1234567"] {
        let text = format!("unable to parse osd id or crush node or device class: \"{wrong}\". ");
        assert_eq!(said(&mut c, admin, ids("osd add-noin", wrong)), (EINVAL, text));
    }
}

#[test]
fn a_bucket_that_is_not_there_is_unlinked_already() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let bucket = |name: &str, kind: &str| json!({ "prefix": "osd crush add-bucket", "name": name, "type": kind });
    c.ok(admin, &bucket("r", "root"));
    c.ok(admin, &bucket("h", "host"));
    let id = c.map().crush.id_of("h").unwrap();
    let unlink = json!({ "prefix": "osd crush unlink", "name": "h", "ancestor": "r" });
    assert_eq!(said(&mut c, admin, unlink), (0, format!("item {id} does not appear in that position")));
}

#[test]
fn pools_without_scrubs_are_told_of_in_good_health() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    for (pool, flags) in [("a", vec!["noscrub", "nodeep-scrub"]), ("b", vec!["nodeep-scrub"])] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 1 }));
        for var in flags {
            c.ok(admin, &json!({ "prefix": "osd pool set", "pool": pool, "var": var, "val": "1" }));
        }
    }
    let (_, _, out) = c.command(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }), "");
    let j: Value = serde_json::from_str(&out).unwrap();
    let check = &j["checks"]["POOL_SCRUB_FLAGS"];
    assert_eq!(check["severity"], "HEALTH_OK");
    assert_eq!(check["summary"]["message"], "Some pool(s) have the noscrub, nodeep-scrub flag(s) set");
    assert_eq!(check["detail"].as_array().unwrap().len(), 3);
}

#[test]
fn the_clients_of_the_manager_role_are_listed() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let clients = |c: &mut Cluster| {
        let (_, _, out) = c.command(admin, &json!({ "prefix": "mgr dump", "format": "json" }), "");
        serde_json::from_str::<Value>(&out).unwrap()["active_clients"].clone()
    };
    let tell = |c: &mut Cluster, own: Vec<base::AddrVec>| {
        c.core.handle(mon::core::Event::OwnClients(own), c.now);
        c.pump();
    };
    assert_eq!(clients(&mut c), json!([]));
    let own = addr(0, 77);
    tell(&mut c, vec![own.clone()]);
    assert_eq!(clients(&mut c)[0]["name"], "rbd_support");
    assert_eq!(c.core.state().mgrmap.clients, std::slice::from_ref(&own));
    // A session that ends takes no client out: it may still work at OSDs.
    c.ticks(2);
    assert_eq!(c.core.state().mgrmap.clients, std::slice::from_ref(&own));
    tell(&mut c, Vec::new());
    assert_eq!(clients(&mut c), json!([]));
    assert!(!c.map().is_blocklisted(&own.0[0]), "it left by itself");

    // What is told while a commit is in flight comes with the next one.
    c.held = Some(Vec::new());
    c.ok_later(admin, &json!({ "prefix": "mgr module enable", "module": "mine", "force": "--force" }));
    tell(&mut c, vec![own.clone()]);
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    let m = &c.core.state().mgrmap;
    assert_eq!((&m.clients, &m.modules), (&vec![own.clone()], &vec!["mine".to_owned()]));

    // The next process that has the role keeps the clients of the last one from the OSDs.
    assert!(!c.map().is_blocklisted(&own.0[0]));
    c.restart();
    let admin = c.admin();
    let (_, _, out) = c.command(admin, &json!({ "prefix": "mgr dump", "format": "json" }), "");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["active_clients"], json!([]));
    assert!(c.map().is_blocklisted(&own.0[0]));
    assert_eq!(c.core.state().mgrmap.last_failure_osd_epoch, c.map().epoch);
    let epoch = c.map().epoch;
    c.restart();
    assert_eq!(c.map().epoch, epoch, "once");
}
