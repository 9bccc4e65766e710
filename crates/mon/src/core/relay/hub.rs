//! The leader's side of the relay.
//!
//! A relayed session is held by the bounds of a direct one: while the core holds it, its bytes are not acknowledged,
//! so its front monitor passes no more of them on and stops reading; while its answers wait for the link, the core
//! handles no message of it.

use std::collections::{BTreeMap, BTreeSet};

use base::Mono;
use wire::msg::{MRelayClock, MRelayClose, MRelayIds, MRelayKeyUsed, MRelayMessage, MRelayOpen, MRelayTaken};
use wire::{Features, Message, WireMessage};

use super::age::FrontClock;
use super::share::{ALL, Share};
use super::{TELLS_TAKEN, Taken, carried, fits, peer_of};
use crate::core::session::Peer;
use crate::state::ConnKey;

/// Most sessions on one link.
const LINK_SESSIONS: usize = 20_000;
/// Most bytes that may wait for a session until the front monitor has acknowledged others; as for a direct client.
const WAITING: usize = 256 << 20;
/// Bytes of unsent answers at which the core stops handling messages of a session.
pub const FULL: usize = 8 << 20;
/// Most bytes of held sessions on one link that are not acknowledged: half of the link's share, so that the other
/// sessions go on. What exceeds it waits within the core's bound for a session.
const UNACKNOWLEDGED: usize = ALL / 2;
/// The first key of relayed sessions; the network's own keys are lower.
const RELAYED: ConnKey = 1 << 63;

/// An effect for the leader to carry out.
#[derive(Debug)]
pub enum HubEffect {
    /// Open a relayed session, which opened at its front monitor at this time of the leader's clock.
    Open(ConnKey, Box<Peer>, Mono),
    /// Handle a message of a relayed session.
    Message(ConnKey, Message),
    /// Close a relayed session.
    Closed(ConnKey),
    /// Take ids for a link, and answer with [`Hub::ids`].
    TakeIds,
    /// Record the use of a pending key.
    KeyUsed(MRelayKeyUsed),
    /// Record the time of the monitor on this link.
    Clock(MRelayClock),
}

struct Link {
    sessions: BTreeMap<u64, ConnKey>,
    share: Share,
    taken: Taken,
    /// Bytes of held sessions that are not acknowledged yet, and their sum.
    unacknowledged: BTreeMap<u64, usize>,
    unacknowledged_sum: usize,
    clock: FrontClock,
}

impl Link {
    /// Counts received bytes of a session.
    fn received(&mut self, conn: u64, bytes: usize, held: bool) {
        if held && self.share.is_limited() && self.unacknowledged_sum + bytes <= UNACKNOWLEDGED {
            *self.unacknowledged.entry(conn).or_default() += bytes;
            self.unacknowledged_sum += bytes;
        } else {
            self.taken.note(conn, bytes);
        }
    }

    /// Counts the bytes of a session that was held as taken.
    fn release(&mut self, conn: u64) {
        if let Some(bytes) = self.unacknowledged.remove(&conn) {
            self.unacknowledged_sum -= bytes;
            self.taken.note(conn, bytes);
        }
    }

    fn acknowledgement(&mut self) -> Option<Message> {
        if self.share.is_limited() { self.taken.due() } else { None }
    }
}

/// The leader's relay links and sessions, by connection key.
#[derive(Default)]
pub struct Hub {
    next: ConnKey,
    links: BTreeMap<ConnKey, Link>,
    sessions: BTreeMap<ConnKey, (ConnKey, u64)>,
    /// Sessions whose messages shall not arrive.
    held: BTreeSet<ConnKey>,
    /// Sessions with more than [`FULL`] bytes of answers that wait.
    full: BTreeSet<ConnKey>,
    /// Sessions that became full, or no longer are.
    fullness: Vec<(ConnKey, bool)>,
    out: Vec<(ConnKey, Message)>,
}

impl Hub {
    /// True if a session is relayed.
    #[must_use]
    pub fn is_relayed(c: ConnKey) -> bool {
        c >= RELAYED
    }

    /// True if the connection is a relay link.
    #[must_use]
    pub fn is_link(&self, c: ConnKey) -> bool {
        self.links.contains_key(&c)
    }

