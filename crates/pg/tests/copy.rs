//! Does copy_from copy everything, in chunks, of one version, without deadlock?
mod common;

use base::errno::*;
use base::{PoolId, SnapId};
use bytes::Bytes;
use common::*;
use pg::limits::{COPY_BYTES_MAX, COPY_STALL, COPY_UNKNOWN};
use pg::{Event, Fetched, SessionId};
use std::collections::BTreeMap;
use wire::msg::osd_op::CopyFromArgs;
use wire::msg::{MOsdOpReply, OpCode, OpVec, OsdOp};
use wire::types::ObjectLocator;

fn copy_from(src: &str, snap: SnapId, version: u64) -> OsdOp {
    let mut w = wire::Writer::new(wire::Features::PACIFIC);
    w.blob(src.as_bytes());
    w.put(&ObjectLocator::new(PoolId(POOL)));
    let mut op = OsdOp::with_indata(OpCode::COPY_FROM, w.into_bytes());
    op.set_copy_from(CopyFromArgs { snapid: snap, src_version: version, flags: 0, src_fadvise_flags: 0 });
    op
}

/// Answers fetches from the same PG, as a host's client would; returns their number.
fn serve(w: &mut World) -> usize {
    serve_some(w, usize::MAX)
}

/// As [`serve`], at most that many.
fn serve_some(w: &mut World, most: usize) -> usize {
    let mut n = 0;
    while !w.fetches.is_empty() && n < most {
        let f = w.fetches.remove(0);
        n += 1;
        let name = String::from_utf8(f.oid.to_vec()).unwrap();
        let mut r = w.request(90, &name, f.ops.to_vec());
        r.msg.snapid = f.snapid;
        r.msg.flags = f.flags;
        let reply = w.call(r);
        let result = if reply.result < 0 {
            Err(reply.result)
        } else {
            Ok(Fetched { data: reply.ops.last().unwrap().outdata.clone(), user_version: reply.user_version })
        };
        w.handle(Event::Fetched(f.id, result));
    }
    n
}

fn copied(w: &mut World, dst: &str, op: OsdOp) -> (MOsdOpReply, usize) {
    let r = w.request(1, dst, vec![op]);
    let key = w.send(r);
    let n = serve(w);
    (w.replies.remove(&key).unwrap(), n)
}

#[test]
fn everything_is_copied() {
    let mut w = World::new();
    let big = vec![9u8; (8 << 20) + 5000];
    let keys: Vec<String> = (0..2500).map(|i| format!("k{i:05}")).collect();
    let kv: Vec<(&str, &[u8])> = keys.iter().map(|k| (k.as_str(), k.as_bytes())).collect();
    let v = w
        .op(
            "src",
            vec![
                write(0, &big),
                setxattr("x", b"1"),
                omap_set(&kv),
                OsdOp::with_indata(OpCode::OMAPSETHEADER, bytes(b"h")),
            ],
        )
        .user_version;
    for _ in 0..3 {
        w.op("dst", vec![write(0, b"what was here"), setxattr("old", b"gone"), omap_set(&[("old", b"gone")])]);
    }
    let (r, chunks) = copied(&mut w, "dst", copy_from("src", SnapId::HEAD, v));
    assert_eq!((r.result, r.user_version), (0, v), "the source's version");
    assert!(chunks >= 4, "{chunks}");
    let r = w.op("dst", vec![read(0, 0), simple(OpCode::GETXATTRS), simple(OpCode::OMAPGETHEADER)]);
    assert!(r.ops[0].outdata == big);
    let attrs: BTreeMap<Bytes, Bytes> = decode(&r.ops[1].outdata);
    assert_eq!(attrs, BTreeMap::from([(bytes(b"x"), bytes(b"1"))]));
    assert_eq!(r.ops[2].outdata, &b"h"[..]);
    assert_eq!(r.user_version, v);
    let mut after = String::new();
    let mut n = 0;
    loop {
        let (m, more): (BTreeMap<Bytes, Bytes>, bool) =
            decode(&w.op("dst", vec![omap_vals(&after, 1024, "")]).ops[0].outdata);
        n += m.len();
        if !more {
            break;
        }
        after = String::from_utf8(m.keys().last().unwrap().to_vec()).unwrap();
    }
    assert_eq!(n, 2500);
    let s = w.pg.info().stats;
    assert_eq!((s.num_objects, s.num_bytes, s.num_objects_omap), (2, 2 * big.len() as i64, 2));
}

