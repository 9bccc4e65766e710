//! The server end: authenticating entities (monitors), checking tickets (all services), renewing tickets.
//!
//! [`Handshake`] takes the payloads of AUTH_REQUEST and AUTH_REQUEST_MORE and returns those of AUTH_REPLY_MORE and
//! AUTH_DONE. [`handle_renewal`] serves later requests in `MAuth` messages. The [`AuthHost`] provides cluster state.
//!
//! `authorizer` has authorizers: tickets that a client presents to a service, with the answer to its challenge.
//!
//! Invariants:
//!  1. [`Granted`] is returned only after a proof, after a ticket with the answer to our challenge, or with method none.
//!  2. A client keeps its global id only by a ticket that was sealed for this id and entity, or if the host allows the
//!     insecure reclaim of old clients or has lost the keys of tickets.
//!
//! Tests: `crates/msgr/tests/are_bad_peers_refused.rs` (1, `a_recorded_authorizer_fails_the_challenge`; 2,
//! `a_global_id_is_reclaimed_only_with_its_ticket`).

mod authorizer;

use crate::crypto::{Usage, constant_time_eq};
use crate::keyring::Caps;
use crate::rotating::RotatingKeys;
use crate::ticket::{AuthTicket, CapsInfo, ServiceTicket, TicketBlob};
use crate::{AuthError, ConMode, CryptoKey, KeyMark, Method, Random};
use authorizer::{Authorizer, check_answer};
use base::{AuthName, EntityKind, Utime, Uuid};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use wire::{Features, Reader, Writer};

/// `AUTH_MODE_AUTHORIZER`: the client presents a ticket to a service.
pub(crate) const MODE_AUTHORIZER: u8 = 1;
/// `AUTH_MODE_MON`: the client authenticates to a monitor.
pub(crate) const MODE_MON: u8 = 10;
pub(crate) const GET_AUTH_SESSION_KEY: u16 = 0x0100;
pub(crate) const GET_PRINCIPAL_SESSION_KEY: u16 = 0x0200;
pub(crate) const GET_ROTATING_KEY: u16 = 0x0400;
/// Length in bytes of the secret for the keys of secure mode.
pub const CONNECTION_SECRET_LEN: usize = 64;

/// Life of monitor tickets (`auth_mon_ticket_ttl`).
pub const AUTH_TICKET_TTL: Duration = Duration::from_secs(72 * 3600);
/// Life of service tickets (`auth_service_ticket_ttl`).
pub const SERVICE_TICKET_TTL: Duration = Duration::from_secs(3600);

/// An entity's record in the key database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityAuth {
    /// Secret of the entity.
    pub key: CryptoKey,
    /// Pending secret, which replaces `key` when it is first used.
    pub pending_key: Option<CryptoKey>,
    /// Caps by service name.
    pub caps: Caps,
}

impl EntityAuth {
    /// True if `mark` is of the entity's key, or of its pending one.
    #[must_use]
    pub fn has_key(&self, mark: KeyMark) -> bool {
        self.key.mark() == mark || self.pending_key.as_ref().is_some_and(|k| k.mark() == mark)
    }

    /// Caps for one service in the form that tickets carry.
    #[must_use]
    pub fn caps_for(&self, service: EntityKind) -> CapsInfo {
        match self.caps.get(service.word()) {
            Some(t) => CapsInfo::from_text(t),
            None => CapsInfo::default(),
        }
    }
}

/// Cluster state that the handshake needs from its daemon.
pub trait AuthHost {
    /// Reports that an entity authenticated with its pending key, which replaces its key from now on.
    fn pending_key_used(&self, _name: &AuthName, _key: &CryptoKey) {}

    /// Reports that a peer claimed the name of a known entity and proved none of its keys.
    fn proof_refused(&self, _name: &AuthName) {}

    /// Entity type of this daemon: monitors authenticate entities, all others check tickets.
    fn service(&self) -> EntityKind;

    /// Accepted methods, preferred first.
    fn methods(&self) -> Vec<Method>;

    /// An entity of the key database; `None` if it is unknown or there is no database.
    fn entity(&self, name: &AuthName) -> Option<EntityAuth>;

