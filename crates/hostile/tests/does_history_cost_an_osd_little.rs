//! Allocations of an OSD for a map change, a peering and an idle second, with few and with many removed snapshots.

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

#[test]
fn of_removed_snapshots() {
    let (mut few, mut many) = (Osd::new(8, 10), Osd::new(8, 100_000));
    for (what, f) in [("change", Osd::change_map as fn(&mut Osd)), ("peering", Osd::peer), ("idle", Osd::idle_second)] {
        let ((a, a_peak), (b, b_peak)) = (cost(&mut few, f), cost(&mut many, f));
        println!("{what}: {a} and {b} allocations, {a_peak} and {b_peak} bytes");
        assert!(a > 0 && b <= a + a / 2, "{what}: {a} and {b} allocations");
        // A chunk of the set and its list of chunks, for the map and for the one before.
        assert!(b_peak <= a_peak + a_peak / 2 + (32 << 10), "{what}: {a_peak} and {b_peak} bytes");
    }
    few.check();
    many.check();
}
