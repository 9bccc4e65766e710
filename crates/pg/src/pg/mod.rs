//! The PG machine: state, inputs, and their dispatch to the parts.
//!
//! | folder | contents |
//! | --- | --- |
//! | `keys` | keys in the omaps of the PG's own objects |
//! | `env`, `maps` | name, collection and services of the machine; its maps |
//! | `life` | creating, loading, following maps, starting over in a new interval, ending |
//! | `journal` | log and info, submission of transactions, replies when durable |
//! | `mail` | admission of operations, backoff, inputs that wait |
//! | `backend` | transactions, reads and recovery: whole copies or shards |
//! | `peering` | state of copies, authoritative log, acting set; peer messages; members; failed copies |
//! | `ops` | operations: planning, execution; expiry of watches; trimming |
//! | `recovery` | recovery by log, backfill, reservations; unreadable and unfound objects |
//! | `resize` | changes of `pg_num`: split and merge |
//! | `relocate` | moves to another reactor of the OSD |
//! | `scrub` | comparison and repair of copies |
//! | `report`, `idle` | reports; release of memory while idle |
//! | `seldom` | parts that most machines never use, allocated on first change |

mod backend;
mod env;
mod idle;
mod journal;
mod keys;
mod life;
mod mail;
mod maps;
mod ops;
mod peering;
mod recovery;
mod relocate;
mod report;
mod resize;
mod scrub;
mod seldom;
#[cfg(test)]
mod sizes;

use crate::effect::Effect;
use crate::event::Event;
use crate::exec::Stop;
use crate::info::PgInfo;
use crate::keep::Keep;
use crate::lease::LeaseView;
use crate::map::PoolView;
use crate::meter::Meter;
use crate::pace::Pacer;
use crate::reserve::Reserver;
use crate::shards::{PeerId, ShardSet};
use crate::stats::Counters;
use crate::watch::WatchTable;
use backend::ec::EcState;
pub(crate) use backend::ec::read::ShardReads;
use base::errno::Errno;
use base::{Epoch, Eversion, Mono, Now, OsdId, SpgId};
use bytes::Bytes;
use env::{Surroundings, TAG_BITS};
use journal::Journal;
use life::Life;
use mail::Mail;
use maps::Maps;
use ops::Plans;
use ops::trim::Trim;
pub(crate) use peering::MemberState;
use peering::Peers;
use recovery::Recovery;
use relocate::Relocate;
use report::Report;
use resize::Resize;
pub use resize::merge_target::{answer_for_none, is_intake};
pub use resize::split::Child;
use scrub::Scrub;
pub use scrub::Scrubs;
use seldom::Seldom;
use std::rc::Rc;
use std::sync::Arc;
use store::{ObjectStore, Oid, Tag};

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
    GetLog {
        /// The copy that has it.
        auth: PeerId,
        /// Copies that are filled once the interval has started.
        targets: Vec<PeerId>,
    },
    /// Waiting for a map with `up_thru` in this interval, so that the interval may take writes.
    WaitUpThru {
        /// Copies that are filled once the interval has started.
        targets: Vec<PeerId>,
    },
    /// Recording the start of the interval on all members.
    Activating {
        /// Copies that are filled once the interval has started.
        targets: Vec<PeerId>,
        /// The start is durable here.
        recorded: bool,
    },
    /// Waiting for read leases of an earlier interval to end.
    WaitLease {
        /// Time until which a former primary may serve reads by a lease; `None`: none does.
        until: Option<Mono>,
    },
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
    Deleting {
        /// The next batch waits for the pacer.
        paused: bool,
    },
    /// The collection is removed.
    Deleted,
    /// Stopped together with the OSD.
    Stopped,
    /// The store failed, or this copy did.
    Failed(Errno),
}

