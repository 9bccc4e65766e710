//! One connection: drives its state machine with a socket.
//!
//! The task of a socket reads, parses and calls the handler in one poll; output is written at the turn's end. A
//! lossless session outlives its sockets. Each new socket gets a task of its own, and a task with an outdated
//! `epoch` ends.
//!
//! | module | contents |
//! | --- | --- |
//! | `budget` | bytes that a connection holds: unconsumed messages, unsent output, an incomplete frame |
//! | `input` | reading from the socket: one poll of its task reads, parses and calls the handler |
//! | `low_water` | bytes of a large frame that must have arrived before the task is woken |
//! | `output` | writing to the socket, at the end of a turn, and peers that do not take what is written |
//! | `read_buf` | the buffer into which the sockets of a reactor are read |
//! | `session` | sessions: peers that sign in, and sessions that go on over another socket |

mod budget;
mod input;
mod low_water;
mod output;
mod read_buf;
mod session;

use crate::descriptors::Accepted;
use crate::gate::Verdict as Admission;
use crate::types::{CloseReason, ConnEvent, ConnId, PeerInfo, SendError, Target};
use crate::{EndpointInner, Inner, Limits, add};
use base::{Mono, Now};
use budget::Budget;
use low_water::LowWater;
use msgr::session::session_key;
use msgr::{Connection, Error, Machine};
use output::Output;
use reactor::clock;
pub(crate) use read_buf::ReadBuf;
use session::Signing;
use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use wire::Message;

/// Most messages that a connection delivers in one poll of its task, so that the messages of other connections are not
/// delivered after thousands of its own.
pub const MESSAGES_PER_POLL: usize = 256;
/// Bytes that a slow peer must take, or send of a frame that others wait for, to count as making progress.
pub const STALL_BYTES: usize = 64 << 10;

pub(crate) struct Conn {
    id: ConnId,
    ep: Rc<EndpointInner>,
    machine: RefCell<Machine>,
    stream: RefCell<Option<TcpStream>>,
    low_water: LowWater,
    /// Number of the current socket. The task of an earlier socket ends.
    epoch: Cell<u32>,
    waker: RefCell<Option<Waker>>,
    /// Listed for the output at the end of this turn.
    dirty: Cell<bool>,
    closed: Cell<bool>,
    /// The handler knows the connection: we dialled it or reported it open.
    known: Cell<bool>,
    dialling: Cell<bool>,
    peer: RefCell<Option<Rc<PeerInfo>>>,
    budget: Budget,
    output: Output,
    signing: Signing,
    target: Option<Target>,
    backoff: Cell<Duration>,
    /// Start of the handshake on the current socket, or of dialling.
    started: Cell<Mono>,
    last_heard: Cell<Mono>,
    last_ping: Cell<Mono>,
    /// Own key in the endpoint's table of lossless sessions.
    session: Cell<Option<base::EntityAddr>>,
}

impl Conn {
    fn new(id: ConnId, ep: &Rc<EndpointInner>, machine: Machine, target: Option<Target>) -> Self {
        let now = clock::now().mono;
        Self {
            id,
            ep: ep.clone(),
            machine: RefCell::new(machine),
            stream: RefCell::new(None),
            low_water: LowWater::default(),
            epoch: Cell::new(0),
            waker: RefCell::new(None),
            dirty: Cell::new(false),
            closed: Cell::new(false),
            known: Cell::new(target.is_some()),
            dialling: Cell::new(false),
            peer: RefCell::new(None),
            budget: Budget::new(now),
            output: Output::new(now),
            signing: Signing::default(),
            target,
            backoff: Cell::new(Duration::ZERO),
            started: Cell::new(now),
            last_heard: Cell::new(now),
            last_ping: Cell::new(now),
            session: Cell::new(None),
        }
    }

    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// True for a connection of this endpoint.
    pub(crate) fn is_of(&self, ep: &Rc<EndpointInner>) -> bool {
        Rc::ptr_eq(&self.ep, ep)
    }

    /// The limits of its endpoint.
    pub(crate) fn limits(&self) -> &Limits {
        &self.ep.limits
    }

