//! Changes in steps on made-up clusters: held, let go, undone, and changed by others meanwhile.

use super::*;
use crate::balance::tests::sixty;
use crate::rehearse::tests::{dressed, facts, inc, set_pool, sizes, with};
use base::PoolId;
use cluster::osdmap::{CANONICAL, RuleOsds, osd_state};
use std::sync::Arc;

/// A change as the monitor makes it, and the record of it.
fn applied(map: &OsdMap, change: &Incremental) -> (OsdMap, Record) {
    let before = Arc::new(map.clone());
    let p = plan(&before, change, &facts(map, sizes)).unwrap();
    let mut first = change.clone();
    p.undo.hold_weights(&mut first);
    for (pg, k) in &p.pgs {
        if let Some(items) = &k.hold {
            set_items(map, &mut first, *pg, items);
        }
    }
    let record = Record { command: "a change".into(), pgs: p.pgs.clone(), undo: p.undo, ..Record::default() };
    (with(map, &first), record)
}

/// Every PG is clean where the map places it.
fn settled(map: &OsdMap) -> Seen {
    let pgs = map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed }));
    let pg = |pg| {
        let up = map.pg_to_up(pg).0.to_vec();
        PgSeen { state: "active+clean".into(), up: up.clone(), acting: up, bytes: sizes(pg) }
    };
    Seen { map: Arc::new(map.clone()), pgs: pgs.map(|id| (id, pg(id))).collect(), errors: BTreeSet::new() }
}

fn release(map: &OsdMap, record: &Record, pgs: &[PgId]) -> OsdMap {
    let mut i = inc(map);
    pgs.iter().for_each(|pg| set_items(map, &mut i, *pg, &record.pgs[pg].then));
    with(map, &i)
}

fn finish(map: &OsdMap, record: &Record) -> OsdMap {
    let mut i = inc(map);
    i.new_weight.extend(record.undo.last_weights(map));
    with(map, &i)
}

fn sets(map: &OsdMap) -> BTreeMap<PgId, Vec<OsdId>> {
    let pgs = map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed }));
    let set = |pg: PgId| {
        let mut up = map.pg_to_up(pg).0.to_vec();
        if !map.pool(pg.pool).unwrap().is_erasure() {
            up.sort();
        }
        up
    };
    pgs.map(|pg| (pg, set(pg))).collect()
}

/// The PGs of which the sets differ.
fn differ(a: &BTreeMap<PgId, Vec<OsdId>>, b: &BTreeMap<PgId, Vec<OsdId>>) -> usize {
    a.iter().filter(|(pg, s)| b.get(pg) != Some(s)).count()
}

fn undone(map: &OsdMap, record: &Record) -> OsdMap {
    let mut i = inc(map);
    record.bring_back(map, &mut i).unwrap();
    with(map, &i)
}

fn out(map: &OsdMap, o: i32) -> Incremental {
    let mut i = inc(map);
    i.new_weight.insert(OsdId(o), 0);
    i
}

fn moved(map: &OsdMap, osd: i32, weight: u32) -> Incremental {
    let mut crush = (*map.crush).clone();
    crush.reweight_item(osd, weight).unwrap();
    let mut i = inc(map);
    i.crush = crush.encode_blob(CANONICAL);
    i
}

/// Carries a change to its end; the number of steps.
fn carried(mut map: OsdMap, record: &Record, step: Step) -> (OsdMap, usize) {
    let mut steps = 0;
    loop {
        match next(record, &settled(&map), step).unwrap().0 {
            Next::Wait(n) => panic!("{n} PGs are waited for"),
            Next::Release(pgs) => {
                map = release(&map, record, &pgs);
                steps += 1;
            }
            Next::Finish => map = finish(&map, record),
            Next::Done => return (map, steps),
        }
    }
}

