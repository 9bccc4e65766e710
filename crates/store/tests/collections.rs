//! Tests that collections are split and merged without moving data, whatever their history, and survive a
//! crash.

use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, errno};
use bytes::Bytes;
use store::engine::{self, Config, Store};
use store::testing::disk::SimDisk;
use store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const TAG: Tag = Tag(9);

fn pg(seed: u32) -> Cid {
    Cid::Pg(PgId::new(1, seed).into())
}

/// An object with these bits at the upper end of its reversed hash.
fn oid(upper: u32, n: u32) -> Oid {
    let hash = (upper | n).reverse_bits();
    Oid::new(HObject { oid: format!("o{n}").into(), hash, pool: PoolId(1), ..HObject::min() })
}

/// Configuration with deep trees.
fn config() -> Config {
    Config { kids_max: 3, ..Config::default() }
}

struct World {
    dev: SimDisk,
    rng: Rng,
    store: Store,
}

impl World {
    fn new() -> Self {
        let (dev, store) = store::testing::fresh(64 << 20, 7, &config());
        Self { dev, rng: Rng::new(1), store }
    }

    fn turn(&mut self) {
        store::testing::turn(&mut self.dev, &mut self.store, &mut self.rng);
    }

    fn refused(&mut self, ops: Vec<Op>) -> Option<errno::Errno> {
        let r = self.store.prepare(TAG, &Transaction { ops });
        self.store.release(TAG);
        match r {
            Err(ReadError::Io { errno, .. }) => Some(errno),
            _ => None,
        }
    }

    fn write(&mut self, ops: Vec<Op>) {
        let t = Transaction { ops };
        while let Err(e) = self.store.prepare(TAG, &t) {
            assert_eq!(e, ReadError::Wait);
            self.turn();
        }
        self.store.submit(TAG, t);
        loop {
            self.turn();
            match self.store.poll_event() {
                Some(Event::Durable(_, r)) => return assert_eq!(r, Ok(())),
                Some(_) => {}
                None => self.turn(),
            }
        }
    }

    fn reopen(&mut self) {
        self.dev = self.dev.power_cut(&mut self.rng);
        self.store = engine::open(&mut self.dev, &config()).unwrap().remove(0);
        self.store.check(&mut self.dev).unwrap();
    }

    fn names(&mut self, cid: Cid) -> Vec<Oid> {
        let start = Oid::new(HObject::min()).at_generation(0);
        loop {
            match self.store.list(TAG, cid, &start, None, 1000) {
                Err(ReadError::Wait) => self.turn(),
                r => return r.unwrap().0,
            }
        }
    }
}

fn objects(cid: Cid, upper: u32, n: std::ops::Range<u32>) -> Vec<Op> {
    n.map(|n| Op::Write { cid, oid: oid(upper, n), off: 0, data: Bytes::from(vec![n as u8; 5000]), sums: None })
        .collect()
}

#[test]
fn a_split_counts_and_lists_exactly_and_a_merge_reverses_it() {
    let mut w = World::new();
    let (a, b) = (pg(0), pg(32));
    let half = 1 << 31;
    w.write([vec![Op::MakeCollection { cid: a, bits: 0 }], objects(a, 0, 0..200), objects(a, half, 200..270)].concat());
    let all = w.store.collection_usage(a);
    for reopened in [false, true] {
        let blocks = w.store.counters().data_blocks;
        let entry = Bytes::from_static(b"e");
        let version = Eversion::new(1, 1);
        w.write(vec![
            Op::Split { cid: a, dst: b, first: half, bits: 1 },
            Op::LogAppend { cid: b, version, entry: entry.clone() },
        ]);
        assert_eq!(w.store.counters().data_blocks, blocks, "no data is written");
        if reopened {
            w.reopen();
        }
        assert_eq!(w.store.collections(), [(a, 1), (b, 1)]);
        assert_eq!(w.store.collection_usage(b), (70, 70 * 5000, 0));
        assert_eq!(w.store.collection_usage(a), (200, 200 * 5000, 0));
        assert_eq!((w.names(a).len(), w.names(b).len()), (200, 70));
        assert_eq!(w.store.log_entries(TAG, b, Eversion::default()), Ok(vec![(version, entry)]));
        // Objects of the other collection are refused here.
        assert_eq!(w.refused(objects(a, half, 1..2)), Some(errno::EINVAL));
        w.write(vec![Op::Merge { cid: b, dst: a, first: half, bits: 0 }]);
        assert_eq!(w.store.collection_usage(a), all);
        assert_eq!(w.names(a).len(), 270);
        w.store.check(&mut w.dev).unwrap();
    }
    w.reopen();
    assert_eq!(w.names(a).len(), 270);
}

