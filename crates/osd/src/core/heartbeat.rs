//! Heartbeats: the choice of peers, pings and their answers, and failure reports.
//!
//! Each peer has two links, over the back (cluster) and front (public) network; both carry the same pings. A peer whose
//! oldest unanswered ping is older than the grace period on either link is reported to the monitor.
//!
//! A link that breaks is opened again at once. A peer that refuses the connection is reported immediately, since no
//! process listens there; the monitor asks for no other witness. A silent address or a full backlog refuses nothing.
//! A peer whose other link stands and answers is alive, whatever refuses the connection, and is not reported so.
//!
//! Invariants:
//!  1. A failed peer is reported once, and once more if it then refuses a connection. The report is cancelled when the
//!     peer answers again or is no longer watched, and repeated when the monitor session is renewed.
//!  2. Two rounds of pings are half an interval apart at least, an interval at most, and by chance between, so that
//!     OSDs do not fall into step.
//!  3. Every up OSD that shares a PG with this one is a peer, whatever the number.
//!  4. A link is opened at most `AGAIN.len()` times between two rounds of pings, whatever the peer does.
//!
//! Tests: `src/core/heartbeat/tests.rs`; `tick` asserts the second.

use super::pingtime::PingTimes;
use base::rng::Rng;
use base::{AddrVec, Epoch, Mono, Now, OsdId, Utime, id::Uuid};
use cluster::OsdMap;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::msg::{MOsdFailure, MOsdPing, PING_PAD, failure_flags, ping_op};
use wire::types::{HbPingTime, Span};

/// Longest time between two rounds of pings (`osd_heartbeat_interval`).
pub const INTERVAL: Duration = Duration::from_secs(6);
/// Silence after which a peer is reported (`osd_heartbeat_grace`).
pub const GRACE: Duration = Duration::from_secs(20);
/// Least number of watched peers, if there are so many (`osd_heartbeat_min_peers`).
pub const PEERS_MIN: usize = 10;
/// Least number of hosts among the peers, if there are so many (`mon_osd_min_down_reporters`): reports of one
/// host count as one.
pub const HOSTS_MIN: usize = 2;
/// Pauses before the attempts to open a broken link again. A process that dies closes one socket after the other, so
/// its listener may accept the first attempts.
const AGAIN: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];
/// Time that a peer which refuses a connection has to answer on its other link. The attempts above last longer.
const DOUBT: Duration = Duration::from_millis(500);
/// Network of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// Cluster network.
    Back,
    /// Public network.
    Front,
}

/// Both links.
pub const LINKS: [Link; 2] = [Link::Back, Link::Front];

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Connect a link; [`Heartbeats::handle_open`] or [`Heartbeats::handle_closed`] follows.
    Connect {
        /// Peer.
        osd: OsdId,
        /// Link.
        link: Link,
        /// Heartbeat addresses of the peer on this link.
        addrs: AddrVec,
    },
    /// Drop a link.
    Close {
        /// Peer.
        osd: OsdId,
        /// Link.
        link: Link,
    },
    /// Send on a link, if it is open.
    Ping {
        /// Peer.
        osd: OsdId,
        /// Link.
        link: Link,
        /// The ping.
        ping: Box<MOsdPing>,
    },
    /// Report a failure to the monitor, or cancel it.
    Failure(Box<MOsdFailure>),
}

#[derive(Debug, Default)]
struct LinkState {
    open: bool,
    connecting: bool,
    /// Stamp and sending time of the oldest unanswered ping.
    unanswered: Option<(Utime, Mono)>,
    /// Attempts to open the link again since it broke.
    tries: usize,
    /// Time of the next such attempt.
    again: Option<Mono>,
    last_rx: Option<Mono>,
    times: PingTimes,
}

#[derive(Debug)]
struct Peer {
    up_from: Epoch,
    client_addrs: AddrVec,
    addrs: [AddrVec; 2],
    links: [LinkState; 2],
    reported: bool,
    /// Reported as one that refuses connections.
    refused: bool,
    /// Reported when this OSD was marked down, and not reached since.
    missed: bool,
}

