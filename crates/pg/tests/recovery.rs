//! Does recovery end, whatever the number and the size of what it carries?

mod cluster;

use base::{HObject, OsdId, PoolId};
use bytes::Bytes;
use cluster::{Cluster, hash, object_name};
use std::collections::BTreeMap;
use store::ObjectStore as _;
use wire::msg::{OpCode, OsdOp};

fn write_full(c: &mut Cluster, object: usize, data: &Bytes) -> u64 {
    let op = OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
    let primary = c.map().mapping().acting_primary.0;
    c.ask(primary, 1, object, 0, vec![op])
}

/// Writes the object; it must be acknowledged.
fn put(c: &mut Cluster, object: usize, data: &Bytes) {
    let tid = write_full(c, object, data);
    c.run(300);
    assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0), "object {object}");
}

/// Of `n` objects the one that recovery begins with.
fn first_of(n: usize) -> usize {
    (0..n).min_by_key(|i| hash(&object_name(*i)).reverse_bits()).unwrap()
}

/// A member that lacks one object of many parts and more small objects than it remembers pushes.
fn many_and_one_large(mut c: Cluster, small: usize) {
    let large = first_of(small);
    c.load = false;
    c.contended = false;
    c.keep_log = (10_000, 100);
    c.run(3_000);
    put(&mut c, large, &vec![1; 100].into());
    c.crash(2);
    c.run(25_000);
    put(&mut c, large, &(0..44 << 20).map(|i: u32| (i / 4096) as u8 | 1).collect::<Vec<u8>>().into());
    for n in (0..small).filter(|n| *n != large) {
        write_full(&mut c, n, &Bytes::from_static(b"x"));
        if n % 50 == 0 {
            c.run(300);
        }
    }
    c.run(2_000);
    c.restart(2);
    c.settle();
    let len = |c: &mut Cluster, osd: i32| {
        let all = c.contents(osd);
        let found = all.iter().find(|(k, _)| k.contains(&format!(":{}:", object_name(large))));
        (all.len(), found.map(|(_, v)| v.len()))
    };
    assert_eq!(len(&mut c, 0), len(&mut c, 2));
}

#[test]
fn an_object_of_many_parts_is_recovered_among_thousands() {
    many_and_one_large(Cluster::new(31, 3, 3, 2, 1, 0), 1_150);
}

/// Runs a vector on the object; it must be acknowledged.
fn run(c: &mut Cluster, object: usize, ops: Vec<OsdOp>) {
    let primary = c.map().mapping().acting_primary.0;
    let tid = c.ask(primary, 1, object, 0, ops);
    c.run(3_000);
    assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0), "object {object}");
}

fn set_attr(c: &mut Cluster, object: usize, name: &[u8], len: usize) {
    let value = Bytes::from(vec![name[0]; len]);
    run(c, object, vec![OsdOp::with_xattr(OpCode::SETXATTR, name, &value, 0, 0)]);
}

/// Adds attributes to the copies of an object that clients may not add any more.
fn attrs_of_earlier_versions(c: &mut Cluster, object: usize) {
    for n in c.map().mapping().acting.clone() {
        let cid = store::Cid::Pg(c.spg(n.0));
        let attr = |name: &'static [u8]| (Bytes::from_static(name), Bytes::from(vec![name[1]; 20 << 20]));
        let ops = vec![store::Op::SetAttrs { cid, oid: oid(object), attrs: vec![attr(b"_c"), attr(b"_d")] }];
        if let Some(o) = c.osds.get_mut(n.0 as usize).filter(|o| o.running) {
            o.disk.submit(store::Tag(u64::MAX - 2), store::Transaction { ops });
        }
    }
    c.run(1_000);
}

fn oid(object: usize) -> store::Oid {
    let name = object_name(object);
    let hobj = HObject { pool: PoolId(cluster::POOL), hash: hash(&name), oid: name.into(), ..HObject::min() };
    store::Oid::new(hobj.head())
}

