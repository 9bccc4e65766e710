//! The balancer beside Ceph's, whose moves on the same map are recorded (`vectors/balancer`, by `osdmaptool --upmap` of 20.2,
//! which runs the code that Ceph's module calls).

use super::tests::{all, sixty};
use super::*;
use cluster::osdmap::{CANONICAL, Incremental};

/// The map that Ceph's moves were recorded on, which is [`sixty`].
const MAP: &[u8] = include_bytes!("../../../../vectors/balancer/sixty.osdmap");
/// Ceph's output with the deviations 1 and 5, its smallest and its default.
const CEPH: [&str; 2] = [
    include_str!("../../../../vectors/balancer/sixty-tentacle-1.txt"),
    include_str!("../../../../vectors/balancer/sixty-tentacle-5.txt"),
];

/// The map after the commands that Ceph printed. Some are for the same PG; the last one counts.
fn after_commands(map: &OsdMap, commands: &str) -> OsdMap {
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for line in commands.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ceph", "osd", "pg-upmap-items", pg, osds @ ..] = words.as_slice() else { panic!("{line}") };
        let osds: Vec<OsdId> = osds.iter().map(|o| OsdId(o.parse().unwrap())).collect();
        let pairs = osds.chunks(2).map(|c| (c[0], c[1])).collect();
        inc.new_pg_upmap_items.insert(PgId::parse(pg).unwrap(), pairs);
    }
    map.apply(&inc).unwrap()
}

/// The PG shards that are elsewhere after a change.
fn moved(before: &OsdMap, after: &OsdMap) -> usize {
    let pgs = before.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed }));
    pgs.map(|pg| {
        let was = before.pg_to_raw_upmap(pg);
        after.pg_to_raw_upmap(pg).iter().filter(|o| !was.contains(o)).count()
    })
    .sum()
}

/// How much the fullest OSD is above its share of the bytes, and the most PG shards by which an OSD is off its share in a
/// pool.
fn uneven(map: &OsdMap) -> (f64, f64) {
    let s = Spread::of(map, shard_bytes);
    let fullest = s.bytes().values().map(|(n, t)| n / t - 1.0).fold(0.0, f64::max);
    let off = s.pools.values().flat_map(|p| p.targets().map(|(o, _)| p.deviation(o).abs()));
    (fullest, off.fold(0.0, f64::max))
}

fn shard_bytes(id: PoolId, _: &PgPool) -> f64 {
    [0.0, 10e9, 30e9, 1e9, 0.5e9][id.0 as usize]
}

fn planned(map: &OsdMap, deviation: f64) -> OsdMap {
    let mut spread = Spread::of(map, shard_bytes);
    let limits = Limits { deviation, moves: 100_000, tries: 1 << 30 };
    let plan = spread.plan(map, &all(map), limits, &|_| false);
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for (pg, items) in plan.items {
        inc.new_pg_upmap_items.insert(pg, items);
    }
    map.apply(&inc).unwrap()
}

#[test]
fn the_fullest_osd_ends_lower_than_with_ceph_by_fewer_moves() {
    let map = sixty();
    assert_eq!(map.encode_blob(CANONICAL).0, MAP, "the map has changed: record Ceph's moves anew");
    let ceph = CEPH.map(|commands| after_commands(&map, commands));
    let (least, most) = (moved(&map, &ceph[1]), moved(&map, &ceph[0]));
    assert_eq!((least, most), (87, 299), "as `osdmaptool --test-map-pgs-dump-all` counts them");
    // Ceph evens out counts only.
    assert!(ceph.iter().all(|m| uneven(m).0 > 0.03));
    for deviation in [2.0, 3.0, 5.0] {
        let ours = planned(&map, deviation);
        let (fullest, off) = uneven(&ours);
        assert!(fullest < 0.01 && off <= deviation + 0.1, "{deviation}: {fullest} {off}");
        assert!(moved(&map, &ours) < most * 5 / 6, "{deviation}: {} of {most}", moved(&map, &ours));
    }
    // By default no OSD is off by more than with Ceph's smallest deviation. Without a tolerance 305 moves are the fewest.
    let off = uneven(&ceph[0]).1;
    let ours = planned(&map, 1.0);
    let (moves, is) = (moved(&map, &ours), uneven(&ours));
    assert!(moves < most && is.0 < 0.01 && is.1 <= off, "{moves} {is:?}");
}
