//! Trees of three levels above their leaves: do pages in the midst of them go, and come again, without harm?

use base::rng::Rng;
use base::{HObject, PgId};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config};
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, Tag, Transaction};

/// Two of them don't fit a leaf.
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

/// Keys of an omap, each a leaf: a range of them goes, with whole pages above, and keys come in its place in any order.
#[test]
fn a_range_that_went_is_filled_again() {
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
        // From the end in one round.
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
