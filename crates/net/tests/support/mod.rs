//! Two endpoints on one reactor over loopback.
#![allow(dead_code, reason = "each test binary uses its part")]

use auth::{AuthHost, Client, EntityAuth, Method, RotatingKeys};
use base::{AddrVec, AuthName, EntityAddr, EntityKind};
use msgr::{Policies, Policy};
use net::{CloseReason, ConnEvent, ConnId, Endpoint, EndpointConfig, Handler, Limits, Net, PeerInfo, Target};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::Notify;
use wire::{Message, MsgHeader};

/// An authentication host that accepts every client.
pub(crate) struct NoAuth(pub(crate) Cell<u64>);

impl AuthHost for NoAuth {
    fn service(&self) -> EntityKind {
        EntityKind::OSD
    }
    fn methods(&self) -> Vec<Method> {
        vec![Method::NONE]
    }
    fn entity(&self, _: &AuthName) -> Option<EntityAuth> {
        None
    }
    fn service_key(&self, _: EntityKind, _: Option<u64>) -> Option<(u64, auth::CryptoKey)> {
        None
    }
    fn rotating_keys(&self, _: EntityKind) -> Option<RotatingKeys> {
        None
    }
    fn new_global_id(&self) -> Option<u64> {
        self.0.set(self.0.get() + 1);
        Some(self.0.get())
    }
}

/// An event that a recorder has seen.
#[derive(Debug)]
pub(crate) enum Seen {
    Open(Rc<PeerInfo>),
    Message(Message),
    Closed(CloseReason),
}

/// A handler that records all events, and answers every message if `echo` is set.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) net: RefCell<Option<Net>>,
    pub(crate) echo: Cell<bool>,
    pub(crate) events: RefCell<VecDeque<(ConnId, Seen)>>,
    pub(crate) notify: Notify,
    /// Connections whose output has drained.
    pub(crate) drained: RefCell<Vec<ConnId>>,
}

impl Handler for Recorder {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let seen = match event {
            ConnEvent::Open(p) => Seen::Open(p),
            ConnEvent::Message(m) => {
                if self.echo.get() {
                    let net = self.net.borrow().clone().unwrap();
                    net.send(conn, m).unwrap();
                    return;
                }
                Seen::Message(m)
            }
            ConnEvent::Closed(r) => Seen::Closed(r),
        };
        self.events.borrow_mut().push_back((conn, seen));
        self.notify.notify_one();
    }

    fn drained(&self, conn: ConnId) {
        self.drained.borrow_mut().push(conn);
    }
}

impl Recorder {
    pub(crate) fn new(net: &Net) -> Rc<Self> {
        let r = Rc::new(Self::default());
        *r.net.borrow_mut() = Some(net.clone());
        r
    }

    /// Waits for the next event.
    pub(crate) async fn next(&self) -> (ConnId, Seen) {
        loop {
            if let Some(e) = self.events.borrow_mut().pop_front() {
                return e;
            }
            self.notify.notified().await;
        }
    }

    pub(crate) async fn open(&self) -> (ConnId, Rc<PeerInfo>) {
        match self.next().await {
            (c, Seen::Open(p)) => (c, p),
            (c, other) => panic!("{c}: {other:?}"),
        }
    }

    pub(crate) async fn message(&self) -> Message {
        match self.next().await {
            (_, Seen::Message(m)) => m,
            (c, other) => panic!("{c}: {other:?}"),
        }
    }

    pub(crate) async fn closed(&self) -> CloseReason {
        match self.next().await {
            (_, Seen::Closed(r)) => r,
            (c, other) => panic!("{c}: {other:?}"),
        }
    }
}

/// A handler made of a function.
pub(crate) struct With<F>(pub(crate) F);

impl<F: Fn(ConnId, ConnEvent)> Handler for With<F> {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        (self.0)(conn, event);
    }
}

pub(crate) fn server(net: &Net, policy: Policy, limits: Limits, handler: Rc<dyn Handler>) -> (Endpoint, EntityAddr) {
    let ep = net.endpoint(
        EndpointConfig {
            kind: EntityKind::OSD,
            num: 3,
            addrs: AddrVec::default(),
            policies: Policies::uniform(policy),
            auth_host: Some(Rc::new(NoAuth(Cell::new(500)))),
            auth_client: None,
            limits,
        },
        handler,
    );
    let at = ep.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let addr = EntityAddr::msgr2(at, 77);
    ep.set_addrs(addr.into());
    (ep, addr)
}

pub(crate) fn client(net: &Net, policy: Policy, limits: Limits, handler: Rc<Recorder>) -> Endpoint {
    client_named(net, "client.t", policy, limits, handler)
}

pub(crate) fn client_named(net: &Net, name: &str, policy: Policy, limits: Limits, handler: Rc<Recorder>) -> Endpoint {
    let me = EntityAddr { kind: base::AddrKind::ANY, nonce: 9, sock: None };
    net.endpoint(
        EndpointConfig {
            kind: EntityKind::CLIENT,
            num: 41,
            addrs: me.into(),
            policies: Policies::uniform(policy),
            auth_host: None,
            auth_client: Some(Rc::new(RefCell::new(Client::none(AuthName::parse(name).unwrap())))),
            limits,
        },
        handler,
    )
}

pub(crate) fn target(addr: EntityAddr) -> Target {
    Target::new(EntityKind::OSD, addr)
}

pub(crate) fn message(tid: u64, front: usize, data: usize) -> Message {
    Message {
        header: MsgHeader { tid, kind: 42, version: 1, compat: 1, ..MsgHeader::default() },
        front: vec![tid as u8; front].into(),
        data: (0..data).map(|i| (i as u64 * 13 + tid) as u8).collect::<Vec<_>>().into(),
        ..Message::default()
    }
}

pub(crate) fn run<F: Future<Output = ()>>(f: impl FnOnce() -> F) {
    reactor::run_here(|_, _| async move {
        // Only a hang reaches this timeout.
        tokio::time::timeout(std::time::Duration::from_secs(60), f()).await.expect("hangs");
    })
    .unwrap();
}
