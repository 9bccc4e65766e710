//! Does each operation give the answer that Ceph's clients and tests expect?
mod common;

use base::SnapId;
use base::errno::*;
use bytes::Bytes;
use common::*;
use std::collections::BTreeMap;
use wire::Encode;
use wire::msg::{OpCode, OsdOp, msg_flags, op_flags};
use wire::types::{ListSnapsReply, PgNlsReply};

fn vals(b: &Bytes) -> (BTreeMap<Bytes, Bytes>, bool) {
    decode(b)
}

#[test]
fn reads_and_writes() {
    let mut w = World::new();
    assert_eq!(w.op("a", vec![read(0, 10)]).result, ENOENT);
    let r = w.op("a", vec![write(2, b"hello")]);
    assert_eq!((r.result, r.user_version), (0, 1));
    assert_eq!(r.replay_version.version, 1);
    let r = w.op("a", vec![read(0, 100)]);
    assert_eq!((r.result, &r.ops[0].outdata[..], r.user_version), (0, &b"\0\0hello"[..], 1));
    assert_eq!(r.ops[0].extent().length, 7);
    assert_eq!(w.op("a", vec![read(3, 0)]).ops[0].outdata, &b"ello"[..], "length 0 reads to the end");
    assert_eq!(w.op("a", vec![read(9, 5)]).result, 0);
    assert_eq!(w.op("a", vec![append(b"!!")]).result, 0);
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &b"\0\0hello!!"[..]);
    assert_eq!(w.op("a", vec![write_full(b"xy")]).user_version, 3);
    let r = w.op("a", vec![simple(OpCode::STAT), read(0, 0)]);
    assert_eq!((r.result, r.ops[0].rval, r.ops[1].rval), (0, 0, 0));
    let (size, _): (u64, base::Utime) = decode(&r.ops[0].outdata);
    assert_eq!(size, 2);
    let mut wrong = write(0, b"abc");
    wrong.indata = Bytes::from_static(b"ab");
    assert_eq!(w.op("a", vec![wrong]).result, EINVAL);
    assert_eq!(w.op("a", vec![write(128 << 20, b"x")]).result, EFBIG);
    assert_eq!(w.op("a", vec![write((128 << 20) - 1, b"xy")]).result, EFBIG);
    assert_eq!(w.op("a", vec![write(u64::MAX - 1, b"xyz")]).result, EFBIG);
    assert_eq!(w.op("b", vec![write(5, b"")]).result, 0);
    assert_eq!(w.op("b", vec![read(0, 0)]).ops[0].outdata.len(), 5, "an empty write past the end extends");
    assert_eq!(w.op("c", vec![truncate(5)]).result, 0);
    assert_eq!(w.op("c", vec![simple(OpCode::STAT)]).result, ENOENT, "truncating nothing makes nothing");
    assert_eq!(w.op("c", vec![zero(0, 5)]).result, 0);
    assert_eq!(w.op("b", vec![truncate(8)]).result, 0);
    assert_eq!(w.op("b", vec![write(0, b"12345678"), zero(2, 3)]).result, 0);
    assert_eq!(w.op("b", vec![read(0, 0)]).ops[0].outdata, &b"12\0\0\x00678"[..]);
    assert_eq!(w.op("b", vec![zero(6, 100)]).result, 0);
    assert_eq!(w.op("b", vec![read(0, 0)]).ops[0].outdata.len(), 6, "zero to the end cuts");
    let mut same = OsdOp::with_indata(OpCode::WRITESAME, Bytes::from_static(b"ab"));
    same.set_writesame(wire::msg::osd_op::WriteSameArgs { offset: 1, length: 5, data_length: 2 });
    assert_eq!(w.op("b", vec![same.clone()]).result, EINVAL);
    same.set_writesame(wire::msg::osd_op::WriteSameArgs { offset: 1, length: 6, data_length: 2 });
    assert_eq!(w.op("b", vec![same]).result, 0);
    assert_eq!(w.op("b", vec![read(0, 0)]).ops[0].outdata, &b"1ababab"[..]);
}

#[test]
fn vectors_are_atomic() {
    let mut w = World::new();
    let r = w.op("a", vec![write(0, b"abc"), OsdOp::with_xattr(OpCode::CMPXATTR, b"k", b"v", 1, 1)]);
    assert_eq!((r.result, r.ops[0].rval, r.ops[1].rval), (ENOENT, 0, ENOENT));
    assert_eq!(w.op("a", vec![simple(OpCode::STAT)]).result, ENOENT, "nothing of it happened");
    w.op("a", vec![simple(OpCode::CREATE)]);
    let r = w.op(
        "a",
        vec![
            write(0, b"abc"),
            setxattr("k", b"v"),
            OsdOp::with_xattr(OpCode::CMPXATTR, b"k", b"", 1, 1),
            omap_set(&[("x", b"1"), ("y", b"2")]),
            encoded(OpCode::OMAPRMKEYS, &vec![Bytes::from_static(b"x")]),
            OsdOp::with_extent(OpCode::CMPEXT, 0, 4, Bytes::from_static(b"\0\0\0\0")),
            append(b"def"),
        ],
    );
    assert_eq!(r.result, 0);
    assert!(r.ops.iter().all(|o| o.rval >= 0 && o.outdata.is_empty()));
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &b"abcdef"[..]);
    let (m, more) = vals(&w.op("a", vec![omap_vals("", 10, "")]).ops[0].outdata);
    assert_eq!((m.len(), more), (1, false));
    // A failure with FAILOK.
    let r = w.op(
        "a",
        vec![
            with_flags(OsdOp::with_extent(OpCode::CMPEXT, 1, 3, Bytes::from_static(b"bXX")), op_flags::FAILOK),
            append(b"!"),
        ],
    );
    assert_eq!((r.result, r.ops[0].rval), (0, -4096));
    assert_eq!(w.op("a", vec![read(6, 0)]).ops[0].outdata, &b"!"[..]);
    // In a read, the mismatch is the operation's result.
    let r = w.op("a", vec![OsdOp::with_extent(OpCode::CMPEXT, 0, 2, Bytes::from_static(b"ab"))]);
    assert_eq!(r.result, 0);
    let r = w.op("a", vec![OsdOp::with_extent(OpCode::CMPEXT, 0, 3, Bytes::from_static(b"abX"))]);
    assert_eq!(r.result, -4097);
}

