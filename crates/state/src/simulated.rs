//! A simulated replicated store with several handles and faults between them: delayed requests and replies, unknown
//! outcomes, watches that lag or break, early compaction, leases that expire early, and partitioned handles.
//!
//! All faults are drawn from one seed, and time advances only by [`Cluster::advance`].

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use base::Mono;
use base::rng::Rng;
use bytes::Bytes;

use crate::api::{Change, Event, Op, Range, Reply, Request, StateError, StateStore, Token, WatchId};
use crate::engine::Engine;
use crate::memory::MemTree;

/// Faults, each with its chance in 1000 per request (leases and compaction: per second of time).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Longest delay of a request or a reply, in nanoseconds.
    pub delay_max: u64,
    /// The reply to an executed request is lost.
    pub lost_answer: u64,
    /// A request is lost or delayed: its sender gets an unknown outcome, and it may still arrive.
    pub lost_request: u64,
    /// A watch breaks.
    pub broken_watch: u64,
    /// The history is compacted.
    pub compaction: u64,
    /// A lease expires early.
    pub lost_lease: u64,
}

/// Time in nanoseconds after which a sender without a reply reports an unknown outcome.
pub const TIMEOUT: u64 = 2_000_000_000;
/// Longest delay in nanoseconds of a lost request.
const LATE: u64 = 10_000_000_000;

/// Divisor for chances in 1000 per second, of nanoseconds.
const PER_SECOND: u64 = 1_000_000_000_000;

type HandleId = usize;

enum Step {
    /// A request arrives at the store.
    Arrive(HandleId, u64, Request),
    /// The sender of a request gives up. Tokens are reused over time, so requests are counted.
    GiveUp(HandleId, u64, Token),
    /// An event arrives at its owner.
    Deliver(HandleId, Option<u64>, Event),
}

#[derive(Default)]
struct Handle {
    /// Unanswered requests by count, in the order of submission.
    open: BTreeMap<u64, Token>,
    /// Arrival time of the newest event of a watch (or reply, for `None`): later events do not overtake it.
    order: BTreeMap<Option<WatchId>, u64>,
    /// Arrival time of the newest request.
    request_order: u64,
    ready: VecDeque<Event>,
    /// Engine's ids of the handle's watches.
    watches: BTreeMap<WatchId, WatchId>,
    cut: bool,
    ended: bool,
    /// Delayed requests; `None` if requests are not delayed.
    held: Option<Vec<(u64, Request)>>,
}

struct World {
    tree: MemTree,
    engine: Engine,
    faults: Faults,
    rng: Rng,
    now: u64,
    count: u64,
    queue: BTreeMap<(u64, u64), Step>,
    handles: Vec<Handle>,
    /// Owner of each of the engine's watches, and the owner's id for it.
    watches: BTreeMap<WatchId, (HandleId, WatchId)>,
    /// Transactions that took effect and were not looked at yet.
    observed: Vec<(u64, Vec<Change>)>,
}

/// The watch of [`Cluster::observe`].
const OBSERVER: WatchId = u64::MAX - 1;

/// The store shared by all handles.
#[derive(Clone)]
pub struct Cluster(Rc<RefCell<World>>);

impl Cluster {
    /// An empty store.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(World {
            tree: MemTree::default(),
            engine: Engine::default(),
            faults,
            rng: Rng::new(seed),
            now: 0,
            count: 0,
            queue: BTreeMap::new(),
            handles: Vec::new(),
            watches: BTreeMap::new(),
            observed: Vec::new(),
        })))
    }

    /// Makes a handle for one user.
    #[must_use]
    pub fn handle(&self) -> SimulatedStore {
        let mut w = self.0.borrow_mut();
        w.handles.push(Handle::default());
        SimulatedStore { cluster: self.clone(), id: w.handles.len() - 1 }
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Partitions a handle from the store, or reconnects it. Requests during the partition have no effect, which the
    /// handle cannot know.
    pub fn cut(&self, handle: &SimulatedStore, cut: bool) {
        if let Some(h) = self.0.borrow_mut().handles.get_mut(handle.id) {
            h.cut = cut;
        }
    }

    /// Delays the requests of a handle until [`Cluster::release`]. Meanwhile their sender gets unknown outcomes.
    pub fn hold(&self, handle: &SimulatedStore) {
        if let Some(h) = self.0.borrow_mut().handles.get_mut(handle.id) {
            h.held.get_or_insert_with(Vec::new);
        }
    }

    /// Lets all delayed requests arrive at the next [`Cluster::advance`], even those of senders that have ended.
    pub fn release(&self) {
        self.0.borrow_mut().release();
    }

    /// Compacts revisions below a given one.
    pub fn compact(&self, revision: u64) {
        self.0.borrow_mut().engine.compact(revision);
    }

    /// Advances the time to `now`. Requests submitted afterwards count from then, so a user calls this before.
    pub fn advance(&self, now: Mono) {
        self.0.borrow_mut().advance(now.0);
    }

    /// Keeps every change from now on for [`Cluster::take_observed`], in the order of effect and independent of faults.
    pub fn observe(&self) {
        let w = &mut *self.0.borrow_mut();
        let watch = Op::Watch { id: OBSERVER, range: Range { start: Bytes::new(), end: None }, from: 0 };
        w.engine.run(&mut w.tree, Request { token: 0, op: watch }, &mut Vec::new());
    }

    /// The transactions that took effect since the last call, by revision.
    pub fn take_observed(&self) -> Vec<(u64, Vec<Change>)> {
        std::mem::take(&mut self.0.borrow_mut().observed)
    }

    /// Time of the next scheduled event.
    #[must_use]
    pub fn next_step(&self) -> Option<Mono> {
        self.0.borrow().queue.keys().next().map(|(t, _)| Mono(*t))
    }
}

