//! Reservations of recovery and backfill: one PG on several OSDs, with claims of other PGs or without space.

mod cluster;

use cluster::{Cluster, spg};
use pg::Pg;
use pg::reserve::{Claim, Owner, RecoveryConfig, Side};
use wire::types::pg_state;

/// Three copies of some objects, clean; then one OSD misses writes.
fn behind(seed: u64, keep_log: (usize, usize)) -> Cluster {
    let mut c = Cluster::new(seed, 3, 3, 2, 6, 6);
    c.keep_log = keep_log;
    if let Some(pg) = &mut c.osds[0].pg {
        pg.keep_log(keep_log.0, keep_log.1);
    }
    c.contended = false;
    c.run(8_000);
    c.settle();
    c.crash(2);
    c.load = true;
    c.run(30_000);
    c
}

fn foreign(c: &Cluster, osd: usize, side: Side, prio: u8) -> Claim {
    c.osds[osd].reserver.claim(side, Owner { reactor: 0, index: 0, spg: spg() }, prio)
}

fn bits(c: &Cluster) -> u64 {
    c.primary().map_or(0, Pg::state_bits)
}

fn has(c: &Cluster, bit: u64) -> bool {
    bits(c) & bit != 0
}

/// Checks that no claim is left.
fn none_left(c: &Cluster) {
    for o in &c.osds {
        assert!(o.reserver.dump().is_empty(), "{:?}", o.reserver.dump());
    }
}

fn restart(c: &mut Cluster) {
    c.load = false;
    c.restart(2);
    c.run(20_000);
}

#[test]
fn recovery_waits_for_a_place_on_each_osd_and_frees_all() {
    for (osd, side) in [(0, Side::Local), (1, Side::Remote), (2, Side::Remote)] {
        let mut c = behind(5 + osd as u64, (10_000, 10));
        let other = foreign(&c, osd, side, 190);
        restart(&mut c);
        assert!(has(&c, pg_state::RECOVERY_WAIT) && !has(&c, pg_state::RECOVERING), "{}", c.describe(0));
        drop(other);
        c.wake(osd as i32);
        c.settle();
        assert!(has(&c, pg_state::CLEAN) && !has(&c, pg_state::RECOVERY_WAIT));
        none_left(&c);
        c.check();
        c.final_reads();
    }
}

#[test]
fn backfill_gives_way_to_recovery_and_goes_on_afterwards() {
    for (osd, side) in [(0, Side::Local), (2, Side::Remote)] {
        // The log does not reach back, so backfill compares everything.
        let mut c = behind(8, (10, 5));
        let other = foreign(&c, osd, side, 100);
        restart(&mut c);
        // The PG's priority is higher, so the other claim loses its place.
        assert_eq!(other.phase(), pg::reserve::Phase::Preempted);
        c.settle();
        drop(other);
        none_left(&c);

        let mut c = behind(8, (10, 5));
        let other = foreign(&c, osd, side, 181);
        restart(&mut c);
        assert!(has(&c, pg_state::BACKFILL_WAIT), "{}", c.describe(0));
        // Forced by an operator, the PG takes the place.
        c.force(2);
        c.settle();
        assert_eq!(other.phase(), pg::reserve::Phase::Preempted);
        drop(other);
        none_left(&c);
        c.check();
        c.final_reads();
    }
}

#[test]
fn the_end_of_an_interval_or_process_frees_places() {
    let mut c = behind(21, (10_000, 10));
    let other = foreign(&c, 2, Side::Remote, 190);
    restart(&mut c);
    assert!(has(&c, pg_state::RECOVERY_WAIT));
    assert_eq!(c.osds[0].reserver.dump().len(), 1);
    assert_eq!(c.osds[1].reserver.dump().len(), 1);
    // The primary dies: its place on osd.1 is free as soon as osd.1 has the map.
    c.crash(0);
    drop(other);
    c.wake(2);
    c.run(30_000);
    c.heal();
    c.settle();
    none_left(&c);
    c.check();
    c.final_reads();
}

#[test]
fn an_osd_beyond_backfillfull_ratio_is_not_backfilled_until_there_is_space() {
    let mut c = behind(31, (10, 5));
    c.change(|m| m.backfillfull = 1e-12);
    restart(&mut c);
    assert!(has(&c, pg_state::BACKFILL_TOOFULL) && !has(&c, pg_state::BACKFILLING), "{}", c.describe(0));
    none_left(&c);
    c.change(|m| m.backfillfull = 0.9);
    c.settle();
    assert!(!has(&c, pg_state::BACKFILL_TOOFULL));
    none_left(&c);
    c.check();
    c.final_reads();
}

