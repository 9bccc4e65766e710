//! Injects faults of the run's kinds, one after another, each with an end.
//!
//! Faults stay within what a cluster must survive: of a pool with several copies at most one disk at a time loses its
//! unflushed writes, and no disk loses flushed ones.
//!
//! | module | contents |
//! | --- | --- |
//! | `disks` | faults of an OSD's device and of its copies: slow, failing or full devices, and copies that fail |
//! | `files` | faults of MDS daemons |
//! | `grey` | grey failures: links between OSDs cut while all reach the monitors, silent devices |
//! | `monitors` | faults of clusters with several monitors |
//! | `network` | faults of the network: links that are cut, slow or lossy, and connections that are reset |
//! | `operator` | commands of an operator that move data or change pools |
//! | `place` | the fault `Place`: the operator overrides where PGs are, and which copies lead them |
//! | `processes` | faults of processes: OSDs, monitors and clients that stop, crash or stand still |
//! | `rot` | the fault `Rot`: blocks become unreadable, and objects without a readable copy are given up |

use crate::load::Load;
use crate::net::NodeId;
use crate::node::mons::MonsNode;
use crate::node::{Node, osd_node};
use crate::options::Fault;
use crate::oracle;
use crate::plots::{self, Plot};
use crate::queue::{MS, SEC, Time};
use crate::world::{Event, World};
use base::rng::Rng;
use bytes::Bytes;
use state::simulated::Faults as StateFaults;
use std::collections::BTreeSet;

mod disks;
mod files;
mod grey;
mod monitors;
mod network;
mod operator;
mod place;
mod processes;
mod rot;

/// Mean time for which an OSD is isolated: enough for the others to notice and to take over.
const ISOLATED: Time = 40 * SEC;

/// Time between two plots, in which the cluster becomes clean.
const PLOTS_APART: Time = 30 * SEC;

/// The action that ends a fault.
#[derive(Debug)]
enum Undo {
    Start(NodeId),
    Resume(NodeId),
    Heal(Vec<(NodeId, NodeId)>),
    Fast(Vec<(NodeId, NodeId)>),
    FastDisk(NodeId),
    Thaw(NodeId),
    Keep(NodeId),
    /// Reconnect these monitors to the state.
    Join(Vec<NodeId>),
    /// Release the delayed requests of this monitor to the state.
    Release(NodeId),
    Restart(NodeId),
    Empty(NodeId),
    Command(String),
    Plot(Plot),
}

/// The faults of a run.
pub struct Faults {
    rng: Rng,
    open: Vec<Option<Undo>>,
    /// Number of faults so far.
    pub count: usize,
    /// Number of faults by kind, for the report.
    pub kinds: std::collections::BTreeMap<Fault, usize>,
    /// True once no more faults are injected.
    pub stopped: bool,
    clients: Vec<NodeId>,
    operator: NodeId,
    pools: u64,
    /// Earliest time of the next fault of kinds that must not overlap.
    alone_until: Time,
    /// Index of the OSD whose disk rots, if one does.
    rotten: usize,
    /// Objects whose newest state the operator gave up.
    pub given_up: BTreeSet<Bytes>,
}

