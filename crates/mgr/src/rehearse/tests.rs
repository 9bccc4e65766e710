//! Rehearsals on made-up clusters, compared with a slow model of what moves.

use super::*;
use crate::balance::tests::{map_of, pool, rule, sixty};
use base::rng::Rng;
use cluster::osdmap::osd_state;
use cluster::pool::{pg_mask, stable_mod};
use cluster::{Incremental, PgPool};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Every PG is clean and has `bytes`; every OSD has 100 GiB, a tenth of it in use.
pub(super) fn facts(map: &OsdMap, bytes: impl Fn(PgId) -> u64) -> Facts {
    let pgs = map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed }));
    let pg = |pg| PgFacts { bytes: bytes(pg), holders: map.pg_to_up(pg).0.to_vec(), active: true };
    Facts {
        pgs: pgs.map(|id| (id, pg(id))).collect(),
        osds: map.osds().map(|o| (o, OsdFacts { total: 100 << 30, used: 10 << 30 })).collect(),
        overhead: 1.0,
        rate: Rate::Given(100 * MIB),
        hold: None,
    }
}

pub(super) fn inc(map: &OsdMap) -> Incremental {
    Incremental::new(map.fsid, map.epoch.next(), map.modified)
}

pub(super) fn set_pool(map: &OsdMap, id: i64, f: impl FnOnce(&mut PgPool)) -> Incremental {
    let mut p = PgPool::clone(map.pool(PoolId(id)).unwrap());
    f(&mut p);
    let mut i = inc(map);
    i.new_pools.insert(PoolId(id), p);
    i
}

pub(super) fn with(map: &OsdMap, i: &Incremental) -> OsdMap {
    map.apply(i).unwrap()
}

/// Sizes, minimal sizes and targets as in a real map.
pub(super) fn dressed(map: OsdMap) -> OsdMap {
    let mut i = inc(&map);
    for (id, p) in map.pools.iter() {
        let mut p = PgPool::clone(p);
        p.min_size = if p.is_erasure() { p.size - 1 } else { p.size.div_ceil(2) };
        (p.pg_num_target, p.pgp_num_target) = (p.pg_num, p.pgp_num);
        p.erasure_code_profile = if p.is_erasure() { "code".into() } else { String::new() };
        i.new_pools.insert(*id, p);
    }
    i.new_erasure_code_profiles
        .insert("code".into(), [("k", "4"), ("m", "2")].map(|(k, v)| (k.into(), v.into())).into());
    (i.new_full_ratio, i.new_backfillfull_ratio, i.new_nearfull_ratio) = (0.95, 0.9, 0.85);
    with(&map, &i)
}

fn run(map: &OsdMap, change: &Incremental, f: &Facts) -> (Settled, Report) {
    let settled = settle(&Arc::new(map.clone()), change, f).unwrap();
    let report = rehearse(map, &settled, f);
    (settled, report)
}

/// Bytes that each OSD has to receive, and the PGs that move, from the sets of both maps alone.
fn model(before: &OsdMap, after: &OsdMap, bytes: &dyn Fn(PgId) -> u64) -> (BTreeMap<OsdId, f64>, BTreeSet<PgId>) {
    let (mut all, mut moved) = (BTreeMap::new(), BTreeSet::new());
    for (id, p) in before.pools.iter() {
        let q = after.pool(*id).unwrap();
        let k = if p.is_erasure() { 4.0 } else { 1.0 };
        let most = p.pg_num.max(q.pg_num);
        for seed in 0..most {
            let at = |n: u32| PgId { pool: *id, seed: stable_mod(seed, n, pg_mask(n)) };
            let (src, dst) = (at(p.pg_num), at(q.pg_num));
            let pieces = (0..most).filter(|s| stable_mod(*s, p.pg_num, pg_mask(p.pg_num)) == src.seed).count();
            let (had, wants) = (before.pg_to_up(src).0, after.pg_to_up(dst).0);
            for (i, o) in wants.iter().enumerate().filter(|(_, o)| **o != OsdId::NONE) {
                if p.is_erasure() && had.get(i) == Some(o) || !p.is_erasure() && had.contains(o) {
                    continue;
                }
                *all.entry(*o).or_default() += bytes(src) as f64 / k / pieces as f64;
                moved.insert(dst);
            }
        }
    }
    (all, moved)
}

