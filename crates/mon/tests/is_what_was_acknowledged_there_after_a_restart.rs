//! After a crash at any moment: is everything there that was acknowledged, and nothing half done?

mod support;

use base::{Epoch, OsdId, PoolId, SnapId};
use mon::core::cluster_state::Role;
use serde_json::json;
use state::StateStore;
use support::*;
use wire::Decode;
use wire::msg::*;
use wire::types::PgStat;

#[test]
fn nothing_is_acknowledged_before_it_is_durable() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let epoch = c.map().epoch;
    c.held = Some(Vec::new());
    let cmd = |json: serde_json::Value| MMonCommand {
        fsid: FSID,
        cmd: vec![json.to_string().into()],
        ..MMonCommand::default()
    };
    c.send(admin, &cmd(json!({ "prefix": "osd set", "key": "noup" })));
    // While that is on its way to the disk: a change waits, a question is answered from what is durable.
    c.send(admin, &cmd(json!({ "prefix": "osd set", "key": "noin" })));
    c.send(admin, &cmd(json!({ "prefix": "osd dump", "format": "json" })));
    let acks = c.take::<MMonCommandAck>(admin);
    assert_eq!(acks.len(), 1);
    let dump: serde_json::Value = serde_json::from_slice(&acks[0].data).unwrap();
    assert_eq!(dump["epoch"], epoch.0);
    assert_eq!(c.held.as_ref().map(Vec::len), Some(1), "one proposal at a time");
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    let acks = c.take::<MMonCommandAck>(admin);
    assert_eq!(acks.len(), 2);
    assert!(acks.iter().all(|a| a.r == 0));
    assert_eq!(c.map().epoch, Epoch(epoch.0 + 2));
}

#[test]
fn a_crash_before_the_disk_loses_only_what_nobody_was_told() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noscrub" }));
    let epoch = c.map().epoch;
    c.held = Some(Vec::new());
    let cmd = json!({ "prefix": "osd set", "key": "noup" }).to_string();
    c.send(admin, &MMonCommand { fsid: FSID, cmd: vec![cmd.into()], ..MMonCommand::default() });
    assert!(c.take::<MMonCommandAck>(admin).is_empty());
    c.restart();
    assert_eq!(c.map().epoch, epoch);
    assert!(c.map().has_flag(cluster::osdmap::map_flag::NOSCRUB));
    assert!(!c.map().has_flag(cluster::osdmap::map_flag::NOUP));
}

#[test]
fn a_full_disk_refuses_changes_and_answers_questions() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }));
    let pool = c.map().pool_by_name("p").unwrap();
    let pgid = base::PgId { pool, seed: 0 };
    let (epoch, creating) = (c.map().epoch, c.core.state.creating.clone());
    c.failing = true;
    let (r, rs, _) =
        c.command(admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 1, "pgp_num": 1 }), "");
    assert_eq!(r, base::errno::EIO, "{rs}");
    assert!(rs.contains("No space left"), "{rs}");
    c.send(osds[0], &MOsdPgCreated { pgid, ..MOsdPgCreated::default() });
    c.ticks(3);
    assert_eq!(c.map().epoch, epoch);
    assert_eq!(c.core.state.creating, creating, "as before");
    assert!(c.core.state.store_error.is_some());
    c.ok(admin, &json!({ "prefix": "osd dump" }));
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }));
    assert!(health.contains("MON_DISK_CRIT") && health.contains("No space left"), "{health}");
    // There is room again.
    c.failing = false;
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 1, "pgp_num": 1 }));
    c.send(osds[0], &MOsdPgCreated { pgid, ..MOsdPgCreated::default() });
    assert!(!c.map().pool(pool).unwrap().has_flag(cluster::pool::flag::CREATING));
    assert!(c.core.state.store_error.is_none());
    c.restart();
    assert!(c.map().pool_by_name("q").is_some());
}

