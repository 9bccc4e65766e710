//! Unfound objects, and their end by an operator.

mod cluster;

use base::HObject;
use base::errno::{EINVAL, ENOENT};
use bytes::Bytes;
use cluster::Cluster;
use cluster::shards::finish;
use pg::{Event, SessionId};
use wire::msg::osd_op::PglsArgs;
use wire::msg::{OpCode, OsdOp};
use wire::types::{PgNlsReply, pg_state};

/// A PG with two copies; the newest writes of some objects are on an OSD that is gone. Returns the number of earlier
/// writes to object 0.
fn unfound(seed: u64) -> (Cluster, u64) {
    unfound_with(seed, |_| {})
}

/// As [`unfound`]; `more` runs while only the OSD that will be gone is up.
fn unfound_with(seed: u64, more: impl FnOnce(&mut Cluster)) -> (Cluster, u64) {
    unfound_on(Cluster::new(seed, 2, 2, 1, 4, 4), more)
}

/// As [`unfound_with`]; OSDs after the first two are down.
fn unfound_on(mut c: Cluster, more: impl FnOnce(&mut Cluster)) -> (Cluster, u64) {
    c.contended = false;
    (2..c.osds.len()).for_each(|n| c.crash(n as i32));
    // Recovery is by log.
    c.keep_log = (10_000, 10);
    if let Some(pg) = &mut c.osds[0].pg {
        pg.keep_log(10_000, 10);
    }
    c.run(4_000);
    c.settle();
    let before = c.objects[0].acked;
    assert!(before > 0);
    c.crash(1);
    c.load = true;
    c.run(26_000);
    c.load = false;
    c.run(5_000);
    more(&mut c);
    // osd.0 comes back, learns what it lacks, and recovers nothing.
    c.forbid_recovery(0..1);
    c.restart(1);
    c.run(20_000);
    assert!(c.osds[1].pg.as_ref().unwrap().missing() > 0, "{}", c.describe(1));
    c.crash(0);
    c.run(60_000);
    let p = c.primary().unwrap();
    assert_ne!(p.state_bits() & pg_state::RECOVERY_UNFOUND, 0, "{}", c.describe(1));
    (c, before)
}

#[test]
fn nothing_is_given_up_while_an_osd_may_have_it() {
    let (mut c, _) = unfound(3);
    let e = c.mark_lost(false).unwrap_err();
    assert_eq!(e.0, EINVAL);
    assert!(e.1.contains("we haven't probed all sources, not marking lost"), "{}", e.1);
    // osd.1 comes back with all its data.
    c.heal();
    c.settle();
    assert_eq!(c.mark_lost(true).unwrap(), "pg has no unfound objects");
    c.check();
    c.final_reads();
}

#[test]
fn lost_objects_are_deleted_or_reverted_and_a_returning_copy_follows() {
    for revert in [true, false] {
        let (mut c, before) = unfound(4);
        let n = c.primary().unwrap().unfound_objects().len();
        c.change(|m| m.lost = vec![0]);
        c.run(3_000);
        let said = c.mark_lost(revert).unwrap();
        assert_eq!(said, format!("pg has {n} objects unfound and apparently lost marking"));
        c.run(20_000);
        let p = c.primary().unwrap();
        assert_eq!((p.missing(), p.unfound_objects().len()), (0, 0), "{}", c.describe(1));
        let want = if revert { Some(before) } else { None };
        assert_eq!(c.writes_shown(0), want);
        // The OSD comes back with the data that was given up.
        c.heal();
        c.settle();
        assert_eq!(c.writes_shown(0), want, "revert {revert}");
        for o in &mut c.objects {
            o.acked = 0;
        }
        c.violations.clear();
        c.check();
    }
}

/// Writes so many objects that a walk through all of them in each step shows.
const MANY: usize = 600;

fn write_full() -> OsdOp {
    OsdOp::with_extent(OpCode::WRITEFULL, 0, 2, Bytes::from_static(b"it"))
}

