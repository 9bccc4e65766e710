//! Sessions: peers that sign in, and sessions that go on over another socket.
//!
//! Invariant: a session is continued only by the entity that has it, whatever address the peer claims.
//!
//! Tests: `tests/do_endpoints_talk_over_sockets.rs` (`another_entity_does_not_take_over_a_session_by_its_address`).

use super::Conn;
use crate::types::{CloseReason, ConnEvent, PeerInfo};
use crate::{Inner, add};
use base::AuthName;
use msgr::session::{decide, session_key};
use msgr::{Error, Event, Machine, Protocol, Request, Verdict};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// Sender of an accepted connection, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Signing {
    /// IP address from which the connection was accepted.
    accepted: Option<IpAddr>,
    /// The entity among whose connections this one counts.
    counted: RefCell<Option<AuthName>>,
    /// The connection counts among those that have not signed in.
    unproven: Cell<bool>,
}

impl Signing {
    /// State of a connection from that address, which has not signed in.
    pub(super) fn accepted(from: IpAddr) -> Self {
        Self { accepted: Some(from), unproven: Cell::new(true), ..Self::default() }
    }

    /// True if the connection was accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted.is_some()
    }

    /// The entity among whose connections this one counted until now.
    pub(super) fn leave(&self) -> Option<AuthName> {
        self.counted.take()
    }
}

impl Conn {
    pub(super) fn session_event(self: &Rc<Self>, inner: &Rc<Inner>, e: Event) {
        match e {
            Event::Open => self.opened(inner),
            Event::Resumed => {
                self.backoff.set(Duration::ZERO);
                tracing::debug!(conn = %self.id, peer = %self.describe(), "session resumed");
            }
            Event::Message(_) | Event::KeepaliveAck(_) => {}
            Event::AuthFailed(error) => {
                add(&inner.counters.auth_failures, 1);
                if self.may_log(inner) {
                    let errno = base::errno::name(error.errno());
                    let host = self.ep.config.auth_host.as_ref();
                    let cluster = host.and_then(|h| h.cluster()).map(tracing::field::display);
                    tracing::warn!(peer = %self.socket_text(), errno, cluster, "authentication failed: {error}");
                }
            }
            Event::Reset => self.end(inner, Some(CloseReason::Reset)),
            Event::Wait => self.fail(inner, CloseReason::Peer),
            Event::Request(r) => {
                if let Err(e) = self.decide(inner, &r) {
                    self.fail_protocol(inner, &e);
                }
            }
        }
    }

    /// Records that the connection has signed in, or has ended before that.
    pub(super) fn proven(&self, inner: &Inner, signed_in: bool) {
        if let Some(ip) = self.signing.accepted
            && self.signing.unproven.replace(false)
        {
            inner.gate.borrow_mut().over(ip, self.id, signed_in, clock::now().mono);
        }
    }

    /// True if the peer's misbehaviour may be logged. Connections that have not signed in get a few lines a
    /// minute.
    pub(super) fn may_log(&self, inner: &Inner) -> bool {
        match self.signing.accepted.filter(|_| self.signing.unproven.get()) {
            Some(ip) => inner.gate.borrow_mut().may_log(ip, clock::now().mono),
            None => true,
        }
    }

    /// False if the entity that has signed in has too many connections.
    fn enter(&self) -> bool {
        if self.signing.accepted.is_none() || self.signing.counted.borrow().is_some() {
            return true;
        }
        let all = self.ep.limits.connections_max.min(crate::descriptors::most());
        let name = self.machine.borrow().peer().principal.name.clone();
        let fits = self.ep.entities.enter(&name, all);
        *self.signing.counted.borrow_mut() = Some(name).filter(|_| fits);
        fits
    }

