//! Joins connections to sockets on a reactor: msgr2, and msgr1 at ports for clients that have no other.
//!
//! A reactor has one [`Net`], and an [`Endpoint`] for each identity on the network. The task of a connection
//! calls the endpoint's [`Handler`] with each event. What the handler sends is queued and leaves at the end of
//! the loop turn, with one vectored write per connection.
//!
//! | module | contents |
//! | --- | --- |
//! | `admin_config` | option commands of every daemon: `config …` and `injectargs`, by admin socket and `tell` |
//! | `admin_socket` | the admin socket: a Unix socket that answers `ceph daemon PATH COMMAND` and its like |
//! | `conn` | one connection: drives its state machine with a socket |
//! | `descriptors` | open files of the process: accepted sockets leave a reserve for peers, state and files |
//! | `entities` | accepted connections of each entity of an endpoint, so that one key does not take all there may be |
//! | `frames` | bytes of incomplete frames, charged to the entity and the reactor before they are allocated |
//! | `gate` | bounds on connections that have not signed in, fair to other addresses |
//! | `listen` | accepting sockets |
//! | `log_filter` | log levels that change while a daemon runs, by Ceph's `debug_*` options |
//! | `messengers` | `messenger dump`: the endpoints of a process and their connections |
//! | `modes` | connection modes by kind of peer: the options `ms_…_mode` |
//! | `perf` | counters in Ceph's JSON: `perf dump`, `counter dump`, their schemas, `perf histogram` |
//! | `sweep` | periodic work for all connections: timeouts, and acknowledgements that no message carried |
//! | `types` | types that a host and the network exchange: identities, events, reasons |
//!
//! Invariants:
//!  1. No internal borrow is held while a handler runs, so it may call every method of this crate.
//!  2. After `Closed` nothing more is reported for that id. `Closed` comes once for every connection that we
//!     opened or that was reported `Open`, unless the host closed it itself.
//!  3. A connection that holds more than its limit of messages, charges and (if accepted and lossy) unsent output is not
//!     read. It is closed only if its peer makes no progress, or its output exceeds four times its limit.
//!
//! Tests: `tests/do_endpoints_talk_over_sockets.rs` (1, 2), `tests/do_slow_and_greedy_peers_wait.rs` (3).

#![forbid(unsafe_code)]

pub mod admin_config;
pub mod admin_socket;
mod conn;
pub mod descriptors;
#[cfg(test)]
mod documented;
pub mod entities;
mod frames;
pub mod gate;
mod listen;
pub mod log_filter;
pub mod messengers;
pub mod modes;
pub mod perf;
mod sweep;
mod types;

pub use conn::{MESSAGES_PER_POLL, STALL_BYTES};
pub use types::{
    CloseReason, ConnEvent, ConnId, EndpointConfig, Handler, Limits, NetStats, OsRandom, PeerInfo, SendError, Target,
};

use crate::conn::{Conn, ReadBuf};
use crate::descriptors::Accepted;
use base::{AddrVec, EntityAddr};
use msgr::{BufPool, Config, Identity, Protocol};
use reactor::{Turn, TurnHook, clock};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use wire::Message;

/// Default bound on delivered and unconsumed bytes of all connections of a reactor.
pub const IN_FLIGHT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Network of one reactor. A clone is another handle to the same.
#[derive(Clone)]
pub struct Net {
    inner: Rc<Inner>,
}

#[derive(Default)]
pub(crate) struct Counters {
    messages_in: Cell<u64>,
    messages_out: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    reads: Cell<u64>,
    writes: Cell<u64>,
    protocol_errors: Cell<u64>,
    auth_failures: Cell<u64>,
}

pub(crate) fn add(c: &Cell<u64>, n: usize) {
    c.set(c.get() + n as u64);
}

pub(crate) struct Inner {
    conns: RefCell<Slab<Rc<Conn>>>,
    /// Generation of the next connection; it distinguishes successive connections in one slot.
    generation: Cell<u32>,
    read_buf: RefCell<ReadBuf>,
    dirty: RefCell<Vec<Rc<Conn>>>,
    hook: RefCell<Option<TurnHook>>,
    sweeping: Cell<bool>,
    counters: Counters,
    pool: BufPool,
    /// Bytes held for all connections: delivered messages, unsent output of accepted lossy connections.
    in_flight: Cell<usize>,
    /// Incomplete frames of accepted lossy connections, within the same bound, and of all others, which never wait for
    /// clients, within a bound of their own.
    frames: [RefCell<frames::Frames>; 2],
    in_flight_max: Cell<usize>,
    /// Connections that are not read until others give room.
    waiting: RefCell<Vec<Rc<Conn>>>,
    /// Accepted connections that have not signed in.
    gate: RefCell<gate::Gate>,
    /// The endpoints that were made and may have ended.
    endpoints: RefCell<Vec<Weak<EndpointInner>>>,
}