fn is_as_the_model(map: &OsdMap, after: &OsdMap, r: &Report, bytes: &dyn Fn(PgId) -> u64) {
    let (all, moved) = model(map, after, bytes);
    assert_eq!(r.pgs_moved, moved.len() as u64);
    let sum: f64 = all.values().sum();
    assert!((r.bytes as f64 - sum).abs() < 1.0, "{} {sum}", r.bytes);
    for (o, b) in &all {
        let got = r.osds.get(o).map_or(0.0, |m| m.bytes_in);
        assert!((got - b).abs() < 1.0, "{o}: {got} {b}");
    }
    let received: f64 = r.osds.values().map(|m| m.bytes_in).sum();
    assert!((received - sum).abs() < 1.0);
}

pub(super) fn sizes(pg: PgId) -> u64 {
    (u64::from(pg.seed) * 7919 % 97 + 1) * MIB * pg.pool.0 as u64
}

#[test]
fn an_osd_that_goes_out_empties_itself_without_danger() {
    let map = dressed(sixty());
    let f = facts(&map, sizes);
    let mut i = inc(&map);
    i.new_weight.insert(OsdId(7), 0);
    let (settled, r) = run(&map, &i, &f);
    is_as_the_model(&map, &settled.map, &r, &sizes);
    assert_eq!(r.verdict(), Verdict::Safe, "{r}");
    assert!(r.osds[&OsdId(7)].pgs_out > 20 && r.osds[&OsdId(7)].bytes_in == 0.0);
    assert!((r.osds[&OsdId(7)].after(1.0) - 0.1).abs() < 0.1 && r.osds[&OsdId(7)].bytes_out > 0.0);
    assert_eq!(r.seconds, r.bytes as f64 / (100 * MIB) as f64);
    assert!(r.low.is_empty() && r.stopped.is_empty() && r.lost.is_empty() && r.under_way == 0);
    assert!(r.to_string().ends_with("\nsafe"), "{r}");
    assert_eq!(r.to_json()["verdict"], "safe");
}

#[test]
fn random_changes_move_what_the_model_says() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let hosts: Vec<Vec<u32>> = (0..13).map(|_| (0..5).map(|_| 1 << (15 + rng.below(3))).collect()).collect();
        let mut map = map_of(&hosts);
        let coded = rule(&mut map, "coded", "host", "", true);
        pool(&mut map, 1, 3, 32 + rng.below(100) as u32, 0);
        pool(&mut map, 2, 6, 32, coded);
        let map = dressed(map);
        let f = facts(&map, sizes);
        let some = OsdId(rng.below(65) as i32);
        let change = match seed % 6 {
            0 => {
                let mut i = inc(&map);
                i.new_weight.insert(some, rng.below(0x1_0000) as u32);
                i
            }
            1 => {
                let mut i = inc(&map);
                let mut crush = (*map.crush).clone();
                crush.reweight_item(some.0, rng.below(0x4_0000) as u32).unwrap();
                i.crush = crush.encode_blob(cluster::osdmap::CANONICAL);
                i
            }
            2 => set_pool(&map, 1, |p| {
                p.pg_num_target = 1 + rng.below(300) as u32;
                p.pgp_num_target = p.pg_num_target;
            }),
            3 => set_pool(&map, 2, |p| (p.pg_num_target, p.pgp_num_target) = (64, 40)),
            4 => set_pool(&map, 1, |p| p.size = 4),
            _ => hosts_like(&map, "h3", 1 + rng.below(3) as usize).unwrap().change,
        };
        let (settled, r) = run(&map, &change, &f);
        is_as_the_model(&map, &settled.map, &r, &sizes);
    }
}

