//! Vectors of up to 65,535 operations: their results, their work in each turn, and their bounds.
mod common;

use base::errno::{ECANCELED, EFBIG, EINVAL, EMSGSIZE, EOVERFLOW};
use base::sizes::{OBJECT_ATTRS_MAX, VALUE_MAX, VECTOR_ENTRIES_MAX, VECTOR_OPS_MAX, VECTOR_PAYLOAD_MAX};
use bytes::Bytes;
use common::*;
use pg::pace::Pacer;
use pg::{Event, SessionId};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::mem::MemStore;
use wire::msg::osd_op::WriteSameArgs;
use wire::msg::{MOsdOpReply, OpCode, OsdOp, msg_flags, op_flags};

struct Reactor {
    w: World,
    pacer: Rc<Pacer>,
}

impl Reactor {
    fn with(mut w: World) -> Self {
        let pacer = Rc::<Pacer>::default();
        w.pg.use_pacer(Rc::clone(&pacer));
        Self { w, pacer }
    }

    /// Runs parts until the request is answered; returns the answer and the number of parts.
    fn call(&mut self, session: u64, name: &str, ops: Vec<OsdOp>) -> (MOsdOpReply, usize) {
        let r = self.w.request(session, name, ops);
        let key = self.w.send(r);
        let mut parts = 1;
        loop {
            self.w.settle();
            if let Some(r) = self.w.replies.remove(&key) {
                return (r, parts);
            }
            let (_, plan) = self.pacer.long.take().expect("the request waits for its next part");
            self.w.handle(Event::Part(plan));
            parts += 1;
        }
    }
}

fn key(n: usize) -> Bytes {
    format!("key{n:06}").into()
}

fn keys_of(n: usize) -> OsdOp {
    let all: BTreeMap<Bytes, Bytes> = (0..n).map(|i| (key(i), Bytes::from(format!("value{i}")))).collect();
    encoded(OpCode::OMAPSETVALS, &all)
}

fn by_keys(keys: &[Bytes]) -> OsdOp {
    encoded(OpCode::OMAPGETVALSBYKEYS, &keys.to_vec())
}

fn writesame(off: u64, len: u64) -> OsdOp {
    let mut o = OsdOp::with_indata(OpCode::WRITESAME, Bytes::from_static(b"s"));
    o.set_writesame(WriteSameArgs { offset: off, length: len, data_length: 1 });
    o
}

/// Four operations for each of 16,383 snapshots, as librbd reads the header of an image, and one more. The store
/// makes some of them wait. All results are there, in order, and no part has more than a turn's work.
#[test]
fn a_vector_of_65535_reads_has_all_results() {
    let mut r = Reactor::with(World::with_store(MemStore::new().with_waits(5)));
    r.call(1, "a", vec![keys_of(5000), setxattr("k", b"v"), write(0, b"content")]);
    let before = r.w.pg.counters().replans;
    let ops: Vec<OsdOp> = (0..VECTOR_OPS_MAX)
        .map(|i| match i % 4 {
            0 => by_keys(&[key(i % 5000)]),
            1 => xattr(OpCode::GETXATTR, "k"),
            2 => read(i as u64 % 7, 1),
            _ => with_flags(xattr(OpCode::GETXATTR, "none"), op_flags::FAILOK),
        })
        .collect();
    let (reply, parts) = r.call(1, "a", ops);
    assert_eq!((reply.result, reply.ops.len()), (0, VECTOR_OPS_MAX));
    for (i, op) in reply.ops.iter().enumerate() {
        match i % 4 {
            0 => {
                let found: BTreeMap<Bytes, Bytes> = decode(&op.outdata);
                let want = BTreeMap::from([(key(i % 5000), Bytes::from(format!("value{}", i % 5000)))]);
                assert_eq!(found, want, "{i}");
            }
            1 => assert_eq!(op.outdata, &b"v"[..]),
            2 => assert_eq!(op.outdata[..], b"content"[i % 7..=i % 7]),
            _ => assert_eq!(op.rval, base::errno::ENODATA),
        }
    }
    let waits = r.w.pg.counters().replans - before;
    assert!(parts >= 3 && waits >= 10, "{parts} parts, {waits} waits");
    assert!(r.w.pg.dump_ops(r.w.now.mono).is_empty() && !r.pacer.long.is_due());
}

