//! Purged snapshots of pools: their sets in memory, and the records of the sets.
//!
//! Invariants:
//!  1. A set holds every snapshot id of the pool that all PGs purged, and every id that a removal took for itself.
//!     So a pool whose snapshots are all removed has one range, however many snapshots it had.
//!  2. A record holds the ranges that begin in one block of [`BLOCK`] ids, so its length has a bound that does not
//!     depend on the pool's history. A change writes the records of the blocks in which it changes a range.
//!
//! Tests: below.

use std::collections::{BTreeMap, BTreeSet};

use base::PoolId;
use bytes::Bytes;
use cluster::{IntervalSet, OsdMap, PgPool};

use crate::core::propose::batch::Batch;
use crate::state::records::{key, value};

/// Ids of one record. Of these, every second one can begin a range, so a record has at most 8 KiB.
const BLOCK: u64 = 1024;

/// Sets of snapshot ids by pool.
pub(in crate::core) type Sets = BTreeMap<PoolId, IntervalSet>;

/// The changed records when `add` joins the set `before` of a pool; `None` for a record that is removed.
fn records(pool: PoolId, before: &IntervalSet, add: &IntervalSet) -> Vec<(Bytes, Option<Bytes>)> {
    let mut blocks = BTreeSet::new();
    for (start, len) in add.iter() {
        let joined = before.last_up_to(start).filter(|(s, l)| s.saturating_add(*l) >= start);
        blocks.insert(joined.map_or(start, |(s, _)| s) / BLOCK);
        blocks.extend(before.starting_in(start, start.saturating_add(len)).map(|(s, _)| s / BLOCK));
    }
    let range = |b: u64| (b * BLOCK, (b * BLOCK).saturating_add(BLOCK - 1));
    let mut after = IntervalSet::new();
    for b in &blocks {
        let (first, last) = range(*b);
        before.starting_in(first, last).for_each(|(s, l)| after.insert(s, l));
    }
    after.union_of(add);
    let record = |b: u64| {
        let (first, last) = range(b);
        let mut set = IntervalSet::new();
        after.starting_in(first, last).for_each(|(s, l)| set.insert(s, l));
        (key::purged_block(pool, b), (!set.is_empty()).then(|| value(&set)))
    };
    blocks.into_iter().map(record).collect()
}

/// Adds the records of a change to a proposal, except those of `moved` pools. They follow the head: if they are lost with the process, ids stay
/// out of the set, which is harmless; an id in the set must not be given to a new snapshot.
pub(in crate::core) fn put(b: &mut Batch, before: &Sets, add: &Sets, moved: &BTreeSet<PoolId>) {
    let none = IntervalSet::new();
    for (pool, add) in add.iter().filter(|(p, _)| !moved.contains(p)) {
        for (k, v) in records(*pool, before.get(pool).unwrap_or(&none), add) {
            b.after(k, v);
        }
    }
}

/// Replaces the records of an earlier layout, with one record for the whole set of a pool. The new ones are written
/// before the head, so that no part of a set is lost.
pub(in crate::core) fn put_moved(b: &mut Batch, before: &Sets, add: &Sets, pools: &BTreeSet<PoolId>) {
    let none = IntervalSet::new();
    for pool in pools {
        let mut all = before.get(pool).cloned().unwrap_or_default();
        add.get(pool).into_iter().for_each(|add| all.union_of(add));
        for (k, v) in records(*pool, &none, &all) {
            b.put_or_delete(k, v);
        }
        b.after(key::purged_pool(*pool), None);
    }
}

/// Removes the records of a removed pool.
pub(in crate::core) fn remove(b: &mut Batch, pool: PoolId) {
    b.after(key::purged_pool(pool), None);
    b.remove_range_after(state::Range::prefix(&key::purged_blocks(pool)));
}

/// Ids of a pool that removals took and an earlier build did not add to the set, as far as the state proves it: ids
/// up to `snap_seq` that belong to no snapshot. Empty if some of them may be snapshots.
///
/// Each removal of a self-managed snapshot takes one id above the snapshot's. So if the set and the queue have as
/// many ids as are left, no snapshot is left. The ids of a file system's snapshots come from its MDS, which removes
/// the ids that its removals take, and are never judged.
pub(in crate::core) fn unused(map: &OsdMap, pool: PoolId, purged: &IntervalSet, of_file_system: bool) -> IntervalSet {
    let Some(p) = map.pool(pool).filter(|_| !of_file_system) else { return IntervalSet::new() };
    let mut gone = purged.clone();
    if let Some(queue) = map.removed_snaps_queue.get(&pool) {
        gone.union_of(queue);
    }
    let first = if p.is_unmanaged_snaps_mode() { 2 } else { 1 };
    let mut holes = IntervalSet::new();
    holes.insert(first, (p.snap_seq.0 + 1).saturating_sub(first));
    holes.subtract(&gone);
    if p.is_pool_snaps_mode() {
        p.snaps.keys().for_each(|s| holes.erase(*s, 1));
        return holes;
    }
    if p.is_unmanaged_snaps_mode() && follow_removals(p, first, &gone, &holes) { holes } else { IntervalSet::new() }
}

