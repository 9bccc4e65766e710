//! Do shards that a write does not touch take no part in it, and does the PG still lose nothing?

mod cluster;

use base::HObject;
use bytes::Bytes;
use cluster::Cluster;
use cluster::rest::{BLOCK, CHUNKS, Rest, extent};
use cluster::shards::{check, shard};
use pg::peer::Body;
use std::collections::{BTreeMap, BTreeSet};
use store::Cid;
use wire::msg::{MPgPeer, OpCode, OsdOp};

/// With 4+2 three shards take part in an overwrite of a block on the primary's shard, and four if it is on another
/// shard; with 2+1 two or three. No other OSD has a transaction or gets a message of the PG.
#[test]
fn an_overwrite_is_sent_to_the_shards_that_it_touches_and_to_no_other() {
    for (shape, takes_part) in [((4u8, 2u8), 3), ((2, 1), 2)] {
        let (k, n) = (usize::from(shape.0), usize::from(shape.0 + shape.1));
        let mut r = Rest::new(60, n, shape);
        for chunk in 0..2 * k {
            r.quiet();
            let before = r.spared();
            r.c.osds.iter_mut().for_each(|o| o.disk.transactions = 0);
            r.c.net.spies = usize::MAX;
            r.c.net.spied.clear();
            r.write(chunk, 100 + chunk as u8);
            r.c.net.spies = 0;
            let touched: BTreeSet<usize> = [0, chunk % k].into_iter().chain(k..n).collect();
            assert_eq!(touched.len(), takes_part + usize::from(chunk % k != 0));
            let wrote: BTreeSet<usize> = (0..n).filter(|o| r.c.osds[*o].disk.transactions > 0).collect();
            assert_eq!(wrote, touched, "chunk {chunk}");
            for o in touched.iter().filter(|o| **o != 0) {
                assert_eq!(r.c.osds[*o].disk.transactions, 1, "osd.{o}, chunk {chunk}");
            }
            let mut heard: BTreeMap<i32, usize> = BTreeMap::new();
            for (from, to, m) in std::mem::take(&mut r.c.net.spied) {
                match Body::decode(&m.body, &m.data, Cid::Pg(m.spg)).unwrap() {
                    // The primary reads the only other data chunk (one block) instead of the old bytes of the chunk and
                    // of the code (two blocks).
                    Body::ShardRead { .. } | Body::ShardData { .. } if k == 2 => continue,
                    Body::ShardRead { .. } | Body::ShardData { .. } | Body::WriteAck { .. } => {}
                    Body::Write { .. } => *heard.entry(to).or_default() += 1,
                    b => panic!("{from} to {to}: {b:?}"),
                }
                assert!(touched.contains(&(to as usize)) && touched.contains(&(from as usize)), "{from} to {to}");
            }
            assert_eq!(heard, touched.iter().filter(|o| **o != 0).map(|o| (*o as i32, 1)).collect());
            assert_eq!(r.spared() - before, (n - touched.len()) as u64);
            r.reads_right();
        }
        r.quiet();
        assert!(r.last_updates().windows(2).all(|w| w[0] == w[1]), "in the end all have all records");
        r.finish();
    }
}

/// A shard is at most one batch behind, and gets the deferred records with the next write that touches it.
#[test]
fn deferred_writes_come_with_the_next_write_or_as_a_batch() {
    let mut r = Rest::new(61, 6, (4, 2));
    for i in 0..5 {
        r.write(0, i);
    }
    let v = r.last_updates();
    assert_eq!((v[0] - v[1], v[0] - v[2], v[4], v[5]), (5, 5, v[0], v[0]));
    r.write(1, 77);
    let v = r.last_updates();
    assert_eq!((v[0] - v[1], v[0] - v[2]), (0, 6));
    r.reads_right();
    for i in 0..40u8 {
        let new = Bytes::from(vec![i; BLOCK]);
        r.data[..BLOCK].copy_from_slice(&new);
        r.send(extent(OpCode::WRITE, 0, new));
    }
    r.c.run(300);
    let v = r.last_updates();
    assert!(v[0] - v[2] < 32, "{v:?}");
    r.reads_right();
    r.finish();
}

