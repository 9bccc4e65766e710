//! The PGs of one reactor.
//!
//! Invariants:
//!  1. Every PG sees every map since it was made or loaded, in order.
//!  2. An operation is answered, held by a PG, parked for a map or a PG's creation, or dropped because its sender will
//!     target it anew; parked operations are bounded.
//!  3. Index 0 names the host's own transactions; PGs have indices from 1, never used again.

mod copies;
mod instance;
mod kin;
mod orphans;
mod report;
mod transfer;
mod walk;

use super::control::PgCreate;
use super::maps::MapFeed;
use super::mgr::Stats;
use super::places::Places;
use super::session::SessionInfo;
use super::slots::Slots;
use super::waiting::Waiting;
use base::errno::{EAGAIN, EINVAL, EIO, EPERM, Errno};
use base::{EntityAddr, Epoch, Eversion, Mono, Now, OsdId, PgId, PoolId, SpgId};
use bytes::Bytes;
use cluster::caps::{ClassCall, OsdRequest};
use cluster::osdmap::{UpActing, osd_state};
use cluster::{OsdMap, PgPool};
use copies::{Copies, code_of, led_copy};
use pg::info::PgInfo;
use pg::lease::{LeaseUpdate, LeaseView};
use pg::limits::PUSH_COST;
use pg::map::{Blocklist, Mapping, Osds, PoolKind};
use pg::object::Intervals;
use pg::pace::{Class, Pacer, Profile};
use pg::reserve::Reserver;
use pg::{
    BERTH, Child, CreateInfo, Effect, Event, Fetch, FetchId, Fetched, Kin, Lane, LogLevel, MapView, Move, OpRequest,
    Pg, PgConfig, PoolView, Scrubs, SessionId, State, op_access,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::{Cid, ObjectStore, Tag};
use transfer::Transfers;
pub(crate) use transfer::seen_by;
pub use walk::WALK_STEP;
use walk::{Behind, Walk};
use wire::msg::{MOsdBackoff, MOsdOp, MOsdOpReply, MPgPeer, MWatchNotify, OsdOp, msg_flags};

/// Operations older than this are reported as slow (`osd_op_complaint_time`).
const COMPLAIN_AFTER: Duration = Duration::from_secs(30);
/// Messages of other OSDs that wait for a map; what is beyond is dropped, and its sender repeats it.
const PEERS_PARKED_MAX: usize = 16_384;
/// Bytes of such messages.
const PEERS_PARKED_BYTES_MAX: usize = 64 << 20;

/// Messages that wait for the name of a PG to be free; what is beyond is dropped.
const LATER_MAX: usize = 1024;

/// How often PGs and queues are looked at for memory that they do not need.
const REST_EVERY: Duration = Duration::from_secs(10);
/// A PG is told of in one of so many reports though there is nothing new.
const REPORT_EVERY: u32 = 60;
/// Room that queues keep.
const ROOM: usize = 64;

/// Who waits at the pacer for `held`; no PG has this index.
const HELD: u32 = 0;

/// What the host has to do.
#[derive(Debug)]
pub enum Output {
    /// Answer an operation.
    Reply(SessionId, Box<MOsdOpReply>),
    /// Tell a watcher or notifier; the last is the data segment.
    Watch(SessionId, Box<MWatchNotify>, Bytes),
    /// Tell a client to hold its operations on a PG, or to go on.
    Backoff(SessionId, Box<MOsdBackoff>),
    /// That operation will not be answered.
    Dropped(SessionId, u64),
    /// Close that session: too much of it waits. Its client connects again and repeats what had no answer.
    Close(SessionId),
    /// The map must show `up_thru`.
    WantUpThru(Epoch),
    /// A newer map is needed.
    WantMap(Epoch),
    /// The acting set that should serve a PG for now; empty: CRUSH's own.
    WantPgTemp(PgId, Vec<OsdId>),
    /// Tell another OSD.
    Peer {
        /// Whom.
        to: OsdId,
        /// Which way.
        lane: Lane,
        /// What.
        msg: Box<MPgPeer>,
    },
    /// Write a line to the cluster log.
    Log(LogLevel, String),
    /// A message for a PG that is on another reactor.
    PeerElsewhere(usize, OsdId, Box<MPgPeer>),
    /// What one PG says to another one of this OSD, which is on another reactor.
    KinElsewhere(usize, SpgId, SpgId, Box<Kin>),
    /// A PG of this reactor should be on that one.
    WantMove(PgId, usize),
    /// What a PG's machine says to the one on that reactor.
    Move(usize, SpgId, Box<Move>),
    /// A PG that comes here from there can be decided about.
    MoveReady {
        /// Which one.
        pg: PgId,
        /// From where.
        from: usize,
        /// PGs of its pool when it was held.
        pg_num: u32,
    },
    /// Nothing more is sent to that reactor for a PG that has moved.
    MoveSeen(usize, PgId),
    /// A PG that was to go has gone, or stays.
    MoveOver(PgId),
    /// Nothing is left of PGs that were moved before the start.
    Swept,
    /// A PG may be joined with another one.
    ReadyToMerge(PgId, Ready),
    /// PGs of that reactor may recover: [`Shard::reserved`].
    Reserved(usize),
    /// An operation for a PG that is on another reactor.
    OpElsewhere(usize, Arc<SessionInfo>, Box<MOsdOp>),
    /// [`Shard::pg_peers`] may have changed.
    Members,
    /// A PG exists.
    Created(PgId),
    /// Read an object elsewhere.
    Fetch(PgId, Box<Fetch>),
    /// The copy of a PG on this reactor failed, which is no word on the others.
    PgFailed(PgId, Errno),
    /// All PGs have finished after [`Shard::stop`].
    Stopped,
}

/// What a PG that may be joined with another one says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The map it had then.
    pub epoch: Epoch,
    /// Its newest version.
    pub version: Eversion,
    /// As in its history.
    pub last_epoch_started: Epoch,
    /// As in its history.
    pub last_epoch_clean: Epoch,
}

