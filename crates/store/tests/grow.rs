//! Tests that a device grows while its stores work, at whatever moment a crash happens.

use base::device::{IoCompletion, IoId};
use base::errno::{EBUSY, EINVAL, ENOSPC};
use base::rng::Rng;
use base::{HObject, PgId, Uuid};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::engine::{self, Config, FormatOptions, Growth, Store, device::drive};
use store::layout::{SHARDS, reactor_for, shard_for};
use store::mem::MemStore;
use store::testing::compare::{durable, same};
use store::testing::disk::{Done, SimDisk};
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const SMALL: u64 = 64 << 20;
const LARGE: u64 = 3 * SMALL + 8192;
const REACTORS: u16 = 2;

fn config(reactors: u16) -> Config {
    Config {
        reactors,
        checkpoint_log_bytes: 24 << 10,
        checkpoint_turn_bytes: 8 << 10,
        first_fit: true,
        kids_max: 3,
        ..Config::default()
    }
}

fn oid(n: u64) -> Oid {
    HObject { oid: format!("o{n}").into(), hash: n as u32 * 977, ..HObject::min() }.into()
}

/// A collection that belongs to the given reactor.
fn cid(reactor: usize) -> Cid {
    let cids = (0..99).map(|n| Cid::Pg(PgId::new(4, n).into()));
    cids.into_iter().find(|c| usize::from(reactor_for(shard_for(*c, SHARDS), REACTORS)) == reactor).unwrap()
}

/// Stores of one device, with their requests in one queue.
struct Rig {
    dev: SimDisk,
    stores: Vec<Store>,
    models: Vec<Vec<MemStore>>,
    owners: BTreeMap<u64, (usize, IoId)>,
    next_io: u64,
    rng: Rng,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let mut dev = SimDisk::new(SMALL);
        let o = FormatOptions { uuid: Uuid([5; 16]), reactors: REACTORS, labels: Default::default() };
        engine::format(&mut dev, &o).unwrap();
        let mut stores = engine::open(&mut dev, &config(REACTORS)).unwrap();
        let mut models = Vec::new();
        for (i, s) in stores.iter_mut().enumerate() {
            let t = Transaction { ops: vec![Op::MakeCollection { cid: cid(i), bits: 0 }] };
            let mut m = MemStore::new();
            m.submit(Tag(0), t.clone());
            s.prepare(Tag(0), &t).unwrap();
            s.submit(Tag(0), t);
            drive(s, &mut dev);
            while s.poll_event().is_some() {}
            models.push(vec![m]);
        }
        dev.record = Some(Vec::new());
        Self { dev, stores, models, owners: BTreeMap::new(), next_io: 0, rng: Rng::new(seed) }
    }

    /// Runs a turn of one store and some completions, with marks for acknowledgements.
    fn turn(&mut self, store: usize, steps: u64) {
        self.stores[store].end_turn();
        while let Some(mut r) = self.stores[store].poll_io() {
            self.owners.insert(self.next_io, (store, r.id));
            r.id = IoId(self.next_io);
            self.next_io += 1;
            self.dev.submit(r);
        }
        for _ in 0..steps {
            let Some(c) = self.dev.step(&mut self.rng) else { break };
            let (i, id) = self.owners.remove(&c.id.0).unwrap();
            self.stores[i].handle_io(IoCompletion { id, result: c.result });
            let mut done = Vec::new();
            durable(&mut self.stores[i], &mut done);
            for (t, ok) in done {
                assert!(ok);
                self.dev.mark(t.0 * 4 + i as u64 * 2 + 1);
            }
        }
    }

    /// Runs a random transaction in a store. Returns true if there was room for it.
    fn write(&mut self, i: usize) -> bool {
        let n = self.models[i].len() as u64;
        let mut m = self.models[i].last().unwrap().clone();
        let mut data = vec![0; self.rng.below(20_000) as usize + 1];
        self.rng.fill(&mut data);
        let (o, other) = (oid(self.rng.below(8)), oid(self.rng.below(8)));
        let mut t = Transaction::new();
        t.push(Op::Write { cid: cid(i), oid: o.clone(), off: self.rng.below(30_000), data: data.into(), sums: None });
        if self.rng.chance(1, 3) {
            t.push(Op::Clone { cid: cid(i), src: o, dst: other });
        }
        loop {
            match self.stores[i].prepare(Tag(n), &t) {
                Ok(()) => break,
                Err(ReadError::Wait) => self.turn(i, 3),
                Err(ReadError::Io { errno: ENOSPC, .. }) => {
                    self.stores[i].release(Tag(n));
                    return false;
                }
                Err(e) => panic!("{e:?}"),
            }
        }
        self.dev.mark(n * 4 + i as u64 * 2);
        self.stores[i].submit(Tag(n), t.clone());
        m.submit(Tag(n), t);
        self.models[i].push(m);
        true
    }

    /// Takes stores through a step while the others go on working.
    fn step(&mut self, stores: std::ops::Range<usize>, step: Growth) {
        for i in stores {
            let tag = Tag(1 << 40);
            while let Err(e) = self.stores[i].grow(tag, step) {
                assert_eq!(e, ReadError::Wait, "{step:?} of store {i}");
                let other = self.rng.below(self.stores.len() as u64) as usize;
                if self.rng.chance(1, 2) {
                    self.write(other);
                }
                self.turn(other, 2);
            }
            self.stores[i].release(tag);
        }
    }

    fn grow(&mut self, bytes: u64) {
        let all = 0..self.stores.len();
        self.dev.grow(bytes);
        self.step(all.clone(), Growth::Begin(bytes));
        self.step(0..1, Growth::Name);
        self.step(all, Growth::Switch);
        self.step(0..1, Growth::Use);
    }
}

