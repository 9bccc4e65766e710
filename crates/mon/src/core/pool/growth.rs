//! Keeps PGs with objects where they are when OSDs join; the balancer moves them later, at its pace.
//!
//! The change that lets an OSD join gets the upmap items in the same proposal, so that no OSD sees a map by which the PGs
//! move. `mgr::balance::Growth` finds the items. Of very many PGs the rest follows with the ticks; until then those PGs may
//! begin to move.
//!
//! Invariant: a proposal or tick looks at no more than [`PGS_A_STEP`] PGs.
//!
//! Tests: an assertion.

use crate::core::MonCore;
use crate::state::balance::{may_hold, options};
use crate::state::log::Prio;
use base::PgId;
use mgr::balance::joins;
use std::sync::Arc;

/// PGs that are looked at in one proposal or tick; each takes 20 to 30 microseconds.
const PGS_A_STEP: usize = 8192;

impl MonCore {
    /// Adds to the pending change, if OSDs join by it, what keeps PGs in their places.
    pub(in crate::core) fn hold_growth(&mut self) {
        if self.pending.inc().is_none_or(|i| i.crush.is_empty() && i.new_weight.is_empty()) {
            return;
        }
        let after = self.pending.map(&self.state);
        if joins(&self.state.osdmap, &after) && may_hold(&self.state) {
            self.ticks.growth().begin(Arc::clone(&self.state.osdmap));
            self.step_growth();
        }
    }

    /// Goes on with PGs that were left.
    pub(in crate::core) fn tick_growth(&mut self) {
        if self.ticks.growth().is_under_way() {
            self.step_growth();
        }
    }

    fn step_growth(&mut self) {
        let mut growth = std::mem::take(self.ticks.growth());
        let after = self.pending.map(&self.state);
        let pools = options(&self.state).pools;
        let state = &self.state;
        // What has no objects moves at no cost.
        let looked = std::cell::Cell::new(0);
        let wanted = |pg: PgId| {
            looked.set(looked.get() + 1);
            (pools.is_empty() || pools.contains(&pg.pool))
                && match state.mgr.stats.pg(pg) {
                    Some(s) => s.stats.sum.num_objects > 0,
                    None => !state.osds.creating.contains_key(&pg),
                }
        };
        let held = growth.step(&after, PGS_A_STEP, &wanted);
        debug_assert!(looked.get() <= PGS_A_STEP, "a step looked at {} PGs", looked.get());
        let n = held.len();
        for (pg, items) in held {
            self.pending.set_upmap_items(&self.state, pg, items);
        }
        if n > 0 {
            let line = format!("balancer: holds {n} placement groups where they are while OSDs join");
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        }
        *self.ticks.growth() = growth;
    }
}