/// Counters of operations, for `perf dump`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpCounters {
    /// Operations received.
    pub op: u64,
    /// Those that read.
    pub op_r: u64,
    /// Those that write.
    pub op_w: u64,
    /// Bytes received.
    pub op_in_bytes: u64,
    /// Bytes sent.
    pub op_out_bytes: u64,
    /// Refused for want of caps.
    pub op_denied: u64,
    /// Dropped because another OSD serves them.
    pub op_misdirected: u64,
}

/// See the module.
pub struct Shard {
    transfers: Transfers,
    whoami: OsdId,
    seed: u64,
    places: Places,
    feed: Option<Arc<MapFeed>>,
    pub(super) by_pg: Copies,
    pub(super) pgs: Slots,
    next_index: u32,
    parked: Waiting,
    peers_parked: VecDeque<(OsdId, Box<MPgPeer>)>,
    peers_parked_bytes: usize,
    leases: Rc<LeaseView>,
    pub(super) reserver: Arc<Reserver>,
    /// Which of the OSD's reactors this is.
    pub(super) reactor: usize,
    pacer: Rc<Pacer>,
    /// Messages of recovery that wait for the pacer.
    held: [VecDeque<(OsdId, Box<MPgPeer>)>; 2],
    /// Of the present input.
    pub(super) now: Now,
    pub(super) scrubs: Rc<Scrubs>,
    pub(super) next_scrubs: Mono,
    /// When PGs are looked at next for memory that they do not need.
    next_rest: Mono,
    /// Times that statistics were asked for.
    reports: u32,
    stopping: bool,
    stopped: bool,
    pub(super) effects: Vec<Effect>,
    /// [`Output::Members`] is under way, and nobody has asked since.
    members_noted: Cell<bool>,
    /// PGs that are no more and give what they have to others, by the map that says so.
    leaving: BTreeMap<(PgId, Epoch), u32>,
    /// What PGs here say to each other: who, to whom.
    kin: VecDeque<(SpgId, SpgId, Box<Kin>)>,
    /// What splits that are done leave to the machines that wait for it.
    born: Vec<(SpgId, Option<Box<Child>>)>,
    /// Machines that wait for splits of copies that failed.
    unborn: Vec<(SpgId, Errno)>,
    /// What came for PGs while they were being removed; now it is for PGs that are not here.
    left: Vec<(OsdId, Box<MPgPeer>)>,
    /// What would make PGs whose names are not free yet.
    later: Vec<(OsdId, Box<MPgPeer>)>,
    asked: orphans::Asked,
    instance: instance::Instance,
    walk: Walk,
    out: VecDeque<Output>,
    counters: OpCounters,
}

struct MapBlocklist(Arc<OsdMap>);

impl Blocklist for MapBlocklist {
    fn is_empty(&self) -> bool {
        self.0.blocklist.is_empty()
    }
    fn contains(&self, addr: &EntityAddr) -> bool {
        self.0.is_blocklisted(addr)
    }
}

struct MapOsds(Arc<OsdMap>);

impl Osds for MapOsds {
    fn is_up(&self, osd: OsdId) -> bool {
        self.0.is_up(osd)
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        self.0.info(osd).up_from
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        self.0.info(osd).up_thru
    }
    fn is_dead(&self, osd: OsdId) -> bool {
        self.0.exists(osd) && !self.0.is_up(osd) && self.0.xinfo(osd).dead_epoch > self.0.info(osd).up_from
    }
    fn is_full(&self, osd: OsdId) -> bool {
        self.0.state(osd) & osd_state::FULL != 0
    }
    fn backfillfull_ratio(&self) -> f32 {
        self.0.backfillfull_ratio
    }
    fn lost_at(&self, osd: OsdId) -> Epoch {
        if self.0.exists(osd) { self.0.info(osd).lost_at } else { Epoch(u32::MAX) }
    }
}

fn pool_view(map: &OsdMap, id: PoolId, p: &PgPool) -> PoolView {
    PoolView {
        id,
        kind: if p.kind == cluster::pool::kind::ERASURE { PoolKind::Erasure } else { PoolKind::Replicated },
        code: code_of(map, p),
        size: p.size.into(),
        min_size: p.min_size.into(),
        pg_num: p.pg_num,
        pg_num_pending: p.pg_num_pending,
        flags: p.flags,
        snap_seq: p.snap_seq.0,
        snaps: p.snaps.keys().rev().copied().collect(),
        removed_snaps: removed_snaps(map, id),
        tiered: !p.tiers.is_empty() || p.tier_of >= 0,
        last_merge: pg::MergeMeta {
            source: p.last_pg_merge_meta.source_pgid.seed,
            source_version: p.last_pg_merge_meta.source_version,
            target_version: p.last_pg_merge_meta.target_version,
        },
        last_force_resend: p.last_force_op_resend,
        scrub: super::scrub::pool_scrub(p),
        recovery_priority: match p.opt("recovery_priority") {
            Some(cluster::pool::PoolOpt::Int(i)) => i32::try_from(*i).unwrap_or(0).clamp(-10, 10),
            _ => 0,
        },
    }
}