#[test]
fn recovery_waits_while_a_member_is_full() {
    let mut c = behind(41, (10_000, 10));
    c.change(|m| m.full = vec![1]);
    restart(&mut c);
    assert!(has(&c, pg_state::RECOVERY_TOOFULL) && !has(&c, pg_state::RECOVERING), "{}", c.describe(0));
    none_left(&c);
    c.change(|m| m.full.clear());
    c.settle();
    assert!(!has(&c, pg_state::RECOVERY_TOOFULL));
    c.check();
    c.final_reads();
}

#[test]
fn without_places_only_objects_that_clients_wait_for_recover() {
    let mut c = behind(51, (10_000, 10));
    let none = RecoveryConfig { max_backfills: 0, ..RecoveryConfig::default() };
    c.osds[0].reserver.set(&none);
    c.load = true;
    c.restart(2);
    c.run(20_000);
    assert!(c.violations.is_empty(), "{:?}", c.violations);
    c.load = false;
    c.run(20_000);
    assert!(c.clients.iter().all(|c| c.busy.is_none()), "what clients want goes on");
    c.osds[0].reserver.set(&RecoveryConfig::default());
    c.wake(0);
    c.settle();
    none_left(&c);
    c.check();
    c.final_reads();
}

/// Virtual time that a copy without any of `objects` small objects takes to recover, in milliseconds.
fn time_to_recover(keep_log: (usize, usize), objects: usize) -> u64 {
    let mut c = Cluster::new(3, 3, 3, 2, objects, objects);
    c.keep_log = keep_log;
    if let Some(pg) = &mut c.osds[0].pg {
        pg.keep_log(keep_log.0, keep_log.1);
    }
    c.contended = false;
    c.load = false;
    c.run(4_000);
    c.crash(2);
    c.run(30_000);
    c.load = true;
    c.run(1_500);
    c.load = false;
    c.run(5_000);
    let left = |c: &Cluster| c.primary().is_none_or(|p| !p.is_clean());
    c.restart(2);
    // Until the OSD is up again and the PG has peered.
    while !has(&c, pg_state::RECOVERING) && !has(&c, pg_state::BACKFILLING) {
        c.run(1);
        assert!(c.now < 200_000, "{}", c.describe(0));
    }
    let from = c.now;
    while left(&c) {
        c.run(1);
        assert!(c.now < 900_000, "{}", c.describe(0));
    }
    c.check();
    c.now - from
}

#[test]
fn pushes_of_small_objects_do_not_wait_for_each_others_acknowledgements() {
    let took = [(100_000, 10), (10, 5)].map(|keep| time_to_recover(keep, 240));
    // By log and by backfill, in virtual time.
    assert!(took.iter().all(|ms| *ms < 800), "{took:?} ms");
}

/// A primary without space for an object asks another OSD when the first one is gone. The parts of both pushes must
/// not be applied twice, since clients change the object in between.
#[test]
fn a_second_push_that_waited_for_space_undoes_no_newer_write() {
    let mut twice = 0;
    for seed in 0..40 {
        let mut c = Cluster::new(seed, 5, 2, 1, 4, 6);
        c.keep_log = (10_000, 10);
        for o in &mut c.osds {
            o.pg.iter_mut().for_each(|pg| pg.keep_log(10_000, 10));
        }
        c.contended = false;
        let serve = |c: &mut Cluster, first: i32, second: i32| {
            let rest = (0..5).filter(|o| *o != first && *o != second);
            let order = [first, second].into_iter().chain(rest).collect();
            c.change(|m| m.order = order);
        };
        serve(&mut c, 4, 0);
        c.run(8_000);
        c.settle();
        // A copy that gets the log but no objects becomes primary. The copies with the objects are strays then.
        c.osds[1].disk.room = Some(0);
        c.load = true;
        serve(&mut c, 0, 1);
        c.run(3_000);
        serve(&mut c, 1, 3);
        for o in [0, 4, 0, 4] {
            c.run(2_500);
            c.crash(o);
            c.run(1_500);
            c.restart(o);
        }
        for n in 1..12 {
            c.osds[1].disk.room = Some(1 + n % 2);
            c.run(1_700);
            twice += u64::from(c.osds[1].disk.room == Some(0));
        }
        c.osds[1].disk.room = None;
        c.settle();
        c.check();
        c.final_reads();
        assert!(c.violations.is_empty(), "seed {seed}: {:?}", c.violations);
    }
    assert!(twice > 40, "parts come and wait for room: {twice}");
}
