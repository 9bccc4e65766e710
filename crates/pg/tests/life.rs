//! Does a PG become active when it may, and only then, and end with its pool?
mod common;

use base::{Epoch, Eversion, OsdId, PoolId};
use bytes::Bytes;
use common::*;
use pg::info::PgInfo;
use pg::map::{Mapping, PoolKind, pool_flags};
use pg::peer::{Body, Orphan, orphan};
use pg::{Effect, Event, Pg, PgConfig, PoolView, State};
use std::rc::Rc;
use store::mem::MemStore;
use store::{Cid, ObjectStore};
use wire::msg::{MPgPeer, OpCode};
use wire::types::pg_state;

#[test]
fn activation_waits_for_up_thru_and_creation_is_reported() {
    let mut w = World::unmapped(MemStore::new());
    w.pool.flags |= pool_flags::CREATING;
    w.view.pool = Some(Rc::new(w.pool.clone()));
    w.view.up_thru = Epoch(0);
    let mut out = Vec::new();
    while let Some(e) = w.store.poll_event() {
        w.pg.handle(Event::Store(e), w.now, &mut w.store, &mut out);
    }
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    assert_eq!(out, [Effect::WantUpThru(Epoch(10))]);
    assert!(matches!(w.pg.state(), State::WaitUpThru { .. }));
    assert_eq!(w.pg.state_bits(), pg_state::PEERING);
    // Operations wait for the PG.
    let r = w.request(1, "a", vec![write(0, b"x")]);
    let key = (r.session, r.msg.tid);
    w.pg.handle(Event::Op(Box::new(r)), w.now, &mut w.store, &mut out);
    out.clear();
    w.view.epoch = Epoch(11);
    w.view.up_thru = Epoch(10);
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    assert!(out.is_empty(), "not before the interval's start is durable");
    while let Some(e) = w.store.poll_event() {
        w.pg.handle(Event::Store(e), w.now, &mut w.store, &mut out);
    }
    assert!(w.pg.is_active());
    assert_eq!(out[0], Effect::Created);
    assert!(matches!(&out[1], Effect::Reply(s, r) if (*s, r.tid) == key && r.result == 0));
    assert_eq!(w.pg.state_bits(), pg_state::ACTIVE | pg_state::CLEAN);
    let a = w.pg.report(w.now);
    let b = w.pg.report(w.now);
    assert!(b.reported_seq > a.reported_seq);
    assert_eq!((a.stats.sum.num_objects, a.acting.len(), a.created), (1, 1, Epoch(10)));
}

#[test]
fn a_pool_that_cannot_be_served_stays_inactive_with_a_reason() {
    let refuse = |change: &dyn Fn(&mut World)| {
        let mut w = World::unmapped(MemStore::new());
        w.settle();
        change(&mut w);
        w.map();
        let r = w.request(1, "a", vec![read(0, 0)]);
        w.send(r);
        assert!(w.replies.is_empty(), "never answered");
        assert!(!w.pg.is_active());
        (w.pg.inactive_reason(), w.pg.state_bits())
    };
    let (why, bits) = refuse(&|w| {
        w.pool.size = 3;
        w.pool.min_size = 2;
    });
    assert!(why.unwrap().contains("too few copies"));
    assert_eq!(bits, pg_state::PEERED | pg_state::UNDERSIZED);
    let (why, _) = refuse(&|w| w.pool.kind = PoolKind::Erasure);
    assert!(why.unwrap().contains("erasure"));
    let (why, bits) = refuse(&|w| {
        w.view.mapping.acting = vec![OsdId(1)];
        w.view.mapping.acting_primary = OsdId(1);
    });
    assert_eq!((why, bits), (None, 0), "somebody else's");
}

#[test]
fn an_osd_without_the_data_does_not_serve() {
    let mut w = World::unmapped(MemStore::new());
    let mut how = pg::CreateInfo::default();
    how.extra.history.same_interval_since = Epoch(10);
    let other = wire::types::CompactInterval {
        first: Epoch(3),
        last: Epoch(9),
        acting: [wire::types::PgShard::replica(OsdId(4))].into(),
    };
    let rep = wire::types::PiCompactRep { intervals: vec![other], ..Default::default() };
    how.extra.past_intervals = wire::types::PastIntervals(Some(rep));
    w.store = MemStore::new();
    w.pg = pg::Pg::create(w.cfg, how, w.now, &mut w.store, &mut w.effects);
    w.settle();
    w.view.osds = Rc::new(Up([OsdId(0)].into()));
    w.map();
    assert_eq!(*w.pg.state(), State::Down(vec![OsdId(4)]));
    assert_eq!(w.pg.report(w.now).blocked_by, [OsdId(4)]);
    assert_eq!(w.pg.state_bits(), pg_state::DOWN);
}

