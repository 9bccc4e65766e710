//! One connection: drives its state machine with a socket.
//!
//! The task of a socket reads, parses and calls the handler in one poll; output is written at the turn's end. A
//! lossless session outlives its sockets. Each new socket gets a task of its own, and a task with an outdated
//! `epoch` ends.

use crate::descriptors::Accepted;
use crate::gate::Verdict as Admission;
use crate::types::{CloseReason, ConnEvent, ConnId, PeerInfo, SendError, Target};
use crate::{EndpointInner, Inner, add};
use base::{AuthName, Mono};
use msgr::session::{decide, session_key};
use msgr::{Connection, Error, Event, Machine, Protocol, Request, Verdict};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;
use wire::Message;

/// Size of the shared read buffer. The buffer is replaced when less than [`READ_MIN`] of it is free.
const READ_BUF: usize = 256 * 1024;
const READ_MIN: usize = 32 * 1024;
/// Most reads in one poll of a task, so that other tasks get their turn.
const READS_PER_POLL: usize = 8;
/// Most messages that a connection delivers in one poll of its task, so that the messages of other connections are not
/// delivered after thousands of its own.
pub const MESSAGES_PER_POLL: usize = 256;
/// Bytes that a slow peer must take, or send of a frame that others wait for, to count as making progress.
pub const STALL_BYTES: usize = 64 << 10;
/// Time after which an incomplete frame that others wait for must arrive with [`STALL_BYTES`] a second.
const FRAME_GRACE: Duration = Duration::from_secs(2);
/// Most bytes written to a socket in one turn; then other sockets get theirs.
const WRITE_BYTES_MAX: usize = 8 << 20;
/// Slices per vectored write. Small writes use the small array, since filling the array has a cost.
const SLICES_FEW: usize = 8;
const SLICES_MANY: usize = 256;
/// Most unparsed bytes that are copied out of the shared buffer instead of pinning it.
const COPY_PENDING_MAX: usize = msgr::policy::DIRECT_BYTES_MIN + 4096;

pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) ep: Rc<EndpointInner>,
    pub(crate) machine: RefCell<Machine>,
    stream: RefCell<Option<TcpStream>>,
    /// Number of the current socket. The task of an earlier socket ends.
    epoch: Cell<u32>,
    waker: RefCell<Option<Waker>>,
    pub(crate) dirty: Cell<bool>,
    /// The socket is full. The task waits until it has room, and nothing is written before.
    blocked: Cell<bool>,
    closed: Cell<bool>,
    /// The handler knows the connection: we dialled it or reported it open.
    known: Cell<bool>,
    /// IP address from which the connection was accepted.
    accepted: Option<IpAddr>,
    /// The entity among whose connections this one counts.
    counted: RefCell<Option<AuthName>>,
    /// The connection counts among those that have not signed in.
    unproven: Cell<bool>,
    pub(crate) dialling: Cell<bool>,
    in_flight: Cell<usize>,
    /// The host wants no messages at present.
    held: Cell<bool>,
    /// Unsent output that [`Inner::in_flight`] includes.
    unsent: Cell<usize>,
    /// Granted bytes of the incomplete frame, and when they were granted.
    frame: Cell<usize>,
    frame_since: Cell<Mono>,
    /// The announced frame waits for its bytes.
    asking: Cell<bool>,
    /// Bytes that the peer has taken since `progress`, when it had last taken [`STALL_BYTES`] or everything.
    taken: Cell<usize>,
    progress: Cell<Mono>,
    /// Bound of unsent output at which the host wants to be told.
    pub(crate) drained_at: Cell<Option<usize>>,
    /// The connection is not read until it holds less.
    stopped: Cell<bool>,
    /// The connection is in the list of those waiting for room ([`Inner::waiting`]).
    waiting: Cell<bool>,
    pub(crate) peer: RefCell<Option<Rc<PeerInfo>>>,
    target: Option<Target>,
    backoff: Cell<Duration>,
    pub(crate) started: Cell<Mono>,
    pub(crate) last_heard: Cell<Mono>,
    pub(crate) last_ping: Cell<Mono>,
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
            epoch: Cell::new(0),
            waker: RefCell::new(None),
            dirty: Cell::new(false),
            blocked: Cell::new(false),
            closed: Cell::new(false),
            known: Cell::new(target.is_some()),
            accepted: None,
            counted: RefCell::default(),
            unproven: Cell::new(false),
            dialling: Cell::new(false),
            in_flight: Cell::new(0),
            held: Cell::new(false),
            unsent: Cell::new(0),
            frame: Cell::new(0),
            frame_since: Cell::new(now),
            asking: Cell::new(false),
            taken: Cell::new(0),
            progress: Cell::new(now),
            drained_at: Cell::new(None),
            stopped: Cell::new(false),
            waiting: Cell::new(false),
            peer: RefCell::new(None),
            target,
            backoff: Cell::new(Duration::ZERO),
            started: Cell::new(now),
            last_heard: Cell::new(now),
            last_ping: Cell::new(now),
            session: Cell::new(None),
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

    /// Bytes of delivered messages that the host has not consumed.
    pub(crate) fn unconsumed(&self) -> usize {
        self.in_flight.get()
    }

    /// True while no message of this connection is delivered: the host holds it, it holds more bytes here than it may
    /// have, or its frame waits for bytes.
    pub(crate) fn paused(&self, inner: &Inner) -> bool {
        let own = self.in_flight.get() + self.unsent.get();
        self.held.get()
            || self.asking.get()
            || own > self.ep.in_flight_max.get()
            || (own > 0 && inner.in_flight.get() > inner.in_flight_max.get())
    }

    /// True for a connection whose unsent output and frames count with those of all clients. A peer must go on reading
    /// what the other end sends while its own output waits, else two that wait for each other never end.
    fn is_client(&self) -> bool {
        let m = self.machine.borrow();
        m.is_incoming() && m.is_lossy()
    }

    /// Counts the unsent output anew.
    fn recount(&self, inner: &Inner) {
        let (incoming, bytes) = {
            let m = self.machine.borrow();
            (m.is_incoming() && m.is_lossy() && m.is_open(), m.output_bytes())
        };
        let now = if incoming && !self.closed.get() { bytes } else { 0 };
        let before = self.unsent.replace(now);
        if now != before {
            inner.in_flight.set((inner.in_flight.get() + now).saturating_sub(before));
        }
        if now < before {
            self.resume_after(inner);
        }
    }

    /// Continues this connection if it has waited for its own bytes, and others if they have waited for all.
    fn resume_after(&self, inner: &Inner) {
        self.resume_own(inner);
        inner.resume();
    }

    /// Continues this connection if it has waited for its own bytes.
    pub(crate) fn resume_own(&self, inner: &Inner) {
        if self.stopped.get() && !self.paused(inner) {
            self.stopped.set(false);
            self.wake();
        }
    }

    /// Continues a connection that was in the list of those waiting for room.
    pub(crate) fn resume(self: &Rc<Self>, inner: &Inner) {
        self.waiting.set(false);
        if !self.closed.get() && !self.pause(inner) {
            self.wake();
        }
    }

    pub(crate) fn hold(&self, held: bool) {
        if self.held.replace(held) && !held {
            self.wake();
        }
    }

    /// Like [`Conn::paused`], and remembers what ends the pause: the connection's own bytes, or those of others.
    fn pause(self: &Rc<Self>, inner: &Inner) -> bool {
        let p = self.paused(inner);
        if p {
            self.stopped.set(true);
            if inner.in_flight.get() > inner.in_flight_max.get() && !self.waiting.replace(true) {
                inner.waiting.borrow_mut().push(self.clone());
            }
        }
        p
    }

    fn wake(&self) {
        if let Some(w) = &*self.waker.borrow() {
            w.wake_by_ref();
        }
    }

    pub(crate) fn charge(&self, inner: &Inner, bytes: usize) {
        self.in_flight.set(self.in_flight.get() + bytes);
        inner.in_flight.set(inner.in_flight.get() + bytes);
    }

    pub(crate) fn consumed(&self, inner: &Inner, bytes: usize) {
        let n = bytes.min(self.in_flight.get());
        self.in_flight.set(self.in_flight.get() - n);
        inner.in_flight.set(inner.in_flight.get().saturating_sub(n));
        self.resume_after(inner);
    }

    // ---- incomplete frames ----

    /// Entity that an incomplete frame is charged to.
    fn charged(&self) -> AuthName {
        self.machine.borrow().peer().principal.name.clone()
    }

    /// Asks for the bytes of an announced frame, or gives those of a complete one back. Returns true if the frame may
    /// be read on.
    fn frame_bytes(self: &Rc<Self>, inner: &Inner) -> bool {
        let (asks, partial) = {
            let m = self.machine.borrow();
            (m.asks(), m.partial().is_some())
        };
        if self.frame.get() > 0 && !partial {
            self.give_frame_back(inner);
        }
        let Some(bytes) = asks.filter(|_| !self.asking.get()) else { return !self.asking.get() };
        let clients = self.is_client();
        // A connection that we opened brings answers to our own requests, from a server that we chose.
        let free = !clients && self.machine.borrow().is_lossy();
        let frames = &inner.frames[usize::from(!clients)];
        if free {
            self.machine.borrow_mut().grant();
        } else if frames.borrow_mut().ask(self.id, self.charged(), bytes, inner.room(clients)) {
            self.granted(bytes);
        } else {
            self.asking.set(true);
        }
        !self.asking.get()
    }

    /// The bytes of the announced frame are granted.
    pub(crate) fn granted(&self, bytes: usize) {
        self.frame.set(bytes);
        self.frame_since.set(clock::now().mono);
        self.machine.borrow_mut().grant();
        if self.asking.replace(false) {
            self.wake();
        }
    }

    /// The peer has taken enough, or everything.
    fn progresses(&self) {
        self.taken.set(0);
        self.progress.set(clock::now().mono);
    }

    fn give_frame_back(&self, inner: &Inner) {
        let frames = &inner.frames[usize::from(!self.is_client())];
        if self.asking.replace(false) {
            frames.borrow_mut().forget(self.id);
        }
        let bytes = self.frame.take();
        if bytes > 0 {
            frames.borrow_mut().give_back(&self.charged(), bytes);
            inner.resume();
        }
    }

    /// True if others wait for the bytes of this connection's frame, which does not arrive.
    pub(crate) fn frame_stalls(&self, inner: &Inner, now: Mono) -> bool {
        if self.frame.get() == 0 || !inner.frames[usize::from(!self.is_client())].borrow().is_short() {
            return false;
        }
        let since = now.since(self.frame_since.get());
        let wanted = STALL_BYTES.saturating_mul(usize::try_from(since.as_secs()).unwrap_or(usize::MAX));
        let arrived = self.machine.borrow().partial().map_or(0, |(arrived, _)| arrived);
        since >= FRAME_GRACE && arrived < wanted
    }

    /// True if the peer has taken next to nothing for too long, although its queue is too long or the reactor needs the
    /// bytes.
    pub(crate) fn output_stalls(&self, inner: &Inner, now: Mono) -> bool {
        let l = &self.ep.limits;
        let bytes = self.machine.borrow().output_bytes();
        let short = inner.in_flight.get() > inner.in_flight_max.get() && self.unsent.get() > STALL_BYTES;
        let long = bytes > l.output_bytes_max.min(self.ep.limits.in_flight_bytes_max);
        (short || long) && self.blocked.get() && now.since(self.progress.get()) >= l.stall_max
    }

    pub(crate) fn send(self: &Rc<Self>, inner: &Rc<Inner>, m: Message) -> Result<(), SendError> {
        let sent = {
            let mut machine = self.machine.borrow_mut();
            let (bytes, most) = (machine.output_bytes(), self.ep.limits.output_bytes_max);
            if bytes == 0 {
                self.progresses();
            }
            let stalled = bytes > most && clock::now().mono.since(self.progress.get()) >= self.ep.limits.stall_max;
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

    // ---- writing ----

    /// Writes queued output until the socket is full.
    pub(crate) fn flush(self: &Rc<Self>, inner: &Rc<Inner>) {
        if self.closed.get() {
            return;
        }
        let outcome = self.write_all(inner);
        self.recount(inner);
        match outcome {
            Ok(true) => {}
            Ok(false) => self.end(inner, Some(CloseReason::Protocol("refused by us".into()))),
            Err(WriteError::Io(e)) => self.fail(inner, CloseReason::Io(e.to_string())),
            Err(WriteError::Protocol(e)) => self.fail_protocol(inner, &e),
        }
    }

    /// Continues with what waited for the peer to take output. Runs at the turn's end, in no call of the host.
    pub(crate) fn after_flush(&self) {
        if self.drained() {
            self.drained_at.set(None);
            self.ep.handler.drained(self.id);
        }
    }

    /// True if the host waits for the present amount of unsent output.
    fn drained(&self) -> bool {
        !self.closed.get() && self.drained_at.get().is_some_and(|n| self.machine.borrow().output_bytes() <= n)
    }

    /// Writes queued output. Returns false if the state machine wants the socket closed after it.
    fn write_all(&self, inner: &Inner) -> Result<bool, WriteError> {
        let stream = self.stream.borrow();
        let Some(stream) = stream.as_ref().filter(|_| !self.blocked.get()) else { return Ok(true) };
        let mut machine = self.machine.borrow_mut();
        machine.prepare_flush().map_err(WriteError::Protocol)?;
        let mut left = WRITE_BYTES_MAX;
        while machine.unwritten() > 0 {
            if left == 0 {
                // As if the socket were full: the task finds that it is not, after other sockets.
                self.blocked.set(true);
                self.wake();
                return Ok(true);
            }
            let written = if machine.parts() <= SLICES_FEW {
                write_some::<SLICES_FEW>(stream, &machine)
            } else {
                write_some::<SLICES_MANY>(stream, &machine)
            };
            match written {
                Ok(0) => return Err(WriteError::Io(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    add(&inner.counters.writes, 1);
                    add(&inner.counters.bytes_out, n);
                    left = left.saturating_sub(n);
                    machine.advance(n).map_err(WriteError::Protocol)?;
                    self.taken.set(self.taken.get() + n);
                    if self.taken.get() >= STALL_BYTES || machine.unwritten() == 0 {
                        self.progresses();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked.set(true);
                    self.wake();
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(WriteError::Io(e)),
            }
        }
        Ok(!machine.is_closing())
    }

    // ---- reading ----

    fn poll(self: &Rc<Self>, inner: &Rc<Inner>, epoch: u32, cx: &mut Context<'_>) -> Poll<Step> {
        if self.closed.get() || self.epoch.get() != epoch {
            return Poll::Ready(Step::End);
        }
        clock::expire();
        {
            let mut w = self.waker.borrow_mut();
            match &mut *w {
                Some(w) => w.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        if self.blocked.get() {
            let ready = match &*self.stream.borrow() {
                Some(s) => s.poll_write_ready(cx).is_ready(),
                None => false,
            };
            if ready {
                self.blocked.set(false);
                inner.mark_dirty(self);
            }
        }
        let mut messages = MESSAGES_PER_POLL;
        for _ in 0..READS_PER_POLL {
            // This also parses input left over by a pause.
            self.process(inner, &mut messages);
            if self.closed.get() || self.epoch.get() != epoch {
                return Poll::Ready(Step::End);
            }
            if messages == 0 {
                break;
            }
            if self.pause(inner) {
                return Poll::Pending;
            }
            match self.read(inner, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    self.fail(inner, CloseReason::Peer);
                    return Poll::Ready(Step::End);
                }
                Poll::Ready(Ok(n)) => {
                    self.last_heard.set(clock::now().mono);
                    add(&inner.counters.reads, 1);
                    add(&inner.counters.bytes_in, n);
                }
                Poll::Ready(Err(e)) => {
                    self.fail(inner, CloseReason::Io(e.to_string()));
                    return Poll::Ready(Step::End);
                }
            }
        }
        self.process(inner, &mut messages);
        Poll::Ready(Step::Yield)
    }

    fn read(&self, inner: &Inner, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        let Some(stream) = &mut *stream else { return Poll::Pending };
        let mut machine = self.machine.borrow_mut();
        if let Some(t) = machine.target() {
            let mut rb = ReadBuf::new(t);
            return match Pin::new(stream).poll_read(cx, &mut rb) {
                Poll::Ready(Ok(())) => {
                    let n = rb.filled().len();
                    machine.received(n);
                    Poll::Ready(Ok(n))
                }
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                Poll::Pending => Poll::Pending,
            };
        }
        let mut scratch = inner.scratch.borrow_mut();
        scratch.clear();
        let pending = machine.pending();
        if scratch.capacity() < pending + READ_MIN {
            scratch.reserve(pending + READ_BUF);
        }
        if pending > 0 {
            scratch.extend_from_slice(&machine.take_pending());
        }
        let r = pin!(stream.read_buf(&mut *scratch)).poll(cx);
        let len = scratch.len();
        if len > 0 {
            let b = scratch.split();
            // A few leftover bytes must not keep the whole buffer alive while the peer is silent.
            let keep = r.is_pending() && len <= COPY_PENDING_MAX;
            machine.feed(if keep { bytes::Bytes::copy_from_slice(&b) } else { b.freeze() });
        }
        r
    }

    /// Parses input and hands out events until the input is used up, the handler is full, or `messages` of them are
    /// delivered.
    fn process(self: &Rc<Self>, inner: &Rc<Inner>, messages: &mut usize) {
        loop {
            if self.closed.get() || *messages == 0 || self.paused(inner) {
                break;
            }
            let event = self.machine.borrow_mut().poll_event(clock::now());
            match event {
                // A frame that was granted its bytes parses on, with those that have arrived.
                Ok(None) if self.machine.borrow().asks().is_some() && self.frame_bytes(inner) => {}
                Ok(None) => break,
                Ok(Some(Event::Message(m))) => {
                    add(&inner.counters.messages_in, 1);
                    *messages -= 1;
                    if !self.ep.auto_consume.get() {
                        self.in_flight.set(self.in_flight.get() + m.cost());
                        inner.in_flight.set(inner.in_flight.get() + m.cost());
                    }
                    self.ep.handler.event(self.id, ConnEvent::Message(m));
                }
                Ok(Some(e)) => self.session_event(inner, e),
                Err(e) => {
                    self.fail_protocol(inner, &e);
                    break;
                }
            }
        }
        // With a full socket a turn's end could write nothing, and would wake the task for the next turn.
        if self.frame.get() > 0 && !self.closed.get() {
            self.frame_bytes(inner);
        }
        let writes = !self.closed.get() && !self.blocked.get() && self.machine.borrow().wants_write();
        if writes || self.drained() {
            inner.mark_dirty(self);
        }
    }

    fn session_event(self: &Rc<Self>, inner: &Rc<Inner>, e: Event) {
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
    fn proven(&self, inner: &Inner, signed_in: bool) {
        if let Some(ip) = self.accepted
            && self.unproven.replace(false)
        {
            inner.gate.borrow_mut().over(ip, self.id, signed_in, clock::now().mono);
        }
    }

    /// True if the peer's misbehaviour may be logged. Connections that have not signed in get a few lines a
    /// minute.
    fn may_log(&self, inner: &Inner) -> bool {
        match self.accepted.filter(|_| self.unproven.get()) {
            Some(ip) => inner.gate.borrow_mut().may_log(ip, clock::now().mono),
            None => true,
        }
    }

    /// False if the entity that has signed in has too many connections.
    fn enter(&self) -> bool {
        if self.accepted.is_none() || self.counted.borrow().is_some() {
            return true;
        }
        let all = self.ep.limits.connections_max.min(crate::descriptors::most());
        let name = self.machine.borrow().peer().principal.name.clone();
        let fits = self.ep.entities.enter(&name, all);
        *self.counted.borrow_mut() = Some(name).filter(|_| fits);
        fits
    }

    fn opened(self: &Rc<Self>, inner: &Rc<Inner>) {
        self.proven(inner, true);
        if !self.enter() {
            let name = self.machine.borrow().peer().principal.name.clone();
            if self.accepted.is_some_and(|ip| inner.gate.borrow_mut().may_log(ip, clock::now().mono)) {
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

    /// Gives the connection a socket and a task to drive it.
    fn install(self: &Rc<Self>, inner: &Rc<Inner>, stream: Option<TcpStream>) {
        let now = clock::now().mono;
        self.started.set(now);
        self.last_heard.set(now);
        self.dialling.set(false);
        self.blocked.set(false);
        self.wake();
        *self.waker.borrow_mut() = None;
        *self.stream.borrow_mut() = stream;
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

    // ---- ending ----

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
        self.blocked.set(false);
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
        if let Some(name) = self.counted.take() {
            self.ep.entities.leave(&name);
        }
        if self.accepted.is_some() {
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

fn write_some<const N: usize>(stream: &TcpStream, machine: &Machine) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); N];
    let n = machine.slices(&mut slices);
    stream.try_write_vectored(slices.get(..n).unwrap_or_default())
}

/// Next step of a socket's task after a poll.
#[derive(PartialEq, Eq)]
enum Step {
    /// The socket is not this connection's any more.
    End,
    /// More input may be there: other sockets get their turn first.
    Yield,
}

enum WriteError {
    Io(io::Error),
    Protocol(Error),
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
        Conn { accepted: Some(peer.ip()), unproven: Cell::new(true), ..c }
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