impl World {
    fn delay(&mut self) -> u64 {
        match self.faults.delay_max {
            0 => 0,
            n => self.rng.below(n),
        }
    }

    fn at(&mut self, when: u64, step: Step) {
        self.count += 1;
        self.queue.insert((when, self.count), step);
    }

    fn advance(&mut self, to: u64) {
        while let Some(e) = self.queue.first_entry()
            && e.key().0 <= to
        {
            let ((when, _), step) = e.remove_entry();
            self.pass(when);
            self.step(step);
        }
        self.pass(to);
    }

    /// Faults and expirations caused by time alone.
    fn pass(&mut self, to: u64) {
        if to <= self.now {
            return;
        }
        let ns = (to - self.now).min(1_000_000_000);
        self.now = to;
        let mut out = Vec::new();
        if self.engine.tick(Mono(to)) {
            // The in-memory tree cannot fail.
            let _ = self.engine.expire(&mut self.tree, &mut out);
        }
        if self.rng.chance(self.faults.compaction * ns, PER_SECOND) {
            let back = self.rng.below(20);
            self.engine.compact(self.engine.revision().saturating_sub(back));
        }
        if self.rng.chance(self.faults.lost_lease * ns, PER_SECOND) {
            let all = self.engine.lease_ids();
            let pick = self.rng.below(all.len().max(1) as u64) as usize;
            if let Some(l) = all.get(pick) {
                let _ = self.engine.lose_lease(&mut self.tree, *l, &mut out);
            }
        }
        self.distribute(out);
    }

    fn submit(&mut self, id: HandleId, r: Request) {
        self.count += 1;
        let n = self.count;
        let mut when = self.now + self.delay();
        let lost = self.rng.chance(self.faults.lost_request, 1000);
        let late = self.rng.below(LATE);
        let Some(h) = self.handles.get_mut(id) else { return };
        h.open.insert(n, r.token);
        // A lost request arrives at a time of its own; all others arrive in order.
        if lost || h.cut {
            when += late;
        } else {
            when = when.max(h.request_order);
            h.request_order = when;
        }
        let never = h.cut;
        let token = r.token;
        if !never {
            self.at(when, Step::Arrive(id, n, r));
        }
        self.at(self.now + TIMEOUT, Step::GiveUp(id, n, token));
    }

    fn step(&mut self, s: Step) {
        match s {
            Step::Arrive(id, n, r) => self.arrive(id, n, r),
            Step::GiveUp(id, n, token) => {
                let why = StateError::Unknown("no answer in time".into());
                self.answer(id, n, Reply { token, revision: 0, result: Err(why) });
            }
            Step::Deliver(id, Some(n), Event::Reply(r)) => self.answer(id, n, r),
            Step::Deliver(id, _, e) => {
                if let Some(h) = self.handles.get_mut(id).filter(|h| !h.ended) {
                    h.ready.push_back(e);
                }
            }
        }
    }

    fn answer(&mut self, id: HandleId, n: u64, r: Reply) {
        if let Some(h) = self.handles.get_mut(id)
            && h.open.remove(&n).is_some()
            && !h.ended
        {
            h.ready.push_back(Event::Reply(r));
        }
    }

    fn release(&mut self) {
        for id in 0..self.handles.len() {
            for (n, r) in self.handles.get_mut(id).and_then(|h| h.held.take()).unwrap_or_default() {
                self.at(self.now, Step::Arrive(id, n, r));
            }
        }
    }