#[test]
fn new_hosts_are_held_and_filled_later() {
    let map = dressed(sixty());
    let mut f = facts(&map, sizes);
    let g = hosts_like(&map, "h2", 2).unwrap();
    assert_eq!((g.hosts.clone(), g.osds.len()), (vec!["h2-new1".to_owned(), "h2-new2".to_owned()], 10));
    for (new, like) in &g.osds {
        f.osds.insert(*new, OsdFacts { used: 0, ..f.osds[like] });
    }
    let (free, at_once) = run(&map, &g.change, &f);
    assert!(at_once.bytes > 0 && at_once.held.is_none() && free.held == 0);
    for (new, like) in &g.osds {
        assert_eq!(free.map.crush.class_of(new.0), map.crush.class_of(like.0));
        assert_eq!(free.map.crush.item_weight(new.0), map.crush.item_weight(like.0));
        assert!(free.map.is_up(*new) && at_once.osds[new].bytes_in > 0.0, "{new}");
    }
    f.hold = Some(Hold { pools: BTreeSet::new(), at_once: 0.05 });
    let (held, r) = run(&map, &g.change, &f);
    let (n, later) = r.held.unwrap();
    assert!(n > 100 && n == held.held && r.bytes < at_once.bytes / 10, "{n} {}", r.bytes);
    assert_eq!(r.bytes + later, at_once.bytes);
    assert!(r.to_string().contains("the balancer moves"), "{r}");
    assert!(hosts_like(&map, "default", 1).is_err() && hosts_like(&map, "none", 1).is_err());
    assert!(hosts_like(&map, "h2", 0).is_err() && hosts_like(&map, "h2", 100_000).is_err());
}

#[test]
fn danger_is_named() {
    let map = dressed(sixty());
    let f = facts(&map, sizes);
    // Two OSDs with a PG of three copies in common go down: one copy is left, and min_size is 2.
    let pg = PgId::new(1, 0);
    let up = map.pg_to_up(pg).0;
    let mut i = inc(&map);
    i.new_state.insert(up[0], osd_state::UP);
    let (_, r) = run(&map, &i, &f);
    assert!(r.low.contains(&pg) && r.stopped.is_empty() && r.verdict() == Verdict::Risky, "{r}");
    i.new_state.insert(up[1], osd_state::UP);
    let (_, r) = run(&map, &i, &f);
    assert!(r.stopped.contains(&pg) && r.verdict() == Verdict::Refused, "{r}");
    i.new_state.insert(up[2], osd_state::UP);
    let (_, r) = run(&map, &i, &f);
    assert!(r.lost.contains(&pg) && r.to_string().contains("last readable"), "{r}");
}

#[test]
fn copies_that_are_not_there_yet_do_not_serve() {
    let map = dressed(sixty());
    let f = facts(&map, sizes);
    // With size 3 and min_size 3 the two copies are too few until the third is made.
    let two = with(&map, &set_pool(&map, 1, |p| (p.size, p.min_size) = (2, 1)));
    let f2 = facts(&two, sizes);
    let (_, r) = run(&two, &set_pool(&two, 1, |p| (p.size, p.min_size) = (3, 3)), &f2);
    assert_eq!((r.stopped.len(), r.verdict()), (512, Verdict::Refused));
    let (_, r) = run(&two, &set_pool(&two, 1, |p| (p.size, p.min_size) = (3, 2)), &f2);
    assert_eq!((r.low.len(), r.stopped.len(), r.verdict()), (512, 0, Verdict::Risky));
    assert_eq!(r.pgs_moved, 512);
    // Fewer copies are removed at once.
    let (_, r) = run(&map, &set_pool(&map, 1, |p| p.size = 2), &f);
    assert_eq!((r.bytes, r.low.len()), (0, 512));
    assert!(r.osds.values().map(|m| m.bytes_out).sum::<f64>() > 0.0);
    // What is under way already is told apart.
    let mut late = facts(&map, sizes);
    let pg = PgId::new(1, 3);
    let lacks = map.pg_to_up(pg).0[2];
    late.pgs.get_mut(&pg).unwrap().holders.retain(|o| *o != lacks);
    let (_, r) = run(&map, &inc(&map), &late);
    assert_eq!((r.bytes, r.under_way, r.pgs_moved), (sizes(pg), sizes(pg), 0));
    // A copy that is taken off such a PG is its last but one.
    let mut i = inc(&map);
    i.new_state.insert(map.pg_to_up(pg).0[0], osd_state::UP);
    let (_, r) = run(&map, &i, &late);
    assert!(r.stopped.contains(&pg), "{r}");
}