/// Makes one copy of the superblock and of the roots unreadable, those at the device's `end` or those at its begin.
fn lose_a_copy(d: &mut SimDisk, end: bool) {
    let sb = engine::probe(d).unwrap();
    let l = sb.layout().unwrap();
    let lost = if end { l.space_end..l.blocks } else { 0..l.log_start };
    d.bad_reads.extend(lost);
    // The superblock's first copies can be dispensed with only once the others exist.
    if engine::probe(d).ok().is_none_or(|s| !end && s.seq != sb.seq) {
        d.bad_reads.clear();
    }
}

#[test]
fn every_cut_of_growing_under_load_opens() {
    for seed in 1..=2 {
        let mut r = Rig::new(seed);
        let before = r.dev.clone();
        for _ in 0..6 {
            r.write(0);
            r.write(1);
            r.turn(0, 3);
            r.turn(1, 3);
        }
        r.grow(LARGE);
        for _ in 0..6 {
            r.write(0);
            r.write(1);
            r.turn(0, 3);
            r.turn(1, 3);
        }
        let total = r.stores[0].statfs().total;
        assert!(
            total > LARGE / 2 && r.stores.iter().all(|s| s.statfs().total == total && s.superblock().size() == LARGE)
        );
        let record = r.dev.record.take().unwrap();
        let mut rng = Rng::new(seed);
        let (mut acked, mut submitted) = ([0; 2], [0; 2]);
        let mut seen = [0; 2];
        for n in 0..=record.len() {
            if let Some(Done::Mark(m)) = record.get(n.wrapping_sub(1)) {
                let of = if m % 2 == 0 { &mut submitted } else { &mut acked };
                of[(m / 2 % 2) as usize] = (m / 4) as usize;
                continue;
            }
            let mut d = before.clone();
            d.record = None;
            d.grow(LARGE);
            d.replay(&record[..n]);
            let mut d = d.power_cut(&mut rng);
            let what = format!("seed {seed}, cut after event {n}");
            if rng.chance(1, 2) {
                lose_a_copy(&mut d, rng.chance(1, 2));
            }
            let size = engine::probe(&mut d).unwrap_or_else(|e| panic!("{what}: {e}")).size();
            assert!(size == SMALL || size == LARGE, "{what}: {size}");
            seen[usize::from(size == LARGE)] += 1;
            // Opening with another number of reactors writes a checkpoint.
            let mut other = d.clone();
            let mut one = engine::open(&mut other, &config(1)).unwrap_or_else(|e| panic!("{what}: {e}")).remove(0);
            one.check(&mut other).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut stores = engine::open(&mut d, &config(REACTORS)).unwrap_or_else(|e| panic!("{what}: {e}"));
            for (i, s) in stores.iter_mut().enumerate() {
                let states = &r.models[i][acked[i]..=submitted[i]];
                let mut why = String::new();
                let found =
                    states.iter().rev().any(|m| match same(s, &mut m.clone(), &mut |s| drive(s, &mut d), false) {
                        Ok(()) => true,
                        Err(e) => {
                            why = e;
                            false
                        }
                    });
                assert!(found, "{what}: store {i} is at none of {}..={}: {why}", acked[i], submitted[i]);
            }
        }
        assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
    }
}

