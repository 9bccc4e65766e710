//! Tests trees with three levels above their leaves: pages in the middle are removed and added again.

use base::rng::Rng;
use base::{HObject, PgId};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config};
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, Tag, Transaction};

/// Size of a value; two of them don't fit a leaf.
const VALUE: usize = 7 << 10;
const KEYS: u64 = 26_000;

fn key(n: u64) -> Bytes {
    format!("{n:08}").into()
}

fn shuffle(v: &mut [u64], rng: &mut Rng) {
    for i in (1..v.len()).rev() {
        v.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

/// Each key of the omap has its own leaf. A range is removed, with whole inner pages, and refilled in any
/// order.
#[test]
fn a_removed_range_is_filled_again() {
    let cfg = Config { checkpoint_log_bytes: 32 << 20, ..Config::default() };
    let (mut dev, mut s) = store::testing::fresh(1 << 30, 1, &cfg);
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let oid = Oid::new(HObject { oid: Bytes::from_static(b"o"), ..HObject::min() });
    let value = Bytes::from(vec![7; VALUE]);
    let mut tag = 1;
    let mut run = |dev: &mut SimDisk, s: &mut engine::Store, ops: Vec<Op>| {
        tag += 1;
        submit(s, dev, Tag(tag), Transaction { ops }).unwrap();
    };
    let set = |keys: &[u64]| {
        let entries = keys.iter().map(|n| (key(*n), value.clone())).collect();
        vec![Op::OmapSet { cid, oid: oid.clone(), entries }]
    };
    run(&mut dev, &mut s, vec![Op::MakeCollection { cid, bits: 0 }]);
    let mut rng = Rng::new(2);
    let mut all: Vec<u64> = (0..KEYS).collect();
    shuffle(&mut all, &mut rng);
    for part in all.chunks(100) {
        run(&mut dev, &mut s, set(part));
    }
    for round in 0..3 {
        let (from, to) = (KEYS / 5 + round * 500, KEYS * 4 / 5);
        let range = Op::OmapRmRange { cid, oid: oid.clone(), first: key(from), last: key(to) };
        run(&mut dev, &mut s, vec![range]);
        let mut again: Vec<u64> = (from..to).collect();
        // One round goes from the end.
        if round == 1 {
            again.reverse()
        } else {
            shuffle(&mut again, &mut rng)
        }
        for part in again.chunks(100) {
            run(&mut dev, &mut s, set(part));
        }
        s.request_checkpoint();
        drive(&mut s, &mut dev);
        s = engine::open(&mut dev, &cfg).unwrap().remove(0);
        s.check(&mut dev).unwrap();
    }
    let mut got = 0;
    let mut from = Bytes::new();
    loop {
        let page = wait(&mut s, &mut |s| drive(s, &mut dev), |s| {
            s.omap_range(TAG, cid, &oid, &from, got > 0, 500, usize::MAX)
        })
        .unwrap();
        for (k, v) in &page.entries {
            assert_eq!((k, v.len()), (&key(got), VALUE));
            got += 1;
        }
        match page.entries.last() {
            Some((k, _)) if page.more => from = k.clone(),
            _ => break,
        }
    }
    assert_eq!(got, KEYS);
}

/// Inner pages with few kids, and memory for hardly more than one path to a leaf.
fn deep() -> Config {
    Config { kids_max: 3, meta_bytes: 20 << 10, checkpoint_log_bytes: 64 << 10, ..Config::default() }
}

fn submitted(dev: &mut SimDisk, s: &mut engine::Store, ops: Vec<Op>) {
    submit(s, dev, Tag(1), Transaction { ops }).unwrap();
}

fn stored(dev: &mut SimDisk, s: &mut engine::Store) {
    s.request_checkpoint();
    drive(s, dev);
}

/// Inner pages that begin amid an omap's keys still do so when the omap was cleared, is inline, and grows into
/// leaves again.
#[test]
fn a_cleared_omap_that_grows_into_leaves_again_is_found() {
    let (mut dev, mut s) = store::testing::fresh(64 << 20, 2, &deep());
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let named = |name: &'static str| Oid::new(HObject { oid: Bytes::from_static(name.as_bytes()), ..HObject::min() });
    let set = |oid: Oid, len: usize| {
        let entries = (0..40).map(|n| (key(n * 10), Bytes::from(vec![n as u8; len]))).collect();
        vec![Op::OmapSet { cid, oid, entries }]
    };
    submitted(&mut dev, &mut s, vec![Op::MakeCollection { cid, bits: 0 }]);
    // Both omaps have leaves in the same inner pages, at their ends.
    for name in ["a", "b"] {
        submitted(&mut dev, &mut s, vec![Op::Touch { cid, oid: named(name) }]);
    }
    for name in ["a", "b"] {
        submitted(&mut dev, &mut s, set(named(name), VALUE));
    }
    for clear in [true, false] {
        stored(&mut dev, &mut s);
        let oid = named("a");
        let gone = match clear {
            true => Op::OmapClear { cid, oid: oid.clone() },
            false => Op::OmapRmKeys { cid, oid: oid.clone(), keys: (0..40).map(|n| key(n * 10)).collect() },
        };
        submitted(&mut dev, &mut s, vec![gone]);
        stored(&mut dev, &mut s);
        // The omap is inline first, and then in leaves.
        for n in (0..40).rev() {
            let entries = vec![(key(n * 10), Bytes::from(vec![9; 100]))];
            submitted(&mut dev, &mut s, vec![Op::OmapSet { cid, oid: oid.clone(), entries }]);
        }
        s.check(&mut dev).unwrap();
        for n in 0..40 {
            let got = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.omap_get(TAG, cid, &oid, &key(n * 10)));
            assert_eq!(got, Ok(Some(Bytes::from(vec![9; 100]))), "key {n}");
        }
        submitted(&mut dev, &mut s, set(oid, VALUE));
    }
}

/// Removing a key needs only its leaf, even if that is the last of its page and the next page is not in memory.
#[test]
fn removing_a_key_reads_no_other_leaf() {
    let (mut dev, mut s) = store::testing::fresh(64 << 20, 3, &deep());
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let oid = Oid::new(HObject { oid: Bytes::from_static(b"o"), ..HObject::min() });
    submitted(&mut dev, &mut s, vec![Op::MakeCollection { cid, bits: 0 }]);
    for n in 0..60 {
        let entries = (0..20).map(|i| (key(n * 20 + i), Bytes::from(vec![7; VALUE / 20]))).collect();
        submitted(&mut dev, &mut s, vec![Op::OmapSet { cid, oid: oid.clone(), entries }]);
    }
    stored(&mut dev, &mut s);
    for n in 0..60 * 20 / 7 {
        s = engine::open(&mut dev, &deep()).unwrap().remove(0);
        let keys = vec![key(n * 7)];
        submitted(&mut dev, &mut s, vec![Op::OmapRmKeys { cid, oid: oid.clone(), keys }]);
        if n % 40 == 0 {
            stored(&mut dev, &mut s);
        }
    }
    s.check(&mut dev).unwrap();
    let st = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.stat(TAG, cid, &oid)).unwrap();
    assert_eq!(st.omap, (60 * 20 - 60 * 20 / 7) * (8 + VALUE as u64 / 20));
}