/// Heartbeat machine of an OSD; see the module.
pub struct Heartbeats {
    me: OsdId,
    fsid: Uuid,
    rng: Rng,
    peers: BTreeMap<OsdId, Peer>,
    /// OSDs that share PGs with this one.
    pg_peers: BTreeSet<OsdId>,
    interval: Duration,
    grace: Duration,
    /// True while the map shows us up, so that our reports count.
    reporting: bool,
    next_round: Mono,
    /// Time before which no broken link is to be opened; `None` if none is.
    next_again: Option<Mono>,
    out: Vec<Output>,
}

fn idx(l: Link) -> usize {
    match l {
        Link::Back => 0,
        Link::Front => 1,
    }
}

fn other(l: Link) -> Link {
    match l {
        Link::Back => Link::Front,
        Link::Front => Link::Back,
    }
}

fn earlier(a: Option<Mono>, b: Option<Mono>) -> Option<Mono> {
    a.into_iter().chain(b).min()
}

/// Opens the broken links of a peer whose next attempt is due. Returns the time of the next one.
fn open_due(osd: OsdId, p: &mut Peer, now: Mono, out: &mut Vec<Output>) -> Option<Mono> {
    for l in LINKS {
        if p.links[idx(l)].again.take_if(|t| *t <= now).is_some() {
            out.extend(connect(osd, l, p));
        }
    }
    p.links.iter().filter_map(|s| s.again).min()
}

impl LinkState {
    /// Plans the next attempt to open the link, if there is one left.
    fn try_again(&mut self, now: Mono) {
        self.again = AGAIN.get(self.tries).map(|pause| now + *pause);
        self.tries += 1;
    }

    /// True if the peer has had no time yet to answer on this open link, or has answered.
    fn may_live(&self, now: Mono) -> bool {
        self.open && self.unanswered.is_none_or(|(_, sent)| now.since(sent) < DOUBT)
    }
}

impl Heartbeats {
    /// Heartbeats of OSD `me`.
    #[must_use]
    pub fn new(me: OsdId, fsid: Uuid, seed: u64) -> Self {
        Self {
            me,
            fsid,
            rng: Rng::new(seed),
            peers: BTreeMap::new(),
            pg_peers: BTreeSet::new(),
            interval: INTERVAL,
            grace: GRACE,
            reporting: true,
            next_round: Mono(0),
            next_again: None,
            out: Vec::new(),
        }
    }

    /// Changes the ping interval and the grace period.
    pub fn set_times(&mut self, interval: Duration, grace: Duration) {
        self.interval = interval.max(Duration::from_millis(100));
        self.grace = grace;
    }

    /// Takes the pending actions.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Switches failure reports on or off. They are off while the map shows us down.
    pub fn set_reporting(&mut self, on: bool) {
        if on && !self.reporting {
            self.handle_mon_session();
        }
        if !on && self.reporting {
            self.peers.values_mut().for_each(|p| p.missed = p.reported);
        }
        self.reporting = on;
    }

    /// Sets the OSDs that share PGs with this one. [`Heartbeats::handle_map`] must follow.
    pub fn set_pg_peers(&mut self, peers: BTreeSet<OsdId>) {
        self.pg_peers = peers;
    }

    /// Peers to watch: all that share PGs, the next and the previous OSD by number, and others until there are enough
    /// peers and hosts.
    fn choose(&self, map: &OsdMap) -> BTreeSet<OsdId> {
        let me = self.me;
        let up: Vec<OsdId> = (0..map.max_osd).map(OsdId).filter(|o| *o != me && map.is_up(*o)).collect();
        if up.len() <= PEERS_MIN {
            return up.into_iter().collect();
        }
        let mut want: BTreeSet<OsdId> = self.pg_peers.iter().copied().filter(|o| *o != me && map.is_up(*o)).collect();
        // In the order of numbers, from the next OSD round to the previous one.
        let at = up.partition_point(|o| *o < me);
        let ring = || up.iter().cycle().skip(at).take(up.len()).copied();
        want.extend(ring().next());
        want.extend(ring().last());
        let mut hosts: BTreeSet<Option<i32>> = want.iter().map(|o| map.crush.parent_of(o.0)).collect();
        for o in ring() {
            if hosts.len() >= HOSTS_MIN {
                break;
            }
            if hosts.insert(map.crush.parent_of(o.0)) {
                want.insert(o);
            }
        }
        for o in ring() {
            if want.len() >= PEERS_MIN {
                break;
            }
            want.insert(o);
        }
        want
    }

