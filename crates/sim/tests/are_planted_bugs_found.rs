//! Does the simulator find planted bugs, each within a stated number of seeds?
//!
//! A simulator that finds nothing may be blind. Each bug is compiled into the tests' build of the production code and
//! acts only here. The budgets are about four times the number of seeds needed when they were written.

use base::planted::{Bug, plant};
use sim::options::{Fault, Options, Size};
use sim::queue::MS;
use sim::rough::Rough;
use sim::run::run;

/// Checks that a seed below `budget` finds `bug`, with faults of these kinds.
fn found(bug: Bug, copies: usize, only: &[Fault], budget: u64) {
    let size = Size { osds: 4, ops: 250, faults: 10, copies, only: only.to_vec() };
    found_with(bug, budget, |seed| {
        let mut o = Options::plain(seed, size.clone());
        (o.osd.reactors, o.osd.reactors_change) = (1, false);
        o
    });
}

/// Checks the same with few objects and a client that only reads, for faults against the members of one PG.
fn found_watching(bug: Bug, copies: usize, only: Fault, objects: Option<usize>) {
    let size = Size { osds: 4, ops: 500, faults: 10, copies, only: vec![only] };
    let budget = if bug == Bug::KeepDivergent { 40 } else { 12 };
    found_with(bug, budget, |seed| {
        let mut o = Options::plain(seed, size.clone());
        o.watchful();
        o.work.objects = objects.unwrap_or(o.work.objects);
        o
    });
}

fn found_with(bug: Bug, budget: u64, options: impl Fn(u64) -> Options) {
    plant(Some(bug));
    let violations = |seed| Some(run(&options(seed), false).violations).filter(|v| !v.is_empty()).map(|v| (seed, v));
    let first = (0..budget).find_map(violations);
    plant(None);
    println!("{bug:?}: {first:?}");
    let Some((first, _)) = first else { panic!("{bug:?} was not found in {budget} seeds") };
    let clean = run(&options(first), false);
    assert!(clean.violations.is_empty(), "seed {first} fails without {bug:?}, too: {:?}", clean.violations);
}

#[test]
fn an_answer_before_durability() {
    found_watching(Bug::AckBeforeDurable, 1, Fault::Blackout, None);
}

#[test]
fn a_forgotten_request_id() {
    // Much is in flight whenever connections end.
    let size = Size { osds: 4, ops: 1500, faults: 30, copies: 1, only: vec![Fault::Reset] };
    found_with(Bug::ForgetReqids, 12, |seed| {
        let mut o = Options::plain(seed, size.clone());
        (o.osd.reactors, o.osd.reactors_change) = (1, false);
        (o.work.think, o.work.depth, o.fault_every) = (4 * MS, 8, 200 * MS);
        o
    });
}

#[test]
fn a_clone_that_is_not_made() {
    found(Bug::ForgetClone, 1, &[], 12);
}

#[test]
fn reads_without_a_lease() {
    found_watching(Bug::ReadWithoutLease, 2, Fault::Isolate, None);
}

#[test]
fn leases_of_an_earlier_interval_that_are_not_waited_for() {
    found_watching(Bug::SkipPriorLeases, 2, Fault::Isolate, None);
}

#[test]
fn leases_that_know_nothing_of_maps() {
    found_watching(Bug::LeaseWithoutEpoch, 2, Fault::Isolate, None);
}

#[test]
fn an_answer_before_all_copies_have_it() {
    found_watching(Bug::AckBeforeReplicas, 2, Fault::LastWords, None);
}

#[test]
fn a_replica_that_says_durable_too_early() {
    found_watching(Bug::ReplicaAcksBeforeDurable, 2, Fault::Blackout, None);
}

#[test]
fn divergent_records_that_are_kept() {
    // With that many objects, the next primary does not overwrite all of them. Recovery of an overwritten one would
    // hide the bug.
    found_watching(Bug::KeepDivergent, 2, Fault::LastWords, Some(80));
}

#[test]
fn writes_before_the_map_shows_up_thru() {
    found_watching(Bug::SkipUpThru, 2, Fault::Turns, None);
}

#[test]
fn a_split_that_forgets_the_log() {
    found(Bug::SplitForgetsLog, 3, &[Fault::PgNum, Fault::Reset, Fault::Kill, Fault::CrashAtStep], 16);
}

/// Checks the same with an erasure-coded pool, few objects and a client that only reads.
fn found_coded(bug: Bug, shape: (u8, u8), only: &[Fault], objects: usize, budget: u64) {
    let size = Size { osds: 4, ops: 400, faults: 10, copies: 0, only: only.to_vec() };
    found_with(bug, budget, |seed| {
        let mut o = Options::coded(seed, size.clone(), Some(shape));
        o.watchful();
        o.work.objects = objects;
        o
    });
}

#[test]
fn an_answer_before_all_shards_have_it() {
    found_coded(Bug::AckBeforeReplicas, (2, 1), &[Fault::LastWords], 3, 40);
}

/// A write that only one shard has is neither rolled back nor counted as missing.
#[test]
fn a_forgotten_undo() {
    found_coded(Bug::KeepDivergent, (2, 2), &[Fault::LastWords, Fault::Turns], 80, 40);
}

#[test]
fn a_shard_that_is_not_touched_and_stays_stale() {
    found_coded(Bug::StaleUntouchedShard, (4, 2), &[Fault::Reset], 3, 40);
}

/// An entry that was deferred on shards which it does not touch is undone on all others.
#[test]
fn a_peering_that_forgets_what_was_deferred() {
    found_coded(Bug::ForgetDeferred, (4, 2), &[Fault::Kill], 3, 40);
}

