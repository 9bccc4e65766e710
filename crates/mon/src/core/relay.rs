//! Sessions of clients at monitors that do not lead, carried to the one that does. No I/O.
//!
//! [`Front`] is the side of the monitor that the client is connected to: it has checked who the client is, and passes on
//! what comes. [`Hub`] is the leader's side: to the core these sessions are like its own. So all that a client is told comes
//! from the leader, and epochs never go back for it whichever monitor it asks.
//!
//! Invariants:
//!  1. What a session sends arrives at the leader in order, after its opening.
//!  2. When the link to a leader ends, all sessions that were open there end on both sides: what the leader knew of them
//!     (subscriptions, what was sent) is gone. Clients come again, and ask again for what was not answered.
//!  3. While there is no leader, sessions and what they send wait, within bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{AuthName, EntityKind, Mono};
use wire::msg::{MRelayClose, MRelayIds, MRelayKeyUsed, MRelayMessage, MRelayOpen};
use wire::{Features, Message, WireMessage};

use super::cluster_state::Role;
use super::session::{ConnKey, Peer};

/// Messages of a session that wait for a leader.
const HELD_MESSAGES: usize = 1024;
/// Bytes of all sessions that wait for a leader.
const HELD_BYTES: usize = 64 << 20;
/// Sessions on one link.
const LINK_SESSIONS: usize = 20_000;
/// Keys of sessions that come by links begin here; the network's own are below.
const RELAYED: ConnKey = 1 << 63;

/// What the monitor in front is to do.
#[derive(Debug)]
pub enum FrontEffect {
    /// Send to a client.
    ToClient(ConnKey, Message),
    /// Close a client's connection.
    CloseClient(ConnKey, String),
    /// Send to the leader.
    ToLeader(Message),
    /// Ids for sessions that nobody else gets.
    Ids(u64, u64),
}

struct Waiting {
    since: Mono,
    peer: Box<Peer>,
    open: bool,
    held: Vec<Message>,
}

/// The sessions of a monitor that does not lead.
#[derive(Default)]
pub struct Front {
    sessions: BTreeMap<ConnKey, Waiting>,
    linked: bool,
    held_bytes: usize,
    out: Vec<FrontEffect>,
}

