//! Does the simulator find bugs that were planted, each within a stated number of seeds?
//!
//! A simulator that finds nothing may be blind. Each bug is compiled into the tests' build of the production code and acts only
//! here; the budgets are about four times what was needed when they were written.

use base::planted::{Bug, plant};
use sim::options::{COPIES_MAX, Fault, Options, Size};
use sim::run::run;

/// Some seed below `budget` finds `bug`, with the kinds of faults that bring it to light.
fn found(bug: Bug, copies: usize, only: &[Fault], budget: u64) {
    found_with(bug, copies, only, budget, |_| {});
}

fn found_with(bug: Bug, copies: usize, only: &[Fault], budget: u64, tune: fn(&mut Options)) {
    let size = Size { osds: 4, ops: 250, faults: 10, copies, only: only.to_vec() };
    let options = |seed| {
        let mut o = Options::draw(seed, size.clone());
        tune(&mut o);
        o
    };
    plant(Some(bug));
    let first = (0..budget).find(|seed| !run(&options(*seed), false).violations.is_empty());
    plant(None);
    assert!(first.is_some(), "{bug:?} was not found in {budget} seeds");
    let clean = run(&options(first.unwrap_or(0)), false);
    assert!(clean.violations.is_empty(), "seed {first:?} fails without {bug:?}, too: {:?}", clean.violations);
}

#[test]
fn an_answer_before_durability() {
    found(Bug::AckBeforeDurable, 1, &[Fault::PowerCut, Fault::Kill, Fault::CrashAtStep], 12);
}

#[test]
fn a_forgotten_request_id() {
    found(Bug::ForgetReqids, 1, &[Fault::Reset], 12);
}

#[test]
fn a_clone_that_is_not_made() {
    found(Bug::ForgetClone, 1, &[], 12);
}

#[test]
fn an_answer_before_the_replicas_have_it() {
    if COPIES_MAX > 1 {
        let cuts = [Fault::Partition, Fault::OneWay, Fault::CutFromMon];
        found_with(Bug::AckBeforeReplicas, 2, &cuts, 24, Options::long_cuts);
    }
}

#[test]
fn reads_without_a_lease() {
    if COPIES_MAX > 1 {
        found_with(Bug::ReadWithoutLease, 2, &[Fault::Partition, Fault::OneWay], 24, Options::long_cuts);
    }
}