fn cmpx(k: &str, v: &[u8]) -> OsdOp {
    OsdOp::with_xattr(OpCode::CMPXATTR, k.as_bytes(), v, 1, 1)
}

fn cmpext(off: u64, v: &'static [u8]) -> OsdOp {
    OsdOp::with_extent(OpCode::CMPEXT, off, v.len() as u64, Bytes::from_static(v))
}

fn omap_is(k: &str, v: &[u8]) -> OsdOp {
    encoded(OpCode::OMAP_CMP, &BTreeMap::from([(k.to_owned(), (Bytes::copy_from_slice(v), 1i32))]))
}

fn set_version(n: u8) -> OsdOp {
    OsdOp::call("version", "set", &version_op(n))
}

fn version_is(n: u8) -> OsdOp {
    // The version as object, and one condition: equality.
    let v = version(n);
    let mut cond = v.clone();
    cond.extend(1u32.to_le_bytes());
    let mut body = v;
    body.extend(1u32.to_le_bytes());
    body.extend(versioned(&cond));
    OsdOp::call("version", "check_conds", &versioned(&body))
}

/// Effects of earlier operations that later ones of a vector see: existence and size. Data, attributes and omap are
/// as before the vector. Ceph 16.2 gives the same results in every case.
#[test]
fn a_vector_reads_the_state_before_it() {
    let new = || simple(OpCode::CREATE);
    let del = || simple(OpCode::DELETE);
    let clear = || simple(OpCode::OMAPCLEAR);
    let rm = |k| xattr(OpCode::RMXATTR, k);
    let one = ("k", &b"2"[..]);
    // On an object with ten bytes, an attribute, an omap entry and a version; and on none.
    let cases: Vec<(&str, Vec<OsdOp>, i32, i32)> = vec![
        ("new attribute", vec![setxattr("a", b"2"), cmpx("a", b"2")], ECANCELED, ENOENT),
        ("old attribute", vec![setxattr("a", b"2"), cmpx("a", b"1")], 0, ENOENT),
        ("absent attribute", vec![setxattr("b", b"2"), cmpx("b", b"")], 0, ENOENT),
        ("removed attribute", vec![new(), rm("a"), cmpx("a", b"1")], 0, ENOENT),
        ("new omap", vec![omap_set(&[one]), omap_is("k", b"2")], ECANCELED, ENOENT),
        ("old omap", vec![omap_set(&[one]), omap_is("k", b"1")], 0, ENOENT),
        ("cleared omap", vec![new(), clear(), omap_is("k", b"")], 0, 0),
        ("cleared and set", vec![new(), clear(), omap_set(&[("z", b"z")]), omap_is("k", b"1")], 0, ENOENT),
        ("of a removed object", vec![new(), del(), cmpx("a", b"1")], 0, ENOENT),
        ("omap of a removed object", vec![new(), del(), omap_is("k", b"1")], ENOENT, ENOENT),
        ("remade", vec![new(), del(), new(), cmpx("a", b"1"), omap_is("k", b"1")], 0, ENOENT),
        ("remade, version", vec![new(), del(), new(), version_is(5)], 0, ECANCELED),
        ("set version", vec![set_version(9), version_is(9)], ECANCELED, ECANCELED),
        ("absent now", vec![new(), del(), rm("a")], ENOENT, ENOENT),
        ("made again", vec![new(), del(), with_flags(new(), op_flags::EXCL)], 0, 0),
        ("new data", vec![write(0, b"AB"), cmpext(0, b"AB")], -4095, -4095),
        ("old data", vec![write(0, b"AB"), cmpext(0, b"01")], 0, -4095),
        ("appended data", vec![append(b"AB"), cmpext(10, b"\0\0")], 0, 0),
        ("cut data", vec![truncate(1), cmpext(0, b"0\0")], 0, -4095),
        ("data of a removed object", vec![new(), del(), cmpext(0, b"\0\0")], 0, 0),
        ("read of what is written", vec![write(0, b"AB"), read(0, 2)], 0, ENOENT),
        ("read of nothing", vec![new(), read(0, 2)], 0, 0),
    ];
    for (what, ops, there, absent) in cases {
        for (full, want) in [(true, there), (false, absent)] {
            let mut w = World::new();
            if full {
                let all =
                    vec![write_full(b"0123456789"), setxattr("a", b"1"), omap_set(&[("k", b"1")]), set_version(5)];
                assert_eq!(w.op("o", all).result, 0);
            }
            let r = w.op("o", ops.clone());
            let got = if r.result == 1 { 0 } else { r.result };
            assert_eq!(got, want, "{what}, on {}", if full { "an object" } else { "none" });
        }
    }
}

