//! An OSD's host: control machine, one reactor's PGs, the production store on a simulated disk.
//!
//! Each input is one loop turn: the machines run until nothing moves, then the store's frame closes and its requests go
//! to the disk. The map is shared with clients that are behind, as the real host does.

use super::{FSID, Timer, addr, mon_addr};
use crate::net::{Arrival, Card, ConnKey, NodeId, Service, about};
use crate::queue::{MS, SEC, Time};
use crate::world::{Clock, Ctx, Event, Input};
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Epoch, Mono, OsdId};
use client::core::mon::{self, MonSession};
use cluster::OsdMap;
use cluster::caps::OsdCaps;
use net::ConnId;
use osd::core::control::{Control, Output as ControlOut, Phase};
use osd::core::heartbeat::{self, Link};
use osd::core::identity::{Addrs, Identity};
use osd::core::lease;
use osd::core::mapstore::{self, Stored};
use osd::core::mgr;
use osd::core::session::{SessionInfo, session_id, session_route};
use osd::core::shard::{Output as ShardOut, Shard};
use pg::lease::{Held, LeaseUpdate};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::engine::{Config, FormatOptions, Store};
use store::testing::disk::SimDisk;
use store::{ObjectStore as _, Tag, Transaction};
use wire::msg::{MMgrConfigure, MOsdLease, MOsdMap, MOsdOp, MOsdPing, MPgPeer, ping_op};
use wire::types::OsdSuperblock;
use wire::{Features, Message, WireMessage as _};

/// How often the real host lets time pass for the PGs.
const TICK: Duration = Duration::from_millis(500);
struct Client {
    info: Arc<SessionInfo>,
    epoch: Epoch,
}

/// A deep scrub of all PGs that an OSD leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubAll {
    /// Look.
    Look,
    /// Mend what differs, too.
    Repair,
}

/// A running OSD.
pub struct Process {
    inc: u64,
    control: Control,
    /// The PGs.
    pub shard: Shard,
    /// Their store.
    pub store: Store,
    stored: Stored,
    own: VecDeque<(Tag, Transaction)>,
    next_tag: u64,
    clients: BTreeMap<ConnKey, Client>,
    answering: BTreeMap<ConnKey, OsdId>,
    mon: Option<ConnKey>,
    mgr: Option<ConnKey>,
    links: BTreeMap<ConnKey, (OsdId, Link)>,
    open_links: BTreeSet<ConnKey>,
    /// Sessions with other OSDs: who, which instance, whether a map has shown it.
    peers: BTreeMap<ConnKey, (OsdId, EntityAddr, bool)>,
    pg_peers: (BTreeSet<OsdId>, BTreeSet<OsdId>),
    timer: Timer,
    next_tick: Mono,
    /// All PGs led here are to be deep-scrubbed.
    pub scrub_all: Option<ScrubAll>,
    leaving: bool,
    end: Option<&'static str>,
    /// Whether the store failed.
    pub failed: bool,
}

/// See the module.
pub struct OsdNode {
    /// Its clocks.
    pub clock: Clock,
    /// Its number.
    pub osd: OsdId,
    /// Its place.
    pub node: NodeId,
    /// Its disk.
    pub disk: SimDisk,
    /// The running process.
    pub process: Option<Process>,
    /// How much slower the disk is than usual.
    pub slow_disk: u64,
    /// It dies after so many more requests of the disk completed: by power cut?
    pub crash_in: Option<(u64, bool)>,
    die: Option<(bool, Time)>,
    config: Config,
    bytes: u64,
}

fn osd_fsid(osd: OsdId) -> Uuid {
    Uuid([osd.0 as u8 + 1; 16])
}

/// The uuid an OSD is registered with.
#[must_use]
pub fn uuid(osd: OsdId) -> Uuid {
    osd_fsid(osd)
}

