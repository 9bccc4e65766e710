//! Does the simulator find bugs that were planted, each within a stated number of seeds?
//!
//! A simulator that finds nothing may be blind. Each bug is compiled into the tests' build of the production code and acts only
//! here; the budgets are about four times what was needed when they were written.

use base::planted::{Bug, plant};
use sim::options::{Fault, Options, Size};
use sim::run::run;

/// Some seed below `budget` finds `bug`, with the kinds of faults that bring it to light.
fn found(bug: Bug, copies: usize, only: &[Fault], budget: u64) {
    let size = Size { osds: 4, ops: 250, faults: 10, copies, only: only.to_vec() };
    plant(Some(bug));
    let first = (0..budget).find(|seed| !run(&Options::draw(*seed, size.clone()), false).violations.is_empty());
    plant(None);
    assert!(first.is_some(), "{bug:?} was not found in {budget} seeds");
    let clean = run(&Options::draw(first.unwrap_or(0), size), false);
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