#[test]
fn coding_shards_made_with_the_wrong_old_data() {
    found_coded(Bug::DeltaWithoutOld, (4, 2), &[Fault::Kill], 3, 40);
}

/// A shard's acknowledgement counts although a power cut loses the entry.
#[test]
fn a_shard_that_says_durable_too_early() {
    found_coded(Bug::ReplicaAcksBeforeDurable, (2, 2), &[Fault::Blackout], 3, 40);
}

/// Checks a bug with seeds as drawn, of default size.
fn found_as_drawn(bug: Bug) {
    found_with(bug, 40, |seed| Options::draw(seed, Size::default()));
}

#[test]
fn watches_that_members_end() {
    found_as_drawn(Bug::MembersEndWatches);
}

#[test]
fn a_failed_copy_that_tells_nobody() {
    found(Bug::FailedCopyStays, 3, &[Fault::FailCopy], 16);
}

#[test]
fn versions_of_heads_at_snapshots() {
    found_as_drawn(Bug::HeadVersionAtSnapshot);
}

/// Checks that a seed below 40, as drawn and of default size, finds the bug, and is clean without it.
fn found_by(bug: Bug, seed: u64) {
    assert!(seed < 40);
    found_once(bug, &Options::draw(seed, Size::default()));
}

/// Checks that a run finds the bug, and is clean without it.
fn found_once(bug: Bug, o: &Options) {
    plant(Some(bug));
    let violations = run(o, false).violations;
    plant(None);
    assert!(!violations.is_empty(), "seed {} does not find {bug:?}", o.seed);
    let clean = run(o, false).violations;
    assert!(clean.is_empty(), "seed {} fails without {bug:?}, too: {clean:?}", o.seed);
}

#[test]
fn the_log_of_a_dead_stray_that_is_waited_for() {
    found_by(Bug::AskDeadForLog, 16);
}

#[test]
fn maps_that_are_left_out() {
    found_by(Bug::SkipMaps, 4);
}

#[test]
fn words_of_a_process_before_its_boot() {
    found_by(Bug::ActAsPredecessor, 1);
}

#[test]
fn leases_without_a_margin() {
    found_by(Bug::LeaseWithoutMargin, 2);
}

/// Checks the same with three monitors over a shared state that is slow, loses answers and breaks watches.
fn found_of_monitors(bug: Bug, only: &[Fault]) {
    let size = Size { osds: 3, ops: 100, faults: 12, copies: 2, only: only.to_vec() };
    found_with(bug, 12, |seed| {
        let mut o = Options::plain(seed, size.clone());
        o.monitors(Some(3));
        o.state = state::simulated::Faults {
            delay_max: 20 * MS,
            lost_answer: 20,
            lost_request: 20,
            broken_watch: 20,
            compaction: 5,
            lost_lease: 0,
        };
        (o.final_power_cut, o.pool.pgs, o.fault_every) = (false, 1, 3000 * MS);
        o
    });
}

#[test]
fn a_watch_gap_that_is_ignored() {
    found_of_monitors(Bug::IgnoreWatchGap, &[Fault::MonApart]);
}

#[test]
fn an_unknown_outcome_that_is_answered_as_failure() {
    found_of_monitors(Bug::UnknownIsFailure, &[Fault::StateCut]);
}

/// A daemon that is cut off from the monitors writes into the journal of a rank that another daemon has.
#[test]
fn a_replaced_mds_that_is_not_kept_out() {
    let size = Size { osds: 3, ops: 100, faults: 12, copies: 2, only: vec![Fault::MdsApart, Fault::MdsPause] };
    found_with(Bug::MdsWithoutFence, 8, |seed| {
        let mut o = Options::plain(seed, size.clone());
        o.files(Some(2));
        (o.final_power_cut, o.pool.pgs, o.fault_every) = (false, 1, 8000 * MS);
        o
    });
}

/// A late transaction of a deposed leader is refused by nothing but the fence.
#[test]
fn a_leader_without_a_fence() {
    let size = Size { osds: 3, ops: 100, faults: 3, copies: 2, only: vec![Fault::StateLate] };
    found_with(Bug::LeaderWithoutFence, 4, |seed| {
        let mut o = Options::plain(seed, size.clone());
        o.monitors(Some(3));
        o.state = state::simulated::Faults { delay_max: 20 * MS, ..Default::default() };
        (o.final_power_cut, o.pool.pgs, o.fault_every, o.fault_lasts) = (false, 1, 3000 * MS, 20_000 * MS);
        o
    });
}

/// Checks the same in runs with these sizes and counts.
fn found_roughly(bug: Bug, only: &[Fault], rough: Rough) {
    let size = Size { osds: 4, ops: 300, faults: 10, copies: 3, only: only.to_vec() };
    found_with(bug, 12, |seed| {
        let mut o = Options::plain(seed, size.clone());
        (o.rough, o.osd.log_records) = (rough, 3000);
        o
    });
}

#[test]
fn later_parts_of_a_push_that_are_ignored() {
    found_roughly(Bug::ForgetPush, &[Fault::Kill], Rough { large: true, ..Rough::default() });
}

#[test]
fn writes_that_wait_for_a_quota_for_ever() {
    found_roughly(Bug::ForgetSpace, &[Fault::Kill], Rough { quota: true, ..Rough::default() });
}

/// The operator names a primary, and other overrides take it out of the acting set.
#[test]
fn a_temporary_primary_that_stays() {
    let size = Size { osds: 4, ops: 200, faults: 30, copies: 3, only: vec![Fault::Place] };
    found_with(Bug::KeepPrimaryTemp, 12, |seed| {
        let mut o = Options::plain(seed, size.clone());
        (o.pool.pgs, o.final_power_cut, o.fault_every, o.without_one) = (4, false, 2000 * MS, false);
        o
    });
}