impl OsdNode {
    /// A new OSD with a formatted disk.
    ///
    /// # Panics
    /// If a blank disk cannot be formatted.
    #[must_use]
    pub fn new(clock: Clock, osd: OsdId, bytes: u64, config: Config, first_fsid: Uuid) -> Self {
        let mut disk = SimDisk::new(bytes);
        let o = FormatOptions { uuid: osd_fsid(osd), reactors: 1, labels: BTreeMap::new() };
        store::engine::format(&mut disk, &o).expect("a blank disk");
        let mut stores = store::engine::open(&mut disk, &config).expect("a fresh store");
        let mut store = stores.remove(0);
        let sb = OsdSuperblock {
            cluster_fsid: first_fsid,
            osd_fsid: osd_fsid(osd),
            whoami: osd,
            ..OsdSuperblock::default()
        };
        store.submit(Tag(1), mapstore::first_transaction(&sb));
        store::engine::device::drive(&mut store, &mut disk);
        Self {
            clock,
            osd,
            node: osd.0 as usize + 1,
            disk,
            process: None,
            slow_disk: 1,
            crash_in: None,
            die: None,
            config,
            bytes,
        }
    }

    /// First block of its disk that may hold objects' data.
    #[must_use]
    pub fn space_start(&self) -> u64 {
        store::layout::Layout::of(self.bytes).map_or(u64::MAX, |l| l.space_start)
    }

    /// Number of the process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// Whether it is to die, how, and when it comes back.
    pub fn wants_to_die(&mut self) -> Option<(bool, Time)> {
        if let Some(p) = &self.process
            && p.end.is_some()
        {
            return Some((false, SEC));
        }
        self.die.take()
    }

    /// Ends the process; the disk keeps what a kill or a power cut leaves.
    pub fn crash(&mut self, power: bool, cx: &mut Ctx) {
        self.process = None;
        self.crash_in = None;
        self.die = None;
        self.disk = if power { self.disk.power_cut(&mut cx.disk_rng) } else { self.disk.killed(&mut cx.disk_rng) };
    }

    /// Begins an orderly stop.
    pub fn stop(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        if let Some(p) = &mut self.process {
            p.control.leave(now);
        }
        self.turn(cx);
    }

    /// Opens the store and starts.
    pub fn start(&mut self, cx: &mut Ctx) {
        let inc = cx.new_inc();
        let now = self.clock.now(cx.now());
        self.disk.write_error = None;
        let mut store = match store::engine::open(&mut self.disk, &self.config) {
            Ok(mut s) => s.remove(0),
            Err(e) => return cx.violation(format!("{}: the store does not open: {e}", self.osd)),
        };
        let loaded = loop {
            match mapstore::load(&mut store, Tag(1), FSID) {
                Err(store::ReadError::Wait) => self.settle(&mut store, cx),
                r => break r,
            }
        };
        store.release(Tag(1));
        let (sb, maps, stored) = match loaded {
            Ok(Ok(l)) => l,
            e => return cx.violation(format!("{}: its maps do not load: {:?}", self.osd, e.map(|r| r.err()))),
        };
        let nonce = inc as u32;
        let at = |port| AddrVec::from(addr(self.node, port, nonce));
        let addrs = Addrs { public: at(6800), cluster: at(6801), hb_back: at(6802), hb_front: at(6803) };
        let host = format!("h{}", self.osd.0);
        let id = Identity {
            whoami: self.osd,
            fsid: FSID,
            osd_fsid: sb.osd_fsid,
            addrs: addrs.clone(),
            hostname: host.clone(),
            crush_weight: 1.0,
            device_class: "ssd".into(),
            crush_update_on_start: true,
            crush_location: vec![format!("host={host}"), "root=default".to_owned()],
            metadata: BTreeMap::from([("hostname".to_owned(), host.clone())]),
        };
        let seed = cx.options.seed ^ inc << 20;
        let mut control = Control::new(id, MonSession::new(vec![mon_addr()], seed, host), maps, sb, seed);
        let mut shard = Shard::new(self.osd, seed, osd::core::places::Places::all_here());
        shard.load(control.feed(), now, &mut store);
        let pg_peers = shard.pg_peers();
        control.set_pg_peers(0, pg_peers.0.clone(), pg_peers.1.clone(), now);
        control.set_ready(now);
        let services = [
            (&addrs.public, Service::Public),
            (&addrs.cluster, Service::Cluster),
            (&addrs.hb_back, Service::HbBack),
            (&addrs.hb_front, Service::HbFront),
        ];
        for (a, s) in services {
            if let Some(a) = a.msgr2() {
                cx.net.listen(a, self.node, inc, s);
            }
        }
        self.process = Some(Process {
            inc,
            control,
            shard,
            store,
            stored,
            own: VecDeque::new(),
            next_tag: 2,
            clients: BTreeMap::new(),
            answering: BTreeMap::new(),
            mon: None,
            mgr: None,
            links: BTreeMap::new(),
            open_links: BTreeSet::new(),
            peers: BTreeMap::new(),
            pg_peers,
            timer: Timer::default(),
            next_tick: now.mono,
            scrub_all: None,
            leaving: false,
            end: None,
            failed: false,
        });
        self.timer(cx);
        self.turn(cx);
    }