/// The same with output.
#[test]
fn two_calls_of_a_vector_start_from_the_same_value() {
    let (new, del) = (simple(OpCode::CREATE), simple(OpCode::DELETE));
    // Two increments by a class in one vector both start from the old value.
    let mut w = World::new();
    let add = |n: &str| OsdOp::call("numops", "add", &encode_two("n", n));
    assert_eq!(w.op("o", vec![add("5"), add("7")]).result, 0);
    assert_eq!(vals(&w.op("o", vec![omap_vals("", 9, "")]).ops[0].outdata).0[&b"n"[..]], &b"7"[..]);
    // Created and removed in one vector: nothing changes, and the reads are answered.
    let r = w.op("p", vec![new, del, with_flags(simple(OpCode::STAT), op_flags::FAILOK), omap_vals("", 9, "")]);
    assert_eq!((r.result, r.ops[2].rval, r.ops[3].outdata.len()), (0, ENOENT, 5));
}

fn versioned(body: &[u8]) -> Vec<u8> {
    let mut v = vec![1, 1];
    v.extend((body.len() as u32).to_le_bytes());
    v.extend(body);
    v
}

fn version(n: u8) -> Vec<u8> {
    let mut v = u64::from(n).to_le_bytes().to_vec();
    v.extend([1, 0, 0, 0, b't']);
    versioned(&v)
}

fn version_op(n: u8) -> Vec<u8> {
    versioned(&version(n))
}

fn encode_two(a: &str, b: &str) -> Vec<u8> {
    (a.to_owned(), b.to_owned()).to_bytes(wire::Features::PACIFIC).to_vec()
}

#[test]
fn create_delete_versions() {
    let mut w = World::new();
    assert_eq!(w.op("a", vec![simple(OpCode::DELETE)]).result, ENOENT);
    assert_eq!(w.op("a", vec![with_flags(simple(OpCode::DELETE), op_flags::FAILOK)]).result, 0);
    let excl = || with_flags(simple(OpCode::CREATE), op_flags::EXCL);
    let r = w.op("a", vec![excl()]);
    assert_eq!(r.result, 0);
    let v = r.user_version;
    assert_eq!(w.op("a", vec![excl()]).result, EEXIST);
    assert_eq!(w.op("a", vec![simple(OpCode::CREATE)]).result, 0);
    let assert_ver = |v| {
        let mut o = simple(OpCode::ASSERT_VER);
        o.set_assert_ver(v);
        o
    };
    let now = w.op("a", vec![simple(OpCode::STAT)]).user_version;
    assert!(now > v);
    assert_eq!(w.op("a", vec![assert_ver(now), write(0, b"x")]).result, 0);
    assert_eq!(w.op("a", vec![assert_ver(now), write(0, b"x")]).result, ERANGE);
    assert_eq!(w.op("a", vec![assert_ver(now + 100), simple(OpCode::STAT)]).result, EOVERFLOW);
    assert_eq!(w.op("a", vec![assert_ver(0), simple(OpCode::STAT)]).result, EINVAL);
    let r = w.op("a", vec![simple(OpCode::DELETE)]);
    assert_eq!(r.result, 0);
    let gone = w.op("a", vec![read(0, 0)]);
    assert_eq!((gone.result, gone.user_version), (ENOENT, 0));
    let gone = w.op("a", vec![simple(OpCode::STAT), write(0, b"x")]);
    assert_eq!((gone.result, gone.user_version), (ENOENT, r.user_version), "a floor for the next version");
    let s = w.pg.info().stats;
    assert_eq!((s.num_objects, s.num_bytes, s.num_objects_dirty), (0, 0, 0));
}

