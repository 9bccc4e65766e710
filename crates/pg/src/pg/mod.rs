//! The PG machine: state, inputs, and their dispatch to the parts.
//!
//! | folder | contents |
//! | --- | --- |
//! | `life` | creating, loading, following maps, starting over in a new interval, ending |
//! | `backend` | transactions, reads and recovery: whole copies or shards |
//! | `peering` | state of copies, authoritative log, acting set; peer messages; members; failed copies |
//! | `ops` | operations: admission, backoff, planning, execution, commit; expiry of watches; trimming |
//! | `recovery` | recovery by log, backfill, reservations; unreadable and unfound objects |
//! | `resize` | changes of `pg_num`: split and merge |
//! | `relocate` | moves to another reactor of the OSD |
//! | `scrub` | comparison and repair of copies |
//! | `report`, `rest` | reports; release of memory |

mod backend;
mod kept;
mod life;
mod ops;
mod peering;
mod recovery;
mod relocate;
mod report;
mod resize;
mod rest;
mod scrub;
mod seldom;
#[cfg(test)]
mod sizes;

use crate::effect::Effect;
use crate::event::{Event, OpRequest};
use crate::exec::Stop;
use crate::info::PgInfo;
use crate::keep::Keep;
use crate::lease::LeaseView;
use crate::limits::{EARLY_PEERS_MAX, OBJECT_CONTEXTS_MAX};
use crate::log::PgLog;
use crate::map::{MapView, PoolView};
use crate::meter::Meter;
use crate::moving::Late;
use crate::object::ContextCache;
use crate::pace::Pacer;
use crate::per_peer::PerOsd;
use crate::reserve::{Counted, Leaver, Reserver};
use crate::shards::{PeerId, ShardSet};
use crate::stats::Counters;
use crate::watch::WatchTable;
pub(crate) use backend::ec::read::ShardReads;
use base::errno::Errno;
use base::{Epoch, Eversion, HObject, Mono, Now, OsdId, ShardId, SpgId};
use bytes::Bytes;
use hashbrown::HashMap;
use ops::backoff::Backoffs;
use ops::commit::Commit;
use ops::held::Held;
use ops::plan::{ObjectLock, Plan};
use ops::space::Spaceless;
use ops::trim::Trim;
use peering::session::Peers;
pub(crate) use relocate::out::MemberState;
pub use report::OpDump;
pub use resize::merge_target::{answer_for_none, is_intake};
pub use resize::split::Child;
use rustc_hash::FxBuildHasher;
pub use scrub::lead::Scrubs;
use seldom::Seldom;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use store::{Cid, ObjectStore, Oid, Tag};
use wire::msg::MPgPeer;

/// The initial configuration of a PG machine.
#[derive(Clone, Copy, Debug)]
pub struct PgConfig {
    /// The PG, with the shard of this copy.
    pub spg: SpgId,
    /// Id of this OSD.
    pub whoami: OsdId,
    /// Number of this machine among those that share a store. Tags of its transactions contain it.
    pub index: u32,
    /// Seed for deterministic randomness.
    pub seed: u64,
}

/// State of a PG machine; see docs/design/pg.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Reading info and log.
    Loading,
    /// Creating the collection, or waiting to be split off another PG.
    Creating,
    /// Splitting: parts of the PG become PGs of their own.
    Splitting,
    /// Waiting for a map, or for the primary of another OSD to make this copy a member.
    Stray,
    /// Primary, but unable to serve; the text gives the reason.
    Inactive(String),
    /// Primary, but these OSDs are down and may have newer data.
    Down(Vec<OsdId>),
    /// Asking the other copies for their infos, or waiting for a requested acting set.
    GetInfo,
    /// Merging the authoritative log.
    GetLog,
    /// Waiting for a map with `up_thru` in this interval, so that the interval may take writes.
    WaitUpThru,
    /// Recording the start of the interval on all members.
    Activating,
    /// Waiting for read leases of an earlier interval to end.
    WaitLease,
    /// Serving clients.
    Active,
    /// Peering is complete, but there are too few copies to serve.
    Peered,
    /// Able to serve, but about to be merged with another PG.
    Quiesced,
    /// Merge target: taking over the content of other PGs.
    Merging,
    /// Merge source: handing its content to the target.
    Leaving,
    /// Member of the acting set, with the primary on another OSD.
    ReplicaActive,
    /// Target of a move from another reactor.
    Arriving,
    /// Removing objects: the pool is deleted, or the PG is clean without this copy.
    Deleting,
    /// The collection is removed.
    Deleted,
    /// Stopped together with the OSD.
    Stopped,
    /// The store failed, or this copy did.
    Failed(Errno),
}

