//! Do the truncations of a file, with their numbers, order its reads and writes as in Ceph?
mod common;

use base::errno::*;
use bytes::Bytes;
use common::*;
use std::collections::BTreeMap;
use wire::msg::osd_op::Extent;
use wire::msg::{OpCode, OsdOp};

/// `op` as a CephFS client sends it, with the number and size of its file's last truncation.
fn of_file(mut op: OsdOp, seq: u32, size: u64) -> OsdOp {
    op.set_extent(Extent { truncate_seq: seq, truncate_size: size, ..op.extent() });
    op
}

#[test]
fn a_files_truncations_order_its_writes() {
    let mut w = World::new();
    let whole = |w: &mut World, o: &str| w.op(o, vec![read(0, 0)]).ops[0].outdata.clone();
    // A mount does this first in a pool: it tries to create the object, then writes. The file was never truncated.
    assert_eq!(w.op("a", vec![simple(OpCode::CREATE)]).result, 0);
    assert_eq!(w.op("a", vec![of_file(write(0, b"data"), 1, u64::MAX)]).result, 0);
    assert_eq!(whole(&mut w, "a"), &b"data"[..]);
    // The same for a new object, and for one with data.
    assert_eq!(w.op("b", vec![of_file(write(2, b"data"), 1, u64::MAX)]).result, 0);
    assert_eq!(whole(&mut w, "b"), &b"\0\0data"[..]);
    assert_eq!(w.op("c", vec![write(0, b"0123456789")]).result, 0);
    assert_eq!(w.op("c", vec![of_file(write(2, b"xx"), 1, u64::MAX)]).result, 0);
    assert_eq!(whole(&mut w, "c"), &b"01xx456789"[..]);
    // A truncation, then an older write: only the part within the object counts.
    assert_eq!(w.op("c", vec![of_file(truncate(6), 2, 6)]).result, 0);
    assert_eq!(w.op("c", vec![of_file(write(4, b"yyyy"), 1, u64::MAX)]).result, 0);
    assert_eq!(whole(&mut w, "c"), &b"01xxyy"[..]);
    // A write that knows of a later truncation applies it; the truncation itself then changes nothing.
    assert_eq!(w.op("c", vec![of_file(write(1, b"z"), 3, 3)]).result, 0);
    assert_eq!(whole(&mut w, "c"), &b"0zx"[..]);
    assert_eq!(w.op("c", vec![write(3, b"more")]).result, 0);
    assert_eq!(w.op("c", vec![of_file(truncate(3), 3, 3)]).result, 0);
    assert_eq!(whole(&mut w, "c"), &b"0zx"[..], "what came without a sequence was cut as an old write");
    // A read that knows of a truncation returns only what it leaves.
    assert_eq!(w.op("a", vec![of_file(read(0, 10), 2, 2)]).ops[0].outdata, &b"da"[..]);
    assert_eq!(w.op("c", vec![of_file(write(0, b"q"), 9, (128 << 20) + 1)]).result, EFBIG);
}

