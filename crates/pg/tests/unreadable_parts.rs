//! Objects that can't be read on more copies than the PG can do without: is a client answered, or does the object count
//! as unfound while it waits?

mod cluster;

use base::errno::{EIO, ENOENT};
use base::{HObject, PoolId};
use bytes::Bytes;
use cluster::shards::finish;
use cluster::{Cluster, POOL, hash, object_name};
use store::Oid;
use wire::msg::{OpCode, OsdOp};
use wire::types::pg_state;

/// The object of these tests.
const OBJECT: usize = 10;
/// Bytes of an object that is sent in several parts, as a whole and as a shard of two.
const LARGE: usize = 5 << 20;

fn oid() -> Oid {
    let name = object_name(OBJECT);
    Oid::new(HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() }.head())
}

fn data(len: usize) -> Bytes {
    (0..len).map(|i| (i / 7) as u8 | 1).collect::<Vec<u8>>().into()
}

/// A PG at rest with the object.
fn at_rest(mut c: Cluster, len: usize) -> Cluster {
    c.contended = false;
    c.run(3_000);
    let data = data(len);
    let tid = c.ask(0, 1, OBJECT, 0, vec![OsdOp::with_extent(OpCode::WRITEFULL, 0, len as u64, data)]);
    c.run(5_000);
    assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0), "{}", c.describe(0));
    c.settle();
    c.load = false;
    c.run(1_000);
    c
}

fn read(c: &mut Cluster) -> u64 {
    c.ask(0, 1, OBJECT, 0, vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())])
}

fn answer(c: &Cluster, tid: u64) -> Option<(i32, Bytes)> {
    c.asked.answers.get(&tid).map(|a| (a.result, a.ops[0].outdata.clone()))
}

fn is_unfound(c: &Cluster) -> bool {
    let p = c.primary().unwrap();
    p.unfound_objects().len() == 1 && p.state_bits() & pg_state::RECOVERY_UNFOUND != 0
}

/// Attributes of the primary's shard are unreadable, and no member lacks the object.
#[test]
fn a_shard_whose_metadata_the_primary_cannot_read_is_rebuilt() {
    for shape in [(2, 1), (4, 2)] {
        let osds = usize::from(shape.0 + shape.1);
        let mut c = at_rest(Cluster::coded(1, osds, shape, 1, 0), 60_000);
        // A machine that was not restarted knows the metadata.
        c.crash(0);
        c.restart(0);
        c.run(20_000);
        c.osds[0].disk.rotten.insert(oid());
        let tid = read(&mut c);
        c.run(10_000);
        assert!(answer(&c, tid) == Some((0, data(60_000))), "{}", c.describe(0));
        assert!(c.osds[0].disk.rotten.is_empty(), "it was replaced");
        finish(&mut c);
    }
}

/// The only other source becomes unreadable when a part of the object has replaced the primary's unreadable one.
#[test]
fn an_object_of_which_only_a_part_came_is_unfound_and_not_absent() {
    for coded in [false, true] {
        let c = if coded { Cluster::coded(2, 3, (2, 1), 1, 0) } else { Cluster::new(2, 2, 2, 1, 1, 0) };
        let mut c = at_rest(c, LARGE);
        c.damage(0, OBJECT);
        let first = read(&mut c);
        for _ in 0..20_000 {
            c.run(1);
            if c.osds[0].disk.spoiled.is_empty() {
                break;
            }
        }
        assert!(c.osds[0].disk.spoiled.is_empty() && c.primary().unwrap().missing() == 1, "{}", c.describe(0));
        c.damage(1, OBJECT);
        c.run(30_000);
        let second = read(&mut c);
        c.run(5_000);
        assert!(is_unfound(&c), "coded: {coded}, {}", c.describe(0));
        let said = [first, second].map(|tid| answer(&c, tid).filter(|a| *a != (0, data(LARGE))));
        assert!(said.iter().flatten().all(|a| a.0 == EIO), "coded: {coded}: {:?}", said.map(|a| a.map(|a| a.0)));
        // The operator ends it. The other copy can be read again.
        c.osds[1].disk.spoiled.clear();
        c.mark_lost(!coded).unwrap();
        c.run(30_000);
        let third = read(&mut c);
        c.run(10_000);
        let want = if coded { (ENOENT, Bytes::new()) } else { (0, data(LARGE)) };
        assert!(answer(&c, third) == Some(want), "coded: {coded}, {}", c.describe(0));
    }
}
