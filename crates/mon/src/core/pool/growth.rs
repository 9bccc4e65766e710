//! Keeps PGs with objects where they are when OSDs join; the balancer moves them later, at its pace.
//!
//! The change that lets an OSD join gets the upmap items in the same proposal, so that no OSD sees a map by which the PGs
//! move. `mgr::balance::Growth` finds the items. Of very many PGs the rest follows with the ticks; until then those PGs may
//! begin to move. How far the pass is stands in the state, so that another monitor that begins to lead goes on with it.
//!
//! Invariants:
//!  1. A proposal or tick looks at no more than [`PGS_A_STEP`] PGs.
//!  2. A stored pass names the newest map. So one that is followed by maps of a program that knows no passes is dropped.
//!
//! Tests: an assertion (1); `tests/does_the_balancer_even_osds_out.rs` (2, `a_pass_ends_with_maps_that_were_made_without_it`).

use crate::command::rehearse::steps::KEY as REHEARSED;
use crate::core::MonCore;
use crate::core::reply::fetch::Fetch;
use crate::state::ClusterState;
use crate::state::balance::{may_hold, options};
use crate::state::log::Prio;
use base::{Epoch, OsdId, PgId, PoolId};
use cluster::OsdMap;
use cluster::osdmap::osd_state;
use mgr::balance::{GrowthFacts, StoredGrowth, joins};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// PGs that are looked at in one proposal or tick; each takes 20 to 30 microseconds.
const PGS_A_STEP: usize = 8192;

/// The monitor's knowledge of PGs.
struct Known<'a> {
    /// Pools whose PGs are kept; empty for all.
    pools: BTreeSet<PoolId>,
    state: &'a ClusterState,
    /// Number of PGs that were looked at.
    looked: Cell<usize>,
}

impl GrowthFacts for Known<'_> {
    fn is_wanted(&self, pg: PgId) -> bool {
        self.looked.set(self.looked.get() + 1);
        // What has no objects moves at no cost.
        (self.pools.is_empty() || self.pools.contains(&pg.pool))
            && match self.state.mgr.stats.pg(pg) {
                Some(s) => s.stats.sum.num_objects > 0,
                None => !self.state.osds.creating.contains_key(&pg),
            }
    }
    fn holders(&self, pg: PgId) -> &[OsdId] {
        self.state.mgr.stats.pg(pg).map_or(&[], |s| &s.acting)
    }
}

impl MonCore {
    /// Adds to the pending change, if OSDs join by it, what keeps PGs in their places.
    pub(in crate::core) fn hold_growth(&mut self) {
        // The undo of a rehearsed change brings back where PGs were; items would keep them where the change has put them.
        let is_undo = self.pending.kv.get(REHEARSED).is_some_and(Option::is_none);
        if is_undo || self.pending.inc().is_none_or(|i| i.crush.is_empty() && i.new_weight.is_empty()) {
            return;
        }
        let after = self.pending.map(&self.state);
        if joins(&self.state.osdmap, &after) && may_hold(&self.state) {
            self.ticks.growth().begin(Arc::clone(&self.state.osdmap));
            self.step_growth();
        }
    }

    /// Goes on with PGs that were left, also by the monitor that led before.
    pub(in crate::core) fn tick_growth(&mut self) {
        if self.ticks.asks_for_growth()
            && let Some(stored) = self.state.osds.growth.clone()
        {
            if stored.seen != self.state.osdmap.epoch {
                let (seen, now) = (stored.seen, self.state.osdmap.epoch);
                tracing::warn!(%seen, %now, "balancer: drops a pass that held PGs while OSDs joined, since maps were made without it");
                self.pending.set_growth(None);
                return;
            }
            let epochs = || stored.before.iter().map(|(_, e)| *e);
            let ranges = epochs().flat_map(|e| self.state.history.ranges_for_fulls(e, e)).collect();
            self.fetch(ranges, 0, Fetch::Growth(stored));
        }
        if self.ticks.growth().is_under_way() {
            self.step_growth();
        }
    }

    /// Goes on with the pass of the monitor that led before, with the maps that it compared with.
    pub(in crate::core) fn resume_growth(&mut self, stored: &StoredGrowth, maps: &BTreeMap<Epoch, Arc<OsdMap>>) {
        self.ticks.growth().resume(stored, |e| maps.get(&e).cloned());
    }

    /// Names the map that the pending change makes in the stored pass.
    pub(in crate::core) fn mark_growth(&mut self) {
        let next = if self.pending.inc().is_some() { self.state.osdmap.epoch.next() } else { self.state.osdmap.epoch };
        let going = match &self.pending.growth {
            Some(own) => own.clone(),
            None => self.state.osds.growth.clone().filter(|g| g.seen == self.state.osdmap.epoch),
        };
        if let Some(g) = going.filter(|g| g.seen != next) {
            self.pending.set_growth(Some(StoredGrowth { seen: next, ..g }));
        }
    }

    fn step_growth(&mut self) {
        let mut growth = std::mem::take(self.ticks.growth());
        let after = self.pending.map(&self.state);
        let facts = Known { pools: options(&self.state).pools, state: &self.state, looked: Cell::new(0) };
        let held = growth.step(&after, PGS_A_STEP, &facts);
        debug_assert!(facts.looked.get() <= PGS_A_STEP, "a step looked at {} PGs", facts.looked.get());
        // The newcomers are there to take the data of OSDs that are too full.
        let is_full = |o: OsdId| after.state(o) & (osd_state::BACKFILLFULL | osd_state::FULL) != 0;
        let relieves = |pg: PgId, items: &[(OsdId, OsdId)]| {
            items.iter().any(|(_, o)| is_full(*o) && !after.pg_to_raw_upmap(pg).contains(o))
        };
        let held: Vec<_> = held.into_iter().filter(|(pg, items)| !relieves(*pg, items)).collect();
        let n = held.len();
        for (pg, items) in held {
            self.pending.set_upmap_items(&self.state, pg, items);
        }
        if n > 0 {
            let line = format!("balancer: holds {n} placement groups where they are while OSDs join");
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        }
        let stored = growth.stored().map(|g| StoredGrowth { seen: self.state.osdmap.epoch, ..g });
        if self.pending.growth.as_ref().unwrap_or(&self.state.osds.growth) != &stored {
            self.pending.set_growth(stored);
        }
        *self.ticks.growth() = growth;
    }
}