#[test]
fn every_kind_of_record_comes_back() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "pgp_num": 8 }));
    c.ok(admin, &json!({ "prefix": "auth get-or-create", "entity": "client.new", "caps": ["mon", "allow r"] }));
    c.ok(admin, &json!({ "prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "7" }));
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "k", "val": "v" }));
    c.ok(admin, &json!({ "prefix": "log", "logtext": ["hello", "there"] }));
    let before = (
        c.core.state.auth.clone(),
        c.core.state.config.values.clone(),
        c.core.state.config.version,
        c.core.state.kv.clone(),
        c.core.state.log.entries.clone(),
        c.core.state.osd_metadata.clone(),
        c.core.state.creating.clone(),
        c.map().clone(),
    );
    c.restart();
    let s = &c.core.state;
    assert_eq!(s.auth, before.0);
    assert_eq!(s.config.values, before.1);
    assert_eq!(s.config.version, before.2);
    assert_eq!(s.config.history.len(), 1);
    assert_eq!(s.kv, before.3);
    assert_eq!(s.log.entries, before.4);
    assert_eq!(s.osd_metadata, before.5);
    assert_eq!(s.creating, before.6);
    assert_eq!(*s.osdmap, before.7);
    assert_eq!(c.core.state.mgrmap.active_addrs, addr(6801, 77));
}

#[test]
fn global_ids_and_service_keys_survive() {
    use auth::AuthHost;
    let c = Cluster::new();
    let core = std::rc::Rc::new(std::cell::RefCell::new(c.core));
    let host = mon::core::MonAuthHost::new(std::rc::Rc::clone(&core), base::EntityKind::MON);
    let mut last = 0;
    for _ in 0..100 {
        let id = host.new_global_id().expect("an id");
        assert!(id > last);
        last = id;
    }
    let key = host.service_key(base::EntityKind::OSD, None).expect("a key");
    drop(host);
    let core = std::rc::Rc::into_inner(core).expect("last owner").into_inner();
    let mut c = Cluster { core, ..c };
    c.restart();
    let core = std::rc::Rc::new(std::cell::RefCell::new(c.core));
    let host = mon::core::MonAuthHost::new(core, base::EntityKind::MON);
    assert!(host.new_global_id().expect("an id") > last);
    assert_eq!(host.service_key(base::EntityKind::OSD, Some(key.0)), Some(key), "tickets stay good");
}

#[test]
fn self_managed_snapshots_are_numbered_removed_and_purged() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 2, "pgp_num": 2 }));
    let pool = c.map().pool_by_name("p").unwrap();
    let op =
        |op, snap: u64| MPoolOp { fsid: FSID, pool: pool.0 as u32, op, snapid: SnapId(snap), ..MPoolOp::default() };
    let create = |c: &mut Cluster| {
        c.send(admin, &op(pool_op::CREATE_UNMANAGED_SNAP, 0));
        let r = c.take::<MPoolOpReply>(admin).remove(0);
        assert_eq!(r.reply_code, 0);
        assert!(r.epoch <= c.map().epoch);
        u64::from_bytes(&r.response_data.expect("an id")).unwrap()
    };
    // Copies of what has snapshots may be in a pool that never had any.
    for snap in [0, 1, 4] {
        c.send(admin, &op(pool_op::DELETE_UNMANAGED_SNAP, snap));
        assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, base::errno::EOPNOTSUPP);
    }
    let (a, b) = (create(&mut c), create(&mut c));
    assert!(a < b);
    c.send(admin, &op(pool_op::DELETE_UNMANAGED_SNAP, a));
    assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, 0);
    assert!(c.map().removed_snaps_queue[&pool].contains(a));
    assert!(c.map().new_removed_snaps[&pool].contains(a));
    // Pool snapshots and these exclude each other.
    let named = MPoolOp { name: "s".into(), ..op(pool_op::CREATE_SNAP, 0) };
    c.send(admin, &named);
    assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, base::errno::EINVAL);
    // Once both PGs have purged it, it leaves the queue and is remembered by epoch.
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    let report = |seeds: &[u32]| {
        let stat = PgStat { purged_snaps: vec![(a, 1)], reported_seq: 1, ..PgStat::default() };
        let pg_stat = seeds.iter().map(|s| (base::PgId { pool, seed: *s }, stat.clone())).collect();
        MPgStats { fsid: FSID, pg_stat, ..MPgStats::default() }
    };
    c.send(mgr, &report(&[0]));
    c.ticks(1);
    assert!(c.map().removed_snaps_queue.contains_key(&pool), "one PG is missing");
    c.send(mgr, &report(&[1]));
    c.ticks(1);
    assert!(!c.map().removed_snaps_queue.contains_key(&pool));
    let epoch = c.map().epoch;
    assert!(c.map().new_purged_snaps[&pool].contains(a));
    c.send(osds[0], &MMonGetPurgedSnaps { start: Epoch(1), last: epoch.next(), ..MMonGetPurgedSnaps::default() });
    let r = c.take::<MMonGetPurgedSnapsReply>(osds[0]).remove(0);
    assert_eq!(r.last, epoch);
    assert_eq!(r.purged_snaps[&epoch][&pool], vec![(a, 1)]);
    // Removing it again is fine and changes nothing, also after a restart.
    c.restart();
    let admin = c.admin();
    c.send(admin, &op(pool_op::DELETE_UNMANAGED_SNAP, a));
    assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, 0);
    assert_eq!(c.map().epoch, epoch);
}