fn removed_snaps(map: &OsdMap, id: PoolId) -> Intervals {
    let mut out = Intervals::default();
    for (start, len) in map.removed_snaps_queue.get(&id).into_iter().flat_map(|s| s.iter()) {
        out.insert(start, len);
    }
    out
}

/// Views of one map, shared by all PGs.
struct Views {
    map: Arc<OsdMap>,
    whoami: OsdId,
    pools: BTreeMap<PoolId, Option<Rc<PoolView>>>,
    osds: Rc<dyn Osds>,
    blocklist: Rc<dyn Blocklist>,
}

impl Views {
    fn new(map: &Arc<OsdMap>, whoami: OsdId) -> Self {
        Self {
            map: map.clone(),
            whoami,
            pools: BTreeMap::new(),
            osds: Rc::new(MapOsds(map.clone())),
            blocklist: Rc::new(MapBlocklist(map.clone())),
        }
    }

    fn of(&mut self, pg: PgId) -> MapView {
        let map = &self.map;
        let pool = self
            .pools
            .entry(pg.pool)
            .or_insert_with(|| map.pool(pg.pool).map(|p| Rc::new(pool_view(map, pg.pool, p))))
            .clone();
        let UpActing { up, up_primary, acting, acting_primary } = map.pg_to_up_acting(pg);
        MapView {
            epoch: map.epoch,
            flags: map.flags,
            pool,
            mapping: Mapping { up: up.to_vec(), up_primary, acting: acting.to_vec(), acting_primary },
            up_thru: map.info(self.whoami).up_thru,
            up_from: map.info(self.whoami).up_from,
            osds: self.osds.clone(),
            blocklist: self.blocklist.clone(),
        }
    }
}

impl Shard {
    /// `places`: which PGs belong to this reactor.
    #[must_use]
    pub fn new(whoami: OsdId, seed: u64, places: Places) -> Self {
        Self {
            transfers: Transfers::default(),
            whoami,
            seed,
            places,
            feed: None,
            by_pg: Copies::default(),
            pgs: Slots::default(),
            next_index: 1,
            parked: Waiting::default(),
            peers_parked: VecDeque::new(),
            peers_parked_bytes: 0,
            leases: Rc::default(),
            reserver: Arc::default(),
            reactor: 0,
            pacer: Rc::default(),
            held: Default::default(),
            now: Now::default(),
            scrubs: Rc::default(),
            next_scrubs: Mono(0),
            next_rest: Mono(0),
            reports: 0,
            stopping: false,
            stopped: false,
            effects: Vec::new(),
            members_noted: Cell::new(false),
            leaving: BTreeMap::new(),
            kin: VecDeque::new(),
            born: Vec::new(),
            unborn: Vec::new(),
            left: Vec::new(),
            later: Vec::new(),
            asked: orphans::Asked::default(),
            instance: instance::Instance::default(),
            walk: Walk::default(),
            out: VecDeque::new(),
            counters: OpCounters::default(),
        }
    }