/// Bits of a tag that number a machine's plans; the bits above are its index.
const TAG_BITS: u32 = 40;

/// One copy of a placement group on this OSD.
///
/// # Driving it
///
/// There are five kinds of methods:
///
/// - **Construction**: [`Pg::create`] (on the monitor's request), [`Pg::load`] (from the store), [`Pg::promise`] (for
///   a split), [`Pg::arrive`] (for a move from another reactor). Then the parts shared by the PGs of a reactor:
///   [`Pg::use_leases`], [`Pg::use_reserver`], [`Pg::use_pacer`], [`Pg::use_scrubs`],
///   [`Pg::use_meter`]. Then the newest map.
/// - **Inputs**: [`Pg::handle`] with an [`Event`], and a few that need an answer at once ([`Pg::born`],
///   [`Pg::withdraw`], [`Pg::mark_unfound_lost`]). They append [`Effect`]s.
/// - **Time**: [`Pg::next_deadline`] says when [`Event::Tick`] is due. Nothing else depends on a clock; `now` comes
///   with each input.
/// - **Queries** (`is_…`, [`Pg::state`], [`Pg::info`], [`Pg::report`], [`Pg::dump_ops`]): without effect on
///   behaviour.
/// - **Idle**: [`Pg::rest`] releases memory, at any time.
///
/// In each turn the host hands in inputs in the order of arrival, carries out the effects in their order, and asks
/// for the next deadline. Its duties:
///
/// 1. Maps come in order, each before any input that depends on it: a peer's message waits until its epoch is here.
///    Grants of leases are handed in before a later map.
/// 2. All store events with a tag that the PG [owns](Pg::owns) go to it, in the store's order.
/// 3. The host checks caps before it hands in an operation. It reports ended client sessions
///    ([`Event::SessionClosed`]) and reset sessions to other OSDs ([`Event::PeerReset`]).
/// 4. Effects are carried out in their order, without exception. The PG itself repeats those to lossy receivers
///    (monitor, manager) until a map shows their result.
/// 5. After [`Effect::Deleted`] or [`Effect::Stopped`] the machine is dropped. After [`Effect::Failed`] the store is
///    no longer used.
///
/// # Memory
///
/// The fields are laid out as written here, so that those of one operation lie together. With a thousand PGs the
/// machine is rarely in the CPU's cache, and each cache line costs a memory access.
#[repr(C)]
pub struct Pg {
    // Used by every operation.
    state: State,
    stopping: bool,
    stopped_told: bool,
    created_told: bool,
    /// An operator's request to recover the PG before others: 1 recovery, 2 backfill.
    forced: u8,
    /// The running step was started by this PG itself (trim, delete, …), not by a client or a peer.
    internal_step: bool,
    /// The cluster log has a line that the PG lacks space.
    room_missed: bool,
    /// The next batch of a deletion waits for the pacer.
    delete_rests: bool,
    /// A write or push from another copy had no space; it is tried again at the next tick.
    apply_stuck: bool,
    /// The request of the running operation is kept with its reply.
    keeps_request: bool,
    /// Operations are held until leases are renewed.
    waits_for_lease: bool,
    /// The authoritative log is being merged.
    merging: bool,
    /// The whole store failed, not only this copy.
    store_lost: bool,
    /// The stored info differs from `info` in more than replay of the log restores.
    info_dirty: bool,
    writes_since_info: u32,
    /// Newest map epoch that a held operation waits for.
    wanted_map: Epoch,
    /// State as source of a move to another reactor.
    depart: Option<Box<relocate::out::Depart>>,
    /// State as target of a move.
    arrive: Option<Box<relocate::in_::Arrive>>,
    cfg: PgConfig,
    cid: Cid,
    /// Id of the newest plan.
    next_plan: u64,
    plans: BTreeMap<u64, Box<Plan>>,
    /// Codec and layout, if the copies are shards.
    coder: Option<Rc<backend::ec::Coder>>,
    /// State that only shards need.
    shard: Seldom<backend::ec::ShardState>,
    /// The running client operation, kept with its reply if that waits for other members: see [`Pg::requeue`].
    again: Option<Box<OpRequest>>,
    map: Option<MapView>,
    /// OSDs of the other members of the acting set.
    others: Vec<OsdId>,
    leases: Rc<LeaseView>,
    locks: HashMap<HObject, ObjectLock, FxBuildHasher>,
    cache: ContextCache,