    /// A service's secret with number `id`, or the current one; returned with its number.
    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, CryptoKey)>;

    /// All secrets of a service, for its daemons.
    fn rotating_keys(&self, service: EntityKind) -> Option<RotatingKeys>;

    /// A global id that was never used.
    fn new_global_id(&self) -> Option<u64>;

    /// The cluster's id, for log lines about refused peers, whose keys may belong to another cluster.
    fn cluster(&self) -> Option<Uuid> {
        None
    }

    /// Whether clients without the fix for `auth_allow_insecure_global_id_reclaim` may keep their id without proof.
    fn insecure_reclaim_allowed(&self) -> bool {
        false
    }

    /// Whether an entity that proved its key keeps a global id without the ticket that was sealed for this id, because
    /// the monitors lost the keys of tickets.
    fn keeps_id_by_key(&self, _name: &AuthName, _global_id: u64, _now: Utime) -> bool {
        false
    }

    /// Life of the tickets for a service.
    fn ticket_ttl(&self, service: EntityKind) -> Duration {
        if service == EntityKind::AUTH { AUTH_TICKET_TTL } else { SERVICE_TICKET_TTL }
    }
}

/// Host of a daemon that only checks tickets (OSD, manager): it has fetched rotating secrets and no database.
#[derive(Debug)]
pub struct ServiceHost {
    service: EntityKind,
    methods: Vec<Method>,
    keys: RefCell<RotatingKeys>,
    cluster: Cell<Option<Uuid>>,
}

impl ServiceHost {
    /// A host that accepts `methods` and has no secrets yet.
    #[must_use]
    pub fn new(service: EntityKind, methods: Vec<Method>) -> Self {
        Self { service, methods, keys: RefCell::default(), cluster: Cell::default() }
    }

    /// Sets the cluster's id, for log lines about refused peers.
    #[must_use]
    pub fn of_cluster(self, fsid: Uuid) -> Self {
        self.cluster.set(Some(fsid));
        self
    }

    /// Replaces the secrets with freshly fetched ones.
    pub fn set_keys(&self, keys: RotatingKeys) {
        *self.keys.borrow_mut() = keys;
    }

    /// True if peers come with tickets, for which secrets are needed.
    #[must_use]
    pub fn checks_tickets(&self) -> bool {
        self.methods.contains(&Method::CEPHX)
    }

    /// True if secrets should be fetched from the monitor.
    #[must_use]
    pub fn need_fetch(&self, now: Utime) -> bool {
        self.checks_tickets() && self.keys.borrow().need_fetch(now)
    }
}

impl AuthHost for ServiceHost {
    fn service(&self) -> EntityKind {
        self.service
    }
    fn methods(&self) -> Vec<Method> {
        self.methods.clone()
    }
    fn entity(&self, _: &AuthName) -> Option<EntityAuth> {
        None
    }
    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, CryptoKey)> {
        if service != self.service {
            return None;
        }
        pick(&self.keys.borrow(), id)
    }
    fn rotating_keys(&self, _: EntityKind) -> Option<RotatingKeys> {
        None
    }
    fn new_global_id(&self) -> Option<u64> {
        None
    }
    fn cluster(&self) -> Option<Uuid> {
        self.cluster.get()
    }
}

/// The secret with number `id`, or the current one, as [`AuthHost::service_key`] returns it.
#[must_use]
pub fn pick(keys: &RotatingKeys, id: Option<u64>) -> Option<(u64, CryptoKey)> {
    match id {
        Some(id) => keys.get(id).map(|k| (id, k.clone())),
        None => keys.current().map(|(id, k)| (id, k.key.clone())),
    }
}

