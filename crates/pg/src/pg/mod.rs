//! The machine: its state, its inputs, and how they reach the parts.
//!
//! | folder | what happens there |
//! | --- | --- |
//! | `life` | a PG is created, loaded, follows maps, starts over in a new interval, ends |
//! | `backend` | what a transaction, a read, recovery mean for whole copies and for shards |
//! | `peering` | who has what, which log counts, who serves; messages of the copies; a member that does not lead; a copy that fails |
//! | `ops` | an operation is admitted, backed off, planned, run, submitted, answered; watches expire, clones are trimmed |
//! | `recovery` | copies get what they lack: by log, by backfill; reservations; objects that don't read, and that nobody has |
//! | `resize` | `pg_num` changes: a PG is split, or merged into another one |
//! | `relocate` | a PG moves to another reactor of its OSD |
//! | `scrub` | copies are compared and repaired |
//! | `report`, `rest` | what the PG tells about itself; memory that it gives back |

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
use ops::trim::Trim;
use peering::session::Peers;
pub(crate) use relocate::out::MemberState;
pub use report::OpDump;
pub use resize::merge_target::{BERTH, answer_for_none};
pub use resize::split::Child;
use rustc_hash::FxBuildHasher;
pub use scrub::lead::Scrubs;
use seldom::Seldom;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use store::{Cid, ObjectStore, Oid, Tag};
use wire::msg::MPgPeer;

/// What a machine is told when it is made.
#[derive(Clone, Copy, Debug)]
pub struct PgConfig {
    /// Which PG.
    pub spg: SpgId,
    /// This OSD.
    pub whoami: OsdId,
    /// Number of this machine among those that share a store; names its tags.
    pub index: u32,
    /// Seed of deterministic randomness.
    pub seed: u64,
}

/// Where a PG is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Reading info and log.
    Loading,
    /// The collection is being made, or will be split off another one.
    Creating,
    /// Parts of it become PGs of their own.
    Splitting,
    /// Waiting for a map, or another OSD leads and has not made this one a member.
    Stray,
    /// This OSD leads it but cannot serve it; the text says why.
    Inactive(String),
    /// Another OSD, which is down, may hold newer data.
    Down(Vec<OsdId>),
    /// Asking who has what, or for another acting set.
    GetInfo,
    /// Taking over the authoritative log.
    GetLog,
    /// The map must show that this interval may take writes.
    WaitUpThru,
    /// Members write down that the interval started.
    Activating,
    /// A lease of an earlier interval must run out.
    WaitLease,
    /// Serving.
    Active,
    /// All is known, but there are too few copies to serve.
    Peered,
    /// Could serve, but is about to be joined with another PG.
    Quiesced,
    /// Takes over what another PG had.
    Joining,
    /// There is no such PG any more; another one takes over what it had.
    Leaving,
    /// Another OSD leads; this one takes its writes.
    ReplicaActive,
    /// Comes from another reactor.
    Arriving,
    /// The pool is gone; objects are being removed.
    Deleting,
    /// Nothing is left.
    Deleted,
    /// The OSD stops.
    Stopped,
    /// The store failed, or this copy is not as it must be.
    Failed(Errno),
}

/// Bits of a tag that count a machine's plans; the rest is its index.
const TAG_BITS: u32 = 40;

