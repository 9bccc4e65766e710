//! One run: a cluster is created, works under faults, heals, and is judged.
//!
//! | module | contents |
//! | --- | --- |
//! | `nodes` | the nodes of a run: monitors, OSDs, clients, operator, witness, MDS daemons |
//! | `placed` | checks after the last fault and before the cluster must be clean |
//! | `quota` | a pool that reaches a quota while its cluster becomes clean |
//! | `scrubs` | scrubs and repairs at the end of a run |

use crate::check::{self, Wrong};
use crate::compare;
use crate::faults::Faults;
use crate::files;
use crate::listing;
use crate::load::{Load, Record};
use crate::model;
use crate::net::NodeId;
use crate::node::osd;
use crate::node::{Node, osd_node};
use crate::options::{Fault, Options};
use crate::oracle;
use crate::queue::{SEC, Time};
use crate::several;
use crate::trace::Trace;
use crate::witness::Witness;
use crate::world::{Event, World};
use base::OsdId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

mod nodes;
mod placed;
mod quota;
mod scrubs;

/// Longest time to create a cluster without faults.
const SETUP_MAX: Time = 300 * SEC;
/// Longest time until the cluster is clean and all operations are answered, once faults have stopped.
const HEAL_MAX: Time = 600 * SEC;
/// Longest delay of the operator's commands by a slow link.
const LATE_ORDERS: Time = 10 * SEC;
/// Time added to [`HEAL_MAX`] for each PG that waits for a merge: there is one merge for each map.
const MERGE_MAX: Time = 20 * SEC;
/// Longest time until PGs are on the reactors of their names, without the time for each PG.
const MOVES_MAX: Time = 120 * SEC;
/// Time added to [`MOVES_MAX`] for each PG: one moves at a time.
const MOVE_MAX: Time = 20 * SEC;
/// Longest time of the last reads.
const READ_MAX: Time = 300 * SEC;
/// Most events of a run; more point at an endless repetition.
const EVENTS_MAX: u64 = 60_000_000;

/// Number of comparisons of copies before a difference counts.
const COMPARISONS: usize = 6;

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The shape of the run.
    pub options: Options,
    /// The violations found; empty for a clean run.
    pub violations: Vec<String>,
    /// Hash over all events.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
    /// Number of operations.
    pub operations: usize,
    /// Number of operations of unknown outcome.
    pub unknown: usize,
    /// Number of operations that the cluster refused for reasons other than the object.
    pub refused: usize,
    /// Number of objects whose search for an order was given up.
    pub undecided: usize,
    /// Number of faults by kind.
    pub faults: BTreeMap<Fault, usize>,
    /// Number of PGs that moved between reactors of their OSD.
    pub moved: u64,
    /// Number of successful long class calls.
    pub recounts: usize,
    /// With several monitors: the number of leaders.
    pub leaders: usize,
    /// With several monitors: the number of changes that were acknowledged to the witness.
    pub acknowledged: usize,
    /// Number of times that a rank of a file system got another MDS.
    pub takeovers: usize,
    /// Number of acknowledged entries in the journals of the file system's ranks.
    pub entries: usize,
    /// Virtual time that the run took.
    pub took: Time,
    /// Virtual time until the cluster was clean after the last fault.
    pub healed: Time,
    /// Epoch of the newest map.
    pub epoch: u32,
    /// The trace, with lines if they were requested.
    pub trace: Trace,
}

pub(crate) struct Run {
    pub(crate) w: World,
    faults: Faults,
    load: Rc<RefCell<Load>>,
    clients: Vec<NodeId>,
    operator: NodeId,
    /// The witness, if there are several monitors.
    witness: Option<Witness>,
    faulty: bool,
    /// Number of operations that had begun before the last reads.
    before_last: usize,
    undecided: usize,
}

impl Run {
    pub(crate) fn new(o: &Options, words: bool) -> Self {
        let (w, load) = nodes::world(o, words);
        let clients: Vec<NodeId> = (0..o.work.clients).map(|c| 1 + o.size.osds + c).collect();
        let operator = 1 + o.size.osds + o.work.clients;
        let faults = Faults::new(o.seed, clients.clone(), operator);
        let witness = (o.mons > 1).then(|| Witness::new(operator + o.mons, o.seed));
        Self { w, faults, load, clients, operator, witness, faulty: !o.faults.is_empty(), before_last: 0, undecided: 0 }
    }

