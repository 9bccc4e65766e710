//! Trimming of removed snapshots: what it does for many of them, for stale index keys, and for unreadable objects.

mod cluster;
mod common;

use base::{HObject, PoolId, SnapId};
use cluster::{Cluster, hash as cluster_hash, object_name};
use common::*;
use store::{Cid, ObjectStore as _, Oid, Op, Tag, Transaction};
use wire::msg::{OpCode, OsdOp};

/// The object with the PG's snapshot index.
fn index() -> Oid {
    Oid::new(HObject { pool: PoolId(POOL), snap: SnapId::HEAD, ..HObject::min() })
}

fn clone_of(name: &str, snap: u64) -> HObject {
    let oid = bytes(name.as_bytes());
    HObject { pool: PoolId(POOL), hash: hash(name), oid, ..HObject::min() }.at_snap(SnapId(snap))
}

/// An object with a clone of each of these snapshots.
fn with_clones(w: &mut World, name: &str, snaps: &[u64]) {
    let mut all = Vec::new();
    w.set_snaps(0, &[]);
    assert_eq!(w.op(name, vec![write(0, b"first")]).result, 0);
    for s in snaps {
        all.insert(0, *s);
        w.set_snaps(*s, &all);
        w.pool.snap_seq = w.pool.snap_seq.max(*s);
        assert_eq!(w.op(name, vec![write(0, s.to_string().as_bytes())]).result, 0);
    }
    assert_eq!(w.pg.info().stats.num_object_clones, snaps.len() as i64);
    w.set_snaps(0, &[]);
}

/// Time in which the pacer lets all trimming go on.
fn rest(w: &mut World) {
    (0..40).for_each(|_| w.advance(500));
}

#[test]
fn an_index_key_of_a_clone_that_stands_for_another_snapshot_is_dropped() {
    let mut w = World::new();
    with_clones(&mut w, "a", &[5]);
    // As after a push over an unreadable object: the index says 6, the clone is of 5.
    let key = pg::snap_index_key(6, &clone_of("a", 5));
    let entries = vec![(key, bytes(b""))];
    w.store.submit(Tag(0), Transaction { ops: vec![Op::OmapSet { cid: Cid::Pg(w.cfg.spg), oid: index(), entries }] });
    while w.store.poll_event().is_some() {}
    let before = w.pg.info().last_update;
    w.pool.removed_snaps.insert(6, 1);
    w.next_map();
    rest(&mut w);
    assert_eq!(w.pg.purged_snaps(), [(6, 1)]);
    assert_eq!(w.pg.info().last_update, before, "nothing changed for clients");
    assert_eq!(w.pg.info().stats.num_object_clones, 1);
    w.pool.removed_snaps.insert(5, 1);
    w.next_map();
    rest(&mut w);
    assert_eq!((w.pg.purged_snaps(), w.pg.info().stats.num_object_clones), (vec![(5, 2)], 0));
}

/// Snapshots come and go in any order; each clone is trimmed once its snapshots are removed, also after a restart.
#[test]
fn snapshots_removed_in_any_order_are_purged() {
    for seed in 0..6 {
        let mut r = base::rng::Rng::new(seed);
        let mut w = World::new();
        let mut alive: Vec<u64> = (1..=60).map(|n| n * 3).collect();
        with_clones(&mut w, "a", &alive);
        while !alive.is_empty() {
            for _ in 0..=r.below(5) {
                if alive.is_empty() {
                    break;
                }
                let gone = alive.remove(r.below(alive.len() as u64) as usize);
                w.pool.removed_snaps.insert(gone, 1);
                // Snapshots without any clone.
                let free = 1000 + 2 * r.below(500);
                w.pool.removed_snaps.insert(free, 1);
            }
            match r.below(4) {
                0 => w.restart(),
                1 if !w.pg.purged_snaps().is_empty() => {
                    // The monitor takes what is purged off the queue.
                    let (s, l) = w.pg.purged_snaps()[0];
                    w.pool.removed_snaps.erase(s, l);
                    w.next_map();
                }
                _ => w.next_map(),
            }
            if r.chance(2, 3) {
                rest(&mut w);
                assert_eq!(w.pg.info().stats.num_object_clones, alive.len() as i64, "seed {seed}");
                assert!(w.pool.removed_snaps.iter().eq(w.pg.purged_snaps()), "seed {seed}");
            }
        }
        rest(&mut w);
        assert_eq!(w.pg.info().stats.num_object_clones, 0);
    }
}

#[test]
fn a_hundred_thousand_snapshots_without_clones_take_no_transaction_and_few_reads() {
    let mut w = World::new();
    with_clones(&mut w, "a", &[100_000, 100_002]);
    (0..100_000u64).for_each(|n| w.pool.removed_snaps.insert(2 * n + 1, 1));
    let (before, from) = (w.pg.info().clone(), w.store.omap_rows);
    w.next_map();
    rest(&mut w);
    assert!(w.store.omap_rows - from <= 4, "{} rows", w.store.omap_rows - from);
    assert_eq!(w.pg.info().last_update, before.last_update);
    let purged = w.pg.purged_snaps();
    assert_eq!((purged.len(), purged[0], purged[511]), (512, (1, 1), (1023, 1)), "a bounded part is reported");
    assert_eq!(w.pg.report(w.now).snaptrimq_len, 0);
    assert!(w.pg.info().to_blob().len() <= before.to_blob().len() + 64, "the stored info does not grow");
    // One more, and one that was left out.
    w.pool.removed_snaps.insert(500_001, 1);
    w.pool.removed_snaps.insert(100_002, 1);
    let from = w.store.omap_rows;
    w.next_map();
    rest(&mut w);
    assert!(w.store.omap_rows - from <= 8, "{} rows", w.store.omap_rows - from);
    assert_eq!((w.pg.report(w.now).snaptrimq_len, w.pg.info().stats.num_object_clones), (0, 1));
}

fn head(object: usize) -> HObject {
    let name = object_name(object);
    HObject { pool: PoolId(cluster::POOL), hash: cluster_hash(&name), oid: name.into(), ..HObject::min() }.head()
}

fn size(c: &mut Cluster, object: usize) -> Option<i32> {
    let t = c.ask(0, 1, object, 0, vec![OsdOp::new(OpCode::STAT)]);
    c.run(5_000);
    c.asked.answers.remove(&t).map(|r| r.result)
}

/// The only copy has an object whose metadata can't be read. All others are trimmed or copied to a new OSD.
#[test]
fn unreadable_metadata_of_one_object_fails_no_last_copy() {
    for backfill in [false, true] {
        let mut c = Cluster::new(61, 2, 1, 1, 4, 2);
        c.run(5_000);
        c.take_snapshot();
        c.run(10_000);
        c.settle();
        // The caches are empty after a restart.
        c.crash(0);
        c.osds[0].disk.rotten.insert(Oid::new(head(1)));
        c.restart(0);
        c.run(10_000);
        if backfill {
            c.change(|m| m.size = 2);
        } else {
            c.remove_snapshot();
        }
        c.run(60_000);
        assert!(c.failed.is_empty(), "{:?}", c.failed);
        let results = [0, 1, 2, 3].map(|o| size(&mut c, o));
        assert_eq!(results[1], Some(base::errno::EIO), "{results:?}");
        assert!([0, 2, 3].iter().all(|o| matches!(results[*o], Some(0 | base::errno::ENOENT))), "{results:?}");
        let paused = c.log.iter().any(|l| l.contains("trimming pauses"));
        assert_eq!(paused, !backfill, "{:?}", c.log);
    }
}
