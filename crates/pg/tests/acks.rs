//! Does the primary learn of every durable write of a member, by few acknowledgements, and of no other?

mod cluster;

use base::errno::Errno;
use bytes::Bytes;
use cluster::Cluster;
use pg::peer::Body;
use pg::{Effect, Event, Pg, PoolView};
use std::rc::Rc;
use store::{Cid, ObjectStore};
use wire::msg::{MPgPeer, OpCode, OsdOp};

/// Code of [`Body::WriteAck`].
const ACK: u8 = 9;

fn write(n: u8) -> Vec<OsdOp> {
    let data = Bytes::from(vec![n; 100]);
    vec![OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data)]
}

/// Number of the write that a message acknowledges.
fn acknowledged(m: &MPgPeer) -> Option<u64> {
    match Body::decode(&m.body, &m.data, Cid::Pg(m.spg)) {
        Ok(Body::WriteAck { seq }) => Some(seq),
        _ => None,
    }
}

/// Three copies without load, clean, whose members 1 and 2 do not sync.
fn stalled() -> Cluster {
    let mut c = Cluster::new(7, 3, 3, 2, 4, 0);
    c.run(20_000);
    assert!(c.primary().is_some_and(Pg::is_clean), "{}", c.describe(0));
    (c.osds[1].disk.stalled, c.osds[2].disk.stalled) = (true, true);
    c
}

/// Asks for `n` writes, which reach all copies.
fn writes(c: &mut Cluster, n: usize) -> Vec<u64> {
    let all = (0..n).map(|i| c.ask(0, 1, i % 4, 0, write(i as u8))).collect();
    c.run(200);
    all
}

/// Makes `n` transactions of an OSD durable at once; returns the writes that it acknowledges then.
fn sync(c: &mut Cluster, osd: i32, n: usize) -> Vec<u64> {
    c.net.spied.clear();
    c.net.spies = usize::MAX;
    c.osds[osd as usize].disk.sync(n);
    c.give(osd, Event::Tick);
    c.net.spies = 0;
    let of = std::mem::take(&mut c.net.spied);
    of.iter().filter(|(from, ..)| *from == osd).filter_map(|(_, _, m)| acknowledged(m)).collect()
}

fn results(c: &mut Cluster, tids: &[u64]) -> Vec<Option<Errno>> {
    tids.iter().map(|t| c.asked.answers.get(t).map(|r| r.result)).collect()
}

#[test]
fn one_message_acknowledges_all_writes_that_became_durable() {
    let mut c = stalled();
    let tids = writes(&mut c, 9);
    let first = sync(&mut c, 1, 4);
    assert!(first.len() == 1, "{first:?}");
    c.run(200);
    assert_eq!(results(&mut c, &tids), [None; 9], "member 2 has none");
    let rest = sync(&mut c, 1, usize::MAX);
    assert_eq!(rest, [first[0] + 5]);
    let other = sync(&mut c, 2, 6);
    assert_eq!(other, [first[0] + 2]);
    c.run(200);
    let wanted: Vec<_> = (0..9).map(|n| (n < 6).then_some(0)).collect();
    assert_eq!(results(&mut c, &tids), wanted, "exactly those that all members have are answered");
    assert_eq!(sync(&mut c, 2, usize::MAX), rest);
    c.run(200);
    assert_eq!(results(&mut c, &tids), [Some(0); 9]);
    c.settle();
    c.check();
}

/// A lost acknowledgement is repeated after the reset of its session, and a later one stands for it.
#[test]
fn lost_acknowledgements_are_repeated() {
    for again in [false, true] {
        let mut c = stalled();
        let tids = writes(&mut c, 6);
        sync(&mut c, 2, usize::MAX);
        c.net.loses.insert(ACK);
        assert_eq!(sync(&mut c, 1, 3).len(), 1);
        assert!(c.net.lost == [ACK], "it was lost");
        if again {
            // Durable before the session is known to be reset.
            assert_eq!(sync(&mut c, 1, usize::MAX).len(), 1);
        }
        c.run(200);
        let done = results(&mut c, &tids).iter().flatten().count();
        assert_eq!(done, if again { 6 } else { 3 });
        sync(&mut c, 1, usize::MAX);
        c.run(200);
        assert_eq!(results(&mut c, &tids), [Some(0); 6]);
        c.settle();
        c.check();
    }
}

