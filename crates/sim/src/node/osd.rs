//! An OSD's host: control machine, and PGs and production store of each reactor, all on one simulated disk.
//!
//! Each input is one turn of the loop: the machines run until they have no more outputs, then the stores' frames
//! close and their requests go to the disk. The map is shared with clients that are behind, as in the real host.
//! Messages between reactors ([`super::reactors`]) wait in mailboxes for a while.

use self::clients::Client;
use self::device::{DEVICE_TIMEOUT, Stuck};
use self::versions::versions;
use super::fetch::{Fetcher, LOOP};
use super::reactors::{Inner, Mailboxes, REACTORS_MAX, Reactor, disk_id, reactor_of, store_id};
use super::{FSID, Timer, addr, promises};
use crate::net::{Arrival, Card, ConnKey, NodeId, Service, about};
use crate::queue::{MS, SEC, Time};
use crate::world::{self, Clock, Ctx, Event};
use auth::Principal;
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, HObject, Mono, OsdId, PgId, PoolId, SnapId};
use bytes::Bytes;
use client::core::mon::{self, MonSession};
use cluster::caps::OsdCaps;
use net::ConnId;
use osd::core::control::{Control, Output as ControlOut, Phase, Report};
use osd::core::heartbeat::{self, Link};
use osd::core::identity::{Addrs, Identity};
use osd::core::lease;
use osd::core::mapstore::{self, Stored};
use osd::core::mgr;
use osd::core::moves::{Moves, News, Told, survey};
use osd::core::own::{Need, OwnQueue};
use osd::core::peers::PeerTable;
use osd::core::places::Places;
use osd::core::session::{SessionInfo, owner_of, session_id, session_route};
use osd::core::shard::{Input, Output as ShardOut, Shard, StoreNews};
use osd::core::silence::Silence;
use osd::core::unanswered::Forgotten;
use pg::lease::{Held, LeaseUpdate};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::engine::{Config, FormatOptions, Store};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore as _, Oid, Op, Tag, Transaction};
use wire::msg::{MMgrConfigure, MOsdLease, MOsdMap, MOsdPing, MPgPeer, PeerFeatures, ping_op};
use wire::types::OsdSuperblock;
use wire::{Features, Message, WireMessage as _};

mod clients;
mod device;
mod others;
mod versions;

/// Interval at which the PGs' time advances, as in the real host.
const TICK: Duration = Duration::from_millis(500);

/// Longest time of a disk request. The watch over silent devices counts only those of a stuck one. On a slow disk pending requests end soon after
/// it is fast again.
const DISK_MAX: Time = 30 * SEC;

/// Time after which an OSD with a failed store is restarted.
const FAILED_PAUSE: Time = 10 * SEC;

/// A deep scrub of all PGs that an OSD leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubAll {
    /// Only report errors.
    Look,
    /// Repair errors too.
    Repair,
}

/// A running OSD process.
pub struct Process {
    pub(super) inc: u64,
    pub(super) control: Control,
    pub(super) reactors: Vec<Reactor>,
    pub(super) fetcher: Fetcher,
    mail: Mailboxes,
    moves: Moves,
    stored: Stored,
    /// Transactions of the host itself, on the first reactor's store.
    own: OwnQueue,
    clients: BTreeMap<ConnKey, Client>,
    /// Bytes of clients' unanswered operations that no longer count for their connection.
    forgotten: Forgotten,
    answering: BTreeMap<ConnKey, OsdId>,
    mon: Option<ConnKey>,
    mgr: Option<ConnKey>,
    links: BTreeMap<ConnKey, (OsdId, Link)>,
    open_links: BTreeSet<ConnKey>,
    peers: PeerTable<ConnKey, ()>,
    timer: Timer,
    next_tick: Mono,
    clock: Clock,
    /// The newest map that the host published.
    seen: Epoch,
    /// The deep scrub that all PGs led here still have to begin.
    pub scrub_all: Option<ScrubAll>,
    /// Reactors that have stopped.
    stopped: BTreeSet<usize>,
    end: Option<&'static str>,
    /// True if the store failed.
    pub failed: bool,
    silence: Silence,
    /// Copies that failed without being made to, with the errno.
    failed_copies: Vec<(PgId, i32)>,
    /// Copies that the run made fail.
    withdrawn: BTreeSet<PgId>,
}

