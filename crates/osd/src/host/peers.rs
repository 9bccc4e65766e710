//! Data connections to other OSDs, of one reactor.
//!
//! Every reactor has a cluster address of its own; the OSD map lists them all, in order. What a PG sends goes from the PG's
//! reactor straight to the one that holds the PG at the other OSD, over the one session between the two addresses. Either
//! end may have opened it.
//!
//! Invariants:
//!  1. All messages of a PG to one OSD take one session, so they arrive in order, or the session's end is reported.
//!  2. Sessions are lossless: a broken socket is no event. Only when the other end forgot the session, or does not read
//!     for too long, is it reset.
//!  3. Leases and heartbeats never wait behind these messages: they have connections of their own (`super::links`).

use super::shard::reactor_of;
use base::{AddrKind, EntityAddr, EntityKind, OsdId, PgId};
use cluster::OsdMap;
use cluster::caps::OsdCaps;
use net::{ConnEvent, ConnId, Endpoint, Handler, Net, PeerInfo, SendError, Target};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use wire::Message;

/// What happened.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// An OSD sent something.
    Message(OsdId, Message),
    /// What was sent to that OSD and not answered may be lost.
    Reset(OsdId),
}

struct Session {
    osd: OsdId,
    /// The address of the other end's reactor.
    addr: EntityAddr,
    /// A map has shown the address: if a later one does not, the session is over.
    listed: Cell<bool>,
}

/// See the module.
pub(super) struct Peers {
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    sessions: RefCell<HashMap<ConnId, Rc<Session>>>,
    by_addr: RefCell<BTreeMap<EntityAddr, ConnId>>,
    sink: Box<dyn Fn(PeerEvent)>,
}

struct Events(Weak<Peers>);

impl Handler for Events {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(p) = self.0.upgrade() {
            p.event(conn, event);
        }
    }
}

/// The addresses of an OSD's reactors, in order.
fn addresses(map: &OsdMap, osd: OsdId) -> Vec<EntityAddr> {
    let addrs = map.cluster_addr(osd).map(|v| v.0.as_slice()).unwrap_or_default();
    addrs.iter().filter(|a| a.kind == AddrKind::MSGR2).copied().collect()
}

/// The OSD at the other end: what it says it is must be what it signed in as.
pub(super) fn osd_of(p: &PeerInfo) -> Option<OsdId> {
    let num = i32::try_from(p.entity.num).ok()?;
    if p.kind != EntityKind::OSD || num < 0 {
        return None;
    }
    // Towards those we dialled, the address of the map says who they are.
    let named = !p.incoming || (p.auth_name.kind == EntityKind::OSD && p.auth_name.id == num.to_string());
    let may = !p.incoming
        || p.caps.allow_all
        || super::shard::caps(&p.caps.caps).as_ref().is_ok_and(OsdCaps::is_allow_all);
    (named && may).then_some(OsdId(num))
}

impl Peers {
    pub(super) fn new(net: &Net, config: net::EndpointConfig, sink: Box<dyn Fn(PeerEvent)>) -> Rc<Self> {
        let me = Rc::new(Self {
            net: net.clone(),
            endpoint: RefCell::default(),
            sessions: RefCell::default(),
            by_addr: RefCell::default(),
            sink,
        });
        *me.endpoint.borrow_mut() = Some(net.endpoint(config, Rc::new(Events(Rc::downgrade(&me)))));
        me
    }

    /// The endpoint, to listen.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    fn event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(p) => self.open(conn, &p),
            ConnEvent::Closed(reason) => {
                let Some(s) = self.forget(conn) else { return };
                tracing::info!(osd = s.osd.0, addr = %s.addr, %reason, "session with another OSD ended");
                (self.sink)(PeerEvent::Reset(s.osd));
            }
            ConnEvent::Message(m) => {
                let osd = self.sessions.borrow().get(&conn).map(|s| s.osd);
                if let Some(o) = osd {
                    (self.sink)(PeerEvent::Message(o, m));
                }
            }
        }
    }

    fn open(&self, conn: ConnId, p: &PeerInfo) {
        if self.sessions.borrow().contains_key(&conn) {
            return;
        }
        let (Some(osd), Some(addr)) = (osd_of(p), p.addrs.msgr2().copied()) else {
            tracing::warn!(entity = %p.entity, name = %p.auth_name, "not an OSD of this cluster; connection refused");
            return self.net.close(conn);
        };
        self.remember(conn, osd, addr, false);
    }

    fn remember(&self, conn: ConnId, osd: OsdId, addr: EntityAddr, listed: bool) {
        let s = Rc::new(Session { osd, addr, listed: Cell::new(listed) });
        self.sessions.borrow_mut().insert(conn, s);
        self.by_addr.borrow_mut().insert(addr, conn);
    }

    fn forget(&self, conn: ConnId) -> Option<Rc<Session>> {
        let s = self.sessions.borrow_mut().remove(&conn)?;
        let mut by = self.by_addr.borrow_mut();
        if by.get(&s.addr) == Some(&conn) {
            by.remove(&s.addr);
        }
        Some(s)
    }

    /// Sends for a PG. Towards an OSD that the map does not show up nothing is sent: the PG's interval ends with that map.
    pub(super) fn send(&self, to: OsdId, pg: PgId, m: Message, map: &OsdMap) {
        if !map.is_up(to) {
            return;
        }
        let list = addresses(map, to);
        let Some(addr) = list.get(reactor_of(pg, list.len().max(1))).copied() else { return };
        let known = self.by_addr.borrow().get(&addr).copied();
        let Some(conn) = known.or_else(|| self.connect(to, addr)) else { return };
        match self.net.send(conn, m) {
            Ok(()) => {}
            // Both are reported as the end of the session.
            Err(SendError::Full) => tracing::warn!(osd = to.0, "does not read what is sent to it"),
            Err(SendError::Gone) => {
                tracing::debug!(osd = to.0, "session is gone");
                if let Some(s) = self.forget(conn) {
                    (self.sink)(PeerEvent::Reset(s.osd));
                }
            }
        }
    }

    fn connect(&self, osd: OsdId, addr: EntityAddr) -> Option<ConnId> {
        let ep = self.endpoint()?;
        let conn = ep.connect(Target { kind: EntityKind::OSD, addr, addrs: addr.into() });
        self.remember(conn, osd, addr, true);
        Some(conn)
    }

    /// A newer map: sessions with instances that are gone end.
    pub(super) fn handle_map(&self, map: &OsdMap) {
        let all: Vec<(ConnId, Rc<Session>)> = self.sessions.borrow().iter().map(|(c, s)| (*c, s.clone())).collect();
        for (conn, s) in all {
            let listed = map.is_up(s.osd) && addresses(map, s.osd).contains(&s.addr);
            if listed {
                s.listed.set(true);
            } else if s.listed.get() {
                self.forget(conn);
                self.net.close(conn);
            }
        }
    }

    /// Sessions open or being opened, and bytes queued for their other ends.
    pub(super) fn figures(&self) -> (usize, usize) {
        let s = self.sessions.borrow();
        (s.len(), s.keys().map(|c| self.net.output_bytes(*c)).sum())
    }
}
