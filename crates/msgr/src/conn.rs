//! One connection: the state machine above frames.
//!
//! Inputs: [`Connection::feed`], [`Connection::target`] with [`Connection::received`], [`Connection::send`], the
//! answers to [`Event::Request`], [`Connection::disconnected`]. Outputs: [`Connection::poll_event`] until it returns
//! `None`, then [`Connection::prepare_flush`], and [`Connection::slices`] with [`Connection::advance`]. All other
//! methods are getters. After an `Err` the host closes the socket; a lossless session may continue with
//! [`Connection::reconnect`].
//!
//! `handshake` has the frames before the first message: banner, HELLO, authentication, signatures, idents, resumption.
//!
//! Invariants:
//!  1. No message is delivered or sent before both sides have verified the signatures over the handshake.
//!  2. A frame that the current state does not expect ends the connection.
//!  3. After `Err` no further byte of this socket is parsed.
//!
//! Tests: `tests/are_bad_peers_refused.rs` (1, `altering_the_offer_on_the_way_breaks_the_signature`),
//! `tests/do_hostile_bytes_only_close.rs` (1, 2), an assertion (3).

mod handshake;

use crate::ending::Ending;
use crate::error::Error;
use crate::frame::{Frame, Tag, banner, header2, read_header2};
use crate::policy::{FrameLimits, Policies, Policy, WINDOW_BYTES};
use crate::pool::BufPool;
use crate::rx::{Phase, Rx};
use crate::session::{Request, Session, SessionView};
use crate::tx::Tx;
use auth::{AuthError, AuthHost, Client, ConMode, Principal, Random};
use base::{AddrVec, EntityAddr, EntityKind, Now, Utime};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use wire::{DecodeError, Features, Message};

/// The own number and addresses that idents carry; they may change while the process runs.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// OSD id, monitor rank, global id, or -1.
    pub num: i64,
    /// Addresses. An entry without a socket address is filled with the address that the first server sees.
    pub addrs: AddrVec,
}

/// Configuration shared by all connections of one endpoint.
pub struct Config {
    /// Entity type of this process.
    pub kind: EntityKind,
    /// Number and addresses for idents.
    pub identity: RefCell<Identity>,
    /// Session policies by type of peer.
    pub policies: RefCell<Policies>,
    /// Authenticates peers of incoming connections.
    pub auth_host: Option<Rc<dyn AuthHost>>,
    /// Authenticates this process on outgoing connections.
    pub auth_client: Option<Rc<RefCell<Client>>>,
    /// Source of random bytes.
    pub random: Rc<dyn Random>,
    /// Counter of connection attempts of this process.
    pub global_seq: Cell<u64>,
    /// Buffers for large frames.
    pub pool: BufPool,
    /// Limits of messages from peers other than monitors, which may send up to [`FrameLimits::default`].
    pub frames: FrameLimits,
}

impl Config {
    pub(crate) fn next_global_seq(&self, at_least: u64) -> u64 {
        let n = self.global_seq.get().max(at_least).wrapping_add(1);
        self.global_seq.set(n);
        n
    }
}

/// The peer of a connection, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The authenticated identity; [`Principal::nobody`] before that.
    pub principal: Principal,
    /// Entity type in the peer's HELLO: selects the policy, grants no right.
    pub claimed: EntityKind,
    /// Number in the peer's ident, unverified.
    pub num: i64,
    /// Addresses in the peer's ident, unverified.
    pub addrs: AddrVec,
    /// Features that both sides support.
    pub features: Features,
    /// Features that the peer announced, unverified.
    pub announced: Features,
}

impl Peer {
    pub(crate) fn unknown(socket: SocketAddr) -> Self {
        Self {
            principal: Principal::nobody(socket),
            claimed: EntityKind::default(),
            num: 0,
            addrs: AddrVec::default(),
            features: Features::default(),
            announced: Features::default(),
        }
    }
}

/// Events for the host.
#[derive(Debug)]
pub enum Event {
    /// The session is open for the first time; see [`Connection::peer`].
    Open,
    /// The session continues over a new socket.
    Resumed,
    /// A message arrived.
    Message(Message),
    /// A peer requests a lossless session. The host looks for an existing one, calls [`crate::session::decide`] and
    /// answers.
    Request(Request),
    /// The peer failed to authenticate and may try again. Only for the log.
    AuthFailed(AuthError),
    /// The peer lost the session; unacknowledged messages are lost.
    Reset,
    /// The peer is connecting to this process: the host closes the socket and waits for that connection for a while.
    Wait,
    /// The peer answered the keepalive that we sent at this time.
    KeepaliveAck(Utime),
}

