//! The balancer's decisions on the state: whether it may work now, which moves it makes, and the change of the map.
//!
//! The optimizer is `mgr::balance`; `core::pool::balance` runs it in steps, `command::mgr::balancer` has the commands.
//!
//! Invariants:
//!  1. A plan examines at most `TRIES` sets.
//!  2. An item is changed only if it is as it was when its PG was placed.
//!
//! Tests: `crates/mgr/src/balance/tests.rs` (1, `a_plan_ends_with_its_tries`),
//! `tests/does_the_balancer_even_osds_out.rs` (2, `a_plan_leaves_alone_what_has_changed_since`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{OsdId, PgId, PoolId, errno};
use cluster::osdmap::osd_state;
use cluster::{OsdMap, PgPool, release};
use mgr::balance::{BalancerOptions, Limits, NOTHING, NOTHING_TO_READ, Plan, ReadScores, Spread, shard_share};
use wire::types::pg_state;

use super::config::mgr_options;
use super::{ClusterState, Pending, primaries};

/// Sets that one plan examines.
const TRIES: usize = 20_000;
/// Most PGs that a command places in its turn.
const PGS_A_COMMAND: u64 = 32_768;
/// Most PGs that a listing of pools places, because tools ask for it often.
const PGS_A_LISTING: u64 = 4096;

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
    } else if !o.moves_shards() && !o.chooses_primaries() {
        Err((errno::ENOEXEC, "Please do \"ceph balancer mode\" to choose a valid mode first".into()))
    } else {
        mode_allowed(state, map, &o.mode).map_err(|text| (errno::EPERM, text))
    }
}

/// Refuses a mode whose entries of the map some clients, OSDs or monitors would not see.
pub(crate) fn mode_allowed(state: &ClusterState, map: &OsdMap, mode: &str) -> Result<(), String> {
    let reads = matches!(mode, "read" | "upmap-read");
    if !reads {
        let old = mode == "upmap" && map.require_min_compat_client < release::LUMINOUS;
        return if old { Err(needs_luminous(map)) } else { Ok(()) };
    }
    if map.require_min_compat_client < primaries::SINCE {
        return Err(format!(
            "min_compat_client \"{}\" < \"reef\", which is required for pg-upmap-primary. Try \"ceph osd \
             set-require-min-compat-client reef\" before enabling this mode",
            release::name(map.require_min_compat_client)
        ));
    }
    primaries::daemons_allow(state, map).map_err(|why| format!("{why} before enabling this mode"))
}

/// The refusal of upmaps where clients may be too old for them.
fn needs_luminous(map: &OsdMap) -> String {
    format!(
        "min_compat_client \"{}\" < \"luminous\", which is required for pg-upmap. Try \"ceph osd \
         set-require-min-compat-client luminous\" before enabling this mode",
        release::name(map.require_min_compat_client)
    )
}

/// Mean bytes of a PG shard of a pool.
pub(crate) fn shard_bytes(state: &ClusterState, id: PoolId, p: &PgPool) -> f64 {
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

/// The number of PGs whose leads a listing of pools counts. `None` in a cluster with too many for a listing, or whose
/// monitors would not show it.
fn pgs_to_score(map: &OsdMap) -> Option<u64> {
    let n: u64 = map.pools.values().map(|p| u64::from(p.pg_num)).sum();
    (n <= PGS_A_LISTING && map.require_osd_release >= primaries::SINCE).then_some(n)
}

/// How evenly the PGs of each replicated pool are led, as monitors since Reef show it.
pub(crate) fn read_scores(state: &ClusterState) -> Arc<ReadScores> {
    let map = &state.osdmap;
    if let Some(known) = state.mgr.read_scores(map.epoch) {
        return Arc::clone(known);
    }
    if pgs_to_score(map).is_none() {
        return Arc::default();
    }
    let spread = Spread::of(map, |_, _| 0.0);
    Arc::new(map.pools.keys().filter_map(|id| Some((*id, spread.read_score(map, *id)?))).collect())
}

/// The number of PGs that a listing of pools has to place under the present map.
pub(crate) fn placed_by_listing(state: &ClusterState) -> u64 {
    if state.mgr.read_scores(state.osdmap.epoch).is_some() {
        return 0;
    }
    pgs_to_score(&state.osdmap).unwrap_or(0)
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
    let mut plan = Plan::default();
    if o.moves_shards() {
        plan = spread.plan(map, &pools, limits, &|osd| is_closed(state, osd));
    }
    // Shards first: a move may take the place of a chosen primary. Where none was found, there may still be some.
    let shards_cut = plan.is_cut();
    if o.chooses_primaries() && plan.moves.is_empty() {
        plan = spread.plan_reads(map, &pools, o.moves, TRIES);
    }
    if !plan.moves.is_empty() || !plan.leads.is_empty() {
        Ok(plan)
    } else if plan.is_cut() || shards_cut {
        let text = format!("No move was found among the {TRIES} sets that one plan examines; try again later");
        Err((errno::EAGAIN, text))
    } else {
        Err((errno::EALREADY, if o.moves_shards() { NOTHING } else { NOTHING_TO_READ }.into()))
    }
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
    now.len() + carry_out_leads(state, pending, plan)
}

/// Puts a plan's chosen primaries into the pending map, except those that have changed or would have no effect.
fn carry_out_leads(state: &ClusterState, pending: &mut Pending, plan: &Plan) -> usize {
    let map = pending.map(state);
    if plan.leads.is_empty() || mode_allowed(state, &map, "read").is_err() {
        return 0;
    }
    let mut next = (*map).clone();
    let mut done = 0;
    for (pg, lead) in &plan.leads {
        if map.pg_upmap_primaries.get(pg).copied() != lead.before {
            continue;
        }
        if let Some(o) = lead.after {
            next.pg_upmap_primaries.insert(*pg, o);
            if next.void_primary(*pg).is_some() {
                continue;
            }
        }
        pending.set_upmap_primary(state, *pg, lead.after);
        done += 1;
    }
    done
}

fn before<'a>(plan: &'a Plan, pg: &PgId) -> &'a [(OsdId, OsdId)] {
    plan.before.get(pg).map_or(&[], Vec::as_slice)
}

/// True if PGs are held where they are when OSDs join, because the balancer would move what is held.
pub(crate) fn may_hold(state: &ClusterState) -> bool {
    let o = options(state);
    let old_clients = state.osdmap.require_min_compat_client < release::LUMINOUS;
    !state.options.external_mgr && o.active && o.moves_shards() && o.hold_growth && !old_clients
}