#[test]
fn a_merge_that_leaves_a_collection_without_hashes_is_refused() {
    let mut w = World::new();
    let half = 1 << 31;
    let (a, b) = (pg(0), pg(1));
    w.write(vec![Op::MakeCollection { cid: a, bits: 0 }]);
    w.write(vec![Op::Split { cid: a, dst: b, first: half, bits: 1 }]);
    // These splits and merges would leave a collection without hash ranges, whose record could not be read.
    assert_eq!(w.refused(vec![Op::Merge { cid: a, dst: b, first: half, bits: 0 }]), Some(errno::EINVAL));
    w.write(vec![Op::Merge { cid: b, dst: a, first: half, bits: 0 }]);
    w.write(objects(a, half, 0..9));
    w.reopen();
    assert_eq!((w.names(a).len(), w.store.collections()), (9, vec![(a, 0)]));
}

#[test]
fn collections_of_two_families_are_merged_only_within_a_shard() {
    let mut w = World::new();
    let half = 1 << 31;
    for (seed, upper) in [(0, 0), (32, half), (1, half)] {
        let cid = pg(seed);
        w.write([vec![Op::MakeCollection { cid, bits: 1 }], objects(cid, upper, 0..50)].concat());
    }
    let merge = |cid, first| vec![Op::Merge { cid, dst: pg(0), first, bits: 0 }];
    assert_eq!(w.refused(merge(pg(1), half)), Some(errno::EXDEV), "another shard");
    assert_eq!(w.refused(merge(pg(32), half + 9)), Some(errno::EINVAL), "objects on the wrong side");
    assert_eq!(w.refused(merge(pg(9), half)), Some(errno::ENOENT));
    w.write(merge(pg(32), half));
    w.write(objects(pg(0), half, 50..60));
    w.reopen();
    assert_eq!(w.names(pg(0)).len(), 110);
    assert!(w.names(pg(0)).is_sorted());
    // One collection has two families, and is split again.
    w.write(vec![Op::Split { cid: pg(0), dst: pg(64), first: half, bits: 1 }]);
    w.reopen();
    assert_eq!((w.names(pg(0)).len(), w.names(pg(64)).len()), (50, 60));
}