/// As in stores of earlier versions, some omap keys are found only by listing, and some of these were set
/// again. The repair puts each in place with its latest value.
#[test]
fn a_repair_moves_keys_that_only_a_listing_finds() {
    let cid = Cid::Pg(PgId::new(1, 0).into());
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let cfg = Config { kids_max: 3 + rng.below(3) as usize, ..deep() };
        let (mut dev, mut s) = store::testing::fresh(64 << 20, 4, &cfg);
        let oids: Vec<Oid> = (0..3)
            .map(|n| {
                Oid::new(HObject {
                    oid: format!("o{n}").into(),
                    hash: n << 30,
                    pool: base::PoolId(1),
                    ..HObject::min()
                })
            })
            .collect();
        submitted(&mut dev, &mut s, vec![Op::MakeCollection { cid, bits: 0 }]);
        let touch = |oid: &Oid| Op::Touch { cid, oid: oid.clone() };
        submitted(&mut dev, &mut s, oids.iter().map(touch).collect());
        let value = |len: u64, n: u64| Bytes::from(vec![n as u8; len as usize]);
        let mut model = vec![std::collections::BTreeMap::new(); oids.len()];
        for large in [true, false] {
            base::planted::plant((!large).then_some(base::planted::Bug::StoreOmapAsOne));
            for (oid, want) in oids.iter().zip(&mut model) {
                want.clear();
                submitted(&mut dev, &mut s, vec![Op::OmapClear { cid, oid: oid.clone() }]);
                stored(&mut dev, &mut s);
                for n in (0..40).rev() {
                    let len = if large { VALUE as u64 } else { 60 + rng.below(500) };
                    let entries = vec![(key(n * 10), value(len, n))];
                    want.insert(key(n * 10), value(len, n));
                    submitted(&mut dev, &mut s, vec![Op::OmapSet { cid, oid: oid.clone(), entries }]);
                }
            }
        }
        base::planted::plant(None);
        for _ in 0..rng.below(30) {
            let (i, n, len) = (rng.below(3) as usize, rng.below(400), 1 + rng.below(300));
            let entries = vec![(key(n), value(len, seed))];
            model[i].insert(key(n), value(len, seed));
            submitted(&mut dev, &mut s, vec![Op::OmapSet { cid, oid: oids[i].clone(), entries }]);
            if rng.chance(1, 10) {
                stored(&mut dev, &mut s);
            }
        }
        let found = s.fsck(&mut dev, false).errors;
        assert!(found.iter().any(|e| e.contains(":o1:0 are in a page where lookups")), "seed {seed}: {found:?}");
        let lacks = engine::rebuild(&mut dev, &cfg, |_| false).unwrap();
        assert!(lacks.moved > 0, "seed {seed}");
        assert_eq!(lacks, engine::Rebuilt { moved: lacks.moved, ..Default::default() }, "seed {seed}");
        s = engine::open(&mut dev, &cfg).unwrap().remove(0);
        s.check(&mut dev).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for (oid, want) in oids.iter().zip(&model) {
            let pump = &mut |s: &mut engine::Store| drive(s, &mut dev);
            let st = wait(&mut s, pump, |s| s.stat(TAG, cid, oid)).unwrap();
            assert_eq!(st.omap, want.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum::<u64>());
            for (k, v) in want {
                assert_eq!(wait(&mut s, pump, |s| s.omap_get(TAG, cid, oid, k)), Ok(Some(v.clone())), "seed {seed}");
            }
            let all = wait(&mut s, pump, |s| s.omap_range(TAG, cid, oid, b"", false, usize::MAX, usize::MAX)).unwrap();
            assert!(all.entries.iter().map(|e| (&e.0, &e.1)).eq(want), "seed {seed}");
        }
    }
}