/// The generation after `n`. Owners name other kinds of sessions by numbers with the highest bit set, so a
/// connection never gets it.
fn next_generation(n: u32) -> u32 {
    (n.wrapping_add(1) & (u32::MAX >> 1)).max(1)
}

impl Inner {
    fn get(&self, id: ConnId) -> Option<Rc<Conn>> {
        let slot = (id.0 & 0xffff_ffff) as usize;
        self.conns.borrow().get(slot).filter(|c| c.id() == id).cloned()
    }

    /// Allocates an id and stores the connection that `f` makes for it.
    fn insert(self: &Rc<Self>, f: impl FnOnce(ConnId) -> Conn) -> Rc<Conn> {
        let generation = next_generation(self.generation.get());
        self.generation.set(generation);
        let mut conns = self.conns.borrow_mut();
        let entry = conns.vacant_entry();
        let id = ConnId(u64::from(generation) << 32 | entry.key() as u64);
        let c = Rc::new(f(id));
        entry.insert(c.clone());
        drop(conns);
        sweep::start(self);
        c
    }

    fn remove(&self, id: ConnId) {
        let slot = (id.0 & 0xffff_ffff) as usize;
        let mut conns = self.conns.borrow_mut();
        if conns.get(slot).is_some_and(|c| c.id() == id) {
            conns.remove(slot);
        }
    }

    /// Bytes that incomplete frames of clients (`true`) or of peers may have.
    fn room(&self, clients: bool) -> usize {
        let max = self.in_flight_max.get();
        if clients { max.saturating_sub(self.in_flight.get()) } else { max.max(IN_FLIGHT_BYTES_MAX) }
    }

    /// Continues connections that waited for bytes of others.
    fn resume(&self) {
        for clients in [true, false] {
            let frames = &self.frames[usize::from(!clients)];
            if !frames.borrow().is_short() {
                continue;
            }
            while let Some((id, bytes)) = { frames.borrow_mut().next(self.room(clients)) } {
                match self.get(id) {
                    Some(c) => c.granted(bytes),
                    None => base::unreached("a connection leaves the list when it ends"),
                }
            }
        }
        // With some distance, so that not every byte wakes them.
        if self.waiting.borrow().is_empty() || self.in_flight.get() > self.in_flight_max.get() / 8 * 7 {
            return;
        }
        for c in self.waiting.take() {
            c.resume(self);
        }
    }

    /// Schedules the connection's output for the end of this turn.
    fn mark_dirty(&self, c: &Rc<Conn>) {
        if !c.note_dirty(true) {
            self.dirty.borrow_mut().push(c.clone());
            if let Some(h) = &*self.hook.borrow() {
                h.schedule();
            }
        }
    }

    fn close_all(self: &Rc<Self>) {
        let all: Vec<Rc<Conn>> = self.conns.borrow().iter().map(|(_, c)| c.clone()).collect();
        for c in all {
            c.flush(self);
            c.end(self, None);
        }
    }

    fn flush(self: &Rc<Self>) {
        let mut batch = std::mem::take(&mut *self.dirty.borrow_mut());
        for c in batch.drain(..) {
            c.note_dirty(false);
            c.flush(self);
            c.after_flush();
        }
        // Keeps the allocation, unless a handler queued output meanwhile.
        let mut d = self.dirty.borrow_mut();
        if d.is_empty() {
            *d = batch;
        }
    }
}

/// One identity on the network, under which a host listens and connects. A clone is another handle to the same.
#[derive(Clone)]
pub struct Endpoint {
    net: Weak<Inner>,
    inner: Rc<EndpointInner>,
}

pub(crate) struct EndpointInner {
    config: Rc<Config>,
    handler: Rc<dyn Handler>,
    limits: Limits,
    /// Present value of [`Limits::in_flight_bytes_max`].
    in_flight_max: Cell<usize>,
    auto_consume: Cell<bool>,
    /// Lossless sessions by the peer's address.
    sessions: RefCell<HashMap<EntityAddr, ConnId>>,
    incoming: Cell<usize>,
    entities: entities::Entities,
    listeners: RefCell<Vec<tokio::task::AbortHandle>>,
}