#[test]
fn a_collection_is_removed_in_steps_across_crashes() {
    let mut w = World::new();
    w.write(vec![Op::MakeCollection { cid: pg(0), bits: 0 }]);
    let data = Bytes::from(vec![5; 3 << 20]);
    w.write(vec![Op::Write { cid: pg(0), oid: oid(0, 1), off: 0, data: data.clone(), sums: None }]);
    for n in 0..20u32 {
        let entries = (0..500u32).map(|i| (format!("{n:02}-{i:04}").into(), Bytes::from(vec![7; 60]))).collect();
        w.write(vec![Op::OmapSet { cid: pg(0), oid: oid(0, 2), entries }]);
    }
    for n in 3..60 {
        let v = Op::LogAppend { cid: pg(0), version: Eversion::new(1, n.into()), entry: Bytes::from_static(b"e") };
        w.write(vec![Op::Write { cid: pg(0), oid: oid(0, n), off: 0, data: data.slice(..9000), sums: None }, v]);
    }
    let snap = Oid::new(HObject { snap: base::SnapId(4), ..oid(0, 1).hobj.clone() });
    w.write(vec![Op::Clone { cid: pg(0), src: oid(0, 1), dst: snap }]);
    let bounds = store::removal::Bounds { objects: 10, data: 1 << 20, keys: 2000 };
    let mut steps = 0;
    loop {
        let ops = loop {
            match store::removal::step(&mut w.store, TAG, pg(0), bounds) {
                Ok(ops) => break ops,
                Err(e) => assert_eq!(e, ReadError::Wait),
            }
            w.turn();
        };
        w.store.release(TAG);
        if ops.is_empty() {
            break;
        }
        assert!(ops.len() <= bounds.objects);
        let usage = w.store.collection_usage(pg(0));
        w.write(ops);
        let now = w.store.collection_usage(pg(0));
        assert!(now < usage, "no progress: {now:?} after {usage:?}");
        assert!(usage.1 - now.1 <= bounds.data && usage.2 - now.2 <= 300 << 10, "{now:?} after {usage:?}");
        steps += 1;
        if steps % 3 == 0 {
            w.dev = w.dev.power_cut(&mut w.rng);
            w.store = engine::open(&mut w.dev, &config()).unwrap().remove(0);
            assert_eq!(w.store.collection_usage(pg(0)), now);
        }
    }
    assert!(steps > 12, "{steps} steps");
    w.write(vec![Op::RemoveCollection { cid: pg(0) }]);
    assert!(w.store.collections().is_empty());
    w.store.request_checkpoint();
    engine::device::drive(&mut w.store, &mut w.dev);
    w.store.check(&mut w.dev).unwrap();
    assert_eq!(w.store.statfs().allocated, 0);
}

/// From history 112: both splits are refused as a whole; the second one must not fail the store.
#[test]
fn two_splits_of_which_the_second_finds_nothing_are_refused() {
    let mut w = World::new();
    let mut model = store::mem::MemStore::new();
    let make = Transaction { ops: vec![Op::MakeCollection { cid: pg(0), bits: 0 }] };
    model.submit(TAG, make.clone());
    w.write(make.ops);
    let split = |dst, first| Op::Split { cid: pg(0), dst: pg(dst), first, bits: 1 };
    for ops in [
        vec![split(1, 1 << 31), split(2, (1 << 31) + 5)],
        vec![split(1, 1 << 31), split(2, 1 << 31)],
        vec![split(1, 9), Op::Split { cid: pg(1), dst: pg(3), first: 9, bits: 1 }],
    ] {
        let refused = model.prepare(TAG, &Transaction { ops: ops.clone() });
        assert!(matches!(refused, Err(ReadError::Io { errno: errno::EINVAL, .. })), "{refused:?}");
        assert_eq!(w.refused(ops), Some(errno::EINVAL));
    }
    w.write(vec![split(1, 1 << 31), split(2, 1 << 30)]);
    assert_eq!(w.store.collections().len(), 3);
}

#[test]
fn a_collection_made_beside_another_can_be_merged_into_it_whatever_its_name() {
    let mut w = World::new();
    let half = 1 << 31;
    w.write([vec![Op::MakeCollection { cid: pg(0), bits: 1 }], objects(pg(0), 0, 0..50)].concat());
    w.write(vec![Op::MakeCollection { cid: pg(1), bits: 1 }]);
    assert!(!w.store.beside(pg(0), pg(1)));
    assert_eq!(w.refused(vec![Op::MakeBeside { cid: pg(1), beside: pg(0), bits: 1 }]), Some(errno::EEXIST));
    assert_eq!(w.refused(vec![Op::MakeBeside { cid: pg(3), beside: pg(9), bits: 1 }]), Some(errno::ENOENT));
    w.write([vec![Op::MakeBeside { cid: pg(3), beside: pg(0), bits: 1 }], objects(pg(3), half, 0..40)].concat());
    w.reopen();
    assert!(w.store.beside(pg(0), pg(3)));
    w.write(vec![Op::Merge { cid: pg(3), dst: pg(0), first: half, bits: 0 }]);
    w.reopen();
    assert_eq!(w.names(pg(0)).len(), 90);
    w.store.check(&mut w.dev).unwrap();
}

