//! Tests that a checkpoint of many pages ends by itself, and that replaced pages become free.

use base::{Eversion, HObject, PgId};
use bytes::Bytes;
use store::engine::{self, Config, Store, device::drive};
use store::testing::disk::SimDisk;
use store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

fn fresh() -> (SimDisk, Store) {
    store::testing::fresh(256 << 20, 3, &Config::default())
}

fn cid(n: u32) -> Cid {
    Cid::Pg(PgId::new(1, n).into())
}

fn run(s: &mut Store, dev: &mut SimDisk, ops: Vec<Op>) {
    let t = Transaction { ops };
    while let Err(e) = s.prepare(Tag(1), &t) {
        assert_eq!(e, ReadError::Wait);
        drive(s, dev);
        while s.poll_event().is_some() {}
    }
    s.submit(Tag(1), t);
    drive(s, dev);
    let done: Vec<Event> = std::iter::from_fn(|| s.poll_event()).collect();
    assert_eq!(done, [Event::Durable(Tag(1), Ok(()))]);
}

/// Runs a transaction on a device that completes one request at a time. Returns how often the transaction had
/// to wait.
fn run_slowly(s: &mut Store, dev: &mut SimDisk, rng: &mut base::rng::Rng, tag: Tag, t: Transaction) -> u64 {
    let mut waited = 0;
    while let Err(e) = s.prepare(tag, &t) {
        assert_eq!(e, ReadError::Wait);
        waited += 1;
        store::testing::pump(dev, rng, s, 1);
        while s.poll_event().is_some() {}
    }
    s.submit(tag, t);
    s.end_turn();
    store::testing::pump(dev, rng, s, 1);
    waited
}

#[test]
fn a_checkpoint_longer_than_a_turn_ends_by_itself() {
    let (mut dev, mut s) = fresh();
    for batch in 0..10 {
        let ops = (0..1000).map(|n| Op::MakeCollection { cid: cid(batch * 1000 + n), bits: 1 }).collect();
        run(&mut s, &mut dev, ops);
    }
    for round in 1..=3 {
        s.request_checkpoint();
        drive(&mut s, &mut dev);
        assert_eq!(s.counters().checkpoints, round);
        assert!(s.is_idle());
        s.check(&mut dev).unwrap();
        run(&mut s, &mut dev, vec![Op::PgInfo { cid: cid(5), info: Bytes::from_static(b"x") }]);
    }
    let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    assert_eq!(s.collections().len(), 10_000);
    assert_eq!(s.pg_info(Tag(2), cid(5)).unwrap().unwrap().as_ref(), b"x");
    s.check(&mut dev).unwrap();
}

#[test]
fn overwriting_for_ever_uses_bounded_space() {
    let (mut dev, mut s) = fresh();
    let oid: Oid = HObject { oid: Bytes::from_static(b"o"), ..HObject::min() }.into();
    run(&mut s, &mut dev, vec![Op::MakeCollection { cid: cid(1), bits: 0 }]);
    let free = s.statfs().available;
    for n in 0..300u64 {
        let data = Bytes::from(vec![n as u8; 4 << 20]);
        let ops = vec![Op::Write { cid: cid(1), oid: oid.clone(), off: 0, data, sums: None }];
        run(&mut s, &mut dev, ops);
    }
    // 1.2 GiB were written to 256 MiB.
    assert!(s.counters().checkpoints > 0);
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    s.check(&mut dev).unwrap();
    let used = free - s.statfs().available;
    assert!(used < (4 << 20) + (512 << 10), "{used} bytes used for 4 MiB");
    assert_eq!(s.collection_usage(cid(1)), (1, 4 << 20, 0));
}

/// A frame ends exactly at the ring's end, and a checkpoint follows.
#[test]
fn a_checkpoint_at_the_end_of_the_ring_opens() {
    let (mut dev, mut s) = store::testing::fresh(64 << 20, 3, &Config::default());
    run(&mut s, &mut dev, vec![Op::MakeCollection { cid: cid(0), bits: 1 }]);
    // The ring has 1,024 blocks and every frame takes one.
    for n in 0..1030u32 {
        run(&mut s, &mut dev, vec![Op::PgInfo { cid: cid(0), info: n.to_le_bytes().to_vec().into() }]);
        if n > 1010 {
            s.request_checkpoint();
            drive(&mut s, &mut dev);
            let mut other = engine::open(&mut dev.clone(), &Config::default()).unwrap().remove(0);
            assert_eq!(other.pg_info(Tag(2), cid(0)).unwrap().unwrap().as_ref(), n.to_le_bytes());
        }
    }
}