#[test]
fn a_change_in_steps_ends_where_the_command_alone_would_and_undo_brings_all_back() {
    let map = dressed(sixty());
    let mut reweight = inc(&map);
    reweight.new_weight.insert(OsdId(9), 40_000);
    let size = set_pool(&map, 4, |p| p.size = 3);
    for (change, may_move) in [(out(&map, 7), 8), (reweight, 8), (moved(&map, 11, 1 << 14), 8), (size, 200)] {
        let alone = with(&map, &change);
        let (first, record) = applied(&map, &change);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        let at_once = differ(&sets(&map), &sets(&first));
        assert!(at_once <= may_move, "{at_once} PGs move at once");
        assert_eq!(record.differences(&first), [""; 0]);
        // Nothing that holds is void.
        let mut rules = RuleOsds::default();
        for pg in first.overridden_after(None, usize::MAX) {
            let mut i = inc(&first);
            assert_eq!(first.clean_overrides(pg, &mut rules, &mut i), [""; 0], "{pg}");
        }
        let (end, steps) = carried(first.clone(), &record, Step::Pgs(10));
        assert_eq!(steps, record.held(&first).count().div_ceil(10));
        assert_eq!(sets(&end), sets(&alone));
        assert_eq!((record.differences(&end), record.held(&end).count()), (vec![], 0));
        // Undo at the start, in the middle and at the end.
        let some: Vec<PgId> = record.held(&first).map(|(pg, _)| pg).take(5).collect();
        for now in [&first, &release(&first, &record, &some), &end] {
            let back = undone(now, &record);
            assert_eq!(sets(&back), sets(&map));
            let sizes = |m: &OsdMap| m.pools.values().map(|p| (p.size, p.min_size)).collect::<Vec<_>>();
            assert_eq!((&back.osd_weight, sizes(&back)), (&map.osd_weight, sizes(&map)));
            assert_eq!(back.crush.encode_blob(CANONICAL), map.crush.encode_blob(CANONICAL));
            assert_eq!(back.pg_upmap_items.len(), map.pg_upmap_items.len());
        }
    }
}

#[test]
fn upmaps_that_a_change_voids_come_back() {
    let map = dressed(sixty());
    // What the balancer would set: PG 1.x is on OSD 7 by an item.
    let mut rules = RuleOsds::default();
    let (pg, from) = (0..512)
        .map(|seed| PgId::new(1, seed))
        .find_map(|pg| {
            let raw = map.pg_to_raw(pg).0;
            let fits = |from: &&OsdId| {
                let mut i = inc(&map);
                set_items(&map, &mut i, pg, &vec![(from.0, 7)]);
                with(&map, &i).void_upmap(pg, &mut rules).is_none()
            };
            (!raw.contains(&OsdId(7))).then(|| raw.iter().find(fits).map(|f| (pg, f.0)))?
        })
        .unwrap();
    let mut i = inc(&map);
    set_items(&map, &mut i, pg, &vec![(from, 7)]);
    let map = with(&map, &i);
    let (first, record) = applied(&map, &out(&map, 7));
    let kept = &record.pgs[&pg];
    assert_eq!(*kept, Kept { was: vec![(from, 7)], hold: Some(vec![(from, 7)]), then: vec![] });
    let (end, _) = carried(first, &record, Step::Ratio(0.05));
    assert!(!end.pg_upmap_items.contains_key(&pg));
    assert_eq!(items_of(&undone(&end, &record), pg), [(from, 7)]);
}

#[test]
fn steps_have_their_size_and_wait_for_clean_pgs() {
    let map = dressed(sixty());
    let (first, record) = applied(&map, &out(&map, 7));
    let held = record.held(&first).count();
    assert!(held > 20, "{held}");
    let seen = settled(&first);
    let (what, bytes) = next(&record, &seen, Step::Ratio(0.001)).unwrap();
    let Next::Release(pgs) = what else { panic!("{what:?}") };
    assert!(!pgs.is_empty() && pgs.len() < held && bytes > 0);
    let tiny = next(&record, &seen, Step::Ratio(0.0)).unwrap().0;
    assert!(matches!(tiny, Next::Release(one) if one.len() == 1));
    // The reports are still those from before the step.
    let second = release(&first, &record, &pgs);
    let late = Seen { map: Arc::new(second.clone()), ..seen };
    assert_eq!(next(&record, &late, Step::Pgs(1)).unwrap().0, Next::Wait(pgs.len()));
    // A PG that was not clean before the change is not waited for, unless it belongs to the change.
    let mut seen = settled(&second);
    let other = (0..512).map(|s| PgId::new(2, s)).find(|pg| !record.pgs.contains_key(pg)).unwrap();
    seen.pgs.get_mut(&other).unwrap().state = "active+undersized+degraded".into();
    assert_eq!(next(&record, &seen, Step::Pgs(1)).unwrap().0, Next::Wait(1));
    let known = Record { unclean: [other].into(), ..record };
    assert!(matches!(next(&known, &seen, Step::Pgs(1)).unwrap().0, Next::Release(_)));
}

