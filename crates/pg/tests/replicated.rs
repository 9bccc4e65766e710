//! Does a PG on several OSDs keep every acknowledged write, serve only the newest data, and end with equal copies?
//!
//! `PG_BUGS=1` reports after how many seeds planted bugs are found. `PG_SEED=n` runs one seed, `PG_SEEDS=n` that
//! many, `PG_TRACE=1` prints events.

mod cluster;

use base::ledger::{Cause, SINCE_MAX};
use bytes::Bytes;
use cluster::Cluster;
use pg::meter::Meter;
use std::rc::Rc;
use wire::msg::{OpCode, OsdOp, msg_flags};

#[test]
fn a_fresh_pg_goes_active_and_writes_reach_all_copies() {
    let mut c = Cluster::new(1, 4, 3, 2, 3, 5);
    c.run(20_000);
    assert!(c.primary().unwrap().is_clean(), "{}", c.describe(0));
    assert!(c.clients.iter().all(|c| c.done > 10), "clients got on");
    assert!(c.read_anywhere > 20, "members that don't lead serve reads: {}", c.read_anywhere);
    c.settle();
    c.check();
    c.final_reads();
}

#[test]
fn ledgers_add_up_to_the_latency_and_each_member_is_measured() {
    let mut c = Cluster::new(1, 3, 3, 2, 3, 5);
    let meter = Rc::new(Meter::default());
    c.run(5_000);
    c.osds.iter_mut().filter_map(|o| o.pg.as_mut()).for_each(|p| p.use_meter(Rc::clone(&meter)));
    c.run(20_000);
    let w = meter.book.borrow().since(SINCE_MAX, c.clock().mono);
    let (ops, latency, ..) = meter.total();
    assert!(ops > 50, "{ops}");
    // Times of this harness are whole milliseconds, so nothing is rounded.
    assert_eq!((w.all.ops, w.all.total_us() * 1000), (ops, latency.sum));
    assert!(w.all.us(Cause::Commit) > 0 && w.all.us(Cause::Replica) > 0, "{w:?}");
    assert!(w.peers.len() >= 2 && w.peers.iter().all(|(_, p)| p.acks > 0 && p.us > 0), "{:?}", w.peers);
    assert_eq!(w.peers.iter().map(|(_, p)| p.blamed_us).sum::<u64>(), w.all.us(Cause::Replica));
}

#[test]
fn a_member_recovers_missed_writes_by_log() {
    let mut c = Cluster::new(2, 3, 3, 2, 3, 5);
    c.run(5_000);
    c.crash(2);
    c.run(30_000);
    assert!(c.clients.iter().all(|c| c.busy.is_none() || c.done > 10), "two of three serve");
    c.restart(2);
    c.run(10_000);
    c.settle();
    c.check();
    c.final_reads();
}

/// Seed 80001685 of the simulator. A member misses more records than a transaction takes. They come in several
/// transactions, and a crash in between leaves a copy that is further behind.
#[test]
fn a_log_longer_than_a_transaction_is_merged_in_parts() {
    for seed in 0..8 {
        let mut c = Cluster::new(seed, 3, 3, 2, 3, 5);
        c.keep_log = (5_000, 10);
        c.osds.iter_mut().for_each(|o| o.disk.frame = 50);
        c.run(2_000);
        for round in 0..4 {
            // The copy that gets the log becomes primary, too.
            let away = [2, 0][round % 2];
            c.crash(away);
            c.run(30_000);
            c.restart(away);
            for _ in 0..seed {
                c.run(40);
                c.crash(away);
                c.restart(away);
            }
            c.run(5_000);
        }
        c.settle();
        c.check();
        c.final_reads();
    }
}

#[test]
fn a_member_that_was_away_for_long_is_backfilled_while_clients_write() {
    let mut c = Cluster::new(3, 4, 3, 2, 6, 8);
    c.run(5_000);
    c.crash(1);
    c.run(200_000);
    c.restart(1);
    c.run(60_000);
    c.settle();
    c.check();
    c.final_reads();
}

