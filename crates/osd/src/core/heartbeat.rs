//! Heartbeats: who is pinged, who answered, who is reported.
//!
//! Each peer has two links, over the back (cluster) and front (public) network; both carry the same pings. A peer whose
//! oldest unanswered ping is older than the grace period on either link is reported to the monitor; one that refuses a
//! connection is reported at once.
//!
//! Invariants:
//!  1. A failed peer is reported once, until it answers again (then the report is cancelled) or the monitor session is
//!     renewed (then it is reported again). A report about a peer that is not watched any more is cancelled.
//!  2. Pings go out at most once per interval, with jitter so that OSDs do not fall into step.
//!  3. Every up OSD that shares a PG with this one is a peer, whatever the number.

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
/// Peers to watch at least, if there are so many (`osd_heartbeat_min_peers`).
pub const PEERS_MIN: usize = 10;
/// Hosts that the peers are spread over at least, if there are so many (`mon_osd_min_down_reporters`): reports of one
/// host are one witness.
pub const HOSTS_MIN: usize = 2;
/// Which network a link uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// Cluster network.
    Back,
    /// Public network.
    Front,
}

/// Both links.
pub const LINKS: [Link; 2] = [Link::Back, Link::Front];

/// What the host has to do.
#[derive(Debug)]
pub enum Output {
    /// Connect a link; [`Heartbeats::handle_open`] or [`Heartbeats::handle_closed`] follows.
    Connect {
        /// Peer.
        osd: OsdId,
        /// Link.
        link: Link,
        /// Its heartbeat addresses.
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
    /// Tell the monitor.
    Failure(Box<MOsdFailure>),
}

#[derive(Debug, Default)]
struct LinkState {
    open: bool,
    connecting: bool,
    /// Oldest ping without an answer: its stamp and when it was sent.
    unanswered: Option<(Utime, Mono)>,
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
}

/// See the module.
pub struct Heartbeats {
    me: OsdId,
    fsid: Uuid,
    rng: Rng,
    peers: BTreeMap<OsdId, Peer>,
    /// OSDs that share PGs with this one.
    pg_peers: BTreeSet<OsdId>,
    interval: Duration,
    grace: Duration,
    /// The map shows us up: our word counts.
    reporting: bool,
    next_round: Mono,
    out: Vec<Output>,
}

fn idx(l: Link) -> usize {
    match l {
        Link::Back => 0,
        Link::Front => 1,
    }
}

impl Heartbeats {
    /// For OSD `me`.
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
            out: Vec::new(),
        }
    }

    /// Changes how often peers are pinged and when a silent one is reported.
    pub fn set_times(&mut self, interval: Duration, grace: Duration) {
        self.interval = interval.max(Duration::from_millis(100));
        self.grace = grace;
    }

    /// What is to be done.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Whether failures are reported: not while the map shows us down ourselves.
    pub fn set_reporting(&mut self, on: bool) {
        if on && !self.reporting {
            self.handle_mon_session();
        }
        self.reporting = on;
    }

    /// The OSDs that share PGs with this one; then [`Heartbeats::handle_map`].
    pub fn set_pg_peers(&mut self, peers: BTreeSet<OsdId>) {
        self.pg_peers = peers;
    }

    /// Who is watched: all that share PGs, the neighbours by number, and others until there are enough and enough hosts.
    fn choose(&self, map: &OsdMap) -> BTreeSet<OsdId> {
        let me = self.me;
        let up: Vec<OsdId> = (0..map.max_osd).map(OsdId).filter(|o| *o != me && map.is_up(*o)).collect();
        if up.len() <= PEERS_MIN {
            return up.into_iter().collect();
        }
        let mut want: BTreeSet<OsdId> = self.pg_peers.iter().copied().filter(|o| *o != me && map.is_up(*o)).collect();
        // From the next by number on, round to the previous.
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

    /// A new map, or other PGs: peers come, go or have new addresses. `active`: whether this OSD watches at all.
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
            };
            for l in LINKS {
                self.out.extend(connect(o, l, &mut peer));
            }
            self.peers.insert(o, peer);
        }
    }

    /// When [`Heartbeats::tick`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        (!self.peers.is_empty()).then_some(self.next_round)
    }

    /// Lets time pass: a round of pings, and reports of the silent.
    pub fn tick(&mut self, now: Now, epoch: Epoch, up_from: Epoch) {
        if self.peers.is_empty() || now.mono < self.next_round {
            return;
        }
        // We slept, not they: a process that was stopped must not report everybody else.
        let asleep = self.next_round > Mono(0) && now.mono.since(self.next_round) > self.interval;
        if asleep {
            tracing::warn!(late = ?now.mono.since(self.next_round), "heartbeats are late: this process did not run");
            for s in self.peers.values_mut().flat_map(|p| &mut p.links) {
                s.unanswered = s.unanswered.map(|_| (now.wall, now.mono));
            }
        }
        let half = self.interval.as_nanos() as u64 / 2;
        let grace = self.grace;
        self.next_round = now.mono + Duration::from_nanos(half + self.rng.below(half));
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
                s.unanswered.get_or_insert((now.wall, now.mono));
                if s.open {
                    let ping = Box::new(self::ping(self.fsid, epoch, up_from, now));
                    self.out.push(Output::Ping { osd, link: l, ping });
                }
            }
        }
    }

    /// A link is open: it is used with the next round.
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

    /// A link closed or could not be made; `refused`: nobody listens there.
    pub fn handle_closed(&mut self, osd: OsdId, link: Link, refused: bool, epoch: Epoch) {
        if let Some(p) = self.peers.get_mut(&osd) {
            let s = &mut p.links[idx(link)];
            s.open = false;
            s.connecting = false;
            if refused && !p.reported && self.reporting {
                p.reported = true;
                let f = failure(
                    self.fsid,
                    osd,
                    p,
                    epoch,
                    failure_flags::FAILED | failure_flags::IMMEDIATE,
                    self.grace.as_secs() as i32 + 1,
                );
                self.out.push(f);
            }
        }
    }

    /// A peer answered.
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
        if p.reported && well {
            p.reported = false;
            let f = failure(self.fsid, osd, p, epoch, failure_flags::ALIVE, 0);
            self.out.push(f);
        }
    }

    /// A new monitor session: what was reported is reported again with the next round.
    pub fn handle_mon_session(&mut self) {
        for p in self.peers.values_mut() {
            p.reported = false;
        }
    }

    /// OSDs watched now.
    #[must_use]
    pub fn peers(&self) -> Vec<OsdId> {
        self.peers.keys().copied().collect()
    }

    /// Peers that answered within the grace on both links, and all.
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

    /// How long pings took, by peer.
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