/// The primary and a coding shard die: with them two of the three that had the newest writes.
#[test]
fn acknowledged_writes_survive_the_primary_and_a_coding_shard() {
    for coding in [4, 5] {
        let mut r = Rest::new(62 + coding as u64, 6, (4, 2));
        for i in 0..7 {
            r.write(0, 10 + i);
            r.write(4, 20 + i);
        }
        r.write(1, 99);
        r.write(0, 98);
        let v = r.last_updates();
        assert!(v[0] > v[1] && v[1] > v[2] && v[2] == v[3], "{v:?}");
        r.c.crash(0);
        r.c.crash(coding);
        r.c.run(40_000);
        r.c.restart(coding);
        r.c.run(20_000);
        assert_eq!(r.c.map().mapping().acting_primary.0, 1, "{}", r.c.describe(1));
        r.reads_right();
        let v = r.last_updates();
        assert!(v[1] == v[2] && v[2] == v[3] && v[3] == v[4] && v[4] == v[5], "{v:?}");
        r.finish();
    }
}

/// Any two shards may be lost at any time: no acknowledged write is lost, and spared shards recover nothing.
#[test]
fn any_two_shards_may_die() {
    for (a, b) in (0..6).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let mut r = Rest::new(70 + (a * 6 + b) as u64, 6, (4, 2));
        for chunk in [0, 1, 0, 2, 4, 5, 0] {
            r.write(chunk, (a * 16 + b) as u8 ^ chunk as u8);
        }
        r.c.crash(a);
        r.c.crash(b);
        r.c.run(40_000);
        r.c.restart(b);
        r.c.run(20_000);
        r.reads_right();
        r.write(0, 1);
        r.finish();
    }
}

/// No write gets to shard 1.
fn lost_on_the_way(_: i32, m: &mut MPgPeer) {
    if m.spg.shard.0 == 1 && matches!(Body::decode(&m.body, &m.data, Cid::Pg(m.spg)), Ok(Body::Write { .. })) {
        m.body = Bytes::new();
    }
}

/// Peering chooses a version at which no log ends: after entries that spare a shard, and before one that was not sent
/// to it.
#[test]
fn a_write_that_one_shard_lacks_is_undone_and_earlier_ones_stay() {
    let mut r = Rest::new(110, 6, (4, 2));
    for i in 0..3 {
        r.write(0, 50 + i);
    }
    // The write reaches all shards but the one with the block.
    r.c.net.lies = Some(lost_on_the_way);
    let tid = r.send(extent(OpCode::WRITE, BLOCK, Bytes::from(vec![200; BLOCK])));
    r.c.run(300);
    // The coding shards have it, and it is not acknowledged.
    let v = r.last_updates();
    assert!(!r.c.asked.answers.contains_key(&tid) && v[4] == v[0] && v[1] + 4 == v[0] && v[2] == v[1], "{v:?}");
    let objects = r.c.primary().unwrap().info().stats;
    r.c.crash(0);
    r.c.net.lies = None;
    r.c.run(40_000);
    assert_eq!(r.c.map().mapping().acting_primary.0, 1);
    let now = r.last_updates();
    assert_eq!(now[1..], [v[0] - 1; 5], "back to the entry before");
    r.reads_right();
    let stats = r.c.primary().unwrap().info().stats;
    assert_eq!((stats.num_objects, stats.num_bytes), (objects.num_objects, objects.num_bytes));
    assert_eq!(stats.num_wr + 1, objects.num_wr, "what is undone is not counted");
    r.finish();
}

/// The same, but the primary survives and undoes its own entry.
#[test]
fn a_primary_undoes_a_write_that_did_not_reach_the_touched_shard() {
    let mut r = Rest::new(111, 6, (4, 2));
    for i in 0..3 {
        r.write(0, 50 + i);
    }
    r.c.net.lies = Some(lost_on_the_way);
    let tid = r.send(extent(OpCode::WRITE, BLOCK, Bytes::from(vec![200; BLOCK])));
    r.c.run(300);
    assert!(!r.c.asked.answers.contains_key(&tid));
    r.c.crash(5);
    r.c.net.lies = None;
    r.c.run(40_000);
    r.c.restart(5);
    r.c.run(20_000);
    // The operation is repeated in the next interval.
    assert!(r.c.asked.answers.contains_key(&tid));
    r.data[BLOCK..2 * BLOCK].fill(200);
    r.reads_right();
    r.finish();
}

