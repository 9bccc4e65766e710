//! Invariants of the cluster: queues are bounded, and in the end every PG is clean and all copies are equal.

use crate::files;
use crate::net::{INBOX_MAX, NodeId};
use crate::node::{Node, osd_node};
use crate::queue::SEC;
use crate::several;
use crate::world::World;
use base::{OsdId, PgId, PoolId};
use bytes::Bytes;
use cluster::OsdMap;
use cluster::osdmap::{WEIGHT_IN, osd_state};
use mon::core::MonCore;
use osd::core::control::Phase;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most events of a run's queue; more point at unbounded growth.
const EVENTS_MAX: usize = 500_000;

/// Fullness flags of OSDs, which no run has enough data for.
const FULLNESS: u32 = osd_state::NEARFULL | osd_state::BACKFILLFULL | osd_state::FULL;

/// Most maps of a run: a base number, and a number per second.
const EPOCHS_MAX: (u64, u64) = (400, 6);

/// Checks the sizes of all queues.
pub fn sizes(w: &mut World) {
    if let Some(what) = w.ctx.net.too_large.take() {
        w.ctx.violation(what);
    }
    if w.ctx.queue.len() > EVENTS_MAX {
        let n = w.ctx.queue.len();
        w.ctx.violation(format!("{n} events wait: the queue grows without bound"));
    }
    if w.ctx.net.longest > INBOX_MAX {
        let n = w.ctx.net.longest;
        w.ctx.violation(format!("{n} messages on one connection: a sender does not wait"));
    }
    let epochs = map(w).map_or(0, |m| u64::from(m.epoch.0));
    if epochs > EPOCHS_MAX.0 + EPOCHS_MAX.1 * w.ctx.now() / SEC {
        w.ctx.violation(format!("{epochs} maps: more than a run may make"));
    }
    if let Some(what) = waits_for_dead(w) {
        w.ctx.violation(what);
    }
    if let Some(what) = half_members(w) {
        w.ctx.violation(what);
    }
    for what in [several::false_copy(w), several::marked_down(w)].into_iter().flatten() {
        w.ctx.violation(what);
    }
    files::look(w);
    let limit = 200 + 50 * w.nodes.len() * w.nodes.len();
    if w.ctx.net.connections() > limit {
        let n = w.ctx.net.connections();
        w.ctx.violation(format!("{n} connections among {} nodes", w.nodes.len()));
    }
}

/// The core of the monitor, or of the leader if there are several.
#[must_use]
pub fn core(w: &World) -> Option<&MonCore> {
    let all = w.ctx.mons().into_iter().filter_map(|n| match &w.nodes[n] {
        Node::Mon(m) => m.core().map(|c| (0, c)),
        Node::Mons(m) => m.leads(),
        _ => None,
    });
    all.max_by_key(|(fence, _)| *fence).map(|(_, c)| c)
}

/// The monitor's map.
#[must_use]
pub fn map(w: &World) -> Option<Arc<OsdMap>> {
    core(w).map(|c| c.state().osdmap.clone())
}

/// The first reason why the cluster is not clean; `None` if it is.
#[must_use]
pub fn unclean(w: &World, pool: Option<PoolId>) -> Option<String> {
    let Some(map) = map(w) else { return Some("no monitor".into()) };
    let n = w.ctx.options.size.osds;
    for o in 0..n {
        let osd = OsdId(o as i32);
        if !map.is_up(osd) {
            return Some(format!("{osd} is down in map {}", map.epoch));
        }
        if map.state(osd) & FULLNESS != 0 {
            let stores = match &w.nodes[osd_node(o)] {
                Node::Osd(x) => x.process.as_ref().map(crate::node::osd::Process::statfs),
                _ => None,
            };
            return Some(format!("{osd} is full in map {}: state {:#x}, {stores:?}", map.epoch, map.state(osd)));
        }
        match &w.nodes[osd_node(o)] {
            Node::Osd(x) => match &x.process {
                Some(p) if p.phase() != Phase::Active => return Some(format!("{osd} is {:?}", p.phase())),
                Some(p) if p.epoch() >= map.epoch => {}
                Some(p) => return Some(format!("{osd} has map {} of {}", p.epoch(), map.epoch)),
                None => return Some(format!("{osd} does not run")),
            },
            _ => return Some(format!("{osd} is no OSD")),
        }
    }
    for (id, p) in map.pools.iter() {
        if pool.is_some_and(|x| x != *id) {
            continue;
        }
        if p.pg_num != p.pg_num_target || p.pg_num_pending != p.pg_num || p.pgp_num != p.pgp_num_target {
            let (has, soon, wants) = (p.pg_num, p.pg_num_pending, p.pg_num_target);
            return Some(format!("pool {} has {has} PGs, soon {soon}, wants {wants}, pgp_num {}", id.0, p.pgp_num));
        }
        for seed in 0..p.pg_num {
            let pg = PgId { pool: *id, seed };
            if let Some(why) = pg_unclean(w, &map, pg) {
                return Some(format!("{pg}: {why}"));
            }
        }
    }
    None
}