    /// The state machine, for reading.
    pub(crate) fn machine(&self) -> Ref<'_, Machine> {
        self.machine.borrow()
    }

    /// The peer, once the connection is open.
    pub(crate) fn peer(&self) -> Option<Rc<PeerInfo>> {
        self.peer.borrow().clone()
    }

    /// Start of the handshake on the current socket, or of dialling.
    pub(crate) fn started(&self) -> Mono {
        self.started.get()
    }

    pub(crate) fn last_heard(&self) -> Mono {
        self.last_heard.get()
    }

    pub(crate) fn is_dialling(&self) -> bool {
        self.dialling.get()
    }

    /// Notes that the connection is listed for output, or is no more. Returns what was noted before.
    pub(crate) fn note_dirty(&self, dirty: bool) -> bool {
        self.dirty.replace(dirty)
    }

    /// Sends a keepalive if neither end has sent or heard anything for `every`.
    pub(crate) fn ping(self: &Rc<Self>, inner: &Rc<Inner>, now: Now, every: Duration) {
        if now.mono.since(self.last_ping.get().max(self.last_heard.get())) < every {
            return;
        }
        self.last_ping.set(now.mono);
        let sent = self.machine.borrow_mut().keepalive(now.wall);
        match sent {
            Ok(()) => inner.mark_dirty(self),
            Err(e) => self.fail_protocol(inner, &e),
        }
    }

    pub(crate) fn has_socket(&self) -> bool {
        self.stream.borrow().is_some()
    }

    /// The peer that this end dialled.
    pub(crate) fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// Number of the socket's descriptor.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.stream.borrow().as_ref().map(std::os::fd::AsRawFd::as_raw_fd)
    }

    fn wake(&self) {
        if let Some(w) = &*self.waker.borrow() {
            w.wake_by_ref();
        }
    }

    pub(crate) fn send(self: &Rc<Self>, inner: &Rc<Inner>, m: Message) -> Result<(), SendError> {
        let sent = {
            let mut machine = self.machine.borrow_mut();
            let (bytes, most) = (machine.output_bytes(), self.ep.limits.output_bytes_max);
            if bytes == 0 {
                self.progresses();
            }
            let stalled = bytes > most && clock::now().mono.since(self.output.progress()) >= self.ep.limits.stall_max;
            if stalled || bytes > most.saturating_mul(4) { None } else { Some(machine.send(m)) }
        };
        match sent {
            None => {
                tracing::warn!(conn = %self.id, peer = %self.describe(), "peer does not read, closing");
                self.end_later(inner, CloseReason::OutputFull);
                Err(SendError::Full)
            }
            Some(Ok(())) => {
                add(&inner.counters.messages_out, 1);
                self.recount(inner);
                inner.mark_dirty(self);
                Ok(())
            }
            Some(Err(e)) => {
                self.end_later(inner, CloseReason::Protocol(e.to_string()));
                Err(SendError::Gone)
            }
        }
    }

    /// Ends the connection from inside a call of the host, which gets no event before the call returns.
    fn end_later(self: &Rc<Self>, inner: &Rc<Inner>, reason: CloseReason) {
        let (me, inner) = (self.clone(), inner.clone());
        tokio::task::spawn_local(async move { me.end(&inner, Some(reason)) });
    }

    pub(crate) fn describe(&self) -> String {
        match (&*self.peer.borrow(), &self.target) {
            (Some(p), _) if !p.principal.incoming => format!("{} {}", p.entity, p.principal.socket),
            (Some(p), _) => format!("{} ({}) {}", p.entity, p.principal.name, p.principal.socket),
            (None, Some(t)) => format!("{} {}", t.kind.word(), t.addr),
            (None, None) => format!("{:?}", self.machine.borrow()),
        }
    }

    fn socket_text(&self) -> String {
        match self.stream.borrow().as_ref().and_then(|s| s.peer_addr().ok()) {
            Some(a) => a.to_string(),
            None => "-".to_owned(),
        }
    }

    /// Gives the connection a socket and a task to drive it.
    fn install(self: &Rc<Self>, inner: &Rc<Inner>, stream: Option<TcpStream>) {
        let now = clock::now().mono;
        self.started.set(now);
        self.last_heard.set(now);
        self.dialling.set(false);
        self.output.unblock();
        self.wake();
        *self.waker.borrow_mut() = None;
        *self.stream.borrow_mut() = stream;
        self.low_water.forget();
        let epoch = self.epoch.get().wrapping_add(1);
        self.epoch.set(epoch);
        let (me, net) = (self.clone(), Rc::downgrade(inner));
        tokio::task::spawn_local(async move {
            let step = |cx: &mut Context<'_>| match net.upgrade() {
                Some(inner) => me.poll(&inner, epoch, cx),
                None => Poll::Ready(Step::End),
            };
            // A wake-up of the task alone would keep the reactor from looking at other sockets.
            while poll_fn(step).await == Step::Yield {
                tokio::task::yield_now().await;
            }
        });
        inner.mark_dirty(self);
    }

    pub(crate) fn fail_protocol(self: &Rc<Self>, inner: &Rc<Inner>, e: &Error) {
        let peer = self.socket_text();
        if e.is_auth() {
            add(&inner.counters.auth_failures, 1);
            if self.may_log(inner) {
                tracing::warn!(%peer, target = %self.describe(), "{e}");
            }
            return self.end(inner, Some(CloseReason::Auth { reason: e.to_string(), errno: e.errno() }));
        }
        add(&inner.counters.protocol_errors, 1);
        if self.may_log(inner) {
            tracing::warn!(%peer, state = self.machine.borrow().state_name(), "closing connection: {e}");
        }
        self.end(inner, Some(CloseReason::Protocol(e.to_string())));
    }

    /// Handles a failed socket: a lossless session waits for another socket, other connections end.
    pub(crate) fn fail(self: &Rc<Self>, inner: &Rc<Inner>, reason: CloseReason) {
        if self.closed.get() {
            return;
        }
        self.epoch.set(self.epoch.get().wrapping_add(1));
        self.stream.borrow_mut().take();
        self.dialling.set(false);
        self.output.unblock();
        self.give_frame_back(inner);
        // The task of the lost socket finds its `epoch` outdated and ends.
        self.wake();
        let lives = {
            let mut m = self.machine.borrow_mut();
            m.disconnected() && (m.view().is_some_and(|v| v.opened) || self.target.is_some())
        };
        if !lives {
            return self.end(inner, Some(reason));
        }
        tracing::debug!(conn = %self.id, peer = %self.describe(), %reason, "lossless session lost its socket");
        if self.machine.borrow().is_incoming() {
            // The client has to reconnect.
            return;
        }
        let l = &self.ep.limits;
        let pause = self.backoff.get();
        self.backoff.set((pause * 2).clamp(l.backoff_min, l.backoff_max));
        self.dial(inner, pause);
    }

    /// Ends the connection for good, and reports `reason` if the handler knows it.
    pub(crate) fn end(self: &Rc<Self>, inner: &Rc<Inner>, reason: Option<CloseReason>) {
        if self.closed.replace(true) {
            return;
        }
        inner.remove(self.id);
        // Count all bytes that the handler holds as consumed: it cannot return them for a closed connection.
        self.give_frame_back(inner);
        self.recount(inner);
        self.consumed(inner, usize::MAX);
        if let Some(key) = self.session.take() {
            let mut s = self.ep.sessions.borrow_mut();
            if s.get(&key) == Some(&self.id) {
                s.remove(&key);
            }
        }
        self.proven(inner, false);
        if let Some(name) = self.signing.leave() {
            self.ep.entities.leave(&name);
        }
        if self.signing.is_accepted() {
            self.ep.incoming.set(self.ep.incoming.get().saturating_sub(1));
            crate::descriptors::ended();
        }
        self.stream.borrow_mut().take();
        self.wake();
        if let Some(r) = reason
            && self.known.get()
        {
            self.ep.handler.event(self.id, ConnEvent::Closed(r));
        }
    }

    /// Dials the target after `pause`.
    fn dial(self: &Rc<Self>, inner: &Rc<Inner>, pause: Duration) {
        let Some(target) = &self.target else { return };
        let Some(addr) = target.addr.sock else {
            return self.end_later(inner, CloseReason::Io("no address to connect to".into()));
        };
        let epoch = self.epoch.get();
        let (me, net) = (self.clone(), Rc::downgrade(inner));
        tokio::task::spawn_local(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            if me.closed.get() || me.epoch.get() != epoch {
                return;
            }
            clock::expire();
            me.dialling.set(true);
            me.started.set(clock::now().mono);
            let r = TcpStream::connect(addr).await;
            let Some(inner) = net.upgrade() else { return };
            // The peer's own connection or a close may have come first.
            if me.closed.get() || me.epoch.get() != epoch {
                return;
            }
            match r.and_then(|s| s.set_nodelay(true).map(|()| s)) {
                Ok(s) => {
                    me.machine.borrow_mut().reconnect();
                    me.install(&inner, Some(s));
                }
                Err(e) => me.fail(&inner, CloseReason::Io(e.to_string())),
            }
        });
    }
}