#[test]
fn wrong_sources() {
    let mut w = World::new();
    w.op("src", vec![write(0, b"x")]);
    let (r, _) = copied(&mut w, "dst", copy_from("none", SnapId::HEAD, 0));
    assert_eq!(r.result, ENOENT);
    let (r, _) = copied(&mut w, "src", copy_from("src", SnapId::HEAD, 0));
    assert_eq!(r.result, EINVAL);
    let (r, _) = copied(&mut w, "dst", copy_from("src", SnapId::HEAD, 999));
    assert_eq!(r.result, EOVERFLOW);
    w.op("other", vec![write(0, b"y")]);
    let two = vec![copy_from("src", SnapId::HEAD, 0), copy_from("other", SnapId::HEAD, 0)];
    assert_eq!(w.op("dst", two).result, EINVAL, "two sources");
    let bad = OsdOp::with_indata(OpCode::COPY_FROM, Bytes::from_static(b"zz"));
    assert_eq!(w.op("dst", vec![bad]).result, EINVAL);
    let mut flags = copy_from("src", SnapId::HEAD, 0);
    flags.op = OpCode::COPY_FROM2;
    flags.set_copy_from(CopyFromArgs { flags: 0x40, ..flags.copy_from() });
    assert_eq!(w.op("dst", vec![flags]).result, EINVAL);
    assert_eq!(w.op("dst", vec![simple(OpCode::STAT)]).result, ENOENT, "nothing was made");
}

#[test]
fn objects_copy_from_their_own_snapshot_and_from_each_other() {
    let mut w = World::new();
    w.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    w.next_map();
    w.op("a", vec![write(0, b"old")]);
    w.op("b", vec![write(0, b"bbb")]);
    w.set_snaps(4, &[4]);
    w.op("a", vec![write(0, b"new")]);
    let (r, _) = copied(&mut w, "a", copy_from("a", SnapId(4), 0));
    assert_eq!(r.result, 0);
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &b"old"[..]);
    // Each object copies from the other at the same time.
    let r = w.request(1, "a", vec![copy_from("b", SnapId::HEAD, 0)]);
    let one = w.send(r);
    let r = w.request(2, "b", vec![copy_from("a", SnapId::HEAD, 0)]);
    let two = w.send(r);
    let r = w.request(3, "a", vec![read(0, 0)]);
    let behind = w.send(r);
    assert!(w.replies.is_empty());
    serve(&mut w);
    assert_eq!((w.replies[&one].result, w.replies[&two].result), (0, 0));
    assert_eq!(w.replies[&behind].ops[0].outdata, &b"bbb"[..]);
}

#[test]
fn a_new_interval_cancels_a_copy_and_later_operations_follow_it() {
    let mut w = World::new();
    w.op("src", vec![write(0, b"data"), setxattr("k", b"v")]);
    let ops =
        vec![copy_from("src", SnapId::HEAD, 0), OsdOp::with_xattr(OpCode::CMPXATTR, b"old", b"1", 1, 1), append(b"!")];
    w.op("dst", vec![setxattr("old", b"1")]);
    let r = w.request(1, "dst", ops);
    let key = w.send(r);
    serve(&mut w);
    assert_eq!(w.replies[&key].result, 0);
    assert_eq!(w.op("dst", vec![read(0, 0)]).ops[0].outdata, &b"data!"[..]);

    let r = w.request(1, "dst2", vec![copy_from("src", SnapId::HEAD, 0)]);
    w.send(r);
    let f = w.fetches.pop().unwrap();
    w.pool.size = 2;
    w.view.epoch = w.view.epoch.next();
    w.view.pool = Some(std::rc::Rc::new(w.pool.clone()));
    let mut out = Vec::new();
    w.pg.handle(Event::Map(w.view.clone()), w.now, &mut w.store, &mut out);
    assert!(out.contains(&pg::Effect::CancelFetch(f.id)), "{out:?}");
    let late = Fetched { data: Bytes::new(), user_version: 1 };
    w.handle(Event::Fetched(f.id, Ok(late)));
}

/// Seed 460 of the simulator: a resend copied the source after the client had been told that the source did not
/// exist.
#[test]
fn a_failed_copy_fails_for_its_resend_too() {
    let mut w = World::new();
    let first = w.request(1, "dst", vec![copy_from("src", SnapId::HEAD, 0)]);
    let mut again = w.request(1, "dst", vec![copy_from("src", SnapId::HEAD, 0)]);
    (again.msg.tid, again.session) = (first.msg.tid, SessionId(2));
    let key = w.send(first);
    w.send(again);
    let f = w.fetches.remove(0);
    w.handle(Event::Fetched(f.id, Err(ENOENT)));
    assert_eq!(w.replies.remove(&key).unwrap().result, ENOENT);
    w.op("src", vec![write(0, b"made since")]);
    assert_eq!(serve(&mut w), 0, "nothing is read once more");
    assert_eq!(w.op("dst", vec![read(0, 0)]).result, ENOENT);
}