    // Checked after every input, and empty most of the time.
    /// Plans that are ready to run.
    runnable: VecDeque<u64>,
    /// Parked plans that were dropped; the store must release their tags.
    abandoned: Vec<u64>,
    /// Objects whose pushes are complete.
    pushed: Vec<HObject>,
    /// Effects to be appended at the end of the current input.
    outbox: Vec<Effect>,
    /// Maps and other inputs that were held for a move, to be handled now.
    replay: (Vec<MapView>, Vec<Late>),
    trim: Seldom<Trim>,
    /// Writes that wait for space.
    spaceless: Seldom<Spaceless>,
    /// Objects that this copy lacks, with the log version as of which it needs them.
    missing: BTreeMap<HObject, Eversion>,
    /// A requested scrub that has not begun, or whose interval ended.
    scrub_wanted: Option<crate::scrub::ScrubRequest>,
    peers: Peers,

    // Used by every write, and by operations that wait for one.
    /// Submitted transactions whose actions have not run, oldest first.
    commits: VecDeque<Commit>,
    /// Number of the newest submitted transaction.
    submitted: u64,
    /// Number of the newest transaction that is durable here.
    local: u64,
    /// Number of the newest transaction that is durable on all copies that must have it.
    durable: u64,
    /// Newest transaction of older intervals. Until it is durable here, this copy tells no other its state.
    fence: u64,
    /// Lower bound of the fence: 1 for a child of a split, whose content the parent submitted before the child's
    /// first transaction.
    fence_min: u64,
    /// Number of the interval in this machine; actions of an older one are void.
    generation: u64,
    counters: Counters,
    info: PgInfo,
    log: PgLog,
    keep_log: Option<Box<Keep>>,
    watches: WatchTable,

    // Used seldom.
    /// Number of hash bits that select the PG, after all splits that are done.
    bits: u32,
    /// Number of hash bits that select the PG under the newest map that the host has announced.
    bits_coming: u32,
    /// `pg_num` of the newest map that the host has announced; 0 if unknown.
    pg_num_coming: u32,
    /// Epoch of the stored info at load.
    stored_at: Epoch,
    merges: Seldom<resize::merge_target::Merges>,
    sending: Option<Box<resize::merge_source::Sending>>,
    /// Marks the PG's name as taken while its collection is being removed.
    leaver: Option<Box<Leaver>>,
    /// Time of the next attempt of a split that waits for a removal, or of plans without room.
    again_at: Option<Mono>,
    /// Children of the split in progress.
    awaited: Vec<SpgId>,
    /// Last key up to which a split has moved a long snapshot index.
    index_from: Bytes,
    /// Maps received while loading, creating, splitting or merging.
    early_maps: Vec<MapView>,
    /// Operations that wait for a newer map or for the PG to become active.
    held: Held,
    /// Sessions that were told to hold their operations.
    backoffs: Backoffs,
    reserver: Counted,
    /// Number of the PG's reactor.
    reactor: usize,
    pacer: Rc<Pacer>,
    meter: Rc<Meter>,
    /// Peer messages received while loading or creating.
    early_peers: Vec<(OsdId, Box<MPgPeer>)>,
    /// Primaries of older intervals that may still rely on leases of this OSD, or of a copy that reported it.
    granted: PerOsd<Mono>,
    scrubs: Rc<Scrubs>,
    stamps: report::Stamps,
    reported_seq: u64,
    /// Fingerprint of the last report without its times, and how often it was sent.
    reported: u64,
    resting: rest::Resting,
}

