//! Are collections split and joined without moving a byte, whatever they were made of, and found again after a crash?

use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, Uuid, errno};
use bytes::Bytes;
use store::engine::{self, Config, FormatOptions, Store};
use store::testing::disk::SimDisk;
use store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const TAG: Tag = Tag(9);

fn pg(seed: u32) -> Cid {
    Cid::Pg(PgId::new(1, seed).into())
}

/// An object with those bits at the upper end of its reversed hash.
fn oid(upper: u32, n: u32) -> Oid {
    let hash = (upper | n).reverse_bits();
    Oid::new(HObject { oid: format!("o{n}").into(), hash, pool: PoolId(1), ..HObject::min() })
}

struct World {
    dev: SimDisk,
    rng: Rng,
    store: Store,
}

impl World {
    fn new() -> Self {
        let mut dev = SimDisk::new(64 << 20);
        let o = FormatOptions { uuid: Uuid([7; 16]), reactors: 1, labels: Default::default() };
        engine::format(&mut dev, &o).unwrap();
        let store = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        Self { dev, rng: Rng::new(1), store }
    }

    fn turn(&mut self) {
        self.store.end_turn();
        while let Some(r) = self.store.poll_io() {
            self.dev.submit(r);
        }
        while let Some(c) = self.dev.step(&mut self.rng) {
            self.store.handle_io(c);
        }
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
        self.store = engine::open(&mut self.dev, &Config::default()).unwrap().remove(0);
        self.store.check(&mut self.dev).unwrap();
    }

    fn names(&mut self, cid: Cid) -> Vec<Oid> {
        let start = Oid { generation: 0, ..Oid::new(HObject::min()) };
        loop {
            match self.store.list(TAG, cid, &start, None, 1000) {
                Err(ReadError::Wait) => self.turn(),
                r => return r.unwrap().0,
            }
        }
    }
}

fn objects(cid: Cid, upper: u32, n: std::ops::Range<u32>) -> Vec<Op> {
    n.map(|n| Op::Write { cid, oid: oid(upper, n), off: 0, data: Bytes::from(vec![n as u8; 5000]) }).collect()
}

#[test]
fn a_split_counts_and_lists_exactly_and_can_be_taken_back() {
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
        // What belongs to the other one is refused here.
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
fn collections_that_were_made_apart_are_joined_in_their_shard_only() {
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
    // Two families in one collection, and they part again.
    w.write(vec![Op::Split { cid: pg(0), dst: pg(64), first: half, bits: 1 }]);
    w.reopen();
    assert_eq!((w.names(pg(0)).len(), w.names(pg(64)).len()), (50, 60));
}