impl Faults {
    /// The faults of a world with these clients and this operator.
    #[must_use]
    pub fn new(seed: u64, clients: Vec<NodeId>, operator: NodeId) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x6661_756c),
            open: Vec::new(),
            count: 0,
            kinds: Default::default(),
            stopped: false,
            clients,
            operator,
            pools: 0,
            alone_until: 0,
            given_up: BTreeSet::new(),
            rotten: Rng::new(seed ^ 0x726f_7474_656e).below(1 << 20) as usize,
        }
    }

    /// The time until the next fault.
    pub fn pause(&mut self, w: &World) -> Time {
        w.ctx.options.fault_every / 2 + self.rng.below(w.ctx.options.fault_every)
    }

    fn command(&self, w: &mut World, json: &str) {
        w.ctx.line(|| format!("operator: {json}"));
        if let Node::Client(c) = &mut w.nodes[self.operator] {
            c.command(json, &mut w.ctx);
        }
    }

    fn until(&mut self, w: &mut World, undo: Undo) {
        let lasts = 100 * MS + self.rng.below(w.ctx.options.fault_lasts);
        self.lasting(w, undo, lasts);
    }

    fn lasting(&mut self, w: &mut World, undo: Undo, lasts: Time) {
        self.open.push(Some(undo));
        w.ctx.queue.after(lasts, Event::FaultEnd(self.open.len() - 1));
    }

    /// Injects the next fault.
    pub fn next(&mut self, w: &mut World) {
        let kinds = &w.ctx.options.faults;
        if kinds.is_empty() || self.stopped {
            return;
        }
        let kind = kinds[self.rng.below(kinds.len() as u64) as usize];
        if self.make(kind, w) {
            self.count += 1;
            *self.kinds.entry(kind).or_default() += 1;
            let t = w.ctx.now();
            w.ctx.trace.mix(&[t, 99, kind as u64]);
        }
    }

    fn osd(&mut self, w: &World) -> NodeId {
        osd_node(self.rng.below(w.ctx.options.size.osds as u64) as usize)
    }

    /// Number of OSDs that are not running.
    fn down(w: &World) -> usize {
        let n = w.ctx.options.size.osds;
        (0..n).filter(|o| w.nodes[osd_node(*o)].inc().is_none() || w.is_paused(osd_node(*o))).count()
    }

    fn make(&mut self, kind: Fault, w: &mut World) -> bool {
        let osd = self.osd(w);
        w.ctx.line(|| format!("fault {kind:?} (node {osd})"));
        match kind {
            Fault::Kill
            | Fault::PowerCut
            | Fault::CrashAtStep
            | Fault::Restart
            | Fault::MonCrash
            | Fault::ClientCrash
            | Fault::Pause => self.processes(kind, osd, w),
            Fault::Partition | Fault::OneWay | Fault::CutFromMon | Fault::Reset | Fault::Slow | Fault::Lose => {
                self.network(kind, osd, w)
            }
            Fault::MonPause | Fault::MonApart | Fault::StateCut | Fault::StateGone | Fault::StateLate => {
                self.monitors(kind, w)
            }
            Fault::MdsKill | Fault::MdsPause | Fault::MdsApart | Fault::MdsRanks => self.files(kind, w),
            Fault::SlowDisk | Fault::WriteError | Fault::Full | Fault::FailCopy => self.disks(kind, osd, w),
            Fault::CutPair | Fault::StuckDisk => self.grey(kind, osd, w),
            Fault::Isolate => self.isolate(w, osd),
            Fault::Rot => self.rot(w),
            Fault::Turns | Fault::Blackout | Fault::LastWords | Fault::Exile | Fault::Hearsay | Fault::LongGone => {
                self.plot(kind, w)
            }
            Fault::ClockJump => {
                let node = self.rng.below(w.nodes.len() as u64) as usize;
                let jump = self.rng.below(40 * SEC) as i64 - 20 * SEC as i64;
                w.nodes[node].clock().skew_ns = jump;
                true
            }
            Fault::Reweight | Fault::OutIn | Fault::MarkDown | Fault::Flag | Fault::PoolChurn => {
                self.operate(kind, osd, w);
                true
            }
            Fault::Place => self.place(w),
            Fault::PgNum | Fault::PgShrink => self.pg_num(kind, w),
        }
    }

    /// Cuts off a primary with some clients, from all others or only from the monitor and the other clients. Its
    /// answers must be correct, however late it learns that another OSD leads its PGs. Often the operator marks it
    /// down at once, before its leases end. One OSD is isolated at a time; the others get time to take over.
    fn isolate(&mut self, w: &mut World, osd: NodeId) -> bool {
        if w.ctx.now() < self.alone_until {
            return false;
        }
        let object = Load::name(self.rng.below(w.ctx.options.work.objects as u64) as usize);
        let leads = oracle::map(w).and_then(|m| {
            let pg = m.object_to_pg(m.pool_by_name("data")?, &object, b"", b"")?;
            usize::try_from(m.pg_to_up_acting(pg).acting_primary.0).ok()
        });
        let osd = leads.filter(|n| *n < w.ctx.options.size.osds).map_or(osd, osd_node);
        let (from_mon_only, at_once) = [(true, true), (false, true), (false, false)][self.rng.below(3) as usize];
        let n = self.clients.len() as u64;
        // At least one client is on each side. Readers stay with the OSD, because writers soon wait for the other
        // OSDs.
        let readers = w.ctx.options.work.readers as u64;
        let (with, without) = if readers > 0 {
            (self.rng.below(readers), readers + self.rng.below((n - readers).max(1)))
        } else {
            (self.rng.below(n), self.rng.below(n))
        };
        let mut chosen = Vec::new();
        for (i, c) in self.clients.iter().enumerate() {
            let i = i as u64;
            if i == with || i != without && self.rng.chance(1, 3) {
                chosen.push(*c);
            }
        }
        let nodes = w.nodes.len();
        let mut links = Vec::new();
        let mut both = |a: NodeId, b: NodeId| links.extend([(a, b), (b, a)]);
        for x in (0..nodes).filter(|x| *x != osd) {
            let is_osd = x != crate::node::MON && x <= w.ctx.options.size.osds;
            if !(chosen.contains(&x) || from_mon_only && is_osd) {
                both(osd, x);
            }
            if !chosen.contains(&x) {
                for c in &chosen {
                    both(*c, x);
                }
            }
        }
        for (a, b) in &links {
            w.ctx.net.cut(*a, *b);
        }
        w.ctx.line(|| format!("node {osd} is isolated with clients {chosen:?}"));
        if at_once {
            self.command(w, &format!(r#"{{"prefix":"osd down","ids":["{}"]}}"#, osd - 1));
        }
        let lasts = ISOLATED / 2 + self.rng.below(ISOLATED);
        self.alone_until = w.ctx.now() + lasts + ISOLATED / 2;
        self.open.push(Some(Undo::Heal(links)));
        w.ctx.queue.after(lasts, Event::FaultEnd(self.open.len() - 1));
        true
    }

    /// Most OSDs that a plot takes down; for an erasure-coded pool all shards of a PG, which are more than half of
    /// the OSDs.
    fn most(w: &World) -> usize {
        let o = &w.ctx.options;
        o.pool.code.map_or(o.size.osds.div_ceil(2), |c| c.shards())
    }

    /// Begins a plot against the members of a PG.
    fn plot(&mut self, kind: Fault, w: &mut World) -> bool {
        if w.ctx.now() < self.alone_until || Self::down(w) > 0 || w.ctx.options.pool.copies > Self::most(w) {
            return false;
        }
        let Some(plot) = plots::draw(kind, &mut self.rng, w) else { return false };
        self.alone_until = w.ctx.now() + plot.iter().map(|(t, _)| *t).sum::<Time>() + PLOTS_APART;
        self.act(plot, w);
        true
    }

    /// Carries out the steps of a plot that are due, and schedules the next.
    fn act(&mut self, mut plot: Plot, w: &mut World) {
        let most = Self::most(w);
        while let Some((_, step)) = plot.pop_front() {
            if let Some(json) = plots::step(step, most, w) {
                self.command(w, &json);
            }
            if let Some((t, _)) = plot.front().filter(|(t, _)| *t > 0) {
                let t = *t;
                self.open.push(Some(Undo::Plot(plot)));
                w.ctx.queue.after(t, Event::FaultEnd(self.open.len() - 1));
                return;
            }
        }
    }

    /// Ends a fault.
    pub fn end(&mut self, number: usize, w: &mut World) {
        let Some(undo) = self.open.get_mut(number).and_then(Option::take) else { return };
        w.ctx.line(|| format!("fault ends: {undo:?}"));
        self.undo(undo, w);
    }

    fn undo(&mut self, undo: Undo, w: &mut World) {
        let now = w.ctx.now();
        match undo {
            Undo::Start(n) => w.start(n),
            Undo::Resume(n) => w.resume(n),
            Undo::Heal(links) => {
                for (a, b) in links {
                    w.ctx.net.heal(a, b, now);
                }
            }
            Undo::Fast(links) => {
                for (a, b) in links {
                    w.ctx.net.set_slow(a, b, None);
                }
            }
            Undo::Keep(n) => w.ctx.net.set_losing(n, None),
            Undo::FastDisk(n) => {
                if let Node::Osd(o) = &mut w.nodes[n] {
                    o.slow_disk = 1;
                }
            }
            Undo::Thaw(n) => {
                if let Node::Osd(o) = &mut w.nodes[n] {
                    o.thaw(&mut w.ctx);
                }
            }
            Undo::Join(mons) => monitors::each(w, &mons, |m| m.cut_off(false)),
            Undo::Release(mon) => monitors::each(w, &[mon], MonsNode::release),
            Undo::Restart(n) => {
                if let Node::Osd(o) = &mut w.nodes[n] {
                    o.disk.write_error = None;
                }
                w.crash(n, false);
                w.start(n);
            }
            Undo::Empty(n) => {
                if let Node::Osd(o) = &mut w.nodes[n] {
                    o.empty(&mut w.ctx);
                }
            }
            Undo::Command(json) => self.command(w, &json),
            Undo::Plot(plot) if !self.stopped => self.act(plot, w),
            // Once all faults have stopped, `stop` restores everything itself.
            Undo::Plot(_) => {}
        }
        for (at, e) in w.ctx.net.take_events() {
            w.ctx.queue.at(at, Event::Net(e));
        }
    }

    /// Ends all faults at once. The OSD `but` stays dead or failed for now.
    pub fn stop(&mut self, w: &mut World, but: Option<NodeId>) {
        self.stopped = true;
        w.ctx.trap = false;
        w.ctx.line(|| "all faults end".into());
        for u in std::mem::take(&mut self.open).into_iter().flatten() {
            self.undo(u, w);
        }
        let now = w.ctx.now();
        w.ctx.net.heal_all(now);
        if let Some(s) = &w.ctx.several {
            s.cluster.set_faults(StateFaults { delay_max: MS, ..StateFaults::default() });
        }
        for n in 0..w.nodes.len() {
            if let Node::Mons(m) = &mut w.nodes[n] {
                m.join();
            }
            if let Node::Osd(o) = &mut w.nodes[n] {
                o.crash_in = None;
                o.slow_disk = 1;
                let failed = o.disk.write_error.take().is_some() || o.process.as_ref().is_some_and(|p| p.has_failed());
                if failed {
                    w.crash(n, false);
                }
            }
            w.resume(n);
            if but != Some(n) {
                w.start(n);
            }
        }
        if let Some(n) = but {
            self.without(n, w);
        }
        self.restore(w);
    }

    /// Kills an OSD, or makes all its copies fail, until [`Faults::complete`].
    fn without(&mut self, n: NodeId, w: &mut World) {
        if self.rng.chance(1, 2) {
            w.start(n);
            if let Node::Osd(o) = &mut w.nodes[n]
                && o.fail_copies(None, &mut w.ctx)
            {
                return;
            }
        }
        w.crash(n, false);
        self.command(w, &format!(r#"{{"prefix":"osd down","ids":["{}"]}}"#, n - 1));
    }

    /// Restarts the OSD that the cluster had to do without.
    pub fn complete(&mut self, n: NodeId, w: &mut World) {
        w.crash(n, false);
        w.start(n);
    }

    /// Chooses the OSD that the cluster has to do without: one that a trap killed, if there is one.
    pub fn one(&mut self, w: &World) -> NodeId {
        let any = self.osd(w);
        w.ctx.trapped.filter(|n| w.nodes[*n].inc().is_none()).unwrap_or(any)
    }

    /// The operator resets flags, weights and `out` OSDs. After a broken session older commands may arrive once more.
    pub fn restore(&mut self, w: &mut World) {
        for f in ["nodown", "noout", "noup", "noin", "pause", "norecover", "nobackfill", "norebalance", "noscrub"] {
            self.command(w, &format!(r#"{{"prefix":"osd unset","key":"{f}"}}"#));
        }
        for o in 0..w.ctx.options.size.osds {
            self.command(w, &format!(r#"{{"prefix":"osd in","ids":["{o}"]}}"#));
            self.command(w, &format!(r#"{{"prefix":"osd reweight","id":{o},"weight":1.0}}"#));
        }
        for (at, e) in w.ctx.net.take_events() {
            w.ctx.queue.at(at, Event::Net(e));
        }
    }
}
