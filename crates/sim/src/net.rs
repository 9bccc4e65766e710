//! The network: connections that deliver in order or break, links that can be cut one way or both, delays.
//!
//! A message on a cut link waits, as TCP repeats it, until the link is healed or an end gives up. Sessions begin
//! authenticated: authentication is not simulated. Nothing is delivered twice, because connections are TCP's; the
//! sender itself repeats operations.

use crate::queue::{MS, SEC, Time};
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Summed};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use wire::Message;

/// Index of a node in the world.
pub type NodeId = usize;
/// Key of a connection.
pub type ConnKey = u64;

/// Most messages that one direction of a connection may hold; more counts as unbounded growth.
pub const INBOX_MAX: usize = 20_000;
/// Least and most time that an end waits for the other before it gives up.
const GIVE_UP: (Time, Time) = (5 * SEC, 30 * SEC);
/// Least and most time until a host without power is noticed on an idle connection.
const KEEPALIVE: (Time, Time) = (10 * SEC, 40 * SEC);
/// Least time between connection attempts to a node that refuses them.
const REFUSED_PAUSE: Time = 100 * MS;
/// Interval at which a connection attempt over a cut link is repeated.
const SYN_REPEAT: Time = SEC;
/// Longest time between two messages of a node that end sessions.
const LOST_APART: Time = SEC / 2;
/// Longest time of a connection attempt.
const CONNECT_MAX: Time = 10 * SEC;

/// The service of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The monitor's address.
    Mon,
    /// The manager's address.
    Mgr,
    /// An OSD's public address.
    Public,
    /// An OSD's cluster address.
    Cluster,
    /// An OSD's heartbeat address on the cluster network.
    HbBack,
    /// An OSD's heartbeat address on the public network.
    HbFront,
}

/// The identity that a connecting node announces.
#[derive(Clone, Debug)]
pub struct Card {
    /// Announced entity kind.
    pub kind: EntityKind,
    /// Authenticated name.
    pub name: AuthName,
    /// Entity instance.
    pub entity: EntityName,
    /// Addresses of the node.
    pub addrs: AddrVec,
    /// Global id.
    pub global_id: u64,
}

/// An event that the network delivers to a process.
#[derive(Debug)]
pub enum Arrival {
    /// Another node connected.
    Accept(ConnKey, Service, Box<Card>),
    /// A connection attempt of the process succeeded.
    Opened(ConnKey),
    /// A connection ended; true if it was refused.
    Closed(ConnKey, bool),
    /// A message.
    Message(ConnKey, Message),
}

/// A future event of the network.
#[derive(Clone, Copy, Debug)]
pub enum NetEvent {
    /// A connection attempt reaches its target; the time is how long it has been repeated.
    Syn(ConnKey, Time),
    /// A message may have arrived at an end.
    Ready(ConnKey, usize),
    /// An end gives up, unless something was delivered since.
    GiveUp(ConnKey, usize, u64),
    /// An end of a connection breaks; true if it was refused.
    Break(ConnKey, usize, bool),
}

enum Item {
    Opened,
    Message(Message),
    Fin,
}

struct End {
    node: NodeId,
    inc: u64,
    open: bool,
    inbox: VecDeque<(Time, Item)>,
    last: Time,
    /// Grows with each delivery.
    progress: u64,
    giving_up: bool,
}

struct Conn {
    ends: [End; 2],
    target: EntityAddr,
    card: Box<Card>,
    /// True for a session between OSDs, which survives its sockets.
    lossless: bool,
}

struct Listener {
    node: NodeId,
    inc: u64,
    nonce: u32,
    service: Service,
}

/// The network of a run.
pub struct Net {
    conns: BTreeMap<ConnKey, Conn>,
    next: ConnKey,
    listeners: BTreeMap<SocketAddr, Listener>,
    /// True for hosts without power: they do not even refuse connections.
    off: Vec<bool>,
    cut: Vec<Vec<u32>>,
    slow: BTreeMap<(NodeId, NodeId), Time>,
    /// Nodes of which one message in so many to another OSD ends its session, and the time before which none does.
    losing: BTreeMap<NodeId, (u64, Time)>,
    refused: BTreeMap<(NodeId, SocketAddr), Time>,
    /// Least delay of a message, and the mean of the random delay added to it.
    delay: (Time, Time),
    slow_message: u64,
    rng: base::rng::Rng,
    pending: Vec<(Time, NetEvent)>,
    /// Number of messages delivered.
    pub delivered: u64,
    /// Longest queue of a direction so far.
    pub longest: usize,
    /// Units of work of all messages so far: one for each, and one for each 4 KiB of data.
    pub sent: u64,
    /// Description of the first message that no frame may carry.
    pub too_large: Option<String>,
}

