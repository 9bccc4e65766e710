//! An OSD's host: control machine, and PGs and production store of each reactor, all on one simulated disk.
//!
//! Each input is one turn of the loop: the machines run until they have no more outputs, then the stores' frames
//! close and their requests go to the disk. The map is shared with clients that are behind, as in the real host.
//! Messages between reactors ([`super::reactors`]) wait in mailboxes for a while.

use self::clients::Client;
use self::device::{DEVICE_TIMEOUT, Stuck};
use self::fill::Filled;
use self::versions::versions;
use super::fetch::{Fetcher, LOOP};
use super::reactors::{Inner, Mailboxes, REACTORS_MAX, Reactor, disk_id, reactor_of, store_id};
use super::{FSID, Timer, addr};
use crate::net::{Card, ConnKey, NodeId, Service, about};
use crate::queue::{MS, SEC, Time};
use crate::world::{self, Clock, Ctx, Event};
use auth::Principal;
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, Mono, OsdId, PgId};
use bytes::Bytes;
use client::core::mon::MonSession;
use cluster::caps::OsdCaps;
use net::ConnId;
use osd::core::compress::Defaults;
use osd::core::control::{Control, Phase, Report};
use osd::core::heartbeat::Link;
use osd::core::identity::{Addrs, Identity};
use osd::core::maps::MapHistory;
use osd::core::mapstore::{self, Stored};
use osd::core::moves::{Moves, survey};
use osd::core::own::{Need, OwnQueue};
use osd::core::peers::PeerTable;
use osd::core::places::Places;
use osd::core::session::{SessionInfo, owner_of, session_id};
use osd::core::shard::{Input, Shard, StoreNews};
use osd::core::silence::Silence;
use osd::core::unanswered::Forgotten;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::engine::{Config, FormatOptions, Store};
use store::testing::disk::SimDisk;
use store::{ObjectStore as _, Tag, Transaction};
use wire::Features;
use wire::msg::{MPgPeer, PeerFeatures};
use wire::types::OsdSuperblock;

