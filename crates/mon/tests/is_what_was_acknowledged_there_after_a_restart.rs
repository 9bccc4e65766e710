//! After a crash at any moment: is every acknowledged change there, and none half done?

mod support;

use base::{Epoch, OsdId, PoolId, SnapId};
use mon::state::Role;
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
    // While the commit is in flight a change waits, and a query is answered from durable state.
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
fn a_crash_before_the_commit_loses_only_unacknowledged_changes() {
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
fn a_full_disk_refuses_changes_and_answers_queries() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }));
    let pool = c.map().pool_by_name("p").unwrap();
    let pgid = base::PgId { pool, seed: 0 };
    let (epoch, creating) = (c.map().epoch, c.core.state().osds.creating.clone());
    c.failing = true;
    let (r, rs, _) =
        c.command(admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 1, "pgp_num": 1 }), "");
    assert_eq!(r, base::errno::EIO, "{rs}");
    assert!(rs.contains("No space left"), "{rs}");
    c.send(osds[0], &MOsdPgCreated { pgid, ..MOsdPgCreated::default() });
    c.ticks(3);
    assert_eq!(c.map().epoch, epoch);
    assert_eq!(c.core.state().osds.creating, creating, "as before");
    assert!(c.core.state().store.error.is_some());
    c.ok(admin, &json!({ "prefix": "osd dump" }));
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }));
    assert!(health.contains("MON_DISK_CRIT") && health.contains("No space left"), "{health}");
    // The disk has room again.
    c.failing = false;
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 1, "pgp_num": 1 }));
    c.send(osds[0], &MOsdPgCreated { pgid, ..MOsdPgCreated::default() });
    assert!(!c.map().pool(pool).unwrap().has_flag(cluster::pool::flag::CREATING));
    assert!(c.core.state().store.error.is_none());
    c.restart();
    assert!(c.map().pool_by_name("q").is_some());
}

#[test]
fn every_kind_of_record_survives_a_restart() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "pgp_num": 8 }));
    c.ok(admin, &json!({ "prefix": "auth get-or-create", "entity": "client.new", "caps": ["mon", "allow r"] }));
    c.ok(admin, &json!({ "prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "7" }));
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "k", "val": "v" }));
    c.ok(admin, &json!({ "prefix": "log", "logtext": ["hello", "there"] }));
    let before = (
        c.core.state().auth.clone(),
        c.core.state().config.values.clone(),
        c.core.state().config.version,
        c.core.state().kv.entries().clone(),
        c.core.state().log.entries().into_iter().cloned().collect::<Vec<_>>(),
        c.core.state().osds.metadata.clone(),
        c.core.state().osds.creating.clone(),
        c.map().clone(),
    );
    c.restart();
    let s = c.core.state();
    assert_eq!(s.auth, before.0);
    assert_eq!(s.config.values, before.1);
    assert_eq!(s.config.version, before.2);
    assert_eq!(s.config.history.len(), 1);
    assert_eq!(*s.kv.entries(), before.3);
    assert_eq!(s.log.entries().into_iter().cloned().collect::<Vec<_>>(), before.4);
    assert_eq!(s.osds.metadata, before.5);
    assert_eq!(s.osds.creating, before.6);
    assert_eq!(*s.osdmap, before.7);
    assert_eq!(c.core.state().mgrmap.active_addrs, addr(6801, 77));
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
    // Snapshots may be removed in a pool that never had any, because copied objects may have them.
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
    // Pool snapshots and self-managed snapshots exclude each other.
    let named = MPoolOp { name: "s".into(), ..op(pool_op::CREATE_SNAP, 0) };
    c.send(admin, &named);
    assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, base::errno::EINVAL);
    // Once both PGs have purged the snapshot, it leaves the queue and is recorded by epoch.
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
    // Removing a snapshot again succeeds and changes nothing, also after a restart.
    c.restart();
    let admin = c.admin();
    c.send(admin, &op(pool_op::DELETE_UNMANAGED_SNAP, a));
    assert_eq!(c.take::<MPoolOpReply>(admin)[0].reply_code, 0);
    assert_eq!(c.map().epoch, epoch);
}

#[test]
fn pool_messages_work_like_pool_commands() {
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
fn a_reached_quota_makes_a_pool_full() {
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

/// The answer to a transaction is lost, once or several times: the change is made once, and its client gets the
/// answer.
#[test]
fn an_unknown_outcome_is_looked_up() {
    for lost in [&[true][..], &[false], &[false, false, true], &[false, true], &[true, true]] {
        let (mut c, admin, _) = Cluster::with_osds(1);
        let epoch = c.map().epoch;
        c.lost = lost.iter().copied().collect();
        let cmd = json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 4 }).to_string();
        c.send(admin, &MMonCommand { fsid: FSID, cmd: vec![cmd.into()], ..MMonCommand::default() });
        let acks = c.take::<MMonCommandAck>(admin);
        assert_eq!(acks.iter().map(|a| a.r).collect::<Vec<_>>(), [0], "{lost:?}");
        assert_eq!(c.map().epoch, Epoch(epoch.0 + 1), "{lost:?}");
        c.lost.clear();
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 4 }));
        c.restart();
        assert!(c.map().pool_by_name("p").is_some() && c.map().pool_by_name("q").is_some());
    }
}

