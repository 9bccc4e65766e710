//! Allocations of an OSD for a map change, a peering and an idle second, with a short and with a long past.

#[path = "../../osd/tests/history/mod.rs"]
mod history;

use history::Osd;
use hostile::meter::{Meter, allocations_of, peak_of};

#[global_allocator]
static METER: Meter = Meter;

/// Allocations of four rounds, and the peak of bytes of one.
fn cost(osd: &mut Osd, f: fn(&mut Osd)) -> (usize, usize) {
    f(osd);
    let ((), allocations) = allocations_of(|| (0..4).for_each(|_| f(osd)));
    (allocations, peak_of(|| f(osd)).1)
}

/// Asserts that the kinds of work cost the second OSD not much more than the first one. `more`: bytes of a peak that
/// may come on top.
fn compare((few, many): (&mut Osd, &mut Osd), more: usize) {
    for (what, f) in [("change", Osd::change_map as fn(&mut Osd)), ("peering", Osd::peer), ("idle", Osd::idle_second)] {
        let ((a, a_peak), (b, b_peak)) = (cost(few, f), cost(many, f));
        println!("{what}: {a} and {b} allocations, {a_peak} and {b_peak} bytes");
        assert!(a > 0 && b <= a + a / 2, "{what}: {a} and {b} allocations");
        assert!(b_peak <= a_peak + a_peak / 2 + more, "{what}: {a_peak} and {b_peak} bytes");
    }
    few.check();
    many.check();
}

#[test]
fn of_removed_snapshots() {
    // A chunk of the set and its list of chunks, for the map and for the one before.
    compare((&mut Osd::new(8, 10), &mut Osd::new(8, 100_000)), 32 << 10);
}

/// A PG forgets the intervals before the last one that started, clean or not.
#[test]
fn of_past_intervals() {
    let (mut few, mut many) = (Osd::new(1, 10), Osd::new(1, 10));
    (0..5).for_each(|_| few.two_intervals());
    (0..1_000).for_each(|_| {
        many.two_intervals();
        assert!(many.longest().0 <= 2);
    });
    compare((&mut few, &mut many), 0);
}

#[test]
fn of_log_records() {
    let (mut few, mut many) = (Osd::new(1, 10), Osd::new(1, 10));
    few.write(10);
    many.write(10_000);
    assert_eq!((few.longest().1, many.longest().1), (10, 10_000));
    compare((&mut few, &mut many), 0);
}
