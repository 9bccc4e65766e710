//! A client's host: its monitor session and objecter, which carry out the load's operations or the operator's
//! commands.

use super::{Timer, addr};
use crate::listing::{Listing, Next};
use crate::load::{Load, What};
use crate::net::{Arrival, Card, ConnKey, NodeId, about};
use crate::queue::{MS, Time};
use crate::world::{Clock, Ctx, Input};
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Mono, OsdId, PoolId, SnapId};
use bytes::Bytes;
use client::core::maps;
use client::core::mon::{self, MonSession};
use client::core::objecter::{Objecter, Output, Request};
use cluster::OsdMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use wire::msg::{MOsdMap, MPoolOp, MPoolOpReply, pool_op};
use wire::{Decode as _, Features, Message, WireMessage as _};

/// Longest time between two checks of deadlines, as in the real host.
const TICK: std::time::Duration = std::time::Duration::from_millis(500);

struct Process {
    inc: u64,
    mon: MonSession,
    mon_conn: Option<ConnKey>,
    objecter: Objecter,
    conns: BTreeMap<ConnKey, OsdId>,
    by_osd: BTreeMap<OsdId, ConnKey>,
    /// Operations in flight: the load's number by the objecter's.
    ops: BTreeMap<u64, u64>,
    /// Listings in progress, by the load's number.
    listings: BTreeMap<u64, Listing>,
    pool_ops: BTreeMap<u64, Option<u64>>,
    next_tid: u64,
    timer: Timer,
    next_op: Time,
    next_tick: Mono,
    waking: bool,
}

/// A client of the run, or its operator.
pub struct ClientNode {
    /// The node's clocks.
    pub clock: Clock,
    /// The node's index in the world.
    pub node: NodeId,
    /// The client's number; `None` for the operator.
    pub number: Option<usize>,
    load: Rc<RefCell<Load>>,
    process: Option<Process>,
    /// Sessions with monitors so far.
    pub sessions: u64,
    /// Commands so far.
    asked: usize,
    /// Answers to commands, by number: result, status and output.
    pub answers: BTreeMap<u64, (i32, String, Bytes)>,
}

impl ClientNode {
    /// A client, or the operator if `number` is `None`.
    #[must_use]
    pub fn new(clock: Clock, node: NodeId, number: Option<usize>, load: Rc<RefCell<Load>>) -> Self {
        Self { clock, node, number, load, process: None, sessions: 0, asked: 0, answers: BTreeMap::new() }
    }