impl Front {
    /// What is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<FrontEffect> {
        std::mem::take(&mut self.out)
    }

    /// Number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn tell_leader(&mut self, m: &impl WireMessage) {
        self.out.push(FrontEffect::ToLeader(m.to_message(Features::PACIFIC)));
    }

    fn pass_on(&mut self, conn: ConnKey) {
        let Some(s) = self.sessions.get_mut(&conn) else { return };
        if !s.open {
            s.open = true;
            let m = opening(conn, &s.peer);
            let held = std::mem::take(&mut s.held);
            self.held_bytes -= held.iter().map(Message::cost).sum::<usize>();
            self.tell_leader(&m);
            for message in held {
                self.tell_leader(&MRelayMessage { conn, message });
            }
        }
    }

    /// A client has signed in.
    pub fn open(&mut self, conn: ConnKey, peer: Peer, now: Mono) {
        self.sessions.insert(conn, Waiting { since: now, peer: Box::new(peer), open: false, held: Vec::new() });
        if self.linked {
            self.pass_on(conn);
        }
    }

    /// It sent something.
    pub fn message(&mut self, conn: ConnKey, message: Message) {
        let Some(s) = self.sessions.get_mut(&conn) else { return };
        if s.open {
            return self.tell_leader(&MRelayMessage { conn, message });
        }
        let cost = message.cost();
        if s.held.len() >= HELD_MESSAGES || self.held_bytes + cost > HELD_BYTES {
            self.out.push(FrontEffect::CloseClient(conn, "too much waits for a leader of the monitors".into()));
            return self.forget(conn);
        }
        self.held_bytes += cost;
        s.held.push(message);
    }

    fn forget(&mut self, conn: ConnKey) {
        if let Some(s) = self.sessions.remove(&conn) {
            self.held_bytes -= s.held.iter().map(Message::cost).sum::<usize>();
        }
    }

    /// It is gone.
    pub fn closed(&mut self, conn: ConnKey) {
        if self.linked && self.sessions.get(&conn).is_some_and(|s| s.open) {
            self.tell_leader(&MRelayClose { conn, why: "closed by the client".into() });
        }
        self.forget(conn);
    }

    /// The link to a leader is open.
    pub fn link_open(&mut self) {
        self.linked = true;
        let all: Vec<ConnKey> = self.sessions.keys().copied().collect();
        all.into_iter().for_each(|c| self.pass_on(c));
    }

    /// Closes sessions that have waited for a leader for so long: their clients try another monitor.
    pub fn expire(&mut self, now: Mono, patience: Duration) {
        let due = |s: &Waiting| !s.open && now.since(s.since) > patience;
        let all: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| due(s)).map(|(c, _)| *c).collect();
        for c in all {
            self.out.push(FrontEffect::CloseClient(c, "no leader of the monitors can be reached".into()));
            self.forget(c);
        }
    }

    /// The link is gone.
    pub fn link_closed(&mut self) {
        self.linked = false;
        let lost: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| s.open).map(|(c, _)| *c).collect();
        for c in lost {
            self.out.push(FrontEffect::CloseClient(c, "the monitors' leader is gone".into()));
            self.forget(c);
        }
    }

    /// The leader sent something.
    pub fn from_leader(&mut self, m: &Message) -> Result<(), wire::DecodeError> {
        match m.header.kind {
            MRelayMessage::KIND => {
                let x = MRelayMessage::from_message(m)?;
                if self.sessions.contains_key(&x.conn) {
                    self.out.push(FrontEffect::ToClient(x.conn, x.message));
                }
            }
            MRelayClose::KIND => {
                let x = MRelayClose::from_message(m)?;
                if self.sessions.contains_key(&x.conn) {
                    self.out.push(FrontEffect::CloseClient(x.conn, x.why));
                    self.forget(x.conn);
                }
            }
            MRelayIds::KIND => {
                let x = MRelayIds::from_message(m)?;
                self.out.push(FrontEffect::Ids(x.first, x.end));
            }
            // A leader of a later version may know more.
            kind => tracing::debug!("mon: message {kind} of the leader is not known"),
        }
        Ok(())
    }
}

fn opening(conn: ConnKey, p: &Peer) -> MRelayOpen {
    MRelayOpen {
        conn,
        kind: p.kind,
        name: p.name.clone(),
        entity: p.entity,
        addrs: p.addrs.clone(),
        socket: p.socket.to_string(),
        features: p.features,
        global_id: p.global_id,
        caps: p.caps.clone(),
        allow_all: p.allow_all,
        expires: p.expires,
    }
}

/// What the leader is to do.
#[derive(Debug)]
pub enum HubEffect {
    /// A session has opened.
    Open(ConnKey, Box<Peer>),
    /// It sent something.
    Message(ConnKey, Message),
    /// It is gone.
    Closed(ConnKey),
    /// Take ids for a link and answer with [`MRelayIds`].
    TakeIds,
    /// A pending key was used.
    KeyUsed(MRelayKeyUsed),
}

/// The links of the leader, by the network's names.
#[derive(Default)]
pub struct Hub {
    next: ConnKey,
    links: BTreeMap<ConnKey, BTreeMap<u64, ConnKey>>,
    sessions: BTreeMap<ConnKey, (ConnKey, u64)>,
}

impl Hub {
    /// True if a session comes by a link.
    #[must_use]
    pub fn is_relayed(c: ConnKey) -> bool {
        c >= RELAYED
    }

    /// True if the connection is a link.
    #[must_use]
    pub fn is_link(&self, c: ConnKey) -> bool {
        self.links.contains_key(&c)
    }

    /// A monitor has connected.
    pub fn link_open(&mut self, link: ConnKey) {
        self.links.insert(link, BTreeMap::new());
    }

    /// It is gone, and all its sessions with it.
    pub fn link_closed(&mut self, link: ConnKey) -> Vec<ConnKey> {
        let all: Vec<ConnKey> = self.links.remove(&link).unwrap_or_default().into_values().collect();
        for c in &all {
            self.sessions.remove(c);
        }
        all
    }

