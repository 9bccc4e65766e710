//! The manager's part of changing a pool's number of PGs. Commands set targets (`command::pool::set`), and this file
//! moves the map there step by step. The OSDs' part is `pg::pg::resize`.
//!
//! To more PGs: `pg_num` grows in one step once every PG of the pool is active and none is being created; a split
//! moves no data between OSDs. `pgp_num` follows in steps, each so small that at most `target_max_misplaced_ratio` of
//! all objects are misplaced. A step begins when the reports show the effect of the last one.
//!
//! To fewer PGs the order is reversed, as in Ceph. `pgp_num` shrinks first, so that PGs to be merged are on the same
//! OSDs. Then `pg_num_pending` announces the next few merges, and their PGs stop serving. When the primary of a pair
//! reports that all copies are equal (`OSD_PG_READY_TO_MERGE`), a map merges them: one pair for each map, because the
//! map holds the versions of one (`last_pg_merge_meta`). PGs that are not ready in time serve again, and the merge is
//! tried later.

use crate::core::MonCore;
use crate::state::ConnKey;
use crate::state::log::Prio;
use crate::state::pg_num::{set_pending, set_pg_num};
use base::{Epoch, Mono, PgId, PoolId};
use cluster::PgPool;
use cluster::pool::{PgMergeMeta, autoscale, flag, pg_mask, stable_mod};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::MOsdPgReadyToMerge;
use wire::types::pg_state;

/// Interval of the autoscaler (`mgr/pg_autoscaler/sleep_interval`).
const AUTOSCALE_SECONDS: u64 = 60;
/// Most merges announced at once: their PGs serve nothing until the merge is done.
const AT_ONCE: u32 = 8;
/// Time without progress after which announced merges are called off.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time after announced merges were called off in which no merge is announced for the pool.
const REST: Duration = Duration::from_secs(10);

/// The announced merges of a pool (volatile: a new process calls them off or announces them again).
#[derive(Debug, Default)]
pub(in crate::core) struct Merges {
    /// The epoch that announced the merges.
    since: Epoch,
    /// Time of the last progress.
    last: Mono,
    /// Reports of primaries that a pair is ready, by source PG.
    ready: BTreeMap<u32, MOsdPgReadyToMerge>,
    /// Earliest time of the next announcement.
    rest: Mono,
}

impl MonCore {
    /// Handles a primary's report that a pair of PGs is ready to merge, or is not.
    pub(in crate::core) fn osd_pg_ready_to_merge(&mut self, c: ConnKey, m: MOsdPgReadyToMerge) {
        if self.osd_session(c).is_none() {
            return;
        }
        let Some(p) = self.state.osdmap.pool(m.pgid.pool) else { return };
        let announced = (p.pg_num_pending..p.pg_num).contains(&m.pgid.seed) && p.pg_num_pending > 0;
        let now = self.now.mono;
        let (last_change, pool) = (p.last_change, m.pgid.pool);
        let merges =
            self.merges.entry(pool).or_insert_with(|| Merges { since: last_change, last: now, ..Merges::default() });
        if !announced || Epoch(u32::try_from(m.paxos.version).unwrap_or(0)) < merges.since {
            return;
        }
        if m.ready {
            merges.ready.insert(m.pgid.seed, m);
            self.advance_merges();
        } else {
            self.call_off(pool);
        }
    }

    /// Merges the PG with the highest number of each pool if its pair is ready: one pair for each map.
    pub(in crate::core) fn advance_merges(&mut self) {
        if self.writer.is_busy() || self.merges.is_empty() {
            return;
        }
        let map = Arc::clone(&self.state.osdmap);
        self.merges.retain(|id, _| map.pool(*id).is_some());
        let epoch = map.epoch.next();
        for (id, merges) in &mut self.merges {
            let Some(p) = map.pool(*id) else { continue };
            let source = p.pg_num.saturating_sub(1);
            let changed = self.pending.map(&self.state).pool(*id).is_none_or(|q| q.last_change != p.last_change);
            if p.pg_num_pending >= p.pg_num || p.pg_num_pending == 0 || changed {
                continue;
            }
            let Some(m) = merges.ready.remove(&source) else { continue };
            let meta = PgMergeMeta {
                source_pgid: m.pgid,
                ready_epoch: Epoch(u32::try_from(m.paxos.version).unwrap_or(0)),
                last_epoch_started: m.last_epoch_started,
                last_epoch_clean: m.last_epoch_clean,
                source_version: m.source_version,
                target_version: m.target_version,
            };
            merges.last = self.now.mono;
            let name = map.pool_name(*id).unwrap_or_default();
            let line = format!("pool '{name}' pg_num {} -> {source} ({} merged)", p.pg_num, m.pgid);
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            if let Some(p) = self.pending.pool_mut(&self.state, *id) {
                p.pg_num = source;
                p.last_pg_merge_meta = meta;
                p.last_force_op_resend_prenautilus = epoch;
                p.last_force_op_resend_preluminous = epoch;
                p.last_change = epoch;
            }
        }
    }

