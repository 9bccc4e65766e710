//! Tests that the engine equals the model in every history, through power cuts, kills and reopening.
//!
//! `STORE_HISTORIES=n` runs that many, `STORE_SEED=s` starts at a seed; a failure prints its seed.

use base::rng::Rng;
use std::collections::VecDeque;
use store::engine::{self, Config, Store};
use store::mem::MemStore;
use store::testing::compare::{durable, same, wait};
use store::testing::disk::SimDisk;
use store::testing::workload::Workload;
use store::testing::{compress, fresh, pump};
use store::{ObjectStore, ReadError, Tag};

const BYTES: u64 = 64 << 20;

fn config(rng: &mut Rng) -> Config {
    Config {
        // The smallest budget holds hardly one path to a leaf.
        meta_bytes: [20 << 10, 100 << 10, 16 << 20][rng.below(3) as usize],
        cache_bytes: [0, 64 << 10, 1 << 20][rng.below(3) as usize],
        commits_max: 1 + rng.below(3) as usize,
        checkpoint_log_bytes: [16 << 10, 200 << 10, 4 << 20][rng.below(3) as usize],
        checkpoint_turn_bytes: [4 << 10, 64 << 10][rng.below(2) as usize],
        checkpoint_flight_bytes: 128 << 10,
        first_fit: rng.chance(2, 3),
        kids_max: [3, 6, 128][rng.below(3) as usize],
        ..Config::default()
    }
}

struct World {
    rng: Rng,
    dev: SimDisk,
    store: Store,
    /// State that is acknowledged.
    acked: MemStore,
    /// States after each transaction that is not acknowledged.
    ahead: VecDeque<(Tag, MemStore)>,
    next: u64,
    /// Data is compressed, each time in another way.
    packs: bool,
    /// Extents written so far.
    packed: u64,
    /// Half of the transactions are prepared and submitted at once.
    at_once: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (dev, store) = fresh(BYTES, seed, &config(&mut rng));
        let (acked, ahead) = (MemStore::new(), VecDeque::new());
        Self { rng, dev, store, acked, ahead, next: 1, packs: false, packed: 0, at_once: false }
    }

    fn compress(&mut self) {
        if self.packs {
            compress(&mut self.store, self.next);
        }
    }

    fn newest(&self) -> &MemStore {
        self.ahead.back().map_or(&self.acked, |a| &a.1)
    }

    fn turn(&mut self, steps: u64) {
        pump(&mut self.dev, &mut self.rng, &mut self.store, steps);
        let mut done = Vec::new();
        durable(&mut self.store, &mut done);
        for (tag, ok) in done {
            let (t, m) = self.ahead.pop_front().expect("an acknowledgement for a transaction");
            assert_eq!((t, true), (tag, ok), "acknowledgements come in order; {:?}", self.store.health());
            self.acked = m;
        }
    }

    fn transact(&mut self, w: &mut Workload) {
        let tag = Tag(self.next);
        self.next += 1;
        let mut model = self.newest().clone();
        let txn = w.next(&mut self.rng, &model);
        model.prepare(tag, &txn).expect("the workload makes legal transactions");
        // Announced operations need not follow, and their objects need not exist.
        for (i, op) in (0..).zip(&txn.ops) {
            self.store.prefetch(op.oid().map_or(i as u32, |o| o.hobj.hash), (tag.0 + i) % 5000 * 4096);
        }
        let (mut rounds, at_once) = (0, self.at_once && self.rng.chance(1, 2));
        loop {
            let ready = match at_once {
                true => self.store.apply(tag, txn.clone()).map_err(|(e, _)| e),
                false => self.store.prepare(tag, &txn),
            };
            match ready {
                Ok(()) => break,
                Err(ReadError::Wait) => {
                    rounds += 1;
                    assert!(rounds < 100_000, "prepare waits for ever");
                    self.turn(3);
                }
                // Compressible data is larger. No part of the transaction was applied.
                Err(ReadError::Io { errno: base::errno::ENOSPC, .. }) if self.packs => {
                    return self.store.release(tag);
                }
                Err(e) => panic!("prepare: {e:?}"),
            }
        }
        model.submit(tag, txn.clone());
        while model.poll_event().is_some() {}
        if !at_once {
            self.store.submit(tag, txn);
        }
        self.ahead.push_back((tag, model));
    }

    fn compare_newest(&mut self) {
        let mut model = self.newest().clone();
        let (dev, rng) = (&mut self.dev, &mut self.rng);
        // Events are left for `turn`. The pump polls none; a repeated read shows readiness.
        let r = same(&mut self.store, &mut model, &mut |s| pump(dev, rng, s, 4), false);
        r.unwrap_or_else(|e| panic!("{e}"));
        self.settle();
        self.store.check(&mut self.dev).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Lets writes in flight finish, since a check reads the device.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.dev.queued() == 0 && !self.store.has_io() {
                return;
            }
            self.turn(20);
        }
        panic!("the store never comes to rest");
    }

    /// Opens the device and determines which of the possible states it has.
    fn reopen(&mut self, dev: SimDisk) {
        self.dev = dev;
        let cfg = config(&mut self.rng);
        self.packed += self.store.packing().packed;
        self.store = engine::open(&mut self.dev, &cfg).unwrap_or_else(|e| panic!("does not open: {e}")).remove(0);
        self.compress();
        self.store.check(&mut self.dev).unwrap_or_else(|e| panic!("after opening: {e}"));
        let mut states = vec![self.acked.clone()];
        states.extend(self.ahead.drain(..).map(|a| a.1));
        let mut why = String::new();
        for mut m in states.into_iter().rev() {
            let (dev, rng) = (&mut self.dev, &mut self.rng);
            match same(&mut self.store, &mut m, &mut |s| pump(dev, rng, s, 4), false) {
                Ok(()) => {
                    self.acked = m;
                    return;
                }
                Err(e) => why = format!("{why}\n{e}"),
            }
        }
        panic!("the state is none of those possible, newest to acknowledged:{why}");
    }
}

