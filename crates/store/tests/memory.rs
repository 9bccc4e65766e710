//! Tests that memory is bounded however much is stored, and that evicted pages are found again.

use base::rng::Rng;
use base::{HObject, PgId, Uuid};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::engine::{self, Config, FormatOptions, LOG_BYTES_MIN, REPLAY_STEPS_MIN, Store, device::drive};
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BUDGET: usize = 768 << 10;
/// Memory of one transaction: ten leaves, read and split, and the pages above them.
const ONE_TXN: usize = 256 << 10;

fn config() -> Config {
    config_with(BUDGET)
}

fn config_with(budget: usize) -> Config {
    Config { meta_bytes: budget, ..Config::default() }
}

fn cid() -> Cid {
    Cid::Pg(PgId::new(1, 0).into())
}

fn oid(n: u64) -> Oid {
    let h = HObject { oid: format!("object{n}").into(), hash: (n as u32).wrapping_mul(0x9e37_79b9), ..HObject::min() };
    Oid::new(h)
}

fn fresh(bytes: u64) -> (SimDisk, Store) {
    fresh_with(bytes, BUDGET)
}

fn fresh_with(bytes: u64, budget: usize) -> (SimDisk, Store) {
    let mut dev = SimDisk::new(bytes);
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut s = engine::open(&mut dev, &config_with(budget)).unwrap().remove(0);
    run(&mut s, &mut dev, vec![Op::MakeCollection { cid: cid(), bits: 0 }]);
    (dev, s)
}

/// Runs a transaction. Returns the most memory that metadata took meanwhile.
fn run(s: &mut Store, dev: &mut SimDisk, ops: Vec<Op>) -> usize {
    let t = Transaction { ops };
    let mut most = 0;
    for _ in 0..10_000 {
        let r = s.prepare(Tag(1), &t);
        match r {
            Ok(()) => {
                s.submit(Tag(1), t);
                most = most.max(s.meta_memory());
                drive(s, dev);
                let done: Vec<Event> = std::iter::from_fn(|| s.poll_event()).collect();
                assert!(done.contains(&Event::Durable(Tag(1), Ok(()))), "{done:?}");
                return most;
            }
            Err(ReadError::Wait) => drive(s, dev),
            Err(e) => panic!("{e:?}"),
        }
        most = most.max(s.meta_memory());
    }
    panic!("prepare waits for ever");
}

