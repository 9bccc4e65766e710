//! Vectors of the largest legal sizes, from planning to the copies and to recovery: every message between OSDs fits a
//! connection, and a copy whose log takes less keeps serving.
//!
//! `PG_SIZES=1` tries all kinds of operations instead of two mixes; that takes a minute. Another value is a part of the
//! names of those to try.

mod cluster;

use base::device::Device;
use base::errno::{E2BIG, EMSGSIZE, ENOENT, ENOSPC, Errno};
use base::sizes::{
    DATA_MAX, FRONT_MAX, OBJECT_MAX, VALUE_MAX, VECTOR_ENTRIES_MAX, VECTOR_OPS_MAX, VECTOR_PAYLOAD_MAX, WRITE_INPUT_MAX,
};
use bytes::Bytes;
use cluster::{Cluster, object_name};
use pg::limits::{DESCRIBE_BYTES, PIECE_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use store::engine::device::submit;
use store::engine::{self, Config, FormatOptions};
use store::{BLOCK, Op, ReadError, Tag, Transaction};
use wire::Encode as _;
use wire::WireMessage as _;
use wire::msg::osd_op::WriteSameArgs;
use wire::msg::{MOsdOp, OpCode, OpVec, OsdOp};
use wire::types::pg_state;

/// Bytes above which a message that is no write goes in pieces, and room for a header.
const LONG: usize = 2 * PIECE_BYTES + (64 << 10);

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

/// Bits of a PG that holds a place for recovery or backfill.
const RECOVERS: u64 = pg_state::RECOVERING | pg_state::BACKFILLING;

/// A quiet PG with two copies, and a spare OSD.
fn quiet() -> Cluster {
    let mut c = Cluster::new(8, 3, 2, 1, 2, 0);
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
        if let Some(r) = c.asked.answers.remove(&tid) {
            return Some(r.result);
        }
    }
    None
}

/// True if all recorded messages fit a connection; forgets them.
fn all_fit(c: &mut Cluster) -> bool {
    let sizes: Vec<(usize, usize)> = c.net.spied.drain(..).map(|(_, _, m)| (m.body.len() + 64, m.data.len())).collect();
    c.net.spies = 1_000_000;
    sizes.iter().all(|(front, data)| *front <= FRONT_MAX && *data <= DATA_MAX)
}

/// Bytes of the largest recorded message that is no write.
fn largest_beside_writes(c: &Cluster) -> usize {
    const WRITE: u8 = 8;
    let others = c.net.spied.iter().filter(|(_, _, m)| m.body.first() != Some(&WRITE));
    others.map(|(_, _, m)| m.body.len() + m.data.len()).max().unwrap_or(0)
}

/// A device that keeps what was written.
struct Written(u64, BTreeMap<u64, Bytes>);