/// An OSD that sees too little space refuses growing writes before a map says so; deletions free space meanwhile.
#[test]
fn an_osd_without_room_lets_growing_writes_wait_and_removes() {
    let mut c = Cluster::new(3, 4, 3, 2, 6, 8);
    c.load = false;
    c.settle();
    let primary = c.map().mapping().acting_primary.0;
    let append = || OsdOp::with_extent(OpCode::APPEND, 0, 8, Bytes::from(0u64.to_le_bytes().to_vec()));
    let first = c.ask(primary, 1, 0, 0, vec![append()]);
    c.run(1_000);
    assert_eq!(c.asked.answers.remove(&first).map(|a| a.result), Some(0));
    c.osds[primary as usize].disk.short = true;
    let waits = c.ask(primary, 1, 1, 0, vec![append()]);
    let tried = c.ask(primary, 1, 2, wire::msg::msg_flags::FULL_TRY, vec![append()]);
    c.run(10_000);
    assert_eq!(c.asked.answers.keys().copied().collect::<Vec<_>>(), [tried]);
    assert_eq!(c.asked.answers.remove(&tried).map(|a| a.result), Some(base::errno::ENOSPC));
    let removes = c.ask(primary, 1, 0, 0, vec![OsdOp { op: OpCode::DELETE, ..OsdOp::default() }]);
    c.run(1_000);
    assert_eq!(c.asked.answers.remove(&removes).map(|a| a.result), Some(0), "behind nobody");
    c.osds[primary as usize].disk.short = false;
    c.run(10_000);
    assert_eq!(c.asked.answers.remove(&waits).map(|a| a.result), Some(0));
}

/// Writes that wait for space hold up neither backfill nor recovery by log.
#[test]
fn copies_are_completed_while_writes_wait_for_a_full_pool() {
    for away in [20_000, 200_000] {
        let mut c = Cluster::new(3, 4, 3, 2, 6, 8);
        c.contended = false;
        c.run(5_000);
        c.crash(1);
        c.run(away);
        c.load = false;
        c.run(5_000);
        c.change(|m| m.pool_full = true);
        c.run(5_000);
        let primary = c.map().mapping().acting_primary.0;
        let append = || OsdOp::with_extent(OpCode::APPEND, 0, 8, Bytes::from(0u64.to_le_bytes().to_vec()));
        let asked: Vec<u64> = (0..6).map(|n| c.ask(primary, 1, n, 0, vec![append()])).collect();
        c.run(1_000);
        assert!(c.asked.answers.is_empty());
        c.restart(1);
        c.run(60_000);
        assert!(c.primary().is_some_and(pg::Pg::is_clean), "{}", c.describe(primary as usize));
        assert!(c.asked.answers.is_empty(), "{away}");
        c.give(primary, pg::Event::SessionClosed(pg::SessionId(cluster::ASKED + 1)));
        c.change(|m| m.pool_full = false);
        c.settle();
        c.check();
        c.final_reads();
        assert!(asked.iter().all(|tid| !c.asked.answers.contains_key(tid)), "the session is gone");
    }
}

#[test]
fn the_primary_dies_and_another_goes_on() {
    let mut c = Cluster::new(4, 3, 3, 2, 3, 5);
    c.run(5_000);
    c.crash(0);
    let before: u64 = c.objects.iter().map(|o| o.acked).sum();
    c.run(60_000);
    let after: u64 = c.objects.iter().map(|o| o.acked).sum();
    assert!(after > before + 20, "writes go on: {before} {after}");
    c.heal();
    c.settle();
    c.check();
    c.final_reads();
}

#[test]
fn data_moves_to_other_osds_and_strays_are_removed() {
    let mut c = Cluster::new(5, 6, 3, 2, 5, 7);
    c.run(10_000);
    c.change(|m| m.order = vec![5, 4, 3, 2, 1, 0]);
    c.run(60_000);
    c.settle();
    c.check();
    c.final_reads();
}

/// The newest copy is a stray whose last records are of failed operations. These changed nothing, so the stray has
/// the objects as needed.
#[test]
fn a_stray_gives_objects_whose_last_records_are_failures() {
    for seed in 0..5 {
        let mut c = Cluster::new(seed, 3, 3, 1, 4, 12);
        c.run(5_000);
        c.crash(1);
        c.crash(2);
        c.run(60_000);
        c.restart(1);
        c.restart(2);
        c.change(|m| {
            m.size = 2;
            m.order = vec![1, 2, 0];
        });
        c.run(30_000);
        c.settle();
        c.check();
        c.final_reads();
    }
}

#[test]
fn an_object_unreadable_on_the_primary_is_taken_from_another_copy() {
    let mut c = Cluster::new(7, 3, 3, 2, 4, 8);
    c.run(10_000);
    for round in 0..20 {
        c.damage(0, round % 4);
        c.run(2_000);
    }
    assert!(c.osds[0].disk.spoiled.is_empty(), "clients read all of them");
    let said = c.log.iter().filter(|l| l.contains("unreadable on osd.0; recovering it")).count();
    assert!((1..=20).contains(&said), "lines in the cluster log: {said}");
    c.settle();
    c.check();
    c.final_reads();
}