impl Net {
    /// Creates the network of this reactor. Needs a surrounding `LocalSet`.
    #[must_use]
    pub fn new() -> Self {
        let inner = Rc::new(Inner {
            conns: RefCell::default(),
            generation: Cell::new(0),
            read_buf: RefCell::default(),
            dirty: RefCell::default(),
            hook: RefCell::default(),
            sweeping: Cell::new(false),
            counters: Counters::default(),
            pool: BufPool::default(),
            in_flight: Cell::new(0),
            frames: Default::default(),
            in_flight_max: Cell::new(IN_FLIGHT_BYTES_MAX),
            waiting: RefCell::default(),
            gate: RefCell::default(),
            endpoints: RefCell::default(),
        });
        let weak = Rc::downgrade(&inner);
        let hook = Turn::current().on_end(move || {
            if let Some(i) = weak.upgrade() {
                i.flush();
            }
        });
        *inner.hook.borrow_mut() = Some(hook);
        // Handlers hold the network that holds them: the end of the reactor has to cut that cycle.
        let weak = Rc::downgrade(&inner);
        reactor::runtime::on_exit(move || {
            if let Some(i) = weak.upgrade() {
                i.close_all();
            }
        });
        Self { inner }
    }

    /// Adds an identity whose events go to `handler`.
    #[must_use]
    pub fn endpoint(&self, config: EndpointConfig, handler: Rc<dyn Handler>) -> Endpoint {
        let random: Rc<dyn auth::Random> = Rc::new(OsRandom);
        let limits = config.limits;
        let config = Rc::new(Config {
            kind: config.kind,
            identity: RefCell::new(Identity { num: config.num, addrs: config.addrs }),
            policies: RefCell::new(config.policies),
            auth_host: config.auth_host,
            auth_client: config.auth_client,
            random,
            // Starts from the wall clock, so that a restarted process is not taken for an old attempt of its
            // predecessor.
            global_seq: Cell::new(u64::from(clock::now().wall.sec) << 20),
            pool: self.inner.pool.clone(),
            frames: msgr::FrameLimits { ask: true, ..limits.frames },
        });
        let inner = Rc::new(EndpointInner {
            config,
            handler,
            in_flight_max: Cell::new(limits.in_flight_bytes_max),
            limits,
            auto_consume: Cell::new(true),
            sessions: RefCell::default(),
            incoming: Cell::new(0),
            entities: entities::Entities::default(),
            listeners: RefCell::default(),
        });
        let mut all = self.inner.endpoints.borrow_mut();
        all.retain(|e| e.strong_count() > 0);
        all.push(Rc::downgrade(&inner));
        Endpoint { net: Rc::downgrade(&self.inner), inner }
    }

