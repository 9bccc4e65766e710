//! The schedule of due scrubs.

use super::*;
use osd::core::scrub::ScrubSettings;

const DAY: u32 = 86_400;

/// PGs whose scrub has begun, or is not due.
fn begun(pgs: &Pgs, now: Now) -> Vec<PgId> {
    pgs.iter().filter(|p| p.is_scrubbing() || p.scrub_due(now).is_none()).map(|p| p.spg().pg).collect()
}

#[test]
fn the_longest_due_scrub_begins_and_no_more_than_there_are_slots() {
    let mut maps = Maps::new(1, 1, 3);
    let first = Arc::new(maps.now.clone());
    let serves = maps.next(|i| _ = i.new_up_thru.insert(OsdId(0), Epoch(3)));
    let (mut store, mut pgs) = (MemStore::new(), empty(OsdId(0)));
    pgs.handle_maps(&[first], maps.feed(), at(0), &mut store);
    let create = |seed| PgCreate { pgid: PgId::new(1, seed).into(), stamp: Default::default(), extra: None };
    pgs.create(&[0, 1, 2].map(create), at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    pgs.handle_maps(&[serves], maps.feed(), at(30_000), &mut store);
    settle(&mut pgs, &mut store, 30_000);

    let later = Now { wall: Utime { sec: 100 + 2 * DAY, nsec: 0 }, ..at(60_000) };
    let mut due: Vec<(f64, PgId)> = pgs.iter().filter_map(|p| Some((p.scrub_due(later)?.since, p.spg().pg))).collect();
    assert_eq!(due.len(), 3);
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let one = ScrubSettings { max_scrubs: 1, ..ScrubSettings::default() };
    pgs.set_scrubs(&one);
    pgs.schedule_scrubs(later, || false, &mut store);
    assert_eq!(begun(&pgs, later), [], "the machine is busy");
    pgs.set_scrubs(&one);
    pgs.schedule_scrubs(later, || true, &mut store);
    assert_eq!(begun(&pgs, later), [due[0].1]);
}
