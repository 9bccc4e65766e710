//! Faults while writes are deferred and shards are behind: full disks, bit rot, orderly stops, successive deaths of
//! primaries, lying peers, and clients that make large records.

mod cluster;

use base::{HObject, PoolId, SnapId};
use bytes::Bytes;
use cluster::rest::{BLOCK, OBJECT, Rest, extent};
use cluster::shards::check;
use cluster::{POOL, hash, object_name};
use pg::Event;
use pg::peer::Body;
use store::{Cid, Oid};
use wire::msg::{MPgPeer, OpCode, OsdOp, msg_flags};

/// The object in the stores.
fn oid() -> Oid {
    let name = object_name(OBJECT);
    Oid::new(HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() }.head())
}

/// Overwrites chunks so that shards 1, 2 and 3 lack the newest records; shard 1 lacks fewer than the others.
fn behind(r: &mut Rest) {
    for i in 0..3 {
        r.write(0, 50 + i);
    }
    r.write(1, 60);
    for i in 0..3 {
        r.write(4, 70 + i);
    }
    let v = r.last_updates();
    assert!(v[0] == v[4] && v[4] == v[5] && v[0] == v[1] + 3 && v[1] > v[2] && v[2] == v[3], "{v:?}");
}

/// The disk of a spared shard is full. The records kept for it are bounded: at the bound clients wait, as for a full
/// copy.
#[test]
fn a_full_shard_delays_writes_and_memory_stays_bounded() {
    let mut r = Rest::new(300, 6, (4, 2));
    r.c.osds[1].disk.full = true;
    let mut all = Vec::new();
    for i in 0..1500u64 {
        all.push(r.begin(0, i as u8));
        r.c.run(5);
    }
    r.c.run(20_000);
    let answered = |r: &Rest| all.iter().filter(|t| r.c.asked.answers.contains_key(t)).count();
    let n = answered(&r);
    assert!((32..1000).contains(&n), "{n} of 1500 are acknowledged without a shard that has none of them");
    r.c.osds[1].disk.full = false;
    r.c.run(30_000);
    assert_eq!(answered(&r), 1500, "{}", r.c.describe(0));
    r.reads_right();
    r.finish();
}

/// Logs have the shortest length that can be set, and the interval ends: copies trim, but no record that one of them
/// was not sent.
#[test]
fn no_shard_trims_a_record_that_another_one_was_not_sent() {
    let mut r = Rest::new(301, 6, (4, 2));
    r.c.keep_log = (5, 8);
    for o in &mut r.c.osds {
        o.pg.as_mut().unwrap().keep_log(5, 8);
    }
    // Copies count their surplus records when an interval starts, so they trim at the end of the next one.
    (0..8).for_each(|i| r.write(0, i));
    r.c.crash(5);
    r.c.run(30_000);
    r.c.restart(5);
    r.c.run(10_000);
    r.quiet();
    let all: Vec<u64> = (0..30).map(|i| r.begin(0, i)).collect();
    r.c.run(300);
    assert!(all.iter().all(|t| r.c.asked.answers.contains_key(t)));
    let v = r.last_updates();
    assert!(v[0] > v[1] + 10 && v[4] == v[0], "{v:?}");
    r.c.crash(0);
    r.c.run(60_000);
    r.reads_right();
    r.c.crash(5);
    r.c.restart(0);
    r.c.run(60_000);
    r.reads_right();
    r.finish();
}

/// The metadata of an object becomes unreadable on a shard that is to get deferred records: that object is rebuilt
/// there, and the shard goes on.
#[test]
fn unreadable_metadata_on_a_shard_that_is_behind_costs_only_that_object() {
    for osd in 1..4 {
        let mut r = Rest::new(310 + osd as u64, 6, (4, 2));
        behind(&mut r);
        r.c.osds[osd].disk.rotten.insert(oid());
        r.quiet();
        assert!(r.c.osds[osd].disk.rotten.is_empty(), "it was replaced");
        r.reads_right();
        r.finish();
    }
}

/// The same when the primary dies: the records come with its successor's log, or the successor's own metadata is
/// unreadable.
#[test]
fn unreadable_metadata_before_a_log_merge_costs_only_that_object() {
    for osd in 1..4 {
        let mut r = Rest::new(320 + osd as u64, 6, (4, 2));
        behind(&mut r);
        r.c.osds[osd].disk.rotten.insert(oid());
        r.c.crash(0);
        r.c.run(60_000);
        assert!(r.c.osds[osd].disk.rotten.is_empty(), "it was replaced");
        r.reads_right();
        r.finish();
    }
}

