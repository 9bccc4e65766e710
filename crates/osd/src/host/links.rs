//! The control lane: heartbeat links, which also carry lease requests and grants. Listeners that answer, and
//! connections to peers.
//!
//! Control traffic has its own endpoints, so that data on other connections can't delay it. Nothing is kept
//! over a broken connection, since the next ping or request repeats everything.

use crate::core::admission::{self, Admission, Lane};
use crate::core::heartbeat::{self, LINKS, Link, answer};
use base::{EntityKind, Epoch, OsdId, id::Uuid};
use net::{CloseReason, ConnEvent, ConnId, Endpoint, Handler, Net, PeerInfo, Target};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use wire::msg::{MOsdLease, MOsdMap, MOsdPing, ping_op};
use wire::{Message, WireMessage as _};

/// State of this OSD that answers to peers need.
#[derive(Default)]
pub(super) struct Answering {
    pub(super) fsid: Cell<Uuid>,
    pub(super) epoch: Cell<Epoch>,
    pub(super) up_from: Cell<Epoch>,
    pub(super) admission: Admission,
    /// Answers a request for a lease: maps for the requester, and the grant.
    pub(super) lease: RefCell<Option<Box<Grant>>>,
}

type Grant = dyn Fn(OsdId, MOsdLease) -> (Option<MOsdMap>, Option<MOsdLease>);

/// Handler that answers pings on the heartbeat addresses.
pub(super) struct Answerer {
    pub(super) net: Net,
    pub(super) me: Rc<Answering>,
}

impl Handler for Answerer {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let ConnEvent::Message(m) = event else { return };
        let Some(peer) = self.net.peer(conn) else { return };
        if let Err(why) = self.me.admission.admit(Lane::Heartbeat, m.header.kind, &peer.principal) {
            tracing::warn!(entity = %peer.entity, name = %peer.principal.name, socket = %peer.principal.socket, ?why,
                "message on a heartbeat address refused; connection closed");
            return self.net.close(conn);
        }
        if m.header.kind == MOsdLease::KIND {
            return self.lease(conn, &peer, &m);
        }
        match MOsdPing::from_message(&m) {
            Ok(p) if p.op == ping_op::PING && p.fsid == self.me.fsid.get() => {
                let r = answer(p.fsid, &p, self.me.epoch.get(), self.me.up_from.get(), clock::now());
                let features = self.net.peer(conn).map_or(wire::Features::PACIFIC, |p| p.features);
                // A peer that went away asks again on its next connection.
                let _ = self.net.send(conn, r.to_message(features));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "ping not understood");
                self.net.close(conn);
            }
        }
    }
}

impl Answerer {
    fn lease(&self, conn: ConnId, peer: &PeerInfo, m: &Message) {
        let Some(from) = peer.principal.osd() else { return };
        let request = match MOsdLease::from_message(m) {
            Ok(r) => r,
            Err(error) => {
                tracing::warn!(osd = from.0, %error, "request for a lease not understood");
                return self.net.close(conn);
            }
        };
        let answer = self.me.lease.borrow();
        let Some(answer) = &*answer else { return };
        let (maps, grant) = answer(from, request);
        // The order matters: the grant counts once the maps are processed. A peer that went away asks again.
        if let Some(m) = maps {
            let _ = self.net.send(conn, m.to_message(peer.features));
        }
        if let Some(g) = grant {
            let _ = self.net.send(conn, g.to_message(peer.features));
        }
    }
}

/// Event of a link to a peer.
#[derive(Debug)]
pub(super) enum LinkEvent {
    Open(OsdId, Link),
    Closed { osd: OsdId, link: Link, refused: bool },
    Reply(OsdId, Link, Box<MOsdPing>),
    Lease(OsdId, Box<MOsdLease>),
    Maps(Box<MOsdMap>),
}

/// Connections to peers.
pub(super) struct Links {
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    by_conn: RefCell<HashMap<ConnId, (OsdId, Link)>>,
    by_peer: RefCell<HashMap<(OsdId, Link), ConnId>>,
    sink: Box<dyn Fn(LinkEvent)>,
}

struct Events(std::rc::Weak<Links>);

impl Handler for Events {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(l) = self.0.upgrade() {
            l.event(conn, event);
        }
    }
}

