//! Do clusters keep every promise while everything around them fails, and is a run of a seed the same each time?
//!
//! Runs a few fixed seeds, seeds that once found something, and fresh ones for `SIM_SECONDS` seconds. `SIM_SEED` runs
//! one seed. Longer runs: `cargo run --release -p belemnite-sim -- --help`.

use sim::options::{COPIES_MAX, Options, Size};
use sim::run::{Report, run};
use std::time::{Duration, Instant};

/// Small enough for a build without optimisation.
const SIZE: Size = Size { osds: 5, ops: 300, faults: 10, copies: 0, only: Vec::new() };

/// Seconds for which fresh seeds run without `SIM_SECONDS`.
const SECONDS: u64 = 60;

/// Seeds that once failed, with copies and operations; docs/design/simulation-seeds.md describes them.
const FOUND: [(u64, usize, usize); 6] =
    [(31, 1, 600), (1001, 2, 400), (0, 3, 60), (90_109, 0, 2000), (90_111, 0, 2000), (7_000_396, 0, 2000)];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn clean(seed: u64) -> Report {
    clean_with(seed, SIZE)
}

fn clean_with(seed: u64, size: Size) -> Report {
    clean_run(Options::plain(seed, size))
}

fn clean_run(o: Options) -> Report {
    let (seed, size) = (o.seed, o.size.clone());
    let r = run(&o, false);
    assert!(
        r.violations.is_empty(),
        "seed {seed}: {:#?}\n{:?}\nagain: cargo run --release -p belemnite-sim -- --seeds {seed} --osds {} --ops {} --faults {} \
         --copies {}{} --trace trace.txt",
        r.violations,
        r.options,
        // Erasure-coded runs draw further OSDs from the seed.
        if r.options.pool.code.is_some() { SIZE.osds } else { size.osds },
        size.ops,
        size.faults,
        size.copies,
        r.options.pool.code.map_or_else(String::new, |c| format!(" --ec {},{}", c.k, c.m))
            + &format!(" --mons {} --mds {}", r.options.mons, r.options.mds)
    );
    r
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 6] {
        let (a, b) = (clean(seed), clean(seed));
        assert_eq!((a.hash, a.events, a.took, a.epoch), (b.hash, b.events, b.took, b.epoch), "seed {seed}");
        assert_ne!(a.hash, clean(seed + 100).hash, "another seed is another run");
    }
}

#[test]
fn fixed_seeds_are_clean() {
    let seeds = number("SIM_SEED").map_or(0..6, |s| s..s + 1);
    let reports: Vec<Report> = seeds.map(clean).collect();
    assert!(reports.iter().all(|r| r.operations >= SIZE.ops), "all operations began");
}

#[test]
fn pools_that_grow_are_clean() {
    use sim::options::Fault::{CrashAtStep, Kill, MonCrash, PgNum, PowerCut};
    for (seed, copies) in [(1, 3), (2, 2), (8, 3)] {
        let only = vec![PgNum, Kill, PowerCut, CrashAtStep, MonCrash];
        let r = clean_with(seed, Size { osds: 4, copies, ops: 250, only, ..SIZE });
        assert!(r.faults.contains_key(&PgNum), "the pool of seed {seed} grows");
    }
}

#[test]
fn pools_that_shrink_are_clean() {
    use sim::options::Fault::{CrashAtStep, Kill, Partition, PgNum, PgShrink, PowerCut};
    // Seed 1: of two PGs to be merged one started its last interval later, and the merged PG had no complete copy.
    let quiet = Size { osds: 4, copies: 2, ops: 250, faults: 12, only: vec![PgNum, PgShrink] };
    let only = vec![PgNum, PgShrink, Kill, PowerCut, CrashAtStep, Partition];
    for (seed, size) in [(1, quiet), (20, Size { osds: 4, copies: 3, ops: 200, faults: 10, only })] {
        let r = clean_with(seed, size);
        assert!(r.options.osd.reactors > 1 && r.faults.contains_key(&PgShrink), "the pool of seed {seed} shrinks");
    }
}

