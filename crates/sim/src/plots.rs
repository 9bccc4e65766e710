//! Faults of several steps against the members of one PG. A cluster must survive them, but single faults at random
//! times cause such a sequence once in a thousand runs.
//!
//! A plot is drawn as a whole when it begins, and its steps are carried out at their times. One runs at a time, and
//! each ends with all its OSDs started and all its links healed.

use crate::load::Load;
use crate::net::NodeId;
use crate::node::{Node, osd_node};
use crate::options::Fault;
use crate::oracle;
use crate::queue::{MS, SEC, Time};
use crate::rough::MAPS_KEPT;
use crate::world::World;
use base::OsdId;
use base::rng::Rng;
use std::collections::VecDeque;

/// Longest time until the cluster goes on without an OSD that is gone.
const NOTICED: Time = 30 * SEC;
/// Time of one request on a disk that is made slow.
const SLUGGISH: Time = 300 * MS;

/// A step of a plot.
#[derive(Clone, Debug)]
pub enum Step {
    /// Kills an OSD, or (true) cuts its power.
    Crash(NodeId, bool),
    /// Starts an OSD.
    Start(NodeId),
    /// Cuts these links.
    Cut(Vec<(NodeId, NodeId)>),
    /// Heals these links.
    Heal(Vec<(NodeId, NodeId)>),
    /// Makes a disk slower than usual by this factor.
    Disk(NodeId, u64),
    /// Marks an OSD down, although the others may not have noticed its death yet.
    Down(NodeId),
    /// Marks a running OSD down.
    MarkDown(NodeId),
    /// Marks an OSD out (true) or in.
    Out(NodeId, bool),
    /// Makes a map in which nothing of use changes.
    Map(bool),
    /// Kills the members of the PG of an object, whichever they are now.
    CrashMembers(usize),
    /// Starts all OSDs that do not run.
    StartAll,
    /// Sets (true) or removes the trap: a stray that is asked for its log dies before it gets the request.
    Trap(bool),
}

/// The steps, each with the time since the previous one.
pub type Plot = VecDeque<(Time, Step)>;

/// The OSDs that serve a random object, the primary first.
fn members(rng: &mut Rng, w: &World) -> Option<Vec<NodeId>> {
    members_of(rng.below(w.ctx.options.work.objects as u64) as usize, w)
}

/// The OSDs that serve an object, the primary first.
fn members_of(object: usize, w: &World) -> Option<Vec<NodeId>> {
    let object = Load::name(object);
    let map = oracle::map(w)?;
    let at = map.pg_to_up_acting(map.object_to_pg(map.pool_by_name("data")?, &object, b"", b"")?);
    let primary = usize::try_from(at.acting_primary.0).ok().filter(|n| *n < w.ctx.options.size.osds)?;
    let there = at.acting.iter().filter(|o| **o != OsdId::NONE);
    let rest = there.filter_map(|o| usize::try_from(o.0).ok()).filter(|o| *o != primary);
    let all: Vec<NodeId> = std::iter::once(primary).chain(rest).map(osd_node).collect();
    let run = |n: &NodeId| w.nodes[*n].inc().is_some() && !w.is_paused(*n);
    all.iter().all(run).then_some(all)
}

