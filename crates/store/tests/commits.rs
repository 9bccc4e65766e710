//! Tests of which transactions share a commit.

use base::rng::Rng;
use base::{HObject, PgId, PoolId, ShardId, SpgId};
use store::engine::{Config, Store};
use store::testing::compare::durable;
use store::testing::disk::SimDisk;
use store::testing::{fresh, turn};
use store::{Cid, ObjectStore, Oid, Op, Tag, Transaction};

const CID: Cid = Cid::Pg(SpgId { pg: PgId { pool: PoolId(1), seed: 0 }, shard: ShardId::NONE });

fn submit(s: &mut Store, tags: std::ops::Range<u64>) {
    for n in tags {
        let oid = Oid::new(HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() });
        let t = Transaction { ops: vec![Op::Touch { cid: CID, oid }] };
        s.prepare(Tag(n), &t).unwrap();
        s.submit(Tag(n), t);
    }
}

fn write(s: &mut Store, n: u64, len: usize) {
    let oid = Oid::new(HObject { oid: "w".into(), hash: 1, ..HObject::min() });
    let t = Transaction { ops: vec![Op::Write { cid: CID, oid, off: 0, data: vec![7; len].into(), sums: None }] };
    s.prepare(Tag(n), &t).unwrap();
    s.submit(Tag(n), t);
}

/// Ends a turn. Returns the number of frames it sent.
fn frames(dev: &mut SimDisk, s: &mut Store) -> u64 {
    let before = s.counters().frames;
    s.end_turn();
    while let Some(r) = s.poll_io() {
        dev.submit(r);
    }
    s.counters().frames - before
}

#[test]
fn a_small_commit_waits_for_a_large_one_and_lone_ones_do_not_wait() {
    let mut rng = Rng::new(1);
    let (mut dev, mut s) = fresh(64 << 20, 3, &Config { early_bytes: usize::MAX, ..Config::default() });
    let mut done = Vec::new();
    let all = |dev: &mut SimDisk, s: &mut Store, rng: &mut Rng, done: &mut Vec<_>, n: usize| {
        while done.len() < n {
            turn(dev, s, rng);
            durable(s, done);
        }
        assert_eq!(done.len(), n);
        assert!(done.drain(..).all(|(_, ok)| ok));
    };
    let t = Transaction { ops: vec![Op::MakeCollection { cid: CID, bits: 0 }] };
    s.prepare(Tag(1), &t).unwrap();
    s.submit(Tag(1), t);
    all(&mut dev, &mut s, &mut rng, &mut done, 1);

    submit(&mut s, 10..14);
    assert_eq!(frames(&mut dev, &mut s), 1);
    submit(&mut s, 20..23);
    assert_eq!(frames(&mut dev, &mut s), 0, "three go beside four");
    submit(&mut s, 23..24);
    assert_eq!(frames(&mut dev, &mut s), 1, "four wait for four");
    submit(&mut s, 30..40);
    assert_eq!(frames(&mut dev, &mut s), 0, "a third commit is under way");
    all(&mut dev, &mut s, &mut rng, &mut done, 18);

    submit(&mut s, 50..54);
    assert_eq!(frames(&mut dev, &mut s), 1);
    submit(&mut s, 54..55);
    assert_eq!(frames(&mut dev, &mut s), 0);
    all(&mut dev, &mut s, &mut rng, &mut done, 5);

    submit(&mut s, 70..76);
    assert_eq!(frames(&mut dev, &mut s), 1);
    submit(&mut s, 76..90);
    assert_eq!(frames(&mut dev, &mut s), 0, "many go beside several");
    write(&mut s, 90, 300_000);
    assert_eq!(frames(&mut dev, &mut s), 1, "much data waits");
    all(&mut dev, &mut s, &mut rng, &mut done, 21);

    submit(&mut s, 60..61);
    assert_eq!(frames(&mut dev, &mut s), 1);
    submit(&mut s, 61..62);
    assert_eq!(frames(&mut dev, &mut s), 1, "one waits for one");
    all(&mut dev, &mut s, &mut rng, &mut done, 2);
}
