//! Do the sums follow the reports?

use super::*;
use base::id::Uuid;
use base::rng::Rng;
use cluster::PgPool;
use std::sync::Arc;
use std::time::Duration;

fn map(pools: &[(i64, u32)], osds: i32) -> OsdMap {
    let mut m = OsdMap { fsid: Uuid::ZERO, max_osd: osds, ..OsdMap::default() };
    m.osd_state = Arc::new(vec![3; osds as usize]);
    m.osd_weight = Arc::new(vec![0x1_0000; osds as usize]);
    let pools = pools.iter().map(|(id, n)| {
        let p = PgPool { kind: 1, size: 1, pg_num: *n, pgp_num: *n, ..PgPool::default() };
        (PoolId(*id), Arc::new(p))
    });
    m.pools = Arc::new(pools.collect());
    m
}

fn pg(seq: u64, bytes: i64, state: u64, osd: i32) -> PgStat {
    let mut s = PgStat { reported_seq: seq, reported_epoch: Epoch(1), ..PgStat::default() };
    s.stats.sum.num_bytes = bytes;
    s.stats.sum.num_objects = bytes / 10;
    s.up = vec![OsdId(osd)];
    s.acting = vec![OsdId(osd)];
    s.up_primary = OsdId(osd);
    s.acting_primary = OsdId(osd);
    s.set_state(state);
    s
}

fn now(s: u64) -> Now {
    Now { mono: Mono(s * 1_000_000_000), wall: Utime::from_unix(Duration::from_secs(1_000_000 + s)) }
}

const OK: u64 = pg_state::ACTIVE | pg_state::CLEAN;

#[test]
fn sums_equal_a_recount_after_random_reports() {
    let seed = 0x5eed_0001;
    let mut rng = Rng::new(seed);
    let full = map(&[(1, 8), (2, 4)], 3);
    let mut st = PgStats::default();
    for step in 0..500u64 {
        let pool = 1 + rng.below(2) as i64;
        let id = PgId::new(pool, rng.below(10) as u32);
        let mut s =
            pg(rng.below(40), rng.below(1000) as i64 * 10, [OK, pg_state::PEERING, 0][rng.below(3) as usize], 1);
        s.blocked_by = (0..rng.below(3) as i32).map(OsdId).collect();
        s.acting_primary = OsdId(rng.below(3) as i32);
        s.stats.sum.num_objects_unfound = rng.below(2) as i64;
        s.last_active.sec = rng.below(3) as u32;
        s.last_scrub_stamp.sec = rng.below(4) as u32 * 3600;
        let fs = StoreStatfs { allocated: rng.below(1000) as i64, ..StoreStatfs::default() };
        st.report(OsdId(rng.below(3) as i32), &OsdStat::default(), [(&id, &s)], [(PoolId(pool), fs)], &full, now(step));
        if rng.chance(1, 40) {
            st.forget_pool(PoolId(pool));
        }
        let mut want = PoolStat::default();
        st.pgs().for_each(|(_, s)| want.add_pg(s));
        assert_eq!(st.sum().stats, want.stats, "seed {seed:x} step {step}");
        let by_pool: i64 = [1, 2].iter().map(|p| st.pool(PoolId(*p)).stats.sum.num_bytes).sum();
        assert_eq!(by_pool, want.stats.sum.num_bytes, "seed {seed:x} step {step}");
        let mut index = Index::default();
        st.pgs.iter().for_each(|(id, s)| index.put(*id, s));
        assert!(index == st.index, "seed {seed:x} step {step}");
        let silent: Vec<PgId> = (0..8)
            .map(|n| PgId::new(1, n))
            .chain((0..4).map(|n| PgId::new(2, n)))
            .filter(|id| st.pg(*id).is_none())
            .collect();
        assert_eq!(st.silent_pgs(&full, 100), silent, "seed {seed:x} step {step}");
        let states: i64 = st.states(&full).values().sum();
        assert_eq!(states, 12, "seed {seed:x} step {step}");
        let alloc: i64 = st.statfs.values().map(|f| f.allocated).sum();
        assert_eq!(st.sum().store_stats.allocated, alloc, "seed {seed:x} step {step}");
        assert!(st.pgs().all(|(id, _)| id.seed < if id.pool.0 == 1 { 8 } else { 4 }));
    }
}

#[test]
fn an_older_report_changes_nothing() {
    let m = map(&[(1, 1)], 1);
    let mut st = PgStats::default();
    let id = PgId::new(1, 0);
    for (seq, bytes) in [(5, 100), (4, 7)] {
        st.report(OsdId(0), &OsdStat::default(), [(&id, &pg(seq, bytes, OK, 0))], [], &m, now(0));
    }
    assert_eq!(st.pool(PoolId(1)).stats.sum.num_bytes, 100);
}