/// Writes that one member has acknowledged and the other has not are answered when an interval without it has taken
/// them over, and not before.
#[test]
fn a_member_that_dies_before_its_acknowledgement_is_not_counted() {
    let mut c = stalled();
    let tids = writes(&mut c, 6);
    sync(&mut c, 1, usize::MAX);
    sync(&mut c, 2, 2);
    c.run(200);
    assert_eq!(results(&mut c, &tids).iter().flatten().count(), 2);
    c.osds[1].disk.stalled = false;
    c.crash(2);
    c.run(1_000);
    assert_eq!(results(&mut c, &tids).iter().flatten().count(), 2, "the map shows the member up");
    c.run(60_000);
    assert_eq!(results(&mut c, &tids), [Some(0); 6]);
    c.osds[2].disk.stalled = false;
    c.restart(2);
    c.run(20_000);
    c.settle();
    c.check();
}

/// Hands the store's events to the machine of an OSD, without the end of the turn; returns its effects.
fn events(c: &mut Cluster, osd: usize) -> Vec<Effect> {
    let (now, mut out) = (c.clock(), Vec::new());
    let o = &mut c.osds[osd];
    while let Some(e) = o.disk.poll_event() {
        o.pg.as_mut().unwrap().handle(Event::Store(e), now, &mut o.disk, &mut out);
    }
    out
}

#[test]
fn owed_acknowledgements_end_with_the_interval() {
    let mut c = stalled();
    writes(&mut c, 3);
    c.osds[1].disk.sync(2);
    let out = events(&mut c, 1);
    assert_eq!(out, [Effect::Acknowledge], "one for both writes");
    c.osds[0].running = false;
    c.change(|m| m.up[0] = false);
    c.run(100);
    assert!(c.osds[1].pg.as_mut().unwrap().acknowledge().is_none());
}

#[test]
fn a_machine_that_stops_acknowledges_first() {
    let mut c = stalled();
    writes(&mut c, 3);
    let now = c.clock();
    c.osds[1].disk.sync(2);
    let mut out = events(&mut c, 1);
    let o = &mut c.osds[1];
    o.pg.as_mut().unwrap().handle(Event::Stop, now, &mut o.disk, &mut out);
    o.disk.sync(usize::MAX);
    out.extend(events(&mut c, 1));
    let acks: Vec<u64> =
        out.iter().filter_map(|e| if let Effect::Peer { msg, .. } = e { acknowledged(msg) } else { None }).collect();
    assert!(acks.len() == 2 && acks[1] == acks[0] + 1, "{out:?}");
    assert_eq!(out.last(), Some(&Effect::Stopped));
    assert!(c.osds[1].pg.as_mut().unwrap().acknowledge().is_none());
}

/// A split that takes more than one step ends the interval: members that saw its map first have dropped the writes in
/// flight. What becomes durable on the primary alone meanwhile is not answered.
#[test]
fn a_split_answers_nothing_that_members_may_lack() {
    let mut c = stalled();
    c.osds[0].disk.stalled = true;
    let tids = writes(&mut c, 3);
    c.osds[0].disk.waits = true;
    let mut map = c.map().view(0);
    map.epoch.0 += 1;
    let grown = PoolView { pg_num: 2, pg_num_pending: 2, ..(**map.pool.as_ref().unwrap()).clone() };
    map.pool = Some(Rc::new(grown));
    c.osds[0].pg.as_mut().unwrap().splits_at(2);
    c.give(0, Event::Map(map));
    assert!(!c.osds[0].disk.waiting.is_empty(), "the split waits: {}", c.describe(0));
    sync(&mut c, 0, usize::MAX);
    assert_eq!(results(&mut c, &tids), [None; 3]);
}