    /// Of which OSD.
    #[must_use]
    pub fn whoami(&self) -> OsdId {
        self.whoami
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The newest map with what leads to it.
    #[must_use]
    pub fn feed(&self) -> Option<&Arc<MapFeed>> {
        self.feed.as_ref()
    }

    /// Epoch of the newest map, 0 if there is none.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.feed.as_ref().map_or(Epoch(0), |f| f.map.epoch)
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> OpCounters {
        self.counters
    }

    fn config(&mut self, spg: SpgId) -> PgConfig {
        let index = self.next_index;
        self.next_index += 1;
        PgConfig { spg, whoami: self.whoami, index, seed: self.seed ^ u64::from(index) << 32 }
    }

    /// The reactor of a PG, as far as the maps here tell.
    #[must_use]
    pub fn place(&self, pg: PgId) -> usize {
        self.places.of(pg)
    }

    /// Where a client's operation goes. One of a newer map waits here for that: those behind it must not find a shorter way.
    #[must_use]
    pub fn place_of_op(&self, m: &MOsdOp) -> usize {
        if m.osdmap_epoch > self.epoch() { self.places.index() } else { self.places.of(m.pgid.pg) }
    }

    /// The reactor where a PG should be.
    #[must_use]
    pub fn home(&self, pg: PgId) -> usize {
        self.places.named(pg)
    }

    /// Loads the PGs of this reactor from the store. `feed` is the stored map, if there is one.
    pub fn load(&mut self, feed: Option<Arc<MapFeed>>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        self.feed = feed;
        if let Some(f) = self.feed.clone() {
            self.see_instance(&f.map);
        }
        let mut found: Vec<(SpgId, Cid, u32)> = Vec::new();
        for (cid, bits) in store.collections() {
            match pg::pg_of(cid) {
                // What of a PG that was being joined was put away is emptied when that is done again.
                Some(spg) if spg.shard == BERTH => {}
                Some(spg) if !self.is_doomed(cid) => found.push((spg, cid, bits)),
                _ => {}
            }
        }
        let Some(map) = self.feed.as_ref().map(|f| f.map.clone()) else {
            if !found.is_empty() {
                tracing::error!(pgs = found.len(), "the store holds PGs but no map");
            }
            return;
        };
        let older = self.feed.as_ref().map_or_else(|| Ok(Vec::new()), |f| f.older());
        // Then what PGs that were written down under one of those have missed can't be told.
        let maps_lost = older.is_err();
        let older = older.unwrap_or_else(|error| {
            tracing::error!(%error, "older stored maps do not decode");
            Vec::new()
        });
        for w in older.windows(2) {
            if let [a, b] = w {
                self.places.follow(a, b);
            }
        }
        if let Some(last) = older.last() {
            self.places.follow(last, &map);
        }
        let mut views: Vec<Views> = older.iter().chain([&map]).map(|m| Views::new(m, self.whoami)).collect();
        let newest = views.len() - 1;
        let mut all = VecDeque::new();
        for (spg, cid, bits) in found {
            let cfg = self.config(spg);
            let mut pg = Pg::load_from(cfg, cid, bits, now, store, &mut self.effects);
            // What it missed since it was written down.
            let info = match store.pg_info(Tag(0), cid) {
                Ok(b) => b.and_then(|b| PgInfo::from_blob(&b).ok()),
                Err(_) => None,
            };
            let seen = info.as_ref().map_or(Epoch(0), |i| i.epoch);
            if info.is_none() && !pg.has_failed() {
                pg.withdraw(EIO, "its info does not read", &mut self.effects);
            } else if maps_lost && seen < map.epoch {
                pg.withdraw(EIO, "maps that it has not seen do not decode", &mut self.effects);
            }
            pg.at_pg_num(info.map_or(0, |i| i.interval.pg_num));
            pg.was_at(seen);
            tracing::debug!(pg = %spg, ?cid, bits, %seen, "found in the store");
            all.push_back((self.add(cfg, pg), views.iter().position(|v| v.map.epoch >= seen).unwrap_or(newest)));
        }
        while let Some((i, first)) = all.pop_front() {
            for (n, v) in views.iter_mut().enumerate().skip(first) {
                self.note_merges(i, &v.map);
                let made = self.promise_children(i, v);
                all.extend(made.into_iter().map(|i| (i, n)));
                let Some(pg) = self.pgs.get_mut(i) else { break };
                let view = v.of(pg.spg().pg);
                let mut said = Vec::new();
                pg.handle(Event::Map(view), now, store, &mut said);
                // Nobody waits for what it has to say to older maps.
                said.retain(|e| {
                    n == newest
                        || matches!(
                            e,
                            Effect::Split(_)
                                | Effect::SplitFailed(..)
                                | Effect::Kin { .. }
                                | Effect::Deleted
                                | Effect::Failed(_)
                                | Effect::CopyFailed(_)
                                | Effect::Log(LogLevel::Error, _)
                        )
                });
                self.effects.append(&mut said);
                self.take_effects(i);
            }
        }
        self.deliver_born(now, store);
    }

    /// Makes the machines of what a PG is split into by a map that it has not got yet.
    fn promise_children(&mut self, i: u32, v: &mut Views) -> Vec<u32> {
        if self.is_between(i) {
            return Vec::new();
        }
        if self.pgs.get(i).is_some_and(|p| self.is_leaver(p.spg().pg, i)) {
            return Vec::new();
        }
        let Some(pg) = self.pgs.get_mut(i) else { return Vec::new() };
        if pg.has_seen(v.map.epoch) {
            return Vec::new();
        }
        let Some(pg_num) = v.map.pool(pg.spg().pg.pool).map(|p| p.pg_num) else { return Vec::new() };
        let mut made = Vec::new();
        for (spg, bits) in pg.splits_at(pg_num) {
            if self.by_pg.contains(spg) {
                tracing::error!(pg = %spg, "a PG is here before it is split off");
                continue;
            }
            let cfg = self.config(spg);
            let mut child = Pg::promise(cfg, bits);
            child.at_pg_num(pg_num);
            made.push(self.add(cfg, child));
        }
        made
    }

    /// Gives machines what was split off for them.
    fn deliver_born(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            // Whom it is for may not have seen the map of which it is.
            return;
        }
        self.deliver_kin(now, store);
        self.pump_sweeps(now, store);
        for (from, m) in std::mem::take(&mut self.left) {
            self.handle_peer(from, m, now, store);
        }
        while let Some((spg, errno)) = self.unborn.pop() {
            if let Some(i) = self.by_pg.get(spg)
                && let Some(pg) = self.pgs.get_mut(i)
            {
                pg.unborn_failed(errno, &mut self.effects);
                self.take_effects(i);
            }
        }
        while let Some((spg, child)) = self.born.pop() {
            // It may leave by a map that came before it was born.
            let leaving = self.leavers(spg.pg).find(|i| self.pgs.get(*i).is_some_and(Pg::awaits_birth));
            let Some(i) = leaving.or_else(|| self.by_pg.get(spg)) else { continue };
            match child {
                Some(c) => {
                    if let Some(pg) = self.pgs.get_mut(i) {
                        pg.born(*c, now, store, &mut self.effects);
                        self.take_effects(i);
                        self.deliver_kin(now, store);
                    }
                }
                None => {
                    // The parent is on its way out: here is no copy, and whoever asks is told so.
                    self.forget(spg, i);
                    for (from, m) in self.pgs.remove(i).map(|p| p.unborn()).into_iter().flatten() {
                        self.handle_peer(from, m, now, store);
                    }
                }
            }
        }
    }

    /// Gives a machine what all of a reactor share.
    fn equip(&self, pg: &mut Pg) {
        pg.use_leases(self.leases.clone());
        pg.use_reserver(self.reserver.clone(), self.reactor);
        pg.use_pacer(self.pacer.clone());
        pg.use_scrubs(self.scrubs.clone());
    }