/// One copy of a placement group on this OSD.
///
/// # Driving it
///
/// There are five kinds of methods:
///
/// - **Making one**: [`Pg::create`] (the monitor says so), [`Pg::load`] (it is in the store), [`Pg::promise`] (a map will split it off),
///   [`Pg::arrive`] (it comes from another reactor). Then the parts that PGs of a reactor share: [`Pg::use_leases`],
///   [`Pg::use_reserver`], [`Pg::use_pacer`], [`Pg::use_scrubs`]; then the newest map.
/// - **Inputs**: [`Pg::handle`], with an [`Event`], and those few that need an answer at once ([`Pg::born`], [`Pg::withdraw`],
///   [`Pg::mark_unfound_lost`]). They append [`Effect`]s.
/// - **Time**: [`Pg::next_deadline`] says when [`Event::Tick`] is due. Nothing else depends on a clock; `now` comes with each input.
/// - **Questions** (`is_…`, [`Pg::state`], [`Pg::info`], [`Pg::report`], [`Pg::dump_ops`]): they change nothing that matters.
/// - **Rest**: [`Pg::rest`] gives memory back; at any time.
///
/// A turn of the host: give inputs in the order in which they came, carry out the effects in their order, ask for the next
/// deadline. The host's duties:
///
/// 1. Maps come in order, each before any input that depends on it: a peer's message waits until its epoch is here. Grants of
///    leases are told before a later map.
/// 2. All events of the store whose tag the PG [owns](Pg::owns) go to it, in the store's order.
/// 3. Caps are checked before an operation is given in; sessions that end are told ([`Event::SessionClosed`]), and sessions to
///    other OSDs that were reset ([`Event::PeerReset`]).
/// 4. Effects are carried out in their order, and none is left out. Those that go to a lossy place (monitor, manager) are
///    repeated by the PG itself until a map shows them.
/// 5. After [`Effect::Deleted`] or [`Effect::Stopped`] the machine is dropped; after [`Effect::Failed`] the store is not used
///    any more.
///
/// # Memory
///
/// Fields are laid out as they are written here, so that what an operation looks at lies together: with a thousand PGs each
/// comes to an operation from far away, and each cache line of it is waited for.
#[repr(C)]
pub struct Pg {
    // Of every operation.
    state: State,
    stopping: bool,
    stopped_told: bool,
    created_told: bool,
    /// An operator wants it recovered before others: 1 recovery, 2 backfill.
    forced: u8,
    /// What runs is the PG's own: not of a client, and no data of a member or another PG.
    own_step: bool,
    /// It was said that there is no room.
    room_missed: bool,
    /// The next objects of a deleted PG may be removed when the pacer says so.
    delete_rests: bool,
    /// There is no space for what the primary sent; tried again at the next tick.
    apply_stuck: bool,
    /// Operations are held until a lease is renewed.
    waits_for_lease: bool,
    /// A log is being merged.
    merging: bool,
    /// The store as a whole failed.
    store_lost: bool,
    /// The stored info is older than `info` by more than the log can tell.
    info_dirty: bool,
    writes_since_info: u32,
    /// Newest map an operation waits for.
    wanted_map: Epoch,
    /// It goes to another reactor...
    depart: Option<Box<relocate::out::Depart>>,
    /// ...or comes from one.
    arrive: Option<Box<relocate::in_::Arrive>>,
    cfg: PgConfig,
    cid: Cid,
    /// Next plan.
    next_plan: u64,
    plans: BTreeMap<u64, Box<Plan>>,
    /// How objects are coded, if copies are shards.
    coder: Option<Rc<backend::ec::Coder>>,
    /// What only shards need.
    shard: Seldom<backend::ec::ShardState>,
    /// The request that runs, as it came, if other members take part: see [`Pg::requeue`].
    again: Option<Box<OpRequest>>,
    map: Option<MapView>,
    /// Other members of the acting set.
    others: Vec<OsdId>,
    leases: Rc<LeaseView>,
    locks: HashMap<HObject, ObjectLock, FxBuildHasher>,
    cache: ContextCache,

    // What every input has to find empty.
    /// Plans that may run now.
    runnable: VecDeque<u64>,
    /// Parked plans that were dropped: the store must forget them.
    abandoned: Vec<u64>,
    /// Objects whose pushes are done.
    pushed: Vec<HObject>,
    /// Messages to send at the end of the present input.
    outbox: Vec<Effect>,
    /// Maps and other inputs that were held for a move, to be taken up now.
    replay: (Vec<MapView>, Vec<Late>),
    trim: Seldom<Trim>,
    /// Objects this copy lacks, with the log position as of which it needs them.
    missing: BTreeMap<HObject, Eversion>,
    /// A scrub that was asked for and has not begun, or began in an interval that ended.
    scrub_wanted: Option<crate::scrub::ScrubRequest>,
    peers: Peers,