    /// Reads from the running store, however long the disk takes; for the end of a run.
    pub fn look<T>(
        &mut self,
        cx: &mut Ctx,
        mut f: impl FnMut(&mut Store) -> Result<T, store::ReadError>,
    ) -> Result<T, store::ReadError> {
        let Some(mut p) = self.process.take() else { return Err(store::ReadError::NoObject) };
        let r = loop {
            match f(&mut p.store) {
                Err(store::ReadError::Wait) => self.settle(&mut p.store, cx),
                r => break r,
            }
        };
        p.store.release(crate::compare::TAG);
        self.process = Some(p);
        r
    }

    /// Runs the disk until the store wants nothing more; for the start, before anybody is served.
    fn settle(&mut self, store: &mut Store, cx: &mut Ctx) {
        store.end_turn();
        while let Some(r) = store.poll_io() {
            self.disk.submit(r);
        }
        while let Some(c) = self.disk.step(&mut cx.disk_rng) {
            store.handle_io(c);
        }
    }

    fn timer(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        p.timer.fired(cx.queue.now());
        p.control.tick(now);
        if p.shard.paced_until().is_some_and(|t| t <= now.mono) {
            p.shard.pace(now, &mut p.store);
        }
        if now.mono >= p.next_tick {
            p.next_tick = now.mono + TICK;
            p.shard.tick(now, &mut p.store);
            if let Some(s) = p.scrub_all.take() {
                let all: Vec<base::SpgId> = p.shard.pgs().map(pg::Pg::spg).collect();
                p.shard.scrub(&all, true, s == ScrubAll::Repair, now, &mut p.store);
            }
        }
    }

    /// An event.
    pub fn handle(&mut self, input: Input, cx: &mut Ctx) {
        match input {
            Input::Net(a) => self.arrival(a, cx),
            Input::Timer => self.timer(cx),
            Input::Disk => {
                let Some(p) = &mut self.process else { return };
                let died = match &mut self.crash_in {
                    Some((0, power)) => Some(*power),
                    Some((n, _)) => {
                        *n -= 1;
                        None
                    }
                    None => None,
                };
                let Some(c) = self.disk.step(&mut cx.disk_rng) else { return };
                if let Some(power) = died {
                    // The request happened; nobody lives to see it.
                    self.die = Some((power, about(&mut cx.rng, 2 * SEC)));
                    return;
                }
                p.store.handle_io(c);
            }
            Input::State(_) => {}
        }
        self.turn(cx);
    }

    fn arrival(&mut self, a: Arrival, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        match a {
            Arrival::Accept(k, service, card) => {
                cx.net.accepted(k, node, p.inc, t);
                match service {
                    Service::HbBack | Service::HbFront => {
                        p.answering.insert(k, OsdId(card.entity.num as i32));
                    }
                    Service::Cluster => {
                        let at = card.addrs.msgr2().copied().unwrap_or_default();
                        p.peers.entry(k).or_insert((OsdId(card.entity.num as i32), at, false));
                    }
                    _ => {
                        p.clients.insert(k, Client { info: Arc::new(session(k, *card)), epoch: Epoch(0) });
                    }
                }
            }
            Arrival::Opened(k) => {
                if p.mon == Some(k) {
                    p.control.handle_mon_open(Features::PACIFIC);
                } else if p.mgr == Some(k) {
                    p.control.handle_mgr_open();
                } else if let Some(&(osd, link)) = p.links.get(&k) {
                    let (epoch, up_from) = p.position();
                    p.open_links.insert(k);
                    p.control.heartbeats().handle_open(osd, link, now, epoch, up_from);
                    p.control.handle_lane_open(osd, now);
                }
            }
            Arrival::Closed(k, refused) => {
                if p.mon == Some(k) {
                    p.mon = None;
                    p.control.handle_mon_closed(now);
                } else if p.mgr == Some(k) {
                    p.mgr = None;
                    p.control.handle_mgr_closed(now);
                } else if let Some((osd, link)) = p.links.remove(&k) {
                    let epoch = p.position().0;
                    p.open_links.remove(&k);
                    p.control.heartbeats().handle_closed(osd, link, refused, epoch);
                } else if let Some((osd, ..)) = p.peers.remove(&k) {
                    p.shard.peer_reset(osd, now, &mut p.store);
                } else if let Some(c) = p.clients.remove(&k) {
                    p.shard.session_closed(c.info.id, now, &mut p.store);
                } else {
                    p.answering.remove(&k);
                }
            }
            Arrival::Message(k, m) => self.message(k, m, cx),
        }
    }