#[test]
fn attributes() {
    let mut w = World::new();
    assert_eq!(w.op("a", vec![setxattr("k", b"17"), setxattr("", b"empty")]).result, 0);
    assert_eq!(w.op("a", vec![xattr(OpCode::GETXATTR, "k")]).ops[0].outdata, &b"17"[..]);
    assert_eq!(w.op("a", vec![xattr(OpCode::GETXATTR, "nope")]).result, ENODATA);
    assert_eq!(w.op("a", vec![xattr(OpCode::RMXATTR, "nope")]).result, 0);
    assert_eq!(w.op("b", vec![xattr(OpCode::RMXATTR, "nope")]).result, ENOENT);
    let cmp = |op, mode, v: &[u8]| OsdOp::with_xattr(OpCode::CMPXATTR, b"k", v, op, mode);
    let num = |n: u64| n.to_le_bytes();
    for (op, n, holds) in [
        (1, 17, true),
        (1, 18, false),
        (2, 18, true),
        (3, 18, true),
        (3, 17, false),
        (4, 17, true),
        (5, 16, true),
        (6, 17, true),
        (6, 18, false),
    ] {
        let want = if holds { 1 } else { ECANCELED };
        assert_eq!(w.op("a", vec![cmp(op, 2, &num(n))]).result, want, "op {op} {n}");
    }
    assert_eq!(w.op("a", vec![cmp(1, 1, b"17")]).result, 1);
    assert_eq!(w.op("a", vec![cmp(1, 1, b"1")]).result, ECANCELED);
    assert_eq!(w.op("a", vec![cmp(9, 1, b"1")]).result, EINVAL);
    assert_eq!(w.op("a", vec![cmp(1, 3, b"1")]).result, EINVAL);
    assert_eq!(w.op("a", vec![setxattr(&"n".repeat(101), b"")]).result, ENAMETOOLONG);
    let all: BTreeMap<Bytes, Bytes> = decode(&w.op("a", vec![simple(OpCode::GETXATTRS)]).ops[0].outdata);
    assert_eq!(all.keys().collect::<Vec<_>>(), [&b"k"[..]], "ours are hidden");
}

#[test]
fn omap_pages_and_filters() {
    let mut w = World::new();
    assert_eq!(w.op("a", vec![omap_vals("", 10, "")]).result, ENOENT);
    let keys: Vec<String> = (0..1500).map(|i| format!("k{i:05}")).collect();
    let kv: Vec<(&str, &[u8])> = keys.iter().map(|k| (k.as_str(), &b"v"[..])).collect();
    assert_eq!(w.op("a", vec![omap_set(&kv), omap_set(&[("z1", b"1"), ("z2", b"2")])]).result, 0);
    let (m, more) = vals(&w.op("a", vec![omap_vals("", 5000, "")]).ops[0].outdata);
    assert_eq!((m.len(), more), (1024, true));
    let (m, more) = vals(&w.op("a", vec![omap_vals("k01023", 5000, "k")]).ops[0].outdata);
    assert_eq!((m.len(), more), (476, false));
    let (m, more) = vals(&w.op("a", vec![omap_vals("", 1, "z")]).ops[0].outdata);
    assert_eq!((m.len(), more), (1, true));
    let (m, more) = vals(&w.op("a", vec![omap_vals("z1", 1, "z")]).ops[0].outdata);
    assert_eq!((m.len(), more), (1, false));
    let got: (Vec<Bytes>, bool) =
        decode(&w.op("a", vec![encoded(OpCode::OMAPGETKEYS, &("k01498".to_owned(), 2u64))]).ops[0].outdata);
    assert_eq!(got, (vec![bytes(b"k01499"), bytes(b"z1")], true));
    let want = std::collections::BTreeSet::from([bytes(b"z2"), bytes(b"none")]);
    let got: BTreeMap<Bytes, Bytes> =
        decode(&w.op("a", vec![encoded(OpCode::OMAPGETVALSBYKEYS, &want)]).ops[0].outdata);
    assert_eq!(got, BTreeMap::from([(bytes(b"z2"), bytes(b"2"))]));
    let cmp =
        |k: &str, v: &str, op: i32| encoded(OpCode::OMAP_CMP, &BTreeMap::from([(k.to_owned(), (v.to_owned(), op))]));
    assert_eq!(w.op("a", vec![cmp("z1", "1", 1)]).result, 0);
    assert_eq!(w.op("a", vec![cmp("z1", "2", 1)]).result, ECANCELED);
    assert_eq!(w.op("a", vec![cmp("none", "", 1)]).result, 0, "a missing key is empty");
    assert_eq!(w.op("a", vec![cmp("z2", "1", 3)]).result, 0);
    assert_eq!(w.op("a", vec![cmp("z2", "1", 2)]).result, EINVAL);
    assert_eq!(w.op("a", vec![encoded(OpCode::OMAPRMKEYRANGE, &("k".to_owned(), "z2".to_owned()))]).result, 0);
    let (m, _) = vals(&w.op("a", vec![omap_vals("", 5000, "")]).ops[0].outdata);
    assert_eq!(m.len(), 1);
    assert_eq!(w.op("a", vec![OsdOp::with_indata(OpCode::OMAPSETHEADER, bytes(b"head"))]).result, 0);
    assert_eq!(w.op("a", vec![simple(OpCode::OMAPGETHEADER)]).ops[0].outdata, &b"head"[..]);
    assert_eq!(w.pg.info().stats.num_objects_omap, 1);
    assert_eq!(w.op("a", vec![simple(OpCode::OMAPCLEAR)]).result, 0);
    assert_eq!(w.op("a", vec![simple(OpCode::OMAPGETHEADER)]).ops[0].outdata, &b""[..]);
    assert_eq!(w.op("none", vec![simple(OpCode::OMAPCLEAR)]).result, ENOENT);
    assert_eq!(w.pg.info().stats.num_objects_omap, 0);
}