/// Copies hold a bounded number of bytes. The others wait, with nothing held, until one has ended or stalls.
#[test]
fn copies_beyond_their_room_wait() {
    let mut w = World::new();
    w.op("src", vec![write(0, b"data")]);
    let room = COPY_BYTES_MAX / COPY_UNKNOWN;
    let begin = |w: &mut World, i: usize, src: &str| {
        let r = w.request(1, &format!("dst{i}"), vec![copy_from(src, SnapId::HEAD, 0)]);
        w.send(r)
    };
    let all: Vec<_> = (0..room + 2).map(|i| begin(&mut w, i, "src")).collect();
    assert_eq!((w.fetches.len(), w.pacer.long.copies.bytes()), (room, COPY_BYTES_MAX));
    // A client whose copy waits is not in the way of others.
    let r = w.request(2, &format!("dst{room}"), vec![write(0, b"of another")]);
    assert_eq!(w.call(r).result, 0);
    // One ends: the next begins.
    let last = w.fetches.split_off(1);
    assert_eq!(serve_some(&mut w, 1), 1);
    assert_eq!(w.fetches.len(), 1);
    // No source answers for half a minute: those that wait have their turn, and late answers change nothing.
    let stalled: Vec<_> = last.into_iter().chain(std::mem::take(&mut w.fetches)).collect();
    w.now.mono = w.now.mono + COPY_STALL;
    w.handle(Event::Tick);
    w.settle();
    assert_eq!(w.fetches.len(), room);
    for f in stalled {
        assert!(w.fetches.iter().all(|g| g.id != f.id));
        w.handle(Event::Fetched(f.id, Err(ENOENT)));
    }
    serve(&mut w);
    assert!(all.iter().all(|key| w.replies.remove(key).unwrap().result == 0));
    for i in 0..room + 2 {
        assert_eq!(w.op(&format!("dst{i}"), vec![read(0, 0)]).ops[0].outdata, &b"data"[..]);
    }
    assert_eq!(w.pacer.long.copies.bytes(), 0);
}

/// How large a source is shows its first chunk: a copy for which there is no room then begins anew later.
#[test]
fn a_copy_that_grows_waits_for_room() {
    const LARGE: u64 = 100 << 20;
    let mut w = World::new();
    w.op("src", vec![write(0, b"data")]);
    w.op("large", vec![write(0, b"x"), OsdOp::with_extent(OpCode::TRUNCATE, LARGE, 0, Bytes::new())]);
    let copy = |w: &mut World, dst: &str, src: &str| {
        let r = w.request(1, dst, vec![copy_from(src, SnapId::HEAD, 0)]);
        w.send(r)
    };
    // These four have half of the room, as their source does not answer.
    let idle: Vec<_> = (0..4).map(|i| copy(&mut w, &format!("idle{i}"), "src")).collect();
    let asked = std::mem::take(&mut w.fetches);
    let large: Vec<_> = (0..3).map(|i| copy(&mut w, &format!("large{i}"), "large")).collect();
    assert_eq!(w.fetches.len(), 3);
    while serve_some(&mut w, 1) > 0 {
        assert!(w.pacer.long.copies.bytes() <= COPY_BYTES_MAX);
    }
    w.fetches = asked;
    serve(&mut w);
    assert!(large.iter().chain(&idle).all(|key| w.replies.remove(key).unwrap().result == 0));
    for i in 0..3 {
        let r = w.op(&format!("large{i}"), vec![OsdOp::new(OpCode::STAT)]);
        assert_eq!(r.ops[0].outdata[..8], LARGE.to_le_bytes());
    }
}

#[test]
fn hostile_chunks_fail_the_copy() {
    for data in [Bytes::new(), Bytes::from_static(&[1, 1, 255, 255, 255, 255]), OpVec::new().len().to_string().into()] {
        let mut w = World::new();
        let r = w.request(1, "dst", vec![copy_from("src", SnapId::HEAD, 0)]);
        let key = w.send(r);
        let f = w.fetches.pop().unwrap();
        w.handle(Event::Fetched(f.id, Ok(Fetched { data, user_version: 0 })));
        assert_eq!(w.replies[&key].result, EIO);
        assert_eq!(key.0, SessionId(1));
    }
}