    pub(crate) fn advance(&mut self, limit: Time, mut until: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.w.ctx.now() + limit;
        let mut next_look = self.w.ctx.now();
        let mut looked = 0u64;
        loop {
            // The condition may be costly. It is evaluated at intervals that depend on the run alone.
            if self.w.ctx.now() >= next_look {
                next_look = self.w.ctx.now() + SEC / 20;
                if until(&mut self.w) {
                    return true;
                }
            }
            if self.w.ctx.now() >= end || !self.w.ctx.violations.is_empty() {
                return false;
            }
            let Some(e) = self.w.ctx.queue.pop() else { return false };
            looked += 1;
            if looked.is_multiple_of(4096) && self.w.ctx.trace.events() > EVENTS_MAX {
                self.w.ctx.violation(format!("more than {EVENTS_MAX} events"));
                return false;
            }
            match e {
                Event::Fault => {
                    if !self.faults.stopped {
                        self.faults.next(&mut self.w);
                        let pause = self.faults.pause(&self.w);
                        self.w.ctx.queue.after(pause, Event::Fault);
                    }
                }
                Event::FaultEnd(n) => self.faults.end(n, &mut self.w),
                Event::Witness => {
                    if let Some(x) = &mut self.witness {
                        x.next(&mut self.w);
                    }
                }
                Event::Watch => {
                    oracle::sizes(&mut self.w);
                    self.w.ctx.queue.after(SEC, Event::Watch);
                }
                e => self.w.handle(e),
            }
        }
    }

    pub(crate) fn command(&mut self, json: String) -> Result<(), String> {
        self.w.ctx.line(|| format!("operator: {json}"));
        let operator = self.operator;
        let tid = match &mut self.w.nodes[operator] {
            Node::Client(c) => c.command(&json, &mut self.w.ctx),
            _ => return Err("no operator".into()),
        };
        let answered = |w: &mut World| matches!(&w.nodes[operator], Node::Client(c) if c.answers.contains_key(&tid));
        // Events that the command caused move to the world's queue.
        for (at, e) in self.w.ctx.net.take_events() {
            self.w.ctx.queue.at(at, Event::Net(e));
        }
        if !self.advance(SETUP_MAX, answered) {
            return Err(format!("no answer to {json}"));
        }
        match &self.w.nodes[operator] {
            Node::Client(c) => match c.answers.get(&tid) {
                Some((0, ..)) => Ok(()),
                Some((rc, status, _)) => Err(format!("{json}: {rc} {status}")),
                None => Err(format!("no answer to {json}")),
            },
            _ => Err("no operator".into()),
        }
    }