    fn opened(self: &Rc<Self>, inner: &Rc<Inner>) {
        self.proven(inner, true);
        if !self.enter() {
            let name = self.machine.borrow().peer().principal.name.clone();
            if self.signing.accepted.is_some_and(|ip| inner.gate.borrow_mut().may_log(ip, clock::now().mono)) {
                tracing::warn!("closing a connection of {name}: it has its share of the connections already");
            }
            return self.end(inner, None);
        }
        self.backoff.set(Duration::ZERO);
        let info = {
            let m = self.machine.borrow();
            let p = m.peer();
            if !m.is_lossy() {
                let key = self.target.as_ref().map_or_else(|| session_key(&p.addrs), |t| session_key(&t.addrs));
                self.session.set(Some(key));
                self.ep.sessions.borrow_mut().insert(key, self.id);
            }
            Rc::new(PeerInfo {
                principal: p.principal.clone(),
                entity: p.principal.entity(p.num),
                addrs: p.addrs.clone(),
                features: p.features,
                announced: p.announced,
                mode: m.mode(),
                lossy: m.is_lossy(),
            })
        };
        *self.peer.borrow_mut() = Some(info.clone());
        self.known.set(true);
        self.ep.handler.event(self.id, ConnEvent::Open(info));
    }

    /// Entity at the other end of the session, if known.
    fn name(&self) -> Option<AuthName> {
        if let Some(n) = self.target.as_ref().and_then(|t| t.name.clone()) {
            return Some(n);
        }
        let peer = self.peer.borrow();
        peer.as_ref().map(|p| &p.principal).filter(|p| p.incoming).map(|p| p.name.clone())
    }

    /// Handles a peer that opens or continues a lossless session.
    fn decide(self: &Rc<Self>, inner: &Rc<Inner>, r: &Request) -> Result<(), Error> {
        self.proven(inner, true);
        let existing = self.ep.sessions.borrow().get(&r.key()).copied().and_then(|id| inner.get(id));
        if let Some(other) = existing.as_ref().and_then(|e| e.name()) {
            // The address that names a session is an unproven claim of the peer, so the entity must match too.
            let name = self.machine.borrow().peer().principal.name.clone();
            if name != other {
                return Err(Error::AnothersSession { name, other });
            }
        }
        let verdict = {
            let m = self.machine.borrow();
            let ours = session_key(&self.ep.config.identity.borrow().addrs);
            let view = existing.as_ref().and_then(|e| e.machine.borrow().view());
            decide(r, view, m.policy().reset_check, m.policy().server, ours)
        };
        match (verdict, existing) {
            (Verdict::Adopt, Some(e)) => self.hand_over(inner, &e),
            (Verdict::Replace, e) => {
                if let Some(e) = e {
                    e.end(inner, Some(CloseReason::Reset));
                }
                self.accept_fresh(inner)
            }
            (Verdict::Fresh | Verdict::Adopt, _) => self.accept_fresh(inner),
            (Verdict::Reset(full), _) => self.machine.borrow_mut().v2()?.answer_reset(full),
            (Verdict::Retry(n), _) => self.machine.borrow_mut().v2()?.answer_retry(n),
            (Verdict::RetryGlobal(n), _) => self.machine.borrow_mut().v2()?.answer_retry_global(n),
            (Verdict::Wait, _) => self.machine.borrow_mut().v2()?.answer_wait(),
            (Verdict::Stale, _) => Err(Error::Stale),
        }
    }

    fn accept_fresh(self: &Rc<Self>, inner: &Rc<Inner>) -> Result<(), Error> {
        let e = self.machine.borrow_mut().v2()?.accept_fresh()?;
        if matches!(e, Event::Open) {
            self.opened(inner);
        }
        Ok(())
    }

    /// Continues the session of `to` over this connection's socket.
    fn hand_over(self: &Rc<Self>, inner: &Rc<Inner>, to: &Rc<Conn>) -> Result<(), Error> {
        let socket = self.stream.borrow().as_ref().and_then(|s| s.peer_addr().ok());
        let socket = socket.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        let dummy = Machine::server(self.ep.config.clone(), socket, Protocol::V2);
        to.give_frame_back(inner);
        let Machine::V2(mine) = self.machine.replace(dummy) else { return Err(Error::NotAccepting) };
        let stream = self.stream.borrow_mut().take();
        self.end(inner, None);
        let event = to.machine.borrow_mut().v2()?.adopt(mine)?;
        to.install(inner, stream);
        inner.mark_dirty(to);
        match event {
            Event::Open => to.opened(inner),
            other => to.session_event(inner, other),
        }
        Ok(())
    }
}