/// Data becomes unreadable on `m` shards that are behind. A read of the object, or a scrub, finds and rebuilds it.
#[test]
fn unreadable_data_on_shards_that_are_behind_is_rebuilt() {
    for (seed, scrubs) in [(330, false), (331, true)] {
        let mut r = Rest::new(seed, 6, (4, 2));
        behind(&mut r);
        for osd in [2, 3] {
            r.c.osds[osd].disk.spoiled.insert(oid());
        }
        if scrubs {
            r.c.scrub(true, true);
        } else {
            r.reads_right();
            r.write(0, 1);
            r.quiet();
        }
        assert!(r.c.osds.iter().all(|o| o.disk.spoiled.is_empty()), "they were replaced");
        r.finish();
    }
}

/// All OSDs are stopped in order, one after the other, and not all of them come back.
#[test]
fn a_clean_stop_of_all_osds_loses_no_deferred_write() {
    for gone in 0..6 {
        let mut r = Rest::new(340 + gone as u64, 6, (4, 2));
        behind(&mut r);
        for n in 0..6 {
            r.c.give(n, Event::Stop);
            r.c.run(20);
            r.c.crash(n);
        }
        for n in (0..6).filter(|n| *n != gone) {
            r.c.restart(n);
        }
        r.c.run(60_000);
        r.reads_right();
        r.finish();
    }
}

/// The primary dies, and the next primary dies while it peers, at each step of peering.
#[test]
fn primaries_that_die_one_after_the_other_lose_nothing() {
    for step in 0..40u64 {
        let mut r = Rest::new(400 + step, 6, (4, 2));
        behind(&mut r);
        r.c.crash(0);
        let mut ms = 0;
        while r.c.map().mapping().acting_primary.0 == 0 {
            r.c.run(1);
            ms += 1;
            assert!(ms < 60_000);
        }
        r.c.run(step * 2);
        r.c.crash(1);
        if step % 2 == 0 {
            r.c.run(30_000);
        }
        r.c.restart(if step % 3 == 0 { 1 } else { 0 });
        r.c.run(60_000);
        r.reads_right();
        r.write(0, 99);
        r.finish();
    }
}

/// Falsifies answers to the question which shards entries touch.
fn touched_otherwise(
    m: &mut MPgPeer,
    f: impl FnOnce(&mut base::Eversion, &mut base::Eversion, &mut Vec<(base::Eversion, u32)>),
) {
    if let Ok(Body::Touched { mut since, mut upto, mut entries }) = Body::decode(&m.body, &m.data, Cid::Pg(m.spg)) {
        f(&mut since, &mut upto, &mut entries);
        (m.body, m.data) = Body::Touched { since, upto, entries }.encode();
    }
}

fn fewer(_: i32, m: &mut MPgPeer) {
    touched_otherwise(m, |_, _, all| all.iter_mut().for_each(|e| e.1 = 0));
}

fn backwards(_: i32, m: &mut MPgPeer) {
    touched_otherwise(m, |_, _, all| all.reverse());
}

fn beyond(_: i32, m: &mut MPgPeer) {
    touched_otherwise(m, |_, upto, all| all.push((base::Eversion { version: upto.version + 1000, ..*upto }, 0)));
}

fn of_older_ones(_: i32, m: &mut MPgPeer) {
    touched_otherwise(m, |since, _, all| all.insert(0, (*since, u32::MAX)));
}

fn another_end(_: i32, m: &mut MPgPeer) {
    touched_otherwise(m, |_, upto, _| upto.version += 7);
}

fn another_question(_: i32, m: &mut MPgPeer) {
    touched_otherwise(m, |since, _, _| since.version = 0);
}

fn no_message(_: i32, m: &mut MPgPeer) {
    if matches!(Body::decode(&m.body, &m.data, Cid::Pg(m.spg)), Ok(Body::Touched { .. })) {
        m.body = Bytes::copy_from_slice(&m.body[..m.body.len() - 3]);
    }
}