/// Time, store and list of effects, at hand for an input.
pub(crate) struct Turn<'a> {
    now: Now,
    store: &'a mut dyn ObjectStore,
    out: &'a mut Vec<Effect>,
}

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
///   [`Pg::withdraw`], [`Pg::mark_unfound_lost`], [`Pg::handle_ack`]). They append [`Effect`]s.
/// - **Time**: [`Pg::next_deadline`] says when [`Event::Tick`] is due. Nothing else depends on a clock; `now` comes
///   with each input.
/// - **Queries** (`is_…`, [`Pg::state`], [`Pg::info`], [`Pg::report`], [`Pg::dump_ops`]): without effect on
///   behaviour.
/// - **Idle**: [`Pg::release_memory`] releases memory, at any time.
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
/// 5. It asks for [`Pg::acknowledge`] after [`Effect::Acknowledge`].
/// 6. After [`Effect::Deleted`] or [`Effect::Stopped`] the machine is dropped. After [`Effect::Failed`] the store is
///    no longer used.
///
/// # Parts
///
/// Each part owns its state: its fields are private to its folder or file, and other parts use its methods.
///
/// # Memory
///
/// The fields are laid out as written here, in each part those of every operation first. With a thousand PGs the
/// machine is rarely in the CPU's cache, and each cache line costs a memory access: see [`Pg::prefetch`].
#[repr(C)]
pub struct Pg {
    life: Life,
    relocate: Relocate,
    env: Surroundings,
    plans: Plans,
    ec: EcState,
    maps: Maps,
    mail: Mail,
    trim: Seldom<Trim>,
    recovery: Recovery,
    peers: Peers,
    journal: Journal,
    watches: WatchTable,
    report: Report,
    scrub: Scrub,
    resize: Resize,
}

impl Pg {
    fn blank(cfg: PgConfig, state: State) -> Self {
        Self {
            life: Life::new(state),
            relocate: Relocate::default(),
            env: Surroundings::new(cfg),
            plans: Plans::default(),
            ec: EcState::default(),
            maps: Maps::default(),
            mail: Mail::default(),
            trim: Seldom::default(),
            recovery: Recovery::default(),
            peers: Peers::default(),
            journal: Journal::default(),
            watches: WatchTable::new(cfg.index << 16),
            report: Report::default(),
            scrub: Scrub::default(),
            resize: Resize::default(),
        }
    }

    /// Handles one input. Effects are appended to `out` in the order in which the host must carry them out.
    pub fn handle(&mut self, event: Event, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        self.env.meter().set_now(now.mono);
        self.input(event, &mut Turn { now, store, out });
    }

    /// Handles one input.
    fn input(&mut self, event: Event, turn: &mut Turn<'_>) {
        let held = self.relocate.is_busy();
        let event = if held { self.hold_for_move(event).and_then(|e| self.hold_for_arrival(e)) } else { Some(event) };
        let Some(event) = event else { return };
        if matches!(event, Event::Store(_)) {
            self.prefetch();
        }
        match event {
            Event::Op(req) => self.handle_op(req, turn),
            Event::Store(store::Event::Durable(tag, Ok(()))) => self.handle_durable(tag, turn),
            Event::Store(store::Event::Durable(_, Err(errno))) => self.store_failed(errno, turn.out),
            Event::Store(store::Event::Ready(tag)) => {
                let id = tag.0 & ((1 << TAG_BITS) - 1);
                if self.plans.get(id).is_some() {
                    self.report.count_replan();
                    self.plans.ready(id);
                }
            }
            Event::Store(store::Event::Health(_)) => {}
            Event::Map(map) => self.handle_map(map, turn),
            Event::Peer { from, msg } if self.is_early() || self.is_deleting() => {
                self.mail.keep_peer(from, msg);
            }
            Event::Peer { from, msg } => self.handle_peer(from, &msg, turn),
            Event::PeerReset(osd) => self.handle_peer_reset(osd, turn.now),
            Event::Leases => self.retry_leases(turn),
            Event::Fetched(id, result) => self.handle_fetched(id, result, turn),
            Event::Move(m) if self.relocate.arrives() => self.handle_move_in(*m, turn),
            Event::Move(m) => self.handle_move_out(*m, turn),
            Event::Merge { from, msg } => self.handle_merge(from, *msg, turn),
            Event::Force(options) => self.force(options),
            Event::Scrub(r) => self.want_scrub(r),
            Event::SessionClosed(session) => {
                self.watches.session_closed(session, turn.now);
                self.drop_operations_of(session, turn.out);
                self.forget_backoff(session);
            }
            Event::Part(id) => self.handle_part(id),
            Event::Tick => self.handle_tick(turn),
            Event::Stop => self.handle_stop(turn),
        }
        self.after_input(turn);
    }