/// The largest objects that clients can make, on a member that was away, on one that is filled anew, and in a scrub.
fn large_metadata(mut c: Cluster, omap: bool) {
    (c.load, c.contended) = (false, false);
    c.run(3_000);
    let write_all = |c: &mut Cluster| {
        set_attr(c, 1, b"a", 64 << 20);
        for name in [b"a", b"b", b"c"] {
            set_attr(c, 2, name, 25 << 20);
        }
        let data = Bytes::from(vec![5; 8 << 20]);
        run(c, 2, vec![OsdOp::with_extent(OpCode::WRITE, 0, data.len() as u64, data)]);
        if omap {
            let pairs: BTreeMap<Bytes, Bytes> =
                (0..70).map(|i: u8| (vec![i; 5].into(), vec![i; 1 << 20].into())).collect();
            let mut w = wire::Writer::new(wire::Features::PACIFIC);
            w.put(&pairs);
            run(c, 3, vec![OsdOp::with_indata(OpCode::OMAPSETVALS, w.into_bytes())]);
        }
    };
    write_all(&mut c);
    c.crash(2);
    c.run(25_000);
    write_all(&mut c);
    attrs_of_earlier_versions(&mut c, 2);
    c.restart(2);
    c.settle();
    // A new copy is filled.
    c.change(|m| m.order.rotate_left(1));
    c.settle();
    c.scrub(true, false);
    assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{:?}", c.log);
}

#[test]
fn large_metadata_is_replicated_recovered_filled_and_scrubbed() {
    large_metadata(Cluster::new(32, 4, 3, 2, 1, 0), true);
}

#[test]
fn large_attributes_of_shards_are_rebuilt() {
    large_metadata(Cluster::coded(33, 8, (2, 2), 1, 0), false);
}

/// Loses one message of each of these kinds, with its session, during writes, recovery, backfill, and the removal of a
/// copy that is not needed any more.
fn losing(seed: u64, kinds: &[u8], mut c: Cluster, coded: bool) {
    c.contended = false;
    c.run(3_000);
    put(&mut c, 10, &Bytes::from_static(b"first"));
    c.net.loses = kinds.iter().copied().collect();
    c.run(2_000);
    // A member can't apply a write.
    let member = c.map().mapping().acting[1].0;
    c.osds[member as usize].disk.rotten.insert(oid(10));
    let tid = write_full(&mut c, 10, &Bytes::from_static(b"second"));
    c.run(20_000);
    assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0));
    c.crash(2);
    c.run(25_000);
    c.restart(2);
    c.run(15_000);
    if !coded {
        // Another copy is filled; the one that it replaces is removed.
        c.change(|m| m.order.rotate_left(1));
        c.run(20_000);
    }
    let left = std::mem::take(&mut c.net.loses);
    match coded {
        true => cluster::shards::finish(&mut c),
        false => {
            c.settle();
            c.check();
        }
    }
    assert!(left.is_empty(), "seed {seed}: never sent: {left:?}, lost: {:?}", c.net.lost);
}

/// Codes of the messages that the test loses; see docs/design/osd-peers.md.
const ONCE: [u8; 5] = [7, 16, 17, 18, 41];

#[test]
fn a_message_that_is_sent_once_may_be_lost() {
    for (i, kind) in ONCE.iter().enumerate() {
        losing(40 + i as u64, &[*kind], Cluster::new(40 + i as u64, 4, 3, 2, 3, 5), false);
    }
}

#[test]
fn one_message_of_each_kind_may_be_lost() {
    let kinds = [2, 5, 55, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 41, 54];
    losing(50, &kinds, Cluster::new(50, 4, 3, 2, 3, 5), false);
}

#[test]
fn one_message_of_each_kind_between_shards_may_be_lost() {
    losing(51, &[2, 5, 55, 7, 8, 9, 12, 13, 54], Cluster::coded(51, 4, (2, 2), 3, 5), true);
}

/// An EC PG whose former primary has an entry that no other shard has. The OSD that has its place can't be filled.
fn with_a_longer_log(seed: u64) -> Cluster {
    let mut c = Cluster::coded(seed, 6, (2, 1), 3, 0);
    (c.load, c.contended) = (false, false);
    c.run(3_000);
    put(&mut c, 10, &vec![1; 20_000].into());
    c.run(15_000);
    c.net.blocked.extend([(0, 1), (0, 2)]);
    let tid = write_full(&mut c, 10, &vec![2; 20_000].into());
    c.run(500);
    assert!(!c.asked.answers.contains_key(&tid));
    c.crash(0);
    c.net.blocked.clear();
    c.change(|m| {
        m.order = vec![3, 1, 2, 0, 4, 5];
        m.backfillfull = 1e-9;
    });
    c.run(30_000);
    c
}