/// The last write spared a shard that is not a member any more, and the new member in its place lacks the object: the
/// stray's bytes are needed.
#[test]
fn a_spared_stray_gives_its_bytes() {
    // OSDs 1 and 4 alternate as holders of shard 1.
    let mut r = Rest::new(112, 6, (2, 1));
    let order = |first: i32| move |m: &mut cluster::map::Map| m.order = vec![0, first, 2, 1, 4, 3, 5];
    r.c.change(order(4));
    r.c.run(30_000);
    r.quiet();
    r.c.crash(4);
    r.c.run(1_000);
    r.c.change(order(1));
    r.c.run(60_000);
    r.quiet();
    assert_eq!(r.c.map().mapping().acting[1].0, 1);
    r.write(1, 33);
    r.write(0, 44);
    let v = r.last_updates();
    assert!(v[1] + 1 == v[0] && v[2] == v[0], "{v:?}");
    // The other OSD comes back only now, and its log reaches the newest version. The primary stops.
    r.c.crash(0);
    r.c.restart(4);
    r.c.change(order(4));
    r.c.run(60_000);
    r.reads_right();
    r.finish();
}

/// Writes, deaths and reads alternate, with deferred records of many objects.
#[test]
fn deferred_writes_survive_resets_and_restarts_at_any_time() {
    for seed in 200..212 {
        let shape = [(4, 2), (2, 1), (3, 2)][seed as usize % 3];
        let n = i32::from(shape.0 + shape.1);
        let mut r = Rest::new(seed, n as usize, shape);
        let mut rng = base::rng::Rng::new(seed);
        for round in 0..6 {
            for i in 0..rng.below(50) {
                let chunk = if rng.chance(2, 3) { 0 } else { rng.below(CHUNKS as u64) as usize };
                let new = Bytes::from(vec![(round * 50 + i) as u8; BLOCK]);
                r.data[chunk * BLOCK..][..BLOCK].copy_from_slice(&new);
                r.send(extent(OpCode::WRITE, chunk * BLOCK, new));
                if rng.chance(1, 8) {
                    let (a, b) = (rng.below(n as u64) as i32, rng.below(n as u64) as i32);
                    if a != b {
                        r.c.reset_session(a, b);
                    }
                }
            }
            // All are acknowledged.
            r.c.run(8_000);
            let gone = rng.below(n as u64) as i32;
            r.c.crash(gone);
            r.c.run(1 + rng.below(30_000));
            r.c.restart(gone);
            r.c.run(20_000);
            r.reads_right();
        }
        r.finish();
    }
}

/// Attributes are deferred with their records, also those that a client sets beside bytes.
#[test]
fn spared_shards_get_attributes_later() {
    let mut r = Rest::new(120, 6, (4, 2));
    let tid = {
        let primary = r.c.map().mapping().acting_primary.0;
        let new = Bytes::from(vec![5; BLOCK]);
        r.data[..BLOCK].copy_from_slice(&new);
        let set = OsdOp::with_xattr(OpCode::SETXATTR, b"name", b"value", 0, 0);
        r.c.ask(primary, 1, 10, 0, vec![extent(OpCode::WRITE, 0, new), set])
    };
    r.c.run(300);
    assert_eq!(r.c.asked.answers[&tid].result, 0);
    let has = |c: &mut Cluster, o: i32| {
        let all = shard(c, o);
        let (_, attrs) = all.iter().find(|(h, _): &(&HObject, _)| h.snap == base::SnapId::HEAD).unwrap().1;
        attrs.iter().any(|(k, v)| &k[..] == b"_name" && &v[..] == b"value")
    };
    let there: Vec<bool> = (0..6).map(|o| has(&mut r.c, o)).collect();
    assert_eq!(there, [true, false, false, false, true, true]);
    r.quiet();
    assert!((0..6).all(|o| has(&mut r.c, o)));
    check(&mut r.c);
    r.finish();
}
