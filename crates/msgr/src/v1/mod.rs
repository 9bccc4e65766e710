//! The server end of msgr1, Ceph's messenger before msgr2, for lossy clients: kernels and old libraries that have no
//! other.
//!
//! Both ends greet with banner and address. The client then asks to connect, at services with an authorizer, which is
//! challenged once. At a monitor the connection opens without one, and the client signs in by `MAuth` messages; the host
//! hears of the connection only then. So sessions above the messenger do not know the protocol of their connection.
//! Messages are signed with the ticket's session key, but those of monitors, where the protocol has no key yet.
//!
//! | module | contents |
//! | --- | --- |
//! | `format` | bytes of msgr1: greetings, requests to connect, message headers and footers, signatures |
//! | `rx` | input of a msgr1 connection: turns bytes into greetings, requests and verified messages |
//!
//! Invariants:
//!  1. Before sign-in nothing but requests to connect or `MAuth` messages is accepted, within the bounds of msgr2.
//!  2. With cephx, a service accepts no message without the signature of the session's key, and no message twice.
//!  3. After `Err` no further byte of this socket is parsed.
//!
//! Tests: `tests/does_msgr1_serve_clients_and_refuse_others.rs` (1, 2), an assertion (3).

pub mod format;
mod rx;

use crate::conn::{Config, Event, Peer};
use crate::ending::Ending;
use crate::error::Error;
use crate::policy::{AUTH_ATTEMPTS_MAX, AUTH_FRAMES_MAX, FRAME_BYTES_MAX_PREAUTH, FrameLimits, Policy, WINDOW_BYTES};
use crate::tx::Tx;
use auth::server::{Granted, Handshake, Step};
use auth::{AuthError, ConMode, CryptoKey, Method, Principal};
use base::crc::crc32c;
use base::{AddrKind, AddrVec, EntityAddr, EntityKind, Now, Utime};
use bytes::Bytes;
use format::{
    BANNER, CLIENT_HELLO_LEN, COMPLETE, CONNECT_LEN, Connect, Footer, Header, RECONNECT_SEQ, Reply, SIGNED, Tag,
};
use rx::{Item, Received, Rx};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use wire::msg::{MAuth, MAuthReply};
use wire::{Features, Message, Reader, WireMessage, Writer};

/// Features without which a client is refused: those of every client since Ceph 13 and Linux 4.19.
pub const REQUIRED: u64 = format::MSG_AUTH | format::CEPHX_V2;
/// Longest authorizer in bytes.
pub const AUTHORIZER_BYTES_MAX: usize = FRAME_BYTES_MAX_PREAUTH;
/// Limits of messages before sign-in.
const SIGN_IN: FrameLimits = FrameLimits { front: FRAME_BYTES_MAX_PREAUTH, middle: 0, data: 0, ask: false };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Awaiting the client's greeting.
    Banner,
    /// Awaiting a request to connect.
    Connect,
    /// Awaiting the number of the last message that the client has.
    Seq,
    /// Monitor, awaiting `MAuth` messages.
    SignIn,
    Open,
    /// The last bytes are being written; then the socket is closed.
    Closing,
    Down,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Banner => "awaiting the msgr1 banner",
            Self::Connect => "awaiting the msgr1 request to connect",
            Self::Seq => "awaiting the msgr1 sequence number",
            Self::SignIn => "awaiting MAuth",
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Down => "down",
        }
    }
}