fn var(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// `STORE_KEYS=10000000 STORE_BUDGET=268435456` runs the full size.
#[test]
fn omap_keys_in_random_order_stay_within_the_budget() {
    let keys = var("STORE_KEYS").unwrap_or(40_000);
    let budget = var("STORE_BUDGET").map_or(BUDGET, |b| b as usize);
    let (mut dev, mut s) = fresh_with((keys * 1200).max(256 << 20), budget);
    let started = std::time::Instant::now();
    let key = |i: u64| Bytes::from(format!("key{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let value = |i: u64| Bytes::from(i.to_le_bytes().to_vec());
    let mut most = 0;
    for batch in 0..keys / 10 {
        let entries = (batch * 10..(batch + 1) * 10).map(|i| (key(i), value(i))).collect();
        let ops = vec![Op::OmapSet { cid: cid(), oid: oid(0), entries }];
        most = most.max(run(&mut s, &mut dev, ops));
    }
    let c = s.counters();
    println!(
        "{keys} keys in {:?}, at most {most} bytes of {budget}, {} page reads, {} blocks of pages, {} checkpoints",
        started.elapsed(),
        c.page_reads,
        c.page_blocks,
        c.checkpoints,
    );
    // The pages of one transaction may exceed the budget.
    assert!(most < budget + ONE_TXN, "{most} bytes of metadata in memory");
    assert!(c.evictions > 100 && c.page_reads > 100);
    drop(s);
    let mut s = engine::open(&mut dev, &config()).unwrap().remove(0);
    let before = s.counters().page_reads;
    let mut rng = Rng::new(7);
    for _ in 0..200 {
        let i = rng.below(keys);
        let got = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.omap_get(TAG, cid(), &oid(0), &key(i)));
        assert_eq!(got, Ok(Some(value(i))));
    }
    assert!(s.counters().page_reads > before);
    assert_eq!(s.collection_usage(cid()).2, keys * 27);
    // Removes half of the omap as one range, then the object with the rest. Leaves are not read.
    let reads = s.counters().page_reads;
    let (first, last) = (Bytes::from_static(b"key4"), Bytes::from_static(b"keyc"));
    run(&mut s, &mut dev, vec![Op::OmapRmRange { cid: cid(), oid: oid(0), first, last }]);
    let left = s.collection_usage(cid()).2 / 27;
    assert!(left > keys * 2 / 5 && left < keys * 3 / 5, "{left} keys left");
    run(&mut s, &mut dev, vec![Op::Remove { cid: cid(), oid: oid(0) }]);
    let leaves = keys * 35 / (12 << 10);
    assert!(s.counters().page_reads - reads < leaves / 4 + 20, "dropping leaves reads them");
    assert_eq!(s.collection_usage(cid()), (0, 0, 0));
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    s.check(&mut dev).unwrap();
}

/// Transactions that need many pages each are admitted only as far as their pages fit.
#[test]
fn many_wide_transactions_at_once_stay_within_the_budget() {
    const DEPTH: u64 = 48;
    const WIDTH: u64 = 4;
    const TXNS: u64 = 1500;
    let (mut dev, mut s) = fresh(256 << 20);
    let key = |i: u64| Bytes::from(format!("key{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    for batch in 0..300 {
        let entries = (batch * 100..(batch + 1) * 100).map(|i| (key(i), Bytes::from(vec![7; 60]))).collect();
        run(&mut s, &mut dev, vec![Op::OmapSet { cid: cid(), oid: oid(0), entries }]);
    }
    let mut rng = Rng::new(1);
    let (mut most, mut next, mut turns) = (0, 0, 0);
    let mut ready: Vec<u64> = (1..=DEPTH).collect();
    let mut txns: BTreeMap<u64, Transaction> = BTreeMap::new();
    let mut flying = DEPTH;
    while flying > 0 {
        for tag in std::mem::take(&mut ready) {
            let t = txns.entry(tag).or_insert_with(|| {
                next += 1;
                let entries = (0..WIDTH).map(|_| (key(rng.below(30_000)), Bytes::from(vec![8; 60]))).collect();
                Transaction { ops: vec![Op::OmapSet { cid: cid(), oid: oid(0), entries }] }
            });
            match s.prepare(Tag(tag), t) {
                Ok(()) => s.submit(Tag(tag), txns.remove(&tag).unwrap()),
                Err(ReadError::Wait) => {}
                Err(e) => panic!("{e:?}"),
            }
            most = most.max(s.meta_memory());
        }
        s.end_turn();
        turns += 1;
        assert!(turns < 200_000, "{} transactions wait for ever", txns.len());
        while let Some(r) = s.poll_io() {
            dev.submit(r);
        }
        for _ in 0..20 {
            let Some(c) = dev.step(&mut rng) else { break };
            s.handle_io(c);
            most = most.max(s.meta_memory());
        }
        while let Some(e) = s.poll_event() {
            match e {
                Event::Ready(t) => ready.push(t.0),
                Event::Durable(t, r) => {
                    r.unwrap();
                    if next < TXNS {
                        ready.push(t.0);
                    } else {
                        flying -= 1;
                    }
                }
                Event::Health(_) => {}
            }
        }
    }
    println!("at most {most} of {BUDGET} in {turns} turns");
    assert!(most < BUDGET + ONE_TXN, "{most} bytes of metadata in memory");
    assert!(s.counters().page_reads > TXNS, "all of it is in memory");
    drive(&mut s, &mut dev);
    s.check(&mut dev).unwrap();
}

/// A plan that keeps its pages forever does not stop others forever.
#[test]
fn a_plan_that_never_ends_does_not_stop_others() {
    let (mut dev, mut s) = fresh(64 << 20);
    let value = Bytes::from(vec![7; 500]);
    for batch in 0..80u64 {
        let entries = (batch * 50..(batch + 1) * 50).map(|i| (format!("k{i:06}").into(), value.clone())).collect();
        run(&mut s, &mut dev, vec![Op::OmapSet { cid: cid(), oid: oid(0), entries }]);
    }
    let pass = |s: &mut Store| s.omap_range(Tag(7), cid(), &oid(0), b"k000000", false, 1000, usize::MAX);
    for _ in 0..1000 {
        match pass(&mut s) {
            Err(ReadError::Wait) => drive(&mut s, &mut dev),
            r => {
                assert_eq!(r.unwrap().entries.len(), 1000);
                break;
            }
        }
    }
    // The plan was not released, and the pages of the others do not fit beside its own.
    for tag in 8..20 {
        let key = format!("k{:06}", 1000 + tag * 100);
        let read = |s: &mut Store| s.omap_range(Tag(tag), cid(), &oid(0), key.as_bytes(), false, 200, usize::MAX);
        let done = (0..1000).any(|_| match read(&mut s) {
            Err(ReadError::Wait) => {
                drive(&mut s, &mut dev);
                while s.poll_event().is_some() {}
                false
            }
            r => r.unwrap().entries.len() == 200,
        });
        assert!(done, "tag {tag} waits for ever");
    }
}

#[test]
fn many_objects_and_large_maps_stay_within_the_budget() {
    let (mut dev, mut s) = fresh(1 << 30);
    let mut rng = Rng::new(2);
    // Objects of 400 blocks, whose maps alone exceed the budget several times, and many small objects.
    let data = Bytes::from(vec![7; 400 * 4096]);
    for n in 0..300 {
        run(&mut s, &mut dev, vec![Op::Write { cid: cid(), oid: oid(n), off: 0, data: data.clone(), sums: None }]);
    }
    let mut most = 0;
    for n in 0..4000 {
        let small = Op::Write { cid: cid(), oid: oid(1000 + n), off: 0, data: Bytes::from(vec![1; 100]), sums: None };
        let off = rng.below(400) * 4096;
        let big = Op::Write { cid: cid(), oid: oid(rng.below(300)), off, data: data.slice(..4096), sums: None };
        most = most.max(run(&mut s, &mut dev, vec![small, big]));
    }
    assert!(most < BUDGET + ONE_TXN, "{most} bytes of metadata in memory");
    drop(s);
    let mut s = engine::open(&mut dev, &config()).unwrap().remove(0);
    // A cold read needs the path down to the map, and the data; the path is short enough to stay in memory.
    for n in 0..50 {
        let got = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.read(TAG, cid(), &oid(n), 0, 4096));
        assert_eq!(got.unwrap().len(), 4096);
    }
    assert_eq!(s.collection_usage(cid()).0, 4300);
    s.check(&mut dev).unwrap();
}

/// Write A, snapshot 1, write B, snapshot 2, roll back to 1, delete snapshot 1: the head still shares A.
#[test]
fn a_rolled_back_head_keeps_blocks_of_a_deleted_snapshot() {
    let (mut dev, mut s) = fresh(64 << 20);
    let head = oid(1);
    let snap = |n| Oid::new(HObject { snap: base::SnapId(n), ..head.hobj.clone() });
    let (a, b) = (Bytes::from(vec![b'A'; 300_000]), Bytes::from(vec![b'B'; 300_000]));
    let write = |d: &Bytes| Op::Write { cid: cid(), oid: head.clone(), off: 0, data: d.clone(), sums: None };
    run(&mut s, &mut dev, vec![write(&a)]);
    run(&mut s, &mut dev, vec![Op::Clone { cid: cid(), src: head.clone(), dst: snap(1) }]);
    run(&mut s, &mut dev, vec![write(&b)]);
    run(&mut s, &mut dev, vec![Op::Clone { cid: cid(), src: head.clone(), dst: snap(2) }]);
    run(&mut s, &mut dev, vec![Op::Clone { cid: cid(), src: snap(1), dst: head.clone() }]);
    run(&mut s, &mut dev, vec![Op::Remove { cid: cid(), oid: snap(1) }]);
    for round in 0..2 {
        s.request_checkpoint();
        drive(&mut s, &mut dev);
        // Overwrites freed blocks.
        for n in 0..20 {
            run(
                &mut s,
                &mut dev,
                vec![Op::Write { cid: cid(), oid: oid(100 + n), off: 0, data: b.clone(), sums: None }],
            );
        }
        let got = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.read(TAG, cid(), &head, 0, 300_000));
        assert_eq!(got.unwrap(), a, "round {round}");
        let got = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.read(TAG, cid(), &snap(2), 0, 300_000));
        assert_eq!(got.unwrap(), b, "round {round}");
        s.check(&mut dev).unwrap();
        s = engine::open(&mut dev, &config()).unwrap().remove(0);
    }
}

/// Logs are replayed in parallel by all cores, at most four at a time. Each has its share of the restart limits, and a
/// minimum.
#[test]
fn reactors_share_the_limits_of_replay() {
    let (log, steps) = (Config::default().log_bytes_max, Config::default().replay_steps_max);
    let of = |reactors, cores| {
        let c = Config::for_memory(reactors, cores, 4 << 30, 0);
        (c.log_bytes_max, c.replay_steps_max)
    };
    assert_eq!(of(2, 2), (log, steps));
    assert_eq!(of(4, 2), (log / 2, steps / 2));
    assert_eq!(of(8, 16), (log / 2, steps / 2));
    assert_eq!(of(32, 1), (LOG_BYTES_MIN, REPLAY_STEPS_MIN));
    let c = Config::for_memory(2, 2, 4 << 30, 1 << 30);
    assert_eq!((c.cache_bytes, c.data_bytes, c.meta_bytes), (128 << 20, 512 << 20, (2 << 30) - (128 << 20)));
}
