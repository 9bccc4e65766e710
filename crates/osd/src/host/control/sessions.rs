//! Sessions with monitor and manager: their connections, and the messages that arrive on them.

use super::ControlHost;
use crate::core::admission::{self, Lane};
use crate::core::collect::Collecting;
use crate::core::mgr::{self, Stats};
use crate::core::pgs::Input;
use crate::host::commands;
use crate::host::route::{Ask, Setting, ToReactor};
use base::{EntityKind, Epoch};
use client::core::mon;
use net::{ConnEvent, ConnId, Endpoint, EndpointConfig, Handler, Net, Target};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use wire::msg::{MCommand, MMgrConfigure, MOsdForceRecovery, MOsdScrub2};
use wire::{Features, WireMessage as _};

/// Connections to monitor and manager; see the module.
#[derive(Default)]
pub(super) struct Sessions {
    /// Endpoint with the identity of the OSD and its public addresses.
    endpoint: RefCell<Option<Endpoint>>,
    mon: Cell<Option<ConnId>>,
    mgr: Cell<Option<ConnId>>,
}

impl Sessions {
    /// The endpoint.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    /// Makes the endpoint, whose events go to `host`.
    pub(super) fn listen(&self, net: &Net, identity: EndpointConfig, host: &Rc<ControlHost>) {
        *self.endpoint.borrow_mut() = Some(net.endpoint(identity, Rc::new(MonEvents(Rc::downgrade(host)))));
    }

    /// The connection to the monitor.
    pub(super) fn mon(&self) -> Option<ConnId> {
        self.mon.get()
    }

    /// Closes the connection to the monitor.
    pub(super) fn close_mon(&self, net: &Net) {
        if let Some(c) = self.mon.take() {
            net.close(c);
        }
    }
}

struct MonEvents(Weak<ControlHost>);

impl Handler for MonEvents {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(c) = self.0.upgrade() {
            c.conn_event(conn, event);
        }
    }
}

impl ControlHost {
    fn conn_event(self: &Rc<Self>, conn: ConnId, event: ConnEvent) {
        if self.sessions.mon.get() == Some(conn) {
            self.mon_event(event);
        } else if self.sessions.mgr.get() == Some(conn) {
            self.mgr_event(conn, event);
        }
    }

    fn mon_event(&self, event: ConnEvent) {
        match event {
            ConnEvent::Open(peer) => {
                self.spread_tickets();
                self.with(|c, _| c.handle_mon_open(peer.features));
            }
            ConnEvent::Closed(reason) => {
                self.sessions.mon.set(None);
                self.tickets.session_ended();
                tracing::warn!(%reason, "session with the monitor ended");
                if matches!(reason, net::CloseReason::Auth { .. }) {
                    self.tickets.refused();
                }
                self.with(|c, now| c.handle_mon_closed(now));
            }
            ConnEvent::Message(m) => {
                let kind = m.header.kind;
                if admission::right(Lane::Monitor, kind).is_none() {
                    return tracing::debug!(kind, "message of the monitor is not used");
                }
                if let Err(error) = self.with(|c, _| c.handle_mon_message(m)) {
                    tracing::warn!(kind, %error, "message of the monitor not understood");
                }
            }
        }
    }