/// A random time of mean `mean`, at most ten times that.
pub fn about(r: &mut base::rng::Rng, mean: Time) -> Time {
    // The sum of two uniform parts, and sometimes a long tail.
    let base = r.below(mean.max(1)) + r.below(mean.max(1));
    if r.chance(1, 20) { base + r.below(8 * mean.max(1)) } else { base }
}

impl Net {
    /// A network of `nodes` nodes.
    #[must_use]
    pub fn new(nodes: usize, delay: (Time, Time), slow_message: u64, seed: u64) -> Self {
        Self {
            conns: BTreeMap::new(),
            next: 1,
            listeners: BTreeMap::new(),
            off: vec![false; nodes],
            cut: vec![vec![0; nodes]; nodes],
            slow: BTreeMap::new(),
            losing: BTreeMap::new(),
            sent: 0,
            too_large: None,
            refused: BTreeMap::new(),
            delay,
            slow_message,
            rng: base::rng::Rng::new(seed),
            pending: Vec::new(),
            delivered: 0,
            longest: 0,
        }
    }

    /// Takes the events for the world's queue.
    pub fn take_events(&mut self) -> Vec<(Time, NetEvent)> {
        std::mem::take(&mut self.pending)
    }

    fn latency(&mut self, from: NodeId, to: NodeId) -> Time {
        let mut d = self.delay.0 + about(&mut self.rng, self.delay.1);
        if self.slow_message > 0 && self.rng.chance(1, self.slow_message) {
            d *= 100;
        }
        d + self.slow.get(&(from, to)).map_or(0, |s| about(&mut self.rng, *s))
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cut[from][to] > 0
    }

    /// Lets a process listen.
    pub fn listen(&mut self, addr: &EntityAddr, node: NodeId, inc: u64, service: Service) {
        if let Some(s) = addr.sock {
            self.listeners.insert(s, Listener { node, inc, nonce: addr.nonce, service });
        }
    }

    /// Connects to an address; [`Arrival::Opened`] or [`Arrival::Closed`] follows.
    pub fn connect(&mut self, node: NodeId, inc: u64, target: EntityAddr, card: Card, now: Time) -> ConnKey {
        let key = self.next;
        self.next += 1;
        let end =
            |node, inc, open| End { node, inc, open, inbox: VecDeque::new(), last: 0, progress: 0, giving_up: false };
        let to = target.sock.and_then(|s| self.listeners.get(&s)).map_or(node, |l| l.node);
        let ends = [end(node, inc, true), end(to, 0, false)];
        self.conns.insert(key, Conn { ends, target, card: Box::new(card), lossless: false });
        let wait = target.sock.and_then(|s| self.refused.get(&(node, s)).copied()).unwrap_or(0);
        let at = (now + self.latency(node, to)).max(wait);
        self.pending.push((at, NetEvent::Syn(key, 0)));
        key
    }

    /// The session of two OSDs: the one that the other began, if there is one, else a new one. Its messages arrive
    /// once and in order, although sockets break, until an end forgets the session.
    pub fn session(&mut self, node: NodeId, inc: u64, target: EntityAddr, card: Card, now: Time) -> ConnKey {
        let theirs = self
            .conns
            .iter_mut()
            .filter(|(_, c)| c.lossless && c.ends[0].open && c.ends[1].inc == 0 && c.ends[1].node == node)
            .find(|(_, c)| c.card.addrs.msgr2() == Some(&target) && card.addrs.msgr2() == Some(&c.target));
        if let Some((k, c)) = theirs {
            c.ends[1].inc = inc;
            c.ends[1].open = true;
            return *k;
        }
        let key = self.connect(node, inc, target, card, now);
        if let Some(c) = self.conns.get_mut(&key) {
            c.lossless = true;
        }
        key
    }

