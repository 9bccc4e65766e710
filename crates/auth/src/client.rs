//! The client end: authenticating to a monitor, holding tickets, presenting them to services, renewing them.
//!
//! [`Client`] exists once per process (or, as plain data, once per reactor); [`Handshake`] once per connection.
//!
//! Invariants:
//!  1. Tickets are replaced only by a reply that decrypts under the key they belong to.
//!  2. A service counts as genuine only after it returned our nonce plus one under the ticket's session key.
//!
//! Tests: `crates/msgr/tests/are_bad_peers_refused.rs` (1, `a_reply_under_another_key_changes_no_ticket`; 2,
//! `a_recorded_service_does_not_count_as_genuine`).

use crate::crypto::Usage;
use crate::rotating::RotatingKeys;
use crate::server::{GET_AUTH_SESSION_KEY, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY, MODE_AUTHORIZER, MODE_MON};
use crate::ticket::{HeldTicket, TicketBlob};
use crate::{AuthError, ConMode, CryptoKey, Method, Random};
use base::{AuthName, EntityKind, Utime};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Decode, Features, Reader, Writer};

/// Most tickets in one reply.
const TICKETS_MAX: usize = 32;

/// Credentials and tickets of this process.
#[derive(Clone, Debug)]
pub struct Client {
    name: AuthName,
    key: Option<CryptoKey>,
    method: Method,
    want: u32,
    global_id: u64,
    tickets: BTreeMap<EntityKind, HeldTicket>,
}

impl Client {
    /// Authenticates with a key.
    #[must_use]
    pub fn cephx(name: AuthName, key: CryptoKey) -> Self {
        Self::new(name, Some(key), Method::CEPHX)
    }

    /// Claims a name without proof (method none).
    #[must_use]
    pub fn none(name: AuthName) -> Self {
        Self::new(name, None, Method::NONE)
    }

    fn new(name: AuthName, key: Option<CryptoKey>, method: Method) -> Self {
        let want = EntityKind::MON.0 | EntityKind::OSD.0 | EntityKind::MGR.0 | EntityKind::AUTH.0;
        Self { name, key, method, want: want.into(), global_id: 0, tickets: BTreeMap::new() }
    }

    /// Sets the services to get tickets for, as a mask of [`EntityKind`] values; the default is mon, osd, mgr and auth.
    pub fn set_want(&mut self, mask: u32) {
        self.want = mask | u32::from(EntityKind::AUTH.0);
    }

    /// Name of the entity.
    #[must_use]
    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Authentication method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Key of the entity; `None` with method none.
    #[must_use]
    pub fn key(&self) -> Option<&CryptoKey> {
        self.key.as_ref()
    }

    /// Global id; 0 before authentication.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// The ticket for a service.
    #[must_use]
    pub fn ticket(&self, service: EntityKind) -> Option<&HeldTicket> {
        self.tickets.get(&service)
    }

    /// Stores a ticket that was made locally (by a monitor that connects to a manager).
    pub fn set_ticket(&mut self, service: EntityKind, global_id: u64, ticket: HeldTicket) {
        self.global_id = global_id;
        self.tickets.insert(service, ticket);
    }

    /// Proves another key from the next authentication on. Without a key before (method none) it has no effect.
    pub fn set_key(&mut self, key: CryptoKey) {
        if let Some(have) = &mut self.key {
            *have = key;
        }
    }

    /// Forgets tickets and global id: the next authentication starts a new session.
    pub fn forget(&mut self) {
        self.global_id = 0;
        self.tickets.clear();
    }

    /// Time at which to renew the earliest ticket; `None` without tickets.
    #[must_use]
    pub fn renew_after(&self) -> Option<Utime> {
        self.tickets.iter().filter(|(s, _)| **s != EntityKind::AUTH).map(|(_, t)| t.renew_after()).min()
    }

