//! The balancer's run: it gathers the placement of all PGs in steps, chooses moves, and changes the map.
//!
//! Every `mgr/balancer/sleep_interval` it begins anew, unless it found nothing to do under the present map. It waits
//! while PGs are unknown, inactive or degraded, or `target_max_misplaced_ratio` of all objects is misplaced. The
//! optimizer is `mgr::balance`; the commands are in `command::balancer`.
//!
//! Invariants:
//!  1. A tick places at most `PGS_A_TICK` PGs, and a plan examines at most `TRIES` sets.
//!  2. An item is changed only if it is as it was when its PG was placed.

use super::MonCore;
use crate::command::config::mgr_options;
use crate::command::rehearse_steps::KEY as REHEARSED;
use crate::state::log::Prio;
use crate::state::{ClusterState, Pending};
use base::{OsdId, PgId, PoolId, errno};
use cluster::osdmap::osd_state;
use cluster::{OsdMap, PgPool, release};
use mgr::balance::{Balancer, BalancerOptions, CREATED, Gather, Limits, NOTHING, Plan, Spread, shard_share};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use wire::types::pg_state;

/// PGs placed in one tick; each takes some 10 microseconds.
const PGS_A_TICK: usize = 2048;
/// Sets that one plan examines.
const TRIES: usize = 20_000;
/// Most PGs that a command places in its turn.
const PGS_A_COMMAND: u64 = 32_768;
/// Time since an OSD came up, went down, in or out, before which the balancer moves nothing; less with shorter pauses
/// between its runs.
const SETTLE: Duration = Duration::from_secs(60);
/// Time after which an inactive balancer looks at its options again.
const LOOK: Duration = Duration::from_secs(5);
/// The result while a rehearsed change is not committed: a move would stand in the way of its undo.
const WAITS: &str = "A rehearsed change is carried out and not committed";

/// The options in effect.
pub(crate) fn options(state: &ClusterState) -> BalancerOptions {
    BalancerOptions::of(&mgr_options(state, "mgr/balancer/"))
}

/// A reason why nothing can be optimized now: an errno and a text.
pub(crate) type NotNow = (i32, String);

/// Fails while the cluster's state speaks against moving data.
pub(crate) fn may_balance(state: &ClusterState, o: &BalancerOptions) -> Result<(), NotNow> {
    let again = |text: String| Err((errno::EAGAIN, text));
    let map = &state.osdmap;
    let (stats, total) = (&state.mgr.stats, state.mgr.stats.num_pg(map).max(1) as f64);
    let states = stats.states(map);
    let count = |f: &dyn Fn(u64) -> bool| states.iter().filter(|(s, _)| f(**s)).map(|(_, n)| *n).sum::<i64>();
    let unknown = count(&|s| s == 0);
    let inactive = count(&|s| s & pg_state::ACTIVE == 0);
    let sum = &stats.sum().stats.sum;
    let copies = sum.num_object_copies.max(1) as f64;
    let (degraded, misplaced) = (sum.num_objects_degraded as f64 / copies, sum.num_objects_misplaced as f64 / copies);
    let max = state.options.target_max_misplaced_ratio;
    if unknown > 0 {
        again(format!("Some PGs ({:.6}) are unknown; try again later", unknown as f64 / total))
    } else if degraded > 0.0 {
        again(format!("Some objects ({degraded:.6}) are degraded; try again later"))
    } else if inactive > 0 {
        again(format!("Some PGs ({:.6}) are inactive; try again later", inactive as f64 / total))
    } else if misplaced >= max {
        again(format!("Too many objects ({misplaced:.6} > {max:.6}) are misplaced; try again later"))
    } else if o.mode != "upmap" {
        Err((errno::ENOEXEC, "Please do \"ceph balancer mode\" to choose a valid mode first".into()))
    } else if map.require_min_compat_client < release::LUMINOUS {
        Err((errno::EPERM, needs_luminous(map)))
    } else {
        Ok(())
    }
}

/// The refusal of upmaps where clients may be too old for them.
pub(crate) fn needs_luminous(map: &OsdMap) -> String {
    format!(
        "min_compat_client \"{}\" < \"luminous\", which is required for pg-upmap. Try \"ceph osd \
         set-require-min-compat-client luminous\" before enabling this mode",
        release::name(map.require_min_compat_client)
    )
}

/// Mean bytes of a PG shard of a pool.
fn shard_bytes(state: &ClusterState, id: PoolId, p: &PgPool) -> f64 {
    let bytes = state.mgr.stats.pool(id).stats.sum.num_bytes.max(0) as f64;
    bytes / f64::from(p.pg_num.max(1)) * shard_share(&state.osdmap, p)
}

/// The spread under a map, gathered at once. Fails if there are too many PGs for one turn.
pub(crate) fn spread_now(state: &ClusterState, map: &OsdMap) -> Result<Spread, NotNow> {
    let n: u64 = map.pools.values().map(|p| u64::from(p.pg_num)).sum();
    if n > PGS_A_COMMAND {
        let text =
            format!("{n} PGs are too many to place for a command; `ceph balancer on` goes through them in steps");
        return Err((errno::EAGAIN, text));
    }
    Ok(Spread::of(map, |id, p| shard_bytes(state, id, p)))
}

/// The present map with a plan carried out.
pub(crate) fn map_after(state: &ClusterState, plan: &Plan) -> Result<Arc<OsdMap>, NotNow> {
    let mut pending = Pending::default();
    if carry_out(state, &mut pending, plan) == 0 {
        return Err(changed_since());
    }
    Ok(pending.map(state))
}

/// The refusal of a plan whose placement groups have all changed.
pub(crate) fn changed_since() -> NotNow {
    (errno::EAGAIN, "the placement groups of the plan have changed: optimize again".into())
}