impl Pg {
    fn blank(cfg: PgConfig, state: State) -> Self {
        Self {
            cfg,
            cid: Cid::Pg(cfg.spg),
            state,
            map: None,
            bits: 0,
            bits_coming: 0,
            pg_num_coming: 0,
            stored_at: Epoch(0),
            merges: Seldom::default(),
            sending: None,
            leaver: None,
            again_at: None,
            room_missed: false,
            internal_step: false,
            depart: None,
            arrive: None,
            replay: Default::default(),
            awaited: Vec::new(),
            index_from: Bytes::new(),
            early_maps: Vec::new(),
            info: PgInfo::default(),
            log: PgLog::default(),
            store_lost: false,
            info_dirty: false,
            writes_since_info: 0,
            cache: ContextCache::new(OBJECT_CONTEXTS_MAX),
            watches: WatchTable::new(cfg.index << 16),
            next_plan: 0,
            plans: BTreeMap::new(),
            again: None,
            coder: None,
            shard: Seldom::default(),
            locks: HashMap::default(),
            runnable: VecDeque::new(),
            abandoned: Vec::new(),
            held: Held::default(),
            backoffs: Backoffs::default(),
            wanted_map: Epoch(0),
            commits: VecDeque::new(),
            submitted: 0,
            local: 0,
            durable: 0,
            generation: 0,
            fence: 0,
            fence_min: 0,
            peers: Peers::default(),
            reserver: Counted::default(),
            reactor: 0,
            pacer: Rc::default(),
            meter: Rc::default(),
            missing: BTreeMap::new(),
            keep_log: None,
            merging: false,
            apply_stuck: false,
            delete_rests: false,
            pushed: Vec::new(),
            outbox: Vec::new(),
            early_peers: Vec::new(),
            granted: PerOsd::default(),
            leases: Rc::default(),
            others: Vec::new(),
            keeps_request: false,
            waits_for_lease: false,
            trim: Seldom::default(),
            spaceless: Seldom::default(),
            scrubs: Rc::default(),
            scrub_wanted: None,
            forced: 0,
            stopping: false,
            stopped_told: false,
            created_told: false,
            counters: Counters::default(),
            stamps: report::Stamps::default(),
            reported_seq: 0,
            reported: 0,
            resting: rest::Resting::default(),
        }
    }

    /// Handles one input. Effects are appended to `out` in the order in which the host must carry them out.
    pub fn handle(&mut self, event: Event, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let held = self.depart.is_some() || self.arrive.is_some();
        let event = if held { self.hold_for_move(event).and_then(|e| self.hold_for_arrival(e)) } else { Some(event) };
        let Some(event) = event else { return };
        if matches!(event, Event::Op(_) | Event::Store(_)) {
            self.foresee();
        }
        match event {
            Event::Op(req) => self.handle_op(req, now, store, out),
            Event::Store(store::Event::Durable(tag, Ok(()))) => self.handle_durable(tag, now, store, out),
            Event::Store(store::Event::Durable(_, Err(errno))) => self.store_failed(errno, out),
            Event::Store(store::Event::Ready(tag)) => {
                let id = tag.0 & ((1 << TAG_BITS) - 1);
                if self.plans.contains_key(&id) {
                    self.counters.replans += 1;
                    self.runnable.push_back(id);
                }
            }
            Event::Store(store::Event::Health(_)) => {}
            Event::Map(map) => self.handle_map(map, now, store, out),
            Event::Peer { from, msg } if self.is_early() || self.is_deleting() => {
                if self.early_peers.len() < EARLY_PEERS_MAX {
                    self.early_peers.push((from, msg));
                }
            }
            Event::Peer { from, msg } => self.handle_peer(from, &msg, now, store, out),
            Event::PeerReset(osd) => self.handle_peer_reset(osd, now),
            Event::Leases => self.retry_leases(now, store, out),
            Event::Fetched(id, result) => self.handle_fetched(id, result, now, out),
            Event::Move(m) if self.arrive.is_some() => self.handle_move_in(*m, now, store, out),
            Event::Move(m) => self.handle_move_out(*m, now, store, out),
            Event::Kin { from, kin } => self.handle_kin(from, *kin, now, store, out),
            Event::Force(options) => self.force(options),
            Event::Scrub(r) => self.want_scrub(r),
            Event::SessionClosed(session) => {
                self.watches.session_closed(session, now);
                self.drop_operations_of(session, out);
                self.forget_backoff(session);
            }
            Event::Part(id) => self.handle_part(id),
            Event::Tick => self.handle_tick(now, store, out),
            Event::Stop => self.handle_stop(now, store, out),
        }
        self.settle(now, store, out);
        self.pump_trim(now, store, out);
        if self.delete_rests {
            self.pump_delete(now, store, out);
        }
        self.pump_scrub(now, store, out);
        self.pump_move(now, store, out);
        while !self.runnable.is_empty() || self.recovery_wanted() {
            self.settle(now, store, out);
            self.pump_scrub(now, store, out);
            self.pump_move(now, store, out);
        }
        for id in std::mem::take(&mut self.abandoned) {
            store.release(self.tag(id));
        }
        self.arm_retry(now);
        out.append(&mut self.outbox);
        self.replay_late(now, store, out);
        if self.stopping {
            self.check_stopped(out);
        }
        if base::planted::acts(base::planted::Bug::AckBeforeDurable) {
            self.answer_early(now, out);
        }
    }

