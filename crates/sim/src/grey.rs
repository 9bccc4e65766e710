//! A cluster whose clients write steadily while a link between OSDs is cut or a disk does not answer.
//!
//! The oracles look at what users see and what the map shows: how long an operation waits, and how often an OSD is
//! marked down. Monitors, OSDs, PGs, stores and clients are the production machines.

use crate::net::NodeId;
use crate::node::{Node, osd_node};
use crate::options::{Options, PoolShape, Size};
use crate::oracle;
use crate::queue::{MS, SEC, Time};
use crate::run::Run;
use crate::world::{Event, World};
use base::{Epoch, OsdId};

/// Longest wait of an operation while nothing fails, and after the cluster went on.
const WAIT_MAX: Time = 5 * SEC;
/// Longest time until every PG is clean and every OSD up once nothing fails any more.
const CLEAN_MAX: Time = 300 * SEC;
/// Mean time between two operations of a client.
const THINK: Time = 400 * MS;
/// Operations of the run: more than the clients begin.
const OPS: usize = 20_000;

/// The shape of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The seed.
    pub seed: u64,
    /// OSDs, each on a host of its own.
    pub osds: usize,
    /// Number of copies, without a code.
    pub copies: usize,
    /// Data and coding shards.
    pub code: Option<(u8, u8)>,
    /// Number of monitors.
    pub mons: usize,
}

/// The cluster.
pub struct Grey {
    run: Run,
    marks: Marks,
}

/// How often each OSD was marked down.
#[derive(Debug, Default)]
struct Marks {
    /// Epoch of the last one.
    at: Vec<Epoch>,
    count: Vec<usize>,
}

impl Marks {
    fn look(&mut self, w: &World) {
        let Some(map) = oracle::map(w) else { return };
        let n = w.ctx.options.size.osds;
        self.at.resize(n, Epoch(0));
        self.count.resize(n, 0);
        for (o, (at, count)) in self.at.iter_mut().zip(&mut self.count).enumerate() {
            let down = map.info(OsdId(o as i32)).down_at;
            *count += usize::from(down > *at);
            *at = down;
        }
    }
}

impl Grey {
    /// Creates a cluster and starts its clients.
    ///
    /// # Errors
    /// A text, if it does not become clean or does not serve.
    pub fn new(shape: Shape) -> Result<Self, String> {
        let size = Size { osds: shape.osds, ops: OPS, faults: 0, copies: shape.copies, only: Vec::new() };
        let mut o = Options::plain(shape.seed, size);
        o.pool = PoolShape::new(shape.copies, shape.code, 16);
        o.work.objects = 60;
        o.work.clients = 3;
        o.work.depth = 4;
        o.work.think = THINK;
        o.work.bursts = false;
        o.faults = Vec::new();
        o.net.delay = (50_000, 50_000);
        o.net.slow = 0;
        o.disk.delay = MS / 5;
        o.disk.slow = 0;
        o.work.snapshots = false;
        o.work.watches = false;
        o.down_out = 3600;
        o.without_one = false;
        o.osd.log_records = 3000;
        o.monitors(Some(shape.mons));
        o.state = state::simulated::Faults { delay_max: 2 * MS, ..state::simulated::Faults::default() };
        o.faults.clear();
        let mut me = Self { run: Run::new(&o, false), marks: Marks::default() };
        me.run.setup()?;
        me.run.begin();
        me.watch(10 * SEC, 10 * SEC)?;
        // Until here an OSD may have been down while it was made.
        me.marks.count.fill(0);
        Ok(me)
    }

    /// The OSD that leads the most PGs of the pool, and the one that it shares the most with.
    #[must_use]
    pub fn pair(&self) -> (usize, usize) {
        let Some(map) = oracle::map(&self.run.w) else { return (0, 1) };
        let pool = map.pool_by_name("data");
        let sets: Vec<_> = pool.into_iter().flat_map(|p| map.pgs_of(p)).map(|pg| map.pg_to_up_acting(pg)).collect();
        let osds = || (0..self.run.w.ctx.options.size.osds).map(|o| (o, OsdId(o as i32)));
        let leads = |o: OsdId| sets.iter().filter(|s| s.acting_primary == o).count();
        let first = osds().max_by_key(|(_, o)| leads(*o)).unwrap_or((0, OsdId(0)));
        let shares = |o: OsdId| sets.iter().filter(|s| s.acting.contains(&o) && s.acting.contains(&first.1)).count();
        let second = osds().filter(|o| *o != first).max_by_key(|(_, o)| shares(*o)).unwrap_or((1, OsdId(1)));
        (first.0, second.0)
    }

