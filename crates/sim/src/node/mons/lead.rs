//! The leader: its first reading of the state, its core, and the links of the front monitors.

use super::{MonsNode, Stage};
use crate::net::{Arrival, ConnKey, NodeId, Service};
use crate::node::mon::{SeededRandom, peer};
use crate::node::{addr, mon_addr};
use crate::queue::{SEC, Time};
use crate::world::Ctx;
use base::rng::Rng;
use base::{AddrVec, Now};
use mon::core::relay::{Hub, HubEffect, LINK_IDS};
use mon::core::start::load::{self, Setup};
use mon::core::{Effect, MonCore};
use mon::state::Role;
use state::StateStore as _;
use state::simulated::SimulatedStore;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Message;

/// State of a leader that serves.
pub(super) struct Leading {
    pub(super) store: SimulatedStore,
    pub(super) core: MonCore,
    pub(super) hub: Hub,
    pub(super) links: BTreeMap<ConnKey, AddrVec>,
    /// Revision of the fence.
    pub(super) fence: u64,
    pub(super) listening: bool,
    pub(super) next_second: Time,
}

/// Methods of the leader.
impl MonsNode {
    /// Reads the state with which it will lead.
    pub(super) fn load(&mut self, now: Now, cx: &mut Ctx) {
        let t = cx.now();
        let Some(p) = &mut self.process else { return };
        let Stage::Loads(l, fence) = &mut p.stage else { return };
        if l.may_begin(t) {
            l.begin(load::ranges(), 0);
        }
        let Some((got, at)) = l.step(t) else { return };
        let Some(records) = l.records.take() else {
            match load::map_ranges(&got) {
                Ok(ranges) => {
                    l.records = Some(got);
                    l.begin(ranges, at);
                }
                Err(e) => cx.violation(format!("mon node {}: the state cannot be read: {e}", self.node)),
            }
            return;
        };
        let setup = Setup {
            name: self.name.clone(),
            options: self.options.clone(),
            mgr_addrs: Some(AddrVec(vec![addr(self.node, 6800, p.inc as u32)])),
            random: Rc::new(SeededRandom(RefCell::new(Rng::new(cx.options.seed ^ p.inc << 32)))),
        };
        let fence = fence.clone();
        match MonCore::load(&records, &got, setup, now) {
            Ok(mut core) => {
                let revision = fence.1;
                core.lead(fence);
                let Stage::Loads(l, _) = std::mem::replace(&mut p.stage, Stage::Changes) else { return };
                p.stage = Stage::Leads(Box::new(Leading {
                    store: l.store,
                    core,
                    hub: Hub::default(),
                    links: BTreeMap::new(),
                    fence: revision,
                    listening: false,
                    next_second: t + SEC,
                }));
            }
            Err(e) => cx.violation(format!("mon node {}: it does not start on what is stored: {e}", self.node)),
        }
    }

    /// False if its lease has expired: from then on it accepts and sends nothing.
    fn may_act(&mut self, now: Now, cx: &mut Ctx) -> bool {
        let Some(p) = &self.process else { return false };
        let Stage::Leads(l) = &p.stage else { return false };
        let fence = l.fence;
        let ok = p.member.leads_until().is_some_and(|u| now.mono < u);
        if ok {
            cx.acts(self.node, fence);
        } else {
            self.stop("the lease of the leader has run out");
        }
        ok
    }

    pub(super) fn leader_arrival(&mut self, a: Arrival, now: Now, cx: &mut Ctx) {
        if !self.may_act(now, cx) {
            return;
        }
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let inc = p.inc;
        let Stage::Leads(l) = &mut p.stage else { return };
        match a {
            Arrival::Accept(k, service, card) => {
                cx.net.accepted(k, node, inc, t);
                if service == Service::Mon && mon::core::relay::is_monitor(&card.name) {
                    l.hub.link_open(k);
                    l.links.insert(k, card.addrs.clone());
                    l.core.clock_soon();
                    return;
                }
                let role = if service == Service::Mgr { Role::Mgr } else { Role::Mon };
                if role == Role::Mon
                    && let Some((id, _)) = l.core.take_ids(1)
                {
                    cx.given_id(id);
                }
                l.core.handle(mon::core::Event::Open(k, Box::new(peer(*card, role))), now);
            }
            Arrival::Message(k, m) if l.hub.is_link(k) => l.link_message(k, &m, node, inc, now, cx),
            Arrival::Closed(k, _) if l.hub.is_link(k) => l.link_closed(k, now),
            Arrival::Message(k, m) => l.core.handle(mon::core::Event::Message(k, m), now),
            Arrival::Closed(k, _) => l.core.handle(mon::core::Event::Closed(k), now),
            Arrival::Opened(_) => {}
        }
    }