    /// Number of the running process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// Number of operations without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.process.as_ref().map_or(0, |p| p.ops.len())
    }

    /// The load's numbers of operations without an answer.
    pub fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.process.iter().flat_map(|p| p.ops.values().copied())
    }

    /// Name of the object of an operation of the load.
    #[must_use]
    pub fn object_of(&self, id: u64) -> Bytes {
        Load::name(self.load.borrow().records[id as usize - 1].object)
    }

    /// The client's newest OSD map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.process.as_ref().and_then(|p| p.objecter.map())
    }

    /// Starts a new process.
    pub fn start(&mut self, cx: &mut Ctx) {
        let inc = cx.new_inc();
        let now = self.clock.now(cx.now());
        let mut mon = MonSession::new(cx.mon_addrs(), inc, format!("c{}", self.node));
        mon.subscribe("osdmap", 0, false);
        self.process = Some(Process {
            inc,
            mon,
            mon_conn: None,
            objecter: Objecter::new(0),
            conns: BTreeMap::new(),
            by_osd: BTreeMap::new(),
            ops: BTreeMap::new(),
            listings: BTreeMap::new(),
            pool_ops: BTreeMap::new(),
            next_tid: 1,
            timer: Timer::default(),
            next_op: cx.now(),
            next_tick: now.mono,
            waking: false,
        });
        self.handle(Input::Timer, cx);
    }

    /// Kills the process; its operations stay without an answer.
    pub fn crash(&mut self, _: &mut Ctx) {
        self.process = None;
    }

    /// Sends a command of the operator; the answer appears in [`ClientNode::answers`].
    pub fn command(&mut self, json: &str, cx: &mut Ctx) -> u64 {
        let Some(p) = &mut self.process else { return 0 };
        let tid = p.mon.command(json, Bytes::new());
        self.asked += 1;
        self.drain(cx);
        tid
    }

    /// True if every command was answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.answers.len() == self.asked
    }

    /// Begins a read at the end of a run.
    pub fn submit(&mut self, id: u64, request: Request, cx: &mut Ctx) {
        if let Some(p) = &mut self.process {
            let tid = p.objecter.submit(request);
            p.ops.insert(tid, id);
        }
        self.drain(cx);
    }

    /// Handles an event.
    pub fn handle(&mut self, input: Input, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        match input {
            Input::Timer => {
                p.timer.fired(cx.queue.now());
                p.mon.tick(now);
                p.objecter.tick(now);
                if now.mono >= p.next_tick {
                    p.next_tick = now.mono + TICK;
                }
                if cx.queue.now() >= p.next_op {
                    p.waking = false;
                }
            }
            Input::Net(a) => self.arrival(a, cx),
            Input::Disk | Input::Inner(_) | Input::State(_) => {}
        }
        self.drain(cx);
        self.work(cx);
    }

    fn arrival(&mut self, a: Arrival, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        match a {
            Arrival::Accept(..) => {}
            Arrival::Opened(k) if p.mon_conn == Some(k) => {
                self.sessions += 1;
                p.mon.handle_open(Features::PACIFIC);
            }
            Arrival::Opened(k) => {
                if let Some(o) = p.conns.get(&k) {
                    p.objecter.handle_open(*o, Features::PACIFIC);
                }
            }
            Arrival::Closed(k, _) if p.mon_conn == Some(k) => {
                p.mon_conn = None;
                p.mon.handle_closed(now);
            }
            Arrival::Closed(k, _) => {
                if let Some(o) = p.conns.remove(&k) {
                    p.by_osd.remove(&o);
                    p.objecter.handle_closed(o, now);
                }
            }
            Arrival::Message(k, m) => {
                let r = if p.mon_conn == Some(k) {
                    p.mon.handle_message(m)
                } else if let Some(o) = p.conns.get(&k).copied() {
                    if m.header.kind == MOsdMap::KIND {
                        MOsdMap::from_message(&m).map(|x| self.maps(&x, cx))
                    } else {
                        p.objecter.handle_message(o, &m)
                    }
                } else {
                    Ok(())
                };
                if let Err(e) = r {
                    cx.violation(format!("client {}: message not understood: {e}", self.node));
                }
            }
        }
    }

    fn maps(&mut self, m: &MOsdMap, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let (new, refused) = maps::advance(p.objecter.map().cloned(), m);
        for (e, error) in refused {
            cx.violation(format!("client {}: map {e} refused: {error}", self.node));
        }
        for map in new {
            p.mon.got("osdmap", map.epoch.0.into());
            p.objecter.handle_map(map);
        }
    }

    fn card(&self, inc: u64) -> Card {
        let gid = 5000 + inc;
        let operator = self.number.is_none();
        Card {
            kind: EntityKind::CLIENT,
            name: AuthName { kind: EntityKind::CLIENT, id: if operator { "admin" } else { "load" }.into() },
            entity: EntityName::new(EntityKind::CLIENT, gid as i64),
            addrs: AddrVec(vec![EntityAddr {
                sock: addr(self.node, 0, 0).sock,
                ..EntityAddr::unlistening(inc as u32)
            }]),
            global_id: gid,
        }
    }

    /// Carries out the outputs of monitor session and objecter.
    fn drain(&mut self, cx: &mut Ctx) {
        let (node, t) = (self.node, cx.now());
        loop {
            let Some(p) = &mut self.process else { return };
            if let Some(o) = p.mon.poll_output() {
                self.mon_output(o, cx);
                continue;
            }
            let Some(o) = p.objecter.poll_output() else { break };
            match o {
                Output::Connect(osd, addrs) => {
                    if let Some(a) = addrs.msgr2().copied() {
                        let inc = p.inc;
                        let card = self.card(inc);
                        let k = cx.net.connect(node, inc, a, card, t);
                        if let Some(p) = &mut self.process {
                            p.conns.insert(k, osd);
                            p.by_osd.insert(osd, k);
                        }
                    }
                }
                Output::Close(osd) => {
                    if let Some(k) = p.by_osd.remove(&osd) {
                        p.conns.remove(&k);
                        cx.net.close(k, node, p.inc, t);
                    }
                }
                Output::Send(osd, m) => {
                    if let Some(k) = p.by_osd.get(&osd) {
                        cx.net.send(*k, node, p.inc, m, t);
                    }
                }
                Output::Done(tid, r) => {
                    if let Some(id) = p.ops.remove(&tid) {
                        let r = match &r {
                            Ok(r) => Ok(&**r),
                            Err(e) => Err(*e),
                        };
                        if let Some(l) = p.listings.get_mut(&id) {
                            let next = match p.objecter.map() {
                                Some(map) => l.answer(r, map),
                                None => Next::Over(Err(base::errno::EIO)),
                            };
                            self.list(id, next, t);
                        } else {
                            self.load.borrow_mut().finish(id, t, r);
                        }
                        cx.trace.line(t, || {
                            let load = self.load.borrow();
                            let rec = &load.records[id as usize - 1];
                            let brief = match &rec.outcome {
                                Some(crate::load::Outcome::Read(o, _)) => crate::model::describe(o.as_deref()),
                                o => format!("{o:?}"),
                            };
                            format!("client {node}: operation {id} on object-{} is answered: {brief}", rec.object)
                        });
                    }
                }
                Output::NeedMap(e) => p.mon.subscribe("osdmap", e.0.into(), false),
            }
        }
        let now = self.clock.now(t);
        let Some(p) = &mut self.process else { return };
        let next = [p.mon.next_deadline(), p.objecter.next_deadline(), Some(p.next_tick)].into_iter().flatten().min();
        // The real host checks deadlines at least that often.
        let next = next.map(|d| d.min(now.mono + TICK));
        p.timer.set(next, &self.clock, node, p.inc, cx);
    }

    /// Continues or ends a listing.
    fn list(&mut self, id: u64, next: Next, now: Time) {
        let Some(p) = &mut self.process else { return };
        match next {
            Next::Ask(request) => {
                let tid = p.objecter.submit(*request);
                p.ops.insert(tid, id);
            }
            Next::Over(names) => {
                p.listings.remove(&id);
                self.load.borrow_mut().listed(id, now, names);
            }
        }
    }

    fn mon_output(&mut self, o: mon::Output, cx: &mut Ctx) {
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        match o {
            mon::Output::Connect(a) => {
                let inc = p.inc;
                let card = self.card(inc);
                let k = cx.net.connect(node, inc, a, card, t);
                if let Some(p) = &mut self.process {
                    p.mon_conn = Some(k);
                }
            }
            mon::Output::Close => {
                if let Some(k) = p.mon_conn.take() {
                    cx.net.close(k, node, p.inc, t);
                }
            }
            mon::Output::Send(m) => {
                if let Some(k) = p.mon_conn {
                    cx.net.send(k, node, p.inc, m, t);
                }
            }
            mon::Output::Event(mon::Event::Command { tid, rc, status, out }) => {
                cx.trace.line(t, || format!("operator: command {tid} answered {rc} {status}"));
                self.answers.insert(tid, (rc, status, out));
            }
            mon::Output::Event(mon::Event::Message(m)) => self.mon_message(&m, cx),
            mon::Output::Event(_) => {}
        }
    }

    fn mon_message(&mut self, m: &Message, cx: &mut Ctx) {
        let bad = match m.header.kind {
            MOsdMap::KIND => MOsdMap::from_message(m).map(|x| self.maps(&x, cx)).err(),
            MPoolOpReply::KIND => MPoolOpReply::from_message(m).map(|r| self.pool_op_done(m.header.tid, &r, cx)).err(),
            _ => None,
        };
        if let Some(e) = bad {
            cx.violation(format!("client {}: message of the monitor not understood: {e}", self.node));
        }
    }

    fn pool_op_done(&mut self, tid: u64, r: &MPoolOpReply, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let Some(None) = p.pool_ops.remove(&tid) else { return };
        if let (0, Some(data)) = (r.reply_code, &r.response_data)
            && let Ok(s) = u64::from_bytes(data)
        {
            cx.trace.line(cx.queue.now(), || format!("snapshot {s} exists"));
            self.load.borrow_mut().snapshot_made(s);
        }
    }

    fn snapshot(&mut self, pool: PoolId, remove: Option<u64>, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let m = MPoolOp {
            fsid: p.mon.fsid(),
            pool: pool.0 as u32,
            op: if remove.is_some() { pool_op::DELETE_UNMANAGED_SNAP } else { pool_op::CREATE_UNMANAGED_SNAP },
            snapid: SnapId(remove.unwrap_or(0)),
            ..MPoolOp::default()
        };
        if let Some(k) = p.mon_conn.filter(|_| p.mon.is_open()) {
            let tid = p.next_tid | 1 << 40;
            p.next_tid += 1;
            p.pool_ops.insert(tid, remove);
            cx.net.send(k, self.node, p.inc, m.to_message(Features::PACIFIC).with_tid(tid), cx.queue.now());
        }
    }

    /// Begins operations as far as depth and pace allow.
    fn work(&mut self, cx: &mut Ctx) {
        let Some(number) = self.number else { return };
        loop {
            let t = cx.now();
            let wall = self.clock.now(t).wall;
            let Some(p) = &mut self.process else { return };
            let pool = self.load.borrow().pool;
            let known = pool.is_some_and(|id| p.objecter.map().is_some_and(|m| m.pool(id).is_some()));
            if !known || p.ops.len() >= cx.options.depth {
                return;
            }
            if t < p.next_op {
                if !p.waking {
                    p.waking = true;
                    cx.queue.at(p.next_op, crate::world::Event::Timer(self.node, p.inc));
                }
                return;
            }
            let wish = self.load.borrow_mut().snapshot_wish();
            if let (Some(w), Some(pool)) = (wish, pool) {
                self.snapshot(pool, w, cx);
            }
            let Some((id, request)) = self.load.borrow_mut().next(number, t, wall) else { return };
            if cx.trace.has_words() {
                let load = self.load.borrow();
                let r = &load.records[id as usize - 1];
                cx.trace.line(t, || {
                    format!("client {}: operation {id} on object-{} begins: {:?}", self.node, r.object, r.what)
                });
            }
            let mean = match cx.options.bursts {
                true if cx.rng.chance(1, 20) => cx.options.think * 15,
                true => cx.options.think / 4,
                false => cx.options.think,
            };
            let think = about(&mut cx.rng, mean);
            let Some(p) = &mut self.process else { return };
            p.next_op = t + think.max(MS / 100);
            let most = match self.load.borrow().records[id as usize - 1].what {
                What::List { most } => Some(most),
                _ => None,
            };
            if let (Some(most), Some(pool)) = (most, pool) {
                let listing = Listing::new(pool, most);
                let first = p.objecter.map().map(|m| listing.ask(m));
                p.listings.insert(id, listing);
                self.list(id, first.unwrap_or(Next::Over(Err(base::errno::EIO))), t);
                self.drain(cx);
                continue;
            }
            let tid = p.objecter.submit(request);
            p.ops.insert(tid, id);
            self.drain(cx);
        }
    }
}