fn many(_: i32, m: &mut MPgPeer) {
    if matches!(Body::decode(&m.body, &m.data, Cid::Pg(m.spg)), Ok(Body::Touched { .. })) {
        // The count of the entries behind the kind and two versions.
        let mut b = m.body.to_vec();
        let at = 1 + 12 + 12;
        b[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        m.body = b.into();
    }
}

/// The holder of the longest log gives invalid answers. The PG may wait meanwhile, but loses no acknowledged write.
#[test]
fn an_invalid_list_of_touched_shards_loses_no_write() {
    let lies: [fn(i32, &mut MPgPeer); 8] =
        [fewer, backwards, beyond, of_older_ones, another_end, another_question, no_message, many];
    for (n, lie) in lies.into_iter().enumerate() {
        let mut r = Rest::new(500 + n as u64, 6, (4, 2));
        behind(&mut r);
        r.c.net.lies = Some(lie);
        r.c.net.spies = usize::MAX;
        r.c.crash(0);
        r.c.run(30_000);
        r.c.net.lies = None;
        r.c.net.spies = 0;
        let asks = |m: &MPgPeer| {
            matches!(Body::decode(&m.body, &m.data, Cid::Pg(m.spg)), Ok(Body::GetTouched { .. } | Body::Query))
        };
        let asked = std::mem::take(&mut r.c.net.spied).iter().filter(|(_, _, m)| asks(m)).count();
        assert!(asked < 100, "lie {n}: {asked} questions");
        r.c.run(60_000);
        // A shard with an invalid answer counts as failed until its OSD restarts.
        for o in 1..6 {
            r.c.crash(o);
            r.c.run(1_000);
            r.c.restart(o);
            r.c.run(30_000);
        }
        r.reads_right();
        r.finish();
    }
}

/// A snapshot is taken while shards are behind: the next write clones an object whose newest records they lack.
#[test]
fn a_clone_is_made_on_shards_that_are_behind() {
    for dies in 0..6 {
        let mut r = Rest::new(520 + dies as u64, 6, (4, 2));
        behind(&mut r);
        let old = r.data.clone();
        r.c.take_snapshot();
        r.c.asked.in_snaps = true;
        r.c.run(500);
        r.write(2, 33);
        r.write(0, 34);
        r.write(4, 35);
        r.c.crash(dies);
        r.c.run(40_000);
        r.write(0, 36);
        r.c.restart(dies);
        r.quiet();
        check(&mut r.c);
        let new = std::mem::replace(&mut r.data, old);
        r.c.asked.at_snap = SnapId(1);
        r.reads_right();
        r.data = new;
        r.c.asked.at_snap = SnapId::HEAD;
        r.finish();
    }
}

/// A client's write keeps the results of many operations in its record: such a record is not deferred.
#[test]
fn large_records_are_not_deferred() {
    let mut r = Rest::new(540, 6, (4, 2));
    r.ask(OsdOp::with_xattr(OpCode::SETXATTR, b"a", &[7; 60], 0, 0), 300);
    r.quiet();
    let before = r.spared();
    let mut ops = vec![OsdOp::with_xattr(OpCode::GETXATTR, b"a", b"", 0, 0); 1000];
    let new = Bytes::from(vec![1; BLOCK]);
    r.data[..BLOCK].copy_from_slice(&new);
    ops.push(extent(OpCode::WRITE, 0, new));
    let tid = r.c.ask(0, 1, OBJECT, msg_flags::RETURNVEC, ops);
    r.c.run(300);
    let a = &r.c.asked.answers[&tid];
    assert!(a.result >= 0 && a.ops[0].outdata.len() == 60, "{}", a.result);
    assert_eq!(r.spared(), before, "all shards have it");
    let v = r.last_updates();
    assert!(v.iter().all(|n| *n == v[0]), "{v:?}");
    r.write(0, 2);
    assert_eq!(r.spared() - before, 3, "a small one is deferred");
    r.finish();
}

/// An OSD replaces a dead one while shards are behind, and the log is trimmed during its backfill.
#[test]
fn an_osd_is_filled_while_shards_are_behind() {
    let mut r = Rest::new(550, 7, (4, 2));
    behind(&mut r);
    r.c.keep_log = (10, 1);
    for o in &mut r.c.osds {
        if let Some(p) = o.pg.as_mut() {
            p.keep_log(10, 1);
        }
    }
    r.c.crash(3);
    r.c.change(|m| {
        m.up[3] = false;
        m.order = vec![0, 1, 2, 6, 4, 5, 3];
    });
    for i in 0..60u8 {
        r.begin([0, 0, 4, 1][usize::from(i % 4)], i);
        r.c.run(100);
    }
    r.c.run(40_000);
    r.reads_right();
    r.c.restart(3);
    r.finish();
}