#[test]
fn space_is_judged_at_the_peak_and_in_the_end() {
    let map = dressed(sixty());
    let mut f = facts(&map, sizes);
    let mut i = inc(&map);
    i.new_weight.insert(OsdId(7), 0);
    let (_, r) = run(&map, &i, &f);
    let (o, most) = r.osds.iter().max_by(|a, b| a.1.bytes_in.total_cmp(&b.1.bytes_in)).map(|(o, m)| (*o, *m)).unwrap();
    let mut at = |used: f64| {
        let total = 100u64 << 30;
        f.osds.insert(o, OsdFacts { total, used: (total as f64 * used - most.bytes_in) as u64 });
        run(&map, &i, &f).1
    };
    assert_eq!(at(0.84).verdict(), Verdict::Safe);
    let r = at(0.86);
    assert!(r.verdict() == Verdict::Risky && r.to_string().contains("nearfull_ratio"), "{r}");
    let r = at(0.91);
    assert!(r.verdict() == Verdict::Risky && r.to_string().contains("backfillfull_ratio"), "{r}");
    let r = at(0.96);
    assert!(r.verdict() == Verdict::Refused && r.to_string().contains("no room"), "{r}");
    f.osds.remove(&o);
    assert!(run(&map, &i, &f).1.to_string().contains("is not known"));
    // Stores that need twice the bytes of objects fill twice as fast.
    let mut f = facts(&map, sizes);
    f.overhead = 2.0;
    let twice = run(&map, &i, &f).1;
    let m = twice.osds[&o];
    assert!((m.peak(2.0) - m.now() - 2.0 * m.bytes_in / (100u64 << 30) as f64).abs() < 1e-9);
    assert_eq!(
        [overhead(10, 0.0, 1), overhead(30, 10.0, 1000), overhead(90, 10.0, 10), overhead(1, 1.0, 9999)],
        [1.0, 3.0, 4.0, 1.0]
    );
}

#[test]
fn moves_without_end_are_named() {
    let mut map = map_of(&[vec![1 << 16; 2], vec![1 << 16; 2], vec![1 << 16; 2]]);
    pool(&mut map, 1, 3, 64, 0);
    let map = dressed(map);
    let mut f = facts(&map, sizes);
    let mut i = inc(&map);
    i.new_weight.extend([(OsdId(0), 0), (OsdId(1), 0)]);
    let (_, r) = run(&map, &i, &f);
    assert_eq!((r.unplaced.len(), r.verdict()), (64, Verdict::Risky), "{r}");
    let mut i = inc(&map);
    i.new_flags = (map.flags | cluster::osdmap::map_flag::NOBACKFILL) as i32;
    i.new_weight.insert(OsdId(0), 0);
    assert!(run(&map, &i, &f).1.to_string().contains("nobackfill"));
    f.pgs.remove(&PgId::new(1, 5));
    let (_, r) = run(&map, &inc(&map), &f);
    assert_eq!((r.unknown, r.verdict()), (1, Verdict::Risky));
    let mut i = inc(&map);
    i.old_pools.insert(PoolId(1));
    assert_eq!(run(&map, &i, &f).1.verdict(), Verdict::Refused);
}