#[test]
fn a_new_map_drops_pools_and_marks_stale() {
    let mut m = map(&[(1, 1), (2, 1)], 2);
    let mut st = PgStats::default();
    for (pool, osd) in [(1, 0), (2, 1)] {
        let id = PgId::new(pool, 0);
        st.report(OsdId(osd), &OsdStat { kb: 5, ..OsdStat::default() }, [(&id, &pg(1, 10, OK, osd))], [], &m, now(0));
    }
    assert_eq!(st.osd_sum().kb, 10);
    m.pools = Arc::new(m.pools.iter().filter(|(id, _)| id.0 == 2).map(|(a, b)| (*a, b.clone())).collect());
    m.osd_state = Arc::new(vec![3, 1]);
    m.osd_weight = Arc::new(vec![0, 0x1_0000]);
    st.sync(&m, now(1));
    assert_eq!(st.pgs().count(), 1);
    assert_eq!(st.states(&m), [(OK | pg_state::STALE, 1)].into());
    assert_eq!(st.osd_sum().kb, 5, "an OSD that is out counts for no space");
    // The primary is up again: its report ends the stale state even if its sequence restarted.
    m.osd_state = Arc::new(vec![3, 3]);
    st.report(OsdId(1), &OsdStat::default(), [(&PgId::new(2, 0), &pg(1, 10, OK, 1))], [], &m, now(2));
    assert_eq!(st.states(&m), [(OK, 1)].into());
}

#[test]
fn rates_are_differences_over_time() {
    let m = map(&[(1, 1)], 1);
    let mut st = PgStats::default();
    let id = PgId::new(1, 0);
    for i in 0..20u64 {
        let mut s = pg(i + 1, 0, OK, 0);
        s.stats.sum.num_rd = 10 * i as i64;
        s.stats.sum.num_rd_kb = 20 * i as i64;
        st.report(OsdId(0), &OsdStat::default(), [(&id, &s)], [], &m, now(5 * i));
        st.tick(now(5 * i));
    }
    let r = st.rate(Some(PoolId(1)));
    assert_eq!((r.read_ops, r.read_bytes, r.write_ops), (2, 4096, 0));
    assert_eq!(st.rate(None), r);
    st.forget_pool(PoolId(1));
    st.tick(now(100));
    assert_eq!(st.rate(None), Rate::default(), "nothing negative after a removal");
}

#[test]
fn totals_of_first_reports_are_no_rates() {
    let m = map(&[(1, 2)], 1);
    let mut st = PgStats::default();
    let totals = |version: u64, reads: i64| {
        let mut s = pg(version, 0, OK, 0);
        s.stats.sum.num_rd = reads;
        s
    };
    // A start: ticks before any report, then one PG after the other tells of its life.
    st.tick(now(0));
    for (seed, at) in [(0, 5), (1, 10)] {
        st.report(OsdId(0), &OsdStat::default(), [(&PgId::new(1, seed), &totals(1, 1_000_000))], [], &m, now(at));
        st.tick(now(at));
        assert_eq!(st.rate(None), Rate::default());
    }
    st.report(OsdId(0), &OsdStat::default(), [(&PgId::new(1, 0), &totals(2, 1_000_050))], [], &m, now(15));
    st.tick(now(15));
    assert_eq!(st.rate(None).read_ops, 10);
}

#[test]
fn the_digest_counts_unknown_pgs() {
    let m = map(&[(1, 4)], 1);
    let mut st = PgStats::default();
    st.report(
        OsdId(0),
        &OsdStat { seq: 9, ..OsdStat::default() },
        [(&PgId::new(1, 0), &pg(1, 10, OK, 0))],
        [],
        &m,
        now(0),
    );
    let d = st.digest(&m);
    assert_eq!((d.num_pg, d.num_pg_active, d.num_pg_unknown), (4, 1, 3));
    assert_eq!(d.osd_last_seq, [9]);
}