    fn mgr_event(self: &Rc<Self>, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(_) => self.with(|c, _| c.handle_mgr_open()),
            ConnEvent::Closed(reason) => {
                tracing::debug!(%reason, "session with the manager ended");
                self.sessions.mgr.set(None);
                self.with(|c, now| c.handle_mgr_closed(now));
            }
            ConnEvent::Message(m) if admission::right(Lane::Manager, m.header.kind).is_none() => {
                tracing::info!(kind = m.header.kind, "message of the manager is not supported and ignored");
            }
            ConnEvent::Message(m) => match m.header.kind {
                MMgrConfigure::KIND => match MMgrConfigure::from_message(&m) {
                    Ok(x) => self.with(|c, now| c.handle_mgr_configure(&x, now)),
                    Err(error) => tracing::warn!(%error, "configuration of the manager not understood"),
                },
                MCommand::KIND => {
                    let me = self.clone();
                    tokio::task::spawn_local(async move {
                        let r = commands::run(&me, &m).await;
                        // The manager may have disconnected meanwhile.
                        let _ = me.net.send(conn, r);
                    });
                }
                MOsdScrub2::KIND => match MOsdScrub2::from_message(&m) {
                    Ok(x) => {
                        let pgs = Arc::new(x.scrub_pgs);
                        self.routes.inputs(|| Input::Scrub(pgs.clone(), x.deep, x.repair));
                    }
                    Err(error) => tracing::warn!(%error, "request for scrubs not understood"),
                },
                MOsdForceRecovery::KIND => match MOsdForceRecovery::from_message(&m) {
                    Ok(x) => {
                        let pgs = Arc::new(x.forced_pgs);
                        self.routes.inputs(|| Input::Force(pgs.clone(), x.options));
                    }
                    Err(error) => tracing::warn!(%error, "request for recovery not understood"),
                },
                // Other messages are not admitted.
                _ => {}
            },
        }
    }

    /// Carries out what the monitor's session wants.
    pub(super) fn mon_output(&self, o: mon::Output) {
        match o {
            mon::Output::Connect(addr) => {
                let Some(ep) = self.sessions.endpoint() else { return };
                self.sessions.mon.set(Some(ep.connect(Target::new(EntityKind::MON, addr))));
            }
            mon::Output::Close => {
                self.sessions.close_mon(&self.net);
            }
            mon::Output::Send(m) => {
                if let Some(c) = self.sessions.mon.get() {
                    // A lost session is reported separately, and the core repeats what matters.
                    let _ = self.net.send(c, m);
                }
            }
            mon::Output::Event(_) => {}
        }
    }

    /// Carries out what the manager's session wants.
    pub(super) fn mgr_output(&self, o: mgr::Output) {
        match o {
            mgr::Output::Connect(addrs) => {
                let (Some(addr), Some(ep)) = (addrs.msgr2().copied(), self.sessions.endpoint()) else {
                    return;
                };
                self.sessions.mgr.set(Some(ep.connect(Target { kind: EntityKind::MGR, addr, addrs, name: None })));
            }
            mgr::Output::Close => {
                if let Some(c) = self.sessions.mgr.take() {
                    self.net.close(c);
                }
            }
            mgr::Output::Open(m) => self.to_mgr(&*m),
            mgr::Output::Queries(q) => self.routes.set(&Setting::Queries(q)),
            mgr::Output::Collect { all } => {
                let n = self.routes.reactors.len();
                *self.collecting.borrow_mut() = Some(Collecting::new(n));
                self.routes.all(|| ToReactor::Ask(Ask::Stats(all)));
            }
        }
    }

    fn to_mgr(&self, m: &impl wire::WireMessage) {
        if let Some(c) = self.sessions.mgr.get() {
            let features = self.net.peer(c).map_or(Features::PACIFIC, |p| p.features);
            // Reports are periodic: a lost one is followed by the next.
            let _ = self.net.send(c, m.to_message(features));
        }
    }

    /// Adds a reactor's report, and sends all once they are complete.
    pub(super) fn stats(&self, s: Stats, lec: Epoch) {
        let done = {
            let mut c = self.collecting.borrow_mut();
            let Some(x) = &mut *c else { return };
            x.add(s, lec);
            if x.is_complete() { c.take() } else { None }
        };
        if let Some(x) = done {
            let (mut stats, lec) = x.finish();
            self.count(&mut stats.counters);
            let (report, pgs) = self.with(|c, now| c.report(stats, lec, now));
            self.to_mgr(&report);
            self.to_mgr(&pgs);
        }
    }
}