/// Reads, class calls and writes of all kinds in one vector, in one go and with waits and parts: the same object.
#[test]
fn a_vector_in_parts_changes_the_same_as_in_one_go() {
    let mut all = Vec::new();
    for waits in [None, Some(1), Some(2)] {
        let store = MemStore::new();
        let mut r = Reactor::with(World::with_store(match waits {
            None => store.without_waits(),
            Some(seed) => store.with_waits(seed),
        }));
        r.w.set_snaps(1, &[1]);
        r.call(1, "a", vec![keys_of(3000), write(0, &[1; 10_000])]);
        r.w.set_snaps(2, &[2, 1]);
        let mut ops = vec![];
        for i in 0..6000usize {
            ops.push(match i % 8 {
                0 => write((i % 900) as u64 * 10, format!("{i}").as_bytes()),
                1 => setxattr(&format!("x{}", i % 300), format!("{i}").as_bytes()),
                2 => by_keys(&(0..20).map(|n| key(i + n)).collect::<Vec<_>>()),
                3 => omap_set(&[(&format!("new{i}"), b"value")]),
                4 => OsdOp::call("version", "inc", &version_inc()),
                5 => encoded(OpCode::OMAPRMKEYS, &vec![key(i)]),
                6 => zero((i % 900) as u64 * 10, 3),
                _ => read(0, 100),
            });
        }
        let (reply, _) = r.call(1, "a", ops);
        assert_eq!(reply.result, 0, "{:?}", reply.ops.iter().position(|o| o.rval < 0));
        let read = vec![read(0, 0), xattr(OpCode::GETXATTRS, ""), simple(OpCode::STAT), omap_vals("", 9999, "new")];
        let (state, _) = r.call(1, "a", read);
        let stats = r.w.pg.info().stats;
        all.push((state.ops.iter().map(|o| o.outdata.clone()).collect::<Vec<_>>(), state.user_version, stats));
    }
    assert!(all[0] == all[1] && all[0] == all[2]);
}

fn version_inc() -> Bytes {
    let mut w = wire::Writer::new(wire::Features::PACIFIC);
    w.versioned(1, 1, |w| {
        w.versioned(1, 1, |w| {
            w.u64(0);
            w.blob(b"");
        });
        w.u32(0);
    });
    w.into_bytes()
}

/// Many keys in one operation: in parts, and others go on between them.
#[test]
fn look_ups_of_many_keys_run_in_parts() {
    let mut r = Reactor::with(World::new());
    r.call(1, "a", vec![keys_of(60_000)]);
    let all: Vec<Bytes> = (0..120_000).rev().map(key).collect();
    let (reply, parts) = r.call(1, "a", vec![by_keys(&all)]);
    let found: BTreeMap<Bytes, Bytes> = decode(&reply.ops[0].outdata);
    assert_eq!((reply.result, found.len()), (0, 60_000));
    assert!(parts >= 7, "{parts}");
    let want: BTreeMap<Bytes, (Bytes, i32)> =
        (0..60_000).map(|i| (key(i), (Bytes::from(format!("value{i}")), 1))).collect();
    let (reply, parts) = r.call(1, "a", vec![encoded(OpCode::OMAP_CMP, &want), setxattr("k", b"v")]);
    assert!(reply.result == 0 && parts >= 3, "{} {parts}", reply.result);
    let mut wrong = want;
    wrong.insert(key(59_999), (Bytes::new(), 1));
    let (reply, _) = r.call(1, "a", vec![encoded(OpCode::OMAP_CMP, &wrong), setxattr("k", b"v")]);
    assert_eq!(reply.result, ECANCELED);
    // Another object is served between two parts, and the client may go.
    let req = r.w.request(1, "a", vec![by_keys(&all)]);
    r.w.send(req);
    assert_eq!(r.w.op("b", vec![write_full(b"other")]).result, 0);
    r.w.handle(Event::SessionClosed(SessionId(1)));
    assert!(r.w.pg.dump_ops(r.w.now.mono).is_empty() && !r.pacer.long.is_due());
}