    /// Handles a new map or changed PGs: peers are added, removed or get new addresses. `active` tells whether
    /// this OSD watches peers.
    pub fn handle_map(&mut self, map: &OsdMap, active: bool) {
        let want = if active { self.choose(map) } else { BTreeSet::new() };
        let gone: Vec<OsdId> = self
            .peers
            .iter()
            .filter(|(o, p)| !want.contains(o) || map.info(**o).up_from != p.up_from)
            .map(|(o, _)| *o)
            .collect();
        for o in gone {
            if let Some(p) = self.peers.remove(&o) {
                if p.reported && active && map.is_up(o) && map.info(o).up_from == p.up_from {
                    self.out.push(failure(self.fsid, o, &p, map.epoch, failure_flags::ALIVE, 0));
                }
                for l in LINKS {
                    if p.links[idx(l)].open || p.links[idx(l)].connecting {
                        self.out.push(Output::Close { osd: o, link: l });
                    }
                }
            }
        }
        for o in want {
            if self.peers.contains_key(&o) {
                continue;
            }
            let up_from = map.info(o).up_from;
            let mut peer = Peer {
                up_from,
                client_addrs: map.client_addr(o).cloned().unwrap_or_default(),
                addrs: [
                    map.hb_back_addr(o).cloned().unwrap_or_default(),
                    map.hb_front_addr(o).cloned().unwrap_or_default(),
                ],
                links: [LinkState::default(), LinkState::default()],
                reported: false,
                refused: false,
                missed: false,
            };
            for l in LINKS {
                self.out.extend(connect(o, l, &mut peer));
            }
            self.peers.insert(o, peer);
        }
    }