    /// Sends a message; on a closed connection this does nothing.
    pub fn send(&mut self, key: ConnKey, node: NodeId, inc: u64, mut m: Message, now: Time) {
        if m.data_crc.is_some_and(|c| c != base::crc::crc32c(base::crc::SEED, &m.data)) {
            self.too_large.get_or_insert_with(|| format!("node {node} sends data with another checksum"));
        }
        (m.data, m.lead, m.data_crc) = (m.whole_data(), Bytes::new(), None);
        m.sums = Summed::if_large(&m.data);
        let (front, data) = (m.front.len(), m.data.len());
        self.sent += 1 + data as u64 / 4096;
        if front > base::sizes::FRONT_MAX || data > base::sizes::DATA_MAX {
            let what = || format!("node {node} sends a message {} of {front} and {data} bytes", m.header.kind);
            self.too_large.get_or_insert_with(what);
        }
        if let Some((one_in, from)) = self.losing.get(&node).copied()
            && now >= from
            && self.conns.get(&key).is_some_and(|c| c.lossless)
            && self.rng.chance(1, one_in)
        {
            // The receiver refuses the message by ending the session; the sender learns of it. A session takes a while to
            // begin anew.
            let pause = self.rng.below(LOST_APART);
            self.losing.insert(node, (one_in, now + pause));
            if let Some(side) = self.side(key, node, inc) {
                self.push(key, node, inc, Item::Fin, now);
                self.pending.push((now, NetEvent::Break(key, side, false)));
            }
            return;
        }
        self.push(key, node, inc, Item::Message(m), now);
    }

    /// Closes a connection at one end; the other end learns of it after the messages sent before.
    pub fn close(&mut self, key: ConnKey, node: NodeId, inc: u64, now: Time) {
        self.push(key, node, inc, Item::Fin, now);
        if let Some(side) = self.side(key, node, inc) {
            self.shut(key, side);
        }
    }

    fn side(&self, key: ConnKey, node: NodeId, inc: u64) -> Option<usize> {
        self.conns.get(&key)?.ends.iter().position(|e| e.node == node && e.inc == inc && e.open)
    }

    fn push(&mut self, key: ConnKey, node: NodeId, inc: u64, item: Item, now: Time) {
        let Some(side) = self.side(key, node, inc) else { return };
        let Some(c) = self.conns.get(&key) else { return };
        let to = c.ends[1 - side].node;
        let at = now + self.latency(node, to);
        let Some(c) = self.conns.get_mut(&key) else { return };
        let e = &mut c.ends[1 - side];
        let at = at.max(e.last);
        e.last = at;
        e.inbox.push_back((at, item));
        self.longest = self.longest.max(e.inbox.len());
        self.pending.push((at, NetEvent::Ready(key, 1 - side)));
    }

    fn shut(&mut self, key: ConnKey, side: usize) {
        let Some(c) = self.conns.get_mut(&key) else { return };
        c.ends[side].open = false;
        c.ends[side].inbox.clear();
        if !c.ends[1 - side].open && c.ends[1 - side].inbox.is_empty() {
            self.conns.remove(&key);
        }
    }

    /// Ends the connections of a process that ended. If its host lost power, the other ends are not told.
    pub fn process_ended(&mut self, node: NodeId, inc: u64, power: bool, now: Time) {
        self.listeners.retain(|_, l| l.node != node || l.inc != inc);
        let mine: Vec<(ConnKey, usize)> = self
            .conns
            .iter()
            .flat_map(|(k, c)| [(*k, 0), (*k, 1)].into_iter().map(move |x| (x, c)))
            .filter(|((_, s), c)| c.ends[*s].node == node && c.ends[*s].inc == inc && c.ends[*s].open)
            .map(|(x, _)| x)
            .collect();
        for (key, side) in mine {
            if self.conns.get(&key).is_some_and(|c| c.lossless) {
                // The other end keeps trying until its map shows that the process is gone.
            } else if power {
                let wait = KEEPALIVE.0 + self.rng.below(KEEPALIVE.1 - KEEPALIVE.0);
                self.pending.push((now + wait, NetEvent::Break(key, 1 - side, false)));
            } else {
                self.push(key, node, inc, Item::Fin, now);
            }
            self.shut(key, side);
        }
    }

    /// Switches a host on or off.
    pub fn set_off(&mut self, node: NodeId, off: bool) {
        self.off[node] = off;
    }