    /// Mask of the services whose tickets are missing or due for renewal.
    #[must_use]
    pub fn due(&self, now: Utime) -> u32 {
        if self.method != Method::CEPHX {
            return 0;
        }
        crate::rotating::SERVICES
            .iter()
            .filter(|s| **s != EntityKind::AUTH && self.want & u32::from(s.0) != 0)
            .filter(|s| self.tickets.get(s).is_none_or(|t| t.renew_after() <= now))
            .fold(0, |m, s| m | u32::from(s.0))
    }

    /// True if the monitor ticket itself is about to expire, so that the client must reconnect to a monitor.
    #[must_use]
    pub fn must_sign_in_again(&self, now: Utime) -> bool {
        self.method == Method::CEPHX && self.tickets.get(&EntityKind::AUTH).is_none_or(|t| t.renew_after() <= now)
    }

    fn authorizer(
        &self,
        service: EntityKind,
        random: &dyn Random,
        nonce: u64,
        answer: Option<u64>,
    ) -> Result<Writer, AuthError> {
        let t = self.tickets.get(&service).ok_or(AuthError::NoTicket(service))?;
        let mut w = Writer::new(Features::PACIFIC);
        w.u8(MODE_AUTHORIZER);
        w.u64(self.global_id);
        w.u32(service.0.into());
        w.put(&t.blob);
        w.blob(&t.session_key.seal(Usage::Authorize, random, |w| {
            w.u8(2);
            w.u64(nonce);
            w.bool(answer.is_some());
            w.u64(answer.unwrap_or(0));
        }));
        Ok(w)
    }

    /// Payload of an `MAuth` message that requests new tickets for the services in `mask`. Error:
    /// [`AuthError::NoTicket`] without a monitor ticket.
    pub fn renewal_request(&self, mask: u32, random: &dyn Random) -> Result<Bytes, AuthError> {
        let a = self.authorizer(EntityKind::AUTH, random, random.u64(), None)?;
        let mut w = Writer::new(Features::PACIFIC);
        w.u16(GET_PRINCIPAL_SESSION_KEY);
        w.raw(a.as_slice());
        w.u8(1);
        w.u32(mask);
        Ok(w.into_bytes())
    }

    /// Payload of an `MAuth` message that requests our service's rotating secrets.
    #[must_use]
    pub fn rotating_request(&self) -> Bytes {
        let mut w = Writer::default();
        w.u16(GET_ROTATING_KEY);
        w.into_bytes()
    }

    /// Handles the payload of an `MAuthReply`; returns rotating secrets if it has them. Error: the monitor refused,
    /// or the reply is malformed or does not decrypt; held tickets then stay unchanged.
    pub fn handle_reply(&mut self, now: Utime, payload: &Bytes) -> Result<Option<RotatingKeys>, AuthError> {
        let mut r = Reader::shared(payload);
        let (request, status) = (r.u16()?, r.i32()?);
        if status != 0 {
            return Err(AuthError::Refused(status));
        }
        match request {
            GET_PRINCIPAL_SESSION_KEY => {
                let auth = self.tickets.get(&EntityKind::AUTH).ok_or(AuthError::NoTicket(EntityKind::AUTH))?;
                let key = auth.session_key.clone();
                self.take_tickets(&mut r, now, &key)?;
                Ok(None)
            }
            GET_ROTATING_KEY => {
                let key = self.key.as_ref().ok_or_else(|| AuthError::NoKey(self.name.clone()))?;
                let plain = key.open(Usage::RotatingSecret, &r.blob()?, "rotating secrets")?;
                Ok(Some(RotatingKeys::from_bytes(&plain)?))
            }
            x => Err(AuthError::UnknownRequest(x)),
        }
    }

