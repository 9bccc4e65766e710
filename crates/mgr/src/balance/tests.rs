//! Spreads of made-up clusters, placed by the production mapping; `reads` has chosen primaries.

mod reads;

use super::*;
use cluster::crush::{CrushMap, Location, RuleSpec};
use cluster::osdmap::{Incremental, WEIGHT_IN, osd_state};
use cluster::pool::{flag, kind};
use std::sync::Arc;

const TIB: u32 = 0x1_0000;
const DEEP: Limits = Limits { deviation: 1.0, moves: 100_000, tries: 1 << 30 };

fn located(host: usize, rack: usize) -> Location {
    [("root", "default".to_owned()), ("rack", format!("r{rack}")), ("host", format!("h{host}"))]
        .map(|(k, v)| (k.to_owned(), v))
        .into()
}

/// A map of hosts with OSDs of the given weights; four hosts make a rack. Odd OSDs have the class `hdd`.
pub(crate) fn map_of(hosts: &[Vec<u32>]) -> OsdMap {
    let mut crush = CrushMap::fresh("host");
    let mut n = 0;
    for (h, weights) in hosts.iter().enumerate() {
        for w in weights {
            crush.insert_item(n, *w, &format!("osd.{n}"), &located(h, h / 4)).unwrap();
            crush.set_device_class(n, if n % 2 == 0 { "ssd" } else { "hdd" }).unwrap();
            n += 1;
        }
    }
    crush.rebuild_shadows().unwrap();
    let empty = OsdMap { crush: Arc::new(crush), ..OsdMap::default() };
    let mut inc = Incremental::new(empty.fsid, empty.epoch.next(), empty.modified);
    inc.new_max_osd = n;
    let mut map = empty.apply(&inc).unwrap();
    map.osd_state = Arc::new(vec![osd_state::EXISTS | osd_state::UP; n as usize]);
    map.osd_weight = Arc::new(vec![WEIGHT_IN; n as usize]);
    map
}

pub(crate) fn rule(map: &mut OsdMap, name: &str, domain: &str, class: &str, indep: bool) -> u8 {
    let mut crush = (*map.crush).clone();
    let kind = if indep { kind::ERASURE } else { kind::REPLICATED };
    let id =
        crush.add_simple_rule(&RuleSpec { name, failure_domain: domain, class, indep, kind, ..RuleSpec::default() });
    map.crush = Arc::new(crush);
    id.unwrap() as u8
}

pub(crate) fn pool(map: &mut OsdMap, id: i64, size: u8, pg_num: u32, crush_rule: u8) {
    let kind = if map.crush.rule(crush_rule.into()).unwrap().kind == kind::ERASURE { kind::ERASURE } else { 1 };
    let p = PgPool {
        kind,
        size,
        crush_rule,
        pg_num,
        pgp_num: pg_num,
        pg_num_pending: pg_num,
        flags: flag::HASHPSPOOL,
        object_hash: 2,
        ..PgPool::default()
    };
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    inc.new_pools.insert(PoolId(id), p);
    inc.new_pool_names.insert(PoolId(id), format!("p{id}"));
    *map = map.apply(&inc).unwrap();
}

fn applied(map: &OsdMap, plan: &Plan) -> OsdMap {
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (pg, items) in &plan.items {
        if items.is_empty() {
            inc.old_pg_upmap_items.insert(*pg);
        } else {
            inc.new_pg_upmap_items.insert(*pg, items.clone());
        }
    }
    map.apply(&inc).unwrap()
}

pub(crate) fn all(map: &OsdMap) -> BTreeSet<PoolId> {
    map.pools.keys().copied().collect()
}

/// Checks that a map places as the spread says, keeps every rule and has no item without effect.
fn is_as_planned(map: &OsdMap, spread: &Spread) {
    let mut rules = RuleOsds::default();
    for (id, p) in &spread.pools {
        for seed in 0..map.pool(*id).unwrap().pg_num {
            let pg = PgId { pool: *id, seed };
            assert_eq!(map.pg_to_raw_upmap(pg).as_slice(), p.set(seed), "{pg}");
            let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
            assert_eq!(map.clean_overrides(pg, &mut rules, &mut inc), [""; 0], "{pg} has an item without effect");
        }
    }
}

fn worst(spread: &Spread, id: i64) -> f64 {
    let p = &spread.pools[&PoolId(id)];
    p.targets().map(|(o, _)| p.deviation(o).abs()).fold(0.0, f64::max)
}

