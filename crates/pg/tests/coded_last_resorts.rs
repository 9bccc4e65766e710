//! Are objects of an erasure-coded PG found that only copies which are to be filled have, or that were removed?

mod cluster;

use base::{HObject, PoolId};
use bytes::Bytes;
use cluster::shards::{finish, shard};
use cluster::{Cluster, POOL, hash, object_name};
use pg::object::{OI_ATTR, ObjectInfo};
use pg::peer::Body;
use store::ObjectStore as _;
use wire::msg::{OpCode, OsdOp};

/// The object that is lacked.
const LACKED: usize = 900;

fn head(object: usize) -> HObject {
    let name = object_name(object);
    HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() }.head()
}

/// A cluster with short logs that recovers nothing.
fn cluster(seed: u64, shape: (u8, u8)) -> Cluster {
    let mut c = Cluster::coded(seed, usize::from(shape.0 + shape.1), shape, 3, 0);
    (c.load, c.contended) = (false, false);
    c.keep_logs(5, 10);
    c.forbid_recovery(0..c.osds.len());
    c.run(3_000);
    c
}

fn may_recover(c: &mut Cluster) {
    for o in &c.osds {
        o.reserver.set(&pg::reserve::RecoveryConfig::default());
    }
    c.run(30_000);
}

/// Runs an operation, which must be acknowledged.
fn run(c: &mut Cluster, object: usize, op: OsdOp) {
    let primary = c.map().mapping().acting_primary.0;
    let tid = c.ask(primary, 1, object, 0, vec![op]);
    c.run(3_000);
    assert_eq!(
        c.asked.answers.get(&tid).map(|a| a.result),
        Some(0),
        "object {object}: {}",
        c.describe(primary as usize)
    );
}

fn data(with: u8) -> Bytes {
    (0..30_000u32).map(|i| (i / 7) as u8 ^ with).collect::<Vec<u8>>().into()
}

fn write(c: &mut Cluster, object: usize, with: u8) {
    let data = data(with);
    run(c, object, OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data));
}

/// An OSD goes down, and comes back with a log that ends before those of the others begin.
fn outdate(c: &mut Cluster, osd: i32) {
    c.crash(osd);
    c.run(25_000);
    (0..30).for_each(|n| write(c, n, osd as u8));
    c.restart(osd);
    c.run(20_000);
    assert!(!c.osds[osd as usize].pg.as_ref().unwrap().info().is_complete(), "{}", c.describe(osd as usize));
}

/// The primary is down during a change of the object, and lacks it afterwards.
fn miss(c: &mut Cluster, change: impl FnOnce(&mut Cluster)) {
    c.crash(0);
    c.run(25_000);
    change(c);
    c.restart(0);
    c.run(20_000);
    assert_eq!(c.osds[0].pg.as_ref().unwrap().missing(), 1, "{}", c.describe(0));
}

/// The primary finds the object as it was written last.
fn reads_back(c: &mut Cluster, with: u8) {
    let primary = c.map().mapping().acting_primary.0;
    let tid = c.ask(primary, 1, LACKED, 0, vec![OsdOp::with_extent(OpCode::READ, 0, 1 << 20, Bytes::new())]);
    c.run(5_000);
    let read = c.asked.answers.get(&tid).map(|a| a.ops[0].outdata.clone());
    assert!(read == Some(data(with)), "{}", c.describe(primary as usize));
}

/// One of two shards that have the object is on an OSD that is to be filled.
#[test]
fn a_shard_is_rebuilt_from_one_that_is_to_be_filled() {
    let mut c = cluster(70, (2, 1));
    write(&mut c, LACKED, 1);
    miss(&mut c, |c| write(c, LACKED, 2));
    outdate(&mut c, 1);
    may_recover(&mut c);
    assert_eq!(c.primary().unwrap().unfound_objects(), [], "{}", c.describe(0));
    reads_back(&mut c, 2);
    finish(&mut c);
}

/// All shards that have the object, as it was written last, are on osd.4 and on OSDs that are to be filled.
fn on_unfilled_shards(seed: u64) -> Cluster {
    on_unfilled_shards_with(seed, |_| {})
}

/// The same; `before` runs first.
fn on_unfilled_shards_with(seed: u64, before: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut c = cluster(seed, (2, 3));
    before(&mut c);
    write(&mut c, LACKED, 1);
    (0..2).for_each(|n| c.crash(n));
    c.run(25_000);
    write(&mut c, LACKED, 2);
    (0..2).for_each(|n| c.restart(n));
    c.run(20_000);
    (2..4).for_each(|n| outdate(&mut c, n));
    assert_eq!(c.primary().unwrap().missing(), 1, "{}", c.describe(0));
    c
}

#[test]
fn an_object_that_no_complete_shard_has_is_described_by_one_that_is_to_be_filled() {
    let mut c = on_unfilled_shards(71);
    c.crash(4);
    c.run(25_000);
    may_recover(&mut c);
    assert_eq!(c.primary().unwrap().unfound_objects(), [], "{}", c.describe(0));
    assert_eq!(c.primary().unwrap().missing(), 0);
    c.heal();
    finish(&mut c);
    reads_back(&mut c, 2);
}

