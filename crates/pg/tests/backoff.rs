//! Are clients told to hold what a PG can't serve, once, and to go on when it can?
mod common;

use base::{Epoch, HObject, OsdId};
use common::*;
use pg::{Effect, Event, OpRequest, SessionId};
use wire::msg::{MOsdBackoff, backoff_op};

/// A PG that is inactive, since its pool is of an unsupported kind.
fn inactive() -> World {
    let mut w = World::new();
    w.pool.kind = pg::map::PoolKind::Erasure;
    // The changed parameter starts a new interval.
    w.pool.min_size += 1;
    w.next_map();
    assert!(!w.pg.is_active());
    w
}

fn handle(w: &mut World, e: Event) -> Vec<Effect> {
    let mut out = Vec::new();
    w.pg.handle(e, w.now, &mut w.store, &mut out);
    out
}

fn send(w: &mut World, r: OpRequest) -> Vec<Effect> {
    handle(w, Event::Op(Box::new(r)))
}

fn backoffs(out: &[Effect]) -> Vec<(SessionId, MOsdBackoff)> {
    out.iter()
        .filter_map(|e| match e {
            Effect::Backoff(s, b) => Some((*s, (**b).clone())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_session_gets_one_backoff_and_its_operations_are_dropped() {
    let mut w = inactive();
    let r = w.request(1, "a", vec![read(0, 0)]);
    let tid = r.msg.tid;
    let out = send(&mut w, r);
    let told = backoffs(&out);
    assert_eq!(told.len(), 1);
    let (session, b) = &told[0];
    assert_eq!((*session, b.op, b.pgid, b.map_epoch), (SessionId(1), backoff_op::BLOCK, w.cfg.spg, w.view.epoch));
    // The range is the whole pool, since the pool has only this PG.
    assert_eq!(b.begin, HObject { pool: w.cfg.spg.pg.pool, ..HObject::min() });
    assert!(b.end.max);
    assert_eq!(out[1..], [Effect::Dropped(SessionId(1), tid)]);
    let r = w.request(1, "b", vec![write(0, b"x")]);
    let tid = r.msg.tid;
    assert_eq!(send(&mut w, r), [Effect::Dropped(SessionId(1), tid)], "told before");
    let r = w.request(2, "b", vec![write(0, b"x")]);
    assert_eq!(backoffs(&send(&mut w, r)).len(), 1, "another session");
}

#[test]
fn backoffs_of_open_sessions_are_released_when_the_interval_ends() {
    let mut w = inactive();
    let mut ids = Vec::new();
    for s in 1..4 {
        let r = w.request(s, "a", vec![read(0, 0)]);
        ids.extend(backoffs(&send(&mut w, r)).iter().map(|(_, b)| b.id));
    }
    handle(&mut w, Event::SessionClosed(SessionId(2)));
    w.pool.kind = pg::map::PoolKind::Replicated;
    w.pool.min_size -= 1;
    w.view.epoch = Epoch(w.view.epoch.0 + 1);
    w.view.up_thru = w.view.epoch;
    w.view.pool = Some(std::rc::Rc::new(w.pool.clone()));
    let view = w.view.clone();
    let told = backoffs(&handle(&mut w, Event::Map(view)));
    let who: Vec<_> = told.iter().map(|(s, b)| (s.0, b.op, b.id)).collect();
    assert_eq!(who, [(1, backoff_op::UNBLOCK, ids[0]), (3, backoff_op::UNBLOCK, ids[2])]);
    assert_eq!(told[0].1.map_epoch, w.view.epoch);
    w.settle();
    assert!(w.pg.is_active());
    assert_eq!(w.op("a", vec![write(0, b"x")]).result, 0, "sent again, it is served");
}

#[test]
fn operations_that_waited_for_peering_get_a_backoff_when_the_pg_is_down() {
    let mut w = World::new();
    w.view.mapping.acting = vec![OsdId(2)];
    w.view.mapping.acting_primary = OsdId(2);
    w.next_map();
    // An operation under a newer map is held.
    let mut r = w.request(1, "a", vec![read(0, 0)]);
    r.msg.osdmap_epoch = Epoch(w.view.epoch.0 + 1);
    let tid = r.msg.tid;
    assert!(backoffs(&send(&mut w, r)).is_empty());
    w.view.mapping.acting = vec![OsdId(0)];
    w.view.mapping.acting_primary = OsdId(0);
    w.pool.kind = pg::map::PoolKind::Erasure;
    w.view.epoch = Epoch(w.view.epoch.0 + 1);
    w.view.pool = Some(std::rc::Rc::new(w.pool.clone()));
    let view = w.view.clone();
    let out = handle(&mut w, Event::Map(view));
    assert_eq!(backoffs(&out).len(), 1);
    assert!(out.contains(&Effect::Dropped(SessionId(1), tid)));
}

#[test]
fn a_pg_with_too_few_copies_sends_backoffs() {
    let mut w = World::new();
    w.pool.min_size = 2;
    w.view.up_thru = w.view.epoch.next();
    w.next_map();
    w.settle();
    assert_eq!(*w.pg.state(), pg::State::Peered);
    let r = w.request(1, "a", vec![read(0, 0)]);
    assert_eq!(backoffs(&send(&mut w, r)).len(), 1);
    w.pool.min_size = 1;
    w.view.epoch = Epoch(w.view.epoch.0 + 1);
    w.view.up_thru = w.view.epoch;
    w.view.pool = Some(std::rc::Rc::new(w.pool.clone()));
    let view = w.view.clone();
    let told = backoffs(&handle(&mut w, Event::Map(view)));
    assert_eq!(told.iter().map(|(s, b)| (s.0, b.op)).collect::<Vec<_>>(), [(1, backoff_op::UNBLOCK)]);
    w.settle();
    assert!(w.pg.is_active());
}

#[test]
fn operations_of_clients_without_backoffs_are_held() {
    let mut w = inactive();
    let mut r = w.request(1, "a", vec![read(0, 0)]);
    r.features = 0;
    assert_eq!(send(&mut w, r), []);
    assert_eq!(w.pg.dump_ops(w.now.mono).len(), 1);
}
