//! Frames before the first message: banner, HELLO, authentication, signatures, idents and session resumption.

use super::{Connection, Event, Peer, State};
use crate::error::{Error, mode_words};
use crate::frame::{
    AuthBadMethod, AuthDone, AuthRequest, ClientIdent, FEATURE_REVISION_1, FLAG_LOSSY, Frame, Hello, Reconnect,
    ServerIdent, Tag,
};
use crate::policy::{AUTH_ATTEMPTS_MAX, AUTH_FRAMES_MAX};
use crate::rx::Phase;
use crate::secure::streams;
use crate::session::Request;
use auth::server::Step;
use auth::{AuthError, ConMode, Method, Principal};
use base::{AddrKind, AddrVec, EntityAddr, Now};

impl Connection {
    pub(super) fn on_banner(&mut self, supported: u64, required: u64) -> Result<(), Error> {
        if required & !FEATURE_REVISION_1 != 0 || supported & FEATURE_REVISION_1 == 0 {
            return Err(Error::BannerFeatures { supported, required });
        }
        let hello = Hello {
            kind: self.cfg.kind,
            peer_addr: EntityAddr { kind: AddrKind::MSGR2, nonce: 0, sock: Some(self.socket) },
        };
        self.tx.control(Tag::Hello, |w| hello.write(w))?;
        self.state = State::Hello;
        Ok(())
    }

    pub(super) fn on_handshake_frame(&mut self, f: &Frame, now: Now) -> Result<Option<Event>, Error> {
        if let State::AuthServer { frames, .. } = &mut self.state {
            *frames += 1;
            if *frames > AUTH_FRAMES_MAX {
                return Err(Error::TooManyAuthAttempts);
            }
        }
        match (&mut self.state, f.tag) {
            (State::Hello, Tag::Hello) => self.on_hello(&f.read(Hello::read)?),
            (State::AuthServer { .. }, Tag::AuthRequest) => self.on_auth_request(&f.read(AuthRequest::read)?, now),
            (State::AuthServer { handshake, mode, method, .. }, Tag::AuthRequestMore) => {
                let payload = f.read(|r| r.blob())?;
                let (mode, method) = (*mode, *method);
                let Some(host) = self.cfg.auth_host.clone() else { return Err(Error::NotAccepting) };
                let step = handshake.more(&*host, &*self.cfg.random, now.wall, mode, &payload);
                self.on_auth_step(step, method, mode)
            }
            (State::AuthClient { handshake }, Tag::AuthReplyMore) => {
                let payload = f.read(|r| r.blob())?;
                let Some(client) = &self.cfg.auth_client else { return Err(Error::NotAccepting) };
                let answer = handshake.more(&client.borrow(), &*self.cfg.random, &payload)?;
                self.tx.control(Tag::AuthRequestMore, |w| w.blob(&answer))?;
                Ok(None)
            }
            (State::AuthClient { .. }, Tag::AuthDone) => self.on_auth_done(&f.read(AuthDone::read)?, now),
            (State::AuthClient { .. }, Tag::AuthBadMethod) => Err(self.auth_refused(f.read(AuthBadMethod::read)?)),
            (State::Signature { expect }, Tag::AuthSignature) => {
                let expect = *expect;
                self.on_signature(f, &expect)
            }
            (State::Ident, Tag::ClientIdent) => self.on_client_ident(f.read(ClientIdent::read)?),
            (State::Ident, Tag::SessionReconnect) => self.on_reconnect(f.read(Reconnect::read)?),
            (State::ClientIdent, Tag::ServerIdent) => self.on_server_ident(f.read(ServerIdent::read)?),
            (State::ClientIdent, Tag::IdentMissingFeatures) => Err(Error::WeLackFeatures(f.read(|r| r.u64())?)),
            (State::ClientIdent | State::ClientReconnect, Tag::Wait) => {
                self.state = State::Down;
                Ok(Some(Event::Wait))
            }
            (State::ClientReconnect, Tag::SessionReconnectOk) => {
                let acked = f.read(|r| r.u64())?;
                self.open(acked).map(Some)
            }
            (State::ClientReconnect, Tag::SessionRetry) => {
                self.session.retry(f.read(|r| r.u64())?);
                self.start_session()?;
                Ok(None)
            }
            (State::ClientReconnect, Tag::SessionRetryGlobal) => {
                let known = f.read(|r| r.u64())?;
                self.cfg.global_seq.set(self.cfg.global_seq.get().max(known));
                self.start_session()?;
                Ok(None)
            }
            (State::ClientReconnect, Tag::SessionReset) => {
                if f.read(|r| r.bool())? {
                    self.state = State::Down;
                    return Ok(Some(Event::Reset));
                }
                self.session.renumber();
                self.start_session()?;
                Ok(None)
            }
            // A keepalive may cross the ident on the wire.
            (State::ClientIdent | State::ClientReconnect | State::Ident, Tag::Keepalive2 | Tag::Keepalive2Ack) => {
                Ok(None)
            }
            _ => Err(self.unexpected(f)),
        }
    }

