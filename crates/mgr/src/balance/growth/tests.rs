//! Growth of made-up clusters, placed by the production mapping.

use super::super::tests::{all, led_by_the_third, map_of, pool, rule, sixty};
use super::super::{Limits, Spread};
use super::*;
use base::PoolId;
use base::rng::Rng;
use cluster::crush::Location;
use cluster::osdmap::{Incremental, WEIGHT_IN};
use std::collections::BTreeMap;

/// Facts by which some PGs are kept, and nothing is known of acting sets.
struct Wanted<F: Fn(PgId) -> bool>(F);

impl<F: Fn(PgId) -> bool> Facts for Wanted<F> {
    fn is_wanted(&self, pg: PgId) -> bool {
        self.0(pg)
    }
    fn holders(&self, _: PgId) -> &[OsdId] {
        &[]
    }
}

/// Facts by which all PGs are kept, with the acting sets that they report.
struct Acting(BTreeMap<PgId, Vec<OsdId>>);

impl Facts for Acting {
    fn is_wanted(&self, _: PgId) -> bool {
        true
    }
    fn holders(&self, pg: PgId) -> &[OsdId] {
        self.0.get(&pg).map_or(&[], |v| v)
    }
}

/// The map with one more OSD in a host, in a new one if there is no host of that number.
fn grown(map: &OsdMap, host: usize, weight: u32) -> OsdMap {
    let n = map.max_osd;
    let mut crush = (*map.crush).clone();
    let loc = [("root", "default".to_owned()), ("rack", format!("r{}", host / 4)), ("host", format!("h{host}"))];
    let loc: Location = loc.map(|(k, v)| (k.to_owned(), v)).into();
    crush.insert_item(n, weight, &format!("osd.{n}"), &loc).unwrap();
    crush.set_device_class(n, if n % 2 == 0 { "ssd" } else { "hdd" }).unwrap();
    crush.rebuild_shadows().unwrap();
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    inc.new_max_osd = n + 1;
    let mut after = map.apply(&inc).unwrap();
    after.crush = Arc::new(crush);
    let (state, weights) = (Arc::make_mut(&mut after.osd_state), Arc::make_mut(&mut after.osd_weight));
    state[n as usize] = osd_state::EXISTS | osd_state::UP;
    weights[n as usize] = WEIGHT_IN;
    after
}

fn with(map: &OsdMap, items: &[(PgId, Items)]) -> OsdMap {
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (pg, i) in items {
        if i.is_empty() {
            inc.old_pg_upmap_items.insert(*pg);
        } else {
            inc.new_pg_upmap_items.insert(*pg, i.clone());
        }
    }
    map.apply(&inc).unwrap()
}

/// The OSDs of each PG of pools with copies in order of their ids, of coded ones by shard.
fn places(map: &OsdMap) -> BTreeMap<PgId, Vec<OsdId>> {
    let pgs = map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| (PgId { pool: *id, seed }, p.is_erasure())));
    pgs.map(|(pg, coded)| {
        let mut set = map.pg_to_raw_upmap(pg).to_vec();
        if !coded {
            set.sort();
        }
        (pg, set)
    })
    .collect()
}

fn whole(before: &OsdMap, after: &OsdMap) -> OsdMap {
    let mut g = Growth::default();
    g.begin(Arc::new(before.clone()));
    let items = g.step(after, usize::MAX, &Wanted(|_| true));
    assert!(!g.is_under_way());
    with(after, &items)
}

/// The map after the monitor's pass over overrides, which removes items that have lost their effect. None may be void.
fn cleaned(map: &OsdMap) -> OsdMap {
    let mut rules = RuleOsds::default();
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for pg in map.pg_upmap_items.keys() {
        map.clean_overrides(*pg, &mut rules, &mut inc);
    }
    map.apply(&inc).unwrap()
}

