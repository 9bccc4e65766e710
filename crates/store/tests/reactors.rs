//! Tests that several reactors share a device, and that their number can change from start to start.

use base::rng::Rng;
use base::{HObject, PgId, Uuid};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, FormatOptions, OpenError, Store};
use store::layout::{SHARDS, reactor_for, shard_for};
use store::mem::MemStore;
use store::testing::compare::same;
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

fn cid(n: u32) -> Cid {
    Cid::Pg(PgId::new(4, n).into())
}

fn oid(n: u64) -> Oid {
    HObject { oid: format!("o{n}").into(), hash: n as u32 * 977, ..HObject::min() }.into()
}

fn config(reactors: u16) -> Config {
    Config { reactors, checkpoint_log_bytes: 100 << 10, kids_max: 3, ..Config::default() }
}

/// Opens with the logs replayed in a given order.
fn open_in_order(dev: &mut SimDisk, cfg: &Config, order: impl Fn(usize) -> u64) -> Vec<Store> {
    let mut replay = |dev: &mut dyn engine::Device, logs: &mut [engine::RingLog<'_>]| {
        let mut order: Vec<(u64, usize)> = (0..logs.len()).map(|i| (order(i), i)).collect();
        order.sort_unstable();
        order.iter().for_each(|(_, i)| logs[*i].replay(dev));
    };
    engine::open_with(dev, cfg, &mut replay).unwrap()
}

/// Opens with each log replayed by its own thread.
fn open_at_once(dev: &mut SimDisk, cfg: &Config) -> Vec<Store> {
    let same = dev.clone();
    let mut replay = |_: &mut dyn engine::Device, logs: &mut [engine::RingLog<'_>]| {
        std::thread::scope(|s| {
            for log in logs {
                let mut dev = same.clone();
                s.spawn(move || log.replay(&mut dev));
            }
        });
    };
    engine::open_with(dev, cfg, &mut replay).unwrap()
}

fn submit_at_home(
    stores: &mut [Store],
    dev: &mut SimDisk,
    cid: Cid,
    tag: Tag,
    t: Transaction,
) -> Result<(), ReadError> {
    let n = stores.len() as u16;
    submit(&mut stores[usize::from(reactor_for(shard_for(cid, SHARDS), n))], dev, tag, t)
}

/// A PG was merged into another one and split off again on another reactor. Each log names the collection of
/// its own reactor.
#[test]
fn a_collection_is_removed_in_one_ring_and_created_in_another() {
    // Opens with as many reactors, with fewer, and with more.
    for (from, then) in [(1u16, 2), (0, 2), (1, 1), (0, 1), (1, 3), (0, 3)] {
        let mut dev = SimDisk::new(64 << 20);
        let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 2, labels: Default::default() };
        engine::format(&mut dev, &o).unwrap();
        let mut stores = engine::open(&mut dev, &config(2)).unwrap();
        let of = |r: u16| (0..).map(cid).find(|c| reactor_for(shard_for(*c, SHARDS), 2) == r).unwrap();
        let (x, y) = (of(from), of(1 - from));
        let (old, new) = (usize::from(from), usize::from(1 - from));
        let write = |data: &'static str| Op::Write {
            cid: x,
            oid: oid(1),
            off: 0,
            data: Bytes::from_static(data.as_bytes()),
            sums: None,
        };
        let txn = |ops| Transaction { ops };
        let t = txn(vec![Op::MakeCollection { cid: x, bits: 0 }, write("before")]);
        submit(&mut stores[old], &mut dev, Tag(1), t).unwrap();
        stores[old].request_checkpoint();
        drive(&mut stores[old], &mut dev);
        submit(&mut stores[new], &mut dev, Tag(2), txn(vec![Op::MakeCollection { cid: y, bits: 0 }])).unwrap();
        let t = txn(vec![Op::Remove { cid: x, oid: oid(1) }, Op::RemoveCollection { cid: x }]);
        submit(&mut stores[old], &mut dev, Tag(3), t).unwrap();
        let t = txn(vec![Op::MakeBeside { cid: x, beside: y, bits: 0 }, write("after")]);
        submit(&mut stores[new], &mut dev, Tag(4), t).unwrap();
        drop(stores);
        let mut stores = engine::open(&mut dev, &config(then)).unwrap();
        assert_eq!(stores.iter().map(|s| s.collections().len()).sum::<usize>(), 2, "from {from}, then {then}");
        let at = stores.iter().position(|s| s.collections().iter().any(|(c, _)| *c == x)).unwrap();
        assert!(then != 2 || at == new, "from {from}");
        let got = store::testing::compare::wait(&mut stores[at], &mut |s| drive(s, &mut dev), |s| {
            s.read(store::testing::compare::TAG, x, &oid(1), 0, u64::MAX)
        });
        assert_eq!(got, Ok(Bytes::from_static(b"after")));
    }
}