/// Chooses moves in a spread. `pools` limits them; empty for all. Fails if there is nothing to move.
pub(crate) fn choose(
    state: &ClusterState,
    o: &BalancerOptions,
    spread: &mut Spread,
    pools: &BTreeSet<PoolId>,
) -> Result<Plan, NotNow> {
    let map = &state.osdmap;
    let still = |p: &PgPool| {
        p.pg_num == p.pg_num_target && p.pgp_num == p.pgp_num_target && p.pg_num_pending == p.pg_num && p.size > 0
    };
    let wanted = |id: &PoolId| pools.is_empty() || pools.contains(id);
    let pools = map.pools.iter().filter(|(id, p)| wanted(id) && still(p)).map(|(id, _)| *id).collect();
    // A shard is taken for one of the average size: so many shards are misplaced at most.
    let sum = &state.mgr.stats.sum().stats.sum;
    let misplaced = sum.num_objects_misplaced.max(0) as f64 / sum.num_object_copies.max(1) as f64;
    let shards: f64 = map.pools.values().map(|p| f64::from(p.pg_num) * f64::from(p.size)).sum();
    let room = ((state.options.target_max_misplaced_ratio - misplaced).max(0.0) * shards) as usize;
    let limits = Limits { deviation: o.deviation, moves: o.moves.min(room).max(1), tries: TRIES };
    let plan = spread.plan(map, &pools, limits, &|osd| is_closed(state, osd));
    if plan.moves.is_empty() { Err((errno::EALREADY, NOTHING.into())) } else { Ok(plan) }
}

/// True for an OSD that shall take no more data, because it is nearly full.
fn is_closed(state: &ClusterState, osd: OsdId) -> bool {
    let map = &state.osdmap;
    if map.state(osd) & (osd_state::NEARFULL | osd_state::BACKFILLFULL | osd_state::FULL) != 0 {
        return true;
    }
    let Some(fs) = state.mgr.stats.osd(osd).map(|s| s.statfs) else { return false };
    let used = (fs.total - fs.available).max(0) as f64 / fs.total.max(1) as f64;
    map.nearfull_ratio > 0.0 && used >= f64::from(map.nearfull_ratio)
}

/// Puts a plan's items into the pending map, except those of PGs whose items have changed. Returns the number of PGs.
pub(crate) fn carry_out(state: &ClusterState, pending: &mut Pending, plan: &Plan) -> usize {
    let map = pending.map(state);
    let same = |pg: &PgId| map.pg_upmap_items.get(pg).map_or(&[][..], Vec::as_slice) == before(plan, pg);
    let is_there = |pg: &PgId| map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num.min(p.pg_num_pending));
    let now: Vec<_> = plan.items.iter().filter(|(pg, _)| is_there(pg) && same(pg)).collect();
    for (pg, items) in &now {
        pending.set_upmap_items(state, **pg, (*items).clone());
    }
    now.len()
}

fn before<'a>(plan: &'a Plan, pg: &PgId) -> &'a [(OsdId, OsdId)] {
    plan.before.get(pg).map_or(&[], Vec::as_slice)
}

impl MonCore {
    /// Runs the balancer if it is time, or goes on gathering.
    pub(super) fn tick_balance(&mut self) {
        if self.state.options.external_mgr {
            return;
        }
        let mut b = std::mem::take(&mut self.state.mgr.balancer);
        self.run_balance(&mut b);
        self.state.mgr.balancer = b;
    }

    fn run_balance(&mut self, b: &mut Balancer) {
        let (map, now) = (Arc::clone(&self.state.osdmap), self.now);
        if b.gather.is_none() && now.mono < b.next {
            return;
        }
        let options = options(&self.state);
        if b.gather.is_none() {
            // An operator may be at work: what moves now may have to move back.
            let changed = map.last_up_change.max(map.last_in_change).to_unix();
            if let Some(wait) =
                now.wall.to_unix().checked_sub(changed).and_then(|age| SETTLE.min(options.sleep).checked_sub(age))
                && !wait.is_zero()
            {
                b.next = now.mono + wait;
                return;
            }
            b.next = now.mono + if options.active { options.sleep } else { LOOK };
            let rests = b.rests.as_ref().is_some_and(|(e, o)| *e == map.epoch && *o == options);
            if !options.active || rests || !options.permits(now.wall) {
                return;
            }
            (b.last_started, b.began) = (now.wall, now.mono);
            b.gather = Some(Gather::default());
        }
        let done = if self.state.kv.contains_key(REHEARSED) {
            Err((errno::EAGAIN, format!("{WAITS}; see `belemnite rehearse status`")))
        } else if let Err(e) = may_balance(&self.state, &options) {
            Err(e)
        } else {
            let Some(g) = b.gather.as_mut() else { return };
            if !g.step(&map, PGS_A_TICK) {
                return;
            }
            let gathered = b.gather.take().unwrap_or_default();
            let mut spread = gathered.finish(&map, |id, p| shard_bytes(&self.state, id, p));
            let pools = options.pools.iter().copied().filter(|p| map.pool(*p).is_some()).collect();
            choose(&self.state, &options, &mut spread, &pools)
        };
        b.gather = None;
        b.last_duration = Some(now.mono.since(b.began));
        match done {
            Ok(plan) => {
                let n = carry_out(&self.state, &mut self.pending, &plan);
                (b.result, b.even, b.rests) = (CREATED.to_owned(), false, None);
                let line = format!("balancer: moves {} shards of {n} placement groups", plan.moves.len());
                self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            }
            Err((rc, text)) => {
                b.even = rc == errno::EALREADY;
                b.rests = b.even.then(|| (map.epoch, options));
                b.result = text;
            }
        }
    }
}