/// The server end of one accepted socket. Its methods are those of [`crate::Connection`].
pub struct Connection {
    cfg: Rc<Config>,
    socket: SocketAddr,
    state: State,
    policy: Policy,
    rx: Rx,
    tx: Tx,
    peer: Peer,
    handshake: Handshake,
    /// The method of the sign-in under way, once it has begun.
    method: Option<Method>,
    /// Requests or messages before sign-in, and failures among them.
    asked: u32,
    refused: u32,
    /// Key that signs messages.
    key: Option<CryptoKey>,
    /// [`Event::Open`] was reported.
    reported: bool,
    in_seq: u64,
    out_seq: u64,
    queue: VecDeque<Message>,
    queued_bytes: usize,
    /// The message that opened the session for the host.
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
        let ours = cfg.identity.borrow().addrs.legacy().copied().unwrap_or_default();
        let theirs = EntityAddr { kind: AddrKind::LEGACY, nonce: 0, sock: Some(socket) };
        let mut tx = Tx::default();
        tx.raw(&format::server_hello(&ours, &theirs));
        Self {
            rx: Rx::new(cfg.pool.clone()),
            cfg,
            socket,
            state: State::Banner,
            policy,
            tx,
            peer: Peer::unknown(socket),
            handshake: Handshake::new(),
            method: None,
            asked: 0,
            refused: 0,
            key: None,
            reported: false,
            in_seq: 0,
            out_seq: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            extra: None,
            ending: Ending::default(),
        }
    }

    /// Handles the loss of the socket: the session ends with it.
    pub fn disconnected(&mut self) {
        self.state = State::Down;
        self.queue.clear();
        self.queued_bytes = 0;
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Policy in force for this peer.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// True if the session is open, and the host was told.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open && self.reported
    }

    /// True if the socket should be closed once the output is written.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Name of the state, for logs.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        self.state.name()
    }

    /// Bytes held for the peer: unwritten or unsent.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.tx.len() + self.queued_bytes
    }

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
        self.rx.pending().len()
    }

    /// Buffer to read into while a large message is incomplete.
    pub fn target(&mut self) -> Option<&mut [u8]> {
        self.rx.target()
    }

    /// Bytes of an announced message that waits for [`Connection::grant`].
    #[must_use]
    pub fn asks(&self) -> Option<usize> {
        self.rx.asks()
    }

    /// Allows the memory of the announced message.
    pub fn grant(&mut self) {
        self.rx.grant();
    }

    /// Bytes that have arrived of a granted, incomplete message, and those of the whole message.
    #[must_use]
    pub fn partial(&self) -> Option<(usize, usize)> {
        self.rx.partial()
    }

    /// Reports that `n` bytes were read into [`Connection::target`].
    pub fn received(&mut self, n: usize) {
        self.rx.received(n);
    }

    /// Queues a message. Error: as [`Connection::advance`].
    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        if self.state == State::Open && self.queue.is_empty() && self.tx.len() < WINDOW_BYTES {
            return self.write_message(&m);
        }
        self.queued_bytes += m.cost();
        self.queue.push_back(m);
        Ok(())
    }

    /// Queues a keepalive.
    pub fn keepalive(&mut self, now: Utime) {
        if self.state == State::Open {
            self.stamp(Tag::Keepalive2, now);
        }
    }

    fn stamp(&mut self, tag: Tag, time: Utime) {
        let mut w = Writer::default();
        w.u8(tag as u8);
        w.put(&time);
        self.tx.raw(w.as_slice());
    }

    /// True if there is output to write now.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.tx.is_empty()
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

    /// Encoded bytes that are not yet written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.tx.len()
    }

    /// Reports that the socket took `n` bytes, and encodes waiting messages into the room. Error: the key cannot sign.
    pub fn advance(&mut self, n: usize) -> Result<(), Error> {
        self.tx.advance(n);
        self.refill()
    }

    fn refill(&mut self) -> Result<(), Error> {
        while self.state == State::Open && self.tx.len() < WINDOW_BYTES {
            let Some(m) = self.queue.pop_front() else { break };
            self.queued_bytes = self.queued_bytes.saturating_sub(m.cost());
            self.write_message(&m)?;
        }
        Ok(())
    }

    fn write_message(&mut self, m: &Message) -> Result<(), Error> {
        self.out_seq += 1;
        let mut header = Header {
            common: wire::MsgHeader { seq: self.out_seq, ..m.header },
            len: [m.front.len(), m.middle.len(), m.data_len()],
            src_kind: self.cfg.kind,
            src_num: self.cfg.identity.borrow().num,
            crc: 0,
        };
        let mut head = [0; 1 + format::HEADER_LEN];
        head[0] = Tag::Msg as u8;
        head[1..].copy_from_slice(&header.seal());
        let crc = [crc32c(0, &m.front), crc32c(0, &m.middle), crc32c(crc32c(0, &m.lead), &m.data)];
        let mut footer = Footer { crc, signature: 0, flags: COMPLETE };
        if let Some(key) = &self.key {
            footer.signature = key.sign_message(&footer.signed(&header))?;
            footer.flags |= SIGNED;
        }
        self.tx.plain(&head, m, &footer.bytes());
        Ok(())
    }

    /// Returns the next event, parsing input as needed. Error: the peer broke the protocol, or is refused; the
    /// connection must be closed.
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
            let event = match self.state {
                State::Banner => {
                    let had = self.rx.pending().len().min(BANNER.len());
                    if self.rx.pending().get(..had) != BANNER.get(..had) {
                        return Err(Error::NotMsgr1);
                    }
                    let Some(hello) = self.rx.exact(CLIENT_HELLO_LEN) else { return Ok(None) };
                    self.on_hello(&hello)?;
                    None
                }
                State::Connect => {
                    let Some((request, authorizer)) = self.poll_connect()? else { return Ok(None) };
                    self.on_connect(&request, &authorizer, now)?
                }
                State::Seq => {
                    if self.rx.exact(8).is_none() {
                        return Ok(None);
                    }
                    self.ready()?
                }
                State::SignIn => match self.rx.poll_item(SIGN_IN)? {
                    Some(item) => self.on_sign_in(item, now)?,
                    None => return Ok(None),
                },
                State::Open => match self.rx.poll_item(self.cfg.frames)? {
                    Some(item) => self.on_item(item)?,
                    None => return Ok(None),
                },
                State::Closing | State::Down => return Ok(None),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Learns the client's address. A client that does not know its IP says none, so the socket tells it; the port of a
    /// client is 0.
    fn on_hello(&mut self, hello: &[u8]) -> Result<(), Error> {
        let mut r = Reader::new(hello.get(BANNER.len()..).unwrap_or_default());
        let mut addr: EntityAddr = r.get().map_err(|error| Error::Malformed { tag: "msgr1 greeting", error })?;
        addr.kind = AddrKind::LEGACY;
        match &mut addr.sock {
            Some(s) if s.ip().is_unspecified() => s.set_ip(self.socket.ip().to_canonical()),
            Some(_) => {}
            none => *none = Some(SocketAddr::new(self.socket.ip().to_canonical(), 0)),
        }
        self.peer.addrs = AddrVec(vec![addr]);
        self.state = State::Connect;
        Ok(())
    }

    /// A request to connect with its authorizer, once both have arrived.
    fn poll_connect(&mut self) -> Result<Option<(Connect, Bytes)>, Error> {
        let Some(head) = self.rx.pending().get(..CONNECT_LEN) else { return Ok(None) };
        let malformed = |error| Error::Malformed { tag: "msgr1 request to connect", error };
        let request = Connect::read(head).map_err(malformed)?;
        let len = request.authorizer_len as usize;
        if len > AUTHORIZER_BYTES_MAX {
            return Err(Error::TooLarge { tag: "msgr1 authorizer", segment: 0, len, max: AUTHORIZER_BYTES_MAX });
        }
        Ok(self.rx.exact(CONNECT_LEN + len).map(|all| (request, all.slice(CONNECT_LEN..))))
    }

    fn count_request(&mut self) -> Result<(), Error> {
        self.asked += 1;
        if self.asked > AUTH_FRAMES_MAX { Err(Error::TooManyAuthAttempts) } else { Ok(()) }
    }

    fn on_connect(&mut self, c: &Connect, authorizer: &[u8], now: Now) -> Result<Option<Event>, Error> {
        self.count_request()?;
        let Some(host) = self.cfg.auth_host.clone() else { return Err(Error::NotAccepting) };
        let claimed = EntityKind(u8::try_from(c.kind).unwrap_or_default());
        self.policy = self.cfg.policies.borrow().get(claimed).clone();
        if !self.policy.lossy {
            return Err(Error::LosslessOverMsgr1(claimed));
        }
        if !self.policy.modes.contains(&ConMode::CRC) {
            return Err(Error::Msgr1NotEncrypted(self.policy.modes_option));
        }
        if c.protocol != format::protocol_of(self.cfg.kind) {
            self.answer(c, Tag::BadProtocol, &[]);
            self.state = State::Closing;
            return Ok(None);
        }
        if self.required() & !c.features.0 != 0 {
            self.answer(c, Tag::Features, &[]);
            self.state = State::Closing;
            return Ok(None);
        }
        self.peer.claimed = claimed;
        self.peer.announced = c.features;
        self.peer.features = self.policy.supported & c.features;
        if host.service() == EntityKind::MON {
            return self.accept(c, &[]);
        }
        let random = self.cfg.random.clone();
        let method = Method(c.method);
        let step = match self.method {
            Some(begun) if begun == method => self.handshake.more(&*host, &*random, now.wall, ConMode::CRC, authorizer),
            _ => self.handshake.request(&*host, &*random, now.wall, method, authorizer),
        };
        match step.and_then(|s| self.prove(s, method)) {
            Ok(Step::More(challenge)) => {
                self.method = Some(method);
                self.answer(c, Tag::ChallengeAuthorizer, &challenge);
                Ok(None)
            }
            Ok(Step::Done(g)) => {
                self.key = g.session_key;
                self.accept(c, &g.reply)
            }
            Err(e) => {
                self.method = None;
                self.count_failure()?;
                self.answer(c, Tag::BadAuthorizer, &[]);
                Ok(Some(Event::AuthFailed(e)))
            }
        }
    }

    fn count_failure(&mut self) -> Result<(), Error> {
        self.refused += 1;
        if self.refused >= AUTH_ATTEMPTS_MAX { Err(Error::TooManyAuthAttempts) } else { Ok(()) }
    }

    /// Takes the identity that a completed handshake has proved.
    fn prove(&mut self, step: Step, method: Method) -> Result<Step, AuthError> {
        if let Step::Done(g) = &step {
            if g.session_key.as_ref().is_some_and(|k| k.kind() != auth::KeyKind::Aes) {
                return Err(AuthError::KeyNeedsMsgr2);
            }
            self.peer.principal = Principal::incoming(self.peer.claimed, g, method, self.socket)?;
        }
        Ok(step)
    }

    /// Features without which the client is refused. The newer address encoding is no matter of this protocol.
    fn required(&self) -> u64 {
        REQUIRED | self.policy.required.0 & !crate::policy::REQUIRED_DEFAULT.0
    }

    fn answer(&mut self, c: &Connect, tag: Tag, authorizer: &[u8]) {
        let accepted = matches!(tag, Tag::Seq | Tag::Ready);
        let ours = self.policy.supported.0;
        let reply = Reply {
            tag,
            features: Features(if accepted { ours } else { ours & c.features.0 | self.required() }),
            global_seq: if accepted { self.cfg.next_global_seq(0) as u32 } else { 0 },
            connect_seq: if accepted { c.connect_seq.wrapping_add(1) } else { 0 },
            protocol: format::protocol_of(self.cfg.kind),
            authorizer_len: authorizer.len() as u32,
        };
        self.tx.raw(&reply.bytes());
        self.tx.raw(authorizer);
    }

    fn accept(&mut self, c: &Connect, authorizer: &[u8]) -> Result<Option<Event>, Error> {
        if c.features.has(RECONNECT_SEQ) {
            self.answer(c, Tag::Seq, authorizer);
            // The number of the last message that we have: a lossy session begins without any.
            self.tx.raw(&0u64.to_le_bytes());
            self.state = State::Seq;
            return Ok(None);
        }
        self.answer(c, Tag::Ready, authorizer);
        self.ready()
    }

    /// The connection is accepted. Monitors' clients sign in now.
    fn ready(&mut self) -> Result<Option<Event>, Error> {
        if self.cfg.auth_host.as_ref().is_some_and(|h| h.service() == EntityKind::MON) {
            (self.state, self.method) = (State::SignIn, None);
            return Ok(None);
        }
        self.state = State::Open;
        // The number of a daemon, which names it in requests, is in its messages only.
        if self.peer.claimed == EntityKind::CLIENT { self.report().map(Some) } else { Ok(None) }
    }

    fn report(&mut self) -> Result<Event, Error> {
        self.reported = true;
        self.refill()?;
        Ok(Event::Open)
    }

    fn on_sign_in(&mut self, item: Item, now: Now) -> Result<Option<Event>, Error> {
        self.count_request()?;
        let Item::Message(m) = item else { return self.on_item(item) };
        if m.message.header.kind != MAuth::KIND {
            return Err(Error::UnexpectedFrame { tag: "message", state: self.state.name() });
        }
        self.in_seq = m.message.header.seq;
        self.peer.num = m.src_num;
        let front = Reader::shared(&m.message.front);
        let message = MAuth::decode_front(&mut front.clone(), m.message.header.version, &Bytes::new())
            .map_err(|error| Error::Malformed { tag: "MAuth", error })?;
        let Some(host) = self.cfg.auth_host.clone() else { return Err(Error::NotAccepting) };
        let (random, payload) = (self.cfg.random.clone(), &message.auth_payload);
        let step = match self.method.filter(|m| m.0 == message.protocol) {
            Some(m) => self.handshake.more(&*host, &*random, now.wall, ConMode::CRC, payload).map(|step| (m, 0, step)),
            None => auth::messages::hello(&mut self.handshake, &*host, &*random, now.wall, payload),
        };
        match step.and_then(|(method, id, s)| Ok((method, id, self.prove(s, method)?))) {
            Ok((method, id, Step::More(challenge))) => {
                self.method = Some(method);
                self.reply_auth(method, 0, id, challenge)?;
                Ok(None)
            }
            Ok((method, _, Step::Done(g))) => {
                let Granted { reply, global_id, .. } = *g;
                self.reply_auth(method, 0, global_id, reply)?;
                self.state = State::Open;
                self.report().map(Some)
            }
            Err(e) => {
                let method = self.method.take().unwrap_or(Method(message.protocol));
                self.count_failure()?;
                self.reply_auth(method, e.errno(), 0, Bytes::new())?;
                Ok(Some(Event::AuthFailed(e)))
            }
        }
    }

    fn reply_auth(&mut self, m: Method, result: i32, global_id: u64, auth_payload: Bytes) -> Result<(), Error> {
        let reply = MAuthReply { protocol: m.0, result, global_id, auth_payload, result_msg: String::new() };
        self.write_message(&reply.to_message(self.peer.features))
    }

    fn on_item(&mut self, item: Item) -> Result<Option<Event>, Error> {
        match item {
            Item::Message(m) => self.on_message(*m),
            Item::Ack | Item::Keepalive => Ok(None),
            Item::Keepalive2(time) => {
                self.stamp(Tag::Keepalive2Ack, time);
                Ok(None)
            }
            Item::KeepaliveAck(time) => Ok(Some(Event::KeepaliveAck(time))),
            Item::Close => {
                self.state = State::Closing;
                Ok(None)
            }
        }
    }

    fn on_message(&mut self, m: Received) -> Result<Option<Event>, Error> {
        let seq = m.message.header.seq;
        if let Some(key) = &self.key {
            let want = key.sign_message(&m.signed)?;
            if !auth::crypto::constant_time_eq(&want.to_le_bytes(), &m.signature.to_le_bytes()) {
                return Err(Error::MessageSignature(seq));
            }
        }
        if seq <= self.in_seq {
            return Ok(None);
        }
        self.in_seq = seq;
        if self.reported {
            return Ok(Some(Event::Message(m.message)));
        }
        self.peer.num = m.src_num;
        self.extra = Some(Event::Message(m.message));
        self.report().map(Some)
    }
}