    /// Runs everything that an input has made ready, and hands out what it has to send.
    fn after_input(&mut self, turn: &mut Turn<'_>) {
        self.settle(turn);
        self.pump_trim(turn);
        if self.life.deletion_waits() {
            self.pump_delete(turn);
        }
        self.pump_scrub(turn);
        self.pump_move(turn);
        while self.plans.has_ready() || self.recovery_wanted() {
            self.settle(turn);
            self.pump_scrub(turn);
            self.pump_move(turn);
        }
        for id in self.plans.take_abandoned() {
            turn.store.release(self.tag(id));
        }
        self.arm_retry(turn.now);
        self.mail.flush(turn.out);
        self.replay_postponed(turn);
        if self.life.is_stopping() {
            self.check_stopped(turn.out);
        }
        if base::planted::acts(base::planted::Bug::AckBeforeDurable) {
            self.answer_early(turn);
        }
    }

    /// Prefetches the cache lines that an operation or store event needs of this machine. With a thousand machines
    /// they are rarely in the cache, and without this each line would be waited for one after the other. Best called
    /// some time ahead.
    #[inline]
    pub fn prefetch(&self) {
        self.life.prefetch();
        self.relocate.prefetch();
        self.env.prefetch();
        self.plans.prefetch();
        self.ec.prefetch();
        self.maps.prefetch();
        self.mail.prefetch();
        self.recovery.prefetch();
        self.peers.prefetch();
        self.journal.prefetch();
        self.report.prefetch();
    }

    /// Runs everything that is ready. With one copy and nothing to recover, only plans are.
    fn settle(&mut self, turn: &mut Turn<'_>) {
        loop {
            self.run_plans(turn);
            // This comes before changes are applied, since a push of the primary to its own shard is such a change.
            if self.is_coded() {
                self.pump_shard(turn);
            }
            self.pump_apply(turn);
            if self.recovery.has_pushed() {
                self.finish_pushes(turn);
            }
            if !self.peers.is_clean() {
                if self.is_coded() {
                    self.send_deferred();
                }
                self.pump_recovery(turn);
            }
            if self.recovery.lends() {
                self.pump_lent();
            }
            if !self.plans.has_ready() && !self.recovery.has_pushed() && !self.ec.has_messages() {
                return;
            }
        }
    }

    /// True if store events with this tag belong to this machine.
    #[must_use]
    pub fn owns(&self, tag: Tag) -> bool {
        Self::index_of(tag) == self.env.index()
    }

    /// Index of the machine that a tag belongs to ([`PgConfig::index`]).
    #[must_use]
    pub fn index_of(tag: Tag) -> u32 {
        (tag.0 >> TAG_BITS) as u32
    }