    /// Decodes a list of tickets whose session keys are encrypted with `key`.
    fn take_tickets(&mut self, r: &mut Reader<'_>, now: Utime, key: &CryptoKey) -> Result<(), AuthError> {
        r.u8()?;
        let n = r.count(10, "tickets")?;
        if n > TICKETS_MAX {
            return Err(AuthError::Malformed(wire::DecodeError::BadValue { what: "tickets", value: n as u64 }));
        }
        let mut got = Vec::new();
        for _ in 0..n {
            let service = r.u32()?;
            r.u8()?;
            let plain = key.open(Usage::TicketSessionKey, &r.blob()?, "session key")?;
            let mut p = Reader::new(&plain);
            p.u8()?;
            let (session_key, validity) = (p.get::<CryptoKey>()?, p.get::<Utime>()?);
            let wrapped = r.bool()?;
            let mut blob = r.blob()?;
            let Ok(service) = u8::try_from(service).map(EntityKind) else { continue };
            if wrapped {
                let old = self.tickets.get(&service).ok_or(AuthError::NoTicket(service))?;
                let plain = old.session_key.open(Usage::TicketBlob, &blob, "wrapped ticket")?;
                blob = Reader::shared(&plain).blob()?;
            }
            let blob = TicketBlob::from_bytes(&blob)?;
            let validity = Duration::from_secs(validity.sec.into());
            got.push((service, HeldTicket { blob, session_key, received: now, validity }));
        }
        self.tickets.extend(got);
        Ok(())
    }
}

/// Result of a finished handshake. `Debug` does not show the connection secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Key for frame signatures; `None` with method none.
    pub session_key: Option<CryptoKey>,
    /// Secret for the keys of secure mode; empty in crc mode.
    pub connection_secret: Vec<u8>,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("session_key", &self.session_key).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum State {
    Start,
    /// Awaiting the monitor's challenge or its reply to our proof.
    Mon {
        proved: bool,
    },
    /// Awaiting a service's challenge or its reply.
    Service {
        nonce: u64,
        answered: bool,
    },
    None,
}

/// Authentication on one connection.
#[derive(Debug)]
pub struct Handshake {
    target: EntityKind,
    state: State,
}

impl Handshake {
    /// Starts authentication to a monitor or another service.
    #[must_use]
    pub fn new(target: EntityKind) -> Self {
        Self { target, state: State::Start }
    }

    /// Returns the payload of AUTH_REQUEST. Error: [`AuthError::NoKey`] or [`AuthError::NoTicket`] if the client
    /// lacks what the target asks for.
    pub fn request(&mut self, client: &Client, random: &dyn Random) -> Result<Bytes, AuthError> {
        let to_mon = self.target == EntityKind::MON;
        if client.method == Method::CEPHX && !to_mon {
            let nonce = random.u64();
            self.state = State::Service { nonce, answered: false };
            return Ok(client.authorizer(self.target, random, nonce, None)?.into_bytes());
        }
        if client.method == Method::CEPHX && client.key.is_none() {
            return Err(AuthError::NoKey(client.name.clone()));
        }
        self.state = if client.method == Method::CEPHX { State::Mon { proved: false } } else { State::None };
        let mut w = Writer::new(Features::PACIFIC);
        w.u8(if to_mon { MODE_MON } else { MODE_AUTHORIZER });
        w.put(&client.name);
        w.u64(client.global_id);
        Ok(w.into_bytes())
    }