#[test]
fn no_pg_moves_when_osds_join_and_the_balancer_ends_even() {
    let mut map = sixty();
    let before = places(&map);
    // Half of the balancer's items are there already, and stay in force.
    let plan = Spread::of(&map, |_, _| 0.0).plan(&map, &all(&map), limits(), &|_| false);
    map = with(&map, &plan.items.into_iter().collect::<Vec<_>>());
    assert_ne!(places(&map), before);
    let before = places(&map);
    let mut moved_by_crush = 0;
    for host in [2, 12, 12, 12, 13, 0] {
        let after = grown(&map, host, 2 << 16);
        assert!(joins(&map, &after) && !joins(&after, &after));
        moved_by_crush += places(&after).iter().filter(|(pg, set)| before[*pg] != **set).count();
        map = cleaned(&whole(&map, &after));
        let moved: Vec<_> = places(&map).into_iter().filter(|(pg, set)| before[pg] != *set).collect();
        assert!(moved.is_empty(), "with host {host}: {moved:?}");
    }
    assert!(moved_by_crush > 200, "{moved_by_crush}");
    let mut spread = Spread::of(&map, |_, _| 0.0);
    let plan = spread.plan(&map, &all(&map), limits(), &|_| false);
    let map = with(&map, &plan.items.into_iter().collect::<Vec<_>>());
    assert_eq!(places(&cleaned(&map)), places(&map));
    for p in Spread::of(&map, |_, _| 0.0).pools.values() {
        let worst = p.targets().map(|(o, _)| p.deviation(o).abs()).fold(0.0, f64::max);
        assert!(worst <= 1.1 + 1e-9, "{worst}");
    }
}

fn limits() -> Limits {
    Limits { deviation: 1.0, moves: 100_000, tries: 1 << 30 }
}

/// Random clusters that grow while the pass is under way, with PGs that operators move, and a pool that goes.
#[test]
fn only_pgs_that_others_touched_move() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let hosts: Vec<Vec<u32>> = (0..4 + rng.below(4)).map(|_| vec![1 << 16; 1 + rng.below(3) as usize]).collect();
        let mut map = map_of(&hosts);
        let coded = rule(&mut map, "coded", "host", "", true);
        pool(&mut map, 1, 3, 16 + rng.below(32) as u32, 0);
        pool(&mut map, 2, 4, 16, coded);
        pool(&mut map, 5, 2, 8, 0);
        let (mut g, mut touched) = (Growth::default(), Vec::new());
        let start = places(&map);
        let mut gone = None;
        for turn in 0..30 {
            if turn < 20 && rng.below(4) == 0 {
                let after = grown(&map, rng.below(hosts.len() as u64 + 2) as usize, 1 << 16);
                g.begin(Arc::new(map));
                map = after;
            }
            if turn == 12 {
                let id = PoolId([1, 2, 5][rng.below(3) as usize]);
                let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
                inc.old_pools.insert(id);
                map = map.apply(&inc).unwrap();
                gone = Some(id);
            }
            if rng.below(6) == 0 {
                let pg = PgId { pool: PoolId(1), seed: rng.below(16) as u32 };
                let from = map.pg_to_raw(pg).0.first().copied();
                let to = map.osds().find(|o| !map.pg_to_raw_upmap(pg).contains(o) && !map.pg_to_raw(pg).0.contains(o));
                if let Some((from, to)) = from.zip(to) {
                    map = with(&map, &[(pg, vec![(from, to)])]);
                    touched.push(pg);
                }
            }
            let items = g.step(&map, 1 + rng.below(30) as usize, &Wanted(|_| true));
            map = with(&map, &items);
        }
        let items = g.step(&map, usize::MAX, &Wanted(|_| true));
        map = with(&map, &items);
        let now = places(&map);
        let stays = |pg: &PgId| !touched.contains(pg) && Some(pg.pool) != gone;
        let moved: Vec<_> = start.iter().filter(|(pg, set)| stays(pg) && now.get(*pg) != Some(*set)).collect();
        // Of coded PGs those move in which shards would have to change places, which items cannot do.
        assert!(moved.iter().all(|(pg, _)| pg.pool == PoolId(2)), "seed {seed}: {moved:?}");
        assert!(moved.len() <= 8, "seed {seed}: {} of 16", moved.len());
    }
}