    /// The endpoints that are in use.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let all = self.inner.endpoints.borrow();
        let endpoint = |inner| Endpoint { net: Rc::downgrade(&self.inner), inner };
        all.iter().filter_map(Weak::upgrade).map(endpoint).collect()
    }

    /// Queues a message; it leaves at the end of this turn. Sending on a connection still in handshake queues it.
    /// Error: [`SendError::Gone`] if the connection has ended, [`SendError::Full`] if the peer does not read; the
    /// connection is then closed.
    pub fn send(&self, conn: ConnId, m: Message) -> Result<(), SendError> {
        match self.inner.get(conn) {
            Some(c) => c.send(&self.inner, m),
            None => Err(SendError::Gone),
        }
    }

    /// Closes a connection without reporting `Closed`. Queued output is written if the socket takes it at once.
    pub fn close(&self, conn: ConnId) {
        if let Some(c) = self.inner.get(conn) {
            c.flush(&self.inner);
            c.end(&self.inner, None);
        }
    }

    /// Returns `bytes` (the [`Message::cost`] of messages delivered by `conn`), so that the socket may be read
    /// again. Only for endpoints with [`Endpoint::set_auto_consume`] off.
    pub fn consumed(&self, conn: ConnId, bytes: usize) {
        if let Some(c) = self.inner.get(conn) {
            c.consumed(&self.inner, bytes);
        }
    }

    /// Counts `bytes` more for a connection than its delivered messages have, such as those of the answer that a request
    /// asks for. Returned with [`Net::consumed`].
    pub fn charge(&self, conn: ConnId, bytes: usize) {
        if let Some(c) = self.inner.get(conn) {
            c.charge(&self.inner, bytes);
        }
    }

    /// Stops delivering messages of a connection, and reading its socket, until [`Net::release`]. The handler may call
    /// this while it handles a message: the next one waits. A held connection answers no keepalive, takes no
    /// acknowledgement and does not notice that its peer has gone; so this is for lossy connections, and for a time
    /// that ends by itself (monitors' clients look for another monitor after 30 s). No effect on an unknown id.
    pub fn hold(&self, conn: ConnId) {
        if let Some(c) = self.inner.get(conn) {
            c.hold(true);
        }
    }

    /// Ends [`Net::hold`]. Messages that have arrived meanwhile are delivered in a later turn, never within this call.
    pub fn release(&self, conn: ConnId) {
        if let Some(c) = self.inner.get(conn) {
            c.hold(false);
        }
    }

    /// Asks for one call of [`Handler::drained`] when [`Net::output_bytes`] of the connection is at most `bytes`. It comes at
    /// the end of a turn, also if that is the case already; never within this call. A second call replaces the
    /// bound of the first. Error: [`SendError::Gone`] if the connection has ended.
    pub fn report_drained(&self, conn: ConnId, bytes: usize) -> Result<(), SendError> {
        let c = self.inner.get(conn).ok_or(SendError::Gone)?;
        c.tell_drained(bytes);
        self.inner.mark_dirty(&c);
        Ok(())
    }

    /// Sets the bound on bytes that all connections hold: messages of handlers, unsent output of accepted lossy
    /// connections, incomplete frames. Above it, a connection that holds some is not read. Each connection may still
    /// have one message delivered, so none starves.
    pub fn set_in_flight_max(&self, bytes: usize) {
        self.inner.in_flight_max.set(bytes);
    }

    /// Bytes that all connections hold, without those of incomplete frames.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner.in_flight.get()
    }

    /// Bytes of memory granted to incomplete frames.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.inner.frames.iter().map(|f| f.borrow().granted()).sum()
    }

    /// The peer of a connection, once it is open.
    #[must_use]
    pub fn peer(&self, conn: ConnId) -> Option<Rc<PeerInfo>> {
        self.inner.get(conn)?.peer()
    }

    /// Bytes queued for the peer: not written, or (lossless) not acknowledged.
    #[must_use]
    pub fn output_bytes(&self, conn: ConnId) -> usize {
        self.inner.get(conn).map_or(0, |c| c.machine().output_bytes())
    }

    /// Ids of all connections, open or in handshake.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnId> {
        self.inner.conns.borrow().iter().map(|(_, c)| c.id()).collect()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> NetStats {
        let c = &self.inner.counters;
        NetStats {
            connections: self.inner.conns.borrow().len() as u64,
            messages_in: c.messages_in.get(),
            messages_out: c.messages_out.get(),
            bytes_in: c.bytes_in.get(),
            bytes_out: c.bytes_out.get(),
            reads: c.reads.get(),
            writes: c.writes.get(),
            protocol_errors: c.protocol_errors.get(),
            auth_failures: c.auth_failures.get(),
            not_signed_in: self.inner.gate.borrow().open() as u64,
            at: clock::now().wall,
        }
    }
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the network was shut down")
}