/// 60 OSDs of 1, 2 and 4 TiB in 12 hosts with four pools.
pub(crate) fn sixty() -> OsdMap {
    let hosts: Vec<Vec<u32>> = (0..12).map(|h| (0..5).map(|o| TIB << ((h + o) % 3)).collect()).collect();
    let mut map = map_of(&hosts);
    let coded = rule(&mut map, "coded", "host", "", true);
    let racks = rule(&mut map, "racks", "rack", "", false);
    let fast = rule(&mut map, "fast", "host", "ssd", false);
    pool(&mut map, 1, 3, 512, 0);
    pool(&mut map, 2, 6, 512, coded);
    pool(&mut map, 3, 3, 128, racks);
    pool(&mut map, 4, 2, 64, fast);
    map
}

#[test]
fn sixty_osds_with_four_pools_end_even_in_pgs_and_bytes() {
    let map = sixty();
    // A shard of the coded pool is three times as large as one of the first pool; the others are small.
    let bytes = |id: PoolId, _: &PgPool| [0.0, 10e9, 30e9, 1e9, 0.5e9][id.0 as usize];
    let mut spread = Spread::of(&map, bytes);
    let over = |s: &Spread| s.bytes().values().map(|(n, t)| n / t - 1.0).fold(0.0, f64::max);
    let before = over(&spread);
    let plan = spread.plan(&map, &all(&map), DEEP, &|_| false);
    assert!(before > 0.1, "{before}");
    assert!(over(&spread) < 0.03, "the fullest OSD is {} above its share", over(&spread));
    for id in 1..=4 {
        assert!(worst(&spread, id) <= 1.1 + 1e-9, "pool {id} is off by {}", worst(&spread, id));
    }
    let after = applied(&map, &plan);
    is_as_planned(&after, &spread);
    // A second plan finds nothing, and one after a change of weights ends items instead of adding to them.
    let mut again = Spread::of(&after, bytes);
    assert_eq!(again.plan(&after, &all(&after), DEEP, &|_| false).moves, []);
}

#[test]
fn steps_gather_what_one_pass_does() {
    let map = sixty();
    let whole = Spread::of(&map, |_, _| 0.0);
    let mut g = Gather::default();
    let mut steps = 0;
    while !g.step(&map, 100) {
        steps += 1;
    }
    let parts = g.finish(&map, |_, _| 0.0);
    assert!(steps >= 12, "{steps} steps for {} PGs", 1216);
    for (id, p) in &whole.pools {
        assert_eq!(p.sets, parts.pools[id].sets);
        assert_eq!(p.target, parts.pools[id].target);
    }
}

#[test]
fn closed_and_down_osds_get_nothing() {
    let mut map = sixty();
    let down = OsdId(11);
    let mut state = (*map.osd_state).clone();
    state[11] = osd_state::EXISTS;
    map.osd_state = Arc::new(state);
    let closed = [OsdId(3), OsdId(4)];
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let plan = spread.plan(&map, &all(&map), DEEP, &|o| closed.contains(&o));
    assert!(!plan.moves.is_empty());
    assert!(plan.moves.iter().all(|m| m.to != down && !closed.contains(&m.to)));
}

#[test]
fn a_plan_keeps_its_limit_and_begins_with_the_pool_of_most_bytes() {
    let map = sixty();
    let mut spread = Spread::of(&map, |id, _| if id.0 == 3 { 1e12 } else { 1.0 });
    let plan = spread.plan(&map, &all(&map), Limits { moves: 7, ..DEEP }, &|_| false);
    assert_eq!(plan.moves.len(), 7);
    assert!(plan.moves.iter().all(|m| m.pg.pool.0 == 3), "{:?}", plan.moves);
}

#[test]
fn a_host_too_large_for_its_share_is_no_reason_to_move() {
    // Three hosts and three copies: each host has every PG, whatever its weight.
    let mut map = map_of(&[vec![TIB; 2], vec![TIB * 4; 2], vec![TIB * 4; 2]]);
    pool(&mut map, 1, 3, 128, 0);
    let spread = Spread::of(&map, |_, _| 0.0);
    let p = &spread.pools[&PoolId(1)];
    let of: BTreeMap<OsdId, f64> = p.targets().collect();
    assert!(of.values().all(|t| (t - 64.0).abs() < 1e-6), "{of:?}");
    // Two copies: the small host takes a ninth of the weight, the large ones what is left.
    let mut map = map_of(&[vec![TIB; 2], vec![TIB * 8; 2], vec![TIB * 8; 2]]);
    pool(&mut map, 1, 2, 170, 0);
    let spread = Spread::of(&map, |_, _| 0.0);
    let of: BTreeMap<OsdId, f64> = spread.pools[&PoolId(1)].targets().collect();
    assert!((of.values().sum::<f64>() - 340.0).abs() < 1e-6);
    assert!(of.values().all(|t| *t <= 85.0 + 1e-6), "no host has more than one shard of a PG: {of:?}");
}

