//! One PG on several OSDs: machines over stores that lose power, a network that delays, loses sessions and splits, a
//! single monitor, and clients that check their reads.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses its part")]

pub mod disk;
pub mod map;
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
    /// Numbers of sessions; a message of an older one is lost.
    sessions: BTreeMap<(i32, i32), u64>,
    pub blocked: BTreeSet<(i32, i32)>,
    pub keep_log: (usize, usize),
    pub load: bool,
    pub snaps: Vec<u64>,
    pub trace: u64,
    pub delay: u64,
    pub violations: Vec<String>,
    /// Reads that a replica answered.
    pub read_anywhere: u64,
    pub verbose: bool,
    /// Lines of the cluster log.
    pub log: Vec<String>,
    /// Replies to the operations of [`Cluster::ask`], by number.
    pub answers: BTreeMap<u64, MOsdOpReply>,
    /// Watch messages to the sessions of [`Cluster::ask`].
    pub watch_messages: Vec<(u64, wire::msg::MWatchNotify)>,
    /// Copies that failed: OSD and error.
    pub failed: Vec<(i32, base::errno::Errno)>,
    /// The test expects copies to fail.
    pub may_fail: bool,
    /// Number of messages between OSDs that `spied` records.
    pub spies: usize,
    /// The recorded messages: sender, receiver, message.
    pub spied: Vec<(i32, i32, Box<MPgPeer>)>,
    /// Changes the messages that an OSD sends; arguments: sender and message.
    pub lies: Option<fn(i32, &mut MPgPeer)>,
    /// Kinds of messages between OSDs, by code, of which the next one is lost with its session, and those that were.
    pub loses: BTreeSet<u8>,
    pub lost: Vec<u8>,
    /// Bytes by which the names of objects of [`Cluster::ask`] are longer.
    pub pads: usize,
    /// True if the writes of [`Cluster::ask`] have the existing snapshots in their context.
    pub asks_in_snaps: bool,
    /// The snapshot that the reads of [`Cluster::ask`] read.
    pub asks_at: SnapId,
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
        let map = Map {
            epoch: 10,
            up: vec![true; osds],
            up_from: vec![5; osds],
            up_thru: vec![5; osds],
            order: (0..osds as i32).collect(),
            temp: Vec::new(),
            size,
            min_size,
            removed_snaps: Vec::new(),
            snap_seq: 0,
            full: Vec::new(),
            lost: Vec::new(),
            backfillfull: 0.9,
            code,
            overwrites: true,
            pool_full: false,
        };
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
            sessions: BTreeMap::new(),
            blocked: BTreeSet::new(),
            keep_log: (150, 10),
            load: true,
            snaps: Vec::new(),
            trace: seed,
            delay: 5,
            violations: Vec::new(),
            read_anywhere: 0,
            log: Vec::new(),
            answers: BTreeMap::new(),
            watch_messages: Vec::new(),
            failed: Vec::new(),
            may_fail: false,
            spies: 0,
            spied: Vec::new(),
            lies: None,
            loses: BTreeSet::new(),
            lost: Vec::new(),
            pads: 0,
            asks_in_snaps: false,
            asks_at: SnapId::HEAD,
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
                cut: false,
                down_since: None,
            });
        }
        // The monitor requests the PG's creation.
        let now = c.clock();
        let cfg = c.config(0);
        let mut how = CreateInfo::default();
        let h = &mut how.extra.history;
        for e in [&mut h.epoch_created, &mut h.same_interval_since, &mut h.same_up_since, &mut h.same_primary_since] {
            *e = Epoch(10);
        }
        let mut out = Vec::new();
        let view = c.maps[0].view(0);
        let mut pg = Pg::create(cfg, how, now, &mut c.osds[0].disk, &mut out);
        pg.use_leases(c.osds[0].leases.clone());
        pg.use_reserver(c.osds[0].reserver.clone(), 0);
        pg.keep_log(c.keep_log.0, c.keep_log.1);
        pg.handle(Event::Map(view), now, &mut c.osds[0].disk, &mut out);
        c.osds[0].pg = Some(pg);
        c.carry_out(0, out);
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
            let d = self.rng.below(self.delay * 4 + 1);
            self.at(d, What::MapTo(o));
        }
    }

    fn mark_down(&mut self, o: i32) {
        if self.map().is_up(o) {
            self.change(|m| m.up[o as usize] = false);
        }
    }

    fn session(&self, a: i32, b: i32) -> u64 {
        self.sessions.get(&(a.min(b), a.max(b))).copied().unwrap_or(0)
    }

    /// Loses the messages in flight between two OSDs.
    pub fn reset_session(&mut self, a: i32, b: i32) {
        *self.sessions.entry((a.min(b), a.max(b))).or_default() += 1;
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
            pg.handle(e, now, &mut o.disk, &mut out);
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
            let Some(e) = o.disk.poll_event() else { break };
            if let Some(pg) = &mut o.pg {
                let Some(t) = e.tag() else { continue };
                if pg.owns(t) {
                    pg.handle(Event::Store(e), now, &mut o.disk, &mut out);
                }
            }
        }
        if self.osds[n as usize].disk.pending() > 0 {
            let d = self.rng.below(self.delay);
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
                if let Some(lie) = self.lies {
                    lie(n, &mut msg);
                }
                if self.spied.len() < self.spies {
                    self.spied.push((n, to.0, msg.clone()));
                }
                if self.blocked.contains(&(n, to.0)) {
                    return;
                }
                if !self.loses.is_empty() {
                    // A short message that is sent surely is in the data of its piece.
                    let kind = if msg.body.first() == Some(&53) { msg.data.first() } else { msg.body.first() };
                    if let Some(kind) = kind.copied().filter(|k| self.loses.remove(k)) {
                        self.lost.push(kind);
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
                let d = (self.now + 1 + self.rng.below(self.delay)).max(last) - self.now;
                self.at(d, What::Peer { from, to, session, msg });
            }
            Effect::Reply(s, reply) if s.0 >= ASKED => {
                self.answers.insert(reply.tid, *reply);
            }
            Effect::Watch(s, m, _) if s.0 >= ASKED => self.watch_messages.push((s.0 - ASKED, *m)),
            Effect::Reply(s, reply) => {
                let d = 1 + self.rng.below(self.delay);
                self.at(d, What::ToClient { client: s.0 as usize, reply });
            }
            Effect::WantUpThru(e) => {
                let d = 1 + self.rng.below(self.delay);
                self.at(d, What::UpThru(n, e.0));
            }
            Effect::WantPgTemp(v) => {
                let d = 1 + self.rng.below(self.delay);
                let epoch = self.osds[n as usize].epoch;
                self.at(d, What::PgTemp(n, epoch, v.into_iter().map(|o| o.0).collect()));
            }
            Effect::Log(_, text) => self.log.push(text),
            Effect::Deleted => self.osds[n as usize].pg = None,
            Effect::CopyFailed(e) if self.may_fail => self.failed.push((n, e)),
            Effect::CopyFailed(e) => panic!("the copy of osd.{n} failed with {e}"),
            Effect::Failed(e) => panic!("store of osd.{n} failed with {e}"),
            _ => {}
        }
    }

    /// Cuts the power of an OSD. Some transactions without a durable event may have reached the disk.
    pub fn crash(&mut self, n: i32) {
        let seed = self.rng.next_u64();
        let pending = self.osds[n as usize].disk.pending() as u64;
        let keep = self.rng.below(pending + 1) as usize;
        let now = self.now;
        let o = &mut self.osds[n as usize];
        if !o.running {
            return;
        }
        if self.verbose {
            println!("{now:>8} osd.{n} crashes");
        }
        o.disk.power_cut(keep, seed);
        o.pg = None;
        o.running = false;
        o.parked.clear();
        o.leases = Rc::default();
        o.others.clear();
        o.reserver = Arc::default();
        o.down_since = Some(now);
        for p in 0..self.osds.len() as i32 {
            if p != n {
                self.reset_session(n, p);
            }
        }
    }

    pub fn restart(&mut self, n: i32) {
        let cid = Cid::Pg(self.spg(n));
        let o = &mut self.osds[n as usize];
        if o.running {
            return;
        }
        o.running = true;
        o.down_since = None;
        let has = o.disk.collections().iter().any(|(c, _)| *c == cid);
        let now = self.clock();
        if self.verbose {
            println!("{:>8} osd.{n} starts", self.now);
        }
        if has {
            let cfg = self.config(n);
            let mut out = Vec::new();
            let o = &mut self.osds[n as usize];
            let mut pg = Pg::load(cfg, 0, now, &mut o.disk, &mut out);
            pg.use_leases(o.leases.clone());
            pg.use_reserver(o.reserver.clone(), 0);
            pg.keep_log(self.keep_log.0, self.keep_log.1);
            // The info loads at once or after a wait. The host reads it, too, to know the map from which to go on.
            let tag = Tag(u64::MAX);
            let blob = loop {
                match o.disk.pg_info(tag, cid) {
                    Ok(b) => break b,
                    Err(ReadError::Wait) => {
                        while let Some(e) = o.disk.poll_event() {
                            if let store::Event::Ready(t) = e
                                && pg.owns(t)
                            {
                                pg.handle(Event::Store(e), now, &mut o.disk, &mut out);
                            }
                        }
                    }
                    Err(e) => panic!("{e:?}"),
                }
            };
            o.disk.release(tag);
            let epoch = blob.map_or(10, |b| pg::info::PgInfo::from_blob(&b).unwrap().epoch.0).max(10);
            o.pg = Some(pg);
            o.epoch = epoch - 1;
            self.carry_out(n, out);
        }
        // The monitor hears that the old process ended, then that the new one runs.
        self.mark_down(n);
        self.change(|m| {
            m.up[n as usize] = true;
            m.up_from[n as usize] = m.epoch;
        });
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

    fn step(&mut self, w: What) {
        match w {
            What::Peer { from, to, session, msg } => {
                if session == self.session(from, to) && !self.blocked.contains(&(from, to)) {
                    self.peer(from, to, msg);
                }
            }
            What::Reset { osd, peer } => self.feed(osd, Event::PeerReset(OsdId(peer))),
            What::Beat => {
                for a in 0..self.osds.len() as i32 {
                    for b in 0..self.osds.len() as i32 {
                        if a != b && self.osds[a as usize].running && !self.blocked.contains(&(a, b)) {
                            let d = 1 + self.rng.below(self.delay);
                            let sent = self.now;
                            self.at(d, What::Ask { from: a, to: b, sent });
                        }
                    }
                }
                self.at(HEARTBEAT_MS, What::Beat);
            }
            What::Ask { from, to, sent } => {
                let o = &self.osds[to as usize];
                if o.running {
                    o.leases.update(LeaseUpdate::Granted(OsdId(from), Self::mono_at(self.now) + READ_LEASE));
                    let epoch = o.epoch;
                    if !self.blocked.contains(&(to, from)) {
                        let d = 1 + self.rng.below(self.delay);
                        self.at(d, What::Grant { from: to, to: from, sent, epoch });
                    }
                }
            }
            What::Grant { from, to, sent, epoch } => {
                let until = Self::mono_at(sent) + READ_LEASE;
                let o = &self.osds[to as usize];
                if o.running {
                    o.leases.update(LeaseUpdate::Held(OsdId(from), Held { until, epoch: Epoch(epoch) }));
                    if o.pg.as_ref().is_some_and(Pg::waits_for_lease) {
                        self.feed(to, Event::Leases);
                    }
                }
            }
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
                    if self.contended && self.osds[n as usize].running {
                        self.contend(n);
                    }
                    let o = &self.osds[n as usize];
                    let dead = o.down_since.is_some_and(|t| self.now - t >= GRACE_MS);
                    let peers = (0..self.osds.len() as i32).filter(|p| *p != n && self.map().is_up(*p));
                    let (mut all, mut lost) = (0, 0);
                    for p in peers {
                        all += 1;
                        lost += i32::from(self.blocked.contains(&(n, p)) || self.blocked.contains(&(p, n)));
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

    fn client(&mut self, n: usize) {
        if let Some((object, tid, writes, _)) = self.clients[n].busy {
            // Resends after a while, as clients do when the map changes.
            if self.now - self.clients[n].sent > 2_000 {
                self.send(n, object, tid, writes);
            }
            return;
        }
        if !self.load {
            return;
        }
        let writers = self.objects.len();
        // The first clients write, each its own object; all others read.
        let write = n < writers && self.rng.chance(2, 3);
        let object = if n < writers { n } else { self.rng.below(writers as u64) as usize };
        self.clients[n].tid += 1;
        let tid = self.clients[n].tid;
        let (writes, floor) = if write {
            self.objects[object].attempted += 1;
            (self.objects[object].attempted, 0)
        } else {
            (0, self.objects[object].acked.max(self.objects[object].seen))
        };
        self.clients[n].busy = Some((object, tid, writes, floor));
        self.clients[n].anywhere = self.rng.chance(1, 2);
        self.clients[n].creates = writes == 0 && self.objects[object].acked > 0 && self.rng.chance(1, 4);
        self.send(n, object, tid, writes);
    }

    fn send(&mut self, n: usize, object: usize, tid: u64, writes: u64) {
        self.clients[n].sent = self.now;
        let map = self.map();
        let mapping = map.mapping();
        let mut primary = mapping.acting_primary.0;
        if primary < 0 {
            return;
        }
        let epoch = map.epoch;
        let pgid = self.spg(primary);
        // Reads may go to any member until one answers `EAGAIN`.
        let creates = self.clients[n].creates;
        let anywhere = writes == 0 && !creates && self.clients[n].anywhere && map.code.is_none();
        if anywhere {
            primary = mapping.acting[self.rng.below(mapping.acting.len() as u64) as usize].0;
        }
        let name = object_name(object);
        let ops = if writes > 0 {
            let data = Bytes::copy_from_slice(&writes.to_le_bytes());
            vec![
                OsdOp::with_extent(OpCode::APPEND, 0, 8, data.clone()),
                OsdOp::with_xattr(OpCode::SETXATTR, b"n", &data, 0, 0),
            ]
        } else if creates {
            vec![OsdOp { flags: op_flags::EXCL, ..OsdOp::new(OpCode::CREATE) }]
        } else {
            vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())]
        };
        let op = OpRequest {
            owner: 0,
            session: SessionId(n as u64),
            client: EntityName::new(EntityKind::CLIENT, n as i64 + 1),
            addr: EntityAddr { nonce: n as u32, ..EntityAddr::default() },
            features: 0,
            received: self.clock(),
            ledger: base::ledger::Ledger::begin(self.clock().mono, self.clock().wall, base::Utime::ZERO),
            msg: Box::new(MOsdOp {
                tid,
                pgid,
                hash: hash(&name),
                osdmap_epoch: Epoch(epoch),
                flags: if writes > 0 || creates {
                    msg_flags::WRITE | msg_flags::ONDISK
                } else if anywhere {
                    msg_flags::READ | msg_flags::BALANCE_READS
                } else {
                    msg_flags::READ
                },
                locator: ObjectLocator::new(PoolId(POOL)),
                oid: Bytes::from(name),
                ops: OpVec::from_vec(ops),
                snapid: SnapId::HEAD,
                snapc: self.snap_context(),
                ..MOsdOp::default()
            }),
        };
        let d = 1 + self.rng.below(self.delay);
        self.at(d, What::ToOsd { osd: primary, client: n, op: Box::new(op) });
    }

    /// The snapshot context of writes: all existing snapshots.
    fn snap_context(&self) -> SnapContext {
        let mut snaps: Vec<SnapId> = self.snaps.iter().map(|s| SnapId(*s)).collect();
        snaps.reverse();
        SnapContext { seq: snaps.first().copied().unwrap_or(SnapId(0)), snaps }
    }

    /// Sends a client's operation to an OSD; returns its number in [`Cluster::answers`].
    pub fn ask(&mut self, osd: i32, who: u64, object: usize, flags: u32, ops: Vec<OsdOp>) -> u64 {
        self.seq += 1;
        let name = object_name(object) + &"x".repeat(self.pads);
        let (tid, epoch) = (ASKED + self.seq, self.map().epoch);
        let write = ops.iter().any(|o| o.op.is_write());
        let pgid = self.spg(osd);
        let op = Box::new(OpRequest {
            owner: 0,
            session: SessionId(ASKED + who),
            client: EntityName::new(EntityKind::CLIENT, (ASKED + who) as i64),
            addr: EntityAddr { nonce: who as u32, ..EntityAddr::default() },
            features: wire::Features::PACIFIC.0,
            received: self.clock(),
            ledger: base::ledger::Ledger::begin(self.clock().mono, self.clock().wall, base::Utime::ZERO),
            msg: Box::new(MOsdOp {
                tid,
                pgid,
                hash: hash(&name),
                osdmap_epoch: Epoch(epoch),
                flags: flags | if write { msg_flags::WRITE | msg_flags::ONDISK } else { msg_flags::READ },
                locator: ObjectLocator::new(PoolId(POOL)),
                oid: Bytes::from(name),
                ops: OpVec::from_vec(ops),
                snapid: self.asks_at,
                snapc: if self.asks_in_snaps { self.snap_context() } else { SnapContext::default() },
                ..MOsdOp::default()
            }),
        });
        self.at(0, What::ToOsd { osd, client: 0, op });
        tid
    }

    fn answered(&mut self, n: usize, r: &MOsdOpReply) {
        let Some((object, tid, writes, floor)) = self.clients[n].busy else { return };
        if tid != r.tid {
            return;
        }
        if r.result == base::errno::EAGAIN {
            assert!(writes == 0, "only reads may be sent elsewhere");
            // A resend may get a second `EAGAIN`.
            if std::mem::replace(&mut self.clients[n].anywhere, false) {
                self.send(n, object, tid, writes);
            }
            return;
        }
        self.clients[n].busy = None;
        self.clients[n].done += 1;
        if r.result == base::errno::EIO && writes == 0 && self.osds.iter().all(|o| !o.disk.spoiled.is_empty()) {
            self.clients[n].errors += 1;
            return;
        }
        if self.clients[n].creates {
            if r.result != base::errno::EEXIST {
                self.violations.push(format!("{}: object {object} was made again: {}", self.now, r.result));
            }
            return;
        }
        if self.clients[n].anywhere && writes == 0 {
            self.read_anywhere += 1;
        }
        let o = &mut self.objects[object];
        if writes > 0 {
            if r.result < 0 {
                self.violations.push(format!("{}: write {writes} of object {object}: {}", self.now, r.result));
            }
            o.acked = o.acked.max(writes);
            return;
        }
        let data = r.ops.first().map(|op| op.outdata.clone()).unwrap_or_default();
        let found: Vec<u64> = data.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let k = found.len() as u64;
        let right = found.iter().enumerate().all(|(i, v)| *v == i as u64 + 1);
        if !right {
            let at = found.iter().enumerate().position(|(i, v)| *v != i as u64 + 1).unwrap_or(0);
            let around = &found[at.saturating_sub(2)..(at + 3).min(found.len())];
            self.violations.push(format!("{}: object {object} reads {around:?} at {at}", self.now));
        }
        if k < floor || k > o.attempted {
            let say = format!("object {object} reads {k}, but {floor} was there before and {} tried", o.attempted);
            self.violations.push(format!("{}: {say}", self.now));
        }
        o.seen = o.seen.max(k);
    }

    /// Makes an OSD's copy of an object unreadable.
    pub fn damage(&mut self, osd: i32, object: usize) {
        let name = object_name(object);
        let hobj = HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() };
        self.osds[osd as usize].disk.spoiled.insert(Oid::new(hobj.head()));
    }

    /// Starts a move of an OSD's PG to another reactor, which does not answer.
    pub fn begin_move(&mut self, osd: i32) {
        self.feed(osd, Event::Move(Box::new(Move::Begin)));
    }

    pub fn take_snapshot(&mut self) {
        self.change(|m| m.snap_seq += 1);
        let s = self.map().snap_seq;
        self.snaps.push(s);
    }

    pub fn remove_snapshot(&mut self) {
        if !self.snaps.is_empty() {
            let s = self.snaps.remove(0);
            self.change(|m| m.removed_snaps.push(s));
        }
    }

    // --- the end ---

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.free_places();
        self.blocked.clear();
        for n in 0..self.osds.len() as i32 {
            self.osds[n as usize].cut = false;
            self.restart(n);
        }
        for a in 0..self.osds.len() as i32 {
            for b in 0..a {
                self.reset_session(a, b);
            }
        }
    }

    /// Drops the claims of other PGs.
    pub fn free_places(&mut self) {
        self.contended = false;
        for n in 0..self.osds.len() as i32 {
            self.osds[n as usize].others.clear();
            self.wake(n);
        }
    }

    pub fn primary(&self) -> Option<&Pg> {
        let p = self.map().mapping().acting_primary.0;
        if p < 0 { None } else { self.osds[p as usize].pg.as_ref() }
    }

    /// Runs until the PG is clean and no client waits. Panics if that takes too long.
    pub fn settle(&mut self) {
        self.load = false;
        self.free_places();
        let limit = self.now + 900_000;
        loop {
            self.run(1_000);
            let m = self.map().mapping();
            let placed = m.acting == m.up;
            let clean = self.primary().is_some_and(Pg::is_clean);
            let idle = self.clients.iter().all(|c| c.busy.is_none());
            let trimming = wire::types::pg_state::SNAPTRIM | wire::types::pg_state::SNAPTRIM_WAIT;
            let clean = clean && self.primary().is_some_and(|p| p.state_bits() & trimming == 0);
            if placed && clean && idle && self.osds.iter().all(|o| o.disk.pending() == 0) {
                break;
            }
            if self.now > limit {
                let states: Vec<String> = (0..self.osds.len()).map(|n| self.describe(n)).collect();
                panic!("does not heal; {m:?}\n{}\nbusy {idle}", states.join("\n"));
            }
        }
        // Some seconds after the last write, members get the deferred writes, and then hear that all writes are stable.
        self.run(if self.map().code.is_some() { 15_000 } else { 2_000 });
    }

    /// Forces recovery, as an operator does ([`Event::Force`]).
    pub fn force(&mut self, options: u8) {
        let p = self.map().mapping().acting_primary.0;
        self.feed(p, Event::Force(options));
    }

    /// Runs `mark_unfound_lost`.
    pub fn mark_lost(&mut self, revert: bool) -> Result<String, (base::errno::Errno, String)> {
        let n = self.map().mapping().acting_primary.0;
        let now = self.clock();
        let o = &mut self.osds[n as usize];
        let mut out = Vec::new();
        let said = o.pg.as_mut().unwrap().mark_unfound_lost(revert, now, &mut o.disk, &mut out);
        self.carry_out(n, out);
        said
    }

    /// Number of writes in the primary's copy of an object; `None` if the object does not exist.
    pub fn writes_shown(&mut self, object: usize) -> Option<u64> {
        let n = self.map().mapping().acting_primary.0;
        let name = object_name(object);
        let hobj = HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() };
        let disk = &mut self.osds[n as usize].disk;
        loop {
            match disk.stat(Tag(u64::MAX - 1), Cid::Pg(spg()), &Oid::new(hobj.head())) {
                Ok(s) => return Some(s.size / 8),
                Err(ReadError::NoObject) => return None,
                Err(ReadError::Wait) => while disk.poll_event().is_some() {},
                Err(e) => panic!("{e:?}"),
            }
        }
    }

    /// Scrubs the PG, and waits for the scrub and the recovery that follows.
    pub fn scrub(&mut self, deep: bool, repair: bool) {
        let p = self.map().mapping().acting_primary.0;
        self.feed(p, Event::Scrub(pg::scrub::ScrubRequest { deep, repair, required: true }));
        let limit = self.now + 900_000;
        loop {
            self.run(500);
            if self.primary().is_some_and(|p| p.is_clean() && !p.is_scrubbing()) {
                return;
            }
            assert!(self.now < limit, "the scrub does not end: {}", self.describe(p as usize));
        }
    }

    /// Findings of the last scrub, by object.
    pub fn found(&self) -> Vec<(base::HObject, pg::scrub::report::BadObject)> {
        let found = self.primary().unwrap().scrub_findings().expect("was scrubbed");
        found.objects().map(|(h, b)| (h.clone(), b.clone())).collect()
    }

    pub fn describe(&self, n: usize) -> String {
        let o = &self.osds[n];
        match &o.pg {
            Some(p) => format!(
                "osd.{n} epoch {} {:?} {} missing {} last_update {} tail {} backfill {} les {} reason {:?} {}",
                o.epoch,
                p.state(),
                wire::types::pg_state::to_string(p.state_bits()),
                p.missing(),
                p.info().last_update,
                p.info().log_tail,
                p.info().last_backfill,
                p.info().last_epoch_started,
                p.inactive_reason(),
                p.dump_ops(self.clock().mono)
                    .iter()
                    .map(|o| format!("\n   {}:{} {}", o.client, o.tid, o.stage))
                    .collect::<String>()
            ),
            None => format!("osd.{n} epoch {} running {} no PG", o.epoch, o.running),
        }
    }

    /// The whole content of an OSD, as text.
    pub fn contents(&mut self, n: i32) -> BTreeMap<String, String> {
        let cid = Cid::Pg(self.spg(n));
        let disk = &mut self.osds[n as usize].disk;
        let tag = Tag(u64::MAX - 1);
        macro_rules! get {
            ($e:expr) => {
                loop {
                    match $e {
                        Err(ReadError::Wait) => {
                            let mut kept = VecDeque::new();
                            while let Some(e) = disk.poll_event() {
                                kept.push_back(e);
                            }
                        }
                        r => break r,
                    }
                }
            };
        }
        let mut all = BTreeMap::new();
        let mut from = Oid::new(base::HObject::min()).at_generation(0);
        loop {
            let Ok((page, next)) = get!(disk.list(tag, cid, &from, None, 100)) else { return all };
            for o in page {
                let data = get!(disk.read(tag, cid, &o, 0, 1 << 20)).unwrap();
                let attrs = get!(disk.attrs(tag, cid, &o)).unwrap();
                let omap = get!(disk.omap_range(tag, cid, &o, b"", false, 10_000, 1 << 24)).unwrap();
                // Missing sets differ between OSDs.
                if o.hobj.oid.is_empty() && o.hobj.snap != SnapId::HEAD {
                    assert!(omap.entries.is_empty(), "osd.{n} still lacks objects");
                    continue;
                }
                let keys: Vec<&Bytes> = omap.entries.iter().map(|(k, _)| k).collect();
                all.insert(o.hobj.to_string(), format!("{data:?} {attrs:?} {keys:?}"));
            }
            match next {
                Some(n) => from = n,
                None => break,
            }
        }
        disk.release(tag);
        all
    }

    /// Checks that all copies are equal, and that they hold all acknowledged writes.
    pub fn check(&mut self) {
        assert!(self.violations.is_empty(), "{:#?}", self.violations);
        let acting: Vec<i32> = self.map().mapping().acting.iter().map(|o| o.0).collect();
        let first = self.contents(acting[0]);
        for n in &acting[1..] {
            let other = self.contents(*n);
            for (k, v) in &first {
                assert_eq!(other.get(k), Some(v), "{k} on osd.{n} is not what the primary osd.{} has", acting[0]);
            }
            assert_eq!(first.len(), other.len(), "osd.{n} has more: {:?}", other.keys().collect::<Vec<_>>());
            let (a, b) = (self.osds[acting[0] as usize].pg.as_ref(), self.osds[*n as usize].pg.as_ref());
            let (a, b) = (a.unwrap().info(), b.unwrap().info());
            assert_eq!((a.last_update, a.last_user_version), (b.last_update, b.last_user_version));
            assert_eq!(a.stats.num_objects, b.stats.num_objects);
        }
        if self.map().mapping().acting.len() == self.map().size as usize {
            self.scrub(true, false);
            let p = self.primary().unwrap();
            assert!(p.scrub_errors() == 0, "a deep scrub after all is healed finds errors: {:#?}", self.log);
        }
        for (i, o) in self.objects.iter().enumerate() {
            let key = first
                .iter()
                .find(|(k, _)| k.contains(&format!(":{}:", object_name(i))) && k.ends_with(&SnapId::HEAD.to_string()));
            assert!(o.acked == 0 || key.is_some(), "object {i} with {} writes is gone", o.acked);
        }
        let acting: BTreeSet<i32> = acting.into_iter().collect();
        for n in 0..self.osds.len() as i32 {
            let pg = self.osds[n as usize].pg.as_ref();
            let stray = pg.is_some_and(|p| !matches!(p.state(), State::Deleting { .. } | State::Deleted));
            assert!(acting.contains(&n) || !stray, "a stray copy is left on osd.{n}: {}", self.describe(n as usize));
        }
    }

    /// Reads all objects by a new client.
    pub fn final_reads(&mut self) {
        for i in 0..self.objects.len() {
            let n = self.clients.len();
            self.clients.push(Client {
                tid: 1,
                busy: Some((i, 1, 0, self.objects[i].acked)),
                sent: 0,
                done: 0,
                anywhere: false,
                creates: false,
                errors: 0,
            });
            if self.objects[i].acked > 0 {
                self.send(n, i, 1, 0);
            } else {
                self.clients[n].busy = None;
            }
        }
        for n in 0..self.clients.len() {
            self.at(1, What::Client(n));
        }
        self.run(20_000);
        assert!(self.clients.iter().all(|c| c.busy.is_none()), "a read is not answered");
        assert!(self.violations.is_empty(), "{:#?}", self.violations);
    }
}