#[test]
fn rot_is_never_returned_to_clients_and_is_repaired() {
    use sim::options::Fault::{CrashAtStep, Kill, PowerCut, Rot, Turns};
    // Seeds 1, 2: a member cannot write a part of an unreadable block. Seed 11: nor can it replace the object.
    for (seed, only) in [(1, vec![Rot]), (2, vec![Rot]), (11, vec![Rot, Kill, PowerCut, CrashAtStep, Turns])] {
        let r = clean_with(seed, Size { osds: 4, copies: 3, ops: 400, only, ..SIZE });
        assert!(r.faults.contains_key(&Rot), "a disk of seed {seed} rots");
    }
}

#[test]
fn disks_that_fill_up_take_writes_again() {
    use sim::options::Fault::{CrashAtStep, Full, Kill, OutIn, PowerCut};
    // Seed 2: the store refuses some writes before the map shows the OSD full.
    for (seed, only, refuses) in [(2, vec![Full], true), (105, vec![Full, Kill, PowerCut, CrashAtStep, OutIn], false)] {
        let r = clean_with(seed, Size { osds: 4, ops: 250, faults: 12, only, ..SIZE });
        assert!(r.faults.contains_key(&Full), "a disk of seed {seed} is filled");
        assert!(r.refused > 0 || !refuses, "no write of seed {seed} finds a full store");
    }
}

#[test]
fn compressed_data_is_clean() {
    use sim::options::Fault::{CrashAtStep, Full, Kill, OutIn, PgNum, PgShrink, PowerCut, Rot, Turns};
    let only = vec![CrashAtStep, Full, Kill, OutIn, PgNum, PgShrink, PowerCut, Rot, Turns];
    for seed in 500..504 {
        let mut o = Options::draw(seed, Size { osds: 4, copies: 3, ops: 250, only: only.clone(), ..SIZE });
        o.osd.compress = true;
        clean_run(o);
    }
    for seed in 504..506 {
        let mut o = Options::coded(seed, Size { ops: 150, only: only.clone(), ..SIZE }, None);
        o.osd.compress = true;
        clean_run(o);
    }
}

#[test]
fn seeds_that_found_something_are_clean() {
    for (seed, copies, ops) in FOUND {
        if copies <= COPIES_MAX {
            // These seeds found something before class calls, listings and copies were drawn.
            let mut o = Options::plain(seed, Size { copies, ops, faults: 12, ..SIZE });
            (o.osd.reactors, o.osd.reactors_change) = (1, false);
            clean_run(o);
        }
    }
}

/// Both copies of a PG may fail, with PGs split off it, while clients write.
#[test]
fn copies_that_fail_while_pgs_split_lose_nothing() {
    use sim::options::Fault::{FailCopy, Kill, PgNum, PgShrink};
    for seed in 100..103 {
        let only = vec![FailCopy, PgNum, PgShrink, Kill];
        let mut o = Options::draw(seed, Size { osds: 4, copies: 2, ops: 250, faults: 12, only });
        o.pool.pgs = 4;
        let r = clean_run(o);
        assert!(r.faults.contains_key(&FailCopy) && r.faults.contains_key(&PgNum), "seed {seed}: {:?}", r.faults);
    }
}

/// All kinds of client operations run while PGs are split and merged: watches, reads by any member, class calls,
/// listings, copies.
#[test]
fn all_client_operations_work_while_pgs_split() {
    use sim::options::Fault::{Kill, PgNum, PgShrink, Reset};
    for (seed, copies) in [(400, 3), (401, 2)] {
        let mut o = Options::draw(
            seed,
            Size { osds: 4, copies, ops: 300, faults: 12, only: vec![PgNum, PgShrink, Reset, Kill] },
        );
        o.pool.pgs = 4;
        (o.work.calls, o.work.lists, o.work.sources) = (true, true, 2);
        (o.work.watches, o.work.anywhere, o.work.snapshots) = (true, true, true);
        let r = clean_run(o);
        assert!(r.faults.contains_key(&PgNum), "seed {seed}: {:?}", r.faults);
    }
}

