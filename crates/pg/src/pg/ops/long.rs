//! Long calls: class calls that go through a large omap run in parts. The plan of such a call is parked between its
//! parts, with the lock of its object: other objects go on, and so do reads of this one beside a call that only reads.
//!
//! Invariants:
//!  1. What is kept belongs to one version of the object; for another version the call begins anew.
//!  2. A part changes nothing but what is kept. The changes of the call are those of its last part.
//!  3. What is kept ends with the plan, so with the interval and with the client's session.
//!
//! Tests: `tests/long.rs`.

use crate::long::Place;
use crate::pg::Pg;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Stage;
use base::Eversion;
use cls::Parts;
use store::ObjectStore;

/// State of a long call between its parts.
#[derive(Debug)]
pub(in crate::pg) struct LongCall {
    parts: Parts,
    /// The object's version.
    of: Eversion,
    place: Place,
}

impl Pg {
    /// Takes what a call has kept of this version of the object, for its next part.
    pub(in crate::pg) fn take_parts(
        &self,
        long: &mut Option<Box<LongCall>>,
        version: Eversion,
    ) -> (Parts, Option<Place>) {
        let (mut parts, place) = match long.take().filter(|l| l.of == version) {
            Some(l) => (l.parts, Some(l.place)),
            None => (Parts::default(), None),
        };
        parts.begin(self.env.pacer().long.room());
        (parts, place)
    }

    /// Keeps the progress of a call, if there is any and a place for it. True if the part is over before the call.
    pub(in crate::pg) fn keep_parts(
        &self,
        long: &mut Option<Box<LongCall>>,
        parts: Parts,
        of: Eversion,
        place: Option<Place>,
    ) -> bool {
        let paused = parts.paused();
        if !parts.is_empty()
            && let Some(place) = place.or_else(|| self.env.pacer().long.place())
        {
            *long = Some(Box::new(LongCall { parts, of, place }));
        }
        paused
    }

    /// Queues a call for its next part. What the part has read is no longer needed in memory.
    pub(in crate::pg) fn queue_part(&self, plan: &Plan, store: &mut dyn ObjectStore) {
        store.release(self.tag(plan.id));
        self.env.pacer().long.queue((self.env.index(), plan.id), plan.long.is_some() || plan.progress.is_some());
    }

    /// Readies a call or copy whose turn has come.
    pub(in crate::pg) fn handle_part(&mut self, id: u64) {
        let Some(plan) = self.plans.all.get_mut(&id) else { return };
        plan.copying.turn = plan.stage == Stage::CopyRoom;
        if plan.copying.turn || plan.stage == Stage::NextPart {
            self.plans.runnable.push_back(id);
        }
    }

    /// True while a call runs in parts.
    pub(in crate::pg) fn has_long_calls(&self) -> bool {
        self.plans.all.values().any(|p| p.is_long())
    }
}

impl Plan {
    fn is_long(&self) -> bool {
        self.long.is_some() || self.progress.is_some() || self.stage == Stage::NextPart
    }
}