impl Device for Written {
    fn bytes(&self) -> u64 {
        self.0
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        let block = |b: u64| self.1.get(&b).map_or([0; BLOCK as usize].as_slice(), |x| x);
        let one = |(off, len): &(u64, u64)| (off / BLOCK..(off + len) / BLOCK).map(block).collect::<Vec<_>>().concat();
        ranges.iter().map(|r| Ok(one(r).into())).collect()
    }
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno> {
        let mut at = off / BLOCK;
        for part in data {
            for n in 0..part.len() / BLOCK as usize {
                self.1.insert(at, part.slice(n * BLOCK as usize..(n + 1) * BLOCK as usize));
                at += 1;
            }
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// Submits a transaction to a store on a device of that size.
fn stored(txn: &Transaction, bytes: u64) -> Result<(), ReadError> {
    let mut dev = Written(bytes, BTreeMap::new());
    let how = FormatOptions { uuid: base::Uuid([7; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &how).unwrap();
    let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    let cid = txn.ops[0].cid();
    let made = Transaction { ops: vec![Op::MakeCollection { cid, bits: 0 }] };
    submit(&mut s, &mut dev, Tag(1), made.clone()).unwrap();
    let r = submit(&mut s, &mut dev, Tag(2), txn.clone());
    // Whether it was refused or not, the store goes on.
    let small = Transaction { ops: vec![Op::PgInfo { cid, info: Bytes::from_static(b"info") }] };
    submit(&mut s, &mut dev, Tag(3), small).unwrap();
    r
}

/// A client's message with these operations fits a connection and arrives as it was.
fn sent(ops: &[OsdOp]) -> bool {
    let m = MOsdOp { ops: OpVec::from_vec(ops.to_vec()), hash: 1, ..MOsdOp::default() };
    let encoded = m.to_message(wire::Features::PACIFIC);
    let back = MOsdOp::from_message(&encoded).unwrap();
    encoded.front.len() <= FRONT_MAX && encoded.data.len() <= DATA_MAX && back.ops.len() == ops.len()
}

/// Waits until the PG is clean; what recovery and scrub sent was bounded.
fn clean(c: &mut Cluster, what: &str) {
    for _ in 0..20 {
        c.run(10_000);
        if c.primary().is_some_and(pg::Pg::is_clean) {
            break;
        }
    }
    let largest = largest_beside_writes(c);
    assert!(largest <= LONG, "{what}: {largest} bytes in one message");
    assert!(all_fit(c) && c.primary().is_some_and(pg::Pg::is_clean), "{what}: {}", c.describe(0));
}

/// The largest vectors of some kinds; with `PG_SIZES` those of more kinds, or those that it names.
fn mixes() -> Vec<(&'static str, Vec<OsdOp>)> {
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
        mixes.extend(more_mixes());
    }
    if let Some(word) = std::env::var("PG_SIZES").ok().filter(|w| w != "1") {
        mixes.retain(|(what, _)| what.contains(&word));
        assert!(!mixes.is_empty(), "no mix has {word} in its name");
    }
    mixes
}

/// The largest vectors of the other kinds.
fn more_mixes() -> Vec<(&'static str, Vec<OsdOp>)> {
    let keys = |n: usize| {
        let all: BTreeSet<Bytes> = (0..n).map(|i| Bytes::from(format!("{i:08}"))).collect();
        OsdOp::with_indata(OpCode::OMAPRMKEYS, all.to_bytes(wire::Features::PACIFIC))
    };
    let write = |op, len| OsdOp::with_extent(op, 0, len as u64, vec![9; len].into());
    let extent = |op, off, len| OsdOp::with_extent(op, off, len, Bytes::new());
    vec![
        ("data", vec![writesame(VECTOR_PAYLOAD_MAX)]),
        ("an attribute", vec![setxattr("a", VALUE_MAX)]),
        ("omap values", vec![omap_set(85, 1 << 20)]),
        ("an omap value", vec![omap_set(1, VALUE_MAX)]),
        ("an omap header", vec![OsdOp::with_indata(OpCode::OMAPSETHEADER, vec![7; VALUE_MAX].into())]),
        ("many keys", vec![omap_set(VECTOR_ENTRIES_MAX, 10)]),
        ("removed keys", vec![small(), keys(VECTOR_ENTRIES_MAX)]),
        ("a write", vec![write(OpCode::WRITE, WRITE_INPUT_MAX)]),
        ("a whole write", vec![write(OpCode::WRITEFULL, WRITE_INPUT_MAX)]),
        ("an append", vec![small(), write(OpCode::APPEND, WRITE_INPUT_MAX - 5)]),
        (
            "holes",
            vec![
                writesame(VECTOR_PAYLOAD_MAX),
                extent(OpCode::ZERO, 5, OBJECT_MAX - 10),
                extent(OpCode::TRUNCATE, 7, 0),
                extent(OpCode::TRUNCATE, OBJECT_MAX - 1, 0),
            ],
        ),
        ("attributes", vec![small()].into_iter().chain((0..79).map(|i| setxattr(&format!("a{i}"), 1 << 20))).collect()),
        (
            "attributes that go",
            // As many as run in one part; `vectors.rs` has more.
            (0..1024)
                .map(|i| match i % 2 {
                    0 => setxattr(&format!("x{}", i / 2), 10),
                    _ => OsdOp::with_xattr(OpCode::RMXATTR, format!("x{}", i / 4).as_bytes(), &[], 0, 0),
                })
                .collect(),
        ),
        ("created and removed", vec![OsdOp::new(OpCode::CREATE), omap_set(85, 1 << 20), OsdOp::new(OpCode::OMAPCLEAR)]),
    ]
}

/// Each vector goes all the way: client's message, plan, transaction of the smallest devices that take it, message to
/// the member, recovery, backfill, scrub. Exports are tested where they are made (`belemnite store export`).
#[test]
fn the_largest_legal_vectors_reach_all_copies_and_are_recovered() {
    for (what, ops) in mixes() {
        largest_vector(what, ops);
    }
}

/// Sends a vector to a cluster, and brings its object to a member by recovery and to another OSD by backfill.
fn largest_vector(what: &str, ops: Vec<OsdOp>) {
    assert!(sent(&ops), "{what}: the client's message");
    let mut c = quiet();
    assert!(all_fit(&mut c));
    for o in &mut c.osds {
        o.disk.largest = Some(Transaction::new());
    }
    assert_eq!(result(&mut c, 0, ops.clone()), Some(0), "{what}");
    assert!(all_fit(&mut c), "{what}: the write");
    for n in 0..2 {
        let txn = c.osds[n].disk.largest.take().unwrap();
        // A device with the largest frames, and the smallest one.
        stored(&txn, 9 << 30).unwrap();
        if let Err(e) = stored(&txn, 64 << 20) {
            assert!(matches!(e, ReadError::Io { errno: E2BIG | ENOSPC, .. }), "{what}: {e}");
        }
    }
    // A member that was away gets the object by recovery.
    let member = 1 - c.map().mapping().acting_primary.0;
    c.crash(member);
    c.run(30_000);
    assert_eq!(result(&mut c, 0, ops), Some(0), "{what}");
    all_fit(&mut c);
    c.restart(member);
    clean(&mut c, what);
    // Another OSD gets all by backfill.
    c.change(|m| m.order = vec![0, 2, 1]);
    clean(&mut c, what);
    assert!(c.contents(0) == c.contents(2), "{what}");
    c.scrub(true, false);
    assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{what}: {:?}", c.log);
    clean(&mut c, what);
}

/// A member tells what its log takes at once, and the primary refuses what would leave the object degraded there.
#[test]
fn a_write_that_exceeds_the_log_a_member_told_is_refused() {
    for code in [None, Some((2, 1))] {
        let mut c = match code {
            None => quiet(),
            Some(code) => {
                let mut c = Cluster::coded(8, 3, code, 2, 0);
                (c.contended, c.load, c.keep_log) = (false, false, (10_000, 10));
                c.run(10_000);
                c
            }
        };
        let primary = c.map().mapping().acting_primary.0;
        let member = c.map().mapping().acting.iter().map(|o| o.0).find(|o| *o != primary).unwrap();
        c.osds[member as usize].disk.metadata = 2 << 20;
        c.crash(member);
        c.run(30_000);
        c.restart(member);
        c.run(30_000);
        assert!(c.primary().is_some_and(pg::Pg::is_clean), "{}", c.describe(0));
        for ops in [vec![setxattr("a", 3 << 20)], (0..5).map(|i| setxattr(&format!("x{i}"), 500 << 10)).collect()] {
            assert_eq!(result(&mut c, 0, ops), Some(EMSGSIZE), "{code:?}");
            assert_eq!(result(&mut c, 0, vec![OsdOp::new(OpCode::STAT)]), Some(ENOENT));
        }
        assert_eq!(result(&mut c, 0, vec![small(), setxattr("a", 1 << 20)]), Some(0));
        assert_eq!(result(&mut c, 0, vec![setxattr("b", 1 << 20)]), Some(0), "together more than a frame");
        c.run(20_000);
        assert!(c.primary().is_some_and(pg::Pg::is_clean) && c.log.is_empty(), "{:?}", c.log);
        if code.is_none() {
            assert!(c.contents(0) == c.contents(1));
        }
        // The member moves to a larger device.
        c.osds[member as usize].disk.metadata = usize::MAX;
        c.crash(member);
        c.run(30_000);
        c.restart(member);
        c.run(30_000);
        assert_eq!(result(&mut c, 1, vec![small(), setxattr("a", 3 << 20)]), Some(0), "{code:?}");
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

/// An OSD with a smaller log joins a PG: it lacks an object with a value that its log can't take. Writes of that object
/// and of others go on, no place for recovery is held, and the copy is whole when the value is gone.
#[test]
fn a_member_with_a_smaller_log_holds_up_nothing() {
    for backfill in [false, true] {
        let mut c = quiet();
        if backfill {
            c.keep_log = (1, 1);
            c.osds.iter_mut().filter_map(|o| o.pg.as_mut()).for_each(|p| p.keep_log(1, 1));
        }
        let member = 1 - c.map().mapping().acting_primary.0;
        c.crash(member);
        c.run(30_000);
        assert_eq!(result(&mut c, 0, vec![small(), setxattr("a", 100 << 10), setxattr("b", 10)]), Some(0));
        for o in 1..8 {
            assert_eq!(result(&mut c, o, vec![small()]), Some(0));
        }
        c.osds[member as usize].disk.metadata = 64 << 10;
        c.restart(member);
        c.run(30_000);
        assert!(c.failed.is_empty() && !c.primary().unwrap().is_clean(), "{}", c.describe(0));
        let said = |c: &Cluster| c.log.iter().filter(|l| l.contains("exceeds what the log of osd")).count();
        assert_eq!(said(&c), 1, "{:?}", c.log);
        assert_eq!(c.primary().unwrap().state_bits() & RECOVERS, 0, "no place is held: {}", c.describe(0));
        for o in 0..8 {
            assert_eq!(result(&mut c, o, vec![small()]), Some(0), "object {o}");
        }
        assert_eq!(result(&mut c, 0, vec![setxattr("c", 10)]), Some(0));
        let gone = OsdOp::with_xattr(OpCode::RMXATTR, b"a", &[], 0, 0);
        assert_eq!(result(&mut c, 0, vec![gone]), Some(0));
        c.run(30_000);
        assert!(c.primary().is_some_and(pg::Pg::is_clean), "{backfill} {}", c.describe(0));
        assert!(c.contents(0) == c.contents(1));
    }
}

/// The primary lacks an object with many clones and large attributes: other shards describe it in pages.
#[test]
fn shards_describe_a_large_family_in_pages() {
    const ATTR: usize = 3 << 20;
    let mut c = Cluster::coded(8, 3, (2, 1), 2, 0);
    (c.contended, c.load, c.keep_log) = (false, false, (10_000, 10));
    c.run(10_000);
    assert_eq!(result(&mut c, 0, vec![small()]), Some(0));
    let away = c.map().mapping().acting_primary.0;
    c.crash(away);
    c.run(30_000);
    c.asked.in_snaps = true;
    for n in 0..6 {
        c.take_snapshot();
        c.run(1_000);
        let mut ops = vec![small(), setxattr("a", ATTR + n)];
        if n == 5 {
            ops.push(setxattr("large", 30 << 20));
        }
        assert_eq!(result(&mut c, 0, ops), Some(0));
    }
    assert!(all_fit(&mut c));
    c.restart(away);
    for _ in 0..20 {
        c.run(10_000);
        if c.primary().is_some_and(pg::Pg::is_clean) {
            break;
        }
    }
    assert!(c.map().mapping().acting_primary.0 == away && c.primary().is_some_and(pg::Pg::is_clean));
    let answers = |code: u8| c.net.spied.iter().filter(move |(_, to, m)| *to == away && m.body.first() == Some(&code));
    let (pages, last) = (answers(57), answers(52));
    let largest = pages.chain(last).map(|(_, _, m)| m.data.len()).max().unwrap_or(0);
    assert!(answers(57).count() > 1 && largest <= DESCRIBE_BYTES + 2 * ATTR, "{largest} bytes");
    let largest = largest_beside_writes(&c);
    assert!(largest <= LONG && all_fit(&mut c), "{largest} bytes");
    cluster::shards::finish(&mut c);
}

/// A member that can't apply writes keeps a bounded number of them; its primary repeats the others.
#[test]
fn a_member_that_is_behind_keeps_few_writes() {
    const MOST: usize = 64 << 10;
    let mut c = quiet();
    let member = (1 - c.map().mapping().acting_primary.0) as usize;
    let pacer = std::rc::Rc::new(pg::pace::Pacer::default());
    pacer.set_applying_max(MOST);
    c.osds[member].pg.as_mut().unwrap().use_pacer(std::rc::Rc::clone(&pacer));
    c.osds[member].disk.full = true;
    let write = || OsdOp::with_extent(OpCode::WRITEFULL, 0, 8 << 10, vec![7; 8 << 10].into());
    let all: Vec<u64> = (0..100).map(|i| c.ask(0, 1, i % 4, 0, vec![write()])).collect();
    c.run(20_000);
    assert!((MOST / 2..=MOST).contains(&pacer.applying()), "{} bytes", pacer.applying());
    c.osds[member].disk.full = false;
    c.run(120_000);
    assert!(all.iter().all(|t| c.asked.answers.get(t).is_some_and(|r| r.result == 0)), "{}", c.describe(0));
    assert!(pacer.applying() == 0 && c.contents(0) == c.contents(1));
}

/// The log of a PG is longer than a message may be. `PG_SIZES=1` makes it 100,000 entries long.
#[test]
fn a_long_log_goes_through_peering_in_pieces() {
    let entries = if std::env::var_os("PG_SIZES").is_some() { 100_000 } else { 9_000 };
    let mut c = Cluster::new(8, 3, 3, 1, 2, 0);
    (c.contended, c.load, c.keep_log, c.asked.pads) = (false, false, (200_000, 10), 1900);
    c.osds.iter_mut().filter_map(|o| o.pg.as_mut()).for_each(|pg| pg.keep_log(200_000, 10));
    c.run(10_000);
    let first = c.map().mapping().acting_primary.0;
    let (second, third) = ((first + 1) % 3, (first + 2) % 3);
    c.crash(first);
    c.crash(third);
    c.run(40_000);
    assert_eq!(c.map().mapping().acting_primary.0, second);
    let write = || vec![OsdOp::with_extent(OpCode::WRITE, 0, 1, Bytes::from_static(b"x"))];
    let mut sent = Vec::new();
    for n in 0..entries {
        sent.push(c.ask(second, 1, n % 50, 0, write()));
        if n % 200 == 0 {
            c.run(100);
        }
    }
    c.run(2_000);
    assert!(sent.iter().all(|t| c.asked.answers.get(t).is_some_and(|a| a.result == 0)));
    all_fit(&mut c);
    // The new primary gets the log from that copy, and sends it to the third one.
    c.restart(first);
    c.restart(third);
    for _ in 0..20 {
        c.run(5_000);
        if c.primary().is_some_and(pg::Pg::is_clean) {
            break;
        }
    }
    assert!(c.primary().is_some_and(pg::Pg::is_clean), "{}", c.describe(0));
    assert_eq!(c.map().mapping().acting_primary.0, first);
    for (from, to) in [(second, first), (first, third)] {
        let pieces = c.net.spied.iter().filter(|(f, t, m)| (*f, *t) == (from, to) && m.data.len() == PIECE_BYTES);
        assert!(pieces.count() > 1, "from osd.{from} to osd.{to}");
    }
    let largest = largest_beside_writes(&c);
    assert!(largest <= LONG && all_fit(&mut c), "{largest} bytes");
    let newest =
        |c: &Cluster, o: i32| c.osds[o as usize].pg.as_ref().map(|p| (p.info().last_update, p.info().log_tail));
    assert!(newest(&c, first) == newest(&c, second) && newest(&c, first) == newest(&c, third));
    assert!(
        newest(&c, first).is_some_and(|(v, tail)| v.version - tail.version >= entries as u64),
        "nothing is trimmed"
    );
}