#[test]
fn pgs_that_nobody_wants_kept_and_other_changes_of_the_pool_move() {
    let map = sixty();
    let after = grown(&map, 12, 8 << 16);
    let mut g = Growth::default();
    g.begin(Arc::new(map.clone()));
    let items = g.step(&after, usize::MAX, &Wanted(|pg: PgId| pg.pool == PoolId(3)));
    assert!(!items.is_empty() && items.iter().all(|(pg, _)| pg.pool == PoolId(3)));
    // The pool gets another number of copies in the same change.
    let mut changed = after.clone();
    let mut inc = Incremental::new(map.fsid, changed.epoch.next(), map.modified);
    inc.new_pools.insert(PoolId(3), PgPool { size: 2, ..PgPool::clone(changed.pool(PoolId(3)).unwrap()) });
    changed = changed.apply(&inc).unwrap();
    g.begin(Arc::new(map));
    assert!(g.step(&changed, usize::MAX, &Wanted(|pg: PgId| pg.pool == PoolId(3))).is_empty());
}

/// The map with another CRUSH map.
fn placed(map: &OsdMap, change: impl Fn(&mut cluster::crush::CrushMap)) -> OsdMap {
    let mut crush = (*map.crush).clone();
    change(&mut crush);
    crush.rebuild_shadows().unwrap();
    OsdMap { crush: Arc::new(crush), ..map.clone() }
}