    fn arrive(&mut self, id: HandleId, n: u64, mut r: Request) {
        if let Some(held) = self.handles.get_mut(id).and_then(|h| h.held.as_mut()) {
            return held.push((n, r));
        }
        // Ids of watches are per handle. A watch whose request was given up is not started late.
        let waits = self.handles.get(id).is_some_and(|h| h.open.contains_key(&n) && !h.ended && !h.cut);
        match &mut r.op {
            Op::Watch { id: name, .. } => {
                if !waits {
                    return;
                }
                self.end_watch(id, *name);
                self.watches.insert(n, (id, *name));
                if let Some(h) = self.handles.get_mut(id) {
                    h.watches.insert(*name, n);
                }
                *name = n;
            }
            Op::Unwatch(name) => {
                let own = *name;
                *name = self.handles.get(id).and_then(|h| h.watches.get(&own).copied()).unwrap_or(u64::MAX);
                self.end_watch(id, own);
            }
            _ => {}
        }
        let watch = if let Op::Watch { id, .. } = &r.op { Some(*id) } else { None };
        let mut out = Vec::new();
        self.engine.run(&mut self.tree, r, &mut out);
        let mut rest = out.split_off(1);
        let Some(reply) = out.pop() else { return };
        if let (Some(w), Event::Reply(Reply { result: Err(_), .. })) = (watch, &reply) {
            self.watches.remove(&w);
        }
        let lost = self.rng.chance(self.faults.lost_answer, 1000);
        let cut = self.handles.get(id).is_none_or(|h| h.cut);
        if !lost && !cut {
            self.deliver(id, None, Some(n), reply);
        }
        if self.rng.chance(self.faults.broken_watch, 1000) {
            let pick = self.rng.below(self.watches.len().max(1) as u64) as usize;
            if let Some((inner, (owner, name))) = self.watches.iter().nth(pick).map(|(k, v)| (*k, *v)) {
                self.engine.unwatch(inner);
                self.watches.remove(&inner);
                let why = StateError::Unavailable("the watch broke".into());
                self.deliver(owner, Some(name), None, Event::Lost { watch: name, why });
                // Events of this request for the broken watch are lost with it.
                rest.retain(|e| !matches!(e, Event::Changed { watch, .. } if *watch == inner));
            }
        }
        self.distribute(rest);
    }

    fn end_watch(&mut self, id: HandleId, name: WatchId) {
        if let Some(inner) = self.handles.get_mut(id).and_then(|h| h.watches.remove(&name)) {
            self.engine.unwatch(inner);
            self.watches.remove(&inner);
        }
    }

    /// Schedules watch events for delivery.
    fn distribute(&mut self, events: Vec<Event>) {
        for e in events {
            let Event::Changed { watch, revision, changes } = e else { continue };
            if watch == OBSERVER {
                self.observed.push((revision, changes));
                continue;
            }
            let Some((owner, name)) = self.watches.get(&watch).copied() else { continue };
            if self.handles.get(owner).is_none_or(|h| h.cut) {
                // A partitioned stream loses its events, and is reported as lost after the reconnection.
                self.engine.unwatch(watch);
                self.watches.remove(&watch);
                let why = StateError::Unavailable("cut off".into());
                self.deliver(owner, Some(name), None, Event::Lost { watch: name, why });
                continue;
            }
            self.deliver(owner, Some(name), None, Event::Changed { watch: name, revision, changes });
        }
    }

    fn deliver(&mut self, id: HandleId, lane: Option<WatchId>, n: Option<u64>, e: Event) {
        let when = self.now + self.delay();
        let Some(h) = self.handles.get_mut(id) else { return };
        let newest = h.order.entry(lane).or_insert(0);
        let when = when.max(*newest);
        *newest = when;
        self.at(when, Step::Deliver(id, n, e));
    }
}

/// A user's handle.
pub struct SimulatedStore {
    cluster: Cluster,
    id: HandleId,
}

impl SimulatedStore {
    /// True if an event waits to be taken.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.cluster.0.borrow().handles.get(self.id).is_some_and(|h| !h.ready.is_empty())
    }
}

impl StateStore for SimulatedStore {
    fn submit(&mut self, request: Request) {
        self.cluster.0.borrow_mut().submit(self.id, request);
    }

    fn poll(&mut self) -> Option<Event> {
        self.cluster.0.borrow_mut().handles.get_mut(self.id)?.ready.pop_front()
    }

    fn tick(&mut self, _: Mono) {}
}

impl Drop for SimulatedStore {
    fn drop(&mut self) {
        let mut w = self.cluster.0.borrow_mut();
        let names: Vec<WatchId> =
            w.handles.get(self.id).map(|h| h.watches.keys().copied().collect()).unwrap_or_default();
        for name in names {
            w.end_watch(self.id, name);
        }
        if let Some(h) = w.handles.get_mut(self.id) {
            h.ended = true;
            h.ready.clear();
        }
    }
}