#[test]
fn wrong_requests_get_their_errno() {
    let mut w = World::new();
    assert_eq!(w.op("", vec![write(0, b"x")]).result, EINVAL);
    assert_eq!(w.op(&"n".repeat(2049), vec![write(0, b"x")]).result, ENAMETOOLONG);
    assert_eq!(w.op(&"n".repeat(2048), vec![write(0, b"x")]).result, 0);
    let mut r = w.request(1, "a", vec![read(0, 0)]);
    r.msg.locator.nspace = "n".repeat(257).into();
    assert_eq!(w.call(r).result, ENAMETOOLONG);
    assert_eq!(w.op("a", vec![]).result, EINVAL);
    assert_eq!(w.op("a", vec![OsdOp::call("no_such", "thing", b"")]).result, EOPNOTSUPP);
    assert_eq!(w.op("a", vec![OsdOp::call("lock", "no_such", b"")]).result, EOPNOTSUPP);
    assert_eq!(w.op("a", vec![OsdOp::new(OpCode(0x22ff))]).result, EOPNOTSUPP);
    assert_eq!(w.at_snap("a", SnapId(4), vec![write(0, b"x")]).result, EINVAL);
    w.set_snaps(3, &[4]);
    assert_eq!(w.op("a", vec![write(0, b"x")]).result, EINVAL, "a snapshot newer than its sequence");
    w.set_snaps(4, &[2, 3]);
    assert_eq!(w.op("a", vec![write(0, b"x")]).result, EINVAL, "not newest first");
    // An object of another PG is dropped.
    w.pool.pg_num = 2;
    let mut r = w.request(1, "a", vec![read(0, 0)]);
    r.msg.pgid.pg.seed = 1;
    let key = w.send(r);
    assert!(!w.replies.contains_key(&key));
}

#[test]
fn snapshots_list_read_roll_back() {
    let mut w = World::new();
    w.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    w.next_map();
    w.op("a", vec![write(0, &[1; 100]), setxattr("k", b"1"), omap_set(&[("o", b"1")])]);
    w.set_snaps(5, &[5]);
    w.op("a", vec![write(10, &[2; 20]), setxattr("k", b"2"), omap_set(&[("o", b"2")])]);
    let list = |w: &mut World| -> ListSnapsReply {
        let r = w.at_snap("a", SnapId::SNAPDIR, vec![simple(OpCode::LIST_SNAPS)]);
        assert_eq!(r.result, 0);
        decode(&r.ops[0].outdata)
    };
    let l = list(&mut w);
    assert_eq!(l.seq, 5);
    assert_eq!(l.clones.len(), 2);
    assert_eq!((l.clones[0].cloneid, l.clones[0].size), (SnapId(5), 100));
    assert_eq!(l.clones[0].overlap, [(0, 10), (30, 70)]);
    assert_eq!((l.clones[1].cloneid, l.clones[1].size), (SnapId::HEAD, 100));
    assert_eq!(w.pg.info().stats.num_bytes, 120);
    assert_eq!(w.at_snap("a", SnapId(5), vec![read(0, 0)]).ops[0].outdata, &[1; 100][..]);
    assert_eq!(w.at_snap("a", SnapId(5), vec![xattr(OpCode::GETXATTR, "k")]).ops[0].outdata, &b"1"[..]);
    assert_eq!(w.at_snap("a", SnapId(6), vec![xattr(OpCode::GETXATTR, "k")]).ops[0].outdata, &b"2"[..]);
    assert_eq!(w.at_snap("a", SnapId(4), vec![simple(OpCode::STAT)]).result, ENOENT, "4 was never in a context");
    // The head is deleted, the clone stays.
    assert_eq!(w.op("a", vec![simple(OpCode::DELETE)]).result, 0);
    assert_eq!(w.op("a", vec![read(0, 0)]).result, ENOENT);
    assert_eq!(list(&mut w).clones.len(), 1);
    w.restart();
    assert_eq!(w.at_snap("a", SnapId(5), vec![read(0, 0)]).ops[0].outdata.len(), 100);
    let page: PgNlsReply = decode(&list_pg(&mut w, b""));
    assert!(page.entries.is_empty(), "a deleted object is not listed");
    let mut back = simple(OpCode::ROLLBACK);
    back.set_snap(SnapId(5));
    assert_eq!(w.op("a", vec![back.clone()]).result, 0);
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata, &[1; 100][..]);
    let (m, _) = vals(&w.op("a", vec![omap_vals("", 5, "")]).ops[0].outdata);
    assert_eq!(m, BTreeMap::from([(bytes(b"o"), bytes(b"1"))]));
    // With ORDERSNAP an old snapshot context is refused.
    w.set_snaps(4, &[]);
    let mut r = w.request(1, "a", vec![write(0, b"x")]);
    r.msg.flags |= msg_flags::ORDERSNAP;
    assert_eq!(w.call(r).result, -85);
    // Snapshot 5 is removed.
    w.set_snaps(5, &[]);
    w.pool.removed_snaps.insert(5, 1);
    w.next_map();
    w.settle();
    assert_eq!(w.at_snap("a", SnapId(5), vec![read(0, 0)]).result, ENOENT);
    assert_eq!(list(&mut w).clones.len(), 1);
    let s = w.pg.info().stats;
    assert_eq!((s.num_objects, s.num_object_clones, s.num_bytes), (1, 0, 100));
    assert_eq!(w.pg.purged_snaps(), [(5, 1)]);
    w.pool.removed_snaps.erase(5, 1);
    w.next_map();
    assert!(w.pg.purged_snaps().is_empty());
}