    // Of every write, and of what waits for one.
    /// Submitted transactions that are not durable yet, oldest first.
    commits: VecDeque<Commit>,
    /// Number of the newest submitted transaction.
    submitted: u64,
    /// Number of the newest one that is durable here.
    local: u64,
    /// Number of the newest one that is durable wherever it must be.
    durable: u64,
    /// Newest transaction of older intervals: until it is durable here nobody is told what this copy has.
    fence: u64,
    /// The fence is at least this: 1 for what was split off, whose content another machine submitted before its first transaction.
    fence_min: u64,
    /// Grows with each interval; what an older one left behind is void.
    generation: u64,
    counters: Counters,
    info: PgInfo,
    log: PgLog,
    keep_log: Option<Box<Keep>>,
    watches: WatchTable,

    // The rest.
    /// Bits of an object's hash that name the PG, as far as it has been split...
    bits: u32,
    /// ...and with the newest map it was told of, which it may yet have to get to.
    bits_coming: u32,
    /// PGs of the pool by the newest map it was told of; 0 if not known.
    pg_num_coming: u32,
    /// The map as of which it was loaded.
    stored_at: Epoch,
    joins: Seldom<resize::merge_target::Joins>,
    cargo: Option<Box<resize::merge_source::Cargo>>,
    /// While the collection of a PG that is no more is there.
    leaver: Option<Box<Leaver>>,
    /// A split waits for one of those, or something for room; looked at again then.
    again_at: Option<Mono>,
    /// PGs that will come out of the split under way.
    awaited: Vec<SpgId>,
    /// Up to where a split has moved a long snapshot index.
    index_from: Bytes,
    /// Maps that came while loading, creating or splitting.
    early_maps: Vec<MapView>,
    /// Operations that wait for a newer map or for the PG to go active.
    held: Held,
    /// Sessions that hold their operations themselves.
    backoffs: Backoffs,
    reserver: Counted,
    /// On which reactor it is.
    reactor: usize,
    pacer: Rc<Pacer>,
    /// Messages that came while loading or creating.
    early_peers: Vec<(OsdId, Box<MPgPeer>)>,
    /// Primaries of older intervals that may count on this OSD's lease, or on that of one that said so.
    granted: PerOsd<Mono>,
    scrubs: Rc<Scrubs>,
    stamps: report::Stamps,
    reported_seq: u64,
    /// What the last report was, but for the time, and how often.
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
            joins: Seldom::default(),
            cargo: None,
            leaver: None,
            again_at: None,
            room_missed: false,
            own_step: false,
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
            waits_for_lease: false,
            trim: Seldom::default(),
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

    /// Takes one input. Effects are appended to `out` in the order in which the host must carry them out.
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
            Event::Peer { from, msg } if self.is_early() || self.is_going() => {
                if self.early_peers.len() < EARLY_PEERS_MAX {
                    self.early_peers.push((from, msg));
                }
            }
            Event::Peer { from, msg } => self.handle_peer(from, &msg, now, store, out),
            Event::PeerReset(osd) => self.handle_peer_reset(osd, now),
            Event::Leases => self.retry_leases(now, store, out),
            Event::Fetched(id, result) => self.handle_fetched(id, result, out),
            Event::Move(m) if self.arrive.is_some() => self.handle_move_in(*m, now, store, out),
            Event::Move(m) => self.handle_move_out(*m, now, store, out),
            Event::Kin { from, kin } => self.handle_kin(from, *kin, now, store, out),
            Event::Force(options) => self.force(options),
            Event::Scrub(r) => self.want_scrub(r),
            Event::SessionClosed(session) => {
                self.watches.session_closed(session, now);
                // Its client sends again what it still wants, on another session.
                self.held.forget(session);
                self.forget_backoff(session);
            }
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

    /// Begins to bring what an operation or an event of the store needs of this machine. One of a thousand comes from far away, and met one
    /// after the other on the operation's way each of its cache lines would be waited for by itself. Of most use some time before.
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

