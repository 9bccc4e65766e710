//! A front monitor: its copy of the state, its sessions, and its link to the leader.

use super::{AGAIN, Load, MonsNode, Process, Stage};
use crate::net::{Arrival, Card, ConnKey, NodeId, Service};
use crate::node::mon::peer;
use crate::node::mon_addr;
use crate::queue::Time;
use crate::world::Ctx;
use auth::AuthHost as _;
use base::{AddrVec, AuthName, EntityKind, EntityName, Now};
use mon::core::quorum::follow::{self, Follower};
use mon::core::quorum::front::{FrontAuth, FrontIds, Replica};
use mon::core::quorum::member::Presence;
use mon::core::relay::{Front, FrontEffect, PATIENCE};
use mon::state::Role;
use state::StateStore as _;
use state::simulated::SimulatedStore;
use std::cell::RefCell;
use std::rc::Rc;
use wire::msg::MRelayClock;
use wire::{Features, Message, WireMessage as _};

/// State of a front monitor.
pub(super) struct InFront {
    pub(super) store: SimulatedStore,
    pub(super) follower: Follower,
    pub(super) auth: FrontAuth,
    pub(super) front: Front,
    /// The connection to the leader, the leader, and whether the connection is open.
    pub(super) link: Option<(ConnKey, Presence, bool)>,
    pub(super) listening: bool,
    pub(super) next_look: Time,
}

/// In front.
impl MonsNode {
    /// Reads the copy of the state for the first time.
    pub(super) fn begin(&mut self, cx: &mut Ctx) {
        let t = cx.now();
        let Some(Process { stage: Stage::Begins(l), .. }) = &mut self.process else { return };
        if l.may_begin(t) {
            l.begin(Replica::ranges(), 0);
        }
        let Some((records, at)) = l.step(t) else { return };
        match Replica::load(&records, at, &self.name, &self.options) {
            Ok(r) => {
                let replica = Rc::new(RefCell::new(r));
                let in_front = InFront {
                    store: self.handle_of(),
                    follower: Follower::new(&self.name, &self.options, Rc::clone(&replica)),
                    auth: FrontAuth { replica, ids: Rc::new(FrontIds::default()), used: Rc::default() },
                    front: Front::default(),
                    link: None,
                    listening: false,
                    next_look: t,
                };
                if let Some(p) = &mut self.process {
                    p.stage = Stage::InFront(Box::new(in_front));
                }
            }
            Err(e) => cx.violation(format!("mon node {}: its copy of the state cannot be made: {e}", self.node)),
        }
    }

    pub(super) fn front_arrival(&mut self, a: Arrival, now: Now, cx: &mut Ctx) {
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let Stage::InFront(f) = &mut p.stage else { return };
        let linked = |f: &InFront, k: ConnKey| f.link.as_ref().is_some_and(|l| l.0 == k);
        match a {
            Arrival::Accept(k, service, card) => {
                if card.kind == EntityKind::MON || service != Service::Mon {
                    return cx.net.close(k, node, p.inc, t);
                }
                let Some(id) = f.auth.new_global_id() else { return cx.net.close(k, node, p.inc, t) };
                cx.net.accepted(k, node, p.inc, t);
                f.front.open(k, peer(*card, Role::Mon), now.mono);
                cx.given_id(id);
            }
            Arrival::Opened(k) if linked(f, k) => {
                if let Some(l) = &mut f.link {
                    l.2 = true;
                }
                f.front.link_open(now.mono);
            }
            Arrival::Message(k, m) if linked(f, k) => {
                if let Err(e) = f.front.from_leader(&m) {
                    cx.violation(format!("mon node {node}: what the leader sent cannot be read: {e}"));
                }
            }
            Arrival::Closed(k, _) if linked(f, k) => {
                f.link = None;
                f.front.link_closed();
            }
            Arrival::Message(k, m) => f.front.message(k, m),
            Arrival::Closed(k, _) => f.front.closed(k),
            Arrival::Opened(_) => {}
        }
    }