    /// Cuts a direction of a link. Cuts are counted.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cut[from][to] += 1;
    }

    /// Undoes one cut.
    pub fn heal(&mut self, from: NodeId, to: NodeId, now: Time) {
        let c = &mut self.cut[from][to];
        *c = c.saturating_sub(1);
        if *c == 0 {
            self.wake(from, to, now);
        }
    }

    /// Undoes all cuts and delays.
    pub fn heal_all(&mut self, now: Time) {
        self.slow.clear();
        self.losing.clear();
        for a in 0..self.cut.len() {
            for b in 0..self.cut.len() {
                if std::mem::take(&mut self.cut[a][b]) > 0 {
                    self.wake(a, b, now);
                }
            }
        }
    }

    fn wake(&mut self, from: NodeId, to: NodeId, now: Time) {
        for (k, c) in &self.conns {
            for side in 0..2 {
                if c.ends[side].node == to && c.ends[1 - side].node == from && !c.ends[side].inbox.is_empty() {
                    // TCP repeats after a pause that grew while the link was cut.
                    let pause = self.rng.below(SEC);
                    self.pending.push((now + pause, NetEvent::Ready(*k, side)));
                }
            }
        }
    }

    /// Adds a mean delay of `mean` to one direction, or removes it.
    pub fn set_slow(&mut self, from: NodeId, to: NodeId, mean: Option<Time>) {
        match mean {
            Some(m) => self.slow.insert((from, to), m),
            None => self.slow.remove(&(from, to)),
        };
    }

    /// Lets one in so many messages of a node to other OSDs end their session, or none.
    pub fn set_losing(&mut self, node: NodeId, one_in: Option<u64>) {
        match one_in {
            Some(n) => self.losing.insert(node, (n, 0)),
            None => self.losing.remove(&node),
        };
    }

    /// Breaks some connections of a node, at both ends at different times.
    pub fn reset(&mut self, node: NodeId, one_in: u64, now: Time) -> usize {
        let keys: Vec<(ConnKey, usize, bool)> = self
            .conns
            .iter()
            .filter_map(|(k, c)| Some((*k, c.ends.iter().position(|e| e.node == node && e.open)?, c.lossless)))
            .collect();
        let mut n = 0;
        for (k, side, lossless) in keys {
            if !self.rng.chance(1, one_in) {
                continue;
            }
            n += 1;
            if lossless && self.rng.chance(1, 4) {
                // One end forgets the session, as if the other did not read for too long, and the other end learns of
                // it.
                let Some(inc) = self.conns.get(&k).map(|c| c.ends[side].inc) else { continue };
                self.push(k, node, inc, Item::Fin, now);
                self.pending.push((now, NetEvent::Break(k, side, false)));
            } else if lossless {
                // The session reconnects, and messages in flight arrive late.
                let pause = self.rng.below(2 * SEC);
                for e in self.conns.get_mut(&k).into_iter().flat_map(|c| &mut c.ends) {
                    e.last = e.last.max(now + pause);
                }
            } else {
                for side in 0..2 {
                    let d = self.rng.below(20 * MS);
                    self.pending.push((now + d, NetEvent::Break(k, side, false)));
                }
            }
        }
        n
    }

    /// The node at the other end of a connection.
    #[must_use]
    pub fn other(&self, key: ConnKey, node: NodeId) -> Option<NodeId> {
        let ends = &self.conns.get(&key)?.ends;
        Some(if ends[0].node == node { ends[1].node } else { ends[0].node })
    }

    /// Connections that exist at least at one end.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Handles a network event and returns its arrivals, each with node and process.
    pub fn handle(
        &mut self,
        e: NetEvent,
        now: Time,
        alive: &dyn Fn(NodeId) -> Option<u64>,
        out: &mut Vec<(NodeId, u64, Arrival)>,
    ) {
        match e {
            NetEvent::Syn(key, waited) => self.syn(key, waited, now, out),
            NetEvent::Ready(key, side) => self.ready(key, side, now, alive, out),
            NetEvent::GiveUp(key, side, progress) => {
                let Some(c) = self.conns.get_mut(&key) else { return };
                let to = &mut c.ends[side];
                to.giving_up = false;
                if to.progress != progress || to.inbox.is_empty() {
                    return;
                }
                // The message does not arrive: the sender gives up, and this end some time later.
                let later = self.rng.below(10 * SEC);
                self.pending.push((now, NetEvent::Break(key, 1 - side, false)));
                self.pending.push((now + later, NetEvent::Break(key, side, false)));
            }
            NetEvent::Break(key, side, refused) => {
                let Some(c) = self.conns.get_mut(&key) else { return };
                let e = &mut c.ends[side];
                if e.open {
                    e.open = false;
                    out.push((e.node, e.inc, Arrival::Closed(key, refused)));
                    if refused && let Some(s) = c.target.sock {
                        self.refused.insert((c.ends[side].node, s), now + REFUSED_PAUSE);
                    }
                }
                self.shut(key, side);
            }
        }
    }

    fn syn(&mut self, key: ConnKey, waited: Time, now: Time, out: &mut Vec<(NodeId, u64, Arrival)>) {
        let Some(c) = self.conns.get(&key) else { return };
        if !c.ends[0].open {
            // The other end may have accepted the session already, and must learn that it is over.
            if !c.ends[1].open {
                self.conns.remove(&key);
            }
            return;
        }
        let lossless = c.lossless;
        if lossless && c.ends[1].inc != 0 && !c.ends[1].open {
            // The other end accepted the session and ended it since, so it is not accepted again.
            return;
        }
        let (from, to) = (c.ends[0].node, c.ends[1].node);
        let l = c.target.sock.and_then(|s| self.listeners.get(&s));
        let (to, found) = l.map_or((to, None), |l| (l.node, Some((l.inc, l.nonce, l.service))));
        if self.is_cut(from, to) || self.is_cut(to, from) || (to != from && self.off[to]) {
            if waited >= CONNECT_MAX && !lossless {
                self.pending.push((now, NetEvent::Break(key, 0, false)));
            } else {
                self.pending.push((now + SYN_REPEAT, NetEvent::Syn(key, waited + SYN_REPEAT)));
            }
            return;
        }
        let back = now + self.latency(to, from);
        let Some(c) = self.conns.get_mut(&key) else { return };
        match found {
            None if lossless => self.pending.push((now + SYN_REPEAT, NetEvent::Syn(key, 0))),
            None => self.pending.push((back, NetEvent::Break(key, 0, true))),
            Some((_, nonce, _)) if nonce != c.target.nonce && lossless => {
                self.pending.push((now + SYN_REPEAT, NetEvent::Syn(key, 0)));
            }
            // Another process has the address now, as its greeting shows.
            Some((_, nonce, _)) if nonce != c.target.nonce => {
                self.pending.push((back, NetEvent::Break(key, 0, false)));
            }
            Some((inc, _, service)) => {
                c.ends[1].node = to;
                c.ends[1].inc = inc;
                c.ends[1].open = true;
                if lossless {
                    self.pending.push((now, NetEvent::Ready(key, 1)));
                }
                out.push((to, inc, Arrival::Accept(key, service, c.card.clone())));
            }
        }
    }

    /// Lets a process accept a connection: the other end learns of it.
    pub fn accepted(&mut self, key: ConnKey, node: NodeId, inc: u64, now: Time) {
        self.push(key, node, inc, Item::Opened, now);
    }

    fn ready(
        &mut self,
        key: ConnKey,
        side: usize,
        now: Time,
        alive: &dyn Fn(NodeId) -> Option<u64>,
        out: &mut Vec<(NodeId, u64, Arrival)>,
    ) {
        loop {
            let Some(c) = self.conns.get(&key) else { return };
            let e = &c.ends[side];
            let lossless = c.lossless;
            if !e.open && lossless && e.inc == 0 {
                // The session is not accepted yet.
                return;
            }
            if !e.open {
                return self.shut(key, side);
            }
            let Some((at, _)) = e.inbox.front() else { return };
            if *at > now {
                // The item has an event of its own, unless it waited for a cut link.
                return;
            }
            let gone = self.is_cut(c.ends[1 - side].node, e.node) || alive(e.node) != Some(e.inc);
            let Some(c) = self.conns.get_mut(&key) else { return };
            let e = &mut c.ends[side];
            if gone {
                if !e.giving_up && !lossless {
                    e.giving_up = true;
                    let wait = GIVE_UP.0 + self.rng.below(GIVE_UP.1 - GIVE_UP.0);
                    self.pending.push((now + wait, NetEvent::GiveUp(key, side, e.progress)));
                }
                return;
            }
            let Some((_, item)) = e.inbox.pop_front() else { return };
            e.progress += 1;
            self.delivered += 1;
            let (node, inc) = (e.node, e.inc);
            match item {
                Item::Opened => out.push((node, inc, Arrival::Opened(key))),
                Item::Message(m) => out.push((node, inc, Arrival::Message(key, m))),
                Item::Fin => {
                    e.open = false;
                    out.push((node, inc, Arrival::Closed(key, false)));
                    return self.shut(key, side);
                }
            }
        }
    }
}