    fn auth_refused(&self, b: AuthBadMethod) -> Error {
        Error::AuthRefused {
            service: self.peer.claimed,
            errno: b.result,
            methods: b.methods,
            modes: b.modes,
            ours: mode_words(&self.policy.modes.iter().map(|m| m.0).collect::<Vec<_>>()),
            option: self.policy.modes_option,
        }
    }

    /// Handles the peer's signature over all frames so far.
    fn on_signature(&mut self, f: &Frame, expect: &[u8]) -> Result<Option<Event>, Error> {
        if !auth::crypto::constant_time_eq(&f.segments[0], expect) {
            return Err(Error::BadSignature);
        }
        self.rx.set_phase(Phase::Ident);
        if self.dialled.is_some() {
            self.start_session()?;
        } else {
            self.state = State::Ident;
        }
        Ok(None)
    }

    fn on_hello(&mut self, h: &Hello) -> Result<Option<Event>, Error> {
        self.peer.claimed = h.kind;
        self.policy = self.cfg.policies.borrow().get(h.kind).clone();
        match &self.dialled {
            None => {
                if self.cfg.auth_host.is_none() {
                    return Err(Error::NotAccepting);
                }
                self.state = State::AuthServer {
                    handshake: auth::server::Handshake::new(),
                    mode: ConMode::CRC,
                    method: Method::NONE,
                    attempts: 0,
                    frames: 0,
                };
            }
            Some(d) => {
                if d.kind != h.kind {
                    return Err(Error::WrongPeer { want: d.kind, got: h.kind });
                }
                self.learn_address(&h.peer_addr);
                let Some(client) = &self.cfg.auth_client else { return Err(Error::NotAccepting) };
                let client = client.borrow();
                let mut handshake = auth::client::Handshake::new(d.kind);
                let payload = handshake.request(&client, &*self.cfg.random)?;
                let mut modes: Vec<u32> = self.policy.modes.iter().map(|m| m.0).collect();
                if client.method() == Method::NONE {
                    // Method none has no key for encryption.
                    modes.retain(|m| *m == ConMode::CRC.0);
                }
                let req = AuthRequest { method: client.method(), modes, payload };
                self.tx.control(Tag::AuthRequest, |w| req.write(w))?;
                self.state = State::AuthClient { handshake };
            }
        }
        Ok(None)
    }

    /// Learns the address of a process without listener from its peer's HELLO.
    fn learn_address(&self, seen: &EntityAddr) {
        let mut id = self.cfg.identity.borrow_mut();
        for a in &mut id.addrs.0 {
            if a.sock.is_none()
                && let Some(mut s) = seen.sock
            {
                s.set_port(0);
                a.sock = Some(s);
            }
        }
    }

    fn on_auth_request(&mut self, req: &AuthRequest, now: Now) -> Result<Option<Event>, Error> {
        let Some(host) = self.cfg.auth_host.clone() else { return Err(Error::NotAccepting) };
        let allowed = |m: &u32| {
            // Method none has no key for encryption.
            self.policy.modes.contains(&ConMode(*m)) && (req.method == Method::CEPHX || *m == ConMode::CRC.0)
        };
        let chosen = req.modes.iter().find(|m| allowed(m)).map(|m| ConMode(*m));
        let State::AuthServer { handshake, mode, method, .. } = &mut self.state else { return Ok(None) };
        *method = req.method;
        let step = match chosen {
            None => Err(AuthError::NoCommonMode {
                offered: mode_words(&req.modes),
                allowed: mode_words(&self.policy.modes.iter().map(|m| m.0).collect::<Vec<_>>()),
                option: self.policy.modes_option,
            }),
            Some(m) => {
                *mode = m;
                handshake.request(&*host, &*self.cfg.random, now.wall, req.method, &req.payload)
            }
        };
        self.on_auth_step(step, req.method, chosen.unwrap_or(ConMode::CRC))
    }

