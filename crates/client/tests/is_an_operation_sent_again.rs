//! Is an operation resent when, and only when, its PG may have dropped it?

use base::id::Uuid;
use base::{AddrVec, EntityAddr, Epoch, Mono, Now, OsdId, PgId, PoolId, ShardId, SnapId, SpgId, Utime};
use client::core::objecter::{Objecter, Output, Request, What};
use cluster::{Incremental, OsdMap, PgPool};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{MOsdOp, MOsdOpReply, OpCode, OpVec, OsdOp, msg_flags};
use wire::types::{ObjectLocator, SnapContext};
use wire::{Features, WireMessage as _};

const PG: PgId = PgId { pool: PoolId(1), seed: 0 };

fn first() -> OsdMap {
    let mut m = OsdMap { fsid: Uuid([1; 16]), epoch: Epoch(1), ..OsdMap::default() };
    m.set_max_osd(3).unwrap();
    next(&m, |i| {
        for n in 0..3 {
            let a: AddrVec = EntityAddr::msgr2(([10, 0, 0, n], 6800).into(), 1).into();
            let osd = OsdId(n.into());
            i.new_up_client.insert(osd, a.clone());
            i.new_up_cluster.insert(osd, a.clone());
            i.new_hb_back_up.insert(osd, a.clone());
            i.new_hb_front_up.insert(osd, a);
        }
        let pool =
            PgPool { kind: cluster::pool::kind::REPLICATED, size: 2, pg_num: 1, pgp_num: 1, ..PgPool::default() };
        i.new_pools.insert(PoolId(1), pool);
        i.new_pg_temp.insert(PG, vec![OsdId(1), OsdId(0)]);
    })
}

fn next(m: &OsdMap, change: impl FnOnce(&mut Incremental)) -> OsdMap {
    let mut i = Incremental::new(m.fsid, m.epoch.next(), Utime { sec: 1, nsec: 0 });
    change(&mut i);
    m.apply(&i).unwrap()
}

fn stat() -> Request {
    Request {
        what: What::Object { locator: ObjectLocator::new(PoolId(1)), oid: "a".into() },
        ops: OpVec::from_vec(vec![OsdOp::new(OpCode::STAT)]),
        flags: 0,
        snapid: SnapId::HEAD,
        snapc: SnapContext::default(),
        mtime: Utime::ZERO,
    }
}

fn sent(o: &mut Objecter) -> usize {
    std::iter::from_fn(|| o.poll_output()).filter(|o| matches!(o, Output::Send(OsdId(1), _))).count()
}

#[test]
fn when_the_interval_changes_under_the_same_primary_and_when_maps_are_skipped() {
    let mut o = Objecter::new(0);
    let m = first();
    o.handle_map(Arc::new(m.clone()));
    o.submit(stat());
    o.handle_open(OsdId(1), Features::PACIFIC);
    assert_eq!(sent(&mut o), 1);

    let same = next(&m, |_| {});
    o.handle_map(Arc::new(same.clone()));
    assert_eq!(sent(&mut o), 0, "a map that changes nothing");

    // Found by the simulator (seed 1001, two copies): the primary stays and drops operations that waited in the old
    // interval.
    let other = next(&same, |i| {
        i.new_pg_temp.insert(PG, vec![OsdId(1), OsdId(2)]);
    });
    o.handle_map(Arc::new(other.clone()));
    assert_eq!(sent(&mut o), 1, "a new interval");

    let skipped = next(&next(&other, |_| {}), |_| {});
    o.handle_map(Arc::new(skipped));
    assert_eq!(sent(&mut o), 1, "a map was skipped: the PG may have changed in it");
}

/// Found by the simulator (seed 3369888778): the objecter requested incremental maps without a full map to apply them
/// to.
#[test]
fn before_the_first_map_the_newest_full_map_is_requested() {
    let mut o = Objecter::new(0);
    o.submit(stat());
    let asked: Vec<Epoch> = std::iter::from_fn(|| o.poll_output())
        .filter_map(|o| if let Output::NeedMap(e) = o { Some(e) } else { None })
        .collect();
    assert_eq!(asked, [Epoch(0)]);
    o.handle_map(Arc::new(first()));
    o.handle_open(OsdId(1), Features::PACIFIC);
    assert_eq!(sent(&mut o), 1);
}

fn at(ms: u64) -> Now {
    Now { mono: Mono(ms * 1_000_000), wall: Utime::ZERO }
}

fn connects(o: &mut Objecter) -> usize {
    std::iter::from_fn(|| o.poll_output()).filter(|o| matches!(o, Output::Connect(OsdId(1), _))).count()
}