#[test]
fn a_stray_notifies_again_after_its_osd_was_down() {
    let mut w = World::new();
    let m = &mut w.view.mapping;
    (m.up, m.acting) = (vec![OsdId(2)], vec![OsdId(2)]);
    (m.up_primary, m.acting_primary) = (OsdId(2), OsdId(2));
    w.next_map();
    assert_eq!(*w.pg.state(), State::Stray);
    let told = |w: &mut World| {
        w.view.epoch = w.view.epoch.next();
        let mut out = Vec::new();
        w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
        out.iter().filter(|e| matches!(e, Effect::Peer { to: OsdId(2), .. })).count()
    };
    assert_eq!(told(&mut w), 0, "nothing is new");
    // The OSD was marked down, so the primary did not hear it; the interval of the others went on.
    w.view.up_from = w.view.epoch.next();
    assert_eq!(told(&mut w), 1);
    assert_eq!(told(&mut w), 0);
}

#[test]
fn a_new_interval_drops_operations_and_watches() {
    let mut w = World::new();
    w.op("a", vec![write(0, b"x")]);
    w.view.mapping.acting = vec![OsdId(2)];
    w.view.mapping.acting_primary = OsdId(2);
    w.next_map();
    assert_eq!(*w.pg.state(), State::Stray);
    let r = w.request(1, "a", vec![read(0, 0)]);
    w.send(r);
    let mut r = w.request(1, "a", vec![read(0, 0)]);
    r.msg.osdmap_epoch = Epoch(13);
    w.send(r);
    assert!(w.replies.is_empty());
    // The OSD is primary again and has the data, so it serves.
    w.view.mapping.acting = vec![OsdId(0)];
    w.view.mapping.acting_primary = OsdId(0);
    w.view.up_thru = Epoch(11);
    w.next_map();
    assert_eq!(*w.pg.state(), State::GetInfo, "the other may have taken writes");
    w.has_nothing(OsdId(2));
    assert!(matches!(w.pg.state(), State::WaitUpThru { .. }), "this interval needs its own up_thru");
    w.view.up_thru = Epoch(12);
    w.next_map();
    assert!(w.pg.is_active());
    assert_eq!(w.replies.len(), 1, "what came for this map is answered, what came for the other was dropped");
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata.len(), 1);
}

#[test]
fn operations_wait_for_their_map() {
    let mut w = World::new();
    let mut r = w.request(1, "a", vec![write(0, b"x")]);
    r.msg.osdmap_epoch = Epoch(12);
    let mut out = Vec::new();
    let key = (r.session, r.msg.tid);
    w.pg.handle(Event::Op(Box::new(r)), w.now, &mut w.store, &mut out);
    assert_eq!(out, [Effect::WantMap(Epoch(12))]);
    w.next_map();
    assert!(w.replies.is_empty());
    w.next_map();
    assert_eq!(w.replies[&key].result, 0);
}

#[test]
fn a_deleted_pool_is_removed_in_steps() {
    let mut w = World::new();
    for i in 0..200 {
        w.op(&format!("o{i}"), vec![write(0, b"x")]);
    }
    w.view.pool = None;
    w.view.epoch = w.view.epoch.next();
    let mut out = Vec::new();
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    let mut steps = 0;
    while let Some(e) = w.store.poll_event() {
        steps += 1;
        w.pg.handle(Event::Store(e), w.now, &mut w.store, &mut out);
    }
    assert!(steps >= 4, "{steps}");
    assert_eq!(out, [Effect::Deleted]);
    assert!(w.store.collections().is_empty());
    assert_eq!(*w.pg.state(), State::Deleted);
}

#[test]
fn deletion_goes_on_after_a_restart() {
    let mut w = World::new();
    for i in 0..200 {
        w.op(&format!("o{i}"), vec![write(0, b"x")]);
    }
    w.view.pool = None;
    w.view.epoch = w.view.epoch.next();
    let mut out = Vec::new();
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    while w.store.poll_event().is_some() {}
    w.pg = pg::Pg::load(w.cfg, 0, w.now, &mut w.store, &mut out);
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    while let Some(e) = w.store.poll_event() {
        w.pg.handle(Event::Store(e), w.now, &mut w.store, &mut out);
    }
    assert_eq!(out, [Effect::Deleted]);
    assert_eq!(w.store.collections().iter().filter(|c| c.0 != Cid::Meta).count(), 0);
}