#[test]
fn new_dangers_stop_it() {
    let map = dressed(sixty());
    let seen = settled(&map);
    let mut bad = seen.clone();
    bad.errors.insert("OSD_FULL".into());
    Arc::make_mut(&mut Arc::make_mut(&mut bad.map).osd_state)[3] |= osd_state::NEARFULL;
    bad.pgs.get_mut(&PgId::new(1, 5)).unwrap().state = "undersized+degraded+peered".into();
    let mut watch = Danger::begin(&seen);
    assert_eq!(watch.look(&seen), [""; 0]);
    watch.look(&bad);
    let reasons = watch.look(&bad);
    assert_eq!(reasons, ["1 PGs do not serve (1.5)", "osd.3 is nearly full", "health reports OSD_FULL"]);
    // What was so before is no reason.
    assert_eq!(Danger::begin(&bad).look(&bad), [""; 0]);
    // A PG that changes its primary is not active for a moment.
    let mut peers = seen.clone();
    peers.pgs.get_mut(&PgId::new(1, 5)).unwrap().state = "peering".into();
    let mut watch = Danger::begin(&seen);
    assert!((0..5).all(|_| watch.look(&peers).is_empty()));
    assert_eq!(watch.look(&seen), [""; 0]);
    assert!((0..5).all(|_| watch.look(&peers).is_empty()));
    assert!((0..5).any(|_| !watch.look(&peers).is_empty()));
}

#[test]
fn changes_of_others_are_told() {
    let map = dressed(sixty());
    let (first, record) = applied(&map, &out(&map, 7));
    let mut i = inc(&first);
    i.new_weight.insert(OsdId(7), 30_000);
    let pg = record.held(&first).next().unwrap().0;
    set_items(&first, &mut i, pg, &vec![(1, 2)]);
    let told = record.differences(&with(&first, &i));
    assert_eq!(told, ["osd.7 has the weight 0.45776".to_owned(), format!("pg {pg} has the upmap items [1->2]")]);
    let (first, record) = applied(&map, &moved(&map, 11, 1 << 14));
    let told = record.differences(&with(&first, &moved(&first, 12, 1 << 16)));
    assert_eq!(told, ["osd.12 is in h2 with weight 1.0000, class ssd"]);
    // An OSD that has joined since would be lost.
    let mut crush = (*first.crush).clone();
    let at = crush.full_location(3).into_iter().collect();
    crush.insert_item(first.max_osd, 1 << 16, "osd.60", &at).unwrap();
    crush.rebuild_shadows().unwrap();
    let mut i = inc(&first);
    (i.crush, i.new_max_osd) = (crush.encode_blob(CANONICAL), first.max_osd + 1);
    let grown = with(&first, &i);
    assert!(record.bring_back(&grown, &mut inc(&grown)).unwrap_err().contains("osd.60"));
}

#[test]
fn changes_without_a_way_back_are_refused() {
    let map = dressed(sixty());
    let why = |i: &Incremental| Undo::of(&map, i).unwrap_err();
    assert!(why(&set_pool(&map, 1, |p| p.pg_num_target = 1024)).contains("splits"));
    assert!(why(&set_pool(&map, 1, |p| p.quota_max_bytes = 1)).contains("more of a pool"));
    let mut i = inc(&map);
    i.old_pools.insert(PoolId(1));
    assert!(why(&i).contains("removes a pool"));
    let mut i = inc(&map);
    i.new_state.insert(OsdId(1), osd_state::UP);
    assert!(why(&i).contains("state of OSDs"));
    let mut i = inc(&map);
    set_items(&map, &mut i, PgId::new(1, 1), &vec![(1, 2)]);
    assert!(why(&i).contains("upmaps"));
    let mut i = inc(&map);
    i.new_flags = 1;
    assert!(why(&i).contains("flags"));
    i.new_flags = -1;
    assert!(why(&i).contains("nothing"));
}