/// True if an OSD is out, or flags keep the cluster from becoming clean.
#[must_use]
pub fn held_back(w: &World) -> bool {
    use cluster::osdmap::map_flag::{
        NOBACKFILL, NODOWN, NOIN, NOOUT, NOREBALANCE, NORECOVER, NOSCRUB, NOUP, PAUSERD, PAUSEWR,
    };
    let flags = NODOWN | NOOUT | NOUP | NOIN | PAUSERD | PAUSEWR | NORECOVER | NOBACKFILL | NOREBALANCE | NOSCRUB;
    map(w).is_some_and(|m| {
        m.flags & flags != 0 || m.osd_weight.iter().take(w.ctx.options.size.osds).any(|v| *v != WEIGHT_IN)
    })
}

/// Number of PGs that still wait for a merge.
#[must_use]
pub fn merges(w: &World) -> u32 {
    map(w).map_or(0, |m| m.pools.values().map(|p| p.pg_num.saturating_sub(p.pg_num_target)).sum())
}

/// A PG that is not on the reactor of its name.
#[must_use]
pub fn astray(w: &World) -> Option<String> {
    for o in 0..w.ctx.options.size.osds {
        let Node::Osd(x) = &w.nodes[osd_node(o)] else { continue };
        if let Some(what) = x.process.as_ref().and_then(crate::node::osd::Process::astray) {
            return Some(format!("{}: {what}", x.osd));
        }
    }
    None
}

/// The deep scrubs that are not finished, or (with `count_errors`) found errors; `None` if all are done and clean.
#[must_use]
pub fn unscrubbed(w: &World, count_errors: bool) -> Option<String> {
    let mut busy = None;
    for o in 0..w.ctx.options.size.osds {
        let Node::Osd(x) = &w.nodes[osd_node(o)] else { continue };
        let Some(p) = &x.process else { continue };
        if p.scrub_all.is_some() {
            busy = Some(format!("{} has not begun to scrub", x.osd));
        }
        for pg in p.pgs().filter(|p| p.is_primary()) {
            let errors = pg.scrub_errors();
            if errors > 0 && count_errors {
                let found: Vec<String> = pg
                    .scrub_findings()
                    .map(|f| f.objects().map(|(h, b)| format!("{h}: {b:?}")).collect())
                    .unwrap_or_default();
                return Some(format!("a deep scrub of {} finds {errors} errors: {found:?}", pg.spg()));
            }
            if pg.is_scrubbing() {
                busy = Some(format!("{} is being scrubbed", pg.spg()));
            }
        }
    }
    busy
}

/// True if a scrub found errors.
#[must_use]
pub fn scrub_errors(w: &World) -> bool {
    let osds = (0..w.ctx.options.size.osds).map(osd_node);
    osds.filter_map(|n| if let Node::Osd(x) = &w.nodes[n] { x.process.as_ref() } else { None })
        .any(|p| p.pgs().any(|p| p.is_primary() && p.scrub_errors() > 0))
}

