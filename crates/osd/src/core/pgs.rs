//! The PGs of one reactor.
//!
//! The state is divided into parts, each with private fields in a file below `pgs/`; `impl Pgs` reacts to inputs
//! there, since one input may concern several parts in one order. A part calls no other part.
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

    /// Next action for the host. New peers are reported before all else, since leases of theirs may be needed.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.members.is_noted()
            && let Some(report) = self.news_of_pg_peers()
        {
            return Some(Output::Control(report));
        }
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