    /// Calls off the announced merges of a pool, so that its PGs serve again.
    fn call_off(&mut self, id: PoolId) {
        let epoch = self.state.osdmap.epoch.next();
        let now = self.now.mono;
        let merges = self.merges.entry(id).or_default();
        merges.ready.clear();
        merges.rest = now + REST;
        if let Some(p) = self.pending.pool_mut(&self.state, id) {
            tracing::info!("mon: pool {} keeps {} PGs for now: PGs to merge were not ready", id.0, p.pg_num);
            p.pg_num_pending = p.pg_num;
            p.last_change = epoch;
        }
    }

    /// Announces the next merges of a pool, or calls off those without progress.
    fn tick_merges(&mut self, id: PoolId, p: &PgPool) {
        let now = self.now.mono;
        if p.pg_num_pending < p.pg_num {
            let merges = self.merges.entry(id).or_insert_with(|| Merges {
                since: p.last_change,
                last: now,
                ..Merges::default()
            });
            if now.since(merges.last) > PATIENCE {
                self.call_off(id);
            }
            return;
        }
        if p.pg_num_target >= p.pg_num || p.pgp_num > p.pg_num_target {
            return;
        }
        if self.merges.get(&id).is_some_and(|m| m.rest > now) {
            return;
        }
        // The sources lie in one power of two, so that no two have the same target.
        let last = p.pg_num - 1;
        let half = 1u32.checked_shl(31 - last.max(1).leading_zeros()).unwrap_or(1);
        let least = p.pg_num_target.max(p.pg_num.saturating_sub(AT_ONCE)).max(half);
        let mut soon = p.pg_num;
        while soon > least && self.may_merge(id, p, soon - 1) {
            soon -= 1;
        }
        let mut moved = false;
        for seed in least..p.pg_num {
            moved |= self.end_upmap(id, p, seed);
        }
        if soon < p.pg_num && !moved {
            self.announce(id, soon);
        }
    }

    /// Announces that a pool will have `soon` PGs.
    pub(crate) fn announce(&mut self, id: PoolId, soon: u32) {
        let epoch = self.state.osdmap.epoch.next();
        let merges = Merges { since: epoch, last: self.now.mono, ..Merges::default() };
        self.merges.insert(id, merges);
        if let Some(p) = self.pending.pool_mut(&self.state, id) {
            set_pending(p, soon, epoch);
        }
    }

    /// True if the source and the target of a merge are clean by the reports.
    fn may_merge(&self, id: PoolId, p: &PgPool, seed: u32) -> bool {
        let target = stable_mod(seed, seed, pg_mask(seed));
        let clean = pg_state::ACTIVE | pg_state::CLEAN;
        let fit = |seed| {
            let st = self.state.mgr.stats.pg(PgId { pool: id, seed });
            st.is_some_and(|st| {
                st.state() & (clean | pg_state::STALE) == clean
                    && st.reported_epoch >= p.last_change
                    && st.up == st.acting
            })
        };
        fit(seed) && fit(target)
    }

    /// Removes upmap entries of PGs to be merged, so that CRUSH places both alike; true if there were any.
    fn end_upmap(&mut self, id: PoolId, p: &PgPool, seed: u32) -> bool {
        let map = Arc::clone(&self.state.osdmap);
        let target = stable_mod(seed, p.pg_num_target, pg_mask(p.pg_num_target));
        let mut found = false;
        for pg in [seed, target].map(|seed| PgId { pool: id, seed }) {
            if map.pg_upmap.contains_key(&pg) {
                self.pending.inc_mut(&self.state).old_pg_upmap.insert(pg);
                found = true;
            }
            if map.pg_upmap_items.contains_key(&pg) {
                self.pending.inc_mut(&self.state).old_pg_upmap_items.insert(pg);
                found = true;
            }
        }
        found
    }