#[test]
fn a_write_may_be_under_a_snapshot_that_the_map_does_not_know() {
    // The client has a newer map than the OSD. What it wrote under the snapshot is found again after the
    // metadata left the memory: neither is a clone made twice, nor one that was never there.
    let mut w = World::new();
    w.op("old", vec![write(0, b"before")]);
    w.op("gone", vec![write(0, b"before")]);
    w.set_snaps(2, &[2]);
    w.op("old", vec![setxattr("k", b"1")]);
    w.op("gone", vec![simple(OpCode::DELETE)]);
    w.op("new", vec![write(0, b"after")]);
    w.restart();
    for name in ["old", "new", "gone"] {
        assert_eq!(w.op(name, vec![write_full(b"later")]).result, 0);
    }
    w.restart();
    for name in ["old", "gone"] {
        assert_eq!(w.at_snap(name, SnapId(2), vec![read(0, 0)]).ops[0].outdata, &b"before"[..]);
        assert_eq!(w.at_snap(name, SnapId(2), vec![xattr(OpCode::GETXATTR, "k")]).result, -61);
    }
    assert_eq!(w.at_snap("new", SnapId(2), vec![read(0, 0)]).result, ENOENT);
    let s = w.pg.info().stats;
    assert_eq!((s.num_objects, s.num_object_clones), (5, 2));
}

#[test]
fn checksums() {
    let mut w = World::new();
    w.op("a", vec![write(0, b"abcdefgh")]);
    let part = |kind, init: &[u8], offset, length, chunk_size| {
        let mut o = OsdOp::with_indata(OpCode::CHECKSUM, bytes(init));
        o.set_checksum(wire::msg::osd_op::ChecksumArgs { offset, length, chunk_size, kind });
        o
    };
    let sum = |kind, init: &[u8], len, chunk| part(kind, init, 0, len, chunk);
    let r = w.op("a", vec![sum(2, &[0xff; 4], 8, 4)]);
    assert_eq!(r.result, 0);
    let crc = |b: &[u8]| base::crc::crc32c(u32::MAX, b).to_le_bytes();
    assert_eq!(r.ops[0].outdata, [&2u32.to_le_bytes()[..], &crc(b"abcd"), &crc(b"efgh")].concat());
    assert_eq!(w.op("a", vec![sum(2, &[0xff; 4], 8, 3)]).result, EINVAL);
    assert_eq!(w.op("a", vec![sum(2, &[0xff; 3], 8, 4)]).result, EINVAL);
    assert_eq!(w.op("a", vec![sum(7, &[0xff; 8], 8, 4)]).result, EINVAL);
    // A range beyond the end is cut, and must then still be whole chunks. One that begins there has no checksums, and
    // its arguments are not looked at.
    let r = w.op("a", vec![part(2, &[0xff; 4], 4, 8, 4)]);
    assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &[&1u32.to_le_bytes()[..], &crc(b"efgh")].concat()[..]));
    assert_eq!(w.op("a", vec![part(2, &[0xff; 4], 2, 8, 4)]).result, EINVAL);
    let r = w.op("a", vec![part(7, &[], 8, 8, 4)]);
    assert_eq!((r.result, r.ops[0].outdata.len()), (0, 0));
    // Length 0 is everything at offset 0, and nothing elsewhere.
    let r = w.op("a", vec![sum(2, &[0xff; 4], 0, 0)]);
    assert_eq!(r.ops[0].outdata, [&1u32.to_le_bytes()[..], &crc(b"abcdefgh")].concat());
    assert_eq!(w.op("a", vec![part(2, &[0xff; 4], 2, 0, 0)]).ops[0].outdata, &0u32.to_le_bytes()[..]);
}

#[test]
fn full_pools_answer_or_hold() {
    use pg::map::pool_flags;
    let mut w = World::new();
    w.op("a", vec![write(0, b"x")]);
    w.pool.flags |= pool_flags::FULL | pool_flags::FULL_QUOTA;
    w.next_map();
    let mut r = w.request(1, "a", vec![write(0, b"xy")]);
    r.msg.flags |= msg_flags::FULL_TRY;
    let refused = r.clone();
    assert_eq!(w.call(r).result, EDQUOT);
    assert_eq!(w.op("a", vec![write(0, b"y")]).result, 0, "no growth, no harm");
    let mut r = w.request(1, "a", vec![write(0, b"xy")]);
    r.msg.flags |= msg_flags::FULL_FORCE;
    assert_eq!(w.call(r).result, 0);
    let r = w.request(1, "a", vec![write(0, b"xyz")]);
    let held = w.send(r);
    let r = w.request(1, "a", vec![read(0, 0)]);
    assert_eq!(w.call(r).ops[0].outdata.len(), 2, "a read does not wait for space");
    assert!(w.replies.is_empty());
    assert_eq!(w.pg.dump_ops(w.now.mono).len(), 1);
    w.pool.flags = 0;
    w.next_map();
    assert_eq!(w.replies.remove(&held).unwrap().result, 0);
    assert_eq!(w.op("a", vec![read(0, 0)]).ops[0].outdata.len(), 3);
    assert_eq!(w.call(refused).result, EDQUOT, "a resend gets the first answer");
}

