//! The PGs of one reactor.
//!
//! The state is divided into parts, each with private fields in a file below `pgs/`; `impl Pgs` reacts to inputs
//! there, since one input may concern several parts in one order. A part calls no other part.
//!
//! | module | contents |
//! | --- | --- |
//! | `background` | time-driven work: deadlines of PGs, attempts that are repeated, release of memory |
//! | `copies` | the machine of each copy of a PG |
//! | `counters` | counters of a reactor's operations, and the section `osd` made of them |
//! | `current` | the newest map that all PGs of a reactor have seen |
//! | `input` | inputs of a reactor's PGs from the control machine and from other reactors of the OSD |
//! | `instance` | instances of OSDs: telling the process that the map shows from earlier ones |
//! | `life` | life of PGs: loading at the start, creation, splits, withdrawal |
//! | `members` | OSDs that share PGs with this one, as the control machine is told |
//! | `merges` | merges of PGs on this OSD: which PG leaves by which map, and their messages to each other |
//! | `ops` | the path of an operation: caps, its PG, and the outcome; and back, from the store's events to the answer |
//! | `orders` | orders of operators: scrubs, priority of recovery, unfound objects; due scrubs |
//! | `orphans` | messages of other OSDs for PGs without a copy on this OSD |
//! | `output` | actions that the PGs of a reactor demand of its host |
//! | `pacing` | the share of the reactor that background work may take, and the recovery messages that wait for it |
//! | `parked` | messages that wait for a newer map: operations of clients, and messages of other OSDs |
//! | `peers` | other OSDs: their messages, sessions and leases |
//! | `periodic` | work repeated in intervals: release of memory, the check for due scrubs, reports |
//! | `report` | reports of a reactor to the manager, about its PGs and its store |
//! | `resizes` | splits and merges in progress: their results, PGs that leave, messages between PGs |
//! | `rights` | rights and identity of a session's operations |
//! | `services` | state that all PGs share, and all reactors: leases, reservations, scrub slots, counters |
//! | `stop` | the end of a reactor's work: by order, or because its store failed |
//! | `transfer` | PGs that move to or from another reactor (`core::moves` decides when) |
//! | `views` | views of a map for PGs |
//! | `walk` | a new map's way through the PGs of a reactor, in parts |
//!
//! Invariants:
//!  1. Every PG sees every map since it was created or loaded, in order.
//!  2. An operation is answered, held by a PG, parked for a map or a PG's creation, or dropped because its
//!     client will resend it to another OSD. Parked operations are bounded.
//!  3. Index 0 stands for the host's own transactions. PGs have indices from 1, which are never reused.
//!
//! Tests: `tests/pgs/main.rs`, `tests/moves.rs`.

mod background;
mod copies;
pub mod counters;
mod current;
mod input;
mod instance;
mod life;
mod members;
mod merges;
mod ops;
mod orders;
mod orphans;
mod output;
mod pacing;
mod parked;
mod peers;
mod periodic;
mod report;
mod resizes;
mod rights;
mod services;
mod stop;
mod transfer;
mod views;
mod walk;

use crate::core::compress::{Defaults, Told};
use crate::core::maps::MapFeed;
use crate::core::places::Places;
use crate::core::slots::Slots;
use base::errno::Errno;
use base::{Epoch, Now, OsdId, PgId, SpgId};
use copies::Copies;
use counters::OpStats;
use current::Current;
pub use input::Input;
use instance::Instance;
use members::Members;
use orphans::Orphans;
pub use output::{OpCounters, Output, Ready, StoreNews};
use pacing::Pacing;
use parked::Parked;
use periodic::Periodic;
use pg::{Effect, Event, FetchId, Fetched, Pg};
use resizes::Resizes;
use services::Services;
use std::collections::VecDeque;
use std::sync::Arc;
use stop::Stage;
use store::ObjectStore;
use transfer::Transfers;
pub(crate) use transfer::seen_by;
use views::Views;
pub use walk::WALK_STEP;
use walk::{Behind, Walk};
use wire::msg::MOsdOp;

/// PGs of one reactor; see the module.
pub struct Pgs {
    /// Time of the present input.
    now: Now,
    /// Machines by copy.
    by_pg: Copies,
    /// Machines by number.
    pgs: Slots,
    /// Effects of the present input.
    effects: Vec<Effect>,
    out: VecDeque<Output>,
    current: Current,
    instance: Instance,
    places: Places,
    walk: Walk,
    parked: Parked,
    orphans: Orphans,
    members: Members,
    resizes: Resizes,
    transfers: Transfers,
    services: Services,
    pacing: Pacing,
    periodic: Periodic,
    stage: Stage,
    /// Settings of pools that the store has.
    compression: Told,
    stats: OpStats,
}

impl Pgs {
    /// No PGs yet; `places` tells which PGs belong to this reactor.
    #[must_use]
    pub fn new(whoami: OsdId, seed: u64, places: Places) -> Self {
        Self {
            now: Now::default(),
            by_pg: Copies::default(),
            pgs: Slots::default(),
            effects: Vec::new(),
            out: VecDeque::new(),
            current: Current::default(),
            instance: Instance::new(whoami, seed),
            places,
            walk: Walk::default(),
            parked: Parked::default(),
            orphans: Orphans::default(),
            members: Members::default(),
            resizes: Resizes::default(),
            transfers: Transfers::default(),
            services: Services::default(),
            pacing: Pacing::default(),
            periodic: Periodic::default(),
            stage: Stage::default(),
            compression: Told::default(),
            stats: OpStats::default(),
        }
    }

    /// Next action for the host, which has handed in the store's events that are there. New peers are reported before all
    /// else, since leases of theirs may be needed.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.members.is_noted()
            && let Some(report) = self.news_of_pg_peers()
        {
            return Some(Output::Control(report));
        }
        self.acknowledge();
        match self.out.pop_front()? {
            // A walk that ended after the operation was dropped has brought its map.
            Output::Dropped(s, tid, _) => Some(Output::Dropped(s, tid, self.newest_feed().cloned())),
            o => Some(o),
        }
    }

    /// Newest map, with the incrementals that lead to it.
    #[must_use]
    pub fn feed(&self) -> Option<&Arc<MapFeed>> {
        self.current.feed()
    }

    /// Epoch of the newest map, 0 if there is none.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.current.epoch()
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

    /// Applies the OSD's own options of compression.
    pub fn set_compression(&mut self, defaults: Defaults, store: &mut dyn ObjectStore) {
        self.compression.set_defaults(defaults, store);
    }

    /// Number of PGs here.
    #[must_use]
    pub fn pg_count(&self) -> usize {
        self.pgs.len()
    }

    /// All PGs here.
    pub fn iter(&self) -> impl Iterator<Item = &Pg> {
        self.pgs.values()
    }

    /// The PG's machine, if it is here.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&Pg> {
        self.pgs.get(self.machine_of(pg)?)
    }
}