/// Options with class calls and bucket lists, of the first seed from `from` on that has lists.
fn with_calls(from: u64, size: &Size) -> Options {
    let all = (from..).map(|seed| {
        let mut o = Options::draw(seed, size.clone());
        (o.work.calls, o.work.anywhere) = (true, true);
        o
    });
    all.into_iter().find(sim::load::has_bucket_lists).expect("half of the seeds have them")
}

/// Class calls, short ones and those in parts, while PGs split and merge, OSDs die or are cut off and intervals change.
#[test]
fn class_calls_survive_splits_and_deaths() {
    use sim::options::Fault::{CrashAtStep, Kill, MarkDown, Partition, PgNum, PgShrink, Reset, Restart, Reweight};
    use sim::queue::{MS, SEC};
    let all = [
        (500, 3, vec![PgNum, PgShrink, Kill, Reset]),
        (510, 2, vec![PgNum, CrashAtStep, MarkDown, Reweight]),
        (520, 3, vec![Kill, Restart, Partition, MarkDown, Reset]),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (from, copies, only) in all {
        let size = Size { osds: 4, copies, ops: 900, faults: 14, only };
        // Time enough between two parts for other clients.
        let (walk, think, fault_every) = ((1, 3 * MS), 4 * MS, SEC / 4);
        let mut o = with_calls(from, &size);
        (o.pool.pgs, o.work.snapshots, o.osd.walk) = (4, true, walk);
        (o.work.think, o.fault_every) = (think, fault_every);
        let r = clean_run(o);
        assert!(r.recounts > 10, "{} recounts", r.recounts);
        seen.extend(r.faults.into_keys());
    }
    assert!([PgNum, PgShrink, Kill, MarkDown].iter().all(|f| seen.contains(f)), "{seen:?}");
}

/// Class calls while blocks rot, and while hosts lose power.
#[test]
fn class_calls_survive_rot_and_power_cuts() {
    use sim::options::Fault::{CrashAtStep, Kill, PowerCut, Rot};
    let mut seen = std::collections::BTreeSet::new();
    for (from, only) in [(600, vec![Rot, PowerCut]), (610, vec![PowerCut, CrashAtStep]), (620, vec![Rot, Kill])] {
        let size = Size { osds: 4, copies: 3, ops: 400, faults: 12, only };
        let r = clean_run(Options { final_power_cut: true, ..with_calls(from, &size) });
        assert!(r.recounts > 10, "{} recounts", r.recounts);
        seen.extend(r.faults.into_keys());
    }
    assert_eq!(seen, [Rot, PowerCut, CrashAtStep, Kill].into());
}

#[test]
fn pgs_that_move_between_reactors_lose_nothing() {
    // One seed lost writes; in the other a copy stayed on its OSD.
    for seed in [1_795_351_774, 1_795_351_538] {
        let mut o = Options::plain(seed, Size { osds: 5, copies: 0, ops: 2000, faults: 12, only: Vec::new() });
        o.osd.moves = true;
        let r = clean_run(o);
        assert!(r.options.osd.reactors > 1 && r.moved > 0, "PGs of seed {seed} move");
    }
}

/// Three monitors over a shared state, with faults of all kinds and with faults of monitors only.
#[test]
fn three_monitors_act_as_one() {
    use sim::options::Fault::{MonApart, MonCrash, MonPause, StateCut, StateGone};
    let mut leaders = 0;
    for (seed, only) in [
        (4, vec![]),
        (14, vec![]),
        (0, vec![MonPause, MonApart, StateCut]),
        (7, vec![MonCrash, MonPause, StateCut, StateGone]),
    ] {
        let mut o = Options::draw(seed, Size { only, ..SIZE });
        o.monitors(Some(3));
        let r = clean_run(o);
        assert!(r.faults.keys().any(|f| sim::options::OF_MONITORS.contains(f)), "seed {seed}: {:?}", r.faults);
        assert!(r.acknowledged > 5, "seed {seed}: {} changes", r.acknowledged);
        leaders += r.leaders;
    }
    assert!(leaders > 6, "leaders change: {leaders}");
}

/// Ranks get other daemons, with one monitor and with three.
#[test]
fn ranks_are_taken_over_and_earlier_daemons_are_kept_out() {
    use sim::options::Fault::{MdsApart, MdsKill, MdsPause, MdsRanks, MonCrash, Partition, Pause, Slow};
    let only = vec![MdsKill, MdsPause, MdsApart, MdsRanks, MonCrash, Pause, Partition, Slow];
    let (mut takeovers, mut entries) = (0, 0);
    for (seed, mons) in [(2202, 1), (2209, 1), (2195, 1), (3018, 3)] {
        let mut o = Options::draw(seed, Size { ops: 200, faults: 14, only: only.clone(), ..SIZE });
        o.monitors(Some(mons));
        o.files(Some(3));
        let r = clean_run(o);
        takeovers += r.takeovers;
        entries += r.entries;
    }
    assert!(takeovers > 4 && entries > 100, "{takeovers} takeovers, {entries} entries");
}

#[test]
fn erasure_coded_pools_are_clean() {
    for (seed, shape) in [(0, (2, 1)), (4, (4, 2)), (2, (3, 2)), (3, (2, 2))] {
        let r = clean_run(Options::coded(seed, Size { ops: 200, ..SIZE }, Some(shape)));
        assert_eq!(r.options.pool.copies, usize::from(shape.0 + shape.1));
        assert!(r.operations >= 200, "all operations began");
    }
}

#[test]
fn erasure_coded_pools_that_grow_and_shrink_are_clean() {
    use sim::options::Fault::{CrashAtStep, Kill, PgNum, PgShrink};
    for seed in [7, 10] {
        let only = vec![PgNum, PgShrink, Kill, CrashAtStep];
        let r = clean_run(Options::coded(seed, Size { ops: 400, only, ..SIZE }, None));
        assert!(r.faults.contains_key(&PgNum) && r.faults.contains_key(&PgShrink), "{:?}", r.faults);
    }
}

/// Two shards of one PG were on two reactors of an OSD. A message to one of them created it again on the other's
/// reactor, and with another number of reactors the store did not open.
#[test]
fn shards_of_one_pg_on_two_reactors_are_not_made_twice() {
    let o = Options::coded(500_290, Size { ops: 800, faults: 12, ..SIZE }, None);
    assert!(o.osd.reactors_change && !o.osd.moves);
    clean_run(o);
}

/// Seed 500053: an OSD with two shards of a PG's acting set had one reservation for their recovery, and each waited
/// for the other's. Seed 500199: an object was read from strays that had the log and lacked it, although other OSDs
/// had it.
#[test]
fn erasure_coded_pgs_do_not_wait_for_each_other_for_ever() {
    for seed in [500_053, 500_199] {
        clean_run(Options::coded(seed, Size { ops: 800, faults: 12, ..SIZE }, None));
    }
}

#[test]
#[ignore = "on request: whether a change passes must not depend on luck"]
fn fresh_seeds_are_clean() {
    let end = Instant::now() + Duration::from_secs(number("SIM_SECONDS").unwrap_or(SECONDS));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut seed = number("SIM_SEED").unwrap_or(now.as_nanos() as u64 >> 10);
    while Instant::now() < end {
        let mut o = Options::swarm(seed, SIZE);
        o.monitors(None);
        o.files(None);
        clean_run(o);
        seed += 1;
    }
}
