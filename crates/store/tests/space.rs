//! Freed space comes back by itself: it counts as available at once, a store at rest releases it, and stores of one
//! device help each other.

use base::{HObject, PgId, Uuid, errno};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, FormatOptions, Store};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const PIECE: u64 = 1 << 20;

struct World {
    dev: SimDisk,
    stores: Vec<Store>,
    data: Bytes,
    tag: u64,
}

/// The collection of a reactor's own shard.
fn cid(reactor: usize) -> Cid {
    Cid::Pg(PgId::new(32, reactor as u32).into())
}

fn oid(n: u64) -> Oid {
    Oid::new(HObject { oid: format!("o{n}").into(), hash: (n as u32).wrapping_mul(0x9e37_79b9), ..HObject::min() })
}

fn refused(r: Result<(), ReadError>) -> bool {
    match r {
        Ok(()) => false,
        Err(ReadError::Io { errno: errno::ENOSPC, .. }) => true,
        Err(e) => panic!("{e:?}"),
    }
}

impl World {
    fn new(bytes: u64, reactors: u16, cfg: &Config) -> Self {
        let mut dev = SimDisk::new(bytes);
        let o = FormatOptions { uuid: Uuid([7; 16]), reactors, labels: Default::default() };
        engine::format(&mut dev, &o).unwrap();
        let stores = engine::open(&mut dev, &Config { reactors, ..cfg.clone() }).unwrap();
        let mut w = Self { dev, stores, data: vec![5; PIECE as usize].into(), tag: 0 };
        for r in 0..usize::from(reactors) {
            assert!(!refused(w.run(r, vec![Op::MakeCollection { cid: cid(r), bits: 0 }])));
        }
        w
    }

    /// Runs a transaction at one reactor, while the others take their turns.
    fn run(&mut self, r: usize, ops: Vec<Op>) -> Result<(), ReadError> {
        let t = Transaction { ops };
        self.tag += 1;
        for _ in 0..1000 {
            match self.stores[r].prepare(Tag(self.tag), &t) {
                Ok(()) => {
                    self.stores[r].release(Tag(self.tag));
                    return submit(&mut self.stores[r], &mut self.dev, Tag(self.tag), t);
                }
                Err(ReadError::Wait) => self.turns(),
                Err(e) => {
                    self.stores[r].release(Tag(self.tag));
                    return Err(e);
                }
            }
        }
        panic!("a transaction waits for ever");
    }

    fn turns(&mut self) {
        self.stores.iter_mut().for_each(|s| drive(s, &mut self.dev));
    }

    fn write(&mut self, r: usize, n: u64) -> Result<(), ReadError> {
        let data = self.data.clone();
        self.run(r, vec![Op::Write { cid: cid(r), oid: oid(n), off: 0, data, sums: None }])
    }

    fn remove(&mut self, r: usize, n: u64) {
        assert!(!refused(self.run(r, vec![Op::Remove { cid: cid(r), oid: oid(n) }])), "a removal was refused");
    }

    /// Writes objects in turn at all reactors until one finds no room. Returns their number.
    fn fill(&mut self) -> u64 {
        let n = self.stores.len() as u64;
        (0..).find(|i| refused(self.write((i % n) as usize, *i))).unwrap()
    }

    fn available(&self) -> u64 {
        self.stores[0].statfs().available
    }

    fn checkpoints(&self) -> Vec<u64> {
        self.stores.iter().map(|s| s.counters().checkpoints).collect()
    }

    /// The host's regular calls, for a few seconds.
    fn seconds(&mut self) {
        for _ in 0..8 {
            self.stores.iter_mut().for_each(Store::confirm);
            self.turns();
        }
    }

    fn check(&mut self) {
        self.turns();
        for s in &self.stores {
            assert_eq!(s.statfs().available, self.available());
        }
        if let [s] = &mut self.stores[..] {
            s.check(&mut self.dev).unwrap();
        }
    }
}