/// An OSD of the run.
pub struct OsdNode {
    /// The node's clocks.
    pub clock: Clock,
    /// The OSD's number.
    pub osd: OsdId,
    /// The node's index in the world.
    pub node: NodeId,
    /// The OSD's disk.
    pub disk: SimDisk,
    /// The running process.
    pub process: Option<Process>,
    /// Factor by which the disk is slower than usual.
    pub slow_disk: u64,
    /// Number of disk requests after whose completion the process dies; true for a power cut.
    pub crash_in: Option<(u64, bool)>,
    die: Option<(bool, Time)>,
    /// The requests that wait while the device does not answer.
    stuck: Option<Stuck>,
    config: Config,
    bytes: u64,
    filled: Filled,
}

/// State of the foreign object that fills the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Never,
    Now,
    /// The object is removed, now or when the OSD starts.
    Before,
}

/// Name of the object that fills the store. It is written in pieces of [`FILLER_PIECE`] bytes.
const FILLER: &[u8] = b"filler";
const FILLER_PIECE: u64 = 256 << 10;
const FILLER_LAST: u64 = 8 << 10;

fn filler() -> Oid {
    let name = HObject { oid: Bytes::from_static(FILLER), snap: SnapId::HEAD, pool: PoolId(-1), ..HObject::min() };
    name.into()
}

fn osd_fsid(osd: OsdId) -> Uuid {
    Uuid([osd.0 as u8 + 1; 16])
}