/// Vectors beyond a bound are refused as a whole, with nothing changed.
#[test]
fn vectors_beyond_the_sizes_are_refused() {
    let mut r = Reactor::with(World::new());
    let mut check = |name: &str, ops: Vec<OsdOp>, want: i32| {
        let (reply, _) = r.call(1, name, ops);
        assert_eq!(reply.result, want, "{name}");
        let (stat, _) = r.call(1, name, vec![simple(OpCode::STAT)]);
        assert_eq!(stat.result < 0, want < 0, "{name}");
    };
    let max = VECTOR_PAYLOAD_MAX as u64;
    check("same", vec![writesame(0, max)], 0);
    check("twice", vec![writesame(0, max), writesame(0, 1)], EMSGSIZE);
    check("thousands", (0..1000).map(|_| with_flags(writesame(0, max / 2), op_flags::FAILOK)).collect(), 0);
    let value = vec![7; VALUE_MAX];
    check("attr", vec![setxattr("a", &value)], 0);
    check("attr+", vec![setxattr("a", &[&value[..], b"x"].concat())], EFBIG);
    check("metadata and data", vec![setxattr("a", &value), writesame(0, max / 2)], 0);
    check("metadata and more data", vec![setxattr("a", &value), writesame(0, max / 2 + (2 << 20))], EMSGSIZE);
    check("header", vec![OsdOp::with_indata(OpCode::OMAPSETHEADER, vec![7; VALUE_MAX + 1].into())], EFBIG);
    let many = |n: usize| -> Bytes { [&(n as u32).to_le_bytes()[..], &vec![0; 8 * n]].concat().into() };
    check("keys", vec![OsdOp::with_indata(OpCode::OMAPSETVALS, many(VECTOR_ENTRIES_MAX))], 0);
    check("keys+", vec![OsdOp::with_indata(OpCode::OMAPSETVALS, many(VECTOR_ENTRIES_MAX + 1))], EMSGSIZE);
    check(
        "more keys",
        vec![OsdOp::with_indata(OpCode::OMAPSETVALS, many(VECTOR_ENTRIES_MAX)), omap_set(&[("k", b"")])],
        EMSGSIZE,
    );
    check("watches", vec![simple(OpCode::CREATE); 1], 0);
    let mut all = vec![write(0, b"x"); VECTOR_OPS_MAX];
    check("operations", all.clone(), 0);
    all.push(write(0, b"x"));
    check("operations+", all, EINVAL);
}

/// The attributes of an object have a bound together, whichever vectors set them; replaced and removed ones leave.
#[test]
fn all_attributes_of_an_object_have_a_bound() {
    let mut r = Reactor::with(World::new());
    let value = vec![7; 20 << 20];
    let mut set = |ops: Vec<OsdOp>| r.call(1, "a", ops).0.result;
    for n in 0..3 {
        assert_eq!(set(vec![setxattr(&format!("x{n}"), &value)]), 0);
    }
    const { assert!(3 * (20 << 20) < OBJECT_ATTRS_MAX && OBJECT_ATTRS_MAX <= 4 * (20 << 20)) };
    assert_eq!(set(vec![setxattr("x3", &value)]), EFBIG);
    assert_eq!(set(vec![setxattr("x2", &value)]), 0, "the same again");
    assert_eq!(set(vec![xattr(OpCode::RMXATTR, "x2"), setxattr("x3", &value)]), 0);
    assert_eq!(
        set(vec![simple(OpCode::DELETE), simple(OpCode::CREATE), setxattr("y", &value), setxattr("z", &value)]),
        0
    );
}

/// A log record keeps a bounded part of a vector's results.
#[test]
fn results_in_log_records_are_bounded() {
    let mut r = Reactor::with(World::new());
    r.call(1, "a", vec![setxattr("k", &[7; 64]), write(0, &[7; 4 << 20])]);
    let mut call = |ops: Vec<OsdOp>| {
        let mut req = r.w.request(1, "a", ops);
        req.msg.flags |= msg_flags::RETURNVEC;
        let again = req.clone();
        let first = r.w.call(req);
        let second = r.w.call(again);
        assert_eq!(first.result, second.result);
        (first.result, first.ops[0].outdata.len(), second.ops[0].outdata.len())
    };
    let get = |n: usize| vec![xattr(OpCode::GETXATTR, "k"); n];
    assert_eq!(call([get(500), vec![append(b"x")]].concat()), (0, 64, 64));
    assert_eq!(call([get(5000), vec![append(b"x")]].concat()).0, EOVERFLOW);
    // A refusal answers everything, and keeps what is small.
    let refused = || with_flags(simple(OpCode::CREATE), op_flags::EXCL);
    assert_eq!(call(vec![read(0, 100), refused()]), (base::errno::EEXIST, 100, 100));
    assert_eq!(call(vec![read(0, 0), refused()]), (base::errno::EEXIST, (4 << 20) + 1, 0));
}
