//! Removal of overrides of placement that have no effect or are void: temps, upmaps, chosen primaries.
//!
//! Ceph's monitor looks at all of them with each epoch. This one goes through them in order of their PGs, some in each
//! tick, and rests once it has seen all under one map. So neither an epoch nor a tick costs in proportion to their
//! number.

use crate::core::MonCore;
use crate::state::log::Prio;
use base::{Epoch, PgId};
use cluster::Incremental;
use cluster::osdmap::RuleOsds;
use std::sync::Arc;

/// PGs with overrides that are looked at in one tick. CRUSH takes some 20 microseconds for each.
const IN_A_TICK: usize = 256;
/// PGs that a line of the cluster log names.
const NAMED: usize = 5;

/// Progress of the pass; see the module.
#[derive(Debug, Default)]
pub(in crate::core) struct Overrides {
    /// The last PG that was looked at in the present pass.
    at: Option<PgId>,
    /// The map with which the present pass began.
    since: Epoch,
    /// The newest map under which a whole pass began.
    seen: Epoch,
    rules: RuleOsds,
}

impl MonCore {
    /// Removes overrides that have lost their sense from the next PGs.
    pub(in crate::core) fn tick_overrides(&mut self) {
        let map = Arc::clone(&self.state.osdmap);
        if self.ticks.overrides().seen == map.epoch {
            return;
        }
        let mut pass = std::mem::take(self.ticks.overrides());
        if pass.at.is_none() {
            pass.since = map.epoch;
        }
        let some = map.overridden_after(pass.at, IN_A_TICK);
        let mut cleaned = Vec::new();
        for pg in &some {
            // The map changes only if there is something to remove.
            let mut trial = Incremental::new(map.fsid, map.epoch.next(), map.modified);
            if map.clean_overrides(*pg, &mut pass.rules, &mut trial).is_empty() {
                continue;
            }
            let gone = map.clean_overrides(*pg, &mut pass.rules, self.pending.inc_mut(&self.state));
            if !gone.is_empty() {
                cleaned.push(format!("{pg} ({})", gone.join(", ")));
            }
        }
        if !cleaned.is_empty() {
            let n = cleaned.len();
            cleaned.truncate(NAMED);
            let line = format!("removed overrides of placement without effect from {n} PGs: {}", cleaned.join(", "));
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        }
        pass.at = some.last().copied().filter(|_| some.len() == IN_A_TICK);
        if pass.at.is_none() {
            pass.seen = pass.since;
        }
        *self.ticks.overrides() = pass;
    }
}
