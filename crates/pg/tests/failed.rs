//! Does a failed copy take itself out, and do the other copies go on without it?

mod cluster;

use base::errno::EIO;
use base::{Eversion, OsdId};
use bytes::Bytes;
use cluster::{Cluster, spg};
use pg::peer::Body;
use pg::{Event, State};
use wire::msg::MPgPeer;
use wire::types::pg_state;

fn message(c: &Cluster, b: &Body) -> Box<MPgPeer> {
    let (body, data) = b.encode();
    Box::new(MPgPeer {
        spg: spg(),
        from: base::ShardId::NONE,
        epoch: base::Epoch(c.map().epoch),
        up_from: base::Epoch(0),
        body,
        data,
        sums: None,
    })
}

/// Sends a copy what no primary would: a write with an invalid log record.
fn spoil(c: &mut Cluster, osd: i32) {
    c.may_fail = true;
    let from = c.map().mapping().acting_primary;
    for seq in 1..2_000 {
        let records = vec![Bytes::from_static(b"no record")];
        let b = Body::Write { first: seq, seq, stable: 0, trim: None, records, ops: Vec::new() };
        let msg = message(c, &b);
        c.give(osd, Event::Peer { from, msg });
        if c.osds[osd as usize].pg.as_ref().unwrap().has_failed() {
            return;
        }
    }
    panic!("osd.{osd} took it: {}", c.describe(osd as usize));
}

fn acked(c: &Cluster) -> u64 {
    c.objects.iter().map(|o| o.acked).sum()
}

/// Checks that clients are served within the time that a new map takes.
fn goes_on(c: &mut Cluster) {
    c.run(10_000);
    let before = acked(c);
    c.run(20_000);
    let all: Vec<String> = (0..c.osds.len()).map(|n| c.describe(n)).collect();
    assert!(acked(c) > before + 20, "writes go on: {before} {}\n{}", acked(c), all.join("\n"));
}

fn ends_well(c: &mut Cluster, osd: i32) {
    c.crash(osd);
    c.restart(osd);
    c.run(30_000);
    c.settle();
    c.check();
    c.final_reads();
}

#[test]
fn a_failed_member_is_left_out_until_its_osd_restarts() {
    let mut c = Cluster::new(31, 3, 3, 2, 3, 5);
    c.run(10_000);
    spoil(&mut c, 2);
    assert_eq!(c.failed, vec![(2, EIO)]);
    goes_on(&mut c);
    let p = c.primary().unwrap();
    let bits = p.state_bits();
    assert!(bits & pg_state::UNDERSIZED != 0 && bits & pg_state::CLEAN == 0, "{}", pg_state::to_string(bits));
    assert!(!p.is_clean());
    assert!(c.log.iter().any(|l| l.contains("osd.2") && l.contains("EIO") && l.contains("restart")), "{:?}", c.log);
    ends_well(&mut c, 2);
}

#[test]
fn after_a_primary_fails_another_copy_serves() {
    let mut c = Cluster::new(32, 4, 3, 2, 3, 5);
    c.run(10_000);
    c.may_fail = true;
    c.withdraw(0);
    goes_on(&mut c);
    assert_ne!(c.map().mapping().acting_primary, OsdId(0));
    // Once the OSD is marked out, its copy is removed when the PG is clean without it.
    c.change(|m| m.order = vec![1, 2, 3, 0]);
    c.run(60_000);
    c.settle();
    assert!(c.osds[0].pg.is_none(), "{}", c.describe(0));
    c.check();
    c.final_reads();
}

/// The store still reports writes of the time before the copy failed, also while the copy is removed.
#[test]
fn a_copy_that_fails_amid_writes_is_removed_all_the_same() {
    for at in 0..6 {
        let mut c = Cluster::new(60 + at, 4, 3, 2, 6, 8);
        c.net.delay = 40;
        c.run(10_000 + 9 * at);
        c.may_fail = true;
        c.withdraw(2);
        c.change(|m| m.order = vec![0, 1, 3, 2]);
        c.run(60_000);
        c.settle();
        assert!(c.osds[2].pg.is_none(), "{}", c.describe(2));
        c.check();
        c.final_reads();
    }
}

#[test]
fn a_backfill_target_that_fails_is_not_waited_for() {
    for (seed, at) in [(33, 0), (34, 40), (35, 150), (36, 600)] {
        let mut c = Cluster::new(seed, 4, 3, 2, 6, 8);
        c.run(20_000);
        c.keep_log = (150, 10);
        // Another OSD replaces osd.2, which serves until that one is filled.
        c.change(|m| m.order = vec![0, 1, 3, 2]);
        c.run(at);
        for _ in 0..2_000 {
            if c.map().mapping().acting.contains(&OsdId(2))
                && c.map().mapping().up.contains(&OsdId(3))
                && c.osds[3].pg.as_ref().is_some_and(|p| *p.state() == State::ReplicaActive)
            {
                break;
            }
            c.run(5);
        }
        c.may_fail = true;
        c.withdraw(3);
        goes_on(&mut c);
        ends_well(&mut c, 3);
    }
}

