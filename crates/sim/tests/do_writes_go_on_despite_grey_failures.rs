//! Do writes go on when two OSDs lose each other, or a disk does not answer, and is each OSD marked down at most once?
//!
//! Bounds of virtual time: 40 s after a cut, 20 s after a disk stopped. A planted bug shows that each oracle sees.

use base::planted::{Bug, plant};
use sim::grey::{Grey, Shape};
use sim::queue::{SEC, Time};

/// Longest time until writes go on after a link was cut.
const CUT: Time = 40 * SEC;
/// The same after a disk stopped.
const STUCK: Time = 20 * SEC;
/// The same after all came back.
const WAIT: Time = 5 * SEC;

const THREE: Shape = Shape { seed: 1, osds: 3, copies: 3, code: None, mons: 1 };

/// Between two OSDs, a link is cut for `lasts`.
fn cut(shape: Shape, both: bool, lasts: Time) -> Result<Vec<usize>, String> {
    let mut g = Grey::new(shape)?;
    let (a, b) = g.pair();
    g.cut(a, &[b], both);
    g.watch(lasts, CUT)?;
    g.heal(a, &[b], both);
    end(g)
}

/// The end of a fault: all OSDs come back, and nothing is lost.
fn end(mut g: Grey) -> Result<Vec<usize>, String> {
    g.settle()?;
    g.watch(10 * SEC, WAIT)?;
    let marks = g.marks().to_vec();
    g.judge().map(|()| marks)
}

/// The disk of the busiest OSD stops for `lasts`.
fn stuck(shape: Shape, lasts: Time) -> Result<Vec<usize>, String> {
    let mut g = Grey::new(shape)?;
    let (a, _) = g.pair();
    g.freeze(a);
    g.watch(lasts, STUCK)?;
    g.thaw(a);
    end(g)
}

fn once(marks: Result<Vec<usize>, String>) {
    assert_eq!(marks.map(|m| m.iter().sum::<usize>()), Ok(1));
}

/// The bug makes `f` fail, or marks an OSD down more than once.
fn found(bug: Bug, f: impl Fn() -> Result<Vec<usize>, String>) {
    plant(Some(bug));
    let with = f();
    plant(None);
    println!("{bug:?}: {with:?}");
    assert!(with.is_err() || with.is_ok_and(|m| m.iter().sum::<usize>() > 1), "{bug:?} is not found");
}

#[test]
fn writes_go_on_after_a_link_was_cut() {
    once(cut(THREE, true, 70 * SEC));
    found(Bug::IgnoreCutLinks, || cut(THREE, true, 70 * SEC));
    found(Bug::BootDespiteCut, || cut(THREE, true, 70 * SEC));
}

#[test]
fn loss_in_one_direction_is_a_cut() {
    once(cut(Shape { osds: 5, ..THREE }, false, 70 * SEC));
}

#[test]
fn reports_to_several_monitors_count_together() {
    once(cut(Shape { seed: 2, mons: 3, ..THREE }, true, 70 * SEC));
}

#[test]
fn shards_go_on_after_a_link_was_cut() {
    once(cut(Shape { seed: 3, osds: 5, code: Some((2, 2)), ..THREE }, true, 70 * SEC));
}

#[test]
fn one_osd_cut_from_two_others_is_the_one_to_leave() {
    let mut g = Grey::new(Shape { seed: 4, osds: 5, ..THREE }).unwrap();
    g.cut(4, &[0, 1], true);
    g.watch(70 * SEC, CUT).unwrap();
    assert_eq!(g.marks(), [0, 0, 0, 0, 1]);
    g.heal(4, &[0, 1], true);
    assert_eq!(end(g).unwrap(), [0, 0, 0, 0, 1]);
}

#[test]
fn a_short_cut_changes_nothing() {
    let mut g = Grey::new(Shape { seed: 5, ..THREE }).unwrap();
    let (a, b) = g.pair();
    g.cut(a, &[b], true);
    g.watch(10 * SEC, CUT).unwrap();
    g.heal(a, &[b], true);
    assert_eq!(end(g).unwrap(), [0; 3]);
}

#[test]
fn writes_go_on_without_a_disk_that_does_not_answer() {
    // It goes on, it goes on after its OSD has ended, and it never does.
    for lasts in [15, 45, 90] {
        once(stuck(THREE, lasts * SEC));
    }
    found(Bug::IgnoreSilence, || stuck(THREE, 45 * SEC));
    found(Bug::BootInSilence, || stuck(THREE, 45 * SEC));
}

#[test]
fn shards_go_on_without_a_disk_that_does_not_answer() {
    once(stuck(Shape { seed: 6, osds: 5, code: Some((2, 2)), mons: 3, ..THREE }, 45 * SEC));
}

#[test]
fn a_disk_that_stops_again_and_again_takes_its_osd_out_less_and_less_often() {
    let mut g = Grey::new(Shape { seed: 7, ..THREE }).unwrap();
    let (a, _) = g.pair();
    let mut marks = Vec::new();
    for _ in 0..14 {
        g.freeze(a);
        g.watch(13 * SEC, STUCK).unwrap();
        g.thaw(a);
        g.watch(17 * SEC, STUCK).unwrap();
        marks.push(g.marks().iter().sum::<usize>());
    }
    let (early, late) = (marks[6], marks[13] - marks[6]);
    assert!(early <= 7 && late <= 3, "{marks:?}");
}
