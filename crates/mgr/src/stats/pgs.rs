//! Queries about single PGs that the index answers.

use std::collections::{BTreeMap, BTreeSet};

use base::{OsdId, PgId, PoolId, Utime};
use cluster::OsdMap;
use wire::types::PgStat;

use super::{Load, PgStats, Scrub};

impl PgStats {
    /// PGs of the map that have not reported since the process started, at most `most`.
    #[must_use]
    pub fn silent_pgs(&self, map: &OsdMap, most: usize) -> Vec<PgId> {
        map.pools.iter().flat_map(|(id, p)| self.silent_pgs_of(*id, p.pg_num)).take(most).collect()
    }

    /// PGs of a pool that have not reported since the process started, in order.
    pub fn silent_pgs_of(&self, pool: PoolId, pg_num: u32) -> impl Iterator<Item = PgId> + '_ {
        self.index.silent(pool, pg_num).map(move |seed| PgId { pool, seed })
    }

    /// Number of PGs of a pool that have not reported since the process started.
    #[must_use]
    pub fn num_silent_of(&self, pool: PoolId, pg_num: u32) -> usize {
        let reported = self.num_by_pool.get(&pool).copied().unwrap_or(0);
        usize::try_from(i64::from(pg_num) - reported).unwrap_or(0)
    }

    /// PGs that are not active, or in one of the [`NOTABLE`](super::NOTABLE) states, in sets whose PGs have the same such states since
    /// the same second.
    pub fn notable(&self) -> impl Iterator<Item = &BTreeSet<PgId>> {
        self.index.groups()
    }

    /// PGs with unfound objects.
    #[must_use]
    pub fn unfound(&self) -> &BTreeSet<PgId> {
        &self.index.unfound
    }

    /// Number of PGs by role of each OSD that has any, by the PGs' own reports.
    #[must_use]
    pub fn loads(&self) -> &BTreeMap<OsdId, Load> {
        &self.index.loads
    }

    /// Number of PGs whose peering each OSD blocks.
    #[must_use]
    pub fn blocked(&self) -> &BTreeMap<OsdId, u64> {
        &self.index.blocked
    }

    /// Number of PGs with a state bit, by their own reports.
    #[must_use]
    pub fn num_in(&self, bit: u64) -> usize {
        let n: i64 = self.by_state.iter().filter(|(s, _)| *s & bit != 0).map(|(_, n)| n).sum();
        usize::try_from(n).unwrap_or(0)
    }

    /// Number of PGs of a pool whose last scrub is before a time, and the first `most` of them.
    #[must_use]
    pub fn scrubbed_before(&self, pool: PoolId, kind: Scrub, time: Utime, most: usize) -> (usize, Vec<PgId>) {
        let (sets, last) = self.index.scrubbed_before(pool, kind, time);
        let (mut n, mut first) = (0, Vec::new());
        for ids in sets {
            n += ids.len();
            first.extend(ids.iter().take(most).copied());
        }
        let at = |s: &PgStat| if kind == Scrub::Deep { s.last_deep_scrub_stamp } else { s.last_scrub_stamp };
        let before = |id: &&PgId| self.pgs.get(id).is_some_and(|s| at(s) < time);
        let more: Vec<PgId> = last.into_iter().flatten().filter(before).copied().collect();
        n += more.len();
        first.extend(more);
        first.sort_unstable();
        first.truncate(most);
        (n, first)
    }
}
