//! One PG on several OSDs: machines over stores that lose power, a network that delays, loses sessions and splits, a
//! single monitor, and clients that check their reads.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses its part")]

mod checks;
mod clients;
pub mod disk;
pub mod map;
mod operator;
mod power;
pub mod rest;
pub mod shards;

use base::rng::Rng;
use base::{EntityAddr, EntityKind, EntityName, Epoch, HObject, Mono, Now, OsdId, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use disk::Disk;
pub use map::Map;
use pg::lease::{Held, LeaseUpdate, LeaseView};
use pg::limits::READ_LEASE;
use pg::peer::Orphan;
use pg::reserve::{Claim, Owner, Phase, Reserver, Side};
use pg::{CreateInfo, Effect, Event, Move, OpRequest, Pg, PgConfig, SessionId, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::{Cid, ObjectStore, Oid, ReadError, Tag};
use wire::msg::{MOsdOp, MOsdOpReply, MPgPeer, OpCode, OpVec, OsdOp, msg_flags, op_flags};
use wire::types::{ObjectLocator, SnapContext};

pub const POOL: i64 = 3;
const HEARTBEAT_MS: u64 = 4_000;
const GRACE_MS: u64 = 20_000;

pub fn spg() -> base::SpgId {
    PgId::new(POOL, 0).into()
}

pub struct Osd {
    pub disk: Disk,
    pub pg: Option<Pg>,
    pub running: bool,
    /// Newest map that the OSD has.
    pub epoch: u32,
    index: u32,
    leases: Rc<LeaseView>,
    pub reserver: Arc<Reserver>,
    /// Claims of other PGs on this OSD.
    pub others: Vec<Claim>,
    parked: Vec<(i32, Box<MPgPeer>)>,
    /// The PG owes an acknowledgement.
    owes: bool,
    /// The OSD does not reach the monitor.
    pub cut: bool,
    down_since: Option<u64>,
}

#[derive(Debug)]
enum What {
    Peer { from: i32, to: i32, session: u64, msg: Box<MPgPeer> },
    Reset { osd: i32, peer: i32 },
    Ask { from: i32, to: i32, sent: u64 },
    Grant { from: i32, to: i32, sent: u64, epoch: u32 },
    Beat,
    MapTo(i32),
    Sync(i32),
    Tick(i32),
    UpThru(i32, u32),
    PgTemp(i32, u32, Vec<i32>),
    Start(i32),
    Check,
    ToOsd { osd: i32, client: usize, op: Box<OpRequest> },
    ToClient { client: usize, reply: Box<MOsdOpReply> },
    Client(usize),
}

/// History of one object: a single writer appends its count, other clients read.
#[derive(Debug, Default)]
pub struct Object {
    pub attempted: u64,
    pub acked: u64,
    /// Newest count that a finished read has returned.
    pub seen: u64,
}

pub struct Client {
    pub tid: u64,
    /// The operation in flight: object, tid, count that is written (0: a read), count acknowledged or seen at its
    /// start.
    pub busy: Option<(usize, u64, u64, u64)>,
    pub sent: u64,
    pub done: u64,
    /// The read in flight may go to any member.
    pub anywhere: bool,
    /// The operation creates an object that exists: it fails, and leaves a record in the log.
    pub creates: bool,
    /// Reads that no copy could serve.
    pub errors: u64,
}

/// Operations of [`Cluster::ask`], and their answers.
#[derive(Default)]
pub struct Asked {
    /// Replies to the operations of [`Cluster::ask`], by number.
    pub answers: BTreeMap<u64, MOsdOpReply>,
    /// Watch messages to the sessions of [`Cluster::ask`].
    pub watch_messages: Vec<(u64, wire::msg::MWatchNotify)>,
    /// Bytes by which the names of objects of [`Cluster::ask`] are longer.
    pub pads: usize,
    /// True if the writes of [`Cluster::ask`] have the existing snapshots in their context.
    pub in_snaps: bool,
    /// The snapshot that the reads of [`Cluster::ask`] read.
    pub at_snap: SnapId,
}

/// The network between the OSDs, and the one that a test has bugged.
#[derive(Default)]
pub struct Network {
    /// Numbers of sessions; a message of an older one is lost.
    pub sessions: BTreeMap<(i32, i32), u64>,
    pub blocked: BTreeSet<(i32, i32)>,
    /// Number of messages between OSDs that `spied` records.
    pub spies: usize,
    /// The recorded messages: sender, receiver, message.
    pub spied: Vec<(i32, i32, Box<MPgPeer>)>,
    /// Changes the messages that an OSD sends; arguments: sender and message.
    pub lies: Option<fn(i32, &mut MPgPeer)>,
    /// Kinds of messages between OSDs, by code, of which the next one is lost with its session, and those that were.
    pub loses: BTreeSet<u8>,
    pub lost: Vec<u8>,
    pub delay: u64,
}

pub struct Cluster {
    pub rng: Rng,
    /// Source of claims of other PGs.
    rivals: Rng,
    pub contended: bool,
    pub now: u64,
    queue: BTreeMap<(u64, u64), What>,
    seq: u64,
    pub osds: Vec<Osd>,
    pub maps: Vec<Map>,
    pub clients: Vec<Client>,
    pub objects: Vec<Object>,
    pub keep_log: (usize, usize),
    pub load: bool,
    pub asked: Asked,
    pub net: Network,
    pub snaps: Vec<u64>,
    pub trace: u64,
    pub violations: Vec<String>,
    /// Reads that a replica answered.
    pub read_anywhere: u64,
    pub verbose: bool,
    /// Lines of the cluster log.
    pub log: Vec<String>,
    /// Copies that failed: OSD and error.
    pub failed: Vec<(i32, base::errno::Errno)>,
    /// The test expects copies to fail.
    pub may_fail: bool,
}

/// Number of the first session of [`Cluster::ask`].
pub const ASKED: u64 = 1_000_000;

pub fn hash(name: &str) -> u32 {
    name.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b))).wrapping_mul(0x9e37_79b1)
}

