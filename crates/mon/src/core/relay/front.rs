//! The front monitor's side of the relay.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::Mono;
use wire::msg::{MRelayClock, MRelayClose, MRelayIds, MRelayMessage, MRelayOpen, MRelayTaken};
use wire::{Features, Message, WireMessage};

use super::share::Share;
use super::{TELLS_TAKEN, Taken, carried, fits, opening};
use crate::core::session::Peer;
use crate::state::ConnKey;

/// Most messages of a session that wait for a leader.
pub(super) const WAITING_MESSAGES: usize = 1024;
/// Most bytes of all sessions that wait for a leader.
const WAITING_BYTES: usize = 64 << 20;

/// An effect for the front monitor to carry out.
#[derive(Debug)]
pub enum FrontEffect {
    /// Send to a client.
    ToClient(ConnKey, Message),
    /// Close a client's connection.
    CloseClient(ConnKey, String),
    /// Release these bytes of a client: they were passed on, and the client may send more.
    Consumed(ConnKey, usize),
    /// Send to the leader.
    ToLeader(Message),
    /// Add this range of global ids, which only this monitor has.
    Ids(u64, u64),
    /// Send the leader the time, in answer to this round.
    Clock(u64),
}

/// A session that this monitor relays to the leader, or that waits for one.
struct Relayed {
    /// Time at which the session opened.
    since: Mono,
    peer: Box<Peer>,
    open: bool,
    messages: Vec<Message>,
}

/// The link to a leader.
struct Up {
    share: Share,
    taken: Taken,
    /// True if the leader acknowledges relayed bytes and expects that too; `None` until it has answered once.
    tells: Option<bool>,
}

/// The client sessions of a front monitor.
#[derive(Default)]
pub struct Front {
    sessions: BTreeMap<ConnKey, Relayed>,
    up: Option<Up>,
    waiting_bytes: usize,
    /// True while a request for ids is unanswered.
    asked: bool,
    /// True if the leader had no ids; the next tick asks again.
    ask_later: bool,
    out: VecDeque<FrontEffect>,
}

impl Front {
    /// Takes the effects, in order.
    pub fn take_effects(&mut self) -> VecDeque<FrontEffect> {
        std::mem::take(&mut self.out)
    }

    /// Number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The peer of a session.
    #[must_use]
    pub fn peer(&self, conn: ConnKey) -> Option<&Peer> {
        self.sessions.get(&conn).map(|s| &*s.peer)
    }

    fn send_to_leader(&mut self, m: &impl WireMessage) {
        self.out.push_back(FrontEffect::ToLeader(m.to_message(Features::PACIFIC)));
    }

    fn close_client(&mut self, conn: ConnKey, why: impl Into<String>) {
        self.out.push_back(FrontEffect::CloseClient(conn, why.into()));
        self.forget(conn);
    }

    fn pass_on(&mut self, conn: ConnKey, now: Mono) {
        let Some(s) = self.sessions.get_mut(&conn) else { return };
        if !s.open {
            s.open = true;
            let m = MRelayOpen { opened: Some(s.since), sent: Some(now), ..opening(conn, &s.peer) };
            let messages = std::mem::take(&mut s.messages);
            self.waiting_bytes -= messages.iter().map(Message::cost).sum::<usize>();
            self.send_to_leader(&m);
            for message in messages {
                self.send(conn, message);
            }
        }
    }

    fn send(&mut self, conn: ConnKey, message: Message) {
        let Some(up) = &mut self.up else { return };
        // The queue is bounded, because the client's connection limits the bytes that are delivered and not consumed.
        up.share.push(conn, message);
        self.drain();
    }

    fn drain(&mut self) {
        let Some(up) = &mut self.up else { return };
        while let Some((conn, m)) = up.share.next() {
            let cost = m.cost();
            self.out.push_back(FrontEffect::ToLeader(carried(conn, m)));
            if !up.share.is_limited() {
                self.out.push_back(FrontEffect::Consumed(conn, cost));
            }
        }
    }

    /// Opens a session for a client that authenticated.
    pub fn open(&mut self, conn: ConnKey, peer: Peer, now: Mono) {
        self.sessions.insert(conn, Relayed { since: now, peer: Box::new(peer), open: false, messages: Vec::new() });
        if self.up.is_some() {
            self.pass_on(conn, now);
        }
    }

    /// Handles a client's message.
    pub fn message(&mut self, conn: ConnKey, message: Message) {
        let Some(s) = self.sessions.get_mut(&conn) else { return };
        if !fits(&message) {
            let (kind, front, middle) = (message.header.kind, message.front.len(), message.middle.len());
            let name = &s.peer.principal.name;
            let why = format!(
                "message {kind} of {name} with {front} + {middle} bytes is too long to be passed on to the leader"
            );
            tracing::warn!("mon: closing the session of {name} at {}: {why}", s.peer.principal.socket);
            if s.open {
                self.send_to_leader(&MRelayClose { conn, why: why.clone() });
            }
            return self.close_client(conn, why);
        }
        if s.open {
            return self.send(conn, message);
        }
        let cost = message.cost();
        if s.messages.len() >= WAITING_MESSAGES || self.waiting_bytes + cost > WAITING_BYTES {
            return self.close_client(conn, "too much waits for a leader of the monitors");
        }
        self.waiting_bytes += cost;
        s.messages.push(message);
    }

