//! Tests that overwrites, which are prepared and applied at once, do what the general way does.

use base::device::{IoCompletion, IoKind, IoRequest};
use base::rng::Rng;
use store::engine::{Config, Store};
use store::mem::MemStore;
use store::testing::compare::durable;
use store::testing::disk::SimDisk;
use store::testing::fresh;
use store::testing::workload::Workload;
use store::{ObjectStore, ReadError, Tag};

/// A store whose requests and completions are those of another one with the same seeds.
struct Side {
    dev: SimDisk,
    store: Store,
    rng: Rng,
    done: Vec<(Tag, bool)>,
}

impl Side {
    fn new(seed: u64, cfg: &Config) -> Self {
        let (dev, store) = fresh(64 << 20, seed, cfg);
        Self { dev, store, rng: Rng::new(seed ^ 7), done: Vec::new() }
    }

    /// Requests of the store, given to the device, in a form that can be compared.
    fn requests(&mut self, end_turn: bool) -> Vec<String> {
        if end_turn {
            self.store.end_turn();
        }
        let mut out = Vec::new();
        while let Some(r) = self.store.poll_io() {
            out.push(text(&r));
            self.dev.submit(r);
        }
        out
    }

    fn step(&mut self) -> bool {
        let c: Option<IoCompletion> = self.dev.step(&mut self.rng);
        let some = c.is_some();
        c.into_iter().for_each(|c| self.store.handle_io(c));
        durable(&mut self.store, &mut self.done);
        some
    }
}

fn text(r: &IoRequest) -> String {
    match &r.kind {
        IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => {
            let all = bufs.concat();
            format!("write at {off}: {} bytes, {:x}", all.len(), base::crc::crc32c(base::crc::SEED, &all))
        }
        other => format!("{other:?}"),
    }
}

/// Moves both on by a turn and some completions.
fn pump(rng: &mut Rng, a: &mut Side, b: &mut Side) {
    let (end, steps) = (rng.chance(3, 4), rng.below(6));
    assert_eq!(a.requests(end), b.requests(end));
    for _ in 0..steps {
        assert_eq!(a.step(), b.step());
    }
    assert_eq!(a.done, b.done);
}

#[test]
fn an_overwrite_leaves_what_the_general_way_does() {
    let (mut overwrites, mut others) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let cfg = Config {
            meta_bytes: 16 << 20,
            commits_max: 1 + rng.below(3) as usize,
            checkpoint_log_bytes: [64 << 10, 4 << 20][rng.below(2) as usize],
            kids_max: [3, 128][rng.below(2) as usize],
            ..Config::default()
        };
        let (mut a, mut b) = (Side::new(seed, &cfg), Side::new(seed, &cfg));
        let mut model = MemStore::new();
        let mut load = Workload::new(&mut rng);
        load.overwrite();
        for n in 1..250 {
            let tag = Tag(n);
            let txn = load.next(&mut rng, &model);
            model.prepare(tag, &txn).expect("the workload makes legal transactions");
            loop {
                let at_once = a.store.apply(tag, txn.clone());
                let apart = b.store.prepare(tag, &txn);
                match (at_once, apart) {
                    (Ok(()), Ok(())) => break,
                    (Err((ReadError::Wait, back)), Err(ReadError::Wait)) => {
                        assert_eq!(back.ops, txn.ops, "a transaction that waits comes back");
                    }
                    (one, other) => panic!("seed {seed}: {one:?} and {other:?}"),
                }
                pump(&mut rng, &mut a, &mut b);
            }
            b.store.submit(tag, txn.clone());
            model.submit(tag, txn);
            while model.poll_event().is_some() {}
            if rng.chance(2, 3) {
                pump(&mut rng, &mut a, &mut b);
            }
        }
        let (at_once, apart) = (a.store.counters(), b.store.counters());
        assert_eq!((at_once.txns, b.store.overwrites()), (apart.txns, 0));
        assert_eq!(a.store.statfs(), b.store.statfs(), "seed {seed}");
        overwrites += a.store.overwrites();
        others += at_once.txns - a.store.overwrites();
    }
    assert!(overwrites > 500 && others > 500, "{overwrites} overwrites, {others} others");
}