/// Result of a successful handshake. `Debug` does not show the connection secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Granted {
    /// Payload of AUTH_DONE.
    pub reply: Bytes,
    /// Authenticated name; with method none, the claimed name.
    pub name: AuthName,
    /// Global id of the client.
    pub global_id: u64,
    /// Caps for our service.
    pub caps: CapsInfo,
    /// Key for frame signatures; `None` with method none.
    pub session_key: Option<CryptoKey>,
    /// Secret for the keys of secure mode; empty in crc mode.
    pub connection_secret: Vec<u8>,
    /// Expiry of the presented or issued ticket; the session may outlive it.
    pub expires: Utime,
    /// Fingerprint of the entity's key that was proved to the monitors; `None` with method none, and for a ticket that
    /// does not name it.
    pub proved: Option<KeyMark>,
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Granted");
        f.field("name", &self.name).field("global_id", &self.global_id).field("caps", &self.caps);
        f.field("session_key", &self.session_key).field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// The next frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// AUTH_REPLY_MORE with this payload.
    More(Bytes),
    /// AUTH_DONE.
    Done(Box<Granted>),
}

#[derive(Debug)]
enum State {
    Start,
    /// A monitor that awaits the proof.
    Proof {
        name: AuthName,
        global_id: u64,
        /// Id that the peer was told before its proof.
        reserved: Option<u64>,
        challenge: u64,
    },
    /// A service that awaits the authorizer with the answer to its challenge.
    Answer {
        challenge: u64,
    },
    Done,
}

/// Authentication of one peer.
#[derive(Debug)]
pub struct Handshake {
    state: State,
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}

impl Handshake {
    /// Starts a handshake that awaits AUTH_REQUEST.
    #[must_use]
    pub fn new() -> Self {
        Self { state: State::Start }
    }

    /// Handles AUTH_REQUEST. After an error the peer may try again.
    pub fn request(
        &mut self,
        host: &dyn AuthHost,
        random: &dyn Random,
        now: Utime,
        method: Method,
        payload: &[u8],
    ) -> Result<Step, AuthError> {
        if matches!(self.state, State::Done) {
            return Err(AuthError::Unexpected("second AUTH_REQUEST"));
        }
        self.state = State::Start;
        if !host.methods().contains(&method) {
            return Err(AuthError::MethodNotAllowed(method.0));
        }
        let mut r = Reader::new(payload);
        let kind = r.u8()?;
        match (kind, method) {
            (MODE_MON, _) if host.service() == EntityKind::MON => {
                let (name, global_id) = (r.get::<AuthName>()?, r.u64()?);
                if method == Method::CEPHX {
                    let challenge = random.u64().max(1);
                    self.state = State::Proof { name, global_id, reserved: None, challenge };
                    let mut w = Writer::default();
                    w.u8(1);
                    w.u64(challenge);
                    return Ok(Step::More(w.into_bytes()));
                }
                let global_id = if global_id == 0 { new_id(host)? } else { global_id };
                Ok(self.grant_none(name, global_id))
            }
            // A ticket outlives changes of its entity, so a monitor asks for the key itself.
            (MODE_AUTHORIZER, _) if host.service() == EntityKind::MON => Err(AuthError::AuthorizerAtMonitor),
            (MODE_AUTHORIZER, Method::NONE) => {
                let (name, global_id) = (r.get::<AuthName>()?, r.u64()?);
                Ok(self.grant_none(name, global_id))
            }
            (MODE_AUTHORIZER, Method::CEPHX) => {
                let (authorizer, _) = Authorizer::open(&mut r, host, now, host.service())?;
                // A ticket alone is not enough: the peer must also answer a fresh challenge, so that a recorded
                // authorizer is useless.
                let challenge = random.u64();
                let c = authorizer.ticket().session_key.seal(Usage::AuthorizeChallenge, random, |w| {
                    w.u8(1);
                    w.u64(challenge);
                });
                self.state = State::Answer { challenge };
                Ok(Step::More(c.into()))
            }
            (m, _) => Err(AuthError::UnknownMode(m)),
        }
    }

    /// The id that the peer has if it proves its key: the one it asked for, or a new one. Clients of msgr1 are told it with
    /// the challenge, and take another one for the begin of another session. Error: no id is left.
    pub(crate) fn reserve_id(&mut self, host: &dyn AuthHost) -> Result<u64, AuthError> {
        let State::Proof { global_id, reserved, .. } = &mut self.state else { return Ok(0) };
        if *global_id == 0 {
            let id = new_id(host)?;
            *reserved = Some(id);
            return Ok(id);
        }
        Ok(*global_id)
    }