/// Collection names are unique. If two collections share one all the same, the number of reactors stays until
/// one is removed.
#[test]
fn two_collections_of_one_name_are_reported_and_one_can_be_removed() {
    let mut dev = SimDisk::new(64 << 20);
    let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 2, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut stores = engine::open(&mut dev, &config(2)).unwrap();
    let x = cid(3);
    for (n, s) in (0..).zip(&mut stores) {
        let write = Op::Write { cid: x, oid: oid(1), off: 0, data: Bytes::from(format!("of {n}")), sums: None };
        let t = Transaction { ops: vec![Op::MakeCollection { cid: x, bits: 0 }, write] };
        submit(s, &mut dev, Tag(n), t).unwrap();
    }
    drop(stores);
    for reactors in [1, 3] {
        let why = engine::open(&mut dev, &config(reactors)).err().unwrap();
        assert_eq!(why, OpenError::Twice { cid: x, reactors: 2 });
        assert!(!why.is_rot(), "nothing is lost, and rebuilding it would lose one");
    }
    let mut stores = engine::open(&mut dev, &config(2)).unwrap();
    let t = Transaction { ops: vec![Op::Remove { cid: x, oid: oid(1) }, Op::RemoveCollection { cid: x }] };
    submit(&mut stores[0], &mut dev, Tag(9), t).unwrap();
    drop(stores);
    let mut stores = engine::open(&mut dev, &config(1)).unwrap();
    let got = store::testing::compare::wait(&mut stores[0], &mut |s| drive(s, &mut dev), |s| {
        s.read(store::testing::compare::TAG, x, &oid(1), 0, u64::MAX)
    });
    assert_eq!(got, Ok(Bytes::from_static(b"of 1")));
}

/// A PG that other OSDs split off one on another reactor is created there, not on the reactor of its name, even
/// without the other PG.
#[test]
fn a_collection_stays_with_the_reactor_that_made_it() {
    for checkpoint in [false, true] {
        let mut dev = SimDisk::new(64 << 20);
        let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 3, labels: Default::default() };
        engine::format(&mut dev, &o).unwrap();
        let mut stores = engine::open(&mut dev, &config(3)).unwrap();
        for n in 0..40 {
            let x = cid(n);
            let data = Bytes::from(format!("of {n}"));
            let t = Transaction {
                ops: vec![
                    Op::MakeCollection { cid: x, bits: 0 },
                    Op::Write { cid: x, oid: oid(1), off: 0, data, sums: None },
                ],
            };
            submit(&mut stores[n as usize % 3], &mut dev, Tag(u64::from(n)), t).unwrap();
        }
        if checkpoint {
            for s in &mut stores {
                s.request_checkpoint();
                drive(s, &mut dev);
            }
        }
        drop(stores);
        for reactors in [3u16, 1, 2, 5, 3] {
            let mut stores = engine::open(&mut dev, &config(reactors)).unwrap();
            for n in 0..40 {
                let x = cid(n);
                let at = stores.iter().position(|s| s.collections().iter().any(|c| c.0 == x)).unwrap();
                assert!(reactors != 3 || at == n as usize % 3, "{n} of 3 is at {at}");
                let got = store::testing::compare::wait(&mut stores[at], &mut |s| drive(s, &mut dev), |s| {
                    s.read(store::testing::compare::TAG, x, &oid(1), 0, u64::MAX)
                });
                assert_eq!(got, Ok(Bytes::from(format!("of {n}"))));
            }
        }
    }
}