    fn message(&mut self, k: ConnKey, m: Message, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        let result: Result<(), wire::DecodeError> = if p.mon == Some(k) {
            p.control.handle_mon_message(m)
        } else if p.mgr == Some(k) {
            match m.header.kind {
                MMgrConfigure::KIND => MMgrConfigure::from_message(&m).map(|x| p.control.handle_mgr_configure(&x, now)),
                _ => Ok(()),
            }
        } else if let Some(&(osd, link)) = p.links.get(&k) {
            match m.header.kind {
                MOsdLease::KIND => MOsdLease::from_message(&m).map(|l| p.control.handle_lease_grant(osd, &l, now)),
                MOsdMap::KIND => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
                _ => MOsdPing::from_message(&m).map(|ping| {
                    if ping.op == ping_op::PING_REPLY {
                        let epoch = p.position().0;
                        p.control.heartbeats().handle_reply(osd, link, &ping, now, epoch);
                    }
                }),
            }
        } else if let Some(from) = p.answering.get(&k).copied() {
            match m.header.kind {
                MOsdLease::KIND => MOsdLease::from_message(&m).map(|l| {
                    let (maps, grant) = p.control.handle_lease_request(from, &l, now);
                    let maps = maps.map(|m| m.to_message(Features::PACIFIC));
                    let grant = grant.map(|m| m.to_message(Features::PACIFIC));
                    for m in maps.into_iter().chain(grant) {
                        cx.net.send(k, node, p.inc, m, t);
                    }
                }),
                _ => MOsdPing::from_message(&m).map(|ping| {
                    if ping.op == ping_op::PING && ping.fsid == FSID {
                        let (epoch, up_from) = p.position();
                        let r = heartbeat::answer(FSID, &ping, epoch, up_from, now);
                        cx.net.send(k, node, p.inc, r.to_message(Features::PACIFIC), t);
                    }
                }),
            }
        } else if let Some(&(from, ..)) = p.peers.get(&k) {
            match m.header.kind {
                MPgPeer::KIND => {
                    MPgPeer::from_message(&m).map(|m| p.shard.handle_peer(from, Box::new(m), now, &mut p.store))
                }
                _ => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
            }
        } else if p.clients.contains_key(&k) {
            p.client_message(k, node, &m, now, cx)
        } else {
            Ok(())
        };
        if let Err(e) = result {
            cx.violation(format!("{}: message {} not understood: {e}", self.osd, m_name(k)));
        }
    }

    /// Runs the machines until nothing moves, then ends the turn.
    fn turn(&mut self, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let now = self.clock.now(cx.now());
        loop {
            if let Some(e) = p.store.poll_event() {
                p.store_event(e, now);
            } else if let Some(o) = p.shard.poll_output() {
                p.shard_output(o, self.node, now, cx);
            } else if let Some(o) = p.control.poll_output(now) {
                p.control_output(o, self.node, now, cx);
            } else {
                break;
            }
        }
        p.store.end_turn();
        while let Some(r) = p.store.poll_io() {
            self.disk.submit(r);
            let mut d = about(&mut cx.disk_rng, cx.options.disk_delay * self.slow_disk);
            if cx.options.slow_request > 0 && cx.disk_rng.chance(1, cx.options.slow_request) {
                d = d * 100 + MS;
            }
            cx.queue.after(d, Event::Disk(self.node, p.inc));
        }
        let next = [p.control.next_deadline(), Some(p.next_tick), p.shard.paced_until()].into_iter().flatten().min();
        p.timer.set(next, &self.clock, self.node, p.inc, cx);
    }
}

fn m_name(k: ConnKey) -> String {
    format!("on connection {k}")
}