#[derive(Debug)]
enum State {
    /// Awaiting the peer's banner.
    Banner,
    /// Awaiting HELLO.
    Hello,
    /// Server, awaiting AUTH_REQUEST or its continuation.
    AuthServer { handshake: auth::server::Handshake, mode: ConMode, method: auth::Method, attempts: u32, frames: u32 },
    /// Client, awaiting the answer to AUTH_REQUEST.
    AuthClient { handshake: auth::client::Handshake },
    /// Awaiting the peer's signature.
    Signature { expect: [u8; 32] },
    /// Server, awaiting CLIENT_IDENT or SESSION_RECONNECT.
    Ident,
    /// Server, awaiting the host's answer to [`Event::Request`].
    Deciding { request: Request },
    /// Client, awaiting SERVER_IDENT.
    ClientIdent,
    /// Client, awaiting SESSION_RECONNECT_OK.
    ClientReconnect,
    /// The session is open; messages flow.
    Open,
    /// The last frame is being written; then the socket is closed.
    Closing,
    /// There is no socket.
    Down,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Banner => "awaiting the banner",
            Self::Hello => "awaiting HELLO",
            Self::AuthServer { .. } => "authenticating the peer",
            Self::AuthClient { .. } => "authenticating to the peer",
            Self::Signature { .. } => "awaiting the signature",
            Self::Ident => "awaiting the ident",
            Self::Deciding { .. } => "deciding about the session",
            Self::ClientIdent => "awaiting SERVER_IDENT",
            Self::ClientReconnect => "awaiting SESSION_RECONNECT_OK",
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Down => "down",
        }
    }
}

/// Entity type and address that this side connects to.
#[derive(Clone, Debug)]
struct Dialled {
    kind: EntityKind,
    addr: EntityAddr,
}

/// A connection and, if lossless, its session.
pub struct Connection {
    cfg: Rc<Config>,
    /// Target of an outgoing connection; `None` for incoming ones.
    dialled: Option<Dialled>,
    socket: SocketAddr,
    state: State,
    policy: Policy,
    rx: Rx,
    tx: Tx,
    peer: Peer,
    mode: ConMode,
    lossy: bool,
    session: Session,
    /// The second event of a frame that causes two.
    extra: Option<Event>,
    ending: Ending,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({} {}, {})", self.peer.claimed.word(), self.socket, self.state.name())
    }
}

impl Connection {
    /// The server end of an accepted socket.
    #[must_use]
    pub fn server(cfg: Rc<Config>, socket: SocketAddr) -> Self {
        let policy = cfg.policies.borrow().default.clone();
        Self::new(cfg, None, socket, policy)
    }

    /// The client end of a socket to `addr`, where an entity of type `kind` is expected.
    #[must_use]
    pub fn client(cfg: Rc<Config>, kind: EntityKind, addr: EntityAddr, socket: SocketAddr) -> Self {
        let policy = cfg.policies.borrow().get(kind).clone();
        let mut me = Self::new(cfg, Some(Dialled { kind, addr }), socket, policy);
        if !me.policy.lossy {
            me.session = Session::with_cookie(me.cfg.random.u64().max(1));
        }
        me
    }

    fn new(cfg: Rc<Config>, dialled: Option<Dialled>, socket: SocketAddr, policy: Policy) -> Self {
        let lossy = policy.lossy;
        let rx = Rx::new(cfg.pool.clone(), cfg.frames);
        let tx = Tx::new(cfg.pool.clone());
        let mut me = Self {
            cfg,
            dialled,
            socket,
            state: State::Banner,
            policy,
            rx,
            tx,
            peer: Peer::unknown(socket),
            mode: ConMode::CRC,
            lossy,
            session: Session::default(),
            extra: None,
            ending: Ending::default(),
        };
        me.tx.raw(&banner());
        me
    }

    /// Restarts the handshake on a new socket to the same address; the session is kept.
    pub fn reconnect(&mut self) {
        self.renew(State::Banner);
        self.tx.raw(&banner());
    }

    /// Handles the loss of the socket; true if the session can be resumed.
    pub fn disconnected(&mut self) -> bool {
        self.renew(State::Down);
        !self.lossy
    }