impl Endpoint {
    /// Listens on `addr` and returns the address with the chosen port. This reactor serves the connections. Error: the
    /// system refuses the address or the socket.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<SocketAddr> {
        self.listen_on(std::net::TcpListener::bind(addr)?, Protocol::V2)
    }

    /// Serves a socket that listens already, and returns its address. This reactor serves the connections. Those of
    /// [`Protocol::V1`] find the address that our addresses have for it, which has to be set before. Error: the system
    /// refuses the socket.
    pub fn listen_on(&self, listener: std::net::TcpListener, protocol: Protocol) -> io::Result<SocketAddr> {
        let me = self.clone();
        self.listen_on_with(listener, protocol, move |stream, _| {
            // Limits on connections have their own summary line, once a minute.
            match me.adopt(stream) {
                Err(error) if error.kind() != io::ErrorKind::QuotaExceeded => {
                    tracing::warn!(%error, "cannot serve an accepted connection");
                }
                _ => {}
            }
        })
    }

    /// Listens and hands every accepted socket to `f`, which passes it to [`Endpoint::adopt`] on some reactor. Error:
    /// the system refuses the address or the socket.
    pub fn listen_with(
        &self,
        addr: SocketAddr,
        f: impl FnMut(Accepted, SocketAddr) + 'static,
    ) -> io::Result<SocketAddr> {
        self.listen_on_with(std::net::TcpListener::bind(addr)?, Protocol::V2, f)
    }

    /// The same with a socket that listens already.
    pub fn listen_on_with(
        &self,
        listener: std::net::TcpListener,
        protocol: Protocol,
        f: impl FnMut(Accepted, SocketAddr) + 'static,
    ) -> io::Result<SocketAddr> {
        let (addr, task) = listen::start(listener, protocol, f)?;
        self.inner.listeners.borrow_mut().push(task);
        Ok(addr)
    }

    /// Serves a socket that another reactor accepted. Error: `QuotaExceeded` above a limit on connections,
    /// `NotConnected` once the network is shut down, or an error of the socket.
    pub fn adopt(&self, accepted: Accepted) -> io::Result<ConnId> {
        let net = self.net.upgrade().ok_or_else(gone)?;
        conn::accept(&net, &self.inner, accepted)
    }

    /// Opens a connection. `Open` or `Closed` follows, never within this call. If a lossless session to the
    /// same address exists, its id is returned instead, and no further `Open` follows if it is open already.
    #[must_use]
    pub fn connect(&self, target: Target) -> ConnId {
        match self.net.upgrade() {
            Some(net) => conn::connect(&net, &self.inner, target),
            None => ConnId(0),
        }
    }

    /// Kind of entity that this endpoint is on the network.
    #[must_use]
    pub fn kind(&self) -> base::EntityKind {
        self.inner.config.kind
    }

    /// Our addresses, as far as known.
    #[must_use]
    pub fn addrs(&self) -> AddrVec {
        self.inner.config.identity.borrow().addrs.clone()
    }

    /// Changes the addresses announced in later idents (after `listen` chose ports).
    pub fn set_addrs(&self, addrs: AddrVec) {
        self.inner.config.identity.borrow_mut().addrs = addrs;
    }

    /// Changes the number announced in later idents (a global id after signing in).
    pub fn set_num(&self, num: i64) {
        self.inner.config.identity.borrow_mut().num = num;
    }

    /// Changes [`Limits::in_flight_bytes_max`] for all connections of this endpoint. A host lowers it while something
    /// else that their messages need is short.
    pub fn set_in_flight_max(&self, bytes: usize) {
        let before = self.inner.in_flight_max.replace(bytes);
        let Some(net) = self.net.upgrade().filter(|_| before < bytes) else { return };
        let conns = net.conns.borrow();
        conns.iter().filter(|(_, c)| c.is_of(&self.inner)).for_each(|(_, c)| c.resume_own(&net));
    }

    /// Sets the modes of connections that are accepted or opened later.
    pub fn set_modes(&self, modes: &modes::Modes) {
        let config = &self.inner.config;
        let changed = modes.apply(config.kind, config.policies.borrow().clone());
        *config.policies.borrow_mut() = changed;
    }

    /// Sets the features that are required of clients that connect later, beyond those of every peer.
    pub fn require_of_clients(&self, extra: wire::Features) {
        let policies = &self.inner.config.policies;
        let changed = policies.borrow().clone().require_of_clients(extra);
        *policies.borrow_mut() = changed;
    }

    /// With `true` (the default), messages count as consumed when the handler returns, for handlers that queue
    /// nothing. With `false`, the host calls [`Net::consumed`].
    pub fn set_auto_consume(&self, auto: bool) {
        self.inner.auto_consume.set(auto);
    }

    /// Stops accepting. Existing connections go on.
    pub fn stop_listening(&self) {
        for l in self.inner.listeners.borrow_mut().drain(..) {
            l.abort();
        }
    }

    /// Stops listening and closes all connections of this endpoint without reporting them.
    pub fn shutdown(&self) {
        self.stop_listening();
        let Some(net) = self.net.upgrade() else { return };
        let mine: Vec<Rc<Conn>> =
            net.conns.borrow().iter().map(|(_, c)| c.clone()).filter(|c| c.is_of(&self.inner)).collect();
        for c in mine {
            c.flush(&net);
            c.end(&net, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::next_generation;

    #[test]
    fn connection_ids_never_have_the_highest_bit() {
        assert_eq!(next_generation(0), 1);
        assert_eq!(next_generation(u32::MAX >> 1), 1, "and zero is nobody's");
        assert_eq!(next_generation((u32::MAX >> 1) - 1), u32::MAX >> 1);
    }
}