#[test]
fn write_output_needs_returnvec() {
    let mut w = World::new();
    w.op("a", vec![write(0, &[7; 100])]);
    let vector = || vec![read(0, 10), setxattr("k", b"v")];
    let r = w.op("a", vector());
    assert_eq!((r.result, r.ops[0].outdata.len()), (0, 0));
    let mut r = w.request(1, "a", vector());
    r.msg.flags |= msg_flags::RETURNVEC;
    let again = r.clone();
    let first = w.call(r);
    assert_eq!((first.result, first.ops[0].rval, first.ops[0].outdata.len()), (0, 0, 10));
    w.op("a", vec![write(0, &[8; 100])]);
    let second = w.call(again);
    assert_eq!(second.ops[0].outdata, first.ops[0].outdata, "a resend gets the first answer");
    assert_eq!(second.user_version, first.user_version);
    let mut r = w.request(1, "a", vec![read(0, 65), setxattr("k", b"v")]);
    r.msg.flags |= msg_flags::RETURNVEC;
    let r = w.call(r);
    assert_eq!((r.result, r.ops[0].rval), (EOVERFLOW, EOVERFLOW));
    let mut r = w.request(1, "a", vec![read(0, 65), setxattr("k", b"too much")]);
    r.msg.flags |= msg_flags::RETURNVEC;
    w.call(r);
    assert_eq!(w.op("a", vec![xattr(OpCode::GETXATTR, "k")]).ops[0].outdata, &b"v"[..], "nothing was applied");
}

#[test]
fn classes_run_on_the_vector() {
    let mut w = World::new();
    assert_eq!(w.op("a", vec![OsdOp::call("hello", "say_hello", b"")]).result, ENOENT, "a read of nothing");
    assert_eq!(w.op("a", vec![OsdOp::call("hello", "record_hello", b"World")]).result, 0);
    let r = w.op("a", vec![OsdOp::call("hello", "replay", b"")]);
    assert!(r.result >= 0);
    assert_eq!(r.ops[0].outdata, &b"Hello, World!"[..]);
    assert_eq!(w.op("a", vec![OsdOp::call("hello", "record_hello", b"World")]).result, EEXIST);
    assert_eq!(w.op("a", vec![OsdOp::call("hello", "bad_reader", b"")]).result, EIO);
    assert_eq!(w.op("a", vec![OsdOp::call("hello", "bad_writer", b"")]).result, EIO);
}

/// A client may name an object thousands of times in one vector of reads.
#[test]
fn the_output_of_a_vector_is_bounded() {
    let mut w = World::new();
    let size = pg::limits::OUTPUT_MAX / 4;
    w.op("a", vec![write(0, &vec![7; size])]);
    assert_eq!(w.op("a", vec![read(0, 0); 4]).result, 0);
    for flags in [0, op_flags::FAILOK] {
        let again = OsdOp { flags, ..read(0, 0) };
        let r = w.op("a", vec![again; 4096]);
        assert_eq!(r.result, EMSGSIZE);
        assert!(r.ops.iter().all(|o| o.outdata.is_empty()));
    }
    // In a vector with a write, too, nothing is applied.
    let vector = [vec![write(0, b"x")], vec![read(0, 0); 5]].concat();
    assert_eq!(w.op("a", vector).result, EMSGSIZE);
    assert_eq!(w.op("a", vec![read(0, 1)]).ops[0].outdata, &[7][..]);
}

#[test]
fn a_class_sees_the_snapset_only_where_there_is_an_object() {
    let mut w = World::new();
    w.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    w.next_map();
    let assert_seq = |seq: u64, state: u8| {
        let mut input = seq.to_le_bytes().to_vec();
        input.push(state);
        OsdOp::call("rbd", "assert_snapc_seq", &input)
    };
    assert_eq!(w.op("a", vec![assert_seq(0, 0), setxattr("k", b"v")]).result, 0, "greater than nothing");
    w.set_snaps(5, &[5]);
    assert_eq!(w.op("a", vec![write(0, b"x")]).result, 0);
    assert_eq!(w.op("a", vec![assert_seq(5, 0)]).result, ERANGE);
    assert_eq!(w.op("a", vec![assert_seq(5, 1)]).result, 0);
    assert_eq!(w.op("a", vec![assert_seq(6, 0)]).result, 0);
}