/// The one message that makes a shard outside the acting set undo what others lack.
#[test]
fn a_lost_rewind_is_repeated() {
    const REWIND: u8 = 48;
    let mut c = with_a_longer_log(60);
    put(&mut c, 10, &vec![3; 20_000].into());
    c.net.loses = [REWIND].into();
    c.restart(0);
    c.net.spies = 10_000;
    c.run(30_000);
    assert_eq!(c.net.lost, [REWIND], "{}", c.describe(0));
    // As a piece, to be heard.
    let rewind = |m: &wire::msg::MPgPeer| m.body.first() == Some(&53) && m.data.first() == Some(&REWIND);
    assert!(c.net.spied.iter().filter(|(_, to, m)| *to == 0 && rewind(m)).count() > 1, "sent once");
    // A copy that others do not need is removed after that.
    let newest = |o: usize| c.osds[o].pg.as_ref().map(|p| p.info().last_update);
    assert!(newest(0) < newest(1), "{}\n{}", c.describe(0), c.describe(1));
    c.change(|m| m.backfillfull = 0.9);
    cluster::shards::finish(&mut c);
}

/// A member without room for the objects it lacks.
fn no_room_for_objects(away: u64, keep: usize, full: u64) {
    let mut c = Cluster::new(61, 3, 3, 2, 3, 0);
    (c.load, c.contended) = (false, false);
    c.keep_logs(keep, 10);
    c.run(3_000);
    let all: Vec<usize> = (0..40).collect();
    for n in &all {
        put(&mut c, *n, &vec![1; 5000].into());
    }
    c.crash(2);
    c.run(away);
    for n in &all[..20] {
        put(&mut c, *n, &vec![2; 5000].into());
    }
    c.osds[2].disk.room = Some(0);
    c.restart(2);
    c.run(20_000);
    let bits = c.primary().unwrap().state_bits();
    assert!(bits & full != 0, "{} {}", wire::types::pg_state::to_string(bits), c.describe(2));
    // Clients go on, also with what frees space.
    let primary = c.map().mapping().acting_primary.0;
    for n in [38, 39] {
        let tid = c.ask(primary, 1, n, 0, vec![OsdOp::new(OpCode::DELETE)]);
        c.run(1_000);
        assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0), "{}", c.describe(2));
    }
    c.osds[2].disk.room = None;
    c.settle();
    c.check();
}

/// A log that takes few changes at once divides even the first part of a push, which also removes what was there. A
/// power cut in between leaves no head that counts as an object, but lacks its clones.
fn pushes_in_small_steps(mut c: Cluster) {
    (c.load, c.contended) = (false, false);
    c.keep_logs(5, 10);
    c.asked.in_snaps = true;
    c.run(3_000);
    let write = |c: &mut Cluster, with: u8| {
        c.take_snapshot();
        c.run(500);
        put(c, 0, &vec![with; 5000].into());
    };
    (0..4).for_each(|n| write(&mut c, n));
    c.crash(2);
    c.run(200_000);
    write(&mut c, 9);
    for n in 1..20 {
        put(&mut c, n, &vec![2; 100].into());
    }
    let cid = store::Cid::Pg(c.spg(2));
    for step in 1..=6 {
        let d = &mut c.osds[2].disk;
        (d.step, d.divided, d.watched) = (step, 0, Some((cid, oid(0).hobj.clone())));
        c.restart(2);
        c.settle();
        let d = &c.osds[2].disk;
        assert!(d.divided > 0, "steps of {step}");
        assert_eq!(d.torn, 0, "steps of {step}");
        // Its log does not reach back again.
        c.crash(2);
        c.run(200_000);
        write(&mut c, 10 + step as u8);
        for n in 1..20 {
            put(&mut c, n, &vec![3; 100].into());
        }
    }
    c.restart(2);
    c.settle();
    c.check();
}

#[test]
fn a_power_cut_in_a_divided_push_leaves_no_head_without_its_clones() {
    pushes_in_small_steps(Cluster::new(62, 3, 3, 2, 3, 0));
}

#[test]
fn a_member_without_room_for_what_it_lacks_holds_up_no_removal() {
    no_room_for_objects(25_000, 10_000, wire::types::pg_state::RECOVERY_TOOFULL);
    no_room_for_objects(25_000, 5, wire::types::pg_state::BACKFILL_TOOFULL);
}

