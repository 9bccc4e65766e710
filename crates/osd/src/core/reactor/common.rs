//! State that all reactors of an OSD share, and the start of each.

use super::Reactor;
use crate::core::moves;
use crate::core::pgs::Pgs;
use crate::core::places::{Found, Places, reactor_of};
use base::{AddrVec, OsdId};
use pg::reserve::Reserver;
use pg::scrub::ScrubSlots;
use std::sync::Arc;
use std::time::Duration;
use store::Cid;
use store::engine::Store;

/// State of all reactors of an OSD; see the module. It may cross threads.
pub struct Common {
    whoami: OsdId,
    reactors: usize,
    /// PGs in the stores at the start, with the reactor of each.
    found: Vec<Found>,
    /// Collections that no PG owns and that are to be removed, with the reactor of each.
    doomed: Vec<(usize, Cid)>,
    scrubs: Arc<ScrubSlots>,
    reserver: Arc<Reserver>,
}

impl Common {
    /// State of an OSD with these stores, one for each reactor. `drive` runs the I/O of a store.
    pub fn survey(whoami: OsdId, stores: &mut [Store], drive: impl FnMut(&mut Store)) -> Self {
        let n = stores.len();
        let (found, doomed) = moves::survey(stores, |pg| reactor_of(pg, n), drive);
        let reserver = Arc::<Reserver>::default();
        // Must precede the creation of PGs by any reactor.
        doomed.iter().for_each(|(_, cid)| reserver.announce_removal(*cid));
        Self { whoami, reactors: n, found, doomed, scrubs: Arc::default(), reserver }
    }

    /// Slots that bound scrubs.
    #[must_use]
    pub fn scrubs(&self) -> &Arc<ScrubSlots> {
        &self.scrubs
    }

    /// Reservations for recovery.
    #[must_use]
    pub fn reserver(&self) -> &Arc<Reserver> {
        &self.reserver
    }

    /// Reactor `index`, without PGs until [`crate::core::pgs::Input::Load`]. `moves`: split-off PGs move to the reactors of
    /// their names.
    #[must_use]
    pub fn reactor(
        &self,
        index: usize,
        store: Store,
        seed: u64,
        public: AddrVec,
        moves: bool,
        device_timeout: Duration,
    ) -> Reactor {
        let n = self.reactors;
        let places = match n {
            1 => Places::all_here(),
            _ => Places::new(index, Box::new(move |pg| reactor_of(pg, n)), &self.found),
        };
        let mut pgs = Pgs::new(self.whoami, seed, places);
        pgs.set_addrs(public);
        pgs.share_scrub_slots(self.scrubs.clone());
        pgs.share_reserver(self.reserver.clone(), index);
        let doomed = self.doomed.iter().filter(|(at, _)| *at == index).map(|(_, cid)| *cid).collect();
        pgs.share_reactors(n, moves, doomed);
        Reactor::new(index, pgs, store, device_timeout)
    }
}