    /// Prefetches the cache lines that an operation or store event needs of this machine. With a thousand machines
    /// they are rarely in the cache, and without this each line would be waited for one after the other. Best called
    /// some time ahead.
    #[inline]
    pub fn foresee(&self) {
        use base::prefetch as line;
        line(&self.state);
        line(&self.cfg.index);
        line(&self.plans);
        line(&self.map);
        line(&self.others);
        line(&self.locks);
        line(&self.cache);
        line(&self.runnable);
        line(&self.outbox);
        line(&self.replay);
        line(&self.missing);
        line(&self.peers.clean);
        line(&self.peers.retry_at);
        line(&self.peers.unacked);
        line(&self.peers.pulls);
        line(&self.commits);
        line(&self.generation);
        line(&self.counters.ops);
        line(&self.counters.replans);
        line(&self.info.last_update);
        line(&self.info.stats.num_objects);
        line(&self.log);
    }

    /// Runs everything that is ready. With one copy and nothing to recover, only plans are.
    fn settle(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        loop {
            self.run_plans(now, store, out);
            // This comes before changes are applied, since a push of the primary to its own shard is such a change.
            if self.is_coded() {
                self.pump_shard(now, store, out);
            }
            self.pump_apply(now, store, out);
            if !self.pushed.is_empty() {
                self.finish_pushes(now, store, out);
            }
            if !self.peers.clean {
                if self.is_coded() {
                    self.send_deferred();
                }
                self.pump_recovery(now, store, out);
            }
            if self.peers.lent.is_some() {
                self.pump_lent();
            }
            if self.runnable.is_empty() && self.pushed.is_empty() && self.shard.to_self.is_empty() {
                return;
            }
        }
    }

    /// True if store events with this tag belong to this machine.
    #[must_use]
    pub fn owns(&self, tag: Tag) -> bool {
        Self::index_of(tag) == self.cfg.index
    }

    /// Index of the machine that a tag belongs to ([`PgConfig::index`]).
    #[must_use]
    pub fn index_of(tag: Tag) -> u32 {
        (tag.0 >> TAG_BITS) as u32
    }