    /// Cuts the links of an OSD with these, in both directions or only from it.
    pub fn cut(&mut self, osd: usize, from: &[usize], both: bool) {
        for (a, b) in links(osd, from, both) {
            self.run.w.ctx.net.cut(a, b);
        }
    }

    /// Heals what [`Grey::cut`] with the same arguments cut.
    pub fn heal(&mut self, osd: usize, from: &[usize], both: bool) {
        let now = self.run.w.ctx.now();
        for (a, b) in links(osd, from, both) {
            self.run.w.ctx.net.heal(a, b, now);
        }
        for (at, e) in self.run.w.ctx.net.take_events() {
            self.run.w.ctx.queue.at(at, Event::Net(e));
        }
    }

    /// Lets the disk of an OSD answer nothing any more.
    pub fn freeze(&mut self, osd: usize) {
        if let Node::Osd(o) = &mut self.run.w.nodes[osd_node(osd)] {
            o.freeze();
        }
    }

    /// Lets the disk of an OSD go on.
    pub fn thaw(&mut self, osd: usize) {
        if let Node::Osd(o) = &mut self.run.w.nodes[osd_node(osd)] {
            o.thaw(&mut self.run.w.ctx);
        }
    }

    /// Lets `time` pass. After `grace` no operation may wait for longer than `WAIT_MAX`.
    ///
    /// # Errors
    /// The operation that waits.
    pub fn watch(&mut self, time: Time, grace: Time) -> Result<(), String> {
        let from = self.run.w.ctx.now();
        let (mut late, marks, load) = (None, &mut self.marks, self.run.load());
        self.run.advance(time, |w| {
            marks.look(w);
            let now = w.ctx.now();
            if now >= from + grace {
                let load = load.borrow();
                let waiting = w.nodes.iter().filter_map(|n| if let Node::Client(c) = n { Some(c) } else { None });
                let records = waiting.flat_map(|c| c.waiting()).filter_map(|id| load.records.get(id as usize - 1));
                let oldest = records.min_by_key(|r| r.call).filter(|r| now - r.call > WAIT_MAX);
                late = oldest.map(|r| (r.id, (now - r.call) / SEC, (now - from) / SEC));
            }
            late.is_some()
        });
        match (late, self.run.w.ctx.violations.first()) {
            (_, Some(v)) => Err(v.clone()),
            (Some((id, waits, passed)), _) => {
                Err(format!("operation {id} waits for {waits} s, {passed} s after the fault"))
            }
            _ => Ok(()),
        }
    }

    /// Times that OSDs were marked down.
    #[must_use]
    pub fn marks(&self) -> &[usize] {
        &self.marks.count
    }

    /// Waits until all OSDs are up and all PGs clean.
    ///
    /// # Errors
    /// What is not.
    pub fn settle(&mut self) -> Result<(), String> {
        let osds = self.run.w.ctx.options.size.osds;
        let marks = &mut self.marks;
        let well = self.run.advance(CLEAN_MAX, |w| {
            marks.look(w);
            let up = oracle::map(w).is_some_and(|m| (0..osds).all(|o| m.is_up(OsdId(o as i32))));
            up && oracle::unclean(w, None).is_none()
        });
        if well {
            return Ok(());
        }
        let why = self.run.w.ctx.violations.first().cloned().or_else(|| oracle::unclean(&self.run.w, None));
        Err(why.unwrap_or_else(|| "an OSD is not up".into()))
    }

    /// Ends the load, scrubs and reads everything, and checks the history of all operations.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge(mut self) -> Result<(), String> {
        self.run.load().borrow_mut().no_more();
        self.watch(10 * SEC, WAIT_MAX)?;
        self.run.judge_all();
        self.run.w.ctx.violations.first().map_or(Ok(()), |v| Err(v.clone()))
    }
}

fn links(osd: usize, from: &[usize], both: bool) -> Vec<(NodeId, NodeId)> {
    let n = osd_node(osd);
    let pair = |o: &usize| [Some((n, osd_node(*o))), both.then_some((osd_node(*o), n))];
    from.iter().flat_map(pair).flatten().collect()
}