    /// Handles AUTH_REPLY_MORE; returns the payload of AUTH_REQUEST_MORE. Error: a malformed or unexpected challenge,
    /// or one that does not decrypt with the ticket's session key.
    pub fn more(&mut self, client: &Client, random: &dyn Random, payload: &Bytes) -> Result<Bytes, AuthError> {
        match &mut self.state {
            State::Mon { proved } if !*proved => {
                let key = client.key.as_ref().ok_or_else(|| AuthError::NoKey(client.name.clone()))?;
                let mut r = Reader::shared(payload);
                r.u8()?;
                let server_challenge = r.u64()?;
                let client_challenge = random.u64();
                *proved = true;
                let mut w = Writer::new(Features::PACIFIC);
                w.u16(GET_AUTH_SESSION_KEY);
                w.u8(3);
                w.u64(client_challenge);
                w.u64(key.proof(server_challenge, client_challenge, random));
                match client.tickets.get(&EntityKind::AUTH) {
                    Some(t) if client.global_id != 0 => w.put(&t.blob),
                    _ => w.put(&TicketBlob::default()),
                }
                w.u32(client.want);
                Ok(w.into_bytes())
            }
            State::Service { nonce, answered } if !*answered => {
                let nonce = *nonce;
                *answered = true;
                let t = client.tickets.get(&self.target).ok_or(AuthError::NoTicket(self.target))?;
                let plain = t.session_key.open(Usage::AuthorizeChallenge, payload, "challenge")?;
                let mut r = Reader::new(&plain);
                r.u8()?;
                let challenge = r.u64()?;
                Ok(client.authorizer(self.target, random, nonce, Some(challenge.wrapping_add(1)))?.into_bytes())
            }
            _ => Err(AuthError::Unexpected("AUTH_REPLY_MORE")),
        }
    }

    /// Handles AUTH_DONE: stores the monitor's tickets and the global id, or checks that a service decrypted our
    /// ticket. Error: [`AuthError::Refused`], [`AuthError::BadNonce`], or a malformed, undecryptable or unexpected
    /// payload.
    pub fn done(
        &mut self,
        client: &mut Client,
        now: Utime,
        global_id: u64,
        mode: ConMode,
        payload: &Bytes,
    ) -> Result<Accepted, AuthError> {
        match std::mem::replace(&mut self.state, State::Start) {
            State::None => {
                if self.target == EntityKind::MON {
                    client.global_id = global_id;
                }
                Ok(Accepted { session_key: None, connection_secret: Vec::new() })
            }
            State::Mon { proved: true } => {
                let key = client.key.clone().ok_or_else(|| AuthError::NoKey(client.name.clone()))?;
                let mut r = Reader::shared(payload);
                let (request, status) = (r.u16()?, r.i32()?);
                if status != 0 {
                    return Err(AuthError::Refused(status));
                }
                if request != GET_AUTH_SESSION_KEY {
                    return Err(AuthError::UnknownRequest(request));
                }
                client.take_tickets(&mut r, now, &key)?;
                let auth = client.tickets.get(&EntityKind::AUTH).ok_or(AuthError::NoTicket(EntityKind::AUTH))?;
                let session_key = auth.session_key.clone();
                let (cbl, extra) = (r.blob()?, r.blob()?);
                let connection_secret = if mode == ConMode::SECURE {
                    let sealed = Reader::shared(&cbl).blob()?;
                    let plain = session_key.open(Usage::ConnectionSecret, &sealed, "connection secret")?;
                    Reader::shared(&plain).blob()?.to_vec()
                } else {
                    Vec::new()
                };
                if !extra.is_empty() {
                    client.take_tickets(&mut Reader::shared(&extra), now, &session_key)?;
                }
                client.global_id = global_id;
                Ok(Accepted { session_key: Some(session_key), connection_secret })
            }
            State::Service { nonce, answered: true } => {
                let t = client.tickets.get(&self.target).ok_or(AuthError::NoTicket(self.target))?;
                let sealed = Reader::shared(payload).blob()?;
                let plain = t.session_key.open(Usage::AuthorizeReply, &sealed, "authorizer reply")?;
                let mut r = Reader::shared(&plain);
                let v = r.u8()?;
                if r.u64()? != nonce.wrapping_add(1) {
                    return Err(AuthError::BadNonce);
                }
                let connection_secret = if v >= 2 && mode == ConMode::SECURE { r.blob()?.to_vec() } else { Vec::new() };
                Ok(Accepted { session_key: Some(t.session_key.clone()), connection_secret })
            }
            _ => Err(AuthError::Unexpected("AUTH_DONE")),
        }
    }
}