    pub(crate) fn setup(&mut self) -> Result<(), String> {
        let o = self.w.ctx.options.clone();
        for m in self.w.ctx.mons() {
            self.w.start(m);
        }
        self.w.start(self.operator);
        for n in 0..o.size.osds {
            let uuid = osd::uuid(OsdId(n as i32));
            self.command(format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":"osd.{n}"}}"#))?;
        }
        for n in 0..o.size.osds {
            self.w.start(osd_node(n));
        }
        let osds = o.size.osds;
        let up = |w: &mut World| {
            oracle::map(w).is_some_and(|m| (0..osds).all(|n| m.is_up(OsdId(n as i32)) && m.is_in(OsdId(n as i32))))
        };
        if !self.advance(SETUP_MAX, up) {
            return Err("not all OSDs came up".into());
        }
        let (pgs, size, min) = (o.pool.pgs, o.pool.copies, o.pool.min_size);
        if let Some(code) = o.pool.code {
            self.command(code.profile())?;
            self.command(format!(
                r#"{{"prefix":"osd pool create","pool":"data","pg_num":{pgs},"pgp_num":{pgs},"pool_type":"erasure","erasure_code_profile":"code"}}"#
            ))?;
            if code.overwrites {
                self.command(
                    r#"{"prefix":"osd pool set","pool":"data","var":"allow_ec_overwrites","val":"true"}"#.into(),
                )?;
            }
        } else {
            self.command(format!(
                r#"{{"prefix":"osd pool create","pool":"data","pg_num":{pgs},"pgp_num":{pgs},"size":{size}}}"#
            ))?;
        }
        if o.pool.code.is_none() && size > 1 {
            self.command(format!(r#"{{"prefix":"osd pool set","pool":"data","var":"min_size","val":"{min}"}}"#))?;
        }
        if o.mds > 0 {
            for c in files::commands(&o) {
                self.command(c)?;
            }
        }
        if !self.advance(SETUP_MAX, |w| oracle::unclean(w, None).is_none()) {
            let why = oracle::unclean(&self.w, None).unwrap_or_default();
            return Err(format!("the new pool does not become clean: {why}"));
        }
        let pool = oracle::map(&self.w).and_then(|m| m.pool_by_name("data"));
        let mut load = self.load.borrow_mut();
        load.pool = pool;
        load.held = false;
        Ok(())
    }

    /// Carries out the load without faults.
    pub(crate) fn load_only(&mut self) {
        self.begin();
        let (load, clients) = (self.load.clone(), self.clients.clone());
        self.advance(HEAL_MAX, |w| Self::idle(w, &load.borrow(), &clients));
    }

    /// Scrubs, reads and compares everything, and checks the histories.
    pub(crate) fn judge_all(&mut self) {
        self.scrub_all();
        self.read_all();
        self.compare();
        self.judge();
    }

    fn idle(w: &World, load: &Load, clients: &[NodeId]) -> bool {
        load.left() == 0 && clients.iter().all(|c| matches!(&w.nodes[*c], Node::Client(c) if c.in_flight() == 0))
    }

    fn chaos(&mut self) {
        let o = self.w.ctx.options.clone();
        for c in self.clients.clone() {
            self.w.start(c);
        }
        for n in nodes::mds(&o) {
            self.w.start(n);
        }
        if let Some(x) = &self.witness {
            self.w.start(x.node);
            self.w.ctx.queue.after(SEC, Event::Witness);
        }
        if let Some(s) = &self.w.ctx.several {
            s.cluster.set_faults(o.state);
        }
        if o.only_monitors() {
            several::all_stay_up(&mut self.w);
        }
        let pause = self.faults.pause(&self.w);
        self.w.ctx.queue.after(pause, Event::Fault);
        self.w.ctx.queue.after(SEC, Event::Watch);
        let (load, clients) = (self.load.clone(), self.clients.clone());
        let long = (o.size.faults as u64 + 4) * o.fault_every * 3;
        self.advance(long, |w| Self::idle(w, &load.borrow(), &clients));
    }

    /// Stops all faults, and waits until all operations are answered and the cluster is clean.
    fn heal(&mut self) -> Time {
        let from = self.w.ctx.now();
        if !self.stop_faults() {
            return self.w.ctx.now() - from;
        }
        // The remaining work may go faster.
        self.w.ctx.options.work.think /= 10;
        let (load, clients) = (self.load.clone(), self.clients.clone());
        let operator = self.operator;
        // Late commands of the operator count, too: the pool may grow when all else is done.
        let obeyed = move |w: &World| matches!(&w.nodes[operator], Node::Client(c) if c.is_answered());
        let mut whole = |w: &mut World| {
            obeyed(w)
                && Self::idle(w, &load.borrow(), &clients)
                && oracle::unclean(w, None).is_none()
                && several::unwell(w).is_none()
                && files::unwell(w).is_none()
        };
        let limit = HEAL_MAX + Time::from(oracle::merges(&self.w)) * MERGE_MAX;
        let soon = self.advance(LATE_ORDERS, &mut whole);
        if oracle::held_back(&self.w) {
            self.faults.restore(&mut self.w);
        }
        if !soon && self.faults.kinds.contains_key(&Fault::Place) {
            self.faults.end_places(&mut self.w);
        }
        if self.w.ctx.options.rough.quota {
            self.full();
            if !self.w.ctx.violations.is_empty() {
                return self.w.ctx.now() - from;
            }
        }
        let mut well = self.advance(limit / 2, &mut whole);
        if !well && self.w.ctx.violations.is_empty() {
            // A client on a slow network may not finish its work; only its begun operations must be answered.
            self.load.borrow_mut().no_more();
            if self.faults.kinds.contains_key(&Fault::Rot) {
                self.faults.unrot(&mut self.w);
            }
            well = self.advance(limit / 2, &mut whole);
        }
        if !well && self.w.ctx.violations.is_empty() && self.faults.kinds.contains_key(&Fault::Rot) {
            // A PG does not retry copies that it found unreadable, so the operator reverts to the newest readable
            // ones.
            self.faults.revert(&mut self.w);
            well = self.advance(limit / 2, &mut whole);
        }
        if !well && self.w.ctx.violations.is_empty() {
            self.not_clean(limit);
        }
        if let Some(what) = self.witness.as_ref().and_then(|x| x.contradicted(&self.w))
            && self.w.ctx.violations.is_empty()
        {
            self.w.ctx.violation(what);
        }
        several::may_go_down(&mut self.w);
        if let Some(f) = &mut self.w.ctx.files {
            f.held = true;
        }
        self.w.ctx.now() - from
    }

    /// Ends all faults. False if a check has failed.
    fn stop_faults(&mut self) -> bool {
        if let Some(x) = &mut self.witness {
            x.stopped = true;
        }
        if self.w.ctx.options.without_one {
            several::may_go_down(&mut self.w);
        }
        let one = self.w.ctx.options.without_one.then(|| self.faults.one(&self.w));
        self.faults.stop(&mut self.w, one);
        if let Some(n) = one {
            self.without(n);
            if !self.w.ctx.violations.is_empty() {
                return false;
            }
            self.faults.complete(n, &mut self.w);
        }
        self.placed();
        self.w.ctx.violations.is_empty()
    }

    /// Reports why the cluster did not become clean.
    fn not_clean(&mut self, limit: Time) {
        let w = &self.w;
        let unclean = oracle::unclean(w, None).or_else(|| several::unwell(w)).or_else(|| files::unwell(w));
        let why = unclean.unwrap_or_else(|| "every PG is whole".into());
        let stuck = self.stuck();
        let left = self.load.borrow().left();
        self.w
            .ctx
            .violation(format!("not clean {} s after the last fault: {why}; {stuck}; not begun: {left}", limit / SEC,));
    }

    /// Operations without an answer, at clients and at OSDs.
    fn stuck(&self) -> String {
        let load = self.load.borrow();
        let mut out = String::new();
        for (n, node) in self.w.nodes.iter().enumerate() {
            match node {
                Node::Client(c) => {
                    let ids: Vec<String> = c
                        .waiting()
                        .take(8)
                        .map(|id| format!("{id} (object-{})", load.records[id as usize - 1].object))
                        .collect();
                    if !ids.is_empty() {
                        let map = c.map().map_or(0, |m| m.epoch.0);
                        out += &format!("client node {n} with map {map} waits for {}; ", ids.join(", "));
                    }
                }
                Node::Osd(o) => {
                    let now = o.clock.now(self.w.ctx.now()).mono;
                    for pg in o.process.iter().flat_map(|p| p.pgs()) {
                        for d in pg.dump_ops(now).iter().take(3) {
                            out += &format!("{} {} ({:?}): {d:?}; ", o.osd, pg.spg(), pg.state());
                        }
                    }
                }
                Node::Mon(_) | Node::Mons(_) | Node::Mds(_) => {}
            }
        }
        out
    }

    fn power_cut(&mut self) {
        let n = self.w.ctx.options.size.osds;
        for o in 0..n {
            self.w.crash(osd_node(o), true);
        }
        for o in 0..n {
            self.w.start(osd_node(o));
        }
        if !self.advance(HEAL_MAX, |w| oracle::unclean(w, None).is_none()) && self.w.ctx.violations.is_empty() {
            let why = oracle::unclean(&self.w, None).unwrap_or_default();
            self.w.ctx.violation(format!("not clean after all hosts lost power: {why}"));
        }
    }

    /// Waits until every PG is on the reactor of its name.
    fn spread(&mut self) {
        let pgs: u32 = oracle::map(&self.w).map_or(0, |m| m.pools.values().map(|p| p.pg_num).sum());
        let limit = MOVES_MAX + Time::from(pgs) * MOVE_MAX;
        if !self.advance(limit, |w| oracle::astray(w).is_none()) && self.w.ctx.violations.is_empty() {
            let why = oracle::astray(&self.w).unwrap_or_default();
            self.w.ctx.violation(format!("not every PG is on its reactor after {} s: {why}", limit / SEC));
        }
    }

    fn read_all(&mut self) {
        let (objects, snaps) = {
            let l = self.load.borrow();
            (l.objects(), l.snaps().to_vec())
        };
        let c = self.clients[0];
        self.before_last = self.load.borrow().records.len();
        for object in 0..objects {
            for snap in std::iter::once(0).chain(snaps.iter().copied()) {
                let now = self.w.ctx.now();
                let wall = self.w.nodes[c].clock().now(now).wall;
                let (id, request) = self.load.borrow_mut().read(0, object, snap, now, wall);
                if let Node::Client(client) = &mut self.w.nodes[c] {
                    client.submit(id, request, &mut self.w.ctx);
                }
            }
        }
        for (at, e) in self.w.ctx.net.take_events() {
            self.w.ctx.queue.at(at, Event::Net(e));
        }
        let done = |w: &mut World| matches!(&w.nodes[c], Node::Client(c) if c.in_flight() == 0);
        if !self.advance(READ_MAX, done) && self.w.ctx.violations.is_empty() {
            let stuck = self.stuck();
            self.w.ctx.violation(format!("the last reads are not answered: {stuck}"));
        }
    }

    /// Checks that all copies are equal. A trim of snapshots in progress gets time to end.
    fn compare(&mut self) {
        for _ in 0..COMPARISONS {
            if compare::difference(&mut self.w).is_none() {
                return;
            }
            self.advance(10 * SEC, |_| false);
        }
        if let Some(d) = compare::difference(&mut self.w) {
            self.w.ctx.violation(d);
        }
    }

    fn judge(&mut self) {
        let load = self.load.clone();
        let load = load.borrow();
        let sources = check::sources(&load.records, self.w.ctx.options.pool.code);
        for what in listing::wrong(&load.records, |o| self.faults.given_up.contains(&Load::name(o))) {
            self.w.ctx.violation(what);
        }
        for object in 0..load.objects() {
            let history: Vec<&Record> = load.records.iter().filter(|r| r.object == object).collect();
            match check::object(&history, self.w.ctx.options.pool.code, &sources) {
                Ok(()) => {}
                Err(Wrong::GaveUp) => {
                    // Many concurrent operations of unknown outcome on one object: the history is undecided.
                    self.w.ctx.line(|| format!("object-{object}: the search for an order was too long"));
                    self.undecided += 1;
                }
                Err(Wrong::NotLinearizable { .. }) if self.faults.given_up.contains(&Load::name(object)) => {
                    self.w.ctx.line(|| format!("object-{object} was reverted, so earlier reads of it need not hold"));
                    self.undecided += 1;
                }
                Err(Wrong::NotLinearizable { op, state }) => {
                    let r = &load.records[op as usize - 1];
                    let saw = match &r.outcome {
                        Some(crate::load::Outcome::Read(o, _)) => model::describe(o.as_deref()),
                        o => format!("{o:?}"),
                    };
                    self.w.ctx.violation(format!(
                        "object-{object}: no order of its operations explains operation {op} (client {}, {:.6} s to \
                         {:.6} s): {:?} gave {saw}; the model's state before it: {state}",
                        r.client,
                        r.call as f64 / 1e9,
                        r.done.unwrap_or(0) as f64 / 1e9,
                        r.what,
                    ));
                }
            }
        }
        // Reads that the cluster refused although it was clean.
        let late: Vec<u64> = load
            .records
            .iter()
            .skip(self.before_last)
            .filter(|r| matches!(r.outcome, Some(crate::load::Outcome::Refused(_))) && !self.faulty)
            .map(|r| r.id)
            .collect();
        if !late.is_empty() {
            self.w.ctx.violation(format!("operations {late:?} were refused although the run had no faults"));
        }
    }
}

/// Carries out a run. With `words` its trace keeps lines.
#[must_use]
pub fn run(o: &Options, words: bool) -> Report {
    let mut r = Run::new(o, words);
    let mut healed = 0;
    match r.setup() {
        Ok(()) => {
            r.chaos();
            if r.w.ctx.violations.is_empty() {
                healed = r.heal();
                r.sleep();
            }
            if r.w.ctx.violations.is_empty() && o.final_power_cut {
                r.power_cut();
            }
            if r.w.ctx.violations.is_empty() && o.osd.moves && (o.osd.reactors > 1 || o.osd.reactors_change) {
                r.spread();
            }
            if r.w.ctx.violations.is_empty() {
                r.faulty = false;
                r.scrub_all();
                r.read_all();
            }
            if r.w.ctx.violations.is_empty() {
                r.compare();
            }
            r.judge();
        }
        Err(e) => {
            if r.w.ctx.violations.is_empty() {
                r.w.ctx.violation(format!("setup: {e}"));
            }
        }
    }
    let took = r.w.ctx.now();
    let epoch = oracle::map(&r.w).map_or(0, |m| m.epoch.0);
    let load = r.load.borrow();
    Report {
        options: o.clone(),
        violations: std::mem::take(&mut r.w.ctx.violations),
        hash: r.w.ctx.trace.hash(),
        events: r.w.ctx.trace.events(),
        operations: load.records.len(),
        unknown: load.records.iter().filter(|r| r.outcome.is_none()).count(),
        refused: load.records.iter().filter(|r| matches!(r.outcome, Some(crate::load::Outcome::Refused(_)))).count(),
        undecided: r.undecided,
        faults: r.faults.kinds.clone(),
        moved: r.w.ctx.moved,
        recounts: load.recounts(),
        leaders: r.w.ctx.several.as_ref().map_or(0, |s| s.leaders()),
        acknowledged: r.witness.as_ref().map_or(0, Witness::acknowledged),
        takeovers: r.w.ctx.files.as_ref().map_or(0, |f| f.takeovers),
        entries: r.w.ctx.files.as_ref().map_or(0, |f| f.entries),
        took,
        healed,
        epoch,
        trace: std::mem::replace(&mut r.w.ctx.trace, Trace::new(false)),
    }
}