pub fn object_name(n: usize) -> String {
    format!("object-{n}")
}

impl Cluster {
    pub fn new(seed: u64, osds: usize, size: u32, min_size: u32, objects: usize, clients: usize) -> Self {
        Self::of(seed, osds, size, min_size, None, objects, clients)
    }

    /// A cluster with an erasure-coded pool.
    pub fn coded(seed: u64, osds: usize, (k, m): (u8, u8), objects: usize, clients: usize) -> Self {
        Self::of(seed, osds, u32::from(k + m), u32::from(k + m.min(2) - 1), Some((k, m)), objects, clients)
    }

    fn of(
        seed: u64,
        osds: usize,
        size: u32,
        min_size: u32,
        code: Option<(u8, u8)>,
        objects: usize,
        clients: usize,
    ) -> Self {
        let rng = Rng::new(seed);
        let map = Map::first(osds, size, min_size, code);
        let mut c = Self {
            rng,
            rivals: Rng::new(seed ^ 0x5eed),
            contended: true,
            now: 0,
            queue: BTreeMap::new(),
            seq: 0,
            osds: Vec::new(),
            maps: vec![map],
            clients: Vec::new(),
            objects: (0..objects).map(|_| Object::default()).collect(),
            keep_log: (150, 10),
            load: true,
            asked: Asked { at_snap: SnapId::HEAD, ..Asked::default() },
            net: Network { delay: 5, ..Network::default() },
            snaps: Vec::new(),
            trace: seed,
            violations: Vec::new(),
            read_anywhere: 0,
            log: Vec::new(),
            failed: Vec::new(),
            may_fail: false,
            verbose: std::env::var("PG_TRACE").is_ok(),
        };
        for n in 0..osds {
            let disk = Disk::new(seed ^ n as u64);
            c.osds.push(Osd {
                disk,
                pg: None,
                running: true,
                epoch: 10,
                index: 1,
                leases: Rc::default(),
                reserver: Arc::default(),
                others: Vec::new(),
                parked: Vec::new(),
                owes: false,
                cut: false,
                down_since: None,
            });
        }
        c.create_pg();
        for _ in 0..clients {
            c.clients.push(Client { tid: 0, busy: None, sent: 0, done: 0, anywhere: false, creates: false, errors: 0 });
        }
        for n in 0..clients {
            c.at(1, What::Client(n));
        }
        c.at(0, What::Beat);
        c.at(1000, What::Check);
        c
    }

    pub fn clock(&self) -> Now {
        let d = Duration::from_millis(self.now);
        Now { mono: Mono(1_000_000_000_000) + d, wall: Utime { sec: 1_700_000_000, nsec: 0 }.plus(d) }
    }

    fn mono_at(ms: u64) -> Mono {
        Mono(1_000_000_000_000) + Duration::from_millis(ms)
    }