    fn grant_none(&mut self, name: AuthName, global_id: u64) -> Step {
        self.state = State::Done;
        Step::Done(Box::new(Granted {
            reply: Bytes::new(),
            name,
            global_id,
            caps: CapsInfo::all(),
            session_key: None,
            connection_secret: Vec::new(),
            expires: Utime { sec: u32::MAX, nsec: 0 },
            proved: None,
        }))
    }

    /// Handles AUTH_REQUEST_MORE: checks the proof, or the authorizer with the answer to the challenge. Error: the
    /// proof or authorizer is wrong, malformed, or came out of order.
    pub fn more(
        &mut self,
        host: &dyn AuthHost,
        random: &dyn Random,
        now: Utime,
        mode: ConMode,
        payload: &[u8],
    ) -> Result<Step, AuthError> {
        let granted = match std::mem::replace(&mut self.state, State::Start) {
            State::Proof { name, global_id, reserved, challenge } => {
                check_proof(host, random, now, mode, payload, (name, global_id, reserved, challenge))?
            }
            State::Answer { challenge } => check_answer(host, random, now, mode, payload, challenge)?,
            State::Start | State::Done => return Err(AuthError::Unexpected("AUTH_REQUEST_MORE")),
        };
        self.state = State::Done;
        Ok(Step::Done(Box::new(granted)))
    }
}

fn new_id(host: &dyn AuthHost) -> Result<u64, AuthError> {
    host.new_global_id().ok_or(AuthError::NoGlobalId)
}

fn connection_secret(mode: ConMode, random: &dyn Random) -> Vec<u8> {
    if mode != ConMode::SECURE {
        return Vec::new();
    }
    let mut s = vec![0; CONNECTION_SECRET_LEN];
    random.fill(&mut s);
    s
}

/// The global id that a proved entity gets, with the session key of the ticket by which it keeps its old one.
/// `version` is that of the request's encoding. Error: it asks for an id that it may not keep.
fn global_id(
    host: &dyn AuthHost,
    now: Utime,
    name: &AuthName,
    asked: u64,
    old_ticket: &TicketBlob,
    version: u8,
) -> Result<(u64, Option<CryptoKey>), AuthError> {
    if asked == 0 {
        return Ok((new_id(host)?, None));
    }
    match open_auth_ticket(host, old_ticket) {
        Some(t) if t.ticket.name == *name && t.ticket.global_id == asked => Ok((asked, Some(t.session_key))),
        // Encodings before version 3 omit the ticket, which newer ones must have.
        _ if version < 3 && host.insecure_reclaim_allowed() => Ok((asked, None)),
        _ if host.keeps_id_by_key(name, asked, now) => Ok((asked, None)),
        _ => Err(AuthError::InsecureReclaim { name: name.clone(), global_id: asked }),
    }
}

/// Makes the key that the peer has proved the entity's: its present one, or the pending one.
fn choose_key(
    host: &dyn AuthHost,
    name: &AuthName,
    entity: &mut EntityAuth,
    proves: impl Fn(&CryptoKey) -> bool,
) -> Result<(), AuthError> {
    if proves(&entity.key) {
        return Ok(());
    }
    let Some(key) = entity.pending_key.take().filter(|k| proves(k)) else {
        host.proof_refused(name);
        return Err(AuthError::BadProof(name.clone()));
    };
    host.pending_key_used(name, &key);
    entity.key = key;
    Ok(())
}

