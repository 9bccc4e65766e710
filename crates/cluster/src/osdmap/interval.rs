//! Detection of new intervals. An interval is a run of epochs with one acting set, in which a PG's log has one
//! owner.

use super::{OsdMap, UpActing};
use crate::pool::PgPool;
use base::PgId;

/// Data of one epoch that [`is_new_interval`] compares.
#[derive(Clone, Copy, Debug)]
pub struct IntervalSide<'a> {
    /// Sets and primaries of the PG.
    pub sets: &'a UpActing,
    /// Pool of the PG.
    pub pool: &'a PgPool,
    /// Map flags.
    pub flags: u32,
}

/// True if a PG with these sets in two consecutive maps starts a new interval (`PastIntervals::is_new_interval`).
#[must_use]
pub fn is_new_interval(old: &IntervalSide<'_>, new: &IntervalSide<'_>, pg: PgId) -> bool {
    use super::map_flag::{RECOVERY_DELETES, SORTBITWISE};
    let (a, b) = (old.sets, new.sets);
    let changed_flags = old.flags ^ new.flags;
    a.acting_primary != b.acting_primary
        || a.acting != b.acting
        || a.up_primary != b.up_primary
        || a.up != b.up
        || old.pool.min_size != new.pool.min_size
        || old.pool.size != new.pool.size
        || is_split(pg, old.pool.pg_num, new.pool.pg_num)
        || is_merge(pg, old.pool.pg_num, new.pool.pg_num)
        // A merge was announced or cancelled.
        || is_merge(pg, old.pool.pg_num_pending, new.pool.pg_num_pending)
        || is_merge(pg, new.pool.pg_num_pending, old.pool.pg_num_pending)
        || changed_flags & (SORTBITWISE | RECOVERY_DELETES) != 0
        || old.pool.stretch != new.pool.stretch
}

/// Like [`is_new_interval`] for two maps. Also true if the pool was created or removed.
#[must_use]
pub fn is_new_interval_between(old: &OsdMap, new: &OsdMap, pg: PgId) -> bool {
    let (Some(op), Some(np)) = (old.pool(pg.pool), new.pool(pg.pool)) else {
        return old.pool(pg.pool).is_some() != new.pool(pg.pool).is_some();
    };
    let (a, b) = (old.pg_to_up_acting(pg), new.pg_to_up_acting(pg));
    is_new_interval(
        &IntervalSide { sets: &a, pool: op, flags: old.flags },
        &IntervalSide { sets: &b, pool: np, flags: new.flags },
        pg,
    )
}

/// True if `pg` is a parent or child of a split from `old` to `new` PGs.
#[must_use]
pub fn is_split(pg: PgId, old: u32, new: u32) -> bool {
    if old >= new || old == 0 {
        return false;
    }
    if pg.seed >= old {
        return pg.seed < new;
    }
    children(pg.seed, old, new).next().is_some()
}

/// True if `pg` takes part in a merge from `old` to `new` PGs.
#[must_use]
pub fn is_merge(pg: PgId, old: u32, new: u32) -> bool {
    if new >= old || new == 0 {
        return false;
    }
    if pg.seed >= new {
        return pg.seed < old;
    }
    children(pg.seed, new, old).next().is_some()
}

/// Seeds in `small..large` whose objects are in `seed` while the pool has only `small` PGs.
pub fn children(seed: u32, small: u32, large: u32) -> impl Iterator<Item = u32> {
    let small_mask = crate::pool::pg_mask(small);
    // Candidates differ from the seed only above the bits that all of them share.
    let step = ((small_mask >> 1).wrapping_add(1)).max(1);
    let first = seed & (step - 1);
    (0..)
        .map(move |i: u64| u64::from(first) + i * u64::from(step))
        .take_while(move |c| *c < u64::from(large))
        .map(|c| c as u32)
        .filter(move |c| *c >= small && crate::pool::stable_mod(*c, small, small_mask) == seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{pg_mask, stable_mod};

    #[test]
    fn children_are_the_seeds_that_fold_back() {
        for small in 1..40u32 {
            for large in small + 1..80 {
                for seed in 0..small {
                    let want: Vec<u32> =
                        (small..large).filter(|c| stable_mod(*c, small, pg_mask(small)) == seed).collect();
                    assert_eq!(children(seed, small, large).collect::<Vec<_>>(), want, "{seed} {small} {large}");
                }
            }
        }
    }

    #[test]
    fn split_and_merge_mirror_each_other() {
        for old in 1..20u32 {
            for new in 1..40u32 {
                for seed in 0..40 {
                    let pg = PgId::new(1, seed);
                    assert_eq!(is_split(pg, old, new), is_merge(pg, new, old));
                }
            }
        }
    }
}