    fn config(&mut self, n: i32) -> PgConfig {
        let spg = self.spg(n);
        let o = &mut self.osds[n as usize];
        o.index += 1;
        PgConfig { spg, whoami: OsdId(n), index: o.index, seed: self.trace ^ n as u64 }
    }

    /// Name of an OSD's copy.
    pub fn spg(&self, n: i32) -> base::SpgId {
        base::SpgId { shard: self.map().shard(n), ..spg() }
    }

    fn at(&mut self, delay: u64, w: What) {
        self.seq += 1;
        self.queue.insert((self.now + delay, self.seq), w);
    }

    pub fn map(&self) -> &Map {
        self.maps.last().unwrap()
    }

    /// Publishes the next map, with changes.
    pub fn change(&mut self, f: impl FnOnce(&mut Map)) {
        let mut m = self.map().clone();
        m.epoch += 1;
        f(&mut m);
        if self.verbose {
            println!("{:>8} map {} {:?} up {:?}", self.now, m.epoch, m.mapping(), m.up);
        }
        self.maps.push(m);
        for o in 0..self.osds.len() as i32 {
            let d = self.rng.below(self.net.delay * 4 + 1);
            self.at(d, What::MapTo(o));
        }
    }

    fn mark_down(&mut self, o: i32) {
        if self.map().is_up(o) {
            self.change(|m| m.up[o as usize] = false);
        }
    }

    fn session(&self, a: i32, b: i32) -> u64 {
        self.net.sessions.get(&(a.min(b), a.max(b))).copied().unwrap_or(0)
    }

    /// Loses the messages in flight between two OSDs.
    pub fn reset_session(&mut self, a: i32, b: i32) {
        *self.net.sessions.entry((a.min(b), a.max(b))).or_default() += 1;
        for (x, y) in [(a, b), (b, a)] {
            let d = self.rng.below(50);
            self.at(d, What::Reset { osd: x, peer: y });
        }
    }

    fn feed(&mut self, n: i32, e: Event) {
        let now = self.clock();
        let o = &mut self.osds[n as usize];
        if !o.running {
            return;
        }
        let mut out = Vec::new();
        if let Some(pg) = &mut o.pg {
            let taken = match &e {
                Event::Peer { from, msg } => pg.handle_ack(*from, msg, now, &mut o.disk, &mut out),
                _ => false,
            };
            if !taken {
                pg.handle(e, now, &mut o.disk, &mut out);
            }
        }
        self.carry_out(n, out);
        self.wake(n);
    }

    /// Hands an input to an OSD's PG.
    pub fn give(&mut self, n: i32, e: Event) {
        self.feed(n, e);
    }

    /// Fails the copy of an OSD.
    pub fn withdraw(&mut self, n: i32) {
        let mut out = Vec::new();
        self.osds[n as usize].pg.as_mut().unwrap().withdraw(base::errno::EIO, "a test", &mut out);
        self.carry_out(n, out);
    }

    /// Ticks the PG of an OSD, after its claims changed.
    pub fn wake(&mut self, n: i32) {
        let index = self.osds[n as usize].index;
        if self.osds[n as usize].reserver.has_news(0) && self.osds[n as usize].reserver.woken(0).contains(&index) {
            self.feed(n, Event::Tick);
        }
    }

    /// Lets another PG of an OSD claim a place, or give one back.
    fn contend(&mut self, n: i32) {
        let o = &mut self.osds[n as usize];
        let foreign = Owner { reactor: 0, index: 0, spg: spg() };
        o.others.retain(|c| c.phase() != Phase::Preempted);
        if self.rivals.chance(1, 2) && o.others.len() < 3 {
            let side = if self.rivals.chance(1, 2) { Side::Local } else { Side::Remote };
            let prio = [100, 140, 180, 200][self.rivals.below(4) as usize];
            o.others.push(o.reserver.claim(side, foreign, prio));
        } else if !o.others.is_empty() {
            let i = self.rivals.below(o.others.len() as u64) as usize;
            o.others.remove(i);
        }
        self.wake(n);
    }