/// The uuid with which an OSD is registered.
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
        let o = FormatOptions { uuid: osd_fsid(osd), reactors: config.reactors, labels: BTreeMap::new() };
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
        drop((store, stores));
        Self {
            clock,
            osd,
            node: osd.0 as usize + 1,
            disk,
            process: None,
            slow_disk: 1,
            crash_in: None,
            die: None,
            stuck: None,
            config,
            bytes,
            filled: Filled::Never,
        }
    }

    /// First block of the disk that may hold object data.
    #[must_use]
    pub fn space_start(&self) -> u64 {
        store::layout::Layout::of(self.bytes).map_or(u64::MAX, |l| l.space_start)
    }

    /// Number of the running process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// The death that the process must suffer now: true for a power cut, and the time until the next start.
    pub fn wants_to_die(&mut self) -> Option<(bool, Time)> {
        if let Some(p) = &self.process
            && p.end.is_some()
        {
            // An OSD with a failed store is restarted after a pause.
            return Some((false, if p.control.failure().is_some() { FAILED_PAUSE } else { SEC }));
        }
        self.die.take()
    }

    /// Kills the process. The disk keeps what survives a kill or a power cut.
    pub fn crash(&mut self, power: bool, cx: &mut Ctx) {
        self.process = None;
        self.crash_in = None;
        self.die = None;
        self.stuck.as_mut().into_iter().for_each(Stuck::ended);
        let disk = std::mem::replace(&mut self.disk, SimDisk::new(0));
        self.disk = if power { disk.after_power_cut(&mut cx.disk_rng) } else { disk.after_kill(&mut cx.disk_rng) };
    }

    /// Begins an orderly stop.
    pub fn stop(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        if let Some(p) = &mut self.process {
            p.control.leave(now);
        }
        self.turn(cx);
    }

    /// Fills the store until `free` bytes are left, or to its end; false if it is already filled or too small.
    pub fn fill(&mut self, free: u64, cx: &mut Ctx) -> bool {
        let Some(p) = self.process.as_mut().filter(|_| self.filled != Filled::Now) else { return false };
        let bytes = p.reactors.first().map_or(0, |r| r.store.statfs().available).saturating_sub(free);
        if bytes < FILLER_PIECE {
            return false;
        }
        self.filled = Filled::Now;
        // The content does not look like a client's data.
        let piece: Bytes = (0..FILLER_PIECE).map(|i| (i ^ i >> 8) as u8).collect::<Vec<u8>>().into();
        let mut write = |off, data| {
            let mut t = Transaction::new();
            t.push(Op::Write { cid: Cid::Meta, oid: filler(), off, data, sums: None });
            p.own(t, Need::May);
        };
        for off in (0..bytes).step_by(FILLER_PIECE as usize) {
            write(off, piece.clone());
        }
        if free == 0 {
            // To fill the last block, writes go on until the store refuses them; refused writes are dropped.
            let behind = bytes.next_multiple_of(FILLER_PIECE);
            let last = piece.slice(..FILLER_LAST as usize);
            for off in (0..2 * FILLER_PIECE).step_by(FILLER_LAST as usize) {
                write(behind + off, last.clone());
            }
        }
        cx.line(|| format!("{}: a foreign object fills {bytes} bytes", self.osd));
        self.turn(cx);
        true
    }

    /// Reverts unfound objects of PGs led here (`mark_unfound_lost revert`), or deletes them if the pool is
    /// erasure-coded. Returns the names of those objects.
    pub fn revert_unfound(&mut self, cx: &mut Ctx) -> Vec<Bytes> {
        let now = self.clock.now(cx.now());
        let mut names = Vec::new();
        for r in self.process.iter_mut().flat_map(|p| &mut p.reactors) {
            let mut led: Vec<PgId> = Vec::new();
            for p in r.shard.pgs().filter(|p| p.is_primary()) {
                names.extend(p.unfound_objects().into_iter().map(|(h, _)| h.oid));
                led.push(p.spg().pg);
            }
            for pg in led {
                // Shards have no older version to revert to.
                let revert = cx.options.code.is_none();
                let said = r.shard.mark_lost(pg, revert, now, &mut r.store);
                cx.line(|| format!("{}: mark_unfound_lost of {pg}: {said:?}", self.osd));
            }
        }
        self.turn(cx);
        names
    }

    /// Makes one copy of a PG fail (chosen by `which`), or all of them. False if there is none.
    pub fn fail_copies(&mut self, which: Option<u64>, cx: &mut Ctx) -> bool {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return false };
        let serves = |p: &&pg::Pg| p.is_active() || *p.state() == pg::State::ReplicaActive;
        let all: Vec<(usize, PgId)> = (0..)
            .zip(&p.reactors)
            .flat_map(|(i, r)| r.shard.pgs().filter(serves).map(move |p| (i, p.spg().pg)).collect::<Vec<_>>())
            .collect();
        let chosen = match which {
            Some(n) => all.get((n % all.len().max(1) as u64) as usize).copied().into_iter().collect(),
            None => all,
        };
        for (i, pg) in &chosen {
            p.withdrawn.insert(*pg);
            if let Some(r) = p.reactors.get_mut(*i) {
                r.shard.withdraw(*pg, base::errno::EIO, "the simulator wants it", now, &mut r.store);
            }
        }
        self.turn(cx);
        !chosen.is_empty()
    }

    /// Removes the object that fills the store.
    pub fn empty(&mut self, cx: &mut Ctx) {
        if self.filled == Filled::Now {
            self.filled = Filled::Before;
            if let Some(p) = &mut self.process {
                p.remove_filler();
            }
            self.turn(cx);
        }
    }

    /// Opens the store and starts a process.
    pub fn start(&mut self, cx: &mut Ctx) {
        let _at =
            tracing::info_span!(target: "at", "starts", t = cx.now() as f64 / SEC as f64, osd = self.osd.0).entered();
        if self.stuck.is_some() {
            // The start reads from the device.
            return cx.queue.after(FAILED_PAUSE, Event::Start(self.node));
        }
        let inc = cx.new_inc();
        let now = self.clock.now(cx.now());
        self.disk.write_error = None;
        if cx.options.reactors_change {
            self.config.reactors = 1 + cx.rng.below(REACTORS_MAX.into()) as u16;
        }
        let mut stores = match store::engine::open(&mut self.disk, &self.config) {
            Ok(s) => s,
            Err(e) => return cx.violation(format!("{}: the store does not open: {e}", self.osd)),
        };
        let loaded = loop {
            match mapstore::load(&mut stores[0], Tag(1), FSID) {
                Err(store::ReadError::Wait) => self.settle(&mut stores, cx),
                r => break r,
            }
        };
        stores[0].release(Tag(1));
        let (sb, mut maps, stored) = match loaded {
            Ok(Ok(l)) => l,
            e => return cx.violation(format!("{}: its maps do not load: {:?}", self.osd, e.map(|r| r.err()))),
        };
        maps.keep_recent(cx.options.recent_maps);
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
            metadata: versions(self.is_newer(cx), &host),
            peer_features: if self.is_newer(cx) { PeerFeatures::of_mask(u64::MAX) } else { PeerFeatures::OURS },
        };
        let seed = cx.options.seed ^ inc << 20;
        let mut control = Control::new(id, MonSession::new(cx.mon_addrs(), seed, host), maps, sb, seed);
        let n = stores.len();
        let disk = &mut self.disk;
        let drive = |s: &mut Store| store::engine::device::drive(s, disk);
        let (found, doomed) = survey(&mut stores, |pg| reactor_of(pg, n), drive);
        let (slots, reserver) = (Arc::default(), Arc::<pg::reserve::Reserver>::default());
        doomed.iter().for_each(|(_, cid)| reserver.announce_removal(*cid));
        let n_log = cx.options.log_records;
        let short =
            pg::keep::LogConfig { target: 0, min: n_log, max: n_log, dups: n_log, trim_min: 10, ..Default::default() };
        reserver.set_log(&short);
        reserver.set_sizes(cx.options.sizes.0, cx.options.sizes.1);
        let seen = control.map().map_or(Epoch(0), |m| m.epoch);
        let mut reactors = Vec::new();
        for (i, mut store) in stores.into_iter().enumerate() {
            let places =
                if n == 1 { Places::all_here() } else { Places::new(i, Box::new(move |pg| reactor_of(pg, n)), &found) };
            let mut shard = Shard::new(self.osd, seed ^ (i as u64) << 40, places);
            shard.set_addrs(addrs.public.clone());
            shard.share_scrub_slots(Arc::clone(&slots));
            shard.share_reserver(Arc::clone(&reserver), i);
            let doomed = doomed.iter().filter(|(at, _)| *at == i).map(|(_, cid)| *cid).collect();
            shard.share_reactors(n, cx.options.moves, doomed);
            shard.set_walk_step(cx.options.walk.0);
            // So that the calls of clients are long.
            shard.set_part(pg::Room { entries: 1 + (cx.options.seed % 3) as usize, bytes: 1 << 10 });
            shard.load(control.feed(), now, &mut store);
            let peers = shard.news_of_pg_peers();
            control.handle_report(i, peers.unwrap_or_else(|| Report::PgPeers(BTreeSet::new(), BTreeSet::new())), now);
            reactors.push(Reactor { shard, store });
        }
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
        let own = Card {
            kind: EntityKind::OSD,
            name: AuthName { kind: EntityKind::OSD, id: self.osd.0.to_string() },
            entity: EntityName::new(EntityKind::OSD, self.osd.0.into()),
            addrs: at(6800),
            global_id: 4000 + self.node as u64,
        };
        let fetcher = Fetcher::new(control.map().cloned(), session(LOOP, (LOOP % n as u64) as usize, own));
        self.process = Some(Process {
            inc,
            fetcher,
            control,
            reactors,
            mail: Mailboxes::new(n + 1),
            moves: Moves::new(n),
            stored,
            own: OwnQueue::default(),
            clients: BTreeMap::new(),
            forgotten: Forgotten::default(),
            answering: BTreeMap::new(),
            mon: None,
            mgr: None,
            links: BTreeMap::new(),
            open_links: BTreeSet::new(),
            peers: PeerTable::default(),
            timer: Timer::default(),
            next_tick: now.mono,
            clock: self.clock,
            seen,
            scrub_all: None,
            stopped: BTreeSet::new(),
            end: None,
            failed: false,
            silence: Silence::new(DEVICE_TIMEOUT),
            failed_copies: Vec::new(),
            withdrawn: BTreeSet::new(),
        });
        if let Some(p) = self.process.as_mut().filter(|_| self.filled == Filled::Before) {
            p.remove_filler();
        }
        self.timer(cx);
        self.turn(cx);
    }

    /// Reads from the running store of a PG, and runs the disk until the result is there; for the end of a run.
    pub fn look<T>(
        &mut self,
        pg: PgId,
        cx: &mut Ctx,
        mut f: impl FnMut(&mut Store) -> Result<T, store::ReadError>,
    ) -> Result<T, store::ReadError> {
        let Some(mut p) = self.process.take() else { return Err(store::ReadError::NoObject) };
        let i = p.reactors.iter().position(|r| r.shard.pg(pg).is_some()).unwrap_or(0);
        let r = loop {
            match f(&mut p.reactors[i].store) {
                Err(store::ReadError::Wait) => {
                    let mut all: Vec<&mut Store> = p.reactors.iter_mut().map(|r| &mut r.store).collect();
                    self.settle_all(&mut all, cx);
                }
                r => break r,
            }
        };
        p.reactors[i].store.release(crate::compare::TAG);
        self.process = Some(p);
        r
    }

    /// Runs the disk until the stores have no more requests; for the start, before the OSD serves.
    fn settle(&mut self, stores: &mut [Store], cx: &mut Ctx) {
        self.settle_all(&mut stores.iter_mut().collect::<Vec<_>>(), cx);
    }

    fn settle_all(&mut self, stores: &mut [&mut Store], cx: &mut Ctx) {
        for (i, s) in stores.iter_mut().enumerate() {
            s.end_turn();
            while let Some(r) = s.poll_io() {
                self.disk.submit(disk_id(i, r));
            }
        }
        while let Some(c) = self.disk.step(&mut cx.disk_rng) {
            let (i, c) = store_id(c);
            if let Some(s) = stores.get_mut(i) {
                s.handle_io(c);
            }
        }
    }

    fn timer(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        self.watch_device(now);
        let Some(p) = &mut self.process else { return };
        p.timer.fired(cx.queue.now());
        p.control.tick(now);
        p.fetcher.tick(now);
        for r in &mut p.reactors {
            r.shard.walk_on(now, &mut r.store);
            r.shard.next_part(now, &mut r.store);
            if r.shard.paced_until().is_some_and(|t| t <= now.mono) {
                r.shard.pace(now, &mut r.store);
            }
        }
        if now.mono >= p.next_tick {
            p.next_tick = now.mono + TICK;
            p.forget_old(self.node, now, cx);
            p.submit_own();
            let scrub = p.scrub_all.take();
            for r in &mut p.reactors {
                r.store.confirm();
                r.shard.tick(now, &mut r.store);
                if let Some(s) = scrub {
                    let all: Vec<base::SpgId> = r.shard.pgs().map(pg::Pg::spg).collect();
                    r.shard.scrub(&all, true, s == ScrubAll::Repair, now, &mut r.store);
                }
            }
        }
    }

    /// Handles an event.
    pub fn handle(&mut self, input: world::Input, cx: &mut Ctx) {
        // Log lines carry the OSD and the virtual time.
        let _at = tracing::info_span!(target: "at", "at", t = cx.now() as f64 / SEC as f64, osd = self.osd.0).entered();
        match input {
            world::Input::Net(a) => self.arrival(a, cx),
            world::Input::Timer => self.timer(cx),
            world::Input::Disk if self.withholds() => {}
            world::Input::Disk => {
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
                    // The disk request completed, and the process dies before it sees that.
                    self.die = Some((power, about(&mut cx.rng, 2 * SEC)));
                    return;
                }
                let (i, c) = store_id(c);
                if let Some(r) = p.reactors.get_mut(i) {
                    r.store.handle_io(c);
                }
            }
            world::Input::Inner(to) => {
                let (now, node) = (self.clock.now(cx.now()), self.node);
                let Some(p) = &mut self.process else { return };
                match p.mail.take(to) {
                    Some(Inner::Moves(at, news)) => p.moving(at, news, node, now, cx),
                    Some(Inner::Input(input)) => p.input(to, input, now),
                    None => {}
                }
            }
            world::Input::State(_) => {}
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
                        p.peers.accepted(k, OsdId(card.entity.num as i32), at, ());
                    }
                    _ => {
                        let info = Arc::new(session(k, p.at(k), *card));
                        p.clients.insert(k, Client::new(info));
                    }
                }
            }
            Arrival::Opened(k) => {
                if p.mon == Some(k) {
                    p.control.handle_mon_open(Features::PACIFIC);
                } else if p.mgr == Some(k) {
                    p.control.handle_mgr_open();
                } else if p.fetcher.has(k) {
                    p.fetcher.handle_open(k);
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
                } else if p.fetcher.has(k) {
                    p.fetcher.handle_closed(k, now);
                } else if let Some((osd, link)) = p.links.remove(&k) {
                    let (epoch, up_from) = p.position();
                    p.open_links.remove(&k);
                    p.control.heartbeats().handle_closed(osd, link, refused, now, epoch, up_from);
                } else if let Some(peer) = p.peers.forget(k) {
                    p.all(&Input::PeerReset(peer.osd), node, now, cx);
                } else if let Some(session) = p.client_gone(k) {
                    p.all(&Input::SessionClosed(session), node, now, cx);
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
        } else if let Some(from) = p.peers.get(k).map(|s| s.osd) {
            match m.header.kind {
                MPgPeer::KIND => {
                    MPgPeer::from_message(&m).map(|m| p.peer_message(p.at(k), from, Box::new(m), node, now, cx))
                }
                _ => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
            }
        } else if p.fetcher.has(k) {
            match m.header.kind {
                MOsdMap::KIND => MOsdMap::from_message(&m).map(|m| p.control.handle_map_message(&m, now)),
                _ => p.fetcher.handle_message(k, self.osd, &m),
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

    /// Runs the machines until they have no more outputs, then ends the turn.
    fn turn(&mut self, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let now = self.clock.now(cx.now());
        loop {
            if let Some((i, e)) = (0..).zip(&mut p.reactors).find_map(|(i, r)| Some((i, r.store.poll_event()?))) {
                p.store_event(i, e, now);
            } else if let Some((i, o)) = (0..).zip(&mut p.reactors).find_map(|(i, r)| Some((i, r.shard.poll_output()?)))
            {
                p.shard_output(i, o, self.node, now, cx);
            } else if let Some(o) = p.control.poll_output(now) {
                p.control_output(o, self.node, now, cx);
            } else if let Some(o) = p.fetcher.poll_output() {
                p.fetch_output(o, self.node, now, cx);
            } else {
                break;
            }
        }
        for (pg, e) in std::mem::take(&mut p.failed_copies) {
            // A PG may report the failure of its store before the store does.
            if !p.failed && self.disk.write_error.is_none() {
                cx.violation(format!("{}: the copy of {pg} failed: {}", self.osd, base::errno::name(e)));
            }
        }
        for (i, r) in p.reactors.iter_mut().enumerate() {
            r.store.end_turn();
            while r.store.wants_turn() {
                r.store.end_turn();
            }
            while let Some(r) = r.store.poll_io() {
                self.disk.submit(disk_id(i, r));
                let mut d = about(&mut cx.disk_rng, cx.options.disk_delay * self.slow_disk);
                if cx.options.slow_request > 0 && cx.disk_rng.chance(1, cx.options.slow_request) {
                    d = d * 100 + MS;
                }
                cx.queue.after(d.min(DISK_MAX), Event::Disk(self.node, p.inc));
            }
        }
        let paced = p.reactors.iter().filter_map(|r| r.shard.paced_until()).min();
        let walks = p.reactors.iter().any(|r| r.shard.is_walking() || r.shard.has_part());
        let walk = walks.then(|| now.mono + Duration::from_nanos(cx.options.walk.1));
        let fetches = p.fetcher.next_deadline();
        let next = [p.control.next_deadline(), Some(p.next_tick), paced, walk, fetches].into_iter().flatten().min();
        p.timer.set(next, &self.clock, self.node, p.inc, cx);
    }
}

fn m_name(k: ConnKey) -> String {
    format!("on connection {k}")
}

fn session(k: ConnKey, reactor: usize, c: Card) -> SessionInfo {
    let nobody = Principal::nobody(([127, 0, 0, 1], 1).into());
    let principal = Principal { name: c.name, kind: c.kind, global_id: c.global_id, ..nobody };
    SessionInfo {
        id: session_id(reactor, ConnId::from_packed(k)),
        reactor,
        conn: ConnId(k),
        entity: principal.entity(c.entity.num),
        owner: owner_of(&principal),
        principal,
        addr: c.addrs.0.first().copied().unwrap_or_default(),
        features: Features::PACIFIC,
        caps: OsdCaps::allow_all(),
    }
}

impl Process {
    fn position(&self) -> (Epoch, Epoch) {
        (self.control.map().map_or(Epoch(0), |m| m.epoch), self.control.up_from())
    }

    /// Epoch of the OSD's newest map.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.position().0
    }

    /// Space of the first reactor's store.
    #[must_use]
    pub fn statfs(&self) -> Option<store::Statfs> {
        self.reactors.first().map(|r| r.store.statfs())
    }

    /// Phase of the control machine.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.control.phase()
    }

    /// All PGs of the OSD.
    pub fn pgs(&self) -> impl Iterator<Item = &pg::Pg> {
        self.reactors.iter().flat_map(|r| r.shard.pgs())
    }

    /// A copy of a PG; if this OSD has several shards of it, any of them.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&pg::Pg> {
        self.reactors.iter().find_map(|r| r.shard.pg(pg))
    }

    /// The PG's machine that is primary in that map, if it is here. The OSD may also have other shards of the PG as
    /// strays.
    #[must_use]
    pub fn led(&self, map: &cluster::OsdMap, pg: PgId) -> Option<&pg::Pg> {
        let spg = map.primary_shard(pg);
        self.pgs().find(|p| p.spg() == spg)
    }

    /// The reactor that has a connection.
    fn at(&self, k: ConnKey) -> usize {
        (k % self.reactors.len() as u64) as usize
    }

    /// Sends an input to a reactor: at once if there is only one.
    pub(super) fn post(&mut self, to: usize, input: Input, node: NodeId, now: base::Now, cx: &mut Ctx) {
        if self.reactors.len() == 1 {
            return self.input(to, input, now);
        }
        self.put_mail(to, Inner::Input(input), node, cx);
    }

    fn put_mail(&mut self, to: usize, m: Inner, node: NodeId, cx: &mut Ctx) {
        let at = self.mail.put(to, m, cx.queue.now(), &mut cx.rng);
        cx.queue.at(at, Event::Inner(node, self.inc, to));
    }

    fn all(&mut self, input: &Input, node: NodeId, now: base::Now, cx: &mut Ctx) {
        for i in 0..self.reactors.len() {
            self.post(i, input.clone(), node, now, cx);
        }
    }

    fn input(&mut self, to: usize, input: Input, now: base::Now) {
        let Some(r) = self.reactors.get_mut(to) else { return };
        if r.handle(input, now) {
            self.note_pg_peers(to, now);
        }
    }

    /// Handles the news of reactor `at` about PGs that move.
    fn moving(&mut self, at: usize, news: News, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let told = self.moves.handle(at, news, self.control.map().map(|m| &**m));
        if let Some(Told::Decided { pg, from, to, granted }) = told {
            let t = cx.now();
            cx.moved += u64::from(granted);
            let word = if granted { "goes" } else { "does not go" };
            cx.trace.line(t, || format!("osd.{}: {pg} {word} from reactor {from} to {to}", node - 1));
        }
        let n = self.reactors.len();
        for (i, input) in told.into_iter().flat_map(|t| t.inputs(n)) {
            self.post(i, input, node, now, cx);
        }
    }

    /// A PG that is not on the reactor of its name, or is moving.
    #[must_use]
    pub fn astray(&self) -> Option<String> {
        if let Some((pg, from, to)) = self.moves.moving() {
            return Some(format!("{pg} goes from reactor {from} to {to}"));
        }
        self.reactors.iter().enumerate().find_map(|(i, r)| {
            let pg = r.shard.pgs().find(|p| r.shard.home(p.spg().pg) != i)?;
            Some(format!("{} is on reactor {i}, {:?}", pg.spg(), pg.state()))
        })
    }

    /// Handles a message of another OSD on a connection of reactor `at`.
    fn peer_message(&mut self, at: usize, from: OsdId, m: Box<MPgPeer>, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let Some(r) = self.reactors.get_mut(at) else { return };
        match r.shard.place(m.spg) {
            to if to == at => r.shard.handle_peer(from, m, now, &mut r.store),
            to => self.post(to, Input::Peer(from, m), node, now, cx),
        }
    }

    /// True if the store or the copy of a PG failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed || self.pgs().any(pg::Pg::has_failed)
    }

    fn store_event(&mut self, at: usize, e: store::Event, now: base::Now) {
        let Some(r) = self.reactors.get_mut(at) else { return };
        match r.shard.store_event(e, now, &mut r.store) {
            Some(StoreNews::Failed(_, what)) => {
                self.failed = true;
                self.control.store_failed(&what, now);
            }
            Some(StoreNews::Own(tag, _)) if at == 0 && self.own.awaits(tag) => self.submit_own(),
            _ => {}
        }
    }

    fn own(&mut self, t: Transaction, need: Need) {
        self.own.push(t, need);
        self.submit_own();
    }

    fn remove_filler(&mut self) {
        let mut t = Transaction::new();
        t.push(Op::Remove { cid: Cid::Meta, oid: filler() });
        // The removal makes room for maps that wait for space, and replaces filler writes that still wait.
        if let Some(r) = self.reactors.first_mut() {
            self.own.make_room(t, &mut r.store);
        }
        self.submit_own();
    }

    fn submit_own(&mut self) {
        let Some(store) = self.reactors.first_mut().map(|r| &mut r.store) else { return };
        // A refused filler write is dropped; only a failed store refuses maps.
        self.own.submit(store);
    }

    fn shard_output(&mut self, at: usize, o: ShardOut, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            ShardOut::Reply(s, r) => {
                self.send_client(s, &r.to_message(Features::PACIFIC), node, cx);
                self.answered(session_route(s).1.packed(), r.tid, node, now, cx);
            }
            ShardOut::Watch(s, w, data) => {
                let mut m = w.to_message(Features::PACIFIC);
                m.data = data;
                cx.net.send(session_route(s).1.packed(), node, self.inc, m, t);
            }
            ShardOut::Backoff(s, b) => {
                self.send_client(s, &b.to_message(Features::PACIFIC), node, cx);
            }
            ShardOut::Dropped(s, tid) => {
                let feed = self.reactors.get(at).and_then(|r| r.shard.newest_feed()).cloned();
                self.dropped(session_route(s).1.packed(), tid, feed.as_deref(), node, now, cx);
            }
            ShardOut::Close(s) => cx.net.close(session_route(s).1.packed(), node, self.inc, t),
            ShardOut::Control(report) => {
                if let Report::Log(_, text) = &report {
                    cx.trace.line(t, || format!("osd.{}: {text}", node - 1));
                }
                self.control.handle_report(at, report, now);
            }
            ShardOut::Peer { to, msg, .. } => self.send_peer(at, to, &msg, node, cx),
            ShardOut::Members => self.note_pg_peers(at, now),
            ShardOut::Reactor(i, input) => self.post(i, input, node, now, cx),
            ShardOut::Moves(news) if self.reactors.len() > 1 => {
                self.put_mail(self.reactors.len(), Inner::Moves(at, news), node, cx);
            }
            // Where there is one reactor, no PG moves.
            ShardOut::Moves(_) => {}
            ShardOut::Fetch(pg, f) => self.fetcher.fetch(at, pg, *f),
            ShardOut::PgFailed(pg, e) => {
                // A PG that is split off a failed copy fails with it.
                if !self.withdrawn.iter().any(|w| w.pool == pg.pool && descends(pg.seed, w.seed)) {
                    self.failed_copies.push((pg, e));
                }
            }
            ShardOut::Stopped => {
                self.stopped.insert(at);
                if self.stopped.len() == self.reactors.len() {
                    self.control.stopped(now);
                }
            }
        }
    }

    fn send_client(&mut self, s: pg::SessionId, m: &Message, node: NodeId, cx: &mut Ctx) {
        let k = session_route(s).1.packed();
        if k != LOOP {
            return cx.net.send(k, node, self.inc, m.clone(), cx.queue.now());
        }
        if let Err(e) = self.fetcher.handle_message(k, OsdId(node as i32 - 1), m) {
            cx.violation(format!("osd.{}: its own answer is not understood: {e}", node - 1));
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
            ControlOut::Mgr(mgr::Output::Collect { all }) => {
                let (mut stats, mut lec) = (mgr::Stats::default(), Epoch(u32::MAX));
                for r in &mut self.reactors {
                    let (s, l) = r.shard.stats(all, now, &r.store);
                    stats.add(s);
                    lec = lec.min(l);
                }
                let lec = if lec == Epoch(u32::MAX) { Epoch(0) } else { lec };
                let (report, pgs) = self.control.report(stats, lec, now);
                if let Some(k) = self.mgr {
                    cx.net.send(k, node, self.inc, report.to_message(Features::PACIFIC), t);
                    cx.net.send(k, node, self.inc, pgs.to_message(Features::PACIFIC), t);
                }
            }
            ControlOut::Store { records, superblock, trim_below } => {
                let txn = self.stored.store(records, &superblock, trim_below);
                self.own(txn, Need::Must);
            }
            ControlOut::Publish { maps, feed } => {
                cx.trace.line(t, || format!("osd.{} has map {}", node - 1, feed.map.epoch));
                self.sees_all(&maps, node, cx);
                maps.iter().for_each(|m| self.moves.published(m));
                maps.iter().for_each(|m| self.fetcher.handle_map(m.clone()));
                self.all(&Input::Maps(maps, feed.clone()), node, now, cx);
                self.old_peers(&feed.map, node, cx);
            }
            ControlOut::Create(pgs) => self.all(&Input::Create(pgs), node, now, cx),
            ControlOut::Lease(o) => {
                promises::look(&o, node, &self.clock, cx);
                let news = match o {
                    lease::Output::Send(osd, m) => return self.send_lease(osd, &m, node, cx),
                    lease::Output::Readable(osd, until, epoch) => LeaseUpdate::Held(osd, Held { until, epoch }),
                    lease::Output::Granted(osd, until) => LeaseUpdate::Granted(osd, until),
                    lease::Output::WantMap(_) => return,
                };
                self.all(&Input::Lease(news), node, now, cx);
            }
            ControlOut::Config(_) | ControlOut::Message(_) => {}
            ControlOut::Phase(p) => {
                cx.trace.line(t, || format!("osd.{} is {p:?}", node - 1));
                if p == Phase::Gone {
                    self.end = Some("gone");
                }
            }
            ControlOut::Stop { abandon } => self.all(&Input::Stop { abandon }, node, now, cx),
            ControlOut::Exit(why) => cx.trace.line(t, || format!("osd.{} exits: {why}", node - 1)),
        }
    }

    fn note_pg_peers(&mut self, at: usize, now: base::Now) {
        let Some(r) = self.reactors.get_mut(at) else { return };
        if let Some(report) = r.shard.news_of_pg_peers() {
            self.control.handle_report(at, report, now);
        }
    }

    fn send_lease(&self, osd: OsdId, m: &MOsdLease, node: NodeId, cx: &mut Ctx) {
        let open = |l| self.links.iter().find(|(k, x)| **x == (osd, l) && self.open_links.contains(k)).map(|(k, _)| *k);
        if let Some(k) = open(Link::Back).or_else(|| open(Link::Front)) {
            cx.net.send(k, node, self.inc, m.to_message(Features::PACIFIC), cx.queue.now());
        }
    }

    pub(super) fn card(&self, node: NodeId, addrs: bool) -> Card {
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

/// True if PG `seed` is `ancestor`, or was split off it. Each split gives the child a higher bit.
fn descends(mut seed: u32, ancestor: u32) -> bool {
    while seed != ancestor {
        let Some(bit) = seed.checked_ilog2() else { return false };
        seed &= !(1 << bit);
    }
    true
}
