//! Vectors of the largest legal sizes, from planning to the copies and to recovery: every message between OSDs fits a
//! connection, and a copy whose log takes less keeps serving.
//!
//! `PG_SIZES=1` tries all kinds of operations instead of two mixes; that takes a minute.

mod cluster;

use base::errno::{EMSGSIZE, ENOENT};
use base::sizes::{DATA_MAX, FRONT_MAX, VALUE_MAX, VECTOR_ENTRIES_MAX, VECTOR_OPS_MAX, VECTOR_PAYLOAD_MAX};
use bytes::Bytes;
use cluster::{Cluster, object_name};
use std::collections::BTreeMap;
use wire::Encode as _;
use wire::msg::osd_op::WriteSameArgs;
use wire::msg::{OpCode, OsdOp};

fn omap_set(n: usize, value: usize) -> OsdOp {
    let all: BTreeMap<Bytes, Bytes> =
        (0..n).map(|i| (Bytes::from(format!("{i:08}")), Bytes::from(vec![i as u8; value]))).collect();
    OsdOp::with_indata(OpCode::OMAPSETVALS, all.to_bytes(wire::Features::PACIFIC))
}

fn setxattr(name: &str, len: usize) -> OsdOp {
    OsdOp::with_xattr(OpCode::SETXATTR, name.as_bytes(), &vec![7; len], 0, 0)
}

fn writesame(len: usize) -> OsdOp {
    let mut o = OsdOp::with_indata(OpCode::WRITESAME, vec![8; 1 << 16].into());
    o.set_writesame(WriteSameArgs { offset: 0, length: len as u64, data_length: 1 << 16 });
    o
}

fn small() -> OsdOp {
    OsdOp::with_extent(OpCode::WRITEFULL, 0, 5, Bytes::from_static(b"small"))
}

/// A quiet PG with two copies.
fn quiet() -> Cluster {
    let mut c = Cluster::new(8, 2, 2, 1, 2, 0);
    c.contended = false;
    c.load = false;
    c.keep_log = (10_000, 10);
    c.run(10_000);
    assert!(c.primary().is_some(), "{}", c.describe(0));
    c
}

fn result(c: &mut Cluster, object: usize, ops: Vec<OsdOp>) -> Option<i32> {
    let primary = c.map().mapping().acting_primary.0;
    let tid = c.ask(primary, 1, object, 0, ops);
    for _ in 0..50 {
        c.run(200);
        if let Some(r) = c.answers.remove(&tid) {
            return Some(r.result);
        }
    }
    None
}

/// True if all recorded messages fit a connection; forgets them.
fn all_fit(c: &mut Cluster) -> bool {
    let sizes: Vec<(usize, usize)> = c.spied.drain(..).map(|(_, _, m)| (m.body.len() + 64, m.data.len())).collect();
    c.spies = 1_000_000;
    sizes.iter().all(|(front, data)| *front <= FRONT_MAX && *data <= DATA_MAX)
}

#[test]
fn the_largest_legal_vectors_reach_all_copies_and_are_recovered() {
    let mut mixes: Vec<(&str, Vec<OsdOp>)> = vec![
        ("attribute and data", vec![setxattr("a", VALUE_MAX), writesame(VECTOR_PAYLOAD_MAX - VALUE_MAX)]),
        (
            "many operations",
            (0..VECTOR_OPS_MAX / 16)
                .map(|i| if i % 2 == 0 { setxattr(&format!("x{i}"), 100) } else { omap_set(2, 1000) })
                .collect(),
        ),
    ];
    if std::env::var_os("PG_SIZES").is_some() {
        mixes.extend([
            ("data", vec![writesame(VECTOR_PAYLOAD_MAX)]),
            ("an attribute", vec![setxattr("a", VALUE_MAX)]),
            ("omap values", vec![omap_set(85, 1 << 20)]),
            ("an omap header", vec![OsdOp::with_indata(OpCode::OMAPSETHEADER, vec![7; VALUE_MAX].into())]),
            ("many keys", vec![omap_set(VECTOR_ENTRIES_MAX, 10)]),
        ]);
    }
    for (what, ops) in mixes {
        let mut c = quiet();
        assert!(all_fit(&mut c));
        assert_eq!(result(&mut c, 0, ops.clone()), Some(0), "{what}");
        assert!(all_fit(&mut c), "{what}: the write");
        // A member that was away gets the object by recovery.
        let member = 1 - c.map().mapping().acting_primary.0;
        c.crash(member);
        c.run(30_000);
        assert_eq!(result(&mut c, 0, ops), Some(0), "{what}");
        c.restart(member);
        for _ in 0..20 {
            c.run(10_000);
            if c.primary().is_some_and(pg::Pg::is_clean) {
                break;
            }
        }
        assert!(all_fit(&mut c), "{what}: recovery");
        assert!(c.primary().is_some_and(pg::Pg::is_clean), "{what}: {}", c.describe(0));
        assert!(c.contents(0) == c.contents(1), "{what}");
    }
}

/// The member's log takes smaller transactions than the primary's. The member gets the object in parts.
#[test]
fn a_write_that_exceeds_a_members_log_comes_in_parts() {
    let mut c = quiet();
    let member = 1 - c.map().mapping().acting_primary.0;
    c.osds[member as usize].disk.metadata = 64 << 10;
    let ops = vec![omap_set(2000, 100), setxattr("a", 30 << 10), setxattr("b", 30 << 10), setxattr("c", 30 << 10)];
    assert_eq!(result(&mut c, 0, ops), Some(0));
    c.run(30_000);
    assert!(c.failed.is_empty() && c.primary().is_some_and(pg::Pg::is_clean), "{}", c.describe(0));
    assert!(c.contents(0) == c.contents(1));
    // The primary's own log is the smaller one: the client hears of it, and nothing changed.
    let primary = 1 - member;
    c.osds[primary as usize].disk.metadata = 64 << 10;
    assert_eq!(result(&mut c, 1, vec![omap_set(2000, 100)]), Some(EMSGSIZE));
    assert_eq!(result(&mut c, 1, vec![OsdOp::new(OpCode::STAT)]), Some(ENOENT), "{}", object_name(1));
}

/// A value that the member's log can never take costs this object its copy, and no other.
#[test]
fn a_value_that_exceeds_a_members_log_fails_no_copy() {
    let mut c = quiet();
    let member = 1 - c.map().mapping().acting_primary.0;
    c.osds[member as usize].disk.metadata = 64 << 10;
    assert_eq!(result(&mut c, 0, vec![setxattr("a", 100 << 10)]), Some(0));
    c.run(30_000);
    assert!(c.failed.is_empty());
    assert!(c.log.iter().any(|l| l.contains("exceeds what the log of osd")), "{:?}", c.log);
    assert_eq!(result(&mut c, 1, vec![small()]), Some(0), "other objects are written");
    // The OSD has got a larger device.
    c.osds[member as usize].disk.metadata = usize::MAX;
    c.crash(member);
    c.run(30_000);
    c.restart(member);
    c.run(60_000);
    assert!(c.primary().is_some_and(pg::Pg::is_clean), "{}", c.describe(0));
    assert!(c.contents(0) == c.contents(1));
}
