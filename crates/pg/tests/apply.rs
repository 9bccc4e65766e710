//! Does a member apply the primary's writes in order, at once or after a wait for its disk?

mod cluster;

use base::Eversion;
use bytes::Bytes;
use cluster::Cluster;
use pg::{Event, Pg};
use wire::msg::{OpCode, OsdOp};

fn write(n: u8) -> Vec<OsdOp> {
    let data = Bytes::from(vec![n; 100]);
    vec![OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data)]
}

/// Three copies without load, clean.
fn quiet() -> Cluster {
    let mut c = Cluster::new(8, 3, 3, 2, 2, 0);
    c.run(20_000);
    assert!(c.primary().is_some_and(Pg::is_clean), "{}", c.describe(0));
    c
}

fn last_update(c: &Cluster, osd: usize) -> Eversion {
    c.osds[osd].pg.as_ref().unwrap().info().last_update
}

fn answered(c: &Cluster, tids: &[u64]) -> usize {
    tids.iter().filter(|t| c.asked.answers.get(t).is_some_and(|r| r.result == 0)).count()
}

#[test]
fn writes_behind_one_that_waits_are_applied_after_it() {
    let mut c = quiet();
    let before = last_update(&c, 1);
    c.osds[1].disk.waits = true;
    let mut tids = vec![c.ask(0, 1, 0, 0, write(1))];
    c.run(200);
    assert_eq!((last_update(&c, 1), c.osds[1].disk.waiting.len()), (before, 1));
    // The store would take these.
    c.osds[1].disk.waits = false;
    tids.extend((2..6).map(|n| c.ask(0, 1, usize::from(n) % 2, 0, write(n))));
    c.run(200);
    assert_eq!(last_update(&c, 1), before, "no write overtakes the first");
    assert_eq!(answered(&c, &tids), 0);
    c.osds[1].disk.go_on();
    c.give(1, Event::Tick);
    c.run(200);
    assert_eq!(last_update(&c, 1), last_update(&c, 0));
    assert_eq!(answered(&c, &tids), 5);
    tids.push(c.ask(0, 1, 0, 0, write(9)));
    c.run(200);
    assert_eq!(answered(&c, &tids), 6, "{}", c.describe(1));
    assert_eq!(c.osds[1].disk.waited.len(), 1, "what the store has begun is not begun anew");
    c.settle();
    c.check();
}

/// The interval ends while a write waits for a member's disk. The member gets it by the next one's log.
#[test]
fn a_write_that_waits_when_the_interval_ends_is_not_applied_twice() {
    for crash in [1, 2] {
        let mut c = quiet();
        c.osds[1].disk.waits = true;
        let tids: Vec<u64> = (0..3).map(|n| c.ask(0, 1, n, 0, write(n as u8))).collect();
        c.run(200);
        assert_eq!(answered(&c, &tids), 0);
        if crash == 1 {
            c.osds[1].disk.waits = false;
        }
        c.crash(crash);
        c.run(25_000);
        c.osds[1].disk.go_on();
        c.give(1, Event::Tick);
        c.run(30_000);
        assert_eq!(answered(&c, &tids), 3, "{}", c.describe(0));
        c.restart(crash);
        c.run(20_000);
        c.settle();
        c.check();
        assert_eq!(last_update(&c, 1), last_update(&c, 0));
    }
}

/// A member without space for a write applies it, and those behind it, when there is some.
#[test]
fn a_write_without_space_is_tried_again_in_its_place() {
    let mut c = quiet();
    let before = last_update(&c, 1);
    c.osds[1].disk.full = true;
    let mut tids = vec![c.ask(0, 1, 0, 0, write(1))];
    c.run(200);
    c.osds[1].disk.full = false;
    tids.extend((2..6).map(|n| c.ask(0, 1, usize::from(n) % 2, 0, write(n))));
    c.run(200);
    assert_eq!((last_update(&c, 1), answered(&c, &tids)), (before, 0), "no write overtakes the first");
    c.run(30_000);
    assert_eq!((last_update(&c, 1), answered(&c, &tids)), (last_update(&c, 0), 5));
    c.settle();
    c.check();
}