/// Objects added before a merge in the same transaction count as well. The merge is refused before anything is
/// done.
#[test]
fn a_merge_is_refused_if_its_transaction_adds_objects_on_the_wrong_side() {
    let mut w = World::new();
    let (a, b, first) = (pg(0), pg(32), 1 << 31);
    let touch = |cid, upper, n| Op::Touch { cid, oid: oid(upper, n) };
    let merge = Op::Merge { cid: b, dst: a, first, bits: 0 };
    w.write(vec![Op::MakeCollection { cid: a, bits: 0 }]);
    w.write(vec![Op::MakeBeside { cid: b, beside: a, bits: 0 }]);
    w.write(vec![touch(a, 0, 1), touch(b, first, 2)]);
    for wrong in [
        vec![touch(b, 0, 3), merge.clone()],
        vec![touch(a, first, 3), merge.clone()],
        vec![Op::Clone { cid: b, src: oid(first, 2), dst: oid(0, 4) }, merge.clone()],
        // After the merge, the target holds both sides, and the source is gone.
        vec![merge.clone(), touch(b, first, 5)],
    ] {
        assert!(w.refused(wrong).is_some());
    }
    w.write(vec![touch(a, 0, 3), touch(b, first, 4), merge, touch(a, first, 5), touch(a, 0, 6)]);
    assert_eq!(w.names(a).len(), 6);
    w.reopen();
    assert_eq!(w.names(a).len(), 6);
    // A split takes only the objects on its side.
    let split = Op::Split { cid: a, dst: b, first, bits: 1 };
    assert_eq!(w.refused(vec![split.clone(), touch(b, 0, 7)]), Some(errno::EINVAL));
    assert_eq!(w.refused(vec![split.clone(), touch(a, first, 7)]), Some(errno::EINVAL));
    w.write(vec![split, touch(b, first, 7), touch(a, 0, 8)]);
    assert_eq!((w.names(a).len(), w.names(b).len()), (4, 4));
    w.reopen();
}

#[test]
fn a_merge_does_not_reduce_what_its_transaction_reserves() {
    let mut w = World::new();
    let (a, b, half) = (pg(0), pg(32), 1 << 31);
    let entries = (0..400u32).map(|i| (i.to_be_bytes().to_vec().into(), vec![7; 2000].into())).collect();
    w.write(vec![Op::MakeCollection { cid: a, bits: 0 }, Op::OmapSet { cid: a, oid: oid(0, 1), entries }]);
    w.write(vec![Op::Split { cid: a, dst: b, first: half, bits: 1 }]);
    let mut reserved = |ops| {
        let t = Transaction { ops };
        loop {
            let before = w.store.statfs().available;
            match w.store.prepare(TAG, &t) {
                Ok(()) => {
                    let taken = before - w.store.statfs().available;
                    w.store.release(TAG);
                    return taken;
                }
                Err(e) => assert_eq!(e, ReadError::Wait),
            }
            w.turn();
        }
    };
    let clone = Op::Clone { cid: a, src: oid(0, 1), dst: oid(0, 2) };
    let merge = Op::Merge { cid: b, dst: a, first: half, bits: 0 };
    let (alone, both) = (reserved(vec![clone.clone()]), reserved(vec![clone, merge]));
    // The transaction may need a copy of 800 KB.
    assert!(alone >= 800_000 && both >= alone, "{alone} bytes for the copy, {both} with a merge");
}
