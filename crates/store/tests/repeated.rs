//! Tests that a plan that waited and is repeated with other operations writes the new ones.

use base::rng::Rng;
use base::{Epoch, Eversion, HObject, PgId, PoolId, ShardId, SpgId};
use bytes::Bytes;
use store::engine::{self, Config, Store};
use store::mem::MemStore;
use store::testing::compare::{durable, same};
use store::testing::disk::SimDisk;
use store::testing::{fresh, turn};
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const CID: Cid = Cid::Pg(SpgId { pg: PgId { pool: PoolId(1), seed: 0 }, shard: ShardId::NONE });

fn prepared(dev: &mut SimDisk, s: &mut Store, rng: &mut Rng, tag: Tag, t: &Transaction) {
    for _ in 0..1000 {
        match s.prepare(tag, t) {
            Ok(()) => return,
            Err(ReadError::Wait) => turn(dev, s, rng),
            Err(e) => panic!("{e:?}"),
        }
    }
    panic!("waits for ever");
}

fn object() -> Oid {
    Oid::new(HObject { oid: "o".into(), hash: 7, ..HObject::min() })
}

fn write(off: u64, len: usize, byte: u8) -> Op {
    Op::Write { cid: CID, oid: object(), off, data: vec![byte; len].into(), sums: None }
}

fn log(version: u64) -> Op {
    let version = Eversion { epoch: Epoch(1), version };
    Op::LogAppend { cid: CID, version, entry: Bytes::from_static(b"a record") }
}

/// The first operations wait for their data; the second ones are submitted instead.
fn differ(first: Vec<Op>, second: Vec<Op>) {
    let mut rng = Rng::new(5);
    let cfg = Config { cache_bytes: 0, early_bytes: 64 << 10, ..Config::default() };
    let (mut dev, mut s) = fresh(64 << 20, 3, &cfg);
    let mut model = MemStore::new();
    let mut done = Vec::new();
    let made = Transaction { ops: vec![Op::MakeCollection { cid: CID, bits: 0 }, write(0, 8192, 1), log(1)] };
    for (tag, t) in [(Tag(1), made), (Tag(2), Transaction { ops: second })] {
        if tag == Tag(2) {
            let t = Transaction { ops: first.clone() };
            assert!(matches!(s.prepare(tag, &t), Err(ReadError::Wait)), "the first does not write early");
            turn(&mut dev, &mut s, &mut rng);
        }
        prepared(&mut dev, &mut s, &mut rng, tag, &t);
        s.submit(tag, t.clone());
        model.submit(tag, t);
        while done.is_empty() {
            turn(&mut dev, &mut s, &mut rng);
            durable(&mut s, &mut done);
        }
        done.clear();
    }
    while model.poll_event().is_some() {}
    same(&mut s, &mut model.clone(), &mut |s| turn(&mut dev, s, &mut rng), false).unwrap();
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    same(&mut s, &mut model, &mut |s| turn(&mut dev, s, &mut rng), false).unwrap();
    s.check(&mut dev).unwrap();
}

#[test]
fn a_repeated_plan_with_more_or_fewer_operations_around_the_large_write() {
    let (large, small) = (write(0, 600_000, 2), write(0, 4096, 3));
    let trim = Op::LogTrim { cid: CID, to: Eversion { epoch: Epoch(1), version: 1 } };
    let short = vec![large.clone(), small.clone(), log(2)];
    let long =
        vec![large.clone(), small.clone(), log(2), trim, Op::PgInfo { cid: CID, info: Bytes::from_static(b"i") }];
    differ(short.clone(), long.clone());
    differ(long, short.clone());
    let mut behind = short.clone();
    behind.insert(0, Op::Touch { cid: CID, oid: object() });
    differ(short.clone(), behind.clone());
    differ(behind, short.clone());
    differ(short.clone(), short);
}

#[test]
fn a_repeated_plan_with_other_data_another_place_or_no_write() {
    let first = vec![write(0, 600_000, 2), log(2)];
    differ(first.clone(), vec![write(0, 600_000, 9), log(2)]);
    differ(first.clone(), vec![write(4096, 600_000, 2), log(2)]);
    differ(first.clone(), vec![write(0, 300_000, 2), log(2)]);
    differ(first.clone(), vec![write(100, 600_000, 2), write(50, 10, 4), log(2)]);
    differ(first, vec![write(0, 4096, 2), log(2)]);
}

/// The first large write can't be early, since a later operation needs one of its blocks. The early data of the
/// second must not be taken for the first, and be written again each time.
#[test]
fn two_equal_large_writes_with_a_small_one_between() {
    let all = vec![write(0, 600_000, 2), write(10, 100, 3), write(0, 600_000, 2), log(2)];
    differ(all.clone(), all);
}
