//! The path of a client's operation through the host, from the connection to the PGs and back: admission, the
//! limit on unanswered bytes, maps that the client lacks, the answer. A connection gets its caps here, from its
//! ticket.

use super::{ReactorHost, Work};
use crate::core::admission::{Refusal, Right};
use crate::core::clients;
use crate::core::inbound::{self, NotTaken, Request};
use crate::core::maps::MapFeed;
use crate::core::pgs::Input;
use crate::core::queries::Finished;
use crate::core::session::{SessionInfo, caps_of, owner_of, session_id, session_route};
use crate::core::unanswered::{InFlight, OP_BYTES, OPS_MAX, OPS_RESUME};
use crate::host::route::{ToControl, ToReactor};
use crate::host::tracker::Received;
use base::Mono;
use cluster::caps::OsdCaps;
use net::{ConnEvent, ConnId, Handler, PeerInfo};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use wire::WireMessage as _;
use wire::msg::{MCommandReply, MOsdMap, MOsdOp, MOsdOpReply};
use wire::{Features, Message};

pub(super) struct Client {
    pub(super) info: Arc<SessionInfo>,
    /// Maps and unanswered operations.
    pub(super) core: RefCell<clients::Client<Received>>,
    /// True while the connection is not read because too many operations wait.
    pub(super) held: Cell<bool>,
    /// True once a refused message of this client was logged as a warning.
    pub(super) refused: Cell<bool>,
}

pub(super) struct ClientEvents(pub(super) Weak<ReactorHost>);

impl Handler for ClientEvents {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(s) = self.0.upgrade() {
            s.client_event(conn, event);
        }
    }
}