/// Draws a plot of this kind, if the cluster's state allows it.
pub fn draw(kind: Fault, rng: &mut Rng, w: &World) -> Option<Plot> {
    let mut all = members(rng, w)?;
    if all.len() < 2 && kind != Fault::Blackout {
        return None;
    }
    let mut plot = Plot::new();
    match kind {
        Fault::Turns => {
            // The order is random: the last OSD with all writes need not be the first to return.
            for i in (1..all.len()).rev() {
                all.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let mut away: Option<NodeId> = None;
            for n in all {
                plot.push_back((
                    away.map_or(0, |_| NOTICED / 2 + rng.below(NOTICED)),
                    Step::Crash(n, rng.chance(1, 2)),
                ));
                if rng.chance(2, 3) {
                    plot.push_back((0, Step::Down(n)));
                }
                if let Some(o) = away.replace(n) {
                    plot.push_back((rng.below(SEC), Step::Start(o)));
                }
            }
            plot.extend(away.map(|n| (NOTICED / 2 + rng.below(NOTICED), Step::Start(n))));
        }
        Fault::Blackout => {
            let slow = all[(1 + rng.below(all.len() as u64 - 1) as usize) % all.len()];
            let factor = (SLUGGISH / w.ctx.options.disk.delay).max(1);
            plot.push_back((0, Step::Disk(slow, factor)));
            let mut pause = SEC + rng.below(3 * SEC);
            for n in &all {
                plot.push_back((pause, Step::Crash(*n, true)));
                plot.push_back((0, Step::Down(*n)));
                pause = 0;
            }
            plot.push_back((0, Step::Disk(slow, 1)));
            // Often the OSD with the slow disk returns first, and is alone for a while.
            let first = if rng.chance(2, 3) { slow } else { all[0] };
            all.sort_by_key(|n| *n != first);
            let mut pause = SEC;
            for n in all {
                plot.push_back((pause, Step::Start(n)));
                pause = NOTICED / 2 + rng.below(NOTICED);
            }
        }
        Fault::LastWords => last_words(all[0], &mut plot, rng, w),
        Fault::Exile => exile(&all, &mut plot),
        Fault::Hearsay => hearsay(all, &mut plot, rng, w),
        Fault::LongGone => {
            let object = rng.below(w.ctx.options.work.objects as u64) as usize;
            long_gone(*members_of(object, w)?.last()?, object, &mut plot, rng);
        }
        _ => return None,
    }
    Some(plot)
}

/// Clients hear a primary and no other OSD does, until it dies.
fn last_words(osd: NodeId, plot: &mut Plot, rng: &mut Rng, w: &World) {
    let mut links = Vec::new();
    let one_way = rng.chance(1, 2);
    for o in (0..w.ctx.options.size.osds).map(osd_node).filter(|o| *o != osd) {
        links.push((osd, o));
        if !one_way {
            links.push((o, osd));
        }
    }
    plot.push_back((0, Step::Cut(links.clone())));
    plot.push_back((SEC + rng.below(6 * SEC), Step::Crash(osd, rng.chance(1, 2))));
    plot.push_back((0, Step::Heal(links)));
    if rng.chance(2, 3) {
        plot.push_back((0, Step::Down(osd)));
    }
    plot.push_back((NOTICED / 3 + rng.below(NOTICED / 2), Step::Start(osd)));
}

/// All members are out, and a stray that is asked for its log dies.
fn exile(all: &[NodeId], plot: &mut Plot) {
    plot.extend(all.iter().map(|n| (0, Step::Out(*n, true))));
    plot.push_back((0, Step::Trap(true)));
    plot.push_back((NOTICED, Step::Trap(false)));
    plot.extend(all.iter().map(|n| (0, Step::Out(*n, false))));
}

/// One member is away until its copies are elsewhere and the maps since are trimmed. It returns when the OSDs that
/// served meanwhile are dead.
fn long_gone(away: NodeId, object: usize, plot: &mut Plot, rng: &mut Rng) {
    plot.push_back((0, Step::Crash(away, false)));
    plot.push_back((0, Step::Down(away)));
    plot.push_back((0, Step::Out(away, true)));
    // The copies are made elsewhere, and each map lets an older one go.
    for i in 0..2 * u64::from(MAPS_KEPT) {
        plot.push_back((NOTICED / 3 + rng.below(SEC), Step::Map(i % 2 == 0)));
    }
    plot.push_back((NOTICED, Step::CrashMembers(object)));
    plot.push_back((rng.below(SEC), Step::Out(away, false)));
    plot.push_back((0, Step::Start(away)));
    plot.push_back((NOTICED, Step::StartAll));
}

/// One member is cut off while the others die. Its links to other OSDs heal before those to the monitors, so it gets
/// the later maps from OSDs first.
fn hearsay(mut all: Vec<NodeId>, plot: &mut Plot, rng: &mut Rng, w: &World) {
    let alone = all.remove(rng.below(all.len() as u64) as usize);
    let both = |o: NodeId| [(alone, o), (o, alone)];
    let osds = || (0..w.ctx.options.size.osds).map(osd_node).filter(|o| *o != alone);
    plot.push_back((0, Step::Cut(osds().flat_map(both).collect())));
    let mons = || w.ctx.mons().into_iter().flat_map(both).collect();
    plot.push_back((0, Step::Cut(mons())));
    plot.push_back((rng.below(SEC), Step::MarkDown(alone)));
    for n in &all {
        plot.push_back((SEC * 3 + rng.below(8 * SEC), Step::Crash(*n, false)));
        plot.push_back((0, Step::Down(*n)));
    }
    plot.push_back((SEC + rng.below(2 * SEC), Step::Heal(osds().flat_map(both).collect())));
    plot.push_back((NOTICED / 2, Step::Heal(mons())));
    let mut pause = NOTICED;
    for n in all {
        plot.push_back((pause, Step::Start(n)));
        pause = rng.below(SEC);
    }
}

/// Carries out a step, and returns the command that it needs. At most `most` OSDs are taken down.
pub fn step(s: Step, most: usize, w: &mut World) -> Option<String> {
    w.ctx.line(|| format!("plot: {s:?}"));
    match s {
        Step::Crash(n, power) => {
            let down = (0..w.ctx.options.size.osds).map(osd_node).filter(|o| w.nodes[*o].inc().is_none()).count();
            if down < most {
                w.crash(n, power);
            }
        }
        Step::Start(n) => w.start(n),
        Step::Cut(links) => links.iter().for_each(|(a, b)| w.ctx.net.cut(*a, *b)),
        Step::Heal(links) => {
            let now = w.ctx.now();
            links.iter().for_each(|(a, b)| w.ctx.net.heal(*a, *b, now));
        }
        Step::Disk(n, factor) => {
            if let Node::Osd(o) = &mut w.nodes[n] {
                o.slow_disk = factor;
            }
        }
        Step::Map(set) => {
            let un = if set { "" } else { "un" };
            return Some(format!(r#"{{"prefix":"osd {un}set","key":"nodeep-scrub"}}"#));
        }
        Step::CrashMembers(object) => {
            for n in members_of(object, w).unwrap_or_default() {
                step(Step::Crash(n, false), most, w);
            }
        }
        Step::StartAll => (0..w.ctx.options.size.osds).map(osd_node).for_each(|n| w.start(n)),
        Step::Trap(set) => w.ctx.trap = set,
        Step::Out(n, true) => return Some(format!(r#"{{"prefix":"osd out","ids":["{}"]}}"#, n - 1)),
        Step::Out(n, false) => return Some(format!(r#"{{"prefix":"osd in","ids":["{}"]}}"#, n - 1)),
        Step::MarkDown(n) => return Some(format!(r#"{{"prefix":"osd down","ids":["{}"]}}"#, n - 1)),
        Step::Down(n) => {
            if w.nodes[n].inc().is_none() {
                return Some(format!(r#"{{"prefix":"osd down","ids":["{}"]}}"#, n - 1));
            }
        }
    }
    None
}