    fn carry_out(&mut self, n: i32, first: Vec<Effect>) {
        let now = self.clock();
        let mut out = first;
        loop {
            for e in std::mem::take(&mut out) {
                self.effect(n, e);
            }
            let o = &mut self.osds[n as usize];
            let Some(e) = o.disk.poll_event() else {
                let owed = o.pg.as_mut().filter(|_| std::mem::take(&mut o.owes)).and_then(Pg::acknowledge);
                let Some(e) = owed else { break };
                out.push(e);
                continue;
            };
            if let Some(pg) = &mut o.pg {
                let Some(t) = e.tag() else { continue };
                if pg.owns(t) {
                    pg.handle(Event::Store(e), now, &mut o.disk, &mut out);
                }
            }
        }
        if self.osds[n as usize].disk.pending() > 0 {
            let d = self.rng.below(self.net.delay);
            self.at(d, What::Sync(n));
        }
        let deadline = self.osds[n as usize].pg.as_ref().and_then(Pg::next_deadline);
        if let Some(d) = deadline {
            let wait = d.since(now.mono).as_millis() as u64 + 1;
            self.at(wait, What::Tick(n));
        }
    }

    fn effect(&mut self, n: i32, e: Effect) {
        match e {
            Effect::Peer { to, mut msg, .. } => {
                assert!(to.0 != n, "a message to itself");
                let (body, data) = (msg.body.len(), msg.data.len());
                let fits = body <= MPgPeer::BODY_MAX && data <= MPgPeer::DATA_MAX;
                assert!(fits, "a message of {body} and {data} bytes resets its connection");
                if let Some(lie) = self.net.lies {
                    lie(n, &mut msg);
                }
                if self.net.spied.len() < self.net.spies {
                    self.net.spied.push((n, to.0, msg.clone()));
                }
                if self.net.blocked.contains(&(n, to.0)) {
                    return;
                }
                if !self.net.loses.is_empty() {
                    // A short message that is sent surely is in the data of its piece.
                    let kind = if msg.body.first() == Some(&53) { msg.data.first() } else { msg.body.first() };
                    if let Some(kind) = kind.copied().filter(|k| self.net.loses.remove(k)) {
                        self.net.lost.push(kind);
                        return self.reset_session(n, to.0);
                    }
                }
                let (from, to, session) = (n, to.0, self.session(n, to.0));
                // In order within a session.
                let last = self
                    .queue
                    .iter()
                    .rev()
                    .find(|(_, w)| matches!(w, What::Peer { from: f, to: t, .. } if (*f, *t) == (from, to)))
                    .map_or(0, |((t, _), _)| *t);
                let d = (self.now + 1 + self.rng.below(self.net.delay)).max(last) - self.now;
                self.at(d, What::Peer { from, to, session, msg });
            }
            Effect::Reply(s, reply) if s.0 >= ASKED => {
                self.asked.answers.insert(reply.tid, *reply);
            }
            Effect::Watch(s, m, _) if s.0 >= ASKED => self.asked.watch_messages.push((s.0 - ASKED, *m)),
            Effect::Reply(s, reply) => {
                let d = 1 + self.rng.below(self.net.delay);
                self.at(d, What::ToClient { client: s.0 as usize, reply });
            }
            Effect::WantUpThru(e) => {
                let d = 1 + self.rng.below(self.net.delay);
                self.at(d, What::UpThru(n, e.0));
            }
            Effect::WantPgTemp(v) => {
                let d = 1 + self.rng.below(self.net.delay);
                let epoch = self.osds[n as usize].epoch;
                self.at(d, What::PgTemp(n, epoch, v.into_iter().map(|o| o.0).collect()));
            }
            Effect::Log(_, text) => self.log.push(text),
            Effect::Acknowledge => self.osds[n as usize].owes = true,
            Effect::Deleted => self.osds[n as usize].pg = None,
            Effect::CopyFailed(e) if self.may_fail => self.failed.push((n, e)),
            Effect::CopyFailed(e) => panic!("the copy of osd.{n} failed with {e}"),
            Effect::Failed(e) => panic!("store of osd.{n} failed with {e}"),
            _ => {}
        }
    }

    /// Delivers the maps that an OSD lacks.
    fn maps_to(&mut self, n: i32) {
        let o = &self.osds[n as usize];
        if !o.running || o.cut {
            return;
        }
        let have = o.epoch;
        let newer: Vec<Map> = self.maps.iter().filter(|m| m.epoch > have).cloned().collect();
        for m in newer {
            self.osds[n as usize].epoch = m.epoch;
            self.feed(n, Event::Map(m.view(n)));
            let parked = std::mem::take(&mut self.osds[n as usize].parked);
            for (from, msg) in parked {
                self.peer(from, n, msg);
            }
        }
    }