#[test]
fn a_drained_osd_gives_back_what_items_gave_it() {
    let map = sixty();
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let plan = spread.plan(&map, &all(&map), DEEP, &|_| false);
    let map = applied(&map, &plan);
    let many = map.pg_upmap_items.len();
    // Half the weight of an OSD that was filled by items is taken away.
    let osd = plan.moves.iter().map(|m| m.to).max_by_key(|o| plan.moves.iter().filter(|m| m.to == *o).count()).unwrap();
    let mut weights = (*map.osd_weight).clone();
    weights[osd.0 as usize] = WEIGHT_IN / 2;
    let mut lighter = map.clone();
    lighter.osd_weight = Arc::new(weights);
    let mut spread = Spread::of(&lighter, |_, _| 1.0);
    let plan = spread.plan(&lighter, &all(&lighter), DEEP, &|_| false);
    let after = applied(&lighter, &plan);
    is_as_planned(&after, &spread);
    assert!((1..=4).all(|id| worst(&spread, id) <= 1.1 + 1e-9));
    assert!(after.pg_upmap_items.len() < many + plan.moves.len(), "items are reused");
}

#[test]
fn two_takes_of_a_rule_do_not_mix() {
    let mut map = sixty();
    let mut crush = (*map.crush).clone();
    let of = |crush: &CrushMap, class: &str| crush.id_of(&format!("default~{class}")).unwrap();
    use cluster::crush::{Rule, Step, op};
    let steps = vec![
        Step::new(op::TAKE, of(&crush, "ssd"), 0),
        Step::new(op::CHOOSELEAF_FIRSTN, 1, crush.type_id("host").unwrap()),
        Step::new(op::EMIT, 0, 0),
        Step::new(op::TAKE, of(&crush, "hdd"), 0),
        Step::new(op::CHOOSELEAF_FIRSTN, -1, crush.type_id("host").unwrap()),
        Step::new(op::EMIT, 0, 0),
    ];
    let hybrid = Rule { ruleset: 9, kind: kind::REPLICATED, min_size: 1, max_size: 10, steps };
    let hybrid = crush.add_rule("hybrid", hybrid).unwrap() as u8;
    map.crush = Arc::new(crush);
    pool(&mut map, 9, 3, 256, hybrid);
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let plan = spread.plan(&map, &[PoolId(9)].into(), DEEP, &|_| false);
    assert!(!plan.moves.is_empty());
    for m in &plan.moves {
        assert_eq!(m.from.0 % 2, m.to.0 % 2, "{m:?} is between device classes");
    }
    is_as_planned(&applied(&map, &plan), &spread);
}

/// A rule that chooses buckets of a type, and then some items of another in each.
fn two_levels(map: &mut OsdMap, first: (i32, &str), each: (i32, &str), coded: bool) -> u8 {
    use cluster::crush::{Rule, Step, op};
    let mut crush = (*map.crush).clone();
    let of = |name| crush.type_id(name).unwrap();
    let root = crush.id_of("default").unwrap();
    let (choose, leaf) =
        if coded { (op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP) } else { (op::CHOOSE_FIRSTN, op::CHOOSELEAF_FIRSTN) };
    let last = if of(each.1) == 0 { choose } else { leaf };
    let steps = vec![
        Step::new(op::TAKE, root, 0),
        Step::new(choose, first.0, of(first.1)),
        Step::new(last, each.0, of(each.1)),
        Step::new(op::EMIT, 0, 0),
    ];
    let kind = if coded { kind::ERASURE } else { kind::REPLICATED };
    let id = crush.add_rule("two", Rule { ruleset: 9, kind, min_size: 1, max_size: 20, steps }).unwrap();
    map.crush = Arc::new(crush);
    id as u8
}

/// The most shards of a PG below one bucket of a type.
fn most_in_one(map: &OsdMap, spread: &Spread, pg_num: u32, kind: &str) -> usize {
    let kind = map.crush.type_id(kind).unwrap();
    let mut rules = RuleOsds::default();
    rules.learn(&map.crush, map.pool(PoolId(1)).unwrap().crush_rule);
    let of = |seed| {
        let mut n: BTreeMap<Option<i32>, usize> = BTreeMap::new();
        for o in spread.pools[&PoolId(1)].set(seed) {
            *n.entry(rules.above(*o, kind)).or_default() += 1;
        }
        n.into_values().max().unwrap()
    };
    (0..pg_num).map(of).max().unwrap()
}

