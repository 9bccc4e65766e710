//! Two ends of a connection in memory, and a small cluster that authenticates them.
#![allow(dead_code, reason = "each test binary uses its part")]

use auth::keyring::Caps;
use auth::{AuthHost, Client, ConMode, CryptoKey, EntityAuth, KeyKind, Method, Random, RotatingKeys, ServiceKeys};
use base::rng::Rng;
use base::{AddrVec, AuthName, EntityAddr, EntityKind, Mono, Now, Summed, Utime};
use bytes::Bytes;
use msgr::{Config, Connection, Error, Event, Identity, Policies, Policy};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use wire::{Message, MsgHeader};

/// Seeded randomness.
pub(crate) struct Seeded(RefCell<Rng>);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Rng::new(seed))))
    }
}

impl Random for Seeded {
    fn fill(&self, out: &mut [u8]) {
        self.0.borrow_mut().fill(out);
    }
}

pub(crate) const NOW: Now = Now { mono: Mono(5_000_000_000), wall: Utime { sec: 1_800_000_000, nsec: 5 } };

/// The test time plus this many seconds.
pub(crate) fn later(sec: u32) -> Now {
    Now { mono: Mono(NOW.mono.0 + u64::from(sec) * 1_000_000_000), wall: Utime { sec: NOW.wall.sec + sec, nsec: 5 } }
}

/// The test time minus this many seconds.
pub(crate) fn before(sec: u32) -> Now {
    Now { wall: Utime { sec: NOW.wall.sec - sec, nsec: 5 }, ..NOW }
}

pub(crate) fn name(s: &str) -> AuthName {
    AuthName::parse(s).unwrap()
}

/// A cluster's key database and rotating secrets, seen by a daemon of kind `service`.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) service: EntityKind,
    pub(crate) methods: Vec<Method>,
    pub(crate) entities: Rc<RefCell<BTreeMap<AuthName, EntityAuth>>>,
    pub(crate) keys: Rc<RefCell<ServiceKeys>>,
    pub(crate) next_id: Rc<Cell<u64>>,
    /// Pending keys that entities have authenticated with.
    pub(crate) used: Rc<RefCell<Vec<(AuthName, CryptoKey)>>>,
}

impl Cluster {
    pub(crate) fn new(method: Method, kind: KeyKind) -> Self {
        let rnd = Seeded::new(77);
        let mut keys = ServiceKeys::default();
        let (auth, service) = (auth::server::AUTH_TICKET_TTL, auth::server::SERVICE_TICKET_TTL);
        keys.tick(NOW.wall, auth, service, kind, &*rnd);
        let mut entities = BTreeMap::new();
        for (n, caps) in [("client.admin", "allow *"), ("client.x", "allow r"), ("osd.3", "allow profile osd")] {
            let caps: Caps = ["mon", "osd", "mgr"].map(|s| (s.to_owned(), caps.to_owned())).into();
            entities.insert(
                name(n),
                EntityAuth { key: CryptoKey::generate(kind, NOW.wall, &*rnd), pending_key: None, caps },
            );
        }
        Self {
            service: EntityKind::MON,
            methods: vec![method],
            entities: Rc::new(RefCell::new(entities)),
            keys: Rc::new(RefCell::new(keys)),
            next_id: Rc::new(Cell::new(4100)),
            used: Rc::default(),
        }
    }

    /// The same cluster, seen by a daemon of another type.
    pub(crate) fn at(&self, service: EntityKind) -> Self {
        Self { service, ..self.clone() }
    }

    pub(crate) fn key(&self, n: &str) -> CryptoKey {
        self.entities.borrow()[&name(n)].key.clone()
    }

    pub(crate) fn client(&self, n: &str) -> Rc<RefCell<Client>> {
        Rc::new(RefCell::new(match self.methods[0] {
            Method::CEPHX => Client::cephx(name(n), self.key(n)),
            _ => Client::none(name(n)),
        }))
    }
}

impl AuthHost for Cluster {
    fn pending_key_used(&self, name: &AuthName, key: &CryptoKey) {
        self.used.borrow_mut().push((name.clone(), key.clone()));
    }
    fn service(&self) -> EntityKind {
        self.service
    }
    fn methods(&self) -> Vec<Method> {
        self.methods.clone()
    }
    fn entity(&self, name: &AuthName) -> Option<EntityAuth> {
        if self.service != EntityKind::MON {
            return None;
        }
        self.entities.borrow().get(name).cloned()
    }
    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, CryptoKey)> {
        auth::server::pick(self.keys.borrow().get(service)?, id)
    }
    fn rotating_keys(&self, service: EntityKind) -> Option<RotatingKeys> {
        self.keys.borrow().get(service).cloned()
    }
    fn new_global_id(&self) -> Option<u64> {
        self.next_id.set(self.next_id.get() + 1);
        Some(self.next_id.get())
    }
}

pub(crate) const MODES: [ConMode; 2] = [ConMode::SECURE, ConMode::CRC];

pub(crate) fn server_addr() -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 99)
}

pub(crate) fn config(
    kind: EntityKind,
    addrs: AddrVec,
    policy: Policy,
    host: Option<&Cluster>,
    client: Option<Rc<RefCell<Client>>>,
    seed: u64,
) -> Rc<Config> {
    Rc::new(Config {
        kind,
        identity: RefCell::new(Identity { num: 7, addrs }),
        policies: RefCell::new(Policies::uniform(policy)),
        auth_host: host.map(|h| Rc::new(h.clone()) as Rc<dyn AuthHost>),
        auth_client: client,
        random: Seeded::new(seed),
        global_seq: Cell::new(seed),
        pool: msgr::BufPool::default(),
        frames: msgr::FrameLimits::default(),
    })
}