    /// Sets the target of pools in autoscale mode `on` whose number of PGs is far off.
    fn tick_autoscale(&mut self) {
        let map = Arc::clone(&self.state.osdmap);
        if !self.ticks.is_nth(AUTOSCALE_SECONDS)
            || map.flags & cluster::osdmap::map_flag::NOAUTOSCALE != 0
            // Children of a split inherit no upmap items, so PGs that a change in steps holds would move.
            || self.state.kv.contains_key(crate::command::rehearse::steps::KEY)
            || !map.pools.values().any(|p| p.pg_autoscale_mode == autoscale::ON)
        {
            return;
        }
        let stats = &self.state.mgr.stats;
        if map.osds().any(|o| map.is_up(o) && map.is_in(o) && stats.osd(o).is_none()) {
            // Space and sizes are not known yet.
            return;
        }
        let per_osd = crate::command::pool::pgs_per_osd(&self.state);
        for (id, s) in mgr::stats::autoscale::sizes(&self.state.mgr.stats, &map, per_osd) {
            let Some(p) = map.pool(id) else { continue };
            let still = p.pg_num == p.pg_num_target && p.pg_num_pending == p.pg_num && p.pgp_num == p.pgp_num_target;
            let known = self.state.mgr.stats.is_complete(id, p.pg_num);
            let may = known && still && !p.has_flag(flag::CREATING) && !p.has_flag(flag::NOPGCHANGE);
            let n = s.pg_num.min(self.state.options.pools.max_pg_num);
            if !s.would_adjust || p.pg_autoscale_mode != autoscale::ON || !may || n == p.pg_num {
                continue;
            }
            let name = map.pool_name(id).unwrap_or_default();
            let line = format!("pool '{name}' should have {n} placement groups, has {}", p.pg_num);
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            if let Some(p) = self.pending.pool_mut(&self.state, id) {
                p.pg_num_target = n;
                p.pgp_num_target = n;
            }
        }
    }

    pub(in crate::core) fn tick_pg_num(&mut self) {
        if self.state.options.external_mgr {
            return;
        }
        self.tick_autoscale();
        let map = Arc::clone(&self.state.osdmap);
        for (id, p) in map.pools.iter() {
            if p.pg_num_pending < p.pg_num || p.pg_num_target < p.pg_num {
                self.tick_merges(*id, p);
            }
            let still = p.pg_num_target <= p.pg_num && p.pgp_num_target == p.pgp_num;
            if still || p.pg_num_pending < p.pg_num || p.has_flag(flag::CREATING) {
                continue;
            }
            if !self.pool_reported(*id, p) {
                continue;
            }
            let grown = p.pg_num.max(p.pg_num_target);
            let step = if grown != p.pg_num { p.pgp_num } else { self.next_pgp_num(p) };
            if (grown, step) == (p.pg_num, p.pgp_num) {
                continue;
            }
            let name = map.pool_name(*id).unwrap_or_default();
            let line = if grown == p.pg_num {
                format!("pool '{name}' pgp_num {} -> {step} (target {})", p.pgp_num, p.pgp_num_target)
            } else {
                format!("pool '{name}' pg_num {} -> {grown}", p.pg_num)
            };
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            let epoch = map.epoch.next();
            if let Some(p) = self.pending.pool_mut(&self.state, *id) {
                set_pg_num(p, grown, epoch);
                p.pgp_num = step.min(p.pg_num);
            }
        }
    }

    /// True if every PG of a pool was reported active since the pool last changed.
    fn pool_reported(&self, id: PoolId, p: &PgPool) -> bool {
        let stats = &self.state.mgr.stats;
        let busy = pg_state::PEERING | pg_state::CREATING | pg_state::STALE;
        let fit = |st: &wire::types::PgStat| {
            let s = st.state();
            s & pg_state::ACTIVE != 0 && s & busy == 0 && st.reported_epoch >= p.last_change
        };
        stats.pgs_of(id).filter(|(_, st)| fit(st)).count() >= p.pg_num as usize
    }

    /// The next step of `pgp_num`.
    fn next_pgp_num(&self, p: &PgPool) -> u32 {
        let target = p.pgp_num_target.min(p.pg_num_target).min(p.pg_num);
        let sum = &self.state.mgr.stats.sum().stats.sum;
        let (out, all) = (sum.num_objects_misplaced.max(0) as f64, sum.num_object_copies.max(1) as f64);
        let room = self.state.options.target_max_misplaced_ratio - out / all;
        if room <= 0.0 {
            return p.pgp_num;
        }
        let step = ((f64::from(p.pg_num) * room) as u32).max(1);
        if target > p.pgp_num {
            target.min(p.pgp_num.saturating_add(step))
        } else {
            target.max(p.pgp_num.saturating_sub(step))
        }
    }
}