fn pg_unclean(w: &World, map: &OsdMap, pg: PgId) -> Option<String> {
    let at = map.pg_to_up_acting(pg);
    let size = map.pool(pg.pool).map_or(0, |p| p.size as usize);
    if at.acting.iter().filter(|o| **o != OsdId::NONE).count() < size {
        return Some(format!(
            "acting set {:?} of up {:?}; weights {:x?}, exceptions {:?} {:?}",
            at.acting,
            (0..w.ctx.options.size.osds).map(|o| map.is_up(OsdId(o as i32))).collect::<Vec<_>>(),
            map.osd_weight,
            map.pg_upmap_items.get(&pg),
            map.pg_temp.get(&pg),
        ));
    }
    if at.acting.as_slice() != at.up.as_slice() {
        return Some(format!("acting set {:?} is not the up set {:?}", at.acting, at.up));
    }
    let Node::Osd(o) = &w.nodes[osd_node(usize::try_from(at.acting_primary.0).ok()?)] else { return None };
    let Some(p) = &o.process else { return Some("primary does not run".into()) };
    let Some(machine) = p.led(map, pg) else { return Some(format!("{} does not have it", at.acting_primary)) };
    let bits = machine.state_bits();
    if bits & WHOLE != WHOLE || bits & !(WHOLE | TRIMMING) != 0 {
        return Some(format!(
            "state {} {:?} on {} of {:?}",
            wire::types::pg_state::to_string(bits),
            machine.state(),
            at.acting_primary,
            at.acting
        ));
    }
    None
}

/// The first PG or operation that is not served without one OSD; `None` if all are. Operations on unfound objects are
/// left out, because the missing OSD may have had the only copy of an unanswered write.
#[must_use]
pub fn unserved(w: &World, without: NodeId, clients: &[NodeId]) -> Option<String> {
    let map = map(w)?;
    let mut unfound: BTreeSet<Bytes> = BTreeSet::new();
    for (id, p) in map.pools.iter() {
        for seed in 0..p.pg_num {
            let pg = PgId { pool: *id, seed };
            let at = map.pg_to_up_acting(pg);
            let Ok(n) = usize::try_from(at.acting_primary.0) else { return Some(format!("{pg} has no primary")) };
            let machine = match &w.nodes[osd_node(n)] {
                Node::Osd(o) => o.process.as_ref().and_then(|p| p.led(&map, pg)),
                _ => None,
            };
            let Some(machine) = machine.filter(|m| m.epoch() == map.epoch) else {
                return Some(format!(
                    "{pg} is missing or behind on its primary {} of {:?}",
                    at.acting_primary, at.acting
                ));
            };
            if !machine.is_active() {
                let why = machine.inactive_reason();
                return Some(format!(
                    "{pg} is {:?} ({why:?}) on {} of {:?}",
                    machine.state(),
                    at.acting_primary,
                    at.acting
                ));
            }
            if osd_node(n) == without && machine.has_failed() {
                return Some(format!("{pg} is led by a copy that failed"));
            }
            unfound.extend(machine.unfound_objects().into_iter().map(|(h, _)| h.oid));
        }
    }
    for c in clients {
        if let Node::Client(c) = &w.nodes[*c]
            && let Some(id) = c.waiting().find(|id| !unfound.contains(&c.object_of(*id)))
        {
            return Some(format!("operation {id} has no answer"));
        }
    }
    None
}

/// A PG that waits for the log of a dead OSD.
#[must_use]
pub fn waits_for_dead(w: &World) -> Option<String> {
    (0..w.ctx.options.size.osds).find_map(|n| match &w.nodes[osd_node(n)] {
        Node::Osd(o) => {
            let mut pgs = o.process.as_ref()?.pgs();
            pgs.find_map(|p| Some(format!("{} waits for the log of {}, which is down", p.spg(), p.waits_for_dead()?)))
        }
        _ => None,
    })
}

/// A member of an acting set that is being backfilled, or that counts for more than it has.
#[must_use]
pub fn half_members(w: &World) -> Option<String> {
    (0..w.ctx.options.size.osds).find_map(|n| match &w.nodes[osd_node(n)] {
        Node::Osd(o) => o.process.as_ref()?.pgs().find_map(|p| Some(format!("{}: {}", p.spg(), p.fills_a_member()?))),
        _ => None,
    })
}

const WHOLE: u64 = wire::types::pg_state::ACTIVE | wire::types::pg_state::CLEAN;
const TRIMMING: u64 = wire::types::pg_state::SNAPTRIM | wire::types::pg_state::SNAPTRIM_WAIT;
