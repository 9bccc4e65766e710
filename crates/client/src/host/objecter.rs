//! Connections to OSDs for an [`Objecter`].
//!
//! Invariant: the handler never borrows the objecter while it calls the network or wakes a waiter.
//!
//! Tests: an assertion.

use super::links::{Links, Waiters};
use crate::core::objecter::{Objecter, Output, Request};
use base::errno::{ENOTCONN, Errno};
use base::{EntityKind, Epoch, Mono, OsdId};
use cluster::OsdMap;
use net::{ConnEvent, ConnId, Endpoint, Handler, Net, Target};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use wire::msg::{MOsdMap, MOsdOpReply, MWatchNotify};
use wire::{Message, WireMessage as _};

/// Result of an operation.
pub type OpResult = Result<Box<MOsdOpReply>, Errno>;

/// Messages of OSDs that answer no operation.
#[derive(Debug)]
pub enum Unasked {
    /// Newer OSD maps.
    Maps(MOsdMap),
    /// A watch or notify event.
    Watch(MWatchNotify),
    /// A map of this epoch or a later one is needed.
    NeedMap(Epoch),
}

type OnUnasked = dyn Fn(Unasked);

/// Network host of an [`Objecter`]; see the module.
pub struct ObjecterHost {
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    core: RefCell<Objecter>,
    links: Links<OsdId>,
    waiters: Waiters<OpResult>,
    unasked: Box<OnUnasked>,
    /// Time of the scheduled tick of the core.
    wakes: Cell<Option<Mono>>,
    me: Weak<Self>,
}

struct Events(Weak<ObjecterHost>);

impl Handler for Events {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(h) = self.0.upgrade() {
            h.event(conn, event);
        }
    }
}

impl ObjecterHost {
    /// Makes an endpoint from `config`. `unasked` gets messages of OSDs that answer no operation.
    #[must_use]
    pub fn new(net: &Net, config: net::EndpointConfig, inc: i32, unasked: Box<OnUnasked>) -> Rc<Self> {
        let me = Rc::new_cyclic(|me| Self {
            net: net.clone(),
            endpoint: RefCell::default(),
            core: RefCell::new(Objecter::new(inc)),
            links: Links::new(net.clone()),
            waiters: Waiters::new(),
            unasked,
            wakes: Cell::new(None),
            me: me.clone(),
        });
        let ep = net.endpoint(config, Rc::new(Events(Rc::downgrade(&me))));
        *me.endpoint.borrow_mut() = Some(ep);
        me
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    /// The newest map.
    #[must_use]
    pub fn map(&self) -> Option<Arc<OsdMap>> {
        self.core.borrow().map().cloned()
    }

    /// Unanswered operations; see [`Objecter::unanswered`].
    #[must_use]
    pub fn in_flight(&self) -> Vec<(u64, Option<OsdId>, base::SpgId, String)> {
        self.core.borrow().unanswered().collect()
    }

    /// Passes on a newer map.
    pub fn handle_map(&self, map: Arc<OsdMap>) {
        self.core.borrow_mut().handle_map(map);
        self.drain();
    }

    /// Runs an operation.
    pub async fn op(&self, req: Request) -> OpResult {
        let tid = self.core.borrow_mut().submit(req);
        let rx = self.waiters.add(tid);
        self.drain();
        rx.await.unwrap_or(Err(ENOTCONN))
    }

    fn event(&self, conn: ConnId, event: ConnEvent) {
        let Some(osd) = self.links.peer(conn) else { return };
        match event {
            ConnEvent::Open(peer) => self.core.borrow_mut().handle_open(osd, peer.features),
            ConnEvent::Closed(reason) => {
                tracing::debug!(osd = osd.0, %reason, "connection to OSD closed");
                self.closed(osd, conn);
            }
            ConnEvent::Message(m) => self.message(osd, conn, &m),
        }
        self.drain();
    }

    fn message(&self, osd: OsdId, conn: ConnId, m: &Message) {
        let bad = match m.header.kind {
            MOsdMap::KIND => MOsdMap::from_message(m).map(|x| (self.unasked)(Unasked::Maps(x))).err(),
            MWatchNotify::KIND => MWatchNotify::from_message(m).map(|x| (self.unasked)(Unasked::Watch(x))).err(),
            _ => self.core.borrow_mut().handle_message(osd, m).err(),
        };
        if let Some(error) = bad {
            tracing::warn!(osd = osd.0, kind = m.header.kind, %error, "message of an OSD cannot be decoded");
            self.net.close(conn);
            self.closed(osd, conn);
        }
    }

    fn closed(&self, osd: OsdId, conn: ConnId) {
        self.links.ended(osd, conn);
        self.core.borrow_mut().handle_closed(osd, clock::now());
        self.wake_later();
    }

    /// Schedules the core's next tick.
    fn wake_later(&self) {
        let Some(at) = self.core.borrow().next_deadline() else { return };
        if self.wakes.get().is_some_and(|t| t <= at) {
            return;
        }
        self.wakes.set(Some(at));
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(at - clock::now().mono).await;
            let Some(h) = me.upgrade() else { return };
            if h.wakes.get() == Some(at) {
                h.wakes.set(None);
            }
            h.core.borrow_mut().tick(clock::now());
            h.drain();
            h.wake_later();
        });
    }

    fn drain(&self) {
        loop {
            let Some(o) = self.core.borrow_mut().poll_output() else { return };
            debug_assert!(self.core.try_borrow_mut().is_ok(), "the network and waiters may call back");
            match o {
                Output::Connect(osd, addrs) => {
                    let Some(addr) = addrs.msgr2().copied() else { continue };
                    let Some(ep) = self.endpoint() else { continue };
                    let conn = ep.connect(Target { kind: EntityKind::OSD, addr, addrs, name: None });
                    self.links.add(osd, conn);
                }
                Output::Close(osd) => self.links.close(osd),
                Output::Send(osd, m) => self.links.send(osd, m),
                Output::Done(tid, r) => self.waiters.answer(tid, r),
                Output::NeedMap(e) => (self.unasked)(Unasked::NeedMap(e)),
            }
        }
    }
}