pub(crate) fn server_config(cluster: &Cluster, policy: Policy) -> Rc<Config> {
    config(cluster.service, server_addr().into(), policy, Some(cluster), None, 1)
}

pub(crate) fn client_config(client: Rc<RefCell<Client>>, policy: Policy) -> Rc<Config> {
    let me = EntityAddr { kind: base::AddrKind::ANY, nonce: 4711, sock: None };
    config(EntityKind::CLIENT, me.into(), policy, None, Some(client), 2)
}

pub(crate) fn peer_socket() -> SocketAddr {
    ([127, 0, 0, 1], 40_000).into()
}

/// Takes all pending output.
pub(crate) fn output(c: &mut Connection) -> Vec<u8> {
    c.prepare_flush().unwrap();
    let mut out = Vec::new();
    while c.unwritten() > 0 {
        let mut s = [IoSlice::new(&[]); 64];
        let n = c.slices(&mut s);
        let taken: Vec<u8> = s[..n].iter().flat_map(|x| x.to_vec()).collect();
        c.advance(taken.len()).unwrap();
        out.extend_from_slice(&taken);
    }
    out
}

/// Passes bytes to an end, through its direct target if it has one.
pub(crate) fn input(c: &mut Connection, mut b: Bytes) {
    if let Some(t) = c.target() {
        let n = t.len().min(b.len());
        t[..n].copy_from_slice(&b.split_to(n));
        c.received(n);
    }
    if !b.is_empty() {
        c.feed(b);
    }
}

pub(crate) fn events(c: &mut Connection, now: Now) -> Result<Vec<Event>, Error> {
    let mut out = Vec::new();
    while let Some(e) = c.poll_event(now)? {
        out.push(e);
    }
    Ok(out)
}

/// Both ends.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    pub(crate) now: Now,
}

/// Events of both ends while a pair was driven, in order per side.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) client: Vec<Event>,
    pub(crate) server: Vec<Event>,
    pub(crate) client_error: Option<Error>,
    pub(crate) server_error: Option<Error>,
}

impl Pair {
    pub(crate) fn new(client: Rc<Config>, server: Rc<Config>) -> Self {
        let kind = server.kind;
        Self {
            client: Connection::client(client, kind, server_addr(), server_addr().sock.unwrap()),
            server: Connection::server(server, peer_socket()),
            now: NOW,
        }
    }

    /// Moves bytes until nothing happens. `tamper` may alter bytes on the way; `true` is client to server.
    pub(crate) fn drive_with(&mut self, mut tamper: impl FnMut(bool, Vec<u8>) -> Vec<u8>) -> Seen {
        let mut seen = Seen::default();
        loop {
            let up = output(&mut self.client);
            let down = output(&mut self.server);
            if up.is_empty() && down.is_empty() {
                return seen;
            }
            if seen.server_error.is_none() && !up.is_empty() {
                let b = tamper(true, up);
                input(&mut self.server, b.into());
                match collect(&mut self.server, self.now, &mut seen.server) {
                    Ok(()) => {}
                    Err(e) => seen.server_error = Some(e),
                }
            }
            if seen.client_error.is_none() && !down.is_empty() {
                let b = tamper(false, down);
                input(&mut self.client, b.into());
                match collect(&mut self.client, self.now, &mut seen.client) {
                    Ok(()) => {}
                    Err(e) => seen.client_error = Some(e),
                }
            }
            if seen.client_error.is_some() && seen.server_error.is_some() {
                return seen;
            }
        }
    }

    pub(crate) fn drive(&mut self) -> Seen {
        self.drive_with(|_, b| b)
    }

    /// Opens both ends, accepting a lossless session as new.
    pub(crate) fn open(&mut self) {
        let s = self.drive();
        assert_eq!((&s.client_error, &s.server_error), (&None, &None));
        if s.server.iter().any(|e| matches!(e, Event::Request(_))) {
            self.server.accept_fresh().unwrap();
            let s = self.drive();
            assert_eq!((&s.client_error, &s.server_error), (&None, &None));
        }
        assert!(self.client.is_open() && self.server.is_open());
    }
}

fn collect(c: &mut Connection, now: Now, into: &mut Vec<Event>) -> Result<(), Error> {
    while let Some(e) = c.poll_event(now)? {
        into.push(e);
    }
    Ok(())
}

pub(crate) fn message(tid: u64, front: usize, middle: usize, data: usize) -> Message {
    let fill = |n: usize, k: u64| -> Bytes { (0..n).map(|i| (i as u64 * 31 + tid * 7 + k) as u8).collect() };
    Message {
        header: MsgHeader { tid, kind: 42, priority: 127, version: 8, compat: 3, ..MsgHeader::default() },
        front: fill(front, 1),
        middle: fill(middle, 2),
        data: fill(data, 3),
        ..Message::default()
    }
}

/// Received messages. Checksums that came with one must be those of its data; they are left out of the result.
pub(crate) fn messages(events: Vec<Event>) -> Vec<Message> {
    events
        .into_iter()
        .filter_map(|e| match e {
            Event::Message(mut m) => {
                if let Some(s) = m.sums.take() {
                    assert!(s.has(&m.data) && *s == Summed::new(m.data.clone()), "checksums of other data");
                }
                Some(m)
            }
            _ => None,
        })
        .collect()
}

/// The message as received, with the sender's sequence number.
pub(crate) fn numbered(mut m: Message, seq: u64) -> Message {
    m.header.seq = seq;
    m
}