fn session(k: ConnKey, c: Card) -> SessionInfo {
    let num = if c.kind == EntityKind::CLIENT { c.global_id as i64 } else { c.entity.num };
    SessionInfo {
        id: session_id(0, ConnId(k)),
        reactor: 0,
        conn: ConnId(k),
        entity: EntityName::new(c.kind, num),
        auth_name: c.name,
        addr: c.addrs.0.first().copied().unwrap_or_default(),
        features: Features::PACIFIC,
        caps: OsdCaps::allow_all(),
    }
}

impl Process {
    fn position(&self) -> (Epoch, Epoch) {
        (self.control.map().map_or(Epoch(0), |m| m.epoch), self.control.up_from())
    }

    /// Epoch of its newest map.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.position().0
    }

    /// Where its control machine stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.control.phase()
    }

    fn client_message(
        &mut self,
        k: ConnKey,
        node: NodeId,
        m: &Message,
        now: base::Now,
        cx: &mut Ctx,
    ) -> Result<(), wire::DecodeError> {
        let t = cx.now();
        let Some(c) = self.clients.get_mut(&k) else { return Ok(()) };
        match m.header.kind {
            MOsdOp::KIND => {
                let op = MOsdOp::from_message(m)?;
                let have = c.epoch.max(op.osdmap_epoch);
                c.epoch = have;
                if let Some(f) = self.shard.feed().filter(|f| f.map.epoch > have) {
                    c.epoch = f.map.epoch;
                    if let Some(maps) = f.share(have, Features::PACIFIC) {
                        cx.net.send(k, node, self.inc, maps.to_message(Features::PACIFIC), t);
                    }
                }
                self.shard.op(&c.info.clone(), Box::new(op), now, &mut self.store);
            }
            MOsdMap::KIND if c.info.entity.kind == EntityKind::OSD => {
                self.control.handle_map_message(&MOsdMap::from_message(m)?, now);
            }
            _ => {}
        }
        Ok(())
    }

    fn store_event(&mut self, e: store::Event, now: base::Now) {
        if let store::Event::Health(h) = &e {
            self.failed |= matches!(h, store::Health::Failed { .. });
            return;
        }
        let (store::Event::Ready(tag) | store::Event::Durable(tag, _)) = &e else { return };
        let tag = *tag;
        if !self.shard.store_event(e, now, &mut self.store) && self.own.front().is_some_and(|(t, _)| *t == tag) {
            self.submit_own();
        }
    }

    /// Submits the host's own transactions, in order, as far as the store has what they need.
    fn submit_own(&mut self) {
        while let Some((tag, t)) = self.own.front() {
            match self.store.prepare(*tag, t) {
                Err(store::ReadError::Wait) => break,
                Err(_) => {
                    self.store.release(*tag);
                    self.own.pop_front();
                }
                Ok(()) => {
                    if let Some((tag, t)) = self.own.pop_front() {
                        self.store.submit(tag, t);
                    }
                }
            }
        }
    }

    fn shard_output(&mut self, o: ShardOut, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            ShardOut::Reply(s, r) => {
                let conn = session_route(s).1;
                cx.net.send(conn.0, node, self.inc, r.to_message(Features::PACIFIC), t);
            }
            ShardOut::Watch(s, w, data) => {
                let mut m = w.to_message(Features::PACIFIC);
                m.data = data;
                cx.net.send(session_route(s).1.0, node, self.inc, m, t);
            }
            ShardOut::Backoff(s, b) => {
                cx.net.send(session_route(s).1.0, node, self.inc, b.to_message(Features::PACIFIC), t);
            }
            ShardOut::Dropped(..) => {}
            ShardOut::WantPgTemp(pg, osds) => self.control.want_pg_temp(pg, osds),
            ShardOut::Peer { to, msg, .. } => self.send_peer(to, &msg, node, cx),
            ShardOut::WantUpThru(e) => self.control.want_up_thru(e),
            ShardOut::WantMap(e) => self.control.want_map(e),
            // One reactor has them all.
            ShardOut::Members => self.note_pg_peers(now),
            ShardOut::KinElsewhere(..) | ShardOut::PeerElsewhere(..) | ShardOut::OpElsewhere(..) => {}
            // There is one reactor.
            ShardOut::Reserved(_) => {}
            ShardOut::ReadyToMerge(pg, r) => self.control.ready_to_merge(pg, r),
            ShardOut::Created(pg) => self.control.pg_created(pg),
            ShardOut::Log(level, text) => {
                use osd::core::control::prio;
                let prio = match level {
                    pg::LogLevel::Debug => prio::DEBUG,
                    pg::LogLevel::Warn => prio::WARN,
                    pg::LogLevel::Error => prio::ERROR,
                };
                cx.trace.line(t, || format!("osd.{}: {text}", node - 1));
                self.control.clog(prio, text, now);
            }
            // Copies between objects are no part of the workload.
            ShardOut::Fetch(pg, f) => {
                self.shard.fetched(pg, f.id, Err(base::errno::EIO), now, &mut self.store);
            }
            ShardOut::Failed(_) => self.failed = true,
            ShardOut::Stopped => self.end = Some("stopped"),
        }
    }

    fn control_output(&mut self, o: ControlOut, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            ControlOut::Mon(mon::Output::Connect(a)) => {
                let card = self.card(node, true);
                self.mon = Some(cx.net.connect(node, self.inc, a, card, t));
            }
            ControlOut::Mon(mon::Output::Close) => {
                if let Some(k) = self.mon.take() {
                    cx.net.close(k, node, self.inc, t);
                }
            }
            ControlOut::Mon(mon::Output::Send(m)) => {
                if let Some(k) = self.mon {
                    cx.net.send(k, node, self.inc, m, t);
                }
            }
            ControlOut::Mon(mon::Output::Event(_)) => {}
            ControlOut::Heartbeat(o) => self.heartbeat(o, node, cx),
            ControlOut::Mgr(mgr::Output::Connect(a)) => {
                if let Some(a) = a.msgr2().copied() {
                    let card = self.card(node, true);
                    self.mgr = Some(cx.net.connect(node, self.inc, a, card, t));
                }
            }
            ControlOut::Mgr(mgr::Output::Close) => {
                if let Some(k) = self.mgr.take() {
                    cx.net.close(k, node, self.inc, t);
                }
            }
            ControlOut::Mgr(mgr::Output::Open(m)) => {
                if let Some(k) = self.mgr {
                    cx.net.send(k, node, self.inc, m.to_message(Features::PACIFIC), t);
                }
            }
            ControlOut::Mgr(mgr::Output::Queries(_)) => {}
            ControlOut::Mgr(mgr::Output::Collect) => {
                let (stats, lec) = self.shard.stats(now, &self.store);
                let lec = if lec == Epoch(u32::MAX) { Epoch(0) } else { lec };
                let (report, pgs) = self.control.report(stats, lec, now);
                if let Some(k) = self.mgr {
                    cx.net.send(k, node, self.inc, report.to_message(Features::PACIFIC), t);
                    cx.net.send(k, node, self.inc, pgs.to_message(Features::PACIFIC), t);
                }
            }
            ControlOut::Store { records, superblock, trim_below } => {
                let txn = self.stored.store(records, &superblock, trim_below);
                self.own.push_back((Tag(self.next_tag), txn));
                self.next_tag += 1;
                self.submit_own();
            }
            ControlOut::Publish { maps, feed } => {
                cx.trace.line(t, || format!("osd.{} has map {}", node - 1, feed.map.epoch));
                self.shard.handle_maps(&maps, feed.clone(), now, &mut self.store);
                self.old_peers(&feed.map, node, cx);
                self.note_pg_peers(now);
            }
            ControlOut::Create(pgs) => {
                self.shard.create(&pgs, now, &mut self.store);
                self.note_pg_peers(now);
            }
            ControlOut::Lease(o) => {
                let news = match o {
                    lease::Output::Send(osd, m) => return self.send_lease(osd, &m, node, cx),
                    lease::Output::Readable(osd, until, epoch) => LeaseUpdate::Held(osd, Held { until, epoch }),
                    lease::Output::Granted(osd, until) => LeaseUpdate::Granted(osd, until),
                    lease::Output::WantMap(_) => return,
                };
                self.shard.handle_leases(&[news], now, &mut self.store);
            }
            ControlOut::Config(_) | ControlOut::Message(_) => {}
            ControlOut::Phase(p) => {
                cx.trace.line(t, || format!("osd.{} is {p:?}", node - 1));
                if p == Phase::Gone && !self.leaving {
                    self.leaving = true;
                    self.shard.stop(now, &mut self.store);
                }
            }
            ControlOut::Exit(why) => {
                cx.trace.line(t, || format!("osd.{} exits: {why}", node - 1));
                if !self.leaving {
                    self.leaving = true;
                    self.shard.stop(now, &mut self.store);
                }
            }
        }
    }

    /// Every message of a PG goes over the one session of the two OSDs.
    fn send_peer(&mut self, to: OsdId, m: &MPgPeer, node: NodeId, cx: &mut Ctx) {
        let Some(map) = self.shard.feed().map(|f| f.map.clone()) else { return };
        if !map.is_up(to) {
            return;
        }
        let Some(at) = map.cluster_addr(to).and_then(|a| a.msgr2()).copied() else { return };
        let known = self.peers.iter().find(|(_, (_, a, _))| *a == at).map(|(k, _)| *k);
        let t = cx.now();
        let k = known.unwrap_or_else(|| {
            let card = Card { addrs: addr(node, 6801, self.inc as u32).into(), ..self.card(node, false) };
            let k = cx.net.session(node, self.inc, at, card, t);
            self.peers.insert(k, (to, at, true));
            cx.trace.line(t, || format!("osd.{} has session {k} with {to}", node - 1));
            k
        });
        cx.net.send(k, node, self.inc, m.to_message(Features::PACIFIC), t);
    }

    /// Sessions with instances that are gone end.
    fn old_peers(&mut self, map: &OsdMap, node: NodeId, cx: &mut Ctx) {
        let mut gone = Vec::new();
        for (k, (osd, at, listed)) in &mut self.peers {
            if map.is_up(*osd) && map.cluster_addr(*osd).and_then(|a| a.msgr2()) == Some(at) {
                *listed = true;
            } else if *listed {
                gone.push(*k);
            }
        }
        for k in gone {
            self.peers.remove(&k);
            let t = cx.now();
            cx.trace.line(t, || format!("osd.{} ends session {k}", node - 1));
            cx.net.close(k, node, self.inc, t);
        }
    }

    fn note_pg_peers(&mut self, now: base::Now) {
        let (all, led) = self.shard.pg_peers();
        if self.pg_peers != (all.clone(), led.clone()) {
            self.pg_peers = (all.clone(), led.clone());
            self.control.set_pg_peers(0, all, led, now);
        }
    }

    fn send_lease(&self, osd: OsdId, m: &MOsdLease, node: NodeId, cx: &mut Ctx) {
        let open = |l| self.links.iter().find(|(k, x)| **x == (osd, l) && self.open_links.contains(k)).map(|(k, _)| *k);
        if let Some(k) = open(Link::Back).or_else(|| open(Link::Front)) {
            cx.net.send(k, node, self.inc, m.to_message(Features::PACIFIC), cx.queue.now());
        }
    }

    fn card(&self, node: NodeId, addrs: bool) -> Card {
        let n = node as i64 - 1;
        let nonce = self.inc as u32;
        Card {
            kind: EntityKind::OSD,
            name: AuthName { kind: EntityKind::OSD, id: n.to_string() },
            entity: EntityName::new(EntityKind::OSD, n),
            addrs: if addrs {
                AddrVec::from(addr(node, 6800, nonce))
            } else {
                AddrVec::from(base::EntityAddr::unlistening(nonce))
            },
            global_id: 4000 + node as u64,
        }
    }

    fn heartbeat(&mut self, o: heartbeat::Output, node: NodeId, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            heartbeat::Output::Connect { osd, link, addrs } => {
                if let Some(a) = addrs.msgr2().copied() {
                    let card = self.card(node, false);
                    let k = cx.net.connect(node, self.inc, a, card, t);
                    self.links.insert(k, (osd, link));
                }
            }
            heartbeat::Output::Close { osd, link } => {
                let keys: Vec<ConnKey> =
                    self.links.iter().filter(|(_, l)| **l == (osd, link)).map(|(k, _)| *k).collect();
                for k in keys {
                    self.links.remove(&k);
                    self.open_links.remove(&k);
                    cx.net.close(k, node, self.inc, t);
                }
            }
            heartbeat::Output::Ping { osd, link, ping } => {
                let k = self.links.iter().find(|(_, l)| **l == (osd, link)).map(|(k, _)| *k);
                if let Some(k) = k {
                    cx.net.send(k, node, self.inc, ping.to_message(Features::PACIFIC), t);
                }
            }
            heartbeat::Output::Failure(_) => {}
        }
    }
}
