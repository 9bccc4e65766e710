//! Tests that undo records restore data in place, whatever happened in between, and become free with the log.

use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, errno};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, Store};
use store::testing::disk::SimDisk;
use store::{BLOCK, Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const TAG: Tag = Tag(9);

fn pg(seed: u32) -> Cid {
    Cid::Pg(PgId::new(1, seed).into())
}

fn oid(n: u32) -> Oid {
    let h = HObject { oid: format!("o{n}").into(), hash: n.reverse_bits(), pool: PoolId(1), ..HObject::min() };
    Oid::new(h)
}

fn v(n: u64) -> Eversion {
    Eversion::new(1, n)
}

/// Bytes that differ for each number and place.
fn data(n: u64, blocks: u64) -> Bytes {
    let mut b = vec![0; (blocks * BLOCK) as usize];
    Rng::new(n).fill(&mut b);
    b.into()
}

struct World {
    dev: SimDisk,
    rng: Rng,
    store: Store,
}

impl World {
    fn new() -> Self {
        let (dev, store) = store::testing::fresh(64 << 20, 7, &Config::default());
        let mut w = Self { dev, rng: Rng::new(1), store };
        w.run(vec![Op::MakeCollection { cid: pg(0), bits: 0 }]);
        w
    }

    fn run(&mut self, ops: Vec<Op>) {
        submit(&mut self.store, &mut self.dev, TAG, Transaction { ops }).unwrap();
        while self.store.poll_event().is_some() {}
    }

    fn refused(&mut self, ops: Vec<Op>) -> errno::Errno {
        match submit(&mut self.store, &mut self.dev, TAG, Transaction { ops }) {
            Err(ReadError::Io { errno, .. }) => errno,
            r => panic!("{r:?}"),
        }
    }

    fn read(&mut self, cid: Cid, o: &Oid) -> Bytes {
        store::testing::compare::wait(&mut self.store, &mut |s| drive(s, &mut self.dev), |s| {
            s.read(store::testing::compare::TAG, cid, o, 0, u64::MAX)
        })
        .unwrap()
    }

    fn kept(&mut self, cid: Cid, o: &Oid, version: u64) -> bool {
        store::testing::compare::wait(&mut self.store, &mut |s| drive(s, &mut self.dev), |s| {
            s.kept(store::testing::compare::TAG, cid, o, v(version))
        })
        .unwrap()
    }

    /// Stores everything. Returns the bytes allocated to data.
    fn allocated(&mut self) -> u64 {
        self.store.request_checkpoint();
        drive(&mut self.store, &mut self.dev);
        self.store.check(&mut self.dev).unwrap();
        self.store.statfs().allocated
    }

    fn crash(&mut self) {
        self.dev = self.dev.power_cut(&mut self.rng);
        self.store = engine::open(&mut self.dev, &Config::default()).unwrap().remove(0);
        self.store.check(&mut self.dev).unwrap();
    }
}

fn write(cid: Cid, oid: Oid, block: u64, data: Bytes) -> Op {
    Op::Write { cid, oid, off: block * BLOCK, data, sums: None }
}

fn keep(cid: Cid, version: u64) -> Op {
    Op::Keep { cid, version: v(version) }
}

fn undo(cid: Cid, oid: Oid, version: u64) -> Op {
    Op::Undo { cid, oid, version: v(version) }
}

/// Undo in the way of an erasure-coded PG: the newest entry first, each with its size.
#[test]
fn entries_are_undone_one_after_the_other_after_any_restart() {
    for restart in 0..4 {
        let (mut w, c) = (World::new(), pg(0));
        let mut states = Vec::new();
        w.run(vec![write(c, oid(1), 0, data(1, 40))]);
        for n in 1..=30u64 {
            states.push(w.read(c, &oid(1)));
            let change = match n % 5 {
                0 => Op::Truncate { cid: c, oid: oid(1), size: 70_000 + n * 100 },
                1 => Op::Zero { cid: c, oid: oid(1), off: n * 1000, len: 30_000 },
                // The edge of a block, so that its old content is needed.
                2 => Op::Write { cid: c, oid: oid(1), off: n * 777, data: data(n, 1).slice(..300), sums: None },
                3 => write(c, oid(1), 20 + n, data(n, 3)),
                _ => write(c, oid(1), n % 7, data(n, 9)),
            };
            let entry = Bytes::from_static(b"entry");
            w.run(vec![keep(c, n), change, Op::LogAppend { cid: c, version: v(n), entry }]);
            if restart & 1 == 1 && n % 7 == 0 {
                w.allocated();
            }
            if restart & 2 == 2 && n % 11 == 0 {
                w.crash();
            }
        }
        for n in (1..=30u64).rev() {
            let before = states.pop().unwrap();
            assert!(w.kept(c, &oid(1), n));
            let size = before.len() as u64;
            w.run(vec![undo(c, oid(1), n), Op::Truncate { cid: c, oid: oid(1), size }]);
            assert!(w.read(c, &oid(1)) == before, "restart {restart}: version {n} is not undone");
            assert!(!w.kept(c, &oid(1), n));
            w.run(vec![Op::LogRewind { cid: c, to: v(n - 1) }]);
            if restart & 2 == 2 && n % 13 == 0 {
                w.crash();
            }
        }
        assert_eq!(w.allocated(), 40 * BLOCK, "no undo record is left");
    }
}

#[test]
fn undo_records_take_room_until_the_log_is_trimmed_or_rewound() {
    let (mut w, c) = (World::new(), pg(0));
    w.run(vec![write(c, oid(1), 0, data(1, 10))]);
    assert_eq!(w.allocated(), 10 * BLOCK);
    for n in 1..=200u64 {
        w.run(vec![keep(c, n), write(c, oid(1), n % 10, data(n, 1))]);
    }
    assert_eq!(w.allocated(), 210 * BLOCK, "over several leaves");
    w.crash();
    w.run(vec![Op::LogTrim { cid: c, to: v(50) }]);
    assert_eq!(w.allocated(), 160 * BLOCK);
    w.run(vec![Op::LogAppend { cid: c, version: v(100), entry: Bytes::new() }]);
    w.run(vec![Op::DropKept { cid: c, to: v(120) }]);
    assert_eq!(w.allocated(), 90 * BLOCK);
    assert_eq!(w.store.kept_usage(c), (80, 80 * BLOCK));
    assert_eq!(w.store.log_entries(TAG, c, v(0)).unwrap().len(), 1, "the entry stays");
    assert!(!w.kept(c, &oid(1), 120) && w.kept(c, &oid(1), 121));
    let now = w.read(c, &oid(1));
    w.run(vec![Op::LogRewind { cid: c, to: v(150) }]);
    assert_eq!(w.allocated(), 40 * BLOCK);
    assert!(w.kept(c, &oid(1), 150) && !w.kept(c, &oid(1), 151));
    assert!(w.read(c, &oid(1)) == now, "rewinding a log changes no object");
    // The log begins again where it was rewound to.
    w.run(vec![keep(c, 151), write(c, oid(1), 0, data(5, 1))]);
    w.run(vec![undo(c, oid(1), 151)]);
    assert!(w.read(c, &oid(1)) == now);
    // The object is removed; its undo data stays until the log is trimmed.
    w.run(vec![Op::Remove { cid: c, oid: oid(1) }]);
    assert_eq!(w.allocated(), 30 * BLOCK);
    assert_eq!(w.refused(vec![Op::RemoveCollection { cid: c }]), errno::ENOTEMPTY);
    w.run(vec![Op::LogTrim { cid: c, to: v(200) }]);
    assert_eq!(w.allocated(), 0);
    w.run(vec![Op::RemoveCollection { cid: c }]);
    w.crash();
    assert!(w.store.collections().is_empty());
}

/// Clones share blocks with undo records, and the last reference frees a block.
#[test]
fn undo_works_after_clones_and_renames() {
    let (mut w, c) = (World::new(), pg(0));
    let first = data(1, 8);
    w.run(vec![write(c, oid(1), 0, first.clone())]);
    w.run(vec![Op::Clone { cid: c, src: oid(1), dst: oid(2) }]);
    w.run(vec![keep(c, 1), write(c, oid(1), 2, data(2, 4))]);
    assert_eq!(w.allocated(), 12 * BLOCK, "kept blocks are the clone's, too");
    // Another clone of the object in its present state.
    w.run(vec![Op::Clone { cid: c, src: oid(1), dst: oid(3) }]);
    w.run(vec![Op::Remove { cid: c, oid: oid(2) }]);
    assert_eq!(w.allocated(), 12 * BLOCK, "the undo record refers to them");
    w.run(vec![Op::Rename { cid: c, src: oid(1), dst: oid(4) }]);
    w.crash();
    assert!(w.kept(c, &oid(4), 1) && !w.kept(c, &oid(3), 1));
    w.run(vec![undo(c, oid(3), 1)]);
    assert!(w.read(c, &oid(3)) != first, "nothing is kept of a clone");
    w.run(vec![undo(c, oid(4), 1)]);
    assert!(w.read(c, &oid(4)) == first);
    w.run(vec![Op::Remove { cid: c, oid: oid(3) }]);
    assert_eq!(w.allocated(), 8 * BLOCK);
    // An object created again under the same name is another object.
    w.run(vec![keep(c, 2), write(c, oid(4), 0, data(3, 1))]);
    w.run(vec![Op::Remove { cid: c, oid: oid(4) }, write(c, oid(4), 0, data(4, 1))]);
    w.run(vec![undo(c, oid(4), 2)]);
    assert!(w.read(c, &oid(4)) == data(4, 1));
}

#[test]
fn undo_records_follow_a_split_and_forbid_a_merge() {
    let (mut w, c, d) = (World::new(), pg(0), pg(32));
    let (low, high) = (oid(5), oid(1 << 31 | 5));
    let old: Vec<Bytes> = (1..3).map(|n| data(n, 300)).collect();
    w.run(vec![write(c, low.clone(), 0, old[0].clone()), write(c, high.clone(), 0, old[1].clone())]);
    for n in 1..100u64 {
        let both = [low.clone(), high.clone()].map(|o| write(c, o, n * 3, data(n, 2)));
        w.run([vec![keep(c, n)], both.into()].concat());
    }
    let split = Op::Split { cid: c, dst: d, first: 1 << 31, bits: 1 };
    assert_eq!(w.refused(vec![keep(c, 100), split.clone()]), errno::EINVAL);
    w.run(vec![split]);
    w.crash();
    assert!(w.kept(c, &low, 7) && w.kept(d, &high, 7));
    assert_eq!(w.refused(vec![Op::Merge { cid: d, dst: c, first: 1 << 31, bits: 0 }]), errno::EBUSY);
    for n in (1..100u64).rev() {
        w.run(vec![undo(d, high.clone(), n)]);
    }
    assert!(w.read(d, &high) == old[1]);
    // Now this collection has no undo records.
    w.run(vec![Op::Merge { cid: d, dst: c, first: 1 << 31, bits: 0 }]);
    for n in (1..100u64).rev() {
        w.run(vec![undo(c, low.clone(), n)]);
    }
    assert!(w.read(c, &low) == old[0] && w.read(c, &high) == old[1]);
    assert_eq!(w.allocated(), 600 * BLOCK);
}

/// The reference counts that a transaction needs include those of blocks it writes itself, if the object is
/// shared.
#[test]
fn a_shared_object_is_written_and_removed_at_once() {
    for keeps in [false, true] {
        let (dev, store) =
            store::testing::fresh(64 << 20, 7, &Config { meta_bytes: 20 << 10, cache_bytes: 0, ..Config::default() });
        let (mut w, c) = (World { dev, rng: Rng::new(1), store }, pg(0));
        w.run(vec![Op::MakeCollection { cid: c, bits: 0 }]);
        w.run(vec![write(c, oid(1), 0, data(1, 300)), Op::Clone { cid: c, src: oid(1), dst: oid(2) }]);
        w.allocated();
        let mut ops = vec![write(c, oid(1), 7, data(2, 4)), write(c, oid(1), 9, data(3, 4))];
        ops.push(Op::Remove { cid: c, oid: oid(1) });
        if keeps {
            ops.insert(0, keep(c, 1));
        }
        w.run(ops);
        let more = if keeps { 2 } else { 0 };
        assert_eq!(w.allocated(), (300 + more) * BLOCK, "what was written twice is kept, what the clone has is shared");
        assert!(w.read(c, &oid(2)) == data(1, 300));
        w.run(vec![Op::LogTrim { cid: c, to: v(1) }]);
        assert_eq!(w.allocated(), 300 * BLOCK);
    }
}

/// Corruption of a block in an undo record does not affect the object it came from.
#[test]
fn corruption_in_an_undo_record_is_reported_as_such() {
    let (mut w, c) = (World::new(), pg(0));
    w.run(vec![write(c, oid(1), 0, data(1, 3))]);
    w.run(vec![keep(c, 1), write(c, oid(1), 1, data(2, 1))]);
    w.allocated();
    let mut found = 0;
    for b in w.dev.written() {
        let mut dev = w.dev.clone();
        dev.flips.insert(b, 77);
        let r = w.store.fsck(&mut dev, true);
        if !r.bad_kept.is_empty() {
            assert_eq!((r.bad_kept, r.bad_data), (vec![(c, v(1))], Vec::new()));
            assert!(r.errors.is_empty(), "{:?}", r.errors);
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

/// An object with a partly lost map gives errors until it is rewritten. Undoing the rewrite must give errors
/// again, not zeros.
#[test]
fn undoing_a_rewrite_of_a_lost_map_gives_errors_again() {
    let (mut w, c) = (World::new(), pg(0));
    w.run(vec![write(c, oid(1), 0, data(1, 600))]);
    w.allocated();
    let victim = w.dev.find(0, |b| b[0] == 4 && b[8] == 4)[0];
    w.dev.bad_reads.insert(victim);
    let lacks = engine::rebuild(&mut w.dev, &Config::default(), |_| false).unwrap();
    assert_eq!(lacks.objects, [(c, oid(1))]);
    w.store = engine::open(&mut w.dev, &Config::default()).unwrap().remove(0);
    let read = |w: &mut World| {
        store::testing::compare::wait(&mut w.store, &mut |s| drive(s, &mut w.dev), |s| {
            s.read(store::testing::compare::TAG, c, &oid(1), 0, u64::MAX)
        })
    };
    assert!(matches!(read(&mut w), Err(ReadError::Io { .. })));
    w.run(vec![keep(c, 1), write(c, oid(1), 0, data(2, 600))]);
    assert!(read(&mut w).unwrap() == data(2, 600));
    w.run(vec![undo(c, oid(1), 1)]);
    assert!(matches!(read(&mut w), Err(ReadError::Io { .. })), "bytes that nobody wrote");
    w.crash();
    assert!(matches!(read(&mut w), Err(ReadError::Io { .. })));
}

/// Large writes reach the device before their record. Their undo record keeps the replaced blocks without a copy
/// as well.
#[test]
fn undo_records_of_large_writes_keep_blocks_by_reference() {
    let (mut w, c) = (World::new(), pg(0));
    let (old, new) = (data(1, 1024), data(2, 1000));
    w.run(vec![write(c, oid(1), 0, old.clone())]);
    let before = w.store.counters();
    let at = 3 * BLOCK + 5;
    w.run(vec![keep(c, 1), Op::Write { cid: c, oid: oid(1), off: at, data: new.clone(), sums: None }]);
    assert!(w.store.counters().data_blocks - before.data_blocks <= 1001, "no block is written twice");
    assert_eq!(w.allocated(), (1024 + 1001) * BLOCK);
    w.crash();
    let got = w.read(c, &oid(1));
    assert!(got[at as usize..][..new.len()] == new[..] && got[..at as usize] == old[..at as usize]);
    w.run(vec![undo(c, oid(1), 1)]);
    assert!(w.read(c, &oid(1)) == old);
    assert_eq!(w.allocated(), 1024 * BLOCK);
}