    /// A monitor sent something. Anything but what is for carrying sessions is an error: a monitor of Ceph, for one, begins
    /// with probes and elections.
    pub fn message(&mut self, link: ConnKey, m: &Message) -> Result<Option<HubEffect>, String> {
        let bad = |e: wire::DecodeError| e.to_string();
        let Some(sessions) = self.links.get_mut(&link) else { return Ok(None) };
        Ok(match m.header.kind {
            MRelayOpen::KIND => {
                let x = MRelayOpen::from_message(m).map_err(bad)?;
                if sessions.len() >= LINK_SESSIONS || sessions.contains_key(&x.conn) {
                    return Err("too many sessions, or one twice".into());
                }
                self.next += 1;
                let key = RELAYED | self.next;
                sessions.insert(x.conn, key);
                self.sessions.insert(key, (link, x.conn));
                Some(HubEffect::Open(key, Box::new(peer_of(x)?)))
            }
            MRelayMessage::KIND => {
                let x = MRelayMessage::from_message(m).map_err(bad)?;
                sessions.get(&x.conn).map(|k| HubEffect::Message(*k, x.message))
            }
            MRelayClose::KIND => {
                let x = MRelayClose::from_message(m).map_err(bad)?;
                let key = sessions.remove(&x.conn);
                key.map(|k| {
                    self.sessions.remove(&k);
                    HubEffect::Closed(k)
                })
            }
            MRelayIds::KIND => Some(HubEffect::TakeIds),
            MRelayKeyUsed::KIND => Some(HubEffect::KeyUsed(MRelayKeyUsed::from_message(m).map_err(bad)?)),
            kind => {
                return Err(format!(
                    "message {kind} ({}) is none of this program's monitors; monitors of Ceph cannot join",
                    wire::msg::registry::name(kind)
                ));
            }
        })
    }

    /// The link of a session and what to send there, for a message of the core.
    #[must_use]
    pub fn send(&self, c: ConnKey, message: Message) -> Option<(ConnKey, Message)> {
        let (link, conn) = *self.sessions.get(&c)?;
        Some((link, MRelayMessage { conn, message }.to_message(Features::PACIFIC)))
    }

    /// The same for the end of a session.
    pub fn close(&mut self, c: ConnKey, why: String) -> Option<(ConnKey, Message)> {
        let (link, conn) = self.sessions.remove(&c)?;
        if let Some(l) = self.links.get_mut(&link) {
            l.remove(&conn);
        }
        Some((link, MRelayClose { conn, why }.to_message(Features::PACIFIC)))
    }
}

/// True for the name of the key that monitors share, and only they have. A session under it is a link: it may speak for
/// others. A key of another name (`mon.x`) is somebody's, whatever its kind.
#[must_use]
pub fn is_monitor(name: &AuthName) -> bool {
    name.kind == EntityKind::MON && name.id.is_empty()
}

