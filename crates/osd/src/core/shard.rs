//! The PGs of one reactor.
//!
//! Invariants:
//!  1. Every PG sees every map since it was made or loaded, in order.
//!  2. An operation is answered, held by a PG, parked for a map or a PG's creation, or dropped because its sender will
//!     target it anew; parked operations are bounded.
//!  3. Index 0 names the host's own transactions; PGs have indices from 1, never used again.

mod background;
mod copies;
mod instance;
mod kin;
mod life;
mod ops;
mod orphans;
mod output;
mod peers;
mod report;
mod rights;
mod transfer;
mod views;
mod walk;

use crate::core::maps::MapFeed;
use crate::core::places::Places;
use crate::core::slots::Slots;
use crate::core::waiting::Waiting;
use base::errno::Errno;
use base::{Epoch, Mono, Now, OsdId, PgId, SpgId};
use copies::Copies;
pub use output::{OpCounters, Output, Ready};
use pg::lease::LeaseView;
use pg::pace::Pacer;
use pg::reserve::Reserver;
use pg::{Child, Effect, Event, FetchId, Fetched, Kin, Pg, PgConfig, Scrubs};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::ObjectStore;
use transfer::Transfers;
pub(crate) use transfer::seen_by;
use views::Views;
pub use walk::WALK_STEP;
use walk::{Behind, Walk};
use wire::msg::{MOsdOp, MPgPeer};

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
    leaving: BTreeMap<(SpgId, Epoch), u32>,
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

    /// The reactor of a copy, as far as the maps here tell.
    #[must_use]
    pub fn place(&self, spg: SpgId) -> usize {
        self.places.of(spg)
    }

    /// Where a client's operation goes. One of a newer map waits here for that: those behind it must not find a shorter way.
    #[must_use]
    pub fn place_of_op(&self, m: &MOsdOp) -> usize {
        if m.osdmap_epoch > self.epoch() { self.places.index() } else { self.places.of(m.pgid) }
    }

    /// The reactor where a PG should be.
    #[must_use]
    pub fn home(&self, pg: PgId) -> usize {
        self.places.named(pg)
    }

    /// Result of a fetch.
    pub fn fetched(&mut self, pg: PgId, id: FetchId, r: Result<Fetched, Errno>, now: Now, store: &mut dyn ObjectStore) {
        if let Some(i) = self.machine_of(pg) {
            self.feed_pg(i, Event::Fetched(id, r), now, store);
        }
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