#[test]
fn full_stores_are_writable_when_the_device_has_grown() {
    let mut r = Rig::new(4);
    r.dev.record = None;
    let data = Bytes::from(vec![7; 512 << 10]);
    let mut next = 100;
    let mut fill = |r: &mut Rig| {
        let mut n = 0;
        loop {
            next += 1;
            let i = next as usize % 2;
            let t = Transaction {
                ops: vec![Op::Write { cid: cid(i), oid: oid(next), off: 0, data: data.clone(), sums: None }],
            };
            loop {
                match r.stores[i].prepare(Tag(next), &t) {
                    Ok(()) => break,
                    Err(ReadError::Wait) => r.turn(i, 5),
                    Err(e) => {
                        assert!(matches!(e, ReadError::Io { errno: ENOSPC, .. }), "{e:?}");
                        r.stores[i].release(Tag(next));
                        return n;
                    }
                }
            }
            r.stores[i].submit(Tag(next), t.clone());
            r.models[i].last_mut().unwrap().submit(Tag(next), t);
            r.turn(i, 9);
            n += 1;
        }
    };
    let first = fill(&mut r);
    assert!(first > 50, "{first}");
    r.grow(LARGE);
    let more = fill(&mut r);
    assert!(more > 200, "{more} of 512 KiB in 128 MiB more");
    // Grows a second time.
    r.grow(LARGE + (64 << 20));
    assert!(fill(&mut r) > 100);
    for i in 0..2 {
        r.turn(i, 1000);
        r.stores[i].request_checkpoint();
    }
    for _ in 0..200 {
        r.turn(0, 100);
        r.turn(1, 100);
    }
    let Rig { mut dev, models, .. } = r;
    let mut one = engine::open(&mut dev.clone(), &config(1)).unwrap().remove(0);
    one.check(&mut dev.clone()).unwrap();
    for (s, m) in engine::open(&mut dev, &config(REACTORS)).unwrap().iter_mut().zip(models) {
        same(s, &mut m.last().unwrap().clone(), &mut |s| drive(s, &mut dev), false).unwrap();
    }
}

#[test]
fn invalid_growth_steps_are_refused() {
    let mut r = Rig::new(5);
    let tag = Tag(77);
    let ask = |r: &mut Rig, step| match r.stores[0].grow(tag, step) {
        Err(ReadError::Io { errno, .. }) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(&mut r, Growth::Begin(SMALL)), EINVAL, "as large as before");
    assert_eq!(ask(&mut r, Growth::Begin(SMALL + 4096)), EINVAL, "the copies would overlap");
    assert_eq!(ask(&mut r, Growth::Use), EINVAL);
    assert_eq!(ask(&mut r, Growth::Name), EINVAL);
    r.dev.grow(LARGE);
    r.step(0..2, Growth::Begin(LARGE));
    assert_eq!(ask(&mut r, Growth::Use), EINVAL, "before all have switched");
    r.step(0..1, Growth::Name);
    assert_eq!(ask(&mut r, Growth::Begin(LARGE + (1 << 20))), EBUSY, "a size was named");
    r.step(0..2, Growth::Begin(LARGE));
    r.step(0..2, Growth::Switch);
    r.step(0..1, Growth::Use);
    assert_eq!(ask(&mut r, Growth::Begin(LARGE)), EINVAL);
}
