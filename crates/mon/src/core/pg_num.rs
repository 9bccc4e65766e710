//! The manager's part of changing a pool's number of PGs: commands set targets, and here the map goes there.
//!
//! `pg_num` grows in one step once every PG of the pool is active and none is being made; a split moves no data between OSDs.
//! `pgp_num` follows in steps small enough that not more than `target_max_misplaced_ratio` of all objects are out of place at a
//! time, each when the reports show what the one before did.

use super::MonCore;
use super::log::Prio;
use base::{Epoch, PoolId};
use cluster::PgPool;
use cluster::pool::flag;
use std::sync::Arc;
use wire::types::pg_state;

impl MonCore {
    pub(super) fn tick_pg_num(&mut self) {
        if self.state.options.external_mgr {
            return;
        }
        let map = Arc::clone(&self.state.osdmap);
        for (id, p) in map.pools.iter() {
            if p.pg_num_target == p.pg_num && p.pgp_num_target == p.pgp_num || p.has_flag(flag::CREATING) {
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
        let stats = &self.state.stats;
        let busy = pg_state::PEERING | pg_state::CREATING | pg_state::STALE;
        let fit = |st: &wire::types::PgStat| {
            let s = st.state();
            s & pg_state::ACTIVE != 0 && s & busy == 0 && st.reported_epoch >= p.last_change
        };
        stats.pgs_of(id).filter(|(_, st)| fit(st)).count() >= p.pg_num as usize
    }

    /// The next step of `pgp_num`.
    fn next_pgp_num(&self, p: &PgPool) -> u32 {
        let target = p.pgp_num_target.min(p.pg_num);
        let sum = &self.state.stats.sum().stats.sum;
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

/// Gives a pool more PGs as of `epoch`.
pub(crate) fn set_pg_num(p: &mut PgPool, pg_num: u32, epoch: Epoch) {
    if p.pg_num != pg_num {
        p.pg_num = pg_num;
        p.pg_num_pending = pg_num;
        // Clients of then don't know that a split is a new interval.
        p.last_force_op_resend_prenautilus = epoch;
        p.last_force_op_resend_preluminous = epoch;
    }
    p.last_change = epoch;
}