fn write_many(c: &mut Cluster, first: usize, number: usize) {
    for n in first..first + number {
        c.ask(0, 1, n, 0, vec![write_full()]);
        c.run(20);
    }
}

/// Neither an answer nor an operation costs more if a PG has many unfound objects. osd.2 has nothing, and says so of
/// each object.
#[test]
fn an_unfound_object_is_looked_at_once() {
    let (mut c, _) = unfound_on(Cluster::new(7, 3, 2, 1, 4, 4), |c| write_many(c, 100, MANY));
    let unfound = |c: &Cluster| c.primary().unwrap().unfound_objects().len();
    let all = unfound(&c);
    assert!(all >= MANY, "{all}");
    let before = c.primary().unwrap().recovery_looks();
    assert!(before < 4 * all as u64, "{before} for {all} objects");
    c.restart(2);
    c.run(60_000);
    assert_eq!(unfound(&c), all, "{}", c.describe(1));
    let looks = c.primary().unwrap().recovery_looks();
    assert!(looks < 8 * all as u64, "{looks} for {all} objects, {before} of them before");
    let tids: Vec<u64> = (0..100).map(|n| c.ask(1, 1, 10_000 + n, 0, vec![write_full()])).collect();
    c.run(10_000);
    let answered = tids.iter().filter(|t| c.asked.answers.contains_key(t)).count();
    assert_eq!(answered, tids.len(), "{}", c.describe(1));
    assert!(c.primary().unwrap().recovery_looks() <= looks + 200, "{looks}");
    c.heal();
    c.settle();
    c.check();
}

/// Objects that are given up are deleted some at a time.
#[test]
fn many_objects_are_given_up_in_several_turns() {
    let (mut c, _) = unfound_with(9, |c| write_many(c, 100, MANY));
    c.change(|m| m.lost = vec![0]);
    c.run(3_000);
    let before = c.osds[1].disk.transactions;
    c.mark_lost(false).unwrap();
    let at_once = c.osds[1].disk.transactions - before;
    assert!((1..=MANY / 2).contains(&at_once), "{at_once} transactions");
    c.run(20_000);
    let p = c.primary().unwrap();
    assert_eq!((p.missing(), p.unfound_objects().len()), (0, 0), "{}", c.describe(1));
}

/// The operator notices the mistake: what is not deleted yet is reverted.
#[test]
fn a_revert_ends_a_deletion_that_is_under_way() {
    let (mut c, _) = unfound_with(9, |c| write_many(c, 100, MANY));
    c.change(|m| m.lost = vec![0]);
    c.run(3_000);
    c.mark_lost(false).unwrap();
    c.mark_lost(true).unwrap();
    c.run(20_000);
    let p = c.primary().unwrap();
    assert_eq!((p.missing(), p.unfound_objects().len()), (0, 0), "{}", c.describe(1));
    let kept = (0..c.objects.len()).filter(|o| c.writes_shown(*o).is_some()).count();
    assert!(kept > 0, "all are deleted");
}

/// A stray comes back in the same interval, with all that is being deleted: what is not deleted yet is recovered.
#[test]
fn a_source_that_comes_back_ends_a_deletion() {
    let (mut c, _) = unfound_on(Cluster::new(11, 3, 2, 1, 4, 4), |c| write_many(c, 100, MANY));
    // osd.0 will have no place in the PG.
    c.change(|m| m.order = vec![1, 2, 0]);
    c.restart(2);
    c.run(30_000);
    c.change(|m| m.lost = vec![0]);
    c.run(3_000);
    let since = |c: &Cluster| c.primary().unwrap().info().history.same_interval_since;
    let (interval, all) = (since(&c), c.primary().unwrap().unfound_objects().len());
    assert!(all >= MANY, "{}", c.describe(1));
    c.mark_lost(false).unwrap();
    // The next ones are deleted when these are durable.
    c.osds[1].disk.stalled = true;
    c.restart(0);
    c.run(5_000);
    let left = c.primary().unwrap().missing();
    assert!(since(&c) == interval && left > MANY / 2, "{left} of {all}, {}", c.describe(1));
    c.osds[1].disk.stalled = false;
    c.ask(1, 1, 20_000, 0, vec![write_full()]);
    c.run(60_000);
    let p = c.primary().unwrap();
    assert_eq!((p.missing(), p.unfound_objects().len()), (0, 0), "{}", c.describe(1));
    assert_eq!(since(&c), interval);
    let listed = list(&mut c, None).len();
    assert!(listed >= MANY / 2 && listed < all, "{listed} of {all} are left");
    c.settle();
}