/// However slow the device is, a restart finds no more log than configured, except for one larger transaction.
#[test]
fn the_log_stays_within_its_limit_of_bytes() {
    let cfg = Config { log_bytes_max: 256 << 10, checkpoint_turn_bytes: 4096, ..Config::default() };
    let (mut dev, mut s) = store::testing::fresh(256 << 20, 3, &cfg);
    let mut rng = base::rng::Rng::new(4);
    run(&mut s, &mut dev, vec![Op::MakeCollection { cid: cid(1), bits: 0 }]);
    let oid = |n: u64| Oid::from(HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() });
    let (mut most, mut waited) = (0, 0);
    for n in 0..600u64 {
        let value = Bytes::from(vec![n as u8; if n == 300 { 400 << 10 } else { 2000 }]);
        let t = Transaction { ops: vec![Op::SetAttrs { cid: cid(1), oid: oid(n), attrs: vec![("a".into(), value)] }] };
        waited += run_slowly(&mut s, &mut dev, &mut rng, Tag(n), t);
        let slack = if (300..310).contains(&n) { 500 << 10 } else { 0 };
        assert!(s.replay_bytes() <= cfg.log_bytes_max + slack, "{} bytes of log at {n}", s.replay_bytes());
        most = most.max(s.replay_bytes());
    }
    assert!(waited > 0 && most > 200 << 10, "{waited} waits, {most} bytes");
    let kept = s.replay_bytes();
    let mut dev = dev.killed(&mut rng);
    let s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    assert!(s.replayed().txns > 0 && s.replayed().bytes <= kept + 4096, "{:?} of {kept}", s.replayed());
}

/// Some short records take long to replay: clones of an object with scattered blocks, each of which is counted.
#[test]
fn the_log_stays_within_its_limit_of_replay_steps() {
    const BLOCKS: u64 = 512;
    let cfg = Config { replay_steps_max: 20 * BLOCKS, checkpoint_turn_bytes: 4096, ..Config::default() };
    let (mut dev, mut s) = store::testing::fresh(256 << 20, 3, &cfg);
    let mut rng = base::rng::Rng::new(4);
    let oid = |n: u64| Oid::from(HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() });
    run(&mut s, &mut dev, vec![Op::MakeCollection { cid: cid(1), bits: 0 }]);
    let data = Bytes::from(vec![7; 4096]);
    // Every other block, so that each is a separate run.
    let write = |b: u64| Op::Write { cid: cid(1), oid: oid(0), off: 2 * b * 4096, data: data.clone(), sums: None };
    run(&mut s, &mut dev, (0..BLOCKS).map(write).collect());
    let (mut most, mut waited) = (0, 0);
    for n in 1..200u64 {
        let t = Transaction { ops: vec![Op::Clone { cid: cid(1), src: oid(0), dst: oid(n) }] };
        waited += run_slowly(&mut s, &mut dev, &mut rng, Tag(n), t);
        // A transaction is admitted even if it exceeds the remaining room.
        assert!(s.replay_steps() <= cfg.replay_steps_max + 3 * BLOCKS, "{} steps at {n}", s.replay_steps());
        most = most.max(s.replay_steps());
    }
    assert!(waited > 0 && most > cfg.replay_steps_max / 2, "{waited} waits, {most} steps");
    assert!(s.replay_bytes() < 2 << 20, "{} bytes of log for these steps", s.replay_bytes());
    let kept = s.replay_steps();
    let mut dev = dev.killed(&mut rng);
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    let steps = s.replayed().steps;
    assert!(steps > 0 && steps <= kept + BLOCKS, "{steps} of {kept}");
    s.check(&mut dev).unwrap();
}

/// An inner page takes the slot of a former leaf between two checkpoints. It must be stored with its own level,
/// not with the leaves. Otherwise it refers to pages without a place, and the store does not open.
#[test]
fn an_inner_page_in_the_slot_of_a_leaf_is_stored_after_the_pages_below_it() {
    let (mut dev, mut s) = fresh();
    let (grown, trimmed) = (cid(1), cid(2));
    let shard = |c| store::layout::shard_for(c, store::layout::SHARDS);
    assert_ne!(shard(grown), shard(trimmed), "two trees");
    let make = |cid| Op::MakeCollection { cid, bits: 0 };
    run(&mut s, &mut dev, vec![make(grown), make(trimmed)]);
    let append = |cid, versions: std::ops::Range<u64>| -> Vec<Op> {
        let entry = Bytes::from_static(b"entry");
        versions.map(|v| Op::LogAppend { cid, version: Eversion::new(1, v), entry: entry.clone() }).collect()
    };
    // A leaf has 64 entries and an inner page 128 kids.
    for n in 0..160u64 {
        let (from, to) = (n * 320 + 1, (n + 1) * 320);
        run(&mut s, &mut dev, append(trimmed, from..to + 1));
        run(&mut s, &mut dev, vec![Op::LogTrim { cid: trimmed, to: Eversion::new(1, to) }]);
        run(&mut s, &mut dev, append(grown, n * 64 + 1..n * 64 + 65));
    }
    assert_eq!(s.counters().checkpoints, 0, "or the slots were not used again in between");
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    s.check(&mut dev).unwrap();
    let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    s.check(&mut dev).unwrap();
    drop(s);
}
