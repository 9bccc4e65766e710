//! Other OSDs: their messages, and those that share PGs with this reactor.

use super::{ReactorHost, Work};
use crate::core::pgs::Input;
use crate::host::peers::{PeerEvent, Peers};
use crate::host::route::{ToControl, ToReactor};
use base::OsdId;
use msgr::Protocol;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::rc::Rc;
use wire::Message;
use wire::WireMessage as _;
use wire::msg::{MOsdMap, MPgPeer, MPgPeers};

/// Bytes that a client's connection may hold while another OSD does not keep up.
const SLOW_BYTES: usize = 4 << 20;

/// Connections to other OSDs; see the module.
pub(super) struct Others {
    peers: RefCell<Option<Rc<Peers>>>,
    /// Client side of cephx, for connecting to other OSDs.
    auth: Rc<RefCell<auth::Client>>,
    /// Socket of the cluster address, until the endpoint serves it.
    listen_later: Cell<Option<TcpListener>>,
    /// OSDs whose messages can't be decoded.
    strange: RefCell<BTreeSet<OsdId>>,
    /// Number of reactors that have too much queued for another OSD.
    slow: Cell<usize>,
}

impl Others {
    /// No connections yet; later ones use the tickets of `auth`.
    pub(super) fn new(auth: Rc<RefCell<auth::Client>>) -> Self {
        Self {
            peers: RefCell::default(),
            auth,
            listen_later: Cell::new(None),
            strange: RefCell::default(),
            slow: Cell::new(0),
        }
    }

    /// Sets the connections.
    pub(super) fn set_peers(&self, p: Rc<Peers>) {
        *self.peers.borrow_mut() = Some(p);
    }

    /// Sets the tickets for new connections.
    pub(super) fn set_tickets(&self, t: auth::Client) {
        *self.auth.borrow_mut() = t;
    }

    /// The socket of the cluster address, if it is not served yet.
    pub(super) fn take_listener(&self) -> Option<TcpListener> {
        self.listen_later.take()
    }
}

impl ReactorHost {
    /// Connections to other OSDs.
    pub(in crate::host) fn peers(&self) -> Option<Rc<Peers>> {
        self.others.peers.borrow().clone()
    }

    /// Serves the cluster address, now or when the secrets have arrived.
    pub(in crate::host) fn listen_to_peers(&self, at: TcpListener, now: bool) -> std::io::Result<()> {
        match self.peers().and_then(|p| p.endpoint()) {
            Some(ep) if now => ep.listen_on(at, Protocol::V2).map(|_| ()),
            _ => {
                self.others.listen_later.set(Some(at));
                Ok(())
            }
        }
    }

    /// Sends a message of a PG over the data session, so that the order is kept. Leases use another lane.
    pub(super) fn send_peer(&self, to: OsdId, m: MPgPeer) {
        let map = self.core.borrow().pgs().newest_map().cloned();
        if let (Some(map), Some(p)) = (map, self.peers()) {
            p.send(to, m, &map);
        }
    }

    pub(super) fn peer_event(&self, e: PeerEvent) {
        match e {
            PeerEvent::Message(from, m) => self.peer_message(from, &m),
            PeerEvent::Slow(slow) => self.routes.all(|| ToReactor::Slow(slow)),
            PeerEvent::Reset(osd) => {
                self.others.strange.borrow_mut().remove(&osd);
                self.work();
                self.routes.inputs(|| Input::PeerReset(osd));
            }
        }
    }

    pub(super) fn peer_message(&self, from: OsdId, m: &Message) {
        self.wrote(m.data.len());
        match m.header.kind {
            MPgPeer::KIND => match MPgPeer::from_message(m) {
                Ok(m) => self.later(Work::Peer(from, Box::new(m))),
                Err(error) => self.not_understood(from, &error),
            },
            MPgPeers::KIND => match MPgPeers::from_message(m) {
                Ok(m) => {
                    for m in m.items {
                        self.later(Work::Peer(from, Box::new(m)));
                    }
                }
                Err(error) => self.not_understood(from, &error),
            },
            MOsdMap::KIND => match MOsdMap::from_message(m) {
                Ok(m) => self.routes.control(ToControl::Maps(m)),
                Err(error) => tracing::warn!(osd = from.0, %error, "maps of another OSD not understood"),
            },
            // Other messages are not admitted.
            _ => {}
        }
    }

    /// Logs once per session that an OSD's messages can't be decoded, since an OSD of another build sends many.
    pub(super) fn not_understood(&self, from: OsdId, error: &wire::DecodeError) {
        if self.others.strange.borrow_mut().insert(from) {
            tracing::error!(osd = from.0, %error, "message of another OSD not understood; all OSDs of a cluster must run the same build");
        }
    }

    pub(super) fn pg_message(&self, from: OsdId, m: Box<MPgPeer>, now: base::Now) {
        let elsewhere = self.core.borrow_mut().take_peer(from, m, now);
        if let Some((at, input)) = elsewhere {
            self.routes.input(at, input);
        }
    }

    /// Lets clients have less in flight while a reactor's queue for another OSD is too long. Those with little in flight
    /// are served: their operations may need other members.
    pub(super) fn slow(&self, slow: bool) {
        let reactors = self.others.slow.get();
        self.others.slow.set(if slow { reactors + 1 } else { reactors.saturating_sub(1) });
        if let Some(ep) = self.endpoint() {
            let usual = net::Limits::default().in_flight_bytes_max;
            ep.set_in_flight_max(if self.others.slow.get() > 0 { SLOW_BYTES } else { usual });
        }
    }
}