/// The description of an object with so many clones has two pages, and its version is in the last one.
#[test]
fn an_object_with_many_clones_is_described_by_a_shard_that_is_to_be_filled() {
    let snaps = |c: &mut Cluster| {
        c.asked.in_snaps = true;
        for n in 0..300 {
            run(c, LACKED, OsdOp::with_extent(OpCode::WRITEFULL, 0, 1, vec![n as u8].into()));
            c.take_snapshot();
        }
    };
    let mut c = on_unfilled_shards_with(75, snaps);
    (2..4).for_each(|n| set_version(&mut c, n, |v| v - 1));
    c.crash(4);
    c.run(25_000);
    may_recover(&mut c);
    assert_eq!(c.primary().unwrap().unfound_objects().len(), 1, "{}", c.describe(0));
    (2..4).for_each(|n| set_version(&mut c, n, |v| v + 1));
    // Copies that come back are asked again.
    c.crash(3);
    c.run(25_000);
    c.restart(3);
    c.run(60_000);
    assert_eq!(c.primary().unwrap().unfound_objects(), [], "{}", c.describe(0));
    c.heal();
    finish(&mut c);
    reads_back(&mut c, 2);
}

/// Too few shards are left for the bytes of the object, and the log tells that it was not removed: nobody is asked.
#[test]
fn an_object_with_too_few_shards_that_was_not_removed_is_unfound_at_once() {
    let mut c = cluster(76, (2, 1));
    write(&mut c, LACKED, 1);
    miss(&mut c, |c| write(c, LACKED, 2));
    c.crash(1);
    c.run(25_000);
    c.net.spies = 100_000;
    may_recover(&mut c);
    assert_eq!(c.primary().unwrap().unfound_objects().len(), 1, "{}", c.describe(0));
    let body = |m: &wire::msg::MPgPeer| Body::decode(&m.body, &m.data, store::Cid::Pg(m.spg));
    let asked = c.net.spied.iter().filter(|(_, _, m)| matches!(body(m), Ok(Body::ShardRead { .. }))).count();
    assert_eq!(asked, 0);
    c.heal();
    finish(&mut c);
    reads_back(&mut c, 2);
}

/// Changes the version of the object on an OSD.
fn set_version(c: &mut Cluster, osd: i32, f: impl Fn(u64) -> u64) {
    let attrs = shard(c, osd).remove(&head(LACKED)).unwrap().1;
    let oi = attrs.iter().find(|(k, _)| k == OI_ATTR).unwrap();
    let mut oi = ObjectInfo::from_attr(&oi.1).unwrap();
    oi.version.version = f(oi.version.version);
    let attrs = vec![(Bytes::from_static(OI_ATTR), oi.to_attr())];
    let op = store::Op::SetAttrs { cid: store::Cid::Pg(c.spg(osd)), oid: store::Oid::new(head(LACKED)), attrs };
    c.osds[osd as usize].disk.submit(store::Tag(u64::MAX - 2), store::Transaction { ops: vec![op] });
    c.run(1_000);
}

#[test]
fn an_older_version_on_shards_that_are_to_be_filled_is_not_taken() {
    let mut c = on_unfilled_shards(72);
    (2..4).for_each(|n| set_version(&mut c, n, |v| v - 1));
    c.crash(4);
    c.run(25_000);
    may_recover(&mut c);
    let unfound = |c: &Cluster| c.primary().unwrap().unfound_objects().len();
    assert_eq!((unfound(&c), c.primary().unwrap().missing()), (1, 1), "{}", c.describe(0));
    (2..4).for_each(|n| set_version(&mut c, n, |v| v + 1));
    c.heal();
    finish(&mut c);
    reads_back(&mut c, 2);
}

/// Too few shards are left for the bytes of the object, but one of them knows that it was removed.
#[test]
fn a_removed_object_needs_one_shard_that_knows_of_it() {
    let mut c = cluster(73, (2, 1));
    write(&mut c, LACKED, 1);
    miss(&mut c, |c| run(c, LACKED, OsdOp::new(OpCode::DELETE)));
    c.crash(1);
    c.run(25_000);
    may_recover(&mut c);
    let p = c.primary().unwrap();
    assert_eq!((p.unfound_objects().len(), p.missing()), (0, 0), "{}", c.describe(0));
    c.heal();
    finish(&mut c);
}

/// Copies that are to be filled are not counted on, so nobody need repair them.
#[test]
fn an_unreadable_object_on_a_shard_that_is_to_be_filled_is_not_told_of() {
    let mut c = on_unfilled_shards(74);
    c.damage(2, LACKED);
    c.crash(4);
    c.run(25_000);
    may_recover(&mut c);
    let lacks = |c: &Cluster| c.osds[2].pg.as_ref().unwrap().missing();
    assert_eq!((c.primary().unwrap().missing(), lacks(&c)), (1, 0), "{}", c.describe(2));
}