#[test]
fn pools_by_message_are_those_by_command() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let create = MPoolOp { fsid: FSID, op: pool_op::CREATE, name: "p".into(), crush_rule: -1, ..MPoolOp::default() };
    c.send(admin, &create);
    let r = c.take::<MPoolOpReply>(admin).remove(0);
    assert_eq!((r.reply_code, r.epoch), (0, c.map().epoch));
    let pool = c.map().pool_by_name("p").expect("made");
    let snap = |op| MPoolOp { fsid: FSID, pool: pool.0 as u32, op, name: "s".into(), ..MPoolOp::default() };
    c.send(admin, &snap(pool_op::CREATE_SNAP));
    assert_eq!(c.map().pool(pool).unwrap().snaps.len(), 1);
    let epoch = c.map().epoch;
    c.send(admin, &snap(pool_op::CREATE_SNAP));
    assert_eq!(c.map().epoch, epoch, "there already");
    c.send(admin, &snap(pool_op::DELETE_SNAP));
    assert!(c.map().pool(pool).unwrap().snaps.is_empty());
    assert!(c.map().removed_snaps_queue.contains_key(&pool));
    c.send(admin, &MPoolOp { fsid: FSID, op: pool_op::DELETE, pool: pool.0 as u32, ..MPoolOp::default() });
    assert!(c.take::<MPoolOpReply>(admin).iter().all(|r| r.reply_code == 0));
    assert!(c.map().pool(pool).is_none());
    assert!(!c.map().removed_snaps_queue.contains_key(&pool), "its queue goes with it");
    let missing = MPoolOp { fsid: FSID, op: pool_op::DELETE, pool: 99, ..MPoolOp::default() };
    c.send(admin, &missing);
    assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, base::errno::ENOENT);
}

#[test]
fn quotas_close_a_pool() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }));
    let pool = c.map().pool_by_name("p").unwrap();
    c.ok(admin, &json!({ "prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "10" }));
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    let report = |n: i64, seq: u64| {
        let mut stat = PgStat { reported_seq: seq, ..PgStat::default() };
        stat.stats.sum.num_objects = n;
        MPgStats { fsid: FSID, pg_stat: [(base::PgId { pool, seed: 0 }, stat)].into(), ..MPgStats::default() }
    };
    c.send(mgr, &report(10, 1));
    c.ticks(1);
    let flags = |c: &Cluster| c.map().pool(PoolId(pool.0)).unwrap().flags;
    use cluster::pool::flag::{FULL, FULL_QUOTA};
    assert_eq!(flags(&c) & (FULL | FULL_QUOTA), FULL | FULL_QUOTA);
    c.send(mgr, &report(5, 2));
    c.ticks(1);
    assert_eq!(flags(&c) & (FULL | FULL_QUOTA), 0);
}

#[test]
fn the_manager_role_answers_daemons() {
    let (mut c, _, _) = Cluster::with_osds(1);
    let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
    c.send(mgr, &MMgrOpen { daemon_name: "0".into(), ..MMgrOpen::default() });
    let conf = c.take::<MMgrConfigure>(mgr);
    assert_eq!((conf[0].stats_period, conf[0].stats_threshold), (5, 5));
    let close = MMgrClose { daemon_name: "x".into(), service_name: "rgw".into() };
    c.send(mgr, &close);
    assert_eq!(c.take::<MMgrClose>(mgr), vec![close]);
    assert!(c.map().exists(OsdId(0)));
}