#[test]
fn an_object_unreadable_during_a_push_is_taken_from_another_copy() {
    for seed in 0..4 {
        let mut c = Cluster::new(seed, 4, 3, 2, 6, 8);
        c.run(5_000);
        c.crash(2);
        // Recovery by log in some runs, by backfill in others.
        c.run(if seed % 2 == 0 { 60_000 } else { 100_000 });
        c.load = false;
        c.run(10_000);
        for object in 0..6 {
            c.damage(0, object);
        }
        c.load = seed % 3 == 0;
        c.restart(2);
        c.run(20_000);
        c.settle();
        let left = &c.osds[0].disk.spoiled;
        assert!(left.is_empty(), "seed {seed}: all of them were pushed, but {left:?}; {}", c.describe(0));
        c.check();
        c.final_reads();
    }
}

/// Seeds 1795368429 and 80001005 of the simulator: the PG tried to move again and again.
#[test]
fn an_object_unreadable_during_a_move_is_taken_from_another_copy() {
    for osd in 0..3 {
        let mut c = Cluster::new(11, 3, 3, 2, 4, 8);
        c.run(10_000);
        c.load = false;
        c.run(20_000);
        c.damage(osd, 2);
        c.begin_move(osd);
        c.run(60_000);
        let o = &c.osds[osd as usize];
        assert!(o.disk.spoiled.is_empty(), "osd.{osd}: {}", c.describe(osd as usize));
        assert!(!o.pg.as_ref().unwrap().is_moving(), "it stays until then");
        c.load = true;
        c.settle();
        c.check();
        c.final_reads();
    }
}

/// An object that is unreadable on all copies: the client gets an error, and the PG goes on.
#[test]
fn an_object_unreadable_on_all_copies_gives_an_error_and_the_pg_goes_on() {
    let mut c = Cluster::new(9, 3, 3, 2, 3, 6);
    c.run(10_000);
    c.load = false;
    c.run(20_000);
    for osd in 0..3 {
        c.damage(osd, 1);
    }
    c.load = true;
    c.run(20_000);
    assert!(c.clients.iter().any(|c| c.errors > 0), "somebody read it");
    assert!(c.primary().unwrap().is_active(), "{}", c.describe(0));
    assert!(c.clients.iter().all(|c| c.done > 20), "clients got on");
}

#[test]
fn snapshots_are_kept_and_trimmed_on_all_copies() {
    let mut c = Cluster::new(6, 4, 3, 2, 3, 5);
    for round in 0..6 {
        c.run(3_000);
        c.take_snapshot();
        if round == 2 {
            c.crash(1);
        }
        if round > 2 {
            c.remove_snapshot();
        }
    }
    c.run(30_000);
    c.heal();
    c.settle();
    c.check();
    let clones =
        c.contents(0).keys().filter(|k| k.contains("object") && !k.ends_with(&base::SnapId::HEAD.to_string())).count();
    assert!(clones > 0, "three snapshots are left");
    c.final_reads();
}

/// If the snapshot index is unreadable, trimming pauses with one line in the cluster log, and goes on under another
/// primary.
#[test]
fn an_unreadable_snapshot_index_is_logged_and_another_primary_trims() {
    let mut c = Cluster::new(8, 3, 3, 2, 3, 5);
    c.run(3_000);
    c.take_snapshot();
    c.run(5_000);
    let index = base::HObject { pool: base::PoolId(cluster::POOL), snap: base::SnapId::HEAD, ..base::HObject::min() };
    c.osds[0].disk.spoiled.insert(store::Oid::new(index));
    c.remove_snapshot();
    c.run(20_000);
    let said = |c: &Cluster| c.log.iter().filter(|l| l.contains("snapshot index on osd.0 is unreadable (EIO)")).count();
    let clones = |c: &mut Cluster, n| {
        c.contents(n).keys().filter(|k| k.contains("object") && !k.ends_with(&base::SnapId::HEAD.to_string())).count()
    };
    assert_eq!(said(&c), 1, "{:?}", c.log);
    assert!(c.primary().unwrap().is_active() && clones(&mut c, 1) > 0, "{}", c.describe(0));
    let before: u64 = c.objects.iter().map(|o| o.acked).sum();
    c.run(5_000);
    assert!(c.objects.iter().map(|o| o.acked).sum::<u64>() > before + 5, "clients get on");

    c.change(|m| m.order = vec![1, 2, 0]);
    c.run(30_000);
    c.osds[0].disk.spoiled.clear();
    c.settle();
    assert_eq!([0, 1, 2].map(|n| clones(&mut c, n)), [0; 3]);
    assert_eq!(said(&c), 1);
    c.check();
    c.final_reads();
}