    fn on_auth_step(
        &mut self,
        step: Result<Step, AuthError>,
        method: Method,
        mode: ConMode,
    ) -> Result<Option<Event>, Error> {
        let claimed = self.peer.claimed;
        let step = step.and_then(|s| match s {
            Step::Done(g) => {
                self.peer.principal = Principal::incoming(claimed, &g, method, self.socket)?;
                Ok(Step::Done(g))
            }
            more @ Step::More(_) => Ok(more),
        });
        match step {
            Ok(Step::More(payload)) => {
                self.tx.control(Tag::AuthReplyMore, |w| w.blob(&payload))?;
                Ok(None)
            }
            Ok(Step::Done(g)) => {
                let done = AuthDone { global_id: g.global_id, mode, payload: g.reply };
                self.tx.control(Tag::AuthDone, |w| done.write(w))?;
                self.authenticated(mode, g.session_key.as_ref(), &g.connection_secret)?;
                Ok(None)
            }
            Err(e) => {
                let State::AuthServer { attempts, .. } = &mut self.state else { return Ok(None) };
                *attempts += 1;
                if *attempts >= AUTH_ATTEMPTS_MAX {
                    return Err(Error::TooManyAuthAttempts);
                }
                let methods = self.cfg.auth_host.as_ref().map(|h| h.methods()).unwrap_or_default();
                let bad = AuthBadMethod {
                    method,
                    result: e.errno(),
                    methods: methods.iter().map(|m| m.0).collect(),
                    modes: self.policy.modes.iter().map(|m| m.0).collect(),
                };
                self.tx.control(Tag::AuthBadMethod, |w| bad.write(w))?;
                Ok(Some(Event::AuthFailed(e)))
            }
        }
    }

    fn on_auth_done(&mut self, d: &AuthDone, now: Now) -> Result<Option<Event>, Error> {
        if !self.policy.modes.contains(&d.mode) {
            return Err(Error::ModeNotOffered(d.mode.0));
        }
        let Some(client) = self.cfg.auth_client.clone() else { return Err(Error::NotAccepting) };
        let State::AuthClient { handshake } = &mut self.state else { return Ok(None) };
        let mut client = client.borrow_mut();
        if client.method() == Method::NONE && d.mode != ConMode::CRC {
            return Err(Error::ModeNotOffered(d.mode.0));
        }
        let a = handshake.done(&mut client, now.wall, d.global_id, d.mode, &d.payload)?;
        let service = self.peer.claimed;
        self.peer.principal = Principal::dialled(service, d.global_id, client.method(), self.socket);
        drop(client);
        self.authenticated(d.mode, a.session_key.as_ref(), &a.connection_secret)?;
        Ok(None)
    }

    /// After AUTH_DONE: switches to the negotiated mode and exchanges signatures over all bytes so far.
    fn authenticated(
        &mut self,
        mode: ConMode,
        session_key: Option<&auth::CryptoKey>,
        secret: &[u8],
    ) -> Result<(), Error> {
        self.mode = mode;
        let (received, sent) = (self.rx.take_log(), self.tx.take_log());
        let sign = |bytes: &[u8]| session_key.map_or([0; 32], |k| k.sign(bytes));
        if mode == ConMode::SECURE {
            let (tx, rx) = streams(secret, self.dialled.is_none())?;
            self.tx.set_crypto(tx);
            self.rx.set_crypto(rx);
        }
        let mine = sign(&received);
        self.tx.control(Tag::AuthSignature, |w| w.raw(&mine))?;
        self.state = State::Signature { expect: sign(&sent) };
        Ok(())
    }

    // ---- client: opening and resuming ----