fn at(root: &str, rack: &str, host: &str) -> Location {
    [("root", root), ("rack", rack), ("host", host)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

#[test]
fn osds_join_that_were_in_the_crush_map_without_weight_or_elsewhere() {
    let map = sixty();
    let n = map.max_osd;
    // As operators prepare a host: without weight, or under a root of its own.
    for (root, weight) in [("default", 0), ("staging", 1 << 16)] {
        let mut waiting = grown(&map, 12, 1 << 16);
        waiting = placed(&waiting, |c| {
            if c.id_of(root).is_none() {
                c.add_bucket(root, "root").unwrap();
            }
            c.remove_item(n).unwrap();
            c.insert_item(n, weight, &format!("osd.{n}"), &at(root, &format!("{root}-rack"), "waits")).unwrap();
        });
        assert!(!joins(&map, &waiting), "{root} {weight}: nothing goes there");
        let before = places(&waiting);
        let after = placed(&waiting, |c| {
            c.remove_item(n).unwrap();
            c.insert_item(n, 4 << 16, &format!("osd.{n}"), &at("default", "r3", "new")).unwrap();
        });
        assert!(joins(&waiting, &after), "{root} {weight}");
        assert_ne!(places(&after), before);
        assert_eq!(places(&cleaned(&whole(&waiting, &after))), before, "{root} {weight}");
    }
    // More weight for an OSD that takes part already is no growth, and neither is a move among racks.
    let heavier = placed(&map, |c| {
        c.remove_item(0).unwrap();
        c.insert_item(0, 9 << 16, "osd.0", &at("default", "r1", "elsewhere")).unwrap();
        c.set_device_class(0, "ssd").unwrap();
    });
    assert!(!joins(&map, &heavier));
}

#[test]
fn an_osd_that_comes_back_in_does_not_join() {
    let map = sixty();
    let mut out = map.clone();
    Arc::make_mut(&mut out.osd_weight)[3] = 0;
    assert!(!joins(&map, &out) && !joins(&out, &map));
    // It was made and never was in.
    Arc::make_mut(&mut out.osd_state)[3] |= osd_state::NEW;
    assert!(joins(&out, &map));
}

#[test]
fn many_empty_osds_fill_where_each_domain_has_a_copy_of_every_pg() {
    // Three racks with copies in each: an OSD of one rack can give nothing to those of the others.
    let mut map = map_of(&vec![vec![0x1_0000; 4]; 12]);
    let racks = rule(&mut map, "racks", "rack", "", false);
    pool(&mut map, 1, 3, 2048, racks);
    let mut after = map.clone();
    for host in 0..12 {
        for _ in 0..15 {
            after = grown(&after, host, 0x1_0000);
        }
    }
    let mut map = whole(&map, &after);
    let few = Limits { deviation: 5.0, moves: 10, tries: 20_000 };
    for _ in 0..20 {
        let plan = Spread::of(&map, |_, _| 1.0).plan(&map, &all(&map), few, &|_| false);
        assert_eq!(plan.moves.len(), 10);
        assert!(!plan.is_cut());
        map = with(&map, &plan.items.into_iter().collect::<Vec<_>>());
    }
    // One that has no time to find a move does not say that there is none.
    let plan = Spread::of(&map, |_, _| 1.0).plan(&map, &all(&map), Limits { tries: 3, ..few }, &|_| false);
    assert!(plan.moves.is_empty() && plan.is_cut());
}

#[test]
fn an_osd_that_comes_back_gets_its_pgs_again() {
    let map = sixty();
    let weighed = |weight| {
        let mut crush = (*map.crush).clone();
        crush.reweight_item(7, weight).unwrap();
        crush.rebuild_shadows().unwrap();
        let mut m = map.clone();
        m.crush = Arc::new(crush);
        m
    };
    let without = weighed(0);
    let pgs: Vec<PgId> = places(&map).into_keys().collect();
    let at = |m: &OsdMap| -> BTreeMap<_, _> { pgs.iter().map(|pg| (*pg, m.pg_to_raw_upmap(*pg).to_vec())).collect() };
    let moved = pgs.iter().filter(|pg| at(&map)[pg] != at(&without)[pg]).count();
    assert!(moved > 0 && joins(&without, &map));
    let step = |before: &OsdMap, facts: &Acting| {
        let mut g = Growth::default();
        g.begin(Arc::new(before.clone()));
        g.step(&map, usize::MAX, facts)
    };
    let unknown = Acting(BTreeMap::new());
    assert!(!step(&without, &unknown).is_empty(), "an OSD without data");
    // The PGs report the sets that they had.
    assert!(step(&without, &Acting(at(&map))).is_empty());
    // They serve from the OSDs that they had while they move.
    let mut moving = without.clone();
    moving.pg_temp = at(&map).into_iter().filter(|(pg, set)| at(&without)[pg] != *set).collect();
    assert!(step(&moving, &unknown).is_empty());
    // They have moved.
    assert!(!step(&without, &Acting(at(&without))).is_empty());
}

#[test]
fn chosen_primaries_lead_on_when_an_osd_joins() {
    let map = sixty();
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), usize::MAX, usize::MAX);
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (pg, lead) in &plan.leads {
        inc.new_pg_upmap_primary.insert(*pg, lead.after.unwrap());
    }
    let before = map.apply(&inc).unwrap();
    assert!(before.pg_upmap_primaries.len() > 20);
    let after = whole(&before, &grown(&before, 3, 0x1_0000));
    assert_eq!(places(&after), places(&before), "no PG moves");
    let mut replaced = 0;
    for (pg, o) in before.pg_upmap_primaries.iter() {
        assert_eq!((after.void_primary(*pg), after.pg_to_up(*pg).1), (None, *o), "{pg}");
        replaced += after.pg_upmap_items.get(pg).map_or(0, Vec::len);
    }
    assert!(replaced > 0);
}

#[test]
fn held_pgs_with_chosen_primaries_are_let_go() {
    let before = led_by_the_third(&sixty());
    let after = cleaned(&whole(&before, &grown(&before, 12, 4 << 16)));
    assert_eq!(places(&after), places(&before), "no PG moves");
    let plan = Spread::of(&after, |_, _| 0.0).plan(&after, &all(&after), limits(), &|_| false);
    let has = |pg: &PgId| after.pg_upmap_items.get(pg).map_or(0, Vec::len);
    let led: Vec<_> = plan.items.iter().filter(|(pg, _)| after.pg_upmap_primaries.contains_key(pg)).collect();
    assert!(led.iter().all(|(pg, items)| items.len() <= has(pg) + 1), "{led:?}");
    let gone = led.iter().filter(|(pg, items)| items.is_empty() && has(pg) > 0).count();
    assert!(gone > 0, "{} PGs", led.len());
}
