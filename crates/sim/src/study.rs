//! Measures the cost of the death and the return of one OSD in a cluster of a given size: time and messages, by kind.
//!
//! There are no other faults, no clients and no objects. The messages are those of maps, peering, heartbeats and
//! leases, which grow with OSDs and PGs, not with data.

use crate::node::{Node, osd_node};
use crate::options::{Options, PoolShape, Size};
use crate::oracle;
use crate::queue::{MS, SEC, Time, US};
use crate::run::Run;
use crate::world::World;
use base::{OsdId, PgId};
use std::collections::BTreeMap;

/// Longest time of a step.
const STEP_MAX: Time = 300 * SEC;
/// Time for which the idle cluster is measured.
const QUIET: Time = 20 * SEC;

/// The measurements of a step.
#[derive(Debug)]
pub struct Step {
    /// Name of the step.
    pub name: &'static str,
    /// Virtual duration of the step.
    pub took: Time,
    /// Number of map epochs made in the step.
    pub epochs: u32,
    /// Number of messages and bytes, by message type.
    pub messages: BTreeMap<u16, (u64, u64)>,
}

fn shape(osds: usize, pgs: u32) -> Options {
    let size = Size { osds, ops: 0, faults: 0, copies: 3, only: Vec::new() };
    let mut o = Options::draw(0, size);
    o.pool = PoolShape::of_copies(3, pgs);
    o.work.clients = 0;
    o.faults = Vec::new();
    o.net.delay = (50 * US, 50 * US);
    o.net.slow = 0;
    o.disk.delay = MS / 5;
    o.disk.slow = 0;
    o.drift_ppm = 0;
    o.down_out = 3600;
    o.disk.kids = store::engine::Config::default().kids_max;
    o
}

/// An idle cluster, to inspect the memory of an OSD.
pub struct Quiet(Run);

impl Quiet {
    /// Creates an idle cluster with `pgs` PGs on every OSD.
    ///
    /// # Errors
    /// A text, if the cluster does not become idle in time.
    pub fn new(osds: usize, pgs: u32) -> Result<Self, String> {
        let copies = osds.min(3);
        let mut o = shape(osds, pgs);
        (o.size.copies, o.pool.copies, o.pool.min_size, o.osd.reactors) = (copies, copies, 1, 1);
        let mut run = Run::new(&o, false);
        run.setup()?;
        let from = run.w.ctx.now();
        run.advance(STEP_MAX, |w| w.ctx.now() >= from + QUIET);
        Ok(Self(run))
    }

    /// Removes an OSD's process from the cluster. It owns all memory of that OSD but its disk.
    pub fn take(&mut self, osd: usize) -> Option<Box<crate::node::osd::Process>> {
        match &mut self.0.w.nodes[osd_node(osd)] {
            Node::Osd(x) => x.process.take().map(Box::new),
            _ => None,
        }
    }
}

/// True if all PGs serve, and every OSD that is up has the newest map.
fn serving(w: &World, dead: Option<usize>) -> bool {
    let Some(map) = oracle::map(w) else { return false };
    if dead.is_some_and(|o| map.is_up(OsdId(o as i32))) {
        return false;
    }
    let process = |o: usize| match &w.nodes[osd_node(o)] {
        Node::Osd(x) => x.process.as_ref(),
        _ => None,
    };
    let osds = w.ctx.options.size.osds;
    let known = (0..osds).filter(|o| Some(*o) != dead).all(|o| process(o).is_some_and(|p| p.epoch() >= map.epoch));
    known
        && map.pools.iter().all(|(id, p)| {
            (0..p.pg_num).all(|seed| {
                let pg = PgId { pool: *id, seed };
                let primary = usize::try_from(map.pg_to_up_acting(pg).acting_primary.0).ok();
                primary.and_then(process).and_then(|p| p.led(&map, pg)).is_some_and(|m| m.is_active())
            })
        })
}

/// Carries out the study and returns the cost of each step.
///
/// # Errors
/// A text, if the cluster does not become idle in time.
pub fn study(osds: usize, pgs: u32) -> Result<Vec<Step>, String> {
    let o = shape(osds, pgs);
    let mut run = Run::new(&o, false);
    let mut steps = Vec::new();
    let mut step = |run: &mut Run, name, until: &mut dyn FnMut(&mut World, Time) -> bool| {
        let epoch = oracle::map(&run.w).map_or(0, |m| m.epoch.0);
        let (from, _) = (run.w.ctx.now(), run.w.ctx.trace.take_counts());
        if !run.advance(STEP_MAX, |w| until(w, from)) {
            return Err(format!("{name}: {:?}, {:?}", oracle::unclean(&run.w, None), run.w.ctx.violations));
        }
        let epochs = oracle::map(&run.w).map_or(0, |m| m.epoch.0) - epoch;
        let (took, messages) = (run.w.ctx.now() - from, run.w.ctx.trace.take_counts());
        steps.push(Step { name, took, epochs, messages });
        Ok(())
    };
    run.setup()?;
    step(&mut run, "quiet", &mut |w, from| w.ctx.now() >= from + QUIET)?;
    run.w.crash(osd_node(0), false);
    step(&mut run, "an OSD dies: until all PGs serve", &mut |w, _| serving(w, Some(0)))?;
    run.w.start(osd_node(0));
    step(&mut run, "it returns: until all PGs are clean", &mut |w, _| oracle::unclean(w, None).is_none())?;
    Ok(steps)
}