#[test]
fn legacy_text_maps() {
    let mut w = World::new();
    let cmd = |c: u8, parts: &[&[u8]]| {
        let mut w = wire::Writer::new(wire::Features::PACIFIC);
        w.u8(c);
        parts.iter().for_each(|p| w.blob(p));
        w.into_vec()
    };
    let up = |cmds: &[Vec<u8>]| OsdOp::with_indata(OpCode::TMAPUP, cmds.concat().into());
    assert_eq!(w.op("d", vec![up(&[cmd(b's', &[b"img2", b""]), cmd(b'c', &[b"img1", b"v"])])]).result, 0);
    assert_eq!(w.op("d", vec![up(&[cmd(b'c', &[b"img1", b"v"])])]).result, EEXIST);
    assert_eq!(w.op("d", vec![up(&[cmd(b'r', &[b"none"])])]).result, ENOENT);
    assert_eq!(w.op("d", vec![up(&[cmd(b'R', &[b"none"]), cmd(b'h', &[b"head"])])]).result, 0);
    assert_eq!(w.op("d", vec![up(&[cmd(b'x', &[])])]).result, EINVAL);
    let (header, map): (Bytes, BTreeMap<Bytes, Bytes>) = decode(&w.op("d", vec![read(0, 0)]).ops[0].outdata);
    assert_eq!(header, &b"head"[..]);
    assert_eq!(map, BTreeMap::from([(bytes(b"img1"), bytes(b"v")), (bytes(b"img2"), bytes(b""))]));
    let mut convert = simple(OpCode::TMAP2OMAP);
    assert_eq!(w.op("d", vec![convert.clone()]).result, 0);
    let r = w.op("d", vec![omap_vals("", 9, ""), simple(OpCode::OMAPGETHEADER), simple(OpCode::STAT)]);
    assert_eq!(vals(&r.ops[0].outdata).0, map);
    assert_eq!(r.ops[1].outdata, &b"head"[..]);
    assert_eq!(w.op("d", vec![convert.clone()]).result, ENODATA);
    convert.raw[0] = 1;
    assert_eq!(w.op("d", vec![convert]).result, 0);
}

/// A reply has the version of the clone that was read.
#[test]
fn reads_at_snapshots_answer_with_versions_of_clones() {
    let mut w = World::new();
    w.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    w.next_map();
    let first = w.op("a", vec![write(0, b"one")]).user_version;
    w.set_snaps(4, &[4]);
    let second = w.op("a", vec![write(0, b"two")]).user_version;
    assert!(second > first && first > 0);
    let at = |w: &mut World, snap| w.at_snap("a", SnapId(snap), vec![read(0, 0)]).user_version;
    let asserts = |w: &mut World, snap, v| {
        let mut op = simple(OpCode::ASSERT_VER);
        op.set_assert_ver(v);
        w.at_snap("a", SnapId(snap), vec![op, read(0, 0)]).result
    };
    for _ in 0..2 {
        assert_eq!(at(&mut w, 4), first);
        assert_eq!(at(&mut w, SnapId::HEAD.0), second);
        assert_eq!((asserts(&mut w, 4, first), asserts(&mut w, 4, second)), (0, EOVERFLOW));
        assert_eq!(asserts(&mut w, SnapId::HEAD.0, second), 0);
        w.restart();
    }
    w.set_snaps(6, &[6, 4]);
    w.op("a", vec![simple(OpCode::DELETE)]);
    for _ in 0..2 {
        assert_eq!((at(&mut w, 4), at(&mut w, 6)), (first, second), "the head is gone");
        w.restart();
    }
}

/// An input that some method takes, or nearly.
fn input_for(r: &mut base::rng::Rng, name: &str) -> Bytes {
    let text = Bytes::copy_from_slice(name.as_bytes());
    let encoded = |f: &dyn Fn(&mut wire::Writer)| {
        let mut w = wire::Writer::new(wire::Features::PACIFIC);
        f(&mut w);
        w.into_bytes()
    };
    match r.below(4) {
        0 => Bytes::new(),
        1 => encoded(&|w| w.put(&text)),
        2 => encoded(&|w| w.versioned(1, 1, |w| w.put(&text))),
        _ => (0..r.below(40)).map(|_| r.below(4) as u8).collect::<Vec<u8>>().into(),
    }
}

#[test]
fn calls_of_any_method_keep_the_sums() {
    let mut r = base::rng::Rng::new(1);
    let mut w = World::new();
    let methods: Vec<_> =
        cls::registry::CLASSES.iter().flat_map(|(c, m)| m.iter().map(move |m| (*c, m.name))).collect();
    let names = ["a", "b", "c", "d"];
    let mut sums = (0, 0);
    for n in 0..4_000 {
        if r.chance(1, 10) {
            w.set_snaps(n + 1, &[n + 1]);
        }
        let name = names[r.below(4) as usize];
        let mut ops = Vec::new();
        for _ in 0..=r.below(3) {
            let (class, method) = methods[r.below(methods.len() as u64) as usize];
            ops.push(match r.below(8) {
                0 => write(r.below(5000), &vec![1; r.below(3000) as usize]),
                1 => truncate(r.below(5000)),
                2 => simple(OpCode::DELETE),
                _ => OsdOp::call(class, method, &input_for(&mut r, name)),
            });
        }
        let what: Vec<String> = ops.iter().map(|o| format!("{:?} {:?}", o.op, o.indata)).collect();
        w.op(name, ops);
        let s = w.pg.info().stats;
        let mut now = (0, 0);
        for name in names {
            let l = w.at_snap(name, SnapId::SNAPDIR, vec![simple(OpCode::LIST_SNAPS)]);
            if l.result < 0 {
                continue;
            }
            let l: ListSnapsReply = decode(&l.ops[0].outdata);
            for c in &l.clones {
                now.0 += 1;
                now.1 += c.size as i64 - c.overlap.iter().map(|(_, n)| *n as i64).sum::<i64>();
            }
        }
        assert_eq!((s.num_objects, s.num_bytes), now, "call {n} on {name} after {sums:?}: {what:?}");
        sums = now;
    }
}