    /// Time at which [`Event::Tick`] is due, if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let lease = if self.mail.waits_for_lease() { None } else { self.life.lease_wait() };
        let mut next = self.watches.next_deadline();
        let reserved = self.recovery.deadline();
        let scrub = self.scrub.deadline();
        let all = [lease, self.peers.deadline(), self.plans.deadline(), reserved, scrub, self.move_deadline()];
        for t in all.into_iter().flatten() {
            next = Some(next.map_or(t, |n| n.min(t)));
        }
        next
    }

    /// Number of objects that this copy lacks.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.recovery.missing().len()
    }

    /// True if this copy is the primary, serves, and all copies are complete and in place.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self.life.state() == State::Active && self.peers.is_clean()
    }

    /// Sets the view of this OSD's leases.
    pub fn use_leases(&mut self, leases: Rc<LeaseView>) {
        self.env.use_leases(leases);
    }

    /// Keeps `keep` log records instead of the OSD's share, trimming `batch` at once.
    pub fn keep_log(&mut self, keep: usize, batch: usize) {
        self.journal.keep_log(Keep { records: keep, batch, batch_max: usize::MAX });
    }

    /// Sets the OSD's reservations, and the reactor of this machine. The host gives it an [`Event::Tick`] when
    /// [`Reserver::woken`] names it.
    pub fn use_reserver(&mut self, reserver: Arc<Reserver>, reactor: usize) {
        if self.plans.cache().is_empty() {
            self.plans.bound_contexts(reserver.contexts());
        }
        self.env.use_reserver(reserver, reactor);
    }

    /// Sets the pacer of background work and long calls.
    pub fn use_pacer(&mut self, pacer: Rc<Pacer>) {
        self.env.use_pacer(pacer);
    }

    /// Sets the counters in which the reactor's PGs count.
    pub fn use_meter(&mut self, meter: Rc<Meter>) {
        self.env.use_meter(meter);
    }

    /// Sets the scrub settings and slots.
    pub fn use_scrubs(&mut self, scrubs: Rc<Scrubs>) {
        self.scrub.use_settings(scrubs);
    }

    /// Number of objects whose state is in memory.
    #[must_use]
    pub fn cached_objects(&self) -> usize {
        self.plans.cache().len()
    }

    /// Number of submitted transactions that are not durable on all copies yet.
    #[must_use]
    pub fn uncommitted(&self) -> usize {
        self.journal.uncommitted()
    }

    /// True if an operation waits for a lease to be renewed.
    #[must_use]
    pub fn waits_for_lease(&self) -> bool {
        self.mail.waits_for_lease()
    }

    /// True if this copy takes part in the acting set, as primary or replica, and so needs the other members' leases.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.is_primary() || *self.life.state() == State::ReplicaActive
    }

    /// The other members of the acting set.
    #[must_use]
    pub fn others(&self) -> &[OsdId] {
        self.maps.others()
    }

    /// The up set of the newest map.
    #[must_use]
    pub fn up(&self) -> &[OsdId] {
        self.maps.newest().map_or(&[], |m| &m.mapping.up)
    }

    /// The PG, with the shard of this copy.
    #[must_use]
    pub fn spg(&self) -> SpgId {
        self.env.spg()
    }

    /// State of the machine.
    #[must_use]
    pub fn state(&self) -> &State {
        self.life.state()
    }

    /// True while it serves operations.
    #[must_use]
    pub fn is_active(&self) -> bool {
        *self.life.state() == State::Active
    }

    /// True if this copy is the primary in the newest map.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.maps.newest().is_some_and(|m| {
            let m = &m.mapping;
            m.acting_primary == self.env.whoami() && (!self.is_coded() || m.primary(true) == self.me())
        })
    }

    /// OSD and shard of this copy.
    fn me(&self) -> PeerId {
        self.env.me()
    }

    /// True if the PG's copies are shards.
    fn is_coded(&self) -> bool {
        self.env.is_coded()
    }

    /// The acting set of the present interval.
    fn acting_set(&self) -> ShardSet<'_> {
        self.journal.info().interval.mapping.acting(self.is_coded())
    }

    /// The up set of the present interval.
    fn up_set(&self) -> ShardSet<'_> {
        self.journal.info().interval.mapping.up(self.is_coded())
    }

    /// The primary of the present interval.
    fn primary(&self) -> PeerId {
        self.journal.info().interval.mapping.primary(self.is_coded())
    }

    /// Info of the PG; the stored one may be older.
    #[must_use]
    pub fn info(&self) -> &PgInfo {
        self.journal.info()
    }

    /// Counts since the machine was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.report.counters()
    }

    /// True while the copy is being removed. If this OSD is to hold the PG again, the host creates it anew after
    /// that, and hands it the messages of [`Pg::into_held_messages`].
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        matches!(self.life.state(), State::Deleting { .. }) && !self.life.is_stopping()
    }

    /// True while the machine holds maps, since it is loading or changing its collection.
    fn is_early(&self) -> bool {
        matches!(self.life.state(), State::Loading | State::Creating | State::Splitting | State::Merging)
    }

    fn tag(&self, plan: u64) -> Tag {
        self.env.tag(plan)
    }

    /// The PG's own object: its omap is the snapshot index.
    fn meta(&self) -> Oid {
        crate::object::own_objects(self.env.spg()).0
    }

    /// The object whose omap has the missing set.
    fn meta_missing(&self) -> Oid {
        crate::object::own_objects(self.env.spg()).1
    }

    fn new_plan_id(&mut self) -> u64 {
        self.plans.new_id()
    }

    /// Epoch of the newest map that the machine has processed.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.maps.epoch()
    }

    fn pool(&self) -> Option<&Rc<PoolView>> {
        self.maps.pool()
    }

    fn next_version(&self) -> Eversion {
        Eversion { epoch: self.epoch(), version: self.journal.info().last_update.version + 1 }
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