    fn forget(&mut self, conn: ConnKey) {
        if let Some(s) = self.sessions.remove(&conn) {
            self.waiting_bytes -= s.messages.iter().map(Message::cost).sum::<usize>();
        }
        if let Some(up) = &mut self.up {
            up.share.forget(conn);
        }
    }

    /// Handles the end of a client's connection.
    pub fn closed(&mut self, conn: ConnKey) {
        if self.up.is_some() && self.sessions.get(&conn).is_some_and(|s| s.open) {
            self.send_to_leader(&MRelayClose { conn, why: "closed by the client".into() });
        }
        self.forget(conn);
    }

    /// Handles the opening of the link to a leader.
    pub fn link_open(&mut self, now: Mono) {
        self.up = Some(Up { share: Share::new(true), taken: Taken::default(), tells: None });
        // The answer also shows whether the leader acknowledges relayed bytes.
        self.asked = true;
        self.send_to_leader(&MRelayIds::default());
        let all: Vec<ConnKey> = self.sessions.keys().copied().collect();
        all.into_iter().for_each(|c| self.pass_on(c, now));
    }

    /// Asks the leader for ids, unless a request is unanswered.
    pub fn ask_ids(&mut self) {
        if self.up.is_some() && !std::mem::replace(&mut self.asked, true) {
            self.send_to_leader(&MRelayIds::default());
        }
    }

    /// Closes sessions that waited for a leader longer than `patience`, so that their clients try another monitor.
    pub fn expire(&mut self, now: Mono, patience: Duration) {
        if std::mem::take(&mut self.ask_later) {
            self.asked = false;
        }
        let due = |s: &Relayed| !s.open && now.since(s.since) > patience;
        let all: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| due(s)).map(|(c, _)| *c).collect();
        for c in all {
            self.close_client(c, "no leader of the monitors can be reached");
        }
    }

    /// Handles the end of the link: its sessions end.
    pub fn link_closed(&mut self) {
        self.up = None;
        (self.asked, self.ask_later) = (false, false);
        let lost: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| s.open).map(|(c, _)| *c).collect();
        for c in lost {
            self.close_client(c, "the monitors' leader is gone");
        }
    }

    /// Handles a message of the leader. Error: a malformed message, which ends the link.
    pub fn from_leader(&mut self, m: &Message) -> Result<(), wire::DecodeError> {
        let Some(up) = &mut self.up else { return Ok(()) };
        match m.header.kind {
            MRelayMessage::KIND => {
                let x = MRelayMessage::from_message(m)?;
                // Bytes of ended sessions count too, until they are acknowledged.
                up.taken.note(x.conn, x.message.cost());
                if up.tells == Some(true)
                    && let Some(m) = up.taken.due()
                {
                    self.out.push_back(FrontEffect::ToLeader(m));
                }
                if self.sessions.contains_key(&x.conn) {
                    self.out.push_back(FrontEffect::ToClient(x.conn, x.message));
                }
            }
            MRelayTaken::KIND => {
                for (conn, bytes) in MRelayTaken::from_message(m)?.taken {
                    let n = up.share.taken(conn, bytes);
                    if n > 0 {
                        self.out.push_back(FrontEffect::Consumed(conn, n));
                    }
                }
                self.drain();
            }
            MRelayClose::KIND => {
                let x = MRelayClose::from_message(m)?;
                if self.sessions.contains_key(&x.conn) {
                    self.close_client(x.conn, x.why);
                }
            }
            MRelayIds::KIND => {
                let x = MRelayIds::from_message(m)?;
                self.understood(m.header.version >= TELLS_TAKEN);
                if x.end > x.first {
                    self.asked = false;
                    self.out.push_back(FrontEffect::Ids(x.first, x.end));
                } else {
                    self.ask_later = true;
                }
            }
            MRelayClock::KIND => self.out.push_back(FrontEffect::Clock(MRelayClock::from_message(m)?.round)),
            // A leader of a later version may send other messages.
            kind => tracing::debug!("mon: ignoring unknown message {kind} of the leader"),
        }
        Ok(())
    }

    /// Records whether the leader acknowledges relayed bytes. If it does not, the bytes in flight are released.
    fn understood(&mut self, tells: bool) {
        let Some(up) = &mut self.up else { return };
        if up.tells.replace(tells).is_some() || tells {
            return;
        }
        let sent = up.share.under_way_by_session();
        up.share.limit(false);
        self.out.extend(sent.into_iter().map(|(c, n)| FrontEffect::Consumed(c, n)));
        self.drain();
    }
}