    fn add(&mut self, cfg: PgConfig, mut pg: Pg) -> u32 {
        self.equip(&mut pg);
        self.by_pg.insert(cfg.spg, cfg.index);
        self.pgs.insert(cfg.index, pg);
        self.take_effects(cfg.index);
        cfg.index
    }

    /// A message of another OSD for a PG of this reactor.
    pub fn handle_peer(&mut self, from: OsdId, m: Box<MPgPeer>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.stopping {
            tracing::debug!(%from, pg = %m.spg, "message of a peer dropped");
            return;
        }
        if m.epoch > self.epoch() {
            self.out.push_back(Output::WantMap(m.epoch));
            return self.park_peer(from, m);
        }
        if !self.is_of_instance(from, &m) {
            return tracing::debug!(%from, pg = %m.spg, up_from = %m.up_from, "message of an instance that is gone dropped");
        }
        if let Some(i) = self.by_pg.get(m.spg) {
            return self.feed_pg(i, Event::Peer { from, msg: m }, now, store);
        }
        if !self.places.is_here(m.spg.pg) {
            return self.out.push_back(Output::PeerElsewhere(self.places.of(m.spg.pg), from, m));
        }
        if self.is_walking() {
            // It may be split off, or be none of this OSD's, by a map that not all have seen.
            return self.park_peer(from, m);
        }
        self.handle_orphan(from, m, now, store);
    }

    /// Keeps a message until there is another map.
    fn park_peer(&mut self, from: OsdId, m: Box<MPgPeer>) {
        let bytes = self.peers_parked_bytes + m.cost();
        if self.peers_parked.len() < PEERS_PARKED_MAX && bytes <= PEERS_PARKED_BYTES_MAX {
            self.peers_parked_bytes = bytes;
            self.peers_parked.push_back((from, m));
        } else {
            tracing::warn!(%from, pg = %m.spg, "too many messages of peers wait for a map, dropping");
        }
    }

    /// The name for the collection of a PG that is to be made, if there is one: what was of that PG may still be removed.
    fn free_name(&self, spg: SpgId) -> Option<Cid> {
        let own = Cid::Pg(spg);
        let free = |c: &Cid| !self.reserver.is_swept(*c);
        [own, pg::second_name(own)].into_iter().find(free).filter(|_| !self.reserver.is_left(spg))
    }

    /// The session to another OSD was reset: what was under way may be lost.
    pub fn peer_reset(&mut self, peer: OsdId, now: Now, store: &mut dyn ObjectStore) {
        let all = self.pgs.numbers();
        for i in all {
            self.feed_pg(i, Event::PeerReset(peer), now, store);
        }
        self.ask_again(peer);
    }

    /// Leases given and got. Call it with a grant before any map newer than the grant's epoch.
    pub fn handle_leases(&mut self, news: &[LeaseUpdate], now: Now, store: &mut dyn ObjectStore) {
        let mut renewed = false;
        for u in news {
            renewed |= self.leases.update(*u);
        }
        if !renewed {
            return;
        }
        let waiting: Vec<u32> = self.pgs.iter().filter(|(_, p)| p.waits_for_lease()).map(|(i, _)| i).collect();
        for i in waiting {
            self.feed_pg(i, Event::Leases, now, store);
        }
    }

    /// OSDs that share PGs with this one on this reactor, and those of them whose leases PGs led here need.
    #[must_use]
    pub fn pg_peers(&self) -> (BTreeSet<OsdId>, BTreeSet<OsdId>) {
        self.members_noted.set(false);
        let led = self.lease_peers();
        let mut all: BTreeSet<OsdId> = self.pgs.values().flat_map(|p| p.others().iter().copied()).collect();
        all.extend(self.pgs.values().flat_map(Pg::up).copied().filter(|o| *o != self.whoami && *o != OsdId::NONE));
        all.extend(led.iter().copied());
        (all, led)
    }

    /// OSDs whose leases PGs of this reactor need: the others of every acting set led here.
    #[must_use]
    pub fn lease_peers(&self) -> BTreeSet<OsdId> {
        self.pgs.values().filter(|p| p.is_member()).flat_map(|p| p.others().iter().copied()).collect()
    }

    /// Makes PGs that belong to this reactor and are not there yet; repeats the word of those that are.
    pub fn create(&mut self, pgs: &[PgCreate], now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.is_walking() {
            return self.wait_behind(Behind::Create(pgs.to_vec()));
        }
        let Some(map) = self.feed.as_ref().map(|f| f.map.clone()) else { return };
        let mut views = Views::new(&map, self.whoami);
        for c in pgs {
            let pg = c.pgid.pg;
            if !self.places.is_here(pg) || self.stopping {
                continue;
            }
            let Some(spg) = led_copy(&map, c.pgid, self.whoami) else { continue };
            if let Some(i) = self.by_pg.get(spg) {
                if self.pgs.get(i).is_some_and(Pg::is_active) {
                    self.out.push_back(Output::Created(pg));
                }
                continue;
            }
            let creating = map.pool(pg.pool).is_some_and(|p| p.flags & cluster::pool::flag::CREATING != 0);
            if !creating || map.pg_to_up_acting(pg).acting_primary != self.whoami {
                continue;
            }
            // It is told again.
            let Some(cid) = self.free_name(spg) else { continue };
            let cfg = self.config(spg);
            let info = CreateInfo {
                cid: Some(cid),
                epoch: map.epoch,
                stamp: c.stamp.clone(),
                extra: c.extra.clone().unwrap_or_default(),
                bits: map.pool(pg.pool).map_or(0, |p| p.pg_bits(pg.seed)),
            };
            let mut machine = Pg::create(cfg, info, now, store, &mut self.effects);
            machine.at_pg_num(map.pool(pg.pool).map_or(0, |p| p.pg_num));
            machine.handle(Event::Map(views.of(pg)), now, store, &mut self.effects);
            self.add(cfg, machine);
        }
        for (s, m) in self.parked.take() {
            self.unpark(&s, m, now, store);
        }
    }