    fn start_session(&mut self) -> Result<(), Error> {
        let Some(d) = self.dialled.clone() else { return Ok(()) };
        let identity = self.cfg.identity.borrow().clone();
        let global_seq = self.cfg.next_global_seq(0);
        if let Some(s) = self.session.resumes() {
            let r = Reconnect {
                addrs: identity.addrs,
                client_cookie: s.client_cookie,
                server_cookie: s.server_cookie,
                global_seq,
                connect_seq: s.connect_seq,
                msg_seq: s.msg_seq,
            };
            self.tx.control(Tag::SessionReconnect, |w| r.write(w))?;
            self.state = State::ClientReconnect;
            return Ok(());
        }
        let ident = ClientIdent {
            addrs: identity.addrs,
            target: d.addr,
            num: identity.num,
            global_seq,
            supported: self.policy.supported,
            required: self.policy.required,
            flags: if self.policy.lossy { FLAG_LOSSY } else { 0 },
            cookie: self.session.client_cookie(),
        };
        self.tx.control(Tag::ClientIdent, |w| ident.write(w))?;
        self.state = State::ClientIdent;
        Ok(())
    }

    fn on_server_ident(&mut self, i: ServerIdent) -> Result<Option<Event>, Error> {
        let lack = self.policy.required.0 & !i.supported.0;
        if lack != 0 {
            return Err(Error::PeerLacksFeatures(lack));
        }
        let lack = i.required.0 & !self.policy.supported.0;
        if lack != 0 {
            return Err(Error::WeLackFeatures(lack));
        }
        self.peer.addrs = i.addrs;
        self.peer.num = i.num;
        self.peer.announced = i.supported;
        self.peer.features = self.policy.supported & i.supported;
        self.session.begins_at(i.global_seq, i.cookie);
        // The server decides whether the session is lossy.
        self.lossy = self.policy.lossy || i.flags & FLAG_LOSSY != 0 || i.cookie == 0;
        self.open(0).map(Some)
    }

    // ---- server: accepting ----

    fn on_client_ident(&mut self, i: ClientIdent) -> Result<Option<Event>, Error> {
        if i.addrs.0.is_empty() {
            return Err(Error::NoAddress);
        }
        {
            let id = self.cfg.identity.borrow();
            if !id.addrs.0.is_empty() && !id.addrs.0.iter().any(|a| a.same_endpoint(&i.target)) {
                return Err(Error::WrongTarget(i.target.to_string()));
            }
        }
        self.peer.num = i.num;
        self.peer.addrs = self.fill_blank(i.addrs);
        self.peer.announced = i.supported;
        let lack = self.policy.required.0 & !i.supported.0;
        if lack != 0 {
            self.tx.control(Tag::IdentMissingFeatures, |w| w.u64(lack))?;
            self.state = State::Closing;
            return Ok(None);
        }
        let lack = i.required.0 & !self.policy.supported.0;
        if lack != 0 {
            return Err(Error::WeLackFeatures(lack));
        }
        self.peer.features = self.policy.supported & i.supported;
        self.session.is_asked_for(i.global_seq, i.cookie);
        self.lossy = self.policy.lossy || i.cookie == 0;
        if self.lossy {
            return self.accept_fresh().map(Some);
        }
        let request = Request {
            reconnect: false,
            addrs: self.peer.addrs.clone(),
            client_cookie: i.cookie,
            server_cookie: 0,
            global_seq: i.global_seq,
            connect_seq: 0,
            msg_seq: 0,
        };
        self.state = State::Deciding { request: request.clone() };
        Ok(Some(Event::Request(request)))
    }

    /// Fills in the IP of peers that do not know it, from the socket.
    fn fill_blank(&self, mut addrs: AddrVec) -> AddrVec {
        for a in &mut addrs.0 {
            if let Some(s) = &mut a.sock
                && s.ip().is_unspecified()
            {
                s.set_ip(self.socket.ip());
            }
        }
        addrs
    }