/// One step of the truncation table: an operation and its result, the object's content after it, and the length in the
/// extent of the reply.
type Cut = (OsdOp, i32, &'static [u8]);

/// The pair of a client that knows no truncation.
const NEVER: (u32, u64) = (1, u64::MAX);

fn of(op: OsdOp, (seq, size): (u32, u64)) -> OsdOp {
    of_file(op, seq, size)
}

fn trim(seq: u32, size: u64) -> OsdOp {
    of(simple(OpCode::TRIMTRUNC), (seq, size))
}

fn same(off: u64, len: u64) -> OsdOp {
    let mut o = OsdOp::with_indata(OpCode::WRITESAME, Bytes::from_static(b"s"));
    o.set_writesame(wire::msg::osd_op::WriteSameArgs { offset: off, length: len, data_length: 1 });
    o
}

/// Steps of WRITE and TRUNCATE, with result and content.
fn cases_of_writes() -> Vec<(&'static str, Vec<Cut>)> {
    vec![
        (
            "two clients create, then one goes on with its cache",
            vec![
                (of(write(0, b"0123456789"), NEVER), 0, b"0123456789"),
                (of(write(10, b"abcdefghij"), NEVER), 0, b"0123456789abcdefghij"),
                (of(write(20, b"new"), (0, 0)), 0, b"0123456789abcdefghijnew"),
                (of(write(23, b"!"), NEVER), 0, b"0123456789abcdefghijnew!"),
            ],
        ),
        (
            "an old write after a truncation counts within the object only",
            vec![
                (of(write(0, b"0123456789"), NEVER), 0, b"0123456789"),
                (of(truncate(6), (2, 6)), 0, b"012345"),
                (of(write(4, b"yyyy"), NEVER), 0, b"0123yy"),
                // One that begins beyond the end extends the object to its offset.
                (of(write(8, b"zz"), (0, 0)), 0, b"0123yy\0\0"),
                (of(write(8, b"zz"), (1, 9)), 0, b"0123yy\0\0"),
                (of(write(8, b"zz"), (2, 6)), 0, b"0123yy\0\0zz"),
            ],
        ),
        (
            "a newer write truncates first, and the truncation then changes nothing",
            vec![
                (write(0, b"0123456789"), 0, b"0123456789"),
                (of(write(1, b"z"), (3, 3)), 0, b"0z2"),
                (of(write(3, b"more"), (3, 3)), 0, b"0z2more"),
                (trim(3, 3), 0, b"0z2more"),
                (trim(2, 1), 0, b"0z2more"),
                (trim(4, 5), 0, b"0z2mo"),
            ],
        ),
        (
            "a newer write extends an object that is shorter than the file's new size",
            vec![(write(0, b"abc"), 0, b"abc"), (of(write(1, b"z"), (2, 6)), 0, b"azc\0\0\0")],
        ),
        (
            "a truncation extends, and needs no number",
            vec![
                (write(0, b"abc"), 0, b"abc"),
                (truncate(5), 0, b"abc\0\0"),
                (of(truncate(2), NEVER), 0, b"ab"),
                (of(write(2, b"cd"), NEVER), 0, b"abcd"),
            ],
        ),
    ]
}

/// Steps of the other operations.
fn cases_of_other_operations() -> Vec<(&'static str, Vec<Cut>)> {
    vec![
        (
            "the pair truncates as TRIMTRUNC, too: to size 0, without a number",
            vec![(write(0, b"abc"), 0, b"abc"), (trim(1, u64::MAX), 0, b""), (of(write(0, b"ab"), NEVER), 0, b"ab")],
        ),
        (
            "a new object keeps the numbers of the write that made it",
            vec![(of(write(0, b"abc"), (4, 2)), 0, b"abc"), (of(write(2, b"xyz"), (3, 9)), 0, b"abx")],
        ),
        (
            "APPEND and WRITEFULL are never old writes; WRITESAME is one",
            vec![
                (of(write(0, b"abc"), (4, 2)), 0, b"abc"),
                (append(b"de"), 0, b"abcde"),
                (of(append(b"f"), NEVER), 0, b"abcdef"),
                (of(append(b"g"), (9, 1)), 0, b"abcdefg"),
                (same(5, 4), 0, b"abcdess"),
                (of(write_full(b"whole object"), NEVER), 0, b"whole object"),
                (of(write(9, b"zzzz"), (0, 0)), 0, b"whole objzzz"),
            ],
        ),
        (
            "ZERO to the end cuts, without a number",
            vec![
                (of(write(0, b"abcdef"), (4, 2)), 0, b"abcdef"),
                (of(zero(4, 9), NEVER), 0, b"abcd"),
                (of(zero(1, 2), NEVER), 0, b"a\0\0d"),
                (of(zero(4, 9), NEVER), 0, b"a\0\0d"),
            ],
        ),
    ]
}

/// Numbers and sizes of truncations as 20.2's OSD treats them, taken from its sources: an operation's pair
/// (1, -1) is (0, 0) for all operations that have an extent; APPEND takes the object's own number, so it is never an
/// old write; WRITESAME and class methods write without a number.
#[test]
fn truncation_pairs_are_treated_as_ceph_treats_them() {
    for (n, (what, steps)) in [cases_of_writes(), cases_of_other_operations()].concat().into_iter().enumerate() {
        let (mut w, name) = (World::new(), format!("o{n}"));
        for (i, (op, result, content)) in steps.into_iter().enumerate() {
            let r = w.op(&name, vec![op.clone()]);
            assert_eq!(r.result, result, "{what}: step {i}");
            assert_eq!(w.op(&name, vec![read(0, 0)]).ops[0].outdata, content, "{what}: step {i}");
            let (sent, e) = (op.extent(), r.ops[0].extent());
            if op.op.has_extent() && (sent.truncate_seq, sent.truncate_size) == NEVER {
                assert_eq!((e.truncate_seq, e.truncate_size), (0, 0), "{what}: reply to step {i}");
            }
        }
        // The numbers are stored.
        w.restart();
    }
}

/// Reads as 20.2's OSD answers them, of an object of ten bytes and truncation 2 to a client that knows of another truncation.
#[test]
fn reads_see_what_a_newer_truncation_leaves() {
    let mut w = World::new();
    w.op("a", vec![of_file(write(0, b"0123456789"), 2, 4)]);
    let cases: &[(u64, u64, u32, u64, &[u8])] = &[
        (0, 0, 0, 0, b"0123456789"),
        (0, 0, 1, u64::MAX, b"0123456789"),
        (0, 20, 2, 4, b"0123456789"),
        (0, 0, 3, 4, b"0123456789"), // a read of everything has length 0, which is not beyond the new size
        (0, 20, 3, 4, b"0123"),
        (2, 5, 3, 4, b"23"),
        (0, 4, 3, 4, b"0123"),
        (4, 3, 3, 4, b""),
        (7, 9, 3, 4, b""),
        (7, 9, 3, 8, b"7"),
        (7, 9, 3, 12, b"789"),
        (12, 9, 3, 4, b""),
        (12, 9, 0, 0, b""),
    ];
    for &(off, len, seq, size, want) in cases {
        let r = w.op("a", vec![of_file(read(off, len), seq, size)]);
        assert_eq!((r.result, &r.ops[0].outdata[..]), (0, want), "{off} {len} {seq} {size}");
        assert_eq!(r.ops[0].extent().length, want.len() as u64);
        if len > 0 {
            let mut op = of_file(read(off, len), seq, size);
            op.op = OpCode::SPARSE_READ;
            let (_, data): (BTreeMap<u64, u64>, Bytes) = decode(&w.op("a", vec![op]).ops[0].output());
            assert_eq!(data, want, "sparse {off} {len} {seq} {size}");
            // Bytes beyond the truncation compare as zeros.
            let mut with = want.to_vec();
            with.resize(len as usize, 0);
            let op = of_file(OsdOp::with_extent(OpCode::CMPEXT, off, len, bytes(&with)), seq, size);
            assert_eq!(w.op("a", vec![op]).result, 0, "compare {off} {len} {seq} {size}");
        }
    }
}

/// The pair (1, -1) may be stored. If it counted, writes without a number would be cut.
#[test]
fn a_stored_pair_of_a_file_that_was_never_truncated_counts_as_none() {
    use pg::object::ObjectInfo;
    let stored = ObjectInfo { size: 4, truncate_seq: 1, truncate_size: u64::MAX, ..ObjectInfo::default() };
    let read = ObjectInfo::from_attr(&stored.to_attr()).unwrap();
    assert_eq!((read.truncate_seq, read.truncate_size), (0, 0));
    assert_eq!(ObjectInfo::as_stored(&stored.to_attr()).unwrap(), stored);
    for (seq, size) in [(1, 5), (2, u64::MAX), (0, 0)] {
        let other = ObjectInfo { truncate_seq: seq, truncate_size: size, ..stored.clone() };
        assert_eq!(ObjectInfo::from_attr(&other.to_attr()).unwrap(), other);
    }
}
