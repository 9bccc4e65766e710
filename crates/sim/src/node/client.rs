//! A client's host: its monitor session and objecter, which carry out the load's operations or the operator's
//! commands.

use super::addr;
use super::links::{LOAD, Links, Seen, Told};
use crate::listing::{Listing, Next};
use crate::load::{Load, What};
use crate::net::{Arrival, Card, NodeId, about};
use crate::queue::{MS, Time};
use crate::world::{Clock, Ctx, Input};
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, PoolId, SnapId};
use bytes::Bytes;
use client::core::mon;
use client::core::objecter::Request;
use cluster::OsdMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use wire::msg::{MOsdMap, MOsdOpReply, MPoolOp, MPoolOpReply, pool_op};
use wire::{Decode as _, Features, Message, WireMessage as _};

struct Process {
    links: Links,
    /// Operations in flight: the load's number by the objecter's.
    ops: BTreeMap<u64, u64>,
    /// Listings in progress, by the load's number.
    listings: BTreeMap<u64, Listing>,
    pool_ops: BTreeMap<u64, Option<u64>>,
    next_tid: u64,
    next_op: Time,
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
        self.process.as_ref().map(|p| p.links.inc)
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
        self.load.borrow().name_of(id)
    }

    /// The client's newest OSD map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.process.as_ref().and_then(|p| p.links.map())
    }

    /// Starts a new process.
    pub fn start(&mut self, cx: &mut Ctx) {
        let inc = cx.new_inc();
        let now = self.clock.now(cx.now());
        let card = self.card(inc);
        self.process = Some(Process {
            links: Links::new(self.node, inc, card, format!("c{}", self.node), &["osdmap"], now, cx),
            ops: BTreeMap::new(),
            listings: BTreeMap::new(),
            pool_ops: BTreeMap::new(),
            next_tid: 1,
            next_op: cx.now(),
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
        let tid = p.links.mon.command(json, Bytes::new());
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
            let tid = p.links.objecter.submit(request);
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
                p.links.fired(now, cx);
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
        match p.links.arrival(a, now) {
            Ok(Some(Seen::MonOpen)) => self.sessions += 1,
            Ok(Some(Seen::Maps(m))) => self.maps(&m, cx),
            Ok(None) => {}
            Err(e) => cx.violation(format!("client {}: message not understood: {e}", self.node)),
        }
    }

    fn maps(&mut self, m: &MOsdMap, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        p.links.maps(m, &format!("client {}", self.node), cx, |_| {});
    }

    fn card(&self, inc: u64) -> Card {
        let gid = 5000 + inc;
        let operator = self.number.is_none();
        Card {
            kind: EntityKind::CLIENT,
            name: AuthName { kind: EntityKind::CLIENT, id: if operator { "admin" } else { LOAD }.into() },
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
        while let Some(told) = self.process.as_mut().and_then(|p| p.links.poll(cx)) {
            match told {
                Told::Mon(mon::Event::Command { tid, rc, status, out }) => {
                    cx.line(|| format!("operator: command {tid} answered {rc} {status}"));
                    self.answers.insert(tid, (rc, status, out));
                }
                Told::Mon(mon::Event::Message(m)) => self.mon_message(&m, cx),
                Told::Mon(_) => {}
                Told::Done(tid, r) => self.done(tid, r.as_deref().map_err(|e| *e), cx),
            }
        }
        if let Some(p) = &mut self.process {
            p.links.schedule(None, &self.clock, cx);
        }
    }

    /// Handles the answer to an operation.
    fn done(&mut self, tid: u64, r: Result<&MOsdOpReply, i32>, cx: &mut Ctx) {
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let Some(id) = p.ops.remove(&tid) else { return };
        if let Some(l) = p.listings.get_mut(&id) {
            let next = match p.links.map() {
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

    /// Continues or ends a listing.
    fn list(&mut self, id: u64, next: Next, now: Time) {
        let Some(p) = &mut self.process else { return };
        match next {
            Next::Ask(request) => {
                let tid = p.links.objecter.submit(*request);
                p.ops.insert(tid, id);
            }
            Next::Over(names) => {
                p.listings.remove(&id);
                self.load.borrow_mut().listed(id, now, names);
            }
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
            fsid: p.links.mon.fsid(),
            pool: pool.0 as u32,
            op: if remove.is_some() { pool_op::DELETE_UNMANAGED_SNAP } else { pool_op::CREATE_UNMANAGED_SNAP },
            snapid: SnapId(remove.unwrap_or(0)),
            ..MPoolOp::default()
        };
        if p.links.mon.is_open() {
            let tid = p.next_tid | 1 << 40;
            p.next_tid += 1;
            p.pool_ops.insert(tid, remove);
            p.links.send_mon(m.to_message(Features::PACIFIC).with_tid(tid), cx);
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
            let known = pool.is_some_and(|id| p.links.map().is_some_and(|m| m.pool(id).is_some()));
            if !known || p.ops.len() >= cx.options.work.depth {
                return;
            }
            if t < p.next_op {
                if !p.waking {
                    p.waking = true;
                    cx.queue.at(p.next_op, crate::world::Event::Timer(self.node, p.links.inc));
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
            let mean = match cx.options.work.bursts {
                true if cx.rng.chance(1, 20) => cx.options.work.think * 15,
                true => cx.options.work.think / 4,
                false => cx.options.work.think,
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
                let first = p.links.map().map(|m| listing.ask(m));
                p.listings.insert(id, listing);
                self.list(id, first.unwrap_or(Next::Over(Err(base::errno::EIO))), t);
                self.drain(cx);
                continue;
            }
            let tid = p.links.objecter.submit(request);
            p.ops.insert(tid, id);
            self.drain(cx);
        }
    }
}