/// A list in several pages reads the log once, however many objects are lacked.
#[test]
fn the_pages_of_a_list_do_not_read_the_log_again() {
    let (mut c, _) = unfound_with(12, |c| write_many(c, 100, MANY));
    let info = c.primary().unwrap().info();
    let log = info.last_update.version - info.log_tail.version;
    c.osds[1].disk.log_reads = 0;
    let names = list(&mut c, None);
    assert!(names.len() >= MANY && log >= MANY as u64);
    let reads = c.osds[1].disk.log_reads;
    assert!(reads as u64 <= log, "{reads} entries were read of {log}");
}

/// All objects of a PG are lacked, and no copy has them.
#[test]
fn a_hundred_thousand_lacked_objects_are_looked_at_and_listed_at_little_cost() {
    const ALL: usize = 100_000;
    let (mut c, _) = unfound_on(Cluster::new(13, 2, 2, 1, 1, 1), |c| {
        c.keep_log = (2 * ALL, 10);
        c.osds[0].pg.iter_mut().for_each(|pg| pg.keep_log(2 * ALL, 10));
        for n in 0..ALL {
            c.ask(0, 1, 100 + n, 0, vec![write_full()]);
            if n % 1000 == 999 {
                c.run(500);
            }
        }
    });
    let unfound = |c: &Cluster| c.primary().unwrap().unfound_objects().len();
    assert!(unfound(&c) >= ALL, "{}", c.describe(1));
    let looks = |c: &Cluster| c.primary().unwrap().recovery_looks();
    assert!(looks(&c) < 4 * ALL as u64, "{}", looks(&c));
    c.osds[1].disk.log_reads = 0;
    // Pages of a list are short, and read the log once.
    let mut from = HObject::min();
    for _ in 0..20 {
        let tid = ask_list(&mut c, None, &from);
        c.run(1_000);
        let page: PgNlsReply = wire::Reader::shared(&c.asked.answers[&tid].ops[0].outdata).get().unwrap();
        assert_eq!(page.entries.len(), 100);
        from = page.handle;
    }
    let reads = c.osds[1].disk.log_reads;
    assert!(reads <= 2 * ALL, "{reads} log entries were read for 20 pages");
}

/// Half of the objects that the primary lacks are unfound, and the other copy lacks these as well. No pull of one of
/// the others looks at all of them.
#[test]
fn objects_are_pulled_among_as_many_unfound_ones() {
    let mut c = Cluster::new(8, 3, 3, 1, 4, 0);
    (c.contended, c.load) = (false, false);
    c.keep_logs(10_000, 10);
    c.run(4_000);
    c.settle();
    c.crash(1);
    c.run(26_000);
    write_many(&mut c, 100, MANY / 2);
    c.crash(2);
    c.run(26_000);
    write_many(&mut c, 100 + MANY / 2, MANY / 2);
    c.forbid_recovery(0..1);
    c.restart(1);
    c.run(20_000);
    assert_eq!(c.osds[1].pg.as_ref().unwrap().missing(), MANY, "{}", c.describe(1));
    c.crash(0);
    c.run(26_000);
    c.restart(2);
    c.run(60_000);
    let p = c.primary().unwrap();
    assert_eq!((p.unfound_objects().len(), p.missing()), (MANY / 2, MANY / 2), "{}", c.describe(1));
    let looks = p.recovery_looks();
    assert!(looks < 8 * MANY as u64, "{looks} for {MANY} objects");
    c.heal();
    c.settle();
    c.check();
}