/// Removed data is available before any checkpoint, and an idle store has one for it.
#[test]
fn an_idle_store_gives_back_what_was_removed() {
    for reactors in [1, 2] {
        let mut w = World::new(1 << 30, reactors, &Config::default());
        let n = u64::from(reactors);
        for i in 0..80 * n {
            w.write((i % n) as usize, i).unwrap();
        }
        w.seconds();
        let (before, checkpoints) = (w.available(), w.checkpoints());
        for i in 0..70 * n {
            w.remove((i % n) as usize, i);
        }
        assert_eq!(w.checkpoints(), checkpoints, "the log is short, and most of the device is free");
        let removed = 70 * n * PIECE;
        let now = w.available();
        assert!(now > before + removed - (1 << 20), "{removed} removed, {before} then {now} available");
        let fs = w.stores[0].statfs();
        assert!(fs.allocated <= 10 * n * PIECE, "{fs:?}");
        w.seconds();
        let after = w.checkpoints();
        assert!(after.iter().zip(&checkpoints).all(|(a, b)| a == &(b + 1)), "{checkpoints:?}, {after:?}");
        assert!(w.available() >= now);
        // Nothing is left to release, so an idle store stays idle.
        w.seconds();
        w.seconds();
        assert_eq!(w.checkpoints(), after);
        w.check();
    }
}

/// On a full device, a small removal is enough for the next writes, at whatever reactor.
#[test]
fn a_full_device_takes_writes_again_after_removals() {
    for reactors in [1, 8] {
        let mut w = World::new(192 << 20, reactors, &Config::default());
        let all = w.fill();
        let n = u64::from(reactors);
        assert!(all > 100, "{all}");
        let before = w.available();
        // 1.5 % of the device.
        let some = 8;
        for i in 0..some {
            w.remove((i % n) as usize, i);
        }
        w.turns();
        assert!(w.available() >= before + (some - 1) * PIECE, "{before}, {}", w.available());
        // Another reactor than those that had removals, as far as there is one.
        for i in 0..some - 2 {
            assert!(!refused(w.write((n - 1) as usize, all + i)), "{i}");
        }
        w.check();
        drop(std::mem::take(&mut w.stores));
        w.stores = engine::open(&mut w.dev, &Config { reactors, ..Config::default() }).unwrap();
        w.check();
    }
}

/// An idle store on an almost full device gives back little as well.
#[test]
fn an_almost_full_idle_store_gives_back_little() {
    let mut w = World::new(192 << 20, 2, &Config::default());
    w.fill();
    w.seconds();
    let before = w.checkpoints();
    (0..2).for_each(|i| w.remove(i % 2, i as u64));
    assert_eq!(w.checkpoints(), before);
    w.seconds();
    assert!(w.checkpoints().iter().zip(&before).all(|(a, b)| a > b));
}

/// A transaction waits for blocks that only another reactor's checkpoint can release.
#[test]
fn no_store_is_full_while_another_one_has_blocks_to_release() {
    for discard in [false, true] {
        let mut w = World::new(256 << 20, 2, &Config { discard, ..Config::default() });
        for i in 0..3 {
            w.write(1, 1000 + i).unwrap();
        }
        let all = (0..).find(|i| refused(w.write(0, *i))).unwrap();
        w.seconds();
        let before = w.checkpoints();
        for i in 0..3 {
            let t = Transaction { ops: vec![Op::Remove { cid: cid(1), oid: oid(1000 + i) }] };
            submit(&mut w.stores[1], &mut w.dev, Tag(9), t).unwrap();
        }
        assert_eq!(w.checkpoints()[1], before[1], "it has too little to begin by itself");
        for i in 0..2 {
            assert!(!refused(w.write(0, all + i)), "write {i} was refused");
        }
        assert!(refused((0..10).try_for_each(|i| w.write(0, all + 100 + i))), "it ends when all is taken");
        w.check();
    }
}

/// The blocks of a store that has failed never come back, so nobody waits for them.
#[test]
fn blocks_of_a_failed_store_are_not_waited_for() {
    let mut w = World::new(256 << 20, 2, &Config::default());
    for i in 0..3 {
        w.write(1, 1000 + i).unwrap();
    }
    let all = (0..).find(|i| refused(w.write(0, *i))).unwrap();
    for i in 0..3 {
        let t = Transaction { ops: vec![Op::Remove { cid: cid(1), oid: oid(1000 + i) }] };
        submit(&mut w.stores[1], &mut w.dev, Tag(9), t).unwrap();
    }
    w.dev.write_error = Some(errno::EIO);
    w.stores[1].request_checkpoint();
    drive(&mut w.stores[1], &mut w.dev);
    w.dev.write_error = None;
    assert!(matches!(w.stores[1].health(), store::Health::Failed { .. }));
    assert!(refused((0..10).try_for_each(|i| w.write(0, all + i))));
}