#[test]
fn no_bucket_takes_more_shards_of_a_pg_than_its_rule_gives_it() {
    let uneven: Vec<Vec<u32>> = (0..6).map(|h| vec![TIB + h * TIB / 3; 6]).collect();
    let mut map = map_of(&uneven);
    let coded = two_levels(&mut map, (4, "host"), (3, "osd"), true);
    pool(&mut map, 1, 12, 256, coded);
    let mut spread = Spread::of(&map, |_, _| 1.0);
    assert_eq!(most_in_one(&map, &spread, 256, "host"), 3);
    let plan = spread.plan(&map, &all(&map), DEEP, &|_| false);
    assert!(!plan.moves.is_empty());
    assert_eq!(most_in_one(&map, &spread, 256, "host"), 3, "three shards are what the code can lose");
    is_as_planned(&applied(&map, &plan), &spread);

    let uneven: Vec<Vec<u32>> = (0..16).map(|h| vec![TIB + (h / 4) * TIB / 2; 3]).collect();
    let mut map = map_of(&uneven);
    let copies = two_levels(&mut map, (2, "rack"), (2, "host"), false);
    pool(&mut map, 1, 4, 256, copies);
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let plan = spread.plan(&map, &all(&map), DEEP, &|_| false);
    assert!(!plan.moves.is_empty());
    assert_eq!((most_in_one(&map, &spread, 256, "rack"), most_in_one(&map, &spread, 256, "host")), (2, 1));
    is_as_planned(&applied(&map, &plan), &spread);
}

#[test]
fn items_take_effect_in_the_order_given() {
    let o = |v: &[i32]| v.iter().map(|n| OsdId(*n)).collect::<Vec<_>>();
    let pair = |a, b| (OsdId(a), OsdId(b));
    assert_eq!(items_between(&o(&[1, 2, 3]), &o(&[1, 2, 3])), Some(vec![]));
    assert_eq!(items_between(&o(&[1, 2, 3]), &o(&[1, 3, 7])), Some(vec![pair(3, 7), pair(2, 3)]));
    assert_eq!(items_between(&o(&[1, 2, 3]), &o(&[2, 1, 3])), None, "a swap has no order");
    assert_eq!(items_between(&o(&[1, 2]), &o(&[1, 2, 3])), None);
    assert_eq!(items_between(&[OsdId(1), OsdId::NONE], &o(&[2, 3])), None);
}

#[test]
fn the_score_falls_with_the_plan() {
    let map = sixty();
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let amounts = |_: PgId| (100.0, 4e8);
    let before = score(&map, &spread, &BTreeSet::new(), amounts);
    spread.plan(&map, &all(&map), DEEP, &|_| false);
    let after = score(&map, &spread, &BTreeSet::new(), amounts);
    assert!(after.score < before.score / 2.0, "{} -> {}", before.score, after.score);
    assert_eq!(after.roots.len(), 2, "the root and that of the class");
}

#[test]
fn a_plan_ends_with_its_tries() {
    let map = sixty();
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let plan = spread.plan(&map, &all(&map), Limits { tries: 100, ..DEEP }, &|_| false);
    assert!((1..100).contains(&plan.moves.len()), "{}", plan.moves.len());
}

#[test]
fn a_pg_that_moved_meanwhile_is_left_alone() {
    let map = sixty();
    let mut spread = Spread::of(&map, |_, _| 1.0);
    let first = spread.clone().plan(&map, &all(&map), Limits { moves: 1, ..DEEP }, &|_| false);
    let changed = applied(&map, &first);
    let plan = spread.plan(&changed, &all(&map), DEEP, &|_| false);
    assert!(!plan.items.contains_key(&first.moves[0].pg), "its set is no longer the one that was gathered");
}

/// An entry for the third OSD of each PG with three copies.
pub(crate) fn led_by_the_third(map: &OsdMap) -> OsdMap {
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (id, p) in map.pools.iter().filter(|(_, p)| !p.is_erasure() && p.size == 3) {
        for seed in 0..p.pg_num {
            let pg = PgId { pool: *id, seed };
            inc.new_pg_upmap_primary.insert(pg, map.pg_to_raw_upmap(pg)[2]);
        }
    }
    map.apply(&inc).unwrap()
}

#[test]
fn a_pg_with_a_chosen_primary_moves_by_one_item() {
    let map = led_by_the_third(&sixty());
    let mut spread = Spread::of(&map, |_, _| 0.0);
    let before = worst(&spread, 1);
    let plan = spread.plan(&map, &all(&map), DEEP, &|_| false);
    let after = applied(&map, &plan);
    is_as_planned(&after, &spread);
    for pg in map.pg_upmap_primaries.keys() {
        assert!(plan.items.get(pg).is_none_or(|i| i.len() == 1), "{pg}: {:?}", plan.items[pg]);
        assert!(after.void_primary(*pg).is_none(), "{pg}");
    }
    let chosen = plan.items.keys().filter(|pg| map.pg_upmap_primaries.contains_key(pg)).count();
    assert!(chosen > 20 && before > 3.0 && worst(&spread, 1) <= 1.1 + 1e-9, "{chosen} {before} {}", worst(&spread, 1));
}