    /// Time of the next [`Heartbeats::tick`] with work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        (!self.peers.is_empty()).then(|| self.next_again.map_or(self.next_round, |t| t.min(self.next_round)))
    }

    /// Opens the broken links whose next attempt is due.
    fn reconnect(&mut self, now: Mono) {
        if self.next_again.is_none_or(|t| t > now) {
            return;
        }
        self.next_again = None;
        for (&osd, p) in &mut self.peers {
            let later = open_due(osd, p, now, &mut self.out);
            self.next_again = earlier(self.next_again, later);
        }
    }

    /// Handles elapsed time: opens broken links, sends a round of pings and reports silent peers.
    pub fn tick(&mut self, now: Now, epoch: Epoch, up_from: Epoch) {
        self.reconnect(now.mono);
        if self.peers.is_empty() || now.mono < self.next_round {
            return;
        }
        // After the process itself was stopped, it must not report all its peers.
        let asleep = self.next_round > Mono(0) && now.mono.since(self.next_round) > self.interval;
        if asleep {
            tracing::warn!(late = ?now.mono.since(self.next_round), "heartbeats are late because this process did not run");
            for s in self.peers.values_mut().flat_map(|p| &mut p.links) {
                s.unanswered = s.unanswered.map(|_| (now.wall, now.mono));
            }
        }
        let half = self.interval.as_nanos() as u64 / 2;
        let grace = self.grace;
        self.next_round = now.mono + Duration::from_nanos(half + self.rng.below(half));
        debug_assert!(self.next_round >= now.mono + self.interval / 2 && self.next_round < now.mono + self.interval);
        for (&osd, p) in &mut self.peers {
            let mut worst: Option<Duration> = None;
            for l in LINKS {
                let s = &mut p.links[idx(l)];
                if let Some((_, sent)) = s.unanswered {
                    worst = worst.max(Some(now.mono - sent));
                }
            }
            if let Some(silent) = worst.filter(|w| *w >= grace)
                && !p.reported
                && self.reporting
            {
                p.reported = true;
                self.out.push(failure(self.fsid, osd, p, epoch, failure_flags::FAILED, silent.as_secs() as i32));
            }
            for l in LINKS {
                if p.addrs[idx(l)].0.is_empty() {
                    continue;
                }
                self.out.extend(connect(osd, l, p));
                let s = &mut p.links[idx(l)];
                s.again = None;
                s.unanswered.get_or_insert((now.wall, now.mono));
                if s.open {
                    s.tries = 0;
                    let ping = Box::new(self::ping(self.fsid, epoch, up_from, now));
                    self.out.push(Output::Ping { osd, link: l, ping });
                }
            }
        }
        self.next_again = None;
    }

    /// Handles an opened link, which the next round uses.
    pub fn handle_open(&mut self, osd: OsdId, link: Link, now: Now, epoch: Epoch, up_from: Epoch) {
        if let Some(p) = self.peers.get_mut(&osd) {
            let s = &mut p.links[idx(link)];
            s.open = true;
            s.connecting = false;
            let ping = Box::new(ping(self.fsid, epoch, up_from, now));
            s.unanswered.get_or_insert((now.wall, now.mono));
            self.out.push(Output::Ping { osd, link, ping });
        }
    }

    /// Handles a link that closed or could not be opened. `refused` means that no process listens there.
    pub fn handle_closed(&mut self, osd: OsdId, link: Link, refused: bool, now: Now, epoch: Epoch, up_from: Epoch) {
        let Some(p) = self.peers.get_mut(&osd) else { return };
        let s = &mut p.links[idx(link)];
        let was_open = std::mem::take(&mut s.open);
        s.connecting = false;
        if !refused {
            // A link that did not break, but can't be opened, is tried with each round.
            if was_open || s.tries > 0 {
                s.try_again(now.mono);
            }
        } else if self.reporting && !p.refused {
            let elsewhere = &mut p.links[idx(other(link))];
            if elsewhere.may_live(now.mono) {
                if elsewhere.unanswered.is_none() {
                    elsewhere.unanswered = Some((now.wall, now.mono));
                    let ping = Box::new(ping(self.fsid, epoch, up_from, now));
                    self.out.push(Output::Ping { osd, link: other(link), ping });
                }
                p.links[idx(link)].try_again(now.mono);
            } else {
                (p.reported, p.refused) = (true, true);
                let flags = failure_flags::FAILED | failure_flags::IMMEDIATE;
                let failed_for = self.grace.as_secs() as i32 + 1;
                self.out.push(failure(self.fsid, osd, p, epoch, flags, failed_for));
            }
        }
        let later = open_due(osd, p, now.mono, &mut self.out);
        self.next_again = earlier(self.next_again, later);
    }

    /// Handles a peer's answer.
    pub fn handle_reply(&mut self, osd: OsdId, link: Link, reply: &MOsdPing, now: Now, epoch: Epoch) {
        let Some(p) = self.peers.get_mut(&osd) else { return };
        let s = &mut p.links[idx(link)];
        s.last_rx = Some(now.mono);
        if let Ok(sent) = u64::try_from(reply.mono_ping_stamp.0)
            && sent > 0
            && sent <= now.mono.0
        {
            s.times.add(now.mono.since(Mono(sent)), now.mono);
        }
        if s.unanswered.is_some_and(|(stamp, _)| reply.ping_stamp >= stamp) {
            s.unanswered = None;
        }
        let grace = self.grace;
        let well = p.links.iter().all(|s| s.unanswered.is_none_or(|(_, at)| now.mono - at < grace));
        p.missed &= !(well && p.links.iter().all(|s| s.unanswered.is_none()));
        if p.reported && well {
            (p.reported, p.refused) = (false, false);
            let f = failure(self.fsid, osd, p, epoch, failure_flags::ALIVE, 0);
            self.out.push(f);
        }
    }

    /// Handles a new monitor session: failures are reported again with the next round.
    pub fn handle_mon_session(&mut self) {
        for p in self.peers.values_mut() {
            (p.reported, p.refused) = (false, false);
        }
    }

    /// Watched OSDs.
    #[must_use]
    pub fn peers(&self) -> Vec<OsdId> {
        self.peers.keys().copied().collect()
    }

    /// Peers that this OSD had reported when it was marked down, which are up and have not answered since. The map that
    /// shows them down or started anew ends that.
    #[must_use]
    pub fn missed(&self) -> Vec<OsdId> {
        self.peers.iter().filter(|(_, p)| p.missed).map(|(o, _)| *o).collect()
    }

    /// Number of peers that answered within the grace period on both links, and of all peers.
    #[must_use]
    pub fn health(&self, now: Now) -> (usize, usize) {
        let fresh = |s: &LinkState| s.last_rx.is_some_and(|t| now.mono.since(t) < self.grace);
        let well = self
            .peers
            .values()
            .filter(|p| LINKS.iter().all(|l| p.addrs[idx(*l)].0.is_empty() || fresh(&p.links[idx(*l)])))
            .count();
        (well, self.peers.len())
    }

    /// Ping round-trip times, by peer.
    #[must_use]
    pub fn ping_times(&self, now: Now) -> BTreeMap<OsdId, HbPingTime> {
        let mut out = BTreeMap::new();
        for (o, p) in &self.peers {
            let (b, f) = (p.links[0].times.figures(), p.links[1].times.figures());
            if b.is_none() && f.is_none() {
                continue;
            }
            let (b, f) = (b.unwrap_or_default(), f.unwrap_or_default());
            let t = HbPingTime {
                last_update: now.wall.sec,
                back_pingtime: b.mean,
                back_min: b.min,
                back_max: b.max,
                back_last: b.last,
                front_pingtime: f.mean,
                front_min: f.min,
                front_max: f.max,
                front_last: f.last,
            };
            out.insert(*o, t);
        }
        out
    }
}