/// A copy can't read its version of an unfound object: for the search it does not have one, and it stays a copy.
#[test]
fn an_unreadable_version_of_an_unfound_object_fails_no_copy() {
    let (mut c, _) = unfound(4);
    let lost = c.primary().unwrap().unfound_objects();
    for o in &lost {
        c.osds[1].disk.rotten.insert(store::Oid::new(o.0.clone()));
    }
    c.change(|m| m.lost = vec![0]);
    c.run(3_000);
    c.mark_lost(true).unwrap();
    c.run(20_000);
    assert!(c.failed.is_empty(), "{:?}", c.failed);
    assert_eq!(c.primary().unwrap().unfound_objects().len(), 0, "{}", c.describe(1));
}

/// Asks for a page of the PG's list; returns the tid.
/// Writes to an unfound object, from sessions that come and go, are dropped with their payloads.
#[test]
fn operations_of_ended_sessions_do_not_wait_for_an_unfound_object() {
    let (mut c, before) = unfound(5);
    // Reads of unfound objects are not answered.
    let asked: Vec<u64> =
        (0..4).map(|n| c.ask(1, 90, n, 0, vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())])).collect();
    c.run(100);
    let object = asked.iter().position(|tid| c.asked.answers.remove(tid).is_none()).unwrap();
    c.give(1, Event::SessionClosed(SessionId(cluster::ASKED + 90)));
    for who in 0..20 {
        let data = Bytes::from(vec![7; 1 << 20]);
        let op = OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
        c.ask(1, who, object, 0, vec![op.clone(), op]);
        c.run(100);
        let session = SessionId(cluster::ASKED + who);
        let pg = c.osds[1].pg.as_ref().unwrap();
        assert!(!data.is_unique() && pg.knows_session(session), "it waits");
        c.give(1, Event::SessionClosed(session));
        assert!(!c.osds[1].pg.as_ref().unwrap().knows_session(session));
        assert!(data.is_unique(), "the payload is kept");
    }
    assert!(c.asked.answers.is_empty());
    // The object comes back as it was.
    c.heal();
    c.settle();
    c.check();
    c.final_reads();
    assert!(c.objects[0].acked >= before && c.asked.answers.is_empty());
}

fn ask_list(c: &mut Cluster, filter: Option<(&str, &str)>, from: &HObject) -> u64 {
    let primary = c.map().mapping().acting_primary.0;
    let mut w = wire::Writer::new(wire::Features::PACIFIC);
    let mut op = OsdOp::new(OpCode::PGNLS);
    if let Some((attr, value)) = filter {
        op = OsdOp::new(OpCode::PGNLS_FILTER);
        for s in ["pg", "filter", "plain", attr, value] {
            w.blob(s.as_bytes());
        }
    }
    w.put(from);
    op.indata = w.into_bytes();
    op.set_pgls(PglsArgs { count: 100, start_epoch: 0 });
    c.ask(primary, 1, 0, 0, vec![op])
}

/// The object names in the PG's list.
fn list(c: &mut Cluster, filter: Option<(&str, &str)>) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), HObject::min());
    loop {
        let tid = ask_list(c, filter, &from);
        c.run(2_000);
        let r = c.asked.answers.get(&tid).unwrap_or_else(|| panic!("no answer: {}", c.describe(1)));
        let page: PgNlsReply = wire::Reader::shared(&r.ops[0].outdata).get().unwrap();
        names.extend(page.entries.iter().map(|e| String::from_utf8_lossy(&e.oid).into_owned()));
        if r.result == 1 {
            names.sort();
            return names;
        }
        from = page.handle;
    }
}