    fn on_reconnect(&mut self, r: Reconnect) -> Result<Option<Event>, Error> {
        if r.addrs.0.is_empty() {
            return Err(Error::NoAddress);
        }
        let addrs = self.fill_blank(r.addrs);
        self.peer.addrs = addrs.clone();
        if self.policy.lossy {
            self.answer_reset(self.policy.reset_check)?;
            return Ok(None);
        }
        let request = Request {
            reconnect: true,
            addrs,
            client_cookie: r.client_cookie,
            server_cookie: r.server_cookie,
            global_seq: r.global_seq,
            connect_seq: r.connect_seq,
            msg_seq: r.msg_seq,
        };
        self.state = State::Deciding { request: request.clone() };
        Ok(Some(Event::Request(request)))
    }

    /// Answer to [`Event::Request`]: opens a new session. Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn accept_fresh(&mut self) -> Result<Event, Error> {
        self.session.accept(if self.lossy { 0 } else { self.cfg.random.u64().max(1) });
        self.send_server_ident()?;
        self.open(0)
    }

    fn send_server_ident(&mut self) -> Result<(), Error> {
        let identity = self.cfg.identity.borrow().clone();
        let ident = ServerIdent {
            addrs: identity.addrs,
            num: identity.num,
            global_seq: self.cfg.next_global_seq(0),
            supported: self.policy.supported,
            required: self.policy.required,
            flags: if self.lossy { FLAG_LOSSY } else { 0 },
            cookie: self.session.server_cookie(),
        };
        self.tx.control(Tag::ServerIdent, |w| ident.write(w))
    }

    /// Answer to [`Event::Request`]: the session is unknown. The peer then opens a new one on this connection. Error:
    /// [`Error::NonceExhausted`] on a secure connection.
    pub fn answer_reset(&mut self, full: bool) -> Result<(), Error> {
        self.tx.control(Tag::SessionReset, |w| w.bool(full))?;
        self.state = State::Ident;
        Ok(())
    }

    /// Answer to [`Event::Request`]: our connection sequence number, with which the peer tries again. Error:
    /// [`Error::NonceExhausted`] on a secure connection.
    pub fn answer_retry(&mut self, connect_seq: u64) -> Result<(), Error> {
        self.tx.control(Tag::SessionRetry, |w| w.u64(connect_seq))?;
        self.state = State::Ident;
        Ok(())
    }

    /// Answer to [`Event::Request`]: our record of the peer's global sequence number, above which the peer tries again.
    /// Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn answer_retry_global(&mut self, global_seq: u64) -> Result<(), Error> {
        self.tx.control(Tag::SessionRetryGlobal, |w| w.u64(global_seq))?;
        self.state = State::Ident;
        Ok(())
    }

    /// Answer to [`Event::Request`]: our own connection to the peer wins; this one closes once the answer is written.
    /// Error: [`Error::NonceExhausted`] on a secure connection.
    pub fn answer_wait(&mut self) -> Result<(), Error> {
        self.tx.control(Tag::Wait, |_| {})?;
        self.state = State::Closing;
        Ok(())
    }

    /// Answer to [`Event::Request`] of `new`: this session continues over the socket of `new`. Input of the old socket
    /// is dropped; the peer resends it. Error: [`Error::UnexpectedFrame`] if `new` awaits no answer, or one of writing
    /// the output.
    pub fn adopt(&mut self, new: Connection) -> Result<Event, Error> {
        let State::Deciding { request } = new.state else {
            return Err(Error::UnexpectedFrame { tag: "session request", state: new.state.name() });
        };
        self.rx = new.rx;
        self.tx = new.tx;
        self.mode = new.mode;
        self.policy = new.policy;
        self.socket = new.socket;
        self.dialled = None;
        self.lossy = false;
        self.extra = None;
        if request.reconnect {
            // A reconnect has no ident: number, features and addresses stay.
            self.peer = Peer { num: self.peer.num, features: self.peer.features, ..new.peer };
            let seq = self.session.continues(request.global_seq, request.connect_seq);
            self.tx.control(Tag::SessionReconnectOk, |w| w.u64(seq))?;
            return self.open(request.msg_seq);
        }
        self.peer = new.peer;
        self.session.renumber();
        self.session.is_asked_for(request.global_seq, request.client_cookie);
        self.session.accept(self.cfg.random.u64().max(1));
        self.send_server_ident()?;
        self.open(0)
    }
}
