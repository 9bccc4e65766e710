//! The balancer's run: it gathers the placement of all PGs in steps, chooses moves, and changes the map.
//!
//! Every `mgr/balancer/sleep_interval` it begins anew, unless it found nothing to do under the present map. It waits
//! while PGs are unknown, inactive or degraded, or `target_max_misplaced_ratio` of all objects is misplaced. Which shard
//! moves where is a rule of `mgr::balance` (`moves`); whether it may work now is decided in `state::balance`; the
//! commands are in `command::mgr::balancer`.
//!
//! Invariant: a tick places at most `PGS_A_TICK` PGs.
//!
//! Tests: an assertion.

use crate::command::rehearse::steps::KEY as REHEARSED;
use crate::core::MonCore;
use crate::state::balance::{carry_out, changed_since, choose, may_balance, options, shard_bytes};
use crate::state::log::Prio;
use base::errno;
use base::unreached;
use mgr::balance::Balancer;
use std::sync::Arc;
use std::time::Duration;

/// PGs placed in one tick; each takes some 10 microseconds.
const PGS_A_TICK: usize = 2048;
/// Time since an OSD came up, went down, in or out, before which the balancer moves nothing; less with shorter pauses
/// between its runs.
const SETTLE: Duration = Duration::from_secs(60);
/// Time after which an inactive balancer looks at its options again.
const LOOK: Duration = Duration::from_secs(5);
/// The result while a rehearsed change is not committed: a move would stand in the way of its undo.
const WAITS: &str = "A rehearsed change is carried out and not committed";

impl MonCore {
    /// Runs the balancer if it is time, or goes on gathering.
    pub(in crate::core) fn tick_balance(&mut self) {
        if self.state.options.external_mgr {
            return;
        }
        let mut b = std::mem::take(self.state.mgr_mut().balancer_mut());
        self.run_balance(&mut b);
        *self.state.mgr_mut().balancer_mut() = b;
    }

    fn run_balance(&mut self, b: &mut Balancer) {
        let (map, now) = (Arc::clone(&self.state.osdmap), self.now);
        if !b.is_due(now.mono) {
            return;
        }
        let options = options(&self.state);
        if !b.is_gathering() {
            // An operator may be at work: what moves now may have to move back.
            let changed = map.last_up_change.max(map.last_in_change).to_unix();
            if let Some(wait) =
                now.wall.to_unix().checked_sub(changed).and_then(|age| SETTLE.min(options.sleep).checked_sub(age))
                && !wait.is_zero()
            {
                b.wait_until(now.mono + wait);
                return;
            }
            b.wait_until(now.mono + if options.active { options.sleep } else { LOOK });
            if !options.active || b.rests(map.epoch, &options) || !options.permits(now.wall) {
                return;
            }
            b.begin(now);
        }
        let done = if self.state.kv.contains_key(REHEARSED) {
            Err((errno::EAGAIN, format!("{WAITS}; see `belemnite rehearse status`")))
        } else if let Err(e) = may_balance(&self.state, &options) {
            Err(e)
        } else {
            let Some(g) = b.gather() else { return unreached("a run has begun to gather") };
            let before = g.placed();
            let complete = g.step(&map, PGS_A_TICK);
            debug_assert!(g.placed() - before <= PGS_A_TICK, "a tick placed {} PGs", g.placed() - before);
            if !complete {
                return;
            }
            let gathered = b.take_gathered();
            let mut spread = gathered.finish(&map, |id, p| shard_bytes(&self.state, id, p));
            let pools = options.pools.iter().copied().filter(|p| map.pool(*p).is_some()).collect();
            choose(&self.state, &options, &mut spread, &pools)
        };
        match done {
            Ok(plan) => {
                let n = carry_out(&self.state, &mut self.pending, &plan);
                if n == 0 {
                    let (_, text) = changed_since();
                    return b.stayed(now.mono, text, false, map.epoch, options);
                }
                b.moved(now.mono);
                let line = match plan.moves.len() {
                    0 => format!("balancer: changes the primaries of {n} placement groups"),
                    moves => format!("balancer: moves {moves} shards of {n} placement groups"),
                };
                self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            }
            Err((rc, text)) => {
                b.stayed(now.mono, text, rc == errno::EALREADY, map.epoch, options);
            }
        }
    }
}