    fn peer(&mut self, from: i32, to: i32, msg: Box<MPgPeer>) {
        let now = self.clock();
        let o = &mut self.osds[to as usize];
        if !o.running {
            return;
        }
        if msg.epoch.0 > o.epoch {
            o.parked.push((from, msg));
            return;
        }
        if o.pg.is_some() {
            return self.feed(to, Event::Peer { from: OsdId(from), msg });
        }
        let view = self.maps.iter().find(|m| m.epoch == o.epoch).unwrap().view(to);
        match pg::peer::orphan(OsdId(to), &view, OsdId(from), &msg) {
            Orphan::Answer(msg) | Orphan::Ask(msg) => {
                self.effect(to, Effect::Peer { to: OsdId(from), lane: pg::Lane::Data, msg })
            }
            Orphan::Create(theirs) => {
                let cfg = self.config(to);
                let mut out = Vec::new();
                let o = &mut self.osds[to as usize];
                let mut pg = Pg::adopt(cfg, CreateInfo::default(), &theirs, now, &mut o.disk, &mut out);
                pg.use_leases(o.leases.clone());
                pg.use_reserver(o.reserver.clone(), 0);
                pg.keep_log(self.keep_log.0, self.keep_log.1);
                pg.handle(Event::Map(view), now, &mut o.disk, &mut out);
                o.pg = Some(pg);
                self.carry_out(to, out);
                self.feed(to, Event::Peer { from: OsdId(from), msg });
            }
            Orphan::Ignore => {}
        }
    }

    /// Changes how many entries all logs keep at least and trim at once, now and after each start.
    pub fn keep_logs(&mut self, keep: usize, batch: usize) {
        self.keep_log = (keep, batch);
        self.osds.iter_mut().filter_map(|o| o.pg.as_mut()).for_each(|pg| pg.keep_log(keep, batch));
    }

    /// Lets these OSDs recover nothing.
    pub fn forbid_recovery(&self, osds: std::ops::Range<usize>) {
        let none = pg::reserve::RecoveryConfig { max_backfills: 0, ..Default::default() };
        self.osds[osds].iter().for_each(|o| o.reserver.set(&none));
    }

    /// The monitor requests the PG's creation.
    fn create_pg(&mut self) {
        let now = self.clock();
        let cfg = self.config(0);
        let mut how = CreateInfo::default();
        let h = &mut how.extra.history;
        for e in [&mut h.epoch_created, &mut h.same_interval_since, &mut h.same_up_since, &mut h.same_primary_since] {
            *e = Epoch(10);
        }
        let mut out = Vec::new();
        let view = self.maps[0].view(0);
        let mut pg = Pg::create(cfg, how, now, &mut self.osds[0].disk, &mut out);
        pg.use_leases(self.osds[0].leases.clone());
        pg.use_reserver(self.osds[0].reserver.clone(), 0);
        pg.keep_log(self.keep_log.0, self.keep_log.1);
        pg.handle(Event::Map(view), now, &mut self.osds[0].disk, &mut out);
        self.osds[0].pg = Some(pg);
        self.carry_out(0, out);
    }

    /// Each OSD asks each other one for a lease.
    fn beat(&mut self) {
        for a in 0..self.osds.len() as i32 {
            for b in 0..self.osds.len() as i32 {
                if a != b && self.osds[a as usize].running && !self.net.blocked.contains(&(a, b)) {
                    let d = 1 + self.rng.below(self.net.delay);
                    let sent = self.now;
                    self.at(d, What::Ask { from: a, to: b, sent });
                }
            }
        }
        self.at(HEARTBEAT_MS, What::Beat);
    }

    /// OSD `to` gets a lease of `from`, counted from the time of its question.
    fn grant(&mut self, from: i32, to: i32, sent: u64, epoch: u32) {
        let until = Self::mono_at(sent) + READ_LEASE;
        let o = &self.osds[to as usize];
        if o.running {
            o.leases.update(LeaseUpdate::Held(OsdId(from), Held { until, epoch: Epoch(epoch) }));
            if o.pg.as_ref().is_some_and(Pg::waits_for_lease) {
                self.feed(to, Event::Leases);
            }
        }
    }