/// Next step of a socket's task after a poll.
#[derive(PartialEq, Eq)]
enum Step {
    /// The socket is not this connection's any more.
    End,
    /// More input may be there: other sockets get their turn first.
    Yield,
}

/// Serves an accepted socket.
pub(crate) fn accept(inner: &Rc<Inner>, ep: &Rc<EndpointInner>, accepted: Accepted) -> io::Result<ConnId> {
    let protocol = accepted.protocol();
    let s = accepted.into_stream();
    let peer = s.peer_addr()?;
    if ep.incoming.get() >= ep.limits.connections_max {
        if inner.gate.borrow_mut().may_log(peer.ip(), clock::now().mono) {
            tracing::warn!(%peer, limit = ep.limits.connections_max, "too many connections, refusing");
        }
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many connections"));
    }
    let now = clock::now().mono;
    // First, so that an address with too many failures ends no connection of others.
    let admission = inner.gate.borrow_mut().admit(peer.ip(), now);
    let oldest = match admission {
        Admission::Refuse => return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many attempts from there")),
        Admission::Take(oldest) => oldest,
    };
    if let Some(c) = oldest.and_then(|id| inner.get(id)) {
        c.end(inner, None);
    }
    if crate::descriptors::is_full() {
        let oldest = inner.gate.borrow_mut().oldest().and_then(|id| inner.get(id));
        let Some(oldest) = oldest else {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the process has no descriptors left"));
        };
        oldest.end(inner, None);
    }
    s.set_nonblocking(true)?;
    s.set_nodelay(true)?;
    let stream = TcpStream::from_std(s)?;
    ep.incoming.set(ep.incoming.get() + 1);
    crate::descriptors::accepted();
    let machine = Machine::server(ep.config.clone(), peer, protocol);
    let c = inner.insert(|id| {
        let c = Conn::new(id, ep, machine, None);
        Conn { signing: Signing::accepted(peer.ip()), ..c }
    });
    inner.gate.borrow_mut().began(peer.ip(), c.id, now);
    c.install(inner, Some(stream));
    Ok(c.id)
}

/// Opens a connection.
pub(crate) fn connect(inner: &Rc<Inner>, ep: &Rc<EndpointInner>, target: Target) -> ConnId {
    let policy_lossy = ep.config.policies.borrow().get(target.kind).lossy;
    let key = session_key(&target.addrs);
    if !policy_lossy {
        let known = ep.sessions.borrow().get(&key).copied();
        if let Some(id) = known
            && inner.get(id).is_some()
        {
            return id;
        }
    }
    let socket = target.addr.sock.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let machine = Machine::V2(Connection::client(ep.config.clone(), target.kind, target.addr, socket));
    let c = inner.insert(|id| Conn::new(id, ep, machine, Some(target)));
    if !policy_lossy {
        // Registered at once, so that a crossing connection of the peer is noticed.
        c.session.set(Some(key));
        ep.sessions.borrow_mut().insert(key, c.id);
    }
    c.dial(inner, Duration::ZERO);
    c.id
}