    /// Runs what can run. With one copy and nothing to recover that is plans only.
    fn settle(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        loop {
            self.run_plans(now, store, out);
            // Before changes are applied: what the primary pushes to its own shard is one of them.
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

    /// True if an event of the store with this tag is for this machine.
    #[must_use]
    pub fn owns(&self, tag: Tag) -> bool {
        Self::index_of(tag) == self.cfg.index
    }

    /// Index of the machine a tag belongs to ([`PgConfig::index`]).
    #[must_use]
    pub fn index_of(tag: Tag) -> u32 {
        (tag.0 >> TAG_BITS) as u32
    }

    /// When [`Event::Tick`] is due.
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

    /// Objects this copy lacks.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// True if it leads, serves, and all copies are complete and in place.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.state == State::Active && self.peers.clean
    }

    /// Sets where the leases of this OSD are seen.
    pub fn use_leases(&mut self, leases: Rc<LeaseView>) {
        self.leases = leases;
    }

    /// Keeps `keep` log records instead of the usual number, dropping `batch` at once.
    pub fn keep_log(&mut self, keep: usize, batch: usize) {
        self.keep_log = Some(Box::new(Keep { records: keep, batch, batch_max: usize::MAX }));
    }

    /// Sets who decides which PGs may recover, and on which reactor this one is: at [`Reserver::woken`] it wants an [`Event::Tick`].
    pub fn use_reserver(&mut self, reserver: Arc<Reserver>, reactor: usize) {
        if self.cache.is_empty() {
            self.cache.bound(reserver.contexts());
        }
        self.reserver = reserver.count();
        self.reactor = reactor;
    }

    /// Sets who decides when background work may go on.
    pub fn use_pacer(&mut self, pacer: Rc<Pacer>) {
        self.pacer = pacer;
    }

    /// Sets how it is scrubbed and whose slots bound that.
    pub fn use_scrubs(&mut self, scrubs: Rc<Scrubs>) {
        self.scrubs = scrubs;
    }

    /// True if something waits for a lease to be renewed.
    #[must_use]
    pub fn waits_for_lease(&self) -> bool {
        self.waits_for_lease
    }

    /// True if it takes part in serving the PG, as primary or not: then it needs leases of the other members.
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

    /// Which PG.
    #[must_use]
    pub fn spg(&self) -> SpgId {
        self.cfg.spg
    }

    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// True while it serves operations.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// True if this copy leads the PG in the newest map.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.map.as_ref().is_some_and(|m| {
            let m = &m.mapping;
            m.acting_primary == self.cfg.whoami && (!self.is_coded() || m.primary(true) == self.me())
        })
    }

    /// This copy.
    fn me(&self) -> PeerId {
        PeerId { osd: self.cfg.whoami, shard: self.cfg.spg.shard }
    }

    /// The PG's copies are shards.
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

    /// Who leads the present interval.
    fn primary(&self) -> PeerId {
        self.info.interval.mapping.primary(self.is_coded())
    }

    /// What the store keeps of it.
    #[must_use]
    pub fn info(&self) -> &PgInfo {
        &self.info
    }

    /// Counts since the machine was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// It is being removed. If this OSD is to hold the PG again, that begins anew when nothing is left: what comes meanwhile is
    /// [`Pg::unborn`].
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.state == State::Deleting && !self.stopping
    }

    /// It is not yet what the newest map makes it.
    fn is_early(&self) -> bool {
        matches!(self.state, State::Loading | State::Creating | State::Splitting | State::Joining)
    }

    fn tag(&self, plan: u64) -> Tag {
        Tag(u64::from(self.cfg.index) << TAG_BITS | plan & ((1 << TAG_BITS) - 1))
    }

    /// The PG's own object: its omap is the snapshot index.
    fn meta(&self) -> Oid {
        crate::object::own_objects(self.cfg.spg).0
    }

    /// Where the store keeps `missing`.
    fn meta_missing(&self) -> Oid {
        crate::object::own_objects(self.cfg.spg).1
    }

    fn new_plan_id(&mut self) -> u64 {
        self.next_plan += 1;
        self.next_plan
    }

    /// Epoch of the newest map it has handled.
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

/// The errno of a step that did not end in a wait.
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
