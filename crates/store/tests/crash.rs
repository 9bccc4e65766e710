//! Tests that every image a crash can leave opens with all acknowledged transactions. One recorded run is cut
//! after every single write.

use base::Uuid;
use base::rng::Rng;
use store::engine::{self, Config, FormatOptions};
use store::mem::MemStore;
use store::testing::compare::{durable, same};
use store::testing::disk::{Done, SimDisk};
use store::testing::workload::Workload;
use store::{Cid, Event, ObjectStore, Op, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;

fn config() -> Config {
    Config {
        checkpoint_log_bytes: 32 << 10,
        checkpoint_turn_bytes: 8 << 10,
        first_fit: true,
        kids_max: 3,
        ..Config::default()
    }
}

/// The states after each transaction, and the record with marks `submitted n` (even) and `acknowledged n`
/// (odd).
fn recorded(seed: u64, txns: u64) -> (Vec<MemStore>, Vec<Done>) {
    let mut rng = Rng::new(seed);
    let mut dev = SimDisk::new(BYTES);
    dev.record = Some(Vec::new());
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut s = engine::open(&mut dev, &config()).unwrap().remove(0);
    let mut load = Workload::new(&mut rng);
    let mut states = vec![MemStore::new()];
    dev.mark(0);
    let turn = |dev: &mut SimDisk, s: &mut engine::Store, rng: &mut Rng, steps: u64| {
        s.end_turn();
        while let Some(r) = s.poll_io() {
            dev.submit(r);
        }
        for _ in 0..steps {
            let Some(c) = dev.step(rng) else { break };
            s.handle_io(c);
            let mut done = Vec::new();
            durable(s, &mut done);
            for (t, ok) in done {
                assert!(ok);
                dev.mark(t.0 * 2 + 1);
            }
        }
    };
    for n in 1..=txns {
        let mut m = states.last().unwrap().clone();
        let txn = load.next(&mut rng, &m);
        while let Err(e) = s.prepare(Tag(n), &txn) {
            assert_eq!(e, ReadError::Wait);
            turn(&mut dev, &mut s, &mut rng, 3);
        }
        dev.mark(n * 2);
        s.submit(Tag(n), txn.clone());
        m.submit(Tag(n), txn);
        while let Some(e) = m.poll_event() {
            assert!(matches!(e, Event::Durable(_, Ok(()))));
        }
        states.push(m);
        let steps = rng.below(8);
        turn(&mut dev, &mut s, &mut rng, steps);
    }
    for _ in 0..30 {
        turn(&mut dev, &mut s, &mut rng, 30);
    }
    (states, dev.record.unwrap())
}

fn check_cut(states: &[MemStore], mut dev: SimDisk, acked: usize, submitted: usize, what: &str) {
    let opened = engine::open(&mut dev, &config());
    let mut s = opened.unwrap_or_else(|e| panic!("{what}: does not open: {e}")).remove(0);
    s.check(&mut dev).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut why = String::new();
    for m in states[acked..=submitted].iter().rev() {
        let mut rng = Rng::new(1);
        let mut pump = |s: &mut engine::Store| {
            while let Some(r) = s.poll_io() {
                dev.submit(r);
            }
            if let Some(c) = dev.step(&mut rng) {
                s.handle_io(c);
            }
        };
        match same(&mut s, &mut m.clone(), &mut pump, false) {
            Ok(()) => return,
            Err(e) => why = e,
        }
    }
    panic!("{what}: none of the states {acked}..={submitted}; against the acknowledged one: {why}");
}

#[test]
fn every_write_boundary_opens() {
    for seed in [5, 6] {
        let (states, record) = recorded(seed, 40);
        let start = record.iter().position(|e| matches!(e, Done::Mark(0))).unwrap();
        let (mut acked, mut submitted) = (0, 0);
        let mut rng = Rng::new(seed);
        for n in start..=record.len() {
            if let Some(Done::Mark(m)) = record.get(n.wrapping_sub(1)) {
                if m % 2 == 0 {
                    submitted = (*m / 2) as usize;
                } else {
                    acked = (*m / 2) as usize;
                }
                continue;
            }
            let what = format!("seed {seed}, cut after event {n}");
            // Three variants: all writes up to here are on the device, or none since the last flush, or any of
            // them.
            let mut all = record[..n].to_vec();
            all.push(Done::Flush);
            check_cut(&states, SimDisk::replayed(BYTES, &all, None), acked, submitted, &format!("{what}, all kept"));
            let none = SimDisk::replayed(BYTES, &record[..n], None);
            check_cut(&states, none, acked, submitted, &format!("{what}, unflushed lost"));
            let some = SimDisk::replayed(BYTES, &record[..n], Some(&mut rng));
            check_cut(&states, some, acked, submitted, &format!("{what}, unflushed at random"));
        }
        assert_eq!((acked, submitted), (40, 40));
    }
}

#[test]
fn a_crash_while_the_log_is_divided_anew_loses_nothing() {
    let (states, record) = recorded(9, 30);
    let mut dev = SimDisk::replayed(BYTES, &[record, vec![Done::Flush]].concat(), None);
    dev.record = Some(Vec::new());
    let cfg = Config { reactors: 3, ..config() };
    let mut before = dev.clone();
    before.record = None;
    assert_eq!(engine::open(&mut dev, &cfg).unwrap().len(), 3);
    let steps = dev.record.take().unwrap();
    let mut rng = Rng::new(4);
    for n in 0..=steps.len() {
        for variant in 0..3 {
            // The device before, followed by the first steps of opening with three reactors.
            let mut d = before.clone();
            d.replay(&steps[..n]);
            if variant > 0 {
                d = d.power_cut(&mut rng);
            }
            // Opens with one or two reactors, so that the log is divided again.
            let cfg = Config { reactors: 1 + (n as u16 + variant) % 2, ..config() };
            let mut stores = engine::open(&mut d, &cfg).unwrap_or_else(|e| panic!("cut {n}: {e}"));
            if cfg.reactors == 1 {
                stores[0].check(&mut d).unwrap_or_else(|e| panic!("cut {n}: {e}"));
            }
            let colls: usize = stores.iter().map(|s| s.collections().len()).sum();
            assert_eq!(colls, states[30].collections().len(), "cut {n}");
            drop(stores);
            check_cut(&states, d, 30, 30, &format!("cut {n} of the division"));
        }
    }
}

/// Cuts after every write of growing: the store has the old size or the new one, and all of its content.
#[test]
fn a_device_grows_whole_or_not_at_all() {
    let mut rng = Rng::new(9);
    let small: u64 = 64 << 20;
    let mut dev = SimDisk::new(small);
    let o = FormatOptions { uuid: Uuid([5; 16]), reactors: 2, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let cfg = Config { reactors: 2, ..Config::default() };
    let cids: Vec<Cid> = (0..8).map(|n| Cid::Pg(base::PgId::new(1, n).into())).collect();
    for (i, s) in (0..).zip(&mut engine::open(&mut dev, &cfg).unwrap()) {
        let mine = |c: &&Cid| store::layout::reactor_for(store::layout::shard_for(**c, 32), 2) == i;
        let ops: Vec<Op> = cids.iter().filter(mine).map(|c| Op::MakeCollection { cid: *c, bits: 3 }).collect();
        let t = Transaction { ops };
        s.prepare(Tag(1), &t).unwrap();
        s.submit(Tag(1), t);
        s.request_checkpoint();
        engine::device::drive(s, &mut dev);
    }
    let large = small * 3 + 8192;
    dev.grow(large);
    dev.record = Some(Vec::new());
    let before = dev.clone();
    assert_eq!(engine::grow(&mut dev).unwrap().size(), large);
    let record = dev.record.take().unwrap();
    let mut seen = [false; 2];
    for n in 0..=record.len() {
        let mut d = before.clone();
        d.replay(&record[..n]);
        let mut d = d.power_cut(&mut rng);
        let stores = engine::open(&mut d, &cfg).unwrap();
        let size = stores[0].superblock().size();
        assert!(size == small || size == large);
        seen[usize::from(size == large)] = true;
        assert_eq!(stores.iter().map(|s| s.collections().len()).sum::<usize>(), cids.len());
        let total = stores[0].statfs().total;
        assert_eq!(total > small, size == large);
    }
    assert_eq!(seen, [true; 2]);
    // Grows again; a device of unchanged size is left alone.
    dev.grow(large * 2);
    assert_eq!(engine::grow(&mut dev).unwrap().size(), large * 2);
    assert_eq!(engine::grow(&mut dev).unwrap().seq, engine::probe(&mut dev).unwrap().seq);
}