fn check_proof(
    host: &dyn AuthHost,
    random: &dyn Random,
    now: Utime,
    mode: ConMode,
    payload: &[u8],
    (name, asked_id, reserved, server_challenge): (AuthName, u64, Option<u64>, u64),
) -> Result<Granted, AuthError> {
    let mut r = Reader::new(payload);
    let request = r.u16()?;
    if request != GET_AUTH_SESSION_KEY {
        return Err(AuthError::UnknownRequest(request));
    }
    let v = r.u8()?;
    let (client_challenge, proof, old_ticket) = (r.u64()?, r.u64()?, r.get::<TicketBlob>()?);
    let other_keys = if v >= 2 { r.u32()? } else { 0 };
    let mut entity = host.entity(&name).ok_or_else(|| AuthError::UnknownEntity(name.clone()))?;
    let proves = |key: &CryptoKey| {
        let want = key.proof(server_challenge, client_challenge, random);
        constant_time_eq(&want.to_le_bytes(), &proof.to_le_bytes())
    };
    choose_key(host, &name, &mut entity, proves)?;
    if entity.caps_for(EntityKind::MON).text().is_empty() {
        return Err(AuthError::NoCaps(name));
    }
    // An id is reserved only for a peer that asked for none.
    let (global_id, old_session) = match reserved {
        Some(id) => (id, None),
        None => global_id(host, now, &name, asked_id, &old_ticket, v)?,
    };
    let proved = entity.key.mark();
    let issue = Issue { host, random, now, name: &name, entity: &entity, global_id, proved };
    let (session_key, auth) = issue.ticket(EntityKind::AUTH)?;
    let mut w = Writer::new(Features::PACIFIC);
    w.u16(GET_AUTH_SESSION_KEY);
    w.i32(0);
    put_tickets(
        &mut w,
        &[(EntityKind::AUTH, session_key.clone(), auth)],
        host,
        random,
        &entity.key,
        old_session.as_ref(),
    );
    let connection_secret = connection_secret(mode, random);
    if v >= 2 {
        let mut cbl = Writer::default();
        if !connection_secret.is_empty() {
            cbl.blob(&session_key.seal(Usage::ConnectionSecret, random, |w| w.blob(&connection_secret)));
        }
        w.blob(cbl.as_slice());
        let mut extra = Writer::default();
        // A client asks for no ticket that it has. Who kept its id without a ticket that opens has none that serves.
        let kept_without = reserved.is_none() && asked_id != 0 && old_session.is_none();
        let services = if kept_without { u32::MAX } else { other_keys };
        put_tickets(&mut extra, &issue.tickets(services)?, host, random, &session_key, None);
        w.blob(extra.as_slice());
    }
    let expires = now.plus(host.ticket_ttl(EntityKind::AUTH));
    Ok(Granted {
        reply: w.into_bytes(),
        caps: entity.caps_for(EntityKind::MON),
        name,
        global_id,
        session_key: Some(session_key),
        connection_secret,
        expires,
        proved: Some(proved),
    })
}

fn open_auth_ticket(host: &dyn AuthHost, blob: &TicketBlob) -> Option<ServiceTicket> {
    if blob.blob.is_empty() {
        return None;
    }
    let (_, secret) = host.service_key(EntityKind::AUTH, Some(blob.secret_id))?;
    ServiceTicket::open(blob, &secret).ok()
}

/// Context for issuing tickets to one entity.
struct Issue<'a> {
    host: &'a dyn AuthHost,
    random: &'a dyn Random,
    now: Utime,
    name: &'a AuthName,
    entity: &'a EntityAuth,
    global_id: u64,
    /// Fingerprint of the key that the entity proved.
    proved: KeyMark,
}

impl Issue<'_> {
    fn ticket(&self, service: EntityKind) -> Result<(CryptoKey, TicketBlob), AuthError> {
        let (id, secret) = self.host.service_key(service, None).ok_or_else(|| unknown_secret(self.host, service, 0))?;
        // The session key uses the cipher of the entity's key, which the client evidently supports.
        let session_key = CryptoKey::generate(self.entity.key.kind(), self.now, self.random);
        let caps_of = if service == EntityKind::AUTH { EntityKind::MON } else { service };
        let ticket = AuthTicket {
            name: self.name.clone(),
            global_id: self.global_id,
            created: self.now,
            expires: self.now.plus(self.host.ticket_ttl(service)),
            caps: self.entity.caps_for(caps_of),
            flags: 0,
        };
        let t = ServiceTicket { ticket, session_key, proved: Some(self.proved) };
        let blob = t.seal(id, &secret, self.random);
        Ok((t.session_key, blob))
    }

    /// Tickets for every service in `mask`; services without secrets are omitted. Ceph's clients ask for one for the
    /// monitors and repeat that until they have it. It opens nothing: monitors accept no authorizers.
    fn tickets(&self, mask: u32) -> Result<Vec<(EntityKind, CryptoKey, TicketBlob)>, AuthError> {
        let mut out = Vec::new();
        for s in crate::rotating::SERVICES {
            if s != EntityKind::AUTH && mask & u32::from(s.0) != 0 && self.host.service_key(s, None).is_some() {
                let (k, b) = self.ticket(s)?;
                out.push((s, k, b));
            }
        }
        Ok(out)
    }
}