/// The remains of a removal that was cut off may be filled again. They must not look like the objects that they were.
#[test]
fn remains_of_a_removal_have_no_object_info() {
    let mut w = World::new();
    let keys: std::collections::BTreeMap<Bytes, Bytes> =
        (0..20_000).map(|i| (Bytes::from(format!("{i:020}")), Bytes::from_static(b"value"))).collect();
    assert_eq!(w.op("many keys", vec![encoded(OpCode::OMAPSETVALS, &keys)]).result, 0);
    assert_remains_are_marked(w, "many keys");
    let mut w = World::new();
    for i in 1..=70u64 {
        w.op("many clones", vec![write_full(&i.to_le_bytes())]);
        w.set_snaps(i, &(1..=i).rev().collect::<Vec<_>>());
    }
    w.op("many clones", vec![write_full(b"last")]);
    assert_remains_are_marked(w, "many clones");
}

/// Removes the PG, which has one object, until its head has no object info, or is gone.
fn assert_remains_are_marked(mut w: World, name: &str) {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let hash = hash(std::str::from_utf8(&name).unwrap());
    let head = base::HObject { pool: PoolId(POOL), hash, oid: name.clone(), ..base::HObject::min() }.head();
    let (oid, cid) = (store::Oid::new(head), Cid::Pg(w.cfg.spg));
    let info = |w: &mut World| w.store.attr(store::Tag(1 << 60), cid, &oid, b"_");
    w.view.pool = None;
    w.view.epoch = w.view.epoch.next();
    let mut out = Vec::new();
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    while matches!(info(&mut w), Ok(Some(_))) {
        let e = w.store.poll_event().expect("the removal goes on");
        w.pg.handle(Event::Store(e), w.now, &mut w.store, &mut out);
    }
    assert_eq!(info(&mut w), Ok(None), "{name:?}: the object is still there in part");
}

#[test]
fn a_failed_store_ends_service() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.op("a", vec![write(0, b"x")]);
    w.manual = true;
    let r = w.request(1, "a", vec![write(0, b"y")]);
    w.send(r);
    let tag = std::iter::from_fn(|| {
        w.store.end_turn();
        w.store.poll_event()
    })
    .find_map(|e| if let store::Event::Durable(t, _) = e { Some(t) } else { None });
    let mut out = Vec::new();
    let failed = store::Event::Durable(tag.unwrap(), Err(base::errno::EIO));
    w.pg.handle(Event::Store(failed), w.now, &mut w.store, &mut out);
    let is_dropped = matches!(out.as_slice(), [Effect::Dropped(..), Effect::Failed(base::errno::EIO)]);
    assert!(is_dropped, "nothing is acknowledged: {out:?}");
    assert_eq!(*w.pg.state(), State::Failed(base::errno::EIO));

    // Seed 80025844 of the simulator: an OSD denied having children that its PG was to be split into. The primary
    // went on without the only copy of a write.
    out.clear();
    let mut view = w.view.clone();
    view.epoch = Epoch(view.epoch.0 + 1);
    view.pool = Some(Rc::new(PoolView { pg_num: 2, pg_num_pending: 2, ..w.pool.clone() }));
    w.pg.handle(Event::Map(view), w.now, &mut w.store, &mut out);
    let child = base::SpgId { pg: base::PgId { seed: 1, ..w.cfg.spg.pg }, ..w.cfg.spg };
    let failed = Effect::SplitFailed(vec![child], base::errno::EIO);
    assert_eq!(out, [failed], "nobody is told that nothing is here");
    let r = w.request(1, "a", vec![read(0, 0)]);
    w.send(r);
    assert!(w.replies.is_empty());
}

#[test]
fn an_operation_for_a_newer_map_survives_maps_in_which_another_osd_leads() {
    // Found by the simulator (seed 31): a restarting OSD is down in one map and up in the next. The client has the
    // second map already, so it does not resend.
    let mut w = World::new();
    let mut r = w.request(1, "a", vec![write(0, b"x")]);
    r.msg.osdmap_epoch = base::Epoch(w.view.epoch.0 + 2);
    let key = w.send(r);
    let mine = w.view.mapping.clone();
    w.view.mapping.acting_primary = base::OsdId(9);
    w.view.mapping.acting = vec![base::OsdId(9)];
    w.next_map();
    assert_eq!(*w.pg.state(), State::Stray);
    w.view.mapping = mine;
    w.view.epoch = w.view.epoch.next();
    w.view.up_thru = w.view.epoch;
    w.map();
    w.has_nothing(base::OsdId(9));
    assert_eq!(w.replies.get(&key).map(|r| r.result), Some(0));
}

