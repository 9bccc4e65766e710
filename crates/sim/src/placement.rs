//! A cluster whose operator changes the placement of PGs, one command after another.
//!
//! Monitor, OSDs and PGs are the production machines, and the mapping is the production CRUSH. After each command every
//! PG must be active within a bound of virtual time, and clean once it has as many copies as its pool wants.

use crate::node::{Node, osd_node};
use crate::options::{Options, PoolShape, Size};
use crate::oracle;
use crate::queue::{SEC, Time};
use crate::run::Run;
use crate::world::World;
use base::{Epoch, OsdId, PgId};
use cluster::OsdMap;
use std::collections::BTreeMap;
use wire::types::pg_state;

/// Longest time until every PG is active after a command.
const ACTIVE_MAX: Time = 60 * SEC;
/// Longest time until every PG with enough copies is clean after a command.
const CLEAN_MAX: Time = 300 * SEC;
/// Longest time until the balancer has evened out the OSDs, by a few moves a minute.
const BALANCED_MAX: Time = 7200 * SEC;
/// Time that a command has to take effect at the OSDs.
const SETTLE: Time = 3 * SEC;

/// A cluster of OSDs, each on a host of its own, with one pool that has some objects.
pub struct Operator {
    run: Run,
    log: Vec<String>,
}

impl Operator {
    /// Creates a cluster of `osds` OSDs with a pool of `pgs` PGs: of `copies` copies, or of that many data and coding
    /// shards, and writes some objects.
    ///
    /// # Errors
    /// A text, if the cluster does not become clean.
    pub fn new(osds: usize, copies: usize, code: Option<(u8, u8)>, pgs: u32) -> Result<Self, String> {
        let size = Size { osds, ops: 120, faults: 0, copies, only: Vec::new() };
        let mut o = Options::plain(1, size);
        o.pool = PoolShape::new(copies, code, pgs);
        o.work.clients = 2;
        o.faults = Vec::new();
        o.osd.reactors = 1;
        o.osd.reactors_change = false;
        o.osd.moves = false;
        o.work.snapshots = false;
        o.work.watches = false;
        o.down_out = 3600;
        o.without_one = false;
        // Copies that were away for a while need backfill.
        o.osd.log_records = 200;
        let mut run = Run::new(&o, false);
        run.setup()?;
        run.load_only();
        let me = Self { run, log: Vec::new() };
        match me.run.w.ctx.violations.first() {
            Some(v) => Err(v.clone()),
            None => Ok(me),
        }
    }

    /// Runs a command of the operator.
    ///
    /// # Errors
    /// The answer, if the command is refused.
    pub fn command(&mut self, json: &str) -> Result<(), String> {
        self.log.push(json.to_owned());
        self.run.command(json.to_owned())
    }

    /// Number of commands so far.
    #[must_use]
    pub fn commands(&self) -> usize {
        self.log.len()
    }

    /// Ends the process of an OSD.
    pub fn kill(&mut self, osd: usize) {
        self.log.push(format!("kill osd.{osd}"));
        self.run.w.crash(osd_node(osd), false);
    }

    /// Starts an OSD whose process ended.
    pub fn start(&mut self, osd: usize) {
        self.log.push(format!("start osd.{osd}"));
        self.run.w.start(osd_node(osd));
    }

    /// Waits until an OSD that was marked down is up again. An OSD that is marked down often pauses for minutes before
    /// it boots again; its supervisor starts it at once instead. False if the wait takes too long.
    pub fn wait_up(&mut self, osd: usize) -> bool {
        let id = OsdId(i32::try_from(osd).unwrap_or(-1));
        let up = |w: &mut World| oracle::map(w).is_some_and(|m| m.is_up(id));
        if self.run.advance(SETTLE * 3, up) {
            return true;
        }
        self.kill(osd);
        self.start(osd);
        self.run.advance(ACTIVE_MAX, up)
    }

    /// The map.
    #[must_use]
    pub fn map(&self) -> std::sync::Arc<cluster::OsdMap> {
        oracle::map(&self.run.w).unwrap_or_default()
    }

    /// The pool's PGs.
    #[must_use]
    pub fn pgs(&self) -> Vec<PgId> {
        let map = self.map();
        map.pool_by_name("data").map_or_else(Vec::new, |p| map.pgs_of(p).collect())
    }

    /// Number of copies of the PG that has the fewest.
    #[must_use]
    pub fn copies(&self) -> usize {
        let map = self.map();
        let there = |pg: PgId| map.pg_to_up_acting(pg).acting.iter().filter(|o| **o != OsdId::NONE).count();
        self.pgs().into_iter().map(there).min().unwrap_or(0)
    }