/// While the store cannot even be read, a client whose change may have been made waits, and gets its answer later.
#[test]
fn an_outcome_that_cannot_be_looked_up_is_not_answered() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.lost = [true].into();
    c.failing_reads = 3;
    let cmd = json!({ "prefix": "osd set", "key": "noup" }).to_string();
    c.send(admin, &MMonCommand { fsid: FSID, cmd: vec![cmd.into()], ..MMonCommand::default() });
    assert!(c.take::<MMonCommandAck>(admin).is_empty());
    c.ticks(4);
    let acks = c.take::<MMonCommandAck>(admin);
    assert_eq!(acks.iter().map(|a| a.r).collect::<Vec<_>>(), [0]);
}

/// Hundreds of changes in one turn exceed a transaction: they are made in several, and all are there.
#[test]
fn a_proposal_may_need_several_transactions() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.held = Some(Vec::new());
    c.ok_later(admin, &json!({ "prefix": "osd set", "key": "noup" }));
    // These requests wait for the first commit, and then share one proposal.
    for i in 0..240 {
        c.ok_later(admin, &json!({ "prefix": "config-key set", "key": format!("k{i}"), "val": "v" }));
        c.ok_later(admin, &json!({ "prefix": "osd pool create", "pool": format!("p{i}"), "pg_num": 1 }));
    }
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    let acks = c.take::<MMonCommandAck>(admin);
    assert_eq!(acks.len(), 481);
    assert!(acks.iter().all(|a| a.r == 0), "{:?}", acks.iter().find(|a| a.r != 0));
    c.restart();
    let admin = c.admin();
    assert_eq!(c.map().pools.len(), 240);
    c.ok(admin, &json!({ "prefix": "config-key get", "key": "k239" }));
    for i in 0..240 {
        let pool = format!("p{i}");
        c.ok_later(
            admin,
            &json!({ "prefix": "osd pool rm", "pool": pool, "pool2": pool, "yes_i_really_really_mean_it": true }),
        );
    }
    let acks = c.take::<MMonCommandAck>(admin);
    assert!(acks.len() == 240 && acks.iter().all(|a| a.r == 0));
    c.restart();
    assert_eq!(c.map().pools.len(), 0);
}

/// The state of an earlier release (a file of a real cluster) opens, shows the same maps, and gets the new layout.
#[test]
fn the_state_of_an_earlier_release_opens() {
    use std::io::Read as _;
    let dir = std::env::temp_dir().join(format!("belemnite-format-1-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("state.redb");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&include_bytes!("fixtures/format-1.redb.gz")[..]).read_to_end(&mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let tx = std::sync::Mutex::new(tx);
    let wake = Box::new(move || tx.lock().unwrap().send(()).unwrap_or_default());
    let mut file = state::embedded::EmbeddedStore::open(&path, wake).unwrap();
    let everything = state::Range { start: bytes::Bytes::new(), end: None };
    file.submit(state::Request { token: 1, op: state::Op::all(everything.clone()) });
    rx.recv().unwrap();
    let entries = match file.poll() {
        Some(state::Event::Reply(state::Reply { result: Ok(state::Outcome::Entries { entries, .. }), .. })) => entries,
        other => panic!("{other:?}"),
    };
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
    let mut store = state::memory::MemoryStore::new();
    for some in entries.chunks(50) {
        let mut t = state::Txn::default();
        some.iter().for_each(|(k, e)| t.put(k.clone(), e.value.clone()));
        assert_eq!(ask(&mut store, state::Op::Txn(t)), state::Outcome::Committed);
    }
    let now = base::Now { mono: base::Mono(1), wall: base::Utime { sec: 1_800_000_000, nsec: 0 } };
    let mut c = Cluster::on(store, mon::state::options::MonOptions::default(), now);
    for round in 0..2 {
        let admin = c.admin();
        assert!(c.map().pool_by_name("p8").is_some() && c.map().pool_by_name("p3").is_none());
        let key = c.ok(admin, &json!({ "prefix": "config-key get", "key": "k5" }));
        assert_eq!(key, "v5");
        // The maps of each epoch as that release stored them.
        let mut fulls = 0;
        for (k, e) in entries.iter().filter(|(k, _)| k.starts_with(b"osdmap/full/")) {
            fulls += 1;
            let epoch = u32::from_str_radix(std::str::from_utf8(&k[12..]).unwrap(), 16).unwrap();
            let cmd = json!({ "prefix": "osd getmap", "epoch": epoch }).to_string();
            c.send(admin, &MMonCommand { fsid: c.core.state().fsid, cmd: vec![cmd.into()], ..MMonCommand::default() });
            let acks = c.take::<MMonCommandAck>(admin);
            assert!(acks.len() == 1 && acks[0].data == e.value, "round {round}, epoch {epoch}");
        }
        assert_eq!(fulls, 30);
        for i in 0..40 {
            let (set, flag) = if i % 2 == 0 { ("osd set", "noup") } else { ("osd unset", "noup") };
            c.ok(admin, &json!({ "prefix": set, "key": flag }));
        }
        c.restart();
    }
    let state::Outcome::Entries { entries, .. } = ask(&mut c.store, state::Op::all(everything)) else { panic!() };
    let value = |k: &[u8]| entries.iter().find(|(x, _)| x == k).map(|(_, e)| e.value.clone()).unwrap();
    assert_eq!(value(b"meta/format")[0], 2);
    let fulls = entries.iter().filter(|(k, _)| k.starts_with(b"osdmap/full/")).count();
    let incs = entries.iter().filter(|(k, _)| k.starts_with(b"osdmap/inc/")).count();
    assert!(fulls < 30 + 30 && incs > 100, "fewer full maps than epochs: {fulls} of {incs}");
}