/// Found by the simulator (seed 2604302829): the objecter connected ten thousand times a second to an OSD that was up
/// and not yet serving.
#[test]
fn an_osd_that_ends_connections_is_left_alone_for_a_while() {
    let mut o = Objecter::new(0);
    let m = first();
    o.handle_map(Arc::new(m.clone()));
    let tid = o.submit(stat());
    assert_eq!(connects(&mut o), 1);
    assert_eq!(o.next_deadline(), None);
    let (mut ms, mut attempts, mut longest) = (0, 1, Duration::ZERO);
    while ms < 60_000 {
        if attempts % 2 == 0 {
            o.handle_open(OsdId(1), Features::PACIFIC);
        }
        o.handle_closed(OsdId(1), at(ms));
        assert_eq!(connects(&mut o), 0, "not at once");
        o.submit(stat());
        assert_eq!(connects(&mut o), 0, "nor for another operation");
        let due = o.next_deadline().unwrap();
        longest = longest.max(due - at(ms).mono);
        o.tick(at(ms));
        assert_eq!(connects(&mut o), 0, "nor before the deadline");
        ms = due.0 / 1_000_000;
        o.tick(at(ms));
        assert_eq!((connects(&mut o), o.next_deadline()), (1, None));
        attempts += 1;
    }
    assert!(attempts < 20 && longest <= Duration::from_secs(5), "{attempts}, {longest:?}");

    // A connection that delivered messages is made again at once, and all operations are resent.
    o.handle_open(OsdId(1), Features::PACIFIC);
    let waiting = sent(&mut o);
    assert_eq!(waiting, attempts, "every submitted operation is sent");
    let reply = MOsdOpReply::default().to_message(Features::PACIFIC).with_tid(tid);
    o.handle_message(OsdId(1), &reply).unwrap();
    o.handle_closed(OsdId(1), at(ms));
    assert_eq!(connects(&mut o), 1);
    o.handle_closed(OsdId(1), at(ms));
    assert_eq!(connects(&mut o), 0);

    // A new instance of the OSD ends the pause.
    let down = next(&m, |i| {
        i.new_state.insert(OsdId(1), cluster::osdmap::osd_state::UP);
    });
    o.handle_map(Arc::new(down.clone()));
    assert_eq!(o.next_deadline(), None);
    let up = next(&down, |i| {
        let a: AddrVec = EntityAddr::msgr2(([10, 0, 0, 1], 6801).into(), 2).into();
        i.new_up_client.insert(OsdId(1), a);
    });
    o.handle_map(Arc::new(up));
    assert_eq!(connects(&mut o), 1);
    o.handle_open(OsdId(1), Features::PACIFIC);
    assert_eq!(sent(&mut o), waiting - 1);

    // No pause is kept for an OSD without operations.
    for tid in 1..=o.in_flight() as u64 + 1 {
        o.cancel(tid);
    }
    o.handle_closed(OsdId(1), at(ms));
    assert_eq!((connects(&mut o), o.next_deadline()), (0, None));
}

#[test]
fn an_erasure_coded_pg_is_named_with_the_shard_of_its_primary() {
    let pgid = |o: &mut Objecter| {
        let sent = std::iter::from_fn(|| o.poll_output()).filter_map(|o| {
            if let Output::Send(osd, m) = o { Some((osd, MOsdOp::from_message(&m).unwrap().pgid)) } else { None }
        });
        sent.last()
    };
    let coded = next(&first(), |i| {
        let pool = PgPool { kind: cluster::pool::kind::ERASURE, size: 3, pg_num: 1, pgp_num: 1, ..PgPool::default() };
        i.new_pools.insert(PoolId(1), pool);
        i.new_pg_temp.insert(PG, vec![OsdId::NONE, OsdId(2), OsdId(0)]);
    });
    let mut o = Objecter::new(0);
    o.handle_map(Arc::new(coded.clone()));
    // Shards are not copies: the primary is asked, whatever flags the client sets.
    o.submit(Request { flags: msg_flags::BALANCE_READS, ..stat() });
    o.handle_open(OsdId(2), Features::PACIFIC);
    assert_eq!(pgid(&mut o), Some((OsdId(2), SpgId { pg: PG, shard: ShardId(1) })));

    // The same primary with another shard of the PG is another target.
    let moved = next(&coded, |i| {
        i.new_pg_temp.insert(PG, vec![OsdId(2), OsdId::NONE, OsdId(0)]);
    });
    o.handle_map(Arc::new(moved));
    assert_eq!(pgid(&mut o), Some((OsdId(2), SpgId { pg: PG, shard: ShardId(0) })));
}