/// A random history with faults, then recovery and comparison.
fn history(seed: u64) {
    println!("PG_SEED={seed}");
    let mut r = base::rng::Rng::new(seed ^ 0x5eed);
    let osds = 3 + r.below(3) as usize;
    let size = 2 + r.below(2) as u32;
    let objects = 2 + r.below(5) as usize;
    let mut c = Cluster::new(seed, osds, size, 1 + r.below(u64::from(size)) as u32, objects, objects + 2);
    c.net.delay = [2, 5, 50, 400][r.below(4) as usize];
    c.keep_log = [(150, 10), (300, 30), (3000, 100)][r.below(3) as usize];
    let faults = 4 + r.below(10);
    for _ in 0..faults {
        c.run(r.below(30_000));
        let n = r.below(osds as u64) as i32;
        let other = r.below(osds as u64) as i32;
        match r.below(14) {
            0..=2 => c.crash(n),
            3..=5 => c.restart(n),
            6 if n != other => c.reset_session(n, other),
            7 if n != other => {
                c.net.blocked.insert((n, other));
                if r.chance(1, 2) {
                    c.net.blocked.insert((other, n));
                }
            }
            8 => {
                let all: Vec<(i32, i32)> = c.net.blocked.iter().copied().collect();
                c.net.blocked.clear();
                for (a, b) in all {
                    c.reset_session(a, b);
                }
            }
            9 => {
                let k = c.map().order.len();
                let (a, b) = (r.below(k as u64) as usize, r.below(k as u64) as usize);
                c.change(|m| m.order.swap(a, b));
            }
            10 => c.osds[n as usize].cut = true,
            11 => c.osds[n as usize].cut = false,
            12 => c.take_snapshot(),
            13 => c.remove_snapshot(),
            _ => {}
        }
    }
    c.run(r.below(30_000));
    c.heal();
    c.run(r.below(60_000));
    c.settle();
    c.check();
    c.final_reads();
}

#[test]
fn random_histories() {
    let env = |k: &str| std::env::var(k).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = env("PG_SEED") {
        return history(seed);
    }
    for seed in 0..env("PG_SEEDS").unwrap_or(8) {
        history(seed);
    }
}

/// Number of seeds until a history with that bug fails, at most `max`.
fn found_after(bug: base::planted::Bug, max: u64) -> Option<u64> {
    (0..max).find(|seed| {
        let seed = *seed;
        std::thread::spawn(move || {
            base::planted::plant(Some(bug));
            history(seed);
        })
        .join()
        .is_err()
    })
}

/// The harness must be able to fail. `PG_BUGS=1` tries all bugs, which takes minutes.
#[test]
fn planted_bugs_are_found() {
    use base::planted::Bug;
    let mut bugs = vec![(Bug::ForgetReqids, 10)];
    if std::env::var("PG_BUGS").is_ok() {
        bugs.extend([
            (Bug::AckBeforeReplicas, 100),
            (Bug::KeepDivergent, 100),
            (Bug::ReadWithoutLease, 100),
            (Bug::ReplicaAcksBeforeDurable, 100),
            (Bug::SkipPriorLeases, 100),
            (Bug::SkipUpThru, 200),
            (Bug::LeaseWithoutEpoch, 200),
        ]);
    }
    for (bug, max) in bugs {
        let n = found_after(bug, max);
        println!("{bug:?}: {n:?}");
        assert!(n.is_some() || std::env::var("PG_BUGS").is_ok(), "{bug:?} is not found");
    }
}

/// Seed 624148423 of the simulator. Two writes are durable on the member and not on the primary. If the member is lost,
/// the primary alone may serve, without them.
#[test]
fn a_member_shows_no_write_that_is_not_durable_on_the_primary() {
    let mut c = Cluster::new(3, 2, 2, 1, 1, 0);
    c.run(5_000);
    let write = |n: u8| {
        let data = Bytes::from(vec![n; 100]);
        vec![OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data)]
    };
    let read = || vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())];
    let first = c.ask(0, 1, 0, 0, write(1));
    // Members hear that the write is stable.
    c.run(7_000);
    assert_eq!(c.asked.answers.remove(&first).map(|r| r.result), Some(0));
    c.osds[0].disk.stalled = true;
    let writes = [c.ask(0, 1, 0, 0, write(2)), c.ask(0, 1, 0, 0, write(3))];
    c.run(100);
    // With the last one the primary tells the member how far writes are stable.
    let last = c.ask(0, 1, 0, 0, write(4));
    c.run(7_000);
    assert!(writes.iter().all(|t| !c.asked.answers.contains_key(t)), "{}", c.describe(0));
    let t = c.ask(1, 2, 0, msg_flags::BALANCE_READS, read());
    c.run(1_000);
    assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(base::errno::EAGAIN), "the client asks the primary");
    c.osds[0].disk.stalled = false;
    c.run(7_000);
    assert_eq!(c.asked.answers.remove(&last).map(|r| r.result), Some(0), "{}", c.describe(0));
    let t = c.ask(1, 2, 0, msg_flags::BALANCE_READS, read());
    c.run(1_000);
    assert_eq!(c.asked.answers.remove(&t).map(|r| r.result), Some(0), "{}", c.describe(1));
}
