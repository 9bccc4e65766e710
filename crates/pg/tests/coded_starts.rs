//! Intervals of an erasure-coded PG that never start: that shards took part in them proves nothing about acknowledged
//! writes.

mod cluster;

use bytes::Bytes;
use cluster::Cluster;
use cluster::shards::finish;
use pg::State;
use wire::msg::{OpCode, OsdOp};

/// The object of these tests.
const OBJECT: usize = 10;

fn op(op: OpCode, data: &Bytes) -> OsdOp {
    OsdOp::with_extent(op, 0, data.len() as u64, data.clone())
}

/// Runs an operation on the object at the primary; returns its result and output.
fn run(c: &mut Cluster, op: OsdOp) -> Option<(i32, Bytes)> {
    let tid = c.ask(c.map().mapping().acting_primary.0, 1, OBJECT, 0, vec![op]);
    c.run(2_000);
    c.asked.answers.get(&tid).map(|a| (a.result, a.ops[0].outdata.clone()))
}

/// An unacknowledged append is on four of six shards, and a fifth shard has the version before. The next interval lacks
/// the fifth shard. There the append is kept, since the fifth may have it. But one member never takes part in that
/// interval, so it does not serve. Then that member dies and the fifth shard returns: the append must be undone. If the
/// interval counted, the object would be on three shards only. This is seed 810079 of the simulator.
fn append_on_four_shards(speaks: bool) {
    let mut c = Cluster::coded(400, 6, (4, 2), 1, 0);
    c.run(3_000);
    let read = || OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new());
    assert_eq!(run(&mut c, op(OpCode::WRITEFULL, &vec![1; 60_000].into())).map(|r| r.0), Some(0));
    c.settle();
    c.crash(5);
    c.run(30_000);
    let acknowledged = vec![2; 50_000];
    assert_eq!(run(&mut c, op(OpCode::WRITEFULL, &acknowledged.clone().into())).map(|r| r.0), Some(0));
    c.net.blocked.insert((0, 4));
    assert_eq!(run(&mut c, op(OpCode::APPEND, &vec![3; 9_000].into())), None, "osd.4 does not get it");
    c.crash(4);
    c.net.blocked.clear();
    c.net.blocked.insert((0, 3));
    c.restart(5);
    c.run(30_000);
    let state = |c: &Cluster, n: usize| c.osds[n].pg.as_ref().map(|p| p.state().clone());
    let epochs = |c: &Cluster, n: usize| {
        let i = c.osds[n].pg.as_ref().unwrap().info();
        (i.last_epoch_started, i.history.last_epoch_started)
    };
    let log = |c: &Cluster, n: usize| c.osds[n].pg.as_ref().unwrap().info().last_update;
    assert!(matches!(state(&c, 0), Some(State::Activating { .. })), "{}", c.describe(0));
    assert_eq!(state(&c, 1), Some(State::ReplicaActive), "{}", c.describe(1));
    assert!(epochs(&c, 1).0 > epochs(&c, 3).0 && epochs(&c, 0).1 < epochs(&c, 0).0);
    assert!((1..4).all(|n| log(&c, n) == log(&c, 0)), "the append is on four shards");
    let mut expected = acknowledged;
    if speaks {
        // The member that did not take part is up and says so; the primary is down.
        c.crash(0);
    } else {
        // That member is down. The primary, which did not store the start, survives and repeats the operation.
        c.crash(3);
        expected.resize(59_000, 3);
    }
    let expected = Bytes::from(expected);
    c.net.blocked.clear();
    c.restart(4);
    c.run(60_000);
    assert_eq!(run(&mut c, read()), Some((0, expected.clone())), "{}", c.describe(1));
    c.restart(if speaks { 0 } else { 3 });
    finish(&mut c);
    assert_eq!(run(&mut c, read()), Some((0, expected)));
}

#[test]
fn an_interval_whose_start_was_not_stored_did_not_serve() {
    append_on_four_shards(false);
}

#[test]
fn an_interval_in_which_a_member_took_no_part_did_not_serve() {
    append_on_four_shards(true);
}