impl Links {
    pub(super) fn new(net: &Net, config: net::EndpointConfig, sink: Box<dyn Fn(LinkEvent)>) -> Rc<Self> {
        let me = Rc::new(Self {
            net: net.clone(),
            endpoint: RefCell::default(),
            by_conn: RefCell::default(),
            by_peer: RefCell::default(),
            sink,
        });
        *me.endpoint.borrow_mut() = Some(net.endpoint(config, Rc::new(Events(Rc::downgrade(&me)))));
        me
    }

    /// Endpoint that opens the connections.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    fn event(&self, conn: ConnId, event: ConnEvent) {
        let Some((osd, link)) = self.by_conn.borrow().get(&conn).copied() else { return };
        match event {
            ConnEvent::Open(_) => (self.sink)(LinkEvent::Open(osd, link)),
            ConnEvent::Closed(reason) => {
                self.by_conn.borrow_mut().remove(&conn);
                self.by_peer.borrow_mut().remove(&(osd, link));
                let refused = matches!(&reason, CloseReason::Io(e) if e.contains("refused"));
                tracing::debug!(osd = osd.0, ?link, %reason, "heartbeat link ended");
                (self.sink)(LinkEvent::Closed { osd, link, refused });
            }
            ConnEvent::Message(m) if admission::right(Lane::HeartbeatOut, m.header.kind).is_none() => {}
            ConnEvent::Message(m) if m.header.kind == MOsdPing::KIND => match MOsdPing::from_message(&m) {
                Ok(p) if p.op == ping_op::PING_REPLY => (self.sink)(LinkEvent::Reply(osd, link, Box::new(p))),
                Ok(_) => {}
                Err(error) => tracing::warn!(osd = osd.0, %error, "ping not understood"),
            },
            ConnEvent::Message(m) if m.header.kind == MOsdLease::KIND => match MOsdLease::from_message(&m) {
                Ok(l) => (self.sink)(LinkEvent::Lease(osd, Box::new(l))),
                Err(error) => tracing::warn!(osd = osd.0, %error, "lease not understood"),
            },
            ConnEvent::Message(m) if m.header.kind == MOsdMap::KIND => match MOsdMap::from_message(&m) {
                Ok(l) => (self.sink)(LinkEvent::Maps(Box::new(l))),
                Err(error) => tracing::warn!(osd = osd.0, %error, "maps not understood"),
            },
            ConnEvent::Message(_) => {}
        }
    }

    /// Sends a request for a lease over the cluster network, or over the public one if that is not connected.
    pub(super) fn send_lease(&self, osd: OsdId, m: &MOsdLease) {
        for link in LINKS {
            let conn = self.by_peer.borrow().get(&(osd, link)).copied();
            let Some(conn) = conn.filter(|c| self.net.peer(*c).is_some()) else { continue };
            let features = self.net.peer(conn).map_or(wire::Features::PACIFIC, |p| p.features);
            if self.net.send(conn, m.to_message(features)).is_ok() {
                return;
            }
        }
    }

    /// Executes an action of the heartbeat machine.
    pub(super) fn output(&self, o: heartbeat::Output) {
        match o {
            heartbeat::Output::Connect { osd, link, addrs } => {
                let (Some(addr), Some(ep)) = (addrs.msgr2().copied(), self.endpoint.borrow().clone()) else { return };
                let conn = ep.connect(Target { kind: EntityKind::OSD, addr, addrs, name: None });
                self.by_conn.borrow_mut().insert(conn, (osd, link));
                self.by_peer.borrow_mut().insert((osd, link), conn);
            }
            heartbeat::Output::Close { osd, link } => {
                let conn = self.by_peer.borrow_mut().remove(&(osd, link));
                if let Some(c) = conn {
                    self.by_conn.borrow_mut().remove(&c);
                    self.net.close(c);
                }
            }
            heartbeat::Output::Ping { osd, link, ping } => {
                let conn = self.by_peer.borrow().get(&(osd, link)).copied();
                if let Some(c) = conn {
                    let features = self.net.peer(c).map_or(wire::Features::PACIFIC, |p| p.features);
                    // A lost link is reported separately.
                    let _ = self.net.send(c, ping.to_message(features));
                }
            }
            heartbeat::Output::Failure(_) => {}
        }
    }

    /// Closes all links.
    pub(super) fn shutdown(&self) {
        for l in LINKS {
            let peers: Vec<OsdId> =
                self.by_peer.borrow().keys().filter(|(_, link)| *link == l).map(|(o, _)| *o).collect();
            for osd in peers {
                self.output(heartbeat::Output::Close { osd, link: l });
            }
        }
    }
}