    /// Time at which [`Event::Tick`] is due, if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let lease = if self.waits_for_lease { None } else { self.peers.lease_wait };
        let mut next = self.watches.next_deadline();
        let reserved = self.peers.reservation.deadline();
        let scrub = self.peers.scrub.deadline();
        let all = [lease, self.peers.retry_at, self.again_at, reserved, scrub, self.move_deadline()];
        for t in all.into_iter().flatten() {
            next = Some(next.map_or(t, |n| n.min(t)));
        }
        next
    }

    /// Number of objects that this copy lacks.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// True if this copy is the primary, serves, and all copies are complete and in place.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.state == State::Active && self.peers.clean
    }

    /// Sets the view of this OSD's leases.
    pub fn use_leases(&mut self, leases: Rc<LeaseView>) {
        self.leases = leases;
    }

    /// Keeps `keep` log records instead of the OSD's share, trimming `batch` at once.
    pub fn keep_log(&mut self, keep: usize, batch: usize) {
        self.keep_log = Some(Box::new(Keep { records: keep, batch, batch_max: usize::MAX }));
    }

    /// Sets the OSD's reservations, and the reactor of this machine. The host gives it an [`Event::Tick`] when
    /// [`Reserver::woken`] names it.
    pub fn use_reserver(&mut self, reserver: Arc<Reserver>, reactor: usize) {
        if self.cache.is_empty() {
            self.cache.bound(reserver.contexts());
        }
        self.reserver = reserver.count();
        self.reactor = reactor;
    }

    /// Sets the pacer of background work and long calls.
    pub fn use_pacer(&mut self, pacer: Rc<Pacer>) {
        self.pacer = pacer;
    }

    /// Sets the counters in which the reactor's PGs count.
    pub fn use_meter(&mut self, meter: Rc<Meter>) {
        self.meter = meter;
    }

    /// Sets the scrub settings and slots.
    pub fn use_scrubs(&mut self, scrubs: Rc<Scrubs>) {
        self.scrubs = scrubs;
    }

    /// Number of objects whose state is in memory.
    #[must_use]
    pub fn cached_objects(&self) -> usize {
        self.cache.len()
    }

    /// Number of submitted transactions that are not durable on all copies yet.
    #[must_use]
    pub fn uncommitted(&self) -> usize {
        self.commits.len()
    }

    /// True if an operation waits for a lease to be renewed.
    #[must_use]
    pub fn waits_for_lease(&self) -> bool {
        self.waits_for_lease
    }

    /// True if this copy takes part in the acting set, as primary or replica, and so needs the other members' leases.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.is_primary() || self.state == State::ReplicaActive
    }

    /// The other members of the acting set.
    #[must_use]
    pub fn others(&self) -> &[OsdId] {
        &self.others
    }

    /// The up set of the newest map.
    #[must_use]
    pub fn up(&self) -> &[OsdId] {
        self.map.as_ref().map_or(&[], |m| &m.mapping.up)
    }

    /// The PG, with the shard of this copy.
    #[must_use]
    pub fn spg(&self) -> SpgId {
        self.cfg.spg
    }

    /// State of the machine.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// True while it serves operations.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// True if this copy is the primary in the newest map.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.map.as_ref().is_some_and(|m| {
            let m = &m.mapping;
            m.acting_primary == self.cfg.whoami && (!self.is_coded() || m.primary(true) == self.me())
        })
    }

    /// OSD and shard of this copy.
    fn me(&self) -> PeerId {
        PeerId { osd: self.cfg.whoami, shard: self.cfg.spg.shard }
    }

    /// True if the PG's copies are shards.
    fn is_coded(&self) -> bool {
        self.cfg.spg.shard != ShardId::NONE
    }

    /// The acting set of the present interval.
    fn acting_set(&self) -> ShardSet<'_> {
        self.info.interval.mapping.acting(self.is_coded())
    }

    /// The up set of the present interval.
    fn up_set(&self) -> ShardSet<'_> {
        self.info.interval.mapping.up(self.is_coded())
    }

    /// The primary of the present interval.
    fn primary(&self) -> PeerId {
        self.info.interval.mapping.primary(self.is_coded())
    }

    /// Info of the PG; the stored one may be older.
    #[must_use]
    pub fn info(&self) -> &PgInfo {
        &self.info
    }

    /// Counts since the machine was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// True while the copy is being removed. If this OSD is to hold the PG again, the host creates it anew after
    /// that, and hands it the messages of [`Pg::into_held_messages`].
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.state == State::Deleting && !self.stopping
    }

    /// True while the machine holds maps, since it is loading or changing its collection.
    fn is_early(&self) -> bool {
        matches!(self.state, State::Loading | State::Creating | State::Splitting | State::Merging)
    }

    fn tag(&self, plan: u64) -> Tag {
        Tag(u64::from(self.cfg.index) << TAG_BITS | plan & ((1 << TAG_BITS) - 1))
    }

    /// The PG's own object: its omap is the snapshot index.
    fn meta(&self) -> Oid {
        crate::object::own_objects(self.cfg.spg).0
    }

    /// The object whose omap has the missing set.
    fn meta_missing(&self) -> Oid {
        crate::object::own_objects(self.cfg.spg).1
    }

    fn new_plan_id(&mut self) -> u64 {
        self.next_plan += 1;
        self.next_plan
    }

    /// Epoch of the newest map that the machine has processed.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch(0), |m| m.epoch)
    }

    fn pool(&self) -> Option<&Rc<PoolView>> {
        self.map.as_ref().and_then(|m| m.pool.as_ref())
    }

    fn next_version(&self) -> Eversion {
        Eversion { epoch: self.epoch(), version: self.info.last_update.version + 1 }
    }
}

/// Errno of a step that did not stop with a wait.
fn errno_of(s: &Stop) -> Option<Errno> {
    match s {
        Stop::Wait => None,
        Stop::Errno(e) => Some(*e),
    }
}

/// Copies small bytes out of a message so that they don't keep it alive.
fn own(b: &Bytes) -> Bytes {
    Bytes::copy_from_slice(b)
}
