//! Plans that wait for space: for a map in which the pool is not full, for room in the store, or among the copies of
//! the reactor. They hold no lock, since trimming, backfill, deletions, recovery and other clients may be what frees the space.
//! Whether a client's write waits here or fails with ENOSPC or EDQUOT (a quota) is decided in `vector`.
//!
//! Invariants:
//!  1. A plan that waits for space has changed nothing and holds nothing: it runs again as a new one.
//!  2. Writes of one session to one object keep their order: a later one waits behind one that waits for space. A
//!     write with FULL_TRY or FULL_FORCE does not, as its client sends it to free space. Reads see the object as it is.
//!
//! Tests: `tests/space.rs`.

use crate::effect::{Effect, LogLevel};
use crate::event::SessionId;
use crate::map::pool_flags;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::work::ResizeWork;
use crate::pg::ops::work::Work;
use crate::pg::seldom::Part;
use crate::pg::{Pg, State, Turn};
use base::HObject;
use base::planted::{Bug, acts};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::ObjectStore;
use wire::msg::msg_flags;

/// Delay before a step without room is tried again.
const FULL_RETRY: Duration = Duration::from_secs(2);

/// Numbers of the plans that wait for space, and of those behind them, by session and object; see the module.
#[derive(Debug, Default)]
pub(in crate::pg) struct Spaceless(BTreeMap<(SessionId, HObject), BTreeSet<u64>>);

impl Part for Spaceless {
    const EMPTY: &'static Self = &Self(BTreeMap::new());

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Session and object of a client's write that keeps its order behind writes that wait for space.
fn ordered(plan: &Plan) -> Option<(SessionId, HObject)> {
    let (Work::Client(req, _), Some(head), true) = (&plan.work, &plan.head, plan.excl) else { return None };
    let frees = req.msg.flags & (msg_flags::FULL_TRY | msg_flags::FULL_FORCE) != 0;
    (!frees).then(|| (req.session, head.clone()))
}

impl Pg {
    /// True if the plan comes after a write of its session to its object that waits for space.
    pub(in crate::pg) fn comes_after_spaceless(&self, plan: &Plan) -> bool {
        let first = |key| self.plans.spaceless.0.get(&key).and_then(BTreeSet::first).is_some_and(|id| *id < plan.id);
        !self.plans.spaceless.0.is_empty() && ordered(plan).is_some_and(first)
    }

    /// Parks a plan until there is space. It gives up its lock and what it has read.
    pub(in crate::pg) fn park_without_space(&mut self, mut plan: Box<Plan>, stage: Stage, store: &mut dyn ObjectStore) {
        store.release(self.tag(plan.id));
        self.unlock(&plan);
        plan.holds = false;
        (plan.reads, plan.copied, plan.copying.room, plan.long, plan.progress) = (None, None, None, None, None);
        plan.stage = stage;
        if let Some(key) = ordered(&plan) {
            self.plans.spaceless.0.entry(key).or_default().insert(plan.id);
        }
        self.plans.all.insert(plan.id, plan);
    }

    /// Notes that a plan no longer waits for space, and readies the one behind it.
    pub(in crate::pg) fn leave_spaceless(&mut self, plan: &Plan) {
        let Some(s) = self.plans.spaceless.used() else { return };
        let Some(key) = ordered(plan) else { return };
        let Some(ids) = s.0.get_mut(&key) else { return };
        if ids.remove(&plan.id) {
            self.plans.runnable.extend(ids.first());
        }
        if ids.is_empty() {
            s.0.remove(&key);
        }
    }

    /// Forgets all plans that waited for space.
    pub(in crate::pg) fn clear_spaceless(&mut self) {
        if let Some(s) = self.plans.spaceless.used() {
            s.0.clear();
        }
    }

    /// Handles a plan without room: it runs again after a delay, and the cluster log gets one line.
    pub(in crate::pg) fn lacks_room(&mut self, plan: &Plan, turn: &mut Turn<'_>) {
        let at = turn.now.mono + FULL_RETRY;
        self.plans.retry_at = Some(self.plans.retry_at.map_or(at, |t| t.min(at)));
        if !std::mem::replace(&mut self.plans.room_missed, true) {
            let text = format!("{} waits: its OSD has no space; the step is retried every 2 s", self.env.spg());
            tracing::warn!(object = ?plan.head, "{text}");
            turn.out.push(Effect::Log(LogLevel::Warn, text));
        }
    }

    /// Runs plans without room again, after their delay.
    pub(in crate::pg) fn retry_later(&mut self, turn: &mut Turn<'_>) {
        if self.plans.retry_at.take_if(|t| *t <= turn.now.mono).is_none() || self.life.is_stopping() {
            return;
        }
        let stuck = self.plans.all.values().filter(|p| p.stage == Stage::NoRoom).map(|p| p.id);
        self.plans.runnable.extend(stuck);
        self.end_stalled_copies(turn);
        if *self.life.state() == State::Splitting
            && !self.plans.all.values().any(|p| matches!(p.work, Work::Resize(ResizeWork::Split)))
        {
            self.start_work(Work::Resize(ResizeWork::Split), None, turn);
        }
    }

    /// Readies the plans that wait for a pool with space, if it has some.
    pub(in crate::pg) fn retry_blocked(&mut self) {
        if self.pool().is_some_and(|p| p.has(pool_flags::FULL)) || acts(Bug::ForgetSpace) {
            return;
        }
        let blocked = self.plans.all.values().filter(|p| p.stage == Stage::WaitingForSpace).map(|p| p.id);
        self.plans.runnable.extend(blocked);
    }
}
