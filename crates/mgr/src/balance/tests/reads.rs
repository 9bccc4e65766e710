//! Chosen primaries of made-up clusters, placed by the production mapping.

use super::*;
use cluster::osdmap::AFFINITY_DEFAULT;

fn with_leads(map: &OsdMap, plan: &Plan) -> OsdMap {
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (pg, lead) in &plan.leads {
        assert_eq!(map.pg_upmap_primaries.get(pg).copied(), lead.before);
        match lead.after {
            Some(o) => _ = inc.new_pg_upmap_primary.insert(*pg, o),
            None => _ = inc.old_pg_upmap_primary.insert(*pg),
        }
    }
    map.apply(&inc).unwrap()
}

/// Two replicated pools and a coded one on 24 OSDs.
fn three_pools() -> OsdMap {
    let hosts: Vec<Vec<u32>> = (0..8).map(|h| (0..3).map(|o| TIB << ((h + o) % 2)).collect()).collect();
    let mut map = map_of(&hosts);
    let coded = rule(&mut map, "coded", "host", "", true);
    let fast = rule(&mut map, "fast", "host", "ssd", false);
    pool(&mut map, 1, 3, 256, 0);
    pool(&mut map, 2, 6, 128, coded);
    pool(&mut map, 3, 2, 64, fast);
    map
}

/// The largest distance of an OSD from the leads that it should have, and the fewest PGs that have to change.
fn distance(map: &OsdMap, id: i64) -> (f64, usize) {
    let s = Spread::of(map, |_, _| 0.0);
    let leads = s.pools[&PoolId(id)].leads(map);
    let far = leads.values().map(|(has, wants)| (has - wants).abs()).fold(0.0, f64::max);
    let least = leads.values().map(|(has, wants)| (has - wants.ceil()).max(0.0) as usize).sum();
    (far, least)
}

/// Checks that entries have an effect and lead.
fn entries_lead(map: &OsdMap) {
    for (pg, o) in map.pg_upmap_primaries.iter() {
        assert!(map.void_primary(*pg).is_none(), "{pg}");
        assert_eq!(map.pg_to_up(*pg).1, *o, "{pg}");
    }
}

#[test]
fn primaries_of_three_pools_end_even() {
    let map = three_pools();
    let least: usize = [1, 3].iter().map(|p| distance(&map, *p).1).sum();
    let before = [1, 3].map(|p| distance(&map, p).0);
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), usize::MAX, usize::MAX);
    let after = with_leads(&map, &plan);
    entries_lead(&after);
    assert!(before[0] > 2.0, "{before:?}");
    for p in [1, 3] {
        assert!(distance(&after, p).0 <= 1.0, "pool {p}: {:?}", distance(&after, p));
    }
    // Chains cost more than one change; half again as many is the most.
    assert!(plan.leads.len() >= least && plan.leads.len() * 2 <= least * 3 + 8, "{} for {least}", plan.leads.len());
    assert!(plan.leads.keys().all(|pg| pg.pool != PoolId(2)));
    let again = Spread::of(&after, |_, _| 0.0).plan_reads(&after, &all(&after), usize::MAX, usize::MAX);
    assert_eq!(again.leads, BTreeMap::new(), "an even cluster stays");
}

#[test]
fn the_score_is_one_where_osds_of_one_size_lead_alike() {
    let mut map = map_of(&vec![vec![TIB; 3]; 8]);
    let coded = rule(&mut map, "coded", "host", "", true);
    pool(&mut map, 1, 3, 240, 0);
    pool(&mut map, 2, 6, 128, coded);
    // First each OSD gets as many PGs as the others, or nearly.
    let shards = Spread::of(&map, |_, _| 0.0).plan(&map, &all(&map), DEEP, &|_| false);
    let map = applied(&map, &shards);
    let score = |m: &OsdMap, p| Spread::of(m, |_, _| 0.0).read_score(m, PoolId(p)).map(|s| s.score);
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), usize::MAX, usize::MAX);
    let after = with_leads(&map, &plan);
    let (was, is) = (score(&map, 1).unwrap(), score(&after, 1).unwrap());
    // One may lead eleven, where ten are the mean.
    assert!(was > 1.2 && (1.0..=1.11).contains(&is), "{was} {is}");
    assert_eq!(score(&map, 2), None);
}

#[test]
fn a_plan_keeps_to_its_limits_and_plans_add_up() {
    let mut map = three_pools();
    let mut plans = 0;
    loop {
        let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), 10, 20_000);
        assert!(plan.leads.len() <= 10 && !plan.is_cut());
        if plan.leads.is_empty() {
            break;
        }
        map = with_leads(&map, &plan);
        entries_lead(&map);
        plans += 1;
        assert!(plans < 100, "plans end");
    }
    for p in [1, 3] {
        assert!(distance(&map, p).0 <= 1.0);
    }
    let cut = Spread::of(&three_pools(), |_, _| 0.0).plan_reads(&three_pools(), &all(&map), 1000, 5);
    assert!(cut.is_cut());
}