    /// The monitor looks at an OSD: marks it down or up, and sends it maps.
    fn judge(&mut self, n: i32) {
        if self.contended && self.osds[n as usize].running {
            self.contend(n);
        }
        let o = &self.osds[n as usize];
        let dead = o.down_since.is_some_and(|t| self.now - t >= GRACE_MS);
        let peers = (0..self.osds.len() as i32).filter(|p| *p != n && self.map().is_up(*p));
        let (mut all, mut lost) = (0, 0);
        for p in peers {
            all += 1;
            lost += i32::from(self.net.blocked.contains(&(n, p)) || self.net.blocked.contains(&(p, n)));
        }
        let isolated = all > 0 && lost * 2 > all && self.rng.chance(1, 20);
        if (dead || isolated) && self.map().is_up(n) {
            self.mark_down(n);
        }
        let cut = self.osds[n as usize].cut;
        let fine = self.osds[n as usize].running && !cut && lost == 0;
        if fine && !self.map().is_up(n) && self.osds[n as usize].epoch == self.map().epoch {
            // The OSD is marked down in its map and boots again.
            self.change(|m| {
                m.up[n as usize] = true;
                m.up_from[n as usize] = m.epoch;
            });
        }
        if !cut {
            self.maps_to(n);
        }
    }

    fn step(&mut self, w: What) {
        match w {
            What::Peer { from, to, session, msg } => {
                if session == self.session(from, to) && !self.net.blocked.contains(&(from, to)) {
                    self.peer(from, to, msg);
                }
            }
            What::Reset { osd, peer } => self.feed(osd, Event::PeerReset(OsdId(peer))),
            What::Beat => self.beat(),
            What::Ask { from, to, sent } => {
                let o = &self.osds[to as usize];
                if o.running {
                    o.leases.update(LeaseUpdate::Granted(OsdId(from), Self::mono_at(self.now) + READ_LEASE));
                    let epoch = o.epoch;
                    if !self.net.blocked.contains(&(to, from)) {
                        let d = 1 + self.rng.below(self.net.delay);
                        self.at(d, What::Grant { from: to, to: from, sent, epoch });
                    }
                }
            }
            What::Grant { from, to, sent, epoch } => self.grant(from, to, sent, epoch),
            What::MapTo(n) => self.maps_to(n),
            What::Sync(n) => {
                let pending = self.osds[n as usize].disk.pending() as u64;
                if pending > 0 && self.osds[n as usize].running && !self.osds[n as usize].disk.stalled {
                    let k = 1 + self.rng.below(pending) as usize;
                    self.osds[n as usize].disk.sync(k);
                    self.carry_out(n, Vec::new());
                }
            }
            What::Tick(n) => {
                let now = self.clock().mono;
                if self.osds[n as usize].pg.as_ref().and_then(Pg::next_deadline).is_some_and(|d| d <= now) {
                    self.feed(n, Event::Tick);
                }
            }
            What::UpThru(n, e) => {
                if !self.osds[n as usize].cut && self.map().is_up(n) && self.map().up_thru[n as usize] < e {
                    self.change(|m| m.up_thru[n as usize] = m.epoch - 1);
                }
            }
            What::PgTemp(n, epoch, want) => {
                let m = self.map();
                let since = self.maps.iter().find(|x| x.epoch == epoch).map(Map::mapping);
                let current = since == Some(m.mapping()) && m.mapping().acting_primary == OsdId(n);
                if !self.osds[n as usize].cut && current && m.temp != want {
                    self.change(|m| m.temp = want);
                }
            }
            What::Start(n) => self.restart(n),
            What::Check => {
                for n in 0..self.osds.len() as i32 {
                    self.judge(n);
                }
                self.at(1000, What::Check);
            }
            What::ToOsd { osd, client: _, op } => {
                let o = &self.osds[osd as usize];
                if o.running && o.pg.is_some() {
                    self.feed(osd, Event::Op(op));
                }
            }
            What::ToClient { client, reply } => self.answered(client, &reply),
            What::Client(n) => {
                self.client(n);
                let d = 1 + self.rng.below(200);
                self.at(d, What::Client(n));
            }
        }
    }

    /// Runs for `ms` of virtual time.
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some((&(t, s), _)) = self.queue.first_key_value() {
            if t > end {
                break;
            }
            let w = self.queue.remove(&(t, s)).unwrap();
            self.now = t;
            self.trace = self.trace.rotate_left(5) ^ t.wrapping_mul(0x9e37_79b9).wrapping_add(s);
            self.step(w);
        }
        self.now = end;
    }

    // --- clients ---
}
