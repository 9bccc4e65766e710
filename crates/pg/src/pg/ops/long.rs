//! Long calls: class calls that go through a large omap run in parts. The plan of such a call is parked between its
//! parts, with the lock of its object: other objects go on, and so do reads of this one beside a call that only reads.
//!
//! Invariants:
//!  1. What is kept belongs to one version of the object; for another version the call begins anew.
//!  2. A part changes nothing but what is kept. The changes of the call are those of its last part.
//!  3. What is kept ends with the plan, so with the interval and with the client's session.

use crate::effect::Effect;
use crate::event::{FetchId, SessionId};
use crate::long::Place;
use crate::pg::Pg;
use crate::pg::ops::plan::{Plan, Work};
use crate::pg::report::Stage;
use base::{Eversion, HObject};
use cls::Parts;
use std::collections::BTreeMap;
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
        parts.begin(self.pacer.long.room());
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
            && let Some(place) = place.or_else(|| self.pacer.long.place())
        {
            *long = Some(Box::new(LongCall { parts, of, place }));
        }
        paused
    }

    /// Queues a call for its next part. What the part has read is no longer needed in memory.
    pub(in crate::pg) fn queue_part(&self, plan: &Plan, store: &mut dyn ObjectStore) {
        store.release(self.tag(plan.id));
        self.pacer.long.queue((self.cfg.index, plan.id), plan.long.is_some());
    }

    /// Readies a call whose turn has come.
    pub(in crate::pg) fn handle_part(&mut self, id: u64) {
        if self.plans.get(&id).is_some_and(|p| p.stage == Stage::NextPart) {
            self.runnable.push_back(id);
        }
    }

    /// True while a call runs in parts.
    pub(in crate::pg) fn has_long_calls(&self) -> bool {
        self.plans.values().any(|p| p.is_long())
    }

    /// True if a call of the session runs in parts.
    pub(in crate::pg) fn has_long_call(&self, session: SessionId) -> bool {
        self.plans.values().any(|p| p.is_long() && p.session() == Some(session))
    }

    /// Drops the calls in parts of a session that ended, with the session's later operations on the same objects. They
    /// have changed nothing, and the client sends them again in the same order.
    pub(in crate::pg) fn drop_long_calls(&mut self, session: SessionId, out: &mut Vec<Effect>) {
        let mut of: BTreeMap<HObject, u64> = BTreeMap::new();
        for p in self.plans.values().filter(|p| p.is_long() && p.session() == Some(session)) {
            if let Some(head) = &p.head {
                of.entry(head.clone()).or_insert(p.id);
            }
        }
        if of.is_empty() {
            return;
        }
        let later = |p: &Plan| {
            let first = p.head.as_ref().and_then(|h| of.get(h));
            p.session() == Some(session) && first.is_some_and(|first| p.id >= *first)
        };
        let dropped: Vec<u64> = self.plans.values().filter(|p| later(p)).map(|p| p.id).collect();
        for id in dropped {
            if let Some(plan) = self.plans.remove(&id) {
                if plan.copy.is_some() {
                    out.push(Effect::CancelFetch(FetchId(id)));
                }
                self.abandoned.push(id);
                self.unlock(&plan);
                self.counters.dropped += 1;
            }
        }
        self.pacer.long.forget(self.cfg.index, |id| self.plans.contains_key(&id));
        for queue in self.peers.waiting.values_mut() {
            let before = queue.len();
            queue.retain(|p| !later(p));
            self.counters.dropped += (before - queue.len()) as u64;
        }
    }
}

impl Plan {
    fn is_long(&self) -> bool {
        self.long.is_some() || self.stage == Stage::NextPart
    }

    /// The session of a client's operation.
    fn session(&self) -> Option<SessionId> {
        match &self.work {
            Work::Client(req, _) => Some(req.session),
            _ => None,
        }
    }
}
