//! The PGs of one reactor.
//!
//! Invariants:
//!  1. Every PG sees every map since it was created or loaded, in order.
//!  2. An operation is answered, held by a PG, parked for a map or a PG's creation, or dropped because its
//!     client will resend it to another OSD. Parked operations are bounded.
//!  3. Index 0 stands for the host's own transactions. PGs have indices from 1, which are never reused.
//!
//! Tests: `tests/shard.rs`, `tests/moves.rs`.

mod background;
mod copies;
pub mod counters;
mod input;
mod instance;
mod life;
mod merges;
mod ops;
mod orphans;
mod output;
mod parked;
mod peers;
mod report;
mod rights;
mod transfer;
mod views;
mod walk;

use crate::core::compress::Told;
use crate::core::maps::MapFeed;
use crate::core::places::Places;
use crate::core::refused::Refused;
use crate::core::slots::Slots;
use base::errno::Errno;
use base::{Epoch, Mono, Now, OsdId, PgId, SpgId};
use copies::Copies;
pub use input::Input;
use orphans::Orphans;
pub use output::{OpCounters, Output, Ready, StoreNews};
use parked::Parked;
use pg::lease::LeaseView;
use pg::meter::Meter;
use pg::pace::Pacer;
use pg::reserve::Reserver;
use pg::{Child, Effect, Event, FetchId, Fetched, MergeMsg, Pg, PgConfig, Scrubs};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::ObjectStore;
use transfer::Transfers;
pub(crate) use transfer::seen_by;
use views::{SharedPools, Views};
pub use walk::WALK_STEP;
use walk::{Behind, Walk};
use wire::msg::{MOsdOp, MPgPeer};

/// Age at which operations are reported as slow (`osd_op_complaint_time`).
const COMPLAIN_AFTER: Duration = Duration::from_secs(30);
/// Interval at which PGs and queues give back unneeded memory.
const REST_EVERY: Duration = Duration::from_secs(10);
/// Reports after which an unchanged PG is reported again.
const REPORT_EVERY: u32 = 60;
/// Capacity that empty queues keep.
const ROOM: usize = 64;

/// Index of the shard itself at the pacer, for `held`; no PG has it.
const HELD: u32 = 0;

/// PGs of one reactor; see the module.
pub struct Shard {
    transfers: Transfers,
    whoami: OsdId,
    seed: u64,
    places: Places,
    feed: Option<Arc<MapFeed>>,
    pub(super) by_pg: Copies,
    pub(super) pgs: Slots,
    next_index: u32,
    parked: Parked,
    leases: Rc<LeaseView>,
    pub(super) reserver: Arc<Reserver>,
    /// Number of this reactor.
    pub(super) reactor: usize,
    pacer: Rc<Pacer>,
    /// Recovery messages that wait for the pacer.
    held: [VecDeque<(OsdId, Box<MPgPeer>)>; 2],
    /// Time of the present input.
    pub(super) now: Now,
    pub(super) scrubs: Rc<Scrubs>,
    pub(super) next_scrubs: Mono,
    /// Time of the next release of unneeded memory.
    next_rest: Mono,
    /// Number of statistics requests so far.
    reports: u32,
    stopping: bool,
    stopped: bool,
    pub(super) effects: Vec<Effect>,
    /// True if [`Output::Members`] was sent and the host has not asked since.
    members_noted: Cell<bool>,
    /// [`Shard::pg_peers`] as last reported.
    told_peers: (BTreeSet<OsdId>, BTreeSet<OsdId>),
    /// Machines of PGs that are being merged into others, by the map that merges them.
    leaving: BTreeMap<(SpgId, Epoch), u32>,
    /// Messages between PGs here: sender and receiver.
    merge_msgs: VecDeque<(SpgId, SpgId, Box<MergeMsg>)>,
    /// Results of finished splits, for the child machines that wait for them.
    born: Vec<(SpgId, Option<Box<Child>>)>,
    /// Child machines that wait for the split of a failed copy.
    failed_splits: Vec<(SpgId, Errno)>,
    orphans: Orphans,
    instance: instance::Instance,
    walk: Walk,
    /// Views of pools in the newest map, kept for the next one.
    pool_views: SharedPools,
    /// Settings of pools that the store has.
    pub(super) compression: Told,
    out: VecDeque<Output>,
    counters: OpCounters,
    meter: Rc<Meter>,
    refused: Refused,
}

impl Shard {
    /// Shard of an OSD; `places` tells which PGs belong to this reactor.
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
            parked: Parked::default(),
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
            told_peers: Default::default(),
            leaving: BTreeMap::new(),
            merge_msgs: VecDeque::new(),
            born: Vec::new(),
            failed_splits: Vec::new(),
            orphans: Orphans::default(),
            instance: instance::Instance::default(),
            walk: Walk::default(),
            pool_views: SharedPools::default(),
            compression: Told::default(),
            out: VecDeque::new(),
            counters: OpCounters::default(),
            meter: Rc::default(),
            refused: Refused::default(),
        }
    }

    /// Number of the OSD.
    #[must_use]
    pub fn whoami(&self) -> OsdId {
        self.whoami
    }

    /// Next action for the host.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Newest map, with the incrementals that lead to it.
    #[must_use]
    pub fn feed(&self) -> Option<&Arc<MapFeed>> {
        self.feed.as_ref()
    }

    /// Epoch of the newest map, 0 if there is none.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.feed.as_ref().map_or(Epoch(0), |f| f.map.epoch)
    }

    /// Counters of operations before they reach a PG.
    #[must_use]
    pub fn counters(&self) -> OpCounters {
        self.counters
    }

    /// Objects whose calls were refused with `EBUSY`.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    fn config(&mut self, spg: SpgId) -> PgConfig {
        let index = self.next_index;
        self.next_index += 1;
        PgConfig { spg, whoami: self.whoami, index, seed: self.seed ^ u64::from(index) << 32 }
    }

    /// Reactor of a copy, according to the maps here.
    #[must_use]
    pub fn place(&self, spg: SpgId) -> usize {
        self.places.of(spg)
    }

    /// Reactor for a client's operation. An operation with a newer map waits here, so that later ones can't
    /// overtake it.
    #[must_use]
    pub fn place_of_op(&self, m: &MOsdOp) -> usize {
        if m.osdmap_epoch > self.epoch() { self.places.index() } else { self.places.of(m.pgid) }
    }

    /// Reactor of a PG's name.
    #[must_use]
    pub fn home(&self, pg: PgId) -> usize {
        self.places.named(pg)
    }

    /// Handles the result of a fetch.
    pub fn fetched(&mut self, pg: PgId, id: FetchId, r: Result<Fetched, Errno>, now: Now, store: &mut dyn ObjectStore) {
        if let Some(i) = self.machine_of(pg) {
            self.feed_pg(i, Event::Fetched(id, r), now, store);
        }
    }

    /// Number of PGs here.
    #[must_use]
    pub fn pg_count(&self) -> usize {
        self.pgs.len()
    }

    /// All PGs here.
    pub fn pgs(&self) -> impl Iterator<Item = &Pg> {
        self.pgs.values()
    }

    /// The PG's machine, if it is here.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&Pg> {
        self.pgs.get(self.machine_of(pg)?)
    }
}