    pub(super) fn leader_turn(&mut self, now: Now, cx: &mut Ctx) {
        if !matches!(self.process.as_ref().map(|p| &p.stage), Some(Stage::Leads(_))) || !self.may_act(now, cx) {
            return;
        }
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let inc = p.inc;
        let Stage::Leads(l) = &mut p.stage else { return };
        while let Some(e) = l.store.poll() {
            l.core.handle(mon::core::Event::State(e), now);
        }
        if t >= l.next_second {
            l.next_second = t + SEC;
            l.core.handle(mon::core::Event::Tick, now);
            if let Some(round) = l.core.clock_round(now) {
                l.hub.ask_clocks(round);
            }
        }
        l.core.set_monitors_up(p.peers.keys().cloned().collect());
        let stop = l.carry_out(node, inc, now, cx);
        if !l.listening && l.core.is_ready() && !l.core.is_busy() {
            l.listening = true;
            cx.net.listen(&mon_addr(node), node, inc, Service::Mon);
            cx.net.listen(&addr(node, 6800, inc as u32), node, inc, Service::Mgr);
        }
        if let Some(why) = stop {
            self.stop(why);
        }
    }
}

impl Leading {
    fn link_message(&mut self, link: ConnKey, m: &Message, node: NodeId, inc: u64, now: Now, cx: &mut Ctx) {
        match self.hub.message(link, m, now.mono) {
            Ok(None) => {}
            Ok(Some(HubEffect::Open(c, peer, opened))) => {
                self.core.handle(mon::core::Event::OpenElsewhere(c, peer), now);
                if let Some(addrs) = self.links.get(&link) {
                    self.core.relayed_by(c, addrs, opened);
                }
            }
            Ok(Some(HubEffect::Message(c, m))) => self.core.handle(mon::core::Event::Message(c, m), now),
            Ok(Some(HubEffect::Closed(c))) => self.core.handle(mon::core::Event::Closed(c), now),
            Ok(Some(HubEffect::TakeIds)) => {
                let ids = self.core.take_ids(LINK_IDS);
                self.hub.ids(link, ids);
            }
            Ok(Some(HubEffect::Clock(c))) => {
                if let Some(addrs) = self.links.get(&link) {
                    self.core.clock_answered(addrs, c.round, c.here, now);
                }
            }
            Ok(Some(HubEffect::KeyUsed(_))) => {}
            Err(why) => {
                cx.violation(format!("mon node {node}: a monitor is refused: {why}"));
                let t = cx.now();
                cx.net.close(link, node, inc, t);
                self.link_closed(link, now);
            }
        }
    }

    fn link_closed(&mut self, link: ConnKey, now: Now) {
        self.links.remove(&link);
        for c in self.hub.link_closed(link) {
            self.core.handle(mon::core::Event::Closed(c), now);
        }
    }

    /// Starts a commit if there are changes, and carries out effects; returns the reason if the monitor has to stop.
    fn carry_out(&mut self, node: NodeId, inc: u64, now: Now, cx: &mut Ctx) -> Option<String> {
        let t = cx.now();
        let mut stop = None;
        self.core.flush();
        while self.core.has_more() {
            self.core.flush();
        }
        loop {
            let effects = self.core.take_effects();
            if effects.is_empty() {
                break;
            }
            for e in effects {
                match e {
                    Effect::Send(c, m) if Hub::is_relayed(c) => {
                        if let Err(why) = self.hub.send(c, m) {
                            self.hub.close(c, why);
                            self.core.handle(mon::core::Event::Closed(c), now);
                        }
                    }
                    Effect::Close(c, why) if Hub::is_relayed(c) => self.hub.close(c, why),
                    Effect::Send(c, m) => cx.net.send(c, node, inc, m, t),
                    Effect::Close(c, why) => {
                        cx.trace.line(t, || format!("mon node {node} closes connection {c}: {why}"));
                        cx.net.close(c, node, inc, t);
                    }
                    Effect::Submit(r) => self.store.submit(r),
                    // Work on images needs a client, which these clusters do not have.
                    Effect::Job(..) | Effect::Forward(..) => {}
                    // Keys do not change in these clusters.
                    Effect::CloseLinks(_) => {}
                    Effect::Stop(why) => {
                        stop.get_or_insert(why);
                    }
                }
            }
        }
        for (link, m) in self.hub.take_out() {
            cx.net.send(link, node, inc, m, t);
        }
        stop
    }
}
