//! Writes that wait for space, for the map, or for an object hold up nothing that could help them, and end with their
//! session.
mod common;

use base::SnapId;
use base::errno::ENOENT;
use bytes::Bytes;
use common::*;
use pg::map::{map_flags, pool_flags};
use pg::{Event, SessionId};
use store::mem::MemStore;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{OpCode, OsdOp, msg_flags};

fn watch(action: u8, cookie: u64) -> OsdOp {
    let mut op = simple(OpCode::WATCH);
    op.set_watch(WatchArgs { cookie, op: action, ..WatchArgs::default() });
    op
}

fn fill(w: &mut World) {
    w.pool.flags |= pool_flags::FULL | pool_flags::FULL_QUOTA;
    w.next_map();
}

fn length(w: &mut World, name: &str) -> usize {
    w.op(name, vec![read(0, 0)]).ops[0].outdata.len()
}

/// Two objects with clones, of which one has a write that waits for the pool.
#[test]
fn a_write_to_a_full_pool_holds_up_no_trim_delete_read_ping_or_list() {
    let mut w = World::new();
    w.pool.snap_seq = 4;
    w.set_snaps(3, &[3]);
    w.snapc = Default::default();
    for name in ["x", "y", "z"] {
        w.op(name, vec![write(0, b"old")]);
    }
    w.op("x", vec![watch(WatchArgs::WATCH, 9)]);
    w.set_snaps(4, &[4]);
    for name in ["x", "y"] {
        assert_eq!(w.op(name, vec![write(0, b"new")]).result, 0);
    }
    assert_eq!(w.at_snap("x", SnapId(4), vec![read(0, 0)]).result, 0);
    fill(&mut w);
    let parked = ["x", "z"].map(|name| {
        let r = w.request(1, name, vec![append(b"more")]);
        w.send(r)
    });
    assert!(w.replies.is_empty());
    // The snapshot goes, and with it both clones.
    w.pool.removed_snaps.insert(4, 1);
    w.pool.snap_seq = 5;
    w.next_map();
    w.settle();
    w.advance(10_000);
    let objects = w.pg.info().stats.num_objects;
    assert_eq!((objects, w.pg.info().stats.num_object_clones), (3, 0), "the clones are trimmed");
    // The session's own ping, reads, and what has no more bytes than before.
    assert_eq!(w.op("x", vec![watch(WatchArgs::PING, 9)]).result, 0);
    assert_eq!(length(&mut w, "x"), 3);
    let mut r = w.request(2, "x", vec![write(0, b"NEW")]);
    r.msg.snapc = Default::default();
    assert_eq!(w.call(r).result, 0, "another client's overwrite");
    // The client itself frees the space.
    let mut r = w.request(1, "z", vec![simple(OpCode::DELETE)]);
    r.msg.flags |= msg_flags::FULL_TRY;
    assert_eq!(w.call(r).result, 0);
    assert_eq!(w.op("z", vec![simple(OpCode::STAT)]).result, ENOENT);
    assert_eq!(w.pg.dump_ops(w.now.mono).len(), 2);
    w.pool.flags = 0;
    w.next_map();
    for key in parked {
        assert_eq!(w.replies.remove(&key).unwrap().result, 0);
    }
    assert_eq!(w.op("x", vec![read(0, 0)]).ops[0].outdata, &b"NEWmore"[..]);
    assert_eq!(w.op("z", vec![read(0, 0)]).ops[0].outdata, &b"more"[..]);
}

#[test]
fn writes_of_a_session_to_an_object_keep_their_order_without_space() {
    for full in [true, false] {
        let mut w = if full { World::new() } else { World::with_store(MemStore::new()) };
        w.op("a", vec![write_full(&[7; 4096])]);
        if full {
            fill(&mut w);
        } else {
            // No room even for a refusal.
            w.store.set_no_room_for_logs(true);
        }
        let mut keys = Vec::new();
        for (session, op) in [
            (1, append(b"1")),
            (1, append(b"2")),
            (1, write(0, b"0")),
            (2, append(b"x")),
            (1, append(b"3")),
            (2, append(b"y")),
        ] {
            let r = w.request(session, "a", vec![op]);
            keys.push(w.send(r));
        }
        assert!(w.replies.is_empty(), "{full}");
        w.advance(3_000);
        assert!(w.replies.is_empty(), "{full}");
        w.order.clear();
        if full {
            w.pool.flags = 0;
            w.next_map();
        } else {
            w.store.set_no_room_for_logs(false);
            w.advance(3_000);
        }
        assert!(keys.iter().all(|k| w.replies.remove(k).is_some_and(|r| r.result == 0)), "{full}");
        for s in [1, 2] {
            let of = |all: &[(SessionId, u64)]| -> Vec<_> { all.iter().copied().filter(|k| k.0.0 == s).collect() };
            assert_eq!(of(&w.order), of(&keys), "{full}");
        }
        let all = w.op("a", vec![read(4096, 0)]).ops[0].outdata.clone();
        let of = |set: &[u8]| -> Vec<u8> { all.iter().copied().filter(|b| set.contains(b)).collect() };
        assert_eq!((of(b"123"), of(b"xy")), (b"123".to_vec(), b"xy".to_vec()), "{full}");
    }
}

