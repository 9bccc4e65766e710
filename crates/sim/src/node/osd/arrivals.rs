//! Arrivals at an OSD from the network.

use super::{Client, FSID, OsdNode, session};
use crate::net::{Arrival, ConnKey, Service};
use crate::world::Ctx;
use base::OsdId;
use osd::core::heartbeat;
use osd::core::pgs::Input;
use std::sync::Arc;
use wire::msg::{MMgrConfigure, MOsdLease, MOsdMap, MOsdPing, MPgPeer, ping_op};
use wire::{Features, Message, WireMessage as _};

impl OsdNode {
    pub(super) fn arrival(&mut self, a: Arrival, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        match a {
            Arrival::Accept(k, service, card) => {
                cx.net.accepted(k, node, p.inc, t);
                match service {
                    Service::HbBack | Service::HbFront => {
                        p.answering.insert(k, OsdId(card.entity.num as i32));
                    }
                    Service::Cluster => {
                        let at = card.addrs.msgr2().copied().unwrap_or_default();
                        p.peers.accepted(k, OsdId(card.entity.num as i32), at, ());
                    }
                    _ => {
                        let info = Arc::new(session(k, p.at(k), *card));
                        p.clients.insert(k, Client::new(info));
                    }
                }
            }
            Arrival::Opened(k) => {
                if p.mon == Some(k) {
                    p.control.handle_mon_open(Features::PACIFIC);
                } else if p.mgr == Some(k) {
                    p.control.handle_mgr_open();
                } else if p.fetcher.has(k) {
                    p.fetcher.handle_open(k);
                } else if let Some((osd, link)) = p.links.get(k) {
                    let (epoch, up_from) = p.position();
                    p.links.opened(k);
                    p.control.heartbeats().handle_open(osd, link, now, epoch, up_from);
                    p.control.handle_lane_open(osd, now);
                }
            }
            Arrival::Closed(k, refused) => {
                if p.mon == Some(k) {
                    p.mon = None;
                    p.control.handle_mon_closed(now);
                } else if p.mgr == Some(k) {
                    p.mgr = None;
                    p.control.handle_mgr_closed(now);
                } else if p.fetcher.has(k) {
                    p.fetcher.handle_closed(k, now);
                } else if let Some((osd, link)) = p.links.remove(k) {
                    let (epoch, up_from) = p.position();
                    p.control.heartbeats().handle_closed(osd, link, refused, now, epoch, up_from);
                } else if let Some(peer) = p.peers.forget(k) {
                    p.all(&Input::PeerReset(peer.osd), node, now, cx);
                } else if let Some(session) = p.client_gone(k) {
                    p.all(&Input::SessionClosed(session), node, now, cx);
                } else {
                    p.answering.remove(&k);
                }
            }
            Arrival::Message(k, m) => self.message(k, m, cx),
        }
    }

    fn message(&mut self, k: ConnKey, m: Message, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let result: Result<(), wire::DecodeError> = if p.mon == Some(k) {
            p.control.handle_mon_message(m)
        } else if p.mgr == Some(k) {
            match m.header.kind {
                MMgrConfigure::KIND => MMgrConfigure::from_message(&m).map(|x| p.control.handle_mgr_configure(&x, now)),
                _ => Ok(()),
            }
        } else if let Some((osd, link)) = p.links.get(k) {
            match m.header.kind {
                MOsdLease::KIND => MOsdLease::from_message(&m).map(|l| p.control.handle_lease_grant(osd, &l, now)),
                MOsdMap::KIND => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
                _ => MOsdPing::from_message(&m).map(|ping| {
                    if ping.op == ping_op::PING_REPLY {
                        let epoch = p.position().0;
                        p.control.heartbeats().handle_reply(osd, link, &ping, now, epoch);
                    }
                }),
            }
        } else if let Some(from) = p.answering.get(&k).copied() {
            match m.header.kind {
                MOsdLease::KIND => MOsdLease::from_message(&m).map(|l| {
                    let (maps, grant) = p.control.handle_lease_request(from, &l, now);
                    let maps = maps.map(|m| m.to_message(Features::PACIFIC));
                    let grant = grant.map(|m| m.to_message(Features::PACIFIC));
                    for m in maps.into_iter().chain(grant) {
                        cx.net.send(k, node, p.inc, m, t);
                    }
                }),
                _ => MOsdPing::from_message(&m).map(|ping| {
                    if ping.op == ping_op::PING && ping.fsid == FSID {
                        let (epoch, up_from) = p.position();
                        let r = heartbeat::answer(FSID, &ping, epoch, up_from, now);
                        cx.net.send(k, node, p.inc, r.to_message(Features::PACIFIC), t);
                    }
                }),
            }
        } else if let Some(from) = p.peers.get(k).map(|s| s.osd) {
            match m.header.kind {
                MPgPeer::KIND => {
                    MPgPeer::from_message(&m).map(|m| p.peer_message(p.at(k), from, Box::new(m), node, now, cx))
                }
                _ => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
            }
        } else if p.fetcher.has(k) {
            match m.header.kind {
                MOsdMap::KIND => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
                _ => p.fetcher.handle_message(k, self.osd, &m),
            }
        } else if p.clients.contains_key(&k) {
            p.client_message(k, node, &m, now, cx)
        } else {
            Ok(())
        };
        if let Err(e) = result {
            cx.violation(format!("{}: message {} not understood: {e}", self.osd, m_name(k)));
        }
    }
}

fn m_name(k: ConnKey) -> String {
    format!("on connection {k}")
}