fn peer_of(x: MRelayOpen) -> Result<Peer, String> {
    Ok(Peer {
        kind: x.kind,
        name: x.name,
        entity: x.entity,
        addrs: x.addrs,
        features: x.features,
        global_id: x.global_id,
        caps: x.caps,
        allow_all: x.allow_all,
        expires: x.expires,
        socket: x.socket.parse().map_err(|_| format!("'{}' is no socket address", x.socket))?,
        role: Role::Mon,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{AddrVec, EntityName, Utime};

    fn peer() -> Peer {
        Peer {
            kind: EntityKind::CLIENT,
            name: AuthName::parse("client.x").unwrap(),
            entity: EntityName::new(EntityKind::CLIENT, 7),
            addrs: AddrVec::default(),
            features: Features::PACIFIC,
            global_id: 7,
            caps: "allow r".into(),
            allow_all: false,
            expires: Utime { sec: 5, nsec: 6 },
            socket: "[::1]:99".parse().unwrap(),
            role: Role::Mon,
        }
    }

    fn said(n: u16) -> Message {
        let mut m = Message { front: vec![n as u8].into(), data: vec![1; 3].into(), ..Message::default() };
        m.header.kind = n;
        m.header.tid = u64::from(n);
        m
    }

    fn carry(f: &mut Front, h: &mut Hub) -> Vec<HubEffect> {
        let to = f.take_effects().into_iter().map(|e| match e {
            FrontEffect::ToLeader(m) => m,
            other => panic!("{other:?}"),
        });
        to.filter_map(|m| h.message(1, &m).unwrap()).collect()
    }

    #[test]
    fn sessions_wait_for_a_leader_and_are_carried_in_order() {
        let (mut f, mut h) = (Front::default(), Hub::default());
        f.open(5, peer(), Mono(0));
        f.message(5, said(15));
        f.message(5, said(16));
        assert!(f.take_effects().is_empty(), "no leader yet");
        h.link_open(1);
        f.link_open();
        let got = carry(&mut f, &mut h);
        let [HubEffect::Open(k, p), HubEffect::Message(k1, m1), HubEffect::Message(k2, m2)] = &got[..] else {
            panic!("{got:?}")
        };
        assert!(k == k1 && k == k2 && Hub::is_relayed(*k));
        assert_eq!(format!("{p:?}"), format!("{:?}", peer()));
        assert_eq!((m1, m2), (&said(15), &said(16)));
        let (link, m) = h.send(*k, said(42)).unwrap();
        assert_eq!(link, 1);
        f.from_leader(&m).unwrap();
        assert!(matches!(&f.take_effects()[..], [FrontEffect::ToClient(5, m)] if *m == said(42)));
        f.closed(5);
        assert!(matches!(&carry(&mut f, &mut h)[..], [HubEffect::Closed(c)] if c == k));
        assert!(h.send(*k, said(1)).is_none());
    }

    #[test]
    fn a_lost_link_ends_its_sessions_on_both_sides() {
        let (mut f, mut h) = (Front::default(), Hub::default());
        h.link_open(1);
        f.link_open();
        f.open(5, peer(), Mono(0));
        f.open(6, peer(), Mono(0));
        let opened = carry(&mut f, &mut h).len();
        f.link_closed();
        f.open(7, peer(), Mono(0));
        let closed: Vec<ConnKey> = f
            .take_effects()
            .iter()
            .map(|e| if let FrontEffect::CloseClient(c, _) = e { *c } else { panic!("{e:?}") })
            .collect();
        assert_eq!(closed, [5, 6], "the third waits for the next leader");
        assert_eq!((opened, h.link_closed(1).len()), (2, 2));
        assert!(!h.is_link(1));
    }

    #[test]
    fn the_leader_may_end_a_session_and_bounds_hold() {
        let (mut f, mut h) = (Front::default(), Hub::default());
        h.link_open(1);
        f.link_open();
        f.open(5, peer(), Mono(0));
        let got = carry(&mut f, &mut h);
        let HubEffect::Open(k, _) = &got[0] else { panic!() };
        let (_, m) = h.close(*k, "no right".into()).unwrap();
        f.from_leader(&m).unwrap();
        assert!(matches!(&f.take_effects()[..], [FrontEffect::CloseClient(5, _)]));
        let mut f = Front::default();
        f.open(5, peer(), Mono(0));
        (0..=HELD_MESSAGES).for_each(|_| f.message(5, said(1)));
        assert!(matches!(&f.take_effects()[..], [FrontEffect::CloseClient(5, _)]));
        assert_eq!(f.held_bytes, 0);
        f.open(6, peer(), Mono(0));
        f.expire(Mono(1), Duration::from_nanos(1));
        assert!(f.take_effects().is_empty());
        f.expire(Mono(2), Duration::from_nanos(1));
        assert!(matches!(&f.take_effects()[..], [FrontEffect::CloseClient(6, _)]));
    }

    #[test]
    fn only_the_key_of_monitors_makes_a_link() {
        let is = |n: &str| is_monitor(&AuthName::parse(n).unwrap());
        assert!(is("mon."));
        assert!(!is("mon.x") && !is("client.admin") && !is("osd.0"));
    }

    #[test]
    fn a_monitor_of_ceph_is_told_that_it_cannot_join() {
        let mut h = Hub::default();
        h.link_open(1);
        // MSG_MON_PROBE and MSG_MON_ELECTION.
        for kind in [67, 65] {
            let e = h.message(1, &said(kind)).unwrap_err();
            assert!(e.contains("cannot join"), "{e}");
        }
    }
}