/// PAUSERD and PAUSEWR hold one kind of operation only.
#[test]
fn a_write_does_not_overtake_a_read_that_is_paused() {
    let mut w = World::new();
    w.op("a", vec![write_full(b"before")]);
    w.view.flags = map_flags::PAUSERD;
    w.next_map();
    let r = w.request(1, "a", vec![read(0, 0)]);
    let early = w.send(r);
    let r = w.request(1, "a", vec![write_full(b"after")]);
    let late = w.send(r);
    assert_eq!(w.op("b", vec![write_full(b"other object")]).result, 0);
    let r = w.request(2, "a", vec![setxattr("k", b"other client")]);
    assert_eq!(w.call(r).result, 0);
    assert!(w.replies.is_empty());
    // Another map with the flag changes nothing.
    w.next_map();
    assert!(w.replies.is_empty());
    w.view.flags = 0;
    w.next_map();
    assert_eq!(w.replies.remove(&early).unwrap().ops[0].outdata, &b"before"[..]);
    assert_eq!(w.replies.remove(&late).unwrap().result, 0);
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &b"after"[..]);
}

/// Operations that wait for anything, from sessions that come and go. Nothing of them is kept, and nothing happens
/// when the wait is over.
#[test]
fn operations_of_ended_sessions_are_dropped_with_their_payloads() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.op("a", vec![write_full(b"here")]);
    fill(&mut w);
    let payload = |n: u64| Bytes::from(vec![n as u8; 1 << 20]);
    let mut sent = Vec::new();
    for session in 10..60 {
        let data = payload(session);
        // For space; then for another one's lock, in the same session and in another one; for a source to copy.
        for name in ["a", "a", "new"] {
            let op = OsdOp::with_extent(OpCode::APPEND, 0, data.len() as u64, data.clone());
            let r = w.request(session, name, vec![op]);
            w.send(r);
        }
        sent.push((session, data));
    }
    assert!(w.replies.is_empty());
    assert_eq!(w.pg.dump_ops(w.now.mono).len(), 150);
    for (session, data) in &sent {
        assert!(w.pg.knows_session(SessionId(*session)));
        w.handle(Event::SessionClosed(SessionId(*session)));
        assert!(!w.pg.knows_session(SessionId(*session)));
        assert!(data.is_unique(), "the payload is kept");
    }
    assert_eq!(w.pg.dump_ops(w.now.mono).len(), 0);
    w.pool.flags = 0;
    w.next_map();
    w.settle();
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &b"here"[..]);
    assert_eq!(w.op("new", vec![simple(OpCode::STAT)]).result, ENOENT);
}

/// A ping that waited for the object's lock while its watch ran out saves the watch.
#[test]
fn a_ping_that_was_queued_in_time_keeps_its_watch() {
    let mut w = World::new();
    w.op("a", vec![write_full(b"x")]);
    let mut op = watch(WatchArgs::WATCH, 9);
    op.set_watch(WatchArgs { timeout: 10, ..op.watch() });
    assert_eq!(w.op("a", vec![op]).result, 0);
    w.advance(9_000);
    // The lock is held by a copy.
    let source = (Bytes::from_static(b"b"), wire::types::ObjectLocator::new(base::PoolId(POOL)));
    let r = w.request(2, "a", vec![encoded(OpCode::COPY_FROM, &source)]);
    w.send(r);
    let fetch = w.fetches.pop().unwrap();
    let r = w.request(1, "a", vec![watch(WatchArgs::PING, 9)]);
    let ping = w.send(r);
    w.advance(5_000);
    assert!(!w.replies.contains_key(&ping));
    w.handle(Event::Fetched(fetch.id, Err(ENOENT)));
    assert_eq!(w.replies.remove(&ping).unwrap().result, 0);
    w.advance(5_000);
    assert!(w.watch.is_empty(), "disconnected");
    assert_eq!(w.op("a", vec![watch(WatchArgs::PING, 9)]).result, 0);
    w.advance(20_000);
    assert_eq!(w.watch.len(), 1, "now it is over");
}

/// Notifies whose effects wait for durability have ids of their own.
#[test]
fn notifies_planned_before_others_take_effect_have_other_ids() {
    let mut w = World::with_store(MemStore::new().hold_durable());
    w.op("a", vec![write_full(b"x")]);
    w.op("a", vec![watch(WatchArgs::WATCH, 9)]);
    w.manual = true;
    let payload = wire::types::NotifyArgs { prot_ver: 1, timeout_seconds: 5, payload: Bytes::new() };
    let keys: Vec<_> = (0..3)
        .map(|_| {
            let r = w.request(2, "a", vec![append(b"y"), encoded(OpCode::NOTIFY, &payload)]);
            w.send(r)
        })
        .collect();
    w.manual = false;
    w.settle();
    assert!(keys.iter().all(|k| w.replies.remove(k).unwrap().result == 0));
    let told: std::collections::BTreeSet<u64> = w.watch.iter().map(|(_, m, _)| m.notify_id).collect();
    assert_eq!((w.watch.len(), told.len()), (3, 3));
}