    /// Takes the messages for links, in order.
    pub fn take_out(&mut self) -> Vec<(ConnKey, Message)> {
        std::mem::take(&mut self.out)
    }

    /// Handles the opening of a link by a front monitor.
    pub fn link_open(&mut self, link: ConnKey) {
        // Nothing is held back until the monitor says that it acknowledges relayed bytes.
        let l = Link {
            sessions: BTreeMap::new(),
            share: Share::new(false),
            taken: Taken::default(),
            unacknowledged: BTreeMap::new(),
            unacknowledged_sum: 0,
            clock: FrontClock::default(),
        };
        self.links.insert(link, l);
    }

    /// Handles the end of a link, and returns its sessions, which end with it.
    pub fn link_closed(&mut self, link: ConnKey) -> Vec<ConnKey> {
        let all: Vec<ConnKey> =
            self.links.remove(&link).map(|l| l.sessions.into_values().collect()).unwrap_or_default();
        for c in &all {
            self.sessions.remove(c);
            self.held.remove(c);
            self.full.remove(c);
        }
        all
    }

    /// Handles a front monitor's message. Any message but those of the relay is an error: a monitor of Ceph, for
    /// example, begins with probes and elections.
    pub fn message(&mut self, link: ConnKey, m: &Message, now: Mono) -> Result<Option<HubEffect>, String> {
        let bad = |e: wire::DecodeError| e.to_string();
        let Some(l) = self.links.get_mut(&link) else { return Ok(None) };
        Ok(match m.header.kind {
            MRelayOpen::KIND => self.opening(link, m, now)?,
            MRelayMessage::KIND => {
                let x = MRelayMessage::from_message(m).map_err(bad)?;
                // Bytes of ended sessions count too, until they are acknowledged.
                let key = l.sessions.get(&x.conn).copied();
                l.received(x.conn, x.message.cost(), key.is_some_and(|k| self.held.contains(&k)));
                self.out.extend(l.acknowledgement().map(|m| (link, m)));
                key.map(|k| HubEffect::Message(k, x.message))
            }
            MRelayTaken::KIND => {
                for (conn, bytes) in MRelayTaken::from_message(m).map_err(bad)?.taken {
                    l.share.taken(conn, bytes);
                }
                self.drain(link);
                None
            }
            MRelayClose::KIND => {
                let x = MRelayClose::from_message(m).map_err(bad)?;
                self.forget(link, x.conn).map(HubEffect::Closed)
            }
            MRelayIds::KIND => {
                if m.header.version >= TELLS_TAKEN {
                    l.share.limit(true);
                }
                Some(HubEffect::TakeIds)
            }
            MRelayClock::KIND => {
                let x = MRelayClock::from_message(m).map_err(bad)?;
                x.sent.inspect(|sent| l.clock.note(*sent, now));
                Some(HubEffect::Clock(x))
            }
            MRelayKeyUsed::KIND => Some(HubEffect::KeyUsed(MRelayKeyUsed::from_message(m).map_err(bad)?)),
            kind => {
                return Err(format!(
                    "message {kind} ({}) is no relay message of Belemnite's monitors; monitors of Ceph cannot join",
                    wire::msg::registry::name(kind)
                ));
            }
        })
    }

    fn forget(&mut self, link: ConnKey, conn: u64) -> Option<ConnKey> {
        let l = self.links.get_mut(&link)?;
        l.share.forget(conn);
        l.release(conn);
        let key = l.sessions.remove(&conn)?;
        self.sessions.remove(&key);
        self.held.remove(&key);
        self.full.remove(&key);
        Some(key)
    }