/// Compares the objects of a collection with those of its model. The store may show more collections than the model.
fn same_objects(s: &mut Store, dev: &mut SimDisk, m: &mut MemStore, c: Cid) {
    for oid in m.list(Tag(0), c, &oid(0), None, 999).unwrap().0 {
        let got =
            store::testing::compare::wait(s, &mut |s| drive(s, dev), |s| s.stat(store::testing::compare::TAG, c, &oid));
        assert_eq!(got, m.stat(Tag(1), c, &oid));
        let got = store::testing::compare::wait(s, &mut |s| drive(s, dev), |s| {
            s.read(store::testing::compare::TAG, c, &oid, 0, u64::MAX)
        });
        assert_eq!(got, m.read(Tag(1), c, &oid, 0, u64::MAX));
    }
}

/// One model with the collections of all models.
fn all_of(models: &mut [MemStore]) -> MemStore {
    let mut all = MemStore::new();
    for (p, m) in models.iter_mut().enumerate() {
        let c = cid(p as u32);
        let mut t = Transaction { ops: vec![Op::MakeCollection { cid: c, bits: 3 }] };
        for o in m.list(Tag(0), c, &oid(0), None, 999).unwrap().0 {
            t.push(Op::Touch { cid: c, oid: o.clone() });
            for (off, len) in m.extents(Tag(0), c, &o, 0, u64::MAX).unwrap() {
                let data = m.read(Tag(0), c, &o, off, len).unwrap();
                t.push(Op::Write { cid: c, oid: o.clone(), off, data, sums: None });
            }
            let size = m.stat(Tag(0), c, &o).unwrap().size;
            t.push(Op::Truncate { cid: c, oid: o, size });
        }
        all.submit(Tag(0), t);
    }
    all
}

#[test]
fn any_number_of_reactors_opens_what_another_number_wrote() {
    let mut rng = Rng::new(8);
    let mut dev = SimDisk::new(64 << 20);
    let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 2, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    // One model per collection, since each store shows only its own.
    let mut models: Vec<MemStore> = (0..8).map(|_| MemStore::new()).collect();
    let mut tag = 0;
    for (round, reactors) in [2u16, 2, 1, 3, 5, 32, 4, 1].into_iter().enumerate() {
        let mut stores = engine::open(&mut dev, &config(reactors)).unwrap();
        assert_eq!(stores.len(), usize::from(reactors));
        for (p, m) in models.iter_mut().enumerate() {
            let c = cid(p as u32);
            let s = &mut stores[usize::from(reactor_for(shard_for(c, SHARDS), reactors))];
            if round > 0 {
                assert!(s.collections().iter().any(|x| x.0 == c), "round {round}: {c:?} is where it belongs");
                same_objects(s, &mut dev, m, c);
                assert_eq!(s.collection_usage(c), m.collection_usage(c));
            }
        }
        for _ in 0..60 {
            tag += 1;
            let p = rng.below(8);
            let c = cid(p as u32);
            let mut t = Transaction::new();
            if models[p as usize].collections().is_empty() {
                t.push(Op::MakeCollection { cid: c, bits: 3 });
            }
            let mut data = vec![0; rng.below(40_000) as usize];
            rng.fill(&mut data);
            let o = oid(rng.below(10));
            t.push(Op::Write { cid: c, oid: o.clone(), off: rng.below(50_000), data: data.into(), sums: None });
            t.push(Op::Clone { cid: c, src: o, dst: oid(rng.below(10)) });
            submit_at_home(&mut stores, &mut dev, c, Tag(tag), t.clone()).unwrap();
            models[p as usize].submit(Tag(tag), t);
        }
        for (p, m) in models.iter_mut().enumerate() {
            if m.collections().is_empty() {
                tag += 1;
                let t = Transaction { ops: vec![Op::MakeCollection { cid: cid(p as u32), bits: 3 }] };
                submit_at_home(&mut stores, &mut dev, cid(p as u32), Tag(tag), t.clone()).unwrap();
                m.submit(Tag(tag), t);
            }
        }
        if reactors == 1 {
            stores[0].check(&mut dev).unwrap();
        }
        if round % 3 == 1 {
            for s in &mut stores {
                s.request_checkpoint();
                drive(s, &mut dev);
            }
        }
        dev = dev.power_cut(&mut rng);
    }
    // At the end all collections are in one store, which equals all models.
    let mut s = engine::open(&mut dev, &config(1)).unwrap().remove(0);
    s.check(&mut dev).unwrap();
    let mut all = all_of(&mut models);
    same(&mut s, &mut all, &mut |s| drive(s, &mut dev), false).unwrap();
}