    /// Begins to bring the machine of a PG that a message is about to be given to. Any number of messages may be foreseen
    /// before the first of them is handled: their ways to memory overlap.
    pub fn foresee(&self, pg: PgId) {
        if let Some(pg) = self.by_pg.of(pg).next().and_then(|i| self.pgs.get(i)) {
            pg.foresee();
        }
    }

    /// As [`Shard::foresee`], for an event of the store.
    pub fn foresee_event(&self, e: &store::Event) {
        if let Some(pg) = e.tag().and_then(|t| self.pgs.get(Pg::index_of(t))) {
            pg.foresee();
        }
    }

    /// A client's operation. Checks caps, then hands it to its PG.
    pub fn op(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>, now: Now, store: &mut dyn ObjectStore) {
        self.counters.op += 1;
        let access = op_access(&m);
        self.counters.op_r += u64::from(access.may_read());
        self.counters.op_w += u64::from(access.may_write());
        let bytes = m.ops.iter().map(|o| o.indata.len()).sum::<usize>();
        self.counters.op_in_bytes += bytes as u64;
        self.pacer.client(bytes, now.mono);
        if access.malformed {
            return self.refuse(s, &m, EINVAL);
        }
        if m.osdmap_epoch > self.epoch() {
            // Which PG it is for, on which reactor, and whether its sender may ask says that map.
            if !s.caps.may_anywhere(access.read, access.write, &s.principal.socket_addr()) {
                // No map changes that.
                return self.deny(s, &m);
            }
            self.out.push_back(Output::WantMap(m.osdmap_epoch));
            return self.park(s, m);
        }
        if !s.caps.is_allow_all() && !self.may(s, &m, &access) {
            return self.deny(s, &m);
        }
        self.route(s, m, now, store);
    }

    /// One that waited for a map or for a PG.
    fn unpark(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>, now: Now, store: &mut dyn ObjectStore) {
        if m.osdmap_epoch > self.epoch() {
            return self.park(s, m);
        }
        if !s.caps.is_allow_all() && !self.may(s, &m, &op_access(&m)) {
            return self.deny(s, &m);
        }
        self.route(s, m, now, store);
    }

    fn park(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>) {
        if let Some(closed) = self.parked.push(s, m) {
            let (name, socket) = (&closed.principal.name, closed.principal.socket);
            tracing::warn!(client = %closed.entity, %name, %socket, "too many operations wait for a map; session closed");
            self.out.push_back(Output::Close(closed.id));
        }
    }

    fn deny(&mut self, s: &SessionInfo, m: &MOsdOp) {
        self.counters.op_denied += 1;
        tracing::info!(client = %s.entity, name = %s.principal.name, pool = m.pgid.pg.pool.0, "operation refused: caps");
        self.refuse(s, m, EPERM);
    }

    fn may(&self, s: &SessionInfo, m: &MOsdOp, access: &pg::OpAccess) -> bool {
        let Some(map) = self.feed.as_ref().map(|f| &f.map) else { return false };
        // A pool that is gone is for the PG to answer.
        // The PG decides what is read and written. What the locator says of the pool is a claim.
        let id = m.pgid.pg.pool;
        let Some(pool) = map.pool(id) else { return true };
        // Names that are no text name no class; executing answers that.
        let names = access.classes.iter().filter_map(|c| {
            let (class, method) = m.ops.get(c.at)?.cls_names()?;
            Some((String::from_utf8_lossy(class), String::from_utf8_lossy(method), c))
        });
        let names: Vec<_> = names.collect();
        let classes: Vec<_> = names
            .iter()
            .map(|(class, method, c)| ClassCall { class, method, read: c.read, write: c.write, allowed: true })
            .collect();
        let request = OsdRequest {
            pool: map.pool_name(id).unwrap_or(""),
            nspace: &m.locator.nspace,
            applications: &pool.application_metadata,
            object: if m.locator.key.is_empty() { &m.oid } else { &m.locator.key },
            read: access.read,
            write: access.write,
            classes: &classes,
        };
        s.caps.is_capable(&request, &s.principal.socket_addr())
    }

    fn refuse(&mut self, s: &SessionInfo, m: &MOsdOp, errno: Errno) {
        let reply = MOsdOpReply {
            tid: m.tid,
            oid: m.oid.clone(),
            pgid: m.pgid.pg,
            flags: u64::from(m.flags | msg_flags::ACK | msg_flags::ONDISK),
            result: errno,
            osdmap_epoch: self.epoch(),
            ops: m.ops.iter().map(|o| OsdOp { indata: Default::default(), ..o.clone() }).collect(),
            retry_attempt: m.retry_attempt,
            trace: m.trace,
            ..MOsdOpReply::default()
        };
        self.out.push_back(Output::Reply(s.id, Box::new(reply)));
    }