/// The answer to a peer's ping.
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
mod tests {
    use super::*;
    use base::EntityAddr;
    use cluster::Incremental;
    use cluster::osdmap::osd_state;

    const FSID: Uuid = Uuid([3; 16]);
    const ME: OsdId = OsdId(5);

    fn at(s: u64) -> Now {
        Now { mono: Mono((1000 + s) * 1_000_000_000), wall: Utime { sec: 1000 + s as u32, nsec: 0 } }
    }

    fn change(m: &OsdMap, f: impl FnOnce(&mut Incremental)) -> OsdMap {
        let mut inc = Incremental::new(FSID, m.epoch.next(), Utime { sec: 1, nsec: 0 });
        f(&mut inc);
        m.apply(&inc).unwrap()
    }

    fn up(n: i32, per_host: i32) -> OsdMap {
        let mut m = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
        m.set_max_osd(n).unwrap();
        let types = [(0, "osd"), (1, "host"), (11, "root")];
        let mut crush = cluster::crush::CrushMap {
            type_names: types.into_iter().map(|(i, t)| (i, t.to_owned())).collect(),
            ..Default::default()
        };
        crush.add_bucket("default", "root").unwrap();
        for o in 0..n {
            let place = [("root".to_owned(), "default".to_owned()), ("host".to_owned(), format!("h{}", o / per_host))];
            crush.insert_item(o, 0x10000, &format!("osd.{o}"), &place.into()).unwrap();
        }
        m.crush = std::sync::Arc::new(crush);
        change(&m, |i| {
            for o in 0..n {
                let a: AddrVec = EntityAddr::msgr2(([127, 0, 0, 1], 7000 + o as u16).into(), 1).into();
                i.new_up_client.insert(OsdId(o), a.clone());
                i.new_up_cluster.insert(OsdId(o), a.clone());
                i.new_hb_back_up.insert(OsdId(o), a.clone());
                i.new_hb_front_up.insert(OsdId(o), a);
            }
        })
    }

    fn watching(m: &OsdMap) -> Heartbeats {
        let mut h = Heartbeats::new(ME, FSID, 1);
        h.handle_map(m, true);
        for o in h.peers() {
            for l in LINKS {
                h.handle_open(o, l, at(0), m.epoch, m.info(ME).up_from);
            }
        }
        h
    }

    fn answer_all(h: &mut Heartbeats, m: &OsdMap, now: Now, but: &[OsdId]) {
        for o in h.peers().into_iter().filter(|o| !but.contains(o)) {
            for l in LINKS {
                let p = ping(FSID, m.epoch, Epoch(2), now);
                let r = answer(FSID, &p, m.epoch, Epoch(2), now);
                h.handle_reply(o, l, &r, now, m.epoch);
            }
        }
    }