#[test]
fn affinity_is_kept() {
    let mut map = three_pools();
    let mut affinity = vec![AFFINITY_DEFAULT; 24];
    affinity[0] = 0;
    affinity[1] = AFFINITY_DEFAULT / 2;
    map.primary_affinity = Some(Arc::new(affinity));
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), usize::MAX, usize::MAX);
    let after = with_leads(&map, &plan);
    entries_lead(&after);
    assert!(plan.leads.values().all(|l| l.after != Some(OsdId(0))));
    let leads = Spread::of(&after, |_, _| 0.0).pools[&PoolId(1)].leads(&after);
    assert_eq!(leads[&OsdId(0)], (0.0, 0.0));
    let (has, wants) = leads[&OsdId(1)];
    assert!((has - wants).abs() <= 2.0, "{has} {wants}");
}

#[test]
fn entries_go_when_they_are_no_longer_needed() {
    let mut map = three_pools();
    // An operator gives OSD 5 all that it can lead.
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for pg in map.pgs_of(PoolId(1)) {
        let set = map.pg_to_raw_upmap(pg);
        if set.contains(&OsdId(5)) && set[0] != OsdId(5) {
            inc.new_pg_upmap_primary.insert(pg, OsdId(5));
        }
    }
    let given = inc.new_pg_upmap_primary.len();
    map = map.apply(&inc).unwrap();
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &[PoolId(1)].into(), usize::MAX, usize::MAX);
    let gone = plan.leads.values().filter(|l| l.after.is_none()).count();
    assert!(gone * 3 > given, "{gone} of {given}");
    let after = with_leads(&map, &plan);
    entries_lead(&after);
    assert!(distance(&after, 1).0 <= 1.0);
}

#[test]
fn down_osds_lead_nothing_and_get_nothing() {
    let mut map = three_pools();
    let mut state = (*map.osd_state).clone();
    state[4] = osd_state::EXISTS;
    map.osd_state = Arc::new(state);
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), usize::MAX, usize::MAX);
    assert!(!plan.leads.is_empty() && plan.leads.values().all(|l| l.after != Some(OsdId(4))));
    entries_lead(&with_leads(&map, &plan));
}

/// A map with another plan carried out for one pool only.
fn evened(map: &OsdMap, id: i64) -> OsdMap {
    let spread = Spread::of(map, |_, _| 0.0);
    with_leads(map, &spread.plan_reads(map, &[PoolId(id)].into(), usize::MAX, usize::MAX))
}

#[test]
fn an_even_pool_leaves_the_others_their_tries() {
    let mut map = map_of(&vec![vec![TIB]; 40]);
    pool(&mut map, 1, 3, 1024, 0);
    pool(&mut map, 2, 3, 1024, 0);
    map = evened(&map, 1);
    assert!(distance(&map, 1).0 <= 1.0 && distance(&map, 2).0 > 2.0);
    let mut plans = 0;
    loop {
        let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), 10, 20_000);
        assert!(!plan.is_cut(), "plan {plans}");
        if plan.leads.is_empty() {
            break;
        }
        map = with_leads(&map, &plan);
        plans += 1;
        assert!(plans < 100, "plans end");
    }
    assert!((1..=2).all(|p| distance(&map, p).0 <= 1.0), "{:?}", distance(&map, 2));
}

/// A pool of which no PG can pass: its OSDs want to lead, and the PGs are not where they were placed.
#[test]
fn a_pool_that_cannot_be_evened_leaves_the_others_their_tries() {
    let mut map = map_of(&vec![vec![TIB]; 40]);
    pool(&mut map, 1, 3, 1024, 0);
    pool(&mut map, 2, 3, 256, 0);
    let mut spread = Spread::of(&map, |_, _| 0.0);
    spread.pools.get_mut(&PoolId(1)).unwrap().sets.iter_mut().for_each(|s| s.rotate_left(1));
    let plan = spread.plan_reads(&map, &all(&map), 10, 1000);
    assert!(plan.is_cut(), "pool 1 uses up its tries");
    assert_eq!(plan.leads.len(), 10);
    assert!(plan.leads.keys().all(|pg| pg.pool == PoolId(2)));
}

#[test]
fn a_plan_of_many_osds_makes_its_changes() {
    let mut map = map_of(&vec![vec![TIB; 10]; 30]);
    pool(&mut map, 1, 3, 4096, 0);
    let plan = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), 10, 20_000);
    assert_eq!((plan.leads.len(), plan.is_cut()), (10, false));
    let one = Spread::of(&map, |_, _| 0.0).plan_reads(&map, &all(&map), 1, 20_000);
    assert_eq!(one.leads.len(), 1);
}

#[test]
fn one_pg_on_many_osds_has_a_score() {
    let mut map = map_of(&vec![vec![TIB; 25]; 28]);
    pool(&mut map, 1, 3, 1, 0);
    let score = Spread::of(&map, |_, _| 0.0).read_score(&map, PoolId(1)).unwrap();
    assert_eq!((score.score, score.raw, score.optimal), (700.0, 3.0, 0.0));
}