    /// Drops everything that belongs to a socket: queued bytes, keys and the progress of the handshake.
    fn renew(&mut self, state: State) {
        self.rx = Rx::new(self.cfg.pool.clone(), self.cfg.frames);
        self.tx = Tx::new(self.cfg.pool.clone());
        self.extra = None;
        self.ending = Ending::default();
        self.state = state;
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Connection mode: crc or secure.
    #[must_use]
    pub fn mode(&self) -> ConMode {
        self.mode
    }

    /// True if the session is lossy, so that it ends with its socket.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// True if the session is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// True if the socket should be closed once the output is written.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// True if the peer connected to us.
    #[must_use]
    pub fn is_incoming(&self) -> bool {
        self.dialled.is_none()
    }

    /// Name of the handshake state, for logs.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        self.state.name()
    }

    /// Bytes held for the peer: unwritten, unsent, or (lossless) unacknowledged.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.tx.len() + self.session.bytes()
    }

    /// The session's state for [`crate::session::decide`].
    #[must_use]
    pub fn view(&self) -> SessionView {
        self.session.view(self.lossy, self.dialled.is_some())
    }

    /// Policy in force for this peer.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    // ---- input ----

    /// Adds bytes read from the socket.
    pub fn feed(&mut self, b: Bytes) {
        self.rx.feed(b);
    }

    /// Takes the unparsed input; the host puts it in front of the next read.
    pub fn take_pending(&mut self) -> Bytes {
        self.rx.take_pending()
    }

    /// Length of the unparsed input.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.rx.pending()
    }

    /// Buffer to read into while a large frame is incomplete.
    pub fn target(&mut self) -> Option<&mut [u8]> {
        self.rx.target()
    }

    /// Bytes of an announced frame that waits for [`Connection::grant`]; nothing is to be read before. Only with
    /// [`FrameLimits::ask`].
    #[must_use]
    pub fn asks(&self) -> Option<usize> {
        self.rx.asks()
    }

    /// Allows the memory of the announced frame.
    pub fn grant(&mut self) {
        self.rx.grant();
    }

    /// Bytes that have arrived of a granted, incomplete frame, and those of the whole frame.
    #[must_use]
    pub fn partial(&self) -> Option<(usize, usize)> {
        self.rx.partial()
    }

    /// Reports that `n` bytes were read into [`Connection::target`].
    pub fn received(&mut self, n: usize) {
        self.rx.received(n);
    }

    /// Queues a message. Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        if matches!(self.state, State::Open) && !self.session.has_waiting() && self.tx.len() < WINDOW_BYTES {
            self.transmit(m)
        } else {
            self.session.enqueue(m);
            Ok(())
        }
    }

    /// Queues a keepalive. Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn keepalive(&mut self, now: Utime) -> Result<(), Error> {
        if matches!(self.state, State::Open) { self.tx.control(Tag::Keepalive2, |w| w.put(&now)) } else { Ok(()) }
    }

    // ---- output ----

    /// Prepares the output for a write: adds an acknowledgement if no queued message carries one. Error:
    /// [`Error::NonceExhausted`] on a secure connection.
    pub fn prepare_flush(&mut self) -> Result<(), Error> {
        if self.owes_ack() {
            let seq = self.session.acknowledge();
            self.tx.control(Tag::Ack, |w| w.u64(seq))?;
        }
        Ok(())
    }

    /// True if there is output to write now. A lone acknowledgement waits for a message to carry it, as it costs a
    /// wake-up at both ends, unless the peer holds many messages for it.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.tx.is_empty() || (self.session.owes_much() && self.owes_ack())
    }

    /// True if received messages are unacknowledged. The host flushes acknowledgements at intervals.
    #[must_use]
    pub fn owes_ack(&self) -> bool {
        !self.lossy && self.is_open() && self.session.owes_ack()
    }

    /// Fills in the next slices to write and returns their number.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.tx.slices(out)
    }

    /// Number of slices in the whole output.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.tx.parts()
    }

    /// Reports that the socket took `n` bytes, and encodes waiting messages into the room. Error:
    /// [`Error::NonceExhausted`] on a secure connection.
    pub fn advance(&mut self, n: usize) -> Result<(), Error> {
        self.tx.advance(n);
        self.refill()
    }

    /// Encodes waiting messages while less than [`WINDOW_BYTES`] are unwritten.
    fn refill(&mut self) -> Result<(), Error> {
        if !matches!(self.state, State::Open) {
            return Ok(());
        }
        while self.tx.len() < WINDOW_BYTES {
            if let Some((seq, m)) = self.session.next_again() {
                self.write_message(seq, &m)?;
            } else if let Some(m) = self.session.next_queued() {
                self.transmit(m)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Encoded bytes that are not yet written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.tx.len()
    }

    /// Returns the next event, parsing input as needed. Error: the peer broke the protocol, or one side refuses the
    /// other; the connection must be closed.
    pub fn poll_event(&mut self, now: Now) -> Result<Option<Event>, Error> {
        self.ending.check();
        let next = self.next_event(now);
        self.ending.note(next)
    }

    fn next_event(&mut self, now: Now) -> Result<Option<Event>, Error> {
        if let Some(e) = self.extra.take() {
            return Ok(Some(e));
        }
        loop {
            match self.state {
                State::Banner => {
                    let Some((supported, required)) = self.rx.poll_banner()? else { return Ok(None) };
                    self.on_banner(supported, required)?;
                }
                State::Deciding { .. } | State::Closing | State::Down => return Ok(None),
                State::Open => {
                    let Some(frame) = self.rx.poll_frame()? else { return Ok(None) };
                    if let Some(e) = self.on_open_frame(frame)? {
                        return Ok(Some(e));
                    }
                }
                _ => {
                    let Some(frame) = self.rx.poll_frame()? else { return Ok(None) };
                    if let Some(e) = self.on_handshake_frame(&frame, now)? {
                        return Ok(Some(e));
                    }
                }
            }
        }
    }

    fn on_open_frame(&mut self, f: Frame) -> Result<Option<Event>, Error> {
        match f.tag {
            Tag::Message => self.on_message(f),
            Tag::Keepalive2 => {
                let stamp: Utime = f.read(|r| r.get())?;
                self.tx.control(Tag::Keepalive2Ack, |w| w.put(&stamp))?;
                Ok(None)
            }
            Tag::Keepalive2Ack => Ok(Some(Event::KeepaliveAck(f.read(|r| r.get())?))),
            Tag::Ack => {
                let seq = f.read(|r| r.u64())?;
                self.session.acked(seq);
                Ok(None)
            }
            _ => Err(self.unexpected(&f)),
        }
    }

    fn unexpected(&self, f: &Frame) -> Error {
        Error::UnexpectedFrame { tag: f.tag.name(), state: self.state.name() }
    }

    fn on_message(&mut self, f: Frame) -> Result<Option<Event>, Error> {
        let Frame { segments: [head, front, middle, data], sums, .. } = f;
        let malformed = |error: DecodeError| Error::Malformed { tag: "MESSAGE", error };
        let (header, ack) = read_header2(&head).map_err(malformed)?;
        if ack > 0 && !self.lossy {
            self.session.acked(ack);
        }
        let bytes = if self.lossy { 0 } else { front.len() + middle.len() + data.len() };
        if !self.session.receives(header.seq, bytes) {
            // A message that the peer resent after a reconnect although it had arrived.
            return Ok(None);
        }
        Ok(Some(Event::Message(Message { header, front, middle, data, sums, ..Message::default() })))
    }

    fn transmit(&mut self, m: Message) -> Result<(), Error> {
        let seq = self.session.next_seq();
        self.write_message(seq, &m)?;
        if !self.lossy {
            self.session.keep(seq, m);
        }
        Ok(())
    }

    fn write_message(&mut self, seq: u64, m: &Message) -> Result<(), Error> {
        let ack = if self.lossy { 0 } else { self.session.acknowledge() };
        self.tx.message(&header2(&m.header, seq, ack), m)
    }

    /// Opens the session: resends the numbered messages, then sends the queued ones, as many as the window takes.
    fn open(&mut self, acked: u64) -> Result<Event, Error> {
        self.state = State::Open;
        self.rx.set_phase(Phase::Open);
        self.session.acked(acked);
        self.session.acknowledge();
        if self.peer.principal.kind == EntityKind::MON {
            self.rx.set_limits(FrameLimits { ask: self.cfg.frames.ask, ..FrameLimits::default() });
        }
        self.session.resend();
        self.refill()?;
        Ok(if self.session.opens() { Event::Resumed } else { Event::Open })
    }
}