    fn failures(h: &mut Heartbeats) -> Vec<(i32, u8)> {
        let all = h.take_outputs();
        all.into_iter()
            .filter_map(|o| if let Output::Failure(f) = o { Some((f.target_osd.0, f.flags)) } else { None })
            .collect()
    }

    #[test]
    fn peers_are_those_of_the_pgs_the_neighbours_and_another_host() {
        let m = up(40, 20);
        let mut h = Heartbeats::new(ME, FSID, 1);
        h.set_pg_peers([OsdId(13), OsdId(17), OsdId(99)].into());
        h.handle_map(&m, true);
        let p = h.peers();
        assert_eq!(p.len(), PEERS_MIN);
        for want in [13, 17, 4, 6] {
            assert!(p.contains(&OsdId(want)), "{want} in {p:?}");
        }
        assert!(p.iter().any(|o| o.0 >= 20), "an OSD of the other host: {p:?}");
        // All that share PGs are watched, however many.
        h.set_pg_peers((8..35).map(OsdId).collect());
        h.handle_map(&m, true);
        assert!((8..35).all(|o| h.peers().contains(&OsdId(o))));
        h.handle_map(&m, false);
        assert!(h.peers().is_empty());
    }

    #[test]
    fn the_silent_are_reported_once_and_taken_back_when_they_answer() {
        let m = up(8, 2);
        let mut h = watching(&m);
        let quiet = OsdId(2);
        let mut seen = Vec::new();
        for s in 0..60 {
            h.tick(at(s), m.epoch, Epoch(2));
            answer_all(&mut h, &m, at(s), &[quiet]);
            seen.extend(failures(&mut h).into_iter().map(|f| (s, f)));
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(seen[0].1, (2, failure_flags::FAILED));
        assert!((20..=27).contains(&seen[0].0), "after the grace: {seen:?}");
        answer_all(&mut h, &m, at(60), &[]);
        assert_eq!(failures(&mut h), vec![(2, failure_flags::ALIVE)]);
    }

    #[test]
    fn a_report_about_one_that_is_no_longer_watched_is_withdrawn() {
        let m = up(30, 10);
        let mut h = Heartbeats::new(ME, FSID, 1);
        h.set_pg_peers([OsdId(25)].into());
        h.handle_map(&m, true);
        h.handle_closed(OsdId(25), Link::Back, true, m.epoch);
        assert_eq!(failures(&mut h), vec![(25, failure_flags::FAILED | failure_flags::IMMEDIATE)]);
        h.set_pg_peers([].into());
        h.handle_map(&m, true);
        assert_eq!(failures(&mut h), vec![(25, failure_flags::ALIVE)]);
        // But not if the map has it down meanwhile.
        h.set_pg_peers([OsdId(25)].into());
        h.handle_map(&m, true);
        h.handle_closed(OsdId(25), Link::Back, true, m.epoch);
        failures(&mut h);
        let m = change(&m, |i| {
            i.new_state.insert(OsdId(25), osd_state::UP);
        });
        h.handle_map(&m, true);
        assert_eq!(failures(&mut h), vec![]);
    }

    #[test]
    fn a_process_that_was_stopped_blames_nobody() {
        let m = up(6, 1);
        let mut h = watching(&m);
        for s in 0..10 {
            h.tick(at(s), m.epoch, Epoch(2));
        }
        failures(&mut h);
        h.tick(at(300), m.epoch, Epoch(2));
        assert_eq!(failures(&mut h), vec![]);
        // From then on the grace counts anew.
        let mut seen = Vec::new();
        for s in 301..340 {
            h.tick(at(s), m.epoch, Epoch(2));
            seen.extend(failures(&mut h).into_iter().map(|f| (s, f)));
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
        assert!(seen.iter().all(|(s, _)| *s >= 320), "{seen:?}");
    }

    #[test]
    fn who_is_down_itself_reports_nobody_until_it_is_up() {
        let m = up(6, 1);
        let mut h = watching(&m);
        h.set_reporting(false);
        for s in 0..40 {
            h.tick(at(s), m.epoch, Epoch(2));
        }
        h.handle_closed(OsdId(1), Link::Back, true, m.epoch);
        assert_eq!(failures(&mut h), vec![]);
        assert_eq!(h.health(at(40)), (0, 5));
        h.set_reporting(true);
        for s in 40..48 {
            h.tick(at(s), m.epoch, Epoch(2));
        }
        assert_eq!(failures(&mut h).len(), 5);
        answer_all(&mut h, &m, at(47), &[]);
        assert_eq!(h.health(at(47)), (5, 5));
        assert_eq!(h.ping_times(at(47)).len(), 5);
    }
}