mod arrivals;
mod clients;
mod control;
mod device;
mod fill;
mod inner;
mod others;
mod outputs;
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
        let Some(mut stores) = self.open_stores(cx) else { return };
        let Some((sb, mut maps, stored)) = self.load_maps(&mut stores, cx) else { return };
        maps.keep_recent(cx.options.recent_maps);
        let nonce = inc as u32;
        let at = |port| AddrVec::from(addr(self.node, port, nonce));
        let addrs = Addrs { public: at(6800), cluster: at(6801), hb_back: at(6802), hb_front: at(6803) };
        let seed = cx.options.seed ^ inc << 20;
        let id = self.identity(sb.osd_fsid, addrs.clone(), cx);
        let session = MonSession::new(cx.mon_addrs(), seed, id.hostname.clone());
        let mut control = Control::new(id, session, maps, sb, seed);
        let n = stores.len();
        let seen = control.map().map_or(Epoch(0), |m| m.epoch);
        let reactors = self.start_reactors(stores, &mut control, &addrs.public, seed, cx);
        control.set_ready(now);
        self.listen(&addrs, inc, cx);
        self.process = Some(Process {
            inc,
            fetcher: self.fetcher(&control, nonce, n),
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

    fn listen(&self, addrs: &Addrs, inc: u64, cx: &mut Ctx) {
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
    }

    /// Opens the stores of all reactors. A store that does not open is a violation.
    fn open_stores(&mut self, cx: &mut Ctx) -> Option<Vec<Store>> {
        match store::engine::open(&mut self.disk, &self.config) {
            Ok(s) => Some(s),
            Err(e) => {
                cx.violation(format!("{}: the store does not open: {e}", self.osd));
                None
            }
        }
    }

    /// Loads superblock and maps. Maps that do not load are a violation.
    fn load_maps(&mut self, stores: &mut [Store], cx: &mut Ctx) -> Option<(OsdSuperblock, MapHistory, Stored)> {
        let loaded = loop {
            match mapstore::load(&mut stores[0], Tag(1), FSID) {
                Err(store::ReadError::Wait) => self.settle(stores, cx),
                r => break r,
            }
        };
        stores[0].release(Tag(1));
        match loaded {
            Ok(Ok(l)) => Some(l),
            e => {
                cx.violation(format!("{}: its maps do not load: {:?}", self.osd, e.map(|r| r.err())));
                None
            }
        }
    }

    /// This OSD as it tells the monitors when it boots.
    fn identity(&self, osd_fsid: Uuid, addrs: Addrs, cx: &Ctx) -> Identity {
        let host = format!("h{}", self.osd.0);
        Identity {
            whoami: self.osd,
            fsid: FSID,
            osd_fsid,
            addrs,
            hostname: host.clone(),
            crush_weight: 1.0,
            device_class: "ssd".into(),
            crush_update_on_start: true,
            crush_location: vec![format!("host={host}"), "root=default".to_owned()],
            metadata: versions(self.is_newer(cx), &host),
            peer_features: if self.is_newer(cx) { PeerFeatures::of_mask(u64::MAX) } else { PeerFeatures::OURS },
        }
    }

    /// Makes the machines of all reactors, with the PGs in their stores.
    fn start_reactors(
        &mut self,
        mut stores: Vec<Store>,
        control: &mut Control,
        public: &AddrVec,
        seed: u64,
        cx: &Ctx,
    ) -> Vec<Reactor> {
        let now = self.clock.now(cx.now());
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
        let mut reactors = Vec::new();
        for (i, mut store) in stores.into_iter().enumerate() {
            let places =
                if n == 1 { Places::all_here() } else { Places::new(i, Box::new(move |pg| reactor_of(pg, n)), &found) };
            let mut shard = Shard::new(self.osd, seed ^ (i as u64) << 40, places);
            shard.set_addrs(public.clone());
            shard.share_scrub_slots(Arc::clone(&slots));
            shard.share_reserver(Arc::clone(&reserver), i);
            let doomed = doomed.iter().filter(|(at, _)| *at == i).map(|(_, cid)| *cid).collect();
            shard.share_reactors(n, cx.options.moves, doomed);
            shard.set_walk_step(cx.options.walk.0);
            // So that the calls of clients are long.
            shard.set_part(pg::Room { entries: 1 + (cx.options.seed % 3) as usize, bytes: 1 << 10 });
            if cx.options.compress {
                shard.set_compression(compression(cx.options.seed, self.osd), &mut store);
            }
            shard.load(control.feed(), now, &mut store);
            let peers = shard.news_of_pg_peers();
            control.handle_report(i, peers.unwrap_or_else(|| Report::PgPeers(BTreeSet::new(), BTreeSet::new())), now);
            reactors.push(Reactor { shard, store });
        }
        reactors
    }

    /// The fetcher of copies, with the session that reactors of this OSD see.
    fn fetcher(&self, control: &Control, nonce: u32, reactors: usize) -> Fetcher {
        let own = Card {
            kind: EntityKind::OSD,
            name: AuthName { kind: EntityKind::OSD, id: self.osd.0.to_string() },
            entity: EntityName::new(EntityKind::OSD, self.osd.0.into()),
            addrs: AddrVec::from(addr(self.node, 6800, nonce)),
            global_id: 4000 + self.node as u64,
        };
        Fetcher::new(control.map().cloned(), session(LOOP, (LOOP % reactors as u64) as usize, own))
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

    fn submit_own(&mut self) {
        let Some(store) = self.reactors.first_mut().map(|r| &mut r.store) else { return };
        // A refused filler write is dropped; only a failed store refuses maps.
        self.own.submit(store);
    }
}

/// Options of an OSD that compresses pools without options.
fn compression(seed: u64, osd: OsdId) -> Defaults {
    let n = seed.wrapping_add(osd.0 as u64);
    Defaults::take(|name| match name {
        "bluestore_compression_mode" => Some("force"),
        "bluestore_compression_algorithm" => Some(["lz4", "zstd", "snappy", "zlib"][n as usize % 4]),
        "bluestore_compression_min_blob_size" => Some("8K"),
        "bluestore_compression_max_blob_size" => Some(["16K", "64K"][n as usize / 4 % 2]),
        _ => None,
    })
}