/// Encodes the tickets of a reply: session keys encrypted with `key`, each ticket under the previous session key if
/// there is one.
fn put_tickets(
    w: &mut Writer,
    tickets: &[(EntityKind, CryptoKey, TicketBlob)],
    host: &dyn AuthHost,
    random: &dyn Random,
    key: &CryptoKey,
    old_session: Option<&CryptoKey>,
) {
    w.u8(1);
    w.seq(tickets.iter(), |w, (service, session_key, blob)| {
        w.u32(service.0.into());
        w.u8(1);
        let validity = host.ticket_ttl(*service);
        w.blob(&key.seal(Usage::TicketSessionKey, random, |w| {
            w.u8(1);
            w.put(session_key);
            w.put(&Utime::from_unix(validity));
        }));
        let mut inner = Writer::default();
        inner.put(blob);
        match old_session {
            Some(old) => {
                w.u8(1);
                w.blob(&old.seal(Usage::TicketBlob, random, |w| w.blob(inner.as_slice())));
            }
            None => {
                w.u8(0);
                w.blob(inner.as_slice());
            }
        }
    });
}

fn unknown_secret(host: &dyn AuthHost, service: EntityKind, id: u64) -> AuthError {
    AuthError::UnknownSecret { service, id, current: host.service_key(service, None).map(|(c, _)| c) }
}

/// Serves the payload of an `MAuth` message on an open session of `name`; returns the payload of the `MAuthReply`. On
/// an error the errno becomes the message's result.
pub fn handle_renewal(
    host: &dyn AuthHost,
    random: &dyn Random,
    now: Utime,
    name: &AuthName,
    payload: &[u8],
) -> Result<Bytes, AuthError> {
    let mut r = Reader::new(payload);
    let request = r.u16()?;
    let mut w = Writer::new(Features::PACIFIC);
    w.u16(request);
    w.i32(0);
    match request {
        GET_PRINCIPAL_SESSION_KEY => {
            let v = r.u8()?;
            if v != 1 {
                return Err(AuthError::UnknownMode(v));
            }
            let (a, mut r) = Authorizer::open(&mut r, host, now, EntityKind::AUTH)?;
            r.u8()?;
            let keys = r.u32()?;
            let t = &a.ticket().ticket;
            // An entity whose key was removed has no session of its own, and its ticket is useless on another entity's.
            if t.name != *name {
                return Err(AuthError::AnothersTicket { session: name.clone(), name: t.name.clone() });
            }
            let entity = host.entity(&t.name).ok_or_else(|| AuthError::UnknownEntity(t.name.clone()))?;
            let proved = a.ticket().proved.unwrap_or_else(|| entity.key.mark());
            if !entity.has_key(proved) {
                return Err(AuthError::ReplacedKey(name.clone()));
            }
            let issue = Issue { host, random, now, name: &t.name, entity: &entity, global_id: t.global_id, proved };
            put_tickets(&mut w, &issue.tickets(keys)?, host, random, &a.ticket().session_key, None);
        }
        GET_ROTATING_KEY => {
            // The secrets forge tickets of the service. Monitors read those of all services in the state.
            if !matches!(name.kind, EntityKind::OSD | EntityKind::MDS | EntityKind::MGR) {
                return Err(AuthError::NoServiceSecrets(name.clone()));
            }
            let entity = host.entity(name).ok_or_else(|| AuthError::UnknownEntity(name.clone()))?;
            let keys = host.rotating_keys(name.kind).ok_or_else(|| unknown_secret(host, name.kind, 0))?;
            w.blob(&entity.key.seal(Usage::RotatingSecret, random, |w| w.put(&keys)));
        }
        x => return Err(AuthError::UnknownRequest(x)),
    }
    Ok(w.into_bytes())
}