    pub(super) fn front_turn(&mut self, now: Now, timer: bool, cx: &mut Ctx) {
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let Stage::InFront(f) = &mut p.stage else { return };
        while let Some(e) = f.store.poll() {
            f.follower.event(e, now.mono);
        }
        if timer {
            f.follower.tick(p.written, now.mono);
        }
        let mut stop = None;
        for o in f.follower.take_outputs() {
            match o {
                follow::Output::Submit(r) => f.store.submit(r),
                follow::Output::Changed => {}
                follow::Output::Leader => p.member.leader_changed(),
                follow::Output::Reread(why) | follow::Output::Failed(why) => {
                    cx.trace.line(t, || format!("mon node {node}: the copy of the state: {why}"));
                }
                follow::Output::Stop(why) => stop = Some(why),
            }
        }
        if let Some(fence) = p.elected.take() {
            cx.line(|| format!("mon node {node} is elected"));
            // All sessions that it had as a front monitor end.
            cx.net.process_ended(node, p.inc, false, t);
            let load = Load::new(self.handle_of());
            if let Some(p) = &mut self.process {
                p.stage = Stage::Loads(load, fence);
            }
            return;
        }
        if !f.listening && f.auth.ids.left() > 0 {
            f.listening = true;
            cx.net.listen(&mon_addr(node), node, p.inc, Service::Mon);
        }
        if t >= f.next_look {
            f.next_look = t + AGAIN;
            f.look(p.leader.as_ref(), node, p.inc, cx);
            f.front.expire(now.mono, PATIENCE);
        }
        f.carry_out(node, p.inc, now, cx);
        if let Some(why) = stop {
            self.stop(why);
        }
    }
}

impl InFront {
    /// Connects to the leader.
    fn look(&mut self, leader: Option<&Presence>, node: NodeId, inc: u64, cx: &mut Ctx) {
        let t = cx.now();
        if let Some((k, to, _)) = &self.link
            && leader != Some(to)
        {
            cx.net.close(*k, node, inc, t);
            self.link = None;
            self.front.link_closed();
        }
        let Some(leader) = leader.filter(|l| l.addr != mon_addr(node)) else { return };
        if self.link.is_none() {
            let card = Card {
                kind: EntityKind::MON,
                name: AuthName { kind: EntityKind::MON, id: String::new() },
                entity: EntityName::new(EntityKind::MON, -1),
                addrs: AddrVec(vec![mon_addr(node)]),
                global_id: inc,
            };
            let k = cx.net.connect(node, inc, leader.addr, card, t);
            self.link = Some((k, leader.clone(), false));
        }
    }

    fn to_leader(&self, m: Message, node: NodeId, inc: u64, cx: &mut Ctx) {
        let t = cx.now();
        if let Some((k, _, true)) = &self.link {
            cx.net.send(*k, node, inc, m, t);
        }
    }

    fn effects(&mut self, node: NodeId, inc: u64, now: Now, cx: &mut Ctx) {
        let t = cx.now();
        for e in self.front.take_effects() {
            match e {
                FrontEffect::ToClient(k, m) => cx.net.send(k, node, inc, m, t),
                FrontEffect::CloseClient(k, why) => {
                    cx.trace.line(t, || format!("mon node {node} closes connection {k}: {why}"));
                    cx.net.close(k, node, inc, t);
                }
                FrontEffect::ToLeader(m) => self.to_leader(m, node, inc, cx),
                FrontEffect::Consumed(..) => {}
                FrontEffect::Ids(first, end) => self.auth.ids.given(first, end),
                FrontEffect::Clock(round) => {
                    let m = MRelayClock { round, here: now.wall, sent: Some(now.mono) }.to_message(Features::PACIFIC);
                    self.to_leader(m, node, inc, cx);
                }
            }
        }
    }

    fn carry_out(&mut self, node: NodeId, inc: u64, now: Now, cx: &mut Ctx) {
        self.effects(node, inc, now, cx);
        if self.auth.ids.low() {
            self.front.ask_ids();
            self.effects(node, inc, now, cx);
        }
    }
}