/// Returns the number of compressed extents.
fn history(seed: u64, rounds: u64, packs: bool) -> u64 {
    let mut w = World::new(seed);
    let mut load = Workload::new(&mut w.rng);
    w.packs = packs;
    w.compress();
    if packs {
        load.soften();
    }
    w.at_once = seed.is_multiple_of(3);
    if w.at_once {
        load.overwrite();
    }
    for _ in 0..rounds {
        for _ in 0..w.rng.below(25) {
            w.transact(&mut load);
            let steps = w.rng.below(6);
            w.turn(steps);
        }
        match w.rng.below(6) {
            0 => w.compare_newest(),
            1 => {
                while !w.ahead.is_empty() {
                    w.turn(10);
                }
                w.store.request_checkpoint();
                for _ in 0..w.rng.below(40) {
                    w.turn(10);
                }
            }
            2 => {
                let dev = w.dev.killed(&mut w.rng);
                w.reopen(dev);
            }
            _ => {
                let dev = w.dev.power_cut(&mut w.rng);
                w.reopen(dev);
            }
        }
    }
    w.compare_newest();
    w.packed + w.store.packing().packed
}

fn histories() -> std::ops::Range<u64> {
    let var = |n: &str, d: u64| std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
    let first = var("STORE_SEED", 1);
    first..first + var("STORE_HISTORIES", 240)
}

fn run(which: u64, packs: bool) -> u64 {
    let one = |seed| {
        let r = std::panic::catch_unwind(|| history(seed, 8, packs));
        r.unwrap_or_else(|_| panic!("history with STORE_SEED={seed} STORE_HISTORIES=1 failed"))
    };
    histories().filter(|s| s % 2 == which).map(one).sum()
}

#[test]
fn engine_equals_model_through_crashes_even() {
    run(0, false);
}

#[test]
fn engine_equals_model_through_crashes_odd() {
    run(1, false);
}

#[test]
fn compressed_data_equals_the_model_through_crashes_even() {
    let extents = run(0, true);
    assert!(extents > 5 * histories().count() as u64 / 2, "{extents} extents");
}

#[test]
fn compressed_data_equals_the_model_through_crashes_odd() {
    run(1, true);
}

#[test]
fn reads_find_data_before_it_is_durable() {
    let mut w = World::new(77);
    let mut load = Workload::new(&mut w.rng);
    for _ in 0..30 {
        w.transact(&mut load);
        // Not one request has left the store.
        let mut m = w.newest().clone();
        let (dev, rng) = (&mut w.dev, &mut w.rng);
        for (cid, _) in m.collections() {
            let start = store::Oid::new(base::HObject::min());
            for oid in m.list(Tag(0), cid, &start, None, 999).unwrap().0 {
                let got = wait(&mut w.store, &mut |s| pump(dev, rng, s, 4), |s| {
                    s.read(store::testing::compare::TAG, cid, &oid, 0, u64::MAX)
                });
                assert_eq!(got.unwrap(), m.read(Tag(0), cid, &oid, 0, u64::MAX).unwrap());
            }
        }
    }
}