/// A copy outside the acting set has what the new primary lacks. It reads its log once, not for each object.
#[test]
fn a_copy_that_answers_pulls_reads_its_log_once() {
    const MANY: usize = 400;
    let mut c = Cluster::new(63, 2, 2, 1, 1, 0);
    (c.load, c.contended) = (false, false);
    c.keep_logs(10_000, 10);
    c.run(3_000);
    put(&mut c, 0, &Bytes::from_static(b"old"));
    c.crash(1);
    c.run(25_000);
    for n in 0..MANY {
        write_full(&mut c, n, &Bytes::from_static(b"new"));
        if n % 50 == 0 {
            c.run(300);
        }
    }
    c.run(2_000);
    c.change(|m| (m.size, m.order) = (1, vec![1, 0]));
    c.osds[0].disk.log_reads = 0;
    c.restart(1);
    // The copy on osd.0 is removed in the end.
    c.settle();
    assert!(c.contents(1).len() >= MANY, "{}", c.describe(1));
    let reads = c.osds[0].disk.log_reads;
    assert!((MANY..4 * MANY).contains(&reads), "{reads} entries for {MANY} objects");
}

/// Sends 40 MiB of writes that a member does not get, and counts what is on the way to it after a reset.
#[test]
fn unacknowledged_writes_are_sent_again_in_windows() {
    use pg::limits::RESEND_BYTES;
    let mut c = Cluster::new(62, 3, 3, 2, 3, 0);
    (c.load, c.contended) = (false, false);
    c.run(10_000);
    let primary = c.map().mapping().acting_primary.0;
    let member = (primary + 1) % 3;
    c.net.blocked.insert((primary, member));
    let data = Bytes::from(vec![7; 1 << 20]);
    let mut asked: Vec<u64> = (0..40).map(|n| write_full(&mut c, n % 5, &data)).collect();
    c.run(900);
    assert!(c.asked.answers.is_empty());
    c.net.blocked.clear();
    c.net.spied.clear();
    c.net.spies = 10_000;
    c.reset_session(primary, member);
    c.run(60);
    asked.extend((0..4).map(|n| write_full(&mut c, n, &data)));
    c.run(4_000);
    assert!(asked.iter().all(|tid| c.asked.answers.get(tid).is_some_and(|a| a.result == 0)), "{}", c.describe(0));
    // Bytes of the writes that the member has not acknowledged, in the order of sending.
    let (mut flight, mut most) = (std::collections::BTreeMap::new(), 0);
    for (from, to, m) in &c.net.spied {
        let number = |at: usize| u64::from_le_bytes(m.body[at..at + 8].try_into().unwrap());
        match m.body[0] {
            8 if (*from, *to) == (primary, member) => {
                assert_eq!(flight.insert(number(9), m.data.len()), None, "sent again once");
                most = most.max(flight.values().sum());
            }
            9 if (*from, *to) == (member, primary) => flight.retain(|seq, _| *seq > number(1)),
            _ => {}
        }
    }
    assert!((RESEND_BYTES / 2..=RESEND_BYTES + (1 << 20)).contains(&most), "{most} bytes at once");
    c.settle();
    c.check();
}

/// CRUSH has no place for a copy whose OSD is down. When the OSD comes back, its copy is a member again.
#[test]
fn a_copy_without_a_place_is_taken_back_after_its_osd_was_down() {
    for coded in [false, true] {
        let mut c = match coded {
            true => Cluster::coded(60, 3, (2, 1), 3, 5),
            false => Cluster::new(60, 3, 3, 2, 3, 5),
        };
        let acting = |c: &Cluster| c.map().mapping().acting.into_iter().filter(|o| *o != OsdId::NONE).count();
        c.run(3_000);
        // The log brings it up to date; otherwise CRUSH has to find a place first.
        c.load = false;
        c.crash(2);
        c.run(25_000);
        c.change(|m| m.order = vec![0]);
        c.run(5_000);
        assert_eq!(acting(&c), 2, "the second copy stays");
        c.restart(2);
        c.run(15_000);
        assert_eq!(acting(&c), 3, "coded: {coded}");
        c.change(|m| m.order = vec![0, 1, 2]);
        c.heal();
        match coded {
            true => cluster::shards::finish(&mut c),
            false => {
                c.settle();
                c.check();
            }
        }
    }
}