/// Blocks constantly move between reactors, so the order of replay must not matter.
#[test]
fn logs_are_replayed_in_any_order() {
    let mut rng = Rng::new(21);
    let mut dev = SimDisk::new(64 << 20);
    let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 3, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut contents: Vec<Vec<u8>> = Vec::new();
    let cfg = Config { first_fit: true, ..config(3) };
    let mut stores = engine::open(&mut dev, &cfg).unwrap();
    let (mut tag, mut replayed, mut written) = (0, 0, 0);
    for n in 0..6 {
        let make = Op::MakeCollection { cid: cid(n), bits: 3 };
        submit_at_home(&mut stores, &mut dev, cid(n), Tag(u64::from(n)), Transaction { ops: vec![make] }).unwrap();
        contents.push(vec![0; 1 << 20]);
    }
    for round in 0..24 {
        for _ in 0..60 {
            tag += 1;
            let n = rng.below(6) as usize;
            let mut data = vec![0; 4096 * (1 + rng.below(12) as usize)];
            rng.fill(&mut data);
            let off = rng.below(((1 << 20) - data.len() as u64) / 1024) as usize * 1024;
            contents[n][off..off + data.len()].copy_from_slice(&data);
            written += data.len();
            let (cid, data) = (cid(n as u32), data.into());
            let t = Transaction { ops: vec![Op::Write { cid, oid: oid(0), off: off as u64, data, sums: None }] };
            submit_at_home(&mut stores, &mut dev, cid, Tag(tag), t).unwrap();
        }
        dev = dev.power_cut(&mut rng);
        let mut free = Vec::new();
        // In each order, and all at once.
        for order in [[0, 0, 0], [0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut d = dev.clone();
            stores =
                if order == [0; 3] { open_at_once(&mut d, &cfg) } else { open_in_order(&mut d, &cfg, |i| order[i]) };
            for (n, c) in contents.iter().enumerate() {
                let cid = cid(n as u32);
                let s = &mut stores[usize::from(reactor_for(shard_for(cid, SHARDS), 3))];
                let got = store::testing::compare::wait(s, &mut |s| drive(s, &mut d), |s| {
                    s.read(store::testing::compare::TAG, cid, &oid(0), 0, u64::MAX)
                });
                let got = got.unwrap();
                assert!(got == c[..got.len()] && c[got.len()..].iter().all(|b| *b == 0), "round {round}, {order:?}");
            }
            free.push(stores[0].statfs().available);
            replayed += stores.iter().filter(|s| s.replayed().txns > 0).count();
            if order == [2, 1, 0] {
                dev = d;
            }
        }
        assert!(free.iter().all(|f| *f == free[0]), "round {round}: {free:?}");
    }
    assert!(replayed > 24 * 6 * 2 && written > (5 * contents.len()) << 20, "{replayed} logs, {written} bytes");
    drop(stores);
    engine::open(&mut dev, &config(1)).unwrap()[0].check(&mut dev).unwrap();
}

#[test]
fn a_store_may_be_opened_on_one_thread_and_run_on_another() {
    fn sendable<T: Send>() {}
    sendable::<engine::RingLog<'_>>();
    sendable::<Store>();
}

#[test]
fn no_reactor_is_full_while_the_device_is_not() {
    let mut dev = SimDisk::new(64 << 20);
    let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 4, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut stores = engine::open(&mut dev, &config(4)).unwrap();
    let c = cid(1);
    submit_at_home(&mut stores, &mut dev, c, Tag(1), Transaction { ops: vec![Op::MakeCollection { cid: c, bits: 0 }] })
        .unwrap();
    let data = Bytes::from(vec![5; 1 << 20]);
    let mut mib = 0;
    let refused = loop {
        let t = Transaction { ops: vec![Op::Write { cid: c, oid: oid(mib), off: 0, data: data.clone(), sums: None }] };
        match submit_at_home(&mut stores, &mut dev, c, Tag(2), t) {
            Ok(()) => mib += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, ReadError::Io { errno: base::errno::ENOSPC, .. }));
    assert!(mib >= 50, "one reactor of four could use only {mib} MiB of 64");
}
