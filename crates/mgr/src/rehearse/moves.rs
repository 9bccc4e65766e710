//! The copies that a change makes and leaves behind, and the copies that PGs have meanwhile.
//!
//! A PG that splits or merges is compared in pieces: one for each PG of the larger of the two numbers of PGs. A piece's data
//! is where its PG before the change has it, and goes where its PG after the change is placed.

use super::report::Report;
use super::{Facts, PgFacts};
use crate::balance::shard_share;
use base::{OsdId, PgId, PoolId};
use cluster::osdmap::{OsdSet, osd_state};
use cluster::pool::{pg_mask, stable_mod};
use cluster::{OsdMap, PgPool};
use std::collections::BTreeSet;

/// The PG of `pg_num` ones that has the objects of `seed`.
fn fold(seed: u32, pg_num: u32) -> u32 {
    stable_mod(seed, pg_num, pg_mask(pg_num))
}

/// The copies or shards from which a PG's data can be read.
fn needs(map: &OsdMap, p: &PgPool) -> usize {
    if !p.is_erasure() {
        return 1;
    }
    let k = map.erasure_code_profiles.get(&p.erasure_code_profile).and_then(|e| e.get("k"));
    k.and_then(|k| k.parse().ok()).unwrap_or(1)
}

/// Number of complete copies that serve under a map.
fn present(map: &OsdMap, p: &PgPool, holders: &[OsdId]) -> usize {
    let lives = |o: &&OsdId| **o != OsdId::NONE && map.is_up(**o) && map.state(**o) & osd_state::DESTROYED == 0;
    holders.iter().filter(lives).count().min(usize::from(p.size))
}

/// A pool before and after.
struct Pool<'a> {
    id: PoolId,
    was: &'a PgPool,
    is: &'a PgPool,
    /// Bytes of a copy or shard for each byte of the PG.
    share: f64,
}

/// Counts all pools into the report.
pub(super) fn count(before: &OsdMap, after: &OsdMap, facts: &Facts, r: &mut Report) {
    for (id, was) in before.pools.iter().filter(|(_, p)| p.pg_num > 0) {
        let Some(is) = after.pool(*id).filter(|p| p.pg_num > 0) else {
            r.removed.push(before.pool_name(*id).unwrap_or_default().to_owned());
            continue;
        };
        count_pool(before, after, &Pool { id: *id, was, is, share: shard_share(before, was) }, facts, r);
    }
}

fn count_pool(before: &OsdMap, after: &OsdMap, p: &Pool<'_>, facts: &Facts, r: &mut Report) {
    let all = |map: &OsdMap, n: u32| -> Vec<OsdSet> {
        (0..n).map(|seed| map.pg_to_up(PgId { pool: p.id, seed }).0).collect()
    };
    let (had, wants) = (all(before, p.was.pg_num), all(after, p.is.pg_num));
    let pieces = p.was.pg_num.max(p.is.pg_num);
    let mut share = vec![0u32; had.len()];
    (0..pieces).for_each(|seed| share[fold(seed, p.was.pg_num) as usize] += 1);
    let mut moved = BTreeSet::new();
    for seed in 0..pieces {
        let (src, dst) = (fold(seed, p.was.pg_num), fold(seed, p.is.pg_num));
        let (up, want) = (&had[src as usize], &wants[dst as usize]);
        let pg = facts.pgs.get(&PgId { pool: p.id, seed: src });
        let holders = pg.map_or(up.as_slice(), |s| s.holders.as_slice());
        let bytes = pg.map_or(0, |s| s.bytes) as f64 * p.share / f64::from(share[src as usize]);
        let piece = Piece { coded: p.is.is_erasure(), bytes, up, holders, want };
        if piece.count(r) {
            moved.insert(dst);
        }
    }
    r.pgs_moved += moved.len() as u64;
    endangered(before, after, p, facts, &had, r);
    for (seed, want) in wants.iter().enumerate() {
        let pg = PgId { pool: p.id, seed: seed as u32 };
        let placed = |map: &OsdMap, pg| map.pg_to_raw_upmap(pg).iter().filter(|o| **o != OsdId::NONE).count();
        let full = want.iter().filter(|o| **o != OsdId::NONE).count() >= usize::from(p.is.size);
        let source = PgId { seed: fold(pg.seed, p.was.pg_num), ..pg };
        if !full && placed(after, pg) < usize::from(p.is.size) && placed(before, source) >= usize::from(p.was.size) {
            r.unplaced.push(pg);
        }
    }
}

/// Finds PGs with too few copies from the moment of the change until the data has moved.
fn endangered(before: &OsdMap, after: &OsdMap, p: &Pool<'_>, facts: &Facts, had: &[OsdSet], r: &mut Report) {
    let (need, min) = (needs(before, p.was), |p: &PgPool| usize::from(p.min_size));
    for (seed, up) in had.iter().enumerate() {
        let pg = PgId { pool: p.id, seed: seed as u32 };
        let known: Option<&PgFacts> = facts.pgs.get(&pg);
        if known.is_none() {
            r.unknown += 1;
        }
        let holders = known.map_or(up.as_slice(), |s| s.holders.as_slice());
        let (was, is) = (present(before, p.was, holders), present(after, p.is, holders));
        if was < usize::from(p.was.size) {
            r.incomplete += 1;
        }
        r.inactive_now += usize::from(known.is_some_and(|s| !s.active));
        if is < need && was >= need {
            r.lost.push(pg);
        } else if is < min(p.is) && was >= min(p.was) {
            r.stopped.push(pg);
        } else if is <= min(p.is) && was > min(p.was) {
            r.low.push(pg);
        }
    }
}

/// A part of a PG that stays whole.
struct Piece<'a> {
    coded: bool,
    /// Bytes of a copy or shard.
    bytes: f64,
    /// Its places before.
    up: &'a [OsdId],
    /// OSDs that have a complete copy.
    holders: &'a [OsdId],
    /// Its places after.
    want: &'a [OsdId],
}

impl Piece<'_> {
    /// Counts what is copied and left behind; true if the change makes a copy somewhere.
    fn count(&self, r: &mut Report) -> bool {
        let has =
            |set: &[OsdId], i: usize, o: OsdId| if self.coded { set.get(i) == Some(&o) } else { set.contains(&o) };
        let mut moved = false;
        for (i, o) in self.want.iter().enumerate().filter(|(_, o)| **o != OsdId::NONE) {
            if has(self.holders, i, *o) {
                continue;
            }
            let new = !has(self.up, i, *o);
            r.receive(*o, self.bytes, new);
            moved |= new;
        }
        for (i, o) in self.holders.iter().enumerate().filter(|(_, o)| **o != OsdId::NONE) {
            if !has(self.want, i, *o) {
                r.release(*o, self.bytes);
            }
        }
        moved
    }
}