    /// Opens a relayed session. An unacceptable opening ends that session and not the link. Error: the opening does
    /// not even name its session, which ends the link.
    fn opening(&mut self, link: ConnKey, m: &Message, now: Mono) -> Result<Option<HubEffect>, String> {
        let conn = wire::Reader::new(&m.front).u64().map_err(|e| e.to_string())?;
        let Some(l) = self.links.get_mut(&link) else { return Ok(None) };
        let (full, twice) = (l.sessions.len() >= LINK_SESSIONS, l.sessions.contains_key(&conn));
        let peer = match MRelayOpen::from_message(m) {
            _ if twice => Err("its session is open already".to_owned()),
            _ if full => Err(format!("the monitor has {LINK_SESSIONS} sessions")),
            Ok(x) => {
                x.sent.inspect(|sent| l.clock.note(*sent, now));
                // A monitor of an earlier version does not tell the time.
                let opened = x.opened.map_or(now, |t| l.clock.here(t, now));
                peer_of(x).map(|p| (p, opened))
            }
            Err(e) => Err(e.to_string()),
        };
        match peer {
            Ok((peer, opened)) => {
                self.next += 1;
                let key = RELAYED | self.next;
                l.sessions.insert(conn, key);
                self.sessions.insert(key, (link, conn));
                Ok(Some(HubEffect::Open(key, Box::new(peer), opened)))
            }
            Err(why) => {
                tracing::warn!("mon: refusing a session of another monitor: {why}");
                let closed = self.forget(link, conn).map(HubEffect::Closed);
                let m = MRelayClose { conn, why: format!("the leader refused the session: {why}") };
                self.out.push((link, m.to_message(Features::PACIFIC)));
                Ok(closed)
            }
        }
    }

    /// Asks all other monitors for their time.
    pub fn ask_clocks(&mut self, round: u64) {
        let m = MRelayClock { round, ..MRelayClock::default() }.to_message(Features::PACIFIC);
        self.out.extend(self.links.keys().map(|l| (*l, m.clone())));
    }

    /// Sends ids to a front monitor; an empty range if there are none.
    pub fn ids(&mut self, link: ConnKey, ids: Option<(u64, u64)>) {
        let (first, end) = ids.unwrap_or_default();
        self.out.push((link, MRelayIds { first, end }.to_message(Features::PACIFIC)));
    }

    fn drain(&mut self, link: ConnKey) {
        let Some(l) = self.links.get_mut(&link) else { return };
        while let Some((conn, m)) = l.share.next() {
            self.out.push((link, carried(conn, m)));
        }
        let share = &l.share;
        let sessions = &self.sessions;
        let drained =
            |c: &ConnKey| sessions.get(c).is_none_or(|(of, conn)| *of == link && share.queued(*conn) <= FULL / 4);
        for c in self.full.extract_if(.., |c| drained(c)) {
            self.fullness.push((c, false));
        }
    }

    /// Holds or releases a session: while it is held, its front monitor passes at most its share on.
    pub fn hold(&mut self, c: ConnKey, hold: bool) {
        let Some((link, conn)) = self.sessions.get(&c).copied() else { return };
        if hold {
            self.held.insert(c);
        } else if self.held.remove(&c)
            && let Some(l) = self.links.get_mut(&link)
        {
            l.release(conn);
            self.out.extend(l.acknowledgement().map(|m| (link, m)));
        }
    }

    /// Takes the sessions whose waiting answers reached [`FULL`] (true), or fell far below it.
    pub fn take_fullness(&mut self) -> Vec<(ConnKey, bool)> {
        std::mem::take(&mut self.fullness)
    }

    /// Sends a message of the core to a session. Error: the reason why the session has to end.
    pub fn send(&mut self, c: ConnKey, message: Message) -> Result<(), String> {
        let Some((link, conn)) = self.sessions.get(&c).copied() else { return Ok(()) };
        let Some(l) = self.links.get_mut(&link) else { return Ok(()) };
        if !fits(&message) {
            return Err(format!("message {} is too long for the relay", message.header.kind));
        }
        let waits = l.share.push(conn, message);
        if waits > WAITING {
            return Err("its client does not read".into());
        }
        self.drain(link);
        let waits = self.links.get(&link).map_or(0, |l| l.share.queued(conn));
        if waits > FULL && self.full.insert(c) {
            self.fullness.push((c, true));
        }
        Ok(())
    }

    /// Ends a session.
    pub fn close(&mut self, c: ConnKey, why: String) {
        if let Some((link, conn)) = self.sessions.get(&c).copied() {
            self.forget(link, conn);
            self.out.push((link, MRelayClose { conn, why }.to_message(Features::PACIFIC)));
        }
    }
}