    /// Waits until no OSD has over `most` copies or shards of the pool more than another one that is in. False if that
    /// takes longer than the balancer may.
    pub fn wait_spread(&mut self, most: usize) -> bool {
        let mut seen = (Epoch(0), false);
        self.run.advance(BALANCED_MAX, |w| {
            if let Some(map) = oracle::map(w).filter(|m| m.epoch != seen.0) {
                seen = (map.epoch, spread(&map) <= most);
            }
            seen.1
        })
    }

    /// Difference between the most and the fewest copies or shards of the pool that the map gives an OSD that is in.
    #[must_use]
    pub fn spread(&self) -> usize {
        spread(&self.map())
    }

    /// Waits until each PG has `n` copies. False if that takes too long.
    pub fn wait_copies(&mut self, n: usize) -> bool {
        let copies = |w: &World| {
            let map = oracle::map(w)?;
            let there = |pg: PgId| map.pg_to_up_acting(pg).acting.iter().filter(|o| **o != OsdId::NONE).count();
            map.pools.keys().flat_map(|p| map.pgs_of(*p)).map(there).min()
        };
        self.run.advance(ACTIVE_MAX, |w| copies(w).is_some_and(|c| c >= n))
    }

    /// Waits until every PG is active, then until those with enough copies are clean.
    ///
    /// # Errors
    /// The first PG that is not, with the commands so far.
    pub fn settle(&mut self) -> Result<(), String> {
        self.run.advance(SETTLE, |_| false);
        for (limit, clean) in [(ACTIVE_MAX, false), (CLEAN_MAX, true)] {
            if !self.run.advance(limit, |w| lacking(w, clean).is_none()) {
                let why = lacking(&self.run.w, clean).or_else(|| self.run.w.ctx.violations.first().cloned());
                let from = self.log.len().saturating_sub(8);
                let last = self.log.get(from..).unwrap_or_default().join("\n");
                return Err(format!("{} after:\n{last}", why.unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// Scrubs and reads everything, and checks the history of all operations.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge(mut self) -> Result<(), String> {
        self.run.judge_all();
        self.run.w.ctx.violations.first().map_or(Ok(()), |v| Err(v.clone()))
    }
}

fn spread(map: &OsdMap) -> usize {
    let mut on: BTreeMap<OsdId, usize> = map.osds().filter(|o| map.is_in(*o)).map(|o| (o, 0)).collect();
    for pg in map.pool_by_name("data").into_iter().flat_map(|p| map.pgs_of(p)) {
        for o in map.pg_to_up(pg).0.iter() {
            on.entry(*o).and_modify(|n| *n += 1);
        }
    }
    let most = on.values().max().copied().unwrap_or(0);
    most - on.values().min().copied().unwrap_or(0)
}

/// The first PG that is not active, or (with `clean`) is not clean although it has all its copies.
fn lacking(w: &World, clean: bool) -> Option<String> {
    let map = oracle::map(w)?;
    for (id, p) in map.pools.iter() {
        for pg in map.pgs_of(*id) {
            let at = map.pg_to_up_acting(pg);
            let Ok(n) = usize::try_from(at.acting_primary.0) else { return Some(format!("{pg} has no primary")) };
            let Node::Osd(o) = &w.nodes[osd_node(n)] else { continue };
            let machine = o.process.as_ref().and_then(|p| p.led(&map, pg)).filter(|m| m.epoch() == map.epoch);
            let Some(m) = machine else { return Some(format!("{pg} is missing or behind on osd.{n}: {at:?}")) };
            let bits = m.state_bits();
            let copies = at.acting.iter().filter(|o| **o != OsdId::NONE).count();
            let busy = pg_state::BACKFILLING | pg_state::BACKFILL_WAIT | pg_state::RECOVERING | pg_state::RECOVERY_WAIT;
            let held = map.has_flag(cluster::osdmap::map_flag::NOREBALANCE) && bits & pg_state::BACKFILL_WAIT != 0;
            let whole = copies < usize::from(p.size) || bits & pg_state::CLEAN != 0;
            let done = !clean || held || whole && bits & busy == 0;
            if bits & pg_state::ACTIVE == 0 || !done {
                return Some(format!(
                    "{pg} is {} ({:?}, {:?}) with {at:?}, temp {:?}, primary temp {:?}",
                    pg_state::to_string(bits),
                    m.state(),
                    m.inactive_reason(),
                    map.pg_temp.get(&pg),
                    map.primary_temp.get(&pg)
                ));
            }
        }
    }
    None
}