impl ReactorHost {
    pub(super) fn client_event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Message(m) => self.client_message(conn, m),
            ConnEvent::Open(p) => self.client_open(conn, &p),
            ConnEvent::Closed(reason) => {
                self.work();
                self.client_gone(conn, &reason);
            }
        }
    }

    pub(super) fn client_open(&self, conn: ConnId, p: &PeerInfo) {
        let caps = caps_of(&p.principal).unwrap_or_else(|error| {
            tracing::warn!(name = %p.principal.name, error, "caps not understood; nothing is allowed");
            OsdCaps::default()
        });
        let mut addr = p.addrs.0.first().copied().unwrap_or_default();
        if addr.sock.is_none_or(|s| s.ip().is_unspecified()) {
            addr.sock = Some(std::net::SocketAddr::new(p.principal.socket.ip(), 0));
        }
        let info = SessionInfo {
            id: session_id(self.index, conn),
            owner: owner_of(&p.principal),
            reactor: self.index,
            conn,
            entity: p.entity,
            principal: p.principal.clone(),
            addr,
            features: p.features,
            caps,
        };
        let info = Arc::new(info);
        let client = Rc::new(Client {
            core: RefCell::new(clients::Client::new(info.clone())),
            info,
            held: Cell::new(false),
            refused: Cell::new(false),
        });
        self.clients.borrow_mut().insert(conn, client);
    }

    pub(super) fn client_message(&self, conn: ConnId, m: Message) {
        let Some(c) = self.clients.borrow().get(&conn).cloned() else { return };
        let (cost, request) = (m.cost(), inbound::from_client(&self.admission, &c.info.principal, &m));
        if let Ok(Request::Op(op)) = request {
            return self.operation(conn, c, op, m, cost);
        }
        self.net.consumed(conn, cost);
        match request {
            Ok(Request::Command) => self.routes.control(ToControl::Command(self.index, c.info.clone(), m)),
            Ok(Request::Maps(m)) => self.routes.control(ToControl::Maps(*m)),
            Ok(Request::Op(_) | Request::Nothing) => {}
            Err(NotTaken::Refused(why)) => self.refused(conn, &c, &m, why),
            Err(NotTaken::BadMaps(error)) => {
                tracing::warn!(osd = %c.info.entity, %error, "maps of another OSD not understood");
            }
            Err(NotTaken::BadOp(error)) => {
                tracing::warn!(client = %c.info.entity, %error, "operation not understood; closing the connection");
                self.net.close(conn);
                self.client_event(conn, ConnEvent::Closed(net::CloseReason::Local));
            }
        }
    }

    /// Takes an operation, decoded from `m`, for the turn's work.
    fn operation(&self, conn: ConnId, c: Rc<Client>, op: Box<MOsdOp>, m: Message, cost: usize) {
        let (tid, now) = (m.header.tid, clock::now().mono);
        // Charged before answer and expansion exist: the next request waits until there is room for its own.
        let more = OP_BYTES + inbound::answer_bytes(&op) + inbound::expanded_bytes(&op);
        self.net.charge(conn, more);
        self.wrote(m.data.len());
        let mut mine = c.core.borrow_mut();
        let back = mine.came(tid, cost + more, Received::of(m), now, &mut self.forgotten.borrow_mut());
        if mine.unanswered().waiting() >= OPS_MAX && !c.held.replace(true) {
            self.net.hold(conn);
        }
        drop(mine);
        self.gets_back(&c, back);
        self.later(Work::Op(c, op));
    }

    /// Handles a message that its sender may not send. Each session is named once in the log.
    #[cold]
    pub(super) fn refused(&self, conn: ConnId, c: &Client, m: &Message, why: Refusal) {
        let (kind, name) = (wire::msg::registry::name(m.header.kind), &c.info.principal.name);
        if !c.refused.replace(true) {
            tracing::warn!(client = %c.info.entity, %name, socket = %c.info.principal.socket, kind, ?why, "message refused");
        } else {
            tracing::debug!(client = %c.info.entity, %name, kind, ?why, "message refused");
        }
        if why == Refusal::Lacks(Right::AllowAll) {
            let refused = MCommandReply { r: base::errno::EACCES, ..MCommandReply::default() };
            self.send_here(conn, refused.to_message(Features::PACIFIC).with_tid(m.header.tid));
        }
    }

    pub(super) fn client_op(&self, c: &Client, m: Box<MOsdOp>, now: base::Now) {
        let (maps, elsewhere) = self.core.borrow_mut().take_op(&c.core.borrow(), m, now);
        self.send_maps(c, maps);
        if let Some((at, input)) = elsewhere {
            self.routes.input(at, input);
        }
    }

    pub(super) fn send(&self, s: pg::SessionId, m: Message) {
        let (reactor, conn) = session_route(s);
        if reactor == self.index {
            self.send_here(conn, m);
        } else {
            self.routes.reactor(reactor, ToReactor::Send(conn, m));
        }
    }

    pub(super) fn send_here(&self, conn: ConnId, m: Message) {
        if m.header.kind == MOsdOpReply::KIND {
            self.answered(conn, m.header.tid, m.data_len() as u64);
        }
        // A client that went away asks again on its next connection.
        let _ = self.net.send(conn, m);
    }

    pub(super) fn answered(&self, conn: ConnId, tid: u64, bytes_out: u64) {
        let Some((c, f)) = self.give_back(conn, tid) else { return };
        let now = clock::now();
        let took = now.mono.since(f.received);
        if self.history.borrow().wants(took, now.mono) {
            self.history.borrow_mut().add(&f.request, c.info.entity, c.info.addr, took, now);
        }
        if self.meter.borrow().is_on() {
            self.count(&c.info, &f.request, bytes_out, took);
        }
    }

    /// Counts an answered operation for the performance queries.
    #[cold]
    pub(super) fn count(&self, who: &SessionInfo, request: &Received, bytes_out: u64, latency: Duration) {
        let Some(op) = request.decode() else { return };
        let access = pg::op_access(&op);
        self.meter.borrow_mut().add(&Finished {
            client: who.entity,
            addr: who.addr,
            osd: self.core.borrow().pgs().whoami(),
            pg: op.pgid.pg,
            nspace: &op.locator.nspace,
            oid: &op.oid,
            snap: op.snapid,
            reads: access.may_read(),
            writes: access.may_write(),
            bytes_in: request.data_len() as u64,
            bytes_out,
            latency,
        });
    }

    /// Ends an operation's share of its connection's unanswered bytes.
    pub(super) fn give_back(&self, conn: ConnId, tid: u64) -> Option<(Rc<Client>, InFlight<Received>)> {
        let c = self.clients.borrow().get(&conn).cloned()?;
        let (f, back) = c.core.borrow_mut().answered(tid, &mut self.forgotten.borrow_mut())?;
        self.gets_back(&c, back);
        Some((c, f))
    }

    /// Gives unanswered bytes back to a connection, and reads it again if few enough operations wait.
    fn gets_back(&self, c: &Client, bytes: usize) {
        if bytes > 0 {
            self.net.consumed(c.info.conn, bytes);
        }
        if c.held.get() && c.core.borrow().unanswered().waiting() <= OPS_RESUME {
            c.held.set(false);
            self.net.release(c.info.conn);
        }
    }

    pub(super) fn dropped(&self, s: pg::SessionId, tid: u64, feed: Option<Arc<MapFeed>>) {
        let (reactor, conn) = session_route(s);
        if reactor == self.index {
            self.dropped_here(conn, tid, feed.as_deref());
        } else {
            self.routes.reactor(reactor, ToReactor::Dropped(conn, tid, feed));
        }
    }

    /// Ends an operation of a client of this reactor that gets no answer.
    pub(super) fn dropped_here(&self, conn: ConnId, tid: u64, feed: Option<&MapFeed>) {
        let Some(c) = self.clients.borrow().get(&conn).cloned() else { return };
        let ended = c.core.borrow_mut().dropped(tid, feed, &mut self.forgotten.borrow_mut());
        if let Some((back, maps)) = ended {
            self.gets_back(&c, back);
            self.send_maps(&c, maps);
        }
    }

    fn send_maps(&self, c: &Client, maps: Option<MOsdMap>) {
        if let Some(maps) = maps {
            let _ = self.net.send(c.info.conn, maps.to_message(c.info.features));
        }
    }

    pub(super) fn close_session(&self, s: pg::SessionId) {
        let (reactor, conn) = session_route(s);
        if reactor == self.index {
            self.close_client(conn);
        } else {
            self.routes.reactor(reactor, ToReactor::Close(conn));
        }
    }

    pub(super) fn close_client(&self, conn: ConnId) {
        self.net.close(conn);
        self.client_gone(conn, &net::CloseReason::Local);
    }

    pub(super) fn client_gone(&self, conn: ConnId, reason: &net::CloseReason) {
        let c = self.clients.borrow_mut().remove(&conn);
        if let Some(c) = c {
            tracing::debug!(client = %c.info.entity, %reason, "session ended");
            c.core.borrow_mut().end(&mut self.forgotten.borrow_mut());
            let id = c.info.id;
            self.routes.inputs(|| Input::SessionClosed(id));
        }
    }

    /// Gives back the bytes of operations whose answer takes too long.
    pub(super) fn forget_old(&self, now: Mono) {
        let clients: Vec<Rc<Client>> = self.clients.borrow().values().cloned().collect();
        for c in clients {
            let back = c.core.borrow_mut().forget_old(now, &mut self.forgotten.borrow_mut());
            self.gets_back(&c, back);
        }
    }

    /// Closes sessions with an expired ticket. Their clients return with a fresh one, which has their present
    /// rights, and resend unanswered operations. Clients that get no ticket stay away.
    pub(super) fn close_expired(&self) {
        let now = clock::now().wall;
        let over: Vec<ConnId> = {
            let clients = self.clients.borrow();
            clients.iter().filter(|(_, c)| c.info.principal.expired(now)).map(|(id, _)| *id).collect()
        };
        for conn in over {
            if let Some(c) = self.clients.borrow().get(&conn) {
                tracing::debug!(client = %c.info.entity, name = %c.info.principal.name, "ticket has expired; session closed");
            }
            self.close_client(conn);
        }
    }
}