/// A failed copy may have the newest data, so no older copy serves.
#[test]
fn the_pg_waits_for_writes_that_only_a_failed_copy_may_have() {
    let mut c = Cluster::new(37, 3, 2, 1, 3, 5);
    c.run(10_000);
    c.crash(1);
    c.run(60_000);
    c.may_fail = true;
    c.withdraw(0);
    c.restart(1);
    c.run(30_000);
    let p = c.primary().unwrap();
    assert_eq!(*p.state(), State::Down(vec![OsdId(0)]), "{}", c.describe(1));
    assert!(p.inactive_reason().unwrap().contains("osd.0"));
    ends_well(&mut c, 0);
}

/// A stray with an invalid log: the primary goes on without it.
#[test]
fn an_invalid_log_fails_its_sender() {
    let mut c = Cluster::new(38, 3, 3, 2, 3, 5);
    c.run(10_000);
    c.may_fail = true;
    // osd.0 comes back behind the others, and asks one of them for its log.
    c.keep_log = (3_000, 100);
    c.osds.iter_mut().for_each(|o| o.pg.as_mut().unwrap().keep_log(3_000, 100));
    c.crash(0);
    c.run(40_000);
    c.restart(0);
    let mut asked = None;
    for _ in 0..20_000 {
        c.run(1);
        if c.osds[0].pg.as_ref().is_some_and(|p| p.asks_for_log().is_some()) {
            asked = c.osds[0].pg.as_ref().unwrap().asks_for_log();
            break;
        }
    }
    let from = asked.expect("osd.0 asks for a log").osd;
    let since = Eversion::default();
    let b = Body::Log { since, info: Box::default(), records: vec![Bytes::from_static(b"no record")] };
    let msg = message(&c, &b);
    c.give(0, Event::Peer { from, msg });
    assert!(!c.osds[0].pg.as_ref().unwrap().has_failed(), "{}", c.describe(0));
    goes_on(&mut c);
    ends_well(&mut c, from.0);
}

/// Both copies of the up set fail, one after the other, and do not ask for each other without end.
#[test]
fn failed_copies_do_not_ask_for_each_other() {
    let mut c = Cluster::new(39, 4, 2, 1, 3, 5);
    c.run(10_000);
    c.may_fail = true;
    c.withdraw(1);
    goes_on(&mut c);
    c.withdraw(0);
    let before = c.map().epoch;
    c.run(60_000);
    assert!(c.map().epoch < before + 5, "{} maps", c.map().epoch - before);
    // The older copy comes back, and waits for the data that only the other one may have.
    c.crash(1);
    c.restart(1);
    let acks = acked(&c);
    c.run(60_000);
    assert_eq!(acked(&c), acks, "{}", c.describe(1));
    ends_well(&mut c, 0);
}

/// Unfound objects that a failed copy may have can't be given up.
#[test]
fn objects_that_a_failed_copy_may_have_are_not_given_up() {
    let mut c = Cluster::new(40, 3, 2, 1, 6, 8);
    c.run(10_000);
    c.keep_log = (3_000, 100);
    c.osds[0].pg.as_mut().unwrap().keep_log(3_000, 100);
    c.crash(1);
    c.run(60_000);
    c.restart(1);
    let lacks = |p: &pg::Pg| *p.state() == State::ReplicaActive && p.missing() > 0;
    let half = |c: &Cluster| {
        let [leads, member] = [0, 1].map(|n: usize| c.osds[n].pg.as_ref());
        leads.is_some_and(pg::Pg::is_active) && member.is_some_and(lacks)
    };
    for _ in 0..60_000 {
        if half(&c) {
            break;
        }
        c.run(1);
    }
    assert!(half(&c), "{}", c.describe(1));
    c.may_fail = true;
    c.withdraw(0);
    c.run(30_000);
    let p = c.primary().unwrap();
    assert!(p.is_active() && !p.unfound_objects().is_empty(), "{}", c.describe(1));
    let refused = c.mark_lost(true).unwrap_err();
    assert_eq!(refused.0, base::errno::EINVAL, "{}", refused.1);
    ends_well(&mut c, 0);
}

/// Copies fail one after the other while the PG moves between OSDs: acknowledged writes are waited for, not lost.
fn failing(seed: u64, size: u32) {
    let mut c = Cluster::new(seed, 5, size, size - 1, 4, 6);
    c.may_fail = true;
    c.run(10_000);
    let mut failed: Vec<i32> = Vec::new();
    for _ in 0..14 {
        match c.rng.below(5) {
            0 | 1 => {
                let n = c.rng.below(5) as i32;
                let serves = |p: &pg::Pg| p.is_active() || *p.state() == State::ReplicaActive;
                if c.osds[n as usize].pg.as_ref().is_some_and(serves) {
                    c.withdraw(n);
                    failed.push(n);
                }
            }
            2 | 3 => {
                let (a, b) = (c.rng.below(5) as usize, c.rng.below(5) as usize);
                c.change(|m| m.order.swap(a, b));
            }
            _ => {
                if let Some(n) = failed.pop() {
                    c.crash(n);
                    c.restart(n);
                }
            }
        }
        let ms = [50, 500, 3_000, 10_000][c.rng.below(4) as usize];
        c.run(ms);
    }
    for n in failed {
        c.crash(n);
        c.restart(n);
        c.run(2_000);
    }
    c.settle();
    c.check();
    c.final_reads();
}

#[test]
fn copies_that_fail_one_after_the_other_lose_nothing() {
    let n = std::env::var("PG_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let from = std::env::var("PG_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1_000);
    for seed in from..from + n {
        println!("seed {seed}");
        failing(seed, 2);
        failing(seed, 3);
    }
}