    fn route(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if let Some(i) = self.by_pg.get(m.pgid)
            && let Some(pg) = self.pgs.get_mut(i).filter(|p| !p.is_going())
        {
            let req = OpRequest {
                session: s.id,
                client: s.entity,
                addr: s.addr,
                features: s.features.0,
                received: now,
                msg: m,
            };
            pg.handle(Event::Op(Box::new(req)), now, store, &mut self.effects);
            return self.take_effects(i);
        }
        let pg = m.pgid.pg;
        if !self.places.is_here(pg) {
            return self.out.push_back(Output::OpElsewhere(self.places.of(pg), s.clone(), m));
        }
        let led_here = self.is_walking()
            || self.feed.as_ref().is_some_and(|f| {
                f.map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num)
                    && f.map.pg_to_up_acting(pg).acting_primary == self.whoami
            });
        if led_here {
            return self.park(s, m);
        }
        if m.flags & (msg_flags::BALANCE_READS | msg_flags::LOCALIZE_READS) != 0 {
            // A member that has no copy yet: no map tells the client to ask another one.
            return self.refuse(s, &m, EAGAIN);
        }
        // Another OSD serves it: the client targets it anew with the map it is about to get.
        self.counters.op_misdirected += 1;
    }

    /// Operations that wait for a newer map or for the creation of their PG, and their bytes.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        self.parked.figures()
    }

    /// A client's session ended.
    pub fn session_closed(&mut self, id: SessionId, now: Now, store: &mut dyn ObjectStore) {
        self.parked.forget(id);
        let know: Vec<u32> = self.pgs.iter().filter(|(_, p)| p.knows_session(id)).map(|(i, _)| i).collect();
        for i in know {
            self.feed_pg(i, Event::SessionClosed(id), now, store);
        }
    }

    pub(super) fn feed_pg(&mut self, i: u32, e: Event, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        self.handle_in_pg(i, e, now, store);
        self.deliver_born(now, store);
        if self.reserver.has_any_news() {
            self.wake_reserved(now, store);
        }
    }

    pub(super) fn handle_in_pg(&mut self, i: u32, e: Event, now: Now, store: &mut dyn ObjectStore) {
        if let Some(pg) = self.pgs.get_mut(i) {
            pg.handle(e, now, store, &mut self.effects);
            self.take_effects(i);
        }
    }

    pub(super) fn push_output(&mut self, o: Output) {
        self.out.push_back(o);
    }

    /// An event of the store. False if it is none of a PG's.
    pub fn store_event(&mut self, e: store::Event, now: Now, store: &mut dyn ObjectStore) -> bool {
        let Some(tag) = e.tag() else { return false };
        let i = Pg::index_of(tag);
        if i == 0 {
            return false;
        }
        if !self.sweep_event(i, Some(&e), now, store) {
            self.feed_pg(i, Event::Store(e), now, store);
        }
        true
    }

    /// The copy of a PG here is not to be used any more.
    pub fn withdraw(&mut self, pg: PgId, errno: Errno, why: &str, now: Now, store: &mut dyn ObjectStore) {
        let Some(i) = self.machine_of(pg) else { return };
        if let Some(p) = self.pgs.get_mut(i) {
            p.withdraw(errno, why, &mut self.effects);
            self.take_effects(i);
        }
        // What it read for is forgotten.
        self.feed_pg(i, Event::Tick, now, store);
    }

    /// Result of a fetch.
    pub fn fetched(&mut self, pg: PgId, id: FetchId, r: Result<Fetched, Errno>, now: Now, store: &mut dyn ObjectStore) {
        if let Some(i) = self.machine_of(pg) {
            self.feed_pg(i, Event::Fetched(id, r), now, store);
        }
    }

    /// Lets time pass for PGs whose deadline has come.
    pub fn tick(&mut self, now: Now, store: &mut dyn ObjectStore) {
        let due: Vec<u32> =
            self.pgs.iter().filter(|(_, p)| p.next_deadline().is_some_and(|d| d <= now.mono)).map(|(i, _)| i).collect();
        for i in due {
            self.feed_pg(i, Event::Tick, now, store);
        }
        self.wake_reserved(now, store);
        self.retry_sweeps(now, store);
        for (from, m) in std::mem::take(&mut self.later) {
            self.handle_peer(from, m, now, store);
        }
        self.offer_move(now, store);
        if now.mono >= self.next_rest {
            self.next_rest = now.mono + REST_EVERY;
            self.rest();
        }
    }

    /// Gives back memory that a burst needed.
    fn rest(&mut self) {
        self.pgs.values_mut().for_each(Pg::rest);
        for q in &mut self.held {
            q.shrink_to(ROOM);
        }
        self.out.shrink_to(ROOM);
        self.kin.shrink_to(ROOM);
        self.parked.shrink_to(ROOM);
        self.peers_parked.shrink_to(ROOM);
        self.effects.shrink_to(ROOM);
        self.left.shrink_to(ROOM);
        self.born.shrink_to(ROOM);
    }

    /// Chooses how much of the reactor background work may take.
    pub fn set_profile(&mut self, p: Profile) {
        self.pacer.set_profile(p);
    }

    /// When [`Shard::pace`] is due: background work waits for its share of the reactor.
    #[must_use]
    pub fn paced_until(&self) -> Option<Mono> {
        self.pacer.wake()
    }

    /// Lets background work go on whose time has come.
    pub fn pace(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        let waiting = self.pacer.waiting(now.mono);
        if waiting.contains(&HELD) {
            self.release_held();
        }
        for i in waiting {
            if !self.sweep_event(i, None, now, store) {
                self.feed_pg(i, Event::Tick, now, store);
            }
        }
    }

    fn release_held(&mut self) {
        for class in [Class::Recovery, Class::BestEffort] {
            while let Some((_, m)) = self.held[class as usize].front() {
                let fixed = if m.data.is_empty() { 0 } else { PUSH_COST };
                if !self.stopping && !self.pacer.take(class, m.data.len() + fixed, HELD, self.now.mono) {
                    break;
                }
                if let Some((to, msg)) = self.held[class as usize].pop_front() {
                    self.out.push_back(Output::Peer { to, lane: Lane::Data, msg });
                }
            }
        }
    }

    /// Takes nothing new; [`Output::Stopped`] when all is durable.
    pub fn stop(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            return self.wait_behind(Behind::Stop);
        }
        self.stopping = true;
        self.stop_transfers();
        self.parked.take();
        let all = self.pgs.numbers();
        for i in all {
            self.feed_pg(i, Event::Stop, now, store);
        }
        self.check_stopped();
    }

    /// The store failed: drops all PGs as they are, and serves nothing from now on.
    pub fn abandon(&mut self) {
        self.stopping = true;
        self.walk.clear();
        self.stop_transfers();
        self.parked.take();
        self.peers_parked.clear();
        self.held.iter_mut().for_each(VecDeque::clear);
        for i in self.pgs.numbers() {
            if let Some(p) = self.pgs.remove(i) {
                self.forget(p.spg(), i);
            }
        }
        self.check_stopped();
    }

    fn check_stopped(&mut self) {
        if self.stopping && !self.stopped && self.pgs.is_empty() {
            self.stopped = true;
            self.out.push_back(Output::Stopped);
        }
    }

    /// Says once that the peers may be others, however many PGs change before the host asks.
    fn note_members(&mut self) {
        if !self.members_noted.replace(true) {
            self.out.push_back(Output::Members);
        }
    }

    fn take_effects(&mut self, i: u32) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        for e in effects.drain(..) {
            match e {
                Effect::Reply(s, r) => {
                    let bytes = r.ops.iter().map(|o| o.outdata.len()).sum::<usize>();
                    self.counters.op_out_bytes += bytes as u64;
                    self.pacer.bytes(bytes);
                    self.out.push_back(Output::Reply(s, r));
                }
                Effect::Watch(s, w, d) => self.out.push_back(Output::Watch(s, w, d)),
                Effect::Backoff(s, b) => self.out.push_back(Output::Backoff(s, b)),
                Effect::Dropped(s, tid) => self.out.push_back(Output::Dropped(s, tid)),
                Effect::WantUpThru(e) => self.out.push_back(Output::WantUpThru(e)),
                Effect::WantMap(e) => self.out.push_back(Output::WantMap(e)),
                Effect::WantPgTemp(acting) => {
                    if let Some(p) = self.pgs.get(i) {
                        self.out.push_back(Output::WantPgTemp(p.spg().pg, acting));
                    }
                }
                Effect::Peer { to, lane, msg } => self.send_peer(to, lane, msg),
                Effect::Log(level, text) => self.out.push_back(Output::Log(level, text)),
                Effect::Members => self.note_members(),
                Effect::Created => {
                    if let Some(p) = self.pgs.get(i) {
                        self.out.push_back(Output::Created(p.spg().pg));
                    }
                }
                Effect::Fetch(f) => {
                    if let Some(p) = self.pgs.get(i) {
                        self.out.push_back(Output::Fetch(p.spg().pg, f));
                    }
                }
                Effect::Move(m) => self.move_effect(i, m),
                Effect::Split(parts) => self.born.extend(parts),
                Effect::SplitFailed(parts, errno) => self.unborn.extend(parts.into_iter().map(|p| (p, errno))),
                Effect::Kin { to, kin } => {
                    if let Some(p) = self.pgs.get(i) {
                        self.kin.push_back((p.spg(), to, Box::new(kin)));
                    }
                }
                Effect::ReadyToMerge { version, last_epoch_started, last_epoch_clean } => {
                    if let Some(p) = self.pgs.get(i) {
                        let epoch = p.epoch();
                        let r = Ready { epoch, version, last_epoch_started, last_epoch_clean };
                        self.out.push_back(Output::ReadyToMerge(p.spg().pg, r));
                    }
                }
                // The answer finds no plan and is dropped.
                Effect::CancelFetch(_) => {}
                Effect::Deleted | Effect::Stopped => {
                    if let Some(p) = self.pgs.remove(i) {
                        self.forget(p.spg(), i);
                        self.left.append(&mut p.unborn());
                    }
                    self.note_members();
                    self.check_stopped();
                }
                // The store says so itself when it is that.
                Effect::Failed(_) | Effect::CopyFailed(_) => {
                    if let (Effect::CopyFailed(errno), Some(p)) = (&e, self.pgs.get(i)) {
                        self.out.push_back(Output::PgFailed(p.spg().pg, *errno));
                    }
                    if self.stopping
                        && let Some(p) = self.pgs.remove(i)
                    {
                        self.forget(p.spg(), i);
                        self.check_stopped();
                    }
                }
            }
        }
        self.effects = effects;
    }

    fn forget(&mut self, spg: SpgId, i: u32) {
        if self.by_pg.get(spg) == Some(i) {
            self.by_pg.remove(spg);
        }
        self.leaving.retain(|(p, _), n| *p != spg.pg || *n != i);
    }

    /// Number of PGs.
    #[must_use]
    pub fn pg_count(&self) -> usize {
        self.pgs.len()
    }

    /// All PGs.
    pub fn pgs(&self) -> impl Iterator<Item = &Pg> {
        self.pgs.values()
    }

    /// One PG.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&Pg> {
        self.pgs.get(self.machine_of(pg)?)
    }
}