/// Seed 80010095 of the simulator: an OSD that had been down created its copy from an older message of the primary.
/// The message did not know of an interval in which the primary had served alone. The OSD later became primary
/// without those writes.
#[test]
fn no_copy_is_created_from_a_message_under_an_older_map() {
    let (me, other) = (OsdId(0), OsdId(1));
    let view = |primary: OsdId| {
        let mut v = map_view(20, &pool_view());
        v.mapping =
            Mapping { up: vec![me, other], up_primary: primary, acting: vec![me, other], acting_primary: primary };
        v
    };
    let said = |body: Body, epoch: u32| {
        let (body, data) = body.encode();
        MPgPeer {
            spg: base::PgId::new(POOL, 0).into(),
            from: base::ShardId::NONE,
            epoch: Epoch(epoch),
            up_from: Epoch(0),
            body,
            data,
            sums: None,
        }
    };
    let info = || Box::new(PgInfo::default());
    let activate = || Body::Activate {
        les: Epoch(12),
        since: Eversion::default(),
        reset: false,
        info: info(),
        records: Vec::new(),
    };
    let notify = || Body::Notify { info: info(), absent: false, grants: Vec::new() };
    let answer = |o: Orphan| match o {
        Orphan::Answer(m) | Orphan::Ask(m) => {
            assert_eq!(m.epoch, Epoch(20), "so that it is answered by one that has this map");
            Body::decode(&m.body, &m.data, Cid::Pg(m.spg)).unwrap()
        }
        o => panic!("{o:?}"),
    };

    assert!(matches!(orphan(me, &view(other), other, &said(activate(), 20)), Orphan::Create(_)));
    let a = answer(orphan(me, &view(other), other, &said(activate(), 19)));
    assert!(matches!(a, Body::Notify { absent: true, .. }), "{a:?}");

    assert!(matches!(orphan(me, &view(me), other, &said(notify(), 20)), Orphan::Create(_)));
    let a = answer(orphan(me, &view(me), other, &said(notify(), 19)));
    assert!(matches!(a, Body::Query), "{a:?}");
}

/// An OSD that is told to stop while its pool grows does not wait for children that will not be split off.
#[test]
fn a_child_that_waits_for_its_split_stops_at_once() {
    let mut w = World::new();
    let cfg = PgConfig { spg: base::PgId::new(POOL, 1).into(), whoami: OsdId(0), index: 2, seed: 7 };
    let mut child = Pg::promise(cfg, 1);
    let mut out = Vec::new();
    let grown = PoolView { pg_num: 2, pg_num_pending: 2, ..w.pool.clone() };
    child.handle(Event::Map(map_view(w.view.epoch.0 + 1, &grown)), w.now, &mut w.store, &mut out);
    assert_eq!(out, []);
    child.handle(Event::Stop, w.now, &mut w.store, &mut out);
    assert_eq!(out, [Effect::Stopped]);
}

/// The host counts the answers of operations against their connection. So it hears of each that gets none, in whatever
/// way the PG had kept it.
#[test]
fn the_host_hears_of_operations_that_go_to_another_primary() {
    let mut w = World::new();
    w.op("a", vec![write(0, b"x")]);
    let lost = |out: &[Effect]| -> Vec<u64> {
        let tid = |e: &Effect| if let Effect::Dropped(_, tid) = e { Some(*tid) } else { None };
        let mut tids: Vec<u64> = out.iter().filter_map(tid).collect();
        tids.sort_unstable();
        tids
    };
    // One is committing, one waits for its object, one waits for a lease or a map.
    let mut sent = Vec::new();
    let mut out = Vec::new();
    for (object, ops, epoch) in [
        ("a", vec![write(0, b"y")], w.view.epoch),
        ("a", vec![read(0, 0)], w.view.epoch),
        ("b", vec![read(0, 0)], w.view.epoch.next()),
    ] {
        let mut r = w.request(1, object, ops);
        r.msg.osdmap_epoch = epoch;
        sent.push(r.msg.tid);
        w.pg.handle(Event::Op(Box::new(r)), w.now, &mut w.store, &mut out);
    }
    assert!(lost(&out).is_empty());
    w.view.mapping.acting = vec![OsdId(2)];
    w.view.mapping.acting_primary = OsdId(2);
    w.view.epoch = w.view.epoch.next();
    let mut out = Vec::new();
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    let replied = out.iter().filter(|e| matches!(e, Effect::Reply(..))).count();
    assert_eq!((lost(&out), replied), (sent, 0));
}

/// The new member of the up set is none of the acting set: heartbeats to it begin now, not with the next tick.
#[test]
fn an_osd_that_joins_only_the_up_set_is_reported() {
    let mut w = World::new();
    w.view.epoch = w.view.epoch.next();
    w.view.mapping.up.push(OsdId(1));
    let mut out = Vec::new();
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    assert!(w.pg.others().is_empty() && w.pg.up().len() == 2);
    assert_eq!(out.iter().filter(|e| **e == Effect::Members).count(), 1, "{out:?}");
}
