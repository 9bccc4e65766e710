//! State that all PGs of a reactor share, and what of it all reactors of the OSD share: leases, reservations, scrub
//! slots, counters.

use super::{Input, Output, Pgs};
use base::{Now, SpgId};
use pg::lease::{LeaseUpdate, LeaseView};
use pg::meter::Meter;
use pg::reserve::Reserver;
use pg::scrub::{ScrubConfig, ScrubSlots};
use pg::{Event, Pg, Scrubs};
use std::rc::Rc;
use std::sync::Arc;
use store::{Cid, ObjectStore};

/// Services of a reactor for its PGs; see the module.
#[derive(Default)]
pub(super) struct Services {
    leases: Rc<LeaseView>,
    reserver: Arc<Reserver>,
    /// Number of this reactor at the reserver.
    reactor: usize,
    meter: Rc<Meter>,
    scrubs: Rc<Scrubs>,
}

impl Services {
    /// Gives a machine the services.
    pub(super) fn equip(&self, pg: &mut Pg) {
        pg.use_leases(self.leases.clone());
        pg.use_reserver(self.reserver.clone(), self.reactor);
        pg.use_meter(self.meter.clone());
        pg.use_scrubs(self.scrubs.clone());
    }

    /// Applies a granted or received lease. True if it is renewed.
    pub(super) fn update_lease(&self, u: LeaseUpdate) -> bool {
        self.leases.update(u)
    }

    /// Reservations of all reactors.
    pub(super) fn reserver(&self) -> &Arc<Reserver> {
        &self.reserver
    }

    /// Counters of the PGs' operations.
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Number of scrubs that may begin.
    pub(super) fn free_scrub_slots(&self) -> usize {
        self.scrubs.slots.free() as usize
    }

    /// True if due scrubs may begin at this time.
    pub(super) fn permits_scrubs(&self, now: Now) -> bool {
        self.scrubs.config.borrow().permits(now.wall)
    }

    /// Applies settings of scrubs.
    pub(super) fn set_scrubs(&self, max: u32, config: ScrubConfig) {
        self.scrubs.slots.set_max(max);
        self.scrubs.config.replace(config);
    }

    /// Free name for the collection of a new PG. `None` while a copy of the PG is being removed, or if earlier
    /// collections of it have all names.
    pub(super) fn free_name(&self, spg: SpgId) -> Option<Cid> {
        if self.reserver.is_being_removed(spg) {
            return None;
        }
        self.reserver.free_name(spg, |_| false)
    }
}

impl Pgs {
    /// Sets the reserver that all reactors of the OSD share, and this reactor's number. Must be called before any PG is
    /// loaded.
    pub fn share_reserver(&mut self, reserver: Arc<Reserver>, reactor: usize) {
        self.services.reserver = reserver;
        self.services.reactor = reactor;
    }

    /// Sets the slots that bound scrubs. Must be called before any PG is loaded.
    pub fn share_scrub_slots(&mut self, slots: Arc<ScrubSlots>) {
        let s = &mut self.services.scrubs;
        *s = Rc::new(Scrubs { slots, config: s.config.clone() });
    }

    /// Handles reservations that PGs here got by an event on another reactor.
    pub fn reserved(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        self.wake_reserved(now, store);
    }

    /// Lets PGs continue whose reservations were granted or preempted, and tells other reactors of theirs.
    pub(super) fn wake_reserved(&mut self, now: Now, store: &mut dyn ObjectStore) {
        let here = self.services.reactor;
        while self.services.reserver.has_news(here) {
            for i in self.services.reserver.woken(here) {
                self.handle_in_pg(i, Event::Tick, now, store);
            }
        }
        if self.services.reserver.has_any_news() {
            for other in self.services.reserver.others_with_news(here) {
                self.out.push_back(Output::Reactor(other, Input::Reserved));
            }
        }
    }
}
