//! Orders of operators about PGs (scrubs, priority of recovery, unfound objects), and the schedule of due scrubs.
//!
//! Invariants:
//!  1. An operator's request waits in its PG until the scrub is possible. A due scrub is tried, and considered again
//!     later.
//!  2. The longest overdue scrub begins first, and no more begin than the OSD has free slots.
//!
//! Tests: `tests/pgs/orders.rs`.

use super::Pgs;
use crate::core::scrub::ScrubSettings;
use base::errno::Errno;
use base::{Now, PgId, SpgId};
use pg::scrub::ScrubRequest;
use pg::{Event, Pg};
use store::ObjectStore;

impl Pgs {
    /// Applies settings of scrubs.
    pub fn set_scrubs(&mut self, s: &ScrubSettings) {
        self.services.set_scrubs(s.max_scrubs, s.pg.clone());
        self.periodic.schedule_scrubs_soon();
    }

    /// Requests scrubs of PGs on an operator's order. PGs that are not led here are ignored.
    pub fn scrub(&mut self, pgs: &[SpgId], deep: bool, repair: bool, now: Now, store: &mut dyn ObjectStore) {
        for spg in pgs {
            let Some(i) = self.machine_of(spg.pg) else { continue };
            if self.pgs.get(i).is_some_and(Pg::is_primary) {
                self.feed_pg(i, Event::Scrub(ScrubRequest { deep, repair, required: true }), now, store);
            }
        }
    }

    /// Changes the recovery priority of PGs on an operator's order ([`Event::Force`]).
    pub fn force(&mut self, pgs: &[SpgId], options: u8, now: Now, store: &mut dyn ObjectStore) {
        for spg in pgs {
            let Some(i) = self.machine_of(spg.pg) else { continue };
            if self.pgs.get(i).is_some_and(Pg::is_primary) {
                self.feed_pg(i, Event::Force(options), now, store);
            }
        }
    }

    /// Gives up the unfound objects of a PG on an operator's order. Returns the answer for the operator, or the errno
    /// and text of the refusal ([`Pg::mark_unfound_lost`]); `None` if the PG is not here.
    pub fn mark_lost(
        &mut self,
        pg: PgId,
        revert: bool,
        now: Now,
        store: &mut dyn ObjectStore,
    ) -> Option<Result<String, (Errno, String)>> {
        let i = self.machine_of(pg)?;
        let said = self.pgs.get_mut(i)?.mark_unfound_lost(revert, now, store, &mut self.effects);
        self.feed_pg(i, Event::Tick, now, store);
        Some(said)
    }

    /// Begins due scrubs. `idle` tells whether the machine's load allows it, and is called only if a scrub is due.
    pub fn schedule_scrubs(&mut self, now: Now, idle: impl FnOnce() -> bool, store: &mut dyn ObjectStore) {
        if !self.periodic.may_schedule_scrubs(now.mono) {
            return;
        }
        let free = self.services.free_scrub_slots();
        if free == 0 {
            return;
        }
        let mut due: Vec<(u32, pg::scrub::Due)> =
            self.pgs.iter().filter_map(|(i, p)| Some((i, p.scrub_due(now)?))).collect();
        if due.is_empty() {
            return;
        }
        if !self.services.permits_scrubs(now) || !idle() {
            due.retain(|(_, d)| d.overdue);
        }
        due.sort_by(|a, b| b.1.since.total_cmp(&a.1.since).then(a.0.cmp(&b.0)));
        for (i, d) in due.into_iter().take(free) {
            self.feed_pg(i, Event::Scrub(d.request), now, store);
        }
    }
}