fn connect(osd: OsdId, link: Link, p: &mut Peer) -> Option<Output> {
    let addrs = p.addrs[idx(link)].clone();
    let s = &mut p.links[idx(link)];
    if s.open || s.connecting || addrs.msgr2().is_none() {
        return None;
    }
    s.connecting = true;
    Some(Output::Connect { osd, link, addrs })
}

fn failure(fsid: Uuid, target: OsdId, p: &Peer, epoch: Epoch, flags: u8, failed_for: i32) -> Output {
    Output::Failure(Box::new(MOsdFailure {
        fsid,
        target_osd: target,
        target_addrs: p.client_addrs.clone(),
        epoch,
        flags,
        failed_for,
        ..MOsdFailure::default()
    }))
}

fn span(m: Mono) -> Span {
    Span(i64::try_from(m.0).unwrap_or(i64::MAX))
}

fn ping(fsid: Uuid, map_epoch: Epoch, up_from: Epoch, now: Now) -> MOsdPing {
    MOsdPing {
        fsid,
        map_epoch,
        op: ping_op::PING,
        ping_stamp: now.wall,
        up_from,
        mono_send_stamp: span(now.mono),
        pad: PING_PAD,
        ..MOsdPing::default()
    }
}

/// Answer to a peer's ping.
#[must_use]
pub fn answer(fsid: Uuid, ping: &MOsdPing, map_epoch: Epoch, up_from: Epoch, now: Now) -> MOsdPing {
    MOsdPing {
        fsid,
        map_epoch,
        op: ping_op::PING_REPLY,
        ping_stamp: ping.ping_stamp,
        up_from,
        mono_ping_stamp: ping.mono_send_stamp,
        mono_send_stamp: span(now.mono),
        pad: PING_PAD,
        ..MOsdPing::default()
    }
}

#[cfg(test)]
mod tests;