/// True if each hole can be the id of a removal: there is one for each removed id, above it.
fn follow_removals(p: &PgPool, first: u64, gone: &IntervalSet, holes: &IntervalSet) -> bool {
    let outside = gone.iter().any(|(s, l)| s < first || s.saturating_add(l) > p.snap_seq.0 + 1);
    let mut all: Vec<(u64, u64, bool)> = gone.iter().map(|(s, l)| (s, l, true)).collect();
    all.extend(holes.iter().map(|(s, l)| (s, l, false)));
    all.sort_unstable();
    let mut open: u64 = 0;
    for (_, len, removed) in all {
        match if removed { open.checked_add(len) } else { open.checked_sub(len) } {
            Some(n) => open = n,
            None => return false,
        }
    }
    !outside && open == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use wire::Decode;

    const POOL: PoolId = PoolId(3);

    fn set(of: &[(u64, u64)]) -> IntervalSet {
        let mut s = IntervalSet::new();
        of.iter().for_each(|(a, n)| s.insert(*a, *n));
        s
    }

    #[test]
    fn the_records_make_up_the_set_after_any_changes() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut all, mut stored) = (IntervalSet::new(), BTreeMap::new());
            for _ in 0..200 {
                let mut add = IntervalSet::new();
                for _ in 0..=rng.below(4) {
                    let len = 1 + if rng.chance(1, 8) { rng.below(5000) } else { rng.below(20) };
                    add.insert(rng.below(20_000), len);
                }
                for (k, v) in records(POOL, &all, &add) {
                    match v {
                        Some(v) => stored.insert(k, v),
                        None => stored.remove(&k),
                    };
                }
                all.union_of(&add);
                let mut loaded = IntervalSet::new();
                for v in stored.values() {
                    let one = IntervalSet::from_bytes(v).unwrap();
                    assert!(v.len() <= 4 + 16 * BLOCK as usize / 2);
                    loaded.union_of(&one);
                }
                assert_eq!(loaded, all, "seed {seed}");
                assert_eq!(stored.values().map(|v| (v.len() - 4) / 16).sum::<usize>(), all.num_intervals());
            }
        }
    }

    #[test]
    fn many_snapshots_cost_a_record_of_one_range_each() {
        let (mut all, mut bytes, mut writes) = (IntervalSet::new(), 0, 0);
        for n in 0..200_000 {
            let add = set(&[(2 + 2 * n, 2)]);
            for (k, v) in records(POOL, &all, &add) {
                bytes += k.len() + v.map_or(0, |v| v.len());
                writes += 1;
            }
            all.union_of(&add);
        }
        assert_eq!(all.num_intervals(), 1);
        assert_eq!(writes, 200_000);
        assert!(bytes <= 200_000 * 80, "{bytes} bytes");
    }

    #[test]
    fn a_hundred_thousand_snapshots_alive_cost_a_change_one_or_two_records() {
        let mut all = IntervalSet::new();
        (0..100_000).for_each(|n| all.insert(2 + 2 * n, 1));
        for n in [0u64, 511, 512, 70_000, 99_999] {
            let changed = records(POOL, &all, &set(&[(3 + 2 * n, 1)]));
            assert!(changed.len() <= 2, "{}", changed.len());
            assert!(changed.iter().all(|(_, v)| v.as_ref().is_none_or(|v| v.len() <= 8196)));
        }
    }

    fn pool(flags: u64, snap_seq: u64, queue: &[(u64, u64)]) -> OsdMap {
        let mut m = OsdMap::default();
        let p = PgPool { flags, snap_seq: base::SnapId(snap_seq), ..PgPool::default() };
        std::sync::Arc::make_mut(&mut m.pools).insert(POOL, std::sync::Arc::new(p));
        if !queue.is_empty() {
            std::sync::Arc::make_mut(&mut m.removed_snaps_queue).insert(POOL, set(queue));
        }
        m
    }

    #[test]
    fn holes_are_closed_only_where_no_snapshot_can_be() {
        use cluster::pool::flag::{POOL_SNAPS, SELFMANAGED_SNAPS};
        // Created and removed in turn: 2 made, its removal takes 3, 4 made, and so on. The last one is queued.
        let m = pool(SELFMANAGED_SNAPS, 9, &[(8, 1)]);
        let purged = set(&[(2, 1), (4, 1), (6, 1)]);
        assert_eq!(unused(&m, POOL, &purged, false), set(&[(3, 1), (5, 1), (7, 1), (9, 1)]));
        assert!(unused(&m, POOL, &purged, true).is_empty(), "the ids of an MDS");
        // One snapshot more is alive, and nobody knows which id it has.
        assert!(unused(&pool(SELFMANAGED_SNAPS, 10, &[(8, 1)]), POOL, &purged, false).is_empty());
        // As many holes as removals, but in an order that removals cannot make.
        assert!(unused(&pool(SELFMANAGED_SNAPS, 5, &[]), POOL, &set(&[(4, 2)]), false).is_empty());
        assert!(unused(&pool(SELFMANAGED_SNAPS, 3, &[]), POOL, &set(&[(2, 1), (9, 1)]), false).is_empty());
        // The snapshots of a pool with pool snapshots are known.
        let mut m = pool(POOL_SNAPS, 6, &[]);
        let p = std::sync::Arc::make_mut(std::sync::Arc::make_mut(&mut m.pools).get_mut(&POOL).unwrap());
        p.snaps.insert(5, cluster::pool::PoolSnap { snapid: base::SnapId(5), ..Default::default() });
        assert_eq!(unused(&m, POOL, &set(&[(1, 1), (3, 1)]), false), set(&[(2, 1), (4, 1), (6, 1)]));
        assert!(unused(&m, PoolId(4), &purged, false).is_empty());
    }
}