#[test]
fn a_list_has_unfound_objects_and_no_deleted_ones() {
    let set = |v: &str| OsdOp::with_xattr(OpCode::SETXATTR, b"c", v.as_bytes(), 0, 0);
    let (mut c, _) = unfound_with(6, |c| {
        // The newest entries of most objects are of a trimmed clone.
        c.take_snapshot();
        c.load = true;
        c.run(5_000);
        c.load = false;
        c.run(2_000);
        c.remove_snapshot();
        c.run(20_000);
        // Objects that the other OSD never had, and one that it had.
        c.ask(0, 1, 100, 0, vec![set("x")]);
        c.ask(0, 1, 101, 0, vec![set("y")]);
        c.ask(0, 1, 3, 0, vec![OsdOp::new(OpCode::DELETE)]);
        c.run(2_000);
    });
    let p = c.primary().unwrap();
    assert!(p.missing() > 3 && !p.unfound_objects().is_empty(), "{}", c.describe(1));
    let all: Vec<String> = [0, 1, 100, 101, 2].iter().map(|n| cluster::object_name(*n)).collect();
    assert_eq!(list(&mut c, None), all);
    assert_eq!(list(&mut c, Some(("_c", "x"))), [] as [String; 0], "what cannot be read matches nothing");
    // Other objects can be read, and operations that wait for recovery go on after it.
    c.heal();
    let primary = c.map().mapping().acting_primary.0;
    c.run(20_000);
    let tid = ask_list(&mut c, Some(("_c", "x")), &HObject::min());
    c.run(40_000);
    assert!(c.asked.answers.contains_key(&tid), "{primary} {}", c.describe(1));
    assert_eq!(list(&mut c, Some(("_c", "x"))), [cluster::object_name(100)]);
}

/// Two shards of an object in a 2+1 PG are unreadable, with and without the primary's.
#[test]
fn an_object_with_too_few_shards_is_unfound_and_can_be_given_up() {
    too_few_shards([1, 2]);
    too_few_shards([0, 1]);
}

fn too_few_shards(unreadable: [i32; 2]) {
    let mut c = Cluster::coded(5, 3, (2, 1), 1, 0);
    c.run(3_000);
    let run = |c: &mut Cluster, op: OpCode, data: Vec<u8>| {
        let len = data.len() as u64;
        let tid = c.ask(0, 1, 10, 0, vec![OsdOp::with_extent(op, 0, len, data.into())]);
        c.run(5_000);
        (tid, c.asked.answers.get(&tid).map(|a| (a.result, a.ops[0].outdata.to_vec())))
    };
    let result = |r: (u64, Option<(i32, Vec<u8>)>)| r.1.map(|r| r.0);
    assert_eq!(result(run(&mut c, OpCode::WRITEFULL, vec![1; 30_000])), Some(0));
    c.settle();
    for osd in unreadable {
        c.damage(osd, 10);
    }
    let (read, early) = run(&mut c, OpCode::READ, Vec::new());
    let (write, late) = run(&mut c, OpCode::WRITE, vec![2; 4_096]);
    assert_eq!((early, late), (None, None), "both wait for the object");
    let p = c.primary().unwrap();
    assert_ne!(p.state_bits() & pg_state::RECOVERY_UNFOUND, 0, "{}", c.describe(0));
    let unfound = p.unfound_objects();
    assert!(unfound.len() == 1 && unfound[0].1.version > 0, "{unfound:?}");
    assert_eq!(c.mark_lost(true).unwrap_err().0, EINVAL);
    assert_eq!(c.mark_lost(false).unwrap(), "pg has 1 objects unfound and apparently lost marking");
    c.run(5_000);
    assert!(c.primary().unwrap().unfound_objects().is_empty());
    let results = [read, write].map(|tid| c.asked.answers.get(&tid).map(|a| a.result));
    assert_eq!(results, [Some(ENOENT), Some(0)], "{}", c.describe(0));
    assert_eq!(run(&mut c, OpCode::READ, Vec::new()).1, Some((0, vec![2; 4_096])));
    finish(&mut c);
}