#[test]
fn raw_space_of_a_coded_pool_follows_its_profile() {
    let mut m = map(&[(1, 8), (2, 8), (3, 8)], 6);
    let mut crush = cluster::CrushMap::fresh("osd");
    for o in 0..6 {
        let root = [("root".to_owned(), "default".to_owned())].into();
        crush.create_or_move_item(o, cluster::crush::WEIGHT_ONE, &format!("osd.{o}"), &root).unwrap();
    }
    (m.crush, m.full_ratio) = (Arc::new(crush), 1.0);
    for (name, k, n) in [("p42", "4", "2"), ("p21", "2", "1")] {
        let p = [("k", k), ("m", n)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        Arc::make_mut(&mut m.erasure_code_profiles).insert(name.to_owned(), p);
    }
    let pools = Arc::make_mut(&mut m.pools);
    Arc::make_mut(pools.get_mut(&PoolId(1)).unwrap()).size = 3;
    for (id, size, profile) in [(2, 6, "p42"), (3, 3, "p21")] {
        let p = Arc::make_mut(pools.get_mut(&PoolId(id)).unwrap());
        (p.kind, p.size, p.erasure_code_profile) = (3, size, profile.to_owned());
    }
    let mut st = PgStats::default();
    let statfs = StoreStatfs { total: 6 << 30, available: 3 << 30, ..StoreStatfs::default() };
    for o in 0..6 {
        st.report(OsdId(o), &OsdStat { statfs, ..OsdStat::default() }, [], [], &m, now(1));
    }
    let gib = |bytes: u64| (bytes + (1 << 29)) >> 30;
    let avail = |id: i64| gib(space::pool_usage(&st, &m, PoolId(id), m.pool(PoolId(id)).unwrap()).max_avail);
    // 18 GiB are left.
    assert_eq!([avail(1), avail(2), avail(3)], [6, 12, 12]);
    assert_eq!(gib(space::statfs(&st, &m, Some(PoolId(2))).2 << 10), 12);
}

#[test]
fn a_map_in_which_no_osd_changes_is_compared_with_no_pg() {
    let mut m = map(&[(1, 64)], 3);
    let mut st = PgStats::default();
    let report = |st: &mut PgStats, m: &OsdMap, seed: u32, seq: u64| {
        let (id, s) = (PgId::new(1, seed), pg(seq, 10, OK, 1));
        st.report(OsdId(1), &OsdStat::default(), [(&id, &s)], [], m, now(seq));
    };
    (0..64).for_each(|seed| report(&mut st, &m, seed, 1));
    st.sync(&m, now(2));
    let first = st.looked_at();
    (0..100).for_each(|n| st.sync(&m, now(3 + n)));
    assert_eq!(st.looked_at(), first);
    // An OSD goes down, and a report of it comes late.
    Arc::make_mut(&mut m.osd_state)[1] = 1;
    st.sync(&m, now(200));
    assert_eq!((st.looked_at(), st.states(&m)[&(OK | pg_state::STALE)]), (first + 64, 64));
    report(&mut st, &m, 5, 9);
    st.sync(&m, now(201));
    assert_eq!(st.states(&m)[&(OK | pg_state::STALE)], 64);
}

#[test]
fn no_question_of_each_second_looks_at_quiet_pgs() {
    let mut work = Vec::new();
    for n in [64, 640] {
        let m = map(&[(1, n), (2, n)], 10);
        let mut st = PgStats::default();
        for pool in [1, 2] {
            for seed in 0..n {
                let state = if seed < 3 { OK | pg_state::DEGRADED } else { OK };
                let s = pg(1, 10, state, (seed % 10) as i32);
                let id = PgId::new(pool, seed);
                st.report(OsdId((seed % 10) as i32), &OsdStat::default(), [(&id, &s)], [], &m, now(1));
            }
        }
        st.sync(&m, now(2));
        let (walked, looked) = (st.walked(), st.looked_at());
        assert_eq!(st.notable().map(BTreeSet::len).sum::<usize>(), 6);
        assert_eq!(st.num_in(pg_state::DEGRADED), 6);
        assert_eq!(st.min_last_epoch_clean(&m), Some(Epoch(1)));
        assert_eq!(st.loads()[&OsdId(4)].up, st.by_osd()[&OsdId(4)].acting);
        let (late, first) = st.scrubbed_before(PoolId(1), Scrub::Deep, now(1).wall, 5);
        assert_eq!((late, first.len()), (n as usize, 5));
        assert!(st.silent_pgs(&m, 10).is_empty());
        assert_eq!(st.digest(&m).num_pg, 2 * i64::from(n));
        // One OSD of ten goes down: its PGs only are looked at.
        let mut down = m.clone();
        let mut states = (*down.osd_state).clone();
        states[4] = 1;
        down.osd_state = Arc::new(states);
        st.sync(&down, now(3));
        assert_eq!(st.num_in(pg_state::STALE) as u64, st.looked_at() - looked);
        assert!(st.num_in(pg_state::STALE) as u32 <= 2 * n / 10 + 2);
        work.push(st.walked() - walked);
    }
    assert_eq!(work, [0, 0]);
}
